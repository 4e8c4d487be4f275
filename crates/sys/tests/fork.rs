//! A forked child knows that it is one.
#![cfg(not(miri))]

use std::sync::{Mutex, mpsc};

use mneme_sys::fork::{self, PerProcess};

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

#[test]
fn a_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_holds() {
    static NUMBERS: PerProcess<Mutex<Vec<bool>>> = PerProcess::new();
    let numbers = || NUMBERS.get(|inherited| Mutex::new(vec![inherited]));
    let (held, is_held) = mpsc::channel();
    let (end, is_over) = mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let mut numbers = numbers().lock().unwrap();
        held.send(()).unwrap();
        let _ = is_over.recv();
        numbers.push(true);
    });
    is_held.recv().unwrap();
    // SAFETY: the child asks for one lock, without waiting, and exits at once.
    let status = unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let own = numbers().try_lock();
            libc::_exit(i32::from(own.map_or(true, |own| *own != [true])));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
    drop(end);
    holder.join().unwrap();
    assert_eq!(*numbers().lock().unwrap(), [false, true]);
}
