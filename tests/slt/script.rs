//! Connector `script`: rows a test file spells out, replayable, with as many splits as it names.
//!
//! It is live, and has nothing more until the next push; or, when a file runs as a batch, bounded by what was pushed
//! before the query. [`Scripts`] outlives the engines that read it, so that a second engine reads the same rows.
//!
//! An epoch ended by hand covers all rows pushed. That a split has had nothing for a while is known only to a job that
//! has asked again: so a script watches its readers, and waits for each to have asked twice since something changed
//! ([`Scripts::settle`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use highwater::connectors::{
    Accepted, Boundedness, Coverage, Notes, Offsets, PinnedSource, Position, ReadOptions, Source, SourceBatch,
    SourceDefinition, Split, SplitEvent, SplitReader,
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

/// One scripted source.
#[derive(Clone)]
pub struct Script {
    schema: SchemaRef,
    boundedness: Boundedness,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    logs: BTreeMap<Arc<str>, Log>,
    /// Rises with every push, end and step of the clock.
    version: u64,
    /// Those that are open, by number.
    readers: BTreeMap<u64, Asked>,
    readers_ever: u64,
}

/// The rows of a split so far, and whether they are all.
struct Log {
    rows: RecordBatch,
    ended: bool,
}

/// How often a reader found nothing more since the script's version.
#[derive(Default)]
struct Asked {
    version: u64,
    times: u32,
}

struct Reader {
    script: Script,
    id: u64,
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

    /// Waits until every reader has passed on what was pushed, and has told its job that there is no more for now.
    pub async fn settle(&self) {
        let scripts = lock(&self.by_name).values().cloned().collect::<Vec<_>>();
        for script in scripts {
            while !script.is_settled() {
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }

    /// Readers have to ask again: the clock has moved.
    pub fn touch(&self) {
        lock(&self.by_name).values().for_each(|script| lock(&script.state).version += 1);
    }

    pub fn get(&self, name: &str) -> Result<Script> {
        let script = lock(&self.by_name).get(name).cloned();
        script.ok_or_else(|| Error::invalid(format!("there is no scripted source `{name}`")))
    }
}

impl Script {
    fn new(schema: SchemaRef, boundedness: Boundedness, splits: &str) -> Self {
        let logs = splits.split(',').map(|name| (Arc::from(name.trim()), Log::new(&schema))).collect();
        Self { schema, boundedness, state: Arc::new(Mutex::new(State { logs, ..State::default() })) }
    }

    /// Appends `rows` to `split`, which is made if it is new.
    pub fn push(&self, split: &str, rows: &RecordBatch) -> Result<()> {
        let mut state = lock(&self.state);
        state.version += 1;
        let log = state.logs.entry(Arc::from(split)).or_insert_with(|| Log::new(&self.schema));
        log.rows = concat_batches(&self.schema, [&log.rows, rows])
            .map_err(|e| Error::invalid("the rows do not have the source's columns").with_source(e))?;
        Ok(())
    }

    /// Says that no split gets another row.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.version += 1;
        state.logs.values_mut().for_each(|log| log.ended = true);
    }

    /// A reader that was told the end closes when it has passed it on, so that only open ones count.
    fn is_settled(&self) -> bool {
        let state = lock(&self.state);
        state.readers.values().all(|asked| asked.version == state.version && asked.times >= 2)
    }

    /// What `reader` gets; `None` if there is nothing yet.
    fn read(&self, reader: &Reader) -> Result<Option<SplitEvent>> {
        let mut state = lock(&self.state);
        let version = state.version;
        let log = &state.logs[&reader.split];
        let count = reader.options.batch_rows.min(log.rows.num_rows() - reader.offset);
        if count == 0 {
            let all = log.ended || self.boundedness == Boundedness::Bounded;
            let asked = state.readers.entry(reader.id).or_default();
            let times = if asked.version == version { asked.times + 1 } else { 1 };
            *asked = Asked { version, times };
            return Ok(all.then_some(SplitEvent::End));
        }
        let rows = log.rows.slice(reader.offset, count).project(&reader.options.projection);
        let rows =
            rows.map_err(|e| Error::internal("a projection asks for columns that are not there").with_source(e))?;
        let next = (reader.offset + count) as i64;
        Ok(Some(SplitEvent::Rows(SourceBatch {
            rows,
            offsets: Offsets::From(reader.offset as i64),
            rejects: vec![],
            notes: Notes::default(),
            bytes: 0,
            next: Position { offset: next, token: String::new() },
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
        Ok(lock(&self.state).logs.keys().map(|name| Split { name: Arc::clone(name) }).collect())
    }

    fn accepted(&self, split: &str) -> Option<Accepted> {
        let state = lock(&self.state);
        let log = state.logs.get(split)?;
        Some(Accepted { next_offset: log.rows.num_rows() as i64, watermark_us: i64::MIN, ended: log.ended })
    }

    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let offset = from.map_or(0, |position| position.offset as usize);
        let mut state = lock(&self.state);
        let id = state.readers_ever;
        state.readers_ever += 1;
        state.readers.insert(id, Asked::default());
        Ok(Box::new(Reader { script: self.clone(), id, split: Arc::clone(&split.name), offset, options }))
    }

    async fn pinned(&self) -> Result<Option<PinnedSource>> {
        let state = lock(&self.state);
        let splits = state.logs.iter().map(|(name, log)| (name.to_string(), log.rows.num_rows() as u64)).collect();
        let logs = state.logs.iter().map(|(name, log)| (Arc::clone(name), Log { rows: log.rows.clone(), ended: true }));
        let state = State { logs: logs.collect(), ..State::default() };
        let pinned = Self {
            schema: Arc::clone(&self.schema),
            boundedness: Boundedness::Bounded,
            state: Arc::new(Mutex::new(state)),
        };
        Ok(Some(PinnedSource { coverage: Coverage::Rows { splits }, source: Arc::new(pinned), paths: vec![] }))
    }
}

#[async_trait]
impl SplitReader for Reader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let Some(event) = self.script.read(self)? else {
            tokio::time::sleep(PATIENCE).await;
            return Ok(SplitEvent::Nothing);
        };
        if let SplitEvent::Rows(batch) = &event {
            self.offset = batch.next.offset as usize;
        }
        Ok(event)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.script.state).readers.remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this lock")
}
