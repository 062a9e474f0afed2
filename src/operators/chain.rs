//! What happens to a window's values until they are versions: HAVING and expressions, whole-window plans, windows over
//! windows, and at the end the numbering.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::failed::FailedResult;
use super::graph::{AggregateInput, Node, NodeId, Operator, OperatorGraph};
use super::nested::NestedWindow;
use super::publish::Publisher;
use super::result_join::ResultJoin;
use super::rows::RowsOperator;
use super::static_join::StaticJoin;
use super::whole_window::WholeWindow;
use crate::change::{ChangeKind, Changes, Reason};
use crate::error::{Error, Result};
use crate::watermark;
use crate::window::Window;

/// Operators above a view's first window, in order, and the publisher after them.
#[derive(Debug)]
pub struct ResultChain {
    stages: Vec<Stage>,
    publisher: Publisher,
    /// Results that could not be computed since the last [`ResultChain::take_failed`].
    failed: Vec<FailedResult>,
}

#[derive(Debug)]
enum Stage {
    Rows(RowsOperator),
    Join(ResultJoin),
    Nested(Box<NestedWindow>),
    Whole(Box<WholeWindow>),
}

impl ResultChain {
    /// The chain of `graph` after the node `first`, its first window. `joins` are the joins with static tables above it.
    ///
    /// # Errors
    /// When an operator does not fit its input.
    pub fn try_new(graph: &OperatorGraph, first: NodeId, joins: &HashMap<NodeId, Arc<StaticJoin>>) -> Result<Self> {
        let stages = (first + 1..graph.nodes.len()).map(|i| match joins.get(&i) {
            Some(join) => Ok(Stage::Join(ResultJoin::new(Arc::clone(join), &graph.nodes[i].schema))),
            None => stage(graph, &graph.nodes[i]),
        });
        let stages = stages.collect::<Result<_>>()?;
        Ok(Self { stages, publisher: Publisher::try_new(graph)?, failed: Vec::new() })
    }

    /// The publisher at the end.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Goes on from a checkpoint: `published` are the stored versions of live windows, `held` what
    /// [`ResultChain::held_rows`] gave. What stages gave before is told by [`ResultChain::reconcile`].
    ///
    /// # Errors
    /// `Internal` if something does not fit this chain.
    pub fn restore(&mut self, w: i64, published: &[RecordBatch], held: Vec<(u64, RecordBatch)>) -> Result<()> {
        let mut held = held.into_iter();
        for stage in &mut self.stages {
            match stage {
                Stage::Rows(_) | Stage::Join(_) => {}
                Stage::Nested(nested) => nested.restore(w, held.next())?,
                Stage::Whole(whole) => whole.restore(w),
            }
        }
        self.publisher.restore(w, published)
    }

    /// Whether [`ResultChain::reconcile`] has something to do after a restart in which values of the windows `held_back`
    /// were kept back.
    pub fn must_reconcile(&self, held_back: &BTreeSet<Window>) -> bool {
        let remembers = |stage: &Stage| matches!(stage, Stage::Nested(_) | Stage::Whole(_));
        !held_back.is_empty() || self.publisher.publishes_early() || self.stages.iter().any(remembers)
    }

    /// Takes the current values of the first window's live windows after [`ResultChain::restore`], so that each stage
    /// knows again what it has given. Gives versions of what was not published yet. What fails among them has been told before.
    ///
    /// # Errors
    /// See [`ResultChain::on_changes`].
    pub fn reconcile(
        &mut self,
        current: Vec<Changes>,
        published: &[RecordBatch],
        held_back: &BTreeSet<Window>,
        out: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        let mut all = self.through(0, current)?;
        for i in 0..self.stages.len() {
            let mut given = Vec::new();
            match &mut self.stages[i] {
                Stage::Rows(_) | Stage::Join(_) => {}
                Stage::Nested(nested) => nested.current(&mut given)?,
                Stage::Whole(whole) => whole.on_epoch(&mut given)?,
            }
            all.extend(self.through(i + 1, given)?);
        }
        self.failed.clear();
        self.publisher.reconcile(&all, published, held_back, out)
    }

    /// The inner results nested windows hold, in order of the stages, each with a number that changes when they do.
    ///
    /// # Errors
    /// `Internal` if rows do not fit together.
    pub fn held_rows(&self) -> Result<Vec<(u64, RecordBatch)>> {
        let nested = self.stages.iter().filter_map(|stage| match stage {
            Stage::Nested(nested) => Some(nested.held_rows()),
            Stage::Rows(_) | Stage::Join(_) | Stage::Whole(_) => None,
        });
        nested.collect()
    }

    /// Takes values of the first window; gives versions.
    ///
    /// # Errors
    /// `Data` where what needs a whole window (DISTINCT, Top-N, OVER) cannot be computed.
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
                Stage::Rows(_) | Stage::Join(_) => {}
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
                Stage::Rows(_) | Stage::Join(_) => {}
                Stage::Nested(nested) => nested.on_epoch(early, &mut given)?,
                Stage::Whole(whole) => whole.on_epoch(&mut given)?,
            }
            self.pass(i + 1, given, out)?;
        }
        self.publisher.on_epoch();
        Ok(())
    }

    /// Takes the results that could not be computed since the last call.
    pub fn take_failed(&mut self) -> Vec<FailedResult> {
        std::mem::take(&mut self.failed)
    }

    /// Windows with a value kept back.
    pub fn dirty_windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.publisher.dirty_windows()
    }

    fn pass(&mut self, from: usize, changes: Vec<Changes>, out: &mut Vec<RecordBatch>) -> Result<()> {
        let changes = self.through(from, changes)?;
        changes.iter().try_for_each(|change| self.publisher.on_changes(change, out))
    }

    /// What is left of `changes` after the stages from `from` on.
    fn through(&mut self, from: usize, mut changes: Vec<Changes>) -> Result<Vec<Changes>> {
        for stage in &mut self.stages[from..] {
            let mut given = Vec::new();
            for change in changes {
                match stage {
                    Stage::Rows(rows) => given.extend(rows.on_changes(change, &mut self.failed)?),
                    Stage::Join(join) => given.extend(join.on_changes(&change)?),
                    Stage::Nested(nested) => nested.on_changes(&change)?,
                    Stage::Whole(whole) => whole.on_changes(&change, &mut given)?,
                }
            }
            changes = given;
        }
        Ok(changes)
    }
}

/// The rows that `graph` makes of `values`, all that its first window has: what its view holds once every window has
/// expired. Each identity is among them at most once. Adds to `failed` the results that could not be computed.
///
/// # Errors
/// As [`ResultChain::on_changes`].
pub fn settle(
    graph: &OperatorGraph,
    values: Vec<RecordBatch>,
    failed: &mut Vec<FailedResult>,
) -> Result<Vec<RecordBatch>> {
    let first = graph.nodes.iter().position(|node| matches!(node.operator, Operator::Window(_)));
    let first = first.ok_or_else(|| Error::internal("an operator graph without a window"))?;
    let upsert = |rows| Changes { kind: ChangeKind::Upsert, reason: Reason::Initial, rows };
    let mut changes: Vec<Changes> = values.into_iter().map(upsert).collect();
    for node in &graph.nodes[first + 1..] {
        if let Operator::StaticJoin(_) = node.operator {
            return Err(Error::unsupported("a batch run of a view that joins the results of its window")
                .with_hint("join the rows below the window, or join when reading the view"));
        }
        let mut given = Vec::new();
        match stage(graph, node)? {
            Stage::Join(_) => return Err(Error::internal("a join that was refused")),
            Stage::Rows(rows) => {
                for change in changes {
                    given.extend(rows.on_changes(change, failed)?);
                }
            }
            Stage::Nested(mut nested) => {
                changes.iter().try_for_each(|change| nested.on_changes(change))?;
                nested.on_watermark(watermark::END, &mut given)?;
            }
            Stage::Whole(mut whole) => {
                changes.iter().try_for_each(|change| whole.on_changes(change, &mut given))?;
                whole.on_watermark(watermark::END, &mut given)?;
            }
        }
        given.retain(|change| change.kind == ChangeKind::Upsert && change.rows.num_rows() > 0);
        changes = given;
    }
    Ok(changes.into_iter().map(|change| change.rows).collect())
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
