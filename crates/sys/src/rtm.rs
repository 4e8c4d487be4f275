//! Hardware transactions: Intel's RTM.
//!
//! **Written according to the manual and never run**: no machine of this project has them, and
//! microcode has disabled them on most that had. So [`Rtm::probe`] relies on a commit that it has
//! observed, and not on what the processor reports.

/// The right to run transactions, which a [probe](Rtm::probe) grants.
#[derive(Clone, Copy, Debug)]
pub struct Rtm(());

/// Why a transaction had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionAborted {
    /// Its body asked for it.
    ByBody,
    /// It conflicted with another access or an interrupt. The next attempt may succeed.
    Conflict,
    /// It was too large.
    Capacity,
}

impl Rtm {
    /// Tests whether transactions commit here.
    #[must_use]
    pub fn probe() -> Option<Rtm> {
        // An interrupt may abort some. If microcode aborts all of them, none of these commits.
        const TRIES: usize = 100;
        let rtm = Rtm(());
        (is_announced() && (0..TRIES).any(|_| rtm.run(|| true).is_ok())).then_some(rtm)
    }

    /// Runs `body` as a transaction: if it returns true, all its stores become visible at once.
    ///
    /// # Errors
    /// [`TransactionAborted`]: nothing that it did has happened. No attempt need ever succeed, so a
    /// caller must have an alternative.
    #[inline]
    pub fn run(self, body: impl FnOnce() -> bool) -> Result<(), TransactionAborted> {
        run(body)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_announced() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // CPUID exists on every x86-64.
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 11) != 0
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn run(body: impl FnOnce() -> bool) -> Result<(), TransactionAborted> {
    const STARTED: u32 = u32::MAX;
    let mut status = STARTED;
    // SAFETY: only a successful probe creates an `Rtm`, so the instructions exist (the probe itself
    // checks CPUID first). An abort restores all registers and memory as they were at `xbegin` and
    // continues after it with the reason in `eax`: to the compiler, the block has returned once,
    // with that value.
    unsafe { std::arch::asm!("xbegin 2f", "2:", inout("eax") status) };
    if status == STARTED {
        if body() {
            // SAFETY: within the transaction that `xbegin` has begun.
            unsafe { std::arch::asm!("xend") };
            return Ok(());
        }
        // SAFETY: as above; it continues after `xbegin`, and never here.
        unsafe { std::arch::asm!("xabort 1") };
    }
    // The bits of the reason: by `xabort`, may succeed on retry, conflict, capacity.
    Err(match status {
        status if status & 1 != 0 => TransactionAborted::ByBody,
        status if status & 8 != 0 => TransactionAborted::Capacity,
        _ => TransactionAborted::Conflict,
    })
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn is_announced() -> bool {
    false
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn run(_body: impl FnOnce() -> bool) -> Result<(), TransactionAborted> {
    Err(TransactionAborted::Capacity)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// On processors that the kernel does not list as having transactions, the probe must not even
    /// try: the instruction would be fatal.
    #[test]
    fn transactions_are_used_only_where_they_commit() {
        let described = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let announced = described.split_whitespace().any(|flag| flag == "rtm");
        let Some(rtm) = Rtm::probe() else {
            return;
        };
        assert!(announced);
        let word = AtomicU64::new(1);
        let store = |value, commit| {
            rtm.run(|| {
                word.store(value, Relaxed);
                commit
            })
        };
        assert!((0..1_000).any(|_| store(2, true).is_ok()));
        assert_eq!(word.load(Relaxed), 2);
        let by_body = Err(TransactionAborted::ByBody);
        assert!((0..1_000).any(|_| store(3, false) == by_body));
        assert_eq!(word.load(Relaxed), 2, "an aborted store is undone");
    }
}
