//! Attached stores: the header's `mneme_attach` and the other functions that return a store.
//!
//! **A handle stands for a store and one of its databases.** All handles that derive from one
//! attachment share it, and are closed with it.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr;
use std::sync::Arc;

use mneme_log::{Database, ReadError};
use mneme_shared::{Registry, SharedStore, StoreOptions};

use crate::boundary::{access, answer, directory, done, name};
use crate::code::Failure;
use crate::options::{self, Options};
use crate::process::{self, STORES, StoreId};

/// The store and database behind a handle.
#[derive(Clone)]
pub(crate) struct Opened {
    store: Arc<SharedStore>,
    number: usize,
}

impl Opened {
    pub(crate) fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The handle's database.
    pub(crate) fn database(&self) -> Result<Database<'_>, ReadError> {
        self.store.database(self.number)
    }

    fn is(&self, other: &Opened) -> bool {
        self.is_of(other) && self.number == other.number
    }

    fn is_of(&self, other: &Opened) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }
}

/// The store and database behind a handle, or an error if the handle is not valid.
pub(crate) fn opened(of: StoreId) -> Result<Opened, Failure> {
    STORES.get(of.addr())
}

/// Makes a handle.
fn handle(opened: Opened) -> Result<StoreId, Failure> {
    let same = opened.clone();
    let number = STORES.enter(opened, |known| known.is(&same))?;
    Ok(ptr::without_provenance_mut(number))
}

fn first(store: SharedStore) -> Result<StoreId, Failure> {
    let store = Arc::new(store);
    handle(Opened { store, number: 0 })
}

/// `MNEME_NO_MAINTAINER`.
const NO_MAINTAINER: c_int = 4;

/// The flags without `MNEME_NO_MAINTAINER`, and whether a maintainer may run.
pub(crate) fn ready(flags: c_int) -> (c_int, bool) {
    (flags & !NO_MAINTAINER, flags & NO_MAINTAINER == 0)
}

/// The registry in a directory, or, for NULL, the process' own.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
pub(crate) unsafe fn registry(place: *const c_char) -> Result<Registry, Failure> {
    if place.is_null() {
        return process::registry();
    }
    // SAFETY: guaranteed by the caller.
    Ok(Registry::open(unsafe { directory(place) }?)?)
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_attach(of: *const c_char, flags: c_int) -> StoreId {
    // SAFETY: guaranteed by the caller.
    unsafe { mneme_attach_in(ptr::null(), of, flags) }
}

/// See the header.
///
/// # Safety
/// The string arguments must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_attach_in(
    place: *const c_char,
    of: *const c_char,
    flags: c_int,
) -> StoreId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let (name, registry) = unsafe { (name(of)?, registry(place)?) };
        let (flags, ready) = ready(flags);
        let options = StoreOptions::new().maintainer(ready);
        first(options.attach(&registry, name, access(flags)?)?)
    })
}

/// See the header.
///
/// # Safety
/// `of` must be NULL or NUL-terminated; `options` must be NULL or point to options whose strings
/// are NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_create(of: *const c_char, options: *const Options) -> StoreId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let (name, (registry, options)) = unsafe { (name(of)?, options::read(options)?) };
        first(options.create(&registry, name)?)
    })
}

/// See the header.
///
/// # Safety
/// `of` must be NULL or NUL-terminated; `options` must be NULL or point to options whose strings
/// are NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_open(of: *const c_char, options: *const Options) -> StoreId {
    answer(ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let (name, (registry, options)) = unsafe { (name(of)?, options::read(options)?) };
        first(options.open_or_create(&registry, name)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_database(of: StoreId, number: c_uint) -> StoreId {
    answer(ptr::null_mut(), || {
        let database = |of: &Opened| {
            let mut opened = of.clone();
            opened.number = number as usize;
            opened.database()?;
            Ok(opened)
        };
        let number = STORES.enter_beside(of.addr(), database, Opened::is)?;
        Ok(ptr::without_provenance_mut(number))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_detach(store: StoreId) -> c_int {
    done(|| STORES.remove_with(store.addr(), Opened::is_of))
}
