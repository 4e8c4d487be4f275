//! Rule 1: a pointer obtained in one segment is followed in another.
use mneme_space::{Section, Ptr};

fn follow<'a, 'b>(at: Ptr<'a, u64>, there: &Section<'b>) -> u64 {
    *at.get(there).unwrap()
}

fn main() {}
