//! Joins of a stream with a static table.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::empty::EmptyExec;

use super::chain::{Chain, Slot};
use super::error::from_datafusion;
use super::leaf::LeafTable;
use super::source_table::{SourceTable, compile};
use super::stream::Lowering;
use crate::error::{Error, Result};
use crate::operators::graph::{Node, Operator, StaticJoinKind, StaticJoinSpec};

/// Which side of a join is the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Lowering<'_> {
    /// Lowers a join, one side of which is a stream and the other a table.
    pub(super) fn join(&mut self, join: &Join) -> Result<Chain> {
        let side = match (is_stream(&join.left), is_stream(&join.right)) {
            (true, false) => Side::Left,
            (false, true) => Side::Right,
            (true, true) => {
                return Err(Error::unsupported("join of two streams")
                    .with_hint("join with a table, or join the two views when reading them"));
            }
            (false, false) => return Err(super::refuse::not_a_source("the join of two tables")),
        };
        let kind = kind_of(join, side)?;
        let (stream, table) = match side {
            Side::Left => (&join.left, &join.right),
            Side::Right => (&join.right, &join.left),
        };
        let mut chain = self.lower_results(stream)?;
        let on = join
            .on
            .iter()
            .map(|(left, right)| {
                let (ours, theirs) = if side == Side::Left { (left, right) } else { (right, left) };
                Ok((chain.compile(ours)?, compile(theirs, table.schema())?))
            })
            .collect::<Result<Vec<_>>>()?;
        let filter = join.filter.as_ref().map(|filter| residual(filter, &chain, table)).transpose()?;
        let visible = matches!(kind, StaticJoinKind::Inner | StaticJoinKind::Left);
        let width = chain.output().fields().len();
        let table_width = if visible { table.schema().fields().len() } else { 0 };
        let mut fields: Vec<_> = chain.output().fields().iter().cloned().collect();
        for field in table.schema().fields().iter().take(table_width) {
            let nullable = field.is_nullable() || kind == StaticJoinKind::Left;
            fields.push(Arc::new(field.as_ref().clone().with_nullable(nullable)));
        }
        let output = Arc::new(arrow::datatypes::Schema::new(fields));
        let schema = Arc::clone(table.schema().inner());
        let spec = StaticJoinSpec {
            kind,
            on,
            filter,
            table: Arc::new(EmptyExec::new(schema)),
            table_name: table_name(table),
            null_equals_null: join.null_equality == NullEquality::NullEqualsNull,
            projection: (0..width + table_width).collect(),
        };
        self.nodes.push(Node {
            inputs: vec![chain.node],
            operator: Operator::StaticJoin(Arc::new(spec)),
            schema: Arc::clone(&output),
        });
        self.tables.push((self.nodes.len() - 1, table.as_ref().clone()));
        let theirs = (0..table_width).map(|i| Slot::At(width + i));
        let ours = chain.slots().to_vec().into_iter();
        let slots: Vec<Slot> = match side {
            Side::Left => ours.chain(theirs).collect(),
            Side::Right => theirs.chain(ours).collect(),
        };
        chain.moved_to(self.nodes.len() - 1, output);
        Ok(chain.with_slots(Arc::clone(&join.schema), slots))
    }
}

fn kind_of(join: &Join, side: Side) -> Result<StaticJoinKind> {
    if join.null_aware {
        return Err(Error::unsupported("NOT IN (SELECT …) over a nullable column in a stream")
            .with_hint("write NOT EXISTS (SELECT 1 FROM t WHERE t.k = s.k)"));
    }
    match (join.join_type, side) {
        (JoinType::Inner, _) => Ok(StaticJoinKind::Inner),
        (JoinType::Left, Side::Left) | (JoinType::Right, Side::Right) => Ok(StaticJoinKind::Left),
        (JoinType::LeftSemi, Side::Left) | (JoinType::RightSemi, Side::Right) => Ok(StaticJoinKind::Semi),
        (JoinType::LeftAnti, Side::Left) | (JoinType::RightAnti, Side::Right) => Ok(StaticJoinKind::Anti),
        (other, _) => Err(Error::unsupported(format!("{other} join of a stream with a table"))
            .with_hint("INNER JOIN, LEFT JOIN from the stream, EXISTS and NOT EXISTS work")),
    }
}

/// The condition beside equal keys, over the stream's columns and then the table's.
fn residual(filter: &Expr, chain: &Chain, table: &LogicalPlan) -> Result<Arc<dyn PhysicalExpr>> {
    for column in filter.column_refs() {
        if let Ok(Slot::Window(window)) = chain.slot(column) {
            return Err(Error::unsupported(format!("use of `{}` in a join with a table", window.name()))
                .with_hint("join the rows with the table first, or join when reading the view"));
        }
    }
    let both = chain.physical_schema()?.join(table.schema()).map_err(from_datafusion)?;
    compile(filter, &both)
}

/// Whether `plan` reads a source or the results of a window.
pub(super) fn is_stream(plan: &LogicalPlan) -> bool {
    if let LogicalPlan::TableScan(scan) = plan
        && let Ok(provider) = source_as_provider(&scan.source)
    {
        return provider.is::<SourceTable>() || provider.is::<LeafTable>();
    }
    plan.inputs().iter().any(|input| is_stream(input))
}

fn table_name(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::TableScan(scan) => scan.table_name.to_string(),
        LogicalPlan::SubqueryAlias(alias) => match table_name(&alias.input) {
            name if name.is_empty() => alias.alias.to_string(),
            name => name,
        },
        other => other.inputs().first().map(|input| table_name(input)).unwrap_or_default(),
    }
}
