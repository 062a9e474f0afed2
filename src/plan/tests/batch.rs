//! What batch plans compute over a few rows.

use super::{batch, batch_rows};

#[test]
fn c01_a_batch_tumbles_toward_minus_infinity() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, count(*) AS n, sum(v) AS total FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '60 seconds')
             GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+---+-------+
        | window_start         | n | total |
        +----------------------+---+-------+
        | 1969-12-31T23:58:00Z | 2 | 3     |
        | 1970-01-01T00:00:00Z | 6 | 33    |
        +----------------------+---+-------+
        "#
    );
}

#[test]
fn c05_a_batch_hops_by_any_slide() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, count(*) AS n
             FROM HOP(s, DESCRIPTOR(ts), INTERVAL '4 seconds', INTERVAL '10 seconds')
             WHERE v IN (5, 6, 7) GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+----------------------+---+
        | window_start         | window_end           | n |
        +----------------------+----------------------+---+
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 1 |
        | 1970-01-01T00:00:04Z | 1970-01-01T00:00:14Z | 3 |
        | 1970-01-01T00:00:08Z | 1970-01-01T00:00:18Z | 3 |
        | 1970-01-01T00:00:12Z | 1970-01-01T00:00:22Z | 1 |
        +----------------------+----------------------+---+
        "#
    );
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, count(*) AS n
             FROM HOP(s, DESCRIPTOR(ts), INTERVAL '10 seconds', INTERVAL '5 seconds')
             GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+----------------------+---+
        | window_start         | window_end           | n |
        +----------------------+----------------------+---+
        | 1969-12-31T23:58:00Z | 1969-12-31T23:58:05Z | 1 |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:05Z | 2 |
        | 1970-01-01T00:00:10Z | 1970-01-01T00:00:15Z | 2 |
        +----------------------+----------------------+---+
        "#
    );
}

#[test]
fn a_batch_cumulates() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, window_time, sum(v) AS total
             FROM CUMULATE(s, DESCRIPTOR(ts), INTERVAL '5 seconds', INTERVAL '20 seconds')
             WHERE v > 2 GROUP BY window_start, window_end, window_time ORDER BY 1, 2"
        ),
        @r#"
        +----------------------+----------------------+-----------------------------+-------+
        | window_start         | window_end           | window_time                 | total |
        +----------------------+----------------------+-----------------------------+-------+
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:05Z | 1970-01-01T00:00:04.999999Z | 7     |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 1970-01-01T00:00:09.999999Z | 12    |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:15Z | 1970-01-01T00:00:14.999999Z | 25    |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:20Z | 1970-01-01T00:00:19.999999Z | 33    |
        +----------------------+----------------------+-----------------------------+-------+
        "#
    );
}

#[test]
fn c19_sessions_of_a_batch_that_touch_stay_apart() {
    insta::assert_snapshot!(
        batch(
            "SELECT k, window_start, window_end, count(*) AS n
             FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end, k ORDER BY 1, 2"
        ),
        @r#"
        +---+--------------------------+--------------------------+---+
        | k | window_start             | window_end               | n |
        +---+--------------------------+--------------------------+---+
        | a | 1969-12-31T23:58:00Z     | 1969-12-31T23:58:10Z     | 1 |
        | a | 1969-12-31T23:58:59Z     | 1969-12-31T23:59:09Z     | 1 |
        | a | 1970-01-01T00:00:09Z     | 1970-01-01T00:00:22Z     | 2 |
        | b | 1970-01-01T00:00:00Z     | 1970-01-01T00:00:10Z     | 1 |
        | b | 1970-01-01T00:00:10Z     | 1970-01-01T00:00:20Z     | 1 |
        |   | 1970-01-01T00:00:04Z     | 1970-01-01T00:00:14Z     | 1 |
        |   | 1970-01-01T00:00:19.999Z | 1970-01-01T00:00:29.999Z | 1 |
        +---+--------------------------+--------------------------+---+
        "#
    );
}

#[test]
fn a_batch_knows_calendar_windows() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, count(*) AS n
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 day', TIME_ZONE => 'Asia/Kolkata')
             GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+----------------------+---+
        | window_start         | window_end           | n |
        +----------------------+----------------------+---+
        | 1969-12-31T18:30:00Z | 1970-01-01T18:30:00Z | 8 |
        +----------------------+----------------------+---+
        "#
    );
    insta::assert_snapshot!(
        batch("SELECT tumble(ts, INTERVAL '1 month') AS m, count(*) AS n FROM s GROUP BY m ORDER BY 2"),
        @r#"
        +----------------------------------------------------------+---+
        | m                                                        | n |
        +----------------------------------------------------------+---+
        | {start: 1969-12-01T00:00:00Z, end: 1970-01-01T00:00:00Z} | 2 |
        | {start: 1970-01-01T00:00:00Z, end: 1970-02-01T00:00:00Z} | 6 |
        +----------------------------------------------------------+---+
        "#
    );
}

#[test]
fn an_integer_sum_never_wraps() {
    let rows = "(VALUES (9223372036854775807, 9223372036854775807), (1, -1)) AS t(v, w)";
    insta::assert_snapshot!(
        batch(&format!("SELECT sum(w) AS fits FROM {rows}")),
        @r#"
        +---------------------+
        | fits                |
        +---------------------+
        | 9223372036854775806 |
        +---------------------+
        "#
    );
    let error = batch_rows(&format!("SELECT sum(v) AS total FROM {rows}")).expect_err("it does not fit");
    assert_eq!(error.kind(), crate::ErrorKind::Data);
    assert!(error.message().contains("a result is 9223372036854775808, which does not fit BIGINT"), "{error}");
}
