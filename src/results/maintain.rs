//! What keeps a store small and quick over the years: compaction, retention, vacuum.
//!
//! ```text
//!   look at the state ─► rewrite files ─► lock, one epoch: these files for those ─► …a day… ─► delete those
//!                        (no lock held)   (a manifest decides, as for any epoch)
//! ```
//!
//! Every step is an epoch that changes no row a read of today sees, so a crash anywhere leaves the store as it was
//! before the step or after it, and at worst files that nothing refers to, which a later vacuum finds by their names.
//! Publishing waits for the decision of a step, never for its reading and writing. One step runs at a time.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;

use super::compact::{FILE_ROWS_MAX, Inputs, Layout, rewrite};
use super::files;
use super::shared_writer::SharedWriter;
use super::state::{Phase, ViewState};
use super::writer::{MANIFESTS_KEPT, Rearrangement};
use crate::checkpoint::{FileEntry, FileRole, TableChange, TableId, ViewPaths};
use crate::error::Result;

/// Commits of a Delta log between two checkpoints of it.
const DELTA_CHECKPOINT_EVERY: u64 = 256;
/// Files larger than this are only rewritten where they have to be.
const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How much larger than what it is merged with a file may be. Each row is then rewritten a logarithmic number of times.
const MERGE_RATIO: u64 = 4;

/// How a view's store is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upkeep {
    /// Files of one partition that may pile up as epochs write them before they are compacted.
    pub fresh_files_max: usize,
    /// How long files that compaction replaced, and Delta log files, stay for readers that have begun.
    pub vacuum_after: Duration,
    /// How long superseded versions stay readable; `None` for ever. The latest and every final version always stay.
    pub history_retention: Option<Duration>,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self { fresh_files_max: 16, vacuum_after: Duration::from_secs(24 * 3600), history_retention: None }
    }
}

/// What maintenance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpkeepReport {
    /// Partitions rewritten.
    pub partitions: u64,
    /// Files that other files took the place of.
    pub replaced: u64,
    /// Files written.
    pub written: u64,
    /// Versions dropped for their age.
    pub forgotten: u64,
    /// Files deleted.
    pub deleted: u64,
}

/// How far maintenance is; whoever holds it is the one at work.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When retention was last looked at, µs.
    retained_us: Option<i64>,
    /// Whether files that nothing refers to have been looked for.
    swept: bool,
}

/// Which partitions to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urge {
    /// Those with many small files.
    Due,
    /// All that could be better.
    Everything,
}

impl SharedWriter {
    /// Does whatever is due and returns at once if nothing is. A view that this process does not write is left alone, unless
    /// its job has ended and is known to ([`SharedWriter::complete`]): nobody else keeps that one up, so it is taken over
    /// when its files should be merged.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store: call it again later. `Fenced` if another writer has taken over.
    pub async fn keep_up(&self) -> Result<UpkeepReport> {
        let mut progress = self.progress().lock().await;
        let mut report = UpkeepReport::default();
        if !self.flush_if_due().await? {
            let alone = self.shared().state().phase == Phase::Ended && !self.is_fenced().await;
            if !alone || !self.has_many_files()? {
                return Ok(report);
            }
            drop(self.lock().await?);
        }
        self.compact_all(Urge::Due, &mut report).await?;
        self.forget_if_due(&mut progress, &mut report).await?;
        self.delete_old(&mut progress, &mut report).await?;
        self.lock().await?.tidy_logs(DELTA_CHECKPOINT_EVERY, self.upkeep().vacuum_after).await?;
        Ok(report)
    }

    /// Compacts every partition that could be better: `OPTIMIZE`.
    ///
    /// # Errors
    ///
    /// As [`SharedWriter::keep_up`].
    pub async fn optimize(&self) -> Result<UpkeepReport> {
        let _alone = self.progress().lock().await;
        let mut report = UpkeepReport::default();
        drop(self.lock().await?);
        self.compact_all(Urge::Everything, &mut report).await?;
        self.lock().await?.tidy_logs(1, self.upkeep().vacuum_after).await?;
        Ok(report)
    }

    /// Drops versions older than the view's retention and deletes files no longer needed: `VACUUM`.
    ///
    /// # Errors
    ///
    /// As [`SharedWriter::keep_up`].
    pub async fn vacuum(&self) -> Result<UpkeepReport> {
        let mut progress = self.progress().lock().await;
        let mut report = UpkeepReport::default();
        drop(self.lock().await?);
        *progress = Progress::default();
        self.forget_if_due(&mut progress, &mut report).await?;
        self.delete_old(&mut progress, &mut report).await?;
        self.lock().await?.tidy_logs(1, self.upkeep().vacuum_after).await?;
        Ok(report)
    }

    async fn compact_all(&self, urge: Urge, report: &mut UpkeepReport) -> Result<()> {
        let shared = self.shared();
        let state = shared.state();
        for table in state.tables() {
            let layout = Layout::of(shared, table)?;
            let every_row_supersedes = table.holds_newest_rows();
            for (partition, files) in by_partition(&state, table) {
                let chosen = match urge {
                    Urge::Due => self.choose_due(&files, layout.resolves(), every_row_supersedes),
                    Urge::Everything => choose_all(&files),
                };
                if let Some(inputs) = chosen {
                    self.rewrite_partition(&state, table, partition.as_deref(), inputs, report).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether some partition is due to be compacted.
    fn has_many_files(&self) -> Result<bool> {
        let (shared, state) = (self.shared(), self.shared().state());
        for table in state.tables() {
            let resolves = Layout::of(shared, table)?.resolves();
            let due = |files: &Vec<_>| self.choose_due(files, resolves, table.holds_newest_rows()).is_some();
            if by_partition(&state, table).values().any(due) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Files to merge, if enough fresh ones have piled up.
    fn choose_due(&self, files: &[Arc<FileEntry>], resolves: bool, every_row_supersedes: bool) -> Option<Inputs> {
        let of = |role| files.iter().filter(move |file| file.role == role).cloned();
        let fresh: Vec<_> = of(FileRole::Fresh).collect();
        if fresh.len() < self.upkeep().fresh_files_max {
            return None;
        }
        let corrections = fresh.iter().filter(|file| every_row_supersedes || file.version_max > 1);
        let corrections: Vec<_> = corrections.filter(|_| resolves).collect();
        let overlaps = |file: &Arc<FileEntry>| {
            corrections.iter().any(|c| c.windows_us.0 <= file.windows_us.1 && file.windows_us.0 <= c.windows_us.1)
        };
        // What a fresh row may supersede has to come along; of the rest what is small enough to be worth it.
        let (must, may): (Vec<_>, Vec<_>) = of(FileRole::Current).partition(overlaps);
        let mut current = fresh.clone();
        merge_similar(&mut current, may, 0);
        current.extend(must);
        let mut superseded = Vec::new();
        let newly: u64 = corrections.iter().map(|file| file.size_bytes).sum();
        if newly > 0 {
            merge_similar(&mut superseded, of(FileRole::Superseded).collect(), newly);
        }
        Some(Inputs { current, superseded, forget_before_us: None })
    }

    /// Drops versions that were superseded longer ago than the view keeps them.
    async fn forget_if_due(&self, progress: &mut Progress, report: &mut UpkeepReport) -> Result<()> {
        let Some(retention) = self.upkeep().history_retention else { return Ok(()) };
        let shared = self.shared();
        let now_us = shared.clock.now_us();
        // Often enough that no more than a tenth is kept beyond its time.
        let step_us = micros(retention) / 10;
        if progress.retained_us.is_some_and(|last| now_us < last.saturating_add(step_us)) {
            return Ok(());
        }
        let before_us = now_us.saturating_sub(micros(retention));
        let state = shared.state();
        for (partition, files) in by_partition(&state, &TableId::Results) {
            let has_old = files.iter().any(|file| match file.role {
                FileRole::Superseded => file.superseded_us.unwrap_or(file.computed_us.0) <= before_us,
                FileRole::Fresh => file.version_max > 1 && file.computed_us.0 <= before_us,
                FileRole::Current => false,
            });
            if !has_old {
                continue;
            }
            let (superseded, current) = files.into_iter().partition(|file| file.role == FileRole::Superseded);
            let inputs = Inputs { current, superseded, forget_before_us: Some(before_us) };
            self.rewrite_partition(&state, &TableId::Results, partition.as_deref(), inputs, report).await?;
        }
        progress.retained_us = Some(now_us);
        Ok(())
    }

    /// Rewrites `inputs` and puts the result in their place. Where nothing was old enough to drop, the new files tell from
    /// when on something will be.
    async fn rewrite_partition(
        &self,
        state: &Arc<ViewState>,
        table: &TableId,
        partition: Option<&str>,
        inputs: Inputs,
        report: &mut UpkeepReport,
    ) -> Result<()> {
        let shared = self.shared();
        let done = rewrite(shared, state, table, partition, &inputs).await?;
        let horizon_us = inputs.forget_before_us.filter(|_| done.forgotten > 0).unwrap_or(i64::MIN);
        let remove: Vec<String> =
            inputs.current.iter().chain(&inputs.superseded).map(|file| file.path.clone()).collect();
        let (written, replaced) = (done.files.len() as u64, remove.len() as u64);
        let paths: Vec<Path> = done.files.iter().map(|file| shared.paths.file(table, &file.path)).collect();
        let change = Rearrangement {
            tables: BTreeMap::from([(table.clone(), TableChange { add: done.files, remove })]),
            horizon_us,
            horizon_epoch: done.forgotten_epoch,
            ..Rearrangement::default()
        };
        if !self.lock().await?.rearrange(change).await? {
            for path in paths {
                shared.storage.delete(&path).await?;
            }
            return Ok(());
        }
        report.partitions += 1;
        report.replaced += replaced;
        report.written += written;
        report.forgotten += done.forgotten;
        Ok(())
    }

    /// Deletes files that were removed long enough ago, files no epoch refers to, and manifests an index sums up.
    async fn delete_old(&self, progress: &mut Progress, report: &mut UpkeepReport) -> Result<()> {
        let shared = self.shared();
        let before_us = shared.clock.now_us().saturating_sub(micros(self.upkeep().vacuum_after));
        let state = shared.state();
        let old = state.removed.iter().take_while(|file| file.removed_us <= before_us);
        let mut vacuumed_us = i64::MIN;
        for file in old {
            shared.storage.delete(&shared.paths.file(&file.table, &file.path)).await?;
            vacuumed_us = file.removed_us;
            report.deleted += 1;
        }
        if vacuumed_us > i64::MIN {
            self.lock().await?.rearrange(Rearrangement { vacuumed_us, ..Rearrangement::default() }).await?;
        }
        if !progress.swept {
            report.deleted += self.sweep(before_us).await?;
            progress.swept = true;
        }
        let manifests_before_us = shared.clock.now_us().saturating_sub(micros(MANIFESTS_KEPT));
        let index = self.lock().await?.index_before(manifests_before_us);
        if let Some(index) = index {
            report.deleted += self.delete_numbered(&shared.paths.manifests(), index + 1).await?;
            report.deleted += self.delete_numbered(&shared.paths.indexes(), index).await?;
        }
        Ok(())
    }

    /// Deletes files of attempts that were never decided. Their names say of which epoch they would have been, and
    /// that epoch is decided without them.
    async fn sweep(&self, before_us: i64) -> Result<u64> {
        let shared = self.shared();
        let mut deleted = 0;
        for table in shared.state().tables() {
            let found = shared.storage.list(&shared.paths.table(table), None).await?;
            // The state after the listing knows every file in it that any epoch decided so far refers to.
            let state = shared.state();
            let live = state.files(table);
            let removed = state.removed.iter().filter(|file| &file.table == table).map(|file| &file.path);
            let known = live.iter().map(|file| &file.path).chain(removed);
            let known: HashSet<Path> = known.map(|path| shared.paths.file(table, path)).collect();
            for file in found {
                let decided = files::epoch_of_name(&file.location).is_some_and(|epoch| epoch <= state.epoch);
                let old = file.last_modified.timestamp_micros() <= before_us;
                if decided && old && !known.contains(&file.location) {
                    shared.storage.delete(&file.location).await?;
                    deleted += 1;
                }
            }
        }
        Ok(deleted)
    }

    /// Deletes manifests or indexes of epochs before `epoch`.
    async fn delete_numbered(&self, folder: &Path, epoch: u64) -> Result<u64> {
        let storage = &self.shared().storage;
        let mut deleted = 0;
        for file in storage.list(folder, None).await? {
            if ViewPaths::epoch_of(&file.location).is_some_and(|number| number < epoch) {
                storage.delete(&file.location).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// Live files of a table by partition.
fn by_partition(state: &ViewState, table: &TableId) -> BTreeMap<Option<String>, Vec<Arc<FileEntry>>> {
    let mut partitions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for file in state.files(table).iter() {
        partitions.entry(file.partition.clone()).or_default().push(Arc::clone(file));
    }
    partitions
}

/// All files of a partition, unless they are as few as can be.
fn choose_all(files: &[Arc<FileEntry>]) -> Option<Inputs> {
    let few = |role| {
        let of = || files.iter().filter(|file| file.role == role);
        let rows: u64 = of().map(|file| file.rows).sum();
        of().count() <= 1 + (rows / FILE_ROWS_MAX as u64) as usize
    };
    let fresh = files.iter().any(|file| file.role == FileRole::Fresh);
    if !fresh && few(FileRole::Current) && few(FileRole::Superseded) {
        return None;
    }
    let (superseded, current) = files.iter().cloned().partition(|file| file.role == FileRole::Superseded);
    Some(Inputs { current, superseded, forget_before_us: None })
}

/// Adds to `taken` those of `others` that are not much larger than all that is taken before them, smallest first.
fn merge_similar(taken: &mut Vec<Arc<FileEntry>>, mut others: Vec<Arc<FileEntry>>, extra_bytes: u64) {
    others.sort_by_key(|file| file.size_bytes);
    let mut total: u64 = extra_bytes + taken.iter().map(|file| file.size_bytes).sum::<u64>();
    for file in others {
        if file.size_bytes > FILE_BYTES_MAX / 2 || file.size_bytes > total.saturating_mul(MERGE_RATIO) {
            break;
        }
        total += file.size_bytes;
        taken.push(file);
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
