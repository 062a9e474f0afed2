//! What a job keeps in a checkpoint, and how it goes on from one.
//!
//! A checkpoint is taken where an epoch ends: every head has been sealed and merged, late corrections have been fired. So
//! it is what the sequencer knows of its splits, the merge's chunks, and which windows have fired. Everything above the
//! merge is rebuilt: published numbers come from the stored versions of live windows, and what the stages remember from
//! evaluating those windows once more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::common::DataFusionError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::results::Results;
use super::sequencer::shards_of;
use crate::change::Changes;
use crate::checkpoint::{Snapshot, StateRows};
use crate::connectors::Coverage;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::failure;
use crate::operators::fate::FateCounts;
use crate::operators::graph::Policy;
use crate::operators::ledger::{Ledger, LedgerState, WindowStatus, rows};
use crate::operators::merge::MergeState;
use crate::operators::sequence::SequencerState;
use crate::operators::session::{SessionAggregate, SessionExport};
use crate::state::Chunk;
use crate::window::Window;

/// A checkpoint as read, and what goes with it.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The state of [`Snapshot::state`].
    pub state: Value,
    /// The batches of [`Snapshot::batches`], by name.
    pub batches: HashMap<String, RecordBatch>,
    /// Totals up to and including that epoch.
    pub counts: FateCounts,
    /// Every stored version of a window that ends at or after [`live_from_us`]; others do no harm.
    pub published: Vec<RecordBatch>,
}

/// What the sequencer adds to a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SequencerFacts {
    pub sequencer: SequencerState,
    /// The W workers were told last.
    pub told_w: i64,
    /// When early values were given last, by the clock.
    pub last_early_us: Option<i64>,
    pub newest_time: i64,
    /// Of each source, in the order of their nodes.
    #[serde(default)]
    pub rejected: Vec<Rejected>,
}

/// What was rejected of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rejected {
    pub rows: u64,
    /// What was wrong with the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// A job's state, as JSON in [`Snapshot::state`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobState {
    #[serde(flatten)]
    pub facts: SequencerFacts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeState>,
    pub ledger: LedgerState,
    /// Numbers of what was noted of windows, the first one whole.
    #[serde(default)]
    pub windows: NotedWindows,
    /// Number of the rows that each nested window holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<u64>,
    #[serde(default)]
    pub sessions: SessionsState,
}

/// How much has been said of changes since everything was said.
#[derive(Debug, Default)]
pub(super) struct Exported {
    rows: usize,
    exports: usize,
}

/// More exports than this are replaced by a whole one.
const EXPORTS_MAX: usize = 32;
/// So many rows are not worth a whole export.
const EXPORTED_ROWS_MIN: usize = 4096;

impl Exported {
    /// Whether the changes, with `more` rows of them to come, are more to keep and to read than everything, which is
    /// `rows` rows.
    pub fn outweigh(&self, more: usize, rows: usize) -> bool {
        self.rows + more > rows.max(EXPORTED_ROWS_MIN) || self.exports >= EXPORTS_MAX
    }

    /// Everything has been said, or `rows` rows of changes.
    pub fn note(&mut self, whole: bool, rows: usize) {
        match whole {
            true => *self = Self::default(),
            false => {
                self.rows += rows;
                self.exports += usize::from(rows > 0);
            }
        }
    }
}

/// The numbers of the batches that tell a ledger's windows, in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct NotedWindows {
    next: u64,
    batches: Vec<u64>,
}

/// What checkpoints keep of a ledger's windows: everything once, then what changed.
#[derive(Debug, Default)]
pub(super) struct LedgerExports {
    /// Number of the next batch.
    next: u64,
    batches: Vec<(u64, RecordBatch)>,
    exported: Exported,
}

impl LedgerExports {
    /// Notes the windows that `changed` in `ledger` in an epoch.
    pub fn add(&mut self, ledger: &Ledger, changed: &[(Window, WindowStatus)]) -> Result<()> {
        let all = ledger.windows();
        let whole = self.batches.is_empty() || self.exported.outweigh(changed.len(), all.len());
        let rows = match whole {
            true => {
                self.batches.clear();
                rows::encode(&all.collect::<Vec<_>>())?
            }
            false => rows::encode(&changed.iter().filter(|(_, status)| !status.partial).copied().collect::<Vec<_>>())?,
        };
        self.exported.note(whole, rows.num_rows());
        if rows.num_rows() > 0 {
            self.batches.push((self.next, rows));
            self.next += 1;
        }
        Ok(())
    }

    fn state(&self) -> NotedWindows {
        NotedWindows { next: self.next, batches: self.batches.iter().map(|(number, _)| *number).collect() }
    }

    fn batches(&self) -> impl Iterator<Item = (String, RecordBatch)> {
        self.batches.iter().map(|(number, rows)| (windows_name(*number), rows.clone()))
    }
}

fn windows_name(number: u64) -> String {
    format!("w{number}")
}

/// The numbers of each shard's exports, in order, the first one whole.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SessionsState {
    next: u64,
    shards: Vec<Vec<u64>>,
}

/// What workers said of their sessions since each last said everything.
#[derive(Debug, Default)]
pub(super) struct SessionExports {
    /// Number of the next export.
    next: u64,
    shards: Vec<Vec<(u64, SessionExport)>>,
}

impl SessionExports {
    /// Takes what worker `shard` said.
    pub fn add(&mut self, shard: usize, export: SessionExport) {
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, Vec::new);
        }
        let exports = &mut self.shards[shard];
        if export.whole {
            exports.clear();
        }
        if export.whole || export.rows() > 0 {
            exports.push((self.next, export));
            self.next += 1;
        }
    }

    fn state(&self) -> SessionsState {
        let numbers = |exports: &Vec<(u64, SessionExport)>| exports.iter().map(|(number, _)| *number).collect();
        SessionsState { next: self.next, shards: self.shards.iter().map(numbers).collect() }
    }

    fn batches(&self) -> impl Iterator<Item = (String, RecordBatch)> {
        self.shards.iter().flatten().flat_map(|(number, export)| {
            let batches = [&export.live, &export.bounds, &export.removed];
            let named = PARTS.into_iter().zip(batches).filter(|(_, batch)| batch.num_rows() > 0);
            named.map(|(part, batch)| (session_name(*number, part), batch.clone()))
        })
    }
}

/// Parts of an export in names: sessions, bounds, empty places.
const PARTS: [&str; 3] = ["live", "bounds", "removed"];

fn session_name(number: u64, part: &str) -> String {
    format!("s{number}.{part}")
}

/// Gives `aggregate`, one of `shards` workers, its sessions of a checkpoint.
pub(super) fn import_sessions(
    aggregate: &mut SessionAggregate,
    (shard, shards): (usize, usize),
    recovered: &Recovered,
) -> Result<()> {
    let state = JobState::read(&recovered.state)?;
    let empty = aggregate.no_sessions();
    for numbers in &state.sessions.shards {
        let part = |number: u64, part: &str, empty: &RecordBatch| {
            recovered.batches.get(&session_name(number, part)).unwrap_or(empty).clone()
        };
        let exports: Vec<SessionExport> = (numbers.iter().enumerate())
            .map(|(i, number)| SessionExport {
                whole: i == 0,
                live: part(*number, PARTS[0], &empty.live),
                bounds: part(*number, PARTS[1], &empty.bounds),
                removed: part(*number, PARTS[2], &empty.removed),
            })
            .collect();
        aggregate.import(&exports, |keys, rows| {
            Ok(shards_of(keys, rows, shards)?.into_iter().map(|of| of == shard).collect())
        })?;
    }
    Ok(())
}

/// The least end of a window that is live in the state of a checkpoint, µs.
///
/// # Errors
/// `Corrupt` if it is no state of a job.
pub fn live_from_us(state: &Value, policy: &Policy) -> Result<i64> {
    Ok(JobState::read(state)?.facts.told_w.saturating_sub(policy.allowed_lateness_us))
}

impl JobState {
    pub fn read(state: &Value) -> Result<Self> {
        Self::deserialize(state)
            .map_err(|e| Error::new(ErrorKind::Corrupt, "a job's state is not of this version's shape").with_source(e))
    }
}

impl Recovered {
    /// What the `source`-th source had when its job started, if that was kept.
    pub(super) fn covered(&self, source: usize) -> Result<Option<Coverage>> {
        let Some(batch) = self.batches.get(&covered_name(source)) else { return Ok(None) };
        let damaged = || Error::new(ErrorKind::Corrupt, "what a job keeps of its input is no text");
        let texts = batch.columns().first().and_then(|column| column.as_string_opt::<i32>()).ok_or_else(damaged)?;
        let text = texts.iter().next().flatten().ok_or_else(damaged)?;
        serde_json::from_str(text).map(Some).map_err(|e| damaged().with_source(e))
    }

    fn batch(&self, name: &str) -> Result<RecordBatch> {
        let missing = || Error::new(ErrorKind::Corrupt, format!("a batch of state is missing: batch=`{name}`"));
        self.batches.get(name).cloned().ok_or_else(missing)
    }
}

fn covered_name(source: usize) -> String {
    format!("i{source}")
}

/// What the `source`-th source had when its job started, to be kept under a name.
pub(super) fn covered_batch(source: usize, coverage: &Coverage) -> Result<(String, RecordBatch)> {
    let failed = "what a job keeps of its input cannot be written";
    let text = serde_json::to_string(coverage).map_err(|e| Error::internal(failed).with_source(e))?;
    let column: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let batch = RecordBatch::try_from_iter([("coverage", column)]);
    Ok((covered_name(source), batch.map_err(|e| Error::internal(failed).with_source(e))?))
}

fn chunk_name(number: u64) -> String {
    format!("c{number}")
}

fn nested_name(stage: usize, number: u64) -> String {
    format!("n{stage}.{number}")
}

impl Results {
    /// The checkpoint at the end of an epoch.
    pub fn snapshot(&self, facts: SequencerFacts) -> Result<Snapshot> {
        let mut batches: Vec<(String, Arc<dyn StateRows>)> = Vec::new();
        if let Some(merge) = &self.merge {
            let chunks = merge.chunks().map(|(number, chunk)| (chunk_name(number), chunk.clone()));
            batches.extend(chunks.map(|(name, chunk)| (name, Arc::new(ChunkRows(chunk)) as _)));
        }
        let held = self.chain.as_ref().map_or(Ok(Vec::new()), |chain| chain.held_rows())?;
        let nested = held.iter().map(|(number, _)| *number).collect();
        let held = held.into_iter().enumerate();
        batches.extend(held.map(|(stage, (number, rows))| (nested_name(stage, number), Arc::new(rows) as _)));
        let merge = self.merge.as_ref().map(|merge| merge.state());
        batches.extend(self.sessions.batches().map(|(name, rows)| (name, Arc::new(rows) as _)));
        batches.extend(self.covered.iter().map(|(name, rows)| (name.clone(), Arc::new(rows.clone()) as _)));
        batches.extend(self.noted.batches().map(|(name, rows)| (name, Arc::new(rows) as _)));
        let (ledger, windows, sessions) = (self.ledger.state(), self.noted.state(), self.sessions.state());
        let state = JobState { facts, merge, ledger, windows, nested, sessions };
        let state = serde_json::to_value(state)
            .map_err(|e| Error::internal("a job's state cannot be written").with_source(e))?;
        Ok(Snapshot { state, batches })
    }

    /// Goes on from a checkpoint; `sessions` are the current values of sessions that have published. What had not been published yet is given with the next epoch.
    pub fn restore(&mut self, state: JobState, recovered: &Recovered, sessions: Vec<Changes>) -> Result<()> {
        self.counts = recovered.counts.clone();
        self.sessions.next = state.sessions.next;
        self.noted.next = state.windows.next;
        let mut windows = Vec::new();
        for number in &state.windows.batches {
            windows.extend(rows::decode(&recovered.batch(&windows_name(*number))?)?);
        }
        self.ledger = Ledger::restore(state.ledger, windows);
        let dirty = self.ledger.windows().filter(|(_, status)| status.dirty);
        let held_back: BTreeSet<_> = dirty.map(|(window, _)| window).collect();
        if let (Some(merge), Some(stored)) = (&mut self.merge, state.merge) {
            let schema = merge.chunk_schema().clone();
            let restored = merge.restore(stored, |number| {
                let chunk = recovered.batch(&chunk_name(number))?;
                match chunk.schema().fields() == schema.fields() {
                    true => Ok(chunk),
                    false => Err(other_states().into()),
                }
            });
            restored.map_err(|NotRestored(error)| error)?;
        }
        let Some(chain) = &mut self.chain else { return Ok(()) };
        let held = state.nested.iter().enumerate();
        let held = held.map(|(stage, number)| Ok((*number, recovered.batch(&nested_name(stage, *number))?)));
        chain.restore(state.facts.told_w, &recovered.published, held.collect::<Result<_>>()?)?;
        if !chain.must_reconcile(&held_back) {
            return Ok(());
        }
        let mut current = sessions;
        if let Some(merge) = &self.merge {
            current.extend(merge.current().map_err(failure)?);
        }
        chain.reconcile(current, &recovered.published, &held_back, &mut self.versions)
    }
}

/// A chunk's rows as a checkpoint takes them.
#[derive(Debug)]
struct ChunkRows(Chunk);

impl StateRows for ChunkRows {
    fn batches(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + '_> {
        Box::new(self.0.batches().map(|batch| batch.map_err(failure)))
    }
}

/// Why a merge could not go on from a checkpoint.
struct NotRestored(Error);

impl From<Error> for NotRestored {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<DataFusionError> for NotRestored {
    fn from(error: DataFusionError) -> Self {
        Self(failure(error))
    }
}

/// The view's aggregates keep other states than those stored.
fn other_states() -> Error {
    Error::new(ErrorKind::Conflict, "open windows were kept with other columns than the view's aggregates have now")
        .with_hint("CREATE OR REPLACE MATERIALIZED VIEW … RESTART computes the view anew from its source")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::fate::WindowCounts;
    use crate::sql::statement::{Emit, OnExpired, OnLate};

    const POLICY: Policy = Policy {
        allowed_lateness_us: 1000,
        on_late: OnLate::Drop,
        on_expired: OnExpired::Drop,
        emit: Emit::OnWindowClose,
    };

    fn add(ledger: &mut Ledger, sessions: std::ops::Range<i64>) {
        let counts = WindowCounts { on_time: 1, ..WindowCounts::default() };
        sessions.for_each(|i| ledger.add(&POLICY, Window { start: i, end: i + 10 }, counts));
    }

    /// Rows that an epoch adds to what is kept, and rows kept after it.
    fn epoch(exports: &mut LedgerExports, ledger: &mut Ledger) -> (usize, usize) {
        let changed = ledger.take_changed();
        let known = exports.next;
        exports.add(ledger, &changed).unwrap();
        let rows = |from: u64| exports.batches.iter().filter(|(n, _)| *n >= from).map(|(_, b)| b.num_rows()).sum();
        let read = exports.batches.iter().flat_map(|(_, batch)| rows::decode(batch).unwrap());
        let restored = Ledger::restore(ledger.state(), read);
        assert!(restored.windows().eq(ledger.windows()) && restored.state() == ledger.state());
        (rows(known), rows(0))
    }

    #[test]
    fn c96_a_checkpoint_keeps_of_windows_what_changed_and_nothing_of_those_long_expired() {
        let (mut ledger, mut exports) = (Ledger::default(), LedgerExports::default());
        add(&mut ledger, 0..100_000);
        assert_eq!(epoch(&mut exports, &mut ledger), (100_000, 100_000));
        add(&mut ledger, 50_000..50_010);
        assert_eq!(epoch(&mut exports, &mut ledger), (10, 100_010));
        // Ten windows close.
        ledger.on_watermark(&POLICY, 19, &[]);
        assert_eq!(epoch(&mut exports, &mut ledger), (10, 100_020));
        assert_eq!(epoch(&mut exports, &mut ledger), (0, 100_020));
        for _ in 0..EXPORTS_MAX {
            add(&mut ledger, 50_000..50_001);
            assert!(epoch(&mut exports, &mut ledger).1 <= 100_020 + EXPORTS_MAX);
        }
        assert!(exports.batches.len() < EXPORTS_MAX, "{}", exports.batches.len());
        ledger.on_watermark(&POLICY, 1_000_000, &[]);
        let (_, kept) = epoch(&mut exports, &mut ledger);
        assert!(kept < 1000, "{kept}");
    }
}
