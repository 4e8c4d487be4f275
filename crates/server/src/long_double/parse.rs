//! Parses decimal and hexadecimal numbers, as C's `strtold` does, without surrounding text.

use super::natural::Natural;
use super::{Finite, LongDouble};

/// The maximum length in bytes of a number that Redis parses.
const LONGEST: usize = 5 * 1024 - 1;

/// Beyond this a decimal exponent makes any number of at most [`LONGEST`] digits too large or too
/// small.
const GREATEST_POWER: i64 = 20_000;

/// The number of bits of a quotient after the point: a significand's, and two more for rounding.
const QUOTIENT_BITS: u32 = 66;

/// The number that `text` spells as a whole. Numbers that are too large, or so small that they
/// would be zero, are refused, and so is NaN.
pub(crate) fn parse(text: &[u8]) -> Option<LongDouble> {
    if text.len() > LONGEST {
        return None;
    }
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(LongDouble::Infinite);
    }
    let number = match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(is_negative, digits),
        digits => decimal(is_negative, digits),
    }?;
    (number != LongDouble::Infinite).then_some(number)
}

/// Digits around a point, without leading zeros, and their factor: a power of the base, or of two.
struct Spelt {
    digits: Vec<u8>,
    power: i64,
}

/// Splits `text` into digits of base `radix` and an exponent after `marker`. A digit after the
/// point lowers the exponent by `per_digit`.
fn spelt(text: &[u8], radix: u32, marker: u8, per_digit: i64) -> Option<Spelt> {
    let end = text
        .iter()
        .position(|byte| byte.eq_ignore_ascii_case(&marker))
        .unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at(end);
    let mut power = match exponent {
        [] => 0,
        [_, exponent @ ..] => signed(exponent)?,
    };
    let mut digits = Vec::with_capacity(mantissa.len());
    let (mut has_digits, mut behind_point) = (false, false);
    for &byte in mantissa {
        if byte == b'.' && !behind_point {
            behind_point = true;
            continue;
        }
        let digit = char::from(byte).to_digit(radix)? as u8;
        has_digits = true;
        power -= if behind_point { per_digit } else { 0 };
        if digit != 0 || !digits.is_empty() {
            digits.push(digit);
        }
    }
    has_digits.then_some(Spelt { digits, power })
}

/// An exponent, clamped to the relevant range.
fn signed(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0i64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        Some((value * 10 + digit).min(i64::from(u32::MAX)))
    })?;
    Some(sign * magnitude)
}

fn decimal(is_negative: bool, text: &[u8]) -> Option<LongDouble> {
    let Spelt { mut digits, power } = spelt(text, 10, b'e', 1)?;
    if digits.is_empty() {
        return Some(zero(is_negative));
    }
    // Trailing zeros would only make the numbers longer.
    let kept = digits
        .iter()
        .rposition(|digit| *digit != 0)
        .map_or(0, |last| last + 1);
    let power = power + (digits.len() - kept) as i64;
    digits.truncate(kept);
    if power.abs() > GREATEST_POWER {
        return None;
    }
    let number = Natural::from_decimal(digits.into_iter());
    let ten_to_power = power.unsigned_abs() as u32;
    let rounded = if power >= 0 {
        let (magnitude, left_out, more) = number.times_power_of_ten(ten_to_power).highest();
        LongDouble::rounded(is_negative, magnitude, left_out as i32, more)
    } else {
        let divisor = Natural::from(1).times_power_of_ten(ten_to_power);
        // Both are made as long as the longer one, so that the quotient is less than two.
        let bits = number.bits().max(divisor.bits());
        let (longer, divisor_longer) = (bits - number.bits(), bits - divisor.bits());
        let number = number.times_power_of_two(longer);
        let (quotient, more) =
            number.divide(&divisor.times_power_of_two(divisor_longer), QUOTIENT_BITS);
        let exponent = divisor_longer as i32 - longer as i32 - QUOTIENT_BITS as i32;
        LongDouble::rounded(is_negative, quotient, exponent, more)
    };
    not_vanished(rounded)
}

fn hexadecimal(is_negative: bool, text: &[u8]) -> Option<LongDouble> {
    let Spelt { digits, power } = spelt(text, 16, b'p', 4)?;
    // Digits beyond the 31 that are used affect only the last bit.
    let (taken, left_out) = digits.split_at(digits.len().min(31));
    let magnitude = taken
        .iter()
        .fold(0, |value, digit| value << 4 | u128::from(*digit));
    if magnitude == 0 {
        return Some(zero(is_negative));
    }
    let more = left_out.iter().any(|digit| *digit != 0);
    let power = power + 4 * left_out.len() as i64;
    if power.abs() > GREATEST_POWER {
        return None;
    }
    not_vanished(LongDouble::rounded(
        is_negative,
        magnitude,
        power as i32,
        more,
    ))
}

fn zero(is_negative: bool) -> LongDouble {
    LongDouble::Finite(Finite {
        is_negative,
        ..Finite::ZERO
    })
}

/// `None` if a number that was not zero has become zero.
fn not_vanished(number: LongDouble) -> Option<LongDouble> {
    match number {
        LongDouble::Finite(Finite { significand: 0, .. }) => None,
        number => Some(number),
    }
}
