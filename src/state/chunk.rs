//! The immutable part of a slice: partial states of some keys.

use std::sync::OnceLock;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

use super::head::Head;
use super::layout::Layout;

/// A sealed head. Cheap to clone: columns are shared.
#[derive(Debug, Clone)]
pub struct Chunk {
    rows: RecordBatch,
    keys_len: usize,
    index: OnceLock<KeyIndex>,
}

/// Rows by the hash of their key, ascending.
#[derive(Debug, Clone)]
pub struct KeyIndex(Vec<(u64, u32)>);

impl Chunk {
    /// Wraps the rows that [`Head::seal`] gave.
    pub fn new(layout: &Layout, rows: RecordBatch) -> Self {
        Self { rows, keys_len: layout.keys_len(), index: OnceLock::new() }
    }

    /// The rows, see [`Layout::chunk_schema`].
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The key columns alone.
    pub fn keys(&self) -> &[ArrayRef] {
        &self.rows.columns()[..self.keys_len]
    }

    /// Bytes held, the index included once it exists.
    pub fn memory_bytes(&self) -> usize {
        self.rows.get_array_memory_size() + self.index.get().map_or(0, |index| index.0.capacity() * 16)
    }

    /// The rows whose key is among `keys`, and perhaps a few more whose hash is the same.
    ///
    /// # Errors
    /// When the keys cannot be hashed.
    pub fn rows_of(&self, keys: &KeyIndex) -> Result<RecordBatch> {
        if self.keys_len == 0 {
            return Ok(self.rows.clone());
        }
        let index = match self.index.get() {
            Some(index) => index,
            None => {
                let built = KeyIndex::try_new(self.keys(), self.rows.num_rows())?;
                self.index.get_or_init(|| built)
            }
        };
        let found = UInt32Array::from(index.matches(keys));
        Ok(take_record_batch(&self.rows, &found)?)
    }
}

impl KeyIndex {
    /// Hashes `rows` rows of `keys`.
    ///
    /// # Errors
    /// When a key's type cannot be hashed.
    pub fn try_new(keys: &[ArrayRef], rows: usize) -> Result<Self> {
        let mut hashes = vec![0_u64; rows];
        create_hashes(keys, &RandomState::with_seed(0x4869_6768), &mut hashes)?;
        let mut index: Vec<(u64, u32)> = hashes.into_iter().zip(0_u32..).collect();
        index.sort_unstable();
        Ok(Self(index))
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

/// Merges `chunks` and evaluates them: one row per key, see [`Layout::result_fields`].
///
/// # Errors
/// When an aggregate refuses the states.
pub fn evaluate<'a>(layout: &Layout, chunks: impl IntoIterator<Item = &'a Chunk>) -> Result<RecordBatch> {
    let mut chunks = chunks.into_iter().peekable();
    match (chunks.next(), chunks.peek()) {
        // The usual window of one slice that one worker had.
        (Some(only), None) => super::head::evaluate_alone(layout, only.rows()),
        (first, _) => merge(layout, first.into_iter().chain(chunks))?.evaluate(layout),
    }
}

/// Merges `chunks` into one.
///
/// # Errors
/// When an aggregate refuses the states.
pub fn compact<'a>(layout: &Layout, chunks: impl IntoIterator<Item = &'a Chunk>) -> Result<Chunk> {
    Ok(Chunk::new(layout, merge(layout, chunks)?.seal(layout)?))
}

fn merge<'a>(layout: &Layout, chunks: impl IntoIterator<Item = &'a Chunk>) -> Result<Head> {
    let mut head = layout.new_head()?;
    for chunk in chunks {
        head.merge(layout, chunk.rows())?;
    }
    Ok(head)
}

/// Merges the rows of `chunks` whose key is among `keys`, and evaluates those keys alone, each once.
///
/// `keys` are batches of key columns (repeats are fine); every one of them must be known to some chunk.
///
/// # Errors
/// When an aggregate refuses the states.
pub fn evaluate_keys<'a>(
    layout: &Layout,
    keys: &[RecordBatch],
    chunks: impl IntoIterator<Item = &'a Chunk>,
) -> Result<RecordBatch> {
    if layout.keys_len() == 0 {
        return evaluate(layout, chunks);
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
    Ok(take_record_batch(&head.evaluate(layout)?, &places)?)
}
