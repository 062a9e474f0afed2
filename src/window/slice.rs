//! Slices for a batch of times at once.

use std::ops::Range;

use super::{Slice, WindowSpec};

/// Consecutive rows of a batch that fall in one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceRun {
    /// The slice; `None` for rows in no window.
    pub slice: Option<Slice>,
    /// The rows, half-open.
    pub rows: Range<usize>,
}

/// Assigns times to slices and remembers the last one.
///
/// Streams are nearly sorted and slices long, so most rows lie in the slice of the row before: that is checked first,
/// which makes calendar windows as fast as exact ones.
#[derive(Debug, Clone)]
pub struct Assigner {
    spec: WindowSpec,
    /// Of the last time that was in a window; empty before.
    last: Slice,
}

impl Assigner {
    /// An assigner for the windows of `spec`.
    pub fn new(spec: WindowSpec) -> Self {
        Self { spec, last: Slice { start: 0, end: 0 } }
    }

    /// The windows it assigns to.
    pub fn spec(&self) -> &WindowSpec {
        &self.spec
    }

    /// As [`WindowSpec::slice_of`].
    #[inline]
    pub fn slice_of(&mut self, ts: i64) -> Option<Slice> {
        if self.last.contains(ts) {
            return Some(self.last);
        }
        let slice = self.spec.slice_of(ts)?;
        self.last = slice;
        Some(slice)
    }

    /// Appends runs that cover `times` in order to `runs`: each is as long as can be, so neighbours differ in slice.
    pub fn assign(&mut self, times: &[i64], runs: &mut Vec<SliceRun>) {
        let mut at = 0;
        while at < times.len() {
            let start = at;
            let slice = self.slice_of(times[at]);
            at += 1;
            match slice {
                Some(slice) => at += times[at..].iter().take_while(|&&ts| slice.contains(ts)).count(),
                None => {
                    while at < times.len() && self.slice_of(times[at]).is_none() {
                        at += 1;
                    }
                }
            }
            runs.push(SliceRun { slice, rows: start..at });
        }
    }
}
