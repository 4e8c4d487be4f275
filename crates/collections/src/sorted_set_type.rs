//! Implements [`CollectionType`](crate::CollectionType) for a sorted set.

use std::ops::Range;

use mneme_log::{Decision, Elements, ValueKind};

use crate::SORTED_SET;
use crate::collection_type::{CollectionType, LargeEdit, finished};
use crate::error::{CollectionError, Damage};
use crate::keyed::MAX_PACKED;
use crate::large_sorted_set::LargeSortedSet;
use crate::packed_edit::{MAX_ELEMENT, check_element, check_elements};
use crate::packed_sorted_set::{PackedSortedSet, Scored};
use crate::records::StoreRecords;
use crate::score::score_in;
use crate::sorted_range::SortedRange;
use crate::sorted_set_edit::{SortedSetEdit, SortedSetLimits};

/// Sorted sets. A set that Redis would keep as a listpack stays packed.
pub enum SortedSetType {}

impl CollectionType for SortedSetType {
    const KIND: ValueKind = SORTED_SET;
    type Packed<'b> = PackedSortedSet<'b>;
    type Large<'r> = LargeSortedSet<'r>;
    type Edit<'r> = SortedSetChange<'r>;
    /// Nothing: a change may access any element.
    type Wanted<'w> = ();

    fn read(image: &[u8]) -> Result<PackedSortedSet<'_>, Damage> {
        PackedSortedSet::read(image)
    }

    fn outgrows(image: &[u8]) -> Result<bool, Damage> {
        if image.len() <= MAX_PACKED {
            return Ok(false);
        }
        let set = PackedSortedSet::read(image)?;
        if !set.is_skiplist() {
            return Ok(false);
        }
        // A member that is too long for a large set keeps the value packed.
        set.all().try_fold(true, |fits, scored| {
            Ok(fits && scored?.member.string_len() <= MAX_ELEMENT)
        })
    }

    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut SortedSetChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        SortedSetEdit::decide(old, elements, |set| {
            change(&mut SortedSetChange::new(ChangedForm::Packed(set)))
        })
    }

    fn open(
        records: &mut dyn StoreRecords,
        id: u64,
    ) -> Result<LargeSortedSet<'_>, CollectionError> {
        LargeSortedSet::open(records, id)
    }

    fn build(records: &mut dyn StoreRecords, id: u64, image: &[u8]) -> Result<(), CollectionError> {
        LargeSortedSet::build(records, id, image)?.finish()
    }

    fn edit<R, E: From<CollectionError>>(
        large: LargeSortedSet<'_>,
        (): (),
        change: impl FnOnce(&mut SortedSetChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        let mut set = SortedSetChange::new(ChangedForm::Large(large));
        let changed = change(&mut set);
        match set.form {
            ChangedForm::Large(large) => finished(large, changed),
            ChangedForm::Packed(_) => changed.map(|(result, _)| (result, LargeEdit::Kept)),
        }
    }
}

/// A sorted set as of one instant, small or large.
pub struct SortedSetView<'v> {
    form: ViewedForm<'v>,
}

enum ViewedForm<'v> {
    Packed(PackedSortedSet<'v>),
    Large(LargeSortedSet<'v>),
}

impl<'v> From<PackedSortedSet<'v>> for SortedSetView<'v> {
    fn from(set: PackedSortedSet<'v>) -> Self {
        let form = ViewedForm::Packed(set);
        SortedSetView { form }
    }
}

impl<'v> From<LargeSortedSet<'v>> for SortedSetView<'v> {
    fn from(set: LargeSortedSet<'v>) -> Self {
        let form = ViewedForm::Large(set);
        SortedSetView { form }
    }
}

impl SortedSetView<'_> {
    /// The number of members.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn len(&mut self) -> Result<u64, CollectionError> {
        match &mut self.form {
            ViewedForm::Packed(set) => Ok(set.len()?),
            ViewedForm::Large(set) => Ok(set.count()),
        }
    }

    /// Whether there is no member, so that the key does not exist.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn is_empty(&mut self) -> Result<bool, CollectionError> {
        Ok(self.len()? == 0)
    }

    /// Whether Redis would keep it as a skiplist, not as a listpack.
    #[must_use]
    pub fn is_skiplist(&self) -> bool {
        match &self.form {
            ViewedForm::Packed(set) => set.is_skiplist(),
            ViewedForm::Large(_) => true,
        }
    }

    /// The score of `member`. `None`: it is not a member.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn score(&mut self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        match &mut self.form {
            ViewedForm::Packed(set) => Ok(set.score(member)?),
            ViewedForm::Large(set) => set.score(member),
        }
    }

    /// The number of members before `member`, and its score. `None`: it is not a member.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn rank(&mut self, member: &[u8]) -> Result<Option<(u64, f64)>, CollectionError> {
        match &mut self.form {
            ViewedForm::Packed(set) => Ok(set.rank(member)?),
            ViewedForm::Large(set) => set.rank(member),
        }
    }

    /// The positions of the members in `range`.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn positions(&mut self, range: &SortedRange<'_>) -> Result<Range<u64>, CollectionError> {
        match &mut self.form {
            ViewedForm::Packed(set) => Ok(set.positions(range)?),
            ViewedForm::Large(set) => set.positions(range),
        }
    }

    /// Calls `visit` with the members at these positions, in order or in reverse, until it returns
    /// false.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read; those of `visit`.
    pub fn walk(
        &mut self,
        positions: Range<u64>,
        is_reverse: bool,
        visit: &mut dyn FnMut(Scored<'_>) -> Result<bool, CollectionError>,
    ) -> Result<(), CollectionError> {
        match &mut self.form {
            ViewedForm::Packed(set) => set.walk(positions, is_reverse, visit),
            ViewedForm::Large(set) => set.walk(positions, is_reverse, visit),
        }
    }

    /// The members at these positions, in order or in reverse.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn members(
        &mut self,
        positions: Range<u64>,
        is_reverse: bool,
    ) -> Result<ScoredMembers, CollectionError> {
        let mut members = ScoredMembers::default();
        self.walk(positions, is_reverse, &mut |scored| {
            members.push_scored(&scored)?;
            Ok(true)
        })?;
        Ok(members)
    }

    /// A step of a walk through the members, in no particular order, from `cursor` on, which is 0
    /// at first: about `count` members, and the next cursor, which is 0 at the end. A member that
    /// exists throughout is found at least once. A set that Redis would keep as a listpack is
    /// returned in one step.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
    ) -> Result<(ScoredMembers, u64), CollectionError> {
        if !self.is_skiplist() {
            let len = self.len()?;
            return Ok((self.members(0..len, false)?, 0));
        }
        let mut members = ScoredMembers::default();
        let next = match &mut self.form {
            ViewedForm::Packed(set) => {
                let (found, next) = set.scan(cursor, count)?;
                found
                    .iter()
                    .try_for_each(|scored| members.push_scored(scored))?;
                next
            }
            ViewedForm::Large(set) => {
                let (found, next) = set.scan(cursor, count)?;
                for (member, score) in found {
                    members.push(&member, score_in(&score)?);
                }
                next
            }
        };
        Ok((members, next))
    }
}

/// Members with their scores, copied.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScoredMembers {
    bytes: Vec<u8>,
    /// The end of each member in the bytes, and its score.
    members: Vec<(usize, f64)>,
}

impl ScoredMembers {
    /// Appends a member with its score.
    pub fn push(&mut self, member: &[u8], score: f64) {
        self.bytes.extend_from_slice(member);
        self.members.push((self.bytes.len(), score));
    }

    fn push_scored(&mut self, scored: &Scored<'_>) -> Result<(), Damage> {
        let score = scored.score()?;
        scored.member.with_bytes(|member| self.push(member, score));
        Ok(())
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Member number `index`, and its score.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], f64)> {
        let &(end, score) = self.members.get(index)?;
        let begin = match index {
            0 => 0,
            index => self.members[index - 1].0,
        };
        Some((&self.bytes[begin..end], score))
    }

    /// The members with their scores.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], f64)> {
        let mut begin = 0;
        self.members.iter().map(move |&(end, score)| {
            let member = &self.bytes[begin..end];
            begin = end;
            (member, score)
        })
    }
}

/// A sorted set that is being changed, small or large.
pub struct SortedSetChange<'r> {
    form: ChangedForm<'r>,
    is_changed: bool,
}

enum ChangedForm<'r> {
    Packed(&'r mut SortedSetEdit),
    Large(LargeSortedSet<'r>),
}

impl<'r> SortedSetChange<'r> {
    fn new(form: ChangedForm<'r>) -> Self {
        SortedSetChange {
            form,
            is_changed: false,
        }
    }

    /// The set as it is now.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn view(&mut self) -> Result<SortedSetView<'_>, CollectionError> {
        match &mut self.form {
            ChangedForm::Packed(set) => Ok(set.read()?.into()),
            ChangedForm::Large(set) => Ok(set.reborrow().into()),
        }
    }

    /// Whether a member was added, moved or removed, even if that was undone later.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Gives `member` this score. Returns its previous score.
    ///
    /// # Errors
    /// The score is not a number, the member is too long, the set is damaged, or there is no space.
    pub fn set(&mut self, member: &[u8], score: f64) -> Result<Option<f64>, CollectionError> {
        check_element(member)?;
        let before = match &mut self.form {
            ChangedForm::Packed(set) => set.set(member, score)?,
            ChangedForm::Large(set) => set.set(member, score)?,
        };
        self.is_changed |= before != Some(score);
        Ok(before)
    }

    /// Calls `give` for each of `members`, in order, with its present score; `give` returns the new
    /// score, or `None` to leave it. If a member is too long, nothing is changed.
    ///
    /// # Errors
    /// As for [`set`](Self::set); those of `give`.
    pub fn set_many<E: From<CollectionError>>(
        &mut self,
        members: &[&[u8]],
        give: impl FnMut(usize, Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<(), E> {
        check_elements(members)?;
        self.is_changed |= match &mut self.form {
            ChangedForm::Packed(set) => set.set_many(members, give)?,
            ChangedForm::Large(set) => set.set_many(members, give)?,
        };
        Ok(())
    }

    /// Removes `member`. Returns its previous score.
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn remove(&mut self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        let before = match &mut self.form {
            ChangedForm::Packed(set) => set.remove(member)?,
            ChangedForm::Large(set) => set.remove(member)?,
        };
        self.is_changed |= before.is_some();
        Ok(before)
    }

    /// Removes the members at these positions. Returns how many were removed.
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn remove_positions(&mut self, positions: Range<u64>) -> Result<u64, CollectionError> {
        let removed = match &mut self.form {
            ChangedForm::Packed(set) => set.remove_positions(positions)?,
            ChangedForm::Large(set) => set.remove_positions(positions)?,
        };
        self.is_changed |= removed > 0;
        Ok(removed)
    }

    /// Removes and returns the first `count` members, or the last ones, beginning at that end.
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn pop(&mut self, count: u64, is_last: bool) -> Result<ScoredMembers, CollectionError> {
        let mut view = self.view()?;
        let len = view.len()?;
        let count = count.min(len);
        let positions = match is_last {
            true => len - count..len,
            false => 0..count,
        };
        let members = view.members(positions.clone(), is_last)?;
        self.remove_positions(positions)?;
        Ok(members)
    }

    /// Makes a small set count as a skiplist if Redis would (see
    /// [`SortedSetEdit::convert`](crate::SortedSetEdit::convert)).
    ///
    /// # Errors
    /// The set is damaged.
    pub fn convert(&mut self, limits: SortedSetLimits) -> Result<(), CollectionError> {
        match &mut self.form {
            ChangedForm::Packed(set) => Ok(set.convert(limits)?),
            ChangedForm::Large(_) => Ok(()),
        }
    }
}
