//! The harness's own commands: statements that start with a backslash. See `sql/slt/README.md`.

use highwater::time::parse_instant;
use highwater::{Error, Result};
use serde_json::Value;

/// What a command says.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// `\push source[/split]` with rows.
    Push { source: String, split: String, lines: Vec<Line> },
    /// `\push source[/split]` with a query.
    PushQuery { source: String, split: String, query: String },
    /// `\end source`.
    End { source: String },
    /// `\clock instant`.
    ClockSet(i64),
    /// `\clock +90s`.
    ClockAdvance(i64),
    /// `\epoch`.
    Epoch,
    /// `\schedules`.
    Schedules,
    /// `\file name` and its text.
    File { name: String, text: String },
}

/// A line of `\push`.
#[derive(Debug, PartialEq)]
pub enum Line {
    /// One value per column.
    Row(Vec<Value>),
    /// `|`: the epoch ends here.
    Epoch,
    /// `each`: every row from here on is an epoch of its own.
    Each,
}

impl Command {
    /// The command in `text`; `None` if it does not start with a backslash.
    pub fn parse(text: &str) -> Option<Result<Self>> {
        let text = text.strip_prefix('\\')?;
        let (head, body) = text.split_once('\n').unwrap_or((text, ""));
        let (word, argument) = head.trim().split_once(' ').unwrap_or((head.trim(), ""));
        Some(Self::parse_parts(word, argument.trim(), body))
    }

    fn parse_parts(word: &str, argument: &str, body: &str) -> Result<Self> {
        let (source, split) = argument.split_once('/').unwrap_or((argument, "0"));
        let (source, split) = (source.to_string(), split.to_string());
        Ok(match word {
            "push" if body.trim_start().to_uppercase().starts_with("SELECT") => {
                Self::PushQuery { source, split, query: body.to_string() }
            }
            "push" => Self::Push { source, split, lines: body.lines().map(Line::parse).collect::<Result<_>>()? },
            "end" => Self::End { source },
            "epoch" => Self::Epoch,
            "schedules" => Self::Schedules,
            "file" => Self::File { name: argument.to_string(), text: body.to_string() },
            "clock" => match argument.strip_prefix('+') {
                None => Self::ClockSet(parse_instant(argument).map_err(|e| Error::invalid(e.to_string()))?),
                Some(by) => {
                    let seconds = by.trim_end_matches('s').parse::<i64>();
                    Self::ClockAdvance(seconds.map_err(|e| Error::invalid(format!("\\clock +{by}: {e}")))? * 1_000_000)
                }
            },
            other => return Err(Error::invalid(format!("the harness has no command \\{other}"))),
        })
    }
}

impl Line {
    fn parse(line: &str) -> Result<Self> {
        match line.trim() {
            "|" => Ok(Self::Epoch),
            "each" => Ok(Self::Each),
            row => serde_json::from_str(&format!("[{row}]"))
                .map(Self::Row)
                .map_err(|e| Error::invalid(format!("`{row}` is not a list of JSON values: {e}"))),
        }
    }
}

#[test]
fn commands_read_as_documented() {
    let push = Command::parse("\\push s/p1\n0, \"a\"\n|\neach\nnull, {\"a\": 1}").unwrap().unwrap();
    let Command::Push { source, split, lines } = push else { panic!("a push") };
    assert_eq!((source.as_str(), split.as_str(), lines.len()), ("s", "p1", 4));
    assert_eq!(lines[1], Line::Epoch);
    assert_eq!(Command::parse("\\clock +90s").unwrap().unwrap(), Command::ClockAdvance(90_000_000));
    assert_eq!(Command::parse("\\clock 1970-01-01T00:00:01Z").unwrap().unwrap(), Command::ClockSet(1_000_000));
    assert!(Command::parse("SELECT 1").is_none());
    assert!(Command::parse("\\nothing").unwrap().is_err());
}
