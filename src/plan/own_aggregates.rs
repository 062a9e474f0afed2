//! Aggregates that DataFusion has and computes differently: ours take their place in the plan, for both lowerings.
//!
//! | function | over | because |
//! | --- | --- | --- |
//! | `sum` | integers | it must not wrap: [`sum`] |
//! | `min`, `max` | floats | infinity, NaN and the order of rows: [`extremes`] |

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use super::error::from_datafusion;
use super::{extremes, sum};
use crate::error::Result;

/// Replaces them in every aggregate of `plan`.
pub(super) fn substitute(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
        let input = Arc::clone(aggregate.input.schema());
        node.map_expressions(|expr| {
            expr.transform(|e| {
                let Expr::AggregateFunction(AggregateFunction { func, params }) = &e else {
                    return Ok(Transformed::no(e));
                };
                let [argument] = params.args.as_slice() else { return Ok(Transformed::no(e)) };
                let ours = match func.name() {
                    "sum" => sum::wide(&argument.get_type(&input)?),
                    name @ ("min" | "max") => extremes::ordered(name, &argument.get_type(&input)?),
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
        })
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}
