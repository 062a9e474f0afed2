//! Planning as if a name had another definition already, so that a mistake in what depends on it is found before anything is
//! dropped.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::ast;

use super::{CatalogView, Planner, SourceTable};
use crate::error::Result;

impl Planner {
    /// A planner for which `name` is `source`, or not there, and everything else what it is.
    pub fn with_replaced(&self, name: &str, source: Option<Arc<SourceTable>>) -> Self {
        let replaced = Replaced { catalog: Arc::clone(&self.catalog), name: name.to_owned(), source };
        Self { catalog: Arc::new(replaced), state: self.state.clone() }
    }
}

/// A catalog in which one name is something else.
#[derive(Debug)]
struct Replaced {
    catalog: Arc<dyn CatalogView>,
    name: String,
    source: Option<Arc<SourceTable>>,
}

#[async_trait]
impl CatalogView for Replaced {
    fn source(&self, name: &str) -> Option<Arc<SourceTable>> {
        if name == self.name { self.source.clone() } else { self.catalog.source(name) }
    }

    fn macro_view(&self, name: &str) -> Option<Arc<ast::Query>> {
        if name == self.name { None } else { self.catalog.macro_view(name) }
    }

    async fn relation(&self, name: &str, as_of_us: Option<i64>) -> Result<Option<Arc<dyn TableProvider>>> {
        let owner = name.rsplit_once('$').map_or(name, |(owner, _)| owner);
        if owner == self.name { Ok(None) } else { self.catalog.relation(name, as_of_us).await }
    }
}
