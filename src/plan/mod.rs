//! From a statement to something that runs: the DataFusion seam.
//!
//! A query is planned, analysed and optimised by DataFusion. What is ours is one logical node,
//! [`WindowAssign`](window_node::WindowAssign), into which every spelling of a window turns, and the two lowerings made
//! from the same logical plan:
//!
//! ```text
//!                      ┌─► stream: cut at the windowed aggregates ─► OperatorGraph        (runtime)
//! text ─► logical plan ┤
//!                      └─► batch: windows as DataFusion operators ─► ExecutionPlan        (engine, finalize)
//! ```
//!
//! This module knows DataFusion, the types of sources and windows, and the graph. It refuses to know who runs a graph,
//! where results are kept, and what the time is.

mod aggregate;
mod batch;
mod batch_scan;
mod batch_windows;
mod calendar_function;
mod chain;
mod checked;
mod constant;
mod context;
mod declare;
mod enrich;
mod error;
pub mod explain;
mod extremes;
mod failing_rows;
mod floats;
mod group_window;
mod leaf;
mod optimize;
mod ordered;
mod own_aggregates;
mod pauses;
mod policy;
mod refuse;
mod replaced;
mod session_rows;
mod shift;
mod source_table;
mod stream;
mod sum;
mod ties;
mod types;
mod whole;
mod whole_rows;
mod window_call;
pub mod window_node;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::sql::sqlparser::ast;

pub use self::batch_scan::{BatchDecode, RowsRead};
pub use self::batch_windows::{PinnedInput, WindowRange};
use self::error::external;
pub use self::error::from_datafusion;
pub use self::pauses::PausingJoins;
pub use self::policy::policy_of;
pub use self::source_table::{
    BatchInput, BatchStore, ColumnValue, SourceLimits, SourceTable, TableColumn, TableWatermark,
};
use crate::error::Result;
use crate::operators::graph::OperatorGraph;
use crate::sql::statement::StreamQuery;

/// What a query may name, as the engine's catalog knows it. Names are folded to lower case unless they were quoted.
#[async_trait]
pub trait CatalogView: Debug + Send + Sync {
    /// The source `name`.
    fn source(&self, name: &str) -> Option<Arc<SourceTable>>;

    /// The query of the macro view `name` (`CREATE VIEW`).
    fn macro_view(&self, name: &str) -> Option<Arc<ast::Query>>;

    /// A relation of results: `v`, `v$final`, `v$late`, `s$rejects`, …; at an instant in µs if `as_of_us` says so.
    ///
    /// # Errors
    ///
    /// If the relation exists and cannot be read as asked, such as at a time to come.
    async fn relation(&self, name: &str, as_of_us: Option<i64>) -> Result<Option<Arc<dyn TableProvider>>>;
}

/// Plans queries against one catalog and one DataFusion session.
#[derive(Debug, Clone)]
pub struct Planner {
    catalog: Arc<dyn CatalogView>,
    state: SessionState,
}

impl Planner {
    /// A planner. The session's functions are what a query may call, and its tables what it may join with.
    pub fn new(catalog: Arc<dyn CatalogView>, state: SessionState) -> Self {
        Self { catalog, state }
    }

    /// The query as DataFusion understands it, types resolved, not optimised. Both lowerings start from it.
    ///
    /// # Errors
    ///
    /// `Invalid` for unknown names and wrong types, `Unsupported` for what cannot be planned.
    pub async fn logical_plan(&self, query: &ast::Query) -> Result<LogicalPlan> {
        let plan = context::query_to_plan(query, self.catalog.as_ref(), &self.state, 0).await?;
        let plan = optimize::analyze(plan, &self.state)?;
        refuse::distinct_bit_xor(&plan)?;
        refuse::mixed_windows(&plan)?;
        let plan = own_aggregates::substitute(checked::arithmetic(plan)?)?;
        ordered::in_arrival_order(ties::decide(floats::normalise(plan)?)?)
    }

    /// The query as a graph for the streaming engine.
    ///
    /// # Errors
    ///
    /// `Invalid` as in [`Planner::logical_plan`]; `Unsupported` for what a stream cannot do, with what would work.
    pub async fn plan_stream(&self, query: &StreamQuery) -> Result<OperatorGraph> {
        let plan = self.logical_plan(&query.query).await?;
        refuse::impure_plan(&plan)?;
        refuse::many_valued(&plan)?;
        let has_archive = sources_of(&plan)?.iter().any(SourceTable::has_archive);
        let policy = policy_of(&query.clauses, has_archive)?;
        stream::lower(plan, policy, &self.state).await
    }

    /// The query with its windows as DataFusion operators, not optimised. Sources are read to their end.
    ///
    /// # Errors
    ///
    /// As [`Planner::logical_plan`].
    pub async fn batch_plan(&self, query: &ast::Query) -> Result<LogicalPlan> {
        batch::lower_windows(session_rows::below_sessions(self.logical_plan(query).await?, &self.state)?)
    }

    /// The query as a DataFusion plan, ready to execute with the session's task context.
    ///
    /// # Errors
    ///
    /// As [`Planner::logical_plan`]; `Unsupported` for a source that never ends.
    pub async fn plan_batch(&self, query: &ast::Query) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.batch_plan(query).await?;
        self.state.create_physical_plan(&plan).await.map_err(from_datafusion)
    }

    /// EXPLAIN of a streaming query: window, watermark, lateness, policies, emission, operators. `state` says where the
    /// engine keeps its state.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan_stream`].
    pub async fn explain_stream(&self, query: &StreamQuery, state: &str) -> Result<String> {
        Ok(explain::stream(&self.plan_stream(query).await?, state))
    }

    /// EXPLAIN BATCH: the physical plan, one operator per line.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan_batch`].
    pub async fn explain_batch(&self, query: &ast::Query) -> Result<String> {
        let plan = self.plan_batch(query).await?;
        Ok(format!("lowering: batch\n{}", displayable(plan.as_ref()).indent(false)))
    }

    /// Whether a query streams: it has one of our clauses, or reads a source that never ends. Otherwise it is a batch query
    /// and its answer is complete.
    ///
    /// # Errors
    ///
    /// As [`Planner::logical_plan`].
    pub async fn is_streaming(&self, query: &StreamQuery) -> Result<bool> {
        if query.clauses.is_streaming() {
            return Ok(true);
        }
        let plan = self.logical_plan(&query.query).await?;
        Ok(sources_of(&plan)?.iter().any(|source| !source.is_bounded()))
    }
}

/// The sources that `plan` scans, subqueries included.
fn sources_of(plan: &LogicalPlan) -> Result<Vec<SourceTable>> {
    let mut sources = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(source) = provider.downcast_ref::<SourceTable>()
        {
            sources.push(source.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(from_datafusion)?;
    Ok(sources)
}
