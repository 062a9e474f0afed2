//! Rows pushed in from Rust, from `INSERT INTO`, or by the server.
//!
//! A split is a log in memory between [`PushHandle`]s and readers:
//!
//! ```text
//!  push ──► [ batch | batch | watermark | batch ] ──► reader of view a   (cursor 3)
//!            ▲ let go once every reader has it  └───► reader of view b   (cursor 1)
//! ```
//!
//! Every reader sees every row pushed after it opened, in the order of the pushes. The first reader of a split also sees
//! what was pushed before it, and while there is no reader pushed rows wait for the next one. Nothing is ever dropped to
//! make room: a push waits until the slowest reader leaves room for it (C122, C123). It is not replayable: the log lives
//! as long as the process, and holds a row only until it is read.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tokio::sync::Notify;

use super::{
    Accepted, Boundedness, Notes, Offsets, Position, ReadOptions, Source, SourceBatch, SourceDefinition, Split,
    SplitEvent, SplitReader, project,
};
use crate::error::{Error, ErrorKind, Result};

/// Name of the split a source starts with.
const FIRST_SPLIT: &str = "push";
/// How long a reader waits before it says that it has nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// Settings of a [`PushSource`].
#[derive(Debug, Clone, Copy)]
pub struct PushOptions {
    /// Most rows a split holds that its slowest reader has not taken. A push that does not fit waits; one batch larger
    /// than this is taken alone.
    pub queue_rows_max: usize,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self { queue_rows_max: 1 << 20 }
    }
}

/// A live source whose rows are pushed in.
pub struct PushSource {
    shared: Arc<Shared>,
}

/// Puts rows into one split of a [`PushSource`]. Clones push into the same split, in the order of their calls.
#[derive(Clone)]
pub struct PushHandle {
    shared: Arc<Shared>,
    log: Arc<SplitLog>,
}

struct Shared {
    schema: SchemaRef,
    options: PushOptions,
    splits: Mutex<Splits>,
}

#[derive(Default)]
struct Splits {
    by_name: BTreeMap<Arc<str>, Arc<SplitLog>>,
    end: Option<End>,
}

/// How a split stopped taking rows.
#[derive(Debug, Clone)]
enum End {
    Closed,
    Failed(String),
}

struct SplitLog {
    name: Arc<str>,
    state: Mutex<LogState>,
    /// Wakes readers: an entry or an end has come.
    filled: Notify,
    /// Wakes pushers: there is room, or an end.
    drained: Notify,
}

#[derive(Debug)]
struct LogState {
    entries: VecDeque<Entry>,
    /// Number of `entries[0]`, counted from the split's beginning.
    first: u64,
    /// Offset of the next row pushed.
    next_offset: i64,
    /// Offset of the first row this log could have held: those before went with an earlier process.
    begins_at: i64,
    /// Rows held in `entries`: those the slowest reader has not taken.
    held_rows: usize,
    /// Next entry of each reader, by its number. Empty: rows wait for the first.
    cursors: BTreeMap<u64, u64>,
    readers_ever: u64,
    /// The highest watermark pushed.
    watermark_us: i64,
    /// The highest watermark among entries let go.
    let_go_us: i64,
    end: Option<End>,
    /// Why the job failed that read last, until somebody reads again.
    failed: Option<String>,
}

#[derive(Debug, Clone)]
enum Entry {
    Rows { rows: RecordBatch, first_offset: i64 },
    Watermark(i64),
}

impl Entry {
    fn row_count(&self) -> usize {
        match self {
            Self::Rows { rows, .. } => rows.num_rows(),
            Self::Watermark(_) => 0,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks; if it did, the log itself is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogState {
    fn new(end: Option<End>) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            next_offset: 0,
            begins_at: 0,
            held_rows: 0,
            cursors: BTreeMap::new(),
            readers_ever: 0,
            watermark_us: i64::MIN,
            let_go_us: i64::MIN,
            end,
            failed: None,
        }
    }

    fn last(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Lets go of what every reader has. Without readers everything stays for the next one.
    fn trim(&mut self) {
        let Some(needed) = self.cursors.values().min() else { return };
        while self.first < *needed {
            let Some(entry) = self.entries.pop_front() else { return };
            self.first += 1;
            if let Entry::Watermark(us) = entry {
                self.let_go_us = us.max(self.let_go_us);
            }
            self.held_rows -= entry.row_count();
        }
    }

    fn check_open(&self) -> Result<()> {
        match &self.end {
            None => match &self.failed {
                Some(why) if self.cursors.is_empty() => {
                    Err(Error::new(ErrorKind::Closed, format!("nobody reads the pushed source any more: {why}"))
                        .with_hint("drop the view that failed and create it anew; rows pushed after that are read"))
                }
                _ => Ok(()),
            },
            Some(End::Closed) => Err(Error::new(ErrorKind::Closed, "the pushed source is closed")),
            Some(End::Failed(why)) => {
                Err(Error::new(ErrorKind::Closed, format!("the pushed source takes no more rows: {why}")))
            }
        }
    }
}

impl PushSource {
    /// A source with the given columns, and the handle of its first split, named `push`.
    pub fn new(schema: SchemaRef, options: PushOptions) -> (Arc<Self>, PushHandle) {
        let source = Self { shared: Arc::new(Shared { schema, options, splits: Mutex::default() }) };
        let handle = source.handle(FIRST_SPLIT);
        (Arc::new(source), handle)
    }

    /// Connector `push`: option `queue_rows`, how many rows may wait.
    ///
    /// # Errors
    /// `Invalid` for a definition without columns, with metadata columns, or with unknown options.
    pub fn from_definition(definition: &SourceDefinition) -> Result<Arc<dyn Source>> {
        let mut options = definition.option_reader();
        let queue_rows_max = options.number(&["queue_rows"])?.unwrap_or(PushOptions::default().queue_rows_max);
        options.finish()?;
        if definition.columns.is_empty() {
            return Err(Error::invalid(format!("source `{}` declares no columns to push", definition.name)));
        }
        if let Some(column) = definition.columns.iter().find(|column| column.metadata.is_some()) {
            return Err(Error::invalid(format!("connector 'push' has no metadata for column `{}`", column.name)));
        }
        Ok(Self::new(definition.schema(), PushOptions { queue_rows_max }).0)
    }

    /// A handle to split `name`, which is made if it is new. A split made after [`PushHandle::close`] is closed.
    pub fn handle(&self, name: &str) -> PushHandle {
        self.shared.handle(name)
    }

    /// Ends the source with an error: waiting and later pushes fail with [`ErrorKind::Closed`] and `why`. For the owner of
    /// a job that failed, so that no push is answered with Ok when nobody will ever read it.
    pub fn fail(&self, why: &str) {
        self.shared.end(&End::Failed(why.to_string()));
    }
}

impl Shared {
    fn handle(self: &Arc<Self>, name: &str) -> PushHandle {
        let mut splits = lock(&self.splits);
        let name: Arc<str> = name.into();
        let end = splits.end.clone();
        let log = splits.by_name.entry(Arc::clone(&name)).or_insert_with(|| {
            Arc::new(SplitLog {
                name,
                state: Mutex::new(LogState::new(end)),
                filled: Notify::new(),
                drained: Notify::new(),
            })
        });
        PushHandle { shared: Arc::clone(self), log: Arc::clone(log) }
    }

    fn end(&self, end: &End) {
        let mut splits = lock(&self.splits);
        splits.end.get_or_insert_with(|| end.clone());
        for log in splits.by_name.values() {
            lock(&log.state).end.get_or_insert_with(|| end.clone());
            log.filled.notify_waiters();
            log.drained.notify_waiters();
        }
    }
}

impl fmt::Debug for PushSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushSource").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl fmt::Debug for PushHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushHandle").field("split", &self.log.name).finish_non_exhaustive()
    }
}

impl PushHandle {
    /// A handle to another split of the same source, which is made if it is new. A job that runs already finds it within a
    /// second, or with the next epoch asked for.
    #[must_use]
    pub fn split(&self, name: &str) -> Self {
        self.shared.handle(name)
    }

    /// The columns a pushed batch must have.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shared.schema)
    }

    /// Pushes `rows`, waiting for room. Once it returns Ok the rows are in the log and every reader gets them. Dropped
    /// while it waits, it has pushed nothing.
    ///
    /// # Errors
    /// `Invalid` if the columns are not the source's, `Closed` if the source has ended.
    pub async fn push(&self, rows: RecordBatch) -> Result<()> {
        let mut rest = rows;
        loop {
            let room = self.log.drained.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.try_push(rest)? {
                None => return Ok(()),
                Some(back) => rest = back,
            }
            room.await;
        }
    }

    /// Pushes `rows` if there is room, and hands them back if there is none.
    ///
    /// # Errors
    /// As [`PushHandle::push`].
    pub fn try_push(&self, rows: RecordBatch) -> Result<Option<RecordBatch>> {
        let rows = self.conform(rows)?;
        let mut state = lock(&self.log.state);
        state.check_open()?;
        if rows.num_rows() == 0 {
            return Ok(None);
        }
        let after = state.held_rows + rows.num_rows();
        if state.held_rows > 0 && after > self.shared.options.queue_rows_max {
            return Ok(Some(rows));
        }
        state.held_rows = after;
        let first_offset = state.next_offset;
        state.next_offset += rows.num_rows() as i64;
        state.entries.push_back(Entry::Rows { rows, first_offset });
        self.log.filled.notify_waiters();
        Ok(None)
    }

    /// Says that no row with event time below `us` follows in this split. It takes its place behind the rows pushed
    /// before it (C125).
    ///
    /// # Errors
    /// `Closed` if the source has ended.
    pub fn advance_watermark(&self, us: i64) -> Result<()> {
        let mut state = lock(&self.log.state);
        state.check_open()?;
        state.watermark_us = us.max(state.watermark_us);
        // Between two batches only the last one counts, so that watermarks alone cannot fill the log.
        match state.entries.back_mut() {
            Some(Entry::Watermark(last)) => {
                *last = us.max(*last);
                // Who is past it comes back for what it says now.
                let end = state.last();
                state.cursors.values_mut().filter(|cursor| **cursor == end).for_each(|cursor| *cursor -= 1);
            }
            _ => state.entries.push_back(Entry::Watermark(us)),
        }
        self.log.filled.notify_waiters();
        Ok(())
    }

    /// Ends the whole source cleanly: readers get what was pushed, then the end (C127). Closing twice is the same.
    pub fn close(&self) {
        self.shared.end(&End::Closed);
    }

    /// As [`PushSource::fail`].
    pub fn fail(&self, why: &str) {
        self.shared.end(&End::Failed(why.to_string()));
    }

    /// Whether the source has ended.
    pub fn is_closed(&self) -> bool {
        lock(&self.log.state).end.is_some()
    }

    /// Rows under the source's own schema: names and nullability as declared, texts in the layout it keeps them in.
    fn conform(&self, rows: RecordBatch) -> Result<RecordBatch> {
        if rows.schema() == self.shared.schema {
            return Ok(rows);
        }
        let columns = rows.columns().iter().zip(self.shared.schema.fields()).map(|(column, field)| {
            let texts = column.data_type().is_string() && field.data_type().is_string();
            if texts { cast(column, field.data_type()) } else { Ok(Arc::clone(column)) }
        });
        let columns = match rows.num_columns() == self.shared.schema.fields().len() {
            true => columns.collect::<Result<Vec<_>, _>>(),
            false => Ok(rows.columns().to_vec()),
        };
        columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.shared.schema), columns)).map_err(|e| {
            Error::invalid("the pushed batch does not have the source's columns")
                .with_hint("push columns in declared order, times as Timestamp(Microsecond, \"UTC\")")
                .with_source(e)
        })
    }
}

#[async_trait]
impl Source for PushSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shared.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Live
    }

    fn replayable(&self) -> bool {
        false
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(lock(&self.shared.splits).by_name.keys().map(|name| Split { name: Arc::clone(name) }).collect())
    }

    /// Starts at the beginning of the log for the split's first reader, at its end for a later one, and at `from` if its
    /// rows are still held.
    ///
    /// # Errors
    /// `Unavailable` if the rows at `from` have been let go.
    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        if from.is_some() {
            // Of an earlier process: its rows are gone, its offsets go on.
            self.handle(&split.name);
        }
        let log = lock(&self.shared.splits).by_name.get(&split.name).cloned();
        let log = log.ok_or_else(|| Error::invalid(format!("the source has no split `{}`", split.name)))?;
        let mut state = lock(&log.state);
        if let Some(position) = from {
            state.begin_at(position.offset);
        }
        let alone = state.cursors.is_empty();
        let (cursor, skip_rows) = match from {
            Some(position) => state.find(position.offset)?,
            None if alone => (state.first, 0),
            None => (state.last(), 0),
        };
        // What it missed, a reader is told: where it begins, and up to which time no row will come.
        let mut missed = VecDeque::new();
        if from.is_none() && cursor > 0 {
            missed.push_back(Missed::Rows(if alone { state.first_offset() } else { state.next_offset }));
        }
        missed.extend(Some(state.watermark_before(cursor)).filter(|us| *us > i64::MIN).map(Missed::Watermark));
        state.failed = None;
        let id = state.readers_ever;
        state.readers_ever += 1;
        state.cursors.insert(id, cursor);
        drop(state);
        Ok(Box::new(PushReader { log, id, schema: self.schema(), missed, skip_rows, options }))
    }

    fn accepted(&self, split: &str) -> Option<Accepted> {
        let log = lock(&self.shared.splits).by_name.get(split).cloned()?;
        let state = lock(&log.state);
        let ended = state.end.is_some();
        // Offsets that an earlier process gave out are nobody's to read.
        let next_offset = if state.next_offset == state.begins_at { 0 } else { state.next_offset };
        Some(Accepted { next_offset, watermark_us: state.watermark_us, ended })
    }

    /// Pushes fail with `why` from now on where no other job reads.
    fn on_job_failed(&self, why: &str) {
        for log in lock(&self.shared.splits).by_name.values() {
            lock(&log.state).failed = Some(why.to_owned());
            log.drained.notify_waiters();
        }
    }

    fn push_handle(&self) -> Option<PushHandle> {
        Some(self.handle(FIRST_SPLIT))
    }
}

impl LogState {
    /// Lets a log that has held no row begin at `offset`, so that offsets go on where an earlier process left them.
    fn begin_at(&mut self, offset: i64) {
        if self.next_offset == self.begins_at && offset > self.begins_at {
            (self.begins_at, self.next_offset) = (offset, offset);
        }
    }

    /// The highest watermark before entry `number`.
    fn watermark_before(&self, number: u64) -> i64 {
        let before = (self.first..number).zip(&self.entries);
        before.fold(self.let_go_us, |highest, (_, entry)| match entry {
            Entry::Watermark(us) => highest.max(*us),
            Entry::Rows { .. } => highest,
        })
    }

    /// Offset of the first row held.
    fn first_offset(&self) -> i64 {
        let first = self.entries.iter().find_map(|entry| match entry {
            Entry::Rows { first_offset, .. } => Some(*first_offset),
            Entry::Watermark(_) => None,
        });
        first.unwrap_or(self.next_offset)
    }

    /// The entry that holds row `offset`, and how many of its rows come before it.
    fn find(&self, offset: i64) -> Result<(u64, usize)> {
        // Another view's job was further when the process before ended.
        let offset = offset.max(self.begins_at);
        for (number, entry) in (self.first..).zip(&self.entries) {
            if let Entry::Rows { rows, first_offset } = entry {
                let end = first_offset + rows.num_rows() as i64;
                if *first_offset <= offset && offset < end {
                    return Ok((number, (offset - first_offset) as usize));
                }
            }
        }
        if offset == self.next_offset {
            return Ok((self.last(), 0));
        }
        Err(Error::new(ErrorKind::Unavailable, format!("pushed rows from offset={offset} on are no longer held")))
    }
}

/// What was let go before a reader opened.
enum Missed {
    /// All rows below this offset.
    Rows(i64),
    /// A watermark.
    Watermark(i64),
}

struct PushReader {
    log: Arc<SplitLog>,
    id: u64,
    schema: SchemaRef,
    missed: VecDeque<Missed>,
    /// Rows of the entry at the cursor that were read already.
    skip_rows: usize,
    options: ReadOptions,
}

impl PushReader {
    /// The next event, if there is one now.
    fn take(&mut self) -> Result<Option<SplitEvent>> {
        match self.missed.pop_front() {
            Some(Missed::Rows(below)) => {
                let none = RecordBatch::new_empty(Arc::clone(&self.schema));
                return Ok(Some(SplitEvent::Rows(self.batch(&none, below)?)));
            }
            Some(Missed::Watermark(us)) => return Ok(Some(SplitEvent::Watermark(us))),
            None => {}
        }
        let mut state = lock(&self.log.state);
        let cursor = state.cursors[&self.id];
        let entry = state.entries.get((cursor - state.first) as usize).cloned();
        let Some(entry) = entry else {
            return match &state.end {
                None => Ok(None),
                Some(End::Closed) => Ok(Some(SplitEvent::End)),
                Some(End::Failed(_)) => state.check_open().map(|()| None),
            };
        };
        let (event, finished) = match entry {
            Entry::Watermark(us) => (SplitEvent::Watermark(us), true),
            Entry::Rows { rows, first_offset } => {
                let left = rows.num_rows() - self.skip_rows;
                let taken = left.min(self.options.batch_rows.max(1));
                let first = first_offset + self.skip_rows as i64;
                let slice = rows.slice(self.skip_rows, taken);
                self.skip_rows += taken;
                (SplitEvent::Rows(self.batch(&slice, first)?), taken == left)
            }
        };
        if finished {
            self.skip_rows = 0;
            state.cursors.insert(self.id, cursor + 1);
            state.trim();
            self.log.drained.notify_waiters();
        }
        Ok(Some(event))
    }

    fn batch(&self, rows: &RecordBatch, first: i64) -> Result<SourceBatch> {
        let rows = project(rows, &self.options.projection)?;
        let bytes =
            rows.columns().iter().filter_map(|column| column.to_data().get_slice_memory_size().ok()).sum::<usize>();
        Ok(SourceBatch {
            offsets: Offsets::From(first),
            rejects: vec![],
            notes: Notes::default(),
            bytes: bytes as u64,
            next: Position { offset: first + rows.num_rows() as i64, token: String::new() },
            rows,
        })
    }
}

impl Drop for PushReader {
    fn drop(&mut self) {
        // The last reader's rows stay for the next one, so nothing is trimmed here when none is left.
        let mut state = lock(&self.log.state);
        state.cursors.remove(&self.id);
        state.trim();
        drop(state);
        self.log.drained.notify_waiters();
    }
}

#[async_trait]
impl SplitReader for PushReader {
    async fn next(&mut self) -> Result<SplitEvent> {
        let log = Arc::clone(&self.log);
        let filled = log.filled.notified();
        tokio::pin!(filled);
        filled.as_mut().enable();
        if let Some(event) = self.take()? {
            return Ok(event);
        }
        if tokio::time::timeout(PATIENCE, filled).await.is_err() {
            return Ok(SplitEvent::Nothing);
        }
        Ok(self.take()?.unwrap_or(SplitEvent::Nothing))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;
    use crate::connectors::testing::{drain, drain_reader, inline_options};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
    }

    fn rows(values: impl IntoIterator<Item = i64>) -> RecordBatch {
        let values: Int64Array = values.into_iter().map(Some).collect();
        RecordBatch::try_new(schema(), vec![Arc::new(values)]).unwrap()
    }

    fn values(rows: &RecordBatch) -> Vec<i64> {
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    #[tokio::test]
    async fn c122_every_accepted_row_arrives_whatever_the_batch_size() {
        for batch in [1usize, 256, 1024] {
            let (source, handle) = PushSource::new(schema(), PushOptions { queue_rows_max: 1000 });
            let total: i64 = if batch == 1 { 20_000 } else { 200_000 };
            let split = source.splits().await.unwrap().remove(0);
            let options = inline_options(source.as_ref());
            let reader = tokio::spawn(async move {
                let mut reader = source.open(&split, None, options).await.unwrap();
                let mut seen = Vec::new();
                loop {
                    match reader.next().await.unwrap() {
                        SplitEvent::Rows(batch) => seen.extend(values(&batch.rows)),
                        SplitEvent::End => return seen,
                        SplitEvent::Nothing | SplitEvent::Watermark(_) | SplitEvent::Notes(_) => {}
                    }
                }
            });
            for first in (0..total).step_by(batch) {
                handle.push(rows(first..total.min(first + batch as i64))).await.unwrap();
            }
            handle.close();
            assert_eq!(reader.await.unwrap(), (0..total).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn c123_a_push_that_cannot_be_taken_is_handed_back_or_fails() {
        let (source, handle) = PushSource::new(schema(), PushOptions { queue_rows_max: 2 });
        assert_eq!(handle.try_push(rows([1, 2])).unwrap(), None);
        assert_eq!(handle.try_push(rows([3])).unwrap(), Some(rows([3])));
        let waiting = tokio::spawn({
            let handle = handle.clone();
            async move { handle.push(rows([3])).await }
        });
        tokio::task::yield_now().await;
        source.fail("view `v` failed");
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(error.to_string(), "the pushed source takes no more rows: view `v` failed");
        assert!(handle.push(rows([4])).await.is_err());
    }

    #[tokio::test]
    async fn c125_a_pushed_watermark_takes_its_place_behind_the_batches() {
        let (source, handle) = PushSource::new(schema(), PushOptions::default());
        for value in 0..10 {
            handle.push(rows([value])).await.unwrap();
        }
        handle.advance_watermark(5).unwrap();
        handle.advance_watermark(7).unwrap();
        handle.push(rows([10])).await.unwrap();
        handle.close();
        let split = &source.splits().await.unwrap()[0];
        let drained = drain(source.as_ref(), split, None, inline_options(source.as_ref())).await;
        assert_eq!(drained.watermarks, [(10, 7)]);
        assert_eq!(drained.offsets.len(), 11);
    }

    #[tokio::test]
    async fn watermarks_alone_do_not_fill_the_log_of_a_reader_that_is_behind() {
        let (source, handle) = PushSource::new(schema(), PushOptions::default());
        let split = &source.splits().await.unwrap()[0];
        let mut quick = source.open(split, None, inline_options(source.as_ref())).await.unwrap();
        let mut behind = source.open(split, None, inline_options(source.as_ref())).await.unwrap();
        handle.push(rows([1])).await.unwrap();
        assert!(matches!(quick.next().await.unwrap(), SplitEvent::Rows(_)));
        for us in 0..1000 {
            handle.advance_watermark(us).unwrap();
            assert!(matches!(quick.next().await.unwrap(), SplitEvent::Watermark(w) if w == us));
        }
        assert_eq!(lock(&handle.log.state).entries.len(), 2);
        assert!(matches!(behind.next().await.unwrap(), SplitEvent::Rows(_)));
        assert!(matches!(behind.next().await.unwrap(), SplitEvent::Watermark(999)));
        assert!(matches!(quick.next().await.unwrap(), SplitEvent::Nothing));
    }

    #[tokio::test]
    async fn c127_close_ends_cleanly_after_the_last_row() {
        let (source, handle) = PushSource::new(schema(), PushOptions::default());
        let split = &source.splits().await.unwrap()[0];
        let mut reader = source.open(split, None, inline_options(source.as_ref())).await.unwrap();
        handle.push(rows([1])).await.unwrap();
        handle.close();
        assert!(matches!(reader.next().await.unwrap(), SplitEvent::Rows(_)));
        assert!(matches!(reader.next().await.unwrap(), SplitEvent::End));
        assert!(matches!(reader.next().await.unwrap(), SplitEvent::End));
        assert_eq!(handle.push(rows([2])).await.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test]
    async fn two_readers_each_see_every_row_pushed_while_they_read() {
        let (source, handle) = PushSource::new(schema(), PushOptions { queue_rows_max: 4 });
        let split = &source.splits().await.unwrap()[0];
        handle.push(rows([1, 2])).await.unwrap();
        let mut first = source.open(split, None, inline_options(source.as_ref())).await.unwrap();
        let mut second = source.open(split, None, inline_options(source.as_ref())).await.unwrap();
        handle.push(rows([3, 4])).await.unwrap();
        assert_eq!(handle.try_push(rows([5])).unwrap(), Some(rows([5])), "the log is full");
        assert_eq!(values(&drain_reader(first.as_mut()).await.rows()), [1, 2, 3, 4]);
        assert_eq!(handle.try_push(rows([5, 6, 7])).unwrap(), Some(rows([5, 6, 7])), "the second has not read");
        assert_eq!(values(&drain_reader(second.as_mut()).await.rows()), [3, 4]);
        assert_eq!(handle.try_push(rows([5])).unwrap(), None);
        drop(first);
        assert_eq!(values(&drain_reader(second.as_mut()).await.rows()), [5]);
    }

    #[tokio::test]
    async fn a_reader_comes_back_to_rows_still_held_and_is_told_of_rows_let_go() {
        let (source, handle) = PushSource::new(schema(), PushOptions::default());
        let split = &source.splits().await.unwrap()[0];
        handle.push(rows([1, 2, 3])).await.unwrap();
        let mut options = inline_options(source.as_ref());
        options.batch_rows = 2;
        let mut reader = source.open(split, None, options.clone()).await.unwrap();
        let SplitEvent::Rows(batch) = reader.next().await.unwrap() else { panic!("two rows wait") };
        drop(reader);
        let mut again = source.open(split, Some(&batch.next), options.clone()).await.unwrap();
        assert_eq!(values(&drain_reader(again.as_mut()).await.rows()), [3]);
        let error = source.open(split, Some(&batch.next), options).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn columns_of_another_type_are_refused() {
        let (_source, handle) = PushSource::new(schema(), PushOptions::default());
        let other = Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true)]));
        let batch = RecordBatch::try_new(other, vec![Arc::new(arrow::array::StringArray::from(vec!["x"]))]).unwrap();
        assert_eq!(handle.push(batch).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
