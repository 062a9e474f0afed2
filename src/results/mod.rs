//! Versioned results on Delta Lake: one writer per view, readers that see whole epochs.
//!
//! ```text
//!   job ─► Epoch ─► ViewWriter ─► data files ─► manifest (decides) ─► Delta logs ─► DuckDB, Spark, polars, …
//!                                                  │
//!                                     ViewReader ◄─┴─► Subscription
//! ```
//!
//! A view's versions are append-only rows: nothing published is ever changed, only superseded by a higher version.
//! "Latest", "final" and "as of" are ways of choosing among them when reading ([`Read`]). What decides an epoch, and
//! what a crash leaves to do, is in [`crate::checkpoint`]. This module does not know how results are computed, and does
//! not number versions: the one publisher of a view does.

mod compact;
mod delta;
pub mod epoch;
mod files;
mod history;
pub mod maintain;
pub mod reader;
mod resolve;
pub mod rollback;
pub mod schema;
pub mod shared_writer;
mod state;
mod stats;
pub mod subscribe;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upkeep_tests;
mod windows;
pub mod writer;

pub use epoch::{CommittedEpoch, Epoch};
pub use maintain::{Upkeep, UpkeepReport};
pub use reader::{Read, ViewReader, rejects_of};
pub use rollback::{RollbackTo, RolledBack, roll_back};
pub use schema::{IdentityColumn, ViewTable};
pub use shared_writer::SharedWriter;
pub use subscribe::{Since, Subscription};
pub use writer::{ViewWriter, remove_view};
