//! The real binary, killed at random while it follows a file that grows.
//!
//! Catches: rows lost, counted twice or judged differently after a crash, a data dir that cannot be opened again, an epoch
//! in two Delta commits. Cannot see: what a power cut does to a disk that lies about syncing. `KILLS=200` for a long run.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/data/flights-2013-01-01_03.jsonl");
/// No run takes longer to read what there is.
const PATIENCE: Duration = Duration::from_secs(120);

/// What must be the same however often the engine was killed.
const QUESTIONS: [&str; 6] = [
    "SELECT window_start, origin, n, d, _event_count FROM v ORDER BY window_start, origin",
    "SELECT window_start, origin, n, d, _event_count FROM v$history WHERE _reason = 'initial' ORDER BY 1, 2",
    "SELECT _offset, _seq, _window_start, _reason, _late_by_us FROM v$late ORDER BY _offset",
    "SELECT window_start, state, on_time, late, refused_expired FROM v$windows ORDER BY window_start",
    "SELECT n, window_end - window_start AS long FROM gaps ORDER BY window_start, tailnum, n",
    "SHOW LATENESS FOR v",
];

/// A folder with a data dir, a file that grows, and a script that follows it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        let script = format!(
            "CREATE SOURCE f (scheduled TIMESTAMP, origin VARCHAR, tailnum VARCHAR, status VARCHAR, delay_min BIGINT, \
             WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes') \
             WITH (connector = 'file', path = '{}', format = 'json', follow = 'true', poll_interval = '5 ms');
             CREATE MATERIALIZED VIEW v AS SELECT window_start, origin, count(*) AS n, sum(delay_min) AS d \
             FROM TUMBLE(TABLE f, DESCRIPTOR(scheduled), INTERVAL '1 hour') WHERE status = 'departed' \
             GROUP BY window_start, window_end, origin \
             ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE ON EXPIRED SIDE OUTPUT;
             CREATE MATERIALIZED VIEW gaps AS SELECT window_start, window_end, tailnum, count(*) AS n \
             FROM SESSION(TABLE f PARTITION BY tailnum, DESCRIPTOR(scheduled), INTERVAL '4 hours') \
             GROUP BY window_start, window_end, tailnum ALLOWED LATENESS INTERVAL '1 hour';
             SUBSCRIBE v;",
            place.file().display()
        );
        fs::write(place.script(), script).unwrap();
        fs::write(place.file(), "").unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("f.jsonl")
    }

    fn script(&self) -> PathBuf {
        self.dir.path().join("x.sql")
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn append(&self, bytes: &[u8]) {
        OpenOptions::new().append(true).open(self.file()).unwrap().write_all(bytes).unwrap();
    }

    fn highwater(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.arg("--data-dir").arg(self.data_dir()).stdin(Stdio::null());
        command
    }

    fn start(&self) -> Child {
        let mut command = self.highwater();
        command.args(["--quiet", "--format", "null", "--epoch-interval", "15ms", "-f"]).arg(self.script());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The answer to `question`, read beside the engine.
    fn ask(&self, question: &str) -> String {
        let output = self.highwater().args(["--quiet", "--format", "csv", "-c", question]).output().unwrap();
        assert!(output.status.success(), "{question}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn rows_read(&self, view: &str) -> usize {
        let answer = self.ask(&format!("SHOW LATENESS FOR {view}"));
        let line = answer.lines().find(|line| line.contains("rows read")).expect("a count of rows read");
        line.rsplit(',').next().unwrap().parse().unwrap()
    }

    /// Waits until both views have read `rows` rows.
    fn wait_for(&self, rows: usize) {
        let since = Instant::now();
        while ["v", "gaps"].iter().any(|view| self.rows_read(view) < rows) {
            assert!(since.elapsed() < PATIENCE, "the rows were not read: {}", self.ask("SHOW JOBS"));
            sleep(Duration::from_millis(100));
        }
    }

    fn answers(&self) -> Vec<String> {
        QUESTIONS.iter().map(|question| self.ask(question)).collect()
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn kills_change_nothing() {
    let kills: usize = std::env::var("KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let text = fs::read(DATA).unwrap();
    let rows = text.iter().filter(|byte| **byte == b'\n').count();

    let untouched = Place::new();
    untouched.append(&text);
    let engine = untouched.start();
    sleep(Duration::from_millis(500));
    untouched.wait_for(rows);
    kill(engine);

    let place = Place::new();
    let mut random = SmallRng::seed_from_u64(kills as u64);
    let mut written = 0;
    for _ in 0..kills {
        let engine = place.start();
        let until = Instant::now() + Duration::from_millis(random.random_range(150..900));
        // Cuts fall anywhere, in the middle of lines too.
        let share = text.len() * 9 / 10 / kills;
        let to = (written + share).min(text.len());
        while Instant::now() < until {
            let some = random.random_range(0..=(to - written).min(share / 4 + 1));
            place.append(&text[written..written + some]);
            written += some;
            sleep(Duration::from_millis(20));
        }
        kill(engine);
    }
    place.append(&text[written..]);
    let engine = place.start();
    sleep(Duration::from_millis(500));
    place.wait_for(rows);
    kill(engine);

    for ((question, expected), got) in QUESTIONS.iter().zip(untouched.answers()).zip(place.answers()) {
        assert_eq!(got, expected, "after {kills} kills: {question}");
    }
    let epochs = in_one_commit_each(&place.data_dir().join("views/v/results"));
    println_summary(kills, epochs);
}

/// Each data file is added by exactly one Delta commit, and commits name rising epochs. Returns how many there are.
fn in_one_commit_each(table: &Path) -> usize {
    let mut commits: Vec<_> = fs::read_dir(table.join("_delta_log")).unwrap().map(|e| e.unwrap().path()).collect();
    commits.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    commits.sort();
    let (mut added, mut last) = (BTreeSet::new(), -1);
    for commit in &commits {
        for line in fs::read_to_string(commit).unwrap().lines() {
            let action: serde_json::Value = serde_json::from_str(line).unwrap();
            if let Some(path) = action["add"]["path"].as_str() {
                assert!(added.insert(path.to_owned()), "{path} is added twice");
            }
            if let Some(version) = action["txn"]["version"].as_i64() {
                assert!(version > last, "epoch {version} is committed after {last}");
                last = version;
            }
        }
    }
    commits.len()
}

/// Seen with `--nocapture`.
fn println_summary(kills: usize, commits: usize) {
    let _ = writeln!(std::io::stderr(), "{kills} kills, {commits} Delta commits, nothing lost, nothing twice");
}
