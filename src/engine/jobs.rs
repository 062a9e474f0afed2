//! Jobs as rows, of streams and of batch runs: `SHOW JOBS` and `system.jobs`.

use arrow::array::RecordBatch;

use super::catalog::{EngineCatalog, ViewEntry};
use super::show::{Column, columns_of, view_error, view_state, watermark_text};
use crate::checkpoint;
use crate::error::Result;
use crate::finalize::JobRecord;
use crate::runtime::{JobHandle, JobProgress};

/// Name of the relation.
pub(super) const RELATION: &str = "system.jobs";

/// A row of the table.
enum Job {
    Stream { view: Box<ViewEntry>, record: checkpoint::JobRecord, progress: Option<JobProgress> },
    Run(JobRecord),
}

impl EngineCatalog {
    /// All jobs: those that keep views first, then batch runs, oldest first.
    ///
    /// # Errors
    /// `Unavailable` from the store, `Corrupt` for a damaged record of a run.
    pub(super) async fn job_rows(&self) -> Result<RecordBatch> {
        let now_us = self.jobs.now_us();
        let mut jobs: Vec<Job> = Vec::new();
        for (_, view) in self.views() {
            let record = checkpoint::JobRecord::read(&view.reader.job())?;
            let progress = view.job.as_ref().map(JobHandle::progress);
            jobs.push(Job::Stream { view: Box::new(view), record, progress });
        }
        jobs.extend(self.jobs.list().await?.into_iter().map(Job::Run));
        let text = |value: &dyn Fn(&Job) -> Option<String>| Column::Text(jobs.iter().map(value).collect());
        let number = |stream: &dyn Fn(&Job) -> Option<u64>, run: &dyn Fn(&JobRecord) -> Option<u64>| {
            let value = |job: &Job| match job {
                Job::Stream { .. } => stream(job),
                Job::Run(record) => run(record),
            };
            Column::Number(jobs.iter().map(|job| value(job).and_then(|n| i64::try_from(n).ok())).collect())
        };
        let time = |run: &dyn Fn(&JobRecord) -> Option<i64>| {
            Column::Time(jobs.iter().map(|job| if let Job::Run(record) = job { run(record) } else { None }).collect())
        };
        // A range without a bound has none to show.
        let bound = |us: i64| (us != i64::MIN && us != i64::MAX).then_some(us);
        let never = |_: &Job| None;
        columns_of(vec![
            ("id", number(&never, &|record| Some(record.id))),
            ("kind", text(&|job| Some(job.kind().to_owned()))),
            ("view", text(&|job| Some(job.view()))),
            ("status", text(&|job| Some(job.status().to_owned()))),
            ("rows_read", number(&Job::rows_read, &|record| Some(record.rows_read))),
            ("bytes_read", number(&Job::bytes_read, &|_| None)),
            ("epoch", number(&Job::epoch, &|_| None)),
            ("watermark", text(&Job::watermark)),
            ("checkpoint_age", text(&|job| job.checkpoint_age(now_us))),
            ("checkpoint_bytes", number(&Job::checkpoint_bytes, &|_| None)),
            ("windows", number(&never, &|record| Some(record.windows))),
            ("windows_changed", number(&never, &|record| Some(record.windows_changed))),
            ("range_from", time(&|record| bound(record.after_us))),
            ("range_to", time(&|record| bound(record.to_us))),
            ("reason", text(&Job::reason)),
            ("created", time(&|record| Some(record.created_us))),
            ("started", time(&|record| record.started_us)),
            ("finished", time(&|record| record.finished_us)),
            ("error", text(&Job::error)),
        ])
    }
}

impl Job {
    fn kind(&self) -> &'static str {
        match self {
            Self::Stream { .. } => "stream",
            Self::Run(record) => record.kind.as_str(),
        }
    }

    fn view(&self) -> String {
        match self {
            Self::Stream { view, .. } => view.reader.table().name.clone(),
            Self::Run(record) => record.view.clone(),
        }
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Stream { view, record, .. } => view_state(view, record),
            Self::Run(record) => record.status.as_str(),
        }
    }

    fn rows_read(&self) -> Option<u64> {
        if let Self::Stream { view, .. } = self { Some(view.reader.counts().read) } else { None }
    }

    fn bytes_read(&self) -> Option<u64> {
        if let Self::Stream { progress, .. } = self { progress.as_ref().map(|p| p.bytes_read) } else { None }
    }

    fn epoch(&self) -> Option<u64> {
        if let Self::Stream { view, .. } = self { Some(view.reader.epoch()) } else { None }
    }

    fn watermark(&self) -> Option<String> {
        let Self::Stream { progress, .. } = self else { return None };
        progress.as_ref().and_then(|progress| watermark_text(progress.watermark_us))
    }

    fn checkpoint_age(&self, now_us: i64) -> Option<String> {
        let Self::Stream { view, .. } = self else { return None };
        let stamp_us = view.reader.stamp_us();
        let age_us = now_us.saturating_sub(stamp_us).max(0);
        (stamp_us != i64::MIN).then(|| format!("{:.1} s", age_us as f64 / 1e6))
    }

    fn checkpoint_bytes(&self) -> Option<u64> {
        if let Self::Stream { record, .. } = self { Some(record.state_bytes) } else { None }
    }

    fn reason(&self) -> Option<String> {
        if let Self::Run(record) = self { Some(record.reason.clone()) } else { None }
    }

    fn error(&self) -> Option<String> {
        match self {
            Self::Stream { view, .. } => view_error(view),
            Self::Run(record) => record.error.clone(),
        }
    }
}
