//! A server that lends its unused memory, and programs beside it that read and write its records,
//! compact its store, and cache data of their own in that memory. Each of them may be killed.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::common::Registry;
use crate::common::serving::{self, Serving};
use mneme_log::lent::{CacheLookup, NodeId, Stored};
use mneme_shared::SharedStore;
use mneme_testkit::{Process, TestDir};
use mneme_tree::RecordCache;

/// Set for a process that runs [`tenant`].
const REGISTRY: &str = "MNEME_LENT_REGISTRY";
/// The number of pages that the programs cache: about 8 MiB.
const PAGES: u64 = 2000;
const MIB: usize = 1 << 20;

fn serve(registry: &Registry) -> Serving {
    let memory = ["--port", "0", "--memory", "64mb", "--lend-memory", "32mb"];
    let mut command = serving::command(&memory);
    command.env("MNEME_DIR", &registry.root);
    Serving::start(command)
}

fn attach(root: &Path) -> SharedStore {
    let registry = mneme_space::Registry::open(root).unwrap();
    SharedStore::attach_writable(&registry, "default").unwrap()
}

/// Stores many records, removes them and compacts, since only frames that the store has used once
/// are lent.
fn have_once(store: &SharedStore) {
    store.put(b"large", &vec![7; 24 * MIB]).unwrap();
    store.remove(b"large").unwrap();
    store.compact().unwrap();
}

fn page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(500 + number as usize % 20)
}

/// Looks up all pages, and puts missing ones into the cache. Returns the hits, and the pages that
/// the cache accepted.
fn read_pages(store: &SharedStore) -> (u64, u64) {
    let cache = store.discardable().unwrap();
    let slot = cache.arena().participants().slot().unwrap();
    let (mut hits, mut kept) = (0, 0);
    let mut found = Vec::new();
    for number in 0..PAGES {
        let key = number.to_le_bytes();
        match cache.get(&key, &mut found) {
            CacheLookup::Hit => {
                assert!(found == page(number), "page {number} is another");
                hits += 1;
            }
            CacheLookup::Miss(ticket) => {
                let taken = cache.fill(&slot, NodeId(0), ticket, &key, &page(number));
                kept += u64::from(taken.unwrap() == Stored::Kept);
            }
        }
    }
    (hits, kept)
}

/// Checks that all pages are found, except pairs that displace each other because they have the
/// same bucket and tag in the cache's index, which one seed in twenty leads to.
fn assert_has_all(store: &SharedStore) {
    let (hits, _) = read_pages(store);
    assert!(hits >= PAGES - 16, "{hits} of {PAGES}");
}

/// The length of a value that shares a log segment with others.
const LARGE: usize = 256 << 10;

fn large(number: usize) -> Vec<u8> {
    format!("{number:08}").into_bytes().repeat(LARGE / 8)
}

/// A client stores that many large values, each of which must be acknowledged.
fn set_large(serving: &Serving, count: usize) {
    let mut client = serving.client();
    for number in 0..count {
        let key = format!("large:{number}");
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${LARGE}\r\n", key.len());
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&large(number)).unwrap();
        client.write_all(b"\r\n").unwrap();
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+OK\r\n", "{key}");
    }
}

/// The local program finds and removes these values.
fn take_large(store: &SharedStore, count: usize) {
    for number in 0..count {
        let key = format!("large:{number}");
        let found = store.get(key.as_bytes()).unwrap();
        assert!(found.is_some_and(|found| *found == large(number)), "{key}");
        assert!(store.remove(key.as_bytes()).unwrap());
    }
}

/// A number in `INFO memory`.
fn said(serving: &Serving, name: &str) -> u64 {
    let info = serving.said("INFO memory\r\n");
    let mut lines = info.lines();
    let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number.unwrap().parse().unwrap()
}

#[test]
fn a_program_beside_a_server_uses_what_the_server_does_not() {
    let registry = Registry::new("segment", "lent");
    let serving = serve(&registry);
    let store = attach(&registry.root);
    assert_eq!(serving.said("SET by-client 1\r\n"), "+OK\r\n+OK\r\n");
    have_once(&store);
    assert_eq!(read_pages(&store), (0, PAGES));
    assert_has_all(&store);
    // Another program finds the cached copies.
    let other = attach(&registry.root);
    assert_has_all(&other);

    // The lent memory is shown in `INFO`.
    let lent = said(&serving, "mneme_lent_bytes");
    assert!((8 << 20..=32 << 20).contains(&lent), "{lent}");
    assert_eq!(said(&serving, "mneme_lent_max_bytes"), 32 << 20);
    assert!(said(&serving, "mneme_lent_hits") >= 2 * PAGES - 128);
    let port = serving.port().to_string();
    let (_, page, error) = registry.run_as("stat", &["--port", &port]);
    let line = page.lines().find(|line| line.starts_with("lent "));
    assert!(
        line.is_some_and(|line| line.contains("lookups found")),
        "{page}{error}"
    );

    // The server's clients and the program see each other's records; then the clients' writes take
    // the lent memory back.
    store.put(b"by-program", b"2").unwrap();
    assert_eq!(serving.said("GET by-program\r\n"), "$1\r\n2\r\n+OK\r\n");
    assert_eq!(store.get(b"by-client").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(said(&serving, "mneme_lent_discarded_frames"), 0);
    set_large(&serving, 144);
    assert!(said(&serving, "mneme_lent_discarded_frames") > 0);
    let (hits, _) = read_pages(&other);
    assert!(hits < PAGES, "nothing was taken back");
    // The program compacts the store, and all pages fit into the cache again.
    take_large(&store, 144);
    store.compact().unwrap();
    read_pages(&store);
    assert_has_all(&other);
    assert!(store.check().unwrap().is_sound());
}

/// A durable tree beside the server caches its records in the lent memory, and still finds them
/// when that memory is taken back.
#[test]
fn a_durable_tree_beside_a_server_uses_what_the_server_does_not() {
    let registry = Registry::new("segment", "lent-tree");
    let serving = serve(&registry);
    let store = attach(&registry.root);
    have_once(&store);
    let directory = TestDir::on_disk("lent-tree");
    let arena = store.discardable().unwrap().arena().clone();
    let cache = RecordCache::lent(arena).unwrap();
    let tree = mneme_tree::Store::builder().record_cache(&cache);
    let tree = tree.open(directory.path().join("tree")).unwrap();

    // Several frames full. With so many records, a few displace each other in the cache's index.
    const RECORDS: u64 = 12_000;
    let value = |number: u64| number.to_le_bytes().repeat(60);
    let mut batch = mneme_tree::Batch::new();
    for number in 0..RECORDS {
        batch.put(&number.to_le_bytes(), &value(number));
    }
    tree.apply(&batch).unwrap();
    let used = || tree.stats().unwrap().cache.unwrap();
    let read = || {
        let before = used().hits;
        for number in 0..RECORDS {
            let found = tree.get(&number.to_le_bytes()).unwrap();
            assert!(found == Some(value(number)), "record {number} is another");
        }
        used().hits - before
    };
    assert_eq!(read(), 0);
    assert!(read() > RECORDS * 9 / 10);
    assert!(used().bytes() > 0);
    set_large(&serving, 144);
    assert!(used().discards > 0);
    read();
    serving.signal("-KILL");
    serving.end();
    take_large(&store, 144);
    store.compact().unwrap();
    drop(store);
    read();
    assert!(read() > 0);
}

/// Not a test: the code of a program beside the server that keeps using the lent memory.
#[test]
fn tenant() {
    let Some(root) = std::env::var_os(REGISTRY) else {
        return;
    };
    let store = attach(Path::new(&root));
    for round in 0..100_000_u64 {
        read_pages(&store);
        if round == 0 {
            println!("\nready");
        }
        // Removes some pages, so that there is something to fill in.
        let removed = (round % 7..PAGES).step_by(7);
        let cache = store.discardable().unwrap();
        removed.for_each(|number| cache.remove(&number.to_le_bytes()).unwrap());
    }
}

/// A tenant that is stopped or killed at any point does not disturb the server's clients.
#[test]
fn tenants_of_a_server_may_stop_and_die() {
    let registry = Registry::new("segment", "lent-dead");
    let serving = serve(&registry);
    let store = attach(&registry.root);
    have_once(&store);
    for round in 0..6_u64 {
        let variables = [(REGISTRY, &registry.root)];
        let mut tenant = Process::start_ready("lent::tenant", variables);
        std::thread::sleep(Duration::from_millis(1 + round * 3 % 7));
        assert!(tenant.is_running());
        if round % 2 == 0 {
            mneme_testkit::signal(tenant.id(), "-STOP");
        } else {
            tenant.kill();
            tenant = Process::start_ready("lent::tenant", variables);
        }
        // More than the idle memory.
        set_large(&serving, 144);
        take_large(&store, 144);
        store.compact().unwrap();
        tenant.kill();
    }
    store.reap().unwrap();
    let report = store.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    // The memory of dead tenants is lent again.
    read_pages(&store);
    assert_has_all(&store);
    assert_eq!(store.len(), 0);
}

/// When the server dies, a program continues to use the lent memory, and the next server takes
/// over.
#[test]
fn a_server_that_lends_may_die() {
    let registry = Registry::new("segment", "lent-server");
    let mut serving = serve(&registry);
    let store = attach(&registry.root);
    have_once(&store);
    for round in 0..3 {
        read_pages(&store);
        assert_has_all(&store);
        set_large(&serving, 32);
        serving.signal("-KILL");
        serving.end();
        // Both uses continue, and claims take lent frames.
        let (hits, _) = read_pages(&store);
        assert!(hits > 0);
        store.put(b"alone", &vec![round; 16 * MIB]).unwrap();
        take_large(&store, 32);
        store.compact().unwrap();
        serving = serve(&registry);
        let found = serving.said("GETRANGE alone 0 0\r\n");
        assert_eq!(
            found.as_bytes()[..6],
            [b'$', b'1', b'\r', b'\n', round, b'\r']
        );
        assert!(said(&serving, "mneme_lent_bytes") > 0);
        assert!(store.remove(b"alone").unwrap());
        store.compact().unwrap();
    }
    store.reap().unwrap();
    assert!(store.check().unwrap().is_sound());
}
