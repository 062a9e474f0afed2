//! The sequencer task: asks splits for rows, orders and judges them, deals them out, and ends epochs.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Interval;

use super::inputs::{Inputs, Listing};
use super::job::{Control, Progress};
use super::pool::panicked;
use super::reader::FromSplit;
use super::recovery::SequencerFacts;
use super::results::{EpochFacts, Step};
use super::worker::{SessionRows, ToWorker};
use crate::clock::Clock;
use crate::connectors::Accepted;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::aggregate::{Piece, SealAt};
use crate::operators::failure;
use crate::operators::fate::{FateCounts, WindowCounts};
use crate::operators::graph::Policy;
use crate::operators::judge::{Judge, Judgement};
use crate::operators::lifecycle::expires_at;
use crate::operators::ordered::OrderedRows;
use crate::operators::sequence::{Next, Sequencer, SplitRejects};
use crate::sql::statement::Emit;
use crate::watermark;
use crate::window::{Window, WindowSpec};

/// An epoch that holds more versions and refused rows than this ends before its time: what it takes to keep and write
/// one depends on neither the epoch interval nor the speed of the input.
const EPOCH_ROWS_MAX: u64 = 1 << 19;

/// Where rows go after they are in order.
pub(super) enum Route {
    /// Judged here, then any worker.
    Slices { judge: Box<Judge>, window: WindowSpec },
    /// To the worker of their key, which judges them.
    Sessions { keys_len: usize, gap_us: i64 },
    /// Straight to the results.
    Rows,
}

/// An epoch asked for by hand, and the rows it has to cover.
pub(super) struct AskedEpoch {
    /// By split.
    accepted: Vec<(usize, Accepted)>,
    /// To which W is raised behind them.
    raised: Option<i64>,
    done: oneshot::Sender<()>,
}

/// The task's state.
pub(super) struct SequencerTask {
    pub sequencer: Sequencer,
    pub inputs: Inputs,
    /// The split heard last: the others go first, so that one with much to say starves nobody.
    pub heard: usize,
    /// When to look for new splits; none if there cannot be any.
    pub looks: Option<Interval>,
    pub asked: VecDeque<AskedEpoch>,
    /// Rejects of the epoch at hand.
    pub rejects: Vec<SplitRejects>,
    pub route: Route,
    /// Windows over the results of the first one.
    pub outer: Vec<WindowSpec>,
    pub policy: Policy,
    pub workers: Vec<mpsc::Sender<ToWorker>>,
    pub steps: mpsc::Sender<Step>,
    pub control: mpsc::Receiver<Control>,
    pub clock: Arc<dyn Clock>,
    pub late_schema: SchemaRef,
    pub progress: Arc<Progress>,
    pub epochs: Option<Interval>,
    pub late: Vec<arrow::array::RecordBatch>,
    /// The W workers were told last.
    pub told_w: i64,
    pub last_early_us: Option<i64>,
    pub newest_time: i64,
    pub dirty: bool,
    pub paused: bool,
    /// Whether each epoch is a checkpoint.
    pub keeps_state: bool,
    /// Whether somebody reads rows that were refused or rejected; else they are only counted.
    pub keeps_refused: bool,
    /// Rows held by all epochs before this one.
    pub held_before: u64,
}

/// What a task gave, or why it did not end.
type Joined<T> = std::result::Result<T, tokio::task::JoinError>;

/// Why an epoch is the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Ended,
    Stopped,
}

/// Why the loop ended.
enum Ended {
    Input,
    Stopped(Option<oneshot::Sender<()>>),
}

impl SequencerTask {
    /// Runs until the input ends or the job is stopped, and ends the last epoch.
    pub async fn run(mut self) -> Result<()> {
        let ended = self.order().await?;
        let (last, done) = match ended {
            Ended::Input => {
                self.tell_watermark(watermark::END).await?;
                (Last::Ended, None)
            }
            // Stopping is not the end of the input: open windows stay open (T6).
            Ended::Stopped(done) => (Last::Stopped, done),
        };
        self.end_epoch(Some(last), done).await
    }

    async fn order(&mut self) -> Result<Ended> {
        loop {
            if let Some(ended) = self.due().await? {
                return Ok(ended);
            }
            let next = if self.paused { Next::Need(Vec::new()) } else { self.next().await? };
            match next {
                Next::Rows(rows) => self.on_rows(rows).await?,
                Next::End if self.inputs.discover(&mut self.sequencer).await? > 0 => {}
                Next::End if !self.inputs.is_waiting_for_first() => return Ok(Ended::Input),
                Next::End => {
                    self.end_asked_epochs().await?;
                    if let Some(ended) = self.wait(Vec::new()).await? {
                        return Ok(ended);
                    }
                }
                Next::Need(splits) => {
                    // A split that ended may have let W rise, which these epochs cover too.
                    self.watermark_rose().await?;
                    self.end_asked_epochs().await?;
                    if let Some(ended) = self.wait(splits).await? {
                        return Ok(ended);
                    }
                }
            }
            self.watermark_rose().await?;
        }
    }

    /// Handles what has come up meanwhile, without waiting.
    async fn due(&mut self) -> Result<Option<Ended>> {
        loop {
            match self.control.try_recv() {
                Ok(control) => {
                    if let Some(ended) = self.on_control(control).await? {
                        return Ok(Some(ended));
                    }
                }
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => return Ok(Some(Ended::Stopped(None))),
            }
        }
        let due = is_due(&mut self.epochs).await;
        if self.dirty && (due || self.is_full()) {
            self.end_epoch(None, None).await?;
        }
        if is_due(&mut self.looks).await {
            self.inputs.look();
        }
        if let Some(listed) = self.inputs.looks.try_join_next() {
            self.on_listed(listed).await?;
        }
        Ok(None)
    }

    async fn on_listed(&mut self, listed: Joined<Vec<Listing>>) -> Result<()> {
        let listed = listed.map_err(|e| panicked("looking for splits", e))?;
        self.inputs.on_listed(listed, &mut self.sequencer).await.map(drop)
    }

    /// The next rows in order. Rows that were rejected on the way to them are counted, and may be too many.
    async fn next(&mut self) -> Result<Next> {
        let next = self.sequencer.next()?;
        for rejects in self.sequencer.take_rejects() {
            let allowed = self.inputs.on_rejects(&rejects);
            if self.keeps_refused {
                self.rejects.push(rejects);
            }
            if allowed.is_err() {
                // So that a person can look at them.
                self.end_epoch(None, None).await?;
                allowed?;
            }
        }
        Ok(next)
    }

    /// Waits for one of `splits`, a control message, or the end of the epoch.
    async fn wait(&mut self, wanted: Vec<usize>) -> Result<Option<Ended>> {
        let wanted = self.with_pauses(wanted);
        let Inputs { splits, looks, .. } = &mut self.inputs;
        let received = poll_fn(|cx| {
            for (split, paused) in &wanted {
                if let Poll::Ready(message) = splits[*split].poll_next(*paused, cx) {
                    return Poll::Ready((*split, message));
                }
            }
            Poll::Pending
        });
        let (epoch_ends, look) = (tick(&mut self.epochs), tick(&mut self.looks));
        tokio::select! {
            biased;
            control = self.control.recv() => match control {
                Some(control) => return self.on_control(control).await,
                // Nobody is left who could ask for its results or stop it.
                None => return Ok(Some(Ended::Stopped(None))),
            },
            (split, message) = received => {
                self.heard = split;
                self.on_message(split, message).await?;
            }
            () = epoch_ends => {
                if self.dirty {
                    self.end_epoch(None, None).await?;
                }
            }
            () = look => self.inputs.look(),
            Some(listed) = looks.join_next() => self.on_listed(listed).await?,
        }
        Ok(None)
    }

    /// `wanted`, beginning behind the split heard last, each with whether it is paused: one far ahead of the lowest is not
    /// read for now (T7); the lowest always is.
    fn with_pauses(&mut self, mut wanted: Vec<usize>) -> Vec<(usize, bool)> {
        let first = wanted.partition_point(|split| *split <= self.heard);
        wanted.rotate_left(first);
        let mut all: Vec<_> = wanted.into_iter().map(|split| (split, self.is_far_ahead(split))).collect();
        if all.iter().all(|(_, paused)| *paused) {
            all.iter_mut().for_each(|(_, paused)| *paused = false);
        }
        all
    }

    fn is_far_ahead(&mut self, split: usize) -> bool {
        // Rows that are in no window have nothing to wait for.
        if matches!(self.route, Route::Rows) {
            return false;
        }
        let input = &mut self.inputs.splits[split];
        let ahead_us = self.sequencer.ahead_us(split);
        ahead_us > 0 && (ahead_us > input.max_ahead_us || input.has_too_much_ahead(self.sequencer.watermark()))
    }

    async fn on_message(&mut self, split: usize, message: Option<Result<FromSplit>>) -> Result<()> {
        let now_us = self.clock.now_us();
        match message {
            None => return Err(self.inputs.lost_reader().await),
            Some(message) => match message? {
                FromSplit::Batch(batch) => {
                    self.progress.add_bytes(batch.bytes);
                    self.inputs.on_notes(split, batch.notes);
                    self.dirty = true;
                    let bytes = batch.bytes;
                    self.sequencer.on_batch(split, *batch);
                    self.inputs.splits[split].on_rows(self.sequencer.read_watermark(split), bytes, now_us);
                }
                FromSplit::Watermark(w) => {
                    self.dirty = true;
                    self.sequencer.on_watermark(split, w);
                }
                FromSplit::Notes(notes) => {
                    // An epoch makes them known, as it does all else.
                    self.dirty = true;
                    self.inputs.on_notes(split, notes);
                }
                FromSplit::Nothing { at_us } => self.on_nothing(split, at_us),
                FromSplit::End => {
                    self.dirty = true;
                    self.inputs.splits[split].ended = true;
                    self.sequencer.on_end(split);
                }
            },
        }
        Ok(())
    }

    /// The split was asked at `at_us` and had nothing (T7).
    fn on_nothing(&mut self, split: usize, at_us: i64) {
        self.inputs.splits[split].on_nothing(at_us);
        let splits = &self.inputs.splits;
        // One that ends is waited for, or results would depend on how fast it is.
        if !self.inputs.is_live(splits[split].source) {
            return;
        }
        let Some(spec) = splits[split].watermark else { return };
        if spec.idle_timeout_us.is_some_and(|timeout| splits[split].silent_us >= timeout) {
            self.sequencer.set_idle(split, true);
            self.dirty = true;
        }
        if let Some(after) = spec.idle_close_after_us {
            // Each of them was asked itself: one that is paused, or whose rows are still to be heard, is not silent.
            let all_silent = splits.iter().filter(|input| !input.ended).all(|input| input.silent_us >= after);
            if all_silent && self.newest_time != watermark::NONE {
                let newest_end = self.newest_window_end();
                self.sequencer.raise(newest_end);
                self.dirty = true;
            }
        }
    }

    fn newest_window_end(&self) -> i64 {
        match &self.route {
            Route::Slices { window, .. } => {
                window.windows_of(self.newest_time).last().map_or(watermark::NONE, |window| window.end)
            }
            Route::Sessions { gap_us, .. } => self.newest_time.saturating_add(*gap_us),
            Route::Rows => watermark::NONE,
        }
    }

    async fn on_control(&mut self, control: Control) -> Result<Option<Ended>> {
        match control {
            Control::Epoch(done) => self.on_epoch_asked(None, done).await?,
            Control::Raise(w, done) => self.on_epoch_asked(Some(w), done).await?,
            Control::Pause => self.paused = true,
            Control::Resume => self.paused = false,
            Control::Stop(done) => return Ok(Some(Ended::Stopped(Some(done)))),
        }
        Ok(None)
    }

    /// Takes what has been read already, unless the job is paused, and notes what has been accepted and must follow before the epoch may end.
    async fn on_epoch_asked(&mut self, raised: Option<i64>, done: oneshot::Sender<()>) -> Result<()> {
        self.inputs.discover(&mut self.sequencer).await?;
        let splits = if self.paused { 0 } else { self.inputs.splits.len() };
        for split in 0..splits {
            while !self.is_far_ahead(split)
                && let Some(message) = self.inputs.splits[split].try_next()
            {
                self.on_message(split, Some(message)).await?;
            }
        }
        while !self.paused
            && let Next::Rows(rows) = self.next().await?
        {
            self.on_rows(rows).await?;
        }
        self.watermark_rose().await?;
        let splits = self.inputs.splits.iter().enumerate();
        let accepted = splits
            .filter_map(|(i, split)| Some((i, self.inputs.spec(split.source).source.accepted(&split.name)?)))
            .collect();
        self.asked.push_back(AskedEpoch { accepted, raised, done });
        Ok(())
    }

    /// Ends the epochs asked for whose rows are in the order. A split that is paused is not waited for.
    async fn end_asked_epochs(&mut self) -> Result<()> {
        while let Some(asked) = self.asked.pop_front() {
            let mut passed = |(split, accepted): &(usize, Accepted)| {
                self.sequencer.has_passed(*split, accepted) || self.is_far_ahead(*split)
            };
            if !asked.accepted.iter().all(&mut passed) && !self.paused {
                self.asked.push_front(asked);
                break;
            }
            let AskedEpoch { raised, done, .. } = asked;
            if let Some(w) = raised {
                self.sequencer.raise(w);
                self.watermark_rose().await?;
            }
            self.end_epoch(None, Some(done)).await?;
        }
        Ok(())
    }

    async fn on_rows(&mut self, rows: OrderedRows) -> Result<()> {
        self.dirty = true;
        // Looked at only where silence closes windows.
        if self.inputs.splits.iter().any(|split| split.watermark.is_some_and(|spec| spec.idle_close_after_us.is_some()))
        {
            self.newest_time = rows.times.iter().copied().fold(self.newest_time, i64::max);
        }
        if rows.rows.num_rows() == 0 {
            return Ok(());
        }
        match &mut self.route {
            Route::Rows => {
                self.steps.send(Step::Rows(rows.rows)).await.map_err(|_| downstream())?;
            }
            Route::Slices { judge, .. } => {
                let mut judgement = Judgement::default();
                judge.judge(&rows.times, &rows.judged, rows.origin.as_deref(), &mut judgement);
                self.progress.add_refused(judgement.refused.len() as u64);
                if self.keeps_refused && !judgement.refused.is_empty() {
                    let now_us = self.clock.now_us();
                    self.late.push(rows.late_rows(&self.late_schema, &judgement.refused, &self.policy, now_us)?);
                    self.progress.add_held(judgement.refused.len() as u64);
                }
                for pile in judgement.piles {
                    let inputs = pile.rows.of(&rows.rows).map_err(failure)?;
                    let piece = Piece { slice: pile.slice, class: pile.class, inputs };
                    self.deal(piece).await?;
                }
            }
            Route::Sessions { keys_len, .. } => {
                let shards = shards(&rows, *keys_len, self.workers.len())?;
                let whole = Arc::new(rows);
                for (worker, indices) in shards.into_iter().enumerate().filter(|(_, indices)| !indices.is_empty()) {
                    let rows = SessionRows::of(&whole, &indices)?;
                    self.workers[worker].send(ToWorker::Sessions(rows)).await.map_err(|_| downstream())?;
                }
            }
        }
        Ok(())
    }

    /// Gives a piece to the worker that has its slice, or to an idle one when that is far behind: one head per slice
    /// saves merging, and a slice that is all there is still uses every worker.
    async fn deal(&mut self, piece: Piece) -> Result<()> {
        let n = self.workers.len();
        let length = (piece.slice.end - piece.slice.start).max(1);
        let home = piece.slice.start.div_euclid(length).rem_euclid(n as i64) as usize;
        let free = |worker: &mpsc::Sender<ToWorker>| worker.capacity();
        let mut chosen = home;
        if free(&self.workers[home]) == 0
            && let Some(idle) = (0..n).find(|i| free(&self.workers[*i]) == self.workers[*i].max_capacity())
        {
            chosen = idle;
        }
        self.workers[chosen].send(ToWorker::Piece(piece)).await.map_err(|_| downstream())
    }

    /// Tells everybody if some window closes or expires at the W that has been reached.
    async fn watermark_rose(&mut self) -> Result<()> {
        let w = self.sequencer.watermark();
        self.progress.set_watermark(w);
        if w > self.told_w && w >= self.next_due() {
            self.tell_watermark(w).await?;
        }
        Ok(())
    }

    /// The smallest W above the one told last at which a window closes or expires.
    fn next_due(&self) -> i64 {
        let first = match &self.route {
            Route::Slices { window, .. } => self.next_due_of(window),
            // Sessions end at any time. Those that end shortly after one another are closed together; the end of the
            // epoch sees to the last.
            Route::Sessions { gap_us, .. } => self.told_w.saturating_add(gap_us / 4),
            Route::Rows => return watermark::NONE,
        };
        self.outer.iter().map(|window| self.next_due_of(window)).fold(first, i64::min)
    }

    fn next_due_of(&self, window: &WindowSpec) -> i64 {
        let close = window.next_end(self.told_w).unwrap_or(watermark::END);
        // The first window that had not expired at the W told last: its end lies after told - L - 1.
        let lag_us = expires_at(&self.policy, 0);
        let expiry = window.next_end(self.told_w.saturating_sub(lag_us)).unwrap_or(watermark::END);
        close.min(expires_at(&self.policy, expiry))
    }

    async fn tell_watermark(&mut self, w: i64) -> Result<()> {
        self.told_w = w;
        self.dirty = true;
        for worker in &self.workers {
            worker.send(ToWorker::Watermark(w)).await.map_err(|_| downstream())?;
        }
        let closings = self.sequencer.take_closings();
        self.steps.send(Step::Watermark { w, closings }).await.map_err(|_| downstream())
    }

    async fn end_epoch(&mut self, last: Option<Last>, done: Option<oneshot::Sender<()>>) -> Result<()> {
        let w = self.sequencer.watermark();
        if w > self.told_w && matches!(self.route, Route::Sessions { .. }) {
            self.tell_watermark(w).await?;
        }
        let early = self.early_is_due();
        let seal = if early || self.keeps_state { SealAt::All } else { SealAt::Late };
        for worker in &self.workers {
            worker.send(ToWorker::Epoch { early, seal }).await.map_err(|_| downstream())?;
        }
        let mut counts = self.sequencer.take_counts();
        let mut windows: BTreeMap<Window, WindowCounts> = BTreeMap::new();
        if let Route::Slices { judge, .. } = &mut self.route {
            let (judged, per_window): (FateCounts, _) = judge.take_counts();
            counts.add(&judged);
            windows = per_window;
        }
        let facts = EpochFacts {
            early,
            counts,
            windows,
            late: std::mem::take(&mut self.late),
            rejects: std::mem::take(&mut self.rejects),
            facts: self.keeps_state.then(|| SequencerFacts {
                sequencer: self.sequencer.state(),
                told_w: self.told_w,
                last_early_us: self.last_early_us,
                newest_time: self.newest_time,
                rejected: self.inputs.rejected(),
            }),
            last: last.is_some(),
            ended: last == Some(Last::Ended),
            done,
        };
        self.dirty = false;
        self.held_before = self.progress.held();
        self.progress.set_inputs(self.sequencer.progress(), self.inputs.progress());
        self.steps.send(Step::Epoch(Box::new(facts))).await.map_err(|_| downstream())
    }

    /// Whether the epoch holds so many rows that it ends before its time.
    fn is_full(&self) -> bool {
        let held = self.progress.held() - self.held_before;
        self.keeps_refused && self.epochs.is_some() && held >= EPOCH_ROWS_MAX
    }

    fn early_is_due(&mut self) -> bool {
        let Emit::Changes { every } = self.policy.emit else { return false };
        let now_us = self.clock.now_us();
        let every_us = every.map_or(0, |every| every.micros.saturating_add(every.days.saturating_mul(86_400_000_000)));
        // A clock that was set back tells nothing of how long it has been.
        let due = self.last_early_us.is_none_or(|last| now_us < last || now_us.saturating_sub(last) >= every_us);
        if due {
            self.last_early_us = Some(now_us);
        }
        due
    }
}

/// Whether the interval, if there is one, has come round.
async fn is_due(interval: &mut Option<Interval>) -> bool {
    match interval {
        Some(interval) => poll_fn(|cx| Poll::Ready(interval.poll_tick(cx).is_ready())).await,
        None => false,
    }
}

/// Waits until the interval comes round: for ever if there is none.
async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Something downstream has ended; its own error says why.
fn downstream() -> Error {
    Error::new(ErrorKind::Closed, "a task of the job has ended")
}

/// Rows of `rows` by the worker that has their key, in order.
fn shards(rows: &OrderedRows, keys_len: usize, workers: usize) -> Result<Vec<Vec<u32>>> {
    let n = rows.rows.num_rows();
    let mut shards = vec![Vec::new(); workers];
    if workers == 1 || keys_len == 0 {
        shards[0] = (0..n as u32).collect();
        return Ok(shards);
    }
    for (row, shard) in (0_u32..).zip(shards_of(&rows.rows.columns()[..keys_len], n, workers)?) {
        shards[shard].push(row);
    }
    Ok(shards)
}

/// The worker that has the key of each of `rows` rows.
pub(super) fn shards_of(keys: &[ArrayRef], rows: usize, workers: usize) -> Result<Vec<usize>> {
    let mut hashes = vec![0; rows];
    if workers > 1 && !keys.is_empty() {
        create_hashes(keys, &RandomState::with_seed(0x5365_7373), &mut hashes).map_err(failure)?;
    }
    Ok(hashes.into_iter().map(|hash| ((hash >> 32) % workers as u64) as usize).collect())
}
