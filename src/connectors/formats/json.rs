//! JSON lines: one object per line.
//!
//! Fields match columns by name without regard to case, also inside STRUCT; fields that no column declares are ignored and
//! counted; a field that is missing is NULL; of a field given twice the last one counts. Numbers and booleans may stand in
//! a VARCHAR column and become their text; texts may stand for numbers. Times are texts or integers of the declared unit.
//! Only the columns asked for are decoded, so a value of a wrong type is found by the readers that need it; a line that is
//! no object, or is nested deeper than 256, is found by all.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use memchr::memrchr;

use super::isolate::{Isolated, isolate};
use super::json_survey::{Node, Survey, respell, survey};
use super::text::{TextBlock, TextFormat, TextOrigin, assemble, exactly, reason_for_value};
use super::{Origin, RowError, Wanted, decoder_type};
use crate::connectors::{ColumnDefinition, RejectReason, SourceBatch};
use crate::error::Result;

/// Reads JSON lines into the wanted columns.
#[derive(Debug)]
pub(crate) struct JsonFormat {
    row: Node,
    wanted: Wanted,
    schema: SchemaRef,
    exact_schema: SchemaRef,
}

impl JsonFormat {
    /// `declared` are all physical columns of the source, `wanted` those to decode.
    pub(crate) fn new(declared: &[ColumnDefinition], wanted: Wanted) -> Self {
        let row = Node::row(declared.iter().map(|c| (c.name.clone(), c.data_type.clone())));
        let schema = |integers_as_text| {
            let mut fields: Vec<Field> =
                wanted.columns.iter().map(|c| Field::new(&c.name, decoder_type(c, integers_as_text), true)).collect();
            if fields.is_empty() {
                // arrow-json wants a field; no JSON key is called this.
                fields.push(Field::new("\0", DataType::Utf8, true));
            }
            Arc::new(Schema::new(fields))
        };
        Self { row, schema: schema(false), exact_schema: schema(true), wanted }
    }
}

impl TextFormat for JsonFormat {
    fn whole_records(&self, bytes: &[u8]) -> usize {
        memrchr(b'\n', bytes).map_or(0, |at| at + 1)
    }

    fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    fn decode(&self, block: &TextBlock) -> Result<SourceBatch> {
        let found = survey(&block.bytes, &self.row);
        let schema = if found.fractional_integers { &self.exact_schema } else { &self.schema };
        let respelled = (!found.renames.is_empty()).then(|| respell(&block.bytes, &found));
        let (bytes, lines) = match &respelled {
            Some((bytes, lines)) => (bytes.as_slice(), lines.as_slice()),
            None => (block.bytes.as_ref(), found.lines.as_slice()),
        };
        let mut isolated = Isolated::default();
        let mut decode = |records: Range<usize>| decode_lines(bytes, &lines[records], schema);
        let mut from = 0;
        for record in found.misshapen.iter().copied().chain([lines.len()]) {
            isolate(from..record, &mut decode, &mut isolated);
            if record < lines.len() {
                isolated.bad.push((record, String::new()));
            }
            from = record + 1;
        }
        isolated.bad.sort_by_key(|(record, _)| *record);
        self.batch(block, &found, isolated, schema)
    }
}

impl JsonFormat {
    fn batch(
        &self,
        block: &TextBlock,
        found: &Survey<'_>,
        isolated: Isolated,
        schema: &SchemaRef,
    ) -> Result<SourceBatch> {
        let origin = TextOrigin { block, records: &found.lines };
        let classify = |record: usize, message: String| classify(&block.bytes[found.lines[record].clone()], message);
        let raw = assemble(isolated, &self.wanted, schema, &|record| origin.raw(record), &classify)?;
        let mut batch = raw.finish(&self.wanted, &origin)?;
        batch.notes.ignored_fields = found.ignored_fields;
        batch.bytes = block.bytes.len() as u64;
        Ok(batch)
    }
}

fn decode_lines(bytes: &[u8], lines: &[Range<usize>], schema: &SchemaRef) -> Result<RecordBatch, String> {
    let stretch = lines[0].start..lines[lines.len() - 1].end;
    let decode = || {
        let builder = ReaderBuilder::new(Arc::clone(schema)).with_coerce_primitive(true);
        let mut decoder = builder.with_batch_size(lines.len() + 1).build_decoder()?;
        decoder.decode(&bytes[stretch])?;
        decoder.flush()
    };
    exactly(decode().map_err(|e| e.to_string())?, lines.len())
}

/// Why a single line was refused.
fn classify(line: &[u8], message: String) -> RowError {
    if let Err(e) = std::str::from_utf8(line) {
        return RowError { reason: RejectReason::Malformed, message: format!("no UTF-8: {e}") };
    }
    if let Err(e) = serde_json::from_slice::<serde::de::IgnoredAny>(line) {
        return RowError { reason: RejectReason::Malformed, message: format!("no JSON: {e}") };
    }
    if message.is_empty() {
        return RowError {
            reason: RejectReason::Malformed,
            message: "the line is not one JSON object, or is nested too deep".to_string(),
        };
    }
    let message = message.trim_start_matches("Json error: ").to_string();
    let value = message.split_once("failed to parse ").and_then(|(_, rest)| Some(rest.rsplit_once(" as ")?.0));
    RowError { reason: value.map_or(RejectReason::Type, reason_for_value), message }
}
