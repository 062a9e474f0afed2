//! The columns of a windowed aggregation's state, compiled once per view.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{prep_null_mask_filter, take_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{GroupsAccumulatorAdapter, PhysicalExpr};

use super::head::Head;
use super::views::compacting;
use crate::operators::graph::{AggregateCall, AggregateSpec};

/// Name of the implicit row count that every window keeps per key.
pub const EVENT_COUNT: &str = "_event_count";

/// What a windowed aggregation evaluates per row and keeps per key.
///
/// A chunk's columns are the keys, then each aggregate's state fields, then [`EVENT_COUNT`]. A result's columns are the
/// keys, then one column per aggregate, then [`EVENT_COUNT`].
#[derive(Debug)]
pub struct Layout {
    keys_len: usize,
    key_schema: SchemaRef,
    aggregates: Vec<AggregateCall>,
    /// What is evaluated per row: keys, then for each aggregate its arguments (its own ORDER BY expressions appended)
    /// and its filter.
    inputs: Vec<Arc<dyn PhysicalExpr>>,
    input_schema: SchemaRef,
    /// Where each aggregate's arguments, and its filter, are among the inputs.
    arguments: Vec<(Range<usize>, Option<usize>)>,
    /// Where each aggregate's state fields are in a chunk.
    state_columns: Vec<Range<usize>>,
    chunk_schema: SchemaRef,
    result_fields: Fields,
}

impl Layout {
    /// Compiles the layout of `spec`, whose input rows have `input` as schema.
    ///
    /// # Errors
    /// When a key's type or an aggregate's state cannot be told from `input`.
    pub fn try_new(spec: &AggregateSpec, input: &Schema) -> Result<Self> {
        let mut fields: Vec<FieldRef> = Vec::new();
        for (expr, name) in &spec.keys {
            fields.push(Arc::new(Field::new(name, expr.data_type(input)?, true)));
        }
        let key_schema = Arc::new(Schema::new(fields.clone()));
        let mut inputs: Vec<_> = spec.keys.iter().map(|(expr, _)| Arc::clone(expr)).collect();
        let mut result_fields = fields.clone();
        let mut state_columns = Vec::with_capacity(spec.aggregates.len());
        let mut arguments = Vec::with_capacity(spec.aggregates.len());
        for (i, call) in spec.aggregates.iter().enumerate() {
            let first = fields.len();
            for (j, field) in call.function.state_fields()?.iter().enumerate() {
                fields.push(Arc::new(Field::new(format!("s{i}_{j}"), field.data_type().clone(), true)));
            }
            state_columns.push(first..fields.len());
            let first = inputs.len();
            inputs.extend(call.function.expressions());
            inputs.extend(call.function.order_bys().iter().map(|sort| Arc::clone(&sort.expr)));
            let range = first..inputs.len();
            arguments.push((range, call.filter.as_ref().map(|_| inputs.len())));
            inputs.extend(call.filter.clone());
            result_fields.push(call.function.field());
        }
        let count = Arc::new(Field::new(EVENT_COUNT, DataType::Int64, false));
        fields.push(Arc::clone(&count));
        result_fields.push(count);
        let input_fields =
            inputs.iter().enumerate().map(|(i, expr)| Ok(Field::new(format!("i{i}"), expr.data_type(input)?, true)));
        let input_schema = Arc::new(Schema::new(input_fields.collect::<Result<Vec<_>>>()?));
        Ok(Self {
            keys_len: spec.keys.len(),
            key_schema,
            inputs,
            input_schema,
            aggregates: spec.aggregates.clone(),
            arguments,
            state_columns,
            chunk_schema: Arc::new(Schema::new(fields)),
            result_fields: result_fields.into(),
        })
    }

    /// How many key columns there are.
    pub fn keys_len(&self) -> usize {
        self.keys_len
    }

    /// Schema of the key columns.
    pub fn key_schema(&self) -> &SchemaRef {
        &self.key_schema
    }

    /// Schema of a chunk.
    pub fn chunk_schema(&self) -> &SchemaRef {
        &self.chunk_schema
    }

    /// Fields of the states of all aggregates, as a chunk has them.
    pub(crate) fn state_fields(&self) -> &[FieldRef] {
        let chunk = self.chunk_schema.fields();
        &chunk[self.keys_len..chunk.len() - 1]
    }

    /// Keys, results and [`EVENT_COUNT`], as fields.
    pub fn result_fields(&self) -> &Fields {
        &self.result_fields
    }

    /// Where the states of aggregate `i` are in a chunk.
    pub(crate) fn state_columns(&self, i: usize) -> Range<usize> {
        self.state_columns[i].clone()
    }

    /// A head with no rows.
    ///
    /// # Errors
    /// When DataFusion cannot make an accumulator or a hash table for the types.
    pub fn new_head(&self) -> Result<Head> {
        Head::try_new(&self.key_schema, self.new_accumulators()?)
    }

    /// One accumulator per aggregate, without groups.
    ///
    /// # Errors
    /// When DataFusion cannot make one for the types.
    pub(crate) fn new_accumulators(&self) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        self.aggregates.iter().map(|call| new_accumulator(&call.function)).collect()
    }

    /// Where the arguments of aggregate `i`, and its filter, are among the inputs.
    pub(crate) fn argument_columns(&self, i: usize) -> (Range<usize>, Option<usize>) {
        self.arguments[i].clone()
    }

    /// Columns of what [`Layout::inputs`] gives: keys, then arguments and filters of each aggregate.
    pub fn input_schema(&self) -> &SchemaRef {
        &self.input_schema
    }

    /// Evaluates keys, arguments and filters over `rows`, row for row.
    ///
    /// # Errors
    /// When an expression fails, for example on a division by zero.
    pub fn inputs(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let n = rows.num_rows();
        let columns = self.inputs.iter().map(|expr| expr.evaluate(rows)?.into_array(n)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(n));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.input_schema), columns, &options)?)
    }
}

/// The rows of `batch` at ascending `indices`: a slice where they are one run.
///
/// # Errors
/// When a column would overflow its offsets.
pub fn rows_at(batch: &RecordBatch, indices: &[u32]) -> Result<RecordBatch> {
    if let Some((start, len)) = contiguous(indices) {
        return Ok(batch.slice(start, len));
    }
    if batch.num_columns() == 0 {
        let options = RecordBatchOptions::new().with_row_count(Some(indices.len()));
        return Ok(RecordBatch::try_new_with_options(batch.schema(), Vec::new(), &options)?);
    }
    Ok(take_record_batch(batch, &UInt32Array::from(indices.to_vec()))?)
}

/// The run `start..start + len` that ascending `indices` are, if they are one.
fn contiguous(indices: &[u32]) -> Option<(usize, usize)> {
    let (first, last) = (*indices.first()?, *indices.last()?);
    let run = last.checked_sub(first)? as usize + 1 == indices.len() && indices.is_sorted();
    run.then_some((first as usize, indices.len()))
}

/// A filter column as a mask. NULL means no.
pub(crate) fn as_mask(array: &dyn Array) -> BooleanArray {
    let mask = array.as_boolean();
    if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() }
}

/// Casts columns whose type differs from their field's in the names or nullability of nested fields.
///
/// # Errors
/// When a type differs in more than that.
pub(crate) fn conform<'a>(
    columns: Vec<ArrayRef>,
    fields: impl IntoIterator<Item = &'a FieldRef>,
) -> Result<Vec<ArrayRef>> {
    let conformed = columns.into_iter().zip(fields).map(|(column, field)| {
        let fits = column.data_type() == field.data_type();
        if fits { Ok(column) } else { Ok(arrow::compute::cast(&column, field.data_type())?) }
    });
    conformed.collect()
}

fn new_accumulator(function: &Arc<AggregateFunctionExpr>) -> Result<Box<dyn GroupsAccumulator>> {
    if function.groups_accumulator_supported() {
        return function.create_groups_accumulator();
    }
    let function = Arc::clone(function);
    let state_fields = function.state_fields()?;
    Ok(Box::new(GroupsAccumulatorAdapter::new(move || Ok(compacting(function.create_accumulator()?, &state_fields)))))
}
