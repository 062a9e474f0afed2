//! What each statement is, what is no statement, and how an error is drawn.

use super::super::*;
use super::{CLAUSES, check_errors, error, one, select, summary};

#[test]
fn statements_are_told_apart() {
    for (sql, expected) in [
        ("SUBSCRIBE v", "subscribe v"),
        ("SUBSCRIBE TO \"V\"", "subscribe V"),
        (
            "SUBSCRIBE v SINCE '2024-01-15T10:00:00Z' WITH SNAPSHOT",
            "subscribe v since 2024-01-15T10:00:00Z with snapshot",
        ),
        ("SUBSCRIBE v SINCE TIMESTAMP '2024-01-15T10:00:00Z'", "subscribe v since 2024-01-15T10:00:00Z"),
        ("SUBSCRIBE v EPOCH 12", "subscribe v after epoch 12"),
        ("SUBSCRIBE v SINCE EPOCH 12", "subscribe v after epoch 12"),
        ("EXPLAIN SELECT k FROM t EMIT CHANGES", "explain select SELECT k FROM t"),
        ("EXPLAIN ANALYZE SELECT 1", "explain analyze select SELECT 1"),
        ("EXPLAIN ANALYZE BATCH SELECT 1", "explain analyze batch select SELECT 1"),
        ("EXPLAIN BATCH SELECT 1", "explain batch select SELECT 1"),
        ("EXPLAIN (SELECT 1)", "explain select (SELECT 1)"),
        ("EXPLAIN v", "explain batch=false v"),
        ("EXPLAIN BATCH \"a b\"", "explain batch=true a b"),
        ("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1", "explain view v {}: SELECT 1"),
        ("EXPLAIN VERBOSE SELECT 1", "datafusion: EXPLAIN VERBOSE SELECT 1"),
        ("EXPLAIN FORMAT TREE SELECT 1", "datafusion: EXPLAIN FORMAT tree SELECT 1"),
        ("EXPLAIN (ANALYZE) SELECT 1", "datafusion: EXPLAIN ANALYZE SELECT 1"),
        ("DESCRIBE v$late", "describe v$late"),
        ("DESC materialized view V", "describe v"),
        ("DESCRIBE view", "describe view"),
        ("DESCRIBE a.b", "datafusion: DESCRIBE a.b"),
        ("SHOW SOURCES", "show sources"),
        ("show streams", "show sources"),
        ("SHOW VIEWS", "show views"),
        ("SHOW MATERIALIZED VIEWS", "show views"),
        ("SHOW JOBS", "show jobs"),
        ("SHOW SCHEDULES", "show schedules"),
        ("SHOW WATERMARKS", "show watermarks None"),
        ("SHOW WATERMARKS FOR Orders", "show watermarks Some(\"orders\")"),
        ("SHOW LATENESS", "show lateness None"),
        ("SHOW CREATE MATERIALIZED VIEW v", "show create v"),
        ("SHOW CREATE \"Table\"", "show create Table"),
        ("SHOW LATENESS v", "show lateness Some(\"v\")"),
        ("SHOW TABLES", "datafusion: SHOW TABLES"),
        ("SHOW ALL", "datafusion: SHOW ALL"),
        ("SHOW datafusion.execution.batch_size", "datafusion: SHOW datafusion execution batch_size"),
        ("DROP SOURCE s", "drop Source s"),
        ("DROP STREAM IF EXISTS s", "drop Source s if exists"),
        ("DROP MATERIALIZED VIEW v", "drop MaterializedView v"),
        ("DROP VIEW IF EXISTS \"V\"", "drop View V if exists"),
        ("DROP TABLE t", "drop Table t"),
        ("DROP FUNCTION f", "datafusion: DROP FUNCTION f"),
        ("PAUSE v", "pause v"),
        ("RESUME MATERIALIZED VIEW v", "resume v"),
        ("INSERT INTO S (A, \"B\") VALUES (1, 2)", "insert s [\"a\", \"B\"] VALUES (1, 2)"),
        ("INSERT INTO s SELECT a FROM t", "insert s [] SELECT a FROM t"),
        ("INSERT INTO a.b VALUES (1)", "datafusion: INSERT INTO a.b VALUES (1)"),
        ("CREATE VIEW v AS SELECT a FROM t", "macro v: SELECT a FROM t"),
        (
            "CREATE OR REPLACE MATERIALIZED VIEW v WITH (start = 'latest') AS SELECT a FROM t",
            "view v {\"start\": \"latest\"}: SELECT a FROM t",
        ),
        (
            "COPY (SELECT 1) TO 'x.parquet' STORED AS PARQUET",
            "datafusion: COPY (SELECT 1) TO x.parquet STORED AS PARQUET",
        ),
        ("SET datafusion.execution.batch_size = 7", "datafusion: SET datafusion.execution.batch_size = 7"),
        ("CREATE TABLE t AS SELECT 1", "datafusion: CREATE TABLE t AS SELECT 1"),
        ("ROLLBACK", "datafusion: ROLLBACK"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "select WITH x AS (SELECT 1) SELECT * FROM x"),
    ] {
        assert_eq!(summary(&one(sql)), expected, "{sql}");
    }
}

#[test]
fn wrong_statements_are_explained() {
    check_errors(&[
        ("SELCT k FROM t", "syntax 1:1: expected a statement, found `SELCT` (did you mean SELECT?)"),
        ("SUBSCRIB v", "syntax 1:1: expected a statement, found `SUBSCRIB` (did you mean SUBSCRIBE?)"),
        ("foo bar", "syntax 1:1: expected a statement, found `foo` (-)"),
        (
            "CREATE MATERALIZED VIEW v AS SELECT 1",
            "syntax 1:8: expected SOURCE, STREAM, MATERIALIZED VIEW, VIEW, SCHEDULE, TABLE or EXTERNAL TABLE, found `MATERALIZED` \
             (did you mean MATERIALIZED?)",
        ),
        (
            "CREATE MATERIALIZED VIEW v SELECT 1",
            "syntax 1:28: expected AS, found `SELECT` (write AS in front of the query)",
        ),
        (
            "CREATE MATERIALIZED VIEW v (a) AS SELECT 1",
            "unsupported 1:28: a view takes no list of columns (name the columns in the query: SELECT sum(total) AS revenue)",
        ),
        (
            "DROP VIEWS v",
            "syntax 1:6: expected SOURCE, STREAM, MATERIALIZED VIEW, VIEW, TABLE or SCHEDULE, found `VIEWS` (did you mean DROP VIEW?)",
        ),
        ("DROP VIEW a, b", "unsupported 1:12: DROP takes one name (write a DROP for each)"),
        (
            "DROP VIEW a CASCADE",
            "unsupported 1:13: DROP takes neither CASCADE nor RESTRICT (drop the views that read it first)",
        ),
        ("SUBSCRIBE v WITH SNAPSHOTS", "syntax 1:18: expected SNAPSHOT, found `SNAPSHOTS` (did you mean SNAPSHOT?)"),
        (
            "SUBSCRIBE v FROM x",
            "syntax 1:13: expected SINCE, EPOCH, WITH SNAPSHOT or the end of the statement, found `FROM` (-)",
        ),
        (
            "SHOW SORCES",
            "syntax 1:6: expected CREATE, SOURCES, VIEWS, JOBS, SCHEDULES, WATERMARKS, LATENESS, TABLES, COLUMNS, FUNCTIONS or ALL, \
             found `SORCES` (did you mean SOURCES?)",
        ),
        ("EXPLAIN", "syntax 1:8: expected a query to explain, found the end of the text (-)"),
        (
            "EXPLAIN SHOW JOBS",
            "unsupported 1:9: only what holds a query can be explained (DESCRIBE a source or view, or EXPLAIN its SELECT)",
        ),
        ("EXPLAIN BATCH ANALYZE SELECT 1", "syntax 1:15: ANALYZE goes before BATCH (write EXPLAIN ANALYZE BATCH)"),
        ("PAUSE v w", "syntax 1:9: expected the end of the statement, found `w` (-)"),
        ("SELECT 1 SELECT 2", &format!("syntax 1:10: expected {CLAUSES}, found `SELECT` (-)")),
        ("SELECT k FORM t", &format!("syntax 1:10: expected {CLAUSES}, found `FORM` (did you mean FROM?)")),
        (
            "SELECT k FROM SESSION(t, ts, INTERVAL '1 s') PARTITION BY k",
            &format!(
                "syntax 1:46: expected {CLAUSES}, found `PARTITION` (it belongs to the table: \
                 SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap))"
            ),
        ),
        ("SELECT k FROM t WHER x > 1", &format!("syntax 1:17: expected {CLAUSES}, found `WHER` (did you mean WHERE?)")),
        (
            "SELECT k FROM t GROPU BY k",
            &format!("syntax 1:17: expected {CLAUSES}, found `GROPU` (did you mean GROUP?)"),
        ),
        ("SELECT k FROM t AS form x", &format!("syntax 1:25: expected {CLAUSES}, found `x` (-)")),
        ("SELECT (1", "syntax 1:10: expected `)`, found the end of the text (-)"),
        ("SELECT 1)", &format!("syntax 1:9: expected {CLAUSES}, found `)` (-)")),
        ("SELECT a FROM t WHERE", "syntax 1:22: expected an expression, found the end of the text (-)"),
        ("SELECT 'abc", "syntax 1:8: this string has no end (close it with ', and double a ' inside it)"),
        ("SELECT \"abc", "syntax 1:8: this quoted name has no end (close it with the quote it starts with)"),
        ("SELECT 1 /* x", "syntax 1:10: this comment has no end (close it with */)"),
    ]);
}

#[test]
fn what_datafusion_would_drop_is_refused() {
    for sql in [
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
        "SELECT * FROM t WITH (NOLOCK)",
        "SELECT * FROM t VERSION AS OF 3",
        "SELECT * FROM t TIMESTAMP AS OF '2024-01-01'",
        "COPY (SELECT * FROM t TABLESAMPLE BERNOULLI (10)) TO 'x.csv'",
        "INSERT INTO s SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
    ] {
        let error = error(sql);
        assert!(error.starts_with("unsupported 1:"), "{error}");
    }
    for sql in ["SELECT 1 FROM t FORMAT json", "SELECT 1 FROM t SETTINGS a = 1", "SELECT a FROM t ORDER BY a WITH FILL"]
    {
        assert!(error(sql).starts_with("syntax 1:"), "{sql}");
    }
    // What MySQL would run from inside a comment is a comment.
    assert_eq!(select("SELECT 1 /*! + 1 */ FROM t").query.to_string(), "SELECT 1 FROM t");
}

#[test]
fn a_name_that_a_shell_took_gets_a_hint() {
    let hint = "(an empty name: between double quotes a shell replaces $late by nothing, so put the statement in single quotes)";
    for sql in [
        "SELECT * FROM",
        "SELECT * FROM ;",
        "SELECT * FROM  WHERE k = 1",
        "SELECT count(*) FROM (SELECT * FROM ) x",
        "SELECT * FROM v JOIN ",
        "SELECT * FROM \"\"",
        "SUBSCRIBE ",
        "SUBSCRIBE ;",
        "DESCRIBE",
    ] {
        let error = error(sql);
        assert!(error.ends_with(hint), "{sql}: {error}");
    }
    for sql in ["SELECT * FROM $late", "SUBSCRIBE $late"] {
        let error = error(sql);
        assert!(error.ends_with("found `$late` (put the view's name before it: my_view$late)"), "{error}");
    }
}

#[test]
fn as_of_is_kept_in_the_tree() {
    use datafusion::sql::sqlparser::ast::{SetExpr, TableFactor, TableVersion};
    let query = select("SELECT * FROM v FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-15T10:00:00Z' AS x");
    let SetExpr::Select(select) = *query.query.body else { panic!() };
    let TableFactor::Table { version: Some(TableVersion::ForSystemTimeAsOf(at)), alias: Some(alias), .. } =
        &select.from[0].relation
    else {
        panic!("{:?}", select.from)
    };
    assert_eq!((at.to_string().as_str(), alias.name.value.as_str()), ("TIMESTAMP '2024-01-15T10:00:00Z'", "x"));
}

#[test]
fn statements_know_where_they_start() {
    let starts: Vec<(u64, u64)> = parse_spanned("SELECT 1; -- one\n\n  PAUSE v;;\nSELECT 'č'; SELECT 4")
        .expect("statements")
        .iter()
        .map(|s| (s.position.line, s.position.column))
        .collect();
    assert_eq!(starts, [(1, 1), (3, 3), (4, 1), (4, 13)]);
    assert!(parse("").expect("nothing").is_empty());
    assert!(parse(" ;; -- nothing\n").expect("nothing").is_empty());
    assert_eq!(
        parse_one("SELECT 1; SELECT 2").expect_err("two").to_string(),
        "expected one statement, found a second one at line 1, column 11"
    );
    assert!(parse_one("").is_err());
}

#[test]
fn a_piece_is_read_at_its_place() {
    let text = "SELECT 'č'; SELECT\n  k FROM t EMIT\n NEVER; PAUSE v; SELECT 'x";
    let pieces = split_statements(text);
    let place = |i: usize| parse_piece(&pieces[i]).expect_err("wrong").position().map(|p| (p.line, p.column));
    assert_eq!(place(1), Some((3, 2)));
    assert_eq!(place(3), Some((3, 25)));
    let Statement::Select(first) = parse_piece(&pieces[0]).expect("right") else { panic!() };
    assert_eq!(first.text, "SELECT 'č'");
    let Statement::Pause { view } = parse_piece(&pieces[2]).expect("right") else { panic!() };
    assert_eq!((view.position.line, view.position.column), (3, 15));
    // All at once or piece by piece: the same trees with the same places.
    let text = "CREATE VIEW a AS SELECT k\nFROM ů;\n  SELECT 1 EMIT FINAL; DROP VIEW ž";
    let apart: Vec<Statement> = split_statements(text).iter().map(|p| parse_piece(p).expect("right")).collect();
    assert_eq!(format!("{apart:?}"), format!("{:?}", parse(text).expect("right")));
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    for (open, close) in [("(", ")"), ("NOT ", ""), ("- ", ""), ("abs(", ")"), ("CASE WHEN ", "")] {
        let sql = format!("SELECT {}1{}", open.repeat(5_000), close.repeat(5_000));
        let error = error(&sql);
        assert!(error.starts_with("syntax "), "{error}");
    }
}

#[test]
fn a_long_chain_of_operators_is_an_error_and_no_crash() {
    for operator in ["AND", "OR", "+", "||", "-"] {
        let chain = |n: usize| format!("SELECT {}", vec!["x"; n + 1].join(&format!(" {operator} ")));
        let error = error(&chain(100_000));
        assert!(error.contains("more than 1000 operators"), "{error}");
        assert!(crate::sql::parse_one(&chain(1_000)).is_ok());
    }
    // Lists are long and not deep.
    assert!(crate::sql::parse_one(&format!("SELECT {}", vec!["-1"; 20_000].join(","))).is_ok());
    assert!(crate::sql::parse(&"SELECT 1 + 1;".repeat(2_000)).is_ok());
}

/// Every SQL text a person may read or run is one this parser reads.
#[test]
fn the_shipped_sql_is_read() {
    fn texts(folder: &std::path::Path, ending: &str, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                texts(&path, ending, found);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push((path.display().to_string(), std::fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let (mut tour, mut slt) = (Vec::new(), Vec::new());
    texts(&root, "sql", &mut tour);
    texts(&root, "slt", &mut slt);
    let read = |name: &str, sql: &str| {
        if let Err(error) = parse(sql) {
            panic!("{name}\n{}", render(sql, &error));
        }
    };
    for (name, text) in &tour {
        read(name, text);
    }
    for (name, text) in &slt {
        for block in text.split("\n\n") {
            let mut lines = block.lines().skip_while(|l| l.starts_with('#'));
            let head = lines.next().unwrap_or_default();
            let body: Vec<&str> = lines.take_while(|l| *l != "----").collect();
            let is_sql = head == "statement ok" || (head.starts_with("query ") && !head.starts_with("query error"));
            if is_sql && !body.first().is_some_and(|l| l.starts_with('\\')) {
                read(name, &body.join("\n"));
            }
        }
    }
    assert!(tour.len() >= 10 && slt.len() >= 10, "the folders have moved");
}

// Drawing.

#[test]
fn an_error_is_drawn_under_its_line() {
    let draw = |sql: &str| render(sql, &parse(sql).expect_err(sql));
    assert_eq!(
        draw("SELECT k FROM t\n\tALLOWED LATENES INTERVAL '1 minute'"),
        "error: expected LATENESS, found `LATENES`
  --> line 2, column 10
   |
 2 |  ALLOWED LATENES INTERVAL '1 minute'
   |          ^^^^^^^
hint: did you mean ALLOWED LATENESS?
"
    );
    // Wide characters and combining marks: the caret is under the word all the same.
    assert_eq!(
        draw("SELECT '漢字', 'e\u{301}' FROM t EMITT CHANGES").lines().skip(3).take(2).collect::<Vec<_>>(),
        [" 1 | SELECT '漢字', 'e\u{301}' FROM t EMITT CHANGES", "   |                           ^^^^^"]
    );
    let long = format!(
        "SELECT {} FROM t EMITT CHANGES",
        (0..100).map(|i| format!("column_{i}")).collect::<Vec<_>>().join(", ")
    );
    let drawn = draw(&long);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(lines[3].starts_with(" 1 | …") && lines[3].chars().count() < 120, "{drawn}");
    let caret = lines[4].find('^').expect("a caret");
    assert_eq!(lines[3].chars().skip(caret).take(5).collect::<String>(), "EMITT");
    // At the end of the text, and for an error without a place.
    assert!(draw("SELECT k FROM t\nWHERE").contains(" 2 | WHERE\n   |      ^\n"));
    assert_eq!(render("SELECT 1", &crate::Error::invalid("no such table")), "error: no such table\n");
}
