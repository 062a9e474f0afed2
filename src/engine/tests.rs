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
