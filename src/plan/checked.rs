//! Arithmetic over integers that fails where it leaves its type.
//!
//! DataFusion's `+`, `-` and `*` wrap: `2000000000 * 3` of two INT is 1705032704. A number like that is worse than none, so
//! in the plan, for both lowerings, functions of ours stand where they stood. A row whose value does not fit is a reject, as
//! it is with a division by zero. Floats have infinity, decimals and times are checked by Arrow already.

use std::sync::Arc;

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric::{add, mul, neg, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::{BinaryExpr as PhysicalBinary, NegativeExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::datum::apply;

use super::error::from_datafusion;
use crate::error::Result;

/// Checks the arithmetic of every expression in `plan`, types resolved. Columns keep their names and types.
pub(super) fn arithmetic(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        // A window function is named after how its expressions are displayed.
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            in_expr(expr, &schema).map(|checked| checked.update_data(|expr| name.restore(expr)))
        })
    })
    .map(|t| t.data)
    .map_err(from_datafusion)
}

/// Checks the arithmetic in `expr`, types resolved.
pub(super) fn in_expr(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    expr.transform_up(|expr| {
        let (operation, args) = match &expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let operation = match op {
                    Operator::Plus => Operation::Add,
                    Operator::Minus => Operation::Subtract,
                    Operator::Multiply => Operation::Multiply,
                    _ => return Ok(Transformed::no(expr)),
                };
                (operation, vec![left.as_ref().clone(), right.as_ref().clone()])
            }
            Expr::Negative(of) => (Operation::Negate, vec![of.as_ref().clone()]),
            _ => return Ok(Transformed::no(expr)),
        };
        for arg in &args {
            if !arg.get_type(schema)?.is_integer() {
                return Ok(Transformed::no(expr));
            }
        }
        let signature = Signature::any(args.len(), Volatility::Immutable);
        Ok(Transformed::yes(ScalarUDF::from(Checked { operation, signature }).call(args)))
    })
}

/// What `function` is written as in SQL, if it is one of ours.
pub(super) fn written(function: &ScalarFunctionExpr) -> Option<Arc<dyn PhysicalExpr>> {
    let checked = function.fun().inner().downcast_ref::<Checked>()?;
    Some(match (checked.operation.operator(), function.args()) {
        (Some(op), [left, right]) => Arc::new(PhysicalBinary::new(Arc::clone(left), op, Arc::clone(right))),
        (_, args) => Arc::new(NegativeExpr::new(Arc::clone(args.first()?))),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    /// The operator between two operands.
    fn operator(self) -> Option<Operator> {
        match self {
            Self::Add => Some(Operator::Plus),
            Self::Subtract => Some(Operator::Minus),
            Self::Multiply => Some(Operator::Multiply),
            Self::Negate => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    signature: Signature,
}

impl Checked {
    /// The expression whose place `args` under this function take.
    fn replaced(&self, args: &[Expr]) -> Expr {
        match (self.operation.operator(), args) {
            (Some(op), [left, right]) => {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right.clone())))
            }
            (_, args) => Expr::Negative(Box::new(args[0].clone())),
        }
    }

    fn compute(&self, left: &ColumnarValue, right: &ColumnarValue) -> DfResult<ColumnarValue> {
        let kernel = match self.operation {
            Operation::Add => add,
            Operation::Subtract => sub,
            Operation::Multiply => mul,
            Operation::Negate => |of: &dyn Datum, _: &dyn Datum| -> Result<ArrayRef, ArrowError> { neg(of.get().0) },
        };
        apply(left, right, kernel)
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "highwater_add",
            Operation::Subtract => "highwater_subtract",
            Operation::Multiply => "highwater_multiply",
            Operation::Negate => "highwater_negate",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(self.replaced(args).schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), args.arg_fields[0].data_type().clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        self.compute(&args.args[0], args.args.last().unwrap_or(&args.args[0]))
    }
}
