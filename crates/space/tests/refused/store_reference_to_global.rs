//! Rule 1: a stored pointer to a global, where another process has something else.
use mneme_space::Section;

static NAME: &str = "a global";

fn store(here: &mut Section<'_>) {
    here.alloc(NAME).unwrap();
}

fn main() {}
