//! What makes a sorted set a type of collections.

use std::convert::Infallible;
use std::ops::Range;

use mneme_log::{Decision, Elements, ValueKind};

use crate::SORTED_SET;
use crate::collection_type::{CollectionType, LargeEdit};
use crate::error::{CollectionError, Damage};
use crate::packed_sorted_set::{PackedSortedSet, Scored};
use crate::records::StoreRecords;
use crate::sorted_range::SortedRange;
use crate::sorted_set_edit::{SortedSetEdit, SortedSetLimits};

/// Sorted sets.
pub enum SortedSetType {}

impl CollectionType for SortedSetType {
    const KIND: ValueKind = SORTED_SET;
    type Packed<'b> = PackedSortedSet<'b>;
    type Large<'r> = Infallible;
    type Edit<'r> = SortedSetChange<'r>;
    /// Nothing: a change looks at whatever it wants.
    type Wanted<'w> = ();

    fn read(image: &[u8]) -> Result<PackedSortedSet<'_>, Damage> {
        PackedSortedSet::read(image)
    }

    fn outgrows(_: &[u8]) -> Result<bool, Damage> {
        Ok(false)
    }

    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut SortedSetChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        SortedSetEdit::decide(old, elements, |set| change(&mut SortedSetChange { set }))
    }

    fn open(_: &mut dyn StoreRecords, _: u64) -> Result<Infallible, CollectionError> {
        Err(no_large().into())
    }

    fn build(_: &mut dyn StoreRecords, _: u64, _: &[u8]) -> Result<(), CollectionError> {
        Err(no_large().into())
    }

    fn edit<R, E: From<CollectionError>>(
        large: Infallible,
        (): (),
        _: impl FnOnce(&mut SortedSetChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        match large {}
    }
}

fn no_large() -> Damage {
    Damage {
        at: 0,
        what: "a large sorted set",
    }
}

/// A sorted set as it is at one instant, small or large.
pub struct SortedSetView<'v> {
    set: PackedSortedSet<'v>,
}

impl<'v> From<PackedSortedSet<'v>> for SortedSetView<'v> {
    fn from(set: PackedSortedSet<'v>) -> Self {
        SortedSetView { set }
    }
}

impl SortedSetView<'_> {
    /// Its members.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn len(&mut self) -> Result<u64, CollectionError> {
        Ok(self.set.len()?)
    }

    /// Whether it has no member: there is no such key.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn is_empty(&mut self) -> Result<bool, CollectionError> {
        Ok(self.set.is_empty())
    }

    /// Whether Redis would keep it as a skiplist, not as a listpack.
    #[must_use]
    pub fn is_skiplist(&self) -> bool {
        self.set.is_skiplist()
    }

    /// The score of `member`. `None`: it is none.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn score(&mut self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        Ok(self.set.score(member)?)
    }

    /// How many members lie before `member`, and its score. `None`: it is none.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn rank(&mut self, member: &[u8]) -> Result<Option<(u64, f64)>, CollectionError> {
        Ok(self.set.rank(member)?)
    }

    /// The positions of the members in `range`.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn positions(&mut self, range: &SortedRange<'_>) -> Result<Range<u64>, CollectionError> {
        Ok(self.set.positions(range)?)
    }

    /// Calls `visit` with the members at these positions, in order or in reverse, until it says
    /// that it is enough.
    ///
    /// # Errors
    /// The set is damaged, or cannot be read; those of `visit`.
    pub fn walk(
        &mut self,
        positions: Range<u64>,
        is_reverse: bool,
        visit: &mut dyn FnMut(Scored<'_>) -> Result<bool, CollectionError>,
    ) -> Result<(), CollectionError> {
        self.set.walk(positions, is_reverse, visit)
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

    /// A step of a walk in no order, from `cursor` on, which is 0 at first: some `count` members,
    /// and the next cursor, which is 0 at the end. A member that is there all the time is found at
    /// least once. One that Redis would keep as a listpack is returned at once.
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
        let (found, next) = self.set.scan(cursor, count)?;
        let mut members = ScoredMembers::default();
        found
            .iter()
            .try_for_each(|scored| members.push_scored(scored))?;
        Ok((members, next))
    }
}

/// Members with their scores, copied.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScoredMembers {
    bytes: Vec<u8>,
    /// Where each member ends, and its score.
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none.
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

/// A sorted set that is changed, small or large.
pub struct SortedSetChange<'r> {
    set: &'r mut SortedSetEdit,
}

impl SortedSetChange<'_> {
    /// The set as it is now.
    ///
    /// # Errors
    /// The set is damaged.
    pub fn view(&mut self) -> Result<SortedSetView<'_>, CollectionError> {
        Ok(self.set.read()?.into())
    }

    /// Whether a member was added, moved or removed, if only for a time.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.set.is_changed()
    }

    /// Gives `member` this score. Returns the one that it had.
    ///
    /// # Errors
    /// The score is not a number, the member is too long, the set is damaged, or there is no space.
    pub fn set(&mut self, member: &[u8], score: f64) -> Result<Option<f64>, CollectionError> {
        Ok(self.set.set(member, score)?)
    }

    /// Removes `member`. Returns the score that it had.
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn remove(&mut self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        Ok(self.set.remove(member)?)
    }

    /// Removes the members at these positions. How many there were.
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn remove_positions(&mut self, positions: Range<u64>) -> Result<u64, CollectionError> {
        Ok(self.set.remove_positions(positions)?)
    }

    /// Removes the first `count` members, or the last ones, and returns them from there on.
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

    /// Makes a small one count as a skiplist if Redis would (see
    /// [`SortedSetEdit::convert`](crate::SortedSetEdit::convert)).
    ///
    /// # Errors
    /// The set is damaged.
    pub fn convert(&mut self, limits: SortedSetLimits) -> Result<(), CollectionError> {
        Ok(self.set.convert(limits)?)
    }
}
