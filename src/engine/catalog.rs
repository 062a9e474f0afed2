//! What the engine knows by name: sources, views, macros. Kept as the statements that made them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;
use object_store::path::Path;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::jobs;
use crate::clock::Clock;
use crate::connectors::ConnectorRegistry;
use crate::error::{Error, ErrorKind, Result};
use crate::finalize::Jobs;
use crate::operators::graph::OperatorGraph;
use crate::plan::{CatalogView, SourceTable, from_datafusion};
use crate::results::{Read, SharedWriter, ViewReader, rejects_of};
use crate::runtime::JobHandle;
use crate::storage::{Document, Storage};

/// What a name stands for, for completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Sources, views and their `$` relations, tables.
    Relation,
    /// Columns of relations.
    Column,
    /// Functions.
    Function,
}

/// A source.
#[derive(Debug, Clone)]
pub(super) struct SourceEntry {
    pub table: Arc<SourceTable>,
    pub connector: String,
    pub text: String,
}

/// A materialized view.
#[derive(Debug, Clone)]
pub(super) struct ViewEntry {
    pub graph: Arc<OperatorGraph>,
    pub reader: ViewReader,
    /// Publishes beside the job; a job that runs publishes through it too.
    pub writer: SharedWriter,
    pub text: String,
    /// Names of the sources it reads.
    pub sources: Vec<String>,
    /// `None` if its input had ended before, if the engine only reads, or if it could not go on.
    pub job: Option<JobHandle>,
    /// Why it could not go on.
    pub problem: Option<Arc<Error>>,
}

#[derive(Debug, Clone)]
pub(super) struct MacroEntry {
    pub query: Arc<ast::Query>,
    pub text: String,
}

/// A name whose statement could not be run again.
#[derive(Debug, Clone)]
pub(super) struct BrokenEntry {
    pub text: String,
    pub problem: Arc<Error>,
}

#[derive(Debug, Default)]
struct Names {
    sources: BTreeMap<String, SourceEntry>,
    views: BTreeMap<String, ViewEntry>,
    macros: BTreeMap<String, MacroEntry>,
    broken: BTreeMap<String, BrokenEntry>,
    /// Views that are not to read.
    paused: BTreeSet<String>,
    /// Statements in the order they were made.
    order: Vec<String>,
}

/// The names of one engine.
#[derive(Debug)]
pub(super) struct EngineCatalog {
    names: RwLock<Names>,
    storage: Storage,
    pub connectors: ConnectorRegistry,
    /// Batch runs.
    pub jobs: Jobs,
}

/// The catalog as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    statements: Vec<Definition>,
}

/// A stored statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition {
    /// What it makes. A later version may not be able to read the text.
    pub name: String,
    pub text: String,
    /// Whether it is a view that is not to read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

const CATALOG: Document = Document { name: "the catalog", format_version: 1 };

impl Names {
    /// The text of the statement that made `name`.
    fn text(&self, name: &str) -> Option<String> {
        let source = self.sources.get(name).map(|entry| entry.text.clone());
        let view = source.or_else(|| self.views.get(name).map(|entry| entry.text.clone()));
        let of_macro = view.or_else(|| self.macros.get(name).map(|entry| entry.text.clone()));
        of_macro.or_else(|| self.broken.get(name).map(|entry| entry.text.clone()))
    }

    /// Gives `name` its place in the order, unless it has one.
    fn place(&mut self, name: &str) {
        self.broken.remove(name);
        if !self.order.iter().any(|known| known == name) {
            self.order.push(name.to_owned());
        }
    }
}

impl EngineCatalog {
    pub fn new(storage: Storage, connectors: ConnectorRegistry, clock: Arc<dyn Clock>) -> Self {
        Self { names: RwLock::default(), jobs: Jobs::new(storage.clone(), clock), storage, connectors }
    }

    /// The statements stored, in the order they were made.
    ///
    /// # Errors
    /// `Corrupt` if they are damaged or of another format.
    pub async fn load(&self) -> Result<Vec<Definition>> {
        let Some(bytes) = self.storage.get(&path()).await? else { return Ok(Vec::new()) };
        let stored: Stored = CATALOG.decode(path().as_ref(), &bytes)?;
        Ok(stored.statements)
    }

    /// Writes the statements of all names.
    pub async fn save(&self) -> Result<()> {
        let stored = {
            let names = self.names.read();
            let definition = |name: &String| {
                let text = names.text(name)?;
                Some(Definition { name: name.clone(), text, paused: names.paused.contains(name) })
            };
            Stored { statements: names.order.iter().filter_map(definition).collect() }
        };
        self.storage.put(&path(), CATALOG.encode(&stored)?).await
    }

    /// The text of the statement that made `name`, if there is one.
    pub fn definition(&self, name: &str) -> Option<String> {
        self.names.read().text(name)
    }

    /// Why `name` could not be brought back, if it could not.
    pub fn broken(&self, name: &str) -> Option<BrokenEntry> {
        self.names.read().broken.get(name).cloned()
    }

    /// Keeps a statement that could not be run again, in its place.
    pub fn insert_broken(&self, name: &str, entry: BrokenEntry) {
        let mut names = self.names.write();
        names.place(name);
        names.broken.insert(name.to_owned(), entry);
    }

    /// # Errors
    /// `Conflict` if `name` is taken.
    pub fn check_free(&self, name: &str) -> Result<()> {
        match self.definition(name) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Conflict, format!("`{name}` exists already"))
                .with_hint("choose another name, or drop it first")),
        }
    }

    pub fn insert_source(&self, name: &str, entry: SourceEntry) {
        let mut names = self.names.write();
        names.place(name);
        names.sources.insert(name.to_owned(), entry);
    }

    pub fn insert_view(&self, name: &str, entry: ViewEntry) {
        let mut names = self.names.write();
        names.place(name);
        names.views.insert(name.to_owned(), entry);
    }

    /// Notes whether the view `name` is to read.
    pub fn set_paused(&self, name: &str, paused: bool) {
        let noted = &mut self.names.write().paused;
        if paused {
            noted.insert(name.to_owned())
        } else {
            noted.remove(name)
        };
    }

    pub fn is_paused(&self, name: &str) -> bool {
        self.names.read().paused.contains(name)
    }

    /// Replaces what is known of a view.
    pub fn update_view(&self, name: &str, entry: ViewEntry) {
        if let Some(known) = self.names.write().views.get_mut(name) {
            *known = entry;
        }
    }

    pub fn insert_macro(&self, name: &str, entry: MacroEntry) {
        let mut names = self.names.write();
        names.place(name);
        names.macros.insert(name.to_owned(), entry);
    }

    pub fn remove(&self, name: &str) {
        self.forget(name);
        self.names.write().order.retain(|known| known != name);
    }

    /// Forgets what `name` stands for, and not its place among the others.
    pub fn forget(&self, name: &str) {
        let mut names = self.names.write();
        names.sources.remove(name);
        names.views.remove(name);
        names.macros.remove(name);
        names.broken.remove(name);
        names.paused.remove(name);
    }

    pub fn source_entry(&self, name: &str) -> Option<SourceEntry> {
        self.names.read().sources.get(name).cloned()
    }

    pub fn view_entry(&self, name: &str) -> Option<ViewEntry> {
        self.names.read().views.get(name).cloned()
    }

    pub fn has_macro(&self, name: &str) -> bool {
        self.names.read().macros.contains_key(name)
    }

    pub fn sources(&self) -> Vec<(String, SourceEntry)> {
        self.names.read().sources.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    pub fn views(&self) -> Vec<(String, ViewEntry)> {
        self.names.read().views.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    pub fn macros(&self) -> Vec<(String, MacroEntry)> {
        self.names.read().macros.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// Views that read the source `name`.
    pub fn readers_of(&self, name: &str) -> Vec<(String, ViewEntry)> {
        self.views().into_iter().filter(|(_, view)| view.sources.iter().any(|source| source == name)).collect()
    }

    pub fn jobs(&self) -> Vec<JobHandle> {
        self.names.read().views.values().filter_map(|view| view.job.clone()).collect()
    }

    pub fn names(&self, kind: NameKind, context: &SessionContext) -> Vec<(String, String)> {
        match kind {
            NameKind::Relation => self.relation_names(context),
            NameKind::Column => self.column_names(),
            NameKind::Function => {
                let state = context.state();
                let mut names: Vec<_> =
                    state.scalar_functions().keys().map(|n| (n.clone(), "function".into())).collect();
                names.extend(state.aggregate_functions().keys().map(|n| (n.clone(), "aggregate".into())));
                names.extend(state.window_functions().keys().map(|n| (n.clone(), "window function".into())));
                names
            }
        }
    }

    fn relation_names(&self, context: &SessionContext) -> Vec<(String, String)> {
        let mut names = Vec::new();
        for (name, _) in self.sources() {
            names.push((format!("{name}$rejects"), "rejected rows".to_owned()));
            names.push((name, "source".to_owned()));
        }
        for (name, _) in self.views() {
            for suffix in ["final", "history", "windows", "late"] {
                names.push((format!("{name}${suffix}"), format!("{suffix} of {name}")));
            }
            names.push((name, "view".to_owned()));
        }
        names.extend(self.macros().into_iter().map(|(name, _)| (name, "macro view".to_owned())));
        for schema in context.catalog("datafusion").and_then(|catalog| catalog.schema("public")).iter() {
            names.extend(schema.table_names().into_iter().map(|name| (name, "table".to_owned())));
        }
        names
    }

    fn column_names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        for (relation, source) in self.sources() {
            names.extend(source.table.columns().iter().map(|c| (c.field.name().clone(), relation.clone())));
        }
        for (relation, view) in self.views() {
            names.extend(view.graph.select.fields().iter().map(|f| (f.name().clone(), relation.clone())));
        }
        names
    }
}

fn path() -> Path {
    Path::from("catalog.json")
}

#[async_trait]
impl CatalogView for EngineCatalog {
    fn source(&self, name: &str) -> Option<Arc<SourceTable>> {
        self.names.read().sources.get(name).map(|entry| Arc::clone(&entry.table))
    }

    fn macro_view(&self, name: &str) -> Option<Arc<ast::Query>> {
        self.names.read().macros.get(name).map(|entry| Arc::clone(&entry.query))
    }

    async fn relation(&self, name: &str, as_of_us: Option<i64>) -> Result<Option<Arc<dyn TableProvider>>> {
        if name == jobs::RELATION && as_of_us.is_none() {
            let rows = self.job_rows().await?;
            let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).map_err(from_datafusion)?;
            return Ok(Some(Arc::new(table)));
        }
        if let Some(source) = name.strip_suffix("$rejects")
            && self.source_entry(source).is_some()
        {
            let readers: Vec<ViewReader> = self.readers_of(source).into_iter().map(|(_, view)| view.reader).collect();
            return rejects_of(source, &readers).map(Some);
        }
        let (view, suffix) = name.rsplit_once('$').map_or((name, None), |(view, suffix)| (view, Some(suffix)));
        let Some(entry) = self.view_entry(view) else {
            return match self.broken(view) {
                Some(broken) => Err(broken.problem.copy()),
                None => Ok(None),
            };
        };
        let read = match (suffix, as_of_us) {
            (None, None) => Read::Latest,
            (None, Some(us)) => Read::AsOf(us),
            (Some("final"), None) => Read::Final,
            (Some("history"), None) => Read::History,
            (Some("windows"), None) => Read::Windows,
            (Some("late"), None) => Read::Late,
            (Some(_), Some(_)) => {
                return Err(Error::unsupported(format!("FOR SYSTEM_TIME AS OF on `{name}`"))
                    .with_hint(format!("it works on the view itself: {view} FOR SYSTEM_TIME AS OF …")));
            }
            (Some(suffix), None) => {
                let hint = match entry.sources.first().filter(|_| suffix == "rejects") {
                    Some(source) => format!("rejected rows belong to the source: `{source}$rejects`"),
                    None => "there are $final, $history, $windows and $late".to_owned(),
                };
                return Err(Error::invalid(format!("view `{view}` has no relation `${suffix}`")).with_hint(hint));
            }
        };
        entry.reader.provider(read).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::engine::Engine;

    #[tokio::test]
    async fn a_statement_that_cannot_be_read_keeps_nobody_from_the_rest_and_stays() {
        let store = Arc::new(InMemory::new());
        let storage = Storage::with_store(Arc::clone(&store) as _, "test");
        let definition =
            |name: &str, text: &str| Definition { name: name.to_owned(), text: text.to_owned(), paused: false };
        let stored = Stored {
            statements: vec![
                definition("later", "CREATE SOMETHING later AS OF A VERSION TO COME"),
                definition("known", "CREATE VIEW known AS SELECT 1 AS one"),
            ],
        };
        storage.put(&path(), CATALOG.encode(&stored).unwrap()).await.unwrap();
        let engine = Engine::builder().object_store(store, "test").build().await.unwrap();
        engine.sql("SELECT one FROM known").await.unwrap();
        let error = engine.sql("SELECT * FROM later").await.expect_err("nobody knows what it is");
        assert!(error.to_string().contains("later"), "{error}");
        engine.execute("CREATE VIEW another AS SELECT 2 AS two").await.unwrap();
        let names = |stored: Stored| stored.statements.into_iter().map(|known| known.name).collect::<Vec<_>>();
        let bytes = storage.get(&path()).await.unwrap().unwrap();
        let now: Stored = CATALOG.decode("catalog.json", &bytes).unwrap();
        assert_eq!(names(now), ["later", "known", "another"]);
    }
}
