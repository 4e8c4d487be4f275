//! A hash or a set that is one image: **its elements in a listpack behind one byte**. The elements
//! of a hash are fields, each followed by its value; those of a set are members.
//!
//! That byte is the form in which Redis would keep the value. `OBJECT ENCODING` reports it, and
//! `HSCAN` and `SSCAN` depend on it: once a value is a table, it stays one.

use std::collections::HashMap;

use crate::error::Damage;
use crate::listpack::{EMPTY, Element, Encoded, Entries, Entry, HEAD, Listpack};
use crate::lot::Lot;

/// Bytes before the listpack.
pub(crate) const FORM: usize = 1;
/// The first byte: Redis would keep a hash as a listpack, or a set as an intset. The members of
/// such a set are integers in ascending order.
pub(crate) const PACKED: u8 = 0;
/// The first byte: Redis would keep it as a table.
pub(crate) const TABLE: u8 = 1;
/// From this number of elements on, they are searched for together.
pub(crate) const SEVERAL: usize = 8;
/// The number of bits of a cursor.
const CURSOR_BITS: u32 = 48;

/// A field and its value, or a member of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair<'b> {
    /// The field, or the member.
    pub field: Element<'b>,
    /// Its value; empty for a member of a set.
    pub value: Element<'b>,
}

/// An element in its encoded form. Two members of sets are equal if their bytes are.
#[derive(Clone, Copy, Debug)]
pub struct RawElement<'b> {
    bytes: &'b [u8],
    field: Element<'b>,
}

impl<'b> RawElement<'b> {
    /// The bytes of its entries.
    #[must_use]
    pub fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// The field, or the member.
    #[must_use]
    pub fn field(&self) -> Element<'b> {
        self.field
    }
}

/// The result of a step of a scan, see [`Packed::scan`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<'b> {
    /// The pairs.
    pub pairs: Vec<Pair<'b>>,
    /// The next cursor; 0: that was all.
    pub next: u64,
}

/// A packed hash or set, for reading. `ENTRIES` entries of the listpack make an element.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'b, const ENTRIES: usize> {
    is_table: bool,
    listpack: Listpack<'b>,
}

/// A packed hash, for reading.
pub type PackedHash<'b> = Packed<'b, 2>;

/// A packed set, for reading.
pub type PackedSet<'b> = Packed<'b, 1>;

impl<'b, const ENTRIES: usize> Packed<'b, ENTRIES> {
    /// Reads an image, checking only its head and its end. O(1).
    ///
    /// # Errors
    /// The image is not that of a value, by its head or its end.
    pub fn read(image: &'b [u8]) -> Result<Self, Damage> {
        let (is_table, listpack) = match image {
            [PACKED, listpack @ ..] => (false, listpack),
            [TABLE, listpack @ ..] => (true, listpack),
            _ => {
                return Err(Damage {
                    at: 0,
                    what: "a value of an unknown form",
                });
            }
        };
        let listpack = Listpack::read(listpack).map_err(in_image)?;
        Ok(Packed { is_table, listpack })
    }

    /// Whether Redis would keep it as a table, not as a listpack or an intset. O(1).
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// The number of elements. O(1) up to 32,767 of them, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn len(&self) -> Result<usize, Damage> {
        match self.listpack.said_len() {
            Some(said) => Ok(said / ENTRIES),
            None => self.count(),
        }
    }

    /// Counts its elements. O(bytes).
    pub(crate) fn count(&self) -> Result<usize, Damage> {
        let (mut entries, mut count) = (self.entries(), 0);
        while entries.found::<ENTRIES>().transpose()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// The bytes of the entries of all its elements.
    pub(crate) fn entry_bytes(&self) -> &'b [u8] {
        let bytes = self.listpack.bytes();
        &bytes[HEAD..bytes.len() - 1]
    }

    /// Whether there is no element. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listpack.bytes().len() == EMPTY.len()
    }

    /// The value of `field`, which is empty for a member of a set. `None`: there is no such
    /// element. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Result<Option<Element<'b>>, Damage> {
        let value = |found: FoundElement<'b>| match found.value {
            Some(value) => value.value(),
            None => NO_VALUE,
        };
        Ok(self.find(field)?.map(value))
    }

    /// Whether there is this field, or this member. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    #[inline]
    pub fn contains(&self, field: &[u8]) -> Result<bool, Damage> {
        Ok(self.find(field)?.is_some())
    }

    /// The values of `fields`, in this order, as for [`get`](Self::get). O(bytes + fields).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn get_many(&self, fields: &[&[u8]]) -> Result<Vec<Option<Element<'b>>>, Damage> {
        if fields.len() < SEVERAL {
            return fields.iter().map(|field| self.get(field)).collect();
        }
        let mut found: HashMap<&[u8], Option<Element<'b>>> =
            fields.iter().map(|field| (*field, None)).collect();
        for pair in self.pairs() {
            let pair = pair?;
            pair.field.with_bytes(|field| {
                if let Some(value) = found.get_mut(field) {
                    *value = Some(pair.value);
                }
            });
        }
        let value = |field| found.get(field).copied().flatten();
        Ok(fields.iter().map(|field| value(*field)).collect())
    }

    /// Its elements, in the order of the image. Damage ends the iteration. O(1) for each.
    #[must_use]
    pub fn pairs(&self) -> Pairs<'b, ENTRIES> {
        Pairs(self.entries())
    }

    /// Its elements in their encoded form, in the order of the image. Damage ends the iteration.
    /// O(1) for each.
    pub fn raw(&self) -> impl Iterator<Item = Result<RawElement<'b>, Damage>> + use<'b, ENTRIES> {
        let (packed, mut entries) = (*self, self.entries());
        let raw = move |found| packed.raw_of(found);
        std::iter::from_fn(move || Some(entries.found::<ENTRIES>()?.map(raw)))
    }

    /// This field and its value in their encoded form. `None`: there is no such field. O(bytes).
    pub(crate) fn find_raw(&self, field: &[u8]) -> Result<Option<RawElement<'b>>, Damage> {
        Ok(self.find(field)?.map(|found| self.raw_of(found)))
    }

    fn raw_of(&self, found: FoundElement<'b>) -> RawElement<'b> {
        RawElement {
            bytes: &self.listpack.bytes()[found.field.begin..found.end()],
            field: found.field.value(),
        }
    }

    /// Element number `index` in the order of the image: a random one, if the number is random.
    /// O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn nth(&self, index: usize) -> Result<Option<Pair<'b>>, Damage> {
        self.pairs().nth(index).transpose()
    }

    /// A step of a scan from `cursor` on, which is 0 at first: at least `count` elements, unless
    /// the end comes first. **Every element that exists throughout the scan is found at least
    /// once**, whatever is changed meanwhile: the scan visits the elements in the order of their
    /// hashes. O(bytes) each.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn scan(&self, cursor: u64, count: usize) -> Result<Step<'b>, Damage> {
        let mut found = Vec::new();
        for pair in self.pairs() {
            let pair = pair?;
            let place = pair.field.with_bytes(place);
            if place >= cursor {
                found.push((place, pair));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        let mut next = 0;
        if let Some((last, _)) = found.get(count.max(1) - 1) {
            // Elements with the same place belong to the same step.
            let last = *last;
            let end = found.partition_point(|(place, _)| *place <= last);
            if end < found.len() {
                found.truncate(end);
                next = last + 1;
            }
        }
        let pairs = found.into_iter().map(|(_, pair)| pair).collect();
        Ok(Step { pairs, next })
    }

    /// Reads everything and compares all redundant information. O(bytes).
    ///
    /// # Errors
    /// The image contradicts itself, or an element occurs twice.
    pub fn check(&self) -> Result<(), Damage> {
        self.listpack.check().map_err(in_image)?;
        let mut fields = HashMap::new();
        let mut entries = self.entries();
        let mut last = None;
        while let Some(FoundElement { field, .. }) = entries.found::<ENTRIES>().transpose()? {
            let damage = |what| {
                let at = field.begin + FORM;
                Err(Damage { at, what })
            };
            if fields.insert(field.value().to_vec(), ()).is_some() {
                return damage("an element that is there twice");
            }
            if ENTRIES == 1 && !self.is_table {
                match field.value() {
                    Element::Integer(number) if last.is_none_or(|last| last < number) => {
                        last = Some(number);
                    }
                    _ => return damage("a member of an intset that is out of order"),
                }
            }
        }
        Ok(())
    }

    /// A copy of its image. O(bytes).
    #[must_use]
    pub fn to_image(&self) -> Vec<u8> {
        let form = if self.is_table { TABLE } else { PACKED };
        [&[form][..], self.listpack.bytes()].concat()
    }

    /// The number of entries that the listpack's head gives; `None`: they must be counted.
    pub(crate) fn listpack_len(&self) -> Option<usize> {
        self.listpack.said_len()
    }

    fn entries(&self) -> InImage<'b> {
        InImage(self.listpack.entries())
    }

    /// The entries of `field` and its value.
    #[inline]
    pub(crate) fn find(&self, field: &[u8]) -> Result<Option<FoundElement<'b>>, Damage> {
        let found = self.listpack.find::<ENTRIES>(&Encoded::of(field));
        Ok(found.map_err(in_image)?.map(|found| FoundElement {
            field: found.entries[0],
            value: found.entries.get(1).copied(),
        }))
    }

    /// The place of integer `number` in an intset's image, or the place where it would be inserted.
    pub(crate) fn find_integer(&self, number: i64) -> Result<IntegerPlace, Damage> {
        for entry in self.entries() {
            let entry = entry?;
            let at = entry.begin + FORM;
            match entry.value() {
                Element::Integer(other) if other < number => {}
                Element::Integer(other) if other == number => return Ok(IntegerPlace::Taken),
                Element::Integer(_) => return Ok(IntegerPlace::Free(at)),
                Element::Bytes(_) => {
                    let what = "a member of an intset that is no integer";
                    return Err(Damage { at, what });
                }
            }
        }
        Ok(IntegerPlace::Free(self.listpack.bytes().len() - 1 + FORM))
    }
}

impl<'b> PackedSet<'b> {
    /// A uniformly random member; `None`: the set is empty. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn random(&self, lot: &mut Lot) -> Result<Option<Element<'b>>, Damage> {
        let pair = self.nth(lot.below(self.len()?))?;
        Ok(pair.map(|pair| pair.field))
    }

    /// Whether each of `members` is a member, in this order. O(bytes + members).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn contains_many(&self, members: &[RawElement<'_>]) -> Result<Vec<bool>, Damage> {
        let mut sought: HashMap<&[u8], bool> =
            members.iter().map(|member| (member.bytes, false)).collect();
        for member in self.raw() {
            if let Some(found) = sought.get_mut(member?.bytes) {
                *found = true;
            }
        }
        Ok(members.iter().map(|member| sought[member.bytes]).collect())
    }

    /// Its members, in the order of the image. Damage ends the iteration. O(1) for each.
    pub fn members(&self) -> impl Iterator<Item = Result<Element<'b>, Damage>> + use<'b> {
        self.pairs().map(|pair| pair.map(|pair| pair.field))
    }
}

/// The place of an integer among others in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntegerPlace {
    /// The integer is a member.
    Taken,
    /// It is not; its entry would begin here.
    Free(usize),
}

/// The value of a member of a set.
const NO_VALUE: Element<'static> = Element::Bytes(&[]);

/// The entries of an element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundElement<'b> {
    pub field: Entry<'b>,
    /// `None`: elements have no values.
    pub value: Option<Entry<'b>>,
}

impl FoundElement<'_> {
    /// The offset of the next element in the listpack.
    pub fn end(&self) -> usize {
        self.value.map_or(self.field.end, |value| value.end)
    }
}

/// The entries of a listpack, whose damage is reported by its place in the image.
struct InImage<'b>(Entries<'b>);

impl<'b> InImage<'b> {
    /// The next element, of `ENTRIES` entries.
    #[inline]
    fn found<const ENTRIES: usize>(&mut self) -> Option<Result<FoundElement<'b>, Damage>> {
        let field = match self.next()? {
            Ok(field) => field,
            Err(damage) => return Some(Err(damage)),
        };
        if ENTRIES == 1 {
            return Some(Ok(FoundElement { field, value: None }));
        }
        Some(match self.next() {
            Some(Ok(value)) => {
                let value = Some(value);
                Ok(FoundElement { field, value })
            }
            Some(Err(damage)) => Err(damage),
            None => Err(Damage {
                at: field.begin + FORM,
                what: "a field without a value",
            }),
        })
    }
}

impl<'b> Iterator for InImage<'b> {
    type Item = Result<Entry<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|entry| entry.map_err(in_image))
    }
}

/// The elements of a value.
pub struct Pairs<'b, const ENTRIES: usize>(InImage<'b>);

impl<const ENTRIES: usize> std::fmt::Debug for Pairs<'_, ENTRIES> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pairs").field(&self.0.0).finish()
    }
}

impl<'b, const ENTRIES: usize> Iterator for Pairs<'b, ENTRIES> {
    type Item = Result<Pair<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let pair = |FoundElement { field, value }: FoundElement<'b>| Pair {
            field: field.value(),
            value: value.map_or(NO_VALUE, |value| value.value()),
        };
        self.0.found::<ENTRIES>().map(|found| found.map(pair))
    }
}

/// Converts the place of damage in a listpack to its place in the image.
fn in_image(damage: Damage) -> Damage {
    Damage {
        at: damage.at + FORM,
        ..damage
    }
}

/// An element's place in the order of scans. In a large value it also determines the element's
/// leaf. It must not change between versions, because a cursor may be older than the process. It is
/// FNV-1a, with the finish of SplitMix64 for its upper bits.
#[must_use]
pub fn place(field: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let mut hash: u64 = field.iter().fold(start, step);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31) >> (64 - CURSOR_BITS)
}
