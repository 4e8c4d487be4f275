//! The caller's side.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use mneme_sync::{Guard, Slot};
use mneme_sys::{Clock, SystemClock, futex};

use super::mailbox::{MESSAGE, Mailbox, SLOTS, SlotHead};
use super::{CallError, number, request_state};
use crate::Space;
use crate::segment::control;

/// The first and the longest interval at which a waiting caller checks whether the resident is
/// alive.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(20);

/// A space's mailbox, opened by this process. `Send + Sync`; a forked child must open it again.
pub struct Calls(Mailbox);

/// A slot of the mailbox. Its thread owns it until this is dropped or the process dies.
pub struct Caller<'a> {
    mailbox: &'a Mailbox,
    index: usize,
    head: &'a SlotHead,
    slot: Slot<'a>,
    _held: Guard<'a>,
    /// Makes the type `!Send`: the slot belongs to a thread.
    here: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("slot", &self.index)
            .finish_non_exhaustive()
    }
}

impl Calls {
    pub(super) fn open(space: &Space) -> Result<Self, CallError> {
        // The mailbox belongs to another space, or the space is gone.
        space.info()?;
        Mailbox::open(space)?.map(Self).ok_or(CallError::NoResident)
    }

    /// Takes a slot for the calling thread; a slot that a dead caller left is cleared first.
    ///
    /// # Errors
    /// [`CallError::Busy`]; [`CallError::Slot`].
    pub fn caller(&self) -> Result<Caller<'_>, CallError> {
        let slot = control::slot(&self.0.participants)?;
        let heads = self.0.heads()?;
        // Tries the free slots first, because checking whether an owner is alive costs more.
        for ask in [false, true] {
            for (index, head) in heads.iter().enumerate() {
                let held = match ask {
                    false => head.caller.try_lock_free(&slot),
                    true => head.caller.try_lock(&slot),
                };
                let Some(held) = held else { continue };
                let held = held.into_inner();
                mneme_sys::fault!("space.call.claimed");
                if is_cleared(head, &slot) {
                    held.repaired();
                    return Ok(Caller {
                        mailbox: &self.0,
                        index,
                        head,
                        slot,
                        _held: held,
                        here: PhantomData,
                    });
                }
            }
        }
        Err(CallError::Busy { max: SLOTS })
    }
}

/// Clears what the last caller left; `false` if a living resident is still working on it.
fn is_cleared(head: &SlotHead, slot: &Slot<'_>) -> bool {
    if request_state::give_up(&head.state) == request_state::ABANDONED {
        // The resident holds this lock from before it takes a request until after its answer.
        let Some(dead) = head.resident.try_lock(slot) else {
            return false;
        };
        let dead = dead.into_inner();
        request_state::clear(&head.state);
        dead.repaired();
    }
    request_state::clear(&head.state);
    true
}

impl Caller<'_> {
    /// Runs a function in a process that resides in the space, and returns its reply. Takes some
    /// microseconds, most of them for waking the other process.
    ///
    /// # Errors
    /// [`CallError::NoResident`], [`Died`](CallError::Died), [`Stalled`](CallError::Stalled) after
    /// `timeout`; [`Unknown`](CallError::Unknown), [`Panicked`](CallError::Panicked),
    /// [`Refused`](CallError::Refused), [`TooLong`](CallError::TooLong). After `Stalled` this slot
    /// returns `Busy` until the resident has answered, and can then be used again.
    pub fn call(
        &mut self,
        function: &str,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let mut reply = Vec::new();
        self.call_into(function, request, &mut reply, timeout)?;
        Ok(reply)
    }

    /// As [`call`](Self::call), with the reply written to a vector whose capacity is reused.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_into(
        &mut self,
        function: &str,
        request: &[u8],
        reply: &mut Vec<u8>,
        timeout: Duration,
    ) -> Result<(), CallError> {
        if request.len() > MESSAGE {
            return Err(too_long(request.len()));
        }
        if request_state::look(&self.head.state) != request_state::FREE
            && !is_cleared(self.head, &self.slot)
        {
            return Err(CallError::Busy { max: 1 });
        }
        if !self.mailbox.seems_served()? {
            return Err(CallError::NoResident);
        }
        self.mailbox.write(self.index, request)?;
        self.head.function.store(number(function), Relaxed);
        self.head.len.store(request.len() as u64, Relaxed);
        mneme_sys::fault!("space.call.written");
        request_state::ask(&self.head.state);
        mneme_sys::fault!("space.call.asked");
        self.mailbox.bell()?.ring(false);
        let answer = self.wait(timeout)?;
        mneme_sys::fault!("space.call.answered");
        let len = self.head.len.load(Relaxed);
        if matches!(answer, request_state::DONE | request_state::REFUSED) {
            self.mailbox.read(self.index, len, reply)?;
        }
        request_state::clear(&self.head.state);
        match answer {
            request_state::DONE => Ok(()),
            request_state::PANICKED => Err(CallError::Panicked),
            request_state::REFUSED => Err(CallError::Refused {
                why: String::from_utf8_lossy(reply).into_owned(),
            }),
            request_state::TOO_LONG => Err(too_long(usize::try_from(len).unwrap_or(usize::MAX))),
            _ => Err(CallError::Unknown {
                name: function.to_owned(),
            }),
        }
    }

    /// Waits for an answer.
    fn wait(&self, timeout: Duration) -> Result<u32, CallError> {
        let state = &self.head.state;
        let pending = |seen| matches!(seen, request_state::ASKED | request_state::TAKEN);
        for _ in 0..self.mailbox.spins {
            let seen = request_state::look(state);
            if !pending(seen) {
                return Ok(seen);
            }
            std::hint::spin_loop();
        }
        let began = SystemClock.now_ns();
        let waited = || Duration::from_nanos(SystemClock.now_ns().saturating_sub(began));
        let mut slice = FIRST;
        // SYNC: SeqCst, as are the resident's exchange of the state and its load of `waits`: either
        // the resident sees that this thread sleeps, or this thread sees its answer.
        self.head.waits.store(1, SeqCst);
        let answer = loop {
            let seen = state.load(SeqCst);
            if !pending(seen) {
                break Ok(seen);
            }
            let left = timeout.saturating_sub(waited());
            if left.is_zero() {
                break self.give_up(waited());
            }
            let asleep_at = waited();
            futex::wait(state, seen, slice.min(left));
            if request_state::look(state) == seen && waited() - asleep_at >= slice.min(left) {
                // Nothing happened for a whole interval.
                match self.judge(seen) {
                    Ok(None) => {}
                    Ok(Some(answered)) => break Ok(answered),
                    Err(ended) => break Err(ended),
                }
                slice = (slice * 2).min(LONGEST);
            }
        };
        self.head.waits.store(0, Relaxed);
        answer
    }

    /// Gives the call up at its timeout, unless the answer has arrived just now.
    fn give_up(&self, waited: Duration) -> Result<u32, CallError> {
        let pid = self.head.pid.load(Relaxed);
        match request_state::give_up(&self.head.state) {
            request_state::FREE if !self.mailbox.is_served(&self.slot)? => {
                Err(CallError::NoResident)
            }
            request_state::FREE => Err(CallError::Stalled { pid: 0, waited }),
            request_state::ABANDONED => Err(CallError::Stalled { pid, waited }),
            answered => Ok(answered),
        }
    }

    /// The answer, if it has arrived just now; `None` to go on waiting.
    ///
    /// # Errors
    /// The process that should answer is dead, or there is none.
    fn judge(&self, seen: u32) -> Result<Option<u32>, CallError> {
        if seen == request_state::ASKED {
            // The resident that was woken may have died or been stopped.
            self.mailbox.bell()?.ring(true);
            if self.mailbox.is_served(&self.slot)? {
                return Ok(None);
            }
            return match request_state::give_up(&self.head.state) {
                request_state::FREE => Err(CallError::NoResident),
                _ => Ok(None),
            };
        }
        let pid = self.head.pid.load(Relaxed);
        let Some(dead) = self.head.resident.try_lock(&self.slot) else {
            return Ok(None);
        };
        let dead = dead.into_inner();
        // The lock is held, so no resident is working on the request. It may have answered before
        // it died.
        let ended = match request_state::look(&self.head.state) {
            request_state::TAKEN => {
                request_state::clear(&self.head.state);
                Err(CallError::Died { pid })
            }
            answered => Ok(Some(answered)),
        };
        dead.repaired();
        ended
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        // A resident that runs the request clears the slot itself.
        if request_state::give_up(&self.head.state) > request_state::ABANDONED {
            request_state::clear(&self.head.state);
        }
    }
}

fn too_long(len: usize) -> CallError {
    CallError::TooLong { len, max: MESSAGE }
}
