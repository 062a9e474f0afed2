//! The clauses that follow a SELECT: lateness, late and expired rows, emission, finality.
//!
//! They may come in any order, each once. A word that starts none of them is an error at that word.

use std::fmt;

use super::cursor::Cursor;
use super::diagnostics;
use super::statement::{Clauses, Emit, Interval, OnExpired, OnLate, Spanned};
use crate::error::{Error, Position, Result};

/// One of our clauses, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clause {
    AllowedLateness,
    OnLate,
    OnExpired,
    Emit,
    FinalizeAfter,
}

const STARTS: &[(&str, Clause)] = &[
    ("ALLOWED LATENESS", Clause::AllowedLateness),
    ("ALLOW LATENESS", Clause::AllowedLateness),
    ("GRACE PERIOD", Clause::AllowedLateness),
    ("ON LATE", Clause::OnLate),
    ("ON EXPIRED", Clause::OnExpired),
    ("EMIT", Clause::Emit),
    ("FINALIZE AFTER", Clause::FinalizeAfter),
];

/// How every clause starts, the longest forms first, for guessing what a misspelt word was meant to be.
pub(super) const CLAUSE_PHRASES: &[&str] = &[
    "ALLOWED LATENESS",
    "ALLOW LATENESS",
    "GRACE PERIOD",
    "ON LATE",
    "ON EXPIRED",
    "EMIT ON WINDOW CLOSE",
    "EMIT AFTER WINDOW CLOSE",
    "EMIT AFTER WATERMARK",
    "EMIT ON UPDATE",
    "EMIT ON EXPIRY",
    "EMIT CHANGES",
    "EMIT FINAL",
    "FINALIZE AFTER",
];

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllowedLateness => "ALLOWED LATENESS",
            Self::OnLate => "ON LATE",
            Self::OnExpired => "ON EXPIRED",
            Self::Emit => "EMIT",
            Self::FinalizeAfter => "FINALIZE AFTER",
        })
    }
}

/// Reads clauses up to the end of the statement, or to the RESTART before it, which is the statement's.
pub(super) fn parse(cursor: &mut Cursor<'_, '_>) -> Result<Clauses> {
    let mut clauses = Clauses::default();
    while !(cursor.is_end() || cursor.is_at("RESTART") && cursor.ends_at(1)) {
        let position = cursor.position();
        let Some((phrase, clause)) = STARTS.iter().find(|(phrase, _)| cursor.is_at(phrase)) else {
            return Err(no_clause(cursor, &clauses));
        };
        if let Some(first) = place(&clauses, *clause) {
            return Err(Error::syntax(format!("{clause} is given twice"))
                .at(position)
                .with_hint(format!("the first one is at {first}; keep one of them")));
        }
        cursor.skip(phrase.split(' ').count());
        match clause {
            Clause::AllowedLateness => {
                let interval = cursor.non_negative_interval("allowed lateness")?;
                clauses.allowed_lateness = Some(Spanned { position, ..interval });
            }
            Clause::OnLate => clauses.on_late = Some(Spanned { node: on_late(cursor)?, position }),
            Clause::OnExpired => clauses.on_expired = Some(Spanned { node: on_expired(cursor)?, position }),
            Clause::Emit => clauses.emit = Some(Spanned { node: emit(cursor)?, position }),
            Clause::FinalizeAfter => {
                let interval = cursor.non_negative_interval("FINALIZE AFTER")?;
                clauses.finalize_after = Some(Spanned { position, ..interval });
            }
        }
    }
    Ok(clauses)
}

/// Where a clause was given, if it was.
fn place(clauses: &Clauses, clause: Clause) -> Option<Position> {
    fn of<T>(clause: &Option<Spanned<T>>) -> Option<Position> {
        clause.as_ref().map(|c| c.position)
    }
    match clause {
        Clause::AllowedLateness => of(&clauses.allowed_lateness),
        Clause::OnLate => of(&clauses.on_late),
        Clause::OnExpired => of(&clauses.on_expired),
        Clause::Emit => of(&clauses.emit),
        Clause::FinalizeAfter => of(&clauses.finalize_after),
    }
}

/// The error for what is neither a clause nor the end.
fn no_clause(cursor: &Cursor<'_, '_>, given: &Clauses) -> Error {
    let right_start = STARTS
        .iter()
        .filter(|(p, _)| p.contains(' '))
        .any(|(p, _)| p.split(' ').next().is_some_and(|w| cursor.is_at(w)));
    if right_start {
        let phrases: Vec<&str> = STARTS.iter().map(|(phrase, _)| *phrase).collect();
        return cursor.no_choice("", &phrases);
    }
    let open = |clause: &Clause| place(given, *clause).is_none();
    let mut left: Vec<String> =
        STARTS.iter().map(|(_, clause)| clause).filter(|c| open(c)).map(ToString::to_string).collect();
    left.push("the end of the statement".to_owned());
    cursor.stray(&diagnostics::list(&left, "or"))
}

fn on_late(cursor: &mut Cursor<'_, '_>) -> Result<OnLate> {
    #[derive(Clone, Copy)]
    enum Fate {
        Update,
        Drop,
        Side,
        Recompute,
    }
    let fates =
        [("UPDATE", Fate::Update), ("DROP", Fate::Drop), ("SIDE OUTPUT", Fate::Side), ("RECOMPUTE", Fate::Recompute)];
    Ok(match cursor.choose("ON LATE", &fates)? {
        Fate::Update => OnLate::Update { max_updates: max_updates(cursor)? },
        Fate::Drop => OnLate::Drop,
        Fate::Side => OnLate::SideOutput,
        Fate::Recompute => OnLate::Recompute { every: every(cursor)? },
    })
}

fn on_expired(cursor: &mut Cursor<'_, '_>) -> Result<OnExpired> {
    if cursor.is_at("UPDATE") {
        return Err(Error::syntax("an expired window has no state left that could be updated")
            .at(cursor.position())
            .with_hint("raise ALLOWED LATENESS, or write ON EXPIRED RECOMPUTE"));
    }
    let side = OnExpired::SideOutput;
    let recompute = OnExpired::Recompute { every: None };
    let fates = [("SIDE OUTPUT", side), ("DROP", OnExpired::Drop), ("RECOMPUTE", recompute)];
    match cursor.choose("ON EXPIRED", &fates)? {
        OnExpired::Recompute { .. } => Ok(OnExpired::Recompute { every: every(cursor)? }),
        fate => Ok(fate),
    }
}

/// `[MAX n UPDATES]`.
fn max_updates(cursor: &mut Cursor<'_, '_>) -> Result<Option<u32>> {
    if !cursor.eat("MAX") {
        return Ok(None);
    }
    let updates = cursor.unsigned("a number of updates")?;
    match cursor.eat("UPDATE") {
        true => Ok(Some(updates)),
        false => cursor.expect("UPDATES").map(|()| Some(updates)),
    }
}

/// `[EVERY INTERVAL …]`, above zero.
fn every(cursor: &mut Cursor<'_, '_>) -> Result<Option<Interval>> {
    if !cursor.eat("EVERY") {
        return Ok(None);
    }
    let interval = cursor.interval()?;
    match interval.node.is_positive() {
        true => Ok(Some(interval.node)),
        false => Err(Error::invalid(format!("EVERY must be above zero, is `{}`", interval.node)).at(interval.position)),
    }
}

fn emit(cursor: &mut Cursor<'_, '_>) -> Result<Emit> {
    let changes = Emit::Changes { every: None };
    let modes = [
        ("ON WINDOW CLOSE", Emit::OnWindowClose),
        ("AFTER WINDOW CLOSE", Emit::OnWindowClose),
        ("AFTER WATERMARK", Emit::OnWindowClose),
        ("CHANGES", changes),
        ("ON UPDATE", changes),
        ("ON EXPIRY", Emit::OnExpiry),
        ("FINAL", Emit::OnExpiry),
    ];
    match cursor.choose("EMIT", &modes)? {
        Emit::Changes { .. } => Ok(Emit::Changes { every: every(cursor)? }),
        mode => Ok(mode),
    }
}

fn write_every(f: &mut fmt::Formatter<'_>, what: &str, every: Option<Interval>) -> fmt::Result {
    match every {
        Some(every) => write!(f, "{what} EVERY INTERVAL '{every}'"),
        None => f.write_str(what),
    }
}

/// As behind `ON LATE`: `UPDATE MAX 10 UPDATES`.
impl fmt::Display for OnLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update { max_updates: None } => f.write_str("UPDATE"),
            Self::Update { max_updates: Some(n) } => write!(f, "UPDATE MAX {n} UPDATES"),
            Self::Drop => f.write_str("DROP"),
            Self::SideOutput => f.write_str("SIDE OUTPUT"),
            Self::Recompute { every } => write_every(f, "RECOMPUTE", *every),
        }
    }
}

/// As behind `ON EXPIRED`: `SIDE OUTPUT`.
impl fmt::Display for OnExpired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SideOutput => f.write_str("SIDE OUTPUT"),
            Self::Drop => f.write_str("DROP"),
            Self::Recompute { every } => write_every(f, "RECOMPUTE", *every),
        }
    }
}

/// As behind `EMIT`: `CHANGES EVERY INTERVAL '10 seconds'`.
impl fmt::Display for Emit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnWindowClose => f.write_str("ON WINDOW CLOSE"),
            Self::Changes { every } => write_every(f, "CHANGES", *every),
            Self::OnExpiry => f.write_str("ON EXPIRY"),
        }
    }
}

/// As behind a SELECT, canonical words, one space between clauses; empty if there are none.
impl fmt::Display for Clauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.allowed_lateness.as_ref().map(|l| format!("ALLOWED LATENESS INTERVAL '{}'", l.node)));
        parts.extend(self.on_late.as_ref().map(|fate| format!("ON LATE {}", fate.node)));
        parts.extend(self.on_expired.as_ref().map(|fate| format!("ON EXPIRED {}", fate.node)));
        parts.extend(self.emit.as_ref().map(|emit| format!("EMIT {}", emit.node)));
        parts.extend(self.finalize_after.as_ref().map(|i| format!("FINALIZE AFTER INTERVAL '{}'", i.node)));
        f.write_str(&parts.join(" "))
    }
}
