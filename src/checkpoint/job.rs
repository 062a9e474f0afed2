//! What a manifest says of the job that wrote it: which definition it runs, whether its input has ended, and where its
//! state lies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// The job of a view as of an epoch; the `job` of a [`Manifest`](super::Manifest).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Part of the definition (`query`, `source orders`, …) to the hash of its text: state is good for these alone.
    pub definition: BTreeMap<String, String>,
    /// Whether the input has ended: there is nothing to go on with.
    pub ended: bool,
    /// Name of the state's file. `None` before the first epoch and after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Bytes of state that are needed to go on, in that file and older ones.
    #[serde(default)]
    pub state_bytes: u64,
}

impl JobRecord {
    /// Reads a manifest's `job`; that of a view which has no epoch yet is the default.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is none.
    pub fn read(job: &serde_json::Value) -> Result<Self> {
        if job.is_null() {
            return Ok(Self::default());
        }
        Self::deserialize(job).map_err(|e| {
            Error::new(ErrorKind::Corrupt, "a manifest's job is not of this version's shape").with_source(e)
        })
    }

    /// Refuses to go on under another definition.
    ///
    /// # Errors
    ///
    /// `Conflict` naming the parts that differ, and the way on.
    pub fn check_definition(&self, view: &str, now: &BTreeMap<String, String>) -> Result<()> {
        if self.definition.is_empty() || self.definition == *now {
            return Ok(());
        }
        let parts = self.definition.keys().chain(now.keys()).collect::<std::collections::BTreeSet<_>>();
        let differ = parts.into_iter().filter(|part| self.definition.get(*part) != now.get(*part));
        let differ = differ.map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(Error::new(
            ErrorKind::Conflict,
            format!("the view's state was made by another definition: view=`{view}` differs=`{differ}`"),
        )
        .with_hint(format!(
            "give the new definition another name, or start anew: CREATE OR REPLACE MATERIALIZED VIEW {view} … RESTART"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(parts: &[(&str, &str)]) -> BTreeMap<String, String> {
        parts.iter().map(|(part, hash)| ((*part).to_owned(), (*hash).to_owned())).collect()
    }

    #[test]
    fn another_definition_is_refused_by_what_differs() {
        let record = JobRecord { definition: definition(&[("query", "1"), ("source s", "2")]), ..Default::default() };
        assert!(record.check_definition("v", &definition(&[("query", "1"), ("source s", "2")])).is_ok());
        let e = record.check_definition("v", &definition(&[("query", "1"), ("source t", "2")])).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Conflict);
        assert!(e.message().contains("differs=`source s, source t`"), "{e}");
        assert!(JobRecord::default().check_definition("v", &definition(&[("query", "1")])).is_ok());
    }

    #[test]
    fn what_a_view_without_epochs_says_is_nothing() {
        assert_eq!(JobRecord::read(&serde_json::Value::Null).unwrap(), JobRecord::default());
        assert_eq!(JobRecord::read(&serde_json::json!(7)).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
