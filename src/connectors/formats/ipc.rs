//! Arrow IPC: the file format and the stream format, told apart by their first bytes. One record batch is one piece.
//!
//! Both are the same messages, so both are read alike: an index of the record batches is made first (from the footer, or by
//! walking the message heads), then each is decoded by a job of its own. A stream that replaces dictionaries between its
//! batches is refused, since its batches cannot be read apart from each other.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::{Block, MessageHeader, MetadataVersion, root_as_footer, root_as_message};

use super::Wanted;
use super::columnar::{ColumnMatch, ColumnarFile, columns_of, damaged};
use crate::connectors::{ColumnDefinition, SourceBatch};
use crate::error::Result;

const MAGIC: &[u8] = b"ARROW1";

/// An open Arrow IPC file or stream.
#[derive(Debug)]
pub(crate) struct IpcFile {
    path: PathBuf,
    decoder: FileDecoder,
    columns: ColumnMatch,
    blocks: Vec<Block>,
    rows: Vec<u64>,
}

/// Where a file's messages are.
struct Index {
    schema: Arc<Schema>,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
}

impl IpcFile {
    /// Makes the index of the file at `path` and reads its dictionaries.
    ///
    /// # Errors
    /// `Corrupt` if it is not Arrow IPC or cannot be read.
    pub(crate) fn open(path: &Path, name: Arc<str>, declared: &[ColumnDefinition], wanted: Wanted) -> Result<Self> {
        let failed = |e| damaged(path, "arrow", e);
        let mut file = File::open(path).map_err(|e| failed(e.into()))?;
        let index = Index::read(&mut file).map_err(failed)?;
        let columns = ColumnMatch::new(name, index.schema.fields(), declared, wanted);
        let mut decoder = FileDecoder::new(index.schema, index.version).with_projection(columns.projection.clone());
        let mut rows = Vec::with_capacity(index.batches.len());
        for block in &index.dictionaries {
            let bytes = read_block(&mut file, block).map_err(failed)?;
            decoder.read_dictionary(block, &bytes).map_err(failed)?;
        }
        for block in &index.batches {
            let head = read_at(&mut file, block.offset(), block.metaDataLength() as usize).map_err(failed)?;
            rows.push(batch_rows(&head).map_err(failed)?);
        }
        Ok(Self { path: path.to_path_buf(), decoder, columns, blocks: index.batches, rows })
    }

    /// The columns of the file at `path`.
    ///
    /// # Errors
    /// As [`IpcFile::open`].
    pub(crate) fn columns(path: &Path) -> Result<Vec<ColumnDefinition>> {
        let index = File::open(path).map_err(ArrowError::from).and_then(|mut file| Index::read(&mut file));
        Ok(columns_of(index.map_err(|e| damaged(path, "arrow", e))?.schema.fields()))
    }
}

impl ColumnarFile for IpcFile {
    fn pieces(&self) -> &[u64] {
        &self.rows
    }

    fn decode(&self, piece: usize, first_row: u64) -> Result<Vec<SourceBatch>> {
        let block = &self.blocks[piece];
        let read = || {
            let bytes = read_block(&mut File::open(&self.path)?, block)?;
            self.decoder.read_record_batch(block, &bytes)?.ok_or_else(|| bad("an empty message"))
        };
        let decoded = read().map_err(|e| damaged(&self.path, "arrow", e))?;
        let mut batch = self.columns.finish(decoded, first_row)?;
        batch.bytes = u64::try_from(block.bodyLength()).unwrap_or(0);
        Ok(vec![batch])
    }
}

impl Index {
    fn read(file: &mut File) -> Result<Self, ArrowError> {
        let mut start = [0; 6];
        file.read_exact(&mut start)?;
        if start == MAGIC { Self::of_file(file) } else { Self::of_stream(file) }
    }

    fn of_file(file: &mut File) -> Result<Self, ArrowError> {
        let length = i64::try_from(file.metadata()?.len()).map_err(|_| bad("too long"))?;
        let trailer = read_at(file, length - 10, 10)?;
        let trailer: [u8; 10] = trailer.as_slice().try_into().map_err(|_| bad("no trailer"))?;
        let footer_length = read_footer_length(trailer)?;
        let start = i64::try_from(footer_length).map_err(|_| bad("no footer"))?;
        let bytes = read_at(file, length - 10 - start, footer_length)?;
        let footer = root_as_footer(&bytes).map_err(|e| bad(&e.to_string()))?;
        let schema = footer.schema().ok_or_else(|| bad("no schema"))?;
        Ok(Self {
            schema: Arc::new(fb_to_schema(schema)),
            version: footer.version(),
            dictionaries: footer.dictionaries().iter().flatten().copied().collect(),
            batches: footer.recordBatches().iter().flatten().copied().collect(),
        })
    }

    /// Walks the messages from head to head.
    fn of_stream(file: &mut File) -> Result<Self, ArrowError> {
        let mut index: Option<Self> = None;
        let mut at = 0i64;
        loop {
            file.seek(SeekFrom::Start(at as u64))?;
            let mut prefix = Vec::with_capacity(8);
            file.by_ref().take(8).read_to_end(&mut prefix)?;
            // Older streams have no continuation mark before the length.
            let (head, length) = match prefix.as_slice() {
                [0xff, 0xff, 0xff, 0xff, a, b, c, d] => (8, i32::from_le_bytes([*a, *b, *c, *d])),
                [a, b, c, d, ..] => (4, i32::from_le_bytes([*a, *b, *c, *d])),
                _ => (0, 0),
            };
            if length <= 0 {
                return index.ok_or_else(|| bad("no schema"));
            }
            let bytes = read_at(file, at + head, length as usize)?;
            let message = root_as_message(&bytes).map_err(|e| bad(&e.to_string()))?;
            let block = Block::new(at, head as i32 + length, message.bodyLength());
            match (message.header_type(), &mut index) {
                (MessageHeader::Schema, none @ None) => {
                    let schema = message.header_as_schema().ok_or_else(|| bad("no schema"))?;
                    let schema = Arc::new(fb_to_schema(schema));
                    let version = message.version();
                    *none = Some(Self { schema, version, dictionaries: vec![], batches: vec![] });
                }
                (MessageHeader::DictionaryBatch, Some(index)) if index.batches.is_empty() => {
                    index.dictionaries.push(block);
                }
                (MessageHeader::RecordBatch, Some(index)) => index.batches.push(block),
                (MessageHeader::DictionaryBatch, Some(_)) => return Err(bad("dictionaries change between batches")),
                _ => return Err(bad("an unexpected message")),
            }
            at += head + i64::from(length) + message.bodyLength();
        }
    }
}

fn bad(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_string())
}

/// Number of rows in the record batch whose message begins with `head`.
fn batch_rows(head: &[u8]) -> Result<u64, ArrowError> {
    let flat = if head.starts_with(&[0xff; 4]) { head.get(8..) } else { head.get(4..) };
    let message = root_as_message(flat.unwrap_or_default()).map_err(|e| bad(&e.to_string()))?;
    let batch = message.header_as_record_batch().ok_or_else(|| bad("no record batch"))?;
    u64::try_from(batch.length()).map_err(|_| bad("a negative number of rows"))
}

fn read_block(file: &mut File, block: &Block) -> Result<Buffer, ArrowError> {
    let length = i64::from(block.metaDataLength()) + block.bodyLength();
    let length = usize::try_from(length).map_err(|_| bad("a negative length"))?;
    Ok(Buffer::from_vec(read_at(file, block.offset(), length)?))
}

fn read_at(file: &mut File, at: i64, length: usize) -> Result<Vec<u8>, ArrowError> {
    let at = u64::try_from(at).map_err(|_| bad("too short"))?;
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length { Err(bad("ends early")) } else { Ok(bytes) }
}
