//! The one logical node of ours: [`WindowAssign`], which gives each row its windows.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DfResult, plan_err};
use datafusion::logical_expr::{Expr, ExprSchemable, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use super::chain::without_alias;
use super::error::{external, with_sql_types};
use crate::error::Error;
use crate::window::WindowSpec;

/// First instant of the window.
pub const WINDOW_START: &str = "window_start";
/// First instant after the window.
pub const WINDOW_END: &str = "window_end";
/// Last microsecond of the window, `window_end - 1 µs`: the event time of its results.
pub const WINDOW_TIME: &str = "window_time";

/// The type of every instant: microseconds since 1970-01-01 UTC.
pub fn instant_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Which of the columns that [`WindowAssign`] adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WindowColumn {
    /// [`WINDOW_START`]
    Start,
    /// [`WINDOW_END`]
    End,
    /// [`WINDOW_TIME`]
    Time,
}

impl WindowColumn {
    /// All three, in schema order.
    pub const ALL: [Self; 3] = [Self::Start, Self::End, Self::Time];

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => WINDOW_START,
            Self::End => WINDOW_END,
            Self::Time => WINDOW_TIME,
        }
    }
}

/// Gives each input row one output row per window it is in.
///
/// Schema: the input's columns, then `window_start`, `window_end`, `window_time` (timestamp µs UTC, never null). All
/// spellings of a window become this node, and both lowerings start from it. A session's partition keys are part of
/// it, since a session is per key.
#[derive(Debug, Clone)]
pub struct WindowAssign {
    /// The rows.
    pub input: LogicalPlan,
    /// The windows.
    pub spec: WindowSpec,
    /// The event time, an expression over the input.
    pub time: Expr,
    /// Keys of a session; empty for every other kind.
    pub partition_by: Vec<Expr>,
    schema: DFSchemaRef,
}

impl WindowAssign {
    /// Puts the node above `input`.
    ///
    /// # Errors
    ///
    /// If the input has a column named like one the node adds, or `time` is no time.
    pub fn try_new(input: LogicalPlan, spec: WindowSpec, time: Expr, partition_by: Vec<Expr>) -> DfResult<Self> {
        let time_type = time.get_type(input.schema())?;
        if !matches!(time_type, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Null) {
            let found = with_sql_types(&time_type.to_string());
            return Err(external(
                Error::invalid(format!("a window over `{}`, which is no time but {found}", time.human_display()))
                    .with_hint("declare the column TIMESTAMP(0), (3), (6) or (9) to read integers as s, ms, µs or ns"),
            ));
        }
        let mut fields: Vec<_> =
            input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        for column in WindowColumn::ALL {
            if fields.iter().any(|(_, field)| field.name() == column.name()) {
                return plan_err!("the input of the window already has a column `{}`", column.name());
            }
            fields.push((None, Arc::new(Field::new(column.name(), instant_type(), false))));
        }
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(Self { input, spec, time, partition_by, schema })
    }

    /// The node as a plan.
    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// The node, if `plan` is one.
    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }
}

impl PartialEq for WindowAssign {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.time == other.time
            && self.partition_by == other.partition_by
            && self.input == other.input
    }
}

impl Eq for WindowAssign {}

impl Hash for WindowAssign {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec.kind().hash(state);
        self.time.hash(state);
        self.partition_by.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for WindowAssign {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for WindowAssign {
    fn name(&self) -> &str {
        "WindowAssign"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        std::iter::once(&self.time).chain(&self.partition_by).cloned().collect()
    }

    /// A predicate over the added columns alone stays above; every other one may go below.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        WindowColumn::ALL.iter().map(|column| column.name().to_owned()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "WindowAssign: {:?} on {}", self.spec.kind(), self.time)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> DfResult<Self> {
        match (inputs.pop(), inputs.is_empty(), exprs.is_empty()) {
            (Some(input), true, false) => {
                let partition_by = exprs.split_off(1);
                let time = exprs.swap_remove(0);
                Self::try_new(input, self.spec.clone(), time, partition_by)
            }
            _ => plan_err!("WindowAssign takes one input and a time column"),
        }
    }

    /// Only what is used above, and the time and the keys.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let input = self.input.schema();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|i| *i < input.fields().len()).collect();
        for expr in self.expressions() {
            for column in expr.column_refs() {
                needed.push(input.index_of_column(column).ok()?);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

/// Which column of a window `column` of `plan` is, under whatever name; `None` if it is another column.
pub(super) fn window_column(plan: &LogicalPlan, column: &Column) -> DfResult<Option<WindowColumn>> {
    let at = plan.schema().index_of_column(column)?;
    if let Some(assign) = WindowAssign::of(plan) {
        let added = at.checked_sub(assign.input.schema().fields().len());
        return Ok(added.and_then(|at| WindowColumn::ALL.get(at).copied()));
    }
    let below =
        |input: &LogicalPlan, at: usize| window_column(input, &Column::from(input.schema().qualified_field(at)));
    match plan {
        LogicalPlan::Projection(projection) => match without_alias(&projection.expr[at]) {
            Expr::Column(column) => window_column(&projection.input, column),
            _ => Ok(None),
        },
        LogicalPlan::SubqueryAlias(alias) => below(&alias.input, at),
        LogicalPlan::Filter(filter) => below(&filter.input, at),
        LogicalPlan::Join(join) => match at.checked_sub(join.left.schema().fields().len()) {
            None => below(&join.left, at),
            Some(at) => below(&join.right, at),
        },
        _ => Ok(None),
    }
}
