//! Some rows of a batch, as runs.

use std::ops::Range;

use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::filter_record_batch;
use datafusion::common::Result;

use super::layout::rows_at;

/// Above so many rows per run copying runs is cheaper than taking rows one by one.
const LONG_RUN_ROWS: usize = 8;

/// Rows of a batch: ascending runs that do not touch.
///
/// Streams are nearly sorted, so what belongs together mostly stands together: the rows of a slice are a few long runs,
/// with holes where late rows stood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<Range<u32>>,
    rows: usize,
}

impl Runs {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds rows behind those there are.
    pub fn push(&mut self, run: Range<u32>) {
        self.rows += run.len();
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.runs.push(run),
        }
    }

    /// Indices of the rows, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(Clone::clone)
    }

    /// These rows of `batch`. One run costs nothing.
    ///
    /// # Errors
    /// When a column would overflow its offsets.
    pub fn of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if let [run] = self.runs.as_slice() {
            return Ok(batch.slice(run.start as usize, run.len()));
        }
        let sparse = self.rows < LONG_RUN_ROWS * self.runs.len() || self.rows * 2 < batch.num_rows();
        if sparse || batch.num_columns() == 0 {
            return rows_at(batch, &self.iter().collect::<Vec<u32>>());
        }
        let mut mask = BooleanBufferBuilder::new(batch.num_rows());
        for run in &self.runs {
            mask.append_n(run.start as usize - mask.len(), false);
            mask.append_n(run.len(), true);
        }
        mask.append_n(batch.num_rows() - mask.len(), false);
        Ok(filter_record_batch(batch, &BooleanArray::new(mask.finish(), None))?)
    }
}

impl FromIterator<Range<u32>> for Runs {
    fn from_iter<I: IntoIterator<Item = Range<u32>>>(runs: I) -> Self {
        let mut all = Self::default();
        runs.into_iter().for_each(|run| all.push(run));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, RecordBatchOptions};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    /// Row `i` holds `i`.
    fn batch(rows: i64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("i", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(0..rows))]).unwrap()
    }

    fn check(runs: &[(u32, u32)]) {
        let runs: Vec<Range<u32>> = runs.iter().map(|(from, to)| *from..*to).collect();
        let expected: Vec<i64> = runs.iter().flat_map(Clone::clone).map(i64::from).collect();
        let runs = Runs::from_iter(runs);
        assert_eq!(runs.len(), expected.len());
        let got = runs.of(&batch(100)).unwrap();
        assert_eq!(got.column(0).as_primitive::<Int64Type>().values(), expected.as_slice());
    }

    #[test]
    fn the_rows_are_those_of_the_runs_however_they_are_copied() {
        check(&[]);
        check(&[(0, 100)]);
        check(&[(3, 7)]);
        check(&[(0, 40), (40, 100)]);
        check(&[(0, 40), (41, 100)]);
        check(&[(1, 30), (31, 60), (62, 99)]);
        check(&[(0, 1), (2, 3), (50, 51), (99, 100)]);
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let options = RecordBatchOptions::new().with_row_count(Some(9));
        let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        assert_eq!(Runs::from_iter([0..4, 5..9]).of(&empty).unwrap().num_rows(), 8);
    }
}
