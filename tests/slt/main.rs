//! Runs every file of `sql/slt/` several ways, each time with the same expected rows; see `sql/slt/README.md`.
//!
//! What it catches: fates, values, versions and messages that are not those of the rules, and any dependence on how
//! rows are cut into batches, how many workers there are, or in which allowed order rows come. What it cannot: wrong
//! answers on sizes beyond a handful of rows (see the properties beside the code), crashes in the middle of a write (see
//! `tests/it`), and speed.

mod command;
mod database;
mod rows;
mod script;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqllogictest::{DefaultColumnType, Record, Runner};

use database::Database;

/// No file takes longer; one that does hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a file is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    Straight,
    OneRowPerBatch,
    FourWorkers,
    /// For files that say how far (their watermark delay): `# ways: shuffled 20`.
    Shuffled {
        within_seconds: f64,
    },
    /// For files in which nothing is refused: `# ways: batch`.
    Batch,
    /// The engine crashes or stops wherever rows were pushed or an epoch ended, and another one goes on.
    Recovered,
}

impl Way {
    fn workers_and_batch_rows(self) -> (usize, usize) {
        match self {
            Self::OneRowPerBatch => (1, 1),
            Self::FourWorkers => (4, 2),
            Self::Recovered => (2, 3),
            Self::Straight | Self::Shuffled { .. } | Self::Batch => (1, 8192),
        }
    }
}

/// A file and the ways its first lines allow beyond those that all files run.
struct TestFile {
    path: PathBuf,
    text: String,
}

impl TestFile {
    /// Every file whose path contains what `SLT` says.
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/slt");
        let wanted = std::env::var("SLT").unwrap_or_default();
        let pattern = root.join("**/*.slt").display().to_string();
        let paths = glob::glob(&pattern).expect("a valid pattern").map(|path| path.expect("a readable folder"));
        let mut files = paths
            .filter(|path| path.display().to_string().contains(&wanted))
            .map(|path| Self { text: std::fs::read_to_string(&path).expect("a readable file"), path })
            .collect::<Vec<_>>();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(!files.is_empty(), "no file of {} matches SLT={wanted}", root.display());
        files
    }

    /// The words of `# ways: …`.
    fn ways(&self) -> impl Iterator<Item = &str> {
        let line = self.text.lines().find_map(|line| line.strip_prefix("# ways:"));
        line.unwrap_or_default().split(',').map(str::trim)
    }

    fn shuffled(&self) -> Option<Way> {
        let within = self.ways().find_map(|way| way.strip_prefix("shuffled "))?;
        Some(Way::Shuffled { within_seconds: within.parse().expect("seconds after `shuffled`") })
    }

    fn batch(&self) -> Option<Way> {
        self.ways().any(|way| way == "batch").then_some(Way::Batch)
    }
}

/// Runs each file that `way` is for, and fails with every record that went wrong.
fn run(way: impl Fn(&TestFile) -> Option<Way>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut failures = vec![];
    for file in TestFile::all() {
        let Some(way) = way(&file) else { continue };
        match runtime.block_on(async { tokio::time::timeout(PATIENCE, run_file(&file, way)).await }) {
            Ok(failed) => failures.extend(failed),
            Err(_) => failures.push(format!("{} does not end", file.path.display())),
        }
    }
    assert!(failures.is_empty(), "{} records failed\n\n{}", failures.len(), failures.join("\n\n"));
}

async fn run_file(file: &TestFile, way: Way) -> Vec<String> {
    let path = file.path.display().to_string();
    let records = sqllogictest::parse_with_name::<DefaultColumnType>(&file.text, path).expect("a file that parses");
    let mut runner = Runner::new(move || async move { Database::open(way).await.map_err(database::Failure::from) });
    let mut failures = vec![];
    for record in records {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        if let Err(error) = runner.run_async(record).await {
            failures.push(format!("{way:?}: {}", error.display(false)));
        }
    }
    runner.shutdown_async().await;
    failures
}

#[test]
fn straight() {
    run(|_| Some(Way::Straight));
}

#[test]
fn one_row_per_batch() {
    run(|_| Some(Way::OneRowPerBatch));
}

#[test]
fn four_workers() {
    run(|_| Some(Way::FourWorkers));
}

#[test]
fn stopped_and_recovered_between_rows() {
    run(|_| Some(Way::Recovered));
}

#[test]
fn shuffled_within_the_watermark_delay() {
    run(TestFile::shuffled);
}

#[test]
fn as_a_batch() {
    run(TestFile::batch);
}
