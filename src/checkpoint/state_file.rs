//! The file in which an epoch keeps its job's state, and which older files it still needs.
//!
//! ```text
//! {"format_version":1,"bytes":…,"crc32":"…"}                               of all that follows the line
//! {"datafusion":"55.2.0","state_bytes":…,"batches":[["c7",1234],["c8",99]],
//!  "older":{"00000000000000000006-1f….state":["c1","c2"]}}
//! <state: JSON> <batch c7: Arrow IPC stream> <batch c8: Arrow IPC stream>
//! ```
//!
//! State is one JSON text and record batches by name. A name stands for the same rows for ever, so an epoch writes the
//! batches that are new and names the files that hold the others. What either means is the operators' to know. A file that
//! is cut short, damaged, or of another format or DataFusion version is refused, never half-read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// The format this version writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// A file is written anew when less than this part of its bytes is still needed, in percent.
const NEEDED_PERCENT_MIN: u64 = 50;

/// All of a job's state as of an epoch.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// What is no batch.
    pub state: serde_json::Value,
    /// The rows of every batch the state speaks of, by name.
    pub batches: Vec<(String, Arc<dyn StateRows>)>,
}

/// Rows of a [`Snapshot`], which may lie outside memory until a file is written that needs them.
pub trait StateRows: std::fmt::Debug + Send + Sync {
    /// The rows, some at a time, in as many batches as there happen to be.
    fn batches(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + '_>;
}

impl StateRows for RecordBatch {
    fn batches(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + '_> {
        Box::new(std::iter::once(Ok(self.clone())))
    }
}

/// The files of one job's state: what lies where.
#[derive(Debug, Clone, Default)]
pub struct StateFiles {
    files: BTreeMap<String, Held>,
    /// The newest file.
    newest: Option<String>,
}

/// What a file holds that is still needed, by name, with its bytes.
#[derive(Debug, Clone, Default)]
struct Held {
    batches: BTreeMap<String, u64>,
    /// Bytes of all its batches, those no longer needed included.
    bytes: u64,
}

/// A file to be written, and what it makes of the others.
#[derive(Debug)]
pub struct NextFile {
    /// Its bytes.
    pub bytes: Bytes,
    /// The files once it is decided.
    pub files: StateFiles,
    /// Files that nothing needs once it is decided.
    pub obsolete: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format_version: u32,
    bytes: usize,
    crc32: String,
}

/// What lies where in a file, and what it needs of others.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    datafusion: String,
    state_bytes: usize,
    batches: Vec<(String, usize)>,
    older: BTreeMap<String, BTreeSet<String>>,
}

/// A file as read.
#[derive(Debug)]
pub struct StateFile {
    /// What is no batch.
    pub state: serde_json::Value,
    /// Names of the batches needed of older files, by file.
    pub older: BTreeMap<String, BTreeSet<String>>,
    batches: Vec<(String, Bytes)>,
}

impl StateFiles {
    /// Encodes `snapshot` as the file `name`, leaving out the batches that lie in older files.
    ///
    /// # Errors
    ///
    /// `Internal` if a batch cannot be encoded.
    pub fn next(&self, name: &str, snapshot: &Snapshot) -> Result<NextFile> {
        let wanted: HashSet<&str> = snapshot.batches.iter().map(|(name, _)| name.as_str()).collect();
        let mut files = self.files.clone();
        for held in files.values_mut() {
            held.batches.retain(|name, _| wanted.contains(name.as_str()));
        }
        files.retain(|_, held| {
            let needed: u64 = held.batches.values().sum();
            needed > 0 && needed * 100 >= held.bytes * NEEDED_PERCENT_MIN
        });
        let known: BTreeSet<&str> = files.values().flat_map(|held| held.batches.keys().map(String::as_str)).collect();
        let mut blobs = serde_json::to_vec(&snapshot.state).map_err(|e| internal("a job's state", e))?;
        let state_bytes = blobs.len();
        let mut written = Vec::new();
        for (name, batch) in snapshot.batches.iter().filter(|(name, _)| !known.contains(name.as_str())) {
            let before = blobs.len();
            encode_rows(batch.as_ref(), &mut blobs)?;
            written.push((name.clone(), blobs.len() - before));
        }
        let names = |held: &Held| held.batches.keys().cloned().collect();
        let contents = Contents {
            datafusion: datafusion::DATAFUSION_VERSION.to_owned(),
            state_bytes,
            batches: written.clone(),
            older: files.iter().map(|(file, held)| (file.clone(), names(held))).collect(),
        };
        let bytes = framed(&contents, &blobs)?;
        let written: BTreeMap<_, _> = written.into_iter().map(|(name, bytes)| (name, bytes as u64)).collect();
        let held = Held { bytes: written.values().sum(), batches: written };
        let obsolete = self.files.keys().chain(&self.newest).filter(|file| !files.contains_key(*file));
        let obsolete: BTreeSet<String> = obsolete.cloned().collect();
        files.insert(name.to_owned(), held);
        let files = Self { files, newest: Some(name.to_owned()) };
        Ok(NextFile { bytes, files, obsolete: obsolete.into_iter().collect() })
    }

    /// The files of a job whose newest is `name`, from what was read: that file, and the older ones it needs.
    pub fn of(name: &str, newest: &StateFile, older: &BTreeMap<String, StateFile>) -> Self {
        let mut files = BTreeMap::new();
        for (file, read) in older.iter().map(|(file, read)| (file.as_str(), read)).chain([(name, newest)]) {
            let needed = newest.older.get(file);
            let batches = read.batches.iter().filter(|(batch, _)| needed.is_none_or(|needed| needed.contains(batch)));
            let held = Held {
                batches: batches.map(|(batch, bytes)| (batch.clone(), bytes.len() as u64)).collect(),
                bytes: read.batches.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            };
            files.insert(file.to_owned(), held);
        }
        Self { files, newest: Some(name.to_owned()) }
    }

    /// Names of the files, the newest included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().chain(&self.newest).map(String::as_str)
    }

    /// Bytes of the batches that are needed.
    pub fn bytes(&self) -> u64 {
        self.files.values().flat_map(|held| held.batches.values()).sum()
    }
}

impl StateFile {
    /// Reads the bytes of the file `name`.
    ///
    /// # Errors
    ///
    /// `Corrupt` for anything that is not a whole file of this format; `Conflict` if another version of DataFusion wrote
    /// it, whose partial states may mean something else.
    pub fn decode(name: &str, bytes: Bytes) -> Result<Self> {
        let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("{what}: file=`{name}`"));
        let end = bytes.iter().position(|b| *b == b'\n').ok_or_else(|| corrupt("a state file has no header"))?;
        let header: Header = serde_json::from_slice(&bytes[..end])
            .map_err(|e| corrupt("a state file has an unreadable header").with_source(e))?;
        if header.format_version != FORMAT_VERSION {
            let message = format!("a state file is of another format: format_version=`{}`", header.format_version);
            return Err(corrupt(&message).with_hint("open it with the Highwater version that wrote it, or a newer one"));
        }
        let body = bytes.slice(end + 1..);
        if body.len() != header.bytes || checksum(&body) != header.crc32 {
            return Err(corrupt("a state file does not match its checksum"));
        }
        let end = body.iter().position(|b| *b == b'\n').ok_or_else(|| corrupt("a state file has no contents"))?;
        let contents: Contents = serde_json::from_slice(&body[..end])
            .map_err(|e| corrupt("a state file has unreadable contents").with_source(e))?;
        check_datafusion(&contents.datafusion)?;
        let mut blobs = body.slice(end + 1..);
        let mut sizes = contents.batches.iter().map(|(_, bytes)| bytes);
        if sizes.try_fold(contents.state_bytes, |sum, bytes| sum.checked_add(*bytes)) != Some(blobs.len()) {
            return Err(corrupt("a state file does not hold what it says"));
        }
        let state = serde_json::from_slice(&blobs.split_to(contents.state_bytes))
            .map_err(|e| corrupt("a state file has an unreadable state").with_source(e))?;
        let batches = contents.batches.into_iter().map(|(batch, bytes)| (batch, blobs.split_to(bytes))).collect();
        Ok(Self { state, older: contents.older, batches })
    }

    /// Decodes its batches, or those of them in `wanted`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if one cannot be decoded.
    pub fn batches(&self, wanted: Option<&BTreeSet<String>>) -> Result<Vec<(String, RecordBatch)>> {
        let batches = self.batches.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted.contains(name)));
        batches.map(|(name, bytes)| Ok((name.clone(), decode_batch(name, bytes)?))).collect()
    }
}

/// The header, the contents and what they speak of.
fn framed(contents: &Contents, blobs: &[u8]) -> Result<Bytes> {
    let mut body = serde_json::to_vec(contents).map_err(|e| internal("a state file's contents", e))?;
    body.push(b'\n');
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&body);
    checksum.update(blobs);
    let crc32 = format!("{:08x}", checksum.finalize());
    let header = Header { format_version: FORMAT_VERSION, bytes: body.len() + blobs.len(), crc32 };
    let mut bytes = serde_json::to_vec(&header).map_err(|e| internal("a state file's header", e))?;
    bytes.reserve_exact(1 + header.bytes);
    bytes.push(b'\n');
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(blobs);
    Ok(bytes.into())
}

fn check_datafusion(wrote: &str) -> Result<()> {
    let reads = datafusion::DATAFUSION_VERSION;
    if wrote == reads {
        return Ok(());
    }
    let message = format!("open windows were kept by another version of DataFusion: wrote=`{wrote}` reads=`{reads}`");
    Err(Error::new(ErrorKind::Conflict, message)
        .with_hint("CREATE OR REPLACE MATERIALIZED VIEW … RESTART computes the view anew from its source"))
}

fn encode_rows(rows: &dyn StateRows, out: &mut Vec<u8>) -> Result<()> {
    let failed = |e: ArrowError| internal("a batch of state", e);
    let mut out = Some(out);
    let mut writer = None;
    for batch in rows.batches() {
        let batch = batch?;
        if let Some(out) = out.take() {
            let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
            let options = options.map_err(failed)?;
            writer = Some(StreamWriter::try_new_with_options(out, &batch.schema(), options).map_err(failed)?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&batch).map_err(failed)?;
        }
    }
    writer.map_or(Ok(()), |mut writer| writer.finish().map_err(failed))
}

fn decode_batch(name: &str, bytes: &Bytes) -> Result<RecordBatch> {
    let read = || {
        let reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        let schema = reader.schema();
        concat_batches(&schema, &reader.collect::<std::result::Result<Vec<_>, _>>()?)
    };
    read().map_err(|e: ArrowError| {
        Error::new(ErrorKind::Corrupt, format!("a batch of state cannot be read: batch=`{name}`")).with_source(e)
    })
}

fn checksum(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}

fn internal(what: &str, e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::internal(format!("cannot encode {what}")).with_source(e)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, false)]);
        let keys = StringArray::from_iter((0..rows).map(|i| (i > 0).then(|| format!("key {i}"))));
        let columns = vec![Arc::new(keys) as _, Arc::new(Int64Array::from_iter_values(0..rows)) as _];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    fn snapshot(batches: &[(&str, i64)]) -> Snapshot {
        let rows = |rows: i64| Arc::new(batch(rows)) as Arc<dyn StateRows>;
        let batches = batches.iter().map(|(name, n)| ((*name).to_owned(), rows(*n))).collect();
        Snapshot { state: serde_json::json!({"w": i64::MIN}), batches }
    }

    #[test]
    fn an_epoch_writes_what_is_new_and_names_the_files_of_the_rest() {
        let first = StateFiles::default().next("1", &snapshot(&[("a", 1000), ("b", 10)])).unwrap();
        let second = first.files.next("2", &snapshot(&[("a", 1000), ("c", 5)])).unwrap();
        assert!(second.obsolete.is_empty());
        assert!(second.bytes.len() * 5 < first.bytes.len());
        let read = StateFile::decode("2", second.bytes).unwrap();
        assert_eq!(read.older, BTreeMap::from([("1".to_owned(), BTreeSet::from(["a".to_owned()]))]));
        assert_eq!(read.batches(None).unwrap(), [("c".to_owned(), batch(5))]);
        assert_eq!(read.state, snapshot(&[]).state);
        let older = StateFile::decode("1", first.bytes).unwrap();
        assert_eq!(older.batches(read.older.get("1")).unwrap(), [("a".to_owned(), batch(1000))]);

        // Another process goes on from what it read; a file of which little is needed is written anew and can go.
        let files = StateFiles::of("2", &read, &BTreeMap::from([("1".to_owned(), older)]));
        assert_eq!(files.names().collect::<BTreeSet<_>>(), BTreeSet::from(["1", "2"]));
        let third = files.next("3", &snapshot(&[("c", 5), ("d", 1)])).unwrap();
        assert_eq!(third.obsolete, ["1"]);
        let fourth = third.files.next("4", &snapshot(&[])).unwrap();
        assert_eq!(fourth.obsolete, ["2", "3"]);
        assert!(fourth.bytes.len() < 300, "{}", fourth.bytes.len());
    }

    #[test]
    fn damage_anywhere_is_refused() {
        let bytes = StateFiles::default().next("1", &snapshot(&[("a", 3)])).unwrap().bytes;
        for cut in 0..bytes.len() {
            let e = StateFile::decode("f", bytes.slice(..cut)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            assert!(StateFile::decode("f", bytes.into()).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn another_format_or_datafusion_is_refused_by_its_number() {
        let bytes = StateFiles::default().next("1", &snapshot(&[])).unwrap().bytes;
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let e = StateFile::decode("f", text.replacen(":1,", ":2,", 1).into()).unwrap_err();
        assert!(e.message().contains("format_version=`2`"), "{e}");
        let contents = |datafusion: &str| Contents {
            datafusion: datafusion.to_owned(),
            state_bytes: 4,
            batches: vec![],
            older: BTreeMap::new(),
        };
        assert!(StateFile::decode("f", framed(&contents(datafusion::DATAFUSION_VERSION), b"null").unwrap()).is_ok());
        let e = StateFile::decode("f", framed(&contents("1.2.3"), b"null").unwrap()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Conflict);
        assert!(e.message().contains("wrote=`1.2.3`") && e.hint().unwrap().contains("RESTART"), "{e}");
    }
}
