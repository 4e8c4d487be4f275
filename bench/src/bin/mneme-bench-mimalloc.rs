//! `mneme-bench` with mimalloc, for the peers of `frag`: an allocator is a binary's.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mneme_bench::main()
}
