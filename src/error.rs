//! The one error that leaves this crate.
//!
//! [`Error`] tells a caller two things: what to do about it ([`ErrorKind`]) and what happened (its text, and where in
//! the SQL it happened). Modules keep small enums of their own and turn them into an `Error` in one place; there is no
//! kind for "other".

use std::error::Error as StdError;
use std::fmt;

/// The result of every fallible public call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not a statement. Correct it at the position given.
    Syntax,
    /// The statement is well formed and means nothing here: an unknown name, a wrong type, a bad size.
    Invalid,
    /// The statement is meaningful and not supported yet. The hint says what would work.
    Unsupported,
    /// Input could not be used: more rows than the source's policy allows, or a file that is damaged as a whole.
    Data,
    /// Something outside did not answer. Trying again later may work.
    Unavailable,
    /// The thing exists already, or changed under the caller.
    Conflict,
    /// A newer engine has taken over. Stop.
    Fenced,
    /// Stored bytes are damaged or of an unknown version. Nothing was read from them.
    Corrupt,
    /// The engine, job or stream has been closed.
    Closed,
    /// A bug of ours. Report it.
    Internal,
}

impl ErrorKind {
    /// The kind as one lower-case word, for logs, JSON bodies and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Data => "data",
            Self::Unavailable => "unavailable",
            Self::Conflict => "conflict",
            Self::Fenced => "fenced",
            Self::Corrupt => "corrupt",
            Self::Closed => "closed",
            Self::Internal => "internal",
        }
    }
}

/// A place in a SQL text. Both numbers start at 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The one of `candidates` that `found` is by a slip of the keyboard, for a hint; the first of several, `None` if there is none.
pub(crate) fn nearest<'c>(found: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let slips_max = match found.chars().count() {
        0..=2 => return None,
        3..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    let slips = |candidate: &str| strsim::osa_distance(&found.to_lowercase(), &candidate.to_lowercase());
    let near = candidates.iter().map(|candidate| (slips(candidate), *candidate));
    near.filter(|(slips, _)| (1..=slips_max).contains(slips)).min_by_key(|(slips, _)| *slips).map(|(_, near)| near)
}

/// An error with its kind, text, optional SQL position, optional hint, and cause.
///
/// `Display` prints the text and the position, not the cause: the edge (CLI, server) prints the chain once.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    position: Option<Position>,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` that says `message`: lower case, no full stop, facts as ``key=`value` ``.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), position: None, hint: None, source: None }))
    }

    /// [`ErrorKind::Syntax`] with `message`.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, message)
    }

    /// [`ErrorKind::Invalid`] with `message`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// [`ErrorKind::Unsupported`] with `message`.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// [`ErrorKind::Internal`] with `message`.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Says where in the SQL text it happened.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Says where it happened, unless that is known more exactly.
    #[must_use]
    pub(crate) fn or_at(self, position: Option<Position>) -> Self {
        match (self.position(), position) {
            (None, Some(position)) => self.at(position),
            _ => self,
        }
    }

    /// Says what would work instead. One sentence, no full stop.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// An error of the same kind and texts, its cause told as text: what several askers can be told.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut copy = Self::new(self.kind(), self.message());
        if let Some(hint) = self.hint() {
            copy = copy.with_hint(hint);
        }
        if let Some(position) = self.position() {
            copy = copy.at(position);
        }
        match std::error::Error::source(self) {
            Some(cause) => copy.with_source(cause.to_string()),
            None => copy,
        }
    }

    /// Says that the job `name` ended with it.
    #[must_use]
    pub(crate) fn of_job(mut self, name: &str) -> Self {
        self.0.message = format!("`{name}` failed: {}", self.0.message);
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text alone, without position, hint or cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where in the SQL text it happened, if it happened in one.
    pub fn position(&self) -> Option<Position> {
        self.0.position
    }

    /// What would work instead, if we know.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match self.0.position {
            Some(position) => write!(f, " at {position}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
