//! The values of a view's first window, computed by a batch run.
//!
//! A view's plan is cut at its innermost windowed aggregate, as the streaming side cuts it. What lies below it is lowered
//! to DataFusion operators, restricted to a range of windows; what lies above are the same operators on results that the
//! live view has, so that HAVING, expressions, Top-N and windows over windows cannot differ between the two.
//!
//! Two columns travel from the window up to the aggregate whatever the query selects, so that a result always knows both
//! bounds of its window.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DfResult};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableScan, cast, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;

use super::batch::{instant, lower, read_by, source_of};
use super::batch_scan::BatchTable;
use super::chain::without_alias;
use super::error::{external, from_datafusion};
use super::failing_rows;
use super::source_table::{BatchInput, OFFSET, SPLIT, SourceTable, unqualified};
use super::stream::window_below;
use super::window_node::{WINDOW_END, WINDOW_START, WindowAssign, window_column};
use super::{Planner, session_rows, sources_of};
use crate::connectors::Coverage;
use crate::error::{Error, Result};
use crate::operators::graph::{AggregateInput, Operator, OperatorGraph};

/// Bounds of the row's window, on their way to the aggregate.
const START: &str = "__window_start";
const END: &str = "__window_end";
const COUNT: &str = "__event_count";

/// Sources fixed at one moment, for every run that is to see the same input.
#[derive(Debug, Clone, Default)]
pub struct PinnedInput {
    sources: BTreeMap<String, Pinned>,
}

#[derive(Debug, Clone)]
struct Pinned {
    coverage: Coverage,
    rows: PinnedRows,
    complete_from_us: Option<i64>,
    /// Whether a scan of some days reads little more than those.
    prunes: bool,
}

#[derive(Debug, Clone)]
enum PinnedRows {
    /// The source itself, or another in its place, bounded.
    Source(Box<SourceTable>),
    /// A table beside it.
    Store(BatchInput),
}

impl PinnedInput {
    /// What was there, by source.
    pub fn coverage(&self) -> BTreeMap<String, Coverage> {
        self.sources.iter().map(|(name, pinned)| (name.clone(), pinned.coverage.clone())).collect()
    }

    /// Windows that begin before this instant, µs, cannot be made anew: their rows may be gone. `None`: all can.
    pub fn complete_from_us(&self) -> Option<i64> {
        self.sources.values().filter_map(|pinned| pinned.complete_from_us).max()
    }

    /// Whether reading a part of the time is cheaper than reading it all.
    pub fn prunes(&self) -> bool {
        self.sources.values().all(|pinned| pinned.prunes)
    }
}

/// What a batch run computes of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowRange {
    /// Windows of the first aggregate whose end lies in `(after, to]`, µs.
    pub ends_us: (i64, i64),
    /// Event times outside of `[from, to)`, µs, are in none of these windows.
    pub times_us: (Option<i64>, Option<i64>),
}

impl Planner {
    /// Fixes the input of `queries` at this moment.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a source whose rows cannot be read a second time; what planning a query, or its source, fails
    /// with.
    pub async fn pin(&self, queries: &[&ast::Query], now_us: i64) -> Result<PinnedInput> {
        let mut pinned = PinnedInput::default();
        for (name, source) in self.sources(queries).await? {
            pinned.sources.insert(name, self.pin_source(&source, Some(now_us)).await?);
        }
        Ok(pinned)
    }

    /// As [`Planner::pin`], from the sources themselves and not from where their rows are kept beside them.
    ///
    /// # Errors
    ///
    /// As [`Planner::pin`].
    pub async fn pin_sources_themselves(&self, queries: &[&ast::Query]) -> Result<PinnedInput> {
        self.pin_instead(queries, &BTreeMap::new()).await
    }

    /// As [`Planner::pin_sources_themselves`], with other tables in the place of some.
    ///
    /// # Errors
    ///
    /// As [`Planner::pin`].
    pub async fn pin_instead(
        &self,
        queries: &[&ast::Query],
        others: &BTreeMap<String, Arc<SourceTable>>,
    ) -> Result<PinnedInput> {
        let mut pinned = PinnedInput::default();
        for (name, source) in self.sources(queries).await? {
            let source = others.get(&name).map_or(&source, Arc::as_ref);
            pinned.sources.insert(name, self.pin_source(source, None).await?);
        }
        Ok(pinned)
    }

    /// Names of the sources that `queries` read.
    ///
    /// # Errors
    ///
    /// What planning a query fails with.
    pub async fn source_names(&self, queries: &[&ast::Query]) -> Result<Vec<String>> {
        Ok(self.sources(queries).await?.into_keys().collect())
    }

    async fn sources(&self, queries: &[&ast::Query]) -> Result<BTreeMap<String, SourceTable>> {
        let mut sources = BTreeMap::new();
        for query in queries {
            for source in sources_of(&self.logical_plan(query).await?)? {
                sources.insert(source.name().to_owned(), source);
            }
        }
        Ok(sources)
    }

    /// Fixes one source; `beside_us`: at that time, and where its rows are kept beside it if they are.
    async fn pin_source(&self, source: &SourceTable, beside_us: Option<i64>) -> Result<Pinned> {
        if let (Some(store), Some(now_us)) = (source.batch_store(), beside_us) {
            let input = store.pin(&self.state).await?;
            let complete_from_us = store.complete_from_us(now_us);
            return Ok(Pinned {
                coverage: input.coverage.clone(),
                prunes: input.prunes,
                rows: PinnedRows::Store(input),
                complete_from_us,
            });
        }
        let Some(pinned) = source.source().pinned().await? else {
            return Err(Error::unsupported(format!(
                "a batch run over source `{}`, whose rows cannot be read a second time",
                source.name()
            ))
            .with_hint("declare the source WITH (batch_location = '…') if its rows are stored somewhere"));
        };
        let coverage = pinned.coverage.clone();
        let table = source.pinned_to(pinned);
        let prunes = table.prunes();
        Ok(Pinned { coverage, rows: PinnedRows::Source(Box::new(table)), complete_from_us: None, prunes })
    }

    /// A physical plan that gives the values of the first window of `graph`, as which `query` was planned. Its columns are
    /// in the order of that node's schema; only what follows `_event_count` is left out.
    ///
    /// # Errors
    ///
    /// What planning fails with; `Internal` if `graph` is of another query.
    pub async fn plan_windows(
        &self,
        query: &ast::Query,
        graph: &OperatorGraph,
        input: &PinnedInput,
        range: WindowRange,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = session_rows::below_sessions(self.logical_plan(query).await?, &self.state)?;
        let aggregate = innermost(&plan).ok_or_else(|| Error::internal("a view without a windowed aggregate"))?;
        let schema = first_window(graph)?;
        let plan = values(aggregate, &schema, input, range)?;
        let plan = self.state.create_physical_plan(&plan).await;
        plan.and_then(failing_rows::set_aside).map_err(from_datafusion)
    }

    /// The session, to run plans in.
    pub fn session(&self) -> &SessionState {
        &self.state
    }
}

/// The output columns of the first window of `graph`.
fn first_window(graph: &OperatorGraph) -> Result<SchemaRef> {
    let over_rows = |node: &&crate::operators::graph::Node| match &node.operator {
        Operator::Window(spec) => spec.input == AggregateInput::Rows,
        _ => false,
    };
    let node = graph.nodes.iter().find(over_rows);
    node.map(|node| Arc::clone(&node.schema)).ok_or_else(|| Error::internal("a view without a window"))
}

/// The windowed aggregate that has none below it.
fn innermost(plan: &LogicalPlan) -> Option<&Aggregate> {
    plan.inputs().into_iter().find_map(innermost).or(match plan {
        LogicalPlan::Aggregate(aggregate) if window_below(&aggregate.input) => Some(aggregate),
        _ => None,
    })
}

/// `aggregate` over pinned rows, as: both bounds, keys, aggregates, number of rows.
fn values(aggregate: &Aggregate, schema: &SchemaRef, input: &PinnedInput, range: WindowRange) -> Result<LogicalPlan> {
    let rows = lowered(aggregate.input.as_ref().clone(), input, range).map_err(from_datafusion)?;
    let carried = |name: &str| carried(&rows, name).ok_or_else(|| Error::internal(format!("column `{name}` was lost")));
    let mut groups = vec![carried(START)?, carried(END)?];
    for expr in &aggregate.group_expr {
        let is_bound = match without_alias(expr) {
            Expr::Column(column) => window_column(&aggregate.input, column).map_err(from_datafusion)?.is_some(),
            _ => false,
        };
        if !is_bound {
            groups.push(expr.clone());
        }
    }
    let mut calls = aggregate.aggr_expr.clone();
    calls.push(count(lit(1_i64)).alias(COUNT));
    let keys = groups.len() - 2;
    let expected = 2 + keys + calls.len();
    if schema.fields().len() < expected || schema.field(expected - 1).data_type() != &DataType::Int64 {
        return Err(Error::internal("a batch plan has other columns than the view"));
    }
    let built = || -> DfResult<LogicalPlan> {
        let plan = LogicalPlanBuilder::from(rows).aggregate(groups, calls)?.build()?;
        let columns = plan.schema().iter().zip(schema.fields()).map(|(found, field)| {
            let (column, wanted) = (Expr::Column(Column::from(found)), field.data_type());
            if found.1.data_type() == wanted { column } else { cast(column, wanted.clone()) }.alias(field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(plan).project(columns)?.build()
    };
    built().map_err(from_datafusion)
}

/// `plan` with its window lowered and its sources pinned, and with the carried columns.
fn lowered(plan: LogicalPlan, input: &PinnedInput, range: WindowRange) -> DfResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match (WindowAssign::of(&node), &node) {
        (Some(assign), _) => Ok(Transformed::yes(windowed(assign, range)?)),
        (None, LogicalPlan::TableScan(scan)) => match source_of(scan) {
            Some(source) => Ok(Transformed::yes(pinned_scan(scan, &source, input)?)),
            None => Ok(Transformed::no(node)),
        },
        (None, LogicalPlan::Projection(projection)) => {
            let mut exprs = projection.expr.clone();
            exprs.extend([START, END].iter().filter_map(|name| carried(&projection.input, name)));
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::clone(&projection.input))?)))
        }
        _ => Ok(Transformed::yes(node.recompute_schema()?)),
    })
    .map(|t| t.data)
}

/// The windows of `range` only, with their bounds under names nothing else has.
fn windowed(assign: &WindowAssign, range: WindowRange) -> DfResult<LogicalPlan> {
    let end = || unqualified(WINDOW_END);
    let rows = LogicalPlanBuilder::from(lower(assign, range.times_us)?);
    let rows = rows.filter(end().gt(instant(range.ends_us.0)).and(end().lt_eq(instant(range.ends_us.1))))?;
    let mut columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
    columns.push(unqualified(WINDOW_START).alias(START));
    columns.push(end().alias(END));
    rows.project(columns)?.build()
}

fn pinned_scan(scan: &TableScan, source: &SourceTable, input: &PinnedInput) -> DfResult<LogicalPlan> {
    let pinned = input.sources.get(source.name());
    let pinned =
        pinned.ok_or_else(|| external(Error::internal(format!("source `{}` is not pinned", source.name()))))?;
    let stored = match &pinned.rows {
        PinnedRows::Source(table) => {
            let has_position = scan.source.schema().index_of(SPLIT).is_ok();
            // It was taken from another query, perhaps, that wants it otherwise.
            let table = table.as_ref().clone();
            let table = if has_position { table.with_position() } else { table.without_position() };
            return read_by(scan, Arc::new(BatchTable(table)));
        }
        PinnedRows::Store(stored) => stored,
    };
    let table = provider_as_source(Arc::clone(&stored.table));
    let rows = LogicalPlanBuilder::scan(scan.table_name.clone(), table, None)?.build()?;
    let mut columns = Vec::new();
    for wanted in scan.projected_schema.fields() {
        let (name, data_type) = (wanted.name(), wanted.data_type());
        let expr = match rows.schema().qualified_field_with_unqualified_name(name) {
            Ok((qualifier, found)) => {
                let column = Expr::Column(Column::from((qualifier, found)));
                if found.data_type() == data_type { column } else { cast(column, data_type.clone()) }
            }
            // Rows without a position are ordered by their times alone.
            Err(_) if name == SPLIT => cast(lit(""), data_type.clone()),
            Err(_) if name == OFFSET => cast(lit(0_i64), data_type.clone()),
            Err(missing) => return Err(missing),
        };
        columns.push(expr.alias_qualified(Some(scan.table_name.clone()), name));
    }
    LogicalPlanBuilder::from(rows).project(columns)?.build()
}

/// The carried column `name` of `plan`, if it has it.
fn carried(plan: &LogicalPlan, name: &str) -> Option<Expr> {
    plan.schema().qualified_field_with_unqualified_name(name).ok().map(|found| Expr::Column(Column::from(found)))
}
