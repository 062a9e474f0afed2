//! Windowed operators against the oracle: any rows, from several splits, in batches cut anywhere, aggregated by one or
//! more workers, under any policy.
//!
//! It would show wrong windows, fates, values, reasons, deletes, supersessions, refusals and counts, and any dependence on
//! batches or workers. It cannot show a mistake the oracle shares, nor anything the oracle cannot see.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::col;
use proptest::prelude::*;

use super::aggregate::{PartialAggregate, Piece, SealAt};
use super::fate::{ArrivedRows, FateCounts, Judged, Refused, WindowCounts};
use super::graph::{AggregateCall, AggregateInput, AggregateSpec, Policy};
use super::judge::{Judge, Judgement};
use super::merge::{WindowEvent, WindowMerge};
use super::session::{Extent, SUPERSEDES, SessionAggregate, SessionExport, SessionOutput};
use crate::change::{ChangeKind, Changes, Reason};
use crate::sql::statement::{Emit, OnExpired, OnLate};
use crate::state::{Layout, Memory, rows_at};
use crate::testing::oracle::{self, Answer, Emission, Event, Kind, Question, Refusal, Row, Value, Why};
use crate::testing::table;
use crate::window::{Span, Window, WindowKind, WindowSpec};

const SECOND: i64 = 1_000_000;

fn input() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("ts", time, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn call(function: Arc<AggregateUDF>) -> AggregateCall {
    let argument = col("v", &input()).unwrap();
    let built = AggregateExprBuilder::new(function, vec![argument]).schema(input()).alias("x").build();
    AggregateCall { function: Arc::new(built.unwrap()), filter: None }
}

fn spec(kind: Kind) -> AggregateSpec {
    let us = Span::Micros;
    let (kind, offset) = match kind {
        Kind::Tumble { size, offset } => (WindowKind::Tumble { size: us(size) }, offset),
        Kind::Hop { slide, size, offset } => (WindowKind::Hop { slide: us(slide), size: us(size) }, offset),
        Kind::Cumulate { step, size, offset } => (WindowKind::Cumulate { step: us(step), size: us(size) }, offset),
        Kind::Session { gap } => (WindowKind::Session { gap_us: gap }, 0),
    };
    AggregateSpec {
        window: WindowSpec::try_new(kind, us(offset), None).unwrap(),
        event_time: 1,
        keys: vec![(col("k", &input()).unwrap(), "k".into())],
        aggregates: vec![call(sum_udaf()), call(min_udaf()), call(max_udaf())],
        input: AggregateInput::Rows,
    }
}

fn policy(question: Question) -> Policy {
    let on_late = if question.takes_late { OnLate::Update { max_updates: None } } else { OnLate::SideOutput };
    let emit = match question.emission {
        Emission::OnClose => Emit::OnWindowClose,
        Emission::Changes => Emit::Changes { every: None },
        Emission::OnExpiry => Emit::OnExpiry,
    };
    Policy { allowed_lateness_us: question.lateness, on_late, on_expired: OnExpired::SideOutput, emit }
}

/// What turns rows into changes.
trait Machine {
    fn rows(&mut self, rows: &ArrivedRows, got: &mut Got);
    fn watermark(&mut self, w: i64, got: &mut Got);
    fn epoch(&mut self, got: &mut Got);
    fn is_empty(&self) -> bool;
}

impl Machine for SessionAggregate {
    fn rows(&mut self, rows: &ArrivedRows, got: &mut Got) {
        got.take(|out| self.on_rows(rows, out).unwrap());
    }

    fn watermark(&mut self, w: i64, got: &mut Got) {
        got.take(|out| self.on_watermark(w, out).unwrap());
    }

    fn epoch(&mut self, got: &mut Got) {
        got.take(|out| self.on_epoch(true, out).unwrap());
    }

    fn is_empty(&self) -> bool {
        self.sessions() == 0
    }
}

/// Sessions in shards that are exported at the end of each epoch and, every few epochs, forgotten and imported into
/// other shards.
struct Restarting {
    spec: AggregateSpec,
    policy: Policy,
    shards: Vec<SessionAggregate>,
    /// What was exported of each shard since the last restart.
    exports: Vec<Vec<SessionExport>>,
    epochs: usize,
    restart_every: usize,
}

impl Restarting {
    fn new(spec: AggregateSpec, policy: Policy, shards: usize, restart_every: usize) -> Self {
        let new = |_| SessionAggregate::try_new(&spec, policy, &input()).unwrap();
        let (shards, exports) = ((0..shards).map(new).collect(), vec![Vec::new(); shards]);
        Self { spec, policy, shards, exports, epochs: 0, restart_every }
    }

    fn restart(&mut self) {
        let shards = 1 + self.epochs % 3;
        let old = std::mem::replace(self, Self::new(self.spec.clone(), self.policy, shards, self.restart_every));
        self.epochs = old.epochs;
        for (i, shard) in self.shards.iter_mut().enumerate() {
            for exports in &old.exports {
                let keep = |keys: &[ArrayRef], _: usize| Ok(shard_of(&keys[0], shards).map(|s| s == i).collect());
                shard.import(exports, keep).unwrap();
            }
        }
    }
}

fn shard_of(keys: &ArrayRef, shards: usize) -> impl Iterator<Item = usize> {
    let keys = keys.as_any().downcast_ref::<StringArray>().unwrap();
    keys.iter().map(move |key| key.map_or(0, |key| usize::from(*key.as_bytes().last().unwrap())) % shards)
}

impl Machine for Restarting {
    fn rows(&mut self, rows: &ArrivedRows, got: &mut Got) {
        let of_row: Vec<usize> = shard_of(rows.rows.column(0), self.shards.len()).collect();
        for (i, shard) in self.shards.iter_mut().enumerate() {
            let own: Vec<u32> = (0..of_row.len()).filter(|row| of_row[*row] == i).map(|row| row as u32).collect();
            let judged = Judged::Each(own.iter().map(|row| rows.judged.get(*row as usize)).collect());
            let part = ArrivedRows { rows: rows_at(&rows.rows, &own).unwrap(), judged, origin: Some(own) };
            got.take(|out| shard.on_rows(&part, out).unwrap());
        }
    }

    fn watermark(&mut self, w: i64, got: &mut Got) {
        self.shards.iter_mut().for_each(|shard| got.take(|out| shard.on_watermark(w, out).unwrap()));
    }

    fn epoch(&mut self, got: &mut Got) {
        self.epochs += 1;
        for (shard, exports) in self.shards.iter_mut().zip(&mut self.exports) {
            got.take(|out| shard.on_epoch(true, out).unwrap());
            let extent = if self.epochs.is_multiple_of(4) { Extent::Whole } else { Extent::Changes };
            let export = shard.export(extent).unwrap();
            if export.whole {
                exports.clear();
            }
            exports.push(export);
        }
        if self.epochs.is_multiple_of(self.restart_every) {
            self.restart();
        }
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.sessions() == 0)
    }
}

/// A judge, workers and a merge.
struct Slices {
    judge: Judge,
    layout: Arc<Layout>,
    workers: Vec<PartialAggregate>,
    merge: WindowMerge,
    pieces: usize,
}

impl Slices {
    fn new(spec: &AggregateSpec, policy: Policy, workers: usize, memory: &Memory) -> Self {
        let layout = Arc::new(Layout::try_new(spec, &input()).unwrap());
        let window = &spec.window;
        let worker = || PartialAggregate::new(Arc::clone(&layout), window.clone(), policy, memory);
        Self {
            judge: Judge::new(window.clone(), policy),
            workers: (0..workers).map(|_| worker()).collect(),
            merge: WindowMerge::new(Arc::clone(&layout), window.clone(), policy, memory),
            layout,
            pieces: 0,
        }
    }
}

impl Machine for Slices {
    fn rows(&mut self, rows: &ArrivedRows, got: &mut Got) {
        let inputs = self.layout.inputs(&rows.rows).unwrap();
        let times = rows.rows.column(1).as_any().downcast_ref::<TimestampMicrosecondArray>().unwrap();
        let mut judgement = Judgement::default();
        self.judge.judge(times.values(), &rows.judged, None, &mut judgement);
        for pile in judgement.piles {
            let inputs = pile.rows.of(&inputs).unwrap();
            // Any worker will do; a stride that shares no factor with their number meets all of them.
            self.pieces += 7;
            let worker = self.pieces % self.workers.len();
            self.workers[worker].on_piece(&Piece { slice: pile.slice, class: pile.class, inputs }).unwrap();
        }
        got.refuse(&judgement.refused);
        let (counts, windows) = self.judge.take_counts();
        got.counts.add(&counts);
        windows.into_iter().for_each(|(window, counts)| got.count(window, counts));
    }

    fn watermark(&mut self, w: i64, got: &mut Got) {
        for worker in &mut self.workers {
            worker.on_watermark(w).unwrap().into_iter().for_each(|sealed| self.merge.on_sealed(sealed).unwrap());
        }
        let mut events = Vec::new();
        self.merge.on_watermark(w, &mut events).unwrap();
        got.hear(events);
    }

    fn epoch(&mut self, got: &mut Got) {
        for worker in &mut self.workers {
            worker.on_epoch(SealAt::All).unwrap().into_iter().for_each(|sealed| self.merge.on_sealed(sealed).unwrap());
        }
        let mut events = Vec::new();
        self.merge.on_epoch(true, &mut events).unwrap();
        got.hear(events);
    }

    fn is_empty(&self) -> bool {
        self.merge.live_windows() == 0 && self.merge.memory_bytes() == 0
    }
}

/// A machine's answer in the oracle's terms.
#[derive(Debug, Default)]
struct Got {
    events: Vec<Event>,
    refused: Vec<Refusal>,
    counts: FateCounts,
    windows: BTreeMap<Window, WindowCounts>,
    /// Place of the first row of the batch at hand, and the epoch.
    first_row: usize,
    epoch: usize,
}

fn run(machine: &mut dyn Machine, question: Question, rows: &[(Row, i64)], batch_rows: usize) -> Got {
    let mut got = Got::default();
    let mut at = 0;
    while at < rows.len() {
        let to = (at + batch_rows).min((got.epoch + 1) * question.epoch_rows).min(rows.len());
        got.first_row = at;
        machine.rows(&arrived(&rows[at..to]), &mut got);
        machine.watermark(rows.get(to).map_or(i64::MAX, |(_, w)| *w), &mut got);
        if to == (got.epoch + 1) * question.epoch_rows || to == rows.len() {
            machine.epoch(&mut got);
            got.epoch += 1;
        }
        at = to;
    }
    assert!(machine.is_empty(), "nothing is held when all is over");
    got
}

fn arrived(rows: &[(Row, i64)]) -> ArrivedRows {
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|(row, _)| row.ts)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(rows.iter().map(|(row, _)| row.nullable_key()))),
        Arc::new(times),
        Arc::new(Int64Array::from_iter(rows.iter().map(|(row, _)| row.value))),
    ];
    let judged = Judged::Each(rows.iter().map(|(_, w)| *w).collect());
    ArrivedRows { rows: RecordBatch::try_new(input(), columns).unwrap(), judged, origin: None }
}

impl Got {
    fn take(&mut self, step: impl FnOnce(&mut SessionOutput)) {
        let mut out = SessionOutput::default();
        step(&mut out);
        out.changes.iter().for_each(|changes| self.change(changes));
        self.refuse(&out.refused);
        self.counts.add(&out.counts);
        out.windows.into_iter().for_each(|(window, counts)| self.count(window, counts));
        for (window, counts) in out.windows_gone {
            let sum = self.windows.get_mut(&window).unwrap();
            sum.on_time -= counts.on_time;
            sum.late -= counts.late;
        }
    }

    fn hear(&mut self, events: Vec<WindowEvent>) {
        for event in events {
            if let WindowEvent::Changes(changes) = event {
                self.change(&changes);
            }
        }
    }

    fn change(&mut self, changes: &Changes) {
        let why = match changes.reason {
            Reason::Early => Why::Early,
            Reason::Initial => Why::Initial,
            Reason::LateData => Why::LateData,
        };
        let has_supersedes = changes.rows.schema().index_of(SUPERSEDES).is_ok();
        for mut line in table::lines(std::slice::from_ref(&changes.rows)) {
            if !has_supersedes {
                line.push_str(" | NULL");
            }
            self.events.push(event(&line, self.epoch, why, changes.kind));
        }
    }

    fn refuse(&mut self, refused: &[Refused]) {
        self.refused.extend(refused.iter().map(|r| Refusal {
            row: self.first_row + r.origin as usize,
            fate: if r.late { oracle::Fate::Late } else { oracle::Fate::Expired },
            window: (r.window.start, r.window.end),
            pairs: r.pairs,
            late_by: r.late_by_us,
        }));
    }

    /// Leaves out corrections that correct nothing: the publisher does.
    fn without_repeats(mut self) -> Self {
        let mut known = BTreeMap::new();
        self.events.retain(|event| {
            let before = known.insert((event.window, event.key.clone()), event.value.clone());
            event.why == Why::Initial || before.as_ref() != Some(&event.value)
        });
        self
    }

    fn count(&mut self, window: Window, counts: WindowCounts) {
        let sum = self.windows.entry(window).or_default();
        sum.on_time += counts.on_time;
        sum.late += counts.late;
        sum.refused_late += counts.refused_late;
        sum.refused_expired += counts.refused_expired;
    }
}

fn event(line: &str, epoch: usize, why: Why, kind: ChangeKind) -> Event {
    let cells: Vec<&str> = line.split(" | ").collect();
    let us = |text: &str| text.parse::<jiff::Timestamp>().map_or_else(|_| seconds_us(text), |t| t.as_microsecond());
    let value = || Value {
        sum: cells[3].parse().ok(),
        min: cells[4].parse().ok(),
        max: cells[5].parse().ok(),
        count: cells[6].parse().unwrap(),
    };
    let bound = |text: &str| us(text.trim_matches(|c| "[) ".contains(c)));
    let bounds: Vec<i64> = cells[7].split(',').filter(|text| *text != "NULL").map(bound).collect();
    Event {
        epoch,
        window: (us(cells[0]), us(cells[1])),
        key: cells[2].to_owned(),
        why,
        value: (kind == ChangeKind::Upsert).then(value),
        supersedes: bounds.chunks(2).map(|bounds| (bounds[0], bounds[1])).collect(),
    }
}

fn seconds_us(text: &str) -> i64 {
    (text.parse::<f64>().unwrap() * SECOND as f64).round() as i64
}

fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|e| (e.epoch, e.window, e.key.clone(), e.value.is_none(), e.why));
    events
}

/// Rows of a few keys whose times wander forward with steps back, in one to three splits.
fn rows() -> impl Strategy<Value = Vec<(Row, i64)>> {
    let row = (0..3_u8, -25..35_i64, prop::option::weighted(0.8, -9..9_i64));
    let splits = prop::collection::vec(prop::collection::vec(row, 0..40), 1..4);
    (splits, 0..30_i64, 2..12_i64).prop_map(|(splits, delay, pace)| {
        let row = |(n, (key, jitter, value)): (usize, (u8, i64, Option<i64>))| Row {
            key: oracle::key(key),
            ts: n as i64 * pace + jitter,
            value,
        };
        let splits: Vec<Vec<Row>> =
            splits.into_iter().map(|rows| rows.into_iter().enumerate().map(row).collect()).collect();
        oracle::arrival(&splits, delay)
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (1..25_i64, -9..9_i64).prop_map(|(size, offset)| Kind::Tumble { size, offset }),
        (1..12_i64, 1..25_i64, -9..9_i64).prop_map(|(slide, size, offset)| Kind::Hop { slide, size, offset }),
        (1..6_i64, 1..6_i64, -9..9_i64).prop_map(|(step, steps, offset)| Kind::Cumulate {
            step,
            size: step * steps,
            offset
        }),
        (1..25_i64).prop_map(|gap| Kind::Session { gap }),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    let emission = prop_oneof![Just(Emission::OnClose), Just(Emission::Changes), Just(Emission::OnExpiry)];
    let rest = (prop_oneof![Just(0), 1..60_i64], any::<bool>(), emission, 1..20_usize);
    (kind(), rest).prop_map(|(kind, (lateness, takes_late, emission, epoch_rows))| Question {
        kind,
        lateness,
        takes_late,
        emission,
        epoch_rows,
    })
}

/// Fails where the machine and the oracle differ.
fn compare(got: Got, expected: &Answer, question: Question) -> Result<(), TestCaseError> {
    prop_assert_eq!(sorted(got.events), sorted(expected.events.clone()));
    let mut refused = got.refused;
    refused.sort();
    let mut expected_refused = expected.refused.clone();
    expected_refused.sort();
    prop_assert_eq!(refused, expected_refused);
    let (no_window, accepted, refused) = expected.rows();
    let counts = (got.counts.no_window, got.counts.accepted, got.counts.refused);
    prop_assert_eq!(counts, (no_window as u64, accepted as u64, refused as u64));
    let pairs = |fate| expected.pairs.iter().flatten().filter(|(_, f)| *f == fate).count() as u64;
    let (on_time, late) = (pairs(oracle::Fate::OnTime), pairs(oracle::Fate::Late));
    prop_assert_eq!(got.counts.pairs_on_time, on_time);
    prop_assert_eq!(got.counts.pairs_late, if question.takes_late { late } else { 0 });
    let refused_pairs: u64 = expected.refused.iter().map(|refusal| u64::from(refusal.pairs)).sum();
    prop_assert_eq!(got.counts.pairs_side_output, refused_pairs);
    let mut rows_of: BTreeMap<oracle::Window, i64> = BTreeMap::new();
    for ((window, _), value) in expected.latest() {
        *rows_of.entry(window).or_default() += value.count;
    }
    let taken = got.windows.iter().filter(|(_, counts)| counts.on_time + counts.late > 0);
    let taken = taken.map(|(window, counts)| ((window.start, window.end), (counts.on_time + counts.late) as i64));
    prop_assert_eq!(taken.collect::<BTreeMap<_, _>>(), rows_of);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn operators_agree_with_the_oracle(
        question in question(),
        rows in rows(),
        batch_rows in 1..30_usize,
        workers in 1..4_usize,
    ) {
        let expected = oracle::answer(question, &rows);
        let (spec, policy) = (spec(question.kind), policy(question));
        let got = match question.kind {
            Kind::Session { .. } => {
                let mut machine = SessionAggregate::try_new(&spec, policy, &input()).unwrap();
                run(&mut machine, question, &rows, batch_rows)
            }
            _ => run(&mut Slices::new(&spec, policy, workers, &Memory::unlimited()), question, &rows, batch_rows),
        };
        compare(got, &expected, question)?;
    }

    /// State that never fits into memory: every head is spilled as soon as it has rows, and merged in parts.
    #[test]
    fn spilled_windows_agree_with_the_oracle(
        question in question(),
        rows in rows(),
        batch_rows in 1..30_usize,
        workers in 1..4_usize,
    ) {
        if let Kind::Session { .. } = question.kind {
            return Ok(());
        }
        let (spec, policy) = (spec(question.kind), policy(question));
        let (memory, files) = Memory::cramped(100_000);
        let got = run(&mut Slices::new(&spec, policy, workers, &memory), question, &rows, batch_rows).without_repeats();
        let taken = got.counts.accepted > 0;
        compare(got, &oracle::answer(question, &rows), question)?;
        prop_assert_eq!(files.files() > 0, taken);
    }

    /// C92, C95 for sessions: exported after every epoch, and imported into new operators every few.
    #[test]
    fn exported_sessions_go_on_as_if_nothing_had_been(
        gap in 1..25_i64,
        question in question(),
        rows in rows(),
        batch_rows in 1..30_usize,
        (shards, restart_every) in (1..4_usize, 1..4_usize),
    ) {
        let question = Question { kind: Kind::Session { gap }, ..question };
        let expected = oracle::answer(question, &rows);
        let (spec, policy) = (spec(question.kind), policy(question));
        let got = run(&mut Restarting::new(spec, policy, shards, restart_every), question, &rows, batch_rows);
        compare(got, &expected, question)?;
    }
}

/// Hundreds by default; `PROPTEST_CASES=10000` for the closing run.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500)
}
