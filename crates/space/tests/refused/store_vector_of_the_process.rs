//! Rule 1: a pointer to the process's own heap is stored in a segment.
use mneme_space::Section;

fn store(here: &mut Section<'_>) {
    here.alloc(vec![1_u64]).unwrap();
}

fn main() {}
