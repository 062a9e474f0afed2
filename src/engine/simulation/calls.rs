//! One scenario, in which every store call fails once, in turn: before it has an effect, after it, and half way.
//!
//! It would show a row that is lost or counted twice, a fate, version, refused or rejected row, counter or official number
//! that is another one after a failure, an engine that hangs, and a data dir that cannot be opened again. It cannot show
//! what takes two failures, nor what a real store does beyond failing.
//!
//! CI fails every 64th call; `HIGHWATER_CALLS=1`, each of them, is the closing run.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use object_store::ObjectStore;

use super::{Engine, SOURCE, World, lines, on_one_thread, within};
use crate::error::{ErrorKind, Result};
use crate::testing::faulty::{Fault, FaultyStore};

const VIEWS: [&str; 3] = [
    "CREATE MATERIALIZED VIEW v WITH (compact_files = '2') AS \
     SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total, count(DISTINCT v) AS different \
     FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end, k HAVING sum(v) > 0 \
     ALLOWED LATENESS INTERVAL '20 seconds' ON LATE UPDATE ON EXPIRED SIDE OUTPUT",
    "CREATE MATERIALIZED VIEW visits AS SELECT window_start, window_end, k, count(*) AS n \
     FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '8 seconds') GROUP BY window_start, window_end, k \
     ALLOWED LATENESS INTERVAL '20 seconds'",
    "CREATE MATERIALIZED VIEW gone AS SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '1 minute') \
     GROUP BY window_start, window_end",
];

/// What must be the same, whatever failed. Times of computation and epochs may differ: taking over is an epoch.
const QUESTIONS: [&str; 10] = [
    "SELECT * EXCLUDE (_computed_at, _epoch) FROM v",
    "SELECT * EXCLUDE (_computed_at, _epoch) FROM v$final",
    "SELECT window_start, k, n, total, different, _version, _reason, _deleted, _is_final, _event_count FROM v$history",
    "SELECT window_start, window_end, k, n, _version, _reason, _deleted, _supersedes FROM visits$history",
    "SELECT ts, k, v, _window_start, _window_end, _pairs, _late_by_us, _reason, _offset FROM v$late",
    "SELECT ts, k, v, _window_start, _window_end, _pairs, _late_by_us, _reason, _offset FROM visits$late",
    "SELECT _split, _offset, reason, raw FROM s$rejects",
    "SELECT window_start, window_end, state, dirty, on_time, late, refused_late, refused_expired FROM v$windows",
    "SHOW LATENESS",
    "SHOW SCHEDULES",
];

/// What a person or the stream does.
#[derive(Debug, Clone, Copy)]
enum Step {
    Sql(&'static str),
    /// Seconds, key and value of rows; a second below zero is none, and the row rejected.
    Push(&'static [(i64, &'static str, i64)]),
    /// Ends an epoch of every view.
    Epochs,
    /// Stops the engine in good order and opens another one.
    Reopen,
}

use Step::{Epochs, Push, Reopen, Sql};

const STEPS: &[Step] = &[
    Sql(SOURCE),
    Sql(VIEWS[0]),
    Sql(VIEWS[1]),
    Sql(VIEWS[2]),
    Sql("CREATE SCHEDULE nightly CRON '0 2 * * *' AS FINALIZE v LOOKBACK INTERVAL '1 day'"),
    Push(&[(1, "a", 1), (2, "b", 2), (-1, "a", 9), (9, "a", 3), (12, "a", 4)]),
    Epochs,
    Push(&[(16, "b", 5), (3, "b", 6), (25, "a", 7)]),
    Epochs,
    Sql("DROP MATERIALIZED VIEW IF EXISTS gone"),
    Push(&[(8, "b", -20), (11, "c", 8), (37, "b", 9)]),
    Epochs,
    Reopen,
    Push(&[(2, "c", 10), (20, "c", 1), (-1, "c", 1), (55, "a", 2)]),
    Epochs,
    Sql("OPTIMIZE v"),
    Sql("FINALIZE v FROM '1970-01-01T00:00:00Z' TO '1970-01-01T00:00:30Z' REASON 'official'"),
    Push(&[(4, "a", 100), (61, "b", 3)]),
    Epochs,
    Sql("FINALIZE v FROM '1970-01-01T00:00:00Z' TO '1970-01-01T00:00:30Z' REASON 'official'"),
    Sql("ROLLBACK v FOR WINDOW '1970-01-01T00:00:10Z' KEY (k = 'a') TO VERSION 1"),
    Push(&[(72, "a", 3), (58, "b", 4)]),
    Epochs,
    Sql("OPTIMIZE v"),
    Sql("VACUUM v"),
    Reopen,
    Push(&[(95, "a", 3)]),
    Epochs,
];

/// One run over a store whose call number `at` fails.
struct Run {
    world: World,
    store: Arc<FaultyStore>,
    engine: Option<Engine>,
    views: Vec<&'static str>,
}

impl Run {
    fn new(at: u64, fault: Fault) -> Self {
        let world = World::new();
        let store = Arc::new(FaultyStore::new(Arc::clone(&world.stored) as Arc<dyn ObjectStore>, at, fault));
        Self { world, store, engine: None, views: vec![] }
    }

    async fn engine(&mut self) -> Result<Engine> {
        if self.engine.is_none() {
            self.engine = Some(self.world.engine(Arc::clone(&self.store) as _).await?);
        }
        Ok(self.engine.clone().expect("it was opened"))
    }

    async fn step(&mut self, step: Step) -> Result<()> {
        let engine = self.engine().await?;
        match step {
            Sql(text) => within(engine.execute(text)).await.map(drop),
            Push(_) => Ok(()),
            Epochs => {
                for view in &self.views {
                    within(engine.epoch(view)).await?;
                }
                Ok(())
            }
            Reopen => {
                within(engine.shutdown()).await?;
                self.engine = None;
                self.engine().await.map(drop)
            }
        }
    }

    /// Does `step`. An engine that fails at it must say that the store did; another one does it then.
    async fn done(&mut self, step: Step) {
        if let Push(rows) = step {
            self.world.push(rows);
        }
        if let Err(error) = self.step(step).await {
            let unavailable = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Closed);
            assert!(unavailable && self.store.failed(), "{step:?}: {error:?}");
            if let Some(engine) = self.engine.take() {
                within(engine.abort()).await;
            }
            self.step(step).await.unwrap_or_else(|e| panic!("{step:?}, once more: {e:?}"));
        }
        match step {
            Sql(text) if text == VIEWS[0] => self.views.push("v"),
            Sql(text) if text == VIEWS[1] => self.views.push("visits"),
            _ => {}
        }
    }

    /// Answers to the questions at the end, by the engine at work and by one that opens what it left.
    async fn answers(mut self) -> (Vec<Vec<String>>, BTreeMap<String, usize>, u64) {
        for step in STEPS {
            self.done(*step).await;
        }
        let calls = self.store.calls();
        let engine = self.engine().await.expect("the fault is over");
        let at_work = answers(&engine).await;
        within(engine.shutdown()).await.expect("the fault is over");
        let engine = self.world.engine(Arc::clone(&self.world.stored) as _).await.expect("a healthy store");
        assert_eq!(answers(&engine).await, at_work, "another engine answers otherwise");
        within(engine.abort()).await;
        (at_work, self.world.logged().await, calls)
    }
}

async fn answers(engine: &Engine) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for question in QUESTIONS {
        all.push(lines(engine, question).await.unwrap_or_else(|e| panic!("{question}: {e:?}")));
    }
    all
}

fn run(at: u64, fault: Fault) -> (Vec<Vec<String>>, BTreeMap<String, usize>, u64) {
    on_one_thread(Run::new(at, fault).answers())
}

/// Calls to fail: every n-th of `calls`, others for each fault.
fn sample(calls: u64, fault: usize) -> Vec<u64> {
    let every = std::env::var("HIGHWATER_CALLS").ok().and_then(|every| every.parse().ok()).unwrap_or(64);
    (1..=calls + 2).filter(|at| at % every == fault as u64 * every / 4).collect()
}

/// What a run got otherwise than expected.
fn differences(
    expected: &[Vec<String>],
    got: &[Vec<String>],
    logged: &BTreeMap<String, usize>,
    (at, fault): (u64, Fault),
) -> Vec<String> {
    let answers = QUESTIONS.iter().zip(expected).zip(got).filter(|((_, expected), got)| expected != got);
    let answers = answers.map(|((question, expected), got)| {
        format!("{fault:?} at call {at}: {question}\nexpected {expected:#?}\ngot {got:#?}")
    });
    let twice = logged.iter().filter(|(_, commits)| **commits > 1);
    answers.chain(twice.map(|(file, _)| format!("{fault:?} at call {at}: {file} is logged twice"))).collect()
}

#[test]
fn c100_every_store_call_of_the_engine_fails_once_in_turn() {
    let (expected, _, calls) = run(u64::MAX, Fault::Refused);
    for (question, answer) in QUESTIONS.iter().zip(&expected) {
        assert!(!answer.is_empty(), "{question}: nothing that could get lost");
    }
    let (mut points, mut failures) = (0, Vec::new());
    for (nth, fault) in [Fault::Refused, Fault::AnswerLost, Fault::Torn, Fault::Doubled].into_iter().enumerate() {
        for at in sample(calls, nth) {
            points += 1;
            // One call that ends badly hides no other.
            match std::panic::catch_unwind(|| run(at, fault)) {
                Ok((got, logged, _)) => failures.extend(differences(&expected, &got, &logged, (at, fault))),
                Err(_) => failures.push(format!("{fault:?} at call {at}: see above")),
            }
        }
    }
    assert!(failures.is_empty(), "{} of {points}:\n{}", failures.len(), failures.join("\n"));
    // Seen with `--nocapture`.
    let _ = writeln!(std::io::stderr(), "{calls} store calls, {points} failures injected, nothing lost, nothing twice");
}
