//! A view's one writer, shared by its job and by statements that publish beside it.
//!
//! ```text
//!   job's sink ──────────────┐ lock
//!   FINALIZE, ROLLBACK, … ───┼─────► ViewWriter ─► epochs, one after the other
//!   maintenance ─────────────┘
//! ```
//!
//! Whoever holds the lock publishes the next epoch. What a statement publishes carries the job's totals and state on
//! unchanged ([`ViewWriter::next_beside_job`]), so the job neither notices nor recovers differently. Numbers stay in
//! order because a statement reads the versions it follows while it holds the lock, and publishes only for windows its
//! job no longer does (design: one owner).

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};

use super::maintain::{Progress, Upkeep};
use super::reader::ViewReader;
use super::state::{Phase, Shared};
use super::writer::{ViewWriter, remove_view};
use crate::error::{ErrorKind, Result};
use crate::operators::fate::FateCounts;

/// See the module's documentation. Cheap to clone.
#[derive(Clone)]
pub struct SharedWriter {
    writer: Arc<Mutex<ViewWriter>>,
    reader: ViewReader,
    upkeep: Upkeep,
    progress: Arc<Mutex<Progress>>,
}

impl std::fmt::Debug for SharedWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedWriter").field("view", &self.reader.table().name).finish_non_exhaustive()
    }
}

impl From<ViewWriter> for SharedWriter {
    fn from(writer: ViewWriter) -> Self {
        Self::new(writer.reader(), writer)
    }
}

impl SharedWriter {
    /// The writer of the view that `reader` reads. It takes the view over when it is first locked, not before.
    pub fn of(reader: &ViewReader) -> Self {
        Self::new(reader.clone(), reader.unopened_writer())
    }

    fn new(reader: ViewReader, writer: ViewWriter) -> Self {
        let (writer, progress) = (Arc::new(Mutex::new(writer)), Arc::default());
        Self { writer, reader, upkeep: Upkeep::default(), progress }
    }

    /// How the store is kept; see [`SharedWriter::keep_up`].
    #[must_use]
    pub fn with_upkeep(mut self, upkeep: Upkeep) -> Self {
        self.upkeep = upkeep;
        self
    }

    pub(super) fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    pub(super) fn progress(&self) -> &Mutex<Progress> {
        &self.progress
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.reader.shared()
    }

    /// Brings the Delta logs up to date if they wait for it. `false` if this process is not the view's writer.
    pub(super) async fn flush_if_due(&self) -> Result<bool> {
        let mut writer = self.writer.lock().await;
        if writer.stopped().is_some() {
            return Ok(false);
        }
        if writer.flush_due() {
            writer.flush().await?;
        }
        Ok(true)
    }

    /// Whether another writer is known to have taken over.
    pub(super) async fn is_fenced(&self) -> bool {
        self.writer.lock().await.stopped() == Some(ErrorKind::Fenced)
    }

    /// A reader that sees each epoch as soon as it is decided.
    pub fn reader(&self) -> &ViewReader {
        &self.reader
    }

    /// Waits for the epoch at hand and holds back the next one. Takes the view over if that has not been done, or if an
    /// error left the outcome of an epoch unknown.
    ///
    /// # Errors
    ///
    /// As [`ViewWriter::open`]; `Fenced` if another writer has taken over.
    pub async fn lock(&self) -> Result<MutexGuard<'_, ViewWriter>> {
        let mut writer = self.writer.lock().await;
        if writer.stopped().is_some_and(|kind| kind != ErrorKind::Fenced) {
            writer.take_over().await?;
        }
        Ok(writer)
    }

    /// Where a job that begins, or begins again, goes on: totals and job state of the last epoch. Subscriptions wait for
    /// more from now on.
    ///
    /// # Errors
    ///
    /// As [`SharedWriter::lock`].
    pub async fn resume(&self) -> Result<(FateCounts, serde_json::Value)> {
        let writer = self.lock().await?;
        self.reader.set_phase(Phase::Live);
        let (counts, job) = writer.recovered();
        Ok((counts.clone(), job.clone()))
    }

    /// Removes the view's store once nobody is writing; see [`remove_view`]. Who asks for the writer after that is told
    /// that there is no such view.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store: call it again.
    pub async fn remove(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        writer.stop();
        let (storage, name) = self.reader.place();
        remove_view(storage, name).await
    }

    /// No job will publish any more: subscriptions get what there is, and end.
    pub fn complete(&self) {
        self.reader.set_phase(Phase::Ended);
    }

    /// The job has gone away: its subscriptions end with an error, unless they ended well before.
    pub fn abandon(&self) {
        self.reader.abandon();
    }
}
