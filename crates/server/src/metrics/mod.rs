//! Metrics for Prometheus, served over HTTP at an address of their own
//! ([`metrics-listen`](crate::settings::Key::Metrics)). One thread does nothing else, so **a slow
//! or hostile scraper takes that thread's time and nothing else**.
//!
//! The thread reads the counters of the I/O threads and of the store. It holds locks that commands
//! also take (for instance to count an error reply) only to copy a few numbers.

mod exposition;
mod families;
mod http;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use crate::listen::{Listener, is_transient, warn_of_failure};
use crate::shared::Shared;
use http::{AfterRequest, TIMEOUT, Visit};

/// The maximum number of connections at once. One more replaces the oldest, so that idle
/// connections cannot lock a scraper out.
const MOST: usize = 64;

/// Descriptors: the connections and one that replaces another, the listener, the event queue, the
/// waker.
pub(crate) const DESCRIPTORS: usize = MOST + 4;

/// The maximum number of events that one wait returns.
const EVENTS: usize = 128;

/// How long the thread waits before it tries again, after an accept has failed.
const RETRY: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// A listening socket that no thread serves yet.
pub(crate) struct Endpoint {
    poll: Poll,
    listener: TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Listens at `address`.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let Listener::Tcp(mut listener) = Listener::tcp(address, MOST as i32)? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let poll = Poll::new()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        let address = listener.local_addr()?;
        Ok(Self {
            poll,
            listener,
            address,
        })
    }

    /// The address it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Wakes the thread that serves it.
    pub fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKER)
    }

    /// Answers scrapers until the server stops.
    pub fn serve(mut self, server: &Shared) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut visits: Slab<Visit> = Slab::new();
        let mut retry = false;
        while !server.stopping() {
            let poll_timeout = poll_timeout(&visits, server.now_ns(), retry);
            match self.poll.poll(&mut events, poll_timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => polled?,
            }
            let mut accept = std::mem::take(&mut retry);
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => accept = true,
                    Token(key) => go_on(&mut visits, key, server),
                }
            }
            if accept {
                retry = self.accept(&mut visits, server).is_err();
            }
            let now_ns = server.now_ns();
            visits.retain(|_, visit| visit.deadline_ns > now_ns);
        }
        Ok(())
    }

    /// Accepts every waiting connection, until the server stops: more connections may arrive than
    /// are answered.
    fn accept(&mut self, visits: &mut Slab<Visit>, server: &Shared) -> io::Result<()> {
        while !server.stopping() {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_transient(&error) => continue,
                Err(error) => {
                    warn_of_failure(&server.accept_failures, &error, server.now_ms());
                    return Err(error);
                }
            };
            if visits.len() == MOST {
                let oldest = visits.iter().min_by_key(|(_, visit)| visit.deadline_ns);
                if let Some(key) = oldest.map(|(key, _)| key) {
                    visits.remove(key);
                }
            }
            let key = visits.vacant_key();
            let both = Interest::READABLE | Interest::WRITABLE;
            let registry = self.poll.registry();
            if let Err(error) = registry.register(&mut stream, Token(key), both) {
                tracing::warn!(%error, "cannot wait for a scraper's request; closing its connection");
                continue;
            }
            let deadline_ns = server.now_ns() + TIMEOUT.as_nanos() as u64;
            visits.insert(Visit::new(stream, deadline_ns));
            go_on(visits, key, server);
        }
        Ok(())
    }
}

fn go_on(visits: &mut Slab<Visit>, key: usize, server: &Shared) {
    if let Some(visit) = visits.get_mut(key)
        && visit.go_on(|| families::page(server)) == AfterRequest::Over
    {
        visits.remove(key);
    }
}

/// How long to wait for events at most.
fn poll_timeout(visits: &Slab<Visit>, now_ns: u64, retry: bool) -> Option<Duration> {
    let next = visits.iter().map(|(_, visit)| visit.deadline_ns).min();
    let left = next.map(|deadline_ns| Duration::from_nanos(deadline_ns.saturating_sub(now_ns)));
    // With a clock that tests set by hand the thread would spin.
    let left = left.map(|left| left.max(Duration::from_millis(1)));
    [left, retry.then_some(RETRY)].into_iter().flatten().min()
}
