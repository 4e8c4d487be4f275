//! [`Section`]: a program's access to segments between entering and leaving them.
//!
//! **A value of a segment can neither leave its section nor move to another segment.** A section
//! hands out a [`Section`] whose lifetime parameter, the *brand*, is one that the compiler equates
//! with no other, as in `GhostCell` (Yanovski et al., ICFP 2021) and `gc-arena`; the segment's
//! roots, heaps and pointers carry it. A brand stands for **one** segment, the one that is named
//! first. Otherwise a vector of segment B could be put into the root of A, and a space with A alone
//! would follow it to nowhere. The paper's compiler analysis allows that, because it treats a whole
//! address space as one (§3.3). To work on two segments, [`Section::beside`] creates a second
//! brand.
//!
//! `Section` is also the permission to access values: `&Section` reads, `&mut Section` changes. It
//! stays in the thread that entered, and only that thread may change anything. It may be lent to
//! threads of a `std::thread::scope`, to read in parallel.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mneme_sys::fork;

use crate::heap::{Heap, HeapError};
use crate::process_mapping::{self, ProcessMapping};

const NONE: usize = usize::MAX;

/// Invariant in the lifetime, so that the compiler never equates two brands.
pub(crate) type Brand<'s> = PhantomData<fn(&'s ()) -> &'s ()>;

/// What all brands of a section share.
struct SectionState<'p> {
    present: &'p [ProcessMapping],
    /// The segments to which `beside` has given brands at this moment.
    beside: Mutex<Vec<usize>>,
    /// Counts forks: in a child forked during the section, the segments are not mapped.
    generation: u32,
}

/// The segments of a section, as one brand accesses them.
///
/// The lifetime is the brand; a value that carries it cannot leave the section. Entering a space or
/// a [`LocalSegment`](crate::LocalSegment) creates one.
pub struct Section<'s> {
    section: &'s SectionState<'s>,
    /// The segment that the brand stands for; [`NONE`] until one is named.
    home: AtomicUsize,
    brand: Brand<'s>,
    /// Makes the type not `Send`.
    here: PhantomData<*mut ()>,
}

// SAFETY: `&Section` only reads values, all of which are `Sync` (`Stored` demands it), and the
// choice of the segment is atomic. Writing needs either `&mut Section`, which stays in its thread
// because `Section` is not `Send`, or the thread's mark, which other threads do not have.
unsafe impl Sync for Section<'_> {}

impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section")
            .field("segments", &self.section.present)
            .field("home", &self.home().map(|home| &home.name))
            .finish()
    }
}

/// Runs `f` inside the segments. Returns `None`, without running `f`, if the calling thread is
/// already in a section.
///
/// # Safety
/// While `f` runs, each segment must be mapped over its length at its base, with its lock held by
/// this call: exclusively, against every process and thread, where `exclusive` says so, otherwise
/// shared. A segment appears once.
pub(crate) unsafe fn enter<R>(
    present: &[ProcessMapping],
    f: impl for<'s> FnOnce(&mut Section<'s>) -> R,
) -> Option<R> {
    // SAFETY: the caller's promise; dropped at the end, also in unwinding.
    let _marked = unsafe { process_mapping::mark(present) }?;
    let section = SectionState {
        present,
        beside: Mutex::new(Vec::new()),
        generation: fork::generation(),
    };
    Some(f(&mut Section {
        section: &section,
        home: AtomicUsize::new(NONE),
        brand: PhantomData,
        here: PhantomData,
    }))
}

impl<'s> Section<'s> {
    /// The names of the segments that were entered, and whether each may be changed.
    pub fn segments(&self) -> impl Iterator<Item = (&str, bool)> {
        let present = self.section.present.iter();
        present.map(|present| (&*present.name, present.exclusive))
    }

    /// The heap of a segment. The segment becomes the brand's unless the brand has one already.
    ///
    /// # Errors
    /// [`HeapError::NoSegment`], [`HeapError::AnotherSegment`], [`HeapError::NoHeap`].
    pub fn heap(&self, segment: &str) -> Result<Heap<'s>, HeapError> {
        let present = self.settle(segment)?;
        present.has_heap()?;
        Ok(Heap::new(present.base))
    }

    /// Works on two segments at once: `f` gets this `Section` and one for `segment`, which has its
    /// own brand. Data can only be copied from one to the other.
    ///
    /// # Errors
    /// [`HeapError::NoSegment`]; [`HeapError::Taken`] if a brand stands for that segment already;
    /// [`HeapError::NoHome`] if this one has no segment yet.
    ///
    /// ```
    /// use mneme_space::{HeapError, Section, SegVec};
    /// # fn example(here: &mut Section<'_>) -> Result<(), HeapError> {
    /// let heap = here.heap("a")?;
    /// let a = SegVec::<u64>::new_in(heap);
    /// here.beside("b", |_here, there| {
    ///     let mut b = SegVec::<u64>::new_in(there.heap("b")?);
    ///     b.extend_from_slice(&a);
    ///     Ok(())
    /// })?
    /// # }
    /// ```
    pub fn beside<R>(
        &mut self,
        segment: &str,
        f: impl for<'t> FnOnce(&mut Section<'s>, &mut Section<'t>) -> R,
    ) -> Result<R, HeapError> {
        let index = self.find(segment)?;
        let home = self.home.load(Ordering::Relaxed);
        if home == NONE {
            return Err(HeapError::NoHome);
        }
        let section = self.section;
        {
            let mut beside = section.beside();
            // The section's first brand is listed once there is a second one.
            if beside.is_empty() {
                beside.push(home);
            }
            if beside.contains(&index) {
                return Err(HeapError::Taken {
                    asked: segment.into(),
                });
            }
            beside.push(index);
        }
        let _until = Until { section, index };
        let mut there = Section {
            section,
            home: AtomicUsize::new(index),
            brand: PhantomData,
            here: PhantomData,
        };
        Ok(f(self, &mut there))
    }

    /// The segment that the brand stands for.
    pub(crate) fn home(&self) -> Option<&'s ProcessMapping> {
        if self.is_forked() {
            return None;
        }
        self.section.present.get(self.home.load(Ordering::Relaxed))
    }

    /// The segment of this name. It becomes the brand's unless the brand has one already.
    pub(crate) fn settle(&self, segment: &str) -> Result<&'s ProcessMapping, HeapError> {
        let index = self.find(segment)?;
        // No ordering is needed: the index is all that is shared, and it leads to data that do not
        // change.
        let chosen = self
            .home
            .compare_exchange(NONE, index, Ordering::Relaxed, Ordering::Relaxed);
        match chosen {
            Err(home) if home != index => Err(HeapError::AnotherSegment {
                home: self.section.present[home].name.clone(),
                asked: segment.into(),
            }),
            _ => Ok(&self.section.present[index]),
        }
    }

    /// Whether this process was forked in the section, which then belongs to its parent.
    #[inline]
    fn is_forked(&self) -> bool {
        self.section.generation != fork::generation()
    }

    fn find(&self, segment: &str) -> Result<usize, HeapError> {
        if self.is_forked() {
            return Err(HeapError::Outside);
        }
        let mut present = self.section.present.iter();
        present
            .position(|present| &*present.name == segment)
            .ok_or_else(|| HeapError::NoSegment {
                asked: segment.into(),
            })
    }
}

impl SectionState<'_> {
    /// A panic cannot leave the list half changed, so a poisoned mutex is used as it is.
    fn beside(&self) -> MutexGuard<'_, Vec<usize>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a segment from the list when its brand ends.
struct Until<'p> {
    section: &'p SectionState<'p>,
    index: usize,
}

impl Drop for Until<'_> {
    fn drop(&mut self) {
        let mut beside = self.section.beside();
        beside.retain(|index| *index != self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_mapping::Grow;
    use std::ptr::NonNull;
    use std::sync::Arc;

    struct Fixed;

    impl Grow for Fixed {
        fn extend(&self, wanted: usize) -> Result<usize, HeapError> {
            Err(HeapError::Full { wanted, max: 0 })
        }
    }

    /// A brand stands for one segment, and no segment has two brands: otherwise a value could move
    /// to another segment, or two owners could change it at once.
    #[test]
    fn a_brand_stands_for_one_segment_and_no_segment_has_two_brands() {
        let regions: Vec<_> = (0..3)
            .map(|_| mneme_sys::Region::private(2 << 20, 2 << 20, mneme_sys::PagePolicy::Small))
            .map(Result::unwrap)
            .collect();
        let present: Vec<_> = regions
            .iter()
            .zip(["a", "b", "c"])
            .map(|(region, name)| {
                let base = NonNull::new(region.base()).unwrap();
                // SAFETY: a region of our own, not yet used.
                unsafe { crate::heap::format(base, 2 << 20, 2 << 20, true) }.unwrap();
                ProcessMapping {
                    name: name.into(),
                    uuid: crate::Uuid::from_bytes([0; 16]),
                    base,
                    len: AtomicUsize::new(2 << 20),
                    exclusive: true,
                    ground: Arc::new(Fixed),
                }
            })
            .collect();
        let body = |here: &mut Section<'_>| {
            assert!(matches!(
                here.beside("b", |_, _| ()),
                Err(HeapError::NoHome)
            ));
            here.heap("a").unwrap();
            assert!(matches!(
                here.heap("b"),
                Err(HeapError::AnotherSegment { .. })
            ));
            here.beside("b", |here, there| {
                assert!(there.heap("a").is_err() && here.heap("b").is_err());
                for both in ["a", "b"] {
                    let taken = there.beside(both, |_, _| ());
                    assert!(matches!(taken, Err(HeapError::Taken { .. })), "{both}");
                }
                // Nor can the same segment be reached in two ways at once.
                here.beside("c", |_, _| {
                    let taken = there.beside("c", |_, _| ());
                    assert!(matches!(taken, Err(HeapError::Taken { .. })));
                })
                .unwrap();
                there.beside("c", |_, _| ()).unwrap();
                assert_eq!(there.alloc(7_u64).unwrap().get(there), Ok(&7));
            })
            .unwrap();
            here.beside("b", |_, _| ()).unwrap();
        };
        // SAFETY: three regions that nobody else has.
        unsafe { enter(&present, body) }.unwrap();
        // SAFETY: as above.
        assert!(unsafe { enter(&present, |_| enter(&present, |_| ()).is_none()) }.unwrap());
    }
}
