//! The state of another process: enough to distinguish one that is stopped from one that works.

/// The state of a process according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// It runs, or is ready to run.
    Running,
    /// It waits for something.
    Sleeping,
    /// It waits for a device and cannot be interrupted.
    Blocked,
    /// It is stopped, by a signal or a debugger, and does nothing until it is continued.
    Stopped,
    /// It has ended, and its parent has not waited for it.
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

/// The state of the process with this id, according to this process's `/proc`; `None` if there is
/// none, or it is not visible from here.
#[must_use]
pub fn process_state(pid: u32) -> Option<ProcessState> {
    state_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The letter after the name, which is in parentheses and may itself contain parentheses.
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

/// Kills a process at once (`SIGKILL`), even if it is stopped. It executes no more instructions of
/// its own.
///
/// # Errors
/// `NotFound`: there is none; `PermissionDenied`: it belongs to another user.
pub fn end_process(pid: u32) -> std::io::Result<()> {
    let pid = match libc::pid_t::try_from(pid) {
        // 0 and negative numbers would be groups.
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
    fn the_letter_is_found_after_any_name() {
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
