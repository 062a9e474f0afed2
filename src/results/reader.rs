//! Reading a view: which rows each kind of read gives, as DataFusion tables.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::history::HistoryTable;
use super::schema::{ViewTable, rejects_schema, window_runs_schema, window_status_schema, with_epoch};
use super::state::{Phase, Shared, ViewState, load};
use super::subscribe::{Since, Subscription};
use super::table::{Resolve, StoredTable, Table};
use super::windows::windows_with_runs;
use super::writer::{ViewWriter, check_columns};
use crate::checkpoint::TableId;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::operators::fate::FateCounts;
use crate::storage::Storage;

/// Which of a view's rows to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// `v`: the latest version of each identity, deleted ones hidden.
    Latest,
    /// `v$final`: the highest final version; where there is none the latest, with `_is_final = false`. Deleted ones
    /// are hidden.
    Final,
    /// `v FOR SYSTEM_TIME AS OF t`, µs UTC: what was current at `t`, inclusive.
    AsOf(i64),
    /// `v$history`: every version, with the change from the one before it in `<column>_change`.
    History,
    /// The latest version of each identity, deleted ones too: what a batch run compares with.
    Current,
    /// Every version, as stored.
    All,
    /// `v$windows`: the status of each window.
    Windows,
    /// What batch runs have made of windows.
    Runs,
    /// `v$late`: refused rows.
    Late,
}

/// The rows of `source` that were rejected, each once: every view over a source has a job of its own that reads it, and
/// meets the same bad rows at the same (split, offset). Shaped as [`rejects_schema`].
///
/// # Errors
///
/// `Internal` only.
pub fn rejects_of(source: &str, views: &[ViewReader]) -> Result<Arc<dyn TableProvider>> {
    let rejects = |view: &ViewReader| {
        LogicalPlanBuilder::scan(&view.shared.table.name, provider_as_source(view.rejects(source)), None)
    };
    let build = || -> datafusion::common::Result<LogicalPlan> {
        let Some((first, others)) = views.split_first() else {
            let empty = MemTable::try_new(rejects_schema(), vec![Vec::new()])?;
            return LogicalPlanBuilder::scan(source, provider_as_source(Arc::new(empty)), None)?.build();
        };
        if others.is_empty() {
            return rejects(first)?.build();
        }
        let mut all = rejects(first)?;
        for view in others {
            all = all.union(rejects(view)?.build()?)?;
        }
        let columns = all.schema().columns().into_iter().map(Expr::Column).collect::<Vec<_>>();
        let (place, seen_at) = (columns[..2].to_vec(), columns[columns.len() - 1].clone());
        let first_seen = place.iter().cloned().chain([seen_at]).map(|column| column.sort(true, true)).collect();
        all.distinct_on(place, columns, Some(first_seen))?.build()
    };
    let plan = build().map_err(|e| Error::internal("cannot join the rejects of views").with_source(e))?;
    Ok(Arc::new(datafusion::datasource::ViewTable::new(plan, None)))
}

/// Reads one view. Cheap to clone.
///
/// Readers that come from a [`ViewWriter`] see an epoch when it is decided. Readers opened on their
/// own see what is there when they open or [`refresh`](ViewReader::refresh).
#[derive(Debug, Clone)]
pub struct ViewReader {
    shared: Arc<Shared>,
}

impl ViewReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Opens a stored view for reading only; nothing is written and no writer is disturbed.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no such view or it holds other columns, `Corrupt` for damaged files, `Unavailable` from
    /// the store.
    pub async fn open(storage: Storage, table: ViewTable, clock: Arc<dyn Clock>) -> Result<Self> {
        let this = Self::new(Arc::new(Shared::try_new(storage, table, clock)?));
        this.refresh().await?;
        Ok(this)
    }

    /// Looks in storage for what another process has written since. Not for readers that come from a writer.
    ///
    /// # Errors
    ///
    /// As [`ViewReader::open`].
    pub async fn refresh(&self) -> Result<()> {
        let Some(loaded) = load(&self.shared.storage, &self.shared.paths).await? else {
            return Err(Error::invalid(format!("no such view is stored: view=`{}`", self.shared.table.name)));
        };
        if let Some(newest) = loaded.manifests.last() {
            check_columns(&self.shared, newest)?;
        }
        if loaded.state.epoch >= self.shared.state().epoch {
            self.shared.replace(loaded.state);
        }
        Ok(())
    }

    /// The view's definition as the store knows it.
    pub fn table(&self) -> &ViewTable {
        &self.shared.table
    }

    /// The last epoch seen.
    pub fn epoch(&self) -> u64 {
        self.shared.state().epoch
    }

    /// Waits for an epoch after `epoch`, or the end of writing. Gives the last epoch, and whether more may come.
    pub async fn next_epoch_after(&self, epoch: u64) -> (u64, bool) {
        let mut state = self.shared.watch();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = state.wait_for(|state| state.epoch > epoch || state.phase != Phase::Live).await;
        let state = self.shared.state();
        (state.epoch, state.phase == Phase::Live)
    }

    /// Totals of the job as of the last epoch seen.
    pub fn counts(&self) -> FateCounts {
        self.shared.state().counts.clone()
    }

    /// When the last epoch seen was stamped, µs.
    pub fn stamp_us(&self) -> i64 {
        self.shared.state().stamp_us
    }

    /// The job's own state as of the last epoch seen.
    pub fn job(&self) -> Arc<serde_json::Value> {
        Arc::clone(&self.shared.state().job)
    }

    /// The columns of `read`. The SELECT columns come first; in history their changes follow them.
    pub fn schema(&self, read: Read) -> SchemaRef {
        match read {
            Read::Latest | Read::Final | Read::AsOf(_) | Read::Current | Read::All => {
                Arc::clone(&self.shared.stored.results)
            }
            Read::History => super::history::schema(&self.shared.stored),
            Read::Windows => with_epoch(&window_status_schema()),
            Read::Runs => with_epoch(&window_runs_schema()),
            Read::Late => Arc::clone(&self.shared.stored.late),
        }
    }

    /// A table of the rows of `read`, as of the last epoch decided now: however often it is scanned, it gives the same
    /// rows. It works before the first epoch, and is empty then.
    ///
    /// # Errors
    ///
    /// `Invalid` for an AS OF in the future or before the view's history begins.
    pub fn provider(&self, read: Read) -> Result<Arc<dyn TableProvider>> {
        let stored = &self.shared.stored;
        let schema = self.schema(read);
        let table = |id, resolve| Arc::new(StoredTable::new(&self.shared, id, Arc::clone(&schema), resolve));
        Ok(match read {
            Read::Latest => table(TableId::Results, Some(Resolve::latest(stored))),
            Read::Final => table(TableId::Results, Some(Resolve::highest_final(stored))),
            Read::AsOf(t_us) => {
                self.check_instant(t_us)?;
                table(TableId::Results, Some(Resolve::as_of(stored, t_us)))
            }
            Read::Current => table(TableId::Results, Some(Resolve::current(stored))),
            Read::All => table(TableId::Results, None),
            Read::Windows => {
                let windows: Arc<dyn TableProvider> = table(TableId::Windows, Some(Resolve::windows(&schema)));
                match self.shared.state().files(&TableId::Runs).is_empty() {
                    true => windows,
                    false => return windows_with_runs(windows, self.provider(Read::Runs)?),
                }
            }
            Read::Runs => table(TableId::Runs, Some(Resolve::windows(&schema))),
            Read::Late => table(TableId::Late, None),
            Read::History => return Ok(Arc::new(HistoryTable::new(Table::new(&self.shared, TableId::Results)))),
        })
    }

    /// A table of the rows of `source` that this view's job rejected; see
    /// [`rejects_schema`]. Jobs of other views over the source keep their own.
    pub fn rejects(&self, source: &str) -> Arc<dyn TableProvider> {
        let id = TableId::Rejects(source.to_owned());
        Arc::new(StoredTable::new(&self.shared, id, rejects_schema(), None))
    }

    /// Versions as they are committed, each with its epoch. See [`Subscription`].
    ///
    /// # Errors
    ///
    /// `Invalid` for an epoch not yet committed.
    pub fn subscribe(&self, since: Since) -> Result<Subscription> {
        Subscription::new(Arc::clone(&self.shared), since)
    }

    /// A writer for the same view, whose epochs this reader sees.
    pub(super) fn unopened_writer(&self) -> ViewWriter {
        ViewWriter::unopened(Arc::clone(&self.shared))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where the view lies, and its name.
    pub(super) fn place(&self) -> (&Storage, &str) {
        (&self.shared.storage, &self.shared.table.name)
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.shared.set_phase(phase);
    }

    pub(super) fn abandon(&self) {
        if self.shared.state().phase == Phase::Live {
            self.shared.set_phase(Phase::Abandoned);
        }
    }

    /// First epoch whose rows subscribers need not read from files.
    #[cfg(test)]
    pub(super) fn oldest_in_memory(&self) -> u64 {
        let state = self.shared.state();
        (1..=state.epoch).find(|epoch| state.recent(*epoch).is_some()).unwrap_or(state.epoch + 1)
    }

    fn check_instant(&self, t_us: i64) -> Result<()> {
        let now_us = self.shared.clock.now_us();
        let text = |us: i64| {
            chrono::DateTime::from_timestamp_micros(us)
                .map_or_else(|| us.to_string(), |t| t.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
        };
        let state: Arc<ViewState> = self.shared.state();
        if t_us > now_us.max(state.stamp_us) {
            return Err(Error::invalid(format!("AS OF is in the future: t=`{}` now=`{}`", text(t_us), text(now_us))));
        }
        if t_us < state.horizon_us {
            let message = format!("AS OF is before the view's history begins: t=`{}`", text(t_us));
            return Err(Error::invalid(message).with_hint(format!("history begins at {}", text(state.horizon_us))));
        }
        Ok(())
    }
}
