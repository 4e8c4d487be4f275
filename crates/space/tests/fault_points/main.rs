//! Operations that have fault points: with the feature `fault`, deaths at each of them; without it,
//! the other promises of the same operations.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod deaths;
mod durable;
mod growth;
mod laid_out;
mod lock_takeover;
mod restoring;
