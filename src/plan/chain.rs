//! One line of operators while it is being lowered: which node it ends in, and where each logical column is.
//!
//! DataFusion's plan knows names; an operator knows positions. A [`Chain`] holds both, and with them the columns that
//! no name asks for but that must travel along: the event time up to the window, the window's bounds and the identity of
//! a result after it. The columns that `WindowAssign` adds have no position before the window operator, because a row's
//! windows exist only there.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, TableReference};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::scalar::ScalarValue;

use super::error::from_datafusion;
use super::source_table::{compile, unqualified};
use super::window_node::{WINDOW_END, WINDOW_START, WindowColumn};
use crate::error::{Error, Result};
use crate::operators::graph::{Node, NodeId, Operator, RowsSpec};
use crate::window::WindowSpec;

type PhysicalRef = Arc<dyn PhysicalExpr>;

/// Where a logical column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// In this column of the node's output.
    At(usize),
    /// Nowhere yet: the window operator will make it.
    Window(WindowColumn),
}

/// What a column that travels along is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Event time of the row.
    EventTime,
    /// The n-th PARTITION BY key of a session.
    Partition(usize),
    /// The n-th key of the result's identity.
    Key(usize),
    /// First instant of the result's window.
    WindowStart,
    /// First instant after it.
    WindowEnd,
    /// The instant before that, where somebody asks for it.
    WindowTime,
    /// Rows of the result.
    EventCount,
    /// The sessions a session replaced, as text.
    Supersedes,
}

/// The window the rows of a chain are on their way to.
#[derive(Debug, Clone)]
pub(super) struct PendingWindow {
    pub spec: WindowSpec,
    /// Predicates over the window's bounds found before it, to be applied to its results.
    pub filters: Vec<Expr>,
}

/// Whether a chain carries rows or results of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Rows,
    Results,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub node: NodeId,
    pub stage: Stage,
    pub window: Option<PendingWindow>,
    /// For each key of the identity the name SELECT would give it.
    pub key_names: Vec<String>,
    /// The window whose results the chain carries.
    pub results_of: Option<WindowSpec>,
    logical: DFSchemaRef,
    slots: Vec<Slot>,
    carried: BTreeMap<Role, usize>,
    output: SchemaRef,
}

impl Chain {
    /// A chain whose node's output is `output`, of which the first columns are the logical ones.
    pub fn new(node: NodeId, stage: Stage, logical: DFSchemaRef, output: SchemaRef) -> Self {
        let slots = (0..logical.fields().len()).map(Slot::At).collect();
        Self {
            node,
            stage,
            window: None,
            key_names: Vec::new(),
            results_of: None,
            logical,
            slots,
            carried: BTreeMap::new(),
            output,
        }
    }

    /// Says which logical columns are where; one per column of the logical schema.
    pub fn with_slots(mut self, logical: DFSchemaRef, slots: Vec<Slot>) -> Self {
        debug_assert_eq!(logical.fields().len(), slots.len());
        self.logical = logical;
        self.slots = slots;
        self
    }

    /// Goes on at `node`, whose output begins with the columns so far.
    pub fn moved_to(&mut self, node: NodeId, output: SchemaRef) {
        self.node = node;
        self.output = output;
    }

    /// Makes the column at `index` travel along.
    pub fn carry(&mut self, role: Role, index: usize) {
        self.carried.insert(role, index);
    }

    /// Lets every column go that no name asks for.
    pub fn drop_carried(&mut self) {
        self.carried.clear();
    }

    /// Where a travelling column is.
    pub fn carried(&self, role: Role) -> Option<usize> {
        self.carried.get(&role).copied()
    }

    /// The columns that tell results apart: the window's bounds and the keys.
    pub fn identity(&self) -> Vec<usize> {
        let part_of_it = |role: &Role| matches!(role, Role::WindowStart | Role::WindowEnd | Role::Key(_));
        self.carried.iter().filter(|(role, _)| part_of_it(role)).map(|(_, at)| *at).collect()
    }

    /// The node's output columns.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// The names.
    pub fn logical(&self) -> &DFSchemaRef {
        &self.logical
    }

    /// Where the column `column` is.
    pub fn slot(&self, column: &Column) -> Result<Slot> {
        self.logical.index_of_column(column).map(|i| self.slots[i]).map_err(from_datafusion)
    }

    /// Where each logical column is.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The same columns under the names of `logical`.
    pub fn renamed(mut self, logical: DFSchemaRef) -> Self {
        debug_assert_eq!(logical.fields().len(), self.slots.len());
        self.logical = logical;
        self
    }

    /// The node's output under the names the logical plan uses. A column without one has a name nothing refers to.
    pub fn physical_schema(&self) -> Result<DFSchema> {
        let mut fields: Vec<(Option<TableReference>, FieldRef)> = self
            .output
            .fields()
            .iter()
            .enumerate()
            .map(|(i, f)| (None, Arc::new(f.as_ref().clone().with_name(format!("carried {i}")))))
            .collect();
        for (i, slot) in self.slots.iter().enumerate() {
            if let Slot::At(at) = slot {
                let (qualifier, field) = self.logical.qualified_field(i);
                fields[*at] = (qualifier.cloned(), Arc::clone(field));
            }
        }
        DFSchema::new_with_metadata(fields, Default::default()).map_err(from_datafusion)
    }

    /// Compiles `expr`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if it uses a column of the window before there is one.
    pub fn compile(&self, expr: &Expr) -> Result<PhysicalRef> {
        if let Some(column) = self.window_column_in(expr)? {
            return Err(Error::unsupported(format!(
                "use of `{}` in `{expr}` before the rows of the window are aggregated",
                column.name()
            ))
            .with_hint("group by the window and compute it in the SELECT list, from the aggregates"));
        }
        compile(expr, &self.physical_schema()?)
    }

    fn window_column_in(&self, expr: &Expr) -> Result<Option<WindowColumn>> {
        for column in expr.column_refs() {
            if let Slot::Window(window) = self.slot(column)? {
                return Ok(Some(window));
            }
        }
        Ok(None)
    }

    /// Keeps rows for which `predicate` holds. What asks for nothing but the bounds of a window that comes later is
    /// kept for its results.
    pub fn filter(&mut self, predicate: &Expr, nodes: &mut Vec<Node>) -> Result<()> {
        let mut here = Vec::new();
        for part in split_conjunction(predicate) {
            match self.window_column_in(part)? {
                None => here.push(part.clone()),
                Some(_) => {
                    let later = self.over_window_bounds(part)?;
                    let window = self.window.as_mut().expect("window columns exist after WindowAssign only");
                    window.filters.push(later);
                }
            }
        }
        let Some(predicate) = conjunction(here) else { return Ok(()) };
        let filter = Some(self.compile(&predicate)?);
        let schema = Arc::clone(&self.output);
        self.push_rows(RowsSpec { filter, project: None }, schema, nodes);
        Ok(())
    }

    /// `expr` with the columns of the window replaced by `window_start` and `window_end`.
    fn over_window_bounds(&self, expr: &Expr) -> Result<Expr> {
        for column in expr.column_refs() {
            if let Slot::At(_) = self.slot(column)? {
                return Err(Error::unsupported(format!(
                    "predicate `{}` that compares columns of the row with those of its window",
                    expr.human_display()
                ))
                .with_hint("split it: conditions on the row in WHERE, conditions on the window in HAVING"));
            }
        }
        expr.clone()
            .transform(|e| match &e {
                Expr::Column(column) => match self.slot(column).map_err(super::error::external)? {
                    Slot::Window(window) => Ok(Transformed::yes(bound(window))),
                    Slot::At(_) => Ok(Transformed::no(e)),
                },
                _ => Ok(Transformed::no(e)),
            })
            .map(|t| t.data)
            .map_err(from_datafusion)
    }

    /// Computes `exprs`, named by `logical`. Travelling columns that are not among them follow.
    pub fn project(&mut self, exprs: &[Expr], logical: &DFSchemaRef, nodes: &mut Vec<Node>) -> Result<()> {
        let mut project: Vec<PhysicalRef> = Vec::with_capacity(exprs.len());
        let mut fields: Vec<FieldRef> = Vec::with_capacity(exprs.len());
        let mut slots = Vec::with_capacity(exprs.len());
        let mut moved: BTreeMap<usize, usize> = BTreeMap::new();
        for (expr, field) in exprs.iter().zip(logical.fields()) {
            if let Expr::Column(column) = without_alias(expr) {
                match self.slot(column)? {
                    Slot::Window(window) => {
                        slots.push(Slot::Window(window));
                        continue;
                    }
                    Slot::At(at) => {
                        moved.entry(at).or_insert(project.len());
                    }
                }
            }
            slots.push(Slot::At(project.len()));
            project.push(self.compile(expr)?);
            fields.push(Arc::clone(field));
        }
        for at in self.carried.values_mut() {
            *at = *moved.entry(*at).or_insert_with(|| {
                let field = self.output.field(*at);
                project.push(Arc::new(PhysicalColumn::new(field.name(), *at)));
                fields.push(Arc::new(field.clone()));
                project.len() - 1
            });
        }
        let unchanged = project.len() == self.output.fields().len()
            && project
                .iter()
                .enumerate()
                .all(|(i, e)| e.downcast_ref::<PhysicalColumn>().is_some_and(|c| c.index() == i));
        self.slots = slots;
        self.logical = Arc::clone(logical);
        if !unchanged {
            self.push_rows(RowsSpec { filter: None, project: Some(project) }, Arc::new(Schema::new(fields)), nodes);
        }
        Ok(())
    }

    /// Adds a row-by-row node, or puts a projection into the filter just made.
    pub fn push_rows(&mut self, spec: RowsSpec, schema: SchemaRef, nodes: &mut Vec<Node>) {
        self.output = Arc::clone(&schema);
        let is_last = self.node + 1 == nodes.len();
        if let Some(last) = nodes.last_mut()
            && is_last
            && let Operator::Rows(before) | Operator::Versions(before) = &mut last.operator
            && spec.filter.is_none()
            && let Some(project) = after(before.project.as_deref(), spec.project.as_deref())
        {
            before.project = Some(project);
            last.schema = schema;
            return;
        }
        let operator = match self.stage {
            Stage::Rows => Operator::Rows(spec),
            Stage::Results => Operator::Versions(spec),
        };
        nodes.push(Node { inputs: vec![self.node], operator, schema });
        self.node = nodes.len() - 1;
    }
}

/// The projection that does `first` and then `then` in one step, if that computes nothing twice.
fn after(first: Option<&[PhysicalRef]>, then: Option<&[PhysicalRef]>) -> Option<Vec<PhysicalRef>> {
    let then = then?;
    let Some(first) = first else { return Some(then.to_vec()) };
    let mut used = vec![0; first.len()];
    let mut composed = Vec::with_capacity(then.len());
    for expr in then {
        let at = expr.downcast_ref::<PhysicalColumn>()?.index();
        used[at] += 1;
        composed.push(Arc::clone(&first[at]));
    }
    let computed_twice = first.iter().zip(&used).any(|(e, n)| *n > 1 && e.downcast_ref::<PhysicalColumn>().is_none());
    (!computed_twice).then_some(composed)
}

/// A bound of the window over its results, where `window_start` and `window_end` are columns.
pub(super) fn bound(column: WindowColumn) -> Expr {
    match column {
        WindowColumn::Start => unqualified(WINDOW_START),
        WindowColumn::End => unqualified(WINDOW_END),
        WindowColumn::Time => unqualified(WINDOW_END) - lit(ScalarValue::new_interval_mdn(0, 0, 1_000)),
    }
}

/// `expr` below its aliases.
pub(super) fn without_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_alias(&alias.expr),
        other => other,
    }
}

/// A field with another name.
pub(super) fn named(field: &Field, name: impl Into<String>) -> FieldRef {
    Arc::new(field.clone().with_name(name))
}
