//! How result rows look on standard output.
//!
//! A [`RowWriter`] turns batches into bytes of one [`Format`]; where the bytes go (a pipe, a terminal, a pager) is not
//! its business. Values of time print as RFC 3339 in every format, so that what one format shows can be typed into a
//! query or compared with another.

mod csv;
mod expanded;
mod json;
mod table;

use std::io::{self, Write};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{DurationFormat, FormatOptions};
use clap::ValueEnum;

use super::report::Style;
use crate::engine::LINES;

/// How result rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values with a header (RFC 4180); NULL is empty, an empty text is ""
    Csv,
    /// One JSON array of objects
    Json,
    /// One JSON object per line
    Ndjson,
    /// Nothing: the rows are computed and counted
    Null,
}

/// How rows arrive, which decides how long a table may wait to learn its column widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A complete answer: the first rows may be held back.
    Complete,
    /// Rows of a stream: each batch is shown when it comes.
    Live,
}

/// Writes the rows of one answer.
pub trait RowWriter: Send {
    /// Writes a batch, or holds it back until the writer knows enough.
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()>;

    /// Writes what was held back, and the end. Also called for an answer without rows and for one that was stopped.
    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

/// The writer for `format`. `expanded` shows a table as one block per row.
pub fn row_writer(
    format: Format,
    expanded: bool,
    schema: &SchemaRef,
    arrival: Arrival,
    style: Style,
) -> Box<dyn RowWriter> {
    match format {
        Format::Table if schema.metadata().contains_key(LINES) => Box::new(LinesWriter),
        Format::Table if expanded => Box::new(expanded::ExpandedWriter::new(schema, style)),
        Format::Table => Box::new(table::TableWriter::new(schema.clone(), arrival, style)),
        Format::Csv => Box::new(csv::CsvWriter::new(schema.clone())),
        Format::Json => Box::new(json::JsonWriter::array()),
        Format::Ndjson => Box::new(json::JsonWriter::lines()),
        Format::Null => Box::new(NullWriter),
    }
}

/// A plan, or a statement, as the text it is.
struct LinesWriter;

impl RowWriter for LinesWriter {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
        for line in batch.column(0).as_string::<i32>().iter().flatten() {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

struct NullWriter;

impl RowWriter for NullWriter {
    fn write(&mut self, _: &RecordBatch, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// How values are turned into text outside JSON.
fn value_options(null: &'static str) -> FormatOptions<'static> {
    FormatOptions::new().with_null(null).with_display_error(true).with_duration_format(DurationFormat::Pretty)
}

fn is_nested(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_nested(values),
        other => other.is_nested(),
    }
}

fn format_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

/// `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2,000 rows`.
pub fn row_count(rows: u64) -> String {
    match rows {
        1 => "1 row".into(),
        n => format!("{} rows", grouped(n)),
    }
}

/// `0.012 s`, `3.41 s`, `2 m 05 s`.
pub fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 1.0 => format!("{s:.3} s"),
        s if s < 60.0 => format!("{s:.2} s"),
        s if s < 3600.0 => format!("{} m {:02} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {:02} m", s as u64 / 3600, s as u64 % 3600 / 60),
    }
}

/// An instant as RFC 3339 in UTC, to the second; `None` outside the years that has a form for.
pub fn instant(time_us: i64) -> Option<String> {
    let time = jiff::Timestamp::from_microsecond(time_us).ok()?;
    Some(format!("{time:.0}"))
}

/// Columns that a line takes on a terminal. Escape codes that paint take none.
pub fn display_width(line: &str) -> usize {
    let mut parts = line.split('\u{1b}');
    let unpainted = parts.next().map_or(0, table::width);
    let painted = parts.map(|part| table::width(part.split_once('m').map_or(part, |(_, text)| text)));
    unpainted + painted.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, StringArray, StructArray,
        TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Field, Fields};

    use super::*;

    /// Every kind of column a result may have, with NULL, quotes, a line break and wide characters.
    fn sample() -> RecordBatch {
        let total: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(f64::NAN)]));
        let fields = Fields::from(vec![Field::new("total", DataType::Float64, true)]);
        let times = TimestampMicrosecondArray::from(vec![0, 1_357_034_400_000_000, -1]).with_timezone("UTC");
        RecordBatch::try_from_iter([
            ("at", Arc::new(times) as ArrayRef),
            ("name", Arc::new(StringArray::from(vec![Some("a,\"b\""), Some(""), None]))),
            ("city", Arc::new(StringArray::from(vec!["日本", "line\nbreak", "é"]))),
            ("n", Arc::new(Int64Array::from(vec![Some(7), None, Some(-1234)]))),
            ("ok", Arc::new(BooleanArray::from(vec![true, false, true]))),
            ("price", Arc::new(Decimal128Array::from(vec![125, -5, 0]).with_precision_and_scale(10, 2).unwrap())),
            ("payload", Arc::new(StructArray::new(fields, vec![total], None))),
        ])
        .unwrap()
    }

    fn text(format: Format, expanded: bool, arrival: Arrival, batches: &[RecordBatch], schema: &SchemaRef) -> String {
        let mut writer = row_writer(format, expanded, schema, arrival, Style::plain());
        let mut out = Vec::new();
        for batch in batches {
            writer.write(batch, &mut out).unwrap();
        }
        writer.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn complete(format: Format) -> String {
        let batch = sample();
        text(format, false, Arrival::Complete, std::slice::from_ref(&batch), &batch.schema())
    }

    #[test]
    fn table_aligns_numbers_right_and_shows_null() {
        insta::assert_snapshot!(complete(Format::Table), @r#"
        +-----------------------------+-------+-------------+-------+-------+-------+---------------+
        | at                          | name  | city        |     n | ok    | price | payload       |
        +-----------------------------+-------+-------------+-------+-------+-------+---------------+
        | 1970-01-01T00:00:00Z        | a,"b" | 日本        |     7 | true  |  1.25 | {total: 1.5}  |
        | 2013-01-01T10:00:00Z        |       | line\nbreak |  NULL | false | -0.05 | {total: NULL} |
        | 1969-12-31T23:59:59.999999Z | NULL  | é           | -1234 | true  |  0.00 | {total: NaN}  |
        +-----------------------------+-------+-------------+-------+-------+-------+---------------+
        "#);
    }

    #[test]
    fn csv_tells_null_from_empty() {
        insta::assert_snapshot!(complete(Format::Csv), @r#"
        at,name,city,n,ok,price,payload
        1970-01-01T00:00:00Z,"a,""b""",日本,7,true,1.25,"{""total"":1.5}"
        2013-01-01T10:00:00Z,"","line
        break",,false,-0.05,"{""total"":null}"
        1969-12-31T23:59:59.999999Z,,é,-1234,true,0.00,"{""total"":null}"
        "#);
    }

    #[test]
    fn csv_of_nulls_alone_is_empty() {
        let nulls: ArrayRef = Arc::new(arrow::array::NullArray::new(1));
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&nulls)), ("b", nulls)]).unwrap();
        let printed = text(Format::Csv, false, Arrival::Complete, std::slice::from_ref(&batch), &batch.schema());
        assert_eq!(printed, "a,b\n,\n");
    }

    #[test]
    fn json_is_one_array_and_ndjson_one_object_per_line() {
        insta::assert_snapshot!(complete(Format::Json), @r#"
        [{"at":"1970-01-01T00:00:00Z","name":"a,\"b\"","city":"日本","n":7,"ok":true,"price":1.25,"payload":{"total":1.5}},
         {"at":"2013-01-01T10:00:00Z","name":"","city":"line\nbreak","n":null,"ok":false,"price":-0.05,"payload":{"total":null}},
         {"at":"1969-12-31T23:59:59.999999Z","name":null,"city":"é","n":-1234,"ok":true,"price":0.00,"payload":{"total":null}}]
        "#);
        insta::assert_snapshot!(complete(Format::Ndjson), @r#"
        {"at":"1970-01-01T00:00:00Z","name":"a,\"b\"","city":"日本","n":7,"ok":true,"price":1.25,"payload":{"total":1.5}}
        {"at":"2013-01-01T10:00:00Z","name":"","city":"line\nbreak","n":null,"ok":false,"price":-0.05,"payload":{"total":null}}
        {"at":"1969-12-31T23:59:59.999999Z","name":null,"city":"é","n":-1234,"ok":true,"price":0.00,"payload":{"total":null}}
        "#);
        let parsed: serde_json::Value = serde_json::from_str(&complete(Format::Json)).unwrap();
        assert_eq!(parsed.as_array().unwrap().len(), 3);
    }

    #[test]
    fn expanded_is_a_block_per_row() {
        let batch = sample();
        insta::assert_snapshot!(text(Format::Table, true, Arrival::Complete, &[batch.slice(0, 2)], &batch.schema()), @r#"
        -[ row 1 ]-----------------
        at      | 1970-01-01T00:00:00Z
        name    | a,"b"
        city    | 日本
        n       | 7
        ok      | true
        price   | 1.25
        payload | {total: 1.5}
        -[ row 2 ]-----------------
        at      | 2013-01-01T10:00:00Z
        name    | 
        city    | line\nbreak
        n       | NULL
        ok      | false
        price   | -0.05
        payload | {total: NULL}
        "#);
    }

    #[test]
    fn an_answer_without_rows_still_has_its_header() {
        let schema = sample().project(&[1, 3]).unwrap().schema();
        let empty = |format| text(format, false, Arrival::Complete, &[], &schema);
        insta::assert_snapshot!(empty(Format::Table), @r#"
        +------+---+
        | name | n |
        +------+---+
        +------+---+
        "#);
        assert_eq!(empty(Format::Csv), "name,n\n");
        assert_eq!(empty(Format::Json), "[]\n");
        assert_eq!(empty(Format::Ndjson), "");
        assert_eq!(empty(Format::Null), "");
    }

    #[test]
    fn rows_of_a_stream_are_written_batch_by_batch() {
        let batch = sample().project(&[0, 3]).unwrap();
        let mut writer = row_writer(Format::Table, false, &batch.schema(), Arrival::Live, Style::plain());
        let mut out = Vec::new();
        let mut seen = 0;
        for i in 0..3 {
            writer.write(&batch.slice(i, 1), &mut out).unwrap();
            assert!(out.len() > seen, "batch {i} was held back");
            seen = out.len();
        }
        writer.finish(&mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
        +----------------------+----------+
        | at                   |        n |
        +----------------------+----------+
        | 1970-01-01T00:00:00Z |        7 |
        | 2013-01-01T10:00:00Z |     NULL |
        | 1969-12-31T23:59:59.999999Z |    -1234 |
        +-----------------------------+----------+
        "#);
    }

    #[test]
    fn batch_cuts_do_not_show() {
        let batch = sample();
        let rows: Vec<_> = (0..batch.num_rows()).map(|i| batch.slice(i, 1)).collect();
        for format in [Format::Table, Format::Csv, Format::Json, Format::Ndjson] {
            let whole = text(format, false, Arrival::Complete, std::slice::from_ref(&batch), &batch.schema());
            assert_eq!(text(format, false, Arrival::Complete, &rows, &batch.schema()), whole, "{format:?}");
        }
    }

    #[test]
    fn counts_and_times_read_well() {
        assert_eq!(row_count(1), "1 row");
        assert_eq!(row_count(336_776), "336,776 rows");
        assert_eq!(grouped(12), "12");
        assert_eq!(elapsed(Duration::from_millis(12)), "0.012 s");
        assert_eq!(elapsed(Duration::from_secs(125)), "2 m 05 s");
        assert_eq!(elapsed(Duration::from_secs(7325)), "2 h 02 m");
    }
}
