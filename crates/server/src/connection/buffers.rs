//! The buffers of a connection: borrowed from its thread for one turn, its own only while a command
//! is incomplete or replies are unsent.

use super::{Connection, READ};
use crate::client_memory;
use crate::event_loop::Answers;
use crate::resp::Batch;
use crate::shared::Shared;

/// The largest buffer that is kept for the next turn, or the next connection.
const KEEP: usize = 1 << 20;

/// Bytes received and not yet executed: `bytes[..filled]`. The rest is initialised free space.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    pub(super) filled: usize,
}

/// Bytes to be sent: `bytes[sent..]`.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    pub(super) sent: usize,
}

/// The buffers that a thread lends to the connection that it serves.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    input: Input,
    output: Output,
    pub(super) batch: Batch,
    pub answers: Answers,
}

fn cleared(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

impl Connection {
    /// Takes the thread's buffers, unless it has large ones of its own that are in use.
    pub(super) fn borrow(&mut self, scratch: &mut Scratch) {
        if self.input.bytes.len() < READ {
            let rest = std::mem::replace(&mut self.input, std::mem::take(&mut scratch.input));
            let len = self.input.bytes.len().max(rest.filled + READ);
            self.input.bytes.resize(len, 0);
            self.input.bytes[..rest.filled].copy_from_slice(&rest.bytes[..rest.filled]);
            self.input.filled = rest.filled;
        }
        if self.output.len() == 0 {
            self.output = std::mem::take(&mut scratch.output);
        }
    }

    /// Gives back the buffers that it does not need. If little is left, absolutely or relative to
    /// the buffer, it keeps a copy of that instead of the thread's buffer.
    pub(super) fn give_back(&mut self, scratch: &mut Scratch) {
        let filled = self.input.filled;
        if filled < READ || filled < self.input.bytes.len() / 4 {
            let rest = Input {
                bytes: self.input.bytes[..filled].to_vec(),
                filled,
            };
            let mut large = std::mem::replace(&mut self.input, rest);
            large.filled = 0;
            if large.bytes.len() <= KEEP {
                scratch.input = large;
            }
        }
        let unsent = self.output.len();
        if unsent <= self.output.bytes.capacity() / 2 {
            let rest = Output {
                bytes: self.output.bytes[self.output.sent..].to_vec(),
                sent: 0,
            };
            let mut large = std::mem::replace(&mut self.output, rest);
            (large.bytes, large.sent) = (cleared(large.bytes), 0);
            let before = scratch.output.bytes.capacity();
            if (before..=KEEP).contains(&large.bytes.capacity()) {
                scratch.output = large;
            }
        }
    }

    /// Counts the client's memory, and evicts clients if it takes more than before and all clients
    /// together take too much.
    pub(super) fn count_memory(&mut self, shared: &Shared) {
        let bytes = self.client.entry.bytes();
        let has_grown = bytes > self.counted_bytes;
        self.recount(shared, bytes);
        if has_grown {
            client_memory::evict(shared);
        }
    }

    pub(super) fn recount(&mut self, shared: &Shared, bytes: usize) {
        let before = std::mem::replace(&mut self.counted_bytes, bytes);
        if before != bytes {
            self.client.entry.memory.set(bytes);
            let sum = &shared.threads[self.client.thread].client_memory;
            sum.set((sum.get() + bytes).saturating_sub(before));
        }
    }

    /// Publishes the size of the buffers that it has kept.
    pub(super) fn show_buffers(&self) {
        let (buffers, unsent) = (&self.client.entry.buffers, self.output.len());
        buffers.query.set(self.input.filled);
        buffers
            .query_free
            .set(self.input.bytes.len() - self.input.filled);
        buffers.parsed.set(self.parser.kept_bytes());
        buffers.unsent.set(unsent);
        buffers.output.set(self.output.bytes.capacity());
        if unsent > buffers.output_peak.get() {
            buffers.output_peak.set(unsent);
        }
    }
}
