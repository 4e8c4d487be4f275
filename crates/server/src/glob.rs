//! Redis' glob patterns: `*`, `?`, `[a-z]`, `[^a]` and `\` before any of them, over bytes.
//!
//! As in Redis, only an empty pattern matches an empty text; a plain `*` in KEYS, SCAN and the like
//! means all keys, and is handled before this is called.
//!
//! The time is linear in the text for each `*` of the pattern: only the last `*` is ever retried,
//! which is enough, because whatever an earlier one could still give up, the later one can skip. A
//! client chooses both, of any length, so the steps are counted: **no pattern delays other
//! clients**.

use std::cell::Cell;

use crate::command::Failure;

/// The number of steps, each of some nanoseconds, that may delay other clients; with realistic keys
/// and patterns, thousands of matches together take fewer.
const MOST: u64 = 1 << 27;

/// The number of steps for each byte of pattern and text that counts as few: realistic patterns
/// need no more.
const FEW_A_BYTE: u64 = 8;

/// The steps that matching has taken while no other client of the thread was served.
#[derive(Debug, Default)]
pub(crate) struct Steps(Cell<u64>);

impl Steps {
    /// Whether `text` as a whole matches `pattern`.
    pub fn matches(&self, pattern: &[u8], text: &[u8]) -> bool {
        self.matches_with(pattern, text, |byte| byte)
    }

    /// As [`matches`](Self::matches), ignoring the case of ASCII letters.
    pub fn matches_any_case(&self, pattern: &[u8], text: &[u8]) -> bool {
        self.matches_with(pattern, text, |byte| byte.to_ascii_lowercase())
    }

    /// As [`matches`](Self::matches), for one of many patterns that different clients have chosen:
    /// a number of steps that is small for the lengths is not counted, so that **a pattern that
    /// needs many steps does not prevent later ones from matching**, unless those need many steps
    /// too.
    pub fn matches_beside_others(&self, pattern: &[u8], text: &[u8]) -> bool {
        let few = FEW_A_BYTE * (pattern.len() + text.len()) as u64;
        let left = MOST.saturating_sub(self.0.get());
        let mut steps = 0;
        let found = matches(pattern, text, |byte| byte, &mut steps, few + left);
        self.0.set(self.0.get() + steps.saturating_sub(few));
        found
    }

    fn matches_with(&self, pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8) -> bool {
        let mut taken = self.0.get();
        let found = matches(pattern, text, fold, &mut taken, MOST);
        self.0.set(taken);
        found
    }

    /// Whether so many steps were taken that interruptible work should stop.
    pub fn are_many(&self) -> bool {
        self.0.get() > MOST / 8
    }

    /// Returns an error if a match was given up, because its result would be wrong.
    pub fn check(&self) -> Result<(), Failure> {
        match self.0.get() > MOST {
            true => Err(Failure::other("ERR the pattern takes too long to match")),
            false => Ok(()),
        }
    }
}

/// Adds the steps taken to `steps`, and gives up beyond `most`.
fn matches(
    pattern: &[u8],
    text: &[u8],
    fold: impl Fn(u8) -> u8,
    steps: &mut u64,
    most: u64,
) -> bool {
    // As in Redis, whose loop needs a byte of the text to begin.
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    // The pattern after the last `*`, and the text position where it was last tried.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        *steps += 1;
        if *steps > most {
            return false;
        }
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        let step = match text.get(t) {
            None if p >= pattern.len() => return true,
            None => return false,
            Some(&byte) => one(&pattern[p..], byte, &fold, steps),
        };
        match (step, retry) {
            (Some(taken), _) => {
                p += taken;
                t += 1;
            }
            (None, Some((after, tried))) => {
                p = after;
                t = tried + 1;
                retry = Some((after, t));
            }
            (None, None) => return false,
        }
    }
}

/// The length of the pattern's first element, if it matches `byte`.
fn one(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8, steps: &mut u64) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => class(pattern, byte, fold, steps),
        [b'\\', literal, ..] => (fold(*literal) == fold(byte)).then_some(2),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(1),
    }
}

/// A bracketed class, which may lack its closing bracket.
fn class(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8, steps: &mut u64) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            [] => break,
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (fold(*from), fold(*to));
                found |= (from.min(to)..=from.max(to)).contains(&fold(byte));
                at += 3;
            }
            [literal, ..] => {
                found |= fold(*literal) == fold(byte);
                at += 1;
            }
        }
    }
    *steps += at as u64;
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("", "", true),
            ("*", "", false),
            ("**", "", false),
            ("*", "abc", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("*a*b*c", "xaybzc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            (r"h\*llo", "h*llo", true),
            (r"h\*llo", "hello", false),
            (r"[\]]", "]", true),
            ("[abc", "b", true),
            ("[", "a", false),
            ("a\\", "a\\", true),
            ("**", "x", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(
                is_match(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
        let steps = Steps::default();
        assert!(steps.matches_any_case(b"MAX*", b"maxmemory"));
        assert!(!steps.matches(b"MAX*", b"maxmemory"));
    }

    fn is_match(pattern: &[u8], text: &[u8]) -> bool {
        let steps = Steps::default();
        let found = steps.matches(pattern, text);
        steps.check().unwrap();
        found
    }

    #[test]
    fn a_match_that_takes_too_long_is_given_up() {
        let text = b"a".repeat(1 << 16);
        for pattern in [
            [b"*[", &b"a".repeat(1 << 16)[..], b"]b"].concat(),
            [b"*", &b"a".repeat(1 << 15)[..], b"b"].concat(),
        ] {
            let steps = Steps::default();
            assert!(!steps.matches(&pattern, &text));
            assert!(steps.check().is_err());
            assert!(steps.0.get() < 2 * MOST);
        }
    }

    #[test]
    fn a_pattern_that_takes_too_long_does_not_keep_others_from_matching() {
        let text = b"a".repeat(1 << 16);
        let endless = [b"*[", &b"a".repeat(1 << 16)[..], b"]b"].concat();
        let steps = Steps::default();
        for _ in 0..3 {
            assert!(!steps.matches_beside_others(&endless, &text));
        }
        assert!(steps.0.get() < 2 * MOST);
        for pattern in [&b"a*"[..], b"*a", b"*[a-c]*a?", &text] {
            assert!(steps.matches_beside_others(pattern, &text));
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = b"a*".repeat(500);
        let text = b"a".repeat(50_000);
        assert!(is_match(&pattern, &text));
        assert!(!is_match(&[&pattern[..], b"b"].concat(), &text));
    }

    /// The definition of `*`, taken literally.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        let is_either_empty = pattern.is_empty() || text.is_empty();
        if is_either_empty {
            text == pattern
        } else {
            naive_rest(pattern, text)
        }
    }

    fn naive_rest(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| naive_rest(rest, &text[skip..])),
            _ => {
                !text.is_empty()
                    && one(pattern, text[0], &|b| b, &mut 0)
                        .is_some_and(|n| naive_rest(&pattern[n..], &text[1..]))
            }
        }
    }

    proptest! {
        #[test]
        fn retrying_the_last_star_is_enough(pattern in "[ab*?]{0,8}|[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(is_match(pattern.as_bytes(), text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
