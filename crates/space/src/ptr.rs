//! Pointers within a segment: freely copied, but followed only with the [`Section`] of their own
//! brand.
//!
//! The paper demands that a pointer is dereferenced only in its own address space (§3.3). Here the
//! compiler enforces it: following a pointer takes a `Section` of its brand, which neither another
//! section nor another segment in the same section has. [`Ptr::vcast`] is the `vcast` of figure 5.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::{fmt, hash};

use allocator_api2::alloc::Allocator;

use crate::heap::{Heap, HeapError};
use crate::section::{Brand, Section};
use crate::stored::{Shape, Stored};

/// Why a pointer was not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PtrError {
    /// The pointer leads out of its segment, or is not aligned for its type: the segment is
    /// damaged, or a cast was wrong.
    #[error("the pointer {at:#x} leads out of its segment, or is not aligned")]
    Outside {
        /// The address.
        at: usize,
    },
    /// The section may only read the segment.
    #[error("the segment was entered for reading only")]
    ReadOnly,
}

/// A pointer to a `T` in the segment with brand `'s`. It is one word; copies are equal. It stays
/// valid as long as the segment exists, unless [`free`](Self::free) is called.
///
/// A list, with several pointers to one node:
/// ```
/// use mneme_space::{HeapError, Section, Ptr, Stored};
/// #[derive(Stored)]
/// struct Node<'s> { number: u64, next: Option<Ptr<'s, Node<'s>>> }
///
/// # fn example<'s>(here: &mut Section<'s>) -> Result<(), Box<dyn std::error::Error>> {
/// let heap = here.heap("numbers")?;
/// let second = heap.place(Node { number: 2, next: None })?;
/// let first = heap.place(Node { number: 1, next: Some(second) })?;
/// second.get_mut(here)?.number = 3;
/// let mut at = Some(first);
/// while let Some(node) = at {
///     at = node.get(here)?.next;
/// }
/// # Ok(()) }
/// ```
#[repr(transparent)]
pub struct Ptr<'s, T> {
    at: NonNull<T>,
    brand: Brand<'s>,
    /// Invariant in `T`, because values are also written through it.
    to: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Ptr<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<'_, T> {}

impl<T> PartialEq for Ptr<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Ptr<'_, T> {}

impl<T> hash::Hash for Ptr<'_, T> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.at.hash(state);
    }
}

impl<T> fmt::Debug for Ptr<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr({:p})", self.at)
    }
}

// SAFETY: an address; it is followed with `&Section`, for reading, or with `&mut Section`, by the
// thread that entered.
unsafe impl<T: Send + Sync> Send for Ptr<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Ptr<'_, T> {}

// SAFETY: an address in the segment of its brand; only `Heap::place` creates one.
unsafe impl<'s, T: Stored<'s>> Stored<'s> for Ptr<'s, T> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Ptr");
        shape.part::<T>();
    }
}

impl<'s> Heap<'s> {
    /// Puts a value into the segment. It stays there until [`Ptr::free`] or until the heap is
    /// rebuilt; its destructor never runs by itself.
    ///
    /// # Errors
    /// [`HeapError::Refused`]: the segment is full, or not entered exclusively by this thread.
    pub fn place<T: Stored<'s>>(self, value: T) -> Result<Ptr<'s, T>, HeapError> {
        let layout = Layout::new::<T>();
        let space = if layout.size() == 0 {
            // A value without bytes gets an address in the segment too, so following it needs no
            // exception.
            Layout::from_size_align(1, layout.align()).unwrap_or(layout)
        } else {
            layout
        };
        let at = self.allocate(space).map_err(|_| HeapError::Refused)?.cast();
        // SAFETY: just allocated for it.
        unsafe { at.write(value) };
        Ok(Ptr {
            at,
            brand: PhantomData,
            to: PhantomData,
        })
    }
}

impl<'s> Section<'s> {
    /// [`Heap::place`] in the brand's segment.
    ///
    /// # Errors
    /// [`HeapError::NoHome`] if the brand has no segment yet; otherwise as [`Heap::place`].
    pub fn alloc<T: Stored<'s>>(&mut self, value: T) -> Result<Ptr<'s, T>, HeapError> {
        let home = self.home().ok_or(HeapError::NoHome)?;
        Heap::new(home.base).place(value)
    }

    /// The address of a `T` in the brand's segment, checked.
    fn reach<T>(&self, at: NonNull<T>, exclusive: bool) -> Result<NonNull<T>, PtrError> {
        let address = at.addr().get();
        let outside = PtrError::Outside { at: address };
        let Some(home) = self.home() else {
            return Err(outside);
        };
        if exclusive && !home.exclusive {
            return Err(PtrError::ReadOnly);
        }
        let offset = address.wrapping_sub(home.base.addr().get());
        let len = home.len();
        if size_of::<T>() > len
            || offset > len - size_of::<T>()
            || !address.is_multiple_of(align_of::<T>())
        {
            return Err(outside);
        }
        Ok(at)
    }
}

impl<'s, T: Stored<'s>> Ptr<'s, T> {
    /// The value, to read.
    ///
    /// # Errors
    /// [`PtrError::Outside`], in a damaged segment or after a wrong cast.
    #[inline]
    pub fn get<'a>(&self, here: &'a Section<'s>) -> Result<&'a T, PtrError> {
        let at = here.reach(self.at, false)?;
        // SAFETY: the pointer leads, within what is mapped, to a `T` in the brand's segment. Nobody
        // frees the `T` (a caller of `free` promises that this copy is not used). Only `&mut
        // Section` yields a `&mut` to it.
        Ok(unsafe { at.as_ref() })
    }

    /// The value, to change.
    ///
    /// # Errors
    /// [`PtrError::ReadOnly`], and as [`get`](Self::get).
    #[inline]
    pub fn get_mut<'a>(&self, here: &'a mut Section<'s>) -> Result<&'a mut T, PtrError> {
        let mut at = here.reach(self.at, true)?;
        // SAFETY: as in `get`. The segment is held exclusively, and every other way to the value,
        // through roots or other pointers, needs this `Section`, which is borrowed. No pointer
        // leads to a block that belongs to a root, because only `place` creates pointers.
        Ok(unsafe { at.as_mut() })
    }

    /// Drops the value and frees its memory.
    ///
    /// # Errors
    /// As [`get_mut`](Self::get_mut).
    ///
    /// # Safety
    /// No copy of this pointer may be followed or freed afterwards, including copies stored in the
    /// segment.
    pub unsafe fn free(self, here: &mut Section<'s>) -> Result<(), PtrError> {
        let at = here.reach(self.at, true)?;
        let heap = here.home().map(|home| Heap::new(home.base));
        // SAFETY: a live value, as in `get_mut`, which by the caller's promise is never accessed
        // again.
        unsafe { at.drop_in_place() };
        if let Some(heap) = heap {
            let layout = Layout::new::<T>();
            let size = layout.size().max(1);
            if let Ok(space) = Layout::from_size_align(size, layout.align()) {
                // SAFETY: the block that `place` allocated.
                unsafe { heap.deallocate(at.cast(), space) };
            }
        }
        Ok(())
    }

    /// This address as a pointer of another brand: the paper's `vcast`. It is for a pointer that is
    /// known by other means to belong to the segment of `there`'s brand. `U` is `T` under that
    /// brand. The range is checked.
    ///
    /// # Errors
    /// [`PtrError::Outside`] if the address lies outside that segment.
    ///
    /// # Safety
    /// At this address in that segment there must be a live `U` that [`Heap::place`] put there.
    pub unsafe fn vcast<'t, U: Stored<'t>>(
        self,
        there: &Section<'t>,
    ) -> Result<Ptr<'t, U>, PtrError> {
        Ok(Ptr {
            at: there.reach(self.at.cast(), false)?,
            brand: PhantomData,
            to: PhantomData,
        })
    }

    /// [`vcast`](Self::vcast) without a check: for a section that has not begun yet.
    ///
    /// # Safety
    /// As [`vcast`](Self::vcast), wherever the new pointer is followed.
    pub unsafe fn vcast_unchecked<'t, U: Stored<'t>>(self) -> Ptr<'t, U> {
        Ptr {
            at: self.at.cast(),
            brand: PhantomData,
            to: PhantomData,
        }
    }

    /// The address, for printing and for C interfaces.
    #[must_use]
    pub fn address(self) -> usize {
        self.at.addr().get()
    }
}
