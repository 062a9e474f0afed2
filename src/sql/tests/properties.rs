//! Any text is read or refused, at a place inside it.

use proptest::prelude::*;

use super::super::*;
use crate::error::Result;

const SOUP: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "t",
    "k",
    "v$late",
    "$late",
    "\"Q\"",
    "`b`",
    "(",
    ")",
    ",",
    ";",
    "*",
    "=",
    "=>",
    "<",
    ">",
    "'text'",
    "1",
    "2.5",
    "-",
    "+",
    "INTERVAL",
    "'1 hour'",
    "HOUR",
    "TO",
    "MINUTE",
    "TABLE",
    "TUMBLE",
    "HOP",
    "SESSION",
    "DESCRIPTOR",
    "PARTITION",
    "CREATE",
    "SOURCE",
    "STREAM",
    "VIEW",
    "MATERIALIZED",
    "WITH",
    "AS",
    "ON",
    "LATE",
    "EXPIRED",
    "UPDATE",
    "MAX",
    "UPDATES",
    "DROP",
    "SIDE",
    "OUTPUT",
    "RECOMPUTE",
    "EVERY",
    "EMIT",
    "CHANGES",
    "WINDOW",
    "CLOSE",
    "AFTER",
    "WATERMARK",
    "FINAL",
    "FINALIZE",
    "REPROCESS",
    "PATCH",
    "VERIFY",
    "ROLLBACK",
    "SCHEDULE",
    "CRON",
    "LOOKBACK",
    "REASON",
    "FORCE",
    "USING",
    "VERSION",
    "RESTART",
    "CANCEL",
    "JOB",
    "VACUUM",
    "ALLOWED",
    "LATENESS",
    "GRACE",
    "PERIOD",
    "FOR",
    "SYSTEM_TIME",
    "OF",
    "PER",
    "KEY",
    "TIMEOUT",
    "IDLE",
    "PUNCTUATED",
    "WHEN",
    "SUBSCRIBE",
    "SINCE",
    "EPOCH",
    "EXPLAIN",
    "ANALYZE",
    "BATCH",
    "SHOW",
    "DESCRIBE",
    "INSERT",
    "INTO",
    "VALUES",
    "ROW",
    "STRUCT",
    "INT",
    "TIMESTAMP",
    "METADATA",
    "JOIN",
    "UNION",
    "ALL",
    "--x\n",
    "/*c*/",
    "\n",
    ".",
    "::",
    "'",
    "\"",
    "/*",
    "$$",
    "🐎",
    "IF",
    "NOT",
    "EXISTS",
    "OR",
    "REPLACE",
    "COPY",
    "SET",
];

fn is_within(text: &str, error: &crate::Error) -> bool {
    let Some(position) = error.position() else { return true };
    let lines: Vec<&str> = text.split('\n').collect();
    let line = position.line.checked_sub(1).and_then(|l| lines.get(usize::try_from(l).ok()?));
    line.is_some_and(|l| (1..=l.chars().count() as u64 + 1).contains(&position.column))
}

const VALID: &str = "CREATE MATERIALIZED VIEW v AS SELECT k , count ( * ) AS n FROM TUMBLE ( TABLE t , DESCRIPTOR ( ts ) , INTERVAL '1 hour' ) \
     WHERE k > 1 GROUP BY k ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 3 UPDATES ON EXPIRED RECOMPUTE EVERY INTERVAL '5 m' \
     EMIT CHANGES EVERY INTERVAL '10 s' FINALIZE AFTER INTERVAL '1 day'";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Catches panics and errors that point outside the text. Cannot catch a wrong reading.
    #[test]
    fn any_row_of_tokens_is_read_or_refused(words in proptest::collection::vec(proptest::sample::select(SOUP), 0..40)) {
        let text = words.join(" ");
        if let Err(error) = parse(&text) {
            prop_assert!(is_within(&text, &error), "{text}: {error}");
            prop_assert!(error.position().is_some() || error.message().contains("nested"), "{text}: {error}");
            let _ = render(&text, &error);
        }
        let _ = is_complete(&text);
        let pieces = split_statements(&text);
        prop_assert!(pieces.iter().all(|p| !p.text.trim().is_empty()));
    }

    /// As above, over characters instead of words.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        if let Err(error) = parse(&text) {
            prop_assert!(is_within(&text, &error), "{text}: {error}");
            let _ = render(&text, &error);
        }
    }

    /// C126 at every place: no stray word in the clauses is accepted and ignored.
    #[test]
    fn c126_no_word_among_the_clauses_is_ignored(place in 33..59_usize, word in "[a-z]{2,9}") {
        let mut words: Vec<&str> = VALID.split(' ').collect();
        words.insert(place.min(words.len()), &word);
        let text = words.join(" ");
        let read: Result<Statement> = parse_one(&text);
        prop_assert!(read.is_err(), "{text}");
    }

    /// A statement read alone is the statement read among others.
    #[test]
    fn pieces_are_statements(count in 1..5_usize) {
        let text = vec![VALID; count].join(" ;\n");
        prop_assert_eq!(parse(&text).expect("valid").len(), count);
        for piece in split_statements(&text) {
            prop_assert_eq!(piece.text, VALID);
        }
    }
}
