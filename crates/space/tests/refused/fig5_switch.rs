//! `switch v`: a pointer from before the switch is followed after it.
use mneme_space::Section;

fn switch(here: &mut Section<'_>) {
    let at = here.alloc(7_u64).unwrap();
    let read = here.beside("b", |_, there| at.get(there).is_ok());
    read.unwrap();
}

fn main() {}
