//! Real processes share an arena and are killed by SIGKILL, one after the other, wherever they
//! happen to be.
//!
//! Each keeps to the protocol that a tenant has to keep: link an extent, then adopt it; mark its
//! link, release it, unlink it; with an intent of its own around both. However many died, every
//! extent is linked and every link has its extent.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{
    Arena, ArenaOptions, ClaimError, Class, Extent, ExtentState, Frame, RepairError,
};
use mneme_sync::{ControlOptions, DeadSlot, Lane, Participants, SlotId};
use mneme_sys::{
    Access, Liveness, NodeId, OfdLiveness, PagePolicy, Region, Reserve, SyntheticTopology,
};
use mneme_testkit::{Process, Random, TestDir};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;
use support::{FRAME, UUID};

const FRAMES: usize = 129;
const LINKS: usize = 24;
const VISIT: &str = "MNEME_ARENA_STORM";

/// Kinds of the tenant's intents, in the lane of the log; words: index, link.
const LINK: u16 = 1;
const UNLINK: u16 = 2;

/// A link names its extent by place, length and generation, so that no two are ever equal.
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

/// The link while that slot takes it away.
fn marked(link: u64, slot: SlotId) -> u64 {
    link | u64::from(slot.0) << 40
}

fn is_marked(link: u64) -> bool {
    link >> 40 & 0xff != 0
}

struct Tenant {
    arena: Arena,
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
        let options = ArenaOptions {
            uuid: UUID,
            client_bytes: LINKS * 8,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 1)),
            reserve_frames: 0,
            lending: None,
        };
        let data = Arc::new(Self::region(&directory.join("data")));
        Tenant {
            arena: Arena::create(data, participants, options).unwrap(),
        }
    }

    fn open(directory: &Path) -> Tenant {
        let control = Self::region(&directory.join("control"));
        let participants = Participants::open(control, UUID, Self::liveness(directory)).unwrap();
        let data = Arc::new(Self::region(&directory.join("data")));
        Tenant {
            arena: Arena::open(data, participants, Arc::new(SyntheticTopology::new(1, 1))).unwrap(),
        }
    }

    fn links(&self) -> &[AtomicU64] {
        self.arena
            .region()
            .slice_at(self.arena.client().start, LINKS)
            .unwrap()
    }

    /// The linked extent is of this generation still, and adopted.
    fn is_held(&self, link: u64) -> bool {
        let info = self.arena.extent_of(extent_of(link).start);
        info.is_some_and(|info| {
            info.state == ExtentState::Held
                && info.extent == extent_of(link)
                && info.generation == link as u32
        })
    }

    fn reap(&self) {
        self.arena
            .participants()
            .reap(|dead| self.repair(dead))
            .unwrap();
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
        let slot = self.arena.participants().slot().unwrap();
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
            // Of two that unlink the same, one does.
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

/// Not a test of its own: what the processes of the storm run.
#[test]
fn visitor() {
    let Some(directory) = std::env::var_os(VISIT) else {
        return;
    };
    let tenant = Tenant::open(Path::new(&directory));
    let mut random = Random::new(std::process::id().into());
    loop {
        tenant.step(random.next());
    }
}

fn visit(directory: &Path) -> Process {
    Process::start("visitor", [(VISIT, directory)])
}

#[test]
fn killed_processes_lose_nothing_and_leave_nothing() {
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
}
