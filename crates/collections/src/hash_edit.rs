//! Changes of a hash: an image of its own, which becomes the new one.

use std::collections::HashMap;

use mneme_log::{Decision, Elements, MAX_VALUE};

use crate::error::{CollectionError, Damage, EditError};
use crate::listpack::{self, EMPTY, Element, Encoded, HEAD};
use crate::packed_hash::{FORM, PACKED, PackedHash, Pair, SEVERAL, TABLE};

/// Up to where Redis keeps a hash as a listpack: `hash-max-listpack-entries` and
/// `hash-max-listpack-value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Fields.
    pub entries: usize,
    /// Bytes of a field or a value.
    pub value: usize,
}

impl Default for Limits {
    /// What Redis 7.0 has without a setting.
    fn default() -> Self {
        Limits {
            entries: 512,
            value: 64,
        }
    }
}

/// A hash that is changed. A change that fails leaves it as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashEdit {
    image: Vec<u8>,
    /// Bytes of the longest field or value that was set.
    longest: usize,
    /// What was changed; `None`: nobody asks.
    changes: Option<Changes>,
}

/// Fields that were set and removed, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Changes {
    /// Each field, and the value behind it.
    bytes: Vec<u8>,
    /// Bytes of each field, and of its value; `None`: it was removed.
    lengths: Vec<(usize, Option<usize>)>,
    /// The hash has become another one, too.
    is_whole: bool,
}

impl Changes {
    fn note(&mut self, field: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(field);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.lengths.push((field.len(), value.map(<[u8]>::len)));
    }
}

impl Default for HashEdit {
    fn default() -> Self {
        Self::new()
    }
}

impl HashEdit {
    /// A hash without fields. O(1).
    #[must_use]
    pub fn new() -> HashEdit {
        let image = [&[PACKED][..], &EMPTY].concat();
        HashEdit {
            image,
            longest: 0,
            changes: None,
        }
    }

    /// A hash without fields that counts as a table, as a leaf of a large hash does.
    pub(crate) fn table() -> HashEdit {
        let mut table = HashEdit::new();
        table.image[0] = TABLE;
        table
    }

    /// A copy of the hash that `image` is. O(bytes).
    ///
    /// # Errors
    /// It is none, by its head or its end.
    pub fn of(image: &[u8]) -> Result<HashEdit, Damage> {
        PackedHash::read(image)?;
        // A field more usually fits without another copy.
        let mut copy = Vec::with_capacity(image.len() + 64);
        copy.extend_from_slice(image);
        Ok(HashEdit {
            image: copy,
            longest: 0,
            changes: None,
        })
    }

    /// Has `change` change the hash that a key holds, which is empty if there is none, and say
    /// whether it has: what to do with the key, for an update of the store. A hash that is empty
    /// afterwards is removed. In `elements` goes what was changed, for an update that takes it
    /// ([`LogStore::update_elements`](mneme_log::LogStore::update_elements)). O(bytes).
    ///
    /// # Errors
    /// The image is damaged; those of `change`.
    pub fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut HashEdit) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        let hash = old.map_or(Ok(HashEdit::new()), HashEdit::of);
        let mut hash = hash.map_err(CollectionError::from)?;
        let elements = elements.filter(|elements| elements.are_wanted());
        if elements.is_some() {
            hash.keep_changes();
        }
        let (result, is_changed) = change(&mut hash)?;
        let decision = if !is_changed {
            Decision::Keep
        } else if hash.is_empty().map_err(CollectionError::from)? {
            Decision::Remove
        } else {
            elements
                .into_iter()
                .for_each(|elements| hash.say_in(elements));
            Decision::Replace(hash.into_image())
        };
        Ok((result, decision))
    }

    /// Starts recording the changes, for [`say_in`](Self::say_in).
    pub(crate) fn keep_changes(&mut self) {
        self.changes = Some(Changes::default());
    }

    /// Says what was changed as elements. If that is not all that was, it says nothing.
    fn say_in(&self, elements: &mut Elements) {
        if self
            .changes
            .as_ref()
            .is_some_and(|changes| changes.is_whole)
        {
            return;
        }
        for (field, value) in self.changes() {
            match value {
                Some(value) => elements.set(field, value),
                None => elements.remove(field),
            }
        }
    }

    /// The fields that were set, each with its value, and removed, in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let changes = self.changes.iter();
        changes.flat_map(|changes| {
            let mut rest = changes.bytes.as_slice();
            changes.lengths.iter().map(move |&(field, value)| {
                let (field, behind) = rest.split_at(field);
                let (bytes, behind) = behind.split_at(value.unwrap_or_default());
                rest = behind;
                (field, value.map(|_| bytes))
            })
        })
    }

    fn note(&mut self, field: &[u8], value: Option<&[u8]>) {
        if let Some(changes) = &mut self.changes {
            changes.note(field, value);
        }
    }

    /// The hash as it is now. O(1).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn read(&self) -> Result<PackedHash<'_>, Damage> {
        PackedHash::read(&self.image)
    }

    /// Whether it has no field. O(1). Such a hash is not stored: its key is removed.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn is_empty(&self) -> Result<bool, Damage> {
        Ok(self.read()?.is_empty())
    }

    /// Whether it is this image. O(bytes).
    pub(crate) fn is(&self, image: &[u8]) -> bool {
        *self.image == *image
    }

    /// The image. O(1).
    #[must_use]
    pub fn into_image(self) -> Vec<u8> {
        self.image
    }

    /// Sets `field` to `value`. Whether it is a new field. O(bytes).
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> Result<bool, EditError> {
        check_len(
            self.image
                .len()
                .saturating_add(field.len())
                .saturating_add(value.len()),
        )?;
        let hash = self.read()?;
        let found = hash.find(field)?;
        let count = hash.listpack_len();
        let new = Encoded::of(value);
        let longest = self.longest.max(field.len()).max(value.len());
        let Some((_, old)) = found else {
            let name = field;
            let field = Encoded::of(field);
            self.image.pop();
            (self.image).reserve(field.entry_len() + new.entry_len() + 1);
            field.append_to(&mut self.image);
            new.append_to(&mut self.image);
            self.image.push(EMPTY[HEAD]);
            self.longest = longest;
            self.finish(count.map(|count| count + 2));
            self.note(name, Some(value));
            return Ok(true);
        };
        let place = old.begin + FORM..old.end + FORM;
        let mut entry = Vec::with_capacity(new.entry_len());
        new.append_to(&mut entry);
        match entry.len() == place.len() {
            true => self.image[place].copy_from_slice(&entry),
            false => drop(self.image.splice(place, entry)),
        }
        self.longest = longest;
        self.finish(count);
        self.note(field, Some(value));
        Ok(false)
    }

    /// Sets each field to its value, in order. How many fields are new. O(bytes + pairs).
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<usize, EditError> {
        if pairs.len() < SEVERAL {
            // A change that fails in the middle must leave no part of it.
            let before = (pairs.len() > 1).then(|| self.clone());
            let set = pairs.iter().try_fold(0, |new, (field, value)| {
                Ok(new + usize::from(self.set(field, value)?))
            });
            if let (Err(_), Some(before)) = (&set, before) {
                *self = before;
            }
            return set;
        }
        let old = std::mem::take(&mut self.image);
        match with_pairs(&old, pairs) {
            Ok((image, new)) => {
                self.image = image;
                for (field, value) in pairs {
                    self.longest = self.longest.max(field.len()).max(value.len());
                    self.note(field, Some(value));
                }
                Ok(new)
            }
            Err(error) => {
                self.image = old;
                Err(error)
            }
        }
    }

    /// Removes `field`. Whether it was there. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn remove(&mut self, field: &[u8]) -> Result<bool, EditError> {
        let hash = self.read()?;
        let count = hash.listpack_len();
        let Some((found, value)) = hash.find(field)? else {
            return Ok(false);
        };
        drop(self.image.drain(found.begin + FORM..value.end + FORM));
        self.finish(count.map(|count| count.saturating_sub(2)));
        self.note(field, None);
        Ok(true)
    }

    /// Removes each of `fields`. How many were there. O(bytes + fields).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn remove_many(&mut self, fields: &[&[u8]]) -> Result<usize, EditError> {
        if fields.len() < SEVERAL {
            return fields.iter().try_fold(0, |removed, field| {
                Ok(removed + usize::from(self.remove(field)?))
            });
        }
        let removed: HashMap<&[u8], ()> = fields.iter().map(|field| (*field, ())).collect();
        let hash = self.read()?;
        let mut image = self.image[..FORM + HEAD].to_vec();
        let (mut kept, mut gone) = (0, 0);
        for pair in hash.pairs() {
            let pair = pair?;
            if pair.field.with_bytes(|field| removed.contains_key(field)) {
                gone += 1;
                continue;
            }
            kept += 2;
            for element in [pair.field, pair.value] {
                element.with_bytes(|bytes| Encoded::of(bytes).append_to(&mut image));
            }
        }
        image.push(EMPTY[HEAD]);
        listpack::finish(&mut image[FORM..], Some(kept));
        self.image = image;
        if gone > 0 {
            fields.iter().for_each(|field| self.note(field, None));
        }
        Ok(gone)
    }

    /// Adds `by` to the integer that `field` has; one that is not there has 0. The sum. O(bytes).
    ///
    /// # Errors
    /// The value is no integer, the sum is none, or the image is damaged or would be too long.
    pub fn increment(&mut self, field: &[u8], by: i64) -> Result<i64, EditError> {
        let old = match self.read()?.get(field)? {
            None => 0,
            Some(Element::Integer(number)) => number,
            Some(Element::Bytes(_)) => return Err(EditError::NotAnInteger),
        };
        let sum = old.checked_add(by).ok_or(EditError::Overflow)?;
        Element::Integer(sum).with_bytes(|value| self.set(field, value))?;
        Ok(sum)
    }

    /// Makes it a table if Redis would: it has more fields than that, or a field or value that was
    /// set here is longer. It stays one. O(1) up to 32,767 fields, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn convert(&mut self, limits: Limits) -> Result<(), Damage> {
        if self.image.first() == Some(&PACKED)
            && (self.longest > limits.value || self.read()?.len()? > limits.entries)
        {
            self.image[0] = TABLE;
            if let Some(changes) = &mut self.changes {
                changes.is_whole = true;
            }
        }
        Ok(())
    }

    fn finish(&mut self, count: Option<usize>) {
        listpack::finish(&mut self.image[FORM..], count);
    }
}

/// The image of a hash after these pairs were set, and how many of their fields are new.
fn with_pairs(old: &[u8], pairs: &[(&[u8], &[u8])]) -> Result<(Vec<u8>, usize), EditError> {
    let hash = PackedHash::read(old)?;
    // The number of the pair that a field has its value from: the last.
    let mut last: HashMap<&[u8], usize> = HashMap::with_capacity(pairs.len());
    let mut bytes = old.len();
    for (number, (field, value)) in pairs.iter().enumerate() {
        last.insert(field, number);
        bytes = bytes
            .saturating_add(field.len())
            .saturating_add(value.len());
        check_len(bytes)?;
    }
    let mut image = Vec::with_capacity(bytes + 4 * pairs.len());
    image.extend_from_slice(&old[..FORM + HEAD]);
    let mut count = 0;
    for pair in hash.pairs() {
        let Pair { field, value } = pair?;
        field.with_bytes(|field| {
            Encoded::of(field).append_to(&mut image);
            match last.remove(field) {
                Some(number) => Encoded::of(pairs[number].1).append_to(&mut image),
                None => value.with_bytes(|value| Encoded::of(value).append_to(&mut image)),
            }
        });
        count += 2;
    }
    let new = last.len();
    // In the order in which fields were first named.
    for (field, _) in pairs {
        if let Some(number) = last.remove(field) {
            Encoded::of(field).append_to(&mut image);
            Encoded::of(pairs[number].1).append_to(&mut image);
            count += 2;
        }
    }
    image.push(EMPTY[HEAD]);
    check_len(image.len())?;
    listpack::finish(&mut image[FORM..], Some(count));
    Ok((image, new))
}

/// Refuses an image that no record holds. Heads of entries come to a few bytes more, which the
/// store refuses.
fn check_len(bytes: usize) -> Result<(), EditError> {
    match bytes <= MAX_VALUE {
        true => Ok(()),
        false => Err(EditError::TooLong(bytes)),
    }
}
