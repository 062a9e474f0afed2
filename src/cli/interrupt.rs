//! Ctrl-C, and work that can be left when it comes.
//!
//! A thread of its own hears the signal: a query that computes may keep every thread of the runtime busy, and a runtime whose
//! threads are all busy hears nothing. For the same reason nothing is computed by whoever waits for Ctrl-C: statements and
//! their rows are the work of tasks, and a task that is left ends the next time it pauses.

use std::future::Future;
use std::io;
use std::sync::LazyLock;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

/// Batches that are computed ahead of whoever shows them.
const BATCHES_AHEAD: usize = 4;

/// How often Ctrl-C was pressed.
static PRESSED: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// From here on Ctrl-C does not end the program but what waits for [`interrupted`].
///
/// # Errors
///
/// There is no thread to be had.
pub fn listen() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let listener = std::thread::Builder::new().name("ctrl-c".into());
    let listening = move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                PRESSED.send_modify(|pressed| *pressed += 1);
            }
        });
    };
    listener.spawn(listening).map(|_| ())
}

/// Resolves at the next Ctrl-C.
pub async fn interrupted() {
    if PRESSED.subscribe().changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Does `work` in a task, which is aborted if the future is dropped. A panic in it goes on here.
pub async fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(work);
    end_of(task).await
}

/// `rows` as a task computes them. The task is aborted if the stream is dropped; a panic in it goes on here.
pub fn rows_apart<T: Send + 'static>(rows: impl Stream<Item = T> + Send + 'static) -> BoxStream<'static, T> {
    let (to, from) = mpsc::channel(BATCHES_AHEAD);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = rows.next().await {
            if to.send(row).await.is_err() {
                return;
            }
        }
    });
    let next = |(mut from, task): (mpsc::Receiver<T>, JoinSet<()>)| async move {
        match from.recv().await {
            Some(row) => Some((row, (from, task))),
            None => {
                end_of(task).await;
                None
            }
        }
    };
    stream::unfold((from, task), next).boxed()
}

async fn end_of<T: 'static>(mut task: JoinSet<T>) -> T {
    match task.join_next().await.expect("a task was spawned").map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Aborted, as the runtime ends; so does whoever waits.
        Err(Err(_)) => std::future::pending().await,
    }
}
