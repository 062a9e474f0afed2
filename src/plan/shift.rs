//! `instant ± INTERVAL` without a calendar.
//!
//! Arrow takes every instant apart into date, time and zone to add an interval to it, because an interval may count months
//! or local days. In UTC an interval without months is a fixed number of microseconds, so one addition does. A watermark
//! is such an expression, evaluated for every row there is.

use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::{DataType, IntervalMonthDayNano, Schema, TimestampMicrosecondType};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};

use super::window_node::instant_type;
use crate::time::DAY_US;

/// `expr` with every addition of a fixed interval to an instant done by arithmetic. The same values, but for times so far
/// from now that Arrow's calendar does not have them.
pub(super) fn by_arithmetic(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> DfResult<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|node| {
        let Some(shift) = shift_us(&node, schema)? else { return Ok(Transformed::no(node)) };
        Ok(Transformed::yes(Arc::new(Shift { written: node, us: shift }) as Arc<dyn PhysicalExpr>))
    })
    .map(|t| t.data)
}

/// By how much `expr` moves its left side, if that is an instant and the right side a fixed interval.
fn shift_us(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> DfResult<Option<i64>> {
    let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    let sign = match binary.op() {
        Operator::Plus => 1,
        Operator::Minus => -1,
        _ => return Ok(None),
    };
    let interval = match binary.right().downcast_ref::<Literal>().map(Literal::value) {
        Some(ScalarValue::IntervalMonthDayNano(Some(interval))) => interval,
        _ => return Ok(None),
    };
    if binary.left().data_type(schema)? != instant_type() || expr.data_type(schema)? != instant_type() {
        return Ok(None);
    }
    Ok(fixed_us(interval).and_then(|us| us.checked_mul(sign)))
}

fn fixed_us(interval: &IntervalMonthDayNano) -> Option<i64> {
    if interval.months != 0 || interval.nanoseconds % 1_000 != 0 {
        return None;
    }
    i64::from(interval.days).checked_mul(DAY_US)?.checked_add(interval.nanoseconds / 1_000)
}

/// `written`, whose left side is an instant, as an addition of microseconds.
#[derive(Debug, Eq)]
struct Shift {
    written: Arc<dyn PhysicalExpr>,
    us: i64,
}

// The shift follows from what was written. Derived, the comparison would move out of the reference.
impl PartialEq for Shift {
    fn eq(&self, other: &Self) -> bool {
        self.written.eq(&other.written)
    }
}

impl Hash for Shift {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.written.hash(state);
    }
}

impl Shift {
    fn shifted(&self, instants: &ArrayRef) -> DfResult<ArrayRef> {
        let Some(times) = instants.as_primitive_opt::<TimestampMicrosecondType>() else {
            return internal_err!("an instant of type {}", instants.data_type());
        };
        let out_of_range = || ArrowError::ComputeError("Timestamp out of range".to_owned());
        let moved: PrimitiveArray<TimestampMicrosecondType> =
            times.try_unary(|us| us.checked_add(self.us).ok_or_else(out_of_range))?;
        Ok(Arc::new(moved.with_data_type(instant_type())))
    }
}

impl Display for Shift {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Display::fmt(&self.written, f)
    }
}

impl PhysicalExpr for Shift {
    fn data_type(&self, _: &Schema) -> DfResult<DataType> {
        Ok(instant_type())
    }

    fn nullable(&self, schema: &Schema) -> DfResult<bool> {
        self.written.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        Ok(match self.written.children()[0].evaluate(batch)? {
            ColumnarValue::Array(instants) => ColumnarValue::Array(self.shifted(&instants)?),
            ColumnarValue::Scalar(instant) => {
                let moved = self.shifted(&instant.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&moved, 0)?)
            }
        })
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.written.children()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> DfResult<Arc<dyn PhysicalExpr>> {
        let written = Arc::clone(&self.written).with_new_children(children)?;
        Ok(Arc::new(Self { written, us: self.us }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.written.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampMicrosecondArray;
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![Field::new("ts", instant_type(), true)])
    }

    fn plus(op: Operator, interval: IntervalMonthDayNano) -> Arc<dyn PhysicalExpr> {
        let interval = lit(ScalarValue::IntervalMonthDayNano(Some(interval)));
        binary(col("ts", &schema()).unwrap(), op, interval, &schema()).unwrap()
    }

    fn evaluate(expr: &Arc<dyn PhysicalExpr>, times: Vec<Option<i64>>) -> DfResult<ArrayRef> {
        let times = TimestampMicrosecondArray::from(times).with_timezone("UTC");
        let batch = RecordBatch::try_new(Arc::new(schema()), vec![Arc::new(times)])?;
        expr.evaluate(&batch)?.into_array(batch.num_rows())
    }

    #[test]
    fn fixed_intervals_give_what_arrow_gives() {
        let times = vec![Some(0), None, Some(-1), Some(1_700_000_000_123_456), Some(-62_000_000_000_000_000)];
        for op in [Operator::Plus, Operator::Minus] {
            for (days, nanoseconds) in [(0, 4_000_000_000), (2, 0), (-1, 1_000), (400, -86_400_000_001_000)] {
                let written = plus(op, IntervalMonthDayNano::new(0, days, nanoseconds));
                let ours = by_arithmetic(Arc::clone(&written), &schema()).unwrap();
                assert!(ours.downcast_ref::<Shift>().is_some());
                assert_eq!(ours.to_string(), written.to_string());
                let expected = evaluate(&written, times.clone()).unwrap();
                assert_eq!(&evaluate(&ours, times.clone()).unwrap(), &expected, "{written}");
            }
        }
    }

    #[test]
    fn months_and_parts_of_a_microsecond_stay_with_arrow() {
        for interval in [IntervalMonthDayNano::new(1, 0, 0), IntervalMonthDayNano::new(0, 0, 1_500)] {
            let expr = by_arithmetic(plus(Operator::Minus, interval), &schema()).unwrap();
            assert!(expr.downcast_ref::<Shift>().is_none(), "{expr}");
        }
    }

    #[test]
    fn an_instant_that_leaves_the_range_is_an_error_not_another_time() {
        let expr = by_arithmetic(plus(Operator::Minus, IntervalMonthDayNano::new(0, 1, 0)), &schema()).unwrap();
        let error = evaluate(&expr, vec![Some(i64::MIN + 5)]).unwrap_err();
        assert!(error.to_string().contains("Timestamp out of range"), "{error}");
        assert!(evaluate(&expr, vec![None]).is_ok());
    }
}
