//! Cuts a line of SQL into coloured pieces.
//!
//! Only for the eye and for completion: it takes any text, also half a statement, and decides nothing about what is
//! valid. That is the parser's to say.

use std::ops::Range;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A bare word: keyword, name or function. `$` and digits are part of it, as in `hourly$late`.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A text in single quotes.
    Text,
    /// A number.
    Number,
    /// `-- …` or `/* … */`.
    Comment,
    /// Spaces and line breaks.
    Space,
    /// Anything else, one character each.
    Symbol,
}

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub kind: Kind,
    /// Its bytes in the line.
    pub range: Range<usize>,
    /// Whether the line ends inside it: a text or comment that has no end yet.
    pub open: bool,
}

/// The pieces of `line`, which cover it without gaps.
pub fn scan(line: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while let Some(first) = line[start..].chars().next() {
        let (kind, length, open) = piece(&line[start..], first);
        pieces.push(Piece { kind, range: start..start + length, open });
        start += length;
    }
    pieces
}

fn piece(rest: &str, first: char) -> (Kind, usize, bool) {
    let while_in = |belongs: fn(char) -> bool| rest.find(|c| !belongs(c)).unwrap_or(rest.len());
    match first {
        '\'' => quoted(rest, '\'', Kind::Text),
        '"' => quoted(rest, '"', Kind::Quoted),
        '-' if rest.starts_with("--") => (Kind::Comment, rest.find('\n').unwrap_or(rest.len()), !rest.contains('\n')),
        '/' if rest.starts_with("/*") => match rest[2..].find("*/") {
            Some(end) => (Kind::Comment, end + 4, false),
            None => (Kind::Comment, rest.len(), true),
        },
        c if c.is_whitespace() => (Kind::Space, while_in(char::is_whitespace), false),
        c if c.is_ascii_digit() => (Kind::Number, while_in(|c| c.is_ascii_alphanumeric() || c == '.'), false),
        c if in_word(c) => (Kind::Word, while_in(in_word), false),
        c => (Kind::Symbol, c.len_utf8(), false),
    }
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// A doubled quote is one quote inside, and the text goes on.
fn quoted(rest: &str, quote: char, kind: Kind) -> (Kind, usize, bool) {
    let mut at = 1;
    while let Some(found) = rest[at..].find(quote) {
        at += found + 1;
        if !rest[at..].starts_with(quote) {
            return (kind, at, false);
        }
        at += 1;
    }
    (kind, rest.len(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(line: &str) -> Vec<(Kind, &str)> {
        let pieces = scan(line);
        let covered: String = pieces.iter().map(|piece| &line[piece.range.clone()]).collect();
        assert_eq!(covered, line, "gaps");
        pieces.iter().filter(|p| p.kind != Kind::Space).map(|p| (p.kind, &line[p.range.clone()])).collect()
    }

    #[test]
    fn words_keep_their_dollar() {
        assert_eq!(kinds("FROM v$late"), [(Kind::Word, "FROM"), (Kind::Word, "v$late")]);
    }

    #[test]
    fn doubled_quotes_do_not_end_a_text() {
        assert_eq!(kinds("'it''s' \"a\"\"b\""), [(Kind::Text, "'it''s'"), (Kind::Quoted, "\"a\"\"b\"")]);
    }

    #[test]
    fn an_open_text_is_known_to_be_open() {
        assert!(scan("SELECT 'abc").last().unwrap().open);
        assert!(scan("SELECT 'it''").last().unwrap().open);
        assert!(!scan("SELECT 'abc'").last().unwrap().open);
        assert!(scan("/* note").last().unwrap().open);
        assert!(scan("-- note").last().unwrap().open);
    }

    #[test]
    fn any_text_is_taken() {
        for line in ["", "日本 é 'ü", "\\d", "a-- b\nc", "1.5e3..2", "$$;'\"/*"] {
            kinds(line);
        }
    }
}
