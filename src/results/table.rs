//! A stored table as DataFusion sees it: files chosen by statistics, scanned as Parquet, versions resolved.
//!
//! Most files need no resolving. A file whose rows are all first versions supersedes nothing, and a file whose windows
//! overlap those of no superseding file is current as it is. Only files that supersede something are read twice: once
//! for the identities they hold, once, with all others, for the rows that are still current.
//!
//! ```text
//!   Union
//!   ├─ scan: files nothing supersedes                                  (+ filter on _deleted if any row has it)
//!   └─ ResolveExec ─┬─ scan: files that may be superseded (+ filters)
//!                   └─ scan: identities and versions of superseding files
//! ```

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_expr::expressions::{BinaryExpr, Column, NotExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use object_store::ObjectMeta;

use super::resolve::{Rank, ResolveExec};
use super::schema::{StoredSchema, column};
use super::state::{Shared, ViewState};
use super::stats::FileStats;
use crate::checkpoint::{FileEntry, FileRole, TableId};

/// Files whose footers are fetched in one read.
const FOOTER_BYTES: usize = 64 * 1024;

/// One table of a view at one state.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub shared: Arc<Shared>,
    pub id: TableId,
    pub state: Arc<ViewState>,
}

impl Table {
    pub fn new(shared: &Arc<Shared>, id: TableId) -> Self {
        Self { shared: Arc::clone(shared), id, state: shared.state() }
    }

    /// A scan of `files` with the columns `projection` of `schema`. Rows that `predicate` rules out may be left out.
    pub fn scan(
        &self,
        session: &dyn Session,
        schema: &SchemaRef,
        files: &[Arc<FileEntry>],
        projection: &[usize],
        predicate: Option<&Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(Arc::new(schema.project(projection)?))));
        }
        let storage = &self.shared.storage;
        let url = storage.datafusion_url();
        let runtime = session.runtime_env();
        runtime.register_object_store(&url, Arc::clone(storage.store()));
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let factory = CachedParquetFileReaderFactory::new(Arc::clone(storage.store()), cache);
        let mut source = ParquetSource::new(Arc::clone(schema))
            .with_metadata_size_hint(FOOTER_BYTES)
            .with_parquet_file_reader_factory(Arc::new(factory));
        if let Some(predicate) = predicate {
            source = source.with_predicate(Arc::clone(predicate));
        }
        let mut statistics = Statistics::new_unknown(schema);
        let rows = files.iter().map(|file| file.rows as usize).sum();
        let bytes = files.iter().map(|file| file.size_bytes as usize).sum();
        statistics.num_rows = if predicate.is_none() { Precision::Exact(rows) } else { Precision::Inexact(rows) };
        statistics.total_byte_size = Precision::Inexact(bytes);
        let group = FileGroup::new(files.iter().map(|file| self.partitioned_file(file)).collect());
        let groups = group.split_files(session.config().target_partitions());
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::parse(url)?, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(Some(projection.to_vec()))?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn partitioned_file(&self, file: &FileEntry) -> PartitionedFile {
        PartitionedFile::new_from_meta(ObjectMeta {
            location: self.shared.paths.file(&self.id, &file.path),
            // Names are never used twice, so one instant is as good as another to key caches by.
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: file.size_bytes,
            e_tag: None,
            version: None,
        })
    }

    /// The files some row of which may pass `predicate`, by their statistics.
    pub fn prune(
        schema: &SchemaRef,
        files: Vec<Arc<FileEntry>>,
        predicate: Option<&Arc<dyn PhysicalExpr>>,
    ) -> Result<Vec<Arc<FileEntry>>> {
        let Some(predicate) = predicate else { return Ok(files) };
        let pruning =
            PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema)).try_build(Arc::clone(predicate))?;
        if pruning.always_true() {
            return Ok(files);
        }
        let stats = FileStats { schema: Arc::clone(schema), files: files.iter().map(|file| &file.stats).collect() };
        let keep = pruning.prune(&stats)?;
        Ok(files.into_iter().zip(keep).filter_map(|(file, keep)| keep.then_some(file)).collect())
    }
}

/// The conjunction of `filters` over `schema`, compiled.
pub(super) fn compile(
    session: &dyn Session,
    schema: &Schema,
    filters: &[Expr],
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if filters.is_empty() {
        return Ok(None);
    }
    let df_schema = DFSchema::try_from(schema.clone())?;
    let filters = filters.iter().map(|filter| session.create_physical_expr(filter.clone(), &df_schema));
    Ok(Some(conjunction(filters.collect::<Result<Vec<_>>>()?)))
}

/// How the one row of an identity is chosen, and whether it shows.
#[derive(Debug, Clone)]
pub(super) struct Resolve {
    /// Identity columns.
    identity: Vec<usize>,
    /// What makes a version win.
    rank: Rank,
    /// `_deleted`, where a winner that has it does not show.
    deleted: Option<usize>,
    /// Column and bound: only versions computed at or before it count.
    as_of: Option<(usize, i64)>,
}

impl Resolve {
    pub fn latest(stored: &StoredSchema) -> Self {
        Self {
            identity: stored.identity.clone(),
            rank: Rank { version: stored.index(column::VERSION), is_final: None, numbered: true },
            deleted: Some(stored.index(column::DELETED)),
            as_of: None,
        }
    }

    /// As the latest, and deleted ones show.
    pub fn current(stored: &StoredSchema) -> Self {
        Self { deleted: None, ..Self::latest(stored) }
    }

    pub fn highest_final(stored: &StoredSchema) -> Self {
        let is_final = Some(stored.index(column::IS_FINAL));
        let latest = Self::latest(stored);
        Self { rank: Rank { is_final, ..latest.rank }, ..latest }
    }

    pub fn as_of(stored: &StoredSchema, t_us: i64) -> Self {
        Self { as_of: Some((stored.index(column::COMPUTED_AT), t_us)), ..Self::latest(stored) }
    }

    /// Status rows: the newest epoch of a window wins.
    pub fn windows(schema: &Schema) -> Self {
        Self {
            identity: vec![0, 1],
            rank: Rank { version: schema.fields().len() - 1, is_final: None, numbered: false },
            deleted: None,
            as_of: None,
        }
    }

    /// Whether compaction has compared for us: it has for reads of today.
    fn trusts_compaction(&self) -> bool {
        self.as_of.is_none()
    }

    /// Whether a row of `other` may win over one of `file`, or, where they are the same, over another one of it.
    ///
    /// A current file holds each identity once and nothing older than what it was made from; only fresh files hold
    /// later versions. A superseded file counts only where a final version in it may win over a later one.
    fn supersedes(&self, other: &FileEntry, file: &FileEntry) -> bool {
        use FileRole::{Current, Fresh, Superseded};
        let corrects = other.version_max > 1 || !self.rank.numbered;
        if !self.trusts_compaction() {
            return corrects;
        }
        let finals = self.rank.is_final.is_some() && other.final_rows > 0;
        match (other.role, file.role) {
            (Fresh, _) => corrects || finals,
            (Current, Current) => false,
            (Current, Fresh) => finals,
            (Current, Superseded) | (Superseded, _) => true,
        }
    }

    /// Whether `file` has rows that count at all.
    fn counts(&self, file: &FileEntry) -> bool {
        let in_time = self.as_of.is_none_or(|(_, t_us)| file.computed_us.0 <= t_us);
        let is_old = file.role == FileRole::Superseded && self.trusts_compaction();
        let may_be_final = self.rank.is_final.is_some() && file.final_rows > 0;
        in_time && (!is_old || may_be_final)
    }

    /// Splits `files` into those nothing supersedes, those that may be superseded, and those that supersede.
    fn split(&self, files: &[Arc<FileEntry>], all: &[Arc<FileEntry>]) -> Split {
        let counting: Vec<_> = all.iter().filter(|file| self.counts(file)).collect();
        let mut split = Split::default();
        for file in files.iter().filter(|file| self.counts(file)) {
            let rivals = counting.iter().filter(|other| {
                overlap(other.windows_us, file.windows_us)
                    && (!same(other, file) || !file.single)
                    && self.supersedes(other, file)
            });
            let before = split.superseding.len();
            split.superseding.extend(rivals.map(|rival| Arc::clone(rival)));
            if split.superseding.len() > before { &mut split.contested } else { &mut split.settled }
                .push(Arc::clone(file));
        }
        split.superseding.sort_by(|a, b| a.path.cmp(&b.path));
        split.superseding.dedup_by(|a, b| same(a, b));
        split
    }
}

fn same(a: &Arc<FileEntry>, b: &Arc<FileEntry>) -> bool {
    Arc::ptr_eq(a, b) || a.path == b.path
}

fn overlap(a: (i64, i64), b: (i64, i64)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

#[derive(Debug, Default)]
struct Split {
    settled: Vec<Arc<FileEntry>>,
    contested: Vec<Arc<FileEntry>>,
    superseding: Vec<Arc<FileEntry>>,
}

/// A table of stored rows, resolved to one per identity or not at all.
#[derive(Debug)]
pub(super) struct StoredTable {
    table: Table,
    schema: SchemaRef,
    resolve: Option<Resolve>,
}

impl StoredTable {
    pub fn new(shared: &Arc<Shared>, id: TableId, schema: SchemaRef, resolve: Option<Resolve>) -> Self {
        Self { table: Table::new(shared, id), schema, resolve }
    }

    fn resolved(
        &self,
        session: &dyn Session,
        resolve: &Resolve,
        projection: &[usize],
        filters: &[Expr],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = &self.table;
        let all = table.state.files(&table.id);
        let asked = compile(session, &self.schema, filters)?;
        let asked = conjunction_opt([asked, resolve.as_of_filter(&self.schema)]);
        let files = Table::prune(&self.schema, all.to_vec(), asked.as_ref())?;
        let Split { settled, contested, superseding } = resolve.split(&files, &all);

        let mut plans = Vec::new();
        if !settled.is_empty() || contested.is_empty() {
            let filter = resolve.row_filter(&self.schema, &settled);
            plans.push(self.filtered_scan(session, &settled, projection, asked.as_ref(), filter)?);
        }
        if !contested.is_empty() {
            let needed = resolve.needed(projection);
            let filter = resolve.row_filter(&self.schema, &contested);
            let probe = self.filtered_scan(session, &contested, &needed, asked.as_ref(), filter)?;
            let keys = resolve.needed(&[]);
            let in_time = resolve.as_of_filter(&self.schema);
            // What only looks at the identity narrows both sides alike.
            let stored = &table.shared.stored;
            let results = table.id == TableId::Results;
            let filters: Vec<Expr> =
                filters.iter().filter(|_| results).filter_map(|filter| stored.by_identity(filter)).collect();
            let narrow = conjunction_opt([compile(session, &self.schema, &filters)?, in_time]);
            let superseding = Table::prune(&self.schema, superseding, narrow.as_ref())?;
            let build = self.filtered_scan(session, &superseding, &keys, narrow.as_ref(), narrow.clone())?;
            let build = Arc::new(CoalescePartitionsExec::new(build));
            let place = |columns: &[usize], of: usize| {
                columns.iter().position(|c| *c == of).expect("needed columns hold identity, rank and projection")
            };
            let identity = |columns: &[usize]| resolve.identity.iter().map(|i| place(columns, *i)).collect();
            let rank = |columns: &[usize]| Rank {
                version: place(columns, resolve.rank.version),
                is_final: resolve.rank.is_final.map(|i| place(columns, i)),
                numbered: resolve.rank.numbered,
            };
            let out = projection.iter().map(|i| place(&needed, *i)).collect();
            plans.push(Arc::new(ResolveExec::try_new(
                (probe, identity(&needed), rank(&needed)),
                (build, identity(&keys), rank(&keys)),
                out,
            )?));
        }
        match plans.len() {
            1 => Ok(plans.remove(0)),
            _ => UnionExec::try_new(plans),
        }
    }

    /// A scan whose rows all pass `filter`; `hint` may leave out more.
    fn filtered_scan(
        &self,
        session: &dyn Session,
        files: &[Arc<FileEntry>],
        projection: &[usize],
        hint: Option<&Arc<dyn PhysicalExpr>>,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = &self.table;
        let Some(filter) = filter else { return table.scan(session, &self.schema, files, projection, hint) };
        let mut columns = projection.to_vec();
        for column in datafusion::physical_expr::utils::collect_columns(&filter) {
            if !columns.contains(&column.index()) {
                columns.push(column.index());
            }
        }
        let scan = table.scan(session, &self.schema, files, &columns, hint)?;
        let filter = datafusion::physical_expr::utils::reassign_expr_columns(filter, &scan.schema())?;
        let filtered: Arc<dyn ExecutionPlan> = Arc::new(FilterExec::try_new(filter, scan)?);
        let out: Vec<usize> = (0..projection.len()).collect();
        project(filtered, &out)
    }
}

/// `plan` with only the columns `out`.
pub(super) fn project(plan: Arc<dyn ExecutionPlan>, out: &[usize]) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    if out.iter().copied().eq(0..schema.fields().len()) {
        return Ok(plan);
    }
    let columns = out.iter().map(|i| {
        let name = schema.field(*i).name();
        (Arc::new(Column::new(name, *i)) as Arc<dyn PhysicalExpr>, name.clone())
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), plan)?))
}

fn conjunction_opt<const N: usize>(filters: [Option<Arc<dyn PhysicalExpr>>; N]) -> Option<Arc<dyn PhysicalExpr>> {
    let filters: Vec<_> = filters.into_iter().flatten().collect();
    (!filters.is_empty()).then(|| conjunction(filters))
}

impl Resolve {
    fn as_of_filter(&self, schema: &Schema) -> Option<Arc<dyn PhysicalExpr>> {
        let (index, t_us) = self.as_of?;
        let column = Arc::new(Column::new(schema.field(index).name(), index));
        let bound = lit(ScalarValue::TimestampMicrosecond(Some(t_us), Some("UTC".into())));
        Some(Arc::new(BinaryExpr::new(column, Operator::LtEq, bound)))
    }

    /// What each row of `files` must pass, apart from winning: bounds only some of them need.
    fn row_filter(&self, schema: &Schema, files: &[Arc<FileEntry>]) -> Option<Arc<dyn PhysicalExpr>> {
        let late = |(_, t_us): (usize, i64)| files.iter().any(|file| file.computed_us.1 > t_us);
        let in_time = self.as_of.is_some_and(late).then(|| self.as_of_filter(schema)).flatten();
        let any_deleted = files.iter().any(|file| file.deleted_rows > 0);
        let shown = self.deleted.filter(|_| any_deleted).map(|index| -> Arc<dyn PhysicalExpr> {
            Arc::new(NotExpr::new(Arc::new(Column::new(schema.field(index).name(), index))))
        });
        conjunction_opt([in_time, shown])
    }

    /// `projection` first, then the columns that decide.
    fn needed(&self, projection: &[usize]) -> Vec<usize> {
        let mut needed = projection.to_vec();
        let deciding = self.identity.iter().copied().chain([self.rank.version]).chain(self.rank.is_final);
        for index in deciding {
            if !needed.contains(&index) {
                needed.push(index);
            }
        }
        needed
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let every: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&every);
        match &self.resolve {
            Some(resolve) => match resolve.as_of {
                Some((_, t_us)) => {
                    let state = self.table.shared.state_as_of(t_us).await;
                    let table = Table { state, ..self.table.clone() };
                    let this = Self { table, schema: self.schema(), resolve: None };
                    this.resolved(session, resolve, projection, filters)
                }
                None => self.resolved(session, resolve, projection, filters),
            },
            None => {
                let filter = compile(session, &self.schema, filters)?;
                let files = self.table.state.files(&self.table.id);
                let files = Table::prune(&self.schema, files.to_vec(), filter.as_ref())?;
                self.table.scan(session, &self.schema, &files, projection, filter.as_ref())
            }
        }
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // A filter narrows the rows that may win, never the versions they have to win against, so any filter may be
        // used below, and DataFusion still applies it above.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
