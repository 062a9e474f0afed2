//! Which of the stored definitions a text of queries may speak of, so that a command line that reads one view of a thousand opens
//! that one.
//!
//! It looks at words and not at what they mean: a word that happens to be a name brings that definition along, which costs time
//! alone. Where words do not tell (a quoted name, a table or table function that is none of those stored, anything but a SELECT), everything is
//! wanted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ObjectName, visit_relations};

use super::catalog::Definition;
use crate::sql::{self, Statement};

/// Those of `definitions` that the queries of `text` may need, in their order.
pub(super) fn mentioned(definitions: Vec<Definition>, text: &str) -> Vec<Definition> {
    let Some(tables) = tables_of(text) else { return definitions };
    let mut wanted: BTreeSet<String> = words(text).collect();
    let is_wanted = |wanted: &BTreeSet<String>, name: &String| !is_plain(name) || wanted.contains(name);
    let mut taken = vec![false; definitions.len()];
    // What a definition speaks of was mostly made before it, but a replaced one keeps its place.
    loop {
        let before = wanted.len();
        for (i, definition) in definitions.iter().enumerate().rev() {
            if !taken[i] && is_wanted(&wanted, &definition.name) {
                taken[i] = true;
                wanted.extend(words(&definition.text));
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    let found: BTreeSet<&String> = definitions.iter().map(|definition| &definition.name).collect();
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

/// The words of `text`, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c| !is_of_word(c)).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Whether `name` is a word that needs no quotes.
fn is_plain(name: &str) -> bool {
    words(name).eq([name.to_owned()])
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITIONS: [(&str, &str); 6] = [
        ("orders", "CREATE SOURCE orders (ts TIMESTAMP, k BIGINT) WITH (connector = 'push')"),
        ("clicks", "create source if not exists clicks(ts TIMESTAMP)"),
        ("big", "CREATE VIEW big AS SELECT * FROM orders WHERE k > 1"),
        (
            "hourly",
            "CREATE OR REPLACE MATERIALIZED VIEW hourly AS SELECT count(*) FROM TUMBLE(TABLE Big, DESCRIPTOR(ts), INTERVAL '1 hour')",
        ),
        (
            "Odd name",
            "CREATE MATERIALIZED VIEW \"Odd name\" AS SELECT count(*) FROM clicks GROUP BY tumble(INTERVAL '1 hour')",
        ),
        ("daily", "CREATE MATERIALIZED VIEW daily AS SELECT count(*) FROM orders GROUP BY tumble(INTERVAL '1 day')"),
    ];

    fn check(text: &str, expected: &[usize]) {
        let definition =
            |(name, text): (&str, &str)| Definition { name: name.to_owned(), text: text.to_owned(), paused: false };
        let all = DEFINITIONS.map(definition).to_vec();
        let expected: Vec<Definition> = expected.iter().map(|i| definition(DEFINITIONS[*i])).collect();
        assert_eq!(mentioned(all, text), expected, "{text}");
    }

    #[test]
    fn what_a_query_needs_comes_with_what_that_needs() {
        // What has a name that needs quotes is always opened, and what it needs.
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
