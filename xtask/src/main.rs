//! The developer's errands: `cargo xtask ci`, `cargo xtask ladder`.

fn main() {}
