//! A large hash or set: **an anchor and leaves; each element is found by reading one leaf.**
//!
//! A leaf is the image of a [packed](crate::Packed) value. The place of an element in the order of
//! scans determines its leaf. So the leaves are in that order too, and a cursor of a packed value
//! stays valid when the value becomes large. There are about as many leaves as the value has KiB:
//! when there are too few, the next one in turn is split in two; when there are too many, the last
//! two are joined again (see [`mneme_log::leaf_of`]).
//!
//! The functions here read and write leaves through [`StoreRecords`], which is implemented by a
//! transaction of a store.

use mneme_log::{
    Anchor, HASH_BITS, MAX_LEAVES, ValueKind, hashes_of, leaf_numbers, leaf_of, split_of,
};

use crate::collection_type::{Finish, LargeEdit, finished};
use crate::counted_tree::{CountedTree, ElementShape};
use crate::error::{CollectionError, Damage, EditError};
use crate::hash::OwnedPair;
use crate::lot::Lot;
use crate::packed::{Packed, Pair, RawElement, place};
use crate::packed_builder::{MAX_VIEW, PackedBuilder};
use crate::packed_edit::{PackedEdit, check_element};
use crate::records::StoreRecords;
use crate::{HASH, SET};

/// The average number of bytes of a leaf above which one is split.
const SPLIT: u64 = 1024;
/// The average number of bytes of a leaf below which two are joined.
const JOIN: u64 = 256;
/// The maximum number of bytes that are reserved for an image before anything is copied.
const MOST_RESERVED: usize = 64 << 20;
/// The number of bytes of a step through the leaves after which no further leaf is read.
const STEP_BYTES: usize = 4 << 20;
/// The maximum number of splits for each element that is set: later changes continue.
const SPLITS: usize = 4;

/// The elements of a collection, within a transaction. `ENTRIES` entries of a leaf's listpack make
/// an element.
pub struct Leaves<'r, const ENTRIES: usize> {
    records: &'r mut dyn StoreRecords,
    id: u64,
    anchor: Anchor,
    /// The anchor as it is stored. `None`: it must be stored even if it is unchanged, because the
    /// leaves are others than before.
    stored: Option<Anchor>,
    /// Whether changes are reported to the feed: not during a replay.
    says: bool,
}

/// A large hash, within a transaction.
pub type LargeHash<'r> = Leaves<'r, 2>;

/// A large set, within a transaction.
pub type LargeSet<'r> = Leaves<'r, 1>;

impl<'r> LargeHash<'r> {
    /// The hash stored as collection `id`. O(1).
    ///
    /// # Errors
    /// There is no such collection, or it is of another type; the store cannot be read.
    pub fn open(records: &'r mut dyn StoreRecords, id: u64) -> Result<Self, CollectionError> {
        Self::open_kind(records, id, HASH)
    }
}

impl<'r> LargeSet<'r> {
    /// The set stored as collection `id`. O(1).
    ///
    /// # Errors
    /// There is no such collection, or it is of another type; the store cannot be read.
    pub fn open(records: &'r mut dyn StoreRecords, id: u64) -> Result<Self, CollectionError> {
        Self::open_kind(records, id, SET)
    }

    /// A uniformly random member; `None`: the set is empty. O(1) expected.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn random_member(&mut self, lot: &mut Lot) -> Result<Option<Vec<u8>>, CollectionError> {
        let element = self.random(|bound| lot.below(bound))?;
        Ok(element.map(|(member, _)| member))
    }

    /// Whether each of `members` is a member, in this order. O(members): each leaf is read once.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn contains_many(
        &mut self,
        members: &[RawElement<'_>],
    ) -> Result<Vec<bool>, CollectionError> {
        let places = members.iter().enumerate();
        let mut by_leaf: Vec<(u64, usize)> = places
            .map(|(place, member)| {
                let number = member.field().with_bytes(|member| self.leaf_of(member));
                (number, place)
            })
            .collect();
        by_leaf.sort_unstable();
        let (mut found, mut sought) = (vec![false; members.len()], Vec::new());
        for of_leaf in by_leaf.chunk_by(|(one, _), (other, _)| one == other) {
            let Some(leaf) = self.records.lend_inner(self.id, of_leaf[0].0)? else {
                continue;
            };
            sought.clear();
            sought.extend(of_leaf.iter().map(|(_, place)| members[*place]));
            let contained = Packed::<1>::read(&leaf)?.contains_many(&sought)?;
            for ((_, place), contained) in of_leaf.iter().zip(contained) {
                found[*place] = contained;
            }
        }
        Ok(found)
    }
}

impl<'r, const ENTRIES: usize> Leaves<'r, ENTRIES> {
    /// The elements of collection `id` of this kind. O(1).
    pub(crate) fn open_kind(
        records: &'r mut dyn StoreRecords,
        id: u64,
        kind: ValueKind,
    ) -> Result<Self, CollectionError> {
        let anchor = records.anchor(id)?;
        let anchor = anchor.filter(|anchor| anchor.kind == kind);
        if anchor.is_some_and(|anchor| anchor.leaves > anchor.count.max(1)) {
            let what = "an anchor with more leaves than elements";
            return Err(Damage { at: 0, what }.into());
        }
        Ok(Leaves {
            anchor: anchor.ok_or(no_anchor())?,
            stored: anchor,
            records,
            id,
            says: true,
        })
    }

    /// As [`open_kind`](Self::open_kind), for a replay: a collection that does not exist yet begins
    /// empty, and no change is reported.
    pub(crate) fn replay(
        records: &'r mut dyn StoreRecords,
        id: u64,
        kind: ValueKind,
    ) -> Result<Self, CollectionError> {
        let stored = records.anchor(id)?;
        let anchor = Some(stored.unwrap_or(Anchor::new(kind)));
        let anchor = anchor.filter(|anchor| anchor.kind == kind);
        Ok(Leaves {
            anchor: anchor.ok_or(no_anchor())?,
            stored,
            records,
            id,
            says: false,
        })
    }

    /// Creates collection `id` of this kind with what `image`, a packed value, holds.
    ///
    /// # Errors
    /// The image is damaged; there is no space.
    pub(crate) fn build(
        records: &'r mut dyn StoreRecords,
        id: u64,
        kind: ValueKind,
        image: &[u8],
    ) -> Result<Self, CollectionError> {
        let packed = Packed::<ENTRIES>::read(image)?;
        let leaves = (image.len() as u64 / (SPLIT - SPLIT / 4)).min(packed.len()? as u64);
        let mut built = Leaves {
            anchor: Anchor::new(kind),
            stored: None,
            records,
            id,
            says: true,
        };
        built.anchor.leaves = leaves.clamp(1, MAX_LEAVES);
        let mut elements = Vec::new();
        for element in packed.raw() {
            let element = element?;
            let number = element.field().with_bytes(|field| built.leaf_of(field));
            elements.push((number, element));
        }
        elements.sort_by_key(|(number, _)| *number);
        for of_leaf in elements.chunk_by(|(one, _), (other, _)| one == other) {
            let mut leaf = PackedBuilder::<ENTRIES>::default();
            of_leaf.iter().for_each(|(_, element)| leaf.push(element));
            built.anchor.count += of_leaf.len() as u64;
            built.store(of_leaf[0].0, 0, &leaf.into_image()?)?;
        }
        built.say_all(id, &packed)?;
        Ok(built)
    }

    /// Stores the anchor, if it differs. An empty value has no anchor, unless it is being replayed.
    ///
    /// # Errors
    /// There is no space.
    pub fn finish(self) -> Result<(), CollectionError> {
        if self.stored == Some(self.anchor) {
            return Ok(());
        }
        let anchor = Some(&self.anchor).filter(|anchor| anchor.count > 0 || !self.says);
        Ok(self.records.set_anchor(self.id, anchor)?)
    }

    /// The number of elements. O(1).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.anchor.count
    }

    /// Borrows the collection for reading: changes that the borrowed one makes to the anchor are
    /// lost.
    pub(crate) fn reborrow(&mut self) -> Leaves<'_, ENTRIES> {
        Leaves {
            records: &mut *self.records,
            id: self.id,
            anchor: self.anchor,
            stored: self.stored,
            says: self.says,
        }
    }

    /// Announces that all of it will be read.
    pub(crate) fn reads_all(&mut self) -> Result<(), CollectionError> {
        Ok(self.records.reads_all(self.id)?)
    }

    /// The tree that keeps its elements in order.
    pub(crate) fn tree(&mut self, shape: ElementShape) -> CountedTree<'_> {
        CountedTree::new(&mut *self.records, self.id, &mut self.anchor.tree, shape)
    }

    fn leaf_of(&self, field: &[u8]) -> u64 {
        leaf_of(place(field), self.anchor.leaves)
    }

    /// Reports that collection `id` has all these elements.
    fn say_all(&mut self, id: u64, of: &Packed<'_, ENTRIES>) -> Result<(), Damage> {
        let (kind, records) = (self.anchor.kind, &mut *self.records);
        of.pairs().try_for_each(|pair| {
            let Pair { field, value } = pair?;
            field.with_bytes(|field| {
                value.with_bytes(|value| records.say(id, kind, field, Some(value)));
            });
            Ok(())
        })
    }

    /// Stores the image of a leaf that had `before` bytes. Removes the leaf if it has no elements
    /// any more.
    fn store(&mut self, number: u64, before: u64, image: &[u8]) -> Result<(), CollectionError> {
        let is_empty = Packed::<ENTRIES>::read(image)?.is_empty();
        let after = if is_empty { 0 } else { image.len() as u64 };
        if !is_empty || before > 0 {
            let image = Some(image).filter(|_| !is_empty);
            self.records.set_inner(self.id, number, image)?;
        }
        let bytes = (self.anchor.bytes.wrapping_sub(before)).wrapping_add(after);
        self.anchor.bytes = bytes;
        if (before == 0) != is_empty {
            self.stored = None;
        }
        Ok(())
    }

    /// Calls `change` to change a leaf; both return whether it did.
    fn change(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut PackedEdit<ENTRIES>) -> Result<bool, EditError>,
    ) -> Result<bool, CollectionError> {
        let old = self.records.inner(self.id, number)?;
        let before = old.as_ref().map_or(0, Vec::len) as u64;
        let mut leaf = match old {
            Some(old) => PackedEdit::<ENTRIES>::owned(old)?,
            None => PackedEdit::<ENTRIES>::table(),
        };
        let is_changed = change(&mut leaf)?;
        if is_changed {
            self.store(number, before, &leaf.into_image())?;
        }
        Ok(is_changed)
    }

    /// The value of `field`. O(1).
    ///
    /// # Errors
    /// The collection is damaged, or cannot be read.
    pub fn get(&mut self, field: &[u8]) -> Result<Option<Vec<u8>>, CollectionError> {
        let number = self.leaf_of(field);
        let Some(leaf) = self.records.lend_inner(self.id, number)? else {
            return Ok(None);
        };
        let value = Packed::<ENTRIES>::read(&leaf)?.get(field)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Whether it has `field`, or this member. O(1).
    ///
    /// # Errors
    /// The collection is damaged, or cannot be read.
    pub fn contains(&mut self, field: &[u8]) -> Result<bool, CollectionError> {
        let number = self.leaf_of(field);
        match self.records.lend_inner(self.id, number)? {
            Some(leaf) => Ok(Packed::<ENTRIES>::read(&leaf)?.contains(field)?),
            None => Ok(false),
        }
    }

    /// Sets `field` to `value`, which is empty for a member of a set. Returns whether it is new.
    ///
    /// # Errors
    /// The field is too long, the collection is damaged, or there is no space.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> Result<bool, CollectionError> {
        Ok(self.set_many(&[(field, value)])? > 0)
    }

    /// Sets each field to its value, in order. Returns how many are new. O(pairs): each leaf is
    /// stored once.
    ///
    /// # Errors
    /// As for [`set`](Self::set). None is set if one is too long.
    pub fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<usize, CollectionError> {
        pairs
            .iter()
            .try_for_each(|(field, _)| check_element(field))?;
        let mut by_leaf: Vec<(u64, usize)> = (pairs.iter().enumerate())
            .map(|(place, (field, _))| (self.leaf_of(field), place))
            .collect();
        by_leaf.sort_unstable();
        let (mut new, mut changed) = (0, 0);
        for of_leaf in by_leaf.chunk_by(|(one, _), (other, _)| one == other) {
            let mut set: Vec<_> = of_leaf.iter().map(|(_, place)| pairs[*place]).collect();
            let mut added = 0;
            let is_changed = self.change(of_leaf[0].0, |leaf| {
                // A member that exists stays as it is.
                if ENTRIES == 1 {
                    let names: Vec<&[u8]> = set.iter().map(|(member, _)| *member).collect();
                    let mut found = leaf.read()?.get_many(&names)?.into_iter();
                    set.retain(|_| found.next().is_some_and(|found| found.is_none()));
                }
                added = leaf.put_many(&set)?;
                Ok(!set.is_empty())
            })?;
            if !is_changed {
                continue;
            }
            self.anchor.count += added as u64;
            new += added;
            changed += set.len();
            if self.says {
                for (field, value) in set {
                    let kind = self.anchor.kind;
                    self.records.say(self.id, kind, field, Some(value));
                }
            }
        }
        self.split_leaves(changed)?;
        Ok(new)
    }

    /// Splits leaves after this many changes, if there are too few. Without changes none is split,
    /// because the anchor is not stored then.
    fn split_leaves(&mut self, changes: usize) -> Result<(), CollectionError> {
        for _ in 0..SPLITS.saturating_mul(changes) {
            let Anchor {
                bytes,
                leaves,
                count,
                ..
            } = self.anchor;
            if bytes <= leaves.saturating_mul(SPLIT) || leaves >= count.min(MAX_LEAVES) {
                break;
            }
            self.split()?;
        }
        Ok(())
    }

    /// Removes `field`. Returns whether it was there.
    ///
    /// # Errors
    /// The collection is damaged, or there is no space.
    pub fn remove(&mut self, field: &[u8]) -> Result<bool, CollectionError> {
        let number = self.leaf_of(field);
        let is_gone = self.change(number, |leaf| leaf.remove(field))?;
        if !is_gone {
            return Ok(false);
        }
        self.anchor.count = self.anchor.count.saturating_sub(1);
        if self.says {
            self.records.say(self.id, self.anchor.kind, field, None);
        }
        self.join_leaves()?;
        Ok(true)
    }

    /// Joins leaves, if there are too many.
    fn join_leaves(&mut self) -> Result<(), CollectionError> {
        // Removing a long element may remove more bytes than joining one leaf makes up for.
        for _ in 0..SPLITS {
            let Anchor {
                bytes,
                leaves,
                count,
                ..
            } = self.anchor;
            let are_few = bytes < leaves.saturating_mul(JOIN) || count < leaves;
            if leaves <= 1 || !are_few {
                break;
            }
            self.join()?;
        }
        Ok(())
    }

    /// Splits the leaf whose turn it is. If it cannot be read, nothing is changed.
    fn split(&mut self) -> Result<(), CollectionError> {
        let (old, new) = split_of(self.anchor.leaves);
        let leaves = self.anchor.leaves + 1;
        let Some(image) = self.records.lend_inner(self.id, old)? else {
            self.anchor.leaves = leaves;
            return Ok(());
        };
        let mut halves = [
            PackedBuilder::<ENTRIES>::default(),
            PackedBuilder::default(),
        ];
        for element in Packed::<ENTRIES>::read(&image)?.raw() {
            let element = element?;
            let place = element.field().with_bytes(place);
            halves[usize::from(leaf_of(place, leaves) == new[1])].push(&element);
        }
        let before = image.len() as u64;
        drop(image);
        let [low, high] = halves.map(PackedBuilder::into_image);
        let images = [low?, high?];
        self.forget(old, before)?;
        self.anchor.leaves = leaves;
        for (number, image) in new.into_iter().zip(&images) {
            self.store(number, 0, image)?;
        }
        Ok(())
    }

    /// Joins the last two leaves that were split. If one cannot be read, nothing is changed.
    fn join(&mut self) -> Result<(), CollectionError> {
        let (joined, halves) = split_of(self.anchor.leaves - 1);
        let mut leaf = PackedBuilder::<ENTRIES>::default();
        let mut lens = [0; 2];
        for (number, len) in halves.into_iter().zip(&mut lens) {
            if let Some(image) = self.records.lend_inner(self.id, number)? {
                leaf.push_all(&Packed::read(&image)?)?;
                *len = image.len() as u64;
            }
        }
        let image = leaf.into_image()?;
        for (number, len) in halves.into_iter().zip(lens) {
            self.forget(number, len)?;
        }
        self.anchor.leaves -= 1;
        self.store(joined, 0, &image)
    }

    /// Removes a leaf of `bytes` bytes, whose elements are in other leaves now; 0: there is no
    /// record.
    fn forget(&mut self, number: u64, bytes: u64) -> Result<(), CollectionError> {
        self.store(
            number,
            bytes,
            &PackedBuilder::<ENTRIES>::default().into_image()?,
        )
    }

    /// Calls `visit` with its leaves from place `from` on, in order, until it returns false.
    /// Returns the place after the last one; 0: that was all.
    ///
    /// # Errors
    /// The collection is damaged, or cannot be read; those of `visit`.
    pub fn leaves(
        &mut self,
        from: u64,
        mut visit: impl FnMut(Packed<'_, ENTRIES>) -> Result<bool, CollectionError>,
    ) -> Result<u64, CollectionError> {
        let leaves = self.anchor.leaves;
        let mut at = from;
        while at < 1 << HASH_BITS {
            let number = leaf_of(at, leaves);
            at = hashes_of(number).end;
            if let Some(image) = self.records.lend_inner(self.id, number)?
                && !visit(Packed::<ENTRIES>::read(&image)?)?
            {
                break;
            }
        }
        Ok(if at < 1 << HASH_BITS { at } else { 0 })
    }

    /// As [`leaves`](Self::leaves), from the first leaf to the last. O(elements).
    ///
    /// # Errors
    /// As there.
    pub fn all_leaves(
        &mut self,
        visit: impl FnMut(Packed<'_, ENTRIES>) -> Result<bool, CollectionError>,
    ) -> Result<(), CollectionError> {
        self.reads_all()?;
        self.leaves(0, visit).map(drop)
    }

    /// A packed image with those of `fields` that this value has; `None`: with all. O(1) for each,
    /// if its leaf is not long.
    ///
    /// # Errors
    /// The collection is damaged, cannot be read, or is too long for an image.
    pub fn view(&mut self, fields: Option<&[&[u8]]>) -> Result<Vec<u8>, CollectionError> {
        let Some(fields) = fields else {
            self.reads_all()?;
            return Ok(self.view_from(0, usize::MAX)?.0);
        };
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        fields.dedup();
        let mut view = PackedBuilder::<ENTRIES>::default();
        for field in &fields {
            let number = self.leaf_of(field);
            let Some(leaf) = self.records.lend_inner(self.id, number)? else {
                continue;
            };
            let found = Packed::<ENTRIES>::read(&leaf)?.find_raw(field)?;
            found.iter().for_each(|found| view.push(found));
        }
        Ok(view.into_view()?)
    }

    /// A packed image with the elements of whole leaves from place `from` on, and the next place;
    /// 0: that was all. The image has at least `count` elements, or those of one leaf if they are
    /// long. O(count).
    ///
    /// # Errors
    /// As for [`view`](Self::view).
    pub fn view_from(
        &mut self,
        from: u64,
        count: usize,
    ) -> Result<(Vec<u8>, u64), CollectionError> {
        let bytes = match count {
            usize::MAX => usize::try_from(self.anchor.bytes).unwrap_or(usize::MAX),
            _ => 0,
        };
        if bytes > MAX_VIEW {
            return Err(EditError::TooLong(bytes).into());
        }
        let most = if bytes > 0 { MAX_VIEW } else { STEP_BYTES };
        // Leaves may be empty.
        let mut looks = count.saturating_mul(10).max(10);
        let mut view = PackedBuilder::<ENTRIES>::with_capacity(bytes.min(MOST_RESERVED));
        let next = self.leaves(from, |leaf| {
            view.push_all(&leaf)?;
            looks = looks.saturating_sub(1);
            Ok(view.len() < count && view.bytes() < most && looks > 0)
        })?;
        Ok((view.into_view()?, next))
    }

    /// Calls `change` to change a [view](Self::view) of `fields`, and applies its changes; it
    /// returns whether there are any. If the value is empty afterwards, the caller must remove its
    /// key.
    ///
    /// # Errors
    /// As for [`view`](Self::view); those of `change`.
    pub fn edit<R, E: From<CollectionError>>(
        mut self,
        fields: Option<&[&[u8]]>,
        change: impl FnOnce(&mut PackedEdit<ENTRIES>) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        let changed = match fields {
            Some([field]) => self.edit_leaf(field, change),
            fields => self.edit_view(fields, change),
        };
        finished(self, changed)
    }

    fn edit_view<R, E: From<CollectionError>>(
        &mut self,
        fields: Option<&[&[u8]]>,
        change: impl FnOnce(&mut PackedEdit<ENTRIES>) -> Result<(R, bool), E>,
    ) -> Result<(R, bool), E> {
        let view = PackedEdit::<ENTRIES>::of(&self.view(fields)?);
        let mut view = view.map_err(CollectionError::from)?.begun();
        view.keep_changes();
        let (result, is_changed) = change(&mut view)?;
        if !is_changed {
            return Ok((result, false));
        }
        let changes: Vec<_> = view.changes().collect();
        for run in changes.chunk_by(|(_, one), (_, other)| one.is_some() && other.is_some()) {
            match run {
                [(field, None)] => drop(self.remove(field)?),
                run => {
                    let set = run
                        .iter()
                        .filter_map(|(field, value)| Some((*field, (*value)?)));
                    self.set_many(&set.collect::<Vec<_>>())?;
                }
            }
        }
        Ok((result, true))
    }

    /// As [`edit`](Self::edit), for one field: `change` changes the leaf itself.
    fn edit_leaf<R, E: From<CollectionError>>(
        &mut self,
        field: &[u8],
        change: impl FnOnce(&mut PackedEdit<ENTRIES>) -> Result<(R, bool), E>,
    ) -> Result<(R, bool), E> {
        let number = self.leaf_of(field);
        let old = self.records.inner(self.id, number);
        let old = old.map_err(CollectionError::from)?;
        let before = old.as_ref().map_or(0, Vec::len) as u64;
        let leaf = old.map_or(Ok(PackedEdit::<ENTRIES>::table()), PackedEdit::owned);
        let mut leaf = leaf.map_err(CollectionError::from)?.begun();
        let len = |leaf: &PackedEdit<ENTRIES>| leaf.read().and_then(|leaf| leaf.len());
        let elements = len(&leaf).map_err(CollectionError::from)?;
        leaf.keep_changes();
        let (result, is_changed) = change(&mut leaf)?;
        if !is_changed {
            return Ok((result, false));
        }
        let after = len(&leaf).map_err(CollectionError::from)?;
        self.store(number, before, leaf.image())?;
        let count = self.anchor.count.saturating_add(after as u64);
        self.anchor.count = count.saturating_sub(elements as u64);
        // Reported only now, because the store may have refused the change.
        if self.says {
            for (field, value) in leaf.changes() {
                self.records.say(self.id, self.anchor.kind, field, value);
            }
        }
        self.split_leaves(1)?;
        self.join_leaves()?;
        Ok((result, true))
    }

    /// Makes collection `to` a copy of this one. The caller must store a main record for it.
    ///
    /// # Errors
    /// The collection is damaged, or there is no space.
    pub fn copy_to(&mut self, to: u64) -> Result<(), CollectionError> {
        for number in leaf_numbers(self.anchor.leaves) {
            let Some(image) = self.records.inner(self.id, number)? else {
                continue;
            };
            self.records.set_inner(to, number, Some(&image))?;
            self.say_all(to, &Packed::read(&image)?)?;
        }
        Ok(self.records.set_anchor(to, Some(&self.anchor))?)
    }

    /// A step of a scan, as [`Packed::scan`]: whole leaves. O(count).
    ///
    /// # Errors
    /// The collection is damaged, or cannot be read.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
    ) -> Result<(Vec<OwnedPair>, u64), CollectionError> {
        let (image, next) = self.view_from(cursor, count)?;
        let pairs = Packed::<ENTRIES>::read(&image)?.pairs();
        let owned = pairs.map(|pair| pair.map(|pair| (pair.field.to_vec(), pair.value.to_vec())));
        Ok((owned.collect::<Result<_, _>>()?, next))
    }

    /// A uniformly random field. `lot` must return a random number below its argument. Expected
    /// O(1).
    ///
    /// # Errors
    /// The collection is damaged, or cannot be read.
    pub fn random(
        &mut self,
        mut lot: impl FnMut(usize) -> usize,
    ) -> Result<Option<OwnedPair>, CollectionError> {
        // A random hash chooses a leaf, so a leaf with twice as many hashes is chosen twice as
        // often. Then a random place is drawn among somewhat more places than the leaf is likely to
        // have elements, in proportion to its hashes. So each element is equally likely. If the
        // place is empty, the draw is repeated; if the leaf has more elements than places, the draw
        // begins anew with more.
        let (count, leaves) = (self.anchor.count.min(MAX_LEAVES), self.anchor.leaves);
        let mut factor = 2 + 8 * leaves / count.max(1);
        for _ in 0..1_000 * TRIES {
            // Only in a damaged collection are elements distributed like that.
            if factor > 1 << 16 {
                break;
            }
            let number = leaf_of(lot(1 << HASH_BITS) as u64, leaves);
            let Some(image) = self.records.lend_inner(self.id, number)? else {
                continue;
            };
            let leaf = Packed::<ENTRIES>::read(&image)?;
            let hashes = hashes_of(number);
            let hashes = u128::from(hashes.end - hashes.start);
            // In units of 2^-HASH_BITS.
            let places = u128::from(count * factor) * hashes;
            if leaf.len()? as u128 > places >> HASH_BITS {
                factor *= 2;
                continue;
            }
            let drawn = (places >> 32) * lot(1 << HASH_BITS) as u128;
            let place = drawn >> (2 * HASH_BITS - 32);
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            if let Some(pair) = leaf.nth(place)? {
                return Ok(Some((pair.field.to_vec(), pair.value.to_vec())));
            }
        }
        let mut first = None;
        self.leaves(0, |leaf| {
            let pair = leaf.pairs().next().transpose()?;
            first = pair.map(|pair| (pair.field.to_vec(), pair.value.to_vec()));
            Ok(first.is_none())
        })?;
        Ok(first)
    }

    /// Checks everything. O(elements).
    ///
    /// # Errors
    /// The first problem found; also if the store cannot be read.
    pub fn check(&mut self) -> Result<(), CollectionError> {
        let (mut count, mut bytes) = (0, 0);
        let leaves = self.anchor.leaves;
        self.reads_all()?;
        for number in leaf_numbers(leaves) {
            let Some(image) = self.records.lend_inner(self.id, number)? else {
                continue;
            };
            let leaf = Packed::<ENTRIES>::read(&image)?;
            leaf.check()?;
            for pair in leaf.pairs() {
                let field = pair?.field.to_vec();
                if leaf_of(place(&field), leaves) != number {
                    let what = "an element in a leaf of others";
                    return Err(Damage { at: 0, what }.into());
                }
                count += 1;
            }
            bytes += image.len() as u64;
        }
        match (count, bytes) == (self.anchor.count, self.anchor.bytes) {
            true => Ok(()),
            false => {
                let what = "an anchor with another number of elements or bytes";
                Err(Damage { at: 0, what }.into())
            }
        }
    }
}

/// An upper bound for the expected number of tries of a draw.
const TRIES: usize = 16;

#[cold]
fn no_anchor() -> Damage {
    Damage {
        at: 0,
        what: "a large value whose anchor is none of its type",
    }
}

impl<const ENTRIES: usize> Finish for Leaves<'_, ENTRIES> {
    fn finish_changed(self) -> Result<LargeEdit, CollectionError> {
        let edit = match self.count() {
            0 => LargeEdit::Emptied,
            _ => LargeEdit::Changed,
        };
        self.finish()?;
        Ok(edit)
    }

    fn finish_failed(mut self) -> Result<(), CollectionError> {
        self.says = false;
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::model::Model;
    use crate::packed_edit::HashEdit;

    #[derive(Clone, Debug)]
    enum Op {
        Set(u16, usize),
        Remove(u16),
        RemoveMost,
        Edit(u16),
        Scan(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            12 => (0..400u16, 0..300usize).prop_map(|(field, len)| Op::Set(field, len)),
            1 => (0..400u16).prop_map(|field| Op::Set(field, 6000)),
            6 => (0..400u16).prop_map(Op::Remove),
            1 => Just(Op::RemoveMost),
            4 => (0..400u16).prop_map(Op::Edit),
            1 => (1..50usize).prop_map(Op::Scan),
        ]
    }

    fn name(field: u16) -> Vec<u8> {
        format!("field {field}").into_bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_large_hash_holds_what_a_map_holds(
            first in 10..200u16,
            ops in proptest::collection::vec(op(), 1..400),
        ) {
            let mut model = Model::default();
            let mut map = BTreeMap::new();
            let mut packed = HashEdit::new();
            for field in 0..first {
                packed.set(&name(field), &[b'v'; 40]).unwrap();
                map.insert(name(field), vec![b'v'; 40]);
            }
            let built = LargeHash::build(&mut model, 1, HASH, &packed.into_image()).unwrap();
            built.finish().unwrap();
            for op in ops {
                if model.anchor.is_none() {
                    break;
                }
                let mut hash = LargeHash::open(&mut model, 1).unwrap();
                match op {
                    Op::Set(field, len) => {
                        let value = vec![b'w'; len];
                        let is_new = hash.set(&name(field), &value).unwrap();
                        prop_assert_eq!(is_new, map.insert(name(field), value).is_none());
                    }
                    Op::Remove(field) => {
                        let gone = hash.remove(&name(field)).unwrap();
                        prop_assert_eq!(gone, map.remove(&name(field)).is_some());
                    }
                    Op::RemoveMost => {
                        let most: Vec<_> = map.keys().step_by(4).cloned().collect();
                        map.retain(|field, _| most.contains(field));
                        for field in 0..400 {
                            if !map.contains_key(&name(field)) {
                                hash.remove(&name(field)).unwrap();
                            }
                        }
                    }
                    Op::Edit(field) => {
                        let (one, two) = (name(field), name(field + 1));
                        let fields: [&[u8]; 2] = [&one, &two];
                        let fields = Some(&fields[..1 + usize::from(field % 2)]);
                        let edited = hash.edit(fields, |view| {
                            let is_new = view.set(&one, b"edited")?;
                            if field % 2 == 1 {
                                view.remove(&two)?;
                            }
                            Ok::<_, CollectionError>((is_new, true))
                        });
                        let is_new = map.insert(one, b"edited".to_vec()).is_none();
                        if field % 2 == 1 {
                            map.remove(&two);
                        }
                        prop_assert_eq!(edited.unwrap(), (is_new, LargeEdit::Changed));
                        hash = LargeHash::open(&mut model, 1).unwrap();
                    }
                    Op::Scan(count) => {
                        let (mut seen, mut cursor) = (BTreeSet::new(), 0);
                        loop {
                            let mut left = count;
                            cursor = hash.leaves(cursor, |leaf| {
                                for pair in leaf.pairs() {
                                    seen.insert(pair?.field.to_vec());
                                    left = left.saturating_sub(1);
                                }
                                Ok(left > 0)
                            }).unwrap();
                            if cursor == 0 {
                                break;
                            }
                        }
                        prop_assert!(seen.iter().eq(map.keys()));
                    }
                }
                prop_assert_eq!(hash.count(), map.len() as u64);
                hash.check().unwrap();
                for (field, value) in map.iter().step_by(7) {
                    let found = hash.get(field).unwrap();
                    prop_assert_eq!(found.as_ref(), Some(value));
                }
                prop_assert_eq!(hash.get(b"absent").unwrap(), None);
                hash.finish().unwrap();
                prop_assert_eq!(&model.said, &map);
                prop_assert_eq!(model.anchor.is_none(), map.is_empty());
                prop_assert_eq!(model.inner.is_empty(), map.is_empty());
            }
        }
    }

    #[test]
    fn each_field_is_drawn_as_often_as_any_other() {
        for fields in [1, 7, 300] {
            let mut model = Model::default();
            let mut packed = HashEdit::new();
            for field in 0..fields {
                packed.set(&name(field), b"0123456789").unwrap();
            }
            LargeHash::build(&mut model, 1, HASH, &packed.into_image())
                .unwrap()
                .finish()
                .unwrap();
            let mut hash = LargeHash::open(&mut model, 1).unwrap();
            let mut state = 1u64;
            let mut lot = |bound: usize| {
                state = state
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(0x1405_7b7e_f767_814f);
                let mixed = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                ((u128::from(mixed ^ mixed >> 32) * bound as u128) >> 64) as usize
            };
            let mut drawn = BTreeMap::new();
            for _ in 0..100 * usize::from(fields) {
                let (field, _) = hash.random(&mut lot).unwrap().unwrap();
                *drawn.entry(field).or_insert(0) += 1;
            }
            assert_eq!(drawn.len(), usize::from(fields));
            // The standard deviation is ten.
            assert!(drawn.values().all(|times| (50..150).contains(times)));
        }
    }

    #[test]
    fn leaves_grow_and_shrink_with_the_hash() {
        let mut model = Model::default();
        let mut packed = HashEdit::new();
        packed.set(b"f", b"v").unwrap();
        LargeHash::build(&mut model, 1, HASH, &packed.into_image())
            .unwrap()
            .finish()
            .unwrap();
        let mut hash = LargeHash::open(&mut model, 1).unwrap();
        for i in 0..20_000u32 {
            hash.set(&i.to_le_bytes(), b"0123456789").unwrap();
        }
        let Anchor { bytes, leaves, .. } = hash.anchor;
        assert!((SPLIT * 9 / 10..=SPLIT * 11 / 10).contains(&(bytes / leaves)));
        for i in 0..20_000u32 {
            assert!(hash.remove(&i.to_le_bytes()).unwrap());
        }
        assert!(hash.anchor.leaves <= 8, "{:?}", hash.anchor);
        hash.check().unwrap();
        hash.finish().unwrap();
        let longest = model.inner.values().map(Vec::len).max();
        assert!(longest.unwrap() < 100, "{longest:?}");
    }

    /// A hash of several leaves.
    fn several() -> Model {
        let mut model = Model::default();
        let mut packed = HashEdit::new();
        for field in 0..400 {
            packed.set(&name(field), &[b'v'; 40]).unwrap();
        }
        let built = LargeHash::build(&mut model, 1, HASH, &packed.into_image()).unwrap();
        built.finish().unwrap();
        model
    }

    #[test]
    fn leaves_that_cannot_be_read_are_neither_split_nor_joined() {
        let leaves = several().anchor.unwrap().leaves;
        let (of_join, halves) = split_of(leaves - 1);
        assert!(leaves > 4 && of_join < halves[1]);
        for (number, splits) in [(split_of(leaves).0, true), (halves[1], false)] {
            let mut model = several();
            model.inner.get_mut(&number).unwrap()[1] ^= 1;
            let (records, anchor) = (model.inner.clone(), model.anchor);
            let mut hash = LargeHash::open(&mut model, 1).unwrap();
            let changed = if splits { hash.split() } else { hash.join() };
            assert!(changed.is_err());
            hash.finish_failed().unwrap();
            assert!(model.inner == records && model.anchor == anchor);
        }
    }

    #[test]
    fn a_leaf_that_is_refused_is_not_said() {
        let mut model = several();
        let (said, anchor) = (model.said.clone(), model.anchor);
        model.refuses = true;
        let hash = LargeHash::open(&mut model, 1).unwrap();
        let edited = hash.edit(Some(&[b"field 7"]), |leaf| {
            leaf.set(b"field 7", b"other")?;
            Ok::<_, CollectionError>(((), true))
        });
        assert!(edited.is_err());
        assert!(model.said == said && model.anchor == anchor);
    }
}
