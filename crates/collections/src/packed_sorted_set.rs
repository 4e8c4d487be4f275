//! A sorted set that is one image: **members and their scores, alternating, in the order of scores
//! and then of the members' bytes, in a listpack behind one byte**.
//!
//! That byte is the form in which Redis would keep the set, as `OBJECT ENCODING` reports it. Once a
//! set was too large for a listpack, it stays a skiplist.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;

use crate::error::Damage;
use crate::listpack::{EMPTY, Element, Encoded, Entries, Entry, HEAD, Listpack, Passed};
use crate::packed::place;
use crate::score::{ScoreText, score_of};
use crate::sorted_range::SortedRange;

/// Bytes before the listpack.
pub(crate) const FORM: usize = 1;
/// The first byte: Redis would keep it as a listpack.
pub(crate) const PACKED: u8 = 0;
/// The first byte: Redis would keep it as a skiplist.
pub(crate) const SKIPLIST: u8 = 1;

/// A member and its score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scored<'b> {
    /// The member.
    pub member: Element<'b>,
    pub(crate) score: Element<'b>,
}

impl Scored<'_> {
    /// The score.
    ///
    /// # Errors
    /// The text is not a number.
    #[inline]
    pub fn score(&self) -> Result<f64, Damage> {
        score_of(&self.score)
    }

    /// Compares the member's bytes with these.
    #[inline]
    pub(crate) fn member_order(&self, bytes: &[u8]) -> Ordering {
        self.member.with_bytes(|member| member.cmp(bytes))
    }

    /// Compares it with a member of this score.
    #[inline]
    pub(crate) fn order(&self, score: f64, member: &[u8]) -> Result<Ordering, Damage> {
        let order = self.score()?.partial_cmp(&score).unwrap_or(Ordering::Equal);
        Ok(order.then_with(|| self.member_order(member)))
    }
}

/// A packed sorted set, for reading.
#[derive(Clone, Copy, Debug)]
pub struct PackedSortedSet<'b> {
    is_skiplist: bool,
    listpack: Listpack<'b>,
}

/// Where a member and its score lie in the listpack.
pub(crate) struct FoundMember<'b> {
    pub member: Entry<'b>,
    pub score: Entry<'b>,
    /// The number of members before it.
    pub rank: u64,
}

impl<'b> FoundMember<'b> {
    fn of(passed: Passed<'b, 2>) -> Self {
        let ([member, score], rank) = (passed.entries, passed.before as u64);
        FoundMember {
            member,
            score,
            rank,
        }
    }

    pub fn score(&self) -> Result<f64, Damage> {
        score_of(&self.score.value())
    }

    /// The score, and the range of the member and the score in the listpack.
    pub fn scored_place(&self) -> Result<(f64, Range<usize>), Damage> {
        Ok((self.score()?, self.member.begin..self.score.end))
    }
}

impl<'b> PackedSortedSet<'b> {
    /// Reads an image, checking only its head and its end. O(1).
    ///
    /// # Errors
    /// The image is not that of a sorted set, by its head or its end.
    pub fn read(image: &'b [u8]) -> Result<PackedSortedSet<'b>, Damage> {
        let (is_skiplist, listpack) = match image {
            [PACKED, listpack @ ..] => (false, listpack),
            [SKIPLIST, listpack @ ..] => (true, listpack),
            _ => {
                return Err(Damage {
                    at: 0,
                    what: "a sorted set of an unknown form",
                });
            }
        };
        let listpack = Listpack::read(listpack).map_err(in_image)?;
        Ok(PackedSortedSet {
            is_skiplist,
            listpack,
        })
    }

    /// Whether Redis would keep it as a skiplist, not as a listpack. O(1).
    #[must_use]
    pub fn is_skiplist(&self) -> bool {
        self.is_skiplist
    }

    /// The number of members. O(1) up to 32,767 of them, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn len(&self) -> Result<u64, Damage> {
        match self.listpack.said_len() {
            Some(said) => Ok(said as u64 / 2),
            None => self.all().try_fold(0, |count, scored| {
                scored?;
                Ok(count + 1)
            }),
        }
    }

    /// Whether there is no member. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listpack.bytes().len() == EMPTY.len()
    }

    /// The score of `member`. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn score(&self, member: &[u8]) -> Result<Option<f64>, Damage> {
        self.find(member)?.map(|found| found.score()).transpose()
    }

    /// The number of members before `member`, and its score. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn rank(&self, member: &[u8]) -> Result<Option<(u64, f64)>, Damage> {
        let found = self.find(member)?;
        found
            .map(|found| Ok((found.rank, found.score()?)))
            .transpose()
    }

    /// The positions of the members in `range`. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn positions(&self, range: &SortedRange<'_>) -> Result<Range<u64>, Damage> {
        if let Some(positions) = range.ranks(self.len()?) {
            return Ok(positions);
        }
        if range.is_empty() {
            return Ok(0..0);
        }
        let (mut begin, mut end) = (0, 0);
        for scored in self.all() {
            let scored = scored?;
            if begin == end && range.begins_behind(&scored)? {
                begin += 1;
            } else if range.ends_before(&scored)? {
                break;
            }
            end += 1;
        }
        Ok(begin..end)
    }

    /// Its members with their scores, in order. Damage ends the iteration. O(1) for each.
    #[must_use]
    pub fn all(&self) -> AllScored<'b> {
        AllScored(self.entries())
    }

    /// Calls `visit` with the members at these positions, in order or in reverse, until it returns
    /// false. O(bytes).
    ///
    /// # Errors
    /// The image is damaged; those of `visit`.
    pub fn walk<E: From<Damage>>(
        &self,
        positions: Range<u64>,
        is_reverse: bool,
        mut visit: impl FnMut(Scored<'b>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let len = positions.end.saturating_sub(positions.start);
        let at = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
        let chosen = self.all().skip(at(positions.start)).take(at(len));
        if !is_reverse {
            for scored in chosen {
                if !visit(scored?)? {
                    break;
                }
            }
            return Ok(());
        }
        let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
        for scored in chosen.into_iter().rev() {
            if !visit(scored)? {
                break;
            }
        }
        Ok(())
    }

    /// A step of a scan from `cursor` on, as [`PackedHash::scan`](crate::PackedHash::scan): about
    /// `count` members, and the next cursor. O(bytes) each.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn scan(&self, cursor: u64, count: usize) -> Result<(Vec<Scored<'b>>, u64), Damage> {
        let mut found = Vec::new();
        for scored in self.all() {
            let scored = scored?;
            let place = scored.member.with_bytes(place);
            if place >= cursor {
                found.push((place, scored));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        let mut next = 0;
        if let Some((last, _)) = found.get(count.max(1) - 1) {
            // Members with the same place belong to the same step.
            let last = *last;
            let end = found.partition_point(|(place, _)| *place <= last);
            if end < found.len() {
                found.truncate(end);
                next = last + 1;
            }
        }
        Ok((found.into_iter().map(|(_, scored)| scored).collect(), next))
    }

    /// Reads everything and compares all redundant information. O(bytes).
    ///
    /// # Errors
    /// The image contradicts itself, a member occurs twice, or the members are not in order.
    pub fn check(&self) -> Result<(), Damage> {
        self.listpack.check().map_err(in_image)?;
        let (mut members, mut last) = (HashSet::new(), None::<(f64, Vec<u8>)>);
        let mut entries = self.entries();
        while let Some(member) = entries.next() {
            let member = member?;
            let damage = |what| {
                let at = member.begin + FORM;
                Err(Damage { at, what })
            };
            let Some(score) = entries.next().transpose()? else {
                return damage("a member without a score");
            };
            let scored = Scored {
                member: member.value(),
                score: score.value(),
            };
            let number = scored.score()?;
            if scored
                .score
                .with_bytes(|text| text != ScoreText::of(number).bytes())
            {
                return damage("a score that is not in its form");
            }
            let bytes = scored.member.to_vec();
            if let Some((score, before)) = &last
                && scored.order(*score, before)? != Ordering::Greater
            {
                return damage("a member that is not in order");
            }
            if !members.insert(bytes.clone()) {
                return damage("a member that is there twice");
            }
            last = Some((number, bytes));
        }
        Ok(())
    }

    /// The number of entries that the listpack's head gives; `None`: they must be counted.
    pub(crate) fn listpack_len(&self) -> Option<usize> {
        self.listpack.said_len()
    }

    fn entries(&self) -> InImage<'b> {
        InImage(self.listpack.entries())
    }

    pub(crate) fn find(&self, member: &[u8]) -> Result<Option<FoundMember<'b>>, Damage> {
        let found = self.listpack.find::<2>(&Encoded::of(member));
        Ok(found.map_err(in_image)?.map(FoundMember::of))
    }

    /// The place in the listpack where `member` belongs with score `number`: before the first other
    /// member that is greater. `found` is its present score and place, if it is a member. O(bytes).
    pub(crate) fn place_of(
        &self,
        member: &[u8],
        number: f64,
        found: Option<(f64, Range<usize>)>,
    ) -> Result<usize, Damage> {
        let end = self.listpack.bytes().len() - 1;
        // Members on the far side of its present place stay there.
        let (begin, end) = match found {
            None => (HEAD, end),
            Some((score, place)) if score <= number => (place.end, end),
            Some((_, place)) => (HEAD, place.start),
        };
        let mut walk = self.listpack.walk::<2>(begin);
        while let Some(at) = walk.pass().map_err(in_image)?
            && at < end
        {
            let score = score_of(&walk.last_value().map_err(in_image)?)?;
            let is_behind = match score.partial_cmp(&number) {
                Some(Ordering::Less) => false,
                Some(Ordering::Greater) => true,
                _ => {
                    let [entry, _] = walk.entries_of(at).map_err(in_image)?;
                    entry.value().with_bytes(|other| other > member)
                }
            };
            if is_behind {
                return Ok(at);
            }
        }
        Ok(end)
    }

    /// The offset in the listpack of the member at `position`; if there is none, that of the end.
    pub(crate) fn begin_of(&self, position: u64) -> Result<usize, Damage> {
        let at = usize::try_from(position).unwrap_or(usize::MAX);
        match self.entries().nth(at.saturating_mul(2)).transpose()? {
            Some(entry) => Ok(entry.begin),
            None => Ok(self.listpack.bytes().len() - 1),
        }
    }
}

/// The members of a [`PackedSortedSet`] with their scores, in order.
#[derive(Clone, Debug)]
pub struct AllScored<'b>(InImage<'b>);

impl<'b> Iterator for AllScored<'b> {
    type Item = Result<Scored<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let member = match self.0.next()? {
            Ok(member) => member,
            Err(damage) => return Some(Err(damage)),
        };
        let score = match self.0.next() {
            Some(Ok(score)) => score.value(),
            Some(Err(damage)) => return Some(Err(damage)),
            None => return Some(Err(odd(member.begin))),
        };
        Some(Ok(Scored {
            member: member.value(),
            score,
        }))
    }
}

/// Entries whose damage is reported by its place in the image.
#[derive(Clone, Debug)]
struct InImage<'b>(Entries<'b>);

impl<'b> Iterator for InImage<'b> {
    type Item = Result<Entry<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.0.next()?;
        Some(entry.map_err(in_image))
    }
}

/// Converts the place of damage in a listpack to its place in the image.
fn in_image(damage: Damage) -> Damage {
    Damage {
        at: damage.at + FORM,
        ..damage
    }
}

/// The last member, at this offset in its listpack, has no score.
fn odd(begin: usize) -> Damage {
    Damage {
        at: begin + FORM,
        what: "a member without a score",
    }
}
