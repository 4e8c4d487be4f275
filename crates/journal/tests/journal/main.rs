//! A journal without crashes, and its reports on damaged files.
#![allow(clippy::unwrap_used)]

mod bases;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod failing;
mod files;
mod golden;
mod kills;
mod reading;
mod repairs;

use std::collections::BTreeMap;

use common::{content, open};
use mneme_sys::medium::RecordingDirectory;

type Files = BTreeMap<String, Vec<u8>>;

/// A closed journal of three files, and its content.
fn closed() -> (Files, Vec<u8>) {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    let stream = content(1, 0, 27_500);
    for part in stream.chunks(2500) {
        journal.append(journal.position(), part).unwrap();
        journal.sync().unwrap();
    }
    journal.close().unwrap();
    let files = directory.files();
    assert_eq!(
        files
            .keys()
            .filter(|name| name.ends_with(".journal"))
            .count(),
        3
    );
    (files, stream)
}

fn directory_of(files: &Files) -> RecordingDirectory {
    RecordingDirectory::with_files(files.clone())
}
