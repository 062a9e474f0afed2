//! The columns of a windowed aggregation's state, compiled once per view.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{SlicesIterator, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{GroupsAccumulatorAdapter, PhysicalExpr};

use super::head::Head;
use crate::operators::graph::{AggregateCall, AggregateSpec};

/// Name of the implicit row count that every window keeps per key.
pub const EVENT_COUNT: &str = "_event_count";

/// What a windowed aggregation evaluates per row and keeps per key.
///
/// A chunk's columns are the keys, then each aggregate's state fields, then [`EVENT_COUNT`]. A result's columns are the
/// keys, then one column per aggregate, then [`EVENT_COUNT`].
#[derive(Debug)]
pub struct Layout {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    key_schema: SchemaRef,
    aggregates: Vec<AggregateCall>,
    /// Arguments of each aggregate, its own ORDER BY expressions appended.
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    /// Where each aggregate's state fields are in a chunk.
    state_columns: Vec<Range<usize>>,
    chunk_schema: SchemaRef,
    result_fields: Fields,
}

/// Keys, arguments and filters of some rows, evaluated.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Group key columns.
    pub keys: Vec<ArrayRef>,
    /// Argument columns of each aggregate.
    pub arguments: Vec<Vec<ArrayRef>>,
    /// `FILTER (WHERE …)` of each aggregate.
    pub filters: Vec<Option<BooleanArray>>,
    /// How many rows.
    pub rows: usize,
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
        let mut result_fields = fields.clone();
        let mut state_columns = Vec::with_capacity(spec.aggregates.len());
        let mut arguments = Vec::with_capacity(spec.aggregates.len());
        for (i, call) in spec.aggregates.iter().enumerate() {
            let first = fields.len();
            for (j, field) in call.function.state_fields()?.iter().enumerate() {
                fields.push(Arc::new(Field::new(format!("s{i}_{j}"), field.data_type().clone(), true)));
            }
            state_columns.push(first..fields.len());
            let mut args = call.function.expressions();
            args.extend(call.function.order_bys().iter().map(|sort| Arc::clone(&sort.expr)));
            arguments.push(args);
            result_fields.push(call.function.field());
        }
        let count = Arc::new(Field::new(EVENT_COUNT, DataType::Int64, false));
        fields.push(Arc::clone(&count));
        result_fields.push(count);
        Ok(Self {
            keys: spec.keys.iter().map(|(expr, _)| Arc::clone(expr)).collect(),
            key_schema,
            aggregates: spec.aggregates.clone(),
            arguments,
            state_columns,
            chunk_schema: Arc::new(Schema::new(fields)),
            result_fields: result_fields.into(),
        })
    }

    /// How many key columns there are.
    pub fn keys_len(&self) -> usize {
        self.keys.len()
    }

    /// Schema of the key columns.
    pub fn key_schema(&self) -> &SchemaRef {
        &self.key_schema
    }

    /// Schema of a chunk.
    pub fn chunk_schema(&self) -> &SchemaRef {
        &self.chunk_schema
    }

    /// Keys, results and [`EVENT_COUNT`], as fields.
    pub fn result_fields(&self) -> &Fields {
        &self.result_fields
    }

    /// Where the states of aggregate `i` are in a chunk.
    pub(super) fn state_columns(&self, i: usize) -> Range<usize> {
        self.state_columns[i].clone()
    }

    /// A head with no rows.
    ///
    /// # Errors
    /// When DataFusion cannot make an accumulator or a hash table for the types.
    pub fn new_head(&self) -> Result<Head> {
        let accumulators = self.aggregates.iter().map(|call| new_accumulator(&call.function)).collect::<Result<_>>()?;
        Head::try_new(&self.key_schema, accumulators)
    }

    /// Evaluates keys, arguments and filters over `rows`.
    ///
    /// # Errors
    /// When an expression fails, for example on a division by zero.
    pub fn inputs(&self, rows: &RecordBatch) -> Result<Inputs> {
        let n = rows.num_rows();
        let column = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(rows)?.into_array(n);
        let columns = |exprs: &Vec<Arc<dyn PhysicalExpr>>| exprs.iter().map(column).collect::<Result<Vec<_>>>();
        let mask = |call: &AggregateCall| call.filter.as_ref().map(|expr| Ok(as_mask(&column(expr)?))).transpose();
        Ok(Inputs {
            keys: columns(&self.keys)?,
            arguments: self.arguments.iter().map(columns).collect::<Result<_>>()?,
            filters: self.aggregates.iter().map(mask).collect::<Result<_>>()?,
            rows: n,
        })
    }
}

impl Inputs {
    /// The rows at `indices`, in that order.
    ///
    /// # Errors
    /// When a column would overflow its offsets.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self> {
        if let Some((start, len)) = contiguous(indices.values()) {
            return Ok(self.slice(start, len));
        }
        let column = |array: &ArrayRef| Ok(take(array, indices, None)?);
        let columns = |arrays: &Vec<ArrayRef>| arrays.iter().map(column).collect::<Result<Vec<_>>>();
        let mask = |mask: &Option<BooleanArray>| {
            mask.as_ref().map(|mask| Ok(as_mask(&take(mask as &dyn Array, indices, None)?))).transpose()
        };
        Ok(Self {
            keys: columns(&self.keys)?,
            arguments: self.arguments.iter().map(columns).collect::<Result<_>>()?,
            filters: self.filters.iter().map(mask).collect::<Result<_>>()?,
            rows: indices.len(),
        })
    }

    fn slice(&self, start: usize, len: usize) -> Self {
        let columns = |arrays: &Vec<ArrayRef>| arrays.iter().map(|a| a.slice(start, len)).collect();
        Self {
            keys: columns(&self.keys),
            arguments: self.arguments.iter().map(columns).collect(),
            filters: self.filters.iter().map(|mask| mask.as_ref().map(|m| m.slice(start, len))).collect(),
            rows: len,
        }
    }
}

/// The run `start..start + len` that ascending `indices` are, if they are one.
pub fn contiguous(indices: &[u32]) -> Option<(usize, usize)> {
    let (first, last) = (*indices.first()?, *indices.last()?);
    let run = last.checked_sub(first)? as usize + 1 == indices.len() && indices.is_sorted();
    run.then_some((first as usize, indices.len()))
}

/// The rows a mask keeps, as ascending indices. NULL means no.
pub fn kept_indices(mask: &BooleanArray) -> Vec<u32> {
    let mask = as_mask(mask);
    let mut kept = Vec::with_capacity(mask.true_count());
    for (start, end) in SlicesIterator::new(&mask) {
        kept.extend(start as u32..end as u32);
    }
    kept
}

fn as_mask(array: &dyn Array) -> BooleanArray {
    let mask = array.as_boolean();
    if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() }
}

fn new_accumulator(function: &Arc<AggregateFunctionExpr>) -> Result<Box<dyn GroupsAccumulator>> {
    if function.groups_accumulator_supported() {
        return function.create_groups_accumulator();
    }
    let function = Arc::clone(function);
    Ok(Box::new(GroupsAccumulatorAdapter::new(move || function.create_accumulator())))
}
