//! The protocol that makes an epoch atomic: what a manifest says, where it lies, and what to do after a crash.
//!
//! ```text
//!  data files ──► manifest N (create-if-absent) ──► Delta commits, one per table, whole epochs
//!  invisible       decides epoch N                   repeatable: completed on recovery
//! ```
//!
//! A view's epochs are numbered without gaps. Epoch N is decided when, and only when, the file of manifest N exists;
//! there is no other commit point. Whoever creates manifest N owns the numbers from N on, so a writer that finds N
//! taken has been fenced. Operator state is bytes with an id here; what a row means is `results`' business.

pub mod job;
pub mod manifest;
pub mod paths;
pub mod recovery;
pub mod state_file;

pub use job::JobRecord;
pub use manifest::{FileEntry, FileIndex, FileRole, Manifest, RemovedFile, TableChange};
pub use paths::{TableId, ViewPaths};
pub use state_file::{Snapshot, StateFile, StateFiles, StateRows};
