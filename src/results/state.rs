//! What a view's store holds as of one decided epoch, in memory, and how readers and the writer share it.
//!
//! A [`ViewState`] is immutable. The writer replaces it when an epoch is decided, so a reader that took one sees whole
//! epochs only, for as long as it likes. The newest epochs' rows are kept beside it, bounded in bytes, so that a
//! subscriber that keeps up never reads a file.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;

use super::schema::{StoredSchema, ViewTable};
use crate::checkpoint::{FileEntry, FileIndex, Manifest, RemovedFile, TableId, ViewPaths};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::fate::FateCounts;
use crate::storage::Storage;

/// Bytes of rows kept for subscribers.
const RECENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Manifests read at a time when a view is opened.
const MANIFEST_READS: usize = 16;

/// Live files of one table, oldest first.
pub(super) type Files = Arc<Vec<Arc<FileEntry>>>;

/// Whether more epochs may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A writer is at work, or the view was opened for reading only.
    Live,
    /// The writer was closed: nothing more will come.
    Ended,
    /// The writer went away without closing.
    Abandoned,
}

/// Rows one epoch published.
#[derive(Debug)]
pub(super) struct EpochRows {
    pub epoch: u64,
    pub batches: Vec<RecordBatch>,
    bytes: usize,
}

impl EpochRows {
    pub fn new(epoch: u64, batches: Vec<RecordBatch>) -> Self {
        let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        Self { epoch, batches, bytes }
    }
}

/// A view's store as of `epoch`.
#[derive(Debug, Clone)]
pub(super) struct ViewState {
    pub epoch: u64,
    pub stamp_us: i64,
    pub horizon_us: i64,
    pub horizon_epoch: u64,
    pub vacuumed_us: i64,
    pub counts: FateCounts,
    pub phase: Phase,
    /// Removed and not deleted yet, oldest first.
    pub removed: Arc<Vec<RemovedFile>>,
    pub job: Arc<serde_json::Value>,
    tables: BTreeMap<TableId, Files>,
    recent: VecDeque<Arc<EpochRows>>,
}

impl ViewState {
    fn empty() -> Self {
        Self {
            epoch: 0,
            stamp_us: i64::MIN,
            horizon_us: i64::MIN,
            horizon_epoch: 0,
            vacuumed_us: i64::MIN,
            counts: FateCounts::default(),
            phase: Phase::Live,
            removed: Arc::default(),
            job: Arc::default(),
            tables: BTreeMap::new(),
            recent: VecDeque::new(),
        }
    }

    fn from_index(index: FileIndex) -> Self {
        let files = |files: Vec<FileEntry>| Arc::new(files.into_iter().map(Arc::new).collect());
        let tables = index.tables.into_iter().map(|(table, entries)| (table, files(entries))).collect();
        Self { epoch: index.epoch, tables, removed: Arc::new(index.removed), ..Self::empty() }
    }

    /// The tables that have files, or had.
    pub fn tables(&self) -> impl Iterator<Item = &TableId> {
        self.tables.keys()
    }

    /// The live files of `table`.
    pub fn files(&self, table: &TableId) -> Files {
        self.tables.get(table).cloned().unwrap_or_default()
    }

    /// The epoch's rows, if they are still in memory.
    pub fn recent(&self, epoch: u64) -> Option<Arc<EpochRows>> {
        let first = self.recent.front()?.epoch;
        self.recent.get(usize::try_from(epoch.checked_sub(first)?).ok()?).cloned()
    }

    /// The state after `manifest`.
    pub fn after(&self, manifest: &Manifest) -> Self {
        let mut next = self.clone();
        next.epoch = manifest.epoch;
        next.stamp_us = manifest.stamp_us;
        next.horizon_us = manifest.horizon_us;
        next.horizon_epoch = manifest.horizon_epoch;
        next.vacuumed_us = manifest.vacuumed_us;
        next.counts = manifest.counts.clone();
        next.job = Arc::new(manifest.job.clone());
        for (table, change) in &manifest.tables {
            let files = Arc::make_mut(next.tables.entry(table.clone()).or_default());
            if !change.remove.is_empty() {
                let gone: HashSet<&String> = change.remove.iter().collect();
                files.retain(|file| !gone.contains(&file.path));
                let removed_us = manifest.stamp_us;
                let removed = change.remove.iter().map(|path| (table.clone(), path.clone()));
                let removed = removed.map(|(table, path)| RemovedFile { table, path, removed_us });
                Arc::make_mut(&mut next.removed).extend(removed);
            }
            files.extend(change.add.iter().cloned().map(Arc::new));
        }
        if next.removed.first().is_some_and(|first| first.removed_us <= manifest.vacuumed_us) {
            Arc::make_mut(&mut next.removed).retain(|file| file.removed_us > manifest.vacuumed_us);
        }
        next
    }

    /// Keeps `rows` for subscribers, and lets go of the oldest where there are too many.
    pub fn remember(&mut self, rows: EpochRows) {
        self.recent.push_back(Arc::new(rows));
        let mut bytes: usize = self.recent.iter().map(|rows| rows.bytes).sum();
        while bytes > RECENT_BYTES_MAX {
            bytes -= self.recent.pop_front().map_or(bytes, |rows| rows.bytes);
        }
    }

    /// What an index file of this state says.
    pub fn to_index(&self) -> FileIndex {
        let entries = |files: &Files| files.iter().map(|file| file.as_ref().clone()).collect();
        let tables = self.tables.iter().map(|(table, files)| (table.clone(), entries(files))).collect();
        FileIndex { epoch: self.epoch, tables, removed: self.removed.to_vec() }
    }
}

/// What lies in storage: the state, and the manifests since the newest index, ascending.
pub(super) struct Loaded {
    pub state: ViewState,
    pub index: Option<u64>,
    pub manifests: Vec<Manifest>,
}

/// Reads a view; `None` if there is none.
///
/// # Errors
///
/// `Corrupt` for a damaged or missing file, `Unavailable` from the store.
pub(super) async fn load(storage: &Storage, paths: &ViewPaths) -> Result<Option<Loaded>> {
    let files = storage.list(&paths.manifests(), None).await?;
    let Some(newest) = files.iter().filter_map(|f| ViewPaths::epoch_of(&f.location)).max() else { return Ok(None) };
    let newest = read_manifest(storage, paths, newest).await?;
    let (state, first) = match newest.index {
        Some(epoch) => (ViewState::from_index(read_index(storage, paths, epoch).await?), epoch + 1),
        None => (ViewState::empty(), 0),
    };
    let manifests: Vec<Manifest> = stream::iter(first..newest.epoch)
        .map(|epoch| read_manifest(storage, paths, epoch))
        .buffered(MANIFEST_READS)
        .chain(stream::once(async { Ok(newest.clone()) }))
        .try_collect()
        .await?;
    let state = manifests.iter().fold(state, |state, manifest| state.after(manifest));
    Ok(Some(Loaded { state, index: newest.index, manifests }))
}

async fn read_manifest(storage: &Storage, paths: &ViewPaths, epoch: u64) -> Result<Manifest> {
    let path = paths.manifest(epoch);
    match storage.get(&path).await? {
        Some(bytes) => Manifest::decode(path.as_ref(), &bytes),
        None => Err(Error::new(ErrorKind::Corrupt, format!("a manifest is missing: file=`{path}`"))),
    }
}

async fn read_index(storage: &Storage, paths: &ViewPaths, epoch: u64) -> Result<FileIndex> {
    let path = paths.index(epoch);
    match storage.get(&path).await? {
        Some(bytes) => FileIndex::decode(path.as_ref(), &bytes),
        None => Err(Error::new(ErrorKind::Corrupt, format!("an index is missing: file=`{path}`"))),
    }
}

/// Stamps given out and instants read at, so that an AS OF stays true whatever the clock does.
#[derive(Debug, Default)]
struct Stamps {
    /// The latest instant some reader asked for: no later stamp may be at or before it.
    asked_us: Option<i64>,
}

/// What the writer and the readers of a view share.
#[derive(Debug)]
pub(super) struct Shared {
    pub table: ViewTable,
    pub stored: StoredSchema,
    pub storage: Storage,
    pub paths: ViewPaths,
    pub clock: Arc<dyn Clock>,
    state: watch::Sender<Arc<ViewState>>,
    /// Stamp of the epoch being written, if one is.
    in_flight: watch::Sender<Option<i64>>,
    stamps: Mutex<Stamps>,
}

impl Shared {
    pub fn try_new(storage: Storage, table: ViewTable, clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self {
            stored: StoredSchema::try_new(&table)?,
            paths: ViewPaths::new(&table.name),
            table,
            storage,
            clock,
            state: watch::Sender::new(Arc::new(ViewState::empty())),
            in_flight: watch::Sender::new(None),
            stamps: Mutex::default(),
        })
    }

    pub fn state(&self) -> Arc<ViewState> {
        Arc::clone(&self.state.borrow())
    }

    pub fn watch(&self) -> watch::Receiver<Arc<ViewState>> {
        self.state.subscribe()
    }

    pub fn replace(&self, state: ViewState) {
        self.state.send_replace(Arc::new(state));
    }

    pub fn set_phase(&self, phase: Phase) {
        self.state.send_modify(|state| Arc::make_mut(state).phase = phase);
    }

    fn stamps(&self) -> MutexGuard<'_, Stamps> {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp of the next epoch, µs: after the last one and its versions, after every instant already read at, and
    /// not before the clock. It counts as in flight until [`Shared::landed`].
    pub fn take_stamp(&self) -> i64 {
        let last = self.state().stamp_us;
        let stamps = self.stamps();
        let after_asked = stamps.asked_us.map_or(i64::MIN, |asked| asked.saturating_add(1));
        let stamp = self.clock.now_us().max(last.saturating_add(3)).max(after_asked);
        self.in_flight.send_replace(Some(stamp));
        stamp
    }

    /// The epoch in flight was decided, or will never be.
    pub fn landed(&self) {
        self.in_flight.send_replace(None);
    }

    /// The state from which "current at `t_us`" can be told once and for all: waits for an epoch already stamped at or
    /// before it.
    pub async fn state_as_of(&self, t_us: i64) -> Arc<ViewState> {
        let mut in_flight = {
            let mut stamps = self.stamps();
            stamps.asked_us = stamps.asked_us.max(Some(t_us));
            self.in_flight.subscribe()
        };
        // The sender lives in `self`, so waiting cannot fail.
        let _ = in_flight.wait_for(|stamp| stamp.is_none_or(|stamp| stamp > t_us)).await;
        self.state()
    }
}
