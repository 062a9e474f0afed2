//! Float group keys: all NaN are one group, and −0.0 is 0.0 (C72).
//!
//! Groups are told apart by bits, and a NaN has many. So a float key is replaced in the plan, for both lowerings, by an
//! expression that has one bit pattern per number.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ScalarValue};
use datafusion::functions::math::expr_fn::isnan;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit, when};

use super::error::from_datafusion;
use crate::error::Result;

/// Normalises the float keys of every aggregate in `plan`.
pub(super) fn normalise(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
        let float = |expr: &Expr| matches!(expr.get_type(aggregate.input.schema()), Ok(ref t) if is_float(t));
        let sets = aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_)));
        if sets || !aggregate.group_expr.iter().any(float) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let schema = Arc::clone(&aggregate.schema);
        let keys = aggregate
            .group_expr
            .iter()
            .enumerate()
            .map(|(i, key)| {
                if !float(key) {
                    return Ok(key.clone());
                }
                let data_type = key.get_type(aggregate.input.schema())?;
                let nan = ScalarValue::Float64(Some(f64::NAN)).cast_to(&data_type)?;
                let zero = ScalarValue::Float64(Some(0.0)).cast_to(&data_type)?;
                let number = key.clone();
                let one_pattern = when(isnan(number.clone()), lit(nan)).otherwise(number + lit(zero))?;
                Ok(one_pattern.alias(schema.field(i).name()))
            })
            .collect::<datafusion::common::Result<Vec<_>>>()?;
        let grouped = Aggregate::try_new(aggregate.input, keys, aggregate.aggr_expr)?;
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

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}
