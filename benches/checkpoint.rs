//! What checkpoints cost: the same view with an epoch each second and with none but the last, and how much an epoch writes when
//! few keys of many have changed.
//!
//! `ROWS=200000000 RUNS=5 cargo bench --profile dev --bench checkpoint`; 20 million rows, 3 runs without. Runs take turns, so that a
//! machine that is busy is so for both; what counts is processor time. The data dir is a folder under the system's temporary one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use highwater::Engine;
use highwater::runtime::Epochs;

/// Bids by a million bidders: 46 of 50 events, so that a day has 16 million.
const BIDDERS: i64 = 1_000_000;
const EVENTS_PER_SECOND: u64 = 200;

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// User and system time of this process.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("ticks");
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Bytes of files in `folder`, all levels down, whose names end in `.state`, the largest and the newest.
fn states(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        match path.is_dir() {
            true => found.extend(states(&path)),
            false if name.ends_with(".state") => found.push((name, entry.metadata().map_or(0, |file| file.len()))),
            false => {}
        }
    }
    found.sort();
    found
}

async fn run(rows: u64, every: Duration) -> (Duration, Duration) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().display().to_string();
    let engine = Engine::builder().workers(2).data_dir(dir).epoch_interval(every).build().await.expect("a new folder");
    let (began, before) = (Instant::now(), processor_time());
    let source = format!(
        "CREATE SOURCE bids (bidder BIGINT, price BIGINT, date_time TIMESTAMP, \
         WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH (connector = 'nexmark', 'table' = 'bid', \
         rows = '{rows}', rate = '{EVENTS_PER_SECOND}', bidders = '{BIDDERS}')"
    );
    engine.execute(&source).await.expect("a source");
    let view = "CREATE MATERIALIZED VIEW v AS SELECT window_start, bidder, count(*) AS n, sum(price) AS total \
                FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '1 day') GROUP BY window_start, window_end, bidder";
    engine.execute(view).await.expect("a view");
    engine.wait_for_bounded().await.expect("rows");
    let took = (began.elapsed(), processor_time() - before);
    engine.shutdown().await.expect("nothing runs any more");
    took
}

async fn throughput(rows: u64, runs: u64) {
    let intervals = [("each second", Duration::from_secs(1)), ("none", Duration::from_secs(86_400))];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (times, (name, every)) in times.iter_mut().zip(intervals) {
            let (wall, cpu) = run(rows, every).await;
            println!("checkpoints {name:<12} {wall:>8.2?} {cpu:>8.2?} of processor time");
            times.push(cpu);
        }
    }
    let [with, without] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    });
    let ratio = without / with;
    println!(
        "{rows} bids: with checkpoints {ratio:.2} of the throughput without, by processor time (median of {runs})"
    );
}

fn changes(keys: impl Iterator<Item = i64>, second: i64) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    let us = 1_704_067_200_000_000 + second * 1_000_000;
    let times = TimestampMicrosecondArray::from_value(us, keys.len()).with_timezone("UTC");
    let values = Arc::new(Int64Array::from_value(7, keys.len()));
    RecordBatch::try_from_iter([("k", keys), ("ts", Arc::new(times) as ArrayRef), ("v", values)]).expect("one length")
}

async fn written_by_few_changes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().display().to_string();
    let engine = Engine::builder().workers(2).data_dir(dir).epochs(Epochs::Manual).build().await.expect("a new folder");
    let source = "CREATE SOURCE s (k BIGINT, ts TIMESTAMP, v BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'push')";
    engine.execute(source).await.expect("a source");
    let view = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, count(*) AS n, sum(v) AS total \
                FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1 day') GROUP BY window_start, window_end, k";
    engine.execute(view).await.expect("a view");
    let push = engine.push_handle("s").expect("a source to push into");
    for from in (0..BIDDERS).step_by(10_000) {
        push.push(changes(from..from + 10_000, 1)).await.expect("rows");
    }
    engine.epoch("v").await.expect("an epoch");
    let whole = states(folder.path()).last().map_or(0, |(_, bytes)| *bytes);
    push.push(changes((0..10_000).map(|i| i * 97 % BIDDERS), 2)).await.expect("rows");
    engine.epoch("v").await.expect("an epoch");
    let few = states(folder.path()).last().map_or(0, |(_, bytes)| *bytes);
    let percent = few as f64 * 100.0 / whole as f64;
    println!("{BIDDERS} keys: a state of {whole} bytes; 10,000 changed keys wrote {few}, {percent:.1} %");
    engine.shutdown().await.expect("a running engine");
}

fn main() {
    let (rows, runs) = (variable("ROWS", 20_000_000), variable("RUNS", 3));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        written_by_few_changes().await;
        throughput(rows, runs).await;
    });
}
