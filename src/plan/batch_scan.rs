//! A source read to its end by DataFusion: one partition per split, through the same connector as the live path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, IsNullExpr, Literal, binary};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream;

use super::error::external;
use super::source_table::{ColumnValue, SourceTable, compile};
use crate::connectors::{DecodeJob, DecodePool, ReadOptions, Source, SourceBatch, Split, SplitEvent, SplitReader};
use crate::error::{Error, Result};
use crate::operators::graph::SourceSpec;
use crate::time::YEARS_US;

/// Where a batch plan decodes, as a session extension (`SessionConfig::with_extension`). Without one a partition decodes
/// on the thread that reads it.
#[derive(Debug, Clone)]
pub struct BatchDecode(pub Arc<dyn DecodePool>);

/// Counts the rows that a batch run reads through connectors, as an extension of its task context. Scans that are
/// DataFusion's own count for themselves, in their metrics.
#[derive(Debug, Default)]
pub struct RowsRead(AtomicU64);

impl RowsRead {
    /// Rows read so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, rows: usize) {
        self.0.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

/// A source as a batch plan reads it. Predicates may be pushed into it, since no watermark has to see every row.
#[derive(Debug)]
pub(super) struct BatchTable(pub SourceTable);

#[async_trait]
impl TableProvider for BatchTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        scan(&self.0, state, projection, filters).await
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// Scans `table` to its end, where its rows are kept for batch runs if they are. Rows that `filters` rule out may be left
/// out.
pub(super) async fn scan(
    table: &SourceTable,
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let all: Vec<usize> = (0..table.schema().fields().len()).collect();
    let wanted = projection.unwrap_or(&all);
    if let Some(store) = table.batch_store().filter(|_| table.is_bounded()) {
        let stored = store.pin(state).await.map_err(external)?.table;
        let place = |column: &usize| stored.schema().index_of(table.schema().field(*column).name());
        let columns = wanted.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        return stored.scan(state, Some(&columns), filters, None).await;
    }
    let event_time = table.watermark().map(|watermark| table.columns()[watermark.column].field.name());
    match event_time.and_then(|name| table.within(times_of(filters, name))) {
        Some(part) => scan_all(&part, state, wanted, filters).await,
        None => scan_all(table, state, wanted, filters).await,
    }
}

/// Bounds `[from, to)`, µs, that `filters` set to the column `name`.
fn times_of(filters: &[Expr], name: &str) -> (Option<i64>, Option<i64>) {
    let (mut from, mut to) = (None, None);
    for filter in filters.iter().flat_map(split_conjunction) {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { continue };
        let (Expr::Column(column), Expr::Literal(ScalarValue::TimestampMicrosecond(Some(us), _), _)) =
            (left.as_ref(), right.as_ref())
        else {
            continue;
        };
        if column.name != name {
            continue;
        }
        if matches!(op, Operator::Gt | Operator::GtEq | Operator::Eq) {
            from = from.max(Some(*us));
        }
        if matches!(op, Operator::Lt | Operator::LtEq | Operator::Eq) {
            let end = if *op == Operator::Lt { *us } else { us.saturating_add(1) };
            to = Some(to.map_or(end, |to: i64| to.min(end)));
        }
    }
    (from, to)
}

async fn scan_all(
    table: &SourceTable,
    state: &dyn Session,
    wanted: &[usize],
    filters: &[Expr],
) -> DfResult<Arc<dyn ExecutionPlan>> {
    if !table.is_bounded() {
        return Err(external(
            Error::unsupported(format!("batch read of source `{}`, which never ends", table.name()))
                .with_hint("read a view over it, or add EMIT CHANGES to stream it"),
        ));
    }
    let declared: Vec<usize> = wanted.iter().copied().filter(|c| table.position_column(*c).is_none()).collect();
    let with_position = declared.len() < wanted.len();
    let physical = table.physical_columns(&declared).map_err(external)?;
    let mut schema: SchemaRef = Arc::new(table.source().schema().project(&physical)?);
    if !with_position && let Some(plan) = parquet(table, state, &schema, wanted, filters).await? {
        return Ok(plan);
    }
    let pool = match state.config().get_extension::<BatchDecode>() {
        Some(decode) => Arc::clone(&decode.0),
        None => Arc::new(InPlace) as Arc<dyn DecodePool>,
    };
    let options = ReadOptions { projection: physical, batch_rows: state.config().batch_size(), pool };
    let first = schema.fields().len();
    if with_position {
        let position = SourceSpec::position_fields();
        schema = Arc::new(Schema::new(schema.fields().iter().cloned().chain(position).collect::<Vec<_>>()));
    }
    let splits = table.source().splits().await.map_err(external)?;
    let partitions = splits
        .into_iter()
        .map(|split| {
            Arc::new(SplitStream {
                source: Arc::clone(table.source()),
                split,
                options: options.clone(),
                schema: Arc::clone(&schema),
                with_position,
            }) as Arc<dyn PartitionStream>
        })
        .collect();
    let scan = Arc::new(StreamingTableExec::try_new(Arc::clone(&schema), partitions, None, [], false, None)?);
    let input = DFSchema::try_from(schema)?;
    let columns = wanted
        .iter()
        .map(|column| {
            let name = table.schema().field(*column).name().clone();
            let value: Arc<dyn PhysicalExpr> = match table.position_column(*column) {
                Some(position) => {
                    Arc::new(PhysicalColumn::new(SourceSpec::position_fields()[position].name(), first + position))
                }
                None => compile(&table.value_of(*column), &input)?,
            };
            Ok((value, name))
        })
        .collect::<Result<Vec<_>>>()
        .map_err(external)?;
    let plan: Arc<dyn ExecutionPlan> = Arc::new(ProjectionExec::try_new(columns, scan)?);
    // The connector has looked at what it reads itself.
    let computed = |column: usize| matches!(table.columns()[column].value, ColumnValue::Computed(_));
    let event_time = table.watermark().map(|watermark| watermark.column).filter(|column| computed(*column));
    within_years(plan, (0..wanted.len()).filter(|at| Some(wanted[*at]) == event_time))
}

/// `plan` without the rows that have an instant beyond the years in one of `columns`: a stream rejects them (T1).
fn within_years(
    plan: Arc<dyn ExecutionPlan>,
    columns: impl IntoIterator<Item = usize>,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let instant = |us: &i64| {
        let instant = ScalarValue::TimestampMicrosecond(Some(*us), Some("UTC".into()));
        Arc::new(Literal::new(instant)) as Arc<dyn PhysicalExpr>
    };
    let mut good: Option<Arc<dyn PhysicalExpr>> = None;
    for column in columns {
        let value: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(schema.field(column).name(), column));
        let from = binary(Arc::clone(&value), Operator::GtEq, instant(YEARS_US.start()), &schema)?;
        let to = binary(Arc::clone(&value), Operator::LtEq, instant(YEARS_US.end()), &schema)?;
        let within = binary(from, Operator::And, to, &schema)?;
        let within = binary(Arc::new(IsNullExpr::new(value)), Operator::Or, within, &schema)?;
        good = Some(match good {
            Some(others) => binary(others, Operator::And, within, &schema)?,
            None => within,
        });
    }
    Ok(match good {
        Some(good) => Arc::new(FilterExec::try_new(good, plan)?),
        None => plan,
    })
}

/// Whether the files' own statistics say that `column` of `plan` holds no instant beyond the years.
fn is_within_years(statistics: &Statistics, column: usize) -> bool {
    let Some(known) = statistics.column_statistics.get(column) else { return false };
    let within = |bound: &Precision<ScalarValue>| match bound {
        Precision::Exact(ScalarValue::TimestampMicrosecond(Some(us), _)) => YEARS_US.contains(us),
        _ => false,
    };
    within(&known.min_value) && within(&known.max_value)
}

/// DataFusion's own scan, where the source is nothing but Parquet files that hold every declared column as declared, so that
/// none of them refuses a row.
async fn parquet(
    table: &SourceTable,
    state: &dyn Session,
    schema: &SchemaRef,
    wanted: &[usize],
    filters: &[Expr],
) -> DfResult<Option<Arc<dyn ExecutionPlan>>> {
    let Some(paths) = table.parquet() else { return Ok(None) };
    let direct = wanted.iter().all(|c| matches!(table.columns()[*c].value, ColumnValue::Physical(_)));
    if !direct || wanted.is_empty() || paths.is_empty() {
        return Ok(None);
    }
    let urls = paths.iter().map(ListingTableUrl::parse).collect::<DfResult<Vec<_>>>()?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default().with_enable_pruning(true)));
    let declared = table.source().schema();
    for url in &urls {
        let Ok(files) = options.infer_schema(state, url).await else { return Ok(None) };
        let has = |field: &Field| files.field_with_name(field.name()).is_ok_and(|file| same_values(file, field));
        let lacks = |field: &Field| {
            field.is_nullable() && !files.fields().iter().any(|file| file.name().eq_ignore_ascii_case(field.name()))
        };
        let fits = |field: &Field| has(field) || schema.index_of(field.name()).is_err() && lacks(field);
        if !declared.fields().iter().all(|field| fits(field)) {
            return Ok(None);
        }
    }
    let config =
        ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(Arc::clone(&declared));
    let files = ListingTable::try_new(config)?;
    let is_instant = |column: &usize| matches!(declared.field(*column).data_type(), DataType::Timestamp(_, _));
    let order: Vec<usize> = wanted
        .iter()
        .map(|column| declared.index_of(table.columns()[*column].field.name()))
        .collect::<Result<_, _>>()?;
    let others: Vec<usize> = (0..declared.fields().len()).filter(|c| is_instant(c) && !order.contains(c)).collect();
    if !others.is_empty() {
        let plan = files.scan(state, Some(&others), &[], None).await?;
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
        if !(0..others.len()).all(|at| is_within_years(&statistics, at)) {
            return Ok(None);
        }
    }
    let plan = files.scan(state, Some(&order), filters, None).await?;
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    let instants = (0..order.len()).filter(|at| is_instant(&order[*at]));
    within_years(plan, instants.filter(|at| !is_within_years(&statistics, *at))).map(Some)
}

/// Whether reading `file` as `declared` is the same values: only the representation of texts and the zone of instants
/// may differ, and a NULL where none is declared refuses its row.
fn same_values(file: &Field, declared: &Field) -> bool {
    if file.is_nullable() && !declared.is_nullable() {
        return false;
    }
    let (file, declared) = (file.data_type(), declared.data_type());
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let instant = |t: &DataType| matches!(t, DataType::Timestamp(TimeUnit::Microsecond, _));
    file == declared || (text(file) && text(declared)) || (instant(file) && instant(declared))
}

/// One split of a source as a partition.
#[derive(Debug)]
struct SplitStream {
    source: Arc<dyn Source>,
    split: Split,
    options: ReadOptions,
    schema: SchemaRef,
    /// Whether rows say where they stand.
    with_position: bool,
}

enum Reading {
    Unopened(Arc<dyn Source>, Split, ReadOptions),
    Open(Box<dyn SplitReader>),
}

impl PartitionStream for SplitStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let read = context.session_config().get_extension::<RowsRead>();
        let start = Reading::Unopened(Arc::clone(&self.source), self.split.clone(), self.options.clone());
        let position_of = self.with_position.then(|| Arc::clone(&self.split.name));
        let start = (start, position_of, Arc::clone(&self.schema), read);
        let batches = stream::try_unfold(start, |(reading, position_of, schema, read)| async move {
            let mut reader = match reading {
                Reading::Unopened(source, split, options) => {
                    source.open(&split, None, options).await.map_err(external)?
                }
                Reading::Open(reader) => reader,
            };
            loop {
                match reader.next().await.map_err(external)? {
                    SplitEvent::Rows(batch) if batch.rows.num_rows() > 0 => {
                        let beyond = batch.beyond_years().map_err(external)?;
                        let batch = batch.without(&beyond).map_err(external)?;
                        if let Some(read) = &read {
                            read.add(batch.rows.num_rows());
                        }
                        let rows = match &position_of {
                            Some(split) => with_position(&schema, split, &batch)?,
                            None => batch.rows,
                        };
                        return Ok(Some((rows, (Reading::Open(reader), position_of, schema, read))));
                    }
                    SplitEvent::End => return Ok(None),
                    _ => {}
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// The rows of `batch` and where they stand in `split`.
fn with_position(schema: &SchemaRef, split: &str, batch: &SourceBatch) -> DfResult<RecordBatch> {
    let position = SourceSpec::position_columns(split, &batch.offsets, batch.rows.num_rows());
    let columns = batch.rows.columns().iter().cloned().chain(position).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Decodes where it is asked.
#[derive(Debug)]
struct InPlace;

impl DecodePool for InPlace {
    fn run(&self, job: DecodeJob) -> BoxFuture<'static, Result<Vec<SourceBatch>>> {
        ready(job()).boxed()
    }

    fn parallelism(&self) -> usize {
        1
    }
}
