//! Pure window algebra: which windows a time belongs to, which slices windows share, when a window is late or expired.
//!
//! It is one module, because live operators, batch plans and finalization must agree to the instant on where a window
//! starts and ends and on which side of it a row falls. It knows no async, no DataFusion, no rows and no clock: times come
//! in as `i64` microseconds since 1970-01-01 UTC, windows and slices go out half-open, `[start, end)`.
//!
//! | file | holds |
//! | --- | --- |
//! | `span` | lengths as SQL writes them, and why a window cannot be planned |
//! | `assign` | [`WindowSpec`]: validation, and every question about windows, answered by one of the two grids |
//! | `exact` | the grid of fixed lengths: a few instructions per time |
//! | `calendar` | the grid of local days and of months |
//! | `slice` | [`Assigner`]: slices for a batch of times at once |
//! | `lifecycle` | fate of a (row, window) pair, closing and expiry |
//!
//! # Grids
//!
//! Windows of fixed length count from 1970-01-01T00:00Z, plus the offset. They are used where all lengths are exact, which
//! without a zone includes days and weeks.
//!
//! Calendar windows are used with a time zone, and for months, quarters and years always (in UTC if no zone is given).
//! Whole days, and exact lengths that are a multiple of 24 hours, count local days from Monday 1969-12-29, so that 7 days
//! are the ISO week; months count from January 1970, so that 3 are a quarter. Boundaries are local midnights, or the
//! local time of day given as offset; where clocks jump over it, the jump; where it comes twice, the first. Lengths below a
//! day restart at each such boundary: `TUMBLE` and `CUMULATE` cut their last window there (on a day of 23 hours, the
//! fourth window of 6 hours has 5), while a `HOP` window keeps its length across it.
//!
//! # Limits
//!
//! A length or offset is at most 10,000 years, and a time is in at most [`WINDOWS_PER_ROW_MAX`] windows; both are checked at
//! planning. Times within 80,000 years of either end of the `i64` range are in no window, so that no bound ever overflows.

mod assign;
mod calendar;
mod exact;
mod lifecycle;
mod slice;
mod span;
#[cfg(test)]
mod tests;

pub use assign::{ExactGrid, WINDOWS_PER_ROW_MAX, WindowSpec};
pub use lifecycle::{Fate, expires_at, fate, is_closed, is_expired};
pub use slice::{Assigner, SliceRun};
pub use span::{Argument, Span, WindowError};

/// A window, half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// First instant in it, µs.
    pub start: i64,
    /// First instant after it, µs.
    pub end: i64,
}

impl Window {
    /// The window `[start, end)`.
    pub fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    /// Whether `ts` is in it: `start <= ts && ts < end`.
    pub fn contains(&self, ts: i64) -> bool {
        self.start <= ts && ts < self.end
    }

    /// Whether some instant is in both. Windows that only touch do not overlap.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The smallest non-overlapping piece that windows share: the unit of state. Half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slice {
    /// First instant in it, µs.
    pub start: i64,
    /// First instant after it, µs.
    pub end: i64,
}

impl Slice {
    /// Whether `ts` is in it: `start <= ts && ts < end`.
    pub fn contains(&self, ts: i64) -> bool {
        self.start <= ts && ts < self.end
    }
}

/// The kind of window and its lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Every time is in exactly one window.
    Tumble {
        /// Length of a window.
        size: Span,
    },
    /// Windows of `size` start every `slide`: they overlap if it is shorter than `size`, and leave gaps if it is longer.
    Hop {
        /// From one start to the next.
        slide: Span,
        /// Length of a window.
        size: Span,
    },
    /// Windows that share a start and grow by `step` up to `size`. If `step` does not divide `size`, the last grows by less.
    Cumulate {
        /// From one end to the next.
        step: Span,
        /// Length of the last window.
        size: Span,
    },
    /// Per key; a row opens `[ts, ts + gap)` and overlapping sessions merge. Sessions that only touch do not.
    Session {
        /// How long after a row its session ends, µs.
        gap_us: i64,
    },
}
