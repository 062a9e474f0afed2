//! The store as a whole: what is committed is what is read, under every kind of read, and whatever goes wrong between.
//!
//! What these tests catch: a version lost, doubled, hidden or shown wrongly; an epoch half seen; a second writer that
//! gets through; a lost acknowledgement taken for a failure; an epoch in no Delta commit or in two. What they cannot:
//! wrong numbers in the versions handed over, which are the publisher's.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array,
};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use object_store::path::Path;

use super::schema::instant;
use super::*;
use crate::clock::{Clock, ManualClock};
use crate::error::ErrorKind;
use crate::storage::Storage;

pub(super) const HOUR_US: i64 = 3_600_000_000;
pub(super) const NOON_US: i64 = 19_737 * 24 * HOUR_US + 12 * HOUR_US; // 2024-01-15T12:00:00Z

/// A version: hour of the window, key, number, revenue, orders, reason.
pub(super) type Row = (i64, Option<&'static str>, i64, f64, i64, &'static str);

pub(super) fn view() -> ViewTable {
    let key = Arc::new(Field::new("k", DataType::Utf8, true));
    ViewTable {
        name: "v".into(),
        select: Arc::new(Schema::new(vec![
            key.as_ref().clone(),
            Field::new("revenue", DataType::Float64, true),
            Field::new("orders", DataType::Int64, false),
        ])),
        keys: vec![IdentityColumn { field: key, selected: true }],
        window_columns: vec![],
        source: Arc::new(Schema::new(vec![Field::new("ts", instant(), true)])),
    }
}

fn at(times: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
}

pub(super) fn versions(rows: &[Row]) -> RecordBatch {
    // How many versions of its identity the epoch holds before it.
    let nth = |row: &Row| match row.2 {
        1 => 0,
        _ => rows.iter().filter(|r| (r.0, r.1) == (row.0, row.1) && r.2 < row.2).count() as u8,
    };
    RecordBatch::try_from_iter([
        ("k", Arc::new(rows.iter().map(|r| r.1).collect::<StringArray>()) as ArrayRef),
        ("revenue", Arc::new(rows.iter().map(|r| Some(r.3)).collect::<Float64Array>())),
        ("orders", Arc::new(rows.iter().map(|r| Some(r.4)).collect::<Int64Array>())),
        ("_window_start", at(rows.iter().map(|r| NOON_US + r.0 * HOUR_US))),
        ("_window_end", at(rows.iter().map(|r| NOON_US + (r.0 + 1) * HOUR_US))),
        ("_version", Arc::new(rows.iter().map(|r| Some(r.2)).collect::<Int64Array>())),
        ("_event_count", Arc::new(rows.iter().map(|r| Some(r.4)).collect::<Int64Array>())),
        ("_deleted", Arc::new(rows.iter().map(|r| Some(r.5 == "gone")).collect::<BooleanArray>())),
        ("_is_final", Arc::new(rows.iter().map(|r| Some(r.5 == "finalization")).collect::<BooleanArray>())),
        ("_reason", Arc::new(rows.iter().map(|r| Some(r.5)).collect::<StringArray>())),
        ("_nth", Arc::new(rows.iter().map(|r| Some(nth(r))).collect::<UInt8Array>())),
    ])
    .unwrap()
}

pub(super) fn epoch(number: u64, rows: &[Row]) -> Epoch {
    Epoch { number, versions: vec![versions(rows)], ..Epoch::default() }
}

pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOON_US + 10 * HOUR_US))
}

pub(super) async fn query(reader: &ViewReader, read: Read, sql: &str) -> String {
    let context = SessionContext::new();
    context.register_table("t", reader.provider(read).unwrap()).unwrap();
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Rows of a read as `hour/key/version/revenue`, sorted.
pub(super) async fn rows_of(reader: &ViewReader, read: Read) -> Vec<String> {
    let context = SessionContext::new();
    context.register_table("t", reader.provider(read).unwrap()).unwrap();
    let sql = format!(
        "SELECT cast((cast(_window_start AS bigint) - {NOON_US}) / {HOUR_US} AS varchar) || '/' || coalesce(k, '∅') || '/' \
         || cast(_version AS varchar) || '/' || cast(cast(revenue AS bigint) AS varchar) AS r FROM t ORDER BY r"
    );
    let batches = context.sql(&sql).await.unwrap().collect().await.unwrap();
    let text = |b: &RecordBatch| arrow::compute::cast(b.column(0), &DataType::Utf8).unwrap();
    batches
        .iter()
        .map(text)
        .flat_map(|a| {
            a.as_any().downcast_ref::<StringArray>().unwrap().iter().map(|r| r.unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

pub(super) async fn committed(rows: &[&[Row]]) -> (ViewWriter, Arc<ManualClock>) {
    let clock = clock();
    let mut writer = ViewWriter::create(Storage::memory(), view(), clock.clone()).await.unwrap();
    for rows in rows {
        clock.advance_us(HOUR_US);
        let number = writer.next_epoch();
        writer.commit(epoch(number, rows)).await.unwrap();
    }
    (writer, clock)
}

#[tokio::test]
async fn an_empty_view_reads_empty_in_every_way() {
    let (writer, _) = committed(&[]).await;
    let reader = writer.reader();
    for read in [Read::Latest, Read::Final, Read::AsOf(NOON_US), Read::All] {
        assert!(rows_of(&reader, read).await.is_empty());
    }
    for read in [Read::History, Read::Windows, Read::Late] {
        assert!(query(&reader, read, "SELECT count(*) AS n FROM t").await.contains("| 0 |"));
    }
}

#[tokio::test]
async fn the_latest_version_of_each_identity_shows_and_deleted_ones_do_not() {
    let (writer, _) = committed(&[
        &[(0, Some("a"), 1, 10.0, 1, "initial"), (0, Some("b"), 1, 20.0, 2, "initial")],
        &[(1, Some("a"), 1, 30.0, 3, "initial"), (0, Some("a"), 2, 11.0, 2, "late_data")],
        &[(0, Some("b"), 2, 20.0, 2, "gone")],
    ])
    .await;
    assert_eq!(rows_of(&writer.reader(), Read::Latest).await, ["0/a/2/11", "1/a/1/30"]);
    assert_eq!(rows_of(&writer.reader(), Read::All).await.len(), 5);
}

#[tokio::test]
async fn three_versions_of_one_epoch_take_stamps_in_order_and_the_last_shows() {
    let rows = [
        (0, Some("a"), 1, 1.0, 1, "early"),
        (0, Some("a"), 2, 2.0, 2, "initial"),
        (0, Some("a"), 3, 3.0, 3, "late_data"),
    ];
    let (writer, _) = committed(&[&rows]).await;
    let reader = writer.reader();
    assert_eq!(rows_of(&reader, Read::Latest).await, ["0/a/3/3"]);
    let stamps = query(&reader, Read::All, "SELECT cast(_computed_at AS bigint) - (SELECT min(cast(_computed_at AS bigint)) FROM t) AS d FROM t ORDER BY _version").await;
    assert_eq!(stamps, "+---+\n| d |\n+---+\n| 0 |\n| 1 |\n| 2 |\n+---+");
}

#[tokio::test]
async fn c71_null_empty_and_the_word_null_are_three_keys() {
    let keys = [None, Some(""), Some("NULL")];
    let first: Vec<Row> = keys.iter().map(|k| (0, *k, 1, 1.0, 1, "initial")).collect();
    let (writer, _) = committed(&[&first, &[(0, None, 2, 2.0, 2, "late_data")]]).await;
    assert_eq!(rows_of(&writer.reader(), Read::Latest).await, ["0//1/1", "0/NULL/1/1", "0/∅/2/2"]);
}

#[tokio::test]
async fn c79_keys_are_bytes_and_come_back_as_they_went() {
    let first: Vec<Row> =
        ["caf\u{e9}", "cafe\u{301}", "🙂", "a\nb"].iter().map(|k| (0, Some(*k), 1, 1.0, 1, "initial")).collect();
    let (writer, _) = committed(&[&first, &[(0, Some("cafe\u{301}"), 2, 2.0, 2, "late_data")]]).await;
    let rows = rows_of(&writer.reader(), Read::Latest).await;
    assert_eq!(rows, ["0/a\nb/1/1", "0/cafe\u{301}/2/2", "0/caf\u{e9}/1/1", "0/🙂/1/1"]);
}

#[tokio::test]
async fn final_wins_over_what_came_after_it_and_is_missing_where_there_is_none() {
    let (writer, _) = committed(&[
        &[(0, Some("a"), 1, 10.0, 1, "initial"), (0, Some("b"), 1, 20.0, 2, "initial")],
        &[(0, Some("a"), 2, 12.0, 2, "finalization"), (3, Some("c"), 1, 7.0, 1, "finalization")],
        &[(0, Some("a"), 3, 13.0, 3, "reprocessing"), (3, Some("c"), 2, 8.0, 1, "reprocessing")],
    ])
    .await;
    assert_eq!(rows_of(&writer.reader(), Read::Final).await, ["0/a/2/12", "0/b/1/20", "3/c/1/7"]);
    assert_eq!(rows_of(&writer.reader(), Read::Latest).await, ["0/a/3/13", "0/b/1/20", "3/c/2/8"]);
}

#[tokio::test]
async fn the_history_example() {
    let (writer, _) = committed(&[
        &[(0, Some("a"), 1, 50_000.0, 500, "initial")],
        &[(0, Some("a"), 2, 52_500.0, 525, "late_data"), (1, Some("a"), 1, 1.0, 1, "initial")],
    ])
    .await;
    let table = query(
        &writer.reader(),
        Read::History,
        "SELECT _version AS v, _reason, revenue_change, orders_change['diff'] AS d, orders_change['pct_change'] AS p FROM t",
    )
    .await;
    let expected = "\
+---+-----------+----------------------------------------------------------------+----+-----+
| v | _reason   | revenue_change                                                 | d  | p   |
+---+-----------+----------------------------------------------------------------+----+-----+
| 1 | initial   | {old: , new: 50000.0, diff: , pct_change: }                    |    |     |
| 2 | late_data | {old: 50000.0, new: 52500.0, diff: 2500.0, pct_change: 5.0} | 25 | 5.0 |
| 1 | initial   | {old: , new: 1.0, diff: , pct_change: }                        |    |     |
+---+-----------+----------------------------------------------------------------+----+-----+";
    let squeeze = |s: &str| s.split_whitespace().filter(|w| !w.starts_with('+')).collect::<Vec<_>>().join(" ");
    assert_eq!(squeeze(&table), squeeze(expected));
}

#[tokio::test]
async fn history_counts_a_deleted_version_as_having_no_values() {
    let (writer, _) = committed(&[
        &[(0, Some("a"), 1, 10.0, 1, "initial")],
        &[(0, Some("a"), 2, 10.0, 1, "gone")],
        &[(0, Some("a"), 3, 12.0, 2, "late_data")],
    ])
    .await;
    let table = query(
        &writer.reader(),
        Read::History,
        "SELECT revenue_change['old'] AS o, revenue_change['new'] AS n FROM t WHERE _window_start IS NOT NULL",
    )
    .await;
    let cells: Vec<_> = table.lines().skip(3).map(|l| l.replace(' ', "")).collect();
    assert_eq!(cells[..3], ["||10.0|", "|10.0||", "||12.0|"]);
}

#[tokio::test]
async fn c113_as_of_is_inclusive_refuses_the_future_and_is_empty_before_the_first() {
    let clock = clock();
    let mut writer = ViewWriter::create(Storage::memory(), view(), clock.clone()).await.unwrap();
    let (ten, eleven) = (NOON_US + 22 * HOUR_US, NOON_US + 23 * HOUR_US);
    clock.set_us(ten);
    assert_eq!(writer.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap().stamp_us, ten);
    clock.set_us(eleven);
    writer.commit(epoch(2, &[(0, Some("a"), 2, 2.0, 2, "late_data")])).await.unwrap();
    clock.set_us(eleven + 5 * HOUR_US);
    let reader = writer.reader();
    let none: [&str; 0] = [];
    assert_eq!(rows_of(&reader, Read::AsOf(ten - 1)).await, none);
    assert_eq!(rows_of(&reader, Read::AsOf(ten)).await, ["0/a/1/1"]);
    assert_eq!(rows_of(&reader, Read::AsOf(eleven - 1)).await, ["0/a/1/1"]);
    assert_eq!(rows_of(&reader, Read::AsOf(eleven)).await, ["0/a/2/2"]);
    assert_eq!(rows_of(&reader, Read::AsOf(eleven + 4 * HOUR_US)).await, ["0/a/2/2"]);
    let e = reader.provider(Read::AsOf(eleven + 6 * HOUR_US)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Invalid);
    assert!(e.message().contains("now=`2024-01-16T16:00:00Z`"), "{e}");
}

#[tokio::test]
async fn c115_a_clock_set_back_changes_no_order_even_after_a_restart() {
    let storage = Storage::memory();
    let clock = clock();
    let noon = clock.now_us();
    let mut writer = ViewWriter::create(storage.clone(), view(), clock.clone()).await.unwrap();
    let first = writer.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
    clock.set_us(noon - HOUR_US);
    let second = writer.commit(epoch(2, &[(0, Some("a"), 2, 2.0, 2, "late_data")])).await.unwrap();
    assert_eq!(second.stamp_us, first.stamp_us + 3);
    drop(writer);
    let mut writer = ViewWriter::open(storage, view(), clock.clone()).await.unwrap();
    let third = writer.commit(epoch(writer.next_epoch(), &[(0, Some("a"), 3, 3.0, 3, "late_data")])).await.unwrap();
    assert!(third.stamp_us > second.stamp_us);
    assert_eq!(rows_of(&writer.reader(), Read::Latest).await, ["0/a/3/3"]);
    assert_eq!(rows_of(&writer.reader(), Read::AsOf(second.stamp_us)).await, ["0/a/2/2"]);
}

#[tokio::test]
async fn an_instant_once_read_at_gets_no_later_version() {
    let (mut writer, clock) = committed(&[&[(0, Some("a"), 1, 1.0, 1, "initial")]]).await;
    let reader = writer.reader();
    let t = clock.now_us();
    assert_eq!(rows_of(&reader, Read::AsOf(t)).await, ["0/a/1/1"]);
    clock.set_us(t - HOUR_US);
    let next = writer.commit(epoch(2, &[(0, Some("a"), 2, 2.0, 2, "late_data")])).await.unwrap();
    assert!(next.stamp_us > t);
    clock.set_us(t);
    assert_eq!(rows_of(&reader, Read::AsOf(t)).await, ["0/a/1/1"]);
}

#[tokio::test]
async fn c102_of_two_writers_one_is_fenced_and_its_rows_are_not_visible() {
    let storage = Storage::memory();
    let mut old = ViewWriter::create(storage.clone(), view(), clock()).await.unwrap();
    old.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
    let mut new = ViewWriter::open(storage.clone(), view(), clock()).await.unwrap();
    let e = old.commit(epoch(2, &[(0, Some("a"), 2, 2.0, 2, "late_data")])).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Fenced);
    assert_eq!(old.commit(epoch(2, &[])).await.unwrap_err().kind(), ErrorKind::Fenced);
    new.commit(epoch(new.next_epoch(), &[(0, Some("a"), 2, 5.0, 2, "late_data")])).await.unwrap();
    let reader = ViewReader::open(storage.clone(), view(), clock()).await.unwrap();
    assert_eq!(rows_of(&reader, Read::Latest).await, ["0/a/2/5"]);
    // What the old one had decided it may still bring into the log; nothing is in twice.
    old.flush().await.unwrap();
    new.flush().await.unwrap();
    assert_eq!(logged_files(&storage, "results").await.len(), 2);
}

#[tokio::test]
async fn a_statement_publishes_beside_the_job_and_the_job_recovers_as_if_it_had_not() {
    let storage = Storage::memory();
    let writer = SharedWriter::from(ViewWriter::create(storage.clone(), view(), clock()).await.unwrap());
    let reader = writer.reader().clone();
    let job = serde_json::json!({ "offset": 7 });
    let first = Epoch { job: job.clone(), ..epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")]) };
    writer.lock().await.unwrap().commit(first).await.unwrap();
    {
        let mut writer = writer.lock().await.unwrap();
        let beside = writer.next_beside_job();
        let rows = versions(&[(0, Some("a"), 2, 2.0, 2, "finalization")]);
        writer.commit(Epoch { versions: vec![rows], ..beside }).await.unwrap();
    }
    assert_eq!(rows_of(&reader, Read::Latest).await, ["0/a/2/2"]);
    let (_, recovered) = writer.resume().await.unwrap();
    assert_eq!(recovered, job);
    // The same through a view whose job is of an earlier process.
    let stored = ViewReader::open(storage, view(), clock()).await.unwrap();
    let writer = SharedWriter::of(&stored);
    let mut writer = writer.lock().await.unwrap();
    let rows = versions(&[(0, Some("a"), 3, 3.0, 3, "rollback")]);
    let beside = writer.next_beside_job();
    writer.commit(Epoch { versions: vec![rows], ..beside }).await.unwrap();
    assert_eq!(writer.recovered().1, &job);
    assert_eq!(rows_of(&stored, Read::Latest).await, ["0/a/3/3"]);
}

#[tokio::test]
async fn a_statement_cut_short_leaves_a_writer_that_goes_on_unless_another_has_taken_over() {
    let storage = Storage::memory();
    let writer = SharedWriter::from(ViewWriter::create(storage.clone(), view(), clock()).await.unwrap());
    let mut subscription = writer.reader().subscribe(Since::Epoch(0)).unwrap();
    let mut guard = writer.lock().await.unwrap();
    guard.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
    guard.stop(); // As if the statement had been dropped before it learnt the outcome.
    drop(guard);
    let mut guard = writer.lock().await.unwrap();
    let next = epoch(guard.next_epoch(), &[(0, Some("a"), 2, 5.0, 1, "late_data")]);
    guard.commit(next).await.unwrap();
    drop(guard);
    assert_eq!(rows_of(writer.reader(), Read::All).await, ["0/a/1/1", "0/a/2/5"]);
    for n in [1, 3] {
        assert_eq!(subscription.next().await.unwrap().unwrap().0, n, "taking over is epoch 2, without rows");
    }

    writer.lock().await.unwrap().stop();
    ViewWriter::open(storage, view(), clock()).await.unwrap();
    assert_eq!(writer.lock().await.err().unwrap().kind(), ErrorKind::Fenced);
    writer.remove().await.unwrap();
    let gone = writer.lock().await.err().unwrap();
    assert_eq!((gone.kind(), gone.message()), (ErrorKind::Invalid, "no such view is stored: view=`v`"));
}

#[tokio::test]
async fn two_creators_of_one_view_are_one_creator_and_one_conflict() {
    let storage = Storage::memory();
    ViewWriter::create(storage.clone(), view(), clock()).await.unwrap();
    let e = ViewWriter::create(storage.clone(), view(), clock()).await.err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Conflict);
    let e = ViewWriter::open(storage, ViewTable { name: "w".into(), ..view() }, clock()).await.err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn another_definition_is_refused_and_says_what_differs() {
    let storage = Storage::memory();
    ViewWriter::create(storage.clone(), view(), clock()).await.unwrap();
    let mut other = view();
    other.select = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("revenue", DataType::Decimal128(20, 2), true),
        Field::new("orders", DataType::Int64, false),
    ]));
    let e = ViewWriter::open(storage, other, clock()).await.err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Invalid);
    assert!(e.message().contains("stored=`revenue Float64` now=`revenue Decimal128(20, 2)`"), "{e}");
}

/// Paths added by the Delta log of a table, with repeats, in log order.
/// The status of the window that starts `hour` hours after noon.
pub(super) fn status_row(hour: i64, state: &str, on_time: i64) -> RecordBatch {
    let flag = Arc::new(BooleanArray::from(vec![false])) as ArrayRef;
    let number = |n: i64| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
    let columns = [
        ("window_start", at([NOON_US + hour * HOUR_US].into_iter())),
        ("window_end", at([NOON_US + (hour + 1) * HOUR_US].into_iter())),
        ("state", Arc::new(StringArray::from(vec![state])) as ArrayRef),
        ("dirty", flag.clone()),
        ("newer_input", flag.clone()),
        ("needs_recompute", flag.clone()),
        ("incomplete", flag),
        ("on_time", number(on_time)),
        ("late", number(0)),
        ("refused_late", number(0)),
        ("refused_expired", number(1)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

pub(super) async fn logged_files(storage: &Storage, table: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for file in storage.list(&Path::from(format!("views/v/{table}/_delta_log")), None).await.unwrap() {
        let bytes = storage.get(&file.location).await.unwrap().unwrap();
        for line in bytes.split(|b| *b == b'\n') {
            let action: serde_json::Value = serde_json::from_slice(line).unwrap();
            paths.extend(action["add"]["path"].as_str().map(str::to_owned));
        }
    }
    paths
}

#[tokio::test]
async fn each_epoch_is_in_exactly_one_delta_commit_however_commits_are_batched() {
    let storage = Storage::memory();
    let clock = clock();
    let mut writer = ViewWriter::create(storage.clone(), view(), clock.clone()).await.unwrap();
    for n in 1..=150 {
        clock.advance_us(300_000);
        writer.commit(epoch(n, &[(n as i64, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
    }
    writer.close().await.unwrap();
    let files = logged_files(&storage, "results").await;
    let epochs: std::collections::BTreeSet<_> =
        files.iter().map(|f| f.rsplit('/').next().unwrap()[..20].to_owned()).collect();
    assert_eq!((files.len(), epochs.len()), (150, 150));
    let commits = storage.list(&Path::from("views/v/results/_delta_log"), None).await.unwrap().len();
    assert!((38..=60).contains(&commits), "about one per 4 epochs: {commits}");
    let reopened = ViewReader::open(storage, view(), clock).await.unwrap();
    assert_eq!(rows_of(&reopened, Read::Latest).await.len(), 150);
}

#[tokio::test]
async fn decided_epochs_are_completed_in_the_log_by_the_next_writer() {
    let storage = Storage::memory();
    let clock = clock();
    let mut writer = ViewWriter::create(storage.clone(), view(), clock.clone()).await.unwrap();
    for n in 1..=3 {
        let job = serde_json::json!({"offset": n});
        writer.commit(Epoch { job, ..epoch(n, &[(n as i64, Some("a"), 1, 1.0, 1, "initial")]) }).await.unwrap();
    }
    assert!(logged_files(&storage, "results").await.is_empty());
    drop(writer);
    let writer = ViewWriter::open(storage.clone(), view(), clock).await.unwrap();
    assert_eq!(logged_files(&storage, "results").await.len(), 3);
    assert_eq!(writer.recovered().1, &serde_json::json!({"offset": 3}));
    assert_eq!(writer.next_epoch(), 5, "taking over was epoch 4");
}

#[tokio::test]
async fn side_tables_are_read_and_logged() {
    let storage = Storage::memory();
    let mut writer = ViewWriter::create(storage.clone(), view(), clock()).await.unwrap();
    let text = |t: &str| Arc::new(StringArray::from(vec![t])) as ArrayRef;
    let number = |n: i64| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
    let late = RecordBatch::try_from_iter([
        ("ts", at([NOON_US].into_iter())),
        ("_window_start", at([NOON_US].into_iter())),
        ("_window_end", at([NOON_US + HOUR_US].into_iter())),
        ("_pairs", number(1)),
        ("_late_by_us", number(5)),
        ("_fate", text("side_output")),
        ("_reason", text("expired")),
        ("_split", text("f")),
        ("_offset", number(7)),
        ("_seq", number(7)),
        ("_seen_at", at([NOON_US].into_iter())),
    ]);
    let reject = RecordBatch::try_from_iter([
        ("_split", text("f")),
        ("_offset", number(8)),
        ("reason", text("malformed")),
        ("message", text("not JSON")),
        ("place", text("f:9")),
        ("raw", text("{")),
        ("seen_at", at([NOON_US].into_iter())),
    ]);
    let rejects = BTreeMap::from([("orders".to_owned(), vec![reject.unwrap()])]);
    let windows = vec![status_row(0, "open", 1)];
    writer.commit(Epoch { number: 1, late: vec![late.unwrap()], rejects, windows, ..Epoch::default() }).await.unwrap();
    writer.commit(Epoch { number: 2, windows: vec![status_row(0, "closed", 2)], ..Epoch::default() }).await.unwrap();
    writer.flush().await.unwrap();
    let reader = writer.reader();
    assert!(query(&reader, Read::Late, "SELECT _offset AS o, _reason FROM t").await.contains("| 7 | expired |"));
    let windows = query(&reader, Read::Windows, "SELECT state, on_time FROM t").await;
    assert!(windows.contains("| closed | 2       |") && !windows.contains("open"), "{windows}");
    let context = SessionContext::new();
    context.register_table("r", reader.rejects("orders")).unwrap();
    assert_eq!(context.table("r").await.unwrap().count().await.unwrap(), 1);
    for (name, views) in
        [("none", vec![]), ("one", vec![reader.clone()]), ("two", vec![reader.clone(), reader.clone()])]
    {
        context.register_table(name, rejects_of("orders", &views).unwrap()).unwrap();
        let found = context.table(name).await.unwrap().count().await.unwrap();
        assert_eq!(found, views.len().min(1), "each rejected row once, however many views met it");
    }
    for (table, files) in [("late", 1), ("windows", 2), ("rejects/orders", 1)] {
        assert_eq!(logged_files(&storage, table).await.len(), files, "{table}");
    }
}

#[tokio::test]
async fn history_compares_in_order_even_where_the_query_needs_none() {
    let first = (43, None, 1, 10.0, 1, "initial");
    let then = [(43, None, 2, 20.0, 1, "late_data"), (36, None, 1, 21.0, 1, "initial")];
    let (writer, _) = committed(&[&[first], &then]).await;
    let sql = "SELECT count(*) FILTER (WHERE revenue_change['old'] IS NOT NULL) AS n FROM t";
    assert!(query(&writer.reader(), Read::History, sql).await.contains("| 1 |"));
}

#[tokio::test]
async fn a_folder_holds_what_memory_holds() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Storage::open(dir.path().join("data").to_str().unwrap()).unwrap();
    let mut writer = ViewWriter::create(open(), view(), clock()).await.unwrap();
    writer.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial"), (20, None, 1, 2.0, 1, "initial")])).await.unwrap();
    writer.close().await.unwrap();
    let reader = ViewReader::open(open(), view(), clock()).await.unwrap();
    assert_eq!(rows_of(&reader, Read::Latest).await, ["0/a/1/1", "20/∅/1/2"]);
    assert!(dir.path().join("data/views/v/results/_window_date=2024-01-16").is_dir());
    let writer = ViewWriter::open(open(), view(), clock()).await.unwrap();
    assert_eq!(writer.next_epoch(), 3);
}

#[tokio::test]
async fn a_read_of_one_window_opens_only_the_files_that_may_hold_it() {
    let rows: Vec<Vec<Row>> = (0..20).map(|h| vec![(h * 24, Some("a"), 1, 1.0, 1, "initial")]).collect();
    let rows: Vec<&[Row]> = rows.iter().map(Vec::as_slice).collect();
    let (writer, _) = committed(&rows).await;
    let context = SessionContext::new();
    context.register_table("t", writer.reader().provider(Read::Latest).unwrap()).unwrap();
    let sql = "SELECT * FROM t WHERE _window_start = timestamp '2024-01-20T12:00:00Z'";
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    assert_eq!(text.matches(".parquet").count(), 1, "{text}");
    assert!(!text.contains("ResolveExec"), "{text}");
    let rows = datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}

/// What the job of the fault tests publishes in step `step`, one epoch each: a new window, and a correction.
pub(super) fn step_rows(step: i64) -> Vec<Row> {
    let mut rows = vec![(step, Some("a"), 1, step as f64, 1, "initial")];
    if step > 1 {
        rows.push((step - 1, Some("a"), 2, 100.0 + step as f64, 2, "late_data"));
    }
    rows
}

/// A job that publishes its steps whatever happens: after an error it opens the view again and goes on where the store
/// says it was. Faults happen once, so it gets there.
async fn run_job(storage: &Storage, steps: i64) {
    let clock = clock();
    let mut reopened = 0;
    'again: loop {
        reopened += 1;
        assert!(reopened < 10, "it never gets through");
        let Ok(writer) = ViewWriter::open_or_create(storage.clone(), view(), clock.clone()).await else { continue };
        let mut writer = writer.with_commit_interval(std::time::Duration::from_millis(1500));
        let done = writer.recovered().1["step"].as_i64().unwrap_or(0);
        for step in done + 1..=steps {
            clock.advance_us(1_000_000);
            let job = serde_json::json!({ "step": step });
            let next = Epoch { job, ..epoch(writer.next_epoch(), &step_rows(step)) };
            if writer.commit(next).await.is_err() {
                continue 'again;
            }
        }
        if writer.close().await.is_ok() {
            return;
        }
    }
}

#[tokio::test]
async fn c100_every_store_call_fails_once_in_turn_and_the_result_is_the_same() {
    use crate::testing::faulty::{Fault, FaultyStore};
    const STEPS: i64 = 5;
    let expected: Vec<String> = {
        let storage = Storage::memory();
        run_job(&storage, STEPS).await;
        rows_of(&ViewReader::open(storage, view(), clock()).await.unwrap(), Read::All).await
    };
    assert_eq!(expected.len(), 9);
    for fault in [Fault::Refused, Fault::AnswerLost] {
        let run = |at: u64| {
            let expected = &expected;
            async move {
                let memory: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
                let faulty = Arc::new(FaultyStore::new(Arc::clone(&memory), at, fault));
                run_job(&Storage::with_store(faulty.clone(), "faulty"), STEPS).await;
                let storage = Storage::with_store(memory, "memory");
                let reader = ViewReader::open(storage.clone(), view(), clock()).await.unwrap();
                assert_eq!(&rows_of(&reader, Read::All).await, expected, "{fault:?} at call {at}");
                let logged = logged_files(&storage, "results").await;
                let unique: std::collections::BTreeSet<_> = logged.iter().collect();
                assert_eq!(logged.len(), unique.len(), "{fault:?} at call {at}: a file is logged twice");
                assert_eq!(logged.len(), STEPS as usize, "{fault:?} at call {at}");
                faulty.failed()
            }
        };
        let met = futures::future::join_all((1..=60).map(run)).await;
        let points = met.iter().filter(|met| **met).count();
        assert!(points > 20 && !met[59], "the scenario makes fewer than 60 calls: {points}");
    }
}

#[tokio::test]
async fn a_subscriber_gets_every_epoch_once_and_a_clean_end() {
    let (mut writer, _) = committed(&[&[(0, Some("a"), 1, 1.0, 1, "initial")]]).await;
    let reader = writer.reader();
    let mut all = reader.subscribe(Since::Epoch(0)).unwrap();
    let mut now = reader.subscribe(Since::Now).unwrap();
    let mut snapshot = reader.subscribe(Since::Snapshot).unwrap();
    assert_eq!(all.next().await.unwrap().unwrap().0, 1);
    assert_eq!(snapshot.next().await.unwrap().unwrap().1.num_rows(), 1);
    writer.commit(epoch(2, &[])).await.unwrap();
    writer
        .commit(epoch(3, &[(1, Some("a"), 1, 2.0, 1, "initial"), (1, Some("b"), 1, 2.0, 1, "initial")]))
        .await
        .unwrap();
    for subscription in [&mut all, &mut now, &mut snapshot] {
        let (epoch, rows) = subscription.next().await.unwrap().unwrap();
        assert_eq!((epoch, rows.num_rows()), (3, 2), "an epoch that published nothing is passed over");
    }
    assert_eq!(reader.subscribe(Since::Epoch(4)).unwrap_err().kind(), ErrorKind::Invalid);
    writer.close().await.unwrap();
    assert!(all.next().await.unwrap().is_none());
}

#[tokio::test]
async fn c127_a_view_that_ends_gives_its_last_rows_then_ends_its_subscriptions() {
    let (mut writer, _) = committed(&[]).await;
    let subscription = writer.reader().subscribe(Since::Now).unwrap();
    let waiting = async { futures::StreamExt::collect::<Vec<_>>(subscription.into_stream()).await };
    let ending = async {
        writer.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
        writer.close().await.unwrap();
    };
    let (given, ()) = futures::join!(waiting, ending);
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].as_ref().unwrap().1.num_rows(), 1);
}

#[tokio::test]
async fn a_job_that_vanishes_ends_its_subscriptions_with_an_error() {
    let (writer, _) = committed(&[]).await;
    let mut subscription = writer.reader().subscribe(Since::Now).unwrap();
    drop(writer);
    assert_eq!(subscription.next().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn c124_a_slow_subscriber_reads_from_the_store_what_has_left_memory() {
    let clock = clock();
    let mut writer = ViewWriter::create(Storage::memory(), view(), clock.clone()).await.unwrap();
    let mut slow = writer.reader().subscribe(Since::Now).unwrap();
    let middle = clock.now_us() + 10;
    for n in 1..=20 {
        clock.advance_us(1);
        // 20,000 versions of more than 100 bytes in memory: 20 epochs are more than is kept.
        let rows: Vec<Row> = (0..20_000).map(|w| (n as i64 * 20_000 + w, Some("a"), 1, 1.0, 1, "initial")).collect();
        writer.commit(epoch(n, &rows)).await.unwrap();
    }
    let reader = writer.reader();
    assert!(reader.oldest_in_memory() > 1, "the test needs epochs that left memory");
    for n in 1..=20 {
        let (epoch, rows) = slow.next().await.unwrap().unwrap();
        assert_eq!((epoch, rows.num_rows()), (n, 20_000));
    }
    // Stamps are at least 3 µs apart, so the instant lies between two epochs.
    let (first, _) = reader.subscribe(Since::Time(middle)).unwrap().next().await.unwrap().unwrap();
    assert!((2..20).contains(&first), "{first}");
}

#[tokio::test]
async fn a_removed_view_leaves_nothing_and_can_be_made_again() {
    let storage = Storage::memory();
    let mut writer = ViewWriter::create(storage.clone(), view(), clock()).await.unwrap();
    writer.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
    writer.close().await.unwrap();
    remove_view(&storage, "v").await.unwrap();
    assert!(storage.list(&Path::from("views"), None).await.unwrap().is_empty());
    let writer = ViewWriter::create(storage, view(), clock()).await.unwrap();
    assert!(rows_of(&writer.reader(), Read::All).await.is_empty());
}

mod model {
    //! Random sequences of epochs against a model that keeps every version in a list and chooses by looking at all.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Identity = (i64, Option<&'static str>);

    /// One version as the model keeps it: epoch, which of its epoch, number, revenue, final, deleted.
    type Version = (u64, i64, i64, f64, bool, bool);

    const KEYS: [Option<&str>; 4] = [None, Some(""), Some("NULL"), Some("a")];
    const REASONS: [&str; 4] = ["initial", "late_data", "gone", "finalization"];

    /// What maintenance does after an epoch.
    #[derive(Debug, Clone, Copy)]
    enum After {
        Nothing,
        KeepUp,
        Optimize,
        Vacuum,
        Reopen,
    }

    /// (Window hour, key, reason) of an epoch's versions; hours lie across several days, and windows come again at
    /// random.
    type Changes = Vec<(i64, usize, usize)>;

    fn epochs() -> impl Strategy<Value = Vec<(Changes, After)>> {
        use After::*;
        let change = (0i64..60, 0..KEYS.len(), 0..REASONS.len());
        let after = prop::sample::select(vec![Nothing, Nothing, KeepUp, KeepUp, Optimize, Vacuum, Reopen]);
        prop::collection::vec((prop::collection::vec(change, 0..12), after), 1..14)
    }

    fn maintained(writer: ViewWriter) -> SharedWriter {
        let upkeep = Upkeep { fresh_files_max: 2, vacuum_after: std::time::Duration::ZERO, ..Upkeep::default() };
        SharedWriter::from(writer).with_upkeep(upkeep)
    }

    async fn check(epochs: Vec<(Changes, After)>) {
        let clock = clock();
        let storage = Storage::memory();
        let mut shared = maintained(ViewWriter::create(storage.clone(), view(), clock.clone()).await.unwrap());
        let mut model: BTreeMap<Identity, Vec<Version>> = BTreeMap::new();
        let mut stamps = vec![];
        for (n, (changes, after)) in (1..).zip(&epochs) {
            clock.advance_us(10);
            let mut writer = shared.lock().await.unwrap();
            let mut rows: Vec<Row> = vec![];
            for (hour, key, reason) in changes {
                let (identity, reason) = ((*hour, KEYS[*key]), REASONS[*reason]);
                let versions = model.entry(identity).or_default();
                let nth = versions.iter().filter(|v| v.0 == n).count() as i64;
                if nth == 3 {
                    continue;
                }
                let (number, value) = (versions.len() as i64 + 1, rows.len() as f64 + 10.0 * n as f64);
                versions.push((n, nth, number, value, reason == "finalization", reason == "gone"));
                rows.push((*hour, identity.1, number, value, 1, reason));
            }
            let next = epoch(writer.next_epoch(), &rows);
            stamps.push(writer.commit(next).await.unwrap().stamp_us);
            drop(writer);
            match after {
                After::Nothing => {}
                After::KeepUp => drop(shared.keep_up().await.unwrap()),
                After::Optimize => drop(shared.optimize().await.unwrap()),
                After::Vacuum => drop(shared.vacuum().await.unwrap()),
                After::Reopen => {
                    shared = maintained(ViewWriter::open(storage.clone(), view(), clock.clone()).await.unwrap());
                }
            }
        }
        clock.advance_us(1_000);
        let text = |(hour, key): &Identity, v: &Version| format!("{hour}/{}/{}/{}", key.unwrap_or("∅"), v.2, v.3);
        let choose = |rank: &dyn Fn(&Version) -> Option<(bool, i64)>| {
            let winners = model.iter().filter_map(|(identity, versions)| {
                let winner = versions.iter().filter(|v| rank(v).is_some()).max_by_key(|v| rank(v))?;
                (!winner.5).then(|| text(identity, winner))
            });
            let mut rows: Vec<_> = winners.collect();
            rows.sort();
            rows
        };
        let reopened = ViewReader::open(storage, view(), clock).await.unwrap();
        for reader in [shared.reader().clone(), reopened] {
            assert_eq!(rows_of(&reader, Read::Latest).await, choose(&|v| Some((false, v.2))), "latest");
            assert_eq!(rows_of(&reader, Read::Final).await, choose(&|v| Some((v.4, v.2))), "final");
            for t in stamps.iter().step_by(2).flat_map(|stamp| [*stamp, stamp + 1]) {
                let current = choose(&|v: &Version| (stamps[v.0 as usize - 1] + v.1 <= t).then_some((false, v.2)));
                assert_eq!(rows_of(&reader, Read::AsOf(t)).await, current, "as of {t}");
            }
            let history = query(
                &reader,
                Read::History,
                "SELECT count(*) FILTER (WHERE revenue_change['old'] IS NOT NULL) AS n, count(*) AS m FROM t",
            )
            .await;
            let versions: usize = model.values().map(Vec::len).sum();
            let followed: usize = model.values().map(|v| v.windows(2).filter(|pair| !pair[0].5).count()).sum();
            let cells: Vec<_> = history.lines().nth(3).unwrap().split('|').map(str::trim).collect();
            assert_eq!(cells[1..3], [followed.to_string(), versions.to_string()], "history");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
        #[test]
        fn every_kind_of_read_agrees_with_the_model(epochs in epochs()) {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check(epochs));
        }
    }
}
