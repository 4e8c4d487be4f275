//! One connection: bytes in, commands executed, bytes out, never waiting.
//!
//! An idle connection holds no buffers: it borrows its thread's for one turn, and keeps buffers of
//! its own only while a command is incomplete or replies are unsent. A client that does not read
//! its replies is no longer read from once they exceed a bound
//! ([`client-output-buffer-pause`](crate::settings::Key::OutputPause)), so that its own socket
//! fills up. The bound doubles for a client that goes on sending although it has read nothing for a
//! second.

mod buffers;
mod parked;
mod sending;

use std::fmt::Display;
use std::io::{self, Read};

use crate::client::Client;
use crate::client_memory;
use crate::counters::Counters;
use crate::event_loop::SHORT;
use crate::execute::{Executor, OutputBounds};
use crate::gate::ReplyGate;
use crate::listen::ClientSocket;
use crate::pause::Pause;
use crate::resp::{Batch, Parser, ProtocolError, Reply, Stop};
use crate::settings::Key;
use crate::shared::Shared;

pub(crate) use buffers::Scratch;
use buffers::{Input, Output};
pub(crate) use parked::Parked;

/// The number of bytes requested from a socket at once. Thirty-two connections' pipelines of 32
/// commands of 50 bytes fit the cache.
const READ: usize = 64 << 10;

/// Reads of one connection in one turn, so that a client that sends without end does not starve the
/// others.
const READS_PER_TURN: usize = 4;

/// Replies are sent once they are this long, even if more commands of the same read wait.
const SEND: usize = 256 << 10;

/// Nanoseconds for which the commands of one client are executed before others are served.
pub(crate) const SLICE_NS: u64 = 1_000_000;

/// Bounds for a client that has not authenticated, so that strangers cannot make the server grow:
/// bytes read from its socket at once, bytes of an incomplete command, and unsent bytes beyond
/// which it is not read from. Together they are less than 64 KiB.
mod stranger {
    pub const READ: usize = 16 << 10;
    pub const QUERY: usize = 32 << 10;
    pub const UNSENT: usize = 4 << 10;
}

/// How long a client that still sends may fail to read before it is read from nevertheless.
const STALL_MS: u64 = 1_000;

/// How long the next command of a peer that has closed its side may wait, for instance for the end
/// of a pause, in milliseconds. Nearly every such client has left, and does not expect its command
/// to be executed later.
const HALF_CLOSED_MS: u64 = 1_000;

/// How long a command of such a peer that has begun, and changes nothing, may continue.
const HALF_CLOSED_UNFINISHED_MS: u64 = 10_000;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: ClientSocket,
    pub client: Client,
    parser: Parser,
    input: Input,
    output: Output,
    /// The part of the output that waits until the store is durable.
    pub parked: Parked,
    /// Its entry in its thread's set of connections that wait at the gate, while it is there.
    pub parked_at: Option<u64>,
    /// Whether the socket may have bytes to read. Readiness is reported only once.
    pub readable: bool,
    /// Whether the peer has closed its side: the end of the stream is not reported again.
    pub ended: bool,
    /// Whether the peer has closed both sides, or reset the connection.
    pub gone: bool,
    /// When its TLS handshake is aborted, while it is in progress, in milliseconds.
    pub handshake_ends_ms: Option<u64>,
    /// Its peer has closed its side: when the connection is closed if its command still waits, in
    /// milliseconds.
    pub leaves_ms: Option<u64>,
    /// When it is closed because its unsent output exceeds the soft limit, in milliseconds.
    pub slow_ends_ms: Option<u64>,
    /// Whether the socket may accept bytes.
    pub writable: bool,
    /// Whether it is registered for writability.
    reports_writable: bool,
    /// Whether `input` may hold a complete command.
    backlog: bool,
    /// The number of unsent bytes beyond which it is not read from.
    pause: usize,
    /// The value of `pause` for a client that has read everything.
    usual_pause: usize,
    /// A number of unsent bytes, and since when there are that many, in milliseconds.
    stuck: (usize, u64),
    /// Whether it is closed after waiting replies were sent, because the server stops.
    finishing: bool,
    /// Whether it is queued for its next turn.
    pub queued: bool,
    /// Whether its next command waits until the change feed has space.
    pub awaits_space: bool,
    /// Whether its next command waits for other threads' sections.
    pub awaits_sections: bool,
    /// When its command's wait for a key times out, in milliseconds.
    pub waits_until_ms: Option<u64>,
    /// Its entry in its thread's queue of held connections, while it is there.
    pub held_at: Option<(Pause, u64)>,
    /// Its part of its thread's sum of client memory.
    counted_bytes: usize,
    /// The time of its last turn.
    now_ms: u64,
    /// When its last command ended, in nanoseconds.
    pub done_ns: u64,
    /// When its time slice ends, in nanoseconds; 0 before the first command of a turn.
    slice_end_ns: u64,
    /// Whether its time slice has ended.
    slice_is_over: bool,
}

/// Re-encodes the inline command of `batch`, and appends what follows `consumed` in their `input`,
/// to be parsed again. It has been unescaped in place, and must not be unescaped twice.
fn unexecuted(batch: &Batch, input: &[u8], consumed: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(input.len());
    batch.command(0, input).encode(&mut bytes);
    bytes.extend_from_slice(input.get(consumed..).unwrap_or_default());
    bytes
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing more to do until the socket is ready.
    Wait,
    /// There is more to do; other connections come first.
    Again,
    /// As `Wait`, and the client is not read from until it has read.
    Paused,
    /// As `Wait`, and the client's next command waits for the end of a pause.
    Held,
    /// As `Wait`, and the client's command waits for a key.
    Asleep,
    /// As `Wait`, and the client's next command waits until the change feed has space.
    NoSpace,
    /// As `Wait`, and the client's next command waits for other threads' sections.
    Soon,
    /// The connection must be closed.
    Close,
}

/// Why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("its socket failed: {0}")]
    Socket(#[from] io::Error),
    #[error("its command exceeds the query buffer's limit")]
    QueryBuffer,
    #[error("its unsent replies exceed the output buffer's limit")]
    OutputBuffer,
    #[error("what its replies tell of cannot become durable")]
    NotDurable,
}

impl Connection {
    pub fn new(stream: ClientSocket, client: Client, shared: &Shared) -> Self {
        let mut parser = Parser::new(shared.settings.limits());
        parser.set_trusted(client.authenticated);
        let pause = shared.settings.count(Key::OutputPause);
        Self {
            stream,
            client,
            parser,
            input: Input::default(),
            output: Output::default(),
            parked: Parked::default(),
            parked_at: None,
            readable: true,
            ended: false,
            gone: false,
            handshake_ends_ms: None,
            leaves_ms: None,
            slow_ends_ms: None,
            writable: true,
            reports_writable: false,
            backlog: false,
            pause,
            usual_pause: pause,
            stuck: (0, 0),
            finishing: false,
            queued: false,
            awaits_space: false,
            awaits_sections: false,
            waits_until_ms: None,
            held_at: None,
            counted_bytes: 0,
            now_ms: 0,
            done_ns: 0,
            slice_end_ns: 0,
            slice_is_over: false,
        }
    }

    /// Sends unsent output, reads, executes and sends again, as far as possible without waiting. A
    /// short reply that remains is sent with those of the thread, by [`answer`](Self::answer).
    /// `now_ms` is a recent time.
    pub fn turn(
        &mut self,
        shared: &Shared,
        counters: &Counters,
        scratch: &mut Scratch,
        now_ms: u64,
    ) -> After {
        self.now_ms = now_ms;
        (self.slice_end_ns, self.slice_is_over) = (0, false);
        self.borrow(scratch);
        let after = self
            .go_on(shared, counters, &mut scratch.batch)
            .unwrap_or_else(|broken| self.give_up(&broken, shared, counters));
        if after != After::Close
            && self.output.sent == 0
            && self.writable
            && self.parked.free(self.output.len()) > 0
        {
            let key = self.client.entry.key;
            scratch.answers.add(key, &self.output.bytes, self.done_ns);
            self.output.bytes.clear();
        }
        self.give_back(scratch);
        self.show_buffers();
        self.count_memory(shared);
        after
    }

    /// Ends a connection that cannot continue. Its replies are sent if possible.
    fn give_up(&mut self, broken: &Broken, shared: &Shared, counters: &Counters) -> After {
        let client = self.client.entry.id;
        tracing::debug!(client, "closing a connection: {broken}");
        if !matches!(broken, Broken::Socket(_)) {
            let _ = self.send(shared, counters);
        }
        After::Close
    }

    fn go_on(
        &mut self,
        shared: &Shared,
        counters: &Counters,
        batch: &mut Batch,
    ) -> Result<After, Broken> {
        // Its subscriptions may be what its user has lost.
        if self.client.entry.is_killed() {
            return Ok(After::Close);
        }
        self.send(shared, counters)?;
        self.send_pushes(shared, counters)?;
        let mut reads = 0;
        loop {
            if self.client.closing {
                let is_done = self.output.len() == 0
                    && !self.stream.has_unsent()
                    && !(self.finishing && self.has_pushes());
                return Ok(if is_done { After::Close } else { After::Wait });
            }
            if let Some(wait) = &self.client.wait
                && wait.is_asleep
            {
                // The client is gone, or expects no reply.
                return Ok(if self.ended {
                    After::Close
                } else {
                    After::Asleep
                });
            }
            // The client can no longer learn the result of a command.
            if self.gone && self.waits() {
                return Ok(After::Close);
            }
            if self.awaits_space || self.awaits_sections {
                return Ok(After::Wait);
            }
            let yields = std::mem::take(&mut self.client.yields);
            self.awaits_space = std::mem::take(&mut self.client.awaits_space);
            if self.awaits_space {
                return Ok(After::NoSpace);
            }
            self.awaits_sections = yields && self.client.awaits.is_some();
            if self.awaits_sections {
                return Ok(After::Soon);
            }
            if yields || self.slice_is_over {
                return Ok(After::Again);
            }
            if self.is_held(shared) && !self.has_waited_in_vain(shared) {
                return Ok(After::Held);
            }
            self.client.held = None;
            // A client whose command has waited is served whether it reads or not, because other
            // clients wait behind it.
            if self.client.wait.is_none() {
                if self.is_paused() {
                    return Ok(After::Paused);
                }
                // Not `Paused`: the connection is served again when the gate opens, and nothing
                // that the client does can end this.
                if self.output.len() > self.pause() {
                    return Ok(After::Wait);
                }
            }
            if !self.backlog {
                if !self.readable {
                    return Ok(After::Wait);
                }
                if reads == READS_PER_TURN {
                    return Ok(After::Again);
                }
                reads += 1;
                if !self.receive(shared, counters)? {
                    continue;
                }
            }
            let bounds = self.output_bounds(shared);
            let unsent = self.output.len();
            // Before the commands are admitted: after a failure, writes are refused.
            let held = shared.gate().is_some_and(ReplyGate::holds);
            self.execute(shared, counters, batch, bounds);
            for thread in self.client.wakes.drain(..) {
                let side = &shared.threads[thread];
                if shared.pubsub.asks_to_be_woken(thread) | side.woken.asks_to_be_woken() {
                    side.wake();
                }
            }
            self.park(shared, unsent, held);
            // Before the replies are sent: a client that has read one may at once send a request to
            // another thread.
            self.client.publish();
            if self.output.bytes.len() > bounds.most {
                tracing::warn!(
                    client = self.client.entry.id,
                    "a client's unsent replies exceed the output limit; cutting it off"
                );
                return Err(Broken::OutputBuffer);
            }
            if self.output.sent > 0 || self.output.len() > SHORT.min(self.pause()) {
                self.send(shared, counters)?;
            }
        }
    }

    /// Makes the replies after the first `unsent` bytes of the output wait until every change that
    /// they may show is durable. `held` tells whether the gate held replies before these were
    /// begun.
    #[inline]
    fn park(&mut self, shared: &Shared, unsent: usize, held: bool) {
        if self.output.len() > unsent
            && let Some(gate) = shared.gate()
            && let Some(position) = gate.awaited(held)
        {
            self.parked.wait(unsent, position);
        }
    }

    /// Reads once. Returns whether any bytes arrived. At the end of the stream the client is closed
    /// after its replies were sent.
    fn receive(&mut self, shared: &Shared, counters: &Counters) -> Result<bool, Broken> {
        let (read, limit) = match self.client.authenticated {
            true => (READ, shared.settings.count(Key::QueryBuffer)),
            false => (stranger::READ, stranger::QUERY),
        };
        let Input { bytes, filled } = &mut self.input;
        if *filled > limit {
            tracing::warn!(
                client = self.client.entry.id,
                "a command exceeds the query buffer; cutting its client off"
            );
            return Err(Broken::QueryBuffer);
        }
        // Memory for what the command is known to need, but never more than the bytes that have
        // already arrived: a client that merely announces a large argument gets no memory for it.
        let wanted = self.parser.wanted(*filled).clamp(read, (*filled).max(read));
        if bytes.len() < *filled + read {
            bytes.reserve_exact(*filled + wanted - bytes.len());
            bytes.resize(*filled + wanted, 0);
        }
        let end = bytes.len().min(*filled + wanted);
        let free = &mut bytes[*filled..end];
        match self.stream.read(free) {
            Ok(0) => {
                self.client.closing = true;
                Ok(false)
            }
            Ok(read) => {
                // A read that does not fill the buffer has emptied the socket.
                self.readable = self.stream.may_have_more(read == free.len()) || self.ended;
                self.writable &= !self.stream.has_unsent();
                *filled += read;
                self.client.active_ms = self.now_ms;
                counters.reads.add(1);
                counters.input.add(read as u64);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Bytes of TLS that contain no plain bytes may have arrived together with the end,
                // which is reported only once.
                self.readable = self.stream.may_have_more(false) || self.ended;
                self.writable &= !self.stream.has_unsent();
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.warn_of_tls(shared, &error);
                Err(error.into())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The bounds of the output for the next commands.
    fn output_bounds(&self, shared: &Shared) -> OutputBounds {
        let mut limit = shared.settings.output_limit(self.client.class()).hard;
        if !self.client.no_evict_on
            && let Some(all) = client_memory::limit(shared)
        {
            limit = limit.min(all);
        }
        let most = self.output.sent.saturating_add(limit);
        let more = match self.client.authenticated {
            true => SEND,
            false => stranger::UNSENT,
        };
        OutputBounds {
            full: (self.output.bytes.len() + more).min(most.saturating_add(1)),
            most,
        }
    }

    /// Executes complete commands of the input, until the output is full or the time slice has
    /// ended.
    fn execute(
        &mut self,
        shared: &Shared,
        counters: &Counters,
        batch: &mut Batch,
        bounds: OutputBounds,
    ) {
        let mut at = 0;
        self.backlog = false;
        loop {
            let buffers = &self.client.entry.buffers;
            buffers.query.set(self.input.filled - at);
            buffers
                .query_free
                .set(self.input.bytes.len() - self.input.filled);
            let input = &mut self.input.bytes[at..self.input.filled];
            let parsed = self.parser.parse(input, batch);
            let (client, out) = (&mut self.client, &mut self.output.bytes);
            let mut executor = Executor::new(shared, client, counters, out, bounds);
            if self.slice_end_ns == 0 {
                self.slice_end_ns = executor.done_ns() + SLICE_NS;
            }
            let executed = executor.run(batch, input, self.slice_end_ns);
            self.done_ns = executor.done_ns();
            self.slice_is_over = executor.yields();
            drop(executor);
            self.parser.set_trusted(self.client.authenticated);
            if self.client.closing {
                at = self.input.filled;
                break;
            }
            if executed < batch.len() {
                // Other commands are not copied, however long they are.
                if batch.is_inline() {
                    let rest = unexecuted(batch, input, parsed.consumed);
                    self.input.filled = rest.len();
                    self.input.bytes = rest;
                    at = 0;
                } else {
                    at += batch.bytes(executed);
                }
                self.parser.rewind();
                self.backlog = true;
                break;
            }
            at += parsed.consumed;
            match parsed.stop {
                Stop::Incomplete => break,
                Stop::Full if self.slice_is_over || self.output.bytes.len() >= bounds.full => {
                    self.backlog = true;
                    break;
                }
                Stop::Full => {}
                Stop::Broken(error) => {
                    let failure = format!("ERR {error}");
                    shared.count_error(self.client.thread, &failure);
                    if !self.client.replies.is_silent() {
                        Reply::new(&mut self.output.bytes, self.client.protocol)
                            .error(failure.as_bytes());
                    }
                    let peer = &self.client.entry.peer;
                    if error == ProtocolError::ForeignProtocol
                        && let Some(connections) = shared.foreign.count(shared.now_ms())
                    {
                        tracing::warn!(
                            %peer,
                            connections,
                            "a client speaks another protocol, such as TLS or HTTP/2; its \
                             connection is closed"
                        );
                    }
                    tracing::debug!(%peer, "closing a connection: {error}");
                    self.client.closing = true;
                    at = self.input.filled;
                    break;
                }
            }
        }
        if at > 0 {
            self.input.bytes.copy_within(at..self.input.filled, 0);
            self.input.filled -= at;
        }
        self.client.entry.buffers.query.set(self.input.filled);
    }

    /// Whether its peer must speak TLS and has not completed the handshake yet.
    pub fn is_shaking_hands(&self) -> bool {
        self.stream.is_shaking_hands()
    }

    /// Logs that its peer does not speak TLS as required, unless that was logged a moment ago.
    pub fn warn_of_tls(&self, shared: &Shared, reason: &dyn Display) {
        if let Some(connections) = shared.tls_failures.count(shared.now_ms()) {
            let peer = &self.client.entry.peer;
            tracing::warn!(%peer, connections, "TLS failed, the connection is closed: {reason}");
        }
    }

    /// How long its next command may wait or continue once its peer has closed its side, in
    /// milliseconds. `None`: it does not wait.
    pub fn half_closed_ms(&self) -> Option<u64> {
        let bound_ms = match self.client.unfinished {
            Some(_) => HALF_CLOSED_UNFINISHED_MS,
            None => HALF_CLOSED_MS,
        };
        (self.ended && self.waits()).then_some(bound_ms)
    }

    /// Whether its next command waits, or is not finished.
    fn waits(&self) -> bool {
        let client = &self.client;
        client.held.is_some()
            || client.wait.is_some()
            || self.awaits_space
            || client.awaits_space
            || client.awaits.is_some()
            || client.retries_ms.is_some()
            || client.unfinished.is_some()
    }

    /// Whether its command's wait for a key has timed out, and no pause holds the reply.
    fn has_waited_in_vain(&self, shared: &Shared) -> bool {
        (self.client.wait.as_ref())
            .is_some_and(|wait| wait.is_over || shared.waits.ended(self.client.entry.id).is_some())
    }

    /// Whether its next command waits for the end of a pause.
    pub fn is_held(&self, shared: &Shared) -> bool {
        self.client.held.is_some_and(|holds| {
            let pause = shared.pauses.now(|| shared.now_ms());
            pause.is_some_and(|pause| pause >= holds)
        })
    }

    /// Whether it is not read from until its client has read. Output that waits at the gate does
    /// not count, because the client cannot read it.
    pub fn is_paused(&self) -> bool {
        self.parked.free(self.output.len()) > self.pause()
    }

    /// The number of unsent bytes beyond which it is not read from.
    fn pause(&self) -> usize {
        match self.client.authenticated {
            true => self.pause,
            false => stranger::UNSENT,
        }
    }

    /// Called periodically while the client is paused. A client that sends although it has read
    /// nothing for a second probably writes a whole pipeline before it reads the first reply, and
    /// would wait forever. It is read from again, until its replies exceed the limit, unless it has
    /// not authenticated. Returns whether it is read from.
    pub fn resume_if_stalled(&mut self, now_ms: u64) -> bool {
        if !self.client.authenticated {
            return false;
        }
        let (unsent, since_ms) = self.stuck;
        if unsent != self.output.len() {
            self.stuck = (self.output.len(), now_ms);
            return false;
        }
        let waits = self.readable || self.backlog;
        if now_ms.saturating_sub(since_ms) < STALL_MS || !waits {
            return false;
        }
        // Doubled each time, so that the limit is reached after few steps.
        self.pause = 2 * self.output.len();
        true
    }

    /// Whether messages wait for its client.
    fn has_pushes(&self) -> bool {
        self.client.is_pushed_to && !self.client.entry.pushes.is_empty()
    }

    /// Stops reading, sends unsent output, including messages, and then closes.
    pub fn finish(&mut self) {
        self.finishing = !std::mem::replace(&mut self.client.closing, true);
    }

    /// Registers the socket with the thread's poll.
    pub fn register(&mut self, registry: &mio::Registry, token: mio::Token) -> io::Result<()> {
        self.stream.register(registry, token)
    }

    /// Closes the connection in an orderly way.
    pub fn close(mut self, shared: &Shared) {
        self.client.unsubscribe_all(&shared.pubsub);
        shared.end_tracking(&mut self.client);
        self.recount(shared, 0);
        self.stream.finish();
    }
}
