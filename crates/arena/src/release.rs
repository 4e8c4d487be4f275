//! A release frees a whole extent, or refuses and changes nothing.
//!
//! Under the arena's lock, a release checks, announces its intent, and writes the descriptors (the
//! head first, after which the extent is gone for everybody), bitmap and tree. If it dies before
//! the head is written, [`Arena::repair`] finishes it from the intent; if it dies later, the next
//! owner of the lock frees the tails without a head.

use crate::ReleaseError;
use crate::arena::Arena;
use crate::descriptor::{State, TAG_BARE};
use crate::frame::{Extent, Frame};
use crate::repair::ArenaIntent;
use mneme_sync::{Lane, Slot};

impl Arena {
    /// Releases an extent, adopted or not. Its frames are free when this returns. The tenant must
    /// have unlinked it before, and waited until nobody can read it any more. The memory's content
    /// is not touched.
    ///
    /// # Errors
    /// The argument is not an extent of this arena: it was released before, is a part of one, or is
    /// out of range; see [`ReleaseError`]. Nothing has changed then. (If an extent was released and
    /// its place claimed again with the same length, that is not noticed.)
    pub fn release(&self, slot: &Slot<'_>, extent: Extent) -> Result<(), ReleaseError> {
        let Some(range) = self.range_of(extent) else {
            return Err(ReleaseError::Foreign {
                extent,
                first: self.geometry.first_frame,
                last: self.end_frame() - 1,
            });
        };
        let guard = self.lock::<ReleaseError>(slot)?;
        let table = self.table()?;
        let summary = self.summary()?;
        let Some(run) = table.run_of(range.start) else {
            let status = table
                .get(range.start)
                .and_then(|descriptor| descriptor.status());
            return Err(match status {
                // After its release it may have been lent.
                Some(status) if status.state == State::Free || status.state.is_lent() => {
                    ReleaseError::NotClaimed { extent }
                }
                _ => ReleaseError::Damaged {
                    frame: extent.start,
                },
            });
        };
        if run.range() != range {
            let actual = Extent {
                start: Frame(run.head),
                frames: run.frames,
            };
            return Err(ReleaseError::Mismatch {
                given: extent,
                actual,
            });
        }
        let generation = run.status.generation;

        let intent = slot.intent(Lane::Arena);
        intent.begin(
            ArenaIntent::Release as u16,
            &[
                u64::from(range.start),
                u64::from(extent.frames),
                u64::from(generation),
            ],
        );
        mneme_sys::fault!("arena.release.intent");
        table.free_run(range.clone(), generation, false, || {
            mneme_sys::fault!("arena.release.descriptor")
        });
        summary.mark(range.clone(), true);
        if let Some(lending) = self.lending()?
            && run.status.tag != TAG_BARE
        {
            lending.mark_idle(&range, true);
        }
        mneme_sys::fault!("arena.release.summary");
        summary.refresh(range);
        mneme_sys::fault!("arena.release.refreshed");
        drop(guard);
        mneme_sys::fault!("arena.release.unlocked");
        intent.clear();
        mneme_sys::fault!("arena.release.cleared");
        Ok(())
    }
}
