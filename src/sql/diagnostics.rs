//! What a person is told when a text is no statement: where, what was expected, what was found, what to try.
//!
//! sqlparser's and DataFusion's messages are turned into ours here and nowhere else, so that a reader cannot tell which
//! parser was at work. Guesses are made from nearness of spelling alone; when nothing is near there is no hint.

use std::fmt::Write as _;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{self, Spanned as _, TableFactor, TableVersion};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, TokenizerError};

use super::clauses::CLAUSE_PHRASES;
use super::dialect::word;
use super::text::{Script, at, is_space};
use super::walk::{Look, Step, look};
use crate::error::{Error, Position, Result, nearest};

/// The hint where a name is missing altogether.
pub(super) const EMPTY_NAME: &str =
    "an empty name: between double quotes a shell replaces $late by nothing, so put the statement in single quotes";

/// Most characters of a token or a source line that a message repeats.
const SHOWN_CHARS: usize = 100;

// Wording.

/// "expected `expected`, found `token`", without a position.
pub(super) fn unexpected(expected: &str, token: &TokenWithSpan) -> Error {
    Error::syntax(format!("expected {expected}, found {}", shown(&token.token)))
}

fn shown(token: &Token) -> String {
    match token {
        Token::EOF => "the end of the text".to_owned(),
        other => format!("`{}`", clip(&other.to_string(), SHOWN_CHARS)),
    }
}

fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// `a, b or c`, each once.
pub(super) fn list<S: AsRef<str>>(items: &[S], conjunction: &str) -> String {
    let mut once: Vec<&str> = Vec::new();
    for item in items {
        if !once.contains(&item.as_ref()) {
            once.push(item.as_ref());
        }
    }
    match once.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} {conjunction} {last}", rest.join(", ")),
        None => String::new(),
    }
}

// Guessing.

/// Words that may follow a table's name or an expression, for guessing at what a stray word was meant to be.
const QUERY_WORDS: &[&str] = &[
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "UNION",
    "JOIN",
    "QUALIFY",
    "WINDOW",
    "OFFSET",
    "EXCEPT",
    "INTERSECT",
];

/// "expected `expected`, found the token at `position`", with a guess: either its word is misspelt, or the word before
/// it is, which then was taken for an alias, and the error is about that one.
pub(super) fn stray(expected: &str, script: &Script<'_>, position: Position) -> Error {
    let tokens = statement_around(script, position);
    let index = tokens.iter().position(|t| at(t.span.start) == Some(position));
    let Some(index) = index else {
        let error = Error::syntax(format!("expected {expected}, found the end of the text")).at(position);
        return if has_empty_name(&tokens) { error.with_hint(EMPTY_NAME) } else { error };
    };
    let found = tokens[index];
    let next = tokens.get(index + 1).and_then(|t| word(t));
    let error = unexpected(expected, found).at(position);
    if has_empty_name(&tokens) {
        return error.with_hint(EMPTY_NAME);
    }
    if let Token::Placeholder(name) = &found.token
        && name[1..].starts_with(char::is_alphabetic)
    {
        return error.with_hint(format!("put the view's name before it: my_view{name}"));
    }
    if is_word(found, "PARTITION") && next.is_some_and(|next| next.eq_ignore_ascii_case("BY")) {
        return error.with_hint("it belongs to the table: SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap)");
    }
    if let Some(meant) = word(found).and_then(|w| meant_by(w, next)) {
        return error.with_hint(format!("did you mean {meant}?"));
    }
    let alias = index.checked_sub(1).map(|i| tokens[i]).filter(|_| {
        // Behind AS a word is an alias for certain.
        index < 2 || !is_word(tokens[index - 2], "AS")
    });
    let fate_of_join = index >= 3
        && ["UPDATE", "DROP", "SIDE", "RECOMPUTE"].iter().any(|w| is_word(found, w))
        && is_word(tokens[index - 2], "ON");
    if fate_of_join {
        return error.with_hint("the join before it took ON for its own; give the join a condition first");
    }
    let misspelt = alias.and_then(|token| Some((token, meant_by(word(token)?, word(found))?, at(token.span.start)?)));
    match misspelt {
        Some((token, meant, place)) => {
            unexpected(expected, token).at(place).with_hint(format!("did you mean {meant}?"))
        }
        None => error,
    }
}

fn is_word(token: &TokenWithSpan, expected: &str) -> bool {
    word(token).is_some_and(|found| found.eq_ignore_ascii_case(expected))
}

/// What two words nearly start: a clause by both, a part of a query by the first.
fn meant_by(first: &str, second: Option<&str>) -> Option<&'static str> {
    near_phrase(first, second).or_else(|| nearest(first, QUERY_WORDS)).or_else(|| near_start(first))
}

/// The clause that two words nearly start.
fn near_phrase(first: &str, second: Option<&str>) -> Option<&'static str> {
    let close = |found: &str, word: &str| found.eq_ignore_ascii_case(word) || nearest(found, &[word]).is_some();
    CLAUSE_PHRASES.iter().copied().find(|phrase| {
        let mut words = phrase.split(' ');
        matches!((words.next(), words.next(), second), (Some(a), Some(b), Some(second)) if close(first, a) && close(second, b))
    })
}

/// The clause whose first word is nearly `word`. Short first words (`ON`, `EMIT`) are near to too much.
fn near_start(word: &str) -> Option<&'static str> {
    let start = |phrase: &&str| phrase.split(' ').next().is_some_and(|w| w.len() > 4 && nearest(word, &[w]).is_some());
    CLAUSE_PHRASES.iter().copied().find(start)
}

// Translation.

/// Whether a tokenizer gave up because the text ended.
pub(super) fn wants_more(error: &TokenizerError) -> bool {
    error.message.contains("Unterminated") || error.message.contains("EOF")
}

/// A tokenizer's error as ours. `start` is where the token starts that it could not read.
pub(super) fn from_tokenizer(error: &TokenizerError, start: Location) -> Error {
    let known = [
        ("comment", "this comment has no end", "close it with */"),
        ("close delimiter", "this quoted name has no end", "close it with the quote it starts with"),
        ("dollar", "this dollar-quoted string has no end", "close it as it was opened"),
        ("string", "this string has no end", "close it with ', and double a ' inside it"),
    ];
    match known.iter().find(|(sign, ..)| wants_more(error) && error.message.contains(sign)) {
        Some((_, message, hint)) => placed_at(Error::syntax(*message), start).with_hint(*hint),
        None => placed_at(Error::syntax(reworded(&error.message)), error.location),
    }
}

/// The error for `""`.
pub(super) fn empty_name(token: &TokenWithSpan) -> Error {
    placed_at(Error::syntax("a quoted name must not be empty"), token.span.start).with_hint(EMPTY_NAME)
}

/// DataFusion's parser error as ours.
pub(super) fn from_datafusion(error: DataFusionError, script: &Script<'_>) -> Error {
    match error.find_root() {
        DataFusionError::SQL(parser, _) => from_sqlparser(parser, script),
        other => {
            let message = reworded(&other.strip_backtrace());
            Error::syntax(message).at(script.end()).with_source(error)
        }
    }
}

/// An expression with more than `most` operators; `token` is the first too many.
pub(super) fn long_chain(token: &TokenWithSpan, most: usize) -> Error {
    placed_at(Error::syntax(format!("an expression of more than {most} operators")), token.span.start)
        .with_hint("write x IN (…), join with a table of values, or put brackets around parts")
}

/// sqlparser's error as ours.
pub(super) fn from_sqlparser(error: &ParserError, script: &Script<'_>) -> Error {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            return Error::syntax("the statement is nested too deeply").with_hint("use WITH to name inner queries");
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let (text, position) = split_location(message);
    let position = position.unwrap_or_else(|| script.end());
    if let Some(inner) = clause_in_parentheses(script, position) {
        return inner;
    }
    match text.strip_prefix("Expected: ").and_then(|m| m.rsplit_once(", found: ")) {
        Some((expected, _)) => stray(&quoted(plain(expected)), script, position),
        None => Error::syntax(reworded(text)).at(position),
    }
}

/// What sqlparser expects, in our words where its own say little.
fn plain(expected: &str) -> &str {
    match expected {
        "identifier" => "a name",
        "an SQL statement" => "a statement",
        "an expression" | "an expression:" => "an expression",
        "SELECT, VALUES, or a subquery in the query body" => "SELECT, VALUES or a query in parentheses",
        other => other.trim_end_matches([':', '.']),
    }
}

/// What is expected, in backticks if it is a sign and no word.
fn quoted(expected: &str) -> String {
    match expected.contains(char::is_alphanumeric) {
        true => expected.to_owned(),
        false => format!("`{expected}`"),
    }
}

/// Takes " at Line: 3, Column: 7" off the end.
fn split_location(message: &str) -> (&str, Option<Position>) {
    let parsed = message.rsplit_once(" at Line: ").and_then(|(text, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((text, Position { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? }))
    });
    match parsed {
        Some((text, position)) => (text, Some(position)),
        None => (message, None),
    }
}

/// A message with a small first letter and no full stop.
fn reworded(message: &str) -> String {
    let message = message.trim().trim_end_matches('.');
    let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
    let mut chars = message.chars();
    let second_is_upper = message.chars().nth(1).is_some_and(char::is_uppercase);
    match chars.next() {
        Some(first) if !second_is_upper => first.to_lowercase().chain(chars).collect(),
        _ => message.to_owned(),
    }
}

/// The tokens of the statement that holds `position`, white space left out.
fn statement_around<'s>(script: &'s Script<'_>, position: Position) -> Vec<&'s TokenWithSpan> {
    let mut tokens = Vec::new();
    for token in script.tokens().iter().filter(|t| !is_space(t)) {
        let here = (token.span.start.line, token.span.start.column);
        if token.token == Token::SemiColon {
            if here >= (position.line, position.column) {
                break;
            }
            tokens.clear();
        } else {
            tokens.push(token);
        }
    }
    tokens
}

/// The error for a clause of ours inside parentheses, where sqlparser only sees that something does not fit.
fn clause_in_parentheses(script: &Script<'_>, position: Position) -> Option<Error> {
    let tokens = statement_around(script, position);
    let mut depth = 0_i32;
    for (i, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let is_at = |n: usize, w: &str| tokens.get(i + n).is_some_and(|t| is_word(t, w));
        // A join may well be `ON late`, so that a fate must follow.
        let is_fate = || ["UPDATE", "DROP", "SIDE", "RECOMPUTE"].iter().any(|fate| is_at(2, fate));
        let starts = |phrase: &&&str| {
            phrase.split(' ').enumerate().all(|(n, w)| is_at(n, w)) && (!phrase.starts_with("ON ") || is_fate())
        };
        if depth > 0
            && let Some(phrase) = CLAUSE_PHRASES.iter().find(starts)
        {
            let error =
                Error::syntax(format!("{phrase} belongs to the whole statement, not to a query in parentheses"));
            return Some(placed_at(error, token.span.start).with_hint("write it behind the last closing parenthesis"));
        }
    }
    None
}

/// Whether a word that a name must follow is followed by none, as when a shell took `$late` out of `FROM $late WHERE`.
fn has_empty_name(tokens: &[&TokenWithSpan]) -> bool {
    let before_name = ["FROM", "JOIN", "SUBSCRIBE", "DESCRIBE", "INTO"];
    let after_name = ["WHERE", "GROUP", "ORDER", "LIMIT", "HAVING", "JOIN"];
    let is_one_of = |token: &TokenWithSpan, words: &[&str]| words.iter().any(|w| is_word(token, w));
    tokens.iter().enumerate().any(|(i, token)| {
        is_one_of(token, &before_name)
            && tokens.get(i + 1).is_none_or(|next| is_one_of(next, &after_name) || next.token == Token::RParen)
    })
}

// What DataFusion would drop without a word.

/// Refuses what parses and then means nothing to DataFusion.
pub(super) fn refuse_ignored(query: &ast::Query) -> Result<()> {
    look(query, &mut Ignored)
}

/// As [`refuse_ignored`], for every query in a statement.
pub(super) fn refuse_ignored_in(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => look(statement.as_ref(), &mut Ignored),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => look(query.as_ref(), &mut Ignored),
            CopyToSource::Relation(_) => Ok(()),
        },
        DfStatement::Explain(explain) => refuse_ignored_in(&explain.statement),
        DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => Ok(()),
    }
}

struct Ignored;

impl Look for Ignored {
    fn query(&mut self, query: &ast::Query) -> Step {
        let error = if !query.locks.is_empty() {
            "locking rows with FOR UPDATE or FOR SHARE is not supported"
        } else if query.for_clause.is_some() {
            "FOR XML, FOR JSON and FOR BROWSE are not supported"
        } else {
            return Step::Continue(());
        };
        Step::Break(Box::new(placed_at(Error::unsupported(error), query.span().start)))
    }

    fn table_factor(&mut self, factor: &TableFactor) -> Step {
        let error = match factor {
            TableFactor::Table { version: Some(version), .. }
                if !matches!(version, TableVersion::ForSystemTimeAsOf(_)) =>
            {
                Error::unsupported("a table is read at a time with FOR SYSTEM_TIME AS OF only")
                    .with_hint("write FROM v FOR SYSTEM_TIME AS OF '2024-01-15T10:00:00Z'")
            }
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                Error::unsupported("TABLESAMPLE is not supported").with_hint("filter with random() in an ad-hoc query")
            }
            TableFactor::Table { with_hints, .. } if !with_hints.is_empty() => {
                Error::unsupported("WITH ( … ) behind a table is not supported")
            }
            TableFactor::Table { partitions, .. } if !partitions.is_empty() => {
                Error::unsupported("PARTITION ( … ) behind a table is not supported")
            }
            TableFactor::Table { with_ordinality: true, .. } | TableFactor::Function { with_ordinality: true, .. } => {
                Error::unsupported("WITH ORDINALITY is not supported").with_hint("use row_number() OVER ()")
            }
            _ => return Step::Continue(()),
        };
        Step::Break(Box::new(placed_at(error, factor.span().start)))
    }
}

fn placed_at(error: Error, location: Location) -> Error {
    match at(location) {
        Some(position) => error.at(position),
        None => error,
    }
}

// Drawing.

/// Draws an error for a terminal: the message, the line of `text` it points at with a caret, and the hint.
///
/// ```text
/// error: expected LATENESS, found `LATENES`
///   --> line 2, column 9
///    |
///  2 | ALLOWED LATENES INTERVAL '1 minute'
///    |         ^^^^^^^
/// hint: did you mean ALLOWED LATENESS?
/// ```
///
/// The text ends with a line feed. Long lines are cut around the place; tabs become single spaces.
pub fn render(text: &str, error: &Error) -> String {
    let mut out = format!("error: {}\n", error.message());
    if let Some(position) = error.position() {
        draw_place(&mut out, text, position);
    }
    if let Some(hint) = error.hint() {
        let _ = writeln!(out, "hint: {hint}");
    }
    out
}

fn draw_place(out: &mut String, text: &str, position: Position) {
    let _ = writeln!(out, "  --> {position}");
    let line_index = usize::try_from(position.line.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(line) = text.split('\n').nth(line_index) else { return };
    let chars: Vec<char> = line.trim_end_matches('\r').chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let column = usize::try_from(position.column.saturating_sub(1)).unwrap_or(usize::MAX).min(chars.len());
    let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let width = chars[column..].iter().take_while(|c| is_name(c)).count().clamp(1, SHOWN_CHARS);
    let from = column.saturating_sub(SHOWN_CHARS / 2);
    let to = chars.len().min(from + SHOWN_CHARS);
    let shown: String = chars[from..to].iter().collect();
    let (start, end) = (if from > 0 { "…" } else { "" }, if to < chars.len() { "…" } else { "" });
    let number = position.line.to_string();
    let margin = " ".repeat(number.len());
    let padding = " ".repeat(start.chars().count() + chars[from..column].iter().map(|c| columns_of(*c)).sum::<usize>());
    let caret = "^".repeat(width);
    let _ = writeln!(out, " {margin} |\n {number} | {start}{shown}{end}\n {margin} | {padding}{caret}");
}

/// Columns a character takes on a terminal: two for East Asian wide ones and emoji, none for combining marks.
fn columns_of(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F => 2,
        0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}
