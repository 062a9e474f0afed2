//! The partial side of a windowed aggregation: heads by slice, in one worker.
//!
//! ```text
//!  piece (slice, class, inputs) ──► heads[(slice, class)]
//!                                     │  W reaches a window's close or expiry, or the epoch ends
//!                                     ▼
//!                                   sealed (slice, class, chunk) ──► merge
//! ```
//!
//! Which worker a piece goes to changes nothing but speed: every worker seals what it has before a window fires.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::graph::Policy;
use super::judge::Class;
use super::lifecycle::{closes_at, expires_at};
use crate::state::{Chunk, Head, Layout};
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
}

#[derive(Debug)]
struct SliceHead {
    head: Head,
    /// The next watermark at which some window of the slice fires or expires.
    due_at: i64,
}

impl PartialAggregate {
    /// An aggregate with no rows.
    pub fn new(layout: Arc<Layout>, window: WindowSpec, policy: Policy) -> Self {
        Self { layout, window, policy, heads: HashMap::new(), w: watermark::NONE }
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
            let head = SliceHead { head: self.layout.new_head()?, due_at: self.due_after(piece.slice, self.w) };
            self.heads.insert(key, head);
        }
        let slot = self.heads.get_mut(&key).expect("inserted above");
        slot.head.update(&self.layout, &piece.inputs)
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

    fn seal(&mut self, wanted: impl Fn(Class, &SliceHead) -> bool) -> Result<Vec<Sealed>> {
        let due = self.heads.extract_if(|(_, class), slot| wanted(*class, slot)).collect::<Vec<_>>();
        due.into_iter()
            .map(|((slice, class), mut slot)| {
                let rows = slot.head.seal(&self.layout)?;
                Ok(Sealed { slice, class, chunk: Chunk::new(&self.layout, rows) })
            })
            .collect()
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
