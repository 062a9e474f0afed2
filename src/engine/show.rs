//! SHOW, DESCRIBE and EXPLAIN.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

use super::builder::columns_text;
use super::catalog::ViewEntry;
use super::{Engine, Outcome};
use crate::checkpoint::{JobRecord, ViewPaths};
use crate::error::{Error, Result};
use crate::operators::fate::Lateness;
use crate::plan::{CatalogView, explain, from_datafusion};
use crate::runtime::SourceProgress;
use crate::sql::statement::{Show, Spanned};
use crate::sql::{self, Statement};
use crate::time::format_us;
use crate::watermark;

/// One column of a table made here.
pub(super) enum Column {
    Text(Vec<Option<String>>),
    Number(Vec<Option<i64>>),
    /// µs UTC.
    Time(Vec<Option<i64>>),
}

impl Engine {
    pub(super) async fn show(&self, show: Show) -> Result<Outcome> {
        match show {
            Show::Sources => self.show_sources(),
            Show::Views => self.show_views(),
            Show::Jobs => self.show_jobs().await,
            Show::Schedules => self.show_schedules(),
            Show::Watermarks { of } => self.show_watermarks(of.as_deref()),
            Show::Lateness { of } => self.show_lateness(of.as_deref()),
        }
    }

    fn show_sources(&self) -> Result<Outcome> {
        let sources = self.inner.catalog.sources();
        let known: Vec<_> = sources.iter().map(|(name, _)| self.source_progress(name)).collect();
        let text = |value: &dyn Fn(&super::catalog::SourceEntry) -> Option<String>| {
            Column::Text(sources.iter().map(|(_, entry)| value(entry)).collect())
        };
        table(vec![
            ("source", Column::Text(sources.iter().map(|(name, _)| Some(name.clone())).collect())),
            ("connector", text(&|entry| Some(entry.connector.clone()))),
            ("bounded", text(&|entry| Some(if entry.table.is_bounded() { "yes" } else { "no" }.to_owned()))),
            (
                "event_time",
                text(&|entry| entry.table.watermark().map(|w| entry.table.columns()[w.column].field.name().clone())),
            ),
            ("rejected", Column::Number(known.iter().map(|k| k.as_ref().map(|k| k.rejected as i64)).collect())),
            ("notes", Column::Text(known.iter().map(|k| k.as_ref().map(|k| k.notes.to_string())).collect())),
        ])
    }

    /// What the jobs know of `source`: each reads it by itself, so that of the one that has read most.
    fn source_progress(&self, source: &str) -> Option<SourceProgress> {
        let jobs = self.inner.catalog.jobs();
        let known = jobs.iter().flat_map(|job| job.progress().sources).filter(|known| known.source == source);
        known.max_by_key(|known| (known.rejected, known.notes))
    }

    fn show_views(&self) -> Result<Outcome> {
        let views = self.inner.catalog.views();
        let macros = self.inner.catalog.macros();
        let mut rows: Vec<[Option<String>; 7]> = Vec::new();
        for (name, view) in views {
            let state = view_state(&view, &JobRecord::read(&view.reader.job())?);
            let [lateness, late, expired, emit] = explain::policy(&view.graph.policy).map(|(_, rule)| Some(rule));
            rows.push([Some(name), Some("materialized".into()), Some(state.into()), lateness, late, expired, emit]);
        }
        for (name, _) in macros {
            rows.push([Some(name), Some("macro".into()), None, None, None, None, None]);
        }
        let names = ["view", "kind", "state", "allowed_lateness", "on_late", "on_expired", "emit"];
        let column = |i: usize| Column::Text(rows.iter().map(|row| row[i].clone()).collect());
        table(names.into_iter().enumerate().map(|(i, name)| (name, column(i))).collect())
    }

    async fn show_jobs(&self) -> Result<Outcome> {
        Ok(rows_once(self.inner.catalog.job_rows().await?))
    }

    fn show_watermarks(&self, of: Option<&str>) -> Result<Outcome> {
        let mut rows: Vec<([Option<String>; 4], Option<i64>)> = Vec::new();
        for (name, view) in self.views_named(of)? {
            let Some(job) = &view.job else { continue };
            let progress = job.progress();
            rows.push(([Some(name.clone()), None, None, watermark_text(progress.watermark_us)], None));
            for split in progress.splits {
                let w = if split.ended { watermark::END } else { split.w };
                let source = view.sources.get(split.source).cloned();
                let row = [Some(name.clone()), source, Some(split.split), watermark_text(w)];
                rows.push((row, Some(split.next_offset)));
            }
        }
        let column = |i: usize| Column::Text(rows.iter().map(|(row, _)| row[i].clone()).collect());
        table(vec![
            ("view", column(0)),
            ("source", column(1)),
            ("split", column(2)),
            ("watermark", column(3)),
            ("next_offset", Column::Number(rows.iter().map(|(_, offset)| *offset).collect())),
        ])
    }

    fn show_lateness(&self, of: Option<&str>) -> Result<Outcome> {
        let mut rows: Vec<(String, String, i64)> = Vec::new();
        for (name, view) in self.views_named(of)? {
            let c = view.reader.counts();
            let counts = [
                ("rows read", c.read),
                ("rows rejected", c.rejected),
                ("rows filtered", c.filtered),
                ("rows in no window", c.no_window),
                ("rows accepted", c.accepted),
                ("rows refused", c.refused),
                ("pairs on time", c.pairs_on_time),
                ("pairs late", c.pairs_late),
                ("pairs side output", c.pairs_side_output),
                ("pairs dropped", c.pairs_dropped),
                ("pairs queued", c.pairs_queued),
            ];
            rows.extend(counts.map(|(what, n)| (name.clone(), what.to_owned(), n as i64)));
            let bucket = |end_us: Option<i64>| match (end_us, Lateness::STEPS_US.last()) {
                (Some(end_us), _) => format!("rows behind W by up to {}", explain::micros(end_us)),
                (None, longest) => format!("rows behind W by more than {}", explain::micros(*longest.unwrap_or(&0))),
            };
            rows.extend(c.lateness.buckets().map(|(end_us, n)| (name.clone(), bucket(end_us), n as i64)));
        }
        table(vec![
            ("view", Column::Text(rows.iter().map(|(view, ..)| Some(view.clone())).collect())),
            ("what", Column::Text(rows.iter().map(|(_, what, _)| Some(what.clone())).collect())),
            ("count", Column::Number(rows.iter().map(|(.., n)| Some(*n)).collect())),
        ])
    }

    fn views_named(&self, of: Option<&str>) -> Result<Vec<(String, super::catalog::ViewEntry)>> {
        match of {
            None => Ok(self.inner.catalog.views()),
            Some(name) => {
                let view = self.inner.catalog.view_entry(name).ok_or_else(|| self.unknown("view", name))?;
                Ok(vec![(name.to_owned(), view)])
            }
        }
    }

    pub(super) fn show_create(&self, name: &Spanned<String>) -> Result<Outcome> {
        let text = self.inner.catalog.definition(&name.node);
        let text = text.ok_or_else(|| self.unknown("source or view", &name.node).at(name.position))?;
        Ok(lines("statement", &format!("{};", text.trim_end().trim_end_matches(';'))))
    }

    pub(super) async fn describe(&self, name: &Spanned<String>) -> Result<Outcome> {
        let columns = match self.inner.catalog.source_entry(&name.node) {
            Some(source) => {
                let fields = source.table.columns().iter().map(|column| Arc::clone(&column.field));
                columns_text(&Arc::new(Schema::new(fields.collect::<Vec<_>>())))
            }
            None => {
                let relation = self.inner.catalog.relation(&name.node, None).await?;
                let schema = match relation {
                    Some(provider) => provider.schema(),
                    None => {
                        let query = self.inner.catalog.macro_view(&name.node);
                        match query {
                            Some(query) => {
                                let plan = self.planner().logical_plan(&query).await?;
                                Arc::new(plan.schema().as_arrow().clone())
                            }
                            None => {
                                let table = self.inner.context.table(name.node.as_str()).await;
                                let table =
                                    table.map_err(|_| self.unknown("relation", &name.node).at(name.position))?;
                                Arc::new(table.schema().as_arrow().clone())
                            }
                        }
                    }
                };
                columns_text(&schema)
            }
        };
        table(vec![
            ("column", Column::Text(columns.iter().map(|(name, _)| Some(name.clone())).collect())),
            ("type", Column::Text(columns.into_iter().map(|(_, text)| Some(text)).collect())),
        ])
    }

    pub(super) async fn explain(&self, analyze: bool, batch: bool, statement: Statement) -> Result<Outcome> {
        let (view, query, streams) = match statement {
            Statement::Select(query) => {
                let streams = self.planner().is_streaming(&query).await?;
                (None, query, streams && !batch)
            }
            Statement::CreateMaterializedView(create) => (Some(create.name.node), create.query, !batch),
            Statement::Explain { .. } => return Err(Error::invalid("EXPLAIN of an EXPLAIN")),
            _ => {
                return Err(Error::unsupported("EXPLAIN of this statement")
                    .with_hint("it works for SELECT and CREATE MATERIALIZED VIEW"));
            }
        };
        if !streams {
            let frame = self.batch(&query.query).await?.explain(false, analyze).map_err(from_datafusion)?;
            let parts = frame.collect().await.map_err(from_datafusion)?;
            return Ok(lines("plan", &explain::batch(&parts).map_err(from_datafusion)?));
        }
        if analyze {
            return Err(Error::unsupported("EXPLAIN ANALYZE of a streaming query")
                .with_hint("create the view and look at SHOW JOBS and SHOW LATENESS"));
        }
        let state = self.place_of_state(view.as_deref());
        Ok(lines("plan", &self.planner().explain_stream(&query, &state).await?))
    }

    /// Where the state of a view, or of a query that ends with its reader, is kept.
    fn place_of_state(&self, view: Option<&str>) -> String {
        let memory = match self.inner.context.runtime_env().memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => format!("in memory up to {bytes} bytes, then on local disk"),
            _ => "in memory".to_owned(),
        };
        match view {
            Some(view) => {
                let location = self.inner.storage.location();
                let between = if location.ends_with('/') { "" } else { "/" };
                format!("{memory}; checkpoints and results in {location}{between}{}", ViewPaths::new(view).root())
            }
            None => format!("{memory} while the query runs"),
        }
    }

    /// What EXPLAIN says of the statement that made a view.
    pub(super) async fn explain_view(&self, batch: bool, name: &Spanned<String>) -> Result<Outcome> {
        let view = self.inner.catalog.view_entry(&name.node);
        let view = view.ok_or_else(|| self.unknown("view", &name.node).at(name.position))?;
        self.explain(false, batch, sql::parse_one(&view.text)?).await
    }
}

/// Key of the schema metadata of an answer that is a text: one column, a line of it in each row.
pub const LINES: &str = "highwater.lines";

/// `text`, a line in each row.
fn lines(name: &str, text: &str) -> Outcome {
    let array: ArrayRef = Arc::new(StringArray::from_iter_values(text.lines().collect::<Vec<_>>()));
    let schema = Schema::new(vec![Field::new(name, array.data_type().clone(), true)]);
    let schema = Arc::new(schema.with_metadata([(LINES.to_owned(), String::new())].into()));
    rows_once(RecordBatch::try_new(schema, vec![array]).expect("one column of the type it has"))
}

/// What the job of a view does, or why there is none.
pub(super) fn view_state(view: &ViewEntry, record: &JobRecord) -> &'static str {
    match &view.job {
        Some(job) => job_state(job),
        None if view.problem.is_some() => "failed",
        None if record.ended => "completed",
        None => "stored",
    }
}

pub(super) fn view_error(view: &ViewEntry) -> Option<String> {
    match &view.job {
        Some(job) => job.outcome().and_then(Result::err).map(|error| error.to_string()),
        None => view.problem.as_ref().map(|problem| problem.to_string()),
    }
}

fn job_state(job: &crate::runtime::JobHandle) -> &'static str {
    match job.outcome() {
        None if job.is_paused() => "paused",
        None => "running",
        Some(Ok(())) => "completed",
        Some(Err(_)) => "failed",
    }
}

pub(super) fn watermark_text(w: i64) -> Option<String> {
    match w {
        watermark::NONE => None,
        watermark::END => Some("end of input".to_owned()),
        w => Some(format_us(w)),
    }
}

/// A type as our SQL spells it, where it does.
pub(super) fn sql_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "VARCHAR".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => "TIMESTAMP".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::List(item) => format!("ARRAY<{}>", sql_type(item.data_type())),
        DataType::Struct(fields) => {
            let field = |f: &Arc<Field>| format!("{} {}", f.name(), sql_type(f.data_type()));
            format!("STRUCT<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

pub(super) fn table(columns: Vec<(&str, Column)>) -> Result<Outcome> {
    columns_of(columns).map(rows_once)
}

/// Columns as one batch.
pub(super) fn columns_of(columns: Vec<(&str, Column)>) -> Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (name, column) in columns {
        let array: ArrayRef = match column {
            Column::Text(values) => Arc::new(StringArray::from(values)),
            Column::Number(values) => Arc::new(Int64Array::from(values)),
            Column::Time(values) => Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC")),
        };
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|e| Error::internal("a table of SHOW does not fit together").with_source(e))
}

fn rows_once(rows: RecordBatch) -> Outcome {
    let schema = rows.schema();
    let rows = RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter([Ok(rows)]));
    Outcome::Rows { schema, rows: Box::pin(rows) }
}
