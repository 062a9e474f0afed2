//! What the right answer is, by the plainest means: no engine code, no arrow, no cleverness, everything kept for ever.
//!
//! It follows the rules T2–T5, L1, L4 and the emission rules of the design row by row, over lists that are searched from
//! end to end. A test gives the same rows to an operator and compares. **It sees** wrong windows, fates, values, refused
//! rows, counts, deletes and supersessions, for any window of exact length. **It cannot see** calendar windows, anything
//! but COUNT, SUM, MIN and MAX of an integer, version numbers, MAX UPDATES, idleness, and mistakes in the rules themselves.
//!
//! Times and lengths are µs. A window is `(start, end)`, half-open.

use std::collections::{BTreeMap, BTreeSet};

/// Start and end, half-open.
pub type Window = (i64, i64);

/// The windows, all of exact length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Each time is in one.
    Tumble {
        /// Its length.
        size: i64,
        /// Where the grid begins.
        offset: i64,
    },
    /// One begins every `slide`.
    Hop {
        /// From start to start; any length.
        slide: i64,
        /// The length of each.
        size: i64,
        /// Where the grid begins.
        offset: i64,
    },
    /// Of each `size`, the first `step`, the first two, and so on, and the whole.
    Cumulate {
        /// By how much they grow.
        step: i64,
        /// The length of the last.
        size: i64,
        /// Where the grid begins.
        offset: i64,
    },
    /// Per key.
    Session {
        /// How far apart rows of one session are, exclusive.
        gap: i64,
    },
}

/// When values go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emission {
    /// At the close, and at the end of an epoch that brought late rows.
    OnClose,
    /// Also at the end of each epoch, of windows still open that got rows.
    Changes,
    /// When the window expires.
    OnExpiry,
}

/// What the rows are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The windows.
    pub kind: Kind,
    /// Allowed lateness.
    pub lateness: i64,
    /// Whether late pairs are folded in (ON LATE UPDATE) or refused.
    pub takes_late: bool,
    /// When values go out.
    pub emission: Emission,
    /// An epoch ends after this many rows.
    pub epoch_rows: usize,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its group.
    pub key: String,
    /// Its event time.
    pub ts: i64,
    /// What is summed; `None` is NULL.
    pub value: Option<i64>,
}

impl Row {
    /// The key as a row of a table has it.
    pub fn nullable_key(&self) -> Option<&str> {
        (self.key != NULL_KEY).then_some(&self.key)
    }
}

/// The key that stands for NULL, as it is printed.
const NULL_KEY: &str = "NULL";

/// One of some keys, the first of which is NULL.
pub fn key(n: u8) -> String {
    if n == 0 { NULL_KEY.to_owned() } else { format!("k{n}") }
}

/// Fate of a (row, window) pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Taken before the window closed.
    OnTime,
    /// It came after the close, within the lateness.
    Late,
    /// It came later than that.
    Expired,
}

/// COUNT, SUM, MIN and MAX of the rows of a window and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Rows.
    pub count: i64,
    /// The sum of their values, NULL where none has one.
    pub sum: Option<i128>,
    /// The smallest.
    pub min: Option<i64>,
    /// The greatest.
    pub max: Option<i64>,
}

/// Why a value goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The window is still open.
    Early,
    /// It closed (or, under `OnExpiry`, expired).
    Initial,
    /// Late rows were folded in.
    LateData,
}

/// A value that went out, or the end of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The epoch, from 0.
    pub epoch: usize,
    /// The identity.
    pub window: Window,
    /// The identity.
    pub key: String,
    /// The reason.
    pub why: Why,
    /// `None`: the identity no longer holds.
    pub value: Option<Value>,
    /// Identities that went out before and that this one replaces.
    pub supersedes: BTreeSet<Window>,
}

/// A refused row, once per fate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Its place in the arrival order.
    pub row: usize,
    /// Late or expired.
    pub fate: Fate,
    /// The last window that refused it.
    pub window: Window,
    /// How many did.
    pub pairs: u32,
    /// W − ts.
    pub late_by: i64,
}

/// Everything a test may compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Of each row its windows and fates, ascending by end. A session stands with the bounds it had then.
    pub pairs: Vec<Vec<(Window, Fate)>>,
    /// Refused rows in arrival order.
    pub refused: Vec<Refusal>,
    /// What went out, in order.
    pub events: Vec<Event>,
}

impl Answer {
    /// What holds in the end: the last value of each identity that was not deleted.
    pub fn latest(&self) -> BTreeMap<(Window, String), Value> {
        let mut latest = BTreeMap::new();
        for event in &self.events {
            let identity = (event.window, event.key.clone());
            match &event.value {
                Some(value) => latest.insert(identity, value.clone()),
                None => latest.remove(&identity),
            };
        }
        latest
    }

    /// The value of each identity when it closed.
    pub fn initial(&self) -> BTreeMap<(Window, String), Value> {
        let initial = self.events.iter().filter(|e| e.why == Why::Initial);
        initial.filter_map(|e| Some(((e.window, e.key.clone()), e.value.clone()?))).collect()
    }

    /// Rows in no window, accepted by at least one, and refused by all they have.
    pub fn rows(&self) -> (usize, usize, usize) {
        let empty = self.pairs.iter().filter(|pairs| pairs.is_empty()).count();
        let refusals =
            |row: usize| self.refused.iter().filter(move |r| r.row == row).map(|r| r.pairs as usize).sum::<usize>();
        let refused = (0..self.pairs.len()).filter(|row| !self.pairs[*row].is_empty());
        let refused = refused.filter(|row| self.pairs[*row].len() == refusals(*row)).count();
        (empty, self.pairs.len() - empty - refused, refused)
    }
}

/// The arrival order of several bounded splits, and the watermark each row meets (T5): the split whose watermark is
/// lowest goes next, of several the one named first; one that has ended no longer counts.
///
/// `splits` are in the order of their names; their watermark is the greatest `ts - delay` so far.
pub fn arrival(splits: &[Vec<Row>], delay: i64) -> Vec<(Row, i64)> {
    let mut next = vec![0; splits.len()];
    let mut w: Vec<i64> = vec![i64::MIN; splits.len()];
    let mut out = Vec::new();
    loop {
        let unfinished = (0..splits.len()).filter(|s| next[*s] < splits[*s].len());
        let Some(split) = unfinished.min_by_key(|s| (w[*s], *s)) else { return out };
        let row = splits[split][next[split]].clone();
        next[split] += 1;
        let met = w[split];
        w[split] = w[split].max(row.ts.saturating_sub(delay));
        out.push((row, met));
    }
}

/// The answer to `question` over `rows`, each with the watermark it meets, after which the input ends.
pub fn answer(question: Question, rows: &[(Row, i64)]) -> Answer {
    answer_until(question, rows, i64::MAX)
}

/// The same where the watermark is `w` behind the last row, and the last epoch ends there.
pub fn answer_until(question: Question, rows: &[(Row, i64)], w: i64) -> Answer {
    let mut oracle = Oracle { question, rows, cells: Vec::new(), epoch: 0, answer: Answer::default() };
    for (at, (_, w)) in rows.iter().enumerate() {
        if at > 0 && at % question.epoch_rows == 0 {
            oracle.tick(*w);
            oracle.end_epoch();
        }
        oracle.tick(*w);
        oracle.row(at);
    }
    oracle.tick(w);
    oracle.end_epoch();
    oracle.answer
}

/// A window of a key, or a session.
#[derive(Debug, Clone)]
struct Cell {
    key: String,
    window: Window,
    rows: Vec<usize>,
    closed: bool,
    expired: bool,
    published: bool,
    changed: bool,
    supersedes: BTreeSet<Window>,
}

struct Oracle<'a> {
    question: Question,
    rows: &'a [(Row, i64)],
    cells: Vec<Cell>,
    epoch: usize,
    answer: Answer,
}

impl Oracle<'_> {
    /// T4.
    fn fate(&self, end: i64, w: i64) -> Fate {
        let lateness = i128::from(self.question.lateness);
        if w < end {
            Fate::OnTime
        } else if lateness > 0 && i128::from(w) <= i128::from(end) + lateness {
            Fate::Late
        } else {
            Fate::Expired
        }
    }

    /// The watermark is `w`: windows close, then expire, then sessions' bounds are forgotten.
    fn tick(&mut self, w: i64) {
        for at in 0..self.cells.len() {
            let fate = self.fate(self.cells[at].window.1, w);
            if fate != Fate::OnTime && !self.cells[at].closed {
                self.cells[at].closed = true;
                if self.question.emission != Emission::OnExpiry {
                    self.publish(at, Why::Initial);
                }
            }
            if fate == Fate::Expired && !self.cells[at].expired {
                self.cells[at].expired = true;
                match self.question.emission {
                    Emission::OnExpiry => self.publish(at, Why::Initial),
                    _ if self.cells[at].changed => self.publish(at, Why::LateData),
                    _ => {}
                }
            }
        }
        if let Kind::Session { gap } = self.question.kind {
            let forgotten: Vec<bool> = self.cells.iter().map(|cell| self.is_forgotten(cell, gap, w)).collect();
            let mut at = 0;
            self.cells.retain(|_| (!forgotten[at], at += 1).0);
        }
    }

    /// An expired session's bounds are kept while the key's next session lives, and while a session could yet be opened
    /// within a gap of it.
    fn is_forgotten(&self, cell: &Cell, gap: i64, w: i64) -> bool {
        let after = self.cells.iter().filter(|other| other.key == cell.key && other.window.0 >= cell.window.1);
        let next = after.min_by_key(|other| other.window.0);
        let reach = cell.window.1.saturating_add(gap).saturating_add(gap);
        cell.expired && next.is_none_or(|next| next.expired) && self.fate(reach, w) == Fate::Expired
    }

    fn row(&mut self, at: usize) {
        let pairs = match self.question.kind {
            Kind::Session { gap } => vec![self.session_row(at, gap)],
            kind => {
                windows_of(kind, self.rows[at].0.ts).into_iter().map(|window| self.window_row(at, window)).collect()
            }
        };
        self.answer.pairs.push(pairs);
    }

    /// A row and one of its windows.
    fn window_row(&mut self, at: usize, window: Window) -> (Window, Fate) {
        let (row, w) = &self.rows[at];
        let fate = self.fate(window.1, *w);
        if self.refuses(fate) {
            self.refuse(at, fate, window);
            return (window, fate);
        }
        let found = self.cells.iter().position(|cell| cell.key == row.key && cell.window == window);
        let cell = found.unwrap_or_else(|| self.new_cell(&row.key, window));
        self.take(cell, at, fate);
        (window, fate)
    }

    /// A row and its session.
    fn session_row(&mut self, at: usize, gap: i64) -> (Window, Fate) {
        let (row, w) = &self.rows[at];
        let own = (row.ts, row.ts + gap);
        let meets = |cell: &Cell| cell.key == row.key && cell.window.0 < own.1 && own.0 < cell.window.1;
        let mut met: Vec<Cell> = self.cells.iter().filter(|cell| meets(cell)).cloned().collect();
        met.sort_by_key(|cell| cell.window);
        let fate = met.iter().map(|cell| self.fate(cell.window.1, *w)).max().unwrap_or(self.fate(own.1, *w));
        if self.refuses(fate) {
            let by = met.iter().rev().find(|cell| self.fate(cell.window.1, *w) == fate);
            let window = by.map_or(own, |cell| cell.window);
            self.refuse(at, fate, window);
            return (window, fate);
        }
        let start = met.iter().map(|cell| cell.window.0).min().unwrap_or(own.0).min(own.0);
        let end = met.iter().map(|cell| cell.window.1).max().unwrap_or(own.1).max(own.1);
        let window = (start, end);
        if met.len() != 1 || met[0].window != window {
            let why = if fate == Fate::Late { Why::LateData } else { Why::Early };
            self.cells.retain(|cell| !meets(cell));
            let merged = self.new_cell(&row.key, window);
            for old in met {
                self.cells[merged].rows.extend(&old.rows);
                if old.published {
                    self.cells[merged].supersedes.insert(old.window);
                    self.event(old.window, &old.key, why, None, BTreeSet::new());
                } else {
                    self.cells[merged].supersedes.extend(old.supersedes);
                }
            }
            self.cells[merged].closed = end <= *w;
        }
        let cell = self.cells.iter().position(|cell| cell.key == row.key && cell.window == window);
        self.take(cell.expect("it was there or was made"), at, fate);
        (window, fate)
    }

    fn refuses(&self, fate: Fate) -> bool {
        fate == Fate::Expired || fate == Fate::Late && !self.question.takes_late
    }

    fn refuse(&mut self, row: usize, fate: Fate, window: Window) {
        let late_by = self.rows[row].1.saturating_sub(self.rows[row].0.ts);
        let earlier = self.answer.refused.iter_mut().find(|r| r.row == row && r.fate == fate);
        match earlier {
            Some(refusal) => (refusal.window, refusal.pairs) = (window, refusal.pairs + 1),
            None => self.answer.refused.push(Refusal { row, fate, window, pairs: 1, late_by }),
        }
    }

    fn new_cell(&mut self, key: &str, window: Window) -> usize {
        self.cells.push(Cell {
            key: key.to_owned(),
            window,
            rows: Vec::new(),
            closed: false,
            expired: false,
            published: false,
            changed: false,
            supersedes: BTreeSet::new(),
        });
        self.cells.len() - 1
    }

    fn take(&mut self, cell: usize, row: usize, fate: Fate) {
        let cell = &mut self.cells[cell];
        cell.rows.push(row);
        cell.changed = true;
        // The first row of a window's key may come after the window closed: then it closed without this key.
        cell.closed |= fate == Fate::Late && cell.window.1 <= self.rows[row].1;
    }

    fn end_epoch(&mut self) {
        for at in 0..self.cells.len() {
            let Cell { closed, changed, published, ref supersedes, .. } = self.cells[at];
            match self.question.emission {
                Emission::OnExpiry => {}
                _ if closed && changed => self.publish(at, Why::LateData),
                Emission::Changes if changed || !published && !supersedes.is_empty() => self.publish(at, Why::Early),
                _ => {}
            }
        }
        self.epoch += 1;
    }

    fn publish(&mut self, at: usize, why: Why) {
        let cell = &mut self.cells[at];
        (cell.published, cell.changed) = (true, false);
        let values: Vec<i64> = cell.rows.iter().filter_map(|row| self.rows[*row].0.value).collect();
        let value = Value {
            count: cell.rows.len() as i64,
            sum: values.iter().map(|value| i128::from(*value)).reduce(|a, b| a + b),
            min: values.iter().min().copied(),
            max: values.iter().max().copied(),
        };
        let (window, key, supersedes) = (cell.window, cell.key.clone(), cell.supersedes.clone());
        self.event(window, &key, why, Some(value), supersedes);
    }

    fn event(&mut self, window: Window, key: &str, why: Why, value: Option<Value>, supersedes: BTreeSet<Window>) {
        self.answer.events.push(Event { epoch: self.epoch, window, key: key.to_owned(), why, value, supersedes });
    }
}

/// All windows of `kind` that hold `ts`, ascending by end: every window of the grid near it is looked at.
pub fn windows_of(kind: Kind, ts: i64) -> Vec<Window> {
    let (period, offset) = match kind {
        Kind::Tumble { size, offset } | Kind::Cumulate { size, offset, .. } => (size, offset),
        Kind::Hop { slide, offset, .. } => (slide, offset),
        Kind::Session { gap } => return vec![(ts, ts + gap)],
    };
    let lengths: Vec<i64> = match kind {
        Kind::Cumulate { step, size, .. } => (1..).map(|n| n * step).take_while(|l| *l < size).chain([size]).collect(),
        Kind::Tumble { size, .. } | Kind::Hop { size, .. } => vec![size],
        Kind::Session { .. } => unreachable!("handled above"),
    };
    let longest = lengths.iter().max().copied().unwrap_or(period);
    let near = (ts - offset).div_euclid(period);
    let grid = (near - longest / period - 1..=near + 1).map(|n| offset + n * period);
    let all = grid.flat_map(|start| lengths.iter().map(move |length| (start, start + length)));
    let mut held: Vec<Window> = all.filter(|(start, end)| *start <= ts && ts < *end).collect();
    held.sort_by_key(|(start, end)| (*end, *start));
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn it_knows_the_published_answers() {
        let hop = Kind::Hop { slide: 4, size: 10, offset: 0 };
        assert_eq!(windows_of(hop, 9), vec![(0, 10), (4, 14), (8, 18)]);
        assert_eq!(windows_of(Kind::Hop { slide: 5, size: 15, offset: 0 }, 2), vec![(-10, 5), (-5, 10), (0, 15)]);
        assert_eq!(windows_of(Kind::Hop { slide: 10, size: 2, offset: 0 }, 5), vec![]);
        assert_eq!(windows_of(Kind::Tumble { size: 60, offset: 0 }, -60), vec![(-60, 0)]);
        assert_eq!(windows_of(Kind::Cumulate { step: 4, size: 10, offset: 0 }, 5), vec![(0, 8), (0, 10)]);
    }

    #[test]
    fn the_split_that_is_furthest_behind_goes_next() {
        let row = |key: &str, ts| Row { key: key.into(), ts, value: Some(0) };
        let splits = [vec![row("a", 10), row("a", 30)], vec![row("b", 20), row("b", 15), row("b", 40)]];
        let order: Vec<(i64, i64)> = arrival(&splits, 0).into_iter().map(|(row, w)| (row.ts, w)).collect();
        assert_eq!(order, vec![(10, i64::MIN), (20, i64::MIN), (30, 10), (15, 20), (40, 20)]);
    }

    #[test]
    fn a_late_row_makes_a_second_value() {
        let question = Question {
            kind: Kind::Tumble { size: 60 * SECOND, offset: 0 },
            lateness: 15 * SECOND,
            takes_late: true,
            emission: Emission::OnClose,
            epoch_rows: 1,
        };
        let times = [0, 30, 61, 40, 76, 59].map(|s| Row { key: "k".into(), ts: s * SECOND, value: Some(s) });
        let answer = answer(question, &arrival(&[times.to_vec()], 0));
        let counts: Vec<_> = answer.events.iter().map(|e| (e.why, e.value.as_ref().unwrap().count)).collect();
        assert_eq!(counts, vec![(Why::Initial, 2), (Why::LateData, 3), (Why::Initial, 2)]);
        assert_eq!((answer.refused[0].row, answer.refused[0].late_by), (5, 17 * SECOND));
        assert_eq!(answer.rows(), (0, 5, 1));
    }
}
