//! Which file of a split comes next, and when one is finished.
//!
//! A bounded split has the files that were listed when it was opened. A followed one asks again and again:
//!
//! - a file is read on as it grows; the last line is held until its line end comes (C84);
//! - it is finished once a later file in name order exists, or it has been moved away (rotation), and it has been quiet for
//!   the settle time; only then is its unfinished last line taken;
//! - a file that became shorter is read again from its start, with a warning: offsets go on counting;
//! - a file that turns up behind the place reached, or grows there, is not read, with a warning: reading the split again
//!   from any position must give the same rows. `split = 'file'` has no such order;
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
    File(FoundFile, Box<Place>),
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
    Bounded(VecDeque<Listed>),
    Followed(Box<Followed>),
}

/// A file of a bounded split.
#[derive(Debug)]
pub(super) struct Listed {
    file: FoundFile,
    /// Where to begin.
    from: Place,
    /// Whether it cannot be read in part.
    whole: bool,
}

impl Sequence {
    /// The files that `listed` holds, each as far as it was listed, from `from` on.
    ///
    /// # Errors
    /// `Unavailable` if the file of `from` is gone.
    pub(super) fn bounded(listed: Vec<FoundFile>, whole: impl Fn(&str) -> bool, from: Option<Place>) -> Result<Self> {
        if let Some(from) = &from
            && !listed.iter().any(|f| f.name == from.file)
        {
            let message = format!("file=`{}` is gone, in which reading was to go on", from.file);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let rest = listed.into_iter().filter(|f| from.as_ref().is_none_or(|from| f.name >= from.file));
        let placed = rest.map(|file| {
            let here = from.as_ref().filter(|from| file.name == from.file);
            let from = here.map_or_else(|| start_of(&file), |from| Place { id: file.id, ..from.clone() });
            Listed { whole: whole(&file.name), from, file }
        });
        Ok(Self::Bounded(placed.collect()))
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
            Self::Bounded(files) => {
                let Some(Listed { file, from, whole }) = files.pop_front() else { return Ok(Next::End) };
                file.check_unchanged(whole)?;
                Ok(Next::File(file, Box::new(from)))
            }
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

    /// What happened since it was last asked, if anything.
    pub(super) fn take_notes(&mut self) -> Option<Notes> {
        match self {
            Self::Bounded(_) => None,
            Self::Followed(followed) => Some(std::mem::take(&mut followed.notes)).filter(|n| *n != Notes::default()),
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
    /// Files that are done, by identity: a renamed file is not read twice. Identities that are no longer listed are
    /// forgotten, and a file made at another time, or shorter than what was read, is another file with the same number.
    known: HashMap<(u64, u64), Known>,
    /// How long the current file has had nothing.
    quiet: Duration,
    notes: Notes,
}

/// A file that is done.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Bytes that were read of it, or were there when it was found to be done.
    bytes: u64,
    /// When it was made.
    born_us: Option<i64>,
    /// Whether it has been said that some of it is not read.
    told: bool,
}

/// The beginning of a file.
fn start_of(file: &FoundFile) -> Place {
    Place { file: Arc::clone(&file.name), id: file.id, ..Place::default() }
}

impl Followed {
    fn next(&mut self) -> Result<Next> {
        let listed = self.pattern.list()?;
        if let Some(place) = self.resume.take() {
            return self.resume_at(place, listed);
        }
        self.look_behind(&listed);
        let next = listed.iter().find(|file| !is_known(&self.known, file));
        match next {
            Some(file) if !self.whole_files || self.is_quiet(file) => Ok(self.open(file.clone(), None, &listed)),
            _ => Ok(Next::Nothing),
        }
    }

    fn open(&mut self, file: FoundFile, place: Option<Place>, listed: &[FoundFile]) -> Next {
        self.last = Some(Arc::clone(&file.name));
        self.quiet = Duration::ZERO;
        let behind = listed.iter().filter(|other| other.name < file.name);
        let behind_us = behind.map(|other| other.touched_us).max().unwrap_or(0);
        let place = place.unwrap_or_else(|| start_of(&file));
        let place = Place { id: file.id, behind_us, ..place };
        Next::File(file, Box::new(place))
    }

    /// Says, once for each, which of `listed` have rows that nobody will read: files that turned up behind the place
    /// reached in name order, and finished ones that grew.
    fn look_behind(&mut self, listed: &[FoundFile]) {
        self.known.retain(|id, known| listed.iter().any(|f| f.id == Some(*id) && f.born_us == known.born_us));
        let Some(last) = self.last.clone() else { return };
        for file in listed {
            match file.id.and_then(|id| self.known.get(&id)).copied() {
                Some(known) if known.told || file.bytes == known.bytes => {}
                Some(known) if file.bytes > known.bytes => {
                    self.skip(file, "not read on: it grew after reading had gone on with later files");
                }
                _ if file.name < last => {
                    self.skip(file, "not read: it came after reading had gone on with later files")
                }
                _ => {}
            }
        }
    }

    fn skip(&mut self, file: &FoundFile, why: &str) {
        tracing::warn!(file = %file.name, "{why}");
        self.notes.skipped_files += 1;
        if let Some(id) = file.id {
            self.known.insert(id, Known { bytes: 0, born_us: file.born_us, told: true });
        }
    }

    /// Goes on where an earlier reader stopped. What sorts before that place was read or skipped then, but for files that
    /// were touched since.
    fn resume_at(&mut self, place: Place, listed: Vec<FoundFile>) -> Result<Next> {
        self.last = Some(Arc::clone(&place.file));
        for file in listed.iter().filter(|f| f.name < place.file) {
            match file.touched_us > place.behind_us {
                true => self.skip(file, "not read: it came or changed after reading had gone on with later files"),
                false => self.remember(file, file.bytes),
            }
        }
        let Some(file) = listed.iter().find(|f| f.name == place.file).cloned() else { return self.next() };
        if place.id.is_some() && place.id != file.id {
            self.notes.rotated_files += 1;
            if let Some(moved) = find_moved(&file, &place) {
                return Ok(self.open(moved, Some(place), &listed));
            }
            tracing::warn!(file = %file.name, "replaced while it was not followed; reading the new file from its start");
            return Ok(self.open(file, None, &listed));
        }
        if file.bytes < place.byte {
            self.note_truncation(&file);
            return Ok(self.open(file, None, &listed));
        }
        Ok(self.open(file, Some(place), &listed))
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
                let listed = self.pattern.list()?;
                self.look_behind(&listed);
                // A file under the same name is later too: this one was moved before we opened it.
                let is_later = |f: &FoundFile| {
                    (f.name > now.name || f.name == now.name && f.id != now.id) && !is_known(&self.known, f)
                };
                let later = listed.iter().any(is_later);
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
            self.known.insert(id, Known { bytes: read, born_us: file.born_us, told: false });
        }
    }
}

fn is_known(known: &HashMap<(u64, u64), Known>, file: &FoundFile) -> bool {
    file.id.and_then(|id| known.get(&id)).is_some_and(|known| file.bytes >= known.bytes)
}

/// The file that was at `file`'s path when `place` was noted, if it is still in the same folder.
fn find_moved(file: &FoundFile, place: &Place) -> Option<FoundFile> {
    let folder = std::fs::read_dir(file.path.parent()?).ok()?;
    let siblings = folder.flatten().filter_map(|entry| FoundFile::look(Arc::clone(&place.file), &entry.path()).ok());
    siblings.into_iter().find(|f| f.id == place.id && f.bytes >= place.byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system gives the number of a deleted file to the next one.
    #[test]
    fn a_new_file_with_the_number_of_a_deleted_one_is_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("day1.jsonl"), "{}\n").unwrap();
        let patience = Patience { poll: Duration::ZERO, settle: Duration::ZERO };
        let pattern = PathPattern::parse(&folder.path().join("*.jsonl").to_string_lossy()).unwrap();
        let Sequence::Followed(mut followed) = Sequence::followed(pattern, patience, false, None) else {
            unreachable!()
        };
        let first = FoundFile::look("day1.jsonl", &at("day1.jsonl")).unwrap();
        followed.last = Some("day2.jsonl".into());
        followed.remember(&first, first.bytes);
        followed.look_behind(std::slice::from_ref(&first));
        assert!(is_known(&followed.known, &first), "it was read");

        let born_us = first.born_us.map(|us| us + 1_000_000).or(Some(1));
        let reused = FoundFile { name: "day3.jsonl".into(), born_us, ..first };
        followed.look_behind(std::slice::from_ref(&reused));
        assert!(!is_known(&followed.known, &reused));
        assert_eq!(followed.notes, Notes::default(), "it is not behind, and nothing of it is skipped");
    }
}
