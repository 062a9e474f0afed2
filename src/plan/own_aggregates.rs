//! Aggregates that DataFusion has and computes differently: ours take their place in the plan, for both lowerings.
//!
//! | function | over | because |
//! | --- | --- | --- |
//! | `sum` | integers | it must not wrap: [`sum`] |
//! | `min`, `max` | floats | infinity, NaN and the order of rows: [`extremes`] |

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as DfResult};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};

use super::error::from_datafusion;
use super::{extremes, sum};
use crate::error::Result;

/// Replaces them in every aggregate of `plan`. Columns keep their names and types: a sum is narrowed right above.
pub(super) fn substitute(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate.clone();
        let calls = aggr_expr.into_iter().map(|call| of_ours(call, &input)).collect::<DfResult<Vec<_>>>()?;
        if calls.iter().all(|call| !call.transformed) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let ours = Aggregate::try_new(input, group_expr, calls.into_iter().map(|call| call.data).collect())?;
        let same_type = |i: usize| ours.schema.field(i).data_type() == schema.field(i).data_type();
        if (0..schema.fields().len()).all(same_type) {
            return Ok(Transformed::yes(LogicalPlan::Aggregate(ours)));
        }
        let column = |i: usize| {
            let (qualifier, field) = schema.qualified_field(i);
            let column = Expr::Column(Column::from(ours.schema.qualified_field(i)));
            let column = if same_type(i) { column } else { sum::narrow(column, field.data_type()) };
            column.alias_qualified(qualifier.cloned(), field.name())
        };
        let columns: Vec<Expr> = (0..schema.fields().len()).map(column).collect();
        LogicalPlanBuilder::from(LogicalPlan::Aggregate(ours)).project(columns)?.build().map(Transformed::yes)
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

/// The call with our function in the place of DataFusion's, where there is one.
fn of_ours(call: Expr, input: &LogicalPlan) -> DfResult<Transformed<Expr>> {
    call.transform(|e| {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = &e else { return Ok(Transformed::no(e)) };
        let [argument] = params.args.as_slice() else { return Ok(Transformed::no(e)) };
        let ours = match func.name() {
            "sum" => sum::wide(&argument.get_type(input.schema())?),
            name @ ("min" | "max") => extremes::ordered(name, &argument.get_type(input.schema())?),
            _ => None,
        };
        Ok(match ours {
            Some(func) => {
                let params = params.clone();
                Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
            }
            None => Transformed::no(e),
        })
    })
}
