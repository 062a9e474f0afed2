//! One engine as sqllogictest sees it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use highwater::clock::ManualClock;
use highwater::connectors::{Boundedness, Source};
use highwater::engine::{Engine, Outcome};
use highwater::runtime::Epochs;
use highwater::sql::{self, Statement};
use highwater::{Error, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use tempfile::TempDir;

use crate::Way;
use crate::command::{Command, Line};
use crate::rows;
use crate::script::Scripts;

/// 2024-01-01T00:00:00Z: where the clock stands when a file starts.
const START_US: i64 = 1_704_067_200_000_000;

/// The sample data, `{data}` in a statement.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/data");

/// An engine in memory, its clock and its scripted sources.
pub struct Database {
    way: Way,
    engine: Engine,
    clock: Arc<ManualClock>,
    scripts: Scripts,
    /// Name and index of the event-time column of each source.
    event_times: Vec<(String, usize)>,
    views: Vec<String>,
    files: TempDir,
    random: SmallRng,
    /// Where the engines of this file, one after the other, keep their data.
    location: String,
    restarts: usize,
    /// Whether a session holds something that no other engine would know: tables, settings.
    bound: bool,
    /// Whether a view is paused: another engine would not know, and read on.
    paused: bool,
}

/// An error with its hint and causes, so that a test can look for any of them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut text = error.to_string();
        if let Some(hint) = error.hint() {
            text += &format!(" (hint: {hint})");
        }
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        Self(text)
    }
}

async fn open_engine(way: Way, clock: &Arc<ManualClock>, scripts: &Scripts, location: &str) -> Result<Engine> {
    let factory = scripts.clone();
    let (workers, batch_rows) = way.workers_and_batch_rows();
    Engine::builder()
        .data_dir(location)
        .clock(Arc::clone(clock) as _)
        .epochs(Epochs::Manual)
        .workers(workers)
        .batch_rows(batch_rows)
        .run_schedules(false)
        .connector("script", move |definition| factory.create(definition))
        .build()
        .await
}

impl Database {
    pub async fn open(way: Way) -> Result<Self> {
        let boundedness = if way == Way::Batch { Boundedness::Bounded } else { Boundedness::Live };
        let clock = Arc::new(ManualClock::new(START_US));
        let scripts = Scripts::new(boundedness);
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let location = format!("memory://slt/{}", FILES.fetch_add(1, Ordering::Relaxed));
        let engine = open_engine(way, &clock, &scripts, &location).await?;
        let files = tempfile::tempdir().map_err(|e| Error::internal("no temporary folder").with_source(e))?;
        let random = SmallRng::seed_from_u64(7);
        let (event_times, views) = (vec![], vec![]);
        let (restarts, bound, paused) = (0, false, false);
        Ok(Self { way, engine, clock, scripts, event_times, views, files, random, location, restarts, bound, paused })
    }

    async fn command(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Push { source, split, lines } => self.push(&source, &split, lines).await,
            Command::PushQuery { source, split, query } => {
                let script = self.scripts.get(&source)?;
                let rows = self.rows_of(&query).await?;
                rows.iter().try_for_each(|rows| script.push(&split, &conform(rows, &script.schema())?))
            }
            Command::End { source } => {
                self.scripts.get(&source)?.end();
                Ok(())
            }
            Command::ClockSet(us) => {
                self.clock.set_us(us);
                self.scripts.touch();
                Ok(())
            }
            Command::ClockAdvance(us) => {
                self.clock.advance_us(us);
                self.scripts.touch();
                Ok(())
            }
            Command::Epoch => self.end_epochs().await,
            Command::Schedules => {
                self.end_epochs().await?;
                let runs = self.engine.run_due_schedules().await?;
                runs.into_iter().try_for_each(|run| run.outcome.map(|_| ()).map_err(Error::invalid))
            }
            Command::File { name, text } => {
                let path = self.files.path().join(name);
                let folder = path.parent().map(PathBuf::from).unwrap_or_default();
                std::fs::create_dir_all(folder)
                    .and_then(|()| std::fs::write(&path, text))
                    .map_err(|e| Error::internal(format!("cannot write {}", path.display())).with_source(e))
            }
        }
    }

    async fn push(&mut self, source: &str, split: &str, lines: Vec<Line>) -> Result<()> {
        let mut waiting = vec![];
        let mut each = false;
        for line in lines {
            match line {
                Line::Row(row) => waiting.push(row),
                Line::Each => each = true,
                Line::Epoch => {
                    self.push_rows(source, split, std::mem::take(&mut waiting))?;
                    self.end_epochs().await?;
                }
            }
            if each && !waiting.is_empty() {
                self.push_rows(source, split, std::mem::take(&mut waiting))?;
                self.end_epochs().await?;
            }
        }
        self.push_rows(source, split, waiting)?;
        if self.restarts_here() {
            // What was read and is in no epoch is read again.
            self.engine.abort().await;
            self.restarts &= !1;
            self.restart().await?;
        }
        Ok(())
    }

    fn push_rows(&mut self, source: &str, split: &str, mut rows: Vec<Vec<Value>>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if let Way::Shuffled { within_seconds } = self.way {
            self.shuffle(source, &mut rows, within_seconds);
        }
        let script = self.scripts.get(source)?;
        script.push(split, &rows::batch(&script.schema(), &rows)?)
    }

    fn restarts_here(&self) -> bool {
        self.way == Way::Recovered && !self.bound && !self.paused && !self.views.is_empty()
    }

    /// Lets another engine go on with the data, in the way that is about that. Every other time the engine before was
    /// stopped, else it crashed.
    async fn restart(&mut self) -> Result<()> {
        if !self.restarts_here() {
            return Ok(());
        }
        self.restarts += 1;
        match self.restarts % 2 {
            0 => self.engine.shutdown().await?,
            _ => self.engine.abort().await,
        }
        self.engine = open_engine(self.way, &self.clock, &self.scripts, &self.location).await?;
        for view in self.views.clone() {
            // A job that has opened its splits tells their watermarks below its own.
            while self
                .rows_of(&format!("SHOW WATERMARKS FOR \"{view}\""))
                .await?
                .iter()
                .any(|rows| rows.num_rows() == 1)
            {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    /// Another order in which no row comes after one that is more than the watermark delay ahead of it.
    fn shuffle(&mut self, source: &str, rows: &mut [Vec<Value>], within_seconds: f64) {
        let column = self.event_times.iter().find(|(name, _)| name == source).map_or(0, |(_, column)| *column);
        rows.sort_by_cached_key(|row| {
            let seconds = match &row[column] {
                Value::String(text) => highwater::time::parse_instant(text).unwrap_or(0) as f64 / 1e6,
                other => other.as_f64().unwrap_or(0.0),
            };
            ((seconds + self.random.random_range(0.0..=within_seconds)) * 1e6) as i64
        });
    }

    async fn end_epochs(&mut self) -> Result<()> {
        self.engine.wait_for_bounded().await?;
        self.scripts.settle().await;
        for view in &self.views {
            self.engine.epoch(view).await?;
        }
        self.restart().await
    }

    async fn rows_of(&self, query: &str) -> Result<Vec<RecordBatch>> {
        self.engine.execute(query).await?.collect().await
    }

    async fn statement(&mut self, text: &str) -> Result<DBOutput<DefaultColumnType>> {
        let text = text.replace("{dir}", &self.files.path().display().to_string()).replace("{data}", DATA);
        let mut statements = sql::parse(&text)?;
        let statement = match statements.len() {
            1 => statements.remove(0),
            n => return Err(Error::invalid(format!("{n} statements where one was expected"))),
        };
        let statement = match statement {
            Statement::CreateMaterializedView(view) if self.way == Way::Batch => Statement::CreateView {
                name: view.name.node,
                or_replace: false,
                if_not_exists: false,
                query: view.query.query,
                text: view.query.text,
            },
            other => other,
        };
        let view = match &statement {
            Statement::CreateMaterializedView(view) => Some(view.name.node.clone()),
            _ => None,
        };
        if let Statement::CreateSource(source) = &statement {
            let event_time = source.watermark.as_ref().map(|watermark| &watermark.column.node);
            let column = source.columns.iter().position(|column| Some(&column.name.node) == event_time);
            self.event_times.push((source.name.node.clone(), column.unwrap_or(0)));
        }
        if matches!(
            statement,
            Statement::Select(_) | Statement::Show(_) | Statement::Passthrough(_) | Statement::Run(_)
        ) {
            self.end_epochs().await?;
        }
        // A plain SELECT is a statement of its own; what passes through may be one that only this session knows.
        self.bound |= matches!(&statement, Statement::Passthrough(_));
        self.paused |= matches!(&statement, Statement::Pause { .. });
        self.paused &= !matches!(&statement, Statement::Resume { .. });
        let rows = match self.engine.run(statement).await? {
            Outcome::Done { .. } => {
                self.views.extend(view);
                return Ok(DBOutput::StatementComplete(0));
            }
            outcome => rows::text(&outcome.collect().await?)?,
        };
        let types = vec![DefaultColumnType::Any; rows.first().map_or(0, Vec::len)];
        Ok(DBOutput::Rows { types, rows })
    }
}

/// `rows` with each column as `schema` wants it.
fn conform(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let failed = |e| Error::invalid("the query's columns are not the source's").with_source(e);
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(failed)
}

#[async_trait]
impl AsyncDB for Database {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, text: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        match Command::parse(text) {
            Some(command) => {
                self.command(command?).await?;
                Ok(DBOutput::StatementComplete(0))
            }
            None => Ok(self.statement(text).await?),
        }
    }

    async fn shutdown(&mut self) {
        // A job that failed has failed its file's records already.
        let _ = self.engine.shutdown().await;
    }
}
