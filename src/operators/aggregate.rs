//! The partial side of a windowed aggregation: heads by slice, in one worker.
//!
//! ```text
//!  piece (slice, class, inputs) ──► heads[(slice, class)]
//!                                     │  W reaches a window's close or expiry, or the epoch ends
//!                                     ▼
//!                                   sealed (slice, class, chunk) ──► merge
//! ```
//!
//! Which worker a piece goes to changes nothing but speed: every worker seals what it has before a window fires. Heads that
//! memory has no room for are sealed and spilled at once, and given with the others.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::graph::Policy;
use super::judge::Class;
use super::lifecycle::{closes_at, expires_at};
use crate::state::{Account, Chunk, Head, Layout, Memory};
use crate::watermark;
use crate::window::{Slice, WindowSpec};

/// Accepted rows of one slice and class, evaluated.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The slice.
    pub slice: Slice,
    /// How its windows stood.
    pub class: Class,
    /// Keys and arguments, see [`Layout::inputs`].
    pub inputs: RecordBatch,
}

/// A sealed head on its way to the merge.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// The slice.
    pub slice: Slice,
    /// How its windows stood.
    pub class: Class,
    /// Partial states.
    pub chunk: Chunk,
}

/// Which heads an epoch's end seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealAt {
    /// Those with late rows, so that their windows are corrected.
    Late,
    /// All: early values are wanted, or state is to be written.
    All,
}

/// Takes pieces, gives sealed chunks. One per worker.
#[derive(Debug)]
pub struct PartialAggregate {
    layout: Arc<Layout>,
    window: WindowSpec,
    policy: Policy,
    heads: HashMap<(Slice, Class), SliceHead>,
    w: i64,
    account: Account,
    /// Bytes held by heads, as far as they are counted.
    held_bytes: usize,
    /// What has been sealed before anybody asked for it.
    spilled: Vec<Sealed>,
}

#[derive(Debug)]
struct SliceHead {
    head: Head,
    bytes: usize,
    /// The next watermark at which some window of the slice fires or expires.
    due_at: i64,
}

impl PartialAggregate {
    /// An aggregate with no rows. Heads that `memory` has no room for it spills.
    pub fn new(layout: Arc<Layout>, window: WindowSpec, policy: Policy, memory: &Memory) -> Self {
        let (heads, spilled, w) = (HashMap::new(), Vec::new(), watermark::NONE);
        Self { layout, window, policy, heads, w, account: memory.account("heads"), held_bytes: 0, spilled }
    }

    /// Goes on at W `w` after a checkpoint, which has sealed every head.
    pub fn restore(&mut self, w: i64) {
        self.w = w;
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When an aggregate refuses its input.
    pub fn on_piece(&mut self, piece: &Piece) -> Result<()> {
        let key = (piece.slice, piece.class);
        if !self.heads.contains_key(&key) {
            let due_at = self.due_after(piece.slice, self.w);
            self.heads.insert(key, SliceHead { head: self.layout.new_head()?, bytes: 0, due_at });
        }
        let slot = self.heads.get_mut(&key).expect("inserted above");
        slot.head.update(&self.layout, &piece.inputs)?;
        if self.account.is_limited() {
            let bytes = slot.head.memory_bytes();
            self.held_bytes = self.held_bytes + bytes - slot.bytes;
            slot.bytes = bytes;
            self.make_room()?;
        }
        Ok(())
    }

    /// W has risen to `w`: seals every head that a window closing or expiring on the way needs.
    ///
    /// # Errors
    /// When an aggregate cannot give its state.
    pub fn on_watermark(&mut self, w: i64) -> Result<Vec<Sealed>> {
        self.w = w;
        self.seal(|_, slot| slot.due_at <= w)
    }

    /// The epoch ends.
    ///
    /// # Errors
    /// When an aggregate cannot give its state.
    pub fn on_epoch(&mut self, at: SealAt) -> Result<Vec<Sealed>> {
        self.seal(|class, _| at == SealAt::All || class != Class::ON_TIME)
    }

    /// Bytes held by heads.
    pub fn memory_bytes(&self) -> usize {
        self.heads.values().map(|slot| slot.head.memory_bytes()).sum()
    }

    /// Spills heads, the largest first, if memory has no room for all of them, until half of them are left.
    fn make_room(&mut self) -> Result<()> {
        if self.account.hold(self.held_bytes) || self.held_bytes <= self.account.memory().spill_bytes_min() {
            return Ok(());
        }
        let mut sizes: Vec<_> = self.heads.iter().map(|(key, slot)| (slot.bytes, *key)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let enough = self.held_bytes / 2;
        for (bytes, key) in sizes {
            if self.held_bytes <= enough {
                break;
            }
            let Some(mut slot) = self.heads.remove(&key) else { continue };
            let mut chunk = Chunk::new(&self.layout, slot.head.seal(&self.layout)?);
            chunk.spill(self.account.memory().space())?;
            self.held_bytes -= bytes;
            self.spilled.push(Sealed { slice: key.0, class: key.1, chunk });
        }
        self.account.hold(self.held_bytes);
        Ok(())
    }

    fn seal(&mut self, wanted: impl Fn(Class, &SliceHead) -> bool) -> Result<Vec<Sealed>> {
        let due = self.heads.extract_if(|(_, class), slot| wanted(*class, slot)).collect::<Vec<_>>();
        let mut sealed = std::mem::take(&mut self.spilled);
        for ((slice, class), mut slot) in due {
            let rows = slot.head.seal(&self.layout)?;
            self.held_bytes -= slot.bytes;
            sealed.push(Sealed { slice, class, chunk: Chunk::new(&self.layout, rows) });
        }
        self.account.hold(self.held_bytes);
        Ok(sealed)
    }

    fn due_after(&self, slice: Slice, w: i64) -> i64 {
        self.window
            .windows_of_slice(slice)
            .iter()
            .flat_map(|window| [closes_at(&self.policy, window.end), expires_at(&self.policy, window.end)])
            .filter(|at| *at > w)
            .min()
            .unwrap_or(watermark::END)
    }
}
