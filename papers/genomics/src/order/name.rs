//! The order of names: as bytes, but runs of digits by their numbers.
//!
//! `read9` comes before `read10`. Of equal numbers the one with more zeros before it comes first,
//! and a name comes before those that continue it: the order of samtools' `sort -n`.

use std::cmp::{Ordering, Reverse};

/// Flags that say which read of its template it is.
const WHICH: u16 = 0xc0;

/// What orders a read by name.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The beginning of the name, such that comparing it as a number compares the names; zeros
    /// where the name ends.
    start: u128,
    /// Which read of the template it is.
    which: u16,
    /// The rank before sorting, which makes every key unique.
    pub rank: u32,
}

/// Reads to be sorted, by rank: names and flags.
#[derive(Debug)]
pub struct Names<'a> {
    reads: &'a [(&'a [u8], u16)],
    /// What all names begin with is left out of the keys, or their first bytes would tell nothing.
    common: usize,
}

impl<'a> Names<'a> {
    /// Looks at all names.
    pub fn new(reads: &'a [(&'a [u8], u16)]) -> Self {
        let common = common(reads.iter().map(|(name, _)| *name));
        Self { reads, common }
    }

    /// A key for every read.
    pub fn keys(&self) -> Vec<Key> {
        (0..)
            .zip(self.reads)
            .map(|(rank, (name, flags))| Key {
                start: start(&name[self.common..]),
                which: flags & WHICH,
                rank,
            })
            .collect()
    }

    /// The order of two reads by their keys; where they begin alike, by their names.
    pub fn compare(&self, a: &Key, b: &Key) -> Ordering {
        let name = |key: &Key| &self.reads[key.rank as usize].0[self.common..];
        let by_name = || match (name(a), name(b)) {
            // Reads of one template: most of what begins alike.
            (a, b) if a == b => Ordering::Equal,
            (a, b) => compare(a, b),
        };
        a.start
            .cmp(&b.start)
            .then_with(by_name)
            .then(a.which.cmp(&b.which))
            .then(a.rank.cmp(&b.rank))
    }
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

/// The first 16 bytes of an encoding that is ordered as the names are: other bytes as they are; a
/// number as `0`, how many digits it has, the digits two a byte, and 255 less its zeros. Names have
/// fewer than 255 bytes.
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
        fn sort_keys_order_as_the_names_do(names in prop::collection::vec("(same)?[01]{0,3}[a:]?[0-9]{0,20}[b9/]{0,3}", 2..20)) {
            let reads: Vec<(&[u8], u16)> = names.iter().map(|name| (name.as_bytes(), 0)).collect();
            let reads = Names::new(&reads);
            let mut keys = reads.keys();
            keys.sort_by(|a, b| reads.compare(a, b));
            let by_keys: Vec<&str> = keys.iter().map(|key| &*names[key.rank as usize]).collect();
            let mut by_names: Vec<&str> = names.iter().map(|name| &**name).collect();
            by_names.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
            prop_assert_eq!(by_keys, by_names);
        }
    }
}
