//! Two engines that write the same data dir.
//!
//! It would show an older engine that publishes after a newer one has taken over, rows of it that are counted, and one that
//! hangs instead of saying why it stopped.

use std::sync::Arc;

use super::{SOURCE, World, lines, on_one_thread, within};
use crate::error::ErrorKind;

#[test]
fn c102_the_newer_engine_writes_and_the_older_one_is_fenced() {
    on_one_thread(async {
        let world = World::new();
        let older = world.engine(Arc::clone(&world.stored) as _).await.expect("an empty data dir");
        let view = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, sum(v) AS total \
                    FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end, k \
                    ALLOWED LATENESS INTERVAL '20 seconds'";
        within(older.execute(&format!("{SOURCE}; {view}"))).await.expect("a view");
        world.push(&[(1, "a", 1), (16, "a", 1)]);
        within(older.epoch("v")).await.expect("an epoch");

        let newer = world.engine(Arc::clone(&world.stored) as _).await.expect("a data dir");
        world.push(&[(2, "a", 5)]);
        within(newer.epoch("v")).await.expect("an epoch");
        let history = "SELECT total, _version FROM v$history";
        assert_eq!(lines(&newer, history).await.expect("rows"), ["1 | 1", "6 | 2"]);
        let fenced = within(older.epoch("v")).await.expect_err("another engine has taken over");
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
        // Statements of the older one would take the view back by accident.
        let refused =
            within(older.execute("DROP MATERIALIZED VIEW v")).await.expect_err("it does not hold the data dir");
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        assert_eq!(lines(&newer, history).await.expect("rows"), ["1 | 1", "6 | 2"]);
        within(newer.shutdown()).await.expect("an end");
        within(older.abort()).await;
    });
}
