//! Which file of a split comes next, and when one is finished.
//!
//! A bounded split has the files that were listed when it was opened. A followed one asks again and again:
//!
//! - a file is read on as it grows; the last line is held until its line end comes (C84);
//! - it is finished once a later file in name order exists, or it has been moved away (rotation), and it has been quiet for
//!   the settle time; only then is its unfinished last line taken;
//! - a file that became shorter is read again from its start, with a warning: offsets go on counting;
//! - a file that turns up behind the place reached is not read, with a warning: reading the split again from any position
//!   must give the same rows. `split = 'file'` has no such order;
//! - files that cannot be read in part (compressed, Parquet, Arrow) are opened once they are quiet and never read on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::listing::{FoundFile, PathPattern};
use crate::clock::{Clock, SystemClock};
use crate::connectors::Notes;
use crate::connectors::pipeline::Place;
use crate::error::{Error, ErrorKind, Result};

/// The next file of a split.
pub(super) enum Next {
    /// Read this one, from its beginning or from a place in it.
    File(FoundFile, Option<Place>),
    /// None at the moment.
    Nothing,
    /// None ever again.
    End,
}

/// What to do at the end of what a file has now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// It is finished.
    Finish,
    /// It has grown.
    ReadOn,
    /// It may grow.
    Wait,
}

/// How a followed source waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Between two looks at a file or folder.
    pub(super) poll: Duration,
    /// How long a file must be quiet before it counts as finished.
    pub(super) settle: Duration,
}

/// The files of one split.
#[derive(Debug)]
pub(super) enum Sequence {
    Bounded(VecDeque<(FoundFile, Option<Place>)>),
    Followed(Box<Followed>),
}

impl Sequence {
    /// The files that `listed` holds, from `from` on.
    ///
    /// # Errors
    /// `Unavailable` if the file of `from` is gone.
    pub(super) fn bounded(listed: Vec<FoundFile>, from: Option<Place>) -> Result<Self> {
        let Some(from) = from else { return Ok(Self::Bounded(listed.into_iter().map(|f| (f, None)).collect())) };
        if !listed.iter().any(|f| f.name == from.file) {
            let message = format!("file=`{}` is gone, in which reading was to go on", from.file);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let rest = listed.into_iter().filter(|f| f.name >= from.file);
        Ok(Self::Bounded(
            rest.map(|f| {
                let at = (f.name == from.file).then(|| from.clone());
                (f, at)
            })
            .collect(),
        ))
    }

    /// The files that `pattern` names now and later, from `from` on.
    pub(super) fn followed(pattern: PathPattern, patience: Patience, whole_files: bool, from: Option<Place>) -> Self {
        Self::Followed(Box::new(Followed {
            pattern,
            patience,
            whole_files,
            resume: from,
            last: None,
            known: HashMap::new(),
            quiet: Duration::ZERO,
            notes: Notes::default(),
        }))
    }

    pub(super) fn next(&mut self) -> Result<Next> {
        match self {
            Self::Bounded(files) => Ok(files.pop_front().map_or(Next::End, |(file, place)| Next::File(file, place))),
            Self::Followed(followed) => followed.next(),
        }
    }

    /// What to do now that `file` has been read up to `byte` and has no more at the moment.
    pub(super) fn at_end(&mut self, file: &FoundFile, byte: u64) -> Result<AtEnd> {
        match self {
            Self::Bounded(_) => Ok(AtEnd::Finish),
            Self::Followed(followed) => followed.at_end(file, byte),
        }
    }

    /// Waits until it is worth looking again.
    pub(super) async fn wait(&mut self) {
        if let Self::Followed(followed) = self {
            tokio::time::sleep(followed.patience.poll).await;
            followed.quiet += followed.patience.poll;
        }
    }

    /// What happened since it was last asked.
    pub(super) fn take_notes(&mut self) -> Notes {
        match self {
            Self::Bounded(_) => Notes::default(),
            Self::Followed(followed) => std::mem::take(&mut followed.notes),
        }
    }
}

/// State of following.
#[derive(Debug)]
pub(super) struct Followed {
    pattern: PathPattern,
    patience: Patience,
    whole_files: bool,
    /// Where to begin; taken by the first look.
    resume: Option<Place>,
    /// Name of the newest file opened.
    last: Option<Arc<str>>,
    /// Files that are done, by identity, with the bytes read of each: a renamed file is not read twice. Identities that
    /// are no longer listed are forgotten, and a file shorter than what was read is another file with the same number.
    known: HashMap<(u64, u64), u64>,
    /// How long the current file has had nothing.
    quiet: Duration,
    notes: Notes,
}

impl Followed {
    fn next(&mut self) -> Result<Next> {
        let listed = self.pattern.list()?;
        if let Some(place) = self.resume.take() {
            return self.resume_at(place, listed);
        }
        self.known.retain(|id, _| listed.iter().any(|f| f.id == Some(*id)));
        let mut next = None;
        for file in listed {
            if is_known(&self.known, &file) {
                continue;
            }
            if self.last.as_ref().is_some_and(|last| file.name < *last) {
                tracing::warn!(file = %file.name, "not read: its name sorts before files already read");
                self.notes.skipped_files += 1;
                self.remember(&file, 0);
            } else if next.is_none() {
                next = Some(file);
            }
        }
        match next {
            Some(file) if !self.whole_files || self.is_quiet(&file) => Ok(self.open(file, None)),
            _ => Ok(Next::Nothing),
        }
    }

    fn open(&mut self, file: FoundFile, place: Option<Place>) -> Next {
        self.last = Some(Arc::clone(&file.name));
        self.quiet = Duration::ZERO;
        Next::File(file, place)
    }

    /// Goes on where an earlier reader stopped. What sorts before that place was read or skipped then.
    fn resume_at(&mut self, place: Place, listed: Vec<FoundFile>) -> Result<Next> {
        self.last = Some(Arc::clone(&place.file));
        for file in listed.iter().filter(|f| f.name < place.file) {
            self.remember(file, 0);
        }
        let Some(file) = listed.into_iter().find(|f| f.name == place.file) else { return self.next() };
        if place.id.is_some() && place.id != file.id {
            self.notes.rotated_files += 1;
            if let Some(moved) = find_moved(&file, &place) {
                return Ok(self.open(moved, Some(place)));
            }
            tracing::warn!(file = %file.name, "replaced while it was not followed; reading the new file from its start");
            return Ok(self.open(file, None));
        }
        if file.bytes < place.byte {
            self.note_truncation(&file);
            return Ok(self.open(file, None));
        }
        Ok(self.open(file, Some(place)))
    }

    fn at_end(&mut self, file: &FoundFile, byte: u64) -> Result<AtEnd> {
        if self.whole_files {
            self.remember(file, file.bytes);
            return Ok(AtEnd::Finish);
        }
        let now = FoundFile::look(Arc::clone(&file.name), &file.path).ok().filter(|now| now.id == file.id);
        match now {
            Some(now) if now.bytes < byte => {
                self.note_truncation(&now);
                Ok(AtEnd::Finish)
            }
            Some(now) if now.bytes > byte => {
                self.quiet = Duration::ZERO;
                Ok(AtEnd::ReadOn)
            }
            Some(now) => {
                // A file under the same name is later too: this one was moved before we opened it.
                let is_later = |f: &FoundFile| {
                    (f.name > now.name || f.name == now.name && f.id != now.id) && !is_known(&self.known, f)
                };
                let later = self.pattern.list()?.iter().any(is_later);
                if !(later && self.is_quiet(&now)) {
                    return Ok(AtEnd::Wait);
                }
                self.remember(file, byte);
                Ok(AtEnd::Finish)
            }
            // Moved away: whoever writes it may still do so for a while.
            None if self.quiet < self.patience.settle => Ok(AtEnd::Wait),
            None => {
                tracing::info!(file = %file.name, "moved away; going on with the file in its place");
                self.notes.rotated_files += 1;
                self.remember(file, byte);
                Ok(AtEnd::Finish)
            }
        }
    }

    fn is_quiet(&self, file: &FoundFile) -> bool {
        let settle_us = i64::try_from(self.patience.settle.as_micros()).unwrap_or(i64::MAX);
        self.quiet >= self.patience.settle || SystemClock.now_us().saturating_sub(file.changed_us) >= settle_us
    }

    fn note_truncation(&mut self, file: &FoundFile) {
        tracing::warn!(file = %file.name, bytes = file.bytes, "became shorter; reading it again from its start");
        self.notes.truncated_files += 1;
    }

    fn remember(&mut self, file: &FoundFile, read: u64) {
        if let Some(id) = file.id {
            self.known.insert(id, read);
        }
    }
}

fn is_known(known: &HashMap<(u64, u64), u64>, file: &FoundFile) -> bool {
    file.id.and_then(|id| known.get(&id)).is_some_and(|read| file.bytes >= *read)
}

/// The file that was at `file`'s path when `place` was noted, if it is still in the same folder.
fn find_moved(file: &FoundFile, place: &Place) -> Option<FoundFile> {
    let folder = std::fs::read_dir(file.path.parent()?).ok()?;
    let siblings = folder.flatten().filter_map(|entry| FoundFile::look(Arc::clone(&place.file), &entry.path()).ok());
    siblings.into_iter().find(|f| f.id == place.id && f.bytes >= place.byte)
}
