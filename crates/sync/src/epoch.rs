//! **Memory that a pin could reach is not freed before the pin ends**: the protocol of pins and
//! epochs, on bare words.
//!
//! The *epoch* is a counter that only reclaimers advance, so reading it costs a cached load. A
//! reader *pins* by writing the epoch that it read into a word of its own and then passing the
//! light barrier; it *leaves* by writing zero. A reclaimer unlinks what it wants to free, then
//! calls [`advance`]: first the heavy barrier, then the increment. It waits for the number before
//! the increment, `g`: it may free when every pin is younger than `g`.
//!
//! Why this is enough, depending on which barrier came first, the reader's light one or the
//! reclaimer's heavy one:
//! - The light one came later: everything that the reader loads afterwards is newer than the
//!   unlinking, so it cannot find the block.
//! - The light one came earlier: so did the pin's store, and every load of the pins after the heavy
//!   barrier sees that store, or a later one of the same reader, which had left by then. The epoch
//!   in the pin is `g` or older: had the reader read a younger one, its load would have acquired
//!   the increment, and with it the unlinking.
//!
//! Reading the epoch before the barrier breaks the second case if the clock is not such a counter:
//! a time stamp that one CPU reads proves nothing about another CPU's store buffer. In an
//! experiment, that order freed 57,891 blocks too early in 176 thousand rounds.
//!
//! A reclaimer may take *revocable* pins away. That takes two steps, because the reader may be in
//! the middle of a racing copy: the word becomes *revoking*, the heavy barrier passes, the word
//! becomes *revoked*. Only after the last step may the reclaimer free. The reader passes the light
//! barrier after its last read and then checks whether the word still has the value that it wrote.
//! If so, all its reads preceded any heavy barrier of a revocation, and therefore any reuse. Each
//! revocation has its own number in the word; otherwise a slow revoker could complete another's
//! revocation.
//!
//! After the Nibble paper (a concurrent log-structured in-memory key-value store), §3.3, which pins
//! by the time-stamp counter.

use crate::atomics::{Barrier, Word};
use mneme_sys::barrier::BarrierRefused;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A point in the order of reclamations, returned by
/// [`Participants::advance`](crate::Participants::advance).
///
/// Epochs of one control region are ordered and never go back, not even across a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch with this number, for a structure that keeps an epoch in its own memory.
    #[must_use]
    pub const fn from_u64(number: u64) -> Epoch {
        Epoch(number)
    }

    /// This epoch's number, below 2^61.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The epoch of a fresh region. It is not zero, so that an epoch differs from an empty word.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// The pin word of a thread without a pin.
pub(crate) const UNPINNED: u64 = 0;

const KIND_BITS: u32 = 3;

/// The kind of a pin word, in its low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum PinKind {
    None = 0,
    /// Stays until its owner leaves. The other bits are the epoch.
    Firm = 1,
    /// May be revoked. The other bits are the epoch.
    Revocable = 2,
    /// Is being revoked; still protects. The other bits are the revocation's number.
    Revoking = 3,
    /// Has been revoked; no longer protects. The other bits are the revocation's number.
    Revoked = 4,
}

#[inline(always)]
pub(crate) const fn pin_word(number: u64, kind: PinKind) -> u64 {
    number << KIND_BITS | kind as u64
}

pub(crate) const fn kind_of(word: u64) -> PinKind {
    match word & ((1 << KIND_BITS) - 1) {
        1 => PinKind::Firm,
        2 => PinKind::Revocable,
        3 => PinKind::Revoking,
        4 => PinKind::Revoked,
        _ => PinKind::None,
    }
}

/// The oldest epoch that the word protects, if it protects any.
pub(crate) const fn pinned_epoch(word: u64) -> Option<u64> {
    match kind_of(word) {
        PinKind::Firm | PinKind::Revocable => Some(word >> KIND_BITS),
        // The revocation's number has replaced its epoch, so until the revocation is complete it
        // protects everything.
        PinKind::Revoking => Some(0),
        PinKind::Revoked | PinKind::None => None,
    }
}

/// Pins: until [`leave`], nothing that is reachable now is freed. Returns the word stored in the
/// slot.
#[inline(always)]
pub(crate) fn enter<W: Word>(epoch: &W, pin: &W, kind: PinKind, barrier: &impl Barrier) -> u64 {
    // SYNC: pairs with the Release increment in `advance`: a thread that reads the new epoch sees
    // the unlinking before it.
    let word = pin_word(epoch.load(Acquire), kind);
    // SYNC: pairs with the Acquire load in `oldest_pin`. Release, although this only begins a pin:
    // a reclaimer that sees this value instead of the zero of the previous `leave` must see that
    // the reads before that `leave` are over.
    pin.store(word, Release);
    barrier.light();
    word
}

/// Ends a pin that is not revocable, or whose revocation no longer matters.
#[inline(always)]
pub(crate) fn leave<W: Word>(pin: &W) {
    // SYNC: pairs with the Acquire load in `oldest_pin`: this thread's reads are over before
    // anything is freed.
    pin.store(UNPINNED, Release);
}

/// Whether values read since `entered` was written to the slot are valid, because no thread has
/// begun to revoke the pin.
#[inline(always)]
pub(crate) fn still_held<W: Word>(pin: &W, entered: u64, barrier: &impl Barrier) -> bool {
    // Between the reads and the check: see the module's documentation.
    barrier.light();
    // SYNC: pairs with the exchange in `begin_revoking`.
    pin.load(Acquire) == entered
}

/// Makes a revocable pin firm without a gap. Fails if a thread has begun to revoke it.
pub(crate) fn make_firm<W: Word>(pin: &W, entered: u64) -> Option<u64> {
    let firm = pin_word(entered >> KIND_BITS, PinKind::Firm);
    // SYNC: pairs with the exchange in `begin_revoking`: one of the two succeeds.
    pin.compare_exchange(entered, firm, AcqRel, Relaxed)
        .is_ok()
        .then_some(firm)
}

/// Called after unlinking: passes the heavy barrier, then begins the next epoch. Returns the
/// previous epoch, which [`oldest_pin`] must exceed.
///
/// # Errors
/// The barrier was refused; the epoch is unchanged.
pub(crate) fn advance<W: Word>(epoch: &W, barrier: &impl Barrier) -> Result<u64, BarrierRefused> {
    barrier.heavy()?;
    mneme_sys::fault!("sync.advance.barrier");
    // SYNC: pairs with the Acquire load in `enter`.
    Ok(epoch.fetch_add(1, AcqRel))
}

/// Returns an epoch such that no pin protects anything that was unlinked before [`advance`]
/// returned a smaller one.
///
/// The epoch is read first; then `pins` determines which slots are in use; then their pins are
/// read. The result never exceeds the epoch that was read. So it also holds for a reclaimer other
/// than the caller: that one's heavy barrier came before its increment, its increment before this
/// load of the epoch, and a slot whose thread passed its light barrier earlier is among `pins`.
fn oldest_pin<'a, W: Word + 'a, I>(epoch: &W, pins: impl FnOnce() -> I) -> u64
where
    I: Iterator<Item = &'a W>,
{
    // SYNC: pairs with the Release increment in `advance`.
    let mut oldest = epoch.load(Acquire);
    for pin in pins() {
        // SYNC: pairs with the Release stores in `enter` and `leave` and the exchange in
        // `finish_revoking`.
        if let Some(pinned) = pinned_epoch(pin.load(Acquire)) {
            oldest = oldest.min(pinned);
        }
    }
    oldest
}

/// Whether no pin is left that could see what was unlinked before [`advance`] returned `g`. The
/// result of reading all pins is kept in `quiesced`, for all reclaimers.
///
/// `pins` must yield the pins of all slots that are in use when it is called, which is after the
/// epoch was read.
pub(crate) fn is_over<'a, W: Word + 'a, I>(
    epoch: &W,
    quiesced: &W,
    g: u64,
    pins: impl FnOnce() -> I,
) -> bool
where
    I: Iterator<Item = &'a W>,
{
    // SYNC: pairs with the AcqRel maximum below.
    if quiesced.load(Acquire) > g {
        return true;
    }
    let oldest = oldest_pin(epoch, pins);
    // SYNC: pairs with the Acquire load above: a thread that relies on the number is ordered after
    // these loads of the pins.
    quiesced.fetch_max(oldest, AcqRel);
    oldest > g
}

/// Whether the pin with this word has been revoked, or is being revoked.
pub(crate) fn is_revoked(word: u64) -> bool {
    matches!(kind_of(word), PinKind::Revoking | PinKind::Revoked)
}

/// First step of a revocation: succeeds if the pin is revocable (or abandoned half-way by another
/// revoker) and not younger than `limit`. `number` comes from the region's counter of revocations
/// and is used once. The heavy barrier must follow, then [`finish_revoking`].
pub(crate) fn begin_revoking<W: Word>(pin: &W, limit: u64, number: u64) -> bool {
    let word = pin.load(Relaxed);
    let due = match kind_of(word) {
        PinKind::Revocable => word >> KIND_BITS <= limit,
        PinKind::Revoking => true,
        PinKind::None | PinKind::Firm | PinKind::Revoked => false,
    };
    // SYNC: pairs with the load in `still_held` and the exchange in `make_firm`.
    due && pin
        .compare_exchange(word, pin_word(number, PinKind::Revoking), AcqRel, Relaxed)
        .is_ok()
}

/// Last step of a revocation, after the heavy barrier. Does nothing if the owner has left
/// meanwhile.
pub(crate) fn finish_revoking<W: Word>(pin: &W, number: u64) {
    // SYNC: pairs with the Acquire load in `oldest_pin`: a thread that sees this value is ordered
    // after the revoker's barrier.
    let _ = pin.compare_exchange(
        pin_word(number, PinKind::Revoking),
        pin_word(number, PinKind::Revoked),
        AcqRel,
        Relaxed,
    );
}
