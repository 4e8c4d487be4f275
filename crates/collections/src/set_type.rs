//! Implements [`CollectionType`](crate::CollectionType) for a set.

use mneme_log::{Decision, Elements, ValueKind};

use crate::SET;
use crate::collection_type::{CollectionType, LargeEdit, finished};
use crate::error::{CollectionError, Damage};
use crate::keyed::MAX_PACKED;
use crate::leaves::LargeSet;
use crate::lot::Lot;
use crate::packed::PackedSet;
use crate::packed_edit::{MAX_ELEMENT, SetEdit};
use crate::records::StoreRecords;

/// Sets. A set that Redis would keep as an intset stays packed, whatever its length, because its
/// members must be returned in ascending order.
pub enum SetType {}

impl CollectionType for SetType {
    const KIND: ValueKind = SET;
    type Packed<'b> = PackedSet<'b>;
    type Large<'r> = LargeSet<'r>;
    type Edit<'r> = SetChange<'r>;
    /// Nothing: a change may access any element.
    type Wanted<'w> = ();

    fn read(image: &[u8]) -> Result<PackedSet<'_>, Damage> {
        PackedSet::read(image)
    }

    fn outgrows(image: &[u8]) -> Result<bool, Damage> {
        if image.len() <= MAX_PACKED {
            return Ok(false);
        }
        let set = PackedSet::read(image)?;
        if !set.is_table() {
            return Ok(false);
        }
        // A member that is too long for a large set keeps the value packed.
        set.members().try_fold(true, |fits, member| {
            Ok(fits && member?.string_len() <= MAX_ELEMENT)
        })
    }

    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut SetChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        let change = |set: &mut SetEdit| change(&mut SetChange::new(Form::Packed(set)));
        SetEdit::decide(old, elements, change)
    }

    fn open(records: &mut dyn StoreRecords, id: u64) -> Result<LargeSet<'_>, CollectionError> {
        LargeSet::open(records, id)
    }

    fn build(records: &mut dyn StoreRecords, id: u64, image: &[u8]) -> Result<(), CollectionError> {
        LargeSet::build(records, id, SET, image)?.finish()
    }

    fn edit<R, E: From<CollectionError>>(
        large: LargeSet<'_>,
        (): (),
        change: impl FnOnce(&mut SetChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        let mut set = SetChange::new(Form::Large(large));
        let changed = change(&mut set);
        match set.form {
            Form::Large(large) => finished(large, changed),
            Form::Packed(_) => changed.map(|(result, _)| (result, LargeEdit::Kept)),
        }
    }
}

/// A set that is being changed, small or large.
pub struct SetChange<'r> {
    form: Form<'r>,
    is_changed: bool,
}

enum Form<'r> {
    Packed(&'r mut SetEdit),
    Large(LargeSet<'r>),
}

impl<'r> SetChange<'r> {
    fn new(form: Form<'r>) -> Self {
        SetChange {
            form,
            is_changed: false,
        }
    }

    /// Whether a member was added or removed, even if it was undone later.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The number of members. O(1).
    ///
    /// # Errors
    /// The set is damaged.
    pub fn len(&self) -> Result<usize, CollectionError> {
        match &self.form {
            Form::Packed(set) => Ok(set.read()?.len()?),
            Form::Large(set) => Ok(set.count() as usize),
        }
    }

    /// Whether there is no member: then its key does not exist, or is removed. O(1).
    ///
    /// # Errors
    /// The set is damaged.
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        match &self.form {
            Form::Packed(set) => Ok(set.is_empty()?),
            Form::Large(set) => Ok(set.count() == 0),
        }
    }

    /// Whether `member` is in the set. O(bytes) if it is small, else O(1).
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn contains(&mut self, member: &[u8]) -> Result<bool, CollectionError> {
        match &mut self.form {
            Form::Packed(set) => Ok(set.read()?.contains(member)?),
            Form::Large(set) => set.contains(member),
        }
    }

    /// Adds `member`. Returns whether it is new. O(bytes) if it is small, else O(1).
    ///
    /// # Errors
    /// The member is too long, the set is damaged, or there is no space.
    pub fn add(&mut self, member: &[u8]) -> Result<bool, CollectionError> {
        Ok(self.add_many(&[member])? > 0)
    }

    /// Adds each of `members`. Returns how many are new. O(bytes + members) if it is small, else
    /// O(members).
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_many(&mut self, members: &[&[u8]]) -> Result<usize, CollectionError> {
        let added = match &mut self.form {
            Form::Packed(set) => set.add_many(members)?,
            Form::Large(set) => {
                let pairs = members.iter().map(|member| (*member, &[][..]));
                set.set_many(&pairs.collect::<Vec<_>>())?
            }
        };
        self.is_changed |= added > 0;
        Ok(added)
    }

    /// Removes `member`. Returns whether it was there. O(bytes) if it is small, else O(1).
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn remove(&mut self, member: &[u8]) -> Result<bool, CollectionError> {
        Ok(self.remove_many(&[member])? > 0)
    }

    /// Removes each of `members`. Returns how many were removed. O(bytes + members) if it is small,
    /// else O(members).
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn remove_many(&mut self, members: &[&[u8]]) -> Result<usize, CollectionError> {
        let removed = match &mut self.form {
            Form::Packed(set) => set.remove_many(members)?,
            Form::Large(set) => members.iter().try_fold(0, |removed, member| {
                Ok::<_, CollectionError>(removed + usize::from(set.remove(member)?))
            })?,
        };
        self.is_changed |= removed > 0;
        Ok(removed)
    }

    /// Removes and returns a uniformly random member; `None`: the set is empty. O(bytes) if it is
    /// small, else expected O(1).
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn pop(&mut self, lot: &mut Lot) -> Result<Option<Vec<u8>>, CollectionError> {
        let member = match &mut self.form {
            Form::Packed(set) => set.read()?.random(lot)?.map(|member| member.to_vec()),
            Form::Large(set) => set.random_member(lot)?,
        };
        if let Some(member) = &member {
            self.remove(member)?;
        }
        Ok(member)
    }

    /// Removes and returns `count` random members, or all if there are fewer. O(bytes) if it is
    /// small, else expected O(count).
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn pop_many(
        &mut self,
        count: usize,
        lot: &mut Lot,
    ) -> Result<Vec<Vec<u8>>, CollectionError> {
        if let Form::Large(_) = self.form {
            let mut popped = Vec::new();
            while popped.len() < count
                && let Some(member) = self.pop(lot)?
            {
                popped.push(member);
            }
            return Ok(popped);
        }
        let mut members = self.members()?;
        let count = count.min(members.len());
        for i in 0..count {
            let other = i + lot.below(members.len() - i);
            members.swap(i, other);
        }
        members.truncate(count);
        self.remove_many(&members.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        Ok(members)
    }

    /// All its members. O(bytes).
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn members(&mut self) -> Result<Vec<Vec<u8>>, CollectionError> {
        match &mut self.form {
            Form::Packed(set) => copied_members(set.read()?),
            Form::Large(set) => copied_members(PackedSet::read(&set.view(None)?)?),
        }
    }

    /// Makes a small set count as a table if Redis would: it has more than `max_intset` members, or
    /// one that is not an integer. It then stays a table. O(1) for most.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn convert(&mut self, max_intset: usize) -> Result<(), CollectionError> {
        match &mut self.form {
            Form::Packed(set) => Ok(set.convert(max_intset)?),
            Form::Large(_) => Ok(()),
        }
    }
}

/// All members of a set, copied.
pub(crate) fn copied_members(set: PackedSet<'_>) -> Result<Vec<Vec<u8>>, CollectionError> {
    let mut members = Vec::with_capacity(set.len()?);
    for member in set.members() {
        members.push(member?.to_vec());
    }
    Ok(members)
}
