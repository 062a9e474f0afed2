//! Rows on their way to a window, and what became of them (T4, L3).

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::buffer::ScalarBuffer;
use serde::{Deserialize, Serialize};

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
    /// Distribution of lateness (`W - ts`, of rows behind W): upper bound of the bucket in µs (a power of two times a
    /// second, or less than one second) to rows.
    pub lateness: BTreeMap<i64, u64>,
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
        for (bucket, rows) in &other.lateness {
            *self.lateness.entry(*bucket).or_default() += rows;
        }
    }

    /// Notes that a row was behind the watermark by `late_by_us > 0`.
    pub fn note_lateness(&mut self, late_by_us: i64) {
        const SECOND_US: i64 = 1_000_000;
        let mut bound = SECOND_US;
        while bound < late_by_us && bound < i64::MAX / 2 {
            bound *= 2;
        }
        *self.lateness.entry(bound).or_default() += 1;
    }
}
