//! Parquet, by row groups: each is decoded by a job of its own, large ones in pieces by several.
//!
//! To begin within a row group means to decompress the dictionary of each column again. Who has decoded a piece therefore
//! leaves its reader to a later piece of the same group, which no other reader then has to begin:
//!
//! ```text
//!  piece     0    1    2    3    4    5    6    7        two workers, three jobs in flight
//!  reader    a    b    c    a    b    c    a    b        skips what the other two decode
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};
use parquet::basic::Type;
use parquet::schema::types::SchemaDescriptor;

use super::columnar::{ColumnMatch, ColumnarFile, columns_of, damaged};
use super::{Wanted, convert};
use crate::connectors::{ColumnDefinition, SourceBatch};
use crate::error::{Error, ErrorKind, Result};

/// Most rows decoded by one job, so that memory does not depend on how a file was written.
const PIECE_ROWS: u64 = 1 << 17;

/// Most rows decoded at once. Pieces are a multiple of it, so that no part has rows of two.
const PART_ROWS: usize = 1 << 13;

/// An open Parquet file.
pub(crate) struct ParquetFile {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    columns: ColumnMatch,
    pieces: Vec<Piece>,
    rows: Vec<u64>,
    /// Pieces decoded side by side: a reader goes on with every so-many-th of its group.
    lanes: usize,
    /// Readers that stand before a piece, by its place in `pieces`.
    begun: Mutex<HashMap<usize, ParquetRecordBatchReader>>,
}

impl std::fmt::Debug for ParquetFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Piece {
    group: usize,
    /// Rows of the group before this piece.
    skip: u64,
    rows: u64,
    bytes: u64,
}

impl ParquetFile {
    /// Reads the footer of the file at `path`. At most `lanes` pieces are decoded at once, in order; more cost time only.
    ///
    /// # Errors
    /// `Unavailable` if it cannot be opened, `Corrupt` if it is no Parquet file.
    pub(crate) fn open(
        path: &Path,
        name: Arc<str>,
        declared: &[ColumnDefinition],
        wanted: Wanted,
        lanes: usize,
    ) -> Result<Self> {
        let metadata = load(path, declared)?;
        let columns = ColumnMatch::new(name, metadata.schema().fields(), declared, wanted);
        let mut pieces = Vec::new();
        for (group, meta) in metadata.metadata().row_groups().iter().enumerate() {
            let total = u64::try_from(meta.num_rows()).unwrap_or(0);
            let bytes = u64::try_from(meta.compressed_size()).unwrap_or(0);
            for skip in (0..total).step_by(PIECE_ROWS as usize) {
                let rows = PIECE_ROWS.min(total - skip);
                pieces.push(Piece { group, skip, rows, bytes: bytes * rows / total });
            }
        }
        let rows = pieces.iter().map(|piece| piece.rows).collect();
        let begun = Mutex::default();
        Ok(Self { path: path.to_path_buf(), metadata, columns, pieces, rows, lanes: lanes.max(1), begun })
    }

    /// The columns of the file at `path`.
    ///
    /// # Errors
    /// As [`ParquetFile::open`].
    pub(crate) fn columns(path: &Path) -> Result<Vec<ColumnDefinition>> {
        Ok(columns_of(load(path, &[])?.schema().fields()))
    }

    /// The rows of the piece `at`, in parts.
    fn read(&self, at: usize) -> Result<Vec<RecordBatch>, Box<dyn std::error::Error + Send + Sync>> {
        let begun = self.begun.lock().remove(&at);
        let mut reader = begun.map_or_else(|| self.begin(at), Ok)?;
        let parts = usize::try_from(self.pieces[at].rows)?.div_ceil(PART_ROWS);
        let decoded = reader.by_ref().take(parts).collect::<Result<_, _>>()?;
        if let Some(next) = self.lane(at).nth(1) {
            self.begun.lock().insert(next, reader);
        }
        Ok(decoded)
    }

    /// A reader of the piece `at` and those its lane goes on with.
    fn begin(&self, at: usize) -> Result<ParquetRecordBatchReader, Box<dyn std::error::Error + Send + Sync>> {
        // A file of its own for each reader: clones of one share their position.
        let file = File::open(&self.path)?;
        let group = self.pieces[at].group;
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), self.columns.projection.iter().copied());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(PART_ROWS);
        let group_rows = u64::try_from(self.metadata.metadata().row_group(group).num_rows())?;
        if self.pieces[at].rows == group_rows {
            return Ok(builder.build()?);
        }
        let (mut selectors, mut passed) = (Vec::new(), 0);
        for piece in self.lane(at).map(|at| &self.pieces[at]) {
            selectors.push(RowSelector::skip(usize::try_from(piece.skip - passed)?));
            selectors.push(RowSelector::select(usize::try_from(piece.rows)?));
            passed = piece.skip + piece.rows;
        }
        Ok(builder.with_row_selection(RowSelection::from(selectors)).build()?)
    }

    /// The piece `at` and those of its group that its reader goes on with.
    fn lane(&self, at: usize) -> impl Iterator<Item = usize> {
        let group = self.pieces[at].group;
        (at..self.pieces.len()).step_by(self.lanes).take_while(move |at| self.pieces[*at].group == group)
    }
}

impl ColumnarFile for ParquetFile {
    fn pieces(&self) -> &[u64] {
        &self.rows
    }

    fn decode(&self, at: usize, first_row: u64) -> Result<Vec<SourceBatch>> {
        let piece = &self.pieces[at];
        let message =
            || format!("could not read parquet file, path=`{}` row_group=`{}`", self.path.display(), piece.group);
        let decoded = self.read(at).map_err(|e| Error::new(ErrorKind::Data, message()).with_source(e))?;
        if decoded.iter().map(RecordBatch::num_rows).sum::<usize>() as u64 != piece.rows {
            return Err(Error::new(ErrorKind::Data, message()));
        }
        let mut row = first_row;
        let mut parts = Vec::with_capacity(decoded.len());
        for part in decoded {
            let first_row = row;
            row += part.num_rows() as u64;
            parts.push(self.columns.finish(part, first_row)?);
        }
        if let Some(first) = parts.first_mut() {
            first.bytes = piece.bytes;
        }
        Ok(parts)
    }
}

/// The file's footer, with columns to be read as what `declared` asks for where the decoder can do that at once.
fn load(path: &Path, declared: &[ColumnDefinition]) -> Result<ArrowReaderMetadata> {
    let file = File::open(path).map_err(|e| {
        Error::new(ErrorKind::Unavailable, format!("could not open path=`{}`", path.display())).with_source(e)
    })?;
    let plain = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(|e| damaged(path, "parquet", e))?;
    let Some(schema) = read_as(plain.schema().fields(), plain.parquet_schema(), declared) else { return Ok(plain) };
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options).map_err(|e| damaged(path, "parquet", e))
}

/// Types to decode as, where they are not the file's own; None if all are.
///
/// INT96 times are read as µs instead of ns, which would wrap beyond the years 1677 to 2262 (C75). Texts declared as views
/// are read as views: a dictionary's texts then are never copied.
fn read_as(fields: &Fields, parquet: &SchemaDescriptor, declared: &[ColumnDefinition]) -> Option<Schema> {
    let is_int96 = |column: usize| {
        let leaf = (0..parquet.num_columns()).find(|leaf| parquet.get_column_root_idx(*leaf) == column);
        leaf.is_some_and(|leaf| parquet.column(leaf).physical_type() == Type::INT96)
    };
    let as_view = |column: usize| {
        declared.iter().any(|c| c.data_type == DataType::Utf8View && convert::find(fields, &c.name) == Some(column))
    };
    let wanted = |(column, field): (usize, &FieldRef)| match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) if is_int96(column) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Utf8 if as_view(column) => DataType::Utf8View,
        own => own.clone(),
    };
    let types: Vec<DataType> = fields.iter().enumerate().map(wanted).collect();
    let changed = fields.iter().zip(&types).any(|(field, wanted)| field.data_type() != wanted);
    let retyped = fields.iter().zip(types).map(|(field, wanted)| field.as_ref().clone().with_data_type(wanted));
    changed.then(|| Schema::new(retyped.collect::<Vec<Field>>()))
}
