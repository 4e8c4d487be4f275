//! The command: what it prints, and how it fails.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.sam");

fn genomics(file: &str, commands: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genomics"));
    command
        .args(["load", file])
        .args(commands.split_whitespace());
    command.output().unwrap()
}

fn printed(commands: &str) -> String {
    let output = genomics(SMALL, commands);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What is said where the command fails; it prints nothing then.
fn said(file: &str, commands: &str) -> String {
    let output = genomics(file, commands);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn commands_follow_each_other_on_one_store() {
    let small = std::fs::read_to_string(SMALL).unwrap();
    assert_eq!(printed("view -h"), small);
    assert!(printed("flagstat").starts_with("11 + 1 in total"));
    let region = printed("sort then index then view chr2:20,000-20,000 *");
    let names: Vec<&str> = region
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(names, ["read1", "read2", "read2"]);
    let header = printed("sort -n then view -h");
    assert!(
        header.starts_with("@HD\tVN:1.6\tSO:queryname\n"),
        "{header}"
    );
}

#[test]
fn a_failure_is_a_sentence_and_a_status() {
    assert!(said("/nowhere.bam", "flagstat").contains("/nowhere.bam cannot be opened"));
    assert!(said(SMALL, "view chr1").contains("run `index` first"));
    assert!(said(SMALL, "index").contains("sort by coordinate first"));
    assert!(
        said(SMALL, "sort then index then view chr3").contains("\"chr3\": the header has no such")
    );
    assert!(said(env!("CARGO_BIN_EXE_genomics"), "flagstat").contains("alignment 1: "));
}
