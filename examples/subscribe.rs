//! Follow a view while it is computed, leave, and come back without missing or repeating a version.
//!
//! Run it with `cargo run --example subscribe`.

use std::error::Error;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use highwater::Engine;
use highwater::results::Since;
use highwater::time::format_us;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().in_memory().build().await?;
    engine
        .execute(
            "CREATE SOURCE readings (at TIMESTAMP, sensor VARCHAR, WATERMARK FOR at AS at) WITH (connector = 'push');
             CREATE MATERIALIZED VIEW per_minute AS
             SELECT window_start, sensor, count(*) AS n
             FROM TUMBLE(TABLE readings, DESCRIPTOR(at), INTERVAL '1 minute')
             GROUP BY window_start, window_end, sensor
             ALLOWED LATENESS INTERVAL '1 minute'",
        )
        .await?;

    // INSERT goes the same way as a push.
    engine
        .execute(
            "INSERT INTO readings VALUES ('2024-01-15T10:00:05Z', 'a'), ('2024-01-15T10:00:40Z', 'b'),
                                         ('2024-01-15T10:01:10Z', 'a')",
        )
        .await?;

    // The first minute has closed; its versions come within an epoch, which is a second unless set otherwise.
    let mut versions = engine.subscribe("per_minute", Since::Epoch(0))?;
    let mut last = 0;
    if let Some((epoch, rows)) = versions.next().await? {
        print(epoch, &rows)?;
        last = epoch;
    }
    drop(versions); // a subscriber may leave at any time; nobody waits for it

    // While we are away a late reading corrects the first minute, and the input ends.
    engine.execute("INSERT INTO readings VALUES ('2024-01-15T10:00:50Z', 'a')").await?;
    engine.push_handle("readings")?.close();

    // The epoch of the last batch is all there is to remember.
    let mut versions = engine.subscribe("per_minute", Since::Epoch(last))?;
    while let Some((epoch, rows)) = versions.next().await? {
        print(epoch, &rows)?;
    }
    engine.shutdown().await?;
    Ok(())
}

/// Prints each version with its number and reason.
fn print(epoch: u64, rows: &RecordBatch) -> Result<(), Box<dyn Error>> {
    let column = |name: &str| rows.column_by_name(name).ok_or_else(|| format!("no column {name}"));
    let starts = column("window_start")?.as_primitive::<TimestampMicrosecondType>();
    let counts = column("n")?.as_primitive::<Int64Type>();
    let versions = column("_version")?.as_primitive::<Int64Type>();
    let (sensors, reasons) = (column("sensor")?.as_string::<i32>(), column("_reason")?.as_string::<i32>());
    for row in 0..rows.num_rows() {
        println!(
            "epoch {epoch}  {}  {}  n = {}  version {} ({})",
            format_us(starts.value(row)),
            sensors.value(row),
            counts.value(row),
            versions.value(row),
            reasons.value(row),
        );
    }
    Ok(())
}
