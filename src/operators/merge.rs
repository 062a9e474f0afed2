//! The merging side of a windowed aggregation: chunks by slice, windows that fire.
//!
//! A window fires by merging the chunks of its slices into a fresh head. It keeps the chunks until it expires, so a late
//! row costs the keys it touches and no more: they are gathered from the chunks by hash and evaluated again (L1).
//!
//! Chunks never change, so a checkpoint writes the new ones alone. They are merged in tiers, like with like, so that few
//! new keys never bring many old ones along:
//!
//! ```text
//!  rows per chunk    1,000,000 │ 9,000  8,000  … (7 of them) │ + 10,000   ─►   1,000,000 │ 78,000
//! ```
//!
//! Chunks that memory has no room for are spilled, the largest first; a window of such chunks is merged in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::{DataFusionError, Result};
use serde::{Deserialize, Serialize};

use super::aggregate::Sealed;
use super::graph::Policy;
use super::judge::{Class, accepts};
use super::lifecycle::{closes_at, expires_at};
use crate::change::{ChangeKind, Changes, Reason};
use crate::sql::statement::Emit;
use crate::state::{Account, Chunk, Layout, Memory, chunk};
use crate::watermark;
use crate::window::{Fate, Slice, Window, WindowSpec};

/// So many chunks of one slice, class and tier are merged into one. A tier's chunks are at most as many times larger
/// than those of the tier below.
const TIER_CHUNKS: usize = 8;

/// What a windowed operator gives, in order.
#[derive(Debug, Clone)]
pub enum WindowEvent {
    /// Values to publish.
    Changes(Changes),
    /// The window has expired; nothing more comes for it.
    Expired(Window),
}

/// Takes sealed chunks and watermarks, gives values.
#[derive(Debug)]
pub struct WindowMerge {
    layout: Arc<Layout>,
    window: WindowSpec,
    policy: Policy,
    output: SchemaRef,
    slices: BTreeMap<Slice, Vec<Kept>>,
    /// Number of the next chunk.
    next_chunk: u64,
    /// What is dirty of each live window, by (end, start), so that windows fire in order.
    live: BTreeMap<(i64, i64), Dirty>,
    w: i64,
    account: Account,
    /// Bytes of the chunks in memory.
    held_bytes: usize,
}

/// A chunk and the number by which checkpoints know it.
#[derive(Debug)]
struct Kept {
    class: Class,
    number: u64,
    chunk: Chunk,
}

/// What a checkpoint keeps of a [`WindowMerge`] beside the chunks themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeState {
    /// W at the last step.
    pub w: i64,
    /// Number of the next chunk.
    pub next_chunk: u64,
    /// Each chunk: start and end of its slice, its class (closed to, expired to), its number.
    pub chunks: Vec<(i64, i64, i64, i64, u64)>,
    /// Each live window: start, end, whether it has fired.
    pub windows: Vec<(i64, i64, bool)>,
}

/// Keys of chunks that came after the last value was published.
#[derive(Debug)]
enum Dirty {
    /// These.
    Keys(Vec<RecordBatch>),
    /// More than memory has room for: any may be among them. What has not changed is not published.
    Any,
}

impl Default for Dirty {
    fn default() -> Self {
        Self::Keys(Vec::new())
    }
}

impl Dirty {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Keys(keys) if keys.is_empty())
    }

    fn add(&mut self, layout: &Layout, chunk: &Chunk) -> Result<()> {
        match (&mut *self, chunk.held()) {
            (Self::Any, _) => {}
            (Self::Keys(keys), Some(rows)) => keys.push(key_batch(layout, rows)?),
            (Self::Keys(_), None) => *self = Self::Any,
        }
        Ok(())
    }

    /// Lets go of keys that hold much memory.
    fn forget(&mut self, bytes_min: usize) {
        if let Self::Keys(keys) = self
            && keys.iter().map(RecordBatch::get_array_memory_size).sum::<usize>() > bytes_min
        {
            *self = Self::Any;
        }
    }
}

/// The columns a window puts before its keys.
pub fn window_fields() -> [FieldRef; 2] {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    ["window_start", "window_end"].map(|name| Arc::new(Field::new(name, instant.clone(), false)))
}

impl WindowMerge {
    /// A merge with no chunks. Those that `memory` has no room for it spills.
    pub fn new(layout: Arc<Layout>, window: WindowSpec, policy: Policy, memory: &Memory) -> Self {
        let fields = window_fields().into_iter().chain(layout.result_fields().iter().cloned()).collect::<Vec<_>>();
        let output = Arc::new(Schema::new(fields));
        Self {
            layout,
            window,
            policy,
            output,
            slices: BTreeMap::new(),
            next_chunk: 0,
            live: BTreeMap::new(),
            w: watermark::NONE,
            account: memory.account("windows"),
            held_bytes: 0,
        }
    }

    /// What a checkpoint must keep at the end of an epoch; the chunks are those of [`WindowMerge::chunks`].
    pub fn state(&self) -> MergeState {
        let chunks = self.slices.iter().flat_map(|(slice, kept)| {
            kept.iter().map(|k| (slice.start, slice.end, k.class.closed_to, k.class.expired_to, k.number))
        });
        let windows = self.live.keys().map(|(end, start)| (*start, *end, self.has_fired(*end)));
        let (chunks, windows) = (chunks.collect(), windows.collect());
        MergeState { w: self.w, next_chunk: self.next_chunk, chunks, windows }
    }

    /// Every chunk, by number.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.slices.values().flatten().map(|kept| (kept.number, &kept.chunk))
    }

    /// Goes on from a checkpoint. `chunk` gives the rows of a chunk by its number.
    ///
    /// # Errors
    /// When a chunk is not to be had, or is not of this view's layout; when it cannot be spilled.
    pub fn restore<E: From<DataFusionError>>(
        &mut self,
        state: MergeState,
        mut chunk: impl FnMut(u64) -> Result<RecordBatch, E>,
    ) -> Result<(), E> {
        (self.w, self.next_chunk) = (state.w, state.next_chunk);
        for (start, end, closed_to, expired_to, number) in state.chunks {
            let class = Class { closed_to, expired_to };
            let chunk = Chunk::new(&self.layout, chunk(number)?);
            self.held_bytes += chunk.held_bytes();
            self.slices.entry(Slice { start, end }).or_default().push(Kept { class, number, chunk });
            self.make_room()?;
        }
        self.live = state.windows.into_iter().map(|(start, end, _)| ((end, start), Dirty::default())).collect();
        Ok(())
    }

    /// The current values of the windows that may have published, for what is above to know them again after
    /// [`WindowMerge::restore`]: late data for windows that have fired, early values for open ones under `EMIT CHANGES`.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn current(&self) -> Result<Vec<Changes>> {
        let early = matches!(self.policy.emit, Emit::Changes { .. });
        let mut events = Vec::new();
        for (end, start) in self.live.keys().filter(|(end, _)| self.has_fired(*end) || early) {
            let window = Window { start: *start, end: *end };
            let rows = chunk::evaluate(&self.layout, &self.chunks_of(window, |_| true), self.account.memory())?;
            let reason = if self.has_fired(*end) { Reason::LateData } else { Reason::Early };
            self.emit(window, reason, &rows, &mut events)?;
        }
        let changes = |event| match event {
            WindowEvent::Changes(changes) => Some(changes),
            WindowEvent::Expired(_) => None,
        };
        Ok(events.into_iter().filter_map(changes).collect())
    }

    /// Columns of what it gives: `window_start`, `window_end`, keys, results, `_event_count`.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Columns of a chunk.
    pub fn chunk_schema(&self) -> &SchemaRef {
        self.layout.chunk_schema()
    }

    /// How many windows have state.
    pub fn live_windows(&self) -> usize {
        self.live.len()
    }

    /// Bytes held by chunks.
    pub fn memory_bytes(&self) -> usize {
        self.slices.values().flatten().map(|kept| kept.chunk.memory_bytes()).sum()
    }

    /// Takes chunks. All chunks of rows that came before W rose to `w` must be here before `on_watermark(w)`.
    ///
    /// # Errors
    /// When chunks cannot be merged.
    pub fn on_sealed(&mut self, sealed: Sealed) -> Result<()> {
        let Sealed { slice, class, chunk } = sealed;
        let tracks_dirt = class != Class::ON_TIME || matches!(self.policy.emit, Emit::Changes { .. });
        for window in self.window.windows_of_slice(slice) {
            let fate = class.fate(window.end);
            if !accepts(&self.policy, fate) {
                continue;
            }
            let late = fate == Fate::Late && self.policy.emit != Emit::OnExpiry;
            let early = !self.has_fired(window.end) && matches!(self.policy.emit, Emit::Changes { .. });
            let dirty = self.live.entry((window.end, window.start)).or_default();
            if tracks_dirt && (late || early) {
                dirty.add(&self.layout, &chunk)?;
            }
        }
        let number = self.next_number();
        self.held_bytes += chunk.held_bytes();
        self.slices.entry(slice).or_default().push(Kept { class, number, chunk });
        self.compact(slice, class)?;
        self.make_room()
    }

    /// W has risen to `w`: windows close, late corrections of windows that expire are published, state goes.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn on_watermark(&mut self, w: i64, out: &mut Vec<WindowEvent>) -> Result<()> {
        let before = std::mem::replace(&mut self.w, w);
        for key in self.due(before) {
            let window = Window { start: key.1, end: key.0 };
            if closes_at(&self.policy, window.end) > before {
                self.fire(window, out)?;
            }
            if expires_at(&self.policy, window.end) <= w {
                self.correct(window, Reason::LateData, out)?;
                self.live.remove(&key);
                out.push(WindowEvent::Expired(window));
            }
        }
        self.drop_slices();
        Ok(())
    }

    /// Windows that close or expire now that W has risen from `before`, in order. The others, of which there are many where much
    /// lateness is allowed, are not looked at.
    fn due(&self, before: i64) -> BTreeSet<(i64, i64)> {
        let expire = self.live.keys().take_while(|(end, _)| expires_at(&self.policy, *end) <= self.w);
        let mut due: BTreeSet<_> = expire.copied().collect();
        // Values that wait for expiry are among those.
        if self.policy.emit != Emit::OnExpiry && before < self.w {
            due.extend(self.live.range((before + 1, i64::MIN)..=(self.w, i64::MAX)).map(|(key, _)| *key));
        }
        due
    }

    /// Whether a window with this end has published the value at its close.
    fn has_fired(&self, end: i64) -> bool {
        closes_at(&self.policy, end) <= self.w
    }

    /// The epoch ends: late corrections, and early values if `early`.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn on_epoch(&mut self, early: bool, out: &mut Vec<WindowEvent>) -> Result<()> {
        let dirty: Vec<_> = self.live.iter().filter(|(_, dirty)| !dirty.is_empty()).map(|(key, _)| *key).collect();
        for (end, start) in dirty {
            match self.has_fired(end) {
                true => self.correct(Window { start, end }, Reason::LateData, out)?,
                false if early => self.correct(Window { start, end }, Reason::Early, out)?,
                false => {}
            }
        }
        Ok(())
    }

    /// Publishes the value at close: rows that came before it, each of them (T4).
    fn fire(&mut self, window: Window, out: &mut Vec<WindowEvent>) -> Result<()> {
        let on_expiry = self.policy.emit == Emit::OnExpiry;
        let chunks = self.chunks_of(window, |fate| fate == Fate::OnTime || on_expiry);
        let rows = chunk::evaluate(&self.layout, &chunks, self.account.memory())?;
        self.emit(window, Reason::Initial, &rows, out)?;
        let mut late = Dirty::default();
        if !on_expiry {
            let chunks = self.chunks_of(window, |fate| fate == Fate::Late);
            chunks.into_iter().try_for_each(|chunk| late.add(&self.layout, chunk))?;
        }
        self.live.insert((window.end, window.start), late);
        Ok(())
    }

    /// Publishes the dirty keys of `window` again, whole (L1).
    fn correct(&mut self, window: Window, reason: Reason, out: &mut Vec<WindowEvent>) -> Result<()> {
        let dirty = self.live.get_mut(&(window.end, window.start)).expect("a window that is corrected is live");
        let dirty = std::mem::take(dirty);
        if dirty.is_empty() {
            return Ok(());
        }
        let (chunks, memory) = (self.chunks_of(window, |_| true), self.account.memory());
        let rows = match &dirty {
            Dirty::Keys(keys) => chunk::evaluate_keys(&self.layout, keys, &chunks, memory)?,
            Dirty::Any => chunk::evaluate(&self.layout, &chunks, memory)?,
        };
        self.emit(window, reason, &rows, out)
    }

    /// Chunks of the slices of `window` that it accepts and whose fate `wanted` wants, in slice order.
    fn chunks_of(&self, window: Window, wanted: impl Fn(Fate) -> bool) -> Vec<&Chunk> {
        self.window
            .slices_of_window(window)
            .iter()
            .filter_map(|slice| self.slices.get(slice))
            .flatten()
            .filter(|kept| {
                let fate = kept.class.fate(window.end);
                accepts(&self.policy, fate) && wanted(fate)
            })
            .map(|kept| &kept.chunk)
            .collect()
    }

    fn next_number(&mut self) -> u64 {
        self.next_chunk += 1;
        self.next_chunk - 1
    }

    /// Merges chunks of `slice` and `class`: those of a tier, and all below it, once the tier is full.
    fn compact(&mut self, slice: Slice, class: Class) -> Result<()> {
        let Some(kept) = self.slices.get_mut(&slice) else { return Ok(()) };
        let mut tiers: BTreeMap<u32, usize> = BTreeMap::new();
        for k in kept.iter().filter(|k| k.class == class) {
            *tiers.entry(tier(&k.chunk)).or_default() += 1;
        }
        // The highest full one: what it makes may be of a tier that is full then.
        let Some(full) = tiers.into_iter().rev().find_map(|(tier, n)| (n > TIER_CHUNKS).then_some(tier)) else {
            return Ok(());
        };
        let merged: Vec<Kept> = kept.extract_if(.., |k| k.class == class && tier(&k.chunk) <= full).collect();
        let chunks: Vec<&Chunk> = merged.iter().map(|kept| &kept.chunk).collect();
        let chunk = chunk::compact(&self.layout, &chunks, self.account.memory())?;
        self.held_bytes += chunk.held_bytes();
        self.held_bytes -= chunks.iter().map(|chunk| chunk.held_bytes()).sum::<usize>();
        let number = self.next_number();
        self.slices.entry(slice).or_default().push(Kept { class, number, chunk });
        self.compact(slice, class)
    }

    /// Spills chunks, the largest first, if memory has no room for all of them, until half of them are left.
    fn make_room(&mut self) -> Result<()> {
        if self.account.hold(self.held_bytes) || self.held_bytes <= self.account.memory().spill_bytes_min() {
            return Ok(());
        }
        let Self { slices, account, held_bytes, live, .. } = self;
        let mut chunks: Vec<&mut Chunk> = slices.values_mut().flatten().map(|kept| &mut kept.chunk).collect();
        chunks.sort_by_key(|chunk| std::cmp::Reverse(chunk.held_bytes()));
        let enough = *held_bytes / 2;
        for chunk in chunks {
            if *held_bytes <= enough {
                break;
            }
            let bytes = chunk.held_bytes();
            chunk.spill(account.memory().space())?;
            *held_bytes -= bytes;
        }
        live.values_mut().for_each(|dirty| dirty.forget(account.memory().spill_bytes_min()));
        account.hold(*held_bytes);
        Ok(())
    }

    fn emit(&self, window: Window, reason: Reason, rows: &[RecordBatch], out: &mut Vec<WindowEvent>) -> Result<()> {
        for rows in rows.iter().filter(|rows| rows.num_rows() > 0) {
            let rows = with_window(&self.output, window, rows)?;
            out.push(WindowEvent::Changes(Changes { kind: ChangeKind::Upsert, reason, rows }));
        }
        Ok(())
    }

    /// Drops every slice that no live or future window needs. Slices start in order and so do their last windows.
    fn drop_slices(&mut self) {
        while let Some((slice, _)) = self.slices.first_key_value() {
            let last = self.window.windows_of_slice(*slice).last().map_or(watermark::NONE, |window| window.end);
            if expires_at(&self.policy, last) > self.w {
                break;
            }
            let dropped = self.slices.pop_first().into_iter().flat_map(|(_, kept)| kept);
            self.held_bytes -= dropped.map(|kept| kept.chunk.held_bytes()).sum::<usize>();
        }
        self.account.hold(self.held_bytes);
    }
}

/// Puts the columns of `window` before those of `rows`.
pub fn with_window(schema: &SchemaRef, window: Window, rows: &RecordBatch) -> Result<RecordBatch> {
    let column = |us: i64| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_value(us, rows.num_rows()).with_timezone("UTC"))
    };
    let mut columns = vec![column(window.start), column(window.end)];
    columns.extend(rows.columns().iter().cloned());
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn key_batch(layout: &Layout, rows: &RecordBatch) -> Result<RecordBatch> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let keys = rows.columns()[..layout.keys_len()].to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(layout.key_schema()), keys, &options)?)
}

/// Which chunks it is merged with: the logarithm of its rows.
fn tier(chunk: &Chunk) -> u32 {
    chunk.num_rows().max(1).ilog(TIER_CHUNKS)
}
