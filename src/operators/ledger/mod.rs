//! What is known of each window of a view: the rows of `v$windows`.
//!
//! Windows that have expired are forgotten but for the newest, or they would be there for ever. A row that comes for one
//! of them all the same makes a status that says so ([`WindowStatus::partial`]); whoever stores it adds what is stored.

pub mod rows;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::fate::WindowCounts;
use super::graph::Policy;
use super::lifecycle::expires_at;
use crate::window::Window;

/// So many expired windows are remembered.
const EXPIRED_MAX: usize = 256;

/// Where a window stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStatus {
    /// Where it stands.
    pub state: WindowState,
    /// Fates of its pairs, over all keys.
    pub counts: WindowCounts,
    /// The first W that was its end or above, µs: the end of the input, too. `None` while it is open, if no row of it had
    /// come by then, and for sessions, whose ends move.
    pub w_at_close: Option<i64>,
    /// A value newer than the published one is kept back (MAX n UPDATES).
    pub dirty: bool,
    /// A late or expired row is queued for a batch run.
    pub needs_recompute: bool,
    /// The window had been forgotten: counts are those that came since, and are to be added to the stored ones.
    #[serde(default)]
    pub partial: bool,
}

/// The windows of one view.
#[derive(Debug, Default)]
pub struct Ledger {
    windows: BTreeMap<(i64, i64), WindowStatus>,
    changed: BTreeSet<(i64, i64)>,
    dirty: BTreeSet<(i64, i64)>,
    w: Option<i64>,
    /// Values of W at which windows have closed since the last epoch, ascending.
    closings: Vec<i64>,
    /// Whether a window has been forgotten.
    forgetful: bool,
    unread: bool,
}

/// What a checkpoint keeps of a [`Ledger`] beside its windows, which are [`rows`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerState {
    /// W at the last step, if there was one.
    pub w: Option<i64>,
    /// Whether a window has been forgotten.
    pub forgetful: bool,
}

impl Ledger {
    /// A ledger for a query whose windows nobody asks about: it keeps nothing.
    pub fn unread() -> Self {
        Self { unread: true, ..Self::default() }
    }

    /// What a checkpoint must keep at the end of an epoch, beside the windows.
    pub fn state(&self) -> LedgerState {
        LedgerState { w: self.w, forgetful: self.forgetful }
    }

    /// Every window that is remembered.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = (Window, WindowStatus)> + '_ {
        self.windows.iter().map(|((end, start), status)| (Window { start: *start, end: *end }, *status))
    }

    /// The ledger of a checkpoint. `windows` may speak of one several times: the last word counts.
    pub fn restore(state: LedgerState, windows: impl IntoIterator<Item = (Window, WindowStatus)>) -> Self {
        let windows = windows.into_iter().map(|(window, status)| ((window.end, window.start), status));
        let mut ledger = Self { windows: windows.collect(), w: state.w, ..Self::default() };
        ledger.forget();
        ledger.forgetful = state.forgetful;
        let dirty = ledger.windows.iter().filter(|(_, status)| status.dirty);
        ledger.dirty = dirty.map(|(key, _)| *key).collect();
        ledger
    }

    /// Adds fates of pairs.
    pub fn add(&mut self, policy: &Policy, window: Window, counts: WindowCounts) {
        if self.unread {
            return;
        }
        let key = (window.end, window.start);
        let (w, forgetful) = (self.w, self.forgetful);
        let status = self.windows.entry(key).or_insert_with(|| {
            let new = WindowStatus::at(policy, window, w);
            WindowStatus { partial: forgetful && new.state == WindowState::Expired, ..new }
        });
        if status.state != WindowState::Open && counts.on_time > 0 {
            status.w_at_close = closing_of(&self.closings, window.end);
        }
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

    /// W has risen to `w`; `closings` as [`Sequencer::take_closings`](super::sequence::Sequencer::take_closings) says.
    pub fn on_watermark(&mut self, policy: &Policy, w: i64, closings: &[i64]) {
        if self.unread {
            return;
        }
        self.closings.extend_from_slice(closings);
        let from = self.w.replace(w).unwrap_or(i64::MIN);
        // Windows that may expire, and those that may close. The ones between stay closed.
        let expired = |w: i64| w.saturating_sub(policy.allowed_lateness_us);
        if expired(w) < from {
            self.look_at(policy, expired(from), expired(w), w);
            self.look_at(policy, from, w, w);
        } else {
            self.look_at(policy, expired(from), w, w);
        }
    }

    /// Brings the windows that end in `[first, last]` to the state that `w` asks for.
    fn look_at(&mut self, policy: &Policy, first: i64, last: i64, w: i64) {
        for (key, status) in self.windows.range_mut((first, i64::MIN)..=(last, i64::MAX)) {
            let window = Window { start: key.1, end: key.0 };
            let state = WindowStatus::at(policy, window, Some(w)).state;
            if state != status.state {
                if status.state == WindowState::Open {
                    status.w_at_close = closing_of(&self.closings, window.end);
                }
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
        self.closings.clear();
        let changed = std::mem::take(&mut self.changed);
        let status = |key: (i64, i64)| (Window { start: key.1, end: key.0 }, self.windows[&key]);
        let changed: Vec<_> = changed.into_iter().map(status).collect();
        for (window, _) in changed.iter().filter(|(_, status)| status.partial) {
            self.windows.remove(&(window.end, window.start));
        }
        self.forget();
        changed
    }

    fn forget(&mut self) {
        let expired = self.windows.values().take_while(|status| status.state == WindowState::Expired).count();
        for _ in EXPIRED_MAX..expired {
            self.windows.pop_first();
            self.forgetful = true;
        }
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
        let (dirty, needs_recompute, partial) = (false, false, false);
        Self { state, counts: WindowCounts::default(), w_at_close: None, dirty, needs_recompute, partial }
    }
}

fn closing_of(closings: &[i64], end: i64) -> Option<i64> {
    closings.get(closings.partition_point(|w| *w < end)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::{Emit, OnExpired, OnLate};

    #[test]
    fn windows_close_and_expire_whatever_the_steps_of_w() {
        let policy = Policy {
            allowed_lateness_us: 25,
            on_late: OnLate::Drop,
            on_expired: OnExpired::Drop,
            emit: Emit::OnWindowClose,
        };
        for steps in [vec![10, 12, 35, 36, 60, 200], vec![55, 200], vec![10, 90, 91, 200], vec![200]] {
            let mut ledger = Ledger::default();
            for i in 0..10 {
                ledger.add(&policy, Window { start: i * 10, end: i * 10 + 10 }, WindowCounts::default());
            }
            for w in steps {
                ledger.on_watermark(&policy, w, &[w]);
                for ((end, _), status) in &ledger.windows {
                    let state = match (*end <= w, *end + 25 < w) {
                        (false, _) => WindowState::Open,
                        (true, false) => WindowState::Closed,
                        (true, true) => WindowState::Expired,
                    };
                    assert_eq!(status.state, state, "end {end} at {w}");
                }
            }
        }
    }

    #[test]
    fn old_windows_are_forgotten_and_rows_for_them_are_said_to_be_a_part() {
        let policy = Policy {
            allowed_lateness_us: 0,
            on_late: OnLate::Drop,
            on_expired: OnExpired::SideOutput,
            emit: Emit::OnWindowClose,
        };
        let window = |i: i64| Window { start: i * 10, end: i * 10 + 10 };
        let one = |late: bool| WindowCounts {
            on_time: u64::from(!late),
            refused_expired: u64::from(late),
            ..WindowCounts::default()
        };
        let mut ledger = Ledger::default();
        let windows = EXPIRED_MAX as i64 + 5;
        for i in 0..windows {
            ledger.add(&policy, window(i), one(false));
        }
        ledger.on_watermark(&policy, (windows - 1) * 10, &[]);
        assert_eq!(ledger.take_changed().len(), windows as usize);
        assert_eq!(ledger.windows().len(), EXPIRED_MAX + 1);

        let mut ledger = Ledger::restore(ledger.state(), ledger.windows());
        ledger.add(&policy, window(0), one(true));
        ledger.add(&policy, window(windows - 2), one(true));
        let changed = ledger.take_changed();
        assert_eq!(changed[0].1.counts, one(true));
        assert!(changed[0].1.partial && changed[0].1.state == WindowState::Expired);
        assert_eq!((changed[1].1.counts.on_time, changed[1].1.counts.refused_expired), (1, 1));
        assert!(!changed[1].1.partial);
        // What was told of a forgotten window is not told twice.
        ledger.add(&policy, window(0), one(true));
        assert_eq!(ledger.take_changed()[0].1.counts, one(true));
    }
}
