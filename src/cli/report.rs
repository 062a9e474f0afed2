//! What a person is told on standard error: tags, notices, errors.

use std::error::Error as StdError;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use super::args::ColorWhen;
use crate::error::Error;
use crate::sql;

/// Whether text is painted, decided once per output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    painted: bool,
}

impl Style {
    /// Never painted.
    pub const fn plain() -> Self {
        Self { painted: false }
    }

    /// Painted as `when` says for a stream that is or is not a terminal.
    pub fn new(when: ColorWhen, is_terminal: bool) -> Self {
        let auto = || {
            let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            is_terminal && !unwanted && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        };
        let painted = match when {
            ColorWhen::Auto => auto(),
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        };
        Self { painted }
    }

    /// Whether escape codes may be used at all.
    pub fn is_painted(self) -> bool {
        self.painted
    }

    fn paint(self, style: nu_ansi_term::Style, text: &str) -> String {
        match self.painted && !text.is_empty() {
            true => style.paint(text).to_string(),
            false => text.to_string(),
        }
    }

    /// For headings and names.
    pub fn bold(self, text: &str) -> String {
        self.paint(nu_ansi_term::Style::new().bold(), text)
    }

    /// For what is there and matters less.
    pub fn dim(self, text: &str) -> String {
        self.paint(nu_ansi_term::Style::new().dimmed(), text)
    }

    /// For errors.
    pub fn red(self, text: &str) -> String {
        self.paint(nu_ansi_term::Color::Red.bold(), text)
    }

    /// For what may be typed next.
    pub fn green(self, text: &str) -> String {
        self.paint(nu_ansi_term::Color::Green.normal(), text)
    }
}

/// Writes to standard error. A closed standard error is no reason to stop, so nothing here fails.
#[derive(Debug, Clone, Copy)]
pub struct Reporter {
    /// How standard error is painted.
    pub style: Style,
    /// Whether only errors are told.
    pub quiet: bool,
}

impl Reporter {
    fn line(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Says something that is neither a result nor an error.
    pub fn notice(self, text: &str) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// Says something that matters less than the result above it: a row count, a time.
    pub fn aside(self, text: &str) {
        self.notice(&self.style.dim(text));
    }

    /// Says that a statement of `text` failed: what, where, why and what would work.
    pub fn error(self, text: &str, error: &Error) {
        self.line(&error_text(text, error, self.style));
    }

    /// Says in which file an error was, right after it.
    pub fn in_file(self, path: &Path) {
        self.line(&self.style.dim(&format!("in file=`{}`", path.display())));
    }

    /// Leaves the line on which a terminal has echoed `^C`.
    pub fn after_interrupt(self) {
        if io::stderr().is_terminal() {
            self.line("");
        }
    }

    /// Says that something outside a statement failed.
    pub fn failure(self, what: &str) {
        self.line(&format!("{} {what}", self.style.red("error:")));
    }
}

/// The whole message: what and where, then each cause that adds something, then the hint.
fn error_text(text: &str, error: &Error, style: Style) -> String {
    let drawn = sql::render(text, error);
    let painted = drawn.lines().map(|line| match line.split_once(' ') {
        Some((word @ "error:", rest)) => format!("{} {rest}", style.red(word)),
        Some((word @ "hint:", rest)) => format!("{} {rest}", style.green(word)),
        _ if line.trim_start_matches([' ', '|']).starts_with('^') => style.red(line),
        _ => line.to_string(),
    });
    let mut lines: Vec<String> = painted.collect();
    let before_hint = lines.len() - usize::from(error.hint().is_some());
    let causes = causes(error).into_iter().map(|cause| format!("{} {cause}", style.dim("caused by:")));
    lines.splice(before_hint..before_hint, causes);
    lines.join("\n")
}

/// The texts of the chain below `error`. Layers like to repeat what is below them: a cause that was said already is
/// left out.
fn causes(error: &Error) -> Vec<String> {
    let mut said = error.to_string().to_lowercase();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string().trim().to_string();
        let core = core_of(&text);
        if !said.contains(&core) {
            said.push_str(&core);
            causes.push(text.replace('\n', "\n    "));
        }
        next = cause.source();
    }
    causes
}

/// What a message says without the name of its layer and its full stop: of `Schema error: No field named x.` it is
/// `no field named x`.
fn core_of(text: &str) -> String {
    let is_layer = |layer: &str| layer.ends_with("error") || layer.starts_with("Error during");
    let named = text.split_once(": ").filter(|(layer, _)| is_layer(layer));
    named.map_or(text, |(_, rest)| rest).trim_end_matches('.').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let disk = Error::new(crate::ErrorKind::Unavailable, "disk full");
        let write = Error::new(crate::ErrorKind::Unavailable, "cannot write: disk full").with_source(disk);
        let commit = Error::new(crate::ErrorKind::Unavailable, "cannot commit epoch=`7`").with_source(write);
        assert_eq!(causes(&commit), ["cannot write: disk full"]);
        let schema = Error::invalid("Schema error: No field named nobody.");
        assert!(causes(&Error::invalid("no field named nobody").with_source(schema)).is_empty());
    }

    #[test]
    fn an_error_without_position_is_one_line() {
        let text = error_text("SELECT 1", &Error::invalid("no view named `x`"), Style::plain());
        assert_eq!(text, "error: no view named `x`");
    }

    #[test]
    fn the_causes_stand_before_the_hint() {
        let error = Error::invalid("no source `x`")
            .at(crate::error::Position { line: 1, column: 15 })
            .with_hint("SHOW SOURCES lists them")
            .with_source(Error::new(crate::ErrorKind::Unavailable, "catalog is empty"));
        insta::assert_snapshot!(error_text("SELECT * FROM x", &error, Style::plain()), @r#"
        error: no source `x`
          --> line 1, column 15
           |
         1 | SELECT * FROM x
           |               ^
        caused by: catalog is empty
        hint: SHOW SOURCES lists them
        "#);
    }

    #[test]
    fn colour_can_be_forced_and_forbidden() {
        assert!(Style::new(ColorWhen::Always, false).is_painted());
        assert!(!Style::new(ColorWhen::Never, true).is_painted());
        assert!(!Style::new(ColorWhen::Auto, false).is_painted());
        assert_eq!(Style::plain().red("error:"), "error:");
    }
}
