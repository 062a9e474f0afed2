//! DataFusion's errors as ours, in one place.

use datafusion::common::{DataFusionError, SchemaError};

use crate::error::{Error, ErrorKind, Position};
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
        let names: Vec<&str> = valid_fields.iter().map(|column| column.name.as_str()).collect();
        return Some(format!("there are {}", names.join(", ")));
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
        // Its text is the message and the hint: nothing is left for a cause.
        other if other.message().contains(GUESS) => Error::new(kind_of(&other), text_of(&other)),
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

fn kind_of(error: &DataFusionError) -> ErrorKind {
    use DataFusionError as E;
    match error.find_root() {
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
        other => match call_without_match(&other.message()) {
            Some(call) => format!("no function {call} for arguments of these types"),
            None => other.message().split(GUESS).next().unwrap_or_default().to_owned(),
        },
    };
    lower(text.split("\n\nbacktrace").next().unwrap_or_default().trim())
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
