//! Rows that outlive engines: the source that simulated engines read, one after the other.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tokio::sync::watch;

use crate::connectors::{
    Accepted, Boundedness, Coverage, Notes, Offsets, PinnedSource, Position, ReadOptions, Source, SourceBatch,
    SourceDefinition, Split, SplitEvent, SplitReader, project,
};
use crate::error::Result;

/// A row of the log. Without a time it is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    pub at_us: Option<i64>,
    pub key: String,
    pub value: i64,
}

/// Rows in one split, to which more are added. Readers wait for them without a timer.
#[derive(Debug, Clone)]
pub struct Log(Arc<watch::Sender<Vec<LogRow>>>);

#[derive(Debug)]
struct LogSource {
    schema: SchemaRef,
    log: Log,
    /// Rows it ends after; `None`: it is live.
    rows: Option<usize>,
}

struct LogReader {
    schema: SchemaRef,
    rows: watch::Receiver<Vec<LogRow>>,
    at: usize,
    end: Option<usize>,
    options: ReadOptions,
}

impl Log {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub fn push(&self, rows: &[LogRow]) {
        self.0.send_modify(|known| known.extend_from_slice(rows));
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn source(&self, definition: &SourceDefinition) -> Result<Arc<dyn Source>> {
        definition.option_reader().finish()?;
        Ok(Arc::new(LogSource { schema: definition.schema(), log: self.clone(), rows: None }))
    }
}

#[async_trait]
impl Source for LogSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        if self.rows.is_some() { Boundedness::Bounded } else { Boundedness::Live }
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(vec![Split { name: "0".into() }])
    }

    fn accepted(&self, _: &str) -> Option<Accepted> {
        Some(Accepted { next_offset: self.log.len() as i64, watermark_us: i64::MIN, ended: false })
    }

    async fn open(&self, _: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let at = from.map_or(0, |position| position.offset as usize);
        let rows = self.log.0.subscribe();
        Ok(Box::new(LogReader { schema: Arc::clone(&self.schema), rows, at, end: self.rows, options }))
    }

    async fn pinned(&self) -> Result<Option<PinnedSource>> {
        let rows = self.log.len();
        let source = Self { schema: Arc::clone(&self.schema), log: self.log.clone(), rows: Some(rows) };
        let coverage = Coverage::Rows { splits: [("0".to_owned(), rows as u64)].into() };
        Ok(Some(PinnedSource { coverage, source: Arc::new(source), paths: vec![] }))
    }
}

#[async_trait]
impl SplitReader for LogReader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let (at, end) = (self.at, self.end);
        if end.is_some_and(|end| at >= end) {
            return Ok(SplitEvent::End);
        }
        let rows: Vec<LogRow> = match self.rows.wait_for(|rows| rows.len() > at).await {
            Ok(rows) => {
                let end = end.unwrap_or(rows.len()).min(rows.len());
                rows[at..end.min(at + self.options.batch_rows)].to_vec()
            }
            Err(_) => return Ok(SplitEvent::Nothing),
        };
        self.at += rows.len();
        let rows = project(&batch(&self.schema, &rows), &self.options.projection)?;
        Ok(SplitEvent::Rows(SourceBatch {
            rows,
            offsets: Offsets::From(at as i64),
            rejects: vec![],
            notes: Notes::default(),
            bytes: 0,
            next: Position { offset: self.at as i64, token: String::new() },
        }))
    }
}

/// `rows` as columns time, key, value, in the types of `schema`.
fn batch(schema: &SchemaRef, rows: &[LogRow]) -> RecordBatch {
    let times = TimestampMicrosecondArray::from_iter(rows.iter().map(|row| row.at_us));
    let given: [ArrayRef; 3] = [
        Arc::new(times.with_timezone("UTC")),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.key))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.value))),
    ];
    let columns = given.iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<Result<_, _>>().expect("columns of the declared types");
    RecordBatch::try_new(Arc::clone(schema), columns).expect("columns of one length")
}
