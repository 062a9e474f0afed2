//! Per-file statistics: what Delta readers, and ours, know of a file without opening it.
//!
//! The form is Delta's: `numRecords`, and by column `minValues`, `maxValues`, `nullCount`. Times are RFC 3339 with
//! milliseconds in Delta's statistics, so a maximum is rounded up; texts are cut at 32 characters, a maximum upwards.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{max, max_string, min, min_string};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    SchemaRef, TimestampMicrosecondType,
};
use chrono::{DateTime, SecondsFormat};
use datafusion::common::ScalarValue;
use serde_json::{Map, Value, json};

const TEXT_CHARS: usize = 32;

/// Delta's statistics of a file that holds `rows`.
pub(super) fn collect(rows: &RecordBatch) -> Value {
    let (mut mins, mut maxs, mut nulls) = (Map::new(), Map::new(), Map::new());
    for (field, array) in rows.schema().fields().iter().zip(rows.columns()) {
        if field.data_type().is_nested() {
            continue;
        }
        nulls.insert(field.name().clone(), json!(array.null_count()));
        if let Some((low, high)) = range(array) {
            mins.insert(field.name().clone(), low);
            maxs.insert(field.name().clone(), high);
        }
    }
    json!({ "numRecords": rows.num_rows(), "minValues": mins, "maxValues": maxs, "nullCount": nulls })
}

fn range(array: &ArrayRef) -> Option<(Value, Value)> {
    macro_rules! numbers {
        ($t:ty) => {{
            let array = array.as_primitive::<$t>();
            Some((json!(min(array)?), json!(max(array)?)))
        }};
    }
    match array.data_type() {
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            finite(min(array)?.into(), max(array)?.into())
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            finite(min(array)?, max(array)?)
        }
        DataType::Decimal128(_, scale) => {
            let array = array.as_primitive::<Decimal128Type>();
            Some((decimal(min(array)?, *scale)?, decimal(max(array)?, *scale)?))
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            Some((date(min(array)?)?, date(max(array)?)?))
        }
        DataType::Timestamp(..) => {
            let array = array.as_primitive::<TimestampMicrosecondType>();
            Some((instant(min(array)?.div_euclid(1000))?, instant(max(array)?.checked_add(999)?.div_euclid(1000))?))
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            let low: String = min_string(array)?.chars().take(TEXT_CHARS).collect();
            Some((json!(low), json!(cut_upwards(max_string(array)?)?)))
        }
        _ => None,
    }
}

/// JSON holds neither infinities nor NaN; NaN sorts last, so a NaN maximum says that the range is unknown.
fn finite(low: f64, high: f64) -> Option<(Value, Value)> {
    (low.is_finite() && high.is_finite()).then(|| (json!(low), json!(high)))
}

/// A decimal as a JSON number, only where a double holds it exactly: readers parse it as one.
fn decimal(value: i128, scale: i8) -> Option<Value> {
    if value.unsigned_abs() >= 1 << 53 {
        return None;
    }
    let number = value as f64 / 10f64.powi(scale.into());
    Some(if scale == 0 { json!(value as i64) } else { json!(number) })
}

fn date(days: i32) -> Option<Value> {
    let date = chrono::NaiveDate::from_num_days_from_ce_opt(days.checked_add(719_163)?)?;
    Some(json!(date.to_string()))
}

fn instant(millis: i64) -> Option<Value> {
    Some(json!(DateTime::from_timestamp_millis(millis)?.to_rfc3339_opts(SecondsFormat::Millis, true)))
}

/// The text, or a short one that is not less than any text that begins like it.
fn cut_upwards(text: &str) -> Option<String> {
    if text.chars().count() <= TEXT_CHARS {
        return Some(text.to_owned());
    }
    let mut cut: Vec<char> = text.chars().take(TEXT_CHARS).collect();
    while let Some(last) = cut.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            cut.push(next);
            return Some(cut.into_iter().collect());
        }
    }
    None
}

/// Statistics of many files as DataFusion's pruning wants them.
pub(super) struct FileStats<'a> {
    /// Schema of the files.
    pub schema: SchemaRef,
    /// Each file's statistics as [`collect`] made them.
    pub files: Vec<&'a Value>,
}

impl FileStats<'_> {
    fn column(&self, kind: &str, name: &str) -> Option<ArrayRef> {
        let data_type = self.schema.field_with_name(name).ok()?.data_type().clone();
        let null = ScalarValue::try_from(&data_type).ok()?;
        let values = self.files.iter().map(|stats| {
            let value = stats.get(kind).and_then(|columns| columns.get(name));
            value.and_then(|value| parse(value, &data_type)).unwrap_or_else(|| null.clone())
        });
        ScalarValue::iter_to_array(values).ok()
    }
}

impl datafusion::common::pruning::PruningStatistics for FileStats<'_> {
    fn min_values(&self, column: &datafusion::common::Column) -> Option<ArrayRef> {
        self.column("minValues", &column.name)
    }

    fn max_values(&self, column: &datafusion::common::Column) -> Option<ArrayRef> {
        self.column("maxValues", &column.name)
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &datafusion::common::Column) -> Option<ArrayRef> {
        let count = |stats: &&Value| stats.get("nullCount").and_then(|c| c.get(&column.name)).and_then(Value::as_u64);
        Some(std::sync::Arc::new(self.files.iter().map(count).collect::<arrow::array::UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let count = |stats: &&Value| stats.get("numRecords").and_then(Value::as_u64);
        Some(std::sync::Arc::new(self.files.iter().map(count).collect::<arrow::array::UInt64Array>()))
    }

    fn contained(
        &self,
        _column: &datafusion::common::Column,
        _values: &std::collections::HashSet<ScalarValue>,
    ) -> Option<arrow::array::BooleanArray> {
        None
    }
}

/// The value of a statistic. Decimals are not read back: their JSON form is for other readers.
fn parse(value: &Value, data_type: &DataType) -> Option<ScalarValue> {
    match data_type {
        DataType::Int8 => Some(ScalarValue::Int8(Some(value.as_i64()?.try_into().ok()?))),
        DataType::Int16 => Some(ScalarValue::Int16(Some(value.as_i64()?.try_into().ok()?))),
        DataType::Int32 => Some(ScalarValue::Int32(Some(value.as_i64()?.try_into().ok()?))),
        DataType::Int64 => Some(ScalarValue::Int64(Some(value.as_i64()?))),
        DataType::Float64 => Some(ScalarValue::Float64(Some(value.as_f64()?))),
        DataType::Utf8 => Some(ScalarValue::Utf8(Some(value.as_str()?.to_owned()))),
        DataType::Timestamp(_, zone) => {
            let at = DateTime::parse_from_rfc3339(value.as_str()?).ok()?;
            Some(ScalarValue::TimestampMicrosecond(Some(at.timestamp_micros()), zone.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn times_round_outwards_and_long_texts_are_cut_outwards() {
        let at = TimestampMicrosecondArray::from(vec![1_001, 1_999]).with_timezone("UTC");
        let text = StringArray::from(vec!["z".repeat(40), "z".repeat(40)]);
        let rows = RecordBatch::try_from_iter([("at", Arc::new(at) as ArrayRef), ("text", Arc::new(text))]).unwrap();
        let stats = collect(&rows);
        assert_eq!(stats["minValues"]["at"], "1970-01-01T00:00:00.001Z");
        assert_eq!(stats["maxValues"]["at"], "1970-01-01T00:00:00.002Z");
        assert_eq!(stats["minValues"]["text"], "z".repeat(32));
        assert_eq!(stats["maxValues"]["text"], format!("{}{{", "z".repeat(31)));
    }

    #[test]
    fn a_nan_hides_the_range_and_nulls_are_counted() {
        let x = Float64Array::from(vec![Some(1.0), Some(f64::NAN), None]);
        let n = Int64Array::from(vec![Some(3), None, Some(-3)]);
        let rows = RecordBatch::try_from_iter([("x", Arc::new(x) as ArrayRef), ("n", Arc::new(n))]).unwrap();
        let stats = collect(&rows);
        assert!(stats["minValues"].get("x").is_none());
        assert_eq!(stats["nullCount"]["x"], 1);
        assert_eq!((&stats["minValues"]["n"], &stats["maxValues"]["n"]), (&json!(-3), &json!(3)));
    }

    #[test]
    fn statistics_read_back_as_values() {
        use datafusion::common::pruning::PruningStatistics;
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let stats = json!({"numRecords": 2, "minValues": {"n": -3}, "maxValues": {"n": 3}, "nullCount": {"n": 0}});
        let unknown = json!({});
        let files = FileStats { schema, files: vec![&stats, &unknown] };
        let low = files.min_values(&"n".into()).unwrap();
        assert_eq!(low.as_primitive::<Int64Type>().value(0), -3);
        assert!(low.is_null(1));
    }
}
