//! A window over the results of a window.
//!
//! It keeps the inner results of each outer window by identity, because a result may be corrected or deleted after it
//! was taken, and aggregates them anew when one has changed. An inner result belongs to the outer windows that hold its
//! `window_time`, its end less one microsecond, so it never falls into the next one. The end is part of its identity, so a
//! correction or a delete finds the outer windows it was taken into.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};

use super::eval::failure;
use super::graph::{AggregateSpec, Policy};
use super::lifecycle::{closes_at, expires_at};
use super::merge::{window_fields, with_window};
use crate::change::{ChangeKind, Changes, Reason};
use crate::error::Result;
use crate::sql::statement::Emit;
use crate::state::Layout;
use crate::watermark;
use crate::window::{Window, WindowSpec};

/// Keeps outer windows. Takes changes, gives changes.
#[derive(Debug)]
pub struct NestedWindow {
    layout: Layout,
    window: WindowSpec,
    policy: Policy,
    /// The end of the inner window.
    inner_end: usize,
    /// Identity of an inner result: all its columns that identify it.
    identity: Vec<usize>,
    converter: RowConverter,
    input: SchemaRef,
    output: SchemaRef,
    live: BTreeMap<(i64, i64), Outer>,
    w: i64,
    /// How often inner results have come or gone.
    changes: u64,
}

#[derive(Debug, Default)]
struct Outer {
    rows: HashMap<Box<[u8]>, RecordBatch>,
    /// Keys published, so that a key whose last inner result went away is deleted.
    published: HashMap<Box<[u8]>, RecordBatch>,
    fired: bool,
    dirty: bool,
}

impl NestedWindow {
    /// A window over changes whose rows have the schema `input` and are identified by the columns `identity`.
    ///
    /// # Errors
    /// When the aggregate does not fit the input.
    pub fn try_new(spec: &AggregateSpec, policy: Policy, input: &SchemaRef, identity: Vec<usize>) -> Result<Self> {
        let layout = Layout::try_new(spec, input).map_err(failure)?;
        let fields = identity.iter().map(|i| SortField::new(input.field(*i).data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(|e| failure(e.into()))?;
        let fields = window_fields().into_iter().chain(layout.result_fields().iter().cloned()).collect::<Vec<_>>();
        Ok(Self {
            layout,
            window: spec.window.clone(),
            policy,
            inner_end: spec.event_time,
            identity,
            converter,
            input: Arc::clone(input),
            output: Arc::new(Schema::new(fields)),
            live: BTreeMap::new(),
            w: watermark::NONE,
            changes: 0,
        })
    }

    /// Goes on from a checkpoint at W `w` with what [`NestedWindow::held_rows`] gave then.
    ///
    /// # Errors
    /// When the rows do not have the input's columns.
    pub fn restore(&mut self, w: i64, held: Option<(u64, RecordBatch)>) -> Result<()> {
        self.w = w;
        let Some((number, rows)) = held else { return Ok(()) };
        if rows.num_rows() > 0 {
            self.on_changes(&Changes { kind: ChangeKind::Upsert, reason: Reason::LateData, rows })?;
        }
        self.changes = number;
        self.live.values_mut().for_each(|outer| outer.dirty = !outer.fired);
        Ok(())
    }

    /// After [`NestedWindow::restore`]: the values of windows that may have published, so that what is above knows them
    /// again.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn current(&mut self, out: &mut Vec<Changes>) -> Result<()> {
        let early = matches!(self.policy.emit, Emit::Changes { .. });
        for (key, fired) in self.live.iter().map(|(key, outer)| (*key, outer.fired)).collect::<Vec<_>>() {
            match fired {
                true => self.publish(key, Reason::LateData, out)?,
                false if early => self.publish(key, Reason::Early, out)?,
                false => {}
            }
        }
        Ok(())
    }

    /// The inner results held, each once, and a number that changes when they do.
    ///
    /// # Errors
    /// `Internal` if rows do not fit together.
    pub fn held_rows(&self) -> Result<(u64, RecordBatch)> {
        let rows: BTreeMap<&[u8], &RecordBatch> =
            self.live.values().flat_map(|outer| outer.rows.iter().map(|(id, row)| (id.as_ref(), row))).collect();
        let rows = concat_batches(&self.input, rows.into_values()).map_err(|e| failure(e.into()))?;
        Ok((self.changes, rows))
    }

    /// Takes inner results.
    ///
    /// # Errors
    /// When the rows do not have the input's columns.
    pub fn on_changes(&mut self, changes: &Changes) -> Result<()> {
        let columns: Vec<ArrayRef> = self.identity.iter().map(|i| Arc::clone(changes.rows.column(*i))).collect();
        let ids = self.converter.convert_columns(&columns).map_err(|e| failure(e.into()))?;
        self.changes += 1;
        let ends = changes.rows.column(self.inner_end).as_primitive::<TimestampMicrosecondType>().clone();
        for row in 0..changes.rows.num_rows() {
            for window in self.window.windows_of(ends.value(row) - 1) {
                // A result that comes after its outer window expired changes nothing any more (T4).
                if expires_at(&self.policy, window.end) <= self.w {
                    continue;
                }
                let fired = closes_at(&self.policy, window.end) <= self.w;
                let outer =
                    self.live.entry((window.end, window.start)).or_insert_with(|| Outer { fired, ..Outer::default() });
                let id: Box<[u8]> = ids.row(row).data().into();
                match changes.kind {
                    ChangeKind::Upsert => {
                        let row = changes.rows.slice(row, 1).with_schema(Arc::clone(&self.input));
                        outer.rows.insert(id, row.map_err(|e| failure(e.into()))?);
                        outer.dirty = true;
                    }
                    ChangeKind::Delete => outer.dirty |= outer.rows.remove(&id).is_some(),
                }
            }
        }
        Ok(())
    }

    /// W has risen to `w`, and every inner result of windows that closed on the way has been taken.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn on_watermark(&mut self, w: i64, out: &mut Vec<Changes>) -> Result<()> {
        self.w = w;
        let due: Vec<_> = self.live.range(..=(w, i64::MAX)).map(|(key, outer)| (*key, outer.fired)).collect();
        for (key, fired) in due {
            if !fired && closes_at(&self.policy, key.0) <= w {
                self.publish(key, Reason::Initial, out)?;
                self.live.entry(key).and_modify(|outer| outer.fired = true);
            }
            if expires_at(&self.policy, key.0) <= w {
                self.publish_dirty(key, Reason::LateData, out)?;
                self.live.remove(&key);
                self.changes += 1;
            }
        }
        Ok(())
    }

    /// The epoch ends.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn on_epoch(&mut self, early: bool, out: &mut Vec<Changes>) -> Result<()> {
        let emits_early = early && matches!(self.policy.emit, Emit::Changes { .. });
        for (key, fired) in self.live.iter().map(|(key, outer)| (*key, outer.fired)).collect::<Vec<_>>() {
            match fired {
                true => self.publish_dirty(key, Reason::LateData, out)?,
                false if emits_early => self.publish_dirty(key, Reason::Early, out)?,
                false => {}
            }
        }
        Ok(())
    }

    fn publish_dirty(&mut self, key: (i64, i64), reason: Reason, out: &mut Vec<Changes>) -> Result<()> {
        match self.live.get(&key).is_some_and(|outer| outer.dirty) {
            true => self.publish(key, reason, out),
            false => Ok(()),
        }
    }

    /// Gives all values of an outer window, and deletes for keys that have none any more.
    fn publish(&mut self, key: (i64, i64), reason: Reason, out: &mut Vec<Changes>) -> Result<()> {
        let Some(outer) = self.live.get_mut(&key) else { return Ok(()) };
        outer.dirty = false;
        // In the order of identities, so that the result does not depend on a hash.
        let mut rows: Vec<_> = outer.rows.iter().collect();
        rows.sort_by(|a, b| a.0.cmp(b.0));
        let rows = concat_batches(&self.input, rows.into_iter().map(|(_, row)| row)).map_err(|e| failure(e.into()))?;
        let window = Window { start: key.1, end: key.0 };
        let mut head = self.layout.new_head().map_err(failure)?;
        if rows.num_rows() > 0 {
            head.update(&self.layout, &self.layout.inputs(&rows).map_err(failure)?).map_err(failure)?;
        }
        let results = head.evaluate(&self.layout).map_err(failure)?;
        let results = with_window(&self.output, window, &results).map_err(failure)?;
        let now = by_key(&results, self.layout.keys_len())?;
        let gone: Vec<RecordBatch> =
            outer.published.iter().filter(|(id, _)| !now.contains_key(*id)).map(|(_, row)| row.clone()).collect();
        outer.published = now;
        if !gone.is_empty() {
            let rows = concat_batches(&self.output, &gone).map_err(|e| failure(e.into()))?;
            out.push(Changes { kind: ChangeKind::Delete, reason, rows });
        }
        if results.num_rows() > 0 {
            out.push(Changes { kind: ChangeKind::Upsert, reason, rows: results });
        }
        Ok(())
    }
}

/// Rows of `results` by their key columns, which follow the window's two.
fn by_key(results: &RecordBatch, keys_len: usize) -> Result<HashMap<Box<[u8]>, RecordBatch>> {
    let columns = &results.columns()[2..2 + keys_len];
    if columns.is_empty() {
        return Ok((0..results.num_rows()).map(|row| (Box::default(), results.slice(row, 1))).collect());
    }
    let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let converter = RowConverter::new(fields).map_err(|e| failure(e.into()))?;
    let ids = converter.convert_columns(columns).map_err(|e| failure(e.into()))?;
    Ok((0..results.num_rows()).map(|row| (ids.row(row).data().into(), results.slice(row, 1))).collect())
}
