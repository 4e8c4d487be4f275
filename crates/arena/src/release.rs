//! A release gives back an extent as a whole, or refuses and changes nothing.
//!
//! Under the arena's lock: look, intent, descriptors (the head first: from then on the extent is
//! gone for everybody), bitmap and tree. Dead before the head, the release is finished by
//! [`Arena::repair`] from the intent; dead later, by the next owner of the lock, to whom the tails
//! without a head are free.

use crate::ReleaseError;
use crate::arena::Arena;
use crate::descriptor::{State, TAG_BARE};
use crate::frame::{Extent, Frame};
use crate::repair::ArenaIntent;
use mneme_sync::{Lane, Slot};

impl Arena {
    /// Gives back an extent, adopted or not. Its frames are free when this returns: the tenant has
    /// unlinked it before, and waited until nobody can read it any more. The memory's content is
    /// not touched.
    ///
    /// # Errors
    /// What is given is not an extent of this arena: released before, a part of one, or out of
    /// range; see [`ReleaseError`]. Nothing has changed then. (An extent released before whose
    /// place was claimed anew, in the same length, is not distinguished.)
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
                // What was released may have been lent since.
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
