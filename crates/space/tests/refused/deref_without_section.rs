//! Rule 1: a pointer is followed without a section.
use mneme_space::Ptr;

fn follow(at: Ptr<'_, u64>) -> u64 {
    *at
}

fn main() {}
