//! An engine inside a program: push rows, read results as a DataFrame.
//!
//! Run it with `cargo run --example embed`.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use highwater::Engine;
use highwater::connectors::PushHandle;
use highwater::results::Since;

const MINUTE_US: i64 = 60_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().in_memory().build().await?;
    engine
        .execute(
            "CREATE SOURCE orders (
               at TIMESTAMP, customer BIGINT, total DOUBLE,
               WATERMARK FOR at AS at - INTERVAL '5 minutes'
             ) WITH (connector = 'push');

             CREATE MATERIALIZED VIEW hourly_revenue AS
             SELECT window_start, sum(total) AS revenue, count(*) AS orders
             FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1 hour')
             GROUP BY window_start, window_end
             ALLOWED LATENESS INTERVAL '1 hour'",
        )
        .await?;

    // A push waits when the engine cannot keep up, and never drops a row.
    let orders = engine.push_handle("orders")?;
    orders.push(batch(&orders, &[(5, 1, 40.0), (30, 2, 60.0), (59, 1, 25.0)])?).await?;
    orders.push(batch(&orders, &[(66, 3, 10.0)])?).await?; // W is 01:01 now: the first hour has closed
    orders.push(batch(&orders, &[(58, 2, 15.0)])?).await?; // late, and still counted
    orders.close(); // the end of the input closes every window

    // Versions come as they are committed; the stream ends when the view has nothing more to say.
    let mut versions = engine.subscribe("hourly_revenue", Since::Epoch(0))?;
    while let Some((epoch, rows)) = versions.next().await? {
        println!("epoch {epoch}: {} version(s)", rows.num_rows());
    }

    // A view is a table: query it, join it, or take it on as a DataFrame of DataFusion.
    let query = "SELECT window_start, revenue, orders, _version FROM hourly_revenue ORDER BY window_start";
    engine.sql(query).await?.show().await?;
    engine.table("hourly_revenue$history").await?.show().await?;

    // Numbers leave as Arrow.
    let rows = engine.sql("SELECT sum(orders) AS orders FROM hourly_revenue").await?.collect().await?;
    assert_eq!(rows[0].column(0).as_ref(), &Int64Array::from(vec![5]));

    engine.shutdown().await?;
    Ok(())
}

/// Orders as (minute after midnight, customer, total).
fn batch(to: &PushHandle, orders: &[(i64, i64, f64)]) -> Result<RecordBatch, Box<dyn Error>> {
    let at = orders.iter().map(|(minute, ..)| minute * MINUTE_US);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(at).with_timezone("UTC")),
        Arc::new(Int64Array::from_iter_values(orders.iter().map(|(_, customer, _)| *customer))),
        Arc::new(Float64Array::from_iter_values(orders.iter().map(|(.., total)| *total))),
    ];
    Ok(RecordBatch::try_new(to.schema(), columns)?)
}
