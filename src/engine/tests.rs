//! The engine end to end, in memory.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;
use futures::StreamExt;

use super::{Engine, Outcome};
use crate::clock::ManualClock;
use crate::error::{ErrorKind, Result};
use crate::results::Since;
use crate::runtime::Epochs;

fn data(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sql/data").join(name).display().to_string()
}

async fn engine() -> Engine {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    Engine::builder().in_memory().epochs(Epochs::Manual).clock(clock).build().await.expect("in memory")
}

async fn text(engine: &Engine, sql: &str) -> String {
    let rows = engine.execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.hint())).collect().await;
    let rows = rows.unwrap_or_else(|e| panic!("{sql}: {e}"));
    pretty_format_batches(&rows).expect("a table").to_string()
}

async fn done(engine: &Engine, sql: &str) -> Result<()> {
    engine.execute(sql).await.map(|outcome| assert!(matches!(outcome, Outcome::Done { .. })))
}

const ORDERS: &str = "CREATE SOURCE orders (ts TIMESTAMP(0), k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts) \
                      WITH (connector = 'push')";

#[tokio::test(flavor = "multi_thread")]
async fn c45_final_waits_for_lateness() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(
        &engine,
        "CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM TUMBLE(orders, ts, INTERVAL '1 minute') \
         GROUP BY window_start ALLOWED LATENESS INTERVAL '15 seconds'",
    )
    .await
    .unwrap();
    for seconds in [0, 30, 61, 40, 76] {
        done(&engine, &format!("INSERT INTO orders VALUES (to_timestamp({seconds}), 'a', 1)")).await.unwrap();
        engine.epoch("v").await.unwrap();
    }
    let history = text(&engine, "SELECT n, _version, _reason FROM v$history ORDER BY window_start, _version").await;
    assert_eq!(
        history.lines().collect::<Vec<_>>(),
        [
            "+---+----------+-----------+",
            "| n | _version | _reason   |",
            "+---+----------+-----------+",
            "| 2 | 1        | initial   |",
            "| 3 | 2        | late_data |",
            "+---+----------+-----------+",
        ]
    );
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_days_of_departures() {
    let engine = engine().await;
    let path = data("flights-2013-01-01_03.jsonl");
    done(
        &engine,
        &format!(
            "CREATE SOURCE f (scheduled TIMESTAMP, origin VARCHAR, status VARCHAR, dep_delay DOUBLE, \
             WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes') \
             WITH (connector = 'file', path = '{path}', format = 'json')"
        ),
    )
    .await
    .unwrap();
    done(
        &engine,
        "CREATE MATERIALIZED VIEW v AS SELECT window_start, origin, count(*) AS n, avg(dep_delay) AS d \
         FROM TUMBLE(TABLE f, DESCRIPTOR(scheduled), INTERVAL '1 hour') WHERE status = 'departed' \
         GROUP BY window_start, window_end, origin \
         ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE ON EXPIRED SIDE OUTPUT",
    )
    .await
    .unwrap();
    engine.wait_for_bounded().await.unwrap();
    let accepted = text(&engine, "SELECT count(*) AS results, sum(n) AS flights FROM v").await;
    assert!(accepted.contains("| 154     | 2463    |"), "{accepted}");
    let expired = text(&engine, "SELECT count(*) AS expired FROM v$late").await;
    assert!(expired.contains("| 58      |"), "{expired}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_copied_and_kept_by_datafusions_statements() {
    let engine = engine().await;
    let source = format!(
        "CREATE SOURCE visits (at TIMESTAMP, visitor VARCHAR, WATERMARK FOR at AS at) WITH (connector = 'file', path = '{}')",
        data("visits.csv")
    );
    done(&engine, &source).await.unwrap();
    let view = "CREATE MATERIALIZED VIEW v AS SELECT visitor, count(*) AS n \
                FROM TUMBLE(visits, at, INTERVAL '1 hour') GROUP BY window_start, visitor";
    done(&engine, view).await.unwrap();
    engine.wait_for_bounded().await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("v.csv").display().to_string();
    text(&engine, &format!("COPY (SELECT visitor, n FROM v ORDER BY visitor) TO '{file}' STORED AS CSV")).await;
    let copied = std::fs::read_to_string(&file).unwrap();
    assert_eq!(copied, "visitor,n\nann,4\nbob,3\ncat,1\n");
    let all = folder.path().join("all.parquet").display().to_string();
    let answer = text(&engine, &format!("COPY v TO '{all}' STORED AS PARQUET")).await;
    assert!(answer.contains("| 3     |"), "{answer}");

    done(&engine, "CREATE TABLE kept AS SELECT visitor, n FROM v").await.unwrap();
    text(&engine, "INSERT INTO kept SELECT visitor, 10 * n FROM v WHERE n > 3").await;
    text(&engine, "INSERT INTO kept VALUES ('dan', 1)").await;
    let sum = text(&engine, "SELECT sum(n) AS n FROM kept").await;
    assert!(sum.contains("| 49 |"), "{sum}");
}

const COUNT: &str = "SELECT window_start, count(*) AS n, sum(v) AS total \
                     FROM TUMBLE(orders, ts, INTERVAL '1 minute') GROUP BY window_start";

/// Rows of `orders`: one per second from `seconds` on.
fn rows(seconds: std::ops::Range<i64>) -> RecordBatch {
    let n = seconds.clone().count();
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new("k", DataType::Utf8, true),
        Field::new("v", DataType::Int64, true),
    ]);
    let times = seconds.clone().map(|second| second * 1_000_000);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n("a", n))),
        Arc::new(Int64Array::from_iter_values(seconds)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns of one length")
}

#[tokio::test(flavor = "multi_thread")]
async fn c122_an_epoch_covers_every_row_pushed_before_it() {
    for batch in [1, 256, 1024] {
        let engine = engine().await;
        done(&engine, ORDERS).await.unwrap();
        done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
        let orders = engine.push_handle("orders").unwrap();
        let mut pushed = 0;
        for round in 1..=20 {
            let until = round * if batch == 1 { 100 } else { 10_000 };
            while pushed < until {
                let end = until.min(pushed + batch);
                orders.push(rows(pushed..end)).await.unwrap();
                pushed = end;
            }
            engine.epoch("v").await.unwrap();
            let progress = &engine.progress()[0];
            assert_eq!((progress.rows, progress.expired, progress.rejected), (pushed as u64, 0, 0));
            assert_eq!(progress.watermark_us, Some((pushed - 1) * 1_000_000));
        }
        orders.close();
        engine.epoch("v").await.unwrap();
        let counted = text(&engine, "SELECT sum(n) AS n FROM v").await;
        assert!(counted.contains(&format!("| {pushed} ")), "{counted}");
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c125_an_epoch_covers_a_pushed_watermark() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    let orders = engine.push_handle("orders").unwrap();
    for second in 0..10 {
        orders.push(rows(second..second + 1)).await.unwrap();
    }
    orders.advance_watermark(60_000_000).unwrap();
    engine.epoch("v").await.unwrap();
    assert_eq!(engine.progress()[0].watermark_us, Some(60_000_000));
    let closed = text(&engine, "SELECT n, total FROM v").await;
    assert!(closed.contains("| 10 | 45    |"), "{closed}");
    assert_eq!(engine.progress()[0].expired, 0);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_made_later_counts_what_is_pushed_after_it() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW early AS {COUNT}")).await.unwrap();
    let orders = engine.push_handle("orders").unwrap();
    orders.push(rows(0..10)).await.unwrap();
    engine.epoch("early").await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW late AS {COUNT}")).await.unwrap();
    engine.epoch("late").await.unwrap();
    orders.push(rows(10..15)).await.unwrap();
    orders.close();
    for (view, n) in [("early", 15), ("late", 5)] {
        engine.epoch(view).await.unwrap();
        let counted = text(&engine, &format!("SELECT n FROM {view}")).await;
        assert!(counted.contains(&format!("| {n} ")), "{view}: {counted}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c127_the_end_of_pushed_input_closes_windows_and_subscriptions() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    let mut versions = engine.subscribe("v", Since::Now).unwrap();
    let orders = engine.push_handle("orders").unwrap();
    orders.push(rows(0..90)).await.unwrap();
    orders.close();
    let mut results = 0;
    while let Some((_, rows)) = versions.next().await.unwrap() {
        results += rows.num_rows();
    }
    assert_eq!(results, 2, "both windows have closed");
    engine.shutdown().await.unwrap();
}

/// A view of `orders` whose job fails as soon as more than one row is rejected.
async fn engine_with_a_failing_view() -> Engine {
    let engine = engine().await;
    let strict = ORDERS.replace("'push'", "'push', max_rejects = '1'");
    done(&engine, &strict).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rejects_than_allowed_stop_the_job_and_every_push() {
    let engine = engine_with_a_failing_view().await;
    done(&engine, "INSERT INTO orders VALUES (NULL, 'a', 1), (to_timestamp(1), 'b', 2)").await.unwrap();
    engine.epoch("v").await.unwrap();
    assert!(engine.progress()[0].error.is_none(), "one is allowed");
    done(&engine, "INSERT INTO orders VALUES (NULL, 'c', 3)").await.unwrap();
    let error = engine.epoch("v").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    let said = "`v` failed: more rows of source `orders` were rejected than max_rejects=`1` allows, the first at \
                orders row 0: the event time is NULL: {\"k\":\"a\",\"v\":1}";
    assert_eq!(error.message(), said);
    assert!(error.hint().is_some_and(|hint| hint.contains("orders$rejects")));

    let orders = engine.push_handle("orders").unwrap();
    let refused = orders.push(rows(0..1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert!(refused.message().contains(said), "{refused}");
    assert!(orders.try_push(rows(0..1)).is_err());

    let shown = text(&engine, "SHOW JOBS").await;
    assert!(shown.contains("failed") && shown.contains("max_rejects=`1`"), "{shown}");
    let progress = &engine.progress()[0];
    assert!(progress.done && progress.error.as_ref().is_some_and(|e| e.kind() == ErrorKind::Data));
    let rejects = text(&engine, "SELECT raw FROM orders$rejects").await;
    assert_eq!(rejects.matches("\"k\"").count(), 2, "those that stopped it can be looked at: {rejects}");
    assert_eq!(engine.shutdown().await.unwrap_err().kind(), ErrorKind::Data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_leaves_the_others_running() {
    let engine = engine_with_a_failing_view().await;
    done(&engine, "CREATE SOURCE others (ts TIMESTAMP(0), v BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'push')")
        .await
        .unwrap();
    let over_others = COUNT.replace("orders", "others");
    done(&engine, &format!("CREATE MATERIALIZED VIEW w AS {over_others}")).await.unwrap();
    done(&engine, "INSERT INTO orders VALUES (NULL, 'a', 1), (NULL, 'b', 2)").await.unwrap();
    assert!(engine.epoch("v").await.is_err());
    done(&engine, "INSERT INTO others VALUES (to_timestamp(1), 1), (to_timestamp(61), 2)").await.unwrap();
    engine.epoch("w").await.unwrap();
    let counted = text(&engine, "SELECT n FROM w").await;
    assert!(counted.contains("| 1 |"), "{counted}");
    // A view made anew reads what is pushed from then on.
    done(&engine, "DROP MATERIALIZED VIEW v").await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    done(&engine, "INSERT INTO orders VALUES (to_timestamp(1), 'a', 1), (to_timestamp(60), 'a', 1)").await.unwrap();
    engine.epoch("v").await.unwrap();
    let counted = text(&engine, "SELECT n FROM v").await;
    assert!(counted.contains("| 1 |"), "{counted}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_waits_for_room_is_told_that_the_job_failed() {
    let engine = engine().await;
    let strict = ORDERS.replace("'push'", "'push', max_rejects = '0', queue_rows = '10'");
    done(&engine, &strict).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    done(&engine, "PAUSE v").await.unwrap();
    let orders = engine.push_handle("orders").unwrap();
    done(&engine, "INSERT INTO orders VALUES (NULL, 'a', 1)").await.unwrap();
    // A paused job holds a few batches; the log holds ten rows more.
    let waiting = tokio::spawn(async move {
        for second in 0.. {
            orders.push(rows(second..second + 10)).await?;
        }
        Ok::<_, crate::Error>(())
    });
    done(&engine, "RESUME v").await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.message().contains("max_rejects=`0`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c87_a_split_far_ahead_is_paused_and_nothing_is_lost() {
    let engine = engine().await;
    let limited = ORDERS.replace("'push'", "'push', max_ahead = '100 seconds', queue_rows = '10'");
    done(&engine, &limited).await.unwrap();
    let ahead = engine.push_handle("orders").unwrap();
    let behind = ahead.split("slow");
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    behind.push(rows(50..51)).await.unwrap();
    engine.epoch("v").await.unwrap();
    let pushing = tokio::spawn({
        let ahead = ahead.clone();
        async move {
            for second in 0..1000 {
                ahead.push(rows(second..second + 1)).await?;
            }
            Ok::<_, crate::Error>(())
        }
    });
    while engine.progress()[0].rows < 150 {
        engine.epoch("v").await.unwrap();
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        engine.epoch("v").await.unwrap();
        tokio::task::yield_now().await;
    }
    // 150 s is as far as it may be ahead of 50 s; what is beyond waits in bounded queues.
    let held = &engine.progress()[0];
    assert!(held.rows < 160, "{held:?}");
    assert_eq!(held.watermark_us, Some(50_000_000));
    assert!(!pushing.is_finished(), "a push waits for room");
    behind.push(rows(999..1000)).await.unwrap();
    pushing.await.unwrap().unwrap();
    ahead.close();
    engine.epoch("v").await.unwrap();
    let all = &engine.progress()[0];
    assert_eq!((all.rows, all.expired, all.late), (1002, 0, 0));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_is_not_read_far_beyond_one_that_has_said_nothing_yet() {
    let engine = engine().await;
    let limited = ORDERS.replace("'push'", "'push', max_ahead = '100 seconds', queue_rows = '10'");
    done(&engine, &limited).await.unwrap();
    let first = engine.push_handle("orders").unwrap();
    let silent = first.split("silent");
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    let pushing = tokio::spawn({
        let first = first.clone();
        async move {
            for second in 0..1000 {
                first.push(rows(second..second + 1)).await?;
            }
            Ok::<_, crate::Error>(())
        }
    });
    while engine.progress()[0].rows < 100 {
        engine.epoch("v").await.unwrap();
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        engine.epoch("v").await.unwrap();
        tokio::task::yield_now().await;
    }
    let held = &engine.progress()[0];
    assert!(held.rows < 110, "state without a watermark must not grow: {held:?}");
    assert_eq!(held.watermark_us, None);
    silent.push(rows(999..1000)).await.unwrap();
    pushing.await.unwrap().unwrap();
    first.close();
    engine.epoch("v").await.unwrap();
    let all = &engine.progress()[0];
    assert_eq!((all.rows, all.expired, all.late), (1001, 0, 0));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_closes_no_window_while_a_split_is_paused_over_rows() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let builder = Engine::builder().in_memory().epochs(Epochs::Manual);
    let engine = builder.clock(Arc::clone(&clock) as _).build().await.unwrap();
    let source = ORDERS.replace("AS ts)", "AS ts IDLE CLOSE AFTER INTERVAL '10 seconds')");
    done(&engine, &source.replace("'push'", "'push', max_ahead = '100 seconds'")).await.unwrap();
    let ahead = engine.push_handle("orders").unwrap();
    let behind = ahead.split("behind");
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    behind.push(rows(0..1)).await.unwrap();
    for from in 0..20 {
        ahead.push(rows(from * 50..from * 50 + 50)).await.unwrap();
    }
    engine.epoch("v").await.unwrap();
    clock.advance_us(60_000_000);
    // Long enough for a push source to be asked again, which nothing shows.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    engine.epoch("v").await.unwrap();
    let held = &engine.progress()[0];
    assert_eq!(held.watermark_us, Some(0), "rows that wait for the split behind are not silence: {held:?}");
    behind.push(rows(999..1000)).await.unwrap();
    engine.epoch("v").await.unwrap();
    assert_eq!(engine.progress()[0].watermark_us, Some(999_000_000));
    // Both are silent: the newest window is closed.
    clock.advance_us(60_000_000);
    while engine.progress()[0].watermark_us != Some(1_020_000_000) {
        engine.epoch("v").await.unwrap();
    }
    let all = &engine.progress()[0];
    assert_eq!((all.rows, all.expired, all.late), (1002, 0, 0));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c37_a_split_found_later_is_read_from_its_beginning() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    let first = engine.push_handle("orders").unwrap();
    first.push(rows(0..100)).await.unwrap();
    engine.epoch("v").await.unwrap();
    let second = first.split("later");
    second.push(rows(30..40)).await.unwrap();
    second.push(rows(70..80)).await.unwrap();
    engine.epoch("v").await.unwrap();
    let progress = &engine.progress()[0];
    assert_eq!((progress.rows, progress.expired), (120, 10), "the first ten came after their window had expired");
    assert_eq!(progress.watermark_us, Some(99_000_000), "W does not go back");
    first.push(rows(100..200)).await.unwrap();
    engine.epoch("v").await.unwrap();
    assert_eq!(engine.progress()[0].watermark_us, Some(99_000_000), "the new split holds it");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn late_rows_of_sessions_are_in_the_progress() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    let sessions = "CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n \
                    FROM SESSION(TABLE orders PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10 seconds') \
                    GROUP BY k, window_start, window_end ALLOWED LATENESS INTERVAL '1 hour'";
    done(&engine, sessions).await.unwrap();
    let orders = engine.push_handle("orders").unwrap();
    orders.push(rows(0..5)).await.unwrap();
    orders.push(rows(100..101)).await.unwrap();
    orders.push(rows(7..8)).await.unwrap();
    engine.epoch("v").await.unwrap();
    let progress = &engine.progress()[0];
    assert_eq!((progress.rows, progress.late, progress.expired), (7, 1, 0));
    engine.shutdown().await.unwrap();
}

/// Rows of a stream that is left running, up to its `n`-th.
async fn first_of(outcome: Outcome, n: usize) -> Vec<String> {
    let Outcome::Stream { mut rows, stop, .. } = outcome else { panic!("a stream") };
    let mut seen = Vec::new();
    while seen.len() < n {
        let batch = rows.next().await.expect("more to come").unwrap();
        let columns = ["n", "_version", "_reason", "_epoch"].map(|name| batch.schema().index_of(name).unwrap());
        seen.extend(crate::testing::table::lines(&[batch.project(&columns).unwrap()]));
    }
    stop.stop();
    while let Some(batch) = rows.next().await {
        batch.expect("a stream that is stopped ends cleanly");
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribe_begins_where_it_is_told_and_ends_when_it_is_stopped() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let engine =
        Engine::builder().in_memory().epochs(Epochs::Manual).clock(Arc::clone(&clock) as _).build().await.unwrap();
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT} ALLOWED LATENESS INTERVAL '1 hour'")).await.unwrap();
    let orders = engine.push_handle("orders").unwrap();
    for seconds in [0..61, 10..12, 61..121] {
        orders.push(rows(seconds)).await.unwrap();
        engine.epoch("v").await.unwrap();
        clock.advance_us(1_000_000);
    }
    let everything = ["60 | 1 | initial | 1", "62 | 2 | late_data | 2", "60 | 1 | initial | 3"];
    for (clause, expected) in [
        ("SINCE EPOCH 0", &everything[..]),
        ("SINCE EPOCH 1", &everything[1..]),
        ("SINCE EPOCH 2", &everything[2..]),
        ("SINCE '2023-11-14T22:13:20.5Z'", &everything[1..]),
        ("WITH SNAPSHOT", &everything[1..]),
    ] {
        let stream = engine.execute(&format!("SUBSCRIBE v {clause}")).await.unwrap();
        let mut seen = first_of(stream, expected.len()).await;
        seen.sort_by_key(|line| line.rsplit(' ').next().map(str::to_owned));
        assert_eq!(seen, expected, "{clause}");
    }
    let new = engine.execute("SUBSCRIBE v").await.unwrap();
    orders.push(rows(121..181)).await.unwrap();
    engine.epoch("v").await.unwrap();
    assert_eq!(first_of(new, 1).await, ["60 | 1 | initial | 4"], "without a clause, what comes next");
    let error = engine.execute("SUBSCRIBE v SINCE EPOCH 99").await.unwrap_err();
    assert!(error.message().starts_with("no such epoch yet"), "{error}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c124_a_subscriber_that_does_not_read_holds_nobody_back_and_loses_nothing() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    let slow = engine.execute("SUBSCRIBE v").await.unwrap();
    let orders = engine.push_handle("orders").unwrap();
    for minute in 0..200 {
        orders.push(rows(minute * 60..minute * 60 + 61)).await.unwrap();
        engine.epoch("v").await.unwrap();
    }
    orders.close();
    engine.epoch("v").await.unwrap();
    let rows = slow.collect().await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 201);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_nobody_reads_any_more_ends_its_job() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    let Outcome::Stream { rows: stream, stop, .. } = engine.execute("SELECT ts FROM orders").await.unwrap() else {
        panic!("a stream");
    };
    drop(stream);
    while !stop.progress().expect("a job").done {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_reading_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    std::fs::write(&path, "{\"ts\": 1, \"extra\": 2}\n{\"ts\": 2, \"extra\": 3, \"more\": 1}\nnonsense\n").unwrap();
    let engine = engine().await;
    let path = path.display();
    done(
        &engine,
        &format!(
            "CREATE SOURCE f (ts TIMESTAMP(0), WATERMARK FOR ts AS ts) WITH (connector = 'file', path = '{path}')"
        ),
    )
    .await
    .unwrap();
    done(
        &engine,
        &format!("CREATE MATERIALIZED VIEW v AS {}", COUNT.replace("orders", "f").replace("sum(v)", "min(ts)")),
    )
    .await
    .unwrap();
    engine.wait_for_bounded().await.unwrap();
    let shown = text(&engine, "SHOW SOURCES").await;
    assert!(shown.contains("| 1        | 3 fields ignored |"), "{shown}");
    assert_eq!(engine.progress()[0].notes.to_string(), "3 fields ignored");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_read_is_told_of_while_the_engine_runs() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, s: i64| std::fs::write(folder.path().join(name), format!("{{\"ts\": {s}}}\n")).unwrap();
    write("b.jsonl", 1);
    let engine = engine().await;
    let path = folder.path().display();
    done(
        &engine,
        &format!(
            "CREATE SOURCE f (ts TIMESTAMP(0), WATERMARK FOR ts AS ts) WITH (connector = 'file', path = '{path}/*.jsonl', \
             follow = 'true', poll_interval = '1 ms')"
        ),
    )
    .await
    .unwrap();
    let count = COUNT.replace("orders", "f").replace("sum(v)", "min(ts)");
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {count}")).await.unwrap();
    while engine.progress()[0].rows == 0 {
        engine.epoch("v").await.unwrap();
    }
    write("a.jsonl", 2);
    while !text(&engine, "SHOW SOURCES").await.contains("| 1 file skipped |") {
        engine.epoch("v").await.unwrap();
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_workers_than_any_machine_has_are_refused() {
    let refused = Engine::builder().in_memory().workers(100_000).build().await.err().unwrap();
    assert_eq!(refused.to_string(), "'workers' is 100000, expected at most 1024");
    let engine = engine().await;
    let refused = engine.execute("SET datafusion.execution.target_partitions = 100000").await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    done(&engine, "SET datafusion.execution.target_partitions = 3").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn late_rows_have_their_columns_in_declared_order() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    let by_value = COUNT.replace("GROUP BY window_start", "GROUP BY window_start, v").replace("sum(v)", "v");
    done(&engine, &format!("CREATE MATERIALIZED VIEW w AS {by_value}")).await.unwrap();
    let columns = engine.table("w$late").await.unwrap();
    let names: Vec<&str> = columns.schema().fields().iter().take(3).map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["ts", "k", "v"]);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_there_is_not_is_answered_with_the_one_that_may_be_meant() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    for (sql, message, hint) in [
        ("SELECT * FROM oders", "no table, view or source `oders`", "did you mean `orders`?"),
        ("SUBSCRIBE orders", "no view `orders`", "there is a source of that name"),
        ("INSERT INTO orders VALUES ('x', 'y', 'z')", "a value does not fit its column: column=`ts`", ""),
        ("SELECT count(*) FROM orders WHERE k = \"order.placed\"", "no column", "single quotes"),
        ("SELECT sum(k) FROM orders", "no function sum(VARCHAR)", "cast the argument"),
    ] {
        let error = engine.execute(sql).await.map(|_| ()).unwrap_err();
        assert!(error.message().contains(message), "{sql}: {error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{sql}: {:?}", error.hint());
        assert!(error.position().is_some(), "{sql}: {error}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_what_to_write_and_where() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS {COUNT}")).await.unwrap();
    for (sql, message, hint, column) in [
        ("SELECT kk FROM orders", "no column `kk`", "there are ts, k, v", 8),
        ("SELECT _version FROM v$history ORDER BY version", "no column `version`", "did you mean `_version`?", 41),
        (
            "SELECT k, v, count(*) FROM orders GROUP BY k EMIT CHANGES",
            "`v` in SELECT is neither",
            "add it to GROUP BY",
            11,
        ),
        (
            "SELECT count(*) FROM TUMBLE(orders, tt, INTERVAL '1 hour') GROUP BY window_end",
            "no column `tt`",
            "DESCRIPTOR(ts)",
            37,
        ),
        (
            "SELECT count(*) FROM TUMBLE(orders, ts, '1 hour') GROUP BY window_end",
            "an interval",
            "write INTERVAL '1 hour'",
            41,
        ),
        ("SELECT count(*) FROM orders EMIT CHANGES", "without a window", "TUMBLE(TABLE orders, DESCRIPTOR(ts)", 1),
        ("SELECT * FROM v FOR SYSTEM_TIME AS OF TIMESTAMP '2200-01-01'", "in the future", "", 49),
        ("SELECT * FROM v FOR SYSTEM_TIME AS OF 'noon'", "not a time", "write it as 2024-01-15", 39),
        ("SELECT * FROM v WHERE window_start = '2024-03-30 21:00'", "not a time: '2024-03-30 21:00'", "seconds too", 1),
        ("SELECT * FROM v$rejects", "no relation `$rejects`", "`orders$rejects`", 15),
        ("SELECT * FROM orders$late", "`orders$late`", "belongs to its views: v$late", 15),
        ("DELETE FROM v", "`v` is no table", "REPROCESS", 1),
        ("DROP VIEW v", "`v` is a materialized view, and no view", "DROP MATERIALIZED VIEW v", 11),
        ("DROP TABLE v", "`v` is a materialized view, and no table", "DROP MATERIALIZED VIEW v", 12),
        ("DROP MATERIALIZED VIEW orders", "`orders` is a source", "DROP SOURCE orders", 24),
        ("SELECT * FROM 'Cargo.tml'", "`Cargo.tml`", "did you mean 'Cargo.toml'?", 1),
    ] {
        let error = engine.execute(sql).await.map(|_| ()).unwrap_err();
        assert!(error.message().contains(message), "{sql}: {error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{sql}: {:?}", error.hint());
        assert_eq!(error.position().map(|at| at.column), Some(column), "{sql}");
        assert!(std::error::Error::source(&error).is_none(), "{sql}: what is said twice: {error:?}");
    }
    for (options, message, hint) in [
        ("conector = 'push'", "'conector'", "did you mean 'connector'?"),
        ("connector = 'file', pth = 'a.json'", "'pth'", "did you mean 'path'?"),
    ] {
        let sql = format!("CREATE SOURCE o (ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH ({options})");
        let error = engine.execute(&sql).await.map(|_| ()).unwrap_err();
        assert!(error.message().contains(message) && error.hint() == Some(hint), "{sql}: {error:?}");
    }
    for (watermark, message, hint) in [
        ("WATERMARK FOR ts AS ts - '5 minutes'", "TIMESTAMP - VARCHAR", "INTERVAL '5 minutes'"),
        ("WATERMARK FOR k AS k", "`k`, which is VARCHAR", "declare it TIMESTAMP: a text"),
    ] {
        let sql = format!("CREATE SOURCE o (ts TIMESTAMP, k VARCHAR, {watermark}) WITH (connector = 'push')");
        let error = engine.execute(&sql).await.map(|_| ()).unwrap_err();
        assert!(error.message().contains(message), "{sql}: {error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{sql}: {:?}", error.hint());
    }
    let error = engine.execute("SHOW HISTORY v").await.map(|_| ()).unwrap_err();
    assert!(error.message().contains("`history v`") && error.hint().is_some_and(|hint| hint.contains("$history")));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_with_gaps_are_told_when_they_are_made_and_rows_in_none_when_they_are_read() {
    let engine = engine().await;
    done(&engine, ORDERS).await.unwrap();
    let hop =
        |lengths: &str| format!("SELECT window_start, count(*) FROM HOP(orders, ts, {lengths}) GROUP BY window_start");
    for (view, lengths, told) in [
        ("swapped", "INTERVAL '1 hour', INTERVAL '10 minutes'", 1),
        ("plain", "INTERVAL '10 minutes', INTERVAL '1 hour'", 0),
    ] {
        let made = engine.execute(&format!("CREATE MATERIALIZED VIEW {view} AS {}", hop(lengths))).await.unwrap();
        let Outcome::Done { notices, .. } = made else { panic!("{made:?}") };
        assert_eq!(notices.len(), told, "{notices:?}");
    }
    done(&engine, "INSERT INTO orders VALUES ('1970-01-01T00:01:00Z', 'a', 1), ('1970-01-01T00:20:00Z', 'a', 1)")
        .await
        .unwrap();
    engine.settle("orders").await;
    let no_window: Vec<u64> = engine.progress().iter().map(|job| job.no_window).collect();
    assert_eq!(no_window, [0, 1], "plain, swapped");
    engine.shutdown().await.unwrap();
}

/// Files of orders, by minute after midnight; the clock stands far ahead of them.
const FILES: &str = "CREATE SOURCE f (ts TIMESTAMP(0), k VARCHAR, WATERMARK FOR ts AS ts) \
                     WITH (connector = 'file', path = '{path}', format = 'json', follow = 'true', poll_interval = '1 ms')";

async fn over_file(lines: &str, clauses: &str) -> (Engine, tempfile::TempDir) {
    let engine = engine().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    std::fs::write(&path, lines).unwrap();
    done(&engine, &FILES.replace("{path}", &path.display().to_string())).await.unwrap();
    let view = "CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM TUMBLE(f, ts, INTERVAL '10 seconds') \
                GROUP BY window_start";
    done(&engine, &format!("{view} {clauses}")).await.unwrap();
    let rows = lines.lines().count() as u64;
    while engine.progress()[0].rows < rows {
        engine.epoch("v").await.unwrap();
        tokio::task::yield_now().await;
    }
    // One that surely ended after the last row.
    engine.epoch("v").await.unwrap();
    (engine, dir)
}

/// Waits for `sql` to give a table that holds `wanted`; whoever never comes to it hangs.
async fn until(engine: &Engine, sql: &str, wanted: &str) {
    while !text(engine, sql).await.contains(wanted) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_finalizes_its_windows_by_itself() {
    let lines = "{\"ts\":1}\n{\"ts\":12}\n{\"ts\":3}\n{\"ts\":26}\n";
    let (engine, _dir) = over_file(lines, "FINALIZE AFTER INTERVAL '5 seconds'").await;
    // W is 26: the window that ends at 20 has waited six seconds, the one of second 3 got its late row.
    until(&engine, "SELECT count(*) AS finals FROM v$final WHERE _is_final", "| 2      |").await;
    let finals = text(&engine, "SELECT n, _version, _is_final FROM v ORDER BY window_start").await;
    assert!(finals.contains("| 2 | 2        | true      |"), "{finals}");
    let jobs = text(&engine, "SELECT kind, status FROM system.jobs WHERE kind <> 'stream'").await;
    assert!(jobs.contains("finalize"), "{jobs}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c103_a_row_that_comes_during_a_forced_run_is_refused_and_no_number_mixes_both() {
    let (engine, dir) = over_file("{\"ts\":1}\n{\"ts\":5}\n", "ALLOWED LATENESS INTERVAL '1 minute'").await;
    let run = "FINALIZE v FROM '1970-01-01T00:00:00Z' TO '1970-01-01T00:00:10Z'";
    let live = text(&engine, run).await;
    assert!(
        live.contains("| 0       | 0    |") || live.contains("| 1    |"),
        "the window is live and left alone: {live}"
    );
    text(&engine, &format!("{run} FORCE")).await;
    let mut file = std::fs::OpenOptions::new().append(true).open(dir.path().join("rows.jsonl")).unwrap();
    std::io::Write::write_all(&mut file, b"{\"ts\":7}\n").unwrap();
    while engine.progress()[0].rows < 3 {
        engine.epoch("v").await.unwrap();
        tokio::task::yield_now().await;
    }
    let v = text(&engine, "SELECT n, _is_final FROM v").await;
    assert!(v.contains("| 2 | true      |"), "{v}");
    let flagged = text(&engine, "SELECT state, newer_input, refused_expired FROM v$windows").await;
    assert!(flagged.contains("| final | true        | 1               |"), "{flagged}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c104_two_runs_of_overlapping_ranges_wait_for_each_other() {
    let (engine, _dir) = over_file("{\"ts\":1}\n{\"ts\":12}\n{\"ts\":3}\n{\"ts\":40}\n", "").await;
    let at = |second: i64| crate::time::format_us(second * 1_000_000);
    let run = |from: i64, to: i64| format!("FINALIZE v FROM '{}' TO '{}'", at(from), at(to));
    let (a, b) = (run(0, 20), run(10, 40));
    let (first, second) = tokio::join!(text(&engine, &a), text(&engine, &b));
    assert!(first.contains("| v ") && second.contains("| v "));
    let finals = text(&engine, "SELECT n, _version FROM v$history WHERE _is_final ORDER BY window_start").await;
    assert_eq!(finals.lines().count(), 4 + 2, "each window has one final: {finals}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_ties_are_in_the_order_of_file_names_whichever_file_was_found_first() {
    let engine = engine().await;
    let dir = tempfile::tempdir().unwrap();
    let files = FILES.replace("'json'", "'json', split = 'file'");
    done(&engine, &files.replace("{path}", &format!("{}/*.jsonl", dir.path().display()))).await.unwrap();
    let values = "first_value(k) AS first, last_value(k) AS last, array_agg(k) AS both";
    let window = "FROM TUMBLE(f, ts, INTERVAL '10 seconds') GROUP BY window_start";
    done(&engine, &format!("CREATE MATERIALIZED VIEW v AS SELECT window_start, {values} {window}")).await.unwrap();
    let mut rows = 0;
    for (name, ts) in [("b", 1), ("a", 1), ("a", 30), ("b", 30)] {
        let path = dir.path().join(format!("{name}.jsonl"));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("{{\"ts\":{ts},\"k\":\"{name}\"}}\n").as_bytes()).unwrap();
        rows += 1;
        while engine.progress()[0].rows < rows {
            engine.epoch("v").await.unwrap();
            tokio::task::yield_now().await;
        }
    }
    engine.epoch("v").await.unwrap();
    let wanted = "| a     | b    | [a, b] |";
    let live = text(&engine, "SELECT first, last, both FROM v").await;
    assert!(live.contains(wanted), "{live}");
    text(&engine, "FINALIZE v FROM '1970-01-01T00:00:00Z' TO '1970-01-01T00:00:10Z'").await;
    let finals = text(&engine, "SELECT first, last, both FROM v$final").await;
    assert!(finals.contains(wanted), "the final value is the live one: {finals}");
    engine.shutdown().await.unwrap();
}
