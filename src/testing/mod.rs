//! What tests of this crate and of embedders share. Compiled for tests, and with the feature `test-util`.
//!
//! [`table`] writes record batches as text and back.

pub mod table;
