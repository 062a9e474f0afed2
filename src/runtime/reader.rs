//! Reads one split, prepares its batches on the pool, and passes them on in order.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;

use super::pool::panicked;
use crate::clock::Clock;
use crate::connectors::{Notes, SourceBatch, SplitEvent, SplitReader};
use crate::error::Result;
use crate::operators::prepare::{Prepare, Prepared};

/// Batches smaller than this are prepared on the spot: a task would cost more than they do.
const INLINE_ROWS: usize = 512;

/// What a reader passes on.
#[derive(Debug)]
pub(super) enum FromSplit {
    Batch(Box<Prepared>),
    Watermark(i64),
    Notes(Notes),
    /// Asked at this time, and had nothing. When this is heard may be much later: a split is not idle for that (T7).
    Nothing {
        at_us: i64,
    },
    End,
}

/// Where a reader starts, and what it skips because it is in the order already.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skip {
    pub next_offset: i64,
}

/// Reads until the split ends or nobody listens.
pub(super) async fn read_split(
    mut reader: Box<dyn SplitReader>,
    split: Arc<str>,
    skip: Skip,
    prepare: Arc<Prepare>,
    clock: Arc<dyn Clock>,
    parallelism: usize,
    to: mpsc::Sender<Result<FromSplit>>,
) {
    let mut in_flight: FuturesOrdered<BoxFuture<'static, Result<FromSplit>>> = FuturesOrdered::new();
    let mut open = true;
    loop {
        let at_us = clock.now_us();
        tokio::select! {
            biased;
            Some(done) = in_flight.next(), if !in_flight.is_empty() => {
                if to.send(done).await.is_err() {
                    return;
                }
            }
            event = reader.next(), if open && in_flight.len() <= parallelism => match event {
                Err(error) => {
                    open = false;
                    in_flight.push_back(Box::pin(async move { Err(error) }));
                }
                Ok(SplitEvent::Rows(batch)) => {
                    let batch = without_known(batch, skip);
                    in_flight.push_back(prepared(Arc::clone(&prepare), Arc::clone(&split), clock.now_us(), batch));
                }
                Ok(SplitEvent::Watermark(w)) => in_flight.push_back(Box::pin(async move { Ok(FromSplit::Watermark(w)) })),
                Ok(SplitEvent::Notes(notes)) => in_flight.push_back(Box::pin(async move { Ok(FromSplit::Notes(notes)) })),
                Ok(SplitEvent::Nothing) => {
                    in_flight.push_back(Box::pin(async move { Ok(FromSplit::Nothing { at_us }) }));
                }
                Ok(SplitEvent::End) => {
                    open = false;
                    in_flight.push_back(Box::pin(async { Ok(FromSplit::End) }));
                }
            },
            else => return,
        }
    }
}

fn prepared(
    prepare: Arc<Prepare>,
    split: Arc<str>,
    now_us: i64,
    batch: SourceBatch,
) -> BoxFuture<'static, Result<FromSplit>> {
    let inline = batch.rows.num_rows() < INLINE_ROWS;
    let work = move || prepare.prepare(&split, now_us, batch).map(|batch| FromSplit::Batch(Box::new(batch)));
    if inline {
        let done = work();
        return Box::pin(async move { done });
    }
    let task = tokio::spawn(async move { work() });
    Box::pin(async move { task.await.map_err(|e| panicked("preparing rows", e))? })
}

/// Drops rows and rejects with offsets below the one to start at.
fn without_known(mut batch: SourceBatch, skip: Skip) -> SourceBatch {
    let known = (0..batch.rows.num_rows()).take_while(|row| batch.offsets.get(*row) < skip.next_offset).count();
    batch.rejects.retain(|reject| reject.offset >= skip.next_offset);
    if known > 0 {
        let rows = batch.rows.num_rows();
        batch.offsets = match batch.offsets {
            crate::connectors::Offsets::From(first) => crate::connectors::Offsets::From(first + known as i64),
            crate::connectors::Offsets::Each(each) => crate::connectors::Offsets::Each(each[known..].to_vec()),
        };
        batch.rows = batch.rows.slice(known, rows - known);
    }
    batch
}
