//! `\h`: each statement and clause of ours, what it means, and an example that can be copied.

use crate::cli::report::Style;

/// One entry of the help.
pub struct Clause {
    /// What it is looked up by.
    pub name: &'static str,
    /// How it is written.
    pub syntax: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// An example; statements end with a semicolon.
    pub example: &'static str,
}

/// Every entry, in the order a newcomer meets them.
pub const CLAUSES: &[Clause] = &[
    Clause {
        name: "START",
        syntax: "from nothing to a corrected number: paste it",
        meaning: "A source says where rows come from and when they happened. A materialized view is one windowed \
                  aggregation over it, computed as rows come and corrected as late rows land: the window of 10:00 \
                  closes when the row of 10:02 is read, and the row of 10:00:30 comes after that.",
        example: "\
CREATE SOURCE clicks (at TIMESTAMP, page VARCHAR, WATERMARK FOR at AS at - INTERVAL '5 seconds')
  WITH (connector = 'push');
CREATE MATERIALIZED VIEW per_minute AS
  SELECT window_start, page, count(*) AS n FROM TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '1 minute')
  GROUP BY window_start, window_end, page ALLOWED LATENESS INTERVAL '10 minutes';
INSERT INTO clicks VALUES ('2024-01-15 10:00:01Z', '/a'), ('2024-01-15 10:02:00Z', '/a');
SELECT window_start, page, n FROM per_minute;
INSERT INTO clicks VALUES ('2024-01-15 10:00:30Z', '/a');
SELECT window_start, page, n, _version, _reason FROM per_minute$history ORDER BY _version;",
    },
    Clause {
        name: "CREATE SOURCE",
        syntax: "CREATE SOURCE name ( column TYPE, …, WATERMARK FOR column AS expr ) WITH ( connector = '…', … )",
        meaning: "Declares where rows come from. Nothing is read until a view or a query needs it. CREATE STREAM and \
                  Flink's CREATE TABLE … WITH ('connector' = …) mean the same.",
        example: "\
CREATE SOURCE orders (
  order_id BIGINT, event_time TIMESTAMP, payload STRUCT<total DOUBLE, item_count BIGINT>,
  WATERMARK FOR event_time AS event_time - INTERVAL '5 minutes'
) WITH (connector = 'file', path = 'orders.jsonl', format = 'json');",
    },
    Clause {
        name: "WATERMARK",
        syntax: "WATERMARK FOR column AS expr [PER KEY (cols) TIMEOUT INTERVAL '…'] [IDLE TIMEOUT INTERVAL '…']",
        meaning: "The promise that no row older than this is still expected; windows close by it. What the expression \
                  subtracts is the delay: how much disorder to wait for. Other forms: PUNCTUATED WHEN cond, AS \
                  PROCTIME() - interval.",
        example: "\
CREATE SOURCE readings (
  at TIMESTAMP, sensor VARCHAR, value DOUBLE,
  WATERMARK FOR at AS at - INTERVAL '10 seconds' IDLE TIMEOUT INTERVAL '1 minute'
) WITH (connector = 'file', path = 'readings/', format = 'csv');",
    },
    Clause {
        name: "IDLE TIMEOUT",
        syntax: "IDLE TIMEOUT INTERVAL '…' [IDLE CLOSE AFTER INTERVAL '…']",
        meaning: "A live split that has had nothing for this long no longer holds the watermark back. IDLE CLOSE AFTER \
                  closes the open windows when every split has been silent for that long.",
        example: "\
CREATE SOURCE beats (
  at TIMESTAMP, host VARCHAR,
  WATERMARK FOR at AS at - INTERVAL '5 seconds' IDLE TIMEOUT INTERVAL '30 seconds' IDLE CLOSE AFTER INTERVAL '5 minutes'
) WITH (connector = 'file', path = 'beats.jsonl', format = 'json');",
    },
    Clause {
        name: "CREATE MATERIALIZED VIEW",
        syntax: "CREATE MATERIALIZED VIEW name AS SELECT … FROM window GROUP BY window_start, window_end, … clauses",
        meaning: "One windowed aggregation, kept right: computed as rows come, corrected as late rows land, every \
                  published value kept as a version.",
        example: "\
CREATE MATERIALIZED VIEW hourly_revenue AS
SELECT window_start, window_end, sum(payload.total) AS revenue, count(*) AS orders
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE ON EXPIRED SIDE OUTPUT EMIT ON WINDOW CLOSE;",
    },
    Clause {
        name: "TUMBLE",
        syntax: "TUMBLE(TABLE source, DESCRIPTOR(column), size [, offset] [, TIME_ZONE => '…'])",
        meaning: "Windows side by side: each row is in exactly one. Months, quarters and years are calendar; with a \
                  time zone days and weeks are too.",
        example: "\
SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 day', TIME_ZONE => 'Europe/Berlin')
GROUP BY window_start, window_end;",
    },
    Clause {
        name: "HOP",
        syntax: "HOP(TABLE source, DESCRIPTOR(column), slide, size [, offset])",
        meaning: "Windows of one size that start every slide, so a row is in several. The slide comes first.",
        example: "\
SELECT window_start, window_end, count(*) AS n
FROM HOP(TABLE orders, DESCRIPTOR(event_time), INTERVAL '5 minutes', INTERVAL '1 hour')
GROUP BY window_start, window_end;",
    },
    Clause {
        name: "CUMULATE",
        syntax: "CUMULATE(TABLE source, DESCRIPTOR(column), step, size [, offset])",
        meaning: "Windows that share a start and grow by step up to size: a running total that starts anew each size.",
        example: "\
SELECT window_start, window_end, count(*) AS so_far
FROM CUMULATE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour', INTERVAL '1 day')
GROUP BY window_start, window_end;",
    },
    Clause {
        name: "SESSION",
        syntax: "SESSION(TABLE source PARTITION BY key, DESCRIPTOR(column), gap)",
        meaning: "A window per key and burst of activity: it ends when nothing came for the gap. A row that bridges \
                  two sessions merges them; what had been published for them is replaced.",
        example: "\
SELECT user_id, window_start, window_end, count(*) AS n
FROM SESSION(TABLE orders PARTITION BY user_id, DESCRIPTOR(event_time), INTERVAL '30 minutes')
GROUP BY user_id, window_start, window_end;",
    },
    Clause {
        name: "WINDOW",
        syntax: "FROM TUMBLE( … ) | HOP( … ) | CUMULATE( … ) | SESSION( … ); GROUP BY window_start, window_end, …",
        meaning: "Which windows a row belongs to. Each adds the columns window_start, window_end and window_time (end - \
                  1 microsecond); a result is one per window and key, so both bounds belong into GROUP BY. \\h TUMBLE, \
                  \\h HOP, \\h CUMULATE and \\h SESSION explain each.",
        example: "\
SELECT window_start, window_end, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end;",
    },
    Clause {
        name: "ALLOWED LATENESS",
        syntax: "ALLOWED LATENESS INTERVAL '…'",
        meaning: "How long after it closes a window still takes rows. A row that comes then is late, one that comes \
                  after is expired. Not the watermark's delay: the first result does not wait for it.",
        example: "\
SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour';",
    },
    Clause {
        name: "ON LATE",
        syntax: "ON LATE UPDATE [MAX n UPDATES] | DROP | SIDE OUTPUT | RECOMPUTE [EVERY INTERVAL '…']",
        meaning: "What happens to a row that comes after its window closed and within the allowed lateness. UPDATE, \
                  the default, publishes the whole corrected value as a new version.",
        example: "\
SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 10 UPDATES;",
    },
    Clause {
        name: "ON EXPIRED",
        syntax: "ON EXPIRED SIDE OUTPUT | DROP | RECOMPUTE [EVERY INTERVAL '…']",
        meaning: "What happens to a row that comes after that. SIDE OUTPUT, the default, keeps it in view$late with how \
                  late it was; DROP only counts it.",
        example: "\
SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
ON EXPIRED DROP;",
    },
    Clause {
        name: "EMIT",
        syntax: "EMIT ON WINDOW CLOSE | EMIT CHANGES [EVERY INTERVAL '…'] | EMIT ON EXPIRY",
        meaning: "When values are published: when the window closes and on late rows (the default); early values too; \
                  or once, when no row can change the window any more.",
        example: "\
SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
EMIT CHANGES EVERY INTERVAL '10 seconds';",
    },
    Clause {
        name: "VERSIONS",
        syntax: "view, view$final, view$history, view$windows, view$late, source$rejects",
        meaning: "The latest values; the final ones; every value ever published with the change from the one before; \
                  the state and counters of each window; rows that were refused; rows that could not be read.",
        example: "SELECT window_start, _version, _reason, revenue FROM hourly_revenue$history ORDER BY 1, 2;",
    },
    Clause {
        name: "FOR SYSTEM_TIME",
        syntax: "view FOR SYSTEM_TIME AS OF time",
        meaning: "What a reader saw at that moment, inclusive. Asking again gives the same answer.",
        example: "SELECT * FROM hourly_revenue FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-15T12:00:00Z';",
    },
    Clause {
        name: "SUBSCRIBE",
        syntax: "SUBSCRIBE view [SINCE time | EPOCH n] [WITH SNAPSHOT]",
        meaning: "Versions as they are committed, each with its epoch, until Ctrl-C or the end of bounded input. WITH \
                  SNAPSHOT starts with the values that are there.",
        example: "SUBSCRIBE hourly_revenue WITH SNAPSHOT;",
    },
    Clause {
        name: "FINALIZE",
        syntax: "FINALIZE view [, …] FOR DATE '…' | FROM '…' TO '…' | LOOKBACK INTERVAL '…' [REASON '…'] [FORCE]",
        meaning: "The official number of each window whose end is in the range: the view's own SELECT, run as a batch \
                  over stored input and published as final versions; view$final reads them. Windows that are still \
                  live are skipped; FORCE expires them first.",
        example: "FINALIZE hourly_revenue FOR DATE '2024-01-15';",
    },
    Clause {
        name: "FINALIZE AFTER",
        syntax: "FINALIZE AFTER INTERVAL '…'",
        meaning: "The last clause of a view: each window is finalized by itself once the watermark has passed its end, \
                  the allowed lateness and this.",
        example: "\
CREATE MATERIALIZED VIEW official AS
SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour' FINALIZE AFTER INTERVAL '1 hour';",
    },
    Clause {
        name: "REPROCESS",
        syntax: "REPROCESS view FOR DATE '…' | FROM '…' TO '…' | LOOKBACK INTERVAL '…' [REASON '…'] [FORCE]",
        meaning: "As FINALIZE, without making anything final: the range is computed again from stored input and \
                  published where it differs.",
        example: "REPROCESS hourly_revenue FROM '2024-01-15' TO '2024-01-16' REASON 'fixed input';",
    },
    Clause {
        name: "VERIFY",
        syntax: "VERIFY view FOR DATE '…' | FROM '…' TO '…' | LOOKBACK INTERVAL '…'",
        meaning: "Compares what was published with what the batch gives, window by window, and names the cause of each \
                  difference. Publishes nothing.",
        example: "VERIFY hourly_revenue FOR DATE '2024-01-15';",
    },
    Clause {
        name: "ROLLBACK",
        syntax: "ROLLBACK view FOR WINDOW '…' [KEY (column = value)] TO VERSION n | TO TIMESTAMP '…'",
        meaning: "Publishes an older version again, as a new one; nothing is taken away. Without KEY all results of the \
                  window that starts then.",
        example: "ROLLBACK hourly_revenue FOR WINDOW '2024-01-15 10:00:00Z' TO VERSION 1;",
    },
    Clause {
        name: "CREATE SCHEDULE",
        syntax: "CREATE SCHEDULE name CRON '…' [TIME ZONE '…'] AS FINALIZE | REPROCESS view …",
        meaning: "Runs it when it is due, and makes up for what was missed. PAUSE SCHEDULE, RESUME SCHEDULE and RUN \
                  SCHEDULE NOW act on one; SHOW SCHEDULES lists them.",
        example: "CREATE SCHEDULE nightly CRON '0 2 * * *' TIME ZONE 'UTC' AS FINALIZE hourly_revenue LOOKBACK INTERVAL '1 day';",
    },
    Clause {
        name: "SHOW",
        syntax: "SHOW SOURCES | VIEWS | SCHEDULES | JOBS | WATERMARKS [name] | LATENESS [view] | CREATE name",
        meaning: "What there is, how far it is, the fate of every row read, and the statement that made a source or view.",
        example: "SHOW LATENESS hourly_revenue;",
    },
    Clause {
        name: "EXPLAIN",
        syntax: "EXPLAIN [ANALYZE] [BATCH] statement",
        meaning: "The plan, with every default spelled out: the window, the watermark, the lateness, both policies, \
                  when values are published and where state is kept.",
        example: "\
EXPLAIN SELECT window_start, count(*) AS n
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
GROUP BY window_start, window_end
EMIT CHANGES;",
    },
    Clause {
        name: "DESCRIBE",
        syntax: "DESCRIBE name",
        meaning: "Columns and types of a source, view or table. \\d name shows the statement that made it, too.",
        example: "DESCRIBE hourly_revenue;",
    },
    Clause {
        name: "PAUSE",
        syntax: "PAUSE view; RESUME view",
        meaning: "Stops a view's job where it is and lets it go on from there. A paused view is not idle.",
        example: "PAUSE hourly_revenue; RESUME hourly_revenue;",
    },
    Clause {
        name: "DROP",
        syntax: "DROP SOURCE | MATERIALIZED VIEW | VIEW | SCHEDULE | TABLE [IF EXISTS] name",
        meaning: "Removes a source, a view with all it has published, a macro, a schedule or a table.",
        example: "DROP MATERIALIZED VIEW IF EXISTS hourly_revenue;",
    },
    Clause {
        name: "INSERT",
        syntax: "INSERT INTO source VALUES (…), …",
        meaning: "Pushes rows into a source whose connector is 'push'.",
        example: "INSERT INTO clicks VALUES ('2024-01-15 10:00:05Z', '/b');",
    },
    Clause {
        name: "COPY",
        syntax: "COPY (query) TO 'path' STORED AS csv | json | parquet",
        meaning: "Writes the answer of a query to a file or to object storage.",
        example: "COPY (SELECT * FROM hourly_revenue) TO 'hourly.parquet' STORED AS PARQUET;",
    },
];

/// What `\h` prints: the list, one entry, or the entries whose name or syntax holds the words asked for.
pub fn help(asked: Option<&str>, style: Style) -> String {
    let Some(asked) = asked else { return list(CLAUSES.iter(), style) };
    let wanted = asked.to_uppercase();
    if let Some(clause) = CLAUSES.iter().find(|clause| clause.name == wanted) {
        return entry(clause, style);
    }
    let found: Vec<_> = CLAUSES
        .iter()
        .filter(|clause| clause.name.contains(&wanted) || clause.syntax.to_uppercase().contains(&wanted))
        .collect();
    match found[..] {
        [] => format!("nothing on '{asked}'; \\h alone lists what there is"),
        [clause] => entry(clause, style),
        _ => list(found.into_iter(), style),
    }
}

fn list<'a>(clauses: impl Iterator<Item = &'a Clause>, style: Style) -> String {
    let mut text = String::new();
    for clause in clauses {
        let pad = 26usize.saturating_sub(clause.name.len());
        text.push_str(&format!("  {}{:pad$}{}\n", style.bold(clause.name), "", clause.syntax));
    }
    text.push_str(&format!("\n{} explains one, with an example.", style.green("\\h NAME")));
    text
}

fn entry(clause: &Clause, style: Style) -> String {
    format!(
        "{}\n  {}\n\n{}\n\n{}",
        style.bold(clause.name),
        clause.syntax,
        wrapped(clause.meaning, 100),
        style.green(clause.example)
    )
}

fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("starts with one line");
        match line.is_empty() || line.chars().count() + 1 + word.chars().count() <= columns {
            true if line.is_empty() => line.push_str(word),
            true => line.extend([" ", word]),
            false => lines.push(word.into()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_valid() {
        for clause in CLAUSES {
            if let Err(error) = crate::sql::parse(clause.example) {
                panic!("{}: {error}\n{}", clause.name, clause.example);
            }
        }
    }

    #[test]
    fn a_clause_is_found_by_name_by_part_and_by_what_it_holds() {
        let help = |asked| help(Some(asked), Style::plain());
        assert!(help("tumble").starts_with("TUMBLE\n"));
        assert!(help("lateness").contains("ALLOWED LATENESS"));
        assert!(help("$rejects").starts_with("VERSIONS\n"));
        assert!(help("teleport").contains("nothing on 'teleport'"));
    }

    #[test]
    fn the_list_names_every_clause() {
        let list = help(None, Style::plain());
        for clause in CLAUSES {
            assert!(list.contains(clause.name), "{}", clause.name);
        }
    }

    #[test]
    fn names_are_upper_case_and_unique() {
        let mut names: Vec<_> = CLAUSES.iter().map(|clause| clause.name).collect();
        assert!(names.iter().all(|name| *name == name.to_uppercase()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CLAUSES.len());
    }
}
