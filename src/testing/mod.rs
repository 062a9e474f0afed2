//! What tests of this crate and of embedders share. Compiled for tests, and with the feature `test-util`.
//!
//! [`table`] writes record batches as text and back; [`oracle`] says what the right answer is, without the engine;
//! [`faulty`] is an object store that fails where it is told to; [`spill`] keeps what is spilled.

pub mod faulty;
pub mod oracle;
pub mod spill;
pub mod table;
