//! Reads the text files of one split.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::AsyncReadExt;

use super::listing::{FoundFile, unreadable};
use super::open::{ByteReader, Compression, open};
use super::sequence::{AtEnd, Next, Sequence};
use crate::connectors::formats::text::TextFormat;
use crate::connectors::pipeline::{Place, Produced, Producer};
use crate::connectors::records::{RecordBuffer, Rest, STRETCH_BYTES};
use crate::error::{Error, ErrorKind, Result};

/// Cuts the text files of a [`Sequence`] into stretches.
pub(super) struct TextProducer {
    pub(super) files: Sequence,
    pub(super) format: Arc<dyn TextFormat>,
    /// None: by each file's extension.
    pub(super) compression: Option<Compression>,
    pub(super) max_row_bytes: usize,
    /// Whether to stop at the length a file had when it was listed.
    pub(super) bounded: bool,
    /// The file that `files` gave last and that is not open yet: opening may be cancelled.
    pub(super) next: Option<(FoundFile, Place)>,
    pub(super) current: Option<OpenFile>,
}

/// A file being read.
pub(super) struct OpenFile {
    file: FoundFile,
    reader: ByteReader,
    records: RecordBuffer,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There may be bytes to read.
    Reading,
    /// It has no more for now.
    AtEnd,
    /// It has no more ever: what is held is its end.
    Finished,
}

impl OpenFile {
    /// Reads until `target` bytes are held or there are no more for now.
    async fn fill(&mut self, target: usize) -> Result<()> {
        while self.state == State::Reading && self.records.len() < target {
            let held = self.records.held_mut();
            held.reserve(target.saturating_sub(held.len()).max(1));
            let read = self.reader.read_buf(held).await.map_err(|e| broken(&self.file, e))?;
            if read == 0 {
                self.state = State::AtEnd;
            }
        }
        Ok(())
    }
}

/// A read that failed: damaged compressed data, or the disk.
fn broken(file: &FoundFile, source: std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match source.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof => {
            let message = format!("compressed data is damaged or ends early, path=`{}`", file.path.display());
            Error::new(ErrorKind::Data, message).with_source(source)
        }
        _ => unreadable(&file.path, source),
    }
}

impl TextProducer {
    async fn open_next(&mut self) -> Result<bool> {
        let Some((file, place)) = &self.next else { return Ok(false) };
        let compression = self.compression.unwrap_or_else(|| Compression::of_name(&file.name));
        let limit = (self.bounded && file.regular).then_some(file.bytes);
        let reader = open(&file.path, compression, place.byte, limit).await?;
        let path: Arc<str> = file.path.to_string_lossy().into();
        let records = RecordBuffer::new(Arc::clone(&self.format), self.max_row_bytes, path, place.clone());
        self.current = Some(OpenFile { file: file.clone(), reader, records, state: State::Reading });
        self.next = None;
        Ok(true)
    }
}

#[async_trait]
impl Producer for TextProducer {
    async fn produce(&mut self) -> Result<Produced> {
        let mut target = STRETCH_BYTES;
        loop {
            if let Some(notes) = self.files.take_notes() {
                return Ok(Produced::Notes(notes));
            }
            let Some(open) = &mut self.current else {
                if self.open_next().await? {
                    continue;
                }
                match self.files.next()? {
                    Next::File(file, place) => self.next = Some((file, *place)),
                    Next::End => return Ok(Produced::End),
                    Next::Nothing => {
                        self.files.wait().await;
                        return Ok(Produced::Nothing);
                    }
                }
                continue;
            };
            open.fill(target).await?;
            let rest = if open.state == State::Finished { Rest::IsHere } else { Rest::MayFollow };
            if let Some(stretch) = open.records.cut(rest) {
                return Ok(Produced::Stretch(Box::new(stretch)));
            }
            match open.state {
                // A record longer than a stretch.
                State::Reading => target = open.records.len() + STRETCH_BYTES,
                State::Finished => self.current = None,
                State::AtEnd => match self.files.at_end(&open.file, open.records.end_byte())? {
                    AtEnd::Finish if open.file.growing => self.current = None,
                    AtEnd::Finish => open.state = State::Finished,
                    AtEnd::ReadOn => open.state = State::Reading,
                    AtEnd::Wait => {
                        self.files.wait().await;
                        open.state = State::Reading;
                        return Ok(Produced::Nothing);
                    }
                },
            }
        }
    }
}
