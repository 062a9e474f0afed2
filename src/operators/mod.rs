//! Operators: state machines over Arrow record batches, with no I/O, clock, randomness or spawn in them.

pub mod fate;
pub mod graph;
