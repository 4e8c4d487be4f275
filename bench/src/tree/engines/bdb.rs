//! Berkeley DB 5.3 as a transactional B-tree, each transaction synced (`DB_TXN_SYNC`). The calls
//! are those of `bdb.c`. The cache has space for all records.

use super::{BenchError, Engine, KEY, Keys};
use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr::{self, NonNull};

#[repr(C)]
struct Store([u8; 0]);

/// `NOT_FOUND` in `bdb.c`.
const NOT_FOUND: c_int = 1;

unsafe extern "C" {
    fn mneme_bdb_open(directory: *const c_char, cache: u64, out: *mut *mut Store) -> c_int;
    fn mneme_bdb_close(store: *mut Store);
    fn mneme_bdb_write(
        store: *mut Store,
        keys: *const u8,
        key_len: usize,
        count: usize,
        value: *const u8,
        value_len: usize,
    ) -> c_int;
    fn mneme_bdb_get(
        store: *mut Store,
        key: *const u8,
        key_len: usize,
        out: *mut u8,
        len: usize,
    ) -> c_int;
    fn mneme_bdb_scan(
        store: *mut Store,
        key: *const u8,
        key_len: usize,
        count: usize,
        out: *mut u8,
        len: usize,
        found: *mut usize,
    ) -> c_int;
}

/// An open environment with its database, of one thread. Valid until it is dropped.
pub struct BerkeleyDb(NonNull<Store>);

fn failed(what: impl ToString) -> BenchError {
    BenchError::tool("berkeley db", what)
}

fn checked(code: c_int) -> Result<(), BenchError> {
    match code {
        0 => Ok(()),
        _ => Err(failed(format_args!("error {code}"))),
    }
}

impl BerkeleyDb {
    pub fn open(directory: &Path, cache: u64) -> Result<Self, BenchError> {
        std::fs::create_dir(directory).map_err(failed)?;
        let name = directory.to_str().and_then(|path| CString::new(path).ok());
        let name = name.ok_or_else(|| failed("a path that is no C string"))?;
        let mut store = ptr::null_mut();
        // SAFETY: `name` is a C string, and `store` takes the answer.
        checked(unsafe { mneme_bdb_open(name.as_ptr(), cache, &raw mut store) })?;
        let store = NonNull::new(store).ok_or_else(|| failed("neither a store nor an error"))?;
        Ok(Self(store))
    }
}

impl Engine for BerkeleyDb {
    fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
        let (at, len) = value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
        let store = self.0.as_ptr();
        // SAFETY: the store is open; keys and value live during the call, and the keys lie one
        // behind the other.
        checked(unsafe { mneme_bdb_write(store, keys.as_ptr().cast(), KEY, keys.len(), at, len) })
    }

    fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut found = 0;
        for key in keys {
            // SAFETY: the store is open; key and `out` live during the call.
            let code = unsafe {
                mneme_bdb_get(
                    self.0.as_ptr(),
                    key.as_ptr(),
                    key.len(),
                    out.as_mut_ptr(),
                    out.len(),
                )
            };
            if code == NOT_FOUND {
                continue;
            }
            checked(code)?;
            found += 1;
        }
        Ok(found)
    }

    fn scans(&mut self, keys: Keys<'_>, count: usize, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut all = 0;
        for key in keys {
            let mut found = 0;
            // SAFETY: as in `gets`; `found` takes the answer.
            checked(unsafe {
                mneme_bdb_scan(
                    self.0.as_ptr(),
                    key.as_ptr(),
                    key.len(),
                    count,
                    out.as_mut_ptr(),
                    out.len(),
                    &raw mut found,
                )
            })?;
            all += found as u64;
        }
        Ok(all)
    }
}

impl Drop for BerkeleyDb {
    fn drop(&mut self) {
        // SAFETY: opened in `open`, and not used again.
        unsafe { mneme_bdb_close(self.0.as_ptr()) };
    }
}
