//! How fast a month of results is read: per-minute windows by 100 keys (`DAYS=30`: 4.3 million versions), one in twenty
//! corrected later, each hour an epoch.
//!
//! `DAYS=30 cargo bench --profile dev --bench store`; 3 days without. Prints the time to write and to compact, then, once
//! cold and 20 times warm (median and worst): the latest, final, as-of and history of one window, and a sum over all
//! that is latest. The store is a folder under the system's temporary one, removed at the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::prelude::{SessionConfig, SessionContext};
use highwater::clock::{Clock, ManualClock};
use highwater::results::schema::instant;
use highwater::results::{Epoch, IdentityColumn, Read, SharedWriter, ViewTable, ViewWriter};
use highwater::storage::Storage;

const MINUTE_US: i64 = 60_000_000;
const START_US: i64 = 1_704_067_200_000_000; // 2024-01-01T00:00:00Z
const KEYS: i64 = 100;
const WARM_RUNS: usize = 20;

fn view() -> ViewTable {
    let key = Arc::new(Field::new("k", DataType::Utf8, true));
    ViewTable {
        name: "v".into(),
        select: Arc::new(Schema::new(vec![
            Field::new("window_start", instant(), true),
            key.as_ref().clone(),
            Field::new("n", DataType::Int64, true),
            Field::new("total", DataType::Float64, true),
        ])),
        keys: vec![IdentityColumn { field: key, selected: true }],
        window_columns: vec![(0, "_window_start")],
        source: Arc::new(Schema::new(vec![Field::new("ts", instant(), true)])),
    }
}

/// Versions of (minute, key, number).
fn versions(rows: &[(i64, i64, i64)]) -> RecordBatch {
    let at = |offset: i64| -> ArrayRef {
        let times = rows.iter().map(|row| START_US + (row.0 + offset) * MINUTE_US);
        Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
    };
    let number = |value: &dyn Fn(&(i64, i64, i64)) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
    };
    let reasons = rows.iter().map(|row| if row.2 == 1 { "initial" } else { "late_data" });
    RecordBatch::try_from_iter([
        ("window_start", at(0)),
        ("k", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| format!("key-{:03}", row.1)))) as ArrayRef),
        ("n", number(&|row| row.1 + row.2)),
        ("total", Arc::new(arrow::array::Float64Array::from_iter_values(rows.iter().map(|row| row.0 as f64 * 0.5)))),
        ("_window_start", at(0)),
        ("_window_end", at(1)),
        ("_version", number(&|row| row.2)),
        ("_event_count", number(&|row| row.1 + row.2)),
        ("_deleted", Arc::new(BooleanArray::from(vec![false; rows.len()]))),
        ("_reason", Arc::new(StringArray::from_iter_values(reasons))),
    ])
    .expect("columns of one length")
}

async fn write(writer: &SharedWriter, clock: &ManualClock, hours: i64) {
    for hour in 0..hours {
        clock.advance_us(60 * MINUTE_US);
        let minutes = hour * 60..(hour + 1) * 60;
        let mut rows: Vec<_> = minutes.clone().flat_map(|m| (0..KEYS).map(move |k| (m, k, 1))).collect();
        // Every twentieth result of the hour before is corrected.
        let before = (minutes.start - 60).max(0)..minutes.start;
        rows.extend(
            before.flat_map(|m| (0..KEYS).map(move |k| (m, k, 2))).filter(|(m, k, _)| (m * KEYS + k) % 20 == 0),
        );
        let mut writer = writer.lock().await.expect("the only writer");
        let next = writer.next_beside_job();
        writer.commit(Epoch { versions: vec![versions(&rows)], ..next }).await.expect("a local folder");
    }
}

async fn time_query(context: &SessionContext, sql: &str) -> (Duration, usize) {
    let began = Instant::now();
    let batches = context.sql(sql).await.expect("a query").collect().await.expect("rows");
    (began.elapsed(), batches.iter().map(RecordBatch::num_rows).sum())
}

async fn measure(writer: &SharedWriter, what: &str, read: Read, sql: &str) {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    let mut times = Vec::new();
    let mut rows = 0;
    for _ in 0..=WARM_RUNS {
        // As the engine does: a new provider for each statement.
        let _ = context.deregister_table("v");
        context.register_table("v", writer.reader().provider(read).expect("an instant of the past")).expect("a name");
        let (time, found) = time_query(&context, sql).await;
        times.push(time);
        rows = found;
    }
    let cold = times.remove(0);
    times.sort();
    let (median, worst) = (times[WARM_RUNS / 2], times[WARM_RUNS - 1]);
    println!("{what:<28} {rows:>6} rows   cold {cold:>9.1?}   warm {median:>9.1?}   worst {worst:>9.1?}");
}

async fn measure_all(writer: &SharedWriter, clock: &ManualClock, days: i64) {
    let middle = START_US + days * 1440 / 2 * MINUTE_US + 10 * 60 * MINUTE_US;
    let one = format!("SELECT * FROM v WHERE window_start = to_timestamp_micros({middle})");
    let then = clock.now_us() - days * 1440 / 4 * MINUTE_US;
    measure(writer, "latest of one window", Read::Latest, &one).await;
    measure(writer, "final of one window", Read::Final, &one).await;
    measure(writer, "as-of of one window", Read::AsOf(then), &one).await;
    measure(writer, "history of one window", Read::History, &one).await;
    measure(writer, "sum over all that is latest", Read::Latest, SUM).await;
    check_sum(writer, days).await;
}

const SUM: &str = "SELECT count(*) AS c, sum(n) AS n FROM v";

/// A figure of a wrong answer is worth nothing: each result is its key and 1, one in twenty its key and 2 (the last hour is not
/// corrected).
async fn check_sum(writer: &SharedWriter, days: i64) {
    let context = SessionContext::new();
    context.register_table("v", writer.reader().provider(Read::Latest).expect("now")).expect("a name");
    let rows = context.sql(SUM).await.expect("a query").collect().await.expect("rows");
    let number = |column: usize| rows[0].column(column).as_primitive::<Int64Type>().value(0);
    let results = days * 1440 * KEYS;
    let corrected = (results - 60 * KEYS) / 20;
    let keys = days * 1440 * KEYS * (KEYS - 1) / 2;
    assert_eq!((number(0), number(1)), (results, keys + results + corrected));
}

fn main() {
    let days: i64 = std::env::var("DAYS").ok().and_then(|days| days.parse().ok()).unwrap_or(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage = Storage::open(&folder.path().display().to_string()).expect("a folder");
        let clock = Arc::new(ManualClock::new(START_US + 60 * MINUTE_US));
        let writer = ViewWriter::create(storage, view(), clock.clone()).await.expect("a new view");
        let writer = SharedWriter::from(writer);
        let began = Instant::now();
        write(&writer, &clock, days * 24).await;
        println!("{} days written in {:.1?}", days, began.elapsed());
        measure_all(&writer, &clock, days).await;
        let began = Instant::now();
        let report = writer.optimize().await.expect("a local folder");
        println!("compacted in {:.1?}: {} files are {} now", began.elapsed(), report.replaced, report.written);
        measure_all(&writer, &clock, days).await;
    });
}
