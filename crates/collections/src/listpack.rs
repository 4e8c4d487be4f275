//! Redis' listpack: values in one piece of memory, each preceded by its length.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | length of the whole, little-endian |
//! | 4..6 | number of entries; 65535: it has to be counted |
//! | then | the entries, and `ff` |
//!
//! An entry is a head, the bytes of a string, and the length of both (7 bits a byte, the highest
//! first; all but the first byte have bit 7). The head gives the form of the entry:
//!
//! | head | what |
//! |---|---|
//! | `0vvvvvvv` | an integer, 0 to 127 |
//! | `10llllll` | a string of up to 63 bytes |
//! | `110vvvvv v` | an integer of 13 bits |
//! | `1110llll l` | a string of up to 4095 bytes |
//! | `f0`, 4 bytes | a longer string |
//! | `f1`, 2; `f2`, 3; `f3`, 4; `f4`, 8 bytes | an integer of as many bytes |
//!
//! Entries are always written in the shortest form, so that equal values have equal bytes. A string
//! that is the decimal form of a 64-bit integer is stored as that integer.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Damage;

/// Bytes before the first entry.
pub const HEAD: usize = 6;
/// The byte after the last entry.
const END: u8 = 0xff;
/// As a number of entries: at least this many.
const MANY: u16 = u16::MAX;
/// The longest integer: its digits and a sign.
const LONGEST_INTEGER: usize = 20;

/// A listpack without entries.
pub const EMPTY: [u8; HEAD + 1] = [7, 0, 0, 0, 0, 0, END];

/// A value of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element<'b> {
    /// A string that is not an integer.
    Bytes(&'b [u8]),
    /// An integer, which stands for its decimal form.
    Integer(i64),
}

impl Element<'_> {
    /// Appends the value as a string. O(its length).
    pub fn append_to(&self, to: &mut Vec<u8>) {
        match self {
            Element::Bytes(bytes) => to.extend_from_slice(bytes),
            Element::Integer(number) => to.extend_from_slice(Digits::of(*number).bytes()),
        }
    }

    /// Calls `visit` with the value as a string. O(1) plus the visit.
    pub fn with_bytes<R>(&self, visit: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Element::Bytes(bytes) => visit(bytes),
            Element::Integer(number) => visit(Digits::of(*number).bytes()),
        }
    }

    /// The value as a string of its own. O(its length).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// The length of the value as a string, in bytes. O(1).
    #[must_use]
    pub fn string_len(&self) -> usize {
        self.with_bytes(<[u8]>::len)
    }
}

/// An integer's decimal form.
pub(crate) struct Digits {
    bytes: [u8; LONGEST_INTEGER],
    begin: usize,
}

impl Digits {
    pub fn of(number: i64) -> Digits {
        let (mut bytes, mut begin) = ([0; LONGEST_INTEGER], LONGEST_INTEGER);
        let mut rest = number.unsigned_abs();
        loop {
            begin -= 1;
            bytes[begin] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            begin -= 1;
            bytes[begin] = b'-';
        }
        Digits { bytes, begin }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

/// The integer whose decimal form is `bytes`: without a sign other than `-`, and without leading
/// zeros.
#[must_use]
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if bytes.len() <= LONGEST_INTEGER => {}
        _ => return None,
    }
    let mut number = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        let next = number.checked_mul(10)?;
        number = match negative {
            true => next.checked_sub(digit)?,
            false => next.checked_add(digit)?,
        };
    }
    Some(number)
}

/// A value in the encoded form of an entry, for writing and for searching.
#[derive(Clone, Copy)]
pub struct Encoded<'v> {
    head: [u8; 9],
    head_len: usize,
    string: &'v [u8],
}

impl<'v> Encoded<'v> {
    /// The shortest form of a string of less than 4 GiB. O(1).
    #[must_use]
    pub fn of(value: &'v [u8]) -> Encoded<'v> {
        match integer(value) {
            Some(number) => Encoded::of_integer(number),
            None => Encoded::of_string(value),
        }
    }

    fn of_string(string: &'v [u8]) -> Encoded<'v> {
        let len = string.len() as u32;
        let [low, high, ..] = len.to_le_bytes();
        let (head, head_len): ([u8; 5], _) = match len {
            0..64 => ([0x80 | low, 0, 0, 0, 0], 1),
            64..4096 => ([0xe0 | high, low, 0, 0, 0], 2),
            _ => {
                let [a, b, c, d] = len.to_le_bytes();
                ([0xf0, a, b, c, d], 5)
            }
        };
        Encoded::with_head(&head[..head_len], string)
    }

    /// The shortest form of an integer. O(1).
    pub(crate) fn of_integer(number: i64) -> Encoded<'v> {
        let bytes = number.to_le_bytes();
        let with_code = |code: u8, len: usize| {
            let mut head = [code, 0, 0, 0, 0, 0, 0, 0, 0];
            head[1..=len].copy_from_slice(&bytes[..len]);
            Encoded::with_head(&head[..=len], &[])
        };
        match number {
            0..128 => Encoded::with_head(&[bytes[0]], &[]),
            -4096..4096 => Encoded::with_head(&[0xc0 | bytes[1] & 0x1f, bytes[0]], &[]),
            -0x8000..0x8000 => with_code(0xf1, 2),
            -0x80_0000..0x80_0000 => with_code(0xf2, 3),
            -0x8000_0000..0x8000_0000 => with_code(0xf3, 4),
            _ => with_code(0xf4, 8),
        }
    }

    fn with_head(bytes: &[u8], string: &'v [u8]) -> Encoded<'v> {
        let mut head = [0; 9];
        head[..bytes.len()].copy_from_slice(bytes);
        Encoded {
            head,
            head_len: bytes.len(),
            string,
        }
    }

    fn body_len(&self) -> usize {
        self.head_len + self.string.len()
    }

    /// The size of the entry in bytes. O(1).
    #[must_use]
    pub fn entry_len(&self) -> usize {
        self.body_len() + back_len(self.body_len())
    }

    /// Appends the entry. O(its length).
    pub fn append_to(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.head[..self.head_len]);
        to.extend_from_slice(self.string);
        let (back, begin) = self.back();
        to.extend_from_slice(&back[begin..]);
    }

    /// Writes the entry, and returns the rest of `to`. O(its length).
    fn write_to<'t>(&self, to: &'t mut [u8]) -> &'t mut [u8] {
        let (head, to) = to.split_at_mut(self.head_len);
        head.copy_from_slice(&self.head[..self.head_len]);
        let (string, to) = to.split_at_mut(self.string.len());
        string.copy_from_slice(self.string);
        let (back, begin) = self.back();
        let (end, to) = to.split_at_mut(back.len() - begin);
        end.copy_from_slice(&back[begin..]);
        to
    }

    /// Whether the entry at the start of `bytes` has this value.
    #[inline]
    fn begins(&self, bytes: &[u8]) -> bool {
        let body = bytes.get(..self.body_len());
        body.is_some_and(|body| self.is(body))
    }

    /// The part that is compared first. Strings often begin alike, so this is the end of a long
    /// one.
    #[inline]
    fn mark(&self) -> Mark {
        if let Some(end) = self.string.last_chunk::<8>() {
            return Mark {
                offset: self.body_len() - 8,
                mask: u64::MAX,
                word: u64::from_le_bytes(*end),
            };
        }
        let mut word = [0; 8];
        let body = self.head[..self.head_len].iter().chain(self.string);
        word.iter_mut().zip(body).for_each(|(to, byte)| *to = *byte);
        let unused = 8 - self.body_len().min(8) as u32;
        Mark {
            offset: 0,
            mask: u64::MAX >> (8 * unused),
            word: u64::from_le_bytes(word),
        }
    }

    /// The encoded length of head and string, and the index of its first byte.
    fn back(&self) -> ([u8; LONGEST_BACK], usize) {
        let (mut back, mut rest) = ([0; LONGEST_BACK], self.body_len());
        let begin = LONGEST_BACK - back_len(rest);
        for (i, byte) in back.iter_mut().enumerate().skip(begin).rev() {
            let first = if i == begin { 0 } else { 0x80 };
            *byte = rest as u8 & 0x7f | first;
            rest >>= 7;
        }
        (back, begin)
    }

    /// Whether an entry with this body has this value; both must be in the shortest form.
    #[inline]
    fn is(&self, body: &[u8]) -> bool {
        body.len() == self.body_len()
            && body[..self.head_len] == self.head[..self.head_len]
            && body[self.head_len..] == *self.string
    }
}

/// Up to eight bytes of an encoded value, which differ in most other values.
#[derive(Clone, Copy)]
struct Mark {
    /// Their offset in the entry.
    offset: usize,
    mask: u64,
    word: u64,
}

impl Mark {
    /// Whether the entry at the start of `bytes` may have the value.
    #[inline]
    fn may_be_in(&self, bytes: &[u8]) -> bool {
        let there = bytes.get(self.offset..);
        match there.and_then(<[u8]>::first_chunk::<8>) {
            Some(word) => u64::from_le_bytes(*word) & self.mask == self.word,
            None => true,
        }
    }
}

/// The maximum number of bytes of the encoded length of head and string.
const LONGEST_BACK: usize = 5;

/// The number of bytes of the encoded length of head and string.
#[inline]
const fn back_len(body: usize) -> usize {
    match body {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// An entry in place.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'b> {
    body: &'b [u8],
    head_len: usize,
    /// Its offset in the listpack.
    pub begin: usize,
    /// The offset of the next entry.
    pub end: usize,
}

impl<'b> Entry<'b> {
    /// Its value. O(1).
    #[must_use]
    pub fn value(&self) -> Element<'b> {
        let (head, string) = self.body.split_at(self.head_len);
        let signed = |bytes: &[u8]| {
            let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut word = [if negative { 0xff } else { 0 }; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            i64::from_le_bytes(word)
        };
        match head {
            [small @ 0..0x80] => Element::Integer(i64::from(*small)),
            [high @ 0xc0..0xe0, low] => Element::Integer(of_13_bits(*high, *low)),
            [0xf1..=0xf4, bytes @ ..] => Element::Integer(signed(bytes)),
            _ => Element::Bytes(string),
        }
    }

    /// Whether it has this value. O(length).
    #[inline]
    #[must_use]
    pub fn is(&self, value: &Encoded<'_>) -> bool {
        value.is(self.body)
    }
}

/// The integer in these bytes: its sign is bit 4 of the first one.
#[inline]
fn of_13_bits(high: u8, low: u8) -> i64 {
    let high = (high << 3) as i8 >> 3;
    i64::from(high) << 8 | i64::from(low)
}

/// A listpack, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Listpack<'b> {
    bytes: &'b [u8],
}

impl<'b> Listpack<'b> {
    /// Reads a listpack, checking only its head and its end. O(1).
    ///
    /// # Errors
    /// The head or the end are not those of a listpack of this length.
    pub fn read(bytes: &'b [u8]) -> Result<Listpack<'b>, Damage> {
        let damage = |at, what| Err(Damage { at, what });
        if bytes.len() < EMPTY.len() {
            return damage(0, "a listpack that is shorter than an empty one");
        }
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if length as usize != bytes.len() {
            return damage(0, "a listpack that says another length");
        }
        match bytes.last() {
            Some(&END) => Ok(Listpack { bytes }),
            _ => damage(bytes.len() - 1, "a listpack without its end"),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// The number of entries that its head gives; `None`: they must be counted. O(1).
    #[must_use]
    pub fn said_len(&self) -> Option<usize> {
        let said = u16::from_le_bytes([self.bytes[4], self.bytes[5]]);
        (said != MANY).then_some(usize::from(said))
    }

    /// Its entries, in order. Damage ends the iteration. O(1) for each.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> Entries<'b> {
        Entries {
            bytes: self.bytes,
            at: HEAD,
        }
    }

    /// Its entries, the last one first. Damage ends the iteration. O(1) for each.
    #[inline]
    #[must_use]
    pub fn entries_back(&self) -> EntriesBack<'b> {
        self.entries_before(self.bytes.len() - 1)
    }

    /// The entries before the one that begins at `end`, the last one first.
    #[inline]
    pub(crate) fn entries_before(&self, end: usize) -> EntriesBack<'b> {
        EntriesBack {
            bytes: self.bytes,
            end,
        }
    }

    /// Its elements of `ENTRIES` entries each, from the one that begins at `at` on, for passing
    /// over them quickly.
    #[inline]
    pub(crate) fn walk<const ENTRIES: usize>(&self, at: usize) -> ElementWalk<'b, ENTRIES> {
        ElementWalk {
            entries: Entries::at(self.bytes, at),
            classes: [NO_CLASS; ENTRIES],
            lens: [0; ENTRIES],
        }
    }

    /// The first element whose first entry has this value. O(bytes).
    ///
    /// # Errors
    /// An entry is damaged, or the last element has too few entries.
    #[inline]
    pub(crate) fn find<const ENTRIES: usize>(
        &self,
        sought: &Encoded<'_>,
    ) -> Result<Option<Passed<'b, ENTRIES>>, Damage> {
        let class = match CLASSES[usize::from(sought.head[0])] {
            ANY_LEN => NO_CLASS,
            class => class,
        };
        let mark = sought.mark();
        let (mut walk, mut before) = (self.walk::<ENTRIES>(HEAD), 0);
        while let Some(at) = walk.pass()? {
            if walk.classes[0] == class
                && mark.may_be_in(&self.bytes[at..])
                && sought.begins(&self.bytes[at..])
            {
                let entries = walk.entries_of(at)?;
                return Ok(Some(Passed { entries, before }));
            }
            before += 1;
        }
        Ok(None)
    }

    /// The end of the entry at `at`. O(1).
    #[inline]
    pub(crate) fn end_of(&self, at: usize) -> Result<usize, Damage> {
        let len = match self.bytes[at] {
            0..0x80 => 2,
            head @ 0x80..0xc0 => 2 + usize::from(head & 0x3f),
            0xc0..0xe0 => 3,
            _ => return Ok(Entries::at(self.bytes, at).entry(at)?.end),
        };
        match at + len < self.bytes.len() {
            true => Ok(at + len),
            false => Err(beyond(at)),
        }
    }

    /// Reads everything, and compares what the head and the entries say twice. O(entries).
    ///
    /// # Errors
    /// The listpack contradicts itself.
    pub fn check(&self) -> Result<(), Damage> {
        let (mut count, mut expected) = (0, Vec::new());
        for entry in self.entries() {
            let entry = entry?;
            count += 1;
            expected.clear();
            entry.value().with_bytes(|bytes| {
                match entry.value() {
                    Element::Integer(number) => Encoded::of_integer(number),
                    Element::Bytes(_) => Encoded::of_string(bytes),
                }
                .append_to(&mut expected);
            });
            if self.bytes[entry.begin..entry.end] != expected {
                return Err(Damage {
                    at: entry.begin,
                    what: "an entry that is not in its shortest form, or says another length",
                });
            }
        }
        match self.said_len() {
            Some(said) if said != count => Err(Damage {
                at: 4,
                what: "a listpack that says another number of entries",
            }),
            _ => Ok(()),
        }
    }
}

/// The entries of a listpack.
#[derive(Clone, Debug)]
pub struct Entries<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Entries<'b> {
    /// The entries of a listpack from the one that begins at `at` on, before the end.
    pub(crate) fn at(listpack: &'b [u8], at: usize) -> Entries<'b> {
        Entries {
            bytes: listpack,
            at,
        }
    }

    /// The offset of the next entry, or of the end.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    /// The entry at `at`, if it lies before the end of the listpack.
    #[inline]
    fn entry(&self, at: usize) -> Result<Entry<'b>, Damage> {
        // Without the last byte, the end mark.
        let bytes = &self.bytes[at..self.bytes.len() - 1];
        let lengths = match bytes {
            [0..0x80, ..] => Some((1, 0)),
            [head @ 0x80..0xc0, ..] => Some((1, usize::from(head & 0x3f))),
            [0xc0..0xe0, ..] => Some((2, 0)),
            [high @ 0xe0..=0xef, low, ..] => {
                Some((2, usize::from(high & 0x0f) << 8 | usize::from(*low)))
            }
            [0xf0, a, b, c, d, ..] => Some((5, u32::from_le_bytes([*a, *b, *c, *d]) as usize)),
            [0xf1, ..] => Some((3, 0)),
            [0xf2, ..] => Some((4, 0)),
            [0xf3, ..] => Some((5, 0)),
            [0xf4, ..] => Some((9, 0)),
            _ => None,
        };
        let Some((head_len, string)) = lengths else {
            return Err(Damage {
                at,
                what: "an entry of an unknown form",
            });
        };
        let body = head_len + string;
        let len = body + back_len(body);
        if len > bytes.len() {
            return Err(beyond(at));
        }
        Ok(Entry {
            body: &bytes[..body],
            head_len,
            begin: at,
            end: at + len,
        })
    }
}

/// An element found by an [`ElementWalk`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed<'b, const ENTRIES: usize> {
    pub entries: [Entry<'b>; ENTRIES],
    /// The number of elements before it.
    pub before: usize,
}

/// Entries of one class have the same length. This is the class for each first byte.
const CLASSES: [u8; 256] = {
    let (mut classes, mut head) = ([ANY_LEN; 256], 0);
    while head < classes.len() {
        classes[head] = match head as u8 {
            0..0x80 => 0,
            0xc0..0xe0 => 0xc0,
            class @ (0x80..0xc0 | 0xf1..=0xf4) => class,
            _ => ANY_LEN,
        };
        head += 1;
    }
    classes
};
/// The class of entries whose length depends on more than the first byte, and of invalid ones.
const ANY_LEN: u8 = 0xff;
/// A class that no entry has.
const NO_CLASS: u8 = 0xfe;

/// A walk along elements of `ENTRIES` entries each.
///
/// Consecutive elements often have the same length. Then the start of the next element is known
/// before its lengths are read, and they only need to be compared.
pub(crate) struct ElementWalk<'b, const ENTRIES: usize> {
    entries: Entries<'b>,
    /// The classes and lengths of the entries of the last element passed.
    classes: [u8; ENTRIES],
    lens: [usize; ENTRIES],
}

impl<'b, const ENTRIES: usize> ElementWalk<'b, ENTRIES> {
    /// Passes an element, and returns its offset.
    #[inline(always)]
    pub fn pass(&mut self) -> Result<Option<usize>, Damage> {
        let (bytes, begin) = (self.entries.bytes, self.entries.at);
        // Without the last byte, the end mark.
        let end = bytes.len() - 1;
        if begin >= end {
            return Ok(None);
        }
        let next = begin + self.lens.iter().sum::<usize>();
        let class = |at: usize| CLASSES[usize::from(bytes[at])];
        let is_alike = next <= end
            && class(begin) == self.classes[0]
            && (ENTRIES == 1 || class(begin + self.lens[0]) == self.classes[ENTRIES - 1]);
        self.entries.at = match is_alike {
            true => next,
            false => self.measure(begin)?,
        };
        Ok(Some(begin))
    }

    /// The entries of the element at `at`, which must have been passed.
    pub fn entries_of(&self, at: usize) -> Result<[Entry<'b>; ENTRIES], Damage> {
        let mut entries = [self.entries.entry(at)?; ENTRIES];
        for i in 1..ENTRIES {
            entries[i] = self.entries.entry(entries[i - 1].end)?;
        }
        Ok(entries)
    }

    /// The value of the last entry of the last element passed.
    #[inline(always)]
    pub fn last_value(&self) -> Result<Element<'b>, Damage> {
        let at = self.entries.at - self.lens[ENTRIES - 1];
        let bits = match self.classes[ENTRIES - 1] {
            0 => return Ok(Element::Integer(i64::from(self.entries.bytes[at]))),
            0xc0 => {
                let (high, low) = (self.entries.bytes[at], self.entries.bytes[at + 1]);
                return Ok(Element::Integer(of_13_bits(high, low)));
            }
            0xf1 => 16,
            0xf2 => 24,
            0xf3 => 32,
            0xf4 => 64,
            _ => return Ok(self.entries.entry(at)?.value()),
        };
        match self.entries.bytes[at + 1..].first_chunk::<8>() {
            Some(word) => {
                let word = i64::from_le_bytes(*word);
                Ok(Element::Integer(word << (64 - bits) >> (64 - bits)))
            }
            None => Ok(self.entries.entry(at)?.value()),
        }
    }

    /// Measures the element at `at`, and returns the offset of the next one.
    #[inline(never)]
    fn measure(&mut self, at: usize) -> Result<usize, Damage> {
        let mut next = at;
        for (class, len) in self.classes.iter_mut().zip(&mut self.lens) {
            if next + 1 >= self.entries.bytes.len() {
                return Err(Damage {
                    at,
                    what: "an element with an entry too few",
                });
            }
            let entry = self.entries.entry(next)?;
            *len = entry.end - next;
            *class = match CLASSES[usize::from(self.entries.bytes[next])] {
                ANY_LEN => NO_CLASS,
                class => class,
            };
            next = entry.end;
        }
        Ok(next)
    }
}

#[cold]
fn beyond(at: usize) -> Damage {
    Damage {
        at,
        what: "an entry that goes beyond its listpack",
    }
}

impl<'b> Iterator for Entries<'b> {
    type Item = Result<Entry<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The last byte is the end mark, which `Listpack::read` has checked.
        if self.at + 1 >= self.bytes.len() {
            return None;
        }
        let entry = self.entry(self.at);
        self.at = match &entry {
            Ok(entry) => entry.end,
            Err(_) => self.bytes.len(),
        };
        Some(entry)
    }
}

/// The entries of a listpack, the last one first.
#[derive(Clone, Debug)]
pub struct EntriesBack<'b> {
    bytes: &'b [u8],
    /// The end of the next entry.
    end: usize,
}

impl<'b> EntriesBack<'b> {
    /// The entry that ends at `end`.
    fn entry(&self, end: usize) -> Result<Entry<'b>, Damage> {
        let damage = |at, what| Err(Damage { at, what });
        let (mut body, mut shift) = (0usize, 0);
        for at in (HEAD..end).rev().take(5) {
            body |= usize::from(self.bytes[at] & 0x7f) << shift;
            shift += 7;
            if self.bytes[at] & 0x80 != 0 {
                continue;
            }
            let entries = Entries {
                bytes: self.bytes,
                at: HEAD,
            };
            let begin = at.checked_sub(body).filter(|begin| *begin >= HEAD);
            let Some(begin) = begin else {
                return damage(at, "an entry that begins before its listpack");
            };
            let entry = entries.entry(begin)?;
            return match entry.end == end {
                true => Ok(entry),
                false => damage(at, "an entry that says another length behind it"),
            };
        }
        damage(end, "an entry without a length behind it")
    }
}

impl<'b> Iterator for EntriesBack<'b> {
    type Item = Result<Entry<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.end <= HEAD {
            return None;
        }
        let entry = self.entry(self.end);
        self.end = match &entry {
            Ok(entry) => entry.begin,
            Err(_) => HEAD,
        };
        Some(entry)
    }
}

/// Replaces the entries at `place` in an image with a listpack.
pub(crate) fn splice(image: &mut Vec<u8>, place: Range<usize>, entries: &[Encoded<'_>]) {
    let (old, len) = (image.len(), entries.iter().map(Encoded::entry_len).sum());
    let end = place.start + len;
    match place.len().cmp(&len) {
        Ordering::Less => {
            image.resize(old + len - place.len(), 0);
            image.copy_within(place.end..old, end);
        }
        Ordering::Greater => {
            image.copy_within(place.end.., end);
            image.truncate(old + len - place.len());
        }
        Ordering::Equal => {}
    }
    let to = &mut image[place.start..end];
    entries.iter().fold(to, |to, entry| entry.write_to(to));
}

/// Writes the length and the number of entries into the head of a listpack whose entries are
/// complete. `count` is the number, if it is known.
pub(crate) fn finish(listpack: &mut [u8], count: Option<usize>) {
    let head = head_of(listpack.len(), count);
    listpack[..HEAD].copy_from_slice(&head);
}

/// The head of a listpack of `len` bytes with `count` entries, if the number is known.
pub(crate) fn head_of(len: usize, count: Option<usize>) -> [u8; HEAD] {
    let [a, b, c, d] = (len as u32).to_le_bytes();
    let count = count.map_or(MANY, |count| u16::try_from(count).unwrap_or(MANY));
    let [e, f] = count.to_le_bytes();
    [a, b, c, d, e, f]
}

/// A listpack of these values, in order. O(their bytes).
#[must_use]
pub fn of<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Vec<u8> {
    let (mut bytes, mut count) = (EMPTY[..HEAD].to_vec(), 0);
    for value in values {
        Encoded::of(value).append_to(&mut bytes);
        count += 1;
    }
    bytes.push(END);
    finish(&mut bytes, Some(count));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(bytes: &[u8]) -> Vec<Vec<u8>> {
        let entries = Listpack::read(bytes).unwrap().entries();
        entries
            .map(|entry| entry.unwrap().value().to_vec())
            .collect()
    }

    #[test]
    fn a_listpack_has_the_bytes_that_redis_writes() {
        // As in `DEBUG LISTPACK` and `DUMP` of Redis 7.0.
        let bytes = of([&b"a"[..], b"1", b"-1", b"4095", b"hello"]);
        let expected = [
            &[28, 0, 0, 0, 5, 0][..],
            &[0x81, b'a', 2],
            &[1, 1],
            &[0xdf, 0xff, 2],
            &[0xcf, 0xff, 2],
            &[0x85, b'h', b'e', b'l', b'l', b'o', 6],
            &[0xff],
        ];
        let expected = expected.concat();
        assert_eq!(bytes[HEAD..], expected[HEAD..]);
        assert_eq!(values(&bytes).len(), 5);
        assert_eq!(of([]), EMPTY);
    }

    /// With a pair that never ends, this would loop.
    #[test]
    fn an_element_is_sought_to_the_end_in_any_bytes() {
        let sought = Encoded::of(b"field");
        for (first, second) in (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).map(move |b| (a, b))) {
            let mut image = [0; HEAD].to_vec();
            image.extend([first, second, first, second, END]);
            finish(&mut image, Some(2));
            let listpack = Listpack::read(&image).unwrap();
            assert!(!matches!(listpack.find::<2>(&sought), Ok(Some(_))));
            assert!(!matches!(listpack.find::<1>(&sought), Ok(Some(_))));
        }
    }

    #[test]
    fn each_value_is_found_where_it_lies() {
        let integers = (0..40).map(|i: i64| ((i - 20) * (1 << i)).to_string());
        let strings = (0..40).map(|len| format!("{:>len$}", 'x'));
        let alike = (100..200).map(|i| format!("member:{i}:end"));
        let long = (60..70).chain(4090..4100).map(|len| "y".repeat(len));
        let mut all: Vec<String> = integers.chain(strings).chain(alike).chain(long).collect();
        all.sort();
        all.dedup();
        let (sought, others): (Vec<_>, Vec<_>) = all
            .iter()
            .map(String::as_bytes)
            .enumerate()
            .partition(|(i, _)| i % 3 > 0);
        let bytes = of(sought.iter().map(|(_, value)| *value));
        let listpack = Listpack::read(&bytes).unwrap();
        for ((_, value), entry) in sought.into_iter().zip(listpack.entries()) {
            let found = listpack.find::<1>(&Encoded::of(value)).unwrap().unwrap();
            assert_eq!(found.entries[0].begin, entry.unwrap().begin);
        }
        for (_, value) in others {
            assert!(listpack.find::<1>(&Encoded::of(value)).unwrap().is_none());
        }
    }

    #[test]
    fn values_of_each_class_of_lengths_come_back() {
        let lengths = [
            0, 1, 2, 62, 63, 64, 65, 126, 127, 128, 4094, 4095, 4096, 16_377, 16_378, 16_379,
            16_380, 16_384, 2_097_145, 2_097_146, 2_097_147, 2_097_152,
        ];
        for len in lengths {
            let value = vec![b'x'; len];
            let bytes = of([&b"before"[..], &value, b"behind"]);
            assert_eq!(values(&bytes), [&b"before"[..], &value, b"behind"]);
            let back = Listpack::read(&bytes).unwrap().entries_back();
            let back: Vec<_> = back.map(|entry| entry.unwrap().value().to_vec()).collect();
            assert_eq!(back, [&b"behind"[..], &value, b"before"]);
            assert_eq!(Listpack::read(&bytes).unwrap().check(), Ok(()));
        }
    }

    #[test]
    fn integers_of_each_class_come_back_as_integers() {
        let mut edges = vec![0];
        for bits in [7, 12, 15, 23, 31, 62] {
            let edge = 1i64 << bits;
            edges.extend([edge - 1, edge, edge + 1, -edge - 1, -edge, 1 - edge]);
        }
        edges.extend([i64::MAX, i64::MIN]);
        for number in edges {
            let text = number.to_string();
            assert_eq!(integer(text.as_bytes()), Some(number));
            let bytes = of([text.as_bytes()]);
            let entry = Listpack::read(&bytes).unwrap().entries().next();
            assert_eq!(entry.unwrap().unwrap().value(), Element::Integer(number));
            assert_eq!(Listpack::read(&bytes).unwrap().check(), Ok(()));
        }
    }

    #[test]
    fn a_string_that_is_not_the_decimal_form_of_an_integer_stays_one() {
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "123456789012345678901",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
            assert_eq!(values(&of([text.as_bytes()])), [text.as_bytes()]);
        }
    }

    #[test]
    fn many_entries_are_counted_by_readers() {
        let bytes = of(std::iter::repeat_n(&b"v"[..], 70_000));
        let read = Listpack::read(&bytes).unwrap();
        assert_eq!((read.said_len(), read.entries().count()), (None, 70_000));
        assert_eq!(read.check(), Ok(()));
    }
}
