//! `v$history`: every version beside the change from the one before.
//!
//! ```text
//!  revenue │ revenue_change                                             │ … _version _reason
//!    50000 │ {old: , new: 50000, diff: , pct_change: }                  │   1        initial
//!    52500 │ {old: 50000, new: 52500, diff: 2500, pct_change: 5.0}      │   2        late_data
//! ```
//!
//! Every numeric SELECT column that is no key has a change. Integer and decimal differences are exact and NULL where
//! they leave their type; `pct_change` is `diff / old * 100`, NULL where `old` is NULL or zero. A deleted version counts
//! as having no values. Rows come in the order of window, key and version.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StructArray, UInt32Array,
};
use arrow::compute::{SortOptions, cast, concat, nullif, take};
use arrow::datatypes::{DataType, Decimal128Type, Field, Fields, Float64Type, Int64Type, Schema, SchemaRef};
use arrow::row::{OwnedRow, RowConverter, SortField};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
    PhysicalSortExpr,
};
use datafusion::physical_plan::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;

use super::schema::{StoredSchema, column};
use super::table::{Table, compile, project};

/// A column of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// A stored column.
    Stored(usize),
    /// The change of a stored column.
    Change(usize),
}

fn outputs(stored: &StoredSchema) -> Vec<Output> {
    let changes = (0..stored.select_len)
        .filter(|i| stored.results.field(*i).data_type().is_numeric() && !stored.identity.contains(i));
    let select = (0..stored.select_len).map(Output::Stored);
    let rest = (stored.select_len..stored.results.fields().len()).map(Output::Stored);
    select.chain(changes.map(Output::Change)).chain(rest).collect()
}

/// Columns of history: the SELECT columns, their changes, the version columns.
pub(super) fn schema(stored: &StoredSchema) -> SchemaRef {
    let fields = outputs(stored).into_iter().map(|output| match output {
        Output::Stored(i) => stored.results.field(i).clone(),
        Output::Change(i) => {
            let field = stored.results.field(i);
            Field::new(format!("{}_change", field.name()), DataType::Struct(change_fields(field.data_type())), false)
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn change_fields(of: &DataType) -> Fields {
    let diff = match of {
        DataType::Decimal128(_, scale) => DataType::Decimal128(38, *scale),
        t if t.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    };
    Fields::from(vec![
        Field::new("old", of.clone(), true),
        Field::new("new", of.clone(), true),
        Field::new("diff", diff, true),
        Field::new("pct_change", DataType::Float64, true),
    ])
}

/// The table behind `v$history`.
#[derive(Debug)]
pub(super) struct HistoryTable {
    table: Table,
    schema: SchemaRef,
}

impl HistoryTable {
    pub fn new(table: Table) -> Self {
        let schema = schema(&table.shared.stored);
        Self { table, schema }
    }
}

#[async_trait]
impl TableProvider for HistoryTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let stored = &self.table.shared.stored;
        let filters: Vec<Expr> = filters.iter().filter_map(|filter| stored.by_identity(filter)).collect();
        let filter = compile(session, &stored.results, &filters)?;
        let files = self.table.state.files(&self.table.id);
        let files = Table::prune(&stored.results, files.to_vec(), filter.as_ref())?;
        let every: Vec<usize> = (0..stored.results.fields().len()).collect();
        let mut scan = self.table.scan(session, &stored.results, &files, &every, filter.as_ref())?;
        if let Some(filter) = filter {
            // The scan only skips by it, yet the optimizer takes what it says for granted: with `k = 'a'` it would leave
            // `k` out of the order below, and versions of other keys would stand between those of one.
            scan = Arc::new(FilterExec::try_new(filter, scan)?);
        }
        let order = order(stored);
        let sorted = SortExec::new(order.clone(), scan).with_preserve_partitioning(true);
        let merged = Arc::new(SortPreservingMergeExec::new(order, Arc::new(sorted)));
        let history = Arc::new(HistoryExec::new(merged, stored.clone()));
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        project(history, projection.unwrap_or(&all))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let stored = &self.table.shared.stored;
        let support = |filter: &&Expr| match stored.by_identity(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }
}

/// By identity, then version.
fn order(stored: &StoredSchema) -> LexOrdering {
    let columns = stored.identity.iter().copied().chain([stored.index(column::VERSION)]).map(|i| {
        let column = Arc::new(Column::new(stored.results.field(i).name(), i));
        PhysicalSortExpr::new(column, SortOptions { descending: false, nulls_first: true })
    });
    LexOrdering::new(columns).expect("an identity has columns")
}

/// Adds changes to versions that come sorted by identity and version, in one partition.
#[derive(Debug)]
struct HistoryExec {
    input: Arc<dyn ExecutionPlan>,
    stored: StoredSchema,
    properties: Arc<PlanProperties>,
}

impl HistoryExec {
    fn new(input: Arc<dyn ExecutionPlan>, stored: StoredSchema) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema(&stored)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { input, stored, properties: Arc::new(properties) }
    }
}

impl DisplayAs for HistoryExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HistoryExec")
    }
}

impl ExecutionPlan for HistoryExec {
    fn name(&self) -> &str {
        "HistoryExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        // Said aloud, or the optimizer takes the sort away where nothing above needs an order.
        vec![Some(OrderingRequirements::from(order(&self.stored)))]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, self.stored.clone()))),
            Err(_) => internal_err!("HistoryExec has one child"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let versions = self.input.execute(partition, context)?;
        let mut differ = Differ::try_new(self.stored.clone())?;
        let stream = versions.map(move |batch| differ.add_changes(&batch?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}

/// Compares each version with the one before it, across batches.
struct Differ {
    stored: StoredSchema,
    outputs: Vec<Output>,
    schema: SchemaRef,
    converter: RowConverter,
    /// Identity and row of the last version seen.
    last: Option<(OwnedRow, RecordBatch)>,
}

impl Differ {
    fn try_new(stored: StoredSchema) -> Result<Self> {
        let types = stored.identity.iter().map(|i| stored.results.field(*i).data_type().clone());
        let converter = RowConverter::new(types.map(SortField::new).collect())?;
        Ok(Self { outputs: outputs(&stored), schema: schema(&stored), stored, converter, last: None })
    }

    fn add_changes(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        let identity: Vec<ArrayRef> = self.stored.identity.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        let keys = self.converter.convert_columns(&identity)?;
        // Row 0 of "before" is the last row of the batch before, or a stand-in that nothing refers to.
        let (last_key, last_row) = self.last.take().unzip();
        let last_row = last_row.unwrap_or_else(|| batch.slice(0, 1));
        // A version whose predecessor was dropped for its age (retention) has nothing to be compared with.
        let version = self.stored.index(column::VERSION);
        let numbers = |of: &RecordBatch| of.column(version).as_primitive::<Int64Type>().values().clone();
        let (numbers, last_number) = (numbers(batch), numbers(&last_row)[0]);
        let before = UInt32Array::from_iter((0..rows).map(|row| {
            let follows = match row {
                0 => last_key.as_ref().is_some_and(|key| key.row() == keys.row(0)) && last_number + 1 == numbers[0],
                _ => keys.row(row - 1) == keys.row(row) && numbers[row - 1] + 1 == numbers[row],
            };
            follows.then_some(row as u32)
        }));
        let deleted = self.stored.index(column::DELETED);
        let columns = self.outputs.iter().map(|output| match *output {
            Output::Stored(i) => Ok(Arc::clone(batch.column(i))),
            Output::Change(i) => {
                let new = nullif(batch.column(i), batch.column(deleted).as_boolean())?;
                let last = nullif(last_row.column(i), last_row.column(deleted).as_boolean())?;
                let old = take(&concat(&[&last, &new])?, &before, None)?;
                change(old, new)
            }
        });
        let changed = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect::<Result<_>>()?)?;
        self.last = Some((keys.row(rows - 1).owned(), batch.slice(rows - 1, 1)));
        Ok(changed)
    }
}

fn change(old: ArrayRef, new: ArrayRef) -> Result<ArrayRef> {
    let fields = change_fields(new.data_type());
    let (diff, scale): (ArrayRef, i8) = match fields[2].data_type() {
        DataType::Int64 => {
            let (old, new) = (cast(&old, &DataType::Int64)?, cast(&new, &DataType::Int64)?);
            let pairs = old.as_primitive::<Int64Type>().iter().zip(new.as_primitive::<Int64Type>());
            (Arc::new(pairs.map(|(old, new)| new?.checked_sub(old?)).collect::<Int64Array>()), 0)
        }
        DataType::Decimal128(precision, scale) => {
            let limit = 10i128.pow(u32::from(*precision));
            let pairs = old.as_primitive::<Decimal128Type>().iter().zip(new.as_primitive::<Decimal128Type>());
            let diff = pairs.map(|(old, new)| new?.checked_sub(old?).filter(|diff| diff.abs() < limit));
            let diff = diff.collect::<Decimal128Array>().with_precision_and_scale(*precision, *scale)?;
            (Arc::new(diff), *scale)
        }
        _ => {
            let (old, new) = (cast(&old, &DataType::Float64)?, cast(&new, &DataType::Float64)?);
            let pairs = old.as_primitive::<Float64Type>().iter().zip(new.as_primitive::<Float64Type>());
            (Arc::new(pairs.map(|(old, new)| Some(new? - old?)).collect::<Float64Array>()), 0)
        }
    };
    debug_assert!(scale >= 0, "stored decimals have no negative scale");
    let (old_f, new_f) = (cast(&old, &DataType::Float64)?, cast(&new, &DataType::Float64)?);
    let pairs = old_f.as_primitive::<Float64Type>().iter().zip(new_f.as_primitive::<Float64Type>());
    let percent =
        pairs.map(|(old, new)| old.filter(|old| *old != 0.0).and_then(|old| Some((new? - old) / old * 100.0)));
    let percent = Arc::new(percent.collect::<Float64Array>());
    Ok(Arc::new(StructArray::try_new(fields, vec![old, new, diff, percent], None)?))
}
