//! A segment's control file overwritten, before anybody attaches and while somebody is attached:
//! entering, reading, recovering, cloning, growing, checking and cleaning answer in bounded time,
//! the data are not touched by it, and the segment can be removed.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_fuzz::registry;
use mneme_space::{Attachment, EnterError, Schema, SegVec, Segment};
use mneme_sys::{Access, FRAME};

struct Numbers;

impl Schema for Numbers {
    type Root<'s> = SegVec<'s, u64>;
}

/// One word of the control file. Where the parts begin is what `mneme-sync` calls its layout: a
/// wrong number here only damages something else.
#[derive(Debug, Arbitrary)]
enum Word {
    /// The segment's lock, as that thread of anybody's would hold it.
    Held {
        slot: u8,
        generation: u8,
        owner_died: bool,
    },
    Lock(u64),
    Header {
        at: u8,
        value: u64,
    },
    Process {
        index: u8,
        at: u8,
        state: u8,
        incarnation: u8,
    },
    Slot {
        index: u8,
        at: u8,
        value: u64,
    },
    Owner {
        slot: u8,
        process: u8,
        number: u8,
        incarnation: u8,
    },
    Inside {
        slot: u8,
        gates: u8,
    },
    Anywhere {
        at: u32,
        value: u64,
    },
}

const HEADER: u64 = 128;
const GATES: u64 = HEADER + 768;
const PROCESSES: u64 = GATES + 2048 + 1024;
const SLOTS: u64 = PROCESSES + 256 * 64;
const SLOT: u64 = 1408;

impl Word {
    fn write(&self, file: &File) {
        let slot = |index: u8| SLOTS + u64::from(index % 8) * SLOT;
        let (at, value) = match *self {
            Self::Held {
                slot,
                generation,
                owner_died,
            } => {
                let owner = u64::from(slot % 8) | u64::from(generation % 4) << 16;
                (GATES, owner | u64::from(owner_died) << 32)
            }
            Self::Lock(value) => (GATES, value),
            Self::Header { at, value } => (u64::from(at) * 8, value),
            Self::Process {
                index,
                at,
                state,
                incarnation,
            } => {
                let entry = PROCESSES + u64::from(index % 4) * 64;
                let word = u64::from(state % 4) | u64::from(incarnation % 8) << 8;
                (entry + u64::from(at % 3) * 8, word)
            }
            Self::Slot { index, at, value } => (slot(index) + u64::from(at % 176) * 8, value),
            Self::Owner {
                slot: index,
                process,
                number,
                incarnation,
            } => {
                let owner = u64::from(process % 4) | u64::from(number % 4) << 16;
                (slot(index) + 64, owner | u64::from(incarnation % 8) << 32)
            }
            Self::Inside { slot: index, gates } => (slot(index) + 8, u64::from(gates)),
            Self::Anywhere { at, value } => (u64::from(at) % (FRAME as u64 - 8), value),
        };
        file.write_all_at(&value.to_le_bytes(), at).unwrap();
    }
}

#[derive(Debug, Arbitrary)]
enum Step {
    Damage(Word),
    Attach { write: bool },
    Detach,
    Enter,
    Read,
    Recover { empty: bool },
    Clone,
    Grow,
    Check,
    Clean,
    Remove,
}

#[derive(Debug, Arbitrary)]
struct Case {
    /// The file's first bytes.
    bytes: Option<Vec<u8>>,
    len: Option<u32>,
    before: Vec<Word>,
    steps: Vec<Step>,
}

fn attach(segment: &Segment, write: bool) -> Option<Attachment> {
    let access = if write {
        Access::ReadWrite
    } else {
        Access::ReadOnly
    };
    let attachment = Attachment::new([(segment, access)]).ok()?;
    Some(attachment.timeout(Duration::from_millis(1)))
}

/// Adds a number, and takes none for lost.
fn add(at: &Attachment, numbers: &mut u64) {
    let added = at.enter(|here| {
        if here.segments().any(|(_, alone)| !alone) {
            return;
        }
        if *numbers == 0 {
            here.create_root::<Numbers>("s", SegVec::new_in).unwrap();
        }
        let root = here.root_mut::<Numbers>("s").unwrap();
        if *numbers == 0 {
            root.push(0);
            *numbers = 1;
        }
        assert_eq!(root.len() as u64, *numbers);
        root.push(*numbers);
        *numbers += 1;
    });
    refused_or_done(added);
}

/// Nobody dies or panics here: only the data's own header could say so.
fn refused_or_done<R>(result: Result<R, EnterError>) {
    assert!(!matches!(
        result,
        Err(EnterError::Nested | EnterError::Region(_))
    ));
}

fuzz_target!(|case: Case| {
    let registry = registry();
    let segment = registry.segment("s").create().unwrap();
    let control = registry.root().join("segments/s/control");
    let mut numbers = 0;
    add(&attach(&segment, true).unwrap(), &mut numbers);
    let open = || File::options().write(true).open(&control);
    let file = open().unwrap();
    if let Some(bytes) = &case.bytes {
        file.write_all_at(bytes, 0).unwrap();
    }
    case.before
        .iter()
        .take(8)
        .for_each(|word| word.write(&file));
    if let Some(len) = case.len {
        file.set_len(u64::from(len % (4 << 20))).unwrap();
    }
    drop(file);

    let mut attached = Vec::new();
    for step in case.steps.iter().take(16) {
        let began = Instant::now();
        match step {
            Step::Damage(word) => {
                // Not where it ends: attached processes would meet the hole.
                if let Ok(file) = open()
                    && file.metadata().unwrap().len() >= FRAME as u64
                {
                    word.write(&file);
                }
            }
            Step::Attach { write } => attached.extend(attach(&segment, *write)),
            Step::Detach => drop(attached.pop()),
            Step::Enter => attached.iter().for_each(|at| add(at, &mut numbers)),
            Step::Read => attached.iter().for_each(|at| {
                refused_or_done(at.read(|here| {
                    let read = here.root::<Numbers>("s").map(|root| root.len() as u64);
                    assert_eq!(read.unwrap_or(0), numbers);
                }));
            }),
            Step::Recover { empty } => attached.iter().for_each(|at| {
                if *empty && at.rebuild("s").is_ok() {
                    numbers = 0;
                }
                // SAFETY: nothing but the control file is damaged.
                refused_or_done(unsafe { at.accept("s") }.or_else(|e| match e {
                    EnterError::NotAttached { .. } => Ok(()),
                    other => Err(other),
                }));
            }),
            Step::Clone => {
                if let Ok(copy) = segment.clone_as("t") {
                    copy.remove().unwrap();
                }
            }
            Step::Grow => {
                let size = segment.info().unwrap().size;
                segment.grow((size + FRAME).min(8 * FRAME)).unwrap();
            }
            Step::Check => drop(registry.check().unwrap()),
            Step::Clean => drop(registry.clean().unwrap()),
            Step::Remove => {
                // While it is attached it stays.
                assert!(attached.is_empty() || registry.remove_segment("s").is_err());
            }
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{step:?}");
    }
    drop(attached);
    registry
        .remove_segment("s")
        .unwrap_or_else(|e| panic!("{e}"));
    registry.clean().unwrap();
    assert_eq!(registry.check().unwrap(), []);
});
