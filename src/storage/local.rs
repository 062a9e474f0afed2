//! A local file system on which "written" means synced to disk.
//!
//! `object_store`'s own `LocalFileSystem` never syncs: after a power failure a file it reported as written may be gone
//! or torn. [`SyncedLocal`] writes each file under a temporary name, syncs it, gives it its name by a hard link
//! (create) or a rename (replace), and syncs the folder, and the folders it had to make. A file is therefore never
//! visible before all of its bytes are on disk. Reading is left to `LocalFileSystem`.
//!
//! Listings are in path order, which `LocalFileSystem` does not promise and the Delta log reader relies on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path as FsPath, PathBuf};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use futures::{TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use uuid::Uuid;

const STORE: &str = "SyncedLocal";

/// The machine's file system, from its root. See the module's documentation.
#[derive(Debug, Default)]
pub struct SyncedLocal {
    inner: LocalFileSystem,
}

impl SyncedLocal {
    /// The whole file system; use a prefix to confine it.
    pub fn new() -> Self {
        Self { inner: LocalFileSystem::new() }
    }
}

impl std::fmt::Display for SyncedLocal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(STORE)
    }
}

#[async_trait]
impl ObjectStore for SyncedLocal {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let create = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => {
                return Err(object_store::Error::NotImplemented {
                    operation: "`put_opts` with mode `PutMode::Update`".into(),
                    implementer: STORE.into(),
                });
            }
        };
        let path = self.inner.path_to_filesystem(location)?;
        let name = location.to_string();
        // Syncing takes milliseconds on a disk; it must not hold up the tasks of this thread.
        let written = tokio::task::spawn_blocking(move || write_synced(&path, &payload, create)).await?;
        match written {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err(e) if create && e.kind() == io::ErrorKind::AlreadyExists => {
                Err(object_store::Error::AlreadyExists { path: name, source: e.into() })
            }
            Err(e) => Err(object_store::Error::Generic { store: STORE, source: e.into() }),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        in_path_order(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        in_path_order(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        found.objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        found.common_prefixes.sort_unstable();
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn in_path_order(files: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
    stream::once(async move {
        let mut files: Vec<ObjectMeta> = files.try_collect().await?;
        files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok::<_, object_store::Error>(stream::iter(files.into_iter().map(Ok)))
    })
    .try_flatten()
    .boxed()
}

fn write_synced(path: &FsPath, payload: &PutPayload, create: bool) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file needs a folder"))?;
    create_folder_synced(folder)?;
    let staged = staging_name(path);
    let result = stage(&staged, payload)
        .and_then(|()| if create { fs::hard_link(&staged, path) } else { fs::rename(&staged, path) });
    if create || result.is_err() {
        // Best effort: a leftover has a name that listings skip.
        let _ = fs::remove_file(&staged);
    }
    match result {
        // The file may be our own first try, whose folder could not be synced then.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => sync_folder(folder).and(Err(e)),
        result => result.and_then(|()| sync_folder(folder)),
    }
}

fn stage(staged: &FsPath, payload: &PutPayload) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(staged)?;
    payload.iter().try_for_each(|bytes| file.write_all(bytes))?;
    file.sync_all()
}

/// `name#digits`, which `LocalFileSystem` hides from listings. Random, as the ids of processes repeat: in a container each
/// engine may find what the one before it left.
fn staging_name(path: &FsPath) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("#{}", Uuid::new_v4().as_u128()));
    name.into()
}

/// Makes `folder` and its missing ancestors, each synced into its parent.
fn create_folder_synced(folder: &FsPath) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().ok_or_else(|| io::Error::other("the root folder is missing"))?;
    create_folder_synced(parent)?;
    match fs::create_dir(folder) {
        Ok(()) => sync_folder(parent),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => sync_folder(parent),
        Err(e) => Err(e),
    }
}

/// Makes names in `folder` durable. Only Unix lets a folder be opened and synced; elsewhere names are the system's care.
fn sync_folder(folder: &FsPath) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_create_leaves_the_old_file_and_no_staging_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x/manifest.json");
        write_synced(&path, &PutPayload::from_static(b"one"), true).unwrap();
        let e = write_synced(&path, &PutPayload::from_static(b"two"), true).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path().join("x")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn listings_are_in_path_order_and_skip_staging_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c", "d#12345"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        let store = SyncedLocal::new();
        let prefix = Path::from_absolute_path(dir.path()).unwrap();
        let files: Vec<ObjectMeta> = store.list(Some(&prefix)).try_collect().await.unwrap();
        let names: Vec<_> = files.iter().map(|f| f.location.filename().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
