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
//! An expired session leaves its bounds behind, so that no row joins an open session through it. They are forgotten when
//! no session after them is open or late, and `W` is so far on that a row could neither start over in their place nor open a
//! session next to them. Whether they are is decided by the rows of the key and their `W` alone, never by when
//! [`Sessions::expire`] happens to be called (T5).

use std::ops::Range;

use super::Window;
use super::lifecycle::{Fate, fate, is_closed, is_expired};

/// The settings all sessions of a view share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTerms {
    /// How long after a row its session ends, µs.
    pub gap_us: i64,
    /// Allowed lateness L, µs.
    pub allowed_lateness_us: i64,
}

impl SessionTerms {
    /// The interval a row at `ts` opens.
    pub fn own(&self, ts: i64) -> Window {
        Window { start: ts, end: ts.saturating_add(self.gap_us) }
    }

    fn is_expired(&self, end: i64, w: i64) -> bool {
        is_expired(end, w, self.allowed_lateness_us)
    }
}

/// A session, and its value unless it has expired.
type Entry<T> = (Window, Option<T>);

/// Sessions of one key with a value each, ascending and without overlaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions<T> {
    entries: Vec<Entry<T>>,
}

/// What a row would do to the sessions of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Fate of the row.
    pub fate: Fate,
    /// If the row is accepted, the session it is in afterwards; if it is expired, the bounds that refuse it together with
    /// its own interval.
    pub window: Window,
    /// How many sessions become part of the row's: none for a new session, two or more if it bridges.
    pub absorbs: usize,
    /// The watermark it was judged at.
    w: i64,
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

    /// What a row with the interval `own`, from [`SessionTerms::own`], would do at watermark `w`. Also for the interval of several
    /// rows that are known to be on time.
    pub fn judge(&self, terms: SessionTerms, own: Window, w: i64) -> Joined {
        let found = self.overlapping(own);
        let joins = &self.entries[found.clone()];
        let union = |window: Window, (session, _): &Entry<T>| Window {
            start: window.start.min(session.start),
            end: window.end.max(session.end),
        };
        if found.clone().any(|at| self.is_gone(terms, at, w)) {
            let refusing = found.filter(|&at| self.is_gone(terms, at, w) && self.needs_bounds(terms, at, w));
            let window = refusing.map(|at| &self.entries[at]).fold(own, union);
            return Joined { fate: Fate::Expired, window, absorbs: 0, w };
        }
        let fate = match joins {
            [] => fate(own.end, w, terms.allowed_lateness_us),
            _ if joins.iter().any(|(session, _)| is_closed(session.end, w)) => Fate::Late,
            _ => Fate::OnTime,
        };
        Joined { fate, window: joins.iter().fold(own, union), absorbs: joins.len(), w }
    }

    /// Takes in the row that `joined` was judged for, if the caller's policy accepts it. `merge` gets the sessions that
    /// become part of the row's, ascending, and makes its value. Nothing may have been joined since [`Sessions::judge`]. Sessions
    /// expired by then are added to `expired`, as by [`Sessions::expire`].
    ///
    /// # Panics
    ///
    /// If `joined` is expired.
    pub fn join(
        &mut self,
        terms: SessionTerms,
        joined: Joined,
        expired: &mut Vec<(Window, T)>,
        merge: impl FnOnce(Vec<(Window, T)>) -> T,
    ) {
        assert!(joined.fate != Fate::Expired, "an expired row joins nothing");
        // Before the new session is there, so that it does not keep bounds that nothing needed.
        self.expire(terms, joined.w, expired);
        let found = self.overlapping(joined.window);
        let at = found.start;
        let absorbed = self.entries.drain(found).filter_map(|(window, value)| value.map(|v| (window, v))).collect();
        self.entries.insert(at, (joined.window, Some(merge(absorbed))));
    }

    /// Takes out the sessions that are expired at watermark `w` and adds them to `expired`, ascending. Forgets bounds that
    /// nothing needs.
    pub fn expire(&mut self, terms: SessionTerms, w: i64, expired: &mut Vec<(Window, T)>) {
        // Ends ascend, so if the first is not expired none is.
        for (window, value) in &mut self.entries {
            if !terms.is_expired(window.end, w) {
                break;
            }
            expired.extend(value.take().map(|v| (*window, v)));
        }
        for at in (0..self.entries.len()).rev() {
            if self.is_gone(terms, at, w) && !self.needs_bounds(terms, at, w) {
                self.entries.remove(at);
            }
        }
    }

    /// Whether session number `at` is expired at watermark `w`.
    fn is_gone(&self, terms: SessionTerms, at: usize, w: i64) -> bool {
        let (window, value) = &self.entries[at];
        value.is_none() || terms.is_expired(window.end, w)
    }

    /// Whether a row could be accepted at `w` or later if the bounds of the expired session number `at` were forgotten: by
    /// joining the one after it, or a new one.
    fn needs_bounds(&self, terms: SessionTerms, at: usize, w: i64) -> bool {
        // A row that overlaps the bounds begins before their end, so what else it overlaps begins less than a gap after
        // it, and a row that opens a session there has an interval that ends less than two gaps after it.
        let reach = self.entries[at].0.end.saturating_add(terms.gap_us.saturating_mul(2));
        let next = at + 1;
        !terms.is_expired(reach, w) || next < self.entries.len() && !self.is_gone(terms, next, w)
    }

    /// Places of the sessions that overlap `window`; empty, at the place where it belongs, if none does.
    fn overlapping(&self, window: Window) -> Range<usize> {
        let start = self.entries.partition_point(|(session, _)| session.end <= window.start);
        let end = start + self.entries[start..].partition_point(|(session, _)| session.start < window.end);
        start..end
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::watermark::NONE;

    const fn terms(gap_us: i64, allowed_lateness_us: i64) -> SessionTerms {
        SessionTerms { gap_us, allowed_lateness_us }
    }

    /// Judges a row and takes it in unless it is expired. Values count rows.
    fn row(
        sessions: &mut Sessions<u64>,
        terms: SessionTerms,
        ts: i64,
        w: i64,
        gone: &mut Vec<(Window, u64)>,
    ) -> Joined {
        let joined = sessions.judge(terms, terms.own(ts), w);
        if joined.fate != Fate::Expired {
            sessions.join(terms, joined, gone, |absorbed| 1 + absorbed.into_iter().map(|(_, n)| n).sum::<u64>());
        }
        joined
    }

    /// Feeds `(ts, w)` in order.
    fn feed(rows: &[(i64, i64)], gap: i64, l: i64) -> (Sessions<u64>, Vec<Fate>) {
        let mut sessions = Sessions::default();
        let fates =
            rows.iter().map(|&(ts, w)| row(&mut sessions, terms(gap, l), ts, w, &mut Vec::new()).fate).collect();
        (sessions, fates)
    }

    fn expire(sessions: &mut Sessions<u64>, terms: SessionTerms, w: i64) -> Vec<(Window, u64)> {
        let mut gone = Vec::new();
        sessions.expire(terms, w, &mut gone);
        gone
    }

    fn list(sessions: &Sessions<u64>) -> Vec<(i64, i64, u64)> {
        sessions.iter().map(|(window, n)| (window.start, window.end, *n)).collect()
    }

    #[test]
    fn c17_bridging_row() {
        let (two, _) = feed(&[(0, NONE), (15, -20)], 10, 0);
        assert_eq!(list(&two), [(0, 10, 1), (15, 25, 1)]);
        let joined = two.judge(terms(10, 0), Window::new(8, 18), -5);
        assert_eq!((joined.window, joined.absorbs), (Window::new(0, 25), 2));
        let (one, _) = feed(&[(0, NONE), (15, -20), (8, -5)], 10, 0);
        assert_eq!(list(&one), [(0, 25, 3)]);
    }

    #[test]
    fn c18_start_moves_back() {
        let (sessions, _) = feed(&[(20, NONE), (14, 0)], 10, 0);
        assert_eq!(list(&sessions), [(14, 30, 2)]);
    }

    #[test]
    fn c19_distance_exactly_equal_to_the_gap() {
        let (sessions, _) = feed(&[(0, NONE), (10, 0)], 10, 0);
        assert_eq!(list(&sessions), [(0, 10, 1), (10, 20, 1)]);
        let (reversed, _) = feed(&[(10, NONE), (0, 0)], 10, 0);
        assert_eq!(list(&reversed), [(0, 10, 1), (10, 20, 1)]);
    }

    #[test]
    fn c21_row_behind_w_with_no_neighbour() {
        let (sessions, fates) = feed(&[(3, 6)], 5, 0);
        assert_eq!(fates, [Fate::OnTime]);
        assert_eq!(list(&sessions), [(3, 8, 1)]);
    }

    #[test]
    fn a_row_that_extends_backwards_bridges_to_the_session_it_reaches() {
        // A published engine made [0.1 s, 9.5 s) of this, beside [8 s, 13 s).
        let (sessions, _) = feed(&[(100, NONE), (8_000, 0), (4_500, 0)], 5_000, 0);
        assert_eq!(list(&sessions), [(100, 13_000, 3)]);
    }

    #[test]
    fn a_row_behind_w_that_joins_an_open_session_is_on_time() {
        let rows = [(0, NONE), (9, 0), (18, 9), (1, 20)];
        let (sessions, fates) = feed(&rows, 10, 0);
        assert_eq!(fates, [Fate::OnTime; 4]);
        assert_eq!(list(&sessions), [(0, 28, 4)]);
    }

    #[test]
    fn a_closed_session_follows_on_late_even_if_it_opens_again() {
        let (sessions, fates) = feed(&[(0, NONE), (9, 12)], 10, 5);
        assert_eq!(fates, [Fate::OnTime, Fate::Late]);
        assert_eq!(list(&sessions), [(0, 19, 2)]);
    }

    #[test]
    fn an_expired_session_refuses_what_would_join_it_and_leaves_no_more_than_bounds() {
        let terms = terms(10, 0);
        let (mut sessions, _) = feed(&[(0, NONE), (12, 5)], 10, 0);
        assert_eq!(expire(&mut sessions, terms, 10), [(Window::new(0, 10), 1)]);
        // 5 reaches the open session only through the expired one.
        let joined = sessions.judge(terms, Window::new(5, 15), 10);
        assert_eq!((joined.fate, joined.window), (Fate::Expired, Window::new(0, 15)));
        // 10 does not overlap it.
        assert_eq!(sessions.judge(terms, Window::new(10, 20), 10).fate, Fate::OnTime);
        assert_eq!(sessions.entries().len(), 2);
        assert_eq!(expire(&mut sessions, terms, 1_000), [(Window::new(12, 22), 1)]);
        assert!(sessions.is_empty());
    }

    #[test]
    fn bounds_stay_as_long_as_a_session_that_can_grow_toward_them() {
        // [12, 22) grows backwards row by row, each in time because the session is open, until one meets [0, 10).
        let rows = [(0, NONE), (40, 5), (31, 35), (22, 35), (13, 35), (4, 35)];
        let (_, fates) = feed(&rows, 10, 0);
        assert_eq!(fates[1..], [Fate::OnTime, Fate::OnTime, Fate::OnTime, Fate::OnTime, Fate::Expired]);
    }

    #[test]
    fn c96_no_leak_per_key() {
        let terms = terms(10, 7);
        let (mut sessions, _) = feed(&[(0, NONE)], 10, 7);
        assert_eq!(expire(&mut sessions, terms, 17).len(), 0);
        assert_eq!(expire(&mut sessions, terms, 18).len(), 1);
        assert!(!sessions.is_empty());
        expire(&mut sessions, terms, 100);
        assert!(sessions.is_empty());
    }

    #[test]
    fn sorted_times_fall_into_sessions() {
        let got: Vec<_> = sessionize(&[0, 1, 9, 19, 20, 30], 10).collect();
        assert_eq!(got, [(Window::new(0, 19), 0..3), (Window::new(19, 30), 3..5), (Window::new(30, 40), 5..6)]);
        assert_eq!(sessionize(&[], 10).count(), 0);
        assert_eq!(sessionize(&[i64::MAX], 10).count(), 1);
    }

    /// All sessions that a row could meet, judged by looking at each of them. Before a row it forgets, as the table above
    /// says, the expired ones that lie before no other and more than two gaps behind.
    #[derive(Default)]
    struct Oracle {
        sessions: Vec<(Window, u64)>,
        forgotten: Vec<(Window, u64)>,
    }

    impl Oracle {
        fn row(&mut self, ts: i64, gap: i64, w: i64, l: i64) -> Fate {
            let expired = |end: i64| if l == 0 { end <= w } else { end + l < w };
            let own = Window::new(ts, ts + gap);
            let joins: Vec<_> =
                self.sessions.iter().copied().filter(|(s, _)| s.start < own.end && own.start < s.end).collect();
            let fate = if joins.iter().any(|(s, _)| expired(s.end)) || joins.is_empty() && expired(own.end) {
                return Fate::Expired;
            } else if joins.iter().any(|(s, _)| s.end <= w) || joins.is_empty() && own.end <= w {
                Fate::Late
            } else {
                Fate::OnTime
            };
            let alive: Vec<_> = self.sessions.iter().filter(|(s, _)| !expired(s.end)).map(|(s, _)| s.start).collect();
            let all = std::mem::take(&mut self.sessions);
            for session in all.into_iter().filter(|session| !joins.contains(session)) {
                let end = session.0.end;
                match expired(end + 2 * gap) && alive.iter().all(|&start| start < end) {
                    true => self.forgotten.push(session),
                    false => self.sessions.push(session),
                }
            }
            let start = joins.iter().map(|(s, _)| s.start).min().unwrap_or(ts).min(ts);
            let end = joins.iter().map(|(s, _)| s.end).max().unwrap_or(own.end).max(own.end);
            self.sessions.push((Window::new(start, end), 1 + joins.iter().map(|(_, n)| n).sum::<u64>()));
            fate
        }
    }

    proptest! {
        #[test]
        fn when_sessions_are_expired_changes_nothing(
            steps in prop::collection::vec((0i64..60, 0i64..8, any::<bool>()), 1..60), gap in 1i64..12, l in 0i64..15,
        ) {
            let terms = terms(gap, l);
            let (mut eager, mut lazy, mut oracle, mut w) = (Sessions::default(), Sessions::default(), Oracle::default(), -20);
            let (mut gone_eager, mut gone_lazy) = (Vec::new(), Vec::new());
            for (ts, advance, expires) in steps {
                let joined = row(&mut eager, terms, ts, w, &mut gone_eager);
                prop_assert_eq!(joined, row(&mut lazy, terms, ts, w, &mut gone_lazy));
                prop_assert_eq!(joined.fate, oracle.row(ts, gap, w, l), "ts={} w={}", ts, w);
                w += advance;
                gone_eager.extend(expire(&mut eager, terms, w));
                if expires {
                    gone_lazy.extend(expire(&mut lazy, terms, w));
                }
            }
            for (gone, sessions) in [(&mut gone_eager, &mut eager), (&mut gone_lazy, &mut lazy)] {
                gone.extend(expire(sessions, terms, crate::watermark::END));
                prop_assert!(sessions.is_empty());
                gone.sort();
            }
            oracle.sessions.append(&mut oracle.forgotten);
            oracle.sessions.sort();
            prop_assert_eq!(&gone_eager, &oracle.sessions);
            prop_assert_eq!(gone_eager, gone_lazy);
        }

        #[test]
        fn order_does_not_matter_while_nothing_closes(mut times in prop::collection::vec(0i64..200, 1..60), gap in 1i64..12) {
            let rows: Vec<_> = times.iter().map(|&ts| (ts, NONE)).collect();
            let (sessions, _) = feed(&rows, gap, 0);
            times.sort();
            let sorted: Vec<_> = sessionize(&times, gap).map(|(w, rows)| (w.start, w.end, rows.len() as u64)).collect();
            prop_assert_eq!(list(&sessions), sorted);
        }
    }
}
