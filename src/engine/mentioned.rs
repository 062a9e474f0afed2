//! Which of the stored definitions a text of queries may speak of, so that a command line that reads one view of a thousand opens
//! that one.
//!
//! It looks at words and not at what they mean: a word that happens to be a name brings that definition along, which costs time
//! alone. Where words do not tell (a quoted name, a table or table function that is none of those stored, anything but a SELECT), everything is
//! wanted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ObjectName, visit_relations};

use crate::sql::{self, Statement};

/// Those of `definitions` that the queries of `text` may need, in their order.
pub(super) fn mentioned(definitions: Vec<String>, text: &str) -> Vec<String> {
    let Some(tables) = tables_of(text) else { return definitions };
    let mut wanted: BTreeSet<String> = words(text).collect();
    let made: Vec<Option<String>> = definitions.iter().map(|definition| made_by(definition)).collect();
    let mut taken = vec![false; definitions.len()];
    // What a definition speaks of was mostly made before it, but a replaced one keeps its place.
    loop {
        let before = wanted.len();
        for (i, definition) in definitions.iter().enumerate().rev() {
            if !taken[i] && made[i].as_ref().is_none_or(|name| wanted.contains(name)) {
                taken[i] = true;
                wanted.extend(words(definition));
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    let found: BTreeSet<&String> = made.iter().flatten().collect();
    if !tables.iter().all(|table| found.contains(table)) {
        return definitions;
    }
    definitions.into_iter().zip(taken).filter(|(_, taken)| *taken).map(|(definition, _)| definition).collect()
}

/// The tables that the queries of `text` read, without what follows a `$`. `None` if there is more to it than queries and
/// plain names.
fn tables_of(text: &str) -> Option<BTreeSet<String>> {
    if text.contains(['"', '`']) {
        return None;
    }
    let mut tables = BTreeSet::new();
    for statement in sql::parse(text).ok()? {
        let Statement::Select(query) = statement else { return None };
        let plain: ControlFlow<()> = visit_relations(&query.query, |name: &ObjectName| match name.0.as_slice() {
            [part] => match part.as_ident() {
                Some(ident) => {
                    let name = ident.value.to_lowercase();
                    tables.insert(name.split('$').next().unwrap_or_default().to_owned());
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(()),
            },
            _ => ControlFlow::Break(()),
        });
        if plain.is_break() {
            return None;
        }
    }
    Some(tables)
}

/// Whether `definition` makes a view with results, by its words.
pub(super) fn makes_results(definition: &str) -> bool {
    words(definition).take_while(|word| word != "as").any(|word| word == "materialized")
}

/// The name that the CREATE statement `definition` makes; `None` if words do not tell.
pub(super) fn made_by(definition: &str) -> Option<String> {
    const BEFORE: &[&str] =
        &["create", "or", "replace", "materialized", "view", "source", "stream", "table", "if", "not", "exists"];
    let name = definition.split_whitespace().find(|word| !BEFORE.contains(&word.to_lowercase().as_str()))?;
    let name: String = name.chars().take_while(|c| is_of_word(*c)).collect();
    (!name.is_empty()).then(|| name.to_lowercase())
}

/// The words of `text`, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c| !is_of_word(c)).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITIONS: [&str; 6] = [
        "CREATE SOURCE orders (ts TIMESTAMP, k BIGINT) WITH (connector = 'push')",
        "create source if not exists clicks(ts TIMESTAMP)",
        "CREATE VIEW big AS SELECT * FROM orders WHERE k > 1",
        "CREATE OR REPLACE MATERIALIZED VIEW hourly AS SELECT count(*) FROM TUMBLE(TABLE Big, DESCRIPTOR(ts), INTERVAL '1 hour')",
        "CREATE MATERIALIZED VIEW \"Odd name\" AS SELECT count(*) FROM clicks GROUP BY tumble(INTERVAL '1 hour')",
        "CREATE MATERIALIZED VIEW daily AS SELECT count(*) FROM orders GROUP BY tumble(INTERVAL '1 day')",
    ];

    fn check(text: &str, expected: &[usize]) {
        let all: Vec<String> = DEFINITIONS.map(str::to_owned).to_vec();
        let expected: Vec<&str> = expected.iter().map(|i| DEFINITIONS[*i]).collect();
        assert_eq!(mentioned(all, text), expected, "{text}");
    }

    #[test]
    fn what_a_query_needs_comes_with_what_that_needs() {
        // What has a quoted name is always opened, and what it needs.
        check("SELECT 1", &[1, 4]);
        check("SELECT * FROM hourly", &[0, 1, 2, 3, 4]);
        check("SELECT * FROM HOURLY$late; SELECT * FROM daily", &[0, 1, 2, 3, 4, 5]);
        check("WITH d AS (SELECT 1) SELECT 2", &[1, 4]);
    }

    #[test]
    fn where_words_do_not_tell_everything_is_opened() {
        let all = [0, 1, 2, 3, 4, 5];
        for text in [
            "SELECT * FROM \"Odd name\"",
            "SELECT * FROM hourli",
            "SELECT * FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1 hour')",
            "SELECT * FROM information_schema.tables",
            "SHOW VIEWS",
            "SELECT 1; SHOW VIEWS",
            "not a statement",
        ] {
            check(text, &all);
        }
    }
}
