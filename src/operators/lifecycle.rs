//! When a window publishes and when its state goes, as watermarks (T4).

use super::graph::Policy;
use crate::sql::statement::Emit;

/// The smallest W at which the window that ends at `end` publishes its first value: its close, or under
/// `EMIT ON EXPIRY` its expiry.
pub fn closes_at(policy: &Policy, end: i64) -> i64 {
    match policy.emit {
        Emit::OnExpiry => expires_at(policy, end),
        Emit::OnWindowClose | Emit::Changes { .. } => end,
    }
}

/// The smallest W at which the window that ends at `end` is expired: the first instant after `end + L`, or `end` itself
/// without lateness.
pub fn expires_at(policy: &Policy, end: i64) -> i64 {
    match policy.allowed_lateness_us {
        0 => end,
        l_us => end.saturating_add(l_us).saturating_add(1),
    }
}
