//! What every implementation of racing copies must do.

use super::portable;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Load = unsafe fn(*const u8, &mut [u8]);
type Store = unsafe fn(&[u8], *mut u8);

/// A buffer of aligned words that is shared like the bytes of a region.
struct Shared(Vec<AtomicU64>);

impl Shared {
    fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.as_ptr().cast::<u8>().cast_mut().wrapping_add(offset)
    }
    fn bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes())
            .collect()
    }
}

/// Copies of every length and alignment around the places where an implementation changes its
/// stride are complete, and change nothing outside the range.
fn copies_exactly_the_range(load: Load, store: Store) {
    let lengths: Vec<usize> = if cfg!(miri) {
        vec![0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 65]
    } else {
        (0..200)
            .chain([1000, 1031, 2047, 2048, 2049, 5000])
            .collect()
    };
    for &n in &lengths {
        for shift in 0..9 {
            let shared = Shared::new((n + shift) / 8 + 3);
            let noise: Vec<u8> = (0..shared.0.len() * 8).map(|i| (i * 7 + 1) as u8).collect();
            let text: Vec<u8> = (0..n).map(|i| (i * 31 + 5) as u8).collect();
            // SAFETY: inside `shared`, all in this thread.
            unsafe {
                store(&noise, shared.at(0));
                store(&text, shared.at(8 + shift));
            }
            let mut expected = noise.clone();
            expected[8 + shift..8 + shift + n].copy_from_slice(&text);
            assert_eq!(shared.bytes(), expected, "store of {n} at {shift}");
            let mut back = vec![0xee; n + 2];
            // SAFETY: as above.
            unsafe { load(shared.at(8 + shift), &mut back[1..=n]) };
            assert_eq!(&back[1..=n], &text[..], "load of {n} at {shift}");
            assert_eq!((back[0], back[n + 1]), (0xee, 0xee), "overrun at {n}");
        }
    }
}

/// A reader that validates by a sequence number never accepts a torn copy, and a writer of
/// neighbouring bytes loses nothing.
fn races_are_caught_by_a_sequence_lock(load: Load, store: Store) {
    const LEN: usize = 61;
    const OFFSET: usize = 3;
    let shared = Shared::new(16);
    let sequence = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..rounds {
                sequence.store(2 * i + 1, Ordering::Relaxed);
                // SYNC: pairs with the acquire fence of the reader.
                std::sync::atomic::fence(Ordering::Release);
                // SAFETY: inside `shared`; all racing accesses go through these functions.
                unsafe { store(&[i as u8; LEN], shared.at(OFFSET)) };
                // SYNC: pairs with the reader's first load.
                sequence.store(2 * i + 2, Ordering::Release);
            }
            stop.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            // The byte just before and just after the writer's range, in the same words.
            for i in 0..rounds {
                // SAFETY: as above.
                unsafe {
                    store(&[i as u8], shared.at(OFFSET - 1));
                    store(&[i as u8], shared.at(OFFSET + LEN));
                }
                let mut back = [0u8; 1];
                // SAFETY: as above.
                unsafe { load(shared.at(OFFSET - 1), &mut back) };
                assert_eq!(back[0], i as u8);
                // SAFETY: as above.
                unsafe { load(shared.at(OFFSET + LEN), &mut back) };
                assert_eq!(back[0], i as u8);
            }
        });
        loop {
            // SYNC: pairs with the writer's Release store.
            let before = sequence.load(Ordering::Acquire);
            let mut copy = [0u8; LEN];
            // SAFETY: as above.
            unsafe { load(shared.at(OFFSET), &mut copy) };
            // SYNC: pairs with the writer's release fence.
            std::sync::atomic::fence(Ordering::Acquire);
            let after = sequence.load(Ordering::Relaxed);
            if before == after && before.is_multiple_of(2) {
                assert!(copy.iter().all(|b| *b == copy[0]), "torn: {copy:?}");
                if before > 0 {
                    assert_eq!(copy[0], (before / 2 - 1) as u8);
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    });
}

#[test]
fn the_portable_copy_conforms() {
    copies_exactly_the_range(portable::load, portable::store);
    races_are_caught_by_a_sequence_lock(portable::load, portable::store);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn the_assembly_copy_conforms() {
    use super::x86_64;
    copies_exactly_the_range(x86_64::load, x86_64::store);
    races_are_caught_by_a_sequence_lock(x86_64::load, x86_64::store);
}

/// The public functions are one of the two implementations, and work across a page border.
#[test]
#[cfg_attr(miri, ignore = "Miri chooses the portable one")]
fn the_chosen_copy_conforms() {
    copies_exactly_the_range(super::load, super::store);
}

#[test]
fn transferred_words_are_not_torn() {
    let words: Vec<u64> = (0..600).map(|i| i * 0x0101_0101_0101).collect();
    for count in [0, 1, 2, 7, 8, 9, 64, 600] {
        let mut copies = [[0u64; 601]; 2];
        let [first, second] = &mut copies;
        // SAFETY: both have that many words, and nobody else accesses the copies.
        unsafe {
            portable::transfer(words.as_ptr(), first.as_mut_ptr(), count);
            super::transfer(words.as_ptr(), second.as_mut_ptr(), count);
        }
        assert_eq!(copies[0], copies[1]);
        assert_eq!(copies[0][..count], words[..count]);
        assert_eq!(copies[0][count], 0);
    }
}
