//! Parquet and Arrow files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow::datatypes::{DataType, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::*;
use crate::connectors::testing::{drain, inline_options};
use crate::connectors::{RejectReason, Source};

fn write_parquet(path: &Path, batch: &RecordBatch, group_rows: usize) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn write_file(path: &Path, batches: &[RecordBatch]) {
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

fn write_stream(path: &Path, batches: &[RecordBatch]) {
    let mut writer = StreamWriter::try_new(File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

fn source(path: &Path, columns: Vec<ColumnDefinition>, zone: &str) -> FileSource {
    let options = [("connector", "file"), ("path", &*path.to_string_lossy())];
    let options = options.map(|(k, v)| (k.to_string(), v.to_string())).into();
    let definition = SourceDefinition::new("s", columns, options).with_zone(TimeZone::get(zone).unwrap());
    FileSource::try_new(&definition).unwrap()
}

fn column(name: &str, data_type: DataType) -> ColumnDefinition {
    ColumnDefinition::new(name, data_type)
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn numbers(rows: i64) -> RecordBatch {
    let keys: DictionaryArray<Int32Type> = (0..rows).map(|v| if v % 3 == 0 { "x" } else { "y" }).collect();
    batch(vec![("V", Arc::new(Int64Array::from_iter_values(0..rows))), ("k", Arc::new(keys))])
}

#[tokio::test]
async fn row_groups_and_batches_come_in_order_from_any_position() {
    let dir = tempfile::tempdir().unwrap();
    let rows = numbers(700_000);
    let halves = [rows.slice(0, 100_000), rows.slice(100_000, 600_000)];
    write_parquet(&dir.path().join("groups.parquet"), &rows, 70_000);
    write_parquet(&dir.path().join("one.parquet"), &rows, 1 << 20);
    write_file(&dir.path().join("x.arrow"), &halves);
    write_stream(&dir.path().join("y.arrows"), &halves);
    for name in ["groups.parquet", "one.parquet", "x.arrow", "y.arrows"] {
        let columns = vec![column("k", DataType::Utf8), column("v", DataType::Int64)];
        let source = source(&dir.path().join(name), columns, "UTC");
        let split = source.splits().await.unwrap().remove(0);
        let mut options = inline_options(&source);
        options.batch_rows = 60_000;
        let all = drain(&source, &split, None, options.clone()).await;
        assert_eq!(all.offsets, (0..700_000).collect::<Vec<_>>(), "{name}");
        let values: Vec<i64> = all.rows().column(1).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(values, all.offsets, "{name}");
        assert_eq!(all.rows().column(0).as_string::<i32>().value(7), "y");
        for from in &all.positions {
            let rest = drain(&source, &split, Some(from), options.clone()).await;
            assert_eq!(rest.offsets, (from.offset..700_000).collect::<Vec<_>>(), "{name}");
        }
        options.projection = vec![];
        let counted = drain(&source, &split, None, options).await;
        assert_eq!(counted.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 700_000);
        assert_eq!(counted.notes.ignored_fields, 0);
    }
}

#[tokio::test]
async fn times_of_any_unit_and_zone_become_instants() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let ms = 1_719_828_000_000i64;
    let rows = batch(vec![
        ("ns", Arc::new(TimestampNanosecondArray::from(vec![ms * 1_000_000 + 999]).with_timezone("+02:00"))),
        ("local", Arc::new(TimestampMillisecondArray::from(vec![ms]))),
        ("day", Arc::new(Date32Array::from(vec![19_905]))),
        ("int", Arc::new(Int64Array::from(vec![ms / 1000]))),
        ("text", Arc::new(StringArray::from(vec!["2024-07-01T10:00:00Z"]))),
    ]);
    write_parquet(&path, &rows, 10);
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let columns = ["ns", "local", "day", "int", "text"].map(|name| column(name, seconds.clone())).to_vec();
    let source = source(&path, columns, "Europe/Berlin");
    let split = source.splits().await.unwrap().remove(0);
    let rows = drain(&source, &split, None, inline_options(&source)).await.rows();
    let us: Vec<i64> =
        rows.columns().iter().map(|c| c.as_primitive::<TimestampMicrosecondType>().value(0) / 1_000_000).collect();
    let s = ms / 1000;
    assert_eq!(us, [s, s - 7200, 19_905 * 86_400 - 7200, s, s]);
}

#[tokio::test]
async fn c75_values_that_do_not_fit_are_rejected_with_the_row_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let rows = batch(vec![
        ("t", Arc::new(TimestampSecondArray::from(vec![1, i64::MAX / 10, 3, 4, 5]))),
        ("v", Arc::new(Float64Array::from(vec![1.0, 2.0, 2.5, 1e30, 5.0]))),
        ("s", Arc::new(StringArray::from(vec!["1", "2", "3", "4", "x"]))),
    ]);
    write_file(&dir.path().join("x.arrow"), &[rows]);
    let columns = vec![
        column("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
        column("v", DataType::Int64),
        column("s", DataType::Int32),
        column("none", DataType::Utf8),
    ];
    let source = source(&path.with_extension("arrow"), columns, "UTC");
    let split = source.splits().await.unwrap().remove(0);
    let read = drain(&source, &split, None, inline_options(&source)).await;
    assert_eq!(read.offsets, [0]);
    let reasons: Vec<_> = read.rejects.iter().map(|r| (r.offset, r.reason, r.place.as_str())).collect();
    let expected = [
        (1, RejectReason::Range, "x.arrow:2"),
        (2, RejectReason::Type, "x.arrow:3"),
        (3, RejectReason::Range, "x.arrow:4"),
        (4, RejectReason::Type, "x.arrow:5"),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(read.rejects[1].raw, r#"{"t":"1970-01-01T00:00:03","v":2.5,"s":"3"}"#);
}

#[tokio::test]
async fn columns_are_taken_from_the_file_where_none_are_declared() {
    let dir = tempfile::tempdir().unwrap();
    write_parquet(&dir.path().join("x.parquet"), &numbers(3), 10);
    write_stream(&dir.path().join("x.arrows"), &[numbers(3)]);
    for name in ["x.parquet", "x.arrows"] {
        let source = source(&dir.path().join(name), vec![column("f", DataType::Utf8).with_metadata("file")], "UTC");
        let schema = source.schema();
        let fields: Vec<_> = schema.fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect();
        assert_eq!(fields, [("V", DataType::Int64), ("k", DataType::Utf8), ("f", DataType::Utf8)]);
    }
}

#[tokio::test]
async fn a_file_that_is_not_what_it_says_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["x.parquet", "x.arrow"] {
        let path = dir.path().join(name);
        std::fs::write(&path, "not at all").unwrap();
        let source = source(&path, vec![column("v", DataType::Int64)], "UTC");
        let split = source.splits().await.unwrap().remove(0);
        let mut reader = source.open(&split, None, inline_options(&source)).await.unwrap();
        assert_eq!(reader.next().await.unwrap_err().kind(), crate::ErrorKind::Data, "{name}");
    }
}
