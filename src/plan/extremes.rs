//! `min` and `max` over floats, structs and lists, whose result depends on the values alone (T5). Other types stay with
//! DataFusion's functions.
//!
//! Floats are in the total order of SQL: −∞ < … < −0.0 < 0.0 < … < ∞ < NaN. DataFusion's grouped functions start from the
//! largest finite number, so that the minimum of ∞ alone is a number nobody sent, and let whichever of NaN and a number
//! comes later win, so that the order of rows shows.
//!
//! Structs and lists are compared field by field, or element by element, NULL after every value. DataFusion takes a pair
//! with a NULL in it for unordered, and then again the order of rows shows.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

static MIN: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| udaf(End::Min));
static MAX: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| udaf(End::Max));

/// The function `name` for arguments of `data_type`, where it is ours.
pub(super) fn ordered(name: &str, data_type: &DataType) -> Option<Arc<AggregateUDF>> {
    let ours = is_float(data_type) || data_type.is_nested();
    match name {
        "min" if ours => Some(Arc::clone(&MIN)),
        "max" if ours => Some(Arc::clone(&MAX)),
        _ => None,
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Which end of the order is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Min,
    Max,
}

fn udaf(end: End) -> Arc<AggregateUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(AggregateUDF::from(Extreme { end, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    end: End,
    signature: Signature,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        match self.end {
            End::Min => "min",
            End::Max => "max",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok(types[0].clone())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Float32 => Ok(Box::new(OneGroup(Extremes::<Float32Type>::of_groups(self.end, 1)))),
            DataType::Float64 => Ok(Box::new(OneGroup(Extremes::<Float64Type>::of_groups(self.end, 1)))),
            nested => Ok(Box::new(NestedExtreme::try_new(self.end, nested)?)),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        is_float(args.return_field.data_type())
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Float32 => Ok(Box::new(Extremes::<Float32Type>::of_groups(self.end, 0))),
            DataType::Float64 => Ok(Box::new(Extremes::<Float64Type>::of_groups(self.end, 0))),
            other => internal_err!("{} of floats over {other}", self.name()),
        }
    }
}

/// The extreme value of each group; `None` where there was none.
#[derive(Debug)]
struct Extremes<T: ArrowPrimitiveType> {
    end: End,
    found: Vec<Option<T::Native>>,
}

impl<T: ArrowPrimitiveType> Extremes<T> {
    fn of_groups(end: End, groups: usize) -> Self {
        Self { end, found: vec![None; groups] }
    }

    fn add(&mut self, group: usize, value: T::Native) {
        // The total order of IEEE 754 has a NaN at each end; ∞ − ∞ is the one at ours.
        let value = if is_nan(value) { T::Native::MAX_TOTAL_ORDER } else { value };
        let found = &mut self.found[group];
        let wins = found.is_none_or(|found| match self.end {
            End::Min => value.is_lt(found),
            End::Max => value.is_gt(found),
        });
        if wins {
            *found = Some(value);
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        let found = emit_to.take_needed(&mut self.found);
        Arc::new(found.into_iter().collect::<PrimitiveArray<T>>())
    }
}

/// NaN alone is unequal to itself where numbers are compared as numbers.
fn is_nan<N: ArrowNativeTypeOp>(value: N) -> bool {
    value.partial_cmp(&value).is_none()
}

impl<T: ArrowPrimitiveType + Debug + Send> GroupsAccumulator for Extremes<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> DfResult<()> {
        self.found.resize(total, None);
        let values = values[0].as_primitive::<T>();
        for (row, group) in groups.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if counts && values.is_valid(row) {
                self.add(*group, values.value(row));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        Ok(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> DfResult<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> DfResult<()> {
        self.update_batch(values, groups, None, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> DfResult<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Self::of_groups(self.end, 0);
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.found.capacity() * size_of::<Option<T::Native>>()
    }
}

/// The same where there is one group.
#[derive(Debug)]
struct OneGroup<T: ArrowPrimitiveType>(Extremes<T>);

impl<T: ArrowPrimitiveType + Debug + Send> Accumulator for OneGroup<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        values[0].as_primitive::<T>().iter().flatten().for_each(|value| self.0.add(0, value));
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        ScalarValue::try_from_array(&PrimitiveArray::<T>::from_iter([self.0.found[0]]), 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.update_batch(states)
    }
}

/// One group of structs or lists, compared as rows of bytes.
#[derive(Debug)]
struct NestedExtreme {
    end: End,
    data_type: DataType,
    converter: RowConverter,
    found: Option<OwnedRow>,
}

impl NestedExtreme {
    fn try_new(end: End, data_type: &DataType) -> DfResult<Self> {
        let nulls_last = SortOptions { descending: false, nulls_first: false };
        let field = SortField::new_with_options(data_type.clone(), nulls_last);
        Ok(Self { end, data_type: data_type.clone(), converter: RowConverter::new(vec![field])?, found: None })
    }
}

impl Accumulator for NestedExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let rows = self.converter.convert_columns(&values[..1])?;
        let present = (0..rows.num_rows()).filter(|row| values[0].is_valid(*row)).map(|row| rows.row(row));
        let extreme = match self.end {
            End::Min => present.min(),
            End::Max => present.max(),
        };
        let Some(extreme) = extreme else { return Ok(()) };
        let wins = self.found.as_ref().is_none_or(|found| match self.end {
            End::Min => extreme < found.row(),
            End::Max => extreme > found.row(),
        });
        if wins {
            self.found = Some(extreme.owned());
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let Some(found) = &self.found else { return ScalarValue::try_from(&self.data_type) };
        ScalarValue::try_from_array(&self.converter.convert_rows([found.row()])?[0], 0)
    }

    fn size(&self) -> usize {
        let found = self.found.as_ref().map_or(0, |found| found.as_ref().len());
        size_of_val(self) + self.converter.size() + found
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.update_batch(states)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StructArray};
    use arrow::datatypes::{Field, Int64Type};

    use super::*;

    const NUMBERS: [f64; 6] = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, f64::INFINITY, f64::NAN];

    fn extreme(end: End, values: &[f64]) -> f64 {
        let mut groups = Extremes::<Float64Type>::of_groups(end, 0);
        for value in values {
            let one: ArrayRef = Arc::new(Float64Array::from(vec![*value]));
            let state = groups.convert_to_state(&[one], None).unwrap();
            groups.merge_batch(&state, &[0], 1).unwrap();
        }
        let grouped = groups.evaluate(EmitTo::All).unwrap().as_primitive::<Float64Type>().value(0);
        let mut one = OneGroup(Extremes::<Float64Type>::of_groups(end, 1));
        one.update_batch(&[Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
        let ScalarValue::Float64(Some(alone)) = one.evaluate().unwrap() else { panic!("no float") };
        assert_eq!(grouped.to_bits(), alone.to_bits(), "{values:?}");
        grouped
    }

    #[test]
    fn the_extremes_of_any_pair_are_its_ends_in_either_order() {
        for (i, low) in NUMBERS.into_iter().enumerate() {
            for high in NUMBERS.into_iter().skip(i) {
                for pair in [[low, high], [high, low]] {
                    assert_eq!(extreme(End::Min, &pair).total_cmp(&low).is_eq(), !low.is_nan(), "{pair:?}");
                    assert_eq!(extreme(End::Min, &pair).is_nan(), low.is_nan(), "{pair:?}");
                    assert_eq!(extreme(End::Max, &pair).is_nan(), high.is_nan(), "{pair:?}");
                    assert!(high.is_nan() || extreme(End::Max, &pair).total_cmp(&high).is_eq(), "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn a_negative_nan_is_a_nan() {
        assert!(extreme(End::Max, &[-f64::NAN, 1.0]).is_nan());
        assert_eq!(extreme(End::Min, &[-f64::NAN, 1.0]), 1.0);
    }

    #[test]
    fn null_and_filtered_rows_do_not_count() {
        let mut groups = Extremes::<Float64Type>::of_groups(End::Max, 0);
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), Some(9.0), None, Some(8.0)]));
        let filter = BooleanArray::from(vec![Some(true), Some(false), Some(true), None]);
        groups.update_batch(&[values], &[0, 0, 1, 0], Some(&filter), 2).unwrap();
        let result = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(result.as_primitive::<Float64Type>(), &Float64Array::from(vec![Some(1.0), None]));
    }

    #[test]
    fn the_extremes_of_structs_with_nulls_are_the_same_in_every_order() {
        let column = |name: &str, values: [Option<i64>; 3]| {
            let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
            (Arc::new(Field::new(name, DataType::Int64, true)), values)
        };
        let rows =
            StructArray::from(vec![column("p", [Some(1), Some(2), None]), column("q", [Some(26), None, Some(1)])]);
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for (end, p) in [(End::Min, Some(1)), (End::Max, None)] {
                let mut extreme = NestedExtreme::try_new(end, rows.data_type()).unwrap();
                order.into_iter().for_each(|row| extreme.update_batch(&[Arc::new(rows.slice(row, 1))]).unwrap());
                let found = extreme.evaluate().unwrap().to_array().unwrap();
                let found = found.as_struct().column(0).as_primitive::<Int64Type>().iter().next().unwrap();
                assert_eq!(found, p, "{end:?} of {order:?}");
            }
        }
    }
}
