//! How bytes are copied (dissertation, fig. 25): the library's copy against the one that compaction
//! uses, which others may race with (`mneme_sys::racy`; the processor's string instruction for long
//! ones).
//!
//! Source and destination are at random places of the same huge-page memory, as a compactor's are.

use mneme_bench::error::BenchError;
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::ledger::Metric;
use mneme_bench::memory::Bare;
use mneme_bench::rounds::{Job, Span, rate_of};

/// The mechanisms, the library's first.
pub const SYSTEMS: [&str; 2] = ["memcpy", "racy"];

/// Bytes copied between two looks at the clock, roughly.
const CHUNK: usize = 256 << 10;

/// The case's name in reports.
pub fn case(bytes: usize) -> String {
    format!("copy {bytes} B")
}

/// Jobs that copy blocks of `bytes` bytes within `memory`: nanoseconds a copy.
pub fn jobs<'a>(memory: &'a Bare, bytes: usize, span: Span, seed: u64) -> Vec<Job<'a>> {
    let copies: [Copy; 2] = [library, racy];
    let known = SYSTEMS.into_iter().zip(copies);
    known
        .map(|(system, copy)| {
            Job::new(system, case(bytes), Metric::Latency, move |round| {
                let seed = mix(seed ^ round as u64);
                let turns = (CHUNK / bytes).max(1) as u32;
                let rate = rate_of(1, span, turns, |_| copier(memory, bytes, copy, seed));
                if rate > 0.0 {
                    Ok(1e9 / rate)
                } else {
                    Err(BenchError::Store("no time for one copy".to_owned()))
                }
            })
        })
        .collect()
}

fn copier(memory: &Bare, bytes: usize, copy: Copy, seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::new(seed);
    // Sources lie in the first half, destinations in the second.
    let half = memory.bytes() / 2;
    let places = (half / bytes.next_multiple_of(8)) as u64;
    move || {
        let mut place = || random.below(places) as usize * (half / places as usize);
        let (from, to) = (place(), half + place());
        // SAFETY: both ranges are inside the memory, in different halves of it, and one thread
        // uses it.
        unsafe { memory.copy_within(from, to, bytes, copy) };
        1
    }
}

/// Copies so many bytes to the first pointer from the second.
pub type Copy = unsafe fn(*mut u8, *const u8, usize);

/// # Safety
/// The ranges are valid, nobody else uses them, and they do not overlap.
unsafe fn library(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// # Safety
/// As for [`library`]; the words that the ranges touch are readable.
unsafe fn racy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { mneme_sys::racy::load(from, std::slice::from_raw_parts_mut(to, bytes)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_sys::PagePolicy;

    #[test]
    fn every_mechanism_copies_every_byte() {
        let memory = Bare::new(1 << 20, PagePolicy::Small).unwrap();
        let pattern: Vec<u8> = (0..1000).map(|i| i as u8).collect();
        for (at, copy) in [library as Copy, racy].into_iter().enumerate() {
            let to = 100_000 * (at + 1);
            let mut out = vec![0; 1000];
            // SAFETY: one thread has this memory, and the ranges are apart.
            unsafe {
                memory.copy_in(0, &pattern);
                memory.copy_within(0, to, pattern.len(), copy);
                memory.copy_out(to, &mut out);
            }
            assert_eq!(out, pattern);
        }
    }
}
