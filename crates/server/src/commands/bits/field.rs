//! Integers of any width at any bit of a value, highest bit first.

/// The type of such an integer: signed with 1 to 64 bits, or unsigned with 1 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    is_signed: bool,
    width: u32,
}

/// What to do with an integer that its field cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Bits that do not fit are cut off.
    Wrap,
    /// The nearest integer that it can hold is stored instead.
    Saturate,
    /// Nothing is stored.
    Fail,
}

impl Field {
    /// Parses a type, such as `i5` or `u63`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (is_signed, widest, width) = match text {
            [b'i', width @ ..] => (true, 64, width),
            [b'u', width @ ..] => (false, 63, width),
            _ => return None,
        };
        let width = crate::resp::parse_u64(width)?;
        (1..=widest).contains(&width).then_some(Self {
            is_signed,
            width: width as u32,
        })
    }

    /// The number of bits.
    pub fn width(self) -> u32 {
        self.width
    }

    fn greatest(self) -> i128 {
        (1 << (self.width - u32::from(self.is_signed))) - 1
    }

    fn least(self) -> i128 {
        if self.is_signed {
            -self.greatest() - 1
        } else {
            0
        }
    }

    /// The integer at bit `offset` of `value`, which is followed by zeros.
    pub fn read(self, value: &[u8], offset: usize) -> i64 {
        let bytes = value.get(offset / 8..).unwrap_or_default();
        let bits = load(bytes) << (offset % 8) >> (128 - self.width);
        self.wrap(bits as i128)
    }

    /// Stores an integer that fits at bit `offset` of `value`, which must be long enough.
    pub fn write(self, value: &mut [u8], offset: usize, integer: i64) {
        let bytes = &mut value[offset / 8..(offset + self.width as usize).div_ceil(8)];
        let below = 128 - self.width - (offset % 8) as u32;
        let mask = (u128::MAX >> (128 - self.width)) << below;
        let bits = load(bytes) & !mask | (integer as u128) << below & mask;
        let len = bytes.len();
        bytes.copy_from_slice(&bits.to_be_bytes()[..len]);
    }

    /// The integer to store when a client sends `integer`; `None` to store nothing.
    pub fn fit(self, integer: i64, overflow: Overflow) -> Option<i64> {
        let mut value = i128::from(integer);
        // As in Redis, a negative integer counts as too large, not too small, for an unsigned
        // field. So does an integer for a signed field that exceeds its maximum by more than 64
        // bits can express.
        let is_far =
            self.is_signed && self.width < 64 && self.greatest() - value > i128::from(i64::MAX);
        if integer < 0 && !self.is_signed || is_far {
            value += 1 << 64;
        }
        self.fit_any(value, overflow)
    }

    /// The integer to store for the sum of the field's current one and `increment`; `None` to store
    /// nothing.
    pub fn add(self, integer: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        self.fit_any(i128::from(integer) + i128::from(increment), overflow)
    }

    fn fit_any(self, value: i128, overflow: Overflow) -> Option<i64> {
        let fitting = value.clamp(self.least(), self.greatest());
        match overflow {
            Overflow::Fail if fitting != value => None,
            Overflow::Wrap => Some(self.wrap(value)),
            // It lies between two 64-bit integers.
            Overflow::Fail | Overflow::Saturate => Some(fitting as i64),
        }
    }

    /// The lowest bits of `value`, as many as the field has.
    fn wrap(self, value: i128) -> i64 {
        let unused = 128 - self.width;
        if self.is_signed {
            (value << unused >> unused) as i64
        } else {
            ((value as u128) << unused >> unused) as i64
        }
    }
}

/// The first 16 of `bytes`, or all of them followed by zeros.
fn load(bytes: &[u8]) -> u128 {
    let mut window = [0; 16];
    let len = bytes.len().min(16);
    window[..len].copy_from_slice(&bytes[..len]);
    u128::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_written_anywhere_is_read_back_and_nothing_else_changes() {
        for (name, width) in [
            ("i64", 64),
            ("u63", 63),
            ("i1", 1),
            ("u1", 1),
            ("u7", 7),
            ("i33", 33),
        ] {
            let field = Field::parse(name.as_bytes()).unwrap();
            for offset in 0..70 {
                for background in [0, 0xff, 0xa5] {
                    let mut value = [background; 20];
                    let integer = field.wrap(0x5bd1_e995_9bd1_e995_u64.into());
                    field.write(&mut value, offset, integer);
                    assert_eq!(field.read(&value, offset), integer, "{name} at {offset}");
                    let outside = |at: usize| !(offset..offset + width).contains(&at);
                    for at in (0..160).filter(|at| outside(*at)) {
                        let bit = |byte: u8| byte >> (7 - at % 8) & 1;
                        assert_eq!(
                            bit(value[at / 8]),
                            bit(background),
                            "{name} at {offset}: {at}"
                        );
                    }
                }
            }
        }
        for name in ["u64", "i65", "u0", "i", "8", "I8", "i08"] {
            assert_eq!(Field::parse(name.as_bytes()), None);
        }
    }
}
