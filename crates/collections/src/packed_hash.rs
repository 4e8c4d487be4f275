//! A hash that is one image: **fields and values, alternating, in a listpack behind one byte**.
//!
//! That byte says the form that Redis would keep the hash in. `OBJECT ENCODING` reports it, and
//! `HSCAN` depends on it: a hash that was once too large for a listpack stays a table.

use std::collections::HashMap;

use crate::error::Damage;
use crate::listpack::{EMPTY, Element, Encoded, Entries, Entry, Listpack};

/// Bytes before the listpack.
pub(crate) const FORM: usize = 1;
/// The first byte: Redis would keep it as a listpack.
pub(crate) const PACKED: u8 = 0;
/// The first byte: Redis would keep it as a table.
pub(crate) const TABLE: u8 = 1;
/// From so many fields on they are looked for together.
pub(crate) const SEVERAL: usize = 8;
/// Bits of a cursor.
const CURSOR_BITS: u32 = 48;

/// A field and its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair<'b> {
    /// The field.
    pub field: Element<'b>,
    /// Its value.
    pub value: Element<'b>,
}

/// What a step of a scan has found, see [`PackedHash::scan`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<'b> {
    /// The pairs.
    pub pairs: Vec<Pair<'b>>,
    /// Where to go on; 0: that was all.
    pub next: u64,
}

/// A hash that is read.
#[derive(Clone, Copy, Debug)]
pub struct PackedHash<'b> {
    is_table: bool,
    listpack: Listpack<'b>,
}

impl<'b> PackedHash<'b> {
    /// Looks at the head and the end of an image. O(1).
    ///
    /// # Errors
    /// They are not those of a hash.
    pub fn read(image: &'b [u8]) -> Result<PackedHash<'b>, Damage> {
        let (is_table, listpack) = match image {
            [PACKED, listpack @ ..] => (false, listpack),
            [TABLE, listpack @ ..] => (true, listpack),
            _ => {
                return Err(Damage {
                    at: 0,
                    what: "a hash of an unknown form",
                });
            }
        };
        let listpack = Listpack::read(listpack).map_err(in_image)?;
        Ok(PackedHash { is_table, listpack })
    }

    /// Whether Redis would keep it as a table, not as a listpack. O(1).
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// Its fields. O(1) up to 32,767 of them, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn len(&self) -> Result<usize, Damage> {
        match self.listpack.said_len() {
            Some(said) => Ok(said / 2),
            None => self.pairs().try_fold(0, |count, pair| {
                pair?;
                Ok(count + 1)
            }),
        }
    }

    /// Whether it has no field. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listpack.bytes().len() == EMPTY.len()
    }

    /// The value of `field`. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Result<Option<Element<'b>>, Damage> {
        Ok(self.find(field)?.map(|(_, value)| value.value()))
    }

    /// The values of `fields`, in order. O(bytes + fields).
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

    /// Its pairs, in the order of the image. Damage ends them. O(1) for each.
    #[must_use]
    pub fn pairs(&self) -> Pairs<'b> {
        Pairs(self.entries())
    }

    /// Pair number `index` in the order of the image: with a number by lot, a random one. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn nth(&self, index: usize) -> Result<Option<Pair<'b>>, Damage> {
        self.pairs().nth(index).transpose()
    }

    /// A step of a scan from `cursor` on, which is 0 at first: at least `count` pairs, unless the
    /// end comes first. **Every field that is there from the first step to the last is found at
    /// least once**, whatever is changed meanwhile: the steps go through the fields in the order of
    /// their own hashes. O(bytes) each.
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
            // Fields at one place are of one step.
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

    /// Reads everything and compares what the image says twice. O(bytes).
    ///
    /// # Errors
    /// The image contradicts itself, or a field is there twice.
    pub fn check(&self) -> Result<(), Damage> {
        self.listpack.check().map_err(in_image)?;
        let mut fields = HashMap::new();
        let mut entries = self.entries();
        while let Some(field) = entries.next() {
            let field = field?;
            let damage = |what| {
                let at = field.begin + FORM;
                Err(Damage { at, what })
            };
            if entries.next().transpose()?.is_none() {
                return damage("a field without a value");
            }
            if fields.insert(field.value().to_vec(), ()).is_some() {
                return damage("a field that is there twice");
            }
        }
        Ok(())
    }

    /// How many entries the listpack says, fields and values; `None`: they have to be counted.
    pub(crate) fn listpack_len(&self) -> Option<usize> {
        self.listpack.said_len()
    }

    fn entries(&self) -> InImage<'b> {
        InImage(self.listpack.entries())
    }

    /// The entries of `field` and its value.
    #[inline]
    pub(crate) fn find(&self, field: &[u8]) -> Result<Option<Found<'b>>, Damage> {
        let sought = Encoded::of(field);
        let mut entries = self.entries();
        while let Some(field) = entries.next() {
            let field = field?;
            let Some(value) = entries.next().transpose()? else {
                return Err(odd(field.begin));
            };
            if field.is(&sought) {
                return Ok(Some((field, value)));
            }
        }
        Ok(None)
    }
}

/// The entries of a field and of its value.
type Found<'b> = (Entry<'b>, Entry<'b>);

/// The entries of a listpack, whose damage is located in the image.
struct InImage<'b>(Entries<'b>);

impl<'b> Iterator for InImage<'b> {
    type Item = Result<Entry<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|entry| entry.map_err(in_image))
    }
}

/// The pairs of a hash.
pub struct Pairs<'b>(InImage<'b>);

impl std::fmt::Debug for Pairs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pairs").field(&self.0.0).finish()
    }
}

impl<'b> Iterator for Pairs<'b> {
    type Item = Result<Pair<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = match self.0.next()? {
            Ok(field) => field,
            Err(damage) => return Some(Err(damage)),
        };
        Some(match self.0.next() {
            Some(Ok(value)) => Ok(Pair {
                field: field.value(),
                value: value.value(),
            }),
            Some(Err(damage)) => Err(damage),
            None => Err(odd(field.begin)),
        })
    }
}

/// Where damage of a listpack is in the image that it is a part of.
fn in_image(damage: Damage) -> Damage {
    Damage {
        at: damage.at + FORM,
        ..damage
    }
}

/// The last field, which begins there in its listpack, has no value.
fn odd(begin: usize) -> Damage {
    Damage {
        at: begin + FORM,
        what: "a field without a value",
    }
}

/// A field's place in the order of scans. It must not change between versions: a cursor may be
/// older than the process. FNV-1a, and the finish of SplitMix64 for its upper bits.
pub(crate) fn place(field: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let mut hash: u64 = field.iter().fold(start, step);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31) >> (64 - CURSOR_BITS)
}
