//! Connector 'stdin': JSON lines or CSV from the process's standard input.
//!
//! It is bounded: the end of input is the end of the source, and closes its windows (T6). Rows are handed on as they come,
//! however slowly. It cannot be read twice, so one reader gets all of it and a second one is refused. Options are `format`
//! (`json`, the default, or `csv`), `max_row_bytes`, and CSV's own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use jiff::tz::TimeZone;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::formats::Wanted;
use super::formats::csv::{CsvDialect, CsvFormat};
use super::formats::json::JsonFormat;
use super::formats::text::TextFormat;
use super::pipeline::{Pipeline, Place, Produced, Producer, Shape};
use super::records::{RecordBuffer, Rest};
use super::{Boundedness, ColumnDefinition, Position, ReadOptions, Source, SourceDefinition, Split, SplitReader};
use crate::error::{Error, ErrorKind, Result};

/// The split's name, and the file's in rejects.
const NAME: &str = "stdin";
/// Bytes asked for at once.
const READ_BYTES: usize = 1 << 18;

/// Whether some source of this process has taken standard input.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Rows from standard input.
#[derive(Debug)]
pub struct StdinSource {
    columns: Vec<ColumnDefinition>,
    schema: SchemaRef,
    zone: TimeZone,
    csv: Option<CsvDialect>,
    max_row_bytes: usize,
}

impl StdinSource {
    /// The source that `definition` describes.
    ///
    /// # Errors
    /// `Invalid` for unknown options, formats or metadata, or no columns; `Unsupported` for a column CSV cannot hold.
    pub fn try_new(definition: &SourceDefinition) -> Result<Self> {
        let mut options = definition.option_reader();
        let csv =
            options.choice(&["format"], &[("json", false), ("jsonl", false), ("ndjson", false), ("csv", true)])?;
        let csv = csv.unwrap_or(false).then(|| CsvDialect::from_options(&mut options)).transpose()?;
        let max_row_bytes = options.number(&["max_row_bytes"])?.unwrap_or(8 << 20);
        options.finish()?;
        Shape::check_metadata(&definition.columns)?;
        if definition.columns.iter().all(|c| c.metadata.is_some()) {
            return Err(Error::invalid(format!("source `{}` declares no columns to read", definition.name)));
        }
        let (columns, schema, zone) = (definition.columns.clone(), definition.schema(), definition.zone.clone());
        let source = Self { columns, schema, zone, csv, max_row_bytes };
        source.format(Wanted { columns: vec![], asked: 0, zone: TimeZone::UTC })?;
        Ok(source)
    }

    fn format(&self, wanted: Wanted) -> Result<Arc<dyn TextFormat>> {
        let declared: Vec<ColumnDefinition> = self.columns.iter().filter(|c| c.metadata.is_none()).cloned().collect();
        Ok(match &self.csv {
            Some(dialect) => Arc::new(CsvFormat::try_new(dialect.clone(), declared, wanted)?),
            None => Arc::new(JsonFormat::new(&declared, wanted)),
        })
    }

    fn reader(&self, input: Pin<Box<dyn AsyncRead + Send>>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let shape = Shape::new(&self.columns, &options.projection, &self.zone);
        let place = Place { file: NAME.into(), ..Place::default() };
        let format = self.format(shape.wanted.clone())?;
        let records = RecordBuffer::new(format, self.max_row_bytes, NAME.into(), place);
        let producer = StreamProducer { input, records, rest: Rest::MayFollow };
        Ok(Box::new(Pipeline::try_new(producer, NAME.into(), shape, options, None)?))
    }
}

#[async_trait]
impl Source for StdinSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    fn replayable(&self) -> bool {
        false
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        Ok(vec![Split { name: NAME.into() }])
    }

    /// # Errors
    /// `Conflict` if standard input was opened before in this process, `Unavailable` for a position: it is gone.
    async fn open(&self, _: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        if from.is_some() {
            let message = "standard input cannot be read again from a position in it";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Conflict, "standard input is being read already, or was")
                .with_hint("it can be read once: let one view read it, or save it to a file first"));
        }
        self.reader(Box::pin(tokio::io::stdin()), options)
    }
}

/// Cuts a stream of bytes into stretches as they come.
struct StreamProducer {
    input: Pin<Box<dyn AsyncRead + Send>>,
    records: RecordBuffer,
    rest: Rest,
}

#[async_trait]
impl Producer for StreamProducer {
    async fn produce(&mut self) -> Result<Produced> {
        loop {
            if let Some(stretch) = self.records.cut(self.rest) {
                return Ok(Produced::Stretch(Box::new(stretch)));
            }
            if self.rest == Rest::IsHere {
                return Ok(Produced::End);
            }
            let held = self.records.held_mut();
            held.reserve(READ_BYTES);
            let read = self
                .input
                .read_buf(held)
                .await
                .map_err(|e| Error::new(ErrorKind::Unavailable, "could not read standard input").with_source(e))?;
            if read == 0 {
                self.rest = Rest::IsHere;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Int64Type};
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::connectors::SplitEvent;
    use crate::connectors::testing::{drain_reader, inline_options};

    fn source(options: &[(&str, &str)]) -> Result<StdinSource> {
        let options = options.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        StdinSource::try_new(&SourceDefinition::new("s", vec![ColumnDefinition::new("v", DataType::Int64)], options))
    }

    #[tokio::test]
    async fn rows_come_as_soon_as_their_line_is_whole_and_the_end_ends() {
        let source = source(&[]).unwrap();
        let (mut into, from) = tokio::io::duplex(64);
        let mut reader = source.reader(Box::pin(from), inline_options(&source)).unwrap();
        into.write_all(b"{\"v\":1}\n{\"v\":").await.unwrap();
        let SplitEvent::Rows(first) = reader.next().await.unwrap() else { panic!("one line is whole") };
        assert_eq!(first.rows.column(0).as_primitive::<Int64Type>().values().to_vec(), [1]);
        into.write_all(b"2}\nx\n{\"v\":3}").await.unwrap();
        drop(into);
        let rest = drain_reader(reader.as_mut()).await;
        assert_eq!(rest.offsets, [1, 3]);
        assert_eq!(rest.rejects[0].place, "stdin:3");
    }

    #[test]
    fn only_text_formats_are_taken() {
        assert!(source(&[("format", "csv"), ("delimiter", ";")]).is_ok());
        assert!(source(&[("format", "parquet")]).is_err());
        assert!(source(&[("delimiter", ";")]).is_err(), "an option of CSV without CSV");
    }
}
