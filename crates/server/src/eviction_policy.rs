//! Redis's names for what a full store may evict.

use mneme_log::Evict;

use crate::settings::{Key, Kind};

/// In the order of the values of `maxmemory-policy`.
const POLICIES: [Evict; 8] = [
    Evict::ExpiringLru,
    Evict::ExpiringLfu,
    Evict::ExpiringRandom,
    Evict::ExpiringSoonest,
    Evict::Lru,
    Evict::Lfu,
    Evict::Random,
    Evict::None,
];

/// The policy of a value of `maxmemory-policy`.
pub(crate) fn policy(number: i64) -> Evict {
    let place = usize::try_from(number).ok();
    place
        .and_then(|place| POLICIES.get(place).copied())
        .unwrap_or_default()
}

/// The value of `maxmemory-policy` for a policy.
pub(crate) fn number(policy: Evict) -> i64 {
    let place = POLICIES.iter().position(|one| *one == policy);
    // The list contains every policy: a test checks that.
    place.unwrap_or(0) as i64
}

/// Redis' name of a policy.
pub(crate) fn name(policy: Evict) -> &'static str {
    let Kind::Word(words) = Key::MaxMemoryPolicy.setting().kind else {
        return "";
    };
    words.get(number(policy) as usize).copied().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_policy_and_every_policy_has_a_word() {
        for (word, expected) in [
            ("noeviction", Evict::None),
            ("allkeys-lru", Evict::Lru),
            ("allkeys-lfu", Evict::Lfu),
            ("allkeys-random", Evict::Random),
            ("volatile-lru", Evict::ExpiringLru),
            ("volatile-lfu", Evict::ExpiringLfu),
            ("volatile-random", Evict::ExpiringRandom),
            ("volatile-ttl", Evict::ExpiringSoonest),
        ] {
            let value = Key::MaxMemoryPolicy.setting().kind.parse(word).unwrap();
            assert_eq!(policy(value.number), expected, "{word}");
            assert_eq!(name(expected), word);
        }
    }
}
