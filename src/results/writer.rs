//! The one writer of a view: data files, then the manifest that decides, then the Delta logs.
//!
//! ```text
//!  commit(N):  encode ─► data files ─► manifest N ─► readers see N            (returns)
//!                        Delta commit of earlier epochs, at the same time, if commit_interval has passed
//! ```
//!
//! A lost acknowledgement is settled by looking: the manifest carries this attempt's nonce. If even looking fails the
//! writer stops rather than guess; opening the view again finds out.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use uuid::Uuid;

use super::delta::DeltaLog;
use super::epoch::{CommittedEpoch, Epoch};
use super::files::{self, NewFile, Stamp};
use super::reader::ViewReader;
use super::schema::{ViewTable, column, rejects_schema, window_runs_schema, window_status_schema, with_epoch};
use super::state::{EpochRows, Loaded, Phase, Shared, load};
use crate::checkpoint::recovery::{Facts, pending_commits};
use crate::checkpoint::{FileRole, Manifest, TableChange, TableId, ViewPaths};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::fate::FateCounts;
use crate::storage::{Created, Storage};

/// Data files written at a time.
const FILE_WRITES: usize = 8;
/// Epochs after which the list of live files is written anew.
const INDEX_EVERY_EPOCHS: u64 = 64;
/// How long manifests that an index sums up are kept, for readers that are opening the view and writers that slept.
pub(super) const MANIFESTS_KEPT: Duration = Duration::from_secs(3600);
/// Attempts to create a manifest whose outcome stays unknown.
const DECIDE_ATTEMPTS: u32 = 4;
const DECIDE_BACKOFF: Duration = Duration::from_millis(50);
/// Default of [`ViewWriter::with_commit_interval`].
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Changes of a decided epoch that may not be in the Delta logs yet.
struct Decided {
    epoch: u64,
    stamp_us: i64,
    tables: BTreeMap<TableId, TableChange>,
}

/// What maintenance changes; see [`ViewWriter::rearrange`].
#[derive(Debug)]
pub(super) struct Rearrangement {
    pub tables: BTreeMap<TableId, TableChange>,
    /// The history horizon, if later than it was.
    pub horizon_us: i64,
    /// The last epoch of which versions are forgotten, if later than it was.
    pub horizon_epoch: u64,
    /// Files removed at or before this stamp have been deleted.
    pub vacuumed_us: i64,
}

impl Default for Rearrangement {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), horizon_us: i64::MIN, horizon_epoch: 0, vacuumed_us: i64::MIN }
    }
}

/// Writes one view. There is at most one that succeeds at a time: a newer one fences an older one.
///
/// Not closed before it is dropped, its subscribers end with an error.
pub struct ViewWriter {
    shared: Arc<Shared>,
    writer: String,
    logs: BTreeMap<TableId, DeltaLog>,
    /// Decided and not in the Delta logs, ascending.
    uncommitted: Vec<Decided>,
    index: Option<u64>,
    /// Indexes, with the stamp of the epoch that came after each, oldest first: from when on the manifests before an
    /// index are read by nobody who opens the view.
    indexes: VecDeque<(u64, i64)>,
    commit_interval: Duration,
    flushed_at_us: i64,
    counts: FateCounts,
    job: serde_json::Value,
    /// When it last decided an epoch, µs by its clock.
    decided_us: i64,
    /// Whether it has ever been the view's writer.
    opened: bool,
    /// Why it takes no more epochs; `Closed` before it is opened.
    stopped: Option<ErrorKind>,
}

impl ViewWriter {
    /// Creates the view's store. Epoch 0 is its creation; the first epoch to commit is 1.
    ///
    /// # Errors
    ///
    /// `Conflict` if there is one already, `Unsupported` or `Invalid` for columns that cannot be stored, `Unavailable`
    /// from the store.
    pub async fn create(storage: Storage, table: ViewTable, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut this = Self::unopened(Arc::new(Shared::try_new(storage, table, clock)?));
        if !this.claim(0).await? {
            let message = format!("a view is stored here already: view=`{}`", this.shared.table.name);
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        this.open_log(&TableId::Results).await?;
        Ok(this)
    }

    /// Opens an existing store to go on writing, fences whoever wrote it before, and completes what that one left
    /// undone in the Delta logs. Taking over is an epoch of its own.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is none, or if it holds other columns; `Corrupt` for damaged files; `Unavailable` from the
    /// store; `Fenced` if yet another writer keeps taking over.
    pub async fn open(storage: Storage, table: ViewTable, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut this = Self::unopened(Arc::new(Shared::try_new(storage, table, clock)?));
        this.take_over().await?;
        Ok(this)
    }

    /// Becomes the view's writer as [`ViewWriter::open`] says; also after an error that stopped it.
    ///
    /// # Errors
    ///
    /// As [`ViewWriter::open`]; `Fenced` if it was the writer and another one has taken over since.
    pub(super) async fn take_over(&mut self) -> Result<()> {
        for _ in 0..DECIDE_ATTEMPTS {
            let Some(loaded) = load(&self.shared.storage, &self.shared.paths).await? else {
                return Err(Error::invalid(format!("no such view is stored: view=`{}`", self.shared.table.name)));
            };
            if self.opened && loaded.manifests.last().is_some_and(|newest| newest.writer != self.writer) {
                self.stopped = Some(ErrorKind::Fenced);
                return Err(fenced(&self.shared.table.name));
            }
            let pending = self.adopt(loaded).await?;
            if self.claim(self.next_epoch()).await? {
                self.uncommitted.splice(0..0, pending);
                return self.flush().await;
            }
        }
        Err(Error::new(ErrorKind::Fenced, "another writer keeps taking over the view"))
    }

    /// Opens the store, or creates it where there is none.
    ///
    /// # Errors
    ///
    /// As [`ViewWriter::open`] and [`ViewWriter::create`].
    pub async fn open_or_create(storage: Storage, table: ViewTable, clock: Arc<dyn Clock>) -> Result<Self> {
        let manifests = ViewPaths::new(&table.name).manifests();
        match storage.list(&manifests, None).await?.is_empty() {
            true => Self::create(storage, table, clock).await,
            false => Self::open(storage, table, clock).await,
        }
    }

    pub(super) fn unopened(shared: Arc<Shared>) -> Self {
        Self {
            flushed_at_us: shared.clock.now_us(),
            shared,
            writer: Uuid::new_v4().to_string(),
            logs: BTreeMap::new(),
            uncommitted: Vec::new(),
            index: None,
            indexes: VecDeque::new(),
            commit_interval: COMMIT_INTERVAL,
            counts: FateCounts::default(),
            job: serde_json::Value::Null,
            decided_us: i64::MIN,
            opened: false,
            stopped: Some(ErrorKind::Closed),
        }
    }

    /// Why it takes no more epochs, if it does not.
    pub(super) fn stopped(&self) -> Option<ErrorKind> {
        self.stopped
    }

    /// How long decided epochs may wait before they are added to the Delta logs. Default: 1 s. Our own readers see an
    /// epoch at once whatever this is; other tools see it after that time, and a longer one makes fewer log files.
    #[must_use]
    pub fn with_commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    /// Identity of this incarnation.
    pub fn id(&self) -> &str {
        &self.writer
    }

    /// A reader of this view. It sees each epoch as soon as it is decided.
    pub fn reader(&self) -> ViewReader {
        ViewReader::new(Arc::clone(&self.shared))
    }

    /// The last decided epoch.
    pub fn last_epoch(&self) -> u64 {
        self.shared.state().epoch
    }

    /// The number the next epoch must have.
    pub fn next_epoch(&self) -> u64 {
        self.last_epoch() + 1
    }

    /// Totals and job state of the last decided epoch: where a recovered job goes on.
    pub fn recovered(&self) -> (&FateCounts, &serde_json::Value) {
        (&self.counts, &self.job)
    }

    /// Takes no more epochs until it takes over anew.
    pub(super) fn stop(&mut self) {
        self.stopped = Some(ErrorKind::Closed);
    }

    /// The next epoch as one that changes nothing: the number is right, totals and job state are those of the last.
    /// Whoever publishes beside the job adds versions and window status to it; the job goes on where it was.
    pub fn next_beside_job(&self) -> Epoch {
        let (counts, job) = (self.counts.clone(), self.job.clone());
        Epoch { number: self.next_epoch(), counts, job, ..Epoch::default() }
    }

    /// Publishes an epoch: durable and visible to readers when it returns.
    ///
    /// Dropped before it is done, the epoch's outcome is unknown and the writer takes no more: open the view again.
    ///
    /// # Errors
    ///
    /// `Fenced` if another writer has taken over: nothing of this epoch is visible. `Unavailable` from the store: if
    /// the outcome is unknown the writer takes no more epochs. `Closed` after such an error.
    pub async fn commit(&mut self, epoch: Epoch) -> Result<CommittedEpoch> {
        self.check_next(epoch.number)?;
        // Whatever goes wrong from here, and also if this future is dropped, nobody may go on guessing.
        self.stopped = Some(ErrorKind::Closed);
        let shared = Arc::clone(&self.shared);
        let in_flight = InFlight(&shared);
        let stamp = Stamp { epoch: epoch.number, us: in_flight.0.take_stamp() };
        let new = NewFiles::encode(&shared, &epoch, stamp)?;
        let write = new.write(&shared, &epoch.files);
        let (written, kept_up) = futures::join!(write, self.keep_up());
        written?;
        kept_up?;
        let bytes = new.tables.values().flatten().map(|file| file.entry.size_bytes).sum();
        let NewFiles { tables, versions } = new;
        let tables = tables.into_iter().map(|(table, files)| {
            let add = files.into_iter().map(|file| file.entry).collect();
            (table, TableChange { add, remove: Vec::new() })
        });
        self.counts = epoch.counts;
        self.job = epoch.job;
        let manifest = self.manifest(stamp, tables.collect());
        let rows = versions.iter().map(|batch| batch.num_rows() as u64).sum();
        self.publish(manifest, versions).await?;
        Ok(CommittedEpoch { number: stamp.epoch, stamp_us: stamp.us, rows, bytes })
    }

    /// Publishes an epoch that changes no row a read of today sees: files already written take the place of others, the
    /// history horizon moves, deleted files are forgotten. `false`, and nothing done, if a file to remove is not live.
    ///
    /// # Errors
    ///
    /// As [`ViewWriter::commit`].
    pub(super) async fn rearrange(&mut self, change: Rearrangement) -> Result<bool> {
        self.check_next(self.next_epoch())?;
        // A Delta commit must not remove what it adds, so everything earlier goes into the logs first.
        self.flush().await?;
        let state = self.shared.state();
        for (table, change) in &change.tables {
            let files = state.files(table);
            let live: HashSet<&String> = files.iter().map(|file| &file.path).collect();
            if change.remove.iter().any(|path| !live.contains(path)) {
                return Ok(false);
            }
        }
        self.stopped = Some(ErrorKind::Closed);
        let shared = Arc::clone(&self.shared);
        let in_flight = InFlight(&shared);
        let stamp = Stamp { epoch: self.next_epoch(), us: in_flight.0.take_stamp() };
        let mut manifest = self.manifest(stamp, change.tables);
        manifest.horizon_us = manifest.horizon_us.max(change.horizon_us);
        manifest.horizon_epoch = manifest.horizon_epoch.max(change.horizon_epoch);
        manifest.vacuumed_us = manifest.vacuumed_us.max(change.vacuumed_us);
        self.publish(manifest, Vec::new()).await?;
        Ok(true)
    }

    /// The newest index that has stood since before `us`: what was decided before it can be forgotten.
    pub(super) fn index_before(&mut self, us: i64) -> Option<u64> {
        let mut found = None;
        while let Some((epoch, _)) = self.indexes.front().filter(|(_, since)| *since <= us) {
            found = Some(*epoch);
            self.indexes.pop_front();
        }
        found
    }

    /// Delta checkpoints where a log has grown long, and no more log files than other tools need.
    pub(super) async fn tidy_logs(&mut self, every: u64, keep: Duration) -> Result<()> {
        let now_us = self.shared.clock.now_us();
        for log in self.logs.values_mut() {
            log.tidy(every, now_us, keep).await?;
        }
        Ok(())
    }

    async fn publish(&mut self, manifest: Manifest, versions: Vec<RecordBatch>) -> Result<()> {
        if !self.decide(&manifest).await? || self.slept_too_long(manifest.epoch).await? {
            self.stopped = Some(ErrorKind::Fenced);
            return Err(fenced(&self.shared.table.name));
        }
        self.decided_us = self.shared.clock.now_us();
        self.accept(manifest, versions);
        Ok(())
    }

    /// Whether the manifest just created stands where another writer's stood before it was collected. That takes a
    /// writer that decided nothing for half as long as manifests are kept.
    async fn slept_too_long(&self, epoch: u64) -> Result<bool> {
        let quiet_us = self.shared.clock.now_us().saturating_sub(self.decided_us);
        if u64::try_from(quiet_us).is_ok_and(|us| Duration::from_micros(us) < MANIFESTS_KEPT / 2) {
            return Ok(false);
        }
        let paths = &self.shared.paths;
        let later = self.shared.storage.list(&paths.manifests(), Some(&paths.manifest(epoch))).await?;
        Ok(!later.is_empty())
    }

    /// Whether decided epochs have waited longer than the commit interval: time to call [`ViewWriter::flush`] if no
    /// further epoch is at hand, whose commit would do it.
    pub fn flush_due(&self) -> bool {
        let waited_us = self.shared.clock.now_us().saturating_sub(self.flushed_at_us);
        let due = u64::try_from(waited_us).is_ok_and(|us| Duration::from_micros(us) >= self.commit_interval);
        // A clock set back far makes no one wait for it to catch up.
        !self.uncommitted.is_empty() && (due || waited_us < 0)
    }

    /// Adds all decided epochs to the Delta logs, one commit per table.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store: call it again. `Corrupt` for a log that cannot be read.
    pub async fn flush(&mut self) -> Result<()> {
        let mut by_table: BTreeMap<TableId, Vec<(u64, i64, TableChange)>> = BTreeMap::new();
        for decided in &self.uncommitted {
            for (table, change) in &decided.tables {
                let change = (decided.epoch, decided.stamp_us, change.clone());
                by_table.entry(table.clone()).or_default().push(change);
            }
        }
        for table in by_table.keys() {
            self.open_log(table).await?;
        }
        let commits = self.logs.iter_mut().filter_map(|(table, log)| {
            let epochs = by_table.get(table)?;
            Some(log.commit(epochs))
        });
        try_join_all(commits).await?;
        self.uncommitted.clear();
        self.flushed_at_us = self.shared.clock.now_us();
        Ok(())
    }

    /// Completes the Delta logs and ends the view's subscriptions cleanly.
    ///
    /// # Errors
    ///
    /// As [`ViewWriter::flush`]. Subscriptions end all the same.
    pub async fn close(mut self) -> Result<()> {
        self.end().await
    }

    /// The same for a writer that may still publish beside the job that has ended.
    ///
    /// # Errors
    ///
    /// As [`ViewWriter::close`].
    pub async fn end(&mut self) -> Result<()> {
        self.shared.set_phase(Phase::Ended);
        self.flush().await
    }

    fn check_next(&self, number: u64) -> Result<()> {
        match self.stopped {
            Some(ErrorKind::Fenced) => return Err(fenced(&self.shared.table.name)),
            Some(kind) => return Err(Error::new(kind, "the view's writer has stopped; open the view again")),
            None => {}
        }
        let next = self.next_epoch();
        if number != next {
            return Err(Error::internal(format!("an epoch is out of order: epoch=`{number}` next=`{next}`")));
        }
        Ok(())
    }

    /// Brings the Delta logs and the index up to date where it is time to, beside the writing of data files.
    async fn keep_up(&mut self) -> Result<()> {
        let index_due = self.next_epoch() >= self.index.unwrap_or(0) + INDEX_EVERY_EPOCHS;
        if !index_due && !self.flush_due() {
            return Ok(());
        }
        match self.flush().await {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::Unavailable => {
                // The epoch at hand does not depend on it; the next one tries again.
                tracing::warn!(view = %self.shared.table.name, error = %e, "Delta commit put off");
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        if index_due {
            let state = self.shared.state();
            let path = self.shared.paths.index(state.epoch);
            self.shared.storage.put(&path, state.to_index().encode()?).await?;
            self.index = Some(state.epoch);
            self.indexes.push_back((state.epoch, self.shared.clock.now_us()));
        }
        Ok(())
    }

    fn manifest(&self, stamp: Stamp, tables: BTreeMap<TableId, TableChange>) -> Manifest {
        Manifest {
            epoch: stamp.epoch,
            writer: self.writer.clone(),
            nonce: Uuid::new_v4().to_string(),
            stamp_us: stamp.us,
            index: self.index,
            tables,
            columns: self.shared.stored.columns(),
            counts: self.counts.clone(),
            horizon_us: self.shared.state().horizon_us,
            horizon_epoch: self.shared.state().horizon_epoch,
            vacuumed_us: self.shared.state().vacuumed_us,
            job: self.job.clone(),
        }
    }

    /// Creates the manifest. `false`: another writer's is there.
    async fn decide(&self, manifest: &Manifest) -> Result<bool> {
        let path = self.shared.paths.manifest(manifest.epoch);
        let bytes = manifest.encode()?;
        let mut attempt = 1;
        loop {
            let unknown = match self.shared.storage.create(&path, bytes.clone()).await {
                Ok(Created::Written) => return Ok(true),
                Ok(Created::Exists) => None,
                Err(e) => Some(e),
            };
            // It may be there all the same: an answer that got lost, or a retry below us that met its own first try.
            let found = self.shared.storage.get(&path).await?;
            match (found, unknown) {
                (Some(found), _) => return self.is_mine(manifest, &found),
                (None, unknown) if attempt == DECIDE_ATTEMPTS => {
                    let gone =
                        || Error::new(ErrorKind::Unavailable, format!("a file is there and is not: path=`{path}`"));
                    return Err(unknown.unwrap_or_else(gone));
                }
                (None, _) => tokio::time::sleep(DECIDE_BACKOFF * 2u32.pow(attempt)).await,
            }
            attempt += 1;
        }
    }

    fn is_mine(&self, manifest: &Manifest, found: &Bytes) -> Result<bool> {
        let path = self.shared.paths.manifest(manifest.epoch);
        Ok(Manifest::decode(path.as_ref(), found)?.nonce == manifest.nonce)
    }

    /// Decides epoch `number` as one that only says who writes from here on. `false`: someone else was faster.
    async fn claim(&mut self, number: u64) -> Result<bool> {
        let shared = Arc::clone(&self.shared);
        let in_flight = InFlight(&shared);
        let manifest = self.manifest(Stamp { epoch: number, us: in_flight.0.take_stamp() }, BTreeMap::new());
        let mine = self.decide(&manifest).await?;
        if mine {
            self.decided_us = self.shared.clock.now_us();
            self.accept(manifest, Vec::new());
        }
        Ok(mine)
    }

    /// A manifest is decided: readers see it, and the Delta logs owe it.
    fn accept(&mut self, manifest: Manifest, versions: Vec<RecordBatch>) {
        let mut state = self.shared.state().after(&manifest);
        state.remember(EpochRows::new(manifest.epoch, versions));
        self.shared.replace(state);
        if !manifest.tables.is_empty() {
            let Manifest { epoch, stamp_us, tables, .. } = manifest;
            self.uncommitted.push(Decided { epoch, stamp_us, tables });
        }
        (self.opened, self.stopped) = (true, None);
    }

    /// Takes over what is stored; returns the epochs that the Delta logs lack.
    async fn adopt(&mut self, loaded: Loaded) -> Result<Vec<Decided>> {
        let newest = loaded.manifests.last().expect("a loaded view has a newest manifest");
        check_columns(&self.shared, newest)?;
        self.counts = newest.counts.clone();
        self.job = newest.job.clone();
        self.index = loaded.index;
        let after = loaded.manifests.first().map_or(i64::MAX, |manifest| manifest.stamp_us);
        self.indexes = loaded.index.map(|index| (index, after)).into_iter().collect();
        self.logs.clear();
        self.uncommitted.clear();
        self.open_log(&TableId::Results).await?;
        let mut facts = Facts { index: loaded.index.unwrap_or(0), ..Facts::default() };
        for manifest in &loaded.manifests {
            for table in manifest.tables.keys() {
                let logged = self.open_log(table).await?.logged();
                facts.logged.insert(table.clone(), logged);
            }
            if manifest.epoch > 0 {
                facts.manifests.push((manifest.epoch, manifest.tables.keys().cloned().collect()));
            }
        }
        let pending = pending_commits(&facts)?;
        self.shared.replace(loaded.state);
        let owed = |epoch: u64, table: &TableId| pending.get(table).is_some_and(|epochs| epochs.contains(&epoch));
        let decided = loaded.manifests.into_iter().map(|manifest| {
            let Manifest { epoch, stamp_us, mut tables, .. } = manifest;
            tables.retain(|table, _| owed(epoch, table));
            Decided { epoch, stamp_us, tables }
        });
        Ok(decided.filter(|decided| !decided.tables.is_empty()).collect())
    }

    async fn open_log(&mut self, table: &TableId) -> Result<&DeltaLog> {
        if !self.logs.contains_key(table) {
            let shared = &self.shared;
            let (schema, partitioned) = match table {
                TableId::Results => (Arc::clone(&shared.stored.results), true),
                TableId::Late => (Arc::clone(&shared.stored.late), false),
                TableId::Windows => (with_epoch(&window_status_schema()), false),
                TableId::Runs => (with_epoch(&window_runs_schema()), false),
                TableId::Rejects(_) => (rejects_schema(), false),
            };
            let folder = shared.paths.table(table);
            let log = DeltaLog::open(&shared.storage, folder, &schema, partitioned).await?;
            self.logs.insert(table.clone(), log);
        }
        Ok(&self.logs[table])
    }
}

/// Removes everything stored of view `name`. Manifests go last, newest first, so that an interrupted removal is seen as
/// a view still there, or as none.
///
/// # Errors
///
/// `Unavailable` from the store: call it again.
pub async fn remove_view(storage: &Storage, name: &str) -> Result<()> {
    let paths = ViewPaths::new(name);
    let manifests = paths.manifests();
    let (mut last, mut first): (Vec<_>, Vec<_>) = (storage.list(paths.root(), None).await?.into_iter())
        .map(|file| file.location)
        .partition(|path| path.prefix_matches(&manifests));
    last.reverse();
    first.extend(last);
    for path in first {
        storage.delete(&path).await?;
    }
    Ok(())
}

impl Drop for ViewWriter {
    fn drop(&mut self) {
        if self.opened && self.shared.state().phase == Phase::Live {
            self.shared.set_phase(Phase::Abandoned);
        }
    }
}

/// While it lives an epoch has a stamp and no decision, and an AS OF at or after that stamp waits.
struct InFlight<'a>(&'a Shared);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.landed();
    }
}

/// The data files of an epoch, and its versions as stored.
struct NewFiles {
    tables: BTreeMap<TableId, Vec<NewFile>>,
    versions: Vec<RecordBatch>,
}

impl NewFiles {
    fn encode(shared: &Shared, epoch: &Epoch, stamp: Stamp) -> Result<Self> {
        let stored = &shared.stored;
        let versions = epoch.versions.iter().filter(|batch| batch.num_rows() > 0);
        let versions: Vec<_> = versions.map(|b| files::stamp_versions(stored, b, stamp)).collect::<Result<_>>()?;
        let name = files::name(stamp.epoch);
        let mut tables: BTreeMap<TableId, Vec<NewFile>> = BTreeMap::new();
        for (days, rows) in files::by_date(stored, &versions)? {
            let date = files::date_text(days);
            let path = format!("{}={date}/{name}", column::WINDOW_DATE);
            let file = files::version_file(stored, &rows, FileRole::Fresh, path, date)?;
            tables.entry(TableId::Results).or_default().push(file);
        }
        let late = (TableId::Late, Arc::clone(&stored.late), &epoch.late);
        let windows = (TableId::Windows, with_epoch(&window_status_schema()), &epoch.windows);
        let runs = (TableId::Runs, with_epoch(&window_runs_schema()), &epoch.runs);
        let rejects =
            epoch.rejects.iter().map(|(source, batches)| (TableId::Rejects(source.clone()), rejects_schema(), batches));
        for (table, schema, batches) in [late, windows, runs].into_iter().chain(rejects) {
            let conformed = batches.iter().map(|batch| files::conform(&schema, batch, stamp.epoch));
            let conformed = conformed.collect::<Result<Vec<_>>>()?;
            let rows = arrow::compute::concat_batches(&schema, &conformed).map_err(files::arrow_error)?;
            if rows.num_rows() > 0 {
                let mut file = files::plain_file(&rows, name.clone())?;
                file.entry.epochs = (stamp.epoch, stamp.epoch);
                tables.insert(table, vec![file]);
            }
        }
        Ok(Self { tables, versions })
    }

    async fn write(&self, shared: &Shared, others: &[(Path, Bytes)]) -> Result<()> {
        let mut writes = Vec::new();
        for (path, bytes) in others.iter().cloned() {
            let storage = shared.storage.clone();
            writes.push(async move { storage.put(&path, bytes).await }.boxed());
        }
        for (table, files) in &self.tables {
            for file in files {
                let (path, bytes) = (shared.paths.file(table, &file.entry.path), file.bytes.clone());
                let storage = shared.storage.clone();
                writes.push(async move { storage.put(&path, bytes).await }.boxed());
            }
        }
        stream::iter(writes).buffer_unordered(FILE_WRITES).try_collect().await
    }
}

fn fenced(view: &str) -> Error {
    Error::new(ErrorKind::Fenced, format!("another writer has taken over the view: view=`{view}`"))
}

/// A stored view goes on only with the columns it has.
pub(super) fn check_columns(shared: &Shared, newest: &Manifest) -> Result<()> {
    let wanted = shared.stored.columns();
    if wanted == newest.columns {
        return Ok(());
    }
    let text = |columns: &[(String, String)], others: &[(String, String)]| {
        let differ = columns.iter().filter(|column| !others.contains(column));
        differ.map(|(name, data_type)| format!("{name} {data_type}")).collect::<Vec<_>>().join(", ")
    };
    let (stored, now) = (text(&newest.columns, &wanted), text(&wanted, &newest.columns));
    let view = &shared.table.name;
    Err(Error::invalid(format!("the view is stored with other columns: view=`{view}` stored=`{stored}` now=`{now}`"))
        .with_hint("create a view of another name, or drop this one first"))
}
