//! `GROUP BY tumble(ts, size)`: the window as a function.
//!
//! The text is rewritten first: each call becomes `highwater_window(n[, ts])`, where `n` says which of the query's calls
//! it is, and `window_start`, `window_end` and `window_time` become its fields. DataFusion then resolves names, aliases
//! and positions as always. In the plan, the aggregate that groups by such a call gets a [`WindowAssign`] below it and
//! groups by the window's bounds; the call's value, a struct of `start` and `end`, is put together above.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as DfResult};
use datafusion::functions::core::expr_fn::named_struct;
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName, VisitMut};

use super::error::{external, from_datafusion};
use super::source_table::{SourceTable, unqualified};
use super::window_call::spec_of;
use super::window_node::{WINDOW_END, WINDOW_START, WindowAssign, WindowColumn, instant_type};
use crate::error::{Error, Result};
use crate::sql::walk::{Change, Step, change};
use crate::sql::{WindowCall, WindowLengths};

const MARKER: &str = "highwater_window";

/// Rewrites the calls in `query`; the answer holds them in the order of their numbers.
pub(super) fn mark(query: &mut ast::Query) -> Result<Vec<WindowCall>> {
    let mut calls = Calls::default();
    match change(query, &mut calls) {
        Step::Continue(()) => Ok(calls.found),
        Step::Break(error) => Err(*error),
    }
}

#[derive(Default)]
struct Calls {
    found: Vec<WindowCall>,
}

impl Change for Calls {
    fn query(&mut self, query: &mut ast::Query) -> Step {
        let current = match query.body.as_ref() {
            ast::SetExpr::Select(select) => self.grouped_by(select)?,
            _ => None,
        };
        match &mut query.order_by {
            Some(order_by) => self.rewrite(order_by, current),
            None => Step::Continue(()),
        }
    }

    fn select(&mut self, select: &mut ast::Select) -> Step {
        let current = self.grouped_by(select)?;
        for item in &mut select.projection {
            if let ast::SelectItem::UnnamedExpr(expr) = item
                && let Some(name) = shown_name(expr)
            {
                *item = ast::SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(name) };
            }
            self.rewrite(item, current)?;
        }
        self.rewrite(&mut select.group_by, current)?;
        self.rewrite(&mut select.having, current)?;
        self.rewrite(&mut select.qualify, current)
    }
}

impl Calls {
    /// The number of the call that `select` groups by.
    fn grouped_by(&mut self, select: &ast::Select) -> ControlFlow<Box<Error>, Option<usize>> {
        let ast::GroupByExpr::Expressions(exprs, _) = &select.group_by else { return ControlFlow::Continue(None) };
        for expr in exprs {
            let by_alias = select.projection.iter().find_map(|item| match (item, expr) {
                (ast::SelectItem::ExprWithAlias { expr: value, alias }, ast::Expr::Identifier(name))
                    if alias.value == name.value =>
                {
                    Some(value)
                }
                _ => None,
            });
            if let ast::Expr::Function(function) = by_alias.unwrap_or(expr)
                && let Some(call) = WindowCall::from_function(function)
            {
                return match call {
                    Ok(call) => ControlFlow::Continue(Some(self.number(call))),
                    Err(error) => ControlFlow::Break(Box::new(error)),
                };
            }
        }
        ControlFlow::Continue(None)
    }

    fn number(&mut self, call: WindowCall) -> usize {
        match self.found.iter().position(|other| meaning(other) == meaning(&call)) {
            Some(number) => number,
            None => {
                self.found.push(call);
                self.found.len() - 1
            }
        }
    }

    /// Replaces calls, and the names of the window's columns if the query groups by the call `current`.
    fn rewrite(&mut self, part: &mut impl VisitMut, current: Option<usize>) -> Step {
        change(part, &mut Rewrite { calls: self, current })
    }

    fn marker(&self, number: usize) -> ast::Expr {
        let mut args = vec![number_literal(number)];
        args.extend(self.found[number].time.as_ref().map(|time| time.node.clone()));
        call(MARKER, args)
    }
}

/// The rewriting of one part of a query.
struct Rewrite<'a> {
    calls: &'a mut Calls,
    current: Option<usize>,
}

impl Change for Rewrite<'_> {
    fn expr(&mut self, expr: &mut ast::Expr) -> Step {
        match expr {
            ast::Expr::Function(function) => match WindowCall::from_function(function) {
                Some(Ok(call)) => {
                    let number = self.calls.number(call);
                    *expr = self.calls.marker(number);
                }
                Some(Err(error)) => return Step::Break(Box::new(error)),
                None => {}
            },
            ast::Expr::Identifier(name) => {
                if let Some(number) = self.current
                    && let Some(column) = WindowColumn::ALL.iter().find(|c| name.value.eq_ignore_ascii_case(c.name()))
                {
                    *expr = field(self.calls.marker(number), *column);
                }
            }
            _ => {}
        }
        Step::Continue(())
    }
}

/// What a call says, wherever it is written.
fn meaning(call: &WindowCall) -> impl PartialEq {
    let lengths = match &call.lengths {
        WindowLengths::Tumble { size } => [size.node, size.node],
        WindowLengths::Hop { slide, size } => [slide.node, size.node],
        WindowLengths::Cumulate { step, size } => [step.node, size.node],
        WindowLengths::Session { gap } => [gap.node, gap.node],
    };
    (
        call.function,
        lengths,
        call.time.as_ref().map(|time| time.node.to_string()),
        call.offset.as_ref().map(|offset| offset.node),
        call.time_zone.as_ref().map(|zone| zone.node.clone()),
    )
}

/// The name a SELECT item without an alias has for its reader, if it is rewritten here.
fn shown_name(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Function(function) => {
            WindowCall::from_function(function)?.ok().map(|call| call.function.as_str().to_lowercase())
        }
        ast::Expr::Identifier(name) => {
            WindowColumn::ALL.iter().find(|c| name.value.eq_ignore_ascii_case(c.name())).map(|c| c.name().to_owned())
        }
        _ => None,
    }
}

fn field(marker: ast::Expr, column: WindowColumn) -> ast::Expr {
    let get = |name: &str| {
        call("get_field", vec![marker.clone(), ast::Expr::Value(ast::Value::SingleQuotedString(name.into()).into())])
    };
    match column {
        WindowColumn::Start => get("start"),
        WindowColumn::End => get("end"),
        WindowColumn::Time => ast::Expr::BinaryOp {
            left: Box::new(get("end")),
            op: ast::BinaryOperator::Minus,
            right: Box::new(ast::Expr::Interval(ast::Interval {
                value: Box::new(ast::Expr::Value(ast::Value::SingleQuotedString("1 microsecond".into()).into())),
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            })),
        },
    }
}

fn number_literal(number: usize) -> ast::Expr {
    ast::Expr::Value(ast::Value::Number(number.to_string(), false).into())
}

fn call(name: &str, args: Vec<ast::Expr>) -> ast::Expr {
    ast::Expr::Function(ast::Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(|arg| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg))).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The function the rewritten text calls. It never runs.
pub(super) static MARKER_FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Marker { signature: Signature::variadic_any(Volatility::Immutable) })));

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        MARKER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        let bound = |name: &str| Field::new(name, instant_type(), true);
        Ok(DataType::Struct(Fields::from(vec![bound("start"), bound("end")])))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        datafusion::common::internal_err!("a window function is planned, never evaluated")
    }
}

/// Whether the function `name` is the marker.
pub(super) fn is_marker(name: &str) -> bool {
    name == MARKER
}

/// Puts a [`WindowAssign`] below each aggregate that groups by a call.
pub(super) fn assign(plan: LogicalPlan, calls: &[WindowCall]) -> Result<LogicalPlan> {
    if calls.is_empty() {
        return Ok(plan);
    }
    let plan = plan
        .transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.iter().any(|e| marked(e).is_some()) => {
                windowed(aggregate, calls).map(Transformed::yes).map_err(external)
            }
            other => other.recompute_schema().map(Transformed::yes),
        })
        .map_err(from_datafusion)?
        .data;
    let mut left = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            left = left.or_else(|| marked(expr).and_then(number_of));
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .map_err(from_datafusion)?;
    match left.and_then(|number| calls.get(number)) {
        None => Ok(plan),
        Some(call) => Err(Error::invalid(format!("{} is not in GROUP BY", call.function.as_str()))
            .with_hint("group by the same call, or use it in FROM")
            .at(call.position)),
    }
}

/// The first call in `expr`.
fn marked(expr: &Expr) -> Option<Expr> {
    let mut found = None;
    let visited = expr.apply(|e| {
        if let Expr::ScalarFunction(function) = e
            && is_marker(function.func.name())
        {
            found = Some(e.clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor has no error of its own");
    found
}

fn number_of(marker: Expr) -> Option<usize> {
    let Expr::ScalarFunction(function) = marker else { return None };
    match function.args.first() {
        Some(Expr::Literal(ScalarValue::Int64(Some(number)), _)) => usize::try_from(*number).ok(),
        _ => None,
    }
}

fn windowed(aggregate: Aggregate, calls: &[WindowCall]) -> Result<LogicalPlan> {
    let markers: Vec<Expr> = aggregate.group_expr.iter().filter_map(marked).collect();
    let marker = markers[0].clone();
    let number = number_of(marker.clone());
    let call = number.and_then(|n| calls.get(n)).ok_or_else(|| Error::internal("window function without its call"))?;
    if markers.iter().any(|other| *other != marker) {
        return Err(Error::unsupported("GROUP BY of two windows")
            .with_hint("declare one view per window")
            .at(call.position));
    }
    let input = Arc::unwrap_or_clone(aggregate.input);
    let time = match &marker {
        Expr::ScalarFunction(function) if function.args.len() > 1 => function.args[1].clone(),
        _ => event_time(&input).map(Expr::Column).ok_or_else(|| {
            Error::invalid(format!("{} without a time column, over input that declares none", call.function.as_str()))
                .with_hint("name it: tumble(ts, INTERVAL '1 hour')")
                .at(call.position)
        })?,
    };
    let spec = spec_of(call)?;
    let others: Vec<Expr> = aggregate.group_expr.iter().filter(|e| marked(e).is_none()).cloned().collect();
    let (input, keys) = if spec.is_session() { named_keys(input, others)? } else { (input, others) };
    let partition_by = if spec.is_session() { keys.clone() } else { Vec::new() };
    let assign = WindowAssign::try_new(input, spec, time, partition_by).map_err(from_datafusion)?.into_plan();

    let start = unqualified(WINDOW_START);
    let end = unqualified(WINDOW_END);
    let group = [start.clone(), end.clone()].into_iter().chain(keys.iter().cloned()).collect();
    let inner = Aggregate::try_new(Arc::new(assign), group, aggregate.aggr_expr.clone()).map_err(from_datafusion)?;
    let value = named_struct(vec![lit("start"), start, lit("end"), end]);
    let mut outputs = Vec::new();
    let mut key = 2;
    for (i, expr) in aggregate.group_expr.iter().enumerate() {
        let (qualifier, field) = aggregate.schema.qualified_field(i);
        let output = if marked(expr).is_some() {
            replace(expr.clone(), &marker, &value)?
        } else {
            key += 1;
            Expr::Column(Column::from(inner.schema.qualified_field(key - 1)))
        };
        outputs.push(output.alias_qualified(qualifier.cloned(), field.name()));
    }
    for i in 0..aggregate.aggr_expr.len() {
        let (qualifier, field) = aggregate.schema.qualified_field(aggregate.group_expr.len() + i);
        let column = Expr::Column(Column::from(inner.schema.qualified_field(key + i)));
        outputs.push(column.alias_qualified(qualifier.cloned(), field.name()));
    }
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(inner))
        .project(outputs)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}

fn replace(expr: Expr, marker: &Expr, value: &Expr) -> Result<Expr> {
    expr.transform(|e| Ok(if e == *marker { Transformed::yes(value.clone()) } else { Transformed::no(e) }))
        .map(|t| t.data)
        .map_err(from_datafusion)
}

/// Gives keys that are expressions a column each below the window, since a session is per column.
fn named_keys(input: LogicalPlan, keys: Vec<Expr>) -> Result<(LogicalPlan, Vec<Expr>)> {
    if keys.iter().all(|key| matches!(key, Expr::Column(_))) {
        return Ok((input, keys));
    }
    let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut named = Vec::new();
    for key in keys {
        if let Expr::Column(_) = key {
            named.push(key);
            continue;
        }
        let name = key.schema_name().to_string();
        columns.push(key.alias(&name));
        named.push(unqualified(&name));
    }
    let plan = LogicalPlanBuilder::from(input).project(columns).and_then(LogicalPlanBuilder::build);
    Ok((plan.map_err(from_datafusion)?, named))
}

/// The column of `plan` that is the event time its source declares.
pub(super) fn event_time(plan: &LogicalPlan) -> Option<Column> {
    let at = match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = datafusion::datasource::source_as_provider(&scan.source).ok()?;
            provider.downcast_ref::<SourceTable>()?.watermark()?.column
        }
        LogicalPlan::Projection(projection) => {
            let below = event_time(&projection.input)?;
            projection.expr.iter().position(|e| *super::chain::without_alias(e) == Expr::Column(below.clone()))?
        }
        LogicalPlan::Filter(filter) => return event_time(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => {
            let below = event_time(&alias.input)?;
            alias.input.schema().index_of_column(&below).ok()?
        }
        LogicalPlan::Join(join) => return event_time(&join.left).or_else(|| event_time(&join.right)),
        LogicalPlan::Union(union) => {
            let first = union.inputs.first()?;
            first.schema().index_of_column(&event_time(first)?).ok()?
        }
        _ => return None,
    };
    Some(Column::from(plan.schema().qualified_field(at)))
}
