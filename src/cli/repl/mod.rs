//! The interactive prompt.
//!
//! Reading a line blocks the main thread; the engine's jobs go on in the runtime's own threads. What they have to say
//! is told between two prompts, never into the line somebody is typing.

mod clauses;
mod commands;
mod complete;
mod highlight;
mod hint;
mod prompt;
mod scan;
mod words;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use nu_ansi_term::{Color, Style as Paint};
use reedline::{
    ColumnarMenu, EditCommand, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder, Reedline, ReedlineEvent,
    ReedlineMenu, Signal, default_emacs_keybindings,
};
use tokio::runtime::Runtime;

use self::commands::{COMMANDS, Command, behind_statement};
use self::complete::{Names, SharedNames, SqlCompleter};
use super::args::Args;
use super::exit::Exit;
use super::interrupt::interrupted;
use super::pager::Pager;
use super::run::{Reading, Session, read_file};
use crate::engine::NameKind;

const COMPLETION_MENU: &str = "completion";

/// Statements kept in the history file.
const HISTORY_ENTRIES: usize = 10_000;

/// What keeps the prompt going or ends it.
enum Next {
    Prompt,
    /// The prompt, with a statement that is being written.
    Continue(String),
    Leave,
}

/// The prompt: an editor, the session its statements run in, and what it remembers.
struct Repl<'a> {
    session: &'a mut Session,
    runtime: &'a Runtime,
    names: SharedNames,
    /// The last text that was a query, for `\watch`.
    last_query: Option<String>,
    /// The pager that `\pager on` turns on again.
    pager: Option<Pager>,
}

/// Reads and runs until Ctrl-D or `\q`.
pub fn run(session: &mut Session, runtime: &Runtime, args: &Args) -> Exit {
    session.settings.pager = Pager::from_environment();
    let names = SharedNames::default();
    let mut repl =
        Repl { pager: session.settings.pager.clone(), session, runtime, names: names.clone(), last_query: None };
    let mut editor = editor(args, names, repl.session);
    repl.greet(args);
    loop {
        repl.session.tell_ended_jobs();
        repl.refresh_names();
        match editor.read_line(&prompt::SqlPrompt) {
            Ok(Signal::Success(line)) => match repl.enter(&line) {
                Next::Prompt => {}
                Next::Continue(text) => editor.run_edit_commands(&[EditCommand::InsertString(text)]),
                Next::Leave => return Exit::Done,
            },
            Ok(Signal::CtrlD) => return Exit::Done,
            Ok(_) => {}
            Err(error) => {
                repl.session.reporter.failure(&format!("cannot read the terminal: {error}"));
                return Exit::Failed;
            }
        }
    }
}

fn editor(args: &Args, names: SharedNames, session: &Session) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = ReedlineEvent::UntilFound(vec![
        ReedlineEvent::Menu(COMPLETION_MENU.into()),
        ReedlineEvent::MenuNext,
        ReedlineEvent::Edit(vec![EditCommand::Complete]),
    ]);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, ReedlineEvent::Edit(vec![EditCommand::InsertNewline]));
    let painted = session.reporter.style.is_painted();
    let menu =
        ColumnarMenu::default().with_name(COMPLETION_MENU).with_marker("> ").with_columns(4).with_column_padding(2);
    let editor = Reedline::create()
        .with_ansi_colors(painted)
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_validator(Box::new(prompt::SqlValidator))
        .with_highlighter(Box::new(highlight::SqlHighlighter))
        .with_completer(Box::new(SqlCompleter::new(names)))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_hinter(Box::new(hint::SqlHinter::new(Paint::new().fg(Color::DarkGray))))
        .with_history_exclusion_prefix(Some(" ".into()))
        .use_bracketed_paste(true);
    let editor = match text_editor() {
        Some(program) => {
            let file = std::env::temp_dir().join(format!("highwater-{}.sql", std::process::id()));
            editor.with_buffer_editor(program, file)
        }
        None => editor,
    };
    match history(args) {
        Ok(history) => editor.with_history(Box::new(history)),
        Err(why) => {
            session.reporter.aside(&format!("history is not kept: {why}"));
            editor
        }
    }
}

/// What Ctrl-O opens the statement in.
fn text_editor() -> Option<std::process::Command> {
    let program =
        ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|it| !it.trim().is_empty()))?;
    let mut words = program.split_whitespace();
    let mut command = std::process::Command::new(words.next()?);
    command.args(words);
    Some(command)
}

/// `--history`, else `highwater/history` in the XDG state folder.
fn history(args: &Args) -> Result<FileBackedHistory, String> {
    let state = || -> Option<PathBuf> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
    };
    let file = args.history.clone().or_else(|| state().map(|folder| folder.join("highwater/history")));
    let file = file.ok_or("neither --history, XDG_STATE_HOME nor HOME is set")?;
    FileBackedHistory::with_file(HISTORY_ENTRIES, file.clone())
        .map_err(|error| format!("cannot open file=`{}`: {error}", file.display()))
}

impl Repl<'_> {
    fn greet(&mut self, args: &Args) {
        let reporter = self.session.reporter;
        let style = reporter.style;
        let place = if args.in_memory { "in memory: nothing is kept" } else { args.data_dir.as_str() };
        reporter.notice(&format!("{} {}  {place}", style.bold("Highwater"), env!("CARGO_PKG_VERSION")));
        reporter.notice(&format!(
            "SQL ends with ';'.  {} explains the clauses, {} lists the commands, Ctrl-D leaves.",
            style.green("\\h"),
            style.green("\\?")
        ));
        if self.session.engine.names(NameKind::Relation).is_empty() {
            let tour = match Path::new("sql/tour/01-flights.sql").exists() {
                true => format!("{} runs three days of late flights, ", style.green("\\i sql/tour/01-flights.sql")),
                false => String::new(),
            };
            reporter.notice(&format!("Nothing here yet: {tour}{} starts from nothing.", style.green("\\h START")));
        }
        reporter.notice("");
    }

    fn refresh_names(&self) {
        let engine = &self.session.engine;
        let names = Names {
            relations: described(engine.names(NameKind::Relation)),
            columns: described(engine.names(NameKind::Column)),
            functions: described(engine.names(NameKind::Function)),
        };
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn enter(&mut self, line: &str) -> Next {
        if let Some((before, command)) = behind_statement(line) {
            return match self.enter(command) {
                Next::Leave => Next::Leave,
                _ => Next::Continue(format!("{before}\n")),
            };
        }
        match Command::parse(line) {
            None => self.sql(line, Reading::Now),
            Some(Ok(Command::Quit)) => return Next::Leave,
            Some(Ok(command)) => self.command(command),
            Some(Err(message)) => self.session.reporter.failure(&message),
        }
        Next::Prompt
    }

    /// Runs a text and tells how it failed, if it did. Whether it went through is for `\watch` to know.
    fn sql(&mut self, text: &str, reading: Reading) {
        self.last_query = Some(text.to_string());
        self.run(text, reading);
    }

    fn run(&mut self, text: &str, reading: Reading) -> bool {
        match self.runtime.block_on(self.session.run_text(text, reading)) {
            Ok(()) => true,
            Err(stop) => {
                self.session.report(text, stop);
                false
            }
        }
    }

    fn command(&mut self, command: Command) {
        let reporter = self.session.reporter;
        match command {
            Command::Quit => {}
            Command::Commands => self.print(&command_list(self.session)),
            Command::Help(asked) => self.print(&clauses::help(asked.as_deref(), reporter.style)),
            Command::Statement(sql) => {
                self.run(&format!("{sql};"), Reading::Now);
            }
            Command::Describe(name) => {
                let described = self.run(&format!("DESCRIBE {name};"), Reading::Now);
                if described && self.session.engine.is_defined(&name) {
                    self.run(&format!("SHOW CREATE {name};"), Reading::Now);
                }
            }
            Command::Everything => {
                for sql in ["SHOW SOURCES;", "SHOW VIEWS;"] {
                    self.run(sql, Reading::Now);
                }
            }
            Command::Functions(part) => self.functions(part.as_deref().unwrap_or("")),
            Command::Timing(wanted) => {
                let timing = toggled(&mut self.session.settings.timing, wanted);
                reporter.notice(&format!("timing is {timing}"));
            }
            Command::Expanded(wanted) => {
                let expanded = toggled(&mut self.session.settings.expanded, wanted);
                reporter.notice(&format!("one block per row is {expanded}"));
            }
            Command::Format(wanted) => {
                let format = &mut self.session.settings.format;
                *format = wanted.unwrap_or(*format);
                reporter.notice(&format!("format is {}", format!("{format:?}").to_lowercase()));
            }
            Command::Pager(wanted) => self.set_pager(wanted.as_deref()),
            Command::Include(path) => match read_file(&path) {
                Ok(text) => {
                    self.run(&text, Reading::Complete);
                }
                Err(failure) => reporter.failure(&failure),
            },
            Command::Watch(every) => self.watch(every),
        }
    }

    /// Help is an answer to a question, so it goes where answers go.
    fn print(&self, text: &str) {
        // A terminal that is gone shows at the next prompt.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }

    fn functions(&self, part: &str) {
        let part = part.to_lowercase();
        let names = self.session.engine.names(NameKind::Function);
        let found: Vec<_> =
            names.into_iter().map(|(name, _)| name).filter(|name| name.to_lowercase().contains(&part)).collect();
        match found.is_empty() {
            true => self.session.reporter.notice(&format!("no function with '{part}' in its name")),
            false => self.print(&columns(&found, crossterm::terminal::size().map_or(80, |(width, _)| width.into()))),
        }
    }

    fn set_pager(&mut self, wanted: Option<&str>) {
        let current = &mut self.session.settings.pager;
        match wanted {
            Some("off") => *current = None,
            Some("on") => *current = self.pager.clone().or_else(Pager::from_environment),
            Some(program) => {
                self.pager = Some(Pager::new(program));
                current.clone_from(&self.pager);
            }
            None => *current = if current.is_some() { None } else { self.pager.clone() },
        }
        let state = current.as_ref().map_or("off", Pager::command);
        self.session.reporter.notice(&format!("pager is {state}"));
    }

    /// Runs the last query again and again. Ctrl-C ends it, whether it hits a query or the pause.
    fn watch(&mut self, every: Duration) {
        let Some(text) = self.last_query.clone() else {
            return self.session.reporter.failure("\\watch repeats a query, and there is none yet");
        };
        let pager = self.session.settings.pager.take();
        loop {
            match self.runtime.block_on(self.session.run_text(&text, Reading::Now)) {
                Ok(()) => {}
                Err(stop) => {
                    self.session.report(&text, stop);
                    break;
                }
            }
            let stopped = self.runtime.block_on(async {
                tokio::select! {
                    () = tokio::time::sleep(every) => false,
                    () = interrupted() => true,
                }
            });
            if stopped {
                self.session.reporter.aside("stopped");
                break;
            }
        }
        self.session.settings.pager = pager;
    }
}

/// Each name once, with all that is said about it.
fn described(names: Vec<(String, String)>) -> BTreeMap<String, String> {
    let mut once = BTreeMap::<String, String>::new();
    for (name, what) in names {
        once.entry(name).and_modify(|said| *said = format!("{said}, {what}")).or_insert(what);
    }
    once
}

/// Sets a switch, or turns it over where nothing is asked for; says which way it is now.
fn toggled(switch: &mut bool, wanted: Option<bool>) -> &'static str {
    *switch = wanted.unwrap_or(!*switch);
    if *switch { "on" } else { "off" }
}

fn command_list(session: &Session) -> String {
    let style = session.reporter.style;
    let mut lines = Vec::new();
    for (name, argument, meaning) in COMMANDS {
        let pad = 28usize.saturating_sub(name.len() + 1 + argument.len());
        lines.push(format!("  {} {argument}{:pad$}{meaning}", style.bold(name), ""));
    }
    lines.push(String::new());
    lines.push("  Tab completes, Up and Ctrl-R search the history, Alt-Enter starts a new line,".into());
    lines.push("  Ctrl-O opens $EDITOR on the statement,".into());
    lines.push("  Ctrl-C stops a query or a stream and keeps the prompt.".into());
    lines.join("\n")
}

/// Names in columns, as `ls` prints them.
fn columns(names: &[String], width: usize) -> String {
    let column = names.iter().map(String::len).max().unwrap_or(0) + 2;
    let per_line = (width / column).max(1);
    let lines: Vec<_> = names
        .chunks(per_line)
        .map(|line| line.iter().map(|name| format!("{name:column$}")).collect::<String>().trim_end().to_string())
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_in_columns() {
        let names = ["abs", "avg", "ceil"].map(String::from);
        assert_eq!(columns(&names, 12), "abs   avg\nceil");
        assert_eq!(columns(&names, 1), "abs\navg\nceil");
    }

    #[test]
    fn a_column_of_two_relations_is_offered_once() {
        let names = described(vec![("at".into(), "clicks".into()), ("at".into(), "views".into())]);
        assert_eq!(names["at"], "clicks, views");
    }

    #[test]
    fn a_switch_turns_over_or_is_set() {
        let mut switch = false;
        assert_eq!(toggled(&mut switch, None), "on");
        assert_eq!(toggled(&mut switch, Some(true)), "on");
        assert_eq!(toggled(&mut switch, None), "off");
    }
}
