//! Bringing views back: what an engine does with the names, results and states that an earlier one left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::prelude::{col, lit};
use object_store::path::Path;

use super::Engine;
use super::catalog::{BrokenEntry, Definition, MacroEntry, ViewEntry};
use super::mentioned::mentioned;
use super::sink::ViewSink;
use super::upkeep::upkeep_of;
use super::view::source_names;
use crate::checkpoint::{JobRecord, StateFile, StateFiles, ViewPaths};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::graph::OperatorGraph;
use crate::operators::publish::Publisher;
use crate::plan::from_datafusion;
use crate::results::schema::column;
use crate::results::{Read, SharedWriter, ViewReader, ViewTable};
use crate::runtime::{JobHandle, JobSpec, Recovered, late_columns, live_from_us, spawn};
use crate::sql::statement::CreateMaterializedView;
use crate::sql::{self, Statement};

impl Engine {
    /// Brings back what an earlier engine left in the data dir: names and results, and if `resumes`, jobs, each from its
    /// last epoch.
    ///
    /// If there is nothing to be done but the queries of `only_for`, names that these cannot speak of are left out.
    pub(super) async fn restore(&self, resumes: bool, only_for: Option<&str>) -> Result<()> {
        let mut definitions = self.inner.catalog.load().await?;
        if let Some(queries) = only_for.filter(|_| self.inner.read_only) {
            definitions = mentioned(definitions, queries);
        }
        if resumes && !definitions.is_empty() {
            self.hold().await?;
        }
        for Definition { name, text, paused } in definitions {
            self.inner.catalog.set_paused(&name, paused);
            if let Err(error) = self.restore_one(&name, &text, resumes).await {
                // A file that is gone, a function not registered yet, a text of another version: it keeps nobody from the rest.
                tracing::error!(name, kind = error.kind().as_str(), "cannot be brought back: {error}");
                self.inner.catalog.insert_broken(&name, BrokenEntry { text, problem: Arc::new(error) });
            }
        }
        Ok(())
    }

    /// Brings back what one statement made.
    async fn restore_one(&self, name: &str, text: &str, resumes: bool) -> Result<()> {
        let unreadable = |error: Error| {
            // Its position is one in a text that nobody has before them.
            Error::new(error.kind(), format!("the statement that made `{name}` cannot be read: {}", error.message()))
                .with_hint("it was stored by another version of Highwater")
        };
        match sql::parse_one(text).map_err(unreadable)? {
            Statement::CreateSource(create) => {
                let entry = self.source_entry(&create)?;
                self.inner.catalog.insert_source(&create.name.node, entry);
            }
            Statement::CreateView { name, query, text, .. } => {
                self.inner.catalog.insert_macro(&name, MacroEntry { query: Arc::from(query), text });
            }
            Statement::CreateMaterializedView(create) => self.restore_view(create, resumes).await?,
            _ => return Err(Error::new(ErrorKind::Corrupt, "the catalog holds a statement that makes nothing")),
        }
        Ok(())
    }

    async fn restore_view(&self, create: CreateMaterializedView, resumes: bool) -> Result<()> {
        let name = create.name.node.clone();
        let (graph, sources) = self.plan_view(&create).await?;
        let table = ViewTable::from_graph(&name, &graph, late_columns(&graph));
        let clock = Arc::clone(&self.inner.options.clock);
        let reader = ViewReader::open(self.inner.storage.clone(), table, clock).await?;
        let writer = SharedWriter::of(&reader).with_upkeep(upkeep_of(&create.options)?);
        let mut entry = ViewEntry { graph, reader, writer, text: create.text, sources, job: None, problem: None };
        if resumes && let Err(error) = self.resume(&name, &mut entry).await {
            // One view that cannot go on keeps nobody from the others, nor from its own results.
            tracing::error!(view = name, kind = error.kind().as_str(), "a view's job cannot go on: {error}");
            entry.problem = Some(Arc::new(error));
        }
        self.inner.catalog.insert_view(&name, entry);
        if resumes {
            self.start_automatic(&name, &create.query);
        }
        Ok(())
    }

    /// Starts the job of a stored view where it stood, unless its input has ended.
    pub(super) async fn resume(&self, name: &str, entry: &mut ViewEntry) -> Result<()> {
        let definition = self.definition(&entry.text, &entry.sources)?;
        let record = JobRecord::read(&entry.reader.job())?;
        record.check_definition(name, &definition)?;
        if record.ended {
            entry.writer.complete();
            return Ok(());
        }
        // From here on no other engine writes, so this is what the job goes on from.
        let (counts, job) = entry.writer.resume().await?;
        let record = JobRecord::read(&job)?;
        let paths = ViewPaths::new(name);
        let (files, recovered) = match &record.state {
            Some(state) => {
                let (files, mut recovered) = self.read_state(&paths, state).await?;
                recovered.counts = counts;
                recovered.published = self.live_versions(&entry.graph, &entry.reader, &recovered.state).await?;
                (files, Some(recovered))
            }
            None if counts.read > 0 => {
                return Err(Error::new(ErrorKind::Corrupt, format!("the state of a view is missing: view=`{name}`")));
            }
            None => (StateFiles::default(), None),
        };
        self.collect_states(&paths, &files).await;
        entry.job = Some(self.start(name, &entry.graph, &entry.writer, definition, files, recovered).await?);
        Ok(())
    }

    /// Tries once more with a view whose job could not go on, or has failed.
    ///
    /// # Errors
    /// Why it still cannot.
    pub(super) async fn resume_failed(&self, name: &str) -> Result<()> {
        if let Some(broken) = self.inner.catalog.broken(name) {
            return self.restore_one(name, &broken.text, true).await;
        }
        let Some(mut entry) = self.inner.catalog.view_entry(name) else { return Ok(()) };
        let failed = entry.job.as_ref().and_then(JobHandle::outcome).is_some_and(|outcome| outcome.is_err());
        if entry.problem.is_none() && !failed {
            return Ok(());
        }
        (entry.job, entry.problem) = (None, None);
        self.resume(name, &mut entry).await?;
        self.inner.catalog.update_view(name, entry);
        Ok(())
    }

    /// Starts a view's job.
    pub(super) async fn start(
        &self,
        name: &str,
        graph: &Arc<OperatorGraph>,
        writer: &SharedWriter,
        definition: BTreeMap<String, String>,
        files: StateFiles,
        recovered: Option<Recovered>,
    ) -> Result<JobHandle> {
        let sink = ViewSink {
            context: self.inner.context.clone(),
            writer: writer.clone(),
            storage: self.inner.storage.clone(),
            paths: ViewPaths::new(name),
            clock: Arc::clone(&self.inner.options.clock),
            view: name.to_owned(),
            names: source_names(graph),
            definition,
            files,
        };
        spawn(JobSpec {
            name: name.to_owned(),
            graph: Arc::clone(graph),
            options: self.inner.options.clone(),
            sink: Box::new(sink),
            recovered,
            paused: self.inner.catalog.is_paused(name),
        })
        .await
    }

    /// Hashes of the texts that a view's state depends on: its own, and those of the sources and macros it reads.
    pub(super) fn definition(&self, text: &str, sources: &[String]) -> Result<BTreeMap<String, String>> {
        let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
        let own = sql::definition(text)?;
        let mut parts = BTreeMap::from([("query".to_owned(), hash(&own))]);
        for source in sources {
            if let Some(entry) = self.inner.catalog.source_entry(source) {
                parts.insert(format!("source {source}"), hash(&sql::definition(&entry.text)?));
            }
        }
        let macros = self.inner.catalog.macros();
        let mut texts = vec![own];
        while let Some(text) = texts.pop() {
            let words: BTreeSet<&str> = text.split(' ').collect();
            for (name, entry) in macros.iter().filter(|(name, _)| words.contains(name.as_str())) {
                let text = sql::definition(&entry.text)?;
                if parts.insert(format!("view {name}"), hash(&text)).is_none() {
                    texts.push(text);
                }
            }
        }
        Ok(parts)
    }

    async fn read_state(&self, paths: &ViewPaths, name: &str) -> Result<(StateFiles, Recovered)> {
        let newest = self.read_state_file(&paths.states(), name).await?;
        let mut batches: HashMap<_, _> = newest.batches(None)?.into_iter().collect();
        let mut older = BTreeMap::new();
        for (file, wanted) in &newest.older {
            let read = self.read_state_file(&paths.states(), file).await?;
            batches.extend(read.batches(Some(wanted))?);
            older.insert(file.clone(), read);
        }
        let files = StateFiles::of(name, &newest, &older);
        Ok((files, Recovered { state: newest.state, batches, ..Recovered::default() }))
    }

    async fn read_state_file(&self, folder: &Path, name: &str) -> Result<StateFile> {
        let path = folder.clone().join(name);
        match self.inner.storage.get(&path).await? {
            Some(bytes) => StateFile::decode(path.as_ref(), bytes),
            None => Err(Error::new(ErrorKind::Corrupt, format!("a state file is missing: file=`{path}`"))),
        }
    }

    /// Versions of the windows that may still publish.
    async fn live_versions(
        &self,
        graph: &OperatorGraph,
        reader: &ViewReader,
        state: &serde_json::Value,
    ) -> Result<Vec<arrow::array::RecordBatch>> {
        if !Publisher::try_new(graph)?.may_correct() {
            return Ok(Vec::new());
        }
        let from_us = live_from_us(state, &graph.policy)?;
        let from = lit(ScalarValue::TimestampMicrosecond(Some(from_us), Some("UTC".into())));
        let versions = self.inner.context.read_table(reader.provider(Read::All)?).map_err(from_datafusion)?;
        let live = versions.filter(col(column::WINDOW_END).gt_eq(from)).map_err(from_datafusion)?;
        live.collect().await.map_err(from_datafusion)
    }

    /// Deletes what a crash left of states that nothing needs.
    async fn collect_states(&self, paths: &ViewPaths, files: &StateFiles) {
        let folder = paths.states();
        let listed = match self.inner.storage.list(&folder, None).await {
            Ok(listed) => listed,
            Err(error) => return tracing::warn!("old state files were not looked for: {error}"),
        };
        for file in listed {
            let needed = file.location.filename().is_some_and(|name| files.names().any(|known| known == name));
            if !needed && let Err(error) = self.inner.storage.delete(&file.location).await {
                tracing::warn!("an old state file was left behind: {error}");
            }
        }
    }
}
