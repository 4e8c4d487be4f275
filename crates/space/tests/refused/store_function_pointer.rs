//! Rule 1: a pointer to a function is stored in a segment.
use mneme_space::Here;

fn store(here: &mut Here<'_>) {
    here.alloc(main as fn()).unwrap();
}

fn main() {}
