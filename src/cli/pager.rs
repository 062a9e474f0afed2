//! Where rows go: standard output, or through a pager when they do not fit the terminal.

use std::io::{self, BufWriter, Stdout, Write};
use std::process::{Child, Command, Stdio};

use super::output::display_width;

/// A program that shows text page by page: a shell command that reads standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pager {
    command: String,
}

impl Pager {
    /// The pager of `command`.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into() }
    }

    /// `$HIGHWATER_PAGER`, else `$PAGER`, else `less` if it is there. A variable set to nothing turns paging off.
    pub fn from_environment() -> Option<Self> {
        for name in ["HIGHWATER_PAGER", "PAGER"] {
            if let Ok(command) = std::env::var(name) {
                return Some(command).filter(|command| !command.trim().is_empty()).map(Self::new);
            }
        }
        let found = |folder: std::path::PathBuf| folder.join("less").is_file();
        std::env::split_paths(&std::env::var_os("PATH")?).any(found).then(|| Self::new("less"))
    }

    /// The shell command.
    pub fn command(&self) -> &str {
        &self.command
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&self.command).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            // Leave at once if it fits, keep colours, do not wrap long rows, do not clear the screen.
            shell.env("LESS", "FRSX");
        }
        shell.spawn()
    }
}

/// A writer that decides late where to write.
pub enum Destination<'a> {
    /// Standard output.
    Direct(BufWriter<Stdout>),
    /// Held back until it is known whether the text fits the terminal.
    Held {
        /// What follows if it does not.
        pager: &'a Pager,
        /// The text so far.
        text: Vec<u8>,
        /// Columns and rows of the terminal.
        terminal: (usize, usize),
    },
    /// A running pager.
    Paged(Child),
}

impl<'a> Destination<'a> {
    /// Standard output, by way of `pager` if there is one and the text turns out long or wide.
    pub fn new(pager: Option<&'a Pager>) -> Self {
        match (pager, crossterm::terminal::size()) {
            (Some(pager), Ok((columns, rows))) => {
                Self::Held { pager, text: Vec::new(), terminal: (columns.into(), rows.into()) }
            }
            _ => Self::direct(),
        }
    }

    fn direct() -> Self {
        Self::Direct(BufWriter::with_capacity(1 << 16, io::stdout()))
    }

    /// Writes what was held back and waits until the pager has been left.
    pub fn finish(mut self) -> io::Result<()> {
        self.release()?;
        match self {
            Self::Paged(mut child) => {
                drop(child.stdin.take());
                child.wait().map(|_| ())
            }
            mut direct => direct.flush(),
        }
    }

    /// Ends the holding back: a text that fits goes to standard output, any other to the pager.
    fn release(&mut self) -> io::Result<()> {
        let Self::Held { pager, text, terminal } = self else { return Ok(()) };
        let next = match fits(text, *terminal) {
            true => Self::direct(),
            // No pager is no reason to hide an answer.
            false => pager.spawn().map_or_else(|_| Self::direct(), Self::Paged),
        };
        let text = std::mem::take(text);
        *self = next;
        self.write_all(&text)
    }
}

impl Write for Destination<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(out) => out.write(bytes),
            Self::Paged(child) => match &mut child.stdin {
                Some(stdin) => stdin.write(bytes),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            },
            Self::Held { text, terminal, .. } => {
                text.extend_from_slice(bytes);
                // A line of an answer takes a line of the terminal at least.
                if bytes.contains(&b'\n') && !fits(text, *terminal) {
                    self.release()?;
                }
                Ok(bytes.len())
            }
        }
    }

    /// Text that is held back stays so: an answer that comes slowly is complete before it is shown or paged.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(out) => out.flush(),
            Self::Paged(child) => child.stdin.as_mut().map_or(Ok(()), Write::flush),
            Self::Held { .. } => Ok(()),
        }
    }
}

/// Whether the text can be seen at once, with two lines left for what follows it.
fn fits(text: &[u8], (columns, rows): (usize, usize)) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut lines = 0;
    text.lines().all(|line| {
        lines += 1;
        lines + 2 <= rows && display_width(line) <= columns
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_wide_texts_do_not_fit() {
        assert!(fits(b"one\ntwo\n", (10, 4)));
        assert!(!fits(b"one\ntwo\nthree\n", (10, 4)));
        assert!(!fits(b"one two three\n", (10, 4)));
    }

    #[test]
    fn paint_takes_no_room() {
        assert!(fits("\u{1b}[1mone two\u{1b}[0m\n".as_bytes(), (7, 4)));
    }
}
