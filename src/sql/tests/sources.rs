//! `CREATE SOURCE` and its kin.

use super::super::statement::{self, ColumnKind, WatermarkStrategy};
use super::super::*;
use super::{check_errors, error, one};

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
