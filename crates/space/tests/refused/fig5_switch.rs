//! `switch v`: a pointer from before it is followed after it.
use mneme_space::Here;

fn switch(here: &mut Here<'_>) {
    let at = here.alloc(7_u64).unwrap();
    let read = here.beside("b", |_, there| at.get(there).is_ok());
    read.unwrap();
}

fn main() {}
