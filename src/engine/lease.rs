//! Who runs jobs on a data dir: a file that the engine which does renews, so that statements of another process do not
//! take its views over by accident.
//!
//! It protects nothing by itself; writers are fenced by their manifests. An engine that goes on with stored views takes
//! over from an older one, which then stops; one that only runs a statement is refused while the holder lives.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Background;

/// How often the file is renewed.
const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// An engine that has not renewed it for this long is gone, µs.
const GONE_AFTER_US: i64 = 15_000_000;

/// This engine as others see it.
#[derive(Debug)]
pub(super) struct Lease {
    id: String,
    renewing: Mutex<Option<Background>>,
}

impl Default for Lease {
    fn default() -> Self {
        Self { id: Uuid::new_v4().to_string(), renewing: Mutex::default() }
    }
}

impl Lease {
    /// Renews it no more; others see that when it is old. Says whether it did.
    pub async fn forget(&self) -> bool {
        let renewing = self.renewing.lock().take();
        let held = renewing.is_some();
        if let Some(renewing) = renewing {
            renewing.stop().await;
        }
        held
    }
}

/// The file: who holds the data dir, as of when.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    format_version: u32,
    id: String,
    host: String,
    pid: u32,
    /// When it said so last, µs UTC.
    at_us: i64,
}

impl Engine {
    /// Whether `what` may change the data dir: no other engine that lives holds it.
    ///
    /// # Errors
    /// `Conflict` naming the engine that does; `Invalid` in an engine that only reads.
    pub(super) async fn must_hold(&self, what: &str) -> Result<()> {
        self.must_write(what)?;
        let Some(bytes) = self.inner.storage.get(&path()).await? else { return Ok(()) };
        // A file that another version wrote, or none of ours, holds nobody up.
        let Ok(holder) = serde_json::from_slice::<Holder>(&bytes) else { return Ok(()) };
        let age_us = self.inner.options.clock.now_us().saturating_sub(holder.at_us);
        if holder.id == self.inner.lease.id || age_us.abs() > GONE_AFTER_US || holder.is_dead() {
            return Ok(());
        }
        let (host, pid) = (&holder.host, holder.pid);
        Err(Error::new(ErrorKind::Conflict, format!("{what}: an engine holds the data dir: host=`{host}` pid=`{pid}`"))
            .with_hint("run the statement in that engine, or stop it first; queries work beside it"))
    }

    /// Says that this engine runs jobs here, and goes on saying so until [`Engine::release`].
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub(super) async fn hold(&self) -> Result<()> {
        if self.inner.lease.renewing.lock().as_ref().is_some_and(|renewing| !renewing.has_ended()) {
            return Ok(());
        }
        let (storage, clock) = (self.inner.storage.clone(), self.inner.options.clock.clone());
        let id = self.inner.lease.id.clone();
        storage.put(&path(), Holder::now(&id, clock.now_us()).encode()?).await?;
        let renew = Background::start(move || {
            let (storage, now_us, id) = (storage.clone(), clock.now_us(), id.clone());
            Box::pin(async move {
                let known = match storage.get(&path()).await {
                    Ok(known) => known.and_then(|bytes| serde_json::from_slice::<Holder>(&bytes).ok()),
                    // It may be another engine's by now, which is not to be taken from it.
                    Err(_) => return Some(RENEWED_EVERY),
                };
                if known.is_some_and(|holder| holder.id != id) {
                    return None;
                }
                if let Ok(bytes) = Holder::now(&id, now_us).encode() {
                    // One that is missed is made up for by the next.
                    let _ = storage.put(&path(), bytes).await;
                }
                Some(RENEWED_EVERY)
            })
        });
        *self.inner.lease.renewing.lock() = Some(renew);
        Ok(())
    }

    /// Runs no jobs any more.
    pub(super) async fn release(&self) {
        if !self.inner.lease.forget().await {
            return;
        }
        let known = self.inner.storage.get(&path()).await.ok().flatten();
        let known = known.and_then(|bytes| serde_json::from_slice::<Holder>(&bytes).ok());
        if known.is_some_and(|holder| holder.id == self.inner.lease.id)
            && let Err(error) = self.inner.storage.delete(&path()).await
        {
            tracing::warn!("the data dir was not released: {error}");
        }
    }
}

impl Holder {
    fn now(id: &str, at_us: i64) -> Self {
        Self { format_version: 1, id: id.to_owned(), host: host(), pid: std::process::id(), at_us }
    }

    fn encode(&self) -> Result<Bytes> {
        let bytes = serde_json::to_vec(self).map_err(|e| Error::internal("a lease").with_source(e))?;
        Ok(Bytes::from(bytes))
    }

    /// Whether it is known to have ended: a process of this host that is not there.
    fn is_dead(&self) -> bool {
        let processes = std::path::Path::new("/proc/self");
        processes.exists() && self.host == host() && !processes.with_file_name(self.pid.to_string()).exists()
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    name.map_or_else(|| "unknown".to_owned(), |name| name.trim().to_owned())
}

fn path() -> Path {
    Path::from("engine.json")
}
