//! Work that an engine does by itself, now and then, until it is stopped.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A task that does its work, waits as long as the work says, and does it again.
#[derive(Debug)]
pub struct Background {
    stop: watch::Sender<bool>,
    /// Wakes it before its time.
    wake: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Background {
    /// Starts `work`, which says how long to wait before it is called again; `None`: for good. Stopping drops the work at
    /// the point it waits at.
    pub fn start<W>(mut work: W) -> Self
    where
        W: FnMut() -> BoxFuture<'static, Option<Duration>> + Send + 'static,
    {
        let (stop, mut stopped) = watch::channel(false);
        let wake = Arc::new(Notify::new());
        let woken = Arc::clone(&wake);
        let task = tokio::spawn(async move {
            let round = async {
                while let Some(wait) = work().await {
                    // A time that is woken for while the work is done is not missed: the permit is kept.
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = woken.notified() => {}
                    }
                }
            };
            tokio::select! {
                biased;
                // The sender is gone when the engine is: that stops it too.
                _ = stopped.wait_for(|stop| *stop) => {}
                () = round => {}
            }
        });
        Self { stop, wake, task }
    }

    /// Has the work done again now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether it has said that it is done for good.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops it and waits until it has.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A panic in there was reported by the runtime; there is nothing left to stop.
        let _ = self.task.await;
    }
}
