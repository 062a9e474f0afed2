//! What a run has to publish, given what it made and what is stored.
//!
//! ```text
//!  made   stored (latest)        FINALIZE              REPROCESS
//!  a 5    —                      a 5 v1 final          a 5 v1
//!  b 5    v1 4                   b 5 v2 final          b 5 v2
//!  c 5    v1 5                   c 5 v2 final          nothing
//!  d 5    v2 5 final             nothing               nothing
//!  —      v1 3                   v2 deleted, final     v2 deleted
//! ```
//!
//! Values are equal as the engine's floats are: to a relative 1e-9 (T5); everything else exactly.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{CastOptions, cast_with_options, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};

use super::values::windows_of;
use crate::error::{Error, ErrorKind, Result};
use crate::results::schema::column;
use crate::results::{Read, ViewReader};
use crate::window::Window;

/// How close two floats must be to be the same value, relative to the larger.
const FLOAT_TOLERANCE: f64 = 1e-9;

/// Whether what a run publishes is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// FINALIZE.
    Final,
    /// REPROCESS.
    Corrected,
}

/// Columns of a version that say what it is of and what its value is.
#[derive(Debug, Clone)]
pub struct Shape {
    schema: SchemaRef,
    identity: Vec<usize>,
    floats: Vec<usize>,
    exact: Vec<usize>,
    window: (usize, usize),
}

/// What to publish, and how it compares.
#[derive(Debug, Clone, Default)]
pub struct Reconciled {
    /// New versions, as a view's writer takes them.
    pub versions: Vec<RecordBatch>,
    /// Results made.
    pub results: u64,
    /// Of these, without a version before, or with another value.
    pub changed: u64,
    /// Of these, without a version before (deleted ones are none).
    pub added: u64,
    /// Published results that were not made again.
    pub deleted: u64,
    /// Results that were stored just so already.
    pub unchanged: u64,
    /// Windows that have a result, or had one.
    pub windows: BTreeSet<Window>,
    /// Of these, the ones with a changed or deleted result.
    pub changed_windows: BTreeSet<Window>,
}

impl Shape {
    /// The columns of the view that `reader` reads.
    ///
    /// # Errors
    ///
    /// `Internal` if the store lacks a column.
    pub fn of(reader: &ViewReader) -> Result<Self> {
        let added = [
            column::VERSION,
            column::COMPUTED_AT,
            column::IS_FINAL,
            column::DELETED,
            column::REASON,
            column::SUPERSEDES,
            column::EPOCH,
        ];
        let stored = reader.schema(Read::All);
        let fields: Vec<FieldRef> =
            stored.fields().iter().filter(|field| !added.contains(&field.name().as_str())).cloned().collect();
        let schema = Arc::new(Schema::new(fields));
        let find =
            |name: &str| schema.index_of(name).map_err(|e| Error::internal("a version lacks a column").with_source(e));
        let window = (find(column::WINDOW_START)?, find(column::WINDOW_END)?);
        let keys = reader.table().keys.iter().map(|key| find(key.field.name()));
        let identity = [Ok(window.0), Ok(window.1)].into_iter().chain(keys).collect::<Result<Vec<_>>>()?;
        let values: Vec<usize> = (0..schema.fields().len()).filter(|i| !identity.contains(i)).collect();
        let is_float = |i: &usize| matches!(schema.field(*i).data_type(), DataType::Float32 | DataType::Float64);
        let (floats, exact) = values.into_iter().partition(is_float);
        Ok(Self { identity, floats, exact, window, schema })
    }

    /// Names of the columns that tell results apart: the window's bounds and the keys.
    pub fn identity(&self) -> Vec<String> {
        self.identity.iter().map(|i| self.schema.field(*i).name().clone()).collect()
    }

    /// The columns of `batches` that this names, as stored.
    fn conform(&self, batches: &[RecordBatch]) -> Result<RecordBatch> {
        let options = CastOptions { safe: false, ..Default::default() };
        let conformed = batches.iter().map(|batch| {
            let columns = self.schema.fields().iter().map(|field| {
                let missing = || Error::internal(format!("a result lacks column=`{}`", field.name()));
                let column = batch.column_by_name(field.name()).ok_or_else(missing)?;
                cast_with_options(column, field.data_type(), &options).map_err(|e| {
                    let message = format!("a value does not fit its stored type: column=`{}`", field.name());
                    Error::new(ErrorKind::Data, message).with_source(e)
                })
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(unfit)
        });
        concat_batches(&self.schema, &conformed.collect::<Result<Vec<_>>>()?).map_err(unfit)
    }

    fn keys(&self, rows: &RecordBatch, columns: &[usize]) -> Result<Vec<Box<[u8]>>> {
        if columns.is_empty() {
            return Ok(vec![Box::default(); rows.num_rows()]);
        }
        let arrays: Vec<ArrayRef> = columns.iter().map(|i| Arc::clone(rows.column(*i))).collect();
        let fields = arrays.iter().map(|array| SortField::new(array.data_type().clone())).collect();
        let rows = RowConverter::new(fields).and_then(|converter| converter.convert_columns(&arrays)).map_err(unfit)?;
        Ok(rows.iter().map(|row| row.data().into()).collect())
    }
}

/// Rows with what comparing them needs.
struct Side {
    rows: RecordBatch,
    identities: Vec<Box<[u8]>>,
    exact: Vec<Box<[u8]>>,
}

impl Side {
    fn new(shape: &Shape, batches: &[RecordBatch]) -> Result<Self> {
        let rows = shape.conform(batches)?;
        let (identities, exact) = (shape.keys(&rows, &shape.identity)?, shape.keys(&rows, &shape.exact)?);
        Ok(Self { rows, identities, exact })
    }

    fn same_value(&self, row: usize, other: &Self, at: usize, shape: &Shape) -> bool {
        self.exact[row] == other.exact[at]
            && shape.floats.iter().all(|i| {
                let (a, b) = (float(self.rows.column(*i), row), float(other.rows.column(*i), at));
                match (a, b) {
                    (Some(a), Some(b)) => close(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                }
            })
    }
}

/// Whether two floats are the same value to within what summing them in another order may change.
pub fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= FLOAT_TOLERANCE * a.abs().max(b.abs())
}

fn float(column: &ArrayRef, row: usize) -> Option<f64> {
    match column.data_type() {
        _ if column.is_null(row) => None,
        DataType::Float32 => Some(f64::from(column.as_primitive::<Float32Type>().value(row))),
        _ => Some(column.as_primitive::<Float64Type>().value(row)),
    }
}

/// One row to publish.
struct Next {
    from_stored: bool,
    row: u32,
    version: i64,
    deleted: bool,
}

/// What has to be published so that the `stored` versions, the latest of each identity in a range, become what was
/// `made` of that range.
///
/// # Errors
///
/// `Data` for a value that does not fit its stored type; `Internal` for columns that are not the view's.
pub fn reconcile(
    shape: &Shape,
    made: &[RecordBatch],
    stored: &[RecordBatch],
    publish: Publish,
    reason: &str,
) -> Result<Reconciled> {
    let (made, current) = (Side::new(shape, made)?, Side::new(shape, stored)?);
    let versions = Facts::of(stored)?;
    let known: HashMap<&[u8], usize> = current.identities.iter().enumerate().map(|(i, id)| (&id[..], i)).collect();
    let windows = |side: &Side| windows_of(&side.rows, shape.window.0, shape.window.1).collect::<Vec<_>>();
    let (made_windows, current_windows) = (windows(&made), windows(&current));
    let mut out = Reconciled { results: made.rows.num_rows() as u64, ..Reconciled::default() };
    out.windows.extend(made_windows.iter().chain(&current_windows));
    let mut next = Vec::new();
    let mut met = vec![false; current.rows.num_rows()];
    for (row, identity) in made.identities.iter().enumerate() {
        let at = known.get(&identity[..]).copied();
        let version = at.map_or(0, |at| versions.version[at]);
        let equal = at.is_some_and(|at| {
            met[at] = true;
            !versions.deleted[at] && made.same_value(row, &current, at, shape)
        });
        if equal && (publish == Publish::Corrected || at.is_some_and(|at| versions.is_final[at])) {
            out.unchanged += 1;
            continue;
        }
        if !equal {
            out.changed += 1;
            out.added += u64::from(at.is_none_or(|at| versions.deleted[at]));
            out.changed_windows.insert(made_windows[row]);
        }
        next.push(Next { from_stored: false, row: row as u32, version: version + 1, deleted: false });
    }
    for at in (0..met.len()).filter(|at| !met[*at]) {
        let gone = versions.deleted[at];
        if gone && (publish == Publish::Corrected || versions.is_final[at]) {
            continue;
        }
        if !gone {
            out.deleted += 1;
            out.changed_windows.insert(current_windows[at]);
        }
        let version = versions.version[at] + 1;
        next.push(Next { from_stored: true, row: at as u32, version, deleted: true });
    }
    for from_stored in [false, true] {
        let rows: Vec<&Next> = next.iter().filter(|next| next.from_stored == from_stored).collect();
        if !rows.is_empty() {
            let side = if from_stored { &current } else { &made };
            out.versions.push(versioned(&side.rows, &rows, publish, reason)?);
        }
    }
    Ok(out)
}

fn versioned(rows: &RecordBatch, next: &[&Next], publish: Publish, reason: &str) -> Result<RecordBatch> {
    let n = next.len();
    let taken =
        take_record_batch(rows, &UInt32Array::from_iter_values(next.iter().map(|next| next.row))).map_err(unfit)?;
    let mut fields: Vec<FieldRef> = taken.schema().fields().iter().cloned().collect();
    let mut columns = taken.columns().to_vec();
    let added: [(&str, ArrayRef); 4] = [
        (column::VERSION, Arc::new(Int64Array::from_iter_values(next.iter().map(|next| next.version)))),
        (column::IS_FINAL, Arc::new(BooleanArray::from(vec![publish == Publish::Final; n]))),
        (column::DELETED, Arc::new(next.iter().map(|next| Some(next.deleted)).collect::<BooleanArray>())),
        (column::REASON, Arc::new(StringArray::from(vec![reason; n]))),
    ];
    for (name, array) in added {
        fields.push(Arc::new(Field::new(name, array.data_type().clone(), false)));
        columns.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(unfit)
}

/// What a stored version says of itself.
#[derive(Default)]
struct Facts {
    version: Vec<i64>,
    is_final: Vec<bool>,
    deleted: Vec<bool>,
}

impl Facts {
    fn of(stored: &[RecordBatch]) -> Result<Self> {
        let mut facts = Self::default();
        for batch in stored {
            let find = |name: &str| {
                batch.column_by_name(name).ok_or_else(|| Error::internal(format!("a version lacks column=`{name}`")))
            };
            facts.version.extend(find(column::VERSION)?.as_primitive::<Int64Type>().values());
            facts.is_final.extend(find(column::IS_FINAL)?.as_boolean().iter().map(|v| v.unwrap_or(false)));
            facts.deleted.extend(find(column::DELETED)?.as_boolean().iter().map(|v| v.unwrap_or(false)));
        }
        Ok(facts)
    }
}

/// Results of each window and how many are the same on both sides: what VERIFY counts.
///
/// # Errors
///
/// As [`reconcile`].
pub fn differences(shape: &Shape, live: &[RecordBatch], batch: &[RecordBatch]) -> Result<BTreeMap<Window, Differing>> {
    let (live, batch) = (Side::new(shape, live)?, Side::new(shape, batch)?);
    let windows = |side: &Side| windows_of(&side.rows, shape.window.0, shape.window.1).collect::<Vec<_>>();
    let mut found: BTreeMap<Window, Differing> = BTreeMap::new();
    let known: HashMap<&[u8], usize> = live.identities.iter().enumerate().map(|(i, id)| (&id[..], i)).collect();
    for window in windows(&live) {
        found.entry(window).or_default().live += 1;
    }
    let mut met = 0;
    for (row, window) in windows(&batch).into_iter().enumerate() {
        let differing = found.entry(window).or_default();
        differing.batch += 1;
        match known.get(&batch.identities[row][..]) {
            Some(at) => {
                met += 1;
                let same = batch.same_value(row, &live, *at, shape);
                differing.differing += u64::from(!same);
                differing.rounded += u64::from(same && !identical(&batch, row, &live, *at, shape));
            }
            None => differing.differing += 1,
        }
    }
    if met < live.rows.num_rows() {
        let made: BTreeSet<&[u8]> = batch.identities.iter().map(|id| &id[..]).collect();
        for (row, window) in windows(&live).into_iter().enumerate() {
            found.entry(window).or_default().differing += u64::from(!made.contains(&live.identities[row][..]));
        }
    }
    Ok(found)
}

/// Results of one window, live and batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Differing {
    /// Results stored.
    pub live: u64,
    /// Results made.
    pub batch: u64,
    /// Identities whose values differ, or that only one side has.
    pub differing: u64,
    /// Identities whose values differ by rounding alone.
    pub rounded: u64,
}

fn identical(a: &Side, row: usize, b: &Side, at: usize, shape: &Shape) -> bool {
    shape.floats.iter().all(|i| {
        let (a, b) = (float(a.rows.column(*i), row), float(b.rows.column(*i), at));
        a.map(f64::to_bits) == b.map(f64::to_bits)
    })
}

fn unfit(e: ArrowError) -> Error {
    Error::internal("cannot compare results").with_source(e)
}
