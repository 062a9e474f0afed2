//! One job: a graph wired up with tasks, and a handle to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};

use super::inputs::{Inputs, SourceProgress};
use super::pool::panicked;
use super::recovery::{JobState, LedgerExports, Recovered, SessionExports, import_sessions};
use super::results::{self, ResultSink, Results};
use super::sequencer::{Route, SequencerTask};
use super::worker::{FromWorker, Kept, Late, ToWorker, WorkerState, work};
use crate::change::Changes;
use crate::clock::Clock;
use crate::connectors::{Boundedness, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::aggregate::PartialAggregate;
use crate::operators::chain::ResultChain;
use crate::operators::failure;
use crate::operators::fate::FateCounts;
use crate::operators::graph::{AggregateSpec, NodeId, Operator, OperatorGraph, SourceSpec};
use crate::operators::judge::Judge;
use crate::operators::ledger::Ledger;
use crate::operators::merge::WindowMerge;
use crate::operators::ordered::{common_columns, late_schema};
use crate::operators::prepare::{Prepare, RowStep, Target};
use crate::operators::rows::RowsOperator;
use crate::operators::sequence::{Order, Sequencer, SplitProgress};
use crate::operators::session::SessionAggregate;
use crate::operators::static_join::StaticJoin;
use crate::state::{Layout, Memory};
use crate::watermark;
use crate::window::{WindowKind, WindowSpec};

/// When epochs end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epochs {
    /// This often, if there is anything to say.
    Every(Duration),
    /// When [`JobHandle::epoch`] is called, and at the end.
    Manual,
}

/// How a job runs. None of it changes a fate or a value (T5).
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// Aggregating tasks, and decode jobs in flight.
    pub workers: usize,
    /// Most rows in a batch.
    pub batch_rows: usize,
    /// When epochs end.
    pub epochs: Epochs,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Runs the plans of static tables.
    pub task_context: Arc<TaskContext>,
    /// How much memory state may take, shared by all jobs, and where the rest goes.
    pub memory: Memory,
}

/// A job to be started.
pub struct JobSpec {
    /// Name for messages: the view's.
    pub name: String,
    /// What to run.
    pub graph: Arc<OperatorGraph>,
    /// How.
    pub options: JobOptions,
    /// Where results go.
    pub sink: Box<dyn ResultSink>,
    /// The checkpoint to go on from. `None`: the sources' beginning.
    pub recovered: Option<Recovered>,
    /// Whether it reads only after [`JobHandle::resume`].
    pub paused: bool,
}

/// What a job is asked from outside.
#[derive(Debug)]
pub(super) enum Control {
    Epoch(oneshot::Sender<()>),
    Raise(i64, oneshot::Sender<()>),
    Pause,
    Resume,
    Stop(oneshot::Sender<()>),
}

/// Counters of a running job, written by its tasks.
#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: AtomicU64,
    refused: AtomicU64,
    /// Rows ever held for the end of an epoch.
    held: AtomicU64,
    watermark: AtomicI64,
    counts: Mutex<FateCounts>,
    splits: Mutex<Vec<SplitProgress>>,
    sources: Mutex<Vec<SourceProgress>>,
}

impl Progress {
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Ordering::Relaxed);
    }

    pub fn add_held(&self, rows: u64) {
        self.held.fetch_add(rows, Ordering::Relaxed);
    }

    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub fn set_watermark(&self, w: i64) {
        self.watermark.store(w, Ordering::Relaxed);
    }

    pub fn set_counts(&self, counts: &FateCounts) {
        *self.counts.lock() = counts.clone();
    }

    pub fn set_inputs(&self, splits: Vec<SplitProgress>, sources: Vec<SourceProgress>) {
        *self.splits.lock() = splits;
        *self.sources.lock() = sources;
    }
}

/// How far a job is.
#[derive(Debug, Clone)]
pub struct JobProgress {
    /// The view's name.
    pub name: String,
    /// Fates of rows read, as of the last epoch.
    pub counts: FateCounts,
    /// Bytes read from its sources.
    pub bytes_read: u64,
    /// Bytes its sources have, where all of them know.
    pub bytes_total: Option<u64>,
    /// W, µs, or [`watermark::NONE`] or [`watermark::END`].
    pub watermark_us: i64,
    /// Where each split stands, as of the last epoch.
    pub splits: Vec<SplitProgress>,
    /// What is known of each source, as of the last epoch.
    pub sources: Vec<SourceProgress>,
    /// Whether it has ended, well or not.
    pub done: bool,
}

/// A handle to a running job. When the last one is dropped the job stops as by [`JobHandle::stop`].
#[derive(Debug, Clone)]
pub struct JobHandle {
    name: Arc<str>,
    control: mpsc::Sender<Control>,
    progress: Arc<Progress>,
    ended: watch::Receiver<Option<Arc<Result<()>>>>,
    bounded: bool,
    paused: Arc<AtomicBool>,
    bytes_total: Option<u64>,
    abort: AbortHandle,
}

impl JobHandle {
    /// Whether all its sources end.
    pub fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Ends an epoch that covers every row its sources have accepted by now, and waits until the sink has it. Of sources
    /// that cannot tell ([`Source::accepted`]), of splits that are paused, and of a job that is, it covers what it took before.
    ///
    /// # Errors
    /// `Closed` if the job has ended; its own error is that of [`JobHandle::wait`].
    pub async fn epoch(&self) -> Result<()> {
        let (done, waiting) = oneshot::channel();
        self.ask(Control::Epoch(done)).await?;
        waiting.await.map_err(|_| self.closed())
    }

    /// Raises W to `w` after the rows read so far, if it is lower, and ends the epoch: windows whose time that is close and
    /// expire, and rows that come later find them so.
    ///
    /// # Errors
    /// `Closed` if the job has ended.
    pub async fn raise(&self, w: i64) -> Result<()> {
        let (done, waiting) = oneshot::channel();
        self.ask(Control::Raise(w, done)).await?;
        waiting.await.map_err(|_| self.closed())
    }

    /// Stops reading until [`JobHandle::resume`].
    ///
    /// # Errors
    /// `Closed` if the job has ended.
    pub async fn pause(&self) -> Result<()> {
        self.paused.store(true, Ordering::Relaxed);
        self.ask(Control::Pause).await
    }

    /// Reads again.
    ///
    /// # Errors
    /// `Closed` if the job has ended.
    pub async fn resume(&self) -> Result<()> {
        self.paused.store(false, Ordering::Relaxed);
        self.ask(Control::Resume).await
    }

    /// Ends the epoch and the job. Open windows stay open: stopping is not the end of the input (T6).
    ///
    /// # Errors
    /// The error the job ended with.
    pub async fn stop(&self) -> Result<()> {
        let (done, _waiting) = oneshot::channel();
        let _ = self.ask(Control::Stop(done)).await;
        self.wait().await
    }

    /// Ends the job at once, between any two steps, as a crash would. What no epoch holds is read again by the next one.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Waits until the job has ended.
    ///
    /// # Errors
    /// The error it ended with.
    pub async fn wait(&self) -> Result<()> {
        let mut ended = self.ended.clone();
        let outcome = match ended.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => return Err(self.closed()),
        };
        match outcome.as_deref() {
            Some(Err(error)) => Err(error.copy()),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Why it ended: nothing while it runs.
    pub fn outcome(&self) -> Option<Result<()>> {
        let outcome = self.ended.borrow().clone();
        outcome.map(|outcome| outcome.as_ref().as_ref().copied().map_err(Error::copy))
    }

    /// How far it is.
    pub fn progress(&self) -> JobProgress {
        JobProgress {
            name: self.name.to_string(),
            counts: self.progress.counts.lock().clone(),
            bytes_read: self.progress.bytes.load(Ordering::Relaxed),
            bytes_total: self.bytes_total,
            watermark_us: self.progress.watermark.load(Ordering::Relaxed),
            splits: self.progress.splits.lock().clone(),
            sources: self.progress.sources.lock().clone(),
            done: self.ended.borrow().is_some(),
        }
    }

    async fn ask(&self, control: Control) -> Result<()> {
        self.control.send(control).await.map_err(|_| self.closed())
    }

    fn closed(&self) -> Error {
        Error::new(ErrorKind::Closed, format!("the job has ended: view=`{}`", self.name))
    }
}

/// Runs `work` to its end, whether or not the future this gives is dropped before.
///
/// # Errors
/// What `work` fails with; `Internal` if it panics.
pub async fn complete<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.map_err(|e| panicked("a statement", e))?
}

/// Runs `work` beside everything else, to its end.
pub fn detach(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}

/// Starts `spec` on the current tokio runtime. When it returns, the job reads: rows pushed from now on are its rows.
///
/// # Errors
/// What opening its sources and loading its static tables fails with.
pub async fn spawn(spec: JobSpec) -> Result<JobHandle> {
    let (control, asked) = mpsc::channel(16);
    let (tell_end, ended) = watch::channel(None);
    let progress = Arc::new(Progress::default());
    progress.set_watermark(watermark::NONE);
    let sources = sources(&spec.graph);
    let bounded = sources.iter().all(|(_, source)| source.boundedness == Boundedness::Bounded);
    let bytes_total = sources.iter().map(|(_, source)| source.source.total_bytes()).sum();
    let read: Vec<Arc<dyn Source>> = sources.iter().map(|(_, source)| Arc::clone(&source.source)).collect();
    let (name, paused) = (spec.name.clone(), spec.paused);
    let mut tasks = JoinSet::new();
    let sequencer = start(spec, asked, Arc::clone(&progress), &mut tasks).await?;
    let job = tokio::spawn(run(tasks, sequencer));
    let handle = JobHandle {
        name: name.as_str().into(),
        control,
        progress,
        ended,
        bounded,
        paused: Arc::new(paused.into()),
        bytes_total,
        abort: job.abort_handle(),
    };
    tokio::spawn(async move {
        let outcome = job.await.map_err(|e| panicked("a job", e)).and_then(|outcome| outcome);
        let outcome = outcome.map_err(|error| error.of_job(&name));
        match &outcome {
            // Whoever read the job's rows went away, or the job was ended by hand; it did not fail.
            Err(error) if error.kind() == ErrorKind::Closed => tracing::debug!("{error}"),
            Err(error) => {
                tracing::debug!(kind = error.kind().as_str(), "{error}");
                read.iter().for_each(|source| source.on_job_failed(&error.to_string()));
            }
            Ok(()) => {}
        }
        let _ = tell_end.send(Some(Arc::new(outcome)));
    });
    Ok(handle)
}

fn sources(graph: &OperatorGraph) -> Vec<(usize, &SourceSpec)> {
    let source = |(i, node): (usize, &'_ crate::operators::graph::Node)| match &node.operator {
        Operator::Source(_) => Some(i),
        _ => None,
    };
    let found: Vec<usize> = graph.nodes.iter().enumerate().filter_map(source).collect();
    found
        .into_iter()
        .filter_map(|i| match &graph.nodes[i].operator {
            Operator::Source(spec) => Some((i, spec)),
            _ => None,
        })
        .collect()
}

/// Waits for all tasks. When one fails the sequencer is stopped, and with it the readers; what is downstream of it ends
/// when it has handled what it was given.
async fn run(mut tasks: JoinSet<Result<()>>, sequencer: AbortHandle) -> Result<()> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.map_err(|e| panicked("a task of the job", e)).and_then(|ended| ended);
        if ended.is_err() {
            sequencer.abort();
        }
        match (&outcome, ended) {
            (Ok(()), Err(error)) => outcome = Err(error),
            // A task that says its neighbour has gone does not say why; the neighbour will.
            (Err(known), Err(error)) if known.kind() == ErrorKind::Closed => outcome = Err(error),
            _ => {}
        }
    }
    outcome
}

/// Wires the tasks of a job.
async fn start(
    spec: JobSpec,
    control: mpsc::Receiver<Control>,
    progress: Arc<Progress>,
    tasks: &mut JoinSet<Result<()>>,
) -> Result<AbortHandle> {
    let JobSpec { graph, options, sink, recovered, paused, .. } = spec;
    let plan = Plan::of(&graph)?;
    let joins = static_joins(&graph, &options).await?;
    let prepares = plan.prepares(&graph, &joins)?;
    let late = late_schema(&late_columns(&graph));
    let state = recovered.as_ref().map(|recovered| JobState::read(&recovered.state)).transpose()?;
    let facts = state.as_ref().map(|state| state.facts.clone());
    let told_w = facts.as_ref().map_or(watermark::NONE, |facts| facts.told_w);
    let (at_once, keeps_state) = (sink.wants_versions_at_once(), sink.keeps_state());
    let mut results = plan.results(&graph, &joins, &options.memory)?;
    // A sink that takes versions at once keeps no epochs, and with them nothing that was refused.
    let keeps_refused = !at_once;
    let kept_late = keeps_refused.then_some(&late);
    let mut workers = plan.worker_states(&graph, &options, kept_late, keeps_state)?;
    if let (Some(state), Some(recovered)) = (state, &recovered) {
        let sessions = restore_workers(&mut workers, told_w, recovered)?;
        results.restore(state, recovered, sessions)?;
        progress.set_counts(&recovered.counts);
    }
    // Early values may be owed that the epoch before had not published.
    let owes = !results.versions.is_empty();
    let (to_workers, from_workers) = start_workers(workers, tasks);

    let mut sequencer = Sequencer::new(order_of(&prepares), options.batch_rows);
    let inputs = Inputs::open(prepares, &options, (facts.as_ref(), recovered.as_ref()), &mut sequencer).await?;
    results.covered = inputs.covered()?;

    let (steps, on_steps) = mpsc::channel(64);
    // One epoch is written, one waits, one is made.
    let (to_sink, on_sink) = mpsc::channel(1);
    tasks.spawn(results::sink(sink, on_sink));
    tasks.spawn(results::run(results, on_steps, from_workers, at_once, to_sink, Arc::clone(&progress)));
    let route = plan.route(&graph)?;
    if let Route::Slices { window, .. } = &route {
        sequencer.note_closings_of(window.clone());
    }
    progress.set_watermark(sequencer.watermark());
    progress.set_inputs(sequencer.progress(), inputs.progress());
    let epochs = match options.epochs {
        Epochs::Manual => None,
        Epochs::Every(every) => Some(ticks(every)),
    };
    let task = SequencerTask {
        sequencer,
        heard: 0,
        looks: inputs.any_live().then(|| ticks(LOOK_EVERY)),
        inputs,
        asked: VecDeque::new(),
        rejects: Vec::new(),
        route,
        outer: outer_windows(&graph),
        policy: graph.policy,
        workers: to_workers,
        steps,
        control,
        clock: Arc::clone(&options.clock),
        late_schema: late,
        progress,
        epochs,
        late: Vec::new(),
        told_w,
        last_early_us: facts.as_ref().and_then(|facts| facts.last_early_us),
        newest_time: facts.as_ref().map_or(watermark::NONE, |facts| facts.newest_time),
        dirty: owes,
        paused,
        keeps_state,
        keeps_refused,
        held_before: 0,
    };
    Ok(tasks.spawn(task.run()))
}

/// Splits that all end are taken by the lowest watermark; live ones as they are read.
fn order_of(prepares: &[Arc<Prepare>]) -> Order {
    match prepares.iter().all(|prepare| prepare.spec().boundedness == Boundedness::Bounded) {
        true => Order::LowestFirst,
        false => Order::AsRead,
    }
}

/// The windows over the results of the first one.
fn outer_windows(graph: &OperatorGraph) -> Vec<WindowSpec> {
    let windows = graph.nodes.iter().filter_map(|node| match &node.operator {
        Operator::Window(spec) => Some(spec.window.clone()),
        _ => None,
    });
    windows.skip(1).collect()
}

/// Time between two looks for new splits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn ticks(every: Duration) -> Interval {
    let mut interval = tokio::time::interval(every.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

/// Brings workers to where they stood at W `w`. Gives the current values of sessions that have published.
fn restore_workers(workers: &mut [WorkerState], w: i64, recovered: &Recovered) -> Result<Vec<Changes>> {
    let (shards, mut current) = (workers.len(), Vec::new());
    for (shard, worker) in workers.iter_mut().enumerate() {
        match worker {
            WorkerState::Slices(aggregate) => aggregate.restore(w),
            WorkerState::Sessions { aggregate, .. } => {
                import_sessions(aggregate, (shard, shards), recovered)?;
                current.extend(aggregate.current()?);
            }
        }
    }
    Ok(current)
}

type Workers = (Vec<mpsc::Sender<ToWorker>>, Vec<mpsc::Receiver<Result<FromWorker>>>);

fn start_workers(states: Vec<WorkerState>, tasks: &mut JoinSet<Result<()>>) -> Workers {
    let start = |state| {
        let (to_worker, on_work) = mpsc::channel(32);
        let (to_results, on_results) = mpsc::channel(64);
        tasks.spawn(async move {
            work(state, on_work, to_results).await;
            Ok(())
        });
        (to_worker, on_results)
    };
    states.into_iter().map(start).unzip()
}

/// How the nodes of a graph map to tasks.
struct Plan {
    sources: Vec<usize>,
    /// The first window, or the pass-through.
    target: usize,
    layout: Option<Arc<Layout>>,
}

impl Plan {
    fn of(graph: &OperatorGraph) -> Result<Self> {
        let sources: Vec<usize> = sources(graph).into_iter().map(|(i, _)| i).collect();
        let over_rows = |node: &crate::operators::graph::Node| match &node.operator {
            Operator::Window(spec) => spec.input == crate::operators::graph::AggregateInput::Rows,
            Operator::PassThrough => true,
            _ => false,
        };
        let target = graph.nodes.iter().position(over_rows);
        let target = target.ok_or_else(|| Error::internal("an operator graph without a window or a pass-through"))?;
        let layout = match &graph.nodes[target].operator {
            Operator::Window(spec) => {
                Some(Arc::new(Layout::try_new(spec, input_schema(graph, target)).map_err(failure)?))
            }
            _ => None,
        };
        Ok(Self { sources, target, layout })
    }

    fn window<'a>(&self, graph: &'a OperatorGraph) -> Option<&'a Arc<AggregateSpec>> {
        match &graph.nodes[self.target].operator {
            Operator::Window(spec) => Some(spec),
            _ => None,
        }
    }

    /// One preparation per source: its row operators up to the window.
    fn prepares(&self, graph: &OperatorGraph, joins: &StaticJoins) -> Result<Vec<Arc<Prepare>>> {
        let target = match (self.window(graph), &self.layout) {
            (Some(spec), Some(layout)) => Target::Window { event_time: spec.event_time, layout: Arc::clone(layout) },
            _ => Target::Rows,
        };
        let mut prepares = Vec::new();
        for source in &self.sources {
            let Operator::Source(spec) = &graph.nodes[*source].operator else { continue };
            let steps = self.steps(graph, *source, joins)?;
            let schema = Arc::clone(&graph.nodes[*source].schema);
            prepares.push(Arc::new(Prepare::new(spec.clone(), schema, steps, target.clone())));
        }
        Ok(prepares)
    }

    fn steps(&self, graph: &OperatorGraph, source: usize, joins: &StaticJoins) -> Result<Vec<RowStep>> {
        let mut steps = Vec::new();
        let mut at = source;
        loop {
            let next = graph.nodes.iter().position(|node| node.inputs.contains(&at));
            let next = next.ok_or_else(|| Error::internal("a source that nothing reads"))?;
            let node = &graph.nodes[next];
            match &node.operator {
                _ if next == self.target => return Ok(steps),
                Operator::Union => {}
                Operator::Rows(spec) => {
                    steps.push(RowStep::Rows(RowsOperator::new(spec.clone(), Arc::clone(&node.schema))));
                }
                Operator::StaticJoin(_) => {
                    let join = joins.get(&next).ok_or_else(|| Error::internal("a join whose table was not read"))?;
                    steps.push(RowStep::Join(Arc::clone(join)));
                }
                _ => return Err(Error::internal("an operator over results below a window")),
            }
            at = next;
        }
    }

    fn worker_states(
        &self,
        graph: &OperatorGraph,
        options: &JobOptions,
        late: Option<&SchemaRef>,
        keeps_state: bool,
    ) -> Result<Vec<WorkerState>> {
        let (Some(spec), Some(layout)) = (self.window(graph), &self.layout) else { return Ok(Vec::new()) };
        let state = |_| -> Result<WorkerState> {
            if !spec.window.is_session() {
                let (layout, window) = (Arc::clone(layout), spec.window.clone());
                let aggregate = PartialAggregate::new(layout, window, graph.policy, &options.memory);
                return Ok(WorkerState::Slices(Box::new(aggregate)));
            }
            let aggregate = SessionAggregate::try_new(spec, graph.policy, input_schema(graph, self.target))?;
            let aggregate = aggregate.with_memory(&options.memory);
            let clock = Arc::clone(&options.clock);
            let late = late.map(|late| Late { schema: Arc::clone(late), policy: graph.policy, clock });
            let kept = Box::new(Kept::new(keeps_state));
            Ok(WorkerState::Sessions { aggregate: Box::new(aggregate), late, kept })
        };
        // A join makes copies of a source row, of which one shard must see all to count the row once.
        let joins = graph.nodes[..self.target].iter().any(|node| matches!(node.operator, Operator::StaticJoin(_)));
        let workers = if spec.window.is_session() && joins { 1 } else { options.workers.max(1) };
        (0..workers).map(state).collect()
    }

    fn results(&self, graph: &OperatorGraph, joins: &StaticJoins, memory: &Memory) -> Result<Results> {
        let (mut merge, mut chain) = (None, None);
        if let (Some(spec), Some(layout)) = (self.window(graph), &self.layout) {
            chain = Some(ResultChain::try_new(graph, self.target, joins)?);
            if !spec.window.is_session() {
                let (layout, window) = (Arc::clone(layout), spec.window.clone());
                merge = Some(WindowMerge::new(layout, window, graph.policy, memory));
            }
        }
        Ok(Results {
            merge,
            sessions: SessionExports::default(),
            chain,
            ledger: Ledger::default(),
            noted: LedgerExports::default(),
            covered: Vec::new(),
            policy: graph.policy,
            counts: FateCounts::default(),
            versions: Vec::new(),
            late: Vec::new(),
        })
    }

    fn route(&self, graph: &OperatorGraph) -> Result<Route> {
        let Some(spec) = self.window(graph) else { return Ok(Route::Rows) };
        Ok(match spec.window.kind() {
            WindowKind::Session { gap_us } => Route::Sessions { keys_len: spec.keys.len(), gap_us },
            _ => Route::Slices {
                judge: Box::new(Judge::new(spec.window.clone(), graph.policy)),
                window: spec.window.clone(),
            },
        })
    }
}

type StaticJoins = HashMap<NodeId, Arc<StaticJoin>>;

/// The joins of `graph` with static tables, each of which is read once, however many sources meet it.
async fn static_joins(graph: &OperatorGraph, options: &JobOptions) -> Result<StaticJoins> {
    let mut joins = HashMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let Operator::StaticJoin(spec) = &node.operator else { continue };
        // A plan that has been executed gives nothing the next time, unless it is reset.
        let table = reset_plan_states(Arc::clone(&spec.table)).map_err(failure)?;
        let batches = collect(table, Arc::clone(&options.task_context)).await.map_err(failure)?;
        let table = concat_batches(&spec.table.schema(), &batches).map_err(|e| failure(e.into()))?;
        let join = StaticJoin::try_new(Arc::clone(spec), table, input_schema(graph, at), Arc::clone(&node.schema))?;
        joins.insert(at, Arc::new(join));
    }
    Ok(joins)
}

/// Columns of the source rows that `v$late` of a view keeps: those every source of `graph` has, as the first declares them.
pub fn late_columns(graph: &OperatorGraph) -> SchemaRef {
    let columns = |(i, spec): (usize, &SourceSpec)| {
        // Where a row stood is told by columns of `v$late` itself, not by those of `with_position`.
        let mut declared: Vec<_> = spec.declared.iter().zip(graph.nodes[i].schema.fields()).collect();
        declared.sort_by_key(|(place, _)| **place);
        Arc::new(Schema::new(declared.into_iter().map(|(_, field)| Arc::clone(field)).collect::<Vec<_>>()))
    };
    common_columns(&sources(graph).into_iter().map(columns).collect::<Vec<_>>())
}

fn input_schema(graph: &OperatorGraph, node: usize) -> &Schema {
    &graph.nodes[graph.nodes[node].inputs[0]].schema
}
