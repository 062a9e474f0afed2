//! Numbers for group keys, and the keys back from their numbers.
//!
//! DataFusion's `GroupValues` numbers keys fast but can give a key back only by forgetting it. So each new key is kept a
//! second time, in the columns it came in, and forgetting keys means numbering the others anew.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

/// More pieces than this are joined into one.
const PIECES_MAX: usize = 64;

/// The keys met so far, numbered from 0.
pub(super) struct Keys {
    schema: SchemaRef,
    /// `None` when there are no key columns: one key, number 0.
    groups: Option<Box<dyn GroupValues>>,
    pieces: Vec<Piece>,
    len: usize,
}

/// Keys `first..first + rows`, in order.
struct Piece {
    first: usize,
    columns: Vec<ArrayRef>,
}

impl Keys {
    /// No keys yet.
    ///
    /// # Errors
    /// When DataFusion has no hash table for the types.
    pub(super) fn try_new(schema: SchemaRef) -> Result<Self> {
        let groups = match schema.fields().is_empty() {
            true => None,
            false => Some(new_group_values(Arc::clone(&schema), &GroupOrdering::None)?),
        };
        Ok(Self { schema, groups, pieces: Vec::new(), len: 0 })
    }

    /// How many keys have a number.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of each of `rows` keys, in `numbers`. New keys get the next numbers.
    ///
    /// # Errors
    /// When a key cannot be hashed.
    pub(super) fn number(&mut self, columns: &[ArrayRef], rows: usize, numbers: &mut Vec<usize>) -> Result<()> {
        let Some(groups) = &mut self.groups else {
            numbers.clear();
            numbers.resize(rows, 0);
            self.len = self.len.max(usize::from(rows > 0));
            return Ok(());
        };
        groups.intern(columns, numbers)?;
        let mut fresh = Vec::new();
        for (row, number) in numbers.iter().enumerate() {
            if *number == self.len + fresh.len() {
                fresh.push(row as u32);
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let rows = UInt32Array::from(fresh);
        let columns = columns.iter().map(|c| take(c, &rows, None)).collect::<Result<_, _>>()?;
        self.pieces.push(Piece { first: self.len, columns });
        self.len += rows.len();
        if self.pieces.len() > PIECES_MAX { self.join_pieces() } else { Ok(()) }
    }

    /// The keys with these numbers.
    ///
    /// # Errors
    /// When a column would overflow its offsets.
    pub(super) fn columns_of(&self, numbers: impl ExactSizeIterator<Item = u32>) -> Result<Vec<ArrayRef>> {
        let width = self.schema.fields().len();
        if width == 0 {
            return Ok(Vec::new());
        }
        if let [piece] = self.pieces.as_slice() {
            let rows = UInt32Array::from_iter_values(numbers);
            return Ok(piece.columns.iter().map(|c| take(c, &rows, None)).collect::<Result<_, _>>()?);
        }
        let place = |number: u32| {
            let piece = self.pieces.partition_point(|p| p.first <= number as usize) - 1;
            (piece, number as usize - self.pieces[piece].first)
        };
        let places: Vec<(usize, usize)> = numbers.map(place).collect();
        let column = |index: usize| {
            let values: Vec<&dyn Array> = self.pieces.iter().map(|p| p.columns[index].as_ref()).collect();
            Ok(interleave(&values, &places)?)
        };
        if places.is_empty() {
            return Ok(self.schema.fields().iter().map(|f| arrow::array::new_empty_array(f.data_type())).collect());
        }
        (0..width).map(column).collect()
    }

    /// Forgets all keys but these, which are numbered anew, in this order from 0.
    ///
    /// # Errors
    /// See [`Keys::number`].
    pub(super) fn retain(&mut self, numbers: &[u32]) -> Result<()> {
        if self.groups.is_none() {
            self.len = numbers.len();
            return Ok(());
        }
        let columns = self.columns_of(numbers.iter().copied())?;
        *self = Self::try_new(Arc::clone(&self.schema))?;
        let mut renumbered = Vec::new();
        if !numbers.is_empty() {
            self.number(&columns, numbers.len(), &mut renumbered)?;
        }
        debug_assert!(renumbered.iter().copied().eq(0..numbers.len()));
        Ok(())
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let columns = self.pieces.iter().flat_map(|p| &p.columns).map(|c| c.get_array_memory_size()).sum::<usize>();
        columns + self.groups.as_ref().map_or(0, |g| g.size())
    }

    /// Joins the newer half of the pieces while they are no longer than those before, so that each key is copied a
    /// logarithmic number of times.
    fn join_pieces(&mut self) -> Result<()> {
        let length = |pieces: &[Piece]| pieces.iter().map(|p| p.columns[0].len()).sum::<usize>();
        let mut from = self.pieces.len() / 2;
        while from > 0 && self.pieces[from - 1].columns[0].len() <= length(&self.pieces[from..]) {
            from -= 1;
        }
        let joined = self.pieces.split_off(from);
        let column = |index: usize| {
            let values: Vec<&dyn Array> = joined.iter().map(|p| p.columns[index].as_ref()).collect();
            concat(&values)
        };
        let columns = (0..self.schema.fields().len()).map(column).collect::<Result<_, _>>()?;
        self.pieces.push(Piece { first: joined[0].first, columns });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn texts(from: usize, to: usize) -> ArrayRef {
        Arc::new(StringArray::from_iter((from..to).map(|i| (i % 7 != 3).then(|| format!("k{i}")))))
    }

    #[test]
    fn numbers_lead_back_to_their_keys() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true)]));
        let mut keys = Keys::try_new(schema).unwrap();
        let (mut numbers, mut of_row) = (Vec::new(), Vec::new());
        for step in 0..1000 {
            keys.number(&[texts(step * 3, step * 3 + 10)], 10, &mut numbers).unwrap();
            of_row.extend((0..10).map(|row| (step * 3 + row, numbers[row] as u32)));
        }
        assert!(keys.pieces.len() <= PIECES_MAX);
        let check = |keys: &Keys, pairs: &[(usize, u32)]| {
            let columns = keys.columns_of(pairs.iter().map(|(_, number)| *number)).unwrap();
            for ((i, _), text) in pairs.iter().zip(columns[0].as_string::<i32>()) {
                assert_eq!(text.map(str::to_owned), (i % 7 != 3).then(|| format!("k{i}")));
            }
        };
        check(&keys, &of_row);
        let kept: Vec<(usize, u32)> = of_row.iter().copied().filter(|(i, _)| i % 10 == 0 && i % 7 != 3).collect();
        let mut kept_numbers: Vec<u32> = kept.iter().map(|(_, n)| *n).collect();
        kept_numbers.dedup();
        kept_numbers.sort();
        kept_numbers.dedup();
        keys.retain(&kept_numbers).unwrap();
        assert_eq!(keys.len(), kept_numbers.len());
        let renumbered = |n: u32| kept_numbers.iter().position(|k| *k == n).unwrap() as u32;
        check(&keys, &kept.iter().map(|(i, n)| (*i, renumbered(*n))).collect::<Vec<_>>());
        keys.retain(&[]).unwrap();
        assert_eq!((keys.len(), keys.columns_of([].into_iter()).unwrap()[0].len()), (0, 0));
    }

    #[test]
    fn no_key_columns_are_one_key() {
        let mut keys = Keys::try_new(Arc::new(Schema::empty())).unwrap();
        let mut numbers = Vec::new();
        keys.number(&[], 3, &mut numbers).unwrap();
        assert_eq!((numbers, keys.len()), (vec![0, 0, 0], 1));
    }
}
