//! This build reads files written by earlier builds.
//!
//! An image is a list: `file NAME BYTES`, and then the file's nonzero words as `offset value`, in
//! hexadecimal. `write_image` (`--ignored`) wrote it when its format version was new, and must not
//! write it again: an image that can no longer be read means that the format needs a new version.

use std::fmt::Write;

use mneme_journal::{BaseName, BaseWriter, Position};
use mneme_sys::medium::RecordingDirectory;

use crate::bases::read_base;
use crate::common::{content, open, read_from, shared};

const VERSION_1: &str = include_str!("journal-1.txt");

fn load(image: &str) -> RecordingDirectory {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in image.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["file", name, bytes] = words[..] {
            files.push((name.to_owned(), vec![0; bytes.parse().unwrap()]));
            continue;
        }
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        let at = number(words[0]) as usize;
        let (_, bytes) = files.last_mut().unwrap();
        bytes[at..at + 8].copy_from_slice(&number(words[1]).to_le_bytes());
    }
    RecordingDirectory::with_files(files)
}

/// Two runs, the second of which cuts the first, and a backup.
fn life() -> RecordingDirectory {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 1000);
    journal
        .append(Position::new(1000), &content(1, 1000, 100))
        .unwrap();
    journal.close().unwrap();
    let mut journal = open(&directory, 1090);
    journal
        .append(Position::new(1090), &content(2, 1090, 50))
        .unwrap();
    let durable = journal.sync().unwrap();
    let kept = BaseName::Kept("kept".to_owned());
    let begin = Position::new(1120);
    let mut writer = BaseWriter::begin(&journal, shared(&directory), &kept, begin).unwrap();
    writer.append(begin, &content(3, 0, 40)).unwrap();
    writer.append_suffix(begin, &content(2, 1120, 20)).unwrap();
    writer.publish(durable, durable).unwrap();
    journal.close().unwrap();
    directory
}

#[test]
#[ignore = "writes the image of the present version"]
fn write_image() {
    let mut image = String::new();
    for (name, bytes) in life().files() {
        writeln!(image, "file {name} {}", bytes.len()).unwrap();
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        for (i, word) in words.enumerate().filter(|(_, word)| *word != 0) {
            writeln!(image, "{:x} {word:x}", i * 8).unwrap();
        }
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/journal/golden/journal-1.txt"
    );
    std::fs::write(path, image).unwrap();
}

#[test]
fn files_of_version_1_are_read_and_continued() {
    for directory in [load(VERSION_1), life()] {
        let stream = [content(1, 1000, 90), content(2, 1090, 50)].concat();
        assert_eq!(read_from(&directory, 1000).unwrap(), stream);
        let (records, suffix, read) = read_base(&directory, "kept.backup").unwrap();
        assert_eq!(
            (records, suffix, read),
            (content(3, 0, 40), content(2, 1120, 20), 1140)
        );
        let mut journal = open(&directory, 1140);
        assert_eq!(journal.runs().number(), 3);
        journal.append(Position::new(1140), b"on").unwrap();
        journal.sync().unwrap();
        assert_eq!(read_from(&directory, 1140).unwrap(), b"on");
    }
}
