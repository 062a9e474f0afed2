//! Instants as text and as integers, and what a wall clock in a time zone shows.
//!
//! An instant is an `i64` of microseconds since 1970-01-01 UTC, about 292,000 years either way (T1). This module turns
//! texts and integers of other units into instants and back, and converts between instants and local time. It is here, and
//! not left to a library, because three rules must hold on every path: a text without a zone is read in the zone the
//! caller names and never in the host's; a value out of range is refused and never wrapped; and calendar windows need the
//! local day of any instant, also of those beyond the years libraries stop at.
//!
//! Time zone rules come from the database compiled into the program, so that one statement means the same on every
//! machine. It does not know the current time (that is [`crate::clock`]) and nothing of windows (that is
//! [`crate::window`]).

use std::fmt;
use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

/// Microseconds in a second.
pub const SECOND_US: i64 = 1_000_000;
/// Microseconds in a minute.
pub const MINUTE_US: i64 = 60 * SECOND_US;
/// Microseconds in an hour.
pub const HOUR_US: i64 = 60 * MINUTE_US;
/// Microseconds in 24 hours. A local day can be shorter or longer.
pub const DAY_US: i64 = 24 * HOUR_US;

/// The instants a row may hold: the years 0001 to 9999, UTC. Readers of the result tables show no others, and one wrong
/// digit in a file would otherwise move a watermark further than any row can follow.
pub const YEARS_US: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// Why a text or an integer is not an instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// It does not read as a time.
    #[error("not a time, text=`{text}`: expected {expected}")]
    Malformed {
        /// What was read.
        text: String,
        /// What should have been there.
        expected: &'static str,
    },
    /// It is a time, and no `i64` of microseconds can hold it.
    #[error("time out of range, value=`{value}`")]
    Range {
        /// What was read.
        value: String,
    },
    /// Its time zone is not in the database.
    #[error("unknown time zone, name=`{name}`")]
    UnknownZone {
        /// The name as written.
        name: String,
    },
    /// It has no zone, where one is needed.
    #[error("time without a zone, text=`{text}`")]
    NoZone {
        /// What was read.
        text: String,
    },
}

impl From<TimeError> for crate::Error {
    fn from(error: TimeError) -> Self {
        let hint = match &error {
            TimeError::Malformed { .. } => "write it as 2024-01-15 10:30:00Z",
            TimeError::Range { .. } => "microseconds reach from about 290,000 years before 1970 to as long after it",
            TimeError::UnknownZone { .. } => "use a name like Europe/Berlin, UTC, or an offset like +05:30",
            TimeError::NoZone { .. } => "end it with Z, an offset like +01:00, or a zone name",
        };
        crate::Error::invalid(error.to_string()).with_hint(hint)
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Zones and local time
// ---------------------------------------------------------------------------------------------------------------------

/// The zone `name` stands for: an IANA name in any case, `UTC`, `Z`, or an offset such as `+05:30`.
///
/// `local` and `system` are not zones here: nothing may depend on the host's (T1).
///
/// # Errors
///
/// [`TimeError::UnknownZone`].
pub fn parse_zone(name: &str) -> Result<TimeZone, TimeError> {
    static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
    let unknown = || TimeError::UnknownZone { name: name.to_owned() };
    let trimmed = name.trim();
    if trimmed.eq_ignore_ascii_case("z") || trimmed.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    if trimmed.starts_with(['+', '-']) {
        let mut cursor = Cursor { bytes: trimmed.as_bytes(), at: 0 };
        let seconds = cursor.offset_seconds().filter(|_| cursor.at_end()).ok_or_else(unknown)?;
        let offset = i32::try_from(seconds).ok().and_then(|s| Offset::from_seconds(s).ok()).ok_or_else(unknown)?;
        return Ok(TimeZone::fixed(offset));
    }
    DATABASE.get_or_init(TimeZoneDatabase::bundled).get(trimmed).map_err(|_| unknown())
}

/// The name of a zone as [`parse_zone`] reads it.
pub fn zone_name(zone: &TimeZone) -> String {
    match (zone.iana_name(), zone.to_fixed_offset()) {
        (Some(name), _) => name.to_owned(),
        (None, Ok(offset)) => offset.to_string(),
        (None, Err(_)) => "?".to_owned(),
    }
}

/// What a wall clock shows: a date and the time since its midnight. Any pair is valid, whether or not a clock in some
/// zone ever showed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Local {
    /// Days since 1970-01-01.
    pub day: i64,
    /// Time since midnight, `0 <= time_us < 24 h`.
    pub time_us: i64,
}

/// What to make of a wall-clock time that never was, because clocks were put forward over it. One that was twice always
/// means the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// As much later as the clock jumped: 02:30 in a gap from 02:00 to 03:00 is 03:30. RFC 5545's rule, for texts.
    Shift,
    /// The instant of the jump, the first one not before it on the clock. For starts of days.
    Jump,
}

/// How far clocks in `zone` were ahead of UTC at `us`. Beyond the years -9999 to 9999, as at that edge.
fn offset_us(zone: &TimeZone, us: i64) -> i64 {
    if let Ok(fixed) = zone.to_fixed_offset() {
        return i64::from(fixed.seconds()) * SECOND_US;
    }
    let clamped = us.clamp(Timestamp::MIN.as_microsecond() + 1, Timestamp::MAX.as_microsecond());
    let timestamp = Timestamp::from_microsecond(clamped).unwrap_or(Timestamp::MAX);
    i64::from(zone.to_offset(timestamp).seconds()) * SECOND_US
}

/// What a clock in `zone` showed at `us`. Saturates within a day of the ends of the range.
pub fn to_local(zone: &TimeZone, us: i64) -> Local {
    let shown = us.saturating_add(offset_us(zone, us));
    Local { day: shown.div_euclid(DAY_US), time_us: shown.rem_euclid(DAY_US) }
}

/// When a clock in `zone` showed `local`; see [`Gap`] for times it never showed. `None` out of range.
pub fn to_instant(zone: &TimeZone, local: Local, gap: Gap) -> Option<i64> {
    // The midnight before the first instant of the range lies outside it.
    let shown = i64::try_from(i128::from(local.day) * i128::from(DAY_US) + i128::from(local.time_us)).ok()?;
    if let Ok(fixed) = zone.to_fixed_offset() {
        return shown.checked_sub(i64::from(fixed.seconds()) * SECOND_US);
    }
    let Some(date) = civil_date(local.day) else {
        return shown.checked_sub(offset_us(zone, shown));
    };
    // Offsets change at whole seconds, so the fraction plays no part in finding one.
    let seconds = local.time_us / SECOND_US;
    let at = |n: i64| i8::try_from(n).unwrap_or(0); // n < 60 by the type's contract
    let clock = date.at(at(seconds / 3600), at(seconds / 60 % 60), at(seconds % 60), 0);
    let minus = |offset: Offset| shown.checked_sub(i64::from(offset.seconds()) * SECOND_US);
    match zone.to_ambiguous_timestamp(clock).offset() {
        AmbiguousOffset::Unambiguous { offset } => minus(offset),
        AmbiguousOffset::Fold { before, .. } => minus(before),
        AmbiguousOffset::Gap { before, .. } => {
            let shifted = minus(before)?;
            match gap {
                Gap::Shift => Some(shifted),
                Gap::Jump => Some(last_jump(zone, shifted)),
            }
        }
    }
}

/// The last change of clocks at or before `us`.
fn last_jump(zone: &TimeZone, us: i64) -> i64 {
    let after = us.checked_add(1).and_then(|t| Timestamp::from_microsecond(t).ok());
    after.and_then(|t| zone.preceding(t).next()).map_or(us, |jump| jump.timestamp().as_microsecond())
}

/// The date of a day number, within the years jiff knows.
fn civil_date(day: i64) -> Option<Date> {
    let (year, month, day) = civil_of_day(day);
    Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

/// Day number, from 1970-01-01, of a date in the proleptic Gregorian calendar. Years of at most seven digits.
pub fn day_of_civil(year: i64, month: i64, day: i64) -> i64 {
    // Count years from March, so that the leap day comes last and months before it have fixed lengths.
    let years = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let era = years.div_euclid(400);
    let year_of_era = years.rem_euclid(400);
    let day_of_year = (153 * months + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month (1 to 12) and day of month of a day number; the inverse of [`day_of_civil`].
pub fn civil_of_day(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * day_of_year + 2) / 153;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * months + 2) / 5 + 1)
}

/// Days in a month of the proleptic Gregorian calendar.
fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    day_of_civil(next_year, next_month, 1) - day_of_civil(year, month, 1)
}

// ---------------------------------------------------------------------------------------------------------------------
// Texts
// ---------------------------------------------------------------------------------------------------------------------

/// The instant a time text names.
///
/// Read are `YYYY-MM-DD`, then optionally `T` or a space and `HH:MM[:SS[.fraction]]`, then optionally a zone: `Z`, an
/// offset `+HH[[:]MM[:SS]]`, a name (`2024-01-15 10:30:00 Europe/Berlin`), or an offset and the name it belongs to in
/// brackets, as Java prints it. White space around the text is skipped. A date alone is its midnight. A text without a
/// zone is read in `zone`. Where clocks were put forward over the time named, it means as much later as they
/// jumped; where they were put back, the first of the two. Years of other than four digits need a sign, and `:60` is the
/// second after `:59`. Digits of the fraction beyond the sixth are cut off.
///
/// # Errors
///
/// [`TimeError::Malformed`], [`TimeError::Range`], [`TimeError::UnknownZone`].
///
/// ```
/// let berlin = highwater::time::parse_zone("Europe/Berlin")?;
/// assert_eq!(highwater::time::parse_time("1970-01-01 01:00:00", &berlin)?, 0);
/// assert_eq!(highwater::time::parse_time("1969-12-31T23:59:59.5Z", &berlin)?, -500_000);
/// # Ok::<(), highwater::time::TimeError>(())
/// ```
pub fn parse_time(text: &str, zone: &TimeZone) -> Result<i64, TimeError> {
    parse(text, Some(zone))
}

/// As [`parse_time`], for texts that must say their zone themselves.
///
/// # Errors
///
/// Also [`TimeError::NoZone`].
pub fn parse_instant(text: &str) -> Result<i64, TimeError> {
    parse(text, None)
}

fn parse(text: &str, zone: Option<&TimeZone>) -> Result<i64, TimeError> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let malformed = |expected| TimeError::Malformed { text: text.to_owned(), expected };
    let range = || TimeError::Range { value: text.to_owned() };

    let mut cursor = Cursor { bytes: trimmed.as_bytes(), at: 0 };
    let day = cursor.date().ok_or_else(|| malformed("a date as YYYY-MM-DD"))?;
    let mut time_us = 0;
    if cursor.clock_follows() {
        cursor.at += 1;
        time_us = cursor.clock().ok_or_else(|| malformed("a time of day as HH:MM:SS after the date"))?;
    }
    // Only `:60` reaches the next day.
    let local = Local { day: day + time_us / DAY_US, time_us: time_us % DAY_US };

    while cursor.peek() == Some(b' ') {
        cursor.at += 1;
    }
    if cursor.at_end() {
        let zone = zone.ok_or_else(|| TimeError::NoZone { text: text.to_owned() })?;
        return to_instant(zone, local, Gap::Shift).ok_or_else(range);
    }
    let rest = &trimmed[cursor.at..];
    match rest.as_bytes()[0] {
        b'Z' | b'z' if rest.len() == 1 => to_instant(&TimeZone::UTC, local, Gap::Shift).ok_or_else(range),
        b'+' | b'-' => {
            let seconds = cursor.offset_seconds().ok_or_else(|| malformed("an offset as +HH:MM"))?;
            let us = to_instant(&TimeZone::UTC, local, Gap::Shift)
                .and_then(|us| us.checked_sub(seconds * SECOND_US))
                .ok_or_else(range)?;
            if cursor.at_end() {
                return Ok(us);
            }
            let name = bracketed(&trimmed[cursor.at..]).ok_or_else(|| malformed("nothing after the offset"))?;
            match offset_us(&parse_zone(name)?, us) == seconds * SECOND_US {
                true => Ok(us),
                false => Err(malformed("the offset that the zone in brackets had then")),
            }
        }
        _ => {
            let name = bracketed(rest).unwrap_or(rest);
            if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                return Err(malformed("a zone, or nothing, after the time"));
            }
            to_instant(&parse_zone(name)?, local, Gap::Shift).ok_or_else(range)
        }
    }
}

fn bracketed(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']')
}

/// Reads a text byte by byte. Each method reads one thing, or gives `None` and may leave the cursor anywhere.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn digit(&mut self) -> Option<i64> {
        let digit = self.peek().filter(u8::is_ascii_digit)?;
        self.at += 1;
        Some(i64::from(digit - b'0'))
    }

    /// Exactly two digits, at most `max`.
    fn two(&mut self, max: i64) -> Option<i64> {
        let value = self.digit()? * 10 + self.digit()?;
        (value <= max).then_some(value)
    }

    /// The day number of `YYYY-MM-DD`, or of a sign and a year of four to six digits.
    fn date(&mut self) -> Option<i64> {
        let sign = match self.peek()? {
            b'-' => -1,
            _ => 1,
        };
        let signed = self.skip(b'-') || self.skip(b'+');
        let start = self.at;
        let mut year = 0;
        while self.at - start < 6 {
            match self.digit() {
                Some(digit) => year = year * 10 + digit,
                None => break,
            }
        }
        let digits = self.at - start;
        if digits < 4 || (digits > 4 && !signed) || !self.skip(b'-') {
            return None;
        }
        let year = sign * year;
        let month = self.two(12)?;
        if !self.skip(b'-') {
            return None;
        }
        let day = self.two(31)?;
        (month >= 1 && day >= 1 && day <= days_in_month(year, month)).then(|| day_of_civil(year, month, day))
    }

    /// Whether a separator and a digit follow, so that what comes is a time of day and not a zone's name.
    fn clock_follows(&self) -> bool {
        matches!(self.peek(), Some(b'T' | b't' | b' ')) && self.bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit)
    }

    /// `HH:MM[:SS[.fraction]]` in microseconds; with a second of 60, up to a second more than a day.
    fn clock(&mut self) -> Option<i64> {
        let hour = self.two(23)?;
        if !self.skip(b':') {
            return None;
        }
        let minute = self.two(59)?;
        let mut us = hour * HOUR_US + minute * MINUTE_US;
        if self.skip(b':') {
            us += self.two(60)? * SECOND_US;
            if self.skip(b'.') {
                us += self.fraction()?;
            }
        }
        Some(us)
    }

    /// One or more digits after the point, cut off after the sixth.
    fn fraction(&mut self) -> Option<i64> {
        let mut us = self.digit()? * 100_000;
        let mut unit = 10_000;
        while let Some(digit) = self.digit() {
            us += digit * unit;
            unit /= 10;
        }
        Some(us)
    }

    /// `±HH[[:]MM[:SS]]` in seconds.
    fn offset_seconds(&mut self) -> Option<i64> {
        let sign = match self.peek()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.at += 1;
        let mut seconds = self.two(23)? * 3600;
        let colon = self.skip(b':');
        if colon || self.peek().is_some_and(|b| b.is_ascii_digit()) {
            seconds += self.two(59)? * 60;
            if colon && self.skip(b':') {
                seconds += self.two(59)?;
            }
        }
        Some(sign * seconds)
    }
}

/// An instant as RFC 3339 in UTC, with six digits of fraction if it is not zero: `2024-01-15T10:30:00Z`. Years outside 0
/// to 9999 have a sign and at least four digits. [`parse_instant`] reads every result back.
pub fn format_us(us: i64) -> String {
    FormatUs(us).to_string()
}

/// Displays an instant as [`format_us`] does, without a `String` of its own.
#[derive(Debug, Clone, Copy)]
pub struct FormatUs(pub i64);

impl fmt::Display for FormatUs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Local { day, time_us } = to_local(&TimeZone::UTC, self.0);
        let (year, month, day) = civil_of_day(day);
        match year {
            0..=9999 => write!(f, "{year:04}")?,
            _ => write!(f, "{year:+05}")?,
        }
        let seconds = time_us / SECOND_US;
        write!(f, "-{month:02}-{day:02}T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        match time_us % SECOND_US {
            0 => f.write_str("Z"),
            fraction => write!(f, ".{fraction:06}Z"),
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Integers
// ---------------------------------------------------------------------------------------------------------------------

/// What an integer that stands for a time counts since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Seconds, `TIMESTAMP(0)`.
    Seconds,
    /// Milliseconds, `TIMESTAMP(3)`.
    Millis,
    /// Microseconds, `TIMESTAMP(6)`.
    Micros,
    /// Nanoseconds, `TIMESTAMP(9)`. The last three digits are cut off, toward the past.
    Nanos,
}

impl Unit {
    /// Every unit, coarsest first.
    pub const ALL: [Self; 4] = [Self::Seconds, Self::Millis, Self::Micros, Self::Nanos];

    /// The instant `value` counts up to.
    ///
    /// # Errors
    ///
    /// [`TimeError::Range`] if no `i64` of microseconds holds it.
    pub fn to_us(self, value: i64) -> Result<i64, TimeError> {
        let us = match self {
            Self::Seconds => value.checked_mul(SECOND_US),
            Self::Millis => value.checked_mul(1_000),
            Self::Micros => Some(value),
            Self::Nanos => Some(value.div_euclid(1_000)),
        };
        us.ok_or_else(|| TimeError::Range { value: format!("{value} {self}") })
    }

    /// How a column of it is declared.
    pub fn declared(self) -> &'static str {
        match self {
            Self::Seconds => "TIMESTAMP(0)",
            Self::Millis => "TIMESTAMP(3)",
            Self::Micros => "TIMESTAMP(6)",
            Self::Nanos => "TIMESTAMP(9)",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Micros => "µs",
            Self::Nanos => "ns",
        })
    }
}

/// The unit that integers declared as `declared` are more likely to be in, judged by a source's first rows (T8); `None`
/// if they look right, or wrong in every unit.
///
/// Their median speaks for them. It is absurd if read as declared it falls outside the years 1800 to 2299, or within 60 days
/// of 1970, where a thousandth of a present-day time lands; another unit is likely if it puts it in 1980 to 2099.
/// Small numbers, as in examples that count from 0, are absurd in every unit and give no hint.
pub fn likely_unit(first: &[i64], declared: Unit) -> Option<Unit> {
    if first.is_empty() {
        return None;
    }
    let mut sorted = first.to_vec();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2];
    let year_in = |unit: Unit| unit.to_us(median).ok().map(|us| civil_of_day(us.div_euclid(DAY_US)).0);
    let absurd = match declared.to_us(median) {
        Ok(us) => us.unsigned_abs() < 60 * DAY_US.unsigned_abs() || !(1800..2300).contains(&year_in(declared)?),
        Err(_) => true,
    };
    if !absurd {
        return None;
    }
    Unit::ALL.into_iter().find(|&unit| unit != declared && year_in(unit).is_some_and(|y| (1980..2100).contains(&y)))
}

/// An exact length as SQL writes it inside `INTERVAL '…'`: `1 hour 30 minutes`, `1.5 seconds`, `0 seconds`.
pub fn length_text(us: i64) -> String {
    let mut parts = Vec::new();
    for (count, unit) in [(us / HOUR_US, "hour"), (us % HOUR_US / MINUTE_US, "minute")] {
        match count {
            0 => {}
            1 | -1 => parts.push(format!("{count} {unit}")),
            _ => parts.push(format!("{count} {unit}s")),
        }
    }
    let rest = us % MINUTE_US;
    let seconds = (rest / SECOND_US).unsigned_abs();
    let sign = if rest < 0 { "-" } else { "" };
    match (rest % SECOND_US).unsigned_abs() {
        0 if rest == 0 && !parts.is_empty() => {}
        0 => parts.push(format!("{sign}{seconds} second{}", if seconds == 1 { "" } else { "s" })),
        fraction => {
            let digits = format!("{fraction:06}");
            parts.push(format!("{sign}{seconds}.{} seconds", digits.trim_end_matches('0')));
        }
    }
    parts.join(" ")
}

/// [`likely_unit`] as a sentence for people.
pub fn unit_hint(first: &[i64], declared: Unit) -> Option<String> {
    likely_unit(first, declared).map(|unit| {
        format!("times declared {} look like {unit}: declare the column {}", declared.declared(), unit.declared())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> i64 {
        parse_time(text, &TimeZone::UTC).unwrap()
    }

    fn zone(name: &str) -> TimeZone {
        parse_zone(name).unwrap()
    }

    #[test]
    fn texts_read_as_the_instant_they_name() {
        for (text, want) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:01Z", 1_000_000),
            ("1970-01-01t00:00:01z", 1_000_000),
            ("  1970-01-01 00:00:01.25 ", 1_250_000),
            ("1970-01-01 00:00", 0),
            ("1970-01-01 00:00:00.1234569", 123_456),
            ("1969-12-31 23:59:59.999999", -1),
            ("1970-01-01T05:30:00+05:30", 0),
            ("1970-01-01T05:30:00 +0530", 0),
            ("1969-12-31T19:00:00-05", 0),
            ("1970-01-01 01:00:00 Europe/Berlin", 0),
            ("1970-01-01T01:00:00+01:00[Europe/Berlin]", 0),
            ("1970-01-01T01:00:00[Europe/Berlin]", 0),
            ("1970-01-01 UTC", 0),
            ("2016-12-31T23:59:60Z", utc("2017-01-01")),
            ("2024-02-29", 1_709_164_800_000_000),
            ("-0001-12-31T00:00:00Z", day_of_civil(-1, 12, 31) * DAY_US),
        ] {
            assert_eq!(parse_time(text, &TimeZone::UTC), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "x",
            "2024",
            "2024-1-1",
            "2024-13-01",
            "2024-00-01",
            "2024-01-32",
            "2023-02-29",
            "1900-02-29",
            "12024-01-01",
            "2024-01-01T",
            "2024-01-01T24:00:00",
            "2024-01-01T10:60:00",
            "2024-01-01T10",
            "2024-01-01T10:00:00.",
            "2024-01-01T10:00:00+",
            "2024-01-01T10:00:00+1",
            "2024-01-01T10:00:00Z2",
            "2024-01-01T10:00:00+25:00",
            "2024-01-01T10:00:00+01:00x",
            "2024-07-01T10:00:00+01:00[Europe/Berlin]",
            "2024-01-01é",
            "2024-01-01 10:00:00,5",
            "1700000000",
        ] {
            let got = parse_time(text, &TimeZone::UTC);
            assert!(matches!(got, Err(TimeError::Malformed { .. } | TimeError::UnknownZone { .. })), "{text}: {got:?}");
        }
        assert_eq!(
            parse_time("2024-01-01 10:00:00 Mars/Olympus", &TimeZone::UTC),
            Err(TimeError::UnknownZone { name: "Mars/Olympus".into() })
        );
        assert_eq!(parse_instant("2024-01-01"), Err(TimeError::NoZone { text: "2024-01-01".into() }));
        assert_eq!(parse_instant("1970-01-02Z"), Ok(DAY_US));
    }

    #[test]
    fn c75_far_dates_are_exact_or_refused_and_never_wrap() {
        assert_eq!(utc("9999-12-31T23:59:59.999999Z"), 253_402_300_799_999_999);
        assert_eq!(utc("0001-01-01"), -62_135_596_800_000_000);
        assert_eq!(utc("2262-04-12"), 9_223_372_800_000_000);
        for text in ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2262-04-12T00:00:00Z"] {
            assert_eq!(format_us(utc(text)), text);
        }
        assert!(matches!(parse_instant("+300000-01-01Z"), Err(TimeError::Range { .. })));
        assert!(matches!(parse_instant("-300000-01-01Z"), Err(TimeError::Range { .. })));
        // A zone with rules, beyond the years its data covers.
        assert_eq!(parse_time("9999-12-31T23:00:00", &zone("Europe/Berlin")), Ok(utc("9999-12-31T22:00:00")));
        assert!(matches!(Unit::Seconds.to_us(i64::MAX), Err(TimeError::Range { .. })));
        assert!(matches!(Unit::Millis.to_us(i64::MIN), Err(TimeError::Range { .. })));
    }

    #[test]
    fn every_instant_reads_back_as_it_was_written() {
        for us in
            [i64::MIN, i64::MIN + 1, -1, 0, 1, 999_999, i64::MAX, -62_167_219_200_000_001, 253_402_300_800_000_000]
        {
            assert_eq!(parse_instant(&format_us(us)), Ok(us), "{}", format_us(us));
        }
        assert_eq!(format_us(1_705_314_600_000_000), "2024-01-15T10:30:00Z");
        assert_eq!(format_us(-1), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn times_that_never_were_shift_and_times_that_were_twice_are_the_first() {
        let denver = zone("America/Denver");
        assert_eq!(parse_time("2024-03-10 02:30:00", &denver), Ok(utc("2024-03-10T09:30:00Z")));
        assert_eq!(parse_time("2024-11-03 01:30:00", &denver), Ok(utc("2024-11-03T07:30:00Z")));
        // The last fraction of a second before the gap is not in it.
        assert_eq!(parse_time("2024-03-10 01:59:59.999999", &denver), Ok(utc("2024-03-10T08:59:59.999999Z")));
    }

    #[test]
    fn a_day_starts_at_the_jump_if_midnight_was_skipped() {
        let day = |y, m, d| Local { day: day_of_civil(y, m, d), time_us: 0 };
        let toronto = zone("America/Toronto");
        // 23:30 on the 30th became 00:30 on the 31st.
        assert_eq!(to_instant(&toronto, day(1919, 3, 31), Gap::Jump), Some(utc("1919-03-31T04:30:00Z")));
        assert_eq!(to_instant(&toronto, day(1919, 3, 31), Gap::Shift), Some(utc("1919-03-31T05:00:00Z")));
        let apia = zone("Pacific/Apia");
        assert_eq!(to_instant(&apia, day(2011, 12, 30), Gap::Jump), Some(utc("2011-12-30T10:00:00Z")));
        assert_eq!(to_instant(&apia, day(2011, 12, 31), Gap::Jump), Some(utc("2011-12-30T10:00:00Z")));
    }

    #[test]
    fn zones_have_names_and_offsets() {
        for (name, want) in
            [("UTC", "UTC"), ("z", "UTC"), ("+05:30", "+05:30"), ("-03", "-03"), ("europe/berlin", "Europe/Berlin")]
        {
            assert_eq!(zone_name(&zone(name)), want);
            assert_eq!(parse_zone(&zone_name(&zone(name))), Ok(zone(name)));
        }
        for name in ["", "local", "system", "+", "+99", "+05:30x", "Berlin"] {
            assert!(parse_zone(name).is_err(), "{name}");
        }
    }

    #[test]
    fn integers_of_each_unit() {
        assert_eq!(Unit::Seconds.to_us(-1), Ok(-1_000_000));
        assert_eq!(Unit::Millis.to_us(1), Ok(1_000));
        assert_eq!(Unit::Micros.to_us(i64::MIN), Ok(i64::MIN));
        assert_eq!(Unit::Nanos.to_us(-1), Ok(-1));
        assert_eq!(Unit::Nanos.to_us(1_999), Ok(1));
    }

    #[test]
    fn c76_wrong_unit_gets_a_hint() {
        let seconds = [1_700_000_000, 1_700_000_060, 0];
        let millis = [1_700_000_000_000; 5];
        assert_eq!(likely_unit(&seconds, Unit::Millis), Some(Unit::Seconds));
        assert_eq!(likely_unit(&seconds, Unit::Micros), Some(Unit::Seconds));
        assert_eq!(likely_unit(&millis, Unit::Seconds), Some(Unit::Millis));
        assert_eq!(likely_unit(&millis, Unit::Micros), Some(Unit::Millis));
        assert_eq!(likely_unit(&[1_700_000_000_000_000_000], Unit::Micros), Some(Unit::Nanos));
        assert_eq!(likely_unit(&[1_700_000_000_000_000_000], Unit::Seconds), Some(Unit::Nanos));
        for unit in Unit::ALL {
            assert_eq!(likely_unit(&[], unit), None);
            assert_eq!(likely_unit(&[0, 1, 60, -5], unit), None);
        }
        assert_eq!(likely_unit(&seconds[..2], Unit::Seconds), None);
        assert_eq!(likely_unit(&millis, Unit::Millis), None);
        assert!(unit_hint(&millis, Unit::Seconds).unwrap().contains("look like ms"));
    }

    proptest::proptest! {
        #[test]
        fn dates_and_day_numbers_are_inverse(day in -106_751_991i64..=106_751_991) {
            let (year, month, of_month) = civil_of_day(day);
            proptest::prop_assert_eq!(day_of_civil(year, month, of_month), day);
            if let Some(date) = civil_date(day) {
                let epoch = jiff::civil::date(1970, 1, 1);
                proptest::prop_assert_eq!(epoch.until((jiff::Unit::Day, date)).unwrap().get_days(), day as i32);
            }
        }

        #[test]
        fn formatting_agrees_with_jiff(us in -377_000_000_000_000_000i64..253_000_000_000_000_000) {
            let ours = format_us(us);
            proptest::prop_assert_eq!(parse_instant(&ours), Ok(us));
            if us > -62_167_219_200_000_000 {
                let theirs: jiff::Timestamp = ours.parse().unwrap();
                proptest::prop_assert_eq!(theirs.as_microsecond(), us);
            }
        }

        #[test]
        fn local_time_agrees_with_jiff(us in -4_000_000_000_000_000i64..8_000_000_000_000_000, pick in 0usize..5) {
            let zone = zone(["America/Denver", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "Europe/Dublin"][pick]);
            let local = to_local(&zone, us);
            let shown = zone.to_datetime(jiff::Timestamp::from_microsecond(us).unwrap());
            let (year, month, day) = civil_of_day(local.day);
            proptest::prop_assert_eq!((i64::from(shown.year()), i64::from(shown.month()), i64::from(shown.day())), (year, month, day));
            // Reading it back gives the same instant, or an earlier one that showed the same time.
            let back = to_instant(&zone, local, Gap::Shift).unwrap();
            proptest::prop_assert!(back <= us && to_local(&zone, back) == local);
        }
    }
}
