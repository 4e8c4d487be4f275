//! The resident's side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::Duration;

use mneme_sync::Slot;
use mneme_sys::futex;

use super::mailbox::{MESSAGE, Mailbox, SEATS, SlotHead};
use super::{CallError, Functions, MemberEntry, request_state};
use crate::segment::control;
use crate::{Attachment, EnterError, Section, Space};

/// How long a resident sleeps before it checks by itself whether to stop, and whether a woken
/// resident has died without taking up the work.
const NAP: Duration = Duration::from_millis(100);

/// A process that resides in a space and serves calls. `Send + Sync`: several threads may serve.
pub struct Residence {
    mailbox: Mailbox,
    attachment: Attachment,
    functions: Functions,
}

impl std::fmt::Debug for Residence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Residence")
            .field("attachment", &self.attachment)
            .field("functions", &self.functions)
            .finish_non_exhaustive()
    }
}

impl Residence {
    pub(super) fn new(space: &Space, functions: Functions) -> Result<Self, CallError> {
        let attachment = space.attach()?;
        let mailbox = Mailbox::open_or_make(space)?;
        Ok(Self {
            mailbox,
            attachment,
            functions,
        })
    }

    /// Serves callers in this thread until `stop` is set, which it notices within a tenth of a
    /// second.
    ///
    /// # Errors
    /// [`CallError::Full`]; [`CallError::Slot`]. Errors of a call are returned to the caller.
    pub fn serve(&self, stop: &AtomicBool) -> Result<(), CallError> {
        let slot = control::slot(&self.mailbox.participants)?;
        let bell = self.mailbox.bell()?;
        let heads = self.mailbox.heads()?;
        let mut seats = bell.seats.iter().enumerate();
        let seat = seats.find_map(|(number, seat)| {
            let taken = seat.try_lock(&slot)?.into_inner();
            taken.repaired();
            Some((number, taken))
        });
        let (first, _seat) = seat.ok_or(CallError::Full { max: SEATS })?;
        mneme_sys::fault!("space.serve.seated");
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        // SYNC: pairs with whatever Release store sets it.
        while !stop.load(Acquire) {
            let rung = bell.rung();
            let mut served = false;
            for (index, head) in heads
                .iter()
                .enumerate()
                .cycle()
                .skip(first)
                .take(heads.len())
            {
                if request_state::look(&head.state) == request_state::ASKED {
                    served |= self.serve_one(index, head, &slot, &mut request, &mut reply)?;
                }
            }
            if served {
                continue;
            }
            // The next call often follows at once.
            let mut spins = 0..self.mailbox.spins;
            if !spins.any(|_| {
                std::hint::spin_loop();
                bell.rung() != rung
            }) {
                bell.sleep(rung, NAP);
            }
        }
        Ok(())
    }

    /// Takes a request, if there still is one, and answers it.
    fn serve_one(
        &self,
        index: usize,
        head: &SlotHead,
        slot: &Slot<'_>,
        request: &mut Vec<u8>,
        reply: &mut Vec<u8>,
    ) -> Result<bool, CallError> {
        // The lock may have a dead resident's request, which is not ASKED.
        let Some(held) = head.resident.try_lock(slot) else {
            return Ok(false);
        };
        let held = held.into_inner();
        head.pid.store(std::process::id(), Relaxed);
        if !request_state::take(&head.state) {
            return Ok(false);
        }
        held.repaired();
        mneme_sys::fault!("space.serve.taken");
        self.mailbox.read(index, head.len.load(Relaxed), request)?;
        reply.clear();
        let how = self.run(head.function.load(Relaxed), request, reply);
        mneme_sys::fault!("space.serve.run");
        head.len.store(reply.len() as u64, Relaxed);
        let how = match reply.len() {
            0..=MESSAGE => {
                self.mailbox.write(index, reply)?;
                how
            }
            _ => request_state::TOO_LONG,
        };
        mneme_sys::fault!("space.serve.written");
        let is_awaited = request_state::answer(&head.state, how);
        mneme_sys::fault!("space.serve.answered");
        // Before the caller is woken: it may submit its next request at once.
        drop(held);
        if is_awaited && head.waits.load(SeqCst) != 0 {
            futex::wake(&head.state, 1);
        }
        Ok(true)
    }

    /// Runs a function in a section; returns the resulting state.
    fn run(&self, function: u64, request: &[u8], reply: &mut Vec<u8>) -> u32 {
        let Some(MemberEntry { writes, function }) = self.functions.0.get(&function) else {
            return request_state::UNKNOWN;
        };
        // Segments that the function leaves half changed are poisoned, and its reply is discarded.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if *writes {
                self.attachment
                    .enter(|here: &mut Section<'_>| function(here, request, reply))
            } else {
                self.attachment
                    .read(|here: &mut Section<'_>| function(here, request, reply))
            }
        }));
        match ended {
            Ok(Ok(())) => request_state::DONE,
            Ok(Err(refused)) => {
                refuse(&refused, reply);
                request_state::REFUSED
            }
            Err(_panic) => {
                reply.clear();
                request_state::PANICKED
            }
        }
    }
}

/// Tells the caller why the section could not begin.
fn refuse(error: &EnterError, reply: &mut Vec<u8>) {
    reply.clear();
    reply.extend(error.to_string().into_bytes().into_iter().take(MESSAGE));
}
