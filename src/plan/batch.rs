//! The batch lowering: a window becomes DataFusion operators.
//!
//! | window | becomes |
//! | --- | --- |
//! | fixed length | arithmetic on microseconds, floor toward minus infinity |
//! | HOP, CUMULATE | the same, then `unnest` of the starts or ends of the row's windows |
//! | calendar | [`calendar_function`](super::calendar_function), then `unnest` where there are several |
//! | SESSION | `lag` and a running count per key find the sessions, `min` and `max` over each its bounds |
//!
//! All nodes are DataFusion's own, so that the plan also runs where only DataFusion is. Rows without an event time are left
//! out, as the streaming side rejects them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullHandling, Result as DfResult, ScalarValue, UnnestOptions};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::functions::core::expr_ext::FieldAccessor;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::functions_nested::expr_fn::array_append;
use datafusion::functions_nested::range::range;
use datafusion::functions_window::expr_fn::lag;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableScan, WindowFrame,
    WindowFunctionDefinition, cast, lit, when,
};

use super::batch_scan::BatchTable;
use super::calendar_function::windows_function;
use super::error::from_datafusion;
use super::source_table::{SourceTable, unqualified};
use super::window_node::{WINDOW_END, WINDOW_START, WINDOW_TIME, WindowAssign, instant_type};
use crate::error::Result;
use crate::window::{ExactGrid, WindowKind};

/// Columns the lowering adds on its way.
const PHASE: &str = "__phase";
const BOUND: &str = "__bound";
const PREVIOUS: &str = "__previous";
const SESSION: &str = "__session";
const FIRST: &str = "__first";
const LAST: &str = "__last";

/// Replaces every [`WindowAssign`] of `plan`, and has its sources read as a batch reads them.
pub(super) fn lower_windows(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match (WindowAssign::of(&node), &node) {
        (Some(assign), _) => Ok(Transformed::yes(lower(assign, (None, None))?)),
        (None, LogicalPlan::TableScan(scan)) => match source_of(scan) {
            Some(source) => Ok(Transformed::yes(read_by(scan, Arc::new(BatchTable(source)))?)),
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::yes(node.recompute_schema()?)),
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

/// The source that `scan` reads, if it is one of ours.
pub(super) fn source_of(scan: &TableScan) -> Option<SourceTable> {
    source_as_provider(&scan.source).ok()?.downcast_ref::<SourceTable>().cloned()
}

/// The same scan of another table, all its columns.
pub(super) fn read_by(scan: &TableScan, table: Arc<dyn TableProvider>) -> DfResult<LogicalPlan> {
    LogicalPlanBuilder::scan(scan.table_name.clone(), provider_as_source(table), scan.projection.clone())?.build()
}

/// The node as DataFusion operators. Of the rows only those with event times in `[from, to)` are read, µs; who says so
/// knows that the windows wanted have no others.
pub(super) fn lower(assign: &WindowAssign, times: (Option<i64>, Option<i64>)) -> DfResult<LogicalPlan> {
    let time = time_of(assign)?;
    let mut rows = LogicalPlanBuilder::from(assign.input.clone()).filter(assign.time.clone().is_not_null())?;
    if let Some(from) = times.0 {
        rows = rows.filter(time.clone().gt_eq(instant(from)))?;
    }
    if let Some(to) = times.1 {
        rows = rows.filter(time.clone().lt(instant(to)))?;
    }
    match (assign.spec.kind(), assign.spec.exact()) {
        (WindowKind::Session { gap_us }, _) => sessions(assign, rows, time, gap_us),
        (_, Some(grid)) => exact(assign, rows, time, grid),
        (_, None) => calendar(assign, rows, time),
    }
}

/// The event time as an instant.
fn time_of(assign: &WindowAssign) -> DfResult<Expr> {
    Ok(match assign.time.get_type(assign.input.schema())? == instant_type() {
        true => assign.time.clone(),
        false => cast(assign.time.clone(), instant_type()),
    })
}

/// An instant given in µs.
pub(super) fn instant(us: i64) -> Expr {
    lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())))
}

/// The columns of the node's input.
fn inputs(assign: &WindowAssign) -> Vec<Expr> {
    assign.input.schema().columns().into_iter().map(Expr::Column).collect()
}

/// The input's columns and the window's, from bounds in microseconds.
fn with_bounds(assign: &WindowAssign, rows: LogicalPlanBuilder, start: Expr, end: Expr) -> DfResult<LogicalPlan> {
    let instant = |us: Expr| cast(us, instant_type());
    let mut columns = inputs(assign);
    columns.push(instant(start).alias(WINDOW_START));
    columns.push(instant(end.clone()).alias(WINDOW_END));
    columns.push(instant(end - lit(1_i64)).alias(WINDOW_TIME));
    rows.project(columns)?.build()
}

fn unnest(rows: LogicalPlanBuilder, column: &str) -> DfResult<LogicalPlanBuilder> {
    let options = UnnestOptions::new().with_null_handling(NullHandling::Drop);
    rows.unnest_column_with_options(Column::new_unqualified(column), options)
}

fn exact(assign: &WindowAssign, rows: LogicalPlanBuilder, time: Expr, grid: ExactGrid) -> DfResult<LogicalPlan> {
    let ExactGrid { origin_us, period_us, size_us, step_us } = grid;
    // A multiple of the period that makes every time of the next 140,000 years either way positive: `%` then is a floor.
    let bias = (1_i64 << 62) / period_us * period_us - origin_us;
    let us = cast(time, DataType::Int64);
    let mut columns = inputs(assign);
    columns.push(((us.clone() + lit(bias)) % lit(period_us)).alias(PHASE));
    let rows = rows.project(columns)?;
    let phase = unqualified(PHASE);
    let cell = us - phase.clone();
    if let Some(step_us) = step_us {
        let first = cell.clone() + (phase / lit(step_us) + lit(1_i64)) * lit(step_us);
        let last = cell.clone() + lit(period_us);
        let ends = array_append(range(first, last.clone(), lit(step_us)), last);
        let rows = unnest(rows.project(with(assign, [(PHASE, unqualified(PHASE)), (BOUND, ends)]))?, BOUND)?;
        return with_bounds(assign, rows, cell, unqualified(BOUND));
    }
    if size_us <= period_us {
        let rows = if size_us < period_us { rows.filter(phase.lt(lit(size_us)))? } else { rows };
        return with_bounds(assign, rows, cell.clone(), cell + lit(size_us));
    }
    let first = cell.clone() - (lit(size_us - 1) - phase) / lit(period_us) * lit(period_us);
    let starts = range(first, cell + lit(period_us), lit(period_us));
    let rows = unnest(rows.project(with(assign, [(BOUND, starts)]))?, BOUND)?;
    with_bounds(assign, rows, unqualified(BOUND), unqualified(BOUND) + lit(size_us))
}

fn with<const N: usize>(assign: &WindowAssign, more: [(&str, Expr); N]) -> Vec<Expr> {
    let mut columns = inputs(assign);
    columns.extend(more.map(|(name, expr)| expr.alias(name)));
    columns
}

fn calendar(assign: &WindowAssign, rows: LogicalPlanBuilder, time: Expr) -> DfResult<LogicalPlan> {
    let windows = windows_function(&assign.spec).call(vec![time]);
    let rows = unnest(rows.project(with(assign, [(BOUND, windows)]))?, BOUND)?;
    let bound = |name: &str| cast(unqualified(BOUND).field(name), DataType::Int64);
    with_bounds(assign, rows, bound("start"), bound("end"))
}

/// Sorted by time, a row opens a session unless the one before it is less than the gap away. Two that only touch stay apart.
fn sessions(assign: &WindowAssign, rows: LogicalPlanBuilder, time: Expr, gap_us: i64) -> DfResult<LogicalPlan> {
    let us = cast(time, DataType::Int64);
    let keys = assign.partition_by.clone();
    let by_time = vec![us.clone().sort(true, false)];
    let previous = lag(us.clone(), Some(1), None).partition_by(keys.clone()).order_by(by_time.clone()).build()?;
    let rows = windowed(rows, inputs(assign), [(PREVIOUS, previous)])?;
    let opens = when((us.clone() - unqualified(PREVIOUS)).lt(lit(gap_us)), lit(0_i64)).otherwise(lit(1_i64))?;
    let number = over_rows(sum_udaf(), opens)
        .partition_by(keys.clone())
        .order_by(by_time)
        .window_frame(WindowFrame::new(Some(false)))
        .build()?;
    let rows = windowed(rows, inputs(assign), [(SESSION, number)])?;
    let partition: Vec<Expr> = keys.into_iter().chain([unqualified(SESSION)]).collect();
    let over = |function, us| over_rows(function, us).partition_by(partition.clone()).build();
    let (first, last) = (over(min_udaf(), us.clone())?, over(max_udaf(), us)?);
    let rows = windowed(rows, inputs(assign), [(FIRST, first), (LAST, last)])?;
    with_bounds(assign, rows, unqualified(FIRST), unqualified(LAST) + lit(gap_us))
}

/// `columns`, and window functions over the rows under names of their own.
fn windowed<const N: usize>(
    rows: LogicalPlanBuilder,
    mut columns: Vec<Expr>,
    functions: [(&str, Expr); N],
) -> DfResult<LogicalPlanBuilder> {
    let rows = rows.window(functions.iter().map(|(_, function)| function.clone()))?;
    columns.extend(functions.map(|(name, function)| unqualified(&function.schema_name().to_string()).alias(name)));
    rows.project(columns)
}

/// An aggregate as a window function.
fn over_rows(function: Arc<AggregateUDF>, argument: Expr) -> Expr {
    Expr::from(WindowFunction::new(WindowFunctionDefinition::AggregateUDF(function), vec![argument]))
}
