//! The resources that this process has used: processor time, and memory as the system counts it.

use std::time::Duration;

/// The threads whose processor time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOf {
    /// All threads of this process, including those that have ended.
    Process,
    /// The children that have ended and been waited for.
    Children,
    /// The calling thread.
    Thread,
    /// The process's first thread, in the clock ticks that `/proc` counts; zeros if that is not
    /// available.
    MainThread,
}

/// Processor time: of the program itself, and of the kernel on its behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// The program itself.
    pub user: Duration,
    /// The kernel on its behalf.
    pub system: Duration,
}

/// The processor time used so far (`getrusage`). A system call.
#[must_use]
pub fn cpu_time(of: TimeOf) -> CpuTime {
    let who = match of {
        TimeOf::Process => libc::RUSAGE_SELF,
        TimeOf::Children => libc::RUSAGE_CHILDREN,
        TimeOf::Thread => libc::RUSAGE_THREAD,
        TimeOf::MainThread => return main_thread().unwrap_or_default(),
    };
    // SAFETY: `rusage` consists of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing during the call. The call can only fail for an invalid
    // `who`, and then leaves zeros.
    unsafe { libc::getrusage(who, &raw mut usage) };
    CpuTime {
        user: span(usage.ru_utime),
        system: span(usage.ru_stime),
    }
}

fn main_thread() -> Option<CpuTime> {
    let pid = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{pid}/stat")).ok()?;
    // SAFETY: no memory is involved.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let a_second = u32::try_from(a_second).ok().filter(|ticks| *ticks > 0)?;
    let (user, system) = ticks_in(&stat)?;
    let span = |ticks: u64| Duration::from_secs(ticks) / a_second;
    Some(CpuTime {
        user: span(user),
        system: span(system),
    })
}

/// The clock ticks of the program and of the kernel. They follow the name, which is in parentheses
/// and may itself contain parentheses.
fn ticks_in(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn span(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// The number of bytes of memory that this process has mapped and that are resident, including
/// pages of the hugetlb pool; without such pages, what `top` shows as RES. `None` if `/proc` is not
/// available. Takes the same time for any size.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(bytes("VmRSS:")? + bytes("HugetlbPages:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_pool_count_as_resident() {
        let status = "Name:\tx\nVmRSS:\t    1024 kB\nHugetlbPages:\t    2048 kB\n";
        assert_eq!(resident_in(status), Some(3 << 20));
        assert_eq!(resident_in("VmRSS:\t 4 kB\n"), Some(4096));
        assert_eq!(resident_in("Name:\tx\n"), None);
    }

    #[test]
    fn ticks_are_found_after_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 55 66 0 0 20 0 1 0";
        assert_eq!(ticks_in(stat), Some((55, 66)));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }

    #[cfg(not(miri))]
    #[test]
    fn memory_that_is_touched_becomes_resident() {
        let before = resident_memory().expect("there is /proc");
        // More than is checked for, because other tests of this process may free some meanwhile.
        let memory = std::hint::black_box(vec![1u8; 96 << 20]);
        let after = resident_memory().expect("there is /proc");
        assert!(after >= before + (60 << 20), "{before} {after}");
        drop(memory);
    }

    #[cfg(not(miri))]
    #[test]
    fn work_takes_processor_time_of_its_thread_and_its_process() {
        let (thread, process) = (cpu_time(TimeOf::Thread), cpu_time(TimeOf::Process));
        let total = |time: CpuTime| time.user + time.system;
        let mut number = 1u64;
        while total(cpu_time(TimeOf::Thread)) < total(thread) + Duration::from_millis(20) {
            for _ in 0..1000 {
                number = std::hint::black_box(number.wrapping_mul(3));
            }
        }
        assert!(total(cpu_time(TimeOf::Process)) > total(process));
    }
}
