//! Rewriting the files of one partition so that the latest is read without comparing.
//!
//! ```text
//!   fresh 1   a·1 b·1                         current     a·3 b·2 c·1     one row of each identity
//!   fresh 2   a·2 c·1      sort by identity
//!   fresh 3   b·2      ─►  and version    ─►  superseded  a·1 a·2 b·1     what only AS OF and history read
//!   current   a·3
//! ```
//!
//! Rows are sorted outside memory and written in files of at most [`FILE_ROWS_MAX`] rows, so that a step needs bounded
//! memory however large the partition is. This module decides which row goes where; which files to take is
//! [`super::maintain`]'s decision, and it has to take every file of the partition that holds a later version of an
//! identity in a file it takes, but for fresh files yet to come.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;

use super::files::{self, NewFile, arrow_error};
use super::schema::{column, rejects_schema, window_runs_schema, window_status_schema, with_epoch};
use super::state::{Shared, ViewState};
use super::table::Table;
use crate::checkpoint::{FileEntry, FileRole, TableId};
use crate::error::{Error, ErrorKind, Result};

/// Most rows of one file.
pub(super) const FILE_ROWS_MAX: usize = 1 << 20;
/// Most bytes in memory of one file's rows.
const FILE_MEMORY_MAX: usize = 128 * 1024 * 1024;
/// Memory for sorting; more is spilled to disk.
const SORT_MEMORY_BYTES: usize = 256 * 1024 * 1024;
/// Column that marks rows which are superseded already; never stored.
const SUPERSEDED: &str = "_superseded";

/// What becomes of a row that another one of its identity supersedes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Losers {
    /// It is history.
    Keep,
    /// Nobody reads it.
    Drop,
}

/// How the rows of a table lie in compacted files.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    schema: SchemaRef,
    /// Columns rows are sorted by: the identity, then what tells its rows apart.
    order: Vec<usize>,
    /// How many of them are the identity; 0 where no row supersedes another.
    identity: usize,
    losers: Losers,
}

impl Layout {
    pub fn of(shared: &Shared, table: &TableId) -> Result<Self> {
        let stored = &shared.stored;
        let named = |schema: SchemaRef, names: &[&str], identity, losers| {
            let find = |name: &&str| {
                schema.index_of(name).map_err(|e| Error::internal("a stored column is missing").with_source(e))
            };
            let order = names.iter().map(find).collect::<Result<Vec<_>>>()?;
            Ok(Self { order, identity, losers, schema: Arc::clone(&schema) })
        };
        match table {
            TableId::Results => {
                let order = stored.identity.iter().copied().chain([stored.index(column::VERSION)]).collect();
                let (schema, identity) = (Arc::clone(&stored.results), stored.identity.len());
                Ok(Self { schema, order, identity, losers: Losers::Keep })
            }
            TableId::Windows | TableId::Runs => {
                let is_status = table == &TableId::Windows;
                let schema = if is_status { window_status_schema() } else { window_runs_schema() };
                let schema = with_epoch(&schema);
                named(schema, &["window_start", "window_end", column::EPOCH], 2, Losers::Drop)
            }
            TableId::Late => {
                let schema = Arc::clone(&stored.late);
                named(schema, &[column::WINDOW_START, "_split", "_offset"], 0, Losers::Keep)
            }
            TableId::Rejects(_) => named(rejects_schema(), &["_split", "_offset"], 0, Losers::Keep),
        }
    }

    /// Whether a row may supersede another one.
    pub fn resolves(&self) -> bool {
        self.identity > 0
    }

    fn ordering(&self) -> LexOrdering {
        let options = SortOptions { descending: false, nulls_first: true };
        let columns = self.order.iter().map(|i| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(self.schema.field(*i).name(), *i));
            PhysicalSortExpr::new(column, options)
        });
        LexOrdering::new(columns).expect("every layout sorts by some column")
    }
}

/// Files to be rewritten as one.
#[derive(Debug, Clone, Default)]
pub(super) struct Inputs {
    /// Fresh and current files.
    pub current: Vec<Arc<FileEntry>>,
    /// Superseded files.
    pub superseded: Vec<Arc<FileEntry>>,
    /// Versions that were superseded at or before this instant, µs, are dropped unless final. `current` and
    /// `superseded` must then be all files of the partition.
    pub forget_before_us: Option<i64>,
}

/// What a rewriting gave.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    /// New files, written and not live yet.
    pub files: Vec<FileEntry>,
    /// Versions dropped for their age.
    pub forgotten: u64,
    /// The last epoch of any of them.
    pub forgotten_epoch: u64,
}

/// Writes the rows of `inputs` anew. Nothing is live before a manifest says so.
///
/// # Errors
///
/// `Unavailable` or `Corrupt` from the store.
pub(super) async fn rewrite(
    shared: &Arc<Shared>,
    state: &Arc<ViewState>,
    table: &TableId,
    partition: Option<&str>,
    inputs: &Inputs,
) -> Result<Rewritten> {
    let layout = Layout::of(shared, table)?;
    let context = session()?;
    let source = Table { shared: Arc::clone(shared), id: table.clone(), state: Arc::clone(state) };
    let plan = sorted(&context, &source, &layout, inputs).map_err(read_error)?;
    let mut rows = execute_stream(plan, context.task_ctx()).map_err(read_error)?;
    let mut splitter = Splitter::try_new(layout, inputs.forget_before_us)?;
    let mut current = Output::new(shared, table, partition, state.epoch, FileRole::Current);
    let mut superseded = Output::new(shared, table, partition, state.epoch, FileRole::Superseded);
    while let Some(batch) = rows.try_next().await.map_err(read_error)? {
        if let Some(split) = splitter.split(&batch)? {
            current.push(split.current, None).await?;
            superseded.push(split.superseded, split.superseded_us).await?;
        }
    }
    if let Some(split) = splitter.finish()? {
        current.push(split.current, None).await?;
        superseded.push(split.superseded, split.superseded_us).await?;
    }
    let mut files = current.finish().await?;
    files.extend(superseded.finish().await?);
    Ok(Rewritten { files, forgotten: splitter.forgotten, forgotten_epoch: splitter.forgotten_epoch })
}

fn session() -> Result<SessionContext> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(SORT_MEMORY_BYTES)));
    let runtime = runtime.build_arc().map_err(|e| Error::internal("cannot sort stored rows").with_source(e))?;
    Ok(SessionContext::new_with_config_rt(SessionConfig::new().with_target_partitions(1), runtime))
}

/// All rows in the layout's order, with a last column that says which are superseded already.
fn sorted(
    context: &SessionContext,
    table: &Table,
    layout: &Layout,
    inputs: &Inputs,
) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
    let every: Vec<usize> = (0..layout.schema.fields().len()).collect();
    let mut plans: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
    for (files, superseded) in [(&inputs.current, false), (&inputs.superseded, true)] {
        if files.is_empty() {
            continue;
        }
        let scan = table.scan(&context.state(), &layout.schema, files, &every, None)?;
        let columns =
            layout.schema.fields().iter().enumerate().map(|(i, field)| {
                (Arc::new(Column::new(field.name(), i)) as Arc<dyn PhysicalExpr>, field.name().clone())
            });
        let columns: Vec<_> = columns.chain([(lit(superseded), SUPERSEDED.to_owned())]).collect();
        plans.push(Arc::new(ProjectionExec::try_new(columns, scan)?));
    }
    let rows = if plans.len() == 1 { plans.remove(0) } else { UnionExec::try_new(plans)? };
    let sort = SortExec::new(layout.ordering(), rows).with_preserve_partitioning(true);
    Ok(Arc::new(SortPreservingMergeExec::new(layout.ordering(), Arc::new(sort))))
}

/// Rows told apart.
#[derive(Debug)]
struct SplitRows {
    current: RecordBatch,
    superseded: RecordBatch,
    /// No row of `superseded` that is not final was superseded before this instant, µs, where versions have one.
    superseded_us: Option<i64>,
}

/// Tells, of rows that come in order, which are the last of their identity.
struct Splitter {
    layout: Layout,
    forget_before_us: Option<i64>,
    converter: RowConverter,
    /// The last row seen, whose successor is not known yet.
    held: Option<RecordBatch>,
    forgotten: u64,
    forgotten_epoch: u64,
}

impl Splitter {
    fn try_new(layout: Layout, forget_before_us: Option<i64>) -> Result<Self> {
        let types = layout.order[..layout.identity].iter().map(|i| layout.schema.field(*i).data_type().clone());
        let converter = RowConverter::new(types.map(SortField::new).collect()).map_err(arrow_error)?;
        Ok(Self { layout, forget_before_us, converter, held: None, forgotten: 0, forgotten_epoch: 0 })
    }

    fn split(&mut self, batch: &RecordBatch) -> Result<Option<SplitRows>> {
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        let batch = match self.held.take() {
            Some(held) => concat_batches(&batch.schema(), [&held, batch]).map_err(arrow_error)?,
            None => batch.clone(),
        };
        let known = batch.num_rows() - 1;
        // A copy: a slice would keep the whole batch in memory until the next one.
        let last = UInt32Array::from(vec![known as u32]);
        self.held = Some(take_record_batch(&batch, &last).map_err(arrow_error)?);
        self.tell(&batch, known).map(Some)
    }

    fn finish(&mut self) -> Result<Option<SplitRows>> {
        match self.held.take() {
            Some(held) => self.tell(&held, 1).map(Some),
            None => Ok(None),
        }
    }

    /// Tells the first `n` rows of `batch` apart by those that follow them.
    fn tell(&mut self, batch: &RecordBatch, n: usize) -> Result<SplitRows> {
        let followed = self.followed(batch, n)?;
        let flags = batch.column(batch.num_columns() - 1).as_boolean();
        let old: Vec<bool> = (0..n).map(|row| flags.value(row) || followed[row]).collect();
        let stamps = Stamps::of(batch);
        let before_us = self.forget_before_us;
        let is_gone = |row: usize| {
            let since = stamps.as_ref().filter(|_| followed[row]).map(|stamps| stamps.superseded_us(row, true));
            since.zip(before_us).is_some_and(|(since, before)| since <= before)
        };
        let forgotten: Vec<bool> = (0..n).map(is_gone).collect();
        for row in (0..n).filter(|row| forgotten[*row]) {
            self.forgotten += 1;
            let epoch = stamps.as_ref().map_or(0, |stamps| stamps.epoch[row].max(0) as u64);
            self.forgotten_epoch = self.forgotten_epoch.max(epoch);
        }
        let kept = (0..n).filter(|row| old[*row] && !forgotten[*row]);
        let superseded_us =
            stamps.as_ref().and_then(|stamps| kept.map(|row| stamps.superseded_us(row, followed[row])).min());
        let width = self.layout.schema.fields().len();
        let rows = batch.slice(0, n).project(&(0..width).collect::<Vec<_>>()).map_err(arrow_error)?;
        let pick = |keep: Vec<bool>| filter_record_batch(&rows, &BooleanArray::from(keep)).map_err(arrow_error);
        let keep = self.layout.losers == Losers::Keep;
        Ok(SplitRows {
            current: pick(old.iter().map(|old| !old).collect())?,
            superseded: pick(old.iter().zip(&forgotten).map(|(old, gone)| *old && keep && !gone).collect())?,
            superseded_us,
        })
    }

    /// For each of the first `n` rows whether the next one is of its identity.
    fn followed(&mut self, batch: &RecordBatch, n: usize) -> Result<Vec<bool>> {
        if !self.layout.resolves() {
            return Ok(vec![false; n]);
        }
        let identity: Vec<_> =
            self.layout.order[..self.layout.identity].iter().map(|i| Arc::clone(batch.column(*i))).collect();
        let keys = self.converter.convert_columns(&identity).map_err(arrow_error)?;
        Ok((0..n).map(|row| row + 1 < batch.num_rows() && keys.row(row) == keys.row(row + 1)).collect())
    }
}

/// What tells when versions were superseded.
struct Stamps<'a> {
    computed: &'a [i64],
    epoch: &'a [i64],
    is_final: &'a BooleanArray,
}

impl<'a> Stamps<'a> {
    /// Those of `batch`, if it holds versions.
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        Some(Self {
            computed: batch.column_by_name(column::COMPUTED_AT)?.as_primitive::<TimestampMicrosecondType>().values(),
            epoch: batch.column_by_name(column::EPOCH)?.as_primitive::<Int64Type>().values(),
            is_final: batch.column_by_name(column::IS_FINAL)?.as_boolean(),
        })
    }

    /// When `row` was superseded, µs: by the row behind it if it is `followed` by a later version, else at some time after
    /// it was made. Never, for what is never dropped.
    fn superseded_us(&self, row: usize, followed: bool) -> i64 {
        if self.is_final.value(row) {
            return i64::MAX;
        }
        self.computed[row + usize::from(followed)]
    }
}

/// Rows on their way into files of one role.
struct Output<'a> {
    shared: &'a Arc<Shared>,
    table: &'a TableId,
    partition: Option<&'a str>,
    epoch: u64,
    role: FileRole,
    held: Vec<RecordBatch>,
    rows: usize,
    memory: usize,
    superseded_us: Option<i64>,
    written: Vec<FileEntry>,
}

impl<'a> Output<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        table: &'a TableId,
        partition: Option<&'a str>,
        epoch: u64,
        role: FileRole,
    ) -> Self {
        Self {
            shared,
            table,
            partition,
            epoch,
            role,
            held: Vec::new(),
            rows: 0,
            memory: 0,
            superseded_us: None,
            written: Vec::new(),
        }
    }

    /// Adds `rows`, of which none that is not final was superseded before `superseded_us`.
    async fn push(&mut self, rows: RecordBatch, superseded_us: Option<i64>) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.superseded_us = self.superseded_us.into_iter().chain(superseded_us).min();
        self.rows += rows.num_rows();
        self.memory += rows.get_array_memory_size();
        self.held.push(rows);
        match self.rows >= FILE_ROWS_MAX || self.memory >= FILE_MEMORY_MAX {
            true => self.write().await,
            false => Ok(()),
        }
    }

    async fn finish(mut self) -> Result<Vec<FileEntry>> {
        if !self.held.is_empty() {
            self.write().await?;
        }
        Ok(self.written)
    }

    async fn write(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        (self.rows, self.memory) = (0, 0);
        let name = files::name(self.epoch);
        let path = match self.partition {
            Some(date) => format!("{}={date}/{name}", column::WINDOW_DATE),
            None => name,
        };
        let (shared, partition, role) = (Arc::clone(self.shared), self.partition.map(str::to_owned), self.role);
        // Encoding takes long enough to hold up the tasks of this thread.
        let encode = move || -> Result<NewFile> {
            let rows = concat_batches(&held[0].schema(), &held).map_err(arrow_error)?;
            match partition {
                Some(date) => files::version_file(&shared.stored, &rows, role, path, date),
                None => files::plain_file(&rows, path),
            }
        };
        let encoded = tokio::task::spawn_blocking(encode).await;
        let encoded = encoded.map_err(|e| Error::internal("encoding a data file failed").with_source(e))?;
        let NewFile { mut entry, bytes } = encoded?;
        entry.role = self.role;
        entry.superseded_us = self.superseded_us.take();
        entry.single |= self.table.holds_newest_rows();
        self.shared.storage.put(&self.shared.paths.file(self.table, &entry.path), bytes).await?;
        self.written.push(entry);
        Ok(())
    }
}

fn read_error(e: datafusion::error::DataFusionError) -> Error {
    let missing = |e: &datafusion::error::DataFusionError| {
        matches!(e.find_root(), datafusion::error::DataFusionError::ObjectStore(e)
            if matches!(**e, object_store::Error::NotFound { .. }))
    };
    let kind = if missing(&e) { ErrorKind::Corrupt } else { ErrorKind::Unavailable };
    Error::new(kind, "cannot read stored rows").with_source(e)
}
