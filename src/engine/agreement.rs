//! The whole engine against the oracle: any of the four kinds of window over any rows, from several splits, under any
//! policy, in batches of any size and by any number of workers, from SQL text to what a reader finds.
//!
//! It would show a mistake anywhere between the statement and the stored result that changes a fate, a latest or initial
//! value, a refused row or a counter, and any dependence on batches, workers or when epochs end. It cannot show a mistake
//! the oracle shares, nor what the oracle leaves out (see there); failures and restarts have tests of their own.
//!
//! CI runs some hundred cases; `HIGHWATER_CASES=10000` is the closing run.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use proptest::prelude::*;

use super::Engine;
use crate::clock::ManualClock;
use crate::connectors::MemorySource;
use crate::runtime::Epochs;
use crate::testing::oracle::{self, Answer, Emission, Fate, Kind, Question, Row};
use crate::testing::table;

const SECOND: i64 = 1_000_000;

/// What is asked, of which rows, and how the engine runs.
#[derive(Debug, Clone)]
struct Case {
    question: Question,
    splits: Vec<Vec<Row>>,
    delay: i64,
    drops_late: bool,
    drops_expired: bool,
    batch_rows: usize,
    workers: usize,
    /// Epochs asked for while it runs.
    epochs: usize,
}

impl Case {
    fn rows(&self) -> Vec<(Row, i64)> {
        oracle::arrival(&self.splits, self.delay)
    }

    fn view(&self) -> String {
        let interval = |us: i64| format!("INTERVAL '{} seconds'", us / SECOND);
        let (name, sizes, keyed) = match self.question.kind {
            Kind::Tumble { size, offset } => ("TUMBLE", vec![size, offset], ""),
            Kind::Hop { slide, size, offset } => ("HOP", vec![slide, size, offset], ""),
            Kind::Cumulate { step, size, offset } => ("CUMULATE", vec![step, size, offset], ""),
            Kind::Session { gap } => ("SESSION", vec![gap], " PARTITION BY k"),
        };
        let sizes = sizes.into_iter().map(interval).collect::<Vec<_>>().join(", ");
        let late = match (self.question.lateness, self.question.takes_late, self.drops_late) {
            (0, ..) => String::new(),
            (lateness, true, _) => format!("ALLOWED LATENESS {} ON LATE UPDATE", interval(lateness)),
            (lateness, false, true) => format!("ALLOWED LATENESS {} ON LATE DROP", interval(lateness)),
            (lateness, false, false) => format!("ALLOWED LATENESS {} ON LATE SIDE OUTPUT", interval(lateness)),
        };
        let expired = if self.drops_expired { "DROP" } else { "SIDE OUTPUT" };
        let emit = match self.question.emission {
            Emission::OnClose => "ON WINDOW CLOSE",
            Emission::Changes => "CHANGES",
            Emission::OnExpiry => "ON EXPIRY",
        };
        format!(
            "CREATE MATERIALIZED VIEW v AS SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total, \
             min(v) AS low, max(v) AS high FROM {name}(TABLE s{keyed}, DESCRIPTOR(ts), {sizes}) \
             GROUP BY window_start, window_end, k {late} ON EXPIRED {expired} EMIT {emit}"
        )
    }
}

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("ts", time, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.ts)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(rows.iter().map(Row::nullable_key))),
        Arc::new(times),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.value))),
    ];
    RecordBatch::try_new(schema(), columns).expect("columns of one length")
}

/// An engine that has answered the case.
async fn answered(case: &Case) -> Engine {
    let splits: Vec<_> = (0..).zip(&case.splits).map(|(i, rows)| (format!("split {i}"), vec![batch(rows)])).collect();
    let source = Arc::new(MemorySource::try_new(schema(), splits).expect("names differ"));
    let engine = Engine::builder()
        .in_memory()
        .workers(case.workers)
        .batch_rows(case.batch_rows)
        .epochs(Epochs::Manual)
        .clock(Arc::new(ManualClock::new(1_700_000_000 * SECOND)))
        .connector("rows", move |_| Ok(Arc::clone(&source) as _))
        .build()
        .await
        .expect("in memory");
    let delay = case.delay / SECOND;
    let source = format!(
        "CREATE SOURCE s (k VARCHAR, ts TIMESTAMP, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay} seconds') \
         WITH (connector = 'rows')"
    );
    for statement in [source, case.view()] {
        engine.execute(&statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
    for _ in 0..case.epochs {
        engine.epoch("v").await.expect("the job does not fail");
    }
    engine.wait_for_bounded().await.expect("the job does not fail");
    engine
}

/// The rows of a query, sorted, as lists of integers and texts.
async fn lines(engine: &Engine, sql: &str) -> Vec<String> {
    let rows = engine.execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}")).collect().await;
    let mut lines = table::lines(&rows.unwrap_or_else(|e| panic!("{sql}: {e}")));
    lines.sort();
    lines
}

/// Microseconds of a timestamp column.
fn us(column: &str) -> String {
    format!("CAST({column} AS BIGINT)")
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

fn values(of: BTreeMap<(oracle::Window, String), oracle::Value>) -> Vec<String> {
    let line = |(((start, end), key), value): ((oracle::Window, String), oracle::Value)| {
        let oracle::Value { count, sum, min, max } = value;
        let (sum, min, max) = (text(sum), text(min), text(max));
        format!("{start} | {end} | {key} | {count} | {sum} | {min} | {max}")
    };
    let mut lines: Vec<String> = of.into_iter().map(line).collect();
    lines.sort();
    lines
}

/// What `v$late` must hold: rows of fates that go to the side output.
fn refused(case: &Case, rows: &[(Row, i64)], answer: &Answer) -> Vec<String> {
    let aside = |fate: Fate| match fate {
        Fate::OnTime => false,
        Fate::Late => !case.drops_late,
        Fate::Expired => !case.drops_expired,
    };
    let line = |refusal: &oracle::Refusal| {
        let (row, (start, end)) = (&rows[refusal.row].0, refusal.window);
        let fate = if refusal.fate == Fate::Late { "late" } else { "expired" };
        let oracle::Refusal { pairs, late_by, .. } = refusal;
        let value = text(row.value);
        format!("{} | {} | {value} | {start} | {end} | {pairs} | {late_by} | {fate}", row.key, row.ts)
    };
    let mut lines: Vec<String> = answer.refused.iter().filter(|refusal| aside(refusal.fate)).map(line).collect();
    lines.sort();
    lines
}

/// Every counter of SHOW LATENESS that the oracle can tell.
fn counters(case: &Case, rows: &[(Row, i64)], answer: &Answer) -> Vec<String> {
    let (no_window, accepted, refused) = answer.rows();
    let pairs = |fate| answer.pairs.iter().flatten().filter(|(_, f)| *f == fate).count();
    let refused_pairs = |dropped: bool| {
        let drops = |fate| if fate == Fate::Late { case.drops_late } else { case.drops_expired };
        let refusals = answer.refused.iter().filter(|refusal| drops(refusal.fate) == dropped);
        refusals.map(|refusal| refusal.pairs as usize).sum::<usize>()
    };
    let late = if case.question.takes_late { pairs(Fate::Late) } else { 0 };
    let counts = [
        ("rows read", rows.len()),
        ("rows rejected", 0),
        ("rows filtered", 0),
        ("rows in no window", no_window),
        ("rows accepted", accepted),
        ("rows refused", refused),
        ("pairs on time", pairs(Fate::OnTime)),
        ("pairs late", late),
        ("pairs side output", refused_pairs(false)),
        ("pairs dropped", refused_pairs(true)),
        ("pairs queued", 0),
    ];
    let mut lines: Vec<String> = counts.iter().map(|(what, n)| format!("v | {what} | {n}")).collect();
    lines.sort();
    lines
}

async fn check(case: Case) -> Result<(), TestCaseError> {
    let rows = case.rows();
    let answer = oracle::answer(case.question, &rows);
    let engine = answered(&case).await;
    let (start, end) = (us("window_start"), us("window_end"));

    let latest = lines(&engine, &format!("SELECT {start}, {end}, k, n, total, low, high FROM v")).await;
    prop_assert_eq!(latest, values(answer.latest()));

    let initial = format!(
        "SELECT {start}, {end}, k, n, total, low, high FROM (SELECT *, row_number() OVER \
         (PARTITION BY window_start, window_end, k ORDER BY _version DESC) AS nth FROM v$history \
         WHERE _reason = 'initial' AND NOT _deleted) WHERE nth = 1"
    );
    prop_assert_eq!(lines(&engine, &initial).await, values(answer.initial()));

    let late = format!(
        "SELECT k, {}, v, {}, {}, _pairs, _late_by_us, _reason FROM v$late",
        us("ts"),
        us("_window_start"),
        us("_window_end")
    );
    prop_assert_eq!(lines(&engine, &late).await, refused(&case, &rows, &answer));

    let counted = lines(&engine, "SHOW LATENESS").await;
    let counted: Vec<String> = counted.into_iter().filter(|line| !line.contains("rows behind W")).collect();
    prop_assert_eq!(counted, counters(&case, &rows, &answer));
    engine.shutdown().await.expect("no job has failed");
    Ok(())
}

/// Rows of a few keys whose times wander forward with steps back, in one to four splits of different pace.
fn splits() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let row = (0..3_u8, -25..35_i64, prop::option::weighted(0.8, -9..9_i64));
    let split = (prop::collection::vec(row, 0..40), 2..12_i64);
    prop::collection::vec(split, 1..5).prop_map(|splits| {
        let row = |pace: i64, n: usize, (key, jitter, value): (u8, i64, Option<i64>)| Row {
            key: oracle::key(key),
            ts: (n as i64 * pace + jitter) * SECOND,
            value,
        };
        let rows = |(rows, pace): (Vec<(u8, i64, Option<i64>)>, i64)| {
            rows.into_iter().enumerate().map(|(n, fields)| row(pace, n, fields)).collect()
        };
        splits.into_iter().map(rows).collect()
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    let seconds = |range: std::ops::Range<i64>| range.prop_map(|n| n * SECOND);
    prop_oneof![
        (seconds(1..25), seconds(0..9)).prop_map(|(size, offset)| Kind::Tumble { size, offset }),
        (seconds(1..12), seconds(1..25), seconds(0..9)).prop_map(|(slide, size, offset)| Kind::Hop {
            slide,
            size,
            offset
        }),
        (seconds(1..6), 1..6_i64, seconds(0..9)).prop_map(|(step, steps, offset)| Kind::Cumulate {
            step,
            size: step * steps,
            offset
        }),
        seconds(1..25).prop_map(|gap| Kind::Session { gap }),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let emission = prop_oneof![Just(Emission::OnClose), Just(Emission::Changes), Just(Emission::OnExpiry)];
    let lateness = prop_oneof![Just(0), (1..60_i64).prop_map(|n| n * SECOND)];
    let policy = (lateness, any::<bool>(), emission, any::<bool>(), any::<bool>());
    let engine = (prop_oneof![Just(1), Just(7), Just(8192)], prop_oneof![Just(1), Just(2), Just(4)], 0..4_usize);
    (kind(), splits(), 0..30_i64, policy, engine).prop_map(
        |(kind, splits, delay, (lateness, takes_late, emission, drops_late, drops_expired), engine)| Case {
            question: Question {
                kind,
                lateness,
                // Without a lateness no row is late.
                takes_late: takes_late || lateness == 0,
                emission,
                // Where epochs end changes no fate, initial or latest value.
                epoch_rows: 10,
            },
            splits,
            delay: delay * SECOND,
            drops_late,
            drops_expired,
            batch_rows: engine.0,
            workers: engine.1,
            epochs: engine.2,
        },
    )
}

fn cases() -> u32 {
    std::env::var("HIGHWATER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn the_engine_agrees_with_the_oracle(case in case()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(check(case))?;
    }
}

/// The three days of departures in `sql/data`: everything a reader finds, for one way of running.
async fn departures(batch_rows: usize, workers: usize) -> Vec<String> {
    let engine = Engine::builder()
        .in_memory()
        .workers(workers)
        .batch_rows(batch_rows)
        .epochs(Epochs::Manual)
        .clock(Arc::new(ManualClock::new(1_700_000_000 * SECOND)))
        .build()
        .await
        .expect("in memory");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/data/flights-2013-01-01_03.jsonl");
    let statements = format!(
        "CREATE SOURCE f (scheduled TIMESTAMP, origin VARCHAR, status VARCHAR, delay_min DOUBLE, \
         WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes') \
         WITH (connector = 'file', path = '{path}', format = 'json'); \
         CREATE MATERIALIZED VIEW v AS SELECT window_start, origin, count(*) AS n, sum(delay_min) AS d \
         FROM TUMBLE(TABLE f, DESCRIPTOR(scheduled), INTERVAL '1 hour') WHERE status = 'departed' \
         GROUP BY window_start, window_end, origin \
         ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE ON EXPIRED SIDE OUTPUT"
    );
    engine.execute(&statements).await.expect("a view");
    engine.wait_for_bounded().await.expect("the job does not fail");
    let mut all = Vec::new();
    for query in [
        "SELECT window_start, origin, n, d, _event_count FROM v",
        "SELECT scheduled, origin, status, delay_min, _window_start, _pairs, _late_by_us, _reason, _offset FROM v$late",
        "SELECT window_start, window_end, state, on_time, late, refused_late, refused_expired, w_at_close FROM v$windows",
        "SELECT window_start, origin, n, d FROM v$history WHERE _reason = 'initial'",
        "SHOW LATENESS",
    ] {
        all.extend(lines(&engine, query).await);
    }
    engine.shutdown().await.expect("no job has failed");
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn three_days_of_departures_are_the_same_every_way() {
    let expected = departures(8192, 1).await;
    assert!(expected.contains(&"v | rows refused | 58".to_owned()), "{expected:?}");
    for batch_rows in [1, 7, 8192] {
        for workers in [1, 2, 4] {
            let got = departures(batch_rows, workers).await;
            assert_eq!(got, expected, "batch_rows={batch_rows} workers={workers}");
        }
    }
}
