//! Work that comes round again beside the jobs.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::MissedTickBehavior;

/// Calls `work` every `every`, one call at a time, until it says that there will be no more to do. A call that takes
/// longer than `every` delays the next one. Time is tokio's: it decides when, never what.
pub fn repeat(every: Duration, mut work: impl FnMut() -> BoxFuture<'static, Again> + Send + 'static) {
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await; // The first tick is at once, and there is nothing to do yet.
        loop {
            ticks.tick().await;
            if work().await == Again::No {
                return;
            }
        }
    });
}

/// Whether work comes round again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It does.
    Yes,
    /// It does not.
    No,
}
