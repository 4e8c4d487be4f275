//! Rule 1: a pointer to a global is stored in a segment; in another process something else lies there.
use mneme_space::Here;

static NAME: &str = "a global";

fn store(here: &mut Here<'_>) {
    here.alloc(NAME).unwrap();
}

fn main() {}
