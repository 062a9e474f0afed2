//! Batch runs nobody has to ask for: `FINALIZE AFTER` of a view, and windows that late rows queue under `RECOMPUTE`.
//!
//! One task per such view wakes with each epoch. It looks at what the job says of its watermark and at the flags of the
//! view's windows, and asks for runs as a statement would; they are rows of `SHOW JOBS` like any other.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::{Engine, Inner};
use crate::error::Result;
use crate::finalize::Ends;
use crate::finalize::range::last_settled_end;
use crate::finalize::stored::Stored;
use crate::operators::graph::Policy;
use crate::results::ViewReader;
use crate::sql::statement::{Interval, OnExpired, OnLate, RunKind, StreamQuery};
use crate::time::{DAY_US, MINUTE_US};
use crate::watermark;

/// What a view asks for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// `FINALIZE AFTER`, µs.
    finalize_after_us: Option<i64>,
    /// `RECOMPUTE EVERY`, µs.
    recompute_every_us: Option<i64>,
}

/// How far one view's task is.
struct Automatic {
    view: String,
    reader: ViewReader,
    policy: Policy,
    wanted: Wanted,
    /// Windows that end up to here have been finalized, or their run has failed.
    finalized_to: i64,
    recomputed_at_us: Option<i64>,
}

impl Engine {
    /// Starts the task of `view`, if its clauses ask for runs.
    pub(super) fn start_automatic(&self, view: &str, query: &StreamQuery) {
        let Some(entry) = self.inner.catalog.view_entry(view) else { return };
        let policy = entry.graph.policy;
        let every = |every: Option<Interval>| every.map_or(MINUTE_US, |every| micros(&every));
        let late = if let OnLate::Recompute { every: at_most } = policy.on_late { Some(every(at_most)) } else { None };
        let expired =
            if let OnExpired::Recompute { every: at_most } = policy.on_expired { Some(every(at_most)) } else { None };
        let wanted = Wanted {
            finalize_after_us: query.clauses.finalize_after.as_ref().map(|after| micros(&after.node)),
            recompute_every_us: late.into_iter().chain(expired).min(),
        };
        if wanted.finalize_after_us.is_none() && wanted.recompute_every_us.is_none() {
            return;
        }
        let (done, ended) = watch::channel(false);
        self.inner.automatic.lock().insert(view.to_owned(), ended);
        let automatic = Automatic {
            view: view.to_owned(),
            reader: entry.reader,
            policy,
            wanted,
            finalized_to: i64::MIN,
            recomputed_at_us: None,
        };
        let engine = Arc::downgrade(&self.inner);
        crate::runtime::detach(async move {
            automatic.run(engine).await;
            done.send_replace(true);
        });
    }

    /// Waits until the tasks of views whose jobs have ended have done what there was to do.
    pub(super) async fn automatic_done(&self) {
        let waiting: Vec<_> = {
            let automatic = self.inner.automatic.lock();
            let ended = |view: &String| {
                let job = self.inner.catalog.view_entry(view).and_then(|entry| entry.job);
                job.is_some_and(|job| job.outcome().is_some())
            };
            automatic.iter().filter(|(view, _)| ended(view)).map(|(_, done)| done.clone()).collect()
        };
        for mut done in waiting {
            // The sender goes away with its task.
            let _ = done.wait_for(|done| *done).await;
        }
    }
}

impl Automatic {
    async fn run(mut self, engine: Weak<Inner>) {
        let mut epoch = self.reader.epoch();
        loop {
            let Some(inner) = engine.upgrade() else { return };
            let engine = Engine { inner };
            let Some(entry) = engine.inner.catalog.view_entry(&self.view) else { return };
            let ended = entry.job.as_ref().is_none_or(|job| job.outcome().is_some());
            if let Err(error) = self.look(&engine, ended).await {
                // The run is listed as failed; the next epoch is another chance.
                tracing::warn!(view = %self.view, %error, "an automatic run failed");
            }
            if ended {
                return;
            }
            drop(engine);
            let live;
            (epoch, live) = self.reader.next_epoch_after(epoch).await;
            if let (false, Some(job)) = (live, entry.job) {
                // How it ended is in its own row.
                let _ = job.wait().await;
            }
        }
    }

    async fn look(&mut self, engine: &Engine, ended: bool) -> Result<()> {
        let now_us = engine.inner.options.clock.now_us();
        let planner = engine.planner();
        let stored = Stored { reader: &self.reader, session: planner.session() };
        let Some(entry) = engine.inner.catalog.view_entry(&self.view) else { return Ok(()) };
        let w = match &entry.job {
            Some(job) if !ended => job.progress().watermark_us,
            _ => stored.watermark(&self.policy).await?,
        };
        if w == watermark::NONE {
            return Ok(());
        }
        let mut failed = Ok(());
        if let Some(after_us) = self.wanted.finalize_after_us {
            if self.finalized_to == i64::MIN {
                self.finalized_to = stored.final_to().await?.unwrap_or(i64::MIN);
            }
            // Nothing more comes of a job that has ended, so there is nothing to wait for.
            let waited = if ended { w } else { w.saturating_sub(after_us) };
            let due = last_settled_end(&self.policy, waited).min(now_us);
            if self.finalized_to < due && stored.any_to_finalize(Ends { after: self.finalized_to, to: due }).await? {
                let ends = Ends { after: self.finalized_to, to: due };
                let run = engine.run_of(RunKind::Finalize, &self.view, ends, now_us).await;
                failed = run.map(drop);
                // Only then: W may be ahead of the epoch that tells of the windows it closed.
                self.finalized_to = due;
            }
        }
        if let Some(every_us) = self.wanted.recompute_every_us {
            let waited = self.recomputed_at_us.is_none_or(|at| now_us.saturating_sub(at) >= every_us);
            let settled = last_settled_end(&self.policy, w).min(now_us);
            let queued = if waited || ended { stored.queued(settled).await? } else { Vec::new() };
            for ends in queued {
                self.recomputed_at_us = Some(now_us);
                engine.run_of(RunKind::Reprocess, &self.view, ends, now_us).await?;
            }
        }
        failed
    }
}

/// A clause's length; months are 30 days.
fn micros(interval: &Interval) -> i64 {
    let days = interval.months.saturating_mul(30).saturating_add(interval.days);
    days.saturating_mul(DAY_US).saturating_add(interval.micros)
}
