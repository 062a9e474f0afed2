//! A source as DataFusion sees it: a table whose scan holds the computed columns, the event time and the watermark.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ExecutionPlan;

use super::batch_scan::BatchTable;
use super::error::from_datafusion;
use super::shift::by_arithmetic;
use crate::connectors::{BatchLocation, Boundedness, Coverage, PinnedSource, Source};
use crate::error::Result;
use crate::operators::graph::{SourceSpec, WatermarkPlan};
use crate::watermark::WatermarkSpec;

/// Where a column of a [`SourceTable`] comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValue {
    /// A column of the connector, by index into [`Source::schema`].
    Physical(usize),
    /// An expression over the connector's columns, by unqualified name.
    Computed(Expr),
}

/// A declared column.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// Name, type, nullability.
    pub field: FieldRef,
    /// Where its value comes from.
    pub value: ColumnValue,
}

/// The declared watermark. Expressions are over the table's columns, by unqualified name.
#[derive(Debug, Clone, PartialEq)]
pub struct TableWatermark {
    /// Index of the event-time column.
    pub column: usize,
    /// How rows move it.
    pub spec: WatermarkSpec,
    /// The watermark expression, a timestamp µs UTC. `None` for processing time.
    pub expr: Option<Expr>,
    /// `PUNCTUATED WHEN`.
    pub when: Option<Expr>,
    /// Indices of the `PER KEY` columns.
    pub keys: Vec<usize>,
}

/// Limits of a source, from its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLimits {
    /// Rows whose event time is further than this ahead of the clock are rejected. `None`: off.
    pub max_future_us: Option<i64>,
    /// A live split this far ahead of the lowest, in event time, is paused.
    pub max_ahead_us: i64,
    /// More rejects than this stop the job. `None`: never.
    pub rejects_max: Option<u64>,
}

/// Where the rows a source has read are kept for batch runs: an archive, or a folder beside it.
#[async_trait]
pub trait BatchStore: Debug + Send + Sync {
    /// What is there now.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store, `Invalid` if there is nothing.
    async fn pin(&self, session: &dyn Session) -> Result<BatchInput>;

    /// Rows before this event time, µs, may be gone: windows that begin before it cannot be made anew (`batch_retention`).
    fn complete_from_us(&self, now_us: i64) -> Option<i64>;
}

/// Rows of a source, fixed.
#[derive(Debug, Clone)]
pub struct BatchInput {
    /// What there was.
    pub coverage: Coverage,
    /// The rows. Its columns include the source table's, by name; `__split` and `__offset`, where it has them, say where a
    /// row stood.
    pub table: Arc<dyn TableProvider>,
    /// Whether reading a part of the time is cheaper than reading it all.
    pub prunes: bool,
}

/// Files beside the source.
#[derive(Debug)]
struct LocationStore {
    /// The source's declaration over those files.
    files: SourceTable,
    retention_us: Option<i64>,
}

#[async_trait]
impl BatchStore for LocationStore {
    async fn pin(&self, _session: &dyn Session) -> Result<BatchInput> {
        let pinned = self.files.source.pinned().await?;
        let pinned = pinned.ok_or_else(|| crate::Error::internal("files that cannot be read a second time"))?;
        let coverage = pinned.coverage.clone();
        let files = self.files.pinned_to(pinned);
        let prunes = files.prunes();
        Ok(BatchInput { coverage, table: Arc::new(BatchTable(files.with_position())), prunes })
    }

    fn complete_from_us(&self, now_us: i64) -> Option<i64> {
        self.retention_us.map(|retention_us| now_us.saturating_sub(retention_us))
    }
}

/// A source with its declaration resolved: columns, event time, watermark.
///
/// No filter is ever pushed into it, so that every row moves the watermark before WHERE sees it.
#[derive(Debug, Clone)]
pub struct SourceTable {
    name: String,
    source: Arc<dyn Source>,
    columns: Vec<TableColumn>,
    watermark: Option<TableWatermark>,
    limits: SourceLimits,
    parquet: Option<Vec<String>>,
    batch_store: Option<Arc<dyn BatchStore>>,
    schema: SchemaRef,
    /// Whether every column is read, so that refused rows can be kept whole.
    whole_rows: bool,
    /// Whether [`SPLIT`] and [`OFFSET`] follow the declared columns.
    with_position: bool,
}

/// Name of a row's split.
pub(super) const SPLIT: &str = "__split";
/// A row's offset in its split. Int64.
pub(super) const OFFSET: &str = "__offset";

/// A [`SourceSpec`] and where the columns of the scan it was made for are in its output.
pub(super) struct PlannedSource {
    pub spec: SourceSpec,
    pub schema: SchemaRef,
    /// For each column wanted where it is in the output.
    pub places: Vec<usize>,
}

impl SourceTable {
    /// A table over `source`.
    pub fn new(
        name: impl Into<String>,
        source: Arc<dyn Source>,
        columns: Vec<TableColumn>,
        watermark: Option<TableWatermark>,
        limits: SourceLimits,
    ) -> Self {
        let schema = Arc::new(Schema::new(columns.iter().map(|c| Arc::clone(&c.field)).collect::<Vec<_>>()));
        Self {
            name: name.into(),
            source,
            columns,
            watermark,
            limits,
            parquet: None,
            batch_store: None,
            schema,
            whole_rows: false,
            with_position: false,
        }
    }

    /// The same table, read with all its columns.
    #[must_use]
    pub(super) fn with_whole_rows(mut self) -> Self {
        self.whole_rows = true;
        self
    }

    /// The same table with two more columns, [`SPLIT`] and [`OFFSET`]: where each row stands.
    #[must_use]
    pub(super) fn with_position(mut self) -> Self {
        let position = SourceSpec::position_fields().into_iter().zip([SPLIT, OFFSET]);
        let position = position.map(|(field, name)| Arc::new(field.as_ref().clone().with_name(name)));
        let declared = self.columns.iter().map(|column| Arc::clone(&column.field));
        self.schema = Arc::new(Schema::new(declared.chain(position).collect::<Vec<_>>()));
        self.with_position = true;
        self
    }

    /// The same table with its declared columns alone.
    #[must_use]
    pub(super) fn without_position(mut self) -> Self {
        self.schema = Arc::new(Schema::new(self.columns.iter().map(|c| Arc::clone(&c.field)).collect::<Vec<_>>()));
        self.with_position = false;
        self
    }

    /// Where column `index` of the schema is among `[SPLIT, OFFSET]`, if it is none of the declared ones.
    pub(super) fn position_column(&self, index: usize) -> Option<usize> {
        index.checked_sub(self.columns.len())
    }

    /// Says that its rows are the Parquet files at `path`: a file, a folder or a pattern.
    #[must_use]
    pub fn with_parquet(mut self, path: impl Into<String>) -> Self {
        self.parquet = Some(vec![path.into()]);
        self
    }

    /// Where its Parquet files are, if it is made of some.
    pub fn parquet(&self) -> Option<&[String]> {
        self.parquet.as_deref()
    }

    /// The same table, which batch runs read at `location`; `files` is its declaration over the files there.
    ///
    /// # Errors
    ///
    /// `Invalid` if the columns are others.
    pub fn with_batch_location(mut self, files: Self, location: &BatchLocation) -> Result<Self> {
        if files.schema != self.schema {
            return Err(crate::Error::invalid(format!("the files at `{}` have other columns", location.path))
                .with_hint("declare the columns in CREATE SOURCE"));
        }
        let parquet = location.is_parquet.then(|| vec![location.path.clone()]);
        let files = Self { parquet, ..files };
        self.batch_store = Some(Arc::new(LocationStore { files, retention_us: location.retention_us }));
        Ok(self)
    }

    /// Where a batch run reads, if that is not the source itself.
    pub fn batch_store(&self) -> Option<&Arc<dyn BatchStore>> {
        self.batch_store.as_ref()
    }

    /// The same table over `pinned`, which is its source at one moment.
    #[must_use]
    pub(super) fn pinned_to(&self, pinned: PinnedSource) -> Self {
        let parquet = self.parquet.is_some() && !pinned.paths.is_empty();
        Self { source: pinned.source, parquet: parquet.then_some(pinned.paths), batch_store: None, ..self.clone() }
    }

    /// The same table without what it knows to hold no row with an event time in `[from, to)`, µs. `None`: it knows of
    /// none.
    pub(super) fn within(&self, times_us: (Option<i64>, Option<i64>)) -> Option<Self> {
        self.source.within(times_us).map(|pinned| self.pinned_to(pinned))
    }

    /// Whether reading a part of the time is cheaper than reading it all.
    pub(super) fn prunes(&self) -> bool {
        self.parquet.is_some() || self.source.within((None, None)).is_some()
    }

    /// Whether its rows are kept for batch runs.
    pub fn has_archive(&self) -> bool {
        self.batch_store.is_some()
    }

    /// Catalog name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connector.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// The declared columns.
    pub fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    /// The declared watermark.
    pub fn watermark(&self) -> Option<&TableWatermark> {
        self.watermark.as_ref()
    }

    /// Limits from the source's options.
    pub fn limits(&self) -> SourceLimits {
        self.limits
    }

    /// Whether it ends by itself.
    pub fn is_bounded(&self) -> bool {
        self.source.boundedness() == Boundedness::Bounded
    }

    /// The source as a view reads it that needs the table columns `wanted`: these first, then what the watermark needs.
    pub(super) fn plan(&self, wanted: &[usize]) -> Result<PlannedSource> {
        let with_position = wanted.iter().any(|column| self.position_column(*column).is_some());
        let mut columns: Vec<usize> =
            wanted.iter().copied().filter(|column| self.position_column(*column).is_none()).collect();
        if let Some(watermark) = &self.watermark {
            let inputs = watermark.expr.iter().chain(&watermark.when).flat_map(Expr::column_refs);
            let inputs: Vec<usize> = inputs
                .map(|c| self.schema.index_of(&c.name))
                .collect::<Result<_, _>>()
                .map_err(|e| crate::Error::internal("resolve a column of the watermark expression").with_source(e))?;
            let mut extra: Vec<usize> =
                std::iter::once(watermark.column).chain(inputs).chain(watermark.keys.iter().copied()).collect();
            extra.sort_unstable();
            for column in extra {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
        }
        if self.whole_rows {
            let rest: Vec<usize> = (0..self.columns.len()).filter(|column| !columns.contains(column)).collect();
            columns.extend(rest);
        }
        let projection = self.physical_columns(&columns)?;
        let physical = DFSchema::try_from(
            self.source
                .schema()
                .project(&projection)
                .map_err(|e| crate::Error::internal("project the columns of a source").with_source(e))?,
        )
        .map_err(from_datafusion)?;
        let exprs =
            columns.iter().map(|column| compile(&self.value_of(*column), &physical)).collect::<Result<Vec<_>>>()?;
        let mut fields: Vec<FieldRef> = columns.iter().map(|c| Arc::clone(&self.columns[*c].field)).collect();
        let output = DFSchema::try_from(Schema::new(fields.clone())).map_err(from_datafusion)?;
        let at = |column: usize| columns.iter().position(|c| *c == column).expect("added above");
        let watermark = match &self.watermark {
            None => None,
            Some(w) => Some(WatermarkPlan {
                spec: w.spec,
                expr: w.expr.as_ref().map(|e| compile(e, &output)).transpose()?,
                when: w.when.as_ref().map(|e| compile(e, &output)).transpose()?,
                keys: w.keys.iter().map(|key| at(*key)).collect(),
            }),
        };
        if with_position {
            fields.extend(SourceSpec::position_fields());
        }
        let place = |column: &usize| match self.position_column(*column) {
            Some(position) => columns.len() + position,
            None => at(*column),
        };
        Ok(PlannedSource {
            places: wanted.iter().map(place).collect(),
            spec: SourceSpec {
                name: self.name.clone(),
                source: Arc::clone(&self.source),
                projection,
                columns: exprs,
                declared: columns.clone(),
                with_position,
                event_time: self.watermark.as_ref().map(|w| at(w.column)),
                watermark,
                boundedness: self.source.boundedness(),
                max_future_us: self.limits.max_future_us,
                max_ahead_us: self.limits.max_ahead_us,
                rejects_max: self.limits.rejects_max,
            },
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// The value of a table column as an expression over the connector's columns.
    pub(super) fn value_of(&self, column: usize) -> Expr {
        match &self.columns[column].value {
            ColumnValue::Computed(expr) => expr.clone(),
            ColumnValue::Physical(index) => unqualified(self.source.schema().field(*index).name()),
        }
    }

    /// Indices into the connector's schema that the table columns `columns` need, ascending.
    pub(super) fn physical_columns(&self, columns: &[usize]) -> Result<Vec<usize>> {
        let schema = self.source.schema();
        let mut needed = Vec::new();
        for column in columns {
            match &self.columns[*column].value {
                ColumnValue::Physical(index) => needed.push(*index),
                ColumnValue::Computed(expr) => {
                    for input in expr.column_refs() {
                        needed.push(schema.index_of(&input.name).map_err(|e| {
                            crate::Error::internal("resolve a column of a computed column").with_source(e)
                        })?);
                    }
                }
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Ok(needed)
    }
}

/// A column by its exact name, without a qualifier.
pub(super) fn unqualified(name: &str) -> Expr {
    Expr::Column(datafusion::common::Column::new_unqualified(name))
}

/// Takes the qualifiers off the columns of `expr`.
pub(super) fn without_qualifiers(expr: Expr) -> DfResult<Expr> {
    expr.transform(|e| match e {
        Expr::Column(column) => Ok(Transformed::yes(unqualified(&column.name))),
        other => Ok(Transformed::no(other)),
    })
    .map(|t| t.data)
}

/// Compiles `expr` over `schema`.
pub(super) fn compile(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
        .and_then(|compiled| by_arithmetic(compiled, schema.as_arrow()))
        .map_err(from_datafusion)
}

#[async_trait]
impl TableProvider for SourceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        super::batch_scan::scan(self, state, projection, filters).await
    }
}
