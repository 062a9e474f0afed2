//! What happens to a window's values until they are versions: HAVING and expressions, whole-window plans, windows over
//! windows, and at the end the numbering.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::graph::{AggregateInput, Node, Operator, OperatorGraph};
use super::nested::NestedWindow;
use super::publish::Publisher;
use super::rows::RowsOperator;
use super::whole_window::WholeWindow;
use crate::change::Changes;
use crate::error::{Error, Result};
use crate::window::Window;

/// Operators above a view's first window, in order, and the publisher after them.
#[derive(Debug)]
pub struct ResultChain {
    stages: Vec<Stage>,
    publisher: Publisher,
}

#[derive(Debug)]
enum Stage {
    Rows(RowsOperator),
    Nested(Box<NestedWindow>),
    Whole(Box<WholeWindow>),
}

impl ResultChain {
    /// The chain of `graph` after the node `first`, its first window.
    ///
    /// # Errors
    /// When an operator does not fit its input.
    pub fn try_new(graph: &OperatorGraph, first: usize) -> Result<Self> {
        let stages = (first + 1..graph.nodes.len()).map(|i| stage(graph, &graph.nodes[i])).collect::<Result<_>>()?;
        Ok(Self { stages, publisher: Publisher::try_new(graph)? })
    }

    /// The publisher at the end.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Takes values of the first window; gives versions.
    ///
    /// # Errors
    /// `Data` where an expression over results cannot be computed.
    pub fn on_changes(&mut self, changes: Changes, out: &mut Vec<RecordBatch>) -> Result<()> {
        self.pass(0, vec![changes], out)
    }

    /// W has risen to `w`, and the first window has given all it has to.
    ///
    /// # Errors
    /// See [`ResultChain::on_changes`].
    pub fn on_watermark(&mut self, w: i64, out: &mut Vec<RecordBatch>) -> Result<()> {
        for i in 0..self.stages.len() {
            let mut given = Vec::new();
            match &mut self.stages[i] {
                Stage::Rows(_) => {}
                Stage::Nested(nested) => nested.on_watermark(w, &mut given)?,
                Stage::Whole(whole) => whole.on_watermark(w, &mut given)?,
            }
            self.pass(i + 1, given, out)?;
        }
        self.publisher.on_watermark(w, out)
    }

    /// The epoch ends, and the first window has given all it has to.
    ///
    /// # Errors
    /// See [`ResultChain::on_changes`].
    pub fn on_epoch(&mut self, early: bool, out: &mut Vec<RecordBatch>) -> Result<()> {
        for i in 0..self.stages.len() {
            let mut given = Vec::new();
            match &mut self.stages[i] {
                Stage::Rows(_) => {}
                Stage::Nested(nested) => nested.on_epoch(early, &mut given)?,
                Stage::Whole(whole) => whole.on_epoch(&mut given)?,
            }
            self.pass(i + 1, given, out)?;
        }
        self.publisher.on_epoch();
        Ok(())
    }

    /// Windows with a value kept back.
    pub fn dirty_windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.publisher.dirty_windows()
    }

    fn pass(&mut self, from: usize, mut changes: Vec<Changes>, out: &mut Vec<RecordBatch>) -> Result<()> {
        for stage in &mut self.stages[from..] {
            let mut given = Vec::new();
            for change in changes {
                match stage {
                    Stage::Rows(rows) => given.extend(rows.on_changes(change)?),
                    Stage::Nested(nested) => nested.on_changes(&change)?,
                    Stage::Whole(whole) => whole.on_changes(&change, &mut given)?,
                }
            }
            changes = given;
        }
        changes.iter().try_for_each(|change| self.publisher.on_changes(change, out))
    }
}

fn stage(graph: &OperatorGraph, node: &Node) -> Result<Stage> {
    let input = node.inputs.first().and_then(|input| graph.nodes.get(*input));
    let input = input.ok_or_else(|| Error::internal("an operator over results without input"))?;
    Ok(match &node.operator {
        Operator::Versions(spec) => Stage::Rows(RowsOperator::new(spec.clone(), Arc::clone(&node.schema))),
        Operator::WholeWindow(spec) => {
            let (input, output) = (Arc::clone(&input.schema), Arc::clone(&node.schema));
            Stage::Whole(Box::new(WholeWindow::try_new(Arc::clone(spec), graph.policy, input, output)?))
        }
        Operator::Window(spec) => match &spec.input {
            AggregateInput::Changes { identity } => {
                Stage::Nested(Box::new(NestedWindow::try_new(spec, graph.policy, &input.schema, identity.clone())?))
            }
            AggregateInput::Rows => return Err(Error::internal("a window over rows above a window")),
        },
        Operator::Source(_) | Operator::Rows(_) | Operator::StaticJoin(_) | Operator::Union | Operator::PassThrough => {
            return Err(Error::internal("an operator over rows above a window"));
        }
    })
}
