//! `mneme-bench`, with the system's allocator.

use std::process::ExitCode;

fn main() -> ExitCode {
    mneme_bench::main()
}
