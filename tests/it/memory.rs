//! State that is larger than the memory it may take.
//!
//! It would show a spilled row that is lost, counted twice or merged with another key's. It does not measure memory.

use std::fmt::Write as _;
use std::path::Path;

use arrow::util::pretty::pretty_format_batches;
use highwater::{Engine, ErrorKind};

const KEYS: usize = 250_000;

/// Each key twice in one day, some once more on the next, and a late row for some of the first day.
fn write_rows(path: &Path) {
    let mut text = String::from("ts,k,v\n");
    for round in 0..2 {
        for i in 0..KEYS {
            let (key, second) = (i * 7919 % KEYS, round * 40_000 + i / 10);
            writeln!(text, "{},customer-{key:08},{}", 1_704_067_200 + second, key + round).unwrap();
        }
    }
    for i in 0..1000 {
        writeln!(text, "{},customer-{i:08},1", 1_704_067_200 + 90_000 + i).unwrap();
        writeln!(text, "{},customer-{:08},5", 1_704_067_200 + 50_000, i * 3).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

async fn text(engine: &Engine, sql: &str) -> String {
    let rows = engine.execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.hint())).collect().await;
    pretty_format_batches(&rows.unwrap_or_else(|e| panic!("{sql}: {e}"))).unwrap().to_string()
}

fn source(path: &Path) -> String {
    format!(
        "CREATE SOURCE s (ts TIMESTAMP(0), k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts) \
         WITH (connector = 'file', path = '{}', format = 'csv')",
        path.display()
    )
}

const VIEW: &str = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, count(*) AS n, sum(v) AS total, avg(v) AS mean, \
                    max(v) AS most FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1 day') GROUP BY window_start, window_end, k \
                    ALLOWED LATENESS INTERVAL '1 day'";

/// What is published, condensed.
async fn published(engine: &Engine) -> String {
    let sums =
        "count(*), count(DISTINCT k), sum(n), sum(total), sum(mean), sum(most), sum(total * most), max(_version)";
    let per_window = format!("SELECT window_start, {sums} FROM v GROUP BY window_start ORDER BY window_start");
    // How many late versions there are depends on epochs.
    let history = "SELECT count(*), sum(n), sum(total) FROM v$history WHERE _reason = 'initial'";
    let some = "SELECT window_start, k, n, total, mean, most, _version FROM v WHERE k IN ('customer-00000003', 'customer-00249999') ORDER BY window_start, k";
    format!("{}\n{}\n{}", text(engine, &per_window).await, text(engine, history).await, text(engine, some).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn c98_state_of_many_times_the_limit_gives_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    write_rows(&path);
    let mut answers = Vec::new();
    for (name, limit) in [("roomy", None), ("cramped", Some(1 << 20))] {
        let mut builder = Engine::builder().workers(2).data_dir(folder.path().join(name).display().to_string());
        if let Some(limit) = limit {
            builder = builder.memory_limit(limit);
        }
        let engine = builder.build().await.unwrap();
        text(&engine, &source(&path)).await;
        text(&engine, VIEW).await;
        engine.wait_for_bounded().await.unwrap();
        engine.shutdown().await.unwrap();
        // Read without the limit: it is for queries too.
        let reader = Engine::builder().read_only(true).data_dir(folder.path().join(name).display().to_string());
        answers.push(published(&reader.build().await.unwrap()).await);
    }
    assert!(answers[0].contains("250000"), "{}", answers[0]);
    assert!(answers[0] == answers[1], "{}\n{}", answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c98_what_cannot_be_spilled_is_refused_clearly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    write_rows(&path);
    let engine = Engine::builder().workers(2).in_memory().memory_limit(1 << 20).build().await.unwrap();
    text(&engine, &source(&path)).await;
    let one_key = "CREATE MATERIALIZED VIEW m AS SELECT window_start, median(v) AS m \
                   FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1 day') GROUP BY window_start, window_end";
    let sessions = "CREATE MATERIALIZED VIEW m AS SELECT window_start, k, count(*) AS n \
                    FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1 day') GROUP BY window_start, window_end, k";
    for (sql, what) in [(one_key, "aggregates of one key"), (sessions, "open sessions")] {
        text(&engine, sql).await;
        let error = engine.wait_for_bounded().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.hint().unwrap().contains("memory limit"), "{error}");
        text(&engine, "DROP MATERIALIZED VIEW m").await;
    }
}
