//! When a cron expression comes due, on the clocks of a time zone.
//!
//! croner reads the expression and searches the calendar; what a change of clocks means is decided here, by the rule of
//! Vixie cron. An expression that names its hours means times of day: one that falls into a gap comes due once, when the
//! gap ends, and one that is there twice the first time only. An expression with `*` for the hour, or a step over it,
//! means every so often: it comes due whenever a clock shows it, so once for each real hour.
//!
//! ```text
//!                   Europe/Berlin, 2024-03-31                      2024-10-27
//!  30 2 * * *       03:00 CEST, once                               02:30 CEST, once
//!  30 * * * *       01:30 CET, 03:30 CEST                          02:30 CEST, 02:30 CET
//! ```

use std::cmp::Ordering;

use croner::errors::CronError;
use croner::parser::{CronParser, Year};
use croner::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ZonedDateTime};

use crate::error::{Error, Result};
use crate::sql::statement::Interval;
use crate::time::{Gap, Local, SECOND_US, civil_of_day, day_of_civil, format_us, to_instant, to_local, zone_name};

const DAY_SECONDS: i64 = 86_400;

/// A cron expression of five fields, or six with seconds in front, and the zone its times are in.
#[derive(Debug, Clone)]
pub struct Cron {
    text: String,
    pattern: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Reads `text`: `minute hour day-of-month month day-of-week`, or a name such as `@daily`.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no expression, or one that no day of the calendar answers to.
    pub fn try_new(text: &str, zone: TimeZone) -> Result<Self> {
        let parser = CronParser::builder().year(Year::Disallowed).build();
        let pattern = parser.parse(text).map_err(|e| {
            Error::invalid(format!("`{text}` is no cron expression: {}", reason(&e))).with_hint(
                "five fields: minute, hour, day of month, month, day of week; '0 2 * * *' is 02:00 each night",
            )
        })?;
        let cron = Self { text: text.to_owned(), pattern, zone };
        match cron.next_after(0) {
            Some(_) => Ok(cron),
            None => Err(Error::invalid(format!("`{text}` never comes due: no date of the calendar matches it"))),
        }
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of its zone.
    pub fn zone_name(&self) -> String {
        zone_name(&self.zone)
    }

    /// The first time it comes due after `us`, µs; `None` past the end of the calendar.
    pub fn next_after(&self, us: i64) -> Option<i64> {
        match self.is_every_so_often() {
            true => self.next_shown(us),
            false => self.next_time_of_day(us),
        }
    }

    /// The time `by` before `us`: months and days on the zone's calendar, the rest exactly.
    ///
    /// # Errors
    ///
    /// `Invalid` for what lies before the calendar's beginning.
    pub fn back(&self, us: i64, by: Interval) -> Result<i64> {
        let on_calendar = || {
            let days = Span::new().try_months(by.months).ok()?.try_days(by.days).ok()?;
            let at =
                ZonedDateTime::new(Timestamp::from_microsecond(us).ok()?, self.zone.clone()).checked_sub(days).ok()?;
            at.timestamp().as_microsecond().checked_sub(by.micros)
        };
        on_calendar().ok_or_else(|| Error::invalid(format!("{by} before {} is before all time", format_us(us))))
    }

    /// Whether the expression says how often rather than at what time of day.
    fn is_every_so_often(&self) -> bool {
        let hours = &self.pattern.pattern.hours;
        hours.from_wildcard || hours.step > 1
    }

    /// The next time of day named. Two of them may fall on one instant, where clocks jump over both.
    fn next_time_of_day(&self, us: i64) -> Option<i64> {
        let local = to_local(&self.zone, us);
        let mut civil = Civil(local.day.checked_mul(DAY_SECONDS)? + local.time_us / SECOND_US);
        loop {
            civil = self.pattern.find_next_occurrence(&civil, false).ok()?;
            let local = Local { day: civil.day(), time_us: civil.second_of_day() * SECOND_US };
            // Clocks that were put back show times again that have come due already.
            match to_instant(&self.zone, local, Gap::Jump)? {
                instant if instant > us => return Some(instant),
                _ => {}
            }
        }
    }

    /// The next time that a clock shows one of the times. Between two changes of clocks they run evenly.
    fn next_shown(&self, us: i64) -> Option<i64> {
        let mut from = us.div_euclid(SECOND_US);
        let mut inclusive = false;
        loop {
            let at = Timestamp::from_second(from).ok()?;
            let offset = i64::from(self.zone.to_offset(at).seconds());
            let change = self.zone.following(at).next().map(|change| change.timestamp().as_second());
            let found = self.pattern.find_next_occurrence(&Civil(from + offset), inclusive).ok()?.0 - offset;
            match change {
                Some(change) if change <= found => (from, inclusive) = (change, true),
                _ => return found.checked_mul(SECOND_US),
            }
        }
    }
}

/// croner's words, without its prefix and its full stop.
fn reason(error: &CronError) -> String {
    let text = match error {
        CronError::InvalidPattern(text) | CronError::IllegalCharacters(text) | CronError::ComponentError(text) => {
            text.clone()
        }
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded => {
            "no date of the calendar matches it".to_owned()
        }
    };
    text.trim_end_matches('.').to_owned()
}

/// What a clock shows, in seconds since it showed 1970-01-01 00:00. On its own it knows no zone: every time is there once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Civil(i64);

impl Civil {
    fn day(self) -> i64 {
        self.0.div_euclid(DAY_SECONDS)
    }

    fn second_of_day(self) -> i64 {
        self.0.rem_euclid(DAY_SECONDS)
    }
}

impl CronDateTime for Civil {
    fn to_civil(&self) -> CivilDateTime {
        let (year, month, day) = civil_of_day(self.day());
        // Within the years that jiff knows all parts fit; beyond them the search ends by croner's own limit.
        let part = |n: i64| u32::try_from(n).unwrap_or(1);
        let year = i32::try_from(year).unwrap_or(i32::MAX);
        let second = part(self.second_of_day());
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(year, part(month), part(day)),
            CivilTime::from_parts_unchecked(second / 3600, second / 60 % 60, second % 60),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        // 1970-01-01 was a Thursday.
        let days = (self.day() + 4).rem_euclid(7);
        Weekday::from_days_from_sunday(u32::try_from(days).unwrap_or(0))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let day = day_of_civil(i64::from(civil.year()), i64::from(civil.month()), i64::from(civil.day()));
        let second = civil.hour() * 3600 + civil.minute() * 60 + civil.second();
        Ok(Resolution::Single(Self(day * DAY_SECONDS + i64::from(second))))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(seconds).map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{parse_instant, parse_zone};

    fn cron(text: &str, zone: &str) -> Cron {
        Cron::try_new(text, parse_zone(zone).expect("a zone")).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// When `text` comes due in (from, to].
    fn due(text: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
        let (cron, to) = (cron(text, zone), parse_instant(to).expect("a time"));
        let mut at = parse_instant(from).expect("a time");
        let mut found = Vec::new();
        while let Some(next) = cron.next_after(at).filter(|next| *next <= to) {
            assert!(next > at);
            found.push(format_us(next));
            at = next;
        }
        found
    }

    #[test]
    fn expressions_come_due() {
        let due = |text| due(text, "UTC", "2024-02-28 12:00:00.5Z", "2024-03-05 00:00:00Z");
        let day = |days: &[&str], time: &str| days.iter().map(|d| format!("2024-{d}T{time}Z")).collect::<Vec<_>>();
        assert_eq!(due("0 2 * * *"), day(&["02-29", "03-01", "03-02", "03-03", "03-04"], "02:00:00"));
        assert_eq!(due("0 0 1 * *"), day(&["03-01"], "00:00:00"));
        assert_eq!(due("30 6 * * MON-WED"), day(&["03-04"], "06:30:00"));
        assert_eq!(due("0 12 L * *"), day(&["02-29"], "12:00:00"));
        assert_eq!(due("@weekly"), day(&["03-03"], "00:00:00"));
        assert_eq!(due("15 30 6 3 3 *"), day(&["03-03"], "06:30:15"));
        assert_eq!(due("*/30 * * * *").len(), 24 + 5 * 48);
    }

    #[test]
    fn a_time_of_day_comes_due_once_in_a_gap_and_once_in_an_overlap() {
        let spring = ("2024-03-30T12:00:00Z", "2024-04-01 12:00:00Z");
        let autumn = ("2024-10-26T12:00:00Z", "2024-10-28 12:00:00Z");
        let at = |text, (from, to)| due(text, "Europe/Berlin", from, to);
        assert_eq!(at("30 2 * * *", spring), ["2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"]);
        assert_eq!(at("30 2 * * *", autumn), ["2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"]);
        // Two times of day in the gap are one run.
        assert_eq!(at("30 2,3 * * *", spring)[..2], ["2024-03-31T01:00:00Z", "2024-03-31T01:30:00Z"]);
        assert_eq!(at("15,45 2 * * *", spring)[..2], ["2024-03-31T01:00:00Z", "2024-04-01T00:15:00Z"]);
        assert_eq!(
            at("15,45 2 * * *", autumn)[..3],
            ["2024-10-27T00:15:00Z", "2024-10-27T00:45:00Z", "2024-10-28T01:15:00Z"]
        );
        // Named hours beside others: still times of day.
        assert_eq!(at("30 2,14 * * *", autumn).len(), 4);
    }

    #[test]
    fn every_so_often_comes_due_in_each_real_hour() {
        let at = |text, from, to| due(text, "Europe/Berlin", from, to);
        assert_eq!(
            at("30 * * * *", "2024-03-31T00:00:00Z", "2024-03-31 02:00:00Z"),
            ["2024-03-31T00:30:00Z", "2024-03-31T01:30:00Z"]
        );
        assert_eq!(
            at("30 * * * *", "2024-10-27T00:00:00Z", "2024-10-27 02:00:00Z"),
            ["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z"]
        );
        assert_eq!(at("0 */6 * * *", "2024-10-26T22:00:00Z", "2024-10-27 23:00:00Z").len(), 4);
        // Half-hour changes of clocks.
        assert_eq!(due("0 * * * *", "Australia/Lord_Howe", "2024-10-05T14:00:00Z", "2024-10-05 17:00:00Z").len(), 3);
    }

    /// Catches a time that is skipped or repeated around any change of clocks. Cannot catch a wrong calendar.
    #[test]
    fn a_daily_time_comes_due_on_each_day_once() {
        for zone in ["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca", "+05:30", "UTC"]
        {
            for time in ["0 0", "30 0", "59 1", "0 2", "30 2", "0 3", "59 23"] {
                let runs = due(&format!("{time} * * *"), zone, "2015-01-01 12:00:00Z", "2025-01-01 12:00:00Z");
                assert_eq!(runs.len(), 3653, "{time} in {zone}");
            }
        }
        // Samoa had no 2011-12-30: that day's run falls on the jump.
        assert_eq!(
            due("0 2 * * *", "Pacific/Apia", "2011-12-29 12:00:00Z", "2011-12-31 12:00:00Z"),
            ["2011-12-30T10:00:00Z", "2011-12-30T12:00:00Z", "2011-12-31T12:00:00Z"]
        );
    }

    #[test]
    fn what_is_no_expression_is_explained() {
        let error = |text: &str| Cron::try_new(text, TimeZone::UTC).expect_err(text).to_string();
        for text in ["", "0 2 * *", "61 * * * *", "x * * * *", "0 2 * * * * *", "@nightly"] {
            assert!(error(text).starts_with(&format!("`{text}` is no cron expression: ")), "{}", error(text));
        }
        assert_eq!(error("0 0 30 2 *"), "`0 0 30 2 *` never comes due: no date of the calendar matches it");
        assert_eq!(cron("0 2 * * *", "UTC").next_after(i64::MAX), None);
    }
}
