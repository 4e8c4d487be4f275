//! This crate's errors: one enum for each family of operations.

use crate::SlotId;
use mneme_sys::barrier::BarrierRefused;
use mneme_sys::{HeaderError, LivenessError, RegionError};
use std::time::Duration;

/// Why a control region could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The options contradict each other or the format.
    #[error("{0}")]
    Options(&'static str),
    /// The region is smaller than the options need and cannot grow so far.
    #[error(
        "the control region needs {needed} bytes and may have at most {max}; \
         make it larger, or ask for fewer threads or smaller undo areas"
    )]
    TooSmall {
        /// Bytes that the options need: `ControlOptions::region_len`.
        needed: usize,
        /// The maximum size of the region in bytes.
        max: usize,
    },
    /// Processes are attached to it, and rebuilding it would break them.
    #[error("the control region is in use by process {pid}")]
    InUse {
        /// The id of one such process.
        pid: u32,
    },
    /// Attaching to the fresh region failed.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why a control region could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is not a control region, has another format, or is damaged.
    #[error("not a usable control region")]
    Header(#[source] HeaderError),
    /// It belongs to other data.
    #[error(
        "the control region belongs to data region {control:02x?}, not to {data:02x?}; \
         a copied data region needs a control region of its own"
    )]
    OtherData {
        /// The data's identity in the control region.
        control: [u8; 16],
        /// The data's identity as the caller gave it.
        data: [u8; 16],
    },
    /// Its content contradicts itself. Create it again while nobody is attached.
    #[error("the control region is damaged: {0}")]
    Damaged(&'static str),
    /// The region is shorter than its geometry says.
    #[error("the control region is torn: its geometry needs {needed} bytes, it has {len}")]
    Torn {
        /// Bytes that the geometry needs.
        needed: usize,
        /// The region's length in bytes.
        len: usize,
    },
    /// It is from another boot, or has been rebuilt since the data were last brought in order; only
    /// a process that may write can do that.
    #[error(
        "the machine has restarted since the data were last brought in order; open them for writing first"
    )]
    Stale,
    /// Attaching to it failed.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why this process could not become a participant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Living processes hold all entries.
    #[error("{max} processes are attached, as many as the region was created for")]
    Full {
        /// The number of entries.
        max: u32,
    },
    /// Attached processes rely on an interrupting barrier that this process may not use.
    #[error(
        "this process may not call membarrier (an old kernel, or a sandbox), and the processes \
         attached to the region rely on it; attach while no other is attached, or allow the call"
    )]
    Barrier,
    /// Another participant is opening or rebuilding the region, or moving counters, and does not
    /// finish.
    #[error("the control region's own lock was not free within {0:?}; is its holder stopped?")]
    Locked(Duration),
    /// The liveness lock failed.
    #[error("the kernel's liveness lock failed")]
    Liveness(#[from] LivenessError),
    /// The memory could not be reached.
    #[error("the control region cannot be mapped or grown")]
    Region(#[from] RegionError),
    /// The kernel has no randomness for the region's identity.
    #[error("no randomness for the identity of the control region")]
    Random(#[source] std::io::Error),
}

/// Why it cannot be determined whether a lease is free.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// There is no lease of that number.
    #[error("there is no lease {0}: a control region has {max}", max = crate::LEASES)]
    NoSuchLease(usize),
    /// This process was forked from the one that attached; it must attach for itself.
    #[error("this process was forked from the one that attached; it must attach for itself")]
    Forked,
    /// The liveness lock failed.
    #[error("the kernel's liveness lock failed")]
    Liveness(#[from] LivenessError),
}

/// Why the calling thread has no slot, or cannot use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// All slots are taken, by living threads or by dead ones that nobody has reaped.
    #[error("all {max} thread slots are taken; reap, or create the region for more threads")]
    TooManyThreads {
        /// The number of slots.
        max: u16,
    },
    /// This process was forked from the one that attached; it must attach for itself.
    #[error("this process was forked from the one that attached; it must attach for itself")]
    Forked,
    /// The thread is running its last destructors.
    #[error("the thread is ending and can have no slot any more")]
    ThreadEnding,
    /// The thread has a slot, but cannot pass the barrier to the other threads and processes.
    #[error(transparent)]
    Barrier(#[from] BarrierRefused),
}

/// Why a thread could not enter a [`FencedGate`](crate::FencedGate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// A writer is inside and does not leave.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// A writer died inside. Enter exclusively ([`FencedGate::sole`](crate::FencedGate::sole)),
    /// which reports the death, and repair what the gate guards.
    #[error("what the gate guards may be half changed: enter exclusively and repair it")]
    OwnerDied,
    /// The slot belongs to another control region than the gate.
    #[error("the slot belongs to another control region")]
    Foreign,
    /// This process was forked from the one that attached.
    #[error("this process was forked from the one that attached; it must attach for itself")]
    Forked,
}

/// A revocable pin was revoked. What was read under it may be torn and must be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pin was revoked: what was read under it is not valid, read again")]
pub struct Revoked;

/// Another thread did not release something within a time limit.
///
/// Nothing is lost or half done: the operation may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("waited {since:?} for process {pid} (thread slot {slot}): {what}")]
pub struct Stalled {
    /// The process waited for; 0 if it is no longer known.
    pub pid: u32,
    /// The slot of the thread waited for.
    pub slot: SlotId,
    /// How long this wait has watched that thread.
    pub since: Duration,
    /// What the thread holds.
    pub what: Holding,
}

impl Stalled {
    /// An error without a thread to wait for.
    pub(crate) fn nobody(what: Holding) -> Stalled {
        Stalled {
            pid: 0,
            slot: SlotId::NONE,
            since: Duration::ZERO,
            what,
        }
    }
}

/// What a thread holds for which another one waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// A pin that protects what is to be freed.
    Pin,
    /// A dead process's pin: reap, and try again.
    DeadPin,
    /// A lock.
    Lock,
    /// A lock that the calling thread holds itself: waiting would never end.
    OwnLock,
    /// A gate that a writer holds, and which others want to enter.
    Gate,
    /// A place inside a gate that a writer wants to hold.
    Inside,
    /// A place inside the gate, held by the calling thread itself.
    OwnInside,
    /// A pin that protects what is to be freed, held by the calling thread itself.
    OwnPin,
    /// Nothing: this process was forked from the one that attached, and cannot wait for anybody.
    Forked,
    /// Nothing: the caller's slot belongs to another control region.
    Foreign,
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Holding::Pin => "it keeps a pin and does not leave; is it stopped?",
            Holding::DeadPin => "it is dead and keeps a pin until it is reaped",
            Holding::Lock => "it holds the lock and does not let go; is it stopped?",
            Holding::OwnLock => "this thread holds the lock itself",
            Holding::Gate => "it excludes all others and does not finish; is it stopped?",
            Holding::Inside => "it is inside and does not leave; is it stopped?",
            Holding::OwnInside => "this thread is inside itself",
            Holding::OwnPin => "this thread keeps the pin itself",
            Holding::Foreign => "the caller's slot is one of another control region",
            Holding::Forked => "this process was forked from the one that attached",
        })
    }
}

/// Why dead threads could not be reaped. Nothing is lost: the next reap continues where this one
/// ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReapError<E> {
    /// The caller's repair failed.
    #[error("the repair of thread slot {slot} failed")]
    Repair {
        /// The dead thread's slot.
        slot: SlotId,
        /// The repair's own error.
        #[source]
        source: E,
    },
    /// The liveness lock failed.
    #[error("the kernel's liveness lock failed")]
    Liveness(#[from] LivenessError),
    /// Another participant holds the region's own lock and does not finish.
    #[error("the control region's own lock was not free within {0:?}; is its holder stopped?")]
    Locked(Duration),
}
