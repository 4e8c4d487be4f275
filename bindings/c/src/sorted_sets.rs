//! Sorted sets: members in the order of their scores, under one key. They are the sorted sets that
//! Redis commands of a server use.

use std::ffi::{c_int, c_void};
use std::ops::Bound;

use mneme_collections::{End, ScoredMembers, SortedRange, SortedSet};

use crate::batches::Bytes;
use crate::boundary::{answer, apart, done, items, slice, write_to};
use crate::code::{Code, Failure};
use crate::collections::{end, with_key};
use crate::process::StoreId;
use crate::records::{give, no_memory};
use crate::vas::null;

/// `mneme_scored_t`.
#[repr(C)]
pub struct Scored {
    member: Bytes,
    score: f64,
}

/// A callback that is called with each member and its score.
pub type EachScored = Option<
    unsafe extern "C" fn(
        member: *const c_void,
        length: usize,
        score: f64,
        data: *mut c_void,
    ) -> c_int,
>;

/// Calls `run` with the sorted set under the key.
///
/// # Safety
/// `key` must point to its bytes, which must not change meanwhile.
unsafe fn with<R>(
    store: StoreId,
    key: (*const c_void, usize),
    run: impl FnOnce(SortedSet<'_, '_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_key(store, key, |database, key| {
            run(SortedSet::new(database, key))
        })
    }
}

/// The members whose scores lie from `low` to `high`.
fn scores(low: f64, high: f64) -> Result<SortedRange<'static>, Failure> {
    if low.is_nan() || high.is_nan() {
        return Err(Failure::new(Code::Invalid, "a bound is not a number"));
    }
    Ok(SortedRange::Scores(
        Bound::Included(low),
        Bound::Included(high),
    ))
}

/// Calls `each` with copies of members and their scores until it does not return 0. The caller
/// keeps no store attached, since `each` may leave by `longjmp`.
///
/// # Safety
/// `each` must have the type in the header and accept `data`.
unsafe fn call_each(
    members: &ScoredMembers,
    each: unsafe extern "C" fn(*const c_void, usize, f64, *mut c_void) -> c_int,
    data: *mut c_void,
) {
    for (member, score) in members.iter() {
        // SAFETY: guaranteed by the caller.
        if unsafe { each(member.as_ptr().cast(), member.len(), score, data) } != 0 {
            break;
        }
    }
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_set(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
    score: f64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        with(store, (key, key_length), |set| {
            Ok(set.set(member, score)?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `all` to `count` members with valid bytes, and `added` must be
/// NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_set_many(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    all: *const Scored,
    count: usize,
    added: *mut usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let all = items(all, count, "array of members")?;
        let mut members = Vec::new();
        members.try_reserve(count).map_err(|_| no_memory(count))?;
        for scored in all {
            members.push((scored.member.get("member")?, scored.score));
        }
        let new = with(store, (key, key_length), |set| Ok(set.set_many(&members)?))?;
        write_to(added, new);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes; `sum` must be NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_increment(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
    by: f64,
    sum: *mut f64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let member = slice(member, length, "member")?;
        let new = with(store, (key, key_length), |set| {
            Ok(set.increment(member, by)?)
        })?;
        write_to(sum, new);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_remove(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        with(store, (key, key_length), |set| {
            Ok(set.remove(member)?.into())
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `buffer` to `capacity` bytes, and `length` and `score` must each
/// be NULL or point to a number.
#[allow(clippy::too_many_arguments, reason = "C has no slices: each takes two")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_pop(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    at: c_int,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    score: *mut f64,
) -> c_int {
    answer(-1, || {
        let end = end(at)?;
        apart((key, key_length), (buffer, capacity), length)?;
        if buffer.is_null() {
            return Err(null("the buffer"));
        }
        let pop = |set: SortedSet<'_, '_>| {
            let popped = set.change(|set| {
                let mut view = set.view()?;
                let len = view.len()?;
                let place = match end {
                    End::Front => 0..len.min(1),
                    End::Back => len.saturating_sub(1)..len,
                };
                let found = view.members(place.clone(), false)?;
                // One that does not fit stays.
                if (found.get(0)).is_some_and(|(member, _)| member.len() <= capacity) {
                    set.remove_positions(place)?;
                }
                Ok(found)
            });
            Ok(popped?)
        };
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let popped = unsafe { with(store, (key, key_length), pop) }?;
        let Some((member, its_score)) = popped.get(0) else {
            return Ok(0);
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let given = give(member, buffer, capacity, length)?;
            write_to(score, its_score);
            Ok(given)
        }
    })
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes; `score` must be NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_score(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
    score: *mut f64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        let found = with(store, (key, key_length), |set| Ok(set.score(member)?))?;
        if let Some(found) = found {
            write_to(score, found);
        }
        Ok(found.is_some().into())
    })
}

/// See the header.
///
/// # Safety
/// `key` and `member` must point to their bytes; `rank` must be NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_rank(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    member: *const c_void,
    length: usize,
    reverse: c_int,
    rank: *mut u64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let member = slice(member, length, "member")?;
        let found = with(store, (key, key_length), |set| {
            Ok(match reverse {
                0 => set.rank(member),
                _ => set.reverse_rank(member),
            }?)
        })?;
        if let Some(found) = found {
            write_to(rank, found);
        }
        Ok(found.is_some().into())
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_length(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        with(store, (key, key_length), |set| Ok(set.len()? as i64))
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_count(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    low: f64,
    high: f64,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let range = scores(low, high)?;
        with(
            store,
            (key, key_length),
            |set| Ok(set.count(&range)? as i64),
        )
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_remove_score(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    low: f64,
    high: f64,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    answer(-1, || unsafe {
        let range = scores(low, high)?;
        with(store, (key, key_length), |set| {
            Ok(set.remove_range(&range)? as i64)
        })
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes. `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_each(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    first: i64,
    last: i64,
    reverse: c_int,
    each: EachScored,
    data: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let each = each.ok_or_else(|| null("the function"))?;
        // Ranks from the other end: -1 is the first.
        let range = match reverse {
            0 => SortedRange::Ranks(first, last),
            _ => SortedRange::Ranks(!last, !first),
        };
        let members = with(store, (key, key_length), |set| {
            Ok(set.range(&range, reverse != 0)?)
        })?;
        call_each(&members, each, data);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes. `each` must have the type in the header and accept `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_sorted_set_each_score(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    low: f64,
    high: f64,
    reverse: c_int,
    each: EachScored,
    data: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(|| unsafe {
        let each = each.ok_or_else(|| null("the function"))?;
        let range = scores(low, high)?;
        let members = with(store, (key, key_length), |set| {
            Ok(set.range(&range, reverse != 0)?)
        })?;
        call_each(&members, each, data);
        Ok(())
    })
}
