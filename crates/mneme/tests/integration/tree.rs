//! `mneme tree`; each test has a directory of its own.

use std::process::{Command, Output, Stdio};

use mneme_testkit::TestDir;
use mneme_tree::Store;
use serde_json::{Value, json};

/// A directory that is removed at the end of the test.
struct Directory(TestDir);

impl Directory {
    fn new(test: &str) -> Self {
        Self(TestDir::on_disk(test))
    }

    /// Runs the command there.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut run = Command::new(env!("CARGO_BIN_EXE_mneme"));
        run.arg("tree").args(arguments).current_dir(&self.0);
        run.stdin(Stdio::null()).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.run(arguments);
        let error = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{arguments:?}: {error}");
        String::from_utf8(stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.done(arguments)).unwrap()
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let Output { status, stderr, .. } = self.run(arguments);
        assert_eq!(status.code(), Some(1), "{arguments:?}");
        String::from_utf8(stderr).unwrap()
    }
}

#[test]
fn trees_are_created_listed_and_dropped() {
    let here = Directory::new("trees");
    here.done(&["create", "db"]);
    here.done(&["put", "db", "--tree", "users", "1", "Ada"]);
    here.done(&["put", "db", "1", "one"]);
    let db = Store::builder().open(here.0.join("db")).unwrap();
    db.hash_table("pages").unwrap().put(b"a", b"b").unwrap();
    db.close().unwrap();
    assert_eq!(here.done(&["get", "db", "--tree", "users", "1"]), "Ada\n");
    assert_eq!(here.done(&["scan", "db", "--tree", "users"]), "1\tAda\n");
    assert_eq!(here.done(&["scan", "db"]), "1\tone\n");
    let trees = here.done(&["trees", "db"]);
    let lines: Vec<_> = trees.lines().collect();
    assert!(lines[0].starts_with("pages\t1 keys, ") && lines[0].ends_with(", a hash table"));
    assert!(lines[1].starts_with("users\t1 keys, "), "{trees}");
    let trees = here.json(&["trees", "db", "--json"]);
    assert_eq!(
        (&trees[1]["name"], &trees[1]["keys"]),
        (&json!("users"), &json!(1))
    );
    for (name, kind) in [("pages", "a hash table"), ("users", "a tree")] {
        let stat = here.done(&["stat", "db", "--tree", name]);
        let begins = format!("kind          {kind}\nkeys          1\n");
        assert!(stat.starts_with(&begins), "{stat}");
        let stat = here.json(&["stat", "db", "--tree", name, "--json"]);
        assert_eq!((&stat["name"], &stat["leaves"]), (&json!(name), &json!(1)));
        let check = here.done(&["check", "db", "--tree", name]);
        assert!(
            check.starts_with(&format!("db, {name}: whole, 1 keys")),
            "{check}"
        );
        let check = here.json(&["check", "db", "--tree", name, "--json"]);
        assert_eq!(check["whole"], true);
    }
    let refused = here.refused(&["stat", "db", "--tree", "nobody"]);
    assert!(refused.contains("there is no tree \"nobody\""), "{refused}");
    here.done(&["remove", "db", "--tree", "users", "1"]);
    here.refused(&["get", "db", "--tree", "users", "1"]);
    here.done(&["drop", "db", "--tree", "users"]);
    let refused = here.refused(&["get", "db", "--tree", "users", "1"]);
    assert!(refused.contains("there is no tree \"users\""), "{refused}");
    here.done(&["check", "db"]);
}

#[test]
fn a_store_is_created_filled_read_copied_and_checked() {
    let here = Directory::new("life");
    assert_eq!(here.done(&["create", "db"]), "db: an empty store\n");
    assert_eq!(here.done(&["put", "db", "user:1", "Ada\n"]), "version 2\n");
    here.done(&["put", "db", "user:2", "Grace"]);
    std::fs::write(here.0.join("value"), [0, 255, 10]).unwrap();
    here.done(&["put", "db", "bytes", "--from", "value"]);
    here.done(&["put", "db", "--hex", "ff00", ""]);

    assert_eq!(here.done(&["get", "db", "user:1"]), "Ada\\n\n");
    assert_eq!(
        here.run(&["get", "db", "bytes", "--raw"]).stdout,
        [0, 255, 10]
    );
    assert_eq!(
        here.json(&["get", "db", "user:1", "--json"]),
        json!({ "value": "Ada\n" })
    );
    assert_eq!(
        here.json(&["get", "db", "bytes", "--json"]),
        json!({ "value": { "hex": "00ff0a" } })
    );

    let pairs = "bytes\t\\x00\\xff\\n\nuser:1\tAda\\n\nuser:2\tGrace\n\\xff\\x00\t\n";
    assert_eq!(here.done(&["scan", "db"]), pairs);
    assert_eq!(
        here.done(&["scan", "db", "--prefix", "user:", "--reverse", "--keys"]),
        "user:2\nuser:1\n"
    );
    assert_eq!(
        here.done(&["scan", "db", "--from", "c", "--to", "user:2", "--keys"]),
        "user:1\n"
    );
    let lines = here.done(&["scan", "db", "--json", "--limit", "1"]);
    let pair: Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(
        pair,
        json!({ "key": "bytes", "value": { "hex": "00ff0a" } })
    );

    here.done(&["backup", "db", "copy"]);
    here.done(&["remove", "db", "user:1"]);
    assert!(here.done(&["check", "db"]).starts_with("db: whole, 3 keys"));
    assert_eq!(here.done(&["scan", "copy"]), pairs);
    assert_eq!(here.json(&["check", "copy", "--json"])["whole"], true);
    let stat = here.json(&["stat", "db", "--json"]);
    assert_eq!((&stat["keys"], &stat["version"]), (&json!(3), &json!(6)));
    assert!(here.done(&["stat", "copy"]).contains("keys          4\n"));
}

#[test]
fn a_version_is_kept_listed_scanned_restored_and_dropped() {
    let here = Directory::new("versions");
    here.done(&["create", "db"]);
    here.done(&["put", "db", "price", "10"]);
    assert_eq!(here.done(&["versions", "db"]), "");
    here.done(&["keep", "db", "before"]);
    here.done(&["put", "db", "price", "oops"]);
    let kept = here.json(&["versions", "db", "--json"]);
    assert_eq!(kept[0]["name"], "before", "{kept}");
    let line = format!("{}\tbefore\n", kept[0]["version"]);
    assert_eq!(here.done(&["versions", "db"]), line);
    assert_eq!(here.done(&["scan", "db", "--of", "before"]), "price\t10\n");
    here.done(&["rollback", "db", "before"]);
    assert_eq!(here.done(&["get", "db", "price"]), "10\n");
    here.done(&["drop", "db", "before"]);
    assert_eq!(here.done(&["versions", "db"]), "");
    for action in ["rollback", "drop"] {
        assert!(here.refused(&[action, "db", "before"]).contains("before"));
    }
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let here = Directory::new("refused");
    assert!(
        here.refused(&["get", "db", "a"])
            .contains("mneme tree create db")
    );
    assert!(here.refused(&["stat", "."]).contains("is a directory"));
    here.done(&["create", "db"]);
    assert!(here.refused(&["create", "db"]).contains("db exists"));
    assert!(
        here.refused(&["get", "db", "a"])
            .contains("there is no key a")
    );
    assert!(
        here.refused(&["remove", "db", "a"])
            .contains("there is no key a")
    );
    assert!(
        here.refused(&["get", "db", "--hex", "xy"])
            .contains("hexadecimal")
    );
    here.done(&["backup", "db", "copy"]);
    assert!(here.refused(&["backup", "db", "copy"]).contains("exists"));

    std::fs::write(here.0.join("text"), [b'x'; 5000]).unwrap();
    assert!(
        here.refused(&["scan", "text"])
            .contains("text is not a store of mneme-tree")
    );

    let db = Store::builder().open(here.0.join("db")).unwrap();
    let refused = here.refused(&["put", "db", "a", "b"]);
    let me = format!("is open in process {} (", std::process::id());
    assert!(refused.contains(&me), "{refused}");
    // The store can be read while another process has it open.
    let version = db.put(b"living", b"yes").unwrap().number();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(here.done(&["get", "db", "living"]), "yes\n");
    assert_eq!(
        here.done(&["scan", "db", "--prefix", "liv"]),
        "living\tyes\n"
    );
    assert_eq!(here.json(&["stat", "db", "--json"])["version"], version);
    here.done(&["check", "db"]);
    here.done(&["backup", "db", "beside"]);
    assert_eq!(here.done(&["get", "beside", "living"]), "yes\n");
    let held = here.json(&["versions", "db", "--json"]);
    assert_eq!(held[0]["process"], std::process::id(), "{held}");
    assert_eq!(held[0]["version"], version);
    drop((snapshot, db));

    // The value of a key that a reader is shown must be the one that was put.
    here.done(&["put", "db", "key", "a value that is easily found"]);
    let mut bytes = std::fs::read(here.0.join("db")).unwrap();
    let value = b"a value that is easily found";
    let at = bytes.windows(value.len()).position(|w| w == value).unwrap();
    bytes[at] ^= 1;
    std::fs::write(here.0.join("db"), &bytes).unwrap();
    for action in [&["check", "db"][..], &["get", "db", "key"], &["scan", "db"]] {
        let refused = here.refused(action);
        assert!(refused.contains("damaged at offset"), "{refused}");
    }
    let said = here.run(&["check", "db", "--json"]);
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["whole"], false, "{said}");
}
