//! The engine end to end, in memory.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;

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
    let said = "`v` failed: 2 rows of source `orders` were rejected, and max_rejects is 1; the first: orders row 0: \
                the event time is NULL: {\"k\":\"a\",\"v\":1}";
    assert_eq!(error.message(), said);
    assert!(error.hint().is_some_and(|hint| hint.contains("orders$rejects")));

    let orders = engine.push_handle("orders").unwrap();
    let refused = orders.push(rows(0..1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert!(refused.message().contains(said), "{refused}");
    assert!(orders.try_push(rows(0..1)).is_err());

    let shown = text(&engine, "SHOW JOBS").await;
    assert!(shown.contains("failed") && shown.contains("max_rejects is 1"), "{shown}");
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
    assert!(error.message().contains("max_rejects is 0"), "{error}");
}
