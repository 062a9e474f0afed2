//! From a row's arrival to the version it completes being readable: `cargo bench --profile dev --bench latency`.
//!
//! Generated bids arrive in real time, each at its event time, and a view on local disk counts them by second and channel. The row
//! that completes a second is the first one of the next, which arrives when that second ends: the latency of a version is the
//! time at which a subscriber has it less its `window_end`. A subscriber is told once a version is durable and queries read it. Times
//! are of one clock, and begin a little early (when the source is made, not when it is first read), so that the
//! figures are upper bounds.
//!
//! `RATE=1000000 EPOCH_MS=1000 SECONDS=600 cargo bench …` for others than 500,000 rows a second, epochs of 100 ms, one minute.
//! Each ten seconds a line tells how far the view lags and how much memory the process holds: neither may grow.

use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::TimestampMicrosecondType;
use highwater::Engine;
use highwater::clock::{Clock, SystemClock};
use highwater::results::Since;

/// Versions of the first seconds are left out: files are opened and pools filled then.
const WARM_UP: Duration = Duration::from_secs(5);

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// MiB the process holds in memory.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}

/// The value below which the share `share` of the ascending `values` lies.
fn percentile(values: &[i64], share: f64) -> f64 {
    let at = ((values.len() - 1) as f64 * share).round() as usize;
    values[at] as f64 / 1000.0
}

#[tokio::main]
async fn main() {
    let (rate, epoch_ms, seconds) = (variable("RATE", 500_000), variable("EPOCH_MS", 100), variable("SECONDS", 60));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let every = Duration::from_millis(epoch_ms);
    let builder = Engine::builder().workers(2).data_dir(folder.path().display().to_string()).epoch_interval(every);
    let engine = builder.build().await.expect("a new folder");
    // 46 of 50 events are bids.
    let (events, rows) = (rate * 50 / 46, rate * seconds);
    let source = format!(
        "CREATE SOURCE bids (channel VARCHAR, price BIGINT, date_time TIMESTAMP, WATERMARK FOR date_time AS date_time) WITH \
         (connector = 'nexmark', rate = '{events}', rows = '{rows}', realtime = 'true', start_time = 'now', disorder = '0 s')"
    );
    engine.execute(&source).await.expect("a source");
    let view = "CREATE MATERIALIZED VIEW v AS SELECT window_start, window_end, channel, count(*) AS n, sum(price) AS total, \
                avg(price) AS mean, max(price) AS top FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '1 second') \
                GROUP BY window_start, window_end, channel";
    engine.execute(view).await.expect("a view");

    let began = Instant::now();
    let mut told = began;
    let mut latencies = Vec::new();
    let mut versions = engine.subscribe("v", Since::Epoch(0)).expect("the view");
    while let Some((_, rows)) = versions.next().await.expect("versions") {
        let now = SystemClock.now_us();
        let ends = rows.column_by_name("window_end").expect("a column").as_primitive::<TimestampMicrosecondType>();
        let of_batch = ends.values().iter().map(|end| now - end);
        // The last windows close when the input ends, before their time.
        latencies.extend(of_batch.clone().filter(|us| began.elapsed() > WARM_UP && *us >= 0));
        if told.elapsed() >= Duration::from_secs(10) {
            told = Instant::now();
            let lag = of_batch.min().unwrap_or(0);
            println!("{:4} s: newest {} ms old, {} MiB", began.elapsed().as_secs(), lag / 1000, resident_mib());
        }
    }
    latencies.sort_unstable();
    println!(
        "{rate} rows/s, epochs of {epoch_ms} ms, {seconds} s, {} versions; ms from arrival to readable:",
        latencies.len()
    );
    for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
        println!("  p{:<5} {:8.1}", share * 100.0, percentile(&latencies, share));
    }
    engine.shutdown().await.expect("a clean end");
}
