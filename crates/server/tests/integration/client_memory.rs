//! The memory of clients: a reply is delivered or its connection is closed, a client that has not
//! authenticated needs very little memory, and all clients together stay within
//! `maxmemory-clients`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::{Client, Reply, bounded, encode, info, server, start};

/// A field of a line of `CLIENT LIST`, as a number.
fn number(line: &str, name: &str) -> usize {
    let value = line
        .split(' ')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value.expect(name).trim().parse().expect(name)
}

/// Writes as many of `bytes` as the socket accepts at once. Returns their number; `None` once it is
/// closed.
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
    // Unsent replies approach the limit, and stay below it while the client reads.
    let pause = (8 << 20) - (512 << 10);
    let (_running, address) = start(bounded(server().threads(1), pause, 8 << 20));
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
    // Continues until the unsent replies are near the limit, or beyond it so that the connection is
    // closed. The server reads a little more from a client that does not read, once a second.
    let goes_on = |watcher: &mut Client| {
        let list = watcher.line("CLIENT LIST").text();
        let mut unsent = list.lines().map(|line| number(line, "obl"));
        list.lines().count() > 1 && unsent.all(|unsent| unsent < 7 << 20)
    };
    while goes_on(&mut watcher) {
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
fn an_unauthenticated_client_needs_little_memory() {
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
        // The client reads nothing. In the end neither socket accepts more, or the server has
        // closed it.
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
        // The replies to long commands are short, and fit into the sockets' buffers.
        let is_short = request.len() == whole.len();
        assert!(
            !is_short || sent < 64 << 20,
            "it was listened to although it reads nothing"
        );
    }
}

/// The name that a client sets before it has authenticated is not stored: with everything else that
/// is allowed, it took more than 64 KiB.
#[test]
fn a_client_has_a_name_once_it_has_authenticated() {
    let (_running, address) = start(server().threads(1).password("secret"));
    let mut watcher = Client::connect(address);
    assert_eq!(watcher.line("AUTH secret"), Reply::ok());
    let mut stranger = Client::connect(address);
    let own = stranger.stream.get_ref().local_addr().unwrap().to_string();
    let mut shown = || {
        let list = watcher.line("CLIENT LIST").text();
        let line = list.lines().find(|line| line.contains(&own));
        line.expect(&own).to_owned()
    };
    let refused = stranger.command(&["HELLO", "3", "SETNAME", &"x".repeat(16_384)]);
    assert!(refused.text().starts_with("NOAUTH"), "{refused:?}");
    let line = shown();
    assert!(line.contains(" name= "), "{line}");
    assert!(number(&line, "tot-mem") < 4 << 10, "{line}");
    stranger.line("HELLO 2 SETNAME me AUTH default secret");
    assert!(shown().contains(" name=me "));
}

#[test]
fn a_client_that_waits_keeps_no_buffers() {
    const MOST: usize = 2 << 10;
    let (_running, address) = start(server().threads(1));
    let mut watcher = Client::connect(address);
    // The thread's buffers have been large before.
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
    // Half a command needs memory for its own length only, however large the buffer that it was
    // read into.
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

/// A client that has sent `len` bytes of a slightly longer command.
fn half_a_command(address: SocketAddr, len: usize) -> Client {
    let mut client = Client::connect(address);
    client.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", len + 1000).as_bytes());
    client.send(&vec![b'x'; len]);
    client
}

#[test]
fn clients_beyond_the_common_limit_are_disconnected_largest_first() {
    const MIB: usize = 1 << 20;
    let (_running, address) = start(server());
    let mut watcher = Client::connect(address);
    assert_eq!(
        watcher.line("CONFIG SET maxmemory-clients 7mb"),
        Reply::ok()
    );
    let mut spared = Client::connect(address);
    assert_eq!(spared.line("CLIENT NO-EVICT on"), Reply::ok());
    spared.send(b"*2\r\n$4\r\nECHO\r\n$5000000\r\n");
    spared.send(&vec![b'x'; 4 * MIB]);
    // A transaction and watched keys count too.
    let mut watching = Client::connect(address);
    for index in 0..50 {
        let key = format!("{index}:{}", "k".repeat(4_000));
        assert_eq!(watching.command(&["WATCH", &key]), Reply::ok());
    }
    let mut queueing = Client::connect(address);
    assert_eq!(queueing.line("MULTI"), Reply::ok());
    let queued = Reply::Simple("QUEUED".into());
    assert_eq!(queueing.command(&["ECHO", &"x".repeat(MIB)]), queued);
    while info(&mut watcher, "mem_clients_normal") < 5 * MIB as u64 + 200_000 {
        std::thread::yield_now();
    }
    let list = watcher.line("CLIENT LIST").text();
    let largest = list.lines().map(|line| number(line, "multi-mem")).max();
    assert!(largest >= Some(MIB), "{list}");
    assert_eq!(info(&mut watcher, "evicted_clients"), 0);

    let mut small = half_a_command(address, MIB);
    let mut large = half_a_command(address, 3 * MIB);
    while info(&mut watcher, "mem_clients_normal") < 9 * MIB as u64 {
        std::thread::yield_now();
    }
    // This one exceeds the limit, not counting the exempt client. The largest client that is not
    // exempt is disconnected, which is not this one.
    let _last = half_a_command(address, 5 * MIB / 2);
    assert!(large.rest().is_empty());
    while info(&mut watcher, "connected_clients") != 6 {
        std::thread::yield_now();
    }
    assert_eq!(info(&mut watcher, "evicted_clients"), 1);
    assert!(info(&mut watcher, "mem_clients_normal") <= 12 * MIB as u64);
    spared.send(&vec![b'x'; 5_000_000 - 4 * MIB]);
    spared.send(b"\r\n");
    assert_eq!(spared.reply(), Reply::bulk("x".repeat(5_000_000)));
    // A lower limit takes effect at once.
    assert_eq!(
        watcher.line("CONFIG SET maxmemory-clients 1mb"),
        Reply::ok()
    );
    assert!(small.rest().is_empty() && queueing.rest().is_empty());
    assert_eq!(watching.line("PING"), Reply::Simple("PONG".into()));
    assert_eq!(watcher.line("CONFIG SET maxmemory-clients 0"), Reply::ok());
    assert_eq!(watcher.line("CONFIG RESETSTAT"), Reply::ok());
    assert_eq!(info(&mut watcher, "evicted_clients"), 0);
}

/// Clients that are exempt from eviction use more than the limit, and nobody is disconnected for
/// it.
#[test]
fn the_memory_of_exempt_clients_does_not_disconnect_others() {
    const LEN: usize = 4 << 20;
    let (_running, address) = start(server());
    let mut watcher = Client::connect(address);
    let limit = "CONFIG SET maxmemory-clients 2mb";
    assert_eq!(watcher.line(limit), Reply::ok());
    let mut spared = Client::connect(address);
    assert_eq!(spared.line("CLIENT NO-EVICT on"), Reply::ok());
    spared.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", LEN + 1000).as_bytes());
    spared.send(&vec![b'x'; LEN]);
    while info(&mut watcher, "mem_clients_normal") < LEN as u64 {
        std::thread::yield_now();
    }
    let mut other = half_a_command(address, 500_000);
    while info(&mut watcher, "mem_clients_normal") < (LEN + 500_000) as u64 {
        std::thread::yield_now();
    }
    other.send(&[b'x'; 1000]);
    other.send(b"\r\n");
    assert_eq!(other.reply(), Reply::bulk("x".repeat(501_000)));
    assert_eq!(info(&mut watcher, "evicted_clients"), 0);
    // They may exceed the limit; the others are limited as before.
    assert!(half_a_command(address, 3 << 20).rest().is_empty());
    assert_eq!(info(&mut watcher, "evicted_clients"), 1);
}

/// A transaction's replies are limited like those of one command. Beyond the limit its reads return
/// nothing, but its writes take effect.
#[test]
fn a_transaction_reads_no_more_than_its_reply_may_have() {
    let (_running, address) = start(server());
    let mut watcher = Client::connect(address);
    watcher.command(&["SET", "large", &"x".repeat(512 << 10)]);
    let limit = "CONFIG SET maxmemory-clients 2mb";
    assert_eq!(watcher.line(limit), Reply::ok());
    let mut client = Client::connect(address);
    let mut request = encode(&["MULTI"]);
    (0..100).for_each(|_| request.extend(encode(&["GET", "large"])));
    request.extend(encode(&["SET", "changed", "1"]));
    request.extend(encode(&["EXEC"]));
    client.send(&request);
    client.rest();
    let hits = info(&mut watcher, "keyspace_hits");
    assert!((1..10).contains(&hits), "{hits}");
    assert_eq!(watcher.line("GET changed"), Reply::bulk("1"));
}

/// A command that handles all its keys at one instant needs hundreds of bytes for each, while a key
/// can be six bytes in the request.
#[test]
fn keys_that_would_take_more_memory_than_all_clients_may_are_refused() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let limit = "CONFIG SET maxmemory-clients 4mb";
    assert_eq!(client.line(limit), Reply::ok());
    let words = |command: &str, keys| {
        let command = command.split(' ').map(str::to_owned);
        command
            .chain((0..keys).map(|key| format!("{key}")))
            .collect::<Vec<_>>()
    };
    for command in [
        "DEL", "EXISTS", "MGET", "TOUCH", "UNLINK", "WATCH", "BITOP OR", "MSET", "MSETNX",
    ] {
        // In the last two commands, every second argument is a key.
        let keys = if command.starts_with("MSET") { 2 } else { 1 };
        let refused = client.command(&words(command, 20_000 * keys));
        let is_refused =
            matches!(&refused, Reply::Error(text) if text.starts_with("ERR too many keys"));
        assert!(is_refused, "{command}: {refused:?}");
        let done = client.command(&words(command, 10_000 * keys));
        assert!(!matches!(done, Reply::Error(_)), "{command}: {done:?}");
    }
    // The future memory of a queued transaction counts.
    let mut queueing = Client::connect(address);
    assert_eq!(queueing.line("MULTI"), Reply::ok());
    let request = encode(&words("EXISTS", 1_000));
    // The client is disconnected during this write.
    let _ = queueing.stream.get_mut().write_all(&request.repeat(20));
    queueing.rest();
    assert_eq!(info(&mut client, "evicted_clients"), 1);
    assert_eq!(client.line("CONFIG SET maxmemory-clients 0"), Reply::ok());
    let all = client.command(&words("EXISTS", 20_000));
    assert_eq!(all, Reply::Integer(10_000));
}

#[test]
fn clients_that_have_not_authenticated_are_disconnected_before_all_others() {
    const LEN: usize = 256 << 10;
    let (_running, address) = start(server().password("secret"));
    let authenticated = || {
        let mut client = Client::connect(address);
        assert_eq!(client.line("AUTH secret"), Reply::ok());
        client
    };
    let (mut watcher, mut user) = (authenticated(), authenticated());
    let limited = watcher.line("CONFIG SET maxmemory-clients 1mb");
    assert_eq!(limited, Reply::ok());
    user.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LEN}\r\n").as_bytes());
    user.send(&vec![b'x'; LEN - 1]);
    while info(&mut watcher, "mem_clients_normal") < LEN as u64 {
        std::thread::yield_now();
    }
    let mut strangers = Vec::new();
    while info(&mut watcher, "evicted_clients") == 0 {
        assert!(strangers.len() < 1_000, "strangers take no memory");
        let mut stranger = Client::connect(address);
        stranger.send(b"*2\r\n$4\r\nAUTH\r\n$16000\r\n");
        stranger.send(&[b'x'; 15_000]);
        strangers.push(stranger);
    }
    // The largest client is still served.
    user.send(b"x\r\n");
    assert_eq!(user.reply(), Reply::ok());
}

#[test]
fn a_percentage_is_one_of_maxmemory() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let get = |client: &mut Client| client.line("CONFIG GET maxmemory-clients").items()[1].text();
    assert_eq!(get(&mut client), "100%");
    assert_eq!(client.line("CONFIG SET maxmemory-clients 2%"), Reply::ok());
    assert_eq!(get(&mut client), "2%");
    for (text, reason) in [
        ("101%", "percentage argument must be less or equal to 100"),
        ("-5%", "argument must be a memory or percent value"),
        ("1.5%", "argument must be a memory or percent value"),
        ("x", "argument must be a memory or percent value"),
    ] {
        let refusal = client.line(&format!("CONFIG SET maxmemory-clients {text}"));
        assert!(refusal.text().ends_with(reason), "{refusal:?}");
    }
    // A fiftieth of 64 MiB is less than this client sends.
    client.send(b"*2\r\n$4\r\nECHO\r\n$2000000\r\n");
    let _ = client.stream.get_mut().write_all(&vec![b'x'; 2_000_000]);
    assert!(client.rest().is_empty());
}

#[test]
fn a_scan_returns_a_bounded_number_of_keys_and_keys_returns_all() {
    let (_running, address) = start(server().memory(128 << 20));
    let mut client = Client::connect(address);
    const KEYS: usize = 3_000;
    for index in 0..KEYS {
        client.send(&encode(&["SET", &format!("{index:01000}"), "x"]));
    }
    (0..KEYS).for_each(|_| assert_eq!(client.reply(), Reply::ok()));
    let (mut cursor, mut found, mut most) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.command(&["SCAN", &cursor, "COUNT", "1000000000"]);
        let keys = reply.items()[1].items();
        most = most.max(keys.len());
        found.extend(keys.iter().map(Reply::text));
        cursor = reply.items()[0].text();
        if cursor == "0" {
            break;
        }
    }
    // A MiB of keys, and one more step.
    assert!(most < 2_500, "{most} keys of 1000 bytes at once");
    let all = client.line("KEYS *0*");
    let mut all: Vec<String> = all.items().iter().map(Reply::text).collect();
    for keys in [&mut all, &mut found] {
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), KEYS);
    }
    assert_eq!(client.line("KEYS nothing"), Reply::Array(Vec::new()));
}
