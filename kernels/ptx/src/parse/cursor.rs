//! Where in the tokens parsing stands.

use super::lexer::{Kind, Literal, Token, excerpt};
use crate::error::{ParseError, Reason};

/// A place in the tokens of a text.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    source: &'a str,
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a str, tokens: &'a [Token<'a>]) -> Self {
        Self { source, tokens, at: 0 }
    }

    /// The place, to be given to [`Cursor::error`] and [`Cursor::text_from`].
    pub(crate) const fn place(&self) -> usize {
        self.at
    }

    pub(crate) fn peek(&self) -> Option<Kind<'a>> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    pub(crate) fn peek_second(&self) -> Option<Kind<'a>> {
        self.tokens.get(self.at + 1).map(|token| token.kind)
    }

    /// Line of the next token, or of the last one.
    pub(crate) fn line(&self) -> usize {
        self.line_at(self.at)
    }

    fn line_at(&self, at: usize) -> usize {
        self.tokens.get(at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(crate) fn next(&mut self) -> Option<Kind<'a>> {
        let kind = self.peek();
        self.at += usize::from(kind.is_some());
        kind
    }

    /// Passes over a character if it is next.
    pub(crate) fn accept(&mut self, mark: char) -> bool {
        let is_next = self.peek() == Some(Kind::Mark(mark));
        self.at += usize::from(is_next);
        is_next
    }

    /// Passes over `.name` if it is next.
    pub(crate) fn accept_dotted(&mut self, name: &str) -> bool {
        let is_next = self.peek() == Some(Kind::Dotted(name));
        self.at += usize::from(is_next);
        is_next
    }

    pub(crate) fn expect(&mut self, mark: char, expected: &'static str) -> Result<(), Reason> {
        if self.accept(mark) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    pub(crate) fn word(&mut self, expected: &'static str) -> Result<&'a str, Reason> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    pub(crate) fn dotted(&mut self, expected: &'static str) -> Result<&'a str, Reason> {
        match self.peek() {
            Some(Kind::Dotted(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// A number that is an integer.
    pub(crate) fn integer(&mut self, expected: &'static str) -> Result<u64, Reason> {
        match self.peek() {
            Some(Kind::Number(Literal::Integer(value))) => {
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// What is wrong where something else than `expected` is next.
    pub(crate) fn unexpected(&self, expected: &'static str) -> Reason {
        let found = self.tokens.get(self.at).map_or_else(
            || "the end of the text".to_owned(),
            |token| format!("'{}'", excerpt(self.source, token.start, token.end)),
        );
        Reason::Expected { expected, found }
    }

    /// The text of the statement that begins at `place`: up to its semicolon, or to the brace that
    /// opens or closes a block after an operand list.
    pub(crate) fn text_from(&self, place: usize) -> String {
        let first = self.tokens.get(place);
        let end = self.tokens[place.min(self.tokens.len())..]
            .iter()
            .position(|token| token.kind == Kind::Mark(';'))
            .map_or(self.tokens.len(), |length| place + length);
        let last = end.checked_sub(1).and_then(|last| self.tokens.get(last.max(place)));
        match (first, last) {
            (Some(first), Some(last)) => excerpt(self.source, first.start, last.end),
            _ => String::new(),
        }
    }

    /// The text of the tokens from `place` to here.
    pub(crate) fn text_until_here(&self, place: usize) -> String {
        match (self.tokens.get(place), self.at.checked_sub(1).and_then(|at| self.tokens.get(at))) {
            (Some(first), Some(last)) => excerpt(self.source, first.start, last.end),
            _ => String::new(),
        }
    }

    /// An error in the statement that begins at `place`.
    pub(crate) fn error(&self, place: usize, reason: Reason) -> ParseError {
        ParseError { line: self.line_at(place), text: self.text_from(place), reason }
    }

    /// Passes over the rest of the line.
    pub(crate) fn skip_line(&mut self) {
        let line = self.line();
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    /// Passes over everything to the brace that closes the one just passed.
    pub(crate) fn skip_block(&mut self) -> Result<(), Reason> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next() {
                Some(Kind::Mark('{')) => depth += 1,
                Some(Kind::Mark('}')) => depth -= 1,
                Some(_) => {}
                None => return Err(self.unexpected("'}'")),
            }
        }
        Ok(())
    }
}
