//! Partial aggregates of sessions: one mutable head, and sealed chunks that never change.
//!
//! A session's value is spread over *parts*, each one row of partial states. The newest parts are slots of the head, the
//! others are rows of chunks. Parts of a session are chained, oldest first, so that two sessions merge by joining their
//! chains and no state is touched; its value is made by merging the parts of its chain, any number of times. `state()`
//! and `evaluate()` of an accumulator drain it: only the head and scratch accumulators are ever drained, each at once.
//!
//! ```text
//!            chunk 0            chunk 1            head (chunk 2)
//!  session A  row 3 ──────────► row 0 ───────────► slot 7
//!  session B                    row 1 ─► (end)
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::{interleave, take};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use crate::state::layout::{Layout, as_mask, conform};

/// Where a part is: chunk and row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartRef {
    chunk: u32,
    row: u32,
}

const NONE: PartRef = PartRef { chunk: u32::MAX, row: u32::MAX };

/// The parts of a session, or of a session as it was once: its first part and its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    first: PartRef,
    last: PartRef,
}

impl Chain {
    /// No parts.
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// Partial states, immutable, and the links between parts.
struct Chunk {
    /// State columns of all aggregates, in order. Empty while the chunk is the head.
    states: Vec<ArrayRef>,
    /// The next part of the same session.
    next: Vec<PartRef>,
    /// Parts some session still needs.
    live: usize,
}

/// All parts of all sessions of a shard.
pub(super) struct Partials {
    layout: Arc<Layout>,
    head: Vec<Box<dyn GroupsAccumulator>>,
    /// The head's place in `chunks`.
    head_chunk: u32,
    chunks: Vec<Option<Chunk>>,
    /// Unused places in `chunks`.
    free: Vec<u32>,
    /// Rows of sealed chunks, needed or not.
    stored: usize,
}

impl Partials {
    /// No parts.
    ///
    /// # Errors
    /// When DataFusion cannot make an accumulator.
    pub(super) fn try_new(layout: Arc<Layout>) -> Result<Self> {
        let head = layout.new_accumulators()?;
        let first = Chunk { states: vec![], next: vec![], live: 0 };
        Ok(Self { layout, head, head_chunk: 0, chunks: vec![Some(first)], free: vec![], stored: 0 })
    }

    /// Slots of the head.
    pub(super) fn head_slots(&self) -> usize {
        self.chunk(self.head_chunk).next.len()
    }

    /// Rows of sealed chunks, needed or not.
    pub(super) fn stored_rows(&self) -> usize {
        self.stored
    }

    /// The head's slot for the next row of the session with this chain: its last part, if that is in the head, else a
    /// new one.
    pub(super) fn slot(&mut self, chain: &mut Chain) -> usize {
        if chain.last.chunk == self.head_chunk { chain.last.row as usize } else { self.fresh_slot(chain) }
    }

    /// A new slot of the head at the end of this chain. Its parts so far stay as they are from here on.
    pub(super) fn fresh_slot(&mut self, chain: &mut Chain) -> usize {
        let head = self.chunk_mut(self.head_chunk);
        let slot = head.next.len();
        head.next.push(NONE);
        head.live += 1;
        let part = PartRef { chunk: self.head_chunk, row: slot as u32 };
        *chain = self.join(*chain, Chain { first: part, last: part });
        slot
    }

    /// The parts of `a`, then those of `b`. Both chains are used up; what was the chain `a` can still be evaluated.
    pub(super) fn join(&mut self, a: Chain, b: Chain) -> Chain {
        if a == Chain::EMPTY || b == Chain::EMPTY {
            return if a == Chain::EMPTY { b } else { a };
        }
        self.chunk_mut(a.last.chunk).next[a.last.row as usize] = b.first;
        Chain { first: a.first, last: b.last }
    }

    /// Adds rows, given as [`Layout::inputs`] gives them, each to its slot of the head.
    ///
    /// # Errors
    /// When an aggregate refuses its input.
    pub(super) fn update(&mut self, inputs: &RecordBatch, slots: &[usize]) -> Result<()> {
        let total = self.head_slots();
        for (i, accumulator) in self.head.iter_mut().enumerate() {
            let (arguments, filter) = self.layout.argument_columns(i);
            let mask = filter.map(|column| as_mask(inputs.column(column)));
            accumulator.update_batch(&inputs.columns()[arguments], slots, mask.as_ref(), total)?;
        }
        Ok(())
    }

    /// Makes the head's slots immutable and begins a new head.
    ///
    /// # Errors
    /// When an aggregate cannot give its state.
    pub(super) fn seal(&mut self) -> Result<()> {
        let at = self.head_chunk;
        let slots = self.chunk_mut(at).next.len();
        if slots == 0 {
            return Ok(());
        }
        let mut states = Vec::new();
        for accumulator in &mut self.head {
            states.extend(accumulator.state(EmitTo::All)?);
        }
        self.head = self.layout.new_accumulators()?;
        self.chunk_mut(at).states = conform(states, self.layout.state_fields())?;
        self.stored += slots;
        self.head_chunk = self.add(Chunk { states: vec![], next: vec![], live: 0 });
        self.drop_if_unused(at);
        Ok(())
    }

    /// The values of each of `chains`, at least one, a column per aggregate. Their parts must be sealed.
    ///
    /// # Errors
    /// When an aggregate cannot be merged or evaluated.
    pub(super) fn evaluate(&self, chains: &[Chain]) -> Result<Vec<ArrayRef>> {
        let mut scratch = self.merged(chains)?;
        scratch.iter_mut().map(|accumulator| accumulator.evaluate(EmitTo::All)).collect()
    }

    /// Forgets the parts of these chains.
    pub(super) fn release(&mut self, chains: &[Chain]) {
        for part in self.parts_of(chains).0 {
            self.chunk_mut(part.chunk).live -= 1;
            self.drop_if_unused(part.chunk);
        }
    }

    /// Rewrites `chains`, which must be all there are, so that each has one part. Parts must be sealed.
    ///
    /// # Errors
    /// When an aggregate cannot be merged or give its state.
    pub(super) fn compact(&mut self, chains: &mut [&mut Chain]) -> Result<()> {
        let old: Vec<Chain> = chains.iter().map(|chain| **chain).collect();
        let states = self.states(&old)?;
        *self = Self::try_new(Arc::clone(&self.layout))?;
        for (chain, merged) in chains.iter_mut().zip(self.load(states, old.len())) {
            **chain = merged;
        }
        Ok(())
    }

    /// The partial states of each of `chains`, merged: one row each. Their parts must be sealed.
    ///
    /// # Errors
    /// When an aggregate cannot be merged or give its state.
    pub(super) fn states(&self, chains: &[Chain]) -> Result<Vec<ArrayRef>> {
        if chains.is_empty() {
            return Ok(self.layout.state_fields().iter().map(|field| new_empty_array(field.data_type())).collect());
        }
        let mut states = Vec::new();
        for accumulator in &mut self.merged(chains)? {
            states.extend(accumulator.state(EmitTo::All)?);
        }
        conform(states, self.layout.state_fields())
    }

    /// Takes `rows` rows of partial states as sealed parts: a chain for each.
    pub(super) fn load(&mut self, states: Vec<ArrayRef>, rows: usize) -> Vec<Chain> {
        if rows == 0 {
            return Vec::new();
        }
        let chunk = self.add(Chunk { states, next: vec![NONE; rows], live: rows });
        self.stored += rows;
        let part = |row: usize| PartRef { chunk, row: row as u32 };
        (0..rows).map(|row| Chain { first: part(row), last: part(row) }).collect()
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let chunk = |chunk: &Chunk| {
            let states = chunk.states.iter().map(|s| s.get_array_memory_size()).sum::<usize>();
            states + chunk.next.capacity() * size_of::<PartRef>()
        };
        self.chunks.iter().flatten().map(chunk).sum::<usize>() + self.head.iter().map(|a| a.size()).sum::<usize>()
    }

    /// Accumulators that hold the states of `chains`, one group each.
    fn merged(&self, chains: &[Chain]) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        let mut scratch = self.layout.new_accumulators()?;
        let (parts, groups) = self.parts_of(chains);
        let states = self.gather(&parts)?;
        let mut states = states.as_slice();
        for (i, accumulator) in scratch.iter_mut().enumerate() {
            let (own, rest) = states.split_at(self.layout.state_columns(i).len());
            accumulator.merge_batch(own, &groups, chains.len())?;
            states = rest;
        }
        Ok(scratch)
    }

    /// The states of these parts, in their order.
    fn gather(&self, parts: &[PartRef]) -> Result<Vec<ArrayRef>> {
        let mut place = vec![u32::MAX; self.chunks.len()];
        let mut used: Vec<&Chunk> = Vec::new();
        for part in parts {
            if place[part.chunk as usize] == u32::MAX {
                place[part.chunk as usize] = used.len() as u32;
                used.push(self.chunk(part.chunk));
            }
        }
        let Some(first) = used.first() else { return Ok(Vec::new()) };
        if used.len() == 1 {
            let rows = UInt32Array::from_iter_values(parts.iter().map(|part| part.row));
            return Ok(first.states.iter().map(|s| take(s, &rows, None)).collect::<Result<_, _>>()?);
        }
        let places: Vec<_> = parts.iter().map(|p| (place[p.chunk as usize] as usize, p.row as usize)).collect();
        let column = |index: usize| {
            let values: Vec<&dyn Array> = used.iter().map(|chunk| chunk.states[index].as_ref()).collect();
            Ok(interleave(&values, &places)?)
        };
        (0..first.states.len()).map(column).collect()
    }

    /// The parts of these chains, and the chain each belongs to. First come the first parts of all chains, then the
    /// second ones, and so on: steps along one chain would wait for memory one after the other.
    fn parts_of(&self, chains: &[Chain]) -> (Vec<PartRef>, Vec<usize>) {
        let (mut parts, mut groups) = (Vec::with_capacity(chains.len()), Vec::with_capacity(chains.len()));
        let firsts = chains.iter().enumerate().filter(|(_, chain)| **chain != Chain::EMPTY);
        let mut level: Vec<(usize, PartRef)> = firsts.map(|(group, chain)| (group, chain.first)).collect();
        while !level.is_empty() {
            parts.extend(level.iter().map(|(_, part)| *part));
            groups.extend(level.iter().map(|(group, _)| *group));
            level.retain_mut(|(group, part)| {
                let goes_on = *part != chains[*group].last;
                if goes_on {
                    *part = self.chunk(part.chunk).next[part.row as usize];
                }
                goes_on
            });
        }
        (parts, groups)
    }

    fn chunk(&self, at: u32) -> &Chunk {
        self.chunks[at as usize].as_ref().expect("a chunk lives as long as one of its parts")
    }

    fn chunk_mut(&mut self, at: u32) -> &mut Chunk {
        self.chunks[at as usize].as_mut().expect("a chunk lives as long as one of its parts")
    }

    fn add(&mut self, chunk: Chunk) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.chunks[at as usize] = Some(chunk);
                at
            }
            None => {
                self.chunks.push(Some(chunk));
                self.chunks.len() as u32 - 1
            }
        }
    }

    fn drop_if_unused(&mut self, at: u32) {
        let chunk = self.chunk(at);
        if at != self.head_chunk && chunk.live == 0 {
            self.stored -= chunk.next.len();
            self.chunks[at as usize] = None;
            self.free.push(at);
        }
    }
}
