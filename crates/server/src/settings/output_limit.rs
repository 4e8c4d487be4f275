//! How much of what a client does not read is kept, by the class of the client, as Redis writes it:
//! `class hard soft seconds`, several times.

use std::sync::atomic::{AtomicI64, Ordering};

use super::Refused;
use super::size::parse_size;

/// A class of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputClass {
    /// All others.
    Normal = 0,
    /// Clients that have subscribed to channels. The class between is that of replicas, of which
    /// there are none yet.
    PubSub = 2,
}

/// The limit of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Bytes at which a client is disconnected.
    pub hard: usize,
    /// Bytes at which it is if it has had so many for `soft_ms`.
    pub soft: usize,
    /// Milliseconds.
    pub soft_ms: u64,
}

/// The three numbers of a class, as they are set.
type Numbers = [i64; 3];

/// Names of the classes, the first of which is the one that is shown.
const NAMES: [&[&str]; 3] = [&["normal"], &["slave", "replica"], &["pubsub"]];

/// Reads the limits of some classes. As in Redis, of a class that is given several times the last
/// counts.
fn read(text: &str) -> Result<[Option<Numbers>; 3], Refused> {
    let words: Vec<_> = text.split_whitespace().collect();
    let (classes, []) = words.as_chunks::<4>() else {
        return Err(Refused::NotFour);
    };
    if classes.is_empty() {
        return Err(Refused::NotFour);
    }
    let number = |word| i64::try_from(parse_size(word).ok()?).ok();
    let mut limits = [None; 3];
    for [class, hard, soft, seconds] in classes {
        let is_named = |names: &&[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(class));
        let place = NAMES.iter().position(is_named);
        let place = place.ok_or(Refused::NoSuchClass)?;
        let seconds = seconds.parse().ok().filter(|seconds: &i64| *seconds >= 0);
        match (number(hard), number(soft), seconds) {
            (Some(hard), Some(soft), Some(seconds)) => limits[place] = Some([hard, soft, seconds]),
            _ => return Err(Refused::NotALimit),
        }
    }
    Ok(limits)
}

fn shown(limits: impl Iterator<Item = Option<Numbers>>) -> String {
    let classes = NAMES.iter().zip(limits).filter_map(|(names, limit)| {
        let [hard, soft, seconds] = limit?;
        Some(format!("{} {hard} {soft} {seconds}", names[0]))
    });
    classes.collect::<Vec<_>>().join(" ")
}

/// The limits of the classes that `text` names, in the form in which they are shown.
pub(super) fn normalised(text: &str) -> Result<String, Refused> {
    Ok(shown(read(text)?.into_iter()))
}

/// The limits of all classes, which are read without a lock.
#[derive(Debug, Default)]
pub(super) struct OutputLimits([[AtomicI64; 3]; 3]);

impl OutputLimits {
    /// Sets those that `text` names, which has been normalised. Returns all, as they are shown.
    pub fn set(&self, text: &str) -> String {
        let set = read(text).unwrap_or_default();
        for (held, set) in self.0.iter().zip(set) {
            for (held, number) in held.iter().zip(set.into_iter().flatten()) {
                // SYNC: pairs with nothing; a setting stands for itself.
                held.store(number, Ordering::Relaxed);
            }
        }
        // SYNC: as above.
        let numbers =
            |held: &[AtomicI64; 3]| Some(held.each_ref().map(|n| n.load(Ordering::Relaxed)));
        shown(self.0.iter().map(numbers))
    }

    /// The limit of a class.
    #[inline]
    pub fn of(&self, class: OutputClass) -> OutputLimit {
        // SYNC: as in `set`.
        let [hard, soft, seconds] = self.0[class as usize]
            .each_ref()
            .map(|n| n.load(Ordering::Relaxed));
        let bytes = |number: i64| match usize::try_from(number) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(bytes) => bytes,
        };
        OutputLimit {
            hard: bytes(hard),
            soft: bytes(soft),
            soft_ms: seconds.unsigned_abs().saturating_mul(1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_are_not_named_keep_their_limits() {
        let limits = OutputLimits::default();
        limits.set("normal 1 2 3 slave 4 5 6 pubsub 7 8 9");
        let text = normalised("PUBSUB 1mb 0 0 replica 2kb 1 1 replica 1k 1 1").unwrap();
        assert_eq!(text, "slave 1000 1 1 pubsub 1048576 0 0");
        assert_eq!(
            limits.set(&text),
            "normal 1 2 3 slave 1000 1 1 pubsub 1048576 0 0"
        );
        let none = OutputLimit {
            hard: 1 << 20,
            soft: usize::MAX,
            soft_ms: 0,
        };
        assert_eq!(limits.of(OutputClass::PubSub), none);
        assert_eq!(limits.of(OutputClass::Normal).soft_ms, 3000);
    }

    #[test]
    fn a_limit_that_would_not_be_kept_is_refused() {
        for text in ["", "normal 1mb 0", "normal 1mb 0 0 normal"] {
            assert_eq!(normalised(text), Err(Refused::NotFour));
        }
        assert_eq!(normalised("x 1 0 0"), Err(Refused::NoSuchClass));
        assert_eq!(normalised("normal x 0 0"), Err(Refused::NotALimit));
        assert_eq!(normalised("normal 1 0 -1"), Err(Refused::NotALimit));
    }
}
