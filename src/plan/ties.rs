//! Ranks within a window are decided to the last row.
//!
//! `row_number() OVER (PARTITION BY window_start, window_end ORDER BY total DESC)` may number equal totals either way, and
//! live and batch need not agree. So where the order of equal rows shows in the result, the keys of the results are put
//! behind the query's own order, for both lowerings:
//!
//! - of `row_number`, `ntile`, `lag` and `lead`;
//! - of every function over a frame of ROWS.
//!
//! `rank`, `dense_rank` and frames of RANGE treat equal rows as equals, and more order would change what they mean.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Window, WindowFrameUnits};

use super::chain::without_alias;
use super::error::from_datafusion;
use super::stream::window_below;
use crate::error::Result;

/// Puts the keys of a windowed aggregate's results behind the order of what ranks them.
pub(super) fn decide(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Window(window) = &node else { return Ok(Transformed::no(node)) };
        let keys = keys_of_results(&window.input);
        if keys.is_empty() || !window.window_expr.iter().any(shows_ties) {
            return Ok(Transformed::no(node));
        }
        let LogicalPlan::Window(Window { input, window_expr, schema }) = node else {
            return datafusion::common::internal_err!("the node was a window above");
        };
        let decided = window_expr.iter().map(|expr| by_key(expr, &keys)).collect();
        let decided = Window::try_new(decided, input)?;
        // The order is part of a column's name; the columns keep the names they had.
        let columns = (0..schema.fields().len()).map(|i| {
            let (qualifier, field) = schema.qualified_field(i);
            Expr::Column(Column::from(decided.schema.qualified_field(i)))
                .alias_qualified(qualifier.cloned(), field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(LogicalPlan::Window(decided)).project(columns)?.build().map(Transformed::yes)
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

fn shows_ties(expr: &Expr) -> bool {
    let Expr::WindowFunction(function) = without_alias(expr) else { return false };
    let name = function.fun.name();
    matches!(name, "row_number" | "ntile" | "lag" | "lead")
        || matches!(function.params.window_frame.units, WindowFrameUnits::Rows)
            && !matches!(name, "rank" | "dense_rank" | "percent_rank" | "cume_dist")
}

fn by_key(expr: &Expr, keys: &[Column]) -> Expr {
    match expr {
        Expr::WindowFunction(function) if shows_ties(expr) => {
            let mut function: WindowFunction = function.as_ref().clone();
            for key in keys {
                let key = Expr::Column(key.clone());
                let ordered = function.params.order_by.iter().any(|sort| sort.expr == key);
                if !ordered && !function.params.partition_by.contains(&key) {
                    function.params.order_by.push(key.sort(true, false));
                }
            }
            Expr::from(function)
        }
        other => other.clone(),
    }
}

/// Columns of `plan` that are group keys of the windowed aggregate below it, with nothing but row-by-row nodes between.
fn keys_of_results(plan: &LogicalPlan) -> Vec<Column> {
    match plan {
        LogicalPlan::Aggregate(aggregate) if window_below(&aggregate.input) => group_columns(aggregate),
        LogicalPlan::Projection(projection) => {
            let below = keys_of_results(&projection.input);
            let is_key = |expr: &Expr| matches!(without_alias(expr), Expr::Column(c) if below.contains(c));
            let places = projection.expr.iter().enumerate().filter(|(_, expr)| is_key(expr));
            places.map(|(i, _)| Column::from(projection.schema.qualified_field(i))).collect()
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let below = keys_of_results(&alias.input);
            let places = below.iter().filter_map(|key| alias.input.schema().index_of_column(key).ok());
            places.map(|i| Column::from(alias.schema.qualified_field(i))).collect()
        }
        LogicalPlan::Filter(filter) => keys_of_results(&filter.input),
        LogicalPlan::Window(window) => keys_of_results(&window.input),
        _ => Vec::new(),
    }
}

fn group_columns(aggregate: &Aggregate) -> Vec<Column> {
    let schema = Arc::clone(&aggregate.schema);
    (0..aggregate.group_expr.len()).map(|i| Column::from(schema.qualified_field(i))).collect()
}
