//! The output equals that of samtools 1.16.1 writes, byte for byte, on every input of its own
//! tests and htslib's that it can use, and on synthetic alignments; wherever the alignments lie, in
//! private memory and in a segment. Skipped, saying so, where samtools is absent.

#![allow(clippy::unwrap_used)]

mod kept;
mod synthetic;

use allocator_api2::alloc::{Allocator, Global};
use kept::{Kept, Scene};
use mneme_genomics::{LoadError, Order, Store, load};
use mneme_testkit::TestDir;
use std::cell::RefCell;
use std::collections::HashMap;
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

/// Alignments, wherever they lie.
enum Home<'a> {
    Private(Box<Store<Global>>),
    Segment(Kept<'a>),
}

impl<'a> Home<'a> {
    /// Loads a file, into a segment of the scene if there is one.
    fn load(file: &Path, scene: Option<&'a Scene>) -> Result<Self, LoadError> {
        Ok(match scene {
            None => Home::Private(Box::new(load::from_path(file, Global)?.0)),
            Some(scene) => Home::Segment(Kept::load(scene, file)?.0),
        })
    }

    /// The header and all alignments, as SAM.
    fn whole(&self) -> Vec<u8> {
        self.view(".")
    }

    fn view(&self, region: &str) -> Vec<u8> {
        match self {
            Home::Private(store) => view(store, region),
            Home::Segment(kept) => kept.read(|store| view(store, region)),
        }
    }

    fn flagstat(&self) -> String {
        match self {
            Home::Private(store) => store.flagstat().to_string(),
            Home::Segment(kept) => kept.read(|store| store.flagstat().to_string()),
        }
    }

    fn sort(&mut self, order: Order) {
        match self {
            Home::Private(store) => store.sort(order, 1).unwrap(),
            Home::Segment(kept) => kept.change(|store| store.sort(order, 1)).unwrap(),
        }
    }

    fn index(&mut self) {
        match self {
            Home::Private(store) => store.index().unwrap(),
            Home::Segment(kept) => kept.change(|store| store.index()).unwrap(),
        }
    }

    #[expect(clippy::redundant_closure, reason = "one for every lifetime")]
    fn regions(&self) -> Vec<String> {
        match self {
            Home::Private(store) => regions(store),
            Home::Segment(kept) => kept.read(|store| regions(store)),
        }
    }
}

fn view<A: Allocator + Copy>(store: &Store<A>, region: &str) -> Vec<u8> {
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

/// Regions worth asking for: each reference whole, in part and at both ends, everything, what is
/// nowhere.
fn regions<A: Allocator + Copy>(store: &Store<A>) -> Vec<String> {
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

/// What samtools writes about a file.
struct Theirs {
    /// Ours that is to equal it, and what it is.
    outputs: Vec<(Wanted, Vec<u8>)>,
    /// These alignments as BAM, if BAM can hold them.
    bam: Option<PathBuf>,
    /// Sorted, with an index.
    sorted: Option<PathBuf>,
    /// What was asked of that, for it is asked again of us elsewhere, and starting samtools is what
    /// takes the time.
    regions: RefCell<HashMap<String, Option<Vec<u8>>>>,
}

#[derive(Debug)]
enum Wanted {
    View,
    Flagstat,
    ByName,
    ByCoordinate,
}

impl Theirs {
    /// None if samtools cannot read the file.
    fn about(file: &Path, scratch: &Path) -> Option<Self> {
        let path = file.to_str().unwrap();
        let made = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
        let mut outputs = vec![(Wanted::View, samtools(&["view", "-h", "--no-PG", path])?)];
        for (wanted, arguments) in [
            (Wanted::Flagstat, &["flagstat"][..]),
            (Wanted::ByName, &["sort", "-n", "--no-PG", "-O", "sam"]),
            (Wanted::ByCoordinate, &["sort", "--no-PG", "-O", "sam"]),
        ] {
            if let Some(output) = samtools(&[arguments, &[path]].concat()) {
                outputs.push((wanted, output));
            }
        }
        let bam = made("same.bam");
        let as_bam = samtools(&["view", "-b", "--no-PG", "-o", &bam, path]);
        // Positions beyond 2^31 fit neither BAM nor its index; bgzip's SAM and CSI hold them.
        let sorted = made("sorted.sam.gz");
        let indexed = samtools(&["sort", "--no-PG", "-O", "sam.gz", "-o", &sorted, path])
            .and_then(|_| samtools(&["index", "-c", &sorted]));
        Some(Self {
            outputs,
            bam: as_bam.map(|_| bam.into()),
            sorted: indexed.map(|_| sorted.into()),
            regions: RefCell::default(),
        })
    }
}

/// Compares everything on one file, in private memory and in a segment; tells what differs, and
/// counts what was compared.
fn compare(file: &Path, scratch: &Path, scene: &Scene, compared: &mut usize) -> Vec<String> {
    let Some(theirs) = Theirs::about(file, scratch) else {
        return Vec::new();
    };
    let mut complaints = compare_at(file, &theirs, None, compared);
    complaints.extend(compare_at(file, &theirs, Some(scene), compared));
    complaints
}

fn compare_at(
    file: &Path,
    theirs: &Theirs,
    scene: Option<&Scene>,
    compared: &mut usize,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let path = file.to_str().unwrap();
    let place = if scene.is_some() {
        "segment"
    } else {
        "private"
    };
    let mut check = |what: &str, ours: &[u8], theirs: &[u8]| {
        *compared += 1;
        if let Some(difference) = difference(ours, theirs) {
            complaints.push(format!("{path}: {place}: {what}: {difference}"));
        }
    };
    let refused = REFUSED.iter().any(|(refused, _)| path.ends_with(refused));
    let mut home = match Home::load(file, scene) {
        Ok(_) if refused => return vec![format!("{path}: refused no more")],
        Ok(home) => home,
        Err(_) if refused => return complaints,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    for (wanted, theirs) in &theirs.outputs {
        let ours = match wanted {
            Wanted::View => home.whole(),
            Wanted::Flagstat => home.flagstat().into_bytes(),
            Wanted::ByName => {
                home.sort(Order::Name);
                let ours = home.whole();
                home.sort(Order::AsRead);
                ours
            }
            Wanted::ByCoordinate => {
                home.sort(Order::Coordinate);
                home.whole()
            }
        };
        check(&format!("{wanted:?}"), &ours, theirs);
    }
    if let Some(sorted) = &theirs.sorted {
        let ours = home.whole();
        home.index();
        let mut known = theirs.regions.borrow_mut();
        for region in home.regions() {
            let path = sorted.to_str().unwrap();
            let theirs = known
                .entry(region.clone())
                .or_insert_with(|| samtools(&["view", "-h", "--no-PG", path, &region]));
            if let Some(theirs) = theirs {
                check(&region, &home.view(&region), theirs);
            }
        }
        drop(home);
        let again = Home::load(sorted, scene).unwrap();
        check("view of what was sorted", &again.whole(), &ours);
    }
    if let Some(bam) = &theirs.bam {
        let same = Home::load(bam, scene).unwrap();
        check(
            "view of the same as BAM",
            &same.whole(),
            &theirs.outputs[0].1,
        );
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
        let scratch = TestDir::new(&format!("inputs-{part}"));
        let scene = Scene::new();
        let mut compared = 0;
        let complaints = files
            .iter()
            .flat_map(|file| compare(file, scratch.path(), &scene, &mut compared));
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
    // A list that has only unusable files proves nothing.
    assert!(compared > files.len());
}

#[test]
fn synthetic_alignments_give_the_same_text() {
    if !is_there() {
        return;
    }
    let scratch = TestDir::new("wgsim");
    let Some(file) = synthetic::alignments(scratch.path(), 5_000) else {
        return eprintln!("skipped: wgsim is not installed");
    };
    let mut compared = 0;
    let complaints = compare(&file, scratch.path(), &Scene::new(), &mut compared);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(compared > 20, "{compared}");
}

#[test]
fn sorting_by_name_and_then_by_coordinate_leaves_equals_by_name() {
    if !is_there() {
        return;
    }
    let scratch = TestDir::new("twice");
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
    let scene = Scene::new();
    for scene in [None, Some(&scene)] {
        let mut home = Home::load(&file, scene).unwrap();
        home.sort(Order::Name);
        home.sort(Order::Coordinate);
        assert_eq!(difference(&home.whole(), &theirs), None);
    }
}

#[test]
fn a_cigar_too_long_for_its_field_comes_back_from_its_tag() {
    if !is_there() {
        return;
    }
    let scratch = TestDir::new("long-cigar");
    let file = scratch.path().join("long.sam");
    let operations = 70_000;
    let cigar = "1M1I".repeat(operations / 2);
    let bases = "A".repeat(operations);
    let line = format!("r\t0\ta\t5\t60\t{cigar}\t*\t0\t0\t{bases}\t*\tNM:i:1\tXX:Z:after");
    std::fs::write(&file, format!("@SQ\tSN:a\tLN:99999\n{line}\n")).unwrap();
    let mut compared = 0;
    let complaints = compare(&file, scratch.path(), &Scene::new(), &mut compared);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(compared > 5, "{compared}");
}
