//! The command on a segment: loaded by one process, asked and changed by others; what is wrong with
//! a segment is reported, by a sentence and a status; a process that dies while it loads leaves
//! what says so.

#![allow(clippy::unwrap_used)]

mod kept;

use allocator_api2::alloc::{Allocator, Layout};
use kept::Scene;
use mneme_space::{Attachment, Schema, Segment};
use mneme_sys::Access;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.sam");

/// Errors: a file or a query that is not valid, a damaged segment, a change that was left
/// unfinished.
const ASKED: i32 = 1;
const SEGMENT: i32 = 3;
const POISONED: i32 = 4;

fn command(scene: &Scene, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genomics"));
    command
        .args(words.split_whitespace())
        .env("MNEME_DIR", scene.registry.root());
    command
}

fn run(scene: &Scene, words: &str) -> Output {
    command(scene, words).output().unwrap()
}

fn printed(scene: &Scene, words: &str) -> String {
    let output = run(scene, words);
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What is said where the command fails, with this status; it prints nothing then.
fn said(scene: &Scene, status: i32, words: &str) -> String {
    let output = run(scene, words);
    assert_eq!(output.status.code(), Some(status), "{words}: {output:?}");
    assert!(output.stdout.is_empty(), "{words}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn load(scene: &Scene) {
    printed(scene, &format!("load {SMALL} --segment reads"));
}

/// A process that loads the file's first lines and waits for more, inside of its segment. They are
/// too few to fill a pipe: no process waits for one that it should not.
#[expect(clippy::zombie_processes, reason = "who calls waits for it")]
fn loading(scene: &Scene) -> Child {
    let mut child = command(scene, "load - --segment reads")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let small = std::fs::read_to_string(SMALL).unwrap();
    let mut half = small.lines().take(8).collect::<Vec<_>>().join("\n");
    half.push('\n');
    let input = child.stdin.as_mut().unwrap();
    input.write_all(half.as_bytes()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let output = run(scene, "flagstat --segment reads --wait 0");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if words.contains(&child.id().to_string()) {
            assert_eq!(output.status.code(), Some(SEGMENT), "{words}");
            return child;
        }
        assert!(Instant::now() < until, "{words}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn data_that_one_process_loads_is_queried_sorted_and_indexed_by_others() {
    let scene = Scene::new();
    load(&scene);
    let small = std::fs::read_to_string(SMALL).unwrap();
    assert_eq!(printed(&scene, "view -h --segment reads"), small);
    let stat = printed(&scene, "flagstat --segment reads");
    assert_eq!(stat, printed(&scene, &format!("load {SMALL} flagstat")));

    let unsorted = said(&scene, ASKED, "index --segment reads");
    assert!(unsorted.contains("sort by coordinate first"), "{unsorted}");
    printed(&scene, "sort --segment reads");
    printed(&scene, "index --segment reads");
    let by_others = printed(&scene, "view --segment reads chr2:20,000-20,000 *");
    let privately = format!("load {SMALL} sort then index then view chr2:20,000-20,000 *");
    assert_eq!(by_others, printed(&scene, &privately));
    let unknown = said(&scene, ASKED, "view --segment reads chr3");
    assert!(unknown.contains("\"chr3\""), "{unknown}");

    printed(&scene, "sort -n --segment reads");
    let by_name = format!("load {SMALL} sort then sort -n then view -h");
    let by_name = printed(&scene, &by_name);
    assert_eq!(printed(&scene, "view -h --segment reads"), by_name);
    let no_index = said(&scene, ASKED, "view --segment reads chr1");
    assert!(no_index.contains("run `index` first"), "{no_index}");
    printed(&scene, "sort --as-read --segment reads");
    let header = |text: &str| text.find("\nread").unwrap();
    let again = printed(&scene, "view -h --segment reads");
    assert_eq!(again[header(&again)..], small[header(&small)..]);

    // A file, and the registry named.
    let directory = scene.root.join("files");
    std::fs::create_dir(&directory).unwrap();
    let registry = scene.registry.root().display();
    let words = format!(
        "load {SMALL} --segment filed --directory {} --dir {registry} flagstat",
        directory.display()
    );
    assert_eq!(printed(&scene, &words), stat);
    assert_eq!(printed(&scene, "flagstat --segment filed"), stat);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn errors_of_a_segment_are_named() {
    struct Other;
    impl Schema for Other {
        type Root<'s> = u64;
    }
    let scene = Scene::new();
    for question in ["flagstat", "sort", "index", "view"] {
        let missing = said(&scene, SEGMENT, &format!("{question} --segment reads"));
        assert!(
            missing.contains("there is no segment \"reads\""),
            "{missing}"
        );
        let unnamed = said(&scene, 2, question);
        assert!(unnamed.contains("--segment NAME"), "{unnamed}");
    }
    load(&scene);
    let again = said(&scene, SEGMENT, &format!("load {SMALL} --segment reads"));
    assert!(again.contains("--replace"), "{again}");
    // A file that is not there, or no alignments, does not cost the segment that is.
    let nothing = said(&scene, ASKED, "load /nowhere --segment reads --replace");
    assert!(nothing.contains("/nowhere cannot be opened"), "{nothing}");
    assert!(printed(&scene, "flagstat --segment reads").starts_with("11 + 1"));

    let empty = scene.registry.segment("empty").create().unwrap();
    let rootless = said(&scene, SEGMENT, "flagstat --segment empty");
    assert!(rootless.contains("no root yet"), "{rootless}");
    let at = Attachment::new([(&empty, Access::ReadWrite)]).unwrap();
    at.enter(|here| here.create_root::<Other>("empty", |_| 7).map(|_| ()))
        .unwrap()
        .unwrap();
    for command in ["flagstat", "sort"] {
        let other = said(&scene, SEGMENT, &format!("{command} --segment empty"));
        assert!(other.contains("created as another type"), "{other}");
    }
    // A process that has it mapped keeps it from being replaced.
    let replace = format!("load {SMALL} --segment empty --replace");
    let mapped = said(&scene, SEGMENT, &replace);
    assert!(mapped.contains("mapped by a living process"), "{mapped}");
    drop(at);
    printed(&scene, &replace);
    assert!(printed(&scene, "flagstat --segment empty").starts_with("11 + 1"));
}

#[test]
fn a_load_that_fails_leaves_no_segment() {
    let scene = Scene::new();
    let wrong = said(&scene, ASKED, "load /dev/null --segment reads");
    assert!(wrong.contains("the input is empty"), "{wrong}");
    let small = std::fs::read_to_string(SMALL).unwrap();
    let (header, records): (Vec<&str>, Vec<&str>) =
        small.lines().partition(|line| line.starts_with('@'));
    let many = header
        .into_iter()
        .chain((0..2000).flat_map(|_| records.iter().copied()));
    let large = scene.root.join("large.sam");
    std::fs::write(&large, many.collect::<Vec<_>>().join("\n")).unwrap();
    let large = large.display();
    let full = said(
        &scene,
        SEGMENT,
        &format!("load {large} --segment reads --max-size 2M"),
    );
    assert!(full.contains("--max-size"), "{full}");
    assert_eq!(scene.registry.segments().unwrap(), []);
    printed(&scene, &format!("load {large} --segment reads"));
}

/// What needs memory and finds none leaves the segment as it was, and whole.
#[test]
fn a_full_segment_can_still_be_asked() {
    let scene = Scene::new();
    printed(
        &scene,
        &format!("load {SMALL} --segment reads --max-size 4M sort"),
    );
    let segment = Segment::open(&scene.registry, "reads").unwrap();
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    at.enter(|here| {
        let heap = here.heap("reads").unwrap();
        // What is not given back stays.
        for size in (1..=64).rev().map(|kib| kib << 10).chain((1..1024).rev()) {
            let layout = Layout::from_size_align(size, 1).unwrap();
            while heap.allocate(layout).is_ok() {}
        }
    })
    .unwrap();
    drop(at);
    let full = said(&scene, SEGMENT, "index --segment reads");
    assert!(full.contains("is full"), "{full}");
    assert!(printed(&scene, "flagstat --segment reads").starts_with("11 + 1"));
}

/// Readers share; whoever changes is waited for, and named when that takes too long.
#[test]
fn a_reader_waits_for_a_loader_and_names_it() {
    let scene = Scene::new();
    let mut loader = loading(&scene);
    let waiting = command(&scene, "flagstat --segment reads")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(loader.stdin.take());
    assert!(loader.wait().unwrap().success());
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stdout.is_empty());
}

#[test]
fn a_killed_loader_leaves_a_segment_marked_as_such_that_can_be_replaced() {
    let scene = Scene::new();
    let mut loader = loading(&scene);
    loader.kill().unwrap();
    loader.wait().unwrap();
    for command in ["flagstat", "view", "sort", "index"] {
        let words = said(&scene, POISONED, &format!("{command} --segment reads"));
        assert!(
            words.contains("poisoned") && words.contains("--replace"),
            "{words}"
        );
    }
    said(&scene, SEGMENT, &format!("load {SMALL} --segment reads"));
    printed(&scene, &format!("load {SMALL} --segment reads --replace"));
    assert!(printed(&scene, "flagstat --segment reads").starts_with("11 + 1"));
}

#[test]
fn a_process_that_may_only_read_queries_and_changes_nothing() {
    const NOBODY: u32 = 65_534;
    if mneme_sys::files::user() != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    let scene = Scene::new();
    let open = |path: &str, mode: &str| {
        let path = scene.root.join(path);
        let status = Command::new("chmod").arg(mode).arg(path).status();
        assert!(status.unwrap().success());
    };
    open("", "755");
    open("memory", "755");
    open("registry", "755");
    open("registry/segments", "755");
    open("registry/registry", "644");
    printed(&scene, &format!("load {SMALL} --segment shared --mode 644"));
    printed(&scene, &format!("load {SMALL} --segment own"));
    let as_nobody = |words: &str| {
        let output = command(&scene, words)
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .output();
        let output = output.ok()?;
        let words = String::from_utf8(output.stderr).unwrap();
        Some((output.status.code(), words, output.stdout))
    };
    let Some((status, words, stat)) = as_nobody("flagstat --segment shared") else {
        return eprintln!("skipped: another user cannot run this program");
    };
    assert_eq!(status, Some(0), "{words}");
    assert!(stat.starts_with(b"11 + 1"));
    for refused in ["sort --segment shared", "flagstat --segment own"] {
        let (status, words, _) = as_nobody(refused).unwrap();
        assert_eq!(status, Some(SEGMENT), "{refused}: {words}");
        assert!(words.contains("Permission denied"), "{refused}: {words}");
    }
}
