//! Plans as text: everything that was decided, one operator per line, nothing left implicit.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result as DfResult;
use datafusion::common::cast::as_string_array;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use datafusion::scalar::ScalarValue;

use super::checked;
use super::sum::NARROW;
use crate::connectors::Boundedness;
use crate::operators::graph::{
    AggregateInput, AggregateSpec, Node, Operator, OperatorGraph, Policy, RowsSpec, SourceSpec, StaticJoinSpec,
};
use crate::sql::statement::{Emit, Interval, OnExpired, OnLate};
use crate::time::{DAY_US, format_us};
use crate::watermark::Strategy;

/// The operators of `graph`, in topological order, one per line.
pub fn operators(graph: &OperatorGraph) -> String {
    let mut text = String::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        let inputs: Vec<String> = node.inputs.iter().map(|input| format!("#{input}")).collect();
        let from = if inputs.is_empty() { String::new() } else { format!(" <- {}", inputs.join(", ")) };
        writeln!(text, "#{id} {}{from}", operator(node)).expect("writing to a String does not fail");
    }
    text
}

/// Everything decided about a streaming query. `state` says where its state is kept.
pub fn stream(graph: &OperatorGraph, state: &str) -> String {
    let mut text = "streaming: rows are judged in arrival order\n".to_owned();
    for node in &graph.nodes {
        let line = match &node.operator {
            Operator::Window(spec) => format!("window: {}", spec.window),
            Operator::Source(spec) => format!("watermark of {}: {}", spec.name, watermark(spec, node)),
            _ => continue,
        };
        text += &line;
        text.push('\n');
    }
    if graph.nodes.iter().any(|node| matches!(node.operator, Operator::Window(_))) {
        text.extend(policy(&graph.policy).map(|(rule, says)| format!("{rule}: {says}\n")));
        writeln!(text, "state: {state}").expect("writing to a String does not fail");
    }
    text += "operators:\n";
    for line in operators(graph).lines() {
        writeln!(text, "  {line}").expect("writing to a String does not fail");
    }
    text
}

/// What DataFusion's EXPLAIN gave, under a line that says what a batch query promises. `parts` are its rows: the kind of
/// plan and the plan.
///
/// # Errors
/// Those of Arrow, if the rows are of another shape.
pub fn batch(parts: &[RecordBatch]) -> DfResult<String> {
    let mut text = "batch: every row counts, the answer is complete\n".to_owned();
    for batch in parts {
        let (kinds, plans) = (as_string_array(batch.column(0))?, as_string_array(batch.column(1))?);
        for (kind, plan) in kinds.iter().zip(plans) {
            let kind = kind.unwrap_or_default().to_lowercase().replace('_', " ");
            writeln!(text, "{kind}:").expect("writing to a String does not fail");
            for line in plan.unwrap_or_default().lines() {
                writeln!(text, "  {line}").expect("writing to a String does not fail");
            }
        }
    }
    Ok(text)
}

fn operator(node: &Node) -> String {
    match &node.operator {
        Operator::Source(spec) => source(spec, node),
        Operator::Rows(spec) => format!("Rows: {}", rows(spec, node)),
        Operator::Versions(spec) => format!("Versions: {}", rows(spec, node)),
        Operator::StaticJoin(spec) => static_join(spec),
        Operator::Union => "Union".to_owned(),
        Operator::Window(spec) => window(spec),
        Operator::WholeWindow(spec) => format!("WholeWindow: keys={:?}", spec.keys),
        Operator::PassThrough => "PassThrough".to_owned(),
    }
}

fn source(spec: &SourceSpec, node: &Node) -> String {
    let mut columns: Vec<String> = node.schema.fields().iter().map(|f| f.name().clone()).collect();
    if let Some(column) = spec.event_time.and_then(|at| columns.get_mut(at)) {
        column.push_str(" (event time)");
    }
    let bounded = match spec.boundedness {
        Boundedness::Bounded => "bounded",
        Boundedness::Live => "live",
    };
    format!("Source: {}, {bounded}, columns=[{}]", spec.name, columns.join(", "))
}

fn rows(spec: &RowsSpec, node: &Node) -> String {
    let mut parts = Vec::new();
    if let Some(filter) = &spec.filter {
        parts.push(format!("filter={}", shown(filter)));
    }
    if let Some(project) = &spec.project {
        let columns: Vec<String> = project
            .iter()
            .zip(node.schema.fields())
            .map(|(expr, field)| {
                let expr = shown(expr);
                if expr == *field.name() { expr } else { format!("{expr} AS {}", field.name()) }
            })
            .collect();
        parts.push(format!("columns=[{}]", columns.join(", ")));
    }
    parts.join(", ")
}

fn static_join(spec: &StaticJoinSpec) -> String {
    let on: Vec<String> = spec.on.iter().map(|(left, right)| format!("{} = {}", shown(left), shown(right))).collect();
    let filter = spec.filter.as_ref().map(|f| format!(", filter={}", shown(f))).unwrap_or_default();
    format!("StaticJoin: {:?} {}, on=[{}]{filter}", spec.kind, spec.table_name, on.join(", "))
}

fn window(spec: &AggregateSpec) -> String {
    let keys: Vec<String> = spec.keys.iter().map(|(expr, name)| format!("{} AS {name}", shown(expr))).collect();
    let calls: Vec<String> = spec
        .aggregates
        .iter()
        .map(|call| match &call.filter {
            Some(filter) => format!("{} FILTER (WHERE {})", call.function.name(), shown(filter)),
            None => call.function.name().to_owned(),
        })
        .collect();
    let input = match spec.input {
        AggregateInput::Rows => "",
        AggregateInput::Changes { .. } => ", over results",
    };
    format!(
        "Window: {} on @{}, keys=[{}], aggregates=[{}]{input}",
        spec.window,
        spec.event_time,
        keys.join(", "),
        calls.join(", ")
    )
}

/// A length of time in its largest whole units: `1 hour 30 minutes`, `7 days`.
pub fn micros(us: i64) -> String {
    Interval { months: 0, days: us / DAY_US, micros: us % DAY_US }.to_string()
}

/// What happens to late and expired rows, and when results appear: the name of each rule and what it says.
pub fn policy(policy: &Policy) -> [(&'static str, String); 4] {
    let late = match policy.on_late {
        _ if policy.allowed_lateness_us == 0 => "no row is late: L is zero".to_owned(),
        OnLate::Update { max_updates: None } => "UPDATE".to_owned(),
        OnLate::Update { max_updates: Some(n) } => format!("UPDATE MAX {n} UPDATES"),
        OnLate::Drop => "DROP".to_owned(),
        OnLate::SideOutput => "SIDE OUTPUT".to_owned(),
        OnLate::Recompute { every } => recompute(every),
    };
    let expired = match policy.on_expired {
        OnExpired::SideOutput => "SIDE OUTPUT".to_owned(),
        OnExpired::Drop => "DROP".to_owned(),
        OnExpired::Recompute { every } => recompute(every),
    };
    let emit = match policy.emit {
        Emit::OnWindowClose => "ON WINDOW CLOSE".to_owned(),
        Emit::Changes { every: None } => "CHANGES, every epoch".to_owned(),
        Emit::Changes { every: Some(every) } => {
            format!("CHANGES EVERY {}", micros(super::policy::micros(every).unwrap_or(i64::MAX)))
        }
        Emit::OnExpiry => "ON EXPIRY".to_owned(),
    };
    let lateness = micros(policy.allowed_lateness_us);
    [("allowed lateness", lateness), ("on late", late), ("on expired", expired), ("emit", emit)]
}

fn recompute(every: Option<Interval>) -> String {
    let every = every.and_then(super::policy::micros).unwrap_or(60_000_000);
    format!("RECOMPUTE EVERY {}", micros(every))
}

/// An expression as SQL.
fn shown(expr: &Arc<dyn PhysicalExpr>) -> String {
    let spelled = Arc::clone(expr).transform(|expr| {
        // How wide a sum is on its way is nobody's business.
        if let Some(narrow) = expr.downcast_ref::<ScalarFunctionExpr>().filter(|function| function.name() == NARROW) {
            return Ok(Transformed::yes(Arc::clone(&narrow.args()[0])));
        }
        if let Some(written) = expr.downcast_ref::<ScalarFunctionExpr>().and_then(checked::written) {
            return Ok(Transformed::yes(written));
        }
        let literal = expr.downcast_ref::<Literal>().and_then(|literal| literal_text(literal.value()));
        // One that was made up is told by its place.
        let column = expr.downcast_ref::<Column>().filter(|column| column.name().starts_with('#'));
        let text = literal.or_else(|| column.map(|column| format!("@{}", column.index())));
        // A column is shown as its name.
        Ok(text.map_or(Transformed::no(expr), |text| Transformed::yes(Arc::new(Column::new(&text, 0)) as _)))
    });
    let spelled = spelled.map_or_else(|_| Arc::clone(expr), |done| done.data);
    fmt_sql(spelled.as_ref()).to_string()
}

/// A value as SQL, where DataFusion shows it otherwise.
fn literal_text(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            let us = i64::from(interval.days) * DAY_US + interval.nanoseconds / 1000;
            Some(format!("INTERVAL '{}'", micros(us)))
        }
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            Some(format!("'{}'", text.replace('\'', "''")))
        }
        ScalarValue::TimestampMicrosecond(Some(us), Some(_)) => Some(format!("TIMESTAMP '{}'", format_us(*us))),
        _ => None,
    }
}

/// How a source's watermark moves.
pub fn watermark(spec: &SourceSpec, node: &Node) -> String {
    let Some(plan) = &spec.watermark else { return "none declared".to_owned() };
    let column = spec.event_time.map(|at| node.schema.field(at).name().as_str()).unwrap_or("?");
    let expr = plan.expr.as_ref().map(shown).unwrap_or_default();
    let mut text = match plan.spec.strategy {
        Strategy::BoundedOutOfOrderness => format!("{column} AS {expr}"),
        Strategy::PerKey { timeout_us } => format!("{column} AS {expr} PER KEY, timeout {}", micros(timeout_us)),
        Strategy::Punctuated => format!("{column} AS {expr} PUNCTUATED"),
        Strategy::ProcessingTime { delay_us } => format!("{column} AS PROCTIME() - {}", micros(delay_us)),
    };
    let idle = plan.spec.idle_timeout_us.map_or("none".to_owned(), micros);
    write!(text, ", idle timeout {idle}").expect("writing to a String does not fail");
    if let Some(after) = plan.spec.idle_close_after_us {
        write!(text, ", idle close after {}", micros(after)).expect("writing to a String does not fail");
    }
    text
}
