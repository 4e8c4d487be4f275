//! `mneme-bench` with jemalloc, for the peers of `frag`: an allocator is a binary's.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    mneme_bench::main()
}
