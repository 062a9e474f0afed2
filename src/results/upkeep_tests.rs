//! Maintenance and rollback: a store that was compacted, pruned or vacuumed answers as it did before.
//!
//! What these tests catch: a row lost, doubled or shown as latest when it is not after files were rewritten; a horizon
//! that lets an AS OF through it cannot answer; a file deleted that something refers to; a writer that slept through
//! its own fencing. That every kind of read agrees with a model under random maintenance is in [`super::tests`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::prelude::SessionContext;
use object_store::path::Path;

use super::tests::{HOUR_US, NOON_US, Row, clock, committed, epoch, query, rows_of, status_row, step_rows, view};
use super::*;
use crate::checkpoint::{FileRole, TableId};
use crate::clock::{Clock, ManualClock};
use crate::error::ErrorKind;
use crate::storage::Storage;
use crate::testing::faulty::{Fault, FaultyStore};

const DAY_HOURS: i64 = 24;

fn kept(writer: ViewWriter, upkeep: Upkeep) -> SharedWriter {
    SharedWriter::from(writer).with_upkeep(upkeep)
}

fn at_once() -> Upkeep {
    Upkeep { fresh_files_max: 2, vacuum_after: Duration::ZERO, ..Upkeep::default() }
}

fn roles(writer: &SharedWriter) -> Vec<FileRole> {
    let state = writer.shared().state();
    state.files(&TableId::Results).iter().map(|file| file.role).collect()
}

async fn publish(writer: &SharedWriter, rows: &[Row]) {
    let mut writer = writer.lock().await.unwrap();
    let next = epoch(writer.next_epoch(), rows);
    writer.commit(next).await.unwrap();
}

#[tokio::test]
async fn a_compacted_partition_is_one_current_and_one_superseded_file() {
    let (writer, clock) = committed(&[
        &[(0, Some("a"), 1, 1.0, 1, "initial"), (0, Some("b"), 1, 2.0, 1, "initial")],
        &[(0, Some("a"), 2, 3.0, 2, "late_data")],
        &[(1, Some("a"), 1, 4.0, 1, "initial"), (0, Some("b"), 2, 2.0, 1, "gone")],
    ])
    .await;
    let writer = kept(writer, at_once());
    let reader = writer.reader().clone();
    let before = clock.now_us() - HOUR_US;
    let reads = [Read::Latest, Read::Final, Read::All, Read::AsOf(before)];
    let mut expected = Vec::new();
    for read in reads {
        expected.push(rows_of(&reader, read).await);
    }
    let report = writer.keep_up().await.unwrap();
    assert_eq!((report.partitions, report.replaced, report.written, report.deleted), (1, 3, 2, 0));
    clock.advance_us(10);
    assert_eq!(writer.keep_up().await.unwrap(), UpkeepReport { deleted: 3, ..UpkeepReport::default() });
    assert_eq!(roles(&writer), [FileRole::Current, FileRole::Superseded]);
    for (read, expected) in reads.into_iter().zip(expected) {
        assert_eq!(rows_of(&reader, read).await, expected, "{read:?}");
    }
    // The latest is read without comparing.
    let context = SessionContext::new();
    context.register_table("t", reader.provider(Read::Latest).unwrap()).unwrap();
    let plan = context.sql("EXPLAIN SELECT revenue FROM t").await.unwrap().collect().await.unwrap();
    let plan = arrow::util::pretty::pretty_format_batches(&plan).unwrap().to_string();
    assert!(!plan.contains("ResolveExec"), "{plan}");
    assert_eq!(writer.keep_up().await.unwrap(), UpkeepReport::default(), "nothing is left to do");
}

#[tokio::test]
async fn a_view_whose_job_has_ended_is_compacted_by_the_engine_that_finds_it_so() {
    let (writer, _) =
        committed(&[&[(0, Some("a"), 1, 1.0, 1, "initial")], &[(1, Some("a"), 1, 2.0, 1, "initial")]]).await;
    let found = SharedWriter::of(&writer.reader()).with_upkeep(at_once());
    let epoch = found.reader().epoch();
    assert_eq!(found.keep_up().await.unwrap(), UpkeepReport::default(), "it may have another writer");
    found.complete();
    let report = found.keep_up().await.unwrap();
    assert_eq!((report.replaced, report.written), (2, 1));
    assert_eq!(roles(&found), [FileRole::Current]);
    // Nothing more to do: the next engine does not even take it over.
    let next = SharedWriter::of(found.reader()).with_upkeep(at_once());
    let epochs = next.reader().epoch();
    assert!(epochs > epoch);
    next.complete();
    assert_eq!(next.keep_up().await.unwrap(), UpkeepReport::default());
    assert_eq!(next.reader().epoch(), epochs);
    // One that was fenced leaves it alone.
    publish(&next, &[(2, Some("a"), 1, 3.0, 1, "initial"), (0, Some("b"), 1, 3.0, 1, "initial")]).await;
    publish(&next, &[(3, Some("a"), 1, 3.0, 1, "initial")]).await;
    let _ = found.keep_up().await;
    assert_eq!(found.keep_up().await.unwrap(), UpkeepReport::default());
}

#[tokio::test]
async fn only_the_current_files_that_a_correction_reaches_are_rewritten() {
    let (writer, _) = committed(&[]).await;
    let writer = kept(writer, at_once());
    let paths = || {
        let state = writer.shared().state();
        state.files(&TableId::Results).iter().map(|f| f.path.clone()).collect::<BTreeSet<_>>()
    };
    // Files large enough not to be merged with small ones for their size alone.
    let keys: Vec<&'static str> = (0..8_000).map(|n| &*Box::leak(format!("key {n}").into_boxed_str())).collect();
    for (hour, keys) in [(0, &keys[..]), (3, &keys[..100])] {
        for half in keys.chunks(keys.len() / 2) {
            let rows: Vec<Row> = half.iter().map(|k| (hour, Some(*k), 1, k.len() as f64, 1, "initial")).collect();
            publish(&writer, &rows).await;
        }
        writer.keep_up().await.unwrap();
    }
    let before = paths();
    assert_eq!(before.len(), 2);
    for version in 2..4 {
        publish(&writer, &[(3, Some("key 7"), version, 5.0, 2, "late_data")]).await;
    }
    writer.keep_up().await.unwrap();
    let after = paths();
    assert_eq!(before.intersection(&after).count(), 1, "the large file stays: {before:?} {after:?}");
}

#[tokio::test]
async fn a_final_version_behind_a_later_one_is_found_in_compacted_files() {
    let (writer, _) = committed(&[
        &[(0, Some("a"), 1, 1.0, 1, "finalization"), (0, Some("b"), 1, 2.0, 1, "initial")],
        &[(0, Some("a"), 2, 3.0, 2, "reprocessing"), (0, Some("b"), 2, 4.0, 2, "finalization")],
    ])
    .await;
    let writer = kept(writer, at_once());
    writer.keep_up().await.unwrap();
    assert_eq!(rows_of(writer.reader(), Read::Final).await, ["0/a/1/1", "0/b/2/4"]);
    publish(&writer, &[(0, Some("b"), 3, 9.0, 3, "reprocessing"), (0, Some("a"), 3, 8.0, 3, "reprocessing")]).await;
    assert_eq!(rows_of(writer.reader(), Read::Final).await, ["0/a/1/1", "0/b/2/4"]);
    publish(&writer, &[(0, Some("a"), 4, 8.0, 3, "finalization")]).await;
    assert_eq!(rows_of(writer.reader(), Read::Final).await, ["0/a/4/8", "0/b/2/4"]);
    writer.optimize().await.unwrap();
    assert_eq!(rows_of(writer.reader(), Read::Final).await, ["0/a/4/8", "0/b/2/4"]);
    assert_eq!(rows_of(writer.reader(), Read::Latest).await, ["0/a/4/8", "0/b/3/9"]);
}

#[tokio::test]
async fn versions_beyond_retention_go_and_the_horizon_refuses_what_they_could_tell() {
    // Versions at one, two, three and four hours after the clock's start.
    let (writer, clock) = committed(&[
        &[(0, Some("a"), 1, 1.0, 1, "initial")],
        &[(0, Some("a"), 2, 2.0, 2, "finalization")],
        &[(0, Some("a"), 3, 3.0, 3, "reprocessing")],
        &[(0, Some("a"), 4, 4.0, 4, "reprocessing")],
    ])
    .await;
    let fourth = clock.now_us();
    let upkeep = Upkeep { history_retention: Some(Duration::from_secs(3600)), ..at_once() };
    let writer = kept(writer, upkeep);
    clock.advance_us(HOUR_US / 2);
    let report = writer.vacuum().await.unwrap();
    assert_eq!(report.forgotten, 1, "the first; the second is final, the third was current within the hour");
    let reader = writer.reader();
    assert_eq!(rows_of(reader, Read::All).await, ["0/a/2/2", "0/a/3/3", "0/a/4/4"]);
    assert_eq!(rows_of(reader, Read::AsOf(fourth - 1)).await, ["0/a/3/3"]);
    assert_eq!(rows_of(reader, Read::Final).await, ["0/a/2/2"]);
    let e = reader.provider(Read::AsOf(fourth - HOUR_US)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Invalid);
    assert!(e.message().contains("before the view's history begins"), "{e}");
    let history = query(reader, Read::History, "SELECT revenue_change['old'] AS o FROM t ORDER BY _version").await;
    let cells: Vec<_> = history.lines().skip(3).map(|l| l.replace(' ', "")).collect();
    assert_eq!(cells[..3], ["||", "|2.0|", "|3.0|"], "what came before the second is not known any more");
    // What is final stays for ever, and is no reason to write the partition again; the third is one, in its time.
    clock.advance_us(HOUR_US / 4);
    assert_eq!(writer.vacuum().await.unwrap().partitions, 0);
    clock.advance_us(HOUR_US / 2);
    let report = writer.vacuum().await.unwrap();
    assert_eq!((report.partitions, report.forgotten), (1, 1));
    clock.advance_us(10 * HOUR_US);
    assert_eq!(writer.vacuum().await.unwrap().partitions, 0);
    // A subscription does not pass over what is gone: versions of the first and the third epoch.
    for since in [Since::Epoch(0), Since::Epoch(2), Since::Time(fourth - HOUR_US)] {
        let e = reader.subscribe(since).unwrap_err();
        assert!(e.message().contains("history_begins_after_epoch=`3`"), "{since:?}: {e}");
    }
    let mut from_there = reader.subscribe(Since::Epoch(3)).unwrap();
    assert_eq!(from_there.next().await.unwrap().unwrap().0, 4);
    // A reader that opens the view later knows the horizon too.
    let reopened = ViewReader::open(writer.shared().storage.clone(), view(), clock).await.unwrap();
    assert!(reopened.provider(Read::AsOf(fourth - HOUR_US)).is_err());
}

#[tokio::test]
async fn replaced_files_stay_for_readers_that_have_begun_and_go_later_with_those_of_lost_attempts() {
    let (writer, clock) =
        committed(&[&[(0, Some("a"), 1, 1.0, 1, "initial")], &[(0, Some("a"), 2, 2.0, 2, "late_data")]]).await;
    let upkeep = Upkeep { vacuum_after: Duration::from_secs(3600), ..at_once() };
    let writer = kept(writer, upkeep);
    let storage = writer.shared().storage.clone();
    let begun = writer.reader().provider(Read::All).unwrap();
    assert_eq!(writer.keep_up().await.unwrap().deleted, 0);
    let folder = Path::from("views/v/results/_window_date=2024-01-15");
    assert_eq!(storage.list(&folder, None).await.unwrap().len(), 4);
    let context = SessionContext::new();
    context.register_table("t", begun).unwrap();
    let rows = context.sql("SELECT * FROM t").await.unwrap().collect().await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);

    let lost = folder.clone().join(format!("{:020}-lost.parquet", 1));
    storage.put(&lost, bytes::Bytes::from_static(b"torn")).await.unwrap();
    let coming = folder.clone().join(format!("{:020}-coming.parquet", 9_999));
    storage.put(&coming, bytes::Bytes::from_static(b"whole")).await.unwrap();
    clock.set_us(NOON_US + 365 * 100 * DAY_HOURS * HOUR_US); // After the store's own clock.
    assert_eq!(writer.vacuum().await.unwrap().deleted, 3);
    let left = storage.list(&folder, None).await.unwrap();
    assert_eq!(left.len(), 3, "a current, a superseded, and one of an epoch not decided yet");
    assert_eq!(rows_of(writer.reader(), Read::All).await, ["0/a/1/1", "0/a/2/2"]);
}

#[tokio::test]
async fn manifests_an_index_sums_up_go_and_a_writer_that_slept_meanwhile_is_fenced() {
    let storage = Storage::memory();
    let clock = clock();
    let mut sleeper = ViewWriter::create(storage.clone(), view(), clock.clone()).await.unwrap();
    sleeper.commit(epoch(1, &[(0, Some("a"), 1, 1.0, 1, "initial")])).await.unwrap();
    let writer = kept(ViewWriter::open(storage.clone(), view(), clock.clone()).await.unwrap(), Upkeep::default());
    for hour in 1..140 {
        clock.advance_us(1_000_000);
        publish(&writer, &[(hour, Some("a"), 1, 1.0, 1, "initial")]).await;
    }
    let manifests = Path::from("views/v/manifest");
    assert_eq!(storage.list(&manifests, None).await.unwrap().len(), 142);
    clock.advance_us(2 * HOUR_US);
    assert!(writer.keep_up().await.unwrap().deleted >= 128);
    assert!(storage.list(&manifests, None).await.unwrap().len() < 40);
    let reopened = ViewReader::open(storage, view(), clock).await.unwrap();
    assert_eq!(rows_of(&reopened, Read::All).await.len(), 140);
    let e = sleeper.commit(epoch(2, &[(9, Some("z"), 1, 1.0, 1, "initial")])).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn a_log_that_begins_with_a_checkpoint_still_says_which_epochs_it_holds() {
    let (writer, clock) =
        committed(&[&[(0, Some("a"), 1, 1.0, 1, "initial")], &[(30, Some("a"), 1, 2.0, 1, "initial")]]).await;
    let writer = kept(writer, at_once());
    let storage = writer.shared().storage.clone();
    writer.lock().await.unwrap().flush().await.unwrap();
    clock.set_us(NOON_US + 365 * 100 * DAY_HOURS * HOUR_US); // After the store's own clock.
    writer.optimize().await.unwrap();
    let log = storage.list(&Path::from("views/v/results/_delta_log"), None).await.unwrap();
    let names: Vec<_> = log.iter().map(|f| f.location.filename().unwrap().to_owned()).collect();
    assert!(names.iter().any(|name| name.ends_with(".checkpoint.parquet")), "{names:?}");
    assert!(!names.contains(&"00000000000000000000.json".to_owned()), "{names:?}");
    drop(writer);
    let mut writer = ViewWriter::open(storage.clone(), view(), clock).await.unwrap();
    let next = epoch(writer.next_epoch(), &[(31, Some("a"), 1, 3.0, 1, "initial")]);
    writer.commit(next).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(rows_of(&writer.reader(), Read::All).await, ["0/a/1/1", "30/a/1/2", "31/a/1/3"]);
    let logged = logged_json_files(&storage).await;
    assert_eq!(logged.iter().filter(|path| path.contains(&format!("{:020}", writer.last_epoch()))).count(), 1);
}

/// Paths of the files that the JSON files of the log add.
async fn logged_json_files(storage: &Storage) -> Vec<String> {
    let mut paths = Vec::new();
    for file in storage.list(&Path::from("views/v/results/_delta_log"), None).await.unwrap() {
        if !file.location.as_ref().ends_with(".json") {
            continue;
        }
        let bytes = storage.get(&file.location).await.unwrap().unwrap();
        for line in bytes.split(|b| *b == b'\n') {
            let action: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
            paths.extend(action["add"]["path"].as_str().map(str::to_owned));
        }
    }
    paths
}

#[tokio::test]
async fn one_window_is_read_from_its_own_partition_and_files() {
    let memory: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let store = Arc::new(FaultyStore::new(memory, u64::MAX, Fault::Refused));
    let storage = Storage::with_store(store.clone(), "counted");
    let clock = clock();
    let writer = kept(ViewWriter::create(storage, view(), clock).await.unwrap(), at_once());
    for day in 0..5 {
        for version in 1..=3 {
            publish(&writer, &[(day * DAY_HOURS, Some("a"), version, version as f64, 1, "late_data")]).await;
        }
    }
    publish(&writer, &[(2 * DAY_HOURS, Some("a"), 4, 4.0, 1, "late_data")]).await;
    writer.keep_up().await.unwrap();
    let third = NOON_US + 2 * DAY_HOURS * HOUR_US;
    let filter = format!("_window_start = to_timestamp_micros({third})");
    for (read, rows, files) in
        [(Read::Latest, 1, 2), (Read::AsOf(writer.shared().state().stamp_us), 1, 3), (Read::History, 4, 3)]
    {
        store.take_read();
        let found = query(writer.reader(), read, &format!("SELECT count(*) AS n FROM t WHERE {filter}")).await;
        assert!(found.contains(&format!("| {rows} |")), "{read:?} {found}");
        let touched: BTreeSet<String> = store.take_read().iter().map(ToString::to_string).collect();
        assert!(touched.iter().all(|path| path.contains("_window_date=2024-01-17")), "{read:?} {touched:?}");
        assert!(touched.len() <= files, "{read:?} {touched:?}");
    }
}

/// As the job of the fault tests in [`super::tests`], with maintenance after every step.
async fn run_kept_job(storage: &Storage, steps: i64) {
    let clock = clock();
    'again: for _ in 0..10 {
        let opened = ViewWriter::open_or_create(storage.clone(), view(), clock.clone()).await;
        let Ok(writer) = opened else { continue };
        let writer = kept(writer, at_once());
        let Ok((_, job)) = writer.resume().await else { continue };
        for step in job["step"].as_i64().unwrap_or(0) + 1..=steps {
            clock.advance_us(1_000_000);
            let Ok(mut guard) = writer.lock().await else { continue 'again };
            let job = serde_json::json!({ "step": step });
            let next = Epoch { job, ..epoch(guard.next_epoch(), &step_rows(step)) };
            if guard.commit(next).await.is_err() {
                continue 'again;
            }
            drop(guard);
            if writer.keep_up().await.is_err() {
                continue 'again;
            }
        }
        let ended = async { writer.lock().await?.end().await };
        if writer.vacuum().await.is_ok() && ended.await.is_ok() {
            return;
        }
    }
    panic!("it never gets through");
}

#[tokio::test]
async fn every_store_call_of_publishing_and_maintenance_fails_once_in_turn_and_the_result_is_the_same() {
    const STEPS: i64 = 4;
    const CALLS: u64 = 240;
    let expected = [
        vec!["1/a/2/102", "2/a/2/103", "3/a/2/104", "4/a/1/4"],
        vec!["1/a/1/1", "1/a/2/102", "2/a/1/2", "2/a/2/103", "3/a/1/3", "3/a/2/104", "4/a/1/4"],
    ];
    let expected = &expected;
    for fault in [Fault::Refused, Fault::AnswerLost, Fault::Torn, Fault::Doubled] {
        let run = |at: u64| async move {
            let memory: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
            let faulty = Arc::new(FaultyStore::new(Arc::clone(&memory), at, fault));
            run_kept_job(&Storage::with_store(faulty.clone(), "faulty"), STEPS).await;
            let storage = Storage::with_store(memory, "memory");
            let reader = ViewReader::open(storage.clone(), view(), clock()).await.unwrap();
            assert_eq!(rows_of(&reader, Read::Latest).await, expected[0], "{fault:?} at call {at}");
            assert_eq!(rows_of(&reader, Read::All).await, expected[1], "{fault:?} at call {at}");
            check_delta(&storage, &reader).await;
            faulty.failed()
        };
        let met = futures::future::join_all((1..=CALLS).map(run)).await;
        let points = met.iter().filter(|met| **met).count();
        assert!(points > 60 && !met[CALLS as usize - 1], "the scenario makes fewer than {CALLS} calls: {points}");
        // Seen with --nocapture, and by whoever writes down how much was tried.
        let summary = format!("{fault:?}: {points} store calls failed once each");
        std::io::Write::write_all(&mut std::io::stderr(), format!("{summary}\n").as_bytes()).unwrap();
    }
}

/// The Delta table holds the files we read, each added once, and each is there.
async fn check_delta(storage: &Storage, reader: &ViewReader) {
    let mut added = Vec::new();
    let mut live = BTreeSet::new();
    for file in storage.list(&Path::from("views/v/results/_delta_log"), None).await.unwrap() {
        if !file.location.as_ref().ends_with(".json") {
            continue;
        }
        let bytes = storage.get(&file.location).await.unwrap().unwrap();
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let action: serde_json::Value = serde_json::from_slice(line).unwrap();
            if let Some(path) = action["add"]["path"].as_str() {
                added.push(path.to_owned());
                live.insert(path.to_owned());
            }
            if let Some(path) = action["remove"]["path"].as_str() {
                assert!(live.remove(path), "a file is removed that is not there: {path}");
            }
        }
    }
    assert_eq!(added.len(), added.iter().collect::<BTreeSet<_>>().len(), "a file is added twice");
    let shared = reader.shared();
    let ours: BTreeSet<String> = shared.state().files(&TableId::Results).iter().map(|f| f.path.clone()).collect();
    assert_eq!(live, ours);
    for path in ours {
        let path = shared.paths.file(&TableId::Results, &path);
        assert!(storage.get(&path).await.unwrap().is_some(), "a live file is missing: {path}");
    }
}

#[tokio::test]
async fn a_rollback_appends_what_an_older_version_said() {
    let (writer, clock) = committed(&[
        &[(0, Some("a"), 1, 1.0, 1, "finalization"), (0, Some("b"), 1, 7.0, 1, "initial")],
        &[(0, Some("a"), 2, 2.0, 2, "reprocessing"), (0, Some("c"), 1, 9.0, 1, "initial")],
    ])
    .await;
    let writer = kept(writer, Upkeep::default());
    let reader = writer.reader();
    let between = clock.now_us() - 1;
    let all = sorted_versions(reader).await;
    let e = roll_back(reader, &all, RollbackTo::Version(2), "rollback").unwrap_err();
    assert_eq!(e.message(), "a row of the window has no version 2: latest=`1`");
    let rolled = roll_back(reader, &all, RollbackTo::Time(between), "rollback").unwrap();
    assert_eq!((rolled.versions.num_rows(), rolled.unchanged), (2, 1), "b is as it was");
    let mut guard = writer.lock().await.unwrap();
    let next = guard.next_beside_job();
    guard.commit(Epoch { versions: vec![rolled.versions], ..next }).await.unwrap();
    drop(guard);
    assert_eq!(rows_of(reader, Read::Latest).await, ["0/a/3/1", "0/b/1/7"], "c was not there yet");
    let reasons = query(
        reader,
        Read::All,
        "SELECT k, _is_final AS f, _deleted AS d FROM t WHERE _reason = 'rollback' ORDER BY k",
    )
    .await;
    let cells: Vec<_> = reasons.lines().skip(3).map(|l| l.replace(' ', "")).collect();
    assert_eq!(cells[..2], ["|a|true|false|", "|c|false|true|"]);
    let again = roll_back(reader, &sorted_versions(reader).await, RollbackTo::Time(between), "rollback").unwrap();
    assert_eq!((again.versions.num_rows(), again.unchanged), (0, 3), "a repeat adds nothing");
}

async fn sorted_versions(reader: &ViewReader) -> Vec<RecordBatch> {
    let context = SessionContext::new();
    context.register_table("t", reader.provider(Read::All).unwrap()).unwrap();
    let sorted = context.sql("SELECT * FROM t ORDER BY _window_start, _window_end, k, _version").await.unwrap();
    sorted.collect().await.unwrap()
}

#[tokio::test]
async fn other_tables_are_compacted_too() {
    let clock: Arc<ManualClock> = clock();
    let writer = kept(ViewWriter::create(Storage::memory(), view(), clock.clone()).await.unwrap(), at_once());
    for n in 0..3i64 {
        let mut guard = writer.lock().await.unwrap();
        let status = status_row(n % 2, if n == 2 { "closed" } else { "open" }, 1);
        let next = Epoch { windows: vec![status], ..guard.next_beside_job() };
        guard.commit(next).await.unwrap();
    }
    let sql = "SELECT state, count(*) AS n FROM t GROUP BY state ORDER BY state";
    let before = query(writer.reader(), Read::Windows, sql).await;
    writer.keep_up().await.unwrap();
    let state = writer.shared().state();
    let files = state.files(&TableId::Windows);
    assert_eq!((files.len(), files[0].rows), (1, 2), "a window's former status is nobody's");
    assert_eq!(query(writer.reader(), Read::Windows, sql).await, before);
    assert!(before.contains("| closed | 1 |") && before.contains("| open   | 1 |"), "{before}");
}
