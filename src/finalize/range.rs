//! Which windows a run takes: those that end in a range and are live no more.

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::error::{Error, Result};
use crate::operators::graph::Policy;
use crate::operators::lifecycle::{closes_at, expires_at};
use crate::sql::statement::{Interval, OnLate, RunRange, Spanned};
use crate::time::{DAY_US, format_us, parse_time};
use crate::window::WindowSpec;

/// Windows that end after `after` and not after `to`, µs. Consecutive ranges meet every window once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Exclusive.
    pub after: i64,
    /// Inclusive.
    pub to: i64,
}

impl Ends {
    /// Every window there is.
    pub const ALL: Self = Self { after: i64::MIN, to: i64::MAX };

    /// What a statement says, at `now_us`; days are those of `zone`.
    ///
    /// # Errors
    ///
    /// `Invalid` for a time or date that cannot be read, or a range that ends before it begins.
    pub fn resolve(range: Option<&Spanned<RunRange>>, zone: &TimeZone, now_us: i64) -> Result<Self> {
        let Some(range) = range else { return Ok(Self { to: now_us, ..Self::ALL }) };
        let ends = match &range.node {
            RunRange::Between { from, to } => {
                let to = to.as_ref().map(|to| instant(to, zone)).transpose()?;
                Self { after: instant(from, zone)?, to: to.unwrap_or(now_us) }
            }
            RunRange::Date(text) => day(text, zone)?,
            RunRange::Lookback(interval) => Self { after: before(now_us, interval, zone)?, to: now_us },
        };
        if ends.to < ends.after {
            let (from, to) = (format_us(ends.after), format_us(ends.to));
            return Err(
                Error::invalid(format!("the range ends before it begins: from=`{from}` to=`{to}`")).at(range.position)
            );
        }
        Ok(ends)
    }

    /// Whether no window can end in it.
    pub fn is_empty(&self) -> bool {
        self.to <= self.after
    }

    /// Whether a window that ends at `end` is meant.
    pub fn contains(&self, end: i64) -> bool {
        self.after < end && end <= self.to
    }

    /// The part not after `last`.
    #[must_use]
    pub fn up_to(self, last: i64) -> Self {
        Self { to: self.to.min(last), ..self }
    }

    /// Refuses a range in which no window of `spec` ends, naming the ends around it. A session may end at any time.
    ///
    /// # Errors
    ///
    /// `Invalid` with the nearest end.
    pub fn check(&self, spec: &WindowSpec) -> Result<()> {
        if spec.is_session() || self.is_empty() || spec.next_end(self.after).is_some_and(|end| end <= self.to) {
            return Ok(());
        }
        let (from, to) = (format_us(self.after), format_us(self.to));
        let nearest = spec.nearest_end(self.to).map_or_else(|| "none".to_owned(), format_us);
        Err(Error::invalid(format!("no window ends in the range: after=`{from}` to=`{to}` nearest_end=`{nearest}`"))
            .with_hint("a range takes the windows whose end lies in it; the end belongs to it, the start does not"))
    }

    /// The range cut into pieces, ascending, each with at most `ends_max` of `known`, the ends of the windows that are known
    /// in it, ascending.
    pub fn pieces(&self, known: impl IntoIterator<Item = i64>, ends_max: usize) -> Vec<Self> {
        let (mut pieces, mut after, mut count) = (Vec::new(), self.after, 0);
        for end in known.into_iter().filter(|end| self.contains(*end) && *end < self.to) {
            // Another of an end that the piece before holds already.
            if end <= after {
                continue;
            }
            count += 1;
            if count >= ends_max {
                pieces.push(Self { after, to: end });
                (after, count) = (end, 0);
            }
        }
        if after < self.to {
            pieces.push(Self { after, to: self.to });
        }
        pieces
    }
}

fn instant(text: &Spanned<String>, zone: &TimeZone) -> Result<i64> {
    parse_time(&text.node, zone).map_err(|e| Error::invalid(e.to_string()).at(text.position))
}

fn day(text: &Spanned<String>, zone: &TimeZone) -> Result<Ends> {
    let wrong = |e: jiff::Error| {
        Error::invalid(format!("not a date: `{}`", text.node))
            .at(text.position)
            .with_hint("write FOR DATE '2024-01-15'")
            .with_source(e)
    };
    let date: Date = text.node.trim().parse().map_err(wrong)?;
    let midnight = |date: Date| {
        let at = zone.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())).map_err(wrong)?;
        Ok::<_, Error>(at.as_microsecond())
    };
    Ok(Ends { after: midnight(date)?, to: midnight(date.tomorrow().map_err(wrong)?)? })
}

/// `now_us - interval`, months and days as the calendar of `zone` has them.
fn before(now_us: i64, interval: &Interval, zone: &TimeZone) -> Result<i64> {
    let too_far = || Error::invalid(format!("LOOKBACK reaches too far: `{interval}`"));
    let exact = now_us.checked_sub(interval.micros).ok_or_else(too_far)?;
    if interval.months == 0 && *zone == TimeZone::UTC {
        return interval.days.checked_mul(DAY_US).and_then(|us| exact.checked_sub(us)).ok_or_else(too_far);
    }
    let at = zone.to_datetime(jiff::Timestamp::from_microsecond(exact).map_err(|_| too_far())?);
    let span = interval.months.months().days(interval.days);
    let earlier = at.checked_sub(span).and_then(|at| zone.to_timestamp(at));
    earlier.map(|at| at.as_microsecond()).map_err(|_| too_far())
}

/// The smallest W at which nothing but a batch run publishes a window that ends at `end` (design: one owner): its close, or
/// where late rows are folded in, or nothing is published before, its expiry.
pub fn settles_at(policy: &Policy, end: i64) -> i64 {
    match policy.on_late {
        OnLate::Update { .. } => expires_at(policy, end),
        OnLate::Drop | OnLate::SideOutput | OnLate::Recompute { .. } => closes_at(policy, end),
    }
}

/// The last end of windows that have settled at W = `w`.
pub fn last_settled_end(policy: &Policy, w: i64) -> i64 {
    if w == crate::watermark::END {
        return i64::MAX;
    }
    w.saturating_sub(settles_at(policy, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Position;
    use crate::sql::statement::{Emit, OnExpired};
    use crate::window::{Span, WindowKind};

    const HOUR: i64 = 3_600_000_000;

    fn spanned<T>(node: T) -> Spanned<T> {
        Spanned { node, position: Position { line: 1, column: 1 } }
    }

    fn hourly() -> WindowSpec {
        WindowSpec::try_new(WindowKind::Tumble { size: Span::Micros(HOUR) }, Span::ZERO, None).unwrap()
    }

    #[test]
    fn a_date_is_the_local_day_whatever_its_length() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let day = |date: &str| {
            let range = spanned(RunRange::Date(spanned(date.to_owned())));
            let ends = Ends::resolve(Some(&range), &zone, 0).unwrap();
            (ends.to - ends.after) / HOUR
        };
        assert_eq!([day("2024-03-31"), day("2024-06-01"), day("2024-10-27")], [23, 24, 25]);
    }

    #[test]
    fn a_range_without_a_window_end_names_the_nearest() {
        let error = Ends { after: HOUR, to: HOUR + 10 }.check(&hourly()).unwrap_err();
        assert!(error.message().contains("nearest_end=`1970-01-01T01:00:00Z`"), "{error}");
        assert!(Ends { after: HOUR, to: HOUR }.check(&hourly()).is_ok(), "from = to is no work");
        assert!(Ends { after: HOUR - 1, to: HOUR }.check(&hourly()).is_ok());
    }

    #[test]
    fn pieces_meet_every_end_once() {
        let ends = Ends { after: 0, to: 10 };
        let pieces = ends.pieces(-2..=12, 4);
        assert_eq!(pieces.iter().map(|p| (p.after, p.to)).collect::<Vec<_>>(), [(0, 4), (4, 8), (8, 10)]);
        assert_eq!(Ends { after: 5, to: 5 }.pieces([5], 4), []);
        assert_eq!(Ends::ALL.pieces([1, 1, 1, 2], 2), [Ends { to: 1, ..Ends::ALL }, Ends { after: 1, ..Ends::ALL }]);
    }

    #[test]
    fn a_window_settles_when_its_job_publishes_it_no_more() {
        let policy =
            |on_late, emit| Policy { allowed_lateness_us: 15, on_late, on_expired: OnExpired::SideOutput, emit };
        let update = OnLate::Update { max_updates: None };
        for (policy, settled, not_yet) in [
            (policy(update, Emit::OnWindowClose), 84, 85),
            (policy(OnLate::SideOutput, Emit::OnWindowClose), 100, 101),
            (policy(OnLate::SideOutput, Emit::OnExpiry), 84, 85),
        ] {
            assert_eq!(last_settled_end(&policy, 100), settled);
            assert!(settles_at(&policy, settled) <= 100 && settles_at(&policy, not_yet) > 100);
        }
    }

    #[test]
    fn look_back_ends_now() {
        let range = spanned(RunRange::Lookback(Interval { months: 0, days: 1, micros: HOUR }));
        let ends = Ends::resolve(Some(&range), &TimeZone::UTC, 100 * HOUR).unwrap();
        assert_eq!((ends.after, ends.to), (75 * HOUR, 100 * HOUR));
    }
}
