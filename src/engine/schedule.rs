//! Schedules in a running engine: the statements about them, and the runs that come due.
//!
//! Runs are statements like any other, and go the same way. They are done one after another, oldest nominal time first, so
//! that a schedule never overlaps itself. An engine that keeps running looks by itself; see
//! [`EngineBuilder::run_schedules`](super::EngineBuilder::run_schedules) and [`Engine::run_due_schedules`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use super::show::{Column, table};
use super::{Engine, Inner, Outcome, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Background;
use crate::schedule::{Due, LastRun, Progress, RunError, Schedule, ScheduleStore};
use crate::sql::statement::{BatchRun, CreateSchedule, ScheduleAction, Spanned};
use crate::storage::Storage;
use crate::time::format_us;

/// Longest time between two looks: clocks may be set, and what failed for now is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The schedules of one engine.
#[derive(Debug)]
pub(super) struct Schedules {
    store: ScheduleStore,
    entries: RwLock<BTreeMap<String, (Schedule, Progress)>>,
    /// Held while a run is on.
    running: tokio::sync::Mutex<()>,
    /// Held while the list is written, so that an older list never replaces a newer.
    saving: tokio::sync::Mutex<()>,
    keeper: Mutex<Option<Background>>,
    /// Whether runs start by themselves.
    by_itself: bool,
}

/// A scheduled run that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledRun {
    /// The schedule.
    pub schedule: String,
    /// The run's `now`, µs: the nominal time it saw to, the newest of them if several had been missed.
    pub nominal_us: i64,
    /// What it reported, or failed with.
    pub outcome: Result<Vec<String>, String>,
}

impl Schedules {
    pub async fn load(storage: Storage, by_itself: bool) -> Result<Self> {
        let store = ScheduleStore::new(storage);
        let entries = RwLock::new(store.load().await?);
        let (running, saving) = Default::default();
        Ok(Self { store, entries, running, saving, keeper: Mutex::default(), by_itself })
    }

    async fn save(&self) -> Result<()> {
        let _alone = self.saving.lock().await;
        let entries = self.entries.read().clone();
        self.store.save(entries.values().map(|(schedule, progress)| (schedule, progress))).await
    }

    /// The names of schedules that run over `view`.
    pub fn over(&self, view: &str) -> Vec<String> {
        let runs_over = |schedule: &Schedule| schedule.run.views.iter().any(|v| v.node == view);
        self.entries.read().values().filter(|(s, _)| runs_over(s)).map(|(s, _)| s.name.clone()).collect()
    }

    /// The run that has been due longest, of schedules that are not paused and not among `tried`.
    fn oldest_due(&self, now_us: i64, tried: &BTreeSet<String>) -> Option<(Schedule, Due)> {
        let entries = self.entries.read();
        let active = entries.values().filter(|(s, progress)| !progress.paused && !tried.contains(&s.name));
        let due = active.filter_map(|(s, progress)| Some((s, s.due(progress, now_us)?)));
        due.min_by_key(|(_, due)| due.first_us).map(|(s, due)| (s.clone(), due))
    }

    /// How long until something is due. What is due already failed, or this would not be asked.
    fn until_next(&self, now_us: i64) -> Duration {
        let entries = self.entries.read();
        let next = entries.values().filter(|(_, p)| !p.paused).filter_map(|(s, p)| s.next_us(p));
        let soonest = next.filter(|next| *next > now_us).min();
        let wait = soonest.and_then(|next| u64::try_from(next - now_us).ok()).map(Duration::from_micros);
        wait.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN)
    }

    /// Notes the end of a run, unless the schedule is another by now. `due` is `None` for a run outside its times.
    fn note(&self, schedule: &Schedule, due: Option<Due>, last: LastRun) {
        if let Some((known, progress)) = self.entries.write().get_mut(&schedule.name)
            && known.text == schedule.text
        {
            match due {
                Some(due) => progress.ended(due, last),
                None => progress.last = Some(last),
            }
        }
    }

    fn wake(&self) {
        if let Some(keeper) = &*self.keeper.lock() {
            keeper.wake();
        }
    }

    pub async fn stop(&self) {
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            keeper.stop().await;
        }
    }
}

impl Engine {
    /// Runs what schedules have due, oldest first, and waits for it. Missed runs are made up for, in bounded pieces. A run
    /// that fails for now is not tried again within this call.
    ///
    /// # Errors
    /// `Invalid` for an engine that only reads; `Unavailable` if what was done cannot be noted. A run that fails is no
    /// error here but part of what is returned.
    pub async fn run_due_schedules(&self) -> Result<Vec<ScheduledRun>> {
        self.must_hold("a scheduled run").await?;
        let schedules = &self.inner.schedules;
        let _alone = schedules.running.lock().await;
        let mut tried = BTreeSet::new();
        let mut runs = Vec::new();
        while let Some((schedule, due)) = schedules.oldest_due(self.now_us(), &tried) {
            let started_us = self.now_us();
            let outcome = match schedule.statement(due) {
                Ok(run) => self.scheduled_run(run, due.last_us).await,
                Err(error) => Err(error),
            };
            let error = outcome.as_ref().err().map(RunError::new);
            if let Some(error) = &error {
                tracing::warn!(schedule = schedule.name, "a scheduled run failed: {}", error.message);
                if error.again {
                    tried.insert(schedule.name.clone());
                }
            }
            let finished_us = self.now_us();
            schedules.note(&schedule, Some(due), LastRun { nominal_us: due.last_us, started_us, finished_us, error });
            schedules.save().await?;
            let outcome = outcome.map_err(|error| error.to_string());
            runs.push(ScheduledRun { schedule: schedule.name, nominal_us: due.last_us, outcome });
        }
        Ok(runs)
    }

    /// Runs one statement of a schedule as of `now_us` and gives what it reported. Boxed, as RUN SCHEDULE is a statement that
    /// runs one.
    fn scheduled_run(&self, run: BatchRun, now_us: i64) -> BoxFuture<'_, Result<Vec<String>>> {
        async move {
            match self.batch_run_at(run, now_us).await? {
                Outcome::Done { notices, .. } => Ok(notices),
                rows => rows.collect().await.map(|_| Vec::new()),
            }
        }
        .boxed()
    }

    pub(super) async fn create_schedule(&self, create: CreateSchedule) -> Result<Outcome> {
        self.must_hold("CREATE SCHEDULE").await?;
        let tag = "CREATE SCHEDULE";
        let (or_replace, if_not_exists, position) = (create.or_replace, create.if_not_exists, create.name.position);
        for view in &create.run.views {
            if self.inner.catalog.view_entry(&view.node).is_none() {
                return Err(self.unknown("view", &view.node).at(view.position));
            }
        }
        let schedule = Schedule::try_new(create)?;
        let name = schedule.name.clone();
        let known = self.inner.schedules.entries.read().get(&name).map(|(known, _)| known.text.trim().to_owned());
        match known {
            Some(text) if if_not_exists || text == schedule.text.trim() => {
                let notices = vec![format!("schedule `{name}` exists already and was left as it is")];
                return Ok(Outcome::Done { tag: tag.into(), notices });
            }
            Some(_) if !or_replace => {
                let error = format!("schedule `{name}` exists already with another definition");
                return Err(Error::new(ErrorKind::Conflict, error)
                    .at(position)
                    .with_hint("choose another name, or CREATE OR REPLACE SCHEDULE"));
            }
            _ => {}
        }
        let progress = Progress::new(self.now_us());
        let first = schedule.next_us(&progress).map(format_us).unwrap_or_default();
        self.inner.schedules.entries.write().insert(name, (schedule, progress));
        self.inner.schedules.save().await?;
        self.keep_schedules();
        Ok(Outcome::Done { tag: tag.into(), notices: vec![format!("first run at {first}")] })
    }

    pub(super) async fn schedule(&self, action: ScheduleAction, name: Spanned<String>) -> Result<Outcome> {
        self.must_hold("a statement about a schedule").await?;
        let schedules = &self.inner.schedules;
        let missing = || unknown("schedule", &name.node).at(name.position);
        let paused = match action {
            ScheduleAction::RunNow => return self.run_schedule_now(&name).await,
            ScheduleAction::Pause => true,
            ScheduleAction::Resume => false,
        };
        schedules.entries.write().get_mut(&name.node).ok_or_else(missing)?.1.paused = paused;
        schedules.save().await?;
        schedules.wake();
        Ok(Outcome::done(if paused { "PAUSE SCHEDULE" } else { "RESUME SCHEDULE" }))
    }

    /// One run whose `now` is the clock's. The schedule's own times stay due.
    async fn run_schedule_now(&self, name: &Spanned<String>) -> Result<Outcome> {
        let schedules = &self.inner.schedules;
        let known = schedules.entries.read().get(&name.node).map(|(schedule, _)| schedule.clone());
        let schedule = known.ok_or_else(|| unknown("schedule", &name.node).at(name.position))?;
        let _alone = schedules.running.try_lock().map_err(|_| {
            Error::new(ErrorKind::Conflict, "a scheduled run is on; runs do not overlap")
                .at(name.position)
                .with_hint("wait for it; SHOW SCHEDULES and SHOW JOBS tell how far it is")
        })?;
        let now_us = self.now_us();
        let run = schedule.statement(Due { first_us: now_us, last_us: now_us })?;
        let outcome = self.scheduled_run(run, now_us).await;
        let error = outcome.as_ref().err().map(RunError::new);
        let last = LastRun { nominal_us: now_us, started_us: now_us, finished_us: self.now_us(), error };
        schedules.note(&schedule, None, last);
        schedules.save().await?;
        Ok(Outcome::Done { tag: "RUN SCHEDULE".into(), notices: outcome? })
    }

    pub(super) async fn drop_schedule(&self, if_exists: bool, name: &Spanned<String>) -> Result<Outcome> {
        self.must_hold("DROP SCHEDULE").await?;
        if self.inner.schedules.entries.write().remove(&name.node).is_some() {
            self.inner.schedules.save().await?;
        } else if !if_exists {
            return Err(unknown("schedule", &name.node).at(name.position));
        }
        Ok(Outcome::done("DROP SCHEDULE"))
    }

    pub(super) fn show_schedules(&self) -> Result<Outcome> {
        let entries: Vec<(Schedule, Progress)> = self.inner.schedules.entries.read().values().cloned().collect();
        let text = |value: &dyn Fn(&Schedule, &Progress) -> Option<String>| {
            Column::Text(entries.iter().map(|(schedule, progress)| value(schedule, progress)).collect())
        };
        let last = |p: &Progress, value: &dyn Fn(&LastRun) -> Option<String>| p.last.as_ref().and_then(value);
        let status = |run: &LastRun| Some(if run.error.is_some() { "failed" } else { "completed" }.to_owned());
        table(vec![
            ("schedule", text(&|s, _| Some(s.name.clone()))),
            ("cron", text(&|s, _| Some(s.cron.text().to_owned()))),
            ("time_zone", text(&|s, _| Some(s.cron.zone_name()))),
            ("run", text(&|s, _| Some(s.run_text.clone()))),
            ("state", text(&|_, p| Some(if p.paused { "paused" } else { "active" }.to_owned()))),
            ("next_run", text(&|s, p| s.next_us(p).map(format_us))),
            ("last_run", text(&|_, p| last(p, &|run| Some(format_us(run.nominal_us))))),
            ("last_status", text(&|_, p| last(p, &status))),
            ("last_error", text(&|_, p| last(p, &|run| run.error.as_ref().map(|e| e.message.clone())))),
        ])
    }

    /// Starts looking for runs that are due, if this engine does so by itself, has a schedule, and does not yet.
    pub(super) fn keep_schedules(&self) {
        let schedules = &self.inner.schedules;
        if !schedules.by_itself || self.inner.read_only || schedules.entries.read().is_empty() {
            return;
        }
        let mut keeper = schedules.keeper.lock();
        match &*keeper {
            Some(keeper) => keeper.wake(),
            None => {
                let engine = Arc::downgrade(&self.inner);
                *keeper = Some(Background::start(move || look(Weak::clone(&engine)).boxed()));
            }
        }
    }

    fn now_us(&self) -> i64 {
        self.inner.options.clock.now_us()
    }
}

/// Runs what is due and says when to look again; `None` once the engine is gone.
async fn look(engine: Weak<Inner>) -> Option<Duration> {
    let engine = Engine { inner: engine.upgrade()? };
    if let Err(error) = engine.run_due_schedules().await {
        tracing::warn!("scheduled runs could not be noted: {error}");
        return Some(LOOK_AGAIN);
    }
    Some(engine.inner.schedules.until_next(engine.now_us()))
}
