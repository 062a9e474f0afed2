//! The live number, the official one, and why they differ.
//!
//! Run it with `cargo run --example finalize`.

use std::error::Error;

use highwater::Engine;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().in_memory().build().await?;
    engine
        .execute(
            "CREATE SOURCE orders (
               order_id BIGINT, event_type VARCHAR, event_time TIMESTAMP, payload STRUCT<total DOUBLE>,
               WATERMARK FOR event_time AS event_time - INTERVAL '5 minutes'
             ) WITH (connector = 'file', path = 'sql/data/orders*.jsonl', format = 'json');

             CREATE MATERIALIZED VIEW hourly_revenue AS
             SELECT window_start, sum(payload.total) AS revenue, count(*) AS orders
             FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
             WHERE event_type = 'order.placed'
             GROUP BY window_start, window_end
             ALLOWED LATENESS INTERVAL '1 hour'",
        )
        .await?;
    engine.wait_for_bounded().await?;

    // Seven orders came when their hour had expired. VERIFY knows what the live number lacks.
    show(&engine, "VERIFY hourly_revenue FOR DATE '2024-01-15'").await?;

    // The same SELECT over everything that is stored, published as final in one step.
    show(&engine, "FINALIZE hourly_revenue FOR DATE '2024-01-15' REASON 'daily_finalization'").await?;
    show(&engine, "SELECT window_start, _version, revenue, orders, _reason, _is_final FROM hourly_revenue$history")
        .await?;

    // Every run is a row.
    show(&engine, "SELECT id, kind, status, rows_read, windows_changed FROM system.jobs WHERE kind <> 'stream'")
        .await?;
    engine.shutdown().await?;
    Ok(())
}

async fn show(engine: &Engine, statement: &str) -> Result<(), Box<dyn Error>> {
    let rows = engine.execute(statement).await?.collect().await?;
    println!("{statement}\n{}", arrow::util::pretty::pretty_format_batches(&rows)?);
    Ok(())
}
