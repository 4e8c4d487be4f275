//! Broken twins: a protocol with one step left out, which the tests of it must find out.

use std::panic::catch_unwind;

/// A step of a protocol, and tests each of which fails without it.
pub type Step = (&'static str, &'static [fn()]);

/// Leaves out each step in turn. Panics if one of the tests beside it does not fail then, or if the
/// list of steps is not `steps`.
pub fn every_step_is_needed(
    steps: &[&'static str],
    caught_by: &[Step],
    leave_out: impl Fn(&'static str),
) {
    let listed: Vec<_> = caught_by.iter().map(|(step, _)| *step).collect();
    assert_eq!(listed, steps);
    let mut missed = Vec::new();
    for (step, tests) in caught_by {
        for (number, test) in tests.iter().enumerate() {
            leave_out(step);
            let caught = catch_unwind(test).is_err();
            leave_out("");
            if !caught {
                missed.push((step, number));
            }
        }
    }
    assert!(
        missed.is_empty(),
        "not needed by the tests of those numbers: {missed:?}"
    );
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(static LEFT_OUT: Cell<&'static str> = const { Cell::new("") });

    #[test]
    fn a_step_that_no_test_misses_is_found() {
        const NEEDS_ONE: &[fn()] = &[|| assert_ne!(LEFT_OUT.get(), "one")];
        let leave_out = |step| LEFT_OUT.set(step);
        every_step_is_needed(&["one"], &[("one", NEEDS_ONE)], leave_out);
        let unneeded = || every_step_is_needed(&["two"], &[("two", NEEDS_ONE)], leave_out);
        assert!(catch_unwind(unneeded).is_err());
        assert!(catch_unwind(|| every_step_is_needed(&["one"], &[], leave_out)).is_err());
    }
}
