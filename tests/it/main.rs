//! End to end: the real binary, as a shell or a person runs it; what the documents show; and the shape of the source tree.
//!
//! One test binary, because each one links DataFusion.

#[cfg(feature = "cli")]
mod command;
#[cfg(feature = "cli")]
mod documents;
#[cfg(feature = "cli")]
mod killed;
mod memory;
mod recovery;
#[cfg(feature = "cli")]
mod s3;
mod structure;
#[cfg(all(feature = "cli", target_os = "linux"))]
mod terminal;
