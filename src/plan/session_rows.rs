//! Rows that the query takes away are in no session.
//!
//! ```sql
//! SELECT … FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10 seconds') JOIN t ON … WHERE x <> 'y' GROUP BY …
//! ```
//!
//! In which fixed window a row lies does not depend on other rows, so there it is all the same whether WHERE comes before the
//! window or after it. A session is made of rows. The streaming side filters and joins rows before they reach a window
//! (and counts them as filtered, L3); here the batch side is brought to the same order: conditions on the rows move below
//! the window, and below it goes a semi-join for each join that keeps only rows with a match.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Aggregate, Expr, Join, JoinType, LogicalPlan, Projection, SubqueryAlias};

use super::error::from_datafusion;
use super::optimize;
use super::window_node::WindowAssign;
use crate::error::Result;
use crate::window::WindowKind;

/// `plan` with the conditions on the rows of its sessions below them. What lies above an aggregate stays as it is.
pub(super) fn below_sessions(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    if !has_session(&plan)? {
        return Ok(plan);
    }
    match plan {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
            let input = below_sessions(Arc::unwrap_or_clone(input), state)?;
            let aggregate = Aggregate::try_new(Arc::new(input), group_expr, aggr_expr).map_err(from_datafusion)?;
            Ok(LogicalPlan::Aggregate(aggregate))
        }
        other if other.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_)))).map_err(from_datafusion)? => {
            let mut failed = None;
            let changed = other.map_children(|child| match below_sessions(child, state) {
                Ok(child) => Ok(Transformed::yes(child)),
                Err(error) => {
                    failed = Some(error);
                    Ok(Transformed::no(LogicalPlan::default()))
                }
            });
            failed.map_or_else(|| changed.map(|t| t.data).map_err(from_datafusion), Err)
        }
        rows => {
            let pushed = optimize::push_filters(rows, state)?;
            pushed.transform_up(matched_first).map(|t| t.data).map_err(from_datafusion)
        }
    }
}

fn has_session(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(session_of(node).is_some())).map_err(from_datafusion)
}

fn session_of(plan: &LogicalPlan) -> Option<&WindowAssign> {
    WindowAssign::of(plan).filter(|assign| matches!(assign.spec.kind(), WindowKind::Session { .. }))
}

/// A join that takes rows of a session away, with the same condition below the session. The join itself stays, for the
/// columns it adds.
fn matched_first(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
    let is_left = join.left.exists(|node| Ok(session_of(node).is_some()))?;
    let (rows, table) = if is_left { (&join.left, &join.right) } else { (&join.right, &join.left) };
    let kept = match (join.join_type, is_left) {
        (JoinType::Inner | JoinType::LeftSemi, true) | (JoinType::Inner | JoinType::RightSemi, false) => {
            JoinType::LeftSemi
        }
        (JoinType::LeftAnti, true) | (JoinType::RightAnti, false) => JoinType::LeftAnti,
        _ => return Ok(Transformed::no(node)),
    };
    if !rows.exists(|node| Ok(session_of(node).is_some()))? {
        return Ok(Transformed::no(node));
    }
    let on = join.on.iter().cloned().map(|(left, right)| if is_left { (left, right) } else { (right, left) });
    let matched = Matched { table, on: on.collect(), filter: join.filter.clone(), join, kept };
    let Some(rows) = matched.below(rows)? else { return Ok(Transformed::no(node)) };
    let inputs = if is_left { vec![rows, table.as_ref().clone()] } else { vec![table.as_ref().clone(), rows] };
    Ok(Transformed::yes(node.with_new_exprs(node.expressions(), inputs)?))
}

/// A condition on its way down to a session: rows with a match in `table`, or without one.
struct Matched<'j> {
    table: &'j Arc<LogicalPlan>,
    /// What is equal: of the rows, of the table.
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    join: &'j Join,
    kept: JoinType,
}

impl Matched<'_> {
    /// `rows` with the condition below its session; `None` if it looks at the window, which there is not yet.
    fn below(&self, rows: &LogicalPlan) -> DfResult<Option<LogicalPlan>> {
        let changed = match rows {
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => {
                let named = input.schema().columns().into_iter().map(Expr::Column).collect();
                self.renamed(rows.schema(), named)?.below(input)?
            }
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let named = expr.iter().map(|expr| expr.clone().unalias()).collect();
                self.renamed(rows.schema(), named)?.below(input)?
            }
            LogicalPlan::Filter(filter) => self.below(&filter.input)?,
            LogicalPlan::Join(join) => {
                let (left, right) = (self.below(&join.left)?, join.right.as_ref().clone());
                return left.map(|left| rows.with_new_exprs(rows.expressions(), vec![left, right])).transpose();
            }
            _ => return self.below_session(rows),
        };
        changed.map(|input| rows.with_new_exprs(rows.expressions(), vec![input])).transpose()
    }

    fn below_session(&self, rows: &LogicalPlan) -> DfResult<Option<LogicalPlan>> {
        let Some(assign) = session_of(rows) else { return Ok(None) };
        let known = assign.input.schema();
        let mut foreign = false;
        for expr in self.on.iter().map(|(row, _)| row).chain(&self.filter) {
            expr.apply(|expr| {
                let is_table = |column: &Column| self.table.schema().has_column(column);
                foreign |= matches!(expr, Expr::Column(column) if !known.has_column(column) && !is_table(column));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if foreign {
            return Ok(None);
        }
        let join = Join::try_new(
            Arc::new(assign.input.clone()),
            Arc::clone(self.table),
            self.on.clone(),
            self.filter.clone(),
            self.kept,
            self.join.join_constraint,
            self.join.null_equality,
            self.join.null_aware,
        )?;
        let assign = WindowAssign::try_new(
            LogicalPlan::Join(join),
            assign.spec.clone(),
            assign.time.clone(),
            assign.partition_by.clone(),
        )?;
        Ok(Some(assign.into_plan()))
    }

    /// The condition with the columns of `schema` replaced by what they stand for one node below.
    fn renamed(&self, schema: &DFSchema, meanings: Vec<Expr>) -> DfResult<Self> {
        let rename = |expr: &Expr| {
            let below = expr.clone().transform(|expr| match &expr {
                Expr::Column(column) => match schema.maybe_index_of_column(column) {
                    Some(at) => Ok(Transformed::yes(meanings[at].clone())),
                    None => Ok(Transformed::no(expr)),
                },
                _ => Ok(Transformed::no(expr)),
            });
            below.map(|t| t.data)
        };
        let on = self.on.iter().map(|(row, table)| Ok((rename(row)?, table.clone()))).collect::<DfResult<_>>()?;
        let filter = self.filter.as_ref().map(rename).transpose()?;
        Ok(Self { table: self.table, on, filter, join: self.join, kept: self.kept })
    }
}
