//! End to end: the real binary, as a shell or a person runs it; what the documents show; and the shape of the source tree.
//!
//! One test binary, because each one links DataFusion.

#[cfg(feature = "cli")]
mod command;
mod definitions;
#[cfg(feature = "cli")]
mod documents;
#[cfg(feature = "cli")]
mod killed;
mod memory;
mod recovery;
#[cfg(feature = "cli")]
mod s3;
mod structure;
#[cfg(all(feature = "cli", target_os = "linux"))]
mod terminal;

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use highwater::engine::Engine;

/// The rows of a query, one text each.
async fn rows_of(engine: &Engine, sql: &str) -> Vec<String> {
    let batches = engine.execute(sql).await.unwrap().collect().await.unwrap();
    let row = |batch: &RecordBatch, row: usize| {
        let cells = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        cells.collect::<Vec<_>>().join(" ")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|i| row(batch, i)).collect::<Vec<_>>()).collect()
}
