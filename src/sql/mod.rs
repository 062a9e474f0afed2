//! Text to [`Statement`]: grammar, parser, diagnostics. Knows sqlparser and nothing that runs.

pub mod statement;

pub use statement::Statement;
