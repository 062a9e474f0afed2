//! Which of DataFusion's optimizer rules run on the streaming side, and why the others do not.
//!
//! Left out, because they would change what the operators have to do:
//!
//! - `SingleDistinctToGroupBy` makes two aggregates of `count(DISTINCT x)`; a late row could not correct them.
//! - `ReplaceDistinctWithAggregate` makes an aggregate without a window of a DISTINCT.
//! - `EliminateGroupByConstant` takes a constant out of the identity of a result.
//! - `PropagateEmptyRelation` and `EliminateFilter` take the source away under `WHERE false`, and with it the watermark.
//! - `UnionsToFilter`, `EliminateLimit` and `PushDownLimit` rewrite what is not allowed in a stream anyway.
//! - `ExtractLeafExpressions` and `PushDownLeafProjections` move field access towards file scans, which a source is not.

use std::sync::Arc;

use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::optimize_unions::OptimizeUnions;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerRule};

use super::error::from_datafusion;
use crate::error::Result;

/// Runs the analyzer: types are coerced and functions resolved afterwards.
pub(super) fn analyze(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map_err(from_datafusion)
}

/// Optimises the part of a plan that works on rows, from an aggregate (or the root of a plan without one) down to its
/// sources: filters move under the window, only needed columns are left.
pub(super) fn optimize_rows(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    optimize(rules, plan, state)
}

/// Moves conditions towards the rows they are about, and does nothing else.
pub(super) fn push_filters(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    optimize(vec![Arc::new(PushDownFilter::new())], plan, state)
}

/// Folds constants and makes joins of subqueries in the part above a window, and changes nothing else.
pub(super) fn simplify(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateCrossJoin::new()),
    ];
    optimize(rules, plan, state)
}

/// Runs `rules`. A subquery that gives one value is a join with a table of one row, as all joins with tables are ours.
fn optimize(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    plan: LogicalPlan,
    state: &SessionState,
) -> Result<LogicalPlan> {
    let mut config = state.config().clone();
    config.options_mut().optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    let state = SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build();
    Optimizer::with_rules(rules).optimize(plan, &state, |_, _| {}).map_err(from_datafusion)
}
