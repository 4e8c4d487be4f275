//! The number of files, including sockets, that this process may have open at once.

use std::io;

/// Raises the limit on open files to `wanted`, or as far as this process may, and never lowers it.
/// Returns the resulting limit; `u64::MAX` for none.
///
/// # Errors
/// Errors of the system, if it does not report the limit.
pub fn allow_open_files(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for one `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    // Beyond the hard limit if this process may, otherwise up to it.
    let attempts = [wanted.max(limit.rlim_max), limit.rlim_max];
    for hard in attempts {
        let raised = libc::rlimit {
            rlim_cur: wanted.min(hard),
            rlim_max: hard,
        };
        // SAFETY: `raised` is a valid `rlimit`, which the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            return Ok(raised.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no limits")]
    fn the_limit_is_never_lowered() {
        let before = allow_open_files(1).unwrap();
        assert_eq!(allow_open_files(1).unwrap(), before);
        assert_eq!(allow_open_files(before).unwrap(), before);
        assert!(allow_open_files(before.saturating_add(1)).unwrap() >= before);
    }
}
