//! Connector 'file' (Flink: 'filesystem'): JSON lines, CSV, Parquet and Arrow files on a local disk.
//!
//! Bounded by default: the files are those there when the job starts, each up to the length it then has, also after a restart. With `follow`
//! the source is live: files are read on as they grow and new ones as they come (`sequence`).
//!
//! | option | Flink's name | meaning |
//! | --- | --- | --- |
//! | `path` | | file, folder or pattern |
//! | `format` | | `json`, `csv`, `parquet`, `arrow`; by extension if left out |
//! | `compression` | | `none`, `gzip`, `zstd`; by extension if left out; text formats only |
//! | `split` | | `all` (default): the files are one split, in name order; `file`: each is a split |
//! | `follow` | | `true` to go on reading |
//! | `poll_interval` | `source.monitor-interval` | how often to look for more, default 500 ms; Flink's name also follows |
//! | `settle` | | how long a file must be quiet to count as finished, default 2 s |
//! | `max_row_bytes` | | longest record, default 8 MiB |
//!
//! CSV's own options are those of `super::formats::csv`.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use jiff::tz::TimeZone;

use super::definition::OptionReader;
use super::formats::Wanted;
use super::formats::csv::{CsvDialect, CsvFormat};
use super::formats::ipc::IpcFile;
use super::formats::json::JsonFormat;
use super::formats::parquet::ParquetFile;
use super::formats::text::TextFormat;
use super::pipeline::{Pipeline, Place, Shape};
use super::{
    Boundedness, ColumnDefinition, Coverage, CoveredFile, PinnedSource, Position, ReadOptions, Source,
    SourceDefinition, Split, SplitReader,
};
use crate::error::{Error, ErrorKind, Result};

mod columnar;
mod hive;
mod listing;
mod open;
mod sequence;
mod text;

use columnar::{ColumnarProducer, OpenColumnar};
use hive::columns_from_folders;
pub(crate) use hive::{DateKeys, value_in_folder};
pub(crate) use listing::near_file;
use listing::{FoundFile, PathPattern};
use open::{Compression, extension};
use sequence::{Patience, Sequence};
use text::TextProducer;

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileFormat {
    Json,
    Csv,
    Parquet,
    Arrow,
}

impl FileFormat {
    fn is_text(self) -> bool {
        matches!(self, Self::Json | Self::Csv)
    }
}

/// How files make splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Splitting {
    /// One split of all files, in name order.
    All,
    /// A split of each.
    PerFile,
}

/// Files on a local disk.
#[derive(Debug, Clone)]
pub struct FileSource {
    columns: Vec<ColumnDefinition>,
    schema: SchemaRef,
    zone: TimeZone,
    pattern: PathPattern,
    format: FileFormat,
    csv: CsvDialect,
    compression: Option<Compression>,
    splitting: Splitting,
    follow: Option<Patience>,
    max_row_bytes: usize,
    /// Whether folders named `key=value` have values of columns, and which of them dates. Only what is pinned is read so.
    hive: Option<Option<DateKeys>>,
}

impl FileSource {
    /// The source that `definition` describes. Files need not exist yet if they are followed, or if the format is given.
    ///
    /// # Errors
    /// `Invalid` for a missing path, an unknown format, option or metadata key, or no file to read; `Unsupported` for a
    /// column the format cannot hold or a path that is not local.
    pub fn try_new(definition: &SourceDefinition) -> Result<Self> {
        let mut options = definition.option_reader();
        let pattern = PathPattern::parse(options.required(&["path"])?)?;
        let follow = follow_options(&mut options)?;
        let format = options.choice(&["format"], FORMATS)?;
        let format = match format {
            Some(format) => format,
            None => format_by_extension(&pattern).map_err(|error| options.mistyped("format").unwrap_or(error))?,
        };
        let compression = options.choice(
            &["compression"],
            &[("none", Compression::None), ("gzip", Compression::Gzip), ("zstd", Compression::Zstd)],
        )?;
        let csv = match format {
            FileFormat::Csv => CsvDialect::from_options(&mut options)?,
            FileFormat::Json => {
                accept_json_options(&mut options)?;
                CsvDialect::default()
            }
            FileFormat::Parquet | FileFormat::Arrow => CsvDialect::default(),
        };
        if !format.is_text() && compression.is_some_and(|c| c != Compression::None) {
            return Err(Error::unsupported("Parquet and Arrow files cannot be compressed as a whole")
                .with_hint("they are compressed inside; leave the option 'compression' out"));
        }
        let splitting = options.choice(&["split"], &[("all", Splitting::All), ("file", Splitting::PerFile)])?;
        let max_row_bytes = options.number(&["max_row_bytes"])?.unwrap_or(8 << 20);
        options.finish()?;
        Shape::check_metadata(&definition.columns)?;
        let columns = columns(definition, &pattern, format)?;
        let source = Self {
            schema: SourceDefinition { columns: columns.clone(), ..definition.clone() }.schema(),
            columns,
            zone: definition.zone.clone(),
            pattern,
            format,
            csv,
            compression,
            splitting: splitting.unwrap_or(Splitting::All),
            follow,
            max_row_bytes,
            hive: None,
        };
        source.check()?;
        Ok(source)
    }

    /// The same files, with the values of columns that the names of their folders tell once it is pinned; `dates` of them
    /// say when the rows happened.
    #[must_use]
    pub(crate) fn with_hive_folders(mut self, dates: Option<DateKeys>) -> Self {
        self.hive = Some(dates);
        self
    }

    /// Whether it is Parquet files.
    pub(crate) fn is_parquet(&self) -> bool {
        self.format == FileFormat::Parquet
    }

    /// Exactly the files `listed`.
    fn of_files(&self, listed: Vec<FoundFile>) -> PinnedSource {
        let covered = |file: &FoundFile| CoveredFile {
            name: file.name.to_string(),
            bytes: file.bytes,
            changed_us: file.changed_us,
        };
        let coverage = Coverage::Files { files: listed.iter().map(covered).collect() };
        let paths: Vec<String> = listed.iter().map(|file| file.path.to_string_lossy().into_owned()).collect();
        let columns = match self.hive {
            Some(_) => columns_from_folders(&self.columns, paths.iter().map(String::as_str)),
            None => self.columns.clone(),
        };
        let source = Self { columns, pattern: self.pattern.pinned(listed), follow: None, ..self.clone() };
        PinnedSource { coverage, source: Arc::new(source), paths }
    }

    fn check(&self) -> Result<()> {
        if self.format.is_text() {
            self.text_format(Wanted { columns: vec![], asked: 0, zone: TimeZone::UTC })?;
        }
        Ok(())
    }

    fn declared(&self) -> Vec<ColumnDefinition> {
        self.columns.iter().filter(|c| c.metadata.is_none()).cloned().collect()
    }

    fn text_format(&self, wanted: Wanted) -> Result<Arc<dyn TextFormat>> {
        Ok(match self.format {
            FileFormat::Csv => Arc::new(CsvFormat::try_new(self.csv.clone(), self.declared(), wanted)?),
            _ => Arc::new(JsonFormat::new(&self.declared(), wanted)),
        })
    }

    fn open_columnar(&self, wanted: Wanted, jobs: usize) -> OpenColumnar {
        let (declared, format) = (self.declared(), self.format);
        Box::new(move |file: &FoundFile| {
            let (name, wanted) = (Arc::clone(&file.name), wanted.clone());
            Ok(match format {
                FileFormat::Arrow => Arc::new(IpcFile::open(&file.path, name, &declared, wanted)?),
                _ => Arc::new(ParquetFile::open(&file.path, name, &declared, wanted, jobs)?),
            })
        })
    }

    /// The files of a split now.
    fn sequence(&self, split: &Split, from: Option<Place>) -> Result<Sequence> {
        let pattern = match self.splitting {
            Splitting::All => self.pattern.clone(),
            Splitting::PerFile => self.pattern.only(&split.name),
        };
        if let Some(patience) = self.follow {
            return Ok(Sequence::followed(pattern, patience, self.whole_files(&split.name), from));
        }
        let listed = pattern.list()?;
        if listed.is_empty() && !self.pattern.is_pinned() {
            return Err(self.pattern.nothing());
        }
        Sequence::bounded(listed, |name| self.whole_files(name), from)
    }

    /// Whether files can only be read once they are finished.
    fn whole_files(&self, name: &str) -> bool {
        !self.format.is_text() || self.compression.unwrap_or_else(|| Compression::of_name(name)) != Compression::None
    }
}

const FORMATS: &[(&str, FileFormat)] = &[
    ("json", FileFormat::Json),
    ("jsonl", FileFormat::Json),
    ("ndjson", FileFormat::Json),
    ("csv", FileFormat::Csv),
    ("parquet", FileFormat::Parquet),
    ("arrow", FileFormat::Arrow),
    ("arrows", FileFormat::Arrow),
    ("ipc", FileFormat::Arrow),
    ("feather", FileFormat::Arrow),
];

/// The declared columns; if none is to be read from the rows, those of the first file before the metadata columns.
fn columns(definition: &SourceDefinition, pattern: &PathPattern, format: FileFormat) -> Result<Vec<ColumnDefinition>> {
    let declared = definition.columns.clone();
    if declared.iter().any(|c| c.metadata.is_none()) {
        return Ok(declared);
    }
    let first = || {
        let first = pattern.list()?.into_iter().next();
        first.ok_or_else(|| pattern.nothing())
    };
    let mut columns = match format {
        FileFormat::Parquet => ParquetFile::columns(&first()?.path)?,
        FileFormat::Arrow => IpcFile::columns(&first()?.path)?,
        FileFormat::Json | FileFormat::Csv => {
            let message = format!("source `{}` declares no columns to read from its files", definition.name);
            return Err(Error::invalid(message).with_hint("only Parquet and Arrow files tell their columns themselves"));
        }
    };
    columns.extend(declared);
    Ok(columns)
}

fn follow_options(options: &mut OptionReader<'_>) -> Result<Option<Patience>> {
    let monitor = options.text(&["source.monitor-interval"])?.is_some();
    let poll = options.duration(&["poll_interval", "source.monitor-interval"])?;
    let settle = options.duration(&["settle"])?;
    let follow = options.flag(&["follow"], monitor)?;
    let poll = poll.unwrap_or(Duration::from_millis(500)).max(Duration::from_millis(1));
    let settle = settle.unwrap_or(Duration::from_secs(2));
    Ok(follow.then_some(Patience { poll, settle }))
}

/// Flink's options for JSON that ask for what we do anyway.
fn accept_json_options(options: &mut OptionReader<'_>) -> Result<()> {
    options.flag(&["json.ignore-parse-errors"], false)?;
    options.choice(&["json.timestamp-format.standard"], &[("SQL", ()), ("ISO-8601", ())])?;
    if options.flag(&["json.fail-on-missing-field"], false)? {
        return Err(Error::unsupported("option 'json.fail-on-missing-field' is not supported")
            .with_hint("declare the column NOT NULL: rows without it are rejected"));
    }
    Ok(())
}

/// The format that the extension of the path, or of the first file there, stands for.
fn format_by_extension(pattern: &PathPattern) -> Result<FileFormat> {
    let of = |name: &str| {
        let name = if Compression::of_name(name) == Compression::None { name } else { &name[..name.rfind('.')?] };
        let ext = extension(name);
        FORMATS.iter().find(|(format, _)| *format == ext).map(|(_, format)| *format)
    };
    let first = || pattern.list().ok()?.first().and_then(|file| of(&file.name));
    of(pattern.text()).or_else(first).ok_or_else(|| {
        Error::invalid(format!("cannot tell the format of path='{}'", pattern.text()))
            .with_hint("add format = 'json', 'csv', 'parquet' or 'arrow'")
    })
}

#[async_trait]
impl Source for FileSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        if self.follow.is_some() { Boundedness::Live } else { Boundedness::Bounded }
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        let may_be_none = self.follow.is_some() || self.pattern.is_pinned();
        let listed = match self.splitting {
            Splitting::All if may_be_none => vec![],
            _ => self.pattern.list()?,
        };
        if listed.is_empty() && !may_be_none {
            return Err(self.pattern.nothing());
        }
        let names: Vec<Arc<str>> = match self.splitting {
            Splitting::All => vec![self.pattern.last_part().into()],
            Splitting::PerFile => listed.into_iter().map(|file| file.name).collect(),
        };
        Ok(names.into_iter().map(|name| Split { name }).collect())
    }

    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let place = from.map(Place::of).transpose()?;
        let shape = Shape::new(&self.columns, &options.projection, &self.zone);
        let name = Arc::clone(&split.name);
        let files = self.sequence(split, place)?;
        if !self.format.is_text() {
            let open = self.open_columnar(shape.wanted.clone(), options.jobs_in_flight());
            let producer = ColumnarProducer { files, open, current: None };
            return Ok(Box::new(Pipeline::try_new(producer, name, shape, options, from)?));
        }
        let producer = TextProducer {
            files,
            format: self.text_format(shape.wanted.clone())?,
            compression: self.compression,
            max_row_bytes: self.max_row_bytes,
            bounded: self.follow.is_none(),
            next: None,
            current: None,
        };
        Ok(Box::new(Pipeline::try_new(producer, name, shape, options, from)?))
    }

    /// The files there are now, each up to its length. Of a followed source the last line of a file that may grow is left
    /// out until it has its end.
    async fn pinned(&self) -> Result<Option<PinnedSource>> {
        let mut listed = self.pattern.list()?;
        if self.follow.is_some() {
            let growing = if self.splitting == Splitting::All { listed.len().saturating_sub(1) } else { 0 };
            listed.iter_mut().skip(growing).for_each(|file| file.growing = true);
        }
        Ok(Some(self.of_files(listed)))
    }

    fn covering(&self, coverage: &Coverage) -> Result<Option<Arc<dyn Source>>> {
        let Coverage::Files { files } = coverage else {
            return Err(Error::new(ErrorKind::Corrupt, "what was kept of a source's files names none"));
        };
        let listed = files.iter().map(|file| self.pattern.listed_before(&file.name, file.bytes, file.changed_us));
        Ok(Some(self.of_files(listed.collect()).source))
    }

    /// By the dates of folders.
    fn within(&self, (from, to): (Option<i64>, Option<i64>)) -> Option<PinnedSource> {
        let dates = self.hive.as_ref()?.as_ref().filter(|_| self.pattern.is_pinned())?;
        let mut listed = self.pattern.list().ok()?;
        listed.retain(|file| {
            let times = dates.times_of(&file.path.to_string_lossy());
            times.is_none_or(|(first, end)| from.is_none_or(|from| from < end) && to.is_none_or(|to| first < to))
        });
        Some(self.of_files(listed))
    }

    /// None where it says nothing: of a source that is followed, or of compressed text, whose rows are counted unpacked.
    fn total_bytes(&self) -> Option<u64> {
        let plain = |name: &str| self.compression.unwrap_or_else(|| Compression::of_name(name)) == Compression::None;
        let files = if self.follow.is_none() { self.pattern.list().ok()? } else { return None };
        files.iter().map(|file| plain(&file.name).then_some(file.bytes)).sum()
    }
}

#[cfg(test)]
mod columnar_tests;
#[cfg(test)]
mod tests;
