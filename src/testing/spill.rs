//! A place for spilled state that a test can look at.

use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;

use crate::state::{SpillFile, SpillSpace};

/// Keeps in memory what is spilled, and counts the files.
#[derive(Debug, Default)]
pub struct Remembered {
    files: AtomicUsize,
}

impl Remembered {
    /// How many files there have been.
    pub fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }
}

impl SpillSpace for Remembered {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Bytes(Vec::new())))
    }
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl SpillFile for Bytes {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend(bytes);
        Ok(())
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>> {
        Ok(self.0[at as usize..][..bytes].to_vec())
    }
}
