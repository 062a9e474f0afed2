//! What a `CREATE SOURCE` says about its input, as connectors need it.
//!
//! A [`SourceDefinition`] knows columns and options. It knows nothing of watermarks, computed columns or views: those
//! belong to `plan`. [`OptionReader`] is how a connector takes its options, so that a mistyped name is an error with a
//! guess and never an option silently left at its default.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use jiff::tz::TimeZone;

use super::Options;
use crate::error::{Error, Result, nearest};

/// A column as declared, computed columns left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// Name. Formats match it to their fields without regard to case.
    pub name: String,
    /// Type as declared. Here, and only here, `Timestamp(unit, _)` carries a unit: `TIMESTAMP(0|3|6|9)` is second,
    /// millisecond, microsecond, nanosecond, and says how integers are read. It applies inside STRUCT, ARRAY and MAP too.
    pub data_type: DataType,
    /// `NOT NULL`: a row with NULL here is rejected.
    pub not_null: bool,
    /// The metadata key of `METADATA FROM 'key'`, if the value does not come from the row itself.
    pub metadata: Option<String>,
}

impl ColumnDefinition {
    /// A nullable column read from the row.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self { name: name.into(), data_type, not_null: false, metadata: None }
    }

    /// Takes the value from metadata `key` instead of the row.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>) -> Self {
        self.metadata = Some(key.into());
        self
    }

    /// Refuses NULL.
    #[must_use]
    pub fn with_not_null(mut self) -> Self {
        self.not_null = true;
        self
    }

    /// The column as it leaves the connector: every timestamp in it is `Timestamp(µs, "UTC")`.
    pub fn field(&self) -> FieldRef {
        Arc::new(Field::new(&self.name, instant_type(&self.data_type), !self.not_null))
    }
}

/// A source as a connector's factory gets it.
#[derive(Debug, Clone)]
pub struct SourceDefinition {
    /// The source's name, for messages.
    pub name: String,
    /// Columns in declared order, metadata columns included, computed ones left out. Empty: the connector's own, where it
    /// can tell them (generator, Parquet, Arrow); [`super::Source::schema`] then names them.
    pub columns: Vec<ColumnDefinition>,
    /// `WITH (…)`, names in lower case.
    pub options: Options,
    /// Where time texts without a zone are read (T1).
    pub zone: TimeZone,
}

impl SourceDefinition {
    /// A definition whose zone is UTC.
    pub fn new(name: impl Into<String>, columns: Vec<ColumnDefinition>, options: Options) -> Self {
        Self { name: name.into(), columns, options, zone: TimeZone::UTC }
    }

    /// Reads time texts without a zone in `zone`.
    #[must_use]
    pub fn with_zone(mut self, zone: TimeZone) -> Self {
        self.zone = zone;
        self
    }

    /// The declared columns with every timestamp as `Timestamp(µs, "UTC")`.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(ColumnDefinition::field).collect::<Vec<_>>()))
    }

    /// Takes the options one by one; see [`OptionReader`].
    pub fn option_reader(&self) -> OptionReader<'_> {
        OptionReader { definition: self, known: BTreeSet::new() }
    }
}

/// The type every event time and timestamp column has behind a connector: microseconds, UTC.
pub fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// `declared` with every timestamp in it, however deep, as [`instant`], and everything nested nullable.
pub fn instant_type(declared: &DataType) -> DataType {
    match declared {
        DataType::Timestamp(_, _) => instant(),
        DataType::List(item) => DataType::List(instant_field(item)),
        DataType::LargeList(item) => DataType::LargeList(instant_field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(instant_field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(instant_field).collect::<Fields>()),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let key = pair[0].as_ref().clone().with_data_type(instant_type(pair[0].data_type()));
                let pair: Fields = vec![Arc::new(key), instant_field(&pair[1])].into();
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(pair))), *sorted)
            }
            _ => declared.clone(),
        },
        other => other.clone(),
    }
}

/// A field of a STRUCT, ARRAY or MAP with its type by [`instant_type`]. What is nested may always be NULL.
pub(crate) fn instant_field(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(instant_type(field.data_type())).with_nullable(true))
}

/// Options that every source may have and that are read by the engine, not by a connector.
pub const ENGINE_OPTIONS: &[&str] = &[
    "archive",
    "archive_retention",
    "batch_date",
    "batch_format",
    "batch_location",
    "batch_retention",
    "connector",
    "max_ahead",
    "max_future",
    "max_rejects",
    "start",
    "time_zone",
];

/// Hands out options and remembers which names it knows, so that [`OptionReader::finish`] can refuse the others.
///
/// Each option may have further names (Flink's); giving two of them is an error.
#[derive(Debug)]
pub struct OptionReader<'a> {
    definition: &'a SourceDefinition,
    known: BTreeSet<&'static str>,
}

impl<'a> OptionReader<'a> {
    /// The text of the option with any of `names`.
    ///
    /// # Errors
    /// `Invalid` if it is given under two names.
    pub fn text(&mut self, names: &[&'static str]) -> Result<Option<&'a str>> {
        self.known.extend(names);
        let mut given = names.iter().filter_map(|name| Some((*name, self.definition.options.get(*name)?)));
        let first = given.next();
        if let (Some((one, _)), Some((two, _))) = (first, given.next()) {
            return Err(Error::invalid(format!("options '{one}' and '{two}' mean the same; give one of them")));
        }
        Ok(first.map(|(_, value)| value.as_str()))
    }

    /// An option that must be there.
    ///
    /// # Errors
    /// `Invalid` if it is missing.
    pub fn required(&mut self, names: &[&'static str]) -> Result<&'a str> {
        let name = names[0];
        if let Some(text) = self.text(names)? {
            return Ok(text);
        }
        let missing = || Error::invalid(format!("source `{}` needs the option '{name}'", self.definition.name));
        Err(match self.mistyped(name) {
            Some(mistyped) => mistyped,
            None => missing().with_hint(format!("add {name} = '…' to WITH ( … )")),
        })
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// `Invalid` for any other text.
    pub fn flag(&mut self, names: &[&'static str], default: bool) -> Result<bool> {
        match self.text(names)?.map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("true" | "yes" | "on") => Ok(true),
            Some("false" | "no" | "off") => Ok(false),
            Some(other) => Err(bad_value(names[0], other, "true or false")),
        }
    }

    /// A number; `_` may group its digits.
    ///
    /// # Errors
    /// `Invalid` if the text is none.
    pub fn number<T: std::str::FromStr>(&mut self, names: &[&'static str]) -> Result<Option<T>> {
        let Some(text) = self.text(names)? else { return Ok(None) };
        text.replace('_', "").parse().map(Some).map_err(|_| bad_value(names[0], text, "a number"))
    }

    /// One of `choices`, whatever the case.
    ///
    /// # Errors
    /// `Invalid` if it is none of them; names the likely one.
    pub fn choice<T: Copy>(&mut self, names: &[&'static str], choices: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(names)? else { return Ok(None) };
        if let Some((_, value)) = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Some(*value));
        }
        let list = choices.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        Err(with_guess(bad_value(names[0], text, &list.join(", ")), text, &list))
    }

    /// One ASCII character; `\t` is a tab.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn byte(&mut self, names: &[&'static str]) -> Result<Option<u8>> {
        match self.text(names)? {
            None => Ok(None),
            Some("\\t") => Ok(Some(b'\t')),
            Some(text) => match text.as_bytes() {
                [byte] if byte.is_ascii() => Ok(Some(*byte)),
                _ => Err(bad_value(names[0], text, "one ASCII character")),
            },
        }
    }

    /// A length of time: `250 ms`, `1s`, `5 minutes`. Flink writes them alike.
    ///
    /// # Errors
    /// `Invalid` if the text is none.
    pub fn duration(&mut self, names: &[&'static str]) -> Result<Option<Duration>> {
        let Some(text) = self.text(names)? else { return Ok(None) };
        parse_duration(text)
            .map(Some)
            .ok_or_else(|| bad_value(names[0], text, "a length of time such as '5 s' or '1 minute'"))
    }

    /// The error of an option nobody has asked for so far that may stand for `name`, if there is one.
    pub fn mistyped(&self, name: &'static str) -> Option<Error> {
        let unknown =
            |given: &&String| !self.known.contains(given.as_str()) && !ENGINE_OPTIONS.contains(&given.as_str());
        let near = |given: &&String| nearest(given, &[name]).is_some();
        let given = self.definition.options.keys().filter(unknown).find(near)?;
        Some(with_guess(self.no_option(given), given, &[name]))
    }

    fn no_option(&self, name: &str) -> Error {
        Error::invalid(match self.definition.options.get("connector") {
            Some(connector) => format!("connector '{connector}' has no option '{name}'"),
            None => format!("source `{}` has an option '{name}', which there is not", self.definition.name),
        })
    }

    /// Refuses options nobody asked for.
    ///
    /// # Errors
    /// `Invalid` with the likely name as hint.
    pub fn finish(self) -> Result<()> {
        for name in self.definition.options.keys() {
            let of_location = name.starts_with(super::location::PREFIX);
            if self.known.contains(name.as_str()) || ENGINE_OPTIONS.contains(&name.as_str()) || of_location {
                continue;
            }
            let error = self.no_option(name);
            let names: Vec<&str> = self.known.iter().chain(ENGINE_OPTIONS).copied().collect();
            return Err(match nearest(name, &names) {
                Some(near) => error.with_hint(format!("did you mean '{near}'?")),
                None => error.with_hint(format!("it has {}", names.join(", "))),
            });
        }
        Ok(())
    }
}

fn bad_value(name: &str, text: &str, expected: &str) -> Error {
    Error::invalid(format!("option '{name}' is '{text}', expected {expected}"))
}

fn with_guess(error: Error, text: &str, names: &[&str]) -> Error {
    match nearest(text, names) {
        Some(name) => error.with_hint(format!("did you mean '{name}'?")),
        None => error,
    }
}

/// A length of time such as `250 ms`, `1s` or `5 minutes`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let unit_us = match text[split..].trim().to_ascii_lowercase().as_str() {
        "us" | "µs" | "microsecond" | "microseconds" => 1.0,
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1e3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e6,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e6,
        "h" | "hour" | "hours" => 3600e6,
        "d" | "day" | "days" => 86_400e6,
        _ => return None,
    };
    let us = number * unit_us;
    (us <= 1e16).then(|| Duration::from_micros(us.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(options: &[(&str, &str)]) -> SourceDefinition {
        let options = options.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        SourceDefinition::new("orders", vec![], options)
    }

    #[test]
    fn mistyped_option_names_are_refused_with_a_guess() {
        let definition = definition(&[("connector", "file"), ("pth", "x"), ("max_future", "1 h")]);
        let mut options = definition.option_reader();
        assert_eq!(options.text(&["path"]).unwrap(), None);
        let error = options.finish().unwrap_err();
        assert_eq!(error.to_string(), "connector 'file' has no option 'pth'");
        assert_eq!(error.hint(), Some("did you mean 'path'?"));
    }

    #[test]
    fn an_option_may_be_given_under_one_name_only() {
        let definition = definition(&[("null", "x"), ("csv.null-literal", "y")]);
        assert!(definition.option_reader().text(&["null", "csv.null-literal"]).is_err());
    }

    #[test]
    fn durations_read_as_flink_writes_them() {
        assert_eq!(parse_duration("250 ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("1s"), Some(Duration::from_secs(1)));
        assert_eq!(parse_duration("1.5 hours"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("5"), None);
        assert_eq!(parse_duration("-5 s"), None);
    }

    #[test]
    fn timestamps_leave_as_microseconds_utc_at_any_depth() {
        let inner =
            DataType::Struct(vec![Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, None), true)].into());
        let list = DataType::List(Arc::new(Field::new("item", inner, true)));
        let DataType::List(item) = instant_type(&list) else { panic!("still a list") };
        let DataType::Struct(fields) = item.data_type() else { panic!("still a struct") };
        assert_eq!(fields[0].data_type(), &instant());
    }
}
