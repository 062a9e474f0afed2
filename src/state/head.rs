//! The mutable part of a slice: a hash table of keys and one accumulator per aggregate.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::layout::{Layout, as_mask, conform};

/// Takes rows and partial states by key. Reading it, by [`Head::seal`] or [`Head::evaluate`], empties it.
pub struct Head {
    /// `None` when the view groups by windows alone: one group, number 0.
    groups: Option<Box<dyn GroupValues>>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// Rows per group.
    counts: Vec<i64>,
    /// Group of each row of the batch at hand; kept to save the allocation.
    scratch: Vec<usize>,
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").field("groups", &self.counts.len()).finish_non_exhaustive()
    }
}

impl Head {
    pub(super) fn try_new(keys: &SchemaRef, accumulators: Vec<Box<dyn GroupsAccumulator>>) -> Result<Self> {
        let groups = match keys.fields().is_empty() {
            true => None,
            false => Some(new_group_values(Arc::clone(keys), &GroupOrdering::None)?),
        };
        Ok(Self { groups, accumulators, counts: Vec::new(), scratch: Vec::new() })
    }

    /// How many keys it has met.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether it has met no row.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Bytes held, accumulators and hash table included.
    pub fn memory_bytes(&self) -> usize {
        self.groups.as_ref().map_or(0, |g| g.size())
            + self.accumulators.iter().map(|a| a.size()).sum::<usize>()
            + self.counts.capacity() * size_of::<i64>()
            + self.scratch.capacity() * size_of::<usize>()
    }

    /// Adds rows, evaluated by [`Layout::inputs`].
    ///
    /// # Errors
    /// When an aggregate refuses its input.
    pub fn update(&mut self, layout: &Layout, inputs: &RecordBatch) -> Result<()> {
        if inputs.num_rows() == 0 {
            return Ok(());
        }
        self.intern(&inputs.columns()[..layout.keys_len()], inputs.num_rows())?;
        for group in &self.scratch {
            self.counts[*group] += 1;
        }
        let total = self.counts.len();
        for (i, accumulator) in self.accumulators.iter_mut().enumerate() {
            let (arguments, filter) = layout.argument_columns(i);
            let mask = filter.map(|column| as_mask(inputs.column(column)));
            accumulator.update_batch(&inputs.columns()[arguments], &self.scratch, mask.as_ref(), total)?;
        }
        Ok(())
    }

    /// Adds partial states: the rows of a chunk.
    ///
    /// # Errors
    /// When an aggregate refuses the states.
    pub fn merge(&mut self, layout: &Layout, chunk: &RecordBatch) -> Result<()> {
        if chunk.num_rows() == 0 {
            return Ok(());
        }
        self.intern(&chunk.columns()[..layout.keys_len()], chunk.num_rows())?;
        let counts = chunk.column(chunk.num_columns() - 1).as_primitive::<Int64Type>();
        for (group, rows) in self.scratch.iter().zip(counts.values()) {
            self.counts[*group] += rows;
        }
        let total = self.counts.len();
        for (i, accumulator) in self.accumulators.iter_mut().enumerate() {
            let states = &chunk.columns()[layout.state_columns(i)];
            accumulator.merge_batch(states, &self.scratch, total)?;
        }
        Ok(())
    }

    /// Adds keys with no rows. The head is good for [`Head::take_keys`] alone then: its accumulators know nothing of them.
    ///
    /// # Errors
    /// When the keys cannot be hashed.
    pub fn meet(&mut self, keys: &[ArrayRef], rows: usize) -> Result<()> {
        self.intern(keys, rows)
    }

    /// The row that each of `keys`, one column per key, will have in what the head evaluates to.
    ///
    /// # Errors
    /// When the head has met no row of one of them.
    pub fn places_of(&mut self, keys: &[ArrayRef]) -> Result<UInt32Array> {
        let (met, rows) = (self.len(), keys.first().map_or(0, |column| column.len()));
        self.intern(keys, rows)?;
        if self.len() != met {
            return internal_err!("a key that no chunk holds");
        }
        Ok(UInt32Array::from_iter_values(self.scratch.iter().map(|group| *group as u32)))
    }

    /// Keys, partial states and counts: the rows of a chunk.
    ///
    /// # Errors
    /// When an aggregate cannot give its state.
    pub fn seal(&mut self, layout: &Layout) -> Result<RecordBatch> {
        if self.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(layout.chunk_schema())));
        }
        let mut columns = self.take_keys()?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        columns.push(Arc::new(Int64Array::from(std::mem::take(&mut self.counts))));
        batch_of(columns, Arc::clone(layout.chunk_schema()))
    }

    /// Keys, results and counts, one row per key.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn evaluate(&mut self, layout: &Layout) -> Result<RecordBatch> {
        let schema = Arc::new(Schema::new(layout.result_fields().clone()));
        // Not every aggregate can tell what no group at all comes to.
        if self.is_empty() {
            return Ok(RecordBatch::new_empty(schema));
        }
        let mut columns = self.take_keys()?;
        for accumulator in &mut self.accumulators {
            columns.push(accumulator.evaluate(EmitTo::All)?);
        }
        columns.push(Arc::new(Int64Array::from(std::mem::take(&mut self.counts))));
        batch_of(columns, schema)
    }

    /// The keys alone, distinct, in the order they were met.
    ///
    /// # Errors
    /// When the keys cannot be emitted.
    pub fn take_keys(&mut self) -> Result<Vec<ArrayRef>> {
        self.groups.as_mut().map_or(Ok(Vec::new()), |groups| groups.emit(EmitTo::All))
    }

    /// Finds or makes the group of each row; leaves them in `scratch`.
    fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<()> {
        let total = match &mut self.groups {
            Some(groups) => {
                groups.intern(keys, &mut self.scratch)?;
                groups.len()
            }
            None => {
                self.scratch.clear();
                self.scratch.resize(rows, 0);
                self.counts.len().max(usize::from(rows > 0))
            }
        };
        self.counts.resize(total, 0);
        Ok(())
    }
}

/// What a head that took `chunk` alone would evaluate to. The keys of a chunk differ from each other, so that nothing is to
/// be looked up: row `i` is group `i`.
///
/// # Errors
/// When an aggregate refuses the states.
pub(super) fn evaluate_alone(layout: &Layout, chunk: &RecordBatch) -> Result<RecordBatch> {
    let rows = chunk.num_rows();
    let schema = Arc::new(Schema::new(layout.result_fields().clone()));
    if rows == 0 {
        return Ok(RecordBatch::new_empty(schema));
    }
    let groups: Vec<usize> = (0..rows).collect();
    let mut columns = chunk.columns()[..layout.keys_len()].to_vec();
    for (i, mut accumulator) in layout.new_accumulators()?.into_iter().enumerate() {
        accumulator.merge_batch(&chunk.columns()[layout.state_columns(i)], &groups, rows)?;
        columns.push(accumulator.evaluate(EmitTo::All)?);
    }
    columns.push(Arc::clone(chunk.column(chunk.num_columns() - 1)));
    batch_of(columns, schema)
}

fn batch_of(columns: Vec<ArrayRef>, schema: SchemaRef) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(Arc::clone(&schema), conform(columns, schema.fields())?)?)
}
