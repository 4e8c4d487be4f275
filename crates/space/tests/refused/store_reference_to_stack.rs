//! Rule 1: a pointer to the stack is stored in a segment.
use mneme_space::Section;

fn store(here: &mut Section<'_>) {
    let local = 7_u64;
    here.alloc(&local).unwrap();
}

fn main() {}
