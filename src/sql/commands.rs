//! Statements about what exists: subscribe, explain, describe, show, drop, pause, insert.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, TableObject};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, fold};
use super::diagnostics::list;
use super::parser::{passthrough, statement};
use super::statement::{DropKind, ScheduleAction, Show, Since, Spanned, Statement};
use super::text::position_of;
use crate::error::{Error, Result, nearest};

/// `SUBSCRIBE v [SINCE t | EPOCH n] [WITH SNAPSHOT]`.
pub(super) fn subscribe(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    cursor.expect("SUBSCRIBE")?;
    cursor.eat("TO");
    let view = cursor.existing_name("a view's name")?;
    let since = if cursor.eat("EPOCH") || cursor.eat("SINCE EPOCH") {
        Some(Since::Epoch(cursor.unsigned("an epoch's number")?))
    } else if cursor.eat("SINCE") {
        cursor.eat("TIMESTAMP");
        Some(Since::Time(cursor.string("a time in quotes, or EPOCH and a number")?))
    } else {
        None
    };
    let snapshot = cursor.is_at("WITH") && {
        cursor.expect("WITH SNAPSHOT")?;
        true
    };
    if !cursor.is_end() {
        return Err(cursor.unexpected_word(
            "SINCE, EPOCH, WITH SNAPSHOT or the end of the statement",
            &["SINCE", "EPOCH", "WITH SNAPSHOT"],
        ));
    }
    Ok(Statement::Subscribe { view, since, snapshot })
}

/// `EXPLAIN [ANALYZE] [BATCH] query`, or `EXPLAIN [BATCH] view`. DataFusion's own forms (`VERBOSE`, `FORMAT`, options in parentheses) stay its own.
pub(super) fn explain(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let analyze = cursor.is_word(1, "ANALYZE");
    let next = 1 + usize::from(analyze);
    // `EXPLAIN (SELECT …)` is a query, `EXPLAIN (ANALYZE) SELECT …` a list of options.
    let options = cursor.peek(next).token == Token::LParen
        && !["SELECT", "WITH", "VALUES"].iter().any(|w| cursor.is_word(next + 1, w))
        && cursor.peek(next + 1).token != Token::LParen;
    if options || ["VERBOSE", "FORMAT"].iter().any(|w| cursor.is_word(next, w)) {
        return passthrough(cursor);
    }
    cursor.skip(next);
    let batch = cursor.eat("BATCH");
    if cursor.is_at("ANALYZE") {
        return Err(Error::syntax("ANALYZE goes before BATCH")
            .at(cursor.position())
            .with_hint("write EXPLAIN ANALYZE BATCH"));
    }
    let position = cursor.position();
    if cursor.is_end() {
        return Err(cursor.unexpected("a query to explain"));
    }
    if matches!(cursor.peek(0).token, Token::Word(_)) && cursor.ends_at(1) && !analyze {
        return Ok(Statement::ExplainView { batch, name: cursor.existing_name("a view or a query to explain")? });
    }
    let inner = statement(cursor)?;
    match inner {
        Statement::Select(_)
        | Statement::CreateMaterializedView(_)
        | Statement::CreateView { .. }
        | Statement::Insert { .. }
        | Statement::Passthrough(_) => Ok(Statement::Explain { analyze, batch, statement: Box::new(inner) }),
        _ => Err(Error::unsupported("only what holds a query can be explained")
            .at(position)
            .with_hint("DESCRIBE a source or view, or EXPLAIN its SELECT")),
    }
}

/// `DESCRIBE name`. Names of several parts and queries are DataFusion's.
pub(super) fn describe(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let kind_words = kind_words(cursor, 1);
    let dotted = cursor.peek(2 + kind_words).token == Token::Period;
    let query = ["SELECT", "WITH", "VALUES"].iter().any(|w| cursor.is_word(1, w) && !cursor.ends_at(2));
    if dotted || query {
        return passthrough(cursor);
    }
    cursor.skip(1 + kind_words);
    Ok(Statement::Describe { name: cursor.existing_name("the name of a source, view or table")? })
}

/// How many words at `at` say what kind of thing the name behind them is.
fn kind_words(cursor: &Cursor<'_, '_>, at: usize) -> usize {
    let is_at = |kind: &&str| {
        let words = kind.split(' ').count();
        kind.split(' ').enumerate().all(|(i, word)| cursor.is_word(at + i, word)) && !cursor.ends_at(at + words)
    };
    let kinds = ["MATERIALIZED VIEW", "VIEW", "SOURCE", "STREAM", "TABLE"];
    kinds.iter().find(|kind| is_at(kind)).map_or(0, |kind| kind.split(' ').count())
}

/// `SHOW …`: ours, else DataFusion's (`SHOW TABLES`, `SHOW ALL`, `SHOW datafusion.…`).
pub(super) fn show(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let lists = [
        ("SOURCES", Show::Sources),
        ("STREAMS", Show::Sources),
        ("VIEWS", Show::Views),
        ("MATERIALIZED VIEWS", Show::Views),
        ("JOBS", Show::Jobs),
        ("SCHEDULES", Show::Schedules),
    ];
    if let Some((phrase, list)) = lists.into_iter().find(|(phrase, _)| cursor.is_at(&format!("SHOW {phrase}"))) {
        cursor.skip(1 + phrase.split(' ').count());
        return Ok(Statement::Show(list));
    }
    if cursor.eat("SHOW WATERMARKS") || cursor.eat("SHOW WATERMARK") {
        return Ok(Statement::Show(Show::Watermarks { of: of_name(cursor)? }));
    }
    if cursor.eat("SHOW LATENESS") {
        return Ok(Statement::Show(Show::Lateness { of: of_name(cursor)? }));
    }
    if cursor.eat("SHOW CREATE") {
        cursor.skip(kind_words(cursor, 0));
        return Ok(Statement::ShowCreate { name: cursor.existing_name("the name of a source or view")? });
    }
    let words = [
        "CREATE",
        "SOURCES",
        "VIEWS",
        "JOBS",
        "SCHEDULES",
        "WATERMARKS",
        "LATENESS",
        "TABLES",
        "COLUMNS",
        "FUNCTIONS",
        "ALL",
    ];
    let misspelt = cursor.ends_at(2) && cursor.word(1).is_some_and(|w| nearest(w, &words).is_some());
    if misspelt || cursor.ends_at(1) {
        cursor.skip(1);
        return Err(cursor.unexpected_word(&list(&words, "or"), &words));
    }
    passthrough(cursor)
}

/// `[[FOR | OF] name]`.
fn of_name(cursor: &mut Cursor<'_, '_>) -> Result<Option<String>> {
    let named = cursor.eat("FOR") || cursor.eat("OF");
    match !named && cursor.is_end() {
        true => Ok(None),
        false => Ok(Some(cursor.existing_name("the name of a source or view")?.node)),
    }
}

/// `DROP SOURCE | STREAM | MATERIALIZED VIEW | VIEW | TABLE | SCHEDULE [IF EXISTS] name`.
pub(super) fn drop(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let kinds = [
        ("SOURCE", DropKind::Source),
        ("STREAM", DropKind::Source),
        ("MATERIALIZED VIEW", DropKind::MaterializedView),
        ("VIEW", DropKind::View),
        ("TABLE", DropKind::Table),
        ("SCHEDULE", DropKind::Schedule),
    ];
    let first_words: Vec<&str> = kinds.iter().filter_map(|(phrase, _)| phrase.split(' ').next()).collect();
    let ours = first_words.iter().any(|w| cursor.is_word(1, w)) || cursor.ends_at(1);
    if !ours && cursor.word(1).is_none_or(|w| nearest(w, &first_words).is_none()) {
        return passthrough(cursor);
    }
    cursor.skip(1);
    let kind = cursor.choose("DROP", &kinds)?;
    let if_exists = cursor.eat("IF EXISTS");
    let name = cursor.existing_name("the name of what to drop")?;
    if cursor.peek(0).token == Token::Comma {
        return Err(Error::unsupported("DROP takes one name").at(cursor.position()).with_hint("write a DROP for each"));
    }
    if cursor.is_at("CASCADE") || cursor.is_at("RESTRICT") {
        return Err(Error::unsupported("DROP takes neither CASCADE nor RESTRICT")
            .at(cursor.position())
            .with_hint("drop the views that read it first"));
    }
    Ok(Statement::Drop { kind, if_exists, name })
}

/// `PAUSE v`, `RESUME v`, and the same of a schedule.
pub(super) fn pause_or_resume(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let pause = cursor.is_at("PAUSE");
    cursor.skip(1);
    // A view may be called `schedule`.
    if cursor.is_at("SCHEDULE") && !cursor.ends_at(1) {
        cursor.skip(1);
        let action = if pause { ScheduleAction::Pause } else { ScheduleAction::Resume };
        return Ok(Statement::Schedule { action, name: cursor.existing_name("a schedule's name")? });
    }
    cursor.eat("MATERIALIZED VIEW");
    let view = cursor.existing_name("a view's name")?;
    Ok(if pause { Statement::Pause { view } } else { Statement::Resume { view } })
}

/// `INSERT INTO name [(columns)] query`. What else DataFusion reads as INSERT stays its own.
pub(super) fn insert(cursor: &mut Cursor<'_, '_>) -> Result<Statement> {
    let Statement::Passthrough(statement) = passthrough(cursor)? else {
        return Err(Error::internal("DataFusion's parser returned a statement of ours"));
    };
    match plain_insert(&statement) {
        Some((source, columns, query)) => Ok(Statement::Insert { source, columns, query, statement }),
        None => Ok(Statement::Passthrough(statement)),
    }
}

/// The parts of an INSERT with nothing to it but a name of one part, columns and a query.
fn plain_insert(statement: &DfStatement) -> Option<(Spanned<String>, Vec<String>, Box<ast::Query>)> {
    let DfStatement::Statement(statement) = statement else { return None };
    let ast::Statement::Insert(insert) = statement.as_ref() else { return None };
    let plain = insert.or.is_none()
        && !(insert.ignore || insert.overwrite || insert.replace_into)
        && insert.table_alias.is_none()
        && insert.assignments.is_empty()
        && insert.partitioned.is_none()
        && insert.after_columns.is_empty()
        && insert.on.is_none()
        && insert.returning.is_none()
        && insert.output.is_none()
        && insert.priority.is_none()
        && insert.insert_alias.is_none()
        && insert.multi_table_insert_type.is_none();
    if !plain {
        return None;
    }
    let TableObject::TableName(name) = &insert.table else { return None };
    let ident = one_part(name)?;
    let position = position_of(ident.span)?;
    let columns = insert.columns.iter().map(|c| one_part(c).cloned().map(fold)).collect::<Option<Vec<_>>>()?;
    let source = Spanned { node: fold(ident.clone()), position };
    Some((source, columns, insert.source.clone()?))
}

fn one_part(name: &ast::ObjectName) -> Option<&ast::Ident> {
    match name.0.as_slice() {
        [part] => part.as_ident(),
        _ => None,
    }
}
