//! Batches held in memory as a bounded source: for tests, and for small tables given from Rust.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use super::{
    Boundedness, Coverage, Notes, Offsets, PinnedSource, Position, ReadOptions, Source, SourceBatch, Split, SplitEvent,
    SplitReader, project,
};
use crate::error::{Error, Result};

/// A bounded, replayable source over given batches.
#[derive(Debug, Clone)]
pub struct MemorySource {
    schema: SchemaRef,
    splits: BTreeMap<Arc<str>, Vec<RecordBatch>>,
}

impl MemorySource {
    /// Splits by name, each with its batches in order. Batches are re-cut to the reader's `batch_rows`.
    ///
    /// # Errors
    /// `Invalid` if a batch has another schema, or a name is given twice.
    pub fn try_new<N: Into<Arc<str>>>(
        schema: SchemaRef,
        splits: impl IntoIterator<Item = (N, Vec<RecordBatch>)>,
    ) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for (name, batches) in splits {
            let name = name.into();
            if batches.iter().any(|batch| batch.schema() != schema) {
                return Err(Error::invalid(format!("a batch of split `{name}` differs from the source's schema")));
            }
            if by_name.insert(Arc::clone(&name), batches).is_some() {
                return Err(Error::invalid(format!("split `{name}` is given twice")));
            }
        }
        Ok(Self { schema, splits: by_name })
    }
}

#[async_trait]
impl Source for MemorySource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(self.splits.keys().map(|name| Split { name: Arc::clone(name) }).collect())
    }

    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let batches = self
            .splits
            .get(&split.name)
            .ok_or_else(|| Error::invalid(format!("the source has no split `{}`", split.name)))?;
        let mut reader = MemoryReader { rows: batches.iter().cloned().collect(), offset: 0, options };
        reader.skip(from.map_or(0, |position| position.offset));
        Ok(Box::new(reader))
    }

    async fn pinned(&self) -> Result<Option<PinnedSource>> {
        let rows = |batches: &Vec<RecordBatch>| batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let splits = self.splits.iter().map(|(name, batches)| (name.to_string(), rows(batches))).collect();
        let coverage = Coverage::Rows { splits };
        Ok(Some(PinnedSource { coverage, source: Arc::new(self.clone()), paths: Vec::new() }))
    }
}

struct MemoryReader {
    rows: VecDeque<RecordBatch>,
    offset: i64,
    options: ReadOptions,
}

impl MemoryReader {
    fn skip(&mut self, to: i64) {
        while self.offset < to && self.take((to - self.offset) as usize).is_some() {}
    }

    fn take(&mut self, max: usize) -> Option<RecordBatch> {
        let first = self.rows.pop_front()?;
        let rows = first.num_rows().min(max);
        if rows < first.num_rows() {
            self.rows.push_front(first.slice(rows, first.num_rows() - rows));
        }
        self.offset += rows as i64;
        Some(first.slice(0, rows))
    }
}

#[async_trait]
impl SplitReader for MemoryReader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let first = self.offset;
        let Some(rows) = self.take(self.options.batch_rows.max(1)) else { return Ok(SplitEvent::End) };
        Ok(SplitEvent::Rows(SourceBatch {
            bytes: rows.get_array_memory_size() as u64,
            rows: project(&rows, &self.options.projection)?,
            offsets: Offsets::From(first),
            rejects: vec![],
            notes: Notes::default(),
            next: Position { offset: self.offset, token: String::new() },
        }))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::connectors::testing::{drain, inline_options};

    fn source() -> MemorySource {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let batch = |values: Vec<i64>| {
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(values))]).unwrap()
        };
        let batches = vec![batch(vec![1, 2, 3]), batch(vec![]), batch(vec![4, 5])];
        MemorySource::try_new(Arc::clone(&schema), [("a", batches)]).unwrap()
    }

    #[tokio::test]
    async fn any_position_yields_the_rest() {
        let source = source();
        let split = &source.splits().await.unwrap()[0];
        for batch_rows in 1..7 {
            let mut options = inline_options(&source);
            options.batch_rows = batch_rows;
            let all = drain(&source, split, None, options.clone()).await;
            assert_eq!(all.offsets, [0, 1, 2, 3, 4]);
            for from in all.positions {
                let rest = drain(&source, split, Some(&from), options.clone()).await;
                assert_eq!(rest.offsets, (from.offset..5).collect::<Vec<_>>());
            }
        }
    }
}
