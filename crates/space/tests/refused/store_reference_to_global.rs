//! Rule 1: a pointer to a global is stored in a segment; in another process something else lies there.
use mneme_space::Section;

static NAME: &str = "a global";

fn store(here: &mut Section<'_>) {
    here.alloc(NAME).unwrap();
}

fn main() {}
