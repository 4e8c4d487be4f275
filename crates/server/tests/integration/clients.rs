//! What clients can do to each other, and how the server treats inactive clients.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Client, Reply, encode, info, server, start};
use mneme_server::settings::Key;
use mneme_sys::ManualClock;
use mneme_testkit::TestDir;

/// Commands as clients send them, each given as a line.
pub fn pipeline(commands: &[&str]) -> Vec<u8> {
    commands
        .iter()
        .flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>()))
        .collect()
}

/// Waits until that many clients wait for the end of a pause.
fn await_held(client: &mut Client, count: u64) {
    while info(client, "blocked_clients") != count {
        std::thread::yield_now();
    }
}

/// Waits until that many clients are connected.
fn await_connected(client: &mut Client, count: u64) {
    while info(client, "connected_clients") != count {
        std::thread::yield_now();
    }
}

/// A field of a line of `CLIENT LIST`.
pub fn field(line: &str, name: &str) -> String {
    let value = line
        .split(' ')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value
        .unwrap_or_else(|| panic!("no {name} in {line}"))
        .trim()
        .to_owned()
}

fn id(client: &mut Client) -> String {
    let Reply::Integer(id) = client.line("CLIENT ID") else {
        panic!("no number")
    };
    id.to_string()
}

/// The line of another client.
fn line_of(client: &mut Client, id: &str) -> String {
    client.line(&format!("CLIENT LIST ID {id}")).text()
}

#[test]
fn writes_wait_for_the_end_of_a_pause_in_the_order_sent() {
    let (_running, address) = start(server());
    let mut master = Client::connect(address);
    let mut other = Client::connect(address);
    let other_id = id(&mut other);
    assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
    other.send(&pipeline(&[
        "GET n",
        "INCR n",
        "GET n",
        "PING",
        "INCRBY n 5",
        "GET n",
    ]));
    // A command that cannot be executed is refused at once, and reads continue.
    assert_eq!(other.reply(), Reply::Null);
    await_held(&mut master, 1);
    assert_eq!(field(&line_of(&mut master, &other_id), "flags"), "b");
    assert_eq!(master.line("GET n"), Reply::Null);
    assert!(matches!(master.line("INCR"), Reply::Error(_)));
    assert!(matches!(master.line("NOSUCH"), Reply::Error(_)));

    // A transaction that only reads does not wait; one that writes does.
    assert_eq!(master.line("MULTI"), Reply::ok());
    assert_eq!(master.line("GET n"), Reply::Simple("QUEUED".into()));
    assert_eq!(master.line("EXEC"), Reply::Array(vec![Reply::Null]));
    assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
    for expected in [
        Reply::Integer(1),
        Reply::bulk("1"),
        Reply::Simple("PONG".into()),
        Reply::Integer(6),
        Reply::bulk("6"),
    ] {
        assert_eq!(other.reply(), expected);
    }
    assert_eq!(info(&mut master, "blocked_clients"), 0);
}

#[test]
fn a_transaction_queued_before_a_pause_waits_for_its_end() {
    let (_running, address) = start(server());
    let mut master = Client::connect(address);
    let mut other = Client::connect(address);
    for line in ["MULTI", "SET key value"] {
        other.line(line);
    }
    // A pause that a transaction begins does not hold back its remaining commands.
    for line in [
        "MULTI",
        "SET a 1",
        "CLIENT PAUSE 100000000 WRITE",
        "SET b 2",
    ] {
        master.line(line);
    }
    let carried_out = vec![Reply::ok(), Reply::ok(), Reply::ok()];
    assert_eq!(master.line("EXEC"), Reply::Array(carried_out));
    other.send(&encode(&["EXEC"]));
    await_held(&mut master, 1);
    assert_eq!(master.line("EXISTS key"), Reply::Integer(0));
    assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
    assert_eq!(other.reply(), Reply::Array(vec![Reply::ok()]));
}

#[test]
fn messages_wait_for_the_end_of_a_pause_of_writes() {
    let (_running, address) = start(server());
    let [mut master, mut other, mut subscriber] = [0; 3].map(|_| Client::connect(address));
    subscriber.line("SUBSCRIBE a");
    subscriber.line("SSUBSCRIBE a");
    for commands in [
        &["PUBLISH a x"][..],
        &["SPUBLISH a x"],
        &["MULTI", "PUBLISH a x", "EXEC"],
    ] {
        assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
        other.send(&pipeline(commands));
        await_held(&mut master, 1);
        // All that it gets before the end of the pause is the reply to this.
        assert_eq!(subscriber.line("PING").items()[0], Reply::bulk("pong"));
        assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
        commands.iter().for_each(|_| drop(other.reply()));
        assert_eq!(subscriber.reply().items()[2], Reply::bulk("x"));
    }
}

#[test]
fn after_a_pause_is_acknowledged_no_client_writes() {
    let (_running, address) = start(server().threads(4));
    let mut master = Client::connect(address);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..6)
        .map(|_| {
            let stop = Arc::clone(&stop);
            let mut client = Client::connect(address);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    client.send(&encode(&["INCR", "n"]).repeat(50));
                    (0..50).for_each(|_| drop(client.reply()));
                }
            })
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
        let before = master.line("GET n");
        await_held(&mut master, 6);
        assert_eq!(master.line("GET n"), before);
        assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
    }
    stop.store(true, Ordering::Relaxed);
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
}

#[test]
fn a_pause_of_everything_ends_by_time() {
    let clock = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    let shared: Arc<dyn mneme_sys::Clock> = clock.clone();
    let (_running, address) = start(server().clock(shared));
    let mut master = Client::connect(address);
    master.send(&pipeline(&["CLIENT PAUSE 60000", "PING", "SET key value"]));
    assert_eq!(master.reply(), Reply::ok());
    let mut other = Client::connect(address);
    other.send(&pipeline(&["NOSUCH", "GET key"]));
    assert!(matches!(other.reply(), Reply::Error(_)));
    clock.advance_ms(59_999);
    // No thread sleeps: new clients are accepted, and commands that cannot be executed are refused.
    let mut third = Client::connect(address);
    assert!(matches!(third.line("NOSUCH"), Reply::Error(_)));
    master.stream.get_ref().set_nonblocking(true).unwrap();
    let nothing = std::io::Read::read(&mut master.stream, &mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    master.stream.get_ref().set_nonblocking(false).unwrap();
    clock.advance_ms(1);
    assert_eq!(master.reply(), Reply::Simple("PONG".into()));
    assert_eq!(master.reply(), Reply::ok());
    assert!(matches!(other.reply(), Reply::Null | Reply::Bulk(_)));
}

/// Resets the connection, as the system does for a process that is killed with replies unread.
fn reset(client: Client) {
    let stream = client.stream.get_ref();
    let linger = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
    linger.unwrap();
}

#[test]
fn a_held_client_that_has_left_is_disconnected_and_its_command_never_executed() {
    let directory = TestDir::new("held");
    let socket = directory.path().join("socket");
    let (_running, address) = start(server().unix_socket(&socket));
    let mut master = Client::connect(address);
    assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(address);
        client.send(&pipeline(&["INCR ghost", "INCR ghost"]));
        held.push(client);
    }
    let mut by_socket = Vec::new();
    for _ in 0..20 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(&encode(&["INCR", "ghost"])).unwrap();
        by_socket.push(stream);
    }
    await_held(&mut master, 40);
    held.into_iter().for_each(reset);
    drop(by_socket);
    await_connected(&mut master, 1);
    await_held(&mut master, 0);
    assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
    assert_eq!(master.line("EXISTS ghost"), Reply::Integer(0));
}

#[test]
fn a_held_client_that_has_closed_its_side_waits_for_a_bounded_time() {
    let clock = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    let shared: Arc<dyn mneme_sys::Clock> = clock.clone();
    let (_running, address) = start(server().clock(shared));
    let mut master = Client::connect(address);
    assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
    let held = || {
        let mut client = Client::connect(address);
        client.send(&encode(&["INCR", "count"]));
        client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        client
    };
    // The clock is stopped.
    let mut first = held();
    await_held(&mut master, 1);
    assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
    assert_eq!(first.reply(), Reply::Integer(1));
    assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
    let mut second = held();
    await_held(&mut master, 1);
    while info(&mut master, "blocked_clients") > 0 {
        clock.advance_ms(1_000);
        std::thread::yield_now();
    }
    assert_eq!(second.try_reply(), None);
    assert_eq!(master.line("CLIENT UNPAUSE"), Reply::ok());
    assert_eq!(master.line("GET count"), Reply::bulk("1"));
}

#[test]
fn a_server_stops_although_clients_wait_for_the_end_of_a_pause() {
    let (running, address) = start(server());
    let mut master = Client::connect(address);
    assert_eq!(master.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
    let mut other = Client::connect(address);
    other.send(&encode(&["SET", "key", "value"]));
    await_held(&mut master, 1);
    running.shutdown();
    running.join().unwrap();
    assert_eq!(other.try_reply(), None);
}

/// Clients that are served by different threads, with their ids.
fn several(address: SocketAddr, count: usize) -> Vec<(Client, String)> {
    let connect = |_| {
        let mut client = Client::connect(address);
        let id = id(&mut client);
        (client, id)
    };
    (0..count).map(connect).collect()
}

#[test]
fn killed_clients_are_disconnected_on_every_thread() {
    let (_running, address) = start(server().threads(3));
    let mut killer = Client::connect(address);
    let own = id(&mut killer);
    // By id, by the old form, by address, and during a pause that holds one of them back.
    let mut clients = several(address, 6);
    for (mut client, id) in clients.drain(..2) {
        assert_eq!(
            killer.line(&format!("CLIENT KILL ID {id}")),
            Reply::Integer(1)
        );
        assert_eq!(line_of(&mut killer, &id), "");
        assert_eq!(
            killer.line(&format!("CLIENT KILL ID {id}")),
            Reply::Integer(0)
        );
        assert_eq!(client.try_reply(), None);
    }
    let (mut client, id) = clients.pop().unwrap();
    let address_of = field(&line_of(&mut killer, &id), "addr");
    assert_eq!(
        killer.line(&format!("CLIENT KILL {address_of}")),
        Reply::ok()
    );
    assert_eq!(client.try_reply(), None);
    assert_eq!(
        killer.line(&format!("CLIENT KILL {address_of}")),
        Reply::Error("ERR No such client".into())
    );
    let (mut client, id) = clients.pop().unwrap();
    let address_of = field(&line_of(&mut killer, &id), "addr");
    let filters =
        format!("CLIENT KILL ADDR {address_of} LADDR {address} TYPE normal USER default ID {id}");
    assert_eq!(killer.line(&filters), Reply::Integer(1));
    assert_eq!(client.try_reply(), None);
    let (mut client, id) = clients.pop().unwrap();
    killer.line("CLIENT PAUSE 100000000 WRITE");
    client.send(&encode(&["SET", "key", "value"]));
    await_held(&mut killer, 1);
    assert_eq!(
        killer.line(&format!("CLIENT KILL ID {id}")),
        Reply::Integer(1)
    );
    assert_eq!(client.try_reply(), None);
    await_held(&mut killer, 0);
    killer.line("CLIENT UNPAUSE");
    assert_eq!(killer.line("EXISTS key"), Reply::Integer(0));

    // Kills all others, and then itself, after the reply.
    assert_eq!(killer.line("CLIENT KILL TYPE pubsub"), Reply::Integer(0));
    assert_eq!(killer.line("CLIENT KILL TYPE normal"), Reply::Integer(1));
    assert_eq!(clients.pop().unwrap().0.try_reply(), None);
    let suicide = format!("CLIENT KILL ID {own} SKIPME no");
    killer.send(&pipeline(&[suicide.as_str(), "SET key value"]));
    assert_eq!(killer.reply(), Reply::Integer(1));
    assert_eq!(killer.try_reply(), None);
    let mut last = Client::connect(address);
    assert_eq!(last.line("EXISTS key"), Reply::Integer(0));
    await_connected(&mut last, 1);
}

#[test]
fn no_command_of_a_killed_client_is_executed_after_the_reply() {
    let (_running, address) = start(server().threads(2));
    let mut killer = Client::connect(address);
    for _ in 0..30 {
        let (mut victim, id) = several(address, 1).pop().unwrap();
        let mut sender = victim.stream.get_ref().try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let commands = encode(&["INCR", "n"]).repeat(100);
            // Until the connection is closed.
            while std::io::Write::write_all(&mut sender, &commands).is_ok() {}
        });
        assert!(matches!(victim.reply(), Reply::Integer(_)));
        assert_eq!(
            killer.line(&format!("CLIENT KILL ID {id}")),
            Reply::Integer(1)
        );
        let before = killer.line("GET n");
        for _ in 0..20 {
            assert_eq!(killer.line("GET n"), before);
        }
        drop(victim);
        sending.join().unwrap();
    }
}

#[test]
fn idle_clients_are_disconnected_and_others_are_not() {
    let clock = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    let shared: Arc<dyn mneme_sys::Clock> = clock.clone();
    let (_running, address) = start(server().clock(shared).set(Key::Timeout, "10").unwrap());
    let mut steady = Client::connect(address);
    let mut silent = Client::connect(address);
    for client in [&mut steady, &mut silent] {
        assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    }
    assert_eq!(
        steady.line("CONFIG GET timeout"),
        Reply::Array(vec![Reply::bulk("timeout"), Reply::bulk("10")])
    );
    for _ in 0..3 {
        clock.advance_ms(4_000);
        assert_eq!(steady.line("PING"), Reply::Simple("PONG".into()));
    }
    assert_eq!(silent.try_reply(), None);
    await_connected(&mut steady, 1);
}

#[test]
fn replies_are_suppressed_also_for_batched_commands() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let many = |name: &str| {
        encode(&[name, "key", "value"][..if name == "GET" { 2 } else { 3 }]).repeat(200)
    };
    client.send(&pipeline(&["CLIENT REPLY OFF"]));
    client.send(
        &[
            many("SET"),
            many("GET"),
            pipeline(&["NOSUCH", "GET", "CLIENT REPLY SKIP"]),
        ]
        .concat(),
    );
    client.send(&pipeline(&[
        "CLIENT REPLY foo",
        "GET key",
        "CLIENT REPLY ON",
        "GET key",
    ]));
    assert_eq!(client.reply(), Reply::ok());
    assert_eq!(client.reply(), Reply::bulk("value"));

    // One command without a reply, whichever it is.
    client.send(&[pipeline(&["CLIENT REPLY SKIP"]), many("SET"), many("GET")].concat());
    for _ in 0..199 {
        assert_eq!(client.reply(), Reply::ok());
    }
    for _ in 0..200 {
        assert_eq!(client.reply(), Reply::bulk("value"));
    }
    client.send(&[pipeline(&["CLIENT REPLY SKIP", "NOSUCH", "PING"])].concat());
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    client.send(&pipeline(&[
        "CLIENT REPLY SKIP",
        "CLIENT REPLY SKIP",
        "PING",
        "ECHO a",
    ]));
    assert_eq!(client.reply(), Reply::bulk("a"));
    client.send(&pipeline(&["CLIENT REPLY OFF", "QUIT"]));
    assert_eq!(client.rest(), b"");
}

#[test]
fn client_list_shows_every_client_as_it_is() {
    let (_running, address) = start(server());
    let mut observer = Client::connect(address);
    let mut other = Client::connect(address);
    let id = id(&mut other);
    let mut shows = |fields: &[(&str, &str)]| {
        let line = line_of(&mut observer, &id);
        for (name, value) in fields {
            assert_eq!(field(&line, name), *value, "{name} in {line}");
        }
        line
    };
    shows(&[
        ("flags", "N"),
        ("multi", "-1"),
        ("qbuf", "0"),
        ("obl", "0"),
        ("omem", "0"),
        ("cmd", "client|id"),
    ]);
    other.line("SELECT 3");
    other.line("CLIENT NO-EVICT on");
    shows(&[("db", "3"), ("flags", "e"), ("cmd", "client|no-evict")]);
    other.line("CLIENT NO-EVICT off");
    other.line("WATCH key");
    other.line("MULTI");
    shows(&[("flags", "x"), ("multi", "0"), ("multi-mem", "0")]);
    other.line("SET key value");
    let line = shows(&[("flags", "x"), ("multi", "1")]);
    assert!(field(&line, "multi-mem").parse::<usize>().unwrap() >= 11);
    let mut third = Client::connect(address);
    third.line("SELECT 3");
    third.line("SET key else");
    shows(&[("flags", "xd"), ("multi", "1")]);
    assert_eq!(other.line("EXEC"), Reply::Null);
    shows(&[("flags", "N"), ("multi", "-1")]);
    other.line("NOSUCH");
    shows(&[("cmd", "NULL")]);
    // Half a command is kept, and its memory is shown, until the rest arrives.
    other.send(b"PING\r\n*2\r\n$4\r\nECHO\r\n$3\r\nab");
    assert_eq!(other.reply(), Reply::Simple("PONG".into()));
    shows(&[("cmd", "ping"), ("qbuf", "20")]);
    other.send(b"c\r\n");
    assert_eq!(other.reply(), Reply::bulk("abc"));
    shows(&[("qbuf", "0")]);

    let own = third.line("CLIENT LIST").text();
    let own = own.lines().last().unwrap();
    assert_eq!(
        (field(own, "qbuf"), field(own, "argv-mem")),
        ("26".into(), "10".into())
    );
    assert_eq!(field(own, "cmd"), "client|list");
}

#[test]
fn the_allowed_number_of_twenty_thousand_connections_is_served() {
    let most = 500;
    let path = std::env::temp_dir().join(format!("mneme-clients-{}.sock", std::process::id()));
    // Over a unix socket: loopback ports are few, and other tests need some.
    let (_running, address) = start(server().max_clients(most).unix_socket(&path));
    let mut within = Vec::new();
    let mut refused = 0;
    for attempt in 0..20_000 {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        if attempt < most {
            std::io::Write::write_all(&mut stream, b"PING\r\n").unwrap();
            let mut reply = [0; 7];
            std::io::Read::read_exact(&mut stream, &mut reply).unwrap();
            assert_eq!(&reply, b"+PONG\r\n");
            within.push(stream);
            continue;
        }
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert_eq!(answer, "-ERR max number of clients reached\r\n");
        refused += 1;
    }
    assert_eq!(refused, 20_000 - most);
    // The clients that were served still are, and each that disconnects makes place for another.
    for stream in &mut within {
        std::io::Write::write_all(stream, b"ECHO a\r\n").unwrap();
        let mut reply = [0; 7];
        std::io::Read::read_exact(stream, &mut reply).unwrap();
        assert_eq!(&reply, b"$1\r\na\r\n");
    }
    within.truncate(most - 2);
    let mut late = loop {
        let mut late = Client::connect(address);
        late.send(b"PING\r\n");
        match late.try_reply() {
            Some(Reply::Simple(pong)) if pong == "PONG" => break late,
            _ => std::thread::yield_now(),
        }
    };
    assert!(info(&mut late, "rejected_connections") >= refused as u64);
}

#[test]
fn inline_commands_are_unchanged_after_waiting_for_a_pause() {
    let (_running, address) = start(server());
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    assert_eq!(other.line("CLIENT PAUSE 100000 WRITE"), Reply::ok());
    client.send(b"SET \"a b\" 'c \\'d'\r\nINCRBY \"k\" 5\r\nGET \"a b\"\r\nSET half");
    // Once it is counted, it waits.
    while !other
        .line("INFO clients")
        .text()
        .contains("blocked_clients:1")
    {}
    assert_eq!(other.line("CLIENT UNPAUSE"), Reply::ok());
    client.send(b" done\r\n");
    for expected in [
        Reply::ok(),
        Reply::Integer(5),
        Reply::bulk("c 'd"),
        Reply::ok(),
    ] {
        assert_eq!(client.reply(), expected);
    }
}

#[test]
fn suppressed_replies_are_left_out_however_long_they_are() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.command(&["SET", "big", &"v".repeat(300_000)]);
    client.send(b"CLIENT REPLY SKIP\r\nGET big\r\nPING\r\n");
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    client.send(b"CLIENT REPLY OFF\r\n");
    client.send(&b"GET big\r\n".repeat(8));
    client.send(b"CLIENT REPLY ON\r\nPING\r\n");
    assert_eq!(client.reply(), Reply::ok());
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
}

/// An idle client is detected by its own thread, which sleeps.
#[test]
fn a_timeout_that_is_set_later_holds_for_connected_clients() {
    let (_running, address) = start(server().threads(2));
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    }
    let mut steady = clients.pop().unwrap();
    assert_eq!(steady.line("CONFIG SET timeout 1"), Reply::ok());
    // This client itself is not idle.
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for client in &mut clients {
                assert_eq!(client.try_reply(), None);
            }
            gone.store(true, Ordering::SeqCst);
        });
        while !gone.load(Ordering::SeqCst) {
            assert_eq!(steady.line("PING"), Reply::Simple("PONG".into()));
        }
    });
}

#[test]
fn clients_are_listed_as_asked_for_however_many() {
    let (_running, address) = start(server());
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(address)).collect();
    let ids: Vec<_> = clients.iter_mut().map(id).collect();
    let asked = [&ids[2], &ids[0], "999999", &ids[2], &ids[1]];
    let listed = |client: &mut Client, asked: &[&str]| -> Vec<String> {
        let lines = client.command(&[&["CLIENT", "LIST", "ID"], asked].concat());
        lines.text().lines().map(|line| field(line, "id")).collect()
    };
    let expected = [&ids[2], &ids[0], &ids[2], &ids[1]].map(String::clone);
    assert_eq!(listed(&mut clients[0], &asked), expected);
    let many: Vec<&str> = asked
        .iter()
        .map(|id| &id[..])
        .cycle()
        .take(50_000)
        .collect();
    assert_eq!(listed(&mut clients[0], &many).len(), 40_000);
    // A reply that may not be sent is not built either.
    let limit = "CONFIG SET client-output-buffer-limit";
    let limit = limit
        .split(' ')
        .chain(["normal 1mb 0 0"])
        .collect::<Vec<_>>();
    assert_eq!(clients[1].command(&limit), Reply::ok());
    clients[0].send(&encode(&[&["CLIENT", "LIST", "ID"], &many[..]].concat()));
    assert!(clients[0].rest().len() < 4 << 20);
}

#[test]
fn a_password_that_no_client_could_give_is_refused() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let set = |client: &mut Client, password: &[u8]| {
        client.command(&[&b"CONFIG"[..], b"SET", b"requirepass", password])
    };
    // If the bytes were converted, it would be a password that no client can give.
    let refused = set(&mut client, b"p\xffw");
    assert_eq!(
        refused,
        Reply::Error(
            "ERR CONFIG SET failed (possibly related to argument 'requirepass') - argument must be UTF-8 text".into()
        )
    );
    assert_eq!(
        Client::connect(address).line("PING"),
        Reply::Simple("PONG".into())
    );
    let password = "pä\0ss\r\nwörd";
    assert_eq!(set(&mut client, password.as_bytes()), Reply::ok());
    let mut newcomer = Client::connect(address);
    for wrong in [&b"p\xffw"[..], b"", b"p", "pä\0ss\r\nwörD".as_bytes()] {
        let refused = newcomer.command(&[b"AUTH", wrong]).text();
        assert!(refused.starts_with("WRONGPASS "), "{refused}");
    }
    assert_eq!(
        newcomer.command(&["AUTH", "default", password]),
        Reply::ok()
    );
    assert_eq!(newcomer.line("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn a_limit_that_is_set_later_holds_for_connected_clients() {
    let (_running, address) = start(server());
    let mut greedy = Client::connect(address);
    greedy.command(&["SET", "key", &"x".repeat(1 << 20)]);
    let mut other = Client::connect(address);
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "normal 8mb 0 0",
    ];
    assert_eq!(other.command(&limit), Reply::ok());
    greedy.send(&encode(&[vec!["MGET"], vec!["key"; 100]].concat()));
    assert!(greedy.rest().len() < 64 << 20);
    // So is a client with one command that is too long, complete or not.
    assert_eq!(
        other.line("CONFIG SET client-query-buffer-limit 1mb"),
        Reply::ok()
    );
    let mut lengthy = Client::connect(address);
    let mut sender = lengthy.stream.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let started = sender.write_all(b"*2\r\n$4\r\nECHO\r\n$4194304\r\n");
        started.and_then(|()| sender.write_all(&vec![b'x'; 4 << 20]))
    });
    assert!(lengthy.rest().is_empty());
    // The connection may have been closed while the client was still sending.
    let _ = sending.join().unwrap();
    assert_eq!(other.line("PING"), Reply::Simple("PONG".into()));
}
