//! The `highwater` binary.
fn main() {}
