//! What the tokens of a PTX text are, and on which line each stands.

use crate::error::{LONGEST_TEXT, ParseError, Reason};

/// A token and where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) line: usize,
    /// Byte offsets of its text in the source.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind<'a> {
    /// An identifier, opcode or register: `add`, `$L1`, `%r12`.
    Word(&'a str),
    /// A dot and the word that follows it, chained over `::`: `.shared::cta`.
    Dotted(&'a str),
    /// A number.
    Number(Literal),
    /// A string in double quotes.
    Text,
    /// Any other character of the grammar.
    Mark(char),
}

/// A number as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Literal {
    /// An integer, modulo `2^64`.
    Integer(u64),
    /// `0f` and eight hexadecimal digits: the bits of an `f32`.
    Single(u32),
    /// `0d` and sixteen hexadecimal digits, or a decimal fraction: an `f64`.
    Double(f64),
}

/// The tokens of a text.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer { source, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

/// The text between two offsets with white space made single, cut to [`LONGEST_TEXT`].
pub(crate) fn excerpt(source: &str, start: usize, end: usize) -> String {
    let mut text = String::new();
    for word in source.get(start..end).unwrap_or_default().split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
        if let Some((cut, _)) = text.char_indices().find(|(at, _)| *at >= LONGEST_TEXT) {
            text.truncate(cut);
            break;
        }
    }
    text
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl<'a> Lexer<'a> {
    fn byte(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Result<Option<Token<'a>>, ParseError> {
        self.skip_blank()?;
        let (start, line) = (self.at, self.line);
        let Some(first) = self.byte(0) else { return Ok(None) };
        let kind = match first {
            b'.' if self.byte(1).is_some_and(is_word) => self.dotted(),
            b'0'..=b'9' => Kind::Number(self.number()?),
            b'"' => self.string()?,
            b'%' => {
                self.at += 1;
                self.word_end();
                Kind::Word(&self.source[start..self.at])
            }
            byte if is_word(byte) => {
                self.word_end();
                Kind::Word(&self.source[start..self.at])
            }
            b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b',' | b';' | b':' | b'@'
            | b'!' | b'|' | b'+' | b'-' | b'=' | b'.' | b'*' | b'&' | b'~' => {
                self.at += 1;
                Kind::Mark(char::from(first))
            }
            _ => {
                let found = self.source[start..].chars().next().unwrap_or_default();
                return Err(self.error(start, start, Reason::Character(found)));
            }
        };
        Ok(Some(Token { kind, line, start, end: self.at }))
    }

    fn error(&self, start: usize, end: usize, reason: Reason) -> ParseError {
        ParseError { line: self.line, text: excerpt(self.source, start, end), reason }
    }

    fn word_end(&mut self) {
        while self.byte(0).is_some_and(is_word) {
            self.at += 1;
        }
    }

    fn dotted(&mut self) -> Kind<'a> {
        self.at += 1;
        let start = self.at;
        self.word_end();
        while self.byte(0) == Some(b':')
            && self.byte(1) == Some(b':')
            && self.byte(2).is_some_and(is_word)
        {
            self.at += 2;
            self.word_end();
        }
        Kind::Dotted(&self.source[start..self.at])
    }

    fn string(&mut self) -> Result<Kind<'a>, ParseError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.byte(0) {
                Some(b'"') => break,
                None | Some(b'\n') => {
                    return Err(self.error(start, self.at, Reason::Unterminated("string")));
                }
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(Kind::Text)
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b'\n'), _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (Some(byte), _) if byte.is_ascii_whitespace() => self.at += 1,
                (Some(b'/'), Some(b'/')) => {
                    while self.byte(0).is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        self.at += 2;
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b'*'), Some(b'/')) => {
                    self.at += 2;
                    return Ok(());
                }
                (Some(byte), _) => {
                    self.line += usize::from(byte == b'\n');
                    self.at += 1;
                }
                (None, _) => return Err(self.error(start, start, Reason::Unterminated("comment"))),
            }
        }
    }

    fn number(&mut self) -> Result<Literal, ParseError> {
        let start = self.at;
        self.word_end();
        let is_hexadecimal = self.source[start..self.at].starts_with(['0'])
            && self.source.as_bytes().get(start + 1).is_some_and(u8::is_ascii_alphabetic);
        if !is_hexadecimal
            && self.byte(0) == Some(b'.')
            && self.byte(1).is_none_or(|byte| byte.is_ascii_digit() || !is_word(byte))
        {
            self.at += 1;
            self.word_end();
            if self.source[start..self.at].ends_with(['e', 'E'])
                && matches!(self.byte(0), Some(b'+' | b'-'))
            {
                self.at += 1;
                self.word_end();
            }
        }
        let text = &self.source[start..self.at];
        literal(text).ok_or_else(|| self.error(start, self.at, Reason::Number(text.to_owned())))
    }
}

/// The value of a number as PTX writes them (PTX ISA, "Constants").
fn literal(text: &str) -> Option<Literal> {
    let prefixed =
        |lower: &str, upper: &str| text.strip_prefix(lower).or_else(|| text.strip_prefix(upper));
    if let Some(digits) = prefixed("0f", "0F") {
        let bits = (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())??;
        return Some(Literal::Single(bits));
    }
    if let Some(digits) = prefixed("0d", "0D") {
        let bits = (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())??;
        return Some(Literal::Double(f64::from_bits(bits)));
    }
    if text.contains('.') {
        return text.parse().ok().map(Literal::Double);
    }
    let digits = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) =
        if let Some(rest) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            (rest, 16)
        } else if let Some(rest) = digits.strip_prefix("0b").or(digits.strip_prefix("0B")) {
            (rest, 2)
        } else if digits.len() > 1 && digits.starts_with('0') {
            (&digits[1..], 8)
        } else {
            (digits, 10)
        };
    u64::from_str_radix(digits, radix).ok().map(Literal::Integer)
}
