//! The named arrays of a segment, in a layout that programs in any language can read.
//!
//! The segment's root is an untyped block, which a C program gets from `seg_root`. Numbers are
//! little-endian. Addresses are those of the segment, which are the same in every process:
//!
//! ```c
//! struct mneme_arrays {            /* the root */
//!     char magic[8];               /* "mnemarr1" */
//!     uint64_t count, capacity;    /* of `entries` */
//!     struct mneme_array *entries; /* in no order */
//! };
//! struct mneme_array {
//!     uint64_t *shape;             /* `dimensions` numbers; then the name; then the descr */
//!     uint32_t dimensions, name_bytes, descr_bytes, reserved;
//!     void *data;                  /* in C order, 64-byte aligned */
//!     uint64_t bytes;
//! };
//! ```
//!
//! The descr is that of numpy's `.npy` files, for example `'<f8'` with its quotes.
//!
//! **The contents of the segment are not trusted**: a position outside the segment or a length that
//! does not fit is an error. All writes are made under the segment's exclusive lock.

use std::alloc::Layout;
use std::ptr::NonNull;

use mneme_space::{SectionGuard, UntypedHeap};

use crate::errors::{Failure, Reason, failure};

const MAGIC: u64 = u64::from_le_bytes(*b"mnemarr1");

/// The alignment of arrays' data.
pub(crate) const ALIGN: usize = 64;

/// The maximum length of a name or a descr.
const MOST_TEXT: usize = 64 << 10;

/// The maximum number of dimensions, which is numpy's.
pub(crate) const MOST_DIMENSIONS: usize = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct Root {
    magic: u64,
    count: u64,
    capacity: u64,
    entries: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    shape: u64,
    dimensions: u32,
    name_bytes: u32,
    descr_bytes: u32,
    reserved: u32,
    data: u64,
    bytes: u64,
}

const _: () = assert!(size_of::<Root>() == 32 && size_of::<Entry>() == 40);

/// An array's description and position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) descr: String,
    pub(crate) shape: Vec<u64>,
    /// The offset of its first byte in the segment.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// An allocated array that has no name yet.
pub(crate) struct Made {
    entry: Entry,
    pub(crate) array: Array,
}

/// The arrays of the segment that the calling thread is in.
pub(crate) struct Directory<'a> {
    inside: &'a SectionGuard<'static>,
    heap: UntypedHeap,
    base: NonNull<u8>,
    name: Box<str>,
}

impl<'a> Directory<'a> {
    pub(crate) fn of(inside: &'a SectionGuard<'static>) -> Result<Self, Failure> {
        let entered = inside.segments().next();
        let entered = entered.ok_or_else(|| failure(Reason::Nested, "inside of no segment"))?;
        let heap = inside.heap(entered.base.addr().get());
        Ok(Self {
            inside,
            heap: heap.ok_or_else(|| failure(Reason::Nested, "inside of no segment"))?,
            base: entered.base,
            name: entered.name.into(),
        })
    }

    /// The number of bytes of the segment, which grows as blocks are allocated.
    fn len(&self) -> usize {
        self.inside
            .segments()
            .next()
            .map_or(0, |entered| entered.len)
    }

    fn damaged(&self, what: &str) -> Failure {
        let text = format!("the arrays of segment {:?} are damaged: {what}", self.name);
        failure(Reason::Damaged, text)
    }

    fn full(&self, bytes: usize) -> Failure {
        let text = format!(
            "segment {:?} has no place for {bytes} bytes: remove arrays, or make a larger one",
            self.name
        );
        failure(Reason::Full, text)
    }

    /// The address of `count` elements, if all of them lie in the segment.
    fn place<T>(&self, address: u64, count: usize) -> Result<NonNull<T>, Failure> {
        let outside = || self.damaged("something lies outside of the segment");
        let at = usize::try_from(address).map_err(|_| outside())?;
        let offset = at.checked_sub(self.base.addr().get()).ok_or_else(outside)?;
        let bytes = count.checked_mul(size_of::<T>()).ok_or_else(outside)?;
        let end = offset.checked_add(bytes).ok_or_else(outside)?;
        if end > self.len() || !at.is_multiple_of(align_of::<T>()) {
            return Err(outside());
        }
        // SAFETY: inside the segment, which is mapped while the thread is in a section.
        Ok(unsafe { self.base.add(offset) }.cast())
    }

    /// A copy of elements in the segment. All bit patterns of `T` must be valid.
    fn copied<T: Copy>(&self, address: u64, count: usize) -> Result<Vec<T>, Failure> {
        let at = self.place::<T>(address, count)?;
        let mut copies = Vec::with_capacity(count);
        // SAFETY: checked by `place`; the lock prevents changes.
        copies.extend((0..count).map(|i| unsafe { at.add(i).read() }));
        Ok(copies)
    }

    fn root(&self) -> Result<Option<(NonNull<Root>, Root)>, Failure> {
        let Some(at) = self.heap.root()? else {
            return Ok(None);
        };
        let at = self.place::<Root>(at.addr().get() as u64, 1)?;
        // SAFETY: checked above, under the lock.
        let root = unsafe { at.read() };
        if root.magic != MAGIC {
            let text = format!(
                "the root of segment {:?} is no directory of arrays: another program laid it out",
                self.name
            );
            return Err(failure(Reason::Damaged, text));
        }
        if root.count > root.capacity {
            return Err(self.damaged("more entries than there is place for"));
        }
        Ok(Some((at, root)))
    }

    fn entries(&self) -> Result<Vec<Entry>, Failure> {
        match self.root()? {
            None => Ok(Vec::new()),
            Some((_, root)) if root.count == 0 => Ok(Vec::new()),
            Some((_, root)) => {
                let count = usize::try_from(root.count).unwrap_or(usize::MAX);
                self.place::<Entry>(root.entries, count)?;
                self.copied(root.entries, count)
            }
        }
    }

    fn text(&self, address: u64, bytes: u32) -> Result<String, Failure> {
        let bytes = bytes as usize;
        if bytes > MOST_TEXT {
            return Err(self.damaged("a name is too long"));
        }
        let text = String::from_utf8(self.copied(address, bytes)?);
        text.map_err(|_| self.damaged("a name is no text"))
    }

    fn shown(&self, entry: &Entry) -> Result<Array, Failure> {
        let dimensions = entry.dimensions as usize;
        if dimensions > MOST_DIMENSIONS {
            return Err(self.damaged("an array has too many dimensions"));
        }
        let shape = self.copied::<u64>(entry.shape, dimensions)?;
        let name = entry.shape + 8 * dimensions as u64;
        let descr = name + u64::from(entry.name_bytes);
        let bytes = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
        let data = self.place::<u8>(entry.data, bytes)?;
        Ok(Array {
            name: self.text(name, entry.name_bytes)?,
            descr: self.text(descr, entry.descr_bytes)?,
            shape,
            offset: data.addr().get() - self.base.addr().get(),
            bytes,
        })
    }

    /// The address of an array's bytes, valid while the thread is in the section.
    pub(crate) fn bytes_of(&self, array: &Array) -> Result<NonNull<u8>, Failure> {
        let at = self.base.addr().get().saturating_add(array.offset);
        self.place(at as u64, array.bytes)
    }

    /// All arrays.
    pub(crate) fn all(&self) -> Result<Vec<Array>, Failure> {
        let entries = self.entries()?;
        entries.iter().map(|entry| self.shown(entry)).collect()
    }

    fn position(&self, name: &str) -> Result<Option<(usize, Entry, Array)>, Failure> {
        for (i, entry) in self.entries()?.into_iter().enumerate() {
            if entry.name_bytes as usize == name.len() {
                let array = self.shown(&entry)?;
                if array.name == name {
                    return Ok(Some((i, entry, array)));
                }
            }
        }
        Ok(None)
    }

    /// The array of that name.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Array>, Failure> {
        Ok(self.position(name)?.map(|(_, _, array)| array))
    }

    fn block(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, Failure> {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| self.full(bytes))?;
        self.heap.allocate(layout).ok_or_else(|| self.full(bytes))
    }

    /// Frees a block that nothing refers to.
    fn free(&self, block: NonNull<u8>) {
        // SAFETY: removed from the directory, or never in it, and not used by views.
        unsafe { self.heap.free(block) };
    }

    /// The root, enlarged if necessary so that it has a free entry at the end.
    fn with_a_free_entry(&self) -> Result<(NonNull<Root>, Root), Failure> {
        let (at, mut root) = match self.root()? {
            Some(found) => found,
            None => {
                let at = self.block(size_of::<Root>(), 8)?.cast::<Root>();
                let root = Root {
                    magic: MAGIC,
                    count: 0,
                    capacity: 0,
                    entries: 0,
                };
                // SAFETY: a newly allocated block of the right size.
                unsafe { at.write(root) };
                self.heap.set_root(Some(at.cast()))?;
                (at, root)
            }
        };
        if root.count < root.capacity {
            return Ok((at, root));
        }
        let old = self.entries()?;
        let capacity = (2 * old.len()).max(8);
        let new = self
            .block(capacity * size_of::<Entry>(), 8)?
            .cast::<Entry>();
        for (i, entry) in old.iter().enumerate() {
            // SAFETY: the block has space for more entries than these.
            unsafe { new.add(i).write(*entry) };
        }
        let before = root.entries;
        root.entries = new.addr().get() as u64;
        root.capacity = capacity as u64;
        // SAFETY: the root, which was checked; the lock is held exclusively.
        unsafe { at.write(root) };
        if before != 0 {
            self.free(self.place::<u8>(before, 1)?);
        }
        Ok((at, root))
    }

    pub(crate) fn exists(&self, name: &str) -> Failure {
        let text = format!(
            "segment {:?} has an array {name:?} already: replace=True puts another in its place",
            self.name
        );
        failure(Reason::Exists, text)
    }

    /// Allocates an array without a name. Its bytes are undefined. The segment must have been
    /// entered for writing.
    pub(crate) fn make(
        &self,
        name: &str,
        descr: &str,
        shape: &[u64],
        bytes: usize,
    ) -> Result<Made, Failure> {
        let fits = |text: &str| text.len() <= MOST_TEXT;
        if name.is_empty() || !fits(name) || !fits(descr) || shape.len() > MOST_DIMENSIONS {
            let text = "an array has a name, of 64 KiB at most, and no more than 64 dimensions";
            return Err(failure(Reason::Invalid, text));
        }
        // If there is no space for the entry, this fails before the bytes are copied.
        self.with_a_free_entry()?;
        let data = self.block(bytes, ALIGN)?;
        let about = 8 * shape.len() + name.len() + descr.len();
        let about = match self.block(about, 8) {
            Ok(about) => about,
            Err(full) => {
                self.free(data);
                return Err(full);
            }
        };
        let numbers = shape.iter().flat_map(|number| number.to_le_bytes());
        for (i, byte) in numbers.chain(name.bytes()).chain(descr.bytes()).enumerate() {
            // SAFETY: the block has space for all of them.
            unsafe { about.add(i).write(byte) };
        }
        let entry = Entry {
            shape: about.addr().get() as u64,
            dimensions: shape.len() as u32,
            name_bytes: name.len() as u32,
            descr_bytes: descr.len() as u32,
            reserved: 0,
            data: data.addr().get() as u64,
            bytes: bytes as u64,
        };
        let array = Array {
            name: name.to_owned(),
            descr: descr.to_owned(),
            shape: shape.to_vec(),
            offset: data.addr().get() - self.base.addr().get(),
            bytes,
        };
        Ok(Made { entry, array })
    }

    /// Gives a name to a new array, and frees the array that had the name before. Nothing else uses
    /// that array any more.
    pub(crate) fn enter(&self, made: &Made) -> Result<(), Failure> {
        let (at, mut root) = self.with_a_free_entry()?;
        let replaced = self.position(&made.array.name)?;
        let count = usize::try_from(root.count).unwrap_or(usize::MAX);
        let entries = self.place::<Entry>(root.entries, count + 1)?;
        let i = replaced.as_ref().map_or(count, |(i, ..)| *i);
        root.count += u64::from(replaced.is_none());
        // SAFETY: the address of an existing or free entry, and of the root; the lock is held
        // exclusively.
        unsafe {
            entries.add(i).write(made.entry);
            at.write(root);
        }
        replaced.map_or(Ok(()), |(_, entry, _)| self.free_both(&entry))
    }

    /// Frees a new array that has no name.
    pub(crate) fn discard(&self, made: &Made) -> Result<(), Failure> {
        self.free_both(&made.entry)
    }

    /// Frees an array, whose entry was checked, and its description.
    fn free_both(&self, entry: &Entry) -> Result<(), Failure> {
        self.free(self.place::<u8>(entry.data, 1)?);
        self.free(self.place::<u8>(entry.shape, 1)?);
        Ok(())
    }

    /// Removes and frees an array; returns whether it existed. Nothing else uses it any more.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, Failure> {
        let Some((i, entry, _)) = self.position(name)? else {
            return Ok(false);
        };
        let Some((at, mut root)) = self.root()? else {
            return Ok(false);
        };
        let count = usize::try_from(root.count).unwrap_or(usize::MAX);
        let entries = self.place::<Entry>(root.entries, count)?;
        root.count -= 1;
        // SAFETY: `count` entries are there, and the lock is held exclusively.
        unsafe {
            entries.add(i).write(entries.add(count - 1).read());
            at.write(root);
        }
        self.free_both(&entry)?;
        Ok(true)
    }
}
