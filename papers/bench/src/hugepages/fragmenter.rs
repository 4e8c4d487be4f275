//! The fragmenter: a process that leaves no free memory in pieces of 2 MiB, and most of it free.
//!
//! Pages of programs can be moved, so the kernel gathers free space for a huge page. Page tables
//! cannot. A page that is only read costs its page table, 4 KiB for each 2 MiB of addresses, and no
//! more. So the fragmenter reads one byte of each 2 MiB of a few terabytes: page tables fill the
//! memory in the order in which the kernel gives it out. Then it gives back all but one in
//! [`GROUP`]. What is left in huge pieces all the same, it takes.

use crate::options::Fragmenter;
use mneme_bench::error::BenchError;
use mneme_bench::processes::say;
use mneme_sys::{PageKind, PagePolicy, Region};
use std::io::Read;

const HUGE: usize = 2 << 20;
/// Page tables of which one stays: a MiB of them.
const GROUP: u64 = 256;
/// Page tables whose addresses are had at a time: those of a GiB.
const IN_PIECE: usize = 512;
/// How much is taken in huge pages at a time.
const PIECE: usize = 64 << 20;

/// Fragments, says so, and keeps what it has until its input ends.
///
/// # Errors
/// The kernel gives no addresses, or nobody listens.
pub fn fragment_here(options: &Fragmenter) -> Result<(), BenchError> {
    // If memory runs out, this process is the one to end.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let (mut given_back, mut kept) = (Tables::default(), Tables::default());
    for number in 1..=options.bytes / 4096 {
        match number.is_multiple_of(GROUP) {
            true => kept.take()?,
            false => given_back.take()?,
        }
    }
    drop(given_back);
    let mut whole = Vec::new();
    for _ in 0..options.bytes / PIECE as u64 {
        let piece = Region::private(PIECE, PIECE, PagePolicy::Thp)?;
        piece.prefault(0..PIECE)?;
        if piece.pages().kind == PageKind::Small {
            break;
        }
        whole.push(piece);
    }
    say(Ok(whole.len() * (PIECE >> 20)))?;
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    Ok(())
}

/// Page tables, taken one by one. Their addresses are had in large pieces, because a process may
/// have some ten thousand mappings only, and no larger ones, because the kernel refuses a mapping
/// that memory could never fill.
#[derive(Default)]
struct Tables {
    pieces: Vec<Region>,
    taken: usize,
}

impl Tables {
    /// One more.
    fn take(&mut self) -> Result<(), BenchError> {
        let at = self.taken % IN_PIECE;
        if at == 0 {
            let len = IN_PIECE * HUGE;
            let piece = Region::private(len, len, PagePolicy::Small)?;
            self.pieces.push(piece);
        }
        if let Some(piece) = self.pieces.last() {
            // SAFETY: the byte is the region's, which nobody else has.
            unsafe { piece.base().add(at * HUGE).read_volatile() };
        }
        self.taken += 1;
        Ok(())
    }
}
