//! Many processes that enter two segments are killed (`kill -9`): nobody waits for a dead process,
//! and the next owner gets `Poisoned` if and only if a process died during a change.
//!
//! Kills 150 processes inside sections; with `MNEME_LADDER_SECS` as many as fit into that time, or
//! `MNEME_LADDER_KILLS`; starting with the seed `MNEME_LADDER_SEED`.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use common::visitor::{self, here};
use common::{Scene, region};
use mneme_space::{Attachment, EnterError, Mapping, Registry, Schema, Section, Segment};
use mneme_sys::Access;
use mneme_testkit::{Process, Random, setting};

/// Two counters that are equal whenever nobody is changing them and nobody died doing so.
struct Pair;

impl Schema for Pair {
    type Root<'s> = (u64, u64);
}

const NAMES: [&str; 2] = ["a", "b"];
const VICTIMS: usize = 3;

/// A victim's record of its progress, in a segment of its own that can be read after its death.
struct Diary(Mapping);

/// A victim's position. Its work is a set of segments, with a bit for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Outside = 0,
    /// Entering: it waits, or begins.
    Entering = 1,
    Inside = 2,
    /// Leaving.
    Leaving = 3,
}

const READS: u64 = 4;

impl Diary {
    fn open(registry: &Registry) -> Self {
        let segment = Segment::open(registry, "diary").unwrap();
        Self(patiently(|| segment.map(Access::ReadWrite)))
    }

    fn word(&self, victim: usize, at: usize) -> &AtomicU64 {
        let offset = 4096 + victim * 128 + at * 8;
        region(&self.0).at(offset as u64).unwrap()
    }

    fn note(&self, victim: usize, phase: Phase, what: u64) {
        self.word(victim, 0)
            .store(what << 8 | phase as u64, Release);
    }

    fn read(&self, victim: usize) -> (Phase, u64) {
        let word = self.word(victim, 0).load(Acquire);
        let phase = [
            Phase::Outside,
            Phase::Entering,
            Phase::Inside,
            Phase::Leaving,
        ];
        (phase[(word & 3) as usize], word >> 8)
    }

    /// Not zero while the segment is being accepted and half an addition has not been repaired yet.
    fn mending(&self, segment: usize) -> &AtomicU64 {
        self.word(VICTIMS, segment)
    }

    /// The number of additions to that segment that have returned.
    fn acknowledged(&self, victim: usize, segment: usize) -> &AtomicU64 {
        self.word(victim, 1 + segment)
    }
}

/// The attachment for each set of segments, and a reader's attachment of both.
fn attachments(registry: &Registry) -> [Attachment; 5] {
    let open = |i: usize| Segment::open(registry, NAMES[i]).unwrap();
    let (a, b) = (open(0), open(1));
    [
        vec![],
        vec![(&a, Access::ReadWrite)],
        vec![(&b, Access::ReadWrite)],
        vec![(&a, Access::ReadWrite), (&b, Access::ReadWrite)],
        vec![(&a, Access::ReadOnly), (&b, Access::ReadOnly)],
    ]
    .map(|segments| patiently(|| Attachment::new(segments.iter().copied())))
}

/// On a busy machine another process may be off its CPU for a second or two, but not for sixty.
const BUSY: Duration = Duration::from_secs(60);

/// Retries an operation that others may delay by keeping a lock for long.
fn patiently<T, E: std::fmt::Debug>(mut had: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match had() {
            Ok(had) => return had,
            Err(refused) => assert!(began.elapsed() < BUSY, "{refused:?}"),
        }
    }
}

/// Short pauses spin on the CPU, long ones sleep.
fn pause(micros: u64) {
    if micros > 100 {
        return std::thread::sleep(Duration::from_micros(micros));
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

/// Runs `f` with each segment of the set.
fn each(here: &mut Section<'_>, set: u64, mut f: impl FnMut(usize, &mut Section<'_>)) {
    match set {
        3 => {
            here.heap(NAMES[0]).unwrap();
            f(0, here);
            here.beside(NAMES[1], |_, there| f(1, there)).unwrap();
        }
        one => f(one as usize - 1, here),
    }
}

/// Adds one, unless somebody is about to repair an interrupted addition.
fn add_one(here: &mut Section<'_>, diary: &Diary, segment: usize, micros: u64) -> bool {
    let (a, b) = here.root_mut::<Pair>(NAMES[segment]).unwrap();
    if *a != *b {
        let mending = diary.mending(segment).load(Acquire) != 0;
        assert!(mending, "half an addition was shown as whole: {a} {b}");
        return false;
    }
    *a += 1;
    pause(micros);
    *b += 1;
    true
}

#[test]
fn role() {
    let Some((role, registry)) = visitor::role() else {
        return;
    };
    let (victim, seed) = role.split_once(' ').unwrap();
    let (victim, mut random) = (victim.parse().unwrap(), Random::new(seed.parse().unwrap()));
    let (diary, attachments) = (Diary::open(&registry), attachments(&registry));
    here();
    loop {
        let reads = random.below(4) == 0;
        let set = if reads { READS } else { 1 + random.below(3) };
        let (hold, away) = (random.below(400), random.below(100));
        diary.note(victim, Phase::Entering, set);
        let at = &attachments[set as usize];
        let done = at.enter(|here| {
            diary.note(victim, Phase::Inside, set);
            let mut added = [false; 2];
            if reads {
                for name in NAMES {
                    let mut pair = (0, 0);
                    let mut look = |here: &Section<'_>| pair = *here.root::<Pair>(name).unwrap();
                    if name == NAMES[0] {
                        look(here);
                    } else {
                        here.beside(name, |_, there| look(there)).unwrap();
                    }
                    let whole = pair.0 == pair.1;
                    let segment = usize::from(name == NAMES[1]);
                    let mending = diary.mending(segment).load(Acquire) != 0;
                    assert!(whole || mending, "a reader saw a change under way");
                }
                pause(hold);
            } else {
                each(here, set, |segment, here| {
                    added[segment] = add_one(here, &diary, segment, hold);
                });
            }
            diary.note(victim, Phase::Leaving, set);
            added
        });
        match done {
            Ok(added) => {
                for segment in (0..2).filter(|i| added[*i]) {
                    let word = diary.acknowledged(victim, segment);
                    word.store(word.load(Acquire) + 1, Release);
                }
            }
            // The parent recovers it; a stall is due to a busy machine.
            Err(EnterError::Poisoned { .. } | EnterError::Stalled(_)) => {}
            Err(other) => panic!("{other}"),
        }
        diary.note(victim, Phase::Outside, set);
        pause(away);
    }
}

/// Whether the next owner of that segment gets `Poisoned`.
fn found_poisoned(at: &Attachment, diary: &Diary, segment: usize, stalls: &mut u64) -> bool {
    let began = Instant::now();
    loop {
        match at.enter(|here| add_one(here, diary, segment, 0)) {
            Ok(added) => {
                assert!(added, "this is who mends");
                return false;
            }
            Err(EnterError::Poisoned { .. }) => return true,
            Err(EnterError::Stalled(stalled)) => {
                *stalls += 1;
                assert!(began.elapsed() < BUSY, "{stalled}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn median_and_max(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |i: usize| times.get(i).map_or(0.0, |t| t.as_secs_f64() * 1e3);
    let last = times.len().saturating_sub(1);
    let (median, late, max) = (at(times.len() / 2), at(times.len() * 99 / 100), at(last));
    format!("median {median:.2} ms, 99 % {late:.2} ms, max {max:.2} ms")
}

/// The results of the kills.
#[derive(Default)]
struct Tally {
    kills: u64,
    stalls: u64,
    /// The number of the parent's additions in each segment.
    own: [u64; 2],
    /// The number of kills by the victim's position.
    deaths: BTreeMap<String, u64>,
    /// The time until both segments answered, from the signal on.
    after_kill: Vec<Duration>,
    /// The time from the death on.
    after_death: Vec<Duration>,
}

impl Tally {
    fn print(&self, seed: u64, took: Duration) {
        let Self { kills, stalls, .. } = self;
        println!(
            "\nladder: kills of visitors, seed {seed}: {kills} kills in {took:?}, {stalls} stalls"
        );
        println!("  where they were: {:?}", self.deaths);
        println!("  one inside, to the answers of both segments:");
        println!(
            "  from the signal, {}",
            median_and_max(self.after_kill.clone())
        );
        println!(
            "  from its death, {}",
            median_and_max(self.after_death.clone())
        );
    }
}

/// The segments of a scene and the diary of its victims.
fn prepare(scene: &Scene) -> (Diary, [Attachment; 2]) {
    for name in NAMES {
        let _ = scene.create(name);
    }
    let diary = scene.registry.segment("diary").floating();
    let _ = diary.pages(mneme_sys::PagePolicy::Small).create().unwrap();
    let [_, a, b, ..] = attachments(&scene.registry);
    let ones = [a, b];
    for (at, name) in ones.iter().zip(NAMES) {
        at.enter(|here| drop(here.create_root::<Pair>(name, |_| (0, 0)).map(|_| ())))
            .unwrap();
    }
    (Diary::open(&scene.registry), ones)
}

/// Ends the poisoning of a segment.
fn mend(at: &Attachment, diary: &Diary, segment: usize) {
    diary.mending(segment).store(1, Release);
    // SAFETY: nobody touches the heap in a section; the root is repaired below.
    unsafe { at.accept(NAMES[segment]) }.unwrap();
    let mended = at.enter(|here| {
        let (a, b) = here.root_mut::<Pair>(NAMES[segment]).unwrap();
        assert!(*a == *b || *a == *b + 1, "{a} {b}");
        *b = *a;
        diary.mending(segment).store(0, Release);
    });
    mended.unwrap();
}

/// Checks that a segment has as many additions as were acknowledged, and at most one more for each
/// kill.
fn verify_additions(at: &Attachment, diary: &Diary, segment: usize, tally: &mut Tally) {
    // The last three victims died, too.
    if found_poisoned(at, diary, segment, &mut tally.stalls) {
        // SAFETY: nobody touches the heap in a section.
        unsafe { at.accept(NAMES[segment]) }.unwrap();
    } else {
        tally.own[segment] += 1;
    }
    let own = tally.own[segment];
    let read = at.read(|here| *here.root::<Pair>(NAMES[segment]).unwrap());
    let counted = read.unwrap().0;
    let acknowledged: u64 = (0..VICTIMS)
        .map(|victim| diary.acknowledged(victim, segment).load(Acquire))
        .sum();
    println!(
        "  {}: {counted} additions, {acknowledged} acknowledged by visitors, {own} by the parent",
        NAMES[segment]
    );
    // The victim died between its addition and the acknowledgement.
    let unacknowledged = counted.checked_sub(acknowledged + own);
    assert!(
        unacknowledged.is_some_and(|n| n <= tally.kills + 3),
        "{unacknowledged:?}"
    );
}

/// Checks a segment after the death of a victim that was in `phase` with the segments `set`, and
/// repairs it if it is poisoned. `was_poisoned` is what was found before the death was complete.
fn judge(
    at: &Attachment,
    diary: &Diary,
    segment: usize,
    (phase, set): (Phase, u64),
    was_poisoned: bool,
    tally: &mut Tally,
) {
    let is_changing = set & READS == 0 && set & 1 << segment != 0;
    // Answers from before the death was complete prove nothing.
    let is_poisoned = was_poisoned || found_poisoned(at, diary, segment, &mut tally.stalls);
    tally.own[segment] += u64::from(!is_poisoned);
    let context = format!("kill {}, segment {segment}: {phase:?} {set}", tally.kills);
    match phase {
        Phase::Inside if is_changing => assert!(is_poisoned, "{context}: not poisoned"),
        // A process can be killed between these records and the change of the lock's own word.
        Phase::Entering | Phase::Leaving if is_changing => {}
        _ => assert!(!is_poisoned, "{context}: poisoned without a death"),
    }
    if is_poisoned {
        mend(at, diary, segment);
    }
}

#[test]
fn the_next_owner_is_let_in_or_gets_an_error_if_a_change_was_interrupted() {
    let limit = setting("MNEME_LADDER_SECS").map(Duration::from_secs);
    let most =
        setting("MNEME_LADDER_KILLS").unwrap_or(if limit.is_some() { u64::MAX } else { 150 });
    let seed = setting("MNEME_LADDER_SEED").unwrap_or(7);
    let (mut random, mut instant) = (Random::new(seed << 1), Random::new(seed << 1 | 1));
    let scene = Scene::new();
    let (diary, ones) = prepare(&scene);
    let mut send = |victim: usize| {
        let seed = random.next();
        diary.note(victim, Phase::Outside, 0);
        visitor::send(&scene, &format!("{victim} {seed}"))
    };
    let mut victims: Vec<Process> = (0..VICTIMS).map(&mut send).collect();

    let (began, mut holders, mut tally) = (Instant::now(), 0, Tally::default());
    while holders < most && limit.is_none_or(|limit| began.elapsed() < limit) {
        // The oldest, which has had the most time to arrive.
        let fresh = (tally.kills % VICTIMS as u64) as usize;
        let victim = &mut victims[fresh];
        victim.wait_for("here");
        std::thread::sleep(Duration::from_micros(instant.below(2000)));
        assert!(victim.is_running(), "a process ended by itself");
        let killed = Instant::now();
        victim.child.kill().unwrap();
        // Every other time, the next owner is already waiting when the victim dies.
        let waits = tally.kills % 2 == 0;
        let mut died = killed;
        if !waits {
            victim.child.wait().unwrap();
            died = Instant::now();
        }
        let mut first = [false; 2];
        for segment in 0..2 {
            first[segment] = found_poisoned(&ones[segment], &diary, segment, &mut tally.stalls);
            tally.own[segment] += u64::from(!first[segment]);
        }
        let waited = died.elapsed();
        victim.child.wait().unwrap();
        tally.kills += 1;
        let (phase, set) = diary.read(fresh);
        for segment in 0..2 {
            let at = &ones[segment];
            judge(
                at,
                &diary,
                segment,
                (phase, set),
                first[segment],
                &mut tally,
            );
        }
        if phase == Phase::Inside {
            holders += 1;
            match waits {
                true => tally.after_kill.push(waited),
                false => tally.after_death.push(waited),
            }
        }
        let what = match set {
            READS => "reading two",
            3 => "changing two",
            0 => "starting",
            _ => "changing one",
        };
        *tally.deaths.entry(format!("{phase:?} {what}")).or_default() += 1;
        victims[fresh] = send(fresh);
    }
    drop(victims);
    tally.print(seed, began.elapsed());
    for (segment, at) in ones.iter().enumerate() {
        verify_additions(at, &diary, segment, &mut tally);
    }
    assert_eq!(scene.findings(), Vec::<String>::new());
}
