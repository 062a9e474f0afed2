//! Streaming against batch, in one binary, over one file: `cargo bench --profile dev --bench speed_floor`.
//!
//! It makes Nexmark bids as Parquet, then runs each question as an ad-hoc streaming SELECT (rows counted, not kept) and as
//! the same SELECT without EMIT, a plain batch query, in turn, each as a process of its own. Printed are medians of five,
//! each less the run over 1,000 rows, the whole time of the streaming side, and its peak memory at 10 and 40 million rows. A run of each, not
//! timed, writes its rows out: the batch must have counted every row, the stream every row it did not refuse.
//! What it cannot see: results kept in a store, and other engines (`benches/peers/run.py` runs those).
//!
//! `SPEED_FLOOR_QUERIES=T1,T2` runs only some.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const ROWS: u64 = 10_000_000;
/// The generator's share of late rows, doubled: more than that no stream may have refused.
const REFUSED_MAX: f64 = 0.01;

/// A question: its name, its SELECT, and in how many windows a row is.
struct Question {
    name: &'static str,
    select: &'static str,
    windows: u64,
}

const QUESTIONS: [Question; 5] = [
    Question {
        name: "T1",
        select: "SELECT window_start, channel, count(*) AS n, sum(price), avg(price), max(price)
            FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10 seconds')
            GROUP BY window_start, window_end, channel",
        windows: 1,
    },
    Question {
        name: "T2",
        select: "SELECT window_start, bidder, count(*) AS n, sum(price)
            FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10 seconds')
            GROUP BY window_start, window_end, bidder",
        windows: 1,
    },
    Question {
        name: "H1",
        select: "SELECT window_start, auction, count(*) AS n
            FROM HOP(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2 seconds', INTERVAL '10 seconds')
            GROUP BY window_start, window_end, auction",
        windows: 5,
    },
    Question {
        name: "S1",
        select: "SELECT window_start, window_end, bidder, count(*) AS n
            FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10 seconds')
            GROUP BY window_start, window_end, bidder",
        windows: 1,
    },
    Question {
        name: "D1",
        select: "SELECT window_start, channel, count(DISTINCT bidder)
            FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10 seconds')
            GROUP BY window_start, window_end, channel",
        windows: 1,
    },
];

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
    for rows in [1_000, ROWS, 4 * ROWS] {
        make(&file(rows), rows);
    }
    let wanted = std::env::var("SPEED_FLOOR_QUERIES").unwrap_or_default();
    println!(
        "{:<4} {:>9} {:>9} {:>10} {:>7} {:>8} {:>9} {:>9} {:>12} {:>12}",
        "", "stream s", "batch s", "M rows/s", "ratio", "whole s", "MiB 10 M", "MiB 40 M", "counted", "refused"
    );
    for question in QUESTIONS.iter().filter(|q| wanted.is_empty() || wanted.split(',').any(|name| name == q.name)) {
        let batch = question.select.to_owned();
        let stream = format!("{batch} EMIT ON WINDOW CLOSE");
        let (mut streams, mut batches, mut spare) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
        for _ in 0..RUNS {
            streams.push(run(&file(ROWS), &stream));
            batches.push(run(&file(ROWS), &batch));
            spare.0.push(run(&file(1_000), &stream));
            spare.1.push(run(&file(1_000), &batch));
        }
        let large = run(&file(4 * ROWS), &stream);
        let seconds = |runs: &[Run], start: &[Run]| median(runs).saturating_sub(median(start)).as_secs_f64();
        let (s, b) = (seconds(&streams, &spare.0), seconds(&batches, &spare.1));
        let peak = |runs: &[Run]| runs.iter().map(|run| run.peak_kib).max().unwrap_or(0) / 1024;
        println!(
            "{:<4} {s:>9.3} {b:>9.3} {:>10.1} {:>6.2}x {:>8.2} {:>9} {:>9} {}",
            question.name,
            ROWS as f64 / 1e6 / s,
            b / s,
            median(&streams).as_secs_f64(),
            peak(&streams),
            peak(&[large]),
            checked(question, &file(ROWS), &stream, &batch),
        );
    }
}

/// Both sides run once more with a count of rows among their results.
fn checked(question: &Question, file: &Path, stream: &str, batch: &str) -> String {
    let with_count = |query: &str| match query.contains("count(*)") {
        true => query.to_owned(),
        false => query.replacen("SELECT ", "SELECT count(*) AS n, ", 1),
    };
    let all = ROWS * question.windows;
    assert_eq!(counted(file, &with_count(batch)), all, "{}: rows the batch counted", question.name);
    let taken = counted(file, &with_count(stream));
    let refused = all - taken;
    assert!(refused as f64 <= all as f64 * REFUSED_MAX, "{}: the stream counted {taken} of {all}", question.name);
    format!("{taken:>12} {refused:>12}")
}

/// Sum of column `n` of the query's rows.
fn counted(file: &Path, query: &str) -> u64 {
    let mut child = command(file, query, "csv").stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let header = lines.next().expect("a header");
    let column = header.split(',').position(|name| name == "n").expect("the column n");
    let count = |line: String| line.split(',').nth(column).and_then(|n| n.parse::<u64>().ok()).expect("a count");
    let sum = lines.map(count).sum();
    assert!(child.wait().expect("a child of ours").success(), "{query}");
    sum
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
         COPY made TO '{}' STORED AS PARQUET OPTIONS ('max_row_group_size' '131072');",
        partial.display()
    );
    let made = Command::new(binary()).args(["--in-memory", "--quiet", "-c", &sql]).stdout(Stdio::null()).status();
    assert!(made.expect("the binary runs").success(), "cannot make {}", file.display());
    std::fs::rename(partial, file).expect("the file was made");
}

fn command(file: &Path, query: &str, format: &str) -> Command {
    let sql = format!(
        "CREATE SOURCE bids ({COLUMNS}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
         WITH (connector = 'file', path = '{}', format = 'parquet'); {query};",
        file.display()
    );
    let mut command = Command::new(binary());
    command.args(["--in-memory", "--quiet", "--no-progress", "--format", format, "--workers", "2", "-c", &sql]);
    command
}

fn run(file: &Path, query: &str) -> Run {
    let started = Instant::now();
    let mut child = command(file, query, "null").stdout(Stdio::null()).spawn().expect("the binary runs");
    let mut peak_kib = 0;
    loop {
        peak_kib = peak_kib.max(high_water_mark_kib(child.id()));
        if let Some(status) = child.try_wait().expect("a child of ours") {
            assert!(status.success(), "{query}");
            return Run { wall: started.elapsed(), peak_kib };
        }
        std::thread::sleep(Duration::from_millis(2));
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
