//! The mailbox: a file of the space that callers and residents map, with slots for requests.
//!
//! ```text
//!     0  region header         magic, format, the space's identity; client word 0: the control region's incarnation
//!   128  Bell                  the threads that sleep until there is work
//!  4096  Head x SLOTS          128 B each: state and locks of a request
//!  8192  message x SLOTS       64 KiB each
//! ```
//! Every process that may attach the space may write to the mailbox. So everything read from it is
//! checked, lengths above all.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use mneme_sync::{Participants, RobustLock, Slot};
use mneme_sys::{
    Access, HEADER_LEN, HeaderError, InRegion, PagePolicy, Region, RegionError, RegionHeader,
    files, futex, racy,
};

use super::CallError;
use crate::registry::files::gone;
use crate::segment::control;
use crate::{FileError, Space};
use mneme_sys::files::set_mode;

const MAGIC: [u8; 8] = *b"MNEMCALL";
const FORMAT: u32 = 1;
const LAYOUT_HASH: u64 =
    (size_of::<Bell>() as u64) << 40 | (size_of::<SlotHead>() as u64) << 24 | SLOTS as u64;

/// The maximum number of concurrent requests.
pub(super) const SLOTS: usize = 16;
/// The maximum number of threads that serve.
pub(super) const SEATS: usize = 16;
/// The maximum length of a request or a reply in bytes.
pub(super) const MESSAGE: usize = 64 << 10;

const HEADS: u64 = 4096;
const MESSAGES: u64 = 8192;
const LEN: usize = MESSAGES as usize + SLOTS * MESSAGE;

/// Residents wait here.
#[repr(C, align(128))]
pub(super) struct Bell {
    /// Changes whenever there is work.
    rung: AtomicU32,
    /// The number of sleeping threads. Threads that died asleep are still counted, so it is never
    /// too low.
    asleep: AtomicU32,
    _rest: [AtomicU32; 30],
    /// Each lock is held by a thread that serves.
    pub(super) seats: [RobustLock; SEATS],
}

/// A slot without its message.
#[repr(C, align(128))]
pub(super) struct SlotHead {
    /// See [`super::request_state`].
    pub(super) state: AtomicU32,
    /// Whether the caller sleeps.
    pub(super) waits: AtomicU32,
    /// The process that runs the request, for the caller's error.
    pub(super) pid: AtomicU32,
    _pad: AtomicU32,
    pub(super) function: AtomicU64,
    /// The message's length in bytes.
    pub(super) len: AtomicU64,
    pub(super) caller: RobustLock,
    pub(super) resident: RobustLock,
    _rest: [AtomicU64; 10],
}

const _: () = assert!(size_of::<Bell>() == 256 && size_of::<SlotHead>() == 128);
const _: () = assert!(HEADER_LEN + size_of::<Bell>() <= HEADS as usize);
const _: () = assert!(SLOTS * size_of::<SlotHead>() <= (MESSAGES - HEADS) as usize);

// SAFETY: atomics without padding; a lock is one word.
unsafe impl InRegion for Bell {}
// SAFETY: as above.
unsafe impl InRegion for SlotHead {}

/// A space's mailbox, mapped, and this process as a participant of the space.
pub(super) struct Mailbox {
    region: Region,
    pub(super) participants: Participants,
    /// How often to check a word before sleeping, so that short waits need no system call.
    pub(super) spins: u32,
}

/// The number of checks before sleeping: some microseconds.
const SPINS: u32 = 200;

impl Mailbox {
    /// Opens the mailbox of a space; `None` if there is none, or only one from before a restart.
    pub(super) fn open(space: &Space) -> Result<Option<Self>, CallError> {
        let control = space.directory().join("control");
        let participants = control::open_control(&control, space.uuid())?;
        let path = space.directory().join("calls");
        let file = match files::open_plain(&path, File::options().read(true).write(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(FileError::at("open", path)(e).into()),
        };
        let region = Region::map(file.into(), Access::ReadWrite, LEN, PagePolicy::Small)?;
        let header = RegionHeader::read(&region, MAGIC, FORMAT, LAYOUT_HASH)?;
        if region.len() < LEN || header.uuid != space.uuid().to_bytes() {
            return Err(CallError::Header(HeaderError::Damaged {
                what: "it is too short, or another space's",
            }));
        }
        // The mailbox's locks name slots of that control region.
        if header.client[0] != participants.incarnation() {
            return Ok(None);
        }
        Ok(Some(Self {
            region,
            participants,
            spins: if futex::is_spinning_useful() {
                SPINS
            } else {
                0
            },
        }))
    }

    /// Opens the mailbox, and creates it if necessary.
    pub(super) fn open_or_make(space: &Space) -> Result<Self, CallError> {
        let usable = |opened| match opened {
            Ok(Some(mailbox)) => Some(Ok(mailbox)),
            Ok(None) | Err(CallError::Header(_)) => None,
            Err(other) => Some(Err(other)),
        };
        if let Some(opened) = usable(Self::open(space)) {
            return opened;
        }
        let _locked = space.lock_members()?;
        // Another process created it first.
        if let Some(opened) = usable(Self::open(space)) {
            return opened;
        }
        make(space, &space.directory().join("calls"))?;
        Self::open(space)?.ok_or(CallError::NoResident)
    }

    pub(super) fn bell(&self) -> Result<&Bell, RegionError> {
        self.region.at(HEADER_LEN as u64)
    }

    pub(super) fn heads(&self) -> Result<&[SlotHead], RegionError> {
        self.region.slice_at(HEADS, SLOTS)
    }

    /// Writes a message, whose length has been checked.
    pub(super) fn write(&self, slot: usize, bytes: &[u8]) -> Result<(), RegionError> {
        let to = self.region.bytes_at(at(slot), bytes.len().min(MESSAGE))?;
        // SAFETY: this many bytes are mapped there. A process that writes there at the same time
        // breaks the protocol and only tears the bytes.
        unsafe { racy::store(&bytes[..bytes.len().min(MESSAGE)], to) };
        Ok(())
    }

    /// Copies a message. The recorded length is trusted only as far as the mailbox reaches.
    pub(super) fn read(
        &self,
        slot: usize,
        len: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), RegionError> {
        let len = usize::try_from(len).unwrap_or(MESSAGE).min(MESSAGE);
        into.clear();
        into.resize(len, 0);
        let from = self.region.bytes_at(at(slot), len)?;
        // SAFETY: this many bytes are mapped there.
        unsafe { racy::load(from, into) };
        Ok(())
    }

    /// Whether a living thread serves. Asks the kernel about each seat that seems to be taken.
    pub(super) fn is_served(&self, slot: &Slot<'_>) -> Result<bool, RegionError> {
        let seats = &self.bell()?.seats;
        Ok(seats.iter().any(|seat| {
            // Trying the lock also releases a dead thread's seat.
            seat.owner().is_some() && seat.try_lock(slot).is_none()
        }))
    }

    /// Whether some thread seems to serve; costs only a few loads.
    pub(super) fn seems_served(&self) -> Result<bool, RegionError> {
        Ok(self.bell()?.seats.iter().any(|seat| seat.owner().is_some()))
    }
}

fn at(slot: usize) -> u64 {
    MESSAGES + (slot * MESSAGE) as u64
}

impl Bell {
    /// Signals that there is work: wakes one sleeper, or all of them if nobody took up the work.
    pub(super) fn ring(&self, all: bool) {
        // SYNC: SeqCst, with `sleep`: either the sleeper sees the work, or this thread sees that it
        // sleeps.
        self.rung.fetch_add(1, SeqCst);
        if self.asleep.load(SeqCst) > 0 {
            futex::wake(&self.rung, if all { u32::MAX } else { 1 });
        }
    }

    /// The value to pass to `sleep`, read before looking for work.
    pub(super) fn rung(&self) -> u32 {
        self.rung.load(SeqCst)
    }

    /// Sleeps unless the bell has been rung since.
    pub(super) fn sleep(&self, since: u32, limit: Duration) {
        // SYNC: pairs with the load in `ring`.
        self.asleep.fetch_add(1, SeqCst);
        mneme_sys::fault!("space.serve.asleep");
        futex::wait(&self.rung, since, limit);
        self.asleep.fetch_sub(1, SeqCst);
    }
}

/// Creates an empty mailbox. The space must be locked.
fn make(space: &Space, path: &Path) -> Result<(), CallError> {
    let aside = path.with_extension("new");
    gone(&aside, fs::remove_file(&aside))?;
    let file = crate::segment::data::create(&aside)?;
    let region = Region::map(file.into(), Access::ReadWrite, LEN, PagePolicy::Small)?;
    region.grow(LEN)?;
    mneme_sys::fault!("space.reside.reserved");
    let participants = control::open_control(&space.directory().join("control"), space.uuid())?;
    let mut client = [0; 8];
    client[0] = participants.incarnation();
    let header = RegionHeader {
        magic: MAGIC,
        format: FORMAT,
        header_len: HEADER_LEN as u32,
        layout_hash: LAYOUT_HASH,
        uuid: space.uuid().to_bytes(),
        max_len: LEN as u64,
        committed_len: LEN as u64,
        client,
        checksum: 0,
    };
    header.write(&region)?;
    set_mode(&aside, space.control_mode()?).map_err(FileError::at("share", &aside))?;
    mneme_sys::fault!("space.reside.made");
    fs::rename(&aside, path).map_err(FileError::at("name", path))?;
    mneme_sys::fault!("space.reside.named");
    Ok(())
}
