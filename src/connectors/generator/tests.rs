//! Generated rows are the same however they are asked for.

use arrow::array::AsArray;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};

use super::*;
use crate::connectors::SplitEvent;
use crate::connectors::testing::{drain, inline_options};

fn generator(options: &[(&str, &str)]) -> Result<GeneratorSource> {
    declared(options, vec![])
}

fn declared(options: &[(&str, &str)], columns: Vec<ColumnDefinition>) -> Result<GeneratorSource> {
    let options = options.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
    GeneratorSource::try_new(&SourceDefinition::new("s", columns, options))
}

async fn read(source: &GeneratorSource, split: usize, projection: Vec<usize>, batch_rows: usize) -> RecordBatch {
    let split = &source.splits().await.unwrap()[split];
    let mut options = inline_options(source);
    options.projection = projection;
    options.batch_rows = batch_rows;
    drain(source, split, None, options).await.rows()
}

#[tokio::test]
async fn batch_size_projection_and_splits_change_no_row() {
    for table in ["bid", "auction", "person", "event"] {
        let options = [("table", table), ("rows", "1000"), ("late_fraction", "0.1")];
        let source = generator(&options).unwrap();
        let width = source.schema().fields().len();
        let all = read(&source, 0, (0..width).collect(), 8192).await;
        assert_eq!(all.num_rows(), 1000);
        assert_eq!(all, read(&source, 0, (0..width).collect(), 7).await);
        for column in 0..width {
            assert_eq!(all.project(&[column]).unwrap(), read(&source, 0, vec![column], 100).await);
        }
        let dealt = generator(&[&options[..], &[("splits", "3")]].concat()).unwrap();
        let mut parts = Vec::new();
        for split in 0..3 {
            parts.push(read(&dealt, split, (0..width).collect(), 8192).await);
        }
        let in_turn: Vec<RecordBatch> = (0..1000).map(|row| parts[row % 3].slice(row / 3, 1)).collect();
        assert_eq!(all, concat_batches(&all.schema(), &in_turn).unwrap());
    }
}

#[tokio::test]
async fn any_position_yields_the_rest_and_another_seed_other_rows() {
    let source = generator(&[("rows", "100000")]).unwrap();
    let split = &source.splits().await.unwrap()[0];
    let mut options = inline_options(&source);
    options.batch_rows = 30_000;
    let all = drain(&source, split, None, options.clone()).await;
    for from in &all.positions {
        let rest = drain(&source, split, Some(from), options.clone()).await;
        assert_eq!(rest.offsets, (from.offset..100_000).collect::<Vec<_>>());
        if from.offset < 100_000 {
            let at = from.offset as usize;
            assert_eq!(rest.rows(), all.rows().slice(at, 100_000 - at));
        }
    }
    let other = generator(&[("rows", "100000"), ("seed", "43")]).unwrap();
    assert_ne!(all.rows(), read(&other, 0, (0..7).collect(), 8192).await);
}

#[tokio::test]
async fn event_times_lag_as_told() {
    let options = [
        ("rows", "46000"),
        ("rate", "50000"),
        ("start_time", "2024-01-01"),
        ("disorder", "1 s"),
        ("late_fraction", "0.01"),
        ("late_min", "10 s"),
        ("late_max", "20 s"),
    ];
    let source = generator(&options).unwrap();
    let times = read(&source, 0, vec![5], 8192).await;
    let times = times.column(0).as_primitive::<TimestampMicrosecondType>().values().to_vec();
    let start = 1_704_067_200_000_000;
    let lags: Vec<i64> = times.iter().zip(0..).map(|(t, row)| start + Table::Bid.event(row) as i64 * 20 - t).collect();
    let late = lags.iter().filter(|lag| **lag > 1_000_000).count();
    assert!((400..520).contains(&late), "{late}");
    assert!(lags.iter().all(|lag| (0..=1_000_000).contains(lag) || (10_000_000..=21_000_000).contains(lag)));
}

#[tokio::test]
async fn bids_are_spread_as_told() {
    let options = [("rows", "46000"), ("bidders", "100"), ("hot_bidders", "0.5"), ("hot_channels", "1")];
    let source = generator(&options).unwrap();
    let rows = read(&source, 0, vec![0, 1, 3], 8192).await;
    let bidders = rows.column(1).as_primitive::<Int64Type>().values();
    let hot = bidders.iter().filter(|b| **b == 1000).count();
    assert!((22_500..24_200).contains(&hot), "{hot}");
    assert!(bidders.iter().all(|b| (1000..1100).contains(b)));
    let auctions = rows.column(0).as_primitive::<Int64Type>().values();
    assert!(auctions.iter().all(|a| (10_000..13_000).contains(a)));
    assert!(rows.column(2).as_string::<i32>().iter().flatten().all(|c| !c.starts_with("channel")));
}

#[tokio::test]
async fn columns_may_be_declared_in_another_order_spelling_and_type() {
    let columns = vec![
        ColumnDefinition::new("dateTime", DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None)),
        ColumnDefinition::new("PRICE", DataType::Float64),
        ColumnDefinition::new("n", DataType::Int64).with_metadata("offset"),
    ];
    let source = declared(&[("rows", "10")], columns).unwrap();
    let rows = read(&source, 0, vec![0, 1, 2], 4).await;
    assert_eq!(rows.column(2).as_primitive::<Int64Type>().values().to_vec(), (0..10).collect::<Vec<_>>());
    assert_eq!(rows.schema(), source.schema());
    let wrong = declared(&[], vec![ColumnDefinition::new("pric", DataType::Int64)]).unwrap_err();
    assert_eq!(wrong.hint(), Some("did you mean 'price'?"));
    assert!(generator(&[("hot_bidders", "2")]).is_err());
    assert!(generator(&[("table", "bids")]).unwrap_err().hint().is_some());
}

#[tokio::test]
async fn without_rows_it_is_live_and_in_real_time_it_is_paced() {
    let source = generator(&[("realtime", "true"), ("rate", "1")]).unwrap();
    assert_eq!(source.boundedness(), Boundedness::Live);
    let split = &source.splits().await.unwrap()[0];
    let mut reader = source.open(split, None, inline_options(&source)).await.unwrap();
    let SplitEvent::Rows(first) = reader.next().await.unwrap() else { panic!("the first row is due at once") };
    assert_eq!(first.rows.num_rows(), 1);
    assert!(matches!(reader.next().await.unwrap(), SplitEvent::Nothing));
}
