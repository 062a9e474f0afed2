//! Creating and dropping sources and views.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;

use super::catalog::{MacroEntry, SourceEntry, ViewEntry};
use super::mentioned::makes_results;
use super::upkeep::upkeep_of;
use super::{Engine, Outcome};
use crate::checkpoint::StateFiles;
use crate::connectors::{BatchLocation, Notes};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::graph::{Node, Operator, OperatorGraph};
use crate::plan::{Planner, from_datafusion};
use crate::results::{SharedWriter, ViewTable, ViewWriter, remove_view};
use crate::runtime::{JobHandle, late_columns};
use crate::sql::statement::{CreateMaterializedView, CreateSource, DropKind, Spanned};
use crate::sql::{self, Statement};
use crate::time::DAY_US;
use crate::watermark;
use crate::window::{Span, WindowKind};

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
    /// Rows in a gap between windows.
    pub no_window: u64,
    /// How far W is behind the clock, µs.
    pub lag_us: Option<i64>,
    /// What happened while its sources were read.
    pub notes: Notes,
    /// Whether the job has ended, well or not.
    pub done: bool,
    /// What it failed with, if it failed.
    pub error: Option<Arc<Error>>,
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
            no_window: progress.counts.no_window,
            lag_us: watermark_us.map(|w| now_us.saturating_sub(w)),
            notes: progress.sources.iter().fold(Notes::default(), |mut sum, source| {
                sum += source.notes;
                sum
            }),
            done: progress.done,
            error: job.outcome().and_then(Result::err).map(Arc::new),
        }
    }
}

/// What CREATE does where another definition has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfExists {
    Refuse,
    /// Replaces it, if nothing was computed by it.
    Replace,
    /// Replaces it and drops what was computed by it.
    Restart,
}

impl IfExists {
    fn of(or_replace: bool, restart: bool) -> Self {
        match (or_replace, restart) {
            (_, true) => Self::Restart,
            (true, false) => Self::Replace,
            (false, false) => Self::Refuse,
        }
    }
}

/// What is to be said of windows that leave gaps: more often than not slide and size were written in the other order.
fn gaps(node: &Node) -> Option<String> {
    let Operator::Window(spec) = &node.operator else { return None };
    let WindowKind::Hop { slide, size } = spec.window.kind() else { return None };
    let about_us = |span: Span| {
        let (months, days, us) = span.parts();
        (months * 30 + days).saturating_mul(DAY_US).saturating_add(us)
    };
    (about_us(slide) > about_us(size)).then(|| {
        format!("rows between the windows count nowhere: HOP's slide, {slide}, comes first and is longer than its size, {size}")
    })
}

impl Engine {
    pub(super) async fn create_source(&self, create: CreateSource) -> Result<Outcome> {
        let name = create.name.node.clone();
        // Taken and then left aside, it would be missed when a batch run needs it.
        if create.options.contains_key("archive") {
            return Err(Error::unsupported("option 'archive': a source's rows are not kept by the engine yet")
                .at(create.name.position)
                .with_hint(
                    "a source made of files is read again from its files, and batch_location = '…' names others",
                ));
        }
        let if_exists = IfExists::of(create.or_replace, create.restart);
        if let Some(done) = self.exists("SOURCE", &name, &create.text, if_exists, create.if_not_exists).await? {
            return Ok(done);
        }
        self.must_hold("CREATE SOURCE").await?;
        let entry = self.source_entry(&create)?;
        let readers = self.readers(&name)?;
        let planner = self.planner().with_replaced(&name, Some(Arc::clone(&entry.table)));
        for (reader, view) in &readers {
            if let Statement::CreateMaterializedView(create) = sql::parse_one(&view.text)? {
                // Its position is one in another text.
                let error = |e: Error| Error::new(e.kind(), format!("view `{reader}` cannot read it: {e}"));
                plan_view(&planner, &create).await.map_err(error)?;
            }
        }
        let mut notices = match entry.table.watermark() {
            Some(_) => Vec::new(),
            None => {
                vec![format!("source `{name}` has no watermark: it can be queried, but windows over it cannot close")]
            }
        };
        // Files may come later; but a mistyped path should not be found out by the first query.
        if entry.table.is_bounded()
            && let Err(error) = entry.table.source().splits().await
        {
            notices.push(format!("source `{name}` cannot be read yet: {error}"));
        }
        self.make_way(&name).await?;
        self.inner.catalog.insert_source(&name, entry);
        self.inner.catalog.save().await?;
        notices.extend(self.restart(readers.into_iter().map(|(name, view)| (name, view.text)).collect()).await?);
        Ok(Outcome::Done { tag: "CREATE SOURCE".into(), notices })
    }

    pub(super) fn source_entry(&self, create: &CreateSource) -> Result<SourceEntry> {
        let planner = self.planner();
        let definition = planner.source_definition(create)?;
        let place = |error: Error| match error.position() {
            Some(_) => error,
            None => error.at(create.name.position),
        };
        let source = self.inner.catalog.connectors.create(&definition).map_err(place)?;
        let location = BatchLocation::of(&definition, source.as_ref()).map_err(place)?;
        let table = planner.source_table(create, source)?;
        let table = match location {
            Some(location) => {
                let files = planner.source_table(create, Arc::clone(&location.source))?;
                table.with_batch_location(files, &location).map_err(place)?
            }
            None => table,
        };
        let table = Arc::new(table);
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
        let if_exists = IfExists::of(or_replace, false);
        if let Some(done) = self.exists("VIEW", &name, &text, if_exists, if_not_exists).await? {
            return Ok(done);
        }
        self.must_hold("CREATE VIEW").await?;
        // Names are resolved now, so that a mistake is told where it was made. Its own is not among them.
        self.planner().with_replaced(&name, None).logical_plan(&query).await?;
        self.make_way(&name).await?;
        self.inner.catalog.insert_macro(&name, MacroEntry { query: Arc::from(query), text });
        self.inner.catalog.save().await?;
        Ok(Outcome::done("CREATE VIEW"))
    }

    pub(super) async fn create_view(&self, create: CreateMaterializedView) -> Result<Outcome> {
        let name = create.name.node.clone();
        let tag = "MATERIALIZED VIEW";
        let if_exists = IfExists::of(create.or_replace, create.restart);
        if let Some(done) = self.exists(tag, &name, &create.text, if_exists, create.if_not_exists).await? {
            return Ok(done);
        }
        self.must_hold("CREATE MATERIALIZED VIEW").await?;
        if name.contains('$') {
            return Err(Error::invalid(format!("a view's name has no $: name=`{name}`")).at(create.name.position));
        }
        let upkeep = upkeep_of(&create.options).map_err(|e| e.at(create.name.position))?;
        let (graph, sources) = plan_view(&self.planner().with_replaced(&name, None), &create).await?;
        let table = ViewTable::from_graph(&name, &graph, late_columns(&graph));
        let definition = self.definition(&create.text, &sources)?;
        let clock = Arc::clone(&self.inner.options.clock);
        self.make_way(&name).await?;
        self.remove_leftovers(&name).await?;
        self.hold().await?;
        let writer = ViewWriter::create(self.inner.storage.clone(), table, clock).await?;
        let writer = SharedWriter::from(writer).with_upkeep(upkeep);
        let reader = writer.reader().clone();
        let job = match self.start(&name, &graph, &writer, definition, StateFiles::default(), None).await {
            Ok(job) => Some(job),
            Err(error) => {
                writer.remove().await?;
                return Err(error);
            }
        };
        let notices = graph.nodes.iter().filter_map(gaps).collect();
        let entry = ViewEntry { graph, reader, writer, text: create.text, sources, job, problem: None };
        self.inner.catalog.insert_view(&name, entry);
        self.inner.catalog.save().await?;
        self.start_automatic(&name, &create.query);
        Ok(Outcome::Done { tag: "CREATE MATERIALIZED VIEW".into(), notices })
    }

    /// Removes what a crash between making a view's store and naming it in the catalog, or the other way round while
    /// dropping, has left of a view that nobody knows.
    async fn remove_leftovers(&self, name: &str) -> Result<()> {
        if self.inner.catalog.load().await?.iter().any(|known| known.name == name) {
            return Err(Error::new(ErrorKind::Conflict, format!("another engine has made `{name}` meanwhile"))
                .with_hint("open the data dir anew to see it"));
        }
        remove_view(&self.inner.storage, name).await
    }

    pub(super) async fn plan_view(&self, create: &CreateMaterializedView) -> Result<(Arc<OperatorGraph>, Vec<String>)> {
        plan_view(&self.planner(), create).await
    }

    /// Materialized views that read the source or view `name`, through other views too.
    fn readers(&self, name: &str) -> Result<Vec<(String, ViewEntry)>> {
        let (source, view) = (format!("source {name}"), format!("view {name}"));
        let mut readers = Vec::new();
        for (reader, entry) in self.inner.catalog.views() {
            let parts = self.definition(&entry.text, &entry.sources)?;
            if reader != name && (parts.contains_key(&source) || parts.contains_key(&view)) {
                readers.push((reader, entry));
            }
        }
        Ok(readers)
    }

    /// Decides what CREATE does where the name is taken: the same definition again is no error, so that a script can be
    /// run twice. `None`: the name is free, or to be freed by [`Engine::make_way`] once nothing can be wrong with the new
    /// definition any more.
    async fn exists(
        &self,
        kind: &str,
        name: &str,
        text: &str,
        if_exists: IfExists,
        if_not_exists: bool,
    ) -> Result<Option<Outcome>> {
        let Some(known) = self.inner.catalog.definition(name) else { return Ok(None) };
        // One that another version wrote may not even be words of this one.
        let same = sql::definition(&known).ok() == Some(sql::definition(text)?);
        if if_not_exists || same && if_exists != IfExists::Restart {
            let notices = vec![format!("`{name}` exists already and was left as it is")];
            self.resume_failed(name).await?;
            return Ok(Some(Outcome::Done { tag: format!("CREATE {kind}"), notices }));
        }
        let is_view = makes_results(&known);
        let readers = self.readers(name)?;
        match if_exists {
            IfExists::Refuse => {
                let restart = if is_view || !readers.is_empty() { " … RESTART" } else { "" };
                Err(Error::new(ErrorKind::Conflict, format!("`{name}` exists already with another definition"))
                    .with_hint(format!("choose another name, or CREATE OR REPLACE {kind}{restart} to start it anew")))
            }
            IfExists::Replace if is_view => {
                Err(Error::new(ErrorKind::Conflict, format!("`{name}` has results of another definition"))
                    .with_hint("choose another name, or add RESTART to drop them and compute the view anew"))
            }
            IfExists::Replace if !readers.is_empty() => {
                let names = readers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                let conflict = Error::new(ErrorKind::Conflict, format!("views read `{name}`: views=`{names}`"));
                Err(match kind {
                    "SOURCE" => conflict
                        .with_hint("drop them first, or add RESTART to drop their results and compute them anew"),
                    _ => conflict.with_hint("drop them first"),
                })
            }
            IfExists::Replace | IfExists::Restart => Ok(None),
        }
    }

    /// Frees the name of a definition that is replaced. One without results of its own keeps its place until the new one takes it.
    async fn make_way(&self, name: &str) -> Result<()> {
        match self.inner.catalog.definition(name) {
            Some(known) if makes_results(&known) => self.remove(name).await,
            Some(_) => {
                self.inner.catalog.forget(name);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Computes the views `texts` anew, whose source has another definition now.
    async fn restart(&self, texts: Vec<(String, String)>) -> Result<Vec<String>> {
        let mut notices = Vec::new();
        for (name, text) in texts {
            self.remove(&name).await?;
            if let Statement::CreateMaterializedView(create) = sql::parse_one(&text)? {
                Box::pin(self.create_view(create)).await?;
                notices.push(format!("view `{name}` starts anew"));
            }
        }
        Ok(notices)
    }

    pub(super) async fn drop(&self, kind: DropKind, if_exists: bool, name: Spanned<String>) -> Result<Outcome> {
        let catalog = &self.inner.catalog;
        let what = match kind {
            DropKind::Source => "SOURCE",
            DropKind::MaterializedView => "MATERIALIZED VIEW",
            DropKind::View => "VIEW",
            DropKind::Table => "TABLE",
            DropKind::Schedule => return self.drop_schedule(if_exists, &name).await,
        };
        let known = match catalog.source_entry(&name.node) {
            // Flink declares sources with CREATE TABLE.
            Some(_) => Some(if kind == DropKind::Table { "TABLE" } else { "SOURCE" }),
            None if catalog.view_entry(&name.node).is_some() => Some("MATERIALIZED VIEW"),
            None if catalog.has_macro(&name.node) => Some("VIEW"),
            // Nobody knows what it was.
            None if catalog.broken(&name.node).is_some() => Some(what),
            None => None,
        };
        match known {
            Some(known) if known == what => {}
            Some(known) => {
                let message = format!("`{}` is a {}, and no {}", name.node, known.to_lowercase(), what.to_lowercase());
                let kept = if known == "MATERIALIZED VIEW" { ", with all it has published" } else { "" };
                let hint = format!("DROP {known} {} drops it{kept}", name.node);
                return Err(Error::invalid(message).at(name.position).with_hint(hint));
            }
            None => {
                let dropped = || self.inner.context.deregister_table(name.node.as_str()).map_err(from_datafusion);
                let dropped = kind == DropKind::Table && dropped()?.is_some();
                return match dropped || if_exists {
                    true => Ok(Outcome::done(format!("DROP {what}"))),
                    false => Err(self.unknown(&what.to_lowercase(), &name.node).at(name.position)),
                };
            }
        }
        let readers = self.readers(&name.node)?;
        if let Some((reader, _)) = readers.first() {
            return Err(Error::new(ErrorKind::Conflict, format!("view `{reader}` reads `{}`", name.node))
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
        Ok(Outcome::done(format!("DROP {what}")))
    }

    async fn remove(&self, name: &str) -> Result<()> {
        self.must_hold("DROP").await?;
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
        let had_results = self.inner.catalog.broken(name).is_some_and(|broken| makes_results(&broken.text));
        self.inner.catalog.remove(name);
        self.inner.catalog.save().await?;
        if had_results { remove_view(&self.inner.storage, name).await } else { Ok(()) }
    }
}

/// The graph of a materialized view, and the names of its sources.
async fn plan_view(planner: &Planner, create: &CreateMaterializedView) -> Result<(Arc<OperatorGraph>, Vec<String>)> {
    let graph = planner.plan_view(&create.query).await?;
    if graph.nodes.iter().any(|node| matches!(node.operator, Operator::PassThrough)) {
        return Err(Error::unsupported("a materialized view without a windowed aggregation")
            .at(create.query.position)
            .with_hint("CREATE VIEW makes a name for a query; a plain SELECT streams its rows"));
    }
    let sources = source_names(&graph);
    Ok((Arc::new(graph), sources))
}

/// Names of the sources of `graph`, in the order of their nodes.
pub(super) fn source_names(graph: &OperatorGraph) -> Vec<String> {
    let name = |node: &crate::operators::graph::Node| match &node.operator {
        Operator::Source(spec) => Some(spec.name.clone()),
        _ => None,
    };
    graph.nodes.iter().filter_map(name).collect()
}
