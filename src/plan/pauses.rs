//! Joins pause.
//!
//! DataFusion's plans pause where rows are read: after so many batches of input a task lets others run. A join makes many
//! batches of one, hours of them without a pause where it is the product of two tables, and for so long a query could not be
//! stopped and kept a thread from live views. So a join pauses after so many batches of its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;

/// Makes what reads two inputs, and an UNNEST, count its batches and pause.
#[derive(Debug)]
pub struct PausingJoins;

impl PhysicalOptimizerRule for PausingJoins {
    fn name(&self) -> &str {
        "PausingJoins"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let pausing = |plan: Arc<dyn ExecutionPlan>| match multiplies(plan.name()) {
            true => Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>)),
            false => Ok(Transformed::no(plan)),
        };
        plan.transform_up(pausing).data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a node of this name can make many batches of one.
fn multiplies(name: &str) -> bool {
    name == "UnnestExec" || name.ends_with("JoinExec")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Engine;

    /// Without pauses the query is at its end before anybody looks at the clock.
    #[tokio::test]
    async fn a_join_that_takes_long_can_be_left() {
        let engine = Engine::builder().in_memory().workers(1).build().await.unwrap();
        let product = "SELECT max(a.value + b.value) FROM generate_series(1, 20000) a, generate_series(1, 1000000) b";
        let rows = engine.sql(product).await.unwrap().collect();
        tokio::time::timeout(Duration::from_millis(50), rows).await.expect_err("the clock is looked at");
    }
}
