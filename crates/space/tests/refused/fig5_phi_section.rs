//! The second condition for a check: the current segment is one of two.
use mneme_space::{Section, Ptr};

fn either<'a, 'b>(which: bool, at: Ptr<'a, u64>, here: &Section<'a>, there: &Section<'b>) -> u64 {
    let current = if which { here } else { there };
    *at.get(current).unwrap()
}

fn main() {}
