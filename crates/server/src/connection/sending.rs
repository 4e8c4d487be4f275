//! Sending replies: as much as the socket accepts at once; the rest is kept until the socket is
//! writable.

use std::io::{self, Write};
use std::sync::Arc;

use super::{After, Broken, Connection, Output, SEND};
use crate::counters::Counters;
use crate::event_loop::SHORT;
use crate::gate::{Admission, ReplyGate};
use crate::shared::Shared;

impl Connection {
    /// Sends a reply of the last turn, and keeps what the socket does not accept.
    pub fn answer(&mut self, shared: &Shared, reply: &[u8], counters: &Counters) -> After {
        let sent = match self.write(reply, shared, counters) {
            Ok(sent) => sent,
            Err(broken) => return self.give_up(&broken, shared, counters),
        };
        if sent < reply.len() {
            self.output.bytes.extend_from_slice(&reply[sent..]);
            self.show_buffers();
            self.count_memory(shared);
        } else if self.client.closing && !self.stream.has_unsent() {
            return After::Close;
        }
        After::Wait
    }

    /// Sends messages to the client, as far as the socket accepts them. The others stay in the
    /// queue, where their bytes are shared with other recipients.
    pub(super) fn send_pushes(
        &mut self,
        shared: &Shared,
        counters: &Counters,
    ) -> Result<(), Broken> {
        if !self.client.is_pushed_to || self.client.closing && !self.finishing {
            return Ok(());
        }
        let entry = Arc::clone(&self.client.entry);
        let limit = shared.settings.output_limit(self.client.class()).hard;
        // A message that exceeds the limit by itself is not even copied.
        while !entry.pushes.is_empty()
            && self.output.len() < SEND
            && entry.pushes.next_bytes() < limit
        {
            let unsent = self.output.len();
            let held = shared.gate().is_some_and(ReplyGate::holds);
            let most = self.output.bytes.len() + (SEND - unsent);
            self.client.take_pushes(&mut self.output.bytes, most);
            self.park(shared, unsent, held);
            if entry.pushes.is_empty() && self.output.sent == 0 && self.output.len() <= SHORT {
                break;
            }
            self.send(shared, counters)?;
            if !self.writable {
                break;
            }
        }
        let unsent = self.unsent();
        if unsent >= limit {
            tracing::warn!(
                client = entry.id,
                unsent,
                "a client's unread messages exceed the output limit of its class; cutting it off"
            );
            return Err(Broken::OutputBuffer);
        }
        Ok(())
    }

    /// The number of bytes that were not sent yet.
    fn unsent(&self) -> usize {
        self.output.len() + self.client.entry.pushes.bytes()
    }

    /// How long its unsent output may stay as large as it is, in milliseconds; `None`: without a
    /// limit.
    pub fn soft_limit_ms(&self, shared: &Shared) -> Option<u64> {
        let unsent = self.unsent();
        if unsent == 0 {
            return None;
        }
        let limit = shared.settings.output_limit(self.client.class());
        (unsent >= limit.soft).then_some(limit.soft_ms)
    }

    /// Sends what the socket accepts and the gate admits.
    pub(super) fn send(&mut self, shared: &Shared, counters: &Counters) -> Result<(), Broken> {
        let unsent = std::mem::take(&mut self.output.bytes);
        let written = self.write(&unsent[self.output.sent..], shared, counters);
        self.output.bytes = unsent;
        self.output.sent += written?;
        let Output { bytes, sent } = &mut self.output;
        if *sent == bytes.len() {
            bytes.clear();
            *sent = 0;
            self.pause = self.usual_pause;
        } else if *sent >= SEND.max(bytes.len() / 2) {
            bytes.drain(..*sent);
            *sent = 0;
        }
        Ok(())
    }

    /// Writes as much of `bytes` as the gate admits and the socket accepts; returns how much. All
    /// bytes of replies are sent by this function.
    fn write(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        counters: &Counters,
    ) -> Result<usize, Broken> {
        let bytes = &bytes[..self.admitted(bytes.len(), shared)?];
        let mut sent = 0;
        if self.writable && self.stream.has_unsent() {
            match self.stream.flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Err(error.into());
                }
                _ => self.writable = !self.stream.has_unsent(),
            }
        }
        while self.writable && sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => return Err(Broken::Socket(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    sent += written;
                    self.parked.leave(written);
                    self.client.active_ms = self.now_ms;
                    counters.writes.add(1);
                    counters.output.add(written as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.writable &= !self.stream.has_unsent();
        Ok(sent)
    }

    /// How many of `unsent` bytes may be sent.
    #[inline]
    fn admitted(&mut self, unsent: usize, shared: &Shared) -> Result<usize, Broken> {
        if self.parked.awaited().is_some()
            && let Some(gate) = shared.gate()
            && self.parked.look(gate) == Admission::Never
            && self.parked.free(unsent) < unsent
        {
            return Err(Broken::NotDurable);
        }
        Ok(self.parked.free(unsent))
    }

    /// Registers for writability exactly while replies wait for it.
    pub fn update_interest(
        &mut self,
        registry: &mio::Registry,
        token: mio::Token,
    ) -> io::Result<()> {
        let waits = !self.writable;
        if waits != self.reports_writable {
            self.stream.reregister(registry, token, waits)?;
            self.reports_writable = waits;
        }
        Ok(())
    }
}
