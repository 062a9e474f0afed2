//! The whole engine on one thread, with a clock that stands still, over a store that fails.
//!
//! [`calls`] fails each store call of one scenario in turn; [`damage`] flips stored bytes; [`restart`] opens the data again;
//! [`seeds`] mixes everything; [`writers`] has two engines at once.

mod calls;
mod damage;
mod log;
mod model;
mod restart;
mod seeds;
mod writers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use self::log::{Log, LogRow};
use super::Engine;
use crate::clock::ManualClock;
use crate::error::Result;
use crate::runtime::Epochs;
use crate::storage::Storage;
use crate::testing::table;

const SECOND: i64 = 1_000_000;
/// 2024-01-01T12:00:00Z: where the clock starts.
const NOON_US: i64 = 1_704_110_400 * SECOND;

const SOURCE: &str = "CREATE SOURCE s (ts TIMESTAMP, k VARCHAR, v BIGINT, \
                      WATERMARK FOR ts AS ts - INTERVAL '5 seconds') WITH (connector = 'log', max_future = '3650 days')";

/// What all engines of a run share: rows, clock and what is stored.
#[derive(Debug)]
struct World {
    log: Log,
    clock: Arc<ManualClock>,
    stored: Arc<InMemory>,
}

impl World {
    fn new() -> Self {
        Self { log: Log::new(), clock: Arc::new(ManualClock::new(NOON_US)), stored: Arc::default() }
    }

    /// Rows of second, key and value; a second below zero is none, and the row rejected.
    fn push(&self, rows: &[(i64, &str, i64)]) {
        let row = |(second, key, value): &(i64, &str, i64)| LogRow {
            at_us: (*second >= 0).then_some(second * SECOND),
            key: (*key).to_owned(),
            value: *value,
        };
        self.log.push(&rows.iter().map(row).collect::<Vec<_>>());
    }

    /// An engine that keeps its data in `store`.
    async fn engine(&self, store: Arc<dyn ObjectStore>) -> Result<Engine> {
        let log = self.log.clone();
        let engine = Engine::builder()
            .object_store(store, "simulated")
            .clock(Arc::clone(&self.clock) as _)
            .epochs(Epochs::Manual)
            .run_schedules(false)
            .workers(2)
            .batch_rows(4)
            .connector("log", move |definition| log.source(definition));
        within(engine.build()).await
    }

    /// Of every table, the data files that its Delta log adds, with the number of commits that add each.
    async fn logged(&self) -> BTreeMap<String, usize> {
        let files = Storage::with_store(Arc::clone(&self.stored) as _, "stored").list(&Path::from("views"), None).await;
        let mut added = BTreeMap::new();
        for file in files.expect("a store in memory") {
            let path = file.location.to_string();
            let Some((table, _)) = path.split_once("/_delta_log/") else { continue };
            if !path.ends_with(".json") {
                continue;
            }
            let bytes = self.stored.get(&file.location).await.expect("it was listed").bytes().await.expect("its bytes");
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let action: serde_json::Value = serde_json::from_slice(line).expect("an action");
                if let Some(file) = action["add"]["path"].as_str() {
                    *added.entry(format!("{table}/{file}")).or_default() += 1;
                }
            }
        }
        added
    }
}

/// What is not done after this long never will be.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), Box::pin(work)).await.expect("the engine hangs")
}

/// The rows of a query, sorted.
async fn lines(engine: &Engine, sql: &str) -> Result<Vec<String>> {
    let rows = within(async { engine.execute(sql).await?.collect().await }).await?;
    Ok(table::sorted_lines(&rows))
}

/// Runs `work` on one thread.
fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
