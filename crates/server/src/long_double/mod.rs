//! C's `long double` on x86-64, bit for bit: Redis computes and writes floats with it, and 0.1 +
//! 0.2 must be 0.3 here as well.
//!
//! A 64-bit significand, a 15-bit exponent, rounding to nearest even. Numbers are read like C's
//! `strtold` and written like `printf` with `%.17Lf`, without trailing zeros. On aarch64 Redis's
//! own type has longer significands; there its last digits differ from these.

mod natural;
mod parse;

use natural::Natural;
pub(crate) use parse::parse;

/// A number that is not NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongDouble {
    Finite(Finite),
    /// Of the given sign.
    Infinite,
}

/// `significand` times 2^`exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finite {
    is_negative: bool,
    /// Its highest bit is set, unless the number is zero or denormal.
    significand: u64,
    exponent: i32,
}

/// The exponents of a 64-bit significand.
const LEAST_EXPONENT: i32 = -16_445;
const GREATEST_EXPONENT: i32 = 16_320;

/// The number of digits after the point.
const DECIMALS: u32 = 17;

impl LongDouble {
    pub const ZERO: Self = Self::Finite(Finite::ZERO);

    /// The number nearest to `magnitude` times 2^`exponent`. `more` says that the exact value is
    /// larger, by less than one unit of the magnitude's last bit.
    fn rounded(is_negative: bool, magnitude: u128, exponent: i32, more: bool) -> Self {
        let bits = 128 - magnitude.leading_zeros() as i32;
        let mut rounded_exponent = (exponent + bits - 64).max(LEAST_EXPONENT);
        let significand = match rounded_exponent - exponent {
            // There are more bits than needed: bits below the last one do not matter.
            left @ ..=0 => magnitude << left.unsigned_abs(),
            right => round_half_even(magnitude, right.unsigned_abs(), more),
        };
        let significand = u64::try_from(significand).unwrap_or_else(|_| {
            rounded_exponent += 1;
            1 << 63
        });
        if significand == 0 {
            rounded_exponent = LEAST_EXPONENT;
        }
        if rounded_exponent > GREATEST_EXPONENT {
            return Self::Infinite;
        }
        Self::Finite(Finite {
            is_negative,
            significand,
            exponent: rounded_exponent,
        })
    }

    /// A thousand times the number, as C computes it, rounded up to an integer. A number that is
    /// too large becomes the largest integer.
    pub fn in_thousandths(self) -> i128 {
        let Self::Finite(Finite {
            is_negative,
            significand,
            exponent,
        }) = self
        else {
            return i128::MAX;
        };
        let magnitude = u128::from(significand) * 1000;
        let Self::Finite(product) = Self::rounded(is_negative, magnitude, exponent, false) else {
            return if is_negative { i128::MIN } else { i128::MAX };
        };
        let (significand, shift) = (i128::from(product.significand), product.exponent);
        let magnitude = match shift.unsigned_abs() {
            64.. if shift > 0 && significand > 0 => i128::MAX,
            left if shift >= 0 => significand << left.min(63),
            right => {
                let whole = significand.checked_shr(right).unwrap_or(0);
                let is_exact = significand == 0 || whole.checked_shl(right) == Some(significand);
                whole + i128::from(!is_exact && !is_negative)
            }
        };
        if is_negative { -magnitude } else { magnitude }
    }

    /// The sum, or `None` if it is not finite.
    pub fn plus(self, other: Self) -> Option<Finite> {
        let (Self::Finite(a), Self::Finite(b)) = (self, other) else {
            return None;
        };
        match a.plus(b) {
            Self::Finite(sum) => Some(sum),
            Self::Infinite => None,
        }
    }
}

impl Finite {
    const ZERO: Self = Self {
        is_negative: false,
        significand: 0,
        exponent: LEAST_EXPONENT,
    };

    fn plus(self, other: Self) -> LongDouble {
        // Significands of equal length are ordered by their exponents; a shorter one has the
        // smallest exponent.
        let (a, b) = if (self.exponent, self.significand) >= (other.exponent, other.significand) {
            (self, other)
        } else {
            (other, self)
        };
        // Two spare bits above for the sum. If the smaller number extends further down than the
        // magnitudes, it is so much shorter than the other that it only affects the direction of
        // rounding: its last bit there represents all below.
        const SPARE: u32 = 62;
        let distance = (a.exponent - b.exponent).unsigned_abs();
        let (larger, smaller) = (
            u128::from(a.significand) << SPARE,
            u128::from(b.significand) << SPARE,
        );
        let below = distance > SPARE
            && (distance >= 128 && smaller != 0
                || distance < 128 && smaller & ((1 << distance) - 1) != 0);
        let smaller = smaller.checked_shr(distance).unwrap_or(0) | u128::from(below);
        let magnitude = if a.is_negative == b.is_negative {
            larger + smaller
        } else {
            larger - smaller
        };
        LongDouble::rounded(
            a.is_negative && magnitude != 0,
            magnitude,
            a.exponent - SPARE as i32,
            false,
        )
    }

    /// The number as Redis writes it for people: no exponent, at most 17 decimals, no trailing
    /// zeros.
    pub fn to_text(self) -> String {
        let mut text = if self.exponent >= 0 {
            Natural::from(self.significand)
                .times_power_of_two(self.exponent.unsigned_abs())
                .to_decimal()
        } else {
            // Less than 2^121, so a number that is shifted further is nearer to 0 than to the last
            // decimal.
            const SCALE: u128 = 10u128.pow(DECIMALS);
            let scaled = u128::from(self.significand) * SCALE;
            let scaled = round_half_even(scaled, self.exponent.unsigned_abs(), false);
            let (whole, decimals) = (scaled / SCALE, scaled % SCALE);
            let text = format!("{whole}.{decimals:017}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if self.is_negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

/// `magnitude`, plus something less than 1 if there is `more`, divided by 2^`shift`, which must not
/// be 1.
fn round_half_even(magnitude: u128, shift: u32, more: bool) -> u128 {
    let Some(half) = 1u128.checked_shl(shift - 1) else {
        return 0;
    };
    let whole = magnitude.checked_shr(shift).unwrap_or(0);
    let rest = magnitude - whole.checked_shl(shift).unwrap_or(0);
    let is_up = rest > half || rest == half && (more || whole & 1 == 1);
    whole + u128::from(is_up)
}
