//! What lies below the log: participants and frames.

use std::sync::Arc;

use mneme_arena::{Arena, ExtentState};
use mneme_sync::Participants;
use mneme_sys::{Region, SysfsTopology};

/// What is wrong there when only the caller with its opening and `participants` is left: a process
/// that is still attached, a slot, a pin, or frames of `data` that were never adopted.
pub fn left_over(data: Region, participants: &Participants) -> Vec<String> {
    let topology = Arc::new(SysfsTopology::detect());
    let arena = Arena::open(Arc::new(data), participants.clone(), topology).unwrap();
    let mut problems: Vec<String> = arena
        .extents()
        .filter(|extent| extent.state != ExtentState::Held)
        .map(|extent| format!("nobody has adopted {extent:?}"))
        .collect();
    let checked = arena.check().unwrap();
    problems.extend(checked.iter().map(ToString::to_string));
    problems.extend(participants.check());
    let stats = participants.stats();
    // The caller's, and this.
    if stats.processes != 2 || stats.slots > 2 || stats.oldest_pin.is_some() {
        problems.push(format!("somebody is still there: {stats:?}"));
    }
    problems
}
