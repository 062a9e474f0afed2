//! Chunks that memory has no room for: rows in the order of their keys' hashes, in a file that somebody else provides.
//!
//! ```text
//!  file   │ block │ block │ block │ …        each an Arrow IPC stream, LZ4
//!  hashes   0 … 7   7 … 19  20 … 31          of the rows' keys, ascending
//! ```
//!
//! So the rows of any range of hashes are read without the others. That is how a window whose state is larger than memory is
//! merged: range by range, the same range of every chunk ([`super::chunk::evaluate`]). It is also how a late row finds its keys.
//!
//! This module knows neither where the files are nor when something is to be spilled.

use std::io::Cursor;
use std::ops::RangeInclusive;

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use datafusion::common::{Result, internal_datafusion_err};

use super::chunk::hashes_of;

/// Bytes of memory that a block's rows are to take, more or less.
const BLOCK_BYTES: usize = 1 << 20;
/// Most rows in a block.
const BLOCK_ROWS_MAX: usize = 8192;

/// A place for files that nobody needs after the process has ended.
pub trait SpillSpace: std::fmt::Debug + Send + Sync {
    /// A new file, empty. It goes when it is dropped.
    ///
    /// # Errors
    /// When the place takes no files.
    fn create(&self) -> Result<Box<dyn SpillFile>>;
}

/// A file of a [`SpillSpace`].
pub trait SpillFile: std::fmt::Debug + Send + Sync {
    /// Adds bytes behind those there are.
    ///
    /// # Errors
    /// When the disk is full or fails.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// The `bytes` bytes from `at` on.
    ///
    /// # Errors
    /// When the disk fails.
    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>>;
}

/// Rows in a file. See the module's documentation.
#[derive(Debug)]
pub struct Spilled {
    file: Box<dyn SpillFile>,
    schema: SchemaRef,
    keys_len: usize,
    blocks: Vec<Block>,
    rows: usize,
    memory_bytes: usize,
}

#[derive(Debug)]
struct Block {
    hashes: RangeInclusive<u64>,
    at: u64,
    bytes: usize,
}

/// A file of rows in the making.
#[derive(Debug)]
pub struct SpillBuilder {
    spilled: Spilled,
    end: u64,
}

impl SpillBuilder {
    /// A file without rows, of chunks with columns `schema`, the first `keys_len` of which are keys.
    ///
    /// # Errors
    /// See [`SpillSpace::create`].
    pub fn try_new(space: &dyn SpillSpace, schema: SchemaRef, keys_len: usize) -> Result<Self> {
        let file = space.create()?;
        let spilled = Spilled { file, schema, keys_len, blocks: Vec::new(), rows: 0, memory_bytes: 0 };
        Ok(Self { spilled, end: 0 })
    }

    /// Adds rows, in any order among themselves. No hash of theirs is below one that was added before.
    ///
    /// # Errors
    /// When they cannot be hashed or written.
    pub fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        let hashes = hashes_of(&rows.columns()[..self.spilled.keys_len], rows.num_rows())?;
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        order.sort_unstable_by_key(|row| hashes[*row as usize]);
        let bytes = rows.get_array_memory_size();
        let per_row = bytes.checked_div(rows.num_rows()).unwrap_or(0).max(1);
        for part in order.chunks((BLOCK_BYTES / per_row).clamp(1, BLOCK_ROWS_MAX)) {
            let block = take_record_batch(rows, &UInt32Array::from(part.to_vec()))?;
            let encoded = encode(&block)?;
            self.spilled.file.append(&encoded)?;
            let ends = [part.first(), part.last()].map(|row| row.map_or(0, |row| hashes[*row as usize]));
            self.spilled.blocks.push(Block { hashes: ends[0]..=ends[1], at: self.end, bytes: encoded.len() });
            self.end += encoded.len() as u64;
        }
        self.spilled.rows += rows.num_rows();
        self.spilled.memory_bytes += bytes;
        Ok(())
    }

    /// The rows as they are from here on.
    pub fn finish(self) -> Spilled {
        self.spilled
    }
}

impl Spilled {
    /// How many rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Bytes of memory the rows would take.
    pub fn unspilled_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// All rows, a block at a time.
    pub fn blocks(&self) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
        self.blocks.iter().map(|block| self.block(block))
    }

    /// The rows whose hash is in `range`, some at a time.
    pub fn rows_in(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
        let touched = self.touched(range.clone());
        touched.map(move |block| {
            let rows = self.block(block)?;
            if range.contains(block.hashes.start()) && range.contains(block.hashes.end()) {
                return Ok(rows);
            }
            let hashes = hashes_of(&rows.columns()[..self.keys_len], rows.num_rows())?;
            let mask: BooleanArray = hashes.into_iter().map(|hash| Some(range.contains(&hash))).collect();
            Ok(filter_record_batch(&rows, &mask)?)
        })
    }

    /// The rows whose hash is among `hashes`, which ascend.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn rows_of(&self, hashes: &[u64]) -> Result<RecordBatch> {
        let mut found = Vec::new();
        for block in &self.blocks {
            let first = hashes.partition_point(|hash| hash < block.hashes.start());
            if hashes.get(first).is_none_or(|hash| hash > block.hashes.end()) {
                continue;
            }
            let rows = self.block(block)?;
            let own = hashes_of(&rows.columns()[..self.keys_len], rows.num_rows())?;
            let mask: BooleanArray = own.iter().map(|hash| Some(hashes[first..].binary_search(hash).is_ok())).collect();
            found.push(filter_record_batch(&rows, &mask)?);
        }
        Ok(concat_batches(&self.schema, &found)?)
    }

    fn touched(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = &Block> {
        let (start, end) = range.into_inner();
        let first = self.blocks.partition_point(|block| *block.hashes.end() < start);
        self.blocks[first..].iter().take_while(move |block| *block.hashes.start() <= end)
    }

    fn block(&self, block: &Block) -> Result<RecordBatch> {
        let bytes = self.file.read(block.at, block.bytes)?;
        let rows = StreamReader::try_new(Cursor::new(bytes), None)?.next().transpose()?;
        rows.ok_or_else(|| internal_datafusion_err!("a spilled block without rows"))
    }
}

fn encode(rows: &RecordBatch) -> Result<Vec<u8>> {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &rows.schema(), options)?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::testing::spill::Remembered;

    fn rows(n: i64) -> RecordBatch {
        let keys = StringArray::from_iter((0..n).map(|i| (i > 0).then(|| format!("key {i}"))));
        RecordBatch::try_from_iter_with_nullable([
            ("k", Arc::new(keys) as arrow::array::ArrayRef, true),
            ("n", Arc::new(Int64Array::from_iter_values(0..n)), false),
        ])
        .unwrap()
    }

    fn numbers(batches: impl IntoIterator<Item = RecordBatch>) -> Vec<i64> {
        let of = |batch: RecordBatch| batch.column(1).as_primitive::<Int64Type>().values().to_vec();
        let mut numbers: Vec<i64> = batches.into_iter().flat_map(of).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn every_row_is_in_one_range_and_is_found_by_its_hash() {
        let all = rows(20_000);
        let mut file = SpillBuilder::try_new(&Remembered::default(), all.schema(), 1).unwrap();
        file.push(&all).unwrap();
        let spilled = file.finish();
        assert_eq!(
            (spilled.num_rows(), numbers(spilled.blocks().map(Result::unwrap))),
            (20_000, (0..20_000).collect())
        );
        let cuts = [0, 1, u64::MAX / 7, u64::MAX / 7 + 1, u64::MAX / 2, u64::MAX];
        let mut met = Vec::new();
        for cut in cuts.windows(2) {
            let range = if cut[0] == 0 { 0..=cut[1] } else { cut[0] + 1..=cut[1] };
            met.extend(spilled.rows_in(range).map(Result::unwrap));
        }
        assert_eq!(numbers(met), (0..20_000).collect::<Vec<_>>());
        let mut hashes = hashes_of(&all.columns()[..1], 20_000).unwrap();
        hashes.retain(|hash| hash % 1000 == 0);
        hashes.sort_unstable();
        let found = numbers([spilled.rows_of(&hashes).unwrap()]);
        assert!(found.len() == hashes.len() && found.len() > 3, "{found:?}");
        assert_eq!(spilled.rows_of(&[]).unwrap().num_rows(), 0);
    }

    #[test]
    fn rows_without_keys_are_in_the_first_range() {
        let all = rows(3);
        let mut file = SpillBuilder::try_new(&Remembered::default(), all.schema(), 0).unwrap();
        file.push(&all).unwrap();
        let spilled = file.finish();
        assert_eq!(numbers(spilled.rows_in(0..=7).map(Result::unwrap)), [0, 1, 2]);
        assert_eq!(spilled.rows_in(1..=u64::MAX).count(), 0);
    }
}
