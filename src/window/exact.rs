//! The grid of fixed lengths, which tiles time from `origin` in cells of one period.
//!
//! ```text
//!  TUMBLE 4        |───────|───────|        one cell is one window is one slice
//!
//!  HOP 4, 10       |───┬───|───┬───|───┬─   a cell starts where a window does; the second cut of a cell, at phase
//!                  ├───────────────────┤    size mod slide = 2, is where the window that began two cells before ends
//!
//!  CUMULATE 2, 6   |───┬───┬───|───┬───┬    a cell is the longest window; a slice is what one step adds
//! ```

use super::assign::ExactGrid;
use super::{Slice, Window};

/// Times on either side of which [`super::WindowSpec`] never asks are excluded by the caller, so that no sum here overflows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exact {
    origin: i64,
    period: i64,
    shape: Shape,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// Windows of `size` start with each cell. `cut` is the phase of their ends, 0 where they fall on starts.
    Hop { size: i64, cut: i64 },
    /// Windows start with each cell and end after each step, and with the cell.
    Cumulate { step: i64 },
}

impl Exact {
    /// A hop, or with `slide == size` a tumble. Lengths are positive.
    pub(super) fn hop(offset: i64, slide: i64, size: i64) -> Self {
        Self { origin: offset.rem_euclid(slide), period: slide, shape: Shape::Hop { size, cut: size % slide } }
    }

    /// A cumulate. `0 < step <= size`.
    pub(super) fn cumulate(offset: i64, step: i64, size: i64) -> Self {
        Self { origin: offset.rem_euclid(size), period: size, shape: Shape::Cumulate { step } }
    }

    /// What a batch plan needs to compute the same windows.
    pub(super) fn parameters(&self) -> ExactGrid {
        let (size_us, step_us) = match self.shape {
            Shape::Hop { size, .. } => (size, None),
            Shape::Cumulate { step } => (self.period, Some(step)),
        };
        ExactGrid { origin_us: self.origin, period_us: self.period, size_us, step_us }
    }

    /// Start of the cell that holds `ts`.
    #[inline]
    fn cell(&self, ts: i64) -> i64 {
        ts - (ts - self.origin).rem_euclid(self.period)
    }

    #[inline]
    pub(super) fn slice_of(&self, ts: i64) -> Option<Slice> {
        let phase = (ts - self.origin).rem_euclid(self.period);
        let start = ts - phase;
        match self.shape {
            Shape::Hop { cut: 0, .. } => Some(Slice { start, end: start + self.period }),
            Shape::Hop { cut, .. } if phase < cut => Some(Slice { start, end: start + cut }),
            Shape::Hop { size, .. } if size < self.period => None,
            Shape::Hop { cut, .. } => Some(Slice { start: start + cut, end: start + self.period }),
            Shape::Cumulate { step } => {
                let below = phase - phase % step;
                Some(Slice { start: start + below, end: start + (below + step).min(self.period) })
            }
        }
    }

    /// Windows that hold the whole slice, ascending by end.
    pub(super) fn windows_of_slice(&self, slice: Slice) -> Vec<Window> {
        match self.shape {
            Shape::Hop { size, .. } => {
                let last = self.cell(slice.start);
                let lowest = slice.end - size;
                if last < lowest {
                    return Vec::new();
                }
                let first = last - (last - lowest) / self.period * self.period;
                (0..=(last - first) / self.period)
                    .map(|i| first + i * self.period)
                    .map(|start| Window { start, end: start + size })
                    .collect()
            }
            Shape::Cumulate { .. } => {
                let start = self.cell(slice.start);
                let mut ends = vec![slice.end];
                while ends[ends.len() - 1] < start + self.period {
                    ends.push(self.next_end(ends[ends.len() - 1]));
                }
                ends.into_iter().map(|end| Window { start, end }).collect()
            }
        }
    }

    /// End of the last window that holds `ts`, which is in one.
    pub(super) fn last_end(&self, ts: i64) -> i64 {
        match self.shape {
            Shape::Hop { size, .. } => self.cell(ts) + size,
            Shape::Cumulate { .. } => self.cell(ts) + self.period,
        }
    }

    /// The smallest window end `> t`.
    pub(super) fn next_end(&self, t: i64) -> i64 {
        match self.shape {
            Shape::Hop { cut, .. } => self.cell(t - cut) + cut + self.period,
            Shape::Cumulate { step } => {
                let start = self.cell(t);
                let phase = t - start;
                start + (phase - phase % step + step).min(self.period)
            }
        }
    }

    /// The largest window end `<= t`.
    pub(super) fn prev_end(&self, t: i64) -> i64 {
        match self.shape {
            Shape::Hop { cut, .. } => self.cell(t - cut) + cut,
            Shape::Cumulate { step } => {
                let start = self.cell(t);
                start + (t - start) / step * step
            }
        }
    }

    /// The one window that ends at `end`, which is an end.
    pub(super) fn window_ending_at(&self, end: i64) -> Window {
        match self.shape {
            Shape::Hop { size, .. } => Window { start: end - size, end },
            Shape::Cumulate { .. } => Window { start: self.cell(end - 1), end },
        }
    }
}
