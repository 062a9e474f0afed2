//! What the store knows of the windows of a range: latest versions, status, and earlier runs.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::range::Ends;
use super::values::windows_of;
use crate::change::Reason;
use crate::error::{Error, Result};
use crate::operators::graph::Policy;
use crate::plan::from_datafusion;
use crate::results::{Read, ViewReader};
use crate::time::DAY_US;
use crate::watermark;
use crate::window::Window;

/// What is known of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether its job has met it.
    pub live_status: bool,
    /// Pairs taken, on time or late.
    pub taken: u64,
    /// Pairs refused as late.
    pub refused_late: u64,
    /// Pairs refused as expired.
    pub refused_expired: u64,
    /// Whether a FINALIZE has made it final.
    pub is_final: bool,
    /// Fingerprint of what the newest FINALIZE covered.
    pub final_coverage: Option<String>,
    /// Whether more rows have come since a run made it.
    pub newer_input: bool,
    /// Whether it waits for a run.
    pub needs_recompute: bool,
}

impl Known {
    /// Pairs refused.
    pub fn refused(&self) -> u64 {
        self.refused_late + self.refused_expired
    }
}

/// Reads one view's store.
pub struct Stored<'a> {
    /// The view.
    pub reader: &'a ViewReader,
    /// Where reads run.
    pub session: &'a SessionState,
}

impl Stored<'_> {
    /// The latest version of each identity whose window ends in `ends`, deleted ones too.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `Corrupt` from the store.
    pub async fn current(&self, ends: Ends) -> Result<Vec<RecordBatch>> {
        self.read(Read::Current, in_range("_window_end", ends)).await
    }

    /// What the live job said last of each result whose window ends in `ends`, whatever batch runs have made of it since.
    ///
    /// # Errors
    ///
    /// As [`Stored::current`].
    pub async fn live(&self, ends: Ends, identity: &[String]) -> Result<Vec<RecordBatch>> {
        let reasons = [Reason::Early, Reason::Initial, Reason::LateData].map(|reason| lit(reason.as_str()));
        let column = |name: &str| Expr::Column(datafusion::common::Column::new_unqualified(name));
        let context = SessionContext::new_with_state(self.session.clone());
        let read = || {
            let frame = context
                .read_table(self.reader.provider(Read::All).map_err(|e| DataFusionError::External(e.into()))?)?;
            let frame = frame.filter(column("_reason").in_list(reasons.to_vec(), false))?;
            let frame = match in_range("_window_end", ends) {
                Some(filter) => frame.filter(filter)?,
                None => frame,
            };
            let identity: Vec<Expr> = identity.iter().map(|name| column(name)).collect();
            let all = frame.schema().columns().into_iter().map(Expr::Column).collect();
            let newest = identity.iter().cloned().map(|column| column.sort(true, true));
            let newest = newest.chain([column("_version").sort(false, false)]).collect();
            frame.distinct_on(identity, all, Some(newest))?.filter(column("_deleted").is_false())
        };
        read().map_err(from_datafusion)?.collect().await.map_err(from_datafusion)
    }

    /// What is known of the windows that end in `ends`.
    ///
    /// # Errors
    ///
    /// As [`Stored::current`].
    pub async fn windows(&self, ends: Ends) -> Result<BTreeMap<Window, Known>> {
        let mut windows: BTreeMap<Window, Known> = BTreeMap::new();
        for batch in self.read(Read::Windows, in_range("window_end", ends)).await? {
            let number = |name: &str| column(&batch, name).map(|c| c.as_primitive::<Int64Type>().clone());
            let flag = |name: &str| column(&batch, name).map(|c| c.as_boolean().clone());
            let (on_time, late) = (number("on_time")?, number("late")?);
            let (refused_late, refused_expired) = (number("refused_late")?, number("refused_expired")?);
            let (newer, recompute) = (flag("newer_input")?, flag("needs_recompute")?);
            for (row, window) in windows_of(&batch, 0, 1).enumerate() {
                let known = windows.entry(window).or_default();
                known.live_status = true;
                known.taken = (on_time.value(row) + late.value(row)).unsigned_abs();
                known.refused_late = refused_late.value(row).unsigned_abs();
                known.refused_expired = refused_expired.value(row).unsigned_abs();
                known.newer_input = newer.value(row);
                known.needs_recompute = recompute.value(row);
            }
        }
        for batch in self.read(Read::Runs, in_range("window_end", ends)).await? {
            let is_final = column(&batch, "is_final")?.as_boolean().clone();
            let coverage = column(&batch, "final_coverage")?;
            let coverage = arrow::compute::cast(coverage, &arrow::datatypes::DataType::Utf8)
                .map_err(|e| Error::internal("cannot read the runs of a view").with_source(e))?;
            let coverage = coverage.as_string::<i32>();
            for (row, window) in windows_of(&batch, 0, 1).enumerate() {
                let known = windows.entry(window).or_default();
                known.is_final = is_final.value(row);
                known.final_coverage = coverage.is_valid(row).then(|| coverage.value(row).to_owned());
            }
        }
        Ok(windows)
    }

    /// Up to which watermark the view was published when its job, which runs no more, last spoke.
    ///
    /// # Errors
    ///
    /// As [`Stored::current`].
    pub async fn watermark(&self, policy: &Policy) -> Result<i64> {
        let gone = col("state").eq(lit("expired")).or(col("state").eq(lit("final")));
        let mut w = watermark::NONE;
        for batch in self.read(Read::Windows, Some(gone)).await? {
            let ends = column(&batch, "window_end")?.as_primitive::<TimestampMicrosecondType>();
            let last = arrow::compute::max(ends).unwrap_or(watermark::NONE);
            w = w.max(super::range::settles_at(policy, last));
        }
        Ok(w)
    }

    /// The last end of windows that are final.
    ///
    /// # Errors
    ///
    /// As [`Stored::current`].
    pub async fn final_to(&self) -> Result<Option<i64>> {
        let mut last = None;
        for batch in self.read(Read::Runs, Some(col("is_final"))).await? {
            last = last.max(windows_of(&batch, 0, 1).map(|window| window.end).max());
        }
        Ok(last)
    }

    /// Whether a window that ends in `ends` is known and not final.
    ///
    /// # Errors
    ///
    /// As [`Stored::current`].
    pub async fn any_to_finalize(&self, ends: Ends) -> Result<bool> {
        Ok(self.windows(ends).await?.values().any(|known| !known.is_final))
    }

    /// Ranges that hold the windows that wait for a run and end by `settled`.
    ///
    /// # Errors
    ///
    /// As [`Stored::current`].
    pub async fn queued(&self, settled: i64) -> Result<Vec<Ends>> {
        let windows = self.windows(Ends::ALL.up_to(settled)).await?;
        let mut ends: Vec<i64> =
            windows.iter().filter(|(_, known)| known.needs_recompute).map(|(window, _)| window.end).collect();
        ends.sort_unstable();
        let mut ranges: Vec<Ends> = Vec::new();
        for end in ends {
            match ranges.last_mut().filter(|range| end.saturating_sub(range.to) <= DAY_US) {
                Some(range) => range.to = end,
                None => ranges.push(Ends { after: end - 1, to: end }),
            }
        }
        Ok(ranges)
    }

    async fn read(&self, read: Read, filter: Option<Expr>) -> Result<Vec<RecordBatch>> {
        let context = SessionContext::new_with_state(self.session.clone());
        let frame = context.read_table(self.reader.provider(read)?);
        let frame = match filter {
            Some(filter) => frame.and_then(|frame| frame.filter(filter)),
            None => frame,
        };
        frame.map_err(from_datafusion)?.collect().await.map_err(from_datafusion)
    }
}

fn in_range(column: &str, ends: Ends) -> Option<Expr> {
    let instant = |us| lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())));
    let end = || Expr::Column(datafusion::common::Column::new_unqualified(column));
    (ends != Ends::ALL).then(|| end().gt(instant(ends.after)).and(end().lt_eq(instant(ends.to))))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a arrow::array::ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::internal(format!("a stored row lacks column=`{name}`")))
}
