//! Aggregates whose value depends on the order of rows.
//!
//! `first_value`, `last_value`, `nth_value`, `array_agg` and `string_agg` are ordered by what the query says, then by event
//! time, split and offset, so that workers and batches change no value (T5).

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::AggregateFunction;

use super::chain::{Chain, Role};
use super::error::from_datafusion;
use crate::error::Result;

/// Whether `expr` calls such an aggregate.
pub(super) fn depends_on_order(expr: &Expr) -> bool {
    expr.exists(|e| Ok(matches!(e, Expr::AggregateFunction(call) if is_ordered(call)))).unwrap_or(false)
}

fn is_ordered(call: &AggregateFunction) -> bool {
    const NAMES: [&str; 5] = ["array_agg", "first_value", "last_value", "nth_value", "string_agg"];
    // DISTINCT with ORDER BY may only be ordered by its argument.
    NAMES.contains(&call.func.name()) && !call.params.distinct
}

/// `expr` with arrival order behind the query's own.
pub(super) fn in_arrival_order(expr: &Expr, chain: &Chain) -> Result<Expr> {
    if !depends_on_order(expr) {
        return Ok(expr.clone());
    }
    let schema = chain.physical_schema()?;
    let ties: Vec<Expr> = [Role::EventTime, Role::Split, Role::Offset]
        .into_iter()
        .filter_map(|role| chain.carried(role))
        .map(|at| Expr::Column(Column::from(schema.qualified_field(at))))
        .collect();
    expr.clone()
        .transform(|e| match e {
            Expr::AggregateFunction(mut call) if is_ordered(&call) => {
                call.params.order_by.extend(ties.iter().map(|tie| tie.clone().sort(true, false)));
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
        .map_err(from_datafusion)
}
