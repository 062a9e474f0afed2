//! DataFusion's errors as ours, in one place.

use datafusion::common::{DataFusionError, SchemaError};

use crate::error::{Error, ErrorKind, Position, nearest};
use crate::storage::is_unavailable;

/// Carries an error of ours through DataFusion's planner. [`from_datafusion`] takes it out again.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The error with the kind a caller can act on, the position DataFusion noted, and its text in our form.
pub fn from_datafusion(error: DataFusionError) -> Error {
    let position = error
        .diagnostic()
        .and_then(|d| d.span)
        .filter(|s| s.start.line > 0)
        .map(|s| Position { line: s.start.line, column: s.start.column });
    let hint = hint_of(&error);
    let translated = translate(error);
    let translated = match position {
        Some(position) if translated.position().is_none() => translated.at(position),
        _ => translated,
    };
    match hint {
        Some(hint) if translated.hint().is_none() => translated.with_hint(hint),
        _ => translated,
    }
}

/// What DataFusion puts between an unknown name and its guess.
const GUESS: &str = ".\nDid you mean '";

fn hint_of(error: &DataFusionError) -> Option<String> {
    if let DataFusionError::SchemaError(inner, _) = error.find_root()
        && let SchemaError::FieldNotFound { field, valid_fields } = inner.as_ref()
        && !valid_fields.is_empty()
    {
        if !field.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '$') {
            return Some("double quotes name a column; a text stands in single quotes, as in 'text'".to_owned());
        }
        let mut names: Vec<&str> = Vec::new();
        for column in valid_fields {
            if !names.contains(&column.name.as_str()) {
                names.push(&column.name);
            }
        }
        return Some(match nearest(&field.name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", names.join(", ")),
        });
    }
    if let Some(told) = told(&error.find_root().message()) {
        return told.hint;
    }
    if let Some((_, guess)) = error.find_root().message().split_once(GUESS) {
        return Some(format!("did you mean {}?", guess.trim_end_matches(['\'', '?'])));
    }
    error.diagnostic().and_then(|d| d.helps.first()).map(|help| help.message.to_lowercase())
}

fn translate(error: DataFusionError) -> Error {
    use DataFusionError as E;
    match error {
        E::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => {
                let kind = if is_unavailable(other.as_ref()) { ErrorKind::Unavailable } else { ErrorKind::Invalid };
                Error::new(kind, lower(&other.to_string())).with_source(other)
            }
        },
        E::Context(_, inner) | E::Diagnostic(_, inner) => translate(*inner),
        E::Collection(mut all) if !all.is_empty() => translate(all.swap_remove(0)),
        E::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
            Ok(inner) => translate(inner),
            Err(shared) => match own(&shared) {
                Some(own) => own.copy(),
                None => Error::new(kind_of(&shared), text_of(&shared)).with_source(E::Shared(shared)),
            },
        },
        // Their text is the message and the hint: nothing is left for a cause.
        other if is_told(&other) => Error::new(kind_of(&other), text_of(&other)),
        other if call_without_match(&other.message()).is_some() => {
            Error::new(kind_of(&other), text_of(&other)).with_hint("cast the argument, as in CAST(x AS DOUBLE)")
        }
        other => match own(&other) {
            Some(own) => own.copy(),
            None => Error::new(kind_of(&other), text_of(&other)).with_source(other),
        },
    }
}

/// The error of ours that `error` has come to be around, if there is one.
fn own(error: &DataFusionError) -> Option<&Error> {
    match error.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref(),
        _ => None,
    }
}

fn is_told(error: &DataFusionError) -> bool {
    let root = error.find_root();
    let is_unknown_column = matches!(root, DataFusionError::SchemaError(inner, _)
        if matches!(inner.as_ref(), SchemaError::FieldNotFound { .. }));
    is_unknown_column || root.message().contains(GUESS) || told(&root.message()).is_some()
}

/// What DataFusion means by a message, in our words.
struct Told {
    message: String,
    hint: Option<String>,
}

fn told(text: &str) -> Option<Told> {
    let told = |message: String, hint: &str| Some(Told { message, hint: Some(hint.to_owned()) });
    if let Some((clause, rest)) = text.split_once(" must be in GROUP BY or an aggregate function")
        && let Some(clause) = clause.strip_prefix("Column in ")
    {
        let column = rest.split('"').nth(1).unwrap_or_default();
        let column = column.rsplit('.').next().unwrap_or(column);
        let hint = format!(
            "add it to GROUP BY, or take one value with first_value({column}), max({column}) or another aggregate"
        );
        return told(
            format!("column `{column}` in {clause} is neither in GROUP BY nor in an aggregate function"),
            &hint,
        );
    }
    if let Some((_, rest)) = text.split_once("Error parsing timestamp from '")
        && let Some((time, _)) = rest.split_once('\'')
    {
        return told(
            format!("not a time: '{time}'"),
            "write it as '2024-01-15 10:30:00', seconds too, with Z or an offset for its zone",
        );
    }
    if let Some(name) = text.strip_suffix("' is not a variable which can be viewed with 'SHOW'") {
        let hint = "there are SHOW SOURCES, VIEWS, SCHEDULES, JOBS, WATERMARKS, LATENESS and TABLES, and settings by their name; \
                    what a view has published is in its relations, as in SELECT * FROM my_view$history";
        return told(format!("nothing to SHOW is called `{}`", name.trim_start_matches('\'').replace('.', " ")), hint);
    }
    if text.starts_with("Cannot coerce arithmetic expression") {
        let hint = "a length of time is written INTERVAL '5 minutes', and CAST(x AS BIGINT) makes a number of a text";
        return told(text.to_owned(), hint);
    }
    None
}

fn kind_of(error: &DataFusionError) -> ErrorKind {
    use DataFusionError as E;
    match error.find_root() {
        root if told(&root.message()).is_some() => ErrorKind::Invalid,
        E::NotImplemented(_) => ErrorKind::Unsupported,
        E::SQL(..) => ErrorKind::Syntax,
        // DataFusion takes a wrong argument for a mistake of its own.
        E::Internal(text) if call_without_match(text).is_some() => ErrorKind::Invalid,
        E::Internal(_) | E::ExecutionJoin(_) | E::Substrait(_) | E::Ffi(_) => ErrorKind::Internal,
        E::ObjectStore(_) | E::IoError(_) | E::ResourcesExhausted(_) => ErrorKind::Unavailable,
        store if is_unavailable(store) => ErrorKind::Unavailable,
        E::ArrowError(..) | E::ParquetError(_) | E::Execution(_) => ErrorKind::Data,
        _ => ErrorKind::Invalid,
    }
}

fn text_of(error: &DataFusionError) -> String {
    let root = error.find_root();
    let text = match root {
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { field, .. } => format!("no column `{}`", field.flat_name()),
            other => other.to_string(),
        },
        other => match (call_without_match(&other.message()), told(&other.message())) {
            (Some(call), _) => format!("no function {call} for arguments of these types"),
            (None, Some(told)) => told.message,
            (None, None) => other.message().split(GUESS).next().unwrap_or_default().to_owned(),
        },
    };
    with_sql_types(&lower(text.split("\n\nbacktrace").next().unwrap_or_default().trim()))
}

/// Arrow's names of types, and what SQL calls them.
const TYPES: &[(&str, &str)] = &[
    ("Utf8", "VARCHAR"),
    ("Utf8View", "VARCHAR"),
    ("LargeUtf8", "VARCHAR"),
    ("Boolean", "BOOLEAN"),
    ("Int8", "TINYINT"),
    ("Int16", "SMALLINT"),
    ("Int32", "INT"),
    ("Int64", "BIGINT"),
    ("Float32", "REAL"),
    ("Float64", "DOUBLE"),
    ("Date32", "DATE"),
    ("Timestamp", "TIMESTAMP"),
    ("Interval", "INTERVAL"),
];

/// `text` with types as SQL spells them. A name before a parenthesis is a value's, as in `Int64(1)`, but for types that have
/// parameters of their own.
pub(super) fn with_sql_types(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let (word, after) = rest.split_at(rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()));
        let parameters = after.starts_with('(').then(|| after.find(')')).flatten();
        let has_parameters = ["Timestamp", "Interval"].contains(&word);
        (out, rest) = match TYPES.iter().find(|(arrow, _)| *arrow == word) {
            Some((_, sql)) if has_parameters && parameters.is_some() => {
                (out + sql, &after[parameters.map_or(0, |end| end + 1)..])
            }
            Some((_, sql)) if !has_parameters && !after.starts_with('(') => (out + sql, after),
            _ => (out + word, after),
        };
    }
    out + rest
}

/// `sum(Utf8View)` of the pages DataFusion has to say about a function that takes no such arguments.
fn call_without_match(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("No function matches the given name and argument types '")?;
    Some(rest.split_once('\'')?.0.to_owned())
}

/// Lower-case first letter and no full stop, unless the first word is a name or an abbreviation.
fn lower(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}
