//! The immutable part of a slice: partial states of some keys.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

use super::head::Head;
use super::layout::Layout;
use super::memory::Memory;
use super::spill::{SpillBuilder, SpillSpace, Spilled};

/// A sealed head. Cheap to clone: columns are shared, and so is the file of a spilled one.
#[derive(Debug, Clone)]
pub struct Chunk {
    rows: Rows,
    keys_len: usize,
    index: OnceLock<KeyIndex>,
}

#[derive(Debug, Clone)]
enum Rows {
    Held(RecordBatch),
    Spilled(Arc<Spilled>),
}

/// Rows by the hash of their key, ascending.
#[derive(Debug, Clone)]
pub struct KeyIndex(Vec<(u64, u32)>);

impl Chunk {
    /// Wraps the rows that [`Head::seal`] gave.
    pub fn new(layout: &Layout, rows: RecordBatch) -> Self {
        Self { rows: Rows::Held(rows), keys_len: layout.keys_len(), index: OnceLock::new() }
    }

    /// How many keys it has.
    pub fn num_rows(&self) -> usize {
        match &self.rows {
            Rows::Held(rows) => rows.num_rows(),
            Rows::Spilled(spilled) => spilled.num_rows(),
        }
    }

    /// Its rows, if it is in memory; see [`Layout::chunk_schema`].
    pub fn held(&self) -> Option<&RecordBatch> {
        match &self.rows {
            Rows::Held(rows) => Some(rows),
            Rows::Spilled(_) => None,
        }
    }

    /// Its rows, some at a time.
    pub fn batches(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + '_> {
        match &self.rows {
            Rows::Held(rows) => Box::new(std::iter::once(Ok(rows.clone()))),
            Rows::Spilled(spilled) => Box::new(spilled.blocks()),
        }
    }

    /// Bytes that its rows take in memory: nothing once it is spilled.
    pub fn held_bytes(&self) -> usize {
        self.held().map_or(0, RecordBatch::get_array_memory_size)
    }

    /// Bytes held, the index included once it exists.
    pub fn memory_bytes(&self) -> usize {
        self.held_bytes() + self.index.get().map_or(0, |index| index.0.capacity() * 16)
    }

    /// Bytes that its rows take or would take in memory.
    fn unspilled_bytes(&self) -> usize {
        match &self.rows {
            Rows::Held(rows) => rows.get_array_memory_size(),
            Rows::Spilled(spilled) => spilled.unspilled_bytes(),
        }
    }

    /// Puts its rows into a file.
    ///
    /// # Errors
    /// When they cannot be hashed or written.
    pub fn spill(&mut self, space: &dyn SpillSpace) -> Result<()> {
        if let Rows::Held(rows) = &self.rows {
            let mut file = SpillBuilder::try_new(space, rows.schema(), self.keys_len)?;
            file.push(rows)?;
            self.rows = Rows::Spilled(Arc::new(file.finish()));
            self.index = OnceLock::new();
        }
        Ok(())
    }

    /// The rows whose key is among `keys`, and perhaps a few more whose hash is the same.
    ///
    /// # Errors
    /// When the keys cannot be hashed, or the rows not be read.
    pub fn rows_of(&self, keys: &KeyIndex) -> Result<RecordBatch> {
        match &self.rows {
            Rows::Spilled(spilled) => spilled.rows_of(&keys.hashes()),
            Rows::Held(rows) if self.keys_len == 0 => Ok(rows.clone()),
            Rows::Held(rows) => {
                let found = UInt32Array::from(self.index(rows)?.matches(keys));
                Ok(take_record_batch(rows, &found)?)
            }
        }
    }

    /// The rows whose key has a hash in `range`, some at a time.
    fn rows_in(&self, range: RangeInclusive<u64>) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + '_>> {
        Ok(match &self.rows {
            Rows::Spilled(spilled) => Box::new(spilled.rows_in(range)),
            Rows::Held(rows) => {
                let found = UInt32Array::from(self.index(rows)?.within(range));
                Box::new(std::iter::once(Ok(take_record_batch(rows, &found)?)))
            }
        })
    }

    fn index(&self, rows: &RecordBatch) -> Result<&KeyIndex> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let built = KeyIndex::try_new(&rows.columns()[..self.keys_len], rows.num_rows())?;
        Ok(self.index.get_or_init(|| built))
    }
}

impl KeyIndex {
    /// Hashes `rows` rows of `keys`.
    ///
    /// # Errors
    /// When a key's type cannot be hashed.
    pub fn try_new(keys: &[ArrayRef], rows: usize) -> Result<Self> {
        let mut index: Vec<(u64, u32)> = hashes_of(keys, rows)?.into_iter().zip(0_u32..).collect();
        index.sort_unstable();
        Ok(Self(index))
    }

    /// Each hash once, ascending.
    fn hashes(&self) -> Vec<u64> {
        let mut hashes: Vec<u64> = self.0.iter().map(|(hash, _)| *hash).collect();
        hashes.dedup();
        hashes
    }

    /// Rows of `self` whose hash is in `range`.
    fn within(&self, range: RangeInclusive<u64>) -> Vec<u32> {
        let from = self.0.partition_point(|(hash, _)| hash < range.start());
        self.0[from..].iter().take_while(|(hash, _)| hash <= range.end()).map(|(_, row)| *row).collect()
    }

    /// Rows of `self` whose hash is among those of `wanted`.
    fn matches(&self, wanted: &Self) -> Vec<u32> {
        let mut found = Vec::with_capacity(wanted.0.len());
        let mut rest = self.0.as_slice();
        let mut last = None;
        for (hash, _) in &wanted.0 {
            if last.replace(*hash) == Some(*hash) {
                continue;
            }
            rest = &rest[rest.partition_point(|(h, _)| h < hash)..];
            found.extend(rest.iter().take_while(|(h, _)| h == hash).map(|(_, row)| *row));
        }
        found
    }
}

/// The hash of each of `rows` rows of `keys`: 0 where there are no keys.
pub(super) fn hashes_of(keys: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0_u64; rows];
    if !keys.is_empty() {
        create_hashes(keys, &RandomState::with_seed(0x4869_6768), &mut hashes)?;
    }
    Ok(hashes)
}

/// Merges `chunks` and evaluates them: one row per key, see [`Layout::result_fields`]. In one batch if the chunks are small
/// enough for `memory`.
///
/// # Errors
/// When an aggregate refuses the states; when a single key's take more memory than there is.
pub fn evaluate(layout: &Layout, chunks: &[&Chunk], memory: &Memory) -> Result<Vec<RecordBatch>> {
    let mut given = Vec::new();
    match chunks {
        [] => {}
        // The usual window of one slice that one worker had.
        [only] if let Some(rows) = only.held() => given.push(super::head::evaluate_alone(layout, rows)?),
        chunks => merge(layout, chunks, memory, &mut |mut head| {
            given.push(head.evaluate(layout)?);
            Ok(())
        })?,
    }
    Ok(given)
}

/// Merges `chunks` into one, which is spilled if they are too large for `memory`.
///
/// # Errors
/// As [`evaluate`].
pub fn compact(layout: &Layout, chunks: &[&Chunk], memory: &Memory) -> Result<Chunk> {
    if fits(chunks, memory) {
        // Small chunks may make large hash tables, which then come one range after the other.
        let mut sealed = Vec::new();
        merge(layout, chunks, memory, &mut |mut head| {
            sealed.push(head.seal(layout)?);
            Ok(())
        })?;
        return Ok(Chunk::new(layout, concat_batches(layout.chunk_schema(), &sealed)?));
    }
    let schema = Arc::clone(layout.chunk_schema());
    let mut file = SpillBuilder::try_new(memory.space(), schema, layout.keys_len())?;
    merge(layout, chunks, memory, &mut |mut head| file.push(&head.seal(layout)?))?;
    let rows = Rows::Spilled(Arc::new(file.finish()));
    Ok(Chunk { rows, keys_len: layout.keys_len(), index: OnceLock::new() })
}

/// Whether `chunks` may be merged at once.
fn fits(chunks: &[&Chunk], memory: &Memory) -> bool {
    chunks.iter().map(|chunk| chunk.unspilled_bytes()).sum::<usize>() <= memory.merge_bytes()
}

/// Merges `chunks`, all keys at once if that fits, else a range of their hashes after the other, ascending.
fn merge(layout: &Layout, chunks: &[&Chunk], memory: &Memory, each: &mut dyn FnMut(Head) -> Result<()>) -> Result<()> {
    let mut ranges = vec![0..=u64::MAX];
    while let Some(range) = ranges.pop() {
        let whole = range == (0..=u64::MAX);
        let merged = match whole && !fits(chunks, memory) && layout.keys_len() > 0 {
            true => None,
            false => merge_range(layout, chunks, memory, &range)?,
        };
        match merged {
            Some(head) if head.is_empty() => {}
            Some(head) => each(head)?,
            None => {
                let middle = range.start() + (range.end() - range.start()) / 2;
                ranges.push(middle + 1..=*range.end());
                ranges.push(*range.start()..=middle);
            }
        }
    }
    Ok(())
}

/// Merges the keys whose hash is in `range`; nothing if they take too much memory and can be divided.
fn merge_range(
    layout: &Layout,
    chunks: &[&Chunk],
    memory: &Memory,
    range: &RangeInclusive<u64>,
) -> Result<Option<Head>> {
    let mut head = layout.new_head()?;
    let limit = memory.limit_bytes().unwrap_or(usize::MAX);
    for chunk in chunks {
        let batches = match chunk.held() {
            Some(_) if *range == (0..=u64::MAX) => chunk.batches(),
            _ => chunk.rows_in(range.clone())?,
        };
        for rows in batches {
            head.merge(layout, &rows?)?;
            if limit == usize::MAX {
                continue;
            }
            let bytes = head.memory_bytes();
            if bytes > memory.merge_bytes().saturating_mul(2) && head.len() > 1 && range.start() < range.end() {
                return Ok(None);
            }
            if bytes > limit {
                return Err(memory.exhausted("the aggregates of one key", bytes));
            }
        }
    }
    Ok(Some(head))
}

/// Merges the rows of `chunks` whose key is among `keys`, and evaluates those keys alone, each once.
///
/// `keys` are batches of key columns (repeats are fine); every one of them must be known to some chunk.
///
/// # Errors
/// When an aggregate refuses the states.
pub fn evaluate_keys(
    layout: &Layout,
    keys: &[RecordBatch],
    chunks: &[&Chunk],
    memory: &Memory,
) -> Result<Vec<RecordBatch>> {
    if layout.keys_len() == 0 {
        return evaluate(layout, chunks, memory);
    }
    let mut distinct = layout.new_head()?;
    for batch in keys {
        distinct.meet(batch.columns(), batch.num_rows())?;
    }
    let wanted_rows = distinct.len();
    let wanted = distinct.take_keys()?;
    let index = KeyIndex::try_new(&wanted, wanted_rows)?;
    // An accumulator takes every group below the total for one that has a row in hand: groups made beforehand, for the
    // wanted keys, would be values where all rows are NULL. So groups are made as their rows come, and picked afterwards.
    // A hash met by chance brings other keys in; they are not picked.
    let mut head = layout.new_head()?;
    for chunk in chunks {
        head.merge(layout, &chunk.rows_of(&index)?)?;
    }
    let places = head.places_of(&wanted)?;
    Ok(vec![take_record_batch(&head.evaluate(layout)?, &places)?])
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::col;

    use super::*;
    use crate::operators::graph::{AggregateCall, AggregateInput, AggregateSpec};
    use crate::window::{Span, WindowKind, WindowSpec};

    const KEYS: i64 = 1_000;

    /// `count(DISTINCT v) … GROUP BY k`.
    fn layout() -> (Layout, Arc<Schema>) {
        let input = Arc::new(Schema::new(["k", "v"].map(|name| Field::new(name, DataType::Int64, true)).to_vec()));
        let distinct = AggregateExprBuilder::new(count_udaf(), vec![col("v", &input).unwrap()]);
        let distinct = distinct.schema(Arc::clone(&input)).alias("n").distinct().build().unwrap();
        let spec = AggregateSpec {
            window: WindowSpec::try_new(WindowKind::Tumble { size: Span::Micros(10) }, Span::Micros(0), None).unwrap(),
            event_time: 0,
            keys: vec![(col("k", &input).unwrap(), "k".into())],
            aggregates: vec![AggregateCall { function: Arc::new(distinct), filter: None }],
            input: AggregateInput::Rows,
        };
        (Layout::try_new(&spec, &input).unwrap(), input)
    }

    #[test]
    fn chunks_are_merged_whole_where_hash_tables_are_larger_than_memory() {
        let (layout, input) = layout();
        let chunk = |v: i64| {
            let columns: [ArrayRef; 2] =
                [Arc::new(Int64Array::from_iter_values(0..KEYS)), Arc::new(Int64Array::from(vec![v; KEYS as usize]))];
            let mut head = layout.new_head().unwrap();
            let rows = RecordBatch::try_new(Arc::clone(&input), columns.to_vec()).unwrap();
            head.update(&layout, &layout.inputs(&rows).unwrap()).unwrap();
            Chunk::new(&layout, head.seal(&layout).unwrap())
        };
        let chunks: Vec<Chunk> = (0..2).map(chunk).collect();
        let chunks: Vec<&Chunk> = chunks.iter().collect();
        // Room for what the chunks hold, and not for twice that.
        let bytes = chunks.iter().map(|chunk| chunk.unspilled_bytes()).sum::<usize>();
        let (memory, _files) = Memory::cramped(8 * bytes);
        assert!(fits(&chunks, &memory) && merge_range(&layout, &chunks, &memory, &(0..=u64::MAX)).unwrap().is_none());

        let merged = compact(&layout, &chunks, &memory).unwrap();
        assert_eq!(merged.num_rows(), KEYS as usize);
        let values = evaluate(&layout, &[&merged], &Memory::unlimited()).unwrap();
        assert!(values[0].column(1).as_primitive::<Int64Type>().values().iter().all(|n| *n == 2));
    }
}
