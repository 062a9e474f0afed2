//! Creating sources and views, and what their jobs write.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use async_trait::async_trait;
use datafusion::sql::sqlparser::ast;

use super::catalog::{MacroEntry, SourceEntry, ViewEntry};
use super::upkeep::upkeep_of;
use super::{Engine, Outcome, unknown};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::operators::graph::{Operator, OperatorGraph};
use crate::operators::ledger::WindowStatus;
use crate::operators::sequence::SplitRejects;
use crate::results::schema::{rejects_schema, window_status_schema};
use crate::results::{Epoch, SharedWriter, ViewReader, ViewTable, ViewWriter};
use crate::runtime::{EpochOutput, JobHandle, JobSpec, ResultSink, late_columns, spawn};
use crate::sql::statement::{CreateMaterializedView, CreateSource, DropKind, Spanned};
use crate::sql::{self, Statement};
use crate::watermark;
use crate::window::Window;

/// How far a job is, for a progress bar.
#[derive(Debug, Clone)]
pub struct JobProgress {
    /// The view's name.
    pub name: String,
    /// Rows read.
    pub rows: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes there are, where the sources know.
    pub bytes_total: Option<u64>,
    /// W, µs; `None` before the first row and after the last.
    pub watermark_us: Option<i64>,
    /// Pairs taken late.
    pub late: u64,
    /// Rows refused.
    pub expired: u64,
    /// Rows rejected.
    pub rejected: u64,
    /// How far W is behind the clock, µs.
    pub lag_us: Option<i64>,
    /// Whether the job has ended.
    pub done: bool,
}

impl JobProgress {
    pub(super) fn of(job: &JobHandle, now_us: i64) -> Self {
        let progress = job.progress();
        let w = progress.watermark_us;
        let watermark_us = (w != watermark::NONE && w != watermark::END).then_some(w);
        Self {
            name: progress.name,
            rows: progress.counts.read,
            bytes_read: progress.bytes_read,
            bytes_total: progress.bytes_total,
            watermark_us,
            late: progress.counts.pairs_late,
            expired: progress.counts.refused,
            rejected: progress.counts.rejected,
            lag_us: watermark_us.map(|w| now_us.saturating_sub(w)),
            done: progress.done,
        }
    }
}

impl Engine {
    /// Brings back what an earlier engine left in the data dir: names and results, no jobs.
    pub(super) async fn restore(&self) -> Result<()> {
        for text in self.inner.catalog.load().await? {
            match sql::parse_one(&text)? {
                Statement::CreateSource(create) => {
                    let entry = self.source_entry(&create)?;
                    self.inner.catalog.insert_source(&create.name.node, entry);
                }
                Statement::CreateView { name, query, text, .. } => {
                    self.inner.catalog.insert_macro(&name, MacroEntry { query: Arc::from(query), text });
                }
                Statement::CreateMaterializedView(create) => {
                    let name = create.name.node.clone();
                    let (graph, sources) = self.plan_view(&create).await?;
                    let table = ViewTable::from_graph(&name, &graph, late_columns(&graph));
                    let clock = Arc::clone(&self.inner.options.clock);
                    let reader = ViewReader::open(self.inner.storage.clone(), table, clock).await?;
                    let writer = SharedWriter::of(&reader).with_upkeep(upkeep_of(&create.options)?);
                    let entry = ViewEntry { graph, reader, writer, text: create.text, sources, job: None };
                    self.inner.catalog.insert_view(&name, entry);
                }
                _ => return Err(Error::new(ErrorKind::Corrupt, "the catalog holds a statement that makes nothing")),
            }
        }
        Ok(())
    }

    pub(super) async fn create_source(&self, create: CreateSource) -> Result<Outcome> {
        let name = create.name.node.clone();
        if let Some(done) = self.exists("SOURCE", &name, &create.text, create.or_replace, create.if_not_exists).await? {
            return Ok(done);
        }
        let entry = self.source_entry(&create)?;
        let notices = match entry.table.watermark() {
            Some(_) => Vec::new(),
            None => {
                vec![format!("source `{name}` has no watermark: it can be queried, but windows over it cannot close")]
            }
        };
        self.inner.catalog.insert_source(&name, entry);
        self.inner.catalog.save().await?;
        Ok(Outcome::Done { tag: "CREATE SOURCE".into(), notices })
    }

    fn source_entry(&self, create: &CreateSource) -> Result<SourceEntry> {
        let planner = self.planner();
        let definition = planner.source_definition(create)?;
        let place = |error: Error| match error.position() {
            Some(_) => error,
            None => error.at(create.name.position),
        };
        let source = self.inner.catalog.connectors.create(&definition).map_err(place)?;
        let table = Arc::new(planner.source_table(create, source)?);
        let connector = create.options.get("connector").cloned().unwrap_or_default();
        Ok(SourceEntry { table, connector, text: create.text.clone() })
    }

    pub(super) async fn create_macro(
        &self,
        name: String,
        or_replace: bool,
        if_not_exists: bool,
        query: Box<ast::Query>,
        text: String,
    ) -> Result<Outcome> {
        if let Some(done) = self.exists("VIEW", &name, &text, or_replace, if_not_exists).await? {
            return Ok(done);
        }
        // Names are resolved now, so that a mistake is told where it was made.
        self.planner().logical_plan(&query).await?;
        self.inner.catalog.insert_macro(&name, MacroEntry { query: Arc::from(query), text });
        self.inner.catalog.save().await?;
        Ok(Outcome::done("CREATE VIEW"))
    }

    pub(super) async fn create_view(&self, create: CreateMaterializedView) -> Result<Outcome> {
        let name = create.name.node.clone();
        let tag = "MATERIALIZED VIEW";
        if let Some(done) = self.exists(tag, &name, &create.text, create.or_replace, create.if_not_exists).await? {
            return Ok(done);
        }
        self.must_write("CREATE MATERIALIZED VIEW")?;
        if name.contains('$') {
            return Err(Error::invalid(format!("a view's name has no $: name=`{name}`")).at(create.name.position));
        }
        let upkeep = upkeep_of(&create.options).map_err(|e| e.at(create.name.position))?;
        let (graph, sources) = self.plan_view(&create).await?;
        let table = ViewTable::from_graph(&name, &graph, late_columns(&graph));
        let clock = Arc::clone(&self.inner.options.clock);
        let writer = ViewWriter::create(self.inner.storage.clone(), table, Arc::clone(&clock)).await?;
        let writer = SharedWriter::from(writer).with_upkeep(upkeep);
        let reader = writer.reader().clone();
        let sink = ViewSink { writer: writer.clone(), clock, names: source_names(&graph) };
        let spec = JobSpec {
            name: name.clone(),
            graph: Arc::clone(&graph),
            options: self.inner.options.clone(),
            sink: Box::new(sink),
        };
        let entry = ViewEntry { graph, reader, writer, text: create.text, sources, job: Some(spawn(spec)) };
        self.inner.catalog.insert_view(&name, entry);
        self.inner.catalog.save().await?;
        Ok(Outcome::done("CREATE MATERIALIZED VIEW"))
    }

    async fn plan_view(&self, create: &CreateMaterializedView) -> Result<(Arc<OperatorGraph>, Vec<String>)> {
        let graph = self.planner().plan_view(&create.query).await?;
        if graph.nodes.iter().any(|node| matches!(node.operator, Operator::PassThrough)) {
            return Err(Error::unsupported("a materialized view without a windowed aggregation")
                .at(create.query.position)
                .with_hint("CREATE VIEW makes a name for a query; a plain SELECT streams its rows"));
        }
        let sources = source_names(&graph);
        Ok((Arc::new(graph), sources))
    }

    /// Decides what CREATE does where the name is taken: the same text again is no error, so that a script can be run
    /// twice.
    async fn exists(
        &self,
        kind: &str,
        name: &str,
        text: &str,
        or_replace: bool,
        if_not_exists: bool,
    ) -> Result<Option<Outcome>> {
        let Some(known) = self.inner.catalog.definition(name) else { return Ok(None) };
        if if_not_exists || known.trim() == text.trim() {
            let notices = vec![format!("`{name}` exists already and was left as it is")];
            return Ok(Some(Outcome::Done { tag: format!("CREATE {kind}"), notices }));
        }
        if or_replace {
            self.remove(name).await?;
            return Ok(None);
        }
        Err(Error::new(ErrorKind::Conflict, format!("`{name}` exists already with another definition"))
            .with_hint(format!("choose another name, or CREATE OR REPLACE {kind} to start it anew")))
    }

    pub(super) async fn drop(&self, kind: DropKind, if_exists: bool, name: Spanned<String>) -> Result<Outcome> {
        let catalog = &self.inner.catalog;
        let (what, known) = match kind {
            DropKind::Source => ("source", catalog.source_entry(&name.node).is_some()),
            DropKind::MaterializedView => ("view", catalog.view_entry(&name.node).is_some()),
            DropKind::View => ("view", catalog.has_macro(&name.node) || catalog.view_entry(&name.node).is_some()),
            DropKind::Schedule => return self.drop_schedule(if_exists, &name).await,
            DropKind::Table if catalog.definition(&name.node).is_some() => ("table", true),
            DropKind::Table => {
                let dropped = self.inner.context.deregister_table(name.node.as_str());
                let dropped = dropped.map_err(crate::plan::from_datafusion)?.is_some();
                return match dropped || if_exists {
                    true => Ok(Outcome::done("DROP TABLE")),
                    false => Err(unknown("table", &name.node).at(name.position)),
                };
            }
        };
        if !known {
            return match if_exists {
                true => Ok(Outcome::done(format!("DROP {}", what.to_uppercase()))),
                false => Err(unknown(what, &name.node).at(name.position)),
            };
        }
        let readers = catalog.readers_of(&name.node);
        if let Some((reader, _)) = readers.first() {
            return Err(Error::new(ErrorKind::Conflict, format!("view `{reader}` reads source `{}`", name.node))
                .at(name.position)
                .with_hint("drop the view first"));
        }
        if let Some(schedule) = self.inner.schedules.over(&name.node).first() {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("schedule `{schedule}` runs over view `{}`", name.node),
            )
            .at(name.position)
            .with_hint("drop the schedule first"));
        }
        self.remove(&name.node).await?;
        Ok(Outcome::done(format!("DROP {}", what.to_uppercase())))
    }

    async fn remove(&self, name: &str) -> Result<()> {
        self.must_write("DROP")?;
        if let Some(view) = self.inner.catalog.view_entry(name) {
            if let Some(job) = view.job
                && let Err(error) = job.stop().await
            {
                tracing::warn!(view = name, "the job of a dropped view had failed: {error}");
            }
            self.inner.catalog.remove(name);
            self.inner.catalog.save().await?;
            return view.writer.remove().await;
        }
        self.inner.catalog.remove(name);
        self.inner.catalog.save().await
    }
}

/// Names of the sources of `graph`, in the order of their nodes.
pub(super) fn source_names(graph: &OperatorGraph) -> Vec<String> {
    let name = |node: &crate::operators::graph::Node| match &node.operator {
        Operator::Source(spec) => Some(spec.name.clone()),
        _ => None,
    };
    graph.nodes.iter().filter_map(name).collect()
}

/// Writes a view's epochs to its store.
struct ViewSink {
    writer: SharedWriter,
    clock: Arc<dyn Clock>,
    names: Vec<String>,
}

#[async_trait]
impl ResultSink for ViewSink {
    async fn versions(&mut self, _batches: Vec<RecordBatch>) -> Result<()> {
        Err(Error::internal("a view's versions came outside an epoch"))
    }

    fn wants_versions_at_once(&self) -> bool {
        false
    }

    async fn epoch(&mut self, output: EpochOutput) -> Result<()> {
        let mut writer = self.writer.lock().await?;
        let now_us = self.clock.now_us();
        let mut rejects: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
        for split in &output.rejects {
            let name = self.names.get(split.source).cloned().unwrap_or_default();
            rejects.entry(name).or_default().push(reject_rows(split, now_us)?);
        }
        let windows = match output.windows.is_empty() {
            true => Vec::new(),
            false => vec![window_rows(&output.windows)?],
        };
        let epoch = Epoch {
            number: writer.next_epoch(),
            versions: output.versions,
            late: output.late,
            rejects,
            windows,
            counts: output.counts,
            job: serde_json::json!({ "splits": output.job, "ended": output.last }),
        };
        writer.commit(epoch).await?;
        if output.last {
            writer.end().await?;
        }
        Ok(())
    }
}

impl Drop for ViewSink {
    fn drop(&mut self) {
        self.writer.abandon();
    }
}

fn reject_rows(split: &SplitRejects, now_us: i64) -> Result<RecordBatch> {
    let n = split.rejects.len();
    let text = |value: &dyn Fn(&crate::connectors::Reject) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(split.rejects.iter().map(value)))
    };
    let columns: Vec<ArrayRef> = vec![
        text(&|_| split.split.to_string()),
        Arc::new(Int64Array::from_iter_values(split.rejects.iter().map(|reject| reject.offset))),
        text(&|reject| reject.reason.as_str().to_owned()),
        text(&|reject| reject.message.clone()),
        text(&|reject| reject.place.clone()),
        text(&|reject| reject.raw.clone()),
        Arc::new(TimestampMicrosecondArray::from_value(now_us, n).with_timezone("UTC")),
    ];
    RecordBatch::try_new(rejects_schema(), columns)
        .map_err(|e| Error::internal("rejected rows do not fit their schema").with_source(e))
}

fn window_rows(windows: &[(Window, WindowStatus)]) -> Result<RecordBatch> {
    let time = |us: Vec<Option<i64>>| -> ArrayRef {
        // The end of input is no instant.
        let us = us.into_iter().map(|us| us.filter(|us| *us != watermark::END));
        Arc::new(us.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
    };
    let flag = |value: &dyn Fn(&WindowStatus) -> bool| -> ArrayRef {
        Arc::new(windows.iter().map(|(_, status)| Some(value(status))).collect::<BooleanArray>())
    };
    let count = |value: &dyn Fn(&WindowStatus) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(windows.iter().map(|(_, status)| value(status) as i64)))
    };
    let columns: Vec<ArrayRef> = vec![
        time(windows.iter().map(|(window, _)| Some(window.start)).collect()),
        time(windows.iter().map(|(window, _)| Some(window.end)).collect()),
        Arc::new(StringArray::from_iter_values(windows.iter().map(|(_, status)| status.state.as_str()))),
        flag(&|status| status.dirty),
        flag(&|_| false),
        flag(&|status| status.needs_recompute),
        flag(&|_| false),
        count(&|status| status.counts.on_time),
        count(&|status| status.counts.late),
        count(&|status| status.counts.refused_late),
        count(&|status| status.counts.refused_expired),
        time(windows.iter().map(|(_, status)| status.w_at_close).collect()),
        arrow::array::new_null_array(&arrow::datatypes::DataType::Utf8, windows.len()),
    ];
    RecordBatch::try_new(window_status_schema(), columns)
        .map_err(|e| Error::internal("window rows do not fit their schema").with_source(e))
}
