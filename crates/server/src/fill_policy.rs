//! Maps Redis's settings of active defragmentation to the store's: how full log segments are kept,
//! and how much that may cost.
//!
//! Redis measures fragmentation as the number of unused bytes for each used one, in percent. A log
//! segment has a fill: the part of it that is live. 25 percent of fragmentation correspond to a
//! fill of 0.8.

use mneme_log::FillPolicy;

use crate::settings::{Key, Settings};

/// The policy that the settings request.
pub(crate) fn policy(settings: &Settings) -> FillPolicy {
    let percent = |key| settings.number(key) as f64 / 100.0;
    let fill = |key| 1.0 / (1.0 + percent(key));
    let mut policy = FillPolicy::default();
    policy.active = settings.is(Key::ActiveDefrag);
    policy.target_fill = fill(Key::DefragLower);
    policy.least_fill = fill(Key::DefragUpper);
    policy.ignored_bytes = settings.number(Key::DefragIgnored).unsigned_abs();
    policy.least_share = percent(Key::DefragLeast);
    policy.greatest_share = percent(Key::DefragMost);
    policy
}

/// Whether `key` is one of these settings.
pub(crate) fn is_meant(key: Key) -> bool {
    matches!(
        key,
        Key::ActiveDefrag
            | Key::DefragLower
            | Key::DefragUpper
            | Key::DefragIgnored
            | Key::DefragLeast
            | Key::DefragMost
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_defaults_are_the_stores() {
        assert_eq!(policy(&Settings::default()), FillPolicy::default());
    }
}
