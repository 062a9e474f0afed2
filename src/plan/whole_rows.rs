//! Planning for a view, which keeps refused rows whole: every column of its sources is read, not only those it needs.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::ast;

use super::{CatalogView, Planner, SourceTable};
use crate::error::Result;
use crate::operators::graph::OperatorGraph;
use crate::sql::statement::StreamQuery;

impl Planner {
    /// As [`Planner::plan_stream`], for a query whose refused rows are kept in `$late`.
    ///
    /// # Errors
    ///
    /// As [`Planner::plan_stream`].
    pub async fn plan_view(&self, query: &StreamQuery) -> Result<OperatorGraph> {
        let catalog = Arc::new(WholeRows(Arc::clone(&self.catalog)));
        Self { catalog, state: self.state.clone() }.plan_stream(query).await
    }
}

/// A catalog whose sources are read whole.
#[derive(Debug)]
struct WholeRows(Arc<dyn CatalogView>);

#[async_trait]
impl CatalogView for WholeRows {
    fn source(&self, name: &str) -> Option<Arc<SourceTable>> {
        self.0.source(name).map(|table| Arc::new(Arc::unwrap_or_clone(table).with_whole_rows()))
    }

    fn macro_view(&self, name: &str) -> Option<Arc<ast::Query>> {
        self.0.macro_view(name)
    }

    async fn relation(&self, name: &str, as_of_us: Option<i64>) -> Result<Option<Arc<dyn TableProvider>>> {
        self.0.relation(name, as_of_us).await
    }
}
