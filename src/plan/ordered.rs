//! Aggregates whose value depends on the order of rows.
//!
//! `first_value`, `last_value`, `nth_value`, `array_agg`, `string_agg` and `any_value` are ordered by what the query says, then by
//! event time, split and offset, so that neither workers nor batches change a value (T5), and live and batch agree. It is
//! done in the logical plan, from which both lowerings start: what a row's place is made of is read with the source, led
//! up to the aggregate, and put behind its ORDER BY:
//!
//! ```text
//!  Aggregate  first_value(v)                     Aggregate  first_value(v ORDER BY ts, __split, __offset)
//!   Projection  ts, v, k                  ─►      Projection  ts, v, k, __split, __offset
//!    source                                        source, with its positions
//! ```
//!
//! Over the results of another window, their identity stands for split and offset. DISTINCT leaves no order to rows, so the
//! values themselves are sorted.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, Result as DfResult};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, TableScan, Union, lit,
};

use super::chain::without_alias;
use super::enrich::is_stream;
use super::error::{external, from_datafusion};
use super::source_table::{OFFSET, SPLIT, SourceTable};
use super::stream::window_below;
use super::window_node::WindowAssign;
use crate::error::{Error, Result};

/// Which of the sources of a UNION ALL a row is from.
const SOURCE: &str = "__source";

/// Orders the aggregates over windows in `plan` that depend on the order of rows.
pub(super) fn in_arrival_order(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
        if !window_below(&aggregate.input) || !aggregate.aggr_expr.iter().any(depends_on_order) {
            return Ok(Transformed::no(node));
        }
        let placed = place(&aggregate.input)?;
        let groups = aggregate.group_expr.len();
        let mut columns: Vec<usize> = (0..groups).collect();
        // Two calls that differed may be the same one now.
        let mut calls: Vec<Expr> = Vec::new();
        for expr in &aggregate.aggr_expr {
            let call = order(expr, &placed.place)?;
            let at = calls.iter().position(|other| *other == call);
            columns.push(groups + at.unwrap_or(calls.len()));
            if at.is_none() {
                calls.push(call);
            }
        }
        let schema = Arc::clone(&aggregate.schema);
        let aggregate = Aggregate::try_new(Arc::new(placed.plan), aggregate.group_expr.clone(), calls)?;
        under_names(LogicalPlan::Aggregate(aggregate), &columns, &schema).map(Transformed::yes)
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

fn depends_on_order(expr: &Expr) -> bool {
    expr.exists(|e| Ok(matches!(e, Expr::AggregateFunction(call) if is_ordered(call)))).unwrap_or(false)
}

fn is_ordered(call: &AggregateFunction) -> bool {
    collects(call) || matches!(call.func.name(), "first_value" | "last_value" | "nth_value" | "any_value")
}

fn collects(call: &AggregateFunction) -> bool {
    matches!(call.func.name(), "array_agg" | "string_agg")
}

/// `expr` with the row's place behind the query's own order.
fn order(expr: &Expr, place: &[Column]) -> DfResult<Expr> {
    let ordered = expr.clone().transform(|e| match e {
        Expr::AggregateFunction(mut call) if is_ordered(&call) => {
            let ties = match collects(&call) && call.params.distinct {
                true => sorted_values(&call)?,
                false => place.iter().cloned().map(Expr::Column).collect(),
            };
            let asked = std::mem::take(&mut call.params.order_by);
            // The second time an expression is named it decides nothing; DataFusion's accumulators miscount it.
            for sort in asked.into_iter().chain(ties.into_iter().map(|tie| tie.sort(true, false))) {
                if call.params.order_by.iter().all(|before| before.expr != sort.expr) {
                    call.params.order_by.push(sort);
                }
            }
            if call.func.name() == "any_value" {
                call.func = first_value_udaf();
                call.params.null_treatment = Some(NullTreatment::IgnoreNulls);
            }
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    });
    ordered.map(|t| t.data)
}

/// What distinct values are ordered by: themselves.
fn sorted_values(call: &AggregateFunction) -> DfResult<Vec<Expr>> {
    let value = call.params.args.first().cloned();
    if let Some(sort) = call.params.order_by.iter().find(|sort| Some(&sort.expr) != value.as_ref()) {
        return Err(external(
            Error::invalid(format!(
                "`{}` over DISTINCT values ordered by `{}`, of which a value may have several",
                call.func.name(),
                sort.expr.human_display()
            ))
            .with_hint("order by the argument itself, or leave out DISTINCT"),
        ));
    }
    Ok(value.into_iter().collect())
}

/// A plan that gives each row's place beside its columns.
struct Placed {
    plan: LogicalPlan,
    /// Columns that tell the order of rows, the most important first.
    place: Vec<Column>,
}

/// `plan` with the columns of the rows' places, as far as they can be led through it.
fn place(plan: &LogicalPlan) -> DfResult<Placed> {
    match plan {
        LogicalPlan::TableScan(scan) => place_source(plan, scan),
        LogicalPlan::Projection(projection) => place_projection(projection),
        LogicalPlan::Filter(filter) => {
            let Placed { plan, place } = place(&filter.input)?;
            let filter = Filter::try_new(filter.predicate.clone(), Arc::new(plan))?;
            Ok(Placed { plan: LogicalPlan::Filter(filter), place })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Placed { plan, place } = place(&alias.input)?;
            let plan = LogicalPlanBuilder::from(plan).alias(alias.alias.clone())?.build()?;
            let qualified = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
            Ok(Placed { plan, place: place.into_iter().map(qualified).collect() })
        }
        LogicalPlan::Join(join) => {
            let (left, right) =
                (Arc::unwrap_or_clone(Arc::clone(&join.left)), Arc::unwrap_or_clone(Arc::clone(&join.right)));
            let (inputs, place) = match (is_stream(&left), is_stream(&right)) {
                (true, false) => {
                    let Placed { plan, place } = place(&left)?;
                    (vec![plan, right], place)
                }
                (false, true) => {
                    let Placed { plan, place } = place(&right)?;
                    (vec![left, plan], place)
                }
                _ => return Ok(unplaced(plan)),
            };
            Ok(Placed { plan: plan.with_new_exprs(plan.expressions(), inputs)?, place })
        }
        LogicalPlan::Union(union) => place_union(plan, union),
        // The results of a window: their identity is their place.
        LogicalPlan::Aggregate(aggregate) => {
            let keys = || (0..aggregate.group_expr.len()).map(|i| (i, format!("__key_{i}")));
            let mut columns: Vec<Expr> = aggregate.schema.columns().into_iter().map(Expr::Column).collect();
            let hidden = keys().map(|(i, name)| columns[i].clone().alias(name)).collect::<Vec<_>>();
            columns.extend(hidden);
            let plan = LogicalPlanBuilder::from(plan.clone()).project(columns)?.build()?;
            Ok(Placed { plan, place: keys().map(|(_, name)| Column::new_unqualified(name)).collect() })
        }
        other => match WindowAssign::of(other) {
            Some(assign) => {
                let Placed { plan, place } = place(&assign.input)?;
                let time = match without_alias(&assign.time) {
                    Expr::Column(column) => Some(column.clone()),
                    _ => None,
                };
                let (spec, keys) = (assign.spec.clone(), assign.partition_by.clone());
                let plan = WindowAssign::try_new(plan, spec, assign.time.clone(), keys)?.into_plan();
                Ok(Placed { plan, place: time.into_iter().chain(place).collect() })
            }
            None => Ok(unplaced(other)),
        },
    }
}

fn unplaced(plan: &LogicalPlan) -> Placed {
    Placed { plan: plan.clone(), place: Vec::new() }
}

fn place_source(plan: &LogicalPlan, scan: &TableScan) -> DfResult<Placed> {
    let provider = source_as_provider(&scan.source)?;
    let Some(source) = provider.downcast_ref::<SourceTable>().filter(|_| scan.projection.is_none()) else {
        return Ok(unplaced(plan));
    };
    let table = provider_as_source(Arc::new(source.clone().with_position()));
    let plan = LogicalPlanBuilder::scan(scan.table_name.clone(), table, None)?.build()?;
    let place = [SPLIT, OFFSET].map(|name| Column::new(Some(scan.table_name.clone()), name)).to_vec();
    Ok(Placed { plan, place })
}

fn place_projection(projection: &Projection) -> DfResult<Placed> {
    let below = place(&projection.input)?;
    let mut exprs = projection.expr.clone();
    let mut at = Vec::new();
    for column in below.place {
        let column = Expr::Column(column);
        at.push(exprs.iter().position(|expr| *without_alias(expr) == column).unwrap_or(exprs.len()));
        if at.last() == Some(&exprs.len()) {
            exprs.push(column);
        }
    }
    let projection = Projection::try_new(exprs, Arc::new(below.plan))?;
    let place = at.into_iter().map(|i| Column::from(projection.schema.qualified_field(i))).collect();
    Ok(Placed { plan: LogicalPlan::Projection(projection), place })
}

/// Each input with its number before its rows' places, all in the same columns.
fn place_union(plan: &LogicalPlan, union: &Union) -> DfResult<Placed> {
    const NAMES: [&str; 3] = [SOURCE, SPLIT, OFFSET];
    let mut inputs = Vec::new();
    for (number, input) in union.inputs.iter().enumerate() {
        let below = place(input)?;
        let [.., split, offset] = below.place.as_slice() else { return Ok(unplaced(plan)) };
        let number = lit(i32::try_from(number).unwrap_or(i32::MAX)).alias(SOURCE);
        let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let place = [(split, SPLIT), (offset, OFFSET)].map(|(column, name)| Expr::Column(column.clone()).alias(name));
        columns.push(number);
        columns.extend(place);
        inputs.push(Arc::new(LogicalPlanBuilder::from(below.plan).project(columns)?.build()?));
    }
    let plan = LogicalPlan::Union(Union::try_new(inputs)?);
    let width = plan.schema().fields().len();
    let place = (width - NAMES.len()..width).map(|i| Column::from(plan.schema().qualified_field(i))).collect();
    Ok(Placed { plan, place })
}

/// `columns` of `plan` under the names of `schema`.
fn under_names(plan: LogicalPlan, columns: &[usize], schema: &DFSchemaRef) -> DfResult<LogicalPlan> {
    let named = columns.iter().zip(schema.iter()).map(|(i, (qualifier, field))| {
        Expr::Column(Column::from(plan.schema().qualified_field(*i))).alias_qualified(qualifier.cloned(), field.name())
    });
    let named: Vec<Expr> = named.collect();
    LogicalPlanBuilder::from(plan).project(named)?.build()
}
