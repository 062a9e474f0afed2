//! What needs all rows of a window at once: Top-N, DISTINCT, OVER (PARTITION BY window).
//!
//! It keeps a window's current rows by identity, evaluates the plan over them whenever they have changed, and gives out
//! the difference to what it gave out before:
//!
//! ```text
//!  Top-2 by n            kept            given out
//!  upsert a 5 initial    a 5
//!  upsert b 3 initial    a 5, b 3
//!  upsert c 1 initial    a 5, b 3, c 1   upsert a 5, b 3 initial      when the close is complete
//!  upsert c 9 late_data  a 5, b 3, c 9   delete b, upsert c 9         when the epoch ends
//! ```
//!
//! A window's rows are dropped when it expires. It does not know what the plan computes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use arrow::row::{OwnedRow, RowConverter, SortField};

use super::eval::failure;
use super::graph::{Policy, WholeWindowSpec};
use super::lifecycle::expires_at;
use crate::change::{ChangeKind, Changes, Reason};
use crate::error::{Error, Result};
use crate::watermark;
use crate::window::Window;

/// Batches kept of one window before they are joined into one.
const BATCHES_MAX: usize = 32;

/// Keeps windows' rows. Takes changes, gives changes.
#[derive(Debug)]
pub struct WholeWindow {
    spec: Arc<WholeWindowSpec>,
    policy: Policy,
    input: SchemaRef,
    output: SchemaRef,
    identities: RowConverter,
    keys: RowConverter,
    values: RowConverter,
    /// By (end, start).
    live: BTreeMap<(i64, i64), Live>,
    w: i64,
}

/// One window.
#[derive(Debug, Default)]
struct Live {
    batches: Vec<RecordBatch>,
    /// Batch and row of each identity.
    rows: HashMap<OwnedRow, (usize, usize)>,
    /// Why the rows changed since they were evaluated, if they did.
    dirty: Option<Reason>,
    /// What was given out, and where each key is in it.
    given: Option<RecordBatch>,
    places: HashMap<OwnedRow, Place>,
}

/// A row that was given out.
#[derive(Debug, Clone)]
struct Place {
    row: u32,
    value: OwnedRow,
}

impl WholeWindow {
    /// An operator over changes whose upserts have the schema `input`, into rows of `output`.
    ///
    /// # Errors
    /// `Unsupported` for a column type without a row format.
    pub fn try_new(spec: Arc<WholeWindowSpec>, policy: Policy, input: SchemaRef, output: SchemaRef) -> Result<Self> {
        let identities = converter(&input, spec.identity.iter().copied())?;
        let keys = converter(&output, spec.keys.iter().copied())?;
        let values = converter(&output, 0..output.fields().len())?;
        let (live, w) = (BTreeMap::new(), watermark::NONE);
        Ok(Self { spec, policy, input, output, identities, keys, values, live, w })
    }

    /// Goes on at W `w` after a checkpoint. What it held is to be told again.
    pub fn restore(&mut self, w: i64) {
        self.w = w;
    }

    /// Takes changes. Where a window's rows change for another reason than before, the difference so far is given out
    /// first, so that a late row is not part of an initial value.
    ///
    /// # Errors
    /// `Internal` when the rows do not have the input's columns; what the plan fails with.
    pub fn on_changes(&mut self, changes: &Changes, out: &mut Vec<Changes>) -> Result<()> {
        let rows = &changes.rows;
        let [start, end] =
            self.spec.window.map(|column| rows.column(column).as_primitive::<TimestampMicrosecondType>());
        let ids = row_format(&self.identities, rows, &self.spec.identity)?;
        let batch = match changes.kind {
            ChangeKind::Upsert => {
                Some(rows.clone().with_schema(Arc::clone(&self.input)).map_err(|e| failure(e.into()))?)
            }
            ChangeKind::Delete => None,
        };
        let mut place_of: HashMap<(i64, i64), usize> = HashMap::new();
        for (row, id) in ids.into_iter().enumerate() {
            let window = (end.value(row), start.value(row));
            // What comes after the window expired changes nothing any more (T4).
            if expires_at(&self.policy, window.0) <= self.w {
                continue;
            }
            if self.live.get(&window).is_some_and(|live| live.dirty.is_some_and(|reason| reason != changes.reason)) {
                self.give_out(window, out)?;
            }
            let live = self.live.entry(window).or_default();
            match &batch {
                Some(batch) => {
                    let place = *place_of.entry(window).or_insert_with(|| live.add(batch));
                    live.rows.insert(id, (place, row));
                }
                None if live.rows.remove(&id).is_none() => continue,
                None => {}
            }
            live.dirty = Some(changes.reason);
        }
        Ok(())
    }

    /// W has risen to `w`, and all changes that brought about have been taken: windows that closed give out their first
    /// value, those that expire their last, and are dropped.
    ///
    /// # Errors
    /// What the plan fails with.
    pub fn on_watermark(&mut self, w: i64, out: &mut Vec<Changes>) -> Result<()> {
        self.w = w;
        let closed =
            self.live.iter().filter(|(_, live)| live.dirty == Some(Reason::Initial)).map(|(window, _)| *window);
        let expired = self.live.keys().copied().take_while(|(end, _)| expires_at(&self.policy, *end) <= w);
        let mut due: Vec<_> = closed.chain(expired).collect();
        due.sort_unstable();
        due.dedup();
        for window in due {
            self.give_out(window, out)?;
            if expires_at(&self.policy, window.0) <= w {
                self.live.remove(&window);
            }
        }
        Ok(())
    }

    /// The epoch ends, and all its changes have been taken.
    ///
    /// # Errors
    /// What the plan fails with.
    pub fn on_epoch(&mut self, out: &mut Vec<Changes>) -> Result<()> {
        let dirty: Vec<_> =
            self.live.iter().filter(|(_, live)| live.dirty.is_some()).map(|(window, _)| *window).collect();
        dirty.into_iter().try_for_each(|window| self.give_out(window, out))
    }

    /// Windows held.
    pub fn live_windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.live.keys().map(|(end, start)| Window { start: *start, end: *end })
    }

    /// Bytes held, without hash tables.
    pub fn memory_bytes(&self) -> usize {
        let batches = self.live.values().flat_map(|live| live.batches.iter().chain(&live.given));
        batches.map(RecordBatch::get_array_memory_size).sum()
    }

    /// Evaluates a window whose rows have changed and gives out the difference. A close gives out every row, since each
    /// identity has an initial version (design §3).
    fn give_out(&mut self, window: (i64, i64), out: &mut Vec<Changes>) -> Result<()> {
        let Some(live) = self.live.get_mut(&window) else { return Ok(()) };
        let Some(reason) = live.dirty.take() else { return Ok(()) };
        let result = self.spec.plan.evaluate(&live.current(&self.input)?)?;
        let result = result.with_schema(Arc::clone(&self.output)).map_err(|e| failure(e.into()))?;
        let keys = row_format(&self.keys, &result, &self.spec.keys)?;
        let values = row_format(&self.values, &result, &(0..result.num_columns()).collect::<Vec<_>>())?;
        let (mut places, mut upserts) = (HashMap::with_capacity(keys.len()), Vec::new());
        for ((row, key), value) in (0_u32..).zip(keys).zip(values) {
            let same = live.places.remove(&key).is_some_and(|before| before.value == value);
            if !same || reason == Reason::Initial {
                upserts.push(row);
            }
            if places.insert(key, Place { row, value }).is_some() {
                return Err(Error::internal("two result rows of a window have the same identity"));
            }
        }
        let mut gone: Vec<u32> = live.places.values().map(|place| place.row).collect();
        gone.sort_unstable();
        if let Some(given) = live.given.as_ref().filter(|_| !gone.is_empty()) {
            out.push(Changes { kind: ChangeKind::Delete, reason, rows: rows_of(given, gone)? });
        }
        if !upserts.is_empty() {
            out.push(Changes { kind: ChangeKind::Upsert, reason, rows: rows_of(&result, upserts)? });
        }
        (live.places, live.given) = (places, Some(result));
        Ok(())
    }
}

impl Live {
    /// Keeps a batch some of whose rows are to be among the current ones; says its place.
    fn add(&mut self, batch: &RecordBatch) -> usize {
        self.batches.push(batch.clone());
        self.batches.len() - 1
    }

    /// The current rows, in the order of their identities, so that nothing depends on a hash.
    fn current(&mut self, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut rows: Vec<(&OwnedRow, &mut (usize, usize))> = self.rows.iter_mut().collect();
        if rows.is_empty() {
            self.batches.clear();
            return Ok(RecordBatch::new_empty(Arc::clone(schema)));
        }
        rows.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let places: Vec<(usize, usize)> = rows.iter().map(|(_, place)| **place).collect();
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let current = interleave_record_batch(&batches, &places).map_err(|e| failure(e.into()))?;
        if self.batches.len() > BATCHES_MAX {
            self.batches = vec![current.clone()];
            rows.into_iter().enumerate().for_each(|(row, (_, place))| *place = (0, row));
        }
        Ok(current)
    }
}

fn converter(schema: &SchemaRef, columns: impl Iterator<Item = usize>) -> Result<RowConverter> {
    let fields = columns.map(|column| SortField::new(schema.field(column).data_type().clone())).collect();
    RowConverter::new(fields).map_err(|e| failure(e.into()))
}

/// The rows of some columns in row format. No columns make one and the same row of each.
fn row_format(converter: &RowConverter, rows: &RecordBatch, columns: &[usize]) -> Result<Vec<OwnedRow>> {
    if columns.is_empty() {
        return Ok(vec![converter.parser().parse(&[]).owned(); rows.num_rows()]);
    }
    let columns: Vec<ArrayRef> = columns.iter().map(|column| Arc::clone(rows.column(*column))).collect();
    let rows = converter.convert_columns(&columns).map_err(|e| failure(e.into()))?;
    Ok(rows.iter().map(|row| row.owned()).collect())
}

fn rows_of(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    if rows.len() == batch.num_rows() {
        return Ok(batch.clone());
    }
    take_record_batch(batch, &UInt32Array::from(rows)).map_err(|e| failure(e.into()))
}

#[cfg(test)]
mod tests {
    use arrow::compute::{SortColumn, SortOptions, lexsort_to_indices};
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

    use super::*;
    use crate::sql::statement::{Emit, OnExpired, OnLate};
    use crate::testing::table::{lines, parse, sorted_lines};

    const SECOND: i64 = 1_000_000;

    /// The `n` rows with the greatest last column.
    struct Top(usize);

    impl super::super::graph::WindowPlan for Top {
        fn evaluate(&self, rows: &RecordBatch) -> Result<RecordBatch> {
            let options = Some(SortOptions { descending: true, nulls_first: false });
            let columns = [3, 2].map(|c| SortColumn { values: Arc::clone(rows.column(c)), options });
            let order = lexsort_to_indices(&columns, Some(self.0)).unwrap();
            Ok(take_record_batch(rows, &order).unwrap())
        }
    }

    fn schema() -> SchemaRef {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        Arc::new(Schema::new(vec![
            Field::new("window_start", time.clone(), true),
            Field::new("window_end", time, true),
            Field::new("k", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
        ]))
    }

    fn operator(top: usize) -> WholeWindow {
        let spec = WholeWindowSpec { plan: Arc::new(Top(top)), window: [0, 1], identity: vec![0, 1, 2], keys: vec![2] };
        let policy = Policy {
            allowed_lateness_us: 20 * SECOND,
            on_late: OnLate::Update { max_updates: None },
            on_expired: OnExpired::SideOutput,
            emit: Emit::OnWindowClose,
        };
        WholeWindow::try_new(Arc::new(spec), policy, schema(), schema()).unwrap()
    }

    fn changes(kind: ChangeKind, reason: Reason, rows: &str) -> Changes {
        Changes { kind, reason, rows: parse(&schema(), &rows.replace(';', "\n")) }
    }

    fn upsert(reason: Reason, rows: &str) -> Changes {
        changes(ChangeKind::Upsert, reason, rows)
    }

    fn said(out: &mut Vec<Changes>) -> Vec<String> {
        let text = |changes: Changes| {
            let kind = if changes.kind == ChangeKind::Delete { "delete" } else { changes.reason.as_str() };
            let rows = sorted_lines(&[changes.rows]);
            rows.into_iter().map(move |line| format!("{kind} {line}")).collect::<Vec<_>>()
        };
        out.drain(..).flat_map(text).collect()
    }

    #[test]
    fn a_key_that_left_the_top_is_deleted() {
        let (mut op, mut out) = (operator(2), vec![]);
        op.on_changes(&upsert(Reason::Initial, "0|10|a|5; 0|10|b|3"), &mut out).unwrap();
        op.on_changes(&upsert(Reason::Initial, "0|10|c|1; 10|20|a|1"), &mut out).unwrap();
        assert_eq!(said(&mut out), Vec::<String>::new());
        op.on_watermark(20 * SECOND, &mut out).unwrap();
        let first = ["initial 0 | 10 | a | 5", "initial 0 | 10 | b | 3", "initial 10 | 20 | a | 1"];
        assert_eq!(said(&mut out), first);
        op.on_changes(&upsert(Reason::LateData, "0|10|c|9"), &mut out).unwrap();
        op.on_watermark(21 * SECOND, &mut out).unwrap();
        assert_eq!(said(&mut out), Vec::<String>::new());
        op.on_epoch(&mut out).unwrap();
        assert_eq!(said(&mut out), ["delete 0 | 10 | b | 3", "late_data 0 | 10 | c | 9"]);
        op.on_changes(&changes(ChangeKind::Delete, Reason::LateData, "0|10|a|NULL; 0|10|x|NULL"), &mut out).unwrap();
        op.on_watermark(31 * SECOND, &mut out).unwrap();
        assert_eq!(said(&mut out), ["delete 0 | 10 | a | 5", "late_data 0 | 10 | b | 3"]);
        assert_eq!(op.live_windows().count(), 1);
        op.on_changes(&upsert(Reason::LateData, "0|10|z|99"), &mut out).unwrap();
        op.on_watermark(i64::MAX, &mut out).unwrap();
        assert_eq!((said(&mut out), op.live_windows().count(), op.memory_bytes()), (vec![], 0, 0));
    }

    #[test]
    fn a_late_row_is_no_part_of_the_initial_value() {
        let (mut op, mut out) = (operator(1), vec![]);
        op.on_changes(&upsert(Reason::Initial, "0|10|a|5"), &mut out).unwrap();
        op.on_changes(&upsert(Reason::LateData, "0|10|b|7"), &mut out).unwrap();
        assert_eq!(said(&mut out), ["initial 0 | 10 | a | 5"]);
        op.on_watermark(40 * SECOND, &mut out).unwrap();
        assert_eq!(said(&mut out), ["delete 0 | 10 | a | 5", "late_data 0 | 10 | b | 7"]);
    }

    #[test]
    fn a_close_repeats_what_was_early() {
        let (mut op, mut out) = (operator(2), vec![]);
        op.on_changes(&upsert(Reason::Early, "0|10|a|5"), &mut out).unwrap();
        op.on_epoch(&mut out).unwrap();
        assert_eq!(said(&mut out), ["early 0 | 10 | a | 5"]);
        op.on_changes(&upsert(Reason::Early, "0|10|a|5; 0|10|b|4"), &mut out).unwrap();
        op.on_epoch(&mut out).unwrap();
        assert_eq!(said(&mut out), ["early 0 | 10 | b | 4"]);
        op.on_changes(&upsert(Reason::Initial, "0|10|a|5; 0|10|b|4"), &mut out).unwrap();
        op.on_watermark(10 * SECOND, &mut out).unwrap();
        assert_eq!(said(&mut out), ["initial 0 | 10 | a | 5", "initial 0 | 10 | b | 4"]);
    }

    #[test]
    fn many_corrections_leave_one_batch() {
        let (mut op, mut out) = (operator(1000), vec![]);
        for n in 0..100 {
            op.on_changes(&upsert(Reason::Early, &format!("0|10|k{}|{n}", n % 10)), &mut out).unwrap();
            op.on_epoch(&mut out).unwrap();
        }
        let live = &op.live[&(10 * SECOND, 0)];
        assert!(live.batches.len() <= BATCHES_MAX + 1, "{}", live.batches.len());
        let expected: Vec<String> = (0..10).rev().map(|k| format!("0 | 10 | k{k} | {}", 90 + k)).collect();
        assert_eq!(lines(std::slice::from_ref(live.given.as_ref().unwrap())), expected);
    }
}
