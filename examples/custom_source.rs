//! A source of your own: tide gauges that report their level every ten minutes, each gauge a split.
//!
//! Run it with `cargo run --example custom_source`.
//!
//! A connector is a factory that turns a `CREATE SOURCE` into a [`Source`]. The source says which splits it has and opens
//! readers on them; a reader hands out record batches with the offset of each row. Time, watermarks, lateness and windows
//! are the engine's business.

use std::f64::consts::TAU;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use arrow::util::pretty::pretty_format_batches;
use async_trait::async_trait;
use highwater::connectors::{
    Boundedness, Notes, Offsets, Position, ReadOptions, Source, SourceBatch, SourceDefinition, Split, SplitEvent,
    SplitReader,
};
use highwater::{Engine, Error, Result};

const MINUTE_US: i64 = 60_000_000;

#[tokio::main]
async fn main() -> Result<()> {
    let engine = Engine::builder().in_memory().connector("tide", TideGauges::create).build().await?;
    engine
        .execute(
            "CREATE SOURCE gauges (
               at TIMESTAMP, gauge VARCHAR, level_cm DOUBLE,
               WATERMARK FOR at AS at - INTERVAL '10 minutes'
             ) WITH (connector = 'tide', readings = '300');

             CREATE MATERIALIZED VIEW high_water AS
             SELECT window_start, gauge, max(level_cm) AS highest
             FROM TUMBLE(TABLE gauges, DESCRIPTOR(at), INTERVAL '6 hours')
             GROUP BY window_start, window_end, gauge",
        )
        .await?;
    engine.wait_for_bounded().await?;

    let query =
        "SELECT window_start, gauge, round(highest) AS highest FROM high_water ORDER BY window_start, gauge LIMIT 6";
    let rows = engine.execute(query).await?.collect().await?;
    let shown = pretty_format_batches(&rows).map_err(|e| Error::internal("the rows cannot be shown").with_source(e))?;
    println!("{shown}");
    engine.shutdown().await
}

/// Gauges in three harbours, bounded: each has the same number of readings.
#[derive(Debug)]
struct TideGauges {
    schema: SchemaRef,
    readings: i64,
}

impl TideGauges {
    /// What `connector = 'tide'` stands for. Options are read through a reader that refuses mistyped names.
    fn create(definition: &SourceDefinition) -> Result<Arc<dyn Source>> {
        let mut options = definition.option_reader();
        let readings = options.number(&["readings"])?.unwrap_or(1000);
        options.finish()?;
        let schema = definition.schema();
        if schema.fields().len() != 3 {
            return Err(Error::invalid("declare three columns: a time, the gauge's name, the level"));
        }
        Ok(Arc::new(Self { schema, readings }))
    }
}

#[async_trait]
impl Source for TideGauges {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(["cuxhaven", "dover", "saint-malo"].map(|name| Split { name: name.into() }).into())
    }

    /// Reading again from a position must give the same rows, so a reader's whole state is the number of the next row.
    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        Ok(Box::new(GaugeReader {
            gauge: Arc::clone(&split.name),
            schema: Arc::clone(&self.schema),
            next: from.map_or(0, |position| position.offset),
            end: self.readings,
            options,
        }))
    }
}

/// Reads one gauge.
struct GaugeReader {
    gauge: Arc<str>,
    schema: SchemaRef,
    next: i64,
    end: i64,
    options: ReadOptions,
}

#[async_trait]
impl SplitReader for GaugeReader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let offsets = self.next..self.end.min(self.next + self.options.batch_rows as i64);
        if offsets.is_empty() {
            return Ok(SplitEvent::End);
        }
        let times = offsets.clone().map(|n| n * 10 * MINUTE_US);
        let levels = offsets.clone().map(|n| level_cm(&self.gauge, n));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
            Arc::new(StringViewArray::from_iter_values(offsets.clone().map(|_| &*self.gauge))),
            Arc::new(levels.collect::<Float64Array>()),
        ];
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .and_then(|rows| rows.project(&self.options.projection))
            .map_err(|e| Error::invalid("the declared columns are not a time, a text and a double").with_source(e))?;
        self.next = offsets.end;
        Ok(SplitEvent::Rows(SourceBatch {
            bytes: rows.get_array_memory_size() as u64,
            rows,
            offsets: Offsets::From(offsets.start),
            rejects: vec![],
            notes: Notes::default(),
            next: Position { offset: offsets.end, token: String::new() },
        }))
    }
}

/// A tide of 12 hours and 25 minutes, later by a third of it and higher from harbour to harbour.
fn level_cm(gauge: &str, reading: i64) -> Option<f64> {
    let (phase, range) = match gauge {
        "cuxhaven" => (0.0, 150.0),
        "dover" => (1.0 / 3.0, 300.0),
        _ => (2.0 / 3.0, 600.0),
    };
    // Every fiftieth reading fails, as readings do.
    (reading % 50 != 49).then(|| range * (TAU * (reading as f64 * 10.0 / 745.0 - phase)).sin())
}
