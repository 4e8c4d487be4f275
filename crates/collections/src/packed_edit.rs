//! Changes of a hash or a set: made in a copy of its image, which then replaces it.

use std::collections::{BTreeSet, HashMap};

use mneme_log::{Decision, Elements, MAX_KEY, MAX_VALUE};

use crate::error::{CollectionError, Damage, EditError};
use crate::listpack::{self, EMPTY, Element, Encoded, HEAD, splice};
use crate::packed::{FORM, FoundElement, IntegerPlace, PACKED, Packed, Pair, SEVERAL, TABLE};
use crate::records::copied;

/// The limits up to which Redis keeps a hash as a listpack: `hash-max-listpack-entries` and
/// `hash-max-listpack-value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The number of fields.
    pub entries: usize,
    /// The length of a field or a value in bytes.
    pub value: usize,
}

impl Default for Limits {
    /// The defaults of Redis 7.0.
    fn default() -> Self {
        Limits {
            entries: 512,
            value: 64,
        }
    }
}

/// The longest field of a hash or member of a set, in bytes: in the change feed, the id of a large
/// value's collection precedes it.
pub const MAX_ELEMENT: usize = MAX_KEY - 8;

/// A packed hash or set that is being changed. A change that fails leaves it as it was. `ENTRIES`
/// entries of the listpack make an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedEdit<const ENTRIES: usize> {
    image: Vec<u8>,
    /// The length of the longest field or value that was set, in bytes.
    longest: usize,
    is_changed: bool,
    /// The recorded changes; `None`: they are not recorded.
    changes: Option<Changes>,
}

/// A hash that is being changed.
pub type HashEdit = PackedEdit<2>;

/// A set that is being changed.
pub type SetEdit = PackedEdit<1>;

/// The changes of elements, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Changes {
    /// Each element, followed by its value.
    bytes: Vec<u8>,
    /// The length in bytes of each element and of its value; `None`: it was removed.
    lengths: Vec<(usize, Option<usize>)>,
    /// The value changed as a whole, not only in these elements.
    is_whole: bool,
}

impl Changes {
    fn note(&mut self, field: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(field);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.lengths.push((field.len(), value.map(<[u8]>::len)));
    }
}

impl<const ENTRIES: usize> Default for PackedEdit<ENTRIES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ENTRIES: usize> PackedEdit<ENTRIES> {
    /// A value without elements. O(1). It counts as changed, because it may replace another one.
    #[must_use]
    pub fn new() -> Self {
        let image = [&[PACKED][..], &EMPTY].concat();
        PackedEdit {
            image,
            longest: 0,
            is_changed: true,
            changes: None,
        }
    }

    /// A value without elements in the form of a table, as for a leaf of a large one.
    pub(crate) fn table() -> Self {
        let mut table = Self::new();
        table.image[0] = TABLE;
        table
    }

    /// A copy of the value in `image`. O(bytes).
    ///
    /// # Errors
    /// The image is not of this type, by its head or its end.
    pub fn of(image: &[u8]) -> Result<Self, Damage> {
        Self::owned(copied(image))
    }

    /// Wraps the value in `image`. O(1).
    pub(crate) fn owned(image: Vec<u8>) -> Result<Self, Damage> {
        Packed::<ENTRIES>::read(&image)?;
        Ok(PackedEdit {
            image,
            longest: 0,
            is_changed: true,
            changes: None,
        })
    }

    /// Calls `change` to change the value of a key, which is empty if there is no key. `change`
    /// returns whether it has changed it. Returns what to do with the key, for an update of the
    /// store. A value that is empty afterwards is removed. The changes are appended to `elements`,
    /// for an update that takes them
    /// ([`LogStore::update_elements`](mneme_log::LogStore::update_elements)). O(bytes).
    ///
    /// # Errors
    /// The image is damaged; those of `change`.
    pub fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut Self) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        let hash = old.map_or_else(|| Ok(Self::new()), Self::of);
        let mut hash = hash.map_err(CollectionError::from)?.begun();
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

    /// This edit, marked as unchanged.
    pub(crate) fn begun(mut self) -> Self {
        self.is_changed = false;
        self
    }

    /// Starts recording the changes, for [`say_in`](Self::say_in).
    pub(crate) fn keep_changes(&mut self) {
        self.changes = Some(Changes::default());
    }

    /// Reports the changed elements. If the value also changed as a whole, nothing is reported.
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

    /// The elements that were set, with their values, and those that were removed, in order.
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

    /// The value as it is now. O(1).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn read(&self) -> Result<Packed<'_, ENTRIES>, Damage> {
        Packed::read(&self.image)
    }

    /// Whether there is no element. O(1). An empty value is not stored: its key is removed.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn is_empty(&self) -> Result<bool, Damage> {
        Ok(self.read()?.is_empty())
    }

    /// Whether an element was set to another value or removed, even if it was undone later.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }

    /// The image. O(1).
    #[must_use]
    pub fn into_image(self) -> Vec<u8> {
        self.image
    }

    /// Sets `field` to `value`. Returns whether it is new. O(bytes).
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub(crate) fn put(&mut self, field: &[u8], value: &[u8]) -> Result<bool, EditError> {
        check_len(
            self.image
                .len()
                .saturating_add(field.len())
                .saturating_add(value.len()),
        )?;
        let packed = self.read()?;
        let found = packed.find(field)?;
        let count = packed.listpack_len();
        let new = Encoded::of(value);
        let longest = self.longest.max(field.len()).max(value.len());
        let Some(FoundElement { value: old, .. }) = found else {
            let name = field;
            let field = Encoded::of(field);
            self.image.pop();
            (self.image).reserve(field.entry_len() + new.entry_len() + 1);
            append::<ENTRIES>(&mut self.image, &field, &new);
            self.image.push(EMPTY[HEAD]);
            (self.longest, self.is_changed) = (longest, true);
            self.finish(count.map(|count| count + ENTRIES));
            self.note(name, Some(value));
            return Ok(true);
        };
        let Some(old) = old else {
            return Ok(false);
        };
        let place = old.begin + FORM..old.end + FORM;
        self.is_changed |= !old.is(&new);
        splice(&mut self.image, place, &[new]);
        self.longest = longest;
        self.finish(count);
        self.note(field, Some(value));
        Ok(false)
    }

    /// Sets each field to its value, in order. Returns how many are new. O(bytes + pairs).
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub(crate) fn put_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<usize, EditError> {
        if pairs.len() < SEVERAL {
            // A change that fails halfway must be undone.
            let before = (pairs.len() > 1).then(|| self.clone());
            let set = pairs.iter().try_fold(0, |new, (field, value)| {
                Ok(new + usize::from(self.put(field, value)?))
            });
            if let (Err(_), Some(before)) = (&set, before) {
                *self = before;
            }
            return set;
        }
        let old = std::mem::take(&mut self.image);
        match with_pairs::<ENTRIES>(&old, pairs) {
            Ok((image, new)) => {
                self.is_changed |= image != old;
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

    /// Removes `field`. Returns whether it was there. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn remove(&mut self, field: &[u8]) -> Result<bool, EditError> {
        let packed = self.read()?;
        let count = packed.listpack_len();
        let Some(found) = packed.find(field)? else {
            return Ok(false);
        };
        let place = found.field.begin + FORM..found.end() + FORM;
        splice(&mut self.image, place, &[]);
        self.finish(count.map(|count| count.saturating_sub(ENTRIES)));
        self.is_changed = true;
        self.note(field, None);
        Ok(true)
    }

    /// Removes each of `fields`. Returns how many were removed. O(bytes + fields).
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
        let packed = self.read()?;
        let mut image = self.image[..FORM + HEAD].to_vec();
        let (mut kept, mut gone) = (0, 0);
        for pair in packed.pairs() {
            let Pair { field, value } = pair?;
            if field.with_bytes(|field| removed.contains_key(field)) {
                gone += 1;
                continue;
            }
            kept += ENTRIES;
            field.with_bytes(|field| {
                let append = |value: &[u8]| {
                    let (field, value) = (Encoded::of(field), Encoded::of(value));
                    append::<ENTRIES>(&mut image, &field, &value);
                };
                value.with_bytes(append);
            });
        }
        image.push(EMPTY[HEAD]);
        listpack::finish(&mut image[FORM..], Some(kept));
        self.image = image;
        self.is_changed |= gone > 0;
        if gone > 0 {
            fields.iter().for_each(|field| self.note(field, None));
        }
        Ok(gone)
    }

    fn is_table(&self) -> bool {
        self.image.first() != Some(&PACKED)
    }

    fn become_table(&mut self) {
        self.image[0] = TABLE;
        self.is_changed = true;
        if let Some(changes) = &mut self.changes {
            changes.is_whole = true;
        }
    }

    fn finish(&mut self, count: Option<usize>) {
        listpack::finish(&mut self.image[FORM..], count);
    }
}

impl HashEdit {
    /// Sets `field` to `value`. Returns whether it is new. O(bytes).
    ///
    /// # Errors
    /// The field is longer than [`MAX_ELEMENT`], the image is damaged, or would be too long.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> Result<bool, EditError> {
        check_element(field)?;
        self.put(field, value)
    }

    /// Sets each field to its value, in order. Returns how many fields are new. O(bytes + pairs).
    ///
    /// # Errors
    /// As for [`set`](Self::set). Then none is set.
    pub fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<usize, EditError> {
        pairs
            .iter()
            .try_for_each(|(field, _)| check_element(field))?;
        self.put_many(pairs)
    }

    /// Adds `by` to the integer in `field`, which counts as 0 if there is no such field. Returns
    /// the sum. O(bytes).
    ///
    /// # Errors
    /// The value or the sum is not a 64-bit integer, or the image is damaged or would be too long.
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

    /// Makes it a table if Redis would: it has more fields than `limits` allow, or a field or value
    /// that was set here is longer. It then stays a table. O(1) up to 32,767 fields, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn convert(&mut self, limits: Limits) -> Result<(), Damage> {
        if !self.is_table() && (self.longest > limits.value || self.read()?.len()? > limits.entries)
        {
            self.become_table();
        }
        Ok(())
    }
}

/// The maximum number of members that Redis 7.0 keeps as an intset by default.
pub const MAX_INTSET: usize = 512;

impl SetEdit {
    /// Adds `member`. Returns whether it is new. O(bytes).
    ///
    /// # Errors
    /// The member is longer than [`MAX_ELEMENT`], the image is damaged, or would be too long.
    pub fn add(&mut self, member: &[u8]) -> Result<bool, EditError> {
        check_element(member)?;
        self.replay(member)
    }

    /// As [`add`](Self::add), but for a member of any length: earlier versions accepted longer
    /// ones.
    pub(crate) fn replay(&mut self, member: &[u8]) -> Result<bool, EditError> {
        if self.is_table() {
            return self.put(member, &[]);
        }
        let Some(number) = listpack::integer(member) else {
            let added = self.put(member, &[])?;
            self.become_table();
            return Ok(added);
        };
        let packed = self.read()?;
        let IntegerPlace::Free(at) = packed.find_integer(number)? else {
            return Ok(false);
        };
        check_len(self.image.len().saturating_add(member.len()))?;
        let count = packed.listpack_len();
        self.is_changed = true;
        splice(&mut self.image, at..at, &[Encoded::of(member)]);
        self.finish(count.map(|count| count + 1));
        self.note(member, Some(&[]));
        Ok(true)
    }

    /// Adds each of `members`. Returns how many are new. O(bytes + members).
    ///
    /// # Errors
    /// As for [`add`](Self::add). Then none is added.
    pub fn add_many(&mut self, members: &[&[u8]]) -> Result<usize, EditError> {
        members
            .iter()
            .try_for_each(|member| check_element(member))?;
        let pairs = || -> Vec<_> { members.iter().map(|member| (*member, &[][..])).collect() };
        if self.is_table() {
            return self.put_many(&pairs());
        }
        if members.len() >= SEVERAL && !members.iter().all(|of| listpack::integer(of).is_some()) {
            let added = self.put_many(&pairs())?;
            self.become_table();
            return Ok(added);
        }
        if members.len() < SEVERAL {
            // A change that fails halfway must be undone.
            let before = (members.len() > 1).then(|| self.clone());
            let added =
                (members.iter()).try_fold(0, |new, of| Ok(new + usize::from(self.add(of)?)));
            if let (Err(_), Some(before)) = (&added, before) {
                *self = before;
            }
            return added;
        }
        let bytes = members.iter().map(|of| of.len() + 2).sum::<usize>();
        check_len(self.image.len().saturating_add(bytes))?;
        let mut numbers = BTreeSet::new();
        for pair in self.read()?.pairs() {
            match pair?.field {
                Element::Integer(number) => numbers.insert(number),
                Element::Bytes(_) => {
                    let what = "a member of an intset that is no integer";
                    return Err(Damage { at: FORM, what }.into());
                }
            };
        }
        let before = numbers.len();
        for member in members {
            if listpack::integer(member).is_some_and(|number| numbers.insert(number)) {
                self.note(member, Some(&[]));
            }
        }
        self.is_changed |= numbers.len() > before;
        self.image.truncate(FORM + HEAD);
        for number in &numbers {
            Element::Integer(*number)
                .with_bytes(|member| Encoded::of(member).append_to(&mut self.image));
        }
        self.image.push(EMPTY[HEAD]);
        self.finish(Some(numbers.len()));
        Ok(numbers.len() - before)
    }

    /// Makes it a table if Redis would: it has more members than an intset may have. It then stays
    /// a table. O(1) up to 65,534 members, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn convert(&mut self, max_intset: usize) -> Result<(), Damage> {
        if !self.is_table() && self.read()?.len()? > max_intset {
            self.become_table();
        }
        Ok(())
    }
}

/// Appends the entries of an element.
fn append<const ENTRIES: usize>(image: &mut Vec<u8>, field: &Encoded<'_>, value: &Encoded<'_>) {
    field.append_to(image);
    if ENTRIES > 1 {
        value.append_to(image);
    }
}

/// The image of a value after these pairs were set, and how many of their fields are new.
fn with_pairs<const ENTRIES: usize>(
    old: &[u8],
    pairs: &[(&[u8], &[u8])],
) -> Result<(Vec<u8>, usize), EditError> {
    let packed = Packed::<ENTRIES>::read(old)?;
    // The number of the pair that gives a field its value: the last one with this field.
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
    for pair in packed.pairs() {
        let Pair { field, value } = pair?;
        field.with_bytes(|field| {
            let new = last.remove(field).map(|number| pairs[number].1);
            let append = |old: &[u8]| {
                let (field, value) = (Encoded::of(field), Encoded::of(new.unwrap_or(old)));
                append::<ENTRIES>(&mut image, &field, &value);
            };
            value.with_bytes(append);
        });
        count += ENTRIES;
    }
    let new = last.len();
    // In the order in which fields first occur.
    for (field, _) in pairs {
        if let Some(number) = last.remove(field) {
            let (field, value) = (Encoded::of(field), Encoded::of(pairs[number].1));
            append::<ENTRIES>(&mut image, &field, &value);
            count += ENTRIES;
        }
    }
    image.push(EMPTY[HEAD]);
    check_len(image.len())?;
    listpack::finish(&mut image[FORM..], Some(count));
    Ok((image, new))
}

/// Refuses an element that is too long for a large value: it would keep the value packed, and each
/// change would store all of it.
pub(crate) fn check_element(element: &[u8]) -> Result<(), EditError> {
    match element.len() <= MAX_ELEMENT {
        true => Ok(()),
        false => Err(EditError::TooLong(element.len())),
    }
}

/// As [`check_element`], of several.
pub(crate) fn check_elements(elements: &[&[u8]]) -> Result<(), CollectionError> {
    let refused = elements.iter().find_map(|of| check_element(of).err());
    refused.map_or(Ok(()), |refused| Err(refused.into()))
}

/// Refuses an image that is too long for a record. The heads of entries, a few bytes, are not
/// counted: the store itself refuses an image that exceeds the limit by those.
fn check_len(bytes: usize) -> Result<(), EditError> {
    match bytes <= MAX_VALUE {
        true => Ok(()),
        false => Err(EditError::TooLong(bytes)),
    }
}
