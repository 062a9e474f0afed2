//! What happens to a batch of one split before anybody asks about order: computed columns, bad rows, watermark inputs,
//! WHERE, static joins, keys and arguments.
//!
//! All of it is row by row and has no state, so any number of batches may be prepared at once. Order matters only from
//! `operators::sequence` on.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::ScalarBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use datafusion::common::hash_utils::{RandomState, create_hashes};

use super::eval::{FailedRow, batch_of, evaluate, evaluate_all, evaluate_condition, failure, set_failures_aside};
use super::graph::{SourceSpec, WatermarkPlan};
use super::rows::RowsOperator;
use super::static_join::StaticJoin;
use crate::connectors::{Notes, Offsets, Position, Reject, RejectReason, SourceBatch, row_as_json};
use crate::error::{Error, Result};
use crate::state::Layout;
use crate::time::YEARS_US;
use crate::watermark::{self, Strategy};

/// One row-by-row step between a source and its window.
#[derive(Debug, Clone)]
pub enum RowStep {
    /// Filter and project.
    Rows(RowsOperator),
    /// Join with a static table.
    Join(Arc<StaticJoin>),
}

/// Prepares the batches of one source as one view reads it.
#[derive(Debug)]
pub struct Prepare {
    spec: SourceSpec,
    schema: SchemaRef,
    steps: Vec<RowStep>,
    target: Target,
}

/// What rows are prepared for.
#[derive(Debug, Clone)]
pub enum Target {
    /// A window whose event time is column `event_time` after the steps: rows are evaluated down to keys and arguments.
    Window {
        /// Column of the event time.
        event_time: usize,
        /// What to evaluate.
        layout: Arc<Layout>,
    },
    /// No window: rows pass through.
    Rows,
}

/// A batch of one split, ready to be put in order.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The rows that were good, as the source node gives them. Refused rows are kept whole from here.
    pub raw: RecordBatch,
    /// Offsets of `raw`.
    pub offsets: Offsets,
    /// What each row of `raw` says about the watermark.
    pub marks: Marks,
    /// Rows after all steps: what [`Target`] asks for.
    pub rows: RecordBatch,
    /// Event times of `rows`; empty for [`Target::Rows`].
    pub times: ScalarBuffer<i64>,
    /// For each of `rows` its index in `raw`, never descending. `None`: row `i` is row `i`.
    pub origin: Option<Vec<u32>>,
    /// Rows of `raw` that a step failed on, ascending. They are among `rejects` too.
    pub failed: Vec<u32>,
    /// Rows that could not be read or computed, ascending by offset.
    pub rejects: Vec<Reject>,
    /// What happened while reading them.
    pub notes: Notes,
    /// Bytes read.
    pub bytes: u64,
    /// Where reading goes on after the batch.
    pub next: Position,
}

/// What the rows of [`Prepared::raw`] say about the watermark. A row says the watermark expression's value (for processing
/// time the clock less the delay), or [`watermark::NONE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marks {
    /// No row says anything.
    Silent,
    /// At each row the largest thing the rows up to and including it said: all that matters, where rows count alike.
    Rising(ScalarBuffer<i64>),
    /// Rows count by their key.
    PerKey {
        /// What each row says.
        values: Vec<i64>,
        /// Their event times.
        times: ScalarBuffer<i64>,
        /// Hash of their `PER KEY` columns.
        keys: Vec<u64>,
    },
}

impl Prepare {
    /// A preparation of batches of `spec`, whose node's output is `schema`, through `steps` for `target`.
    pub fn new(spec: SourceSpec, schema: SchemaRef, steps: Vec<RowStep>, target: Target) -> Self {
        Self { spec, schema, steps, target }
    }

    /// The source.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// Columns of [`Prepared::raw`].
    pub fn raw_schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Prepares `batch` of the split with the name `split`. `now_us` is the clock's value when it was read.
    ///
    /// # Errors
    /// Only what is no single row's fault. Bad rows become rejects.
    pub fn prepare(&self, split: &str, now_us: i64, batch: SourceBatch) -> Result<Prepared> {
        let SourceBatch { rows, offsets, mut rejects, notes, bytes, next } = self.within_years(batch)?;
        let (raw, offsets) = self.computed(split, rows, offsets, &mut rejects)?;
        let (raw, offsets) = self.timely(now_us, raw, offsets, &mut rejects)?;
        let (marks, raw, offsets) = match self.marks(now_us, &raw) {
            Err(error) if error.kind() == crate::ErrorKind::Data => {
                let work = |part: &RecordBatch| self.marks(now_us, part).map(|_| ());
                let (raw, offsets) = self.computable(raw, offsets, &mut rejects, work)?;
                (self.marks(now_us, &raw)?, raw, offsets)
            }
            marks => (marks?, raw, offsets),
        };
        let mut flow = Flow { rows: raw.clone(), origin: None, failed: BTreeMap::new() };
        for step in &self.steps {
            flow = flow.through(step)?;
        }
        let (rows, times) = self.finish(&mut flow)?;
        let failed: Vec<u32> = flow.failed.keys().copied().collect();
        for (row, error) in &flow.failed {
            rejects.push(self.reject_row(&raw, *row, offsets.get(*row as usize), computation(error)));
        }
        rejects.sort_by_key(|reject| reject.offset);
        Ok(Prepared { raw, offsets, marks, rows, times, origin: flow.origin, failed, rejects, notes, bytes, next })
    }

    /// Sets rows aside that hold an instant beyond the years (T1).
    fn within_years(&self, mut batch: SourceBatch) -> Result<SourceBatch> {
        let beyond = batch.beyond_years()?;
        for (row, error) in &beyond {
            let why = (error.reason, error.message.clone());
            batch.rejects.push(self.reject_row(&batch.rows, *row as u32, batch.offsets.get(*row), why));
        }
        batch.without(&beyond)
    }

    /// Physical columns to the node's columns.
    fn computed(
        &self,
        split: &str,
        rows: RecordBatch,
        offsets: Offsets,
        rejects: &mut Vec<Reject>,
    ) -> Result<(RecordBatch, Offsets)> {
        let compute = |rows: &RecordBatch| evaluate_all(&self.spec.columns, rows);
        let (columns, rows, offsets) = match compute(&rows) {
            Ok(columns) => (columns, rows, offsets),
            Err(error) if error.kind() == crate::ErrorKind::Data => {
                let work = |part: &RecordBatch| compute(part).map(|_| ());
                let (rows, offsets) = self.computable(rows, offsets, rejects, work)?;
                (compute(&rows)?, rows, offsets)
            }
            Err(error) => return Err(error),
        };
        let n = rows.num_rows();
        let mut columns = columns;
        if self.spec.with_position {
            columns.extend(SourceSpec::position_columns(split, &offsets, n));
        }
        Ok((batch_of(&self.schema, columns, n)?, offsets))
    }

    /// The rows that `work` can be done for, which fails on others; these are rejects.
    fn computable(
        &self,
        rows: RecordBatch,
        offsets: Offsets,
        rejects: &mut Vec<Reject>,
        work: impl Fn(&RecordBatch) -> Result<()>,
    ) -> Result<(RecordBatch, Offsets)> {
        let sorted = set_failures_aside(&rows, work)?;
        for row in &sorted.failed {
            let why = computation(&row.error);
            rejects.push(self.reject_row(&rows, row.row, offsets.get(row.row as usize), why));
        }
        let kept = sorted.good.values().iter().map(|i| offsets.get(*i as usize)).collect();
        let rows = arrow::compute::take_record_batch(&rows, &sorted.good).map_err(|e| failure(e.into()))?;
        Ok((rows, Offsets::Each(kept)))
    }

    /// Sets rows aside whose event time is NULL, beyond the years, or too far in the future (T8).
    fn timely(
        &self,
        now_us: i64,
        raw: RecordBatch,
        offsets: Offsets,
        rejects: &mut Vec<Reject>,
    ) -> Result<(RecordBatch, Offsets)> {
        let Some(column) = self.spec.event_time else { return Ok((raw, offsets)) };
        let times = raw.column(column).as_primitive::<TimestampMicrosecondType>();
        let (first, last) = (*YEARS_US.start(), *YEARS_US.end());
        let latest = self.spec.max_future_us.map_or(last, |ahead| now_us.saturating_add(ahead).min(last));
        let is_good = |ts: i64| first <= ts && ts <= latest;
        // No early end, so that several values are compared at a time.
        if times.null_count() == 0 && times.values().iter().fold(true, |good, ts| good & is_good(*ts)) {
            return Ok((raw, offsets));
        }
        let good: BooleanArray = times.iter().map(|ts| Some(ts.is_some_and(is_good))).collect();
        for row in (0..raw.num_rows()).filter(|row| !good.value(*row)) {
            let why = match times.is_null(row) {
                true => (RejectReason::NullTime, "the event time is NULL".to_owned()),
                false if !YEARS_US.contains(&times.value(row)) => {
                    (RejectReason::Range, "the event time is out of range: years are 0001 to 9999".to_owned())
                }
                false => (RejectReason::Future, self.future_text(times.value(row), now_us)),
            };
            rejects.push(self.reject_row(&raw, row as u32, offsets.get(row), why));
        }
        let kept = (0..raw.num_rows()).filter(|row| good.value(*row)).map(|row| offsets.get(row)).collect();
        let raw = filter_record_batch(&raw, &good).map_err(|e| failure(e.into()))?;
        Ok((raw, Offsets::Each(kept)))
    }

    fn future_text(&self, ts: i64, now_us: i64) -> String {
        let (ts, now) = (crate::time::format_us(ts), crate::time::format_us(now_us));
        format!("the event time is further ahead of the clock than max_future allows: time=`{ts}` clock=`{now}`")
    }

    fn marks(&self, now_us: i64, raw: &RecordBatch) -> Result<Marks> {
        let Some(WatermarkPlan { spec, expr, when, keys }) = &self.spec.watermark else { return Ok(Marks::Silent) };
        let n = raw.num_rows();
        if let Strategy::ProcessingTime { delay_us } = spec.strategy {
            return Ok(Marks::Rising(vec![now_us.saturating_sub(delay_us).min(watermark::END - 1); n].into()));
        }
        let Some(expr) = expr else { return Ok(Marks::Silent) };
        let said = evaluate(expr, raw)?;
        let said = said
            .as_primitive_opt::<TimestampMicrosecondType>()
            .ok_or_else(|| Error::internal(format!("a watermark expression has type=`{}`", said.data_type())))?;
        let marked = when.as_ref().map(|when| evaluate_condition(when, raw)).transpose()?;
        let silent = |row: usize| said.is_null(row) || marked.as_ref().is_some_and(|marked| !marked.value(row));
        let mut values = said.values().to_vec();
        if said.null_count() > 0 || marked.is_some() {
            values.iter_mut().enumerate().filter(|(row, _)| silent(*row)).for_each(|(_, v)| *v = watermark::NONE);
        }
        let Strategy::PerKey { .. } = spec.strategy else {
            let mut largest = watermark::NONE;
            for value in &mut values {
                largest = largest.max((*value).min(watermark::END - 1));
                *value = largest;
            }
            return Ok(Marks::Rising(values.into()));
        };
        let column = self.spec.event_time.ok_or_else(|| Error::internal("a watermark without an event time"))?;
        let times = raw.column(column).as_primitive::<TimestampMicrosecondType>().values().clone();
        let columns: Vec<ArrayRef> = keys.iter().map(|i| Arc::clone(raw.column(*i))).collect();
        let mut keys = vec![0; n];
        create_hashes(&columns, &RandomState::with_seed(0x5065_724b), &mut keys).map_err(failure)?;
        Ok(Marks::PerKey { values, times, keys })
    }

    /// Event times of the rows that are left, and what the target wants of them.
    fn finish(&self, flow: &mut Flow) -> Result<(RecordBatch, ScalarBuffer<i64>)> {
        let event_times = |rows: &RecordBatch, column: usize| -> Result<ScalarBuffer<i64>> {
            let column = rows.column(column);
            let times = column.as_primitive_opt::<TimestampMicrosecondType>();
            let times = times.filter(|times| times.null_count() == 0);
            let times = times.ok_or_else(|| {
                Error::internal(format!("a window's event time is no timestamp: type=`{}`", column.data_type()))
            })?;
            Ok(times.values().clone())
        };
        match &self.target {
            Target::Rows => Ok((flow.rows.clone(), ScalarBuffer::default())),
            Target::Window { event_time, layout } => {
                let inputs = match layout.inputs(&flow.rows).map_err(failure) {
                    Err(error) if error.kind() == crate::ErrorKind::Data => {
                        let check = |part: &RecordBatch| layout.inputs(part).map(|_| ()).map_err(failure);
                        flow.set_aside(check)?;
                        layout.inputs(&flow.rows).map_err(failure)?
                    }
                    done => done?,
                };
                Ok((inputs, event_times(&flow.rows, *event_time)?))
            }
        }
    }

    fn reject_row(
        &self,
        rows: &RecordBatch,
        row: u32,
        offset: i64,
        (reason, message): (RejectReason, String),
    ) -> Reject {
        let place = format!("{} row {offset}", self.spec.name);
        let row = self.as_declared(rows).slice(row as usize, 1);
        Reject { offset, reason, message, place, raw: row_as_json(&row) }
    }

    /// Rows of the node with their columns in the order of the declaration; others as they are.
    fn as_declared(&self, rows: &RecordBatch) -> RecordBatch {
        if rows.schema() != self.schema {
            return rows.clone();
        }
        let mut order: Vec<usize> = (0..self.spec.declared.len()).collect();
        order.sort_by_key(|column| self.spec.declared[*column]);
        rows.project(&order).expect("every column of the declaration is in the node")
    }
}

/// Rows on their way through the steps.
struct Flow {
    rows: RecordBatch,
    origin: Option<Vec<u32>>,
    /// Rows of the source batch that failed, each with what came first.
    failed: BTreeMap<u32, Error>,
}

impl Flow {
    fn through(mut self, step: &RowStep) -> Result<Self> {
        let (rows, kept, failed) = match step {
            RowStep::Rows(operator) => {
                let kept = operator.on_rows(&self.rows)?;
                (kept.rows, kept.kept, kept.failed)
            }
            RowStep::Join(join) => {
                let joined = join.on_rows(&self.rows)?;
                (joined.rows, joined.origin, joined.failed)
            }
        };
        self.note_failed(failed);
        self.keep(rows, kept);
        Ok(self)
    }

    fn set_aside(&mut self, work: impl Fn(&RecordBatch) -> Result<()>) -> Result<()> {
        let sorted = set_failures_aside(&self.rows, work)?;
        self.note_failed(sorted.failed);
        let rows = arrow::compute::take_record_batch(&self.rows, &sorted.good).map_err(|e| failure(e.into()))?;
        self.keep(rows, Some(sorted.good.values().to_vec()));
        Ok(())
    }

    /// A source row is rejected whole: if one of the rows a join made of it fails, the others go too.
    fn note_failed(&mut self, failed: Vec<FailedRow>) {
        for row in failed {
            let source = self.origin.as_ref().map_or(row.row, |origin| origin[row.row as usize]);
            self.failed.entry(source).or_insert(row.error);
        }
    }

    fn keep(&mut self, rows: RecordBatch, kept: Option<Vec<u32>>) {
        self.rows = rows;
        if let Some(kept) = kept {
            self.origin = Some(match &self.origin {
                None => kept,
                Some(origin) => kept.iter().map(|row| origin[*row as usize]).collect(),
            });
        }
        self.drop_failed();
    }

    fn drop_failed(&mut self) {
        let Some(origin) = &self.origin else { return };
        if self.failed.is_empty() || !origin.iter().any(|row| self.failed.contains_key(row)) {
            return;
        }
        let good: BooleanArray = origin.iter().map(|row| Some(!self.failed.contains_key(row))).collect();
        self.origin = Some(origin.iter().zip(good.iter()).filter(|(_, g)| *g == Some(true)).map(|(r, _)| *r).collect());
        self.rows = filter_record_batch(&self.rows, &good).expect("the mask has a value per row");
    }
}

fn computation(error: &Error) -> (RejectReason, String) {
    (RejectReason::Computation, error.message().to_owned())
}
