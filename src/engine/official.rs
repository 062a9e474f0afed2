//! The official number against the oracle, end to end: any rows from several splits, every kind of window of exact length, with and
//! without HAVING, under any lateness.
//!
//! For each case: the live view is what the oracle's stream gives; FINALIZE gives what the oracle makes of all rows; where
//! nothing was refused it changes nothing; a second run publishes nothing; VERIFY explains every difference. It would show a batch
//! lowering that disagrees with the rules, a range or a restriction that loses or doubles a window, a missing deleted
//! final, and numbers that are not kept apart. It cannot show what the oracle cannot see: see its own header.
//!
//! `HIGHWATER_CASES` is the number of cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use proptest::prelude::*;

use super::Engine;
use crate::clock::ManualClock;
use crate::connectors::MemorySource;
use crate::runtime::Epochs;
use crate::testing::oracle::{self, Answer, Emission, Kind, Question, Row};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// COUNT and SUM by window and key.
type Results = BTreeMap<((i64, i64), String), (i64, Option<i64>)>;

#[derive(Debug, Clone)]
struct Case {
    splits: Vec<Vec<Row>>,
    kind: Kind,
    delay: i64,
    lateness: i64,
    takes_late: bool,
    having: bool,
    /// The first range ends here; a second one takes the rest.
    cut: i64,
}

fn cases() -> u32 {
    std::env::var("HIGHWATER_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

fn kind() -> impl Strategy<Value = Kind> {
    let s = |n: i64| n * SECOND;
    prop_oneof![
        (1i64..15, 0i64..5).prop_map(move |(size, offset)| Kind::Tumble { size: s(size), offset: s(offset) }),
        (1i64..12, 1i64..15).prop_map(move |(slide, size)| Kind::Hop { slide: s(slide), size: s(size), offset: 0 }),
        (1i64..6, 0i64..10).prop_map(move |(step, more)| Kind::Cumulate {
            step: s(step),
            size: s(step + more),
            offset: 0
        }),
        (1i64..10).prop_map(move |gap| Kind::Session { gap: s(gap) }),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let row = (0u8..3, 0i64..60, prop::option::weighted(0.8, -5i64..6)).prop_map(|(key, second, value)| Row {
        key: oracle::key(key),
        ts: second * SECOND,
        value,
    });
    let splits = prop::collection::vec(prop::collection::vec(row, 0..25), 1..3);
    let times = (0i64..8, prop_oneof![Just(0), 1i64..10], -5i64..70);
    (splits, kind(), times, any::<bool>(), any::<bool>()).prop_map(|(splits, kind, times, takes_late, having)| Case {
        splits,
        kind,
        delay: times.0 * SECOND,
        lateness: times.1 * SECOND,
        takes_late,
        having,
        cut: times.2 * SECOND,
    })
}

impl Case {
    fn question(&self) -> Question {
        Question {
            kind: self.kind,
            lateness: self.lateness,
            takes_late: self.takes_late,
            emission: Emission::OnClose,
            epoch_rows: usize::MAX,
        }
    }

    fn results(&self, answer: &Answer) -> Results {
        let all = answer.latest().into_iter().map(|(id, value)| (id, (value.count, value.sum.map(|sum| sum as i64))));
        all.filter(|(_, (count, _))| !self.having || *count > 1).collect()
    }

    /// What the live view holds in the end, and how many pairs it refused.
    fn live(&self) -> (Results, usize) {
        let answer = oracle::answer(self.question(), &oracle::arrival(&self.splits, self.delay));
        (self.results(&answer), answer.refused.iter().map(|refused| refused.pairs as usize).sum())
    }

    /// What all rows make, none of them late.
    fn official(&self) -> Results {
        let rows: Vec<(Row, i64)> = self.splits.iter().flatten().map(|row| (row.clone(), i64::MIN)).collect();
        self.results(&oracle::answer(Question { lateness: 0, ..self.question() }, &rows))
    }

    fn view(&self) -> String {
        let seconds = |us: i64| format!("INTERVAL '{} seconds'", us / SECOND);
        let window = match self.kind {
            Kind::Tumble { size, offset } => {
                format!("TUMBLE(TABLE s, DESCRIPTOR(ts), {}, {})", seconds(size), seconds(offset))
            }
            Kind::Hop { slide, size, .. } => {
                format!("HOP(TABLE s, DESCRIPTOR(ts), {}, {})", seconds(slide), seconds(size))
            }
            Kind::Cumulate { step, size, .. } => {
                format!("CUMULATE(TABLE s, DESCRIPTOR(ts), {}, {})", seconds(step), seconds(size))
            }
            Kind::Session { gap } => format!("SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), {})", seconds(gap)),
        };
        let having = if self.having { "HAVING count(*) > 1" } else { "" };
        let lateness = match self.lateness {
            0 => String::new(),
            l => format!(
                "ALLOWED LATENESS {} ON LATE {}",
                seconds(l),
                if self.takes_late { "UPDATE" } else { "SIDE OUTPUT" }
            ),
        };
        format!(
            "CREATE MATERIALIZED VIEW v AS SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total \
             FROM {window} GROUP BY window_start, window_end, k {having} {lateness}"
        )
    }

    async fn engine(&self) -> Engine {
        let splits = self.splits.clone();
        let clock = Arc::new(ManualClock::new(DAY));
        let engine = Engine::builder().in_memory().epochs(Epochs::Manual).clock(clock).workers(2).batch_rows(7);
        let engine = engine.connector("rows", move |definition| {
            let schema = definition.schema();
            let batch = |rows: &Vec<Row>| {
                let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.ts));
                let keys: StringArray = rows.iter().map(Row::nullable_key).collect();
                let keys = arrow::compute::cast(&keys, schema.field(1).data_type()).unwrap();
                let values = Int64Array::from_iter(rows.iter().map(|row| row.value));
                RecordBatch::try_new(
                    Arc::clone(&schema),
                    vec![Arc::new(times.with_timezone("UTC")), keys, Arc::new(values)],
                )
                .unwrap()
            };
            let named = splits.iter().enumerate().map(|(i, rows)| (format!("{i}"), vec![batch(rows)]));
            Ok(Arc::new(MemorySource::try_new(Arc::clone(&schema), named)?))
        });
        let engine = engine.build().await.unwrap();
        let source = format!(
            "CREATE SOURCE s (ts TIMESTAMP, k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{} seconds') \
             WITH (connector = 'rows')",
            self.delay / SECOND
        );
        engine.execute(&source).await.unwrap();
        let view = self.view();
        engine.execute(&view).await.unwrap_or_else(|e| panic!("{view}: {e}"));
        engine.wait_for_bounded().await.unwrap();
        engine
    }
}

async fn rows(engine: &Engine, sql: &str) -> Vec<RecordBatch> {
    let outcome = engine.execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.hint()));
    outcome
        .collect()
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e} {:?}", std::error::Error::source(&e).map(ToString::to_string)))
}

async fn results(engine: &Engine, from: &str) -> Results {
    let batches = rows(engine, &format!("SELECT window_start, window_end, k, n, total FROM {from}")).await;
    let mut results = Results::new();
    for batch in batches {
        let time = |i: usize| batch.column(i).as_primitive::<TimestampMicrosecondType>().clone();
        let number = |i: usize| batch.column(i).as_primitive::<Int64Type>().clone();
        let keys = arrow::compute::cast(batch.column(2), &arrow::datatypes::DataType::Utf8).unwrap();
        let keys = keys.as_string::<i32>();
        for row in 0..batch.num_rows() {
            let key = if keys.is_valid(row) { keys.value(row).to_owned() } else { oracle::key(0) };
            let id = ((time(0).value(row), time(1).value(row)), key);
            let total = number(4).is_valid(row).then(|| number(4).value(row));
            assert!(results.insert(id, (number(3).value(row), total)).is_none(), "twice in {from}");
        }
    }
    results
}

/// A number of the report, summed over its rows.
fn reported(report: &[RecordBatch], column: &str) -> i64 {
    let columns = report.iter().filter_map(|batch| batch.column_by_name(column));
    columns.map(|column| column.as_primitive::<Int64Type>().iter().flatten().sum::<i64>()).sum()
}

async fn check(case: &Case) {
    let engine = case.engine().await;
    let (live, refused) = case.live();
    assert_eq!(results(&engine, "v").await, live, "live");
    let official = case.official();

    let verified = rows(&engine, "VERIFY v").await;
    assert_eq!(
        reported(&verified, "unexplained"),
        0,
        "{}",
        arrow::util::pretty::pretty_format_batches(&verified).unwrap()
    );

    let time = |us: i64| crate::time::format_us(us);
    let mut changed = 0;
    for (from, to) in [(-DAY, case.cut), (case.cut, DAY)] {
        let statement = format!("FINALIZE v FROM '{}' TO '{}'", time(from), time(to));
        let report = rows(&engine, &statement).await;
        assert_eq!(reported(&report, "live"), 0);
        changed += reported(&report, "changed") + reported(&report, "deleted");
        if to == case.cut {
            let early: Results = official.iter().filter(|((window, _), _)| window.1 <= to).map(clone_of).collect();
            assert_eq!(results(&engine, "v$final WHERE _is_final").await, early, "final up to the cut");
        }
    }
    assert_eq!(results(&engine, "v$final WHERE _is_final").await, official, "final");
    assert_eq!(results(&engine, "v").await, official, "latest");
    if refused == 0 {
        assert_eq!(changed, 0, "nothing was refused");
        assert_eq!(live, official);
    }
    let again = rows(&engine, &format!("FINALIZE v FROM '{}' TO '{}'", time(-DAY), time(DAY))).await;
    let count = |name: &str| reported(&again, name);
    assert_eq!((count("changed"), count("deleted")), (0, 0), "again");
    assert_eq!(count("unchanged"), official.len() as i64, "again");
    engine.shutdown().await.unwrap();
}

fn clone_of<A: Clone, B: Clone>((a, b): (&A, &B)) -> (A, B) {
    (a.clone(), b.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn final_is_what_all_rows_make(case in case()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(&case));
    }
}
