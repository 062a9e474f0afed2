//! The embeddable engine: the one thing that the command line and an embedder see.
//!
//! ```no_run
//! # async fn example() -> highwater::Result<()> {
//! use highwater::Engine;
//!
//! let engine = Engine::builder().in_memory().build().await?;
//! engine.execute("CREATE SOURCE orders (at TIMESTAMP, total BIGINT, WATERMARK FOR at AS at)
//!                 WITH (connector = 'push')").await?;
//! engine.execute("CREATE MATERIALIZED VIEW hourly AS
//!                 SELECT window_start, sum(total) AS total FROM TUMBLE(orders, at, INTERVAL '1 hour')
//!                 GROUP BY window_start").await?;
//! # Ok(()) }
//! ```
//!
//! It owns the catalog, the jobs and a DataFusion session. It knows every module below it and nothing of terminals.

#[cfg(test)]
mod agreement;
mod automatic;
mod builder;
mod catalog;
mod finalize;
mod jobs;
mod lease;
mod mentioned;
#[cfg(test)]
mod official;
mod query;
mod recover;
mod rollback;
mod schedule;
mod show;
#[cfg(test)]
mod simulation;
mod sink;
#[cfg(test)]
mod tests;
mod upkeep;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::prelude::{DataFrame, SessionContext};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

pub use builder::{EngineBuilder, WORKERS_MAX};
pub use catalog::NameKind;
pub use query::StopHandle;
pub use schedule::ScheduledRun;
pub use show::LINES;
pub use view::JobProgress;

pub use crate::plan::from_datafusion as rows_error;

use crate::connectors::{PushHandle, PushSource};
use crate::error::{Error, ErrorKind, Position, Result, nearest};
use crate::plan::{Planner, from_datafusion};
use crate::results::{Since, Subscription};
use crate::runtime::{JobHandle, JobOptions};
use crate::sql::{self, Statement};
use crate::storage::Storage;
use catalog::EngineCatalog;
use lease::Lease;

/// A running engine. Cheap to clone; the last clone to be dropped does not stop its jobs, [`Engine::shutdown`] does.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("data", &self.inner.storage.location()).finish_non_exhaustive()
    }
}

struct Inner {
    catalog: Arc<EngineCatalog>,
    context: SessionContext,
    storage: Storage,
    options: JobOptions,
    read_only: bool,
    schedules: schedule::Schedules,
    lease: Lease,
    /// Held by a statement that changes the catalog.
    defining: tokio::sync::Mutex<()>,
    /// Numbers ad-hoc queries.
    queries: AtomicU64,
    /// By view: held while a batch run of it is under way.
    run_locks: parking_lot::Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// By view: whether the task that asks for its runs has ended.
    automatic: parking_lot::Mutex<HashMap<String, tokio::sync::watch::Receiver<bool>>>,
}

/// What a statement gave.
pub enum Outcome {
    /// It was done.
    Done {
        /// What was done, as SQL: `CREATE SOURCE`.
        tag: String,
        /// What a person should know.
        notices: Vec<String>,
    },
    /// A complete answer.
    Rows {
        /// Its columns.
        schema: SchemaRef,
        /// Its rows.
        rows: SendableRecordBatchStream,
    },
    /// Rows as they come: a streaming SELECT, or SUBSCRIBE.
    Stream {
        /// Their columns.
        schema: SchemaRef,
        /// The rows. It ends when the input does, or when it is stopped.
        rows: BoxStream<'static, Result<RecordBatch>>,
        /// Stops it.
        stop: StopHandle,
    },
}

impl Outcome {
    fn done(tag: impl Into<String>) -> Self {
        Self::Done { tag: tag.into(), notices: Vec::new() }
    }

    /// All rows of an answer, or of a stream once it has ended. Empty for what gives none.
    ///
    /// # Errors
    /// What the query fails with.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        match self {
            Self::Done { .. } => Ok(Vec::new()),
            Self::Rows { rows, .. } => rows.try_collect().await.map_err(from_datafusion),
            Self::Stream { rows, .. } => rows.try_collect().await,
        }
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done { tag, .. } => f.debug_tuple("Done").field(tag).finish(),
            Self::Rows { schema, .. } => f.debug_tuple("Rows").field(schema).finish(),
            Self::Stream { schema, .. } => f.debug_tuple("Stream").field(schema).finish(),
        }
    }
}

impl Engine {
    /// Settings for a new engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Runs all statements of `text`, one after the other, and gives the outcome of the last.
    ///
    /// # Errors
    /// The first statement's that fails; those before it stay done.
    pub async fn execute(&self, text: &str) -> Result<Outcome> {
        let mut last = Outcome::done("");
        for statement in sql::parse(text)? {
            last = self.run(statement).await?;
        }
        Ok(last)
    }

    /// A query's answer as a DataFusion DataFrame: views, sources read to their end, tables.
    ///
    /// # Errors
    /// `Invalid` if `text` is not one query; what planning it fails with.
    pub async fn sql(&self, text: &str) -> Result<DataFrame> {
        match sql::parse_one(text)? {
            Statement::Select(query) if !query.clauses.is_streaming() => self.batch(&query.query).await,
            _ => Err(Error::invalid("not a query with a complete answer")
                .with_hint("use Engine::execute for statements and streaming queries")),
        }
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    pub async fn run(&self, statement: Statement) -> Result<Outcome> {
        let position = statement.position();
        self.run_statement(statement).await.map_err(|error| self.explained(error, position))
    }

    /// `error` with what the engine knows and the planner does not: where the statement is, and what names there are.
    fn explained(&self, error: Error, statement: Option<Position>) -> Error {
        let error = match unknown_table(&error) {
            Some(name) if self.inner.catalog.definition(name).is_some() => computed(name).or_at(error.position()),
            Some(name) => self.unknown("table, view or source", name).or_at(error.position()),
            None => error,
        };
        let is_about_text = matches!(error.kind(), ErrorKind::Syntax | ErrorKind::Invalid | ErrorKind::Unsupported);
        if is_about_text { error.or_at(statement) } else { error }
    }

    async fn run_statement(&self, statement: Statement) -> Result<Outcome> {
        // What changes the catalog goes one after the other: each looks at the names there are, and then takes or frees one.
        let _alone = match &statement {
            Statement::CreateSource(_)
            | Statement::CreateMaterializedView(_)
            | Statement::CreateView { .. }
            | Statement::Drop { .. }
            | Statement::Pause { .. }
            | Statement::Resume { .. }
            | Statement::CreateSchedule(_) => Some(self.inner.defining.lock().await),
            _ => None,
        };
        match statement {
            Statement::CreateSource(create) => self.create_source(create).await,
            Statement::CreateMaterializedView(create) => self.create_view(create).await,
            Statement::CreateView { name, or_replace, if_not_exists, query, text } => {
                self.create_macro(name, or_replace, if_not_exists, query, text).await
            }
            Statement::Select(query) => self.select(query).await,
            Statement::Subscribe { view, since, snapshot } => self.subscribe_statement(view, since, snapshot).await,
            Statement::Explain { analyze, batch, statement } => self.explain(analyze, batch, *statement).await,
            Statement::ExplainView { batch, name } => self.explain_view(batch, &name).await,
            Statement::Describe { name } => self.describe(&name).await,
            Statement::ShowCreate { name } => self.show_create(&name),
            Statement::Show(show) => self.show(show).await,
            Statement::Drop { kind, if_exists, name } => self.drop(kind, if_exists, name).await,
            Statement::Insert { source, columns, query, statement } => {
                self.insert(source, &columns, &query, *statement).await
            }
            Statement::Pause { view } => {
                self.set_paused(&view.node, true).await?;
                Ok(Outcome::done("PAUSE"))
            }
            Statement::Resume { view } => {
                self.set_paused(&view.node, false).await?;
                Ok(Outcome::done("RESUME"))
            }
            Statement::CreateSchedule(create) => self.create_schedule(create).await,
            Statement::Schedule { action, name } => self.schedule(action, name).await,
            Statement::Rollback(rollback) => self.rollback(rollback).await,
            Statement::Maintain { task, view } => self.maintain(task, &view).await,
            Statement::Run(run) => self.batch_run(run).await,
            Statement::CancelJob { job } => {
                self.inner.catalog.jobs.cancel(&job.node).await.map_err(|e| e.at(job.position))?;
                Ok(Outcome::done("CANCEL JOB"))
            }
            Statement::Passthrough(statement) => self.passthrough(*statement).await,
        }
    }

    /// Stops or goes on reading for `view`, also after a restart.
    async fn set_paused(&self, view: &str, paused: bool) -> Result<()> {
        let job = self.job(view)?;
        self.must_hold(if paused { "PAUSE" } else { "RESUME" }).await?;
        self.inner.catalog.set_paused(view, paused);
        if let Err(error) = self.inner.catalog.save().await {
            self.inner.catalog.set_paused(view, job.is_paused());
            return Err(error);
        }
        if paused { job.pause().await } else { job.resume().await }
    }

    /// The latest versions of `view`, or of a relation such as `view$history`, as a DataFrame.
    ///
    /// # Errors
    /// `Invalid` for an unknown name.
    pub async fn table(&self, name: &str) -> Result<DataFrame> {
        match crate::plan::CatalogView::relation(self.inner.catalog.as_ref(), name, None).await? {
            Some(provider) => self.inner.context.read_table(provider).map_err(from_datafusion),
            None => self.inner.context.table(name).await.map_err(from_datafusion),
        }
    }

    /// A handle that pushes rows into the source `name`, declared with `connector = 'push'`.
    ///
    /// # Errors
    /// `Invalid` if there is no such source, or it is not one to push into.
    pub fn push_handle(&self, name: &str) -> Result<PushHandle> {
        let source = self.inner.catalog.source_entry(name).ok_or_else(|| self.unknown("source", name))?;
        let any: &dyn std::any::Any = source.table.source().as_ref();
        match any.downcast_ref::<PushSource>() {
            Some(push) => Ok(push.handle("push")),
            None => Err(Error::invalid(format!("source `{name}` is not one to push into"))
                .with_hint("declare it WITH (connector = 'push')")),
        }
    }

    /// Versions of `view` as they are committed, each batch with its epoch.
    ///
    /// # Errors
    /// `Invalid` for an unknown view.
    pub fn subscribe(&self, view: &str, since: Since) -> Result<Subscription> {
        self.inner.catalog.view_entry(view).ok_or_else(|| self.unknown("view", view))?.reader.subscribe(since)
    }

    /// Ends an epoch of `view` and waits until it is readable. It covers every row pushed before the call; of files and the
    /// like it covers what has been read.
    ///
    /// # Errors
    /// `Invalid` for an unknown view; the error its job ended with.
    pub async fn epoch(&self, view: &str) -> Result<()> {
        let entry = self.inner.catalog.view_entry(view).ok_or_else(|| self.unknown("view", view))?;
        match (&entry.job, &entry.problem) {
            (None, Some(problem)) => Err(problem.copy()),
            // Its input has ended, and every epoch with it.
            (None, None) => Ok(()),
            (Some(job), _) => match job.epoch().await {
                Err(error) if error.kind() == ErrorKind::Closed => job.wait().await,
                done => done,
            },
        }
    }

    /// Ends an epoch of each view that reads `source`: what was pushed into it can be read. A view that failed is left as it is.
    pub async fn settle(&self, source: &str) {
        for (view, _) in self.inner.catalog.readers_of(source) {
            if let Err(error) = self.epoch(&view).await {
                tracing::debug!(view, "no epoch: {error}");
            }
        }
    }

    /// Waits until every job over bounded sources alone has ended, and the runs its view asks for (`FINALIZE AFTER`,
    /// `RECOMPUTE`) are done.
    ///
    /// # Errors
    /// The error of the first of them, by name, that failed.
    pub async fn wait_for_bounded(&self) -> Result<()> {
        let mut outcome = Ok(());
        for job in self.inner.catalog.jobs().into_iter().filter(JobHandle::is_bounded) {
            let ended = job.wait().await;
            outcome = outcome.and(ended);
        }
        self.automatic_done().await;
        outcome
    }

    /// How far each job is.
    pub fn progress(&self) -> Vec<JobProgress> {
        let now_us = self.inner.options.clock.now_us();
        self.inner.catalog.jobs().iter().map(|job| JobProgress::of(job, now_us)).collect()
    }

    /// Names a person may complete, with what they are.
    pub fn names(&self, kind: NameKind) -> Vec<(String, String)> {
        self.inner.catalog.names(kind, &self.inner.context)
    }

    /// Whether a statement that is kept made `name`: a source or a view. `SHOW CREATE` tells it.
    pub fn is_defined(&self, name: &str) -> bool {
        self.inner.catalog.definition(name).is_some()
    }

    /// Makes `function` known to SQL.
    pub fn register_udf(&self, function: ScalarUDF) {
        self.inner.context.register_udf(function);
    }

    /// Makes the aggregate `function` known to SQL, in windows too.
    pub fn register_udaf(&self, function: AggregateUDF) {
        self.inner.context.register_udaf(function);
    }

    /// Makes `rows` known to SQL as the table `name`, to read and to join with.
    ///
    /// # Errors
    /// `Conflict` if the name is taken.
    pub fn register_table(&self, name: &str, rows: Vec<RecordBatch>) -> Result<()> {
        self.inner.catalog.check_free(name)?;
        let schema = rows.first().map(RecordBatch::schema);
        let schema = schema.ok_or_else(|| Error::invalid("a table needs at least one batch, to know its columns"))?;
        let table = datafusion::datasource::MemTable::try_new(schema, vec![rows]).map_err(from_datafusion)?;
        self.inner.context.register_table(name, Arc::new(table)).map_err(from_datafusion)?;
        Ok(())
    }

    /// The DataFusion session behind it, for what the engine does not wrap.
    pub fn context(&self) -> &SessionContext {
        &self.inner.context
    }

    /// Stops every job after the epoch at hand, and waits for them. Stopping is not the end of the input: open windows
    /// stay open. Nothing can be pushed any more.
    ///
    /// # Errors
    /// The error of the first job that failed.
    pub async fn shutdown(&self) -> Result<()> {
        self.inner.schedules.stop().await;
        let mut outcome = Ok(());
        for job in self.inner.catalog.jobs() {
            let stopped = job.stop().await;
            outcome = outcome.and(stopped);
        }
        for (_, source) in self.inner.catalog.sources() {
            if let Some(pushed) = source.table.source().push_handle() {
                pushed.fail("the engine has been shut down");
            }
        }
        self.release().await;
        outcome
    }

    /// Ends every job at once, as a crash would: what no epoch holds yet is not waited for, and another engine on the same
    /// data goes on from the last epochs.
    pub async fn abort(&self) {
        self.inner.lease.forget().await;
        for job in self.inner.catalog.jobs() {
            job.abort();
            // How it ended is known.
            let _ = job.wait().await;
        }
    }

    fn planner(&self) -> Planner {
        let catalog: Arc<EngineCatalog> = Arc::clone(&self.inner.catalog);
        Planner::new(catalog, self.inner.context.state())
    }

    fn job(&self, view: &str) -> Result<JobHandle> {
        let entry = self.inner.catalog.view_entry(view).ok_or_else(|| self.unknown("view", view))?;
        entry.job.ok_or_else(|| match &entry.problem {
            Some(problem) => problem.copy(),
            None => Error::new(ErrorKind::Closed, format!("view `{view}` has no running job"))
                .with_hint("its input has ended, or this engine only reads; its results can be read"),
        })
    }

    /// The error for a name there is not, with the name that may be meant; or why it could not be brought back.
    fn unknown(&self, kind: &str, name: &str) -> Error {
        if let Some(broken) = self.inner.catalog.broken(name) {
            return broken.problem.copy();
        }
        let error = unknown(kind, name);
        if error.hint().is_some() {
            return error;
        }
        let relations = self.names(NameKind::Relation);
        if let Some((_, what)) = relations.iter().find(|(known, _)| known == name) {
            return error.with_hint(format!("there is a {what} of that name"));
        }
        let names: Vec<&str> = relations.iter().map(|(known, _)| known.as_str()).collect();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => match self.elsewhere(name).or_else(|| file_hint(name)) {
                Some(hint) => hint,
                None => "SHOW SOURCES, SHOW VIEWS and SHOW TABLES list what there is".to_owned(),
            },
        };
        error.with_hint(hint)
    }

    /// Where what `source$relation` asks for is: refused rows belong to the views.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let (source, relation) = name.rsplit_once('$')?;
        self.inner.catalog.source_entry(source)?;
        let of_views: Vec<String> =
            self.inner.catalog.readers_of(source).into_iter().map(|(view, _)| format!("{view}${relation}")).collect();
        let is_of_views = ["late", "final", "history", "windows"].contains(&relation) && !of_views.is_empty();
        Some(match is_of_views {
            true => {
                format!("a source has `{source}$rejects`; ${relation} belongs to its views: {}", of_views.join(", "))
            }
            false => {
                format!("a source has `{source}$rejects` alone; $final, $history, $windows and $late belong to views")
            }
        })
    }

    fn next_query(&self) -> u64 {
        self.inner.queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn must_write(&self, what: &str) -> Result<()> {
        match self.inner.read_only {
            true => Err(Error::invalid(format!("{what} in an engine that was opened to read only"))),
            false => Ok(()),
        }
    }
}

/// The name in DataFusion's `table 'x' not found`.
fn unknown_table(error: &Error) -> Option<&str> {
    let name = error.message().strip_prefix("table '")?.strip_suffix("' not found")?;
    Some(name.strip_prefix("datafusion.public.").unwrap_or(name))
}

/// The error of a statement that changes a table, where `name` is one of ours.
fn computed(name: &str) -> Error {
    Error::unsupported(format!("`{name}` is no table: it follows from rows, which this statement cannot change"))
        .with_hint(
            "a view is corrected by late rows, REPROCESS, FINALIZE and ROLLBACK; rows of a source come from outside",
        )
}

/// What to do about a name that looks like a file's.
fn file_hint(name: &str) -> Option<String> {
    if !name.contains(['.', '/']) {
        return None;
    }
    if std::path::Path::new(name).exists() {
        return Some(format!(
            "files named .csv, .json, .parquet, .arrow or .avro are read by their name; a source reads this one: \
             CREATE SOURCE … WITH (connector = 'file', path = '{name}')"
        ));
    }
    crate::connectors::near_file(name)
}

fn unknown(kind: &str, name: &str) -> Error {
    let error = Error::invalid(format!("no {kind} `{name}`"));
    match name.ends_with('$') || name.is_empty() {
        true => error.with_hint("a shell expands $ in double quotes: use single quotes"),
        false => error,
    }
}

/// Boxes a stream of batches.
fn boxed<S>(stream: S) -> BoxStream<'static, Result<RecordBatch>>
where
    S: futures::Stream<Item = Result<RecordBatch>> + Send + 'static,
{
    stream.boxed()
}
