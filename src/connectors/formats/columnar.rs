//! What Parquet and Arrow files have in common: they come in pieces of known length, hold typed columns, and can be read
//! column by column.
//!
//! Columns are found by name without regard to case and converted to the declared types: times of any unit, and without a
//! zone in the source's zone, become instants; a value that does not fit rejects its row. Columns nobody declared are
//! ignored and counted; a declared column the file lacks is NULL.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Fields};

use super::{Origin, RawRows, RowErrors, Wanted, convert, row_as_json};
use crate::connectors::{ColumnDefinition, SourceBatch};
use crate::error::{Error, ErrorKind, Result};

/// An open file.
pub(crate) trait ColumnarFile: Debug + Send + Sync {
    /// Rows of each piece, in order. Pieces can be decoded apart from each other.
    fn pieces(&self) -> &[u64];

    /// Decodes a piece whose first row is `first_row` of the file, in parts small enough to stay in the processor's caches and
    /// in the allocator's. Offsets count from 0 in each.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file, `Data` for a column that cannot become its declared type.
    fn decode(&self, piece: usize, first_row: u64) -> Result<Vec<SourceBatch>>;
}

/// Which of a file's columns are read, and what for.
#[derive(Debug)]
pub(super) struct ColumnMatch {
    /// The file's name, for rejects.
    name: Arc<str>,
    wanted: Wanted,
    /// Columns of the file to decode, ascending.
    pub(super) projection: Vec<usize>,
    /// Per wanted column its place in `projection`.
    places: Vec<Option<usize>>,
    /// Columns nobody declared.
    extra: u64,
}

impl ColumnMatch {
    pub(super) fn new(name: Arc<str>, file: &Fields, declared: &[ColumnDefinition], mut wanted: Wanted) -> Self {
        // Asked for or not, what may refuse a row is read; it comes after what was asked for.
        let others = wanted.columns.split_off(wanted.asked);
        wanted.columns.extend(others.into_iter().filter(|column| may_refuse(column, file)));
        let found: Vec<Option<usize>> = wanted.columns.iter().map(|c| convert::find(file, &c.name)).collect();
        let mut projection: Vec<usize> = found.iter().flatten().copied().collect();
        projection.sort_unstable();
        projection.dedup();
        let places = found.iter().map(|at| at.and_then(|at| projection.binary_search(&at).ok())).collect();
        let known = declared.iter().filter(|c| convert::find(file, &c.name).is_some()).count();
        Self { name, wanted, projection, places, extra: file.len().saturating_sub(known) as u64 }
    }

    /// The declared rows of a decoded piece.
    pub(super) fn finish(&self, decoded: RecordBatch, first_row: u64) -> Result<SourceBatch> {
        let rows = RawRows {
            columns: self.places.iter().map(|place| place.map(|at| Arc::clone(decoded.column(at)))).collect(),
            records: None,
            errors: vec![],
            row_errors: RowErrors::default(),
        };
        let records = decoded.num_rows() as u64;
        let mut batch = rows.finish(&self.wanted, &RowOrigin { name: &self.name, decoded, first_row })?;
        batch.notes.ignored_fields = self.extra * records;
        Ok(batch)
    }
}

/// Whether a row of a file with the columns `file` may have no value for `column`.
fn may_refuse(column: &ColumnDefinition, file: &Fields) -> bool {
    let Some(at) = convert::find(file, &column.name) else { return column.not_null };
    let (found, declared) = (file[at].data_type(), &column.data_type);
    let same = found == declared || found.is_string() && declared.is_string();
    !same || convert::holds_instants(declared) || column.not_null && file[at].is_nullable()
}

struct RowOrigin<'a> {
    name: &'a str,
    decoded: RecordBatch,
    first_row: u64,
}

impl Origin for RowOrigin<'_> {
    fn records(&self) -> usize {
        self.decoded.num_rows()
    }

    fn place(&self, record: usize) -> String {
        format!("{}:{}", self.name, self.first_row + record as u64 + 1)
    }

    fn raw(&self, record: usize) -> String {
        row_as_json(&self.decoded.slice(record, 1))
    }
}

/// The columns of a file as a source without declared ones has them.
pub(super) fn columns_of(fields: &Fields) -> Vec<ColumnDefinition> {
    let plain = |t: &DataType| match t {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    };
    fields.iter().map(|f| ColumnDefinition::new(f.name(), plain(f.data_type()))).collect()
}

/// A file that is not what its format says.
pub(super) fn damaged(path: &Path, format: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("could not read {format} file, path=`{}`", path.display());
    Error::new(ErrorKind::Data, message).with_source(source)
}
