//! The order of names: as bytes, but runs of digits by their numbers.
//!
//! `read9` comes before `read10`. Of equal numbers the one with more zeros before it comes first, and a name comes before
//! those that continue it: the order of samtools' `sort -n`.

use std::cmp::{Ordering, Reverse};

/// Flags that say which read of its template it is.
const WHICH: u16 = 0xc0;

/// What orders a read by name; the rank makes every key unique.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// The beginning of the name, such that comparing it as a number compares the names; zeros where the name ends.
    start: u128,
    name: &'a [u8],
    which: u16,
    /// The rank before sorting.
    pub rank: u32,
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.start
            .cmp(&other.start)
            .then_with(|| compare(self.name, other.name))
            .then(self.which.cmp(&other.which))
            .then(self.rank.cmp(&other.rank))
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

/// The keys of reads, by names and flags. What all names begin with is left out, or the first bytes would tell nothing.
pub fn keys<'a>(reads: &[(&'a [u8], u16)]) -> Vec<Key<'a>> {
    let common = common(reads.iter().map(|(name, _)| *name));
    (0..)
        .zip(reads)
        .map(|(rank, (name, flags))| Key {
            start: start(&name[common..]),
            name: &name[common..],
            which: flags & WHICH,
            rank,
        })
        .collect()
}

/// How many bytes all names begin with; never ends within a number.
fn common<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> usize {
    let Some(first) = names.next() else {
        return 0;
    };
    let same = |name: &[u8]| first.iter().zip(name).take_while(|(a, b)| a == b).count();
    let len = names.map(same).min().unwrap_or(0);
    let digits = first[..len]
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit());
    len - digits.count()
}

/// Compares two names.
fn compare(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        match (a, b) {
            ([x, ..], [y, ..]) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (left, right) = (Number::at_start_of(a), Number::at_start_of(b));
                match left.cmp(&right) {
                    Ordering::Equal => (a, b) = (&a[left.len()..], &b[right.len()..]),
                    order => return order,
                }
            }
            ([x, rest_a @ ..], [y, rest_b @ ..]) if x == y => (a, b) = (rest_a, rest_b),
            _ => return a.first().cmp(&b.first()),
        }
    }
}

/// A run of digits; the order of the fields is the order of numbers.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number<'a> {
    length: usize,
    digits: &'a [u8],
    zeros: Reverse<usize>,
}

impl<'a> Number<'a> {
    fn at_start_of(text: &'a [u8]) -> Self {
        let run =
            |text: &[u8], is: fn(&u8) -> bool| text.iter().take_while(|byte| is(byte)).count();
        let zeros = run(text, |byte| *byte == b'0');
        let length = run(&text[zeros..], u8::is_ascii_digit);
        Self {
            length,
            digits: &text[zeros..zeros + length],
            zeros: Reverse(zeros),
        }
    }

    fn len(&self) -> usize {
        self.zeros.0 + self.length
    }
}

/// The first 16 bytes of an encoding that is ordered as the names are: other bytes as they are; a number as `0`, how
/// many digits it has, the digits two a byte, and 255 less its zeros. Names have fewer than 255 bytes.
fn start(mut name: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let mut len = 0;
    let mut put = |byte| {
        if let Some(place) = bytes.get_mut(len) {
            *place = byte;
        }
        len += 1;
        len < 16
    };
    while let [first, rest @ ..] = name {
        if first.is_ascii_digit() {
            let number = Number::at_start_of(name);
            put(b'0');
            put(number.length as u8);
            for pair in number.digits.chunks(2) {
                put((pair[0] & 15) << 4 | pair.get(1).map_or(0, |digit| digit & 15));
            }
            if !put(u8::MAX - number.zeros.0 as u8) {
                break;
            }
            name = &name[number.len()..];
        } else {
            if !put(*first) {
                break;
            }
            name = rest;
        }
    }
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_count_as_numbers() {
        // `samtools sort -n` of version 1.16.1 puts them so.
        let sorted = [
            "a", "a00", "a00b", "a0", "a0b", "a01b1", "a1", "a1b", "a2", "a009", "a9", "a10", "ab",
            "b",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
        assert_eq!(names, sorted);
    }

    proptest! {
        #[test]
        fn keys_order_as_names_do(names in prop::collection::vec("(same)?[01]{0,3}[a:]?[0-9]{0,20}[b9/]{0,3}", 2..20)) {
            let reads: Vec<(&[u8], u16)> = names.iter().map(|name| (name.as_bytes(), 0)).collect();
            let mut keys = keys(&reads);
            keys.sort();
            let by_keys: Vec<&str> = keys.iter().map(|key| &*names[key.rank as usize]).collect();
            let mut by_names: Vec<&str> = names.iter().map(|name| &**name).collect();
            by_names.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
            prop_assert_eq!(by_keys, by_names);
        }
    }
}
