//! The `mneme` command in use by people and programs. All modules are one test program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

#[path = "../common/mod.rs"]
mod common;

mod check;
mod command;
mod durable;
mod encryption;
mod lent;
mod local_programs;
mod network_mount;
mod open_files;
mod segment;
mod segments;
mod space;
mod stat;
mod supervisor;
mod tree;
mod trust;
