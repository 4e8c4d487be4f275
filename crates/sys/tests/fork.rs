//! A forked child knows that it is one.
#![cfg(not(miri))]

use mneme_sys::fork;

#[test]
fn the_generation_changes_in_the_child_only() {
    fork::watch();
    fork::watch();
    let before = fork::generation();
    // SAFETY: the child compares two numbers, forks once more, and exits at once.
    let status = unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let first = fork::generation() == before + 1;
            let grandchild = libc::fork();
            if grandchild == 0 {
                libc::_exit(i32::from(fork::generation() != before + 2));
            }
            let mut status = -1;
            libc::waitpid(grandchild, &mut status, 0);
            libc::_exit(i32::from(!first || status != 0));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
    assert_eq!(fork::generation(), before);
}
