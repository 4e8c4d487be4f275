//! `x = y`: a copy leads where the original leads.
use mneme_space::{Section, Ptr};

fn copy<'a, 'b>(at: Ptr<'a, u64>, there: &Section<'b>) -> u64 {
    let copy = at;
    *copy.get(there).unwrap()
}

fn main() {}
