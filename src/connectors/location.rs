//! Where a source's rows lie for batch runs, if that is a folder beside it: `batch_location` and the options around it.
//!
//! | option | meaning |
//! | --- | --- |
//! | `batch_location` | file, folder or pattern, read as connector 'file' reads it |
//! | `batch_format`, and any other option of connector 'file' after `batch_` | how to read it |
//! | `batch_date` | keys of folders that hold the UTC date of the event times below them, see `super::file` |
//! | `batch_retention` | rows older than this may be gone |
//!
//! It knows nothing of batch runs: it makes a [`FileSource`] of the columns that the source has.

use std::sync::Arc;

use super::definition::parse_duration;
use super::file::DateKeys;
use super::{ColumnDefinition, FileSource, Options, Source, SourceDefinition};
use crate::error::{Error, Result};

/// What the options of connector 'file' begin with where they are of the location.
pub(crate) const PREFIX: &str = "batch_";

/// Options of the location itself. What else begins with [`PREFIX`] is connector 'file's.
const LOCATION: &str = "batch_location";
const DATE: &str = "batch_date";
const RETENTION: &str = "batch_retention";

/// The folder beside a source.
#[derive(Debug, Clone)]
pub struct BatchLocation {
    /// Its files.
    pub source: Arc<dyn Source>,
    /// The path as given.
    pub path: String,
    /// Whether they are Parquet.
    pub is_parquet: bool,
    /// Rows older than this, µs, may be gone.
    pub retention_us: Option<i64>,
}

impl BatchLocation {
    /// The location that the options of `definition` name, with the columns of `source`, which was made from it. Metadata
    /// columns are columns of the stored rows. `None`: they name none.
    ///
    /// # Errors
    /// `Invalid` for options of a location without one, and as [`FileSource::try_new`] for those of its files.
    pub fn of(definition: &SourceDefinition, source: &dyn Source) -> Result<Option<Self>> {
        let options = &definition.options;
        let Some(path) = options.get(LOCATION) else {
            return match options.keys().find(|name| name.starts_with(PREFIX)) {
                None => Ok(None),
                Some(option) => Err(Error::invalid(format!("option '{option}' without '{LOCATION}'"))
                    .with_hint(format!("{LOCATION} = '…' says where the rows are for batch runs"))),
            };
        };
        let retention_us = options.get(RETENTION).map(|text| retention(text)).transpose()?;
        let dates = options.get(DATE).map(|keys| DateKeys::parse(DATE, keys)).transpose()?;
        let files = SourceDefinition {
            columns: columns(definition, source),
            options: of_files(options, path),
            ..definition.clone()
        };
        let files = FileSource::try_new(&files).map_err(|error| {
            let told = Error::new(error.kind(), format!("{LOCATION}: {}", error.message()));
            let hint = error.hint().map_or_else(String::new, |hint| format!("{hint}; "));
            told.with_hint(format!("{hint}options of the location begin with {PREFIX}")).with_source(error)
        })?;
        let is_parquet = files.is_parquet();
        let source = Arc::new(files.with_hive_folders(dates));
        Ok(Some(Self { source, path: path.clone(), is_parquet, retention_us }))
    }
}

/// The source's columns, all to be read from rows.
fn columns(definition: &SourceDefinition, source: &dyn Source) -> Vec<ColumnDefinition> {
    let stored = |column: &ColumnDefinition| ColumnDefinition { metadata: None, ..column.clone() };
    let declared = || definition.columns.iter().map(stored).collect();
    let own = |schema: arrow::datatypes::SchemaRef| {
        schema.fields().iter().map(|field| ColumnDefinition::new(field.name(), field.data_type().clone())).collect()
    };
    if definition.columns.iter().any(|column| column.metadata.is_none()) { declared() } else { own(source.schema()) }
}

/// The options of connector 'file' among `options`.
fn of_files(options: &Options, path: &str) -> Options {
    let own = [LOCATION, DATE, RETENTION];
    let of_files = options.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let of_files = of_files.filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value.clone())));
    let mut of_files: Options = of_files.collect();
    of_files.insert("connector".to_owned(), "file".to_owned());
    of_files.insert("path".to_owned(), path.to_owned());
    of_files
}

fn retention(text: &str) -> Result<i64> {
    parse_duration(text).and_then(|length| i64::try_from(length.as_micros()).ok()).ok_or_else(|| {
        Error::invalid(format!("option '{RETENTION}' is '{text}', expected a length of time such as '30 days'"))
    })
}
