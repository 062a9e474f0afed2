//! Window state as Arrow: heads that take rows, chunks that are sealed and immutable.
//!
//! `state()` and `evaluate()` of a DataFusion accumulator drain it, so nothing in here reads a live head twice. A
//! [`Head`] takes rows and is *sealed* into a [`Chunk`] of partial states; a window's value is made by merging chunks
//! into a fresh head and evaluating that. Chunks stay what they are, so the same window can be evaluated again when
//! late rows have added one more.
//!
//! ```text
//!  rows ──► Head (hash table + accumulators) ──seal──► Chunk (keys ++ partial states ++ _event_count)
//!                                                        │ merge, any number of times
//!                                                        ▼
//!                                                      Head ──evaluate──► keys ++ results ++ _event_count
//! ```
//!
//! Chunks that memory has no room for are spilled ([`spill`]); how much room there is, is [`memory`]'s to know.
//!
//! This module knows neither windows nor watermarks; which head a row belongs to is decided by `operators`.

pub mod chunk;
pub mod head;
pub mod layout;
pub mod memory;
pub mod runs;
pub mod spill;
pub(crate) mod views;

pub use chunk::{Chunk, KeyIndex};
pub use head::Head;
pub use layout::{Layout, rows_at};
pub use memory::{Account, Memory};
pub use runs::Runs;
pub use spill::{SpillFile, SpillSpace};
