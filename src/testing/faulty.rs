//! An object store that fails where it is told to: once, or from there on, as it is for a process that dies.
//!
//! A test runs a scenario with the fault at call 1, 2, 3, … until a run completes without meeting it: then every call
//! the scenario makes has failed once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was done.
    Refused,
    /// It was done and the answer got lost. Only writes differ from [`Fault::Refused`].
    AnswerLost,
    /// Half of a file was written. Files created only if absent are whole or not there, as every store promises, and so are
    /// documents (`.json`) and checkpoints of Delta logs, which every store replaces at one go.
    Torn,
    /// It was done twice: a retry below us that met its own first try.
    Doubled,
}

/// Passes every call on to another store, but for those that are to fail.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    fault: Mutex<Fault>,
    at: AtomicU64,
    dies: AtomicBool,
    calls: AtomicU64,
    failed: AtomicBool,
    read: Mutex<Vec<Path>>,
}

impl FaultyStore {
    /// `inner`, whose call number `at` (from 1) fails with `fault`.
    pub fn new(inner: Arc<dyn ObjectStore>, at: u64, fault: Fault) -> Self {
        let (at, fault) = (AtomicU64::new(at), Mutex::new(fault));
        Self {
            inner,
            fault,
            at,
            dies: Default::default(),
            calls: Default::default(),
            failed: Default::default(),
            read: Mutex::default(),
        }
    }

    /// Call number `calls` from now on fails with `fault`, and every one after it is refused.
    pub fn die_after(&self, calls: u64, fault: Fault) {
        *self.fault.lock() = fault;
        self.dies.store(true, Ordering::SeqCst);
        self.at.store(self.calls() + calls, Ordering::SeqCst);
    }

    /// Whether the fault has been met.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Paths read since the last call of this.
    pub fn take_read(&self) -> Vec<Path> {
        std::mem::take(&mut *self.read.lock())
    }

    /// How this call is to fail, if it is.
    fn next(&self) -> Option<Fault> {
        let (call, at) = (self.calls.fetch_add(1, Ordering::SeqCst) + 1, self.at.load(Ordering::SeqCst));
        if call < at || call > at && !self.dies.load(Ordering::SeqCst) {
            return None;
        }
        self.failed.store(true, Ordering::SeqCst);
        Some(if call == at { *self.fault.lock() } else { Fault::Refused })
    }
}

fn is_document(location: &Path) -> bool {
    location.extension() == Some("json") || location.parts().any(|part| part.as_ref() == "_delta_log")
}

fn broken<T>() -> Result<T> {
    Err(Error::Generic { store: "FaultyStore", source: "the connection broke".into() })
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.next() {
            Some(Fault::Refused) => broken(),
            Some(Fault::Torn) if options.mode == PutMode::Create || is_document(location) => broken(),
            Some(Fault::Torn) => {
                let whole: Vec<u8> = payload.iter().flatten().copied().collect();
                self.inner.put_opts(location, whole[..whole.len() / 2].to_vec().into(), options).await?;
                broken()
            }
            Some(Fault::AnswerLost) => {
                self.inner.put_opts(location, payload, options).await?;
                broken()
            }
            Some(Fault::Doubled) => {
                self.inner.put_opts(location, payload.clone(), options.clone()).await?;
                self.inner.put_opts(location, payload, options).await
            }
            None => self.inner.put_opts(location, payload, options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.next() {
            Some(_) => broken(),
            None => self.inner.put_multipart_opts(location, options).await,
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.next().is_some_and(|fault| fault != Fault::Doubled) {
            return broken();
        }
        self.read.lock().push(location.clone());
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.next() {
            Some(Fault::Refused | Fault::Torn) => stream::once(async { broken() }).boxed(),
            Some(Fault::AnswerLost) => {
                self.inner.delete_stream(locations).chain(stream::once(async { broken() })).boxed()
            }
            Some(Fault::Doubled) | None => self.inner.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.next() {
            Some(_) => stream::once(async { broken() }).boxed(),
            None => self.inner.list(prefix),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.next() {
            Some(_) => stream::once(async { broken() }).boxed(),
            None => self.inner.list_with_offset(prefix, offset),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        match self.next() {
            Some(_) => broken(),
            None => self.inner.list_with_delimiter(prefix).await,
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        match self.next() {
            Some(_) => broken(),
            None => self.inner.copy_opts(from, to, options).await,
        }
    }
}
