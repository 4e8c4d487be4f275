//! A server hands over to its successor, whatever else connects, and whatever ends the server
//! meanwhile.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Client, Reply, encode, info, server, start};
use mneme_log::LogStore;
use mneme_server::settings::{Key, Settings};
use mneme_server::{Ended, Handover, HandoverError, HandoverSocket, Listeners};
use mneme_server::{Running, StartError};
use mneme_sys::medium::{DirectoryError, FileDirectory};
use mneme_testkit::TestDir;

/// A directory like that of a segment, removed at the end of the test.
struct Directory(TestDir);

impl Directory {
    fn new(test: &str) -> Self {
        Self(TestDir::on_disk(test))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("server.sock")
    }

    fn listen(&self, running: &Running) -> HandoverSocket {
        HandoverSocket::listen(&self.0, running.stopper()).unwrap()
    }
}

/// Ends a server that retires, and returns the sockets for its successor.
fn retired(running: Running) -> Listeners {
    match running.join().unwrap() {
        Ended::Retired(listeners) => listeners,
        Ended::Stopped => panic!("it was stopped"),
    }
}

/// Grants the successor's request. Returns the result, and the resources that the old server still
/// has.
fn grant(
    mut listeners: Listeners,
    socket: HandoverSocket,
) -> (Result<(), HandoverError>, Listeners) {
    let mut request = socket.into_request().unwrap();
    (request.grant(&mut listeners), listeners)
}

#[test]
fn a_silent_connection_does_not_keep_the_successor_out() {
    let directory = Directory::new("silent");
    let (running, _) = start(server());
    let socket = directory.listen(&running);
    // If they were waited for in turn, that would take longer than a successor waits for its
    // answer.
    let mut silent: Vec<_> = (0..2)
        .map(|_| UnixStream::connect(directory.socket()).unwrap())
        .collect();
    // The other one requests the sockets, and sends nothing more.
    silent[1].write_all(b"hand over 1\n").unwrap();
    let successor = Handover::ask(&directory.0).unwrap();
    let old = std::thread::spawn(move || {
        let (granted, _) = grant(retired(running), socket);
        granted.unwrap();
    });
    let (listeners, taken) = successor.take(&Settings::default()).unwrap();
    let next = server().listeners(listeners).start().unwrap();
    taken.unwrap().serving().unwrap();
    old.join().unwrap();
    drop((next, silent));
}

/// The lock of the data directory passes from one server to the next, and is never released in
/// between.
#[test]
fn the_lock_of_the_data_is_handed_over_with_the_sockets() {
    let directory = Directory::new("locked");
    let data = directory.0.join("data");
    let (running, address) = start(server().data(&data));
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET kept yes"), Reply::ok());
    let socket = directory.listen(&running);
    let successor = Handover::ask(&directory.0).unwrap();
    let is_locked = || {
        matches!(
            FileDirectory::open(&data),
            Err(DirectoryError::Locked { .. })
        )
    };
    let (has_ended, stays_locked) = std::thread::scope(|scope| {
        let old = scope.spawn(|| {
            let sockets = retired(running);
            assert!(is_locked());
            let (granted, _) = grant(sockets, socket);
            granted.unwrap();
        });
        let (sockets, taken) = successor.take(&Settings::default()).unwrap();
        let next = server().data(&data).listeners(sockets).start().unwrap();
        taken.unwrap().serving().unwrap();
        old.join().unwrap();
        assert!(is_locked());
        let mut client = Client::connect(next.addresses()[0]);
        assert_eq!(client.line("GET kept"), Reply::bulk("yes"));
        next.shutdown();
        (next.join().is_ok(), is_locked())
    });
    assert!(has_ended && !stays_locked);
}

/// A server that continues because its successor is late finds that the successor has the data, and
/// waits for it. So two servers never write at once, even without a segment to prevent it. A tree
/// has a lock of its own.
#[test]
fn a_server_whose_late_successor_has_the_data_finds_it_served() {
    for form in ["journal", "tree"] {
        finds_it_served(form);
    }
}

fn finds_it_served(form: &str) {
    let directory = Directory::new(&format!("late-{form}"));
    let data = directory.0.join("data");
    let kept = || server().data(&data).set(Key::Durability, form).unwrap();
    let (running, _) = start(kept());
    let socket = directory.listen(&running);
    let successor = Handover::ask(&directory.0).unwrap();
    std::thread::scope(|scope| {
        let old = scope.spawn(|| {
            let (granted, sockets) = grant(retired(running), socket);
            granted.unwrap();
            kept().listeners(sockets).start().err()
        });
        let (sockets, taken) = successor.take(&Settings::default()).unwrap();
        let next = kept().listeners(sockets).start().unwrap();
        taken.unwrap().serving().unwrap();
        let refused = old.join().unwrap();
        let is_served = refused.as_ref().is_some_and(StartError::is_served);
        assert!(is_served, "{form}: {refused:?}");
        drop(next);
    });
}

/// A predecessor that has handed over the data, and is stopped before its successor serves, does
/// not keep other servers from the data after that successor has ended.
#[test]
fn a_predecessor_that_waits_keeps_no_lock() {
    let directory = Directory::new("waits");
    let data = directory.0.join("data");
    let (running, _) = start(server().data(&data));
    let socket = directory.listen(&running);
    let successor = Handover::ask(&directory.0).unwrap();
    std::thread::scope(|scope| {
        let old = scope.spawn(|| {
            // It keeps the sockets until its successor answers.
            let (granted, _) = grant(retired(running), socket);
            granted.unwrap_err();
        });
        let (sockets, taken) = successor.take(&Settings::default()).unwrap();
        drop(sockets);
        let third = server().data(&data).start().map(drop);
        assert!(!old.is_finished());
        drop(taken);
        old.join().unwrap();
        third.unwrap();
    });
}

#[test]
fn a_server_that_ends_late_does_not_remove_its_successors_socket() {
    let directory = Directory::new("late");
    let (old, _) = start(server());
    let (new, _) = start(server());
    let of_old = directory.listen(&old);
    let of_new = directory.listen(&new);
    drop(of_old);
    let asked = Handover::ask(&directory.0).unwrap();
    assert_eq!(asked.server(), std::process::id());
    drop((asked, of_new));
    // The file that a server leaves behind belongs to no server.
    assert!(Handover::ask(&directory.0).is_err());
    let again = directory.listen(&new);
    assert!(Handover::ask(&directory.0).is_ok());
    drop(again);
}

#[test]
fn a_successor_serves_although_the_server_is_stopped_before_it_releases_the_segment() {
    let directory = Directory::new("ended");
    let unix = directory.0.join("clients.sock");
    let (running, address) = start(server().unix_socket(&unix));
    let socket = directory.listen(&running);
    let successor = Handover::ask(&directory.0).unwrap();
    running.shutdown();
    assert!(matches!(running.join().unwrap(), Ended::Stopped));
    drop(socket);
    let (listeners, old) = successor.take(&Settings::default()).unwrap();
    assert!(old.is_none());
    let next = server().listeners(listeners).start().unwrap();
    assert_eq!(next.addresses(), [address]);
    let mut reply = [0; 7];
    let mut by_tcp = std::net::TcpStream::connect(address).unwrap();
    by_tcp.write_all(b"PING\r\n").unwrap();
    by_tcp.read_exact(&mut reply).unwrap();
    let mut by_file = UnixStream::connect(&unix).unwrap();
    by_file.write_all(b"PING\r\n").unwrap();
    by_file.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

/// A command that the old server has not executed has no effect and no reply: its connection is
/// closed.
#[test]
fn commands_that_the_old_server_has_not_executed_have_no_effect_and_no_reply() {
    let store = LogStore::builder()
        .capacity(64 << 20)
        .open_private()
        .unwrap();
    let store = Arc::new(store);
    let (running, address) = start(server().store(Arc::clone(&store)));
    let mut admin = Client::connect(address);
    let mut done = Client::connect(address);
    let mut received = Client::connect(address);
    assert_eq!(done.line("SET done 1"), Reply::ok());
    assert_eq!(admin.line("CLIENT PAUSE 1000000 WRITE"), Reply::ok());
    received.send(&encode(&["SET", "received", "1"]).repeat(2));
    while info(&mut admin, "blocked_clients") == 0 {
        std::thread::yield_now();
    }
    // Also for bytes that are still in the socket, after the waiting command.
    received.send(&encode(&["SET", "unread", "1"]));
    running.stopper().retire();
    let listeners = retired(running);
    // A connection that waits in the queue of the listening socket is accepted by the successor.
    let mut waiting = Client::connect(address);
    waiting.send(&encode(&["SET", "waiting", "1"]));
    assert!(received.rest().is_empty());
    assert!(done.rest().is_empty());
    let next = server().store(store).listeners(listeners).start().unwrap();
    assert_eq!(waiting.reply(), Reply::ok());
    for (key, there) in [("done", 1), ("received", 0), ("unread", 0), ("waiting", 1)] {
        assert_eq!(
            waiting.line(&format!("EXISTS {key}")),
            Reply::Integer(there),
            "{key}"
        );
    }
    drop(next);
}

/// Clients that wait for a key are disconnected, and wait at the successor once they have come
/// again: an item that was pushed meanwhile has reached one of them, or is there.
#[test]
fn clients_that_wait_for_a_key_are_disconnected_and_no_item_is_lost() {
    const CLIENTS: usize = 20;
    let store = LogStore::builder()
        .capacity(64 << 20)
        .open_private()
        .unwrap();
    let store = Arc::new(store);
    let (running, address) = start(server().threads(2).store(Arc::clone(&store)));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.send(&encode(&["BLPOP", "k", "0"]));
        client.send(&encode(&["SET", "behind", "1"]));
    }
    let mut pusher = Client::connect(address);
    while info(&mut pusher, "blocked_clients") != CLIENTS as u64 {
        std::thread::yield_now();
    }
    // Half of them get an item, if the server ends after that.
    let push = |item: usize| encode(&["RPUSH", "k", &item.to_string()]);
    pusher.send(&(0..CLIENTS / 2).flat_map(push).collect::<Vec<_>>());
    running.stopper().retire();
    let listeners = retired(running);
    let pushed = pusher.rest().split(|byte| *byte == b'\n').count() - 1;
    let mut items: Vec<usize> = Vec::new();
    for client in &mut clients {
        let rest = String::from_utf8(client.rest()).unwrap();
        items.extend(
            rest.lines()
                .nth(4)
                .map(|item| item.parse::<usize>().unwrap()),
        );
    }
    let next = server().store(store).listeners(listeners).start().unwrap();
    let mut client = Client::connect(address);
    assert_eq!(info(&mut client, "blocked_clients"), 0);
    let left = client.line("LRANGE k 0 -1");
    items.extend(
        left.items()
            .iter()
            .map(|item| item.text().parse::<usize>().unwrap()),
    );
    items.sort_unstable();
    assert!(items.iter().copied().eq(0..items.len()), "{items:?}");
    assert!(items.len() >= pushed, "{pushed} were pushed: {items:?}");
    client.line("DEL k");
    let mut again = Client::connect(address);
    again.send(&encode(&["BLPOP", "k", "0"]));
    while info(&mut client, "blocked_clients") == 0 {
        std::thread::yield_now();
    }
    client.line("RPUSH k later");
    assert_eq!(again.reply().items()[1], Reply::bulk("later"));
    drop(next);
}

/// The server does not read the file of users again, which may have become invalid; it also keeps
/// settings that clients have changed.
#[test]
fn a_server_that_continues_keeps_the_users_that_clients_have_changed() {
    let directory = Directory::new("users");
    let path = directory.0.join("users.acl");
    std::fs::write(&path, "user gone on nopass ~* +@all\n").unwrap();
    let with_file = || server().set(Key::AclFile, path.to_str().unwrap()).unwrap();
    let (running, address) = start(with_file());
    let socket = directory.listen(&running);
    let mut admin = Client::connect(address);
    assert_eq!(admin.line("ACL DELUSER gone"), Reply::Integer(1));
    admin.line("ACL SETUSER default resetpass >secret");
    let users = admin.line("ACL LIST");
    std::fs::write(&path, "nonsense").unwrap();
    let successor = Handover::ask(&directory.0).unwrap();
    let old = std::thread::spawn(move || grant(retired(running), socket));
    drop(successor.take(&Settings::default()).unwrap());
    let (granted, listeners) = old.join().unwrap();
    granted.unwrap_err();
    let _running = with_file().listeners(listeners).start().unwrap();
    let mut client = Client::connect(address);
    assert!(matches!(client.line("PING"), Reply::Error(text) if text.starts_with("NOAUTH")));
    assert_eq!(client.line("AUTH secret"), Reply::ok());
    assert_eq!(client.line("ACL LIST"), users);
}
