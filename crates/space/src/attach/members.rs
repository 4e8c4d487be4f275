//! The segments of an attachment at one moment.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mneme_sys::Access;

use super::attached_segment::AttachedSegment;
use crate::heap::HeapError;
use crate::map::{Map, Placed, ProcessMap, SegmentSet};
use crate::process_mapping::{Grow, ProcessMapping};
use crate::segment::control::SEGMENT_GATE;
use crate::segment::durable;
use crate::space::version::VersionWord;
use crate::{EnterError, Segment};

/// Segments with the access to each, in the form in which sections use them. Never changed; a new
/// list replaces it.
pub(super) struct Members {
    /// The version of the space's members, if the attachment follows a space.
    version: Option<MembersVersion>,
    /// All segments, for the map.
    pub(super) set: SegmentSet,
    /// In the order of the segments' identities, which is the locking order.
    pub(super) places: Vec<AttachedSegment>,
    /// For sections that may change the segments attached for writing.
    pub(super) write: Vec<ProcessMapping>,
    /// For sections that only read.
    pub(super) read: Vec<ProcessMapping>,
}

/// A version of a space's members, and the word that shows whether there is a later one.
pub(super) struct MembersVersion {
    pub(super) word: VersionWord,
    pub(super) number: u64,
}

/// Grows a mapped segment on behalf of its heap.
pub(super) struct GrowingSegment(pub(super) Arc<Placed>);

impl Grow for GrowingSegment {
    fn extend(&self, wanted: usize) -> Result<usize, HeapError> {
        self.0.grow(wanted).map_err(|error| HeapError::Growth {
            wanted,
            reason: error.to_string().into(),
        })
    }
}

impl Members {
    /// Maps each segment that the process has not mapped yet.
    pub(super) fn gather(
        map: &ProcessMap,
        version: Option<MembersVersion>,
        segments: &[(Segment, Access)],
    ) -> Result<Self, EnterError> {
        let mut places = Vec::with_capacity(segments.len());
        for (segment, access) in segments {
            segment.without_contents()?;
            if segment.base().is_none() {
                return Err(EnterError::Floating {
                    name: segment.name().to_string(),
                });
            }
            let placed = map.admit(segment, *access)?;
            let gate = placed.participants().fenced_gate(SEGMENT_GATE);
            let gate = gate.ok_or(EnterError::NoGate)?;
            places.push(AttachedSegment {
                placed,
                gate,
                access: *access,
                durable: durable::is_durable(segment.meta()),
                growth_refused: AtomicBool::new(false),
            });
        }
        places.sort_by_key(|place| place.segment().uuid());
        let same = |pair: &&[AttachedSegment]| pair[0].segment().uuid() == pair[1].segment().uuid();
        if let Some(pair) = places.windows(2).find(same) {
            return Err(EnterError::Twice {
                name: pair[0].segment().name().to_string(),
            });
        }
        let placed = places.iter().map(|place| Arc::clone(&place.placed));
        let set = SegmentSet::new(placed.collect())
            .map_err(|[one, other]| EnterError::Overlap { one, other })?;
        let present = |alone: bool| places.iter().map(|place| place.present(alone)).collect();
        Ok(Self {
            version,
            set,
            write: present(true),
            read: present(false),
            places,
        })
    }

    /// Whether the space still has these members.
    #[inline]
    pub(super) fn are_of_now(&self) -> bool {
        let version = self.version.as_ref();
        version.is_none_or(|version| version.word.load() <= version.number)
    }

    /// Registers the set with the map, so that the map can say which threads visit it.
    pub(super) fn enlisted(self, map: &ProcessMap) -> *mut Self {
        let members = Box::into_raw(Box::new(self));
        // SAFETY: created above.
        map.enlist(unsafe { &(*members).set });
        members
    }

    /// Frees the list.
    ///
    /// # Safety
    /// The set must have been registered; nobody visits the list or can find it any more.
    pub(super) unsafe fn free(members: *mut Self, map: &ProcessMap) {
        // SAFETY: the caller's promise.
        unsafe {
            map.strike(&(*members).set);
            drop(Box::from_raw(members));
        }
    }
}
