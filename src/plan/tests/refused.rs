//! What no plan is made for, and what is said then.

use super::error;

#[test]
fn what_a_stream_cannot_do_is_refused_with_what_would_work() {
    const COUNTS: &str = "SELECT window_start, window_end, k, count(*) AS n
        FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end, k";
    let cases = [
        "SELECT k, count(*) FROM s GROUP BY k".to_owned(),
        "SELECT DISTINCT k FROM s".to_owned(),
        "SELECT k, row_number() OVER (ORDER BY v) FROM s".to_owned(),
        "SELECT a.k FROM s AS a JOIN s2 AS b ON a.k = b.k".to_owned(),
        format!("{COUNTS} ORDER BY n"),
        format!("{COUNTS} LIMIT 5"),
        format!("SELECT k, sum(n) FROM ({COUNTS}) GROUP BY k"),
        format!("SELECT k, rank() OVER (ORDER BY n) FROM ({COUNTS})"),
        format!("SELECT DISTINCT k FROM ({COUNTS})"),
        "SELECT window_start, now() AS at, count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour')
            GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') WHERE random() > 0.5
            GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT k, count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY k".to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(v), INTERVAL '1 hour') GROUP BY window_start, window_end".to_owned(),
        "SELECT count(*) FROM TUMBLE((SELECT arrow_cast(v, 'Timestamp(Microsecond, Some(\"UTC\"))') AS at, ts FROM s), \
         DESCRIPTOR(at), INTERVAL '1 hour') GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE((SELECT TIMESTAMP '2024-01-01' AS at FROM names), DESCRIPTOR(at), INTERVAL '1 hour') \
         GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(names, DESCRIPTOR(name), INTERVAL '1 hour') GROUP BY window_start, window_end".to_owned(),
        "SELECT window_start, k, count(*) FROM SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL '1 hour')
            GROUP BY window_start, window_end, k"
            .to_owned(),
        "SELECT window_start, count(*) FROM CUMULATE(s, DESCRIPTOR(ts), INTERVAL '1 hour', INTERVAL '1 day')
            GROUP BY window_start"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') WHERE ts < window_start + INTERVAL '5 minutes'
            GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM s GROUP BY tumble(ts, INTERVAL '1 hour'), hop(ts, INTERVAL '1 hour', INTERVAL '2 hours')"
            .to_owned(),
        "SELECT tumble(ts, INTERVAL '1 hour') FROM s".to_owned(),
        "SELECT missing FROM s".to_owned(),
        "SELECT k FROM missing".to_owned(),
        "SELECT k FROM names FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'".to_owned(),
        "SELECT k FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour')".to_owned(),
        "SELECT count(*) FROM TUMBLE((SELECT window_start, ts FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour')),
            DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY CUBE(window_start, k)".to_owned(),
    ];
    let mut text = String::new();
    for sql in cases {
        let error = error(&sql);
        let hint = error.hint().unwrap_or("-");
        text += &format!("{:?}: {error}\n    hint: {hint}\n", error.kind());
    }
    insta::assert_snapshot!(text, @r#"
    Unsupported: aggregate over a stream without a window: it would never be complete
        hint: read FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1 minute') and add window_start, window_end to GROUP BY
    Unsupported: DISTINCT before a window
        hint: GROUP BY the columns within the window
    Unsupported: OVER across windows
        hint: PARTITION BY window_start, window_end, or compute it when reading the view
    Unsupported: join of two streams
        hint: join with a table, or join the two views when reading them
    Unsupported: ORDER BY over the whole result of a stream
        hint: ORDER BY when reading the view
    Unsupported: LIMIT over the whole result of a stream
        hint: LIMIT when reading the view, or rank per window with row_number()
    Unsupported: aggregate across windows: `sum(n)`
        hint: group by window_start, window_end, put a second window over the results, or aggregate the view
    Unsupported: OVER across windows: `rank() ORDER BY [n ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW`
        hint: PARTITION BY window_start, window_end, or compute it when reading the view
    Unsupported: DISTINCT across windows
        hint: select window_start and window_end too, or use DISTINCT when reading the view
    Invalid: function `now()` in a view: it reads the clock or the session, so live and batch could not agree
        hint: use the event time, or a column of the row
    Invalid: function `random()` in a view: it gives another value each time, so live and batch could not agree
        hint: use the event time, or a column of the row
    Invalid: GROUP BY leaves out the window
        hint: add window_start, window_end to GROUP BY
    Invalid: a window over `s.v`, which is no time but BIGINT at line 1, column 43
        hint: declare the column TIMESTAMP(0), (3), (6) or (9) to read integers as s, ms, µs or ns
    Invalid: window over column `at`, which is not the source's event time `ts`
        hint: use ts, the column of the WATERMARK FOR clause
    Unsupported: streaming read of `names`, which is no source
        hint: declare it with CREATE SOURCE … WATERMARK FOR …, or leave out ALLOWED LATENESS and EMIT to run a batch query
    Invalid: a window over `names.name`, which is no time but VARCHAR at line 1, column 47
        hint: declare the column TIMESTAMP(0), (3), (6) or (9) to read integers as s, ms, µs or ns
    Invalid: SESSION without PARTITION BY beside the keys k in GROUP BY
        hint: write SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap), or GROUP BY session(ts, gap), k
    Unsupported: GROUP BY window_start alone over CUMULATE, whose windows share a start
        hint: add window_end to GROUP BY
    Unsupported: predicate `s.ts < window_start + IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 300000000000 }` that compares columns of the row with those of its window
        hint: split it: conditions on the row in WHERE, conditions on the window in HAVING
    Unsupported: GROUP BY of two windows at line 1, column 33
        hint: declare one view per window
    Invalid: TUMBLE is not in GROUP BY at line 1, column 8
        hint: group by the same call, or use it in FROM
    Invalid: no column `missing` at line 1, column 8
        hint: there are ts, k, v, x, pad
    Invalid: table 'missing' not found at line 1, column 15
        hint: -
    Unsupported: FOR SYSTEM_TIME AS OF on `names`, which is no materialized view at line 1, column 53
        hint: only the results of a materialized view keep their past
    Unsupported: rows of a window without an aggregate over them
        hint: GROUP BY window_start, window_end
    Invalid: the input of TUMBLE already has a column `window_start` at line 1, column 22
        hint: give the inner window's columns other names with AS
    Unsupported: GROUPING SETS, CUBE and ROLLUP over a window
        hint: declare one view per grouping, or aggregate the view when reading it
    "#);
}

#[test]
fn clauses_that_could_do_nothing_are_refused() {
    const COUNT: &str =
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start, window_end";
    let mut text = String::new();
    for clauses in [
        "ON LATE DROP",
        "ALLOWED LATENESS INTERVAL '1 month'",
        "ALLOWED LATENESS INTERVAL '1 hour' ON LATE RECOMPUTE",
        "ON EXPIRED RECOMPUTE",
        "EMIT CHANGES EVERY INTERVAL '0 seconds'",
    ] {
        let error = match crate::sql::parse_one(&format!("{COUNT} {clauses}")) {
            Err(error) => error,
            Ok(_) => error(&format!("{COUNT} {clauses}")),
        };
        text += &format!("{error}\n    hint: {}\n", error.hint().unwrap_or("-"));
    }
    insta::assert_snapshot!(text, @r#"
    ON LATE without ALLOWED LATENESS: no row would ever be late, only expired at line 1, column 101
        hint: add ALLOWED LATENESS INTERVAL '1 hour', or use ON EXPIRED
    ALLOWED LATENESS must be a length of days or less, not negative at line 1, column 101
        hint: months differ in length: say 30 days
    ON LATE RECOMPUTE without a batch location to compute from at line 1, column 136
        hint: give the source batch_location = '…' in WITH ( … )
    ON EXPIRED RECOMPUTE without a batch location to compute from at line 1, column 101
        hint: give the source batch_location = '…' in WITH ( … )
    EVERY must be above zero, is `0 seconds` at line 1, column 120
        hint: -
    "#);
}
