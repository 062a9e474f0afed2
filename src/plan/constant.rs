//! Expressions that must be known when a query is planned.

use std::sync::Arc;

use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::scalar::ScalarValue;

use super::error::from_datafusion;
use super::window_node::instant_type;
use crate::error::{Error, Result};

/// `expr` with its types coerced and its constants folded.
pub(super) fn fold(expr: Expr, state: &SessionState) -> DfResult<Expr> {
    let context = SimplifyContext::builder()
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    simplifier.coerce(expr, &DFSchema::empty()).and_then(|e| simplifier.simplify(e))
}

/// The value of a constant expression.
pub(super) fn value(expr: Expr, state: &SessionState) -> Result<ScalarValue> {
    let shown = expr.to_string();
    match fold(expr, state).map_err(from_datafusion)? {
        Expr::Literal(value, _) => Ok(value),
        _ => Err(Error::invalid(format!("expected a constant, found `{shown}`"))),
    }
}

/// The instant a constant expression stands for, µs.
pub(super) fn instant(expr: Expr, state: &SessionState) -> Result<i64> {
    if let Expr::Literal(value, _) = &expr
        && let Some(Some(text)) = value.try_as_str()
    {
        return Ok(crate::time::parse_time(text, &jiff::tz::TimeZone::UTC)?);
    }
    let shown = expr.to_string();
    match value(expr, state)?.cast_to(&instant_type()) {
        Ok(ScalarValue::TimestampMicrosecond(Some(us), _)) => Ok(us),
        _ => Err(Error::invalid(format!("expected a time, found `{shown}`"))
            .with_hint("write TIMESTAMP '2024-01-15 10:00:00Z'")),
    }
}
