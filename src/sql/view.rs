//! Queries with our clauses, and the two kinds of view.

use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use super::cursor::Cursor;
use super::statement::{Clauses, CreateMaterializedView, Statement, StreamQuery};
use super::{clauses, parser, source};
use crate::error::{Error, Result};

/// `SELECT … clauses`, up to the end of the statement.
pub(super) fn stream_query(cursor: &mut Cursor<'_, '_>) -> Result<StreamQuery> {
    let position = cursor.position();
    if !cursor.is_at_query() {
        return Err(cursor.unexpected_word("SELECT", &["SELECT", "WITH", "VALUES"]));
    }
    let (query, text) = cursor.query()?;
    let clauses = clauses::parse(cursor)?;
    Ok(StreamQuery { query, text: text.to_owned(), position, clauses })
}

/// `CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name [WITH (…)] AS SELECT … clauses [RESTART]`.
pub(super) fn create_materialized(cursor: &mut Cursor<'_, '_>, start: Location) -> Result<Statement> {
    cursor.expect("CREATE")?;
    let or_replace = cursor.eat("OR REPLACE");
    cursor.expect("MATERIALIZED VIEW")?;
    let if_not_exists = if_not_exists(cursor, or_replace)?;
    let name = cursor.name("a name for the view")?;
    refuse_columns(cursor)?;
    let options = if cursor.is_at("WITH") { source::options(cursor)? } else { Default::default() };
    expect_as(cursor)?;
    let query = stream_query(cursor)?;
    let restart = restart(cursor, or_replace)?;
    let text = cursor.text_since(start).to_owned();
    Ok(Statement::CreateMaterializedView(CreateMaterializedView {
        name,
        or_replace,
        if_not_exists,
        options,
        query,
        restart,
        text,
    }))
}

/// `CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name AS SELECT …`: no clauses, since a macro publishes nothing.
pub(super) fn create_macro(cursor: &mut Cursor<'_, '_>, start: Location) -> Result<Statement> {
    cursor.expect("CREATE")?;
    let or_replace = cursor.eat("OR REPLACE");
    cursor.expect("VIEW")?;
    let if_not_exists = if_not_exists(cursor, or_replace)?;
    let name = cursor.name("a name for the view")?;
    refuse_columns(cursor)?;
    expect_as(cursor)?;
    if !cursor.is_at_query() {
        return Err(cursor.unexpected_word("SELECT", &["SELECT", "WITH", "VALUES"]));
    }
    let (query, _) = cursor.query()?;
    let position = cursor.position();
    if !cursor.is_end() && clauses::parse(cursor)? != Clauses::default() {
        return Err(Error::syntax("a plain view is a macro and takes no clauses")
            .at(position)
            .with_hint("write CREATE MATERIALIZED VIEW, or put the clauses behind the query that reads the view"));
    }
    parser::expect_end(cursor)?;
    let text = cursor.text_since(start).to_owned();
    Ok(Statement::CreateView { name: name.node, or_replace, if_not_exists, query, text })
}

/// `[IF NOT EXISTS]`, which `OR REPLACE` excludes.
pub(super) fn if_not_exists(cursor: &mut Cursor<'_, '_>, or_replace: bool) -> Result<bool> {
    let position = cursor.position();
    let found = cursor.eat("IF NOT EXISTS");
    if found && or_replace {
        return Err(Error::syntax("OR REPLACE and IF NOT EXISTS exclude each other").at(position));
    }
    Ok(found)
}

/// `[RESTART]`, which only `OR REPLACE` takes.
pub(super) fn restart(cursor: &mut Cursor<'_, '_>, or_replace: bool) -> Result<bool> {
    let position = cursor.position();
    let found = cursor.eat("RESTART");
    if found && !or_replace {
        return Err(Error::syntax("RESTART without OR REPLACE")
            .at(position)
            .with_hint("write CREATE OR REPLACE … RESTART to drop what an older definition made"));
    }
    Ok(found)
}

fn expect_as(cursor: &mut Cursor<'_, '_>) -> Result<()> {
    match cursor.is_at_query() && !cursor.is_at("WITH") {
        true => Err(cursor.unexpected("AS").with_hint("write AS in front of the query")),
        false => cursor.expect("AS"),
    }
}

fn refuse_columns(cursor: &Cursor<'_, '_>) -> Result<()> {
    match cursor.peek(0).token {
        Token::LParen => Err(Error::unsupported("a view takes no list of columns")
            .at(cursor.position())
            .with_hint("name the columns in the query: SELECT sum(total) AS revenue")),
        _ => Ok(()),
    }
}
