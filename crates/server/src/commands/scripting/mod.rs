//! Scripts and functions: there are none, but test suites and tools ask to have them removed.

mod function;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[&function::FUNCTION];
