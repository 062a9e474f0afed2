//! When a window publishes and when its state goes, as watermarks (T4).

use super::graph::Policy;
use crate::sql::statement::Emit;
use crate::window;

/// The smallest W at which the window that ends at `end` publishes its first value: its close, or under
/// `EMIT ON EXPIRY` its expiry.
pub fn closes_at(policy: &Policy, end: i64) -> i64 {
    match policy.emit {
        Emit::OnExpiry => expires_at(policy, end),
        Emit::OnWindowClose | Emit::Changes { .. } => end,
    }
}

/// The smallest W at which the window that ends at `end` is expired.
pub fn expires_at(policy: &Policy, end: i64) -> i64 {
    window::expires_at(end, policy.allowed_lateness_us)
}
