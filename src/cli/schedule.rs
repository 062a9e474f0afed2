//! `highwater schedule run`: what schedules have due is run from outside, by cron, systemd or an orchestrator.

use clap::Subcommand;

use super::exit::Exit;
use super::interrupt::interrupted;
use super::report::Reporter;
use crate::engine::Engine;
use crate::time::format_us;

/// Words that are a command of their own.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Works with the schedules of a data dir
    #[command(subcommand)]
    Schedule(ScheduleCommand),
}

/// What is done with schedules.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ScheduleCommand {
    /// Runs what is due, oldest first, and makes up for what was missed; without --once goes on until Ctrl-C
    Run {
        /// Exits when nothing is due any more, with 1 if a run failed
        #[arg(long)]
        once: bool,
    },
}

impl Command {
    /// Whether the engine is to start runs by itself.
    pub fn keeps_running(&self) -> bool {
        matches!(self, Self::Schedule(ScheduleCommand::Run { once: false }))
    }

    /// Does it.
    pub async fn run(&self, engine: &Engine, reporter: Reporter) -> Exit {
        if self.keeps_running() {
            interrupted().await;
            return Exit::Interrupted;
        }
        let runs = match engine.run_due_schedules().await {
            Ok(runs) => runs,
            Err(error) => {
                reporter.error("", &error);
                return Exit::Statement(error.kind());
            }
        };
        let mut exit = Exit::Done;
        for run in runs {
            let what = format!("{} {}", run.schedule, format_us(run.nominal_us));
            match run.outcome {
                Ok(notices) if notices.is_empty() => reporter.notice(&format!("{what}: done")),
                Ok(notices) => reporter.notice(&format!("{what}: {}", notices.join("; "))),
                Err(message) => {
                    reporter.failure(&format!("{what}: {message}"));
                    exit = Exit::Failed;
                }
            }
        }
        exit
    }
}
