//! `mneme segment` as people use it: each test has a registry of its own.
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

use std::path::PathBuf;
use std::process::Command;

/// A registry that is gone with the test, data included.
struct Registry(PathBuf);

impl Registry {
    fn new(test: &str) -> Self {
        let root = format!("/dev/shm/mneme-command-{test}-{}", std::process::id());
        Self(root.into())
    }

    /// Exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mneme"));
        command.arg("segment").args(arguments);
        let output = command.env("MNEME_DIR", &self.0).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (code, said, error) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        said
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let (code, said, error) = self.run(arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {said}");
        assert!(said.is_empty(), "{said}");
        error
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(arguments)).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let serde_json::Value::Array(all) = self.json(&["ls", "--json"]) {
            for segment in all {
                let name = segment["name"].as_str().unwrap();
                let _ = self.run(&["rm", name]);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_segment_is_made_looked_at_grown_cloned_and_removed() {
    let registry = Registry::new("life");
    assert!(registry.done(&["ls"]).starts_with("no segments"));
    let made = registry.done(&[
        "create",
        "genome",
        "--size",
        "4mb",
        "--max-size",
        "64mb",
        "--mode",
        "640",
    ]);
    assert!(made.contains("4.0 MiB") && made.contains("640"), "{made}");
    let shown = registry.json(&["show", "genome", "--json"]);
    assert_eq!(
        (shown["size"].as_u64(), shown["max_size"].as_u64()),
        (Some(4 << 20), Some(64 << 20))
    );
    assert_eq!(shown["mode"], "640");
    assert_eq!(shown["base"].as_u64().unwrap() % (1 << 30), 0);
    let data = PathBuf::from(shown["data"].as_str().unwrap());
    assert_eq!(std::fs::metadata(&data).unwrap().len(), 4 << 20);

    assert!(
        registry
            .done(&["grow", "genome", "8mb"])
            .contains("8.0 MiB")
    );
    registry.done(&["clone", "genome", "genome@monday"]);
    registry.done(&["create", "log", "--floating"]);
    let list = registry.done(&["ls"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 4, "{list}");
    assert!(
        lines[1].starts_with("genome ")
            && lines[1].contains("8.0 MiB")
            && lines[1].contains("whole")
    );
    let clone = registry.json(&["show", "genome@monday", "--json"]);
    assert_eq!(
        (&clone["cloned_from"], &clone["base"]),
        (&shown["uuid"], &shown["base"])
    );
    assert!(registry.json(&["show", "log", "--json"])["base"].is_null());

    assert!(registry.done(&["check"]).ends_with("0 thing(s) found\n"));
    assert!(
        registry
            .done(&["check", "genome"])
            .ends_with("0 thing(s) found\n")
    );
    registry.done(&["rm", "genome", "log"]);
    assert!(!data.exists());
    assert_eq!(
        registry.json(&["ls", "--json"]).as_array().unwrap().len(),
        1
    );
}

#[test]
fn what_cannot_be_done_is_refused_in_words() {
    let registry = Registry::new("refused");
    registry.done(&["create", "a"]);
    assert!(registry.refused(&["create", "a"]).contains("already"));
    assert!(registry.refused(&["create", "a/b"]).contains("slashes"));
    assert!(
        registry
            .refused(&["create", &"n".repeat(300)])
            .contains("at most 200 bytes")
    );
    assert!(
        registry
            .refused(&["create", "b", "--base", "0x1234"])
            .contains("0x1234")
    );
    assert!(
        registry
            .refused(&["create", "b", "--size", "1000tb"])
            .contains("impossible")
    );
    assert!(
        registry
            .refused(&["create", "b", "--backing", "file:/no/such/place"])
            .contains("/no/such/place")
    );
    assert!(registry.refused(&["grow", "a", "2gb"]).contains("grow"));
    assert!(registry.refused(&["show", "b"]).contains("no segment"));
    assert!(registry.refused(&["clone", "a", "a"]).contains("already"));
    assert!(registry.refused(&["rm", "b"]).contains("no segment"));
    assert!(registry.refused(&["check", "b"]).contains("no segment"));
    assert_eq!(
        registry.json(&["ls", "--json"]).as_array().unwrap().len(),
        1
    );
}

#[test]
fn a_damaged_segment_is_listed_with_its_reason_beside_the_others() {
    let registry = Registry::new("damaged");
    registry.done(&["create", "good"]);
    registry.done(&["create", "bad"]);
    let meta = registry.0.join("segments/bad/meta");
    let whole = std::fs::read(&meta).unwrap();
    std::fs::write(&meta, &whole[..whole.len() / 2]).unwrap();
    let list = registry.done(&["ls"]);
    assert!(
        list.lines()
            .any(|line| line.starts_with("good") && line.ends_with("whole")),
        "{list}"
    );
    assert!(
        list.lines()
            .any(|line| line.starts_with("bad") && line.contains("damaged")),
        "{list}"
    );
    let found = registry.json(&["check", "--json"]);
    let bad = |finding: &serde_json::Value| finding["path"].as_str().unwrap().contains("bad");
    assert!(found.as_array().unwrap().iter().any(bad), "{found}");
    std::fs::write(&meta, &whole).unwrap();
}

#[test]
fn shells_get_completions() {
    let output = Command::new(env!("CARGO_BIN_EXE_mneme"))
        .args(["completions", "bash"])
        .output()
        .unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(script.contains("segment") && script.contains("doctor"));
}
