//! Files for state that memory has no room for.
//!
//! They have no name in any folder, so that there is nothing to remove: when the process ends, however it does, the system
//! takes them back.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use datafusion::common::Result;
use parking_lot::Mutex;

use crate::state::{SpillFile, SpillSpace};

/// A folder for such files.
#[derive(Debug, Default)]
pub struct SpillFolder {
    folder: Option<PathBuf>,
}

impl SpillFolder {
    /// The folder `folder`; the system's for temporary files where there is none, or while it does not exist.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }
}

impl SpillSpace for SpillFolder {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        let file = match self.folder.as_ref().filter(|folder| folder.is_dir()) {
            Some(folder) => tempfile::tempfile_in(folder)?,
            None => tempfile::tempfile()?,
        };
        Ok(Box::new(Unnamed { file: Mutex::new(file) }))
    }
}

/// A file without a name.
#[derive(Debug)]
struct Unnamed {
    file: Mutex<File>,
}

impl SpillFile for Unnamed {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let file = self.file.get_mut();
        file.seek(SeekFrom::End(0))?;
        Ok(file.write_all(bytes)?)
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut file = self.file.lock();
        file.seek(SeekFrom::Start(at))?;
        let mut read = vec![0; bytes];
        file.read_exact(&mut read)?;
        Ok(read)
    }
}
