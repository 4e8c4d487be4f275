//! The stored form of scores: **each number has exactly one text, and different numbers have
//! different texts.**
//!
//! A whole number of up to 62 bits is written in its decimal form, which a listpack keeps in a few
//! bytes. Any other number is the shortest text that reads as it. -0 is stored as 0. NaN is not a
//! score.

use std::io::Write;

use crate::error::Damage;
use crate::listpack::{Digits, Element};

/// The length of the longest text in bytes.
const LONGEST: usize = 32;
/// Larger whole numbers are not kept as integers, as in Redis.
const WHOLE: f64 = (1u64 << 62) as f64;

/// A score's text.
#[derive(Clone, Copy, Debug)]
pub struct ScoreText {
    bytes: [u8; LONGEST],
    len: usize,
}

impl ScoreText {
    /// The text of a number.
    #[must_use]
    pub fn of(score: f64) -> ScoreText {
        let mut bytes = [0; LONGEST];
        if score.trunc() == score && score.abs() <= WHOLE {
            let digits = Digits::of(score as i64);
            let len = digits.bytes().len();
            bytes[..len].copy_from_slice(digits.bytes());
            return ScoreText { bytes, len };
        }
        let mut rest = &mut bytes[..];
        let written = if score.is_infinite() || (1e-5..1e17).contains(&score.abs()) {
            write!(rest, "{score}")
        } else {
            write!(rest, "{score:e}")
        };
        // 17 digits, a sign, a point, and an exponent or zeros fit.
        debug_assert!(written.is_ok());
        let len = LONGEST - rest.len();
        ScoreText { bytes, len }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The score in an entry of a listpack. O(1).
///
/// # Errors
/// The entry is not a score.
#[inline]
pub(crate) fn score_of(element: &Element<'_>) -> Result<f64, Damage> {
    match element {
        Element::Integer(number) => Ok(*number as f64),
        Element::Bytes(bytes) => score_in(bytes),
    }
}

/// The score with this text.
///
/// # Errors
/// The text is not a score.
pub(crate) fn score_in(text: &[u8]) -> Result<f64, Damage> {
    let number = std::str::from_utf8(text).ok();
    let number = number.and_then(|text| text.parse::<f64>().ok());
    number.filter(|number| !number.is_nan()).ok_or(Damage {
        at: 0,
        what: "a score that is no number",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::listpack;

    fn text(score: f64) -> String {
        String::from_utf8(ScoreText::of(score).bytes().to_vec()).unwrap()
    }

    #[test]
    fn scores_have_short_texts_that_read_as_they_are() {
        for (score, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (3.0, "3"),
            (-17.0, "-17"),
            (1e18, "1000000000000000000"),
            (1e19, "1e19"),
            (3.25, "3.25"),
            (0.1, "0.1"),
            (1e-7, "1e-7"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        ] {
            assert_eq!(text(score), expected);
        }
        assert!(score_in(b"NaN").is_err() && score_in(b"").is_err() && score_in(b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn every_score_reads_as_it_was(bits in any::<u64>(), whole in any::<i64>()) {
            for score in [f64::from_bits(bits), whole as f64, f64::from_bits(bits).trunc()] {
                if score.is_nan() {
                    continue;
                }
                let text = ScoreText::of(score);
                prop_assert_eq!(score_in(text.bytes()).unwrap(), score);
                let listpack = listpack::of([text.bytes()]);
                let entry = listpack::Listpack::read(&listpack).unwrap().entries().next();
                prop_assert_eq!(score_of(&entry.unwrap().unwrap().value()).unwrap(), score);
            }
        }
    }
}
