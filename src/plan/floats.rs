//! Float group keys, and floats under DISTINCT: all NaN are one, and −0.0 is 0.0 (C72).
//!
//! Both are told apart by bits, and a NaN has many. So such a float is replaced in the plan, for both lowerings, by an
//! expression that has one bit pattern per number.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as DfResult, ScalarValue};
use datafusion::functions::math::expr_fn::isnan;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit, when};

use super::chain::without_alias;
use super::error::from_datafusion;
use crate::error::Result;

/// Normalises the float keys of every aggregate in `plan`, and the floats it takes once each (`DISTINCT`).
pub(super) fn normalise(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
        let input = Arc::clone(aggregate.input.schema());
        let float = |expr: &Expr| expr.get_type(&input).ok().filter(is_float);
        let sets = aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_)));
        let keys = !sets && aggregate.group_expr.iter().any(|key| float(key).is_some());
        let distinct =
            aggregate.aggr_expr.iter().any(|call| distinct_arguments(call).iter().any(|e| float(e).is_some()));
        if !keys && !distinct {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let schema = Arc::clone(&aggregate.schema);
        let key = |(i, key): (usize, &Expr)| match float(key).filter(|_| !sets) {
            Some(data_type) => Ok(one_pattern(key, &data_type)?.alias(schema.field(i).name())),
            None => Ok(key.clone()),
        };
        let keys = aggregate.group_expr.iter().enumerate().map(key).collect::<DfResult<Vec<_>>>()?;
        let call = |call: Expr| {
            call.transform(|expr| match expr {
                Expr::AggregateFunction(mut call) if call.params.distinct => {
                    for argument in &mut call.params.args {
                        if let Some(data_type) = float(argument) {
                            *argument = one_pattern(argument, &data_type)?;
                        }
                    }
                    Ok(Transformed::yes(Expr::AggregateFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })
            .map(|t| t.data)
        };
        let calls = aggregate.aggr_expr.into_iter().map(call).collect::<DfResult<Vec<_>>>()?;
        let grouped = Aggregate::try_new(aggregate.input, keys, calls)?;
        let columns: Vec<Expr> = (0..schema.fields().len())
            .map(|i| {
                let (qualifier, field) = schema.qualified_field(i);
                Expr::Column(Column::from(grouped.schema.qualified_field(i)))
                    .alias_qualified(qualifier.cloned(), field.name())
            })
            .collect();
        let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped)).project(columns)?.build()?;
        Ok(Transformed::yes(plan))
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

/// `number`, all NaN in one pattern and no zero below zero.
fn one_pattern(number: &Expr, data_type: &DataType) -> DfResult<Expr> {
    let nan = ScalarValue::Float64(Some(f64::NAN)).cast_to(data_type)?;
    let zero = ScalarValue::Float64(Some(0.0)).cast_to(data_type)?;
    when(isnan(number.clone()), lit(nan)).otherwise(number.clone() + lit(zero))
}

/// What an aggregate call takes once each; nothing if it is not DISTINCT.
fn distinct_arguments(call: &Expr) -> &[Expr] {
    match without_alias(call) {
        Expr::AggregateFunction(call) if call.params.distinct => &call.params.args,
        _ => &[],
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}
