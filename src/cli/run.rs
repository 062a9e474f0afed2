//! Runs statements one after another and shows what they answer, for scripts and for the REPL.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};

use super::args::{Args, Script};
use super::exit::Exit;
use super::interrupt::{apart, interrupted, rows_apart};
use super::output::{Arrival, Format, elapsed, row_count, row_writer};
use super::pager::{Destination, Pager};
use super::progress::{JobWatch, Progress, summary};
use super::report::{Reporter, Style};
use crate::engine::{Engine, Outcome, StopHandle, rows_error};
use crate::error::{Error, ErrorKind};
use crate::sql::statement::RunKind;
use crate::sql::{self, Statement};

/// Why a text did not run to its end.
#[derive(Debug)]
pub enum Stop {
    /// A statement failed.
    Statement(Error),
    /// Standard output could not be written.
    Output(io::Error),
    /// Whoever read standard output has seen enough.
    OutputClosed,
    /// Ctrl-C, and what had been shown until then.
    Interrupted(Shown),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Output(error),
        }
    }
}

/// What a person can change while the program runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How rows are printed.
    pub format: Format,
    /// Whether a table shows one block per row.
    pub expanded: bool,
    /// Whether the time a statement took is told.
    pub timing: bool,
    /// Through which program long answers go.
    pub pager: Option<Pager>,
    /// Whether a VERIFY that finds differences without a cause fails.
    pub check: bool,
}

/// Whether a query waits for the bounded work started before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// In scripts: a query reads complete results.
    Complete,
    /// At the prompt: a query reads what is there now.
    Now,
}

/// What the totals of a VERIFY, rows without a window, say of differences without a cause.
fn unexplained_in(batch: &RecordBatch) -> i64 {
    let (Some(window), Some(unexplained)) = (batch.column_by_name("window_start"), batch.column_by_name("unexplained"))
    else {
        return 0;
    };
    let Some(unexplained) = unexplained.as_primitive_opt::<Int64Type>() else { return 0 };
    (0..batch.num_rows()).filter(|row| window.is_null(*row)).map(|row| unexplained.value(row)).sum()
}

/// An engine, and how its answers are shown.
pub struct Session {
    /// The engine.
    pub engine: Engine,
    /// How answers are shown.
    pub settings: Settings,
    /// Where everything else is told.
    pub reporter: Reporter,
    /// Which jobs are known to have ended.
    pub jobs: JobWatch,
    /// Sources that rows were inserted into since something was read.
    inserted: BTreeSet<String>,
    /// Texts of the job errors that have been told.
    told: HashSet<String>,
    style: Style,
    progress: bool,
}

impl Session {
    /// A session on `engine` that shows answers as `args` say.
    pub fn new(engine: Engine, args: &Args, reporter: Reporter) -> Self {
        Self {
            engine,
            settings: Settings { format: args.format, expanded: false, timing: true, pager: None, check: args.check },
            reporter,
            jobs: JobWatch::default(),
            inserted: BTreeSet::new(),
            told: HashSet::new(),
            style: Style::new(args.color, io::stdout().is_terminal()),
            progress: !args.quiet && !args.no_progress && io::stderr().is_terminal(),
        }
    }

    /// Runs the scripts in order, then waits until all bounded work is done.
    pub async fn run_scripts(&mut self, scripts: &[Script]) -> Exit {
        for script in scripts {
            let text = match read(script) {
                Ok(text) => text,
                Err(failure) => {
                    self.reporter.failure(&failure);
                    return Exit::Failed;
                }
            };
            if let Err(stop) = self.run_text(&text, Reading::Complete).await {
                let in_statement = matches!(stop, Stop::Statement(_));
                let exit = self.report(&text, stop);
                if let (Script::File(path), true) = (script, in_statement) {
                    self.reporter.in_file(path);
                }
                return exit;
            }
        }
        match self.wait_for_bounded().await {
            Ok(()) => Exit::Done,
            Err(stop) => self.report("", stop),
        }
    }

    /// Runs the statements of `text` up to the first that fails. A text with a syntax error runs not at all.
    ///
    /// # Errors
    ///
    /// What stopped it; see [`Session::report`].
    pub async fn run_text(&mut self, text: &str, reading: Reading) -> Result<(), Stop> {
        for statement in sql::parse(text)? {
            if reading == Reading::Complete && reads_results(&statement) {
                self.wait_for_bounded().await?;
            }
            self.run_statement(statement).await?;
        }
        Ok(())
    }

    /// Tells why a text stopped, and what that means for the exit code.
    pub fn report(&self, text: &str, stop: Stop) -> Exit {
        match stop {
            Stop::Statement(error) => {
                self.tell_failure(text, &error);
                Exit::Statement(error.kind())
            }
            Stop::Output(error) => {
                self.reporter.failure(&format!("cannot write the rows: {error}"));
                Exit::Failed
            }
            Stop::OutputClosed => Exit::Done,
            Stop::Interrupted(shown) => {
                let before = if shown.rows > 0 { format!("{}, ", row_count(shown.rows)) } else { String::new() };
                let after =
                    if self.settings.timing { format!(" after {}", elapsed(shown.time)) } else { String::new() };
                self.reporter.aside(&format!("{before}stopped{after}"));
                Exit::Interrupted
            }
        }
    }

    /// Waits until the jobs over bounded sources have ended, with a progress bar where one is wanted.
    async fn wait_for_bounded(&mut self) -> Result<(), Stop> {
        let started = Instant::now();
        let mut progress = Progress::new(self.progress);
        let ended = {
            let work = self.engine.wait_for_bounded();
            tokio::pin!(work);
            let interrupt = interrupted();
            tokio::pin!(interrupt);
            loop {
                tokio::select! {
                    ended = &mut work => break ended.map_err(Stop::from),
                    () = &mut interrupt => break Err(Self::interrupted(0, started)),
                    () = tokio::time::sleep(Progress::TICK) => progress.draw(&self.engine.progress()),
                }
            }
        };
        progress.clear();
        self.tell_ended_jobs();
        ended
    }

    /// Says which jobs have ended since the last call, and how.
    pub fn tell_ended_jobs(&mut self) {
        for job in self.jobs.newly_ended(&self.engine.progress()) {
            match &job.error {
                None => self.reporter.aside(&summary(job)),
                Some(error) => {
                    self.reporter.error("", error);
                    self.told.insert(error.to_string());
                }
            }
        }
    }

    /// Says with what a job failed, unless that was told when it happened.
    pub fn tell_failure(&self, text: &str, error: &Error) {
        if !self.told.contains(&error.to_string()) {
            self.reporter.error(text, error);
        }
    }

    async fn run_statement(&mut self, statement: Statement) -> Result<(), Stop> {
        let started = Instant::now();
        let verifies = matches!(&statement, Statement::Run(run) if run.kind == RunKind::Verify);
        // What there is and how it works is looked at in passing; a pager would be in the way.
        let paged = matches!(statement, Statement::Select(_) | Statement::Passthrough(_));
        let pager = self.settings.pager.clone().filter(|_| paged);
        // Whoever has inserted rows reads them.
        let inserted = if reads_results(&statement) { std::mem::take(&mut self.inserted) } else { BTreeSet::new() };
        if let Statement::Insert { source, .. } = &statement {
            self.inserted.insert(source.node.clone());
        }
        let engine = self.engine.clone();
        let work = async move {
            for source in inserted {
                engine.settle(&source).await;
            }
            engine.run(statement).await
        };
        let outcome = tokio::select! {
            outcome = apart(work) => outcome?,
            () = interrupted() => {
                self.reporter.after_interrupt();
                return Err(Self::interrupted(0, started));
            }
        };
        match outcome {
            Outcome::Done { tag, notices } => {
                for notice in notices {
                    self.reporter.notice(&format!("{} {notice}", self.reporter.style.bold("notice:")));
                }
                self.reporter.aside(&self.with_time(tag, started.elapsed()));
                Ok(())
            }
            Outcome::Rows { schema, rows } => {
                let mut unexplained = 0;
                let rows = rows_apart(rows.map(|batch| batch.map_err(rows_error))).inspect_ok(|batch| {
                    if verifies {
                        unexplained += unexplained_in(batch);
                    }
                });
                let (shown, ended) = self.show(schema, rows, pager.as_ref(), started, None).await;
                self.tell_count(shown, ended)?;
                match unexplained {
                    n if n > 0 && self.settings.check => {
                        let message = format!("live and batch differ without a known cause: results=`{n}`");
                        Err(Stop::Statement(Error::new(ErrorKind::Data, message)))
                    }
                    _ => Ok(()),
                }
            }
            Outcome::Stream { schema, rows, stop } => {
                let (shown, ended) = self.show(schema, rows_apart(rows), None, started, Some(&stop)).await;
                stop.stop();
                self.tell_count(shown, ended)
            }
        }
    }

    /// Writes rows until they end or something stops them. A format's end is written, but for an answer that failed or was
    /// stopped before its first row: it was none. A stream is stopped to end it, so that it had all its rows.
    async fn show(
        &self,
        schema: SchemaRef,
        mut rows: impl Stream<Item = Result<RecordBatch, Error>> + Unpin,
        pager: Option<&Pager>,
        started: Instant,
        job: Option<&StopHandle>,
    ) -> (Shown, Result<(), Stop>) {
        let arrival = if job.is_some() { Arrival::Live } else { Arrival::Complete };
        let mut out = Destination::new(pager);
        let mut writer = row_writer(self.settings.format, self.settings.expanded, &schema, arrival, self.style);
        let mut count = 0;
        let interrupt = interrupted();
        tokio::pin!(interrupt);
        let mut progress = Progress::new(self.progress && !self.rows_on_terminal());
        let ended = loop {
            if interrupt.as_mut().now_or_never().is_some() {
                break Err(Self::interrupted(count, started));
            }
            let next = match rows.next().now_or_never() {
                Some(next) => next,
                None => {
                    // Nothing more right now: what has been written must not wait in a buffer.
                    if let Err(error) = out.flush() {
                        break Err(error.into());
                    }
                    tokio::select! {
                        next = rows.next() => next,
                        () = &mut interrupt => break Err(Self::interrupted(count, started)),
                        () = tokio::time::sleep(Progress::TICK) => {
                            progress.draw(job.and_then(StopHandle::progress).as_slice());
                            continue;
                        }
                    }
                }
            };
            match next {
                None => break Ok(()),
                Some(Err(error)) => break Err(error.into()),
                Some(Ok(batch)) => {
                    count += batch.num_rows() as u64;
                    if let Err(error) = writer.write(&batch, &mut out) {
                        break Err(error.into());
                    }
                }
            }
        };
        progress.clear();
        if matches!(ended, Err(Stop::Interrupted(_))) {
            self.reporter.after_interrupt();
        }
        // Before the pager, in which a person may stay for long.
        let shown = Shown { rows: count, time: started.elapsed() };
        if count == 0 {
            out = Destination::new(None);
        }
        let is_answer = match &ended {
            Err(Stop::Statement(_)) => count > 0,
            Err(Stop::Interrupted(_)) => count > 0 || job.is_some(),
            _ => true,
        };
        let closed = if is_answer { writer.finish(&mut out) } else { Ok(()) }.and_then(|()| out.finish());
        (shown, ended.and(closed.map_err(Stop::from)))
    }

    /// Whether rows appear where a progress bar would be drawn.
    fn rows_on_terminal(&self) -> bool {
        self.settings.format != Format::Null && io::stdout().is_terminal()
    }

    /// Ctrl-C after `rows` rows of what was started then.
    fn interrupted(rows: u64, started: Instant) -> Stop {
        Stop::Interrupted(Shown { rows, time: started.elapsed() })
    }

    fn tell_count(&self, shown: Shown, ended: Result<(), Stop>) -> Result<(), Stop> {
        if matches!(ended, Ok(()) | Err(Stop::OutputClosed)) {
            self.reporter.aside(&self.with_time(row_count(shown.rows), shown.time));
        }
        ended
    }

    fn with_time(&self, what: String, time: Duration) -> String {
        match self.settings.timing {
            true => format!("{what} in {}", elapsed(time)),
            false => what,
        }
    }
}

/// How much of an answer was shown, and how long that took.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    rows: u64,
    time: Duration,
}

/// Whether a statement reads or corrects what views hold, so that a script must wait for it to be complete. A streaming SELECT and
/// SUBSCRIBE follow rows as they come instead.
fn reads_results(statement: &Statement) -> bool {
    match statement {
        Statement::Select(query) => !query.clauses.is_streaming(),
        Statement::Explain { analyze, .. } => *analyze,
        Statement::Show(_)
        | Statement::Passthrough(_)
        | Statement::Insert { .. }
        | Statement::Run(_)
        | Statement::Rollback(_) => true,
        _ => false,
    }
}

/// The text of a script.
fn read(script: &Script) -> Result<String, String> {
    match script {
        Script::Text(text) => Ok(text.clone()),
        Script::File(path) => read_file(path),
        Script::Stdin => {
            let mut text = String::new();
            match io::stdin().lock().read_to_string(&mut text) {
                Ok(_) => Ok(text),
                Err(error) => Err(format!("cannot read standard input: {error}")),
            }
        }
    }
}

/// The text of a file of statements, without the byte order mark that some editors put first.
pub fn read_file(path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_string)),
        Err(error) => Err(format!("cannot read file=`{}`: {error}", path.display())),
    }
}
