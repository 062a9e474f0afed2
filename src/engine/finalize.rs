//! FINALIZE, REPROCESS and VERIFY: which windows, from what input, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::sql::sqlparser::ast;
use object_store::path::Path;
use tokio::sync::OwnedMutexGuard;

use super::catalog::ViewEntry;
use super::show::{Column, table};
use super::sink::failed_rows;
use super::{Engine, Outcome, unknown};
use crate::connectors::{Compared, Coverage};
use crate::error::{Error, ErrorKind, Position, Result};
use crate::finalize::jobs::{Asked, Running, cancelled};
use crate::finalize::reconcile::{differences, reconcile};
use crate::finalize::stored::{Known, Stored};
use crate::finalize::verify::{Explains, Verified, verify};
use crate::finalize::{Computed, Ends, JobKind, Publish, Reconciled, Shape, compute, range, values};
use crate::plan::{PinnedInput, Planner};
use crate::results::schema::window_runs_schema;
use crate::sql::statement::{BatchRun, RunInput, RunKind, Spanned};
use crate::sql::{self, Statement};
use crate::storage::Document;
use crate::time::format_us;
use crate::window::{Window, WindowKind, WindowSpec};

/// Window ends of one plan: a longer range is computed in pieces, where its input can be read in pieces.
const PIECE_ENDS_MAX: usize = 10_000;

const INPUT: Document = Document { name: "the input of a run", format_version: 1 };

/// Input of a run as it is kept: by source.
type Covered = BTreeMap<String, Coverage>;

/// One view of a run.
struct Target {
    name: String,
    entry: ViewEntry,
    query: Box<ast::Query>,
    window: WindowSpec,
    ends: Ends,
    /// No other run of the view meanwhile.
    _lock: OwnedMutexGuard<()>,
}

/// What a run has done to one view.
struct Report<'a> {
    target: &'a Target,
    job: u64,
    windows: u64,
    rows_read: u64,
    results: Reconciled,
    /// Windows left alone because they are live.
    live: u64,
    verified: BTreeMap<Window, Verified>,
}

impl<'a> Report<'a> {
    fn of(target: &'a Target) -> Self {
        let results = Reconciled::default();
        Self { target, job: 0, windows: 0, rows_read: 0, results, live: 0, verified: BTreeMap::new() }
    }
}

/// A run over input that is fixed.
struct Run<'a> {
    planner: &'a Planner,
    input: &'a PinnedInput,
    coverage: String,
    covered: Covered,
    reason: String,
}

impl Engine {
    /// Runs a FINALIZE, REPROCESS, PATCH or VERIFY at the engine's time.
    pub(super) async fn batch_run(&self, run: BatchRun) -> Result<Outcome> {
        let now_us = self.inner.options.clock.now_us();
        self.batch_run_at(run, now_us).await
    }

    /// Runs it as if it were `now_us`: a schedule's nominal time.
    ///
    /// # Errors
    /// `Invalid` for a range without windows, or a name that is no view; `Unsupported` for a source whose rows cannot be read
    /// again; `Conflict` for input older than what is final already.
    pub(super) async fn batch_run_at(&self, run: BatchRun, now_us: i64) -> Result<Outcome> {
        if run.kind != RunKind::Verify {
            self.must_write(run.kind.keyword())?;
        }
        let engine = self.clone();
        // The run goes on to its end if nobody waits for it any more; CANCEL JOB ends it.
        crate::runtime::complete(async move { engine.run_to_end(&run, None, now_us).await }).await
    }

    /// A run of one view that no statement asked for.
    ///
    /// # Errors
    /// As [`Engine::batch_run_at`].
    pub(super) async fn run_of(&self, kind: RunKind, view: &str, ends: Ends, now_us: i64) -> Result<Outcome> {
        let view = Spanned { node: view.to_owned(), position: Position { line: 1, column: 1 } };
        let run = BatchRun { kind, views: vec![view], range: None, input: None, reason: None, force: false };
        self.run_to_end(&run, Some(ends), now_us).await
    }

    async fn run_to_end(&self, run: &BatchRun, ends: Option<Ends>, now_us: i64) -> Result<Outcome> {
        let kind = match run.kind {
            RunKind::Finalize => JobKind::Finalize,
            RunKind::Reprocess => JobKind::Reprocess,
            RunKind::Patch => JobKind::Patch,
            RunKind::Verify => JobKind::Verify,
        };
        let reason = match (&run.reason, run.kind) {
            (Some(reason), _) => reason.node.clone(),
            (None, RunKind::Finalize) => "finalization".to_owned(),
            (None, RunKind::Patch) => "patch".to_owned(),
            (None, RunKind::Reprocess | RunKind::Verify) => "reprocessing".to_owned(),
        };
        let targets = self.targets(run, ends, now_us).await?;
        let mut asked = VecDeque::new();
        for target in &targets {
            let (view, ends) = (target.name.clone(), target.ends);
            asked.push_back(self.inner.catalog.jobs.ask(Asked { kind, view, ends, reason: reason.clone() }).await?);
        }
        let outcome = self.run_views(run, kind, &targets, &mut asked, now_us, &reason).await;
        // One that failed keeps the others from running.
        let error = outcome.as_ref().err().map(|error| Err(error.copy()));
        for job in asked {
            job.end(&self.inner.catalog.jobs, error.as_ref()).await?;
        }
        let reports = outcome?;
        match kind {
            JobKind::Verify => verified_table(&reports),
            JobKind::Finalize | JobKind::Reprocess | JobKind::Patch => report_table(&reports),
        }
    }

    /// Runs each view's part, over one state of the input.
    async fn run_views<'a>(
        &self,
        run: &BatchRun,
        kind: JobKind,
        targets: &'a [Target],
        asked: &mut VecDeque<Running>,
        now_us: i64,
        reason: &str,
    ) -> Result<Vec<Report<'a>>> {
        let planner = self.planner();
        // Before the input is fixed: rows refused from here on may not be in it.
        let mut known = Vec::new();
        for target in targets {
            known.push(self.known(target, run, now_us, &planner).await?);
        }
        let queries: Vec<&ast::Query> = targets.iter().map(|target| target.query.as_ref()).collect();
        let input = self.pin(&planner, &queries, run.input.as_ref(), now_us).await?;
        let mut reports = Vec::new();
        for (target, (ends, known)) in targets.iter().zip(known) {
            let run = run_over(&planner, &input, target, reason)?;
            let Some(mut job) = asked.pop_front() else { break };
            job.begin(&self.inner.catalog.jobs).await?;
            job.note(|record| record.coverage = Some(run.coverage.clone()));
            let work = async {
                match kind {
                    JobKind::Verify => self.verify(&run, target, ends, &known).await,
                    JobKind::Finalize => self.publish(&run, target, ends, &known, Publish::Final).await,
                    JobKind::Reprocess => self.publish(&run, target, ends, &known, Publish::Corrected).await,
                    JobKind::Patch => Err(Error::unsupported("PATCH").with_hint("REPROCESS makes the windows anew")),
                }
            };
            let stop = job.stop_signal();
            let outcome = tokio::select! {
                outcome = work => Some(outcome),
                () = stop.asked() => None,
            };
            let id = job.id();
            if let Some(Ok(report)) = &outcome {
                job.note(|record| {
                    record.rows_read = report.rows_read;
                    record.windows = report.windows;
                    record.windows_changed = report.results.changed_windows.len() as u64;
                });
            }
            let ended = outcome.as_ref().map(|outcome| outcome.as_ref().map(|_| ()).map_err(Error::copy));
            job.end(&self.inner.catalog.jobs, ended.as_ref()).await?;
            let report = outcome.unwrap_or_else(|| Err(cancelled(id)))?;
            reports.push(Report { job: id, ..report });
        }
        Ok(reports)
    }

    /// The views of a run, each locked against other runs. In the order of their names, so that no two runs wait for
    /// each other.
    async fn targets(&self, run: &BatchRun, ends: Option<Ends>, now_us: i64) -> Result<Vec<Target>> {
        let mut views: Vec<&Spanned<String>> = run.views.iter().collect();
        views.sort_by(|a, b| a.node.cmp(&b.node));
        let mut targets = Vec::new();
        for view in views {
            let entry = self.inner.catalog.view_entry(&view.node);
            let entry = entry.ok_or_else(|| self.unknown("view", &view.node).at(view.position))?;
            let Statement::CreateMaterializedView(create) = sql::parse_one(&entry.text)? else {
                return Err(Error::internal("a view's definition creates no view"));
            };
            let window = values::windows(&entry.graph).last().map(|spec| spec.window.clone());
            let window = window.ok_or_else(|| Error::internal("a view without a window"))?;
            let zone = window.zone().cloned().unwrap_or(jiff::tz::TimeZone::UTC);
            let ends = match ends {
                Some(ends) => ends,
                None => Ends::resolve(run.range.as_ref(), &zone, now_us)?,
            };
            if let Some(range) = &run.range {
                ends.check(&window).map_err(|e| e.at(range.position))?;
            }
            let lock = Arc::clone(self.inner.run_locks.lock().entry(view.node.clone()).or_default());
            let _lock = lock.lock_owned().await;
            targets.push(Target { name: view.node.clone(), entry, query: create.query.query, window, ends, _lock });
        }
        Ok(targets)
    }

    /// The part of a target's range that is live no more, and what is known of the windows of all of it.
    async fn known(
        &self,
        target: &Target,
        run: &BatchRun,
        now_us: i64,
        planner: &Planner,
    ) -> Result<(Ends, BTreeMap<Window, Known>)> {
        let asked = target.ends.up_to(now_us);
        let stored = Stored { reader: &target.entry.reader, session: planner.session() };
        let policy = &target.entry.graph.policy;
        let mut w = self.published_up_to(target, &stored).await?;
        if run.force && !asked.is_empty() {
            let last = if target.window.is_session() { Some(asked.to) } else { target.window.prev_end(asked.to) };
            let settled = last.map_or(w, |last| range::settles_at(policy, last));
            if settled > w {
                let job = target.entry.job.as_ref().filter(|job| job.outcome().is_none());
                let job = job.ok_or_else(|| {
                    Error::new(ErrorKind::Closed, format!("FORCE on view `{}`, whose job does not run", target.name))
                        .with_hint("it expires live windows, which only the view's job can")
                })?;
                job.raise(settled).await?;
                w = settled;
            }
        }
        let ends = asked.up_to(range::last_settled_end(policy, w));
        Ok((ends, stored.windows(asked).await?))
    }

    /// A watermark up to which everything the view's job has to say is published.
    async fn published_up_to(&self, target: &Target, stored: &Stored<'_>) -> Result<i64> {
        let Some(job) = &target.entry.job else { return stored.watermark(&target.entry.graph.policy).await };
        let stopped = |error: Error| if error.kind() == ErrorKind::Closed { Ok(()) } else { Err(error) };
        job.epoch().await.or_else(stopped)?;
        let w = job.progress().watermark_us;
        // What was at W then is published once another epoch has ended.
        job.epoch().await.or_else(stopped)?;
        match job.outcome() {
            Some(_) => stored.watermark(&target.entry.graph.policy).await,
            None => Ok(w),
        }
    }

    async fn pin(
        &self,
        planner: &Planner,
        queries: &[&ast::Query],
        using: Option<&Spanned<RunInput>>,
        now_us: i64,
    ) -> Result<PinnedInput> {
        let Some(using) = using else { return planner.pin(queries, now_us).await };
        let place = |error: Error| error.at(using.position);
        match &using.node {
            RunInput::Source => planner.pin_sources_themselves(queries).await.map_err(place),
            RunInput::BatchLocation => {
                for name in planner.source_names(queries).await? {
                    let entry = self.inner.catalog.source_entry(&name).ok_or_else(|| unknown("source", &name))?;
                    if entry.table.batch_store().is_none() {
                        return Err(place(Error::invalid(format!("source `{name}` has no batch_location"))));
                    }
                }
                planner.pin(queries, now_us).await.map_err(place)
            }
            RunInput::Archive => Err(place(Error::unsupported("USING ARCHIVE: sources have no archive yet"))),
            RunInput::Location(location) => {
                let mut moved = BTreeMap::new();
                for name in planner.source_names(queries).await? {
                    let entry = self.inner.catalog.source_entry(&name).ok_or_else(|| unknown("source", &name))?;
                    let Statement::CreateSource(mut create) = sql::parse_one(&entry.text)? else { continue };
                    create
                        .options
                        .retain(|option, _| option != "archive" && option != "follow" && !option.starts_with("batch_"));
                    create.options.insert("connector".to_owned(), "file".to_owned());
                    create.options.insert("path".to_owned(), location.clone());
                    moved.insert(name, self.source_entry(&create).map_err(place)?.table);
                }
                if moved.len() > 1 {
                    return Err(place(Error::unsupported("USING a location for a view of several sources")));
                }
                planner.pin_instead(queries, &moved).await.map_err(place)
            }
        }
    }

    /// Everything the run makes of `ends`.
    async fn compute(
        &self,
        run: &Run<'_>,
        target: &Target,
        ends: Ends,
        known: &BTreeMap<Window, Known>,
    ) -> Result<Computed> {
        let ends_max = if run.input.prunes() { PIECE_ENDS_MAX } else { usize::MAX };
        let mut known_ends: Vec<i64> = known.keys().map(|window| window.end).collect();
        known_ends.sort_unstable();
        let mut all = Computed::default();
        for piece in ends.pieces(known_ends, ends_max) {
            let made = compute(run.planner, &target.query, &target.entry.graph, run.input, piece).await?;
            all.rows.extend(made.rows);
            all.failed.extend(made.failed);
            all.rows_read += made.rows_read;
            for (window, pairs) in made.pairs {
                *all.pairs.entry(window).or_default() += pairs;
            }
        }
        Ok(all)
    }

    async fn publish<'a>(
        &self,
        run: &Run<'_>,
        target: &'a Target,
        ends: Ends,
        known: &BTreeMap<Window, Known>,
        publish: Publish,
    ) -> Result<Report<'a>> {
        check_complete(run, target, known.keys().filter(|window| ends.contains(window.end)))?;
        self.check_newer(run, known, publish).await?;
        let left: Vec<Window> = known.keys().filter(|window| ends.to < window.end).copied().collect();
        let made = if ends.is_empty() { Computed::default() } else { self.compute(run, target, ends, known).await? };
        check_complete(run, target, made.pairs.keys())?;
        let shape = Shape::of(&target.entry.reader)?;
        let stored = Stored { reader: &target.entry.reader, session: run.planner.session() };
        let mut writer = target.entry.writer.lock().await?;
        // Numbers follow those stored, so nobody publishes between reading them and writing.
        let current = if ends.is_empty() { Vec::new() } else { stored.current(ends).await? };
        let mut results = reconcile(&shape, &made.rows, &current, publish, &run.reason)?;
        let mut windows: BTreeSet<Window> = results.windows.iter().chain(made.pairs.keys()).copied().collect();
        windows.extend(known.keys().filter(|window| ends.contains(window.end)));
        let noted = noted(&windows, &left, known, run, publish)?;
        if !results.versions.is_empty() || noted.is_some() {
            self.keep_coverage(run).await?;
            let mut epoch = writer.next_beside_job();
            epoch.versions = std::mem::take(&mut results.versions);
            epoch.runs.extend(noted);
            if let Some(source) = target.entry.sources.first() {
                let rejects = failed_rows(&target.name, &made.failed, self.inner.options.clock.now_us())?;
                epoch.rejects.insert(source.clone(), vec![rejects]);
            }
            writer.commit(epoch).await?;
        }
        let live = left.len() as u64;
        let windows = windows.iter().filter(|window| ends.contains(window.end)).count() as u64;
        Ok(Report { windows, rows_read: made.rows_read, results, live, ..Report::of(target) })
    }

    async fn verify<'a>(
        &self,
        run: &Run<'_>,
        target: &'a Target,
        ends: Ends,
        known: &BTreeMap<Window, Known>,
    ) -> Result<Report<'a>> {
        let made = if ends.is_empty() { Computed::default() } else { self.compute(run, target, ends, known).await? };
        let shape = Shape::of(&target.entry.reader)?;
        let stored = Stored { reader: &target.entry.reader, session: run.planner.session() };
        let live = stored.live(ends, &shape.identity()).await?;
        let differing = differences(&shape, &live, &made.rows)?;
        let windows = values::windows(&target.entry.graph);
        let explains = match windows.len() {
            1 if target.window.is_session() => Explains::Overlapping,
            1 => Explains::Same,
            _ => Explains::Inside,
        };
        let known = known.iter().filter(|(window, _)| ends.contains(window.end));
        let known = known.map(|(window, known)| (*window, known.clone())).collect();
        let verified = verify(&differing, &known, &made.pairs, explains);
        let windows = verified.len() as u64;
        Ok(Report { windows, rows_read: made.rows_read, verified, ..Report::of(target) })
    }

    /// Refuses input that lacks something a final of the range was made from.
    async fn check_newer(&self, run: &Run<'_>, known: &BTreeMap<Window, Known>, publish: Publish) -> Result<()> {
        if publish != Publish::Final {
            return Ok(());
        }
        let former: BTreeSet<&String> = known.values().filter_map(|known| known.final_coverage.as_ref()).collect();
        for fingerprint in former.into_iter().filter(|fingerprint| **fingerprint != run.coverage) {
            let file = input_path(fingerprint);
            let Some(bytes) = self.inner.storage.get(&file).await? else { continue };
            let former: Covered = INPUT.decode(file.as_ref(), &bytes)?;
            for (source, coverage) in &run.covered {
                let older = former.get(source).is_some_and(|former| coverage.compared_to(former) == Compared::Older);
                if older {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        format!("the input is older than that of the final results: source=`{source}`"),
                    )
                    .with_hint("what is final stays; REPROCESS publishes what the input gives, not as final"));
                }
            }
        }
        Ok(())
    }

    async fn keep_coverage(&self, run: &Run<'_>) -> Result<()> {
        let bytes = INPUT.encode(&run.covered)?;
        self.inner.storage.create(&input_path(&run.coverage), bytes).await.map(drop)
    }
}

/// Refuses windows of which rows may be gone; of sessions also those that such a row could have been part of.
fn check_complete<'w>(run: &Run<'_>, target: &Target, mut windows: impl Iterator<Item = &'w Window>) -> Result<()> {
    let Some(complete_from) = run.input.complete_from_us() else { return Ok(()) };
    let gaps = values::windows(&target.entry.graph).into_iter().map(|spec| match spec.window.kind() {
        WindowKind::Session { gap_us } => gap_us,
        _ => 0,
    });
    let from = complete_from.saturating_add(gaps.max().unwrap_or(0));
    let Some(window) = windows.find(|window| window.start < from) else { return Ok(()) };
    let (start, complete_from) = (format_us(window.start), format_us(complete_from));
    Err(Error::invalid(format!(
        "input of the window is no longer complete: window_start=`{start}` complete_from=`{complete_from}`"
    ))
    .with_hint("what is final stays; begin the range later, or keep input longer: batch_retention"))
}

/// A run over what `input` has of the sources of `target`.
fn run_over<'a>(planner: &'a Planner, input: &'a PinnedInput, target: &Target, reason: &str) -> Result<Run<'a>> {
    let mut covered = input.coverage();
    covered.retain(|name, _| target.entry.sources.contains(name));
    let coverage = blake3::hash(&INPUT.encode(&covered)?).to_hex()[..16].to_owned();
    Ok(Run { planner, input, coverage, covered, reason: reason.to_owned() })
}

/// Where the input behind a fingerprint is kept.
fn input_path(fingerprint: &str) -> Path {
    Path::from(format!("inputs/{fingerprint}.json"))
}

/// What a run made of windows, for those of which that is news.
fn noted(
    windows: &BTreeSet<Window>,
    left: &[Window],
    known: &BTreeMap<Window, Known>,
    run: &Run<'_>,
    publish: Publish,
) -> Result<Option<RecordBatch>> {
    let unknown = Known::default();
    let of = |window: &Window| known.get(window).unwrap_or(&unknown);
    let is_news = |window: &&Window| {
        let known = of(window);
        let up_to_date = known.is_final && known.final_coverage.as_ref() == Some(&run.coverage);
        publish != Publish::Final || !up_to_date || known.newer_input || known.needs_recompute
    };
    let left = left.iter().filter(|window| !of(window).needs_recompute);
    let rows: Vec<(Window, &Known, bool)> = (windows.iter().filter(is_news).map(|window| (*window, of(window), true)))
        .chain(left.map(|window| (*window, of(window), false)))
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let time = |us: &dyn Fn(&Window) -> i64| -> ArrayRef {
        let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|(window, ..)| us(window)));
        Arc::new(times.with_timezone("UTC"))
    };
    let count = |n: &dyn Fn(&Known) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, known, _)| n(known) as i64)))
    };
    let finalizes = publish == Publish::Final;
    let is_final = rows.iter().map(|(_, known, made)| Some((*made && finalizes) || known.is_final));
    let coverage = rows.iter().map(|(.., made)| made.then_some(run.coverage.as_str()));
    let final_coverage = rows.iter().map(|(_, known, made)| match *made && finalizes {
        true => Some(run.coverage.as_str()),
        false => known.final_coverage.as_deref(),
    });
    let columns: Vec<ArrayRef> = vec![
        time(&|window| window.start),
        time(&|window| window.end),
        Arc::new(is_final.collect::<BooleanArray>()),
        Arc::new(coverage.collect::<StringArray>()),
        Arc::new(final_coverage.collect::<StringArray>()),
        count(&|known| known.taken),
        count(&Known::refused),
    ];
    let batch = RecordBatch::try_new(window_runs_schema(), columns);
    batch.map(Some).map_err(|e| Error::internal("windows of a run do not fit their schema").with_source(e))
}

fn report_table(reports: &[Report<'_>]) -> Result<Outcome> {
    let number = |value: &dyn Fn(&Report<'_>) -> u64| {
        Column::Number(reports.iter().map(|report| i64::try_from(value(report)).ok()).collect())
    };
    table(vec![
        ("job", number(&|report| report.job)),
        ("view", Column::Text(reports.iter().map(|report| Some(report.target.name.clone())).collect())),
        ("windows", number(&|report| report.windows)),
        ("rows_read", number(&|report| report.rows_read)),
        ("results", number(&|report| report.results.results)),
        ("changed", number(&|report| report.results.changed)),
        ("added", number(&|report| report.results.added)),
        ("deleted", number(&|report| report.results.deleted)),
        ("unchanged", number(&|report| report.results.unchanged)),
        ("live", number(&|report| report.live)),
    ])
}

/// One row per window that differs, and one with the totals.
fn verified_table(reports: &[Report<'_>]) -> Result<Outcome> {
    let mut rows: Vec<(&str, Option<Window>, Verified)> = Vec::new();
    for report in reports {
        let mut total = Verified::default();
        for (window, verified) in &report.verified {
            total.add(verified);
            if verified.differs() {
                rows.push((&report.target.name, Some(*window), verified.clone()));
            }
        }
        rows.push((&report.target.name, None, total));
    }
    let number = |value: &dyn Fn(&Verified) -> u64| {
        Column::Number(rows.iter().map(|(.., verified)| i64::try_from(value(verified)).ok()).collect())
    };
    let bound = |us: &dyn Fn(&Window) -> i64| {
        Column::Text(rows.iter().map(|(_, window, _)| window.as_ref().map(|w| format_us(us(w)))).collect())
    };
    table(vec![
        ("view", Column::Text(rows.iter().map(|(view, ..)| Some((*view).to_owned())).collect())),
        ("window_start", bound(&|window| window.start)),
        ("window_end", bound(&|window| window.end)),
        ("live_rows", number(&|verified| verified.live_rows)),
        ("batch_rows", number(&|verified| verified.batch_rows)),
        ("results", number(&|verified| verified.results.batch)),
        ("differing", number(&|verified| verified.results.differing)),
        ("unexplained", number(&|verified| verified.unexplained)),
        ("cause", Column::Text(rows.iter().map(|(.., verified)| Some(verified.causes())).collect())),
    ])
}
