//! What the documents show is what happens: their SQL is run, in the order of the page, and what they print is compared.
//!
//! | block | |
//! | --- | --- |
//! | ```` ```sql ```` | runs, and a plain block right behind it is its output |
//! | ```` ```sql fails ```` | runs alone and fails, and a plain block right behind it is what the terminal shows |
//! | ```` ```sql fragment ```` | is part of a statement, or depends on the clock; not run |
//!
//! Catches examples that rot. Cannot see prose that is wrong.

use std::path::Path;

use super::command::run;

const PAGES: [&str; 6] =
    ["README.md", "docs/sql.md", "docs/flink.md", "docs/semantics.md", "docs/errors.md", "docs/cli.md"];

/// A block of SQL and what follows it.
#[derive(Debug, Default)]
struct Example {
    line: usize,
    /// What stands behind `sql` in the fence.
    mode: String,
    sql: String,
    output: Option<String>,
}

/// The SQL blocks of a page, each with the plain block that comes next, if only blank lines lie between.
fn examples(page: &str) -> Vec<Example> {
    let mut all: Vec<Example> = Vec::new();
    let mut lines = page.lines().enumerate();
    let mut adjacent = false;
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            adjacent &= line.is_empty();
            continue;
        };
        let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let body = body.join("\n") + "\n";
        match (kind.strip_prefix("sql"), all.last_mut()) {
            (Some(mode), _) => {
                all.push(Example { line: at + 1, mode: mode.trim().to_owned(), sql: body, output: None });
                adjacent = true;
            }
            (None, Some(example)) if adjacent && kind.is_empty() => {
                example.output = Some(body);
                adjacent = false;
            }
            _ => adjacent = false,
        }
    }
    all
}

/// A statement between two examples, and what it prints.
fn mark(n: usize) -> (String, String) {
    let text = format!("example {n}");
    let line = format!("+{}+\n", "-".repeat(text.len() + 2));
    (format!(";SELECT '{text}' AS \"{text}\";\n"), format!("{line}| {text} |\n{line}| {text} |\n{line}"))
}

fn check(page: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let all = examples(&std::fs::read_to_string(path).expect(page));
    let told: Vec<_> = all.iter().filter(|example| example.mode.is_empty()).collect();

    let script: String = told.iter().enumerate().map(|(n, example)| example.sql.clone() + &mark(n).0).collect();
    // One epoch, so that the number of versions is that of the page however slow the machine is.
    let ran = run(&["--in-memory", "--epoch-interval", "1h", "-c", &script]);
    assert_eq!(ran.code, Some(0), "{page}: {}", ran.stderr);
    let mut rest = ran.stdout.as_str();
    for (n, example) in told.iter().enumerate() {
        let (output, after) = rest.split_once(&mark(n).1).expect("each mark is printed");
        rest = after;
        if let Some(expected) = &example.output {
            assert_eq!(output, expected, "{page}:{}\n{}", example.line, example.sql);
        }
    }

    for example in all.iter().filter(|example| example.mode == "fails") {
        let ran = run(&["--in-memory", "--quiet", "-c", &example.sql]);
        assert_ne!(ran.code, Some(0), "{page}:{} does not fail\n{}", example.line, example.sql);
        let expected = example.output.as_deref().expect("a failing example shows its error");
        assert_eq!(ran.stderr, expected, "{page}:{}\n{}", example.line, example.sql);
    }
    let known = |example: &&Example| ["", "fails", "fragment"].contains(&example.mode.as_str());
    assert!(all.iter().all(|example| known(&example)), "{page}: a block that is none of the kinds");
    told.len()
}

#[test]
fn the_documents_show_what_happens() {
    let told: usize = PAGES.iter().map(|page| check(page)).sum();
    assert!(told >= 30, "only {told} examples were found");
}

#[test]
fn outputs_belong_to_the_block_before_them() {
    let page =
        "```sql\nSELECT 1;\n```\n\n```\none\n```\n```sql fails\nx\n```\ntext\n```\nno output\n```\n```sh\nls\n```\n";
    let found = examples(page);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].sql.as_str(), found[0].output.as_deref()), ("SELECT 1;\n", Some("one\n")));
    assert_eq!((found[1].mode.as_str(), found[1].output.as_deref()), ("fails", None));
}
