//! Small files of JSON that must be read whole or not at all.
//!
//! Two lines: a header `{"format_version":1,"bytes":…,"crc32":"…"}` and a body of that many bytes. A file that is cut short,
//! damaged or of another format version is refused as `Corrupt`, never half-read.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

#[derive(Serialize, Deserialize)]
struct Header {
    format_version: u32,
    bytes: usize,
    crc32: String,
}

/// A kind of document: what messages call it, and the format this version writes and reads.
#[derive(Debug, Clone, Copy)]
pub struct Document {
    /// With its article: `a manifest`.
    pub name: &'static str,
    /// The one format known.
    pub format_version: u32,
}

impl Document {
    /// The bytes of a file that says `body`.
    ///
    /// # Errors
    ///
    /// `Internal` only.
    pub fn encode<T: Serialize>(self, body: &T) -> Result<Bytes> {
        let internal = |e| Error::internal(format!("cannot encode {}", self.name)).with_source(e);
        let body = serde_json::to_vec(body).map_err(internal)?;
        let header = Header { format_version: self.format_version, bytes: body.len(), crc32: checksum(&body) };
        let mut bytes = serde_json::to_vec(&header).map_err(internal)?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&body);
        bytes.push(b'\n');
        Ok(bytes.into())
    }

    /// Reads the bytes of `file`, a name for messages.
    ///
    /// # Errors
    ///
    /// `Corrupt` for anything that is not a whole document of this format.
    pub fn decode<T: DeserializeOwned>(self, file: &str, bytes: &[u8]) -> Result<T> {
        let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("{} {what}: file=`{file}`", self.name));
        let end = bytes.iter().position(|b| *b == b'\n').ok_or_else(|| corrupt("has no header"))?;
        let header: Header =
            serde_json::from_slice(&bytes[..end]).map_err(|e| corrupt("has an unreadable header").with_source(e))?;
        if header.format_version != self.format_version {
            let message = format!("is of another format: format_version=`{}`", header.format_version);
            return Err(corrupt(&message).with_hint("open it with the Highwater version that wrote it, or a newer one"));
        }
        let body = bytes[end + 1..].strip_suffix(b"\n").ok_or_else(|| corrupt("is cut short"))?;
        if body.len() != header.bytes || checksum(body) != header.crc32 {
            return Err(corrupt("does not match its checksum"));
        }
        serde_json::from_slice(body).map_err(|e| corrupt("has an unreadable body").with_source(e))
    }
}

fn checksum(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}
