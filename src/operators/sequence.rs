//! Puts the rows of a view's splits in order and makes the watermark (T3, T5).
//!
//! ```text
//!  split a: batches ─┐
//!  split b: batches ─┼─► lowest W next (bounded) ─► OrderedRows, W
//!  split c: batches ─┘   as read (live)
//! ```
//!
//! For bounded splits the order is a function of the rows alone: the split with the lowest W goes next, ties by name. So
//! it does not depend on batch sizes, on which split answered first, or on speed. It asks for the one split it needs
//! and waits; for live splits it takes what comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::buffer::ScalarBuffer;
use serde::{Deserialize, Serialize};

use super::fate::{FateCounts, Judged, Rising};
use super::ordered::{OrderedRows, Part};
use super::prepare::{Marks, Prepared};
use crate::connectors::{Accepted, Position, Reject};
use crate::error::Result;
use crate::watermark::{self, SplitState, SplitWatermark, Strategy, WatermarkSpec};
use crate::window::WindowSpec;

/// How rows of several splits are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All splits end: lowest W next.
    LowestFirst,
    /// Some split goes on: as read.
    AsRead,
}

/// What the sequencer has when asked.
#[derive(Debug)]
pub enum Next {
    /// Rows in order.
    Rows(OrderedRows),
    /// It cannot go on without something from one of these splits.
    Need(Vec<usize>),
    /// All splits have ended.
    End,
}

/// Where a split stands, for checkpoints: all rows below `next_offset` are in the order already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitProgress {
    /// Index of the source among the view's sources.
    pub source: usize,
    /// The split's name.
    pub split: String,
    /// A place to read on from, at or before `next_offset`. `None`: the beginning.
    pub position: Option<Position>,
    /// Offset of the first row that is not in the order yet.
    pub next_offset: i64,
    /// Its watermark.
    pub w: i64,
    /// Whether it has ended.
    pub ended: bool,
    /// Whether it is out of the minimum until it speaks again.
    #[serde(default)]
    pub idle: bool,
    /// What its watermark strategy remembers of the rows in the order, where that is more than `w`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<SplitState>,
}

impl SplitProgress {
    /// A split of which nothing has been read.
    pub fn new(source: usize, split: &str) -> Self {
        Self {
            source,
            split: split.to_owned(),
            position: None,
            next_offset: 0,
            w: watermark::NONE,
            ended: false,
            idle: false,
            keys: None,
        }
    }
}

/// Where a sequencer stands, for checkpoints: what it needs to go on as if it had never stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequencerState {
    /// `_seq` of the next row.
    pub seq: i64,
    /// W made by the rows in the order.
    pub w: i64,
    /// Where each split stands, in the order they were added.
    pub splits: Vec<SplitProgress>,
}

/// Rejected rows of one split, with its source and name.
#[derive(Debug, Clone)]
pub struct SplitRejects {
    /// Index of the source among the view's sources.
    pub source: usize,
    /// The split's name.
    pub split: Arc<str>,
    /// The rows, each once.
    pub rejects: Vec<Reject>,
}

/// Orders prepared batches.
#[derive(Debug)]
pub struct Sequencer {
    order: Order,
    batch_rows: usize,
    splits: Vec<SplitQueue>,
    /// Splits of queued entries in the order they were read.
    arrivals: VecDeque<usize>,
    seq: i64,
    w: i64,
    counts: FateCounts,
    rejects: Vec<SplitRejects>,
    closings: Option<Closings>,
}

/// The values of W at which windows close. W rises row by row, whatever the sizes of batches, so these are looked for
/// between rows.
#[derive(Debug)]
struct Closings {
    window: WindowSpec,
    /// The first end of a window that W has not reached.
    next_end: i64,
    passed: Vec<i64>,
}

impl Closings {
    fn new(window: WindowSpec, w: i64) -> Self {
        let next_end = window.next_end(w).unwrap_or(watermark::END);
        Self { window, next_end, passed: Vec::new() }
    }

    fn rise(&mut self, w: i64) {
        if w >= self.next_end && self.passed.last() != Some(&w) {
            self.passed.push(w);
            self.next_end = self.window.next_end(w).unwrap_or(watermark::END);
        }
    }

    /// W rises to what each row of a run meets: what the rows before it said.
    fn rise_within(&mut self, before: &Judged, rows: usize) {
        let mut from = 0;
        while from < rows && before.get(rows - 1) >= self.next_end {
            let (mut low, mut high) = (from, rows - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if before.get(middle) < self.next_end { low = middle + 1 } else { high = middle }
            }
            self.rise(before.get(low));
            from = low + 1;
        }
    }
}

#[derive(Debug)]
struct SplitQueue {
    source: usize,
    name: Arc<str>,
    /// Over the rows read.
    ahead: SplitWatermark,
    /// Behind the first batch that moved it, or where it was restored.
    first: i64,
    /// Over the rows taken.
    w: i64,
    /// Over the rows taken, where the strategy remembers more than W.
    behind: Option<SplitWatermark>,
    queue: VecDeque<Entry>,
    ended: bool,
    idle: bool,
    position: Option<Position>,
    next_offset: i64,
}

#[derive(Debug)]
enum Entry {
    Batch(Queued),
    /// A watermark pushed by hand, behind the rows before it.
    Watermark(i64),
}

#[derive(Debug)]
struct Queued {
    batch: Arc<Prepared>,
    after: After,
    /// Raw rows taken.
    taken: usize,
    rejects_taken: usize,
}

/// W after each raw row of a batch.
#[derive(Debug)]
struct After {
    /// W before the batch.
    least: i64,
    /// The largest thing its rows had said by then. Empty if they said nothing.
    said: ScalarBuffer<i64>,
}

/// A run taken from a split and the watermarks its raw rows meet.
struct Run {
    part: Part,
    before: Judged,
}

impl Sequencer {
    /// A sequencer without splits. It gives about `batch_rows` rows at a time.
    pub fn new(order: Order, batch_rows: usize) -> Self {
        Self {
            order,
            batch_rows,
            splits: Vec::new(),
            arrivals: VecDeque::new(),
            seq: 0,
            w: watermark::NONE,
            counts: FateCounts::default(),
            rejects: Vec::new(),
            closings: None,
        }
    }

    /// Notes at which values of W windows of `window` close; see [`Sequencer::take_closings`].
    pub fn note_closings_of(&mut self, window: WindowSpec) {
        self.closings = Some(Closings::new(window, self.w));
    }

    /// The values of W at which windows have closed since the last call, ascending: a window closed at the first that is
    /// its end or above. That is so for any sizes of batches (T5).
    pub fn take_closings(&mut self) -> Vec<i64> {
        self.closings.as_mut().map_or_else(Vec::new, |closings| std::mem::take(&mut closings.passed))
    }

    /// Adds a split of source `source` and returns its index. It counts in the minimum at once; W does not go back.
    pub fn add_split(&mut self, source: usize, name: Arc<str>, spec: Option<&WatermarkSpec>) -> usize {
        let strategy = spec.map(|spec| spec.strategy);
        let remembers = matches!(strategy, Some(Strategy::PerKey { .. }));
        self.splits.push(SplitQueue {
            source,
            name,
            ahead: SplitWatermark::new(strategy),
            first: watermark::NONE,
            w: watermark::NONE,
            behind: remembers.then(|| SplitWatermark::new(strategy)),
            queue: VecDeque::new(),
            ended: false,
            idle: false,
            position: None,
            next_offset: 0,
        });
        self.splits.len() - 1
    }

    /// Adds a split of a checkpoint, as it stood. Rows from its `next_offset` on are to come.
    pub fn restore_split(&mut self, state: SplitProgress, spec: Option<&WatermarkSpec>) -> usize {
        let strategy = spec.map(|spec| spec.strategy);
        let index = self.add_split(state.source, state.split.into(), spec);
        let split = &mut self.splits[index];
        let keys = state.keys.unwrap_or(SplitState { w: state.w, newest: watermark::NONE, keys: Vec::new() });
        split.ahead = SplitWatermark::restore(strategy, keys);
        split.behind = split.behind.is_some().then(|| split.ahead.clone());
        split.first = split.ahead.current();
        (split.w, split.ended, split.idle) = (state.w, state.ended, state.idle);
        (split.position, split.next_offset) = (state.position, state.next_offset);
        index
    }

    /// Goes on from `seq` and W of a checkpoint. Its splits are added by [`Sequencer::restore_split`].
    pub fn restore(&mut self, seq: i64, w: i64) {
        (self.seq, self.w) = (seq, w);
    }

    /// What a checkpoint must keep. Rows that are queued are to be read again.
    pub fn state(&self) -> SequencerState {
        SequencerState { seq: self.seq, w: self.w, splits: self.progress() }
    }

    /// Takes the next batch of `split`.
    pub fn on_batch(&mut self, split: usize, batch: Prepared) {
        let ahead = &mut self.splits[split].ahead;
        let least = ahead.current();
        let said = match &batch.marks {
            Marks::Silent => ScalarBuffer::default(),
            Marks::Rising(said) => {
                ahead.advance_to_max(said.last().copied().unwrap_or(watermark::NONE));
                said.clone()
            }
            Marks::PerKey { values, times, keys } => {
                let mut after = Vec::with_capacity(values.len());
                ahead.advance(values.len(), values, times, keys, &mut after);
                after.into()
            }
        };
        let first = ahead.current();
        if self.splits[split].first == watermark::NONE {
            self.splits[split].first = first;
        }
        let queued = Queued { batch: Arc::new(batch), after: After { least, said }, taken: 0, rejects_taken: 0 };
        self.push(split, Entry::Batch(queued));
    }

    /// Takes a watermark pushed by hand behind the batches before it.
    pub fn on_watermark(&mut self, split: usize, w: i64) {
        self.splits[split].ahead.raise(w);
        self.push(split, Entry::Watermark(w));
    }

    /// The split will have no more rows.
    pub fn on_end(&mut self, split: usize) {
        self.splits[split].ended = true;
    }

    /// Whether `split` is idle: it leaves the minimum until it speaks again.
    pub fn set_idle(&mut self, split: usize, idle: bool) {
        self.splits[split].idle = idle;
    }

    /// Raises W, unless it is there already.
    pub fn raise(&mut self, w: i64) {
        self.w = self.w.max(w);
        if let Some(closings) = &mut self.closings {
            closings.rise(self.w);
        }
    }

    /// W made by the rows given out.
    pub fn watermark(&self) -> i64 {
        self.w
    }

    /// Whether everything `split` had accepted has been given out.
    pub fn has_passed(&self, split: usize, accepted: &Accepted) -> bool {
        let split = &self.splits[split];
        let passed = accepted.next_offset <= split.next_offset && accepted.watermark_us <= split.w;
        split.finished() || passed && !accepted.ended
    }

    /// Whether `split` has ended and all its rows have been given out.
    pub fn is_finished(&self, split: usize) -> bool {
        self.splits[split].finished()
    }

    /// Watermark of `split` over the rows given out.
    pub fn split_watermark(&self, split: usize) -> i64 {
        self.splits[split].w
    }

    /// Watermark of `split` over the rows read, given out or not.
    pub fn read_watermark(&self, split: usize) -> i64 {
        self.splits[split].ahead.current()
    }

    /// How far the rows read of `split` are ahead of W, µs. While another split has said nothing there is no W, and they
    /// are ahead of where `split` began.
    pub fn ahead_us(&self, split: usize) -> i64 {
        let lowest = if self.w == watermark::NONE { self.splits[split].first } else { self.w };
        self.read_watermark(split).saturating_sub(lowest).max(0)
    }

    /// The next rows in order.
    ///
    /// # Errors
    /// When rows of the splits do not fit together.
    #[allow(clippy::should_implement_trait)] // it is no iterator: Need is not the end
    pub fn next(&mut self) -> Result<Next> {
        let mut runs = Vec::new();
        let mut rows = 0;
        let mut need = Vec::new();
        while rows < self.batch_rows {
            match self.choose() {
                Choice::Split(split) => {
                    if let Some(run) = self.take(split) {
                        let taken = run.part.raw.1 - run.part.raw.0;
                        if let Some(closings) = &mut self.closings {
                            closings.rise_within(&run.before, taken);
                        }
                        rows += taken;
                        runs.push(run);
                    }
                    // What its rows said comes before what it may mean that there are no more of them.
                    self.raise(self.splits[split].w.min(self.lowest_beside(split)));
                }
                Choice::Need(splits) => {
                    need = splits;
                    break;
                }
                Choice::End => break,
            }
            // Every row met the watermark of the rows before it; the next one meets this.
            self.update_watermark();
        }
        self.update_watermark();
        if runs.is_empty() {
            return Ok(if need.is_empty() { Next::End } else { Next::Need(need) });
        }
        let (parts, before) = match runs.len() {
            1 => runs.pop().map(|run| (vec![run.part], run.before)).expect("its length is one"),
            _ => {
                let rows = |run: &Run| run.part.raw.1 - run.part.raw.0;
                let before = runs.iter().flat_map(|run| (0..rows(run)).map(|row| run.before.get(row))).collect();
                (join_runs(runs), Judged::Each(before))
            }
        };
        OrderedRows::try_new(parts, before).map(Next::Rows)
    }

    /// Takes `read`, `rejected` and `filtered` of the rows given out since the last call.
    pub fn take_counts(&mut self) -> FateCounts {
        std::mem::take(&mut self.counts)
    }

    /// Takes the rejects met since the last call.
    pub fn take_rejects(&mut self) -> Vec<SplitRejects> {
        std::mem::take(&mut self.rejects)
    }

    /// Where each split stands.
    pub fn progress(&self) -> Vec<SplitProgress> {
        let progress = |split: &SplitQueue| SplitProgress {
            source: split.source,
            split: split.name.to_string(),
            position: split.position.clone(),
            next_offset: split.next_offset,
            w: split.w,
            ended: split.finished(),
            idle: split.idle,
            keys: split.behind.as_ref().map(SplitWatermark::state),
        };
        self.splits.iter().map(progress).collect()
    }

    /// Watermark of each source over the rows given out: the minimum over its splits.
    pub fn source_watermarks(&self) -> BTreeMap<usize, i64> {
        let mut all = BTreeMap::new();
        for split in &self.splits {
            let w = if split.finished() { watermark::END } else { split.w };
            all.entry(split.source).and_modify(|min: &mut i64| *min = w.min(*min)).or_insert(w);
        }
        all
    }

    fn push(&mut self, split: usize, entry: Entry) {
        self.splits[split].idle = false;
        self.splits[split].queue.push_back(entry);
        self.arrivals.push_back(split);
    }

    fn choose(&mut self) -> Choice {
        let open: Vec<usize> = (0..self.splits.len()).filter(|i| !self.splits[*i].finished()).collect();
        match self.order {
            Order::LowestFirst => match open.into_iter().min_by(|a, b| self.rank(*a).cmp(&self.rank(*b))) {
                None => Choice::End,
                Some(lowest) if self.splits[lowest].queue.is_empty() => Choice::Need(vec![lowest]),
                Some(lowest) => Choice::Split(lowest),
            },
            Order::AsRead => match self.arrivals.pop_front() {
                Some(split) => Choice::Split(split),
                None if open.is_empty() => Choice::End,
                None => Choice::Need(open),
            },
        }
    }

    fn rank(&self, split: usize) -> (i64, usize, &str) {
        let split = &self.splits[split];
        (split.w, split.source, &split.name)
    }

    /// Takes rows of `split` for as long as it goes next.
    fn take(&mut self, split: usize) -> Option<Run> {
        let others = self.others_watermark(split);
        let take_to = self.take_to(split);
        let seq = self.seq;
        let queue = &mut self.splits[split];
        let queued = match queue.queue.front_mut()? {
            Entry::Watermark(w) => {
                queue.w = queue.w.max(*w);
                if let Some(behind) = &mut queue.behind {
                    behind.raise(*w);
                }
                queue.queue.pop_front();
                return None;
            }
            Entry::Batch(queued) => queued,
        };
        let (from, to) = (queued.taken, take_to.max(queued.taken));
        let batch = Arc::clone(&queued.batch);
        // Live splits: a row meets the lowest W of all of them.
        let before = queued.after.before((from, to), queue.w, (self.w, others));
        if to > from {
            queue.w = queue.w.max(queued.after.get(to - 1));
            if let (Some(behind), Marks::PerKey { values, times, keys }) = (&mut queue.behind, &batch.marks) {
                behind.advance_rows(values, times, keys, from..to);
            }
        }
        queued.taken = to;
        let last = to == batch.raw.num_rows();
        let next_offset = if last { batch.next.offset } else { batch.offsets.get(to) };
        let rejects = queued.take_rejects(next_offset, last);
        if last {
            queue.position = Some(batch.next.clone());
            queue.queue.pop_front();
        }
        let first_offset = queue.next_offset;
        queue.next_offset = next_offset;
        let (name, source) = (Arc::clone(&queue.name), queue.source);
        self.seq += next_offset - first_offset;
        self.count(&batch, (from, to), rejects.len());
        if !rejects.is_empty() {
            self.rejects.push(SplitRejects { source, split: Arc::clone(&name), rejects });
        }
        if to == from {
            return None;
        }
        // Rejected rows before the first one keep their places.
        let seq = seq + batch.offsets.get(from) - first_offset;
        let rows = Part::rows_of(&batch, (from, to));
        Some(Run { part: Part { batch, split: name, raw: (from, to), rows, seq }, before })
    }

    /// The raw row of the front batch before which `split` stops going next.
    fn take_to(&self, split: usize) -> usize {
        let Some(Entry::Batch(queued)) = self.splits[split].queue.front() else { return 0 };
        let all = queued.batch.raw.num_rows();
        if self.order == Order::AsRead {
            return all;
        }
        let others = (0..self.splits.len()).filter(|i| *i != split && !self.splits[*i].finished());
        let Some(next) = others.map(|i| self.rank(i)).min() else { return all };
        let (_, source, name) = self.rank(split);
        let still_next = |w: i64| (w, source, name) < next;
        (queued.after.first_row_not(queued.taken, all, still_next) + 1).min(all)
    }

    /// The lowest W of the splits that count besides `split`.
    fn others_watermark(&self, split: usize) -> i64 {
        match self.order {
            Order::LowestFirst => watermark::END,
            Order::AsRead => self.lowest_beside(split),
        }
    }

    fn lowest_beside(&self, split: usize) -> i64 {
        let counts = |i: &usize| *i != split && !self.splits[*i].finished() && !self.splits[*i].idle;
        (0..self.splits.len()).filter(counts).map(|i| self.splits[i].w).min().unwrap_or(watermark::END)
    }

    fn update_watermark(&mut self) {
        if self.splits.is_empty() {
            return;
        }
        let counted = self.splits.iter().filter(|split| !split.finished());
        let lowest = match counted.clone().next() {
            None => watermark::END,
            // All idle: W stays where it is (T7).
            Some(_) => match counted.filter(|split| !split.idle).map(|split| split.w).min() {
                Some(w) => w,
                None => return,
            },
        };
        self.raise(lowest);
    }

    fn count(&mut self, batch: &Prepared, raw: (usize, usize), rejected: usize) {
        let within = |row: &&u32| raw.0 <= **row as usize && (**row as usize) < raw.1;
        let failed = batch.failed.iter().filter(within).count() as u64;
        let (from, to) = Part::rows_of(batch, raw);
        let passed = match &batch.origin {
            None => to - from,
            Some(origin) => origin[from..to].chunk_by(|a, b| a == b).count(),
        } as u64;
        let taken = (raw.1 - raw.0) as u64;
        self.counts.read += taken + rejected as u64 - failed;
        self.counts.rejected += rejected as u64;
        self.counts.filtered += taken - passed - failed;
    }
}

enum Choice {
    Split(usize),
    Need(Vec<usize>),
    End,
}

impl SplitQueue {
    fn finished(&self) -> bool {
        self.ended && self.queue.is_empty()
    }
}

impl After {
    fn get(&self, row: usize) -> i64 {
        self.said.get(row).copied().unwrap_or(self.least).max(self.least)
    }

    /// What the raw rows `from..to` meet: the first of them `first`, each other one what the one before it left, but no
    /// less and no more than `bounds`.
    fn before(&self, (from, to): (usize, usize), first: i64, bounds: (i64, i64)) -> Judged {
        let (floor, ceiling) = bounds;
        let first = first.max(self.least);
        if self.said.is_empty() {
            return Judged::All(first.min(ceiling).max(floor));
        }
        Judged::Rising(Rising { first, said: self.said.slice(from, to - from), floor, ceiling })
    }

    /// The first row of `from..to` whose W is not `wanted`, else `to`. W never falls, and neither may `wanted` come back.
    fn first_row_not(&self, from: usize, to: usize, wanted: impl Fn(i64) -> bool) -> usize {
        let (mut from, mut to) = (from, to);
        while from < to {
            let middle = from + (to - from) / 2;
            if wanted(self.get(middle)) { from = middle + 1 } else { to = middle }
        }
        from
    }
}

impl Queued {
    /// Rejects with offsets below `to`, or all that are left.
    fn take_rejects(&mut self, to: i64, all: bool) -> Vec<Reject> {
        let rest = &self.batch.rejects[self.rejects_taken..];
        let n = if all { rest.len() } else { rest.partition_point(|reject| reject.offset < to) };
        self.rejects_taken += n;
        rest[..n].to_vec()
    }
}

/// Runs that follow each other in one batch become one part.
fn join_runs(runs: Vec<Run>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(runs.len());
    for run in runs {
        match parts.last_mut() {
            Some(last) if Arc::ptr_eq(&last.batch, &run.part.batch) && last.raw.1 == run.part.raw.0 => {
                last.raw.1 = run.part.raw.1;
                last.rows.1 = run.part.rows.1;
            }
            _ => parts.push(run.part),
        }
    }
    parts
}
