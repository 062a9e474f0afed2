//! The sessions of one key: which a row joins, what that makes of them, and what is left when they expire.
//!
//! A row at `ts` opens `[ts, ts + gap)`. It joins every session it overlaps; sessions that only touch stay apart, since
//! with `W` between the two rows the first is closed, and the outcome must not depend on where `W` was. A row that joins
//! two makes them one:
//!
//! ```text
//!  gap 10           [0 ────── 10)     [15 ───── 25)
//!  row at 8                 [8 ────── 18)
//!  afterwards       [0 ──────────────────────── 25)      both old sessions are superseded
//! ```
//!
//! # Fate (T4)
//!
//! The window a row is judged by is its session after merging. In the order of this table:
//!
//! | the row joins | fate |
//! | --- | --- |
//! | an expired session | expired, and nothing changes |
//! | no session | that of `[ts, ts + gap)` alone |
//! | a session that has closed | late, even if the merged one is open again |
//! | open sessions only | on time, even if its own interval is behind `W` |
//!
//! An expired session leaves its bounds behind, so that a row cannot join an open session through it, or start over
//! where it was. They go once no such row can come, which [`Sessions::expire`] sees to; keeping them longer would
//! change no fate.

use std::ops::Range;

use super::Window;
use super::lifecycle::{Fate, fate, is_closed, is_expired};

/// Sessions of one key with a value each, ascending and without overlaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions<T> {
    /// The value is gone where the session has expired.
    entries: Vec<(Window, Option<T>)>,
}

/// What a row would do to the sessions of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Fate of the row.
    pub fate: Fate,
    /// If the row is accepted, the session it is in afterwards; if it is expired, the bounds that refuse it together with
    /// its own interval.
    pub window: Window,
    /// Places of the sessions that become part of it.
    absorbs: Range<usize>,
}

impl Joined {
    /// How many sessions become part of the row's: none for a new session, two or more if it bridges.
    pub fn absorbed(&self) -> usize {
        self.absorbs.len()
    }
}

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> Sessions<T> {
    /// Sessions that were taken apart by [`Sessions::entries`], in the same order.
    pub fn from_entries(entries: Vec<(Window, Option<T>)>) -> Self {
        Self { entries }
    }

    /// Every session ascending, those of which only the bounds are left without a value.
    pub fn entries(&self) -> &[(Window, Option<T>)] {
        &self.entries
    }

    /// The sessions that have a value, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Window, &T)> {
        self.entries.iter().filter_map(|(window, value)| value.as_ref().map(|v| (*window, v)))
    }

    /// As [`Sessions::iter`], with values that can be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Window, &mut T)> {
        self.entries.iter_mut().filter_map(|(window, value)| value.as_mut().map(|v| (*window, v)))
    }

    /// Whether nothing is left, not even bounds: the key can be forgotten.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What a row with the interval `own`, `[ts, ts + gap)`, would do at watermark `w` with allowed lateness `l_us`. Also for
    /// the interval of several rows that are known to be on time.
    pub fn judge(&self, own: Window, w: i64, l_us: i64) -> Joined {
        let absorbs = self.overlapping(own);
        let joins = &self.entries[absorbs.clone()];
        let expired = |entry: &&(Window, Option<T>)| entry.1.is_none() || is_expired(entry.0.end, w, l_us);
        let union = |window: Window, entry: &(Window, Option<T>)| Window {
            start: window.start.min(entry.0.start),
            end: window.end.max(entry.0.end),
        };
        if joins.iter().any(|entry| expired(&entry)) {
            return Joined {
                fate: Fate::Expired,
                window: joins.iter().filter(expired).fold(own, union),
                absorbs: 0..0,
            };
        }
        let fate = match joins {
            [] => fate(own.end, w, l_us),
            _ if joins.iter().any(|(window, _)| is_closed(window.end, w)) => Fate::Late,
            _ => Fate::OnTime,
        };
        Joined { fate, window: joins.iter().fold(own, union), absorbs }
    }

    /// Takes in the row that `joined` was judged for, if the caller's policy accepts it. `merge` gets the sessions that
    /// become part of the row's, ascending, and makes its value. Nothing may have changed since [`Sessions::judge`].
    ///
    /// # Panics
    ///
    /// If `joined` is expired.
    pub fn join(&mut self, joined: Joined, merge: impl FnOnce(Vec<(Window, T)>) -> T) -> Window {
        assert!(joined.fate != Fate::Expired, "an expired row joins nothing");
        let at = if joined.absorbs.is_empty() { self.overlapping(joined.window).start } else { joined.absorbs.start };
        let absorbed = self.entries.drain(at..at + joined.absorbs.len());
        let absorbed = absorbed.filter_map(|(window, value)| value.map(|v| (window, v))).collect();
        self.entries.insert(at, (joined.window, Some(merge(absorbed))));
        joined.window
    }

    /// Takes out the sessions that are expired at watermark `w`, ascending, and forgets bounds that no row can reach any more.
    pub fn expire(&mut self, w: i64, l_us: i64, gap_us: i64) -> Vec<(Window, T)> {
        let mut gone = Vec::new();
        for (window, value) in &mut self.entries {
            if !is_expired(window.end, w, l_us) {
                break;
            }
            gone.extend(value.take().map(|v| (*window, v)));
        }
        let mut next_start = None;
        for at in (0..self.entries.len()).rev() {
            let (window, value) = &self.entries[at];
            if value.is_some() {
                next_start = Some(window.start);
            } else if !needs_bounds(*window, next_start, w, l_us, gap_us) {
                self.entries.remove(at);
            }
        }
        gone
    }

    /// Places of the sessions that overlap `window`; empty, at the place where it belongs, if none does.
    fn overlapping(&self, window: Window) -> Range<usize> {
        let start = self.entries.partition_point(|(session, _)| session.end <= window.start);
        let end = start + self.entries[start..].partition_point(|(session, _)| session.start < window.end);
        start..end
    }
}

/// Whether a row that overlaps the bounds of an expired session could be accepted if they were forgotten: on its own, or
/// through a session next to them, which starts at `next_start` or may yet be opened by a row that is not expired.
fn needs_bounds(bounds: Window, next_start: Option<i64>, w: i64, l_us: i64, gap_us: i64) -> bool {
    // A row in reach is before bounds.end, so what it overlaps starts before bounds.end + gap, and a row that opens a
    // session there has an interval that ends before bounds.end + 2 gap.
    let reach = bounds.end.saturating_add(gap_us);
    next_start.is_some_and(|start| start < reach) || !is_expired(reach.saturating_add(gap_us), w, l_us)
}

/// Cuts ascending times into sessions of their own: each interval, and the times in it. Touching intervals stay apart.
pub fn sessionize(times: &[i64], gap_us: i64) -> impl Iterator<Item = (Window, Range<usize>)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at;
        let start = *times.get(from)?;
        at += 1;
        while at < times.len() && times[at] < times[at - 1].saturating_add(gap_us) {
            at += 1;
        }
        Some((Window { start, end: times[at - 1].saturating_add(gap_us) }, from..at))
    })
}
