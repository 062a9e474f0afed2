//! Stands for a part of the plan that has been lowered already.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchemaRef, Result as DfResult, TableReference, internal_err};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::source_table::unqualified;

/// The results of a windowed aggregate, as a table of columns named by their position.
#[derive(Debug)]
pub(super) struct LeafTable {
    /// Index into the lowering's leaves.
    pub id: usize,
    schema: SchemaRef,
}

impl LeafTable {
    /// A scan of leaf `id` under the names of `logical`.
    pub fn scan(id: usize, logical: &DFSchemaRef) -> DfResult<LogicalPlan> {
        let named = |i: usize| format!("#{i}");
        let fields: Vec<_> =
            logical.fields().iter().enumerate().map(|(i, f)| f.as_ref().clone().with_name(named(i))).collect();
        let table = Arc::new(Self { id, schema: Arc::new(Schema::new(fields)) });
        let columns: Vec<Expr> = logical
            .iter()
            .enumerate()
            .map(|(i, (qualifier, field))| unqualified(&named(i)).alias_qualified(qualifier.cloned(), field.name()))
            .collect();
        LogicalPlanBuilder::scan(TableReference::bare(format!("#{id}")), provider_as_source(table), None)?
            .project(columns)?
            .build()
    }
}

#[async_trait]
impl TableProvider for LeafTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        internal_err!("a lowered part of a plan is not read as a table")
    }
}
