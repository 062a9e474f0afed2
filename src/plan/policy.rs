//! The clauses after a SELECT, with every default filled in.

use crate::error::{Error, Result};
use crate::operators::graph::Policy;
use crate::sql::statement::{Clauses, Emit, Interval, OnExpired, OnLate};

/// The policy `clauses` ask for. `has_archive` says whether a batch run could read the input again.
///
/// # Errors
///
/// `Invalid` for a clause that has no effect or that nothing could carry out.
pub fn policy_of(clauses: &Clauses, has_archive: bool) -> Result<Policy> {
    let allowed_lateness_us = match &clauses.allowed_lateness {
        None => 0,
        Some(interval) => micros(interval.node).filter(|us| *us >= 0).ok_or_else(|| {
            Error::invalid("ALLOWED LATENESS must be a length of days or less, not negative")
                .with_hint("months differ in length: say 30 days")
                .at(interval.position)
        })?,
    };
    let on_late = match &clauses.on_late {
        None => OnLate::Update { max_updates: None },
        Some(clause) if clauses.allowed_lateness.is_none() => {
            return Err(Error::invalid("ON LATE without ALLOWED LATENESS: no row would ever be late, only expired")
                .with_hint("add ALLOWED LATENESS INTERVAL '1 hour', or use ON EXPIRED")
                .at(clause.position));
        }
        Some(clause) => {
            if let OnLate::Recompute { .. } = clause.node {
                needs_archive("ON LATE RECOMPUTE", has_archive).map_err(|e| e.at(clause.position))?;
            }
            if let OnLate::Update { max_updates: Some(0) } = clause.node {
                return Err(Error::invalid("MAX 0 UPDATES").with_hint("use ON LATE DROP").at(clause.position));
            }
            clause.node
        }
    };
    let on_expired = match &clauses.on_expired {
        None => OnExpired::SideOutput,
        Some(clause) => {
            if let OnExpired::Recompute { .. } = clause.node {
                needs_archive("ON EXPIRED RECOMPUTE", has_archive).map_err(|e| e.at(clause.position))?;
            }
            clause.node
        }
    };
    let emit = match &clauses.emit {
        None => Emit::OnWindowClose,
        Some(clause) => {
            if let Emit::Changes { every: Some(every) } = clause.node
                && micros(every).is_none_or(|us| us <= 0)
            {
                return Err(Error::invalid("EMIT CHANGES EVERY must be a length of days or less, more than zero")
                    .at(clause.position));
            }
            clause.node
        }
    };
    Ok(Policy { allowed_lateness_us, on_late, on_expired, emit })
}

fn needs_archive(clause: &str, has_archive: bool) -> Result<()> {
    if has_archive {
        return Ok(());
    }
    Err(Error::invalid(format!("{clause} without a batch location to compute from"))
        .with_hint("give the source batch_location = '…' in WITH ( … )"))
}

/// The interval in microseconds, a day being 24 hours. `None` if it has months or is too long.
pub(super) fn micros(interval: Interval) -> Option<i64> {
    if interval.months != 0 {
        return None;
    }
    interval.days.checked_mul(86_400_000_000)?.checked_add(interval.micros)
}
