//! The streaming lowering: a logical plan to an [`OperatorGraph`].
//!
//! The plan is cut at its windowed aggregates. What lies below one works on rows, and is optimised by itself, so that no
//! predicate on results slips under a window and no column of the window is found redundant. What lies above works on
//! results and keeps the identity of each.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, TableScan, Union};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;

use super::chain::{Chain, PendingWindow, Role, Slot, Stage, named, without_alias};
use super::error::{external, from_datafusion};
use super::leaf::LeafTable;
use super::optimize::{optimize_rows, simplify};
use super::source_table::SourceTable;
use super::whole::{Slotted, WindowPhysicalPlan, needs_whole_window};
use super::window_node::WindowAssign;
use crate::error::{Error, Result};
use crate::operators::graph::{KeyColumn, Node, NodeId, Operator, OperatorGraph, Policy, RowsSpec};

/// Lowers an analysed plan.
pub(super) async fn lower(plan: LogicalPlan, policy: Policy, state: &SessionState) -> Result<OperatorGraph> {
    let mut lowering = Lowering { state, nodes: vec![], leaves: vec![], tables: vec![], wholes: vec![] };
    let root_schema = Arc::clone(plan.schema());
    let plan = lowering.cut(plan)?;
    let plan = if lowering.leaves.is_empty() { optimize_rows(plan, state)? } else { simplify(plan, state)? };
    let chain = lowering.lower_results(&plan)?;
    lowering.complete().await?;
    lowering.finish(chain.renamed(root_schema), policy)
}

pub(super) struct Lowering<'a> {
    pub state: &'a SessionState,
    pub nodes: Vec<Node>,
    /// Windowed aggregates lowered already; [`LeafTable`]s in the plans stand for them.
    pub leaves: Vec<Chain>,
    /// Static tables of joins, to be planned.
    pub tables: Vec<(NodeId, LogicalPlan)>,
    /// Plans over one window's results, to be planned.
    pub wholes: Vec<(NodeId, LogicalPlan, Slotted)>,
}

impl Lowering<'_> {
    /// Lowers the topmost windowed aggregates of `plan` and puts leaves in their places.
    fn cut(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        plan.transform_down(|node| match node {
            LogicalPlan::Aggregate(aggregate) if window_below(&aggregate.input) => {
                let logical = Arc::clone(&aggregate.schema);
                let chain = self.windowed(aggregate).map_err(external)?;
                self.leaves.push(chain.renamed(Arc::clone(&logical)));
                let leaf = LeafTable::scan(self.leaves.len() - 1, &logical)?;
                Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
        .map_err(from_datafusion)
    }

    /// Lowers a windowed aggregate and all below it.
    fn windowed(&mut self, aggregate: Aggregate) -> Result<Chain> {
        let input = self.cut(Arc::unwrap_or_clone(aggregate.input))?;
        let aggregate =
            Aggregate::try_new(Arc::new(input), aggregate.group_expr, aggregate.aggr_expr).map_err(from_datafusion)?;
        let plan = optimize_rows(LogicalPlan::Aggregate(aggregate), self.state)?;
        self.lower(&plan)
    }

    /// Lowers a plan that may be above windows: row by row where that is enough, else the whole window at once.
    pub fn lower_results(&mut self, plan: &LogicalPlan) -> Result<Chain> {
        if self.leaves.is_empty() || !needs_whole_window(plan) {
            return self.lower(plan);
        }
        // Joins with tables are result by result; what is above them sees their rows.
        let plan = plan.clone().transform_down(|node| match node {
            LogicalPlan::Join(join) => {
                let chain = self.join(&join).map_err(external)?.renamed(Arc::clone(&join.schema));
                self.leaves.push(chain);
                let leaf = LeafTable::scan(self.leaves.len() - 1, &join.schema)?;
                Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        });
        self.whole_window(&plan.map_err(from_datafusion)?.data)
    }

    /// Lowers any node.
    pub fn lower(&mut self, plan: &LogicalPlan) -> Result<Chain> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Filter(filter) => {
                let mut chain = self.lower(&filter.input)?;
                chain.filter(&filter.predicate, &mut self.nodes)?;
                Ok(chain)
            }
            LogicalPlan::SubqueryAlias(alias) => Ok(self.lower(&alias.input)?.renamed(Arc::clone(&alias.schema))),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Extension(_) if WindowAssign::of(plan).is_some() => {
                self.assign(WindowAssign::of(plan).expect("checked in the guard"))
            }
            other => Err(super::refuse::operator(other)),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Chain> {
        let provider = source_as_provider(&scan.source).map_err(from_datafusion)?;
        let all: Vec<usize> = (0..scan.source.schema().fields().len()).collect();
        let wanted = scan.projection.as_ref().unwrap_or(&all);
        if let Some(leaf) = provider.downcast_ref::<LeafTable>() {
            let chain = self.leaves[leaf.id].clone();
            let slots = wanted.iter().map(|i| chain.slots()[*i]).collect();
            return Ok(chain.with_slots(Arc::clone(&scan.projected_schema), slots));
        }
        let Some(source) = provider.downcast_ref::<SourceTable>() else {
            return Err(super::refuse::not_a_source(&scan.table_name.to_string()));
        };
        let planned = source.plan(wanted)?;
        let event_time = planned.spec.event_time;
        self.nodes.push(Node {
            inputs: Vec::new(),
            operator: Operator::Source(planned.spec),
            schema: Arc::clone(&planned.schema),
        });
        let logical = Arc::clone(&scan.projected_schema);
        let slots = planned.places.into_iter().map(Slot::At).collect();
        let mut chain = Chain::new(self.nodes.len() - 1, Stage::Rows, Arc::clone(&logical), planned.schema)
            .with_slots(logical, slots);
        if let Some(event_time) = event_time {
            chain.carry(Role::EventTime, event_time);
        }
        Ok(chain)
    }

    fn projection(&mut self, projection: &Projection) -> Result<Chain> {
        let mut chain = self.lower(&projection.input)?;
        chain.project(&projection.expr, &projection.schema, &mut self.nodes)?;
        Ok(chain)
    }

    /// Notes the window; its operator comes with the aggregate.
    fn assign(&mut self, assign: &WindowAssign) -> Result<Chain> {
        let mut chain = self.lower(&assign.input)?;
        let Expr::Column(column) = without_alias(&assign.time) else {
            return Err(Error::unsupported(format!("window over the expression `{}`", assign.time))
                .with_hint("make it a computed column of the source and declare its watermark"));
        };
        let slot = chain.slot(column)?;
        match chain.stage {
            Stage::Rows => match chain.carried(Role::EventTime) {
                Some(at) if slot == Slot::At(at) => {}
                Some(at) => {
                    let declared = chain.output().field(at).name().clone();
                    return Err(Error::invalid(format!(
                        "window over column `{}`, which is not the source's event time `{declared}`",
                        column.name
                    ))
                    .with_hint(format!("use {declared}, the column of the WATERMARK FOR clause")));
                }
                None => {
                    return Err(Error::invalid("window over a source without a watermark")
                        .with_hint("declare WATERMARK FOR column AS column - INTERVAL '…' in CREATE SOURCE"));
                }
            },
            Stage::Results => self.time_of_results(&mut chain, slot, column)?,
        }
        for (i, key) in assign.partition_by.iter().enumerate() {
            let Expr::Column(column) = without_alias(key) else {
                return Err(Error::unsupported(format!("PARTITION BY the expression `{}`", key.schema_name()))
                    .with_hint("select the expression under a name in a subquery and partition by that"));
            };
            if let Slot::At(at) = chain.slot(column)? {
                chain.carry(Role::Partition(i), at);
            }
        }
        let inputs = assign.input.schema().fields().len();
        let mut slots = chain.slots().to_vec();
        debug_assert_eq!(slots.len(), inputs);
        slots.extend(super::window_node::WindowColumn::ALL.map(Slot::Window));
        let logical = Arc::clone(datafusion::logical_expr::UserDefinedLogicalNodeCore::schema(assign));
        chain = chain.with_slots(logical, slots);
        chain.window = Some(PendingWindow { spec: assign.spec.clone(), filters: Vec::new() });
        Ok(chain)
    }

    fn union(&mut self, union: &Union) -> Result<Chain> {
        let mut inputs = Vec::new();
        let mut event_time = None;
        let mut schema = None;
        for input in &union.inputs {
            let mut chain = self.lower(input)?;
            if chain.stage == Stage::Results || chain.window.is_some() {
                return Err(Error::unsupported("UNION of windowed results")
                    .with_hint("UNION ALL the sources below the window, or read each view and unite the reads"));
            }
            let columns: Vec<Expr> = chain.logical().columns().into_iter().map(Expr::Column).collect();
            let times = columns.iter().map(|c| match c {
                Expr::Column(c) => {
                    chain.slot(c).ok().filter(|s| Some(*s) == chain.carried(Role::EventTime).map(Slot::At))
                }
                _ => None,
            });
            let visible = times.into_iter().position(|t| t.is_some());
            event_time.get_or_insert(visible);
            if event_time != Some(visible) || visible.is_none() {
                return Err(Error::unsupported("UNION ALL of sources whose event times are not in the same column")
                    .with_hint("select the event time of each source in the same place"));
            }
            chain.project(&columns, &union.schema, &mut self.nodes)?;
            inputs.push(chain.node);
            schema = Some(Arc::clone(chain.output()));
        }
        let schema = schema.ok_or_else(|| Error::internal("union without inputs"))?;
        self.nodes.push(Node { inputs, operator: Operator::Union, schema: Arc::clone(&schema) });
        let mut chain = Chain::new(self.nodes.len() - 1, Stage::Rows, Arc::clone(&union.schema), schema);
        if let Some(Some(at)) = event_time {
            chain.carry(Role::EventTime, at);
        }
        Ok(chain)
    }

    /// Has DataFusion plan what runs on its operators.
    async fn complete(&mut self) -> Result<()> {
        for (node, plan) in std::mem::take(&mut self.tables) {
            let table = self.state.create_physical_plan(&plan).await.map_err(from_datafusion)?;
            if let Operator::StaticJoin(spec) = &mut self.nodes[node].operator {
                Arc::make_mut(spec).table = table;
            }
        }
        for (node, plan, slot) in std::mem::take(&mut self.wholes) {
            let schema = Arc::clone(&self.nodes[node].schema);
            let plan = WindowPhysicalPlan::try_new(&plan, schema, slot, self.state).await?;
            if let Operator::WholeWindow(spec) = &mut self.nodes[node].operator {
                Arc::make_mut(spec).plan = Arc::new(plan);
            }
        }
        Ok(())
    }

    /// Adds the last projection and names what a reader sees.
    fn finish(mut self, mut chain: Chain, policy: Policy) -> Result<OperatorGraph> {
        let logical = Arc::clone(chain.logical());
        let select = Arc::new(Schema::new(logical.fields().iter().cloned().collect::<Vec<_>>()));
        if chain.stage == Stage::Rows {
            if chain.window.is_some() {
                return Err(Error::unsupported("rows of a window without an aggregate over them")
                    .with_hint("GROUP BY window_start, window_end"));
            }
            let columns: Vec<Expr> = logical.columns().into_iter().map(Expr::Column).collect();
            chain.drop_carried();
            chain.project(&columns, &logical, &mut self.nodes)?;
            let schema = Arc::clone(&select);
            self.nodes.push(Node { inputs: vec![chain.node], operator: Operator::PassThrough, schema });
            return Ok(OperatorGraph { nodes: self.nodes, select, keys: Vec::new(), policy });
        }
        let keys = self.finish_results(&mut chain, &select)?;
        Ok(OperatorGraph { nodes: self.nodes, select, keys, policy })
    }

    fn finish_results(&mut self, chain: &mut Chain, select: &Schema) -> Result<Vec<KeyColumn>> {
        let output = Arc::clone(chain.output());
        let mut project: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        let mut fields = Vec::new();
        let mut keys = Vec::new();
        let mut take = |at: usize, name: &str, fields: &mut Vec<_>| {
            project.push(Arc::new(PhysicalColumn::new(output.field(at).name(), at)) as _);
            fields.push(named(output.field(at), name));
        };
        for (slot, field) in chain.slots().iter().zip(select.fields()) {
            match slot {
                Slot::At(at) => take(*at, field.name(), &mut fields),
                Slot::Window(_) => return Err(Error::internal("column of a window that has been aggregated")),
            }
        }
        for (i, name) in chain.key_names.iter().enumerate() {
            let at = chain.carried(Role::Key(i)).ok_or_else(|| Error::internal("key of a result was lost"))?;
            let selected = chain.slots().iter().position(|s| *s == Slot::At(at));
            let stored_as = match selected {
                Some(column) => select.field(column).name().clone(),
                None => unique(&format!("_key_{}", stored_name(name)), &fields),
            };
            let index = selected.unwrap_or(fields.len());
            if selected.is_none() {
                take(at, &stored_as, &mut fields);
            }
            keys.push(KeyColumn { index, stored_as, selected: selected.is_some() });
        }
        for (role, name) in [
            (Role::WindowStart, "_window_start"),
            (Role::WindowEnd, "_window_end"),
            (Role::EventCount, "_event_count"),
            (Role::Supersedes, "_supersedes"),
        ] {
            match chain.carried(role) {
                Some(at) => take(at, name, &mut fields),
                None if role == Role::Supersedes => {}
                None => return Err(Error::internal(format!("column `{name}` of a result was lost"))),
            }
        }
        chain.push_rows(
            RowsSpec { filter: None, project: Some(project) },
            Arc::new(Schema::new(fields)),
            &mut self.nodes,
        );
        Ok(keys)
    }
}

/// Whether rows of a window reach `plan` without another aggregate in between.
pub(super) fn window_below(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_) => false,
        _ if WindowAssign::of(plan).is_some() => true,
        other => other.inputs().iter().any(|input| window_below(input)),
    }
}

/// `name`, with a number after it if `fields` has it already.
pub(super) fn unique(name: &str, fields: &[Arc<Field>]) -> String {
    let taken = |candidate: &str| fields.iter().any(|f| f.name() == candidate);
    if !taken(name) {
        return name.to_owned();
    }
    (1..).map(|n| format!("{name}_{n}")).find(|n| !taken(n)).expect("numbers do not run out")
}

/// A name that every table format takes: letters, digits and single underscores of `name`.
fn stored_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}
