//! How much memory state may take, and where the rest goes.
//!
//! Everything that holds state has an [`Account`] with DataFusion's memory pool. What does not fit is spilled by whoever
//! holds it: nobody has to ask anybody else for room. Under a fair pool each account is sure of its share.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, resources_datafusion_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, UnboundedMemoryPool,
};

use super::spill::{SpillFile, SpillSpace};
use crate::error::{Error, ErrorKind};

/// Less than this is not worth a file.
const SPILL_BYTES_MIN: usize = 64 << 10;
/// The part of the limit that rows in the middle of being merged may take.
const MERGE_PART: usize = 8;

/// The memory that state shares with everything else an engine does, and the place for what does not fit.
#[derive(Debug, Clone)]
pub struct Memory {
    pool: Arc<dyn MemoryPool>,
    space: Arc<dyn SpillSpace>,
    /// See [`SPILL_BYTES_MIN`].
    spill_bytes_min: usize,
}

impl Memory {
    /// Memory of `pool`; what it has no room for goes to `space`.
    pub fn new(pool: Arc<dyn MemoryPool>, space: Arc<dyn SpillSpace>) -> Self {
        Self { pool, space, spill_bytes_min: SPILL_BYTES_MIN }
    }

    /// As much memory as the machine has.
    pub fn unlimited() -> Self {
        Self::new(Arc::new(UnboundedMemoryPool::default()), Arc::new(NoSpace))
    }

    /// An account with nothing in it for a holder who spills what does not fit.
    pub fn account(&self, name: &'static str) -> Account {
        Account { memory: self.clone(), name, can_spill: true, reservation: None }
    }

    /// An account with nothing in it for a holder who cannot spill: what it holds the others have to do without.
    pub fn fixed_account(&self, name: &'static str) -> Account {
        Account { can_spill: false, ..self.account(name) }
    }

    /// Less than this is not worth a file.
    pub fn spill_bytes_min(&self) -> usize {
        self.spill_bytes_min
    }

    /// Where files go.
    pub fn space(&self) -> &dyn SpillSpace {
        self.space.as_ref()
    }

    /// The limit, if there is one.
    pub fn limit_bytes(&self) -> Option<usize> {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            MemoryLimit::Infinite | MemoryLimit::Unknown => None,
        }
    }

    /// How many bytes of state may be merged at once.
    pub(super) fn merge_bytes(&self) -> usize {
        self.limit_bytes().map_or(usize::MAX, |limit| (limit / MERGE_PART).max(self.spill_bytes_min))
    }

    /// The error of `what`, which takes `bytes` and cannot be spilled.
    pub(crate) fn exhausted(&self, what: &str, bytes: usize) -> DataFusionError {
        let limit = self.limit_bytes().unwrap_or(usize::MAX);
        let message = format!("{what} need more memory than there is: needed_bytes=`{bytes}` limit_bytes=`{limit}`");
        let error = Error::new(ErrorKind::Unavailable, message).with_hint(
            "raise the memory limit (--memory-limit), make windows shorter, or use aggregates that keep less, such as \
             approx_median or approx_distinct",
        );
        DataFusionError::External(Box::new(error))
    }
}

/// What one holder of state has of the memory.
#[derive(Debug)]
pub struct Account {
    memory: Memory,
    name: &'static str,
    can_spill: bool,
    /// Only while something is held: a fair pool divides by those that are registered.
    reservation: Option<MemoryReservation>,
}

impl Account {
    /// The memory it is an account of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether there is a limit at all. Without one nothing has to be counted.
    pub fn is_limited(&self) -> bool {
        self.memory.limit_bytes().is_some()
    }

    /// Notes that `bytes` are held now, and tells whether there is room for them.
    pub fn hold(&mut self, bytes: usize) -> bool {
        if bytes == 0 || !self.is_limited() {
            self.reservation = None;
            return true;
        }
        let Self { memory, name, can_spill, reservation } = self;
        let consumer = || MemoryConsumer::new(*name).with_can_spill(*can_spill).register(&memory.pool);
        let reservation = reservation.get_or_insert_with(consumer);
        match bytes.checked_sub(reservation.size()) {
            Some(more) => {
                let fits = reservation.try_grow(more).is_ok();
                if !fits {
                    reservation.grow(more);
                }
                fits
            }
            None => {
                reservation.resize(bytes);
                true
            }
        }
    }
}

/// Takes nothing.
#[derive(Debug)]
struct NoSpace;

impl SpillSpace for NoSpace {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        Err(resources_datafusion_err!("there is no place for state that does not fit into memory"))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::FairSpillPool;

    use super::*;
    use crate::testing::spill::Remembered;

    impl Memory {
        /// Memory in which nothing may be held but what is being merged, `limit` bytes, and a place for everything else.
        pub(crate) fn cramped(limit: usize) -> (Self, Arc<Remembered>) {
            let space = Arc::new(Remembered::default());
            let memory = Self { pool: Arc::new(Full(limit)), space: Arc::clone(&space) as _, spill_bytes_min: 0 };
            (memory, space)
        }
    }

    /// Others hold all of it.
    #[derive(Debug)]
    struct Full(usize);

    impl std::fmt::Display for Full {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.name())
        }
    }

    impl MemoryPool for Full {
        fn name(&self) -> &str {
            "full"
        }

        fn grow(&self, _: &MemoryReservation, _: usize) {}

        fn shrink(&self, _: &MemoryReservation, _: usize) {}

        fn try_grow(&self, _: &MemoryReservation, _: usize) -> Result<()> {
            Err(resources_datafusion_err!("full"))
        }

        fn reserved(&self) -> usize {
            self.0
        }

        fn memory_limit(&self) -> MemoryLimit {
            MemoryLimit::Finite(self.0)
        }
    }

    #[test]
    fn an_account_has_its_share_and_gives_it_back() {
        let memory = Memory::new(Arc::new(FairSpillPool::new(100)), Arc::new(NoSpace));
        let (mut a, mut b) = (memory.account("a"), memory.account("b"));
        assert!(a.hold(100), "nobody else holds anything");
        assert!(b.hold(40));
        assert!(!a.hold(101) && a.hold(50), "each has half now");
        assert!(!b.hold(51) && b.hold(50));
        assert!(a.hold(0) && b.hold(100));
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let memory = Memory::unlimited();
        let mut account = memory.account("a");
        assert!(!account.is_limited() && account.hold(usize::MAX));
        assert!(memory.space().create().is_err());
    }
}
