//! Stored bytes that changed by themselves: what is damaged is refused, never half-read.
//!
//! It would show a kind of file without a checksum, or one whose checksum nobody looks at. Each kind's own test flips every
//! byte; here the engine meets one flipped byte in each part of each kind. Parquet files and Delta logs are not ours.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::{SOURCE, World, lines, on_one_thread, within};
use crate::error::{ErrorKind, Result};
use crate::storage::Storage;

const VIEW: &str = "CREATE MATERIALIZED VIEW v AS SELECT window_start, k, sum(v) AS total \
                    FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end, k";

/// A data dir that holds a file of each kind.
async fn stored() -> World {
    let world = World::new();
    let engine = world.engine(Arc::clone(&world.stored) as _).await.expect("an empty data dir");
    let schedule = "CREATE SCHEDULE n CRON '0 2 * * *' AS FINALIZE v LOOKBACK INTERVAL '1 day'";
    within(engine.execute(&format!("{SOURCE}; {VIEW}; {schedule}"))).await.expect("a view");
    world.push(&[(1, "a", 1), (18, "a", 2), (22, "b", 3)]);
    within(engine.epoch("v")).await.expect("an epoch");
    let finalize = "FINALIZE v FROM '1970-01-01T00:00:00Z' TO '1970-01-01T00:00:10Z'";
    within(engine.execute(finalize)).await.expect("a run");
    within(engine.shutdown()).await.expect("an end");
    world
}

/// Opens the data dir and goes on with it.
async fn gone_on(world: &World, store: Arc<dyn ObjectStore>) -> Result<()> {
    let engine = world.engine(store).await?;
    let done = async {
        within(engine.epoch("v")).await?;
        lines(&engine, "SHOW JOBS").await.map(drop)
    };
    let done = done.await;
    within(engine.abort()).await;
    done
}

/// The newest file of each kind that has our own format.
async fn newest_of_each_kind(world: &World) -> Vec<Path> {
    let storage = Storage::with_store(Arc::clone(&world.stored) as _, "stored");
    let files = storage.list(&Path::default(), None).await.expect("a store in memory");
    let newest = |is_of_kind: &dyn Fn(&str) -> bool| {
        let file = files.iter().rev().find(|file| is_of_kind(file.location.as_ref()));
        file.expect("a file of each kind").location.clone()
    };
    vec![
        newest(&|path| path == "catalog.json"),
        newest(&|path| path == "schedules.json"),
        newest(&|path| path.contains("/manifest/")),
        newest(&|path| path.ends_with(".state")),
    ]
}

#[test]
fn a_flipped_byte_of_any_kind_of_file_is_refused() {
    on_one_thread(async {
        let world = stored().await;
        gone_on(&world, Arc::new(world.stored.fork())).await.expect("nothing is damaged");
        for path in newest_of_each_kind(&world).await {
            let whole = world.stored.get(&path).await.expect("it is there").bytes().await.expect("its bytes");
            let header = whole.iter().position(|byte| *byte == b'\n').expect("a header");
            for at in [2, header / 2, header - 3, header + 1, (header + whole.len()) / 2, whole.len() - 2] {
                let damaged = world.stored.fork();
                let mut bytes = whole.to_vec();
                bytes[at] ^= 1;
                damaged.put(&path, bytes.into()).await.expect("a store in memory");
                let refused = gone_on(&world, Arc::new(damaged)).await;
                let kind = refused.as_ref().err().map(crate::Error::kind);
                assert_eq!(kind, Some(ErrorKind::Corrupt), "{path}, byte {at}: {refused:?}");
            }
        }
    });
}
