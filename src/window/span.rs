//! Lengths as SQL writes them, and why a window cannot be planned.

use std::fmt;

use crate::time::{DAY_US, length_text};

/// A length: exact microseconds, whole days, or whole months. Days and months are calendar lengths when a zone is given;
/// months always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    /// Exact.
    Micros(i64),
    /// Days: local days with a zone, 86,400 s each without.
    Days(i64),
    /// Calendar months.
    Months(i64),
}

impl Span {
    /// No length at all; the usual offset.
    pub const ZERO: Self = Self::Micros(0);

    /// The length an SQL interval of three parts stands for, as `argument` of a window.
    ///
    /// Days beside exact parts (`1 day 12 hours`) are 24 hours each; months beside anything else have no fixed order of
    /// addition and are refused.
    ///
    /// # Errors
    ///
    /// [`WindowError::Mixed`], [`WindowError::TooLong`].
    pub fn try_from_parts(argument: Argument, months: i64, days: i64, micros: i64) -> Result<Self, WindowError> {
        match (months, days, micros) {
            (0, 0, us) => Ok(Self::Micros(us)),
            (0, days, 0) => Ok(Self::Days(days)),
            (months, 0, 0) => Ok(Self::Months(months)),
            (0, days, us) => {
                let exact = days.checked_mul(DAY_US).and_then(|d| d.checked_add(us));
                exact.map(Self::Micros).ok_or(WindowError::TooLong { argument })
            }
            _ => Err(WindowError::Mixed { argument }),
        }
    }

    /// The three parts again: months, days, microseconds.
    pub fn parts(self) -> (i64, i64, i64) {
        match self {
            Self::Micros(us) => (0, 0, us),
            Self::Days(days) => (0, days, 0),
            Self::Months(months) => (months, 0, 0),
        }
    }

    /// The bare number, whose sign is the length's.
    pub(super) fn count(self) -> i64 {
        match self {
            Self::Micros(n) | Self::Days(n) | Self::Months(n) => n,
        }
    }

    /// An exact length no calendar makes this span exceed by more than some hours. `None` if it overflows.
    pub(super) fn at_most_us(self) -> Option<i64> {
        match self {
            Self::Micros(us) => Some(us),
            Self::Days(days) => days.checked_mul(DAY_US),
            Self::Months(months) => months.checked_mul(31 * DAY_US),
        }
    }
}

impl fmt::Display for Span {
    /// As SQL writes it inside `INTERVAL '…'`: `1 hour 30 minutes`, `7 days`, `3 months`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match *self {
            Self::Micros(us) => return f.write_str(&length_text(us)),
            Self::Days(days) => (days, "day"),
            Self::Months(months) if months % 12 == 0 => (months / 12, "year"),
            Self::Months(months) => (months, "month"),
        };
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

/// Which argument of a window call is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    /// Length of a window.
    Size,
    /// From one start of a HOP window to the next.
    Slide,
    /// From one end of a CUMULATE window to the next.
    Step,
    /// Of a SESSION.
    Gap,
    /// What the grid is shifted by.
    Offset,
    /// `TIME_ZONE`.
    Zone,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "size",
            Self::Slide => "slide",
            Self::Step => "step",
            Self::Gap => "gap",
            Self::Offset => "offset",
            Self::Zone => "time_zone",
        })
    }
}

/// Why a window cannot be planned (T2). [`WindowError::argument`] names the argument to point at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// A length is zero or negative.
    #[error("window {argument} must be positive, {argument}=`{length}`")]
    NotPositive {
        /// Which.
        argument: Argument,
        /// As given.
        length: Span,
    },
    /// Months beside days or shorter parts in one interval.
    #[error("window {argument} mixes months with days or shorter units")]
    Mixed {
        /// Which.
        argument: Argument,
    },
    /// More than 10,000 years.
    #[error("window {argument} is longer than 10,000 years")]
    TooLong {
        /// Which.
        argument: Argument,
    },
    /// A step that is longer than the size.
    #[error("window step is longer than its size, step=`{step}` size=`{size}`")]
    StepExceedsSize {
        /// As given.
        step: Span,
        /// As given.
        size: Span,
    },
    /// Each time would be in too many windows.
    #[error("one row would be in about {windows} windows, {argument}=`{length}` size=`{size}`")]
    TooMany {
        /// Slide or step.
        argument: Argument,
        /// Its value.
        length: Span,
        /// As given.
        size: Span,
        /// How many.
        windows: i64,
    },
    /// A length of a day or more in a zone that is no whole number of days.
    #[error("window {argument} with a time zone must be whole days, or less than a day, {argument}=`{length}`")]
    NotWholeDays {
        /// Which.
        argument: Argument,
        /// As given.
        length: Span,
    },
    /// Two lengths whose ratio the calendar changes from one window to the next.
    #[error("window {argument} and size are of units that do not fit together, {argument}=`{length}` size=`{size}`")]
    Units {
        /// Slide or step.
        argument: Argument,
        /// Its value.
        length: Span,
        /// As given.
        size: Span,
    },
    /// An offset of months for windows that do not count months.
    #[error("window offset in months needs a size in months, offset=`{offset}`")]
    OffsetInMonths {
        /// As given.
        offset: Span,
    },
    /// An argument a session does not have.
    #[error("a session has no {argument}")]
    NotForSession {
        /// Which.
        argument: Argument,
    },
}

impl WindowError {
    /// The argument at fault.
    pub fn argument(&self) -> Argument {
        match self {
            Self::NotPositive { argument, .. }
            | Self::Mixed { argument }
            | Self::TooLong { argument }
            | Self::TooMany { argument, .. }
            | Self::NotWholeDays { argument, .. }
            | Self::Units { argument, .. }
            | Self::NotForSession { argument } => *argument,
            Self::StepExceedsSize { .. } => Argument::Step,
            Self::OffsetInMonths { .. } => Argument::Offset,
        }
    }

    /// What would work instead.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotPositive { .. } => "write it as INTERVAL '1 minute'",
            Self::Mixed { .. } => "use whole months, or days and shorter units",
            Self::TooLong { .. } => "check the unit of the interval",
            Self::StepExceedsSize { .. } => "the step comes before the size: CUMULATE(…, step, size)",
            Self::TooMany { argument: Argument::Slide, .. } => {
                "the slide comes before the size: HOP(…, slide, size); use a longer slide or a shorter size"
            }
            Self::TooMany { .. } => {
                "the step comes before the size: CUMULATE(…, step, size); use a longer step or a shorter size"
            }
            Self::NotWholeDays { .. } => "use whole days, or leave TIME_ZONE out for windows of exact length",
            Self::Units { .. } => "use one unit for both, or leave TIME_ZONE out for windows of exact length",
            Self::OffsetInMonths { .. } => "give the offset in days or shorter units",
            Self::NotForSession { .. } => "write SESSION(TABLE t PARTITION BY key, DESCRIPTOR(time), gap)",
        }
    }
}

impl From<WindowError> for crate::Error {
    fn from(error: WindowError) -> Self {
        crate::Error::invalid(error.to_string()).with_hint(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{HOUR_US, MINUTE_US, SECOND_US};

    #[test]
    fn intervals_become_one_unit_or_are_refused() {
        let parts = |m, d, us| Span::try_from_parts(Argument::Size, m, d, us);
        assert_eq!(parts(0, 0, 0), Ok(Span::Micros(0)));
        assert_eq!(parts(0, 7, 0), Ok(Span::Days(7)));
        assert_eq!(parts(3, 0, 0), Ok(Span::Months(3)));
        assert_eq!(parts(0, 1, HOUR_US), Ok(Span::Micros(DAY_US + HOUR_US)));
        assert_eq!(parts(1, 3, 0), Err(WindowError::Mixed { argument: Argument::Size }));
        assert_eq!(parts(1, 0, 1), Err(WindowError::Mixed { argument: Argument::Size }));
        assert_eq!(parts(0, i64::MAX, 1), Err(WindowError::TooLong { argument: Argument::Size }));
    }

    #[test]
    fn spans_read_as_people_write_them() {
        for (span, want) in [
            (Span::Micros(HOUR_US), "1 hour"),
            (Span::Micros(90 * MINUTE_US), "1 hour 30 minutes"),
            (Span::Micros(1_500), "0.0015 seconds"),
            (Span::Micros(-SECOND_US), "-1 second"),
            (Span::ZERO, "0 seconds"),
            (Span::Days(7), "7 days"),
            (Span::Months(3), "3 months"),
            (Span::Months(24), "2 years"),
        ] {
            assert_eq!(span.to_string(), want);
        }
    }
}
