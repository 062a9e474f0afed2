//! Settings of an engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::ObjectStore;

use super::catalog::EngineCatalog;
use super::lease::Lease;
use super::schedule::Schedules;
use super::{Engine, Inner};
use crate::clock::{Clock, SystemClock};
use crate::connectors::{ConnectorRegistry, Source, SourceDefinition};
use crate::error::{Error, Result};
use crate::plan::{BatchDecode, PausingJoins, from_datafusion};
use crate::runtime::{Epochs, JobOptions, SpillFolder, TaskPool};
use crate::state::Memory;
use crate::storage::Storage;

/// Where an engine keeps its data unless told otherwise.
pub const DEFAULT_DATA_DIR: &str = "./highwater-data";

/// Most [`EngineBuilder::workers`]: each is a task with channels to all others, so that many more would be busy with
/// themselves.
pub const WORKERS_MAX: usize = 1024;

/// Settings of a new [`Engine`]. Nothing but where data is kept changes a result.
#[derive(Debug)]
pub struct EngineBuilder {
    data: Data,
    read_only: bool,
    resume: bool,
    workers: usize,
    batch_rows: usize,
    epochs: Epochs,
    clock: Arc<dyn Clock>,
    connectors: ConnectorRegistry,
    run_schedules: bool,
    memory_limit_bytes: Option<usize>,
    only_for: Option<String>,
}

/// Where an engine keeps its data.
#[derive(Debug)]
enum Data {
    At(String),
    In(Storage),
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self {
            data: Data::At(DEFAULT_DATA_DIR.to_owned()),
            read_only: false,
            resume: true,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            batch_rows: 8192,
            epochs: Epochs::Every(Duration::from_secs(1)),
            clock: Arc::new(SystemClock),
            connectors: ConnectorRegistry::with_builtins(),
            run_schedules: true,
            memory_limit_bytes: None,
            only_for: None,
        }
    }
}

impl EngineBuilder {
    /// Keeps data in a folder or at an object store URL.
    #[must_use]
    pub fn data_dir(mut self, location: impl Into<String>) -> Self {
        self.data = Data::At(location.into());
        self
    }

    /// Keeps data in an object store of your own making: other credentials, a cache, a kind of store that no URL names.
    /// Conditional creates (`PutMode::Create`) must be atomic in it. `location` names it in messages.
    #[must_use]
    pub fn object_store(mut self, store: Arc<dyn ObjectStore>, location: impl Into<Arc<str>>) -> Self {
        self.data = Data::In(Storage::with_store(store, location));
        self
    }

    /// Keeps data in memory, for as long as the engine lives.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.data = Data::In(Storage::memory());
        self
    }

    /// Reads what is there and changes nothing.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Opens only what the statements of `text` may need, of an engine that reads and will be asked nothing else: one view of
    /// a thousand opens as quickly as one of one. Without effect unless [`EngineBuilder::read_only`].
    #[must_use]
    pub fn only_for(mut self, text: impl Into<String>) -> Self {
        self.only_for = Some(text.into());
        self
    }

    /// Whether jobs of stored views go on from their last epochs when the engine opens. Default: yes. Without, what is
    /// there can be read, and new views can be made.
    #[must_use]
    pub fn resume_jobs(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Aggregating tasks per job, and partitions of a batch query. At least 1, at most [`WORKERS_MAX`].
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Most rows in a batch. At least 1.
    #[must_use]
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows.max(1);
        self
    }

    /// Most bytes of memory that the state of all views' open windows, and the sorts, joins and aggregations of queries may
    /// take together. What does not fit goes to files that no folder names, in the data dir if that is a local one, and comes
    /// back when a window closes. Without, they take what they need.
    ///
    /// It bounds what grows with keys and open windows. Batches under way and the results of one epoch come on top.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// How often a view's new versions become readable. An epoch that holds half a million rows ends before that.
    #[must_use]
    pub fn epoch_interval(mut self, every: Duration) -> Self {
        self.epochs = Epochs::Every(every);
        self
    }

    /// When epochs end.
    #[must_use]
    pub fn epochs(mut self, epochs: Epochs) -> Self {
        self.epochs = epochs;
        self
    }

    /// What time it is.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether runs of schedules start by themselves when they are due. Without it they are run by
    /// [`Engine::run_due_schedules`] alone.
    #[must_use]
    pub fn run_schedules(mut self, by_itself: bool) -> Self {
        self.run_schedules = by_itself;
        self
    }

    /// Adds a connector of your own under `name`.
    #[must_use]
    pub fn connector<F>(mut self, name: &str, factory: F) -> Self
    where
        F: Fn(&SourceDefinition) -> Result<Arc<dyn Source>> + Send + Sync + 'static,
    {
        self.connectors.register(name, factory);
        self
    }

    /// Opens the engine. Nothing is written before there is something to keep.
    ///
    /// # Errors
    /// `Invalid` for a setting beyond its limit; `Unavailable` if the data cannot be read; `Corrupt` if the catalog is
    /// damaged.
    pub async fn build(self) -> Result<Engine> {
        check_workers("workers", self.workers)?;
        let storage = match &self.data {
            Data::At(location) => Storage::open(location)?,
            Data::In(storage) => storage.clone(),
        };
        let resume = self.resume && !self.read_only;
        let context = self.session()?;
        let folder = match &self.data {
            Data::At(location) => local_folder(location),
            Data::In(_) => None,
        };
        let space = Arc::new(SpillFolder::new(folder));
        let options = JobOptions {
            workers: self.workers,
            batch_rows: self.batch_rows,
            epochs: self.epochs,
            clock: Arc::clone(&self.clock),
            task_context: context.task_ctx(),
            memory: Memory::new(Arc::clone(&context.runtime_env().memory_pool), space),
        };
        let catalog = Arc::new(EngineCatalog::new(storage.clone(), self.connectors, self.clock));
        let queries = std::sync::atomic::AtomicU64::new(0);
        let schedules = Schedules::load(storage.clone(), self.run_schedules && resume).await?;
        let lease = Lease::default();
        let (run_locks, automatic, defining) = Default::default();
        let read_only = self.read_only;
        let inner = Inner {
            catalog,
            context,
            storage,
            options,
            read_only,
            lease,
            schedules,
            defining,
            queries,
            run_locks,
            automatic,
        };
        let engine = Engine { inner: Arc::new(inner) };
        engine.restore(resume, self.only_for.as_deref()).await?;
        engine.keep_schedules();
        engine.keep_up();
        Ok(engine)
    }

    fn session(&self) -> Result<SessionContext> {
        let pool = BatchDecode(Arc::new(TaskPool::new(self.workers)));
        let config = SessionConfig::new()
            .with_target_partitions(self.workers)
            .with_information_schema(true)
            .with_extension(Arc::new(pool));
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(bytes) = self.memory_limit_bytes {
            runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
        }
        let runtime = runtime.build_arc().map_err(from_datafusion)?;
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_physical_optimizer_rule(Arc::new(PausingJoins));
        Ok(SessionContext::new_with_state(state.build()).enable_url_table())
    }
}

/// Refuses more than [`WORKERS_MAX`] of what `setting` asks for.
pub(super) fn check_workers(setting: &str, asked: usize) -> Result<()> {
    match asked {
        0..=WORKERS_MAX => Ok(()),
        _ => Err(Error::invalid(format!("'{setting}' is {asked}, expected at most {WORKERS_MAX}"))),
    }
}

/// The folder that a data dir is, if it is one.
fn local_folder(location: &str) -> Option<PathBuf> {
    match location.split_once("://") {
        Some(("file", path)) => Some(path.into()),
        Some(_) => None,
        None => Some(location.into()),
    }
}

/// Names and types of a schema, one per line, for messages.
pub(super) fn columns_text(schema: &SchemaRef) -> Vec<(String, String)> {
    schema.fields().iter().map(|field| (field.name().clone(), super::show::sql_type(field.data_type()))).collect()
}
