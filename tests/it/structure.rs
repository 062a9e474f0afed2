//! What the code must not do, held by reading it: ARCHITECTURE.md's table of imports, and the habits that no lint knows.
//!
//! Reads production code only: comments, files of tests, and everything from a file's `#[cfg(test)] mod` on, are left out. Words are
//! looked for as words, so a rule can be fooled by a re-export; it is there for honest mistakes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Module, and what may not occur in it.
const ABSENT: &[(&str, &[&str])] = &[
    ("window", &["tokio", "datafusion", "object_store", "arrow"]),
    ("watermark", &["tokio", "datafusion", "object_store"]),
    ("change", &["tokio", "datafusion", "object_store"]),
    ("state", &["tokio", "object_store", "rand", "fs", "spawn", "Instant", "crate::clock"]),
    ("operators", &["tokio", "object_store", "rand", "fs", "spawn", "Instant", "crate::clock"]),
    ("sql", &["tokio", "object_store", "SessionState", "SessionContext", "crate::plan", "crate::runtime"]),
    ("plan", &["crate::runtime", "crate::engine"]),
    ("runtime", &["crate::plan", "crate::engine"]),
    ("checkpoint", &["crate::operators", "crate::state"]),
    (
        "cli",
        &[
            "datafusion",
            "object_store",
            "deltalake_core",
            "crate::catalog",
            "crate::connectors",
            "crate::operators",
            "crate::plan",
            "crate::results",
            "crate::runtime",
            "crate::state",
        ],
    ),
];

/// Plain counts and names of fates, which every module may speak of.
const VOCABULARY: &str = "crate::operators::fate";

/// What has one home, and where that is.
const HOMES: &[(&str, &[&str])] = &[
    ("deltalake_core", &["results", "connectors"]),
    ("println", &["cli"]),
    ("eprintln", &["cli"]),
    ("ExitCode", &["cli", "main"]),
    ("SystemTime", &["clock"]),
    ("reedline", &["cli"]),
    ("indicatif", &["cli"]),
    ("clap", &["cli"]),
    ("unsafe", &[]),
    ("todo", &[]),
    ("unimplemented", &[]),
    ("dbg", &[]),
];

const PRODUCTION_LINES_MAX: usize = 800;

struct File {
    path: PathBuf,
    /// First part of the path below `src/`, without `.rs`.
    module: String,
    /// Production code without comments, one string per line.
    code: Vec<String>,
}

fn sources() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_for_tests(&path) {
                let below = path.strip_prefix(&root).unwrap();
                let module = below.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_string();
                let code = production(&fs::read_to_string(&path).unwrap());
                files.push(File { path, module, code });
            }
        }
    }
    assert!(files.len() > 20, "src/ was not found");
    files
}

fn is_for_tests(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    // A module that only tests have is declared so beside it.
    let declared = fs::read_to_string(path.with_file_name("mod.rs")).unwrap_or_default();
    declared.contains(&format!("#[cfg(test)]\nmod {name};"))
        || name.ends_with("tests")
        || path.iter().any(|part| part == "tests" || part == "testing" || part == "testing.rs")
}

fn production(text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod "));
    let production = lines[..tests.unwrap_or(lines.len())].iter();
    production.map(|line| line.split("//").next().unwrap_or("").to_string()).collect()
}

/// Whether `word` occurs in `line` with no letter, digit or underscore around it.
fn has_word(line: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(in_name) && !line[at + word.len()..].starts_with(in_name))
}

fn broken(rule: impl Fn(&File, &str) -> Option<String>) -> String {
    let mut found = String::new();
    for file in sources() {
        for (number, line) in file.code.iter().enumerate() {
            if let Some(what) = rule(&file, line) {
                writeln!(found, "{}:{}: {what}: {}", file.path.display(), number + 1, line.trim()).unwrap();
            }
        }
    }
    found
}

#[test]
fn modules_import_downward_only() {
    let found = broken(|file, line| {
        let (_, absent) = ABSENT.iter().find(|(module, _)| *module == file.module)?;
        let line = &line.replace(VOCABULARY, "");
        absent.iter().find(|word| has_word(line, word)).map(|word| format!("`{word}` in {}", file.module))
    });
    assert_eq!(found, "");
}

#[test]
fn what_has_one_home_stays_there() {
    let found = broken(|file, line| {
        let astray = HOMES.iter().find(|(word, homes)| has_word(line, word) && !homes.contains(&file.module.as_str()));
        // The attribute that forbids it may name it.
        astray.filter(|_| !line.starts_with("#![")).map(|(word, homes)| format!("`{word}` belongs in {homes:?}"))
    });
    assert_eq!(found, "");
}

#[test]
fn nothing_is_unwrapped() {
    let found = broken(|file, line| {
        line.contains(".unwrap()").then(|| format!("use expect with a reason, or an error, in {}", file.module))
    });
    assert_eq!(found, "");
}

#[test]
fn files_are_short_and_named_for_what_they_hold() {
    for file in sources() {
        let name = file.path.file_stem().unwrap().to_string_lossy().to_string();
        assert!(!["utils", "util", "misc", "helpers", "common"].contains(&name.as_str()), "{}", file.path.display());
        let lines = file.code.len();
        assert!(lines <= PRODUCTION_LINES_MAX, "{} has {lines} lines of production code", file.path.display());
    }
}

/// The collection of small cases that went wrong elsewhere, as far as it concerns what is built: windows, sessions,
/// watermarks, late rows, emission, keys and values, files, versions, embedding. A new case comes with its test.
const CASES: &[u32] = &[
    1, 3, 4, 5, 7, 8, 10, 11, 13, 15, 17, 18, 19, 21, 23, 24, 28, 29, 33, 35, 36, 39, 40, 44, 45, 46, 50, 51, 52, 53,
    54, 58, 59, 60, 62, 64, 67, 68, 70, 71, 72, 75, 76, 78, 79, 81, 82, 84, 86, 113, 115, 122, 123, 125, 126, 127,
];

/// Numbers that tests bear: `fn c45_…` in Rust, `C45` in a comment of an `.slt` file.
fn tested_cases() -> BTreeSet<u32> {
    let root = env!("CARGO_MANIFEST_DIR");
    let paths = ["src/**/*.rs", "tests/**/*.rs", "sql/slt/**/*.slt"]
        .map(|below| glob::glob(&format!("{root}/{below}")).unwrap());
    let mut tested = BTreeSet::new();
    for path in paths.into_iter().flatten().map(Result::unwrap) {
        let prefix = if path.extension().is_some_and(|extension| extension == "rs") { "fn c" } else { "C" };
        let text = fs::read_to_string(path).unwrap();
        let comments = |line: &&str| prefix != "C" || line.starts_with('#');
        for part in text.lines().filter(comments).flat_map(|line| line.split(prefix).skip(1)) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            tested.extend(digits.parse::<u32>());
        }
    }
    tested
}

#[test]
fn every_small_case_has_a_test() {
    let tested = tested_cases();
    let missing: Vec<_> = CASES.iter().filter(|case| !tested.contains(case)).collect();
    assert!(missing.is_empty(), "no test bears the numbers {missing:?}");
}

#[test]
fn words_are_found_as_words() {
    assert!(has_word("use tokio::fs;", "fs"));
    assert!(!has_word("let offsets = 1;", "fs"));
    assert!(has_word("a.unwrap_or(spawn())", "spawn"));
    assert_eq!(production("a // b\n#[cfg(test)]\nmod tests {\nc"), ["a "]);
}
