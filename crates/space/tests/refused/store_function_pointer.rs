//! Rule 1: a pointer to a function is stored in a segment.
use mneme_space::Section;

fn store(here: &mut Section<'_>) {
    here.alloc(main as fn()).unwrap();
}

fn main() {}
