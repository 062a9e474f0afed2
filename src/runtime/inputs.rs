//! The splits a job reads: opens them, finds those that turn up while it runs, and holds what each has to say.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::job::JobOptions;
use super::pool::{TaskPool, panicked};
use super::reader::{FromSplit, Skip, read_split};
use super::recovery::SequencerFacts;
use crate::connectors::{Boundedness, Notes, Position, ReadOptions, Split, SplitReader};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::graph::SourceSpec;
use crate::operators::prepare::Prepare;
use crate::operators::sequence::{Sequencer, SplitProgress, SplitRejects};
use crate::watermark::WatermarkSpec;

/// One split as the sequencer task sees it.
pub(super) struct SplitInput {
    /// Index of its source.
    pub source: usize,
    pub name: Arc<str>,
    pub from: mpsc::Receiver<Result<FromSplit>>,
    pub watermark: Option<WatermarkSpec>,
    pub max_ahead_us: i64,
    /// When it last had rows, by the clock.
    pub spoke_at_us: i64,
    pub ended: bool,
}

/// One source of the job.
struct SourceInput {
    prepare: Arc<Prepare>,
    opened: BTreeSet<Arc<str>>,
    rejected: u64,
    /// What was wrong with the first row rejected.
    first_reject: Option<String>,
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
    pub splits: Vec<SplitInput>,
}

impl Inputs {
    /// Opens every split, those of a checkpoint where they stood. The splits of a bounded source are fixed when its job
    /// starts (T6); of a live one those that are new are read from their beginning.
    ///
    /// # Errors
    /// What a source says.
    pub async fn open(
        prepares: Vec<Arc<Prepare>>,
        options: &JobOptions,
        facts: Option<&SequencerFacts>,
        sequencer: &mut Sequencer,
    ) -> Result<Self> {
        let new = |prepare| SourceInput {
            prepare,
            opened: BTreeSet::new(),
            rejected: 0,
            first_reject: None,
            notes: Notes::default(),
        };
        let sources = prepares.into_iter().map(new).collect::<Vec<_>>();
        let mut inputs = Self { sources, options: options.clone(), readers: JoinSet::new(), splits: Vec::new() };
        for source in 0..inputs.sources.len() {
            let known = facts.into_iter().flat_map(|facts| &facts.sequencer.splits);
            for state in known.filter(|split| split.source == source) {
                inputs.open_split(source, state.clone(), sequencer).await?;
            }
            if facts.is_none() || inputs.is_live(source) {
                let splits = inputs.spec(source).source.splits().await?;
                inputs.open_new(source, splits, sequencer).await?;
            }
        }
        if let Some(facts) = facts {
            sequencer.restore(facts.sequencer.seq, facts.sequencer.w);
        }
        Ok(inputs)
    }

    /// Opens the splits of live sources that have turned up since it last looked, each at its beginning (C37). How many.
    ///
    /// # Errors
    /// What a source says, unless it merely cannot be reached now: then the next look may succeed.
    pub async fn discover(&mut self, sequencer: &mut Sequencer) -> Result<usize> {
        let mut found = 0;
        for source in (0..self.sources.len()).filter(|source| self.is_live(*source)).collect::<Vec<_>>() {
            match self.spec(source).source.splits().await {
                Ok(splits) => found += self.open_new(source, splits, sequencer).await?,
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(source = self.spec(source).name, "could not look for new splits: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
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
        source.rejected += rejects.rejects.len() as u64;
        if source.first_reject.is_none() {
            source.first_reject =
                rejects.rejects.first().map(|first| format!("{}: {}: {}", first.place, first.message, first.raw));
        }
        let spec = source.prepare.spec();
        match spec.rejects_max {
            Some(max) if source.rejected > max => Err(Error::new(
                ErrorKind::Data,
                format!(
                    "more rows of source `{}` were rejected than max_rejects=`{max}` allows, the first at {}",
                    spec.name,
                    source.first_reject.as_deref().unwrap_or_default()
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

    /// What is known of each source.
    pub fn progress(&self) -> Vec<SourceProgress> {
        let progress = |source: &SourceInput| SourceProgress {
            source: source.prepare.spec().name.clone(),
            rejected: source.rejected,
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

    fn is_live(&self, source: usize) -> bool {
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
        let ordinal = self.sources[source].opened.len() as i32;
        let (to, from) = mpsc::channel(4);
        let max_ahead_us = spec.max_ahead_us;
        let watermark = spec.watermark.as_ref().map(|plan| plan.spec);
        let spoke_at_us = self.options.clock.now_us();
        let ended = state.ended;
        if !ended {
            let reader = self.open_reader(spec, &state).await?;
            let (prepare, clock) = (Arc::clone(&prepare), Arc::clone(&self.options.clock));
            let (parallelism, skip) = (self.options.workers, Skip { next_offset: state.next_offset });
            self.readers.spawn(read_split(reader, ordinal, skip, prepare, clock, parallelism, to));
        }
        let index = sequencer.restore_split(state, watermark.as_ref());
        debug_assert_eq!(index, self.splits.len());
        self.sources[source].opened.insert(Arc::clone(&name));
        self.splits.push(SplitInput { source, name, from, watermark, max_ahead_us, spoke_at_us, ended });
        Ok(())
    }

    async fn open_reader(&self, spec: &SourceSpec, state: &SplitProgress) -> Result<Box<dyn SplitReader>> {
        let read = ReadOptions {
            projection: spec.projection.clone(),
            batch_rows: self.options.batch_rows,
            pool: Arc::new(TaskPool::new(self.options.workers)),
        };
        let split = Split { name: state.split.as_str().into() };
        // Where nothing can be read again, the rows that are in the order are gone.
        let gone = || Position { offset: state.next_offset, token: String::new() };
        let position = match spec.source.replayable() {
            true => state.position.clone(),
            false => (state.next_offset > 0).then(gone),
        };
        spec.source.open(&split, position.as_ref(), read).await
    }
}
