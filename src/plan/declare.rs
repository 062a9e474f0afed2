//! `CREATE SOURCE`, resolved: types, computed columns, the watermark, the options that are the engine's.
//!
//! It happens in two steps, because a connector may know its columns better than the statement:
//! [`Planner::source_definition`] says what the connector gets, [`Planner::source_table`] makes the table over what the
//! connector then offers.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast;

use super::checked;
use super::context::{expr_to_logical, type_of};
use super::error::{from_datafusion, with_sql_types};
use super::policy::micros;
use super::refuse::impure;
use super::source_table::without_qualifiers;
use super::window_node::instant_type;
use super::{ColumnValue, Planner, SourceLimits, SourceTable, TableColumn, TableWatermark};
use crate::connectors::definition::{ColumnDefinition, SourceDefinition, parse_duration};
use crate::connectors::{Boundedness, Options, Source};
use crate::error::{Error, Position, Result, nearest};
use crate::sql::statement::{ColumnKind, CreateSource, Interval, Spanned, Watermark, WatermarkStrategy};
use crate::time::HOUR_US;
use crate::watermark::{Strategy, WatermarkSpec};

/// Names that the engine adds to rows and results.
const RESERVED: [&str; 6] = ["_split", "_offset", "_seq", "window_start", "window_end", "window_time"];

impl Planner {
    /// What the connector of `create` gets: columns of the row and of metadata with their types, options, zone.
    ///
    /// # Errors
    ///
    /// `Invalid` for a column declared twice or an unknown zone, `Unsupported` for a type we cannot read.
    pub fn source_definition(&self, create: &CreateSource) -> Result<SourceDefinition> {
        let mut columns = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for column in &create.columns {
            let name = column.name.node.as_str();
            if names.contains(&name) {
                return Err(Error::invalid(format!("column `{name}` is declared twice")).at(column.name.position));
            }
            if RESERVED.contains(&name) {
                return Err(Error::invalid(format!("column `{name}` has the name of one the engine adds"))
                    .with_hint("give it another name")
                    .at(column.name.position));
            }
            names.push(name);
            let mut definition = match &column.kind {
                ColumnKind::Computed(_) => continue,
                ColumnKind::Physical(sql_type) => self.column(name, sql_type, column.name.position)?,
                ColumnKind::Metadata { data_type, key } => {
                    self.column(name, data_type, column.name.position)?.with_metadata(key)
                }
            };
            definition.not_null = column.not_null;
            columns.push(definition);
        }
        let definition = SourceDefinition::new(&create.name.node, columns, create.options.clone());
        match create.options.get("time_zone") {
            None => Ok(definition),
            Some(name) => {
                let zone = jiff::tz::TimeZone::get(name).map_err(|e| {
                    Error::invalid(format!("no time zone `{name}`"))
                        .with_hint("use a name such as 'Europe/Berlin'")
                        .with_source(e)
                })?;
                Ok(definition.with_zone(zone))
            }
        }
    }

    fn column(&self, name: &str, sql_type: &ast::DataType, position: Position) -> Result<ColumnDefinition> {
        let data_type =
            type_of(sql_type, &self.state).map_err(|e| if e.position().is_none() { e.at(position) } else { e })?;
        Ok(ColumnDefinition::new(name, data_type))
    }

    /// The table that `create` declares over `source`, which was made from [`Planner::source_definition`].
    ///
    /// # Errors
    ///
    /// `Invalid` if an expression does not fit the columns, or the watermark is not about its column; `Internal` if the
    /// source lacks a declared column.
    pub fn source_table(&self, create: &CreateSource, source: Arc<dyn Source>) -> Result<SourceTable> {
        let mut columns = physical_columns(create, source.as_ref())?;
        compute(create, source.as_ref(), &mut columns, &self.state)?;
        if let Some(taken) = columns.iter().find(|c| RESERVED.contains(&c.field.name().as_str())) {
            return Err(Error::invalid(format!("column `{}` has the name of one the engine adds", taken.field.name()))
                .with_hint("list the columns in CREATE SOURCE and rename it there")
                .at(create.name.position));
        }
        let watermark = match &create.watermark {
            Some(declared) => Some(watermark(declared, &columns, &self.state)?),
            None => None,
        };
        let limits = limits(&create.options, source.boundedness())?;
        let table = SourceTable::new(&create.name.node, source, columns, watermark, limits);
        Ok(match parquet_path(&create.options) {
            Some(path) => table.with_parquet(path),
            None => table,
        })
    }
}

/// The path of a source that is made of Parquet files and does not follow them.
fn parquet_path(options: &Options) -> Option<&String> {
    let connector = options.get("connector")?;
    let path = options.get("path")?;
    let is_file = ["file", "filesystem"].iter().any(|name| connector.eq_ignore_ascii_case(name));
    let is_parquet = match options.get("format") {
        Some(format) => format.eq_ignore_ascii_case("parquet"),
        None => path.to_ascii_lowercase().ends_with(".parquet"),
    };
    let follows = options.contains_key("follow") || options.contains_key("source.monitor-interval");
    (is_file && is_parquet && !follows).then_some(path)
}

/// Declared columns that the connector reads, in declared order, with places held for computed ones; all the connector's
/// columns if none is declared.
fn physical_columns(create: &CreateSource, source: &dyn Source) -> Result<Vec<TableColumn>> {
    let schema = source.schema();
    let declares_none = create.columns.iter().all(|c| matches!(c.kind, ColumnKind::Computed(_)));
    let physical =
        |index: usize| TableColumn { field: Arc::clone(&schema.fields()[index]), value: ColumnValue::Physical(index) };
    if declares_none {
        return Ok((0..schema.fields().len()).map(physical).collect());
    }
    create
        .columns
        .iter()
        .filter(|column| !matches!(column.kind, ColumnKind::Computed(_)))
        .map(|column| match schema.index_of(&column.name.node) {
            Ok(index) => Ok(physical(index)),
            Err(e) => Err(Error::internal(format!("source lacks its declared column `{}`", column.name.node))
                .at(column.name.position)
                .with_source(e)),
        })
        .collect()
}

/// Adds the computed columns, each where it was declared. A later one may use an earlier one.
fn compute(
    create: &CreateSource,
    source: &dyn Source,
    columns: &mut Vec<TableColumn>,
    state: &SessionState,
) -> Result<()> {
    let base = DFSchema::try_from(source.schema()).map_err(from_datafusion)?;
    for (place, declared) in create.columns.iter().enumerate() {
        let ColumnKind::Computed(sql) = &declared.kind else { continue };
        let name = &declared.name.node;
        if columns.iter().any(|c| c.field.name() == name) {
            return Err(Error::invalid(format!("column `{name}` is declared twice")).at(declared.name.position));
        }
        let at = |e: Error| if e.position().is_none() { e.at(declared.name.position) } else { e };
        let visible = DFSchema::try_from(schema_of(columns)).map_err(from_datafusion)?;
        let expr = resolve(sql, &visible, state).map_err(at)?;
        let expr = inline(expr, columns)?;
        let (_, field) = expr.to_field(&base).map_err(from_datafusion)?;
        let (expr, data_type) = match field.data_type() {
            DataType::Timestamp(_, _) => (as_instant(expr, &base)?, instant_type()),
            other => (expr, other.clone()),
        };
        let field = Arc::new(Field::new(name, data_type, field.is_nullable() && !declared.not_null));
        let column = TableColumn { field, value: ColumnValue::Computed(expr) };
        columns.insert(place.min(columns.len()), column);
    }
    Ok(())
}

fn schema_of(columns: &[TableColumn]) -> Schema {
    Schema::new(columns.iter().map(|c| Arc::clone(&c.field)).collect::<Vec<FieldRef>>())
}

/// Plans `sql` over `schema`, coerces its types, folds its constants, and refuses what is no function of the row.
fn resolve(sql: &ast::Expr, schema: &DFSchema, state: &SessionState) -> Result<Expr> {
    let expr = expr_to_logical(sql, schema, state)?;
    if let Some(error) = impure(&expr) {
        return Err(error);
    }
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(state.config_options()))
        .build();
    let simplifier = ExprSimplifier::new(context);
    let expr = simplifier.coerce(expr, schema).and_then(|e| checked::in_expr(e, schema)).map_err(from_datafusion)?;
    simplifier.simplify(expr.data).and_then(without_qualifiers).map_err(from_datafusion)
}

/// Replaces computed columns by what they are computed from.
fn inline(expr: Expr, columns: &[TableColumn]) -> Result<Expr> {
    expr.transform(|e| {
        let value = match &e {
            Expr::Column(column) => columns.iter().find(|c| c.field.name() == &column.name).map(|c| &c.value),
            _ => None,
        };
        Ok(match value {
            Some(ColumnValue::Computed(value)) => Transformed::yes(value.clone()),
            _ => Transformed::no(e),
        })
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

/// `expr` as an instant, µs UTC; NULL where it is out of range.
fn as_instant(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if expr.get_type(schema).map_err(from_datafusion)? == instant_type() {
        return Ok(expr);
    }
    Ok(datafusion::logical_expr::try_cast(expr, instant_type()))
}

fn watermark(declared: &Watermark, columns: &[TableColumn], state: &SessionState) -> Result<TableWatermark> {
    let name = &declared.column.node;
    let column = index_of(columns, &declared.column)?;
    if columns[column].field.data_type() != &instant_type() {
        let data_type = columns[column].field.data_type();
        let hint = match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                "declare it TIMESTAMP: a text such as 2024-01-15T10:00:00Z is read as the time it is; or compute a column from it"
            }
            _ => {
                "declare it TIMESTAMP(0), (3), (6) or (9) if it holds seconds, ms, µs or ns; or compute a column from it"
            }
        };
        let found = with_sql_types(&data_type.to_string());
        return Err(Error::invalid(format!("WATERMARK FOR `{name}`, which is {found} and no TIMESTAMP"))
            .with_hint(hint)
            .at(declared.column.position));
    }
    let schema = DFSchema::try_from(schema_of(columns)).map_err(from_datafusion)?;
    let watermark_expr = |sql: &Spanned<ast::Expr>| watermark_expr(sql, name, &schema, state);
    let (strategy, expr, when, keys) = match &declared.strategy {
        WatermarkStrategy::Expression(expr) => {
            (Strategy::BoundedOutOfOrderness, Some(watermark_expr(expr)?), None, vec![])
        }
        WatermarkStrategy::PerKey { expr, keys, timeout } => {
            let keys = keys.iter().map(|key| index_of(columns, key)).collect::<Result<Vec<_>>>()?;
            let timeout_us = length(*timeout, "PER KEY TIMEOUT", expr.position)?;
            (Strategy::PerKey { timeout_us }, Some(watermark_expr(expr)?), None, keys)
        }
        WatermarkStrategy::Punctuated { expr, when } => {
            let condition = resolve(&when.node, &schema, state).map_err(|e| placed(e, when.position))?;
            if condition.get_type(&schema).map_err(from_datafusion)? != DataType::Boolean {
                return Err(Error::invalid("PUNCTUATED WHEN takes a condition").at(when.position));
            }
            (Strategy::Punctuated, Some(watermark_expr(expr)?), Some(condition), vec![])
        }
        WatermarkStrategy::ProcessingTime { delay } => {
            let delay_us = micros(*delay).filter(|us| *us >= 0).ok_or_else(|| {
                Error::invalid("delay of PROCTIME() must be days or less, not negative").at(declared.column.position)
            })?;
            (Strategy::ProcessingTime { delay_us }, None, None, vec![])
        }
    };
    let position = declared.column.position;
    let optional = |interval: Option<Interval>, clause| interval.map(|i| length(i, clause, position)).transpose();
    let spec = WatermarkSpec {
        strategy,
        idle_timeout_us: optional(declared.idle_timeout, "IDLE TIMEOUT")?,
        idle_close_after_us: optional(declared.idle_close_after, "IDLE CLOSE AFTER")?,
    };
    Ok(TableWatermark { column, spec, expr, when, keys })
}

/// The watermark expression: an instant, about the event time, and never ahead of it where that can be told.
fn watermark_expr(sql: &Spanned<ast::Expr>, column: &str, schema: &DFSchema, state: &SessionState) -> Result<Expr> {
    let expr = resolve(&sql.node, schema, state).map_err(|e| placed(e, sql.position))?;
    if !matches!(expr.get_type(schema).map_err(from_datafusion)?, DataType::Timestamp(_, _)) {
        return Err(Error::invalid(format!("watermark `{}` is no TIMESTAMP", sql.node))
            .with_hint(format!("write WATERMARK FOR {column} AS {column} - INTERVAL '5 minutes'"))
            .at(sql.position));
    }
    let columns = expr.column_refs();
    if !columns.iter().any(|c| c.name == column) {
        return Err(Error::invalid(format!("watermark `{}` does not use the event time `{column}`", sql.node))
            .with_hint(format!("write WATERMARK FOR {column} AS {column} - INTERVAL '5 minutes'"))
            .at(sql.position));
    }
    let alone = columns.len() == 1;
    let expr = as_instant(expr, schema)?;
    if alone && is_ahead(&expr, state)? {
        return Err(Error::invalid(format!("watermark `{}` is ahead of the event time `{column}`", sql.node))
            .with_hint("subtract the delay: rows would be late on arrival")
            .at(sql.position));
    }
    Ok(expr)
}

/// Whether an expression over one instant, at a sample of it, lies after it.
fn is_ahead(expr: &Expr, state: &SessionState) -> Result<bool> {
    const SAMPLE_US: i64 = 1_700_000_000_000_000;
    let sample = ScalarValue::TimestampMicrosecond(Some(SAMPLE_US), Some("UTC".into()));
    let constant = expr
        .clone()
        .transform(|e| match e {
            Expr::Column(_) => Ok(Transformed::yes(Expr::Literal(sample.clone(), None))),
            other => Ok(Transformed::no(other)),
        })
        .map_err(from_datafusion)?
        .data;
    let value = super::constant::fold(constant, state).map_err(from_datafusion)?;
    Ok(matches!(value, Expr::Literal(ScalarValue::TimestampMicrosecond(Some(us), _), _) if us > SAMPLE_US))
}

fn index_of(columns: &[TableColumn], name: &Spanned<String>) -> Result<usize> {
    columns.iter().position(|c| c.field.name() == &name.node).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|c| c.field.name().as_str()).collect();
        let hint = match nearest(&name.node, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it has {}", names.join(", ")),
        };
        Error::invalid(format!("the source has no column `{}`", name.node)).with_hint(hint).at(name.position)
    })
}

fn length(interval: Interval, clause: &str, position: Position) -> Result<i64> {
    micros(interval)
        .filter(|us| *us > 0)
        .ok_or_else(|| Error::invalid(format!("{clause} must be days or less, more than zero")).at(position))
}

fn placed(error: Error, position: Position) -> Error {
    if error.position().is_none() { error.at(position) } else { error }
}

fn limits(options: &Options, boundedness: Boundedness) -> Result<SourceLimits> {
    let default_future = match boundedness {
        Boundedness::Live => Some(HOUR_US),
        Boundedness::Bounded => None,
    };
    let max_future_us = match options.get("max_future").map(String::as_str) {
        None => default_future,
        Some("off") => None,
        Some(text) => Some(duration("max_future", text)?),
    };
    let max_ahead_us = match options.get("max_ahead").map(String::as_str) {
        None => HOUR_US,
        Some(text) => duration("max_ahead", text)?,
    };
    let rejects_max = match options.get("max_rejects") {
        None => None,
        Some(text) => Some(text.replace('_', "").parse().map_err(|e| {
            Error::invalid(format!("option 'max_rejects' is '{text}', expected a number of rows")).with_source(e)
        })?),
    };
    Ok(SourceLimits { max_future_us, max_ahead_us, rejects_max })
}

fn duration(name: &str, text: &str) -> Result<i64> {
    parse_duration(text).and_then(|d| i64::try_from(d.as_micros()).ok()).ok_or_else(|| {
        Error::invalid(format!("option '{name}' is '{text}', expected a length of time such as '5 s' or '1 hour'"))
    })
}
