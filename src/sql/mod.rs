//! Text to [`Statement`]: grammar, parser, diagnostics. Knows sqlparser and nothing that runs.

mod clauses;
mod commands;
mod control;
mod cursor;
mod diagnostics;
mod dialect;
mod interval;
mod parser;
mod source;
pub mod statement;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod window_call;

pub use diagnostics::render;
pub use dialect::HighwaterDialect;
pub use interval::interval_from_expr;
pub use parser::{parse, parse_one, parse_spanned};
pub use statement::Statement;
pub use text::{Piece, is_complete, split_statements};
pub use window_call::{WindowCall, WindowFunction, WindowInput, WindowLengths};
