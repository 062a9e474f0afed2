//! Reading a whole split in a test, with decoding inline.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{
    DecodeJob, DecodePool, Notes, Position, ReadOptions, Reject, Source, SourceBatch, Split, SplitEvent, SplitReader,
};
use crate::error::Result;

/// Runs a job where it was started.
#[derive(Debug)]
pub(crate) struct InlinePool;

impl DecodePool for InlinePool {
    fn run(&self, job: DecodeJob) -> BoxFuture<'static, Result<Vec<SourceBatch>>> {
        std::future::ready(job()).boxed()
    }

    fn parallelism(&self) -> usize {
        2
    }
}

/// All columns, large batches, decoded inline.
pub(crate) fn inline_options(source: &dyn Source) -> ReadOptions {
    let projection = (0..source.schema().fields().len()).collect();
    ReadOptions { projection, batch_rows: 8192, pool: Arc::new(InlinePool) }
}

/// What a split yielded.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    pub batches: Vec<RecordBatch>,
    pub offsets: Vec<i64>,
    pub rejects: Vec<Reject>,
    pub positions: Vec<Position>,
    pub watermarks: Vec<(usize, i64)>,
    pub notes: Notes,
}

impl Drained {
    /// All rows in one batch.
    pub(crate) fn rows(&self) -> RecordBatch {
        concat_batches(&self.batches[0].schema(), &self.batches).unwrap()
    }

    pub(crate) fn add(&mut self, batch: SourceBatch) {
        let before = self.positions.last().map_or(0, |position| position.offset);
        let offsets: Vec<i64> = (0..batch.rows.num_rows()).map(|row| batch.offsets.get(row)).collect();
        let mut all: Vec<i64> = offsets.iter().copied().chain(batch.rejects.iter().map(|r| r.offset)).collect();
        all.sort_unstable();
        if let (Some(first), Some(last)) = (all.first(), all.last()) {
            assert_eq!(all, (*first..=*last).collect::<Vec<_>>(), "offsets have no gap and no repeat");
            assert_eq!(batch.next.offset, last + 1);
            assert!(self.positions.is_empty() || *first == before, "batches follow each other");
        }
        self.offsets.extend(offsets);
        self.batches.push(batch.rows);
        self.rejects.extend(batch.rejects);
        self.notes += batch.notes;
        self.positions.push(batch.next);
    }
}

/// Reads until the end, or until a live split has nothing.
pub(crate) async fn drain(
    source: &dyn Source,
    split: &Split,
    from: Option<&Position>,
    options: ReadOptions,
) -> Drained {
    drain_reader(source.open(split, from, options).await.unwrap().as_mut()).await
}

/// As [`drain`], with a reader that is open already.
pub(crate) async fn drain_reader(reader: &mut dyn SplitReader) -> Drained {
    let mut drained = Drained::default();
    loop {
        match reader.next().await.unwrap() {
            SplitEvent::Rows(batch) => drained.add(batch),
            SplitEvent::Notes(notes) => drained.notes += notes,
            SplitEvent::Watermark(w) => drained.watermarks.push((drained.offsets.len(), w)),
            SplitEvent::Nothing | SplitEvent::End => return drained,
        }
    }
}
