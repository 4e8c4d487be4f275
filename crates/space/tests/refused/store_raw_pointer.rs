//! Rule 1: a pointer of unknown origin is stored in a segment.
use mneme_space::Section;

fn store(here: &mut Section<'_>, at: *const u64) {
    here.alloc(at).unwrap();
}

fn main() {}
