//! A static table joined to the results of a window, result by result.
//!
//! ```text
//!  results              table       INNER                LEFT
//!  upsert a 5           a  Ann      upsert a 5 Ann       upsert a 5 Ann
//!  upsert b 3                       delete b             upsert b 3 NULL
//!  delete a                         delete a             delete a
//! ```
//!
//! A result keeps its identity, so it may match one row of the table at most; where it matches several the join is
//! refused, since two rows of one identity would replace each other. A result without a match is deleted, as by HAVING:
//! if it was never published nobody hears of it (L4).

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;

use super::eval::{all_nullable, batch_of, failure, nulls};
use super::static_join::StaticJoin;
use crate::change::{ChangeKind, Changes};
use crate::error::{Error, Result};

/// Joins changes. Has no state but the table.
#[derive(Debug)]
pub struct ResultJoin {
    join: Arc<StaticJoin>,
    /// Output columns, all nullable, for deletes.
    deleted: SchemaRef,
}

impl ResultJoin {
    /// A join whose output has `schema`, the schema of its node: the columns of the results, then those of the table.
    pub fn new(join: Arc<StaticJoin>, schema: &SchemaRef) -> Self {
        Self { join, deleted: all_nullable(schema) }
    }

    /// Joins `changes`.
    ///
    /// # Errors
    /// `Unsupported` where a result matches several rows of the table; `Data` where a key or condition cannot be computed.
    pub fn on_changes(&self, changes: &Changes) -> Result<Vec<Changes>> {
        let Changes { kind, reason, rows } = changes;
        if *kind == ChangeKind::Delete {
            return Ok(vec![Changes { kind: *kind, reason: *reason, rows: self.identities(rows)? }]);
        }
        let joined = self.join.on_rows(rows)?;
        if let Some(failed) = joined.failed.into_iter().next() {
            return Err(failed.error);
        }
        let mut out = Vec::new();
        if let Some(origin) = joined.origin {
            if !origin.is_sorted_by(|a, b| a < b) {
                return Err(Error::unsupported(format!(
                    "join of a window's results with several rows of a table for one of them: table=`{}`",
                    self.join.table_name()
                ))
                .with_hint("join the rows with the table before the window, or bring the table to one row per key"));
            }
            let mut matched = origin.iter().peekable();
            let unmatched: Vec<u32> =
                (0..rows.num_rows() as u32).filter(|row| matched.next_if(|m| **m == *row).is_none()).collect();
            if !unmatched.is_empty() {
                let gone = take_record_batch(rows, &UInt32Array::from(unmatched)).map_err(|e| failure(e.into()))?;
                out.push(Changes { kind: ChangeKind::Delete, reason: *reason, rows: self.identities(&gone)? });
            }
        }
        if joined.rows.num_rows() > 0 {
            out.push(Changes { kind: *kind, reason: *reason, rows: joined.rows });
        }
        Ok(out)
    }

    /// The columns of `rows` beside nulls for the table's.
    fn identities(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = rows.columns().to_vec();
        let theirs = self.deleted.fields().iter().skip(columns.len());
        columns.extend(theirs.map(|field| nulls(field, rows.num_rows())));
        batch_of(&self.deleted, columns, rows.num_rows())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::ErrorKind;
    use crate::change::Reason;
    use crate::operators::graph::{StaticJoinKind, StaticJoinSpec};
    use crate::testing::table::{lines, parse};

    fn schema(names: &[&str]) -> SchemaRef {
        Arc::new(Schema::new(names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect::<Vec<_>>()))
    }

    fn operator(kind: StaticJoinKind, table: &str) -> ResultJoin {
        let (stream, names) = (schema(&["k", "n"]), schema(&["id", "name"]));
        let spec = StaticJoinSpec {
            kind,
            on: vec![(col("k", &stream).unwrap(), col("id", &names).unwrap())],
            filter: None,
            table: Arc::new(EmptyExec::new(Arc::clone(&names))),
            table_name: "names".into(),
            null_equals_null: false,
            projection: vec![0, 1, 2, 3],
        };
        let output = schema(&["k", "n", "id", "name"]);
        let table = parse(&names, table);
        let join = StaticJoin::try_new(Arc::new(spec), table, &stream, Arc::clone(&output)).unwrap();
        ResultJoin::new(Arc::new(join), &output)
    }

    fn said(operator: &ResultJoin, kind: ChangeKind, rows: &str) -> Result<Vec<String>> {
        let rows = parse(&schema(&["k", "n"]), rows);
        let given = operator.on_changes(&Changes { kind, reason: Reason::LateData, rows })?;
        let text = |changes: Changes| {
            let kind = if changes.kind == ChangeKind::Delete { "delete" } else { "upsert" };
            lines(&[changes.rows]).into_iter().map(move |line| format!("{kind} {line}")).collect::<Vec<_>>()
        };
        Ok(given.into_iter().flat_map(text).collect())
    }

    #[test]
    fn a_result_without_a_match_is_deleted_or_keeps_nulls() {
        let inner = operator(StaticJoinKind::Inner, "a|Ann\n c|Cid");
        let left = operator(StaticJoinKind::Left, "a|Ann\n c|Cid");
        let rows = "b|3\n a|5\n x|1";
        let gone = ["delete b | 3 | NULL | NULL", "delete x | 1 | NULL | NULL", "upsert a | 5 | a | Ann"];
        assert_eq!(said(&inner, ChangeKind::Upsert, rows).unwrap(), gone);
        let kept = ["upsert b | 3 | NULL | NULL", "upsert a | 5 | a | Ann", "upsert x | 1 | NULL | NULL"];
        assert_eq!(said(&left, ChangeKind::Upsert, rows).unwrap(), kept);
        assert_eq!(said(&inner, ChangeKind::Delete, "a|NULL").unwrap(), ["delete a | NULL | NULL | NULL"]);
    }

    #[test]
    fn a_result_that_matches_several_rows_is_refused() {
        let inner = operator(StaticJoinKind::Inner, "a|Ann\n a|Abe");
        let refused = said(&inner, ChangeKind::Upsert, "b|3\n a|5").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("names"), "{refused}");
        assert_eq!(said(&inner, ChangeKind::Upsert, "b|3").unwrap(), ["delete b | 3 | NULL | NULL"]);
    }
}
