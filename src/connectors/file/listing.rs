//! Which files a path names, and in which order they are read.
//!
//! A path is a file, a folder (all files below it, but none whose name, or whose folder's name, starts with `.` or `_`:
//! other systems keep markers and half-written files there), or a glob pattern. Files are read in the order of their
//! names, whatever order the file system lists them in (C86); a name is the path below the folder or the fixed part of
//! the pattern.

use std::fs;
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result, nearest};

/// A file as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    /// Path below the listing's root; unique in the source.
    pub(crate) name: Arc<str>,
    pub(crate) path: PathBuf,
    /// Bytes on disk when it was listed.
    pub(crate) bytes: u64,
    /// Device and inode, where the platform has them.
    pub(crate) id: Option<(u64, u64)>,
    /// When it was made, µs since 1970 UTC, where the platform knows: a new file may get the number of a deleted one.
    pub(crate) born_us: Option<i64>,
    /// Time of the last change, µs since 1970 UTC.
    pub(crate) changed_us: i64,
    /// When it was last written, made or given its name, µs since 1970 UTC, where the platform knows.
    pub(crate) touched_us: i64,
    /// A plain file, whose size means something; no pipe or device.
    pub(crate) regular: bool,
    /// It may be written to: an unfinished last line is none yet.
    pub(crate) growing: bool,
}

impl FoundFile {
    /// Looks at one file.
    pub(crate) fn look(name: impl Into<Arc<str>>, path: &Path) -> std::io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            name: name.into(),
            path: path.to_path_buf(),
            bytes: meta.len(),
            id: file_id(&meta),
            born_us: born_us(&meta),
            changed_us: changed_us(&meta),
            touched_us: touched_us(&meta),
            regular: meta.is_file(),
            growing: false,
        })
    }

    /// Checks that what was listed can still be read. A text may have grown meanwhile; a file that is read `whole` is as
    /// it was.
    ///
    /// # Errors
    /// `Unavailable` if it is gone, `Conflict` if it is another one now.
    pub(crate) fn check_unchanged(&self, whole: bool) -> Result<()> {
        if !self.regular {
            return Ok(());
        }
        let now = Self::look(Arc::clone(&self.name), &self.path).map_err(|e| unreadable(&self.path, e))?;
        let same = match whole {
            true => now.bytes == self.bytes && now.changed_us == self.changed_us,
            false => now.bytes >= self.bytes,
        };
        if same {
            return Ok(());
        }
        let message = format!("path=`{}` was written anew since it was listed", self.path.display());
        Err(Error::new(ErrorKind::Conflict, message).with_hint(
            "a bounded source reads its files as they are when its job starts; put new rows into new files, or read with \
             follow = 'true'",
        ))
    }
}

fn born_us(meta: &fs::Metadata) -> Option<i64> {
    let since = meta.created().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}

#[cfg(unix)]
fn file_id(meta: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn file_id(_meta: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

#[cfg(unix)]
fn touched_us(meta: &fs::Metadata) -> i64 {
    use std::os::unix::fs::MetadataExt;
    meta.ctime().saturating_mul(1_000_000).saturating_add(meta.ctime_nsec() / 1_000)
}

#[cfg(not(unix))]
fn touched_us(meta: &fs::Metadata) -> i64 {
    changed_us(meta)
}

fn changed_us(meta: &fs::Metadata) -> i64 {
    let since = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_micros()).ok()).unwrap_or(0)
}

/// The `path` option.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern {
    text: String,
    root: PathBuf,
    glob: Option<glob::Pattern>,
    /// Only the file of this name.
    only: Option<Arc<str>>,
    /// The files as they were listed once.
    listed: Option<Arc<[FoundFile]>>,
}

/// What may be meant by a path at which no file is: the file beside it whose name is nearly the same, or another place.
pub(crate) fn near_file(path: &str) -> Option<String> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let shown = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let place = if path.starts_with('/') { PathBuf::from(format!("{folder}/")) } else { Path::new(".").join(folder) };
    let listed = fs::read_dir(&place).into_iter().flatten().flatten();
    let mut files: Vec<String> = listed.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    files.sort();
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    match nearest(name, &names) {
        Some(near) => Some(format!("did you mean '{}'?", shown(near))),
        None if path.starts_with('/') => None,
        None => {
            let from = std::env::current_dir().ok()?;
            Some(format!("a relative path starts from the folder the program runs in, {}", from.display()))
        }
    }
}

impl PathPattern {
    /// A local path, perhaps written as `file://…`.
    ///
    /// # Errors
    /// `Unsupported` for another URL scheme, `Invalid` for a malformed pattern.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let local = match text.split_once("://") {
            Some(("file", path)) => path,
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
                return Err(Error::unsupported(format!("path '{text}': cannot read files from {scheme}://"))
                    .with_hint("give a local path; object stores are not read as sources yet"));
            }
            _ => text,
        };
        if local.is_empty() {
            return Err(Error::invalid("option 'path' is empty"));
        }
        let exists = Path::new(local).exists();
        if exists || !local.contains(['*', '?', '[']) {
            return Ok(Self {
                text: text.to_string(),
                root: PathBuf::from(local),
                glob: None,
                only: None,
                listed: None,
            });
        }
        let pattern = glob::Pattern::new(local)
            .map_err(|e| Error::invalid(format!("path '{text}' is no pattern")).with_source(e))?;
        let fixed = local.find(['*', '?', '[']).unwrap_or(0);
        let root = local[..fixed].rfind('/').map_or("", |at| &local[..=at]);
        Ok(Self { text: text.to_string(), root: PathBuf::from(root), glob: Some(pattern), only: None, listed: None })
    }

    /// The error where it matches no file.
    pub(crate) fn nothing(&self) -> Error {
        let error = Error::invalid(format!("no file matches path='{}'", self.text));
        match near_file(&self.text) {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// The path's last part: the name of the source's one split.
    pub(crate) fn last_part(&self) -> &str {
        self.text.trim_end_matches('/').rsplit('/').next().unwrap_or(&self.text)
    }

    /// The pattern cut down to its file `name`.
    pub(crate) fn only(&self, name: &Arc<str>) -> Self {
        Self { only: Some(Arc::clone(name)), ..self.clone() }
    }

    /// The pattern as far as it named the files `listed`.
    pub(crate) fn pinned(&self, listed: Vec<FoundFile>) -> Self {
        Self { listed: Some(listed.into()), ..self.clone() }
    }

    /// The file that was `name` when the pattern was listed and had `bytes` then, wherever it is now.
    pub(crate) fn listed_before(&self, name: &str, bytes: u64, changed_us: i64) -> FoundFile {
        let path = if self.glob.is_none() && !self.root.is_dir() { self.root.clone() } else { self.root.join(name) };
        let now = FoundFile::look(name, &path).ok();
        let (id, born_us) = now.as_ref().map_or((None, None), |now| (now.id, now.born_us));
        FoundFile {
            name: name.into(),
            path,
            bytes,
            id,
            born_us,
            changed_us,
            touched_us: changed_us,
            regular: now.is_none_or(|now| now.regular),
            growing: false,
        }
    }

    /// Whether its files were listed once and for all.
    pub(crate) fn is_pinned(&self) -> bool {
        self.listed.is_some()
    }

    /// The path as given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The files there are now, in name order. None is no error.
    ///
    /// # Errors
    /// `Unavailable` if a folder cannot be read.
    pub(crate) fn list(&self) -> Result<Vec<FoundFile>> {
        let mut found = Vec::new();
        match &self.glob {
            _ if let Some(listed) = &self.listed => found.extend_from_slice(listed),
            Some(pattern) => {
                let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
                let paths = glob::glob_with(pattern.as_str(), options)
                    .map_err(|e| Error::invalid(format!("path '{}' is no pattern", self.text)).with_source(e))?;
                for path in paths.flatten().filter(|path| path.is_file()) {
                    self.add(&path, &mut found)?;
                }
            }
            None if self.root.is_dir() => self.walk(&self.root, &mut found)?,
            None => self.add(&self.root, &mut found)?,
        }
        found.retain(|file| self.only.as_ref().is_none_or(|only| *only == file.name));
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn walk(&self, folder: &Path, found: &mut Vec<FoundFile>) -> Result<()> {
        let unreadable = |e| unreadable(folder, e);
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(['.', '_']) {
                continue;
            }
            if path.is_dir() {
                self.walk(&path, found)?;
            } else {
                self.add(&path, found)?;
            }
        }
        Ok(())
    }

    /// Adds a file, unless it has just gone.
    fn add(&self, path: &Path, found: &mut Vec<FoundFile>) -> Result<()> {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let name = if below.as_os_str().is_empty() { Path::new(self.last_part()) } else { below };
        match FoundFile::look(name.to_string_lossy(), path) {
            Ok(file) => found.push(file),
            Err(e) if e.kind() == IoKind::NotFound => {}
            Err(e) => return Err(unreadable(path, e)),
        }
        Ok(())
    }
}

/// A file or folder that could not be read.
pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("could not read path=`{}`", path.display())).with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Vec<String> {
        PathPattern::parse(pattern).unwrap().list().unwrap().iter().map(|f| f.name.to_string()).collect()
    }

    #[test]
    fn files_folders_and_patterns_list_in_name_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        for folder in ["b", "_tmp"] {
            fs::create_dir(at(folder)).unwrap();
        }
        for name in ["c.json", "a.json", "b/2.json", "b/1.csv", "_SUCCESS", ".hidden", "_tmp/x.json", "d[1].json"] {
            fs::write(at(name), "x").unwrap();
        }
        assert_eq!(names(&at("")), ["a.json", "b/1.csv", "b/2.json", "c.json", "d[1].json"]);
        assert_eq!(names(&at("*.json")), ["a.json", "c.json", "d[1].json"]);
        assert_eq!(names(&at("**/*.json")), ["_tmp/x.json", "a.json", "b/2.json", "c.json", "d[1].json"]);
        assert_eq!(names(&at("b")), ["1.csv", "2.json"]);
        assert_eq!(names(&at("a.json")), ["a.json"]);
        assert_eq!(names(&format!("file://{}", at("a.json"))), ["a.json"]);
        assert_eq!(names(&at("d[1].json")), ["d[1].json"], "an existing file is no pattern");
        assert!(names(&at("none.json")).is_empty());
    }

    #[test]
    fn other_stores_are_refused() {
        let error = PathPattern::parse("s3://bucket/x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
