//! The results task: merges what workers give, fires windows, numbers versions, and hands epochs to the sink.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use tokio::sync::mpsc;

use super::job::Progress;
use super::recovery::{LedgerExports, SequencerFacts, SessionExports};
use super::worker::FromWorker;
use crate::change::ChangeKind;
use crate::checkpoint::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::chain::ResultChain;
use crate::operators::failed::FailedResult;
use crate::operators::failure;
use crate::operators::fate::{FateCounts, WindowCounts};
use crate::operators::graph::Policy;
use crate::operators::ledger::{Ledger, WindowStatus};
use crate::operators::merge::{WindowEvent, WindowMerge};
use crate::operators::sequence::SplitRejects;
use crate::window::Window;

/// Everything one epoch gives.
#[derive(Debug, Default)]
pub struct EpochOutput {
    /// New versions, shaped as [`crate::operators::publish::Publisher::output`].
    pub versions: Vec<RecordBatch>,
    /// Refused rows, shaped as [`crate::operators::ordered::late_schema`].
    pub late: Vec<RecordBatch>,
    /// Rejected rows.
    pub rejects: Vec<SplitRejects>,
    /// Results of which a value could not be computed.
    pub failed: Vec<FailedResult>,
    /// Windows that changed.
    pub windows: Vec<(Window, WindowStatus)>,
    /// Totals up to and including this epoch.
    pub counts: FateCounts,
    /// Where the job stands, for the one that recovers; only for a sink that keeps it.
    pub snapshot: Option<Snapshot>,
    /// Whether nothing comes after it.
    pub last: bool,
    /// Whether that is because the input has ended.
    pub ended: bool,
}

/// Where a job's results go.
#[async_trait]
pub trait ResultSink: Send {
    /// Versions (or, without a window, rows) as soon as they are there, before their epoch ends. A sink that keeps
    /// epochs returns false from [`ResultSink::wants_versions_at_once`] and is never called.
    async fn versions(&mut self, batches: Vec<RecordBatch>) -> Result<()>;

    /// Whether versions are wanted as soon as they are there.
    fn wants_versions_at_once(&self) -> bool;

    /// Whether each epoch is to come with a snapshot of the job.
    fn keeps_state(&self) -> bool {
        false
    }

    /// An epoch has ended.
    async fn epoch(&mut self, epoch: EpochOutput) -> Result<()>;
}

/// What the sequencer tells the results task, in order with what it tells the workers.
#[derive(Debug)]
pub(super) enum Step {
    /// Rows of a view without a window.
    Rows(RecordBatch),
    /// W has risen, by way of these values at which windows closed.
    Watermark { w: i64, closings: Vec<i64> },
    /// The epoch ends.
    Epoch(Box<EpochFacts>),
}

/// What the sequencer knows of an epoch.
#[derive(Debug, Default)]
pub(super) struct EpochFacts {
    pub early: bool,
    pub counts: FateCounts,
    pub windows: BTreeMap<Window, WindowCounts>,
    pub late: Vec<RecordBatch>,
    pub rejects: Vec<SplitRejects>,
    /// Where the sequencer stands, if the sink keeps it.
    pub facts: Option<SequencerFacts>,
    pub last: bool,
    pub ended: bool,
    pub done: Option<tokio::sync::oneshot::Sender<()>>,
}

/// State of the results task.
pub(super) struct Results {
    pub merge: Option<WindowMerge>,
    /// What workers said of their sessions, for checkpoints.
    pub sessions: SessionExports,
    pub chain: Option<ResultChain>,
    pub ledger: Ledger,
    /// What checkpoints keep of the ledger's windows.
    pub noted: LedgerExports,
    /// What each bounded source had when the job started, for checkpoints.
    pub covered: Vec<(String, RecordBatch)>,
    pub policy: Policy,
    pub counts: FateCounts,
    pub versions: Vec<RecordBatch>,
    pub late: Vec<RecordBatch>,
}

/// What the results task passes to the sink task.
pub(super) enum ToSink {
    Versions(Vec<RecordBatch>),
    Epoch(Box<EpochOutput>, Option<tokio::sync::oneshot::Sender<()>>),
}

/// Runs until the last epoch, or until something upstream has ended.
pub(super) async fn run(
    mut results: Results,
    mut steps: mpsc::Receiver<Step>,
    mut workers: Vec<mpsc::Receiver<Result<FromWorker>>>,
    at_once: bool,
    to: mpsc::Sender<ToSink>,
    progress: Arc<Progress>,
) -> Result<()> {
    let closed = || Error::new(ErrorKind::Closed, "the sink has ended");
    if at_once {
        // Such a sink keeps no epochs, and with them no windows.
        results.ledger = Ledger::unread();
    }
    while let Some(step) = steps.recv().await {
        if let Step::Rows(rows) = step {
            to.send(ToSink::Versions(vec![rows])).await.map_err(|_| closed())?;
            continue;
        }
        let known = (results.versions.len(), results.late.len());
        for (number, worker) in workers.iter_mut().enumerate() {
            results.align(number, worker).await?;
        }
        let epoch = match step {
            Step::Rows(_) => None,
            Step::Watermark { w, closings } => {
                results.on_watermark(w, &closings)?;
                progress.add_held(results.rows_since(known));
                None
            }
            Step::Epoch(facts) => {
                let epoch = results.on_epoch(*facts)?;
                progress.set_counts(&results.counts);
                Some(epoch)
            }
        };
        if at_once && !results.versions.is_empty() {
            let versions = std::mem::take(&mut results.versions);
            to.send(ToSink::Versions(versions)).await.map_err(|_| closed())?;
        }
        if let Some((mut epoch, done)) = epoch {
            epoch.versions = std::mem::take(&mut results.versions);
            let last = epoch.last;
            to.send(ToSink::Epoch(Box::new(epoch), done)).await.map_err(|_| closed())?;
            if last {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Hands everything to the sink, in order.
pub(super) async fn sink(mut sink: Box<dyn ResultSink>, mut from: mpsc::Receiver<ToSink>) -> Result<()> {
    while let Some(message) = from.recv().await {
        match message {
            ToSink::Versions(batches) => sink.versions(batches).await?,
            ToSink::Epoch(epoch, done) => {
                sink.epoch(*epoch).await?;
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
        }
    }
    Ok(())
}

impl Results {
    /// Rows kept for the end of the epoch besides so many batches of versions and refused rows.
    fn rows_since(&self, (versions, late): (usize, usize)) -> u64 {
        let batches = self.versions[versions..].iter().chain(&self.late[late..]);
        batches.map(|batch| batch.num_rows() as u64).sum()
    }

    /// Takes what a worker gives until it has handled the control message at hand.
    async fn align(&mut self, number: usize, worker: &mut mpsc::Receiver<Result<FromWorker>>) -> Result<()> {
        loop {
            match worker.recv().await {
                None => return Err(Error::new(ErrorKind::Closed, "a worker has ended")),
                Some(Err(error)) => return Err(error),
                Some(Ok(FromWorker::Aligned)) => return Ok(()),
                Some(Ok(FromWorker::Late(rows))) => self.late.push(rows),
                Some(Ok(FromWorker::Exported(export))) => self.sessions.add(number, *export),
                Some(Ok(FromWorker::Sealed(sealed))) => {
                    let merge = self.merge.as_mut().ok_or_else(|| Error::internal("a chunk without a merge"))?;
                    merge.on_sealed(sealed).map_err(failure)?;
                }
                Some(Ok(FromWorker::Sessions(given))) => {
                    self.counts.add(&given.counts);
                    for (window, counts) in given.windows {
                        self.ledger.add(&self.policy, window, counts);
                    }
                    for (window, counts) in given.windows_gone {
                        self.ledger.remove(window, counts);
                    }
                    let chain = self.chain.as_mut().ok_or_else(|| Error::internal("sessions without results"))?;
                    for changes in given.changes {
                        chain.on_changes(changes, &mut self.versions)?;
                    }
                }
            }
        }
    }

    fn on_watermark(&mut self, w: i64, closings: &[i64]) -> Result<()> {
        let mut events = Vec::new();
        if let Some(merge) = &mut self.merge {
            merge.on_watermark(w, &mut events).map_err(failure)?;
        }
        self.pass(events)?;
        if let Some(chain) = &mut self.chain {
            chain.on_watermark(w, &mut self.versions)?;
        }
        self.ledger.on_watermark(&self.policy, w, closings);
        Ok(())
    }

    fn on_epoch(&mut self, facts: EpochFacts) -> Result<(EpochOutput, Option<tokio::sync::oneshot::Sender<()>>)> {
        let mut events = Vec::new();
        if let Some(merge) = &mut self.merge {
            merge.on_epoch(facts.early, &mut events).map_err(failure)?;
        }
        self.pass(events)?;
        let mut failed = Vec::new();
        if let Some(chain) = &mut self.chain {
            chain.on_epoch(facts.early, &mut self.versions)?;
            failed = chain.take_failed();
            self.ledger.set_dirty(chain.dirty_windows());
        }
        self.counts.add(&facts.counts);
        for (window, counts) in facts.windows {
            self.ledger.add(&self.policy, window, counts);
        }
        let mut late = std::mem::take(&mut self.late);
        late.extend(facts.late);
        let windows = self.ledger.take_changed();
        let snapshot = match facts.facts {
            Some(facts) => {
                self.noted.add(&self.ledger, &windows)?;
                Some(self.snapshot(facts)?)
            }
            None => None,
        };
        let epoch = EpochOutput {
            versions: Vec::new(),
            late,
            rejects: facts.rejects,
            failed,
            windows,
            counts: self.counts.clone(),
            snapshot,
            last: facts.last,
            ended: facts.ended,
        };
        Ok((epoch, facts.done))
    }

    fn pass(&mut self, events: Vec<WindowEvent>) -> Result<()> {
        let Some(chain) = &mut self.chain else { return Ok(()) };
        for event in events {
            if let WindowEvent::Changes(changes) = event {
                debug_assert!(changes.kind == ChangeKind::Upsert || changes.rows.num_rows() > 0);
                chain.on_changes(changes, &mut self.versions)?;
            }
        }
        Ok(())
    }
}
