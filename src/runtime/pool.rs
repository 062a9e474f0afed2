//! Decoding and preparing on the runtime's own threads.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::connectors::{DecodeJob, DecodePool, SourceBatch};
use crate::error::{Error, Result};

/// Runs decode jobs as tasks of the current tokio runtime.
#[derive(Debug, Clone, Copy)]
pub struct TaskPool {
    parallelism: usize,
}

impl TaskPool {
    /// A pool that keeps `parallelism` jobs in flight.
    pub fn new(parallelism: usize) -> Self {
        Self { parallelism: parallelism.max(1) }
    }
}

impl DecodePool for TaskPool {
    fn run(&self, job: DecodeJob) -> BoxFuture<'static, Result<Vec<SourceBatch>>> {
        let task = tokio::spawn(async move { job() });
        async move { task.await.map_err(|e| panicked("decoding", e))? }.boxed()
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }
}

/// A task of ours ended without a result: it panicked, or the runtime is going down.
pub(super) fn panicked(what: &str, error: tokio::task::JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
            Error::internal(format!("{what} panicked: {text}"))
        }
        Err(_) => Error::new(crate::ErrorKind::Closed, format!("{what} was cancelled")),
    }
}
