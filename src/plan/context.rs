//! A query's names, resolved before DataFusion plans it.
//!
//! DataFusion plans synchronously and catalogs answer asynchronously, so every relation a query names is looked up first:
//! sources and macro views of ours, results of views (at a time, if `FOR SYSTEM_TIME AS OF` asks for one), then the
//! session's own tables.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableFunctionArgs;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, Result as DfResult, TableReference, plan_datafusion_err};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{
    ContextProvider, ExprPlanner, PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
    TypePlanner,
};
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion::sql::planner::{ParserOptions, SqlToRel, object_name_to_table_reference};
use datafusion::sql::sqlparser::ast::{self, ObjectName, Spanned as _, TableFactor, TableVersion};
use futures::future::BoxFuture;

use super::CatalogView;
use super::error::{external, from_datafusion};
use super::types::InstantTypes;
use super::{group_window, window_call};
use crate::error::{Error, Position, Result};
use crate::sql::position_of;
use crate::sql::walk::{Look, Step, look};

/// Where relations that tell of the engine itself are.
const SYSTEM_SCHEMA: &str = "system";

/// Macro views may use each other this deep.
const MACRO_DEPTH_MAX: usize = 32;

/// Plans `query`; nothing is analysed or optimised yet.
pub(super) fn query_to_plan<'a>(
    query: &'a ast::Query,
    catalog: &'a dyn CatalogView,
    state: &'a SessionState,
    depth: usize,
) -> BoxFuture<'a, Result<LogicalPlan>> {
    Box::pin(async move {
        if depth > MACRO_DEPTH_MAX {
            return Err(Error::invalid("views refer to each other in a circle, or too deep"));
        }
        let mut context = QueryContext::new(state);
        let relations = relations_of(query)?;
        for relation in &relations {
            context.resolve(relation, catalog, depth).await.map_err(|error| error.or_at(relation.position))?;
        }
        let mut marked = query.clone();
        let calls = group_window::mark(&mut marked)?;
        let statement = ast::Statement::Query(Box::new(marked));
        let plan = SqlToRel::new_with_options(&context, parser_options(state))
            .statement_to_plan(datafusion::sql::parser::Statement::Statement(Box::new(statement)))
            .map_err(|error| located(from_datafusion(error), query, &relations))?;
        group_window::assign(plan, &calls)
    })
}

/// `error` with the place of the name it is about, where DataFusion did not note it.
fn located(error: Error, query: &ast::Query, relations: &[Relation]) -> Error {
    struct Named<'a>(&'a str, Option<Position>);
    impl Look for Named<'_> {
        fn expr(&mut self, expr: &ast::Expr) -> Step {
            let last = match expr {
                ast::Expr::Identifier(name) => Some(name),
                ast::Expr::CompoundIdentifier(names) => names.last(),
                _ => None,
            };
            // The last: what is selected is found by DataFusion, and it does not note what rows are ordered by.
            if let Some(name) = last.filter(|name| name.value.eq_ignore_ascii_case(self.0)) {
                self.1 = position_of(name.span).or(self.1);
            }
            Step::Continue(())
        }
    }
    let quoted = |quote: char| error.message().split(quote).nth(1).unwrap_or_default().to_owned();
    let table = relations.iter().find(|relation| relation.name.to_string() == quoted('\''));
    let column = quoted('`');
    let mut named = Named(column.rsplit('.').next().unwrap_or_default(), None);
    let place = match table {
        Some(table) => table.position,
        None if error.position().is_none() => look(query, &mut named).ok().and(named.1),
        None => None,
    };
    error.or_at(place)
}

/// Plans one expression over `schema`, for computed columns and watermarks.
pub(super) fn expr_to_logical(expr: &ast::Expr, schema: &DFSchema, state: &SessionState) -> Result<Expr> {
    let context = QueryContext::new(state);
    SqlToRel::new_with_options(&context, parser_options(state))
        .sql_to_expr(expr.clone(), schema, &mut datafusion::sql::planner::PlannerContext::new())
        .map_err(from_datafusion)
}

/// The Arrow field of a SQL type, as CAST would see it.
pub(super) fn type_of(sql_type: &ast::DataType, state: &SessionState) -> Result<DataType> {
    let cast = ast::Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(ast::Expr::Value(ast::Value::Null.into())),
        data_type: sql_type.clone(),
        array: false,
        format: None,
    };
    match expr_to_logical(&cast, &DFSchema::empty(), state)? {
        Expr::Cast(cast) => Ok(cast.field.data_type().clone()),
        other => Err(Error::internal(format!("type of `{sql_type}` planned as `{other}`"))),
    }
}

fn parser_options(state: &SessionState) -> ParserOptions {
    let options = &state.config_options().sql_parser;
    ParserOptions::new()
        .with_parse_float_as_decimal(options.parse_float_as_decimal)
        .with_enable_ident_normalization(options.enable_ident_normalization)
        .with_support_varchar_with_length(options.support_varchar_with_length)
        .with_map_string_types_to_utf8view(options.map_string_types_to_utf8view)
        .with_collect_spans(true)
}

/// A relation a query names.
#[derive(Debug, Clone)]
struct Relation {
    name: TableReference,
    as_of: Option<ast::Expr>,
    /// Where it is named, or the time it is asked at.
    position: Option<Position>,
}

fn relations_of(query: &ast::Query) -> Result<Vec<Relation>> {
    struct Names(Vec<Relation>, BTreeSet<String>);
    impl Names {
        fn add(&mut self, name: &ObjectName, as_of: Option<ast::Expr>) -> Step {
            let position = position_of(as_of.as_ref().map_or_else(|| name.span(), ast::Spanned::span));
            match object_name_to_table_reference(name.clone(), true) {
                Ok(name) => {
                    let key = versioned_name(&name, as_of.as_ref());
                    if self.1.insert(key) {
                        self.0.push(Relation { name, as_of, position });
                    }
                    Step::Continue(())
                }
                Err(e) => Step::Break(Box::new(from_datafusion(e))),
            }
        }
    }
    impl Look for Names {
        fn table_factor(&mut self, factor: &TableFactor) -> Step {
            if let Some(name) = window_call::input_name(factor) {
                return self.add(&name, None);
            }
            match factor {
                TableFactor::Table { name, args: None, version, .. } => {
                    let as_of = match version {
                        Some(TableVersion::ForSystemTimeAsOf(expr)) => Some(expr.clone()),
                        _ => None,
                    };
                    self.add(name, as_of)
                }
                _ => Step::Continue(()),
            }
        }
    }
    let mut names = Names(Vec::new(), BTreeSet::new());
    look(query, &mut names)?;
    Ok(names.0)
}

fn versioned_name(name: &TableReference, as_of: Option<&ast::Expr>) -> String {
    match as_of {
        Some(expr) => format!("{name} as of {expr}"),
        None => name.to_string(),
    }
}

/// Answers DataFusion's planner from what was looked up.
struct QueryContext<'a> {
    state: &'a SessionState,
    tables: HashMap<String, Arc<dyn TableSource>>,
    versions: Arc<Versions>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
}

/// Result relations at a time, by [`versioned_name`].
#[derive(Default)]
struct Versions(std::sync::Mutex<HashMap<String, Arc<dyn TableSource>>>);

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").finish_non_exhaustive()
    }
}

impl<'a> QueryContext<'a> {
    fn new(state: &'a SessionState) -> Self {
        let versions = Arc::new(Versions::default());
        let mut relation_planners: Vec<Arc<dyn RelationPlanner>> =
            vec![Arc::new(window_call::WindowPlanner), Arc::new(VersionPlanner { versions: Arc::clone(&versions) })];
        relation_planners.extend(state.relation_planners().iter().cloned());
        Self { state, tables: HashMap::new(), versions, relation_planners }
    }

    async fn resolve(&mut self, relation: &Relation, catalog: &dyn CatalogView, depth: usize) -> Result<()> {
        let key = versioned_name(&relation.name, relation.as_of.as_ref());
        if let Some(expr) = &relation.as_of {
            let at_us = self.constant_instant(expr)?;
            let name = relation.name.to_string();
            let table = match &relation.name {
                TableReference::Bare { table } => catalog.relation(table, Some(at_us)).await?,
                _ => None,
            };
            let table = table.ok_or_else(|| {
                Error::unsupported(format!("FOR SYSTEM_TIME AS OF on `{name}`, which is no materialized view"))
                    .with_hint("only the results of a materialized view keep their past")
            })?;
            self.versions.0.lock().expect("no panic while held").insert(key, provider_as_source(table));
            return Ok(());
        }
        if let TableReference::Bare { table } = &relation.name {
            if let Some(source) = catalog.source(table) {
                self.tables.insert(key, provider_as_source(source));
                return Ok(());
            }
            if let Some(query) = catalog.macro_view(table) {
                let plan = query_to_plan(&query, catalog, self.state, depth + 1).await?;
                self.tables.insert(key, provider_as_source(Arc::new(ViewTable::new(plan, None))));
                return Ok(());
            }
            if let Some(table) = catalog.relation(table, None).await? {
                self.tables.insert(key, provider_as_source(table));
                return Ok(());
            }
        }
        if let TableReference::Partial { schema, .. } = &relation.name
            && &**schema == SYSTEM_SCHEMA
            && let Some(table) = catalog.relation(&relation.name.to_string(), None).await?
        {
            self.tables.insert(key, provider_as_source(table));
            return Ok(());
        }
        if let Ok(schema) = self.state.schema_for_ref(relation.name.clone())
            && let Some(table) = schema.table(relation.name.table()).await.map_err(from_datafusion)?
        {
            self.tables.insert(key, provider_as_source(table));
        }
        Ok(())
    }

    /// The instant `expr` stands for, µs.
    fn constant_instant(&self, expr: &ast::Expr) -> Result<i64> {
        let planned = SqlToRel::new_with_options(self, parser_options(self.state))
            .sql_to_expr(expr.clone(), &DFSchema::empty(), &mut datafusion::sql::planner::PlannerContext::new())
            .map_err(from_datafusion)?;
        super::constant::instant(planned, self.state)
    }
}

/// Plans `t FOR SYSTEM_TIME AS OF x`.
#[derive(Debug)]
struct VersionPlanner {
    versions: Arc<Versions>,
}

impl RelationPlanner for VersionPlanner {
    fn plan_relation(&self, relation: TableFactor, _: &mut dyn RelationPlannerContext) -> DfResult<RelationPlanning> {
        let TableFactor::Table { name, alias, version: Some(version), .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let TableVersion::ForSystemTimeAsOf(expr) = version else {
            return Err(external(
                Error::unsupported(format!("`{version}` after a table")).with_hint("write FOR SYSTEM_TIME AS OF t"),
            ));
        };
        let reference = object_name_to_table_reference(name.clone(), true)?;
        let key = versioned_name(&reference, Some(expr));
        let source = self.versions.0.lock().expect("no panic while held").get(&key).cloned();
        let source = source.ok_or_else(|| plan_datafusion_err!("table '{reference}' not found"))?;
        let plan = datafusion::logical_expr::LogicalPlanBuilder::scan(reference, source, None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

impl ContextProvider for QueryContext<'_> {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        self.tables.get(&name.to_string()).cloned().ok_or_else(|| plan_datafusion_err!("table '{name}' not found"))
    }

    fn get_file_type(&self, ext: &str) -> DfResult<Arc<dyn datafusion::common::file_options::file_type::FileType>> {
        let factory = self.state.get_file_format_factory(ext);
        let factory = factory.ok_or_else(|| plan_datafusion_err!("no file format `{ext}`"))?;
        Ok(datafusion::datasource::file_format::format_as_file_type(factory))
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> DfResult<Arc<dyn TableSource>> {
        let function = self.state.table_functions().get(name);
        let function = function.ok_or_else(|| plan_datafusion_err!("table function '{name}' not found"))?;
        let args = args.into_iter().map(|arg| super::constant::fold(arg, self.state)).collect::<DfResult<Vec<_>>>()?;
        Ok(provider_as_source(function.create_table_provider_with_args(TableFunctionArgs::new(&args, self.state))?))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> DfResult<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(InstantTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if group_window::is_marker(name) {
            return Some(Arc::clone(&group_window::MARKER_FUNCTION));
        }
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
