//! What a statement says, before anything is looked up.
//!
//! Every tree here is plain data made from the text alone. Queries stay sqlparser syntax trees, which `plan` hands to
//! DataFusion; clauses of ours are types of ours. Positions are kept where a later stage may have to point at them.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;

use super::text::position_of;
use crate::connectors::Options;
use crate::error::Position;

/// A syntax tree with the place it starts at.
#[derive(Debug, Clone, PartialEq)]
pub struct Spanned<T> {
    /// The tree.
    pub node: T,
    /// Where it starts.
    pub position: Position,
}

/// A length of time as written: `INTERVAL '1 month'`, `INTERVAL '90' SECOND`. At most one of the parts is set in a
/// valid window size; which mixes are allowed is decided where it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    /// Months, with years and quarters as 12 and 3.
    pub months: i64,
    /// Days, with weeks as 7.
    pub days: i64,
    /// Everything from hours down, in microseconds.
    pub micros: i64,
}

/// One statement.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are few statements at a time, and each is moved a few times")]
pub enum Statement {
    /// `CREATE SOURCE | STREAM`, or Flink's `CREATE TABLE … WITH ('connector' = …)`.
    CreateSource(CreateSource),
    /// `CREATE MATERIALIZED VIEW v AS SELECT … clauses`.
    CreateMaterializedView(CreateMaterializedView),
    /// `CREATE VIEW v AS SELECT …`: a macro.
    CreateView {
        /// Name, folded to lower case unless quoted.
        name: String,
        /// `OR REPLACE`.
        or_replace: bool,
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// What the name stands for.
        query: Box<ast::Query>,
        /// The statement's own text, kept in the catalog.
        text: String,
    },
    /// `SELECT … clauses`, on its own.
    Select(StreamQuery),
    /// `SUBSCRIBE v [SINCE t | EPOCH n] [WITH SNAPSHOT]`.
    Subscribe {
        /// The view.
        view: Spanned<String>,
        /// Where to start; `None`: with what is committed next.
        since: Option<Since>,
        /// Whether the current rows come first.
        snapshot: bool,
    },
    /// `EXPLAIN [ANALYZE] [BATCH] statement`.
    Explain {
        /// Run it and report what happened.
        analyze: bool,
        /// Explain the batch run instead of what the statement does by itself.
        batch: bool,
        /// A SELECT, a CREATE VIEW of either kind, an INSERT, or what DataFusion does itself.
        statement: Box<Statement>,
    },
    /// `EXPLAIN [BATCH] v`: how a view was declared to be computed.
    ExplainView {
        /// Explain the batch run instead of the live one.
        batch: bool,
        /// The view.
        name: Spanned<String>,
    },
    /// `DESCRIBE name`.
    Describe {
        /// A source, view, table, or a part of a view such as `v$late`.
        name: Spanned<String>,
    },
    /// `SHOW CREATE [kind] name`.
    ShowCreate {
        /// A source or view.
        name: Spanned<String>,
    },
    /// `SHOW SOURCES | VIEWS | JOBS | SCHEDULES | WATERMARKS | LATENESS`. Other `SHOW`s are DataFusion's.
    Show(Show),
    /// `DROP SOURCE | MATERIALIZED VIEW | VIEW | TABLE | SCHEDULE [IF EXISTS] name`.
    Drop {
        /// What it must be.
        kind: DropKind,
        /// Whether its absence is no error.
        if_exists: bool,
        /// Its name.
        name: Spanned<String>,
    },
    /// `INSERT INTO source VALUES …` and `INSERT INTO source SELECT …`.
    Insert {
        /// The source, or a table that DataFusion keeps.
        source: Spanned<String>,
        /// Columns named, folded to lower case unless quoted; empty: all of them, in order.
        columns: Vec<String>,
        /// The rows.
        query: Box<ast::Query>,
        /// All of the statement, for a name that turns out to be a table of DataFusion's.
        statement: Box<DfStatement>,
    },
    /// `PAUSE v`.
    Pause {
        /// The view.
        view: Spanned<String>,
    },
    /// `RESUME v`.
    Resume {
        /// The view.
        view: Spanned<String>,
    },
    /// `FINALIZE | REPROCESS | PATCH | VERIFY v …`.
    Run(BatchRun),
    /// `ROLLBACK v FOR WINDOW …`.
    Rollback(Rollback),
    /// `CREATE SCHEDULE s …`.
    CreateSchedule(CreateSchedule),
    /// `PAUSE | RESUME | RUN SCHEDULE s`.
    Schedule {
        /// What is done to it.
        action: ScheduleAction,
        /// The schedule.
        name: Spanned<String>,
    },
    /// `CANCEL JOB id`.
    CancelJob {
        /// The job's id, as `SHOW JOBS` names it.
        job: Spanned<String>,
    },
    /// `OPTIMIZE v`, `VACUUM v`.
    Maintain {
        /// What is done to it.
        task: Maintenance,
        /// The view.
        view: Spanned<String>,
    },
    /// Anything DataFusion does itself: `SET`, `COPY`, `CREATE EXTERNAL TABLE`, `CREATE TABLE AS`, …
    Passthrough(Box<DfStatement>),
}

impl Statement {
    /// Where what it is about begins: its query, or the name it puts rows into.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Select(query) => Some(query.position),
            Self::CreateMaterializedView(create) => Some(create.query.position),
            Self::Explain { statement, .. } => statement.position(),
            Self::Insert { source, .. } => Some(source.position),
            Self::CreateSource(create) => Some(create.name.position),
            Self::Passthrough(statement) => match statement.as_ref() {
                DfStatement::Statement(statement) => position_of(ast::Spanned::span(statement.as_ref())),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it leaves sources, views, their jobs and their results as they are. What DataFusion does itself lives as long
    /// as the session.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Select(_)
                | Self::Subscribe { .. }
                | Self::Explain { .. }
                | Self::ExplainView { .. }
                | Self::Describe { .. }
                | Self::ShowCreate { .. }
                | Self::Show(_)
                | Self::Passthrough(_)
        )
    }
}

/// `CREATE SOURCE name ( columns, watermark ) WITH ( options )`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSource {
    /// Name, folded to lower case unless quoted.
    pub name: Spanned<String>,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Columns in order.
    pub columns: Vec<SourceColumn>,
    /// `WATERMARK FOR …`, if any.
    pub watermark: Option<Watermark>,
    /// `WITH (…)`, names in lower case.
    pub options: Options,
    /// `RESTART`, only with `OR REPLACE`: what was made from the old definition may go.
    pub restart: bool,
    /// The statement's own text, kept in the catalog.
    pub text: String,
}

/// A column of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceColumn {
    /// Name, folded to lower case unless quoted.
    pub name: Spanned<String>,
    /// Where its value comes from.
    pub kind: ColumnKind,
    /// `NOT NULL`.
    pub not_null: bool,
}

/// Where a source column's value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnKind {
    /// A field of the row.
    Physical(ast::DataType),
    /// `name AS expr`.
    Computed(Box<ast::Expr>),
    /// `name TYPE METADATA [FROM 'key']`.
    Metadata {
        /// The column's type.
        data_type: ast::DataType,
        /// What the connector calls it; the column's name unless `FROM` says otherwise.
        key: String,
    },
}

/// `WATERMARK FOR column …`.
#[derive(Debug, Clone, PartialEq)]
pub struct Watermark {
    /// The event-time column.
    pub column: Spanned<String>,
    /// How rows move the watermark.
    pub strategy: WatermarkStrategy,
    /// `IDLE TIMEOUT INTERVAL …`.
    pub idle_timeout: Option<Interval>,
    /// `IDLE CLOSE AFTER INTERVAL …`.
    pub idle_close_after: Option<Interval>,
}

/// The four watermark forms.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a source has one")]
pub enum WatermarkStrategy {
    /// `AS expr`: bounded out-of-orderness when it is `column - interval`.
    Expression(Spanned<ast::Expr>),
    /// `AS expr PER KEY (cols) TIMEOUT INTERVAL …`.
    PerKey {
        /// What the watermark of a key is the maximum of.
        expr: Spanned<ast::Expr>,
        /// The key columns.
        keys: Vec<Spanned<String>>,
        /// How far a key may lag, in event time, before it stops holding the watermark back.
        timeout: Interval,
    },
    /// `[AS expr] PUNCTUATED WHEN cond`.
    Punctuated {
        /// What the watermark is the maximum of, over marked rows; the event-time column itself unless given.
        expr: Spanned<ast::Expr>,
        /// Whether a row is marked.
        when: Spanned<ast::Expr>,
    },
    /// `AS PROCTIME() - INTERVAL …`.
    ProcessingTime {
        /// What is subtracted from the clock; not negative.
        delay: Interval,
    },
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateMaterializedView {
    /// Name, folded to lower case unless quoted.
    pub name: Spanned<String>,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `WITH (…)` before AS.
    pub options: Options,
    /// The query and our clauses.
    pub query: StreamQuery,
    /// `RESTART`, only with `OR REPLACE`: what was made from the old definition may go.
    pub restart: bool,
    /// The statement's own text, kept in the catalog.
    pub text: String,
}

/// A SELECT and the clauses of ours that follow it.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamQuery {
    /// The plain SQL part.
    pub query: Box<ast::Query>,
    /// Its text, letter for letter: what the batch runs.
    pub text: String,
    /// Where the query starts in the whole text.
    pub position: Position,
    /// The clauses.
    pub clauses: Clauses,
}

/// Clauses that follow a SELECT. All absent means a plain query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Clauses {
    /// `ALLOWED LATENESS INTERVAL …` (`ALLOW LATENESS`, `GRACE PERIOD`).
    pub allowed_lateness: Option<Spanned<Interval>>,
    /// `ON LATE …`.
    pub on_late: Option<Spanned<OnLate>>,
    /// `ON EXPIRED …`.
    pub on_expired: Option<Spanned<OnExpired>>,
    /// `EMIT …`.
    pub emit: Option<Spanned<Emit>>,
    /// `FINALIZE AFTER INTERVAL …`.
    pub finalize_after: Option<Spanned<Interval>>,
}

impl Clauses {
    /// Whether any clause asks for streaming.
    pub fn is_streaming(&self) -> bool {
        *self != Self::default()
    }
}

/// The fate of late pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLate {
    /// Fold in and publish corrections, at most `max_updates` late versions per identity.
    Update {
        /// `MAX n UPDATES`; `None`: no limit.
        max_updates: Option<u32>,
    },
    /// Count only.
    Drop,
    /// Keep in `v$late`.
    SideOutput,
    /// Queue the window for a batch run.
    Recompute {
        /// `EVERY INTERVAL …`, above zero.
        every: Option<Interval>,
    },
}

impl OnLate {
    /// The n of `UPDATE MAX n UPDATES`, if it was given.
    pub fn updates_max(self) -> Option<u32> {
        match self {
            Self::Update { max_updates } => max_updates,
            Self::Drop | Self::SideOutput | Self::Recompute { .. } => None,
        }
    }
}

/// The fate of expired pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExpired {
    /// Keep in `v$late`.
    SideOutput,
    /// Count only.
    Drop,
    /// Queue the window for a batch run.
    Recompute {
        /// `EVERY INTERVAL …`, above zero.
        every: Option<Interval>,
    },
}

/// When values are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emit {
    /// At the close and on late updates.
    OnWindowClose,
    /// Early values too, at most every so often.
    Changes {
        /// `EVERY INTERVAL …`, above zero.
        every: Option<Interval>,
    },
    /// Once, when the window expires.
    OnExpiry,
}

/// Where a subscription starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Since {
    /// Versions computed after this time text.
    Time(Spanned<String>),
    /// Versions of epochs after this one.
    Epoch(u64),
}

/// `SHOW …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// Sources and their connectors.
    Sources,
    /// Views and their clauses.
    Views,
    /// Running and finished jobs.
    Jobs,
    /// Schedules with their last and next runs.
    Schedules,
    /// Watermark per source and split.
    Watermarks {
        /// Of this source or view only.
        of: Option<String>,
    },
    /// Conservation counters and the distribution of lateness per view.
    Lateness {
        /// Of this view only.
        of: Option<String>,
    },
}

/// What `DROP` drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropKind {
    /// A source.
    Source,
    /// A materialized view and its results.
    MaterializedView,
    /// A macro view.
    View,
    /// A table of DataFusion's, or a source that was declared with `CREATE TABLE`.
    Table,
    /// A schedule.
    Schedule,
}

/// `FINALIZE | REPROCESS | PATCH | VERIFY v [, …] [range] [USING …] [REASON '…'] [FORCE]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRun {
    /// Which of the four.
    pub kind: RunKind,
    /// The views, at least one, each once.
    pub views: Vec<Spanned<String>>,
    /// The windows, by their end. `None`, which PATCH and VERIFY alone may leave it at: all of them.
    pub range: Option<Spanned<RunRange>>,
    /// `USING …`: what is read; `None`: what the source says.
    pub input: Option<Spanned<RunInput>>,
    /// `REASON '…'`: the `_reason` of the versions made.
    pub reason: Option<Spanned<String>>,
    /// `FORCE`: live windows are expired first, and taken too.
    pub force: bool,
}

/// The four kinds of batch run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunKind {
    /// Publishes final versions.
    Finalize,
    /// Publishes what the batch gives, not as final.
    Reprocess,
    /// Adds refused rows to published values.
    Patch,
    /// Compares, and publishes nothing.
    Verify,
}

/// Which windows a run takes: those whose end lies in a range.
///
/// Times and dates are kept as written: a text without a zone is read in the view's zone, else UTC.
#[derive(Debug, Clone, PartialEq)]
pub enum RunRange {
    /// `FROM t [TO t]`: from exclusive, to inclusive.
    Between {
        /// The time text behind FROM.
        from: Spanned<String>,
        /// The time text behind TO; `None`: the run's `now`.
        to: Option<Spanned<String>>,
    },
    /// `FOR DATE 'd'`: ends after the day's start, up to and with the next day's.
    Date(Spanned<String>),
    /// `LOOKBACK i`, above zero: (now − i, now].
    Lookback(Interval),
}

/// What a run reads.
#[derive(Debug, Clone, PartialEq)]
pub enum RunInput {
    /// `ARCHIVE`: the source's archive.
    Archive,
    /// `BATCH LOCATION`: the folder the source names with `batch_location`.
    BatchLocation,
    /// `SOURCE`: what the source itself reads, which must be bounded.
    Source,
    /// `'path or url'`: a folder or file in the source's format.
    Location(String),
}

/// `ROLLBACK v FOR WINDOW start [TO end] [KEY (k = v, …)] TO VERSION n | TO TIMESTAMP 't' [REASON '…']`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollback {
    /// The view.
    pub view: Spanned<String>,
    /// The time text of the window's start.
    pub start: Spanned<String>,
    /// The time text of the window's end; `None`: every window with that start.
    pub end: Option<Spanned<String>>,
    /// Values of key columns, each column once; empty: every key.
    pub keys: Vec<(Spanned<String>, Spanned<ast::Expr>)>,
    /// What to go back to.
    pub target: Spanned<RollbackTarget>,
    /// `REASON '…'`.
    pub reason: Option<Spanned<String>>,
}

/// What a rollback goes back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackTarget {
    /// The version of this number.
    Version(u64),
    /// What was current at this time text.
    Timestamp(String),
}

/// `CREATE SCHEDULE s CRON '…' [TIME ZONE '…'] AS run`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSchedule {
    /// Name, folded to lower case unless quoted.
    pub name: Spanned<String>,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The cron expression as written.
    pub cron: Spanned<String>,
    /// The zone its times are in; `None`: UTC.
    pub time_zone: Option<Spanned<String>>,
    /// What it runs. Its range, if any, is a look-back.
    pub run: BatchRun,
    /// The run's own text.
    pub run_text: String,
    /// The statement's own text, kept in the catalog.
    pub text: String,
}

/// What is done to a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAction {
    /// It starts no runs until resumed.
    Pause,
    /// It starts runs again.
    Resume,
    /// One run now, beside its times.
    RunNow,
}

/// What is done to a view's stored results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    /// Small files are made into few.
    Optimize,
    /// Files that nothing needs any more are deleted.
    Vacuum,
}
