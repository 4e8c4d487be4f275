//! Short replies, which are sent after all connections of a round have been served.
//!
//! A reply wakes its client, which costs more than most commands. If clients are woken one by one,
//! each on a CPU that has just gone to sleep, that cost arises again and again, and their next
//! commands also arrive one by one. If the replies of a round are sent together, the clients wake
//! together, and one wait collects their next commands.

use std::ops::Range;

/// Longer replies are written at once.
pub(crate) const SHORT: usize = 16 << 10;

/// Replies are sent when their total reaches this size in bytes, so that they are still in the
/// cache.
const TOGETHER: usize = 64 << 10;

/// How long the first reply may wait for later ones, plus one command, in nanoseconds.
const DELAY_NS: u64 = 200_000;

/// Replies that wait for the end of a round, with their connections.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    bytes: Vec<u8>,
    /// The indices of connections in the thread's slab, and their parts of `bytes`.
    whose: Vec<(usize, Range<usize>)>,
    /// When the first of them was complete, in nanoseconds.
    since_ns: u64,
}

impl Answers {
    /// Adds the reply of the connection `key`, which was complete at `now_ns`.
    pub fn add(&mut self, key: usize, reply: &[u8], now_ns: u64) {
        if self.whose.is_empty() {
            self.since_ns = now_ns;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(reply);
        self.whose.push((key, start..self.bytes.len()));
    }

    /// Whether the replies should be sent now. `now_ns` is when the newest was complete.
    pub fn are_due(&self, now_ns: u64) -> bool {
        self.bytes.len() >= TOGETHER
            || !self.whose.is_empty() && now_ns.saturating_sub(self.since_ns) >= DELAY_NS
    }

    /// Calls `give` with each reply and the slab index of its connection, and clears the list.
    pub fn drain(&mut self, mut give: impl FnMut(usize, &[u8])) {
        for (key, range) in self.whose.drain(..) {
            give(key, &self.bytes[range]);
        }
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(answers: &mut Answers) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        answers.drain(|key, reply| all.push((key, reply.to_vec())));
        all
    }

    #[test]
    fn replies_are_given_out_in_the_order_they_were_added() {
        let mut answers = Answers::default();
        answers.add(7, b"+OK\r\n", 0);
        answers.add(1, b":1\r\n", 0);
        answers.add(7, b"$-1\r\n", 0);
        let expected = [(7, &b"+OK\r\n"[..]), (1, b":1\r\n"), (7, b"$-1\r\n")];
        let all = drained(&mut answers);
        assert!(
            all.iter()
                .map(|(key, reply)| (*key, &reply[..]))
                .eq(expected)
        );
        assert!(drained(&mut answers).is_empty());
    }

    #[test]
    fn replies_are_due_after_a_short_delay() {
        let mut answers = Answers::default();
        assert!(!answers.are_due(u64::MAX));
        answers.add(0, b"+OK\r\n", 1_000);
        assert!(!answers.are_due(1_000 + DELAY_NS - 1));
        assert!(answers.are_due(1_000 + DELAY_NS));
        drained(&mut answers);
        answers.add(0, &vec![0; TOGETHER], 5);
        assert!(answers.are_due(5));
    }
}
