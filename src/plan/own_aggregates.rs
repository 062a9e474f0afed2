//! Aggregates that DataFusion has and computes differently: others take their place in the plan, for both lowerings.
//!
//! | function | over | becomes | because |
//! | --- | --- | --- | --- |
//! | `sum` | integers | one of ours, [`sum`] | it must not wrap |
//! | `sum`, `avg` | decimals of many digits | the same over `DECIMAL(76, s)` | it must not wrap |
//! | `min`, `max` | floats, structs, lists | one of ours, [`extremes`] | NaN, NULL and the order of rows |
//! | `nth_value` | anything | an element of `array_agg` | it takes rows for sorted, which a stream's are not |

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as DfResult, ScalarValue};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};

use super::error::from_datafusion;
use super::{extremes, sum};
use crate::error::Result;

/// From as many digits on a sum of decimals is over 256 bits: one of 128 bits may wrap before 10¹⁰ rows.
const SUM_DIGITS: u8 = 29;
/// The same of a mean, whose sum is multiplied by 10⁴ before it is divided.
const AVG_DIGITS: u8 = 25;

/// What is done to a result right above its aggregate.
enum Above {
    Nothing,
    /// A wide number gets the type that the query expects.
    Narrow,
    /// The element of a list with this number.
    Element(i64),
}

/// Replaces them in every aggregate of `plan`. Columns keep their names and types.
pub(super) fn substitute(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate.clone();
        // Two calls that differed may be the same one now.
        let mut calls: Vec<Expr> = Vec::new();
        let mut above = Vec::new();
        for call in aggr_expr {
            let (call, then) = of_ours(call, &input)?;
            let at = calls.iter().position(|other| *other == call.data);
            above.push((at.unwrap_or(calls.len()), then, call.transformed));
            if at.is_none() {
                calls.push(call.data);
            }
        }
        if above.iter().all(|(.., changed)| !changed) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let ours = Aggregate::try_new(input, group_expr, calls)?;
        let keys = schema.fields().len() - above.len();
        let column = |i: usize| Expr::Column(Column::from(ours.schema.qualified_field(i)));
        let values = above.into_iter().enumerate().map(|(i, (at, then, _))| {
            let value = column(keys + at);
            match then {
                Above::Nothing => value,
                Above::Narrow => sum::narrow(value, schema.field(keys + i).data_type()),
                Above::Element(n) => array_element(value, lit(n)),
            }
        });
        let columns = (0..keys).map(column).chain(values).zip(schema.iter());
        let columns: Vec<Expr> =
            columns.map(|(value, (table, field))| value.alias_qualified(table.cloned(), field.name())).collect();
        LogicalPlanBuilder::from(LogicalPlan::Aggregate(ours)).project(columns)?.build().map(Transformed::yes)
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

/// The call with another in its place, where there is one, and what is done to its result.
fn of_ours(call: Expr, input: &LogicalPlan) -> DfResult<(Transformed<Expr>, Above)> {
    let mut above = Above::Nothing;
    let call = call.transform(|e| {
        let Expr::AggregateFunction(call) = &e else { return Ok(Transformed::no(e)) };
        let Some(argument) = call.params.args.first() else { return Ok(Transformed::no(e)) };
        let data_type = argument.get_type(input.schema())?;
        let AggregateFunction { mut func, mut params } = call.clone();
        match (func.name(), &data_type) {
            ("sum", DataType::Int64 | DataType::UInt64) => {
                func = sum::wide();
                above = Above::Narrow;
            }
            ("sum", DataType::Decimal128(SUM_DIGITS.., scale)) | ("avg", DataType::Decimal128(AVG_DIGITS.., scale)) => {
                params.args = vec![cast(argument.clone(), DataType::Decimal256(76, *scale))];
                above = Above::Narrow;
            }
            ("nth_value", _) => match params.args.as_slice() {
                [value, Expr::Literal(ScalarValue::Int64(Some(n)), _)] if *n != 0 => {
                    (func, above) = (array_agg_udaf(), Above::Element(*n));
                    params.args = vec![value.clone()];
                }
                // DataFusion says what is wrong with it.
                _ => return Ok(Transformed::no(e)),
            },
            (name @ ("min" | "max"), data_type) => match extremes::ordered(name, data_type) {
                Some(ours) => func = ours,
                None => return Ok(Transformed::no(e)),
            },
            _ => return Ok(Transformed::no(e)),
        }
        Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params })))
    })?;
    Ok((call, above))
}
