//! Several processes change a map of strings to lists and two linked lists in one segment, and are
//! killed while they do. Afterwards everything acknowledged is there, or the segment is poisoned.
//! It is then rebuilt, or accepted if nothing was changed, and the survivors continue.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::Scene;
use crate::common::visitor::{here, stand};
use mneme_space::{
    Attachment, EnterError, HeapError, Ptr, Registry, Schema, Section, SegBox, SegMap, SegString,
    SegVec, Segment, Stored,
};
use mneme_sys::Access;
use mneme_testkit::Process;

/// The number of words of each worker.
const WORDS: u64 = 20;
/// The maximum length of the lists.
const LONGEST: usize = 60;

#[derive(Stored)]
struct Link<'s> {
    worker: u64,
    section: u64,
    next: Option<SegBox<'s, Link<'s>>>,
}

#[derive(Stored)]
struct Node<'s> {
    worker: u64,
    section: u64,
    next: Option<Ptr<'s, Node<'s>>>,
}

#[derive(Stored)]
struct Ledger<'s> {
    /// How often the segment was created.
    generation: u64,
    /// The number of sections of each worker.
    done: SegMap<'s, u64, u64>,
    words: SegMap<'s, SegString<'s>, SegVec<'s, u64>>,
    /// Newest first.
    chain: Option<SegBox<'s, Link<'s>>>,
    /// Oldest first, with both ends and the length.
    queue: Option<(Ptr<'s, Node<'s>>, Ptr<'s, Node<'s>>)>,
    queued: u64,
}

struct Shared;
impl Schema for Shared {
    type Root<'s> = Ledger<'s>;
}

fn found(at: &Attachment, generation: u64) {
    let made = at.enter(|here| {
        here.create_root::<Shared>("s", |heap| Ledger {
            generation,
            done: SegMap::new_in(heap),
            words: SegMap::new_in(heap),
            chain: None,
            queue: None,
            queued: 0,
        })
        .map(|_| ())
    });
    made.unwrap().unwrap();
}

fn word(worker: u64, which: u64) -> String {
    format!("word {} of worker {worker}", which % WORDS)
}

/// A change that a section makes to a worker's words.
enum Change {
    Append(u64),
    Remove(u64),
}

fn change(section: u64) -> Change {
    match section % 7 {
        3 => Change::Remove(section / 7),
        _ => Change::Append(section * section),
    }
}

/// Runs one section of a worker, with its generation and number. Calls `between` half-way.
fn work<'s>(
    here: &mut Section<'s>,
    worker: u64,
    between: impl FnOnce(),
) -> Result<(u64, u64), HeapError> {
    let heap = here.heap("s")?;
    let root = here.root_mut::<Shared>("s")?;
    let section = root.done.get(&worker).copied().unwrap_or(0) + 1;
    match change(section) {
        Change::Append(which) => {
            let word = SegString::try_from_str_in(&word(worker, which), heap)?;
            let list = root
                .words
                .try_get_or_insert_with(word, || SegVec::new_in(heap))?;
            list.try_reserve(1).map_err(|_| HeapError::Refused)?;
            list.push(section);
        }
        Change::Remove(which) => drop(root.words.remove(&*word(worker, which))),
    }
    let next = root.chain.take();
    let link = Link {
        worker,
        section,
        next,
    };
    root.chain = Some(SegBox::try_new_in(link, heap).map_err(|_| HeapError::Refused)?);
    between();
    let mut last = &mut root.chain;
    for _ in 0..LONGEST {
        let Some(link) = last else { break };
        last = &mut link.next;
    }
    *last = None;

    let node = heap.place(Node {
        worker,
        section,
        next: None,
    })?;
    let queue = root.queue;
    if let Some((_, newest)) = queue {
        newest.get_mut(here).unwrap().next = Some(node);
    }
    let root = here.root_mut::<Shared>("s")?;
    root.queued += 1;
    root.queue = Some((queue.map_or(node, |(oldest, _)| oldest), node));
    if root.queued > LONGEST as u64 {
        root.queued -= 1;
        let (oldest, newest) = root.queue.unwrap();
        let next = oldest.get(here).unwrap().next.unwrap();
        // SAFETY: it was the only pointer to the node.
        unsafe { oldest.free(here) }.unwrap();
        here.root_mut::<Shared>("s")?.queue = Some((next, newest));
    }
    let root = here.root_mut::<Shared>("s")?;
    root.done.try_insert(worker, section)?;
    Ok((root.generation, section))
}

/// The generation and number that a worker has acknowledged, from a file outside the segment.
fn acknowledged(root: &Path, worker: u64) -> (u64, u64) {
    let read = std::fs::read(acknowledgement(root, worker)).unwrap_or_default();
    let word = read.try_into().map_or(0, u64::from_le_bytes);
    (word >> 40, word & ((1 << 40) - 1))
}

fn acknowledgement(root: &Path, worker: u64) -> PathBuf {
    root.join(format!("acknowledged-{worker}"))
}

/// Compares everything in the segment with what must be there.
fn verify(here: &Section<'_>, root: &Path) {
    let ledger = here.root::<Shared>("s").unwrap();
    let mut words = HashMap::<String, Vec<u64>>::new();
    for (&worker, &done) in &ledger.done {
        let (generation, said) = acknowledged(root, worker);
        assert!(generation <= ledger.generation);
        let said = if generation == ledger.generation {
            said
        } else {
            0
        };
        // The last section may have ended without being acknowledged yet.
        assert!(said == done || said + 1 == done, "{worker}: {said} {done}");
        for section in 1..=done {
            match change(section) {
                Change::Append(which) => {
                    words.entry(word(worker, which)).or_default().push(section)
                }
                Change::Remove(which) => drop(words.remove(&word(worker, which))),
            }
        }
    }
    assert_eq!(ledger.words.len(), words.len());
    for (word, list) in &words {
        let found = ledger.words.get(&**word).map(|list| &**list);
        assert_eq!(found, Some(&**list), "{word}");
    }
    let total: u64 = ledger.done.values().sum();
    let expected = total.min(LONGEST as u64);
    // Each worker's entries follow one another; the two lists agree.
    let mut next: HashMap<u64, u64> = ledger.done.iter().map(|(w, done)| (*w, *done)).collect();
    let mut chain = Vec::new();
    let mut at = &ledger.chain;
    while let Some(link) = at {
        let next = next.get_mut(&link.worker).unwrap();
        assert_eq!(link.section, *next);
        *next -= 1;
        chain.push((link.worker, link.section));
        at = &link.next;
    }
    assert_eq!(chain.len() as u64, expected);
    let mut queue = Vec::new();
    let mut at = ledger.queue.map(|(oldest, _)| oldest);
    while let Some(node) = at {
        let node = node.get(here).unwrap();
        queue.push((node.worker, node.section));
        at = node.next;
    }
    queue.reverse();
    assert_eq!((queue.len() as u64, &queue), (ledger.queued, &chain));
}

/// Takes everything apart; afterwards the heap has no allocated block.
fn dismantle(here: &mut Section<'_>) {
    let ledger = here.remove_root::<Shared>("s").unwrap();
    let mut at = ledger.queue.map(|(oldest, _)| oldest);
    drop(ledger);
    while let Some(node) = at {
        at = node.get(here).unwrap().next;
        // SAFETY: nothing else leads to it.
        unsafe { node.free(here) }.unwrap();
    }
    let report = here.heap("s").unwrap().check().unwrap();
    assert_eq!((report.problems, report.stats.blocks), (vec![], 0));
}

const ROLE: &str = "MNEME_SPACE_SHARING";

fn attach(registry: &Registry) -> Attachment {
    let segment = Segment::open(registry, "s").unwrap();
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    // On a machine that runs many tests a holder may wait for its CPU.
    at.timeout(Duration::from_secs(60))
}

#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut words = role.splitn(3, ' ');
    let what = words.next().unwrap();
    let worker: u64 = words.next().unwrap().parse().unwrap();
    let root = PathBuf::from(words.next().unwrap());
    let at = attach(&Registry::open(root.join("registry")).unwrap());
    match what {
        "stand-idle" => at.enter(|_| stand()).unwrap(),
        "stand-half-way" => drop(at.enter(|here| work(here, worker, stand))),
        "work" => {
            here();
            let acknowledged = std::fs::File::create(acknowledgement(&root, worker)).unwrap();
            while !root.join("stop").exists() {
                match at.enter(|here| work(here, worker, || ())) {
                    Ok(Ok((generation, section))) => {
                        let word = (generation << 40 | section).to_le_bytes();
                        acknowledged.write_all_at(&word, 0).unwrap();
                    }
                    // Until the parent has created it again.
                    Ok(Err(HeapError::NoRoot { .. })) | Err(EnterError::Poisoned { .. }) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        other => panic!("{other}"),
    }
}

/// Starts a process, and waits until it has reached its position.
fn start(scene: &Scene, what: &str, worker: u64) -> Process {
    let order = format!("{what} {worker} {}", scene.root.display());
    let mut process = Process::start_talking("sharing::role", [(ROLE, order)]);
    process.wait_for("here");
    process
}

#[test]
fn a_structure_built_by_several_processes_is_consistent_or_known_to_be_poisoned() {
    let scene = Scene::new();
    scene.create("s");
    let at = attach(&scene.registry);
    let mut generation = 1;
    found(&at, generation);
    let survivors: Vec<Process> = (0..2).map(|worker| start(&scene, "work", worker)).collect();
    for round in 0..24 {
        // New numbers for each, so that nobody continues the work of a dead one.
        let victim = 100 + round;
        let what = ["work", "stand-half-way", "work", "stand-idle"][round as usize % 4];
        let mut process = start(&scene, what, victim);
        if what == "work" {
            std::thread::sleep(Duration::from_micros(731 * round % 5000));
        }
        process.kill();
        let looked = at.read(|here| verify(here, &scene.root));
        match (what, looked) {
            ("work", Ok(())) => {}
            ("stand-idle", Err(EnterError::Poisoned { .. })) => {
                // SAFETY: the dead process had changed nothing.
                unsafe { at.accept("s") }.unwrap();
                at.read(|here| verify(here, &scene.root)).unwrap();
            }
            ("work" | "stand-half-way", Err(EnterError::Poisoned { .. })) => {
                at.rebuild("s").unwrap();
                generation += 1;
                found(&at, generation);
            }
            (what, other) => panic!("{what}: {other:?}"),
        }
    }
    // The survivors continue, whatever happened to the others.
    let before = at.read(|here| sections(here)).unwrap();
    while at.read(|here| sections(here)).unwrap() < before + 200 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(scene.root.join("stop"), "").unwrap();
    survivors.into_iter().for_each(Process::end);
    at.enter(|here| {
        verify(here, &scene.root);
        dismantle(here);
    })
    .unwrap();
}

fn sections(here: &Section<'_>) -> u64 {
    here.root::<Shared>("s").unwrap().done.values().sum()
}
