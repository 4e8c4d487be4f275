//! The CPU that is reported is the one that runs the thread.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use mneme_sys::{CpuId, CpuSource, cpu_source, current_cpu};

/// The CPUs that this thread may run on.
fn allowed() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is an array of integers; the call fills it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect()
    }
}

#[test]
fn a_thread_that_is_tied_to_a_cpu_is_reported_there() {
    std::thread::spawn(|| {
        for cpu in allowed() {
            // SAFETY: as above; ties the calling thread only.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
            }
            assert_eq!(current_cpu(), CpuId(cpu as u32));
        }
    })
    .join()
    .unwrap();
}

/// The child's part: without `rseq` (glibc is asked not to register it) the next means serves.
#[test]
fn child_without_rseq() {
    if std::env::var_os("MNEME_TEST_WITHOUT_RSEQ").is_none() {
        return;
    }
    assert_ne!(cpu_source(), CpuSource::Rseq);
    a_thread_that_is_tied_to_a_cpu_is_reported_there();
    println!("all is well");
}

#[test]
fn without_rseq_the_answer_is_the_same() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_without_rseq", "--nocapture"])
        .env("MNEME_TEST_WITHOUT_RSEQ", "1")
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("all is well"), "{output:?}");
}
