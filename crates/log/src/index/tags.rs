//! Compares the tags of a whole bucket at once.
//!
//! The result is a filter: a reader that follows an entry loads it again, with Acquire, and
//! compares the record's key. So the result may be a little out of date, but it must not miss a tag
//! that was there all along. Therefore every word is read by a load that cannot tear.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::Word;

use crate::region::mem::LOC_BITS;

/// Words that buckets are made of.
pub(crate) trait Tagged: Word + Sized {
    /// A bit for each of a bucket's 15 slots whose entry has `tag`. (An empty one looks like tag
    /// 0.)
    #[inline]
    fn matching(bucket: &[Self; 16], tag: u32) -> u32 {
        word_by_word(bucket, tag)
    }
}

impl Tagged for AtomicU64 {
    #[inline(always)]
    fn matching(bucket: &[AtomicU64; 16], tag: u32) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        match VECTORS.load(Relaxed) {
            // SAFETY: the processor has AVX2, and a bucket is 128 bytes.
            AVX2 => return unsafe { avx2(bucket, tag) },
            // SAFETY: the processor has AVX-512, and a bucket is 128 bytes.
            AVX512 => return unsafe { avx512(bucket, tag) },
            UNKNOWN => find_vectors(),
            _ => {}
        }
        word_by_word(bucket, tag)
    }
}

/// The processor's vector extension, detected once and then read by one load.
#[cfg(all(target_arch = "x86_64", not(miri)))]
static VECTORS: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(all(target_arch = "x86_64", not(miri)))]
const UNKNOWN: u8 = 0;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const NONE: u8 = 1;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AVX2: u8 = 2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AVX512: u8 = 3;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
fn find_vectors() {
    // Processors older than VBMI2 run more slowly for a while after any 64-byte vector instruction.
    let found = if std::arch::is_x86_feature_detected!("avx512vbmi2") {
        AVX512
    } else if std::arch::is_x86_feature_detected!("avx2") {
        AVX2
    } else {
        NONE
    };
    // Relaxed: every thread finds the same.
    VECTORS.store(found, Relaxed);
}

fn word_by_word<W: Word>(bucket: &[W; 16], tag: u32) -> u32 {
    let tag = u64::from(tag) << LOC_BITS;
    bucket[1..].iter().enumerate().fold(0, |found, (i, word)| {
        found | u32::from((word.load(Relaxed) ^ tag) >> LOC_BITS == 0) << i
    })
}

/// Four loads of four words each. A tag lies in the upper half of its word, so two vectors of words
/// make one vector of halves, which halves the number of comparisons.
///
/// Other threads store to these words meanwhile, so the loads are written in assembler: to the
/// compiler they do what `word_by_word` does, sixteen relaxed loads of aligned words. Processors
/// with AVX2 read each aligned eight bytes of a vector that lies in one cache line at once.
///
/// # Safety
/// The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn avx2(bucket: &[AtomicU64; 16], tag: u32) -> u32 {
    let (first, second): (u32, u32);
    // SAFETY: reads the 128 bytes of `bucket`, writes registers alone; AVX2 by the caller's
    // promise.
    unsafe {
        std::arch::asm!(
            "vmovd {t}, {tag:e}",
            "vpbroadcastd {t:y}, {t}",
            "vmovdqu {x:y}, [{at}]",
            "vmovdqu {y:y}, [{at} + 64]",
            // The upper halves of words 0, 1, 4, 5, 2, 3, 6, 7, and then in order.
            "vshufps {x:y}, {x:y}, [{at} + 32], 0xdd",
            "vshufps {y:y}, {y:y}, [{at} + 96], 0xdd",
            "vpermq {x:y}, {x:y}, 0xd8",
            "vpermq {y:y}, {y:y}, 0xd8",
            "vpsrld {x:y}, {x:y}, {shift}",
            "vpsrld {y:y}, {y:y}, {shift}",
            "vpcmpeqd {x:y}, {x:y}, {t:y}",
            "vpcmpeqd {y:y}, {y:y}, {t:y}",
            "vmovmskps {first:e}, {x:y}",
            "vmovmskps {second:e}, {y:y}",
            "vzeroupper",
            at = in(reg) bucket.as_ptr(),
            tag = in(reg) tag,
            shift = const LOC_BITS - 32,
            t = out(xmm_reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
            first = out(reg) first,
            second = out(reg) second,
            options(nostack, readonly, preserves_flags),
        );
    }
    // The first word is the lock, not a slot.
    (first | second << 8) >> 1
}

/// Two loads of eight words each, otherwise as [`avx2`]: a third of its instructions. A vector is a
/// whole line, and these processors read a line at once.
///
/// # Safety
/// The processor has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn avx512(bucket: &[AtomicU64; 16], tag: u32) -> u32 {
    let found: u32;
    // SAFETY: reads the 128 bytes of `bucket`, writes registers alone; AVX-512F by the caller's
    // promise.
    unsafe {
        std::arch::asm!(
            "vmovd {t}, {tag:e}",
            "vpbroadcastq {t:z}, {t}",
            "vpsrlq {w:z}, zmmword ptr [{at}], {shift}",
            "vpsrlq {x:z}, zmmword ptr [{at} + 64], {shift}",
            "vpcmpeqq k1, {w:z}, {t:z}",
            "vpcmpeqq k2, {x:z}, {t:z}",
            "kunpckbw k1, k2, k1",
            "kmovw {found:e}, k1",
            "vzeroupper",
            at = in(reg) bucket.as_ptr(),
            tag = in(reg) tag,
            shift = const LOC_BITS,
            t = out(xmm_reg) _,
            w = out(xmm_reg) _,
            x = out(xmm_reg) _,
            found = out(reg) found,
            out("k1") _,
            out("k2") _,
            options(nostack, readonly, preserves_flags),
        );
    }
    // The first word is the lock, not a slot.
    found >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same() {
        let mut state = 1u64;
        for round in 0..10_000u32 {
            let tag = (round * 419) & 0x3f_ffff;
            let bucket: [AtomicU64; 16] = std::array::from_fn(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let entry = match state >> 61 {
                    0 | 1 => u64::from(tag) << LOC_BITS | state >> 30,
                    2 => (u64::from(tag) ^ 1) << LOC_BITS | state >> 30,
                    3 => 0,
                    _ => state,
                };
                AtomicU64::new(entry)
            });
            assert_eq!(
                AtomicU64::matching(&bucket, tag),
                word_by_word(&bucket, tag),
                "tag {tag:#x} in {bucket:?}"
            );
        }
    }
}
