//! Statements that control finality, jobs and schedules. Their place in the grammar is kept, so that they fail with
//! `Unsupported` at their first word and are never taken for something else.

use super::cursor::Cursor;
use super::statement::Statement;
use crate::error::{Error, Result};

/// Statements by how they start, and what can be done meanwhile.
const LATER: &[(&str, &str)] = &[
    ("FINALIZE", "read `v$final`, which falls back to the latest version where there is no final one"),
    ("REPROCESS", "drop the view and create it again over the whole input"),
    ("PATCH", "raise ALLOWED LATENESS, so that late rows are folded in by themselves"),
    ("VERIFY", "compare `v` with the view's SELECT run on its own, which is its batch run"),
    ("CANCEL", "use DROP MATERIALIZED VIEW, or PAUSE"),
    ("CREATE SCHEDULE", "call the program from cron"),
    ("CREATE OR REPLACE SCHEDULE", "call the program from cron"),
    ("DROP SCHEDULE", "there are no schedules yet"),
    ("SHOW SCHEDULES", "there are no schedules yet"),
];

/// Reads a statement of this module if one starts here.
pub(super) fn later(cursor: &mut Cursor<'_, '_>) -> Result<Option<Statement>> {
    for (phrase, instead) in LATER {
        if cursor.is_at(phrase) {
            return Err(unsupported(cursor, phrase, instead));
        }
    }
    // `ROLLBACK v …` is ours; `ROLLBACK`, `ROLLBACK TO s` and `ROLLBACK TRANSACTION` are not.
    let of_transaction = ["WORK", "TRANSACTION", "TRAN", "AND", "TO"];
    if cursor.is_at("ROLLBACK") && !cursor.ends_at(1) && !of_transaction.iter().any(|w| cursor.is_word(1, w)) {
        return Err(unsupported(
            cursor,
            "ROLLBACK",
            "read an older version from `v$history` or with FOR SYSTEM_TIME AS OF",
        ));
    }
    Ok(None)
}

fn unsupported(cursor: &Cursor<'_, '_>, what: &str, instead: &str) -> Error {
    Error::unsupported(format!("{what} is not supported yet")).at(cursor.position()).with_hint(instead)
}
