//! What a watermark promises, and how rows move it. Pure: no async, no DataFusion, no clock.
//!
//! A watermark `W` says that no row with event time `< W` is still expected. It is an `i64` of microseconds that never
//! goes back (T3). [`NONE`] is "no row yet", [`END`] is "+infinity: every bounded split has ended" (T6).
//!
//! ```text
//!  rows of split a ─► SplitWatermark ─┐
//!  rows of split b ─► SplitWatermark ─┴► operators::sequence: minimum, order of rows ─► judge
//! ```
//!
//! A row is judged against the W made by the rows before it (T5), so a split's watermark is a list: W after each row. How
//! splits combine, and which goes next, is [`crate::operators::sequence`]'s to say; when a live split counts as idle, the
//! runtime's; what a row's fate is at a given W, [`crate::window`]'s.

mod split;

pub use split::{SplitState, SplitWatermark};

/// No watermark yet: below every time.
pub const NONE: i64 = i64::MIN;
/// +infinity: the end of bounded input.
pub const END: i64 = i64::MAX;

/// How rows move the watermark of a split (design T3, "Strategies").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// `W = max(expr)` over the rows seen.
    BoundedOutOfOrderness,
    /// Per split, the minimum over keys of `max(expr)`, of those keys whose newest row is within `timeout_us` of the
    /// split's newest, in event time.
    PerKey {
        /// How far a key may lag before it stops holding the watermark back.
        timeout_us: i64,
    },
    /// Only marked rows move it.
    Punctuated,
    /// `W = clock - delay`, the clock's value recorded with the rows.
    ProcessingTime {
        /// What is subtracted.
        delay_us: i64,
    },
}

/// A source's declared watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkSpec {
    /// How rows move it.
    pub strategy: Strategy,
    /// A live split that was asked and had nothing for this long leaves the minimum (T7).
    pub idle_timeout_us: Option<i64>,
    /// When all splits have been idle this long, W rises to the end of the newest open window (T7).
    pub idle_close_after_us: Option<i64>,
}
