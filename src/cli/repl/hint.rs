//! The grey text after the cursor: the rest of an earlier statement, or what comes next in a window's brackets.

use nu_ansi_term::Style;
use reedline::{DefaultHinter, Hinter, History};

/// Hints from history first, else the arguments of a window that was just opened.
pub struct SqlHinter {
    history: DefaultHinter,
    arguments: Option<&'static str>,
}

/// What follows an opened bracket.
const ARGUMENTS: &[(&str, &str)] = &[
    ("tumble(", "TABLE source, DESCRIPTOR(time), INTERVAL '1 hour')"),
    ("hop(", "TABLE source, DESCRIPTOR(time), INTERVAL '5 minutes', INTERVAL '1 hour')"),
    ("cumulate(", "TABLE source, DESCRIPTOR(time), INTERVAL '1 hour', INTERVAL '1 day')"),
    ("session(", "TABLE source PARTITION BY key, DESCRIPTOR(time), INTERVAL '30 minutes')"),
];

impl SqlHinter {
    /// A hinter that paints with `style`.
    pub fn new(style: Style) -> Self {
        Self { history: DefaultHinter::default().with_style(style).with_min_chars(3), arguments: None }
    }
}

fn arguments(before: &str) -> Option<&'static str> {
    let before = before.to_ascii_lowercase();
    ARGUMENTS.iter().find(|(opening, _)| before.ends_with(opening)).map(|(_, arguments)| *arguments)
}

impl Hinter for SqlHinter {
    fn handle(&mut self, line: &str, pos: usize, history: &dyn History, paint: bool, cwd: &str) -> String {
        let hint = self.history.handle(line, pos, history, paint, cwd);
        self.arguments = if hint.is_empty() { arguments(line) } else { None };
        match self.arguments {
            Some(text) if paint => Style::new().dimmed().paint(text).to_string(),
            Some(text) => text.to_string(),
            None => hint,
        }
    }

    fn complete_hint(&self) -> String {
        self.arguments.map_or_else(|| self.history.complete_hint(), str::to_string)
    }

    fn next_hint_token(&self) -> String {
        match self.arguments {
            Some(text) => text.split_inclusive([' ', '(']).next().unwrap_or(text).to_string(),
            None => self.history.next_hint_token(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opened_window_shows_its_arguments() {
        assert!(arguments("FROM HOP(").unwrap().contains("'5 minutes', INTERVAL '1 hour'"));
        assert_eq!(arguments("FROM hop(TABLE"), None);
        assert_eq!(arguments("shop"), None);
    }
}
