//! Schedules: which batch run is due when, and what became of the last one.
//!
//! A schedule's times are **nominal**: a run's `now` is the time it was meant for, however late it starts, so that runs
//! meet every window once whether or not an engine was up. What is left to do is told by one number per schedule, the
//! newest nominal time that has been seen to; it moves only when a run has ended, so a run that a crash cut short is due
//! again. All of it is decided by pure functions of a schedule, its [`Progress`] and the clock; what a run does, and when
//! somebody looks, is the engine's business.
//!
//! ```text
//!  nominal times   ──┬────┬────┬────┬────┬────┬──▶
//!  seen to ──────────┘    └─ missed ─┘    │    └─ next
//!                           one run       └ now
//! ```
//!
//! Times that were missed within one day are made up for by one run, whose look-back starts at the first and whose `now` is
//! the last. So the work is done in order, in bounded pieces, and never by thousands of runs of a minute each.

mod cron;
mod store;

use serde::{Deserialize, Serialize};

pub use cron::Cron;
pub use store::ScheduleStore;

use crate::error::{Error, ErrorKind, Result};
use crate::sql::statement::{BatchRun, CreateSchedule};
use crate::sql::statement::{RunRange, Spanned};
use crate::time::{DAY_US, format_us, parse_zone};

/// Most nominal time between the first and the last run that one run makes up for.
const BATCH_US: i64 = DAY_US;

/// What is run and when.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// When it comes due.
    pub cron: Cron,
    /// What is run.
    pub run: BatchRun,
    /// The run as it was written.
    pub run_text: String,
    /// The statement that made it.
    pub text: String,
}

impl Schedule {
    /// What `CREATE SCHEDULE` says.
    ///
    /// # Errors
    ///
    /// `Invalid`, at its place, for a wrong cron expression or time zone.
    pub fn try_new(create: CreateSchedule) -> Result<Self> {
        let zone = match &create.time_zone {
            Some(name) => parse_zone(&name.node).map_err(|e| Error::from(e).at(name.position))?,
            None => jiff::tz::TimeZone::UTC,
        };
        let cron = Cron::try_new(&create.cron.node, zone).map_err(|e| e.at(create.cron.position))?;
        let CreateSchedule { name, run, run_text, text, .. } = create;
        Ok(Self { name: name.node, cron, run, run_text, text })
    }

    /// What is to be done at `now_us` by a schedule that is not paused: the oldest piece, if there is one.
    pub fn due(&self, progress: &Progress, now_us: i64) -> Option<Due> {
        let first_us = self.cron.next_after(progress.done_us).filter(|first| *first <= now_us)?;
        let until_us = first_us.saturating_add(BATCH_US);
        let mut last_us = first_us;
        while let Some(next) = self.cron.next_after(last_us).filter(|next| *next <= now_us && *next < until_us) {
            last_us = next;
        }
        Some(Due { first_us, last_us })
    }

    /// The statement that sees to `due`. Its range, if it has one, ends at the newest time and reaches the look-back behind
    /// the oldest. Days and months are counted on the zone's calendar, so that a nightly run of `LOOKBACK INTERVAL '1 day'`
    /// reaches the night before however long the day was.
    ///
    /// # Errors
    ///
    /// `Invalid` for a look-back that leaves the calendar.
    pub fn statement(&self, due: Due) -> Result<BatchRun> {
        let mut run = self.run.clone();
        if let Some(Spanned { node: range @ RunRange::Lookback(_), position }) = &mut run.range {
            let RunRange::Lookback(back) = *range else { return Ok(run) };
            let from_us = self.cron.back(due.first_us, back)?;
            let text = |us| Spanned { node: format_us(us), position: *position };
            *range = RunRange::Between { from: text(from_us), to: Some(text(due.last_us)) };
        }
        Ok(run)
    }

    /// The next nominal time, due or not.
    pub fn next_us(&self, progress: &Progress) -> Option<i64> {
        self.cron.next_after(progress.done_us)
    }
}

/// Nominal times that one run sees to, both inclusive. Equal unless some were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The oldest: the look-back is counted from it.
    pub first_us: i64,
    /// The newest: the run's `now`.
    pub last_us: i64,
}

/// How far a schedule is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Whether it starts no runs.
    pub paused: bool,
    /// Every nominal time up to this one has been seen to, µs. At first, when the schedule was made.
    pub done_us: i64,
    /// The run that ended last.
    pub last: Option<LastRun>,
}

impl Progress {
    /// Of a schedule made at `now_us`.
    pub fn new(now_us: i64) -> Self {
        Self { paused: false, done_us: now_us, last: None }
    }

    /// Notes that the run for `due` ended.
    ///
    /// A run that could not be done now (see `is_worth_repeating`) stays due; one that was refused for good is seen to.
    pub fn ended(&mut self, due: Due, last: LastRun) {
        let again = last.error.as_ref().is_some_and(|error| error.again);
        if !again {
            self.done_us = self.done_us.max(due.last_us);
        }
        self.last = Some(last);
    }
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastRun {
    /// Its `now`, µs.
    pub nominal_us: i64,
    /// When it started, µs by the clock.
    pub started_us: i64,
    /// When it ended, µs by the clock.
    pub finished_us: i64,
    /// What it failed with; `None`: it did its work.
    pub error: Option<RunError>,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunError {
    /// The message.
    pub message: String,
    /// Whether the same times are run again.
    pub again: bool,
}

impl RunError {
    /// What `error` means for a schedule.
    pub fn new(error: &Error) -> Self {
        Self { message: error.to_string(), again: is_worth_repeating(error.kind()) }
    }
}

/// Whether a run that failed so may succeed later, with nothing changed by anybody. What is refused because of what the
/// statement says or what the data are would be refused each time, and must not hold up the times after it.
fn is_worth_repeating(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Closed => true,
        ErrorKind::Syntax
        | ErrorKind::Invalid
        | ErrorKind::Unsupported
        | ErrorKind::Data
        | ErrorKind::Corrupt
        | ErrorKind::Internal => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Statement, parse_one};
    use crate::time::parse_instant;

    fn schedule(text: &str) -> Result<Schedule> {
        match parse_one(text)? {
            Statement::CreateSchedule(create) => Schedule::try_new(create),
            other => panic!("{other:?}"),
        }
    }

    fn us(text: &str) -> i64 {
        parse_instant(text).expect("a time")
    }

    fn ended(at: Due, error: Option<&Error>) -> LastRun {
        let error = error.map(RunError::new);
        LastRun { nominal_us: at.last_us, started_us: at.last_us, finished_us: at.last_us, error }
    }

    /// All pieces due at `now`, each done at once.
    fn catch_up(schedule: &Schedule, progress: &mut Progress, now: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        while let Some(due) = schedule.due(progress, us(now)) {
            pieces.push(format!("{} to {}", format_us(due.first_us), format_us(due.last_us)));
            progress.ended(due, ended(due, None));
        }
        pieces
    }

    const NIGHTLY: &str = "CREATE SCHEDULE n CRON '0 2 * * *' AS FINALIZE v LOOKBACK INTERVAL '1 day'";

    #[test]
    fn a_run_is_due_from_its_time_on_and_once() {
        let nightly = schedule(NIGHTLY).expect("a schedule");
        let mut progress = Progress::new(us("2024-01-15T02:00:00Z"));
        assert_eq!(nightly.due(&progress, us("2024-01-16 01:59:59.999999Z")), None);
        let due = nightly.due(&progress, us("2024-01-16T02:00:00Z")).expect("due");
        assert_eq!((due.first_us, due.last_us), (us("2024-01-16T02:00:00Z"), us("2024-01-16T02:00:00Z")));
        progress.ended(due, ended(due, None));
        assert_eq!(nightly.due(&progress, us("2024-01-16T03:00:00Z")), None);
        assert_eq!(nightly.next_us(&progress), Some(us("2024-01-17T02:00:00Z")));
        // The clock goes back: nothing is due a second time.
        assert_eq!(nightly.due(&progress, us("2024-01-16T02:00:00Z")), None);
    }

    #[test]
    fn c120_missed_times_are_made_up_for_in_order_and_in_bounded_pieces() {
        let nightly = schedule(NIGHTLY).expect("a schedule");
        let mut progress = Progress::new(us("2024-01-15T12:00:00Z"));
        assert_eq!(
            catch_up(&nightly, &mut progress, "2024-01-18T12:00:00Z"),
            [
                "2024-01-16T02:00:00Z to 2024-01-16T02:00:00Z",
                "2024-01-17T02:00:00Z to 2024-01-17T02:00:00Z",
                "2024-01-18T02:00:00Z to 2024-01-18T02:00:00Z",
            ]
        );
        let minutely = schedule("CREATE SCHEDULE n CRON '* * * * *' AS FINALIZE v LOOKBACK INTERVAL '1 minute'");
        let minutely = minutely.expect("a schedule");
        let mut progress = Progress::new(us("2024-01-15T12:00:00Z"));
        assert_eq!(
            catch_up(&minutely, &mut progress, "2024-01-17T00:00:30Z"),
            ["2024-01-15T12:01:00Z to 2024-01-16T12:00:00Z", "2024-01-16T12:01:00Z to 2024-01-17T00:00:00Z",]
        );
    }

    #[test]
    fn a_run_reaches_back_from_its_nominal_time_on_the_calendar_of_its_zone() {
        let range = |text: &str, first: &str, last: &str| {
            let due = Due { first_us: us(first), last_us: us(last) };
            let run = schedule(text).expect("a schedule").statement(due).expect("a statement");
            match run.range.map(|range| range.node) {
                Some(RunRange::Between { from, to }) => format!("{} {}", from.node, to.expect("an end").node),
                other => format!("{other:?}"),
            }
        };
        let berlin = |back: &str| {
            format!(
                "CREATE SCHEDULE n CRON '0 2 * * *' TIME ZONE 'Europe/Berlin' AS FINALIZE v LOOKBACK INTERVAL '{back}'"
            )
        };
        let autumn = "2024-10-28T01:00:00Z";
        assert_eq!(range(&berlin("1 day"), autumn, autumn), "2024-10-27T00:00:00Z 2024-10-28T01:00:00Z");
        assert_eq!(range(&berlin("24 hours"), autumn, autumn), "2024-10-27T01:00:00Z 2024-10-28T01:00:00Z");
        assert_eq!(range(&berlin("1 month"), autumn, autumn), "2024-09-28T00:00:00Z 2024-10-28T01:00:00Z");
        assert_eq!(
            range(NIGHTLY, "2024-01-15T02:00:00Z", "2024-01-17T02:00:00Z"),
            "2024-01-14T02:00:00Z 2024-01-17T02:00:00Z"
        );
        assert_eq!(range("CREATE SCHEDULE n CRON '@daily' AS PATCH v", autumn, autumn), "None");
    }

    #[test]
    fn a_run_that_failed_for_now_stays_due_and_one_that_is_refused_does_not() {
        let nightly = schedule(NIGHTLY).expect("a schedule");
        let now = us("2024-01-17T12:00:00Z");
        let mut progress = Progress::new(us("2024-01-15T12:00:00Z"));
        let due = nightly.due(&progress, now).expect("due");
        progress.ended(due, ended(due, Some(&Error::new(ErrorKind::Unavailable, "no answer"))));
        assert_eq!(nightly.due(&progress, now), Some(due));
        progress.ended(due, ended(due, Some(&Error::invalid("no view `v`"))));
        assert_eq!(nightly.due(&progress, now).expect("the next").first_us, us("2024-01-17T02:00:00Z"));
        assert_eq!(progress.last.and_then(|last| last.error).expect("an error").message, "no view `v`");
    }

    #[test]
    fn wrong_schedules_are_refused_at_their_place() {
        for (text, expected) in [
            ("CREATE SCHEDULE n CRON '0 2 * *' AS PATCH v", "invalid 1:24"),
            ("CREATE SCHEDULE n CRON '0 0 31 6 *' AS PATCH v", "invalid 1:24"),
            ("CREATE SCHEDULE n CRON '0 2 * * *' TIME ZONE 'Europe/Berln' AS PATCH v", "invalid 1:46"),
        ] {
            let error = schedule(text).expect_err(text);
            let place = error.position().map(|p| format!("{} {}:{}", error.kind().as_str(), p.line, p.column));
            assert_eq!(place.as_deref(), Some(expected), "{error}");
        }
    }
}
