//! Coordination of threads and processes over shared memory, any of which may be killed at any
//! instruction: what each may touch, and when.
//!
//! A data structure in shared memory has a *control region* beside it. Every process that attaches
//! has an entry there, and every thread a *slot*: a few cache lines that only this thread writes,
//! and in which others read what it holds and what it is about to do. [`Participants`] is one
//! process's opening of a control region; everything else is reached through it.
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
//! While a [`Pin`] exists, nothing that could be reached when it began is freed. To free something:
//! unlink it, call [`Participants::advance`] (a barrier that reaches all pins, then the next epoch;
//! this order is essential, and `advance` guarantees it), and free it once
//! [`Participants::quiescent`] returns true for the returned epoch, or after
//! [`Participants::wait_quiescent`]. Pins nest and stay with their thread.
//!
//! A [`RevocablePin`] may be taken away from a reader that does not advance for a second. Data read
//! under it must be copied by racing copies ([`mneme_sys::racy`]), and are valid only if
//! [`RevocablePin::leave`] returns `Ok`; otherwise they must be read again.
//!
//! # Intents, undo, counts
//!
//! Before a thread takes a lock or makes a claim, it announces that by [`IntentLine::begin`], in
//! the [`Lane`] of its layer; data that do not fit into seven words go to the slot's [`UndoArea`]
//! first. Others see the intent before the lock if the lock is taken by a Release store or an
//! exchange. [`Slot::count`] keeps a number per database in the slot, where counting costs only a
//! store; [`Participants::counters`] returns the sum. Counts outlive their threads.
//!
//! # Locks
//!
//! A [`RobustLock`] is one word anywhere in a region. A [`FencedGate`], in the control region,
//! admits many readers or one writer. Both name their holder and report its death to the next
//! owner: [`Acquired::OwnerDied`] means that the guarded data may be half changed, and is repeated
//! until an owner calls `repaired()`. No wait is endless: after a second, [`Stalled`] names a
//! holder that is alive and does not release the lock.
//!
//! # Values that are read without locks
//!
//! [`Rcu`] is a value that readers see through a pin and writers replace. [`Retired`] frees the
//! items of linked structures when no pin can see them.
//!
//! # Leases
//!
//! A role that only one process may have at a time (to maintain a structure, or to serve it) is a
//! [`Lease`]: a liveness lock, which the kernel releases at once if the process dies. No timeout is
//! involved.
//!
//! # Watch registrations
//!
//! While a [`WatchRegistration`] exists, [`Participants::is_watched`] is true of its [`Interest`]
//! in every process, and writers count their changes, or say what they change. Otherwise they need
//! not.
//!
//! # Held versions, and a feed
//!
//! A structure that keeps versions has a table of those that some process holds ([`HeldVersions`]),
//! and a [`Feed`] by which its one writer notifies followers in other processes of what it has
//! replaced. Both lie behind [`Participants::end`].
//!
//! # Death
//!
//! The kernel determines whether a process is alive ([`mneme_sys::Liveness`]), never a timeout.
//! [`Participants::reap`] finds dead processes, passes each of their slots, with its intents and
//! undo area, to the caller's repair, keeps their counts, ends their pins, and frees their slots.
//! The repair must be idempotent, because a reaper may die as well. Until then a dead thread's pins
//! still protect, since the repair may have to read, and nobody else gets its slot. **Reap after
//! opening and from time to time**, in at least one process: the structure's maintainer does.
//!
//! A *generation* number in each slot changes with its owner, so a dead owner's lock is never
//! mistaken for one of the slot's next owner.
//!
//! # Threads and processes
//!
//! [`Participants`] is `Send` and `Sync` and cheap to clone. A thread gets its slot on first use
//! and releases it when it ends or when the last handle is dropped. [`Slot`], [`Pin`] and all
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
//! A forked child is not its parent: its calls return [`SlotError::Forked`] (or
//! [`Holding::Forked`]) or do nothing, and handles that it has inherited change nothing. It must
//! open the region for itself.
//!
//! # Performance
//!
//! `cargo run --release -p mneme-sync --example pin_cost` on a 2.6 GHz x86-64: pin and unpin 1.5 ns
//! through a [`Slot`], 2.2 ns through [`Participants`]; the thread's slot 0.9 ns; an intent of
//! three words, begun and cleared, 2.3 ns; a count 1.9 ns; entering and leaving a fenced gate 6 ns
//! for a reader and 12 ns for a writer; a robust lock 11 ns. A thread that alternates between two
//! openings pays about 4 ns more per change. Advancing costs a system call of 2 to 10 us, so
//! collect what is to be freed. Checking whether all pins are gone reads each slot in use.
//!
//! If the process may not use `membarrier`, pins contain a full fence (10 to 25 ns). The first
//! process that attaches decides for the region, and a process that cannot use the barrier is
//! refused while others rely on it ([`AttachError::Barrier`]).
//!
//! # How it is verified
//!
//! Each protocol has a file of its own (`epoch`, `gate`, `lock_word`, `slot_owner`, `counter_fold`,
//! `intent`, `watch`). It is written for abstract words, and the same code runs under a model
//! checker, beside deliberately broken twins that must fail. No model checker supports the barrier
//! between processes, so that has a litmus test, also with a twin. With the feature `fault`,
//! participants die at every named point.
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
pub use watch::{Interest, WatchRegistration};
