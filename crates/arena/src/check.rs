//! Walks all of the arena's tables and reports contradictions in words.

use crate::arena::Arena;
use crate::descriptor::State;
use crate::frame::{Extent, Frame};
use crate::zone::MAX_ZONES;
use crate::{RepairError, descriptor::FrameRun};
use mneme_sync::SlotId;
use std::sync::atomic::Ordering::Relaxed;

/// The maximum number of problems that a check reports: enough to show the kind of damage.
const MOST: usize = 100;

/// A contradiction found by [`Arena::check`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// A descriptor has a state that this version does not know.
    #[error("{frame} has a state that does not exist")]
    UnknownState {
        /// The frame.
        frame: Frame,
    },
    /// A descriptor has a state that is impossible at its place.
    #[error("{frame} is {is}, which is impossible {place}")]
    Impossible {
        /// The frame.
        frame: Frame,
        /// The state, in words.
        is: &'static str,
        /// The place, in words.
        place: &'static str,
    },
    /// A frame claims to be part of a run, but no run contains it.
    #[error("{frame} is a further frame of an extent that does not exist")]
    Orphan {
        /// The frame.
        frame: Frame,
    },
    /// A frame within an extent does not belong to it.
    #[error("the {extent} does not hold its own {frame}")]
    Broken {
        /// The extent according to its first frame.
        extent: Extent,
        /// The frame that contradicts it.
        frame: Frame,
    },
    /// An extent crosses the border of a zone or lies beyond the end.
    #[error("the {extent} is not within one zone")]
    AcrossZones {
        /// The extent.
        extent: Extent,
    },
    /// An extent is claimed by a slot that cannot exist.
    #[error("the {extent} is claimed by thread slot {owner}, which does not exist")]
    NoOwner {
        /// The extent.
        extent: Extent,
        /// The slot.
        owner: SlotId,
    },
    /// The zones leave something out, overlap, or name a node that the arena does not have.
    #[error("the zones are wrong at frame {frame}: {what}")]
    Zones {
        /// The frame's number.
        frame: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The bitmap and a descriptor disagree.
    #[error("{frame} is {} in the search bitmap, but its descriptor says otherwise", if *.bitmap { "free" } else { "taken" })]
    Bitmap {
        /// The frame.
        frame: Frame,
        /// Whether the bitmap says that it is free.
        bitmap: bool,
    },
    /// A node of the search tree disagrees with the bitmap.
    #[error("the search tree is wrong above frames {first} to {last}")]
    Tree {
        /// The first frame below the node.
        first: u32,
        /// The last frame below the node.
        last: u32,
    },
}

fn words(state: State) -> &'static str {
    match state {
        State::Absent => "absent",
        State::Free => "free",
        State::Claimed => "the first of a claimed extent",
        State::Held => "the first of a held extent",
        State::Tail => "a further frame of an extent",
        State::Own => "the arena's own",
        State::Filling => "being filled by the second class",
        State::Rented => "rented by the second class",
    }
}

impl Arena {
    /// Checks all descriptors, zones, the bitmap and the tree. Returns an empty list if all is
    /// well, otherwise the first hundred problems. Holds the arena's lock, so claims wait meanwhile
    /// (about 10 ns a frame).
    ///
    /// # Errors
    /// The lock or a slot is not available.
    pub fn check(&self) -> Result<Vec<Problem>, RepairError> {
        let slot = self.participants.slot()?;
        let guard = self.lock::<RepairError>(&slot)?;
        let mut problems = Vec::new();
        self.mask_filling()?;
        self.check_frames(&mut problems)?;
        self.check_zones(&mut problems)?;
        self.check_derived(&mut problems)?;
        drop(guard);
        problems.truncate(MOST);
        Ok(problems)
    }

    fn check_frames(&self, problems: &mut Vec<Problem>) -> Result<(), RepairError> {
        let table = self.table()?;
        let (first, end) = (self.geometry.first_frame, self.end_frame());
        // Frames covered by an extent before them that has been checked.
        let mut vouched = first;
        for (number, descriptor) in (0..).zip(table.0) {
            if problems.len() >= MOST {
                break;
            }
            let frame = Frame(number);
            let Some(status) = descriptor.status() else {
                problems.push(Problem::UnknownState { frame });
                continue;
            };
            let place = match number {
                _ if number < first => {
                    (status.state != State::Own).then_some("before the first frame")
                }
                _ if number >= end => {
                    (status.state != State::Absent).then_some("behind the last frame")
                }
                _ if status.state.is_lent() => match self.geometry.lending {
                    None => Some("in an arena that lends nothing"),
                    Some(_) => (status.generation == 0).then_some("where nobody was before"),
                },
                _ => {
                    matches!(status.state, State::Own | State::Absent).then_some("among the frames")
                }
            };
            if let Some(place) = place {
                problems.push(Problem::Impossible {
                    frame,
                    is: words(status.state),
                    place,
                });
                continue;
            }
            if matches!(status.state, State::Claimed | State::Held) {
                match table.run_of(number) {
                    Some(run) => {
                        self.check_run(run, problems)?;
                        vouched = number + run.frames;
                    }
                    None => problems.push(Problem::Orphan { frame }),
                }
            } else if status.state == State::Tail && number >= vouched {
                problems.push(Problem::Orphan { frame });
            }
        }
        Ok(())
    }

    fn check_run(&self, run: FrameRun, problems: &mut Vec<Problem>) -> Result<(), RepairError> {
        let table = self.table()?;
        let extent = Extent {
            start: Frame(run.head),
            frames: run.frames,
        };
        if !self
            .zones()?
            .any(|zone| zone.start <= run.head && run.range().end <= zone.end)
        {
            problems.push(Problem::AcrossZones { extent });
        }
        for frame in run.range() {
            if table.run_of(frame) != Some(run) {
                problems.push(Problem::Broken {
                    extent,
                    frame: Frame(frame),
                });
            }
        }
        let owner = SlotId(run.status.owner);
        if run.status.state == State::Claimed
            && (owner.0 == 0 || owner.0 > self.participants.max_threads())
        {
            problems.push(Problem::NoOwner { extent, owner });
        }
        Ok(())
    }

    fn check_zones(&self, problems: &mut Vec<Problem>) -> Result<(), RepairError> {
        let mut at = self.geometry.first_frame;
        if self.header()?.zone_count.load(Relaxed) as usize > MAX_ZONES {
            problems.push(Problem::Zones {
                frame: at,
                what: "there are more than the table can hold",
            });
        }
        for zone in self.raw_zones()? {
            let mut wrong = |what| problems.push(Problem::Zones { frame: at, what });
            if zone.start != at {
                wrong("one does not begin where the last one ends");
            }
            if zone.end <= zone.start {
                wrong("one is empty");
            }
            if zone.node >= self.nodes() {
                wrong("one is on a node that the arena does not have");
            }
            at = zone.end;
        }
        if at != self.end_frame() {
            problems.push(Problem::Zones {
                frame: at,
                what: "the last one does not end with the arena",
            });
        }
        Ok(())
    }

    fn check_derived(&self, problems: &mut Vec<Problem>) -> Result<(), RepairError> {
        let (table, summary) = (self.table()?, self.summary()?);
        let masked: Vec<u64> = self.lending()?.map_or(Vec::new(), |lending| {
            let nodes = lending.nodes().iter();
            nodes.map(|node| node.masked.load(Relaxed)).collect()
        });
        for (number, descriptor) in (0..).zip(table.0) {
            if problems.len() >= MOST {
                break;
            }
            let bitmap = summary.is_free(number);
            let status = descriptor.status();
            // Tenants take and seal frames during the check.
            if status.is_some_and(|status| status.state == State::Filling)
                || masked.contains(&u64::from(number))
            {
                continue;
            }
            let free = status.is_some_and(|status| status.state.is_claimable());
            if bitmap != (free && number < self.end_frame()) {
                problems.push(Problem::Bitmap {
                    frame: Frame(number),
                    bitmap,
                });
            }
        }
        if let Some(frames) = summary.first_wrong_node() {
            problems.push(Problem::Tree {
                first: frames.start,
                last: frames.end - 1,
            });
        }
        Ok(())
    }
}
