//! Shared and exclusive sections: **all threads execute commands, or one thread has the server to
//! itself.**
//!
//! A shared section is a lock of the thread's own, so taking it costs nothing that affects other
//! threads. An exclusive section takes the locks of all threads.
//!
//! Neither kind starves the other. Exclusive sections run in the order in which they were
//! requested. A thread that has waited for one exclusive section enters its shared section before
//! the next exclusive one begins, so it waits for at most one. A thread in a shared section checks
//! [`is_wanted`](Sections::is_wanted) between commands, and leaves if so.
//!
//! A long command delays only threads that need its end. While an exclusive section is requested,
//! no thread enters a shared one; so the *attempt* is short, and is given up if another thread is
//! still in its shared section by then. The caller learns which section was in the way, and tries
//! again when that is [over](Sections::are_over).
//!
//! A command whose effect is a flag that each thread checks in its section needs no exclusive
//! section. It sets the flag, *announces* that to the sections that begin later
//! ([`earlier`](Sections::earlier)), and is acknowledged once the earlier ones are over. The models
//! in `models` run this code under a model checker.

mod attempts;
mod sections;

#[cfg(test)]
mod models;

pub(crate) use sections::{Earlier, ExclusiveSection, Sections, SharedSection};

/// The product's locks and atomics; the model checker has its own.
mod primitives {
    pub use std::sync::atomic::AtomicU64;
    pub use std::sync::{Condvar, Mutex, MutexGuard};
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Waits as long as necessary.
    fn waits() -> bool {
        std::thread::yield_now();
        true
    }

    #[test]
    fn an_exclusive_section_sees_no_shared_one_half_done() {
        let sections = Sections::new(3);
        let halves = [(); 3].map(|()| [const { AtomicU64::new(0) }; 2]);
        std::thread::scope(|scope| {
            for (thread, [first, second]) in halves.iter().enumerate() {
                let sections = &sections;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let _shared = sections.shared(thread);
                        first.fetch_add(1, Ordering::Relaxed);
                        second.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _exclusive = sections.exclusive(waits).unwrap();
                        for [first, second] in &halves {
                            assert_eq!(
                                first.load(Ordering::Relaxed),
                                second.load(Ordering::Relaxed)
                            );
                        }
                    }
                });
            }
        });
        assert!(!sections.is_wanted());
    }

    #[test]
    fn a_thread_waits_for_one_exclusive_section_at_most() {
        for _ in 0..200 {
            let sections = Sections::new(1);
            let has_entered = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let first = sections.exclusive(waits).unwrap();
                scope.spawn(|| {
                    let _shared = sections.shared(0);
                    has_entered.store(true, Ordering::Relaxed);
                });
                while sections.waiting() == 0 {
                    std::thread::yield_now();
                }
                drop(first);
                // Requested at once, long before the other thread is awake.
                let _second = sections.exclusive(waits).unwrap();
                assert!(has_entered.load(Ordering::Relaxed));
            });
        }
    }

    #[test]
    fn an_abandoned_attempt_keeps_no_other_thread_out() {
        let sections = Sections::new(2);
        let section = sections.shared(0);
        let mut earlier = sections.exclusive(|| false).unwrap_err();
        assert!(!sections.is_wanted());
        drop(sections.shared(1));
        assert!(!sections.are_over(&mut earlier));
        drop(section);
        assert!(sections.are_over(&mut earlier), "the thread is in none");
        drop(sections.exclusive(|| false).unwrap());
        // The thread is in a section again, but not in that one.
        let mut earlier = sections.earlier([0, 1]);
        let _section = sections.shared(0);
        assert!(sections.are_over(&mut earlier));
    }
}
