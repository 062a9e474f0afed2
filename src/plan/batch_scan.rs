//! A source read to its end by DataFusion: one partition per split, through the same connector as the live path.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream;

use super::error::external;
use super::source_table::{SourceTable, compile};
use crate::connectors::{DecodeJob, DecodePool, ReadOptions, Source, SourceBatch, Split, SplitEvent, SplitReader};
use crate::error::{Error, Result};

/// Where a batch plan decodes, as a session extension (`SessionConfig::with_extension`). Without one a partition decodes
/// on the thread that reads it.
#[derive(Debug, Clone)]
pub struct BatchDecode(pub Arc<dyn DecodePool>);

/// Scans `table` to its end.
pub(super) async fn scan(
    table: &SourceTable,
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    if !table.is_bounded() {
        return Err(external(
            Error::unsupported(format!("batch read of source `{}`, which never ends", table.name()))
                .with_hint("read a view over it, or add EMIT CHANGES to stream it"),
        ));
    }
    let all: Vec<usize> = (0..table.columns().len()).collect();
    let wanted = projection.unwrap_or(&all);
    let physical = table.physical_columns(wanted).map_err(external)?;
    let schema: SchemaRef = Arc::new(table.source().schema().project(&physical)?);
    let pool = match state.config().get_extension::<BatchDecode>() {
        Some(decode) => Arc::clone(&decode.0),
        None => Arc::new(InPlace) as Arc<dyn DecodePool>,
    };
    let options = ReadOptions { projection: physical, batch_rows: state.config().batch_size(), pool };
    let splits = table.source().splits().await.map_err(external)?;
    let partitions = splits
        .into_iter()
        .map(|split| {
            Arc::new(SplitStream {
                source: Arc::clone(table.source()),
                split,
                options: options.clone(),
                schema: Arc::clone(&schema),
            }) as Arc<dyn PartitionStream>
        })
        .collect();
    let scan = Arc::new(StreamingTableExec::try_new(Arc::clone(&schema), partitions, None, [], false, None)?);
    let input = DFSchema::try_from(schema)?;
    let columns = wanted
        .iter()
        .map(|column| Ok((compile(&table.value_of(*column), &input)?, table.columns()[*column].field.name().clone())))
        .collect::<Result<Vec<_>>>()
        .map_err(external)?;
    Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
}

/// One split of a source as a partition.
#[derive(Debug)]
struct SplitStream {
    source: Arc<dyn Source>,
    split: Split,
    options: ReadOptions,
    schema: SchemaRef,
}

enum Reading {
    Unopened(Arc<dyn Source>, Split, ReadOptions),
    Open(Box<dyn SplitReader>),
}

impl PartitionStream for SplitStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let start = Reading::Unopened(Arc::clone(&self.source), self.split.clone(), self.options.clone());
        let batches = stream::try_unfold(start, |reading| async move {
            let mut reader = match reading {
                Reading::Unopened(source, split, options) => {
                    source.open(&split, None, options).await.map_err(external)?
                }
                Reading::Open(reader) => reader,
            };
            loop {
                match reader.next().await.map_err(external)? {
                    SplitEvent::Rows(batch) if batch.rows.num_rows() > 0 => {
                        return Ok(Some((batch.rows, Reading::Open(reader))));
                    }
                    SplitEvent::End => return Ok(None),
                    _ => {}
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// Decodes where it is asked.
#[derive(Debug)]
struct InPlace;

impl DecodePool for InPlace {
    fn run(&self, job: DecodeJob) -> BoxFuture<'static, Result<SourceBatch>> {
        ready(job()).boxed()
    }

    fn parallelism(&self) -> usize {
        1
    }
}
