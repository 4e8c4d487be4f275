//! The part of the check for collections: **an anchor leads to each inner record, and each anchor
//! is valid.**
//!
//! It runs beside writers. What seems to be wrong is looked up again in a transaction, so at one
//! instant, before it is reported.

use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::Slot;

use crate::error::{Corrupt, WriteError};
use crate::index::walk::HashOrder;
use crate::inner::inner_of;
use crate::region::space::KeyspaceId;
use crate::store::check::Report;
use crate::store::components::Store;

impl Store {
    pub(super) fn check_collections(
        &self,
        slot: &Slot<'_>,
        goes_on: &dyn Fn() -> bool,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        let mut at = HashOrder::default();
        while goes_on() {
            let is_over = self.anchors_from(slot, &mut at, |anchor| {
                if let Err(none) = anchor {
                    report.problem(none.to_string());
                }
                Ok(())
            })?;
            if is_over {
                break;
            }
        }
        let mut at = HashOrder::default();
        // While a store is loaded, an anchor may come after its inner records.
        while goes_on() && !self.session().spares_collections.load(Relaxed) {
            let mut strays = Vec::new();
            let is_over = self.hidden_from(slot, KeyspaceId::INNER, &mut at, |loc, record| {
                let Some((id, number)) = inner_of(record.key()) else {
                    let what = "the key of an inner record is none";
                    return Err(Corrupt::at(loc.byte(), what).into());
                };
                let anchor = self.reclaim().anchor_now(id)?;
                if !anchor.is_some_and(|anchor| anchor.leads_to(number)) {
                    strays.push((id, number));
                }
                Ok(())
            })?;
            for (id, number) in strays {
                if self.is_stray(id, number)? {
                    report.problem(format!(
                        "no anchor leads to inner record {number} of collection {id}"
                    ));
                }
            }
            if is_over {
                break;
            }
        }
        Ok(())
    }

    /// Whether an inner record exists to which no anchor leads.
    fn is_stray(&self, id: u64, number: u64) -> Result<bool, WriteError> {
        let stray = self.transaction(None, &[], |t| {
            let is_led_to = match t.anchor(id) {
                Ok(anchor) => anchor.is_some_and(|anchor| anchor.leads_to(number)),
                // It is reported, and leads to nothing that is known.
                Err(WriteError::Corrupt(_)) => true,
                Err(error) => return Err(error),
            };
            Ok::<_, WriteError>(!is_led_to && t.read_inner(id, number, |image| image.is_some())?)
        })?;
        Ok(stray == Some(true))
    }
}
