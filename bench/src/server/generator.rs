//! The load: many connections driven by one thread, in a closed loop or an open one.
//!
//! *Closed*: each connection has so many requests under way, sends the next ones when all are
//! answered, and nobody waits longer than the server takes; its figure is throughput. *Open*:
//! requests are due at a fixed rate whether or not the server keeps up, each on the next
//! connection, and a latency counts from when its request was due, so that what would have been
//! asked during a stall is counted as late as it was (no coordinated omission).
//!
//! A turn costs one read and one write for each connection that has something; nothing is allocated
//! on the way.

use super::protocol::{Dialect, Request};
use crate::error::{BenchError, socket_failed as failed};
use crate::latency::Latencies;
use crate::ledger::{Ledger, Metric};
use crate::rounds::Done;
use crate::systems::pipeline::connected;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any reply takes that comes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes read at once; a reply is shorter.
const READ: usize = 64 << 10;

/// One connection, its requests under way and what has come of their replies.
struct Connection {
    stream: UnixStream,
    out: Vec<u8>,
    sent: usize,
    /// Whether the socket was full, and tells when it is not.
    blocked: bool,
    input: Box<[u8]>,
    /// Where in `input` what has not been taken begins and ends.
    begin: usize,
    end: usize,
    asked: VecDeque<(Request, Instant)>,
}

impl Connection {
    fn ask(&mut self, dialect: &Dialect, request: Request, due: Instant) {
        dialect.ask(request, &mut self.out);
        self.asked.push_back((request, due));
    }

    /// Sends what the socket takes.
    ///
    /// Interest in writing is registered only while the socket is full: a unix socket would report
    /// each read of the server.
    fn send(&mut self, registry: &Registry, token: usize) -> Result<(), BenchError> {
        let mut blocked = false;
        while self.sent < self.out.len() && !blocked {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if !blocked {
            self.out.clear();
            self.sent = 0;
        }
        if blocked != self.blocked {
            self.blocked = blocked;
            let interest = match blocked {
                true => Interest::READABLE | Interest::WRITABLE,
                false => Interest::READABLE,
            };
            let registered = registry.reregister(&mut self.stream, Token(token), interest);
            registered.map_err(failed)?;
        }
        Ok(())
    }

    /// Reads what there is and takes its replies; `each` gets the times when their requests were
    /// due. How many they were.
    fn receive(
        &mut self,
        dialect: &Dialect,
        mut each: impl FnMut(Instant),
    ) -> Result<u64, BenchError> {
        let mut taken = 0;
        while !self.asked.is_empty() {
            if self.begin > 0 {
                self.input.copy_within(self.begin..self.end, 0);
                self.end -= self.begin;
                self.begin = 0;
            }
            let free = self.input.len() - self.end;
            let read = match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(failed("it has closed the connection")),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            self.end += read;
            while let Some((request, due)) = self.asked.front().copied() {
                let Some(bytes) = dialect.reply(request, &self.input[self.begin..self.end])? else {
                    break;
                };
                self.begin += bytes;
                self.asked.pop_front();
                each(due);
                taken += 1;
            }
            // Less than fitted: nothing more is there, and the socket reports what comes.
            if read < free {
                break;
            }
        }
        Ok(taken)
    }
}

/// Connections to one server.
pub struct Generator {
    dialect: Dialect,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
}

/// What an open loop measured.
pub struct Offered {
    /// From when each request was due until its reply was read.
    pub latencies: Latencies,
    /// The longest that the generator itself was away between two looks at its sockets.
    pub away: Duration,
}

impl Offered {
    /// Adds a round to the ledger.
    pub fn report(&self, ledger: &mut Ledger, system: &str, case: &str) {
        self.latencies.report(ledger, system, case);
        let away = self.away.as_nanos() as f64;
        ledger.add(system, &away_case(case), Metric::Latency, away);
    }
}

/// The case of the longest that the load itself was away.
pub fn away_case(case: &str) -> String {
    format!("{case}, load away")
}

impl Generator {
    /// Opens this number of connections, as soon as a server listens.
    ///
    /// # Errors
    /// [`BenchError::Server`] if nobody does for long.
    pub fn connect(
        socket: &Path,
        dialect: Dialect,
        connections: usize,
    ) -> Result<Self, BenchError> {
        let poll = Poll::new().map_err(failed)?;
        let mut made = Vec::with_capacity(connections);
        while made.len() < connections {
            let stream = connected(socket)?;
            stream.set_nonblocking(true).map_err(failed)?;
            let mut stream = UnixStream::from_std(stream);
            let token = Token(made.len());
            let registered = poll
                .registry()
                .register(&mut stream, token, Interest::READABLE);
            registered.map_err(failed)?;
            made.push(Connection {
                stream,
                out: Vec::new(),
                sent: 0,
                blocked: false,
                input: vec![0; READ].into(),
                begin: 0,
                end: 0,
                asked: VecDeque::new(),
            });
        }
        Ok(Self {
            dialect,
            poll,
            events: Events::with_capacity(2 * connections),
            connections: made,
        })
    }

    /// A closed loop of `depth` requests at once on each connection, until `next` has no more and
    /// all are answered.
    ///
    /// # Errors
    /// A reply is wrong, or none comes.
    pub fn closed(
        &mut self,
        depth: usize,
        mut next: impl FnMut() -> Option<Request>,
    ) -> Result<Done, BenchError> {
        let Self {
            dialect,
            poll,
            events,
            connections,
        } = self;
        let begin = Instant::now();
        let mut under_way = 0;
        let mut ask = |connection: &mut Connection, registry: &Registry, token: usize| {
            for request in std::iter::from_fn(&mut next).take(depth) {
                connection.ask(dialect, request, begin);
            }
            connection.send(registry, token)?;
            Ok::<_, BenchError>(connection.asked.len() as u64)
        };
        for (token, connection) in connections.iter_mut().enumerate() {
            under_way += ask(connection, poll.registry(), token)?;
        }
        let mut operations = 0;
        while under_way > 0 {
            wait(poll, events, Some(TIMEOUT))?;
            if events.is_empty() {
                return Err(failed("it does not reply"));
            }
            for event in events.iter() {
                let Token(token) = event.token();
                let connection = &mut connections[token];
                if connection.asked.is_empty() {
                    continue;
                }
                if event.is_writable() {
                    connection.send(poll.registry(), token)?;
                }
                let taken = connection.receive(dialect, |_| {})?;
                operations += taken;
                under_way -= taken;
                if connection.asked.is_empty() {
                    under_way += ask(connection, poll.registry(), token)?;
                }
            }
        }
        Ok(Done {
            operations,
            took: begin.elapsed(),
        })
    }

    /// An open loop of `rate` requests a second for `span`.
    ///
    /// # Errors
    /// A reply is wrong, or none comes.
    pub fn open(
        &mut self,
        rate: f64,
        span: Duration,
        mut next: impl FnMut() -> Request,
    ) -> Result<Offered, BenchError> {
        let Self {
            dialect,
            poll,
            events,
            connections,
        } = self;
        let all = ((rate * span.as_secs_f64()) as u64).max(1);
        let begin = Instant::now();
        let due = |number: u64| begin + Duration::from_secs_f64(number as f64 / rate);
        let mut latencies = Latencies::default();
        let (mut asked, mut answered) = (0, 0);
        let (mut away, mut looked, mut last_reply) = (Duration::ZERO, begin, begin);
        while answered < all {
            let now = Instant::now();
            away = away.max(now - looked);
            looked = now;
            // Its own sockets come first: a few requests, then a look at them.
            for _ in 0..connections.len() {
                let at = due(asked);
                if asked == all || at > now {
                    break;
                }
                let token = asked as usize % connections.len();
                let connection = &mut connections[token];
                connection.ask(dialect, next(), at);
                connection.send(poll.registry(), token)?;
                asked += 1;
            }
            wait(poll, events, Some(Duration::ZERO))?;
            for event in events.iter() {
                let Token(token) = event.token();
                let connection = &mut connections[token];
                if event.is_writable() {
                    connection.send(poll.registry(), token)?;
                }
                if event.is_readable() {
                    answered +=
                        connection.receive(dialect, |due| latencies.record(due.elapsed()))?;
                    last_reply = now;
                }
            }
            if now - last_reply > TIMEOUT {
                return Err(failed("it does not reply"));
            }
        }
        Ok(Offered { latencies, away })
    }
}

fn wait(poll: &mut Poll, events: &mut Events, most: Option<Duration>) -> Result<(), BenchError> {
    loop {
        match poll.poll(events, most) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            polled => return polled.map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Kind, Protocol};
    use super::*;
    use crate::scratch::Directory;
    use std::os::unix::net::UnixListener;

    /// A server of one client that says `OK` to every request of `bytes` bytes, after `first`
    /// before the first.
    fn obliging(socket: &Path, bytes: usize, first: Duration) -> std::thread::JoinHandle<()> {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut unread, mut pause) = (0, Some(first));
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                if let Some(pause) = pause.take() {
                    std::thread::sleep(pause);
                }
                unread += read;
                for _ in 0..unread / bytes {
                    stream.write_all(b"+OK\r\n").unwrap();
                }
                unread %= bytes;
            }
        })
    }

    fn set(id: u32) -> Request {
        Request {
            id,
            kind: Kind::Set,
        }
    }

    /// Does something with a load on an obliging server.
    fn on_obliging<T>(first: Duration, work: impl FnOnce(&mut Generator) -> T) -> T {
        let place = Directory::new("generator").unwrap();
        let socket = place.path().join("socket");
        let dialect = Dialect::new(Protocol::Resp, 8);
        let mut one = Vec::new();
        dialect.ask(set(0), &mut one);
        let server = obliging(&socket, one.len(), first);
        let mut generator = Generator::connect(&socket, dialect, 1).unwrap();
        let worked = work(&mut generator);
        drop(generator);
        server.join().unwrap();
        worked
    }

    #[test]
    fn a_closed_loop_has_every_request_answered() {
        let mut ids = 0..1001;
        let done = on_obliging(Duration::ZERO, |it| it.closed(32, || ids.next().map(set)));
        assert_eq!(done.unwrap().operations, 1001);
    }

    /// What coordinated omission would hide: requests that were due during a stall are late by what
    /// was left of it.
    #[test]
    fn an_open_loop_counts_from_when_a_request_was_due() {
        let stall = Duration::from_millis(200);
        let offered = on_obliging(stall, |it| it.open(1000.0, stall / 2, || set(1)));
        let latencies = offered.unwrap().latencies;
        assert_eq!(latencies.count(), 100);
        // All 100 were due within the first half of the stall.
        assert!(latencies.at(1.0) >= 90e6, "{}", latencies.at(1.0));
    }

    #[test]
    fn a_server_that_leaves_is_an_error() {
        let place = Directory::new("generator-left").unwrap();
        let socket = place.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let dialect = Dialect::new(Protocol::Resp, 8);
        let mut generator = Generator::connect(&socket, dialect, 1).unwrap();
        drop(listener.accept().unwrap());
        assert!(generator.closed(1, || Some(set(1))).is_err());
    }
}
