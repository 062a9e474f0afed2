//! SQL types as Arrow types, where DataFusion's own choice is not ours.

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// `TIMESTAMP`, with or without a zone, is an instant: microseconds UTC. `TIMESTAMP(0|3|6|9)` keeps its unit, which says
/// how an integer is read; a time text without a zone is read as UTC.
#[derive(Debug)]
pub(super) struct InstantTypes;

impl TypePlanner for InstantTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> DfResult<Option<FieldRef>> {
        let precision = match sql_type {
            ast::DataType::Timestamp(precision, _) => *precision,
            ast::DataType::Datetime(precision) => *precision,
            ast::DataType::TimestampNtz(precision) => *precision,
            ast::DataType::Custom(name, args) if is_timestamp_ltz(name) => {
                args.first().and_then(|text| text.parse().ok())
            }
            _ => return Ok(None),
        };
        let unit = match precision {
            Some(0) => TimeUnit::Second,
            Some(3) => TimeUnit::Millisecond,
            None | Some(6) => TimeUnit::Microsecond,
            Some(9) => TimeUnit::Nanosecond,
            Some(other) => {
                return Err(super::external(
                    crate::Error::unsupported(format!("TIMESTAMP({other})"))
                        .with_hint("use TIMESTAMP(0), (3), (6) or (9) for seconds, ms, µs or ns"),
                ));
            }
        };
        Ok(Some(Arc::new(Field::new("", DataType::Timestamp(unit, Some("UTC".into())), true))))
    }
}

/// Flink's `TIMESTAMP_LTZ(3)`.
fn is_timestamp_ltz(name: &ast::ObjectName) -> bool {
    name.to_string().eq_ignore_ascii_case("TIMESTAMP_LTZ")
}
