//! Tests of the grammar as a whole. Tables of spellings catch what is read wrongly or refused; tables of errors pin text,
//! place and hint; properties catch panics, clauses that are dropped and places outside the text. None of them knows
//! whether a statement means anything.

mod clauses;
mod control;
mod properties;
mod sources;
mod statements;

use super::statement::{BatchRun, RunRange, Show, Since, WatermarkStrategy};
use super::*;

fn one(sql: &str) -> Statement {
    parse_one(sql).unwrap_or_else(|e| panic!("{}", render(sql, &e)))
}

/// Kind, place, text and hint of an error: `syntax 1:8: expected …, found … (hint)`.
fn error(sql: &str) -> String {
    let error = parse(sql).expect_err(sql);
    let place = error.position().map_or_else(|| "nowhere".to_owned(), |p| format!("{}:{}", p.line, p.column));
    format!("{} {place}: {} ({})", error.kind().as_str(), error.message(), error.hint().unwrap_or("-"))
}

fn check_errors(table: &[(&str, &str)]) {
    for (sql, expected) in table {
        assert_eq!(error(sql), *expected, "{sql}");
    }
}

const CLAUSES: &str = "ALLOWED LATENESS, ON LATE, ON EXPIRED, EMIT, FINALIZE AFTER or the end of the statement";

#[test]
fn the_example_of_the_design_is_read() {
    let statements = parse(
        "CREATE SOURCE orders (
           order_id BIGINT, event_type VARCHAR, event_time TIMESTAMP, user_id VARCHAR,
           payload STRUCT<total DOUBLE, item_count BIGINT>,
           WATERMARK FOR event_time AS event_time - INTERVAL '5 minutes' IDLE TIMEOUT INTERVAL '1 minute'
         ) WITH (connector = 'file', path = 'orders.jsonl', format = 'json', archive = 's3://lake/orders/');

         CREATE MATERIALIZED VIEW hourly_revenue AS
         SELECT window_start, window_end, sum(payload.total) AS revenue, count(*) AS orders
         FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
         WHERE event_type = 'order.placed'
         GROUP BY window_start, window_end
         ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 10 UPDATES ON EXPIRED SIDE OUTPUT
         EMIT ON WINDOW CLOSE;

         SUBSCRIBE hourly_revenue;",
    )
    .expect("the example");
    let [Statement::CreateSource(source), Statement::CreateMaterializedView(view), Statement::Subscribe { .. }] =
        statements.as_slice()
    else {
        panic!("{statements:?}")
    };
    assert_eq!(
        source.columns.iter().map(|c| c.name.node.as_str()).collect::<Vec<_>>(),
        ["order_id", "event_type", "event_time", "user_id", "payload"]
    );
    assert_eq!(source.options["archive"], "s3://lake/orders/");
    assert!(source.text.starts_with("CREATE SOURCE orders (") && source.text.ends_with("orders/')"));
    let watermark = source.watermark.as_ref().expect("a watermark");
    assert_eq!(watermark.column.node, "event_time");
    assert_eq!(watermark.idle_timeout.expect("a timeout").to_string(), "1 minute");
    let WatermarkStrategy::Expression(expr) = &watermark.strategy else { panic!("{watermark:?}") };
    assert_eq!(expr.node.to_string(), "event_time - INTERVAL '5 minutes'");
    assert!(
        view.query.text.starts_with("SELECT window_start,") && view.query.text.ends_with("window_start, window_end")
    );
    assert_eq!(
        view.query.clauses.to_string(),
        "ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 10 UPDATES ON EXPIRED SIDE OUTPUT EMIT ON WINDOW CLOSE"
    );
}

fn select(sql: &str) -> statement::StreamQuery {
    match one(sql) {
        Statement::Select(query) => query,
        other => panic!("{sql} is {other:?}"),
    }
}

/// A batch run in few words.
fn run_summary(run: &BatchRun) -> String {
    let views: Vec<&str> = run.views.iter().map(|v| v.node.as_str()).collect();
    let range = match run.range.as_ref().map(|range| &range.node) {
        None => "all".to_owned(),
        Some(RunRange::Between { from, to }) => {
            format!("({}, {}]", from.node, to.as_ref().map_or("now", |to| &to.node))
        }
        Some(RunRange::Date(date)) => format!("on {}", date.node),
        Some(RunRange::Lookback(back)) => format!("last {back}"),
    };
    let input = run.input.as_ref().map_or_else(String::new, |input| format!(" of {:?}", input.node));
    let reason = run.reason.as_ref().map_or_else(String::new, |why| format!(" because {}", why.node));
    let force = if run.force { " by force" } else { "" };
    format!("{:?} {} {range}{input}{reason}{force}", run.kind, views.join("+"))
}

/// A statement in few words.
fn summary(statement: &Statement) -> String {
    match statement {
        Statement::CreateSource(s) => format!("source {}", s.name.node),
        Statement::CreateMaterializedView(v) => format!("view {} {:?}: {}", v.name.node, v.options, v.query.text),
        Statement::CreateView { name, query, .. } => format!("macro {name}: {query}"),
        Statement::Select(q) => format!("select {}", q.text),
        Statement::Subscribe { view, since, snapshot } => {
            let since = match since {
                None => String::new(),
                Some(Since::Time(t)) => format!(" since {}", t.node),
                Some(Since::Epoch(n)) => format!(" after epoch {n}"),
            };
            format!("subscribe {}{since}{}", view.node, if *snapshot { " with snapshot" } else { "" })
        }
        Statement::Explain { analyze, batch, statement } => format!(
            "explain{}{} {}",
            if *analyze { " analyze" } else { "" },
            if *batch { " batch" } else { "" },
            summary(statement)
        ),
        Statement::ExplainView { batch, name } => format!("explain batch={batch} {}", name.node),
        Statement::ShowCreate { name } => format!("show create {}", name.node),
        Statement::Describe { name } => format!("describe {}", name.node),
        Statement::Show(Show::Watermarks { of }) => format!("show watermarks {of:?}"),
        Statement::Show(Show::Lateness { of }) => format!("show lateness {of:?}"),
        Statement::Show(show) => format!("show {show:?}").to_lowercase(),
        Statement::Drop { kind, if_exists, name } => {
            format!("drop {kind:?} {}{}", name.node, if *if_exists { " if exists" } else { "" })
        }
        Statement::Insert { source, columns, query, .. } => format!("insert {} {columns:?} {query}", source.node),
        Statement::Run(run) => run_summary(run),
        Statement::Rollback(r) => {
            let keys = r.keys.iter().map(|(k, v)| format!(" {}={}", k.node, v.node)).collect::<String>();
            let end = r.end.as_ref().map_or_else(String::new, |end| format!("..{}", end.node));
            let reason = r.reason.as_ref().map_or_else(String::new, |why| format!(" because {}", why.node));
            format!("rollback {} {}{end}{keys} to {:?}{reason}", r.view.node, r.start.node, r.target.node)
        }
        Statement::CreateSchedule(s) => {
            let zone = s.time_zone.as_ref().map_or("-", |zone| &zone.node);
            assert!(s.text.ends_with(&s.run_text), "{s:?}");
            format!("schedule {} at {} in {zone}: {}", s.name.node, s.cron.node, run_summary(&s.run))
        }
        Statement::Schedule { action, name } => format!("{action:?} schedule {}", name.node),
        Statement::CancelJob { job } => format!("cancel {}", job.node),
        Statement::Maintain { task, view } => format!("{task:?} {}", view.node),
        Statement::Pause { view } => format!("pause {}", view.node),
        Statement::Resume { view } => format!("resume {}", view.node),
        Statement::Passthrough(s) => format!("datafusion: {s}"),
    }
}
