//! Plans of whole queries: what is computed where, and what is refused.

mod batch;
mod refused;
mod stream;

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
