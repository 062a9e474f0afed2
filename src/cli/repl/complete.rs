//! Completion: what could stand where the cursor is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use reedline::{Completer, CompletionResult, Span, Suggestion};

use super::clauses;
use super::commands::COMMANDS;
use super::scan::{Kind, Piece, scan};
use super::words;
use crate::cli::output::Format;

/// Names that exist now: name and what it is.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Sources, views, their `$` relations, and tables.
    pub relations: BTreeMap<String, String>,
    /// Columns of all of them, with the relations they belong to.
    pub columns: BTreeMap<String, String>,
    /// Functions.
    pub functions: BTreeMap<String, String>,
}

/// The names as they were before the prompt was shown, shared with the completer.
pub type SharedNames = Arc<Mutex<Names>>;

/// Completes commands, clauses, keywords, relations, columns, functions and paths.
pub struct SqlCompleter {
    names: SharedNames,
}

impl SqlCompleter {
    /// A completer over `names`.
    pub fn new(names: SharedNames) -> Self {
        Self { names }
    }
}

impl Completer for SqlCompleter {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = complete(&names, &line[..pos]);
        if found.is_empty() {
            // One that changes nothing is taken in silence; of none the menu would make a fuss.
            found.push(suggestion(String::new(), None, pos, pos));
        }
        CompletionResult::fresh(found)
    }
}

/// What could follow `before`, best first.
fn complete(names: &Names, before: &str) -> Vec<Suggestion> {
    let trimmed = before.trim_start();
    if trimmed.starts_with('\\') {
        return complete_command(names, before, trimmed);
    }
    let pieces = scan(before);
    match pieces.last() {
        Some(piece) if piece.open && piece.kind == Kind::Text => {
            let start = piece.range.start + 1;
            paths(&before[start..], start)
        }
        Some(piece) if piece.open => Vec::new(),
        Some(piece) if piece.kind == Kind::Word => {
            let start = piece.range.start;
            complete_word(names, &pieces[..pieces.len() - 1], &before[start..], start, before)
        }
        _ => complete_word(names, &pieces, "", before.len(), before),
    }
}

fn complete_word(names: &Names, earlier: &[Piece], prefix: &str, start: usize, before: &str) -> Vec<Suggestion> {
    let mut found = Found { prefix, start, suggestions: Vec::new() };
    let last = earlier.iter().rev().find(|piece| !matches!(piece.kind, Kind::Space | Kind::Comment));
    let last = last.map_or("", |piece| &before[piece.range.clone()]);
    if words::expects_relation(last) {
        found.names(&names.relations, "");
        if words::expects_window(last) {
            words::WINDOWS.iter().for_each(|window| found.keyword(window));
        }
        return found.suggestions;
    }
    if last != ";" && !last.is_empty() {
        found.names(&names.columns, "");
        found.names(&names.relations, "");
    }
    for phrase in words::PHRASES {
        found.keyword(phrase);
    }
    for keyword in words::keywords() {
        found.keyword(keyword);
    }
    // Hundreds of functions would drown the rest before a letter of them is typed.
    if !prefix.is_empty() {
        found.names(&names.functions, "(");
    }
    found.suggestions
}

struct Found<'a> {
    prefix: &'a str,
    start: usize,
    suggestions: Vec<Suggestion>,
}

impl Found<'_> {
    fn matches(&self, name: &str) -> bool {
        name.get(..self.prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(self.prefix))
    }

    fn names(&mut self, names: &BTreeMap<String, String>, after: &str) {
        let end = self.start + self.prefix.len();
        let matching = names.iter().filter(|(name, _)| self.matches(name));
        let found: Vec<_> = matching
            .map(|(name, what)| suggestion(format!("{name}{after}"), Some(what.clone()), self.start, end))
            .collect();
        self.suggestions.extend(found);
    }

    /// Whoever types lower case gets lower case.
    fn keyword(&mut self, keyword: &str) {
        if !self.matches(keyword)
            || self.suggestions.iter().any(|known| known.value.trim_end().eq_ignore_ascii_case(keyword))
        {
            return;
        }
        let lower = self.prefix.starts_with(|c: char| c.is_lowercase());
        let text = if lower { keyword.to_lowercase() } else { keyword.to_string() };
        self.suggestions.push(suggestion(text, None, self.start, self.start + self.prefix.len()));
    }
}

fn suggestion(value: String, description: Option<String>, start: usize, end: usize) -> Suggestion {
    Suggestion { value, description, span: Span::new(start, end), ..Suggestion::default() }
}

fn complete_command(names: &Names, before: &str, trimmed: &str) -> Vec<Suggestion> {
    let offset = before.len() - trimmed.len();
    let Some((command, rest)) = trimmed.split_once(char::is_whitespace) else {
        return COMMANDS
            .iter()
            .filter(|(name, _, _)| name.starts_with(trimmed))
            .map(|(name, _, what)| suggestion((*name).into(), Some((*what).into()), offset, before.len()))
            .collect();
    };
    let start = before.len() - rest.len();
    let mut found = Found { prefix: rest, start, suggestions: Vec::new() };
    match command {
        "\\i" => return paths(rest, start),
        "\\h" => clauses::CLAUSES.iter().for_each(|clause| found.keyword(clause.name)),
        "\\d" | "\\dl" => found.names(&names.relations, ""),
        "\\df" => found.names(&names.functions, ""),
        "\\format" => Format::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .for_each(|format| found.keyword(format.get_name())),
        "\\x" | "\\timing" | "\\pager" => ["on", "off"].into_iter().for_each(|word| found.keyword(word)),
        _ => {}
    }
    found.suggestions
}

/// Files and folders whose path starts as `prefix` does. A folder that cannot be read offers nothing.
fn paths(prefix: &str, start: usize) -> Vec<Suggestion> {
    let (folder, name) = match prefix.rfind('/') {
        Some(slash) => prefix.split_at(slash + 1),
        None => ("", prefix),
    };
    let listing = std::fs::read_dir(if folder.is_empty() { "." } else { folder });
    let mut found: Vec<_> = listing
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let file = entry.file_name().into_string().ok()?;
            let hidden = file.starts_with('.') && !name.starts_with('.');
            let end = if entry.path().is_dir() { "/" } else { "" };
            (file.starts_with(name) && !hidden).then(|| format!("{folder}{file}{end}"))
        })
        .collect();
    found.sort();
    found.into_iter().map(|path| suggestion(path, None, start, start + prefix.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let map = |entries: &[(&str, &str)]| entries.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Names {
            relations: map(&[("flights", "source"), ("hourly", "view"), ("hourly$late", "refused rows of hourly")]),
            columns: map(&[("origin", "flights, hourly"), ("window_start", "hourly")]),
            functions: map(&[("sum", "function"), ("substr", "function")]),
        }
    }

    fn offered(before: &str) -> Vec<String> {
        complete(&names(), before).into_iter().map(|suggestion| suggestion.value).collect()
    }

    #[test]
    fn after_from_only_relations_and_windows() {
        assert_eq!(
            offered("SELECT * FROM "),
            ["flights", "hourly", "hourly$late", "TUMBLE(TABLE ", "HOP(TABLE ", "CUMULATE(TABLE ", "SESSION(TABLE "]
        );
        assert_eq!(offered("select * from tu"), ["tumble(table "]);
        assert_eq!(offered("DESCRIBE "), ["flights", "hourly", "hourly$late"]);
        assert_eq!(offered("SELECT * FROM hourly$"), ["hourly$late"]);
        assert_eq!(offered("FROM TUMBLE(TABLE fl"), ["flights"]);
    }

    #[test]
    fn columns_come_before_keywords() {
        assert_eq!(offered("SELECT o")[0], "origin");
        assert!(offered("SELECT su").contains(&"sum(".to_string()));
    }

    #[test]
    fn a_statement_starts_with_keywords() {
        assert_eq!(offered("SUBS")[0], "SUBSCRIBE ");
        assert_eq!(offered("SELECT 1; subs")[0], "subscribe ");
    }

    #[test]
    fn clauses_come_as_a_whole() {
        assert_eq!(offered("SELECT 1 ALLO")[0], "ALLOWED LATENESS INTERVAL '");
        assert!(offered("GROUP BY k on l").is_empty() || offered("SELECT 1 LATEN").contains(&"LATENESS".to_string()));
    }

    #[test]
    fn commands_and_their_arguments() {
        assert_eq!(offered("\\ti"), ["\\timing"]);
        assert_eq!(offered("\\format nd"), ["ndjson"]);
        assert_eq!(offered("\\d hourly$"), ["hourly$late"]);
        assert!(offered("\\h allowed")[0].starts_with("allowed lateness"));
    }

    #[test]
    fn texts_complete_paths_and_comments_nothing() {
        assert!(offered("SELECT * FROM 'src/cl").iter().any(|path| path == "src/cli/"));
        assert_eq!(offered("-- SEL"), Vec::<String>::new());
    }

    #[test]
    fn a_prefix_that_cuts_a_character_is_harmless() {
        assert!(offered("SELECT é").is_empty());
    }
}
