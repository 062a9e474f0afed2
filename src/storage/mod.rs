//! The edge to object storage: open a place, create a file only if it is absent, and know what an error asks for.
//!
//! Everything Highwater keeps lies under one [`Storage`]: a folder, a bucket prefix, or memory. The rest of the crate
//! sees paths relative to it. On a local disk "written" means synced, file and folder; see [`local`]. Nothing in here
//! knows what the files mean.
//!
//! Transient network errors are retried by `object_store`'s clients (10 times within 3 minutes by default); what comes
//! out of here has outlived that. A retried conditional put may find its own earlier attempt, so callers that create
//! files carry a nonce and look again (see `checkpoint::manifest`).

mod document;
pub mod local;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use url::Url;

pub use document::Document;

use crate::error::{Error, ErrorKind, Result};
use local::SyncedLocal;

/// Named memory stores live as long as the process, so that a test can close an engine and open it again.
static MEMORY: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// Numbers the stores of this process, to tell them apart inside DataFusion.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// What became of a create-if-absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The file was absent and is there now, durably.
    Written,
    /// A file of that name exists. It may be our own earlier attempt.
    Exists,
}

/// One place to keep things. Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    location: Arc<str>,
    id: u64,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({})", self.location)
    }
}

impl Storage {
    /// Opens `location`: a path (`./dir`), `file:///dir`, `memory://name` (shared by name within the process;
    /// `memory://` alone is a fresh one), or `s3://bucket/prefix` (credentials and region from the `AWS_*` variables).
    /// Creates nothing: a folder appears with the first file written.
    ///
    /// # Errors
    ///
    /// `Invalid` for a location of an unknown scheme or a client that cannot be configured.
    pub fn open(location: &str) -> Result<Self> {
        // A one-letter scheme is a Windows drive.
        match Url::parse(location) {
            Ok(url) if url.scheme().len() > 1 => Self::open_url(&url),
            _ => Self::open_folder(std::path::Path::new(location)),
        }
    }

    /// A fresh place in memory that nothing else can name.
    pub fn memory() -> Self {
        Self::with_store(Arc::new(InMemory::new()), "memory://")
    }

    /// A place in a store of the caller's own. `location` is for messages only.
    pub fn with_store(store: Arc<dyn ObjectStore>, location: impl Into<Arc<str>>) -> Self {
        Self { store, location: location.into(), id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }

    fn open_url(url: &Url) -> Result<Self> {
        match url.scheme() {
            "file" => {
                let path =
                    url.to_file_path().map_err(|()| Error::invalid(format!("not a local folder: location=`{url}`")))?;
                Self::open_folder(&path)
            }
            "memory" => {
                let name = format!("{}{}", url.host_str().unwrap_or(""), url.path());
                if name.trim_matches('/').is_empty() {
                    return Ok(Self::memory());
                }
                let mut named = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
                let store = Arc::clone(named.entry(name).or_default());
                Ok(Self::with_store(store, url.as_str()))
            }
            "s3" | "s3a" => {
                let s3 = AmazonS3Builder::from_env().with_url(url.as_str()).build().map_err(|e| {
                    Error::invalid(format!("cannot configure the object store: location=`{url}`"))
                        .with_hint("set AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
                        .with_source(e)
                })?;
                let prefix = Path::from_url_path(url.path()).map_err(|e| {
                    Error::invalid(format!("not a path in the bucket: location=`{url}`")).with_source(e)
                })?;
                Ok(Self::with_store(Arc::new(PrefixStore::new(s3, prefix)), url.as_str()))
            }
            other => Err(Error::invalid(format!("unknown kind of storage: scheme=`{other}`"))
                .with_hint("use a folder, file://, memory:// or s3://")),
        }
    }

    fn open_folder(folder: &std::path::Path) -> Result<Self> {
        let bad = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::invalid(format!("not a usable folder: path=`{}`", folder.display())).with_source(e)
        };
        let absolute = std::path::absolute(folder).map_err(|e| bad(e.into()))?;
        let prefix = Path::from_absolute_path(&absolute).map_err(|e| bad(e.into()))?;
        let store = PrefixStore::new(SyncedLocal::new(), prefix);
        Ok(Self::with_store(Arc::new(store), folder.display().to_string()))
    }

    /// The same place as seen from `folder` down.
    pub fn within(&self, folder: &Path) -> Arc<dyn ObjectStore> {
        Arc::new(PrefixStore::new(Arc::clone(&self.store), folder.clone()))
    }

    /// The store itself, paths relative to this place.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Where it is, as the user wrote it.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// A URL under which DataFusion may know this store: unique within the process.
    pub fn datafusion_url(&self) -> Url {
        Url::parse(&format!("highwater://store-{}/", self.id)).expect("scheme and host are plain ASCII")
    }

    /// Creates `path` with `bytes`, atomically and durably, unless it exists.
    ///
    /// # Errors
    ///
    /// `Unavailable` where the outcome is unknown: look with [`Storage::get`] before concluding anything.
    pub async fn create(&self, path: &Path, bytes: Bytes) -> Result<Created> {
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(path, bytes.into(), options).await {
            Ok(_) => Ok(Created::Written),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Created::Exists)
            }
            Err(e) => Err(storage_error("create", path, e)),
        }
    }

    /// Writes `path`, replacing what is there, durably.
    ///
    /// # Errors
    ///
    /// By kind of [`storage_error`].
    pub async fn put(&self, path: &Path, bytes: Bytes) -> Result<()> {
        self.store.put(path, bytes.into()).await.map(drop).map_err(|e| storage_error("write", path, e))
    }

    /// The bytes of `path`, or `None` where there is no such file.
    ///
    /// # Errors
    ///
    /// By kind of [`storage_error`].
    pub async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        let read = async { self.store.get(path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(storage_error("read", path, e)),
        }
    }

    /// Files below `folder` whose path sorts after `after`, in path order.
    ///
    /// # Errors
    ///
    /// By kind of [`storage_error`].
    pub async fn list(&self, folder: &Path, after: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let stream = match after {
            Some(after) => self.store.list_with_offset(Some(folder), after),
            None => self.store.list(Some(folder)),
        };
        let mut files: Vec<ObjectMeta> = stream.try_collect().await.map_err(|e| storage_error("list", folder, e))?;
        files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(files)
    }

    /// Removes `path`. Removing what is not there is no error.
    ///
    /// # Errors
    ///
    /// By kind of [`storage_error`].
    pub async fn delete(&self, path: &Path) -> Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(storage_error("delete", path, e)),
        }
    }
}

/// What an object store's error asks the caller to do.
///
/// `Unavailable`: the network, the disk or the service; `Conflict`: the file exists or changed; `Invalid`: the place or
/// the credentials are wrong and no retry helps; `Corrupt`: a file that must be there is missing.
pub fn storage_error(action: &str, path: &Path, e: object_store::Error) -> Error {
    use object_store::Error as E;
    let kind = match &e {
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => ErrorKind::Conflict,
        E::NotFound { .. } => ErrorKind::Corrupt,
        E::PermissionDenied { .. }
        | E::Unauthenticated { .. }
        | E::InvalidPath { .. }
        | E::UnknownConfigurationKey { .. }
        | E::NotSupported { .. }
        | E::NotImplemented { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable, // Generic, JoinError and whatever is added to this non-exhaustive list
    };
    Error::new(kind, format!("cannot {action} a file: path=`{path}`")).with_source(e)
}

/// Whether the store is what failed in `error`, however many libraries it came through. A file that is not there is no
/// failure of the store.
pub fn is_unavailable(error: &(dyn std::error::Error + 'static)) -> bool {
    use object_store::Error as E;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<E>() {
            return matches!(error, E::Generic { .. } | E::JoinError { .. });
        }
        // The source of an I/O error is that of what it holds, which would be passed over.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    // Parquet's reader of metadata and Delta's kernel keep the text alone.
    let text = error.to_string().to_lowercase();
    text.contains("object store error: generic") || text.contains("interacting with object store: generic")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn create_twice(storage: &Storage) {
        let path = Path::from("a/b.json");
        assert_eq!(storage.get(&path).await.unwrap(), None);
        assert_eq!(storage.create(&path, Bytes::from_static(b"1")).await.unwrap(), Created::Written);
        assert_eq!(storage.create(&path, Bytes::from_static(b"2")).await.unwrap(), Created::Exists);
        assert_eq!(storage.get(&path).await.unwrap().unwrap(), "1");
        storage.put(&path, Bytes::from_static(b"3")).await.unwrap();
        assert_eq!(storage.get(&path).await.unwrap().unwrap(), "3");
        storage.put(&Path::from("a/a.json"), Bytes::new()).await.unwrap();
        let names = |files: Vec<ObjectMeta>| files.into_iter().map(|f| f.location.to_string()).collect::<Vec<_>>();
        let all = storage.list(&Path::from("a"), None).await.unwrap();
        assert_eq!(names(all), ["a/a.json", "a/b.json"]);
        let after = storage.list(&Path::from("a"), Some(&Path::from("a/a.json"))).await.unwrap();
        assert_eq!(names(after), ["a/b.json"]);
        storage.delete(&path).await.unwrap();
        storage.delete(&path).await.unwrap();
    }

    #[tokio::test]
    async fn memory_creates_once() {
        create_twice(&Storage::memory()).await;
    }

    #[tokio::test]
    async fn a_folder_creates_once_and_appears_with_the_first_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("not yet");
        let storage = Storage::open(folder.to_str().unwrap()).unwrap();
        assert!(storage.list(&Path::from("a"), None).await.unwrap().is_empty());
        assert!(!folder.exists());
        create_twice(&storage).await;
        assert!(folder.join("a/a.json").exists());
        let url = Url::from_directory_path(&folder).unwrap();
        let again = Storage::open(url.as_str()).unwrap();
        assert!(again.get(&Path::from("a/a.json")).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn memory_is_shared_by_name() {
        let one = Storage::open("memory://storage-tests/x").unwrap();
        one.put(&Path::from("f"), Bytes::from_static(b"1")).await.unwrap();
        let two = Storage::open("memory://storage-tests/x").unwrap();
        assert!(two.get(&Path::from("f")).await.unwrap().is_some());
        let other = Storage::open("memory://").unwrap();
        assert!(other.get(&Path::from("f")).await.unwrap().is_none());
    }

    #[test]
    fn a_store_that_failed_is_known_through_other_libraries() {
        use datafusion::error::DataFusionError;
        use datafusion::parquet::errors::ParquetError;
        let broken = || object_store::Error::Generic { store: "S3", source: "the connection broke".into() };
        let gone = object_store::Error::NotFound { path: "f".into(), source: "404".into() };
        let parquet = |e: object_store::Error| DataFusionError::from(ParquetError::External(Box::new(e)));
        assert!(is_unavailable(&parquet(broken())));
        assert!(!is_unavailable(&parquet(gone)));
        assert!(is_unavailable(&std::io::Error::other(broken())));
        let text = format!("Failed to fetch metadata for file f: {}", DataFusionError::from(broken()));
        assert!(is_unavailable(&DataFusionError::from(ParquetError::General(text))));
        assert!(!is_unavailable(&DataFusionError::from(ParquetError::EOF("cut short".into()))));
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones() {
        let e = Storage::open("ftp://host/x").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Invalid);
        assert!(e.hint().unwrap().contains("s3://"));
    }
}
