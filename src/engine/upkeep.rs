//! Keeping stored results small: in the background, and by OPTIMIZE, VACUUM and the options of a view.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;

use super::{Engine, Inner, Outcome};
use crate::connectors::Options;
use crate::connectors::definition::parse_duration;
use crate::error::{Error, ErrorKind, Result, nearest};
use crate::results::Upkeep;
use crate::runtime::{Again, Epochs, repeat};
use crate::sql::statement::{Maintenance, Spanned};

/// How often views are looked at for something to keep up.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Options of a view that are about its store.
const OPTIONS: &[&str] = &["history_retention", "compact_files", "vacuum_after"];

impl Engine {
    /// Keeps up every view that this engine writes, for as long as the engine is there. An engine whose epochs are cut
    /// by hand is kept up by hand too, so that its epochs keep their numbers.
    pub(super) fn keep_up(&self) {
        if self.inner.read_only || self.inner.options.epochs == Epochs::Manual {
            return;
        }
        let engine = Arc::downgrade(&self.inner);
        repeat(LOOK_EVERY, move || look(Weak::clone(&engine)).boxed());
    }

    pub(super) async fn maintain(&self, task: Maintenance, view: &Spanned<String>) -> Result<Outcome> {
        let entry = self.inner.catalog.view_entry(&view.node);
        let entry = entry.ok_or_else(|| self.unknown("view", &view.node).at(view.position))?;
        let (tag, report) = match task {
            Maintenance::Optimize => {
                self.must_hold("OPTIMIZE").await?;
                ("OPTIMIZE", entry.writer.optimize().await?)
            }
            Maintenance::Vacuum => {
                self.must_hold("VACUUM").await?;
                ("VACUUM", entry.writer.vacuum().await?)
            }
        };
        let mut notices = Vec::new();
        if report.partitions > 0 {
            notices.push(format!("{} files are {} now", report.replaced, report.written));
        }
        if report.forgotten > 0 {
            notices.push(format!("{} versions beyond history_retention dropped", report.forgotten));
        }
        if report.deleted > 0 {
            notices.push(format!("{} files deleted", report.deleted));
        }
        if notices.is_empty() {
            notices.push("nothing to do".to_owned());
        }
        Ok(Outcome::Done { tag: tag.to_owned(), notices })
    }
}

/// Looks at each view once.
async fn look(engine: Weak<Inner>) -> Again {
    let Some(inner) = engine.upgrade() else { return Again::No };
    let views = inner.catalog.views();
    drop(inner); // A look may take long, and an engine that nobody holds any more must not wait for it.
    for (name, view) in views {
        match view.writer.keep_up().await {
            Ok(_) => {}
            // Its job finds out as well, and says so.
            Err(e) if matches!(e.kind(), ErrorKind::Fenced | ErrorKind::Closed) => {}
            Err(error) => tracing::warn!(view = name, "keeping up its store failed: {error}"),
        }
    }
    Again::Yes
}

/// What the options of a view say about its store.
///
/// # Errors
/// `Invalid` for an option a view does not have, or a value that is none.
pub(super) fn upkeep_of(options: &Options) -> Result<Upkeep> {
    let mut upkeep = Upkeep::default();
    for (name, text) in options {
        let bad = |expected: &str| Error::invalid(format!("option '{name}' is '{text}', expected {expected}"));
        let length = || parse_duration(text).ok_or_else(|| bad("a length of time such as '30 days'"));
        match name.as_str() {
            "history_retention" => upkeep.history_retention = Some(length()?),
            "vacuum_after" => upkeep.vacuum_after = length()?,
            "compact_files" => {
                let files = text.replace('_', "").parse().ok().filter(|files| *files >= 2);
                upkeep.fresh_files_max = files.ok_or_else(|| bad("a number of files, 2 or more"))?;
            }
            _ => {
                let error = Error::invalid(format!("a view has no option '{name}'"));
                return Err(match nearest(name, OPTIONS) {
                    Some(known) => error.with_hint(format!("did you mean '{known}'?")),
                    None => error.with_hint(format!("it has {}", OPTIONS.join(", "))),
                });
            }
        }
    }
    Ok(upkeep)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn options_of_a_view_are_read_and_others_refused_with_the_likely_name() {
        let upkeep = upkeep_of(&options(&[("history_retention", "30 days"), ("compact_files", "4")])).unwrap();
        assert_eq!(upkeep.history_retention, Some(Duration::from_secs(30 * 86_400)));
        assert_eq!(upkeep.fresh_files_max, 4);
        let e = upkeep_of(&options(&[("history_retension", "30 days")])).unwrap_err();
        assert_eq!(e.hint(), Some("did you mean 'history_retention'?"));
        assert!(upkeep_of(&options(&[("vacuum_after", "soon")])).is_err());
        assert!(upkeep_of(&options(&[("compact_files", "1")])).is_err());
    }
}
