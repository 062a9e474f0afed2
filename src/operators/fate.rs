//! Rows on their way to a window, and what became of them (T4, L3).

use arrow::array::RecordBatch;
use arrow::buffer::ScalarBuffer;
use serde::{Deserialize, Serialize};

use crate::time::{DAY_US, HOUR_US, MINUTE_US, SECOND_US};
use crate::window::Window;

/// The watermark each row of a batch is judged against: the one made by the rows before it (T5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// Every row meets the same watermark.
    All(i64),
    /// Row `i` meets `w[i]`, which never falls.
    Each(Vec<i64>),
    /// What each row meets follows from the rows before it, and is worked out where somebody asks.
    Rising(Rising),
}

/// The watermark met by rows that follow each other in one split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rising {
    /// What the first row meets, before the bounds.
    pub first: i64,
    /// At index `i` the largest thing the rows up to and including `i` said.
    pub said: ScalarBuffer<i64>,
    /// It is at least this: W never goes back.
    pub floor: i64,
    /// It is at most this: other splits hold it back.
    pub ceiling: i64,
}

impl Judged {
    /// The watermark row `row` meets.
    pub fn get(&self, row: usize) -> i64 {
        match self {
            Self::All(w) => *w,
            Self::Each(w) => w[row],
            Self::Rising(Rising { first, said, floor, ceiling }) => {
                let before = row.checked_sub(1).map_or(*first, |before| said[before].max(*first));
                before.min(*ceiling).max(*floor)
            }
        }
    }
}

/// Rows in arrival order, after WHERE and projection, not judged yet.
#[derive(Debug, Clone)]
pub struct ArrivedRows {
    /// The window operator's input columns.
    pub rows: RecordBatch,
    /// The watermark each row meets.
    pub judged: Judged,
    /// For each row its index in the source batch it came from, so that a refused row can be kept whole.
    /// `None`: row `i` is source row `i`.
    pub origin: Option<Vec<u32>>,
}

/// One row that at least one window refused, once per fate (design: "`view$late` has one row per source row and fate,
/// with the last window that refused it and `_pairs`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Index in the source batch.
    pub origin: u32,
    /// Late (under ON LATE DROP, SIDE OUTPUT or RECOMPUTE) or expired.
    pub late: bool,
    /// The last window that refused it.
    pub window: Window,
    /// How many windows refused it with this fate.
    pub pairs: u32,
    /// `W - event time`, µs, always positive.
    pub late_by_us: i64,
}

/// What became of rows and pairs of one view: the conservation law L3 in numbers.
///
/// `read = rejected + filtered + no_window + accepted + refused`;
/// `pairs accepted = pairs_on_time + pairs_late`; `pairs refused = pairs_side_output + pairs_dropped + pairs_queued`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FateCounts {
    /// Source rows read, rejected ones included.
    pub read: u64,
    /// Rows set aside as rejects.
    pub rejected: u64,
    /// Rows WHERE or an inner join with a static table took out.
    pub filtered: u64,
    /// Rows in no window (a hop with gaps).
    pub no_window: u64,
    /// Rows at least one window took.
    pub accepted: u64,
    /// Rows that have windows, none of which took them.
    pub refused: u64,
    /// Pairs taken before the window closed.
    pub pairs_on_time: u64,
    /// Pairs taken after the window closed.
    pub pairs_late: u64,
    /// Pairs refused into `v$late`.
    pub pairs_side_output: u64,
    /// Pairs refused and only counted.
    pub pairs_dropped: u64,
    /// Pairs refused whose window is queued for a batch run.
    pub pairs_queued: u64,
    /// Distribution of `W - ts`, of the rows behind W.
    pub lateness: Lateness,
}

/// Counts of one window, summed over keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCounts {
    /// Pairs taken on time.
    pub on_time: u64,
    /// Pairs taken late.
    pub late: u64,
    /// Pairs refused because they were late and the policy refuses late pairs.
    pub refused_late: u64,
    /// Pairs refused because the window had expired.
    pub refused_expired: u64,
}

/// How far rows were behind the watermark: a count for each length of [`Lateness::STEPS_US`], and one for what is beyond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness([u64; Lateness::STEPS_US.len() + 1]);

impl Lateness {
    /// The upper ends of the buckets, inclusive: lengths that people think in.
    pub const STEPS_US: [i64; 14] = [
        SECOND_US,
        5 * SECOND_US,
        15 * SECOND_US,
        MINUTE_US,
        5 * MINUTE_US,
        15 * MINUTE_US,
        HOUR_US,
        3 * HOUR_US,
        6 * HOUR_US,
        12 * HOUR_US,
        DAY_US,
        3 * DAY_US,
        7 * DAY_US,
        30 * DAY_US,
    ];

    /// Notes a row that was behind by `late_by_us > 0`.
    pub fn note(&mut self, late_by_us: i64) {
        self.0[Self::STEPS_US.partition_point(|step_us| *step_us < late_by_us)] += 1;
    }

    /// Adds `other` to it.
    pub fn add(&mut self, other: &Self) {
        for (rows, more) in self.0.iter_mut().zip(other.0) {
            *rows += more;
        }
    }

    /// The buckets that hold rows, nearest first: the upper end, `None` beyond the last, and the rows.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<i64>, u64)> {
        let ends = Self::STEPS_US.into_iter().map(Some).chain([None]);
        ends.zip(self.0).filter(|(_, rows)| *rows > 0)
    }
}

impl FateCounts {
    /// Whether conservation holds (L3). `sources_read` excludes rows still on their way.
    pub fn conserved(&self) -> bool {
        self.read == self.rejected + self.filtered + self.no_window + self.accepted + self.refused
    }

    /// Adds `other` to it.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.rejected += other.rejected;
        self.filtered += other.filtered;
        self.no_window += other.no_window;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.pairs_on_time += other.pairs_on_time;
        self.pairs_late += other.pairs_late;
        self.pairs_side_output += other.pairs_side_output;
        self.pairs_dropped += other.pairs_dropped;
        self.pairs_queued += other.pairs_queued;
        self.lateness.add(&other.lateness);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_counted_by_lengths_people_think_in() {
        let mut lateness = Lateness::default();
        for late_by_us in
            [1, SECOND_US, SECOND_US + 1, 5 * SECOND_US, HOUR_US, HOUR_US + 1, 30 * DAY_US, 31 * DAY_US, i64::MAX]
        {
            lateness.note(late_by_us);
        }
        let expected = [(SECOND_US, 2), (5 * SECOND_US, 2), (HOUR_US, 1), (3 * HOUR_US, 1), (30 * DAY_US, 1)];
        let expected = expected.map(|(end_us, rows)| (Some(end_us), rows)).into_iter().chain([(None, 2)]);
        assert!(lateness.buckets().eq(expected), "{lateness:?}");
    }
}
