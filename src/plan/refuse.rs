//! What a stream cannot do, each with what would work instead.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use super::chain::without_alias;
use super::error::from_datafusion;
use super::window_node::{WindowAssign, WindowColumn, window_column};
use crate::error::{Error, Result};
use crate::window::WindowKind;

/// `Unsupported` for a node that has no streaming lowering here.
pub(super) fn operator(plan: &LogicalPlan) -> Error {
    let (what, hint) = match plan {
        LogicalPlan::Sort(_) => ("ORDER BY over the whole result of a stream", "ORDER BY when reading the view"),
        LogicalPlan::Limit(_) => (
            "LIMIT over the whole result of a stream",
            "LIMIT when reading the view, or rank per window with row_number()",
        ),
        LogicalPlan::Distinct(_) => ("DISTINCT before a window", "GROUP BY the columns within the window"),
        LogicalPlan::Window(_) => {
            ("OVER across windows", "PARTITION BY window_start, window_end, or compute it when reading the view")
        }
        LogicalPlan::Join(_) => ("join of two streams", "join with a table, or join the two views when reading them"),
        LogicalPlan::Unnest(_) => ("UNNEST in a stream", "flatten the column before it reaches the source"),
        LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => {
            ("a stream without a source", "read from a source declared with CREATE SOURCE")
        }
        LogicalPlan::RecursiveQuery(_) => ("WITH RECURSIVE in a stream", "compute it when reading the view"),
        LogicalPlan::Subquery(_) => ("correlated subquery in a stream", "write it as a join with a table"),
        LogicalPlan::Aggregate(_) => {
            ("aggregate without a window in a stream", "add window_start, window_end to GROUP BY")
        }
        other => return Error::unsupported(format!("{} in a stream", first_word(&other.display().to_string()))),
    };
    Error::unsupported(what).with_hint(hint)
}

/// `Unsupported` for a streaming read of something that is no source.
pub(super) fn not_a_source(name: &str) -> Error {
    Error::unsupported(format!("streaming read of `{name}`, which is no source")).with_hint(
        "declare it with CREATE SOURCE … WATERMARK FOR …, or leave out ALLOWED LATENESS and EMIT to run a batch query",
    )
}

fn first_word(text: &str) -> String {
    text.split([':', ' ']).next().unwrap_or_default().to_owned()
}

/// Why `expr` is no function of the row alone, if it is not.
pub(super) fn impure(expr: &Expr) -> Option<Error> {
    let mut found = None;
    let visited = expr.apply(|e| {
        if let Expr::ScalarFunction(call) = e {
            match call.func.signature().volatility {
                Volatility::Immutable => {}
                Volatility::Stable => found = Some((call.func.name().to_owned(), "reads the clock or the session")),
                Volatility::Volatile => found = Some((call.func.name().to_owned(), "gives another value each time")),
            }
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    debug_assert!(visited.is_ok(), "the visitor has no error of its own");
    found.map(|(name, why)| {
        Error::invalid(format!("function `{name}()` in a view: it {why}, so live and batch could not agree"))
            .with_hint("use the event time, or a column of the row")
    })
}

/// Refuses `bit_xor(DISTINCT …)`, which DataFusion 55 computes over all values, and whose partial states do not fit together.
pub(super) fn distinct_bit_xor(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::AggregateFunction(call) = e
                    && call.params.distinct
                    && call.func.name() == "bit_xor"
                {
                    found = Some(());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map_err(from_datafusion)?;
    found.map_or(Ok(()), |()| {
        Err(Error::unsupported("bit_xor(DISTINCT …)")
            .with_hint("take the values once first, with GROUP BY in an inner query or a column of the source"))
    })
}

/// Refuses groups that mix windows, or keys of a session that it was not made by: a stream has no such thing, and as a batch it
/// would be a number of another meaning.
pub(super) fn mixed_windows(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node
            && let Some(assign) = assign_below(&aggregate.input)
        {
            let (mut bounds, mut keys) = (Vec::new(), Vec::new());
            for expr in &aggregate.group_expr {
                let bound = match without_alias(expr) {
                    Expr::Column(column) => window_column(&aggregate.input, column)?,
                    _ => None,
                };
                match bound {
                    Some(bound) => bounds.push(bound),
                    None => keys.push(match without_alias(expr) {
                        Expr::Column(column) => column.name.clone(),
                        other => other.human_display().to_string(),
                    }),
                }
            }
            found = found.take().or_else(|| mixed(&assign.spec.kind(), &assign.partition_by, &bounds, &keys));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(from_datafusion)?;
    found.map_or(Ok(()), Err)
}

fn mixed(kind: &WindowKind, partition_by: &[Expr], bounds: &[WindowColumn], keys: &[String]) -> Option<Error> {
    match kind {
        WindowKind::Cumulate { .. } if bounds == [WindowColumn::Start] => Some(
            Error::unsupported("GROUP BY window_start alone over CUMULATE, whose windows share a start")
                .with_hint("add window_end to GROUP BY"),
        ),
        WindowKind::Session { .. } if partition_by.is_empty() && !bounds.is_empty() && !keys.is_empty() => {
            let keys = keys.join(", ");
            Some(
                Error::invalid(format!("SESSION without PARTITION BY beside the keys {keys} in GROUP BY")).with_hint(
                    format!("write SESSION(TABLE t PARTITION BY {keys}, DESCRIPTOR(ts), gap), or GROUP BY session(ts, gap), {keys}"),
                ),
            )
        }
        _ => None,
    }
}

/// The window whose rows `plan` gives.
fn assign_below(plan: &LogicalPlan) -> Option<&WindowAssign> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
            plan.inputs().into_iter().find_map(assign_below)
        }
        other => WindowAssign::of(other),
    }
}

/// Refuses a subquery used as a value that may give several: a join would make several rows of one.
pub(super) fn many_valued(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::ScalarSubquery(scalar) = e
                    && scalar.outer_ref_columns.is_empty()
                    && scalar.subquery.max_rows().is_none_or(|rows| rows > 1)
                {
                    found = Some(());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map_err(from_datafusion)?;
    found.map_or(Ok(()), |()| {
        Err(Error::unsupported("a subquery as a value that may give several rows, in a stream")
            .with_hint("make it one: SELECT max(x) FROM t, or add LIMIT 1"))
    })
}

/// The first function in `plan` that is no function of its rows.
pub(super) fn impure_plan(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found.take().or_else(|| impure(expr));
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .map_err(from_datafusion)?;
    found.map_or(Ok(()), Err)
}
