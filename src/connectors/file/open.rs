//! Opening a file for reading from some byte on, decompressing it if need be.

use std::path::Path;
use std::pin::Pin;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use bytes::BytesMut;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, BufReader};

use super::listing::unreadable;
use crate::error::Result;

/// How a file's bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// As they are.
    None,
    /// gzip, several members too.
    Gzip,
    /// Zstandard, several frames too.
    Zstd,
}

impl Compression {
    /// By a file's last extension.
    pub(crate) fn of_name(name: &str) -> Self {
        match extension(name).as_str() {
            "gz" | "gzip" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// The part after the last point, in lower case; empty if there is none.
pub(crate) fn extension(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.rsplit_once('.').map_or_else(String::new, |(_, ext)| ext.to_ascii_lowercase())
}

/// A stream of uncompressed bytes.
pub(crate) type ByteReader = Pin<Box<dyn AsyncRead + Send>>;

/// Bytes that tokio reads from a file at once.
const READ_BYTES: usize = 1 << 20;

/// Opens `path` at uncompressed byte `from`. Reads at most `limit` bytes of the file as it is on disk: a bounded source does
/// not run after a file that grows.
///
/// # Errors
/// `Unavailable` if the file cannot be read.
pub(crate) async fn open(path: &Path, compression: Compression, from: u64, limit: Option<u64>) -> Result<ByteReader> {
    let failed = |e| unreadable(path, e);
    let mut file = File::open(path).await.map_err(failed)?;
    file.set_max_buf_size(READ_BYTES);
    if compression == Compression::None {
        if from > 0 {
            file.seek(std::io::SeekFrom::Start(from)).await.map_err(failed)?;
        }
        return Ok(match limit {
            Some(limit) => Box::pin(file.take(limit.saturating_sub(from))),
            None => Box::pin(file),
        });
    }
    let packed = BufReader::with_capacity(READ_BYTES / 4, file.take(limit.unwrap_or(u64::MAX)));
    let mut reader: ByteReader = if compression == Compression::Gzip {
        let mut decoder = GzipDecoder::new(packed);
        decoder.multiple_members(true);
        Box::pin(decoder)
    } else {
        let mut decoder = ZstdDecoder::new(packed);
        decoder.multiple_members(true);
        Box::pin(decoder)
    };
    let mut left = from;
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    while left > 0 {
        buffer.clear();
        let mut part = (&mut reader).take(left.min(READ_BYTES as u64));
        let read = part.read_buf(&mut buffer).await.map_err(failed)?;
        if read == 0 {
            break;
        }
        left -= read as u64;
    }
    Ok(reader)
}
