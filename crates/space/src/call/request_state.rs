//! The states of a request, and which side may change which:
//!
//! ```text
//!             caller                 resident                 caller
//!   FREE ---------------> ASKED ---------------> TAKEN --------------> ...
//!    ^ ^                    |                      | |
//!    | +---- caller --------+     caller, out of   | +-- resident --> DONE, PANICKED, ... -- caller --> FREE
//!    |       (withdraws)          timeout, or dead|
//!    +---------- resident, in the end -- ABANDONED-+
//! ```
//! The caller holds the slot's lock `caller` throughout; the resident holds its lock `resident`
//! from before TAKEN until after its answer. So a process that gets the lock `caller` of a dead
//! caller clears what that caller left, and one that gets the lock `resident` while the state is
//! TAKEN or ABANDONED knows that the resident is dead. Every step from a state that the other side
//! may leave at the same time is an exchange.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};

/// There is no request.
pub(super) const FREE: u32 = 0;
/// There is a request.
pub(super) const ASKED: u32 = 1;
/// A resident runs the request.
pub(super) const TAKEN: u32 = 2;
/// A resident runs the request, and no caller waits for the answer.
pub(super) const ABANDONED: u32 = 3;
/// There is a reply.
pub(super) const DONE: u32 = 4;
/// The function panicked.
pub(super) const PANICKED: u32 = 5;
/// The resident has no function of that name.
pub(super) const UNKNOWN: u32 = 6;
/// The space could not be entered; the reply says why.
pub(super) const REFUSED: u32 = 7;
/// The reply is too long; its length is recorded.
pub(super) const TOO_LONG: u32 = 8;

/// The caller submits its request, which it has already written.
pub(super) fn ask(state: &AtomicU32) {
    // SYNC: pairs with the exchange in `take`. SeqCst, so that it precedes the check for sleepers,
    // as the `Bell` requires.
    state.store(ASKED, SeqCst);
}

/// A resident takes the request, if there is one.
pub(super) fn take(state: &AtomicU32) -> bool {
    // SYNC: pairs with the store in `ask`, which makes the request visible.
    state
        .compare_exchange(ASKED, TAKEN, AcqRel, Acquire)
        .is_ok()
}

/// The resident answers the request that it took. `false`: the caller no longer waits, and the slot
/// is free.
pub(super) fn answer(state: &AtomicU32, how: u32) -> bool {
    // SYNC: pairs with the Acquire load in `look`, which makes the reply visible. SeqCst, so that
    // it precedes the check for sleepers.
    if state.compare_exchange(TAKEN, how, SeqCst, Acquire).is_ok() {
        return true;
    }
    // The state is ABANDONED, which only the resident changes, or a process that knows that the
    // resident is dead.
    state.store(FREE, SeqCst);
    false
}

/// The state as the caller sees it.
pub(super) fn look(state: &AtomicU32) -> u32 {
    // SYNC: pairs with the exchange in `answer`.
    state.load(Acquire)
}

/// The caller, or a process that clears up after a dead one, gives the request up. Returns what is
/// left of it: FREE; ABANDONED, if a living resident runs it; or an answer that has just arrived,
/// which stays.
pub(super) fn give_up(state: &AtomicU32) -> u32 {
    // SYNC: as in `take` and `answer`.
    let withdrawn = state.compare_exchange(ASKED, FREE, AcqRel, Acquire);
    let Err(now) = withdrawn else {
        return FREE;
    };
    if now != TAKEN {
        return now;
    }
    match state.compare_exchange(TAKEN, ABANDONED, AcqRel, Acquire) {
        Ok(_) => ABANDONED,
        Err(answered) => answered,
    }
}

/// Frees the slot after an answer or a death.
pub(super) fn clear(state: &AtomicU32) {
    // SYNC: the slot's next use is under the same lock, or the resident is dead.
    state.store(FREE, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every order of a caller's and a resident's steps, each of which is one exchange or
    /// store.
    #[test]
    fn in_every_order_the_caller_gets_an_answer_or_gives_up_and_the_slot_is_free_again() {
        // The caller gives up before, between, or after the resident's two steps.
        for when in 0..3 {
            let state = AtomicU32::new(FREE);
            ask(&state);
            let mut left = None;
            let mut taken = false;
            for step in 0..3 {
                if step == when {
                    left = Some(give_up(&state));
                }
                match step {
                    0 => taken = take(&state),
                    1 if taken => {
                        let is_awaited = answer(&state, DONE);
                        assert_eq!(is_awaited, left.is_none(), "{when}");
                    }
                    _ => {}
                }
            }
            match left {
                // Withdrawn, or abandoned and then freed by the resident.
                Some(FREE) => assert!(!taken),
                Some(ABANDONED) => assert!(taken),
                Some(DONE) => clear(&state),
                other => panic!("{other:?}"),
            }
            assert_eq!(look(&state), FREE, "{when}");
        }
    }

    #[test]
    fn only_one_of_two_residents_takes_a_request() {
        let state = AtomicU32::new(FREE);
        assert!(!take(&state));
        ask(&state);
        let taken = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| take(&state)));
            threads
                .into_iter()
                .map(|thread| u32::from(thread.join().unwrap()))
                .sum::<u32>()
        });
        assert_eq!(taken, 1);
    }
}
