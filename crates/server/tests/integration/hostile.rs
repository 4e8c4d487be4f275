//! Malicious and broken clients harm nobody but themselves.

use std::io::Write;
use std::net::{IpAddr, Shutdown, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Client, Reply, bounded, encode, info, server, start};
use mneme_server::settings::Key;
use mneme_testkit::TestDir;

#[test]
fn broken_requests_get_redis_errors_and_are_disconnected() {
    let (_running, address) = start(server());
    let mut bystander = Client::connect(address);
    let long = vec![b'x'; 70_000];
    for (request, error) in [
        (&b"*1\r\n$536870913\r\n"[..], "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"*99999999999\r\n", "invalid multibulk length"),
        (b"*1x\r\n", "invalid multibulk length"),
        (b"*2\r\n$3\r\nGET\r\n:1\r\n", "expected '$', got ':'"),
        (b"\"GET\r\n", "unbalanced quotes in request"),
        (&long, "too big inline request"),
        (b"GET \x00\r\n", "another protocol than that of Redis"),
        (
            b"GET '\x00' and no end",
            "another protocol than that of Redis",
        ),
    ] {
        let mut client = Client::connect(address);
        // The commands before the error are executed.
        client.send(&[b"PING\r\n", request].concat());
        let expected = format!("+PONG\r\n-ERR Protocol error: {error}\r\n");
        assert_eq!(String::from_utf8_lossy(&client.rest()), expected);
        assert_eq!(bystander.line("PING"), Reply::Simple("PONG".into()));
    }
}

#[test]
fn a_web_page_cannot_send_commands_through_a_browser() {
    let (_running, address) = start(server());
    let (_guarded, guarded) = start(server().password("secret"));
    let mut bystander = Client::connect(address);
    bystander.command(&["SET", "key", "value"]);
    for request in [
        &b"POST / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n"[..],
        b"post / HTTP/1.1\r\nFLUSHALL\r\n",
        b"GET / HTTP/1.1\r\nHOST: x\r\n\r\nFLUSHALL\r\n",
        b"PUT / HTTP/1.1\r\nAccept: *\r\nhost: x\r\n\r\nFLUSHALL\r\n",
        b"MULTI\r\nPOST\r\nFLUSHALL\r\nEXEC\r\n",
        b"*1\r\n$4\r\nPOST\r\n*1\r\n$8\r\nFLUSHALL\r\n",
    ] {
        let mut page = Client::connect(address);
        page.send(request);
        let answer = String::from_utf8_lossy(&page.rest()).into_owned();
        assert!(!answer.contains("POST"), "{answer}");
        assert_eq!(bystander.line("EXISTS key"), Reply::Integer(1), "{answer}");
        // Also for a client that has not authenticated yet.
        let mut page = Client::connect(guarded);
        page.send(&[request, b"AUTH secret\r\n"].concat());
        let answer = String::from_utf8_lossy(&page.rest()).into_owned();
        assert!(!answer.contains("OK"), "{answer}");
    }
}

/// The first record of a TLS client. `chosen` is in the places that an attacker can control: the
/// session's name, and the server's.
fn client_hello(record: [u8; 2], hello: [u8; 2], random: u8, chosen: &[u8]) -> Vec<u8> {
    let short = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
    let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let name = long(&[&[0], &long(chosen)[..]].concat());
    let extensions = long(&[&[0, 0], &long(&name)[..]].concat());
    let body = [
        &hello,
        &[random; 32][..],
        &short(chosen),
        &long(&[0x13, 0x01, 0xc0, 0x2f]),
        &short(&[0]),
        &extensions,
    ]
    .concat();
    let message = [&[1, 0], &long(&body)[..]].concat();
    [&[0x16], &record[..], &long(&message)].concat()
}

/// A frame of HTTP/2.
fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, 0, 0, 0, 0, stream], payload].concat()
}

#[test]
fn a_client_of_another_protocol_has_no_command_executed() {
    let (_running, address) = start(server());
    let mut bystander = Client::connect(address);
    bystander.command(&["SET", "key", "value"]);
    let chosen = &b"\r\nFLUSHALL\r\nINCR ghost\r\n"[..];
    let mut greetings = Vec::new();
    for record in [[3, 0], [3, 1], [3, 2], [3, 3]] {
        for (hello, random) in [([3, 1], b'\n'), ([3, 3], b'x'), ([3, 4], 0)] {
            greetings.push(client_hello(record, hello, random, chosen));
        }
    }
    // A hello of SSL 2, an alert, and data without a handshake.
    greetings.push([&b"\x80\x2e\x01\x03\x01\x00\x15"[..], chosen].concat());
    greetings.push([&b"\x15\x03\x01\x00\x02"[..], chosen].concat());
    greetings.push([&b"\x17\x03\x03\x00\x20"[..], chosen].concat());
    let frames = [frame(4, 0, &[0, 3, 0, 0, 0, 100]), frame(1, 1, chosen)].concat();
    greetings.push([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frames[..]].concat());
    greetings.push([b"PRI * HTTP/2.0\r\nFLUSHALL\r\n", &frames[..]].concat());
    greetings.push(frames);
    greetings.push(frame(0, 1, &chosen.repeat(400)));
    for method in ["GET", "POST", "PUT", "OPTIONS"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n");
        greetings.push([head.as_bytes(), chosen].concat());
    }
    // The banner of SSH, and its first packet.
    let packet = [
        &b"SSH-2.0-OpenSSH_9.6\r\n\x00\x00\x01\x14\x06\x14"[..],
        chosen,
    ]
    .concat();
    greetings.push(packet);
    // A memcached client with the binary protocol.
    greetings.push([&b"\x80\x01\x00\x03\x08\x00\x00\x00"[..], chosen].concat());
    // A client of PostgreSQL, one of MySQL after the server's greeting, and a DNS query over TCP.
    greetings.push([&b"\x00\x00\x00\x08\x04\xd2\x16\x2f"[..], chosen].concat());
    greetings.push([&b"\x55\x00\x00\x01\x85\xa6\x3f\x20"[..], chosen].concat());
    greetings.push([&b"\x00\x2a\xbe\xef\x01\x00\x00\x01"[..], chosen].concat());
    let before = info(&mut bystander, "total_commands_processed");
    for (done, greeting) in greetings.iter().enumerate() {
        for cut in [greeting.len(), 1, 2, 7] {
            let mut client = Client::connect(address);
            let (first, rest) = greeting.split_at(cut);
            client.send(first);
            // Once the server has closed the connection, writes fail.
            let _ = client.stream.get_mut().write_all(rest);
            let answer = String::from_utf8_lossy(&client.rest()).into_owned();
            assert!(!answer.contains("OK"), "{done}: {answer}");
        }
    }
    // One command more: the query itself.
    let after = info(&mut bystander, "total_commands_processed");
    assert_eq!(after, before + 1);
    assert_eq!(bystander.line("EXISTS key ghost"), Reply::Integer(1));
}

/// By its bytes, a mail cannot be distinguished from inline commands; it is harmless since its
/// words are not commands.
#[test]
fn a_mail_clients_words_are_not_commands() {
    let (_running, address) = start(server());
    let mut bystander = Client::connect(address);
    let before = info(&mut bystander, "total_commands_processed");
    let mut client = Client::connect(address);
    for line in [
        "EHLO x",
        "MAIL FROM:<a@x>",
        "RCPT TO:<b@x>",
        "DATA",
        "RSET",
        "STARTTLS",
    ] {
        client.send(format!("{line}\r\n").as_bytes());
        assert!(matches!(client.reply(), Reply::Error(_)), "{line}");
    }
    let after = info(&mut bystander, "total_commands_processed");
    assert_eq!(after, before + 1);
}

#[test]
fn disconnecting_within_a_command_leaves_nothing_behind() {
    let (_running, address) = start(server());
    let mut bystander = Client::connect(address);
    let whole = encode(&["SET", "key", "value"]);
    for cut in 0..whole.len() {
        let mut client = Client::connect(address);
        client.send(&whole[..cut]);
        drop(client);
    }
    let mut client = Client::connect(address);
    client.send(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100000000\r\nabc");
    drop(client);
    // The server notices the disconnect after a while.
    while info(&mut bystander, "connected_clients") > 1 {
        std::thread::yield_now();
    }
    assert_eq!(bystander.line("EXISTS key"), Reply::Integer(0));
}

#[test]
fn a_half_closed_client_gets_all_its_replies() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let value = "x".repeat(1000);
    client.command(&["SET", "key", &value]);
    client.send(&encode(&["GET", "key"]).repeat(5000));
    client.send(b"*2\r\n$3\r\nGET\r\n$3\r\nke");
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    let one = format!("$1000\r\n{value}\r\n");
    assert!(client.rest() == one.repeat(5000).into_bytes());
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let (_running, address) = start(bounded(server().threads(1), 64 << 10, 512 << 20));
    let mut bystander = Client::connect(address);
    let value = "x".repeat(100_000);
    bystander.command(&["SET", "key", &value]);
    let before = info(&mut bystander, "total_commands_processed");

    let mut slow = Client::connect(address);
    let mut sender = slow.stream.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        sender
            .write_all(&encode(&["GET", "key"]).repeat(3000))
            .unwrap()
    });
    // The commands that fit into the sockets' buffers and the limit have been executed, the rest
    // not, and others are served. The test must be short: the server reads a little more from such
    // a client after each second.
    for _ in 0..100 {
        let executed = info(&mut bystander, "total_commands_processed") - before;
        assert!(
            executed < 2000,
            "300 MB of replies would have been buffered"
        );
    }
    let expected = Reply::bulk(&value);
    for _ in 0..3000 {
        assert!(slow.reply() == expected);
    }
    sending.join().unwrap();
}

#[test]
fn a_client_that_sends_all_before_it_reads_is_served_in_the_end() {
    let (_running, address) = start(bounded(server(), 4 << 20, 512 << 20));
    let mut client = Client::connect(address);
    let value = "x".repeat(10_000);
    client.command(&["SET", "key", &value]);
    // Both requests and replies fill the sockets' buffers many times over: if the server never
    // exceeded its limit, neither side could continue.
    let padding = "p".repeat(5_000);
    client.send(
        &[encode(&["GET", "key"]), encode(&["EXISTS", &padding])]
            .concat()
            .repeat(3_000),
    );
    let expected = Reply::bulk(&value);
    for _ in 0..3_000 {
        assert!(client.reply() == expected);
        assert_eq!(client.reply(), Reply::Integer(0));
    }
}

#[test]
fn replies_beyond_the_limit_end_the_connection() {
    let (_running, address) = start(bounded(server(), 64 << 10, 8 << 20));
    let mut bystander = Client::connect(address);
    bystander.command(&["SET", "key", &"x".repeat(1 << 20)]);
    let mut greedy = Client::connect(address);
    let request: Vec<&str> = std::iter::once("MGET")
        .chain(std::iter::repeat_n("key", 100))
        .collect();
    greedy.send(&encode(&request));
    assert!(greedy.rest().len() < 100 << 20);
    assert_eq!(bystander.line("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn clients_beyond_the_limit_get_an_error() {
    let (_running, address) = start(server().max_clients(3));
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    }
    let refused = Client::connect(address).rest();
    assert_eq!(refused, b"-ERR max number of clients reached\r\n");
    assert_eq!(info(&mut clients[0], "rejected_connections"), 1);
    clients.pop();
    while info(&mut clients[0], "connected_clients") > 2 {
        std::thread::yield_now();
    }
    assert_eq!(
        Client::connect(address).line("PING"),
        Reply::Simple("PONG".into())
    );
}

#[test]
fn refused_attempts_do_not_disturb_connected_clients() {
    const CLIENTS: usize = 200;
    const CALLERS: usize = 4;
    const EACH: usize = 5_000;
    // Fewer than the queue of waiting connections holds.
    const AT_ONCE: usize = 100;
    let (_running, address) = start(server().max_clients(CLIENTS));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    }
    let left = AtomicUsize::new(CALLERS);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                for _ in 0..EACH / AT_ONCE {
                    let crowd: Vec<_> = (0..AT_ONCE).map(|_| Client::connect(address)).collect();
                    for mut refused in crowd {
                        let answer = refused.rest();
                        assert_eq!(answer, b"-ERR max number of clients reached\r\n");
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let mut rounds = 0;
        while left.load(Ordering::SeqCst) > 0 || rounds == 0 {
            rounds += 1;
            let value = rounds.to_string();
            for (index, client) in clients.iter_mut().enumerate() {
                let key = index.to_string();
                client.send(&[encode(&["SET", &key, &value]), encode(&["GET", &key])].concat());
            }
            for client in &mut clients {
                assert_eq!(client.reply(), Reply::ok());
                assert_eq!(client.reply(), Reply::bulk(&value));
            }
        }
    });
    let attempts = (CALLERS * EACH) as u64;
    assert_eq!(info(&mut clients[0], "rejected_connections"), attempts);
    assert_eq!(info(&mut clients[0], "connected_clients"), CLIENTS as u64);
    assert_eq!(clients[0].line("DBSIZE"), Reply::Integer(CLIENTS as i64));
}

/// An address of this machine other than loopback. Connecting a UDP socket sends nothing.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn outsiders_are_denied_without_a_password() {
    let Some(outside) = outside_address() else {
        eprintln!("skipped: this machine has no address but loopback");
        return;
    };
    let bound = || server().bind(["0.0.0.0".parse().unwrap()]);
    let (_running, address) = start(bound());
    let mut outsider = Client::connect((outside, address.port()).into());
    let denied = outsider.rest();
    assert!(denied.starts_with(b"-DENIED ") && denied.ends_with(b"\r\n"));
    let mut insider = Client::connect(([127, 0, 0, 1], address.port()).into());
    assert_eq!(insider.line("PING"), Reply::Simple("PONG".into()));

    let (_open, address) = start(bound().set(Key::ProtectedMode, "no").unwrap());
    let mut outsider = Client::connect((outside, address.port()).into());
    assert_eq!(outsider.line("PING"), Reply::Simple("PONG".into()));
    let (_guarded, address) = start(bound().password("secret"));
    let mut outsider = Client::connect((outside, address.port()).into());
    assert_eq!(outsider.line("AUTH secret"), Reply::ok());
}

/// Each backup needs as much of the disk as the data, and the client chooses the names.
#[test]
fn backups_are_for_connections_of_this_machine_unless_said_otherwise() {
    let directory = TestDir::new("backups");
    let allowed = |enabled: Option<&str>, ip: IpAddr| {
        let kept = server().data(directory.join("data"));
        let kept = match enabled {
            Some(word) => kept.set(Key::EnableBackup, word).unwrap(),
            None => kept,
        };
        let bound = kept.bind(["0.0.0.0".parse().unwrap()]);
        let (running, address) = start(bound.set(Key::ProtectedMode, "no").unwrap());
        let mut client = Client::connect((ip, address.port()).into());
        let reply = client.line("MNEME BACKUP one");
        // Reporting on the last backup needs no space.
        assert!(matches!(client.line("MNEME BACKUP"), Reply::Array(_)));
        running.shutdown();
        running.join().unwrap();
        match reply {
            Reply::Integer(_) => true,
            refused => {
                let refused = refused.text();
                let says = "MNEME BACKUP command not allowed. If the enable-backup-command option";
                assert!(refused.contains(says), "{refused}");
                false
            }
        }
    };
    let loopback = IpAddr::from([127, 0, 0, 1]);
    assert!(allowed(None, loopback));
    assert!(!allowed(Some("no"), loopback));
    match outside_address() {
        Some(outside) => {
            assert!(!allowed(None, outside));
            assert!(allowed(Some("yes"), outside));
        }
        None => eprintln!("the rest is skipped: this machine has no address but loopback"),
    }
}

#[test]
fn a_thousand_connections_that_come_and_go_do_not_disturb() {
    let (_running, address) = start(server());
    let mut steady = Client::connect(address);
    for round in 0..10 {
        let mut crowd: Vec<_> = (0..100).map(|_| Client::connect(address)).collect();
        for (index, client) in crowd.iter_mut().enumerate() {
            client.send(&encode(&["SET", &format!("{round}:{index}"), "x"]));
        }
        crowd
            .iter_mut()
            .for_each(|client| assert_eq!(client.reply(), Reply::ok()));
        assert_eq!(steady.line("PING"), Reply::Simple("PONG".into()));
    }
    assert_eq!(steady.line("DBSIZE"), Reply::Integer(1000));
}

#[test]
fn one_command_does_not_build_more_than_may_be_sent() {
    let (_running, address) = start(bounded(server(), 1 << 20, 8 << 20));
    let mut client = Client::connect(address);
    client.command(&["SET", "k", &"v".repeat(1 << 20)]);
    // Ten GiB if the reply were built.
    client.send(&encode(&[vec!["MGET"], vec!["k"; 10_000]].concat()));
    // Disconnected after at most the permitted length.
    assert!(client.rest().len() < 16 << 20);
    assert_eq!(
        Client::connect(address).line("PING"),
        Reply::Simple("PONG".into())
    );
}

#[test]
fn slow_readers_of_large_values_keep_nothing_in_a_full_store() {
    const LARGE: usize = 3 << 20;
    let forgetful = server().set(Key::MaxMemoryPolicy, "allkeys-lru").unwrap();
    let (_running, address) = start(forgetful);
    let mut writer = Client::connect(address);
    let value = |key: usize| {
        let mut bytes = key.to_string().into_bytes();
        bytes.resize(LARGE, key as u8);
        bytes
    };
    // Each client requests its own values, first one and then two at once, and reads nothing. No
    // socket's buffer is that large.
    let mut slow = Vec::new();
    for key in 0..4 {
        let (name, mut client) = (key.to_string(), Client::connect(address));
        assert_eq!(
            writer.command(&[b"SET", name.as_bytes(), &value(key)]),
            Reply::ok()
        );
        client.send(&encode(&["GET", &name]));
        client.send(&[encode(&["PING"]), encode(&["GET", &name]).repeat(2)].concat());
        client.send(&encode(&["PING"]));
        slow.push(client);
    }
    let before = info(&mut writer, "evicted_keys");
    // Many times the store's capacity; values are only removed by eviction.
    for round in 0..20_000 {
        let key = format!("small-{round}");
        assert_eq!(
            writer.command(&["SET", &key, &"x".repeat(5_000)]),
            Reply::ok()
        );
    }
    assert!(info(&mut writer, "evicted_keys") > before);
    for (key, client) in slow.iter_mut().enumerate() {
        let whole = Reply::Bulk(value(key));
        let pong = Reply::Simple("PONG".into());
        assert!(client.reply() == whole, "{key}");
        assert_eq!(client.reply(), pong);
        assert!(client.reply() == whole && client.reply() == whole, "{key}");
        assert_eq!(client.reply(), pong);
    }
}

#[test]
fn large_and_small_replies_keep_their_order() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let value = |len: usize| -> Vec<u8> { (0..len).map(|i| (i % 251) as u8).collect() };
    let lens = [1, 65_535, 65_536, 300_000, 1 << 20, 5 << 20];
    for len in lens {
        client.command(&[b"SET", len.to_string().as_bytes(), &value(len)]);
    }
    let pipeline: Vec<u8> = lens
        .iter()
        .flat_map(|len| {
            let get = encode(&["GET", &len.to_string()]);
            let others = [vec!["MULTI"], vec!["GET", "65536"], vec!["EXEC"]].map(|c| encode(&c));
            [
                get.clone(),
                get,
                encode(&["ECHO", "between"]),
                others.concat(),
            ]
            .concat()
        })
        .collect();
    client.send(&pipeline);
    for len in lens {
        let whole = Reply::Bulk(value(len));
        assert!(client.reply() == whole && client.reply() == whole, "{len}");
        assert_eq!(client.reply(), Reply::bulk("between"));
        assert_eq!(client.reply(), Reply::ok());
        assert_eq!(client.reply(), Reply::Simple("QUEUED".into()));
        assert!(client.reply() == Reply::Array(vec![Reply::Bulk(value(65_536))]));
    }
    client.send(
        &[
            encode(&["CLIENT", "REPLY", "OFF"]),
            encode(&["GET", "300000"]),
        ]
        .concat(),
    );
    client.send(&encode(&["CLIENT", "REPLY", "SKIP"]));
    client.send(&[encode(&["CLIENT", "REPLY", "ON"]), encode(&["PING"])].concat());
    assert_eq!(client.reply(), Reply::ok());
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
}
