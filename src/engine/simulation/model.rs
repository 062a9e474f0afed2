//! What a view must hold, by the plainest means: the oracle over all rows so far, and what runs and rollbacks put over it.

use std::collections::{BTreeMap, BTreeSet};

use super::SECOND;
use super::log::LogRow;
use crate::testing::oracle::{self, Answer, Emission, Fate, Kind, Question, Row, Value, Window};

/// The watermark is this far behind the newest row.
const DELAY: i64 = 5 * SECOND;

/// A window and a key.
pub type Identity = (Window, String);

/// One view.
#[derive(Debug, Clone)]
pub struct Model {
    pub question: Question,
    /// Whether the view has HAVING sum(v) > 0.
    pub having: bool,
    /// What was put over the live values, none for a deleted one, and whether it is final.
    over: BTreeMap<Identity, (Option<Value>, bool)>,
}

/// The rows that have a time, with their offsets and the watermark each meets, and the watermark after them.
struct Rows {
    rows: Vec<(Row, i64)>,
    offsets: Vec<usize>,
    w: i64,
}

impl Rows {
    fn of(log: &[LogRow]) -> Self {
        let (mut rows, mut offsets, mut w) = (Vec::new(), Vec::new(), i64::MIN);
        for (offset, row) in log.iter().enumerate() {
            let Some(ts) = row.at_us else { continue };
            rows.push((Row { key: row.key.clone(), ts, value: Some(row.value) }, w));
            offsets.push(offset);
            w = w.max(ts - DELAY);
        }
        Self { rows, offsets, w }
    }
}

impl Model {
    pub fn new(question: Question, having: bool) -> Self {
        Self { question, having, over: BTreeMap::new() }
    }

    fn passes(&self, value: &Value) -> bool {
        !self.having || value.sum.is_some_and(|sum| sum > 0)
    }

    fn live(&self, log: &[LogRow]) -> (Answer, Rows) {
        let rows = Rows::of(log);
        (oracle::answer_until(self.question, &rows.rows, rows.w), rows)
    }

    /// The latest value of each identity and whether it is final, once `log` has been read.
    fn current(&self, log: &[LogRow]) -> BTreeMap<Identity, (Value, bool)> {
        let live = self.live(log).0.latest().into_iter().filter(|(_, value)| self.passes(value));
        let mut current: BTreeMap<_, _> = live.map(|(id, value)| (id, (value, false))).collect();
        for (id, (value, is_final)) in &self.over {
            match value {
                Some(value) => current.insert(id.clone(), (value.clone(), *is_final)),
                None => current.remove(id),
            };
        }
        current
    }

    /// Rows of the view: start, end, key, COUNT, SUM, MIN, MAX, whether it is final.
    pub fn rows(&self, log: &[LogRow]) -> Vec<String> {
        sorted(
            self.current(log).into_iter().map(|(id, (value, is_final))| format!("{} | {is_final}", line(&id, &value))),
        )
    }

    /// First values of windows: start, end, key, COUNT, SUM, MIN, MAX.
    pub fn initial(&self, log: &[LogRow]) -> Vec<String> {
        let initial = self.live(log).0.initial().into_iter().filter(|(_, value)| self.passes(value));
        sorted(initial.map(|(id, value)| line(&id, &value)))
    }

    /// Refused rows: offset, start, end, pairs, how late in µs, fate.
    pub fn refused(&self, log: &[LogRow]) -> Vec<String> {
        let (answer, rows) = self.live(log);
        sorted(answer.refused.iter().map(|refusal| {
            let fate = if refusal.fate == Fate::Late { "late" } else { "expired" };
            let (window, offset) = (bounds(refusal.window), rows.offsets[refusal.row]);
            format!("{offset} | {window} | {} | {} | {fate}", refusal.pairs, refusal.late_by)
        }))
    }

    /// Whether a window that ends at `end` is the live job's once `log` has been read.
    pub fn is_live(&self, log: &[LogRow], end: i64) -> bool {
        let (w, lateness) = (Rows::of(log).w, self.question.lateness);
        let until_expiry = lateness > 0 && (self.question.takes_late || self.question.emission == Emission::OnExpiry);
        if until_expiry { w <= end + lateness } else { w < end }
    }

    /// FINALIZE of windows whose end lies in (from, to], when `log` has been read.
    pub fn finalize(&mut self, log: &[LogRow], from: i64, to: i64) {
        let rows: Vec<(Row, i64)> = Rows::of(log).rows.into_iter().map(|(row, _)| (row, i64::MIN)).collect();
        let all = Question { lateness: 0, takes_late: true, emission: Emission::OnClose, ..self.question };
        let mut official = oracle::answer(all, &rows).latest();
        official.retain(|_, value| self.passes(value));
        let known: BTreeSet<Identity> = self.current(log).into_keys().chain(official.keys().cloned()).collect();
        for id in known {
            let end = id.0.1;
            if from < end && end <= to && !self.is_live(log, end) {
                let value = official.remove(&id);
                self.over.insert(id, (value, true));
            }
        }
    }

    /// ROLLBACK to a version of this value.
    pub fn roll_back(&mut self, id: Identity, value: Option<Value>, is_final: bool) {
        self.over.insert(id, (value, is_final));
    }

    /// The statement that makes the view, without its name and options.
    pub fn select(&self) -> String {
        let seconds = |us: i64| format!("INTERVAL '{} seconds'", us / SECOND);
        let window = match self.question.kind {
            Kind::Tumble { size, offset } => format!("TUMBLE(s, ts, {}, {})", seconds(size), seconds(offset)),
            Kind::Hop { slide, size, .. } => format!("HOP(s, ts, {}, {})", seconds(slide), seconds(size)),
            Kind::Cumulate { step, size, .. } => format!("CUMULATE(s, ts, {}, {})", seconds(step), seconds(size)),
            Kind::Session { gap } => format!("SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), {})", seconds(gap)),
        };
        let having = if self.having { "HAVING sum(v) > 0" } else { "" };
        let on_late = if self.question.takes_late { "UPDATE" } else { "SIDE OUTPUT" };
        let lateness = match self.question.lateness {
            0 => String::new(),
            l => format!("ALLOWED LATENESS {} ON LATE {on_late}", seconds(l)),
        };
        let emit = match self.question.emission {
            Emission::OnClose => "EMIT ON WINDOW CLOSE",
            Emission::Changes => "EMIT CHANGES",
            Emission::OnExpiry => "EMIT ON EXPIRY",
        };
        format!(
            "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total, min(v) AS lo, max(v) AS hi \
             FROM {window} GROUP BY window_start, window_end, k {having} {lateness} ON EXPIRED SIDE OUTPUT {emit}"
        )
    }
}

fn line(id: &Identity, value: &Value) -> String {
    let number = |n: Option<i64>| n.map_or("NULL".to_owned(), |n| n.to_string());
    let sum = number(value.sum.map(|sum| sum as i64));
    let (lo, hi) = (number(value.min), number(value.max));
    format!("{} | {} | {} | {sum} | {lo} | {hi}", bounds(id.0), id.1, value.count)
}

fn bounds(window: Window) -> String {
    format!("{} | {}", window.0 / SECOND, window.1 / SECOND)
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}
