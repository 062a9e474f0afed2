//! Pure window algebra: which windows a time belongs to, which slices windows share, when a window is late or expired.
//!
//! No async, no DataFusion, no clock. All times are `i64` microseconds since 1970-01-01 UTC; all windows and slices are
//! half-open `[start, end)`.

/// A window, half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// First instant in it, µs.
    pub start: i64,
    /// First instant after it, µs.
    pub end: i64,
}

/// The smallest non-overlapping piece that windows share: the unit of state. Half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slice {
    /// First instant in it, µs.
    pub start: i64,
    /// First instant after it, µs.
    pub end: i64,
}

/// Fate of a (row, window) pair (T4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// `W < end`
    OnTime,
    /// `end <= W <= end + L`, `L > 0`
    Late,
    /// otherwise
    Expired,
}

/// A length: exact microseconds, whole days, or whole months. Days and months are calendar lengths when a zone is given;
/// months always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    /// Exact.
    Micros(i64),
    /// Days: local days with a zone, 86,400 s each without.
    Days(i64),
    /// Calendar months.
    Months(i64),
}

/// The kind of window and its lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Every time is in exactly one window.
    Tumble { size: Span },
    /// Windows of `size` start every `slide`.
    Hop { slide: Span, size: Span },
    /// Windows that share a start and grow by `step` up to `size`.
    Cumulate { step: Span, size: Span },
    /// Per key; a row opens `[ts, ts + gap)` and overlapping sessions merge.
    Session { gap_us: i64 },
}

/// A declared window: kind, offset, zone.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSpec {
    kind: WindowKind,
    offset_us: i64,
    zone: Option<jiff::tz::TimeZone>,
}

impl WindowSpec {
    /// The kind.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Whether it is a session.
    pub fn is_session(&self) -> bool {
        matches!(self.kind, WindowKind::Session { .. })
    }

    /// The slice that holds `ts`; `None` in a gap of a hop (`slide > size`), or where the window would leave the range.
    pub fn slice_of(&self, _ts: i64) -> Option<Slice> {
        todo!()
    }

    /// The windows that hold the whole `slice`, ascending by end.
    pub fn windows_of_slice(&self, _slice: Slice) -> Vec<Window> {
        todo!()
    }

    /// The windows that hold `ts`, ascending by end.
    pub fn windows_of(&self, ts: i64) -> Vec<Window> {
        self.slice_of(ts).map(|s| self.windows_of_slice(s)).unwrap_or_default()
    }

    /// The slices of `window`, ascending.
    pub fn slices_of_window(&self, _window: Window) -> Vec<Slice> {
        todo!()
    }

    /// The smallest window end `> t`.
    pub fn next_end(&self, _t: i64) -> Option<i64> {
        todo!()
    }
}

/// Fate of a pair whose window ends at `end`, judged at watermark `w` with lateness `l_us` (T4). The one place that
/// knows both equalities.
pub fn fate(end: i64, w: i64, l_us: i64) -> Fate {
    if w < end {
        Fate::OnTime
    } else if l_us > 0 && w <= end.saturating_add(l_us) {
        Fate::Late
    } else {
        Fate::Expired
    }
}
