//! A sorted set of a store: **each operation is atomic, and one that fails has changed nothing.**

use std::cell::RefCell;

use mneme_log::{Database, LogStore};

use crate::error::{CollectionError, EditError};
use crate::keyed::{Form, KeyedValue, Locking};
use crate::sorted_range::SortedRange;
use crate::sorted_set_edit::SortedSetLimits;
use crate::sorted_set_type::{ScoredMembers, SortedSetChange, SortedSetType, SortedSetView};

/// The sorted set under a key of a database: members, which are byte strings, each with a score,
/// in the order of their scores and then of their bytes.
///
/// This is a name, not a copy: each operation reads what the key holds now, and other threads and
/// processes may change it in between. Without the key, the set is empty; removing the last member
/// removes the key. [`SortedSet::read`] and [`SortedSet::change`] do several things atomically.
///
/// ```
/// use mneme_collections::{SortedRange, SortedSet};
/// use mneme_log::LogStore;
///
/// let store = LogStore::builder().capacity(64 << 20).open_private()?;
/// let board = SortedSet::of(&store, b"board")?;
/// board.set(b"Ada", 1815.0)?;
/// board.set_many(&[(b"Grace", 1906.0), (b"Edsger", 1930.0)])?;
/// assert_eq!(board.increment(b"Ada", 100.5)?, 1915.5);
/// assert_eq!(board.rank(b"Ada")?, Some(1));
///
/// // The last two, the last one first.
/// let last = board.range(&SortedRange::Ranks(-2, -1), true)?;
/// let names: Vec<&[u8]> = last.iter().map(|(member, _)| member).collect();
/// assert_eq!(names, [&b"Edsger"[..], b"Ada"]);
/// assert_eq!(board.pop_first(1)?.get(0), Some((&b"Grace"[..], 1906.0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct SortedSet<'s, 'k> {
    at: KeyedValue<'s, 'k, SortedSetType>,
    limits: SortedSetLimits,
}

impl<'s, 'k> SortedSet<'s, 'k> {
    /// The sorted set under `key` in database 0. Nothing is read yet.
    ///
    /// # Errors
    /// Those of [`LogStore::database`].
    pub fn of(store: &'s LogStore, key: &'k [u8]) -> Result<Self, CollectionError> {
        Ok(SortedSet::new(store.database(0)?, key))
    }

    /// The sorted set under `key` in this database. Nothing is read yet.
    #[must_use]
    pub fn new(database: Database<'s>, key: &'k [u8]) -> Self {
        SortedSet {
            at: KeyedValue::new(database, key),
            limits: SortedSetLimits::default(),
        }
    }

    /// Calls `visit` with the set as of one instant; `None`: there is no key. `visit` may be called
    /// again: only the last call counts. A call during other changes may see parts of different
    /// instants, so `visit` must return an error for contradictions, not panic.
    #[must_use]
    pub fn limits(self, limits: SortedSetLimits) -> Self {
        SortedSet { limits, ..self }
    }

    /// Calls `visit` with the set as it is at one instant; `None`: the key is not there. It may run
    /// again: the last run counts. A run that others overtake may see parts of different
    /// instants, so `visit` returns what contradicts itself, and does not panic.
    ///
    /// # Errors
    /// Those of [`LogStore::get`]: the key holds a value of another kind, for one; those that
    /// `visit` returns.
    pub fn read<R>(
        &self,
        visit: impl FnMut(Option<&mut SortedSetView<'_>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        let visit = RefCell::new(visit);
        self.at.read(
            |large| (visit.borrow_mut())(Some(&mut large.into())),
            |set| match set {
                Some(Form::Packed(set)) => (visit.borrow_mut())(Some(&mut set.into())),
                Some(Form::Large(result)) => Ok(result),
                None => (visit.borrow_mut())(None),
            },
        )
    }

    /// Calls `change` to change the set, atomically; it is empty if there is no key. If another
    /// writer interferes, `change` is called again, and only the last call counts. If it returns an
    /// error, or changes nothing, nothing is stored.
    ///
    /// # Errors
    /// Those of [`LogStore::put`]; the key holds a value of another kind; those of `change`.
    pub fn change<R>(
        &self,
        change: impl FnMut(&mut SortedSetChange<'_>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.edit(Locking::Nothing, change)
    }

    fn edit<R>(
        &self,
        locking: Locking,
        mut change: impl FnMut(&mut SortedSetChange<'_>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        self.at.edit(locking, (), |set| {
            let result = change(set)?;
            set.convert(self.limits)?;
            Ok((result, set.is_changed()))
        })
    }

    /// The score of `member`; `None`: it is not a member.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn score(&self, member: &[u8]) -> Result<Option<f64>, CollectionError> {
        self.read(|set| set.map_or(Ok(None), |set| set.score(member)))
    }

    /// The number of members before `member`; `None`: it is not a member.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn rank(&self, member: &[u8]) -> Result<Option<u64>, CollectionError> {
        let rank = self.read(|set| set.map_or(Ok(None), |set| set.rank(member)))?;
        Ok(rank.map(|(rank, _)| rank))
    }

    /// The number of members after `member`; `None`: it is not a member.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn reverse_rank(&self, member: &[u8]) -> Result<Option<u64>, CollectionError> {
        self.read(|set| {
            let Some(set) = set else { return Ok(None) };
            let Some((rank, _)) = set.rank(member)? else {
                return Ok(None);
            };
            Ok(set.len()?.checked_sub(rank + 1))
        })
    }

    /// The number of its members.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn len(&self) -> Result<u64, CollectionError> {
        self.read(|set| set.map_or(Ok(0), SortedSetView::len))
    }

    /// Whether there is no member, so that the key does not exist.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        self.read(|set| Ok(set.is_none()))
    }

    /// The number of members in `range`.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn count(&self, range: &SortedRange<'_>) -> Result<u64, CollectionError> {
        self.read(|set| {
            let positions = set.map_or(Ok(0..0), |set| set.positions(range))?;
            Ok(positions.end - positions.start)
        })
    }

    /// The members in `range` with their scores, in order or in reverse, as of one instant.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn range(
        &self,
        range: &SortedRange<'_>,
        is_reverse: bool,
    ) -> Result<ScoredMembers, CollectionError> {
        self.read(|set| match set {
            Some(set) => {
                let positions = set.positions(range)?;
                set.members(positions, is_reverse)
            }
            None => Ok(ScoredMembers::default()),
        })
    }

    /// A step of a walk through the members, in no particular order, from `cursor` on, which is 0
    /// at first: about `count` members with their scores, and the next cursor, which is 0 at the
    /// end. A member that exists throughout is found at least once.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn scan(&self, cursor: u64, count: usize) -> Result<(ScoredMembers, u64), CollectionError> {
        self.read(|set| match set {
            Some(set) => set.scan(cursor, count),
            None => Ok((ScoredMembers::default(), 0)),
        })
    }

    /// Gives `member` this score. Returns whether it is new.
    ///
    /// # Errors
    /// As for [`change`](Self::change); the score is not a number.
    pub fn set(&self, member: &[u8], score: f64) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, |set| Ok(set.set(member, score)?.is_none()))
    }

    /// Gives each member its score, in order, atomically. Returns how many members are new.
    ///
    /// # Errors
    /// As for [`set`](Self::set); then none is set.
    pub fn set_many(&self, members: &[(&[u8], f64)]) -> Result<usize, CollectionError> {
        let names: Vec<&[u8]> = members.iter().map(|(member, _)| *member).collect();
        self.edit(Locking::of(names.len()), |set| {
            let mut new = 0;
            set.set_many(&names, |place, old| {
                new += usize::from(old.is_none());
                Ok::<_, CollectionError>(Some(members[place].1))
            })?;
            Ok(new)
        })
    }

    /// Adds `by` to the score of `member`, which counts as 0 if it is not a member. Returns the
    /// sum.
    ///
    /// # Errors
    /// As for [`set`](Self::set), for the sum.
    pub fn increment(&self, member: &[u8], by: f64) -> Result<f64, CollectionError> {
        self.edit(Locking::Key, |set| {
            let sum = set.view()?.score(member)?.unwrap_or_default() + by;
            if sum.is_nan() {
                return Err(EditError::NotANumber.into());
            }
            set.set(member, sum)?;
            Ok(sum)
        })
    }

    /// Removes `member`; removing the last one removes the key. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove(&self, member: &[u8]) -> Result<bool, CollectionError> {
        self.edit(Locking::Key, |set| Ok(set.remove(member)?.is_some()))
    }

    /// Removes the members in `range`, atomically. Returns how many were removed.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn remove_range(&self, range: &SortedRange<'_>) -> Result<u64, CollectionError> {
        self.edit(Locking::Key, |set| {
            let positions = set.view()?.positions(range)?;
            set.remove_positions(positions)
        })
    }

    /// Removes the first `count` members and returns them, the first one first.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn pop_first(&self, count: u64) -> Result<ScoredMembers, CollectionError> {
        self.pop(count, false)
    }

    /// Removes the last `count` members and returns them, the last one first.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn pop_last(&self, count: u64) -> Result<ScoredMembers, CollectionError> {
        self.pop(count, true)
    }

    fn pop(&self, count: u64, is_last: bool) -> Result<ScoredMembers, CollectionError> {
        self.edit(Locking::Key, |set| set.pop(count, is_last))
    }
}

impl std::fmt::Debug for SortedSet<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SortedSet")
            .field("database", &self.at.database.number())
            .field("key", &self.at.key.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}
