//! Finding the bad rows of a batch that a decoder refused as a whole.

use std::ops::Range;

use arrow::array::RecordBatch;

/// Records that decoded, in runs, and those that did not.
#[derive(Debug, Default)]
pub(super) struct Isolated {
    /// Ascending runs of records with one row each.
    pub(super) good: Vec<(Range<usize>, RecordBatch)>,
    /// Records that fail on their own, ascending, with what the decoder said.
    pub(super) bad: Vec<(usize, String)>,
}

/// Decodes `records`, and where that fails each half of them, down to single ones. `decode` must give one row for each
/// record or fail. One bad row among `n` costs about two decodes of the whole; no bad row costs nothing.
pub(super) fn isolate(
    records: Range<usize>,
    decode: &mut dyn FnMut(Range<usize>) -> Result<RecordBatch, String>,
    into: &mut Isolated,
) {
    if records.is_empty() {
        return;
    }
    match decode(records.clone()) {
        Ok(batch) => into.good.push((records, batch)),
        Err(message) if records.len() == 1 => into.bad.push((records.start, message)),
        Err(_) => {
            let middle = records.start + records.len() / 2;
            isolate(records.start..middle, decode, into);
            isolate(middle..records.end, decode, into);
        }
    }
}
