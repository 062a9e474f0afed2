//! Runs an operator graph: tasks, channels, shutdown. All spawning of the engine is in here.
//!
//! ```text
//!  reader (per split) ─► prepare (pool) ─► sequencer ─► judge ─► worker 0..n ─► results ─► sink
//!        decode, any core, in order          one task, in order     any piece     one task    one task
//! ```
//!
//! Channels are bounded, so a slow sink holds back the readers (T7: a reader that is held back is not idle). What one
//! control message means is agreed by order: every worker handles what came before it first, and the results task goes
//! on to it when all of them have.

mod background;
mod inputs;
mod job;
mod pool;
mod reader;
mod recovery;
mod repeat;
mod results;
mod sequencer;
mod spill;
mod worker;

pub use background::Background;
pub use inputs::SourceProgress;
pub use job::{Epochs, JobHandle, JobOptions, JobProgress, JobSpec, complete, detach, late_columns, spawn};
pub use pool::TaskPool;
pub use recovery::{Recovered, live_from_us};
pub use repeat::{Again, repeat};
pub use results::{EpochOutput, ResultSink};
pub use spill::SpillFolder;
