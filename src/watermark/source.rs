//! The watermark of a source, the minimum over its active splits, and of sources united.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{END, NONE, WatermarkSpec};

/// The watermark of a source: the minimum over its active splits (T3), idle ones left out (T7).
///
/// | event | effect |
/// | --- | --- |
/// | rows | the split is active, its W as given |
/// | asked, had nothing | once that has lasted for IDLE TIMEOUT, the split leaves the minimum until it has rows |
/// | paused, not asked | nothing: a stalled split holds W, however long |
/// | a split is found | it counts at once, with no W yet; W does not go back |
/// | a split ends | it leaves for good; when all have and no more can come, W is [`END`] |
/// | all splits idle | W stays; see [`SourceWatermark::idle_close_due`] |
#[derive(Debug, Clone)]
pub struct SourceWatermark {
    idle_timeout_us: Option<i64>,
    idle_close_after_us: Option<i64>,
    splits: BTreeMap<Arc<str>, Split>,
    /// No split will be added.
    complete: bool,
    w: i64,
}

#[derive(Debug, Clone, Copy)]
struct Split {
    state: SplitSnapshot,
    /// Since when it has had nothing whenever it was asked. A time of day, so of no meaning to another process.
    quiet_since_us: Option<i64>,
}

/// What a checkpoint keeps of a split in a [`SourceWatermark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitSnapshot {
    /// Its W; [`NONE`] if it has had no row.
    pub w: i64,
    /// The first W it had; [`NONE`] if it has had none.
    pub first_w: i64,
    /// It is out of the minimum until it has rows.
    pub idle: bool,
    /// It is out of the minimum for good.
    pub ended: bool,
}

impl SplitSnapshot {
    const NEW: Self = Self { w: NONE, first_w: NONE, idle: false, ended: false };

    fn is_active(&self) -> bool {
        !self.idle && !self.ended
    }
}

/// What a checkpoint keeps of a [`SourceWatermark`]. Splits without a W are legal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSnapshot {
    /// W of the source.
    pub w: i64,
    /// Its splits by name.
    pub splits: BTreeMap<Arc<str>, SplitSnapshot>,
}

impl SourceWatermark {
    /// A source without splits, whose W is [`NONE`].
    pub fn new(spec: &WatermarkSpec) -> Self {
        Self {
            idle_timeout_us: spec.idle_timeout_us,
            idle_close_after_us: spec.idle_close_after_us,
            splits: BTreeMap::new(),
            complete: false,
            w: NONE,
        }
    }

    /// The watermark of a checkpoint. Idle splits stay idle until they have rows; whether more splits can come is to be
    /// said again.
    pub fn restore(spec: &WatermarkSpec, snapshot: SourceSnapshot) -> Self {
        let split = |state| Split { state, quiet_since_us: None };
        let splits = snapshot.splits.into_iter().map(|(name, state)| (name, split(state))).collect();
        Self { splits, w: snapshot.w, ..Self::new(spec) }
    }

    /// What a checkpoint must keep.
    pub fn snapshot(&self) -> SourceSnapshot {
        let splits = self.splits.iter().map(|(name, split)| (Arc::clone(name), split.state)).collect();
        SourceSnapshot { w: self.w, splits }
    }

    /// W now.
    pub fn w(&self) -> i64 {
        self.w
    }

    /// A split was found. One that is known already stays as it is.
    pub fn add_split(&mut self, name: Arc<str>) {
        self.splits.entry(name).or_insert(Split { state: SplitSnapshot::NEW, quiet_since_us: None });
    }

    /// No split will be added: a bounded source has been listed, or a pushed one was closed. Returns W, which is [`END`]
    /// if every split has ended.
    pub fn complete(&mut self) -> i64 {
        self.complete = true;
        self.advance()
    }

    /// A split had rows. `after` is its W after each of them, as [`super::SplitWatermark::advance`] gives it; appended to `met`
    /// is the W of the source before each, which they are judged by. Returns that after the last. An unknown split is added.
    pub fn on_rows(&mut self, name: &str, after: &[i64], met: &mut Vec<i64>) -> i64 {
        let Some(&last) = after.last() else { return self.w };
        met_by_rows(self.w, self.lowest_but(name), after, met);
        let split = self.split(name);
        split.quiet_since_us = None;
        split.state.idle = false;
        split.state.w = split.state.w.max(last);
        if split.state.first_w == NONE {
            split.state.first_w = after[0];
        }
        self.advance()
    }

    /// A split was asked at `now_us` and had nothing. Returns W, which rises if that makes the split idle.
    pub fn on_nothing(&mut self, name: &str, now_us: i64) -> i64 {
        let timeout_us = self.idle_timeout_us;
        let split = self.split(name);
        // A clock that was set back starts the count again, so that it is never stuck.
        let since_us = split.quiet_since_us.filter(|&since| since <= now_us).unwrap_or(now_us);
        split.quiet_since_us = Some(since_us);
        if timeout_us.is_some_and(|timeout| now_us.saturating_sub(since_us) >= timeout) {
            split.state.idle = true;
        }
        self.advance()
    }

    /// A split is not being asked, because it is paused or its reader is held up: however long that lasts, it does not make
    /// the split idle.
    pub fn on_stalled(&mut self, name: &str) {
        self.split(name).quiet_since_us = None;
    }

    /// A split has ended. Returns W.
    pub fn on_end(&mut self, name: &str) -> i64 {
        self.split(name).state.ended = true;
        self.advance()
    }

    /// Raises W by hand, or to the end of the newest open window when [`SourceWatermark::idle_close_due`]. Lower values change
    /// nothing.
    pub fn raise_to(&mut self, w: i64) -> i64 {
        self.w = self.w.max(w);
        self.w
    }

    /// Whether at least one split has not ended, and all of those are idle.
    pub fn is_idle(&self) -> bool {
        let mut open = self.splits.values().filter(|split| !split.state.ended).peekable();
        open.peek().is_some() && open.all(|split| split.state.idle)
    }

    /// Whether W should be raised to the end of the newest open window: all splits have been idle for IDLE CLOSE AFTER.
    /// Without IDLE TIMEOUT, a split counts as idle from the first time it had nothing.
    pub fn idle_close_due(&self, now_us: i64) -> bool {
        let Some(after_us) = self.idle_close_after_us else { return false };
        let wait_us = after_us.saturating_add(self.idle_timeout_us.unwrap_or(0));
        let mut open = self.splits.values().filter(|split| !split.state.ended).peekable();
        let quiet = |split: &Split| split.quiet_since_us.is_some_and(|since| now_us.saturating_sub(since) >= wait_us);
        open.peek().is_some() && open.all(quiet)
    }

    /// Whether a split is so far ahead of the lowest that it should be paused (T7). The lowest never is, so reading goes on.
    /// While a split has no W at all, the others may go `max_ahead_us` beyond their own first.
    pub fn is_ahead(&self, name: &str, max_ahead_us: i64) -> bool {
        let Some(split) = self.splits.get(name) else { return false };
        let lowest = match self.lowest_but(name) {
            NONE => split.state.first_w,
            others => others,
        };
        lowest != END && split.state.w != NONE && split.state.w.saturating_sub(lowest) > max_ahead_us
    }

    /// The active splits with the lowest W, which hold the source's, in name order: for status and EXPLAIN.
    pub fn held_by(&self) -> impl Iterator<Item = &str> {
        let lowest = self.lowest_but("");
        let holds = move |split: &Split| split.state.is_active() && split.state.w == lowest;
        self.splits.iter().filter(move |(_, split)| holds(split)).map(|(name, _)| &**name)
    }

    /// W of every split by name, [`NONE`] if it has none, and whether it is idle or has ended.
    pub fn splits(&self) -> impl Iterator<Item = (&str, SplitSnapshot)> {
        self.splits.iter().map(|(name, split)| (&**name, split.state))
    }

    fn split(&mut self, name: &str) -> &mut Split {
        if !self.splits.contains_key(name) {
            self.add_split(name.into());
        }
        self.splits.get_mut(name).expect("just added")
    }

    /// The lowest W of active splits other than one; [`END`] if there are none.
    fn lowest_but(&self, name: &str) -> i64 {
        let others = self.splits.iter().filter(|(other, split)| split.state.is_active() && &***other != name);
        others.map(|(_, split)| split.state.w).min().unwrap_or(END)
    }

    fn advance(&mut self) -> i64 {
        let active = self.splits.values().filter(|split| split.state.is_active());
        let ended = self.complete && self.splits.values().all(|split| split.state.ended);
        match active.map(|split| split.state.w).min() {
            Some(lowest) => self.w = self.w.max(lowest),
            None if ended => self.w = END,
            None => {}
        }
        self.w
    }
}

/// Appends the W of the whole before each row of one member, given the member's W after each of them. Before them that of the
/// whole was `w`; its other members are at `others` or above.
fn met_by_rows(w: i64, others: i64, after: &[i64], met: &mut Vec<i64>) {
    met.push(w);
    met.extend(after[..after.len() - 1].iter().map(|&own| w.max(others.min(own))));
}

/// The watermark of sources united: the minimum over them (T3).
///
/// A source all of whose splits are idle leaves the minimum until it has rows, as a split does; if all are idle, W stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnionWatermark {
    /// W of each source, and whether it is idle.
    sources: Vec<(i64, bool)>,
    w: i64,
}

impl UnionWatermark {
    /// Sources without a W.
    pub fn new(sources: usize) -> Self {
        Self { sources: vec![(NONE, false); sources], w: NONE }
    }

    /// W now.
    pub fn w(&self) -> i64 {
        self.w
    }

    /// A source had rows; as [`SourceWatermark::on_rows`], one level up. `after` is the source's W after each of them: what the next
    /// one met, and for the last what that method returned.
    pub fn on_rows(&mut self, source: usize, after: &[i64], met: &mut Vec<i64>) -> i64 {
        let Some(&last) = after.last() else { return self.w };
        let others = self.sources.iter().enumerate().filter(|&(other, &(_, idle))| other != source && !idle);
        met_by_rows(self.w, others.map(|(_, &(w, _))| w).min().unwrap_or(END), after, met);
        self.on_watermark(source, last, false)
    }

    /// A source's W is `w` now, without rows: it is idle or not, or has ended at [`END`]. Returns W.
    pub fn on_watermark(&mut self, source: usize, w: i64, idle: bool) -> i64 {
        let member = &mut self.sources[source];
        *member = (member.0.max(w), idle);
        let active = self.sources.iter().filter(|(_, idle)| !idle).map(|&(w, _)| w);
        // Sources that have ended say nothing while others are idle.
        let idle = self.sources.iter().any(|&(w, idle)| idle && w != END);
        match active.min() {
            Some(END) if idle => {}
            Some(lowest) => self.w = self.w.max(lowest),
            None => {}
        }
        self.w
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{HOUR_US, MINUTE_US, SECOND_US};
    use crate::watermark::Strategy;

    const S: i64 = SECOND_US;

    fn source(idle_timeout_us: Option<i64>, splits: &[&str]) -> SourceWatermark {
        let strategy = Strategy::BoundedOutOfOrderness;
        let spec = WatermarkSpec { strategy, idle_timeout_us, idle_close_after_us: Some(5 * MINUTE_US) };
        let mut source = SourceWatermark::new(&spec);
        for &split in splits {
            source.add_split(split.into());
        }
        source
    }

    fn held_by(source: &SourceWatermark) -> Vec<&str> {
        source.held_by().collect()
    }

    #[test]
    fn c28_idle_partition() {
        let mut w = source(Some(MINUTE_US), &["p0", "p1"]);
        w.on_rows("p1", &[5 * S], &mut Vec::new());
        assert_eq!(w.on_rows("p0", &[60 * S], &mut Vec::new()), 5 * S);
        assert_eq!(held_by(&w), ["p1"]);
        assert_eq!(w.on_nothing("p1", 0), 5 * S);
        assert_eq!(w.on_nothing("p1", MINUTE_US - 1), 5 * S);
        assert_eq!(w.on_nothing("p1", MINUTE_US), 60 * S);
        // It speaks again behind W, which stays; and counts again.
        let mut met = Vec::new();
        assert_eq!(w.on_rows("p1", &[58 * S, 59 * S], &mut met), 60 * S);
        assert_eq!(met, [60 * S; 2]);
        assert_eq!(w.on_rows("p0", &[90 * S], &mut Vec::new()), 60 * S);
        assert_eq!(held_by(&w), ["p1"]);
    }

    #[test]
    fn without_a_timeout_no_split_is_idle() {
        let mut w = source(None, &["p0", "p1"]);
        w.on_rows("p0", &[60 * S], &mut Vec::new());
        assert_eq!(w.on_nothing("p1", 0), NONE);
        assert_eq!(w.on_nothing("p1", i64::MAX), NONE);
    }

    #[test]
    fn c29_partition_that_never_had_a_row() {
        let mut w = source(Some(MINUTE_US), &["p0", "p1"]);
        assert_eq!(w.on_rows("p0", &[60 * S], &mut Vec::new()), NONE);
        assert_eq!(held_by(&w), ["p1"]);
        w.on_nothing("p1", 10);
        assert_eq!(w.on_nothing("p1", 10 + MINUTE_US), 60 * S);
    }

    #[test]
    fn c31_stalled_is_not_idle() {
        let mut w = source(Some(MINUTE_US), &["p0", "p1"]);
        w.on_rows("p1", &[20 * S], &mut Vec::new());
        w.on_rows("p0", &[90 * S], &mut Vec::new());
        w.on_nothing("p1", 0);
        w.on_stalled("p1");
        // Much later it is asked for the first time since.
        assert_eq!(w.on_nothing("p1", HOUR_US), 20 * S);
        assert_eq!(w.on_nothing("p1", HOUR_US + MINUTE_US), 90 * S);
    }

    #[test]
    fn a_clock_that_steps_back_delays_idleness_and_does_not_block_it() {
        let mut w = source(Some(MINUTE_US), &["p0", "p1"]);
        w.on_rows("p0", &[60 * S], &mut Vec::new());
        w.on_nothing("p1", HOUR_US);
        w.on_nothing("p1", 0);
        assert_eq!(w.on_nothing("p1", MINUTE_US), 60 * S);
    }

    #[test]
    fn c36_union_takes_the_minimum() {
        let mut union = UnionWatermark::new(2);
        assert_eq!(union.on_rows(0, &[5 * S], &mut Vec::new()), NONE);
        assert_eq!(union.on_rows(0, &[100 * S], &mut Vec::new()), NONE);
        assert_eq!(union.on_rows(1, &[20 * S], &mut Vec::new()), 20 * S);
        let mut met = Vec::new();
        assert_eq!(union.on_rows(1, &[30 * S, 50 * S], &mut met), 50 * S);
        assert_eq!(met, [20 * S, 30 * S]);
        // An idle source leaves, an ended one too; W never goes back.
        assert_eq!(union.on_watermark(1, 50 * S, true), 100 * S);
        assert_eq!(union.on_rows(1, &[60 * S], &mut Vec::new()), 100 * S);
        assert_eq!(union.on_watermark(1, 60 * S, true), 100 * S);
        assert_eq!(union.on_watermark(0, END, false), 100 * S);
        assert_eq!(union.on_watermark(1, END, false), END);
    }

    #[test]
    fn c37_partition_added_while_running() {
        let mut w = source(None, &["p0"]);
        assert_eq!(w.on_rows("p0", &[100 * S], &mut Vec::new()), 100 * S);
        w.add_split("p2".into());
        assert_eq!(held_by(&w), ["p2"]);
        assert_eq!(w.on_rows("p0", &[200 * S], &mut Vec::new()), 100 * S);
        // Its rows at 40 and 120 meet 100; then it counts.
        let mut met = Vec::new();
        assert_eq!(w.on_rows("p2", &[40 * S, 120 * S], &mut met), 120 * S);
        assert_eq!(met, [100 * S, 100 * S]);
    }

    #[test]
    fn c42_partial_watermark_state_is_legal() {
        let mut w = source(Some(MINUTE_US), &["p0", "p1"]);
        w.on_rows("p0", &[50 * S], &mut Vec::new());
        let json = serde_json::to_string(&w.snapshot()).unwrap();
        let snapshot: SourceSnapshot = serde_json::from_str(&json).unwrap();
        assert_eq!(snapshot, w.snapshot());
        let spec = WatermarkSpec { strategy: Strategy::Punctuated, idle_timeout_us: None, idle_close_after_us: None };
        let mut restored = SourceWatermark::restore(&spec, snapshot);
        assert_eq!(restored.w(), NONE);
        assert_eq!(held_by(&restored), ["p1"]);
        assert_eq!(restored.on_rows("p1", &[60 * S], &mut Vec::new()), 50 * S);
    }

    #[test]
    fn c60_end_of_file() {
        let mut w = source(None, &["a", "b"]);
        w.complete();
        w.on_rows("a", &[23 * S], &mut Vec::new());
        w.on_rows("b", &[12 * S], &mut Vec::new());
        assert_eq!(w.on_end("b"), 23 * S);
        assert_eq!(w.on_end("a"), END);
        // A live source may get more splits, so the end of those it has says nothing.
        let mut live = source(None, &["a"]);
        live.on_rows("a", &[23 * S], &mut Vec::new());
        assert_eq!(live.on_end("a"), 23 * S);
        assert_eq!(source(None, &[]).complete(), END);
    }

    #[test]
    fn c87_uneven_partitions_in_a_replay() {
        let mut w = source(None, &["p0", "p1"]);
        // Nothing of p1 yet: p0 may go as far as the limit beyond its own first row.
        w.on_rows("p0", &[10 * S], &mut Vec::new());
        assert!(!w.is_ahead("p0", HOUR_US));
        w.on_rows("p0", &[10 * S + HOUR_US + 1], &mut Vec::new());
        assert!(w.is_ahead("p0", HOUR_US) && !w.is_ahead("p1", HOUR_US));
        w.on_rows("p1", &[50 * S], &mut Vec::new());
        assert!(!w.is_ahead("p0", HOUR_US));
        w.on_rows("p0", &[51 * S + HOUR_US], &mut Vec::new());
        assert!(w.is_ahead("p0", HOUR_US) && !w.is_ahead("p1", HOUR_US));
        assert_eq!(w.w(), 50 * S);
        // When p1 is out, nothing is ahead of anything.
        w.on_end("p1");
        assert!(!w.is_ahead("p0", HOUR_US));
    }

    #[test]
    fn all_idle_leaves_w_until_the_close_is_due() {
        let mut w = source(Some(MINUTE_US), &["p0", "p1"]);
        w.on_rows("p0", &[60 * S], &mut Vec::new());
        w.on_rows("p1", &[30 * S], &mut Vec::new());
        w.on_nothing("p0", 0);
        w.on_nothing("p1", 10);
        assert_eq!(w.on_nothing("p1", 10 + MINUTE_US), 60 * S, "p0 is not idle yet");
        assert!(!w.is_idle());
        assert_eq!(w.on_nothing("p0", 20 + MINUTE_US), 60 * S);
        assert!(w.is_idle());
        let due = 10 + MINUTE_US + 5 * MINUTE_US;
        assert!(!w.idle_close_due(due - 1) && w.idle_close_due(due));
        assert_eq!(w.raise_to(70 * S), 70 * S);
        assert_eq!(w.raise_to(65 * S), 70 * S);
        w.on_rows("p1", &[31 * S], &mut Vec::new());
        assert!(!w.is_idle() && !w.idle_close_due(due + HOUR_US));
        assert_eq!(w.w(), 70 * S);
    }

    proptest::proptest! {
        #[test]
        fn w_never_goes_back_and_rows_meet_it_in_order(
            events in proptest::collection::vec((0usize..3, 0u8..8, 0i64..100, 0i64..50), 1..80),
        ) {
            let mut source = source(Some(20), &[]);
            let (mut split_w, mut w, mut now) = ([NONE; 3], NONE, 0);
            for (split, event, value, pass) in events {
                let name = ["a", "b", "c"][split];
                now += pass;
                let mut met = Vec::new();
                let after = match event {
                    0..4 => {
                        let first = split_w[split].max(value / 2);
                        split_w[split] = first.max(value);
                        source.on_rows(name, &[first, split_w[split]], &mut met)
                    }
                    4 => source.on_nothing(name, now),
                    5 => { source.on_stalled(name); source.w() }
                    6 => { source.add_split(name.into()); source.w() }
                    _ => { source = SourceWatermark::restore(
                        &WatermarkSpec { strategy: Strategy::BoundedOutOfOrderness, idle_timeout_us: Some(20), idle_close_after_us: None },
                        source.snapshot());
                        source.w()
                    }
                };
                if event < 4 {
                    proptest::prop_assert!(met[0] == w && met[0] <= met[1] && met[1] <= after);
                }
                proptest::prop_assert!(after >= w);
                w = after;
            }
        }
    }
}
