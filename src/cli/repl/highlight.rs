//! Colours SQL while it is typed.

use nu_ansi_term::{Color, Style};
use reedline::{Highlighter, StyledText};

use super::scan::{Kind, scan};
use super::words;

/// Colours keywords, our own clauses, texts, numbers and comments.
pub struct SqlHighlighter;

impl Highlighter for SqlHighlighter {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut styled = StyledText::new();
        if line.trim_start().starts_with('\\') {
            styled.push((Style::new().fg(Color::Cyan), line.to_string()));
            return styled;
        }
        for piece in scan(line) {
            let text = &line[piece.range];
            let style = match piece.kind {
                Kind::Word if words::is_ours(text) => Style::new().fg(Color::Magenta).bold(),
                Kind::Word if words::is_keyword(text) => Style::new().fg(Color::Blue).bold(),
                Kind::Text => Style::new().fg(Color::Green),
                Kind::Number => Style::new().fg(Color::Yellow),
                Kind::Comment => Style::new().dimmed(),
                Kind::Word | Kind::Quoted | Kind::Space | Kind::Symbol => Style::new(),
            };
            styled.push((style, text.to_string()));
        }
        styled
    }
}
