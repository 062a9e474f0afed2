//! From rows to data files: stamping, one file per partition, Parquet, statistics.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt8Array,
    new_null_array,
};
use arrow::compute::{cast_with_options, concat_batches, max, min, sort_to_indices, take_record_batch};
use arrow::datatypes::{DataType, FieldRef, Int64Type, SchemaRef, TimestampMicrosecondType, UInt8Type};
use arrow::row::{RowConverter, SortField};
use bytes::Bytes;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use uuid::Uuid;

use super::schema::{StoredSchema, column};
use super::stats;
use crate::checkpoint::{FileEntry, FileRole};
use crate::error::{Error, ErrorKind, Result};
use crate::time::DAY_US;

/// Rows of one row group.
const ROW_GROUP_ROWS: usize = 131_072;
/// Rows of one page: small enough that one window of a day's file is read without the rest.
const PAGE_ROWS: usize = 4_096;

/// A data file that is encoded and not written yet.
pub(super) struct NewFile {
    /// What the manifest will say of it.
    pub entry: FileEntry,
    /// Its Parquet bytes.
    pub bytes: Bytes,
}

/// When an epoch's rows are published.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub epoch: u64,
    pub us: i64,
}

/// A new data file's name: unique per attempt, so that two writers, or two attempts, at one epoch never share one. It
/// begins with the newest epoch whose rows the file may hold.
pub(super) fn name(epoch: u64) -> String {
    format!("{epoch:020}-{}.parquet", &Uuid::new_v4().simple().to_string()[..16])
}

/// The epoch in a data file's name.
pub(super) fn epoch_of_name(path: &Path) -> Option<u64> {
    path.filename()?.strip_suffix(".parquet")?.split_once('-')?.0.parse().ok()
}

/// Brings versions as a job hands them over to the stored columns: casts, fills in defaults, stamps.
///
/// # Errors
///
/// `Internal` if a column is missing or of a type that does not cast: the caller broke its contract.
pub(super) fn stamp_versions(stored: &StoredSchema, batch: &RecordBatch, stamp: Stamp) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let computed_at = match batch.column_by_name(column::NTH) {
        Some(nth) => {
            let nth = cast(nth, &DataType::UInt8)?;
            let nth: &UInt8Array = nth.as_primitive::<UInt8Type>();
            nth.values().iter().map(|nth| stamp.us + i64::from(*nth)).collect()
        }
        None => vec![stamp.us; rows],
    };
    let columns = stored.results.fields().iter().map(|field| -> Result<ArrayRef> {
        Ok(match (field.name().as_str(), batch.column_by_name(field.name())) {
            (column::COMPUTED_AT, _) => {
                Arc::new(TimestampMicrosecondArray::from(computed_at.clone()).with_timezone("UTC"))
            }
            (column::EPOCH, _) => Arc::new(Int64Array::from(vec![epoch_value(stamp.epoch); rows])),
            (_, Some(array)) => cast(array, field.data_type())?,
            (column::IS_FINAL, None) => Arc::new(BooleanArray::from(vec![false; rows])),
            (column::SUPERSEDES, None) => new_null_array(field.data_type(), rows),
            (name, None) => return Err(Error::internal(format!("a version has no such column: column=`{name}`"))),
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(&stored.results), columns)
        .map_err(|e| Error::internal("versions do not fit the stored columns").with_source(e))
}

/// Brings other rows (late, rejects, window status) to `schema`; a column `_epoch` is filled in.
pub(super) fn conform(schema: &SchemaRef, batch: &RecordBatch, epoch: u64) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(array) => cast(array, field.data_type()),
        None if field.name() == column::EPOCH => {
            Ok(Arc::new(Int64Array::from(vec![epoch_value(epoch); batch.num_rows()])) as ArrayRef)
        }
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
        None => Err(Error::internal(format!("rows lack a column: column=`{}`", field.name()))),
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_>>()?)
        .map_err(|e| Error::internal("rows do not fit the stored columns").with_source(e))
}

fn epoch_value(epoch: u64) -> i64 {
    i64::try_from(epoch).unwrap_or(i64::MAX)
}

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
    cast_with_options(array, to, &options).map_err(|e| {
        let message = format!("a value does not fit its stored type: from=`{}` to=`{to}`", array.data_type());
        Error::new(ErrorKind::Data, message).with_source(e)
    })
}

/// Cuts versions into one batch per UTC date of their window's start, each sorted by window start.
pub(super) fn by_date(stored: &StoredSchema, batches: &[RecordBatch]) -> Result<BTreeMap<i64, RecordBatch>> {
    let mut dates = BTreeMap::new();
    if batches.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(dates);
    }
    let start_index = stored.index(column::WINDOW_START);
    let mut rows = concat_batches(&stored.results, batches).map_err(arrow_error)?;
    if !rows.column(start_index).as_primitive::<TimestampMicrosecondType>().values().is_sorted() {
        let order = sort_to_indices(rows.column(start_index), None, None).map_err(arrow_error)?;
        rows = take_record_batch(&rows, &order).map_err(arrow_error)?;
    }
    let starts = rows.column(start_index).as_primitive::<TimestampMicrosecondType>().values().clone();
    let mut from = 0;
    for chunk in starts.chunk_by(|a, b| a.div_euclid(DAY_US) == b.div_euclid(DAY_US)) {
        dates.insert(chunk[0].div_euclid(DAY_US), rows.slice(from, chunk.len()));
        from += chunk.len();
    }
    Ok(dates)
}

/// The text of a date given as days since 1970-01-01, as a partition value.
pub(super) fn date_text(days: i64) -> String {
    i32::try_from(days + 719_163)
        .ok()
        .and_then(chrono::NaiveDate::from_num_days_from_ce_opt)
        .map_or_else(|| format!("day{days}"), |date| date.to_string())
}

/// Encodes versions of one date, for a file of `role`.
pub(super) fn version_file(
    stored: &StoredSchema,
    rows: &RecordBatch,
    role: FileRole,
    path: String,
    date: String,
) -> Result<NewFile> {
    let mut file = plain_file(rows, path)?;
    let instants = |name| rows.column(stored.index(name)).as_primitive::<TimestampMicrosecondType>();
    let trues = |name| rows.column(stored.index(name)).as_boolean().true_count() as u64;
    let versions = rows.column(stored.index(column::VERSION)).as_primitive::<Int64Type>();
    file.entry.windows_us = range(instants(column::WINDOW_START));
    file.entry.computed_us = range(instants(column::COMPUTED_AT));
    file.entry.version_max = max(versions).unwrap_or(0);
    file.entry.role = role;
    // Rows of one identity in one epoch differ in their stamps; one stamp means one version each.
    let one_stamp = file.entry.epochs.0 == file.entry.epochs.1 && file.entry.computed_us.0 == file.entry.computed_us.1;
    file.entry.single = match role {
        FileRole::Fresh => one_stamp || identities_differ(stored, rows)?,
        FileRole::Current => true,
        FileRole::Superseded => false,
    };
    file.entry.deleted_rows = trues(column::DELETED);
    file.entry.final_rows = trues(column::IS_FINAL);
    file.entry.partition = Some(date);
    Ok(file)
}

/// Encodes rows of a table without versions.
pub(super) fn plain_file(rows: &RecordBatch, path: String) -> Result<NewFile> {
    use EnabledStatistics::{Chunk, Page};
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_statistics_enabled(if rows.num_rows() > PAGE_ROWS { Page } else { Chunk });
    let properties = rows.schema().fields().iter().fold(properties, with_encoding).build();
    let parquet_error = |e| Error::internal(format!("cannot encode a data file: path=`{path}`")).with_source(e);
    let mut bytes = Vec::with_capacity(16 * 1024);
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).map_err(parquet_error)?;
    writer.write(rows).and_then(|()| writer.close()).map_err(parquet_error)?;
    let entry = FileEntry {
        path,
        role: FileRole::Fresh,
        size_bytes: bytes.len() as u64,
        rows: rows.num_rows() as u64,
        epochs: epochs(rows),
        windows_us: window_range(rows),
        computed_us: (i64::MIN, i64::MAX),
        version_max: 0,
        single: false,
        deleted_rows: 0,
        final_rows: 0,
        superseded_us: None,
        partition: None,
        stats: stats::collect(rows),
    };
    Ok(NewFile { entry, bytes: bytes.into() })
}

/// How a column's values are written. A dictionary pays where values repeat, and looks each of them up: integers and times
/// as differences take about as little room (none at all where they are constant) at a fraction of the time, and floats
/// hardly ever repeat.
fn with_encoding(properties: WriterPropertiesBuilder, field: &FieldRef) -> WriterPropertiesBuilder {
    let path = || ColumnPath::from(field.name().as_str());
    match field.data_type() {
        DataType::Int64 | DataType::Int32 | DataType::Date32 | DataType::Timestamp(..) => properties
            .set_column_dictionary_enabled(path(), false)
            .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED),
        DataType::Float64 | DataType::Float32 => properties.set_column_dictionary_enabled(path(), false),
        _ => properties,
    }
}

fn identities_differ(stored: &StoredSchema, rows: &RecordBatch) -> Result<bool> {
    let columns: Vec<ArrayRef> = stored.identity.iter().map(|i| Arc::clone(rows.column(*i))).collect();
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    let encoded = RowConverter::new(fields).and_then(|c| c.convert_columns(&columns)).map_err(arrow_error)?;
    let mut seen = HashSet::with_capacity(rows.num_rows());
    Ok(encoded.iter().all(|row| seen.insert(row)))
}

fn range(values: &TimestampMicrosecondArray) -> (i64, i64) {
    (min(values).unwrap_or(i64::MIN), max(values).unwrap_or(i64::MAX))
}

/// Window starts of status rows; other tables are read whole.
fn window_range(rows: &RecordBatch) -> (i64, i64) {
    match rows.column_by_name("window_start") {
        Some(starts) if starts.data_type() == &super::schema::instant() => range(starts.as_primitive()),
        _ => (i64::MIN, i64::MAX),
    }
}

fn epochs(rows: &RecordBatch) -> (u64, u64) {
    let found = rows.column_by_name(column::EPOCH).map(|epochs| {
        let epochs = epochs.as_primitive::<Int64Type>();
        (min(epochs).unwrap_or(0), max(epochs).unwrap_or(0))
    });
    found.map_or((0, 0), |(first, last)| (first.max(0) as u64, last.max(0) as u64))
}

pub(super) fn arrow_error(e: arrow::error::ArrowError) -> Error {
    Error::internal("cannot arrange result rows").with_source(e)
}
