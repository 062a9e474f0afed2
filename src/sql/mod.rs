//! Text to [`Statement`]: grammar, parser, diagnostics. Knows sqlparser and nothing that runs.
//!
//! Why its own parser: the clauses that make a SELECT stream (lateness, emission, finality) follow plain SQL, and the plain
//! part must stay letter for letter what a batch runs. So sqlparser reads the query, and the rules here read what comes
//! before and after it, from the same tokens. Nothing in here looks anything up: whether a name exists or a length makes a
//! window is decided by `plan`.
//!
//! # Grammar
//!
//! Words in any letter case; `[ ]` may be left out, `|` is one of, `*` any number of times. `query`, `expr` and `type` are
//! sqlparser's; `interval` is `INTERVAL '1 hour'` in [any spelling](interval_from_expr); names are folded to lower case
//! unless quoted with `"` or `` ` ``, and may contain `$`.
//!
//! ```text
//! statement   = select | create | subscribe | explain | show | drop | insert
//!             | DESCRIBE name | PAUSE view | RESUME view | run | rollback | schedule | CANCEL JOB id
//!             | OPTIMIZE view | VACUUM view | what DataFusion reads
//! select      = query clause*                              each clause once, in any order
//! clause      = (ALLOWED LATENESS | ALLOW LATENESS | GRACE PERIOD) interval
//!             | ON LATE (UPDATE [MAX n UPDATES] | DROP | SIDE OUTPUT | RECOMPUTE [EVERY interval])
//!             | ON EXPIRED (SIDE OUTPUT | DROP | RECOMPUTE [EVERY interval])
//!             | EMIT emit
//!             | FINALIZE AFTER interval
//! emit        = ON WINDOW CLOSE | AFTER WINDOW CLOSE | AFTER WATERMARK
//!             | (CHANGES | ON UPDATE) [EVERY interval]
//!             | ON EXPIRY | FINAL
//!
//! create      = CREATE [OR REPLACE] (SOURCE | STREAM | TABLE) [IF NOT EXISTS] name [( element, … )] with [RESTART]
//!             | CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name [with] AS select [RESTART]
//!             | CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name AS query
//! element     = name type [METADATA [FROM 'key'] [VIRTUAL]] [[NOT] NULL]
//!             | name AS expr
//!             | WATERMARK FOR name strategy [IDLE TIMEOUT interval] [IDLE CLOSE AFTER interval]
//! strategy    = AS expr [PER KEY ( name, … ) TIMEOUT interval]
//!             | [AS expr] PUNCTUATED WHEN expr
//!             | AS PROCTIME() [- interval]
//! with        = WITH ( option = value, … )                 a table needs it to be a source
//!
//! subscribe   = SUBSCRIBE [TO] view [SINCE [TIMESTAMP] 'time' | [SINCE] EPOCH n] [WITH SNAPSHOT]
//! explain     = EXPLAIN [ANALYZE] [BATCH] (select | create | insert | what DataFusion reads)
//! show        = SHOW (SOURCES | VIEWS | JOBS | SCHEDULES | WATERMARKS [[FOR] name] | LATENESS [[FOR] view])
//! drop        = DROP (SOURCE | STREAM | MATERIALIZED VIEW | VIEW | TABLE | SCHEDULE) [IF EXISTS] name
//! insert      = INSERT INTO name [( name, … )] query
//!
//! run         = (FINALIZE | REPROCESS) view [, view …] range [USING input] [REASON 'text'] [FORCE]
//!             | PATCH view [, view …] [range] [REASON 'text'] [FORCE]
//!             | VERIFY view [, view …] [range] [USING input]
//! range       = FROM time [TO time] | FOR DATE 'date' | LOOKBACK interval
//! time        = [TIMESTAMP] 'time'
//! input       = ARCHIVE | BATCH LOCATION | SOURCE | 'path or url'
//! rollback    = ROLLBACK view FOR WINDOW time [TO time] [KEY ( name = expr, … )]
//!               TO (VERSION n | TIMESTAMP 'time') [REASON 'text']
//! schedule    = CREATE [OR REPLACE] SCHEDULE [IF NOT EXISTS] name CRON 'cron' [TIME ZONE 'zone'] AS run
//!             | (PAUSE | RESUME | RUN) SCHEDULE name
//! ```
//!
//! Windows are table functions or functions in a query; [`WindowCall`] decodes the three spellings.
//!
//! # What is not like elsewhere
//!
//! - A word that starts a clause (`EMIT`, `ALLOWED`, `ALLOW`, `GRACE`, `FINALIZE`, `RESTART`) is a table's alias only behind `AS`.
//! - What parses elsewhere and would then mean nothing (`FOR UPDATE`, `TABLESAMPLE`, keys of a source, …) is an error.
//! - Flink's DDL is read as it is, `ROW<…>` as `STRUCT<…>`; a `PRIMARY KEY` is refused, as a source has no keys.

mod clauses;
mod commands;
mod control;
mod cursor;
mod diagnostics;
mod dialect;
mod interval;
mod parser;
mod source;
pub mod statement;
#[cfg(test)]
mod tests;
mod text;
mod view;
pub mod walk;
mod window_call;

pub use diagnostics::render;
pub use dialect::HighwaterDialect;
pub use interval::interval_from_expr;
pub use parser::{parse, parse_one, parse_piece, parse_spanned};
pub use statement::Statement;
pub(crate) use text::position_of;
pub use text::{Piece, definition, is_complete, split_statements};
pub use window_call::{WindowCall, WindowFunction, WindowInput, WindowLengths};
