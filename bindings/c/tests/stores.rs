//! Stores as C programs have them: alone, beside a server, and killed in the middle.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Link, Program, Scene, compiler, home, server};
use mneme_log::lent::{CacheLookup, LendingOptions, NodeId, Stored};
use mneme_shared::{SharedStore, StoreOptions};

fn program(scene: &Scene) -> Option<Program<'_>> {
    let source = home().join("tests/c/stores.c");
    Some(scene.build(&compiler("")?, &source, Link::Shared))
}

#[test]
fn every_function_does_what_the_header_says() {
    let Some(cc) = compiler("") else { return };
    for link in [Link::Shared, Link::Static] {
        let scene = Scene::new();
        let program = scene.build(&cc, &home().join("tests/c/stores.c"), link);
        program.says(&["all"]);
    }
}

#[test]
fn the_example_of_the_guide_runs() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let visits = scene.build(&cc, &home().join("examples/visits.c"), Link::Shared);
    assert_eq!(visits.says(&["make"]), "");
    assert_eq!(visits.says(&["home"]), "home: 1\n");
    assert_eq!(visits.says(&["home"]), "home: 2\n");
    assert_eq!(visits.says(&[]), "home: 2\n");
}

#[test]
fn memory_in_reserve_is_a_cache_until_it_is_claimed() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let program = scene.build(&cc, &home().join("tests/c/lent.c"), Link::Shared);
    program.says(&[]);
    let example = scene.build(&cc, &home().join("examples/reserve.c"), Link::Shared);
    let said = example.says(&[]);
    let (square, computed) = said.split_once(", computed ").unwrap();
    let (computed, _) = computed.split_once(' ').unwrap();
    assert_eq!(square, "998001");
    // Two keys may have one place in the index.
    assert!((1000..1100).contains(&computed.parse().unwrap()), "{said}");
}

/// The memory that a store does not need is a cache of all processes that attach it.
#[test]
fn the_unused_memory_of_an_attached_store_is_a_cache() {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let program = scene.build(&cc, &home().join("tests/c/lent.c"), Link::Shared);
    program.says(&["store"]);

    let capacity = 64 << 20;
    let options = StoreOptions::new()
        .capacity(capacity)
        .max_capacity(capacity)
        .maintainer(false)
        .lend_idle(LendingOptions::of_bytes(32 << 20, capacity));
    let store = options.create(&scene.registry(), "default").unwrap();
    // Only memory that the store had once is lent.
    store.put(b"large", &vec![7; 24 << 20]).unwrap();
    store.remove(b"large").unwrap();
    store.compact().unwrap();
    let cache = store.discardable().unwrap();
    let slot = cache.arena().participants().slot().unwrap();
    let stored = cache.put(&slot, NodeId(0), b"city", b"Hull").unwrap();
    assert_eq!(stored, Stored::Kept);
    program.says(&["beside"]);
    let mut found = Vec::new();
    assert_eq!(cache.get(b"city", &mut found), CacheLookup::Hit);
    assert_eq!(found, b"York");
}

/// Runs the blocks in C below a heading of a page as one program, declarations first, then what
/// happens, beside the store `default`.
fn run_blocks(page: &str, heading: &str, printed: &str, look: impl FnOnce(&SharedStore)) {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let options = StoreOptions::new().capacity(64 << 20);
    let store = options.create(&scene.registry(), "default").unwrap();
    let page = std::fs::read_to_string(home().join("../../docs").join(page)).unwrap();
    let (_, section) = page.split_once(heading).unwrap();
    let (section, _) = section.split_once("\n\n#").unwrap();
    let blocks = section.split("```c\n").skip(1);
    let mut blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    let declarations = blocks.next().unwrap();
    let statements: String = blocks.collect();
    let source = scene.path("blocks.c");
    let text = format!("{declarations}\nint main(void)\n{{\n{statements}}}\n");
    std::fs::write(&source, text).unwrap();
    let program = scene.build(&cc, &source, Link::Shared);
    assert_eq!(program.says(&[]), printed);
    look(&store);
}

#[test]
fn the_blocks_of_the_guide_to_local_clients_are_a_program() {
    let printed = "value\nvalue\nk = valuex\n";
    let heading = "## 3. The same from C";
    run_blocks("guides/local-clients.md", heading, printed, |store| {
        assert_eq!(store.database(3).unwrap().len(), 2);
    });
}

#[test]
fn the_blocks_about_stores_of_the_guide_to_c_are_a_program() {
    let printed =
        "Ada was here 1 time(s)\ndo the first\nsecond\nthird\nred\nEdsger: 1930\nGrace: 1906\n";
    run_blocks("c-api.md", "### Stores", printed, |store| {
        assert_eq!(store.len(), 4);
    });
}

/// Without memory, out of callbacks, in threads that end: each is an error and no more than that.
fn edge(which: &str) {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let program = scene.build(&cc, &home().join("tests/c/edges.c"), Link::Shared);
    program.says(&[which]);
}

#[test]
fn a_process_without_memory_for_a_long_value_gets_an_error() {
    edge("memory");
}

#[test]
fn a_callback_that_jumps_away_or_detaches_keeps_nothing_attached() {
    edge("jump");
}

#[test]
fn an_ending_thread_is_refused_and_does_no_harm() {
    edge("ending");
}

#[test]
fn the_text_of_a_failure_is_one_line() {
    edge("texts");
}

/// `mneme serve` on the scene's registry, stopped with the test.
struct Serving {
    process: Child,
    port: u16,
}

impl Serving {
    fn start(scene: &Scene) -> Serving {
        let mut serve = Command::new(server());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MNEME_")) {
            serve.env_remove(name);
        }
        serve.args(["serve", "--port", "0", "--memory", "64mb"]);
        serve.env("MNEME_DIR", scene.path("registry"));
        let mut process = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let listening = lines.find(|line| line.as_ref().unwrap().contains("listening on"));
        let line = listening.unwrap().unwrap();
        let port = line.rsplit(':').next().unwrap().trim().parse().unwrap();
        Serving { process, port }
    }

    /// What a client is answered.
    fn asked(&self, command: &str, answer: &str) {
        let mut client = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let limit = Some(Duration::from_secs(60));
        client.set_read_timeout(limit).unwrap();
        client.write_all(command.as_bytes()).unwrap();
        let mut reply = vec![0; answer.len()];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8(reply).unwrap(), answer, "{command}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_c_program_and_the_clients_of_a_server_have_the_same_records() {
    let scene = Scene::new();
    let Some(program) = program(&scene) else {
        return;
    };
    let serving = Serving::start(&scene);
    serving.asked("SET greeting hello\r\n", "+OK\r\n");
    assert_eq!(program.says(&["get", "greeting"]), "hello\n");
    program.says(&["refused"]);
    program.says(&["put", "greeting", "from C"]);
    serving.asked("GET greeting\r\n", "$6\r\nfrom C\r\n");
    // Threads of two C programs and a client count in one record.
    let mut both = [(); 2].map(|()| program.command(&["count"]).spawn().unwrap());
    for _ in 0..100 {
        serving.asked("INCR count\r\n", ":");
    }
    for process in &mut both {
        assert!(process.wait().unwrap().success());
    }
    serving.asked("GET count\r\n", "$5\r\n12100\r\n");
    program.says(&["fork"]);
    serving.asked("GET after\r\n", "$4\r\nfork\r\n");
    // The records do not need the server.
    drop(serving);
    assert_eq!(program.says(&["get", "count"]), "12100\n");
    let next = Serving::start(&scene);
    next.asked("GET greeting\r\n", "$6\r\nfrom C\r\n");
}

/// What a killed program was acknowledged is stored, and what it was about to do holds up no other.
#[test]
fn killed_programs_lose_nothing_that_was_acknowledged() {
    let scene = Scene::new();
    let Some(program) = program(&scene) else {
        return;
    };
    let registry = scene.registry();
    let options = StoreOptions::new().capacity(64 << 20);
    let store = options.create(&registry, "default").unwrap();
    for round in 0..8 {
        let lanes = [0, 1].map(|lane| {
            let lane = format!("{round}.{lane}");
            let mut writes = program.command(&["write", &lane]);
            (lane, writes.stdout(Stdio::piped()).spawn().unwrap())
        });
        let acknowledged = lanes.map(|(lane, mut process)| {
            let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
            let at_least = 20 + round * 37;
            let mut last = lines.nth(at_least).unwrap().unwrap();
            process.kill().unwrap();
            assert_eq!(process.wait().unwrap().signal(), Some(9));
            for line in lines {
                last = line.unwrap();
            }
            (lane, last.parse::<u64>().unwrap())
        });
        for (lane, last) in acknowledged {
            for i in 0..=last {
                let value = store.get(format!("{lane}:{i}").as_bytes()).unwrap();
                assert_eq!(value.unwrap(), i.to_string().as_bytes(), "{lane}:{i}");
            }
            let newest = store.get(format!("{lane}:last").as_bytes()).unwrap();
            let newest = String::from_utf8(newest.unwrap().to_vec()).unwrap();
            assert!(
                [last, last + 1].contains(&newest.parse().unwrap()),
                "{lane}"
            );
        }
    }
    let report = store.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    drop(store);
    SharedStore::attach_writable(&registry, "default").unwrap();
}
