//! The `mneme` command.

fn main() {}
