//! Live against batch, window by window, with the cause of each difference.
//!
//! The cause is found by counting rows, not by comparing values: a window of which the batch read as many rows as its
//! job took has no business having another value.
//!
//! ```text
//!  rows the batch read = rows the job took + rows it refused + rows that came since - rows that are gone
//! ```

use std::collections::BTreeMap;

use super::reconcile::Differing;
use super::stored::Known;
use crate::window::Window;

/// Which windows' rows explain a window's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explains {
    /// Its own.
    Same,
    /// Those of the windows inside it: it is a window over results.
    Inside,
    /// Those of all it overlaps: sessions differ in their bounds.
    Overlapping,
}

/// One window, or a group of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Its results.
    pub results: Differing,
    /// Rows its job took.
    pub live_rows: u64,
    /// Rows the batch read.
    pub batch_rows: u64,
    /// Refused as expired, and read by the batch.
    pub expired: u64,
    /// Refused as late.
    pub late: u64,
    /// Read by the batch, and neither taken nor refused.
    pub newer: u64,
    /// Taken or refused, and not there for the batch.
    pub gone: u64,
    /// Results that differ though both sides saw the same rows.
    pub unexplained: u64,
}

impl Verified {
    /// The causes, as text: `expired 3, newer input 2`.
    pub fn causes(&self) -> String {
        let causes = [
            ("expired", self.expired),
            ("late", self.late),
            ("newer input", self.newer),
            ("input gone", self.gone),
            ("unexplained", self.unexplained),
            ("float rounding", self.results.rounded),
        ];
        let causes = causes.iter().filter(|(_, n)| *n > 0).map(|(cause, n)| format!("{cause} {n}"));
        causes.collect::<Vec<_>>().join(", ")
    }

    /// Whether there is anything to say.
    pub fn differs(&self) -> bool {
        self.results.differing > 0 || !self.causes().is_empty()
    }

    /// Adds another window to it.
    pub fn add(&mut self, other: &Self) {
        self.results.live += other.results.live;
        self.results.batch += other.results.batch;
        self.results.differing += other.results.differing;
        self.results.rounded += other.results.rounded;
        self.live_rows += other.live_rows;
        self.batch_rows += other.batch_rows;
        self.expired += other.expired;
        self.late += other.late;
        self.newer += other.newer;
        self.gone += other.gone;
        self.unexplained += other.unexplained;
    }

    fn count(&mut self, known: &Known, batch_rows: u64) {
        self.live_rows += known.taken;
        self.batch_rows += batch_rows;
        self.expired += known.refused_expired;
        self.late += known.refused_late;
    }

    fn balance(&mut self) {
        let expected = self.live_rows + self.expired + self.late;
        self.newer = self.batch_rows.saturating_sub(expected);
        self.gone = expected.saturating_sub(self.batch_rows);
        let explained = self.expired + self.late + self.newer + self.gone > 0;
        self.unexplained = if explained { 0 } else { self.results.differing };
    }
}

/// What explains each window's differences.
pub fn verify(
    results: &BTreeMap<Window, Differing>,
    known: &BTreeMap<Window, Known>,
    batch_rows: &BTreeMap<Window, u64>,
    explains: Explains,
) -> BTreeMap<Window, Verified> {
    let mut counted: BTreeMap<Window, (Known, u64)> =
        known.iter().map(|(window, known)| (*window, (known.clone(), 0))).collect();
    for (window, rows) in batch_rows {
        counted.entry(*window).or_default().1 += rows;
    }
    let mut verified: BTreeMap<Window, Verified> = match explains {
        Explains::Same => same(results, &counted),
        Explains::Inside => inside(results, &counted),
        Explains::Overlapping => overlapping(results, &counted),
    };
    verified.values_mut().for_each(Verified::balance);
    verified
}

type Counted = BTreeMap<Window, (Known, u64)>;

fn same(results: &BTreeMap<Window, Differing>, counted: &Counted) -> BTreeMap<Window, Verified> {
    let mut verified: BTreeMap<Window, Verified> = BTreeMap::new();
    for (window, results) in results {
        verified.entry(*window).or_default().results = *results;
    }
    for (window, (known, rows)) in counted {
        verified.entry(*window).or_default().count(known, *rows);
    }
    verified
}

fn inside(results: &BTreeMap<Window, Differing>, counted: &Counted) -> BTreeMap<Window, Verified> {
    let of = |(outer, results): (&Window, &Differing)| {
        let mut verified = Verified { results: *results, ..Verified::default() };
        let from = Window { start: outer.start, end: i64::MIN };
        let inner = counted.range(from..).take_while(|(inner, _)| inner.start < outer.end);
        for (_, (known, rows)) in inner.filter(|(inner, _)| inner.end <= outer.end) {
            verified.count(known, *rows);
        }
        (*outer, verified)
    };
    results.iter().map(of).collect()
}

fn overlapping(results: &BTreeMap<Window, Differing>, counted: &Counted) -> BTreeMap<Window, Verified> {
    let mut groups: Vec<Window> = Vec::new();
    let all: std::collections::BTreeSet<Window> = results.keys().chain(counted.keys()).copied().collect();
    for window in all {
        match groups.last_mut().filter(|group| group.overlaps(&window)) {
            Some(group) => group.end = group.end.max(window.end),
            None => groups.push(window),
        }
    }
    let group_of = |window: &Window| groups[groups.partition_point(|group| group.start <= window.start) - 1];
    let mut verified: BTreeMap<Window, Verified> = BTreeMap::new();
    for (window, results) in results {
        let group = verified.entry(group_of(window)).or_default();
        group.add(&Verified { results: *results, ..Verified::default() });
    }
    for (window, (known, rows)) in counted {
        verified.entry(group_of(window)).or_default().count(known, *rows);
    }
    verified
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: Window = Window { start: 0, end: 60 };

    fn known(taken: u64, late: u64, expired: u64) -> Known {
        Known { live_status: true, taken, refused_late: late, refused_expired: expired, ..Known::default() }
    }

    fn causes(differing: u64, live: Option<Known>, batch: u64) -> String {
        let results = BTreeMap::from([(W, Differing { live: 1, batch: 1, differing, rounded: 0 })]);
        let known = live.into_iter().map(|known| (W, known)).collect();
        verify(&results, &known, &BTreeMap::from([(W, batch)]), Explains::Same)[&W].causes()
    }

    #[test]
    fn c121_each_difference_has_its_cause() {
        assert_eq!(causes(1, Some(known(500, 0, 1)), 501), "expired 1");
        assert_eq!(causes(1, Some(known(10, 2, 1)), 15), "expired 1, late 2, newer input 2");
        assert_eq!(causes(1, Some(known(3, 0, 0)), 1), "input gone 2");
        assert_eq!(causes(1, None, 4), "newer input 4");
        assert_eq!(causes(2, Some(known(3, 0, 0)), 3), "unexplained 2");
        assert_eq!(causes(0, Some(known(3, 0, 0)), 3), "");
    }

    #[test]
    fn sessions_are_explained_in_groups_that_overlap() {
        let window = |start, end| Window { start, end };
        let results = BTreeMap::from([
            (window(0, 10), Differing { live: 1, batch: 0, differing: 1, rounded: 0 }),
            (window(0, 20), Differing { live: 0, batch: 1, differing: 1, rounded: 0 }),
            (window(50, 60), Differing { live: 1, batch: 1, differing: 0, rounded: 0 }),
        ]);
        let live = BTreeMap::from([
            (window(0, 10), known(1, 0, 0)),
            (window(8, 18), known(0, 0, 1)),
            (window(50, 60), known(1, 0, 0)),
        ]);
        let batch = BTreeMap::from([(window(0, 20), 2), (window(50, 60), 1)]);
        let verified = verify(&results, &live, &batch, Explains::Overlapping);
        assert_eq!(verified.len(), 2);
        assert_eq!(verified[&window(0, 20)].causes(), "expired 1");
        assert_eq!(verified[&window(50, 60)].causes(), "");
    }
}
