//! The setting `local-programs`: whether local programs may attach the segment of a server.

use std::process::Command;

use mneme_log::LocalPrograms;
use mneme_shared::{AttachError, SharedStore};
use mneme_testkit::wait_until;

use crate::common::Registry;
use crate::common::serving::{self, Serving};

fn serve(registry: &Registry, arguments: &[&str]) -> Command {
    let small = ["--port", "0", "--memory", "64mb"];
    let mut command = serving::command(&[&small[..], arguments].concat());
    command.env("MNEME_DIR", &registry.root);
    command
}

/// What a local program may do now: read, and write.
fn permitted(registry: &Registry, server: &Serving) -> (bool, bool) {
    let registry = mneme_shared::Registry::open(&registry.root).unwrap();
    let is_permitted = |attached: Result<SharedStore, AttachError>| match attached {
        Ok(_) => true,
        Err(AttachError::LocalPrograms { name, pid, may }) => {
            assert_eq!((&*name, pid), ("default", server.process.id()));
            assert_ne!(may, LocalPrograms::Write);
            false
        }
        Err(error) => panic!("{error}"),
    };
    (
        is_permitted(SharedStore::attach(&registry, "default")),
        is_permitted(SharedStore::attach_writable(&registry, "default")),
    )
}

#[test]
fn local_programs_attach_as_the_server_permits() {
    let registry = Registry::new("segment", "local-programs");
    for (setting, may) in [
        ("write", (true, true)),
        ("read", (true, false)),
        ("none", (false, false)),
    ] {
        let server = Serving::start(serve(&registry, &["--local-programs", setting]));
        assert_eq!(permitted(&registry, &server), may, "{setting}");
        // Tools that show and check a store are no local programs.
        registry.done(&["show", "default"]);
        registry.done(&["check", "default"]);
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn config_set_changes_what_later_programs_may_do() {
    let registry = Registry::new("segment", "local-programs-set");
    let server = Serving::start(serve(&registry, &[]));
    let root = mneme_shared::Registry::open(&registry.root).unwrap();
    let early = SharedStore::attach_writable(&root, "default").unwrap();
    for (setting, may) in [
        ("none", (false, false)),
        ("read", (true, false)),
        ("write", (true, true)),
        ("none", (false, false)),
    ] {
        let said = server.said(&format!("CONFIG SET local-programs {setting}\r\n"));
        assert!(said.starts_with("+OK"), "{said}");
        assert_eq!(permitted(&registry, &server), may, "{setting}");
    }
    // A program that is attached stays.
    early.put(b"a", b"1").unwrap();
    assert!(server.said("GET a\r\n").starts_with("$1\r\n1"));
    let said = server.said("CONFIG SET local-programs all\r\n");
    assert!(said.contains("write, read, none"), "{said}");
    assert_eq!(permitted(&registry, &server), (false, false));
}

/// The next server's own setting counts, not that of the one that was killed.
#[test]
fn the_setting_ends_with_the_server_however_it_ends() {
    let registry = Registry::new("segment", "local-programs-kill");
    let root = mneme_shared::Registry::open(&registry.root).unwrap();
    for _ in 0..3 {
        let server = Serving::start(serve(&registry, &["--local-programs", "none"]));
        assert_eq!(permitted(&registry, &server), (false, false));
        server.signal("-KILL");
        server.end();
        let store = SharedStore::attach_writable(&root, "default").unwrap();
        store.put(b"a", b"1").unwrap();
        drop(store);
        let server = Serving::start(serve(&registry, &["--local-programs", "read"]));
        assert_eq!(permitted(&registry, &server), (true, false));
        server.signal("-KILL");
        server.end();
    }
    let server = Serving::start(serve(&registry, &[]));
    assert_eq!(permitted(&registry, &server), (true, true));
}

#[test]
fn a_successor_is_no_local_program_and_has_a_setting_of_its_own() {
    let registry = Registry::new("segment", "local-programs-takeover");
    let mut server = Serving::start(serve(&registry, &["--local-programs", "none"]));
    for (setting, may) in [
        ("none", (false, false)),
        ("read", (true, false)),
        ("none", (false, false)),
        ("write", (true, true)),
    ] {
        let next = serve(&registry, &["--take-over", "--local-programs", setting]);
        let old = std::mem::replace(&mut server, Serving::start(next));
        assert_eq!(old.end().0, Some(0));
        assert_eq!(permitted(&registry, &server), may, "{setting}");
    }
    // A server that is refused because this one serves names this one, not its setting.
    let said = server.said("CONFIG SET local-programs none\r\n");
    assert!(said.starts_with("+OK"), "{said}");
    let output = serve(&registry, &[]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("is being served by"), "{error}");
}

/// With `data` the segment is opened while clients may already change settings.
#[test]
fn the_setting_holds_for_a_segment_that_is_kept_in_a_directory() {
    let registry = Registry::new("segment", "local-programs-data");
    let data = mneme_testkit::TestDir::new("local-programs-data");
    let data = data.path().to_str().unwrap().to_owned();
    let server = Serving::start(serve(
        &registry,
        &["--data", &data, "--local-programs", "read"],
    ));
    wait_until("it is loaded", || {
        server.said("GET a\r\n").starts_with("$-1")
    });
    assert_eq!(permitted(&registry, &server), (true, false));
}

#[test]
fn attachments_are_logged() {
    let registry = Registry::new("segment", "local-programs-log");
    let server = Serving::start(serve(&registry, &[]));
    let root = mneme_shared::Registry::open(&registry.root).unwrap();
    let store = SharedStore::attach(&root, "default").unwrap();
    // The server looks every ten seconds, and when it stops.
    server.signal("-TERM");
    let (code, log) = server.end();
    drop(store);
    assert_eq!(code, Some(0), "{log}");
    let pid = std::process::id();
    let line = log
        .lines()
        .find(|line| line.contains("has attached the segment"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(&format!("{pid}")), "{line}");
}
