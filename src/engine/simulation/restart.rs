//! What an engine that is opened again goes on with, beside rows and results.

use std::sync::Arc;

use super::{SOURCE, World, lines, on_one_thread, within};
use crate::engine::Engine;
use crate::engine::catalog::BrokenEntry;
use crate::error::{Error, ErrorKind};

const VIEW: &str = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, sum(v) AS total \
                    FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end, k";

async fn done(engine: &Engine, sql: &str) {
    within(engine.execute(sql)).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

async fn opened(world: &World) -> Engine {
    world.engine(Arc::clone(&world.stored) as _).await.expect("a data dir")
}

#[test]
fn a_paused_view_stays_paused() {
    on_one_thread(async {
        let world = World::new();
        let engine = opened(&world).await;
        done(&engine, &format!("{SOURCE}; {VIEW}; PAUSE v")).await;
        within(engine.shutdown()).await.expect("an end");

        let engine = opened(&world).await;
        let paused = lines(&engine, "SHOW VIEWS").await.expect("views").concat();
        assert!(paused.contains("paused"), "{paused}");
        world.push(&[(1, "a", 1), (20, "a", 1)]);
        within(engine.epoch("v")).await.expect("an epoch");
        assert!(lines(&engine, "SELECT * FROM v").await.expect("rows").is_empty(), "it has read");
        done(&engine, "RESUME v").await;
        within(engine.epoch("v")).await.expect("an epoch");
        assert_eq!(lines(&engine, "SELECT k, total FROM v").await.expect("rows"), ["a | 1"]);
        within(engine.abort()).await;

        let engine = opened(&world).await;
        let resumed = lines(&engine, "SHOW VIEWS").await.expect("views").concat();
        assert!(!resumed.contains("paused"), "{resumed}");
        done(&engine, "PAUSE v; DROP MATERIALIZED VIEW v").await;
        done(&engine, VIEW).await;
        let anew = lines(&engine, "SHOW VIEWS").await.expect("views").concat();
        assert!(!anew.contains("paused"), "another view of that name: {anew}");
        within(engine.shutdown()).await.expect("an end");
    });
}

#[test]
fn rejects_of_an_earlier_engine_count_towards_max_rejects() {
    on_one_thread(async {
        let world = World::new();
        let engine = opened(&world).await;
        let strict = SOURCE.replace("'3650 days'", "'3650 days', max_rejects = '2'");
        done(&engine, &format!("{strict}; {VIEW}")).await;
        world.push(&[(-1, "first", 1), (3, "a", 1), (-1, "b", 1)]);
        within(engine.epoch("v")).await.expect("two are allowed");
        within(engine.shutdown()).await.expect("an end");

        let engine = opened(&world).await;
        world.push(&[(4, "a", 1)]);
        within(engine.epoch("v")).await.expect("still two");
        world.push(&[(-1, "c", 1)]);
        let third = within(engine.epoch("v")).await.expect_err("the third");
        assert_eq!(third.kind(), ErrorKind::Data, "{third}");
        assert!(third.message().contains("max_rejects=`2`") && third.message().contains("first"), "{third}");
        let rejects = lines(&engine, "SELECT _offset FROM s$rejects").await.expect("rows");
        assert_eq!(rejects, ["0", "2", "4"]);
        within(engine.abort()).await;
    });
}

#[test]
fn sql_of_another_version_keeps_nobody_from_the_rest() {
    on_one_thread(async {
        let world = World::new();
        let engine = opened(&world).await;
        done(&engine, &format!("{SOURCE}; {VIEW}")).await;
        for (name, text) in [
            ("later", "CREATE MATERIALIZED VIEW later AS SELECT 1 FROM s EMIT WHEN FULL"),
            ("other", "CREATE STREAMLET other FROM s"),
        ] {
            let problem = Arc::new(Error::internal("not yet known"));
            engine.inner.catalog.insert_broken(name, BrokenEntry { text: text.to_owned(), problem });
        }
        engine.inner.catalog.save().await.expect("a store in memory");
        within(engine.shutdown()).await.expect("an end");

        for _ in 0..2 {
            let engine = opened(&world).await;
            world.push(&[(1, "a", 1)]);
            within(engine.epoch("v")).await.expect("a view beside it");
            let error = lines(&engine, "SELECT * FROM later").await.expect_err("it cannot be read");
            assert_eq!(error.kind(), ErrorKind::Syntax, "{error:?}");
            let error = within(engine.execute(&VIEW.replace("VIEW v", "VIEW later"))).await.expect_err("it is taken");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            within(engine.shutdown()).await.expect("an end");
        }
        let engine = opened(&world).await;
        done(&engine, "DROP MATERIALIZED VIEW later").await;
        done(&engine, &VIEW.replace("VIEW v", "VIEW later")).await;
        within(engine.shutdown()).await.expect("an end");
        let engine = opened(&world).await;
        lines(&engine, "SELECT * FROM later").await.expect("a view");
        within(engine.shutdown()).await.expect("an end");
    });
}
