//! The `highwater` command: arguments, scripts, REPL, output, progress.
//!
//! This is an edge: the one place that prints, reads the terminal and decides how the process exits. It sees the
//! engine through its public API and can do nothing an embedder cannot. It knows no operator, no file format, no plan.
//!
//! One rule holds everywhere in it: **results go to standard output, everything else to standard error.**

pub mod args;
pub mod exit;
pub mod output;
pub mod report;
