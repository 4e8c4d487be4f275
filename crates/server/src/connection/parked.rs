//! Which parts of a connection's output wait at the [gate](crate::gate), and for which positions.

use std::collections::VecDeque;

use crate::gate::{Admission, ReplyGate};

/// With more marks than this, a reply shares the mark of the reply before it, which then waits for
/// the later position: a client that sends an endless pipeline takes no memory for marks.
const MARKS: usize = 64;

/// The number of marks for which an idle connection keeps memory.
const KEPT: usize = 4;

/// A place in the output from which on it waits for a position.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// The number of bytes of the connection's output before it.
    from: u64,
    position: u64,
}

/// The parts of a connection's output that must not be sent yet.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    /// The number of bytes sent since the connection began.
    left: u64,
    /// In ascending order, both of bytes and of positions.
    marks: VecDeque<Mark>,
}

impl Parked {
    /// The position that the first waiting reply waits for.
    #[inline]
    pub fn awaited(&self) -> Option<u64> {
        self.marks.front().map(|mark| mark.position)
    }

    /// Makes the output after `unsent` more bytes wait for `position`.
    pub fn wait(&mut self, unsent: usize, position: u64) {
        let from = self.left + unsent as u64;
        let is_full = self.marks.len() >= MARKS;
        match self.marks.back_mut() {
            Some(last) if is_full || last.position >= position => {
                last.position = last.position.max(position);
            }
            _ => self.marks.push_back(Mark { from, position }),
        }
    }

    /// Checks which replies the gate admits.
    pub fn look(&mut self, gate: &dyn ReplyGate) -> Admission {
        let admission = gate.admission();
        while self
            .marks
            .front()
            .is_some_and(|mark| admission.admits(mark.position))
        {
            self.marks.pop_front();
        }
        if self.marks.is_empty() && self.marks.capacity() > KEPT {
            self.marks = VecDeque::new();
        }
        admission
    }

    /// How many of the `unsent` bytes may be sent, according to the last [look](Self::look).
    #[inline]
    pub fn free(&self, unsent: usize) -> usize {
        match self.marks.front() {
            None => unsent,
            Some(mark) => {
                let free = mark.from.saturating_sub(self.left);
                usize::try_from(free).map_or(unsent, |free| free.min(unsent))
            }
        }
    }

    /// Records that this many bytes were sent.
    #[inline]
    pub fn leave(&mut self, bytes: usize) {
        self.left += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct At(AtomicU64);

    impl ReplyGate for At {
        fn holds(&self) -> bool {
            true
        }

        fn awaited(&self, _: bool) -> Option<u64> {
            None
        }

        fn admission(&self) -> Admission {
            match self.0.load(Ordering::Relaxed) {
                u64::MAX => Admission::All,
                durable => Admission::UpTo(durable),
            }
        }

        fn ask(&self) {}

        fn refusal(&self) -> Option<&'static str> {
            None
        }
    }

    #[test]
    fn waiting_replies_leave_in_order_as_their_positions_become_durable() {
        let gate = At(AtomicU64::new(0));
        let mut parked = Parked::default();
        parked.leave(1000);
        // 10 bytes are free, 20 wait for position 5, 30 for 9.
        parked.wait(10, 5);
        parked.wait(30, 9);
        parked.wait(40, 9);
        parked.look(&gate);
        assert_eq!((parked.free(60), parked.awaited()), (10, Some(5)));
        parked.leave(10);
        assert_eq!(parked.free(50), 0);
        gate.0.store(5, Ordering::Relaxed);
        assert_eq!(parked.free(50), 0, "it has not looked");
        parked.look(&gate);
        assert_eq!((parked.free(50), parked.awaited()), (20, Some(9)));
        gate.0.store(u64::MAX, Ordering::Relaxed);
        parked.look(&gate);
        assert_eq!((parked.free(50), parked.awaited()), (50, None));
    }

    #[test]
    fn marks_are_bounded_and_what_shares_one_waits_for_the_latest() {
        let gate = At(AtomicU64::new(0));
        let mut parked = Parked::default();
        for reply in 0..10 * MARKS {
            parked.wait(reply, reply as u64 + 1);
        }
        assert_eq!(parked.marks.len(), MARKS);
        gate.0.store(10 * MARKS as u64 - 1, Ordering::Relaxed);
        parked.look(&gate);
        assert_eq!(parked.free(10 * MARKS), MARKS - 1);
        gate.0.store(10 * MARKS as u64, Ordering::Relaxed);
        parked.look(&gate);
        assert_eq!(parked.free(10 * MARKS), 10 * MARKS);
    }
}
