//! `mneme_update`: an atomic read-modify-write with a callback.
//!
//! **The program's callback runs without any lock**, on a copy of the record. Its decision is
//! applied if the record, value and expiry, is unchanged by then; otherwise it is called again. It
//! may take long, call any function or be killed without making others wait. It may also leave by
//! `longjmp`: the store is looked up again after the callback, so it is not kept attached
//! meanwhile.

use std::ffi::{c_int, c_void};
use std::ptr;

use mneme_log::{Database, Decision, Expiry, Stored, Updated};

use crate::boundary::{answer, slice};
use crate::code::{Code, Failure};
use crate::process::StoreId;
use crate::records::{copied, expiry, expiry_number};
use crate::store::opened;
use crate::vas::null;

/// `mneme_change_t`.
#[repr(C)]
pub struct Change {
    value: *const c_void,
    length: usize,
    expires: u64,
}

/// A callback that decides about the new value of a record.
pub type Decide = Option<
    unsafe extern "C" fn(
        old: *const c_void,
        length: usize,
        change: *mut Change,
        data: *mut c_void,
    ) -> c_int,
>;

const KEEP: c_int = 0;
const REPLACE: c_int = 1;
const REMOVE: c_int = 2;

/// The header's number, `MNEME_ABSENT` or another.
fn number(updated: Updated) -> c_int {
    match updated {
        Updated::Absent => 0,
        Updated::Kept => 1,
        Updated::Inserted => 2,
        Updated::Replaced => 3,
        Updated::Removed => 4,
    }
}

/// A record's value and expiry; `None` if it does not exist.
type Seen = Option<(Vec<u8>, Expiry)>;

fn is_as_seen(seen: &Seen, stored: Option<Stored<'_>>) -> bool {
    match (seen, stored) {
        (None, None) => true,
        (Some((value, expiry)), Some(now)) => now.value == value && now.expiry == *expiry,
        _ => false,
    }
}

/// Reads the record at one instant, for a caller that may change it.
fn look(database: Database<'_>, key: &[u8]) -> Result<(Seen, Updated), Failure> {
    let mut seen: Result<Seen, Failure> = Ok(None);
    let updated = database.update_stored(key, |stored| {
        let copy = |stored: Stored<'_>| Ok((copied(stored.value)?, stored.expiry));
        seen = stored.map(copy).transpose();
        Decision::Keep
    })?;
    Ok((seen?, updated))
}

/// Changes the record to `wanted` if it is unchanged since it was `seen`; otherwise returns `None`.
fn change(
    database: Database<'_>,
    key: &[u8],
    seen: &Seen,
    wanted: Option<(&[u8], Expiry)>,
) -> Result<Option<Updated>, Failure> {
    let mut refused = None;
    let mut is_same = true;
    let updated = database.update_stored(key, |stored| {
        is_same = is_as_seen(seen, stored);
        match wanted.map(|(value, expiry)| Ok((copied(value)?, expiry))) {
            _ if !is_same => Decision::Keep,
            None => Decision::Remove,
            Some(Ok((value, expiry))) => Decision::ReplaceUntil(value, expiry),
            Some(Err(failure)) => {
                refused = Some(failure);
                Decision::Keep
            }
        }
    })?;
    match refused {
        Some(failure) if is_same => Err(failure),
        _ => Ok(is_same.then_some(updated)),
    }
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes. `decide` must have the type in the header and accept `data`, and
/// the value that it returns must stay valid until it is called again or this function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_update(
    store: StoreId,
    key: *const c_void,
    key_length: usize,
    decide: Decide,
    data: *mut c_void,
) -> c_int {
    answer(-1, || {
        opened(store)?;
        // SAFETY: guaranteed by the caller.
        let key = unsafe { slice(key, key_length, "key") }?;
        let decide = decide.ok_or_else(|| null("the function"))?;
        loop {
            let (seen, kept) = look(opened(store)?.database()?, key)?;
            let (old, length, expires) = match &seen {
                Some((value, expires)) => {
                    (value.as_ptr().cast(), value.len(), expiry_number(*expires))
                }
                None => (ptr::null(), 0, 0),
            };
            let mut wanted = Change {
                value: ptr::null(),
                length: 0,
                expires,
            };
            // SAFETY: guaranteed by the caller.
            let decided = unsafe { decide(old, length, &mut wanted, data) };
            let changed = match decided {
                KEEP => Some(kept),
                REPLACE => {
                    // SAFETY: guaranteed by the caller.
                    let value = unsafe { slice(wanted.value, wanted.length, "new value") }?;
                    let wanted = Some((value, expiry(wanted.expires)));
                    change(opened(store)?.database()?, key, &seen, wanted)?
                }
                REMOVE => change(opened(store)?.database()?, key, &seen, None)?,
                other => {
                    let text =
                        format!("{other} is none of MNEME_KEEP, MNEME_REPLACE, MNEME_REMOVE");
                    return Err(Failure::new(Code::Invalid, text));
                }
            };
            if let Some(updated) = changed {
                return Ok(number(updated));
            }
        }
    })
}
