//! Rows that an expression fails on, in a batch run: set aside, as a stream does (T8).
//!
//! DataFusion's operators fail with the first such row. So where an operator below a window has an expression that may fail,
//! the rows it fails on are taken out right before:
//!
//! ```text
//!  AggregateExec  sum(price / qty)             AggregateExec  sum(price / qty)
//!   DataSourceExec                   ─►         FailingRowsExec  price / qty
//!                                                DataSourceExec
//! ```

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::take_record_batch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr, TryCastExpr,
};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::StreamExt;

use super::error::external;
use crate::operators::eval::{evaluate_all, set_failures_aside};

/// `plan`, which is of rows only, with the rows taken out that an expression in it fails on.
pub(super) fn set_aside(plan: Arc<dyn ExecutionPlan>) -> DfResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let exprs: Vec<_> = expressions(node.as_ref()).into_iter().filter(may_fail).collect();
        if exprs.is_empty() {
            return Ok(Transformed::no(node));
        }
        let [input] = node.children()[..] else { return Ok(Transformed::no(node)) };
        let guarded = Arc::new(FailingRowsExec { exprs: exprs.into(), input: Arc::clone(input) });
        let recomputed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        node.replace_children(vec![guarded], recomputed).map(Transformed::yes)
    })
    .map(|t| t.data)
}

/// What `node` computes of each row.
fn expressions(node: &dyn ExecutionPlan) -> Vec<Arc<dyn PhysicalExpr>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return vec![Arc::clone(filter.predicate())];
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return projection.expr().iter().map(|column| Arc::clone(&column.expr)).collect();
    }
    match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) if aggregate.mode().input_mode() == AggregateInputMode::Raw => {
            let keys = aggregate.group_expr().expr().iter().map(|(key, _)| Arc::clone(key));
            let filters = aggregate.filter_expr().iter().flatten().cloned();
            let calls = aggregate.aggr_expr().iter();
            let arguments = calls.flat_map(|call| {
                let order = call.order_bys().iter().map(|sort| Arc::clone(&sort.expr));
                call.expressions().into_iter().chain(order.collect::<Vec<_>>())
            });
            keys.chain(filters).chain(arguments).collect()
        }
        _ => vec![],
    }
}

/// Whether `expr` may have no value for some row.
fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let always_works = |expr: &Arc<dyn PhysicalExpr>| {
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
            let op = binary.op();
            return matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom);
        }
        expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<IsNullExpr>()
            || expr.is::<IsNotNullExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<InListExpr>()
            || expr.is::<LikeExpr>()
            || expr.is::<CaseExpr>()
            || expr.is::<TryCastExpr>()
    };
    expr.exists(|expr| Ok(!always_works(expr))).unwrap_or(true)
}

/// The rows of its input that all of its expressions have a value for.
#[derive(Debug, Clone)]
struct FailingRowsExec {
    exprs: Arc<[Arc<dyn PhysicalExpr>]>,
    input: Arc<dyn ExecutionPlan>,
}

impl FailingRowsExec {
    fn good(exprs: &[Arc<dyn PhysicalExpr>], rows: RecordBatch) -> DfResult<RecordBatch> {
        let work = |rows: &RecordBatch| evaluate_all(exprs, rows).map(drop);
        if work(&rows).is_ok() {
            return Ok(rows);
        }
        let sorted = set_failures_aside(&rows, work).map_err(external)?;
        Ok(take_record_batch(&rows, &sorted.good)?)
    }
}

impl DisplayAs for FailingRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exprs: Vec<String> = self.exprs.iter().map(ToString::to_string).collect();
        write!(f, "FailingRowsExec: expr=[{}]", exprs.join(", "))
    }
}

impl ExecutionPlan for FailingRowsExec {
    fn name(&self) -> &'static str {
        "FailingRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        let mut next = TreeNodeRecursion::Continue;
        for expr in self.exprs.iter() {
            next = next.visit_sibling(|| f(expr))?;
        }
        Ok(next)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("FailingRowsExec has one input");
        };
        Ok(Arc::new(Self { exprs: Arc::clone(&self.exprs), input }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let exprs = Arc::clone(&self.exprs);
        let rows = self.input.execute(partition, context)?.map(move |rows| Self::good(&exprs, rows?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
