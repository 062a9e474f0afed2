//! The watermark of one split, moved by its rows in their order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::{Deserialize, Serialize};

use super::{END, NONE, Strategy};

/// What rows of a split have to say about time, one entry per row, in arrival order.
///
/// Rejected rows must be left out or marked invalid: they never move a watermark (T8).
#[derive(Debug, Clone, Copy, Default)]
pub struct RowTimes<'a> {
    /// Value of the watermark expression, µs. For processing time, the clock's when the row arrived.
    pub candidates: &'a [i64],
    /// Whether the candidate counts; `false` where the expression is NULL. `None`: all do.
    pub valid: Option<&'a [bool]>,
    /// Event time, which tells how far a key lags. `None`: the candidate stands in. Only for [`Strategy::PerKey`].
    pub times: Option<&'a [i64]>,
    /// Hash of the key, the same in every process. Two keys of one hash count as one; of a million keys a pair does so
    /// with a chance of 3 in 100 million. Only for [`Strategy::PerKey`].
    pub keys: &'a [u64],
    /// Whether the row is one that moves the watermark. Only for [`Strategy::Punctuated`].
    pub marks: &'a [bool],
}

/// The watermark of one split.
///
/// Guarantees: it never goes back, whatever comes; it stays below [`END`] until [`SplitWatermark::end`]; and it depends on
/// the rows and their order alone, not on how they are cut into batches.
#[derive(Debug, Clone)]
pub struct SplitWatermark {
    strategy: Strategy,
    w: i64,
    keys: Keys,
}

/// What a checkpoint keeps of a [`SplitWatermark`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitState {
    /// The watermark; [`NONE`] is legal.
    pub w: i64,
    /// Newest event time of any key; [`NONE`] unless the strategy is per key.
    pub newest: i64,
    /// Per key in ascending order: hash, newest event time, largest candidate.
    pub keys: Vec<(u64, i64, i64)>,
}

impl SplitWatermark {
    /// A watermark that no row has moved yet.
    pub fn new(strategy: Strategy) -> Self {
        Self { strategy, w: NONE, keys: Keys::default() }
    }

    /// The watermark of a checkpoint.
    pub fn restore(strategy: Strategy, state: SplitState) -> Self {
        Self { strategy, w: state.w, keys: Keys::restore(state.newest, state.keys) }
    }

    /// What a checkpoint must keep.
    pub fn state(&self) -> SplitState {
        SplitState { w: self.w, newest: self.keys.newest, keys: self.keys.list() }
    }

    /// W now.
    pub fn w(&self) -> i64 {
        self.w
    }

    /// Whether only [`SplitWatermark::observe`] will do, because the largest candidate does not say enough.
    pub fn needs_each_row(&self) -> bool {
        matches!(self.strategy, Strategy::PerKey { .. })
    }

    /// Moves W by a batch of which only the largest valid (and if punctuated, marked) candidate is known, and returns it. The
    /// way to go when no row of the batch can be late, so that W before each is of no interest.
    ///
    /// # Panics
    ///
    /// If the strategy [needs each row](Self::needs_each_row).
    pub fn advance_to_max(&mut self, largest: i64) -> i64 {
        assert!(!self.needs_each_row(), "a watermark per key depends on every row");
        self.w = self.w.max(self.candidate(largest));
        self.w
    }

    /// Moves W by rows, replaces `before` by the W each row meets, and returns W after the last.
    pub fn observe(&mut self, rows: RowTimes<'_>, before: &mut Vec<i64>) -> i64 {
        before.clear();
        before.reserve(rows.candidates.len());
        for (row, &candidate) in rows.candidates.iter().enumerate() {
            before.push(self.w);
            let counts = rows.valid.is_none_or(|valid| valid[row]);
            if !counts || (self.strategy == Strategy::Punctuated && !rows.marks[row]) {
                continue;
            }
            let candidate = self.candidate(candidate);
            let next = match self.strategy {
                Strategy::PerKey { timeout_us } => {
                    let time = rows.times.map_or(candidate, |times| times[row]);
                    self.keys.observe(rows.keys[row], time, candidate, timeout_us)
                }
                _ => candidate,
            };
            self.w = self.w.max(next);
        }
        self.w
    }

    /// Raises W to `w`, by hand or because an idle source closes its windows. Lower values change nothing.
    pub fn raise_to(&mut self, w: i64) -> i64 {
        self.w = self.w.max(w);
        self.w
    }

    /// The split has ended (T6).
    pub fn end(&mut self) {
        self.w = END;
        self.keys = Keys::default();
    }

    /// What a candidate comes to. Only the end of input is [`END`].
    fn candidate(&self, candidate: i64) -> i64 {
        let delay_us = if let Strategy::ProcessingTime { delay_us } = self.strategy { delay_us } else { 0 };
        candidate.saturating_sub(delay_us).min(END - 1)
    }
}

/// The minimum over keys of their largest candidate, without those that have lagged behind too far.
///
/// A heap holds one entry per key, with a candidate that was the key's largest once. Rows of a key update its entry in the
/// table only; the heap is set right at its top, where a stale entry is put back with what is in the table and a key
/// that lags is forgotten. So a row costs one look into the table, and two more if its key is the one that holds W.
#[derive(Debug, Clone)]
struct Keys {
    newest: i64,
    table: HashMap<u64, Key>,
    lowest: BinaryHeap<Reverse<(i64, u64)>>,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    newest: i64,
    largest: i64,
}

impl Default for Keys {
    fn default() -> Self {
        Self { newest: NONE, table: HashMap::new(), lowest: BinaryHeap::new() }
    }
}

impl Keys {
    fn restore(newest: i64, keys: Vec<(u64, i64, i64)>) -> Self {
        let lowest = keys.iter().map(|&(key, _, largest)| Reverse((largest, key))).collect();
        let table = keys.into_iter().map(|(key, newest, largest)| (key, Key { newest, largest })).collect();
        Self { newest, table, lowest }
    }

    fn list(&self) -> Vec<(u64, i64, i64)> {
        let mut keys: Vec<_> = self.table.iter().map(|(&key, k)| (key, k.newest, k.largest)).collect();
        keys.sort_unstable();
        keys
    }

    /// Takes in one row and returns the minimum after it.
    fn observe(&mut self, key: u64, time: i64, candidate: i64, timeout_us: i64) -> i64 {
        self.newest = self.newest.max(time);
        let lowest = &mut self.lowest;
        let entry = self.table.entry(key).or_insert_with(|| {
            lowest.push(Reverse((candidate, key)));
            Key { newest: time, largest: candidate }
        });
        entry.newest = entry.newest.max(time);
        entry.largest = entry.largest.max(candidate);

        let horizon = self.newest.saturating_sub(timeout_us);
        while let Some(&Reverse((value, key))) = self.lowest.peek() {
            let current = self.table[&key];
            if current.largest > value {
                self.lowest.pop();
                self.lowest.push(Reverse((current.largest, key)));
            } else if current.newest < horizon {
                // W is at least its largest candidate from here on, so that is all there is to remember of it.
                self.lowest.pop();
                self.table.remove(&key);
            } else {
                return value;
            }
        }
        // Cannot be: the key of the newest row does not lag. Says "no more than before".
        NONE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Strategy;
    use super::*;

    const PER_KEY: Strategy = Strategy::PerKey { timeout_us: 10 };

    fn observe(watermark: &mut SplitWatermark, candidates: &[i64]) -> Vec<i64> {
        let mut before = Vec::new();
        let after = watermark.observe(RowTimes { candidates, ..RowTimes::default() }, &mut before);
        before.push(after);
        before
    }

    fn observe_keys(watermark: &mut SplitWatermark, rows: &[(u64, i64)]) -> Vec<i64> {
        let (keys, candidates): (Vec<_>, Vec<_>) = rows.iter().copied().unzip();
        let mut before = Vec::new();
        let after =
            watermark.observe(RowTimes { candidates: &candidates, keys: &keys, ..RowTimes::default() }, &mut before);
        before.push(after);
        before
    }

    #[test]
    fn rows_meet_what_the_rows_before_them_made() {
        let mut w = SplitWatermark::new(Strategy::BoundedOutOfOrderness);
        assert_eq!(observe(&mut w, &[5, 25, 7]), [NONE, 5, 25, 25]);
        assert_eq!(observe(&mut w, &[]), [25]);
        assert_eq!(w.advance_to_max(20), 25);
        assert_eq!(w.advance_to_max(30), 30);
    }

    #[test]
    fn c39_batch_size_must_not_matter() {
        for size in 1..=3 {
            let mut w = SplitWatermark::new(Strategy::BoundedOutOfOrderness);
            let batches = [5, 25, 7];
            let met: Vec<_> =
                batches.chunks(size).flat_map(|batch| observe(&mut w, batch)[..batch.len()].to_vec()).collect();
            assert_eq!(met, [NONE, 5, 25], "batches of {size}");
        }
    }

    #[test]
    fn only_the_end_is_infinite() {
        let mut w = SplitWatermark::new(Strategy::BoundedOutOfOrderness);
        assert_eq!(w.advance_to_max(i64::MAX), END - 1);
        assert_eq!(w.advance_to_max(i64::MIN), END - 1);
        w.end();
        assert_eq!(w.w(), END);
        let mut late = SplitWatermark::new(Strategy::ProcessingTime { delay_us: 10 });
        assert_eq!(late.advance_to_max(i64::MIN + 5), NONE);
        assert_eq!(observe(&mut late, &[100, 95, 120]), [NONE, 90, 90, 110]);
    }

    #[test]
    fn rows_without_a_candidate_and_rows_without_a_mark_move_nothing() {
        let mut before = Vec::new();
        let mut w = SplitWatermark::new(Strategy::BoundedOutOfOrderness);
        let valid = [true, false, true];
        let rows = RowTimes { candidates: &[5, 99, 6], valid: Some(&valid), ..RowTimes::default() };
        assert_eq!((w.observe(rows, &mut before), &before[..]), (6, &[NONE, 5, 5][..]));

        let mut w = SplitWatermark::new(Strategy::Punctuated);
        let rows = RowTimes { candidates: &[5, 99, 6], marks: &[true, false, true], ..RowTimes::default() };
        assert_eq!((w.observe(rows, &mut before), &before[..]), (6, &[NONE, 5, 5][..]));
    }

    #[test]
    fn the_slowest_key_holds_the_watermark_until_it_lags_too_far() {
        let mut w = SplitWatermark::new(PER_KEY);
        // Key 2 at 3 holds it at 3, until key 1 is more than 10 ahead.
        assert_eq!(observe_keys(&mut w, &[(1, 5), (2, 3), (1, 13), (1, 14)]), [NONE, 5, 5, 5, 14]);
        // A key that is new or comes back holds it again, and does not take it back.
        assert_eq!(observe_keys(&mut w, &[(2, 8), (1, 18), (2, 17)]), [14, 14, 14, 17]);
        assert_eq!(w.state().keys, [(1, 18, 18), (2, 17, 17)]);
    }

    #[test]
    fn the_event_time_decides_who_lags() {
        let mut w = SplitWatermark::new(PER_KEY);
        let rows = RowTimes { candidates: &[0, 50], times: Some(&[100, 105]), keys: &[1, 2], ..RowTimes::default() };
        assert_eq!(w.observe(rows, &mut Vec::new()), 0);
    }

    #[test]
    fn keys_that_lag_are_forgotten() {
        let mut w = SplitWatermark::new(PER_KEY);
        let rows: Vec<_> = (0..10_000u64).map(|key| (key, key as i64)).collect();
        observe_keys(&mut w, &rows);
        assert_eq!(w.state().keys.len(), 11);
        assert_eq!(w.w(), 9_989);
    }

    proptest! {
        #[test]
        fn per_key_is_the_minimum_over_keys_within_the_timeout(
            rows in prop::collection::vec((0u64..5, 0i64..60, -5i64..5), 1..80), cut in 0usize..80, timeout in 0i64..30,
        ) {
            let strategy = Strategy::PerKey { timeout_us: timeout };
            let keys: Vec<_> = rows.iter().map(|r| r.0).collect();
            let times: Vec<_> = rows.iter().map(|r| r.1).collect();
            let candidates: Vec<_> = rows.iter().map(|r| r.1 + r.2).collect();
            let part = |from: usize, to: usize| RowTimes {
                candidates: &candidates[from..to], times: Some(&times[from..to]), keys: &keys[from..to], ..RowTimes::default()
            };
            let (mut got, mut rest) = (Vec::new(), Vec::new());
            let cut = cut.min(rows.len());
            let mut watermark = SplitWatermark::new(strategy);
            watermark.observe(part(0, cut), &mut got);
            let mut watermark = SplitWatermark::restore(strategy, watermark.state());
            let after = watermark.observe(part(cut, rows.len()), &mut rest);
            got.extend(rest);
            got.push(after);

            let mut w = NONE;
            for i in 0..=rows.len() {
                // The oracle: look at all rows so far.
                let lowest = (0..5).filter_map(|key| {
                    let of_key = || (0..i).filter(|&j| keys[j] == key);
                    let horizon = times[..i].iter().max()? - timeout;
                    let active = of_key().map(|j| times[j]).max()? >= horizon;
                    active.then(|| of_key().map(|j| candidates[j]).max()).flatten()
                });
                w = w.max(lowest.min().unwrap_or(NONE));
                prop_assert_eq!(got[i], w, "before row {}", i);
            }
        }
    }
}
