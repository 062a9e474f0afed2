//! The Delta Lake side of a table: its creation, and adding whole epochs to its log.
//!
//! A commit is one JSON file of the log, created only if absent. It names the last epoch it holds as the application
//! transaction `highwater`, so that a repeat is recognised: the loser of a race for a log version reads the winner's
//! file and drops what it already holds. `deltalake-core`'s own commit loop replays the table's file list after each
//! commit; ours has that list already and only needs the next free number, so it writes log files itself, from
//! `deltalake-core`'s actions. Log clean-up is
//! off for everyone, and done by [`DeltaLog::tidy`] only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use deltalake_core::checkpoints::{cleanup_expired_logs_for, create_checkpoint};
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::kernel::transaction::{CommitData, TransactionError};
use deltalake_core::kernel::{Action, Add, EagerSnapshot, Remove, StructType, Transaction};
use deltalake_core::logstore::{CommitOrBytes, LogStoreRef, StorageConfig, default_logstore};
use deltalake_core::operations::create::CreateBuilder;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use deltalake_core::{DeltaTable, DeltaTableError, TableProperty};
use object_store::path::Path;
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use super::schema::column::WINDOW_DATE;
use crate::checkpoint::{FileEntry, TableChange};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Storage, is_unavailable};

const APP_ID: &str = "highwater";

/// The log of one Delta table that this process appends to.
#[derive(Clone)]
pub(super) struct DeltaLog {
    log: LogStoreRef,
    storage: Storage,
    folder: Path,
    /// The log version to try next; anything below it is taken.
    next_version: u64,
    /// Last epoch the log is known to hold.
    logged: u64,
    /// Log version of the last Delta checkpoint, 0 for none.
    checkpoint: u64,
    partitioned: bool,
}

impl DeltaLog {
    /// Opens the table in `folder`, creating it with the columns of `schema` if there is none.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store, `Corrupt` for a log that cannot be read, `Unsupported` for a schema Delta refuses.
    pub async fn open(storage: &Storage, folder: Path, schema: &Schema, partitioned: bool) -> Result<Self> {
        let log = log_store(storage, &folder)?;
        let mut this =
            Self { log, storage: storage.clone(), folder, next_version: 0, logged: 0, checkpoint: 0, partitioned };
        let entries = this.log_versions().await?;
        match entries.last() {
            Some(last) => {
                this.next_version = last + 1;
                this.logged = this.find_logged(&entries).await?;
            }
            None => {
                this.create(schema).await?;
                this.next_version = 1;
            }
        }
        Ok(this)
    }

    /// The last epoch the log holds, 0 for none.
    pub fn logged(&self) -> u64 {
        self.logged
    }

    /// Adds `epochs`, ascending, in one commit. Epochs the log turns out to hold already are left out.
    ///
    /// # Errors
    ///
    /// `Unavailable` where the store does not answer: try again with the same epochs.
    pub async fn commit(&mut self, epochs: &[(u64, i64, TableChange)]) -> Result<()> {
        loop {
            let new: Vec<_> = epochs.iter().filter(|(epoch, ..)| *epoch > self.logged).collect();
            let Some((last, ..)) = new.last() else { return Ok(()) };
            let actions = new.iter().flat_map(|(_, stamp_us, change)| self.actions(*stamp_us, change)).collect();
            let version = self.next_version;
            match self.write(version, actions, *last).await {
                Ok(()) => {
                    self.next_version = version + 1;
                    self.logged = *last;
                    return Ok(());
                }
                Err(TransactionError::VersionAlreadyExists(_)) => {
                    if let Some(epoch) = self.epoch_of(version).await? {
                        self.logged = self.logged.max(epoch);
                    }
                    self.next_version = version + 1;
                }
                Err(e) => return Err(delta_error("append to a table's log", &self.folder, e.into())),
            }
        }
    }

    async fn write(&self, version: u64, actions: Vec<Action>, epoch: u64) -> Result<(), TransactionError> {
        let partition_by = self.partitioned.then(|| vec![WINDOW_DATE.to_owned()]);
        let operation = DeltaOperation::Write { mode: SaveMode::Append, partition_by, predicate: None };
        let transaction = Transaction::new(APP_ID, i64::try_from(epoch).unwrap_or(i64::MAX));
        let data = CommitData::new(actions, operation, HashMap::new(), vec![transaction]);
        let bytes = CommitOrBytes::LogBytes(data.get_bytes()?);
        self.log.write_commit_entry(version, bytes, Uuid::new_v4()).await
    }

    fn actions(&self, stamp_us: i64, change: &TableChange) -> Vec<Action> {
        let partition = |file: &FileEntry| match (self.partitioned, &file.partition) {
            (true, value) => HashMap::from([(WINDOW_DATE.to_owned(), value.clone())]),
            (false, _) => HashMap::new(),
        };
        // A change that also removes files rearranges rows that are there already.
        let data_change = change.remove.is_empty();
        let add = change.add.iter().map(|file| {
            Action::Add(Add {
                path: file.path.clone(),
                partition_values: partition(file),
                size: i64::try_from(file.size_bytes).unwrap_or(i64::MAX),
                modification_time: stamp_us.div_euclid(1000),
                data_change,
                stats: Some(file.stats.to_string()),
                ..Add::default()
            })
        });
        let remove = change.remove.iter().map(|path| {
            Action::Remove(Remove {
                path: path.clone(),
                data_change,
                deletion_timestamp: Some(stamp_us.div_euclid(1000)),
                ..Remove::default()
            })
        });
        add.chain(remove).collect()
    }

    async fn create(&self, schema: &Schema) -> Result<()> {
        let mut fields = schema.fields().to_vec();
        if self.partitioned {
            fields.push(Arc::new(Field::new(WINDOW_DATE, DataType::Date32, true)));
        }
        let columns: StructType = (&Schema::new(fields))
            .try_into_kernel()
            .map_err(|e| Error::unsupported("Delta Lake cannot hold these columns").with_source(e))?;
        CreateBuilder::new()
            .with_log_store(Arc::clone(&self.log))
            .with_columns(columns.fields().cloned())
            .with_partition_columns(self.partitioned.then_some(WINDOW_DATE))
            .with_configuration_property(TableProperty::EnableExpiredLogCleanup, Some("false"))
            .with_save_mode(SaveMode::Ignore)
            .await
            .map(drop)
            .map_err(|e| delta_error("create a table", &self.folder, e))
    }

    /// Writes a Delta checkpoint if `every` commits have passed since the last, and deletes log files that it makes
    /// superfluous and that are older than `keep`. Other tools then open the table by the checkpoint.
    ///
    /// # Errors
    ///
    /// `Unavailable` from the store: nothing is lost, try again later.
    pub async fn tidy(&mut self, every: u64, now_us: i64, keep: Duration) -> Result<()> {
        let Some(last) = self.next_version.checked_sub(1) else { return Ok(()) };
        if last < self.checkpoint + every.max(1) {
            return Ok(());
        }
        if let Err(e) = self.write_checkpoint().await {
            // A store that tears writes may hold half of it now, and whoever opens the table begins with it.
            if self.load().await.is_err() {
                self.delete_checkpoint(last).await?;
            }
            return Err(delta_error("write a Delta checkpoint", &self.folder, e));
        }
        self.checkpoint = last;
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let cutoff_ms = now_us.div_euclid(1000).saturating_sub(keep_ms);
        let deleted = cleanup_expired_logs_for(last, self.log.as_ref(), cutoff_ms, None).await;
        let deleted = deleted.map_err(|e| delta_error("clean up a table's log", &self.folder, e))?;
        tracing::debug!(table = %self.folder, version = last, deleted, "Delta log tidied");
        Ok(())
    }

    async fn write_checkpoint(&self) -> Result<(), DeltaTableError> {
        create_checkpoint(&self.load().await?, None).await
    }

    async fn load(&self) -> Result<DeltaTable, DeltaTableError> {
        let mut table = DeltaTable::new(Arc::clone(&self.log));
        table.load().await?;
        Ok(table)
    }

    async fn delete_checkpoint(&self, version: u64) -> Result<()> {
        let begins = format!("{version:020}.checkpoint.");
        for file in self.storage.list(&self.folder.clone().join("_delta_log"), None).await? {
            if file.location.filename().is_some_and(|name| name.starts_with(&begins)) {
                self.storage.delete(&file.location).await?;
            }
        }
        Ok(())
    }

    /// Versions that have a JSON file in the log, ascending.
    async fn log_versions(&mut self) -> Result<Vec<u64>> {
        let files = self.storage.list(&self.folder.clone().join("_delta_log"), None).await?;
        let checkpoints = files.iter().filter_map(|f| {
            let name = f.location.filename()?;
            name.ends_with(".checkpoint.parquet").then(|| name.split('.').next()?.parse().ok())?
        });
        self.checkpoint = checkpoints.max().unwrap_or(self.checkpoint);
        Ok(files.iter().filter_map(|f| crate::checkpoint::ViewPaths::epoch_of(&f.location)).collect())
    }

    /// The newest epoch named in the log: in its JSON files, newest first, else in what a Delta checkpoint kept.
    async fn find_logged(&self, versions: &[u64]) -> Result<u64> {
        for version in versions.iter().rev() {
            if let Some(epoch) = self.epoch_of(*version).await? {
                return Ok(epoch);
            }
        }
        if versions.first() == Some(&0) {
            return Ok(0); // The log is whole and names no epoch.
        }
        let read = async {
            EagerSnapshot::try_new(self.log.as_ref(), None).await?.transaction_version(self.log.as_ref(), APP_ID).await
        };
        let version = read.await.map_err(|e| delta_error("read a table's log", &self.folder, e))?;
        Ok(version.and_then(|v| u64::try_from(v).ok()).unwrap_or(0))
    }

    /// The epoch that log version `version` names, if it is a commit of ours.
    async fn epoch_of(&self, version: u64) -> Result<Option<u64>> {
        let read = self.log.read_commit_entry(version).await;
        let bytes = read.map_err(|e| delta_error("read a table's log", &self.folder, e))?.unwrap_or_default();
        let mut found = None;
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let action: Value = serde_json::from_slice(line).map_err(|e| {
                let message = format!("a table's log is damaged: table=`{}` version=`{version}`", self.folder);
                Error::new(ErrorKind::Corrupt, message).with_source(e)
            })?;
            let txn = &action["txn"];
            if txn["appId"] == APP_ID {
                found = txn["version"].as_u64();
            }
        }
        Ok(found)
    }
}

fn log_store(storage: &Storage, folder: &Path) -> Result<LogStoreRef> {
    // The scheme is only a name: all reading goes through the stores given, whose listings are ordered.
    let url = Url::parse(&format!("memory:///{folder}/"))
        .map_err(|e| Error::invalid(format!("not a table folder: path=`{folder}`")).with_source(e))?;
    let within = storage.within(folder);
    Ok(default_logstore(within, Arc::clone(storage.store()), &url, &StorageConfig::default()))
}

/// What a Delta error asks the caller to do: wait for the store, or stop because the log is not what it should be.
fn delta_error(action: &str, folder: &Path, e: DeltaTableError) -> Error {
    let kind = match &e {
        DeltaTableError::ObjectStore { .. } | DeltaTableError::Io { .. } => ErrorKind::Unavailable,
        DeltaTableError::Transaction { source: TransactionError::ObjectStore { .. } } => ErrorKind::Unavailable,
        DeltaTableError::Transaction { source: TransactionError::CommitConflict(_) } => ErrorKind::Conflict,
        other if is_unavailable(other) => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, format!("cannot {action}: table=`{folder}`")).with_source(e)
}
