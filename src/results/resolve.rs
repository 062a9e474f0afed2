//! Keeps, of all versions of an identity, the one that wins.
//!
//! ```text
//!   build (corrections only)          probe                        out
//!   window key version                window key version value     window key value
//!   10:00  a   2                      10:00  a   1       500
//!                                     10:00  a   2       525   ─►  10:00  a   525
//!                                     10:00  b   1        80       10:00  b    80
//! ```
//!
//! Version 1 of an identity supersedes nothing and exists once, so only later versions are gathered; memory is in
//! proportion to the corrections, not to the rows. A row passes unless a higher one of its identity was gathered.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use tokio::sync::OnceCell;

/// What makes one version win over another of its identity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank {
    /// The higher wins.
    pub version: usize,
    /// But a final one wins over any that is not.
    pub is_final: Option<usize>,
    /// Whether numbers start at 1 for each identity, so that 1 supersedes nothing.
    pub numbered: bool,
}

impl Rank {
    /// One number per row; the greatest wins.
    fn of(&self, batch: &RecordBatch) -> Vec<i64> {
        let versions = batch.column(self.version).as_primitive::<Int64Type>().values();
        match self.is_final {
            None => versions.to_vec(),
            Some(index) => {
                let finals = batch.column(index).as_boolean();
                versions.iter().zip(finals).map(|(v, f)| v | (i64::from(f == Some(true)) << 62)).collect()
            }
        }
    }

    /// Whether a row of this rank is the only one of its identity unless a higher one is gathered.
    fn is_first(&self, rank: i64) -> bool {
        self.numbered && rank <= 1
    }
}

/// A side of the operator: its plan, where its identity columns are, and its rank.
pub(super) type Side = (Arc<dyn ExecutionPlan>, Vec<usize>, Rank);

/// The winners, by encoded identity.
struct Winners {
    ranks: HashMap<Box<[u8]>, i64>,
    _memory: MemoryReservation,
}

/// See the module's documentation. Children: the rows to choose from, and (one partition) the versions they must win
/// against. Output: some of the first child's columns, in its partitioning.
pub(super) struct ResolveExec {
    probe: Side,
    build: Side,
    out: Vec<usize>,
    winners: Arc<OnceCell<Arc<Winners>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl fmt::Debug for ResolveExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveExec").field("identity", &self.probe.1).field("out", &self.out).finish_non_exhaustive()
    }
}

impl ResolveExec {
    /// Chooses among the rows of `probe` by those of `build`, and keeps the columns `out`.
    pub fn try_new(probe: Side, build: Side, out: Vec<usize>) -> Result<Self> {
        let schema = Arc::new(probe.0.schema().project(&out)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            probe.0.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        // Columns of the probe's partitioning may not survive the projection; only its number matters here.
        let partitions = properties.partitioning.partition_count();
        let properties =
            properties.with_partitioning(datafusion::physical_expr::Partitioning::UnknownPartitioning(partitions));
        let (winners, metrics) = (Arc::default(), ExecutionPlanMetricsSet::new());
        Ok(Self { probe, build, out, winners, properties: Arc::new(properties), metrics })
    }
}

impl DisplayAs for ResolveExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.probe.0.schema();
        let names: Vec<&str> = self.probe.1.iter().map(|i| schema.field(*i).name().as_str()).collect();
        let by = if self.probe.2.is_final.is_some() { "final, " } else { "" };
        let version = schema.field(self.probe.2.version).name();
        write!(f, "ResolveExec: identity=[{}], highest=[{by}{version}]", names.join(", "))
    }
}

impl ExecutionPlan for ResolveExec {
    fn name(&self) -> &str {
        "ResolveExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution, Distribution::SinglePartition])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.probe.0, &self.build.0]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([probe, build]) = <[_; 2]>::try_from(children) else {
            return internal_err!("ResolveExec has two children");
        };
        let with = |side: &Side, plan| (plan, side.1.clone(), side.2);
        Ok(Arc::new(Self::try_new(with(&self.probe, probe), with(&self.build, build), self.out.clone())?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = self.probe.0.execute(partition, Arc::clone(&context))?;
        let (build, winners) = (self.build.clone(), Arc::clone(&self.winners));
        let (identity, rank, out) = (self.probe.1.clone(), self.probe.2, self.out.clone());
        let batches = async move {
            let winners = Arc::clone(winners.get_or_try_init(|| gather(build, context)).await?);
            let mut chooser = Chooser { keys: Keys::try_new(rows.schema(), identity)?, rank, out, winners };
            Ok::<_, DataFusionError>(rows.map(move |batch| {
                let batch = batch.and_then(|batch| chooser.choose(&batch));
                batch.inspect(|batch| {
                    metrics.output_rows().add(batch.num_rows());
                })
            }))
        };
        let stream = futures::stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Reads the superseding versions and keeps the highest rank of each identity.
async fn gather(build: Side, context: Arc<TaskContext>) -> Result<Arc<Winners>> {
    let (plan, identity, rank) = build;
    let mut keys = Keys::try_new(plan.schema(), identity)?;
    let memory = MemoryConsumer::new("ResolveExec").register(context.memory_pool());
    let mut ranks: HashMap<Box<[u8]>, i64> = HashMap::new();
    let mut batches = plan.execute(0, context)?;
    while let Some(batch) = batches.try_next().await? {
        let found = rank.of(&batch);
        let corrections = BooleanArray::from_iter(found.iter().map(|r| Some(!rank.is_first(*r))));
        let batch = filter_record_batch(&batch, &corrections)?;
        let encoded = keys.encode(&batch)?;
        let mut grown = 0;
        for (row, rank) in encoded.iter().zip(rank.of(&batch)) {
            match ranks.get_mut(row.as_ref()) {
                Some(best) => *best = rank.max(*best),
                None => {
                    grown += row.as_ref().len() + size_of::<(Box<[u8]>, i64)>() * 2;
                    ranks.insert(row.as_ref().into(), rank);
                }
            }
        }
        memory.try_grow(grown)?;
    }
    Ok(Arc::new(Winners { ranks, _memory: memory }))
}

/// Encodes identities so that equal bytes are equal identities: NULL, '' and 'NULL' differ.
struct Keys {
    columns: Vec<usize>,
    converter: RowConverter,
}

impl Keys {
    fn try_new(schema: SchemaRef, columns: Vec<usize>) -> Result<Self> {
        let types = columns.iter().map(|i| schema.field(*i).data_type().clone());
        let fields = types.map(SortField::new).collect();
        Ok(Self { columns, converter: RowConverter::new(fields)? })
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> = self.columns.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        Ok(self.converter.convert_columns(&columns)?)
    }
}

struct Chooser {
    keys: Keys,
    rank: Rank,
    out: Vec<usize>,
    winners: Arc<Winners>,
}

impl Chooser {
    fn choose(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.out.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::new(batch.schema().project(&self.out)?);
        let kept = RecordBatch::try_new_with_options(schema, columns, &options)?;
        if self.winners.ranks.is_empty() {
            return Ok(kept);
        }
        let encoded = self.keys.encode(batch)?;
        let wins = encoded
            .iter()
            .zip(self.rank.of(batch))
            .map(|(row, rank)| self.winners.ranks.get(row.as_ref()).is_none_or(|best| rank >= *best));
        let wins = BooleanArray::from_iter(wins.map(Some));
        Ok(filter_record_batch(&kept, &wins)?)
    }
}
