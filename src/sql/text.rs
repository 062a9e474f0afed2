//! A SQL text as tokens that know their place in it, and how to cut it into statements.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError};

use super::diagnostics;
use super::dialect::DIALECT;
use crate::error::{Position, Result};

/// Where a text starts that is not part of a longer one.
pub(super) const START: Position = Position { line: 1, column: 1 };

/// Most operators in one expression, brackets aside. `a AND b AND c …` becomes a tree as deep as the chain is long, and
/// cloning or dropping one takes stack for each level.
const OPERATORS_MAX: usize = 1_000;

/// A text, its tokens, and the way from a token's place to a byte of the text.
#[derive(Debug)]
pub(super) struct Script<'t> {
    text: &'t str,
    start: Position,
    tokens: Vec<TokenWithSpan>,
    /// The byte at which each token starts, and the one behind the last.
    bytes: Vec<usize>,
}

impl<'t> Script<'t> {
    /// Cuts `text` into tokens. Their places are those in a longer text in which `text` starts at `start`.
    pub(super) fn try_new(text: &'t str, start: Position) -> Result<Self> {
        let (script, error) = Self::read(text, start);
        let empty = |t: &&TokenWithSpan| matches!(&t.token, Token::Word(w) if w.value.is_empty());
        match (error, script.tokens.iter().find(empty)) {
            (None, None) => match long_chain(&script.tokens) {
                Some(token) => Err(diagnostics::long_chain(token, OPERATORS_MAX)),
                None => Ok(script),
            },
            (Some(error), _) => Err(diagnostics::from_tokenizer(&error, script.read_to())),
            (None, Some(token)) => Err(diagnostics::empty_name(token)),
        }
    }

    /// The tokens up to the first character that begins none, and what was wrong with it.
    fn read(text: &'t str, start: Position) -> (Self, Option<TokenizerError>) {
        let mut tokens = Vec::new();
        let mut error = Tokenizer::new(&DIALECT, text).tokenize_with_location_into_buf(&mut tokens).err();
        let bytes = byte_starts(text, &tokens);
        for token in &mut tokens {
            token.span = Span::new(shifted(token.span.start, start), shifted(token.span.end, start));
        }
        if let Some(error) = &mut error {
            error.location = shifted(error.location, start);
        }
        rows_are_structs(&mut tokens);
        (Self { text, start, tokens, bytes }, error)
    }

    pub(super) fn tokens(&self) -> &[TokenWithSpan] {
        &self.tokens
    }

    /// The byte at which `location` lies, where a token starts or ends; the text's end for any other.
    fn byte(&self, location: Location) -> usize {
        let token = self.tokens.partition_point(|t| t.span.start < location);
        self.bytes.get(token).copied().unwrap_or(self.text.len())
    }

    /// The text from `from` to before `to`, letter for letter. Both are places where a token starts or ends.
    pub(super) fn slice(&self, from: Location, to: Location) -> &'t str {
        &self.text[self.byte(from)..self.byte(to)]
    }

    /// Just behind the last token that is no white space.
    pub(super) fn end(&self) -> Position {
        self.tokens.iter().rev().find(|t| !is_space(t)).and_then(|t| at(t.span.end)).unwrap_or(self.start)
    }

    /// Just behind the last token.
    fn read_to(&self) -> Location {
        self.tokens.last().map_or(Location::new(self.start.line, self.start.column), |t| t.span.end)
    }
}

/// The definition that the CREATE statement `text` gives, in a form in which white space, comments and the letter case of
/// unquoted words make no difference, and neither does what only says how to create (`OR REPLACE`, `IF NOT EXISTS`,
/// `RESTART`).
///
/// # Errors
/// `Syntax` for a text that is no row of tokens.
pub fn definition(text: &str) -> Result<String> {
    let script = Script::try_new(text, START)?;
    let token = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        other => other.to_string(),
    };
    let tokens = script.tokens().iter().filter(|t| !is_space(t) && !matches!(t.token, Token::SemiColon | Token::EOF));
    let mut words: Vec<String> = tokens.map(token).collect();
    let is_at =
        |words: &[String], at: usize, phrase: &[&str]| words.get(at..at + phrase.len()).is_some_and(|w| w == phrase);
    if is_at(&words, 1, &["or", "replace"]) {
        words.drain(1..3);
    }
    if let Some(at) = (1..4).find(|at| is_at(&words, *at, &["if", "not", "exists"])) {
        words.drain(at..at + 3);
    }
    if words.last().is_some_and(|word| word == "restart") {
        words.pop();
    }
    Ok(words.join(" "))
}

/// Moves a place in a text to its place in the longer text that holds the text at `start`.
fn shifted(location: Location, start: Position) -> Location {
    let column = if location.line == 1 { location.column + start.column - 1 } else { location.column };
    Location::new(location.line + start.line - 1, column)
}

/// The byte at which each token starts, and the one behind the last. Tokens lie side by side, white space included.
fn byte_starts(text: &str, tokens: &[TokenWithSpan]) -> Vec<usize> {
    let mut bytes = Vec::with_capacity(tokens.len() + 1);
    let mut place = Location::new(1, 1);
    let mut chars = text.char_indices().peekable();
    let ends = tokens.iter().map(|t| t.span.start).chain([tokens.last().map_or(Location::new(1, 1), |t| t.span.end)]);
    for target in ends {
        while place < target
            && let Some((_, c)) = chars.next()
        {
            place = match c {
                '\n' => Location::new(place.line + 1, 1),
                _ => Location::new(place.line, place.column + 1),
            };
        }
        bytes.push(chars.peek().map_or(text.len(), |(byte, _)| *byte));
    }
    bytes
}

/// Gives sqlparser Flink's `ROW<a INT>` as the `STRUCT<a INT>` it knows, in statements that declare columns.
fn rows_are_structs(tokens: &mut [TokenWithSpan]) {
    for statement in tokens.split_mut(|t| t.token == Token::SemiColon) {
        let declares = statement.iter().find(|t| !is_space(t)).is_some_and(|t| is_keyword(t, Keyword::CREATE));
        for i in 1..if declares { statement.len() } else { 0 } {
            if statement[i].token == Token::Lt && is_keyword(&statement[i - 1], Keyword::ROW) {
                statement[i - 1].token = Token::make_keyword("STRUCT");
            }
        }
    }
}

/// The operator with which an expression has more than [`OPERATORS_MAX`].
fn long_chain(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    // Operators of the expression at hand, and of those around it.
    let mut operators = 0;
    let mut outer = Vec::new();
    for token in tokens {
        match &token.token {
            Token::LParen => outer.push(std::mem::take(&mut operators)),
            Token::RParen => operators = outer.pop().unwrap_or(0),
            Token::SemiColon => {
                operators = 0;
                outer.clear();
            }
            Token::Comma => operators = 0,
            Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::Mod | Token::StringConcat => operators += 1,
            Token::Word(word) => match word.keyword {
                Keyword::AND | Keyword::OR | Keyword::NOT => operators += 1,
                Keyword::SELECT | Keyword::WHERE | Keyword::HAVING | Keyword::WHEN | Keyword::THEN | Keyword::ELSE => {
                    operators = 0;
                }
                _ => {}
            },
            _ => {}
        }
        if operators > OPERATORS_MAX {
            return Some(token);
        }
    }
    None
}

fn is_keyword(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(w) if w.keyword == keyword)
}

/// Whether a token is white space or a comment.
pub(super) fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// A tokenizer's place as a position; `None` for "nowhere".
pub(super) fn at(location: Location) -> Option<Position> {
    (location.line > 0).then_some(Position { line: location.line, column: location.column })
}

/// Where a tree starts, if its tokens are known.
pub(crate) fn position_of(span: Span) -> Option<Position> {
    at(span.start)
}

/// One statement's text within a longer one; [`parse_piece`](super::parse_piece) reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'t> {
    /// From its first token to its last, without the semicolon and the comments around it.
    pub text: &'t str,
    /// Where it starts in the whole text.
    pub position: Position,
    /// Whether a semicolon ends it.
    pub terminated: bool,
}

/// Cuts a text at its semicolons. Strings, quoted names, dollar quotes and comments may hold semicolons; empty
/// statements yield nothing. A string or comment that never ends makes the rest of the text one piece.
pub fn split_statements(text: &str) -> Vec<Piece<'_>> {
    let (script, error) = Script::read(text, START);
    let mut pieces = Vec::new();
    let mut open: Option<(Location, Location)> = None;
    let piece = |from: Location, to: usize, terminated| {
        let position = at(from)?;
        Some(Piece { text: &text[script.byte(from)..to], position, terminated })
    };
    for token in script.tokens.iter().filter(|t| !is_space(t)) {
        if token.token == Token::SemiColon {
            pieces.extend(open.take().and_then(|(from, to)| piece(from, script.byte(to), true)));
        } else {
            open = Some((open.map_or(token.span.start, |(from, _)| from), token.span.end));
        }
    }
    let rest = match (&error, open) {
        (None, Some((from, to))) => piece(from, script.byte(to), false),
        (None, None) => None,
        (Some(_), Some((from, _))) => piece(from, text.trim_end().len(), false),
        (Some(_), None) => piece(script.read_to(), text.trim_end().len(), false),
    };
    pieces.extend(rest);
    pieces
}

/// Whether a person has finished typing: the last thing is a semicolon, or there is nothing but white space and comments.
/// A text that can never become valid by going on (a stray character) counts as finished, so that its error is shown.
pub fn is_complete(text: &str) -> bool {
    match Script::read(text, START) {
        (_, Some(error)) => !diagnostics::wants_more(&error),
        (script, None) => script.tokens.iter().rev().find(|t| !is_space(t)).is_none_or(|t| t.token == Token::SemiColon),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(&str, u64, u64, bool)> {
        split_statements(text).iter().map(|p| (p.text, p.position.line, p.position.column, p.terminated)).collect()
    }

    #[test]
    fn statements_end_at_semicolons_outside_quotes_and_comments() {
        assert_eq!(pieces(""), vec![]);
        assert_eq!(pieces(" ; ;; -- nothing; here\n"), vec![]);
        assert_eq!(pieces("SELECT 1"), vec![("SELECT 1", 1, 1, false)]);
        assert_eq!(
            pieces("SELECT ';' ;\n  /* a; /* b; */ */ SELECT \"x;y\" -- c;\n, `;` ;"),
            vec![("SELECT ';'", 1, 1, true), ("SELECT \"x;y\" -- c;\n, `;`", 2, 21, true)]
        );
        assert_eq!(
            pieces("SELECT $$a;b$$; SELECT $x$;$x$ ; SELECT * FROM v$late;"),
            vec![
                ("SELECT $$a;b$$", 1, 1, true),
                ("SELECT $x$;$x$", 1, 17, true),
                ("SELECT * FROM v$late", 1, 34, true)
            ]
        );
        assert_eq!(
            pieces("SELECT 1; SELECT 'it''s;"),
            vec![("SELECT 1", 1, 1, true), ("SELECT 'it''s;", 1, 11, false)]
        );
    }

    #[test]
    fn positions_count_characters() {
        assert_eq!(
            pieces("SELECT 'žluťoučký 🐎'; SELECT 2"),
            vec![("SELECT 'žluťoučký 🐎'", 1, 1, true), ("SELECT 2", 1, 23, false)]
        );
        assert_eq!(pieces("SELECT 1;\r\n\tSELECT 2;"), vec![("SELECT 1", 1, 1, true), ("SELECT 2", 2, 2, true)]);
    }

    #[test]
    fn typing_goes_on_until_a_semicolon_that_counts() {
        for text in ["SELECT 1;", "SELECT 1; -- done", "SELECT 1 ;\n\n", "", "  \n", "-- a comment", "SELECT 1;;"] {
            assert!(is_complete(text), "{text}");
        }
        for text in
            ["SELECT 1", "SELECT ';", "SELECT \"a;", "SELECT 1; SELECT", "/* ;", "SELECT $$;", "SELECT `;", "E';"]
        {
            assert!(!is_complete(text), "{text}");
        }
    }
}
