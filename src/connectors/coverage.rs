//! What a batch run read: enough to read the same again, and to tell older input from newer.
//!
//! | source | is pinned by |
//! | --- | --- |
//! | files | their names, lengths and times of change |
//! | rows in memory | how many each split has |
//! | a Delta table | its version |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Input as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Coverage {
    /// Files, in name order.
    Files {
        /// Each of them.
        files: Vec<CoveredFile>,
    },
    /// Rows that are counted.
    Rows {
        /// By split.
        splits: BTreeMap<String, u64>,
    },
    /// A Delta table.
    Delta {
        /// Its Delta version.
        version: i64,
    },
}

/// A file as far as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredFile {
    /// Name, unique in the source.
    pub name: String,
    /// Bytes it had.
    pub bytes: u64,
    /// Time of its last change, µs since 1970 UTC.
    pub changed_us: i64,
}

/// One coverage against another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// The same input.
    Same,
    /// It has something the other lacks.
    Newer,
    /// It lacks something the other has, and has nothing else.
    Older,
}

impl Coverage {
    /// How this compares to what a former run covered.
    pub fn compared_to(&self, former: &Self) -> Compared {
        match (self, former) {
            (Self::Files { files }, Self::Files { files: former }) => compare_files(files, former),
            (Self::Rows { splits }, Self::Rows { splits: former }) => {
                let rows = |of: &BTreeMap<String, u64>, split: &String| of.get(split).copied().unwrap_or(0);
                let newer = splits.iter().any(|(split, n)| *n > rows(former, split));
                let older = former.iter().any(|(split, n)| *n > rows(splits, split));
                Compared::of(newer, older)
            }
            (Self::Delta { version }, Self::Delta { version: former }) => {
                Compared::of(version > former, version < former)
            }
            // The source keeps its rows elsewhere now.
            _ => Compared::Newer,
        }
    }
}

impl Compared {
    fn of(newer: bool, older: bool) -> Self {
        match (newer, older) {
            (true, _) => Self::Newer,
            (false, true) => Self::Older,
            (false, false) => Self::Same,
        }
    }
}

/// A file that is shorter and was changed since is another file, and counts as newer.
fn compare_files(files: &[CoveredFile], former: &[CoveredFile]) -> Compared {
    let by_name = |files: &[CoveredFile]| -> BTreeMap<String, CoveredFile> {
        files.iter().map(|file| (file.name.clone(), file.clone())).collect()
    };
    let (now, then) = (by_name(files), by_name(former));
    let newer = now.values().any(|file| {
        then.get(&file.name).is_none_or(|then| file.bytes > then.bytes || file.changed_us > then.changed_us)
    });
    let older = then.values().any(|then| {
        now.get(&then.name).is_none_or(|file| file.bytes < then.bytes || file.changed_us < then.changed_us)
    });
    Compared::of(newer, older)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, u64, i64)]) -> Coverage {
        let file = |(name, bytes, changed_us): &(&str, u64, i64)| CoveredFile {
            name: (*name).into(),
            bytes: *bytes,
            changed_us: *changed_us,
        };
        Coverage::Files { files: files.iter().map(file).collect() }
    }

    #[test]
    fn files_that_grew_came_or_were_written_anew_are_newer_and_files_that_went_are_older() {
        let before = files(&[("a", 10, 1), ("b", 20, 1)]);
        for (now, want) in [
            (files(&[("a", 10, 1), ("b", 20, 1)]), Compared::Same),
            (files(&[("a", 10, 1), ("b", 30, 2)]), Compared::Newer),
            (files(&[("a", 10, 1), ("b", 20, 1), ("c", 0, 0)]), Compared::Newer),
            (files(&[("a", 5, 3), ("b", 20, 1)]), Compared::Newer),
            (files(&[("a", 10, 1)]), Compared::Older),
            (files(&[("a", 5, 1), ("b", 20, 1)]), Compared::Older),
            (files(&[("a", 10, 1), ("c", 1, 1)]), Compared::Newer),
        ] {
            assert_eq!(now.compared_to(&before), want, "{now:?}");
        }
    }

    #[test]
    fn delta_versions_and_row_counts_compare_as_numbers() {
        let delta = |version| Coverage::Delta { version };
        assert_eq!(delta(3).compared_to(&delta(2)), Compared::Newer);
        assert_eq!(delta(2).compared_to(&delta(3)), Compared::Older);
        let rows = |n| Coverage::Rows { splits: BTreeMap::from([("0".to_owned(), n)]) };
        assert_eq!(rows(3).compared_to(&rows(3)), Compared::Same);
        assert_eq!(rows(2).compared_to(&rows(3)), Compared::Older);
    }
}
