//! What has fault points in tests: deaths at each of them, with the feature `fault`, and what the
//! same subjects promise without.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod calls;
#[cfg(feature = "fault")]
mod deaths;
mod durable;
mod growth;
mod laid_out;
#[cfg(feature = "fault")]
mod lock_takeover;
#[cfg(feature = "fault")]
mod restoring;
