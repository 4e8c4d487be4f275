//! What another process is doing: enough to tell one that is stopped from one that works.

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// It runs, or wants to.
    Running,
    /// It waits, for whatever.
    Sleeping,
    /// It waits for a device and cannot be disturbed.
    Blocked,
    /// It is stopped, by a signal or a debugger, and does nothing until it is continued.
    Stopped,
    /// It has ended, and its parent has not asked for it.
    Ended,
}

impl std::fmt::Display for ProcessState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ProcessState::Running => "running",
            ProcessState::Sleeping => "sleeping",
            ProcessState::Blocked => "waiting for a device",
            ProcessState::Stopped => "stopped",
            ProcessState::Ended => "ended",
        })
    }
}

/// The state of the process with this id, as this process' `/proc` has it; `None`: there is none,
/// or it cannot be seen from here. Reads a file of the kernel's.
#[must_use]
pub fn process_state(pid: u32) -> Option<ProcessState> {
    state_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The letter behind the name, which is in parentheses and may have some itself.
fn state_in(stat: &str) -> Option<ProcessState> {
    let letter = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    Some(match letter {
        'R' => ProcessState::Running,
        'S' | 'I' => ProcessState::Sleeping,
        'D' => ProcessState::Blocked,
        'T' | 't' => ProcessState::Stopped,
        'Z' | 'X' | 'x' => ProcessState::Ended,
        _ => return None,
    })
}

/// Ends a process at once (`SIGKILL`), also one that is stopped. It runs no line of its own any
/// more.
///
/// # Errors
/// `NotFound`: there is none; `PermissionDenied`: it is another user's.
pub fn end_process(pid: u32) -> std::io::Result<()> {
    let pid = match libc::pid_t::try_from(pid) {
        // 0 and negative numbers are groups.
        Ok(pid) if pid > 0 => pid,
        _ => return Err(std::io::ErrorKind::NotFound.into()),
    };
    // SAFETY: no memory is involved.
    if unsafe { libc::kill(pid, libc::SIGKILL) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::ESRCH) => std::io::ErrorKind::NotFound.into(),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letter_is_found_behind_any_name() {
        assert_eq!(
            state_in("12 (a) T (b) S 1 12"),
            Some(ProcessState::Sleeping)
        );
        assert_eq!(state_in("12 (x) T 1"), Some(ProcessState::Stopped));
        assert_eq!(state_in("12 (x)"), None);
        assert_eq!(state_in(""), None);
    }

    #[cfg(not(miri))]
    #[test]
    fn this_process_is_not_stopped() {
        let state = process_state(std::process::id()).expect("it is there");
        assert!(matches!(
            state,
            ProcessState::Running | ProcessState::Sleeping
        ));
        assert_eq!(process_state(u32::MAX), None);
    }
}
