//! Natural numbers of any size, with the arithmetic needed to round decimal numbers correctly.

use std::cmp::Ordering;

/// A natural number: 64-bit digits, lowest first, the highest not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Natural(Vec<u64>);

/// The largest factor that [`Natural::times_power_of_ten`] uses at once.
const TEN_TO_19: u64 = 10u64.pow(19);

impl Natural {
    /// The number with these decimal `digits`, highest first.
    pub fn from_decimal(digits: impl Iterator<Item = u8>) -> Self {
        let mut number = Self::default();
        let (mut chunk, mut scale) = (0, 1);
        for digit in digits {
            chunk = chunk * 10 + u64::from(digit);
            scale *= 10;
            if scale == TEN_TO_19 {
                number.multiply_add(scale, chunk);
                (chunk, scale) = (0, 1);
            }
        }
        number.multiply_add(scale, chunk);
        number
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of its binary digits; 0 has none.
    pub fn bits(&self) -> u32 {
        self.0.last().map_or(0, |highest| {
            self.0.len() as u32 * 64 - highest.leading_zeros()
        })
    }

    /// This number times `factor`, plus `summand`.
    fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = u128::from(summand);
        for digit in &mut self.0 {
            carry += u128::from(*digit) * u128::from(factor);
            *digit = carry as u64;
            carry >>= 64;
        }
        if carry != 0 {
            self.0.push(carry as u64);
        }
    }

    /// This number times 10^`exponent`.
    pub fn times_power_of_ten(mut self, exponent: u32) -> Self {
        for _ in 0..exponent / 19 {
            self.multiply_add(TEN_TO_19, 0);
        }
        self.multiply_add(10u64.pow(exponent % 19), 0);
        self
    }

    /// This number times 2^`exponent`.
    pub fn times_power_of_two(&self, exponent: u32) -> Self {
        let mut number = Self(vec![0; exponent as usize / 64]);
        number.0.extend_from_slice(&self.0);
        number.multiply_add(1 << (exponent % 64), 0);
        number.trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    /// Its highest 128 binary digits, or all that it has; how many lower ones are left out; and
    /// whether one of those is 1.
    pub fn highest(&self) -> (u128, u32, bool) {
        let left_out = self.bits().saturating_sub(128);
        let (whole, within) = (left_out as usize / 64, left_out % 64);
        let digit = |index: usize| u128::from(self.0.get(whole + index).copied().unwrap_or(0));
        let mut highest = digit(0) >> within | digit(1) << (64 - within);
        if within != 0 {
            highest |= digit(2) << (128 - within);
        }
        let below = self.0.iter().take(whole).any(|digit| *digit != 0)
            || digit(0) & ((1 << within) - 1) != 0;
        (highest, left_out, below)
    }

    /// The quotient of this number and `divisor` times 2^-`bits`, and whether there is a remainder.
    /// `divisor` must not be 0, and this number must be less than twice the divisor. At most 127
    /// bits.
    pub fn divide(mut self, divisor: &Self, bits: u32) -> (u128, bool) {
        let mut quotient = 0;
        for _ in 0..=bits {
            quotient <<= 1;
            if self >= *divisor {
                self.subtract(divisor);
                quotient |= 1;
            }
            self.multiply_add(2, 0);
        }
        (quotient, !self.is_zero())
    }

    /// Subtracts a number that must not be greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let subtrahend = other.0.get(index).copied().unwrap_or(0);
            let (difference, first) = digit.overflowing_sub(subtrahend);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            *digit = difference;
            borrow = first || second;
        }
        *self = std::mem::take(self).trimmed();
    }

    /// Its decimal digits as text.
    pub fn to_decimal(&self) -> String {
        // Nineteen digits at a time, lowest first.
        let mut chunks = Vec::new();
        let mut rest = self.clone();
        while !rest.is_zero() {
            let mut remainder = 0;
            for digit in rest.0.iter_mut().rev() {
                let dividend = remainder << 64 | u128::from(*digit);
                *digit = (dividend / u128::from(TEN_TO_19)) as u64;
                remainder = dividend % u128::from(TEN_TO_19);
            }
            rest = rest.trimmed();
            chunks.push(remainder);
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:019}"));
        }
        text
    }
}

impl From<u64> for Natural {
    fn from(value: u64) -> Self {
        Self(vec![value]).trimmed()
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}
