//! A growing piece of text, cut into stretches of whole records.
//!
//! Bytes go in as they are read; out come [`Stretch`]es that a decode job can work on alone. It keeps count of bytes and
//! lines, takes the byte order mark and the header off, and deals with records that never end: beyond `max_row_bytes` their
//! first line is rejected and reading goes on behind it, whether the end of the record had been read or not.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memchr_iter};

use super::formats::text::{TextBlock, TextFormat, reject_line};
use super::pipeline::{Place, Stretch};

/// Bytes worth a decode job.
pub(crate) const STRETCH_BYTES: usize = 1 << 20;

/// Unread text of one file.
#[derive(Debug)]
pub(crate) struct RecordBuffer {
    format: Arc<dyn TextFormat>,
    max_row_bytes: usize,
    path: Arc<str>,
    held: BytesMut,
    /// Where `held` begins.
    place: Place,
    /// In the middle of a line that was rejected.
    skipping: bool,
}

/// Whether more bytes may follow what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They may: an unfinished record is kept back.
    MayFollow,
    /// They may not: an unfinished record is the last one.
    IsHere,
}

impl RecordBuffer {
    /// A buffer for text that begins at `place`.
    pub(crate) fn new(format: Arc<dyn TextFormat>, max_row_bytes: usize, path: Arc<str>, mut place: Place) -> Self {
        place.line = place.line.max(1);
        Self { format, max_row_bytes, path, held: BytesMut::new(), place, skipping: false }
    }

    /// Where bytes are to be put.
    pub(crate) fn held_mut(&mut self) -> &mut BytesMut {
        &mut self.held
    }

    /// Bytes put in and not yet cut off.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The file's byte behind the last one put in.
    pub(crate) fn end_byte(&self) -> u64 {
        self.place.byte + self.held.len() as u64
    }

    /// The next stretch of whole records, if there is one.
    pub(crate) fn cut(&mut self, rest: Rest) -> Option<Stretch> {
        if rest == Rest::IsHere && !self.held.is_empty() && !self.held.ends_with(b"\n") {
            self.held.extend_from_slice(b"\n");
        }
        self.take_byte_order_mark(rest)?;
        self.finish_skipping()?;
        self.take_header()?;
        let whole = self.format.whole_records(&self.held);
        let short = self.short_records(whole);
        if short > 0 {
            let bytes = self.advance(short);
            return Some(self.stretch(bytes, None));
        }
        // One byte more may be half of a line's end.
        if whole > 0 || rest == Rest::MayFollow && self.held.len() > self.max_row_bytes + 1 {
            let message = format!("the record is longer than max_row_bytes=`{}`", self.max_row_bytes);
            return Some(self.reject_first_line(message));
        }
        let unfinished = rest == Rest::IsHere && !self.held.is_empty();
        unfinished.then(|| self.reject_first_line("the record does not end: a quote is not closed".to_owned()))
    }

    /// Bytes of the first of the `whole` bytes of records that are not too long. Wherever reading stopped, the same ones are.
    fn short_records(&self, whole: usize) -> usize {
        if whole <= self.max_row_bytes {
            return whole;
        }
        let mut short = 0;
        while short < whole {
            match self.format.first_record(&self.held[short..whole]) {
                Some((record, next)) => {
                    let record = &self.held[short..][record];
                    if record.strip_suffix(b"\r").unwrap_or(record).len() > self.max_row_bytes {
                        break;
                    }
                    short += next;
                }
                None => return whole,
            }
        }
        short
    }

    fn take_byte_order_mark(&mut self, rest: Rest) -> Option<()> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if self.place.byte == 0 && !self.held.is_empty() {
            if self.held.starts_with(MARK) {
                self.held.advance(MARK.len());
                self.place.byte += MARK.len() as u64;
            } else if rest == Rest::MayFollow && MARK.starts_with(&self.held) {
                return None;
            }
        }
        Some(())
    }

    fn finish_skipping(&mut self) -> Option<()> {
        if self.skipping {
            let end = memchr(b'\n', &self.held);
            self.advance(end.map_or(self.held.len(), |at| at + 1));
            self.skipping = end.is_none();
        }
        (!self.skipping).then_some(())
    }

    fn take_header(&mut self) -> Option<()> {
        if self.format.has_header() && self.place.header.is_none() {
            let (header, end) = self.format.first_record(&self.held)?;
            let header = String::from_utf8_lossy(&self.held[header]).into_owned();
            self.advance(end);
            self.place.header = Some(header.into());
        }
        Some(())
    }

    fn reject_first_line(&mut self, message: String) -> Stretch {
        let line = memchr(b'\n', &self.held).map(|at| at + 1);
        self.skipping = line.is_none();
        let (start, mut bytes) = self.advance(line.unwrap_or(self.held.len()));
        // How much of it had been read is nobody's business.
        bytes.truncate(self.max_row_bytes);
        self.stretch((start, bytes), Some(message))
    }

    /// Takes `bytes` off; `place` then says where they began in its `start`.
    fn advance(&mut self, bytes: usize) -> (Place, Bytes) {
        let start = self.place.clone();
        let bytes = self.held.split_to(bytes).freeze();
        self.place.byte += bytes.len() as u64;
        self.place.line += memchr_iter(b'\n', &bytes).count() as u64;
        (start, bytes)
    }

    fn stretch(&self, (start, bytes): (Place, Bytes), reject: Option<String>) -> Stretch {
        let format = Arc::clone(&self.format);
        let block =
            TextBlock { bytes, file: Arc::clone(&start.file), first_line: start.line, header: start.header.clone() };
        Stretch {
            job: Box::new(move || {
                let decoded = match reject {
                    None => format.decode(&block),
                    Some(message) => reject_line(format.as_ref(), &block, message),
                };
                decoded.map(|batch| vec![batch])
            }),
            start,
            end: self.place.clone(),
            path: Arc::clone(&self.path),
        }
    }
}
