//! The engine end to end, in memory.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;

use super::{Engine, Outcome};
use crate::clock::ManualClock;
use crate::error::Result;
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
    for (rows, seconds) in (1..).zip([0, 30, 61, 40, 76]) {
        done(&engine, &format!("INSERT INTO orders VALUES (to_timestamp({seconds}), 'a', 1)")).await.unwrap();
        // An epoch ends after the rows read; the one pushed may still be on its way to the job.
        while engine.progress()[0].rows < rows {
            engine.epoch("v").await.unwrap();
            tokio::task::yield_now().await;
        }
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
