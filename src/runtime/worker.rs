//! A worker: aggregates the pieces it is given, in any order relative to the other workers.

use std::sync::Arc;

use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use tokio::sync::mpsc;

use super::recovery::Exported;
use crate::error::Result;
use crate::operators::aggregate::{PartialAggregate, Piece, SealAt, Sealed};
use crate::operators::failure;
use crate::operators::fate::Judged;
use crate::operators::graph::Policy;
use crate::operators::ordered::OrderedRows;
use crate::operators::session::{Extent, SessionAggregate, SessionExport, SessionOutput};
use crate::state::rows_at;

/// What a worker is given.
#[derive(Debug)]
pub(super) enum ToWorker {
    /// Rows of one slice.
    Piece(Piece),
    /// This shard's rows, for sessions.
    Sessions(SessionRows),
    /// W has risen.
    Watermark(i64),
    /// The epoch ends.
    Epoch { early: bool, seal: SealAt },
}

/// Rows of one shard in arrival order, keys and arguments evaluated.
#[derive(Debug)]
pub(super) struct SessionRows {
    inputs: RecordBatch,
    times: TimestampMicrosecondArray,
    judged: Judged,
    origin: Vec<u32>,
    whole: Arc<OrderedRows>,
}

impl SessionRows {
    /// The rows of `whole` at `indices`.
    pub fn of(whole: &Arc<OrderedRows>, indices: &[u32]) -> Result<Self> {
        let inputs = rows_at(&whole.rows, indices).map_err(failure)?;
        let at = |values: &[i64]| indices.iter().map(|row| values[*row as usize]).collect::<Vec<_>>();
        let judged = match &whole.judged {
            Judged::All(w) => Judged::All(*w),
            judged => Judged::Each(indices.iter().map(|row| judged.get(*row as usize)).collect()),
        };
        let origin = match &whole.origin {
            None => indices.to_vec(),
            Some(origin) => indices.iter().map(|row| origin[*row as usize]).collect(),
        };
        Ok(Self { inputs, times: at(&whole.times).into(), judged, origin, whole: Arc::clone(whole) })
    }
}

/// What a worker gives.
#[derive(Debug)]
pub(super) enum FromWorker {
    Sealed(Sealed),
    Sessions(Box<SessionOutput>),
    Late(RecordBatch),
    /// The shard's sessions, or what changed in them, as of the epoch's end.
    Exported(Box<SessionExport>),
    /// Everything before the control message at hand has been given.
    Aligned,
}

/// The state machine of a worker.
#[derive(Debug)]
pub(super) enum WorkerState {
    Slices(Box<PartialAggregate>),
    /// Without `late` refused rows are only counted.
    Sessions {
        aggregate: Box<SessionAggregate>,
        late: Option<Late>,
        kept: Box<Kept>,
    },
}

/// What a worker of sessions has to give at the next control message. Between two of them nobody takes anything, so
/// that nothing may wait for it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    given: SessionOutput,
    late: Vec<RecordBatch>,
    /// What has been exported since the last whole export; nothing if nobody keeps state.
    exported: Option<Exported>,
}

impl Kept {
    /// Nothing to give, of sessions that are exported or not.
    pub fn new(keeps_state: bool) -> Self {
        Self { exported: keeps_state.then(Exported::default), ..Self::default() }
    }
}

/// Exports what changed; everything once what was said about changes outweighs it.
fn export(exported: &mut Exported, aggregate: &mut SessionAggregate) -> Result<SessionExport> {
    let outweighed = exported.outweigh(0, aggregate.sessions());
    let export = aggregate.export(if outweighed { Extent::Whole } else { Extent::Changes })?;
    exported.note(export.whole, export.rows());
    Ok(export)
}

/// How refused rows of a session are kept.
#[derive(Debug, Clone)]
pub(super) struct Late {
    pub schema: SchemaRef,
    pub policy: Policy,
    pub clock: Arc<dyn crate::clock::Clock>,
}

/// Works until the input ends. Sends the error that stopped it.
pub(super) async fn work(
    mut state: WorkerState,
    mut from: mpsc::Receiver<ToWorker>,
    to: mpsc::Sender<Result<FromWorker>>,
) {
    while let Some(message) = from.recv().await {
        let mut out = Vec::new();
        if let Err(error) = state.handle(message, &mut out) {
            let _ = to.send(Err(error)).await;
            return;
        }
        for message in out {
            if to.send(Ok(message)).await.is_err() {
                return;
            }
        }
    }
}

impl WorkerState {
    fn handle(&mut self, message: ToWorker, out: &mut Vec<FromWorker>) -> Result<()> {
        match self {
            Self::Slices(aggregate) => slices(aggregate, message, out),
            Self::Sessions { aggregate, late, kept } => sessions(aggregate, late.as_ref(), kept, message, out),
        }
    }
}

fn slices(aggregate: &mut PartialAggregate, message: ToWorker, out: &mut Vec<FromWorker>) -> Result<()> {
    let sealed = match message {
        ToWorker::Piece(piece) => {
            return aggregate.on_piece(&piece).map_err(failure);
        }
        ToWorker::Sessions(_) => return Err(crate::Error::internal("rows of sessions for a worker of slices")),
        ToWorker::Watermark(w) => aggregate.on_watermark(w),
        ToWorker::Epoch { seal, .. } => aggregate.on_epoch(seal),
    };
    out.extend(sealed.map_err(failure)?.into_iter().map(FromWorker::Sealed));
    out.push(FromWorker::Aligned);
    Ok(())
}

fn sessions(
    aggregate: &mut SessionAggregate,
    late: Option<&Late>,
    kept: &mut Kept,
    message: ToWorker,
    out: &mut Vec<FromWorker>,
) -> Result<()> {
    let Kept { given, .. } = kept;
    let ends_epoch = matches!(message, ToWorker::Epoch { .. });
    match message {
        ToWorker::Sessions(SessionRows { inputs, times, judged, origin, whole }) => {
            aggregate.on_inputs(&inputs, &times, &judged, Some(&origin), given)?;
            let refused = std::mem::take(&mut given.refused);
            if let Some(late) = late.filter(|_| !refused.is_empty()) {
                let rows = whole.late_rows(&late.schema, &refused, &late.policy, late.clock.now_us())?;
                kept.late.push(rows);
            }
            return Ok(());
        }
        ToWorker::Piece(_) => return Err(crate::Error::internal("a slice for a worker of sessions")),
        ToWorker::Watermark(w) => aggregate.on_watermark(w, given)?,
        ToWorker::Epoch { early, .. } => aggregate.on_epoch(early, given)?,
    }
    out.extend(kept.late.drain(..).map(FromWorker::Late));
    out.push(FromWorker::Sessions(Box::new(std::mem::take(&mut kept.given))));
    if let Some(exported) = kept.exported.as_mut().filter(|_| ends_epoch) {
        out.push(FromWorker::Exported(Box::new(export(exported, aggregate)?)));
    }
    out.push(FromWorker::Aligned);
    Ok(())
}
