//! Batch runs: the official number of a window, from stored input.
//!
//! ```text
//!  FINALIZE v FOR DATE …                       what is stored of v
//!        │                                            │
//!        ▼                                            ▼
//!   ends (after, to] ──► values: the view's plan ──► reconcile ──► versions ──► one epoch of the view's writer
//!   of windows that      over input pinned at        new, changed,
//!   are live no more     one moment                  gone, equal
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `range` | which windows a run takes, and when one is live no more |
//! | `values` | running a view's plan over pinned input |
//! | `stored` | what the store knows of the windows of a range |
//! | `reconcile` | what has to be published, given what was made and what is stored |
//! | `verify` | live against batch, window by window, with the cause of each difference |
//! | `jobs` | runs as rows: kept, listed, cancelled |
//!
//! It does not know how rows are read or versions written, and nobody's job: who calls it says up to which watermark a
//! view's job has published.

pub mod jobs;
pub mod range;
pub mod reconcile;
pub mod stored;
pub mod values;
pub mod verify;

pub use jobs::{JobKind, JobRecord, JobStatus, Jobs};
pub use range::Ends;
pub use reconcile::{Publish, Reconciled, Shape, reconcile};
pub use values::{Computed, compute};
