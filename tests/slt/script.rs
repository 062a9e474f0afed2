//! Connector `script`: rows a test file spells out, replayable, with as many splits as it names.
//!
//! It is live, and has nothing more until the next push; or, when a file runs as a batch, bounded by what was pushed
//! before the query. [`Scripts`] outlives the engines that read it, so that a second engine reads the same rows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use highwater::connectors::{
    Boundedness, Notes, Offsets, Position, ReadOptions, Source, SourceBatch, SourceDefinition, Split, SplitEvent,
    SplitReader,
};
use highwater::{Error, Result};

/// How long a reader waits before it says that it has nothing, so that asking it in a loop burns no core.
const PATIENCE: Duration = Duration::from_millis(1);

/// Every scripted source, by name.
#[derive(Debug, Clone)]
pub struct Scripts {
    boundedness: Boundedness,
    by_name: Arc<Mutex<BTreeMap<String, Script>>>,
}

/// One scripted source: per split the rows so far, and whether they are all.
#[derive(Clone)]
pub struct Script {
    schema: SchemaRef,
    boundedness: Boundedness,
    logs: Arc<Mutex<BTreeMap<Arc<str>, Log>>>,
}

struct Log {
    rows: RecordBatch,
    ended: bool,
}

struct Reader {
    script: Script,
    split: Arc<str>,
    offset: usize,
    options: ReadOptions,
}

impl Scripts {
    pub fn new(boundedness: Boundedness) -> Self {
        Self { boundedness, by_name: Arc::default() }
    }

    /// The connector's factory. Option `splits` names the splits there are from the start; without it there is one, `0`.
    pub fn create(&self, definition: &SourceDefinition) -> Result<Arc<dyn Source>> {
        let mut options = definition.option_reader();
        let splits = options.text(&["splits"])?.unwrap_or("0");
        options.finish()?;
        let new = || Script::new(definition.schema(), self.boundedness, splits);
        let script = lock(&self.by_name).entry(definition.name.clone()).or_insert_with(new).clone();
        Ok(Arc::new(script))
    }

    pub fn get(&self, name: &str) -> Result<Script> {
        let script = lock(&self.by_name).get(name).cloned();
        script.ok_or_else(|| Error::invalid(format!("there is no scripted source `{name}`")))
    }
}

impl Script {
    fn new(schema: SchemaRef, boundedness: Boundedness, splits: &str) -> Self {
        let logs = splits.split(',').map(|name| (Arc::from(name.trim()), Log::new(&schema))).collect();
        Self { schema, boundedness, logs: Arc::new(Mutex::new(logs)) }
    }

    /// Appends `rows` to `split`, which is made if it is new.
    pub fn push(&self, split: &str, rows: &RecordBatch) -> Result<()> {
        let mut logs = lock(&self.logs);
        let log = logs.entry(Arc::from(split)).or_insert_with(|| Log::new(&self.schema));
        log.rows = concat_batches(&self.schema, [&log.rows, rows])
            .map_err(|e| Error::invalid("the rows do not have the source's columns").with_source(e))?;
        Ok(())
    }

    /// Says that no split gets another row.
    pub fn end(&self) {
        lock(&self.logs).values_mut().for_each(|log| log.ended = true);
    }

    /// Rows of `split` from `offset` on; `None` if there are none yet.
    fn read(&self, split: &str, offset: usize, options: &ReadOptions) -> Result<Option<SplitEvent>> {
        let logs = lock(&self.logs);
        let log = &logs[split];
        let count = options.batch_rows.min(log.rows.num_rows() - offset);
        if count == 0 {
            let all = log.ended || self.boundedness == Boundedness::Bounded;
            return Ok(all.then_some(SplitEvent::End));
        }
        let rows = log.rows.slice(offset, count).project(&options.projection);
        let rows = rows.map_err(|e| Error::internal("a projection asks for columns that are not there").with_source(e))?;
        Ok(Some(SplitEvent::Rows(SourceBatch {
            rows,
            offsets: Offsets::From(offset as i64),
            rejects: vec![],
            notes: Notes::default(),
            bytes: 0,
            next: Position { offset: (offset + count) as i64, token: String::new() },
        })))
    }
}

impl Log {
    fn new(schema: &SchemaRef) -> Self {
        Self { rows: RecordBatch::new_empty(Arc::clone(schema)), ended: false }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("boundedness", &self.boundedness).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for Script {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        self.boundedness
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(lock(&self.logs).keys().map(|name| Split { name: Arc::clone(name) }).collect())
    }

    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let offset = from.map_or(0, |position| position.offset as usize);
        Ok(Box::new(Reader { script: self.clone(), split: Arc::clone(&split.name), offset, options }))
    }
}

#[async_trait]
impl SplitReader for Reader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let mut event = self.script.read(&self.split, self.offset, &self.options)?;
        if event.is_none() {
            tokio::time::sleep(PATIENCE).await;
            event = self.script.read(&self.split, self.offset, &self.options)?;
        }
        if let Some(SplitEvent::Rows(batch)) = &event {
            self.offset = batch.next.offset as usize;
        }
        Ok(event.unwrap_or(SplitEvent::Nothing))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this lock")
}
