//! Cases by number, and how much is held. That any rows in any batches give the right answer is a property, in
//! `operators::agreement`.

use arrow::datatypes::TimeUnit;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{cast, col};

use super::*;
use crate::operators::fate::Judged;
use crate::operators::graph::AggregateCall;
use crate::sql::statement::OnExpired;
use crate::testing::table;
use crate::window::{Span, WindowSpec};

const SECOND: i64 = 1_000_000;

fn input() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("ts", time, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn call(function: Arc<AggregateUDF>, distinct: bool) -> AggregateCall {
    let v = col("v", &input()).unwrap();
    let argument = if function.name() == "avg" { cast(v, &input(), DataType::Float64).unwrap() } else { v };
    let function = AggregateExprBuilder::new(function, vec![argument])
        .schema(input())
        .alias("x")
        .with_distinct(distinct)
        .build()
        .unwrap();
    AggregateCall { function: Arc::new(function), filter: None }
}

fn spec(gap_us: i64, aggregates: Vec<AggregateCall>) -> AggregateSpec {
    AggregateSpec {
        window: WindowSpec::try_new(WindowKind::Session { gap_us }, Span::Micros(0), None).unwrap(),
        event_time: 1,
        keys: vec![(col("k", &input()).unwrap(), "k".into())],
        aggregates,
        input: AggregateInput::Rows,
    }
}

#[derive(Clone, Copy)]
struct Setup {
    gap: i64,
    lateness: i64,
    policy: Policy,
}

/// A gap of 10 s, lateness in seconds, ON LATE UPDATE.
fn setup(lateness: i64, emit: Emit) -> Setup {
    let on_late = OnLate::Update { max_updates: None };
    let policy = Policy { allowed_lateness_us: lateness * SECOND, on_late, on_expired: OnExpired::SideOutput, emit };
    Setup { gap: 10, lateness, policy }
}

/// Runs a script of rows `k ts v` and watermarks `W s`, times in seconds, each an epoch of its own, and compares what
/// each line gives: upserts as `reason window k values… [replaced…]`, deletes as `delete window k`, refused rows as
/// `late|expired window late_by`.
fn check(setup: Setup, aggregates: Vec<AggregateCall>, script: &[(&str, &[&str])]) -> SessionAggregate {
    let policy = Policy { allowed_lateness_us: setup.lateness * SECOND, ..setup.policy };
    let mut operator = SessionAggregate::try_new(&spec(setup.gap * SECOND, aggregates), policy, &input()).unwrap();
    let mut w = i64::MIN;
    for (line, expected) in script {
        let mut out = SessionOutput::default();
        match line.strip_prefix("W ") {
            Some("end") => w = i64::MAX,
            Some(seconds) => w = (seconds.parse::<f64>().unwrap() * SECOND as f64) as i64,
            None => {
                let rows = table::parse(&input(), &line.replace(' ', "|"));
                operator.on_rows(&ArrivedRows { rows, judged: Judged::All(w), origin: None }, &mut out).unwrap();
            }
        }
        operator.on_watermark(w, &mut out).unwrap();
        operator.on_epoch(true, &mut out).unwrap();
        assert_eq!(said(&out), *expected, "after `{line}`");
        // A checkpoint only observes (C92).
        operator.export(Extent::Changes).unwrap();
    }
    operator
}

fn seconds(window: Window) -> String {
    let text = |us: i64| format!("{}", us as f64 / SECOND as f64);
    format!("[{},{})", text(window.start), text(window.end))
}

fn said(out: &SessionOutput) -> Vec<String> {
    let mut said = Vec::new();
    for changes in &out.changes {
        for line in table::sorted_lines(std::slice::from_ref(&changes.rows)) {
            let cells: Vec<&str> = line.split(" | ").collect();
            let window = format!("[{},{})", cells[0], cells[1]);
            let values = cells[2..cells.len() - 1].join(" ");
            let replaced =
                cells.last().filter(|cell| **cell != "NULL").map_or(String::new(), |cell| format!(" {cell}"));
            said.push(match changes.kind {
                ChangeKind::Upsert => format!("{} {window} {values}{replaced}", changes.reason.as_str()),
                ChangeKind::Delete => format!("delete {window} {}", cells[2]),
            });
        }
    }
    let fate = |late| if late { "late" } else { "expired" };
    let refused = |r: &Refused| format!("{} {} {}", fate(r.late), seconds(r.window), r.late_by_us / SECOND);
    said.extend(out.refused.iter().map(refused));
    said
}

#[test]
fn c17_a_bridging_row_makes_one_session_of_two() {
    let changes = setup(0, Emit::Changes { every: None });
    check(
        changes,
        vec![],
        &[
            ("a 0 1", &["early [0,10) a 1"]),
            ("a 15 1", &["early [15,25) a 1"]),
            (
                "a 8 1",
                &[
                    "delete [0,10) a",
                    "delete [15,25) a",
                    "early [0,25) a 3 [1970-01-01T00:00:00Z, 1970-01-01T00:00:10Z), [1970-01-01T00:00:15Z, 1970-01-01T00:00:25Z)",
                ],
            ),
        ],
    );
}

#[test]
fn c18_a_start_that_moves_back_is_another_identity() {
    let changes = setup(0, Emit::Changes { every: None });
    check(
        changes,
        vec![],
        &[
            ("a 20 1", &["early [20,30) a 1"]),
            ("a 14 1", &["delete [20,30) a", "early [14,30) a 2 [1970-01-01T00:00:20Z, 1970-01-01T00:00:30Z)"]),
        ],
    );
}

#[test]
fn c19_sessions_that_touch_stay_two() {
    let close = setup(0, Emit::OnWindowClose);
    check(close, vec![], &[("a 0 1", &[]), ("a 10 1", &[]), ("W end", &["initial [0,10) a 1", "initial [10,20) a 1"])]);
    check(close, vec![], &[("a 0 1", &[]), ("a 9.999999 1", &[]), ("W end", &["initial [0,19.999999) a 2"])]);
}

#[test]
fn c21_a_row_behind_w_is_judged_by_its_sessions_end() {
    let close = Setup { gap: 5, ..setup(0, Emit::OnWindowClose) };
    check(
        close,
        vec![],
        &[("W 6", &[]), ("b 3 1", &[]), ("W 8", &["initial [3,8) b 1"]), ("b 2 1", &["expired [3,8) 6"])],
    );
}

#[test]
fn c23_one_session_over_many_batches_closes_once() {
    let close = setup(0, Emit::OnWindowClose);
    let mut script: Vec<(&str, &[&str])> = vec![("a 0 10", &[]), ("a 0.2 20", &[]), ("a 0.4 30", &[])];
    script.extend([("a 0.6 40", &[] as &[&str]), ("a 0.8 50", &[]), ("W end", &["initial [0,10.8) a 150 5"])]);
    let operator = check(close, vec![call(sum_udaf(), false)], &script);
    assert_eq!(operator.sessions(), 0);
}

#[test]
fn c24_a_quiet_key_is_closed_by_the_others() {
    let close = setup(0, Emit::OnWindowClose);
    check(
        close,
        vec![],
        &[
            ("a 0 1", &[]),
            ("b 9 1", &[]),
            ("W 9", &[]),
            ("b 18 1", &[]),
            ("W 10", &["initial [0,10) a 1"]),
            ("W 27", &[]),
            ("W 28", &["initial [9,28) b 2"]),
        ],
    );
}

#[test]
fn c44_both_equalities_hold_for_sessions() {
    let late = Setup { gap: 60, ..setup(15, Emit::OnWindowClose) };
    check(
        late,
        vec![],
        &[
            ("a 0 1", &[]),
            ("W 60", &["initial [0,60) a 1"]),
            ("a 0 1", &["late_data [0,60) a 2"]),
            ("W 75", &[]),
            ("a 0 1", &["late_data [0,60) a 3"]),
            ("W 75.000001", &[]),
            ("a 0 1", &["expired [0,60) 75"]),
        ],
    );
}

#[test]
fn c51_c52_c53_values_are_read_any_number_of_times() {
    let late = setup(15, Emit::OnWindowClose);
    let calls = vec![call(count_udaf(), true), call(median_udaf(), false), call(avg_udaf(), false)];
    check(
        late,
        calls,
        &[
            ("a 0 10", &[]),
            ("a 0 20", &[]),
            ("W 10", &["initial [0,10) a 2 15 15.0 2"]),
            ("a 0 60", &["late_data [0,10) a 3 20 30.0 3"]),
            ("a 0 20", &["late_data [0,10) a 3 20 27.5 4"]),
            ("W end", &[]),
        ],
    );
}

#[test]
fn a_late_row_reopens_and_the_new_bounds_close() {
    let late = setup(20, Emit::OnWindowClose);
    check(
        late,
        vec![],
        &[
            ("a 0 1", &[]),
            ("W 12", &["initial [0,10) a 1"]),
            ("a 15 1", &[]),
            ("a 8 1", &["delete [0,10) a"]),
            ("W 25", &["initial [0,25) a 3 [1970-01-01T00:00:00Z, 1970-01-01T00:00:10Z)"]),
            ("W 46", &[]),
            ("a 20 1", &["expired [0,25) 26"]),
        ],
    );
}

#[test]
fn a_late_row_refused_by_policy_changes_nothing() {
    let late = setup(20, Emit::OnWindowClose);
    let late = Setup { policy: Policy { on_late: OnLate::SideOutput, ..late.policy }, ..late };
    check(
        late,
        vec![],
        &[
            ("a 0 1", &[]),
            ("W 12", &["initial [0,10) a 1"]),
            ("a 15 1", &[]),
            ("a 8 1", &["late [0,10) 4"]),
            ("W end", &["initial [15,25) a 1"]),
        ],
    );
}

#[test]
fn an_expired_session_is_not_joined_to_an_open_one() {
    let close = setup(0, Emit::OnWindowClose);
    check(
        close,
        vec![],
        &[
            ("a 0 1", &[]),
            ("W 12", &["initial [0,10) a 1"]),
            ("a 16 1", &[]),
            ("a 9 1", &["expired [0,10) 3"]),
            ("a 10 1", &[]),
            ("W 26", &["initial [10,26) a 2"]),
        ],
    );
}

#[test]
fn bounds_are_kept_while_an_open_session_creeps_back() {
    let close = setup(0, Emit::OnWindowClose);
    check(
        close,
        vec![],
        &[
            ("a 0 1", &[]),
            ("W 29", &["initial [0,10) a 1"]),
            ("a 30 1", &[]),
            ("W 39", &[]),
            ("a 21 1", &[]),
            ("a 12 1", &[]),
            ("a 5 1", &["expired [0,10) 34"]),
            ("W end", &["initial [12,40) a 3"]),
        ],
    );
}

#[test]
fn emit_on_expiry_says_one_thing_once() {
    let expiry = setup(20, Emit::OnExpiry);
    check(
        expiry,
        vec![],
        &[
            ("a 0 1", &[]),
            ("W 12", &[]),
            ("a 8 1", &[]),
            ("W 38", &[]),
            ("W 38.000001", &["initial [0,18) a 2"]),
            ("W end", &[]),
        ],
    );
}

#[test]
fn null_and_empty_keys_are_keys() {
    let close = setup(0, Emit::OnWindowClose);
    check(
        close,
        vec![],
        &[
            ("NULL 0 1", &[]),
            ("'' 1 1", &[]),
            ("NULL 2 1", &[]),
            ("W end", &["initial [0,12) NULL 2", "initial [1,11) '' 1"]),
        ],
    );
}

#[test]
fn times_at_the_edge_of_the_range_are_counted_not_wrapped() {
    let policy = setup(0, Emit::OnWindowClose).policy;
    let mut operator = SessionAggregate::try_new(&spec(10, vec![]), policy, &input()).unwrap();
    let times = TimestampMicrosecondArray::from(vec![Some(i64::MAX - 9), Some(i64::MAX - 10), None, Some(i64::MIN)]);
    let rows = RecordBatch::try_new(
        input(),
        vec![
            Arc::new(StringArray::from(vec!["a"; 4])),
            Arc::new(times.with_timezone("UTC")),
            Arc::new(Int64Array::from(vec![1; 4])),
        ],
    );
    let rows = ArrivedRows { rows: rows.unwrap(), judged: Judged::All(i64::MIN), origin: None };
    let mut out = SessionOutput::default();
    operator.on_rows(&rows, &mut out).unwrap();
    operator.on_watermark(i64::MAX, &mut out).unwrap();
    assert_eq!((out.counts.no_window, out.counts.accepted), (2, 2));
    assert_eq!(out.changes.iter().map(|c| c.rows.num_rows()).sum::<usize>(), 2);
}

#[test]
fn copies_of_a_source_row_are_one_row_and_a_pair_per_session() {
    let policy = setup(0, Emit::OnWindowClose).policy;
    let mut operator = SessionAggregate::try_new(&spec(10 * SECOND, vec![]), policy, &input()).unwrap();
    let rows = table::parse(&input(), "a|0|1\n b|0|1\n a|100|1\n c|0|2\n c|0|2");
    let judged = Judged::Each([0, 0, 50, 50, 50].map(|s| s * SECOND).to_vec());
    let mut out = SessionOutput::default();
    operator.on_rows(&ArrivedRows { rows, judged, origin: Some(vec![0, 0, 1, 2, 2]) }, &mut out).unwrap();
    let counts = &out.counts;
    assert_eq!((counts.accepted, counts.refused, counts.pairs_on_time, counts.pairs_side_output), (2, 1, 3, 1));
    assert_eq!((out.refused.len(), out.refused[0].origin, out.refused[0].pairs), (1, 2, 1));
}

#[test]
fn c96_nothing_is_held_of_keys_whose_sessions_are_over() {
    let policy = setup(5, Emit::OnWindowClose).policy;
    let calls = vec![call(sum_udaf(), false)];
    let mut operator = SessionAggregate::try_new(&spec(10 * SECOND, calls), policy, &input()).unwrap();
    let mut published = 0;
    let mut most = 0;
    for step in 0..200_i64 {
        let lines: Vec<String> = (0..1000).map(|i| format!("k{} | {} | 1", step * 1000 + i, step * 10)).collect();
        let rows = table::parse(&input(), &lines.join("\n"));
        let mut out = SessionOutput::default();
        operator
            .on_rows(&ArrivedRows { rows, judged: Judged::All(step * 10 * SECOND), origin: None }, &mut out)
            .unwrap();
        operator.on_watermark(step * 10 * SECOND, &mut out).unwrap();
        operator.on_epoch(false, &mut out).unwrap();
        published += out.changes.iter().map(|c| c.rows.num_rows()).sum::<usize>();
        most = most.max(operator.memory_bytes());
    }
    assert!(operator.keys.len() < 100_000 && operator.sessions() < 10_000, "{operator:?}");
    let mut out = SessionOutput::default();
    operator.on_watermark(i64::MAX, &mut out).unwrap();
    published += out.changes.iter().map(|c| c.rows.num_rows()).sum::<usize>();
    assert_eq!(published, 200_000);
    assert_eq!((operator.sessions(), operator.keys.len(), operator.partials.stored_rows()), (0, 0, 0));
    assert!(operator.memory_bytes() < most / 10, "{} of {most}", operator.memory_bytes());
}

#[test]
fn an_export_holds_what_changed_and_nothing_of_what_is_over() {
    let policy = setup(0, Emit::OnWindowClose).policy;
    let calls = vec![call(sum_udaf(), false), call(median_udaf(), false)];
    let new = || SessionAggregate::try_new(&spec(10 * SECOND, calls.clone()), policy, &input()).unwrap();
    let mut operator = new();
    let mut feed = |lines: &str, w: i64| {
        let mut out = SessionOutput::default();
        let rows = table::parse(&input(), lines);
        operator.on_rows(&ArrivedRows { rows, judged: Judged::All(0), origin: None }, &mut out).unwrap();
        operator.on_watermark(w * SECOND, &mut out).unwrap();
        operator.on_epoch(false, &mut out).unwrap();
        let export = operator.export(Extent::Changes).unwrap();
        (export.whole, export.live.num_rows(), export.bounds.num_rows(), export.removed.num_rows(), export)
    };
    let lines: Vec<String> = (0..1000).map(|i| format!("k{i} | 0 | 1")).collect();
    let (first, second) = (feed(&lines.join("\n"), 0), feed("k7 | 1 | 2\n new | 20 | 3\n k7 | 2 | 2", 0));
    assert_eq!((first.0, first.1, first.2, first.3), (true, 1000, 0, 0));
    assert_eq!((second.0, second.1, second.2, second.3), (false, 2, 0, 0));
    let third = feed("new | 21 | 5", 12);
    assert_eq!((third.1, third.2), (1, 1000), "closed at 10 and at 12: bounds alone");
    let fourth = feed("new | 22 | 5", 40);
    assert_eq!((fourth.1, fourth.2, fourth.3), (0, 1, 1000), "the bounds of `new` are the last that matter");

    let mut restored = new();
    let exports = [first.4, second.4, third.4];
    restored.import(&exports, |_, rows| Ok(vec![true; rows])).unwrap();
    let mut out = SessionOutput::default();
    restored.on_watermark(40 * SECOND, &mut out).unwrap();
    assert_eq!(said(&out), vec!["initial [20,31) new 8 4 2"]);
    assert_eq!(restored.sessions(), 1);
    let other = SessionAggregate::try_new(&spec(10 * SECOND, vec![]), policy, &input());
    let refused = other.unwrap().import(&exports, |_, rows| Ok(vec![true; rows])).unwrap_err();
    assert_eq!(refused.kind(), crate::ErrorKind::Corrupt);
}

#[test]
fn a_session_that_never_ends_is_rewritten_now_and_then() {
    let policy = setup(0, Emit::Changes { every: None }).policy;
    let calls = vec![call(sum_udaf(), false)];
    let mut operator = SessionAggregate::try_new(&spec(10 * SECOND, calls), policy, &input()).unwrap();
    for ts in 0..2 * SLACK as i64 {
        let rows = table::parse(&input(), &format!("a | {ts} | 1"));
        let mut out = SessionOutput::default();
        operator.on_rows(&ArrivedRows { rows, judged: Judged::All(ts), origin: None }, &mut out).unwrap();
        operator.partials.seal().unwrap();
        operator.tidy().unwrap();
    }
    assert!(operator.partials.stored_rows() <= SLACK + 4);
    let mut out = SessionOutput::default();
    operator.on_epoch(true, &mut out).unwrap();
    let sum = 2 * SLACK;
    assert_eq!(said(&out), vec![format!("early [0,{}) a {sum} {sum}", sum + 9)]);
}
