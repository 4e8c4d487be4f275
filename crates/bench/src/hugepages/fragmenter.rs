//! The fragmenter: a process that leaves no free memory in pieces of 2 MiB, and most of it free.
//!
//! Pages of programs can be moved, so the kernel gathers free space for a huge page. Page tables
//! cannot. A page that is only read costs its page table, 4 KiB for each 2 MiB of addresses, and no
//! more. So the fragmenter reads one byte of each 2 MiB of a few terabytes: page tables fill the
//! memory in the order in which the kernel gives it out. Then it gives back all but one in
//! [`GROUP`]. What is left in huge pieces all the same, it takes.

use crate::error::BenchError;
use crate::options::Fragmenter;
use crate::processes::say;
use mneme_sys::{PageKind, PagePolicy, Region};
use std::io::Read;

const HUGE: usize = 2 << 20;
/// Page tables of which one stays: a MiB of them.
const GROUP: usize = 256;
/// How much is taken in huge pages at a time.
const PIECE: usize = 64 << 20;

/// Fragments, says so, and keeps what it has until its input ends.
///
/// # Errors
/// The kernel gives no addresses, or nobody listens.
pub fn fragment_here(options: &Fragmenter) -> Result<(), BenchError> {
    // If memory runs out, this process is the one to end.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let mut given_back = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..options.bytes / (GROUP as u64 * 4096) {
        given_back.push(tables(GROUP - 1)?);
        kept.push(tables(1)?);
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
    say(&(whole.len() * (PIECE >> 20)).to_string())?;
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    Ok(())
}

/// Addresses with so many page tables.
fn tables(count: usize) -> Result<Region, BenchError> {
    let len = count * HUGE;
    let region = Region::private(len, len, PagePolicy::Small)?;
    for at in (0..len).step_by(HUGE) {
        // SAFETY: the byte is the region's, which nobody else has.
        unsafe { region.base().add(at).read_volatile() };
    }
    Ok(region)
}
