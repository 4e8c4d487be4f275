//! Tests all ways in which a reply reaches its client, with a gate that the test opens.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mneme_log::LogStore;
use mneme_sys::ManualClock;
use mneme_testkit::wait_until;

use super::{Admission, ReplyGate};
use crate::settings::Key;
use crate::shared::ThreadSide;
use crate::{Ended, Running, Server};

/// A gate at which every reply waits for the next position, as if each command had changed
/// something.
#[derive(Default)]
struct Manual {
    tail: AtomicU64,
    durable: AtomicU64,
    asked: AtomicU64,
    /// The number of rounds of commands that were begun.
    rounds: AtomicU64,
    fails: AtomicBool,
    is_off: AtomicBool,
    /// Whether it fails while the next commands are executed.
    fails_next: AtomicBool,
    is_full: AtomicBool,
}

impl ReplyGate for Arc<Manual> {
    fn holds(&self) -> bool {
        self.rounds.fetch_add(1, Ordering::SeqCst);
        let holds = !self.is_off.load(Ordering::SeqCst);
        if self.fails_next.swap(false, Ordering::SeqCst) {
            self.fails.store(true, Ordering::SeqCst);
            self.is_off.store(true, Ordering::SeqCst);
        }
        holds
    }

    fn awaited(&self, held: bool) -> Option<u64> {
        let waits = !self.is_off.load(Ordering::SeqCst);
        if held && self.fails.load(Ordering::SeqCst) {
            return Some(u64::MAX);
        }
        waits.then(|| self.tail.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn admission(&self) -> Admission {
        if self.fails.load(Ordering::SeqCst) {
            Admission::Never
        } else if self.is_off.load(Ordering::SeqCst) {
            Admission::All
        } else {
            Admission::UpTo(self.durable.load(Ordering::SeqCst))
        }
    }

    fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    fn refusal(&self) -> Option<&'static str> {
        let is_full = self.is_full.load(Ordering::SeqCst);
        is_full.then_some("No space left on device")
    }
}

/// A server with such a gate.
struct Gated {
    running: Running,
    gate: Arc<Manual>,
}

impl Gated {
    fn with(server: Server) -> Self {
        let running = server.port(0).threads(1).memory(64 << 20).start().unwrap();
        let gate = Arc::<Manual>::default();
        running.shared().set_gate(Box::new(Arc::clone(&gate)));
        Self { running, gate }
    }

    fn start() -> Self {
        Self::with(Server::builder())
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.running.addresses()[0]).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client
    }

    fn change(&self, change: impl FnOnce(&Manual)) {
        change(&self.gate);
        ThreadSide::gate_has_opened(&self.running.shared().threads);
    }

    /// Releases everything that waits now.
    fn open(&self) {
        self.change(|gate| {
            let tail = gate.tail.load(Ordering::SeqCst);
            gate.durable.store(tail, Ordering::SeqCst);
        });
    }

    /// The number of bytes sent to clients.
    fn sent(&self) -> u64 {
        self.running.shared().totals().output
    }

    /// Waits until this many bytes wait at the gate.
    fn wait_for_parked(&self, bytes: usize) {
        wait_until("the replies wait at the gate", || {
            let clients = self.running.shared().clients.list();
            let unsent = clients.iter().map(|client| client.buffers.unsent.get());
            unsent.sum::<usize>() == bytes
        });
    }

    /// Sends `commands`, and checks that the reply is sent when the gate opens and not before.
    fn check(&self, client: &mut TcpStream, commands: &str, reply: &str) {
        let before = self.sent();
        client.write_all(commands.as_bytes()).unwrap();
        self.wait_for_parked(reply.len());
        assert_eq!(self.sent(), before, "{commands} passed the gate");
        self.open();
        assert_eq!(read(client, reply.len()), reply, "{commands}");
        // The client may receive them before they are counted.
        self.wait_for_sent(before + reply.len() as u64);
    }

    fn wait_for_sent(&self, bytes: u64) {
        wait_until("they are counted", || self.sent() == bytes);
    }
}

fn read(client: &mut TcpStream, bytes: usize) -> String {
    let mut received = vec![0; bytes];
    client.read_exact(&mut received).unwrap();
    String::from_utf8(received).unwrap()
}

/// Everything up to the end of the connection.
fn rest(mut client: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A server that closes with input unread resets the connection.
    let _ = client.read_to_end(&mut rest);
    rest
}

#[test]
fn no_reply_of_any_kind_leaves_before_the_gate_opens() {
    let server = Gated::start();
    let client = &mut server.client();
    let long = "v".repeat(100_000);
    for (commands, reply) in [
        ("SET k v\r\n", "+OK\r\n".to_owned()),
        // Replies to reads wait too.
        ("GET k\r\n", "$1\r\nv\r\n".to_owned()),
        ("PING\r\n", "+PONG\r\n".to_owned()),
        // Neighbours that are executed together.
        (
            "SET a 1\r\nSET b 2\r\nGET a\r\nGET b\r\nGET none\r\n",
            "+OK\r\n+OK\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n".to_owned(),
        ),
        (
            "MULTI\r\nINCR a\r\nNONSENSE\r\nDISCARD\r\nMULTI\r\nINCR a\r\nGET b\r\nEXEC\r\n",
            "+OK\r\n+QUEUED\r\n-ERR unknown command 'NONSENSE', with args beginning with: \r\n\
             +OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n$1\r\n2\r\n"
                .to_owned(),
        ),
        // Errors may reveal what is stored.
        (
            "SET text x\r\nINCR text\r\n",
            "+OK\r\n-ERR value is not an integer or out of range\r\n".to_owned(),
        ),
        (
            "CLIENT REPLY SKIP\r\nSET a 3\r\nGET a\r\n",
            "$1\r\n3\r\n".to_owned(),
        ),
        (
            "CLIENT REPLY OFF\r\nSET a 4\r\nGET a\r\nCLIENT REPLY ON\r\nGET a\r\n",
            "+OK\r\n$1\r\n4\r\n".to_owned(),
        ),
        // A command that needs exclusive access.
        ("SWAPDB 0 0\r\n", "+OK\r\n".to_owned()),
        // Longer than what is sent at the end of a round.
        (
            &format!("SET long {long}\r\nGET long\r\n"),
            format!("+OK\r\n$100000\r\n{long}\r\n"),
        ),
    ] {
        server.check(client, commands, &reply);
    }
    assert!(server.gate.asked.load(Ordering::SeqCst) > 0);
}

#[test]
fn replies_leave_in_order_each_when_its_own_position_is_durable() {
    let server = Gated::start();
    let (mut first, mut second) = (server.client(), server.client());
    first.write_all(b"SET a 1\r\n").unwrap();
    server.wait_for_parked(5);
    let position = server.gate.tail.load(Ordering::SeqCst);
    first.write_all(b"GET a\r\n").unwrap();
    second.write_all(b"GET a\r\n").unwrap();
    server.wait_for_parked(5 + 7 + 7);
    server.change(|gate| gate.durable.store(position, Ordering::SeqCst));
    assert_eq!(read(&mut first, 5), "+OK\r\n");
    server.wait_for_parked(7 + 7);
    server.wait_for_sent(5);
    server.open();
    assert_eq!(read(&mut first, 7), "$1\r\n1\r\n");
    assert_eq!(read(&mut second, 7), "$1\r\n1\r\n");
}

#[test]
fn a_reply_that_was_partly_sent_lets_none_behind_it_out() {
    let server = Gated::start();
    let mut client = server.client();
    let bytes = 8 << 20;
    let value = "v".repeat(bytes);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n{value}\r\n");
    server.check(&mut client, &set, "+OK\r\n");
    client.write_all(b"GET k\r\n").unwrap();
    let reply = format!("${bytes}\r\n{value}\r\n");
    server.wait_for_parked(reply.len());
    server.open();
    // The socket accepts a part of it.
    wait_until("a part of the reply is sent", || server.sent() > 5);
    client.write_all(b"GET none\r\n").unwrap();
    wait_until("the second reply waits too", || {
        server.gate.tail.load(Ordering::SeqCst) == 3
    });
    assert_eq!(read(&mut client, reply.len()), reply);
    server.wait_for_parked(5);
    server.wait_for_sent(5 + reply.len() as u64);
    server.open();
    assert_eq!(read(&mut client, 5), "$-1\r\n");
}

#[test]
fn a_connection_that_ends_is_answered_through_the_gate() {
    let server = Gated::start();
    for (commands, reply) in [
        ("SET a 1\r\nQUIT\r\n", "+OK\r\n+OK\r\n"),
        (
            "SET a 2\r\n*1\r\n!\r\n",
            "+OK\r\n-ERR Protocol error: expected '$', got '!'\r\n",
        ),
    ] {
        let mut client = server.client();
        server.check(&mut client, commands, reply);
        assert_eq!(rest(client), b"");
    }
    // A client that has closed its side.
    let before = server.sent();
    let mut client = server.client();
    client.write_all(b"SET a 3\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.wait_for_parked(5);
    assert_eq!(server.sent(), before);
    server.open();
    assert_eq!(rest(client), b"+OK\r\n");
}

#[test]
fn a_connection_that_is_cut_off_gets_nothing_that_waits() {
    let server = Gated::with(
        Server::builder()
            .set(Key::OutputLimit, "normal 100000 0 0")
            .unwrap(),
    );
    let mut client = server.client();
    let value = "v".repeat(60_000);
    let set = format!("SET k {value}\r\nGET k\r\nGET k\r\n");
    client.write_all(set.as_bytes()).unwrap();
    assert_eq!(rest(client), b"");
    // Killed by itself, and by another client.
    let mut client = server.client();
    client
        .write_all(b"SET a 1\r\nCLIENT KILL SKIPME no ID 2\r\n")
        .unwrap();
    server.wait_for_parked(5 + 4);
    let mut other = server.client();
    other.write_all(b"CLIENT KILL ID 2\r\n").unwrap();
    assert_eq!(rest(client), b"");
    assert_eq!(server.sent(), 0);
    server.open();
    assert_eq!(read(&mut other, 4), ":1\r\n");
}

#[test]
fn a_client_may_pipeline_while_its_replies_wait() {
    let server = Gated::with(Server::builder().set(Key::OutputPause, "65536").unwrap());
    let mut client = server.client();
    let value = "v".repeat(30_000);
    let pipeline = format!("SET k {value}\r\n{}", "GET k\r\n".repeat(10));
    client.write_all(pipeline.as_bytes()).unwrap();
    let reply = format!("$30000\r\n{value}\r\n");
    // Its client is not paused, but its replies must not grow without a limit.
    wait_until("some of the replies wait", || {
        let clients = server.running.shared().clients.list();
        clients.iter().any(|one| one.buffers.unsent.get() > 65536)
    });
    assert_eq!(server.sent(), 0);
    let expected = format!("+OK\r\n{}", reply.repeat(10));
    let all = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&mut client, expected.len()));
        wait_until("all replies are out", || {
            server.open();
            reader.is_finished()
        });
        reader.join().unwrap()
    });
    assert!(all == expected);
}

#[test]
fn a_server_that_stops_sends_what_waits_once_it_may() {
    for retires in [false, true] {
        let server = Gated::start();
        let mut client = server.client();
        client.write_all(b"SET a 1\r\n").unwrap();
        server.wait_for_parked(5);
        let mut admin = server.client();
        match retires {
            true => server.running.stopper().retire(),
            false => admin.write_all(b"SHUTDOWN\r\n").unwrap(),
        }
        wait_until("it stops", || server.running.shared().stopping());
        assert_eq!(server.sent(), 0);
        server.open();
        assert_eq!(rest(client), b"+OK\r\n");
        assert_eq!(rest(admin), b"");
        let ended = server.running.join().unwrap();
        assert_eq!(matches!(ended, Ended::Retired(_)), retires);
    }
}

#[test]
fn a_write_that_never_becomes_durable_is_never_answered() {
    let server = Gated::start();
    let mut waiting = server.client();
    waiting.write_all(b"SET a 1\r\n").unwrap();
    server.wait_for_parked(5);
    server.change(|gate| {
        gate.fails.store(true, Ordering::SeqCst);
        gate.is_off.store(true, Ordering::SeqCst);
    });
    assert_eq!(rest(waiting), b"");
    // From here on no reply waits.
    let mut client = server.client();
    client.write_all(b"GET a\r\n").unwrap();
    assert_eq!(read(&mut client, 7), "$1\r\n1\r\n");
}

/// The commands of one turn were admitted before the failure, and completed after it.
#[test]
fn a_write_that_a_failure_overtakes_is_never_answered() {
    let server = Gated::start();
    let mut client = server.client();
    server.change(|gate| gate.fails_next.store(true, Ordering::SeqCst));
    client
        .write_all(b"SET a 1\r\nMULTI\r\nINCR a\r\nEXEC\r\n")
        .unwrap();
    assert_eq!(rest(client), b"");
    let mut client = server.client();
    client.write_all(b"GET a\r\n").unwrap();
    // The connection may be closed before its EXEC, if its time slice ended in between.
    let executed = read(&mut client, 7);
    assert!(
        ["$1\r\n1\r\n", "$1\r\n2\r\n"].contains(&&*executed),
        "{executed}"
    );
}

#[test]
fn a_gate_that_is_switched_off_lets_all_out() {
    let server = Gated::start();
    let mut client = server.client();
    client.write_all(b"SET a 1\r\n").unwrap();
    server.wait_for_parked(5);
    server.change(|gate| gate.is_off.store(true, Ordering::SeqCst));
    assert_eq!(read(&mut client, 5), "+OK\r\n");
    client.write_all(b"GET a\r\n").unwrap();
    assert_eq!(read(&mut client, 7), "$1\r\n1\r\n");
}

#[test]
fn writes_are_refused_while_the_disk_is_full_and_reads_are_not() {
    let server = Gated::start();
    let mut client = server.client();
    let off = |gate: &Manual| gate.is_off.store(true, Ordering::SeqCst);
    server.change(off);
    let mut say = |commands: &str, reply: &str| {
        client.write_all(commands.as_bytes()).unwrap();
        assert_eq!(read(&mut client, reply.len()), reply, "{commands}");
    };
    say(
        "SET a 1\r\nMULTI\r\nSET a 2\r\n",
        "+OK\r\n+OK\r\n+QUEUED\r\n",
    );
    let full = |is_full| server.change(|gate| gate.is_full.store(is_full, Ordering::SeqCst));
    full(true);
    let why = "MISCONF Errors writing to the AOF file: No space left on device\r\n";
    say(
        "EXEC\r\n",
        &format!("-EXECABORT Transaction discarded because of: {why}"),
    );
    // One by one and together; as in Redis, PING fails too.
    say(
        "SET a 3\r\nSET a 4\r\nGET a\r\n",
        &format!("-{why}-{why}$1\r\n1\r\n"),
    );
    say("PING\r\n", &format!("-{why}"));
    let aborted = "EXECABORT Transaction discarded because of previous errors.\r\n";
    say(
        "MULTI\r\nDEL a\r\nEXEC\r\nMULTI\r\nGET a\r\nEXEC\r\n",
        &format!("+OK\r\n-{why}-{aborted}+OK\r\n+QUEUED\r\n*1\r\n$1\r\n1\r\n"),
    );
    full(false);
    say(
        "SET a 5\r\nPING\r\nGET a\r\n",
        "+OK\r\n+PONG\r\n$1\r\n5\r\n",
    );
}

/// A thread that retries continuously takes the CPU from the one that frees space.
#[test]
fn a_command_that_waits_for_space_in_the_feed_is_tried_again_when_there_is_some() {
    let store = LogStore::builder().capacity(64 << 20).change_feed(true);
    let store = Arc::new(store.maintainer(false).open_private().unwrap());
    let mut feed = store.change_feed().unwrap();
    while store.has_feed_space() {
        store.put(b"filler", &[7; 10_000]).unwrap();
    }
    // Its clock is stopped, so no timeout expires.
    let clock = Arc::new(ManualClock::new(0, 0));
    let server = Gated::with(Server::builder().store(Arc::clone(&store)).clock(clock));
    server.change(|gate| gate.is_off.store(true, Ordering::SeqCst));
    let (mut writer, mut other) = (server.client(), server.client());
    writer
        .write_all(b"SET a 1\r\nSET b 2\r\nGET b\r\n")
        .unwrap();
    wait_until("it waits for space", || {
        server.gate.asked.load(Ordering::SeqCst) > 0
    });
    let before = server.gate.rounds.load(Ordering::SeqCst);
    for _ in 0..10 {
        other.write_all(b"PING\r\n").unwrap();
        assert_eq!(read(&mut other, 7), "+PONG\r\n");
    }
    let rounds = server.gate.rounds.load(Ordering::SeqCst) - before;
    assert_eq!(rounds, 10, "only the other client is served");
    let drained = feed.drain(usize::MAX, &mut Vec::new()).unwrap();
    feed.set_durable(drained.end).unwrap();
    server.change(|_| {});
    let replies = "+OK\r\n+OK\r\n$1\r\n2\r\n";
    assert_eq!(read(&mut writer, replies.len()), replies);
}
