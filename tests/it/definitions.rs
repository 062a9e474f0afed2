//! Statements that define things, and what is left when they fail.
//!
//! Catches: a mistake in a new definition that costs the old one its results, definitions lost between statements that
//! run at once, half an INSERT.

use std::sync::Arc;

use highwater::clock::ManualClock;
use highwater::engine::Engine;
use highwater::runtime::Epochs;
use highwater::{ErrorKind, Result};

use crate::rows_of;

const SOURCE: &str = "CREATE SOURCE s (ts TIMESTAMP(0), k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts) \
                      WITH (connector = 'push')";
const VIEW: &str = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, sum(v) AS total \
                    FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end, k";
const NOON_US: i64 = 1_704_110_400_000_000;

async fn engine(location: &str) -> Engine {
    let clock = Arc::new(ManualClock::new(NOON_US));
    Engine::builder().data_dir(location).clock(clock).epochs(Epochs::Manual).build().await.unwrap()
}

async fn fails(engine: &Engine, sql: &str) -> highwater::Error {
    match engine.execute(sql).await {
        Ok(_) => panic!("not refused: {sql}"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_definition_that_fails_leaves_the_old_one_as_it_was() {
    let engine = engine("memory://replaced").await;
    let big = "CREATE VIEW big AS SELECT * FROM s WHERE v > 1";
    let over = VIEW.replace("VIEW v", "VIEW over").replace("TUMBLE(s", "TUMBLE(big");
    engine.execute(&format!("{SOURCE}; {VIEW}; {big}; {over}")).await.unwrap();
    engine.execute("INSERT INTO s VALUES (to_timestamp(1), 'a', 2), (to_timestamp(11), 'a', 1)").await.unwrap();
    engine.epoch("v").await.unwrap();
    let totals = "SELECT k, total FROM v";
    assert_eq!(rows_of(&engine, totals).await, ["a 2"]);
    for wrong in [
        VIEW.replacen("CREATE", "CREATE OR REPLACE", 1).replace("sum(v)", "sum(no_such)") + " RESTART",
        SOURCE.replacen("CREATE", "CREATE OR REPLACE", 1).replace("'push'", "'pusch'") + " RESTART",
        // The view over it could not be planned.
        SOURCE.replacen("CREATE", "CREATE OR REPLACE", 1).replace("v BIGINT, ", "") + " RESTART",
        big.replacen("CREATE", "CREATE OR REPLACE", 1).replace("v > 1", "no_such > 1"),
    ] {
        fails(&engine, &wrong).await;
        assert_eq!(rows_of(&engine, totals).await, ["a 2"], "after {wrong}");
    }
    for kept in ["DROP VIEW big", "CREATE OR REPLACE VIEW big AS SELECT * FROM s", "DROP SOURCE s"] {
        let error = fails(&engine, kept).await;
        assert_eq!(error.kind(), ErrorKind::Conflict, "{kept}: {error}");
    }
    engine.execute("INSERT INTO s VALUES (to_timestamp(21), 'a', 1)").await.unwrap();
    engine.epoch("v").await.unwrap();
    assert_eq!(rows_of(&engine, totals).await, ["a 2", "a 1"]);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_made_at_once_are_all_kept() -> Result<()> {
    const VIEWS: usize = 12;
    let first = engine("memory://at-once").await;
    first.execute(SOURCE).await?;
    let create = |i: usize| {
        let (engine, sql) = (first.clone(), VIEW.replace("VIEW v", &format!("VIEW IF NOT EXISTS v{}", i / 2)));
        tokio::spawn(async move { engine.execute(&sql).await.map(drop) })
    };
    // Each twice.
    for made in (0..2 * VIEWS).map(create).collect::<Vec<_>>() {
        made.await.expect("no panic")?;
    }
    first.execute("INSERT INTO s VALUES (to_timestamp(1), 'a', 2), (to_timestamp(11), 'a', 1)").await?;
    for i in 0..VIEWS {
        first.epoch(&format!("v{i}")).await?;
    }
    first.shutdown().await?;
    let second = engine("memory://at-once").await;
    for i in 0..VIEWS {
        assert_eq!(rows_of(&second, &format!("SELECT k, total FROM v{i}")).await, ["a 2"], "v{i}");
    }
    second.shutdown().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_that_fails_has_put_in_nothing() {
    let engine = engine("memory://insert").await;
    engine.execute(&format!("{SOURCE}; {VIEW}")).await.unwrap();
    // The value that does not fit is far behind the first batch.
    let select = "SELECT to_timestamp(1), 'a', CASE WHEN value = 50000 THEN 'x' ELSE '1' END FROM range(0, 60000)";
    let error = fails(&engine, &format!("INSERT INTO s {select}")).await;
    assert!(error.message().contains("column=`v`"), "{error}");
    let error = fails(&engine, "INSERT INTO s (ts, v, v) VALUES (to_timestamp(1), 1, 2)").await;
    assert!(error.message().contains("`v` twice"), "{error}");
    engine.epoch("v").await.unwrap();
    assert_eq!(engine.progress()[0].rows, 0);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_tells_where_state_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().to_str().unwrap();
    let engine = Engine::builder().data_dir(location).memory_limit(64 << 20).build().await.unwrap();
    engine.execute(SOURCE).await.unwrap();
    let query =
        "SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL '1 day') GROUP BY window_start EMIT ON WINDOW CLOSE";
    let state = |lines: Vec<String>| lines.into_iter().find(|line| line.starts_with("state: ")).unwrap();
    let of_query = state(rows_of(&engine, &format!("EXPLAIN {query}")).await);
    assert_eq!(of_query, "state: in memory up to 67108864 bytes, then on local disk while the query runs");
    let of_view = state(rows_of(&engine, &format!("EXPLAIN {VIEW}")).await);
    assert_eq!(
        of_view,
        format!(
            "state: in memory up to 67108864 bytes, then on local disk; checkpoints and results in {location}/views/v"
        )
    );
    engine.shutdown().await.unwrap();
}
