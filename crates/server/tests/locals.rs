//! A server counts what local programs do in the segment beside it, or says that it missed some.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::path::PathBuf;

use common::{Client, Reply, server};
use mneme_server::{Opening, Running};
use mneme_shared::{Access, Registry, SharedStore, StoreOptions};

/// A registry of a test, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Place {
        let name = format!("mneme-locals-{test}-{}", std::process::id());
        Place(PathBuf::from("/dev/shm").join(name))
    }

    fn registry(&self) -> Registry {
        Registry::open(&self.0).unwrap()
    }

    fn serve(&self) -> Running {
        let opening = Opening {
            options: options(),
            ..Opening::default()
        };
        let server = server().segment(self.registry(), "beside", opening);
        server.start().unwrap()
    }

    fn attach(&self) -> SharedStore {
        let options = options().maintainer(false);
        let attached = options.attach(&self.registry(), "beside", Access::ReadWrite);
        attached.unwrap()
    }
}

fn options() -> StoreOptions {
    StoreOptions::new().capacity(64 << 20)
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.registry().remove_segment("beside");
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the server has counted, and how often it missed some.
fn counted<const N: usize>(client: &mut Client, names: [&str; N]) -> ([u64; N], u64) {
    let info = client.command(&["INFO", "segment"]).text();
    let field = |name: &str| {
        let start = format!("mneme_local_{name}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap().parse().unwrap()
    };
    (names.map(field), field("effects_lost"))
}

#[test]
fn what_local_programs_do_is_counted_beside_clients() {
    const KINDS: [&str; 2] = ["stored", "removed"];
    let place = Place::new("both");
    let running = place.serve();
    let address = running.addresses()[0];
    let mut client = Client::connect(address);
    assert_eq!(counted(&mut client, KINDS), ([0, 0], 0));
    std::thread::scope(|scope| {
        for local in 0..2 {
            let place = &place;
            scope.spawn(move || {
                let (store, mut asker) = (place.attach(), Client::connect(address));
                for i in 0..5_000u32 {
                    let key = format!("local-{local}-{i}");
                    store.put(key.as_bytes(), b"v").unwrap();
                    if i % 2 == 0 {
                        assert!(store.remove(key.as_bytes()).unwrap());
                    }
                    if i % 500 == 0 {
                        // It has heard all that was done before it answers.
                        counted(&mut asker, KINDS);
                    }
                }
            });
        }
        // Clients' own changes are none of it.
        for i in 0..2_000 {
            client.command(&["SET", &format!("client-{i}"), "v"]);
            client.command(&["DEL", &format!("client-{}", i / 2)]);
        }
    });
    let (counts, lost) = counted(&mut client, KINDS);
    assert!(counts == [10_000, 5_000] || lost > 0, "{counts:?}");
    assert!(counts[0] <= 10_000 && counts[1] <= 5_000, "{counts:?}");
    client.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(counted(&mut client, KINDS), ([0, 0], 0));
}

#[test]
fn what_was_missed_is_said_and_databases_are_counted() {
    const KINDS: [&str; 3] = ["stored", "database_changes", "expired"];
    let place = Place::new("missed");
    let running = place.serve();
    let mut client = Client::connect(running.addresses()[0]);
    let local = place.attach();
    local.database(1).unwrap().clear().unwrap();
    local.swap_databases(1, 2).unwrap();
    assert_eq!(counted(&mut client, KINDS), ([0, 2, 0], 0));
    // Whether the server's listener comes in between or not: what is not counted is said to be missed.
    let pairs: Vec<_> = (0..100_000u32).map(|i| (i.to_le_bytes(), b"v")).collect();
    pairs
        .chunks(1_000)
        .for_each(|some| local.put_many(some).unwrap());
    let ([stored, ..], lost) = counted(&mut client, KINDS);
    assert!(stored == 100_000 || lost > 0, "{stored}");
    assert!((4_096..=100_000).contains(&stored), "{stored}");
    drop(running);
    // Nobody serves any more, and nobody minds.
    local.put(b"unheard", b"v").unwrap();
    let again = place.serve();
    let mut client = Client::connect(again.addresses()[0]);
    assert_eq!(counted(&mut client, KINDS), ([0, 0, 0], 0));
    assert_eq!(client.command(&["GET", "unheard"]), Reply::bulk("v"));
}
