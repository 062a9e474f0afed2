//! Files of text, read whole, in pieces and while they grow.

use std::fs;
use std::io::Write;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use arrow::util::pretty::pretty_format_batches;
use proptest::prelude::*;

use super::*;
use crate::connectors::testing::{Drained, drain, inline_options};
use crate::connectors::{Notes, RejectReason, SplitEvent};

fn column(name: &str, data_type: DataType) -> ColumnDefinition {
    ColumnDefinition::new(name, data_type)
}

fn seconds() -> DataType {
    DataType::Timestamp(TimeUnit::Second, None)
}

fn source(path: &str, columns: &[ColumnDefinition], options: &[(&str, &str)]) -> Result<FileSource> {
    let mut all = super::super::Options::from([("connector".into(), "file".into()), ("path".into(), path.into())]);
    all.extend(options.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())));
    FileSource::try_new(&SourceDefinition::new("s", columns.to_vec(), all))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        files.iter().for_each(|(name, text)| folder.write(name, text.as_bytes()));
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.path().join(name), bytes).unwrap();
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.0.path().join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }
}

async fn read(source: &FileSource) -> Drained {
    let split = source.splits().await.unwrap().remove(0);
    drain(source, &split, None, inline_options(source)).await
}

async fn read_text(name: &str, text: &str, columns: &[ColumnDefinition], options: &[(&str, &str)]) -> Drained {
    let folder = Folder::with(&[(name, text)]);
    read(&source(&folder.at(name), columns, options).unwrap()).await
}

fn integers(rows: &RecordBatch, at: usize) -> Vec<Option<i64>> {
    rows.column(at).as_primitive::<Int64Type>().iter().collect()
}

fn instants(rows: &RecordBatch, at: usize) -> Vec<Option<i64>> {
    rows.column(at).as_primitive::<TimestampMicrosecondType>().iter().collect()
}

fn table(rows: &RecordBatch) -> String {
    pretty_format_batches(std::slice::from_ref(rows)).unwrap().to_string()
}

fn reasons(drained: &Drained) -> Vec<(i64, RejectReason, &str)> {
    drained.rejects.iter().map(|r| (r.offset, r.reason, r.place.as_str())).collect()
}

#[tokio::test]
async fn c81_a_malformed_line_in_the_middle_is_one_reject() {
    let columns = [column("ts", seconds())];
    let text = "{\"ts\":1}\n{\"ts\":1,\n{\"ts\":2}\n";
    let read = read_text("x.jsonl", text, &columns, &[]).await;
    assert_eq!(instants(&read.rows(), 0), [Some(1_000_000), Some(2_000_000)]);
    assert_eq!(read.offsets, [0, 2]);
    assert_eq!(reasons(&read), [(1, RejectReason::Malformed, "x.jsonl:2")]);
    assert_eq!(read.rejects[0].raw, "{\"ts\":1,");
}

#[tokio::test]
async fn c81_bad_rows_are_isolated_and_the_good_ones_keep_their_offsets() {
    let mut text = String::new();
    for i in 0..5000 {
        match i % 97 {
            13 => text += "not json\n",
            51 => text += &format!("{{\"v\":\"x{i}\"}}\n"),
            _ => text += &format!("{{\"v\":{i}}}\n"),
        }
    }
    let read = read_text("x.json", &text, &[column("v", DataType::Int64)], &[]).await;
    let good: Vec<i64> = (0..5000).filter(|i| i % 97 != 13 && i % 97 != 51).collect();
    assert_eq!(read.offsets, good);
    assert_eq!(integers(&read.rows(), 0), good.iter().map(|v| Some(*v)).collect::<Vec<_>>());
    assert_eq!(read.rejects.len(), 5000 - good.len());
    for reject in &read.rejects {
        assert_eq!(reject.place, format!("x.json:{}", reject.offset + 1));
        let expected = if reject.offset % 97 == 13 { RejectReason::Malformed } else { RejectReason::Type };
        assert_eq!(reject.reason, expected);
    }
}

#[tokio::test]
async fn c78_big_json_integers_are_exact_or_rejected() {
    let text = "{\"v\":9007199254740993}\n{\"v\":30886023086020860230}\n{\"v\":9007199254740993.0}\n{\"v\":2.5}\n\
                {\"v\":-9223372036854775808}\n{\"v\":9223372036854775808}\n";
    let bigint = read_text("x.json", text, &[column("v", DataType::Int64)], &[]).await;
    let exact = Some(9_007_199_254_740_993);
    assert_eq!(integers(&bigint.rows(), 0), [exact, exact, Some(i64::MIN)]);
    let expected = [(1, RejectReason::Range), (3, RejectReason::Type), (5, RejectReason::Range)];
    assert_eq!(bigint.rejects.iter().map(|r| (r.offset, r.reason)).collect::<Vec<_>>(), expected);

    let only_big = "{\"v\":1}\n{\"v\":30886023086020860230}\n";
    let bigint = read_text("x.json", only_big, &[column("v", DataType::Int64)], &[]).await;
    assert_eq!(reasons(&bigint), [(1, RejectReason::Range, "x.json:2")]);

    let decimal = read_text("x.json", only_big, &[column("v", DataType::Decimal128(38, 0))], &[]).await;
    assert!(table(&decimal.rows()).contains("| 30886023086020860230 |"));
}

#[tokio::test]
async fn c82_extra_fields_are_counted_and_missing_ones_are_null() {
    let folder = Folder::with(&[
        ("1.json", "{\"ts\":1,\"v\":7}\n{\"ts\":2}\n"),
        ("2.json", "{\"ts\":3,\"v\":2.5,\"region\":\"eu\"}\n"),
    ]);
    let columns = [column("ts", seconds()), column("v", DataType::Float64)];
    let read = read(&source(&folder.at(""), &columns, &[]).unwrap()).await;
    let v: Vec<_> = read.rows().column(1).as_primitive::<Float64Type>().iter().collect();
    assert_eq!(v, [Some(7.0), None, Some(2.5)]);
    assert_eq!(read.notes.ignored_fields, 1);
    assert!(read.rejects.is_empty());
}

#[tokio::test]
async fn c79_keys_keep_their_bytes() {
    let text = "{\"k\":\"caf\u{e9}\"}\n{\"k\":\"cafe\u{301}\"}\n{\"k\":\"caf\\u00e9\"}\n{\"k\":\"\u{1f980}\"}\n{\"k\":\"\"}\n{\"k\":\"a\\nb\"}\n";
    for data_type in [DataType::Utf8, DataType::Utf8View] {
        let read = read_text("x.json", text, &[column("k", data_type)], &[]).await;
        let rows = arrow::compute::cast(read.rows().column(0), &DataType::Utf8).unwrap();
        let keys: Vec<_> = rows.as_string::<i32>().iter().map(Option::unwrap).collect();
        assert_eq!(keys, ["caf\u{e9}", "cafe\u{301}", "caf\u{e9}", "\u{1f980}", "", "a\nb"]);
    }
}

#[tokio::test]
async fn c75_times_out_of_range_are_rejected_and_the_rest_kept() {
    let text = "{\"t\":\"9999-12-31 00:00:00\"}\n{\"t\":\"0001-01-01\"}\n{\"t\":\"2262-04-12\"}\n{\"t\":9223372036854775807}\n\
                {\"t\":\"soon\"}\n{\"t\":1700000000}\n{\"t\":null}\n{\"t\":true}\n";
    let read = read_text("x.json", text, &[column("t", seconds())], &[]).await;
    let day = 86_400_000_000;
    let expected =
        [Some(2_932_896 * day), Some(-719_162 * day), Some(106_752 * day), Some(1_700_000_000_000_000), None];
    assert_eq!(instants(&read.rows(), 0), expected);
    let reasons: Vec<_> = read.rejects.iter().map(|r| (r.offset, r.reason)).collect();
    assert_eq!(reasons, [(3, RejectReason::Range), (4, RejectReason::Type), (7, RejectReason::Type)]);
}

#[tokio::test]
async fn integers_are_read_in_the_declared_unit_and_texts_in_the_source_zone() {
    let text = "{\"t\":1700000000123,\"local\":\"2024-07-01 12:00:00\"}\n";
    let folder = Folder::with(&[("x.json", text)]);
    for (unit, us) in [
        (TimeUnit::Millisecond, 1_700_000_000_123_000),
        (TimeUnit::Microsecond, 1_700_000_000_123),
        (TimeUnit::Nanosecond, 1_700_000_000),
    ] {
        let columns = vec![column("t", DataType::Timestamp(unit, None)), column("local", seconds())];
        let options =
            [("connector", "file"), ("path", &folder.at("x.json"))].map(|(k, v)| (k.to_string(), v.to_string())).into();
        let definition =
            SourceDefinition::new("s", columns, options).with_zone(TimeZone::get("Europe/Berlin").unwrap());
        let rows = read(&FileSource::try_new(&definition).unwrap()).await.rows();
        assert_eq!(instants(&rows, 0), [Some(us)]);
        assert_eq!(instants(&rows, 1), [Some(1_719_828_000_000_000)]);
        assert_eq!(rows.column(0).data_type(), &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    }
}

#[tokio::test]
async fn nested_json_is_read_whatever_the_case_of_its_names() {
    let inner = DataType::Struct(
        vec![Field::new("total", DataType::Decimal128(10, 2), true), Field::new("at", seconds(), true)].into(),
    );
    let list = DataType::List(Field::new("item", seconds(), true).into());
    let entries = DataType::Struct(
        vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int64, true)].into(),
    );
    let map = DataType::Map(Field::new("entries", entries, false).into(), false);
    let columns = [column("payload", inner), column("times", list), column("tags", map)];
    let text = concat!(
        r#"{"Payload":{"TOTAL":12.35,"At":7},"times":[1,"1970-01-01 00:00:02"],"tags":{"A":1,"b":2}}"#,
        "\n",
        r#"{"payload":{"total":"x"},"times":[]}"#,
        "\n",
        r#"{"payload":null,"times":[99999999999999999],"x":1}"#,
        "\n",
        r#"{"payload":{}}"#,
        "\n",
    );
    let read = read_text("x.json", text, &columns, &[]).await;
    let expected = "\
+--------------------------------------------+----------------------------------------------+--------------+
| payload                                    | times                                        | tags         |
+--------------------------------------------+----------------------------------------------+--------------+
| {total: 12.35, at: 1970-01-01T00:00:07Z}   | [1970-01-01T00:00:01Z, 1970-01-01T00:00:02Z] | {A: 1, b: 2} |
| {total: , at: }                            |                                              |              |
+--------------------------------------------+----------------------------------------------+--------------+";
    let squeeze = |s: &str| s.replace(['-', ' '], "");
    assert_eq!(squeeze(&table(&read.rows())), squeeze(expected));
    assert_eq!(reasons(&read), [(1, RejectReason::Type, "x.json:2"), (2, RejectReason::Range, "x.json:3")]);
}

#[tokio::test]
async fn numbers_too_large_for_double_are_out_of_range() {
    let text = "{\"v\":1e400}\n{\"v\":\"Infinity\"}\n{\"v\":1e300}\n{\"v\":\"NaN\"}\n";
    let read = read_text("x.json", text, &[column("v", DataType::Float64)], &[]).await;
    assert_eq!(reasons(&read), [(0, RejectReason::Range, "x.json:1")]);
    assert_eq!(read.offsets, [1, 2, 3]);
}

#[tokio::test]
async fn not_null_rejects_rows_without_a_value() {
    let columns = [column("v", DataType::Int64).with_not_null()];
    let read = read_text("x.json", "{\"v\":1}\n{}\n{\"v\":null}\n", &columns, &[]).await;
    assert_eq!(read.offsets, [0]);
    assert_eq!(read.rejects.len(), 2);
    assert!(!read.rows().schema().field(0).is_nullable());
}

#[tokio::test]
async fn c86_files_are_read_in_name_order_whatever_the_listing() {
    let folder = Folder::new();
    for hour in [12, 10, 11] {
        folder.write(&format!("{hour}.json"), format!("{{\"v\":{hour}}}").as_bytes());
    }
    let one = source(&folder.at(""), &[column("v", DataType::Int64)], &[]).unwrap();
    assert_eq!(integers(&read(&one).await.rows(), 0), [Some(10), Some(11), Some(12)]);
    let each = source(&folder.at("*.json"), &[column("v", DataType::Int64)], &[("split", "file")]).unwrap();
    let splits = each.splits().await.unwrap();
    assert_eq!(splits.iter().map(|s| &*s.name).collect::<Vec<_>>(), ["10.json", "11.json", "12.json"]);
    let last = drain(&each, &splits[2], None, inline_options(&each)).await;
    assert_eq!(integers(&last.rows(), 0), [Some(12)]);
}

#[tokio::test]
async fn t6_what_was_pinned_is_read_again_whatever_came_since() {
    let folder = Folder::with(&[("b.json", "{\"v\":1}\n{\"v\":2}\n"), ("d.json", "{\"v\":3}\n")]);
    let listed = || source(&folder.at("*.json"), &[column("v", DataType::Int64)], &[]).unwrap();
    let coverage = listed().pinned().await.unwrap().unwrap().coverage;
    for name in ["a.json", "c.json", "e.json"] {
        folder.write(name, b"{\"v\":9}\n");
    }
    folder.append("d.json", "{\"v\":9}\n");
    let again = listed().covering(&coverage).unwrap().unwrap();
    let split = again.splits().await.unwrap().remove(0);
    let drained = drain(&*again, &split, None, inline_options(&*again)).await;
    assert_eq!(integers(&drained.rows(), 0), [Some(1), Some(2), Some(3)]);

    folder.write("d.json", b"{}\n");
    let mut reader = again.open(&split, drained.positions.first(), inline_options(&*again)).await.unwrap();
    let error = loop {
        match reader.next().await {
            Ok(SplitEvent::End) => panic!("the file is shorter than it was"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("d.json"), "{error}");
}

#[tokio::test]
async fn c60_a_bounded_file_ends_and_takes_its_last_line_without_line_end() {
    let read =
        read_text("x.json", "\u{feff}{\"v\":1}\r\n\r\n\n{\"v\":12}\n{\"v\":23}", &[column("v", DataType::Int64)], &[])
            .await;
    assert_eq!(integers(&read.rows(), 0), [Some(1), Some(12), Some(23)]);
    assert_eq!(read.offsets, [0, 1, 2]);
}

#[tokio::test]
async fn metadata_columns_tell_file_offset_and_split() {
    let folder = Folder::with(&[("a.json", "{\"v\":1}\nx\n{\"v\":2}\n"), ("b.json", "{\"v\":3}\n")]);
    let columns = [
        column("name", DataType::Utf8).with_metadata("file"),
        column("v", DataType::Int64),
        column("at", DataType::Int64).with_metadata("offset"),
        column("of", DataType::Utf8View).with_metadata("split"),
    ];
    let source = source(&folder.at("*.json"), &columns, &[]).unwrap();
    let expected = "\
+--------+---+----+--------+
| name   | v | at | of     |
+--------+---+----+--------+
| a.json | 1 | 0  | *.json |
| a.json | 2 | 2  | *.json |
| b.json | 3 | 3  | *.json |
+--------+---+----+--------+";
    assert_eq!(table(&read(&source).await.rows()), expected);
}

#[tokio::test]
async fn a_row_is_refused_for_a_column_that_nobody_asked_for() {
    for (name, text) in [("x.json", "{\"v\":1}\nbad\n{\"v\":\"x\"}\n"), ("x.csv", "v\n1\n2,3\nx\n")] {
        let folder = Folder::with(&[(name, text)]);
        let source = source(&folder.at(name), &[column("v", DataType::Int64)], &[]).unwrap();
        let split = source.splits().await.unwrap().remove(0);
        let mut options = inline_options(&source);
        options.projection = vec![];
        let read = drain(&source, &split, None, options).await;
        assert_eq!(read.offsets, [0]);
        assert_eq!(reasons(&read).len(), 2);
    }
}

#[tokio::test]
async fn text_that_is_not_utf8_is_malformed() {
    let folder = Folder::new();
    folder.write("x.json", b"{\"v\":\"a\"}\n{\"v\":\"\xff\"}\n");
    folder.write("x.csv", b"v\na\n\xff\n");
    for name in ["x.json", "x.csv"] {
        let read = read(&source(&folder.at(name), &[column("v", DataType::Utf8)], &[]).unwrap()).await;
        assert_eq!(read.offsets, [0]);
        assert_eq!(read.rejects[0].reason, RejectReason::Malformed);
    }
}

#[tokio::test]
async fn wrong_definitions_are_refused_with_a_hint() {
    let v = [column("v", DataType::Int64)];
    assert_eq!(source("/nowhere/x.json", &v, &[("formt", "json")]).unwrap_err().hint(), Some("did you mean 'format'?"));
    assert_eq!(source("/nowhere/x", &v, &[]).unwrap_err().message(), "cannot tell the format of path='/nowhere/x'");
    let metadata = [column("v", DataType::Int64), column("f", DataType::Utf8).with_metadata("fil")];
    assert_eq!(source("/nowhere/x.json", &metadata, &[]).unwrap_err().hint(), Some("did you mean 'file'?"));
    let nested = [column("v", DataType::List(Field::new("item", DataType::Int64, true).into()))];
    assert!(source("/nowhere/x.csv", &nested, &[]).is_err());
    let missing = source("/nowhere/x.json", &v, &[]).unwrap();
    let message = |error: crate::Error| error.message().to_owned();
    assert_eq!(message(missing.splits().await.unwrap_err()), "no file matches path='/nowhere/x.json'");
    let split = Split { name: "x.json".into() };
    let error = missing.open(&split, None, inline_options(&missing)).await.err().unwrap();
    assert_eq!(message(error), "no file matches path='/nowhere/x.json'");
}

fn csv_columns() -> [ColumnDefinition; 3] {
    [column("ts", seconds()), column("name", DataType::Utf8), column("price", DataType::Decimal128(10, 2))]
}

#[tokio::test]
async fn csv_columns_are_found_by_header() {
    let text = "Price,extra,NAME,ts\r\n1.5,x,\"a, \"\"b\"\"\nc\",1\r\n\r\n,y,,1970-01-01 00:00:02\r\n";
    let read = read_text("x.csv", text, &csv_columns(), &[]).await;
    assert_eq!(instants(&read.rows(), 0), [Some(1_000_000), Some(2_000_000)]);
    let names: Vec<_> = read.rows().column(1).as_string::<i32>().iter().map(|n| n.map(str::to_string)).collect();
    assert_eq!(names, [Some("a, \"b\"\nc".to_string()), None]);
    assert_eq!(read.rows().column(2).null_count(), 1);
    assert_eq!(read.notes.ignored_fields, 2);
}

#[tokio::test]
async fn csv_rows_that_do_not_fit_are_rejected_one_by_one() {
    let text = "ts,name,price\n1,a,1\n2,b\n3,c,3,3\nx,d,4\n5,e,much\n6,f,123456789.00\n7,g,7\n";
    let read = read_text("x.csv", text, &csv_columns(), &[]).await;
    assert_eq!(read.offsets, [0, 6]);
    let expected = [
        (1, RejectReason::Malformed, "x.csv:3"),
        (2, RejectReason::Malformed, "x.csv:4"),
        (3, RejectReason::Type, "x.csv:5"),
        (4, RejectReason::Type, "x.csv:6"),
        (5, RejectReason::Range, "x.csv:7"),
    ];
    assert_eq!(reasons(&read), expected);
    assert_eq!(read.rejects[1].raw, "3,c,3,3");
}

#[tokio::test]
async fn csv_dialects() {
    let text = "# a comment, with \"one quote\n1|'it''s; |'|\\N\n# more\n2|b|2\n";
    let options =
        [("header", "false"), ("csv.field-delimiter", "|"), ("quote", "'"), ("comment", "#"), ("null", "\\N")];
    let read = read_text("x.csv", text, &csv_columns(), &options).await;
    let expected = "\
+----------------------+---------+-------+
| ts                   | name    | price |
+----------------------+---------+-------+
| 1970-01-01T00:00:01Z | it's; | |       |
| 1970-01-01T00:00:02Z | b       | 2.00  |
+----------------------+---------+-------+";
    assert_eq!(table(&read.rows()), expected);
}

#[tokio::test]
async fn c71_a_quoted_empty_text_is_no_null() {
    let text = "name,ts,price\n\"\",1,\"\"\n,2,\n\"a,\"\"\n\",3,3\n\"\",\"4\",4\nx,5,5\n";
    let read = read_text("x.csv", text, &csv_columns(), &[]).await;
    let names: Vec<_> = read.rows().column(1).as_string::<i32>().iter().map(|n| n.map(str::to_string)).collect();
    let some = |text: &str| Some(text.to_string());
    assert_eq!(names, [some(""), None, some("a,\"\n"), some(""), some("x")]);
    assert_eq!(read.rows().column(2).null_count(), 2, "a price that is empty is NULL, quoted or not");
    let text = "1,\"x,\"\"\",1\n2,\\N,2\n3,\"\\N\",3\n4,,4\n5,\"\",5\n";
    let options = [("header", "false"), ("null", "\\N")];
    let read = read_text("x.csv", text, &csv_columns(), &options).await;
    let names: Vec<_> = read.rows().column(1).as_string::<i32>().iter().map(|n| n.map(str::to_string)).collect();
    assert_eq!(names, [some("x,\""), None, some("\\N"), some(""), some("")]);
}

#[tokio::test]
async fn csv_a_quote_that_never_closes_costs_one_line() {
    let text = "ts,name,price\n1,a,1\n2,\"b,2\n3,c,3\n4,d,4\n";
    let read = read_text("x.csv", text, &csv_columns(), &[]).await;
    assert_eq!(read.offsets, [0, 2, 3]);
    assert_eq!(reasons(&read), [(1, RejectReason::Malformed, "x.csv:3")]);
    assert_eq!(read.rejects[0].raw, "2,\"b,2");
}

#[tokio::test]
async fn a_line_too_long_is_one_reject() {
    let long = "x".repeat(3 << 20);
    let text = format!("{{\"v\":1}}\n{{\"w\":\"{long}\",\"v\":2}}\n{{\"v\":3}}\n");
    let read = read_text("x.json", &text, &[column("v", DataType::Int64)], &[("max_row_bytes", "1000")]).await;
    assert_eq!(read.offsets, [0, 2]);
    assert_eq!(read.rejects[0].place, "x.json:2");
}

#[tokio::test]
async fn a_row_may_be_as_long_as_the_limit_and_not_a_byte_longer() {
    let line = |n: usize| format!("{{\"v\":{}}}", "7".repeat(n));
    let text = format!("{}\n{}\n{}\r\n{}", line(3), line(4), line(3), line(4));
    let limit = [("max_row_bytes", &*line(3).len().to_string())];
    let read = read_text("x.json", &text, &[column("v", DataType::Int64)], &limit).await;
    assert_eq!(read.offsets, [0, 2]);
    let too_long: Vec<_> = read.rejects.iter().map(|reject| (&*reject.place, &*reject.raw)).collect();
    assert_eq!(too_long, [("x.json:2", "{\"v\":7777"), ("x.json:4", "{\"v\":7777")]);
    let quoted = "ts,name,price\n1,\"a\nb\",1\n2,\"a\nbcd\",2\n";
    let read = read_text("x.csv", quoted, &csv_columns(), &[("max_row_bytes", "11")]).await;
    assert_eq!(read.offsets, [0, 1], "header and the record of two lines fit: {:?}", read.rejects);
    let read = read_text("x.csv", quoted, &csv_columns(), &[("max_row_bytes", "10")]).await;
    assert_eq!(read.offsets, [0]);
    assert_eq!(reasons(&read)[0], (1, RejectReason::Malformed, "x.csv:4"));
}

#[tokio::test]
async fn compressed_files_read_alike() {
    use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
    use tokio::io::AsyncWriteExt;
    let folder = Folder::new();
    let text: String = (0..100_000).map(|i| format!("{{\"v\":{i}}}\n")).collect();
    let mut gzip = GzipEncoder::new(Vec::new());
    gzip.write_all(text.as_bytes()).await.unwrap();
    gzip.shutdown().await.unwrap();
    let mut zstd = ZstdEncoder::new(Vec::new());
    zstd.write_all(text.as_bytes()).await.unwrap();
    zstd.shutdown().await.unwrap();
    folder.write("x.jsonl.gz", &gzip.into_inner());
    folder.write("y.jsonl.zst", &zstd.into_inner());
    for name in ["x.jsonl.gz", "y.jsonl.zst"] {
        let source = source(&folder.at(name), &[column("v", DataType::Int64)], &[]).unwrap();
        let all = read(&source).await;
        assert_eq!(all.offsets, (0..100_000).collect::<Vec<_>>());
        let split = source.splits().await.unwrap().remove(0);
        let from = &all.positions[all.positions.len() / 2];
        let rest = drain(&source, &split, Some(from), inline_options(&source)).await;
        assert_eq!(rest.offsets, (from.offset..100_000).collect::<Vec<_>>());
    }
    let whole = fs::read(folder.at("x.jsonl.gz")).unwrap();
    folder.write("cut.jsonl.gz", &whole[..whole.len() / 2]);
    let source = source(&folder.at("cut.jsonl.gz"), &[column("v", DataType::Int64)], &[]).unwrap();
    let split = source.splits().await.unwrap().remove(0);
    let mut reader = source.open(&split, None, inline_options(&source)).await.unwrap();
    let error = loop {
        match reader.next().await {
            Ok(SplitEvent::Rows(_)) => {}
            Ok(other) => panic!("the damage went unnoticed: {other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), crate::ErrorKind::Data);
}

const FOLLOW: &[(&str, &str)] = &[("follow", "true"), ("poll_interval", "1 ms"), ("settle", "3 ms")];

/// Reads until `rows` rows or rejects have come.
async fn follow(reader: &mut dyn SplitReader, rows: usize) -> Drained {
    let mut drained = Drained::default();
    while drained.offsets.len() + drained.rejects.len() < rows {
        match reader.next().await.unwrap() {
            SplitEvent::Rows(batch) => drained.add(batch),
            SplitEvent::Notes(notes) => drained.notes += notes,
            SplitEvent::Nothing => {}
            other => panic!("a followed source does not end: {other:?}"),
        }
    }
    drained
}

async fn open(source: &FileSource, from: Option<&Position>) -> Box<dyn SplitReader> {
    let split = source.splits().await.unwrap().remove(0);
    source.open(&split, from, inline_options(source)).await.unwrap()
}

#[tokio::test]
async fn c84_half_a_line_at_the_tail_is_held_until_it_is_whole() {
    let folder = Folder::with(&[("x.json", "{\"v\":1}\n{\"ts\":1,\"v\"")]);
    let source = source(&folder.at("x.json"), &[column("v", DataType::Int64)], FOLLOW).unwrap();
    let mut reader = open(&source, None).await;
    assert_eq!(follow(reader.as_mut(), 1).await.offsets, [0]);
    for _ in 0..10 {
        assert!(matches!(reader.next().await.unwrap(), SplitEvent::Nothing));
    }
    folder.append("x.json", ":5}\n");
    let rest = follow(reader.as_mut(), 1).await;
    assert_eq!(integers(&rest.rows(), 0), [Some(5)]);
    assert!(rest.rejects.is_empty());
}

#[tokio::test]
async fn followed_folders_go_on_with_the_next_file_and_take_the_last_line() {
    let folder = Folder::with(&[("1.json", "{\"v\":1}\n{\"v\":2}")]);
    let source =
        source(&folder.at(""), &[column("v", DataType::Int64)], &[FOLLOW, &[("format", "json")]].concat()).unwrap();
    let mut reader = open(&source, None).await;
    follow(reader.as_mut(), 1).await;
    folder.write("2.json", b"{\"v\":3}\n");
    let rest = follow(reader.as_mut(), 2).await;
    assert_eq!(integers(&rest.rows(), 0), [Some(2), Some(3)]);
    folder.write("0.json", b"{\"v\":0}\n");
    folder.write("3.json", b"{\"v\":4}\n");
    let rest = follow(reader.as_mut(), 1).await;
    assert_eq!(integers(&rest.rows(), 0), [Some(4)]);
    assert_eq!(rest.notes.skipped_files, 1);
    let again = open(&source, rest.positions.last()).await.next().await.unwrap();
    assert!(matches!(again, SplitEvent::Nothing), "a resumed reader repeats nothing");
}

#[tokio::test]
async fn rotation_finishes_the_old_file_first() {
    let folder = Folder::with(&[("app.log", "{\"v\":1}\n")]);
    let options = [FOLLOW, &[("format", "json")]].concat();
    let source = source(&folder.at("app.log"), &[column("v", DataType::Int64)], &options).unwrap();
    let mut reader = open(&source, None).await;
    let first = follow(reader.as_mut(), 1).await;
    fs::rename(folder.at("app.log"), folder.at("app.log.1")).unwrap();
    folder.append("app.log.1", "{\"v\":2}\n");
    folder.write("app.log", b"{\"v\":3}\n");
    let rest = follow(reader.as_mut(), 2).await;
    assert_eq!(integers(&rest.rows(), 0), [Some(2), Some(3)]);
    assert_eq!(rest.notes.rotated_files, 1);
    let mut resumed = open(&source, first.positions.last()).await;
    let rest = follow(resumed.as_mut(), 2).await;
    assert_eq!((integers(&rest.rows(), 0), rest.offsets), (vec![Some(2), Some(3)], vec![1, 2]));
}

/// What is noted while `reader` is asked a few times and has no row.
async fn noted(reader: &mut dyn SplitReader) -> Notes {
    let mut all = Notes::default();
    for _ in 0..10 {
        match reader.next().await.unwrap() {
            SplitEvent::Notes(notes) => all += notes,
            SplitEvent::Nothing => {}
            other => panic!("there is no row to read: {other:?}"),
        }
    }
    all
}

fn skipped(files: u64) -> Notes {
    Notes { skipped_files: files, ..Notes::default() }
}

#[tokio::test]
async fn files_that_come_behind_the_place_reached_are_told_of_though_no_row_follows() {
    let folder = Folder::with(&[("a.json", "{\"v\":1}\n"), ("b.json", "{\"v\":2}\n")]);
    let source = source(&folder.at("*.json"), &[column("v", DataType::Int64)], FOLLOW).unwrap();
    let mut reader = open(&source, None).await;
    let read = follow(reader.as_mut(), 2).await;
    assert_eq!(noted(reader.as_mut()).await, Notes::default());
    fs::rename(folder.at("a.json"), folder.at("a.old")).unwrap();
    folder.write("a.json", b"{\"v\":3}\n");
    assert_eq!(noted(reader.as_mut()).await, skipped(1), "rotated, once");
    folder.write("0.json", b"{\"v\":4}\n");
    assert_eq!(noted(reader.as_mut()).await, skipped(1), "another one");
    let mut resumed = open(&source, read.positions.last()).await;
    assert_eq!(noted(resumed.as_mut()).await, skipped(2), "both came after the position");
}

#[tokio::test]
async fn a_finished_file_that_grows_is_told_of_once() {
    let folder = Folder::with(&[("a.json", "{\"v\":1}\n"), ("b.json", "{\"v\":2}\n")]);
    let source = source(&folder.at("*.json"), &[column("v", DataType::Int64)], FOLLOW).unwrap();
    let mut reader = open(&source, None).await;
    let read = follow(reader.as_mut(), 2).await;
    let mut resumed = open(&source, read.positions.last()).await;
    assert_eq!(noted(resumed.as_mut()).await, Notes::default(), "nothing has changed");
    folder.append("a.json", "{\"v\":3}\n");
    assert_eq!(noted(reader.as_mut()).await, skipped(1));
    folder.append("a.json", "{\"v\":4}\n");
    assert_eq!(noted(reader.as_mut()).await, Notes::default());
    assert_eq!(noted(resumed.as_mut()).await, skipped(1));
    folder.append("b.json", "{\"v\":5}\n");
    assert_eq!(integers(&follow(reader.as_mut(), 1).await.rows(), 0), [Some(5)]);
}

#[tokio::test]
async fn truncation_starts_over_and_offsets_go_on() {
    let folder = Folder::with(&[("x.json", "{\"v\":1}\n{\"v\":2}\n")]);
    let source = source(&folder.at("x.json"), &[column("v", DataType::Int64)], FOLLOW).unwrap();
    let mut reader = open(&source, None).await;
    follow(reader.as_mut(), 2).await;
    folder.write("x.json", b"{\"v\":9}\n");
    let rest = follow(reader.as_mut(), 1).await;
    assert_eq!((integers(&rest.rows(), 0), rest.offsets.as_slice()), (vec![Some(9)], [2].as_slice()));
    assert_eq!(rest.notes.truncated_files, 1);
}

/// What any cut of the same bytes must agree on.
#[allow(clippy::type_complexity)] // three lists, compared as they are
fn facts(drained: &Drained) -> (Vec<i64>, Vec<Option<i64>>, Vec<(i64, RejectReason, String, String)>) {
    let values = drained.batches.iter().flat_map(|b| integers(b, 0)).collect();
    let rejects = drained.rejects.iter().map(|r| (r.offset, r.reason, r.place.clone(), r.raw.clone())).collect();
    (drained.offsets.clone(), values, rejects)
}

async fn read_from_every_position(path: &Path, batch_rows: usize) {
    let source = source(&path.to_string_lossy(), &[column("v", DataType::Int64)], &[]).unwrap();
    let split = source.splits().await.unwrap().remove(0);
    let mut options = inline_options(&source);
    options.batch_rows = batch_rows;
    let all = drain(&source, &split, None, options.clone()).await;
    for from in &all.positions {
        let rest = drain(&source, &split, Some(from), options.clone()).await;
        let expected = all.offsets.iter().copied().filter(|o| *o >= from.offset).collect::<Vec<_>>();
        assert_eq!(rest.offsets, expected);
        let rejects = all.rejects.iter().filter(|r| r.offset >= from.offset).cloned().collect::<Vec<_>>();
        assert_eq!(rest.rejects, rejects);
    }
}

#[tokio::test]
async fn reading_goes_on_from_any_position() {
    let folder = Folder::with(&[("x.json", "{\"v\":1}\nbad\n\n{\"v\":2}\nworse\n{\"v\":3}\n{\"v\":4}")]);
    for batch_rows in 1..6 {
        read_from_every_position(Path::new(&folder.at("x.json")), batch_rows).await;
    }
    folder.write("x.csv", b"v,w\n1,a\n2\n3,\"c\nc\"\n\n4,d");
    for batch_rows in 1..6 {
        read_from_every_position(Path::new(&folder.at("x.csv")), batch_rows).await;
    }
}

fn lines() -> impl Strategy<Value = Vec<&'static str>> {
    let line = prop::sample::select(vec![
        "{\"v\":1}",
        "{\"V\":2,\"extra\":[1,{\"v\":3}]}",
        "{\"v\":\"x\\\"}\"}",
        "{\"v\":",
        "",
        "  ",
        "{\"v\":3.0}",
        "{\"v\":1}{\"v\":2}",
        "\u{e9}",
        "{\"v\":null,\"t\":\"\u{1f980}\"}\r",
    ]);
    prop::collection::vec(line, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Catches rows lost, doubled or torn where the bytes of a file arrive in pieces.
    #[test]
    fn any_cut_of_a_file_yields_the_same_rows(
        lines in lines(),
        ends in any::<bool>(),
        cuts in prop::collection::vec(0usize..600, 0..6),
    ) {
        let mut text = lines.join("\n");
        if ends { text.push('\n'); }
        let bytes = text.into_bytes();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            folder.write("x.json", &bytes);
            let v = [column("v", DataType::Int64)];
            let whole = read(&source(&folder.at("x.json"), &v, &[]).unwrap()).await;

            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).chain([bytes.len()]).collect();
            cuts.sort_unstable();
            folder.write("y.json", &bytes[..cuts[0]]);
            let followed = source(&folder.at("[y-z].json"), &v, &[("follow", "true"), ("poll_interval", "1 ms"), ("settle", "0 ms")]).unwrap();
            let mut reader = open(&followed, None).await;
            let mut pieces = Drained::default();
            for pair in cuts.windows(2) {
                while let SplitEvent::Rows(batch) = reader.next().await.unwrap() { pieces.add(batch); }
                let mut file = fs::OpenOptions::new().append(true).open(folder.at("y.json")).unwrap();
                file.write_all(&bytes[pair[0]..pair[1]]).unwrap();
            }
            folder.write("z.json", b"{\"v\":77}\n");
            let last = loop {
                if let SplitEvent::Rows(batch) = reader.next().await.unwrap() { pieces.add(batch); }
                if let Some(77) = pieces.batches.last().and_then(|b| integers(b, 0).last().copied().flatten()) {
                    break pieces.offsets.pop().unwrap();
                }
            };
            let (offsets, mut values, mut rejects) = facts(&pieces);
            assert_eq!(values.pop(), Some(Some(77)));
            rejects.iter_mut().for_each(|r| r.2 = r.2.replace("y.json", "x.json"));
            assert_eq!((offsets, values, rejects), facts(&whole));
            let records = (whole.offsets.len() + whole.rejects.len()) as i64;
            assert_eq!(last, records);
        });
    }
}
