//! What needs all results of a window at once: ranking, DISTINCT, OVER within the window, a second aggregate.
//!
//! The part of the plan above the window becomes a plan over one window's results. For that to be the same as the plan
//! over everything, each of its nodes must keep windows apart; one that does not is refused. The window's bounds, the
//! count of events and the identity of each result are led through it beside the columns the query asks for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, Result as DfResult, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, TableScan, TableType, Window,
};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, collect};

use super::chain::{Chain, Role, Slot, Stage, without_alias};
use super::enrich::is_stream;
use super::error::from_datafusion;
use super::leaf::LeafTable;
use super::source_table::unqualified;
use super::stream::Lowering;
use crate::error::{Error, Result};
use crate::operators::graph::{Node, Operator, WholeWindowSpec, WindowPlan};
use crate::window::{WindowKind, WindowSpec};

const EVENTS: &str = "__event_count";

/// Whether `plan` has a node above its windows that is not row by row.
pub(super) fn needs_whole_window(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => false,
        // A table that results are joined with may be made in any way.
        other if !is_stream(other) => false,
        LogicalPlan::Window(_) | LogicalPlan::Distinct(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_) => true,
        other => other.inputs().iter().any(|input| needs_whole_window(input)),
    }
}

/// A plan with the columns that travel beside those it had before.
struct Threaded {
    plan: LogicalPlan,
    carried: BTreeMap<Role, Column>,
    key_names: Vec<String>,
    /// Visible columns that are bounds of the window or keys of the result.
    known: HashMap<Column, Role>,
}

impl Lowering<'_> {
    /// Lowers everything above the window of `plan` into one node.
    pub(super) fn whole_window(&mut self, plan: &LogicalPlan) -> Result<Chain> {
        let leaf = leaf_of(plan).ok_or_else(|| super::refuse::operator(plan))?;
        let chain = self.leaves[leaf].clone();
        let spec = chain.results_of.clone().ok_or_else(|| Error::internal("results without their window"))?;
        let slot = Arc::new(Mutex::new(None));
        let threaded = Threading { chain: &chain, spec: &spec, slot: Arc::clone(&slot) }.thread(plan)?;

        let visible = plan.schema().columns();
        let mut exprs: Vec<Expr> = visible.iter().cloned().map(Expr::Column).collect();
        let mut carried = Vec::new();
        for (n, (role, column)) in threaded.carried.iter().enumerate() {
            let shown = visible.iter().position(|column| threaded.known.get(column) == Some(role));
            carried.push((*role, shown.unwrap_or(exprs.len())));
            if shown.is_none() {
                exprs.push(Expr::Column(column.clone()).alias(format!("__carried_{n}")));
            }
        }
        let top = Projection::try_new(exprs, Arc::new(threaded.plan)).map_err(from_datafusion)?;
        let schema: SchemaRef = Arc::new(top.schema.as_arrow().clone());
        let keys = carried.iter().filter(|(role, _)| matches!(role, Role::Key(_))).map(|(_, at)| *at).collect();
        let bound = |role| chain.carried(role).ok_or_else(|| Error::internal("bounds of a window were lost"));
        let node = WholeWindowSpec {
            plan: Arc::new(Unplanned),
            window: [bound(Role::WindowStart)?, bound(Role::WindowEnd)?],
            identity: chain.identity(),
            keys,
        };
        self.nodes.push(Node {
            inputs: vec![chain.node],
            operator: Operator::WholeWindow(Arc::new(node)),
            schema: Arc::clone(&schema),
        });
        self.wholes.push((self.nodes.len() - 1, LogicalPlan::Projection(top), slot));
        let mut result = Chain::new(self.nodes.len() - 1, Stage::Results, Arc::clone(plan.schema()), schema);
        result.key_names = threaded.key_names;
        result.results_of = Some(spec);
        for (role, at) in carried {
            result.carry(role, at);
        }
        Ok(result)
    }
}

/// The one leaf that `plan` reads.
fn leaf_of(plan: &LogicalPlan) -> Option<usize> {
    if let LogicalPlan::TableScan(scan) = plan {
        return source_as_provider(&scan.source).ok()?.downcast_ref::<LeafTable>().map(|leaf| leaf.id);
    }
    match plan.inputs().as_slice() {
        [input] => leaf_of(input),
        _ => None,
    }
}

struct Threading<'a> {
    chain: &'a Chain,
    spec: &'a WindowSpec,
    slot: Slotted,
}

impl Threading<'_> {
    fn thread(&self, plan: &LogicalPlan) -> Result<Threaded> {
        match plan {
            LogicalPlan::TableScan(scan) => self.leaf(scan),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Filter(filter) => {
                let mut below = self.thread(&filter.input)?;
                let filter =
                    Filter::try_new(filter.predicate.clone(), Arc::new(below.plan)).map_err(from_datafusion)?;
                below.plan = LogicalPlan::Filter(filter);
                Ok(below)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let mut below = self.thread(&alias.input)?;
                below.plan = LogicalPlanBuilder::from(below.plan)
                    .alias(alias.alias.clone())
                    .and_then(LogicalPlanBuilder::build)
                    .map_err(from_datafusion)?;
                let qualified = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
                below.carried = below.carried.into_iter().map(|(role, c)| (role, qualified(c))).collect();
                below.known = below.known.into_iter().map(|(c, role)| (qualified(c), role)).collect();
                Ok(below)
            }
            LogicalPlan::Window(window) => self.over(window),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            other => Err(super::refuse::operator(other)),
        }
    }

    /// The results as the rows given to the plan.
    fn leaf(&self, scan: &TableScan) -> Result<Threaded> {
        let output = self.chain.output();
        let name = |at: usize| format!("column {at}");
        let fields: Vec<_> =
            output.fields().iter().enumerate().map(|(i, f)| f.as_ref().clone().with_name(name(i))).collect();
        let table = Arc::new(WindowRows { schema: Arc::new(Schema::new(fields)), slot: Arc::clone(&self.slot) });
        let mut columns = Vec::new();
        let keys = (0..self.chain.key_names.len()).map(Role::Key);
        let roles: Vec<Role> =
            keys.chain([Role::WindowStart, Role::WindowEnd, Role::EventCount, Role::Supersedes]).collect();
        let mut known = HashMap::new();
        let all: Vec<usize> = (0..scan.source.schema().fields().len()).collect();
        for (place, index) in scan.projection.as_ref().unwrap_or(&all).iter().enumerate() {
            let Slot::At(at) = self.chain.slots()[*index] else {
                return Err(Error::internal("column of a window that has been aggregated"));
            };
            let (qualifier, field) = scan.projected_schema.qualified_field(place);
            columns.push(unqualified(&name(at)).alias_qualified(qualifier.cloned(), field.name()));
            if let Some(role) = roles.iter().find(|role| self.chain.carried(**role) == Some(at)) {
                known.insert(Column::from((qualifier, field)), *role);
            }
        }
        let mut carried = BTreeMap::new();
        for (n, role) in roles.into_iter().enumerate() {
            let Some(at) = self.chain.carried(role) else { continue };
            let travelling = if role == Role::EventCount { EVENTS.to_owned() } else { format!("__travels_{n}") };
            columns.push(unqualified(&name(at)).alias(&travelling));
            carried.insert(role, Column::new_unqualified(travelling));
        }
        let plan = LogicalPlanBuilder::scan(TableReference::bare("window"), provider_as_source(table), None)
            .and_then(|scan| scan.project(columns))
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)?;
        Ok(Threaded { plan, carried, key_names: self.chain.key_names.clone(), known })
    }

    fn projection(&self, projection: &Projection) -> Result<Threaded> {
        let below = self.thread(&projection.input)?;
        let mut known = HashMap::new();
        for (i, expr) in projection.expr.iter().enumerate() {
            if let Expr::Column(column) = without_alias(expr)
                && let Some(role) = below.known.get(column)
            {
                known.insert(Column::from(projection.schema.qualified_field(i)), *role);
            }
        }
        let mut exprs = projection.expr.clone();
        exprs.extend(below.carried.values().cloned().map(Expr::Column));
        let Threaded { plan, carried, key_names, .. } = below;
        let plan = Projection::try_new(exprs, Arc::new(plan)).map_err(from_datafusion)?;
        Ok(Threaded { plan: LogicalPlan::Projection(plan), carried, key_names, known })
    }

    fn over(&self, window: &Window) -> Result<Threaded> {
        let mut below = self.thread(&window.input)?;
        for expr in &window.window_expr {
            if let Expr::WindowFunction(function) = without_alias(expr) {
                let apart = self.tells_windows_apart(&function.params.partition_by, &below.known);
                if !apart {
                    return Err(Error::unsupported(format!("OVER across windows: `{}`", expr.human_display()))
                        .with_hint("PARTITION BY window_start, window_end, or compute it when reading the view"));
                }
            }
        }
        let window = Window::try_new(window.window_expr.clone(), Arc::new(below.plan)).map_err(from_datafusion)?;
        below.plan = LogicalPlan::Window(window);
        Ok(below)
    }

    fn distinct(&self, input: &LogicalPlan) -> Result<Threaded> {
        let below = self.thread(input)?;
        let visible: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        if !self.tells_windows_apart(&visible, &below.known) {
            return Err(Error::unsupported("DISTINCT across windows")
                .with_hint("select window_start and window_end too, or use DISTINCT when reading the view"));
        }
        self.grouped(below, visible, Vec::new())
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<Threaded> {
        let below = self.thread(&aggregate.input)?;
        if !self.tells_windows_apart(&aggregate.group_expr, &below.known) {
            return Err(Error::unsupported(format!(
                "aggregate across windows: `{}`",
                aggregate.aggr_expr.iter().map(|e| e.human_display().to_string()).collect::<Vec<_>>().join(", ")
            ))
            .with_hint(
                "group by window_start, window_end, put a second window over the results, or aggregate the view",
            ));
        }
        self.grouped(below, aggregate.group_expr.clone(), aggregate.aggr_expr.clone())
    }

    /// Groups that stay within one window; they take over the identity.
    fn grouped(&self, below: Threaded, group: Vec<Expr>, aggregates: Vec<Expr>) -> Result<Threaded> {
        let travelling = |role: Role| {
            let column = below.carried.get(&role).cloned();
            column.map(Expr::Column).ok_or_else(|| Error::internal("column of a result was lost"))
        };
        let (start, end) = (travelling(Role::WindowStart)?, travelling(Role::WindowEnd)?);
        let events = sum(travelling(Role::EventCount)?);
        let groups = group.len();
        let all: Vec<Expr> = group.iter().cloned().chain([start, end]).collect();
        let calls: Vec<Expr> = aggregates.into_iter().chain([events]).collect();
        let last = all.len() + calls.len() - 1;
        let plan = Aggregate::try_new(Arc::new(below.plan), all, calls).map_err(from_datafusion)?;
        let column = |i: usize| Column::from(plan.schema.qualified_field(i));

        let mut known = HashMap::new();
        let mut carried = BTreeMap::from([(Role::WindowStart, column(groups)), (Role::WindowEnd, column(groups + 1))]);
        let mut key_names = Vec::new();
        for (i, expr) in group.iter().enumerate() {
            match without_alias(expr) {
                Expr::Column(c) if matches!(below.known.get(c), Some(Role::WindowStart | Role::WindowEnd)) => {
                    known.insert(column(i), below.known[c]);
                }
                _ => {
                    let key = Role::Key(key_names.len());
                    carried.insert(key, column(i));
                    known.insert(column(i), key);
                    key_names.push(column(i).name);
                }
            }
        }
        let mut exprs: Vec<Expr> = (0..last).map(|i| Expr::Column(column(i))).collect();
        exprs.push(Expr::Column(column(last)).alias(EVENTS));
        carried.insert(Role::EventCount, Column::new_unqualified(EVENTS));
        let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(plan))).map_err(from_datafusion)?;
        Ok(Threaded { plan: LogicalPlan::Projection(plan), carried, key_names, known })
    }

    /// Whether rows of two windows never agree in `exprs`.
    fn tells_windows_apart(&self, exprs: &[Expr], known: &HashMap<Column, Role>) -> bool {
        let has = |wanted: Role| {
            exprs.iter().any(|e| match without_alias(e) {
                Expr::Column(column) => known.get(column) == Some(&wanted),
                _ => false,
            })
        };
        let (start, end) = (has(Role::WindowStart), has(Role::WindowEnd));
        match self.spec.kind() {
            WindowKind::Tumble { .. } => start || end,
            WindowKind::Hop { .. } if self.spec.exact().is_some() => start || end,
            WindowKind::Cumulate { .. } => end,
            WindowKind::Hop { .. } | WindowKind::Session { .. } => start && end,
        }
    }
}

/// Where the rows of the window being evaluated are.
pub(super) type Slotted = Arc<Mutex<Option<RecordBatch>>>;

/// The rows of the window being evaluated, as a table.
#[derive(Debug)]
struct WindowRows {
    schema: SchemaRef,
    slot: Slotted,
}

#[async_trait]
impl TableProvider for WindowRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let rows = Arc::new(WindowStream { schema: Arc::clone(&self.schema), slot: Arc::clone(&self.slot) });
        Ok(Arc::new(StreamingTableExec::try_new(Arc::clone(&self.schema), vec![rows], projection, [], false, None)?))
    }
}

/// The columns of `rows` under the names of `schema`.
fn under(schema: &SchemaRef, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), rows.columns().to_vec(), &options)
}

#[derive(Debug)]
struct WindowStream {
    schema: SchemaRef,
    slot: Slotted,
}

impl PartitionStream for WindowStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rows = rows.map(|rows| under(&self.schema, &rows).map_err(Into::into));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(rows)))
    }
}

/// Stands until the plan is made.
#[derive(Debug)]
struct Unplanned;

impl WindowPlan for Unplanned {
    fn evaluate(&self, _: &RecordBatch) -> Result<RecordBatch> {
        Err(Error::internal("plan over a window's results was not made"))
    }
}

/// A DataFusion plan over one window's results, in one partition.
pub(super) struct WindowPhysicalPlan {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    schema: SchemaRef,
    slot: Slotted,
    one_at_a_time: Mutex<()>,
}

impl WindowPhysicalPlan {
    /// Plans `plan`, whose rows come from `slot`, into rows of `schema`.
    pub async fn try_new(plan: &LogicalPlan, schema: SchemaRef, slot: Slotted, state: &SessionState) -> Result<Self> {
        let config = state.config().clone().with_target_partitions(1);
        let state = SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build();
        let plan = state.create_physical_plan(plan).await.map_err(from_datafusion)?;
        Ok(Self { plan, context: state.task_ctx(), schema, slot, one_at_a_time: Mutex::new(()) })
    }
}

impl WindowPlan for WindowPhysicalPlan {
    fn evaluate(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let _turn = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(rows.clone());
        let plan = reset_plan_states(Arc::clone(&self.plan)).map_err(from_datafusion)?;
        // Nothing in the plan waits for I/O: its one input is at hand. It must not wait for its turn either: many windows are
        // evaluated within one turn of the task that asks, which would never be given another.
        let rows = tokio::task::unconstrained(collect(plan, Arc::clone(&self.context)));
        let batches = futures::executor::block_on(rows).map_err(from_datafusion)?;
        let result = match batches.first() {
            Some(first) => concat_batches(&first.schema(), &batches),
            None => Ok(RecordBatch::new_empty(Arc::clone(&self.schema))),
        };
        result
            .and_then(|rows| under(&self.schema, &rows))
            .map_err(|e| Error::internal("join the results of a window").with_source(e))
    }
}
