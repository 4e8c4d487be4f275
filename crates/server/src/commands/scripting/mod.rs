//! Scripts and functions are not supported, but test suites and tools ask to remove them.

mod function;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[&function::FUNCTION];
