//! What the program logs, as people read it: `warning: times declared TIMESTAMP(3) look like s: …`.
//!
//! Warnings of a library without a reader are noise, and so are times to the microsecond beside the answer of a query. So a
//! warning looks like our other messages; what is logged in more detail than that names its time since the start and its module too.

use std::fmt;
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, uptime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::report::Style;

/// Begins to log to standard error what `filter` lets through.
///
/// # Errors
/// What is wrong with `filter`.
pub(super) fn start(filter: &str, style: Style) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log '{filter}': {error}"))?;
    let logger =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(style.is_painted());
    // Whoever embeds this function may have a subscriber already; then theirs stays.
    let _ = logger.event_format(Lines { style }).try_init();
    Ok(())
}

struct Lines {
    style: Style,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = event.metadata().level();
        match *level {
            Level::ERROR => write!(out, "{} ", self.style.red("error:"))?,
            Level::WARN => write!(out, "{} ", self.style.red("warning:"))?,
            _ => {
                uptime().format_time(&mut out)?;
                write!(out, " {level} {}: ", event.metadata().target())?;
            }
        }
        context.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}
