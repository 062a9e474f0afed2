//! The watermark of one split, moved by its rows in their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::{END, NONE, Strategy};

/// The watermark of one split.
///
/// Guarantees: it never goes back, whatever comes; it stays below [`END`] until [`SplitWatermark::end`]; and it depends on
/// the rows and their order alone, not on how they are cut into batches.
#[derive(Debug, Clone)]
pub struct SplitWatermark {
    /// `None`: rows say nothing of time.
    strategy: Option<Strategy>,
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
    /// A watermark that no row has moved yet. Without a strategy none will.
    pub fn new(strategy: Option<Strategy>) -> Self {
        Self { strategy, w: NONE, keys: Keys::default() }
    }

    /// The watermark of a checkpoint.
    pub fn restore(strategy: Option<Strategy>, state: SplitState) -> Self {
        Self { strategy, w: state.w, keys: Keys::restore(state.newest, state.keys) }
    }

    /// What a checkpoint must keep.
    pub fn state(&self) -> SplitState {
        SplitState { w: self.w, newest: self.keys.newest, keys: self.keys.list() }
    }

    /// W now.
    pub fn current(&self) -> i64 {
        self.w
    }

    /// Moves W by `rows` rows in arrival order and appends the W after each of them to `after`.
    ///
    /// `candidates` holds a row's value of the watermark expression, or for processing time the clock less the delay;
    /// [`NONE`] where a row says nothing: the value is NULL, or the row is not marked. Empty: no row says anything.
    /// Rejected rows must say nothing (T8). Only [`Strategy::PerKey`] looks at the others, one each per row: `times` are event
    /// times, which tell how far a key lags; `keys` hashes of the key, the same in every process. Two keys of one hash count
    /// as one: of a million keys a pair does so with a chance of 3 in 100 million.
    pub fn advance(&mut self, rows: usize, candidates: &[i64], times: &[i64], keys: &[u64], after: &mut Vec<i64>) {
        if candidates.is_empty() || self.strategy.is_none() {
            after.resize(after.len() + rows, self.w);
            return;
        }
        if let Some(Strategy::PerKey { timeout_us }) = self.strategy {
            for ((&candidate, &time), &key) in candidates.iter().zip(times).zip(keys) {
                if candidate != NONE {
                    let lowest = self.keys.observe(key, time, candidate.min(END - 1), timeout_us);
                    self.w = self.w.max(lowest);
                }
                after.push(self.w);
            }
            return;
        }
        let mut w = self.w;
        after.extend(candidates.iter().map(|&candidate| {
            w = w.max(candidate.min(END - 1));
            w
        }));
        self.w = w;
    }

    /// As [`SplitWatermark::advance`] for the rows `rows` of a batch, where W after each is of no interest.
    pub fn advance_rows(&mut self, candidates: &[i64], times: &[i64], keys: &[u64], rows: Range<usize>) {
        let of = |values: &[i64]| if values.is_empty() { 0..0 } else { rows.clone() };
        let hashes = if keys.is_empty() { 0..0 } else { rows.clone() };
        let (candidates, times) = (&candidates[of(candidates)], &times[of(times)]);
        self.advance(rows.len(), candidates, times, &keys[hashes], &mut Vec::new());
    }

    /// Whether only [`SplitWatermark::advance`] will do, because the largest candidate does not say enough.
    pub fn needs_each_row(&self) -> bool {
        matches!(self.strategy, Some(Strategy::PerKey { .. }))
    }

    /// Moves W by rows of which only the largest candidate is known, and returns it: for when W after each is of no interest.
    ///
    /// # Panics
    ///
    /// If the strategy [needs each row](Self::needs_each_row).
    pub fn advance_to_max(&mut self, largest: i64) -> i64 {
        assert!(!self.needs_each_row(), "a watermark per key depends on every row");
        self.w = self.w.max(largest.min(END - 1));
        self.w
    }

    /// Raises W to `w` by hand. Lower values change nothing.
    pub fn raise(&mut self, w: i64) {
        self.w = self.w.max(w);
    }

    /// The split has ended (T6).
    pub fn end(&mut self) {
        self.w = END;
        self.keys = Keys::default();
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

    use super::*;
    use crate::watermark::Strategy;

    const PER_KEY: Option<Strategy> = Some(Strategy::PerKey { timeout_us: 10 });

    fn bounded() -> SplitWatermark {
        SplitWatermark::new(Some(Strategy::BoundedOutOfOrderness))
    }

    fn advance(watermark: &mut SplitWatermark, candidates: &[i64]) -> Vec<i64> {
        let mut after = Vec::new();
        watermark.advance(candidates.len(), candidates, &[], &[], &mut after);
        after
    }

    /// Rows of a key at a time, which is the candidate too.
    fn advance_keys(watermark: &mut SplitWatermark, rows: &[(u64, i64)]) -> Vec<i64> {
        let (keys, times): (Vec<_>, Vec<_>) = rows.iter().copied().unzip();
        let mut after = Vec::new();
        watermark.advance(rows.len(), &times, &times, &keys, &mut after);
        after
    }

    #[test]
    fn each_row_that_says_something_moves_it_forward() {
        let mut w = bounded();
        assert_eq!(advance(&mut w, &[NONE, 5, 25, NONE, 7]), [NONE, 5, 25, 25, 25]);
        w.advance(2, &[], &[], &[], &mut Vec::new());
        assert_eq!(w.current(), 25);
        assert_eq!(w.advance_to_max(20), 25);
        assert_eq!(w.advance_to_max(30), 30);
        w.raise(29);
        assert_eq!(w.current(), 30);
        let mut none = SplitWatermark::new(None);
        assert_eq!(advance(&mut none, &[5, 6]), [NONE, NONE]);
    }

    #[test]
    fn c39_batch_size_must_not_matter() {
        for size in 1..=3 {
            let mut w = bounded();
            let batches = [5, 25, 7];
            let after: Vec<_> = batches.chunks(size).flat_map(|batch| advance(&mut w, batch)).collect();
            assert_eq!(after, [5, 25, 25], "batches of {size}");
        }
    }

    #[test]
    fn only_the_end_is_infinite() {
        let mut w = bounded();
        assert_eq!(advance(&mut w, &[i64::MAX, i64::MIN]), [END - 1; 2]);
        assert_eq!(w.advance_to_max(i64::MAX), END - 1);
        w.end();
        assert_eq!(w.current(), END);
    }

    #[test]
    fn the_slowest_key_holds_the_watermark_until_it_lags_too_far() {
        let mut w = SplitWatermark::new(PER_KEY);
        // Key 2 at 3 does not take it back from 5; it holds it there until key 1 is more than 10 ahead.
        assert_eq!(advance_keys(&mut w, &[(1, 5), (2, 3), (1, 13), (1, 14)]), [5, 5, 5, 14]);
        // A key that is new or comes back holds it again, and does not take it back.
        assert_eq!(advance_keys(&mut w, &[(2, 8), (1, 18), (2, 17)]), [14, 14, 17]);
        assert_eq!(w.state().keys, [(1, 18, 18), (2, 17, 17)]);
    }

    #[test]
    fn the_event_time_decides_who_lags() {
        let mut w = SplitWatermark::new(PER_KEY);
        w.advance(2, &[0, 50], &[100, 105], &[1, 2], &mut Vec::new());
        assert_eq!(w.current(), 0);
    }

    #[test]
    fn keys_that_lag_are_forgotten() {
        let mut w = SplitWatermark::new(PER_KEY);
        let rows: Vec<_> = (0..10_000u64).map(|key| (key, key as i64)).collect();
        advance_keys(&mut w, &rows);
        assert_eq!(w.state().keys.len(), 11);
        assert_eq!(w.current(), 9_989);
    }

    proptest! {
        #[test]
        fn per_key_is_the_minimum_over_keys_within_the_timeout(
            rows in prop::collection::vec((0u64..5, 0i64..60, -5i64..5), 1..80), cut in 0usize..80, timeout in 0i64..30,
        ) {
            let strategy = Some(Strategy::PerKey { timeout_us: timeout });
            let keys: Vec<_> = rows.iter().map(|r| r.0).collect();
            let times: Vec<_> = rows.iter().map(|r| r.1).collect();
            let candidates: Vec<_> = rows.iter().map(|r| r.1 + r.2).collect();
            let cut = cut.min(rows.len());
            let mut got = Vec::new();
            let mut watermark = SplitWatermark::new(strategy);
            watermark.advance(cut, &candidates[..cut], &times[..cut], &keys[..cut], &mut got);
            let mut watermark = SplitWatermark::restore(strategy, watermark.state());
            watermark.advance(rows.len() - cut, &candidates[cut..], &times[cut..], &keys[cut..], &mut got);

            let mut w = NONE;
            for i in 1..=rows.len() {
                // The oracle: look at all rows so far.
                let lowest = (0..5).filter_map(|key| {
                    let of_key = || (0..i).filter(|&j| keys[j] == key);
                    let horizon = times[..i].iter().max()? - timeout;
                    let active = of_key().map(|j| times[j]).max()? >= horizon;
                    active.then(|| of_key().map(|j| candidates[j]).max()).flatten()
                });
                w = w.max(lowest.min().unwrap_or(NONE));
                prop_assert_eq!(got[i - 1], w, "after row {}", i);
            }
        }
    }
}
