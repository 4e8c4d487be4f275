//! RocksDB by its C interface: each write is synced, nothing is compressed, all else is as it
//! comes.

use super::{BenchError, Engine, Keys};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::path::Path;
use std::ptr::{self, NonNull};

/// What RocksDB keeps behind its pointers.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        struct $name([u8; 0]);
    )*};
}

opaque!(
    Db,
    Options,
    WriteOptions,
    ReadOptions,
    Batch,
    Slice,
    Iterator
);

type Error = *mut *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> *mut Options;
    fn rocksdb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    fn rocksdb_options_destroy(options: *mut Options);
    fn rocksdb_open(options: *const Options, name: *const c_char, error: Error) -> *mut Db;
    fn rocksdb_close(db: *mut Db);
    fn rocksdb_free(memory: *mut c_char);
    fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, value: c_uchar);
    fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    fn rocksdb_readoptions_create() -> *mut ReadOptions;
    fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    fn rocksdb_writebatch_create() -> *mut Batch;
    fn rocksdb_writebatch_destroy(batch: *mut Batch);
    fn rocksdb_writebatch_put(
        batch: *mut Batch,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    fn rocksdb_writebatch_delete(batch: *mut Batch, key: *const u8, key_len: usize);
    fn rocksdb_write(db: *mut Db, options: *const WriteOptions, batch: *mut Batch, error: Error);
    fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const u8,
        key_len: usize,
        error: Error,
    ) -> *mut Slice;
    fn rocksdb_pinnableslice_value(slice: *const Slice, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: *mut Slice);
    fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iterator;
    fn rocksdb_iter_destroy(iterator: *mut Iterator);
    fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const u8, key_len: usize);
    fn rocksdb_iter_next(iterator: *mut Iterator);
    fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    fn rocksdb_iter_value(iterator: *const Iterator, len: *mut usize) -> *const u8;
}

/// An open database. Its pointers are valid until it is dropped.
pub struct RocksDb {
    db: NonNull<Db>,
    write: *mut WriteOptions,
    read: *mut ReadOptions,
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::tool("rocksdb", what)
}

/// Makes a call that reports errors, and takes its report.
fn checked<T>(call: impl FnOnce(Error) -> T) -> Result<T, BenchError> {
    let mut error = ptr::null_mut();
    let answer = call(&raw mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: RocksDB reports an error as a C string, which is the caller's to free.
    let what = unsafe {
        let what = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error);
        what
    };
    Err(failed(what))
}

/// The value that a call has given by a pointer and a length.
fn copy(value: *const u8, len: usize, out: &mut [u8]) -> Result<(), BenchError> {
    if value.is_null() || len != out.len() {
        return Err(failed("a value of another length than was put"));
    }
    // SAFETY: callers pass what RocksDB gave, before they let it go.
    out.copy_from_slice(unsafe { std::slice::from_raw_parts(value, len) });
    Ok(())
}

impl RocksDb {
    pub fn open(path: &Path) -> Result<Self, BenchError> {
        let name = path.to_str().and_then(|path| CString::new(path).ok());
        let name = name.ok_or_else(|| failed("a path that is no C string"))?;
        // SAFETY: the options are made, used and destroyed here, and `name` is a C string.
        let db = unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            let db = checked(|error| rocksdb_open(options, name.as_ptr(), error));
            rocksdb_options_destroy(options);
            db?
        };
        let db = NonNull::new(db).ok_or_else(|| failed("neither a database nor an error"))?;
        // SAFETY: these make options that live as long as the database.
        unsafe {
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(write, 1);
            let read = rocksdb_readoptions_create();
            Ok(Self { db, write, read })
        }
    }
}

impl Engine for RocksDb {
    fn write(&mut self, keys: Keys<'_>, value: Option<&[u8]>) -> Result<(), BenchError> {
        let (db, options) = (self.db.as_ptr(), self.write);
        // SAFETY: the batch is made and destroyed here, and copies what it is given; the database
        // is open.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for key in keys {
                let (at, len) = (key.as_ptr(), key.len());
                match value {
                    Some(value) => {
                        rocksdb_writebatch_put(batch, at, len, value.as_ptr(), value.len());
                    }
                    None => rocksdb_writebatch_delete(batch, at, len),
                }
            }
            let written = checked(|error| rocksdb_write(db, options, batch, error));
            rocksdb_writebatch_destroy(batch);
            written
        }
    }

    fn gets(&mut self, keys: Keys<'_>, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut found = 0;
        for key in keys {
            let (db, read) = (self.db.as_ptr(), self.read);
            // SAFETY: the database is open, and the key lives during the call.
            let slice = checked(|error| unsafe {
                rocksdb_get_pinned(db, read, key.as_ptr(), key.len(), error)
            })?;
            if slice.is_null() {
                continue;
            }
            let mut len = 0;
            // SAFETY: the slice is there until it is destroyed, once.
            let copied = unsafe {
                let value = rocksdb_pinnableslice_value(slice, &raw mut len);
                let copied = copy(value, len, out);
                rocksdb_pinnableslice_destroy(slice);
                copied
            };
            copied?;
            found += 1;
        }
        Ok(found)
    }

    fn scans(&mut self, keys: Keys<'_>, count: usize, out: &mut [u8]) -> Result<u64, BenchError> {
        let mut found = 0;
        // SAFETY: the database is open; the iterator is destroyed below.
        let iterator = unsafe { rocksdb_create_iterator(self.db.as_ptr(), self.read) };
        let mut scan = || {
            for key in keys {
                // SAFETY: the iterator is there, and so is the key.
                unsafe { rocksdb_iter_seek(iterator, key.as_ptr(), key.len()) };
                for _ in 0..count {
                    let mut len = 0;
                    // SAFETY: the iterator is there; its value is asked for only if it is valid,
                    // and copied before it moves on.
                    unsafe {
                        if rocksdb_iter_valid(iterator) == 0 {
                            break;
                        }
                        let value = rocksdb_iter_value(iterator, &raw mut len);
                        copy(value, len, out)?;
                        rocksdb_iter_next(iterator);
                    }
                    found += 1;
                }
            }
            Ok(())
        };
        let done = scan();
        // SAFETY: made above, and not used again.
        unsafe { rocksdb_iter_destroy(iterator) };
        done.map(|()| found)
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: made in `open`, and not used again.
        unsafe {
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_readoptions_destroy(self.read);
            rocksdb_close(self.db.as_ptr());
        }
    }
}
