//! Engines one after the other on the same data.
//!
//! Catches: state that is lost, counted twice or kept for ever, a definition that changed without anybody noticing.
//! What is published row by row is in `sql/slt/recovery`; crashes in the middle of a write are in
//! `killed.rs`.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::util::display::array_value_to_string;
use async_trait::async_trait;
use highwater::clock::ManualClock;
use highwater::connectors::{
    Boundedness, Notes, Offsets, Position, ReadOptions, Source, SourceBatch, Split, SplitEvent, SplitReader,
};
use highwater::engine::Engine;
use highwater::runtime::Epochs;
use highwater::{ErrorKind, Result};

use crate::rows_of;

const NOON_US: i64 = 1_704_110_400_000_000;

const SOURCE: &str = "CREATE SOURCE s (ts TIMESTAMP(0), k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts) \
                      WITH (connector = 'log', max_future = '3650 days')";
const VIEW: &str = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, sum(v) AS total \
                    FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end, k \
                    ALLOWED LATENESS INTERVAL '20 seconds'";

/// Rows that outlive engines: seconds, key, value.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<(i64, String, i64)>>>);

#[derive(Debug)]
struct LogSource {
    schema: SchemaRef,
    log: Log,
}

struct LogReader {
    schema: SchemaRef,
    log: Log,
    at: usize,
    options: ReadOptions,
}

impl Log {
    fn push(&self, rows: &[(i64, &str, i64)]) {
        self.0.lock().unwrap().extend(rows.iter().map(|(ts, k, v)| (*ts, (*k).to_owned(), *v)));
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// An engine on `location`, with the rows read so far in an epoch of each view.
    async fn engine(&self, location: &str) -> Engine {
        let log = self.clone();
        Engine::builder()
            .data_dir(location)
            .clock(Arc::new(ManualClock::new(NOON_US)))
            .epochs(Epochs::Manual)
            .workers(2)
            .batch_rows(64)
            .connector("log", move |definition| {
                definition.option_reader().finish()?;
                Ok(Arc::new(LogSource { schema: definition.schema(), log: log.clone() }) as Arc<dyn Source>)
            })
            .build()
            .await
            .unwrap()
    }

    /// Ends epochs until every view has read all rows.
    async fn catch_up(&self, engine: &Engine, views: &[&str]) -> Result<()> {
        while engine.progress().iter().any(|job| job.rows < self.len() as u64) {
            for view in views {
                engine.epoch(view).await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[async_trait]
impl Source for LogSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Live
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(vec![Split { name: "0".into() }])
    }

    async fn open(&self, _: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let at = from.map_or(0, |position| position.offset as usize);
        Ok(Box::new(LogReader { schema: Arc::clone(&self.schema), log: self.log.clone(), at, options }))
    }
}

#[async_trait]
impl SplitReader for LogReader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let rows: Vec<_> = {
            let log = self.log.0.lock().unwrap();
            log[self.at..log.len().min(self.at + self.options.batch_rows)].to_vec()
        };
        if rows.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            return Ok(SplitEvent::Nothing);
        }
        let batch = batch_of(&rows, self.at as i64, &self.schema, &self.options);
        self.at += rows.len();
        Ok(SplitEvent::Rows(batch))
    }
}

/// `rows` as the columns asked for, from offset `first` on.
fn batch_of(rows: &[(i64, String, i64)], first: i64, schema: &SchemaRef, options: &ReadOptions) -> SourceBatch {
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|(ts, ..)| ts * 1_000_000));
    let given: [ArrayRef; 3] = [
        Arc::new(times.with_timezone("UTC")),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|(_, k, _)| k))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(.., v)| *v))),
    ];
    let wanted = Arc::new(schema.project(&options.projection).unwrap());
    let columns = options.projection.iter().zip(wanted.fields());
    let columns = columns.map(|(i, field)| cast(&given[*i], field.data_type()).unwrap()).collect();
    SourceBatch {
        rows: RecordBatch::try_new(wanted, columns).unwrap(),
        offsets: Offsets::From(first),
        rejects: vec![],
        notes: Notes::default(),
        bytes: 0,
        next: Position { offset: first + rows.len() as i64, token: String::new() },
    }
}

const TOTALS: &str = "SELECT k, total, _version FROM v ORDER BY window_start, k";

#[tokio::test(flavor = "multi_thread")]
async fn c82_a_changed_definition_is_refused_or_starts_anew() {
    let log = Log::default();
    let engine = log.engine("memory://c82").await;
    engine.execute(&format!("{SOURCE}; {VIEW}")).await.unwrap();
    log.push(&[(1, "a", 1), (11, "a", 1)]);
    log.catch_up(&engine, &["v"]).await.unwrap();
    engine.shutdown().await.unwrap();

    let engine = log.engine("memory://c82").await;
    // The same again, in other letters, changes nothing.
    engine.execute(&format!("{SOURCE}; -- once more\n {}", VIEW.replace("SELECT", "select"))).await.unwrap();
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 1 1"]);
    let changed = VIEW.replace("sum(v)", "sum(v) + 1");
    let replaced = changed.replacen("CREATE", "CREATE OR REPLACE", 1);
    for refused in [&changed, &replaced] {
        let error = engine.execute(refused).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.hint().unwrap().contains("RESTART"), "{error}");
    }
    let other_source =
        SOURCE.replacen("CREATE", "CREATE OR REPLACE", 1).replace("AS ts)", "AS ts - INTERVAL '1 second')");
    let error = engine.execute(&other_source).await.unwrap_err();
    assert!(error.message().contains("views=`v`"), "{error}");

    engine.execute(&format!("{replaced} RESTART")).await.unwrap();
    log.catch_up(&engine, &["v"]).await.unwrap();
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 2 1"]);
    engine.execute(&format!("{other_source} RESTART")).await.unwrap();
    log.catch_up(&engine, &["v"]).await.unwrap();
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 2 1"]);
    engine.shutdown().await.unwrap();

    let engine = log.engine("memory://c82").await;
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 2 1"]);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c96_keys_of_expired_windows_and_sessions_leave_no_state() {
    let log = Log::default();
    let engine = log.engine("memory://c96").await;
    let visits = "CREATE MATERIALIZED VIEW visits AS SELECT window_start, window_end, k, count(*) AS n \
                  FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5 seconds') \
                  GROUP BY window_start, window_end, k";
    engine.execute(&format!("{SOURCE}; {VIEW}; {visits}")).await.unwrap();
    log.push(&[(0, "first", 1)]);
    log.catch_up(&engine, &["v", "visits"]).await.unwrap();
    let bytes = |engine: Engine| async move {
        let jobs = engine.execute("SHOW JOBS").await.unwrap().collect().await.unwrap();
        let bytes = jobs[0].column_by_name("checkpoint_bytes").expect("a column of SHOW JOBS");
        (0..jobs[0].num_rows()).map(|i| array_value_to_string(bytes, i).unwrap().parse().unwrap()).collect::<Vec<u64>>()
    };
    let empty = bytes(engine.clone()).await;
    let keys: Vec<String> = (0..100_000).map(|i| format!("key {i}")).collect();
    let open: Vec<(i64, &str, i64)> = keys.iter().map(|key| (1, key.as_str(), 1)).collect();
    log.push(&open);
    log.catch_up(&engine, &["v", "visits"]).await.unwrap();
    let full = bytes(engine.clone()).await;
    log.push(&[(1000, "last", 1)]);
    log.catch_up(&engine, &["v", "visits"]).await.unwrap();
    engine.shutdown().await.unwrap();

    let engine = log.engine("memory://c96").await;
    log.push(&[(1001, "last", 1)]);
    log.catch_up(&engine, &["v", "visits"]).await.unwrap();
    let closed = bytes(engine.clone()).await;
    for view in 0..2 {
        assert!(full[view] > 20_000, "{empty:?} {full:?} {closed:?}");
        assert!(closed[view] < empty[view] + 8_192, "{empty:?} {full:?} {closed:?}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn t6_a_bounded_source_is_read_to_its_end_as_it_was_when_the_job_started() {
    const ROWS: usize = 200_000;
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |name: &str, rows: usize| {
        let line = "{\"ts\":\"2024-01-01 00:00:01\",\"k\":\"a\",\"v\":1}\n";
        fs::write(folder.path().join(name), line.repeat(rows)).unwrap();
    };
    write("b.jsonl", ROWS);
    write("d.jsonl", 1);
    let source = format!(
        "CREATE SOURCE s (ts TIMESTAMP(0), k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts) \
         WITH (connector = 'file', path = '{}/*.jsonl')",
        folder.path().display()
    );
    let (log, location) = (Log::default(), data.path().to_str().unwrap());
    let engine = log.engine(location).await;
    engine.execute(&format!("{source}; {VIEW}; PAUSE v")).await.unwrap();
    engine.epoch("v").await.unwrap();
    let read = engine.progress()[0].rows;
    assert!(read < ROWS as u64, "it was to be paused on the way");
    engine.abort().await;

    for name in ["a.jsonl", "c.jsonl", "e.jsonl"] {
        write(name, 7);
    }
    write("d.jsonl", 3);
    let engine = log.engine(location).await;
    engine.execute("RESUME v").await.unwrap();
    engine.wait_for_bounded().await.unwrap();
    assert_eq!(rows_of(&engine, TOTALS).await, [format!("a {} 1", ROWS + 1)]);
    engine.shutdown().await.unwrap();
}

/// Two bounded splits: one has a row and ends, the other has nothing for a minute and then an older row.
#[derive(Debug)]
struct SlowSplit {
    schema: SchemaRef,
    clock: Arc<ManualClock>,
}

struct SlowReader {
    schema: SchemaRef,
    /// Seconds of its rows.
    rows: Vec<i64>,
    /// How often it has nothing before.
    nothing: usize,
    clock: Arc<ManualClock>,
    options: ReadOptions,
}

#[async_trait]
impl Source for SlowSplit {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(vec![Split { name: "quick".into() }, Split { name: "slow".into() }])
    }

    async fn open(&self, split: &Split, _: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let (rows, nothing) = if &*split.name == "quick" { (vec![100], 0) } else { (vec![1], 60) };
        let (schema, clock) = (Arc::clone(&self.schema), Arc::clone(&self.clock));
        Ok(Box::new(SlowReader { schema, rows, nothing, clock, options }))
    }
}

#[async_trait]
impl SplitReader for SlowReader {
    async fn next(&mut self) -> Result<SplitEvent> {
        if self.nothing > 0 {
            self.nothing -= 1;
            self.clock.advance_us(1_000_000);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            return Ok(SplitEvent::Nothing);
        }
        let Some(second) = self.rows.pop() else { return Ok(SplitEvent::End) };
        let rows = [(second, "a".to_owned(), 1)];
        Ok(SplitEvent::Rows(batch_of(&rows, 0, &self.schema, &self.options)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t7_a_bounded_split_is_waited_for_however_long_it_has_nothing() {
    let clock = Arc::new(ManualClock::new(NOON_US));
    let of_source = Arc::clone(&clock);
    let engine = Engine::builder()
        .in_memory()
        .clock(Arc::clone(&clock) as _)
        .epochs(Epochs::Manual)
        .connector("slow", move |definition| {
            definition.option_reader().finish()?;
            Ok(Arc::new(SlowSplit { schema: definition.schema(), clock: Arc::clone(&of_source) }) as Arc<dyn Source>)
        })
        .build()
        .await
        .unwrap();
    let source = SOURCE.replace("'log', max_future = '3650 days'", "'slow'");
    let source = source.replace("AS ts)", "AS ts IDLE TIMEOUT INTERVAL '1 second')");
    engine.execute(&format!("{source}; {VIEW}")).await.unwrap();
    engine.wait_for_bounded().await.unwrap();
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 1 1", "a 1 1"]);
    engine.shutdown().await.unwrap();
}

/// Copies a folder and all below it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// What an engine of December 2026 left on disk: catalog, manifests, indexes, state files, result tables. State is
/// DataFusion's own, so another version of it needs a fixture of its own beside this one, and refuses the states of this one.
/// `FIXTURES=write cargo test --test it c95_a_data_dir` makes it, for a format that is new.
#[tokio::test(flavor = "multi_thread")]
async fn c95_a_data_dir_of_format_1_is_gone_on_with() {
    let visits = "CREATE MATERIALIZED VIEW visits AS SELECT window_start, window_end, k, sum(v) AS total \
                  FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5 seconds') \
                  GROUP BY window_start, window_end, k ALLOWED LATENESS INTERVAL '20 seconds'";
    let fixture = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1"));
    let log = Log::default();
    log.push(&[(1, "a", 1), (12, "b", 2), (11, "a", 3)]);
    if std::env::var_os("FIXTURES").is_some_and(|what| what == "write") {
        let engine = log.engine(fixture.to_str().unwrap()).await;
        engine.execute(&format!("{SOURCE}; {VIEW}; {visits}")).await.unwrap();
        log.catch_up(&engine, &["v", "visits"]).await.unwrap();
        engine.shutdown().await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    copy(fixture, folder.path());
    let engine = log.engine(folder.path().to_str().unwrap()).await;
    let fates = "SELECT state, on_time, late FROM v$windows ORDER BY window_start";
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 1 1"]);
    assert_eq!(rows_of(&engine, fates).await, ["closed 1 0", "open 2 0"]);
    // Late for a closed window, in time for an open one and an open session, and what closes all of them.
    log.push(&[(2, "a", 5), (14, "b", 4), (31, "c", 1)]);
    log.catch_up(&engine, &["v", "visits"]).await.unwrap();
    assert_eq!(rows_of(&engine, TOTALS).await, ["a 6 2", "a 3 1", "b 6 1"]);
    assert_eq!(rows_of(&engine, fates).await, ["expired 1 1", "closed 3 0", "open 1 0"]);
    let totals = "SELECT k, total, _version FROM visits ORDER BY window_start, k";
    assert_eq!(rows_of(&engine, totals).await, ["a 6 1", "a 3 1", "b 6 1"]);
    engine.shutdown().await.unwrap();
}
