//! A worker's words, made fit for a message: cut short, and without characters that would steer a
//! terminal or spoil a report.

/// Longest part of a line that a message quotes, in characters.
const QUOTE_CHARS: usize = 200;

/// Longest explanation that a message repeats, in characters.
pub(super) const EXPLANATION_CHARS: usize = 2 << 10;

/// What a worker wrote where something else was expected.
pub(super) fn quote(text: &str) -> String {
    clean(text, QUOTE_CHARS)
}

/// What a worker says for people to read.
pub(super) fn explain(text: &str) -> String {
    clean(text, EXPLANATION_CHARS)
}

fn clean(text: &str, limit: usize) -> String {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    let mut clean: String = text
        .chars()
        .take(limit)
        .map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(limit).is_some() {
        clean.push_str("...");
    }
    clean
}
