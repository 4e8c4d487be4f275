//! Rule 1: a pointer to a global is stored; another process may have something else at that
//! address.
use mneme_space::Section;

static NAME: &str = "a global";

fn store(here: &mut Section<'_>) {
    here.alloc(NAME).unwrap();
}

fn main() {}
