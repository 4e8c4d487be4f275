//! The protocols of this crate under a model checker, as `mneme-sync` has its own. The code that
//! runs is the crate's, over words of the checker. Each model has twins, broken on purpose, which
//! must fail.

#[path = "../../../crates/sync/src/models/checker.rs"]
mod checker;
mod ranges;
mod rcx;

use checker::{Model, fails, holds, spawn};
use mneme_sync::Word;
