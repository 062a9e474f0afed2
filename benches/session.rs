//! Session windows: the operator against DataFusion's own way, a batch query of window functions (gaps and islands) over
//! the same rows in memory, both on one core.
//!
//! `ROWS=10000000 cargo bench --profile dev --bench session`; 2 million rows without. 100,000 keys,
//! 10,000 rows per second of event time, times up to a second out of order, a gap of 10 s, COUNT, SUM, MIN and MAX.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::col;
use datafusion::prelude::{SessionConfig, SessionContext};
use highwater::operators::fate::{ArrivedRows, Judged};
use highwater::operators::graph::{AggregateCall, AggregateInput, AggregateSpec, Policy};
use highwater::operators::session::{SessionAggregate, SessionOutput};
use highwater::sql::statement::{Emit, OnExpired, OnLate};
use highwater::window::{Span, WindowKind, WindowSpec};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SECOND_US: i64 = 1_000_000;
const GAP_US: i64 = 10 * SECOND_US;
const BATCH_ROWS: usize = 8192;

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("ts", time, false),
        Field::new("v", DataType::Int64, false),
    ]))
}

/// Batches, and the watermark after each.
fn rows(rows: usize) -> Vec<(RecordBatch, i64)> {
    let mut random = SmallRng::seed_from_u64(1);

    let mut batches = Vec::new();
    let mut w = i64::MIN;
    for from in (0..rows).step_by(BATCH_ROWS) {
        let n = BATCH_ROWS.min(rows - from);
        let key: Vec<i64> = (0..n).map(|_| random.random_range(0..100_000)).collect();
        let time = |i: usize, random: &mut SmallRng| (from + i) as i64 * 100 - random.random_range(0..SECOND_US);
        let times: Vec<i64> = (0..n).map(|i| time(i, &mut random)).collect();
        w = times.iter().fold(w, |w, t| w.max(t - SECOND_US));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(key)),
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
            Arc::new(Int64Array::from_iter_values((0..n).map(|i| i as i64))),
        ];
        batches.push((RecordBatch::try_new(schema(), columns).expect("columns fit"), w));
    }
    batches
}

fn call(function: Arc<AggregateUDF>) -> AggregateCall {
    let argument = col("v", &schema()).expect("a column");
    let built = AggregateExprBuilder::new(function, vec![argument]).schema(schema()).alias("x").build();
    AggregateCall { function: Arc::new(built.expect("an aggregate over integers")), filter: None }
}

fn operator() -> SessionAggregate {
    let spec = AggregateSpec {
        window: WindowSpec::try_new(WindowKind::Session { gap_us: GAP_US }, Span::Micros(0), None).expect("a gap"),
        event_time: 1,
        keys: vec![(col("k", &schema()).expect("a column"), "k".into())],
        aggregates: vec![call(sum_udaf()), call(min_udaf()), call(max_udaf())],
        input: AggregateInput::Rows,
    };
    let policy = Policy {
        allowed_lateness_us: 0,
        on_late: OnLate::Update { max_updates: None },
        on_expired: OnExpired::SideOutput,
        emit: Emit::OnWindowClose,
    };
    SessionAggregate::try_new(&spec, policy, &schema()).expect("a session")
}

/// Sessions found by the operator.
fn live(batches: &[(RecordBatch, i64)]) -> usize {
    let mut operator = operator();
    let mut sessions = 0;
    let mut met = i64::MIN;
    for (n, (rows, w)) in batches.iter().enumerate() {
        let mut out = SessionOutput::default();
        let rows = ArrivedRows { rows: rows.clone(), judged: Judged::All(met), origin: None };
        operator.on_rows(&rows, &mut out).expect("rows");
        met = if n + 1 == batches.len() { i64::MAX } else { *w };
        operator.on_watermark(met, &mut out).expect("a watermark");
        sessions += out.changes.iter().map(|changes| changes.rows.num_rows()).sum::<usize>();
    }
    sessions
}

/// Sessions found by a batch query.
async fn batch(batches: &[(RecordBatch, i64)]) -> usize {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let rows: Vec<RecordBatch> = batches.iter().map(|(rows, _)| rows.clone()).collect();
    let table = datafusion::datasource::MemTable::try_new(schema(), vec![rows]).expect("a table");
    context.register_table("t", Arc::new(table)).expect("a free name");
    let sql = "SELECT k, min(ts), max(ts), count(*), sum(v), min(v), max(v) FROM (
        SELECT k, ts, v, sum(opens) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session FROM (
            SELECT k, ts, v, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) < INTERVAL '10 seconds'
                THEN 0 ELSE 1 END AS opens FROM t)) GROUP BY k, session";
    let results = context.sql(sql).await.expect("valid SQL").collect().await.expect("results");
    results.iter().map(RecordBatch::num_rows).sum()
}

fn sessions(c: &mut Criterion) {
    let n = std::env::var("ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(2_000_000);
    let batches = rows(n);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert_eq!(live(&batches), runtime.block_on(batch(&batches)), "both find the same sessions");
    let mut group = c.benchmark_group("session");
    group.sample_size(10).throughput(Throughput::Elements(n as u64));
    group.bench_function("operator", |b| b.iter(|| live(&batches)));
    group.bench_function("gaps and islands", |b| b.iter(|| runtime.block_on(batch(&batches))));
    group.finish();
}

criterion_group!(benches, sessions);
criterion_main!(benches);
