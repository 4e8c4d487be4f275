//! `mneme serve --data`: after any end of the server and the loss of its memory, everything that
//! was acknowledged is found again.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use mneme_sys::medium::FileDirectory;
use mneme_testkit::{Mount, TestDir, in_threads, wait_until};

use crate::common::Registry;
use crate::common::serving::{self, Serving};
use crate::network_mount::NetworkMount;

/// A registry and a data directory, removed at the end of the test.
struct Place {
    registry: Registry,
    data: PathBuf,
    _dir: TestDir,
}

impl Place {
    fn new(test: &str) -> Self {
        let dir = TestDir::on_disk(test);
        Self {
            registry: Registry::new("journal", test),
            data: dir.join("data"),
            _dir: dir,
        }
    }

    fn data(&self) -> &str {
        self.data.to_str().unwrap()
    }

    /// The command for a server that keeps no data.
    fn plain(&self, arguments: &[&str]) -> Command {
        let small = ["--port", "0", "--memory", "64mb", "--threads", "2"];
        let mut command = serving::command(&[&small[..], arguments].concat());
        command.env("MNEME_DIR", &self.registry.root);
        command
    }

    fn serve(&self, arguments: &[&str]) -> Serving {
        let kept = ["--data", self.data(), "--appendfsync", "always"];
        Serving::start(self.plain(&[&kept[..], arguments].concat()))
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.plain(arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        error
    }

    /// As after a power cut: removes the segment.
    fn lose_memory(&self) {
        let (code, _, error) = self.registry.run_as("segment", &["rm", "default"]);
        assert_eq!(code, Some(0), "{error}");
    }
}

/// For each client, the last number that was acknowledged.
fn count_until_killed(server: &Serving, clients: usize) -> Vec<u64> {
    let counts: Vec<_> = (0..clients)
        .map(|_| std::sync::atomic::AtomicU64::new(0))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("some writes are acknowledged", || {
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) >= 50)
            });
            server.signal("-KILL");
            is_over.store(true, Ordering::Relaxed);
        });
        in_threads(clients, |number| {
            let mut client = BufReader::new(server.client());
            for count in 1.. {
                if set(&mut client, number, count).is_none() {
                    break;
                }
                counts[number].store(count, Ordering::Relaxed);
            }
        });
    });
    assert!(is_over.into_inner());
    counts.into_iter().map(|count| count.into_inner()).collect()
}

/// Sets a client's key; `None` if the server did not acknowledge it.
fn set(client: &mut BufReader<TcpStream>, number: usize, count: u64) -> Option<()> {
    let command = format!("SET client:{number} {count}\r\n");
    client.get_mut().write_all(command.as_bytes()).ok()?;
    let mut reply = String::new();
    client.read_line(&mut reply).ok()?;
    (reply == "+OK\r\n").then_some(())
}

fn get(server: &Serving, number: usize) -> u64 {
    let said = server.said(&format!("GET client:{number}\r\n"));
    said.lines().nth(1).unwrap().parse().unwrap()
}

#[test]
fn acknowledged_writes_survive_a_kill_and_the_loss_of_memory() {
    kill_and_lose_memory("journal");
    kill_and_lose_memory("tree");
}

fn kill_and_lose_memory(durability: &str) {
    const CLIENTS: usize = 4;
    let place = Place::new(durability);
    let arguments = ["--durability", durability];
    let mut server = place.serve(&arguments);
    assert!(server.banner.contains("kept in "), "{}", server.banner);
    for loses_memory in [false, true, true] {
        let counts = count_until_killed(&server, CLIENTS);
        server.process.wait();
        drop(server);
        if loses_memory {
            place.lose_memory();
        }
        server = place.serve(&arguments);
        for (number, count) in counts.into_iter().enumerate() {
            // The next number may have been stored without being acknowledged.
            let found = get(&server, number);
            assert!((count..=count + 1).contains(&found), "{found}, not {count}");
        }
    }
}

#[test]
fn data_of_private_memory_is_kept_too() {
    let place = Place::new("private");
    let server = place.serve(&["--private"]);
    assert!(server.banner.contains("in memory of this process\n"));
    assert_eq!(server.said("SET a 1\r\nSELECT 3\r\nSET b 2\r\n").len(), 20);
    server.signal("-KILL");
    server.end();
    let server = place.serve(&["--private"]);
    assert_eq!(
        server.said("GET a\r\nSELECT 3\r\nGET b\r\n"),
        "$1\r\n1\r\n+OK\r\n$1\r\n2\r\n+OK\r\n"
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// A server that could not make its last changes durable says so by its exit code.
#[test]
fn a_server_whose_directory_is_gone_ends_with_an_error() {
    let place = Place::new("gone");
    let kept = ["--private", "--data", place.data(), "--appendfsync", "no"];
    let server = Serving::start(place.plain(&kept));
    std::fs::remove_dir_all(&place.data).unwrap();
    assert_eq!(server.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
    server.signal("-TERM");
    let (code, error) = server.end();
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("the last changes are not durable"),
        "{error}"
    );
}

#[test]
fn a_segment_and_a_directory_that_do_not_belong_together_are_refused() {
    let place = Place::new("pairs");
    let server = place.serve(&[]);
    assert_eq!(server.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
    let refused = place.refused(&["--data", place.data(), "--private"]);
    assert!(refused.contains("is in use by process"), "{refused}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    // With the segment alone, changes that are not in the directory yet would be lost.
    let refused = place.refused(&[]);
    assert!(
        refused.contains("segment `default` is kept in a directory") && refused.contains("--data"),
        "{refused}"
    );
    // The directory may be used alone, but then the segment is older than it.
    let alone = place.serve(&["--private"]);
    assert_eq!(alone.said("SET a 2\r\n"), "+OK\r\n+OK\r\n");
    drop(alone);
    let refused = place.refused(&["--data", place.data()]);
    assert!(refused.contains("mneme segment rm"), "{refused}");
    place.lose_memory();
    assert_eq!(place.serve(&[]).said("GET a\r\n"), "$1\r\n2\r\n+OK\r\n");
}

#[test]
fn a_server_that_is_taken_over_leaves_everything_durable() {
    taken_over("journal");
    taken_over("tree");
}

fn taken_over(durability: &str) {
    let place = Place::new(&format!("taken-{durability}"));
    let kept = ["--durability", durability];
    let old = place.serve(&kept);
    let port = old.port();
    assert_eq!(old.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
    let new = place.serve(&[&kept[..], &["--take-over"]].concat());
    assert_eq!(new.port(), port);
    assert_eq!(old.end().0, Some(0));
    assert_eq!(
        new.said("GET a\r\nSET b 2\r\n"),
        "$1\r\n1\r\n+OK\r\n+OK\r\n"
    );
    new.signal("-KILL");
    new.end();
    place.lose_memory();
    assert_eq!(
        place.serve(&kept).said("GET a\r\nGET b\r\n"),
        "$1\r\n1\r\n$1\r\n2\r\n+OK\r\n"
    );
}

/// The server's segment has no name yet. A lock on the directory stands in for such a server.
#[test]
fn a_server_that_still_loads_is_not_taken_over() {
    let place = Place::new("loading");
    let server = place.serve(&[]);
    assert_eq!(server.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
    server.signal("-KILL");
    server.end();
    place.lose_memory();
    let loading = FileDirectory::open(&place.data).unwrap();
    let refused = place.refused(&["--data", place.data(), "--take-over"]);
    assert!(
        refused.contains(place.data()) && refused.contains("is still loading"),
        "{refused}"
    );
    drop(loading);
    let server = place.serve(&["--take-over"]);
    assert_eq!(server.said("GET a\r\n"), "$1\r\n1\r\n+OK\r\n");
}

#[test]
fn a_journal_is_checked_and_repaired() {
    let place = Place::new("damaged");
    let server = place.serve(&[]);
    for number in 0..20 {
        assert_eq!(
            server.said(&format!("SET key:{number} 1\r\n")),
            "+OK\r\n+OK\r\n"
        );
    }
    let in_use = place.registry.refused(&["check", place.data()]);
    assert!(in_use.contains("process"), "{in_use}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let whole = place.registry.json(&["check", place.data(), "--json"]);
    assert_eq!(
        (&whole["lost_bytes"], whole["damage"].is_null()),
        (&0.into(), true)
    );

    let journals = std::fs::read_dir(&place.data).unwrap();
    let mut journals: Vec<_> = journals
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    journals.sort();
    // Flips a bit in the fifth value's frame, which further frames follow. The frame is found by
    // its content, since an idle journal contains frames of its own.
    let mut bytes = std::fs::read(&journals[0]).unwrap();
    let has = |frame: &[u8], key: &[u8]| frame.windows(key.len()).any(|part| part == key);
    let fifth = bytes.chunks_mut(4096).find(|frame| has(frame, b"key:4"));
    fifth.unwrap()[50] ^= 1;
    std::fs::write(&journals[0], &bytes).unwrap();
    place.lose_memory();
    let refused = place.refused(&["--data", place.data()]);
    assert!(refused.contains(".journal"), "{refused}");
    let (code, said, _) = place.registry.run(&["check", place.data()]);
    assert!(
        code == Some(1) && said.contains("a repair   ends it at"),
        "{said}"
    );
    let refused = place.registry.refused(&["repair", place.data()]);
    assert!(refused.contains("--lose"), "{refused}");
    let repaired = place.registry.done(&["repair", place.data(), "--lose"]);
    assert!(repaired.contains("repaired   it ends at"), "{repaired}");
    let server = place.serve(&[]);
    // Exactly the values before the damage.
    for number in 0..4 {
        let exists = format!("EXISTS key:{number}\r\n");
        assert_eq!(server.said(&exists), ":1\r\n+OK\r\n");
    }
    assert_eq!(server.said("DBSIZE\r\n"), ":4\r\n+OK\r\n");

    // No header and no checkpoint are left: only the segment has the data.
    server.signal("-KILL");
    server.end();
    for entry in std::fs::read_dir(&place.data).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "journal") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[20] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
        }
    }
    let (code, said, _) = place.registry.run(&["check", place.data()]);
    let is_clear = said.contains("a repair   is not possible");
    assert!(code == Some(1) && is_clear, "{said}");
    let refused = place.registry.refused(&["repair", place.data(), "--lose"]);
    assert!(
        refused.contains("serve it with an empty directory"),
        "{refused}"
    );
    std::fs::rename(&place.data, place.data.with_extension("aside")).unwrap();
    let server = place.serve(&[]);
    assert_eq!(server.said("DBSIZE\r\n"), ":4\r\n+OK\r\n");
}

/// Runs `mneme`, which must fail; returns its output.
fn fails(place: &Place, command: &str, arguments: &[&str]) -> String {
    let (code, said, error) = place.registry.run_as(command, arguments);
    assert_eq!(code, Some(1), "{command} {arguments:?}: {said}{error}");
    error
}

/// Runs `mneme`, which must succeed; returns its output.
fn does(place: &Place, command: &str, arguments: &[&str]) -> String {
    let (code, said, error) = place.registry.run_as(command, arguments);
    assert_eq!(code, Some(0), "{command} {arguments:?}: {said}{error}");
    said
}

#[test]
fn a_backup_is_written_beside_clients_and_restored() {
    let place = Place::new("backup");
    let server = place.serve(&[]);
    assert_eq!(server.said("SET a 1\r\nSELECT 2\r\nSET b 2\r\n").len(), 20);
    let at = server.port().to_string();
    let refused = fails(&place, "backup", &["no/name", "--port", &at]);
    assert!(refused.contains("the backup was not written"), "{refused}");
    // While writes are in flight: the backup has everything that was acknowledged before.
    let is_over = AtomicBool::new(false);
    let (begun, seen) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = BufReader::new(server.client());
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                count += 1;
                set(&mut client, 0, count).unwrap();
            }
            count
        });
        wait_until("something is written", || {
            server.said("EXISTS client:0\r\n").starts_with(":1")
        });
        let begun = get(&server, 0);
        let said = does(&place, "backup", &["monday", "--port", &at, "--json"]);
        assert!(said.contains(r#""records":3"#), "{said}");
        is_over.store(true, Ordering::Relaxed);
        (begun, writer.join().unwrap())
    });
    assert_eq!(server.said("SET a later\r\n"), "+OK\r\n+OK\r\n");

    let file = place.data.join("monday.backup");
    let (file, to) = (file.to_str().unwrap(), place.data.join("restored"));
    let to = to.to_str().unwrap();
    // Refused while a process uses the directory or the segment.
    let refused = fails(&place, "restore", &[file, place.data()]);
    assert!(refused.contains("is in use by process"), "{refused}");
    let registry = mneme_space::Registry::open(&place.registry.root).unwrap();
    let reader = mneme_shared::SharedStore::attach(&registry, "default").unwrap();

    let said = does(&place, "restore", &[file, to]);
    assert!(said.contains("mneme serve --data"), "{said}");
    let refused = fails(&place, "restore", &[file, to]);
    assert!(refused.contains("is not empty"), "{refused}");
    // The existing segment belongs to the other directory.
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let refused = place.refused(&["--data", to]);
    assert!(refused.contains("mneme segment rm"), "{refused}");
    let restored = ["--data", to, "--private"];
    // The second time, the directory's own journal continues from the backup.
    for _ in 0..2 {
        let server = Serving::start(place.plain(&restored));
        let said = server.said("GET a\r\nSETNX c 3\r\nSELECT 2\r\nGET b\r\n");
        assert!(said.starts_with("$1\r\n1\r\n:"), "{said}");
        assert!(said.ends_with("+OK\r\n$1\r\n2\r\n+OK\r\n"), "{said}");
        assert_eq!(server.said("GET c\r\n"), "$1\r\n3\r\n+OK\r\n");
        let found = get(&server, 0);
        assert!((begun..=seen).contains(&found), "{begun} {found} {seen}");
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
    }

    // Restores into the backup's own directory.
    let own = [file, place.data(), "--segment", "default"];
    let refused = fails(&place, "restore", &own);
    assert!(refused.contains("default"), "{refused}");
    drop(reader);
    let said = does(&place, "restore", &own);
    assert!(
        said.contains("mneme segment rm default~replaced-1"),
        "{said}"
    );
    let server = place.serve(&[]);
    assert_eq!(server.said("GET a\r\n"), "$1\r\n1\r\n+OK\r\n");
    drop(server);

    // A backup that was damaged is not restored.
    let mut bytes = std::fs::read(file).unwrap();
    bytes[4096 + 50] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let other = place.data.join("other");
    let refused = fails(&place, "restore", &[file, other.to_str().unwrap()]);
    let names = refused.contains("monday.backup") && refused.contains("offset 4096");
    assert!(names, "{refused}");
    assert!(!other.exists());
}

/// A service manager learns from the exit code whether all data is on disk.
#[test]
fn a_server_whose_last_changes_are_lost_ends_with_an_error() {
    for (ends, code) in [
        ("-TERM", 1),
        ("SHUTDOWN\r\n", 1),
        ("SHUTDOWN NOSAVE\r\n", 0),
    ] {
        let place = Place::new("lost");
        let kept = ["--private", "--data", place.data(), "--appendfsync", "no"];
        let server = Serving::start(place.plain(&kept));
        std::fs::remove_dir_all(&place.data).unwrap();
        assert_eq!(server.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
        match ends {
            "-TERM" => server.signal(ends),
            command => server.client().write_all(command.as_bytes()).unwrap(),
        }
        let (found, log) = server.end();
        assert_eq!(found, Some(code), "{ends}: {log}");
        assert!(log.contains("the last changes are not durable"), "{log}");
    }
}

#[test]
fn redis_cli_finds_a_server_that_keeps_its_data() {
    let place = Place::new("cli");
    let server = place.serve(&["--private"]);
    let port = server.port().to_string();
    let cli = |words: &[&str]| {
        let mut cli = Command::new("redis-cli");
        let output = cli.args(["-p", &port]).args(words).output().ok()?;
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let Some(stored) = cli(&["SET", "a", "1"]) else {
        return eprintln!("skipped: there is no redis-cli");
    };
    assert_eq!(stored, "OK\n");
    let say = |words: &[&str]| cli(words).unwrap();
    assert_eq!(say(&["CONFIG", "SET", "save", "900 1"]), "OK\n");
    assert_eq!(say(&["CONFIG", "GET", "save"]), "save\n900 1\n");
    let begun = say(&["BGSAVE"]);
    assert_eq!(begun, "Background saving started\n");
    wait_until("it is written", || {
        say(&["INFO", "persistence"]).contains("rdb_saves:1\r\n")
    });
    assert!(say(&["LASTSAVE"]).trim().parse::<u64>().unwrap() > 0);
    say(&["SHUTDOWN"]);
    assert_eq!(server.end().0, Some(0));
    let server = place.serve(&["--private"]);
    assert_eq!(server.said("GET a\r\n"), "$1\r\n1\r\n+OK\r\n");
}

/// A tmpfs of that size, mounted over the data directory; `None` if that is not possible here.
fn mounted(place: &Place, size: &str) -> Option<Mount> {
    let directory = Path::new(place.data());
    std::fs::create_dir(directory).unwrap();
    Mount::tmpfs(directory, size)
}

/// A read-only directory is refused, and not changed.
#[test]
fn a_directory_on_a_read_only_file_system_is_refused() {
    let place = Place::new("read-only");
    let Some(mount) = mounted(&place, "64m") else {
        return;
    };
    let data = format!("{}/kept", place.data());
    let kept = ["--private", "--durability", "tree", "--data", &data];
    let server = Serving::start(place.plain(&kept));
    assert_eq!(server.said("SET kept yes\r\n"), "+OK\r\n+OK\r\n");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    mount.remount("ro");
    let refused = place.refused(&kept);
    assert!(
        refused.contains(&data) && refused.contains("Read-only file system"),
        "{refused}"
    );
    let other = format!("{}/other", place.data());
    let refused = place.refused(&["--private", "--data", &other]);
    assert!(refused.contains("Read-only file system"), "{refused}");
    mount.remount("rw");
    let server = Serving::start(place.plain(&kept));
    assert_eq!(server.said("GET kept\r\n"), "$3\r\nyes\r\n+OK\r\n");
}

/// A directory that other machines can change is refused in both forms of durability, and not
/// changed.
#[test]
fn a_directory_on_a_network_file_system_is_refused() {
    let place = Place::new("network");
    let Some(_mount) = NetworkMount::over(place.data()) else {
        return;
    };
    for form in ["journal", "tree"] {
        let refused = place.refused(&["--durability", form, "--data", place.data()]);
        assert!(
            refused.contains(place.data()) && refused.contains("network"),
            "{refused}"
        );
    }
}

/// Reading a tree needs no free space.
#[test]
fn a_tree_on_a_full_disk_is_read_until_there_is_space() {
    let place = Place::new("full-tree");
    let Some(mount) = mounted(&place, "64m") else {
        return;
    };
    let data = format!("{}/kept", place.data());
    let kept = ["--private", "--durability", "tree", "--data", &data];
    let server = Serving::start(place.plain(&kept));
    // Made durable before the disk fills up.
    let sync = |policy: &str| server.said(&format!("CONFIG SET appendfsync {policy}\r\n"));
    assert_eq!(sync("always"), "+OK\r\n+OK\r\n");
    assert_eq!(server.said("SET kept yes\r\n"), "+OK\r\n+OK\r\n");
    assert_eq!(sync("everysec"), "+OK\r\n+OK\r\n");
    let put = |server: &Serving, number: usize| {
        server.said(&format!("SET key:{number} {}\r\n", "x".repeat(5000)))
    };
    mount.fill();
    // The free space inside the file is used first.
    let is_refused = |number: &usize| put(&server, *number).starts_with("-MISCONF");
    wait_until("the disk is full", || {
        (0..500).any(|number| is_refused(&number))
    });
    server.signal("-TERM");
    // There was no space for its last changes.
    assert_eq!(server.end().0, Some(1));
    for _ in 0..2 {
        let server = Serving::start(place.plain(&kept));
        assert_eq!(server.said("GET kept\r\n"), "$3\r\nyes\r\n+OK\r\n");
        wait_until("a change finds no space", || {
            put(&server, 0).starts_with("-MISCONF")
        });
        server.signal("-KILL");
        server.end();
    }
    mount.free();
    let server = Serving::start(place.plain(&kept));
    assert_eq!(server.said("GET kept\r\n"), "$3\r\nyes\r\n+OK\r\n");
    wait_until("writes are taken", || put(&server, 0).starts_with("+OK"));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let place = Place::new("full");
    let Some(mount) = mounted(&place, "320m") else {
        return;
    };
    let data = format!("{}/kept", place.data());
    let server = Serving::start(place.plain(&["--private", "--data", &data]));
    let mut client = BufReader::new(server.client());
    let mut say = |command: &str| {
        client.get_mut().write_all(command.as_bytes()).unwrap();
        let mut reply = String::new();
        client.read_line(&mut reply).unwrap();
        reply
    };
    let put = format!("SET big {}\r\n", "x".repeat(60_000));
    assert_eq!(say("SET kept yes\r\n"), "+OK\r\n");
    for is_last in [false, true] {
        mount.fill();
        // The preallocated space is used first.
        let refused = (0..8000)
            .map(|_| say(&put))
            .find(|reply| reply != "+OK\r\n");
        let refused = refused.expect("the disk is full");
        assert!(refused.starts_with("-MISCONF"), "{refused}");
        assert!(refused.contains("No space left on device"), "{refused}");
        assert_eq!(say("EXISTS kept\r\n"), ":1\r\n");
        if !is_last {
            mount.free();
            wait_until("writes are taken again", || say(&put) == "+OK\r\n");
        }
    }
    // Accepted writes still have space.
    server.client().write_all(b"SHUTDOWN\r\n").unwrap();
    assert_eq!(server.end().0, Some(0));
    // It can be read although the disk is still full, without a spare file.
    for entry in std::fs::read_dir(&data).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("spare-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    mount.fill();
    let server = Serving::start(place.plain(&["--private", "--data", &data]));
    assert_eq!(server.said("GET kept\r\n"), "$3\r\nyes\r\n+OK\r\n");
    let refused = server.said("SET kept no\r\n");
    assert!(refused.starts_with("-MISCONF"), "{refused}");
    server.client().write_all(b"SHUTDOWN\r\n").unwrap();
    assert_eq!(server.end().0, Some(0));
    mount.free();
    let server = Serving::start(place.plain(&["--private", "--data", &data]));
    assert_eq!(server.said("GET kept\r\n"), "$3\r\nyes\r\n+OK\r\n");
    assert_eq!(server.said("STRLEN big\r\n"), ":60000\r\n+OK\r\n");
}
