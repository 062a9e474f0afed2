//! From a text to its statements: which rule reads which statement, and that nothing is left over.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::statement::{Spanned, Statement};
use super::text::{Piece, START, Script};
use super::{commands, control, diagnostics, source, view};
use crate::error::{Error, Position, Result, nearest};

/// First words of statements, for guessing.
const STATEMENT_WORDS: &[&str] = &[
    "SELECT",
    "WITH",
    "VALUES",
    "CREATE",
    "DROP",
    "INSERT",
    "SUBSCRIBE",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW",
    "PAUSE",
    "RESUME",
    "FINALIZE",
    "REPROCESS",
    "PATCH",
    "ROLLBACK",
    "VERIFY",
    "CANCEL",
    "RUN",
    "OPTIMIZE",
    "VACUUM",
    "COPY",
    "SET",
];

/// Reads every statement of `text`. They are separated by semicolons; empty ones yield nothing.
///
/// # Errors
///
/// `Syntax` where the text is no statement, `Unsupported` for one that is known and not supported, `Invalid` for a
/// number or length that is out of range. All have a position in `text`.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    Ok(parse_spanned(text)?.into_iter().map(|s| s.node).collect())
}

/// As [`parse`], each statement with the place it starts at.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_spanned(text: &str) -> Result<Vec<Spanned<Statement>>> {
    statements(text, START)
}

fn statements(text: &str, start: Position) -> Result<Vec<Spanned<Statement>>> {
    let script = Script::try_new(text, start)?;
    let mut cursor = Cursor::try_new(&script)?;
    let mut statements = Vec::new();
    loop {
        while cursor.eat_token(&Token::SemiColon) {}
        if cursor.is_end_of_text() {
            return Ok(statements);
        }
        let position = cursor.position();
        let node = statement(&mut cursor)?;
        expect_end(&cursor)?;
        statements.push(Spanned { node, position });
    }
}

/// Reads a text that must hold exactly one statement.
///
/// # Errors
///
/// As [`parse`], and `Syntax` if there is no statement or a second one.
pub fn parse_one(text: &str) -> Result<Statement> {
    only(statements(text, START)?)
}

/// Reads one statement of a longer text, with every place as in that text: errors now and later point into it.
///
/// # Errors
///
/// As [`parse_one`].
pub fn parse_piece(piece: &Piece<'_>) -> Result<Statement> {
    only(statements(piece.text, piece.position)?)
}

fn only(statements: Vec<Spanned<Statement>>) -> Result<Statement> {
    let mut statements = statements.into_iter();
    match (statements.next(), statements.next()) {
        (Some(first), None) => Ok(first.node),
        (None, _) => Err(Error::syntax("expected a statement, found nothing")),
        (Some(_), Some(second)) => Err(Error::syntax("expected one statement, found a second one").at(second.position)),
    }
}

/// Reads one statement, without what ends it.
pub(super) fn statement(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    if let Some(statement) = control::statement(cursor)? {
        return Ok(statement);
    }
    match cursor.word(0).map(str::to_ascii_uppercase).as_deref() {
        Some("CREATE") => create(cursor),
        Some("SUBSCRIBE") => commands::subscribe(cursor),
        Some("EXPLAIN") => commands::explain(cursor),
        Some("DESCRIBE" | "DESC") => commands::describe(cursor),
        Some("SHOW") => commands::show(cursor),
        Some("DROP") => commands::drop(cursor),
        Some("PAUSE" | "RESUME") => commands::pause_or_resume(cursor),
        Some("INSERT") => commands::insert(cursor),
        _ if cursor.is_at_query() => Ok(Statement::Select(view::stream_query(cursor)?)),
        _ => passthrough(cursor),
    }
}

fn create(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let start = cursor.here();
    let replace = if cursor.is_at("CREATE OR REPLACE") { 3 } else { 1 };
    let kind = |n: usize, phrase: &str| phrase.split(' ').enumerate().all(|(i, w)| cursor.is_word(n + i, w));
    if kind(replace, "SOURCE") || kind(replace, "STREAM") || source::is_table_with_connector(cursor) {
        return source::create(cursor, start);
    }
    if kind(replace, "MATERIALIZED VIEW") {
        return view::create_materialized(cursor, start);
    }
    if kind(replace, "VIEW") {
        return view::create_macro(cursor, start);
    }
    if kind(replace, "SCHEDULE") {
        return control::create_schedule(cursor, start);
    }
    let kinds = ["SOURCE", "STREAM", "MATERIALIZED", "VIEW", "TABLE", "SCHEDULE"];
    let near = cursor.word(replace).is_some_and(|w| nearest(w, &kinds).is_some());
    if near || cursor.ends_at(replace) {
        cursor.skip(replace);
        return Err(cursor
            .unexpected_word("SOURCE, STREAM, MATERIALIZED VIEW, VIEW, SCHEDULE, TABLE or EXTERNAL TABLE", &kinds));
    }
    passthrough(cursor)
}

/// A statement that DataFusion reads and runs.
pub(super) fn passthrough(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let position = cursor.position();
    let first = cursor.word(0).map(str::to_owned);
    let known = first.as_deref().is_some_and(|w| STATEMENT_WORDS.iter().any(|known| known.eq_ignore_ascii_case(w)));
    let statement = cursor.datafusion_statement().map_err(|error| {
        let near = first.as_deref().filter(|_| !known).and_then(|w| nearest(w, STATEMENT_WORDS));
        match (error.position() == Some(position), near) {
            (true, Some(near)) => {
                Error::syntax(error.message()).at(position).with_hint(format!("did you mean {near}?"))
            }
            _ => error,
        }
    })?;
    diagnostics::refuse_ignored_in(&statement).map_err(|e| if e.position().is_some() { e } else { e.at(position) })?;
    Ok(Statement::Passthrough(Box::new(statement)))
}

/// That a statement ends here.
pub(super) fn expect_end(cursor: &Cursor<'_, '_>) -> Result<()> {
    if cursor.is_end() {
        return Ok(());
    }
    Err(cursor.stray("the end of the statement"))
}
