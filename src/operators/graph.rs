//! The operator graph: what `plan` makes and `runtime` runs.
//!
//! It is a directed acyclic graph of [`Node`]s, in topological order (inputs before users). Nodes hold compiled DataFusion
//! expressions and plain settings; nothing in here has run yet, and nothing in here can run by itself.
//!
//! ```text
//!  Source ─► Rows ─► Rows ─► Window ─► Versions ─► WholeWindow        (one view, one source)
//!  Source ─► Rows ─┐
//!  Source ─► Rows ─┴► Union ─► Window ─► …                            (UNION ALL: watermark = minimum)
//! ```

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::connectors::{Boundedness, Offsets, Source};
use crate::sql::statement::{Emit, OnExpired, OnLate};
use crate::watermark::WatermarkSpec;
use crate::window::WindowSpec;

/// Index of a node in [`OperatorGraph::nodes`].
pub type NodeId = usize;

/// A view's plan for the streaming engine.
#[derive(Debug, Clone)]
pub struct OperatorGraph {
    /// Nodes in topological order; the last one is the result.
    pub nodes: Vec<Node>,
    /// The SELECT columns, in order, as readers see them: the first columns of the last node's output.
    ///
    /// Where there is a window, the last node's output goes on with one `_key_<name>` for each key SELECT leaves out,
    /// then `_window_start`, `_window_end` (timestamp µs UTC), `_event_count` (Int64), and for sessions `_supersedes`.
    pub select: SchemaRef,
    /// Identity columns of a result row besides its window. Empty without a window.
    pub keys: Vec<KeyColumn>,
    /// Policies of the view, all defaults filled in.
    pub policy: Policy,
}

/// One identity column; see [`OperatorGraph::keys`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// Index of the column in the last node's output.
    pub index: usize,
    /// Name under which the store keeps it: the SELECT column's, or `_key_<name>`.
    pub stored_as: String,
    /// Whether it is one of the SELECT columns.
    pub selected: bool,
}

/// Fate and emission policies, all defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// L in microseconds, 0 without the clause.
    pub allowed_lateness_us: i64,
    /// The fate of late pairs.
    pub on_late: OnLate,
    /// The fate of expired pairs.
    pub on_expired: OnExpired,
    /// When values are published.
    pub emit: Emit,
}

/// One operator and what it reads.
#[derive(Debug, Clone)]
pub struct Node {
    /// Nodes read, earlier in the list.
    pub inputs: Vec<NodeId>,
    /// What it does.
    pub operator: Operator,
    /// Its output columns. Row operators carry the source's rows. A `Window` gives `window_start`, `window_end`, the
    /// group keys, the aggregates, `_event_count` and, for sessions, `_supersedes`; see [`OperatorGraph::select`] for the last.
    pub schema: SchemaRef,
}

/// What a node does.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // a graph has a handful of nodes
pub enum Operator {
    /// Reads a source, computes columns, event times and watermarks, and sets bad rows aside. No inputs.
    Source(SourceSpec),
    /// Filters and projects rows. One input.
    Rows(RowsSpec),
    /// Joins rows, or the results of a window, with a static table held in memory. One input.
    StaticJoin(Arc<StaticJoinSpec>),
    /// All rows of all inputs; the watermark is the minimum.
    Union,
    /// Judges rows and keeps windows. One input: rows, or (a window of windows) changes.
    Window(Arc<AggregateSpec>),
    /// Row by row over changes: HAVING and expressions. One input.
    Versions(RowsSpec),
    /// Re-evaluates a plan over a window's current rows (Top-N, DISTINCT, OVER (PARTITION BY window)). One input.
    WholeWindow(Arc<WholeWindowSpec>),
    /// No window at all: rows pass through (ad-hoc SELECT and SUBSCRIBE only).
    PassThrough,
}

/// A source as one view reads it.
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// Catalog name; rejects go to `<name>$rejects`.
    pub name: String,
    /// The connector.
    pub source: Arc<dyn Source>,
    /// Indices of the physical columns the view needs, ascending, the event time and watermark inputs included.
    pub projection: Vec<usize>,
    /// Output columns: physical or computed, evaluated over the projected physical columns.
    pub columns: Vec<Arc<dyn PhysicalExpr>>,
    /// The place of each output column in the source's declaration.
    pub declared: Vec<usize>,
    /// Whether two more columns follow the others: `_split` (the split's name) and `_offset`; see
    /// [`SourceSpec::position_fields`]. Asked for by aggregates that depend on the order of rows.
    pub with_position: bool,
    /// Index of the event-time column in the node's output (a timestamp µs UTC), if the source declares a watermark.
    pub event_time: Option<usize>,
    /// How rows move the watermark; expressions are over the node's output.
    pub watermark: Option<WatermarkPlan>,
    /// Whether it ends.
    pub boundedness: Boundedness,
    /// Reject rows whose event time is further than this ahead of the clock. `None`: off.
    pub max_future_us: Option<i64>,
    /// A live split this far ahead of the lowest is paused.
    pub max_ahead_us: i64,
    /// Stop the job when more than this many rows were rejected. `None`: never.
    pub rejects_max: Option<u64>,
}

impl SourceSpec {
    /// The two columns of [`SourceSpec::with_position`]: `_split` Utf8 and `_offset` Int64, not null.
    pub fn position_fields() -> [FieldRef; 2] {
        [Arc::new(Field::new("_split", DataType::Utf8, false)), Arc::new(Field::new("_offset", DataType::Int64, false))]
    }

    /// [`SourceSpec::position_fields`] of the first `rows` rows at `offsets` of the split with the name `split`.
    ///
    /// The name is Utf8 and not Utf8View: an ordered aggregate keeps it in an array for each group, and of views each would
    /// have a buffer of 8 kB.
    pub fn position_columns(split: &str, offsets: &Offsets, rows: usize) -> [ArrayRef; 2] {
        [
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(split, rows))),
            Arc::new(Int64Array::from_iter_values((0..rows).map(|row| offsets.get(row)))),
        ]
    }
}

/// A watermark strategy with its expressions compiled.
#[derive(Debug, Clone)]
pub struct WatermarkPlan {
    /// The strategy and its settings.
    pub spec: WatermarkSpec,
    /// The watermark expression over the source node's output, a timestamp µs. `None` for processing time.
    pub expr: Option<Arc<dyn PhysicalExpr>>,
    /// `PUNCTUATED WHEN`, a boolean.
    pub when: Option<Arc<dyn PhysicalExpr>>,
    /// `PER KEY` columns, indices into the source node's output.
    pub keys: Vec<usize>,
}

/// Filter first, then project. Both are row by row.
#[derive(Debug, Clone)]
pub struct RowsSpec {
    /// Keep rows for which this is true. `None`: all.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    /// Output columns over the input. `None`: the input's.
    pub project: Option<Vec<Arc<dyn PhysicalExpr>>>,
}

/// Join of the stream (left) with a static table (right), on equal keys.
#[derive(Debug, Clone)]
pub struct StaticJoinSpec {
    /// Inner: rows without a match count as filtered. Left: they get nulls. Semi and anti test existence.
    pub kind: StaticJoinKind,
    /// Key expressions over the stream's columns and over the table's, pairwise of one type.
    pub on: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    /// What else must hold, over (stream columns ++ table columns).
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    /// Yields the table. Run once, when the job starts.
    pub table: Arc<dyn ExecutionPlan>,
    /// Name for messages.
    pub table_name: String,
    /// Whether NULL keys match each other.
    pub null_equals_null: bool,
    /// Output columns as indices into (stream ++ table), or into the stream for semi and anti.
    pub projection: Vec<usize>,
}

/// See [`StaticJoinSpec::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticJoinKind {
    /// Pairs that match.
    Inner,
    /// Pairs that match, and stream rows without a match beside nulls.
    Left,
    /// Stream rows that have a match.
    Semi,
    /// Stream rows that have none.
    Anti,
}

/// A windowed aggregation.
#[derive(Debug, Clone)]
pub struct AggregateSpec {
    /// The windows.
    pub window: WindowSpec,
    /// Index of the event time in the input. Input of a window over changes: the index of `window_time`.
    pub event_time: usize,
    /// Group keys over the input, without the window columns. For a session these are its keys.
    pub keys: Vec<(Arc<dyn PhysicalExpr>, String)>,
    /// Aggregates over the input, in output order.
    pub aggregates: Vec<AggregateCall>,
    /// Whether identities are per group key of the query only, or the aggregate is over nothing but windows.
    pub input: AggregateInput,
}

/// What a [`AggregateSpec`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AggregateInput {
    /// Source rows.
    Rows,
    /// Results of a window below.
    Changes {
        /// Columns of the input that identify an inner result: its window's bounds and its keys.
        identity: Vec<usize>,
    },
}

/// One aggregate call.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// The function with its arguments, DISTINCT and ORDER BY compiled over the input.
    pub function: Arc<AggregateFunctionExpr>,
    /// `FILTER (WHERE …)`.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
}

/// A plan over one window's current rows.
#[derive(Clone)]
pub struct WholeWindowSpec {
    /// Builds the plan over the rows given, which have the input node's schema. Pure and deterministic.
    pub plan: Arc<dyn WindowPlan>,
    /// Columns of the input that are the window's start and end.
    pub window: [usize; 2],
    /// Columns of the input that identify a row: its window's bounds and its keys.
    pub identity: Vec<usize>,
    /// Identity columns of the output besides the window, as indices into the output.
    pub keys: Vec<usize>,
}

impl Debug for WholeWindowSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WholeWindowSpec").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Evaluates a window's current rows to its result rows.
pub trait WindowPlan: Send + Sync {
    /// Result rows of a window whose inputs are `rows`.
    fn evaluate(&self, rows: &arrow::array::RecordBatch) -> crate::Result<arrow::array::RecordBatch>;
}
