//! Coordination of threads and processes over shared memory, any of which may be killed at any
//! instruction: what each may touch, and when.
//!
//! A data structure in shared memory has a *control region* beside it. Every process that attaches
//! has an entry there, every thread a *slot*: a few cache lines that only this thread writes, in
//! which others read what it holds and what it is about to do. [`Participants`] is one process'
//! opening of a control region, and all else comes from it.
//!
//! # Usage
//!
//! ```
//! use mneme_sync::{ControlOptions, Lane, Participants};
//!
//! // For this process alone; `Participants::create` and `open` share a region with others.
//! let participants = Participants::private(ControlOptions::new([7; 16]))?;
//!
//! // A reader pins, follows links, and unpins by dropping.
//! let pin = participants.pin()?;
//! drop(pin);
//!
//! // A writer announces what it will do, does it, and takes the announcement back.
//! let slot = participants.slot()?;
//! let intent = slot.intent(Lane::Log);
//! intent.begin(1, &[42]);
//! // ... lock, change, unlock ...
//! intent.clear();
//!
//! // A reclaimer unlinks, advances, and frees once the epoch is over.
//! let epoch = participants.advance()?;
//! assert!(participants.quiescent(epoch));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Pins and epochs
//!
//! While a [`Pin`] lives, nothing is freed that could be reached when it began. To free something:
//! unlink it, call [`Participants::advance`] (a barrier that reaches all pins, then the next epoch;
//! its order is the heart of the matter and fixed there), and free it once
//! [`Participants::quiescent`] says so of the epoch returned, or after
//! [`Participants::wait_quiescent`]. Pins nest and stay with their thread.
//!
//! A [`RevocablePin`] may be taken away from a reader that stands still for a second. What is read
//! under it is copied by racing copies ([`mneme_sys::racy`]) and believed only if
//! [`RevocablePin::leave`] says `Ok`; else it is read again.
//!
//! # Intents, undo, counts
//!
//! A thread that takes a lock or claims a thing first announces it by an [`IntentLine::begin`], in
//! the [`Lane`] of its layer; what does not fit into seven words goes to the slot's [`UndoArea`]
//! before. The intent is visible to others before the lock is, if the lock is taken by a Release
//! store or an exchange. [`Slot::count`] keeps a number per database in the slot, where it costs a
//! store; [`Participants::counters`] adds up. Counts outlive their threads.
//!
//! # Locks
//!
//! [`RobustLock`] is a word anywhere in a region. [`FencedGate`], in the control region, is for
//! many readers or one writer. Both name their holder and report its death to the next owner:
//! [`Acquired::OwnerDied`] means that what they guard may be half changed, and is repeated until an
//! owner calls `repaired()`. No wait is endless: a holder that lives and does not let go is named
//! by [`Stalled`] after a second.
//!
//! # Values that are read without locks
//!
//! [`Rcu`] is a value that readers see through a pin and writers replace. [`Retired`] frees the
//! items of linked structures when no pin can see them.
//!
//! # Leases
//!
//! What one process is to do at a time (to maintain a structure, to serve it) goes by a [`Lease`]:
//! a liveness lock, which the kernel drops for the dead at once, and not a timeout's.
//!
//! # Watch registrations
//!
//! While a [`WatchRegistration`] lives, [`Participants::is_watched`] is true in every process, and
//! writers count their changes. While none does, they need not.
//!
//! # Held versions, and a feed
//!
//! A structure that keeps versions has a table of those that somebody holds, in whatever process
//! ([`HeldVersions`]), and a [`Feed`] by which its one writer tells followers in other processes
//! what it has replaced. Both lie behind [`Participants::end`].
//!
//! # Death
//!
//! Whether a process lives is the kernel's word ([`mneme_sys::Liveness`]), never a timeout's.
//! [`Participants::reap`] finds the dead, hands each of their slots, with its intents and undo
//! area, to the caller's repair, keeps their counts, ends their pins, and frees their slots; its
//! repair must be idempotent, for a reaper may die as well. Until then a dead thread's pins hold,
//! since its repair may have to read, and its slot is nobody else's. **Reap after opening and
//! every so often**, in at least one process: the structure's maintainer does.
//!
//! A *generation* number in each slot changes with its owner, so a lock of a dead owner is never
//! taken for one of the slot's next.
//!
//! # Threads and processes
//!
//! [`Participants`] is `Send` and `Sync` and cheap to clone. A thread gets its slot on first use
//! and gives it back when it ends or when the last handle is dropped. [`Slot`], [`Pin`] and all
//! guards stay with their thread:
//!
//! ```compile_fail,E0277
//! fn send(_: impl Send) {}
//! fn pin(p: &mneme_sync::Participants) {
//!     send(p.pin());
//! }
//! ```
//!
//! A pin does not outlive the opening:
//!
//! ```compile_fail,E0597
//! let pin;
//! {
//!     let p = mneme_sync::Participants::private(mneme_sync::ControlOptions::new([0; 16])).unwrap();
//!     pin = p.pin();
//! }
//! drop(pin);
//! ```
//!
//! A forked child is not its parent: what it calls answers [`SlotError::Forked`] (or
//! [`Holding::Forked`]) or does nothing, and handles that it has inherited change nothing. It opens
//! the region for itself.
//!
//! # Performance
//!
//! `cargo run --release -p mneme-sync --example pin_cost` on a 2.6 GHz x86-64: pin and unpin 1.5 ns
//! through a [`Slot`], 2.2 ns through [`Participants`]; the thread's slot 0.9 ns; an intent of
//! three words, begun and cleared, 2.3 ns; a count 1.9 ns; a fenced gate, in
//! and out, 6 ns to read and 12 ns to write; a robust lock 11 ns. A thread that changes between two
//! openings pays about 4 ns more per change. Advancing costs a system call of 2 to 10 us: gather
//! what is to be freed. Asking whether all pins are gone is a look at each slot in use.
//!
//! Where the process may not use `membarrier`, pins contain a full fence (10 to 25 ns); the
//! first process that attaches decides for the region, and one that cannot is refused while others
//! rely on it ([`AttachError::Barrier`]).
//!
//! # How it is known to work
//!
//! Each protocol stands in a file of its own (`epoch`, `gate`, `lock_word`, `slot_owner`, `fold`,
//! `intent`, `watch`), written over abstract words, and runs as the same code under a model
//! checker, beside twins broken on purpose that must fail. The barrier between processes has its
//! litmus, with a twin, since no model checker knows it. With the feature `fault`, participants die
//! at every named point.
//!
//! After the Nibble paper (a concurrent log-structured in-memory key-value store), §3.3, for
//! epochs and thread slots; the rest is our own.

#![deny(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    missing_docs
)]

mod announced;
mod atomics;
mod attached;
mod backoff;
mod control_region;
mod counter_fold;
mod counters;
mod create_or_open;
mod epoch;
mod error;
mod error_kind;
mod exclusion;
mod fenced_gate;
mod gate;
mod held_versions;
mod intent;
mod layout;
mod lease;
#[cfg(all(test, not(miri)))]
mod litmus;
pub mod lock_word;
#[cfg(test)]
mod models;
mod op_pin;
mod opening;
mod participants;
mod pin;
mod process;
mod rcu;
mod reap;
mod reclaim;
mod ring_feed;
mod robust_lock;
mod slot;
mod slot_id;
mod slot_owner;
mod sole_process;
mod stalled;
mod stats;
mod thread_slots;
mod undo;
mod watch;

pub use announced::Announced;
pub use atomics::Word;
pub use attached::{Attached, AttachedThread, Life, ThreadPin};
pub use backoff::Backoff;
pub use epoch::Epoch;
pub use error::{
    AttachError, CreateError, GateError, Holding, LeaseError, OpenError, ReapError, Revoked,
    SlotError, Stalled,
};
pub use fenced_gate::{FencedGate, Sole};
pub use held_versions::{HeldVersion, HeldVersions, MAX_HELD};
pub use intent::{Intent, IntentLine, Lane};
pub use layout::{COUNTERS, GATES, INTENT_WORDS, LEASES};
pub use lease::Lease;
pub use lock_word::RobustLock;
pub use op_pin::OpPin;
pub use participants::{ControlOptions, Participants};
pub use pin::{FastPin, Pin, RevocablePin};
pub use rcu::{Rcu, RcuReader, Retired};
pub use reap::{DeadSlot, Reaped};
pub use reclaim::REVOKE_AFTER;
pub use ring_feed::{Behind, FEED_ENTRIES, Feed};
pub use robust_lock::{Acquired, BriefGuard, Guard, LOCK_TIMEOUT};
pub use slot::Slot;
pub use slot_id::SlotId;
pub use stalled::Progress;
pub use stats::{OldestPin, Stats};
pub use undo::UndoArea;
pub use watch::WatchRegistration;
