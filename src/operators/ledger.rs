//! What is known of each window of a view: the rows of `v$windows`.

use std::collections::{BTreeMap, BTreeSet};

use super::fate::WindowCounts;
use super::graph::Policy;
use super::lifecycle::expires_at;
use crate::window::Window;

/// Where a window stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowState {
    /// It takes rows on time.
    Open,
    /// `W >= end`; late rows may still be taken.
    Closed,
    /// Its state is gone.
    Expired,
}

impl WindowState {
    /// The text of the `state` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Expired => "expired",
        }
    }
}

/// One window's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowStatus {
    /// Where it stands.
    pub state: WindowState,
    /// Fates of its pairs, over all keys.
    pub counts: WindowCounts,
    /// W when it closed, µs.
    pub w_at_close: Option<i64>,
    /// A value newer than the published one is kept back (MAX n UPDATES).
    pub dirty: bool,
    /// A late or expired row is queued for a batch run.
    pub needs_recompute: bool,
}

/// The windows of one view.
#[derive(Debug, Default)]
pub struct Ledger {
    windows: BTreeMap<(i64, i64), WindowStatus>,
    changed: BTreeSet<(i64, i64)>,
    dirty: BTreeSet<(i64, i64)>,
    w: Option<i64>,
    unread: bool,
}

impl Ledger {
    /// A ledger for a query whose windows nobody asks about: it keeps nothing.
    pub fn unread() -> Self {
        Self { unread: true, ..Self::default() }
    }

    /// Adds fates of pairs.
    pub fn add(&mut self, policy: &Policy, window: Window, counts: WindowCounts) {
        if self.unread {
            return;
        }
        let key = (window.end, window.start);
        let w = self.w;
        let status = self.windows.entry(key).or_insert_with(|| WindowStatus::at(policy, window, w));
        status.counts.on_time += counts.on_time;
        status.counts.late += counts.late;
        status.counts.refused_late += counts.refused_late;
        status.counts.refused_expired += counts.refused_expired;
        status.needs_recompute |= counts.refused_late > 0 && policy.queues(true);
        status.needs_recompute |= counts.refused_expired > 0 && policy.queues(false);
        self.changed.insert(key);
    }

    /// Takes fates of pairs away again: those of a session that is another one now.
    pub fn remove(&mut self, window: Window, counts: WindowCounts) {
        let key = (window.end, window.start);
        if let Some(status) = self.windows.get_mut(&key) {
            status.counts.on_time = status.counts.on_time.saturating_sub(counts.on_time);
            status.counts.late = status.counts.late.saturating_sub(counts.late);
            self.changed.insert(key);
        }
    }

    /// W has risen to `w`.
    pub fn on_watermark(&mut self, policy: &Policy, w: i64) {
        let from = self.w.replace(w);
        // Only windows between the last expiry and the new close can change their state.
        let first = from.map_or(i64::MIN, |w| w.saturating_sub(policy.allowed_lateness_us));
        for (key, status) in self.windows.range_mut((first, i64::MIN)..=(w, i64::MAX)) {
            let window = Window { start: key.1, end: key.0 };
            let state = WindowStatus::at(policy, window, Some(w)).state;
            if state != status.state {
                status.w_at_close.get_or_insert(w);
                status.state = state;
                self.changed.insert(*key);
            }
        }
    }

    /// Notes which windows have a value kept back, now.
    pub fn set_dirty(&mut self, windows: impl Iterator<Item = Window>) {
        let now: BTreeSet<_> = windows.map(|window| (window.end, window.start)).collect();
        for key in self.dirty.symmetric_difference(&now) {
            if let Some(status) = self.windows.get_mut(key) {
                status.dirty = now.contains(key);
                self.changed.insert(*key);
            }
        }
        self.dirty = now;
    }

    /// The windows that changed since the last call, with all that is known of them.
    pub fn take_changed(&mut self) -> Vec<(Window, WindowStatus)> {
        let changed = std::mem::take(&mut self.changed);
        let status = |key: (i64, i64)| (Window { start: key.1, end: key.0 }, self.windows[&key]);
        changed.into_iter().map(status).collect()
    }
}

impl WindowStatus {
    fn at(policy: &Policy, window: Window, w: Option<i64>) -> Self {
        let w = w.unwrap_or(crate::watermark::NONE);
        let closed = window.end <= w;
        let state = match closed {
            false => WindowState::Open,
            true if expires_at(policy, window.end) <= w => WindowState::Expired,
            true => WindowState::Closed,
        };
        let w_at_close = closed.then_some(w);
        Self { state, counts: WindowCounts::default(), w_at_close, dirty: false, needs_recompute: false }
    }
}
