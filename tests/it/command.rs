//! The binary in scripts: what goes to which stream, how it exits, how it is stopped.
//!
//! Catches: results and messages on the wrong stream, a wrong exit code, statements run after an error, a panic on a
//! closed pipe, files left behind. Cannot see: anything a terminal changes; that is `terminal.rs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

/// The binary, unaffected by whoever runs the tests.
fn highwater(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HIGHWATER_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

fn finish(mut command: Command) -> Run {
    let output = command.output().expect("the binary starts");
    Run {
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        code: output.status.code(),
    }
}

pub fn run(arguments: &[&str]) -> Run {
    finish(highwater(arguments))
}

/// Runs in memory, one `-c` per text.
fn sql(texts: &[&str]) -> Run {
    let mut arguments = vec!["--in-memory"];
    texts.iter().for_each(|text| arguments.extend(["-c", text]));
    run(&arguments)
}

#[test]
fn results_go_to_stdout_and_the_rest_to_stderr() {
    let run = sql(&["SELECT 1 AS a, NULL AS b"]);
    assert_eq!(run.stdout, "+---+------+\n| a | b    |\n+---+------+\n| 1 | NULL |\n+---+------+\n");
    assert!(run.stderr.starts_with("1 row in "), "{}", run.stderr);
    assert_eq!(run.code, Some(0));
}

#[test]
fn quiet_leaves_results_alone() {
    let run = run(&["--in-memory", "--quiet", "--format", "csv", "-c", "SELECT 1 AS a"]);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code), ("a\n1\n", "", Some(0)));
}

#[test]
fn each_format_prints_its_own() {
    let printed = |format| run(&["-mq", "--format", format, "-c", "SELECT 1 AS a, 'x' AS b; SELECT 2 AS c"]).stdout;
    assert_eq!(printed("csv"), "a,b\n1,x\nc\n2\n");
    assert_eq!(printed("json"), "[{\"a\":1,\"b\":\"x\"}]\n[{\"c\":2}]\n");
    assert_eq!(printed("ndjson"), "{\"a\":1,\"b\":\"x\"}\n{\"c\":2}\n");
    assert_eq!(printed("null"), "");
}

#[test]
fn c71_printed_csv_reads_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let path = path.to_str().unwrap();
    let print = |sql: &str| run(&["-mq", "--format", "csv", "-c", sql]).stdout;
    let rows = "VALUES (1, ''), (2, NULL), (3, 'a,\"b\"'), (4, E'two\nlines'), (5, ' '), (6, 'NULL'), (NULL, 'x')";
    let printed = print(&format!("SELECT column1 AS n, column2 AS k FROM ({rows})"));
    std::fs::write(path, &printed).unwrap();
    let source =
        format!("CREATE SOURCE s (n BIGINT, k VARCHAR) WITH (connector = 'file', path = '{path}'); SELECT * FROM s");
    assert_eq!(print(&source), printed);
    assert_eq!(printed.lines().nth(1), Some("1,\"\""));
}

#[test]
fn a_damaged_file_is_to_be_repaired_and_gives_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // The head of a gzip file without its body; a Parquet file without its end.
    std::fs::write(path("a.jsonl.gz"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]).unwrap();
    std::fs::write(path("a.parquet"), b"PAR1 and then nothing").unwrap();
    let questions = [
        "SELECT * FROM s",
        "SELECT count(*), max(k) FROM s",
        "SELECT window_start, max(k) FROM TUMBLE(s, ts, INTERVAL '1 hour') GROUP BY window_start EMIT ON WINDOW CLOSE",
    ];
    for (name, code) in [("a.jsonl.gz", 3), ("a.parquet", 3), ("missing.jsonl", 2)] {
        for (question, format) in questions.iter().flat_map(|q| ["table", "csv", "json"].map(|format| (q, format))) {
            let source = format!(
                "CREATE SOURCE s (ts TIMESTAMP(0), k VARCHAR, WATERMARK FOR ts AS ts) \
                 WITH (connector = 'file', path = '{}')",
                path(name)
            );
            let run = run(&["-mq", "--format", format, "-c", &source, "-c", question]);
            assert_eq!((run.stdout.as_str(), run.code), ("", Some(code)), "{name}: {question}: {}", run.stderr);
            assert!(run.stderr.contains(&path(name)), "{}", run.stderr);
        }
    }
}

#[test]
fn a_source_whose_files_are_not_there_says_so_at_once() {
    let run = sql(&["CREATE SOURCE s (v BIGINT) WITH (connector = 'file', path = '/no/such/file.jsonl')"]);
    assert!(
        run.stderr.contains("source `s` cannot be read yet: no file matches path='/no/such/file.jsonl'"),
        "{run:?}"
    );
    assert_eq!(run.code, Some(0));
}

#[test]
fn the_null_format_counts() {
    let run = run(&["-m", "--format", "null", "-c", "SELECT * FROM generate_series(1, 123456)"]);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.starts_with("123,456 rows in "), "{}", run.stderr);
}

#[test]
fn the_first_error_stops_a_script() {
    let run = sql(&["SELECT 1 AS first; SELECT nobody; SELECT 3 AS third", "SELECT 4 AS fourth"]);
    assert!(run.stdout.contains("first") && !run.stdout.contains("third") && !run.stdout.contains("fourth"));
    assert!(run.stderr.contains("error: ") && run.stderr.contains("nobody"), "{}", run.stderr);
    assert_eq!(run.code, Some(2));
}

#[test]
fn a_text_with_a_syntax_error_does_not_start() {
    let run = sql(&["SELECT 1 AS first;\nSELEC 2"]);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("line 2, column 1") && run.stderr.contains("^^^^^"), "{}", run.stderr);
    assert_eq!(run.code, Some(2));
}

#[test]
fn one_message_per_error() {
    let run = sql(&["SELECT * FROM nowhere"]);
    assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
    assert!(!run.stderr.contains("backtrace"), "{}", run.stderr);
}

#[test]
fn commands_and_files_run_in_the_order_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.sql");
    std::fs::write(&file, "-- a file\nSELECT 2 AS n;\n").unwrap();
    let file = file.to_str().unwrap();
    let run = run(&["-mq", "--format", "csv", "-c", "SELECT 1 AS n", "-f", file, "-c", "SELECT 3 AS n"]);
    assert_eq!(run.stdout, "n\n1\nn\n2\nn\n3\n");
}

#[test]
fn an_error_in_a_file_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.sql");
    std::fs::write(&file, "SELECT 1;\n\nSELECT * FORM t;\n").unwrap();
    let run = run(&["-m", "-f", file.to_str().unwrap()]);
    assert!(run.stderr.contains("line 3, column 10") && run.stderr.contains("bad.sql"), "{}", run.stderr);
}

#[test]
fn a_file_that_is_not_there_is_a_failure_of_its_own() {
    let run = run(&["-m", "-f", "no/such.sql"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("no/such.sql"), "{}", run.stderr);
}

#[test]
fn standard_input_is_a_script() {
    for arguments in [&["-mq", "--format", "csv"][..], &["-mq", "--format", "csv", "-f", "-"][..]] {
        let mut command = highwater(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"SELECT 7 AS n;").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "n\n7\n", "{arguments:?}");
        assert!(output.status.success());
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut command = highwater(&["-m", "--format", "ndjson", "-c", "SELECT * FROM generate_series(1, 1000000)"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "{\"value\":1}");
    drop(lines);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panic") && !stderr.contains("error"), "{stderr}");
}

#[test]
fn wrong_options_are_told_before_anything_runs() {
    for arguments in [&["--fromat", "csv"][..], &["--format", "xml", "-c", "SELECT 1"][..], &["-c", "--in-memory"][..]]
    {
        let run = run(arguments);
        assert_eq!((run.stdout.as_str(), run.code), ("", Some(2)), "{arguments:?}");
        assert!(run.stderr.contains("error: "), "{}", run.stderr);
    }
}

#[test]
fn help_and_version_are_answers() {
    let help = run(&["--help"]);
    assert_eq!((help.stderr.as_str(), help.code), ("", Some(0)));
    assert!(help.stdout.contains("Exit codes:") && help.stdout.contains("'SELECT * FROM hourly$late'"));
    assert_eq!(run(&["--version"]).stdout, format!("highwater {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn settings_come_from_the_environment_too() {
    let mut command = highwater(&["-c", "SELECT 1 AS n"]);
    command.env("HIGHWATER_IN_MEMORY", "1").env("HIGHWATER_FORMAT", "csv").env("HIGHWATER_QUIET", "yes");
    let run = finish(command);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("n\n1\n", ""));
}

#[test]
fn a_query_without_names_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = highwater(&["-c", "SELECT 1"]);
    command.current_dir(folder.path());
    assert_eq!(finish(command).code, Some(0));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn colour_is_for_terminals_and_for_those_who_insist() {
    assert!(!sql(&["SELECT NULL"]).stdout.contains('\u{1b}'));
    assert!(run(&["-m", "--color", "always", "-c", "SELECT NULL"]).stdout.contains('\u{1b}'));
}

#[test]
fn a_job_that_fails_is_told_once() {
    let run = run(&["-m", "--log", "off", "-c", &format!("{VIEW_OF_NOTHING}; SELECT * FROM v")]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("no file matches path='no/such.jsonl'"), "{}", run.stderr);
}

const VIEW_OF_NOTHING: &str =
    "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'file', path = 'no/such.jsonl');
    CREATE MATERIALIZED VIEW v AS
    SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL '1 hour') GROUP BY window_start";

#[test]
fn statements_that_only_read_leave_nothing_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let run = run(&["--data-dir", &data.display().to_string(), "-c", "SELECT 1", "-c", "SHOW VIEWS; SET x.y = 1"]);
    assert!(!data.exists(), "{run:?}");
}

#[test]
fn a_view_that_fails_is_told_once_and_the_others_are_finished() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("bad.jsonl"), "{\"ts\": 1}\nnonsense\n").expect("written");
    std::fs::write(at("good.jsonl"), "{\"ts\": 1}\n{\"ts\": 2}\n").expect("written");
    let view = |name: &str| {
        format!(
            "CREATE SOURCE {name}_rows (ts TIMESTAMP(0), WATERMARK FOR ts AS ts)
             WITH (connector = 'file', path = '{}', max_rejects = '0');
             CREATE MATERIALIZED VIEW {name} AS SELECT window_start, count(*) AS n
             FROM TUMBLE(TABLE {name}_rows, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start;",
            at(&format!("{name}.jsonl"))
        )
    };
    let script = at("views.sql");
    std::fs::write(&script, view("bad") + &view("good")).expect("written");
    let run = run(&["--in-memory", "-f", &script]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert_eq!(
        run.stderr.matches("`bad` failed: more rows of source `bad_rows` were rejected than").count(),
        1,
        "{run:?}"
    );
    assert!(run.stderr.contains("bad.jsonl:2"), "names the first: {run:?}");
    assert!(run.stderr.contains("bad_rows$rejects"), "a hint: {run:?}");
    assert!(run.stderr.contains("good: 2 rows read"), "{run:?}");
}

#[test]
fn a_file_that_is_missing_is_told_by_the_statement_that_needs_it() {
    let source =
        "CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'file', path = '/nope/x.json');";
    let view = "CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n \
                FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start";
    let run = sql(&[source, view]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("no file matches path='/nope/x.json'\n  --> line 1, column"), "{}", run.stderr);
}
