//! CSV, as RFC 4180 and its relatives: any delimiter, quote, escape, null text, comment lines.
//!
//! With a header (the default) columns are found by name without regard to case, fields of further columns are ignored and
//! counted, and a column the header lacks is NULL. Without one fields stand in declared order. A record with more or fewer
//! fields than that is malformed. An empty field is NULL, also in VARCHAR; `null` names another text for it. A quoted
//! field is never NULL in VARCHAR, so `""` there is the empty text (C71); in other types it is NULL like an empty one. A
//! quoted field may hold line ends, so a record may span lines; an empty line is no record. STRUCT, ARRAY and MAP have no
//! form in CSV and are refused when the source is created.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, LargeStringArray, RecordBatch, StringArray, StringArrayType, StringViewArray};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Decoder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use memchr::{memchr, memchr_iter, memchr2, memchr3, memrchr};
use regex::Regex;

use super::isolate::{Isolated, isolate};
use super::text::{TextBlock, TextFormat, TextOrigin, assemble, exactly, reason_for_value};
use super::{Origin, RawRows, RowError, Wanted, decoder_type};
use crate::connectors::definition::OptionReader;
use crate::connectors::{ColumnDefinition, RejectReason, SourceBatch};
use crate::error::{Error, ErrorKind, Result};

/// How records and fields are written.
#[derive(Debug, Clone)]
pub(crate) struct CsvDialect {
    header: bool,
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
    /// The text of NULL, if it is not the empty one.
    null: Option<(String, Regex)>,
}

impl Default for CsvDialect {
    fn default() -> Self {
        Self { header: true, delimiter: b',', quote: Some(b'"'), escape: None, comment: None, null: None }
    }
}

impl CsvDialect {
    /// Takes the options `header`, `delimiter`, `quote` (`none` for no quoting), `escape`, `comment` and `null`, or
    /// Flink's `csv.…` names.
    pub(crate) fn from_options(options: &mut OptionReader<'_>) -> Result<Self> {
        let null = options.text(&["null", "csv.null-literal"])?;
        let regex = |text: &str| Ok((text.to_owned(), Regex::new(&format!("^{}$", regex::escape(text)))?));
        let null = null.map(regex).transpose();
        let quote = match options.text(&["quote", "csv.quote-character"])? {
            Some(text) if text.eq_ignore_ascii_case("none") => None,
            Some(_) => options.byte(&["quote", "csv.quote-character"])?,
            None => Some(b'"'),
        };
        let no_quote = options.flag(&["csv.disable-quote-character"], false)?;
        let comments = options.flag(&["csv.allow-comments"], false)?;
        options.flag(&["csv.ignore-parse-errors"], false)?;
        Ok(Self {
            header: options.flag(&["header", "csv.header"], true)?,
            delimiter: options.byte(&["delimiter", "csv.field-delimiter"])?.unwrap_or(b','),
            quote: if no_quote { None } else { quote },
            escape: options.byte(&["escape", "csv.escape-character"])?,
            comment: options.byte(&["comment"])?.or(comments.then_some(b'#')),
            null: null.map_err(|e: regex::Error| Error::invalid("option 'null' is too long").with_source(e))?,
        })
    }

    /// Where each record begins and ends, without its line end, and the length of the whole ones. `complete`: the end of
    /// `bytes` ends the last record.
    fn records(&self, bytes: &[u8], complete: bool) -> (Vec<Range<usize>>, usize) {
        let quoting = self.quote.is_some_and(|quote| memchr(quote, bytes).is_some());
        let mut records = Vec::new();
        let (mut at, mut whole) = (0, 0);
        while at < bytes.len() {
            let comment = self.comment == Some(bytes[at]);
            let end = if quoting && !comment {
                self.quoted_end(bytes, at)
            } else {
                memchr(b'\n', &bytes[at..]).map(|i| at + i)
            };
            let (end, next) = match end {
                Some(end) => (end, end + 1),
                None if complete => (bytes.len(), bytes.len()),
                None => break,
            };
            let text_end = if end > at && bytes[end - 1] == b'\r' { end - 1 } else { end };
            if !comment && text_end > at {
                records.push(at..text_end);
            }
            at = next;
            whole = next;
        }
        (records, whole)
    }

    /// The line end that ends the record at `start`: the first one outside quotes. As csv-core, a quote opens only at the
    /// start of a field.
    fn quoted_end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let quote = self.quote?;
        let mut at = start;
        loop {
            if bytes.get(at) == Some(&quote) {
                at = self.closing_quote(bytes, at + 1, quote)? + 1;
            }
            at += memchr2(self.delimiter, b'\n', bytes.get(at..)?)?;
            if bytes[at] == b'\n' {
                return Some(at);
            }
            at += 1;
        }
    }

    fn closing_quote(&self, bytes: &[u8], from: usize, quote: u8) -> Option<usize> {
        let escape = self.escape.unwrap_or(quote);
        let mut at = from;
        loop {
            at += memchr3(quote, escape, quote, bytes.get(at..)?)?;
            let escapes = bytes[at] == escape && escape != quote;
            let doubled = bytes[at] == quote && bytes.get(at + 1) == Some(&quote);
            if !escapes && !doubled {
                return Some(at);
            }
            at += 2;
        }
    }

    /// Whether field `index` of `record` is quoted.
    fn is_quoted(&self, record: &[u8], index: usize) -> bool {
        let Some(quote) = self.quote else { return false };
        let start = (0..index).try_fold(0, |at, _| {
            let end = if record.get(at) == Some(&quote) { self.closing_quote(record, at + 1, quote)? + 1 } else { at };
            Some(end + memchr(self.delimiter, record.get(end..)?)? + 1)
        });
        start.is_some_and(|start| record.get(start) == Some(&quote))
    }

    fn decoder(&self, file: &FileColumns, records: usize) -> Decoder {
        let mut builder = ReaderBuilder::new(Arc::clone(&file.schema))
            .with_header(false)
            .with_delimiter(self.delimiter)
            .with_batch_size(records + 1)
            .with_projection(file.projection.clone());
        // arrow-csv cannot switch quoting off; no text file holds this byte.
        builder = builder.with_quote(self.quote.unwrap_or(0xff));
        if let Some(escape) = self.escape {
            builder = builder.with_escape(escape);
        }
        if let Some(comment) = self.comment {
            builder = builder.with_comment(comment);
        }
        if let Some((_, null)) = &self.null {
            builder = builder.with_null_regex(null.clone());
        }
        builder.build_decoder()
    }
}

/// Reads CSV into the wanted columns.
#[derive(Debug)]
pub(crate) struct CsvFormat {
    dialect: CsvDialect,
    declared: Vec<ColumnDefinition>,
    wanted: Wanted,
}

/// The columns of one file as arrow-csv needs them.
struct FileColumns {
    schema: SchemaRef,
    /// Columns to decode, ascending.
    projection: Vec<usize>,
    /// Per wanted column its place in `projection`, if the file has it.
    places: Vec<Option<usize>>,
    /// Columns nobody declared.
    extra: u64,
}

impl CsvFormat {
    /// `declared` are all physical columns of the source, `wanted` those to decode.
    ///
    /// # Errors
    /// `Unsupported` for a column whose type CSV cannot hold.
    pub(crate) fn try_new(dialect: CsvDialect, declared: Vec<ColumnDefinition>, wanted: Wanted) -> Result<Self> {
        if let Some(column) = declared.iter().find(|c| c.data_type.is_nested() || c.data_type.is_binary()) {
            return Err(Error::unsupported(format!(
                "CSV cannot hold column `{}` of type {}",
                column.name, column.data_type
            ))
            .with_hint("declare it VARCHAR and take it apart in a query, or use format = 'json'"));
        }
        Ok(Self { dialect, declared, wanted })
    }

    /// The file's columns: by its header line, or in declared order.
    fn columns(&self, header: Option<&str>) -> Result<FileColumns> {
        let names = match header {
            Some(header) => self.header_names(header)?,
            None => self.declared.iter().map(|c| c.name.clone()).collect(),
        };
        let find = |name: &str| {
            let exact = names.iter().position(|n| n == name);
            exact.or_else(|| names.iter().position(|n| n.to_lowercase() == name.to_lowercase()))
        };
        let mut types = vec![DataType::Utf8; names.len()];
        let found: Vec<Option<usize>> = self.wanted.columns.iter().map(|c| find(&c.name)).collect();
        for (column, at) in self.wanted.columns.iter().zip(&found) {
            if let Some(at) = at {
                types[*at] = decoder_type(column, false);
            }
        }
        let mut projection: Vec<usize> = found.iter().flatten().copied().collect();
        projection.sort_unstable();
        projection.dedup();
        let places = found.iter().map(|at| at.and_then(|at| projection.binary_search(&at).ok())).collect();
        let extra = names.len() - self.declared.iter().filter(|c| find(&c.name).is_some()).count();
        let fields: Vec<Field> =
            (0..).zip(types).map(|(i, t): (usize, _)| Field::new(format!("{i}"), t, true)).collect();
        Ok(FileColumns { schema: Arc::new(Schema::new(fields)), projection, places, extra: extra as u64 })
    }

    fn header_names(&self, header: &str) -> Result<Vec<String>> {
        let quote = self.dialect.quote.unwrap_or(b'\n');
        let mut width = 1 + memchr_iter(self.dialect.delimiter, header.as_bytes()).count();
        // Quoted names may hold delimiters, so there may be fewer fields than that.
        loop {
            let fields: Vec<Field> = (0..width).map(|i| Field::new(format!("{i}"), DataType::Utf8, true)).collect();
            let file = FileColumns {
                schema: Arc::new(Schema::new(fields)),
                projection: (0..width).collect(),
                places: vec![],
                extra: 0,
            };
            match decode_records(&mut self.dialect.decoder(&file, 1), header.as_bytes(), 1) {
                Ok(batch) => {
                    return Ok(batch
                        .columns()
                        .iter()
                        .map(|c| c.as_string::<i32>().value(0).trim().to_string())
                        .collect());
                }
                Err(_) if width > 1 && memchr(quote, header.as_bytes()).is_some() => width -= 1,
                Err(message) => {
                    let error = Error::new(
                        ErrorKind::Data,
                        format!("`{}` is no CSV header: {message}", header.escape_debug().take(80).collect::<String>()),
                    );
                    return Err(error.with_hint("a file without a header needs header = 'false'"));
                }
            }
        }
    }
}

impl TextFormat for CsvFormat {
    fn whole_records(&self, bytes: &[u8]) -> usize {
        let quoting = self.dialect.quote.is_some_and(|quote| memchr(quote, bytes).is_some());
        match quoting {
            false => memrchr(b'\n', bytes).map_or(0, |at| at + 1),
            true => self.dialect.records(bytes, false).1,
        }
    }

    fn has_header(&self) -> bool {
        self.dialect.header
    }

    fn first_record(&self, bytes: &[u8]) -> Option<(Range<usize>, usize)> {
        let (records, whole) = self.dialect.records(bytes, false);
        let first = records.into_iter().next()?;
        let end = memchr(b'\n', &bytes[first.end..whole])?;
        Some((first.clone(), first.end + end + 1))
    }

    fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    fn decode(&self, block: &TextBlock) -> Result<SourceBatch> {
        let file = self.columns(block.header.as_deref())?;
        let (records, _) = self.dialect.records(&block.bytes, true);
        let mut decode = |range: Range<usize>| {
            let stretch = records[range.start].start..records[range.end - 1].end;
            decode_records(&mut self.dialect.decoder(&file, range.len()), &block.bytes[stretch], range.len())
        };
        let mut isolated = Isolated::default();
        isolate(0..records.len(), &mut decode, &mut isolated);

        let origin = TextOrigin { block, records: &records };
        let named = self.by_name(isolated, &file)?;
        let mut rows = assemble(named.0, &named.1, &named.2, &|record| origin.raw(record), &|_, m| classify(m))?;
        if self.dialect.quote.is_some_and(|quote| memchr(quote, &block.bytes).is_some()) {
            self.keep_quoted_texts(&mut rows, &file, block, &records);
        }
        let mut columns = std::mem::take(&mut rows.columns).into_iter();
        rows.columns = file.places.iter().map(|place| place.and_then(|_| columns.next().flatten())).collect();
        let mut batch = rows.finish(&self.wanted, &origin)?;
        batch.notes.ignored_fields = file.extra * records.len() as u64;
        batch.bytes = block.bytes.len() as u64;
        Ok(batch)
    }
}

impl CsvFormat {
    /// Gives VARCHAR columns back the texts that were taken for NULL though they are quoted.
    fn keep_quoted_texts(&self, rows: &mut RawRows, file: &FileColumns, block: &TextBlock, records: &[Range<usize>]) {
        let text = self.dialect.null.as_ref().map_or("", |(text, _)| text);
        let present = self.wanted.columns.iter().zip(&file.places).filter_map(|(c, place)| Some((c, (*place)?)));
        for ((declared, place), column) in present.zip(&mut rows.columns) {
            let Some(texts) = column.as_mut().filter(|c| declared.data_type.is_string() && c.null_count() > 0) else {
                continue;
            };
            let is_quoted = |row: &usize| {
                let record = rows.records.as_ref().map_or(*row, |records| records[*row]);
                self.dialect.is_quoted(&block.bytes[records[record].clone()], file.projection[place])
            };
            let quoted: Vec<usize> = (0..texts.len()).filter(|row| texts.is_null(*row)).filter(is_quoted).collect();
            *texts = match texts.data_type() {
                _ if quoted.is_empty() => continue,
                DataType::Utf8View => Arc::new(with_text::<_, StringViewArray>(texts.as_string_view(), &quoted, text)),
                DataType::Utf8 => Arc::new(with_text::<_, StringArray>(texts.as_string::<i32>(), &quoted, text)),
                _ => Arc::new(with_text::<_, LargeStringArray>(texts.as_string::<i64>(), &quoted, text)),
            };
        }
    }

    /// The decoded runs with the wanted columns that the file has, in wanted order and under their names.
    fn by_name(&self, isolated: Isolated, file: &FileColumns) -> Result<(Isolated, Wanted, SchemaRef)> {
        let present = || self.wanted.columns.iter().zip(&file.places).filter_map(|(c, at)| Some((c, (*at)?)));
        let fields: Vec<Field> = present().map(|(c, _)| Field::new(&c.name, decoder_type(c, false), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let order: Vec<usize> = present().map(|(_, at)| at).collect();
        let rename = |batch: RecordBatch| {
            let picked = batch.project(&order)?;
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(picked.num_rows()));
            RecordBatch::try_new_with_options(Arc::clone(&schema), picked.columns().to_vec(), &options)
        };
        let good = isolated.good.into_iter().map(|(range, batch)| Ok((range, rename(batch)?)));
        let good = good
            .collect::<Result<_, arrow::error::ArrowError>>()
            .map_err(|e| Error::internal("a CSV file's columns changed while it was decoded").with_source(e))?;
        let columns = present().map(|(c, _)| c.clone()).collect();
        let wanted = Wanted { columns, ..self.wanted.clone() };
        Ok((Isolated { good, bad: isolated.bad }, wanted, schema))
    }
}

/// `texts` with `text` in `rows`, which ascend.
fn with_text<'a, A: StringArrayType<'a>, B: FromIterator<Option<&'a str>>>(
    texts: A,
    rows: &[usize],
    text: &'a str,
) -> B {
    let mut rows = rows.iter().peekable();
    let values = texts.iter().enumerate();
    values.map(|(row, value)| if rows.next_if_eq(&&row).is_some() { Some(text) } else { value }).collect()
}

fn decode_records(decoder: &mut Decoder, bytes: &[u8], records: usize) -> Result<RecordBatch, String> {
    let mut decode = || {
        let read = decoder.decode(bytes)?;
        decoder.decode(&bytes[read..])?;
        decoder.flush()
    };
    exactly(decode().map_err(|e| e.to_string())?, records)
}

/// Why a single record was refused.
fn classify(message: String) -> RowError {
    let message = message.trim_start_matches("Csv error: ").trim_start_matches("Parser error: ").to_string();
    let value = message.split_once("parsing value '").and_then(|(_, rest)| Some(rest.split_once("' as type")?.0));
    let Some(value) = value else { return RowError { reason: RejectReason::Malformed, message } };
    // What follows is arrow's own line number, counted within a piece of the file: of no use to anyone.
    let reason = reason_for_value(value);
    let short = message.split_once(" at line").map_or(message.as_str(), |(short, _)| short);
    RowError { reason, message: short.to_string() }
}
