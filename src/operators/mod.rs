//! Operators: state machines over Arrow record batches, with no I/O, clock, randomness or spawn in them.

pub mod aggregate;
#[cfg(test)]
mod agreement;
pub mod chain;
pub(crate) mod eval;
pub mod failed;
pub mod fate;
pub mod graph;
mod identities;
pub mod judge;
pub mod ledger;
pub mod lifecycle;
pub mod merge;
pub mod nested;
pub mod ordered;
pub mod prepare;
pub mod publish;
pub mod result_join;
pub mod rows;
pub mod sequence;
pub mod session;
pub mod static_join;
pub mod whole_window;

pub(crate) use eval::failure;
