//! Held versions: **the data of a version in this table are not freed until the version is released
//! or its process is dead**, whichever process registered it.
//!
//! A thread that wants to keep a version beyond its pin registers it *under the pin* ([`hold`]). A
//! reclaimer that has replaced something publishes, calls `epoch::advance`, waits until that epoch
//! is over, and only then reads the table. If it misses a registration, that was made under a later
//! pin, whose thread saw what was published. So nobody waits for anybody, and a thread that stops
//! in between delays others only as far as its pin does.
//!
//! The owner of a slot is a process and its incarnation, not a thread, because a snapshot may move
//! between threads. Any process that reads the table clears what dead processes left
//! ([`HeldVersions::reap`]).

use crate::atomics::Word;
use crate::opening::Inner;
use crate::participants::Participants;
use crate::process::OpeningName;
use mneme_sys::{Clock as _, InRegion, RegionError, SystemClock};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Versions that may be held at a time, all processes together.
pub const MAX_HELD: usize = 4096;

/// The number of words of a thread's name that are kept.
const NAME_WORDS: usize = 12;

/// One registration. All zero means that it is free.
#[repr(C, align(128))]
struct HoldLines {
    /// The process that registered it, see [`OpeningName`]; 0 for none.
    owner: AtomicU64,
    /// The held version; 0 if none is held yet or any more.
    version: AtomicU64,
    /// When it was registered, in nanoseconds of the machine's clock.
    since_ns: AtomicU64,
    /// The length of the name in bytes.
    name_len: AtomicU64,
    /// The name of the thread that registered it.
    name: [AtomicU64; NAME_WORDS],
}

#[repr(C, align(128))]
struct Table {
    /// The number of registrations that have ended.
    released: AtomicU64,
    /// The number of slots that have ever been taken, counted from the first.
    highest: AtomicU64,
    _rest: [AtomicU64; 14],
    slots: [HoldLines; MAX_HELD],
}

const _: () = assert!(size_of::<Table>() == (MAX_HELD + 1) * 128);

// SAFETY: `repr(C)`, atomics only, no padding (the assertion above counts), no drop.
unsafe impl InRegion for Table {}

/// First step of a registration: takes the slot for `me`, if it is free.
pub(crate) fn claim<W: Word>(owner: &W, me: u64) -> bool {
    // SYNC: pairs with the Release store in `let_go`.
    owner.compare_exchange(0, me, AcqRel, Relaxed).is_ok()
}

/// Last step of a registration, under the pin that protects the version.
pub(crate) fn hold<W: Word>(version: &W, held: u64) {
    // SYNC: pairs with the Acquire load in `held`: the slot's other words were written before.
    version.store(held, Release);
}

/// The version that a slot holds; 0 for none. A reclaimer calls this after the epoch of what it
/// replaced is over.
pub(crate) fn held<W: Word>(version: &W) -> u64 {
    // SYNC: pairs with the Release stores in `hold` and `let_go`: the reads of a holder that let go
    // are over.
    version.load(Acquire)
}

/// Ends a registration of the caller and counts it. A caller that is killed in between either still
/// has the slot or has been counted.
pub(crate) fn let_go<W: Word>(owner: &W, version: &W, released: &W) {
    // SYNC: pairs with the Acquire load in `held`.
    version.store(0, Release);
    // SYNC: pairs with the Acquire load in `releases`.
    released.fetch_add(1, AcqRel);
    // SYNC: pairs with the exchange in `claim`.
    owner.store(0, Release);
}

/// The table of held versions in a control region, behind the part that belongs to this crate.
pub struct HeldVersions {
    table: NonNull<Table>,
    participants: Participants,
}

// SAFETY: the pointer leads into the control region, which the participants keep, and to atomics
// only.
unsafe impl Send for HeldVersions {}
// SAFETY: as above.
unsafe impl Sync for HeldVersions {}

/// A held version and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVersion {
    /// The held version.
    pub version: u64,
    /// The id of the holding process in its own namespace.
    pub pid: u32,
    /// The name of the thread that registered it, or its number if it has no name.
    pub thread: String,
    /// When it was registered, in nanoseconds of the machine's clock.
    pub since_ns: u64,
}

impl HeldVersions {
    /// The size of the table in bytes.
    pub const BYTES: usize = size_of::<Table>();

    /// The table at offset `at` of the control region, a multiple of 128. Zeroed memory is an empty
    /// table.
    ///
    /// # Errors
    /// The region is too small for it.
    pub fn at(participants: &Participants, at: u64) -> Result<HeldVersions, RegionError> {
        let table = participants.region().at::<Table>(at)?;
        Ok(HeldVersions {
            table: NonNull::from(table),
            participants: participants.clone(),
        })
    }

    fn table(&self) -> &Table {
        // SAFETY: checked in `at`; regions never shrink, and this one is kept.
        unsafe { self.table.as_ref() }
    }

    fn inner(&self) -> &Inner {
        self.participants.inner()
    }

    /// Holds a version, which must not be 0, for the calling thread. Returns the number with which
    /// to release it; `None` if [`MAX_HELD`] versions are held, or in a forked child.
    ///
    /// **Call it under the pin under which the version was found**; see the module's documentation.
    #[must_use]
    pub fn hold(&self, version: u64) -> Option<u32> {
        if self.inner().is_forked() {
            return None;
        }
        self.take_slot(version).or_else(|| {
            self.reap();
            self.take_slot(version)
        })
    }

    fn take_slot(&self, version: u64) -> Option<u32> {
        let me = self.inner().me().name();
        let table = self.table();
        for (slot, number) in table.slots.iter().zip(0_u32..) {
            if slot.owner.load(Relaxed) != 0 {
                continue;
            }
            // SYNC: pairs with the Acquire load in `slots`: readers of the table include this slot
            // before it holds anything.
            table.highest.fetch_max(u64::from(number) + 1, AcqRel);
            if !claim(&slot.owner, me.word()) {
                continue;
            }
            mneme_sys::fault!("sync.hold.claimed");
            slot.since_ns.store(SystemClock.now_ns(), Relaxed);
            store_name(slot);
            hold(&slot.version, version);
            mneme_sys::fault!("sync.hold.held");
            return Some(number);
        }
        None
    }

    /// Releases the version for which [`hold`](Self::hold) returned this number. Does nothing in a
    /// forked child.
    pub fn release(&self, number: u32) {
        let Some(slot) = self.table().slots.get(number as usize) else {
            return;
        };
        if !self.inner().is_forked() {
            let_go(&slot.owner, &slot.version, &self.table().released);
            mneme_sys::fault!("sync.hold.let_go");
        }
    }

    /// A number that changes whenever a version has been released; 0 in a forked child.
    #[must_use]
    pub fn releases(&self) -> u64 {
        match self.inner().is_forked() {
            true => 0,
            // SYNC: pairs with the addition in `let_go`.
            false => self.table().released.load(Acquire),
        }
    }

    /// The slots that have ever been taken; none in a forked child, which may not have the region
    /// mapped.
    fn slots(&self) -> &[HoldLines] {
        if self.inner().is_forked() {
            return &[];
        }
        let table = self.table();
        // SYNC: pairs with the maximum in `take_slot`.
        let highest = table.highest.load(Acquire) as usize;
        &table.slots[..highest.min(MAX_HELD)]
    }

    /// The held versions, ascending. A reclaimer calls this when the epoch of what it replaced is
    /// over.
    #[must_use]
    pub fn versions(&self) -> Vec<u64> {
        let held = self.slots().iter().map(|slot| held(&slot.version));
        let mut versions: Vec<u64> = held.filter(|version| *version != 0).collect();
        versions.sort_unstable();
        versions
    }

    /// The held versions with their holders, in order of the versions. If a slot changes meanwhile,
    /// it may be listed with another thread's name.
    #[must_use]
    pub fn list(&self) -> Vec<HeldVersion> {
        let mut list: Vec<HeldVersion> = self
            .slots()
            .iter()
            .filter_map(|slot| self.look(slot))
            .collect();
        list.sort_by_key(|held| (held.version, held.since_ns));
        list
    }

    fn look(&self, slot: &HoldLines) -> Option<HeldVersion> {
        let version = held(&slot.version);
        let owner = OpeningName::of_word(slot.owner.load(Relaxed));
        (version != 0).then(|| HeldVersion {
            version,
            pid: self.inner().entry_pid(owner.process),
            thread: load_name(slot),
            since_ns: slot.since_ns.load(Relaxed),
        })
    }

    /// Releases what dead processes hold, and returns how many versions. Costs a system call for
    /// each process that holds any.
    pub fn reap(&self) -> usize {
        let inner = self.inner();
        if inner.is_forked() {
            return 0;
        }
        let me = inner.me().name();
        let (mut known, mut count) = (Vec::<(u64, bool)>::new(), 0);
        for slot in self.slots() {
            let word = slot.owner.load(Acquire);
            if word == 0 || word == me.word() {
                continue;
            }
            let is_dead = match known.iter().find(|(of, _)| *of == word) {
                Some((_, is_dead)) => *is_dead,
                None => {
                    let is_dead = !inner.is_open(OpeningName::of_word(word));
                    known.push((word, is_dead));
                    is_dead
                }
            };
            // One reaper wins the slot; if it dies, the slot belongs to a dead process again.
            // SYNC: pairs with the Release stores of the dead owner.
            if is_dead
                && slot
                    .owner
                    .compare_exchange(word, me.word(), AcqRel, Relaxed)
                    .is_ok()
            {
                mneme_sys::fault!("sync.hold.reaped");
                let_go(&slot.owner, &slot.version, &self.table().released);
                count += 1;
            }
        }
        count
    }
}

impl std::fmt::Debug for HeldVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldVersions")
            .field("versions", &self.versions())
            .finish_non_exhaustive()
    }
}

fn store_name(slot: &HoldLines) {
    let thread = std::thread::current();
    let number;
    let name = match thread.name() {
        Some(name) => name,
        None => {
            number = format!("{:?}", thread.id());
            &number
        }
    };
    let mut bytes = [0; NAME_WORDS * 8];
    let len = name.floor_char_boundary(bytes.len());
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    for (word, bytes) in slot.name.iter().zip(bytes.as_chunks().0) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    slot.name_len.store(len as u64, Relaxed);
}

fn load_name(slot: &HoldLines) -> String {
    let words = slot
        .name
        .iter()
        .map(|word| word.load(Relaxed).to_le_bytes());
    let bytes: Vec<u8> = words.flatten().collect();
    let len = (slot.name_len.load(Relaxed) as usize).min(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
