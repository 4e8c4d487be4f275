//! What `cargo xtask ladder` and `ci` say to tests, in variables of the environment.

use std::time::Duration;

/// The number in that variable, if there is one.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How long a test that could go on for ever goes on: `MNEME_LADDER_SECS`, or `default` seconds.
pub fn seconds(default: u64) -> Duration {
    Duration::from_secs(setting("MNEME_LADDER_SECS").unwrap_or(default))
}
