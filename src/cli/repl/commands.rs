//! Backslash commands: what a person asks of the REPL and not of the engine.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::scan::{Kind, scan};
use crate::cli::args;
use crate::cli::output::Format;

/// One backslash command, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `\?`.
    Commands,
    /// `\h [CLAUSE]`.
    Help(Option<String>),
    /// One that stands for a statement, such as `\ds` for `SHOW SOURCES`.
    Statement(String),
    /// `\d NAME`: its columns, and the statement that made it.
    Describe(String),
    /// `\d` without a name: everything there is.
    Everything,
    /// `\df [PART]`: functions whose name holds the part.
    Functions(Option<String>),
    /// `\timing [on|off]`.
    Timing(Option<bool>),
    /// `\x [on|off]`.
    Expanded(Option<bool>),
    /// `\format [FORMAT]`.
    Format(Option<Format>),
    /// `\pager [on|off|COMMAND]`.
    Pager(Option<String>),
    /// `\i FILE`.
    Include(PathBuf),
    /// `\watch [TIME]`: the last query again and again.
    Watch(Duration),
    /// `\q`.
    Quit,
}

/// Name, argument and meaning of each command, as `\?` prints them and completion offers them.
pub const COMMANDS: &[(&str, &str, &str)] = &[
    ("\\h", "[CLAUSE]", "explain a clause with an example; alone: list the clauses"),
    ("\\d", "[NAME]", "columns of a source, view or table, and the statement that made it; alone: everything there is"),
    ("\\ds", "", "sources"),
    ("\\dv", "", "views"),
    ("\\dt", "", "tables"),
    ("\\df", "[PART]", "functions, or those whose name holds PART"),
    ("\\dj", "", "jobs: how far each view and run is; SHOW JOBS tells more of each"),
    ("\\dw", "", "watermark of each source and split"),
    ("\\dl", "[VIEW]", "lateness: the fate of every row read"),
    ("\\x", "[on|off]", "one block per row, for wide rows"),
    ("\\format", "[FORMAT]", "table, csv, json, ndjson or null"),
    ("\\timing", "[on|off]", "tell how long each statement took"),
    ("\\pager", "[on|off|COMMAND]", "page answers that do not fit the screen"),
    ("\\i", "FILE", "run the statements in a file; a query waits for the work before it"),
    ("\\watch", "[TIME]", "run the last query every TIME (default 2s) until Ctrl-C"),
    ("\\?", "", "this list"),
    ("\\q", "", "leave; Ctrl-D does too"),
];

/// What fits a screen of what there is to say of jobs.
const JOBS: &str =
    "SELECT id, kind, \"view\", status, rows_read, watermark, windows_changed, started, error FROM system.jobs";

/// A text that ends with a line that is a command: what stands before that line, and the line. As in psql, a command works in
/// the middle of a statement, and leaves it as it is.
pub fn behind_statement(text: &str) -> Option<(&str, &str)> {
    let (before, last) = text.trim_end().rsplit_once('\n')?;
    let is_inside = scan(before).last().is_some_and(|piece| piece.open && piece.kind != Kind::Comment);
    (last.trim_start().starts_with('\\') && !is_inside && !before.trim().is_empty()).then_some((before, last))
}

impl Command {
    /// The command on a line, or `None` if the line is SQL. `help`, `quit` and `exit` on their own count as commands,
    /// as everybody tries them.
    ///
    /// # Errors
    ///
    /// A sentence for the person who typed an unknown command or a wrong argument.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim();
        match line.trim_end_matches([';', ' ']).to_ascii_lowercase().as_str() {
            "help" => return Some(Ok(Self::Commands)),
            "quit" | "exit" => return Some(Ok(Self::Quit)),
            _ => {}
        }
        if !line.starts_with('\\') {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        // People end everything with a semicolon after a while.
        let (name, rest) = (name.trim_end_matches(';'), rest.trim().trim_end_matches(';').trim_end());
        Some(Self::parse_words(name, rest))
    }

    fn parse_words(name: &str, rest: &str) -> Result<Self, String> {
        let argument = Some(rest.to_string()).filter(|rest| !rest.is_empty());
        let statement = |text: &str| Ok(Self::Statement(text.to_string()));
        match name {
            "\\?" => Ok(Self::Commands),
            "\\h" | "\\help" => Ok(Self::Help(argument)),
            "\\q" | "\\quit" => Ok(Self::Quit),
            "\\d" => Ok(argument.map_or(Self::Everything, Self::Describe)),
            "\\ds" => statement("SHOW SOURCES"),
            "\\dv" => statement("SHOW VIEWS"),
            "\\dt" => statement("SHOW TABLES"),
            "\\dj" => statement(JOBS),
            "\\dw" => statement("SHOW WATERMARKS"),
            "\\dl" => statement(&match argument {
                Some(view) => format!("SHOW LATENESS {view}"),
                None => "SHOW LATENESS".into(),
            }),
            "\\df" => Ok(Self::Functions(argument)),
            "\\timing" => on_off(name, rest).map(Self::Timing),
            "\\x" => on_off(name, rest).map(Self::Expanded),
            "\\format" | "\\f" => format(rest).map(Self::Format),
            "\\pager" => Ok(Self::Pager(argument)),
            "\\i" => match argument {
                Some(file) => Ok(Self::Include(PathBuf::from(file.trim_matches('\'')))),
                None => Err("\\i needs a file: \\i sql/tour/01-flights.sql".into()),
            },
            "\\watch" => {
                let time = argument.as_deref().unwrap_or("2s");
                let time = if time.ends_with(|c: char| c.is_ascii_digit()) { format!("{time}s") } else { time.into() };
                args::duration(&time).map(Self::Watch).map_err(|error| format!("\\watch {rest}: {error}"))
            }
            _ => Err(format!("no command {name}; \\? lists them")),
        }
    }
}

/// Nothing means the other way round.
fn on_off(name: &str, rest: &str) -> Result<Option<bool>, String> {
    match rest.to_ascii_lowercase().as_str() {
        "" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        other => Err(format!("{name} takes on or off, not '{other}'")),
    }
}

fn format(rest: &str) -> Result<Option<Format>, String> {
    match rest {
        "" => Ok(None),
        name => Format::from_str(name, true)
            .map(Some)
            .map_err(|_| format!("no format '{name}'; there are table, csv, json, ndjson and null")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Command {
        Command::parse(line).expect("a command").expect("a valid one")
    }

    #[test]
    fn sql_is_not_a_command() {
        assert_eq!(Command::parse("SELECT '\\d';"), None);
        assert_eq!(Command::parse("helper"), None);
    }

    #[test]
    fn words_that_everybody_tries_work() {
        assert_eq!(parsed("help"), Command::Commands);
        assert_eq!(parsed("exit;"), Command::Quit);
        assert_eq!(parsed("QUIT"), Command::Quit);
    }

    #[test]
    fn a_semicolon_after_a_command_does_no_harm() {
        assert_eq!(parsed("\\ds;"), Command::Statement("SHOW SOURCES".into()));
        assert_eq!(parsed("\\d hourly$late ;"), Command::Describe("hourly$late".into()));
    }

    #[test]
    fn a_command_in_the_middle_of_a_statement_leaves_it_as_it_is() {
        assert_eq!(behind_statement("SELECT 1\n  + 2\n\\d t"), Some(("SELECT 1\n  + 2", "\\d t")));
        assert_eq!(behind_statement("SELECT 'a\n\\d t"), None, "it is in a text");
        assert_eq!(behind_statement("\\d t"), None);
        assert_eq!(behind_statement("SELECT 1\n, 2"), None);
    }

    #[test]
    fn switches_take_on_off_or_nothing() {
        assert_eq!(parsed("\\x"), Command::Expanded(None));
        assert_eq!(parsed("\\timing OFF"), Command::Timing(Some(false)));
        assert!(Command::parse("\\x maybe").unwrap().is_err());
    }

    #[test]
    fn formats_are_checked() {
        assert_eq!(parsed("\\format csv"), Command::Format(Some(Format::Csv)));
        assert!(Command::parse("\\format xml").unwrap().unwrap_err().contains("ndjson"));
    }

    #[test]
    fn watch_takes_seconds_without_unit() {
        assert_eq!(parsed("\\watch"), Command::Watch(Duration::from_secs(2)));
        assert_eq!(parsed("\\watch 5"), Command::Watch(Duration::from_secs(5)));
        assert_eq!(parsed("\\watch 500ms"), Command::Watch(Duration::from_millis(500)));
        assert!(Command::parse("\\watch soon").unwrap().is_err());
    }

    #[test]
    fn every_listed_command_is_understood() {
        for (name, argument, _) in COMMANDS {
            let line = if *argument == "FILE" { format!("{name} a.sql") } else { (*name).to_string() };
            let command = Command::parse(&line).unwrap().expect(name);
            if let Command::Statement(sql) = command {
                crate::sql::parse(&sql).expect(name);
            }
        }
        assert!(Command::parse("\\nope").unwrap().unwrap_err().contains("\\?"));
    }
}
