//! What a server pays for the network alone: PING answered on readiness (`epoll`, by mio,
//! edge-triggered, as the server does it) and on completion (`io_uring`), with nothing else done.
//!
//! `cargo run --release -p mneme-server --example readiness -- epoll|uring PORT [SECONDS]`, beside
//! `redis-benchmark -p PORT -c 32 -n 400000 -t ping_mbulk` (and `-P 32`). At the end it prints the
//! processor time of an answer. Decision 010 has what came out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "an experiment ends where it fails"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

const REQUEST: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const REPLY: &[u8] = b"+PONG\r\n";
const BUFFER: usize = 16 << 10;
/// Connections, and with them entries of the rings.
const CONNECTIONS: usize = 1024;

/// One connection's bytes: what of a request is still to come, and the replies to what has come.
struct Talk {
    read: Box<[u8; BUFFER]>,
    replies: Vec<u8>,
    /// Bytes of a request of which the rest is to come.
    begun: usize,
    answered: u64,
}

impl Talk {
    fn new() -> Self {
        Self {
            read: Box::new([0; BUFFER]),
            replies: Vec::with_capacity(BUFFER),
            begun: 0,
            answered: 0,
        }
    }

    /// Makes the replies to `len` bytes that have been read.
    fn answer(&mut self, len: usize) {
        let bytes = self.begun + len;
        self.begun = bytes % REQUEST.len();
        self.replies.clear();
        for _ in 0..bytes / REQUEST.len() {
            self.replies.extend_from_slice(REPLY);
            self.answered += 1;
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let listener = TcpListener::bind(("127.0.0.1", arguments[2].parse().unwrap())).unwrap();
    let seconds = arguments
        .get(3)
        .map_or(10, |seconds| seconds.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let answered = match arguments[1].as_str() {
        "epoll" => by_readiness(listener, until),
        "uring" => by_completion(&listener, until),
        other => panic!("neither epoll nor uring: {other}"),
    };
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let us = ticks as f64 * 10_000.0 / answered.max(1) as f64;
    println!(
        "{}: {answered} answers, {us:.2} us of processor time each",
        arguments[1]
    );
}

fn by_readiness(listener: TcpListener, until: Instant) -> u64 {
    listener.set_nonblocking(true).unwrap();
    let mut poll = mio::Poll::new().unwrap();
    let mut listener = mio::net::TcpListener::from_std(listener);
    let accept = mio::Token(usize::MAX);
    poll.registry()
        .register(&mut listener, accept, mio::Interest::READABLE)
        .unwrap();
    let mut connections: Vec<Option<(mio::net::TcpStream, Talk)>> = Vec::new();
    let mut events = mio::Events::with_capacity(256);
    let mut answered = 0;
    while Instant::now() < until {
        poll.poll(&mut events, Some(Duration::from_millis(100)))
            .unwrap();
        for event in events.iter() {
            if event.token() == accept {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true).unwrap();
                    let both = mio::Interest::READABLE | mio::Interest::WRITABLE;
                    poll.registry()
                        .register(&mut stream, mio::Token(connections.len()), both)
                        .unwrap();
                    connections.push(Some((stream, Talk::new())));
                }
                continue;
            }
            let place = &mut connections[event.token().0];
            let Some((stream, talk)) = place else {
                continue;
            };
            if !event.is_readable() {
                continue;
            }
            let before = talk.answered;
            let over = match stream.read(&mut talk.read[..]) {
                Ok(0) => true,
                Ok(len) => {
                    talk.answer(len);
                    // Replies fit the socket's buffer here.
                    stream.write_all(&talk.replies).is_err()
                }
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            };
            answered += talk.answered - before;
            if over {
                *place = None;
            }
        }
    }
    answered
}

/// What a completion is of: in the low bits of its user data.
const RECEIVED: u64 = 0;
const SENT: u64 = 1;
const ACCEPTED: u64 = 2;

fn by_completion(listener: &TcpListener, until: Instant) -> u64 {
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4 * CONNECTIONS as u32)
        .build(CONNECTIONS as u32)
        .unwrap();
    let mut connections: Vec<Option<(i32, Talk)>> = Vec::new();
    let mut answered = 0;
    let accept = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd()))
        .build()
        .user_data(ACCEPTED);
    // SAFETY: the listener outlives the ring.
    unsafe { ring.submission().push(&accept).unwrap() };
    let tick = types::Timespec::new().nsec(100_000_000);
    let wait = types::SubmitArgs::new().timespec(&tick);
    while Instant::now() < until {
        match ring.submitter().submit_with_args(1, &wait) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(62) => {}
            Err(error) => panic!("{error}"),
        }
        let completions: Vec<_> = ring
            .completion()
            .map(|done: io_uring::cqueue::Entry| (done.user_data(), done.result()))
            .collect();
        for (user_data, result) in completions {
            let (index, what) = ((user_data >> 2) as usize, user_data & 3);
            let next = match what {
                ACCEPTED => {
                    let index = connections.len();
                    // SAFETY: the descriptor was made for us a moment ago, and nobody else has it.
                    let stream: TcpStream = unsafe { std::os::fd::FromRawFd::from_raw_fd(result) };
                    stream.set_nodelay(true).unwrap();
                    connections.push(Some((stream.into_raw_fd(), Talk::new())));
                    receive(&mut connections, index)
                }
                RECEIVED if result <= 0 => {
                    connections[index] = None;
                    continue;
                }
                RECEIVED => {
                    let Some((fd, talk)) = &mut connections[index] else {
                        continue;
                    };
                    let before = talk.answered;
                    talk.answer(result as usize);
                    answered += talk.answered - before;
                    let (replies, len) = (talk.replies.as_ptr(), talk.replies.len() as u32);
                    if len == 0 {
                        receive(&mut connections, index)
                    } else {
                        opcode::Send::new(types::Fd(*fd), replies, len)
                            .build()
                            .user_data((index as u64) << 2 | SENT)
                    }
                }
                // Replies fit the socket's buffer here.
                _ => receive(&mut connections, index),
            };
            // SAFETY: buffers are on the heap and stay there until what uses them has completed; at
            // the end of the program the ring goes before them.
            while unsafe { ring.submission().push(&next) }.is_err() {
                ring.submit().unwrap();
            }
        }
    }
    drop(ring);
    answered
}

fn receive(connections: &mut [Option<(i32, Talk)>], index: usize) -> io_uring::squeue::Entry {
    let (fd, talk) = connections[index]
        .as_mut()
        .expect("only closed when nothing is under way");
    opcode::Recv::new(types::Fd(*fd), talk.read.as_mut_ptr(), BUFFER as u32)
        .build()
        .user_data((index as u64) << 2 | RECEIVED)
}
