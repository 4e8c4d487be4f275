//! Segments and spaces, tested through the crate's public interface. All modules form one test
//! program.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod attach;
mod damage;
mod destructors;
mod follow;
mod import;
mod planted;
mod processes;
mod rename;
mod restore;
mod section_guard;
mod segments;
mod sharing;
mod spaces;
mod switch;
