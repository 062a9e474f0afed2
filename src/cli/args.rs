//! What can be said on the command line, and the text of `--help`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, ValueEnum};

use super::output::Format;
use super::schedule::Command;
use crate::engine::WORKERS_MAX;
use crate::sql::{self, Statement};

const EXAMPLES: &str = "\
Examples:
  highwater                                the REPL, on ./highwater-data
  highwater -f sql/tour/01-flights.sql     a file of statements
  highwater -m -c 'SELECT 1; SELECT 2'     statements, keeping nothing
  highwater -c 'TABLE hourly' --format csv > hourly.csv
  highwater -c 'SELECT * FROM hourly$late'
  echo 'SHOW VIEWS' | highwater
  highwater schedule run --once            what schedules have due, from cron

Use single quotes: in double quotes a shell takes $late for a variable.

In a script (-c, -f, standard input) statements run one after another and the
first error stops it; a text with a syntax error does not start. A SELECT or
SHOW waits until the bounded work started before it is done, so it reads
complete results. The program exits when all bounded work is done.

Results go to standard output. Everything else (tags, notices, row counts,
progress, errors, logs) goes to standard error.

Exit codes:
  0    everything ran, or the reader of standard output had enough
  1    a failure while running: a job or stream ended early, a file could not
       be read or written
  2    correct the command line or the SQL: syntax, unknown name, wrong type,
       not supported
  3    correct the input: rows could not be used and the source says to stop
  4    try again later: something outside did not answer
  5    it exists already, changed under you, or a newer engine has taken over
  6    stored bytes are damaged or of an unknown version
  70   a bug in Highwater; please report it
  130  stopped by Ctrl-C";

/// A SQL engine for windowed metrics that stay right.
///
/// Without -c or -f, opens a REPL: type SQL that ends with ';', \h for the clauses with an example each, \? for
/// commands.
#[derive(Debug, Clone, Parser)]
#[command(name = "highwater", version, after_long_help = EXAMPLES, max_term_width = 100)]
#[command(after_help = "See --help for examples and exit codes.")]
pub struct Args {
    /// Runs the statements in SQL and exits. May be given several times, and mixed with -f
    #[arg(short = 'c', long = "command", value_name = "SQL", action = ArgAction::Append)]
    #[arg(value_parser = statements, allow_hyphen_values = true)]
    commands: Vec<String>,

    /// Runs the statements in FILE ('-' is standard input) and exits. May be given several times
    #[arg(short = 'f', long = "file", value_name = "FILE", action = ArgAction::Append)]
    files: Vec<PathBuf>,

    /// Folder or object-store URL that keeps sources, views and results
    #[arg(
        short = 'd',
        long,
        value_name = "URL|PATH",
        env = "HIGHWATER_DATA_DIR",
        hide_env_values = true,
        default_value = "./highwater-data",
        global = true
    )]
    pub data_dir: String,

    /// Keeps everything in memory; nothing is left behind
    #[arg(short = 'm', long, env = "HIGHWATER_IN_MEMORY", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub in_memory: bool,

    /// How result rows are printed
    #[arg(long, value_enum, value_name = "FORMAT", env = "HIGHWATER_FORMAT", hide_env_values = true, default_value_t = Format::Table)]
    pub format: Format,

    /// Threads that run queries and jobs [default: one per core]
    #[arg(long, value_name = "N", env = "HIGHWATER_WORKERS", hide_env_values = true, value_parser = workers)]
    pub workers: Option<usize>,

    /// Rows per batch that sources aim for; changes speed, never an answer
    #[arg(long, value_name = "ROWS", env = "HIGHWATER_BATCH_ROWS", hide_env_values = true, value_parser = positive)]
    pub batch_rows: Option<usize>,

    /// How often results are committed: '500ms', '1s', '2m'
    #[arg(long, value_name = "TIME", env = "HIGHWATER_EPOCH_INTERVAL", hide_env_values = true, value_parser = duration)]
    pub epoch_interval: Option<Duration>,

    /// Most memory that open windows and queries may take; the rest goes to disk:
    /// '512MB', '4GiB' [default: no limit]
    #[arg(long, value_name = "SIZE", env = "HIGHWATER_MEMORY_LIMIT", hide_env_values = true, value_parser = bytes)]
    pub memory_limit: Option<usize>,

    /// Prints results and errors only: no tags, notices, row counts or progress
    #[arg(short = 'q', long, env = "HIGHWATER_QUIET", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub quiet: bool,

    /// VERIFY fails (exit code 3) where live and batch differ without a known cause
    #[arg(long, env = "HIGHWATER_CHECK", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub check: bool,

    /// Draws no progress bar
    #[arg(long, env = "HIGHWATER_NO_PROGRESS", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub no_progress: bool,

    /// When to use colour; 'auto' means on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, value_name = "WHEN", env = "HIGHWATER_COLOR", hide_env_values = true, default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,

    /// What to log: 'info', 'highwater=debug,warn', …
    #[arg(
        long,
        value_name = "FILTER",
        env = "HIGHWATER_LOG",
        hide_env_values = true,
        default_value = "warn,delta_kernel=off"
    )]
    pub log: String,

    /// File that keeps the REPL's history [default: highwater/history in the XDG state folder]
    #[arg(long, value_name = "FILE", env = "HIGHWATER_HISTORY", hide_env_values = true)]
    pub history: Option<PathBuf>,

    /// A command of its own, in place of statements.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// What -c and -f asked to run, in the order they were written.
    #[arg(skip)]
    pub scripts: Vec<Script>,
}

/// One thing to run and exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// The text of a `-c`.
    Text(String),
    /// The file of a `-f`.
    File(PathBuf),
    /// `-f -`, or a REPL asked for where there is no terminal.
    Stdin,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    Auto,
    /// Even into a pipe.
    Always,
    /// Not at all.
    Never,
}

impl Args {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// What clap has to say about it; `--help` and `--version` come this way too.
    pub fn try_read<I, T>(words: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let mut matches = Self::command().try_get_matches_from(words).map_err(with_tip)?;
        let scripts = scripts_in_order(&matches);
        let mut args = Self::from_arg_matches_mut(&mut matches)?;
        args.scripts = scripts;
        Ok(args)
    }
}

/// A statement by itself is taken for a command.
fn with_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == clap::error::ErrorKind::InvalidSubcommand {
        let tip = "statements stand behind -c: highwater -c 'SELECT …'".to_owned();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

impl Args {
    /// Whether all there is to run are statements on the command line that only read. What has a syntax error runs not at
    /// all, and so changes nothing.
    pub fn only_reads(&self) -> bool {
        let reads = |script: &Script| match script {
            Script::Text(text) => sql::parse(text).is_ok_and(|all| all.iter().all(Statement::only_reads)),
            Script::File(_) | Script::Stdin => false,
        };
        !self.scripts.is_empty() && self.scripts.iter().all(reads)
    }
}

impl Args {
    /// The statements on the command line, one after the other; nothing if there are others to come.
    pub fn statements(&self) -> Option<String> {
        let text = |script: &Script| match script {
            Script::Text(text) => Some(text.clone()),
            Script::File(_) | Script::Stdin => None,
        };
        let texts: Option<Vec<String>> = self.scripts.iter().map(text).collect();
        texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join(";\n"))
    }
}

/// clap collects each option apart from the others; their indices tell how `-c` and `-f` were interleaved.
fn scripts_in_order(matches: &ArgMatches) -> Vec<Script> {
    let commands = matches.get_many::<String>("commands").into_iter().flatten();
    let files = matches.get_many::<PathBuf>("files").into_iter().flatten();
    let mut found: Vec<(usize, Script)> = Vec::new();
    let indices = |id: &str| matches.indices_of(id).into_iter().flatten();
    found.extend(indices("commands").zip(commands.map(|sql| Script::Text(sql.clone()))));
    found.extend(indices("files").zip(files.map(|path| match path.as_os_str() == "-" {
        true => Script::Stdin,
        false => Script::File(path.clone()),
    })));
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, script)| script).collect()
}

/// A text may start with a `--` comment; a lone word with a dash is an option whose SQL was forgotten.
fn statements(text: &str) -> Result<String, String> {
    match text.starts_with('-') && !text.contains(char::is_whitespace) {
        true => Err("this looks like an option; put the statements right after -c".into()),
        false => Ok(text.into()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("not a whole number".into()),
    }
}

fn workers(text: &str) -> Result<usize, String> {
    match positive(text)? {
        n if n > WORKERS_MAX => Err(format!("must be at most {WORKERS_MAX}")),
        n => Ok(n),
    }
}

/// A number and `ms`, `s`, `m` or `h`; more than zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds_per_unit = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err("a unit is missing: write '500ms', '1s' or '2m'".into()),
        _ => return Err("unknown unit: use ms, s, m or h".into()),
    };
    let number: f64 = number.parse().map_err(|_| "does not start with a number".to_string())?;
    match Duration::try_from_secs_f64(number * seconds_per_unit) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("must be more than zero, and less than for ever".into()),
    }
}

/// A number and `kB`, `MB`, `GB` (thousands), `KiB`, `MiB`, `GiB` (powers of 1,024) or `B`; more than zero.
fn bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let bytes_per_unit = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "" => return Err("a unit is missing: write '512MB' or '4GiB'".into()),
        _ => return Err("unknown unit: use kB, MB, GB, KiB, MiB or GiB".into()),
    };
    let number: f64 = number.parse().map_err(|_| "does not start with a number".to_string())?;
    match number * bytes_per_unit {
        bytes if bytes >= 1.0 => Ok(bytes as usize),
        _ => Err("must be more than zero".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Args {
        Args::try_read(std::iter::once("highwater").chain(words.iter().copied())).unwrap()
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_statement_without_c_is_told_where_it_belongs() {
        let error = Args::try_read(["highwater", "select 1"]).unwrap_err();
        assert!(error.to_string().contains("highwater -c 'SELECT"), "{error}");
    }

    #[test]
    fn commands_and_files_keep_their_order() {
        let args = read(&["-c", "SELECT 1", "-f", "a.sql", "-c", "SELECT 2", "-f", "-"]);
        let expected = [
            Script::Text("SELECT 1".into()),
            Script::File("a.sql".into()),
            Script::Text("SELECT 2".into()),
            Script::Stdin,
        ];
        assert_eq!(args.scripts, expected);
    }

    #[test]
    fn schedules_can_be_run_from_outside() {
        let args = read(&["schedule", "run", "--once", "-d", "lake"]);
        let once = super::super::schedule::ScheduleCommand::Run { once: true };
        assert_eq!((args.command, args.data_dir.as_str()), (Some(Command::Schedule(once)), "lake"));
    }

    #[test]
    fn no_scripts_means_the_repl() {
        assert_eq!(read(&["--in-memory"]).scripts, []);
    }

    #[test]
    fn a_script_may_start_with_a_comment() {
        assert_eq!(read(&["-c", "-- hello\nSELECT 1"]).scripts, [Script::Text("-- hello\nSELECT 1".into())]);
    }

    #[test]
    fn counts_must_be_positive() {
        assert!(Args::try_read(["highwater", "--workers", "0"]).is_err());
        assert!(Args::try_read(["highwater", "--batch-rows", "many"]).is_err());
        assert_eq!(read(&["--workers", "3"]).workers, Some(3));
        let refused = Args::try_read(["highwater", "--workers", "100000"]).unwrap_err();
        assert!(refused.to_string().contains("must be at most 1024"), "{refused}");
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("5").unwrap_err().contains("unit"));
        assert!(duration("0s").is_err());
        assert!(duration("5 weeks").is_err());
        assert!(duration("ms").is_err());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("512MB"), Ok(512_000_000));
        assert_eq!(bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(read(&["--memory-limit", "64kB"]).memory_limit, Some(64_000));
        assert!(bytes("100").unwrap_err().contains("unit"));
        assert!(bytes("0MB").is_err() && bytes("1 XB").is_err() && bytes("MB").is_err());
    }

    #[test]
    fn a_forgotten_text_is_noticed() {
        let error = Args::try_read(["highwater", "-c", "--in-memory"]).unwrap_err();
        assert!(error.to_string().contains("right after -c"), "{error}");
    }

    #[test]
    fn help_fits_eighty_columns_and_quotes_for_the_shell() {
        assert!(EXAMPLES.lines().all(|line| line.len() <= 80));
        assert!(EXAMPLES.contains("'SELECT * FROM hourly$late'"));
    }
}
