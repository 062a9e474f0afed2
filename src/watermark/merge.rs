//! The order in which rows of bounded splits go.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Says which bounded split goes next: the one with the lowest watermark, of several the first by name (T5). So each row
/// meets its own split's W, no split makes another's rows late, and the order does not depend on who reads faster.
///
/// Give it rows with [`MergeOrder::push`] as they are read, and take runs with [`MergeOrder::next_run`]. It holds one number per
/// row it was given and has not handed out.
///
/// ```
/// use highwater::watermark::{MergeOrder, Next};
/// let mut order = MergeOrder::new(2);
/// order.push(0, &[10, 30]); // W after a row at 10, and after a row at 30
/// order.push(1, &[20]);
/// assert_eq!(order.next_run(), Next::Run { split: 0, rows: 1 });
/// assert_eq!(order.next_run(), Next::Run { split: 1, rows: 1 });
/// assert_eq!(order.next_run(), Next::Run { split: 0, rows: 1 });
/// assert_eq!(order.next_run(), Next::NeedRows { split: 1 });
/// ```
#[derive(Debug, Clone)]
pub struct MergeOrder {
    lanes: Vec<Lane>,
    /// Every split that has not ended: the W its next row meets, and its place.
    waiting: BinaryHeap<Reverse<(i64, usize)>>,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    /// W after each row that waits.
    after: VecDeque<i64>,
    ended: bool,
}

/// What goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next `rows` rows of a split, at least one.
    Run {
        /// Its place.
        split: usize,
        /// How many.
        rows: usize,
    },
    /// Nothing can be said before this split has more rows, or its end.
    NeedRows {
        /// Its place.
        split: usize,
    },
    /// All splits have ended and all their rows have gone.
    Done,
}

impl MergeOrder {
    /// An order of `splits` splits that no row has been read from. A split's place is its place by name.
    pub fn new(splits: usize) -> Self {
        Self::resume(vec![super::NONE; splits])
    }

    /// An order of splits that were read before, given the W of each.
    pub fn resume(w: Vec<i64>) -> Self {
        let lanes = w.iter().map(|_| Lane::default()).collect();
        Self { lanes, waiting: w.into_iter().enumerate().map(|(split, w)| Reverse((w, split))).collect() }
    }

    /// Adds rows that were read from a split: W after each of them, as [`super::SplitWatermark::advance`] gives it.
    pub fn push(&mut self, split: usize, after: &[i64]) {
        self.lanes[split].after.extend(after);
    }

    /// The split has no more rows than were pushed.
    pub fn end(&mut self, split: usize) {
        self.lanes[split].ended = true;
    }

    /// How many rows of a split wait.
    pub fn waiting_rows(&self, split: usize) -> usize {
        self.lanes[split].after.len()
    }

    /// What goes next, as far as can be said. A run ends where another split's turn comes, or what was pushed does.
    pub fn next_run(&mut self) -> Next {
        while let Some(&Reverse((_, split))) = self.waiting.peek() {
            let lane = &mut self.lanes[split];
            if lane.after.is_empty() {
                if !lane.ended {
                    return Next::NeedRows { split };
                }
                self.waiting.pop();
                continue;
            }
            self.waiting.pop();
            let rows = match self.waiting.peek() {
                // The row that takes it past the next split still goes.
                Some(&Reverse(other)) => lane.after.partition_point(|&w| (w, split) < other) + 1,
                None => lane.after.len(),
            }
            .min(lane.after.len());
            let w = lane.after.drain(..rows).next_back().expect("a run has a row");
            self.waiting.push(Reverse((w, split)));
            return Next::Run { split, rows };
        }
        Next::Done
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::watermark::{NONE, SplitWatermark, Strategy};

    fn push(order: &mut MergeOrder, watermark: &mut SplitWatermark, split: usize, times: &[i64]) {
        let mut after = Vec::new();
        watermark.advance(times.len(), times, &[], &[], &mut after);
        order.push(split, &after);
    }

    #[test]
    fn the_lowest_split_goes_next_and_ties_go_by_name() {
        let mut order = MergeOrder::new(2);
        order.push(0, &[5, 5, 7]);
        order.push(1, &[5, 5]);
        order.end(0);
        order.end(1);
        let runs: Vec<_> = std::iter::from_fn(|| match order.next_run() {
            Next::Run { split, rows } => Some((split, rows)),
            _ => None,
        })
        .collect();
        assert_eq!(runs, [(0, 1), (1, 1), (0, 2), (1, 1)]);
        assert_eq!(order.next_run(), Next::Done);
    }

    #[test]
    fn a_single_split_goes_as_it_comes() {
        let mut order = MergeOrder::new(1);
        assert_eq!(order.next_run(), Next::NeedRows { split: 0 });
        order.push(0, &[1, 2, 3]);
        assert_eq!(order.next_run(), Next::Run { split: 0, rows: 3 });
        order.end(0);
        assert_eq!(order.next_run(), Next::Done);
        assert_eq!(MergeOrder::new(0).next_run(), Next::Done);
    }

    #[test]
    fn c86_backfill_order() {
        // One split per file of an hour each: none goes past another's W, so no row is late.
        let hours: Vec<Vec<i64>> = (10..13).map(|hour| (0..60).map(|minute| hour * 60 + minute).collect()).collect();
        let mut order = MergeOrder::new(3);
        let mut splits = vec![SplitWatermark::new(Some(Strategy::BoundedOutOfOrderness)); 3];
        for split in [2, 0, 1] {
            push(&mut order, &mut splits[split], split, &hours[split]);
            order.end(split);
        }
        let mut taken = [0; 3];
        let mut seen: Vec<i64> = Vec::new();
        while let Next::Run { split, rows } = order.next_run() {
            seen.extend(&hours[split][taken[split]..taken[split] + rows]);
            taken[split] += rows;
        }
        // The first row of each comes first, since nothing is known before it; then the lowest.
        assert_eq!(seen[..4], [600, 660, 720, 601]);
        assert_eq!(seen.len(), 180);
    }

    proptest! {
        #[test]
        fn runs_are_what_choosing_row_by_row_gives(
            splits in prop::collection::vec(prop::collection::vec(0i64..50, 0..20), 1..5),
            pushes in prop::collection::vec((0usize..5, 1usize..6), 0..40),
        ) {
            // The oracle: before every row, look at all splits.
            let mut want = Vec::new();
            let mut at: Vec<(i64, usize)> = vec![(NONE, 0); splits.len()];
            while let Some(split) = (0..splits.len()).filter(|&s| at[s].1 < splits[s].len()).min_by_key(|&s| (at[s].0, s)) {
                let (w, row) = at[split];
                want.push((split, row));
                at[split] = (w.max(splits[split][row]), row + 1);
            }

            // Rows are pushed in any portions, and runs taken in between.
            let mut order = MergeOrder::new(splits.len());
            let mut watermarks = vec![SplitWatermark::new(Some(Strategy::BoundedOutOfOrderness)); splits.len()];
            let (mut pushed, mut taken, mut got) = (vec![0; splits.len()], vec![0; splits.len()], Vec::new());
            let mut drain = |order: &mut MergeOrder, got: &mut Vec<_>| loop {
                match order.next_run() {
                    Next::Run { split, rows } => {
                        got.extend((taken[split]..taken[split] + rows).map(|row| (split, row)));
                        taken[split] += rows;
                    }
                    other => break other,
                }
            };
            for (split, rows) in pushes {
                let split = split % splits.len();
                let upto = (pushed[split] + rows).min(splits[split].len());
                push(&mut order, &mut watermarks[split], split, &splits[split][pushed[split]..upto]);
                pushed[split] = upto;
                prop_assert!(drain(&mut order, &mut got) != Next::Done);
            }
            for split in 0..splits.len() {
                push(&mut order, &mut watermarks[split], split, &splits[split][pushed[split]..]);
                order.end(split);
            }
            prop_assert_eq!(drain(&mut order, &mut got), Next::Done);
            prop_assert_eq!(got, want);
        }
    }
}
