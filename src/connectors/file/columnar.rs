//! Reads the Parquet or Arrow files of one split.

use std::sync::Arc;

use async_trait::async_trait;

use super::listing::FoundFile;
use super::sequence::{Next, Sequence};
use crate::connectors::formats::columnar::ColumnarFile;
use crate::connectors::pipeline::{Place, Produced, Producer, Stretch};
use crate::error::Result;

/// Opens a file of the source's format.
pub(super) type OpenColumnar = Box<dyn Fn(&FoundFile) -> Result<Arc<dyn ColumnarFile>> + Send + Sync>;

/// Turns the pieces of the files of a [`Sequence`] into stretches.
pub(super) struct ColumnarProducer {
    pub(super) files: Sequence,
    pub(super) open: OpenColumnar,
    pub(super) current: Option<OpenFile>,
}

/// A file being read.
pub(super) struct OpenFile {
    file: FoundFile,
    columnar: Arc<dyn ColumnarFile>,
    path: Arc<str>,
    /// Where reading it began.
    start: Place,
    piece: usize,
    /// First row of the piece.
    row: u64,
}

impl OpenFile {
    fn place(&self) -> Place {
        Place { piece: self.piece as u64, row: self.row, ..self.start.clone() }
    }

    fn next_stretch(&mut self) -> Option<Stretch> {
        let rows = *self.columnar.pieces().get(self.piece)?;
        let start = self.place();
        let (columnar, piece, row) = (Arc::clone(&self.columnar), self.piece, self.row);
        self.piece += 1;
        self.row += rows;
        Some(Stretch {
            job: Box::new(move || columnar.decode(piece, row)),
            start,
            end: self.place(),
            path: Arc::clone(&self.path),
        })
    }
}

#[async_trait]
impl Producer for ColumnarProducer {
    async fn produce(&mut self) -> Result<Produced> {
        loop {
            if let Some(notes) = self.files.take_notes() {
                return Ok(Produced::Notes(notes));
            }
            if let Some(open) = &mut self.current {
                if let Some(stretch) = open.next_stretch() {
                    return Ok(Produced::Stretch(Box::new(stretch)));
                }
                self.files.at_end(&open.file, open.file.bytes)?;
                self.current = None;
            }
            match self.files.next()? {
                Next::File(file, place) => {
                    let columnar = (self.open)(&file)?;
                    let path: Arc<str> = file.path.to_string_lossy().into();
                    let (piece, row) = (place.piece as usize, place.row);
                    self.current = Some(OpenFile { file, columnar, path, start: *place, piece, row });
                }
                Next::End => return Ok(Produced::End),
                Next::Nothing => {
                    self.files.wait().await;
                    return Ok(Produced::Nothing);
                }
            }
        }
    }
}
