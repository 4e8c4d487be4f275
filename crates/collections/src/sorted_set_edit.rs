//! Changes of a small sorted set: made in a copy of its image, which then replaces it.

use std::collections::HashMap;
use std::ops::Range;

use mneme_log::{Decision, Elements, MAX_VALUE};

use crate::error::{CollectionError, Damage, EditError};
use crate::listpack::{self, EMPTY, Encoded, splice};
use crate::packed_sorted_set::{FORM, PACKED, PackedSortedSet, SKIPLIST};
use crate::score::ScoreText;

/// The maximum number of members that are set one by one: for more, all members are sorted again.
const FEW: usize = 8;

/// The limits up to which Redis keeps a sorted set as a listpack: `zset-max-listpack-entries` and
/// `zset-max-listpack-value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortedSetLimits {
    /// The number of members.
    pub entries: usize,
    /// The length of a member in bytes.
    pub value: usize,
}

impl Default for SortedSetLimits {
    /// The defaults of Redis 7.0.
    fn default() -> Self {
        SortedSetLimits {
            entries: 128,
            value: 64,
        }
    }
}

/// A packed sorted set that is being changed. A change that fails leaves it as it was.
#[derive(Clone, PartialEq, Debug)]
pub struct SortedSetEdit {
    image: Vec<u8>,
    /// The length of the longest member that was added, in bytes; `None`: none was added.
    longest: Option<usize>,
    /// The recorded changes, in order; `None`: they are not recorded.
    changes: Option<Vec<(Vec<u8>, Option<f64>)>>,
    /// The set changed as a whole, not only in these members.
    is_whole: bool,
}

impl Default for SortedSetEdit {
    fn default() -> Self {
        Self::new()
    }
}

impl SortedSetEdit {
    /// A sorted set without members. O(1).
    #[must_use]
    pub fn new() -> SortedSetEdit {
        SortedSetEdit {
            image: [&[PACKED][..], &EMPTY].concat(),
            longest: None,
            changes: None,
            is_whole: false,
        }
    }

    /// A copy of the sorted set in `image`. O(bytes).
    ///
    /// # Errors
    /// The image is not of this type, by its head or its end.
    pub fn of(image: &[u8]) -> Result<SortedSetEdit, Damage> {
        PackedSortedSet::read(image)?;
        // Usually one more member fits without another copy.
        let mut copy = Vec::with_capacity(image.len() + 64);
        copy.extend_from_slice(image);
        Ok(SortedSetEdit {
            image: copy,
            ..SortedSetEdit::new()
        })
    }

    /// A sorted set of these members with their scores, in the form in which Redis would keep it.
    /// If a member occurs several times, its last score counts. O(members log members).
    ///
    /// # Errors
    /// A score is not a number, or the image would be too long.
    pub fn of_all<M: AsRef<[u8]> + Ord>(
        members: impl IntoIterator<Item = (M, f64)>,
        limits: SortedSetLimits,
    ) -> Result<SortedSetEdit, EditError> {
        let mut members: Vec<(M, f64)> = members.into_iter().collect();
        // The sort is stable: of equal members, the last stays the last.
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        members.reverse();
        members.dedup_by(|(one, _), (other, _)| one.as_ref() == other.as_ref());
        for (_, score) in &mut members {
            *score = sound(*score)?;
        }
        let count = members.len();
        let (image, longest) = image_of(members)?;
        let mut set = SortedSetEdit {
            image,
            longest: Some(longest),
            ..SortedSetEdit::new()
        };
        set.finish(Some(2 * count));
        set.convert(limits)?;
        Ok(set)
    }

    /// Calls `change` to change the sorted set of a key, which is empty if there is no key; which
    /// returns whether it did. Returns what to do with the key, for an update of the store. A set
    /// that is empty afterwards is removed. The changes are appended to `elements`, for an update
    /// that takes them. O(bytes).
    ///
    /// # Errors
    /// The image is damaged; those of `change`.
    pub fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut SortedSetEdit) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        let set = old.map_or_else(|| Ok(SortedSetEdit::new()), SortedSetEdit::of);
        let mut set = set.map_err(CollectionError::from)?;
        let elements = elements.filter(|elements| elements.are_wanted());
        if elements.is_some() {
            set.changes = Some(Vec::new());
        }
        let (result, is_changed) = change(&mut set)?;
        let decision = if !is_changed {
            Decision::Keep
        } else if set.read().map_err(CollectionError::from)?.is_empty() {
            Decision::Remove
        } else {
            if let Some(elements) = elements.filter(|_| !set.is_whole) {
                for (member, score) in set.changes.iter().flatten() {
                    match score {
                        Some(score) => elements.set(member, ScoreText::of(*score).bytes()),
                        None => elements.remove(member),
                    }
                }
            }
            Decision::Replace(set.into_image())
        };
        Ok((result, decision))
    }

    /// The set as it is now. O(1).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn read(&self) -> Result<PackedSortedSet<'_>, Damage> {
        PackedSortedSet::read(&self.image)
    }

    /// The image. O(1).
    #[must_use]
    pub fn into_image(self) -> Vec<u8> {
        self.image
    }

    /// Gives `member` this score. Returns its previous score. O(bytes).
    ///
    /// # Errors
    /// The score is not a number; the image is damaged, or would be too long.
    pub fn set(&mut self, member: &[u8], score: f64) -> Result<Option<f64>, EditError> {
        let old = self.read()?.find(member)?;
        let old = old.map(|found| found.scored_place()).transpose()?;
        let before = old.as_ref().map(|(score, _)| *score);
        self.give(member, old, score)?;
        Ok(before)
    }

    /// Gives `member` another score; `old` is its present score and place in the listpack, if it is
    /// a member. Returns whether the score has changed.
    fn give(
        &mut self,
        member: &[u8],
        old: Option<(f64, Range<usize>)>,
        score: f64,
    ) -> Result<bool, EditError> {
        let score = sound(score)?;
        check_len(self.image.len().saturating_add(member.len()))?;
        if old.as_ref().is_some_and(|(old, _)| *old == score) {
            return Ok(false);
        }
        let set = self.read()?;
        let (count, is_new) = (set.listpack_len(), old.is_none());
        let place = set.place_of(member, score, old.clone())? + FORM;
        let old = old.map(|(_, place)| place.start + FORM..place.end + FORM);
        // The new place of the member, after those between it and the old place have moved.
        let place = match old {
            None => place..place,
            Some(old) if place <= old.start => {
                self.image.copy_within(place..old.start, place + old.len());
                place..place + old.len()
            }
            Some(old) => {
                self.image.copy_within(old.end..place, old.start);
                place - old.len()..place
            }
        };
        let text = ScoreText::of(score);
        let entries = [Encoded::of(member), Encoded::of(text.bytes())];
        splice(&mut self.image, place, &entries);
        match is_new {
            true => {
                self.finish(count.map(|count| count + 2));
                self.longest = self.longest.max(Some(member.len()));
            }
            false => self.finish(count),
        }
        self.note(member, Some(score));
        Ok(true)
    }

    /// Calls `give` for each of `members`, in order, with its present score; `give` returns the new
    /// score, or `None` to leave it. Returns whether any score has changed. O(bytes + members log
    /// members). If `give` fails, earlier members may already have their new scores.
    ///
    /// # Errors
    /// As for [`set`](Self::set); those of `give`.
    pub fn set_many<E: From<CollectionError>>(
        &mut self,
        members: &[&[u8]],
        mut give: impl FnMut(usize, Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<bool, E> {
        let mut is_changed = false;
        if members.len() <= FEW {
            for (place, member) in members.iter().enumerate() {
                let found = self.read().and_then(|set| set.find(member));
                let old = found.and_then(|of| of.map(|found| found.scored_place()).transpose());
                let old = old.map_err(CollectionError::from)?;
                if let Some(score) = give(place, old.as_ref().map(|(score, _)| *score))? {
                    let given = self.give(member, old, score);
                    is_changed |= given.map_err(CollectionError::from)?;
                }
            }
            return Ok(is_changed);
        }
        let mut scores = self.scores().map_err(CollectionError::from)?;
        let (mut longest, mut changes) = (self.longest, Vec::new());
        for (place, &member) in members.iter().enumerate() {
            let old = scores.get(member).copied();
            let Some(score) = give(place, old)? else {
                continue;
            };
            let score = sound(score).map_err(CollectionError::from)?;
            if old == Some(score) {
                continue;
            }
            scores.insert(member.to_vec(), score);
            if old.is_none() {
                longest = longest.max(Some(member.len()));
            }
            changes.push((member, score));
        }
        if changes.is_empty() {
            return Ok(false);
        }
        let (count, form) = (scores.len(), self.image.first().copied());
        let image = image_of(scores.into_iter().collect());
        (self.image, _) = image.map_err(CollectionError::from)?;
        self.image[0] = form.unwrap_or(PACKED);
        self.finish(Some(2 * count));
        self.longest = longest;
        for (member, score) in changes {
            self.note(member, Some(score));
        }
        Ok(true)
    }

    /// All members with their scores.
    fn scores(&self) -> Result<HashMap<Vec<u8>, f64>, Damage> {
        let all = self.read()?.all();
        all.map(|scored| {
            let scored = scored?;
            Ok((scored.member.to_vec(), scored.score()?))
        })
        .collect()
    }

    /// Removes `member`. Returns its previous score. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn remove(&mut self, member: &[u8]) -> Result<Option<f64>, EditError> {
        let set = self.read()?;
        let count = set.listpack_len();
        let Some(found) = set.find(member)? else {
            return Ok(None);
        };
        let score = found.score()?;
        let entries = found.member.begin + FORM..found.score.end + FORM;
        splice(&mut self.image, entries, &[]);
        self.finish(count.map(|count| count.saturating_sub(2)));
        self.note(member, None);
        Ok(Some(score))
    }

    /// Removes the members at these positions. Returns how many were removed. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn remove_positions(&mut self, positions: Range<u64>) -> Result<u64, EditError> {
        let mut removed = Vec::new();
        let set = self.read()?;
        set.walk(positions.clone(), false, |scored| {
            removed.push(scored.member.to_vec());
            Ok::<_, Damage>(true)
        })?;
        let count = set.listpack_len();
        let (begin, end) = (set.begin_of(positions.start)?, set.begin_of(positions.end)?);
        if removed.is_empty() {
            return Ok(0);
        }
        splice(&mut self.image, begin + FORM..end + FORM, &[]);
        self.finish(count.map(|count| count.saturating_sub(2 * removed.len())));
        for member in &removed {
            self.note(member, None);
        }
        Ok(removed.len() as u64)
    }

    /// Makes it a skiplist if Redis would: a member was added here, and the set has more members
    /// than `limits` allow, or an added one is longer. It then stays a skiplist. O(1) for most.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn convert(&mut self, limits: SortedSetLimits) -> Result<(), Damage> {
        let Some(longest) = self.longest else {
            return Ok(());
        };
        if self.image.first() == Some(&PACKED)
            && (longest > limits.value || self.read()?.len()? > limits.entries as u64)
        {
            self.image[0] = SKIPLIST;
            self.is_whole = true;
        }
        Ok(())
    }

    fn note(&mut self, member: &[u8], score: Option<f64>) {
        if let Some(changes) = &mut self.changes {
            changes.push((member.to_vec(), score));
        }
    }

    fn finish(&mut self, count: Option<usize>) {
        listpack::finish(&mut self.image[FORM..], count);
    }
}

/// The image of these members with their scores, without its head, and the length of the longest
/// member.
fn image_of<M: AsRef<[u8]> + Ord>(
    mut members: Vec<(M, f64)>,
) -> Result<(Vec<u8>, usize), EditError> {
    members.sort_by(|(one, score), (other, of_other)| {
        score.total_cmp(of_other).then_with(|| one.cmp(other))
    });
    let mut image = vec![PACKED];
    image.extend_from_slice(&EMPTY[..listpack::HEAD]);
    let mut longest = 0;
    for (member, score) in &members {
        let member = member.as_ref();
        longest = longest.max(member.len());
        check_len(image.len().saturating_add(member.len()))?;
        Encoded::of(member).append_to(&mut image);
        Encoded::of(ScoreText::of(*score).bytes()).append_to(&mut image);
    }
    image.push(EMPTY[listpack::HEAD]);
    Ok((image, longest))
}

/// The score as it is stored: -0 becomes 0.
fn sound(score: f64) -> Result<f64, EditError> {
    match score.is_nan() {
        true => Err(EditError::NotANumber),
        false => Ok(score + 0.0),
    }
}

/// Refuses an image that is too long for a record. The heads of entries, a few bytes, are not
/// counted: the store itself refuses an image that exceeds the limit by those.
fn check_len(bytes: usize) -> Result<(), EditError> {
    match bytes <= MAX_VALUE {
        true => Ok(()),
        false => Err(EditError::TooLong(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::*;
    use crate::sorted_range::SortedRange;

    fn sorted(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(Vec<u8>, f64)> {
        let mut all: Vec<_> = model.iter().map(|(m, s)| (m.clone(), *s)).collect();
        all.sort_by(|(m, s), (n, t)| s.total_cmp(t).then_with(|| m.cmp(n)));
        all
    }

    fn all(set: &SortedSetEdit) -> Vec<(Vec<u8>, f64)> {
        let set = set.read().unwrap();
        let all = set.all().map(|scored| scored.unwrap());
        all.map(|scored| (scored.member.to_vec(), scored.score().unwrap()))
            .collect()
    }

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            6 => (-5..5i8).prop_map(f64::from),
            2 => (-40..40i8).prop_map(|number| f64::from(number) / 8.0),
            1 => prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.0), Just(1e300)],
        ]
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0..30u8).prop_map(|number| number.to_string().into_bytes()),
            (0..30u8).prop_map(|number| format!("m{number}").into_bytes()),
            Just(vec![b'l'; 200]),
            Just(Vec::new()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_packed_sorted_set_holds_what_a_map_holds(
            ops in proptest::collection::vec((0..8u8, member(), score(), score(), 0..60u64), 1..150),
        ) {
            let (mut set, mut model) = (SortedSetEdit::new(), BTreeMap::new());
            for (what, member, number, other, at) in ops {
                match what {
                    0..5 => {
                        let before = set.set(&member, number).unwrap();
                        prop_assert_eq!(before, model.insert(member.clone(), number + 0.0));
                    }
                    5 | 6 => {
                        let before = set.remove(&member).unwrap();
                        prop_assert_eq!(before, model.remove(&member));
                    }
                    _ => {
                        let gone = sorted(&model);
                        let gone: Vec<_> = gone.into_iter().skip(at as usize).take(3).collect();
                        let removed = set.remove_positions(at..at + 3).unwrap();
                        prop_assert_eq!(removed, gone.len() as u64);
                        model.retain(|member, _| gone.iter().all(|(other, _)| other != member));
                    }
                }
                let read = set.read().unwrap();
                read.check().unwrap();
                let expected = sorted(&model);
                prop_assert_eq!(&all(&set), &expected);
                prop_assert_eq!(read.len().unwrap(), expected.len() as u64);
                let rank = expected.iter().position(|(m, _)| *m == member);
                let rank = rank.map(|rank| (rank as u64, expected[rank].1));
                prop_assert_eq!(read.rank(&member).unwrap(), rank);
                prop_assert_eq!(read.score(&member).unwrap(), model.get(&member).copied());
                for (low, high) in [
                    (Bound::Included(number), Bound::Included(other)),
                    (Bound::Excluded(number), Bound::Included(other)),
                    (Bound::Included(number), Bound::Excluded(other)),
                    (Bound::Unbounded, Bound::Excluded(other)),
                ] {
                    let positions = read.positions(&SortedRange::Scores(low, high)).unwrap();
                    let within = |score: &f64| match (low, high) {
                        (Bound::Included(low), Bound::Included(high)) => (low..=high).contains(score),
                        (Bound::Included(low), Bound::Excluded(high)) => (low..high).contains(score),
                        (_, Bound::Included(high)) => *score > number && *score <= high,
                        (_, Bound::Excluded(high)) => *score < high,
                        _ => true,
                    };
                    let expected: Vec<_> = expected.iter().filter(|(_, s)| within(s)).collect();
                    let mut found = Vec::new();
                    read.walk(positions, true, |scored| {
                        found.insert(0, (scored.member.to_vec(), scored.score()?));
                        Ok::<_, Damage>(true)
                    }).unwrap();
                    prop_assert!(found.iter().eq(expected));
                }
            }
            let of_all = SortedSetEdit::of_all(model.clone(), SortedSetLimits::default()).unwrap();
            prop_assert_eq!(all(&of_all), sorted(&model));
            of_all.read().unwrap().check().unwrap();
        }

        #[test]
        fn a_damaged_sorted_set_is_an_error_and_never_a_panic(
            byte in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let members = (0..20u8).map(|n| (vec![b'm', n], f64::from(n) / 3.0));
            let set = SortedSetEdit::of_all(members, SortedSetLimits::default()).unwrap();
            let mut image = set.into_image();
            let at = byte.index(image.len());
            image[at] = value;
            if let Ok(mut set) = SortedSetEdit::of(&image) {
                let read = set.read().unwrap();
                let _ = (read.check(), read.len(), read.rank(b"m\x07"), read.scan(0, 5));
                let range = SortedRange::Scores(Bound::Included(1.0), Bound::Included(5.0));
                let _ = read.positions(&range);
                let _ = set.set(b"m\x07", 2.5);
                let _ = set.remove_positions(3..9);
                let _ = set.remove(b"m\x01");
            }
        }
    }

    #[test]
    fn members_of_one_score_are_in_the_order_of_their_bytes() {
        let mut set = SortedSetEdit::new();
        for member in ["b", "10", "a", "9", "", "ab"] {
            set.set(member.as_bytes(), 1.0).unwrap();
        }
        let members: Vec<_> = all(&set).into_iter().map(|(member, _)| member).collect();
        let expected: [&[u8]; 6] = [b"", b"10", b"9", b"a", b"ab", b"b"];
        assert_eq!(members, expected);
        let range = |low, high| {
            set.read()
                .unwrap()
                .positions(&SortedRange::Members(low, high))
        };
        let of = |low, high| range(low, high).unwrap();
        assert_eq!(of(Bound::Unbounded, Bound::Unbounded), 0..6);
        assert_eq!(of(Bound::Included(b"a"), Bound::Excluded(b"b")), 3..5);
        assert_eq!(of(Bound::Excluded(b"a"), Bound::Included(b"b")), 4..6);
        assert_eq!(of(Bound::Included(b"b"), Bound::Included(b"a")), 0..0);
        assert_eq!(set.set(b"x", f64::NAN), Err(EditError::NotANumber));
        assert_eq!(
            set.read().unwrap().positions(&SortedRange::Ranks(-2, -1)),
            Ok(4..6)
        );
        assert_eq!(
            set.read().unwrap().positions(&SortedRange::Ranks(2, 100)),
            Ok(2..6)
        );
        assert_eq!(
            set.read().unwrap().positions(&SortedRange::Ranks(4, 2)),
            Ok(0..0)
        );
    }

    #[test]
    fn a_set_that_was_too_large_once_stays_a_skiplist() {
        let limits = SortedSetLimits {
            entries: 2,
            value: 4,
        };
        let mut set = SortedSetEdit::new();
        for (member, is_skiplist) in [("a", false), ("b", false), ("c", true)] {
            set.set(member.as_bytes(), 1.0).unwrap();
            set.convert(limits).unwrap();
            assert_eq!(set.read().unwrap().is_skiplist(), is_skiplist);
        }
        set.remove(b"a").unwrap();
        set.remove(b"b").unwrap();
        let mut set = SortedSetEdit::of(&set.into_image()).unwrap();
        assert!(set.read().unwrap().is_skiplist());
        set.set(b"c", 5.0).unwrap();
        let mut long = SortedSetEdit::new();
        long.set(b"12345", 1.0).unwrap();
        let mut kept = SortedSetEdit::of(&long.clone().into_image()).unwrap();
        long.convert(limits).unwrap();
        assert!(long.read().unwrap().is_skiplist());
        // As in Redis, a new score of an existing member does not convert it.
        kept.set(b"12345", 2.0).unwrap();
        kept.convert(limits).unwrap();
        assert!(!kept.read().unwrap().is_skiplist());
    }
}
