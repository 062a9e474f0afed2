//! The grid of local days and of months, whose cells differ in length.
//!
//! A [`Ruler`] numbers the boundaries of a unit: `at(n)` is where unit `n` starts, `floor(t)` the unit that holds `t`. On
//! unit numbers windows are plain integer arithmetic, as in [`super::exact`]; the ruler brings them back to instants. Two
//! boundaries can be the same instant, where a zone skipped a whole day. `floor` then gives the later unit, and the unit
//! that does not exist is in no window of its own.
//!
//! Lengths below a day have no numbering of their own. Windows of them are found by a [`Place`]: the day, and how many
//! lengths after its boundary.

use jiff::tz::TimeZone;

use super::{Slice, Window};
use crate::time::{DAY_US, Gap, Local, civil_of_day, day_of_civil, to_instant, to_local};

/// Day number of the Monday from which local days count.
const MONDAY: i64 = -3;
/// Month number, counted from the year 0, of January 1970.
const JANUARY_1970: i64 = 1970 * 12;

/// A length on the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Months(i64),
    Days(i64),
    /// Less than 24 hours.
    Micros(i64),
}

/// Where units start.
#[derive(Debug, Clone, PartialEq)]
struct Ruler {
    zone: TimeZone,
    /// Units are months, not days.
    months: bool,
    /// Units the count is shifted by. For days it is part of `shift_days`.
    shift_months: i64,
    /// Days from the date a unit is named after to its boundary.
    shift_days: i64,
    /// Local time of day of boundaries.
    time_us: i64,
}

impl Ruler {
    /// Where unit `n` starts. Never falls as `n` rises.
    fn at(&self, n: i64) -> i64 {
        let day = if self.months {
            let month = JANUARY_1970 + n + self.shift_months;
            day_of_civil(month.div_euclid(12), month.rem_euclid(12) + 1, 1)
        } else {
            MONDAY + n
        };
        let local = Local { day: day + self.shift_days, time_us: self.time_us };
        to_instant(&self.zone, local, Gap::Jump).expect("WindowSpec keeps times far from the ends of the range")
    }

    /// The last unit that starts at or before `t`.
    fn floor(&self, t: i64) -> i64 {
        let day = to_local(&self.zone, t).day - self.shift_days;
        let mut n = if self.months {
            let (year, month, _) = civil_of_day(day);
            year * 12 + month - 1 - JANUARY_1970 - self.shift_months
        } else {
            day - MONDAY
        };
        // The date is a guess: time of day, and days with two midnights, move it by one.
        while self.at(n) > t {
            n -= 1;
        }
        while self.at(n + 1) <= t {
            n += 1;
        }
        n
    }
}

/// A start on the outer grid: of a window, and for CUMULATE of all windows that share it. Two numbers, whose meaning
/// depends on the grid: the multiple and 0, or the day and the multiple within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(i64, i64);

/// What stands on the outer grid.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// Windows from each start to the next.
    Tumble,
    /// Windows of a size from each start.
    Hop(Length),
    /// Windows that grow by a step from each start to the next.
    Cumulate(Length),
}

/// A calendar grid. Built by [`super::WindowSpec`], which refuses combinations that do not fit together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Calendar {
    /// Months or days: the unit of `period`, days if it is below a day.
    ruler: Ruler,
    /// Days with the boundaries of `ruler`.
    days: Ruler,
    /// From one start to the next.
    period: Length,
    shape: Shape,
}

/// An offset of calendar windows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shift {
    pub(super) months: i64,
    pub(super) days: i64,
    pub(super) micros: i64,
}

impl Calendar {
    fn new(zone: TimeZone, shift: Shift, period: Length, shape: Shape) -> Self {
        let months = matches!(period, Length::Months(_));
        let shift_days = shift.days + shift.micros.div_euclid(DAY_US);
        let time_us = shift.micros.rem_euclid(DAY_US);
        let ruler = Ruler { zone, months, shift_months: shift.months, shift_days, time_us };
        let days = Ruler { months: false, shift_months: 0, ..ruler.clone() };
        Self { ruler, days, period, shape }
    }

    pub(super) fn tumble(zone: TimeZone, shift: Shift, size: Length) -> Self {
        Self::new(zone, shift, size, Shape::Tumble)
    }

    /// `size` in the unit of `slide`, or days if that is months, or below a day.
    pub(super) fn hop(zone: TimeZone, shift: Shift, slide: Length, size: Length) -> Self {
        Self::new(zone, shift, slide, Shape::Hop(size))
    }

    /// `step` in the unit of `size` or a finer one.
    pub(super) fn cumulate(zone: TimeZone, shift: Shift, step: Length, size: Length) -> Self {
        Self::new(zone, shift, size, Shape::Cumulate(step))
    }

    /// The last place that starts at or before `t`.
    fn locate(&self, t: i64) -> Place {
        let unit = self.ruler.floor(t);
        match self.period {
            Length::Months(n) | Length::Days(n) => Place(unit.div_euclid(n), 0),
            Length::Micros(us) => Place(unit, (t - self.ruler.at(unit)) / us),
        }
    }

    fn start(&self, Place(major, minor): Place) -> i64 {
        match self.period {
            Length::Months(n) | Length::Days(n) => self.ruler.at(major * n),
            Length::Micros(us) => self.ruler.at(major) + minor * us,
        }
    }

    fn next(&self, Place(major, minor): Place) -> Place {
        let Length::Micros(us) = self.period else { return Place(major + 1, 0) };
        let (day, next_day) = (self.ruler.at(major), self.ruler.at(major + 1));
        match day + (minor + 1) * us < next_day {
            true => Place(major, minor + 1),
            false => self.locate(next_day),
        }
    }

    fn prev(&self, Place(major, minor): Place) -> Place {
        match self.period {
            Length::Micros(_) if minor > 0 => Place(major, minor - 1),
            Length::Micros(_) => self.locate(self.ruler.at(major) - 1),
            Length::Months(_) | Length::Days(_) => Place(major - 1, 0),
        }
    }

    /// Bounds of the cell that holds `t`: never empty.
    fn cell(&self, t: i64) -> Window {
        let place = self.locate(t);
        Window { start: self.start(place), end: self.start(self.next(place)) }
    }

    /// End of the hop window that starts at `place`. Never falls from one place to the next.
    fn hop_end(&self, place: Place, size: Length) -> i64 {
        match (self.period, size) {
            (_, Length::Micros(us)) => self.start(place) + us,
            (Length::Months(slide), Length::Days(days)) => {
                self.days.at(self.days.floor(self.ruler.at(place.0 * slide)) + days)
            }
            (Length::Months(slide) | Length::Days(slide), Length::Months(n) | Length::Days(n)) => {
                self.ruler.at(place.0 * slide + n)
            }
            (Length::Micros(_), _) => unreachable!("refused by WindowSpec: a slide below a day with a size of days"),
        }
    }

    /// The last place whose hop window ends at or before `t`.
    fn hop_ended(&self, t: i64, size: Length) -> Place {
        let mut place = match (self.period, size) {
            (_, Length::Micros(us)) => return self.locate(t - us),
            (Length::Months(_), Length::Days(days)) => self.locate(t - days * DAY_US),
            (Length::Months(slide) | Length::Days(slide), Length::Months(n) | Length::Days(n)) => {
                return Place((self.ruler.floor(t) - n).div_euclid(slide), 0);
            }
            (Length::Micros(_), _) => unreachable!("refused by WindowSpec: a slide below a day with a size of days"),
        };
        while self.hop_end(place, size) > t {
            place = self.prev(place);
        }
        while self.hop_end(self.next(place), size) <= t {
            place = self.next(place);
        }
        place
    }

    /// What one step adds to the windows of `cell`, where it holds `t`: never empty.
    fn piece(&self, cell: Window, step: Length, t: i64) -> Slice {
        let units = |ruler: &Ruler, n: i64| {
            let first = ruler.floor(cell.start);
            let below = first + (ruler.floor(t) - first) / n * n;
            Slice { start: ruler.at(below), end: ruler.at(below + n).min(cell.end) }
        };
        match (step, self.period) {
            (Length::Months(n), _) => units(&self.ruler, n),
            (Length::Days(n), _) => units(&self.days, n),
            (Length::Micros(us), period) => {
                // Steps count from the window's start, or in windows of whole days from each day's.
                let (from, to) = match period {
                    Length::Micros(_) => (cell.start, cell.end),
                    Length::Months(_) | Length::Days(_) => {
                        let day = self.days.floor(t);
                        (self.days.at(day), self.days.at(day + 1))
                    }
                };
                let start = from + (t - from) / us * us;
                Slice { start, end: (start + us).min(to).min(cell.end) }
            }
        }
    }

    pub(super) fn slice_of(&self, t: i64) -> Option<Slice> {
        match self.shape {
            Shape::Tumble => {
                let cell = self.cell(t);
                Some(Slice { start: cell.start, end: cell.end })
            }
            Shape::Cumulate(step) => Some(self.piece(self.cell(t), step, t)),
            Shape::Hop(size) => {
                let place = self.locate(t);
                // Ends never fall, so if any window holds `t`, the last one to start does.
                if self.hop_end(place, size) <= t {
                    return None;
                }
                let ended = self.hop_ended(t, size);
                Some(Slice {
                    start: self.start(place).max(self.hop_end(ended, size)),
                    end: self.start(self.next(place)).min(self.hop_end(self.next(ended), size)),
                })
            }
        }
    }

    /// Windows that hold the whole slice, ascending by end.
    pub(super) fn windows_of_slice(&self, slice: Slice) -> Vec<Window> {
        match self.shape {
            Shape::Tumble => vec![self.cell(slice.start)],
            Shape::Cumulate(step) => {
                let cell = self.cell(slice.start);
                let mut windows = vec![Window { start: cell.start, end: slice.end }];
                let mut end = slice.end;
                while end < cell.end {
                    end = self.piece(cell, step, end).end;
                    windows.push(Window { start: cell.start, end });
                }
                windows
            }
            Shape::Hop(size) => {
                let mut windows = Vec::new();
                let mut place = self.locate(slice.start);
                let mut end = self.hop_end(place, size);
                while end >= slice.end {
                    windows.push(Window { start: self.start(place), end });
                    place = self.prev(place);
                    end = self.hop_end(place, size);
                }
                windows.reverse();
                windows
            }
        }
    }

    /// End of the last window that holds `t`, which is in one.
    pub(super) fn last_end(&self, t: i64) -> i64 {
        match self.shape {
            Shape::Tumble | Shape::Cumulate(_) => self.cell(t).end,
            Shape::Hop(size) => self.hop_end(self.locate(t), size),
        }
    }

    /// The smallest window end `> t`.
    pub(super) fn next_end(&self, t: i64) -> i64 {
        match self.shape {
            Shape::Tumble => self.cell(t).end,
            Shape::Cumulate(step) => self.piece(self.cell(t), step, t).end,
            Shape::Hop(size) => self.hop_end(self.next(self.hop_ended(t, size)), size),
        }
    }

    /// The largest window end `<= t`.
    pub(super) fn prev_end(&self, t: i64) -> i64 {
        match self.shape {
            Shape::Tumble => self.cell(t).start,
            Shape::Cumulate(step) => self.piece(self.cell(t), step, t).start,
            Shape::Hop(size) => self.hop_end(self.hop_ended(t, size), size),
        }
    }

    /// Windows that end at `end`, which is an end, ascending by start. More than one where a zone skipped a whole day.
    pub(super) fn windows_ending_at(&self, end: i64) -> Vec<Window> {
        let Shape::Hop(size) = self.shape else {
            return vec![Window { start: self.cell(end - 1).start, end }];
        };
        let mut windows = Vec::new();
        let mut place = self.hop_ended(end, size);
        while self.hop_end(place, size) == end {
            windows.push(Window { start: self.start(place), end });
            place = self.prev(place);
        }
        windows.retain(|window| window.start < window.end);
        windows.reverse();
        windows
    }
}
