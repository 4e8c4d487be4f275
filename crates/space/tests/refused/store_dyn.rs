//! Rule 1: a `dyn` type is refused, because it contains function pointers.
use mneme_space::{Section, SegBox};

fn store<'s>(here: &mut Section<'s>, value: SegBox<'s, dyn Send + Sync>) {
    here.alloc(value).unwrap();
}

fn main() {}
