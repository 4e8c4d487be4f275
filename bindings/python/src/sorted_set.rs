//! `SortedSet`: members in the order of their scores, under one key of a database.

use std::ops::{Bound as End, Range};

use mneme_collections::{
    CollectionError, ScoredMembers, SortedRange, SortedSet as StoredSortedSet, SortedSetView,
};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};

use crate::arguments;
use crate::batches::{bytes_of, items_with};
use crate::collections::CollectionKey;
use crate::copies::{object, scanned};
use crate::errors::{Failure, invalid, missing};
use crate::slices::Slice;

/// The sorted set under a key: a mapping from members to scores, which are numbers, in the order of
/// the scores and then of the members' bytes. `store.sorted_set(key)` returns one.
///
/// It refers to the key and holds no copy: each call reads the current contents. If the key does
/// not exist, the set is empty; when its last member is removed, the key is removed too.
#[pyclass(module = "mneme", frozen, name = "SortedSet")]
pub(crate) struct SortedSet(pub(crate) CollectionKey<StoredSortedSet<'static, 'static>>);

/// A member and its score.
type Scored<'py> = (Bound<'py, PyBytes>, f64);

/// What a range takes of the members that lie in it.
struct Window {
    is_reverse: bool,
    offset: u64,
    limit: Option<u64>,
}

impl Window {
    fn of(&self, positions: Range<u64>) -> Range<u64> {
        let Range { start, end } = positions;
        let found = end.saturating_sub(start);
        let skipped = self.offset.min(found);
        let taken = self.limit.unwrap_or(u64::MAX).min(found - skipped);
        match self.is_reverse {
            true => end - skipped - taken..end - skipped,
            false => start + skipped..start + skipped + taken,
        }
    }
}

/// The positions that a slice means, which counts in the reverse order if `is_reverse`.
fn ranks(
    set: &mut SortedSetView<'_>,
    slice: Slice,
    is_reverse: bool,
) -> Result<Range<u64>, CollectionError> {
    let len = set.len()?;
    let ranks = slice.within(len);
    Ok(match is_reverse {
        true => len - ranks.end..len - ranks.start,
        false => ranks,
    })
}

fn bounds<T>(low: Option<T>, high: Option<T>, inclusive: (bool, bool)) -> (End<T>, End<T>) {
    let bound = |at: Option<T>, is_included| match (at, is_included) {
        (None, _) => End::Unbounded,
        (Some(at), true) => End::Included(at),
        (Some(at), false) => End::Excluded(at),
    };
    (bound(low, inclusive.0), bound(high, inclusive.1))
}

fn scores(
    low: Option<f64>,
    high: Option<f64>,
    inclusive: (bool, bool),
) -> Result<SortedRange<'static>, Failure> {
    if [low, high].into_iter().flatten().any(f64::is_nan) {
        return Err(invalid("a bound is not a number"));
    }
    let (low, high) = bounds(low, high, inclusive);
    Ok(SortedRange::Scores(low, high))
}

/// The members between two bounds, which own their bytes.
struct Members<'py> {
    low: Option<Bound<'py, PyBytes>>,
    high: Option<Bound<'py, PyBytes>>,
    inclusive: (bool, bool),
}

impl<'py> Members<'py> {
    fn read(
        low: Option<&Bound<'py, PyAny>>,
        high: Option<&Bound<'py, PyAny>>,
        inclusive: (bool, bool),
    ) -> PyResult<Self> {
        Ok(Self {
            low: low.map(arguments::key).transpose()?,
            high: high.map(arguments::key).transpose()?,
            inclusive,
        })
    }

    fn range(&self) -> SortedRange<'_> {
        let low = self.low.as_ref().map(|low| low.as_bytes());
        let high = self.high.as_ref().map(|high| high.as_bytes());
        let (low, high) = bounds(low, high, self.inclusive);
        SortedRange::Members(low, high)
    }
}

/// Pairs of member and score.
fn pairs<'py>(py: Python<'py>, members: &ScoredMembers) -> PyResult<Bound<'py, PyList>> {
    let pairs = members.iter();
    let pairs = pairs.map(|(member, score)| Ok((object(py, member)?, score)));
    PyList::new(py, pairs.collect::<PyResult<Vec<Scored<'py>>>>()?)
}

impl SortedSet {
    fn in_range<'py>(
        &self,
        py: Python<'py>,
        range: &SortedRange<'_>,
        window: &Window,
    ) -> PyResult<Bound<'py, PyList>> {
        let read = |set: Option<&mut SortedSetView<'_>>| match set {
            Some(set) => {
                let positions = set.positions(range)?;
                set.members(window.of(positions), window.is_reverse)
            }
            None => Ok(ScoredMembers::default()),
        };
        pairs(py, &self.0.with(py, |set| set.read(read))?)
    }

    fn in_order(&self, py: Python<'_>, is_reverse: bool) -> PyResult<ScoredMembers> {
        let all = SortedRange::Ranks(0, -1);
        self.0.with(py, |set| set.range(&all, is_reverse))
    }

    fn members<'py>(&self, py: Python<'py>, is_reverse: bool) -> PyResult<Bound<'py, PyIterator>> {
        let members = self.in_order(py, is_reverse)?;
        let members = members.iter().map(|(member, _)| object(py, member));
        PyList::new(py, members.collect::<PyResult<Vec<_>>>()?)?.try_iter()
    }

    fn pop<'py>(&self, py: Python<'py>, is_last: bool) -> PyResult<Scored<'py>> {
        let popped = self.0.with(py, |set| match is_last {
            true => set.pop_last(1),
            false => set.pop_first(1),
        })?;
        match popped.get(0) {
            Some((member, score)) => Ok((object(py, member)?, score)),
            None => Err(PyKeyError::new_err("pop from an empty sorted set")),
        }
    }
}

#[pymethods]
impl SortedSet {
    /// The sorted set's key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.0.key(py)
    }

    /// The score of a member, or `default`.
    #[pyo3(signature = (member, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        member: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(
            match self.0.with_one(member, |set, member| set.score(member))? {
                Some(score) => Some(score.into_pyobject(py)?.into_any()),
                None => default,
            },
        )
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        member: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, member, None)?.ok_or_else(|| missing(member))
    }

    /// Give a member a score; returns whether it is new.
    fn put(&self, member: &Bound<'_, PyAny>, score: f64) -> PyResult<bool> {
        self.0
            .with_one(member, |set, member| set.set(member, score))
    }

    fn __setitem__(&self, member: &Bound<'_, PyAny>, score: f64) -> PyResult<()> {
        self.put(member, score).map(drop)
    }

    /// Give several members their scores atomically, from a dictionary or pairs; returns how many
    /// are new.
    fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (members, scores) = items_with(pairs, |score| score.extract::<f64>())?;
        let pairs: Vec<_> = bytes_of(&members).into_iter().zip(scores).collect();
        self.0.with(py, |set| set.set_many(&pairs))
    }

    /// Add to the score of a member; that of a new one counts as 0. Returns the sum.
    #[pyo3(signature = (member, by=1.0))]
    fn increment(&self, member: &Bound<'_, PyAny>, by: f64) -> PyResult<f64> {
        self.0
            .with_one(member, |set, member| set.increment(member, by))
    }

    /// Remove a member; returns whether it existed.
    fn delete(&self, member: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with_one(member, |set, member| set.remove(member))
    }

    fn __delitem__(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.delete(member)? {
            true => Ok(()),
            false => Err(missing(member)),
        }
    }

    /// Remove several members atomically; returns how many existed.
    fn delete_many(&self, members: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.0.with_many(members, |set, members| {
            set.change(|set| {
                members.iter().try_fold(0, |removed, member| {
                    Ok(removed + usize::from(set.remove(member)?.is_some()))
                })
            })
        })
    }

    /// How many members lie before a member, or behind it if `reverse`; None if it is none.
    #[pyo3(signature = (member, *, reverse=false))]
    fn rank(&self, member: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Option<u64>> {
        self.0.with_one(member, |set, member| match reverse {
            true => set.reverse_rank(member),
            false => set.rank(member),
        })
    }

    /// Pairs of member and score at one instant, from `start` to before `stop` as in a slice. If
    /// `reverse`, the order and its positions begin at the highest score.
    #[pyo3(signature = (start=0, stop=None, *, reverse=false))]
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: i64,
        stop: Option<i64>,
        reverse: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let slice = Slice::new(start, stop);
        let read = |set: Option<&mut SortedSetView<'_>>| match set {
            Some(set) => {
                let ranks = ranks(set, slice, reverse)?;
                set.members(ranks, reverse)
            }
            None => Ok(ScoredMembers::default()),
        };
        pairs(py, &self.0.with(py, |set| set.read(read))?)
    }

    /// Pairs of member and score at one instant, of those with scores from `low` to `high`, which
    /// belong to the range if `inclusive` says so; without the first `offset`, and `limit` at most.
    #[pyo3(signature = (low=None, high=None, *, inclusive=(true, true), reverse=false, offset=0, limit=None))]
    #[allow(clippy::too_many_arguments, reason = "most are given by name")]
    fn range_by_score<'py>(
        &self,
        py: Python<'py>,
        low: Option<f64>,
        high: Option<f64>,
        inclusive: (bool, bool),
        reverse: bool,
        offset: u64,
        limit: Option<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let window = Window {
            is_reverse: reverse,
            offset,
            limit,
        };
        self.in_range(py, &scores(low, high, inclusive)?, &window)
    }

    /// As `range_by_score`, of the members from `low` to `high` by their bytes, which means
    /// something if all have the same score.
    #[pyo3(signature = (low=None, high=None, *, inclusive=(true, true), reverse=false, offset=0, limit=None))]
    #[allow(clippy::too_many_arguments, reason = "most are given by name")]
    fn range_by_member<'py>(
        &self,
        py: Python<'py>,
        low: Option<&Bound<'py, PyAny>>,
        high: Option<&Bound<'py, PyAny>>,
        inclusive: (bool, bool),
        reverse: bool,
        offset: u64,
        limit: Option<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let members = Members::read(low, high, inclusive)?;
        let window = Window {
            is_reverse: reverse,
            offset,
            limit,
        };
        self.in_range(py, &members.range(), &window)
    }

    /// How many members have scores from `low` to `high`.
    #[pyo3(signature = (low=None, high=None, *, inclusive=(true, true)))]
    fn count_by_score(
        &self,
        py: Python<'_>,
        low: Option<f64>,
        high: Option<f64>,
        inclusive: (bool, bool),
    ) -> PyResult<u64> {
        let range = scores(low, high, inclusive)?;
        self.0.with(py, |set| set.count(&range))
    }

    /// How many members lie from `low` to `high` by their bytes, if all have the same score.
    #[pyo3(signature = (low=None, high=None, *, inclusive=(true, true)))]
    fn count_by_member<'py>(
        &self,
        py: Python<'py>,
        low: Option<&Bound<'py, PyAny>>,
        high: Option<&Bound<'py, PyAny>>,
        inclusive: (bool, bool),
    ) -> PyResult<u64> {
        let members = Members::read(low, high, inclusive)?;
        let range = members.range();
        self.0.with(py, |set| set.count(&range))
    }

    /// Remove the members from `start` to before `stop` atomically, as in a slice, where positions
    /// begin at the highest score if `reverse`; returns how many there were.
    #[pyo3(signature = (start=0, stop=None, *, reverse=false))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: i64,
        stop: Option<i64>,
        reverse: bool,
    ) -> PyResult<u64> {
        let slice = Slice::new(start, stop);
        let remove = |set: StoredSortedSet<'_, '_>| {
            set.change(|set| {
                let ranks = ranks(&mut set.view()?, slice, reverse)?;
                set.remove_positions(ranks)
            })
        };
        self.0.with(py, remove)
    }

    /// Remove the members with scores from `low` to `high` atomically; returns how many there were.
    #[pyo3(signature = (low=None, high=None, *, inclusive=(true, true)))]
    fn delete_by_score(
        &self,
        py: Python<'_>,
        low: Option<f64>,
        high: Option<f64>,
        inclusive: (bool, bool),
    ) -> PyResult<u64> {
        let range = scores(low, high, inclusive)?;
        self.0.with(py, |set| set.remove_range(&range))
    }

    /// Remove the members from `low` to `high` by their bytes atomically, if all have the same
    /// score; returns how many there were.
    #[pyo3(signature = (low=None, high=None, *, inclusive=(true, true)))]
    fn delete_by_member<'py>(
        &self,
        py: Python<'py>,
        low: Option<&Bound<'py, PyAny>>,
        high: Option<&Bound<'py, PyAny>>,
        inclusive: (bool, bool),
    ) -> PyResult<u64> {
        let members = Members::read(low, high, inclusive)?;
        let range = members.range();
        self.0.with(py, |set| set.remove_range(&range))
    }

    /// Remove the member with the lowest score; returns it with its score. Raises `KeyError` if the
    /// set is empty.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Scored<'py>> {
        self.pop(py, false)
    }

    /// Remove the member with the highest score; returns it with its score. Raises `KeyError` if
    /// the set is empty.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Scored<'py>> {
        self.pop(py, true)
    }

    /// Remove up to `count` members with the lowest scores atomically; returns them with their
    /// scores, the lowest first.
    fn pop_first_many<'py>(&self, py: Python<'py>, count: u64) -> PyResult<Bound<'py, PyList>> {
        pairs(py, &self.0.with(py, |set| set.pop_first(count))?)
    }

    /// Remove up to `count` members with the highest scores atomically; returns them with their
    /// scores, the highest first.
    fn pop_last_many<'py>(&self, py: Python<'py>, count: u64) -> PyResult<Bound<'py, PyList>> {
        pairs(py, &self.0.with(py, |set| set.pop_last(count))?)
    }

    /// An iterator over the members at one instant, in order.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.members(py, false)
    }

    /// An iterator over pairs of member and score at one instant, in order.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        pairs(py, &self.in_order(py, false)?)?.try_iter()
    }

    /// A step of a walk through the members in no order: the next cursor, which is 0 at the end,
    /// and some `count` pairs of member and score. Each member that exists during the whole walk is
    /// visited.
    #[pyo3(signature = (cursor=0, count=100))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        cursor: u64,
        count: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (members, next) = self.0.with(py, |set| set.scan(cursor, count))?;
        scanned(py, next, pairs(py, &members)?)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.members(py, true)
    }

    fn __contains__(&self, member: &Bound<'_, PyAny>) -> PyResult<bool> {
        let score = self.0.with_one(member, |set, member| set.score(member))?;
        Ok(score.is_some())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.with(py, |set| set.len())? as usize)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        self.0.shown("SortedSet")
    }
}
