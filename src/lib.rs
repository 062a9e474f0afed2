//! Highwater: a SQL engine for windowed metrics that stay right.
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod change;
pub mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod connectors;
pub mod engine;
pub mod error;
pub mod finalize;
pub mod operators;
pub mod plan;
pub mod results;
pub mod runtime;
pub mod schedule;
pub mod sql;
pub mod state;
pub mod storage;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
pub mod time;
pub mod watermark;
pub mod window;

pub use engine::{Engine, EngineBuilder, Outcome};
pub use error::{Error, ErrorKind, Result};
