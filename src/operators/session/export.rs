//! A shard's sessions as record batches, and back: what a checkpoint keeps of them.
//!
//! Sessions are told apart by their place in the shard. An export says what has changed since the one before it, and what
//! it says of a place replaces what was said before; the first one says everything:
//!
//! ```text
//!  export 1, whole        export 2               both together
//!  0  a [0,10)  1 row     0  a [0,14)  2 rows    0  a [0,14)  2 rows
//!  1  b [3,13)  1 row     1  removed             2  c [20,30) 1 row
//!                         2  c [20,30) 1 row
//! ```
//!
//! `state()` of an accumulator drains it, so partial states are merged into scratch accumulators and given out from there.
//! The merged states then take the place of the parts they were made of; the sessions are what they were (C92). Timers
//! are not exported: a session is looked at when the watermark comes, and sets its own.
//!
//! It does not know where exports are kept, nor how keys are dealt out to shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, Int64Builder, ListArray, ListBuilder, RecordBatch, UInt32Array,
};
use arrow::compute::{filter_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, UInt32Type};

use super::book::{Session, Stage};
use super::partials::Chain;
use super::{OUTPUT_ROWS_MAX, SessionAggregate, Value, list};
use crate::change::{ChangeKind, Changes, Reason};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::eval::{batch_of, failure};
use crate::state::layout::conform;
use crate::window::Window;

/// How much an export says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything, so that exports before it are no longer needed.
    Whole,
    /// What changed since the last export. The first export of an operator is whole all the same.
    Changes,
}

/// Sessions of one shard at the end of an epoch, or what changed in them.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionExport {
    /// Whether it says everything; exports before it are then of no more use.
    pub whole: bool,
    /// Sessions that can take rows: `place`, keys, `start`, `end` (µs), `closed`, `published`, `listed`, `rows`, `late`,
    /// `supersedes` (starts and ends in turn), then the partial states of each aggregate.
    pub live: RecordBatch,
    /// Expired sessions, of which only the bounds are left: `place`, keys, `start`, `end`.
    pub bounds: RecordBatch,
    /// Places that are empty now: `place`.
    pub removed: RecordBatch,
}

impl SessionExport {
    /// How many sessions and empty places it speaks of.
    pub fn rows(&self) -> usize {
        self.live.num_rows() + self.bounds.num_rows() + self.removed.num_rows()
    }
}

/// Columns of [`SessionExport::live`] between its bounds and the states.
const FACTS: usize = 6;

impl SessionAggregate {
    /// The sessions, or what changed in them since the last export. Changes nothing that can be seen. To be called when
    /// an epoch has ended and nothing waits to go out.
    ///
    /// # Errors
    /// `Internal` when something waits to go out or an aggregate cannot give its state.
    pub fn export(&mut self, extent: Extent) -> Result<SessionExport> {
        if !self.values.is_empty() || !self.gone.is_empty() {
            return Err(Error::internal("sessions are exported when an epoch has ended"));
        }
        self.partials.seal().map_err(failure)?;
        let changed = self.book.take_changed(extent == Extent::Whole);
        let (live, expired): (Vec<u32>, Vec<u32>) =
            changed.held.into_iter().partition(|session| self.book.get(*session).stage != Stage::Expired);
        let chains: Vec<Chain> = live.iter().map(|session| self.book.get(*session).chain).collect();
        let states = self.partials.states(&chains).map_err(failure)?;
        let merged = self.partials.load(states.clone(), live.len());
        self.partials.release(&chains);
        live.iter().zip(merged).for_each(|(session, chain)| self.book.set_chain(*session, chain));

        let mut columns = self.bounds_of(&live)?;
        columns.extend(self.facts_of(&live));
        columns.extend(states);
        let [live_schema, bounds_schema, removed_schema] = self.export_schemas();
        let expired_columns = conform(self.bounds_of(&expired)?, bounds_schema.fields()).map_err(failure)?;
        let removed = vec![Arc::new(UInt32Array::from(changed.removed)) as ArrayRef];
        Ok(SessionExport {
            whole: changed.whole,
            live: batch_of(&live_schema, conform(columns, live_schema.fields()).map_err(failure)?, live.len())?,
            bounds: batch_of(&bounds_schema, expired_columns, expired.len())?,
            removed: RecordBatch::try_new(removed_schema, removed).map_err(|e| failure(e.into()))?,
        })
    }

    /// Takes the sessions of a shard as its `exports` tell them, the last whole one and all after it, in order. Of
    /// these it takes those for whose key `keep` says so: given key columns and how many rows they have, a flag per row.
    /// So shards may be other ones than when the sessions were exported; each is given the exports of all.
    ///
    /// # Errors
    /// `Corrupt` when the batches are not those of [`SessionAggregate::export`] for this statement; what `keep` fails with.
    pub fn import(
        &mut self,
        exports: &[SessionExport],
        keep: impl Fn(&[ArrayRef], usize) -> Result<Vec<bool>>,
    ) -> Result<()> {
        let [live_schema, bounds_schema, _] = self.export_schemas();
        let fits = |e: &SessionExport| same_columns(&e.live, &live_schema) && same_columns(&e.bounds, &bounds_schema);
        if !exports.iter().all(fits) || exports.first().is_some_and(|first| !first.whole) {
            return Err(Error::new(ErrorKind::Corrupt, "exported sessions do not have the columns of the statement"));
        }
        let last = last_words(exports)?;
        for (i, export) in exports.iter().enumerate() {
            let kept = |part: Part, rows: &RecordBatch| -> Result<RecordBatch> {
                let wanted = last.values().filter(|at| (at.export, at.part) == (i, part)).map(|at| at.row);
                let rows = take_record_batch(rows, &UInt32Array::from_iter_values(wanted));
                let rows = rows.map_err(|e| failure(e.into()))?;
                let keys = &rows.columns()[1..1 + self.layout.keys_len()];
                let mask = BooleanArray::from(keep(keys, rows.num_rows())?);
                filter_record_batch(&rows, &mask).map_err(|e| failure(e.into()))
            };
            let (live, bounds) = (kept(Part::Live, &export.live)?, kept(Part::Bounds, &export.bounds)?);
            self.import_live(&live)?;
            for session in self.import_bounds(&bounds)? {
                self.book.get_mut(session).stage = Stage::Expired;
            }
        }
        Ok(())
    }

    /// What an export of no sessions says.
    pub fn no_sessions(&self) -> SessionExport {
        let [live, bounds, removed] = self.export_schemas().map(RecordBatch::new_empty);
        SessionExport { whole: true, live, bounds, removed }
    }

    /// The current values of sessions that have published, for what is above to know them again after an import: late
    /// data for those that have closed, early values for open ones.
    ///
    /// # Errors
    /// When an aggregate cannot be evaluated.
    pub fn current(&self) -> Result<Vec<Changes>> {
        let mut current = Vec::new();
        for (stage, reason) in [(Stage::Open, Reason::Early), (Stage::Closed, Reason::LateData)] {
            let value = |session: u32| {
                let s = self.book.get(session);
                let supersedes = self.book.extra(session).map_or(Vec::new(), |extra| extra.supersedes.clone());
                Value { key: s.key, window: s.window, rows: s.rows, chain: s.chain, reason, supersedes }
            };
            let wanted = self.book.held().filter(|session| {
                let s = self.book.get(*session);
                s.stage == stage && s.published
            });
            let values: Vec<Value> = wanted.map(value).collect();
            for values in values.chunks(OUTPUT_ROWS_MAX) {
                let rows = self.upserts(&values.iter().collect::<Vec<_>>())?;
                current.push(Changes { kind: ChangeKind::Upsert, reason, rows });
            }
        }
        Ok(current)
    }

    fn import_live(&mut self, rows: &RecordBatch) -> Result<()> {
        let first = 3 + self.layout.keys_len();
        let chains = self.partials.load(rows.columns()[first + FACTS..].to_vec(), rows.num_rows());
        let fact = |column: usize| rows.column(first + column);
        let flag = |column: usize, row: usize| fact(column).as_boolean().value(row);
        let number = |column: usize, row: usize| fact(column).as_primitive::<Int64Type>().value(row);
        for (row, (session, chain)) in self.import_bounds(rows)?.into_iter().zip(chains).enumerate() {
            let s = self.book.get_mut(session);
            s.stage = if flag(0, row) { Stage::Closed } else { Stage::Open };
            (s.published, s.chain, s.rows) = (flag(1, row), chain, number(3, row) as u64);
            if flag(2, row) {
                list(s, session, &mut self.touched);
            }
            let (late, supersedes) = (number(4, row) as u64, windows_at(fact(5).as_list::<i32>(), row));
            if late > 0 || !supersedes.is_empty() {
                let extra = self.book.extra_mut(session);
                (extra.late, extra.supersedes) = (late, supersedes);
            }
        }
        Ok(())
    }

    /// Puts a session on the list of its key for each row, with a timer that is due no later than it has to be.
    fn import_bounds(&mut self, rows: &RecordBatch) -> Result<Vec<u32>> {
        let keys_len = self.layout.keys_len();
        let mut keys = Vec::new();
        self.keys.number(&rows.columns()[1..=keys_len], rows.num_rows(), &mut keys).map_err(failure)?;
        self.book.set_keys(self.keys.len());
        let bound = |column: usize| rows.column(keys_len + column).as_primitive::<Int64Type>();
        let (starts, ends) = (bound(1), bound(2));
        let mut sessions = Vec::with_capacity(keys.len());
        for (row, key) in keys.into_iter().enumerate() {
            let window = Window { start: starts.value(row), end: ends.value(row) };
            let (older, newer) = self.book.before(key as u32, window.end);
            let session = self.book.insert(key as u32, window, older, newer);
            self.set_timer(session, window.end);
            sessions.push(session);
        }
        Ok(sessions)
    }

    fn bounds_of(&self, sessions: &[u32]) -> Result<Vec<ArrayRef>> {
        let of = |session: &u32| self.book.get(*session);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(sessions.to_vec()))];
        columns.extend(self.keys.columns_of(sessions.iter().map(|session| of(session).key)).map_err(failure)?);
        columns.push(Arc::new(Int64Array::from_iter_values(sessions.iter().map(|s| of(s).window.start))));
        columns.push(Arc::new(Int64Array::from_iter_values(sessions.iter().map(|s| of(s).window.end))));
        Ok(columns)
    }

    fn facts_of(&self, sessions: &[u32]) -> Vec<ArrayRef> {
        let flags = |flag: fn(&Session) -> bool| -> ArrayRef {
            Arc::new(BooleanArray::from_iter(sessions.iter().map(|session| Some(flag(self.book.get(*session))))))
        };
        let late = |session: &u32| self.book.extra(*session).map_or(0, |extra| extra.late as i64);
        let mut supersedes = ListBuilder::new(Int64Builder::new()).with_field(bound_field());
        for session in sessions {
            let windows = self.book.extra(*session).into_iter().flat_map(|extra| &extra.supersedes);
            windows.for_each(|window| supersedes.values().append_slice(&[window.start, window.end]));
            supersedes.append(true);
        }
        vec![
            flags(|s| s.stage == Stage::Closed),
            flags(|s| s.published),
            flags(|s| s.listed),
            Arc::new(Int64Array::from_iter_values(sessions.iter().map(|s| self.book.get(*s).rows as i64))),
            Arc::new(Int64Array::from_iter_values(sessions.iter().map(late))),
            Arc::new(supersedes.finish()),
        ]
    }

    /// Schemas of the three batches of an export.
    fn export_schemas(&self) -> [SchemaRef; 3] {
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, false));
        let removed = vec![field("place", DataType::UInt32)];
        let keys = self.layout.key_schema().fields().iter().enumerate();
        let keys = keys.map(|(i, key)| Arc::new(key.as_ref().clone().with_name(format!("k{i}"))));
        let mut bounds: Vec<FieldRef> = removed.iter().cloned().chain(keys).collect();
        bounds.extend(["start", "end"].map(|name| field(name, DataType::Int64)));
        let flags = ["closed", "published", "listed"].map(|name| field(name, DataType::Boolean));
        let counts = ["rows", "late"].map(|name| field(name, DataType::Int64));
        let supersedes = field("supersedes", DataType::List(bound_field()));
        let states = self.layout.state_fields().iter().cloned();
        let facts = flags.into_iter().chain(counts).chain([supersedes]);
        let live: Vec<FieldRef> = bounds.iter().cloned().chain(facts).chain(states).collect();
        [live, bounds, removed].map(|fields| Arc::new(Schema::new(fields)))
    }
}

/// Which batch of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Live,
    Bounds,
}

/// Where something is said of a place.
#[derive(Debug, Clone, Copy)]
struct Word {
    export: usize,
    part: Part,
    row: u32,
}

/// For each place what was said of it last; nothing if it is empty.
fn last_words(exports: &[SessionExport]) -> Result<BTreeMap<u32, Word>> {
    let mut last = BTreeMap::new();
    for (i, export) in exports.iter().enumerate() {
        if export.whole {
            last.clear();
        }
        for place in places(&export.removed)?.values() {
            last.remove(place);
        }
        for (part, rows) in [(Part::Live, &export.live), (Part::Bounds, &export.bounds)] {
            let places = places(rows)?;
            last.extend((0_u32..).zip(places.values()).map(|(row, place)| (*place, Word { export: i, part, row })));
        }
    }
    Ok(last)
}

fn places(rows: &RecordBatch) -> Result<&UInt32Array> {
    let first = rows.columns().first().and_then(|column| column.as_primitive_opt::<UInt32Type>());
    first.ok_or_else(|| Error::new(ErrorKind::Corrupt, "exported sessions do not say their places"))
}

/// Whether `rows` has the columns of `schema`, by type: what carried them may have dropped metadata.
fn same_columns(rows: &RecordBatch, schema: &Schema) -> bool {
    let types = |schema: &Schema| schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
    types(rows.schema_ref()) == types(schema)
}

fn bound_field() -> FieldRef {
    Arc::new(Field::new("bound", DataType::Int64, false))
}

fn windows_at(bounds: &ListArray, row: usize) -> Vec<Window> {
    let bounds = bounds.value(row);
    let bounds = bounds.as_primitive::<Int64Type>().values();
    bounds.chunks_exact(2).map(|bounds| Window { start: bounds[0], end: bounds[1] }).collect()
}
