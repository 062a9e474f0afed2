//! What a view's job writes: its epochs, each with the state to go on from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionContext, col, lit};

use crate::checkpoint::{JobRecord, StateFiles, ViewPaths};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::operators::failed::FailedResult;
use crate::operators::ledger::WindowStatus;
use crate::operators::sequence::SplitRejects;
use crate::plan::from_datafusion;
use crate::results::schema::{rejects_schema, window_status_schema};
use crate::results::{Epoch, Read, SharedWriter};
use crate::runtime::{EpochOutput, ResultSink};
use crate::storage::Storage;
use crate::time::format_us;
use crate::watermark;
use crate::window::Window;

/// Ends of windows that are looked up one by one: as many as DataFusion compares with a file's statistics.
const LISTED_MAX: usize = 20;

/// Writes a view's epochs to its store.
pub(super) struct ViewSink {
    /// Reads what is stored of windows.
    pub context: SessionContext,
    pub writer: SharedWriter,
    pub storage: Storage,
    pub paths: ViewPaths,
    pub clock: Arc<dyn Clock>,
    /// The view's name.
    pub view: String,
    /// Names of its sources, in the order of their nodes.
    pub names: Vec<String>,
    /// See [`JobRecord::definition`].
    pub definition: BTreeMap<String, String>,
    /// Where the state lies.
    pub files: StateFiles,
}

#[async_trait]
impl ResultSink for ViewSink {
    async fn versions(&mut self, _batches: Vec<RecordBatch>) -> Result<()> {
        Err(Error::internal("a view's versions came outside an epoch"))
    }

    fn wants_versions_at_once(&self) -> bool {
        false
    }

    fn keeps_state(&self) -> bool {
        true
    }

    async fn epoch(&mut self, output: EpochOutput) -> Result<()> {
        let mut writer = self.writer.lock().await?;
        let now_us = self.clock.now_us();
        let mut rejects: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
        for split in &output.rejects {
            let name = self.names.get(split.source).cloned().unwrap_or_default();
            rejects.entry(name).or_default().push(reject_rows(split, now_us)?);
        }
        if let Some(source) = self.names.first().filter(|_| !output.failed.is_empty()) {
            rejects.entry(source.clone()).or_default().push(failed_rows(&self.view, &output.failed, now_us)?);
        }
        let windows = match output.windows.is_empty() {
            true => Vec::new(),
            false => vec![window_rows(&self.completed(output.windows).await?)?],
        };
        let number = writer.next_epoch();
        // After the end of the input there is nothing to go on with.
        let snapshot = output.snapshot.filter(|_| !output.ended);
        let name = snapshot.is_some().then(|| ViewPaths::state_name(number, writer.id()));
        let state = match (&name, snapshot) {
            (Some(name), Some(snapshot)) => Some(self.files.next(name, &snapshot)?),
            _ => None,
        };
        let job = JobRecord {
            definition: self.definition.clone(),
            ended: output.ended,
            state: name.clone(),
            state_bytes: state.as_ref().map_or(0, |state| state.files.bytes()),
        };
        let job = serde_json::to_value(job).map_err(|e| Error::internal("a job's record").with_source(e))?;
        let file = name.zip(state.as_ref()).map(|(name, state)| (self.paths.states().join(name), state.bytes.clone()));
        let epoch = Epoch {
            number,
            versions: output.versions,
            late: output.late,
            rejects,
            windows,
            runs: Vec::new(),
            counts: output.counts,
            job,
            files: file.into_iter().collect(),
        };
        writer.commit(epoch).await?;
        let before = std::mem::take(&mut self.files);
        let obsolete = match state {
            Some(state) => {
                self.files = state.files;
                state.obsolete
            }
            None => before.names().map(str::to_owned).collect(),
        };
        if output.last {
            writer.end().await?;
        }
        drop(writer);
        self.collect(obsolete).await;
        Ok(())
    }
}

impl Drop for ViewSink {
    fn drop(&mut self) {
        self.writer.abandon();
    }
}

impl ViewSink {
    /// Adds what is stored of windows that the job had forgotten.
    async fn completed(&self, mut windows: Vec<(Window, WindowStatus)>) -> Result<Vec<(Window, WindowStatus)>> {
        let ends: BTreeSet<i64> =
            windows.iter().filter(|(_, status)| status.partial).map(|(window, _)| window.end).collect();
        let (Some(first), Some(last)) = (ends.first().copied(), ends.last().copied()) else { return Ok(windows) };
        let bound = |us: i64| lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())));
        let stored = self.context.read_table(self.writer.reader().provider(Read::Windows)?).map_err(from_datafusion)?;
        // A few windows may lie years apart; of a list this short the files without any of them are not opened.
        let wanted = match ends.len() <= LISTED_MAX {
            true => col("window_end").in_list(ends.into_iter().map(bound).collect(), false),
            false => col("window_end").between(bound(first), bound(last)),
        };
        let stored = stored.filter(wanted).map_err(from_datafusion)?.collect().await.map_err(from_datafusion)?;
        let mut partial: HashMap<Window, &mut WindowStatus> =
            windows.iter_mut().filter(|(_, status)| status.partial).map(|(w, status)| (*w, status)).collect();
        for batch in &stored {
            let time =
                |name: &str| batch.column_by_name(name).and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
            let count = |name: &str| batch.column_by_name(name).and_then(|c| c.as_primitive_opt::<Int64Type>());
            let missing = || Error::internal("stored windows without their columns");
            let (start, end) = (time("window_start").ok_or_else(missing)?, time("window_end").ok_or_else(missing)?);
            let counts = ["on_time", "late", "refused_late", "refused_expired"].map(count);
            for row in 0..batch.num_rows() {
                let window = Window { start: start.value(row), end: end.value(row) };
                let Some(status) = partial.get_mut(&window) else { continue };
                let [on_time, late, refused_late, refused_expired] =
                    counts.map(|column| column.map_or(0, |column| column.value(row).max(0) as u64));
                status.counts.on_time += on_time;
                status.counts.late += late;
                status.counts.refused_late += refused_late;
                status.counts.refused_expired += refused_expired;
                status.w_at_close = time("w_at_close").filter(|w| w.is_valid(row)).map(|w| w.value(row));
                let flagged = batch.column_by_name("needs_recompute").and_then(|c| c.as_boolean_opt());
                status.needs_recompute |= flagged.is_some_and(|flag| flag.value(row));
            }
        }
        Ok(windows)
    }

    /// Deletes state files that the epoch decided last does not need. What cannot be deleted now is when the view is
    /// opened the next time.
    async fn collect(&self, obsolete: Vec<String>) {
        for name in obsolete {
            if let Err(error) = self.storage.delete(&self.paths.states().join(name)).await {
                tracing::warn!("an old state file was left behind: {error}");
            }
        }
    }
}

fn reject_rows(split: &SplitRejects, now_us: i64) -> Result<RecordBatch> {
    let n = split.rejects.len();
    let text = |value: &dyn Fn(&crate::connectors::Reject) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(split.rejects.iter().map(value)))
    };
    let columns: Vec<ArrayRef> = vec![
        text(&|_| split.split.to_string()),
        Arc::new(Int64Array::from_iter_values(split.rejects.iter().map(|reject| reject.offset))),
        text(&|reject| reject.reason.as_str().to_owned()),
        text(&|reject| reject.message.clone()),
        text(&|reject| reject.place.clone()),
        text(&|reject| reject.raw.clone()),
        Arc::new(TimestampMicrosecondArray::from_value(now_us, n).with_timezone("UTC")),
    ];
    RecordBatch::try_new(rejects_schema(), columns)
        .map_err(|e| Error::internal("rejected rows do not fit their schema").with_source(e))
}

/// Results of `view` that could not be computed, as rejects. They have no offset; a number made of the result stands there, the
/// same whenever the same result fails.
pub(super) fn failed_rows(view: &str, failed: &[FailedResult], now_us: i64) -> Result<RecordBatch> {
    let text = |value: &dyn Fn(&FailedResult) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(failed.iter().map(value)))
    };
    let number = |result: &FailedResult| {
        let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(result.raw.as_bytes()).as_bytes();
        i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX
    };
    let columns: Vec<ArrayRef> = vec![
        text(&|_| view.to_owned()),
        Arc::new(Int64Array::from_iter_values(failed.iter().map(number))),
        text(&|result| result.reason.as_str().to_owned()),
        text(&|result| result.message.clone()),
        text(&|result| format!("{view}, window_end {}", format_us(result.window_end))),
        text(&|result| result.raw.clone()),
        Arc::new(TimestampMicrosecondArray::from_value(now_us, failed.len()).with_timezone("UTC")),
    ];
    RecordBatch::try_new(rejects_schema(), columns)
        .map_err(|e| Error::internal("failed results do not fit their schema").with_source(e))
}

fn window_rows(windows: &[(Window, WindowStatus)]) -> Result<RecordBatch> {
    let time = |us: Vec<Option<i64>>| -> ArrayRef {
        // The end of input is no instant.
        let us = us.into_iter().map(|us| us.filter(|us| *us != watermark::END));
        Arc::new(us.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
    };
    let flag = |value: &dyn Fn(&WindowStatus) -> bool| -> ArrayRef {
        Arc::new(windows.iter().map(|(_, status)| Some(value(status))).collect::<BooleanArray>())
    };
    let count = |value: &dyn Fn(&WindowStatus) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(windows.iter().map(|(_, status)| value(status) as i64)))
    };
    let columns: Vec<ArrayRef> = vec![
        time(windows.iter().map(|(window, _)| Some(window.start)).collect()),
        time(windows.iter().map(|(window, _)| Some(window.end)).collect()),
        Arc::new(StringArray::from_iter_values(windows.iter().map(|(_, status)| status.state.as_str()))),
        flag(&|status| status.dirty),
        flag(&|_| false),
        flag(&|status| status.needs_recompute),
        flag(&|_| false),
        count(&|status| status.counts.on_time),
        count(&|status| status.counts.late),
        count(&|status| status.counts.refused_late),
        count(&|status| status.counts.refused_expired),
        time(windows.iter().map(|(_, status)| status.w_at_close).collect()),
        arrow::array::new_null_array(&arrow::datatypes::DataType::Utf8, windows.len()),
    ];
    RecordBatch::try_new(window_status_schema(), columns)
        .map_err(|e| Error::internal("window rows do not fit their schema").with_source(e))
}
