//! Judges rows in arrival order and sorts them by slice (T4, T5).
//!
//! A row is judged against the watermark made by the rows before it. A batch whose last watermark is still below the
//! first end of every window it touches needs one comparison per slice; only the others are looked at row by row.
//! What comes out is free of order: each [`Pile`] may be aggregated by any worker at any time.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::fate::{FateCounts, Judged, Refused, WindowCounts};
use super::graph::Policy;
use crate::sql::statement::{OnExpired, OnLate};
use crate::state::Runs;
use crate::watermark;
use crate::window::{Assigner, Fate, Slice, SliceRun, Window, WindowSpec, fate};

/// Which windows of its slice a row still met open, which late, which expired: the watermark it was judged by, reduced
/// to the window ends it had passed.
///
/// ```text
///            expired_to        closed_to
///  ── expired ──┤──── late ───────┤──── on time ──►   window ends, ascending
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// Greatest end of a window of the slice that had closed, or [`watermark::NONE`].
    pub closed_to: i64,
    /// Greatest end of a window of the slice that had expired, or [`watermark::NONE`].
    pub expired_to: i64,
}

impl Class {
    /// Every window of the slice was open.
    pub const ON_TIME: Self = Self { closed_to: watermark::NONE, expired_to: watermark::NONE };

    /// Fate of the pair with the window that ends at `end`.
    pub fn fate(self, end: i64) -> Fate {
        if end > self.closed_to {
            Fate::OnTime
        } else if end > self.expired_to {
            Fate::Late
        } else {
            Fate::Expired
        }
    }
}

/// Whether `policy` lets a pair of fate `fate` into its window.
pub fn accepts(policy: &Policy, fate: Fate) -> bool {
    match fate {
        Fate::OnTime => true,
        Fate::Late => matches!(policy.on_late, OnLate::Update { .. }),
        Fate::Expired => false,
    }
}

/// Rows of one slice and one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pile {
    /// The slice.
    pub slice: Slice,
    /// How its windows stood.
    pub class: Class,
    /// The rows. At least one window takes them.
    pub rows: Runs,
}

/// What judging some rows gave.
#[derive(Debug, Default)]
pub struct Judgement {
    /// Accepted rows.
    pub piles: Vec<Pile>,
    /// Rows to be kept aside, once per fate.
    pub refused: Vec<Refused>,
}

/// Judges the rows of one view.
#[derive(Debug)]
pub struct Judge {
    assigner: Assigner,
    policy: Policy,
    counts: FateCounts,
    by_class: HashMap<(Slice, Class), u64>,
    slices: HashMap<Slice, Vec<Window>>,
}

impl Judge {
    /// A judge for windows `window` under `policy`.
    pub fn new(window: WindowSpec, policy: Policy) -> Self {
        let assigner = Assigner::new(window);
        Self { assigner, policy, counts: FateCounts::default(), by_class: HashMap::new(), slices: HashMap::new() }
    }

    /// Judges rows with event times `times`. `origin` are their indices in the source batch.
    pub fn judge(&mut self, times: &[i64], judged: &Judged, origin: Option<&[u32]>, out: &mut Judgement) {
        let Some(last) = times.len().checked_sub(1) else { return };
        let w_max = judged.get(last);
        self.note_lateness(times, judged, origin, w_max);
        for (slice, rows) in self.by_slice(times, origin) {
            let windows = self.windows_of(slice);
            let Some(first) = windows.first() else { continue };
            if fate(first.end, w_max, self.policy.allowed_lateness_us) == Fate::OnTime {
                let pairs = windows.len() as u64;
                self.count_on_time(slice, source_rows(&rows, origin), pairs);
                out.piles.push(Pile { slice, class: Class::ON_TIME, rows });
            } else {
                self.judge_each(slice, &rows, times, judged, origin, out);
            }
        }
    }

    /// Takes the counts since the last call, `read`, `rejected` and `filtered` excluded, and those per window.
    pub fn take_counts(&mut self) -> (FateCounts, BTreeMap<Window, WindowCounts>) {
        let mut per_window: BTreeMap<Window, WindowCounts> = BTreeMap::new();
        for ((slice, class), rows) in std::mem::take(&mut self.by_class) {
            for window in self.windows_of(slice) {
                let counts = per_window.entry(window).or_default();
                let fate = class.fate(window.end);
                *match (fate, accepts(&self.policy, fate)) {
                    (Fate::OnTime, _) => &mut counts.on_time,
                    (Fate::Late, true) => &mut counts.late,
                    (Fate::Late, false) => &mut counts.refused_late,
                    (Fate::Expired, _) => &mut counts.refused_expired,
                } += rows;
            }
        }
        self.slices.clear();
        (std::mem::take(&mut self.counts), per_window)
    }

    fn windows_of(&mut self, slice: Slice) -> Vec<Window> {
        let Self { slices, assigner, .. } = self;
        slices.entry(slice).or_insert_with(|| assigner.spec().windows_of_slice(slice)).clone()
    }

    fn count_on_time(&mut self, slice: Slice, rows: u64, windows: u64) {
        self.counts.accepted += rows;
        self.counts.pairs_on_time += rows * windows;
        *self.by_class.entry((slice, Class::ON_TIME)).or_default() += rows;
    }

    /// Rows by slice, in order of first appearance.
    fn by_slice(&mut self, times: &[i64], origin: Option<&[u32]>) -> Vec<(Slice, Runs)> {
        let mut runs = Vec::new();
        self.assigner.assign(times, &mut runs);
        let mut found: Vec<(Slice, Runs)> = Vec::new();
        let mut places: HashMap<Slice, usize> = HashMap::new();
        for SliceRun { slice, rows } in runs {
            let rows = rows.start as u32..rows.end as u32;
            let Some(slice) = slice else {
                rows.for_each(|row| self.count_no_window(row, origin));
                continue;
            };
            let at = *places.entry(slice).or_insert(found.len());
            match found.get_mut(at) {
                Some((_, known)) => known.push(rows),
                None => found.push((slice, Runs::from_iter([rows]))),
            }
        }
        found
    }

    fn count_no_window(&mut self, row: u32, origin: Option<&[u32]>) {
        let again = origin.is_some_and(|o| row > 0 && o[row as usize] == o[row as usize - 1]);
        self.counts.no_window += u64::from(!again);
    }

    /// The slow path: some window of the slice has closed before some row.
    fn judge_each(
        &mut self,
        slice: Slice,
        rows: &Runs,
        times: &[i64],
        judged: &Judged,
        origin: Option<&[u32]>,
        out: &mut Judgement,
    ) {
        let windows = self.windows_of(slice);
        let mut piles: BTreeMap<Class, Runs> = BTreeMap::new();
        let mut last = None;
        for row in rows.iter() {
            let w = judged.get(row as usize);
            let class = self.class_of(&windows, w);
            let origin = origin.map_or(row, |origin| origin[row as usize]);
            // Rows that a join made of one source row share its fate, and count once.
            if last.replace(origin) != Some(origin) {
                *self.by_class.entry((slice, class)).or_default() += 1;
                let late_by_us = w.saturating_sub(times[row as usize]);
                let taken = self.count_pairs(&windows, class, origin, late_by_us, out);
                *if taken { &mut self.counts.accepted } else { &mut self.counts.refused } += 1;
            }
            if windows.iter().any(|window| accepts(&self.policy, class.fate(window.end))) {
                piles.entry(class).or_default().push(row..row + 1);
            }
        }
        out.piles.extend(piles.into_iter().map(|(class, rows)| Pile { slice, class, rows }));
    }

    fn class_of(&self, windows: &[Window], w: i64) -> Class {
        let l_us = self.policy.allowed_lateness_us;
        let last = |passed: fn(Fate) -> bool| {
            let n = windows.partition_point(|window| passed(fate(window.end, w, l_us)));
            n.checked_sub(1).map_or(watermark::NONE, |i| windows[i].end)
        };
        Class { closed_to: last(|f| f != Fate::OnTime), expired_to: last(|f| f == Fate::Expired) }
    }

    /// Counts the pairs of one row and sets it aside where the policy says so. Returns whether any window takes it.
    fn count_pairs(
        &mut self,
        windows: &[Window],
        class: Class,
        origin: u32,
        late_by_us: i64,
        out: &mut Judgement,
    ) -> bool {
        let mut taken = false;
        for late in [false, true] {
            let wanted = if late { Fate::Late } else { Fate::Expired };
            let mut of_fate = windows.iter().filter(|w| class.fate(w.end) == wanted);
            let pairs = of_fate.clone().count() as u64;
            let Some(window) = of_fate.next_back().copied() else { continue };
            if accepts(&self.policy, wanted) {
                self.counts.pairs_late += pairs;
                taken = true;
                continue;
            }
            if self.refuse(late, pairs) {
                out.refused.push(Refused { origin, late, window, pairs: pairs as u32, late_by_us });
            }
        }
        let on_time = windows.iter().filter(|w| class.fate(w.end) == Fate::OnTime).count() as u64;
        self.counts.pairs_on_time += on_time;
        taken || on_time > 0
    }

    /// Counts refused pairs; returns whether their row is kept aside.
    fn refuse(&mut self, late: bool, pairs: u64) -> bool {
        match RefusedTo::of(&self.policy, late) {
            RefusedTo::SideOutput => self.counts.pairs_side_output += pairs,
            RefusedTo::Nowhere => {
                self.counts.pairs_dropped += pairs;
                return false;
            }
            RefusedTo::Queue => self.counts.pairs_queued += pairs,
        }
        true
    }

    /// Of the rows that a join made of one source row the first one speaks for all.
    fn note_lateness(&mut self, times: &[i64], judged: &Judged, origin: Option<&[u32]>, w_max: i64) {
        let behind_all = |(_, ts): &(usize, &i64)| **ts < w_max;
        let is_copy = |row: usize| origin.is_some_and(|origin| row > 0 && origin[row] == origin[row - 1]);
        for (row, ts) in times.iter().enumerate().filter(behind_all) {
            let w = judged.get(row);
            if *ts < w && !is_copy(row) {
                self.counts.lateness.note(w.saturating_sub(*ts));
            }
        }
    }
}

/// How many source rows `rows` come from. Rows that a join made of one source row stand side by side.
fn source_rows(rows: &Runs, origin: Option<&[u32]>) -> u64 {
    let Some(origin) = origin else { return rows.len() as u64 };
    let mut last = None;
    rows.iter().filter(|row| last.replace(origin[*row as usize]) != Some(origin[*row as usize])).count() as u64
}

/// Where a refused pair goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedTo {
    /// `v$late`.
    SideOutput,
    /// A counter.
    Nowhere,
    /// `v$late`, and its window is queued for a batch run.
    Queue,
}

impl Policy {
    /// Whether refused late (or else expired) pairs queue their window for a batch run.
    pub fn queues(&self, late: bool) -> bool {
        RefusedTo::of(self, late) == RefusedTo::Queue
    }
}

impl RefusedTo {
    /// Where `policy` sends refused late (or else expired) pairs.
    pub fn of(policy: &Policy, late: bool) -> Self {
        match (late, policy.on_late, policy.on_expired) {
            (true, OnLate::Drop, _) | (false, _, OnExpired::Drop) => Self::Nowhere,
            (true, OnLate::Recompute { .. }, _) | (false, _, OnExpired::Recompute { .. }) => Self::Queue,
            // Under UPDATE no late pair is refused; the name is given for completeness.
            (true, OnLate::SideOutput | OnLate::Update { .. }, _) | (false, _, OnExpired::SideOutput) => {
                Self::SideOutput
            }
        }
    }
}
