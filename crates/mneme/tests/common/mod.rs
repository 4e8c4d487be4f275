//! A registry for one test, and the command that is run on it.
#![allow(dead_code, clippy::unwrap_used, reason = "a test that panics fails")]

pub mod serving;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A registry that is removed at the end of the test, with its data.
pub struct Registry {
    pub root: PathBuf,
    /// The command that is run on it.
    command: &'static str,
}

impl Registry {
    pub fn new(command: &'static str, test: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let root = format!("/dev/shm/mneme-{command}-{test}-{process}-{number}");
        let root = root.into();
        Self { root, command }
    }

    /// Runs another of the commands.
    pub fn run_as(&self, command: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut run = Command::new(env!("CARGO_BIN_EXE_mneme"));
        run.arg(command).args(arguments);
        let output = run.env("MNEME_DIR", &self.root).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Exit code, standard output and standard error.
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.run_as(self.command, arguments)
    }

    pub fn done(&self, arguments: &[&str]) -> String {
        let (code, said, error) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        said
    }

    pub fn refused(&self, arguments: &[&str]) -> String {
        let (code, said, error) = self.run(arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {said}");
        assert!(said.is_empty(), "{said}");
        error
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(arguments)).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let (_, said, _) = self.run_as("segment", &["ls", "--json"]);
        if let Ok(serde_json::Value::Array(all)) = serde_json::from_str(&said) {
            for segment in all {
                let name = segment["name"].as_str().unwrap();
                let _ = self.run_as("segment", &["rm", name]);
            }
        }
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
