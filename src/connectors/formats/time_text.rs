//! Reads time texts fast.
//!
//! The layouts that nearly every file uses are read here digit by digit, with the date's day number remembered from the
//! value before; whatever else there is goes to [`parse_time`], which is the rule. Both give the same instant for the same
//! text.

use jiff::tz::TimeZone;

use super::RowError;
use crate::connectors::RejectReason;
use crate::time::{DAY_US, TimeError, day_of_civil, parse_time};

/// Reads one column's time texts in order.
#[derive(Debug)]
pub(crate) struct TimeReader<'z> {
    zone: &'z TimeZone,
    utc: bool,
    date: [u8; 10],
    date_us: i64,
}

impl<'z> TimeReader<'z> {
    /// Texts without a zone are read in `zone`.
    pub(crate) fn new(zone: &'z TimeZone) -> Self {
        Self { zone, utc: *zone == TimeZone::UTC, date: [0; 10], date_us: 0 }
    }

    /// The instant `text` says, in µs since 1970 UTC.
    pub(crate) fn read(&mut self, text: &str) -> Result<i64, RowError> {
        match self.read_fixed(text.as_bytes()) {
            Some(us) => Ok(us),
            None => parse_time(text, self.zone).map_err(refused),
        }
    }

    /// `YYYY-MM-DD`, then perhaps `[T ]HH:MM:SS`, a fraction, and `Z`. None for everything else, wrong dates included.
    fn read_fixed(&mut self, text: &[u8]) -> Option<i64> {
        let (date, rest) = text.split_first_chunk::<10>()?;
        let (clock_us, rest) = match rest {
            [] => (0, rest),
            [b'T' | b' ', rest @ ..] => read_clock(rest)?,
            _ => return None,
        };
        if !(rest == b"Z" || (rest.is_empty() && self.utc)) {
            return None;
        }
        if *date != self.date {
            self.date_us = read_date(date)?;
            self.date = *date;
        }
        Some(self.date_us + clock_us)
    }
}

fn refused(error: TimeError) -> RowError {
    let reason = match error {
        TimeError::Range { .. } => RejectReason::Range,
        _ => RejectReason::Type,
    };
    RowError { reason, message: error.to_string() }
}

fn read_clock(text: &[u8]) -> Option<(i64, &[u8])> {
    let (clock, mut rest) = text.split_first_chunk::<8>()?;
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *clock else { return None };
    let (hour, minute, second) = (two(h1, h2)?, two(m1, m2)?, two(s1, s2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut us = ((hour * 60 + minute) * 60 + second) * 1_000_000;
    if let [b'.', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 || digits > 9 {
            return None;
        }
        let mut scale = 100_000;
        for digit in &fraction[..digits] {
            us += i64::from(digit - b'0') * scale;
            scale /= 10;
        }
        rest = &fraction[digits..];
    }
    Some((us, rest))
}

fn read_date(text: &[u8; 10]) -> Option<i64> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else { return None };
    let (year, month, day) = (two(y1, y2)? * 100 + two(y3, y4)?, two(m1, m2)?, two(d1, d2)?);
    if !(1..=12).contains(&month) || !(1..=28).contains(&day) {
        // The last days of a month, and wrong ones, are rare enough to leave to the rule.
        return None;
    }
    Some(day_of_civil(year, month, day) * DAY_US)
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str) -> Option<i64> {
        let zone = TimeZone::get(zone).unwrap();
        TimeReader::new(&zone).read(text).ok()
    }

    #[test]
    fn layouts_of_the_same_instant_agree() {
        let us = 1_705_322_096_123_456;
        for text in [
            "2024-01-15T12:34:56.123456Z",
            "2024-01-15 12:34:56.123456",
            "2024-01-15T12:34:56.123456789Z",
            "2024-01-15T13:34:56.123456+01:00",
            "2024-01-15 12:34:56.123456+00",
        ] {
            assert_eq!(read(text, "UTC"), Some(us), "{text}");
        }
        assert_eq!(read("2024-01-15 13:34:56.123456", "Europe/Berlin"), Some(us));
        assert_eq!(read("2024-01-15T12:34:56.123456Z", "Europe/Berlin"), Some(us));
        assert_eq!(read("1969-12-31 23:59:59.9", "UTC"), Some(-100_000));
        assert_eq!(read("2024-01-15", "UTC"), Some(1_705_276_800_000_000));
        assert_eq!(read("2024-01-15 12:34", "UTC"), Some(1_705_322_040_000_000));
    }

    #[test]
    fn c75_far_years_are_kept_exactly() {
        assert_eq!(read("9999-12-31 00:00:00", "UTC"), Some(253_402_214_400_000_000));
        assert_eq!(read("0001-01-01", "UTC"), Some(-62_135_596_800_000_000));
        assert_eq!(read("2262-04-12 00:00:00", "UTC"), Some(9_223_372_800_000_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "yesterday",
            "2024-02-30",
            "2024-01-15T25:00:00",
            "2024-13-01 00:00:00",
            "12:00",
            "2024-01-15 12:34:56.Z",
        ] {
            assert_eq!(read(text, "UTC"), None, "{text}");
        }
    }
}
