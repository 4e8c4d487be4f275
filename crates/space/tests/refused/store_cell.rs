//! A `Cell` is not a pointer, but it would be changed where the segment may be mapped for reading
//! only.
use mneme_space::Section;

fn store(here: &mut Section<'_>) {
    here.alloc(std::cell::Cell::new(1_u64)).unwrap();
}

fn main() {}
