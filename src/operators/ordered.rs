//! Rows in arrival order, cut from the batches of one or several splits.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::buffer::ScalarBuffer;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};

use super::eval::{batch_of, failure};
use super::fate::{Judged, Refused};
use super::graph::Policy;
use super::judge::RefusedTo;
use super::prepare::Prepared;
use crate::error::Result;
use crate::state::views::compact;

/// A run of rows of one batch.
#[derive(Debug, Clone)]
pub struct Part {
    /// Where it came from.
    pub batch: Arc<Prepared>,
    /// Name of the split.
    pub split: Arc<str>,
    /// Rows of [`Prepared::raw`], half-open.
    pub raw: (usize, usize),
    /// Rows of [`Prepared::rows`], half-open.
    pub rows: (usize, usize),
    /// Place of the first raw row in the view's order.
    pub seq: i64,
}

/// Rows that follow each other in the view's order.
#[derive(Debug, Clone)]
pub struct OrderedRows {
    parts: Vec<Part>,
    /// Prepared rows, in order.
    pub rows: RecordBatch,
    /// Their event times.
    pub times: ScalarBuffer<i64>,
    /// The watermark each of them meets.
    pub judged: Judged,
    /// For each of them the ordinal of its raw row among those of all parts, never descending.
    /// `None`: row `i` is raw row `i`.
    pub origin: Option<Vec<u32>>,
}

impl Part {
    /// The rows of `batch` that the raw rows `raw` became.
    pub fn rows_of(batch: &Prepared, raw: (usize, usize)) -> (usize, usize) {
        match &batch.origin {
            None => raw,
            Some(origin) => {
                let at = |end: usize| origin.partition_point(|row| (*row as usize) < end);
                (at(raw.0), at(raw.1))
            }
        }
    }
}

impl OrderedRows {
    /// Puts `parts` one after the other. `w_before` are the watermarks their raw rows meet.
    ///
    /// # Errors
    /// When the rows of the parts do not fit together.
    pub fn try_new(parts: Vec<Part>, w_before: Judged) -> Result<Self> {
        let origin = origins(&parts);
        let judged = match (&w_before, &origin) {
            (Judged::All(_), _) | (_, None) => w_before,
            (_, Some(origin)) => Judged::Each(origin.iter().map(|row| w_before.get(*row as usize)).collect()),
        };
        let (rows, times) = match parts.as_slice() {
            [part] => {
                let (from, to) = part.rows;
                let times = &part.batch.times;
                let times = if times.is_empty() { times.clone() } else { times.slice(from, to - from) };
                (part.batch.rows.slice(from, to - from), times)
            }
            parts => gather(parts)?,
        };
        Ok(Self { parts, rows, times, judged, origin })
    }

    /// Refused rows as rows of `v$late`; `schema` is [`late_schema`].
    ///
    /// # Errors
    /// When the rows of the parts do not fit together.
    pub fn late_rows(
        &self,
        schema: &SchemaRef,
        refused: &[Refused],
        policy: &Policy,
        seen_at_us: i64,
    ) -> Result<RecordBatch> {
        let starts: Vec<usize> = self
            .parts
            .iter()
            .scan(0, |sum, part| {
                let start = *sum;
                *sum += part.raw.1 - part.raw.0;
                Some(start)
            })
            .collect();
        let places: Vec<(usize, usize)> = refused
            .iter()
            .map(|refused| {
                let ordinal = refused.origin as usize;
                let part = starts.partition_point(|start| *start <= ordinal) - 1;
                (part, self.parts[part].raw.0 + ordinal - starts[part])
            })
            .collect();
        let wanted = Arc::new(Schema::new(schema.fields()[..schema.fields().len() - LATE_COLUMNS].to_vec()));
        let raw = self.parts.iter().map(|part| project(&part.batch.raw, &wanted)).collect::<Result<Vec<_>>>()?;
        let raw = interleave_record_batch(&raw.iter().collect::<Vec<_>>(), &places).map_err(|e| failure(e.into()))?;
        let mut columns: Vec<ArrayRef> = raw.columns().iter().map(compact).collect();
        columns.extend(self.late_columns(refused, &places, policy, seen_at_us));
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| failure(e.into()))
    }

    fn late_columns(
        &self,
        refused: &[Refused],
        places: &[(usize, usize)],
        policy: &Policy,
        seen_at_us: i64,
    ) -> Vec<ArrayRef> {
        let time = |us: &dyn Fn(&Refused) -> i64| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::from_iter_values(refused.iter().map(us)).with_timezone("UTC"))
        };
        let int =
            |values: &mut dyn Iterator<Item = i64>| -> ArrayRef { Arc::new(Int64Array::from_iter_values(values)) };
        let text = |values: Vec<&str>| -> ArrayRef { Arc::new(StringArray::from(values)) };
        let offset = |(part, row): &(usize, usize)| self.parts[*part].batch.offsets.get(*row);
        let seq = |place: &(usize, usize)| {
            let part = &self.parts[place.0];
            part.seq + offset(place) - part.batch.offsets.get(part.raw.0)
        };
        let fate = |refused: &Refused| match RefusedTo::of(policy, refused.late) {
            RefusedTo::Queue => "queued",
            RefusedTo::SideOutput | RefusedTo::Nowhere => "side_output",
        };
        vec![
            time(&|refused| refused.window.start),
            time(&|refused| refused.window.end),
            int(&mut refused.iter().map(|refused| i64::from(refused.pairs))),
            int(&mut refused.iter().map(|refused| refused.late_by_us)),
            text(refused.iter().map(fate).collect()),
            text(refused.iter().map(|refused| if refused.late { "late" } else { "expired" }).collect()),
            text(places.iter().map(|(part, _)| self.parts[*part].split.as_ref()).collect()),
            int(&mut places.iter().map(offset)),
            int(&mut places.iter().map(seq)),
            time(&|_| seen_at_us),
        ]
    }
}

/// Columns [`late_schema`] adds.
const LATE_COLUMNS: usize = 10;

/// Columns of `v$late`: those of the source rows, then why and where each was refused.
pub fn late_schema(source: &Schema) -> SchemaRef {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let added: [(&str, DataType); LATE_COLUMNS] = [
        ("_window_start", instant.clone()),
        ("_window_end", instant.clone()),
        ("_pairs", DataType::Int64),
        ("_late_by_us", DataType::Int64),
        ("_fate", DataType::Utf8),
        ("_reason", DataType::Utf8),
        ("_split", DataType::Utf8),
        ("_offset", DataType::Int64),
        ("_seq", DataType::Int64),
        ("_seen_at", instant),
    ];
    let added = added.into_iter().map(|(name, data_type)| Arc::new(Field::new(name, data_type, true)));
    Arc::new(Schema::new(source.fields().iter().cloned().chain(added).collect::<Vec<FieldRef>>()))
}

/// Columns that every one of `sources` has, as the first one has them.
pub fn common_columns(sources: &[SchemaRef]) -> SchemaRef {
    let Some((first, others)) = sources.split_first() else { return Arc::new(Schema::empty()) };
    let shared = |field: &&FieldRef| {
        others.iter().all(|other| other.field_with_name(field.name()).is_ok_and(|f| f.data_type() == field.data_type()))
    };
    Arc::new(Schema::new(first.fields().iter().filter(shared).cloned().collect::<Vec<_>>()))
}

fn project(raw: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch> {
    let columns = wanted.fields().iter().map(|field| {
        raw.schema().index_of(field.name()).map(|i| Arc::clone(raw.column(i))).map_err(|e| failure(e.into()))
    });
    batch_of(wanted, columns.collect::<Result<_>>()?, raw.num_rows())
}

fn origins(parts: &[Part]) -> Option<Vec<u32>> {
    if parts.iter().all(|part| part.batch.origin.is_none()) {
        return None;
    }
    let mut all = Vec::new();
    let mut base = 0_u32;
    for part in parts {
        let (from, to) = part.rows;
        let first = part.raw.0 as u32;
        match &part.batch.origin {
            None => all.extend((from..to).map(|row| base + row as u32 - first)),
            Some(origin) => all.extend(origin[from..to].iter().map(|row| base + row - first)),
        }
        base += (part.raw.1 - part.raw.0) as u32;
    }
    Some(all)
}

fn gather(parts: &[Part]) -> Result<(RecordBatch, ScalarBuffer<i64>)> {
    let batches: Vec<&RecordBatch> = parts.iter().map(|part| &part.batch.rows).collect();
    let mut places = Vec::new();
    let mut times = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        places.extend((part.rows.0..part.rows.1).map(|row| (i, row)));
        times.extend_from_slice(part.batch.times.get(part.rows.0..part.rows.1).unwrap_or_default());
    }
    let schema = batches[0].schema();
    let rows = match schema.fields().is_empty() {
        true => batch_of(&schema, Vec::new(), places.len())?,
        false => interleave_record_batch(&batches, &places).map_err(|e| failure(e.into()))?,
    };
    Ok((rows, times.into()))
}
