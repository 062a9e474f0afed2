//! The splits a job reads: opens them, finds those that turn up while it runs, and holds what each has to say.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::job::JobOptions;
use super::pool::{TaskPool, panicked};
use super::reader::{FromSplit, Skip, read_split};
use super::recovery::{Recovered, Rejected, SequencerFacts, covered_batch};
use crate::connectors::{Boundedness, Coverage, Notes, Position, ReadOptions, Source, Split, SplitReader};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::graph::SourceSpec;
use crate::operators::prepare::Prepare;
use crate::operators::sequence::{Sequencer, SplitProgress, SplitRejects};
use crate::watermark::WatermarkSpec;

/// Bytes of rows that a split may be ahead of W (T7).
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Splits of a job that are read at once. Most systems let a process open 1,024 files.
const SPLITS_MAX: usize = 900;

/// One split as the sequencer task sees it.
pub(super) struct SplitInput {
    /// Index of its source.
    pub source: usize,
    pub name: Arc<str>,
    from: mpsc::Receiver<Result<FromSplit>>,
    /// What it said while it was paused, if that was more than that it has nothing.
    held: Option<Result<FromSplit>>,
    pub watermark: Option<WatermarkSpec>,
    pub max_ahead_us: i64,
    /// Its batches that are ahead of W: the W of each and its bytes.
    ahead: VecDeque<(i64, u64)>,
    ahead_bytes: u64,
    /// When it last had rows, by the clock.
    spoke_at_us: i64,
    /// For how long it had had nothing when it was asked last, µs.
    pub silent_us: i64,
    pub ended: bool,
}

impl SplitInput {
    /// What it says next. One that is paused is heard only when it has nothing, which keeps nobody busy and lets it be idle.
    pub fn poll_next(&mut self, paused: bool, cx: &mut Context<'_>) -> Poll<Option<Result<FromSplit>>> {
        match (paused, self.held.take()) {
            (false, Some(held)) => return Poll::Ready(Some(held)),
            (true, Some(held)) => self.held = Some(held),
            (_, None) => match self.from.poll_recv(cx) {
                Poll::Ready(Some(message)) if paused && !matches!(message, Ok(FromSplit::Nothing { .. })) => {
                    self.held = Some(message);
                }
                said => return said,
            },
        }
        Poll::Pending
    }

    /// What it has said already.
    pub fn try_next(&mut self) -> Option<Result<FromSplit>> {
        self.held.take().or_else(|| self.from.try_recv().ok())
    }

    /// It had rows that brought its own watermark to `w`.
    pub fn on_rows(&mut self, w: i64, bytes: u64, now_us: i64) {
        (self.spoke_at_us, self.silent_us) = (now_us, 0);
        self.ahead_bytes += bytes;
        match self.ahead.back_mut() {
            Some(last) if last.0 == w => last.1 += bytes,
            _ => self.ahead.push_back((w, bytes)),
        }
    }

    /// It was asked at `at_us` and had nothing.
    pub fn on_nothing(&mut self, at_us: i64) {
        self.silent_us = at_us.saturating_sub(self.spoke_at_us);
    }

    /// Whether more of its rows are ahead of `w` than may be.
    pub fn has_too_much_ahead(&mut self, w: i64) -> bool {
        while let Some((_, bytes)) = self.ahead.pop_front_if(|(said, _)| *said <= w) {
            self.ahead_bytes -= bytes;
        }
        self.ahead_bytes > AHEAD_BYTES_MAX
    }
}

/// One source of the job.
struct SourceInput {
    prepare: Arc<Prepare>,
    /// What is read: a bounded source as it was when its job started.
    source: Arc<dyn Source>,
    /// What that was, where the source can tell.
    covered: Option<Coverage>,
    opened: BTreeSet<Arc<str>>,
    rejected: Rejected,
    notes: Notes,
}

/// What a job knows of one of its sources, as of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceProgress {
    /// The source's name.
    pub source: String,
    /// Rows rejected.
    pub rejected: u64,
    /// What happened while reading.
    pub notes: Notes,
}

/// All splits of a job, with the tasks that read them.
pub(super) struct Inputs {
    sources: Vec<SourceInput>,
    options: JobOptions,
    /// They end with the job: whoever drops this stops them.
    readers: JoinSet<()>,
    /// The look for new splits that is under way, if one is.
    pub looks: JoinSet<Vec<Listing>>,
    pub splits: Vec<SplitInput>,
}

/// The splits of a live source, by its index, as they are now.
pub(super) type Listing = (usize, Result<Vec<Split>>);

impl Inputs {
    /// Opens every split, those of a checkpoint where they stood. The splits of a bounded source are fixed when its job
    /// starts (T6); of a live one those that are new are read from their beginning.
    ///
    /// # Errors
    /// What a source says.
    pub async fn open(
        prepares: Vec<Arc<Prepare>>,
        options: &JobOptions,
        (facts, recovered): (Option<&SequencerFacts>, Option<&Recovered>),
        sequencer: &mut Sequencer,
    ) -> Result<Self> {
        let mut sources = Vec::with_capacity(prepares.len());
        for (index, prepare) in prepares.into_iter().enumerate() {
            let covered = recovered.map(|recovered| recovered.covered(index)).transpose()?.flatten();
            let (source, covered) = as_at_start(prepare.spec(), facts.is_some(), covered).await?;
            let rejected = facts.and_then(|facts| facts.rejected.get(index)).cloned().unwrap_or_default();
            let (opened, notes) = (BTreeSet::new(), Notes::default());
            sources.push(SourceInput { prepare, source, covered, opened, rejected, notes });
        }
        let mut inputs = Self {
            sources,
            options: options.clone(),
            readers: JoinSet::new(),
            looks: JoinSet::new(),
            splits: Vec::new(),
        };
        for source in 0..inputs.sources.len() {
            let known = facts.into_iter().flat_map(|facts| &facts.sequencer.splits);
            for state in known.filter(|split| split.source == source) {
                inputs.open_split(source, state.clone(), sequencer).await?;
            }
            if facts.is_none() || inputs.is_live(source) {
                let splits = inputs.sources[source].source.splits().await?;
                inputs.open_new(source, splits, sequencer).await?;
            }
        }
        if let Some(facts) = facts {
            sequencer.restore(facts.sequencer.seq, facts.sequencer.w);
        }
        Ok(inputs)
    }

    /// Looks for new splits beside everything else, unless a look is under way: a listing may take long. What it finds
    /// is for [`Inputs::on_listed`].
    pub fn look(&mut self) {
        if self.looks.is_empty() {
            self.looks.spawn(list(self.live()));
        }
    }

    /// Looks for new splits and opens them. How many.
    ///
    /// # Errors
    /// Those of [`Inputs::on_listed`].
    pub async fn discover(&mut self, sequencer: &mut Sequencer) -> Result<usize> {
        let listed = list(self.live()).await;
        self.on_listed(listed, sequencer).await
    }

    /// Opens the splits of live sources that have turned up since it last looked, each at its beginning (C37). How many.
    ///
    /// # Errors
    /// What a source says, unless it merely cannot be reached now: then the next look may succeed.
    pub async fn on_listed(&mut self, listed: Vec<Listing>, sequencer: &mut Sequencer) -> Result<usize> {
        let mut found = 0;
        for (source, splits) in listed {
            match splits {
                Ok(splits) => found += self.open_new(source, splits, sequencer).await?,
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(source = self.spec(source).name, "could not look for new splits: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn live(&self) -> Vec<(usize, Arc<dyn Source>)> {
        let live = (0..self.sources.len()).filter(|source| self.is_live(*source));
        live.map(|source| (source, Arc::clone(&self.spec(source).source))).collect()
    }

    /// Whether some source goes on by itself.
    pub fn any_live(&self) -> bool {
        (0..self.sources.len()).any(|source| self.is_live(source))
    }

    /// Whether some live source has no split yet, so that the end of all splits is not the end of the input.
    pub fn is_waiting_for_first(&self) -> bool {
        let empty = |source: &SourceInput| source.opened.is_empty();
        self.sources.iter().enumerate().any(|(i, source)| self.is_live(i) && empty(source))
    }

    /// A source as the view reads it.
    pub fn spec(&self, source: usize) -> &SourceSpec {
        self.sources[source].prepare.spec()
    }

    /// Counts rejected rows.
    ///
    /// # Errors
    /// `Data` once there are more of them than the source allows.
    pub fn on_rejects(&mut self, rejects: &SplitRejects) -> Result<()> {
        let source = &mut self.sources[rejects.source];
        source.rejected.rows += rejects.rejects.len() as u64;
        if source.rejected.first.is_none() {
            source.rejected.first =
                rejects.rejects.first().map(|first| format!("{}: {}: {}", first.place, first.message, first.raw));
        }
        let spec = source.prepare.spec();
        match spec.rejects_max {
            Some(max) if source.rejected.rows > max => Err(Error::new(
                ErrorKind::Data,
                format!(
                    "more rows of source `{}` were rejected than max_rejects=`{max}` allows, the first at {}",
                    spec.name,
                    source.rejected.first.as_deref().unwrap_or_default()
                ),
            )
            .with_hint(format!(
                "SELECT * FROM {}$rejects shows them; repair the input or raise max_rejects",
                spec.name
            ))),
            _ => Ok(()),
        }
    }

    /// Counts what happened while reading `split`.
    pub fn on_notes(&mut self, split: usize, notes: Notes) {
        self.sources[self.splits[split].source].notes += notes;
    }

    /// What was rejected of each source so far, before a restart too.
    pub fn rejected(&self) -> Vec<Rejected> {
        self.sources.iter().map(|source| source.rejected.clone()).collect()
    }

    /// What each bounded source had when the job started, to be kept in its checkpoints.
    ///
    /// # Errors
    /// `Internal` only.
    pub fn covered(&self) -> Result<Vec<(String, RecordBatch)>> {
        let covered = self.sources.iter().enumerate().filter_map(|(i, source)| Some((i, source.covered.as_ref()?)));
        covered.map(|(i, coverage)| covered_batch(i, coverage)).collect()
    }

    /// What is known of each source.
    pub fn progress(&self) -> Vec<SourceProgress> {
        let progress = |source: &SourceInput| SourceProgress {
            source: source.prepare.spec().name.clone(),
            rejected: source.rejected.rows,
            notes: source.notes,
        };
        self.sources.iter().map(progress).collect()
    }

    /// Why a reader went away without an end.
    pub async fn lost_reader(&mut self) -> Error {
        // Those that ended as they should are joined first, or not at all.
        for _ in 0..=self.splits.iter().filter(|split| split.ended).count() {
            if let Some(Err(error)) = self.readers.join_next().await {
                return panicked("reading", error);
            }
        }
        Error::internal("a reader has ended without an end")
    }

    /// Whether a source may have rows for ever.
    pub fn is_live(&self, source: usize) -> bool {
        self.spec(source).boundedness == Boundedness::Live
    }

    async fn open_new(&mut self, source: usize, splits: Vec<Split>, sequencer: &mut Sequencer) -> Result<usize> {
        let new = splits.into_iter().filter(|split| !self.sources[source].opened.contains(&split.name));
        let new = new.collect::<Vec<_>>();
        for split in &new {
            self.open_split(source, SplitProgress::new(source, &split.name), sequencer).await?;
        }
        Ok(new.len())
    }

    /// Opens a split where it stood. One that has ended is known and not read.
    async fn open_split(&mut self, source: usize, state: SplitProgress, sequencer: &mut Sequencer) -> Result<()> {
        let prepare = Arc::clone(&self.sources[source].prepare);
        let spec = prepare.spec();
        let name: Arc<str> = state.split.as_str().into();
        let (to, from) = mpsc::channel(4);
        let max_ahead_us = spec.max_ahead_us;
        let watermark = spec.watermark.as_ref().map(|plan| plan.spec);
        let ended = state.ended;
        if !ended {
            self.check_open(spec)?;
            let reader = self.open_reader(source, &state).await?;
            let (prepare, clock) = (Arc::clone(&prepare), Arc::clone(&self.options.clock));
            let (parallelism, skip) = (self.options.workers, Skip { next_offset: state.next_offset });
            self.readers.spawn(read_split(reader, Arc::clone(&name), skip, prepare, clock, parallelism, to));
        }
        let index = sequencer.restore_split(state, watermark.as_ref());
        debug_assert_eq!(index, self.splits.len());
        self.sources[source].opened.insert(Arc::clone(&name));
        self.splits.push(SplitInput {
            source,
            name,
            from,
            held: None,
            watermark,
            max_ahead_us,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            spoke_at_us: self.options.clock.now_us(),
            silent_us: 0,
            ended,
        });
        Ok(())
    }

    /// Refuses one split more than can be read at once: each has a file of its own open and rows waiting.
    fn check_open(&self, spec: &SourceSpec) -> Result<()> {
        if self.splits.iter().filter(|split| !split.ended).count() < SPLITS_MAX {
            return Ok(());
        }
        let message = format!("source `{}` has more splits than can be read at once, max=`{SPLITS_MAX}`", spec.name);
        Err(Error::unsupported(message)
            .with_hint("with split = 'all' the files of a folder are read one after the other, in name order"))
    }

    async fn open_reader(&self, source: usize, state: &SplitProgress) -> Result<Box<dyn SplitReader>> {
        let (spec, source) = (self.spec(source), &self.sources[source].source);
        let read = ReadOptions {
            projection: spec.projection.clone(),
            batch_rows: self.options.batch_rows,
            pool: Arc::new(TaskPool::new(self.options.workers)),
        };
        let split = Split { name: state.split.as_str().into() };
        // Where nothing can be read again, the rows that are in the order are gone.
        let gone = || Position { offset: state.next_offset, token: String::new() };
        let position = match source.replayable() {
            true => state.position.clone(),
            false => (state.next_offset > 0).then(gone),
        };
        source.open(&split, position.as_ref(), read).await
    }
}

/// What a job reads of a source, and what that covers: of a bounded one, as it was when the job started (T6), which a job
/// that goes on has `kept`.
async fn as_at_start(
    spec: &SourceSpec,
    goes_on: bool,
    kept: Option<Coverage>,
) -> Result<(Arc<dyn Source>, Option<Coverage>)> {
    let as_it_is = Arc::clone(&spec.source);
    if spec.boundedness == Boundedness::Live {
        return Ok((as_it_is, None));
    }
    if goes_on {
        let covering = kept.as_ref().map(|coverage| spec.source.covering(coverage)).transpose()?.flatten();
        return Ok((covering.unwrap_or(as_it_is), kept));
    }
    // A bounded source without splits is an error that it tells itself.
    spec.source.splits().await?;
    Ok(match spec.source.pinned().await? {
        Some(pinned) => (pinned.source, Some(pinned.coverage)),
        None => (as_it_is, None),
    })
}

async fn list(sources: Vec<(usize, Arc<dyn Source>)>) -> Vec<Listing> {
    let mut listed = Vec::with_capacity(sources.len());
    for (index, source) in sources {
        listed.push((index, source.splits().await));
    }
    listed
}
