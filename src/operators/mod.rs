//! Operators: state machines over Arrow record batches, with no I/O, clock, randomness or spawn in them.

pub(crate) mod eval;
pub mod fate;
pub mod graph;
pub mod rows;
pub mod static_join;
