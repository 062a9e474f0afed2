//! Lines of a [`Ledger`](super::Ledger) as a record batch, and back: what a checkpoint keeps of them.
//!
//! ```text
//!  start  end  state    on_time  late  refused_late  refused_expired  w_at_close  dirty  needs_recompute
//!      0   10  1 closed      17     2             0                1          12  false  false
//! ```
//!
//! What a later batch says of a window replaces what an earlier one said. A window that has been forgotten since stays in
//! old batches; whoever reads them forgets it again.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt8Array, UInt64Array,
};
use arrow::datatypes::{ArrowPrimitiveType, Int64Type, UInt8Type, UInt64Type};

use super::{WindowState, WindowStatus};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::eval::failure;
use crate::operators::fate::WindowCounts;
use crate::window::Window;

type Line = (Window, WindowStatus);

/// `lines` as a batch.
///
/// # Errors
/// `Internal` only.
pub fn encode(lines: &[Line]) -> Result<RecordBatch> {
    let times = |of: fn(&Line) -> i64| Arc::new(Int64Array::from_iter_values(lines.iter().map(of))) as ArrayRef;
    let counts = |of: fn(&WindowCounts) -> u64| {
        Arc::new(UInt64Array::from_iter_values(lines.iter().map(|(_, status)| of(&status.counts)))) as ArrayRef
    };
    let flags = |of: fn(&WindowStatus) -> bool| {
        Arc::new(BooleanArray::from_iter(lines.iter().map(|(_, status)| Some(of(status))))) as ArrayRef
    };
    let states = UInt8Array::from_iter_values(lines.iter().map(|(_, status)| number_of(status.state)));
    let closings = Int64Array::from_iter(lines.iter().map(|(_, status)| status.w_at_close));
    RecordBatch::try_from_iter_with_nullable([
        ("start", times(|(window, _)| window.start), false),
        ("end", times(|(window, _)| window.end), false),
        ("state", Arc::new(states) as ArrayRef, false),
        ("on_time", counts(|counts| counts.on_time), false),
        ("late", counts(|counts| counts.late), false),
        ("refused_late", counts(|counts| counts.refused_late), false),
        ("refused_expired", counts(|counts| counts.refused_expired), false),
        ("w_at_close", Arc::new(closings), true),
        ("dirty", flags(|status| status.dirty), false),
        ("needs_recompute", flags(|status| status.needs_recompute), false),
    ])
    .map_err(|e| failure(e.into()))
}

/// The lines of a batch of [`encode`].
///
/// # Errors
/// `Corrupt` when it is none.
pub fn decode(rows: &RecordBatch) -> Result<Vec<Line>> {
    let (starts, ends) = (values::<Int64Type>(rows, 0)?, values::<Int64Type>(rows, 1)?);
    let states = values::<UInt8Type>(rows, 2)?;
    let counts = [3, 4, 5, 6].map(|column| values::<UInt64Type>(rows, column));
    let [on_time, late, refused_late, refused_expired] = counts;
    let (on_time, late) = (on_time?, late?);
    let (refused_late, refused_expired) = (refused_late?, refused_expired?);
    let closings = values::<Int64Type>(rows, 7)?;
    let (dirty, needs_recompute) = (flags(rows, 8)?, flags(rows, 9)?);
    let line = |row: usize| {
        let counts = WindowCounts {
            on_time: on_time.value(row),
            late: late.value(row),
            refused_late: refused_late.value(row),
            refused_expired: refused_expired.value(row),
        };
        let status = WindowStatus {
            state: state_of(states.value(row))?,
            counts,
            w_at_close: closings.is_valid(row).then(|| closings.value(row)),
            dirty: dirty.value(row),
            needs_recompute: needs_recompute.value(row),
            partial: false,
        };
        Ok((Window { start: starts.value(row), end: ends.value(row) }, status))
    };
    (0..rows.num_rows()).map(line).collect()
}

fn number_of(state: WindowState) -> u8 {
    match state {
        WindowState::Open => 0,
        WindowState::Closed => 1,
        WindowState::Expired => 2,
    }
}

fn state_of(number: u8) -> Result<WindowState> {
    match number {
        0 => Ok(WindowState::Open),
        1 => Ok(WindowState::Closed),
        2 => Ok(WindowState::Expired),
        _ => Err(corrupt()),
    }
}

fn values<T: ArrowPrimitiveType>(rows: &RecordBatch, column: usize) -> Result<&PrimitiveArray<T>> {
    rows.columns().get(column).and_then(|values| values.as_primitive_opt()).ok_or_else(corrupt)
}

fn flags(rows: &RecordBatch, column: usize) -> Result<&BooleanArray> {
    rows.columns().get(column).and_then(|values| values.as_boolean_opt()).ok_or_else(corrupt)
}

fn corrupt() -> Error {
    Error::new(ErrorKind::Corrupt, "the stored windows of a view are not of this version's shape")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines() -> impl Strategy<Value = Vec<Line>> {
        let counts = any::<(u64, u64, u64, u64)>();
        let line = (any::<(i64, i64)>(), 0..3_u8, counts, any::<Option<i64>>(), any::<(bool, bool)>());
        let line = line.prop_map(|((start, end), state, counts, w_at_close, (dirty, needs_recompute))| {
            let (on_time, late, refused_late, refused_expired) = counts;
            let counts = WindowCounts { on_time, late, refused_late, refused_expired };
            let state = state_of(state).unwrap();
            let status = WindowStatus { state, counts, w_at_close, dirty, needs_recompute, partial: false };
            (Window { start, end }, status)
        });
        proptest::collection::vec(line, 0..20)
    }

    proptest! {
        #[test]
        fn what_is_stored_is_what_is_read(lines in lines()) {
            prop_assert_eq!(decode(&encode(&lines).unwrap()).unwrap(), lines);
        }
    }

    #[test]
    fn other_columns_and_unknown_states_are_refused() {
        let status = WindowStatus {
            state: WindowState::Expired,
            counts: WindowCounts::default(),
            w_at_close: None,
            dirty: false,
            needs_recompute: false,
            partial: false,
        };
        let good = encode(&[(Window { start: 0, end: 10 }, status)]).unwrap();
        for column in 0..good.num_columns() {
            let mut fewer = good.clone();
            fewer.remove_column(column);
            assert_eq!(decode(&fewer).unwrap_err().kind(), ErrorKind::Corrupt, "without column {column}");
        }
        let mut columns = good.columns().to_vec();
        columns[2] = Arc::new(UInt8Array::from(vec![3]));
        let unknown = RecordBatch::try_new(good.schema(), columns).unwrap();
        assert_eq!(decode(&unknown).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
