//! Rule 1: a pointer to the stack is stored in a segment.
use mneme_space::Here;

fn store(here: &mut Here<'_>) {
    let local = 7_u64;
    here.alloc(&local).unwrap();
}

fn main() {}
