//! Rows in and out: JSON values to record batches, record batches to text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use highwater::{Error, Result};
use serde_json::{Map, Value};

/// One bit pattern of NaN that is not the usual one.
const OTHER_NAN: f64 = f64::from_bits(0xfff8_0000_0000_0001);

/// Rows of `schema`, one list of values each. Numbers for timestamps are seconds; a double may be a text.
pub fn batch(schema: &SchemaRef, rows: &[Vec<Value>]) -> Result<RecordBatch> {
    if let Some(row) = rows.iter().find(|row| row.len() != schema.fields().len()) {
        return Err(Error::invalid(format!("{} values for {} columns", row.len(), schema.fields().len())));
    }
    let columns = schema.fields().iter().enumerate().map(|(i, field)| {
        let values = rows.iter().map(|row| &row[i]);
        match field.data_type() {
            DataType::Float64 => values.map(double).collect::<Result<Float64Array>>().map(|a| Arc::new(a) as ArrayRef),
            _ => column(field, values),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| Error::invalid("bad rows").with_source(e))
}

fn column<'v>(field: &Arc<Field>, values: impl Iterator<Item = &'v Value>) -> Result<ArrayRef> {
    let timestamp = matches!(field.data_type(), DataType::Timestamp(_, _));
    let objects = values.map(|value| {
        let value = if timestamp { instant(value) } else { value.clone() };
        Map::from_iter([(field.name().clone(), value)])
    });
    let objects = objects.collect::<Vec<_>>();
    let failed = |e: arrow::error::ArrowError| Error::invalid(format!("column `{}`: {e}", field.name()));
    let schema = Arc::new(Schema::new(vec![Arc::clone(field)]));
    let mut decoder = ReaderBuilder::new(schema).build_decoder().map_err(failed)?;
    decoder.serialize(&objects).map_err(failed)?;
    let batch = decoder.flush().map_err(failed)?.ok_or_else(|| Error::invalid("no rows"))?;
    Ok(Arc::clone(batch.column(0)))
}

/// Seconds as microseconds; anything else as it is.
fn instant(value: &Value) -> Value {
    match value.as_f64() {
        Some(seconds) => Value::from((seconds * 1e6).round() as i64),
        None => value.clone(),
    }
}

fn double(value: &Value) -> Result<Option<f64>> {
    Ok(match value {
        Value::Null => None,
        Value::String(text) if text == "NaN" => Some(f64::NAN),
        Value::String(text) if text == "-NaN" => Some(OTHER_NAN),
        Value::String(text) if text == "inf" => Some(f64::INFINITY),
        Value::String(text) if text == "-inf" => Some(f64::NEG_INFINITY),
        other => Some(other.as_f64().ok_or_else(|| Error::invalid(format!("`{other}` is not a double")))?),
    })
}

/// Each value as text: `NULL`, `(empty)`, instants in RFC 3339, doubles in their shortest form.
pub fn text(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let mut out = vec![];
    for batch in batches {
        let columns = batch.columns().iter().map(column_text).collect::<Result<Vec<_>>>()?;
        out.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()));
    }
    Ok(out)
}

fn column_text(array: &ArrayRef) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL").with_display_error(false);
    let formatter = ArrayFormatter::try_new(array, &options);
    let formatter = formatter.map_err(|e| Error::internal("a column cannot be shown").with_source(e))?;
    let doubles = array.as_primitive_opt::<Float64Type>();
    Ok((0..array.len())
        .map(|row| match doubles {
            _ if array.is_null(row) => "NULL".to_string(),
            Some(doubles) => doubles.value(row).to_string(),
            None => match formatter.value(row).to_string() {
                empty if empty.is_empty() => "(empty)".to_string(),
                text => text,
            },
        })
        .collect())
}
