//! What comes out equals what samtools 1.16.1 writes, byte for byte, on every input of its own tests and htslib's that it
//! can use, and on synthetic alignments. Skipped, saying so, where samtools is absent.

#![allow(clippy::unwrap_used)]

mod synthetic;

use allocator_api2::alloc::Global;
use mneme_genomics::{Order, Store, load};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian's `samtools-test` and `htslib-test` put their data.
const TEST_DATA: [&str; 2] = ["/usr/share/samtools/test", "/usr/share/htslib-test/test"];

/// The version whose output is the measure; others may differ in details.
const VERSION: &str = "samtools 1.16.1";

/// Files that samtools shows and a store refuses, and why.
const REFUSED: [(&str, &str); 4] = [
    (
        "mpileup/1read.sam",
        "a header line without fields, which samtools copies unread and refuses to sort",
    ),
    (
        "base_mods/MM-explicit.sam",
        "a comment without a tab, which samtools copies unread and refuses to sort",
    ),
    (
        "large_pos/longref3.expected.sam",
        "template lengths of more than 32 bits, which noodles does not read",
    ),
    (
        "mpileup/small.bam",
        "a mate's position below zero, which noodles does not read",
    ),
];

/// Runs samtools; none if it fails.
fn samtools(arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("samtools");
    command
        .args(arguments)
        .stderr(Stdio::null())
        .stdin(Stdio::null());
    let output = command.output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Whether samtools is there in the version that is the measure.
fn is_there() -> bool {
    let version = samtools(&["--version"]).unwrap_or_default();
    let there = version.starts_with(format!("{VERSION}\n").as_bytes());
    if !there {
        eprintln!("skipped: {VERSION} is not installed");
    }
    there
}

/// The header and all alignments, as SAM.
fn whole(store: &Store<Global>) -> Vec<u8> {
    view(store, ".")
}

fn view(store: &Store<Global>, region: &str) -> Vec<u8> {
    let mut text = store.header().text().to_vec();
    let region = store.region(region).unwrap();
    store
        .write(store.view(&region).unwrap(), &mut text)
        .unwrap();
    text
}

/// The first line in which two texts differ.
fn difference(ours: &[u8], theirs: &[u8]) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let lines = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text);
        text.split('\n').map(str::to_owned).collect()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let at = (0..).find(|at| ours.get(*at) != theirs.get(*at))?;
    let cut = |lines: &[String]| {
        lines
            .get(at)
            .map(|line| line.chars().take(300).collect::<String>())
    };
    Some(format!(
        "line {}: {:?} instead of {:?}",
        at + 1,
        cut(&ours),
        cut(&theirs)
    ))
}

/// Regions worth asking for: each reference whole, in part and at both ends, everything, what is nowhere.
fn regions(store: &Store<Global>) -> Vec<String> {
    let mut regions = vec!["*".to_owned(), ".".to_owned()];
    for reference in store.header().references().iter().take(2) {
        let name = String::from_utf8_lossy(reference.name()).into_owned();
        let length = reference.length();
        regions.push(format!("{{{name}}}"));
        regions.push(format!("{{{name}}}:1-1"));
        regions.push(format!("{{{name}}}:{}-{}", length / 3 + 1, length / 2 + 1));
        regions.push(format!("{{{name}}}:{length}"));
    }
    let placed = store
        .alignments()
        .filter(|alignment| alignment.reference() >= 0);
    for alignment in placed.step_by(store.len() / 3 + 1) {
        let reference = &store.header().references()[alignment.reference() as usize];
        let name = String::from_utf8_lossy(reference.name());
        let position = alignment.position() + 1;
        regions.push(format!("{{{name}}}:{position}-{position}"));
        regions.push(format!(
            "{{{name}}}:{}-{}",
            alignment.end(),
            alignment.end() + 10
        ));
    }
    regions
}

/// Compares everything on one file; tells what differs, and counts what was compared.
fn compare(file: &Path, scratch: &Path, compared: &mut usize) -> Vec<String> {
    let mut complaints = Vec::new();
    let path = file.to_str().unwrap();
    let mut check = |what: &str, ours: &[u8], theirs: &[u8]| {
        *compared += 1;
        if let Some(difference) = difference(ours, theirs) {
            complaints.push(format!("{path}: {what}: {difference}"));
        }
    };
    let Some(theirs) = samtools(&["view", "-h", "--no-PG", path]) else {
        return complaints;
    };
    let refused = REFUSED.iter().any(|(refused, _)| path.ends_with(refused));
    let mut store = match load::from_path(file, Global) {
        Ok(_) if refused => return vec![format!("{path}: refused no more")],
        Ok((store, _)) => store,
        Err(_) if refused => return complaints,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    check("view", &whole(&store), &theirs);
    let bam = scratch.join("same.bam");
    if samtools(&["view", "-b", "--no-PG", "-o", bam.to_str().unwrap(), path]).is_some() {
        let (same, _) = load::from_path(&bam, Global).unwrap();
        check("view of the same as BAM", &whole(&same), &theirs);
    }
    if let Some(theirs) = samtools(&["flagstat", path]) {
        check("flagstat", store.flagstat().to_string().as_bytes(), &theirs);
    }
    if let Some(theirs) = samtools(&["sort", "-n", "--no-PG", "-O", "sam", path]) {
        store.sort(Order::Name, 1).unwrap();
        check("sort -n", &whole(&store), &theirs);
        store.sort(Order::AsRead, 1).unwrap();
    }
    let Some(theirs) = samtools(&["sort", "--no-PG", "-O", "sam", path]) else {
        return complaints;
    };
    store.sort(Order::Coordinate, 1).unwrap();
    check("sort", &whole(&store), &theirs);
    // Positions beyond 2^31 fit neither BAM nor its index; bgzip's SAM and CSI hold them.
    let sorted = scratch.join("sorted.sam.gz");
    let sorted = sorted.to_str().unwrap();
    let made = samtools(&["sort", "--no-PG", "-O", "sam.gz", "-o", sorted, path]);
    if made
        .and_then(|_| samtools(&["index", "-c", sorted]))
        .is_none()
    {
        return complaints;
    }
    let (again, _) = load::from_path(Path::new(sorted), Global).unwrap();
    check("view of what was sorted", &whole(&again), &whole(&store));
    store.index().unwrap();
    for region in regions(&store) {
        if let Some(theirs) = samtools(&["view", "-h", "--no-PG", sorted, &region]) {
            check(&region, &view(&store, &region), &theirs);
        }
    }
    complaints
}

/// Files below a directory that may hold alignments.
fn inputs(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            inputs(&path, found);
        } else if [".sam", ".bam", ".sam.gz"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            found.push(path);
        }
    }
}

#[test]
fn every_input_of_samtools_and_htslib_gives_the_same_text() {
    if !is_there() {
        return;
    }
    let mut files = Vec::new();
    for directory in TEST_DATA {
        let before = files.len();
        inputs(Path::new(directory), &mut files);
        if files.len() == before {
            eprintln!("skipped: {directory} is not there");
        }
    }
    inputs(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")),
        &mut files,
    );
    let compare_all = |files: &[PathBuf], part: usize| {
        let scratch = synthetic::Scratch::new(&format!("inputs-{part}"));
        let mut compared = 0;
        let complaints = files
            .iter()
            .flat_map(|file| compare(file, scratch.path(), &mut compared));
        let complaints: Vec<String> = complaints.collect();
        (complaints, compared)
    };
    // Most of the time is spent starting samtools.
    let (first, second) = files.split_at(files.len() / 2);
    let (mut complaints, compared) = std::thread::scope(|scope| {
        let other = scope.spawn(|| compare_all(second, 1));
        let (mut complaints, compared) = compare_all(first, 0);
        let (others, other_compared) = other.join().unwrap();
        complaints.extend(others);
        (complaints, compared + other_compared)
    });
    complaints.sort();
    eprintln!("{} files, {compared} outputs compared", files.len());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    // A list of files that are all unusable proves nothing.
    assert!(compared > files.len());
}

#[test]
fn synthetic_alignments_give_the_same_text() {
    if !is_there() {
        return;
    }
    let scratch = synthetic::Scratch::new("wgsim");
    let Some(file) = synthetic::alignments(scratch.path(), 5_000) else {
        return eprintln!("skipped: wgsim is not installed");
    };
    let mut compared = 0;
    let complaints = compare(&file, scratch.path(), &mut compared);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(compared > 20, "{compared}");
}

#[test]
fn sorting_by_name_and_then_by_coordinate_leaves_equals_by_name() {
    if !is_there() {
        return;
    }
    let scratch = synthetic::Scratch::new("twice");
    let Some(file) = synthetic::alignments(scratch.path(), 500) else {
        return eprintln!("skipped: wgsim is not installed");
    };
    let by_name = scratch.path().join("by-name.sam");
    let by_name = by_name.to_str().unwrap();
    samtools(&[
        "sort",
        "-n",
        "--no-PG",
        "-o",
        by_name,
        file.to_str().unwrap(),
    ])
    .unwrap();
    let theirs = samtools(&["sort", "--no-PG", "-O", "sam", by_name]).unwrap();
    let (mut store, _) = load::from_path(&file, Global).unwrap();
    store.sort(Order::Name, 1).unwrap();
    store.sort(Order::Coordinate, 1).unwrap();
    assert_eq!(difference(&whole(&store), &theirs), None);
}

#[test]
fn a_cigar_too_long_for_its_field_comes_back_from_its_tag() {
    if !is_there() {
        return;
    }
    let scratch = synthetic::Scratch::new("long-cigar");
    let file = scratch.path().join("long.sam");
    let operations = 70_000;
    let cigar = "1M1I".repeat(operations / 2);
    let bases = "A".repeat(operations);
    let line = format!("r\t0\ta\t5\t60\t{cigar}\t*\t0\t0\t{bases}\t*\tNM:i:1\tXX:Z:after");
    std::fs::write(&file, format!("@SQ\tSN:a\tLN:99999\n{line}\n")).unwrap();
    let mut compared = 0;
    let complaints = compare(&file, scratch.path(), &mut compared);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(compared > 5, "{compared}");
}
