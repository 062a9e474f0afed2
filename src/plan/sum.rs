//! `sum` over integers, computed wide: it never wraps.
//!
//! DataFusion adds 64-bit integers modulo 2⁶⁴. Here the running value has 128 bits, which no stream can fill. It is a
//! `DECIMAL(38, 0)`, as state (of DISTINCT a list of them) and as a result, which [`narrow`] above the aggregate brings back to the
//! type a query expects: there a value that does not fit fails like any expression over results. Decimals of many digits are
//! summed by DataFusion's function, over 256 bits, and narrowed too; floats and other decimals stay with it as they are.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, Expr, GroupsAccumulator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// What a running sum is kept as.
const WIDE: DataType = DataType::Decimal128(38, 0);

static WIDE_SUM: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
    let signature = Signature::uniform(1, vec![DataType::Int64, DataType::UInt64], Volatility::Immutable);
    Arc::new(AggregateUDF::from(WideSum { signature }))
});

/// The `sum` for BIGINT, of either kind.
pub(super) fn wide() -> Arc<AggregateUDF> {
    Arc::clone(&WIDE_SUM)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WideSum {
    signature: Signature,
}

impl AggregateUDFImpl for WideSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(WIDE)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(match args.is_distinct {
            true => Box::new(DistinctSumAccumulator::default()),
            false => Box::new(WideSumAccumulator::default()),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        Ok(vec![match args.is_distinct {
            true => {
                let value = Field::new_list_field(WIDE, true);
                Arc::new(Field::new_list(format!("{}[values]", args.name), value, true))
            }
            false => Arc::new(Field::new(format!("{}[sum]", args.name), WIDE, true)),
        }])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> DfResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(WideSumGroups::default()))
    }
}

/// Name of the function that [`narrow`] puts around a wide sum. Plans print without it.
pub(super) const NARROW: &str = "highwater_narrow";

/// The wide sum or mean `sum` as `to`. It fails where the value does not fit.
pub(super) fn narrow(sum: Expr, to: &DataType) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::from(Narrow { signature, to: to.clone() }).call(vec![sum])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Narrow {
    signature: Signature,
    to: DataType,
}

impl Narrow {
    fn narrowed(&self, sums: &ArrayRef) -> DfResult<ArrayRef> {
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let narrowed = cast_with_options(sums, &self.to, &options)?;
        if narrowed.null_count() == sums.null_count() {
            return Ok(narrowed);
        }
        let lost = (0..sums.len()).find(|row| narrowed.is_null(*row) && sums.is_valid(*row));
        let value = lost.map(|row| array_value_to_string(sums, row)).transpose()?.unwrap_or_default();
        let sql = match &self.to {
            DataType::Int64 => "BIGINT".to_owned(),
            DataType::UInt64 => "BIGINT UNSIGNED".to_owned(),
            DataType::Decimal128(digits, scale) => format!("DECIMAL({digits}, {scale})"),
            other => other.to_string(),
        };
        Err(ArrowError::ArithmeticOverflow(format!("a result is {value}, which does not fit {sql}")).into())
    }
}

impl ScalarUDFImpl for Narrow {
    fn name(&self) -> &str {
        NARROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Ok(ColumnarValue::Array(self.narrowed(&args.args[0].to_array(args.number_rows)?)?))
    }
}

fn wide_array(sums: impl Iterator<Item = Option<i128>>) -> DfResult<ArrayRef> {
    Ok(Arc::new(sums.collect::<Decimal128Array>().with_data_type(WIDE)))
}

/// One group.
#[derive(Debug, Default)]
struct WideSumAccumulator {
    sum: Option<i128>,
}

impl WideSumAccumulator {
    fn add<T: ArrowPrimitiveType>(&mut self, values: &PrimitiveArray<T>)
    where
        T::Native: Into<i128>,
    {
        for value in values.iter().flatten() {
            self.sum = Some(self.sum.unwrap_or(0).wrapping_add(value.into()));
        }
    }
}

impl Accumulator for WideSumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        match values[0].data_type() {
            DataType::Int64 => self.add(values[0].as_primitive::<Int64Type>()),
            DataType::UInt64 => self.add(values[0].as_primitive::<UInt64Type>()),
            other => return internal_err!("sum of integers over {other}"),
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::Decimal128(self.sum, 38, 0))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128(self.sum, 38, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.add(states[0].as_primitive::<Decimal128Type>());
        Ok(())
    }
}

/// One group, each value once.
#[derive(Debug, Default)]
struct DistinctSumAccumulator {
    values: HashSet<i128>,
}

impl DistinctSumAccumulator {
    fn add<T: ArrowPrimitiveType>(&mut self, values: &PrimitiveArray<T>)
    where
        T::Native: Into<i128>,
    {
        self.values.extend(values.iter().flatten().map(Into::into));
    }
}

impl Accumulator for DistinctSumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        match values[0].data_type() {
            DataType::Int64 => self.add(values[0].as_primitive::<Int64Type>()),
            DataType::UInt64 => self.add(values[0].as_primitive::<UInt64Type>()),
            other => return internal_err!("sum of integers over {other}"),
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::Decimal128(self.values.iter().copied().reduce(i128::wrapping_add), 38, 0))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i128>()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let mut values: Vec<i128> = self.values.iter().copied().collect();
        values.sort_unstable();
        let values: Vec<ScalarValue> = values.into_iter().map(|v| ScalarValue::Decimal128(Some(v), 38, 0)).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &WIDE))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add(values.as_primitive::<Decimal128Type>());
        }
        Ok(())
    }
}

/// Many groups.
#[derive(Debug, Default)]
struct WideSumGroups {
    sums: Vec<i128>,
    seen: Vec<bool>,
}

impl WideSumGroups {
    fn add<T: ArrowPrimitiveType>(
        &mut self,
        values: &PrimitiveArray<T>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) where
        T::Native: Into<i128>,
    {
        self.sums.resize(total, 0);
        self.seen.resize(total, false);
        let kept = filter.map(|filter| match filter.nulls() {
            Some(nulls) => NullBuffer::new(filter.values() & nulls.inner()),
            None => NullBuffer::new(filter.values().clone()),
        });
        let valid = NullBuffer::union(values.nulls(), kept.as_ref());
        match valid.filter(|valid| valid.null_count() > 0) {
            None => {
                for (group, value) in groups.iter().zip(values.values()) {
                    self.sums[*group] = self.sums[*group].wrapping_add((*value).into());
                    self.seen[*group] = true;
                }
            }
            Some(valid) => {
                for row in valid.valid_indices() {
                    let group = groups[row];
                    self.sums[group] = self.sums[group].wrapping_add(values.value(row).into());
                    self.seen[group] = true;
                }
            }
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> impl Iterator<Item = Option<i128>> + use<> {
        let sums = emit_to.take_needed(&mut self.sums);
        let seen = emit_to.take_needed(&mut self.seen);
        sums.into_iter().zip(seen).map(|(sum, seen)| seen.then_some(sum))
    }
}

impl GroupsAccumulator for WideSumGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> DfResult<()> {
        match values[0].data_type() {
            DataType::Int64 => self.add(values[0].as_primitive::<Int64Type>(), groups, filter, total),
            DataType::UInt64 => self.add(values[0].as_primitive::<UInt64Type>(), groups, filter, total),
            other => return internal_err!("sum of integers over {other}"),
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        wide_array(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> DfResult<Vec<ArrayRef>> {
        Ok(vec![wide_array(self.take(emit_to))?])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> DfResult<()> {
        self.add(values[0].as_primitive::<Decimal128Type>(), groups, None, total);
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> DfResult<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Self::default();
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use arrow::array::Int64Array;

    fn bigints(sums: &ArrayRef) -> DfResult<ArrayRef> {
        let signature = Signature::any(1, Volatility::Immutable);
        Narrow { signature, to: DataType::Int64 }.narrowed(sums)
    }

    #[test]
    fn a_sum_that_leaves_its_range_may_come_back_and_never_wraps() {
        let mut sums = WideSumGroups::default();
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(1), Some(i64::MAX), Some(1), None]));
        sums.update_batch(&[Arc::clone(&values)], &[0, 0, 1, 1, 2], None, 3).unwrap();
        let back: ArrayRef = Arc::new(Int64Array::from(vec![-5]));
        sums.update_batch(&[back], &[1], None, 3).unwrap();
        let result = sums.evaluate(EmitTo::All).unwrap();
        let error = bigints(&result).unwrap_err().to_string();
        assert!(error.contains("a result is 9223372036854775808, which does not fit BIGINT"), "{error}");
        let rest = bigints(&result.slice(1, 2)).unwrap();
        assert_eq!(rest.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(i64::MAX - 4), None]));
    }

    #[test]
    fn distinct_values_are_summed_once_and_never_wrap() {
        let new = DistinctSumAccumulator::default;
        let (mut one, mut two) = (new(), new());
        let of = |values: Vec<Option<i64>>| [Arc::new(Int64Array::from(values)) as ArrayRef];
        one.update_batch(&of(vec![Some(i64::MAX), Some(i64::MAX), None, Some(1)])).unwrap();
        two.update_batch(&of(vec![Some(i64::MAX), Some(-3)])).unwrap();
        let state = one.state().unwrap()[0].to_array().unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Decimal128(Some(1 << 63), 38, 0));
        two.merge_batch(&[state]).unwrap();
        assert_eq!(two.evaluate().unwrap(), ScalarValue::Decimal128(Some(i128::from(i64::MAX) - 2), 38, 0));
        assert_eq!(new().evaluate().unwrap(), ScalarValue::Decimal128(None, 38, 0));
    }

    #[test]
    fn states_merge_to_the_same_sum() {
        let (mut one, mut two) = (WideSumGroups::default(), WideSumGroups::default());
        let values: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, i64::MAX, 7]));
        let filter = BooleanArray::from(vec![Some(true), Some(true), None]);
        one.update_batch(&[values], &[0, 0, 1], Some(&filter), 2).unwrap();
        let state = one.state(EmitTo::All).unwrap();
        two.merge_batch(&state, &[0, 1], 2).unwrap();
        let minus: ArrayRef = Arc::new(Int64Array::from(vec![-i64::MAX]));
        two.merge_batch(&two.convert_to_state(&[minus], None).unwrap(), &[0], 2).unwrap();
        let result = bigints(&two.evaluate(EmitTo::All).unwrap()).unwrap();
        assert_eq!(result.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(i64::MAX), None]));
    }
}
