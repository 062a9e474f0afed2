//! Filter and projection, row by row: what stands between a source and its window, and HAVING and the SELECT's
//! expressions above it.
//!
//! ```text
//!  WHERE n > 1, SELECT k, n * 10        HAVING n > 1 over changes
//!  k  n        k  n*10   kept           upsert a 1        delete a
//!  a  1   ─►   b  20     [1, 2]         upsert b 2   ─►   upsert b 2
//!  b  2        c  30                    delete c          delete c
//!  c  3
//! ```
//!
//! A result is nobody's bad row: where an expression over it fails, in the SELECT its value is NULL, in HAVING it does not pass, and
//! what failed is told beside ([`FailedResult`]).
//!
//! It does not know where rows come from, nor what was published: a delete for an identity that was never published is
//! `operators::publish`'s to drop.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, not, prep_null_mask_filter, take, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use super::eval::{
    FailedRow, Sorted, all_nullable, batch_of, evaluate, evaluate_all, evaluate_condition, failure, nulls,
    set_failures_aside,
};
use super::failed::FailedResult;
use super::graph::RowsSpec;
use crate::change::{ChangeKind, Changes};
use crate::error::{Error, ErrorKind, Result};

/// Filters rows, then projects them. Has no state; one value serves any number of workers.
#[derive(Debug, Clone)]
pub struct RowsOperator {
    spec: RowsSpec,
    schema: SchemaRef,
    /// `schema` with every column nullable, for deletes.
    deleted: SchemaRef,
}

/// What became of the rows of one batch: `rows.num_rows() + failed.len() + filtered == input rows`.
#[derive(Debug)]
pub struct KeptRows {
    /// The rows that passed, projected, in their old order.
    pub rows: RecordBatch,
    /// For each row that passed its index in the input, ascending. `None`: all passed.
    pub kept: Option<Vec<u32>>,
    /// Rows whose filter or projection could not be computed. They are rejects, not errors.
    pub failed: Vec<FailedRow>,
    /// How many rows the filter took out.
    pub filtered: usize,
}

impl RowsOperator {
    /// An operator whose output has `schema`, the schema of its node.
    pub fn new(spec: RowsSpec, schema: SchemaRef) -> Self {
        let deleted = all_nullable(&schema);
        Self { spec, schema, deleted }
    }

    /// Filters and projects source rows. A row no value can be computed for costs the batch a few more evaluations and
    /// nobody else anything.
    ///
    /// # Errors
    /// Only what is no single row's fault, for example `Unavailable` where memory ran out.
    pub fn on_rows(&self, batch: &RecordBatch) -> Result<KeptRows> {
        match self.pass(batch) {
            Err(error) if error.kind() == ErrorKind::Data => self.isolate(batch),
            done => done,
        }
    }

    /// Filters and projects changes. An upsert the filter refuses becomes a delete: its identity no longer holds (L4).
    /// Deletes pass, with their identity columns and nulls for what would be computed. Adds to `failed` what could not be
    /// computed, once for each row.
    ///
    /// # Errors
    /// Only what is no single result's fault, for example `Unavailable` where memory ran out.
    pub fn on_changes(&self, changes: Changes, failed: &mut Vec<FailedResult>) -> Result<Vec<Changes>> {
        let Changes { kind, reason, rows } = changes;
        if kind == ChangeKind::Delete {
            return Ok(vec![Changes { kind, reason, rows: self.identities(&rows)? }]);
        }
        let mask = self.spec.filter.as_ref().map(|f| self.condition(f, &rows, failed)).transpose()?;
        let Some(mask) = mask.filter(|mask| mask.true_count() < mask.len()) else {
            return Ok(vec![Changes { kind, reason, rows: self.project_results(&rows, failed)? }]);
        };
        let refused = filter_record_batch(&rows, &not(&mask).map_err(|e| failure(e.into()))?);
        let refused = self.identities(&refused.map_err(|e| failure(e.into()))?)?;
        let mut out = vec![Changes { kind: ChangeKind::Delete, reason, rows: refused }];
        if mask.true_count() > 0 {
            let held = filter_record_batch(&rows, &mask).map_err(|e| failure(e.into()))?;
            out.push(Changes { kind, reason, rows: self.project_results(&held, failed)? });
        }
        Ok(out)
    }

    /// The condition for each result; false where it fails.
    fn condition(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
        results: &RecordBatch,
        failed: &mut Vec<FailedResult>,
    ) -> Result<BooleanArray> {
        match evaluate_condition(filter, results) {
            Err(error) if error.kind() == ErrorKind::Data => {
                let mut failures = BTreeMap::new();
                let values = where_it_can(filter, results, &mut failures)?;
                failed.extend(failures.iter().map(|(row, error)| FailedResult::new(results, *row, error)));
                Ok(prep_null_mask_filter(values.as_boolean()))
            }
            done => done,
        }
    }

    /// As [`RowsOperator::project`], with NULL where a result's value cannot be computed.
    fn project_results(&self, results: &RecordBatch, failed: &mut Vec<FailedResult>) -> Result<RecordBatch> {
        match (self.project(results), &self.spec.project) {
            (Err(error), Some(exprs)) if error.kind() == ErrorKind::Data => {
                let mut failures = BTreeMap::new();
                let columns = exprs.iter().map(|expr| match evaluate(expr, results) {
                    Err(error) if error.kind() == ErrorKind::Data => where_it_can(expr, results, &mut failures),
                    done => done,
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                failed.extend(failures.iter().map(|(row, error)| FailedResult::new(results, *row, error)));
                batch_of(&self.deleted, columns, results.num_rows())
            }
            (done, _) => done,
        }
    }

    fn pass(&self, batch: &RecordBatch) -> Result<KeptRows> {
        let Some(filter) = &self.spec.filter else {
            return Ok(KeptRows { rows: self.project(batch)?, kept: None, failed: vec![], filtered: 0 });
        };
        let mask = evaluate_condition(filter, batch)?;
        let filtered = mask.len() - mask.true_count();
        if filtered == 0 {
            return Ok(KeptRows { rows: self.project(batch)?, kept: None, failed: vec![], filtered });
        }
        let held = filter_record_batch(batch, &mask).map_err(|e| failure(e.into()))?;
        Ok(KeptRows { rows: self.project(&held)?, kept: Some(true_rows(&mask)), failed: vec![], filtered })
    }

    fn isolate(&self, batch: &RecordBatch) -> Result<KeptRows> {
        let Sorted { good, failed } = set_failures_aside(batch, |part| self.pass(part).map(|_| ()))?;
        let passed = self.pass(&take_record_batch(batch, &good).map_err(|e| failure(e.into()))?)?;
        let kept = match passed.kept {
            Some(kept) => kept.iter().map(|row| good.value(*row as usize)).collect(),
            None => good.values().to_vec(),
        };
        Ok(KeptRows { kept: Some(kept), failed, ..passed })
    }

    fn project(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        match &self.spec.project {
            None => Ok(batch.clone()),
            Some(exprs) => batch_of(&self.schema, evaluate_all(exprs, batch)?, batch.num_rows()),
        }
    }

    /// The projection of rows of which only the identity matters. Identities are columns passed on as they are, so
    /// nothing is computed that could fail on a row the filter refused.
    fn identities(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns: Vec<ArrayRef> = match &self.spec.project {
            None => batch.columns().to_vec(),
            Some(exprs) => exprs.iter().zip(self.schema.fields()).map(|(e, f)| column_of(e, batch, f)).collect(),
        };
        batch_of(&self.deleted, columns, rows)
    }
}

/// The values of `expr`, NULL for the rows it fails on; these are added to `failures`, each with what came first.
fn where_it_can(
    expr: &Arc<dyn PhysicalExpr>,
    results: &RecordBatch,
    failures: &mut BTreeMap<u32, Error>,
) -> Result<ArrayRef> {
    let Sorted { good, failed } = set_failures_aside(results, |part| evaluate(expr, part).map(|_| ()))?;
    let values = evaluate(expr, &take_record_batch(results, &good).map_err(|e| failure(e.into()))?)?;
    let mut places = vec![None; results.num_rows()];
    for (place, row) in (0_u32..).zip(good.values()) {
        places[*row as usize] = Some(place);
    }
    for row in failed {
        failures.entry(row.row).or_insert(row.error);
    }
    take(&values, &UInt32Array::from(places), None).map_err(|e| failure(e.into()))
}

/// `expr`'s column if it is one, else nulls of `field`'s type.
fn column_of(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch, field: &arrow::datatypes::Field) -> ArrayRef {
    match expr.downcast_ref::<Column>() {
        Some(column) => Arc::clone(batch.column(column.index())),
        None => nulls(field, batch.num_rows()),
    }
}

/// Indices of the rows for which `mask`, which holds no nulls, is true.
fn true_rows(mask: &BooleanArray) -> Vec<u32> {
    mask.values().set_indices_u32().collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;
    use crate::change::Reason;
    use crate::connectors::RejectReason;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("n", DataType::Int64, true)]))
    }

    fn batch(n: Vec<Option<i64>>) -> RecordBatch {
        let k = Int64Array::from_iter_values(0..n.len() as i64);
        RecordBatch::try_new(schema(), vec![Arc::new(k), Arc::new(Int64Array::from(n))]).unwrap()
    }

    /// WHERE 100 / n > 1, SELECT k, 100 / n.
    fn operator() -> RowsOperator {
        let s = schema();
        let quotient = binary(lit(100_i64), Operator::Divide, col("n", &s).unwrap(), &s).unwrap();
        let filter = binary(Arc::clone(&quotient), Operator::Gt, lit(1_i64), &s).unwrap();
        let out = Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("q", DataType::Int64, true)]);
        let project = vec![col("k", &s).unwrap(), quotient];
        RowsOperator::new(RowsSpec { filter: Some(filter), project: Some(project) }, Arc::new(out))
    }

    fn ints(batch: &RecordBatch, column: usize) -> Vec<Option<i64>> {
        batch.column(column).as_any().downcast_ref::<Int64Array>().unwrap().iter().collect()
    }

    #[test]
    fn null_is_not_true_and_indices_follow() {
        let kept = operator().on_rows(&batch(vec![Some(10), None, Some(100), Some(20)])).unwrap();
        assert_eq!(ints(&kept.rows, 1), vec![Some(10), Some(5)]);
        assert_eq!((kept.kept, kept.filtered), (Some(vec![0, 3]), 2));
    }

    #[test]
    fn all_rows_pass_without_an_index() {
        let kept = operator().on_rows(&batch(vec![Some(10), Some(20)])).unwrap();
        assert_eq!((kept.kept, kept.filtered, kept.rows.num_rows()), (None, 0, 2));
    }

    #[test]
    fn a_row_that_cannot_be_computed_is_set_aside_alone() {
        let kept = operator().on_rows(&batch(vec![Some(10), Some(0), Some(100), Some(20), Some(0)])).unwrap();
        assert_eq!(kept.failed.iter().map(|f| f.row).collect::<Vec<_>>(), vec![1, 4]);
        assert!(kept.failed[0].error.to_string().contains("Divide by zero"), "{}", kept.failed[0].error);
        assert_eq!((kept.kept, kept.filtered), (Some(vec![0, 3]), 1));
        assert_eq!(ints(&kept.rows, 0), vec![Some(0), Some(3)]);
    }

    #[test]
    fn having_that_flips_deletes() {
        let changes =
            Changes { kind: ChangeKind::Upsert, reason: Reason::Initial, rows: batch(vec![Some(10), Some(100)]) };
        let out = operator().on_changes(changes, &mut vec![]).unwrap();
        assert_eq!(out.len(), 2);
        assert_eq!((out[0].kind, ints(&out[0].rows, 0)), (ChangeKind::Delete, vec![Some(1)]));
        assert_eq!((out[1].kind, ints(&out[1].rows, 1)), (ChangeKind::Upsert, vec![Some(10)]));
    }

    #[test]
    fn a_result_that_cannot_be_computed_is_null_and_does_not_pass_having() {
        let rows = batch(vec![Some(10), Some(0), Some(100)]);
        let changes = || Changes { kind: ChangeKind::Upsert, reason: Reason::Initial, rows: rows.clone() };
        let mut failed = Vec::new();
        let out = operator().on_changes(changes(), &mut failed).unwrap();
        assert_eq!((out[0].kind, ints(&out[0].rows, 0)), (ChangeKind::Delete, vec![Some(1), Some(2)]));
        assert_eq!((out[1].kind, ints(&out[1].rows, 1)), (ChangeKind::Upsert, vec![Some(10)]));
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].reason, RejectReason::Computation);
        assert_eq!(failed[0].raw, r#"{"k":1,"n":0}"#);

        let mut selects = operator();
        selects.spec.filter = None;
        let out = selects.on_changes(changes(), &mut failed).unwrap();
        assert_eq!(ints(&out[0].rows, 1), vec![Some(10), None, Some(1)]);
        assert_eq!(failed.len(), 2);
    }

    #[test]
    fn a_delete_passes_whatever_its_values_are() {
        let changes = Changes { kind: ChangeKind::Delete, reason: Reason::LateData, rows: batch(vec![None, Some(0)]) };
        let out = operator().on_changes(changes, &mut vec![]).unwrap();
        assert_eq!(ints(&out[0].rows, 0), vec![Some(0), Some(1)]);
        assert_eq!(ints(&out[0].rows, 1), vec![None, None]);
    }

    #[test]
    fn no_columns_still_have_rows() {
        let op = RowsOperator::new(RowsSpec { filter: None, project: Some(vec![]) }, Arc::new(Schema::empty()));
        assert_eq!(op.on_rows(&batch(vec![Some(1), Some(2)])).unwrap().rows.num_rows(), 2);
    }
}
