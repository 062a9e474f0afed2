//! Exit codes: what a calling script should do next, as [`ErrorKind`] says it for a caller in Rust.

use crate::error::ErrorKind;

/// How the program ended. The codes are listed in `--help` and in docs/errors.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything ran.
    Done,
    /// A failure while running, on this side of the engine or in it.
    Failed,
    /// A statement failed.
    Statement(ErrorKind),
    /// Stopped by Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Interrupted => 130,
            Self::Statement(kind) => match kind {
                ErrorKind::Closed => 1,
                ErrorKind::Syntax | ErrorKind::Invalid | ErrorKind::Unsupported => 2,
                ErrorKind::Data => 3,
                ErrorKind::Unavailable => 4,
                ErrorKind::Conflict | ErrorKind::Fenced => 5,
                ErrorKind::Corrupt => 6,
                ErrorKind::Internal => 70,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_codes_are_the_codes() {
        let documented = include_str!("../../docs/errors.md");
        for kind in [
            ErrorKind::Syntax,
            ErrorKind::Invalid,
            ErrorKind::Unsupported,
            ErrorKind::Data,
            ErrorKind::Unavailable,
            ErrorKind::Conflict,
            ErrorKind::Fenced,
            ErrorKind::Corrupt,
            ErrorKind::Closed,
            ErrorKind::Internal,
        ] {
            let row = documented.lines().find(|line| line.starts_with(&format!("| `{kind:?}` |"))).expect("a row");
            assert!(row.ends_with(&format!("| {} |", Exit::Statement(kind).code())), "{row}");
        }
    }
}
