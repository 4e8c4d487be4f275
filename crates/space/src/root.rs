//! A segment's root: the one value from which all others in it are reached.
//!
//! **A root is seen only as the type as which it was created**: its place is kept in the heap's
//! header together with its schema's [`Shape`](crate::Shape), and a program that asks for another
//! gets an error that names both hashes.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;

use crate::heap::{Heap, HeapError, RootRecord};
use crate::process_mapping::ProcessMapping;
use crate::section::Section;
use crate::stored::{Schema, shape_of};

/// Why a root could not be had, made or removed.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The segment or its heap could not be had.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The segment has no root yet.
    #[error("segment {segment:?} has no root yet")]
    Missing {
        /// The segment.
        segment: Box<str>,
    },
    /// The segment has a root already.
    #[error("segment {segment:?} has a root already")]
    Exists {
        /// The segment.
        segment: Box<str>,
    },
    /// The root was created as another type, by another version of the program, or by another
    /// compiler.
    #[error(
        "the root of segment {segment:?} has layout {found:#018x}, this program's type has {expected:#018x}: it was created as another type or by another build"
    )]
    Layout {
        /// The segment.
        segment: Box<str>,
        /// The hash of the type that was asked for.
        expected: u64,
        /// The hash of the type as which it was created.
        found: u64,
    },
    /// The section may only read the segment.
    #[error("segment {segment:?} was entered for reading only")]
    ReadOnly {
        /// The segment.
        segment: Box<str>,
    },
    /// What was to become a root without a type is no block of the segment's heap.
    #[error("no block of segment {segment:?} lies at that address")]
    NoBlock {
        /// The segment.
        segment: Box<str>,
    },
    /// The root's record names a place where it cannot lie.
    #[error("the root of segment {segment:?} is said to lie at offset {at}, which is impossible")]
    Damaged {
        /// The segment.
        segment: Box<str>,
        /// The offset.
        at: u64,
    },
}

impl<'s> Section<'s> {
    /// The root of a segment, to read. The first time in each thread, the type's shape is taken.
    ///
    /// # Errors
    /// [`RootError::Missing`], [`RootError::Layout`], [`RootError::Damaged`], and as
    /// [`heap`](Self::heap).
    pub fn root<S: Schema>(&self, segment: &str) -> Result<&S::Root<'s>, RootError> {
        let root = place::<S>(self.settle(segment)?)?;
        // SAFETY: a live value of this type by the record's hash, in the segment, which is entered;
        // `&mut` to it is had by `&mut Section` alone, and other processes are kept out by the
        // lock.
        Ok(unsafe { root.as_ref() })
    }

    /// The root of a segment, to change.
    ///
    /// # Errors
    /// [`RootError::ReadOnly`], and as [`root`](Self::root).
    pub fn root_mut<S: Schema>(&mut self, segment: &str) -> Result<&mut S::Root<'s>, RootError> {
        let present = writable(self.settle(segment)?)?;
        let mut root = place::<S>(present)?;
        // SAFETY: as in `root`; the lock is held exclusively, and no other reference is had while
        // this `Section`, the only one that speaks of the segment, is borrowed.
        Ok(unsafe { root.as_mut() })
    }

    /// Makes the root of a segment that has none.
    ///
    /// # Errors
    /// [`RootError::Exists`], [`RootError::ReadOnly`], [`HeapError::Refused`] if the segment is
    /// full, and as [`heap`](Self::heap). What `f` made is dropped then.
    pub fn create_root<S: Schema>(
        &mut self,
        segment: &str,
        f: impl FnOnce(Heap<'s>) -> S::Root<'s>,
    ) -> Result<&mut S::Root<'s>, RootError> {
        let heap = self.heap(segment)?;
        let present = writable(self.settle(segment)?)?;
        if present.root_record().is_some_and(|record| record.at != 0) {
            return Err(RootError::Exists {
                segment: segment.into(),
            });
        }
        let value = f(heap);
        let block = heap
            .allocate(layout::<S::Root<'s>>())
            .map_err(|_| HeapError::Refused)?;
        let mut root = block.cast::<S::Root<'s>>();
        // SAFETY: just allocated for it.
        unsafe { root.write(value) };
        present.set_root_record(RootRecord {
            at: (root.addr().get() - present.base.addr().get()) as u64,
            layout: shape_of::<S>(),
            size: size_of::<S::Root<'s>>() as u64,
        });
        // SAFETY: just written; exclusive as in `root_mut`.
        Ok(unsafe { root.as_mut() })
    }

    /// The root of a segment, to change; made first if the segment has none.
    ///
    /// # Errors
    /// As [`root_mut`](Self::root_mut) and [`create_root`](Self::create_root).
    pub fn root_or_create<S: Schema>(
        &mut self,
        segment: &str,
        f: impl FnOnce(Heap<'s>) -> S::Root<'s>,
    ) -> Result<&mut S::Root<'s>, RootError> {
        match place::<S>(writable(self.settle(segment)?)?) {
            Err(RootError::Missing { .. }) => self.create_root::<S>(segment, f),
            Err(refused) => Err(refused),
            Ok(_) => self.root_mut::<S>(segment),
        }
    }

    /// Removes the root and hands it out; dropped, it gives its memory back.
    ///
    /// # Errors
    /// As [`root_mut`](Self::root_mut).
    pub fn remove_root<S: Schema>(&mut self, segment: &str) -> Result<S::Root<'s>, RootError> {
        let present = writable(self.settle(segment)?)?;
        let root = place::<S>(present)?;
        present.set_root_record(RootRecord::default());
        // SAFETY: a live value of this type, as in `root`, and the record that led to it is gone.
        let value = unsafe { root.read() };
        let heap = self.heap(segment)?;
        // SAFETY: the block that `create_root` allocated.
        unsafe { heap.deallocate(root.cast(), layout::<S::Root<'s>>()) };
        Ok(value)
    }
}

/// A block's layout for a root: never empty, so that its offset is a place.
fn layout<T>() -> Layout {
    let layout = Layout::new::<T>();
    if layout.size() > 0 {
        return layout;
    }
    // One byte for what has none; every alignment is a valid size.
    Layout::from_size_align(1, layout.align()).unwrap_or(Layout::new::<u8>())
}

fn writable(present: &ProcessMapping) -> Result<&ProcessMapping, RootError> {
    if present.exclusive {
        return Ok(present);
    }
    Err(RootError::ReadOnly {
        segment: present.name.clone(),
    })
}

/// Where the root lies, if it is one of this schema.
fn place<'s, S: Schema>(present: &ProcessMapping) -> Result<NonNull<S::Root<'s>>, RootError> {
    present.has_heap()?;
    let segment = || present.name.clone();
    let record = present.root_record().unwrap_or_default();
    if record.at == 0 {
        return Err(RootError::Missing { segment: segment() });
    }
    let expected = shape_of::<S>();
    if record.layout != expected {
        return Err(RootError::Layout {
            segment: segment(),
            expected,
            found: record.layout,
        });
    }
    let (size, align) = (size_of::<S::Root<'s>>(), align_of::<S::Root<'s>>());
    let inside = usize::try_from(record.at)
        .ok()
        .and_then(|at| at.checked_add(size))
        .is_some_and(|end| end <= present.len());
    // SAFETY: only if it is inside of the mapping.
    let root = inside.then(|| unsafe { present.base.add(record.at as usize) });
    match root {
        Some(root) if record.size == size as u64 && root.addr().get().is_multiple_of(align) => {
            Ok(root.cast())
        }
        _ => Err(RootError::Damaged {
            segment: segment(),
            at: record.at,
        }),
    }
}
