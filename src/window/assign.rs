//! A declared window, checked at planning, and every question about its windows and slices.

use std::fmt;

use jiff::tz::TimeZone;

use super::calendar::{Calendar, Length, Shift};
use super::exact::Exact;
use super::span::{Argument, Span, WindowError};
use super::{Slice, Window, WindowKind};
use crate::time::{DAY_US, to_local, zone_name};

/// Most windows one row may be in.
pub const WINDOWS_PER_ROW_MAX: i64 = 1_000_000;

/// Longest length, µs: 10,000 years of 366 days.
const LENGTH_MAX_US: i64 = 10_000 * 366 * DAY_US;

/// How far beyond the times asked about bounds of windows can lie, µs. Covers two lengths, and whole cells around them.
const REACH_US: i64 = 4 * LENGTH_MAX_US;

/// A declared window: kind, offset, zone.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSpec {
    kind: WindowKind,
    offset: Span,
    zone: Option<TimeZone>,
    grid: Grid,
}

/// What the declaration comes to.
#[derive(Debug, Clone, PartialEq)]
enum Grid {
    Exact(Exact),
    Calendar(Box<Calendar>),
    /// Sessions depend on rows, not on a grid.
    None,
}

impl WindowSpec {
    /// A window of `kind`, its grid shifted by `offset`, in `zone` if one is given. See the [module](super) for what zones do.
    ///
    /// Offsets of days and months shift what is counted (a year from April: 3 months; a week from Sunday: 6 days), exact
    /// offsets of calendar windows set the local time of day of their boundaries. Offsets may be negative, or longer than
    /// the size.
    ///
    /// # Errors
    ///
    /// [`WindowError`], naming the argument: lengths that are not positive, too long, or do not fit together.
    pub fn try_new(kind: WindowKind, offset: Span, zone: Option<TimeZone>) -> Result<Self, WindowError> {
        check_lengths(kind, offset)?;
        let grid = match kind {
            WindowKind::Session { .. } => {
                check_session(offset, zone.as_ref())?;
                Grid::None
            }
            _ if zone.is_none() && !counts_months(kind) => Grid::Exact(exact_grid(kind, offset)?),
            _ => calendar_grid(kind, offset, zone.clone().unwrap_or(TimeZone::UTC))?,
        };
        Ok(Self { kind, offset, zone, grid })
    }

    /// The kind.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// What the grid is shifted by.
    pub fn offset(&self) -> Span {
        self.offset
    }

    /// The declared zone.
    pub fn zone(&self) -> Option<&TimeZone> {
        self.zone.as_ref()
    }

    /// Whether it is a session. Sessions have no grid, so the questions below answer `None` or nothing: the operator of
    /// sessions keeps them by key.
    pub fn is_session(&self) -> bool {
        matches!(self.kind, WindowKind::Session { .. })
    }

    /// The parameters of windows of fixed length, with which a batch plan can find them by arithmetic; `None` for calendar
    /// windows and sessions.
    pub fn exact(&self) -> Option<ExactGrid> {
        match &self.grid {
            Grid::Exact(exact) => Some(exact.parameters()),
            Grid::Calendar(_) | Grid::None => None,
        }
    }

    /// The slice that holds `ts`; `None` in a gap of a hop (`slide > size`), or where the window would leave the range.
    #[inline]
    pub fn slice_of(&self, ts: i64) -> Option<Slice> {
        if !in_range(ts) {
            return None;
        }
        match &self.grid {
            Grid::Exact(exact) => exact.slice_of(ts),
            Grid::Calendar(calendar) => calendar.slice_of(ts),
            Grid::None => None,
        }
    }

    /// The windows that hold the whole `slice`, ascending by end.
    pub fn windows_of_slice(&self, slice: Slice) -> Vec<Window> {
        if !in_range(slice.start) {
            return Vec::new();
        }
        match &self.grid {
            Grid::Exact(exact) => exact.windows_of_slice(slice),
            Grid::Calendar(calendar) => calendar.windows_of_slice(slice),
            Grid::None => Vec::new(),
        }
    }

    /// The windows that hold `ts`, ascending by end.
    pub fn windows_of(&self, ts: i64) -> Vec<Window> {
        self.slice_of(ts).map(|s| self.windows_of_slice(s)).unwrap_or_default()
    }

    /// The end of the first window to close among those that hold `slice`, one of [`WindowSpec::slice_of`]'s.
    pub fn first_end_of_slice(&self, slice: Slice) -> Option<i64> {
        self.next_end(slice.start)
    }

    /// The end of the last window to close among those that hold `slice`, one of [`WindowSpec::slice_of`]'s. When that window
    /// has expired no window needs the slice.
    pub fn last_end_of_slice(&self, slice: Slice) -> Option<i64> {
        if !in_range(slice.start) {
            return None;
        }
        match &self.grid {
            Grid::Exact(exact) => Some(exact.last_end(slice.start)),
            Grid::Calendar(calendar) => Some(calendar.last_end(slice.start)),
            Grid::None => None,
        }
    }

    /// The slices of `window`, ascending. They tile it.
    pub fn slices_of_window(&self, window: Window) -> Vec<Slice> {
        let mut slices = Vec::new();
        let mut at = window.start;
        while at < window.end
            && let Some(slice) = self.slice_of(at)
        {
            at = slice.end;
            slices.push(slice);
        }
        slices
    }

    /// The smallest window end `> t`. Any `t` may be asked about, so that a watermark can be; `None` past the last window.
    pub fn next_end(&self, t: i64) -> Option<i64> {
        let t = t.max(i64::MIN + REACH_US);
        if t > i64::MAX - REACH_US {
            return None;
        }
        match &self.grid {
            Grid::Exact(exact) => Some(exact.next_end(t)),
            Grid::Calendar(calendar) => Some(calendar.next_end(t)),
            Grid::None => None,
        }
    }

    /// The largest window end `<= t`; `None` before the first window.
    pub fn prev_end(&self, t: i64) -> Option<i64> {
        let t = t.min(i64::MAX - REACH_US);
        if t < i64::MIN + REACH_US {
            return None;
        }
        match &self.grid {
            Grid::Exact(exact) => Some(exact.prev_end(t)),
            Grid::Calendar(calendar) => Some(calendar.prev_end(t)),
            Grid::None => None,
        }
    }

    /// The window end nearest to `t`; of two, the earlier.
    pub fn nearest_end(&self, t: i64) -> Option<i64> {
        match (self.prev_end(t), self.next_end(t)) {
            (Some(before), Some(after)) => Some(if t - before <= after - t { before } else { after }),
            (before, after) => before.or(after),
        }
    }

    /// The windows that end at `end`, ascending by start: none, one, or where a zone skipped a whole day more.
    pub fn windows_ending_at(&self, end: i64) -> Vec<Window> {
        if self.prev_end(end) != Some(end) {
            return Vec::new();
        }
        match &self.grid {
            Grid::Exact(exact) => vec![exact.window_ending_at(end)],
            Grid::Calendar(calendar) => calendar.windows_ending_at(end),
            Grid::None => Vec::new(),
        }
    }

    /// The windows whose end lies in `(after, to]`, ascending by end: the range of a batch run. Lazy, so any bounds may be given.
    pub fn ends_between(&self, after: i64, to: i64) -> impl Iterator<Item = Window> + '_ {
        std::iter::successors(self.next_end(after), |&end| self.next_end(end))
            .take_while(move |&end| end <= to)
            .flat_map(|end| self.windows_ending_at(end))
    }

    /// The local date, as days since 1970-01-01, that `us` falls on in the declared zone, else in UTC.
    pub fn local_day(&self, us: i64) -> i64 {
        to_local(self.zone.as_ref().unwrap_or(&TimeZone::UTC), us).day
    }
}

/// Parameters of windows of fixed length: they start at `origin + n * period` for every integer `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactGrid {
    /// A start, `0 <= origin < period`, µs.
    pub origin_us: i64,
    /// From one start to the next, µs.
    pub period_us: i64,
    /// Length of a window, or for CUMULATE, where windows end after each step, of the last, µs.
    pub size_us: i64,
    /// CUMULATE's step, µs.
    pub step_us: Option<i64>,
}

/// Whether windows of times this far from the ends of the range have bounds.
#[inline]
fn in_range(ts: i64) -> bool {
    (i64::MIN + 2 * REACH_US..=i64::MAX - 2 * REACH_US).contains(&ts)
}

/// The lengths of a kind with their names, the size last.
fn lengths(kind: WindowKind) -> Vec<(Argument, Span)> {
    match kind {
        WindowKind::Tumble { size } => vec![(Argument::Size, size)],
        WindowKind::Hop { slide, size } => vec![(Argument::Slide, slide), (Argument::Size, size)],
        WindowKind::Cumulate { step, size } => vec![(Argument::Step, step), (Argument::Size, size)],
        WindowKind::Session { gap_us } => vec![(Argument::Gap, Span::Micros(gap_us))],
    }
}

fn counts_months(kind: WindowKind) -> bool {
    lengths(kind).iter().any(|(_, length)| matches!(length, Span::Months(_)))
}

/// What every kind has in common: signs, ranges, and how many windows a row is in.
fn check_lengths(kind: WindowKind, offset: Span) -> Result<(), WindowError> {
    let within = |argument, length: Span| match length.at_most_us() {
        Some(us) if us.unsigned_abs() <= LENGTH_MAX_US.unsigned_abs() => Ok(us),
        _ => Err(WindowError::TooLong { argument }),
    };
    let lengths = lengths(kind);
    for &(argument, length) in &lengths {
        if length.count() <= 0 {
            return Err(WindowError::NotPositive { argument, length });
        }
        within(argument, length)?;
    }
    within(Argument::Offset, offset)?;

    if let [(argument, length), (_, size)] = lengths[..] {
        let windows = within(Argument::Size, size)? / within(argument, length)?;
        if windows > WINDOWS_PER_ROW_MAX {
            return Err(WindowError::TooMany { argument, length, size, windows });
        }
        if argument == Argument::Step && windows == 0 {
            return Err(WindowError::StepExceedsSize { step: length, size });
        }
    }
    Ok(())
}

fn check_session(offset: Span, zone: Option<&TimeZone>) -> Result<(), WindowError> {
    let argument = match (offset.count(), zone) {
        (0, None) => return Ok(()),
        (0, Some(_)) => Argument::Zone,
        _ => Argument::Offset,
    };
    Err(WindowError::NotForSession { argument })
}

/// The grid of lengths none of which is in months, without a zone.
fn exact_grid(kind: WindowKind, offset: Span) -> Result<Exact, WindowError> {
    if let Span::Months(_) = offset {
        return Err(WindowError::OffsetInMonths { offset });
    }
    let us = |span: Span| span.at_most_us().expect("lengths were checked and are exact");
    Ok(match kind {
        WindowKind::Tumble { size } => Exact::hop(us(offset), us(size), us(size)),
        WindowKind::Hop { slide, size } => Exact::hop(us(offset), us(slide), us(size)),
        WindowKind::Cumulate { step, size } => Exact::cumulate(us(offset), us(step), us(size)),
        WindowKind::Session { .. } => unreachable!("a session has no grid"),
    })
}

/// The grid of lengths in a zone. Where every local day has 24 hours and nothing counts months, it is an exact one.
fn calendar_grid(kind: WindowKind, offset: Span, zone: TimeZone) -> Result<Grid, WindowError> {
    let length = |argument: Argument, span: Span| match span {
        Span::Months(n) => Ok(Length::Months(n)),
        Span::Days(n) => Ok(Length::Days(n)),
        Span::Micros(us) if us % DAY_US == 0 => Ok(Length::Days(us / DAY_US)),
        Span::Micros(us) if us < DAY_US => Ok(Length::Micros(us)),
        Span::Micros(_) => Err(WindowError::NotWholeDays { argument, length: span }),
    };
    let (period, inner) = match kind {
        WindowKind::Tumble { size } => (length(Argument::Size, size)?, None),
        WindowKind::Hop { slide, size } => {
            let (period, inner) = (length(Argument::Slide, slide)?, length(Argument::Size, size)?);
            let fits = match (period, inner) {
                (Length::Months(_), _) | (_, Length::Micros(_)) => true,
                (Length::Days(_), inner) => matches!(inner, Length::Days(_)),
                (Length::Micros(_), _) => false,
            };
            if !fits {
                return Err(WindowError::Units { argument: Argument::Slide, length: slide, size });
            }
            (period, Some(inner))
        }
        WindowKind::Cumulate { step, size } => {
            let (period, inner) = (length(Argument::Size, size)?, length(Argument::Step, step)?);
            if matches!((period, inner), (Length::Days(_), Length::Months(_))) {
                return Err(WindowError::Units { argument: Argument::Step, length: step, size });
            }
            (period, Some(inner))
        }
        WindowKind::Session { .. } => unreachable!("a session has no grid"),
    };
    let shift = match offset {
        Span::Months(_) if !matches!(period, Length::Months(_)) => return Err(WindowError::OffsetInMonths { offset }),
        Span::Months(months) => Shift { months, ..Shift::default() },
        Span::Days(days) => Shift { days, ..Shift::default() },
        Span::Micros(micros) => Shift { micros, ..Shift::default() },
    };
    if let Ok(ahead) = zone.to_fixed_offset()
        && is_exact(kind, period, inner)
    {
        // The Monday the days count from is a whole number of days before the epoch.
        let monday = offset.at_most_us().map(|us| us - 3 * DAY_US - i64::from(ahead.seconds()) * 1_000_000);
        return exact_grid(kind, Span::Micros(monday.expect("offsets were checked"))).map(Grid::Exact);
    }
    let calendar = match (kind, inner) {
        (WindowKind::Hop { .. }, Some(size)) => Calendar::hop(zone, shift, period, size),
        (WindowKind::Cumulate { .. }, Some(step)) => Calendar::cumulate(zone, shift, step, period),
        _ => Calendar::tumble(zone, shift, period),
    };
    Ok(Grid::Calendar(Box::new(calendar)))
}

/// Whether days of 24 hours each make the grid one of fixed lengths: lengths that restart at midnight must divide a day.
fn is_exact(kind: WindowKind, period: Length, inner: Option<Length>) -> bool {
    let restarts = match (kind, period) {
        (_, Length::Months(_)) => return false,
        (_, Length::Micros(us)) => us,
        (WindowKind::Cumulate { .. }, Length::Days(_)) => match inner {
            Some(Length::Micros(us)) => us,
            _ => return true,
        },
        (_, Length::Days(_)) => return true,
    };
    DAY_US % restarts == 0
}

impl fmt::Display for WindowSpec {
    /// One line for EXPLAIN: `HOP slide 5 minutes, size 1 hour, offset 1 minute, time zone Europe/Berlin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            WindowKind::Tumble { size } => write!(f, "TUMBLE size {size}")?,
            WindowKind::Hop { slide, size } => write!(f, "HOP slide {slide}, size {size}")?,
            WindowKind::Cumulate { step, size } => write!(f, "CUMULATE step {step}, size {size}")?,
            WindowKind::Session { gap_us } => write!(f, "SESSION gap {}", Span::Micros(gap_us))?,
        }
        if self.offset.count() != 0 {
            write!(f, ", offset {}", self.offset)?;
        }
        match &self.zone {
            Some(zone) => write!(f, ", time zone {}", zone_name(zone)),
            None if counts_months(self.kind) => f.write_str(", time zone UTC"),
            None => Ok(()),
        }
    }
}
