//! Running a view's plan over pinned input, for the windows of a range.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, new_null_array};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef, TimestampMicrosecondType};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::sql::sqlparser::ast;

use super::range::Ends;
use crate::error::{Error, Result};
use crate::operators::chain::settle;
use crate::operators::failed::FailedResult;
use crate::operators::graph::{AggregateInput, AggregateSpec, Operator, OperatorGraph};
use crate::plan::{PinnedInput, Planner, RowsRead, WindowRange, from_datafusion};
use crate::window::{Window, WindowKind, WindowSpec};

/// How far a first attempt at sessions reads back, in gaps.
const SESSION_GAPS: i64 = 64;

/// What a run has made.
#[derive(Debug, Default)]
pub struct Computed {
    /// Result rows, with the columns of the graph's last node.
    pub rows: Vec<RecordBatch>,
    /// Results of which a value could not be computed.
    pub failed: Vec<FailedResult>,
    /// Rows of each window of the first aggregate, over all keys, before HAVING.
    pub pairs: BTreeMap<Window, u64>,
    /// Rows the run read.
    pub rows_read: u64,
}

/// The results of `query`, planned as `graph`, for the windows that end in `ends`.
///
/// # Errors
///
/// What planning and running the plan fail with.
pub async fn compute(
    planner: &Planner,
    query: &ast::Query,
    graph: &OperatorGraph,
    input: &PinnedInput,
    ends: Ends,
) -> Result<Computed> {
    let windows = windows(graph);
    let (first, nested) = windows.split_first().ok_or_else(|| Error::internal("a view without a window"))?;
    // Inner results lie in the outer window that holds their end less one microsecond.
    let after = nested.iter().rev().fold(ends.after, |after, spec| first_start(&spec.window, after));
    let inner = Ends { after, to: ends.to };
    let run = FirstWindow { planner, query, graph, input, ends: inner };
    let (values, rows_read) = match first.window.kind() {
        WindowKind::Session { gap_us } => run.sessions(gap_us).await?,
        _ => {
            let from = first_start(&first.window, inner.after);
            run.values((bound(from), bound(ends.to))).await?
        }
    };
    let pairs = pairs(&values)?;
    let mut failed = Vec::new();
    let rows = settle(graph, values, &mut failed)?;
    failed.retain(|result| ends.contains(result.window_end));
    let rows = rows.iter().map(|rows| ending_in(rows, ends)).collect::<Result<Vec<_>>>()?;
    Ok(Computed { rows, failed, pairs, rows_read })
}

/// The windows of `graph`, inner before outer.
pub fn windows(graph: &OperatorGraph) -> Vec<&AggregateSpec> {
    let nodes = graph.nodes.iter();
    nodes
        .filter_map(|node| match &node.operator {
            Operator::Window(spec) => Some(spec.as_ref()),
            _ => None,
        })
        .collect()
}

/// The first start of the windows that end after `after`; far back where that is not known.
fn first_start(spec: &WindowSpec, after: i64) -> i64 {
    let first = spec.next_end(after).and_then(|end| spec.windows_ending_at(end).first().copied());
    first.map_or(i64::MIN, |window| window.start)
}

/// A time as a bound of what is read: none where it rules nothing out.
fn bound(us: i64) -> Option<i64> {
    (us.unsigned_abs() < i64::MAX as u64 / 2).then_some(us)
}

struct FirstWindow<'a> {
    planner: &'a Planner,
    query: &'a ast::Query,
    graph: &'a OperatorGraph,
    input: &'a PinnedInput,
    ends: Ends,
}

impl FirstWindow<'_> {
    /// Values of the first window, and how many rows were read for them.
    async fn values(&self, times_us: (Option<i64>, Option<i64>)) -> Result<(Vec<RecordBatch>, u64)> {
        let range = WindowRange { ends_us: (self.ends.after, self.ends.to), times_us };
        let plan = self.planner.plan_windows(self.query, self.graph, self.input, range).await?;
        let read = Arc::new(RowsRead::default());
        let context = TaskContext::from(self.planner.session());
        let config = context.session_config().clone().with_extension(Arc::clone(&read));
        let context = Arc::new(context.with_session_config(config));
        let values = collect(Arc::clone(&plan), context).await.map_err(from_datafusion)?;
        let schema = self.schema()?;
        let values = values.iter().map(|rows| conform(rows, &schema)).collect::<Result<Vec<_>>>()?;
        Ok((values, read.get() + rows_scanned(plan.as_ref())))
    }

    /// Sessions reach back as far as their rows do: reads further back until none touches the edge of what was read.
    async fn sessions(&self, gap_us: i64) -> Result<(Vec<RecordBatch>, u64)> {
        let mut reach = gap_us.saturating_mul(SESSION_GAPS);
        let mut read = 0;
        loop {
            let from = if self.input.prunes() { self.ends.after.saturating_sub(reach) } else { i64::MIN };
            let (values, rows) = self.values((bound(from), bound(self.ends.to))).await?;
            read += rows;
            let starts = values
                .iter()
                .filter_map(|rows| arrow::compute::min(rows.column(0).as_primitive::<TimestampMicrosecondType>()));
            let touched = starts.min().is_some_and(|start| start < from.saturating_add(gap_us));
            if !touched || bound(from).is_none() {
                return Ok((values, read));
            }
            reach = reach.saturating_mul(8);
        }
    }

    fn schema(&self) -> Result<SchemaRef> {
        let first = self
            .graph
            .nodes
            .iter()
            .find(|node| matches!(&node.operator, Operator::Window(spec) if spec.input == AggregateInput::Rows));
        first.map(|node| Arc::clone(&node.schema)).ok_or_else(|| Error::internal("a view without a window"))
    }
}

/// `rows` with the types of `schema`; columns that it has behind them are NULL.
fn conform(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let unfit = |e| Error::internal("a batch run gave other columns than the view has").with_source(e);
    let column = |(i, field): (usize, &Arc<arrow::datatypes::Field>)| match rows.columns().get(i) {
        Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
        Some(column) => cast(column, field.data_type()).map_err(unfit),
        None => Ok(new_null_array(field.data_type(), rows.num_rows())),
    };
    let columns = schema.fields().iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(unfit)
}

/// Rows that DataFusion's own scans in `plan` gave.
fn rows_scanned(plan: &dyn ExecutionPlan) -> u64 {
    let children = plan.children();
    if children.is_empty() {
        return plan.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or(0) as u64;
    }
    children.into_iter().map(|child| rows_scanned(child.as_ref())).sum()
}

fn pairs(values: &[RecordBatch]) -> Result<BTreeMap<Window, u64>> {
    let mut pairs = BTreeMap::new();
    for rows in values {
        let counts = rows.column_by_name("_event_count").ok_or_else(|| Error::internal("a value without a count"))?;
        let counts = counts.as_primitive::<Int64Type>();
        for (window, count) in windows_of(rows, 0, 1).zip(counts.values()) {
            *pairs.entry(window).or_default() += count.unsigned_abs();
        }
    }
    Ok(pairs)
}

/// The windows of rows, from the columns that hold their bounds.
pub fn windows_of(rows: &RecordBatch, start: usize, end: usize) -> impl Iterator<Item = Window> + '_ {
    let us = |column: usize| rows.column(column).as_primitive::<TimestampMicrosecondType>().values().iter().copied();
    us(start).zip(us(end)).map(|(start, end)| Window { start, end })
}

fn ending_in(rows: &RecordBatch, ends: Ends) -> Result<RecordBatch> {
    let column = rows.column_by_name("_window_end").ok_or_else(|| Error::internal("a result without a window"))?;
    let times = column.as_primitive::<TimestampMicrosecondType>();
    let meant = times.values().iter().map(|end| Some(ends.contains(*end))).collect();
    filter_record_batch(rows, &meant).map_err(|e| Error::internal("cannot cut result rows").with_source(e))
}
