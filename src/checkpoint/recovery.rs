//! What a writer has to do after it opened a view: a pure function from facts already read to named work.
//!
//! An epoch may be decided and not yet in a table's Delta log, because the process ended between the two. The facts
//! that tell are the manifests after the newest index (up to which every log is complete) and the epoch each table's log
//! names as its last (Delta's application transaction).

use std::collections::{BTreeMap, BTreeSet};

use super::paths::TableId;
use crate::error::{Error, ErrorKind, Result};

/// What was read from storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The epoch the manifests start after. Every epoch up to it is in every log.
    pub index: u64,
    /// Epoch and tables changed, for each manifest after the index, in any order.
    pub manifests: Vec<(u64, BTreeSet<TableId>)>,
    /// The last epoch each table's Delta log names; absent for a table whose log names none.
    pub logged: BTreeMap<TableId, u64>,
}

/// For each table the epochs, ascending, that still have to be added to its Delta log.
pub type Pending = BTreeMap<TableId, Vec<u64>>;

/// Which epochs have to be added to which Delta log.
///
/// # Errors
///
/// `Corrupt` if a manifest is missing between the index and the newest one, or a log names an epoch never decided.
pub fn pending_commits(facts: &Facts) -> Result<Pending> {
    let mut manifests = facts.manifests.clone();
    manifests.sort_by_key(|(epoch, _)| *epoch);
    for ((epoch, _), expected) in manifests.iter().zip(facts.index + 1..) {
        if *epoch != expected {
            let message = format!("a manifest is missing: epoch=`{expected}`");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
    }
    let decided = manifests.last().map_or(facts.index, |(epoch, _)| *epoch);
    if let Some((table, epoch)) = facts.logged.iter().find(|(_, epoch)| **epoch > decided) {
        let message = format!("a table names an epoch that was never decided: table=`{table}` epoch=`{epoch}`");
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    let mut pending = Pending::new();
    for (epoch, tables) in manifests {
        for table in tables {
            let logged = facts.logged.get(&table).copied().unwrap_or(0).max(facts.index);
            if epoch > logged {
                pending.entry(table).or_default().push(epoch);
            }
        }
    }
    Ok(pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(index: u64, manifests: &[(u64, &[TableId])], logged: &[(TableId, u64)]) -> Facts {
        Facts {
            index,
            manifests: manifests.iter().map(|(n, t)| (*n, t.iter().cloned().collect())).collect(),
            logged: logged.iter().cloned().collect(),
        }
    }

    #[test]
    fn nothing_is_pending_after_a_clean_stop() {
        let f = facts(0, &[(1, &[TableId::Results]), (2, &[])], &[(TableId::Results, 1)]);
        assert_eq!(pending_commits(&f).unwrap(), Pending::new());
    }

    #[test]
    fn each_table_is_completed_from_its_own_last_epoch() {
        use TableId::{Late, Results};
        let f = facts(0, &[(3, &[Results]), (1, &[Results, Late]), (2, &[Results, Late])], &[(Results, 2), (Late, 1)]);
        let pending = pending_commits(&f).unwrap();
        assert_eq!(pending, Pending::from([(Results, vec![3]), (Late, vec![2])]));
    }

    #[test]
    fn a_table_that_was_quiet_before_the_index_owes_nothing_from_then() {
        let f = facts(64, &[(65, &[]), (66, &[TableId::Late])], &[(TableId::Late, 3)]);
        assert_eq!(pending_commits(&f).unwrap(), Pending::from([(TableId::Late, vec![66])]));
    }

    #[test]
    fn a_gap_is_corrupt() {
        let e = pending_commits(&facts(0, &[(1, &[]), (3, &[])], &[])).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt);
        assert!(e.message().contains("epoch=`2`"));
    }

    #[test]
    fn a_log_ahead_of_the_decisions_is_corrupt() {
        let e = pending_commits(&facts(0, &[(1, &[])], &[(TableId::Results, 2)])).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt);
    }
}
