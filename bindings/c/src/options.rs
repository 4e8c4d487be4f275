//! Options of a new store: the header's `mneme_options_t`.

use std::ffi::{c_char, c_int};

use mneme_log::lent::LendingOptions;
use mneme_shared::{Evict, Registry, StoreOptions, UpdatePolicy};

use crate::boundary::mode;
use crate::code::{Code, Failure};
use crate::seg::backing;
use crate::store::{ready, registry};

/// `mneme_options_t`.
#[repr(C)]
pub struct Options {
    capacity: u64,
    max_capacity: u64,
    registry: *const c_char,
    directory: *const c_char,
    backing: i32,
    perms: u32,
    policy: i32,
    evict: i32,
    flags: i32,
    lend_mib: i32,
}

const IN_PLACE: i32 = 1;

/// The capacity in bytes if the program names none.
const USUAL_CAPACITY: u64 = 1 << 30;

/// Eviction policies in the order of the header's `MNEME_EVICT_...`.
const EVICTIONS: [Evict; 8] = [
    Evict::None,
    Evict::Lru,
    Evict::Lfu,
    Evict::Random,
    Evict::ExpiringLru,
    Evict::ExpiringLfu,
    Evict::ExpiringRandom,
    Evict::ExpiringSoonest,
];

/// The number of an update policy.
pub(crate) fn policy_number(policy: UpdatePolicy) -> i32 {
    if policy == UpdatePolicy::InPlace {
        IN_PLACE
    } else {
        0
    }
}

/// The number of an eviction policy.
pub(crate) fn evict_number(evict: Evict) -> i32 {
    let at = EVICTIONS.iter().position(|known| *known == evict);
    at.and_then(|at| i32::try_from(at).ok()).unwrap_or(-1)
}

/// The eviction policy with a number.
pub(crate) fn evict(number: c_int) -> Result<Evict, Failure> {
    let known = usize::try_from(number)
        .ok()
        .and_then(|at| EVICTIONS.get(at));
    known.copied().ok_or_else(|| {
        let text = format!("{number} is none of MNEME_EVICT_NONE and the others, 0 to 7");
        Failure::new(Code::Invalid, text)
    })
}

/// Parses the options; NULL means the defaults.
///
/// # Safety
/// `options` must be NULL or point to options whose strings are NULL or NUL-terminated.
pub(crate) unsafe fn read(options: *const Options) -> Result<(Registry, StoreOptions), Failure> {
    // SAFETY: guaranteed by the caller.
    let Some(asked) = (unsafe { options.as_ref() }) else {
        // SAFETY: NULL.
        let registry = unsafe { registry(std::ptr::null()) }?;
        return Ok((registry, StoreOptions::new()));
    };
    let (rest, ready) = ready(asked.flags);
    if rest != 0 {
        let text = format!("flags {:#x} mean nothing", asked.flags);
        return Err(Failure::new(Code::Invalid, text));
    }
    let mut options = StoreOptions::new()
        .maintainer(ready)
        .evict(evict(asked.evict)?);
    options = match asked.policy {
        0 => options.update_policy(UpdatePolicy::Append),
        IN_PLACE => options.update_policy(UpdatePolicy::InPlace),
        other => {
            let text = format!("{other} is neither MNEME_APPEND nor MNEME_IN_PLACE");
            return Err(Failure::new(Code::Invalid, text));
        }
    };
    let capacity = match asked.capacity {
        0 => USUAL_CAPACITY,
        asked => asked,
    };
    options = options.capacity(capacity);
    if asked.max_capacity != 0 {
        options = options.max_capacity(asked.max_capacity);
    }
    let Ok(lent) = u64::try_from(asked.lend_mib) else {
        let text = format!("{} MiB cannot be lent", asked.lend_mib);
        return Err(Failure::new(Code::Invalid, text));
    };
    if lent != 0 {
        let bytes = lent << 20;
        options = options.lend_idle(LendingOptions::of_bytes(bytes, capacity));
    }
    if asked.perms != 0 {
        options = options.mode(mode(asked.perms)?);
    }
    // SAFETY: guaranteed by the caller.
    let kept = unsafe { backing(asked.backing, asked.directory) }?;
    // SAFETY: guaranteed by the caller.
    let registry = unsafe { registry(asked.registry) }?;
    Ok((registry, options.backing(kept)))
}
