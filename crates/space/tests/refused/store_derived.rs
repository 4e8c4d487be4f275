//! Rule 1: a program's own type that holds something that may not be stored is refused where it is
//! declared.
use mneme_space::{Ptr, Stored};

#[derive(Stored)]
struct Reference<'s> {
    name: &'s str,
}

#[derive(Stored)]
struct Function {
    call: fn(u64) -> u64,
}

#[derive(Stored)]
struct Raw {
    at: *mut u64,
}

#[derive(Stored)]
struct TwoSegments<'a, 'b> {
    one: Ptr<'a, u64>,
    two: Ptr<'b, u64>,
}

#[derive(Stored)]
union Either {
    number: u64,
    at: usize,
}

fn main() {}
