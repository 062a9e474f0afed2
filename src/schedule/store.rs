//! Schedules as they lie in the data dir: one document, `schedules.json`, written whole after each change.

use std::collections::BTreeMap;

use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::{Progress, Schedule};
use crate::error::{Error, ErrorKind, Result};
use crate::sql::{Statement, parse_one};
use crate::storage::{Document, Storage};

const DOCUMENT: Document = Document { name: "the list of schedules", format_version: 1 };

/// One schedule as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// The statement that made it.
    text: String,
    progress: Progress,
}

/// Where schedules are kept.
#[derive(Debug, Clone)]
pub struct ScheduleStore {
    storage: Storage,
}

impl ScheduleStore {
    /// In `storage`. Nothing is written before there is a schedule.
    pub fn new(storage: Storage) -> Self {
        Self { storage }
    }

    /// Every schedule with its progress, by name.
    ///
    /// # Errors
    ///
    /// `Unavailable` if they cannot be read, `Corrupt` if they are damaged or of another format.
    pub async fn load(&self) -> Result<BTreeMap<String, (Schedule, Progress)>> {
        let path = path();
        let Some(bytes) = self.storage.get(&path).await? else { return Ok(BTreeMap::new()) };
        let stored: Vec<Stored> = DOCUMENT.decode(path.as_ref(), &bytes)?;
        stored.into_iter().map(|Stored { text, progress }| Ok((schedule(&text)?, progress))).try_fold(
            BTreeMap::new(),
            |mut all, read: Result<_>| {
                let (schedule, progress): (Schedule, Progress) = read?;
                all.insert(schedule.name.clone(), (schedule, progress));
                Ok(all)
            },
        )
    }

    /// Replaces what is stored.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it cannot be written.
    pub async fn save(&self, schedules: impl IntoIterator<Item = (&Schedule, &Progress)>) -> Result<()> {
        let stored: Vec<Stored> = schedules
            .into_iter()
            .map(|(schedule, progress)| Stored { text: schedule.text.clone(), progress: progress.clone() })
            .collect();
        self.storage.put(&path(), DOCUMENT.encode(&stored)?).await
    }
}

fn schedule(text: &str) -> Result<Schedule> {
    match parse_one(text) {
        Ok(Statement::CreateSchedule(create)) => Schedule::try_new(create),
        Ok(_) => Err(Error::new(ErrorKind::Corrupt, "the list of schedules holds a statement that makes none")),
        Err(error) => Err(error),
    }
}

fn path() -> Path {
    Path::from("schedules.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::LastRun;

    #[tokio::test]
    async fn schedules_read_back_and_damage_is_refused() {
        let storage = Storage::memory();
        let store = ScheduleStore::new(storage.clone());
        assert!(store.load().await.expect("nothing").is_empty());
        let text =
            "CREATE SCHEDULE \"N\" CRON '0 2 * * *' TIME ZONE 'Europe/Berlin' AS FINALIZE v LOOKBACK INTERVAL '1 d'";
        let nightly = schedule(text).expect("a schedule");
        let last = LastRun { nominal_us: 5, started_us: 6, finished_us: 7, error: None };
        let progress = Progress { paused: true, done_us: 5, last: Some(last) };
        store.save([(&nightly, &progress)]).await.expect("saved");
        let all = store.load().await.expect("loaded");
        let (read, read_progress) = &all["N"];
        assert_eq!((read.text.as_str(), read.run_text.as_str()), (text, "FINALIZE v LOOKBACK INTERVAL '1 d'"));
        assert_eq!((read.cron.zone_name().as_str(), read_progress), ("Europe/Berlin", &progress));
        let mut bytes = storage.get(&path()).await.expect("read").expect("there").to_vec();
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
        storage.put(&path(), bytes.into()).await.expect("written");
        assert_eq!(store.load().await.expect_err("damaged").kind(), ErrorKind::Corrupt);
    }
}
