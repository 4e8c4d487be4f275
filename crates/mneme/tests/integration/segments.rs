//! The segment that a server leaves, and how the next server uses it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::Registry;
use crate::common::serving::{self, Serving};
use mneme_log::Expiry;
use mneme_shared::{Evict, SharedStore, StoreOptions};
use mneme_testkit::wait_until;

const SMALL: [&str; 4] = ["--port", "0", "--memory", "64mb"];

fn serve(registry: &Registry, arguments: &[&str]) -> Command {
    let mut command = serving::command(&[&SMALL[..], arguments].concat());
    command.env("MNEME_DIR", &registry.root);
    command
}

/// The answer to commands of a client, up to that many bytes.
fn asked(serving: &Serving, commands: &str, bytes: usize) -> String {
    let mut client = serving.client();
    client.write_all(commands.as_bytes()).unwrap();
    let mut replies = vec![0; bytes];
    client.read_exact(&mut replies).unwrap();
    String::from_utf8(replies).unwrap()
}

/// The exit code and the error text of a server that does not start.
fn refused(registry: &Registry, arguments: &[&str]) -> String {
    let output = serve(registry, arguments).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    error
}

#[test]
fn a_restart_finds_everything_however_the_last_server_ended() {
    let registry = Registry::new("segment", "restart");
    let first = Serving::start(serve(&registry, &[]));
    assert!(
        first.banner.contains("segment `default` of "),
        "{}",
        first.banner
    );
    assert!(first.banner.contains(", new"), "{}", first.banner);
    let done = asked(&first, "SET a 1\r\nSELECT 3\r\nSET b 2\r\n", 15);
    assert_eq!(done, "+OK\r\n+OK\r\n+OK\r\n");
    first.signal("-TERM");
    assert_eq!(first.end().0, Some(0));

    let second = Serving::start(serve(&registry, &[]));
    assert!(
        second.banner.contains("found with 2 records"),
        "{}",
        second.banner
    );
    assert_eq!(
        asked(&second, "GET a\r\nSET c 3\r\n", 12),
        "$1\r\n1\r\n+OK\r\n"
    );
    second.signal("-KILL");
    assert_eq!(second.end().0, None);

    let third = Serving::start(serve(&registry, &[]));
    assert!(
        third.banner.contains("found with 3 records"),
        "{}",
        third.banner
    );
    let all = asked(&third, "GET a\r\nGET c\r\nSELECT 3\r\nGET b\r\n", 26);
    assert_eq!(all, "$1\r\n1\r\n$1\r\n3\r\n+OK\r\n$1\r\n2\r\n");
}

#[test]
fn local_programs_and_clients_have_the_same_records() {
    let registry = Registry::new("segment", "local");
    let serving = Serving::start(serve(&registry, &["--segment", "sessions"]));
    let place = mneme_space::Registry::open(&registry.root).unwrap();
    assert_eq!(asked(&serving, "SET from client\r\n", 5), "+OK\r\n");
    let reader = SharedStore::attach(&place, "sessions").unwrap();
    assert_eq!(reader.get(b"from").unwrap().unwrap(), b"client");
    assert!(reader.put(b"from", b"reader").is_err());
    let writer = SharedStore::attach_writable(&place, "sessions").unwrap();
    writer.put(b"from", b"writer").unwrap();
    assert_eq!(asked(&serving, "GET from\r\n", 12), "$6\r\nwriter\r\n");
    assert_eq!(reader.get(b"from").unwrap().unwrap(), b"writer");
    let report = || {
        let mut client = serving.client();
        client.write_all(b"INFO segment\r\nQUIT\r\n").unwrap();
        let mut info = String::new();
        client.read_to_string(&mut info).unwrap();
        info
    };
    let info = report();
    for field in [
        "mneme_segment:sessions",
        "mneme_attached_processes:2",
        "mneme_stopped_processes:0",
        "mneme_maintains:1",
        "mneme_local_stored:1",
        "mneme_local_changes_lost:0",
    ] {
        assert!(info.contains(field), "{field} is not in {info}");
    }
    // Commands from before the counts are reset do not count afterwards.
    for _ in 0..10 {
        writer.put(b"from", b"writer").unwrap();
        assert_eq!(asked(&serving, "CONFIG RESETSTAT\r\n", 5), "+OK\r\n");
        let info = report();
        assert!(info.contains("mneme_local_stored:0"), "{info}");
    }
    drop((reader, writer));
}

/// A local program that changes a key which a client watches makes the client's transaction fail,
/// and the other way round.
#[test]
fn watched_keys_may_be_changed_by_clients_and_by_local_programs() {
    let registry = Registry::new("segment", "watched");
    let serving = Serving::start(serve(&registry, &[]));
    let place = mneme_space::Registry::open(&registry.root).unwrap();
    let writer = SharedStore::attach_writable(&place, "default").unwrap();
    let mut client = serving.client();
    let mut ask = |request: &str, reply: &str| {
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = vec![0; reply.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), reply, "{request}");
    };
    let queue = "MULTI\r\nSET done yes\r\n";
    let changes: [fn(&SharedStore); 5] = [
        |store| store.put(b"k", b"1").unwrap(),
        |store| assert!(store.set_expiry(b"k", Expiry::At(u64::MAX >> 1)).unwrap()),
        |store| assert!(store.remove(b"k").unwrap()),
        |store| store.transaction(|t| t.put(b"k", b"2")).unwrap(),
        |store| store.clear().unwrap(),
    ];
    for change in changes {
        ask("WATCH k\r\n", "+OK\r\n");
        change(&writer);
        ask(queue, "+OK\r\n+QUEUED\r\n");
        ask("EXEC\r\n", "*-1\r\n");
        // A change of another key has no effect.
        ask("WATCH k\r\n", "+OK\r\n");
        writer.put(b"other", b"v").unwrap();
        ask(queue, "+OK\r\n+QUEUED\r\n");
        ask("EXEC\r\n", "*1\r\n+OK\r\n");
    }
    let mut watch = writer.watch().unwrap();
    watch.add(0, b"k").unwrap();
    ask("SET k 3\r\n", "+OK\r\n");
    let done = watch.transaction(|t| t.put(b"done", b"no")).unwrap();
    assert_eq!(done, None);
    ask("GET done\r\n", "$3\r\nyes\r\n");
}

/// A server without requests still maintains the store, and its statistics include what other
/// processes do.
#[test]
fn a_server_reports_evictions_that_another_process_made() {
    const EXPIRING: u32 = 100;
    let registry = Registry::new("segment", "forgets");
    let place = mneme_space::Registry::open(&registry.root).unwrap();
    let options = StoreOptions::new().capacity(64 << 20).maintainer(false);
    let writer = options.create(&place, "default").unwrap();
    let serving = Serving::start(serve(&registry, &[]));
    let info = |field: &str| {
        let mut client = serving.client();
        client
            .write_all(b"INFO memory stats keyspace\r\nQUIT\r\n")
            .unwrap();
        let mut info = String::new();
        client.read_to_string(&mut info).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix(field));
        line.map(str::to_owned)
    };
    assert_eq!(info("maxmemory_policy:").unwrap(), "noeviction");
    // They are counted only if they are stored before they expire.
    let soon = SystemTime::now() + Duration::from_millis(1500);
    let soon = soon.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    for i in 0..EXPIRING {
        let expiry = Expiry::At(soon);
        writer.put_until(&i.to_le_bytes(), b"v", expiry).unwrap();
    }
    wait_until("what has expired is swept", || writer.is_empty());
    let expired = || info("expired_keys:").unwrap();
    wait_until("all are counted", || expired() == EXPIRING.to_string());
    assert_eq!(info("db0:"), None);

    writer.set_eviction(Evict::Lru).unwrap();
    assert_eq!(info("maxmemory_policy:").unwrap(), "allkeys-lru");
    for i in 0..100_000_u32 {
        writer.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
    }
    // The maintainer may still be at work.
    let report = || {
        let number = |field: &str| {
            let value = info(field).unwrap();
            let digits = value.split(',').next().unwrap();
            digits.parse::<u64>().unwrap()
        };
        (number("evicted_keys:"), number("db0:keys="))
    };
    wait_until("the two numbers agree", || {
        let (evicted, keys) = report();
        evicted > 0 && evicted + keys == 100_000
    });
    asked(&serving, "CONFIG RESETSTAT\r\n", 5);
    assert!(report().0 < 100_000 - report().1);
}

#[test]
fn two_servers_do_not_serve_one_segment() {
    let registry = Registry::new("segment", "two");
    let serving = Serving::start(serve(&registry, &[]));
    let error = refused(&registry, &[]);
    let expected = format!(
        "segment `default` is not free: the store is being served by process {}",
        serving.process.id()
    );
    assert!(error.contains(&expected), "{error}");
    let other = Serving::start(serve(&registry, &["--segment", "other"]));
    let private = Serving::start(serve(&registry, &["--private"]));
    assert!(
        private.banner.contains("gone when it ends"),
        "{}",
        private.banner
    );
    drop((other, private));
    let listed = registry.json(&["ls", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 2);
}

#[test]
fn a_segment_that_does_not_match_the_request_is_left_alone() {
    let registry = Registry::new("segment", "other");
    let first = Serving::start(serve(&registry, &[]));
    assert_eq!(asked(&first, "SET a 1\r\n", 5), "+OK\r\n");
    drop(first);
    let error = refused(&registry, &["--update-policy", "in-place"]);
    assert!(
        error.contains("was created with update policy Append"),
        "{error}"
    );
    // The server enlarges the segment if that is requested, and never shrinks it.
    let mut grown = serving::command(&["--port", "0", "--memory", "128mb"]);
    grown.env("MNEME_DIR", &registry.root);
    let grown = Serving::start(grown);
    assert!(grown.banner.contains("128.0 MiB, in "), "{}", grown.banner);
    drop(grown);
    let error = refused(&registry, &[]);
    assert!(error.contains("a store does not shrink"), "{error}");
    let mut present = serving::command(&["--port", "0"]);
    present.env("MNEME_DIR", &registry.root);
    let present = Serving::start(present);
    assert!(
        present.banner.contains("128.0 MiB, in "),
        "{}",
        present.banner
    );
    assert_eq!(asked(&present, "GET a\r\n", 7), "$1\r\n1\r\n");
}

#[test]
fn a_damaged_segment_is_set_aside_after_three_starts_and_never_deleted() {
    let registry = Registry::new("segment", "damaged");
    let first = Serving::start(serve(&registry, &[]));
    assert_eq!(asked(&first, "SET a 1\r\n", 5), "+OK\r\n");
    drop(first);
    let data = registry.root.join("segments/default/data");
    let file = std::fs::File::options().write(true).open(data).unwrap();
    // Overwrites the arena's constants.
    file.write_all_at(&[0xa5; 64], 128).unwrap();
    for _ in 0..3 {
        let error = refused(&registry, &[]);
        assert!(error.contains("cannot be opened"), "{error}");
    }
    let fresh = Serving::start(serve(&registry, &[]));
    let aside = "the one before was damaged and is set aside as `default~quarantine-1`";
    assert!(fresh.banner.contains(aside), "{}", fresh.banner);
    assert_eq!(asked(&fresh, "GET a\r\n", 5), "$-1\r\n");
    drop(fresh);
    let listed = registry.json(&["ls", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
}

#[test]
fn servers_killed_at_once_do_not_lose_a_sound_segment() {
    let registry = Registry::new("segment", "killed");
    for round in 0..6 {
        let serving = Serving::start(serve(&registry, &[]));
        assert_eq!(asked(&serving, &format!("SET {round} 1\r\n"), 5), "+OK\r\n");
        serving.signal("-KILL");
        serving.end();
    }
    let last = Serving::start(serve(&registry, &[]));
    assert!(
        last.banner.contains("found with 6 records"),
        "{}",
        last.banner
    );
}

/// The file that records a server's failed starts.
fn note(registry: &Registry) -> PathBuf {
    registry.root.join("segments/default/starts.note")
}

#[test]
fn a_start_beside_a_healthy_server_is_not_counted() {
    let registry = Registry::new("segment", "beside");
    let serving = Serving::start(serve(&registry, &[]));
    wait_until("it has settled", || !note(&registry).exists());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| refused(&registry, &[]));
        }
    });
    assert!(!note(&registry).exists());
    // Nor does a start that dies before it is refused.
    for _ in 0..4 {
        let mut impatient = serve(&registry, &[]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        impatient.kill().unwrap();
        impatient.wait().unwrap();
        assert!(!note(&registry).exists());
    }
    drop(serving);
    assert!(!note(&registry).exists());
}

#[test]
fn a_sound_segment_is_kept_although_a_check_was_interrupted() {
    let registry = Registry::new("segment", "broken-off");
    let mut serving = Serving::start(serve(&registry, &[]));
    assert_eq!(asked(&serving, "SET a 1\r\n", 5), "+OK\r\n");
    // The counts as failed starts leave them: three, and two more during checks.
    for (failed, found) in [("3", "checked"), ("5", "checked"), ("6", "set aside as")] {
        serving.signal("-KILL");
        serving.end();
        std::fs::write(note(&registry), failed).unwrap();
        serving = Serving::start(serve(&registry, &[]));
        assert!(serving.banner.contains(found), "{}", serving.banner);
    }
    // The segment that was set aside keeps no count there.
    let aside = registry.root.join("segments/default~quarantine-1");
    assert!(aside.join("meta").exists() && !aside.join("starts.note").exists());
}

#[test]
fn a_segment_without_its_control_file_is_set_aside_too() {
    for (number, harm) in ["remove", "empty", "overwrite"].iter().enumerate() {
        let registry = Registry::new("segment", &format!("control-{number}"));
        drop(Serving::start(serve(&registry, &[])));
        // A record that is not even text.
        std::fs::write(note(&registry), [0xff, 0xfe]).unwrap();
        let control = registry.root.join("segments/default/control");
        match *harm {
            "remove" => std::fs::remove_file(&control).unwrap(),
            "empty" => std::fs::write(&control, b"").unwrap(),
            _ => {
                let file = std::fs::File::options().write(true).open(&control).unwrap();
                file.write_all_at(&[0xa5; 4096], 0).unwrap();
            }
        }
        for _ in 0..3 {
            refused(&registry, &[]);
        }
        let fresh = Serving::start(serve(&registry, &[]));
        assert!(
            fresh.banner.contains("default~quarantine-1"),
            "{harm}: {}",
            fresh.banner
        );
    }
}

/// A successor that is given the segment and dies.
fn takes_over_and_dies(registry: &Registry) {
    let socket = registry.root.join("segments/default/server.sock");
    let mut server = UnixStream::connect(socket).unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut said = [0; 256];
    server.write_all(b"hand over 1\n").unwrap();
    assert!(server.read(&mut said).unwrap() > 0);
    server.write_all(b"take\n").unwrap();
    let bytes = server.read(&mut said).unwrap();
    assert_eq!(&said[..bytes], b"yours\n");
}

#[test]
fn a_server_whose_successors_die_keeps_no_resources_of_theirs() {
    let registry = Registry::new("segment", "dying");
    let serving = Serving::start(serve(&registry, &[]));
    let process = PathBuf::from(format!("/proc/{}", serving.process.id()));
    let has = |what: &str| std::fs::read_dir(process.join(what)).unwrap().count();
    assert_eq!(asked(&serving, "SET a 1\r\n", 5), "+OK\r\n");
    let socket = registry.root.join("segments/default/server.sock");
    wait_until("it can be taken over", || socket.exists());
    let (threads, descriptors) = (has("task"), has("fd"));
    for _ in 0..3 {
        takes_over_and_dies(&registry);
        assert_eq!(asked(&serving, "GET a\r\n", 7), "$1\r\n1\r\n");
        // The socket that the last one left refuses connections as long as it exists.
        let listens = || UnixStream::connect(&socket).is_ok();
        wait_until("it can be taken over again", listens);
    }
    wait_until("all of it is given back", || {
        has("task") <= threads && has("fd") <= descriptors
    });
}

/// Connects, sends a command and disconnects until it is asked to stop. Returns how often, and the
/// errors.
fn clients_come_and_go(port: u16, stop: &AtomicBool) -> (u32, Vec<String>) {
    let (mut served, mut wrong) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(mut client) => {
                let timeout = Some(Duration::from_secs(60));
                client.set_read_timeout(timeout).unwrap();
                let asked = client.write_all(b"GET a\r\n");
                let mut reply = [0; 7];
                match asked.and_then(|()| client.read_exact(&mut reply)) {
                    Ok(()) if &reply == b"$1\r\n1\r\n" => served += 1,
                    Ok(()) => wrong.push(format!("{:?}", String::from_utf8_lossy(&reply))),
                    // A server that hands over closes its connections, like one that ends.
                    Err(_) => {}
                }
            }
            Err(refused) => wrong.push(refused.to_string()),
        }
    }
    (served, wrong)
}

#[test]
fn a_successor_takes_over_and_no_connection_is_refused() {
    let registry = Registry::new("segment", "takeover");
    let mut serving = Serving::start(serve(&registry, &[]));
    let port = serving.port();
    assert_eq!(asked(&serving, "SET a 1\r\n", 5), "+OK\r\n");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| clients_come_and_go(port, &stop));
        for _ in 0..5 {
            let next = Serving::start(serve(&registry, &["--take-over"]));
            assert_eq!(next.port(), port);
            assert!(
                next.banner.contains("found with 1 records"),
                "{}",
                next.banner
            );
            let (code, log) = std::mem::replace(&mut serving, next).end();
            assert_eq!(code, Some(0), "{log}");
            assert!(log.contains("handed over"), "{log}");
        }
        stop.store(true, Ordering::Relaxed);
        let (served, wrong) = clients.join().unwrap();
        assert_eq!(wrong, [] as [String; 0]);
        assert!(served > 0);
    });
    assert_eq!(asked(&serving, "GET a\r\n", 7), "$1\r\n1\r\n");
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// The sockets are those of the old server: the banner and `CONFIG GET` show their addresses, the
/// log names settings without effect, and `CONFIG REWRITE` keeps the file's own values for the next
/// start.
#[test]
fn a_successor_reports_its_addresses_and_keeps_its_configuration_file() {
    let registry = Registry::new("segment", "inherited");
    let serving = Serving::start(serve(&registry, &[]));
    let port = serving.port();
    let file = registry.root.join("successor.toml");
    let socket = registry.root.join("other.sock");
    let text = format!(
        "# Ours.\nport = 1\nunixsocket = \"{}\"\nbind = [\"::1\"]\n",
        socket.display()
    );
    std::fs::write(&file, &text).unwrap();
    let mut command = serving::command(&["--memory", "64mb", "--take-over", "--config"]);
    command.arg(&file).env("MNEME_DIR", &registry.root);
    let next = Serving::start(command);
    assert_eq!(next.port(), port);
    assert!(!next.banner.contains("other.sock"), "{}", next.banner);
    let said = next
        .said("CONFIG GET port\r\nCONFIG GET bind\r\nCONFIG GET unixsocket\r\nCONFIG REWRITE\r\n");
    for expected in [
        format!("port\r\n${}\r\n{port}\r\n", port.to_string().len()),
        "bind\r\n$9\r\n127.0.0.1\r\n".to_owned(),
        "unixsocket\r\n$0\r\n\r\n".to_owned(),
    ] {
        assert!(said.contains(&expected), "{expected:?} is not in {said}");
    }
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.starts_with(&text), "{written}");
    next.signal("-TERM");
    let (_, log) = next.end();
    for name in ["port", "bind", "unixsocket"] {
        let line = log
            .lines()
            .find(|line| line.contains("without effect") && line.contains(&format!("\"{name}\"")));
        assert!(line.is_some(), "{name}: {log}");
    }
}

#[test]
fn a_server_continues_if_its_successor_fails_to_start() {
    let registry = Registry::new("segment", "successor");
    let serving = Serving::start(serve(&registry, &[]));
    assert_eq!(asked(&serving, "SET a 1\r\n", 5), "+OK\r\n");
    let set = "CONFIG SET appendfsync always\r\n";
    assert_eq!(asked(&serving, set, 5), "+OK\r\n");
    let error = refused(&registry, &["--take-over", "--update-policy", "in-place"]);
    assert!(
        error.contains("was created with update policy Append"),
        "{error}"
    );
    assert_eq!(asked(&serving, "GET a\r\n", 7), "$1\r\n1\r\n");
    // Including the settings that clients have changed.
    let shown = "*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n";
    let get = "CONFIG GET appendfsync\r\n";
    assert_eq!(asked(&serving, get, shown.len()), shown);
    // Another successor can still take over.
    let next = Serving::start(serve(&registry, &["--take-over"]));
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("the successor does not serve; going on"),
        "{log}"
    );
    assert_eq!(asked(&next, "GET a\r\n", 7), "$1\r\n1\r\n");
}

#[test]
fn an_invalid_segment_name_is_refused_by_the_setting() {
    let registry = Registry::new("segment", "names");
    for name in ["a/b", "", "..", "a\nb"] {
        let error = refused(&registry, &["--segment", name]);
        let expected = format!("invalid value '{name}' for 'segment': a name ");
        assert!(error.contains(&expected), "{error}");
    }
    // Also if no segment is served, or the server only prints its settings.
    for more in ["--private", "--print-config"] {
        let error = refused(&registry, &["--segment", "a/b", more]);
        assert!(error.contains("'a/b' for 'segment': a name "), "{error}");
    }
}

#[test]
fn without_a_server_a_successor_just_serves() {
    let registry = Registry::new("segment", "nobody");
    let serving = Serving::start(serve(&registry, &["--take-over"]));
    serving.signal("-KILL");
    serving.end();
    let serving = Serving::start(serve(&registry, &["--take-over"]));
    assert_eq!(asked(&serving, "SET a 1\r\n", 5), "+OK\r\n");
}

#[test]
fn a_store_is_shown_checked_and_grown() {
    let registry = Registry::new("segment", "shown");
    let serving = Serving::start(serve(&registry, &[]));
    assert_eq!(
        asked(&serving, "SET a 1\r\nSET b 2\r\n", 10),
        "+OK\r\n+OK\r\n"
    );
    let shown = registry.json(&["show", "default", "--json"]);
    assert_eq!(shown["contents"], "log store");
    let store = &shown["store"];
    assert_eq!(
        (&store["records"], &store["capacity"]),
        (&2.into(), &(64 << 20).into())
    );
    let process = &store["processes"][0];
    assert_eq!(process["pid"], serving.process.id());
    assert_eq!(
        (&process["serves"], &process["maintains"]),
        (&true.into(), &true.into())
    );
    let text = registry.done(&["show", "default"]);
    assert!(text.contains("serves, maintains"), "{text}");
    assert_eq!(registry.done(&["check", "default"]), "default: 2 records\n");
    assert_eq!(
        registry.done(&["grow", "default", "128mb"]),
        "default: 128.0 MiB\n"
    );
    assert_eq!(asked(&serving, "GET a\r\n", 7), "$1\r\n1\r\n");
    let used = registry.refused(&["upgrade", "default"]);
    assert!(used.contains("being served by process"), "{used}");
    let used = registry.refused(&["rm", "default"]);
    assert!(used.contains("is mapped by a living process"), "{used}");
}

#[test]
fn a_store_that_cannot_grow_so_far_names_the_upgrade_command() {
    let registry = Registry::new("segment", "beyond");
    drop(Serving::start(serve(&registry, &[])));
    let way_out = "`mneme segment upgrade default --memory 1073741824`";
    let mut larger = serving::command(&["--port", "0", "--memory", "1gb"]);
    let output = larger.env("MNEME_DIR", &registry.root).output().unwrap();
    let of_serve = String::from_utf8(output.stderr).unwrap();
    for error in [of_serve, registry.refused(&["grow", "default", "1gb"])] {
        assert!(error.contains(way_out), "{error}");
        assert!(!error.contains("max_capacity"), "{error}");
    }
}

#[test]
fn a_name_too_long_for_an_operation_is_given_as_the_reason() {
    let registry = Registry::new("segment", "long");
    let name = "n".repeat(195);
    let named = ["--segment", name.as_str()];
    drop(Serving::start(serve(&registry, &named)));
    let error = registry.refused(&["upgrade", &name]);
    assert!(error.contains("NAME may have 192 bytes"), "{error}");
    let data = registry.root.join("segments").join(&name).join("data");
    let file = std::fs::File::options().write(true).open(data).unwrap();
    file.write_all_at(&[0xa5; 64], 128).unwrap();
    for _ in 0..3 {
        refused(&registry, &named);
    }
    let error = refused(&registry, &named);
    assert!(error.contains("cannot be set aside"), "{error}");
    assert!(error.contains("at most 200 bytes"), "{error}");
}

#[test]
fn a_store_with_deleted_data_is_described_with_advice() {
    let registry = Registry::new("segment", "deleted");
    drop(Serving::start(serve(&registry, &[])));
    let shown = registry.json(&["show", "default", "--json"]);
    std::fs::remove_file(shown["data"].as_str().unwrap()).unwrap();
    let way_out = "`mneme segment rm default`";
    let error = refused(&registry, &[]);
    assert!(error.contains(way_out), "{error}");
    let (code, known, error) = registry.run(&["show", "default"]);
    assert_eq!(code, Some(1));
    assert!(error.contains(way_out), "{error}");
    assert!(
        known.contains(shown["uuid"].as_str().unwrap()) && known.contains("log store"),
        "{known}"
    );
    let (_, known, _) = registry.run(&["show", "default", "--json"]);
    let known: serde_json::Value = serde_json::from_str(&known).unwrap();
    assert_eq!(known["max_size"], shown["max_size"]);
    assert!(known["error"].as_str().unwrap().contains("is gone"));
    registry.done(&["rm", "default"]);
    drop(Serving::start(serve(&registry, &[])));
}

#[test]
fn a_stopped_process_is_named_and_ended() {
    let registry = Registry::new("segment", "stuck");
    let serving = Serving::start(serve(&registry, &[]));
    assert_eq!(asked(&serving, "SET a 1\r\n", 5), "+OK\r\n");
    let pid = serving.process.id().to_string();
    serving.signal("-STOP");
    let report = registry.done(&["unstick", "default"]);
    assert!(
        report.contains(&pid) && report.contains("stopped"),
        "{report}"
    );
    let other = registry.refused(&["unstick", "default", "--end", "1"]);
    assert!(other.contains("process 1 does not have default"), "{other}");
    let report = registry.done(&["unstick", "default", "--end", &pid]);
    assert_eq!(report, "no process has it\n");
    assert_eq!(serving.end().0, None);
    let next = Serving::start(serve(&registry, &[]));
    assert_eq!(asked(&next, "GET a\r\n", 7), "$1\r\n1\r\n");
    // A dead process cannot be ended: its number may belong to another one.
    let pid = next.process.id().to_string();
    next.signal("-KILL");
    next.end();
    let report = registry.done(&["unstick", "default", "--end", &pid]);
    assert_eq!(report, "no process has it\n");
    for option in ["--rebuild", "--accept"] {
        let error = registry.refused(&["unstick", "default", option]);
        assert!(error.contains("nothing was done"), "{error}");
    }
}

#[test]
fn a_store_is_rebuilt_with_all_its_records() {
    let registry = Registry::new("segment", "upgrade");
    let serving = Serving::start(serve(&registry, &[]));
    let done = asked(&serving, "SET a 1\r\nSELECT 7\r\nSET b 2\r\n", 15);
    assert_eq!(done, "+OK\r\n+OK\r\n+OK\r\n");
    drop(serving);
    let said = registry.done(&[
        "upgrade",
        "default",
        "--memory",
        "96mb",
        "--update-policy",
        "in-place",
    ]);
    assert!(
        said.contains("default: 2 records; the old store is `default~old`"),
        "{said}"
    );
    let again = registry.refused(&["upgrade", "default"]);
    assert!(
        again.contains("`default~old` from an earlier upgrade"),
        "{again}"
    );
    let mut command = serving::command(&["--port", "0", "--update-policy", "in-place"]);
    command.env("MNEME_DIR", &registry.root);
    let next = Serving::start(command);
    assert!(next.banner.contains("96.0 MiB, in "), "{}", next.banner);
    let all = asked(&next, "GET a\r\nSELECT 7\r\nGET b\r\n", 19);
    assert_eq!(all, "$1\r\n1\r\n+OK\r\n$1\r\n2\r\n");
    drop(next);
    registry.done(&["rm", "default~old"]);
    // An upgrade that was interrupted between the two renames is completed.
    let place = mneme_space::Registry::open(&registry.root).unwrap();
    registry.done(&["upgrade", "default"]);
    place.keep_beside("default", "upgrade").unwrap();
    let said = registry.done(&["upgrade", "default"]);
    assert!(said.contains("default: 2 records"), "{said}");
    assert_eq!(
        SharedStore::attach(&place, "default")
            .unwrap()
            .get(b"a")
            .unwrap()
            .unwrap(),
        b"1"
    );
}
