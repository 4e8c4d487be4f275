//! A segment's root: the one value from which all others in it are reached.
//!
//! **A root can be read only as the type as which it was created**: the heap's header records its
//! offset together with its schema's [`Shape`](crate::Shape), and a program that asks for another
//! type gets an error that names both hashes.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;

use crate::heap::{Heap, HeapError, RootRecord};
use crate::process_mapping::ProcessMapping;
use crate::section::Section;
use crate::stored::{Schema, shape_of};

impl<'s> Section<'s> {
    /// The root of a segment, to read. Each thread computes the type's shape once, at the first
    /// call.
    ///
    /// # Errors
    /// [`HeapError::NoRoot`], [`HeapError::Layout`], [`HeapError::RootDamaged`], and as
    /// [`heap`](Self::heap).
    pub fn root<S: Schema>(&self, segment: &str) -> Result<&S::Root<'s>, HeapError> {
        let root = place::<S>(self.settle(segment)?)?;
        // SAFETY: by the record's hash this is a live value of this type, and it lies in the
        // segment, which is entered. Only `&mut Section` yields a `&mut` to it, and the lock keeps
        // other processes out.
        Ok(unsafe { root.as_ref() })
    }

    /// The root of a segment, to change.
    ///
    /// # Errors
    /// [`HeapError::ReadOnly`], and as [`root`](Self::root).
    pub fn root_mut<S: Schema>(&mut self, segment: &str) -> Result<&mut S::Root<'s>, HeapError> {
        let present = writable(self.settle(segment)?)?;
        let mut root = place::<S>(present)?;
        // SAFETY: as in `root`; the lock is held exclusively, and no other reference exists while
        // this `Section`, the only one for the segment, is borrowed.
        Ok(unsafe { root.as_mut() })
    }

    /// Creates the root of a segment that has none.
    ///
    /// # Errors
    /// [`HeapError::RootExists`], [`HeapError::ReadOnly`], [`HeapError::Refused`] if the segment is
    /// full, and as [`heap`](Self::heap). The value that `f` returned is then dropped.
    pub fn create_root<S: Schema>(
        &mut self,
        segment: &str,
        f: impl FnOnce(Heap<'s>) -> S::Root<'s>,
    ) -> Result<&mut S::Root<'s>, HeapError> {
        let heap = self.heap(segment)?;
        let present = writable(self.settle(segment)?)?;
        if present.root_record().is_some_and(|record| record.at != 0) {
            return Err(HeapError::RootExists {
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

    /// The root of a segment, to change; it is created first if the segment has none.
    ///
    /// # Errors
    /// As [`root_mut`](Self::root_mut) and [`create_root`](Self::create_root).
    pub fn root_or_create<S: Schema>(
        &mut self,
        segment: &str,
        f: impl FnOnce(Heap<'s>) -> S::Root<'s>,
    ) -> Result<&mut S::Root<'s>, HeapError> {
        match place::<S>(writable(self.settle(segment)?)?) {
            Err(HeapError::NoRoot { .. }) => self.create_root::<S>(segment, f),
            Err(refused) => Err(refused),
            Ok(_) => self.root_mut::<S>(segment),
        }
    }

    /// Removes the root and returns it; dropping it frees its memory.
    ///
    /// # Errors
    /// As [`root_mut`](Self::root_mut).
    pub fn remove_root<S: Schema>(&mut self, segment: &str) -> Result<S::Root<'s>, HeapError> {
        let present = writable(self.settle(segment)?)?;
        let root = place::<S>(present)?;
        present.set_root_record(RootRecord::default());
        // SAFETY: a live value of this type, as in `root`; the record that led to it is gone.
        let value = unsafe { root.read() };
        let heap = self.heap(segment)?;
        // SAFETY: the block that `create_root` allocated.
        unsafe { heap.deallocate(root.cast(), layout::<S::Root<'s>>()) };
        Ok(value)
    }
}

/// The layout of a root's block. It is never empty, so that the root has an offset of its own.
fn layout<T>() -> Layout {
    let layout = Layout::new::<T>();
    if layout.size() > 0 {
        return layout;
    }
    // One byte for a type without bytes; every alignment is a valid size.
    Layout::from_size_align(1, layout.align()).unwrap_or(Layout::new::<u8>())
}

fn writable(present: &ProcessMapping) -> Result<&ProcessMapping, HeapError> {
    if present.exclusive {
        return Ok(present);
    }
    Err(HeapError::ReadOnly {
        segment: present.name.clone(),
    })
}

/// The root's address, if it was created with this schema.
fn place<'s, S: Schema>(present: &ProcessMapping) -> Result<NonNull<S::Root<'s>>, HeapError> {
    present.has_heap()?;
    let segment = || present.name.clone();
    let record = present.root_record().unwrap_or_default();
    if record.at == 0 {
        return Err(HeapError::NoRoot { segment: segment() });
    }
    let expected = shape_of::<S>();
    if record.layout != expected {
        return Err(HeapError::Layout {
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
    // SAFETY: computed only if it lies inside the mapping.
    let root = inside.then(|| unsafe { present.base.add(record.at as usize) });
    match root {
        Some(root) if record.size == size as u64 && root.addr().get().is_multiple_of(align) => {
            Ok(root.cast())
        }
        _ => Err(HeapError::RootDamaged {
            segment: segment(),
            at: record.at,
        }),
    }
}
