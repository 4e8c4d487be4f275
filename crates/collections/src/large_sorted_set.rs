//! A large sorted set: **the score of a member is found by reading one leaf, and places in the
//! order are found in a tree.**
//!
//! Members with their scores lie in [`Leaves`], as the fields of a large hash with their values,
//! and the change feed reports them from there. A [tree](crate::counted_tree) holds them a second
//! time, in the order of scores and then of the members' bytes. The tree is derived data: a replay
//! rebuilds it from members and scores.

use std::cmp::Ordering;
use std::ops::Range;

use crate::SORTED_SET;
use crate::collection_type::{Finish, LargeEdit};
use crate::counted_tree::{ElementShape, NewElements, PlaceChange, PlaceEdit, Seek};
use crate::error::{CollectionError, Damage, EditError};
use crate::leaves::Leaves;
use crate::listpack::Element;
use crate::packed_edit::{check_element, check_elements};
use crate::packed_sorted_set::{PackedSortedSet, Scored};
use crate::records::StoreRecords;
use crate::score::{ScoreText, score_in};
use crate::sorted_range::SortedRange;

/// A member and its score.
const SHAPE: ElementShape = ElementShape {
    stride: 2,
    key: 2,
    has_positions: false,
};

/// A large sorted set, within a transaction.
pub struct LargeSortedSet<'r> {
    leaves: Leaves<'r, 2>,
}

/// An element of the tree, as a member with its score.
fn scored<'e>(element: &[Element<'e>]) -> Result<Scored<'e>, Damage> {
    match *element {
        [member, score] => Ok(Scored { member, score }),
        _ => Err(Damage {
            at: 0,
            what: "an element of a tree that is no member with a score",
        }),
    }
}

fn removal(_: Option<&[Element<'_>]>) -> Result<PlaceChange, CollectionError> {
    Ok(PlaceChange::Remove)
}

impl<'r> LargeSortedSet<'r> {
    /// The sorted set stored as collection `id`. O(1).
    ///
    /// # Errors
    /// There is no such collection, or it is of another type; the store cannot be read.
    pub fn open(records: &'r mut dyn StoreRecords, id: u64) -> Result<Self, CollectionError> {
        let leaves = Leaves::open_kind(records, id, SORTED_SET)?;
        Ok(LargeSortedSet { leaves })
    }

    /// As [`open`](Self::open), for a replay: a set that does not exist yet begins empty, and no
    /// change is reported.
    pub(crate) fn replay(
        records: &'r mut dyn StoreRecords,
        id: u64,
    ) -> Result<Self, CollectionError> {
        let leaves = Leaves::replay(records, id, SORTED_SET)?;
        Ok(LargeSortedSet { leaves })
    }

    /// Creates collection `id` with what `image`, a packed sorted set, holds.
    ///
    /// # Errors
    /// The image is damaged; there is no space.
    pub(crate) fn build(
        records: &'r mut dyn StoreRecords,
        id: u64,
        image: &[u8],
    ) -> Result<Self, CollectionError> {
        let mut members = Vec::new();
        for scored in PackedSortedSet::read(image)?.all() {
            let scored = scored?;
            members.push((scored.member.to_vec(), scored.score.to_vec()));
        }
        // Both forms of image have one byte of form and a listpack of pairs.
        let mut leaves = Leaves::build(records, id, SORTED_SET, image)?;
        let each = members.iter();
        leaves
            .tree(SHAPE)
            .build(each.map(|(member, score)| [&member[..], &score[..]]))?;
        Ok(LargeSortedSet { leaves })
    }

    /// Stores the anchor. An empty set has no anchor, unless it is being replayed.
    ///
    /// # Errors
    /// There is no space.
    pub fn finish(self) -> Result<(), CollectionError> {
        self.leaves.finish()
    }

    /// Borrows the set for reading: changes that the borrowed one makes to the anchor are lost.
    pub(crate) fn reborrow(&mut self) -> LargeSortedSet<'_> {
        LargeSortedSet {
            leaves: self.leaves.reborrow(),
        }
    }

    /// The number of members. O(1).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.leaves.count()
    }

    /// The score of `member`. `None`: it is not a member. O(1).
    ///
    /// # Errors
    /// The set is damaged, or cannot be read.
    pub fn score(&mut self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        let text = self.leaves.get(member)?;
        Ok(text.map(|text| score_in(&text)).transpose()?)
    }

    /// The number of members before `member`, and its score. `None`: it is not a member. O(log
    /// members).
    ///
    /// # Errors
    /// As for [`score`](Self::score).
    pub fn rank(&mut self, member: &[u8]) -> Result<Option<(u64, f64)>, CollectionError> {
        match self.score(member)? {
            Some(score) => Ok(Some((self.rank_of(member, score)?, score))),
            None => Ok(None),
        }
    }

    /// The number of members before this one, which has this score.
    fn rank_of(&mut self, member: &[u8], score: f64) -> Result<u64, CollectionError> {
        let mut compare = |element: &[Element<'_>]| scored(element)?.order(score, member);
        match self.leaves.tree(SHAPE).rank(&mut compare)? {
            (rank, true) => Ok(rank),
            (_, false) => {
                let what = "a member of a sorted set that its tree does not have";
                Err(Damage { at: 0, what }.into())
            }
        }
    }

    /// The positions of the members in `range`. O(log members).
    ///
    /// # Errors
    /// As for [`score`](Self::score).
    pub fn positions(&mut self, range: &SortedRange<'_>) -> Result<Range<u64>, CollectionError> {
        if let Some(positions) = range.ranks(self.count()) {
            return Ok(positions);
        }
        if range.is_empty() {
            return Ok(0..0);
        }
        let of = |is_before: bool| {
            if is_before {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        };
        let mut tree = self.leaves.tree(SHAPE);
        let mut begin = |element: &[Element<'_>]| Ok(of(range.begins_behind(&scored(element)?)?));
        let (begin, _) = tree.rank(&mut begin)?;
        let mut end = |element: &[Element<'_>]| Ok(of(!range.ends_before(&scored(element)?)?));
        let (end, _) = tree.rank(&mut end)?;
        Ok(begin..end.max(begin))
    }

    /// Calls `visit` with the members at these positions, in order or in reverse, until it returns
    /// false.
    ///
    /// # Errors
    /// As for [`score`](Self::score); those of `visit`.
    pub fn walk(
        &mut self,
        positions: Range<u64>,
        is_reverse: bool,
        visit: &mut dyn FnMut(Scored<'_>) -> Result<bool, CollectionError>,
    ) -> Result<(), CollectionError> {
        let count = self.count();
        let (start, end) = (positions.start, positions.end.min(count));
        let Some(mut left) = end.checked_sub(start).filter(|left| *left > 0) else {
            return Ok(());
        };
        let skipped = if is_reverse { count - end } else { start };
        // A walk over few members reads few records, which are unlikely to change meanwhile.
        if left > count / 2 {
            self.leaves.reads_all()?;
        }
        let mut tree = self.leaves.tree(SHAPE);
        tree.walk(skipped, is_reverse, &mut |element| {
            left -= 1;
            Ok(visit(scored(element)?)? && left > 0)
        })
    }

    /// A step of a scan, as [`Packed::scan`](crate::Packed::scan): whole leaves. O(count).
    ///
    /// # Errors
    /// As for [`score`](Self::score).
    pub(crate) fn scan(
        &mut self,
        cursor: u64,
        count: usize,
    ) -> Result<(Vec<crate::hash::OwnedPair>, u64), CollectionError> {
        self.leaves.scan(cursor, count)
    }

    /// Gives `member` this score. Returns its previous score. O(log members).
    ///
    /// # Errors
    /// The score is not a number, the member is too long, the set is damaged, or there is no space.
    pub fn set(&mut self, member: &[u8], score: f64) -> Result<Option<f64>, CollectionError> {
        check_element(member)?;
        let before = self.score(member)?;
        self.put(member, before, score)?;
        Ok(before)
    }

    /// As [`SortedSetEdit::set_many`](crate::SortedSetEdit::set_many). A member that is too long
    /// changes nothing.
    ///
    /// # Errors
    /// As for [`set`](Self::set); those of `give`.
    pub fn set_many<E: From<CollectionError>>(
        &mut self,
        members: &[&[u8]],
        mut give: impl FnMut(usize, Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<bool, E> {
        check_elements(members)?;
        let mut is_changed = false;
        for (place, member) in members.iter().enumerate() {
            let before = self.score(member)?;
            if let Some(score) = give(place, before)? {
                is_changed |= self.put(member, before, score)?;
            }
        }
        Ok(is_changed)
    }

    /// Changes the score of `member`, which is `before`. Returns whether the score has changed.
    fn put(
        &mut self,
        member: &[u8],
        before: Option<f64>,
        score: f64,
    ) -> Result<bool, CollectionError> {
        if score.is_nan() {
            return Err(EditError::NotANumber.into());
        }
        // -0 becomes 0.
        let score = score + 0.0;
        if before == Some(score) {
            return Ok(false);
        }
        let text = ScoreText::of(score);
        let insert = &mut |_: Option<&[Element<'_>]>| {
            let element = NewElements::one(&[member, text.bytes()]);
            Ok(PlaceChange::Insert(element))
        };
        let mut by = |element: &[Element<'_>]| scored(element)?.order(score, member);
        let seek = Seek::By(&mut by);
        let insert = PlaceEdit {
            seek,
            decide: insert,
        };
        let mut by =
            |element: &[Element<'_>]| scored(element)?.order(before.unwrap_or_default(), member);
        let seek = Seek::By(&mut by);
        let remove = PlaceEdit {
            seek,
            decide: &mut removal,
        };
        let mut tree = self.leaves.tree(SHAPE);
        match before {
            None => tree.edit(&mut [insert])?,
            Some(before) if before < score => tree.edit(&mut [remove, insert])?,
            Some(_) => tree.edit(&mut [insert, remove])?,
        }
        self.leaves.set(member, text.bytes())?;
        Ok(true)
    }

    /// Removes `member`. Returns its previous score. O(log members).
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn remove(&mut self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        let Some(score) = self.score(member)? else {
            return Ok(None);
        };
        let mut by = |element: &[Element<'_>]| scored(element)?.order(score, member);
        let seek = Seek::By(&mut by);
        let decide = &mut removal;
        self.leaves
            .tree(SHAPE)
            .edit(&mut [PlaceEdit { seek, decide }])?;
        self.leaves.remove(member)?;
        Ok(Some(score))
    }

    /// Removes the members at these positions. Returns how many were removed. O(log members) for
    /// the first, O(1) for each other.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub fn remove_positions(&mut self, positions: Range<u64>) -> Result<u64, CollectionError> {
        let mut members = Vec::new();
        self.walk(positions.clone(), false, &mut |scored| {
            members.push(scored.member.to_vec());
            Ok(true)
        })?;
        self.leaves.tree(SHAPE).remove(positions)?;
        for member in &members {
            self.leaves.remove(member)?;
        }
        Ok(members.len() as u64)
    }

    /// Makes collection `to` a copy of this one. The caller must store a main record for it.
    ///
    /// # Errors
    /// The set is damaged, or there is no space.
    pub fn copy_to(&mut self, to: u64) -> Result<(), CollectionError> {
        self.leaves.tree(SHAPE).copy_to(to)?;
        self.leaves.copy_to(to)
    }

    /// Checks everything. O(members).
    ///
    /// # Errors
    /// The first problem found; also if the store cannot be read.
    pub fn check(&mut self) -> Result<(), CollectionError> {
        self.leaves.check()?;
        let in_tree = self.leaves.tree(SHAPE).check(&mut |one, other| {
            let other = scored(other)?;
            let score = other.score()?;
            (other.member).with_bytes(|member| scored(one)?.order(score, member))
        })?;
        let damage = |what| Err(Damage { at: 0, what }.into());
        if in_tree != self.count() {
            return damage("a tree with another number of members");
        }
        let mut members = Vec::new();
        self.walk(0..u64::MAX, false, &mut |scored| {
            members.push((scored.member.to_vec(), scored.score.to_vec()));
            Ok(true)
        })?;
        for (member, score) in members {
            if self.leaves.get(&member)?.as_deref() != Some(&score[..]) {
                return damage("a member with another score in the tree");
            }
        }
        Ok(())
    }
}

impl Finish for LargeSortedSet<'_> {
    fn finish_changed(self) -> Result<LargeEdit, CollectionError> {
        self.leaves.finish_changed()
    }

    fn finish_failed(self) -> Result<(), CollectionError> {
        self.leaves.finish_failed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::*;
    use crate::model::Model;
    use crate::sorted_set_edit::{SortedSetEdit, SortedSetLimits};

    fn in_order(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(Vec<u8>, f64)> {
        let mut all: Vec<_> = model.iter().map(|(m, s)| (m.clone(), *s)).collect();
        all.sort_by(|(m, s), (n, t)| s.total_cmp(t).then_with(|| m.cmp(n)));
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_large_sorted_set_holds_what_a_map_holds(
            first in 10..400u16,
            ops in proptest::collection::vec((0..12u8, 0..500u16, -40..40i8, 0..400u64), 1..250),
        ) {
            let name = |number: u16| match number % 50 {
                0 => vec![b'l'; 300 + usize::from(number)],
                _ => format!("member {number}").into_bytes(),
            };
            let (mut model, mut map) = (Model::default(), BTreeMap::new());
            map.extend((0..first).map(|n| (name(n), f64::from(n % 7) / 2.0)));
            let packed = SortedSetEdit::of_all(map.clone(), SortedSetLimits::default()).unwrap();
            let mut image = packed.into_image();
            image[0] = 1;
            LargeSortedSet::build(&mut model, 1, &image).unwrap().finish().unwrap();
            for (what, number, score, at) in ops {
                if model.anchor.is_none() {
                    break;
                }
                let mut set = LargeSortedSet::open(&mut model, 1).unwrap();
                let (member, score) = (name(number), f64::from(score) / 4.0);
                match what {
                    0..7 => {
                        let before = set.set(&member, score).unwrap();
                        prop_assert_eq!(before, map.insert(member.clone(), score));
                    }
                    7..11 => {
                        let before = set.remove(&member).unwrap();
                        prop_assert_eq!(before, map.remove(&member));
                    }
                    _ => {
                        let gone = in_order(&map).into_iter().skip(at as usize).take(60);
                        let gone: Vec<_> = gone.collect();
                        let removed = set.remove_positions(at..at + 60).unwrap();
                        prop_assert_eq!(removed, gone.len() as u64);
                        gone.iter().for_each(|(member, _)| {
                            map.remove(member);
                        });
                    }
                }
                set.check().unwrap();
                prop_assert_eq!(set.count(), map.len() as u64);
                let all = in_order(&map);
                let rank = all.iter().position(|(m, _)| *m == member);
                let rank = rank.map(|rank| (rank as u64, all[rank].1));
                prop_assert_eq!(set.rank(&member).unwrap(), rank);
                let range = SortedRange::Scores(Bound::Excluded(score), Bound::Included(score + 2.0));
                let positions = set.positions(&range).unwrap();
                let expected = all.iter().filter(|(_, s)| *s > score && *s <= score + 2.0);
                let mut found = Vec::new();
                set.walk(positions, true, &mut |scored| {
                    found.insert(0, (scored.member.to_vec(), scored.score()?));
                    Ok(true)
                }).unwrap();
                prop_assert!(found.iter().eq(expected));
                set.finish().unwrap();
                // The reported changes rebuild the set.
                let said = model.said.iter().map(|(m, s)| (m.clone(), score_in(s).unwrap()));
                prop_assert!(said.eq(map.iter().map(|(m, s)| (m.clone(), *s))));
                prop_assert_eq!(model.inner.is_empty(), map.is_empty());
            }
        }
    }

    #[test]
    fn a_member_that_stays_in_its_place_changes_two_records() {
        let members = (0..4_000).map(|n| (format!("member {n}").into_bytes(), f64::from(n)));
        let packed = SortedSetEdit::of_all(members, SortedSetLimits::default()).unwrap();
        let (mut model, mut image) = (Model::default(), packed.into_image());
        image[0] = 1;
        let mut set = LargeSortedSet::build(&mut model, 1, &image).unwrap();
        set.set(b"member 2000", 2000.5).unwrap();
        set.finish().unwrap();
        let before = model.stored;
        let mut set = LargeSortedSet::open(&mut model, 1).unwrap();
        // The record of its leaf, and the record of the tree.
        assert_eq!(set.set(b"member 2000", 2000.25).unwrap(), Some(2000.5));
        set.check().unwrap();
        set.finish().unwrap();
        assert_eq!(model.stored - before, 2);
    }
}
