//! The `highwater` command: arguments, scripts, REPL, output, progress.
//!
//! This is an edge: the one place that prints, reads the terminal and decides how the process exits. It sees the
//! engine through its public API and can do nothing an embedder cannot. It knows no operator, no file format, no plan.
//!
//! One rule holds everywhere in it: **results go to standard output, everything else to standard error.**

pub mod args;
pub mod exit;
mod interrupt;
mod log;
pub mod output;
mod pager;
mod progress;
mod repl;
pub mod report;
mod run;
pub mod schedule;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

use self::args::{Args, Script};
use self::exit::Exit;
use self::interrupt::interrupted;
use self::report::{Reporter, Style};
use self::run::Session;
use crate::engine::Engine;
use crate::error::Result;

/// The whole program, from its arguments to its exit code.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = match Args::try_read(words) {
        Ok(args) => args,
        Err(error) => {
            // clap knows which of its messages are answers (`--help`) and which are errors. A closed pipe is neither.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if args.command.is_none() && args.scripts.is_empty() && !io::stdin().is_terminal() {
        args.scripts.push(Script::Stdin);
    }
    let reporter = Reporter { style: Style::new(args.color, io::stderr().is_terminal()), quiet: args.quiet };
    let exit = run(&args, reporter);
    ExitCode::from(exit.code())
}

fn run(args: &Args, reporter: Reporter) -> Exit {
    if let Err(failure) = log::start(&args.log, reporter.style) {
        reporter.failure(&failure);
        return Exit::Statement(crate::ErrorKind::Invalid);
    }
    let runtime = match runtime(args) {
        Ok(runtime) => runtime,
        Err(error) => {
            reporter.failure(&format!("cannot start threads: {error}"));
            return Exit::Failed;
        }
    };
    let engine = match runtime.block_on(open(args)) {
        Ok(engine) => engine,
        Err(error) => {
            reporter.error("", &error);
            return Exit::Statement(error.kind());
        }
    };
    if let Err(error) = interrupt::listen() {
        reporter.failure(&format!("cannot start threads: {error}"));
        return Exit::Failed;
    }
    let mut session = Session::new(engine, args, reporter);
    let exit = match &args.command {
        Some(command) => runtime.block_on(command.run(&session.engine, reporter)),
        None if args.scripts.is_empty() => repl::run(&mut session, &runtime, args),
        None => runtime.block_on(session.run_scripts(&args.scripts)),
    };
    let exit = runtime.block_on(close(session, exit));
    // A pager or a read of standard input may still hold a thread; nothing is lost by not waiting for it.
    runtime.shutdown_background();
    exit
}

async fn open(args: &Args) -> Result<Engine> {
    let mut builder = match args.in_memory {
        true => Engine::builder().in_memory(),
        false => Engine::builder().data_dir(&args.data_dir),
    };
    if let Some(command) = &args.command {
        builder = builder.run_schedules(command.keeps_running());
    }
    // A statement or two on the command line disturb no job; a script or the prompt goes on with what there is.
    let statements = !args.scripts.is_empty() && args.scripts.iter().all(|script| matches!(script, Script::Text(_)));
    builder = builder.resume_jobs(!statements);
    builder = builder.read_only(args.only_reads());
    if let Some(statements) = args.statements() {
        builder = builder.only_for(statements);
    }
    if let Some(workers) = args.workers {
        builder = builder.workers(workers);
    }
    if let Some(rows) = args.batch_rows {
        builder = builder.batch_rows(rows);
    }
    if let Some(bytes) = args.memory_limit {
        builder = builder.memory_limit(bytes);
    }
    if let Some(interval) = args.epoch_interval {
        builder = builder.epoch_interval(interval);
    }
    builder.build().await
}

/// Stops the jobs where they are. A second Ctrl-C does not wait for that.
async fn close(session: Session, exit: Exit) -> Exit {
    tokio::select! {
        closed = session.engine.shutdown() => match closed {
            Ok(()) => exit,
            Err(error) => {
                session.tell_failure("", &error);
                if exit == Exit::Done { Exit::Statement(error.kind()) } else { exit }
            }
        },
        () = interrupted() => Exit::Interrupted,
    }
}

fn runtime(args: &Args) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = args.workers {
        builder.worker_threads(workers);
    }
    builder.enable_all().thread_name("highwater").build()
}
