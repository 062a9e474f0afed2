//! Plans of whole queries: what is computed where, and what is refused.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{col, lit};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;

use super::window_node::instant_type;
use super::*;
use crate::connectors::Source;
use crate::connectors::memory::MemorySource;
use crate::error::Error;
use crate::operators::graph::Operator;
use crate::sql::Statement;
use crate::watermark::{Strategy, WatermarkSpec};

#[derive(Debug, Default)]
struct TestCatalog {
    sources: HashMap<String, Arc<SourceTable>>,
    macros: HashMap<String, Arc<ast::Query>>,
}

#[async_trait]
impl CatalogView for TestCatalog {
    fn source(&self, name: &str) -> Option<Arc<SourceTable>> {
        self.sources.get(name).cloned()
    }

    fn macro_view(&self, name: &str) -> Option<Arc<ast::Query>> {
        self.macros.get(name).cloned()
    }

    async fn relation(&self, _: &str, _: Option<i64>) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(None)
    }
}

/// `ts TIMESTAMP, k VARCHAR, v BIGINT, x DOUBLE, pad VARCHAR, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'`
fn source(name: &str) -> Arc<SourceTable> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("ts", instant_type(), true),
        Field::new("k", DataType::Utf8View, true),
        Field::new("v", DataType::Int64, true),
        Field::new("x", DataType::Float64, true),
        Field::new("pad", DataType::Utf8View, true),
    ]));
    let source: Arc<dyn Source> =
        Arc::new(MemorySource::try_new(Arc::clone(&schema), [("only", vec![rows_of_s(&schema)])]).expect("one schema"));
    let columns = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(i, field)| TableColumn { field: Arc::clone(field), value: ColumnValue::Physical(i) })
        .collect();
    let watermark = TableWatermark {
        column: 0,
        spec: WatermarkSpec {
            strategy: Strategy::BoundedOutOfOrderness,
            idle_timeout_us: None,
            idle_close_after_us: None,
        },
        expr: Some(col("ts") - lit(ScalarValue::new_interval_mdn(0, 0, 5_000_000_000))),
        when: None,
        keys: Vec::new(),
    };
    let limits = SourceLimits { max_future_us: None, max_ahead_us: 3_600_000_000, rejects_max: None };
    Arc::new(SourceTable::new(name, source, columns, Some(watermark), limits))
}

fn parse(sql: &str) -> StreamQuery {
    match crate::sql::parse_one(sql).unwrap_or_else(|e| panic!("{sql}\n{e:?}")) {
        Statement::Select(query) => query,
        other => panic!("not a query: {other:?}"),
    }
}

fn planner() -> Planner {
    let mut catalog = TestCatalog::default();
    for name in ["s", "s2"] {
        catalog.sources.insert(name.to_owned(), source(name));
    }
    catalog.macros.insert("big".to_owned(), Arc::new(*parse("SELECT ts, k, v * 2 AS v2 FROM s WHERE v > 100").query));
    let context = SessionContext::new();
    let names = RecordBatch::try_from_iter([
        ("k", Arc::new(StringViewArray::from(vec!["a", "b"])) as ArrayRef),
        ("name", Arc::new(StringViewArray::from(vec!["Ann", "Bob"])) as ArrayRef),
    ]);
    context.register_batch("names", names.expect("two columns of two rows")).expect("a new name");
    Planner::new(Arc::new(catalog), context.state())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn graph(sql: &str) -> OperatorGraph {
    run(planner().plan_stream(&parse(sql))).unwrap_or_else(|e| panic!("{sql}\n{e:?}"))
}

fn plan(sql: &str) -> String {
    let graph = graph(sql);
    let select: Vec<&str> = graph.select.fields().iter().map(|f| f.name().as_str()).collect();
    let keys: Vec<String> = graph.keys.iter().map(|k| format!("{}@{}", k.stored_as, k.index)).collect();
    format!("{}select=[{}] keys=[{}]", explain::operators(&graph), select.join(", "), keys.join(", "))
}

fn error(sql: &str) -> Error {
    match run(planner().plan_stream(&parse(sql))) {
        Err(error) => error,
        Ok(graph) => panic!("{sql}\nplanned as\n{}", explain::operators(&graph)),
    }
}

#[test]
fn tumbling_by_key_reads_what_it_needs() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, window_end, k, sum(x) AS total, count(*) AS n, avg(x) AS mean
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             WHERE v > 3
             GROUP BY window_start, window_end, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v, x]
    #1 Rows: filter=v > 3, columns=[k, x, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @2, keys=[k AS k], aggregates=[sum(s.x), count(Int64(1)), avg(s.x)] <- #1
    #3 Versions: columns=[window_start, window_end, k, sum(s.x) AS total, count(Int64(1)) AS n, avg(s.x) AS mean, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, window_end, k, total, n, mean] keys=[k@2]
    "#
    );
}

#[test]
fn select_may_leave_out_keys_and_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT max(v) AS top FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_end, k, v % 10"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: columns=[k, v, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @2, keys=[k AS k, v % 10 AS s.v % Int64(10)], aggregates=[max(s.v)] <- #1
    #3 Versions: columns=[@4 AS top, @2 AS _key_k, @3 AS _key_s_v_Int64_10, window_start AS _window_start, @1 AS _window_end, _event_count] <- #2
    select=[top] keys=[_key_k@1, _key_s_v_Int64_10@2]
    "#
    );
}

#[test]
fn c62_without_a_key_the_window_stays() {
    insta::assert_snapshot!(
        plan(
            "SELECT count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time)]
    #1 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #0
    #2 Versions: columns=[count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #1
    select=[n] keys=[]
    "#
    );
}

#[test]
fn having_and_expressions_apply_to_versions() {
    insta::assert_snapshot!(
        plan(
            "SELECT k, window_end - window_start AS length, sum(v) * 2 AS double
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end, k HAVING count(*) > 1 AND k <> 'b'"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: columns=[k, v, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @2, keys=[k AS k], aggregates=[sum(s.v), count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, window_end, k, sum(s.v), count(Int64(1)), _event_count] <- #2
    #4 Versions: filter=count(Int64(1)) > 1 AND k != 'b', columns=[k, window_end - window_start AS length, sum(s.v) * 2 AS double, window_start AS _window_start, window_end AS _window_end, _event_count] <- #3
    select=[k, length, double] keys=[k@0]
    "#
    );
}

#[test]
fn predicates_on_the_window_wait_for_its_results() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             WHERE window_start >= TIMESTAMP '2024-01-01 00:00:00' AND v = 1
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), v]
    #1 Rows: filter=v = 1, columns=[ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #1
    #3 Versions: filter=window_start >= TIMESTAMP '2024-01-01T00:00:00Z', columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn c35_no_filter_slips_under_the_watermark() {
    insta::assert_snapshot!(
        plan(
            "WITH t AS (SELECT ts AS at, k FROM s WHERE pad <> 'x')
             SELECT window_start, count(*) AS n FROM TUMBLE(t, DESCRIPTOR(at), INTERVAL '2 minutes')
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), pad]
    #1 Rows: filter=pad != 'x', columns=[ts AS at] <- #0
    #2 Window: TUMBLE size 2 minutes on @0, keys=[], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn a_macro_view_keeps_the_watermark() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, k, sum(v2) AS total FROM TUMBLE(big, DESCRIPTOR(ts), INTERVAL '1 hour')
             GROUP BY window_start, window_end, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: filter=v > 100, columns=[k, v * 2 AS v2, ts] <- #0
    #2 Window: TUMBLE size 1 hour on @2, keys=[k AS k], aggregates=[sum(big.v2)] <- #1
    #3 Versions: columns=[window_start, k, sum(big.v2) AS total, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, k, total] keys=[k@1]
    "#
    );
}

#[test]
fn c36_union_all_of_sources() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n
             FROM TUMBLE((SELECT ts, v FROM s UNION ALL SELECT ts, v FROM s2 WHERE v > 1), DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time)]
    #1 Source: s2, bounded, columns=[ts (event time), v]
    #2 Rows: filter=v > 1, columns=[ts] <- #1
    #3 Union <- #0, #2
    #4 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #3
    #5 Versions: columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn c64_a_window_of_windows_takes_window_time() {
    insta::assert_snapshot!(
        plan(
            "WITH per_minute AS (
                 SELECT window_time AS at, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 minute')
                 GROUP BY window_start, window_end, window_time, k)
             SELECT window_start, sum(n) AS n FROM TUMBLE(per_minute, DESCRIPTOR(at), INTERVAL '5 minutes')
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 1 minute on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[count(Int64(1)) AS n, window_end, k, window_start, window_end - INTERVAL '0.000001 seconds' AS at, _event_count] <- #2
    #4 Window: TUMBLE size 5 minutes on @1, keys=[], aggregates=[sum(per_minute.n)], over results <- #3
    #5 Versions: columns=[window_start, sum(per_minute.n) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn c67_rows_pass_through_without_a_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT k, v + 1 AS next FROM s WHERE v > 0"
        ),
        @r#"
    #0 Source: s, bounded, columns=[k, v, ts (event time)]
    #1 Rows: filter=v > 0, columns=[k, v + 1 AS next] <- #0
    #2 PassThrough <- #1
    select=[k, next] keys=[]
    "#
    );
}

#[test]
fn distinct_filter_and_order_stay_inside() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(DISTINCT k) AS keys, sum(v) FILTER (WHERE x > 0) AS positive,
                 array_agg(k ORDER BY v DESC) AS names
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v, x, _split, _offset]
    #1 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(DISTINCT s.k), sum(s.v) FILTER (WHERE s.x > Int64(0)) FILTER (WHERE x > 0), array_agg(s.k) ORDER BY [s.v DESC NULLS FIRST, s.ts ASC NULLS LAST, s.__split ASC NULLS LAST, s.__offset ASC NULLS LAST]] <- #0
    #2 Versions: columns=[window_start, count(DISTINCT s.k) AS keys, sum(s.v) FILTER (WHERE s.x > Int64(0)) AS positive, array_agg(s.k) ORDER BY [s.v DESC NULLS FIRST] AS names, window_start AS _window_start, window_end AS _window_end, _event_count] <- #1
    select=[window_start, keys, positive, names] keys=[]
    "#
    );
}

#[test]
fn a_session_is_per_key() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, window_end, k, count(*) AS n
             FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5 minutes')
             GROUP BY window_start, window_end, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: SESSION gap 5 minutes on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, window_end, k, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count, _supersedes] <- #2
    select=[window_start, window_end, k, n] keys=[k@2]
    "#
    );
}

#[test]
fn the_window_may_be_a_group_key() {
    insta::assert_snapshot!(
        plan(
            "SELECT tumble(ts, INTERVAL '10 seconds') AS w, k, count(*) AS n FROM s GROUP BY w, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS w, k, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[w, k, n] keys=[k@1]
    "#
    );
}

#[test]
fn the_window_function_finds_the_event_time() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n, tumble(INTERVAL '10 seconds') FROM s
             WHERE k = 'a' GROUP BY tumble(INTERVAL '10 seconds') HAVING count(*) > 2"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: filter=k = 'a', columns=[ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS highwater_window(Int64(0)), count(Int64(1)), window_start, window_end, _event_count] <- #2
    #4 Versions: filter=count(Int64(1)) > 2, columns=[get_field(highwater_window(Int64(0)), 'start') AS window_start, count(Int64(1)) AS n, highwater_window(Int64(0)) AS tumble, window_start AS _window_start, window_end AS _window_end, _event_count] <- #3
    select=[window_start, n, tumble] keys=[]
    "#
    );
}

#[test]
fn a_session_in_group_by_is_per_other_key() {
    insta::assert_snapshot!(
        plan(
            "SELECT session(ts, INTERVAL '5 minutes') AS w, lower(k) AS lk, sum(v) AS total FROM s
             GROUP BY session(ts, INTERVAL '5 minutes'), lower(k)"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: columns=[v, lower(k) AS lower(s.k), ts] <- #0
    #2 Window: SESSION gap 5 minutes on @2, keys=[lower(s.k) AS lower(s.k)], aggregates=[sum(s.v)] <- #1
    #3 Versions: columns=[window_start, window_end, lower(s.k), sum(s.v), _event_count, _supersedes] <- #2
    #4 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS w, lower(s.k) AS lk, sum(s.v) AS total, window_start AS _window_start, window_end AS _window_end, _event_count, _supersedes] <- #3
    select=[w, lk, total] keys=[lk@1]
    "#
    );
}

/// Rows of `s` in the tests that run: `(seconds, k, v)`.
const ROWS: [(f64, Option<&str>, i64); 8] = [
    (-120.0, Some("a"), 1),
    (-61.0, Some("a"), 2),
    (0.0, Some("b"), 3),
    (4.0, None, 4),
    (9.0, Some("a"), 5),
    (10.0, Some("b"), 6),
    (12.0, Some("a"), 7),
    (19.999, None, 8),
];

fn rows_of_s(schema: &Arc<Schema>) -> RecordBatch {
    let times = ROWS.iter().map(|(s, _, _)| (s * 1e6) as i64).collect::<Vec<_>>();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
        Arc::new(StringViewArray::from_iter(ROWS.iter().map(|(_, k, _)| *k))),
        Arc::new(Int64Array::from_iter_values(ROWS.iter().map(|(_, _, v)| *v))),
        Arc::new(Float64Array::from_iter_values(ROWS.iter().map(|(_, _, v)| *v as f64 / 2.0))),
        Arc::new(StringViewArray::from_iter_values(ROWS.iter().map(|_| "pad"))),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).expect("the schema above")
}

fn batch_rows(sql: &str) -> Result<Vec<RecordBatch>> {
    let planner = planner();
    run(async {
        let plan = planner.plan_batch(&parse(sql).query).await?;
        datafusion::physical_plan::collect(plan, planner.state.task_ctx()).await.map_err(from_datafusion)
    })
}

fn batch(sql: &str) -> String {
    let rows = batch_rows(sql).unwrap_or_else(|e| panic!("{sql}\n{e:?}"));
    arrow::util::pretty::pretty_format_batches(&rows).expect("printable").to_string()
}

#[test]
fn c01_a_batch_tumbles_toward_minus_infinity() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, count(*) AS n, sum(v) AS total FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '60 seconds')
             GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+---+-------+
        | window_start         | n | total |
        +----------------------+---+-------+
        | 1969-12-31T23:58:00Z | 2 | 3     |
        | 1970-01-01T00:00:00Z | 6 | 33    |
        +----------------------+---+-------+
        "#
    );
}

#[test]
fn c05_a_batch_hops_by_any_slide() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, count(*) AS n
             FROM HOP(s, DESCRIPTOR(ts), INTERVAL '4 seconds', INTERVAL '10 seconds')
             WHERE v IN (5, 6, 7) GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+----------------------+---+
        | window_start         | window_end           | n |
        +----------------------+----------------------+---+
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 1 |
        | 1970-01-01T00:00:04Z | 1970-01-01T00:00:14Z | 3 |
        | 1970-01-01T00:00:08Z | 1970-01-01T00:00:18Z | 3 |
        | 1970-01-01T00:00:12Z | 1970-01-01T00:00:22Z | 1 |
        +----------------------+----------------------+---+
        "#
    );
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, count(*) AS n
             FROM HOP(s, DESCRIPTOR(ts), INTERVAL '10 seconds', INTERVAL '5 seconds')
             GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+----------------------+---+
        | window_start         | window_end           | n |
        +----------------------+----------------------+---+
        | 1969-12-31T23:58:00Z | 1969-12-31T23:58:05Z | 1 |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:05Z | 2 |
        | 1970-01-01T00:00:10Z | 1970-01-01T00:00:15Z | 2 |
        +----------------------+----------------------+---+
        "#
    );
}

#[test]
fn a_batch_cumulates() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, window_time, sum(v) AS total
             FROM CUMULATE(s, DESCRIPTOR(ts), INTERVAL '5 seconds', INTERVAL '20 seconds')
             WHERE v > 2 GROUP BY window_start, window_end, window_time ORDER BY 1, 2"
        ),
        @r#"
        +----------------------+----------------------+-----------------------------+-------+
        | window_start         | window_end           | window_time                 | total |
        +----------------------+----------------------+-----------------------------+-------+
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:05Z | 1970-01-01T00:00:04.999999Z | 7     |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 1970-01-01T00:00:09.999999Z | 12    |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:15Z | 1970-01-01T00:00:14.999999Z | 25    |
        | 1970-01-01T00:00:00Z | 1970-01-01T00:00:20Z | 1970-01-01T00:00:19.999999Z | 33    |
        +----------------------+----------------------+-----------------------------+-------+
        "#
    );
}

#[test]
fn c19_sessions_of_a_batch_that_touch_stay_apart() {
    insta::assert_snapshot!(
        batch(
            "SELECT k, window_start, window_end, count(*) AS n
             FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end, k ORDER BY 1, 2"
        ),
        @r#"
        +---+--------------------------+--------------------------+---+
        | k | window_start             | window_end               | n |
        +---+--------------------------+--------------------------+---+
        | a | 1969-12-31T23:58:00Z     | 1969-12-31T23:58:10Z     | 1 |
        | a | 1969-12-31T23:58:59Z     | 1969-12-31T23:59:09Z     | 1 |
        | a | 1970-01-01T00:00:09Z     | 1970-01-01T00:00:22Z     | 2 |
        | b | 1970-01-01T00:00:00Z     | 1970-01-01T00:00:10Z     | 1 |
        | b | 1970-01-01T00:00:10Z     | 1970-01-01T00:00:20Z     | 1 |
        |   | 1970-01-01T00:00:04Z     | 1970-01-01T00:00:14Z     | 1 |
        |   | 1970-01-01T00:00:19.999Z | 1970-01-01T00:00:29.999Z | 1 |
        +---+--------------------------+--------------------------+---+
        "#
    );
}

#[test]
fn a_batch_knows_calendar_windows() {
    insta::assert_snapshot!(
        batch(
            "SELECT window_start, window_end, count(*) AS n
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 day', TIME_ZONE => 'Asia/Kolkata')
             GROUP BY window_start, window_end ORDER BY 1"
        ),
        @r#"
        +----------------------+----------------------+---+
        | window_start         | window_end           | n |
        +----------------------+----------------------+---+
        | 1969-12-31T18:30:00Z | 1970-01-01T18:30:00Z | 8 |
        +----------------------+----------------------+---+
        "#
    );
    insta::assert_snapshot!(
        batch("SELECT tumble(ts, INTERVAL '1 month') AS m, count(*) AS n FROM s GROUP BY m ORDER BY 2"),
        @r#"
        +----------------------------------------------------------+---+
        | m                                                        | n |
        +----------------------------------------------------------+---+
        | {start: 1969-12-01T00:00:00Z, end: 1970-01-01T00:00:00Z} | 2 |
        | {start: 1970-01-01T00:00:00Z, end: 1970-02-01T00:00:00Z} | 6 |
        +----------------------------------------------------------+---+
        "#
    );
}

#[test]
fn a_static_table_joins_the_rows() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, name, sum(v) AS total
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') AS t JOIN names AS d ON t.k = d.k AND t.v > 0
             WHERE name <> 'x' GROUP BY window_start, window_end, name"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: filter=v > 0, columns=[k, v, ts] <- #0
    #2 StaticJoin: Inner names, on=[k = k] <- #1
    #3 Rows: columns=[v, name, ts] <- #2
    #4 Window: TUMBLE size 10 seconds on @2, keys=[name AS name], aggregates=[sum(t.v)] <- #3
    #5 Versions: columns=[window_start, name, sum(t.v) AS total, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, name, total] keys=[name@1]
    "#
    );
}

#[test]
fn exists_and_in_test_a_static_table() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') AS t
             WHERE k IN (SELECT k FROM names WHERE name <> 'Bob') AND NOT EXISTS (SELECT 1 FROM names AS m WHERE m.name = t.pad)
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, pad]
    #1 Rows: columns=[k, pad, ts] <- #0
    #2 StaticJoin: Semi names, on=[k = k] <- #1
    #3 Rows: columns=[pad, ts] <- #2
    #4 StaticJoin: Anti names, on=[pad = name] <- #3
    #5 Rows: columns=[ts] <- #4
    #6 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #5
    #7 Versions: columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #6
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn a_left_join_from_the_table_side() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, name, count(*) AS n
             FROM names AS d RIGHT JOIN TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') AS t ON t.k = d.k
             GROUP BY window_start, window_end, name"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 StaticJoin: Left names, on=[k = k] <- #1
    #3 Rows: columns=[name, ts] <- #2
    #4 Window: TUMBLE size 10 seconds on @1, keys=[name AS name], aggregates=[count(Int64(1))] <- #3
    #5 Versions: columns=[window_start, name, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, name, n] keys=[name@1]
    "#
    );
}

#[test]
fn top_n_re_evaluates_the_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, k, n FROM (
                 SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rn FROM (
                     SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end, k))
             WHERE rn <= 2"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 WholeWindow: keys=[1] <- #2
    #4 Versions: columns=[window_start, k, n, window_start AS _window_start, __carried_2 AS _window_end, __carried_3 AS _event_count] <- #3
    select=[window_start, k, n] keys=[k@1]
    "#
    );
}

#[test]
fn distinct_and_a_second_aggregate_within_the_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, max(n) AS top, count(*) AS keys FROM (
                 SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end, k)
             GROUP BY window_start"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 WholeWindow: keys=[] <- #2
    #4 Versions: columns=[window_start, top, keys, window_start AS _window_start, __carried_1 AS _window_end, __carried_2 AS _event_count] <- #3
    select=[window_start, top, keys] keys=[]
    "#
    );
}

#[test]
fn the_plan_of_a_whole_window_runs() {
    let graph = graph(
        "SELECT k, n, rank() OVER (PARTITION BY window_end ORDER BY n DESC) AS place FROM (
             SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end, k)",
    );
    let (input, spec) = graph
        .nodes
        .iter()
        .find_map(|node| match &node.operator {
            Operator::WholeWindow(spec) => Some((node.inputs[0], spec)),
            _ => None,
        })
        .expect("OVER needs the whole window");
    let rows = |text: &str| crate::testing::table::parse(&graph.nodes[input].schema, text);
    let one = rows(
        "0 | 10 | a | 5 | 5
         0 | 10 | b | 9 | 9",
    );
    let first = spec.plan.evaluate(&one).expect("a plan over two rows");
    let again = spec.plan.evaluate(&one).expect("a plan that runs twice");
    assert_eq!(first, again, "no state is left from the window before");
    let shown = arrow::util::pretty::pretty_format_batches(&[first]).expect("printable").to_string();
    insta::assert_snapshot!(shown, @r#"
    +---+---+-------+----------------------+----------------------+-------------+
    | k | n | place | __carried_1          | __carried_2          | __carried_3 |
    +---+---+-------+----------------------+----------------------+-------------+
    | b | 9 | 1     | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 9           |
    | a | 5 | 2     | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 5           |
    +---+---+-------+----------------------+----------------------+-------------+
    "#);
}

#[test]
fn what_a_stream_cannot_do_is_refused_with_what_would_work() {
    const COUNTS: &str = "SELECT window_start, window_end, k, count(*) AS n
        FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end, k";
    let cases = [
        "SELECT k, count(*) FROM s GROUP BY k".to_owned(),
        "SELECT DISTINCT k FROM s".to_owned(),
        "SELECT k, row_number() OVER (ORDER BY v) FROM s".to_owned(),
        "SELECT a.k FROM s AS a JOIN s2 AS b ON a.k = b.k".to_owned(),
        format!("{COUNTS} ORDER BY n"),
        format!("{COUNTS} LIMIT 5"),
        format!("SELECT k, sum(n) FROM ({COUNTS}) GROUP BY k"),
        format!("SELECT k, rank() OVER (ORDER BY n) FROM ({COUNTS})"),
        format!("SELECT DISTINCT k FROM ({COUNTS})"),
        "SELECT window_start, now() AS at, count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour')
            GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') WHERE random() > 0.5
            GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT k, count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY k".to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(v), INTERVAL '1 hour') GROUP BY window_start, window_end".to_owned(),
        "SELECT count(*) FROM TUMBLE((SELECT arrow_cast(v, 'Timestamp(Microsecond, Some(\"UTC\"))') AS at, ts FROM s), \
         DESCRIPTOR(at), INTERVAL '1 hour') GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE((SELECT TIMESTAMP '2024-01-01' AS at FROM names), DESCRIPTOR(at), INTERVAL '1 hour') \
         GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(names, DESCRIPTOR(name), INTERVAL '1 hour') GROUP BY window_start, window_end".to_owned(),
        "SELECT window_start, k, count(*) FROM SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL '1 hour')
            GROUP BY window_start, window_end, k"
            .to_owned(),
        "SELECT window_start, count(*) FROM CUMULATE(s, DESCRIPTOR(ts), INTERVAL '1 hour', INTERVAL '1 day')
            GROUP BY window_start"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') WHERE ts < window_start + INTERVAL '5 minutes'
            GROUP BY window_start, window_end"
            .to_owned(),
        "SELECT count(*) FROM s GROUP BY tumble(ts, INTERVAL '1 hour'), hop(ts, INTERVAL '1 hour', INTERVAL '2 hours')"
            .to_owned(),
        "SELECT tumble(ts, INTERVAL '1 hour') FROM s".to_owned(),
        "SELECT missing FROM s".to_owned(),
        "SELECT k FROM missing".to_owned(),
        "SELECT k FROM names FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'".to_owned(),
        "SELECT k FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour')".to_owned(),
        "SELECT count(*) FROM TUMBLE((SELECT window_start, ts FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour')),
            DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start"
            .to_owned(),
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY CUBE(window_start, k)".to_owned(),
    ];
    let mut text = String::new();
    for sql in cases {
        let error = error(&sql);
        let hint = error.hint().unwrap_or("-");
        text += &format!("{:?}: {error}\n    hint: {hint}\n", error.kind());
    }
    insta::assert_snapshot!(text, @r#"
    Unsupported: aggregate over a stream without a window: it would never be complete
        hint: read FROM TUMBLE(TABLE source, DESCRIPTOR(event_time), INTERVAL '1 minute') and add window_start, window_end to GROUP BY
    Unsupported: DISTINCT before a window
        hint: GROUP BY the columns within the window
    Unsupported: OVER across windows
        hint: PARTITION BY window_start, window_end, or compute it when reading the view
    Unsupported: join of two streams
        hint: join with a table, or join the two views when reading them
    Unsupported: ORDER BY over the whole result of a stream
        hint: ORDER BY when reading the view
    Unsupported: LIMIT over the whole result of a stream
        hint: LIMIT when reading the view, or rank per window with row_number()
    Unsupported: aggregate across windows: `sum(n)`
        hint: group by window_start, window_end, put a second window over the results, or aggregate the view
    Unsupported: OVER across windows: `rank() ORDER BY [n ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW`
        hint: PARTITION BY window_start, window_end, or compute it when reading the view
    Unsupported: DISTINCT across windows
        hint: select window_start and window_end too, or use DISTINCT when reading the view
    Invalid: function `now()` in a view: it reads the clock or the session, so live and batch could not agree
        hint: use the event time, or a column of the row
    Invalid: function `random()` in a view: it gives another value each time, so live and batch could not agree
        hint: use the event time, or a column of the row
    Invalid: GROUP BY leaves out the window
        hint: add window_start, window_end to GROUP BY
    Invalid: a window over `s.v`, which is no time but Int64
        hint: declare the column TIMESTAMP(0), (3), (6) or (9) to read integers as s, ms, µs or ns
    Invalid: window over column `at`, which is not the source's event time `ts`
        hint: use ts, the column of the WATERMARK FOR clause
    Unsupported: streaming read of `names`, which is no source
        hint: declare it with CREATE SOURCE … WATERMARK FOR …, or leave out ALLOWED LATENESS and EMIT to run a batch query
    Invalid: a window over `names.name`, which is no time but Utf8View
        hint: declare the column TIMESTAMP(0), (3), (6) or (9) to read integers as s, ms, µs or ns
    Invalid: SESSION without PARTITION BY beside the keys k in GROUP BY
        hint: write SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap), or GROUP BY session(ts, gap), k
    Unsupported: GROUP BY window_start alone over CUMULATE, whose windows share a start
        hint: add window_end to GROUP BY
    Unsupported: predicate `s.ts < window_start + IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 300000000000 }` that compares columns of the row with those of its window
        hint: split it: conditions on the row in WHERE, conditions on the window in HAVING
    Unsupported: GROUP BY of two windows at line 1, column 33
        hint: declare one view per window
    Invalid: TUMBLE is not in GROUP BY at line 1, column 8
        hint: group by the same call, or use it in FROM
    Invalid: no column `missing` at line 1, column 8
        hint: there are ts, k, v, x, pad
    Invalid: table 'missing' not found at line 1, column 15
        hint: -
    Unsupported: FOR SYSTEM_TIME AS OF on `names`, which is no materialized view
        hint: only the results of a materialized view keep their past
    Unsupported: rows of a window without an aggregate over them
        hint: GROUP BY window_start, window_end
    Invalid: the input of TUMBLE already has a column `window_start` at line 1, column 22
        hint: give the inner window's columns other names with AS
    Unsupported: GROUPING SETS, CUBE and ROLLUP over a window
        hint: declare one view per grouping, or aggregate the view when reading it
    "#);
}

#[test]
fn explain_hides_no_default() {
    let query = parse(
        "SELECT window_start, k, count(*) AS n FROM HOP(s, DESCRIPTOR(ts), INTERVAL '1 minute', INTERVAL '1 hour')
         GROUP BY window_start, window_end, k
         ALLOWED LATENESS INTERVAL '90 minutes' ON LATE UPDATE MAX 10 UPDATES EMIT CHANGES EVERY INTERVAL '5 seconds'",
    );
    let text = run(planner().explain_stream(&query, "memory")).expect("a plan");
    insta::assert_snapshot!(text, @r#"
    streaming: rows are judged in arrival order
    watermark of s: ts AS ts - INTERVAL '5 seconds', idle timeout none
    window: HOP slide 1 minute, size 1 hour
    allowed lateness: 1 hour 30 minutes
    on late: UPDATE MAX 10 UPDATES
    on expired: SIDE OUTPUT
    emit: CHANGES EVERY 5 seconds
    state: memory
    operators:
      #0 Source: s, bounded, columns=[ts (event time), k]
      #1 Rows: columns=[k, ts] <- #0
      #2 Window: HOP slide 1 minute, size 1 hour on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
      #3 Versions: columns=[window_start, k, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    "#);
    let plain =
        parse("SELECT window_end, count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_end");
    insta::assert_snapshot!(run(planner().explain_stream(&plain, "memory")).expect("a plan"), @r#"
    streaming: rows are judged in arrival order
    watermark of s: ts AS ts - INTERVAL '5 seconds', idle timeout none
    window: TUMBLE size 1 hour
    allowed lateness: 0 seconds
    on late: no row is late: L is zero
    on expired: SIDE OUTPUT
    emit: ON WINDOW CLOSE
    state: memory
    operators:
      #0 Source: s, bounded, columns=[ts (event time)]
      #1 Window: TUMBLE size 1 hour on @0, keys=[], aggregates=[count(Int64(1))] <- #0
      #2 Versions: columns=[@1 AS window_end, @2 AS count(*), window_start AS _window_start, @1 AS _window_end, _event_count] <- #1
    "#);
}

#[test]
fn clauses_that_could_do_nothing_are_refused() {
    const COUNT: &str =
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start, window_end";
    let mut text = String::new();
    for clauses in [
        "ON LATE DROP",
        "ALLOWED LATENESS INTERVAL '1 month'",
        "ALLOWED LATENESS INTERVAL '1 hour' ON LATE RECOMPUTE",
        "ON EXPIRED RECOMPUTE",
        "EMIT CHANGES EVERY INTERVAL '0 seconds'",
    ] {
        let error = match crate::sql::parse_one(&format!("{COUNT} {clauses}")) {
            Err(error) => error,
            Ok(_) => error(&format!("{COUNT} {clauses}")),
        };
        text += &format!("{error}\n    hint: {}\n", error.hint().unwrap_or("-"));
    }
    insta::assert_snapshot!(text, @r#"
    ON LATE without ALLOWED LATENESS: no row would ever be late, only expired at line 1, column 101
        hint: add ALLOWED LATENESS INTERVAL '1 hour', or use ON EXPIRED
    ALLOWED LATENESS must be a length of days or less, not negative at line 1, column 101
        hint: months differ in length: say 30 days
    ON LATE RECOMPUTE without a batch location to compute from at line 1, column 136
        hint: give the source batch_location = '…' in WITH ( … )
    ON EXPIRED RECOMPUTE without a batch location to compute from at line 1, column 101
        hint: give the source batch_location = '…' in WITH ( … )
    EVERY must be above zero, is `0 seconds` at line 1, column 120
        hint: -
    "#);
}

#[test]
fn a_query_streams_by_its_clauses_or_its_source() {
    let streams = |sql: &str| run(planner().is_streaming(&parse(sql))).expect("a plan");
    assert!(!streams("SELECT count(*) FROM s"), "bounded, no clause");
    assert!(streams(
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_end EMIT CHANGES"
    ));
    assert!(!streams("SELECT count(*) FROM names"));
}

#[test]
fn c72_float_keys_are_one_group_per_number() {
    insta::assert_snapshot!(
        plan("SELECT window_start, x, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start, window_end, x"),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), x]
    #1 Rows: columns=[x, ts] <- #0
    #2 Window: TUMBLE size 1 hour on @1, keys=[CASE WHEN isnan(x) THEN NaN ELSE x + 0 END AS x], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, x, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, x, n] keys=[x@1]
    "#
    );
    insta::assert_snapshot!(
        batch("SELECT f, count(*) AS n FROM (VALUES (-0.0::double), (0.0::double), ('NaN'::double), (-('NaN'::double))) AS t(f) GROUP BY f ORDER BY 1"),
        @r#"
        +-----+---+
        | f   | n |
        +-----+---+
        | 0.0 | 2 |
        | NaN | 2 |
        +-----+---+
        "#
    );
}

#[test]
fn an_integer_sum_never_wraps() {
    let rows = "(VALUES (9223372036854775807, 9223372036854775807), (1, -1)) AS t(v, w)";
    insta::assert_snapshot!(
        batch(&format!("SELECT sum(w) AS fits FROM {rows}")),
        @r#"
        +---------------------+
        | fits                |
        +---------------------+
        | 9223372036854775806 |
        +---------------------+
        "#
    );
    let error = batch_rows(&format!("SELECT sum(v) AS total FROM {rows}")).expect_err("it does not fit");
    assert_eq!(error.kind(), crate::ErrorKind::Data);
    assert!(error.message().contains("a sum is 9223372036854775808, which does not fit BIGINT"), "{error}");
}

#[test]
fn aggregates_that_depend_on_order_follow_arrival() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, first_value(v) AS first, array_agg(v ORDER BY x) AS all FROM (
                 SELECT ts, v, x FROM s UNION ALL SELECT ts, v, x FROM s2) GROUP BY tumble(ts, INTERVAL '1 hour')"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), v, x, _split, _offset]
    #1 Rows: columns=[ts, v, x, 0 AS __source, __split, __offset] <- #0
    #2 Source: s2, bounded, columns=[ts (event time), v, x, _split, _offset]
    #3 Rows: columns=[ts, v, x, 1 AS __source, __split, __offset] <- #2
    #4 Union <- #1, #3
    #5 Window: TUMBLE size 1 hour on @0, keys=[], aggregates=[first_value(v) ORDER BY [ts ASC NULLS LAST, __source ASC NULLS LAST, __split ASC NULLS LAST, __offset ASC NULLS LAST], array_agg(v) ORDER BY [x ASC NULLS LAST, ts ASC NULLS LAST, __source ASC NULLS LAST, __split ASC NULLS LAST, __offset ASC NULLS LAST]] <- #4
    #6 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS highwater_window(Int64(0),ts), first_value(v), array_agg(v) ORDER BY [x ASC NULLS LAST], window_start, window_end, _event_count] <- #5
    #7 Versions: columns=[get_field(highwater_window(Int64(0),ts), 'start') AS window_start, first_value(v) AS first, array_agg(v) ORDER BY [x ASC NULLS LAST] AS all, window_start AS _window_start, window_end AS _window_end, _event_count] <- #6
    select=[window_start, first, all] keys=[]
    "#
    );
}
