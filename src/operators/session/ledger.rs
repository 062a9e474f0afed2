//! Counting what becomes of the rows of one batch (L3).

use super::{SessionOutput, Verdict};
use crate::operators::fate::{FateCounts, Refused, WindowCounts};
use crate::operators::graph::Policy;
use crate::sql::statement::{OnExpired, OnLate};
use crate::window::{Fate, Window};

/// The rows of a batch that were taken, and counts of all of them.
pub(super) struct Ledger<'a> {
    policy: Policy,
    /// Source row of each row; copies of one stand together. `None`: each row is its own.
    origin: Option<&'a [u32]>,
    slots: Vec<usize>,
    taken: Vec<u32>,
    counts: FateCounts,
    /// The source row at hand and the best that became of its copies.
    current: Option<(u32, Outcome)>,
    /// What the copies of the source row at hand have met so far.
    met: Vec<Verdict>,
    refused_from: usize,
}

/// What became of a source row, the better the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    NoWindow,
    Refused,
    Accepted,
}

impl<'a> Ledger<'a> {
    /// For a batch of `rows` rows.
    pub(super) fn new(policy: Policy, origin: Option<&'a [u32]>, rows: usize, out: &SessionOutput) -> Self {
        Self {
            policy,
            origin,
            slots: Vec::with_capacity(rows),
            taken: Vec::with_capacity(rows),
            counts: FateCounts::default(),
            current: None,
            met: Vec::new(),
            refused_from: out.refused.len(),
        }
    }

    /// Notes what became of `row`.
    pub(super) fn note(&mut self, row: usize, ts: i64, w: i64, verdict: Verdict, out: &mut SessionOutput) {
        if let Verdict::Taken { slot, .. } = verdict {
            self.slots.push(slot);
            self.taken.push(row as u32);
        }
        let outcome = match verdict {
            Verdict::Taken { .. } => Outcome::Accepted,
            Verdict::Refused { .. } => Outcome::Refused,
            Verdict::NoWindow => Outcome::NoWindow,
        };
        match self.origin {
            None => {
                *self.rows_of(outcome) += 1;
                self.note_lateness(ts, w);
                self.note_pair(row as u32, ts, w, verdict, out);
            }
            Some(origin) => {
                self.note_copy(origin[row], ts, w, outcome);
                let pair = verdict.without_slot();
                if !self.met.contains(&pair) {
                    self.met.push(pair);
                    self.note_pair(origin[row], ts, w, verdict, out);
                }
            }
        }
    }

    /// Adds the counts to `out`; says the slots of the rows taken, and which rows these are.
    pub(super) fn close(mut self, out: &mut SessionOutput) -> (Vec<usize>, Vec<u32>) {
        if let Some((_, outcome)) = self.current.take() {
            *self.rows_of(outcome) += 1;
        }
        out.counts.add(&self.counts);
        (self.slots, self.taken)
    }

    fn note_pair(&mut self, origin: u32, ts: i64, w: i64, verdict: Verdict, out: &mut SessionOutput) {
        match verdict {
            Verdict::Taken { fate: Fate::Late, .. } => self.counts.pairs_late += 1,
            Verdict::Taken { .. } => self.counts.pairs_on_time += 1,
            Verdict::Refused { late, window, .. } => self.refuse(origin, late, window, w.saturating_sub(ts), out),
            Verdict::NoWindow => {}
        }
    }

    fn note_copy(&mut self, origin: u32, ts: i64, w: i64, outcome: Outcome) {
        match &mut self.current {
            Some((current, best)) if *current == origin => *best = outcome.max(*best),
            _ => {
                if let Some((_, best)) = self.current.replace((origin, outcome)) {
                    *self.rows_of(best) += 1;
                }
                self.met.clear();
                self.note_lateness(ts, w);
            }
        }
    }

    fn rows_of(&mut self, outcome: Outcome) -> &mut u64 {
        match outcome {
            Outcome::NoWindow => &mut self.counts.no_window,
            Outcome::Refused => &mut self.counts.refused,
            Outcome::Accepted => &mut self.counts.accepted,
        }
    }

    fn note_lateness(&mut self, ts: i64, w: i64) {
        if ts < w {
            self.counts.lateness.note(w.saturating_sub(ts));
        }
    }

    fn refuse(&mut self, origin: u32, late: bool, window: Window, late_by_us: i64, out: &mut SessionOutput) {
        let (late_pair, expired_pair) = (u64::from(late), u64::from(!late));
        let counts = WindowCounts { refused_late: late_pair, refused_expired: expired_pair, ..WindowCounts::default() };
        out.windows.push((window, counts));
        let (dropped, queued) = match (late, self.policy.on_late, self.policy.on_expired) {
            (true, OnLate::Drop, _) | (false, _, OnExpired::Drop) => (true, false),
            (true, OnLate::Recompute { .. }, _) | (false, _, OnExpired::Recompute { .. }) => (false, true),
            _ => (false, false),
        };
        if dropped {
            self.counts.pairs_dropped += 1;
            return;
        }
        match queued {
            true => self.counts.pairs_queued += 1,
            false => self.counts.pairs_side_output += 1,
        }
        let before = out.refused[self.refused_from..].iter_mut().rev().take(2);
        match before.into_iter().find(|r| r.origin == origin && r.late == late) {
            Some(refused) => {
                refused.pairs += 1;
                refused.window = if window.end > refused.window.end { window } else { refused.window };
            }
            None => out.refused.push(Refused { origin, late, window, pairs: 1, late_by_us }),
        }
    }
}
