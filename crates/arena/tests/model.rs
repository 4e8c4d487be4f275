//! An arena behaves like the simplest allocator: an array with the owner of each frame.
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{ClaimError, Class, Extent, ExtentState, Frame, InvalidClaim};
use mneme_sys::NodeId;
use proptest::prelude::*;
use proptest::sample::Index;
use support::{Process, Shape, World, world};

#[derive(Clone, Debug)]
enum Op {
    Claim {
        by: Index,
        frames: u32,
        align: u32,
        node: u16,
        class: Class,
        adopt: bool,
    },
    Adopt {
        by: Index,
        which: Index,
    },
    Release {
        by: Index,
        which: Index,
    },
    ReleaseWrong {
        by: Index,
        start: u32,
        frames: u32,
    },
    Grow {
        by: Index,
        frames: u32,
    },
    Reserve {
        by: Index,
        frames: u32,
    },
    Open,
    Close {
        which: Index,
    },
    Kill {
        which: Index,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop_oneof![Just(Class::Ordinary), Just(Class::Reserved)];
    let index = any::<Index>;
    prop_oneof![
        10 => (index(), prop_oneof![4 => 1u32..8, 2 => 1u32..80, 1 => 0u32..400], 0u32..5, 0u16..4, class, any::<bool>())
            .prop_map(|(by, frames, align, node, class, adopt)| Op::Claim { by, frames, align: 1 << align, node, class, adopt }),
        3 => (index(), index()).prop_map(|(by, which)| Op::Adopt { by, which }),
        8 => (index(), index()).prop_map(|(by, which)| Op::Release { by, which }),
        1 => (index(), 0u32..350, 0u32..10).prop_map(|(by, start, frames)| Op::ReleaseWrong { by, start, frames }),
        1 => (index(), 0u32..320).prop_map(|(by, frames)| Op::Grow { by, frames }),
        1 => (index(), 0u32..40).prop_map(|(by, frames)| Op::Reserve { by, frames }),
        1 => Just(Op::Open),
        1 => index().prop_map(|which| Op::Close { which }),
        1 => index().prop_map(|which| Op::Kill { which }),
    ]
}

const FIRST: u32 = 1;
const MAX: u32 = 301;

/// The simplest allocator.
struct Model {
    /// Whether each frame is taken; as long as the arena.
    taken: Vec<bool>,
    /// Frames at which a zone begins: no run crosses them.
    borders: Vec<u32>,
    /// Whether `borders` is complete. The arena chooses where the zones of a growth begin.
    all_borders: bool,
    nodes: u16,
    reserve: u32,
    /// Extents with the process that claimed them, 0 once adopted.
    extents: Vec<(Extent, u32)>,
}

impl Model {
    fn free(&self) -> u32 {
        self.taken.iter().filter(|taken| !**taken).count() as u32
    }

    fn fits(&self, start: u32, frames: u32, align: u32) -> bool {
        let end = start + frames;
        start >= FIRST
            && start.is_multiple_of(align)
            && end as usize <= self.taken.len()
            && !self
                .borders
                .iter()
                .any(|border| (start + 1..end).contains(border))
            && self.taken[start as usize..end as usize]
                .iter()
                .all(|taken| !taken)
    }

    fn set(&mut self, extent: Extent, taken: bool) {
        self.taken[extent.start.0 as usize..(extent.start.0 + extent.frames) as usize].fill(taken);
    }

    fn longest(&self, align: u32) -> u32 {
        (1..=MAX)
            .take_while(|frames| {
                (0..self.taken.len() as u32).any(|start| self.fits(start, *frames, align))
            })
            .count() as u32
    }
}

fn agree(model: &Model, process: &Process) -> Result<(), TestCaseError> {
    let arena = &process.arena;
    prop_assert_eq!(arena.check().unwrap(), []);
    let mut wanted: Vec<(Extent, bool)> = model
        .extents
        .iter()
        .map(|(extent, by)| (*extent, *by == 0))
        .collect();
    wanted.sort_by_key(|(extent, _)| extent.start);
    let found: Vec<(Extent, bool)> = arena
        .extents()
        .map(|info| (info.extent, info.state == ExtentState::Held))
        .collect();
    prop_assert_eq!(found, wanted);
    for frame in 0..MAX + 5 {
        let wanted = model
            .extents
            .iter()
            .map(|(extent, _)| *extent)
            .find(|extent| extent.contains(Frame(frame)));
        prop_assert_eq!(
            arena.extent_of(Frame(frame)).map(|info| info.extent),
            wanted
        );
    }
    let stats = arena.stats();
    prop_assert_eq!(stats.free, model.free());
    prop_assert_eq!(stats.frames as usize, model.taken.len() - FIRST as usize);
    prop_assert_eq!(
        stats.nodes.iter().map(|node| node.free).sum::<u32>(),
        stats.free
    );
    if model.all_borders {
        prop_assert_eq!(stats.longest_run, model.longest(1));
    }
    Ok(())
}

fn claim(
    process: &Process,
    model: &mut Model,
    frames: u32,
    align: u32,
    node: NodeId,
    class: Class,
    adopt: bool,
) -> Result<(), TestCaseError> {
    let reserve = if class == Class::Ordinary {
        model.reserve
    } else {
        0
    };
    match process.claim_as(frames, align, node, class, (frames % 4096) as u16) {
        Ok(extent) => {
            prop_assert_eq!(extent.frames, frames);
            prop_assert!(
                model.fits(extent.start.0, frames, align),
                "{} does not fit",
                extent
            );
            prop_assert!(frames + reserve <= model.free());
            if model.nodes == 1 {
                let lowest = (0..extent.start.0).find(|start| model.fits(*start, frames, align));
                prop_assert_eq!(lowest, None, "there was a lower place");
            }
            let mut by = process.number;
            if adopt {
                process.arena.adopt(extent).unwrap();
                by = 0;
            }
            model.set(extent, true);
            model.extents.push((extent, by));
        }
        Err(ClaimError::Invalid(InvalidClaim::NoFrames)) => prop_assert_eq!(frames, 0),
        Err(ClaimError::Invalid(InvalidClaim::TooMany { .. })) => {
            prop_assert!(frames > MAX - FIRST)
        }
        Err(ClaimError::OutOfMemory { free, .. }) => {
            prop_assert_eq!(free, model.free());
            prop_assert!(frames + reserve > free);
        }
        Err(ClaimError::NoContiguousRun { longest, .. }) => {
            prop_assert!(longest < frames);
            if model.all_borders {
                prop_assert_eq!(longest, model.longest(align));
            }
        }
        Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
    }
    Ok(())
}

fn apply(
    world: &World,
    processes: &mut Vec<Process>,
    model: &mut Model,
    op: Op,
) -> Result<(), TestCaseError> {
    match op {
        Op::Claim {
            by,
            frames,
            align,
            node,
            class,
            adopt,
        } => {
            let process = by.get(processes);
            claim(process, model, frames, align, NodeId(node), class, adopt)?;
        }
        Op::Adopt { by, which } if !model.extents.is_empty() => {
            let chosen = which.index(model.extents.len());
            let (extent, claimer) = model.extents[chosen];
            prop_assert_eq!(by.get(processes).arena.adopt(extent).is_ok(), claimer != 0);
            model.extents[chosen].1 = 0;
        }
        Op::Release { by, which } if !model.extents.is_empty() => {
            let (extent, _) = model.extents.swap_remove(which.index(model.extents.len()));
            by.get(processes).release(extent).unwrap();
            model.set(extent, false);
            prop_assert!(by.get(processes).release(extent).is_err());
        }
        Op::ReleaseWrong { by, start, frames } => {
            let extent = Extent {
                start: Frame(start),
                frames,
            };
            if !model.extents.iter().any(|(known, _)| *known == extent) {
                prop_assert!(by.get(processes).release(extent).is_err());
            }
        }
        Op::Grow { by, frames } => {
            let process = by.get(processes);
            let grown = process.grow(frames as usize);
            prop_assert_eq!(grown.is_ok(), frames <= MAX);
            let end = process.arena.stats().frames + FIRST;
            prop_assert_eq!(
                end as usize,
                model
                    .taken
                    .len()
                    .max(if grown.is_ok() { frames as usize } else { 0 })
            );
            model.all_borders &= model.nodes == 1 || end as usize == model.taken.len();
            model.taken.resize(end as usize, false);
        }
        Op::Reserve { by, frames } => {
            by.get(processes).arena.set_reserve(frames).unwrap();
            model.reserve = frames;
        }
        Op::Open if processes.len() < 4 => processes.push(world.open()),
        Op::Close { which } if processes.len() > 1 => {
            let closed = processes.swap_remove(which.index(processes.len()));
            // An orderly process adopts or releases everything that it claimed before it exits.
            for (extent, by) in model
                .extents
                .iter_mut()
                .filter(|(_, by)| *by == closed.number)
            {
                closed.arena.adopt(*extent).unwrap();
                *by = 0;
            }
        }
        Op::Kill { which } if processes.len() > 1 => {
            let dead = processes.swap_remove(which.index(processes.len()));
            world.kill(dead.number);
            prop_assert_eq!(processes[0].reap(), 1);
            for (extent, _) in model.extents.extract_if(.., |(_, by)| *by == dead.number) {
                model.taken[extent.start.0 as usize..][..extent.frames as usize].fill(false);
            }
        }
        _ => {}
    }
    Ok(())
}

fn run(ops: Vec<Op>, nodes: u16) -> Result<(), TestCaseError> {
    let frames = 151;
    let (world, first) = world(Shape {
        frames,
        max_frames: MAX as usize,
        nodes,
        reserve: 3,
        client_bytes: 100,
        records: 0,
    });
    let share = (frames as u32 - FIRST) / u32::from(nodes);
    let mut model = Model {
        taken: vec![false; frames],
        borders: (1..u32::from(nodes))
            .map(|node| FIRST + node * share)
            .collect(),
        all_borders: true,
        nodes,
        reserve: 3,
        extents: Vec::new(),
    };
    model.taken[..FIRST as usize].fill(true);
    let mut processes = vec![first];
    for op in ops {
        let operation = format!("{op:?}");
        apply(&world, &mut processes, &mut model, op)
            .and_then(|()| agree(&model, &processes[0]))
            .map_err(|error| TestCaseError::fail(format!("after {operation}: {error}")))?;
    }
    agree(&model, &world.open())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_arena_on_one_node_behaves_like_the_model(ops in prop::collection::vec(op(), 1..120)) {
        run(ops, 1)?;
    }

    #[test]
    fn an_arena_on_three_nodes_behaves_like_the_model(ops in prop::collection::vec(op(), 1..120)) {
        run(ops, 3)?;
    }
}
