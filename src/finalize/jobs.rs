//! Batch runs as rows: each is kept in the data dir from when it was asked for, and can be listed and cancelled.
//!
//! A record is a file of its own, `jobs/<number>.json`, created before the run begins: its number is the first that was
//! free. A run whose engine went away is found as running with nobody running it; it counts as failed, and running the
//! statement again does the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::path::Path;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::range::Ends;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Created, Document, Storage};

/// Records kept; older ones that have ended are removed.
const RECORDS_MAX: usize = 10_000;
const FOLDER: &str = "jobs";
const RECORD: Document = Document { name: "the record of a run", format_version: 1 };

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Publishes final versions.
    Finalize,
    /// Publishes corrected versions.
    Reprocess,
    /// Adds refused rows.
    Patch,
    /// Compares.
    Verify,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// It waits for another run of its view.
    Pending,
    /// It is at work.
    Running,
    /// It is done, and what it published can be read.
    Completed,
    /// It ended with an error and has published nothing.
    Failed,
    /// Somebody ended it; it has published nothing.
    Cancelled,
}

impl JobKind {
    /// As it is listed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finalize => "finalize",
            Self::Reprocess => "reprocess",
            Self::Patch => "patch",
            Self::Verify => "verify",
        }
    }
}

impl JobStatus {
    /// As it is listed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its number.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// Of which view.
    pub view: String,
    /// The windows: those that end after this, µs,
    pub after_us: i64,
    /// and not after this.
    pub to_us: i64,
    /// The `_reason` of its versions.
    pub reason: String,
    /// Where it stands.
    pub status: JobStatus,
    /// When it was asked for, µs UTC.
    pub created_us: i64,
    /// When it began.
    pub started_us: Option<i64>,
    /// When it ended.
    pub finished_us: Option<i64>,
    /// Rows it read.
    pub rows_read: u64,
    /// Windows it took.
    pub windows: u64,
    /// Windows with a result that it changed.
    pub windows_changed: u64,
    /// Why it failed.
    pub error: Option<String>,
    /// Fingerprint of the input it covered.
    pub coverage: Option<String>,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What to do.
    pub kind: JobKind,
    /// Of which view.
    pub view: String,
    /// Which windows.
    pub ends: Ends,
    /// The `_reason` of the versions.
    pub reason: String,
}

/// A run that was asked for. It ends by [`Running::end`]; dropped before, it stays listed as running until the next start.
#[derive(Debug)]
pub struct Running {
    record: JobRecord,
    cancelled: watch::Receiver<bool>,
}

/// All runs of one data dir.
#[derive(Debug)]
pub struct Jobs {
    storage: Storage,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held while the records are read for the first time.
    loading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    loaded: bool,
    records: BTreeMap<u64, JobRecord>,
    running: BTreeMap<u64, watch::Sender<bool>>,
}

impl Jobs {
    /// The runs kept in `storage`. Nothing is read before it is asked for.
    pub fn new(storage: Storage, clock: Arc<dyn Clock>) -> Self {
        Self { storage, clock, state: Mutex::default(), loading: tokio::sync::Mutex::default() }
    }

    /// The time, µs UTC, by which runs are noted.
    pub fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// Every run that is kept, oldest first.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store; `Corrupt` for a damaged record.
    pub async fn list(&self) -> Result<Vec<JobRecord>> {
        self.load().await?;
        Ok(self.state.lock().records.values().cloned().collect())
    }

    /// Notes that a run was asked for.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store.
    pub async fn ask(&self, asked: Asked) -> Result<Running> {
        self.load().await?;
        let mut record = JobRecord {
            id: self.state.lock().records.keys().next_back().map_or(1, |last| last + 1),
            kind: asked.kind,
            view: asked.view,
            after_us: asked.ends.after,
            to_us: asked.ends.to,
            reason: asked.reason,
            status: JobStatus::Pending,
            created_us: self.clock.now_us(),
            started_us: None,
            finished_us: None,
            rows_read: 0,
            windows: 0,
            windows_changed: 0,
            error: None,
            coverage: None,
        };
        while self.storage.create(&path(record.id), RECORD.encode(&record)?).await? == Created::Exists {
            record.id += 1;
        }
        let (cancel, cancelled) = watch::channel(false);
        let mut state = self.state.lock();
        state.records.insert(record.id, record.clone());
        state.running.insert(record.id, cancel);
        Ok(Running { record, cancelled })
    }

    /// Ends a run that is not done yet.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no such run, or it has ended.
    pub async fn cancel(&self, id: &str) -> Result<()> {
        self.load().await?;
        let state = self.state.lock();
        let known = id.parse().ok().and_then(|id: u64| state.records.get(&id));
        let record = known.ok_or_else(|| Error::invalid(format!("no job `{id}`")).with_hint("SHOW JOBS lists them"))?;
        match state.running.get(&record.id) {
            Some(cancel) => {
                cancel.send_replace(true);
                Ok(())
            }
            None => Err(Error::invalid(format!("job `{id}` has ended: status=`{}`", record.status.as_str()))),
        }
    }

    async fn load(&self) -> Result<()> {
        let _loading = self.loading.lock().await;
        if self.state.lock().loaded {
            return Ok(());
        }
        let mut records = BTreeMap::new();
        for file in self.storage.list(&Path::from(FOLDER), None).await? {
            let Some(bytes) = self.storage.get(&file.location).await? else { continue };
            let mut record: JobRecord = RECORD.decode(file.location.as_ref(), &bytes)?;
            if !record.status.has_ended() {
                record.status = JobStatus::Failed;
                record.error = Some("the engine went away before the run had ended; run it again".to_owned());
            }
            records.insert(record.id, record);
        }
        let mut state = self.state.lock();
        state.loaded = true;
        records.append(&mut state.records);
        state.records = records;
        Ok(())
    }

    async fn save(&self, record: &JobRecord) -> Result<()> {
        self.storage.put(&path(record.id), RECORD.encode(record)?).await?;
        let outdated: Vec<u64> = {
            let mut state = self.state.lock();
            state.records.insert(record.id, record.clone());
            let surplus = state.records.len().saturating_sub(RECORDS_MAX);
            let ended = state.records.values().filter(|record| record.status.has_ended());
            let outdated: Vec<u64> = ended.map(|record| record.id).take(surplus).collect();
            outdated.iter().for_each(|id| drop(state.records.remove(id)));
            outdated
        };
        for id in outdated {
            self.storage.delete(&path(id)).await?;
        }
        Ok(())
    }
}

impl Running {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.record.id
    }

    /// The run begins.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store.
    pub async fn begin(&mut self, jobs: &Jobs) -> Result<()> {
        self.record.status = JobStatus::Running;
        self.record.started_us = Some(jobs.clock.now_us());
        jobs.save(&self.record).await
    }

    /// Tells when somebody cancels it.
    pub fn stop_signal(&self) -> StopSignal {
        StopSignal(self.cancelled.clone())
    }

    /// Notes what the run has done so far.
    pub fn note(&mut self, change: impl FnOnce(&mut JobRecord)) {
        change(&mut self.record);
    }

    /// The run has ended. `None`: it was cancelled.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store.
    pub async fn end(mut self, jobs: &Jobs, outcome: Option<&Result<()>>) -> Result<()> {
        self.record.finished_us = Some(jobs.clock.now_us());
        (self.record.status, self.record.error) = match outcome {
            Some(Ok(())) => (JobStatus::Completed, None),
            Some(Err(error)) => (JobStatus::Failed, Some(error.to_string())),
            None => (JobStatus::Cancelled, None),
        };
        jobs.state.lock().running.remove(&self.record.id);
        jobs.save(&self.record).await
    }
}

/// See [`Running::stop_signal`].
#[derive(Debug)]
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Waits until somebody cancels the run.
    pub async fn asked(mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            // Nobody can any more.
            std::future::pending::<()>().await;
        }
    }
}

/// The error of a run that somebody ended.
pub fn cancelled(id: u64) -> Error {
    Error::new(ErrorKind::Closed, format!("job `{id}` was cancelled; it has published nothing"))
}

/// Twenty digits, so that names sort as numbers.
fn path(id: u64) -> Path {
    Path::from(format!("{FOLDER}/{id:020}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn asked() -> Asked {
        let ends = Ends { after: 0, to: 10 };
        Asked { kind: JobKind::Finalize, view: "v".into(), ends, reason: "finalization".into() }
    }

    fn jobs(storage: &Storage) -> Jobs {
        Jobs::new(storage.clone(), Arc::new(ManualClock::new(5)))
    }

    #[tokio::test]
    async fn runs_are_kept_and_one_left_by_a_crash_counts_as_failed() {
        let storage = Storage::memory();
        let first = jobs(&storage);
        let mut done = first.ask(asked()).await.unwrap();
        done.begin(&first).await.unwrap();
        done.note(|record| record.rows_read = 7);
        done.end(&first, Some(&Ok(()))).await.unwrap();
        let mut crashed = first.ask(asked()).await.unwrap();
        crashed.begin(&first).await.unwrap();
        drop(crashed);

        let second = jobs(&storage);
        let listed = second.list().await.unwrap();
        let rows: Vec<_> = listed.iter().map(|r| (r.id, r.status, r.rows_read)).collect();
        assert_eq!(rows, [(1, JobStatus::Completed, 7), (2, JobStatus::Failed, 0)]);
        assert_eq!(second.ask(asked()).await.unwrap().id(), 3);
    }

    #[tokio::test]
    async fn a_run_is_cancelled_once() {
        let jobs = jobs(&Storage::memory());
        let running = jobs.ask(asked()).await.unwrap();
        jobs.cancel("1").await.unwrap();
        running.stop_signal().asked().await;
        running.end(&jobs, None).await.unwrap();
        assert!(jobs.cancel("1").await.unwrap_err().message().contains("cancelled"));
        assert!(jobs.cancel("x").await.is_err());
    }
}
