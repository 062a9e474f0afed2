//! Text views that hold no more bytes than their rows need.
//!
//! An array of views shares the buffers it was cut from, and a builder of views starts with a buffer of 8 kB, be it for one
//! word. Both cost dearly where many small arrays are kept: refused rows, and states of aggregates that keep a list of each
//! group's values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::Accumulator;

/// `array` with the views in it, also those in lists and structs, over buffers of their own.
pub(crate) fn compact(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        DataType::List(field) if has_views(field.data_type()) => Arc::new(compact_list(array.as_list())),
        DataType::Struct(fields) if fields.iter().any(|f| has_views(f.data_type())) => {
            Arc::new(compact_struct(array.as_struct()))
        }
        _ => Arc::clone(array),
    }
}

fn compact_list(list: &ListArray) -> ListArray {
    let (field, offsets, values, nulls) = list.clone().into_parts();
    let (start, end) = (offsets[0], offsets[offsets.len() - 1]);
    let own = values.slice(start as usize, (end - start) as usize);
    let offsets = OffsetBuffer::new(offsets.iter().map(|offset| offset - start).collect());
    ListArray::new(field, offsets, compact(&own), nulls)
}

fn compact_struct(array: &StructArray) -> StructArray {
    let (fields, columns, nulls) = array.clone().into_parts();
    if columns.is_empty() {
        return array.clone();
    }
    StructArray::new(fields, columns.iter().map(compact).collect(), nulls)
}

fn has_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field) => has_views(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        _ => false,
    }
}

/// `accumulator`, one of many for whose states one of `state_fields` is made, with what it gives compacted.
pub(crate) fn compacting(accumulator: Box<dyn Accumulator>, state_fields: &[FieldRef]) -> Box<dyn Accumulator> {
    let wanted = state_fields.iter().any(|field| has_views(field.data_type()));
    if wanted { Box::new(Compacting(accumulator)) } else { accumulator }
}

#[derive(Debug)]
struct Compacting(Box<dyn Accumulator>);

impl Accumulator for Compacting {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        self.0.evaluate().map(compact_scalar)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(self.0.state()?.into_iter().map(compact_scalar).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

fn compact_scalar(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::List(list) => ScalarValue::List(Arc::new(compact_list(&list))),
        ScalarValue::Struct(fields) => ScalarValue::Struct(Arc::new(compact_struct(&fields))),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn a_row_of_a_list_of_structs_of_text_keeps_its_own_bytes_only() {
        let text: StringViewArray = (0..1_000).map(|i| Some(format!("a text of some length, number {i}"))).collect();
        let item = Arc::new(Field::new("text", DataType::Utf8View, true));
        let rows = StructArray::from(vec![
            (Arc::clone(&item), Arc::new(text) as ArrayRef),
            (Arc::new(Field::new("n", DataType::Int64, true)), Arc::new(Int64Array::from_iter_values(0..1_000))),
        ]);
        let of_rows = Arc::new(Field::new_list_field(rows.data_type().clone(), true));
        let list = ListArray::new(of_rows, OffsetBuffer::from_lengths([990, 10]), Arc::new(rows), None);
        let one: ArrayRef = Arc::new(list.slice(1, 1));

        let compacted = compact(&one);
        assert_eq!(&compacted, &one);
        assert!(compacted.get_array_memory_size() < one.get_array_memory_size() / 2);
    }
}
