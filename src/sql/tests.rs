//! Tests of the grammar as a whole. Tables of spellings catch what is read wrongly or refused; tables of errors pin text,
//! place and hint; properties catch panics, clauses that are dropped and places outside the text. None of them knows
//! whether a statement means anything.

use proptest::prelude::*;

use super::statement::{Clauses, ColumnKind, Show, Since, WatermarkStrategy};
use super::*;
use crate::error::Result;

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

// Queries and clauses.

fn select(sql: &str) -> statement::StreamQuery {
    match one(sql) {
        Statement::Select(query) => query,
        other => panic!("{sql} is {other:?}"),
    }
}

#[test]
fn clauses_have_synonyms() {
    for (written, canonical) in [
        ("", ""),
        ("allowed lateness interval '1 hour'", "ALLOWED LATENESS INTERVAL '1 hour'"),
        ("ALLOW LATENESS INTERVAL '1' HOUR", "ALLOWED LATENESS INTERVAL '1 hour'"),
        ("GRACE PERIOD INTERVAL 1 HOUR", "ALLOWED LATENESS INTERVAL '1 hour'"),
        ("ALLOWED LATENESS INTERVAL '0 s'", "ALLOWED LATENESS INTERVAL '0 seconds'"),
        ("ON LATE UPDATE", "ON LATE UPDATE"),
        ("ON LATE UPDATE MAX 3 UPDATES", "ON LATE UPDATE MAX 3 UPDATES"),
        ("ON LATE UPDATE MAX 1 UPDATE", "ON LATE UPDATE MAX 1 UPDATES"),
        ("ON LATE DROP", "ON LATE DROP"),
        ("ON LATE SIDE OUTPUT", "ON LATE SIDE OUTPUT"),
        ("ON LATE RECOMPUTE", "ON LATE RECOMPUTE"),
        ("ON LATE RECOMPUTE EVERY INTERVAL '5 m'", "ON LATE RECOMPUTE EVERY INTERVAL '5 minutes'"),
        ("ON EXPIRED SIDE OUTPUT", "ON EXPIRED SIDE OUTPUT"),
        ("ON EXPIRED DROP", "ON EXPIRED DROP"),
        ("ON EXPIRED RECOMPUTE EVERY INTERVAL '5 m'", "ON EXPIRED RECOMPUTE EVERY INTERVAL '5 minutes'"),
        ("EMIT ON WINDOW CLOSE", "EMIT ON WINDOW CLOSE"),
        ("EMIT AFTER WINDOW CLOSE", "EMIT ON WINDOW CLOSE"),
        ("EMIT AFTER WATERMARK", "EMIT ON WINDOW CLOSE"),
        ("EMIT CHANGES", "EMIT CHANGES"),
        ("EMIT ON UPDATE", "EMIT CHANGES"),
        ("EMIT CHANGES EVERY INTERVAL '10 s'", "EMIT CHANGES EVERY INTERVAL '10 seconds'"),
        ("EMIT ON UPDATE EVERY INTERVAL '10 s'", "EMIT CHANGES EVERY INTERVAL '10 seconds'"),
        ("EMIT ON EXPIRY", "EMIT ON EXPIRY"),
        ("EMIT FINAL", "EMIT ON EXPIRY"),
        ("FINALIZE AFTER INTERVAL '1 day'", "FINALIZE AFTER INTERVAL '1 day'"),
    ] {
        let query = select(&format!("SELECT k FROM t {written}"));
        assert_eq!(
            (query.text.as_str(), query.clauses.to_string().as_str()),
            ("SELECT k FROM t", canonical),
            "{written}"
        );
        assert_eq!(query.clauses.is_streaming(), !written.is_empty());
    }
}

/// The clauses without their positions.
fn bare(clauses: &Clauses) -> String {
    clauses.to_string()
}

#[test]
fn clauses_come_in_any_order() {
    let mut all = [
        "ALLOWED LATENESS INTERVAL '1 hour'",
        "ON LATE UPDATE MAX 2 UPDATES",
        "ON EXPIRED DROP",
        "EMIT CHANGES EVERY INTERVAL '1 minute'",
        "FINALIZE AFTER INTERVAL '1 day'",
    ];
    let canonical = all.join(" ");
    // Heap's algorithm: each of the 120 orders once.
    let mut counters = [0; 5];
    let mut orders = 0;
    let mut i = 0;
    loop {
        orders += 1;
        assert_eq!(bare(&select(&format!("SELECT k FROM t GROUP BY k {}", all.join(" "))).clauses), canonical);
        while i < 5 && counters[i] >= i {
            counters[i] = 0;
            i += 1;
        }
        if i == 5 {
            break;
        }
        all.swap(if i % 2 == 0 { 0 } else { counters[i] }, i);
        counters[i] += 1;
        i = 0;
    }
    assert_eq!(orders, 120);
}

#[test]
fn the_query_keeps_its_text_letter_for_letter() {
    for prefix in [
        "SELECT k FROM t",
        "select  K,\n\tcount( * )  -- EMIT CHANGES\n from T /* ON LATE DROP */ group by k",
        "SELECT 'EMIT CHANGES', 'it''s ALLOWED LATENESS' FROM t",
        "SELECT \"emit\", \"ON LATE\" AS \"FINALIZE AFTER\" FROM \"GRACE PERIOD\"",
        "SELECT 1 AS emit, 2 grace, 3 AS allowed FROM t AS emit",
        "SELECT emit.grace FROM t AS emit WHERE emit.late = 1",
        "WITH emit AS (SELECT 1 AS changes) SELECT changes FROM emit",
        "SELECT a FROM (SELECT b FROM u) AS x JOIN y ON x.late = y.late",
        "SELECT a FROM x CROSS JOIN y",
        "SELECT a FROM x JOIN y USING (k)",
        "SELECT a FROM x UNION ALL SELECT b FROM y",
        "(SELECT a FROM x)",
        "VALUES (1, 'EMIT')",
        "FROM t SELECT a",
        "SELECT a FROM t ORDER BY a DESC LIMIT 10 OFFSET 5",
        "SELECT a, count(*) FROM t GROUP BY a HAVING count(*) > 1",
        "SELECT a, row_number() OVER w FROM t WINDOW w AS (PARTITION BY a)",
        "SELECT a FROM v$late",
        "SELECT a FROM v$history FOR SYSTEM_TIME AS OF '2024-01-15T10:00:00Z' AS h",
        "SELECT a FROM s$rejects r",
        "SELECT a FROM t WHERE ts > now() - INTERVAL '1 hour'",
        "SELECT '🐎 žluťoučký' FROM t",
        "SELECT $$ EMIT CHANGES $$ FROM t",
    ] {
        for clauses in [
            "",
            "EMIT CHANGES",
            "ON LATE DROP EMIT FINAL",
            "GRACE PERIOD INTERVAL '1 m'",
            "FINALIZE AFTER INTERVAL '1 d'",
        ] {
            let query = select(&format!("{prefix} {clauses} ;"));
            assert_eq!(query.text, prefix);
            assert_eq!(query.clauses.is_streaming(), !clauses.is_empty(), "{prefix} {clauses}");
        }
    }
}

#[test]
fn c126_words_that_are_no_clause() {
    check_errors(&[
        (
            "SELECT k FROM t GROUP BY k EMIT ON WINDOW CLOSE ALLOWED LATENES INTERVAL '1 minute'",
            "syntax 1:57: expected LATENESS, found `LATENES` (did you mean ALLOWED LATENESS?)",
        ),
        (
            "SELECT k FROM t ALOWED LATENESS INTERVAL '1 minute'",
            &format!("syntax 1:17: expected {CLAUSES}, found `ALOWED` (did you mean ALLOWED LATENESS?)"),
        ),
        (
            "SELECT k FROM t\nGROUP BY k\n  EMITT CHANGES",
            &format!("syntax 3:3: expected {CLAUSES}, found `EMITT` (did you mean EMIT CHANGES?)"),
        ),
        (
            "SELECT k FROM t EMIT CHANGES ALLOWED LATENESS INTERVAL '1 minute' EMIT ON WINDOW CLOSE",
            "syntax 1:67: EMIT is given twice (the first one is at line 1, column 17; keep one of them)",
        ),
        (
            "SELECT k FROM t GRACE PERIOD INTERVAL '1 m' ALLOWED LATENESS INTERVAL '1 m'",
            "syntax 1:45: ALLOWED LATENESS is given twice (the first one is at line 1, column 17; keep one of them)",
        ),
        ("SELECT k FROM t ON LAT DROP", "syntax 1:20: expected LATE or EXPIRED, found `LAT` (did you mean ON LATE?)"),
        (
            "SELECT k FROM t ON LATE UPDATED",
            "syntax 1:25: expected UPDATE, DROP, SIDE OUTPUT or RECOMPUTE, found `UPDATED` (did you mean ON LATE UPDATE?)",
        ),
        ("SELECT k FROM t ON LATE SIDE", "syntax 1:29: expected OUTPUT, found the end of the text (-)"),
        (
            "SELECT k FROM t EMIT ON WINDOW CLSE",
            "syntax 1:32: expected CLOSE, found `CLSE` (did you mean EMIT ON WINDOW CLOSE?)",
        ),
        (
            "SELECT k FROM t EMIT WINDOW CLOSE",
            "syntax 1:22: expected ON WINDOW CLOSE, AFTER WINDOW CLOSE, AFTER WATERMARK, CHANGES, ON UPDATE, ON EXPIRY or FINAL, \
             found `WINDOW` (did you mean EMIT ON WINDOW CLOSE?)",
        ),
        (
            "SELECT k FROM t ON EXPIRED UPDATE",
            "syntax 1:28: an expired window has no state left that could be updated (raise ALLOWED LATENESS, or write ON EXPIRED RECOMPUTE)",
        ),
        (
            "SELECT k FROM t ON LATE UPDATE MAX ten UPDATES",
            "syntax 1:36: expected a number of updates, found `ten` (-)",
        ),
        (
            "SELECT k FROM t EMIT CHANGES, ON LATE DROP",
            "syntax 1:29: expected ALLOWED LATENESS, ON LATE, ON EXPIRED, FINALIZE AFTER or the end of the statement, found `,` (-)",
        ),
        (
            "SELECT a FROM t JOIN u ON LATE DROP",
            &format!(
                "syntax 1:32: expected {CLAUSES}, found `DROP` (the join before it took ON for its own; give the join a condition first)"
            ),
        ),
        (
            "SELECT * FROM (SELECT k FROM t EMIT CHANGES) x",
            "syntax 1:32: EMIT CHANGES belongs to the whole statement, not to a query in parentheses \
             (write it behind the last closing parenthesis)",
        ),
        (
            "CREATE VIEW v AS SELECT 1 FROM t EMIT CHANGES",
            "syntax 1:34: a plain view is a macro and takes no clauses \
             (write CREATE MATERIALIZED VIEW, or put the clauses behind the query that reads the view)",
        ),
    ]);
}

#[test]
fn lengths_in_clauses_are_checked() {
    check_errors(&[
        (
            "SELECT k FROM t ALLOWED LATENESS 5 minutes",
            "syntax 1:34: expected INTERVAL, found `5` (write a length as INTERVAL '5 minutes')",
        ),
        (
            "SELECT k FROM t ALLOWED LATENESS INTERVAL five minutes",
            "syntax 1:43: expected a length in quotes, found `five` (write a length as INTERVAL '5 minutes')",
        ),
        (
            "SELECT k FROM t ALLOWED LATENESS INTERVAL 1 hour 30 minutes",
            "syntax 1:50: expected the end of the interval, found `30` \
             (put a length of several units in quotes: INTERVAL '1 hour 30 minutes')",
        ),
        (
            "SELECT k FROM t ALLOWED LATENESS INTERVAL '-5 minutes'",
            "invalid 1:34: allowed lateness must not be negative, is `-5 minutes` (-)",
        ),
        (
            "SELECT k FROM t EMIT CHANGES EVERY INTERVAL '0 s'",
            "invalid 1:36: EVERY must be above zero, is `0 seconds` (-)",
        ),
        (
            "SELECT k FROM t ON LATE UPDATE MAX 99999999999 UPDATES",
            "invalid 1:36: expected a number of updates, found `99999999999`, which is out of range (-)",
        ),
    ]);
}

// Sources.

fn source(columns: &str) -> statement::CreateSource {
    match one(&format!("CREATE SOURCE s ({columns}) WITH (connector = 'file')")) {
        Statement::CreateSource(source) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn flink_ddl_pastes_in() {
    let Statement::CreateSource(source) = one("CREATE TABLE IF NOT EXISTS `Bids` (
            bidder BIGINT NOT NULL,
            item ROW<id BIGINT, tags ARRAY<ROW<name STRING>>>,
            attributes MAP<STRING, STRING>,
            price DECIMAL(10, 2),
            raw BYTES,
            bidtime TIMESTAMP_LTZ(3),
            cents AS price * 100,
            `offset` BIGINT METADATA VIRTUAL,
            part INT METADATA FROM 'partition',
            WATERMARK FOR bidtime AS bidtime - INTERVAL '5' SECOND
        ) WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json')")
    else {
        panic!()
    };
    assert!(source.if_not_exists && !source.or_replace);
    assert_eq!(source.name.node, "Bids");
    let columns: Vec<String> = source
        .columns
        .iter()
        .map(|c| {
            let kind = match &c.kind {
                ColumnKind::Physical(t) => t.to_string(),
                ColumnKind::Computed(e) => format!("= {e}"),
                ColumnKind::Metadata { data_type, key } => format!("{data_type} from {key}"),
            };
            format!("{} {kind}{}", c.name.node, if c.not_null { " not null" } else { "" })
        })
        .collect();
    assert_eq!(
        columns,
        [
            "bidder BIGINT not null",
            "item STRUCT<id BIGINT, tags ARRAY<STRUCT<name STRING>>>",
            "attributes Map(STRING, STRING)",
            "price DECIMAL(10,2)",
            "raw BYTEA",
            "bidtime TIMESTAMP(3) WITH TIME ZONE",
            "cents = price * 100",
            "offset BIGINT from offset",
            "part INT from partition",
        ]
    );
    assert_eq!(source.options.keys().collect::<Vec<_>>(), ["connector", "format", "properties.bootstrap.servers"]);
    assert!(source.text.contains("ROW<id BIGINT"), "the text stays as written");
}

#[test]
fn a_table_without_a_connector_is_datafusions() {
    for sql in [
        "CREATE TABLE t (a INT)",
        "CREATE TABLE t AS SELECT 1",
        "CREATE TABLE t AS SELECT 1 FROM x WITH (NOLOCK)",
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'x.parquet'",
    ] {
        let outcome = parse_one(sql);
        assert!(!matches!(outcome, Ok(Statement::CreateSource(_))), "{sql}");
    }
    assert!(matches!(one("CREATE TABLE t (ts TIMESTAMP) WITH (connector = 'file')"), Statement::CreateSource(_)));
    assert_eq!(
        error("CREATE TABLE t (ts TIMESTAMP, WATERMARK FOR ts AS ts)"),
        "syntax 1:54: expected WITH, found the end of the text \
         (say where the rows come from: WITH (connector = 'file', path = 'orders.jsonl', format = 'json'))"
    );
}

#[test]
fn all_watermark_strategies_are_read() {
    let strategy = |watermark: &str| {
        let source = source(&format!("k INT, ts TIMESTAMP, {watermark}"));
        let watermark = source.watermark.expect("a watermark");
        let idle = |i: Option<statement::Interval>| i.map_or_else(|| "-".to_owned(), |i| i.to_string());
        let strategy = match watermark.strategy {
            WatermarkStrategy::Expression(e) => format!("max {}", e.node),
            WatermarkStrategy::PerKey { expr, keys, timeout } => {
                let keys: Vec<_> = keys.into_iter().map(|k| k.node).collect();
                format!("{} per {} within {timeout}", expr.node, keys.join("+"))
            }
            WatermarkStrategy::Punctuated { expr, when } => format!("{} when {}", expr.node, when.node),
            WatermarkStrategy::ProcessingTime { delay } => format!("clock - {delay}"),
        };
        format!("{strategy}; idle {}, close {}", idle(watermark.idle_timeout), idle(watermark.idle_close_after))
    };
    for (written, expected) in [
        ("WATERMARK FOR ts AS ts", "max ts; idle -, close -"),
        ("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "max ts - INTERVAL '5' SECOND; idle -, close -"),
        (
            "WATERMARK FOR ts AS ts - INTERVAL '5 s' IDLE CLOSE AFTER INTERVAL '1 h' IDLE TIMEOUT INTERVAL '1 m'",
            "max ts - INTERVAL '5 s'; idle 1 minute, close 1 hour",
        ),
        (
            "WATERMARK FOR ts AS ts PER KEY (k, \"K 2\") TIMEOUT INTERVAL '10 m' IDLE TIMEOUT INTERVAL '1 m'",
            "ts per k+K 2 within 10 minutes; idle 1 minute, close -",
        ),
        ("WATERMARK FOR ts PUNCTUATED WHEN k = 0", "\"ts\" when k = 0; idle -, close -"),
        (
            "WATERMARK FOR ts AS ts - INTERVAL '1 s' PUNCTUATED WHEN k = 0",
            "ts - INTERVAL '1 s' when k = 0; idle -, close -",
        ),
        ("WATERMARK FOR ts AS PROCTIME() - INTERVAL '1' MINUTE", "clock - 1 minute; idle -, close -"),
        ("WATERMARK FOR ts AS proctime()", "clock - 0 seconds; idle -, close -"),
    ] {
        assert_eq!(strategy(written), expected, "{written}");
    }
}

#[test]
fn wrong_sources_are_explained() {
    check_errors(&[
        ("CREATE SOURCE", "syntax 1:14: expected a name for the source, found the end of the text (-)"),
        ("CREATE SOURCE s (a INT WITH (x = 1)", "syntax 1:24: expected `,` or `)`, found `WITH` (-)"),
        ("CREATE SOURCE s (a) WITH (x = 1)", "syntax 1:19: expected a type for column `a`, found `)` (-)"),
        ("CREATE SOURCE s (a BIGIN) WITH (x = 1)", "syntax 1:20: `BIGIN` is no type (did you mean BIGINT?)"),
        (
            "CREATE SOURCE s (a STRUCT<b DOUBEL>) WITH (x = 1)",
            "syntax 1:20: `DOUBEL` is no type (did you mean DOUBLE?)",
        ),
        (
            "CREATE SOURCE s (a INT, A INT) WITH (x = 1)",
            "syntax 1:25: column `a` is given twice (the first one is at line 1, column 18)",
        ),
        (
            "CREATE SOURCE s (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH (x = 1)",
            "unsupported 1:25: a source has no keys: it is a log, and every row of it counts \
             (leave the key out; to count each row once, use count(DISTINCT id))",
        ),
        (
            "CREATE SOURCE s (a INT COMMENT 'x') WITH (x = 1)",
            "unsupported 1:24: a source's column takes no COMMENT (a computed column is written `name AS expression`)",
        ),
        (
            "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts) WITH (x = 1)",
            "syntax 1:48: expected AS or PUNCTUATED WHEN, found `)` (write WATERMARK FOR ts AS ts - INTERVAL '5 minutes')",
        ),
        (
            "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts, WATERMARK FOR ts AS ts) WITH (x = 1)",
            "syntax 1:56: WATERMARK is given twice (the first one, for `ts`, is at line 1, column 46)",
        ),
        (
            "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts IDEL TIMEOUT INTERVAL '1 s') WITH (x = 1)",
            "syntax 1:55: expected `,`, `)`, IDLE TIMEOUT, IDLE CLOSE AFTER, PER KEY or PUNCTUATED WHEN, found `IDEL` \
             (did you mean IDLE?)",
        ),
        (
            "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts IDLE TIMEOUT INTERVAL '0 s') WITH (x = 1)",
            "invalid 1:68: IDLE TIMEOUT must be above zero, is `0 seconds` (write a length as INTERVAL '5 minutes')",
        ),
        (
            "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts PER KEY (k)) WITH (x = 1)",
            "syntax 1:66: expected TIMEOUT, found `)` (a key that falls silent would hold the watermark for ever: \
             PER KEY (k) TIMEOUT INTERVAL '10 minutes')",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = file)",
            "syntax 1:43: expected a value, found `file` (put the value in single quotes: 'file')",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'file', 'CONNECTOR' = 'x')",
            "syntax 1:51: option `connector` is given twice (-)",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'kafka') FORMAT PLAIN ENCODE JSON",
            "syntax 1:52: expected the end of the statement, found `FORMAT` (the format is an option: WITH (…, format = 'json'))",
        ),
        (
            "CREATE SOURCE a.b (a INT) WITH (x = 1)",
            "unsupported 1:16: names of sources, views and columns have one part (quote the name if it contains a dot)",
        ),
        (
            "CREATE OR REPLACE SOURCE IF NOT EXISTS s (a INT) WITH (x = 1)",
            "syntax 1:26: OR REPLACE and IF NOT EXISTS exclude each other (-)",
        ),
    ]);
}

#[test]
fn option_values_are_kept_as_text() {
    let Statement::CreateSource(source) = one(
        "CREATE STREAM s WITH (A.b = 1, \"C\" = -2.5, d = TRUE, e = INTERVAL '90 minutes', 'F.g' = 'It''s', h = '')",
    ) else {
        panic!()
    };
    let options: Vec<(&str, &str)> = source.options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        options,
        [("a.b", "1"), ("c", "-2.5"), ("d", "true"), ("e", "1 hour 30 minutes"), ("f.g", "It's"), ("h", ""),]
    );
}

// Other statements.

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
        Statement::Describe { name } => format!("describe {}", name.node),
        Statement::Show(Show::Watermarks { of }) => format!("show watermarks {of:?}"),
        Statement::Show(Show::Lateness { of }) => format!("show lateness {of:?}"),
        Statement::Show(show) => format!("show {show:?}").to_lowercase(),
        Statement::Drop { kind, if_exists, name } => {
            format!("drop {kind:?} {}{}", name.node, if *if_exists { " if exists" } else { "" })
        }
        Statement::Insert { source, columns, query, .. } => format!("insert {} {columns:?} {query}", source.node),
        Statement::Pause { view } => format!("pause {}", view.node),
        Statement::Resume { view } => format!("resume {}", view.node),
        Statement::Passthrough(s) => format!("datafusion: {s}"),
    }
}

#[test]
fn statements_are_told_apart() {
    for (sql, expected) in [
        ("SUBSCRIBE v", "subscribe v"),
        ("SUBSCRIBE TO \"V\"", "subscribe V"),
        (
            "SUBSCRIBE v SINCE '2024-01-15T10:00:00Z' WITH SNAPSHOT",
            "subscribe v since 2024-01-15T10:00:00Z with snapshot",
        ),
        ("SUBSCRIBE v SINCE TIMESTAMP '2024-01-15T10:00:00Z'", "subscribe v since 2024-01-15T10:00:00Z"),
        ("SUBSCRIBE v EPOCH 12", "subscribe v after epoch 12"),
        ("SUBSCRIBE v SINCE EPOCH 12", "subscribe v after epoch 12"),
        ("EXPLAIN SELECT k FROM t EMIT CHANGES", "explain select SELECT k FROM t"),
        ("EXPLAIN ANALYZE SELECT 1", "explain analyze select SELECT 1"),
        ("EXPLAIN ANALYZE BATCH SELECT 1", "explain analyze batch select SELECT 1"),
        ("EXPLAIN BATCH SELECT 1", "explain batch select SELECT 1"),
        ("EXPLAIN (SELECT 1)", "explain select (SELECT 1)"),
        ("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1", "explain view v {}: SELECT 1"),
        ("EXPLAIN VERBOSE SELECT 1", "datafusion: EXPLAIN VERBOSE SELECT 1"),
        ("EXPLAIN FORMAT TREE SELECT 1", "datafusion: EXPLAIN FORMAT tree SELECT 1"),
        ("EXPLAIN (ANALYZE) SELECT 1", "datafusion: EXPLAIN ANALYZE SELECT 1"),
        ("DESCRIBE v$late", "describe v$late"),
        ("DESC materialized view V", "describe v"),
        ("DESCRIBE view", "describe view"),
        ("DESCRIBE a.b", "datafusion: DESCRIBE a.b"),
        ("SHOW SOURCES", "show sources"),
        ("show streams", "show sources"),
        ("SHOW VIEWS", "show views"),
        ("SHOW MATERIALIZED VIEWS", "show views"),
        ("SHOW JOBS", "show jobs"),
        ("SHOW WATERMARKS", "show watermarks None"),
        ("SHOW WATERMARKS FOR Orders", "show watermarks Some(\"orders\")"),
        ("SHOW LATENESS", "show lateness None"),
        ("SHOW LATENESS v", "show lateness Some(\"v\")"),
        ("SHOW TABLES", "datafusion: SHOW TABLES"),
        ("SHOW ALL", "datafusion: SHOW ALL"),
        ("SHOW datafusion.execution.batch_size", "datafusion: SHOW datafusion execution batch_size"),
        ("DROP SOURCE s", "drop Source s"),
        ("DROP STREAM IF EXISTS s", "drop Source s if exists"),
        ("DROP MATERIALIZED VIEW v", "drop MaterializedView v"),
        ("DROP VIEW IF EXISTS \"V\"", "drop View V if exists"),
        ("DROP TABLE t", "drop Table t"),
        ("DROP FUNCTION f", "datafusion: DROP FUNCTION f"),
        ("PAUSE v", "pause v"),
        ("RESUME MATERIALIZED VIEW v", "resume v"),
        ("INSERT INTO S (A, \"B\") VALUES (1, 2)", "insert s [\"a\", \"B\"] VALUES (1, 2)"),
        ("INSERT INTO s SELECT a FROM t", "insert s [] SELECT a FROM t"),
        ("INSERT INTO a.b VALUES (1)", "datafusion: INSERT INTO a.b VALUES (1)"),
        ("CREATE VIEW v AS SELECT a FROM t", "macro v: SELECT a FROM t"),
        (
            "CREATE OR REPLACE MATERIALIZED VIEW v WITH (start = 'latest') AS SELECT a FROM t",
            "view v {\"start\": \"latest\"}: SELECT a FROM t",
        ),
        (
            "COPY (SELECT 1) TO 'x.parquet' STORED AS PARQUET",
            "datafusion: COPY (SELECT 1) TO x.parquet STORED AS PARQUET",
        ),
        ("SET datafusion.execution.batch_size = 7", "datafusion: SET datafusion.execution.batch_size = 7"),
        ("CREATE TABLE t AS SELECT 1", "datafusion: CREATE TABLE t AS SELECT 1"),
        ("ROLLBACK", "datafusion: ROLLBACK"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "select WITH x AS (SELECT 1) SELECT * FROM x"),
    ] {
        assert_eq!(summary(&one(sql)), expected, "{sql}");
    }
}

#[test]
fn statements_of_later_issues_say_so() {
    for (sql, word) in [
        ("FINALIZE v FOR DATE '2024-01-15'", "FINALIZE"),
        ("REPROCESS v FROM '2024-01-01' TO '2024-01-02'", "REPROCESS"),
        ("PATCH v", "PATCH"),
        ("ROLLBACK v TO VERSION 3", "ROLLBACK"),
        ("VERIFY v", "VERIFY"),
        ("CREATE SCHEDULE n CRON '0 2 * * *' AS FINALIZE v", "CREATE SCHEDULE"),
        ("DROP SCHEDULE n", "DROP SCHEDULE"),
        ("SHOW SCHEDULES", "SHOW SCHEDULES"),
        ("CANCEL 'job-1'", "CANCEL"),
    ] {
        let text = format!("SELECT 1;\n  {sql}");
        let error = error(&text);
        assert!(error.starts_with(&format!("unsupported 2:3: {word} is not supported yet (")), "{error}");
    }
}

#[test]
fn wrong_statements_are_explained() {
    check_errors(&[
        ("SELCT k FROM t", "syntax 1:1: expected a statement, found `SELCT` (did you mean SELECT?)"),
        ("SUBSCRIB v", "syntax 1:1: expected a statement, found `SUBSCRIB` (did you mean SUBSCRIBE?)"),
        ("foo bar", "syntax 1:1: expected a statement, found `foo` (-)"),
        (
            "CREATE MATERALIZED VIEW v AS SELECT 1",
            "syntax 1:8: expected SOURCE, STREAM, MATERIALIZED VIEW, VIEW, TABLE or EXTERNAL TABLE, found `MATERALIZED` \
             (did you mean MATERIALIZED?)",
        ),
        (
            "CREATE MATERIALIZED VIEW v SELECT 1",
            "syntax 1:28: expected AS, found `SELECT` (write AS in front of the query)",
        ),
        (
            "CREATE MATERIALIZED VIEW v (a) AS SELECT 1",
            "unsupported 1:28: a view takes no list of columns (name the columns in the query: SELECT sum(total) AS revenue)",
        ),
        (
            "DROP VIEWS v",
            "syntax 1:6: expected SOURCE, STREAM, MATERIALIZED VIEW, VIEW or TABLE, found `VIEWS` (did you mean DROP VIEW?)",
        ),
        ("DROP VIEW a, b", "unsupported 1:12: DROP takes one name (write a DROP for each)"),
        (
            "DROP VIEW a CASCADE",
            "unsupported 1:13: DROP takes neither CASCADE nor RESTRICT (drop the views that read it first)",
        ),
        ("SUBSCRIBE v WITH SNAPSHOTS", "syntax 1:18: expected SNAPSHOT, found `SNAPSHOTS` (did you mean SNAPSHOT?)"),
        (
            "SUBSCRIBE v FROM x",
            "syntax 1:13: expected SINCE, EPOCH, WITH SNAPSHOT or the end of the statement, found `FROM` (-)",
        ),
        (
            "SHOW SORCES",
            "syntax 1:6: expected SOURCES, VIEWS, JOBS, SCHEDULES, WATERMARKS, LATENESS, TABLES, COLUMNS, FUNCTIONS or ALL, \
             found `SORCES` (did you mean SOURCES?)",
        ),
        ("EXPLAIN", "syntax 1:8: expected a query to explain, found the end of the text (-)"),
        (
            "EXPLAIN SHOW JOBS",
            "unsupported 1:9: only what holds a query can be explained (DESCRIBE a source or view, or EXPLAIN its SELECT)",
        ),
        ("EXPLAIN BATCH ANALYZE SELECT 1", "syntax 1:15: ANALYZE goes before BATCH (write EXPLAIN ANALYZE BATCH)"),
        ("PAUSE v w", "syntax 1:9: expected the end of the statement, found `w` (-)"),
        ("SELECT 1 SELECT 2", &format!("syntax 1:10: expected {CLAUSES}, found `SELECT` (-)")),
        ("SELECT k FORM t", &format!("syntax 1:10: expected {CLAUSES}, found `FORM` (did you mean FROM?)")),
        ("SELECT k FROM t WHER x > 1", &format!("syntax 1:17: expected {CLAUSES}, found `WHER` (did you mean WHERE?)")),
        (
            "SELECT k FROM t GROPU BY k",
            &format!("syntax 1:17: expected {CLAUSES}, found `GROPU` (did you mean GROUP?)"),
        ),
        ("SELECT k FROM t AS form x", &format!("syntax 1:25: expected {CLAUSES}, found `x` (-)")),
        ("SELECT (1", "syntax 1:10: expected `)`, found the end of the text (-)"),
        ("SELECT 1)", &format!("syntax 1:9: expected {CLAUSES}, found `)` (-)")),
        ("SELECT a FROM t WHERE", "syntax 1:22: expected an expression, found the end of the text (-)"),
        ("SELECT 'abc", "syntax 1:8: this string has no end (close it with ', and double a ' inside it)"),
        ("SELECT \"abc", "syntax 1:8: this quoted name has no end (close it with the quote it starts with)"),
        ("SELECT 1 /* x", "syntax 1:10: this comment has no end (close it with */)"),
    ]);
}

#[test]
fn what_datafusion_would_drop_is_refused() {
    for sql in [
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
        "SELECT * FROM t WITH (NOLOCK)",
        "SELECT * FROM t VERSION AS OF 3",
        "SELECT * FROM t TIMESTAMP AS OF '2024-01-01'",
        "COPY (SELECT * FROM t TABLESAMPLE BERNOULLI (10)) TO 'x.csv'",
        "INSERT INTO s SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
    ] {
        let error = error(sql);
        assert!(error.starts_with("unsupported 1:"), "{error}");
    }
    for sql in ["SELECT 1 FROM t FORMAT json", "SELECT 1 FROM t SETTINGS a = 1", "SELECT a FROM t ORDER BY a WITH FILL"]
    {
        assert!(error(sql).starts_with("syntax 1:"), "{sql}");
    }
    // What MySQL would run from inside a comment is a comment.
    assert_eq!(select("SELECT 1 /*! + 1 */ FROM t").query.to_string(), "SELECT 1 FROM t");
}

#[test]
fn a_name_that_a_shell_took_gets_a_hint() {
    let hint = "(an empty name: between double quotes a shell replaces $late by nothing, so put the statement in single quotes)";
    for sql in [
        "SELECT * FROM",
        "SELECT * FROM ;",
        "SELECT * FROM  WHERE k = 1",
        "SELECT count(*) FROM (SELECT * FROM ) x",
        "SELECT * FROM v JOIN ",
        "SELECT * FROM \"\"",
        "SUBSCRIBE ",
        "SUBSCRIBE ;",
        "DESCRIBE",
    ] {
        let error = error(sql);
        assert!(error.ends_with(hint), "{sql}: {error}");
    }
    for sql in ["SELECT * FROM $late", "SUBSCRIBE $late"] {
        let error = error(sql);
        assert!(error.ends_with("found `$late` (put the view's name before it: my_view$late)"), "{error}");
    }
}

#[test]
fn as_of_is_kept_in_the_tree() {
    use datafusion::sql::sqlparser::ast::{SetExpr, TableFactor, TableVersion};
    let query = select("SELECT * FROM v FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-15T10:00:00Z' AS x");
    let SetExpr::Select(select) = *query.query.body else { panic!() };
    let TableFactor::Table { version: Some(TableVersion::ForSystemTimeAsOf(at)), alias: Some(alias), .. } =
        &select.from[0].relation
    else {
        panic!("{:?}", select.from)
    };
    assert_eq!((at.to_string().as_str(), alias.name.value.as_str()), ("TIMESTAMP '2024-01-15T10:00:00Z'", "x"));
}

#[test]
fn statements_know_where_they_start() {
    let starts: Vec<(u64, u64)> = parse_spanned("SELECT 1; -- one\n\n  PAUSE v;;\nSELECT 'č'; SELECT 4")
        .expect("statements")
        .iter()
        .map(|s| (s.position.line, s.position.column))
        .collect();
    assert_eq!(starts, [(1, 1), (3, 3), (4, 1), (4, 13)]);
    assert!(parse("").expect("nothing").is_empty());
    assert!(parse(" ;; -- nothing\n").expect("nothing").is_empty());
    assert_eq!(
        parse_one("SELECT 1; SELECT 2").expect_err("two").to_string(),
        "expected one statement, found a second one at line 1, column 11"
    );
    assert!(parse_one("").is_err());
}

#[test]
fn a_piece_is_read_at_its_place() {
    let text = "SELECT 'č'; SELECT\n  k FROM t EMIT\n NEVER; PAUSE v; SELECT 'x";
    let pieces = split_statements(text);
    let place = |i: usize| parse_piece(&pieces[i]).expect_err("wrong").position().map(|p| (p.line, p.column));
    assert_eq!(place(1), Some((3, 2)));
    assert_eq!(place(3), Some((3, 25)));
    let Statement::Select(first) = parse_piece(&pieces[0]).expect("right") else { panic!() };
    assert_eq!(first.text, "SELECT 'č'");
    let Statement::Pause { view } = parse_piece(&pieces[2]).expect("right") else { panic!() };
    assert_eq!((view.position.line, view.position.column), (3, 15));
    // All at once or piece by piece: the same trees with the same places.
    let text = "CREATE VIEW a AS SELECT k\nFROM ů;\n  SELECT 1 EMIT FINAL; DROP VIEW ž";
    let apart: Vec<Statement> = split_statements(text).iter().map(|p| parse_piece(p).expect("right")).collect();
    assert_eq!(format!("{apart:?}"), format!("{:?}", parse(text).expect("right")));
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    for (open, close) in [("(", ")"), ("NOT ", ""), ("- ", ""), ("abs(", ")"), ("CASE WHEN ", "")] {
        let sql = format!("SELECT {}1{}", open.repeat(5_000), close.repeat(5_000));
        let error = error(&sql);
        assert!(error.starts_with("syntax "), "{error}");
    }
}

/// Every SQL text a person may read or run is one this parser reads.
#[test]
fn the_shipped_sql_is_read() {
    fn texts(folder: &std::path::Path, ending: &str, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                texts(&path, ending, found);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push((path.display().to_string(), std::fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let (mut tour, mut slt) = (Vec::new(), Vec::new());
    texts(&root, "sql", &mut tour);
    texts(&root, "slt", &mut slt);
    let read = |name: &str, sql: &str| {
        if let Err(error) = parse(sql) {
            panic!("{name}\n{}", render(sql, &error));
        }
    };
    for (name, text) in &tour {
        read(name, text);
    }
    for (name, text) in &slt {
        for block in text.split("\n\n") {
            let mut lines = block.lines().skip_while(|l| l.starts_with('#'));
            let head = lines.next().unwrap_or_default();
            let body: Vec<&str> = lines.take_while(|l| *l != "----").collect();
            let is_sql = head == "statement ok" || (head.starts_with("query ") && !head.starts_with("query error"));
            if is_sql && !body.first().is_some_and(|l| l.starts_with('\\')) {
                read(name, &body.join("\n"));
            }
        }
    }
    assert!(tour.len() >= 10 && slt.len() >= 10, "the folders have moved");
}

// Drawing.

#[test]
fn an_error_is_drawn_under_its_line() {
    let draw = |sql: &str| render(sql, &parse(sql).expect_err(sql));
    assert_eq!(
        draw("SELECT k FROM t\n\tALLOWED LATENES INTERVAL '1 minute'"),
        "error: expected LATENESS, found `LATENES`
  --> line 2, column 10
   |
 2 |  ALLOWED LATENES INTERVAL '1 minute'
   |          ^^^^^^^
hint: did you mean ALLOWED LATENESS?
"
    );
    // Wide characters and combining marks: the caret is under the word all the same.
    assert_eq!(
        draw("SELECT '漢字', 'e\u{301}' FROM t EMITT CHANGES").lines().skip(3).take(2).collect::<Vec<_>>(),
        [" 1 | SELECT '漢字', 'e\u{301}' FROM t EMITT CHANGES", "   |                           ^^^^^"]
    );
    let long = format!(
        "SELECT {} FROM t EMITT CHANGES",
        (0..100).map(|i| format!("column_{i}")).collect::<Vec<_>>().join(", ")
    );
    let drawn = draw(&long);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(lines[3].starts_with(" 1 | …") && lines[3].chars().count() < 120, "{drawn}");
    let caret = lines[4].find('^').expect("a caret");
    assert_eq!(lines[3].chars().skip(caret).take(5).collect::<String>(), "EMITT");
    // At the end of the text, and for an error without a place.
    assert!(draw("SELECT k FROM t\nWHERE").contains(" 2 | WHERE\n   |      ^\n"));
    assert_eq!(render("SELECT 1", &crate::Error::invalid("no such table")), "error: no such table\n");
}

// Properties.

const SOUP: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "t",
    "k",
    "v$late",
    "$late",
    "\"Q\"",
    "`b`",
    "(",
    ")",
    ",",
    ";",
    "*",
    "=",
    "=>",
    "<",
    ">",
    "'text'",
    "1",
    "2.5",
    "-",
    "+",
    "INTERVAL",
    "'1 hour'",
    "HOUR",
    "TO",
    "MINUTE",
    "TABLE",
    "TUMBLE",
    "HOP",
    "SESSION",
    "DESCRIPTOR",
    "PARTITION",
    "CREATE",
    "SOURCE",
    "STREAM",
    "VIEW",
    "MATERIALIZED",
    "WITH",
    "AS",
    "ON",
    "LATE",
    "EXPIRED",
    "UPDATE",
    "MAX",
    "UPDATES",
    "DROP",
    "SIDE",
    "OUTPUT",
    "RECOMPUTE",
    "EVERY",
    "EMIT",
    "CHANGES",
    "WINDOW",
    "CLOSE",
    "AFTER",
    "WATERMARK",
    "FINAL",
    "FINALIZE",
    "ALLOWED",
    "LATENESS",
    "GRACE",
    "PERIOD",
    "FOR",
    "SYSTEM_TIME",
    "OF",
    "PER",
    "KEY",
    "TIMEOUT",
    "IDLE",
    "PUNCTUATED",
    "WHEN",
    "SUBSCRIBE",
    "SINCE",
    "EPOCH",
    "EXPLAIN",
    "ANALYZE",
    "BATCH",
    "SHOW",
    "DESCRIBE",
    "INSERT",
    "INTO",
    "VALUES",
    "ROW",
    "STRUCT",
    "INT",
    "TIMESTAMP",
    "METADATA",
    "JOIN",
    "UNION",
    "ALL",
    "--x\n",
    "/*c*/",
    "\n",
    ".",
    "::",
    "'",
    "\"",
    "/*",
    "$$",
    "🐎",
    "IF",
    "NOT",
    "EXISTS",
    "OR",
    "REPLACE",
    "COPY",
    "SET",
];

fn is_within(text: &str, error: &crate::Error) -> bool {
    let Some(position) = error.position() else { return true };
    let lines: Vec<&str> = text.split('\n').collect();
    let line = position.line.checked_sub(1).and_then(|l| lines.get(usize::try_from(l).ok()?));
    line.is_some_and(|l| (1..=l.chars().count() as u64 + 1).contains(&position.column))
}

const VALID: &str = "CREATE MATERIALIZED VIEW v AS SELECT k , count ( * ) AS n FROM TUMBLE ( TABLE t , DESCRIPTOR ( ts ) , INTERVAL '1 hour' ) \
     WHERE k > 1 GROUP BY k ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 3 UPDATES ON EXPIRED RECOMPUTE EVERY INTERVAL '5 m' \
     EMIT CHANGES EVERY INTERVAL '10 s' FINALIZE AFTER INTERVAL '1 day'";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Catches panics and errors that point outside the text. Cannot catch a wrong reading.
    #[test]
    fn any_row_of_tokens_is_read_or_refused(words in proptest::collection::vec(proptest::sample::select(SOUP), 0..40)) {
        let text = words.join(" ");
        if let Err(error) = parse(&text) {
            prop_assert!(is_within(&text, &error), "{text}: {error}");
            prop_assert!(error.position().is_some() || error.message().contains("nested"), "{text}: {error}");
            let _ = render(&text, &error);
        }
        let _ = is_complete(&text);
        let pieces = split_statements(&text);
        prop_assert!(pieces.iter().all(|p| !p.text.trim().is_empty()));
    }

    /// As above, over characters instead of words.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        if let Err(error) = parse(&text) {
            prop_assert!(is_within(&text, &error), "{text}: {error}");
            let _ = render(&text, &error);
        }
    }

    /// C126 at every place: no stray word in the clauses is accepted and ignored.
    #[test]
    fn c126_no_word_among_the_clauses_is_ignored(place in 33..59_usize, word in "[a-z]{2,9}") {
        let mut words: Vec<&str> = VALID.split(' ').collect();
        words.insert(place.min(words.len()), &word);
        let text = words.join(" ");
        let read: Result<Statement> = parse_one(&text);
        prop_assert!(read.is_err(), "{text}");
    }

    /// A statement read alone is the statement read among others.
    #[test]
    fn pieces_are_statements(count in 1..5_usize) {
        let text = vec![VALID; count].join(" ;\n");
        prop_assert_eq!(parse(&text).expect("valid").len(), count);
        for piece in split_statements(&text) {
            prop_assert_eq!(piece.text, VALID);
        }
    }
}
