//! `mneme serve --data`: what was acknowledged is there again, whatever has ended the server and
//! taken its memory.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use mneme_testkit::{in_threads, wait_until};

use crate::common::Registry;
use crate::common::serving::{self, Serving};

/// A registry and a directory for data, gone with the test.
struct Place {
    registry: Registry,
    data: PathBuf,
}

impl Place {
    fn new(test: &str) -> Self {
        let name = format!("mneme-durable-{test}-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&data);
        let registry = Registry::new("journal", test);
        Self { registry, data }
    }

    fn data(&self) -> &str {
        self.data.to_str().unwrap()
    }

    /// A server without data of its own to keep.
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

    /// As a power cut: the segment is gone.
    fn lose_memory(&self) {
        let (code, _, error) = self.registry.run_as("segment", &["rm", "default"]);
        assert_eq!(code, Some(0), "{error}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// Each client's number, as it was acknowledged last.
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

/// Sets a client's key; `None` if that was not acknowledged.
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
fn what_was_acknowledged_survives_a_kill_and_the_loss_of_memory() {
    const CLIENTS: usize = 4;
    let place = Place::new("kills");
    let mut server = place.serve(&[]);
    assert!(server.banner.contains("kept in "), "{}", server.banner);
    for loses_memory in [false, true, true] {
        let counts = count_until_killed(&server, CLIENTS);
        server.process.wait().unwrap();
        drop(server);
        if loses_memory {
            place.lose_memory();
        }
        server = place.serve(&[]);
        for (number, count) in counts.into_iter().enumerate() {
            // The next one may have been made and not acknowledged.
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

#[test]
fn what_does_not_belong_together_is_refused() {
    let place = Place::new("pairs");
    let server = place.serve(&[]);
    assert_eq!(server.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
    let refused = place.refused(&["--data", place.data(), "--private"]);
    assert!(refused.contains("is in use by process"), "{refused}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    // The segment alone would lose what is not in the directory.
    let refused = place.refused(&[]);
    assert!(
        refused.contains("segment `default` is kept in a directory") && refused.contains("--data"),
        "{refused}"
    );
    // The directory alone may go on, but then the segment is an older one.
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
    let place = Place::new("taken");
    let old = place.serve(&[]);
    let port = old.port();
    assert_eq!(old.said("SET a 1\r\n"), "+OK\r\n+OK\r\n");
    let new = place.serve(&["--take-over"]);
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
        place.serve(&[]).said("GET a\r\nGET b\r\n"),
        "$1\r\n1\r\n$1\r\n2\r\n+OK\r\n"
    );
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
    // A bit of the fifth frame, which others follow.
    let mut bytes = std::fs::read(&journals[0]).unwrap();
    bytes[5 * 4096 + 50] ^= 1;
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
    // What came before the damage, and no more.
    assert_eq!(server.said("DBSIZE\r\n"), ":4\r\n+OK\r\n");
}
