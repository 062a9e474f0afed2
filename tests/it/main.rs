//! End to end, and the shape of the source tree.
//!
//! One test binary, because each one links DataFusion.

mod structure;
