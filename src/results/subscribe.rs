//! Versions as they are committed.
//!
//! A subscription holds a place, the last epoch it gave, and looks at the shared state for what came after. Nothing is
//! sent to it and nothing is queued for it, so however slow it is, it holds nobody back and loses nothing: what is no
//! longer in memory it reads from the store.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use futures::Stream;
use tokio::sync::watch;

use super::reader::{Read, ViewReader};
use super::schema::column;
use super::state::{Phase, Shared, ViewState};
use super::table::Table;
use crate::checkpoint::TableId;
use crate::error::{Error, ErrorKind, Result};

/// Epochs read from files at a time.
const EPOCHS_AHEAD: u64 = 64;

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// With the latest version of every identity, under the number of the last epoch; then what comes.
    Snapshot,
    /// With the first epoch after this one. 0 is everything.
    Epoch(u64),
    /// With the first version computed after this instant, µs UTC.
    Time(i64),
    /// With the next epoch to come.
    Now,
}

/// A place in a view's sequence of epochs.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    states: watch::Receiver<Arc<ViewState>>,
    /// Last epoch given or skipped.
    given: u64,
    /// Versions computed at or before this are left out.
    after_us: i64,
    snapshot: bool,
    /// Epochs read from files and not given yet, ascending. Compacted files hold many epochs, and are not to be read
    /// once for each.
    ahead: VecDeque<(u64, RecordBatch)>,
}

impl Subscription {
    pub(super) fn new(shared: Arc<Shared>, since: Since) -> Result<Self> {
        let states = shared.watch();
        let state = shared.state();
        let now = state.epoch;
        let (given, after_us) = match since {
            Since::Snapshot | Since::Now => (now, i64::MIN),
            Since::Epoch(epoch) if epoch <= now => (epoch, i64::MIN),
            Since::Epoch(epoch) => {
                let message = format!("no such epoch yet: epoch=`{epoch}` last=`{now}`");
                return Err(Error::invalid(message));
            }
            Since::Time(t_us) => (0, t_us),
        };
        let snapshot = since == Since::Snapshot;
        let subscription = Self { shared, states, given, after_us, snapshot, ahead: VecDeque::new() };
        subscription.check_kept(&state)?;
        Ok(subscription)
    }

    /// The next epoch that published something, with its versions; `None` when the view has ended. A reader that
    /// remembers the epoch can go on after it with [`Since::Epoch`].
    ///
    /// Cancel-safe: a dropped call loses nothing.
    ///
    /// # Errors
    ///
    /// `Closed` if the view's job went away without ending; `Invalid` if retention has overtaken it; `Unavailable` or
    /// `Corrupt` from the store.
    pub async fn next(&mut self) -> Result<Option<(u64, RecordBatch)>> {
        if self.snapshot {
            let (epoch, rows) = self.read_snapshot().await?;
            (self.snapshot, self.given) = (false, epoch);
            if rows.num_rows() > 0 {
                return Ok(Some((epoch, rows)));
            }
        }
        loop {
            let state = Arc::clone(&self.states.borrow_and_update());
            while self.given < state.epoch {
                let found = self.read_next(&state).await?;
                self.given = found.as_ref().map_or(state.epoch, |(epoch, _)| *epoch);
                if found.is_some() {
                    return Ok(found);
                }
            }
            match state.phase {
                Phase::Ended => return Ok(None),
                Phase::Abandoned => {
                    let message = format!("the view's job has gone away: view=`{}`", self.shared.table.name);
                    return Err(Error::new(ErrorKind::Closed, message));
                }
                // The sender lives in `shared`, so waiting cannot fail.
                Phase::Live => drop(self.states.changed().await),
            }
        }
    }

    /// The same as a stream. It ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<(u64, RecordBatch)>> + Send {
        futures::stream::unfold(Some(self), |this| async move {
            let mut this = this?;
            match this.next().await {
                Ok(Some(found)) => Some((Ok(found), Some(this))),
                Ok(None) => None,
                Err(e) => Some((Err(e), None)),
            }
        })
    }

    async fn read_snapshot(&self) -> Result<(u64, RecordBatch)> {
        let reader = ViewReader::new(Arc::clone(&self.shared));
        let epoch = reader.epoch();
        let provider = reader.provider(Read::Latest)?;
        let context = SessionContext::new();
        let plan = provider.scan(&context.state(), None, &[], None).await.map_err(read_error)?;
        Ok((epoch, self.run(&context, plan).await?))
    }

    /// The first epoch after the last given one that has versions for this subscription.
    async fn read_next(&mut self, state: &Arc<ViewState>) -> Result<Option<(u64, RecordBatch)>> {
        for epoch in self.given + 1..=state.epoch {
            let rows = match state.recent(epoch) {
                Some(recent) => self.after_time(concat_batches(&self.shared.stored.results, &recent.batches))?,
                None => return self.read_stored(state).await,
            };
            if rows.num_rows() > 0 {
                return Ok(Some((epoch, rows)));
            }
        }
        Ok(None)
    }

    /// Retention may have dropped versions that would be next: a hole is never passed over in silence.
    fn check_kept(&self, state: &ViewState) -> Result<()> {
        if self.given >= state.horizon_epoch || self.after_us >= state.horizon_us {
            return Ok(());
        }
        let message = format!(
            "versions that come next have been forgotten: view=`{}` history_begins_after_epoch=`{}`",
            self.shared.table.name, state.horizon_epoch
        );
        Err(Error::invalid(message)
            .with_hint("SUBSCRIBE … WITH SNAPSHOT begins with the latest version of every result"))
    }

    /// As [`Self::read_next`], from the files. Goes through those that hold later epochs, lowest first.
    async fn read_stored(&mut self, state: &Arc<ViewState>) -> Result<Option<(u64, RecordBatch)>> {
        while let Some((epoch, rows)) = self.ahead.pop_front() {
            if epoch > self.given {
                return Ok(Some((epoch, rows)));
            }
        }
        self.check_kept(state)?;
        let mut files = state.files(&TableId::Results).to_vec();
        files.retain(|file| file.computed_us.1 > self.after_us);
        let mut from = self.given + 1;
        loop {
            let later = files.iter().filter(|file| file.epochs.1 >= from);
            let Some(first) = later.map(|file| file.epochs.0.max(from)).min() else { return Ok(None) };
            let last = (first + EPOCHS_AHEAD - 1).min(state.epoch);
            let holding = files.iter().filter(|file| file.epochs.0 <= last && first <= file.epochs.1);
            let holding: Vec<_> = holding.cloned().collect();
            let table = Table { shared: Arc::clone(&self.shared), id: TableId::Results, state: Arc::clone(state) };
            let context = SessionContext::new();
            let schema = &self.shared.stored.results;
            let every: Vec<usize> = (0..schema.fields().len()).collect();
            let plan = table.scan(&context.state(), schema, &holding, &every, None).map_err(read_error)?;
            let rows = self.after_time(Ok(self.run(&context, plan).await?))?;
            self.ahead = self.by_epoch(&rows, first..=last)?;
            if let Some(next) = self.ahead.pop_front() {
                return Ok(Some(next));
            }
            from = last + 1;
        }
    }

    /// The rows of each epoch in `range` that has any.
    fn by_epoch(&self, rows: &RecordBatch, range: RangeInclusive<u64>) -> Result<VecDeque<(u64, RecordBatch)>> {
        let epochs = rows.column(self.shared.stored.index(column::EPOCH)).as_primitive::<Int64Type>();
        let found: BTreeSet<u64> =
            epochs.values().iter().filter_map(|e| u64::try_from(*e).ok()).filter(|e| range.contains(e)).collect();
        let pick = |epoch: u64| {
            let of_epoch = epochs.iter().map(|e| e.map(|e| u64::try_from(e) == Ok(epoch))).collect();
            Ok((epoch, filter_record_batch(rows, &of_epoch).map_err(super::files::arrow_error)?))
        };
        found.into_iter().map(pick).collect()
    }

    fn after_time(&self, rows: Result<RecordBatch, arrow::error::ArrowError>) -> Result<RecordBatch> {
        let rows = rows.map_err(super::files::arrow_error)?;
        let computed = rows.column(self.shared.stored.index(column::COMPUTED_AT));
        let computed = computed.as_primitive::<TimestampMicrosecondType>();
        if computed.values().iter().all(|t| *t > self.after_us) {
            return Ok(rows);
        }
        let later = computed.iter().map(|t| t.map(|t| t > self.after_us)).collect();
        filter_record_batch(&rows, &later).map_err(super::files::arrow_error)
    }

    async fn run(&self, context: &SessionContext, plan: Arc<dyn ExecutionPlan>) -> Result<RecordBatch> {
        let batches = collect(plan, context.task_ctx()).await.map_err(read_error)?;
        concat_batches(&self.shared.stored.results, &batches).map_err(super::files::arrow_error)
    }
}

fn read_error(e: datafusion::error::DataFusionError) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot read stored versions").with_source(e)
}
