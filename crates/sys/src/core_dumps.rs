//! Whether the kernel writes the memory of this process to a file when it crashes.

use std::io;

/// Prevents core dumps of this process, in files and by programs that the kernel starts for them.
/// Debuggers may still attach.
///
/// # Errors
/// Errors of the system; core dumps are written as before.
pub fn forbid_core_dumps() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for one `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_CORE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // One byte: no file is that short, and Linux starts no program for it either. It does so at 0.
    limit.rlim_cur = 1;
    limit.rlim_max = limit.rlim_max.max(1);
    // SAFETY: `limit` is a valid `rlimit`, which the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) } == 0 {
        return Ok(());
    }
    // The hard limit is 0, and this process may not raise it.
    // SAFETY: this option takes a number and no address.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
