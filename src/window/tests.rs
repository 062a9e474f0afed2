//! Windows against cases with known answers, and against an oracle that walks the grid.
//!
//! The oracle lists windows from their definition, one multiple after the other, and looks through the list. For
//! calendar windows it takes boundaries from jiff's own start of day. It catches errors of rounding, sharing, order and
//! clocks; it shares the reading of T2 with the code, so what T2 means is pinned by the cases.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::time::{
    DAY_US, HOUR_US, MINUTE_US, SECOND_US, civil_of_day, day_of_civil, format_us, parse_time, parse_zone,
};

const S: i64 = SECOND_US;

fn utc(text: &str) -> i64 {
    parse_time(text, &TimeZone::UTC).unwrap()
}

fn window(start: &str, end: &str) -> Window {
    Window::new(utc(start), utc(end))
}

fn seconds(windows: &[Window]) -> Vec<(i64, i64)> {
    windows.iter().map(|w| (w.start / S, w.end / S)).collect()
}

fn spec(kind: WindowKind) -> WindowSpec {
    WindowSpec::try_new(kind, Span::ZERO, None).unwrap()
}

fn tumble(size: Span) -> WindowKind {
    WindowKind::Tumble { size }
}

fn hop(slide: Span, size: Span) -> WindowKind {
    WindowKind::Hop { slide, size }
}

fn hop_us(slide: i64, size: i64) -> WindowKind {
    hop(Span::Micros(slide), Span::Micros(size))
}

fn cumulate(step: Span, size: Span) -> WindowKind {
    WindowKind::Cumulate { step, size }
}

fn zoned(kind: WindowKind, zone: &str) -> WindowSpec {
    WindowSpec::try_new(kind, Span::ZERO, Some(parse_zone(zone).unwrap())).unwrap()
}

fn only(spec: &WindowSpec, ts: i64) -> Window {
    let windows = spec.windows_of(ts);
    assert_eq!(windows.len(), 1, "{spec}: {} is in {windows:?}", format_us(ts));
    windows[0]
}

// ---- cases -----------------------------------------------------------------------------------------------------------

#[test]
fn c01_before_1970_on_and_off_the_boundary() {
    let minute = spec(tumble(Span::Micros(MINUTE_US)));
    for (ts, start) in [(-120, -120), (-61, -120), (-60, -60), (-1, -60), (0, 0)] {
        assert_eq!(only(&minute, ts * S), Window::new(start * S, (start + 60) * S), "ts={ts}");
    }
}

#[test]
fn c03_hop_near_zero() {
    let hop = spec(hop(Span::Micros(5 * S), Span::Micros(15 * S)));
    assert_eq!(seconds(&hop.windows_of(2 * S)), [(-10, 5), (-5, 10), (0, 15)]);
}

#[test]
fn c04_boundary_row() {
    let ten = spec(tumble(Span::Micros(10 * S)));
    assert_eq!(seconds(&ten.windows_of(0)), [(0, 10)]);
    assert_eq!(seconds(&ten.windows_of(9_999_999)), [(0, 10)]);
    assert_eq!(seconds(&ten.windows_of(10 * S)), [(10, 20)]);
}

#[test]
fn c05_hop_size_not_a_multiple_of_slide() {
    let hop = spec(hop(Span::Micros(4 * S), Span::Micros(10 * S)));
    assert_eq!(seconds(&hop.windows_of(9 * S)), [(0, 10), (4, 14), (8, 18)]);
    assert_eq!(seconds(&hop.windows_of(10 * S)), [(4, 14), (8, 18)]);
    assert_eq!(seconds(&hop.windows_of(12 * S)), [(4, 14), (8, 18), (12, 22)]);
    // At most two cuts per slide: 700 ms in 1,600 ms shares slices of 200 and 500, not of their gcd.
    let odd = spec(hop_us(700_000, 1_600_000));
    assert_eq!(odd.slices_of_window(Window::new(0, 1_600_000)).len(), 5);
}

#[test]
fn c07_zero_or_negative_interval() {
    let second = Span::Micros(S);
    for bad in [Span::Micros(0), Span::Micros(-S), Span::Days(0), Span::Days(-1), Span::Months(-1)] {
        for (kind, argument) in [
            (tumble(bad), Argument::Size),
            (hop(second, bad), Argument::Size),
            (hop(bad, second), Argument::Slide),
            (hop(bad, bad), Argument::Slide),
            (cumulate(second, bad), Argument::Size),
            (cumulate(bad, second), Argument::Step),
        ] {
            let error = WindowSpec::try_new(kind, Span::ZERO, None).unwrap_err();
            assert_eq!(error, WindowError::NotPositive { argument, length: bad }, "{kind:?}");
            let error = crate::Error::from(error);
            assert!(error.message().contains(&argument.to_string()) && error.hint().is_some(), "{error}");
        }
    }
    for gap_us in [0, -S] {
        let error = WindowSpec::try_new(WindowKind::Session { gap_us }, Span::ZERO, None).unwrap_err();
        assert_eq!(error.argument(), Argument::Gap);
    }
}

#[test]
fn c08_offset_is_used_for_closing_too() {
    let hourly = WindowSpec::try_new(tumble(Span::Micros(HOUR_US)), Span::Micros(30 * MINUTE_US), None).unwrap();
    let at = |minutes: i64| minutes * MINUTE_US;
    for (ts, start) in [(10, -30), (40, 30), (80, 30), (100, 90)] {
        assert_eq!(only(&hourly, at(ts)), Window::new(at(start), at(start + 60)), "minute {ts}");
    }
    assert_eq!(hourly.next_end(at(60)), Some(at(90)));
    assert_eq!(hourly.prev_end(at(90)), Some(at(90)));
    let closed: Vec<_> = hourly.ends_between(0, at(90)).collect();
    assert_eq!(closed, [Window::new(at(-30), at(30)), Window::new(at(30), at(90))]);
}

#[test]
fn c10_fractional_hour_zone() {
    let daily = zoned(tumble(Span::Days(1)), "Asia/Kolkata");
    let new_year = window("2023-12-31T18:30:00Z", "2024-01-01T18:30:00Z");
    assert_eq!(only(&daily, utc("2023-12-31T18:30:00Z")), new_year);
    assert_eq!(only(&daily, utc("2024-01-01T06:30:00Z")), new_year);
    assert_eq!(only(&daily, utc("2023-12-31T18:29:59Z")).end, new_year.start);
    // Hours follow the zone too.
    let hourly = zoned(tumble(Span::Micros(HOUR_US)), "Asia/Kolkata");
    assert_eq!(only(&hourly, utc("2024-01-01T06:29:59Z")), window("2024-01-01T05:30:00Z", "2024-01-01T06:30:00Z"));
}

#[test]
fn c11_spring_forward_23_h_day() {
    let daily = zoned(tumble(Span::Days(1)), "America/Denver");
    let day = window("2024-03-10T07:00:00Z", "2024-03-11T06:00:00Z");
    assert_eq!(only(&daily, utc("2024-03-10T06:59:59Z")), window("2024-03-09T07:00:00Z", "2024-03-10T07:00:00Z"));
    assert_eq!(only(&daily, utc("2024-03-10T07:00:00Z")), day);
    assert_eq!(only(&daily, utc("2024-03-11T05:59:59Z")), day);
    for ts in ["2024-03-11T06:00:00Z", "2024-03-11T06:30:00Z"] {
        assert_eq!(only(&daily, utc(ts)), window("2024-03-11T06:00:00Z", "2024-03-12T06:00:00Z"));
    }
    // And the 25 hours of autumn.
    assert_eq!(only(&daily, utc("2024-11-03T12:00:00Z")), window("2024-11-03T06:00:00Z", "2024-11-04T07:00:00Z"));
}

#[test]
fn c13_half_hours_skipped_midnights_and_skipped_days() {
    let lord_howe = zoned(tumble(Span::Days(1)), "Australia/Lord_Howe");
    let short = window("2024-10-05T13:30:00Z", "2024-10-06T13:00:00Z");
    assert_eq!(only(&lord_howe, utc("2024-10-06T00:00:00Z")), short);

    let sao_paulo = zoned(tumble(Span::Days(1)), "America/Sao_Paulo");
    let no_midnight = window("2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z");
    assert_eq!(only(&sao_paulo, no_midnight.start), no_midnight);
    assert_eq!(only(&sao_paulo, no_midnight.start - 1).end, no_midnight.start);

    let apia = zoned(tumble(Span::Days(1)), "Pacific/Apia");
    let jump = utc("2011-12-30T10:00:00Z");
    let before = only(&apia, jump - 1);
    let after = only(&apia, jump);
    assert_eq!((before.end, after.start), (jump, jump));
    assert!(before.start < before.end && after.start < after.end);
    let ends: Vec<_> = apia.ends_between(before.start, after.end).collect();
    assert_eq!(ends, [before, after], "the day that never was is no window");
}

#[test]
fn c15_weeks_and_months() {
    let ts = utc("2024-03-13T12:00:00Z");
    let week = Span::Days(7);
    assert_eq!(only(&spec(tumble(week)), ts), window("2024-03-07", "2024-03-14"));
    let monday = window("2024-03-11", "2024-03-18");
    assert_eq!(only(&WindowSpec::try_new(tumble(week), Span::Days(4), None).unwrap(), ts), monday);
    assert_eq!(only(&zoned(tumble(week), "UTC"), ts), monday);
    assert_eq!(only(&zoned(tumble(week), "Europe/Berlin"), ts), window("2024-03-10T23:00:00Z", "2024-03-17T23:00:00Z"));
    let sunday = WindowSpec::try_new(tumble(week), Span::Days(-1), Some(TimeZone::UTC)).unwrap();
    assert_eq!(only(&sunday, ts), window("2024-03-10", "2024-03-17"));

    assert_eq!(only(&spec(tumble(Span::Months(1))), ts), window("2024-03-01", "2024-04-01"));
    assert_eq!(only(&spec(tumble(Span::Months(3))), ts), window("2024-01-01", "2024-04-01"));
    assert_eq!(only(&spec(tumble(Span::Months(12))), ts), window("2024-01-01", "2025-01-01"));
    assert_eq!(only(&spec(tumble(Span::Months(1))), utc("1969-12-31T23:59:59Z")), window("1969-12-01", "1970-01-01"));
    let berlin = zoned(tumble(Span::Months(1)), "Europe/Berlin");
    assert_eq!(only(&berlin, ts), window("2024-02-29T23:00:00Z", "2024-03-31T22:00:00Z"));
    let fiscal = WindowSpec::try_new(tumble(Span::Months(12)), Span::Months(3), None).unwrap();
    assert_eq!(only(&fiscal, ts), window("2023-04-01", "2024-04-01"));
    let from_the_15th = WindowSpec::try_new(tumble(Span::Months(1)), Span::Days(14), None).unwrap();
    assert_eq!(only(&from_the_15th, ts), window("2024-02-15", "2024-03-15"));
}

#[test]
fn c40_equality_is_not_behind() {
    let ten = spec(tumble(Span::Micros(10 * S)));
    assert_eq!(fate(only(&ten, 10 * S).end, 10 * S, 0), Fate::OnTime);
}

#[test]
fn c75_far_times_are_in_windows_or_in_none_and_never_wrap() {
    let daily = spec(tumble(Span::Days(1)));
    let monthly = zoned(tumble(Span::Months(1)), "Europe/Berlin");
    for ts in ["9999-12-31", "0001-01-01", "2262-04-12"] {
        assert!(only(&daily, utc(ts)).contains(utc(ts)));
        assert!(only(&monthly, utc(ts)).contains(utc(ts)));
    }
    for spec in
        [daily, monthly, spec(hop(Span::Micros(4), Span::Micros(10))), spec(cumulate(Span::Days(1), Span::Months(12)))]
    {
        for ts in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
            assert_eq!(spec.slice_of(ts), None);
            assert!(spec.windows_of(ts).is_empty());
            assert!(spec.nearest_end(ts).is_some());
        }
        assert!(spec.next_end(i64::MIN).is_some() && spec.next_end(i64::MAX).is_none());
        assert!(spec.prev_end(i64::MAX).is_some() && spec.prev_end(i64::MIN).is_none());
        assert_eq!(spec.ends_between(i64::MIN, i64::MAX).take(3).count(), 3);
        assert_eq!(spec.windows_ending_at(i64::MAX), []);
    }
}

// ---- kinds and zones -------------------------------------------------------------------------------------------------

#[test]
fn a_slide_longer_than_the_size_leaves_gaps() {
    let gaps = spec(hop(Span::Micros(10), Span::Micros(3)));
    assert_eq!(gaps.windows_of(2), [Window::new(0, 3)]);
    assert_eq!(gaps.slice_of(3), None);
    assert_eq!(gaps.slice_of(-1), None);
    assert_eq!(gaps.windows_of(-8), [Window::new(-10, -7)]);
    let mut runs = Vec::new();
    Assigner::new(gaps).assign(&[0, 2, 3, 4, 9, 10, 1, 5], &mut runs);
    let bounds: Vec<_> = runs.iter().map(|run| (run.slice.map(|s| s.start), run.rows.clone())).collect();
    assert_eq!(bounds, [(Some(0), 0..2), (None, 2..5), (Some(10), 5..6), (Some(0), 6..7), (None, 7..8)]);
}

#[test]
fn cumulate_grows_to_its_size() {
    let spec = spec(cumulate(Span::Micros(2), Span::Micros(5)));
    assert_eq!(spec.windows_of(0), [Window::new(0, 2), Window::new(0, 4), Window::new(0, 5)]);
    assert_eq!(spec.windows_of(4), [Window::new(0, 5)]);
    assert_eq!(spec.windows_of(-1), [Window::new(-5, 0)]);
    let error = WindowSpec::try_new(cumulate(Span::Days(1), Span::Micros(HOUR_US)), Span::ZERO, None).unwrap_err();
    assert_eq!(error.argument(), Argument::Step);
}

#[test]
fn cumulate_by_the_hour_over_local_days() {
    let spec = zoned(cumulate(Span::Micros(2 * HOUR_US), Span::Days(1)), "America/Denver");
    // 23 hours: eleven steps of two and one of one. 25: twelve and one.
    for (noon, ends) in [("2024-03-10T18:00:00Z", 12), ("2024-11-03T18:00:00Z", 13), ("2024-07-01T18:00:00Z", 12)] {
        let last = *spec.windows_of(utc(noon)).last().unwrap();
        assert_eq!(spec.ends_between(last.start, last.end).count(), ends, "{noon}");
        assert!(spec.ends_between(last.start, last.end).all(|w| w.start == last.start));
    }
    let to_date = zoned(cumulate(Span::Days(1), Span::Months(1)), "Europe/Berlin");
    let windows = to_date.windows_of(utc("2024-03-30T12:00:00Z"));
    let start = utc("2024-02-29T23:00:00Z");
    assert_eq!(
        windows,
        [Window::new(start, utc("2024-03-30T23:00:00Z")), Window::new(start, utc("2024-03-31T22:00:00Z"))]
    );
}

#[test]
fn lengths_below_a_day_restart_at_local_midnight() {
    let spec = zoned(tumble(Span::Micros(6 * HOUR_US)), "America/Denver");
    let day = (utc("2024-03-10T07:00:00Z"), utc("2024-03-11T06:00:00Z"));
    let lengths: Vec<_> = spec.ends_between(day.0, day.1).map(|w| (w.end - w.start) / HOUR_US).collect();
    assert_eq!(lengths, [6, 6, 6, 5]);
    // A hop keeps its length across midnight.
    let rolling = zoned(hop(Span::Micros(HOUR_US), Span::Micros(2 * HOUR_US)), "Australia/Lord_Howe");
    assert!(rolling.windows_of(utc("2024-10-05T13:40:00Z")).iter().all(|w| w.end - w.start == 2 * HOUR_US));
}

#[test]
fn rolling_days_keep_local_midnights() {
    let week = zoned(hop(Span::Days(1), Span::Days(7)), "America/Denver");
    let windows = week.windows_of(utc("2024-03-10T12:00:00Z"));
    assert_eq!(windows.len(), 7);
    assert_eq!(windows[0], window("2024-03-04T07:00:00Z", "2024-03-11T06:00:00Z"));
    assert_eq!(windows[6], window("2024-03-10T07:00:00Z", "2024-03-17T06:00:00Z"));
    let month = zoned(hop(Span::Months(1), Span::Days(7)), "America/Denver");
    assert_eq!(only(&month, utc("2024-03-02")), window("2024-03-01T07:00:00Z", "2024-03-08T07:00:00Z"));
    assert!(month.windows_of(utc("2024-03-20")).is_empty());
}

#[test]
fn a_day_may_begin_at_another_local_hour() {
    let berlin = parse_zone("Europe/Berlin").unwrap();
    let business = WindowSpec::try_new(tumble(Span::Days(1)), Span::Micros(6 * HOUR_US), Some(berlin)).unwrap();
    // 06:00 on either side of the change of clocks.
    assert_eq!(only(&business, utc("2024-03-31T00:00:00Z")), window("2024-03-30T05:00:00Z", "2024-03-31T04:00:00Z"));
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let zone = || Some(parse_zone("Europe/Berlin").unwrap());
    let refused = |kind, offset, zone| WindowSpec::try_new(kind, offset, zone).unwrap_err();
    let (hour, day, month) = (Span::Micros(HOUR_US), Span::Days(1), Span::Months(1));
    let no = Span::ZERO;
    assert!(matches!(refused(tumble(Span::Micros(36 * HOUR_US)), no, zone()), WindowError::NotWholeDays { .. }));
    assert!(matches!(refused(hop(hour, day), no, zone()), WindowError::Units { argument: Argument::Slide, .. }));
    assert!(matches!(refused(hop(day, month), no, None), WindowError::Units { argument: Argument::Slide, .. }));
    assert!(matches!(
        refused(cumulate(month, Span::Days(400)), no, None),
        WindowError::Units { argument: Argument::Step, .. }
    ));
    assert!(matches!(refused(tumble(day), month, None), WindowError::OffsetInMonths { .. }));
    assert!(matches!(refused(tumble(day), month, zone()), WindowError::OffsetInMonths { .. }));
    assert!(matches!(
        refused(tumble(Span::Months(i64::MAX)), no, None),
        WindowError::TooLong { argument: Argument::Size }
    ));
    assert!(matches!(
        refused(tumble(day), Span::Days(i64::MIN), None),
        WindowError::TooLong { argument: Argument::Offset }
    ));
    assert!(matches!(
        refused(hop(Span::Micros(1), day), no, None),
        WindowError::TooMany { argument: Argument::Slide, .. }
    ));
    let session = WindowKind::Session { gap_us: S };
    assert!(matches!(refused(session, hour, None), WindowError::NotForSession { argument: Argument::Offset }));
    assert!(matches!(refused(session, no, zone()), WindowError::NotForSession { argument: Argument::Zone }));
}

#[test]
fn explain_shows_every_setting() {
    let berlin = Some(parse_zone("Europe/Berlin").unwrap());
    let hop = WindowSpec::try_new(hop(Span::Days(1), Span::Days(7)), Span::Micros(HOUR_US), berlin).unwrap();
    assert_eq!(hop.to_string(), "HOP slide 1 day, size 7 days, offset 1 hour, time zone Europe/Berlin");
    assert_eq!(spec(tumble(Span::Months(3))).to_string(), "TUMBLE size 3 months, time zone UTC");
    assert_eq!(spec(WindowKind::Session { gap_us: 5 * S }).to_string(), "SESSION gap 5 seconds");
}

#[test]
fn batch_plans_see_fixed_grids_only() {
    let grid = ExactGrid { origin_us: 5, period_us: 10, size_us: 20, step_us: None };
    let hop = WindowSpec::try_new(hop(Span::Micros(10), Span::Micros(20)), Span::Micros(-5), None).unwrap();
    assert_eq!(hop.exact(), Some(grid));
    assert_eq!(zoned(tumble(Span::Days(7)), "UTC").exact().unwrap().origin_us, 4 * DAY_US);
    assert!(zoned(tumble(Span::Days(1)), "Europe/Berlin").exact().is_none());
    assert!(spec(tumble(Span::Months(1))).exact().is_none());
}

// ---- properties ------------------------------------------------------------------------------------------------------

/// Checks every answer about `ts` against `all`, the windows around it in any order. `all` must hold every window that
/// starts or ends within two of the longest windows of `ts`.
fn check(spec: &WindowSpec, all: &[Window], ts: i64) -> Result<(), TestCaseError> {
    let mut want: Vec<_> = all.iter().copied().filter(|w| w.contains(ts)).collect();
    want.sort_by_key(|w| (w.end, w.start));
    want.dedup();
    prop_assert_eq!(spec.windows_of(ts), want.clone(), "windows of {}", ts);

    let ends = || all.iter().filter(|w| w.start < w.end).map(|w| w.end);
    prop_assert_eq!(spec.next_end(ts), ends().filter(|&end| end > ts).min());
    prop_assert_eq!(spec.prev_end(ts), ends().filter(|&end| end <= ts).max());

    let Some(slice) = spec.slice_of(ts) else {
        prop_assert!(want.is_empty());
        return Ok(());
    };
    prop_assert!(slice.contains(ts) && !want.is_empty());
    // Maximal: nothing starts or ends inside, something does at both ends.
    let cuts: std::collections::BTreeSet<_> = all.iter().flat_map(|w| [w.start, w.end]).collect();
    prop_assert!(cuts.contains(&slice.start) && cuts.contains(&slice.end));
    prop_assert_eq!(cuts.range(slice.start + 1..slice.end).next(), None);
    prop_assert_eq!(spec.first_end_of_slice(slice), want.first().map(|w| w.end));
    prop_assert_eq!(spec.last_end_of_slice(slice), want.last().map(|w| w.end));

    for window in want {
        let slices = spec.slices_of_window(window);
        prop_assert_eq!(slices.first().map(|s| s.start), Some(window.start));
        prop_assert_eq!(slices.last().map(|s| s.end), Some(window.end));
        prop_assert!(slices.windows(2).all(|pair| pair[0].end == pair[1].start));
        prop_assert!(spec.windows_ending_at(window.end).contains(&window));
    }
    Ok(())
}

/// Windows of fixed lengths for multiples -80 to 80.
fn fixed(kind: WindowKind, offset: i64) -> Vec<Window> {
    let us = |span: Span| span.parts().2;
    let grid = |period: i64| (-80..=80).map(move |k| offset + k * period);
    match kind {
        WindowKind::Tumble { size } => grid(us(size)).map(|s| Window::new(s, s + us(size))).collect(),
        WindowKind::Hop { slide, size } => grid(us(slide)).map(|s| Window::new(s, s + us(size))).collect(),
        WindowKind::Cumulate { step, size } => grid(us(size))
            .flat_map(|s| {
                let mut ends: Vec<_> = (1..).map(|j| j * us(step)).take_while(|&e| e < us(size)).collect();
                ends.push(us(size));
                ends.into_iter().map(move |e| Window::new(s, s + e))
            })
            .collect(),
        WindowKind::Session { .. } => Vec::new(),
    }
}

/// Start of a local day: jiff's, or where it skips past a jump over midnight the first quarter of an hour of that date.
fn day_start(zone: &TimeZone, day: i64) -> i64 {
    let (year, month, day) = civil_of_day(day);
    let date = Date::new(year as i16, month as i8, day as i8).unwrap();
    let mut start = date.to_zoned_datetime(zone.clone()).unwrap().timestamp().as_microsecond();
    let date_at = |us: i64| zone.to_datetime(jiff::Timestamp::from_microsecond(us).unwrap()).date();
    while date_at(start - 15 * MINUTE_US) >= date {
        start -= 15 * MINUTE_US;
    }
    start
}

/// Start of the calendar unit `n` of `span`'s kind: days from Monday 1969-12-29, months from January 1970.
fn unit_start(zone: &TimeZone, span: Span, n: i64) -> i64 {
    match span {
        Span::Days(_) => day_start(zone, n - 3),
        Span::Months(_) => day_start(zone, day_of_civil(1970 + n.div_euclid(12), n.rem_euclid(12) + 1, 1)),
        Span::Micros(_) => panic!("no unit"),
    }
}

const ZONES: [&str; 8] = [
    "America/Denver",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kolkata",
    "America/Toronto",
    "Europe/Berlin",
    "UTC",
];

/// Times close to changes of clocks, skipped midnights and skipped days, and others.
fn times() -> impl Strategy<Value = i64> {
    let anchors = [
        "2024-03-10T09:00:00Z",
        "2024-11-03T08:00:00Z",
        "2017-10-15T03:00:00Z",
        "2011-12-30T10:00:00Z",
        "2024-10-05T15:30:00Z",
        "1919-03-31T04:30:00Z",
        "1969-12-29",
        "1970-01-01",
        "2024-02-29",
    ];
    (0..anchors.len() + 1, -3 * DAY_US..3 * DAY_US, 0i64..2_000_000_000_000_000)
        .prop_map(move |(pick, near, any)| anchors.get(pick).map_or(any, |text| utc(text) + near))
}

proptest! {
    #[test]
    fn fixed_windows_are_those_of_the_grid(
        kind in 0..3, a in 1i64..12, b in 1i64..40, offset in -50i64..50, ts in -60i64..60,
    ) {
        let (kind, offset) = match kind {
            0 => (tumble(Span::Micros(b)), offset),
            1 => (hop(Span::Micros(a), Span::Micros(b)), offset),
            _ => (cumulate(Span::Micros(a.min(b)), Span::Micros(b)), offset),
        };
        // Few multiples reach as far as the oracle looks when lengths are 1.
        let spec = WindowSpec::try_new(kind, Span::Micros(offset), None).unwrap();
        let period = spec.exact().unwrap().period_us;
        let base = ts.rem_euclid(20 * period) - 10 * period + spec.exact().unwrap().origin_us;
        check(&spec, &fixed(kind, spec.exact().unwrap().origin_us), base)?;
        // The grid repeats, and the declared offset names the same one.
        let shifted = fixed(kind, offset - offset.div_euclid(period) * period);
        prop_assert!(shifted.contains(&spec.windows_of(base).first().copied().unwrap_or(shifted[0])));
    }

    #[test]
    fn local_days_and_months_are_those_of_the_zone(
        zone in prop::sample::select(&ZONES[..]), months: bool, kind in 0..3, a in 1i64..9, b in 1i64..9, ts in times(),
    ) {
        let span = |n| if months { Span::Months(n) } else { Span::Days(n) };
        let (kind, period) = match kind {
            0 => (tumble(span(b)), b),
            1 => (hop(span(a), span(b)), a),
            _ => (cumulate(span(a.min(b)), span(b)), b),
        };
        let zone = parse_zone(zone).unwrap();
        let unit = match months {
            false => ts.div_euclid(DAY_US) + 3,
            true => { let (year, month, _) = civil_of_day(ts.div_euclid(DAY_US)); (year - 1970) * 12 + month - 1 }
        };
        let mut all = Vec::new();
        for k in unit.div_euclid(period) - 22..=unit.div_euclid(period) + 22 {
            let bounds = |from: i64, length: i64| {
                Window::new(unit_start(&zone, span(1), from), unit_start(&zone, span(1), from + length))
            };
            match kind {
                WindowKind::Cumulate { .. } => {
                    let step = a.min(b);
                    all.extend((1..).map(|j| j * step).take_while(|&e| e < b).map(|e| bounds(k * b, e)));
                    all.push(bounds(k * b, b));
                }
                _ => all.push(bounds(k * period, b)),
            }
        }
        all.retain(|w| w.start < w.end);
        check(&WindowSpec::try_new(kind, Span::ZERO, Some(zone)).unwrap(), &all, ts)?;
    }

    #[test]
    fn parts_of_local_days_restart_at_each(
        zone in prop::sample::select(&ZONES[..]), kind in 0..4, a in 1i64..12, b in 1i64..12, ts in times(),
    ) {
        let half_hours = |n: i64| n * HOUR_US / 2;
        let micros = |n| Span::Micros(half_hours(n));
        let kind = match kind {
            0 => tumble(micros(b)),
            1 => hop(micros(a), micros(b)),
            2 => cumulate(micros(a.min(b)), micros(b)),
            _ => cumulate(micros(a), Span::Days(1 + b % 3)),
        };
        let zone = parse_zone(zone).unwrap();
        let today = ts.div_euclid(DAY_US);
        let mut all = Vec::new();
        let mut steps = |start: i64, step: i64, limit: i64, from: i64| {
            let mut end = start;
            while end < limit {
                end = (end + step).min(limit);
                all.push(Window::new(from, end));
            }
        };
        for day in today - 12..=today + 12 {
            let (start, next) = (day_start(&zone, day), day_start(&zone, day + 1));
            match kind {
                WindowKind::Cumulate { step, size: Span::Days(days) } => {
                    let from = day_start(&zone, (day + 3).div_euclid(days) * days - 3);
                    steps(start, step.parts().2, next, from);
                }
                WindowKind::Tumble { size } | WindowKind::Hop { size, .. } | WindowKind::Cumulate { size, .. } => {
                    let size = size.parts().2;
                    let slide = if let WindowKind::Hop { slide, .. } = kind { slide.parts().2 } else { size };
                    let mut at = start;
                    while at < next {
                        match kind {
                            WindowKind::Tumble { .. } => steps(at, size, (at + size).min(next), at),
                            WindowKind::Hop { .. } => steps(at, size, at + size, at),
                            WindowKind::Cumulate { step, .. } => steps(at, step.parts().2, (at + size).min(next), at),
                            WindowKind::Session { .. } => {}
                        }
                        at += slide;
                    }
                }
                WindowKind::Session { .. } => {}
            }
        }
        check(&WindowSpec::try_new(kind, Span::ZERO, Some(zone)).unwrap(), &all, ts)?;
    }

    #[test]
    fn runs_say_what_each_row_would(
        times in prop::collection::vec(-40i64..40, 0..60), slide in 1i64..15, size in 1i64..15,
    ) {
        let spec = spec(hop_us(slide, size));
        let mut runs = Vec::new();
        Assigner::new(spec.clone()).assign(&times, &mut runs);
        let mut at = 0;
        for (i, run) in runs.iter().enumerate() {
            prop_assert_eq!(run.rows.start, at);
            prop_assert!(times[run.rows.clone()].iter().all(|&ts| spec.slice_of(ts) == run.slice));
            prop_assert!(i == 0 || runs[i - 1].slice != run.slice);
            at = run.rows.end;
        }
        prop_assert_eq!(at, times.len());
    }

    #[test]
    fn a_range_of_ends_is_every_window_once(
        slide in 1i64..15, size in 1i64..15, from in -60i64..60, cut in 0i64..40, length in 0i64..40,
    ) {
        let spec = spec(hop_us(slide, size));
        let whole: Vec<_> = spec.ends_between(from, from + cut + length).collect();
        let mut parts: Vec<_> = spec.ends_between(from, from + cut).collect();
        parts.extend(spec.ends_between(from + cut, from + cut + length));
        prop_assert_eq!(&whole, &parts);
        let all = fixed(spec.kind(), 0);
        let want: Vec<_> = all.into_iter().filter(|w| from < w.end && w.end <= from + cut + length).collect();
        prop_assert!(slide < 2 || whole == want);
    }
}
