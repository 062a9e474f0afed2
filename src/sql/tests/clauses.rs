//! Queries, and the clauses behind them.

use super::super::statement::Clauses;
use super::{CLAUSES, check_errors, select};

#[test]
fn clauses_have_synonyms() {
    for (written, canonical) in [
        ("", ""),
        ("allowed lateness interval '1 hour'", "ALLOWED LATENESS INTERVAL '1 hour'"),
        ("ALLOW LATENESS INTERVAL '1' HOUR", "ALLOWED LATENESS INTERVAL '1 hour'"),
        ("GRACE PERIOD INTERVAL 1 HOUR", "ALLOWED LATENESS INTERVAL '1 hour'"),
        ("ALLOWED LATENESS INTERVAL '0 s'", "ALLOWED LATENESS INTERVAL '0 seconds'"),
        ("ON LATE UPDATE", "ON LATE UPDATE"),
        ("ON LATE UPDATE MAX 3 UPDATES", "ON LATE UPDATE MAX 3 UPDATES"),
        ("ON LATE UPDATE MAX 1 UPDATE", "ON LATE UPDATE MAX 1 UPDATES"),
        ("ON LATE DROP", "ON LATE DROP"),
        ("ON LATE SIDE OUTPUT", "ON LATE SIDE OUTPUT"),
        ("ON LATE RECOMPUTE", "ON LATE RECOMPUTE"),
        ("ON LATE RECOMPUTE EVERY INTERVAL '5 m'", "ON LATE RECOMPUTE EVERY INTERVAL '5 minutes'"),
        ("ON EXPIRED SIDE OUTPUT", "ON EXPIRED SIDE OUTPUT"),
        ("ON EXPIRED DROP", "ON EXPIRED DROP"),
        ("ON EXPIRED RECOMPUTE EVERY INTERVAL '5 m'", "ON EXPIRED RECOMPUTE EVERY INTERVAL '5 minutes'"),
        ("EMIT ON WINDOW CLOSE", "EMIT ON WINDOW CLOSE"),
        ("EMIT AFTER WINDOW CLOSE", "EMIT ON WINDOW CLOSE"),
        ("EMIT AFTER WATERMARK", "EMIT ON WINDOW CLOSE"),
        ("EMIT CHANGES", "EMIT CHANGES"),
        ("EMIT ON UPDATE", "EMIT CHANGES"),
        ("EMIT CHANGES EVERY INTERVAL '10 s'", "EMIT CHANGES EVERY INTERVAL '10 seconds'"),
        ("EMIT ON UPDATE EVERY INTERVAL '10 s'", "EMIT CHANGES EVERY INTERVAL '10 seconds'"),
        ("EMIT ON EXPIRY", "EMIT ON EXPIRY"),
        ("EMIT FINAL", "EMIT ON EXPIRY"),
        ("FINALIZE AFTER INTERVAL '1 day'", "FINALIZE AFTER INTERVAL '1 day'"),
    ] {
        let query = select(&format!("SELECT k FROM t {written}"));
        assert_eq!(
            (query.text.as_str(), query.clauses.to_string().as_str()),
            ("SELECT k FROM t", canonical),
            "{written}"
        );
        assert_eq!(query.clauses.is_streaming(), !written.is_empty());
    }
}

/// The clauses without their positions.
fn bare(clauses: &Clauses) -> String {
    clauses.to_string()
}

#[test]
fn clauses_come_in_any_order() {
    let mut all = [
        "ALLOWED LATENESS INTERVAL '1 hour'",
        "ON LATE UPDATE MAX 2 UPDATES",
        "ON EXPIRED DROP",
        "EMIT CHANGES EVERY INTERVAL '1 minute'",
        "FINALIZE AFTER INTERVAL '1 day'",
    ];
    let canonical = all.join(" ");
    // Heap's algorithm: each of the 120 orders once.
    let mut counters = [0; 5];
    let mut orders = 0;
    let mut i = 0;
    loop {
        orders += 1;
        assert_eq!(bare(&select(&format!("SELECT k FROM t GROUP BY k {}", all.join(" "))).clauses), canonical);
        while i < 5 && counters[i] >= i {
            counters[i] = 0;
            i += 1;
        }
        if i == 5 {
            break;
        }
        all.swap(if i % 2 == 0 { 0 } else { counters[i] }, i);
        counters[i] += 1;
        i = 0;
    }
    assert_eq!(orders, 120);
}

#[test]
fn the_query_keeps_its_text_letter_for_letter() {
    for prefix in [
        "SELECT k FROM t",
        "select  K,\n\tcount( * )  -- EMIT CHANGES\n from T /* ON LATE DROP */ group by k",
        "SELECT 'EMIT CHANGES', 'it''s ALLOWED LATENESS' FROM t",
        "SELECT \"emit\", \"ON LATE\" AS \"FINALIZE AFTER\" FROM \"GRACE PERIOD\"",
        "SELECT 1 AS emit, 2 grace, 3 AS allowed FROM t AS emit",
        "SELECT emit.grace FROM t AS emit WHERE emit.late = 1",
        "WITH emit AS (SELECT 1 AS changes) SELECT changes FROM emit",
        "SELECT a FROM (SELECT b FROM u) AS x JOIN y ON x.late = y.late",
        "SELECT a FROM x CROSS JOIN y",
        "SELECT a FROM x JOIN y USING (k)",
        "SELECT a FROM x UNION ALL SELECT b FROM y",
        "(SELECT a FROM x)",
        "VALUES (1, 'EMIT')",
        "FROM t SELECT a",
        "SELECT a FROM t ORDER BY a DESC LIMIT 10 OFFSET 5",
        "SELECT a, count(*) FROM t GROUP BY a HAVING count(*) > 1",
        "SELECT a, row_number() OVER w FROM t WINDOW w AS (PARTITION BY a)",
        "SELECT a FROM v$late",
        "SELECT a FROM v$history FOR SYSTEM_TIME AS OF '2024-01-15T10:00:00Z' AS h",
        "SELECT a FROM s$rejects r",
        "SELECT a FROM t WHERE ts > now() - INTERVAL '1 hour'",
        "SELECT '🐎 žluťoučký' FROM t",
        "SELECT $$ EMIT CHANGES $$ FROM t",
    ] {
        for clauses in [
            "",
            "EMIT CHANGES",
            "ON LATE DROP EMIT FINAL",
            "GRACE PERIOD INTERVAL '1 m'",
            "FINALIZE AFTER INTERVAL '1 d'",
        ] {
            let query = select(&format!("{prefix} {clauses} ;"));
            assert_eq!(query.text, prefix);
            assert_eq!(query.clauses.is_streaming(), !clauses.is_empty(), "{prefix} {clauses}");
        }
    }
}

#[test]
fn c126_words_that_are_no_clause() {
    check_errors(&[
        (
            "SELECT k FROM t GROUP BY k EMIT ON WINDOW CLOSE ALLOWED LATENES INTERVAL '1 minute'",
            "syntax 1:57: expected LATENESS, found `LATENES` (did you mean ALLOWED LATENESS?)",
        ),
        (
            "SELECT k FROM t ALOWED LATENESS INTERVAL '1 minute'",
            &format!("syntax 1:17: expected {CLAUSES}, found `ALOWED` (did you mean ALLOWED LATENESS?)"),
        ),
        (
            "SELECT k FROM t\nGROUP BY k\n  EMITT CHANGES",
            &format!("syntax 3:3: expected {CLAUSES}, found `EMITT` (did you mean EMIT CHANGES?)"),
        ),
        (
            "SELECT k FROM t EMIT CHANGES ALLOWED LATENESS INTERVAL '1 minute' EMIT ON WINDOW CLOSE",
            "syntax 1:67: EMIT is given twice (the first one is at line 1, column 17; keep one of them)",
        ),
        (
            "SELECT k FROM t GRACE PERIOD INTERVAL '1 m' ALLOWED LATENESS INTERVAL '1 m'",
            "syntax 1:45: ALLOWED LATENESS is given twice (the first one is at line 1, column 17; keep one of them)",
        ),
        ("SELECT k FROM t ON LAT DROP", "syntax 1:20: expected LATE or EXPIRED, found `LAT` (did you mean ON LATE?)"),
        (
            "SELECT k FROM t ON LATE UPDATED",
            "syntax 1:25: expected UPDATE, DROP, SIDE OUTPUT or RECOMPUTE, found `UPDATED` (did you mean ON LATE UPDATE?)",
        ),
        ("SELECT k FROM t ON LATE SIDE", "syntax 1:29: expected OUTPUT, found the end of the text (-)"),
        (
            "SELECT k FROM t EMIT ON WINDOW CLSE",
            "syntax 1:32: expected CLOSE, found `CLSE` (did you mean EMIT ON WINDOW CLOSE?)",
        ),
        (
            "SELECT k FROM t EMIT WINDOW CLOSE",
            "syntax 1:22: expected ON WINDOW CLOSE, AFTER WINDOW CLOSE, AFTER WATERMARK, CHANGES, ON UPDATE, ON EXPIRY or FINAL, \
             found `WINDOW` (did you mean EMIT ON WINDOW CLOSE?)",
        ),
        (
            "SELECT k FROM t ON EXPIRED UPDATE",
            "syntax 1:28: an expired window has no state left that could be updated (raise ALLOWED LATENESS, or write ON EXPIRED RECOMPUTE)",
        ),
        (
            "SELECT k FROM t ON LATE UPDATE MAX ten UPDATES",
            "syntax 1:36: expected a number of updates, found `ten` (-)",
        ),
        (
            "SELECT k FROM t EMIT CHANGES, ON LATE DROP",
            "syntax 1:29: expected ALLOWED LATENESS, ON LATE, ON EXPIRED, FINALIZE AFTER or the end of the statement, found `,` (-)",
        ),
        (
            "SELECT a FROM t JOIN u ON LATE DROP",
            &format!(
                "syntax 1:32: expected {CLAUSES}, found `DROP` (the join before it took ON for its own; give the join a condition first)"
            ),
        ),
        (
            "SELECT * FROM (SELECT k FROM t EMIT CHANGES) x",
            "syntax 1:32: EMIT CHANGES belongs to the whole statement, not to a query in parentheses \
             (write it behind the last closing parenthesis)",
        ),
        (
            "CREATE VIEW v AS SELECT 1 FROM t EMIT CHANGES",
            "syntax 1:34: a plain view is a macro and takes no clauses \
             (write CREATE MATERIALIZED VIEW, or put the clauses behind the query that reads the view)",
        ),
    ]);
}

#[test]
fn lengths_in_clauses_are_checked() {
    check_errors(&[
        (
            "SELECT k FROM t ALLOWED LATENESS 5 minutes",
            "syntax 1:34: expected INTERVAL, found `5` (write a length as INTERVAL '5 minutes')",
        ),
        (
            "SELECT k FROM t ALLOWED LATENESS INTERVAL five minutes",
            "syntax 1:43: expected a length in quotes, found `five` (write a length as INTERVAL '5 minutes')",
        ),
        (
            "SELECT k FROM t ALLOWED LATENESS INTERVAL 1 hour 30 minutes",
            "syntax 1:50: expected the end of the interval, found `30` \
             (put a length of several units in quotes: INTERVAL '1 hour 30 minutes')",
        ),
        (
            "SELECT k FROM t ALLOWED LATENESS INTERVAL '-5 minutes'",
            "invalid 1:34: allowed lateness must not be negative, is `-5 minutes` (-)",
        ),
        (
            "SELECT k FROM t EMIT CHANGES EVERY INTERVAL '0 s'",
            "invalid 1:36: EVERY must be above zero, is `0 seconds` (-)",
        ),
        (
            "SELECT k FROM t ON LATE UPDATE MAX 99999999999 UPDATES",
            "invalid 1:36: expected a number of updates, found `99999999999`, which is out of range (-)",
        ),
    ]);
}
