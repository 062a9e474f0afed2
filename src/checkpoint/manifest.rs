//! What a manifest and an index file say, and their bytes.
//!
//! Both are a [`Document`]: read whole or refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::paths::TableId;
use crate::error::Result;
use crate::operators::fate::FateCounts;
use crate::storage::Document;

/// The format this version writes and reads.
pub const FORMAT_VERSION: u32 = 1;

const MANIFEST: Document = Document { name: "a manifest", format_version: FORMAT_VERSION };
const INDEX: Document = Document { name: "an index", format_version: FORMAT_VERSION };

/// The decision of one epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The epoch it decides.
    pub epoch: u64,
    /// Identity of the incarnation that wrote it. Another one in the next manifest means this one is fenced.
    pub writer: String,
    /// Unique per attempt: a writer that lost an acknowledgement knows its own manifest by it.
    pub nonce: String,
    /// `_computed_at` of the epoch's first versions, µs UTC. Later than in every earlier manifest.
    pub stamp_us: i64,
    /// Epoch of the newest index written before this manifest. What came later is in the manifests after it.
    pub index: Option<u64>,
    /// Data files the epoch adds and removes.
    pub tables: BTreeMap<TableId, TableChange>,
    /// The stored result columns and their types, to recognise a changed definition.
    pub columns: Vec<(String, String)>,
    /// Totals of the job up to and including this epoch (L3).
    pub counts: FateCounts,
    /// Versions older than this cannot be told apart any more; AS OF before it is refused. `i64::MIN`: none are.
    pub horizon_us: i64,
    /// The last epoch some version of which has been forgotten; what was published up to it is not all there. 0: none.
    #[serde(default)]
    pub horizon_epoch: u64,
    /// Files removed at or before this stamp are gone from storage; later ones wait for their readers to finish.
    pub vacuumed_us: i64,
    /// The job's own state: offsets, watermarks, chunks. Opaque here.
    pub job: serde_json::Value,
}

/// What an epoch changes in one table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TableChange {
    /// Files that appear.
    pub add: Vec<FileEntry>,
    /// Paths of files that disappear (compaction, retention).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// A file that no read of today needs and that a reader of yesterday may still have open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedFile {
    /// Its table.
    pub table: TableId,
    /// Path below the table's folder.
    pub path: String,
    /// Stamp of the epoch that removed it, µs UTC.
    pub removed_us: i64,
}

/// What a file's versions are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// As an epoch wrote it.
    Fresh,
    /// Compacted: for each identity the latest version of the compacted range.
    Current,
    /// Compacted: versions that a `Current` file supersedes.
    Superseded,
}

/// One data file of a table, with what is known without opening it. Ranges are inclusive at both ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the table's folder.
    pub path: String,
    /// What its versions are to each other.
    pub role: FileRole,
    /// Bytes.
    pub size_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// First and last `_epoch`.
    pub epochs: (u64, u64),
    /// Smallest and largest `_window_start`, µs. Tables without windows: `(i64::MIN, i64::MAX)`.
    pub windows_us: (i64, i64),
    /// Smallest and largest `_computed_at`, µs.
    pub computed_us: (i64, i64),
    /// Largest `_version`; 1 says that every row is the first of its identity.
    pub version_max: i64,
    /// Whether each identity occurs at most once.
    pub single: bool,
    /// Rows with `_deleted`.
    pub deleted_rows: u64,
    /// Rows with `_is_final`.
    pub final_rows: u64,
    /// Of a superseded file: no row that is not final was superseded before this instant, µs. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_us: Option<i64>,
    /// Value of the partition column, where the table has one.
    pub partition: Option<String>,
    /// Delta's statistics of the file, a JSON object.
    pub stats: serde_json::Value,
}

/// All live files of a view as of one epoch: where reading starts, so that it does not depend on the view's age.
/// It is written only after every epoch up to that one is in the Delta log of every table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileIndex {
    /// The epoch it sums up.
    pub epoch: u64,
    /// Live files by table.
    pub tables: BTreeMap<TableId, Vec<FileEntry>>,
    /// Files removed and not yet deleted.
    pub removed: Vec<RemovedFile>,
}

impl Manifest {
    /// The bytes of its file.
    ///
    /// # Errors
    ///
    /// `Internal` only.
    pub fn encode(&self) -> Result<Bytes> {
        MANIFEST.encode(self)
    }

    /// Reads the bytes of `file`.
    ///
    /// # Errors
    ///
    /// `Corrupt` for anything that is not a whole manifest of this format.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self> {
        MANIFEST.decode(file, bytes)
    }
}

impl FileIndex {
    /// The bytes of its file.
    ///
    /// # Errors
    ///
    /// `Internal` only.
    pub fn encode(&self) -> Result<Bytes> {
        INDEX.encode(self)
    }

    /// Reads the bytes of `file`.
    ///
    /// # Errors
    ///
    /// `Corrupt` for anything that is not a whole index of this format.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self> {
        INDEX.decode(file, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn manifest() -> Manifest {
        Manifest {
            epoch: 7,
            writer: "w".into(),
            nonce: "n".into(),
            stamp_us: 1,
            index: None,
            tables: BTreeMap::from([(TableId::Rejects("orders".into()), TableChange::default())]),
            columns: vec![("revenue".into(), "double".into())],
            counts: FateCounts { read: 3, ..FateCounts::default() },
            horizon_us: i64::MIN,
            horizon_epoch: 0,
            vacuumed_us: i64::MIN,
            job: serde_json::json!({"offset": 0.1}),
        }
    }

    #[test]
    fn a_manifest_reads_back() {
        let bytes = manifest().encode().unwrap();
        assert_eq!(Manifest::decode("f", &bytes).unwrap(), manifest());
    }

    #[test]
    fn damage_anywhere_is_refused() {
        let bytes = manifest().encode().unwrap();
        for cut in 0..bytes.len() {
            let e = Manifest::decode("f", &bytes[..cut]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            assert!(Manifest::decode("f", &bytes).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn another_format_is_refused_by_its_number() {
        let text = String::from_utf8(manifest().encode().unwrap().to_vec()).unwrap();
        let e = Manifest::decode("f", text.replacen(":1,", ":2,", 1).as_bytes()).unwrap_err();
        assert!(e.message().contains("format_version=`2`"), "{e}");
    }
}
