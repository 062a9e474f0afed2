//! How far background jobs are: a bar per job while a script waits, a line per job that ended.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{elapsed, grouped, instant, row_count};
use crate::engine::JobProgress;

/// Bars on standard error, one per job over a bounded source.
pub struct Progress {
    bars: Option<MultiProgress>,
    by_job: HashMap<String, ProgressBar>,
    started: Instant,
}

impl Progress {
    /// Time between two looks at the jobs.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Work that ends sooner than this shows no bar.
    const PATIENCE: Duration = Duration::from_millis(250);

    /// Bars if `wanted`, else nothing.
    pub fn new(wanted: bool) -> Self {
        let bars = wanted.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));
        Self { bars, by_job: HashMap::new(), started: Instant::now() }
    }

    /// Brings the bars up to date.
    pub fn draw(&mut self, jobs: &[JobProgress]) {
        let Some(bars) = self.bars.as_ref().filter(|_| self.started.elapsed() >= Self::PATIENCE) else { return };
        let running = self.started.elapsed();
        for job in jobs {
            if job.done && !self.by_job.contains_key(&job.name) {
                continue;
            }
            let bar = self.by_job.entry(job.name.clone()).or_insert_with(|| bars.add(bar(job)));
            bar.set_message(message(job, running));
            if let Some(total) = job.bytes_total {
                bar.set_length(total.max(1));
            }
            let whole = job.done && job.error.is_none();
            bar.set_position(if whole { bar.length().unwrap_or(1) } else { job.bytes_read });
            bar.tick();
        }
    }

    /// Takes the bars off the screen.
    pub fn clear(self) {
        for bar in self.by_job.values() {
            bar.finish_and_clear();
        }
    }
}

fn bar(job: &JobProgress) -> ProgressBar {
    let template = match job.bytes_total {
        Some(_) => "{prefix:.bold} {bar:24.cyan/dim} {percent:>3} %  {wide_msg}",
        None => "{prefix:.bold} {spinner}  {wide_msg}",
    };
    let style = ProgressStyle::with_template(template).expect("the templates are constant").progress_chars("█▉▊▋▌▍▎▏░");
    ProgressBar::new(job.bytes_total.unwrap_or(1)).with_style(style).with_prefix(job.name.clone())
}

/// `1,234,567 rows  2,100,000 rows/s  watermark 2013-05-03T04:00:00Z  lag 0.2 s  late 123`.
fn message(job: &JobProgress, running: Duration) -> String {
    let mut parts = vec![format!("{} rows", grouped(job.rows)), rate(job.rows, running)];
    if job.error.is_some() {
        parts.insert(0, "failed".to_owned());
    }
    if let Some(watermark) = job.watermark_us.and_then(instant) {
        parts.push(format!("watermark {watermark}"));
    }
    if let Some(lag) = job.lag_us.and_then(lag) {
        parts.push(format!("lag {lag}"));
    }
    parts.extend(fates(job));
    parts.join("  ")
}

/// How far the watermark is behind the clock. Of rows from long ago that says nothing.
fn lag(lag_us: i64) -> Option<String> {
    let lag = Duration::from_micros(u64::try_from(lag_us).ok()?);
    (lag < Duration::from_secs(86_400)).then(|| elapsed(lag))
}

fn rate(rows: u64, time: Duration) -> String {
    let per_second = rows as f64 / time.as_secs_f64().max(1e-6);
    format!("{} rows/s", grouped(per_second as u64))
}

/// The fates worth a word: those that are not zero.
fn fates(job: &JobProgress) -> Vec<String> {
    [("late", job.late), ("refused", job.expired), ("rejected", job.rejected), ("in no window", job.no_window)]
        .into_iter()
        .filter(|(_, rows)| *rows > 0)
        .map(|(fate, rows)| format!("{fate} {}", grouped(rows)))
        .collect()
}

/// Remembers which jobs are known to have ended, so that each end is told once.
#[derive(Debug, Default)]
pub struct JobWatch {
    ended: HashSet<String>,
}

impl JobWatch {
    /// Those jobs that have ended since the last call.
    pub fn newly_ended<'a>(&mut self, jobs: &'a [JobProgress]) -> Vec<&'a JobProgress> {
        self.ended.retain(|name| jobs.iter().any(|job| job.done && job.name == *name));
        jobs.iter().filter(|job| job.done && self.ended.insert(job.name.clone())).collect()
    }
}

/// `hourly: 336,776 rows read, late 28,228, refused 11,145`.
pub fn summary(job: &JobProgress) -> String {
    let mut parts = vec![format!("{} read", row_count(job.rows))];
    parts.extend(fates(job));
    parts.extend(Some(job.notes.to_string()).filter(|notes| !notes.is_empty()));
    format!("{}: {}", job.name, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, done: bool) -> JobProgress {
        JobProgress {
            name: name.into(),
            rows: 336_776,
            bytes_read: 10,
            bytes_total: Some(20),
            watermark_us: Some(0),
            late: 28_228,
            expired: 0,
            rejected: 3,
            no_window: 0,
            lag_us: Some(1_500_000),
            notes: Default::default(),
            done,
            error: None,
        }
    }

    #[test]
    fn each_end_is_told_once() {
        let mut watch = JobWatch::default();
        assert!(watch.newly_ended(&[job("a", false)]).is_empty());
        let jobs = [job("a", true)];
        let ended = watch.newly_ended(&jobs).into_iter().map(summary).collect::<Vec<_>>();
        assert_eq!(ended, ["a: 336,776 rows read, late 28,228, rejected 3"]);
        assert!(watch.newly_ended(&[job("a", true)]).is_empty());
    }

    #[test]
    fn a_job_of_the_same_name_is_a_new_job() {
        let mut watch = JobWatch::default();
        watch.newly_ended(&[job("a", true)]);
        watch.newly_ended(&[]);
        assert_eq!(watch.newly_ended(&[job("a", true)]).len(), 1);
    }

    #[test]
    fn the_message_leaves_out_fates_that_are_zero() {
        let text = message(&job("a", false), Duration::from_secs(2));
        assert_eq!(
            text,
            "336,776 rows  168,388 rows/s  watermark 1970-01-01T00:00:00Z  lag 1.50 s  late 28,228  rejected 3"
        );
    }
}
