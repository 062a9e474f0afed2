//! When to look at a session again.
//!
//! Deadlines are kept in buckets of a fraction of the gap, so that setting one is a push and a watermark touches only
//! the buckets it passed. A session's end moves with nearly every row; its deadline is therefore a lower bound, and who
//! takes it out looks at the session and sets the next one.

use std::collections::BTreeMap;

/// Buckets per gap: few enough that the bucket the watermark stands in is short, many enough that it is found quickly.
const BUCKETS_PER_GAP: i64 = 32;

/// Session numbers by deadline.
#[derive(Debug)]
pub(super) struct Timers {
    bucket_us: i64,
    buckets: BTreeMap<i64, Vec<(i64, u32)>>,
}

impl Timers {
    /// Timers of sessions with this gap.
    pub(super) fn new(gap_us: i64) -> Self {
        Self { bucket_us: (gap_us / BUCKETS_PER_GAP).max(1), buckets: BTreeMap::new() }
    }

    /// `session` is to be looked at once the watermark is at `deadline` or above.
    pub(super) fn set(&mut self, deadline: i64, session: u32) {
        self.buckets.entry(deadline.div_euclid(self.bucket_us)).or_default().push((deadline, session));
    }

    /// Takes out every session whose deadline is at or below `w`.
    pub(super) fn take_due(&mut self, w: i64) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(mut bucket) = self.buckets.first_entry().filter(|b| *b.key() <= w.div_euclid(self.bucket_us)) {
            let entries = bucket.get_mut();
            due.extend(entries.extract_if(.., |(deadline, _)| *deadline <= w).map(|(_, session)| session));
            if !entries.is_empty() {
                break;
            }
            bucket.remove();
        }
        due
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.values().map(|bucket| bucket.capacity() * size_of::<(i64, u32)>() + 64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_inclusive_and_due_once() {
        let mut timers = Timers::new(100);
        for (deadline, session) in [(-5, 0), (10, 1), (11, 2), (500, 3), (i64::MAX, 4)] {
            timers.set(deadline, session);
        }
        assert_eq!(timers.take_due(-6), Vec::<u32>::new());
        assert_eq!(timers.take_due(10), vec![0, 1]);
        assert_eq!(timers.take_due(10), Vec::<u32>::new());
        assert_eq!(timers.take_due(i64::MAX), vec![2, 3, 4]);
        assert_eq!(timers.memory_bytes(), 0);
    }
}
