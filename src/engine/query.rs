//! Queries: complete answers, streams, subscriptions, and what DataFusion does by itself.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement as PlannedStatement};
use datafusion::prelude::DataFrame;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::builder::check_workers;
use super::{Engine, Outcome, boxed, unknown};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::graph::{Operator, OperatorGraph};
use crate::operators::publish::Publisher;
use crate::plan::from_datafusion;
use crate::results::Since as From;
use crate::runtime::{EpochOutput, JobHandle, JobSpec, ResultSink, spawn};
use crate::sql;
use crate::sql::statement::{Since, Spanned, Statement, StreamQuery};

/// Stops a streaming query. Stopping twice is no error.
#[derive(Debug, Clone)]
pub struct StopHandle {
    job: Option<JobHandle>,
    clock: Arc<dyn Clock>,
    stopped: Arc<Notify>,
}

impl StopHandle {
    /// Stops it; its stream ends soon after.
    pub fn stop(&self) {
        self.stopped.notify_one();
    }

    /// How far the job behind it is. `None` for a subscription.
    pub fn progress(&self) -> Option<super::JobProgress> {
        self.job.as_ref().map(|job| super::JobProgress::of(job, self.clock.now_us()))
    }
}

impl Engine {
    pub(super) async fn select(&self, query: StreamQuery) -> Result<Outcome> {
        if self.planner().is_streaming(&query).await? {
            return self.stream(&query).await;
        }
        let frame = self.batch(&query.query).await?;
        rows_of(frame).await
    }

    /// A query with a complete answer.
    pub(super) async fn batch(&self, query: &ast::Query) -> Result<DataFrame> {
        let plan = self.planner().batch_plan(query).await?;
        Ok(DataFrame::new(self.inner.context.state(), plan))
    }

    /// A streaming query: its rows as they come, kept nowhere.
    async fn stream(&self, query: &StreamQuery) -> Result<Outcome> {
        let graph = Arc::new(self.planner().plan_stream(query).await?);
        let (to, from) = mpsc::channel(16);
        let columns = streamed_columns(&graph)?;
        let schema = Arc::clone(&columns.schema);
        let spec = JobSpec {
            name: format!("query {}", self.next_query()),
            graph,
            options: self.inner.options.clone(),
            sink: Box::new(StreamSink { columns, to: to.clone() }),
            recovered: None,
            paused: false,
        };
        let job = spawn(spec).await?;
        let clock = Arc::clone(&self.inner.options.clock);
        let stop = StopHandle { job: Some(job.clone()), clock, stopped: Arc::new(Notify::new()) };
        let stopped = Arc::clone(&stop.stopped);
        let watched = job.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.notified() => {
                    let _ = watched.stop().await;
                }
                () = to.closed() => {
                    let _ = watched.stop().await;
                }
                _ = watched.wait() => {}
            }
        });
        let rows = ReceiverStream::new(from).map_ok_then(job);
        Ok(Outcome::Stream { schema, rows: boxed(rows), stop })
    }

    pub(super) async fn subscribe_statement(
        &self,
        view: Spanned<String>,
        since: Option<Since>,
        snapshot: bool,
    ) -> Result<Outcome> {
        let from = match (since, snapshot) {
            (None, true) => From::Snapshot,
            (None, false) => From::Now,
            (Some(_), true) => {
                return Err(Error::invalid("SINCE and WITH SNAPSHOT together")
                    .at(view.position)
                    .with_hint("a snapshot says where to begin; leave SINCE out"));
            }
            (Some(Since::Epoch(epoch)), false) => From::Epoch(epoch),
            (Some(Since::Time(text)), false) => {
                let us = crate::time::parse_time(&text.node, &jiff::tz::TimeZone::UTC);
                From::Time(us.map_err(|e| Error::invalid(e.to_string()).at(text.position))?)
            }
        };
        let entry = self.inner.catalog.view_entry(&view.node);
        let entry = entry.ok_or_else(|| self.unknown("view", &view.node).at(view.position))?;
        // A view whose job has ended has said all it will: what it has is what a subscriber gets.
        let from = match (&entry.job, from) {
            (Some(job), From::Now) if job.is_bounded() => From::Epoch(0),
            (None, From::Now) => From::Epoch(0),
            (_, from) => from,
        };
        let subscription = entry.reader.subscribe(from)?;
        let schema = entry.reader.schema(crate::results::Read::All);
        let clock = Arc::clone(&self.inner.options.clock);
        let stop = StopHandle { job: None, clock, stopped: Arc::new(Notify::new()) };
        let stopped = Arc::clone(&stop.stopped);
        let rows = subscription.into_stream().map_ok(|(_, rows)| rows);
        let rows = futures::StreamExt::take_until(rows, async move { stopped.notified().await });
        Ok(Outcome::Stream { schema, rows: boxed(rows), stop })
    }

    pub(super) async fn insert(
        &self,
        source: Spanned<String>,
        columns: &[String],
        query: &ast::Query,
        statement: DfStatement,
    ) -> Result<Outcome> {
        if self.inner.catalog.source_entry(&source.node).is_none() {
            return self.passthrough(statement).await;
        }
        let handle = self.push_handle(&source.node).map_err(|error| error.at(source.position))?;
        let rows = self.batch(query).await?.collect().await.map_err(from_datafusion)?;
        // All fit, or none is pushed: a statement that failed can be repeated.
        let rows = rows.iter().map(|batch| as_pushed(batch, columns, &handle.schema())).collect::<Result<Vec<_>>>()?;
        let pushed: usize = rows.iter().map(RecordBatch::num_rows).sum();
        for batch in rows {
            handle.push(batch).await?;
        }
        Ok(Outcome::done(format!("INSERT {pushed}")))
    }

    pub(super) async fn passthrough(&self, mut statement: DfStatement) -> Result<Outcome> {
        let Some(query) = inner_query(&mut statement)? else { return self.by_datafusion(statement).await };
        // DataFusion knows its own tables only. What reads sources and views is planned here, and lent to it as a table.
        let name = format!("query {}", self.next_query());
        let rows = self.batch(query).await?.into_view();
        *query = select_all(&format!("\"{name}\""))?;
        self.inner.context.register_table(TableReference::bare(name.as_str()), rows).map_err(from_datafusion)?;
        let outcome = self.by_datafusion(statement).await;
        self.inner.context.deregister_table(TableReference::bare(name.as_str())).map_err(from_datafusion)?;
        outcome
    }

    async fn by_datafusion(&self, statement: DfStatement) -> Result<Outcome> {
        let state = self.inner.context.state();
        let plan = plan_statement(&state, statement).await?;
        if let LogicalPlan::Statement(PlannedStatement::SetVariable(set)) = &plan
            && set.variable == "datafusion.execution.target_partitions"
        {
            check_workers(&set.variable, set.value.parse().unwrap_or(0))?;
        }
        let tag = match &plan {
            LogicalPlan::Ddl(ddl) => Some(ddl.name().to_owned()),
            LogicalPlan::Statement(statement) => Some(statement.name().to_owned()),
            _ => None,
        };
        let frame = self.inner.context.execute_logical_plan(plan).await.map_err(from_datafusion)?;
        match tag {
            Some(tag) if frame.schema().fields().is_empty() => Ok(Outcome::done(spaced(&tag))),
            _ => rows_of(frame).await,
        }
    }
}

async fn plan_statement(state: &SessionState, statement: DfStatement) -> Result<LogicalPlan> {
    state.statement_to_plan(statement).await.map_err(from_datafusion)
}

/// The query whose rows a statement of DataFusion's takes.
fn inner_query(statement: &mut DfStatement) -> Result<Option<&mut Box<ast::Query>>> {
    if let DfStatement::CopyTo(copy) = statement
        && let CopyToSource::Relation(name) = &copy.source
    {
        copy.source = CopyToSource::Query(select_all(&name.to_string())?);
    }
    Ok(match statement {
        DfStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => Some(query),
        DfStatement::Statement(statement) => match statement.as_mut() {
            ast::Statement::CreateTable(create) => create.query.as_mut(),
            // Values take their types from the table they go to.
            ast::Statement::Insert(insert) => {
                insert.source.as_mut().filter(|query| !matches!(query.body.as_ref(), ast::SetExpr::Values(_)))
            }
            _ => None,
        },
        _ => None,
    })
}

fn select_all(relation: &str) -> Result<Box<ast::Query>> {
    match sql::parse_one(&format!("SELECT * FROM {relation}"))? {
        Statement::Select(select) => Ok(select.query),
        _ => Err(Error::internal("SELECT is a query")),
    }
}

/// `CreateExternalTable` as `CREATE EXTERNAL TABLE`.
fn spaced(tag: &str) -> String {
    let mut text = String::new();
    for c in tag.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_uppercase());
    }
    text
}

async fn rows_of(frame: DataFrame) -> Result<Outcome> {
    let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
    let rows = frame.execute_stream().await.map_err(from_datafusion)?;
    Ok(Outcome::Rows { schema, rows })
}

/// The columns of `rows` in the order and with the types of the source; columns not named are NULL.
fn as_pushed(rows: &RecordBatch, columns: &[String], schema: &SchemaRef) -> Result<RecordBatch> {
    let named: Vec<String> = match columns.is_empty() {
        true => schema.fields().iter().map(|field| field.name().clone()).collect(),
        false => columns.to_vec(),
    };
    if named.len() != rows.num_columns() {
        let (have, want) = (rows.num_columns(), named.len());
        return Err(Error::invalid(format!("INSERT gives {have} values a row for {want} columns")));
    }
    if let Some(name) = named.iter().find(|name| schema.index_of(name).is_err()) {
        return Err(unknown("column", name));
    }
    if let Some(twice) = (1..named.len()).find(|i| named[..*i].contains(&named[*i])) {
        return Err(Error::invalid(format!("INSERT names column `{}` twice", named[twice])));
    }
    let strictly = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |field: &arrow::datatypes::FieldRef| match named.iter().position(|name| name == field.name()) {
        None => Ok(arrow::array::new_null_array(field.data_type(), rows.num_rows())),
        Some(i) => cast_with_options(rows.column(i), field.data_type(), &strictly).map_err(|e| {
            Error::invalid(format!("a value does not fit its column: column=`{}`", field.name())).with_source(e)
        }),
    };
    let arrays = schema.fields().iter().map(cast).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), arrays)
        .map_err(|e| Error::invalid("a row does not fit the source's columns").with_source(e))
}

/// Which columns of a version a stream shows.
struct StreamedColumns {
    schema: SchemaRef,
    indices: Vec<usize>,
}

/// The SELECT columns; then, where a row may be corrected, which version it is and why.
fn streamed_columns(graph: &OperatorGraph) -> Result<StreamedColumns> {
    let mut indices: Vec<usize> = (0..graph.select.fields().len()).collect();
    let windowed = !graph.nodes.iter().any(|node| matches!(node.operator, Operator::PassThrough));
    if !windowed {
        return Ok(StreamedColumns { schema: Arc::clone(&graph.select), indices });
    }
    let publisher = Publisher::try_new(graph)?;
    let output = publisher.output();
    if publisher.may_correct() {
        for name in ["_version", "_reason", "_deleted"] {
            indices.push(output.index_of(name).map_err(|e| Error::internal("a version column").with_source(e))?);
        }
    }
    let schema: Schema = output.project(&indices).map_err(|e| Error::internal("version columns").with_source(e))?;
    Ok(StreamedColumns { schema: Arc::new(schema), indices })
}

/// Passes rows on as they come.
struct StreamSink {
    columns: StreamedColumns,
    to: mpsc::Sender<RecordBatch>,
}

#[async_trait]
impl ResultSink for StreamSink {
    async fn versions(&mut self, batches: Vec<RecordBatch>) -> Result<()> {
        for batch in batches {
            let rows = batch.project(&self.columns.indices).map_err(|e| from_datafusion(e.into()))?;
            let gone = || Error::new(ErrorKind::Closed, "nobody reads the stream any more");
            self.to.send(rows).await.map_err(|_| gone())?;
        }
        Ok(())
    }

    fn wants_versions_at_once(&self) -> bool {
        true
    }

    async fn epoch(&mut self, epoch: EpochOutput) -> Result<()> {
        // Nobody can ask for the rejects of an ad-hoc query.
        if let Some(first) = epoch.failed.first() {
            tracing::warn!(results = epoch.failed.len(), result = %first.raw, "NULL for want of a value: {}", first.message);
        }
        Ok(())
    }
}

/// Adds the job's error, if it ends with one, to the end of its rows.
trait ThenOutcome {
    fn map_ok_then(self, job: JobHandle) -> impl futures::Stream<Item = Result<RecordBatch>> + Send + 'static;
}

impl ThenOutcome for ReceiverStream<RecordBatch> {
    fn map_ok_then(self, job: JobHandle) -> impl futures::Stream<Item = Result<RecordBatch>> + Send + 'static {
        use futures::StreamExt;
        let outcome = futures::stream::once(async move { job.wait().await });
        let errors = outcome.filter_map(|ended| async move { ended.err().map(Err) });
        self.map(Ok).chain(errors)
    }
}
