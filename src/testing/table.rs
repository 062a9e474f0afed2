//! Record batches as text tables.
//!
//! ```text
//! k | ts    | v
//! a | 0     | 10
//! b | 12.5  | NULL
//! ```
//!
//! Cells are parted by `|` and trimmed. `NULL` is null, `''` the empty text. A timestamp is written as seconds since
//! 1970-01-01 UTC, with up to six decimals, as the cases of the design are. Everything else is what arrow's cast reads
//! and its formatter prints. Both directions panic on what they cannot do: a test has nothing better to do about it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};

const SECOND_US: i64 = 1_000_000;

/// A batch of `schema` from the rows of `text`. A first line that names the columns is optional; empty lines are skipped.
///
/// # Panics
/// If the text is not such a table.
pub fn parse(schema: &SchemaRef, text: &str) -> RecordBatch {
    let header: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut rows: Vec<Vec<&str>> = lines.map(|line| line.split('|').map(str::trim).collect()).collect();
    if rows.first() == Some(&header) {
        rows.remove(0);
    }
    for row in &rows {
        assert_eq!(row.len(), header.len(), "`{}` has not the columns {header:?}", row.join(" | "));
    }
    let column = |(index, field): (usize, &Arc<Field>)| parse_column(field, rows.iter().map(|row| row[index]));
    let columns = schema.fields().iter().enumerate().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).expect("cells fit the schema")
}

fn parse_column<'a>(field: &Field, cells: impl Iterator<Item = &'a str>) -> ArrayRef {
    let cells = cells.map(|cell| match cell {
        "NULL" => None,
        "''" => Some(""),
        text => Some(text),
    });
    if let DataType::Timestamp(TimeUnit::Microsecond, zone) = field.data_type() {
        let times: TimestampMicrosecondArray = cells.map(|cell| cell.map(parse_seconds)).collect();
        return Arc::new(times.with_timezone_opt(zone.clone()));
    }
    let texts: ArrayRef = Arc::new(cells.collect::<StringArray>());
    let values = cast(&texts, field.data_type()).expect("a type that text casts to");
    assert_eq!(values.null_count(), texts.null_count(), "a cell of `{}` is no {}", field.name(), field.data_type());
    values
}

/// Seconds with up to six decimals as µs.
fn parse_seconds(text: &str) -> i64 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = format!("{part:0<6}");
    assert_eq!(part.len(), 6, "`{text}` is finer than a microsecond");
    let whole: i64 = whole.parse().unwrap_or_else(|_| panic!("`{text}` is no number of seconds"));
    let part: i64 = part.parse().unwrap_or_else(|_| panic!("`{text}` is no number of seconds"));
    sign * (whole * SECOND_US + part)
}

fn format_seconds(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let (whole, part) = (us.unsigned_abs() / SECOND_US as u64, us.unsigned_abs() % SECOND_US as u64);
    let part = format!(".{part:06}");
    format!("{sign}{whole}{}", part.trim_end_matches('0').trim_end_matches('.'))
}

/// The rows of `batches` as lines of cells joined by ` | `, without a header, in their order.
///
/// # Panics
/// If arrow cannot print a column.
pub fn lines(batches: &[RecordBatch]) -> Vec<String> {
    batches.iter().flat_map(batch_lines).collect()
}

/// [`lines`] in ascending order of their text.
///
/// # Panics
/// If arrow cannot print a column.
pub fn sorted_lines(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = lines(batches);
    lines.sort();
    lines
}

fn batch_lines(batch: &RecordBatch) -> Vec<String> {
    let columns: Vec<Vec<String>> = batch.columns().iter().map(cells).collect();
    let line = |row: usize| columns.iter().map(|column| column[row].as_str()).collect::<Vec<_>>().join(" | ");
    (0..batch.num_rows()).map(line).collect()
}

fn cells(column: &ArrayRef) -> Vec<String> {
    if let Some(times) = column.as_any().downcast_ref::<TimestampMicrosecondArray>() {
        return times.iter().map(|us| us.map_or("NULL".to_owned(), format_seconds)).collect();
    }
    let options = FormatOptions::new().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options).expect("a column arrow can print");
    let cell = |row| if column.is_null(row) { "NULL".to_owned() } else { formatter.value(row).to_string() };
    (0..column.len()).map(cell).map(|text| if text.is_empty() { "''".to_owned() } else { text }).collect()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("k", DataType::Utf8, true),
            Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
            Field::new("v", DataType::Float64, true),
        ]));
        let text = "k | ts | v\n a | -0.5 | 1.5\n '' | 9.999 | NULL\n NULL | 12 | 2.0";
        let batch = parse(&schema, text);
        assert_eq!(lines(std::slice::from_ref(&batch)), vec!["a | -0.5 | 1.5", "'' | 9.999 | NULL", "NULL | 12 | 2.0"]);
        assert_eq!(parse(&schema, &lines(std::slice::from_ref(&batch)).join("\n")), batch);
    }
}
