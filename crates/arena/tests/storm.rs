//! Real processes share an arena and are killed by SIGKILL, one after the other, at random moments.
//!
//! Each follows the protocol of a tenant: link an extent, then adopt it; mark its link, release it,
//! unlink it; with an intent of its own around both. However many have died, every extent is linked
//! and every link has its extent.
//!
//! In between they use the arena's cache, whose frames those extents take away: lookups return
//! values that were put, and killed processes leave neither a frame lent for ever nor an old value.
//!
//! Other processes use only the cache, and are stopped: everything that they have can be claimed
//! meanwhile.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{
    Arena, CacheLookup, ClaimError, Class, Discardable, Extent, ExtentState, Frame, RepairError,
    Stored,
};
use mneme_sync::{ControlOptions, DeadSlot, Lane, Participants, Slot, SlotId};
use mneme_sys::{
    Access, Liveness, NodeId, OfdLiveness, PagePolicy, Region, Reserve, SyntheticTopology,
};
use mneme_testkit::{Process, Random, TestDir, retry_within};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;
use support::{FRAME, Shape, UUID};

/// On a machine under any load, a process that has a lock may be off its CPU for this long.
const OFF_CPU: Duration = Duration::from_secs(60);

const FRAMES: usize = 129;
const LINKS: usize = 24;
const VISIT: &str = "MNEME_ARENA_STORM";
/// Set for a process that only uses the cache.
const TENANT: &str = "MNEME_ARENA_TENANT";

/// The kinds of the tenant's intents, in the log's lane; their words are: index, link.
const LINK: u16 = 1;
const UNLINK: u16 = 2;

/// A link identifies its extent by place, length and generation, so no two are ever equal.
fn link_of(arena: &Arena, extent: Extent) -> u64 {
    let generation = arena
        .extent_of(extent.start)
        .map_or(0, |info| info.generation);
    u64::from(extent.start.0) << 48 | u64::from(extent.frames) << 32 | u64::from(generation)
}

fn extent_of(link: u64) -> Extent {
    Extent {
        start: Frame((link >> 48) as u32),
        frames: (link >> 32) as u32 & 0xff,
    }
}

/// The link while that slot removes it.
fn marked(link: u64, slot: SlotId) -> u64 {
    link | u64::from(slot.0) << 40
}

fn is_marked(link: u64) -> bool {
    link >> 40 & 0xff != 0
}

/// The number of keys of the cache. Each has a word that holds its current version.
const KEYS: usize = 64;

struct Tenant {
    arena: Arc<Arena>,
    cache: Discardable,
}

impl Tenant {
    fn region(path: &Path) -> Region {
        let file = File::options().read(true).write(true).open(path).unwrap();
        Region::map_with(
            file.into(),
            Access::ReadWrite,
            FRAMES * FRAME,
            PagePolicy::Small,
            Reserve::Lazy,
        )
        .unwrap()
    }

    fn liveness(directory: &Path) -> Arc<dyn Liveness> {
        Arc::new(OfdLiveness::open(&directory.join("control"), 1 << 40).unwrap())
    }

    fn create(directory: &Path) -> Tenant {
        let options = ControlOptions {
            max_processes: 16,
            max_threads: 16,
            undo_bytes: 0,
            ..ControlOptions::new(UUID)
        };
        File::create(directory.join("control"))
            .unwrap()
            .set_len(options.region_len() as u64)
            .unwrap();
        File::create(directory.join("data"))
            .unwrap()
            .set_len((FRAMES * FRAME) as u64)
            .unwrap();
        let control = Self::region(&directory.join("control"));
        let participants =
            Participants::create(control, options, Self::liveness(directory)).unwrap();
        let shape = Shape {
            client_bytes: (LINKS + KEYS) * 8,
            records: 4000,
            ..Shape::default()
        };
        let data = Arc::new(Self::region(&directory.join("data")));
        Tenant::of(Arena::create(data, participants, shape.options()).unwrap())
    }

    fn open(directory: &Path) -> Tenant {
        // The holder of the lock for openings may be off its CPU for longer than others wait.
        let participants = retry_within(OFF_CPU, || {
            let control = Self::region(&directory.join("control"));
            Participants::open(control, UUID, Self::liveness(directory))
        });
        let data = Arc::new(Self::region(&directory.join("data")));
        let topology = Arc::new(SyntheticTopology::new(1, 1));
        Tenant::of(Arena::open(data, participants, topology).unwrap())
    }

    fn of(arena: Arena) -> Tenant {
        let arena = Arc::new(arena);
        let cache = Discardable::open(Arc::clone(&arena)).unwrap();
        Tenant { arena, cache }
    }

    /// The current version of each key. One process at a time changes it; the lowest bit is set
    /// while it is changing.
    fn truths(&self) -> &[AtomicU64] {
        let start = self.arena.client().start + LINKS as u64 * 8;
        self.arena.region().slice_at(start, KEYS).unwrap()
    }

    /// Looks up a key, and offers its current value if the cache does not have it; sometimes
    /// changes the value.
    fn use_cache(&self, random: u64) {
        let key = random as usize % KEYS;
        let name = [key as u8];
        let truth = &self.truths()[key];
        let slot = self.slot();
        let value = |version: u64| {
            let words = [key as u64, version].map(u64::to_le_bytes).concat();
            words.repeat(1 + (version as usize * 31 + key) % 20_000)
        };
        // SYNC: pairs with the exchanges below.
        let before = truth.load(Acquire);
        if random >> 20 & 7 == 0 && before & 1 == 0 {
            if truth
                .compare_exchange(before, before | 1, AcqRel, Acquire)
                .is_ok()
            {
                // If the process dies from here on, the key stays as it is for ever, without a
                // value.
                let next = before + 2;
                self.cache.remove(&name).unwrap();
                // While only this process may change the value: later, the version might belong to
                // another.
                let _ = self.cache.put(&slot, NodeId(0), &name, &value(next));
                truth.store(next, Release);
            }
            return;
        }
        let mut found = Vec::new();
        match self.cache.get(&name, &mut found) {
            CacheLookup::Hit => {
                let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
                assert_eq!(found, value(version), "bytes of another");
                // A version that was current at some moment since before the lookup; a change
                // removes the cached value first.
                let after = truth.load(Acquire);
                assert!(
                    (before & !1..=(after | 1) + 1).contains(&version),
                    "version {version} where {before} to {after} were the truth"
                );
            }
            CacheLookup::Miss(ticket) => {
                let now = truth.load(Acquire);
                if now & 1 == 0 {
                    let filled = self
                        .cache
                        .fill(&slot, NodeId(0), ticket, &name, &value(now));
                    let _: Stored = filled.unwrap();
                }
            }
        }
    }

    fn links(&self) -> &[AtomicU64] {
        self.arena
            .region()
            .slice_at(self.arena.client().start, LINKS)
            .unwrap()
    }

    /// Whether the linked extent still has this generation, and is adopted.
    fn is_held(&self, link: u64) -> bool {
        let info = self.arena.extent_of(extent_of(link).start);
        info.is_some_and(|info| {
            info.state == ExtentState::Held
                && info.extent == extent_of(link)
                && info.generation == link as u32
        })
    }

    fn slot(&self) -> Slot<'_> {
        retry_within(OFF_CPU, || self.arena.participants().slot())
    }

    fn reap(&self) {
        let participants = self.arena.participants();
        retry_within(OFF_CPU, || participants.reap(|dead| self.repair(dead)));
    }

    fn repair(&self, dead: &DeadSlot<'_>) -> Result<(), RepairError> {
        if let Some(intent) = dead.intent(Lane::Log) {
            let (index, link) = (intent.words[0] as usize, intent.words[1]);
            // SYNC: pairs with the exchanges in `step`.
            let now = self.links()[index].load(Acquire);
            if intent.kind == LINK && now == link && !self.is_held(link) {
                self.arena.adopt(extent_of(link)).unwrap();
            }
            if intent.kind == UNLINK && now == marked(link, dead.id()) {
                if self.is_held(link) {
                    let slot = self.arena.participants().slot()?;
                    self.arena.release(&slot, extent_of(link)).unwrap();
                }
                self.links()[index].store(0, Release);
            }
        }
        self.arena.repair(dead).map(|_| ())
    }

    fn step(&self, random: u64) {
        let slot = self.slot();
        let intent = slot.intent(Lane::Log);
        let (index, frames) = (random as usize % LINKS, 1 + (random >> 8) as u32 % 20);
        let place = &self.links()[index];
        // SYNC: pairs with the exchanges below.
        let link = place.load(Acquire);
        if link == 0 {
            match self
                .arena
                .claim(&slot, frames, 1, NodeId(0), Class::Ordinary, 0)
            {
                Ok(extent) => {
                    // The bytes belong to this process now, whoever still reads the previous ones.
                    for page in (extent.offset()..extent.end()).step_by(4096) {
                        let word: &AtomicU64 = self.arena.region().at(page).unwrap();
                        word.store(random, Release);
                    }
                    let link = link_of(&self.arena, extent);
                    intent.begin(LINK, &[index as u64, link]);
                    if place.compare_exchange(0, link, AcqRel, Acquire).is_ok() {
                        self.arena.adopt(extent).unwrap();
                    } else {
                        self.arena.release(&slot, extent).unwrap();
                    }
                }
                Err(ClaimError::OutOfMemory { .. } | ClaimError::NoContiguousRun { .. }) => {
                    self.reap()
                }
                Err(other) => panic!("{other}"),
            }
        } else if !is_marked(link) && self.is_held(link) {
            intent.begin(UNLINK, &[index as u64, link]);
            // If two processes unlink the same extent, one succeeds.
            if place
                .compare_exchange(link, marked(link, slot.id()), AcqRel, Acquire)
                .is_ok()
            {
                self.arena.release(&slot, extent_of(link)).unwrap();
                place.store(0, Release);
            }
        }
        intent.clear();
    }
}

/// Run by the processes of this test; not a test by itself.
#[test]
fn visitor() {
    let Some(directory) = std::env::var_os(VISIT) else {
        return;
    };
    let tenant = Tenant::open(Path::new(&directory));
    let mut random = Random::new(std::process::id().into());
    let claims = std::env::var_os(TENANT).is_none();
    loop {
        if claims {
            tenant.step(random.next());
        }
        for _ in 0..4 {
            tenant.use_cache(random.next());
        }
    }
}

fn visit(directory: &Path) -> Process {
    Process::start("visitor", [(VISIT, directory)])
}

#[test]
fn killed_processes_lose_no_frame_and_leave_no_trace() {
    let directory = TestDir::on_disk("arena-storm");
    let tenant = Tenant::create(&directory);
    let mut visitors: Vec<Process> = (0..3).map(|_| visit(&directory)).collect();
    for round in 0..30_u64 {
        std::thread::sleep(Duration::from_millis(3 + round * 7 % 11));
        let mut victim = visitors.remove(0);
        assert!(victim.is_running(), "a visitor failed by itself");
        victim.kill();
        tenant.reap();
        assert_eq!(tenant.arena.check().unwrap(), []);
        visitors.push(visit(&directory));
    }
    drop(visitors);
    tenant.reap();
    assert_eq!(tenant.arena.check().unwrap(), []);
    // What dead processes did not count is counted now: after everything is given back, only the
    // frames being filled are lent.
    tenant.cache.sweep().unwrap();
    tenant.cache.clear().unwrap();
    assert!(tenant.arena.stats().lent <= 1);
    let mut linked: Vec<Extent> = tenant
        .links()
        .iter()
        .map(|link| link.load(Acquire))
        .filter(|link| *link != 0)
        .map(extent_of)
        .collect();
    linked.sort_by_key(|extent| extent.start);
    let there: Vec<_> = tenant.arena.extents().collect();
    assert!(
        there.iter().all(|info| info.state == ExtentState::Held),
        "{there:?}"
    );
    assert_eq!(
        there.iter().map(|info| info.extent).collect::<Vec<_>>(),
        linked
    );
    // Processes that died in the middle of a put have successors, and no frame is lost to them.
    let slot = tenant.arena.participants().slot().unwrap();
    for extent in linked {
        tenant.arena.release(&slot, extent).unwrap();
    }
    let single = || {
        tenant
            .arena
            .claim(&slot, 1, 1, NodeId(0), Class::Ordinary, 0)
            .ok()
    };
    let all: Vec<Extent> = std::iter::from_fn(single).collect();
    assert!(all.len() >= FRAMES - 2, "{:?}", tenant.arena.stats());
    for extent in all {
        tenant.arena.release(&slot, extent).unwrap();
    }
    let kept = (0..40).any(|_| {
        let stored = tenant.cache.put(&slot, NodeId(0), b"after", b"all");
        stored.unwrap() == Stored::Kept
    });
    assert!(kept, "{:?}", tenant.arena.stats());
}

/// Tenants are stopped at random, and every third time one of them is killed. Everything that they
/// have is claimed at once, except the frame being filled, and when they continue they store
/// nothing there.
#[test]
fn stopped_and_dead_tenants_delay_no_claim_and_store_nothing_late() {
    let directory = TestDir::new("arena-stops");
    let tenant = Tenant::create(&directory);
    let arena = &tenant.arena;
    let slot = arena.participants().slot().unwrap();
    let claim = |frames| arena.claim(&slot, frames, 1, NodeId(0), Class::Ordinary, 0);
    // Only frames that were claimed before are lent.
    let all = claim(arena.stats().frames).unwrap();
    arena.release(&slot, all).unwrap();
    let variables = [(VISIT, directory.as_os_str()), (TENANT, "1".as_ref())];
    let start = || Process::start("visitor", variables);
    let mut tenants: Vec<Process> = (0..3).map(|_| start()).collect();
    let signal = |tenants: &[Process], name| {
        for tenant in tenants {
            mneme_testkit::signal(tenant.id(), name);
        }
    };
    let words = |extent: &Extent| {
        let words = (extent.offset()..extent.end()).step_by(64);
        words.map(|at| arena.region().at::<AtomicU64>(at).unwrap())
    };
    let mut filling = 0;
    for round in 0..12_u64 {
        std::thread::sleep(Duration::from_millis(2 + round * 7 % 11));
        signal(&tenants, "-STOP");
        if round % 3 == 2 {
            assert!(tenants[0].is_running(), "a tenant failed by itself");
            // Nobody reaps it before the claims.
            tenants.remove(0).kill();
        }
        let held: Vec<Extent> = std::iter::from_fn(|| claim(1).ok()).collect();
        let stats = arena.stats();
        assert!(held.len() as u32 + 1 >= stats.frames, "{stats:?}");
        filling += stats.frames - held.len() as u32;
        for extent in &held {
            words(extent).for_each(|word| word.store(round, Release));
        }
        signal(&tenants, "-CONT");
        std::thread::sleep(Duration::from_millis(1 + round % 3));
        for extent in held {
            assert!(words(&extent).all(|word| word.load(Acquire) == round));
            arena.release(&slot, extent).unwrap();
        }
        if tenants.len() < 3 {
            tenants.push(start());
        }
    }
    assert!(filling > 0, "nobody was filling a frame");
    assert!(tenants.iter_mut().all(Process::is_running));
    drop(tenants);
    tenant.reap();
    assert_eq!(arena.check().unwrap(), []);
}
