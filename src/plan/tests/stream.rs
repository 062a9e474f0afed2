//! What a stream computes where: plans of queries over windows, as EXPLAIN words them.

use super::{batch, graph, parse, plan, planner, run};
use crate::operators::graph::Operator;

#[test]
fn tumbling_by_key_reads_what_it_needs() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, window_end, k, sum(x) AS total, count(*) AS n, avg(x) AS mean
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             WHERE v > 3
             GROUP BY window_start, window_end, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v, x]
    #1 Rows: filter=v > 3, columns=[k, x, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @2, keys=[k AS k], aggregates=[sum(s.x), count(Int64(1)), avg(s.x)] <- #1
    #3 Versions: columns=[window_start, window_end, k, sum(s.x) AS total, count(Int64(1)) AS n, avg(s.x) AS mean, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, window_end, k, total, n, mean] keys=[k@2]
    "#
    );
}

#[test]
fn select_may_leave_out_keys_and_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT max(v) AS top FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_end, k, v % 10"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: columns=[k, v, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @2, keys=[k AS k, v % 10 AS s.v % Int64(10)], aggregates=[max(s.v)] <- #1
    #3 Versions: columns=[@4 AS top, @2 AS _key_k, @3 AS _key_s_v_Int64_10, window_start AS _window_start, @1 AS _window_end, _event_count] <- #2
    select=[top] keys=[_key_k@1, _key_s_v_Int64_10@2]
    "#
    );
}

#[test]
fn c62_without_a_key_the_window_stays() {
    insta::assert_snapshot!(
        plan(
            "SELECT count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time)]
    #1 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #0
    #2 Versions: columns=[count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #1
    select=[n] keys=[]
    "#
    );
}

#[test]
fn having_and_expressions_apply_to_versions() {
    insta::assert_snapshot!(
        plan(
            "SELECT k, window_end - window_start AS length, sum(v) * 2 AS double
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end, k HAVING count(*) > 1 AND k <> 'b'"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: columns=[k, v, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @2, keys=[k AS k], aggregates=[sum(s.v), count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, window_end, k, sum(s.v), count(Int64(1)), _event_count] <- #2
    #4 Versions: filter=count(Int64(1)) > 1 AND k != 'b', columns=[k, window_end - window_start AS length, sum(s.v) * 2 AS double, window_start AS _window_start, window_end AS _window_end, _event_count] <- #3
    select=[k, length, double] keys=[k@0]
    "#
    );
}

#[test]
fn predicates_on_the_window_wait_for_its_results() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             WHERE window_start >= TIMESTAMP '2024-01-01 00:00:00' AND v = 1
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), v]
    #1 Rows: filter=v = 1, columns=[ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #1
    #3 Versions: filter=window_start >= TIMESTAMP '2024-01-01T00:00:00Z', columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn c35_no_filter_slips_under_the_watermark() {
    insta::assert_snapshot!(
        plan(
            "WITH t AS (SELECT ts AS at, k FROM s WHERE pad <> 'x')
             SELECT window_start, count(*) AS n FROM TUMBLE(t, DESCRIPTOR(at), INTERVAL '2 minutes')
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), pad]
    #1 Rows: filter=pad != 'x', columns=[ts AS at] <- #0
    #2 Window: TUMBLE size 2 minutes on @0, keys=[], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn a_macro_view_keeps_the_watermark() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, k, sum(v2) AS total FROM TUMBLE(big, DESCRIPTOR(ts), INTERVAL '1 hour')
             GROUP BY window_start, window_end, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: filter=v > 100, columns=[k, v * 2 AS v2, ts] <- #0
    #2 Window: TUMBLE size 1 hour on @2, keys=[k AS k], aggregates=[sum(big.v2)] <- #1
    #3 Versions: columns=[window_start, k, sum(big.v2) AS total, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, k, total] keys=[k@1]
    "#
    );
}

#[test]
fn c36_union_all_of_sources() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n
             FROM TUMBLE((SELECT ts, v FROM s UNION ALL SELECT ts, v FROM s2 WHERE v > 1), DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time)]
    #1 Source: s2, bounded, columns=[ts (event time), v]
    #2 Rows: filter=v > 1, columns=[ts] <- #1
    #3 Union <- #0, #2
    #4 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #3
    #5 Versions: columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn c64_a_window_of_windows_takes_window_time() {
    insta::assert_snapshot!(
        plan(
            "WITH per_minute AS (
                 SELECT window_time AS at, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 minute')
                 GROUP BY window_start, window_end, window_time, k)
             SELECT window_start, sum(n) AS n FROM TUMBLE(per_minute, DESCRIPTOR(at), INTERVAL '5 minutes')
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 1 minute on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[count(Int64(1)) AS n, window_end, k, window_start, window_end - INTERVAL '0.000001 seconds' AS at, _event_count] <- #2
    #4 Window: TUMBLE size 5 minutes on @1, keys=[], aggregates=[sum(per_minute.n)], over results <- #3
    #5 Versions: columns=[window_start, sum(per_minute.n) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn c67_rows_pass_through_without_a_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT k, v + 1 AS next FROM s WHERE v > 0"
        ),
        @r#"
    #0 Source: s, bounded, columns=[k, v, ts (event time)]
    #1 Rows: filter=v > 0, columns=[k, v + 1 AS next] <- #0
    #2 PassThrough <- #1
    select=[k, next] keys=[]
    "#
    );
}

#[test]
fn distinct_filter_and_order_stay_inside() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(DISTINCT k) AS keys, sum(v) FILTER (WHERE x > 0) AS positive,
                 array_agg(k ORDER BY v DESC) AS names
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v, x, _split, _offset]
    #1 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(DISTINCT s.k), sum(s.v) FILTER (WHERE s.x > Int64(0)) FILTER (WHERE x > 0), array_agg(s.k) ORDER BY [s.v DESC NULLS FIRST, s.ts ASC NULLS LAST, s.__split ASC NULLS LAST, s.__offset ASC NULLS LAST]] <- #0
    #2 Versions: columns=[window_start, count(DISTINCT s.k) AS keys, sum(s.v) FILTER (WHERE s.x > Int64(0)) AS positive, array_agg(s.k) ORDER BY [s.v DESC NULLS FIRST] AS names, window_start AS _window_start, window_end AS _window_end, _event_count] <- #1
    select=[window_start, keys, positive, names] keys=[]
    "#
    );
}

#[test]
fn a_session_is_per_key() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, window_end, k, count(*) AS n
             FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5 minutes')
             GROUP BY window_start, window_end, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: SESSION gap 5 minutes on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, window_end, k, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count, _supersedes] <- #2
    select=[window_start, window_end, k, n] keys=[k@2]
    "#
    );
}

#[test]
fn the_window_may_be_a_group_key() {
    insta::assert_snapshot!(
        plan(
            "SELECT tumble(ts, INTERVAL '10 seconds') AS w, k, count(*) AS n FROM s GROUP BY w, k"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS w, k, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[w, k, n] keys=[k@1]
    "#
    );
}

#[test]
fn the_window_function_finds_the_event_time() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n, tumble(INTERVAL '10 seconds') FROM s
             WHERE k = 'a' GROUP BY tumble(INTERVAL '10 seconds') HAVING count(*) > 2"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: filter=k = 'a', columns=[ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS highwater_window(Int64(0)), count(Int64(1)), window_start, window_end, _event_count] <- #2
    #4 Versions: filter=count(Int64(1)) > 2, columns=[get_field(highwater_window(Int64(0)), 'start') AS window_start, count(Int64(1)) AS n, highwater_window(Int64(0)) AS tumble, window_start AS _window_start, window_end AS _window_end, _event_count] <- #3
    select=[window_start, n, tumble] keys=[]
    "#
    );
}

#[test]
fn a_session_in_group_by_is_per_other_key() {
    insta::assert_snapshot!(
        plan(
            "SELECT session(ts, INTERVAL '5 minutes') AS w, lower(k) AS lk, sum(v) AS total FROM s
             GROUP BY session(ts, INTERVAL '5 minutes'), lower(k)"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: columns=[v, lower(k) AS lower(s.k), ts] <- #0
    #2 Window: SESSION gap 5 minutes on @2, keys=[lower(s.k) AS lower(s.k)], aggregates=[sum(s.v)] <- #1
    #3 Versions: columns=[window_start, window_end, lower(s.k), sum(s.v), _event_count, _supersedes] <- #2
    #4 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS w, lower(s.k) AS lk, sum(s.v) AS total, window_start AS _window_start, window_end AS _window_end, _event_count, _supersedes] <- #3
    select=[w, lk, total] keys=[lk@1]
    "#
    );
}

#[test]
fn a_static_table_joins_the_rows() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, name, sum(v) AS total
             FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') AS t JOIN names AS d ON t.k = d.k AND t.v > 0
             WHERE name <> 'x' GROUP BY window_start, window_end, name"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, v]
    #1 Rows: filter=v > 0, columns=[k, v, ts] <- #0
    #2 StaticJoin: Inner names, on=[k = k] <- #1
    #3 Rows: columns=[v, name, ts] <- #2
    #4 Window: TUMBLE size 10 seconds on @2, keys=[name AS name], aggregates=[sum(t.v)] <- #3
    #5 Versions: columns=[window_start, name, sum(t.v) AS total, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, name, total] keys=[name@1]
    "#
    );
}

#[test]
fn exists_and_in_test_a_static_table() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') AS t
             WHERE k IN (SELECT k FROM names WHERE name <> 'Bob') AND NOT EXISTS (SELECT 1 FROM names AS m WHERE m.name = t.pad)
             GROUP BY window_start, window_end"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k, pad]
    #1 Rows: columns=[k, pad, ts] <- #0
    #2 StaticJoin: Semi names, on=[k = k] <- #1
    #3 Rows: columns=[pad, ts] <- #2
    #4 StaticJoin: Anti names, on=[pad = name] <- #3
    #5 Rows: columns=[ts] <- #4
    #6 Window: TUMBLE size 10 seconds on @0, keys=[], aggregates=[count(Int64(1))] <- #5
    #7 Versions: columns=[window_start, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #6
    select=[window_start, n] keys=[]
    "#
    );
}

#[test]
fn a_left_join_from_the_table_side() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, name, count(*) AS n
             FROM names AS d RIGHT JOIN TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') AS t ON t.k = d.k
             GROUP BY window_start, window_end, name"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 StaticJoin: Left names, on=[k = k] <- #1
    #3 Rows: columns=[name, ts] <- #2
    #4 Window: TUMBLE size 10 seconds on @1, keys=[name AS name], aggregates=[count(Int64(1))] <- #3
    #5 Versions: columns=[window_start, name, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #4
    select=[window_start, name, n] keys=[name@1]
    "#
    );
}

#[test]
fn top_n_re_evaluates_the_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, k, n FROM (
                 SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rn FROM (
                     SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end, k))
             WHERE rn <= 2"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 WholeWindow: keys=[1] <- #2
    #4 Versions: columns=[window_start, k, n, window_start AS _window_start, __carried_2 AS _window_end, __carried_3 AS _event_count] <- #3
    select=[window_start, k, n] keys=[k@1]
    "#
    );
}

#[test]
fn distinct_and_a_second_aggregate_within_the_window() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, max(n) AS top, count(*) AS keys FROM (
                 SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds') GROUP BY window_start, window_end, k)
             GROUP BY window_start"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), k]
    #1 Rows: columns=[k, ts] <- #0
    #2 Window: TUMBLE size 10 seconds on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
    #3 WholeWindow: keys=[] <- #2
    #4 Versions: columns=[window_start, top, keys, window_start AS _window_start, __carried_1 AS _window_end, __carried_2 AS _event_count] <- #3
    select=[window_start, top, keys] keys=[]
    "#
    );
}

#[test]
fn the_plan_of_a_whole_window_runs() {
    let graph = graph(
        "SELECT k, n, rank() OVER (PARTITION BY window_end ORDER BY n DESC) AS place FROM (
             SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '10 seconds')
             GROUP BY window_start, window_end, k)",
    );
    let (input, spec) = graph
        .nodes
        .iter()
        .find_map(|node| match &node.operator {
            Operator::WholeWindow(spec) => Some((node.inputs[0], spec)),
            _ => None,
        })
        .expect("OVER needs the whole window");
    let rows = |text: &str| crate::testing::table::parse(&graph.nodes[input].schema, text);
    let one = rows(
        "0 | 10 | a | 5 | 5
         0 | 10 | b | 9 | 9",
    );
    let first = spec.plan.evaluate(&one).expect("a plan over two rows");
    let again = spec.plan.evaluate(&one).expect("a plan that runs twice");
    assert_eq!(first, again, "no state is left from the window before");
    let shown = arrow::util::pretty::pretty_format_batches(&[first]).expect("printable").to_string();
    insta::assert_snapshot!(shown, @r#"
    +---+---+-------+----------------------+----------------------+-------------+
    | k | n | place | __carried_1          | __carried_2          | __carried_3 |
    +---+---+-------+----------------------+----------------------+-------------+
    | b | 9 | 1     | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 9           |
    | a | 5 | 2     | 1970-01-01T00:00:00Z | 1970-01-01T00:00:10Z | 5           |
    +---+---+-------+----------------------+----------------------+-------------+
    "#);
}

#[test]
fn explain_hides_no_default() {
    let query = parse(
        "SELECT window_start, k, count(*) AS n FROM HOP(s, DESCRIPTOR(ts), INTERVAL '1 minute', INTERVAL '1 hour')
         GROUP BY window_start, window_end, k
         ALLOWED LATENESS INTERVAL '90 minutes' ON LATE UPDATE MAX 10 UPDATES EMIT CHANGES EVERY INTERVAL '5 seconds'",
    );
    let text = run(planner().explain_stream(&query, "memory")).expect("a plan");
    insta::assert_snapshot!(text, @r#"
    streaming: rows are judged in arrival order
    watermark of s: ts AS ts - INTERVAL '5 seconds', idle timeout none
    window: HOP slide 1 minute, size 1 hour
    allowed lateness: 1 hour 30 minutes
    on late: UPDATE MAX 10 UPDATES
    on expired: SIDE OUTPUT
    emit: CHANGES EVERY 5 seconds
    state: memory
    operators:
      #0 Source: s, bounded, columns=[ts (event time), k]
      #1 Rows: columns=[k, ts] <- #0
      #2 Window: HOP slide 1 minute, size 1 hour on @1, keys=[k AS k], aggregates=[count(Int64(1))] <- #1
      #3 Versions: columns=[window_start, k, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    "#);
    let plain =
        parse("SELECT window_end, count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_end");
    insta::assert_snapshot!(run(planner().explain_stream(&plain, "memory")).expect("a plan"), @r#"
    streaming: rows are judged in arrival order
    watermark of s: ts AS ts - INTERVAL '5 seconds', idle timeout none
    window: TUMBLE size 1 hour
    allowed lateness: 0 seconds
    on late: no row is late: L is zero
    on expired: SIDE OUTPUT
    emit: ON WINDOW CLOSE
    state: memory
    operators:
      #0 Source: s, bounded, columns=[ts (event time)]
      #1 Window: TUMBLE size 1 hour on @0, keys=[], aggregates=[count(Int64(1))] <- #0
      #2 Versions: columns=[@1 AS window_end, @2 AS count(*), window_start AS _window_start, @1 AS _window_end, _event_count] <- #1
    "#);
}

#[test]
fn a_query_streams_by_its_clauses_or_its_source() {
    let streams = |sql: &str| run(planner().is_streaming(&parse(sql))).expect("a plan");
    assert!(!streams("SELECT count(*) FROM s"), "bounded, no clause");
    assert!(streams(
        "SELECT count(*) FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_end EMIT CHANGES"
    ));
    assert!(!streams("SELECT count(*) FROM names"));
}

#[test]
fn c72_float_keys_are_one_group_per_number() {
    insta::assert_snapshot!(
        plan("SELECT window_start, x, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1 hour') GROUP BY window_start, window_end, x"),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), x]
    #1 Rows: columns=[x, ts] <- #0
    #2 Window: TUMBLE size 1 hour on @1, keys=[CASE WHEN isnan(x) THEN NaN ELSE x + 0 END AS x], aggregates=[count(Int64(1))] <- #1
    #3 Versions: columns=[window_start, x, count(Int64(1)) AS n, window_start AS _window_start, window_end AS _window_end, _event_count] <- #2
    select=[window_start, x, n] keys=[x@1]
    "#
    );
    insta::assert_snapshot!(
        batch("SELECT f, count(*) AS n FROM (VALUES (-0.0::double), (0.0::double), ('NaN'::double), (-('NaN'::double))) AS t(f) GROUP BY f ORDER BY 1"),
        @r#"
        +-----+---+
        | f   | n |
        +-----+---+
        | 0.0 | 2 |
        | NaN | 2 |
        +-----+---+
        "#
    );
}

#[test]
fn aggregates_that_depend_on_order_follow_arrival() {
    insta::assert_snapshot!(
        plan(
            "SELECT window_start, first_value(v) AS first, array_agg(v ORDER BY x) AS all FROM (
                 SELECT ts, v, x FROM s UNION ALL SELECT ts, v, x FROM s2) GROUP BY tumble(ts, INTERVAL '1 hour')"
        ),
        @r#"
    #0 Source: s, bounded, columns=[ts (event time), v, x, _split, _offset]
    #1 Rows: columns=[ts, v, x, 0 AS __source, __split, __offset] <- #0
    #2 Source: s2, bounded, columns=[ts (event time), v, x, _split, _offset]
    #3 Rows: columns=[ts, v, x, 1 AS __source, __split, __offset] <- #2
    #4 Union <- #1, #3
    #5 Window: TUMBLE size 1 hour on @0, keys=[], aggregates=[first_value(v) ORDER BY [ts ASC NULLS LAST, __source ASC NULLS LAST, __split ASC NULLS LAST, __offset ASC NULLS LAST], array_agg(v) ORDER BY [x ASC NULLS LAST, ts ASC NULLS LAST, __source ASC NULLS LAST, __split ASC NULLS LAST, __offset ASC NULLS LAST]] <- #4
    #6 Versions: columns=[named_struct('start', window_start, 'end', window_end) AS highwater_window(Int64(0),ts), first_value(v), array_agg(v) ORDER BY [x ASC NULLS LAST], window_start, window_end, _event_count] <- #5
    #7 Versions: columns=[get_field(highwater_window(Int64(0),ts), 'start') AS window_start, first_value(v) AS first, array_agg(v) ORDER BY [x ASC NULLS LAST] AS all, window_start AS _window_start, window_end AS _window_end, _event_count] <- #6
    select=[window_start, first, all] keys=[]
    "#
    );
}
