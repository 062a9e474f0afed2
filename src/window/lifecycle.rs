//! When a window is closed, late or expired (T4). The one place that knows the equalities.
//!
//! ```text
//!            end              end + L
//!  ───────────┼──────────────────┼───────────►  W
//!   on time   │ late, if L > 0   │  expired
//!   W < end   │ W <= end + L     │  W > end + L   (L = 0: W >= end)
//! ```

/// Fate of a (row, window) pair (T4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// `W < end`
    OnTime,
    /// `end <= W <= end + L`, `L > 0`
    Late,
    /// otherwise
    Expired,
}

/// Fate of a pair whose window ends at `end`, judged at watermark `w` with allowed lateness `l_us`.
///
/// Apache Flink and Kafka Streams refuse at `W = end + L`; here it is still late.
#[inline]
pub fn fate(end: i64, w: i64, l_us: i64) -> Fate {
    if w < end {
        Fate::OnTime
    } else if l_us > 0 && w <= end.saturating_add(l_us) {
        Fate::Late
    } else {
        Fate::Expired
    }
}

/// Whether the window that ends at `end` has closed at watermark `w`: its initial value is due.
#[inline]
pub fn is_closed(end: i64, w: i64) -> bool {
    end <= w
}

/// Whether the state of the window that ends at `end` can go at watermark `w`: no row can be on time or late in it.
#[inline]
pub fn is_expired(end: i64, w: i64, l_us: i64) -> bool {
    fate(end, w, l_us) == Fate::Expired
}

/// The smallest watermark at which the window that ends at `end` is expired: the first instant after `end + L`, or `end`
/// itself without lateness.
#[inline]
pub fn expires_at(end: i64, l_us: i64) -> i64 {
    if l_us > 0 { end.saturating_add(l_us).saturating_add(1) } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::{END, NONE};

    const S: i64 = 1_000_000;

    #[test]
    fn c44_the_two_equalities() {
        let end = 60 * S;
        assert_eq!(fate(end, end - 1, 15 * S), Fate::OnTime);
        assert_eq!(fate(end, end, 15 * S), Fate::Late);
        assert_eq!(fate(end, 75 * S, 15 * S), Fate::Late);
        assert_eq!(fate(end, 75 * S + 1, 15 * S), Fate::Expired);
        assert_eq!(fate(end, end, 0), Fate::Expired);
        assert_eq!(fate(end, end - 1, 0), Fate::OnTime);
    }

    #[test]
    fn c45_final_waits_for_lateness() {
        let (end, l) = (60 * S, 15 * S);
        assert!(is_closed(end, 61 * S) && !is_expired(end, 61 * S, l));
        assert!(!is_expired(end, 75 * S, l));
        assert!(is_expired(end, 76 * S, l));
    }

    #[test]
    fn nothing_is_closed_before_the_first_row_and_everything_expires_at_the_end() {
        for end in [NONE + 1, -1, 0, i64::MAX - 1] {
            assert_eq!(fate(end, NONE, 0), Fate::OnTime);
            assert!(is_closed(end, END));
        }
        assert!(is_expired(60 * S, END, 15 * S));
    }

    #[test]
    fn a_window_expires_at_the_first_watermark_past_its_lateness() {
        for l in [0, 1, 15 * S] {
            let first = expires_at(60 * S, l);
            assert!(!is_expired(60 * S, first - 1, l) && is_expired(60 * S, first, l), "l={l}");
        }
    }
}
