//! Statements on finality, jobs, schedules and stored results, and RESTART.

use super::super::*;
use super::{CLAUSES, check_errors, error, one, summary};

#[test]
fn runs_are_read() {
    for (sql, expected) in [
        ("FINALIZE v FOR DATE '2024-01-15'", "Finalize v on 2024-01-15"),
        ("finalize V, \"W\" lookback interval '1 day'", "Finalize v+W last 1 day"),
        (
            "FINALIZE v FROM '2024-01-01' TO TIMESTAMP '2024-01-02T00:00:00Z' REASON 'daily_finalization' FORCE",
            "Finalize v (2024-01-01, 2024-01-02T00:00:00Z] because daily_finalization by force",
        ),
        ("FINALIZE v FROM '2024-01-01'", "Finalize v (2024-01-01, now]"),
        ("FINALIZE v FOR DATE '2024-01-15' FORCE USING ARCHIVE", "Finalize v on 2024-01-15 of Archive by force"),
        (
            "REPROCESS v LOOKBACK INTERVAL '7 days' USING BATCH LOCATION REASON 'fixed'",
            "Reprocess v last 7 days of BatchLocation because fixed",
        ),
        ("REPROCESS v FOR DATE '2024-01-15' USING SOURCE", "Reprocess v on 2024-01-15 of Source"),
        ("REPROCESS v FOR DATE '2024-01-15' USING 's3://b/x/'", "Reprocess v on 2024-01-15 of Location(\"s3://b/x/\")"),
        ("PATCH v", "Patch v all"),
        ("PATCH v FOR DATE '2024-01-15' REASON 'r'", "Patch v on 2024-01-15 because r"),
        ("VERIFY v", "Verify v all"),
        ("VERIFY MATERIALIZED VIEW v, w FROM 'a' TO 'b' USING ARCHIVE", "Verify v+w (a, b] of Archive"),
    ] {
        assert_eq!(summary(&one(sql)), expected, "{sql}");
    }
}

#[test]
fn rollbacks_are_read() {
    for (sql, expected) in [
        ("ROLLBACK v FOR WINDOW '10:00' TO VERSION 3", "rollback v 10:00 to Version(3)"),
        ("ROLLBACK v FOR WINDOW '10:00' TO TIMESTAMP '12:00'", "rollback v 10:00 to Timestamp(\"12:00\")"),
        ("ROLLBACK v FOR WINDOW '10:00' TO '11:00' TO VERSION 3", "rollback v 10:00..11:00 to Version(3)"),
        (
            "ROLLBACK v FOR WINDOW TIMESTAMP '10:00' TO TIMESTAMP '11:00' TO TIMESTAMP '12:00'",
            "rollback v 10:00..11:00 to Timestamp(\"12:00\")",
        ),
        (
            "ROLLBACK v FOR WINDOW '10:00' KEY (Region = 'a', \"N\" = -7, z IS NULL) TO VERSION 1 REASON 'wrong feed'",
            "rollback v 10:00 region='a' N=-7 z=NULL to Version(1) because wrong feed",
        ),
        (
            "ROLLBACK v FOR WINDOW '10:00' TO TIMESTAMP '11:00' KEY (k = 1) TO VERSION 1",
            "rollback v 10:00..11:00 k=1 to Version(1)",
        ),
        // Of transactions, not of views.
        ("ROLLBACK", "datafusion: ROLLBACK"),
        ("ROLLBACK TRANSACTION", "datafusion: ROLLBACK"),
    ] {
        assert_eq!(summary(&one(sql)), expected, "{sql}");
    }
}

#[test]
fn schedules_jobs_and_maintenance_are_read() {
    for (sql, expected) in [
        (
            "CREATE SCHEDULE nightly CRON '0 2 * * *' TIME ZONE 'UTC' AS FINALIZE v LOOKBACK INTERVAL '1 day'",
            "schedule nightly at 0 2 * * * in UTC: Finalize v last 1 day",
        ),
        (
            "CREATE SCHEDULE IF NOT EXISTS n CRON '@hourly' AS PATCH v REASON 'hourly'",
            "schedule n at @hourly in -: Patch v all because hourly",
        ),
        ("CREATE OR REPLACE SCHEDULE n CRON 'x' AS VERIFY v", "schedule n at x in -: Verify v all"),
        ("PAUSE SCHEDULE n", "Pause schedule n"),
        ("RESUME SCHEDULE N", "Resume schedule n"),
        ("RUN SCHEDULE \"N\"", "RunNow schedule N"),
        ("PAUSE schedule", "pause schedule"),
        ("DROP SCHEDULE IF EXISTS n", "drop Schedule n if exists"),
        ("CANCEL JOB 17", "cancel 17"),
        ("CANCEL JOB 'f-17'", "cancel f-17"),
        ("OPTIMIZE v", "Optimize v"),
        ("VACUUM MATERIALIZED VIEW v", "Vacuum v"),
    ] {
        assert_eq!(summary(&one(sql)), expected, "{sql}");
    }
}

#[test]
fn restart_belongs_to_the_replaced_definition() {
    let Statement::CreateMaterializedView(view) =
        one("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k FROM t EMIT CHANGES RESTART")
    else {
        panic!()
    };
    assert_eq!((view.restart, view.query.text.as_str()), (true, "SELECT k FROM t"));
    let Statement::CreateMaterializedView(view) =
        one("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k FROM t RESTART")
    else {
        panic!()
    };
    assert_eq!((view.restart, view.query.text.as_str()), (true, "SELECT k FROM t"));
    let Statement::CreateSource(source) = one("CREATE OR REPLACE SOURCE s (a INT) WITH (connector = 'push') RESTART")
    else {
        panic!()
    };
    assert!(source.restart && source.text.ends_with("RESTART"));
    check_errors(&[
        (
            "CREATE MATERIALIZED VIEW v AS SELECT k FROM t RESTART",
            "syntax 1:47: RESTART without OR REPLACE \
             (write CREATE OR REPLACE … RESTART to drop what an older definition made)",
        ),
        ("SELECT k FROM t RESTART", "syntax 1:17: expected the end of the statement, found `RESTART` (-)"),
        (
            "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k FROM t RESTART EMIT CHANGES",
            &format!("syntax 1:58: expected {CLAUSES}, found `RESTART` (-)"),
        ),
    ]);
}

#[test]
fn wrong_runs_are_explained() {
    check_errors(&[
        (
            "FINALIZE v",
            "syntax 1:11: expected FROM, FOR DATE or LOOKBACK, found the end of the text \
             (say which windows, by their end: FINALIZE v FOR DATE '2024-01-15')",
        ),
        (
            "FINALIZE v LOOKBAK INTERVAL '1 day'",
            "syntax 1:12: expected FROM, FOR DATE or LOOKBACK, found `LOOKBAK` (did you mean LOOKBACK?)",
        ),
        ("FINALIZE v FOR DATE 2024", "syntax 1:21: expected a date in quotes: '2024-01-15', found `2024` (-)"),
        ("FINALIZE v LOOKBACK INTERVAL '0 s'", "invalid 1:21: LOOKBACK must be above zero, is `0 seconds` (-)"),
        ("FINALIZE v, V FOR DATE 'd'", "syntax 1:13: view `v` is given twice (the first one is at line 1, column 10)"),
        ("FINALIZE v FOR DATE 'd' FORCE FORCE", "syntax 1:31: FORCE is given twice (keep one of them)"),
        (
            "FINALIZE v FOR DATE 'd' REASN 'x'",
            "syntax 1:25: expected USING, REASON, FORCE or the end of the statement, found `REASN` (did you mean REASON?)",
        ),
        ("FINALIZE v FOR DATE 'd' REASON ' '", "invalid 1:32: REASON is empty (leave it out, or say why)"),
        ("VERIFY v FORCE", "syntax 1:10: VERIFY takes no FORCE (leave FORCE out)"),
        (
            "PATCH v 'x'",
            "syntax 1:9: expected FROM, FOR DATE, LOOKBACK, REASON, FORCE or the end of the statement, found `'x'` (-)",
        ),
        (
            "REPROCESS v FOR DATE 'd' USING ARCHIV",
            "syntax 1:32: expected ARCHIVE, BATCH LOCATION or SOURCE, found `ARCHIV` (did you mean USING ARCHIVE?)",
        ),
        (
            "ROLLBACK v TO VERSION 3",
            "syntax 1:12: expected FOR WINDOW, found `TO` \
             (say which window, by its start: ROLLBACK v FOR WINDOW '2024-01-15T10:00:00Z' TO VERSION 1)",
        ),
        (
            "ROLLBACK v FOR WINDOW 'a' KEY (k > 1) TO VERSION 3",
            "syntax 1:32: expected a key column and its value (write KEY (region = 'north', shop = 7))",
        ),
        ("ROLLBACK v FOR WINDOW 'a' KEY (k = 1, K = 2) TO VERSION 3", "syntax 1:39: key `k` is given twice (-)"),
        (
            "ROLLBACK v FOR WINDOW 'a' TO VERSON 3",
            "syntax 1:30: expected VERSION or TIMESTAMP, found `VERSON` (did you mean TO VERSION?)",
        ),
        ("CANCEL v", "syntax 1:8: expected JOB, found `v` (-)"),
    ]);
}

#[test]
fn wrong_schedules_are_explained() {
    check_errors(&[
        (
            "CREATE SCHEDULE n AS FINALIZE v LOOKBACK INTERVAL '1 day'",
            "syntax 1:19: expected CRON, found `AS` (say when: CRON '0 2 * * *' is 02:00 each night)",
        ),
        (
            "CREATE SCHEDULE n CRON '0 2 * * *' ZONE 'UTC' AS FINALIZE v LOOKBACK INTERVAL '1 day'",
            "syntax 1:36: expected TIME ZONE or AS, found `ZONE` (-)",
        ),
        (
            "CREATE SCHEDULE n CRON '0 2 * * *' AS FINALIZE v FOR DATE '2024-01-15'",
            "invalid 1:50: the range of a scheduled run must move with it \
             (write LOOKBACK INTERVAL '1 day'; the schedule's own time is its `now`)",
        ),
        (
            "CREATE SCHEDULE n CRON '0 2 * * *' AS SELECT 1",
            "syntax 1:39: expected FINALIZE, REPROCESS, PATCH or VERIFY, found `SELECT` (-)",
        ),
    ]);
    assert!(error("CREATE OR REPLACE SCHEDULE IF NOT EXISTS n CRON 'x' AS PATCH v").contains("exclude each other"));
}
