//! One I/O thread: waits for its sockets, serves each ready connection for one turn, and executes
//! the commands it has sent.
//!
//! Any thread executes any command; connections never move between threads. Readiness is
//! edge-triggered, so a busy connection costs only one read and one write a turn. Short replies are
//! sent after all ready connections have been served ([`answers`]).

mod accepting;
mod draining;
mod handshakes;
mod held;
mod parked;
mod periodic;
mod short_replies;
mod waiting;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::{Events, Poll, Token};
use slab::Slab;

pub(crate) use self::short_replies::{Answers, SHORT};
use crate::client::{Arrival, Client, Entry};
use crate::connection::{After, Connection, SLICE_NS, Scratch};
use crate::counters::Counters;
use crate::listen::{Accepted, ClientSocket, Listener, is_transient, warn_of_failure};
use crate::protection;
use crate::pubsub::Fed;
use crate::settings::Key;
use crate::shared::{Shared, ThreadSide};
use crate::tls::TlsStream;
use accepting::Accepting;
use handshakes::Handshakes;
use held::HeldConnections;

/// The maximum number of events fetched from the kernel at once.
const EVENTS: usize = 256;

/// How soon a paused connection is checked again.
const RETRY: Duration = Duration::from_millis(500);

/// The maximum number of connections accepted from one listener in a round, so that a flood of them
/// does not delay others.
const ACCEPTS: usize = 64;

/// The maximum number of killed clients whose connections are closed in a round, so that a user
/// with many clients that is removed does not delay others.
const CLOSES: usize = 64;

/// The token of a thread's [`mio::Waker`].
pub(crate) const WAKER: Token = Token(usize::MAX);

/// Listener `index` has the token `LISTENERS - index`; a connection's token is its index in the
/// slab.
const LISTENERS: usize = usize::MAX - 1;

/// A pending turn of a connection, which is then marked as `queued`.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Its index in the slab.
    key: usize,
    /// Its client's number. The index may have been reused for another connection since, and that
    /// connection must not get this turn: a connection that is served twice in a round would send
    /// its replies in the wrong order.
    client: u64,
}

/// One I/O thread.
pub(crate) struct EventLoop {
    poll: Poll,
    shared: Arc<Shared>,
    index: usize,
    listeners: Vec<Listener>,
    connections: Slab<Connection>,
    /// Connections that have something to do.
    ready: Vec<Turn>,
    /// Connections whose time slice ended before they were done; served when `ready` is empty.
    unfinished: VecDeque<Turn>,
    /// Clients that have been killed, whose connections are to be closed.
    killed: VecDeque<Arc<Entry>>,
    /// Connections from which no input is read.
    paused: BTreeSet<usize>,
    /// Connections whose next command waits for the end of a pause.
    held: HeldConnections,
    /// Connections whose replies wait at the gate, by the position that the first of them waits
    /// for.
    parked: BTreeSet<(u64, usize)>,
    /// Connections whose TLS handshake is not over.
    handshakes: Handshakes,
    /// Connections whose peers have closed their side and whose next command waits, by the time at
    /// which they will be closed.
    leaving: BTreeSet<(u64, usize)>,
    /// Connections whose commands wait for keys, by the time at which they have waited long enough.
    waiting: BTreeSet<(u64, usize)>,
    /// Connections that exceed the soft limit of their output, by the time at which they are
    /// closed.
    slow_readers: BTreeSet<(u64, usize)>,
    /// Connections whose next command waits until the change feed has space.
    starved: Vec<Turn>,
    /// Since when the first of them has been waiting.
    starved_ms: u64,
    /// Connections whose next command waits for other threads' sections.
    delayed: Vec<Turn>,
    /// When they are checked again.
    delayed_ns: u64,
    /// When idle clients were last checked for.
    idle_checked_ms: u64,
    /// When paused clients were last checked.
    stalled_checked_ms: u64,
    /// Whether it may accept.
    accepting: Accepting,
    scratch: Scratch,
}

impl EventLoop {
    /// The loop of thread `index`. `poll` must be the one for which the thread's waker was created.
    pub fn new(
        poll: Poll,
        shared: Arc<Shared>,
        index: usize,
        mut listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(LISTENERS - number))?;
        }
        Ok(Self {
            poll,
            shared,
            index,
            listeners,
            connections: Slab::new(),
            ready: Vec::new(),
            unfinished: VecDeque::new(),
            killed: VecDeque::new(),
            paused: BTreeSet::new(),
            held: HeldConnections::default(),
            parked: BTreeSet::new(),
            handshakes: Handshakes::default(),
            leaving: BTreeSet::new(),
            waiting: BTreeSet::new(),
            slow_readers: BTreeSet::new(),
            starved: Vec::new(),
            starved_ms: 0,
            delayed: Vec::new(),
            delayed_ns: 0,
            idle_checked_ms: 0,
            stalled_checked_ms: 0,
            accepting: Accepting::default(),
            scratch: Scratch::default(),
        })
    }

    /// Serves until the server stops.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        while !self.shared.stopping() {
            self.wait(&mut events)?;
            self.take_mail();
            self.take_messages();
            self.serve_woken();
            self.end_waits();
            self.serve_ready();
            self.take_messages();
            self.resume_stalled();
            self.close_leaving();
            self.close_slow_readers();
            self.close_late_handshakes();
            self.release_held();
            self.release_parked();
            self.release_starved();
            self.release_delayed();
            self.close_idle();
            self.shared.settle();
        }
        self.drain_connections(&mut events)
    }

    fn side(&self) -> &ThreadSide {
        &self.shared.threads[self.index]
    }

    fn counters(&self) -> &Counters {
        &self.side().counters
    }

    /// Waits for events and records the connections concerned.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let poll_timeout = self.poll_timeout();
        match self.poll.poll(events, poll_timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        let mut may_accept = false;
        for event in events.iter() {
            match event.token() {
                WAKER => {}
                Token(token) if token > LISTENERS - self.listeners.len() => may_accept = true,
                Token(key) => {
                    let Some(connection) = self.connections.get_mut(key) else {
                        continue;
                    };
                    connection.ended |= event.is_read_closed() || event.is_error();
                    connection.gone |=
                        event.is_error() || event.is_read_closed() && event.is_write_closed();
                    connection.readable |= event.is_readable() || connection.ended;
                    connection.writable |=
                        event.is_writable() || event.is_write_closed() || event.is_error();
                    self.enqueue(key);
                }
            }
        }
        if self.accepting.is_due(may_accept, || self.shared.now_ms()) {
            self.accept();
        }
        Ok(())
    }

    fn enqueue(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.queued, true)
        {
            let client = connection.client.entry.id;
            self.ready.push(Turn { key, client });
        }
    }

    /// Accepts waiting connections, a bounded number in a round, and gives each to the thread that
    /// has the fewest.
    fn accept(&mut self) {
        let keepalive_s = self.shared.settings.count(Key::Keepalive) as u64;
        for number in 0..self.listeners.len() {
            for left in (0..ACCEPTS).rev() {
                // Readiness is reported only once: the rest is accepted in the next round.
                self.accepting.more |= left == 0;
                match self.listeners[number].accept(keepalive_s) {
                    Ok(accepted) => self.admit(accepted),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_transient(&error) => {}
                    Err(error) => {
                        let now_ms = self.shared.now_ms();
                        warn_of_failure(&self.shared.accept_failures, &error, now_ms);
                        self.accepting.failed(now_ms);
                        break;
                    }
                }
            }
        }
    }

    fn admit(&mut self, mut accepted: Accepted) {
        let shared = Arc::clone(&self.shared);
        self.counters().connections.add(1);
        let has_password = !shared.users.default().needs_no_password();
        if let Some(refusal) = protection::refusal(
            &shared.settings,
            accepted.is_local,
            has_password,
            shared.connected(),
        ) {
            self.counters().rejected.add(1);
            tracing::debug!(peer = accepted.peer, refusal, "refusing a connection");
            // The socket is new: these few bytes fit its buffer, or the peer is gone. A peer that
            // speaks TLS would not understand them.
            if !accepted.is_tls {
                let _ = io::Write::write(&mut accepted.stream, refusal.as_bytes());
            }
            accepted.stream.finish();
            return;
        }
        // SYNC: pairs with nothing; the loads only distribute connections, and an outdated one
        // slightly affects the balance.
        let loads = shared
            .threads
            .iter()
            .map(|thread| thread.load.load(Ordering::Relaxed));
        let Some((target, _)) = loads
            .enumerate()
            .min_by_key(|(thread, load)| (*load, *thread != self.index))
        else {
            return;
        };
        let side = &shared.threads[target];
        // SYNC: as above.
        side.load.fetch_add(1, Ordering::Relaxed);
        if target == self.index {
            self.welcome(accepted);
            return;
        }
        side.mailbox().accepted.push(accepted);
        side.wake();
    }

    /// Receives what other threads have sent to this one.
    fn take_mail(&mut self) {
        let mail = std::mem::take(&mut *self.side().mailbox());
        for accepted in mail.accepted {
            self.welcome(accepted);
        }
        self.killed.extend(mail.killed);
        for _ in 0..CLOSES {
            let Some(killed) = self.killed.pop_front() else {
                break;
            };
            let connection = self.connections.get(killed.key);
            if connection.is_some_and(|one| Arc::ptr_eq(&one.client.entry, &killed)) {
                self.close(killed.key);
            }
        }
    }

    /// Serves the connections whose clients have messages to receive.
    fn take_messages(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.pubsub.dispatch(self.index);
        for Fed { key, client } in shared.pubsub.fed(self.index) {
            let connection = self.connections.get_mut(key);
            if let Some(connection) = connection.filter(|one| one.client.entry.id == client) {
                // It may receive invalidations of keys that another client tracks.
                connection.client.is_pushed_to = true;
                // Many may receive one message: other connections are served between them.
                self.resume_later(key);
            }
        }
    }

    /// Begins to serve a connection.
    fn welcome(&mut self, accepted: Accepted) {
        let Accepted {
            stream,
            peer,
            local,
            is_tls,
            ..
        } = accepted;
        let identity = if is_tls { self.shared.tls.get() } else { None };
        let stream = match (stream, identity) {
            (ClientSocket::Tcp(socket), Some(identity)) => {
                ClientSocket::Tls(Box::new(TlsStream::new(socket, identity.config)))
            }
            // If a port is for TLS, there is an identity. No client is served without encryption
            // there.
            _ if is_tls => {
                // SYNC: as in `admit`.
                self.side().load.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            (stream, _) => stream,
        };
        let entry = self.shared.clients.enter(Arrival {
            peer,
            local,
            descriptor: stream.descriptor(),
            now_ms: self.shared.now_ms(),
            thread: self.index,
            key: self.connections.vacant_key(),
            connection_bytes: size_of::<Connection>() + stream.bytes(),
        });
        let client = Client::new(entry, self.index, &self.shared.users, &self.shared.clients);
        let mut connection = Connection::new(stream, client, &self.shared);
        let vacant = self.connections.vacant_entry();
        let key = vacant.key();
        let registered = connection.register(self.poll.registry(), Token(key));
        vacant.insert(connection);
        self.expect_handshake(key);
        match registered {
            Ok(()) => self.enqueue(key),
            Err(error) => {
                tracing::warn!(%error, "cannot wait for a connection's input; closing it");
                self.close(key);
            }
        }
    }

    /// Serves every connection that has an event, then continues for one slice those whose time
    /// slice ended before they were done. So the thread polls for new events every few
    /// milliseconds, however much there is to do.
    fn serve_ready(&mut self) {
        if self.ready.is_empty() && self.unfinished.is_empty() && self.handshakes.steps.is_empty() {
            return;
        }
        let begun_ns = self.shared.now_ns();
        let shared = &self.shared;
        shared.rate.sample(begun_ns, || shared.all_time());
        let mut ready = std::mem::take(&mut self.ready);
        for turn in ready.drain(..) {
            match self.is_shaking_hands(turn.key) {
                true => self.handshakes.steps.push_back(turn),
                false => self.serve(turn, begun_ns),
            }
            self.serve_woken();
        }
        self.ready = ready;
        // Before any connection is served again, because its next replies may be sent at once.
        self.answer();
        let mut now_ns = begun_ns;
        for _ in 0..self.unfinished.len() {
            let Some(turn) = self.unfinished.pop_front() else {
                break;
            };
            self.serve(turn, now_ns);
            self.serve_woken();
            now_ns = self.shared.now_ns();
            if now_ns.saturating_sub(begun_ns) >= SLICE_NS {
                break;
            }
        }
        self.shake_hands(begun_ns);
        self.answer();
    }

    /// Serves one connection, unless it has been closed. `now_ns` is a recent time.
    fn serve(&mut self, Turn { key, client }: Turn, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.client.entry.id != client {
            return;
        }
        connection.queued = false;
        let counters = &self.shared.threads[self.index].counters;
        let now_ms = now_ns / 1_000_000;
        let after = connection.turn(&self.shared, counters, &mut self.scratch, now_ms);
        let done_ns = connection.done_ns;
        self.follow_up(key, after);
        if self.scratch.answers.are_due(done_ns) {
            self.answer();
        }
    }

    /// Sends the short replies of the turns so far.
    fn answer(&mut self) {
        let mut answers = std::mem::take(&mut self.scratch.answers);
        answers.drain(|key, reply| {
            let Some(connection) = self.connections.get_mut(key) else {
                return;
            };
            let counters = &self.shared.threads[self.index].counters;
            let after = connection.answer(&self.shared, reply, counters);
            self.follow_up(key, after);
        });
        self.scratch.answers = answers;
    }

    /// Performs the connection's next action.
    fn follow_up(&mut self, key: usize, after: After) {
        match after {
            After::Wait | After::Asleep => {}
            After::Held => self.hold(key),
            After::NoSpace => self.starve(key),
            After::Soon => self.delay(key),
            After::Again if self.is_shaking_hands(key) => self.step_later(key),
            After::Again => self.resume_later(key),
            After::Paused => {
                self.paused.insert(key);
            }
            After::Close => return self.close(key),
        }
        self.note_unheld(key);
        self.park(key);
        self.note_handshake(key);
        self.note_leaving(key);
        self.note_wait(key);
        self.note_slow_reader(key);
        self.update_interest(key);
    }

    /// Lets a connection be served again after others.
    fn resume_later(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.queued, true)
        {
            let client = connection.client.entry.id;
            self.unfinished.push_back(Turn { key, client });
        }
    }

    /// Registers a connection for writability as long as it has unsent replies.
    fn update_interest(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if let Err(error) = connection.update_interest(self.poll.registry(), Token(key)) {
            tracing::warn!(%error, "cannot wait for a connection's output; closing it");
            self.close(key);
        }
    }

    fn close(&mut self, key: usize) {
        let Some(connection) = self.connections.try_remove(key) else {
            return;
        };
        self.shared.clients.leave(connection.client.entry.id);
        self.paused.remove(&key);
        if let Some(place) = connection.held_at {
            self.held.remove(place);
            self.show_held();
        }
        if let Some(position) = connection.parked_at {
            self.parked.remove(&(position, key));
        }
        if let Some(ends_ms) = connection.handshake_ends_ms {
            self.handshakes.ends.remove(&(ends_ms, key));
        }
        if let Some(until_ms) = connection.waits_until_ms {
            self.waiting.remove(&(until_ms, key));
        }
        if let Some(leaves_ms) = connection.leaves_ms {
            self.leaving.remove(&(leaves_ms, key));
        }
        if let Some(ends_ms) = connection.slow_ends_ms {
            self.slow_readers.remove(&(ends_ms, key));
        }
        if connection.client.wait.is_some() {
            let shared = &self.shared;
            let client = connection.client.entry.id;
            shared.stop_waiting(client, |thread| shared.threads[thread].wake());
        }
        // SYNC: as in `admit`.
        self.side().load.fetch_sub(1, Ordering::Relaxed);
        connection.close(&self.shared);
    }
}
