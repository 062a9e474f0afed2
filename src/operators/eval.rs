//! Evaluating compiled DataFusion expressions over record batches, and what their failures mean to us.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;

use crate::error::{Error, ErrorKind, Result};

/// The values of `expr` for each row of `batch`.
///
/// # Errors
/// See [`failure`].
pub(crate) fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch).and_then(|value| value.into_array(batch.num_rows())).map_err(failure)
}

/// The values of each of `exprs` for each row of `batch`.
///
/// # Errors
/// See [`failure`].
pub(crate) fn evaluate_all(exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|expr| evaluate(expr, batch)).collect()
}

/// A condition for each row of `batch`. NULL is not true.
///
/// # Errors
/// See [`failure`]; `Internal` if it is no boolean.
pub(crate) fn evaluate_condition(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray> {
    let values = evaluate(expr, batch)?;
    let Some(condition) = values.as_any().downcast_ref::<BooleanArray>() else {
        return Err(Error::internal(format!("a condition has type=`{}`", values.data_type())));
    };
    Ok(if condition.null_count() == 0 { condition.clone() } else { arrow::compute::prep_null_mask_filter(condition) })
}

/// A batch of `columns` that may have none, in which case `rows` says how many rows it has.
///
/// # Errors
/// `Internal` if the columns do not fit the schema.
pub(crate) fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(|e| failure(e.into()))
}

/// `schema` with every column nullable: the shape of rows of which only the identity is known.
pub(crate) fn all_nullable(schema: &Schema) -> SchemaRef {
    let fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// `rows` nulls of `field`'s type.
pub(crate) fn nulls(field: &Field, rows: usize) -> ArrayRef {
    new_null_array(field.data_type(), rows)
}

/// A row an expression failed on: a reject, not an error.
#[derive(Debug)]
pub struct FailedRow {
    /// Index in the input.
    pub row: u32,
    /// Why, of kind `Data`.
    pub error: Error,
}

/// The rows of a batch, parted by whether something works for them.
pub(crate) struct Sorted {
    /// Indices of those it works for, ascending.
    pub good: UInt32Array,
    /// The others, ascending.
    pub failed: Vec<FailedRow>,
}

/// Finds the rows `work` fails on with `Data` by halving: `n` bad rows cost about `n log(rows)` more calls. `work` must
/// treat each row by itself.
///
/// # Errors
/// What `work` fails with that is not `Data`.
pub(crate) fn set_failures_aside(batch: &RecordBatch, work: impl Fn(&RecordBatch) -> Result<()>) -> Result<Sorted> {
    let mut failed = Vec::new();
    let mut good: Vec<u32> = Vec::with_capacity(batch.num_rows());
    let mut ranges = vec![(0, batch.num_rows())];
    while let Some((from, to)) = ranges.pop() {
        match work(&batch.slice(from, to - from)) {
            Ok(()) => good.extend(from as u32..to as u32),
            Err(error) if error.kind() != ErrorKind::Data => return Err(error),
            Err(error) if to - from == 1 => failed.push(FailedRow { row: from as u32, error }),
            Err(_) => {
                let middle = from + (to - from) / 2;
                ranges.extend([(middle, to), (from, middle)]);
            }
        }
    }
    Ok(Sorted { good: good.into(), failed })
}

/// What a failure inside DataFusion or Arrow means to a caller: values that cannot be computed are `Data`, a limit that
/// was met is `Unavailable`, what DataFusion cannot do is `Unsupported`, and the rest is a bug of ours. An error of ours
/// that travelled through DataFusion comes back as it was.
pub(crate) fn failure(error: DataFusionError) -> Error {
    let error = match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => return *ours,
            Err(other) => DataFusionError::External(other),
        },
        other => other,
    };
    let kind = match error.find_root() {
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            arrow if is_overflow(arrow) => ErrorKind::Data,
            ArrowError::SchemaError(_) | ArrowError::InvalidArgumentError(_) => ErrorKind::Internal,
            ArrowError::NotYetImplemented(_) => ErrorKind::Unsupported,
            ArrowError::MemoryError(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Data,
        },
        DataFusionError::ResourcesExhausted(_) => ErrorKind::Unavailable,
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::Execution(_) | DataFusionError::External(_) => ErrorKind::Data,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("an expression could not be computed: {}", error.strip_backtrace())).with_source(error)
}

/// Whether a number left its type. A decimal of too many digits is an invalid argument to Arrow.
pub(crate) fn is_overflow(error: &ArrowError) -> bool {
    match error {
        ArrowError::ArithmeticOverflow(_) => true,
        ArrowError::InvalidArgumentError(message) => message.contains(" to store in a Decimal"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_ours_survives_the_way_through_datafusion() {
        let ours = Error::new(ErrorKind::Conflict, "taken");
        assert_eq!(failure(DataFusionError::External(Box::new(ours))).kind(), ErrorKind::Conflict);
    }

    #[test]
    fn a_value_that_cannot_be_computed_is_the_datas_fault() {
        let divided = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        assert_eq!(failure(divided).kind(), ErrorKind::Data);
        assert_eq!(failure(DataFusionError::NotImplemented("x".into())).kind(), ErrorKind::Unsupported);
        assert_eq!(failure(DataFusionError::Internal("x".into())).kind(), ErrorKind::Internal);
    }
}
