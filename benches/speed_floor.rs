//! Streaming against batch, in one binary, over one file: `cargo bench --profile dev --bench speed_floor`.
//!
//! It makes Nexmark bids as Parquet, then runs the same GROUP BY as an ad-hoc streaming SELECT (rows counted, not kept)
//! and as a plain batch query, in turn, each as a process of its own. Printed are medians of five, each less the run
//! over 1,000 rows, and peak memory at 10 and 40 million rows. What it cannot see: results kept in a store.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const TUMBLE: &str =
    "FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10 seconds') GROUP BY window_start, window_end";

/// One finished run.
#[derive(Clone, Copy)]
struct Run {
    wall: Duration,
    peak_kib: u64,
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let folder = std::env::temp_dir().join("highwater-speed-floor");
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let file = |rows: u64| folder.join(format!("bids-{rows}.parquet"));
    for rows in [1_000, 10_000_000, 40_000_000] {
        make(&file(rows), rows);
    }
    let queries = [
        (
            "1,000 channels",
            format!("SELECT window_start, channel, count(*), sum(price), avg(price), max(price) {TUMBLE}, channel"),
        ),
        ("100,000 bidders", format!("SELECT window_start, bidder, count(*), sum(price) {TUMBLE}, bidder")),
    ];
    println!(
        "{:<16} {:>10} {:>10} {:>10} {:>9} {:>12} {:>12}",
        "by", "stream s", "batch s", "stream/s", "ratio", "MiB 10 M", "MiB 40 M"
    );
    for (name, query) in queries {
        let stream = format!("{query} EMIT ON WINDOW CLOSE");
        let (mut streams, mut batches, mut spare) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
        for _ in 0..RUNS {
            streams.push(run(&file(10_000_000), &stream));
            batches.push(run(&file(10_000_000), &query));
            spare.0.push(run(&file(1_000), &stream));
            spare.1.push(run(&file(1_000), &query));
        }
        let large = run(&file(40_000_000), &stream);
        let seconds = |runs: &[Run], start: &[Run]| median(runs).saturating_sub(median(start)).as_secs_f64();
        let (s, b) = (seconds(&streams, &spare.0), seconds(&batches, &spare.1));
        let peak = |runs: &[Run]| runs.iter().map(|run| run.peak_kib).max().unwrap_or(0) / 1024;
        println!(
            "{name:<16} {s:>10.3} {b:>10.3} {:>8.1} M {:>8.2}x {:>12} {:>12}",
            10.0 / s,
            b / s,
            peak(&streams),
            peak(&[large])
        );
    }
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_highwater"))
}

const COLUMNS: &str = "auction BIGINT, bidder BIGINT, channel VARCHAR, url VARCHAR, price BIGINT, date_time TIMESTAMP";

/// Makes the file once; it is the same on every machine.
fn make(file: &Path, rows: u64) {
    if file.exists() {
        return;
    }
    let partial = file.with_extension("partial.parquet");
    let sql = format!(
        "CREATE SOURCE made ({COLUMNS}) WITH (connector = 'nexmark', rows = '{rows}', late_fraction = '0.005');
         COPY (SELECT * FROM made) TO '{}' STORED AS PARQUET;",
        partial.display()
    );
    let made = Command::new(binary()).args(["--in-memory", "--quiet", "-c", &sql]).status().expect("the binary runs");
    assert!(made.success(), "cannot make {}", file.display());
    std::fs::rename(partial, file).expect("the file was made");
}

fn run(file: &Path, query: &str) -> Run {
    let sql = format!(
        "CREATE SOURCE bids ({COLUMNS}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
         WITH (connector = 'file', path = '{}', format = 'parquet'); {query};",
        file.display()
    );
    let started = Instant::now();
    let mut child = Command::new(binary())
        .args(["--in-memory", "--quiet", "--no-progress", "--format", "null", "--workers", "2", "-c", &sql])
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut peak_kib = 0;
    loop {
        peak_kib = peak_kib.max(high_water_mark_kib(child.id()));
        if let Some(status) = child.try_wait().expect("a child of ours") {
            assert!(status.success(), "{query}");
            return Run { wall: started.elapsed(), peak_kib };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The most memory a process has held, as the kernel counts it.
fn high_water_mark_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn median(runs: &[Run]) -> Duration {
    let mut walls: Vec<Duration> = runs.iter().map(|run| run.wall).collect();
    walls.sort_unstable();
    walls[walls.len() / 2]
}
