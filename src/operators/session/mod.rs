//! Session windows of one shard: all rows of some keys, in arrival order.
//!
//! A row opens `[ts, ts + gap)`; sessions of a key that overlap become one; sessions that only touch do not. The window of
//! a row is its session after merging, and the row's fate is that session's (T4):
//!
//! ```text
//!  gap 10 s, L = 20 s        sessions of a              published
//!  a ts=0                    [0,10) 1
//!  W = 12                    [0,10) 1 closed            upsert [0,10) 1 initial
//!  a ts=15                   [0,10) 1   [15,25) 1
//!  a ts=8   late             [0,25) 3                   delete [0,10)       at the end of the epoch
//!  W = 25                    [0,25) 3 closed            upsert [0,25) 3 initial, supersedes [0,10)
//!  W = 46                    bounds [0,25) only
//!  a ts=20  expired          refused by [0,25)
//! ```
//!
//! A session's identity is its bounds. When they change, the identity that was published no longer holds and is deleted
//! when the epoch ends (before its window expires, hence not only when the new one closes); the new one names it.
//!
//! How it is fast: keys are numbered vectorised, a row then costs one look at its key's newest session, and aggregates
//! are updated a batch at a time, each row in the slot of its session (`partials`). Sessions that close together are
//! evaluated together. It does not know other shards, versions, or what HAVING keeps.

mod book;
mod export;
mod keys;
mod ledger;
mod partials;
mod timers;

use std::mem::take;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampMicrosecondType};

use self::book::{Book, Meeting, NIL, Remains, Session, Stage};
pub use self::export::{Extent, SessionExport};
use self::keys::Keys;
use self::ledger::Ledger;
use self::partials::{Chain, Partials};
use self::timers::Timers;
use super::eval::{all_nullable, batch_of, failure};
use super::fate::{ArrivedRows, FateCounts, Judged, Refused, WindowCounts};
use super::graph::{AggregateInput, AggregateSpec, Policy};
use super::merge::window_fields;
use crate::change::{ChangeKind, Changes, Reason};
use crate::error::{Error, Result};
use crate::sql::statement::{Emit, OnLate};
use crate::state::layout::{Layout, conform, rows_at};
use crate::state::{Account, Memory};
use crate::time::format_us;
use crate::window::{Fate, Window, WindowKind, fate};

/// Name of the last column: the published identities a session replaces, as text, or NULL.
pub const SUPERSEDES: &str = "_supersedes";

/// A head with more slots is sealed, so that it stays in the processor's cache.
const HEAD_SLOTS_MAX: usize = 1 << 16;
/// Sessions evaluated at once, and rows of a batch given out.
const OUTPUT_ROWS_MAX: usize = 1 << 15;
/// Sessions read ahead of their use.
const FETCH_ROWS: usize = 512;
/// Stored parts and numbered keys may exceed what is needed by this much before they are rewritten.
const SLACK: usize = 1 << 16;

/// What [`SessionAggregate`] gives out. Callers hand in the same value until they have taken everything.
#[derive(Debug, Default)]
pub struct SessionOutput {
    /// Changes in the order in which they hold. An identity is upserted before it is deleted, never the other way round.
    pub changes: Vec<Changes>,
    /// Refused rows that are kept or queued; dropped ones are only counted. Origins are those of the rows handed in last.
    pub refused: Vec<Refused>,
    /// Fates of rows and pairs. Copies of one source row (a join) that stand together count as one row, and as one pair
    /// for each session that takes or refuses them.
    pub counts: FateCounts,
    /// Counts to be added to those of a window: of sessions that closed, of late rows, of refused rows.
    pub windows: Vec<(Window, WindowCounts)>,
    /// Counts to be taken away again: of sessions that had closed and whose bounds have changed.
    pub windows_gone: Vec<(Window, WindowCounts)>,
}

/// A value to be published: a session as it was at some moment.
#[derive(Debug)]
struct Value {
    key: u32,
    window: Window,
    rows: u64,
    chain: Chain,
    reason: Reason,
    supersedes: Vec<Window>,
}

/// A published identity that no longer holds.
#[derive(Debug)]
struct Gone {
    key: u32,
    window: Window,
    reason: Reason,
}

/// Whether a session's bounds are those it had before a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounds {
    Kept,
    New,
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is taken by a session, into a slot of the head.
    Taken { fate: Fate, session: u32, slot: usize },
    /// It is refused by the session `window` of a key.
    Refused { late: bool, window: Window, key: u32 },
    /// Its interval would leave the range of times.
    NoWindow,
}

impl Verdict {
    /// The verdict alone: equal for copies of a row that meet the same session.
    fn without_slot(self) -> Self {
        match self {
            Self::Taken { fate, session, .. } => Self::Taken { fate, session, slot: 0 },
            other => other,
        }
    }
}

/// The session windows of one shard. See the module's documentation.
pub struct SessionAggregate {
    event_time: usize,
    gap_us: i64,
    policy: Policy,
    layout: Arc<Layout>,
    schema: SchemaRef,
    keys: Keys,
    book: Book,
    partials: Partials,
    timers: Timers,
    /// Sessions to look at when the epoch ends.
    touched: Vec<u32>,
    /// Values and deletes not given out yet.
    values: Vec<Value>,
    gone: Vec<Gone>,
    /// Chains of expired sessions, needed until `values` are out.
    released: Vec<Chain>,
    account: Account,
}

impl std::fmt::Debug for SessionAggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionAggregate").field("sessions", &self.book.len()).finish_non_exhaustive()
    }
}

impl SessionAggregate {
    /// An operator without sessions. Its input rows have the schema `input`.
    ///
    /// # Errors
    /// `Unsupported` over the results of another window; `Internal` if the window is no session.
    pub fn try_new(spec: &AggregateSpec, policy: Policy, input: &Schema) -> Result<Self> {
        let WindowKind::Session { gap_us } = spec.window.kind() else {
            return Err(Error::internal("a session operator was given a window that is no session"));
        };
        if spec.input != AggregateInput::Rows {
            return Err(Error::unsupported("a session window over the results of another window")
                .with_hint("use TUMBLE, HOP or CUMULATE over the inner results"));
        }
        let layout = Arc::new(Layout::try_new(spec, input).map_err(failure)?);
        Ok(Self {
            event_time: spec.event_time,
            gap_us,
            policy,
            schema: output_schema(&layout),
            keys: Keys::try_new(Arc::clone(layout.key_schema())).map_err(failure)?,
            book: Book::new(gap_us, policy),
            partials: Partials::try_new(Arc::clone(&layout)).map_err(failure)?,
            timers: Timers::new(gap_us),
            layout,
            touched: vec![],
            values: vec![],
            gone: vec![],
            released: vec![],
            account: Memory::unlimited().fixed_account("sessions"),
        })
    }

    /// Counts what it holds, and fails when there is no room for it in `memory`.
    #[must_use]
    pub fn with_memory(mut self, memory: &Memory) -> Self {
        self.account = memory.fixed_account("sessions");
        self
    }

    /// Columns of upserts: `window_start`, `window_end`, keys, aggregates, `_event_count`, [`SUPERSEDES`]. Deletes have
    /// the same columns, all nullable, with nulls after the keys.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Judges rows of this shard in arrival order and takes those that may be taken.
    ///
    /// # Errors
    /// Of kind `Data` when an expression fails, `Unavailable` when memory ran out. The operator is then of no more use.
    pub fn on_rows(&mut self, rows: &ArrivedRows, out: &mut SessionOutput) -> Result<()> {
        let inputs = self.layout.inputs(&rows.rows).map_err(failure)?;
        let times = rows.rows.column(self.event_time).as_primitive::<TimestampMicrosecondType>();
        self.on_inputs(&inputs, times, &rows.judged, rows.origin.as_deref(), out)
    }

    /// As [`SessionAggregate::on_rows`], for rows whose keys and arguments have been evaluated by [`Layout::inputs`].
    ///
    /// # Errors
    /// See [`SessionAggregate::on_rows`].
    pub fn on_inputs(
        &mut self,
        inputs: &RecordBatch,
        times: &TimestampMicrosecondArray,
        judged: &Judged,
        origin: Option<&[u32]>,
        out: &mut SessionOutput,
    ) -> Result<()> {
        let mut keys = Vec::new();
        let key_columns = &inputs.columns()[..self.layout.keys_len()];
        self.keys.number(key_columns, inputs.num_rows(), &mut keys).map_err(failure)?;
        self.book.set_keys(self.keys.len());
        let mut ledger = Ledger::new(self.policy, origin, inputs.num_rows(), out);
        for from in (0..keys.len()).step_by(FETCH_ROWS) {
            let keys = &keys[from..keys.len().min(from + FETCH_ROWS)];
            self.book.fetch_newest(keys);
            for (row, key) in (from..).zip(keys) {
                let (ts, w) = (times.value(row), judged.get(row));
                let verdict = if times.is_null(row) { Verdict::NoWindow } else { self.take_row(*key, ts, w, out) };
                ledger.note(row, ts, w, verdict, out);
            }
        }
        let (slots, taken) = ledger.close(out);
        if !slots.is_empty() {
            let inputs = rows_at(inputs, &taken).map_err(failure)?;
            self.partials.update(&inputs, &slots).map_err(failure)?;
        }
        if self.partials.head_slots() > HEAD_SLOTS_MAX {
            self.partials.seal().map_err(failure)?;
        }
        if self.account.is_limited() {
            let bytes = self.memory_bytes();
            if !self.account.hold(bytes) {
                return Err(failure(self.account.memory().exhausted("open sessions", bytes)));
            }
        }
        Ok(())
    }

    /// The watermark made by all rows so far is `w`: closes and expires sessions, and gives out all values they had to
    /// give before the call returns.
    ///
    /// # Errors
    /// See [`SessionAggregate::on_rows`].
    pub fn on_watermark(&mut self, w: i64, out: &mut SessionOutput) -> Result<()> {
        let due = self.timers.take_due(w);
        for due in due.chunks(FETCH_ROWS) {
            self.book.fetch(due.iter().copied());
            self.book.fetch(due.iter().map(|session| self.book.newer(*session)));
            due.iter().for_each(|session| self.look_at(*session, w, out));
        }
        self.give_out(out)
    }

    /// The epoch ends: gives out one correction for each session that late rows changed, deletes for identities that no
    /// longer hold, and with `early` the values of open sessions that rows changed, under `EMIT CHANGES`. Under it, an
    /// open session that replaces a published one is given out even without `early`, so that no number vanishes.
    ///
    /// # Errors
    /// See [`SessionAggregate::on_rows`].
    pub fn on_epoch(&mut self, early: bool, out: &mut SessionOutput) -> Result<()> {
        for session in take(&mut self.touched) {
            let replaces = self.book.extra(session).is_some_and(|extra| !extra.supersedes.is_empty());
            let s = self.book.get(session);
            let replaces = replaces && !s.published;
            match s.stage {
                Stage::Closed if s.dirty => self.publish(session, Reason::LateData),
                Stage::Open if early || replaces => self.publish(session, Reason::Early),
                Stage::Open => {
                    self.touched.push(session);
                    continue;
                }
                _ => {}
            }
            self.book.get_mut(session).listed = false;
            self.book.reuse(session);
        }
        self.give_out(out)
    }

    /// How many sessions are held, bounds of expired ones included.
    pub fn sessions(&self) -> usize {
        self.book.len()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
            + self.book.memory_bytes()
            + self.partials.memory_bytes()
            + self.timers.memory_bytes()
            + self.touched.capacity() * size_of::<u32>()
    }

    /// Judges a row, and takes it into its session.
    fn take_row(&mut self, key: usize, ts: i64, w: i64, out: &mut SessionOutput) -> Verdict {
        let Some(end) = ts.checked_add(self.gap_us) else { return Verdict::NoWindow };
        if let Some((number, session)) = self.book.growing(key, ts, w) {
            session.window.end = session.window.end.max(end);
            session.rows += 1;
            let slot = self.partials.slot(&mut session.chain);
            self.list_early(number);
            return Verdict::Taken { fate: Fate::OnTime, session: number, slot };
        }
        let row = Window { start: ts, end };
        let meeting = self.meet(key as u32, row, w, out);
        let met = [meeting.last, meeting.first];
        let met = met.into_iter().filter(|session| *session != NIL);
        let worst = met.clone().map(|session| self.book.fate(session, w)).max();
        let fate = worst.unwrap_or_else(|| fate(end, w, self.policy.allowed_lateness_us));
        if fate == Fate::Expired || fate == Fate::Late && !matches!(self.policy.on_late, OnLate::Update { .. }) {
            let by = met.clone().find(|session| self.book.fate(*session, w) == fate);
            let window = by.map_or(row, |session| self.book.get(session).window);
            return Verdict::Refused { late: fate == Fate::Late, window, key: key as u32 };
        }
        for session in met {
            if self.book.get(session).stage == Stage::Open && self.book.get(session).window.end <= w {
                self.close(session, out);
            }
        }
        let (session, bounds) = self.merge(key as u32, row, meeting, fate, w, out);
        Verdict::Taken { fate, session, slot: self.add(session, fate, bounds, out) }
    }

    /// The sessions that `row` meets. Those that are to be forgotten are, before the list changes around them.
    fn meet(&mut self, key: u32, row: Window, w: i64, out: &mut SessionOutput) -> Meeting {
        let (mut at, newer) = self.book.before(key, row.end);
        while at != NIL && self.book.forgotten_at(at) <= w {
            let older = self.book.get(at).older;
            self.advance(at, w, out);
            at = older;
        }
        self.book.meet(row, (at, newer))
    }

    /// The session of `row` after merging it with those it meets, and whether that has the bounds it had.
    fn merge(
        &mut self,
        key: u32,
        row: Window,
        met: Meeting,
        fate: Fate,
        w: i64,
        out: &mut SessionOutput,
    ) -> (u32, Bounds) {
        let both = [met.first, met.last].into_iter().filter(|session| *session != NIL);
        let window = both.clone().map(|session| self.book.get(session).window).fold(row, hull);
        if met.last != NIL && self.book.get(met.last).window == window {
            return (met.last, Bounds::Kept);
        }
        let reason = if fate == Fate::Late { Reason::LateData } else { Reason::Early };
        let mut replaced = Vec::new();
        both.for_each(|session| self.leave(session, reason, &mut replaced, out));
        let reopens = met.last != NIL && window.end > w && self.book.get(met.last).stage == Stage::Closed;
        let session = match met.last {
            NIL => self.insert(key, window, met.older, met.newer, w),
            // A closed session's timer is set for its expiry, which may be after the close of the new bounds.
            last if reopens => {
                let older = self.book.get(last).older;
                let remains = self.book.kill(last);
                let session = self.insert(key, window, older, met.newer, w);
                self.inherit(session, remains);
                session
            }
            last => last,
        };
        if met.first != NIL {
            let remains = self.book.kill(met.first);
            self.inherit(session, remains);
        }
        if !replaced.is_empty() {
            self.book.extra_mut(session).supersedes = replaced;
        }
        let s = self.book.get_mut(session);
        s.window = window;
        s.stage = if window.end > w { Stage::Open } else { Stage::Closed };
        (session, Bounds::New)
    }

    /// Adds a row to the counts of its session; says its slot.
    fn add(&mut self, session: u32, fate: Fate, bounds: Bounds, out: &mut SessionOutput) -> usize {
        if fate == Fate::Late {
            self.book.extra_mut(session).late += 1;
        }
        let s = self.book.get_mut(session);
        s.rows += 1;
        let fresh = take(&mut s.frozen);
        let slot = if fresh { self.partials.fresh_slot(&mut s.chain) } else { self.partials.slot(&mut s.chain) };
        if s.stage == Stage::Open {
            self.list_early(session);
            return slot;
        }
        if self.policy.emit != Emit::OnExpiry {
            s.dirty = true;
            list(s, session, &mut self.touched);
        }
        let window = s.window;
        let counts = match bounds {
            Bounds::Kept => WindowCounts { late: 1, ..WindowCounts::default() },
            Bounds::New => self.counts(session),
        };
        out.windows.push((window, counts));
        slot
    }

    /// A new session on the list of `key`, with its timer.
    fn insert(&mut self, key: u32, window: Window, older: u32, newer: u32, w: i64) -> u32 {
        let session = self.book.insert(key, window, older, newer);
        let deadline = if window.end > w { window.end } else { self.book.expired_at(window.end) };
        self.set_timer(session, deadline);
        session
    }

    /// Gives a session what an older one, now dead, held.
    fn inherit(&mut self, session: u32, remains: Remains) {
        let s = self.book.get_mut(session);
        s.frozen = if s.chain == Chain::EMPTY { remains.frozen } else { s.frozen };
        s.chain = self.partials.join(remains.chain, s.chain);
        s.rows += remains.rows;
        if remains.late > 0 {
            self.book.extra_mut(session).late += remains.late;
        }
    }

    /// The session's bounds no longer hold: what was published under them is deleted, what was counted is taken back.
    /// Adds to `replaced` the published identities that the new bounds replace.
    fn leave(&mut self, session: u32, reason: Reason, replaced: &mut Vec<Window>, out: &mut SessionOutput) {
        let counts = self.counts(session);
        let inherited = match self.book.extra(session) {
            Some(_) => take(&mut self.book.extra_mut(session).supersedes),
            None => Vec::new(),
        };
        let s = self.book.get_mut(session);
        if s.stage == Stage::Closed {
            out.windows_gone.push((s.window, counts));
        }
        s.dirty = false;
        if take(&mut s.published) {
            replaced.push(s.window);
            self.gone.push(Gone { key: s.key, window: s.window, reason });
        } else {
            replaced.extend(inherited);
        }
    }

    /// Rows the session has taken.
    fn counts(&self, session: u32) -> WindowCounts {
        let late = self.book.extra(session).map_or(0, |extra| extra.late);
        WindowCounts { on_time: self.book.get(session).rows - late, late, ..WindowCounts::default() }
    }

    /// A session's timer is due.
    fn look_at(&mut self, session: u32, w: i64, out: &mut SessionOutput) {
        self.book.set_timed(session, false);
        if self.book.get(session).stage == Stage::Dead {
            self.book.reuse(session);
        } else if let Some(deadline) = self.advance(session, w, out) {
            self.set_timer(session, deadline);
        }
    }

    /// Brings a session to the stage that `w` asks for. Says when to look again, or nothing if it is dead.
    fn advance(&mut self, session: u32, w: i64, out: &mut SessionOutput) -> Option<i64> {
        let end = self.book.get(session).window.end;
        let expired_at = self.book.expired_at(end);
        if self.book.get(session).stage == Stage::Open && end <= w {
            self.close(session, out);
        }
        if self.book.get(session).stage == Stage::Closed && expired_at <= w {
            self.expire(session);
        }
        match self.book.get(session).stage {
            Stage::Open => Some(end),
            Stage::Closed => Some(expired_at),
            Stage::Expired if self.book.forgotten_at(session) > w => Some(self.book.forgotten_at(session)),
            Stage::Expired | Stage::Dead => {
                self.book.kill(session);
                None
            }
        }
    }

    /// The session's end has come.
    fn close(&mut self, session: u32, out: &mut SessionOutput) {
        out.windows.push((self.book.get(session).window, self.counts(session)));
        self.book.get_mut(session).stage = Stage::Closed;
        if self.policy.emit != Emit::OnExpiry {
            self.publish(session, Reason::Initial);
        }
    }

    /// The session can take no more rows: its last value goes out and its partial states go.
    fn expire(&mut self, session: u32) {
        if self.policy.emit == Emit::OnExpiry {
            self.publish(session, Reason::Initial);
        } else if self.book.get(session).dirty {
            self.publish(session, Reason::LateData);
        }
        self.book.take_extra(session);
        let s = self.book.get_mut(session);
        s.stage = Stage::Expired;
        self.released.push(std::mem::replace(&mut s.chain, Chain::EMPTY));
    }

    /// The session's value as it is now is to go out. Rows that come later go to a part of their own.
    fn publish(&mut self, session: u32, reason: Reason) {
        let supersedes = self.book.extra(session).map_or(Vec::new(), |extra| extra.supersedes.clone());
        let s = self.book.get_mut(session);
        (s.published, s.dirty, s.frozen) = (true, false, true);
        self.values.push(Value { key: s.key, window: s.window, rows: s.rows, chain: s.chain, reason, supersedes });
    }

    fn set_timer(&mut self, session: u32, deadline: i64) {
        self.book.set_timed(session, true);
        self.timers.set(deadline, session);
    }

    fn list_early(&mut self, session: u32) {
        if matches!(self.policy.emit, Emit::Changes { .. }) {
            list(self.book.get_mut(session), session, &mut self.touched);
        }
    }

    /// Gives out what is to go out, and forgets partial states that were only needed for it.
    fn give_out(&mut self, out: &mut SessionOutput) -> Result<()> {
        let (values, gone) = (take(&mut self.values), take(&mut self.gone));
        if !values.is_empty() {
            self.partials.seal().map_err(failure)?;
        }
        for reason in [Reason::Early, Reason::Initial, Reason::LateData] {
            let of_reason: Vec<&Value> = values.iter().filter(|value| value.reason == reason).collect();
            for values in of_reason.chunks(OUTPUT_ROWS_MAX) {
                out.changes.push(Changes { kind: ChangeKind::Upsert, reason, rows: self.upserts(values)? });
            }
        }
        for reason in [Reason::Early, Reason::LateData] {
            let of_reason: Vec<&Gone> = gone.iter().filter(|gone| gone.reason == reason).collect();
            for gone in of_reason.chunks(OUTPUT_ROWS_MAX) {
                out.changes.push(Changes { kind: ChangeKind::Delete, reason, rows: self.deletes(gone)? });
            }
        }
        self.partials.release(&take(&mut self.released));
        self.tidy()
    }

    fn upserts(&self, values: &[&Value]) -> Result<RecordBatch> {
        let chains: Vec<Chain> = values.iter().map(|value| value.chain).collect();
        let mut columns = bounds(values.iter().map(|value| value.window));
        columns.extend(self.keys.columns_of(values.iter().map(|value| value.key)).map_err(failure)?);
        columns.extend(self.partials.evaluate(&chains).map_err(failure)?);
        columns.push(Arc::new(Int64Array::from_iter_values(values.iter().map(|value| value.rows as i64))));
        columns.push(Arc::new(StringArray::from_iter(values.iter().map(|v| text_of(&v.supersedes)))));
        batch_of(&self.schema, conform(columns, self.schema.fields()).map_err(failure)?, values.len())
    }

    fn deletes(&self, gone: &[&Gone]) -> Result<RecordBatch> {
        let mut columns = bounds(gone.iter().map(|gone| gone.window));
        columns.extend(self.keys.columns_of(gone.iter().map(|gone| gone.key)).map_err(failure)?);
        let schema = all_nullable(&self.schema);
        let known = columns.len();
        columns.extend(schema.fields()[known..].iter().map(|field| new_null_array(field.data_type(), gone.len())));
        batch_of(&schema, conform(columns, schema.fields()).map_err(failure)?, gone.len())
    }

    /// Rewrites parts and renumbers keys where most are no longer needed. Nothing may be waiting to go out.
    fn tidy(&mut self) -> Result<()> {
        if self.partials.stored_rows() > 4 * self.book.len() + SLACK {
            self.partials.seal().map_err(failure)?;
            self.partials.compact(&mut self.book.chains()).map_err(failure)?;
        }
        let alive = self.book.keys_alive();
        if self.keys.len() > 2 * alive + SLACK || alive == 0 && self.keys.len() > 0 {
            let numbers = self.book.renumber();
            self.keys.retain(&numbers).map_err(failure)?;
        }
        Ok(())
    }
}

/// Puts a session on the list of those to look at when the epoch ends.
fn list(s: &mut Session, session: u32, touched: &mut Vec<u32>) {
    if !s.listed {
        s.listed = true;
        touched.push(session);
    }
}

/// The smallest window that holds both.
fn hull(a: Window, b: Window) -> Window {
    Window { start: a.start.min(b.start), end: a.end.max(b.end) }
}

/// `window_start`, `window_end`, the layout's results, [`SUPERSEDES`].
fn output_schema(layout: &Layout) -> SchemaRef {
    let supersedes = Arc::new(Field::new(SUPERSEDES, DataType::Utf8, true));
    let fields = window_fields().into_iter().chain(layout.result_fields().iter().cloned()).chain([supersedes]);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn bounds(windows: impl Iterator<Item = Window> + Clone) -> Vec<ArrayRef> {
    let times = |times: TimestampMicrosecondArray| Arc::new(times.with_timezone("UTC")) as ArrayRef;
    let starts = TimestampMicrosecondArray::from_iter_values(windows.clone().map(|window| window.start));
    vec![times(starts), times(TimestampMicrosecondArray::from_iter_values(windows.map(|window| window.end)))]
}

/// `[start, end)` of each window in RFC 3339, joined by `, `; nothing if there are none.
fn text_of(windows: &[Window]) -> Option<String> {
    let text = |window: &Window| format!("[{}, {})", format_us(window.start), format_us(window.end));
    (!windows.is_empty()).then(|| windows.iter().map(text).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
