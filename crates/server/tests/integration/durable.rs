//! A server that keeps its data in a directory, from the point of view of clients and of an
//! embedding program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mneme_durable::{DurableOptions, LogStore};
use mneme_server::settings::Key;
use mneme_server::{Opening, ServeError, Server, StartError};
use mneme_shared::{Access, Registry, StoreOptions};
use mneme_sys::{Clock, ManualClock, SystemClock};
use mneme_testkit::{Process, TestDir};

use crate::clients::pipeline;
use crate::common::{Client, Reply, debugged, encode, info, server, start};

/// A directory that is removed at the end of the test.
struct Directory(TestDir);

impl Directory {
    fn new(test: &str) -> Self {
        Self(TestDir::on_disk(test))
    }

    fn server(&self) -> Server {
        server()
            .data(self.0.join("data"))
            .set(Key::AppendFsync, "always")
            .unwrap()
    }
}

/// The data of segments is outside the directory.
impl Drop for Directory {
    fn drop(&mut self) {
        if self.0.join("registry").exists() {
            let registry = registry(&self.0);
            for name in registry.segments().unwrap_or_default() {
                let _ = registry.remove_segment(name.as_str());
            }
        }
    }
}

#[test]
fn clients_get_an_error_while_the_data_is_loading() {
    let directory = Directory::new("loading");
    let (running, address) = start(directory.server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET kept yes"), Reply::ok());
    drop(running);
    let path = directory.0.join("clients.sock");
    let said = Arc::new(Mutex::new(String::new()));
    let (reached, seen) = (path.clone(), Arc::clone(&said));
    // The server listens, and has not loaded anything yet.
    let debugged = directory.server().set(Key::EnableDebug, "yes").unwrap();
    let loading = debugged.unix_socket(path).on_starting(move |_| {
        let mut client = UnixStream::connect(&reached).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client
            .write_all(
                b"LASTSAVE\r\nMNEME BACKUP b\r\nDEBUG RELOAD\r\nDEBUG POPULATE 1\r\n\
                  GET kept\r\nSET kept no\r\nPING\r\nWATCH kept\r\nMULTI\r\nGET kept\r\nEXEC\r\n\
                  SELECT 0\r\nINFO persistence\r\nQUIT\r\n",
            )
            .unwrap();
        client.read_to_string(&mut seen.lock().unwrap()).unwrap();
    });
    let (running, address) = start(loading);
    let said = said.lock().unwrap();
    let loading = "-LOADING Redis is loading the dataset in memory\r\n";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    let replies = format!("{}+OK\r\n{loading}{aborted}+OK\r\n", loading.repeat(8));
    assert!(said.starts_with(&replies), "{said}");
    for field in [
        "loading:1",
        "loading_total_bytes:",
        "loading_eta_seconds:",
        "aof_enabled:1",
    ] {
        assert!(said.contains(field), "{field} in {said}");
    }
    let mut client = Client::connect(address);
    assert_eq!(client.line("GET kept"), Reply::bulk("yes"));
    assert_eq!(info(&mut client, "loading"), 0);
    drop(running);
}

/// `DEBUG RELOAD`, which clients' tests use: the data is loaded from the files, and is compared
/// with the data served.
#[test]
fn a_reload_gives_the_data_that_is_served() {
    let directory = Directory::new("reloaded");
    let server = directory.server().set(Key::EnableDebug, "yes").unwrap();
    let (running, address) = start(server);
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET a 1"), Reply::ok());
    assert_eq!(client.line("SET b 2 PX 100000"), Reply::ok());
    assert_eq!(client.line("SELECT 3"), Reply::ok());
    assert_eq!(client.line("SET c 3"), Reply::ok());
    let members: Vec<String> = (0..1000).map(|i| format!("m{i}")).collect();
    for line in [
        "SADD numbers 1 2 3".to_owned(),
        "SADD strings a b 1".to_owned(),
        format!("SADD large {}", members.join(" ")),
    ] {
        client.line(&line);
    }
    client.line("SREM large m7 m8");
    client.line("SREM numbers 2");
    for line in [
        "DEBUG RELOAD",
        "DEBUG LOADAOF",
        "DEBUG RELOAD MERGE NOFLUSH NOSAVE",
    ] {
        assert_eq!(client.line(line), Reply::ok(), "{line}");
        assert_eq!(client.line("GET c"), Reply::bulk("3"), "{line}");
        assert_eq!(client.line("SCARD large"), Reply::Integer(998), "{line}");
    }
    assert_eq!(info(&mut client, "rdb_saves"), 1);
    // A transaction's changes become durable after it has ended, so it must not wait for them.
    for line in ["MULTI", "SET d 4", "DEBUG RELOAD"] {
        client.line(line);
    }
    let replies = client.line("EXEC");
    let [Reply::Simple(_), Reply::Error(refused)] = replies.items() else {
        panic!("{replies:?}")
    };
    assert!(refused.contains("end them first"), "{refused}");
    assert_eq!(client.line("DEBUG RELOAD NOSAVE"), Reply::ok());
    let refused = client.line("DEBUG RELOAD NONSENSE");
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    // Nothing waits for a transaction's writes before it ends.
    assert_eq!(client.line("MULTI"), Reply::ok());
    for line in ["SET d 4", "DEBUG RELOAD"] {
        assert_eq!(client.line(line), Reply::Simple("QUEUED".into()));
    }
    let carried_out = format!("{:?}", client.line("EXEC"));
    assert!(carried_out.contains("end them first"), "{carried_out}");
    drop(running);
    let (_running, address) = start(debugged());
    let refused = Client::connect(address).line("DEBUG RELOAD");
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
}

/// A server that is asked to stop while it loads stops at once, and has changed nothing.
#[test]
fn a_load_is_ended_by_a_stop() {
    let directory = Directory::new("stopped");
    let (running, address) = start(directory.server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET kept yes"), Reply::ok());
    drop(running);
    let loading = directory.server().on_starting(|stopper| stopper.stop());
    let ended = loading.start().err();
    assert!(
        ended.as_ref().is_some_and(StartError::is_stopped),
        "{ended:?}"
    );
    // All data is on disk, so a client may request that.
    let path = directory.0.join("clients.sock");
    let loading = directory.server().unix_socket(&path).on_starting(move |_| {
        let mut client = UnixStream::connect(&path).unwrap();
        let timeout = Some(Duration::from_secs(60));
        client.set_read_timeout(timeout).unwrap();
        client.write_all(b"SHUTDOWN SAVE\r\nQUIT\r\n").unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
    });
    let ended = loading.start().err();
    assert!(
        ended.as_ref().is_some_and(StartError::is_stopped),
        "{ended:?}"
    );
    let (_running, address) = start(directory.server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("GET kept"), Reply::bulk("yes"));
}

/// Settings and metrics of a server that has not loaded its data yet.
#[test]
fn settings_made_while_loading_are_kept_afterwards() {
    let directory = Directory::new("loading-settings");
    let path = directory.0.join("clients.sock");
    // An address that no other process uses, because the callback must know the port.
    let [.., a, b, c] = std::process::id().to_be_bytes();
    let metrics = SocketAddr::from(([127, a, b, c], 29121));
    let said = Arc::new(Mutex::new((String::new(), String::new())));
    let (reached, seen) = (path.clone(), Arc::clone(&said));
    let talk = |client: &mut dyn ReadWrite, request: &[u8]| {
        client.write_all(request).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        reply
    };
    let loading = server()
        .data(directory.0.join("data"))
        .unix_socket(path)
        .metrics(metrics)
        .on_starting(move |_| {
            let mut client = UnixStream::connect(&reached).unwrap();
            let replies = talk(
                &mut client,
                b"CONFIG SET appendfsync always\r\nCONFIG SET maxmemory 1gb\r\nQUIT\r\n",
            );
            let mut scraper = TcpStream::connect(metrics).unwrap();
            let page = talk(&mut scraper, b"GET /metrics HTTP/1.0\r\n\r\n");
            *seen.lock().unwrap() = (replies, page);
        });
    let (_running, address) = start(loading);
    let (replies, page) = &*said.lock().unwrap();
    assert!(
        replies.starts_with("+OK\r\n-ERR CONFIG SET failed"),
        "{replies}"
    );
    assert!(replies.contains("still being loaded"), "{replies}");
    assert!(page.contains("\nmneme_loading 1\n"), "{page}");
    let mut client = Client::connect(address);
    for number in 0..10 {
        assert_eq!(client.line(&format!("SET k {number}")), Reply::ok());
        assert_eq!(info(&mut client, "mneme_durable_pending_bytes"), 0);
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

#[test]
fn settings_of_data_on_disk_go_together() {
    let directory = Directory::new("settings");
    let (_running, address) = start(directory.server());
    let mut client = Client::connect(address);
    let shown = |client: &mut Client, name: &str| {
        client.line(&format!("CONFIG GET {name}")).items()[1].text()
    };
    assert_eq!(shown(&mut client, "appendonly"), "yes");
    let data = directory.0.join("data").display().to_string();
    assert_eq!(shown(&mut client, "data"), data);
    for policy in ["everysec", "no", "always"] {
        assert_eq!(
            client.line(&format!("CONFIG SET appendfsync {policy}")),
            Reply::ok()
        );
        assert_eq!(shown(&mut client, "appendfsync"), policy);
        assert_eq!(client.line("SET a 1"), Reply::ok());
    }
    assert_eq!(client.line("CONFIG SET appendonly yes"), Reply::ok());
    for (line, words) in [
        ("CONFIG SET appendonly no", "this can only be yes"),
        ("CONFIG SET data /elsewhere", "can't set immutable config"),
        ("CONFIG SET appendfsync often", "always, everysec, no"),
    ] {
        let refused = client.line(line).text();
        assert!(refused.contains(words), "{line}: {refused}");
    }
    // Changes made while the policy was `always` are durable.
    assert_eq!(info(&mut client, "mneme_durable_pending_bytes"), 0);
    assert!(info(&mut client, "mneme_journal_groups") > 0);

    let (_other, address) = start(server());
    let mut client = Client::connect(address);
    assert_eq!(shown(&mut client, "appendonly"), "no");
    let refused = client.line("CONFIG SET appendonly yes").text();
    assert!(
        refused.contains("start the server with --data DIR"),
        "{refused}"
    );
}

#[test]
fn a_tree_is_reported_as_such() {
    let directory = Directory::new("tree");
    let tree = || directory.server().set(Key::Durability, "tree").unwrap();
    let (running, address) = start(tree());
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET kept yes"), Reply::ok());
    let shown = client.line("CONFIG GET durability").items()[1].text();
    assert_eq!(shown, "tree");
    let said = client.line("INFO persistence").text();
    assert!(said.contains("mneme_durability:tree\r\n"), "{said}");
    for (line, words) in [
        (
            "CONFIG SET durability journal",
            "can't set immutable config",
        ),
        ("BGREWRITEAOF", "there is no journal to rewrite"),
    ] {
        let refused = client.line(line).text();
        assert!(refused.contains(words), "{line}: {refused}");
    }
    // Acknowledged changes are durable, which is all that a checkpoint has to guarantee.
    assert_eq!(client.line("SAVE"), Reply::ok());
    let begun = client.line("BGSAVE").text();
    assert_eq!(begun, "Background saving started");
    mneme_testkit::wait_until("it is counted", || info(&mut client, "rdb_saves") == 2);
    assert_eq!(info(&mut client, "mneme_durable_pending_bytes"), 0);
    drop(running);
    let refused = directory.server().start().err().unwrap().to_string();
    assert!(refused.contains("--durability tree"), "{refused}");
    let nothing = server().set(Key::Durability, "tree").unwrap();
    let refused = nothing.start().err().unwrap().to_string();
    assert!(
        refused.contains("start the server with --data DIR"),
        "{refused}"
    );
    let (_running, address) = start(tree());
    let mut client = Client::connect(address);
    assert_eq!(client.line("GET kept"), Reply::bulk("yes"));
}

#[test]
fn one_server_at_a_time_uses_a_directory() {
    let directory = Directory::new("locked");
    let (running, _) = start(directory.server());
    let refused = directory.server().start().err().unwrap();
    assert!(matches!(refused, StartError::Durable { .. }), "{refused}");
    assert!(refused.is_served(), "{refused}");
    drop(running);
    start(directory.server());
}

/// A server's records do not expire before the time recorded in its files. A relative expiry keeps
/// its duration on any clock.
#[test]
fn a_clock_that_was_ahead_makes_no_record_expire_early() {
    let directory = Directory::new("clock-ahead");
    let ahead = SystemClock.wall_ms() + 1_000_000_000_000;
    let options =
        DurableOptions::new(directory.0.join("data")).clock(Arc::new(ManualClock::new(0, ahead)));
    let store = options.open_private(LogStore::builder()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let (_running, address) = start(directory.server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET key value EX 1000"), Reply::ok());
    assert_eq!(client.line("GET key"), Reply::bulk("value"));
    let Reply::Integer(left) = client.line("TTL key") else {
        panic!("no time is left");
    };
    assert!((1..=1000).contains(&left), "{left}");
    assert_eq!(client.line("EXPIRE key 500"), Reply::Integer(1));
    assert_eq!(client.line("EXISTS key"), Reply::Integer(1));
}

#[test]
fn checkpoints_are_written_and_counted() {
    let directory = Directory::new("save");
    let (running, address) = start(directory.server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET a 1"), Reply::ok());
    assert_eq!(info(&mut client, "rdb_saves"), 0);
    let started = client.line("LASTSAVE");
    assert_eq!(client.line("SAVE"), Reply::ok());
    assert_eq!(info(&mut client, "rdb_saves"), 1);
    let bases = || {
        let files = std::fs::read_dir(directory.0.join("data")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".base")).count()
    };
    assert_eq!(bases(), 1);
    assert!(client.line("LASTSAVE") >= started);
    let begun = client.line("BGSAVE").text();
    assert_eq!(begun, "Background saving started");
    mneme_testkit::wait_until("it is written", || info(&mut client, "rdb_saves") == 2);
    let begun = client.line("BGREWRITEAOF").text();
    assert_eq!(begun, "Background append only file rewriting started");
    mneme_testkit::wait_until("it is written", || info(&mut client, "aof_rewrites") == 3);
    assert_eq!(bases(), 1, "older ones are gone");
    assert_eq!(client.line("BGSAVE SOON").text(), "ERR syntax error");
    assert_eq!(client.line("MULTI"), Reply::ok());
    let refused = client.line("SAVE").text();
    assert_eq!(refused, "ERR Command not allowed inside a transaction");
    client.line("DISCARD");
    client.send(b"SHUTDOWN SAVE\r\n");
    assert!(client.rest().is_empty());
    running.join().unwrap();

    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    for command in [
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "LASTSAVE",
        "MNEME BACKUP x",
    ] {
        let refused = client.line(command).text();
        assert!(
            refused.contains("start the server with --data DIR"),
            "{refused}"
        );
    }
}

#[test]
fn a_checkpoint_is_written_when_a_save_point_is_reached() {
    let directory = Directory::new("points");
    let (_running, address) = start(directory.server());
    let mut client = Client::connect(address);
    let changes = |client: &mut Client| info(client, "rdb_changes_since_last_save");
    assert_eq!(changes(&mut client), 0);
    assert_eq!(client.line("MSET a 1 b 2 c 3"), Reply::ok());
    assert_eq!(client.line("SETNX a 2"), Reply::Integer(0));
    assert_eq!(client.line("DEL b none"), Reply::Integer(1));
    assert_eq!(client.line("INCR a"), Reply::Integer(2));
    assert_eq!(client.line("EXPIRE a 1000"), Reply::Integer(1));
    client.line("MULTI");
    client.line("SET d 1");
    client.line("GET d");
    client.line("EXEC");
    client.send(b"SET e 1\r\nSET f 1\r\nSET g 1\r\n");
    for _ in 0..3 {
        assert_eq!(client.reply(), Reply::ok());
    }
    assert_eq!(changes(&mut client), 10);
    assert_eq!(client.line("SAVE"), Reply::ok());
    assert_eq!(changes(&mut client), 0);
    assert_eq!(client.line("FLUSHDB"), Reply::ok());
    assert_eq!(changes(&mut client), 6);

    // Enough time has passed for this save point, and there are too few changes for the other one.
    let save =
        |client: &mut Client, points: &str| client.command(&["CONFIG", "SET", "save", points]);
    assert_eq!(save(&mut client, "3600 1  1 8"), Reply::ok());
    let shown = client.line("CONFIG GET save").items()[1].text();
    assert_eq!(shown, "3600 1 1 8");
    client.line("MSET a 1 b 1");
    mneme_testkit::wait_until("it is written", || info(&mut client, "rdb_saves") == 2);
    assert_eq!(changes(&mut client), 0);
    for bad in ["1", "1 x", "0 1", "1 2 3", "-1 2"] {
        let refused = save(&mut client, bad).text();
        assert!(refused.ends_with("Invalid save parameters"), "{refused}");
    }
    assert_eq!(save(&mut client, ""), Reply::ok());
    assert_eq!(client.line("CONFIG GET save").items()[1].text(), "");

    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    assert_eq!(save(&mut client, ""), Reply::ok());
    let refused = save(&mut client, "1 1").text();
    assert!(
        refused.contains("start the server with --data"),
        "{refused}"
    );
}

/// Tells the process of the next test its directory.
const DIRECTORY: &str = "MNEME_TEST_SERVED_DIRECTORY";

fn options() -> StoreOptions {
    StoreOptions::new().capacity(64 << 20)
}

fn registry(directory: &Path) -> Registry {
    Registry::open(directory.join("registry")).unwrap()
}

/// A server whose segment and data outlive it.
fn outlived(directory: &Path) -> Server {
    let opening = Opening {
        options: options(),
        ..Opening::default()
    };
    let server = server().data(directory.join("data"));
    let server = server.set(Key::AppendFsync, "always").unwrap();
    server.segment(registry(directory), "kept", opening)
}

/// The process that the next test starts.
#[test]
fn serving_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let (_running, address) = start(outlived(&directory));
    std::fs::write(directory.join("address"), address.to_string()).unwrap();
    println!("\nready");
    loop {
        std::thread::park();
    }
}

/// The number of steps of the next test's `EXEC`.
const STEPS: usize = 2_000;

/// Makes a server die in the middle of an `EXEC` in an exclusive section, when a part of its
/// changes is in the journal. Returns the number of steps that local programs have seen.
fn kill_inside_an_exec(directory: &Path) -> usize {
    let test = "durable::serving_until_it_is_killed";
    let mut process = Process::start_ready(test, [(DIRECTORY, directory)]);
    let address = std::fs::read_to_string(directory.join("address")).unwrap();
    let mut client = Client::connect(address.parse().unwrap());
    client.line("FLUSHALL");
    assert_eq!(client.line("SET before yes"), Reply::ok());
    let store = options().maintainer(false);
    let store = store.attach(&registry(directory), "kept", Access::ReadOnly);
    let store = store.unwrap();
    let before = store.feed_tail();
    let lines = ["MULTI", "FLUSHALL", "SET moved yes", "SWAPDB 0 1"];
    client.send(&pipeline(&lines));
    client.send(&encode(&["SET", "big", &"v".repeat(60_000)]));
    let step = ["COPY big other REPLACE", "INCR n"].repeat(STEPS);
    client.send(&pipeline(&step));
    client.send(&pipeline(&["EXEC"]));
    let mut seen = 0;
    mneme_testkit::wait_until("it is inside", || {
        // A read fails if its thread is not scheduled for long enough; then the next one is used.
        let value = store.get(b"n").ok().flatten();
        seen = value.map_or(0, |n| std::str::from_utf8(&n).unwrap().parse().unwrap());
        store.feed_durable() > before && seen > 0
    });
    process.kill();
    seen
}

/// Copies the server's files, as a power cut leaves them.
fn copy_data(directory: &Path) -> PathBuf {
    let copy = directory.join("copy");
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(directory.join("data")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    copy
}

#[test]
fn an_exec_that_runs_alone_is_one_change_to_a_recovery() {
    let directory = Directory::new("exec");
    // The segment remains, with all changes.
    let (n, copy) = loop {
        let seen = kill_inside_an_exec(&directory.0);
        let copy = copy_data(&directory.0);
        let (_running, address) = start(outlived(&directory.0));
        let n = Client::connect(address).line("GET n").text();
        let steps: usize = n.parse().unwrap();
        assert!(steps >= seen, "{steps} of {seen} that were seen");
        // Otherwise the machine was too busy to kill the server in time.
        if steps < STEPS {
            break (n, copy);
        }
    };
    let recovered = |data: &Path| {
        let (running, address) = start(server().data(data));
        let mut client = Client::connect(address);
        let lines = ["GET before", "GET n", "SELECT 1", "GET moved"];
        let replies = lines.map(|line| client.line(line));
        drop(running);
        replies
    };
    // Without the segment nothing of the `EXEC` remains.
    let [before, counted, _, moved] = recovered(&copy);
    assert_eq!(
        [before, counted, moved],
        [Reply::bulk("yes"), Reply::Null, Reply::Null]
    );
    // From then on the files have the changes that the segment had.
    let [before, counted, _, moved] = recovered(&directory.0.join("data"));
    assert_eq!(
        [before, counted, moved],
        [Reply::Null, Reply::bulk(&n), Reply::bulk("yes")]
    );
}

/// If the directory is removed, writes are refused, and the server ends with an error.
#[test]
fn a_server_whose_directory_was_removed_ends_with_an_error() {
    let directory = Directory::new("removed");
    let server = directory.server().set(Key::AppendFsync, "no").unwrap();
    let (running, address) = start(server);
    let mut client = Client::connect(address);
    assert_eq!(client.line("SET key value"), Reply::ok());
    std::fs::remove_dir_all(directory.0.join("data")).unwrap();
    assert_eq!(client.line("SET key lost"), Reply::ok());
    running.shutdown();
    let ended = running.join().map(drop).unwrap_err();
    assert!(matches!(ended, ServeError::NotDurable(_)), "{ended}");
}

/// If damage makes the server refuse to start, the error says how to examine it.
#[test]
fn a_damaged_journal_is_refused_with_advice() {
    let directory = Directory::new("damaged");
    let (running, address) = start(directory.server());
    assert_eq!(Client::connect(address).line("SET key value"), Reply::ok());
    running.shutdown();
    running.join().unwrap();
    let data = directory.0.join("data");
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "journal") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[40] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let refused = directory
        .server()
        .start()
        .map(drop)
        .unwrap_err()
        .to_string();
    let advice = format!("mneme journal check {}", data.display());
    assert!(refused.contains(&advice), "{refused}");
}
