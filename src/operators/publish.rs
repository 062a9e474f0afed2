//! Numbers versions and leaves out what nobody has to hear twice (L4, design §4).
//!
//! ```text
//!  upsert a 1 (initial)     ─►  a version 1
//!  upsert a 1 (late_data)   ─►  nothing: unchanged
//!  upsert a 2 (late_data)   ─►  a version 2
//!  delete a                 ─►  a version 3, deleted
//!  delete b                 ─►  nothing: b was never published
//! ```
//!
//! It remembers each identity of a live window (number, hash of the value, whether deleted) until the window expires.
//! A view whose windows publish once only needs no memory and keeps none.
//!
//! After a restart it is told the stored versions of live windows ([`Publisher::restore`]) and then their current values
//! ([`Publisher::reconcile`]), of which it publishes what had not been published yet.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt8Array, UInt32Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use arrow::row::{RowConverter, Rows, SortField};

use super::eval::failure;
use super::graph::{OperatorGraph, Policy};
use super::identities::{Identities, fingerprint};
use super::lifecycle::expires_at;
use crate::change::{ChangeKind, Changes, Reason};
use crate::error::{Error, Result};
use crate::sql::statement::{Emit, OnLate};
use crate::window::Window;

/// Turns changes into numbered versions.
#[derive(Debug)]
pub struct Publisher {
    output: SchemaRef,
    columns: Columns,
    policy: Policy,
    /// Whether an identity may be published more than once.
    tracks: bool,
    keys: RowConverter,
    values: RowConverter,
    /// By (end, start) of the window, then by key.
    live: BTreeMap<(i64, i64), Identities<Published>>,
    epoch: u64,
}

/// Where the columns are in a change.
#[derive(Debug)]
struct Columns {
    window_start: usize,
    window_end: usize,
    event_count: usize,
    select_len: usize,
    keys: Vec<usize>,
}

/// What is known of an identity.
#[derive(Debug)]
struct Published {
    version: i64,
    /// Of the value.
    fingerprint: [u64; 2],
    deleted: bool,
    late_updates: u32,
    /// The epoch of the last version, and how many it has of this identity.
    epoch: u64,
    in_epoch: u8,
    /// The newest value that MAX n UPDATES kept back. Few have one.
    held_back: Option<Box<(ChangeKind, RecordBatch)>>,
}

/// Versions of one batch of changes, by row.
#[derive(Default)]
struct Numbered {
    rows: Vec<u32>,
    versions: Vec<i64>,
    nth: Vec<u8>,
}

impl Numbered {
    fn push(&mut self, row: u32, (version, nth): (i64, u8)) {
        self.rows.push(row);
        self.versions.push(version);
        self.nth.push(nth);
    }
}

impl Publisher {
    /// A publisher for the results of `graph`.
    ///
    /// # Errors
    /// `Internal` if the graph's last node lacks a column that every result has; `Unsupported` if a result column has a
    /// type without a row format.
    pub fn try_new(graph: &OperatorGraph) -> Result<Self> {
        let last = graph.nodes.last().ok_or_else(|| Error::internal("an operator graph without nodes"))?;
        let find = |name: &str| {
            last.schema.index_of(name).map_err(|_| Error::internal(format!("a result without column=`{name}`")))
        };
        let columns = Columns {
            window_start: find("_window_start")?,
            window_end: find("_window_end")?,
            event_count: find("_event_count")?,
            select_len: graph.select.fields().len(),
            keys: graph.keys.iter().map(|key| key.index).collect(),
        };
        let mut fields: Vec<FieldRef> = last
            .schema
            .fields()
            .iter()
            .enumerate()
            // A deleted version may not know its values.
            .map(|(i, field)| match i < columns.select_len || i == columns.event_count {
                true => Arc::new(field.as_ref().clone().with_nullable(true)),
                false => Arc::clone(field),
            })
            .collect();
        for (name, data_type) in [
            ("_version", DataType::Int64),
            ("_deleted", DataType::Boolean),
            ("_reason", DataType::Utf8),
            ("_nth", DataType::UInt8),
        ] {
            fields.push(Arc::new(Field::new(name, data_type, false)));
        }
        let sorts = |indices: &mut dyn Iterator<Item = usize>| -> Result<RowConverter> {
            let fields = indices.map(|i| SortField::new(last.schema.field(i).data_type().clone())).collect();
            RowConverter::new(fields).map_err(|e| failure(e.into()))
        };
        let keys = sorts(&mut columns.keys.iter().copied())?;
        let values = sorts(&mut (0..columns.select_len).chain([columns.event_count]))?;
        let tracks = may_publish_again(graph);
        let (output, policy) = (Arc::new(Schema::new(fields)), graph.policy);
        Ok(Self { output, columns, policy, tracks, keys, values, live: BTreeMap::new(), epoch: 0 })
    }

    /// Columns of the versions it gives: those of the graph's last node, then `_version`, `_deleted`, `_reason`, `_nth`.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Whether a published value may be corrected later.
    pub fn may_correct(&self) -> bool {
        self.tracks
    }

    /// Whether values are published before their window closes.
    pub fn publishes_early(&self) -> bool {
        matches!(self.policy.emit, Emit::Changes { .. })
    }

    /// Identities remembered.
    pub fn tracked(&self) -> usize {
        self.live.values().map(Identities::len).sum()
    }

    /// Numbers `changes`.
    ///
    /// # Errors
    /// `Internal` if the rows do not have the graph's columns.
    pub fn on_changes(&mut self, changes: &Changes, out: &mut Vec<RecordBatch>) -> Result<()> {
        if changes.rows.num_rows() == 0 {
            return Ok(());
        }
        if !self.tracks {
            if changes.kind == ChangeKind::Upsert {
                let rows = changes.rows.num_rows();
                let numbers = (vec![1; rows], vec![0; rows]);
                out.push(self.versions(&changes.rows, numbers, changes.kind, changes.reason)?);
            }
            return Ok(());
        }
        let keys = self.rows(&self.keys, self.columns.keys.iter().copied(), &changes.rows)?;
        let values =
            self.rows(&self.values, (0..self.columns.select_len).chain([self.columns.event_count]), &changes.rows)?;
        let mut numbered = Numbered::default();
        let (policy, epoch) = (self.policy, self.epoch);
        for (window, rows) in self.windows_of(&changes.rows) {
            let live = self.live.entry((window.end, window.start)).or_default();
            for row in rows {
                let value = fingerprint_of(values.as_ref(), row);
                if let Some(number) = number(live, &policy, epoch, key_of(keys.as_ref(), row), value, changes, row) {
                    numbered.push(row as u32, number);
                }
            }
        }
        if !numbered.rows.is_empty() {
            let rows = match numbered.rows.len() == changes.rows.num_rows() {
                true => changes.rows.clone(),
                false => take_record_batch(&changes.rows, &UInt32Array::from(numbered.rows))
                    .map_err(|e| failure(e.into()))?,
            };
            out.push(self.versions(&rows, (numbered.versions, numbered.nth), changes.kind, changes.reason)?);
        }
        Ok(())
    }

    /// W has risen to `w`: values kept back by MAX n UPDATES are published for windows that expire, and those windows
    /// are forgotten.
    ///
    /// # Errors
    /// `Internal` if kept rows do not fit together.
    pub fn on_watermark(&mut self, w: i64, out: &mut Vec<RecordBatch>) -> Result<()> {
        while let Some(entry) = self.live.first_entry() {
            if expires_at(&self.policy, entry.key().0) > w {
                break;
            }
            let identities = entry.remove();
            for kind in [ChangeKind::Delete, ChangeKind::Upsert] {
                self.publish_held_back(&identities, kind, out)?;
            }
        }
        Ok(())
    }

    /// The epoch ends: versions from here on belong to the next one.
    pub fn on_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Windows with a value that MAX n UPDATES keeps back.
    pub fn dirty_windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.live
            .iter()
            .filter(|(_, identities)| identities.values().any(|p| p.held_back.is_some()))
            .map(|((end, start), _)| Window { start: *start, end: *end })
    }

    /// Takes the stored versions of windows that are live at `w`, all of them, in any order. Columns are found by name and
    /// may be of the types under which they are stored.
    ///
    /// # Errors
    /// `Internal` if a column is missing or does not fit.
    pub fn restore(&mut self, w: i64, versions: &[RecordBatch]) -> Result<()> {
        if !self.tracks {
            return Ok(());
        }
        for batch in versions {
            let batch = self.as_given(batch)?;
            let keys = self.rows(&self.keys, self.columns.keys.iter().copied(), &batch)?;
            let values =
                self.rows(&self.values, (0..self.columns.select_len).chain([self.columns.event_count]), &batch)?;
            let [version, deleted, reason] = ["_version", "_deleted", "_reason"].map(|name| batch.column_by_name(name));
            let missing = || Error::internal("stored versions without their numbers");
            let version = version.ok_or_else(missing)?.as_primitive::<Int64Type>();
            let deleted = deleted.ok_or_else(missing)?.as_boolean();
            let reason = reason.ok_or_else(missing)?.as_string::<i32>();
            for row in 0..batch.num_rows() {
                let window = self.window_of(&batch, row);
                if expires_at(&self.policy, window.end) <= w {
                    continue;
                }
                let key = key_of(keys.as_ref(), row);
                let value = fingerprint_of(values.as_ref(), row);
                let identities = self.live.entry((window.end, window.start)).or_default();
                let known = match identities.get_mut(key) {
                    Some(known) => known,
                    None => identities.insert_new(key, Published::stored(value)),
                };
                known.late_updates += u32::from(reason.value(row) == Reason::LateData.as_str());
                if version.value(row) > known.version {
                    (known.version, known.fingerprint, known.deleted) = (version.value(row), value, deleted.value(row));
                }
            }
        }
        Ok(())
    }

    /// Takes the current values of all live windows after [`Publisher::restore`], and the versions once more. Early values
    /// that were not published yet are published. Of closed windows only those in `held_back` differ from what is
    /// published, and what differs there is kept back again.
    ///
    /// # Errors
    /// See [`Publisher::on_changes`].
    pub fn reconcile(
        &mut self,
        current: &[Changes],
        versions: &[RecordBatch],
        held_back: &BTreeSet<Window>,
        out: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        let mut seen: HashSet<(Window, Box<[u8]>)> = HashSet::new();
        for changes in current {
            let keys = self.rows(&self.keys, self.columns.keys.iter().copied(), &changes.rows)?;
            for row in 0..changes.rows.num_rows() {
                seen.insert((self.window_of(&changes.rows, row), key_of(keys.as_ref(), row).into()));
            }
            match changes.reason {
                Reason::Early => self.on_changes(changes, out)?,
                Reason::Initial | Reason::LateData => self.hold_back(changes, held_back)?,
            }
        }
        for batch in versions {
            let gone = self.gone(batch, &seen)?;
            if self.publishes_early() {
                let rows = gone.rows.clone();
                self.on_changes(&Changes { kind: ChangeKind::Delete, reason: Reason::Early, rows }, out)?;
            }
            self.hold_back(&gone, held_back)?;
        }
        Ok(())
    }

    /// Keeps back again what differs from what is published in the windows `held_back`.
    fn hold_back(&mut self, changes: &Changes, held_back: &BTreeSet<Window>) -> Result<()> {
        let keys = self.rows(&self.keys, self.columns.keys.iter().copied(), &changes.rows)?;
        let values = (0..self.columns.select_len).chain([self.columns.event_count]);
        let values = self.rows(&self.values, values, &changes.rows)?;
        for row in 0..changes.rows.num_rows() {
            let window = self.window_of(&changes.rows, row);
            if !held_back.contains(&window) {
                continue;
            }
            let key = key_of(keys.as_ref(), row);
            let known = self.live.get_mut(&(window.end, window.start)).and_then(|live| live.get_mut(key));
            if let Some(known) = known {
                let deleted = changes.kind == ChangeKind::Delete;
                let differs =
                    known.deleted != deleted || !deleted && known.fingerprint != fingerprint_of(values.as_ref(), row);
                let full = self.policy.on_late.updates_max().is_some_and(|max| known.late_updates >= max);
                known.held_back = (differs && full).then(|| Box::new((changes.kind, changes.rows.slice(row, 1))));
            }
        }
        Ok(())
    }

    /// Rows of `versions` that are published, hold, and are not among those `seen`.
    fn gone(&self, versions: &RecordBatch, seen: &HashSet<(Window, Box<[u8]>)>) -> Result<Changes> {
        let batch = self.as_given(versions)?;
        let keys = self.rows(&self.keys, self.columns.keys.iter().copied(), &batch)?;
        let version = batch.column(self.output.fields().len() - 4).as_primitive::<Int64Type>().clone();
        let gone = (0..batch.num_rows()).filter(|row| {
            let window = self.window_of(&batch, *row);
            let key = key_of(keys.as_ref(), *row);
            let known = self.live.get(&(window.end, window.start)).and_then(|live| live.get(key));
            let current = known.is_some_and(|known| !known.deleted && known.version == version.value(*row));
            current && !seen.contains(&(window, key.into()))
        });
        let gone: UInt32Array = gone.map(|row| row as u32).collect::<Vec<_>>().into();
        let columns: Vec<usize> = (0..self.output.fields().len() - 4).collect();
        let rows = batch.project(&columns).and_then(|batch| take_record_batch(&batch, &gone));
        let rows = rows.map_err(|e| failure(e.into()))?;
        Ok(Changes { kind: ChangeKind::Delete, reason: Reason::LateData, rows })
    }

    /// Columns of the output by name, with its types.
    fn as_given(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for field in self.output.fields() {
            let column = match stored.column_by_name(field.name()) {
                Some(column) => cast(column, field.data_type()).map_err(|e| failure(e.into()))?,
                None => arrow::array::new_null_array(field.data_type(), stored.num_rows()),
            };
            fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
            columns.push(column);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| failure(e.into()))
    }

    fn publish_held_back(
        &self,
        identities: &Identities<Published>,
        kind: ChangeKind,
        out: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        let held = identities.values().filter_map(|p| p.held_back.as_deref().map(|(k, rows)| (*k, rows, p)));
        let held: Vec<_> = held.filter(|(k, ..)| *k == kind).collect();
        if held.is_empty() {
            return Ok(());
        }
        let rows = concat_batches(&held[0].1.schema(), held.iter().map(|(_, rows, _)| *rows))
            .map_err(|e| failure(e.into()))?;
        let versions = held.iter().map(|(_, _, p)| p.version + 1).collect();
        let nth = held.iter().map(|(_, _, p)| if p.epoch == self.epoch { p.in_epoch } else { 0 }).collect();
        out.push(self.versions(&rows, (versions, nth), kind, Reason::LateData)?);
        Ok(())
    }

    fn versions(
        &self,
        rows: &RecordBatch,
        (versions, nth): (Vec<i64>, Vec<u8>),
        kind: ChangeKind,
        reason: Reason,
    ) -> Result<RecordBatch> {
        let n = rows.num_rows();
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(Int64Array::from(versions)));
        columns.push(Arc::new(BooleanArray::from(vec![kind == ChangeKind::Delete; n])));
        columns.push(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(reason.as_str(), n))));
        columns.push(Arc::new(UInt8Array::from(nth)));
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|e| failure(e.into()))
    }

    fn rows(
        &self,
        converter: &RowConverter,
        indices: impl Iterator<Item = usize>,
        rows: &RecordBatch,
    ) -> Result<Option<Rows>> {
        let columns: Vec<ArrayRef> = indices.map(|i| Arc::clone(rows.column(i))).collect();
        if columns.is_empty() {
            return Ok(None);
        }
        converter.convert_columns(&columns).map(Some).map_err(|e| failure(e.into()))
    }

    /// The windows of `rows`, each with the rows that follow each other in it.
    fn windows_of(&self, rows: &RecordBatch) -> Vec<(Window, Range<usize>)> {
        let us = |column: usize| rows.column(column).as_primitive::<TimestampMicrosecondType>().values();
        let (starts, ends) = (us(self.columns.window_start), us(self.columns.window_end));
        let mut found: Vec<(Window, Range<usize>)> = Vec::new();
        for (row, (start, end)) in starts.iter().zip(ends.iter()).enumerate() {
            let window = Window { start: *start, end: *end };
            match found.last_mut() {
                Some((last, rows)) if *last == window => rows.end = row + 1,
                _ => found.push((window, row..row + 1)),
            }
        }
        found
    }

    fn window_of(&self, rows: &RecordBatch, row: usize) -> Window {
        let us = |column: usize| rows.column(column).as_primitive::<TimestampMicrosecondType>().value(row);
        Window { start: us(self.columns.window_start), end: us(self.columns.window_end) }
    }
}

fn key_of(keys: Option<&Rows>, row: usize) -> &[u8] {
    keys.map_or(&[], |keys| keys.row(row).data())
}

fn fingerprint_of(values: Option<&Rows>, row: usize) -> [u64; 2] {
    fingerprint(key_of(values, row))
}

/// Decides on one row: its version and which of the epoch's it is, or nothing to publish.
fn number(
    identities: &mut Identities<Published>,
    policy: &Policy,
    epoch: u64,
    key: &[u8],
    fingerprint: [u64; 2],
    changes: &Changes,
    row: usize,
) -> Option<(i64, u8)> {
    let late = changes.reason == Reason::LateData;
    let Some(known) = identities.get_mut(key) else {
        if changes.kind == ChangeKind::Delete {
            return None;
        }
        let mut first = Published::stored(fingerprint);
        let number = first.publish(changes.kind, fingerprint, late, epoch);
        identities.insert_new(key, first);
        return Some(number);
    };
    let unchanged = match changes.kind {
        ChangeKind::Delete => known.deleted,
        ChangeKind::Upsert => !known.deleted && known.fingerprint == fingerprint && changes.reason != Reason::Initial,
    };
    if unchanged {
        known.held_back = None;
        return None;
    }
    if late && policy.on_late.updates_max().is_some_and(|max| known.late_updates >= max) {
        known.held_back = Some(Box::new((changes.kind, changes.rows.slice(row, 1))));
        return None;
    }
    Some(known.publish(changes.kind, fingerprint, late, epoch))
}

impl Published {
    /// One of which no version has been met yet, and none in this epoch will be.
    fn stored(fingerprint: [u64; 2]) -> Self {
        let (version, late_updates) = (0, 0);
        Self { version, fingerprint, deleted: false, late_updates, epoch: u64::MAX, in_epoch: 0, held_back: None }
    }

    fn publish(&mut self, kind: ChangeKind, fingerprint: [u64; 2], late: bool, epoch: u64) -> (i64, u8) {
        let nth = if self.epoch == epoch { self.in_epoch } else { 0 };
        self.version += 1;
        self.fingerprint = fingerprint;
        self.deleted = kind == ChangeKind::Delete;
        self.late_updates += u32::from(late);
        self.epoch = epoch;
        self.in_epoch = nth + 1;
        self.held_back = None;
        (self.version, nth)
    }
}

/// Whether any identity of `graph`'s results may get a second version while its window lives.
fn may_publish_again(graph: &OperatorGraph) -> bool {
    let corrects = graph.policy.allowed_lateness_us > 0 && matches!(graph.policy.on_late, OnLate::Update { .. });
    match graph.policy.emit {
        Emit::OnExpiry => false,
        Emit::Changes { .. } => true,
        Emit::OnWindowClose => corrects,
    }
}
