//! The merging side of a windowed aggregation: chunks by slice, windows that fire.
//!
//! A window fires by merging the chunks of its slices into a fresh head. It keeps the chunks until it expires, so a late
//! row costs the keys it touches and no more: they are gathered from the chunks by hash and evaluated again (L1).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::Result;

use super::aggregate::Sealed;
use super::graph::Policy;
use super::judge::{Class, accepts};
use super::lifecycle::{closes_at, expires_at};
use crate::change::{ChangeKind, Changes, Reason};
use crate::sql::statement::Emit;
use crate::state::{Chunk, Layout, chunk};
use crate::watermark;
use crate::window::{Fate, Slice, Window, WindowSpec};

/// More chunks than this of one slice and class are merged into one.
const CHUNKS_MAX: usize = 8;

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
    slices: BTreeMap<Slice, Vec<(Class, Chunk)>>,
    /// By (end, start), so that windows fire in order.
    live: BTreeMap<(i64, i64), LiveWindow>,
    w: i64,
}

#[derive(Debug, Default)]
struct LiveWindow {
    fired: bool,
    /// Keys of chunks that came after the last value was published.
    dirty: Vec<RecordBatch>,
}

/// The columns a window puts before its keys.
pub fn window_fields() -> [FieldRef; 2] {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    ["window_start", "window_end"].map(|name| Arc::new(Field::new(name, instant.clone(), false)))
}

impl WindowMerge {
    /// A merge with no chunks.
    pub fn new(layout: Arc<Layout>, window: WindowSpec, policy: Policy) -> Self {
        let fields = window_fields().into_iter().chain(layout.result_fields().iter().cloned()).collect::<Vec<_>>();
        let output = Arc::new(Schema::new(fields));
        let w = watermark::NONE;
        Self { layout, window, policy, output, slices: BTreeMap::new(), live: BTreeMap::new(), w }
    }

    /// Columns of what it gives: `window_start`, `window_end`, keys, results, `_event_count`.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// How many windows have state.
    pub fn live_windows(&self) -> usize {
        self.live.len()
    }

    /// Bytes held by chunks.
    pub fn memory_bytes(&self) -> usize {
        self.slices.values().flatten().map(|(_, chunk)| chunk.memory_bytes()).sum()
    }

    /// Takes chunks. All chunks of rows that came before W rose to `w` must be here before `on_watermark(w)`.
    ///
    /// # Errors
    /// When chunks cannot be merged.
    pub fn on_sealed(&mut self, sealed: Sealed) -> Result<()> {
        let Sealed { slice, class, chunk } = sealed;
        let tracks_dirt = class != Class::ON_TIME || matches!(self.policy.emit, Emit::Changes { .. });
        let keys = tracks_dirt.then(|| key_batch(&self.layout, &chunk)).transpose()?;
        for window in self.window.windows_of_slice(slice) {
            let fate = class.fate(window.end);
            if !accepts(&self.policy, fate) {
                continue;
            }
            let fired = closes_at(&self.policy, window.end) <= self.w;
            let live = self
                .live
                .entry((window.end, window.start))
                .or_insert_with(|| LiveWindow { fired, ..LiveWindow::default() });
            let late = fate == Fate::Late && self.policy.emit != Emit::OnExpiry;
            let early = !live.fired && matches!(self.policy.emit, Emit::Changes { .. });
            if let Some(keys) = keys.as_ref().filter(|_| late || early) {
                live.dirty.push(keys.clone());
            }
        }
        let chunks = self.slices.entry(slice).or_default();
        chunks.push((class, chunk));
        compact_class(&self.layout, chunks, class)
    }

    /// W has risen to `w`: windows close, late corrections of windows that expire are published, state goes.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn on_watermark(&mut self, w: i64, out: &mut Vec<WindowEvent>) -> Result<()> {
        self.w = w;
        let due: Vec<_> = self.live.range(..=(w, i64::MAX)).map(|(key, _)| *key).collect();
        for key in due {
            let window = Window { start: key.1, end: key.0 };
            let fired = self.live[&key].fired;
            if !fired && closes_at(&self.policy, window.end) <= w {
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

    /// The epoch ends: late corrections, and early values if `early`.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn on_epoch(&mut self, early: bool, out: &mut Vec<WindowEvent>) -> Result<()> {
        let dirty: Vec<_> = self.live.iter().filter(|(_, l)| !l.dirty.is_empty()).map(|(k, l)| (*k, l.fired)).collect();
        for ((end, start), fired) in dirty {
            match fired {
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
        let rows = chunk::evaluate(&self.layout, chunks)?;
        self.emit(window, Reason::Initial, &rows, out)?;
        let live = self.live.get_mut(&(window.end, window.start)).expect("a window that fires is live");
        live.fired = true;
        let late: Vec<RecordBatch> = match on_expiry {
            true => Vec::new(),
            false => self
                .chunks_of(window, |fate| fate == Fate::Late)
                .into_iter()
                .map(|chunk| key_batch(&self.layout, chunk))
                .collect::<Result<_>>()?,
        };
        self.live.get_mut(&(window.end, window.start)).expect("a window that fires is live").dirty = late;
        Ok(())
    }

    /// Publishes the dirty keys of `window` again, whole (L1).
    fn correct(&mut self, window: Window, reason: Reason, out: &mut Vec<WindowEvent>) -> Result<()> {
        let live = self.live.get_mut(&(window.end, window.start)).expect("a window that is corrected is live");
        let dirty = std::mem::take(&mut live.dirty);
        if dirty.is_empty() {
            return Ok(());
        }
        let chunks = self.chunks_of(window, |_| true);
        let rows = chunk::evaluate_keys(&self.layout, &dirty, chunks)?;
        self.emit(window, reason, &rows, out)
    }

    /// Chunks of the slices of `window` that it accepts and whose fate `wanted` wants, in slice order.
    fn chunks_of(&self, window: Window, wanted: impl Fn(Fate) -> bool) -> Vec<&Chunk> {
        self.window
            .slices_of_window(window)
            .iter()
            .filter_map(|slice| self.slices.get(slice))
            .flatten()
            .filter(|(class, _)| {
                let fate = class.fate(window.end);
                accepts(&self.policy, fate) && wanted(fate)
            })
            .map(|(_, chunk)| chunk)
            .collect()
    }

    fn emit(&self, window: Window, reason: Reason, rows: &RecordBatch, out: &mut Vec<WindowEvent>) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let rows = with_window(&self.output, window, rows)?;
        out.push(WindowEvent::Changes(Changes { kind: ChangeKind::Upsert, reason, rows }));
        Ok(())
    }

    /// Drops every slice that no live or future window needs. Slices start in order and so do their last windows.
    fn drop_slices(&mut self) {
        while let Some((slice, _)) = self.slices.first_key_value() {
            let last = self.window.windows_of_slice(*slice).last().map_or(watermark::NONE, |window| window.end);
            if expires_at(&self.policy, last) > self.w {
                break;
            }
            self.slices.pop_first();
        }
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

fn key_batch(layout: &Layout, chunk: &Chunk) -> Result<RecordBatch> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(chunk.rows().num_rows()));
    let keys = chunk.keys().to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(layout.key_schema()), keys, &options)?)
}

/// Merges the chunks of `class` once there are too many of them.
fn compact_class(layout: &Layout, chunks: &mut Vec<(Class, Chunk)>, class: Class) -> Result<()> {
    if chunks.iter().filter(|(c, _)| *c == class).count() <= CHUNKS_MAX {
        return Ok(());
    }
    let (same, other): (Vec<_>, Vec<_>) = std::mem::take(chunks).into_iter().partition(|(c, _)| *c == class);
    *chunks = other;
    chunks.push((class, chunk::compact(layout, same.iter().map(|(_, chunk)| chunk))?));
    Ok(())
}
