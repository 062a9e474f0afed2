//! Values in the names of folders, as Hive writes them: `region=eu/date=2024-01-15/part-0.parquet`.
//!
//! A declared column whose name is such a key has its value from there, not from the rows, where writers leave it out. Keys
//! that are said to hold the event time's date also tell which files a range of time needs: those of other dates are not
//! opened. Nothing is assumed of a key by its name alone: a folder `date=…` may well be the day the rows came.

use std::collections::BTreeSet;

use crate::connectors::ColumnDefinition;
use crate::error::{Error, Result};
use crate::time::{DAY_US, HOUR_US, day_of_civil};

/// What Hive writes for NULL.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// How the metadata key of a column is called that has its value from a folder.
const KEY: &str = "folder:";

/// Keys of folders and their values, as written, from the outermost inward.
fn keys(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').filter_map(|folder| folder.split_once('=')).filter(|(key, _)| !key.is_empty())
}

/// `columns`, those among them from folders that are keys of folders of any of `paths`. Names match without regard to case.
pub(super) fn columns_from_folders<'p>(
    columns: &[ColumnDefinition],
    paths: impl Iterator<Item = &'p str>,
) -> Vec<ColumnDefinition> {
    let known: BTreeSet<String> = paths.flat_map(keys).map(|(key, _)| key.to_lowercase()).collect();
    let from_folder = |column: &ColumnDefinition| {
        let key = column.name.to_lowercase();
        match column.metadata.is_none() && known.contains(&key) {
            true => column.clone().with_metadata(format!("{KEY}{key}")),
            false => column.clone(),
        }
    };
    columns.iter().map(from_folder).collect()
}

/// What the folders of `path` say of the metadata `key`. Outer `None`: it is no key of folders.
pub(crate) fn value_in_folder(key: &str, path: &str) -> Option<Option<String>> {
    let key = key.strip_prefix(KEY)?;
    let written = keys(path).find(|(found, _)| found.to_lowercase() == key).map(|(_, value)| value);
    Some(written.filter(|value| *value != NULL).map(unescaped))
}

/// `%2F` and the like as the characters they stand for.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let escape = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let escaped = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Keys of folders that say when the rows below them happened, in UTC: one of a whole date (`2024-01-15` or `20240115`), or
/// year, month and, as far as there are some, day and hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DateKeys(Vec<String>);

impl DateKeys {
    /// Keys as an option lists them.
    ///
    /// # Errors
    /// `Invalid` for more than four, or an empty one.
    pub(crate) fn parse(option: &str, text: &str) -> Result<Self> {
        let keys: Vec<String> = text.split(',').map(|key| key.trim().to_owned()).collect();
        if keys.len() <= 4 && keys.iter().all(|key| !key.is_empty()) {
            return Ok(Self(keys));
        }
        let expected = "the key of a date, or of year, month, day and hour";
        Err(Error::invalid(format!("option '{option}' is '{text}', expected {expected}")).with_hint(format!(
            "{option} = 'date' for folders such as date=2024-01-15, or {option} = 'year, month, day'"
        )))
    }

    /// The event times `[from, to)`, µs, that the file at `path` may hold. `None`: any.
    pub(crate) fn times_of(&self, path: &str) -> Option<(i64, i64)> {
        let values = self.0.iter().map(|key| {
            let written = keys(path).find(|(found, _)| found.eq_ignore_ascii_case(key));
            written.map(|(_, value)| unescaped(value))
        });
        let values = values.collect::<Option<Vec<String>>>()?;
        let [date] = values.as_slice() else { return times_of_parts(&values) };
        let date: jiff::civil::Date = date.parse().ok()?;
        Some(days(date, date.tomorrow().ok()?))
    }
}

fn times_of_parts(parts: &[String]) -> Option<(i64, i64)> {
    let year: i16 = parts.first()?.parse().ok()?;
    let month: i8 = parts.get(1)?.parse().ok()?;
    let Some(day) = parts.get(2) else {
        let first = jiff::civil::Date::new(year, month, 1).ok()?;
        return Some(days(first, first.last_of_month().tomorrow().ok()?));
    };
    let date = jiff::civil::Date::new(year, month, day.parse().ok()?).ok()?;
    let (from, to) = days(date, date.tomorrow().ok()?);
    let Some(hour) = parts.get(3) else { return Some((from, to)) };
    let hour: i64 = hour.parse().ok().filter(|hour| (0..24).contains(hour))?;
    Some((from + hour * HOUR_US, from + (hour + 1) * HOUR_US))
}

/// The time from the midnight of `first` to that of `end`.
fn days(first: jiff::civil::Date, end: jiff::civil::Date) -> (i64, i64) {
    let midnight =
        |date: jiff::civil::Date| day_of_civil(date.year().into(), date.month().into(), date.day().into()) * DAY_US;
    (midnight(first), midnight(end))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn declared_columns_have_their_values_from_the_folders_that_name_them() {
        let columns = [("Region", DataType::Utf8), ("n", DataType::Int64)];
        let columns = columns.map(|(name, data_type)| ColumnDefinition::new(name, data_type));
        let found = columns_from_folders(&columns, ["/lake/n=1.json", "/lake/REGION=eu/file=1.json"].into_iter());
        let [region, n] = found.as_slice() else { panic!("two columns") };
        assert_eq!(n.metadata, None);
        let key = region.metadata.clone().unwrap();
        for (path, value) in [
            ("/lake/region=eu/a.json", Some("eu")),
            ("/lake/REGION=a%2Fb%20c/a.json", Some("a/b c")),
            ("/lake/region=50%/a.json", Some("50%")),
            ("/lake/region=__HIVE_DEFAULT_PARTITION__/a.json", None),
            ("/lake/a.json", None),
        ] {
            assert_eq!(value_in_folder(&key, path), Some(value.map(str::to_owned)), "{path}");
        }
        assert_eq!(value_in_folder("offset", "/lake/region=eu/a.json"), None);
    }

    #[test]
    fn date_keys_bound_the_times_of_a_file_and_what_is_no_date_bounds_nothing() {
        let day = 19_737 * DAY_US;
        let date = DateKeys::parse("batch_date", "dt").unwrap();
        let parts = |n: usize| DateKeys::parse("batch_date", &["y", "m", "d", "h"][..n].join(", ")).unwrap();
        let path = "/x/y=2024/m=01/d=15/h=23/a";
        for (keys, path, want) in [
            (&date, "/x/dt=2024-01-15/a", Some((day, day + DAY_US))),
            (&date, "/x/DT=20240115/a", Some((day, day + DAY_US))),
            (&date, "/x/date=2024-01-15/a", None),
            (&date, "/x/dt=__HIVE_DEFAULT_PARTITION__/a", None),
            (&date, "/x/a/dt=2024-01-15", None),
            (&parts(2), path, Some((day - 14 * DAY_US, day + 17 * DAY_US))),
            (&parts(3), path, Some((day, day + DAY_US))),
            (&parts(4), path, Some((day + 23 * HOUR_US, day + DAY_US))),
            (&parts(4), "/x/y=2024/m=01/d=15/h=24/a", None),
            (&parts(3), "/x/y=2024/m=02/d=30/a", None),
        ] {
            assert_eq!(keys.times_of(path), want, "{path} {keys:?}");
        }
        assert!(DateKeys::parse("batch_date", "a,,b").is_err());
        assert!(DateKeys::parse("batch_date", "a,b,c,d,e").is_err());
    }
}
