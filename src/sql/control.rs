//! Statements that control finality, jobs, schedules and stored results.
//!
//! Their words are no keywords elsewhere, so each is matched by how the statement starts and never taken for something
//! else. Times and dates stay text: only the view that they are meant for knows the zone they are read in.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};
use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use super::cursor::{Cursor, fold};
use super::diagnostics::list;
use super::statement::{
    BatchRun, CreateSchedule, Maintenance, Rollback, RollbackTarget, RunInput, RunKind, RunRange, ScheduleAction,
    Spanned, Statement,
};
use super::text::position_of;
use super::view::if_not_exists;
use crate::error::{Error, Result};

/// The runs, by the word they start with.
const RUNS: &[(&str, RunKind)] = &[
    ("FINALIZE", RunKind::Finalize),
    ("REPROCESS", RunKind::Reprocess),
    ("PATCH", RunKind::Patch),
    ("VERIFY", RunKind::Verify),
];

/// How a range starts.
const RANGES: &[&str] = &["FROM", "FOR DATE", "LOOKBACK"];

impl RunKind {
    /// The word that starts the statement.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Finalize => "FINALIZE",
            Self::Reprocess => "REPROCESS",
            Self::Patch => "PATCH",
            Self::Verify => "VERIFY",
        }
    }

    /// Whether a run without a range means all windows.
    fn may_lack_range(self) -> bool {
        matches!(self, Self::Patch | Self::Verify)
    }

    /// What may follow the range.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Finalize | Self::Reprocess => &["USING", "REASON", "FORCE"],
            Self::Patch => &["REASON", "FORCE"],
            Self::Verify => &["USING"],
        }
    }
}

/// Reads a statement of this module if one starts here.
pub(super) fn statement(cursor: &mut Cursor<'_, '_>) -> Result<Option<Statement>> {
    if RUNS.iter().any(|(word, _)| cursor.is_at(word)) {
        return Ok(Some(Statement::Run(run(cursor)?)));
    }
    // `ROLLBACK v …` is ours; `ROLLBACK`, `ROLLBACK TO s` and `ROLLBACK TRANSACTION` are not.
    let of_transaction = ["WORK", "TRANSACTION", "TRAN", "AND", "TO"];
    if cursor.is_at("ROLLBACK") && !cursor.ends_at(1) && !of_transaction.iter().any(|w| cursor.is_word(1, w)) {
        return Ok(Some(Statement::Rollback(rollback(cursor)?)));
    }
    if cursor.eat("CANCEL") {
        cursor.expect("JOB")?;
        return Ok(Some(Statement::CancelJob { job: job_id(cursor)? }));
    }
    if cursor.eat("RUN") {
        cursor.expect("SCHEDULE")?;
        let name = cursor.existing_name("a schedule's name")?;
        return Ok(Some(Statement::Schedule { action: ScheduleAction::RunNow, name }));
    }
    for (word, task) in [("OPTIMIZE", Maintenance::Optimize), ("VACUUM", Maintenance::Vacuum)] {
        if cursor.eat(word) {
            cursor.eat("MATERIALIZED VIEW");
            return Ok(Some(Statement::Maintain { task, view: cursor.existing_name("a view's name")? }));
        }
    }
    Ok(None)
}

/// `FINALIZE | REPROCESS | PATCH | VERIFY v [, …] [range] [USING …] [REASON '…'] [FORCE]`.
fn run(cursor: &mut Cursor<'_, '_>) -> Result<BatchRun> {
    let kind = cursor.choose("", RUNS)?;
    let views = views(cursor)?;
    let range = range(cursor, kind)?;
    let mut run = BatchRun { kind, views, range, input: None, reason: None, force: false };
    while !cursor.is_end() {
        option(cursor, &mut run)?;
    }
    Ok(run)
}

/// `v [, …]`, each once.
fn views(cursor: &mut Cursor<'_, '_>) -> Result<Vec<Spanned<String>>> {
    cursor.eat("MATERIALIZED VIEW");
    let mut views: Vec<Spanned<String>> = Vec::new();
    loop {
        let view = cursor.existing_name("a view's name")?;
        if let Some(first) = views.iter().find(|v| v.node == view.node) {
            return Err(Error::syntax(format!("view `{}` is given twice", view.node))
                .at(view.position)
                .with_hint(format!("the first one is at {}", first.position)));
        }
        views.push(view);
        if !cursor.eat_token(&Token::Comma) {
            return Ok(views);
        }
    }
}

/// `FROM t [TO t] | FOR DATE d | LOOKBACK i`.
fn range(cursor: &mut Cursor<'_, '_>, kind: RunKind) -> Result<Option<Spanned<RunRange>>> {
    let position = cursor.position();
    let node = if cursor.eat("FROM") {
        let from = time(cursor)?;
        let to = if cursor.eat("TO") { Some(time(cursor)?) } else { None };
        RunRange::Between { from, to }
    } else if cursor.is_at("FOR") {
        cursor.expect("FOR DATE")?;
        RunRange::Date(cursor.string("a date in quotes: '2024-01-15'")?)
    } else if cursor.eat("LOOKBACK") {
        let interval = cursor.interval()?;
        if !interval.node.is_positive() {
            return Err(
                Error::invalid(format!("LOOKBACK must be above zero, is `{}`", interval.node)).at(interval.position)
            );
        }
        RunRange::Lookback(interval.node)
    } else if kind.may_lack_range() {
        return Ok(None);
    } else {
        let example = format!("say which windows, by their end: {} v FOR DATE '2024-01-15'", kind.keyword());
        let error = cursor.unexpected_word("FROM, FOR DATE or LOOKBACK", RANGES);
        return Err(if error.hint().is_some() { error } else { error.with_hint(example) });
    };
    Ok(Some(Spanned { node, position }))
}

/// One of `USING …`, `REASON '…'`, `FORCE`.
fn option(cursor: &mut Cursor<'_, '_>, run: &mut BatchRun) -> Result<()> {
    let position = cursor.position();
    let allowed = run.kind.options();
    let Some(word) = allowed.iter().copied().find(|word| cursor.is_at(word)) else {
        let known = ["USING", "REASON", "FORCE"].into_iter().find(|word| cursor.is_at(word));
        if let Some(word) = known {
            return Err(Error::syntax(format!("{} takes no {word}", run.kind.keyword()))
                .at(position)
                .with_hint(format!("leave {word} out")));
        }
        let mut expected: Vec<&str> = if run.range.is_none() { RANGES.to_vec() } else { Vec::new() };
        expected.extend(allowed);
        let words = expected.clone();
        expected.push("the end of the statement");
        return Err(cursor.unexpected_word(&list(&expected, "or"), &words));
    };
    let given = match word {
        "USING" => run.input.is_some(),
        "REASON" => run.reason.is_some(),
        _ => run.force,
    };
    if given {
        return Err(Error::syntax(format!("{word} is given twice")).at(position).with_hint("keep one of them"));
    }
    cursor.skip(1);
    match word {
        "USING" => run.input = Some(Spanned { node: input(cursor)?, position }),
        "REASON" => run.reason = Some(reason(cursor)?),
        _ => run.force = true,
    }
    Ok(())
}

/// `ARCHIVE | BATCH LOCATION | SOURCE | 'path or url'`.
fn input(cursor: &mut Cursor<'_, '_>) -> Result<RunInput> {
    if matches!(cursor.peek(0).token, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)) {
        return Ok(RunInput::Location(cursor.string("a path or URL in quotes")?.node));
    }
    let inputs =
        [("ARCHIVE", RunInput::Archive), ("BATCH LOCATION", RunInput::BatchLocation), ("SOURCE", RunInput::Source)];
    match inputs.iter().find(|(phrase, _)| cursor.is_at(phrase)) {
        Some((phrase, input)) => {
            cursor.expect(phrase)?;
            Ok(input.clone())
        }
        None => {
            let error = cursor.no_choice("USING", &inputs.map(|(phrase, _)| phrase));
            Err(if error.hint().is_some() { error } else { error.with_hint("or a path or URL in quotes") })
        }
    }
}

/// The text behind REASON.
fn reason(cursor: &mut Cursor<'_, '_>) -> Result<Spanned<String>> {
    let reason = cursor.string("a reason in quotes")?;
    match reason.node.trim().is_empty() {
        true => Err(Error::invalid("REASON is empty").at(reason.position).with_hint("leave it out, or say why")),
        false => Ok(reason),
    }
}

/// `[TIMESTAMP] 'time'`.
fn time(cursor: &mut Cursor<'_, '_>) -> Result<Spanned<String>> {
    cursor.eat("TIMESTAMP");
    cursor.string("a time in quotes: '2024-01-15T10:00:00Z'")
}

/// `ROLLBACK v FOR WINDOW start [TO end] [KEY (k = v, …)] TO VERSION n | TO TIMESTAMP 't' [REASON '…']`.
fn rollback(cursor: &mut Cursor<'_, '_>) -> Result<Rollback> {
    cursor.expect("ROLLBACK")?;
    cursor.eat("MATERIALIZED VIEW");
    let view = cursor.existing_name("a view's name")?;
    cursor.expect("FOR WINDOW").map_err(|e| match e.hint() {
        Some(_) => e,
        None => {
            e.with_hint("say which window, by its start: ROLLBACK v FOR WINDOW '2024-01-15T10:00:00Z' TO VERSION 1")
        }
    })?;
    let start = time(cursor)?;
    let end = match is_end_of_window(cursor) {
        true => {
            cursor.expect("TO")?;
            Some(time(cursor)?)
        }
        false => None,
    };
    let keys = if cursor.eat("KEY") { keys(cursor)? } else { Vec::new() };
    let position = cursor.position();
    let node = if cursor.eat("TO TIMESTAMP") {
        RollbackTarget::Timestamp(cursor.string("a time in quotes")?.node)
    } else if cursor.eat("TO VERSION") {
        RollbackTarget::Version(cursor.unsigned("a version's number")?)
    } else {
        return Err(cursor.no_choice("", &["TO VERSION", "TO TIMESTAMP"]));
    };
    let reason = if cursor.eat("REASON") { Some(reason(cursor)?) } else { None };
    Ok(Rollback { view, start, end, keys, target: Spanned { node, position }, reason })
}

/// Whether the `TO` that comes next is the window's end: one with a time, behind which something else is still to come.
fn is_end_of_window(cursor: &Cursor<'_, '_>) -> bool {
    let is_text = |n: usize| matches!(cursor.peek(n).token, Token::SingleQuotedString(_));
    if !cursor.is_at("TO") {
        return false;
    }
    let goes_on = cursor.is_word(3, "TO") || cursor.is_word(3, "KEY");
    is_text(1) || (cursor.is_word(1, "TIMESTAMP") && is_text(2) && goes_on)
}

/// `(k = v, …)`.
fn keys(cursor: &mut Cursor<'_, '_>) -> Result<Vec<(Spanned<String>, Spanned<Expr>)>> {
    cursor.expect_token(&Token::LParen, "(")?;
    let mut keys: Vec<(Spanned<String>, Spanned<Expr>)> = Vec::new();
    loop {
        let (name, value) = key(cursor.expr()?)?;
        if keys.iter().any(|(known, _)| known.node == name.node) {
            return Err(Error::syntax(format!("key `{}` is given twice", name.node)).at(name.position));
        }
        keys.push((name, value));
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    match cursor.eat_token(&Token::RParen) {
        true => Ok(keys),
        false => Err(cursor.unexpected("`,` or `)`")),
    }
}

/// `column = value`, or `column IS NULL`.
fn key(expr: Spanned<Expr>) -> Result<(Spanned<String>, Spanned<Expr>)> {
    let Spanned { node, position } = expr;
    let wrong = || {
        Error::syntax("expected a key column and its value")
            .at(position)
            .with_hint("write KEY (region = 'north', shop = 7)")
    };
    let (column, value) = match node {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => (*left, *right),
        Expr::IsNull(column) => (*column, Expr::value(ast::Value::Null)),
        _ => return Err(wrong()),
    };
    let Expr::Identifier(column) = column else { return Err(wrong()) };
    let value_position = position_of(ast::Spanned::span(&value)).unwrap_or(position);
    let name = Spanned { position: position_of(column.span).unwrap_or(position), node: fold(column) };
    Ok((name, Spanned { node: value, position: value_position }))
}

/// A job's id: quoted, a number, or a word.
fn job_id(cursor: &mut Cursor<'_, '_>) -> Result<Spanned<String>> {
    let position = cursor.position();
    let what = "a job's id, as SHOW JOBS names it";
    let node = match &cursor.peek(0).token {
        Token::Number(..) => cursor.unsigned::<u64>(what)?.to_string(),
        Token::Word(_) => fold(cursor.ident(what)?),
        _ => cursor.string(what)?.node,
    };
    Ok(Spanned { node, position })
}

/// `CREATE [OR REPLACE] SCHEDULE [IF NOT EXISTS] s CRON '…' [TIME ZONE '…'] AS run`.
pub(super) fn create_schedule(cursor: &mut Cursor<'_, '_>, start: Location) -> Result<Statement> {
    cursor.expect("CREATE")?;
    let or_replace = cursor.eat("OR REPLACE");
    cursor.expect("SCHEDULE")?;
    let if_not_exists = if_not_exists(cursor, or_replace)?;
    let name = cursor.name("a name for the schedule")?;
    cursor.expect("CRON").map_err(|e| e.with_hint("say when: CRON '0 2 * * *' is 02:00 each night"))?;
    let cron = cursor.string("a cron expression in quotes: '0 2 * * *'")?;
    let time_zone = if cursor.is_at("TIME") || cursor.is_at("TIMEZONE") {
        let words = if cursor.is_at("TIMEZONE") { "TIMEZONE" } else { "TIME ZONE" };
        cursor.expect(words)?;
        Some(cursor.string("a time zone's name in quotes: 'Europe/Berlin'")?)
    } else {
        None
    };
    if !cursor.eat("AS") {
        let expected = if time_zone.is_some() { "AS" } else { "TIME ZONE or AS" };
        return Err(cursor.unexpected_word(expected, &["TIME ZONE", "AS"]));
    }
    let run_start = cursor.here();
    let run = run(cursor)?;
    if let Some(range) = &run.range
        && !matches!(range.node, RunRange::Lookback(_))
    {
        return Err(Error::invalid("the range of a scheduled run must move with it")
            .at(range.position)
            .with_hint("write LOOKBACK INTERVAL '1 day'; the schedule's own time is its `now`"));
    }
    let run_text = cursor.text_since(run_start).to_owned();
    let text = cursor.text_since(start).to_owned();
    let create = CreateSchedule { name, or_replace, if_not_exists, cron, time_zone, run, run_text, text };
    Ok(Statement::CreateSchedule(create))
}
