//! The memory that clients take: a reply is delivered or its connection is closed, a client that has not
//! authenticated takes next to nothing, and all clients together stay within `maxmemory-clients`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use common::{Client, Reply, encode, server, start};

/// A field of a line of `CLIENT LIST`, as a number.
fn number(line: &str, name: &str) -> usize {
    let value = line
        .split(' ')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value.expect(name).trim().parse().expect(name)
}

/// Writes as much of `bytes` as the socket takes at once. Returns how much; `None` once it is closed.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(written) => Some(written),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

#[test]
fn replies_to_a_reader_near_its_limit_arrive_in_order_or_the_connection_ends() {
    const COMMANDS: usize = 6_000;
    // Unsent replies come near the limit and stay below it while the client reads.
    let (_running, address) = start(
        server()
            .threads(1)
            .output_bounds((8 << 20) - (512 << 10), 8 << 20),
    );
    let mut client = Client::connect(address);
    let text = |index: usize| format!("{index:010000}");
    let mut sender = client.stream.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        for index in 0..COMMANDS {
            // The server may close the connection meanwhile.
            if sender.write_all(&encode(&["ECHO", &text(index)])).is_err() {
                break;
            }
        }
    });
    let mut watcher = Client::connect(address);
    let unsent = |watcher: &mut Client| {
        let list = watcher.line("CLIENT LIST").text();
        let unsent = list.lines().map(|line| number(line, "obl")).max();
        unsent.unwrap()
    };
    while unsent(&mut watcher) < 7 << 20 {
        std::thread::yield_now();
    }
    for index in 0..COMMANDS {
        match client.try_reply() {
            Some(reply) => assert!(
                reply == Reply::bulk(text(index)),
                "reply {index} is missing"
            ),
            None => break,
        }
    }
    sending.join().unwrap();
}

#[test]
fn a_client_that_has_not_authenticated_takes_little_memory() {
    const MOST: usize = 64 << 10;
    let (_running, address) = start(server().threads(1).password("secret"));
    let mut watcher = Client::connect(address);
    assert_eq!(watcher.line("AUTH secret"), Reply::ok());
    let whole = encode(&["ECHO", "x"]).repeat(1_000);
    let long = encode(&["AUTH", &"x".repeat(16_000), &"y".repeat(16_000)]);
    let half = [&b"*10\r\n"[..], b"$16384\r\n", &[b'x'; 16_386]].concat();
    let ten = [
        half.clone(),
        [b"$16384\r\n", &[b'x'; 16_386][..]].concat().repeat(8),
    ]
    .concat();
    let line = [b'x'; 60_000];
    for request in [&whole[..], &long[..], &ten[..], &line[..]] {
        let mut stranger = TcpStream::connect(address).unwrap();
        let own = stranger.local_addr().unwrap().to_string();
        stranger.set_nonblocking(true).unwrap();
        let (mut sent, mut refused) = (0, 0);
        // It reads nothing. In the end neither socket takes more, or the server has closed it.
        while sent < (64 << 20) && refused < 1_000 {
            match write_some(&mut stranger, &request[sent % request.len()..]) {
                Some(0) => refused += 1,
                Some(written) => sent += written,
                None => break,
            }
            let list = watcher.line("CLIENT LIST").text();
            for line in list.lines().filter(|line| line.contains(&own)) {
                let total = number(line, "tot-mem");
                assert!(total <= MOST, "{line}");
            }
        }
        // Replies to long commands are short, and fit the sockets.
        let is_short = request.len() == whole.len();
        assert!(
            !is_short || sent < 64 << 20,
            "it was listened to although it reads nothing"
        );
    }
}

#[test]
fn a_client_that_waits_keeps_no_buffers() {
    const MOST: usize = 2 << 10;
    let (_running, address) = start(server().threads(1));
    let mut watcher = Client::connect(address);
    // The thread's buffers have been large once.
    watcher.command(&["ECHO", &"x".repeat(500_000)]);
    let mut idle = Client::connect(address);
    let own = idle.stream.get_ref().local_addr().unwrap().to_string();
    assert_eq!(idle.line("PING"), Reply::Simple("PONG".into()));
    let total = |watcher: &mut Client| {
        let list = watcher.line("CLIENT LIST").text();
        number(
            list.lines().find(|line| line.contains(&own)).unwrap(),
            "tot-mem",
        )
    };
    assert!(
        total(&mut watcher) <= MOST,
        "{}",
        watcher.line("CLIENT LIST").text()
    );
    // Half a command takes its own length, whatever the buffer that it was read into.
    idle.send(b"*2\r\n$4\r\nECHO\r\n$30000\r\n");
    idle.send(&[b'x'; 20_000]);
    while total(&mut watcher) < 20_000 {
        std::thread::yield_now();
    }
    assert!(
        total(&mut watcher) <= 20_000 + MOST,
        "{}",
        total(&mut watcher)
    );
    idle.send(&[b'x'; 10_000]);
    idle.send(b"\r\n");
    assert_eq!(idle.reply(), Reply::bulk("x".repeat(30_000)));
    let mut nothing = [0];
    idle.stream.get_ref().set_nonblocking(true).unwrap();
    assert!(idle.stream.get_mut().read(&mut nothing).is_err());
    assert!(total(&mut watcher) <= MOST, "{}", total(&mut watcher));
}
