//! `phi`, and the first condition for a check: the pointer belongs to one of two segments.
use mneme_space::{Section, Ptr};

fn either<'a, 'b>(which: bool, one: Ptr<'a, u64>, two: Ptr<'b, u64>, here: &Section<'a>) -> u64 {
    let at = if which { one } else { two };
    *at.get(here).unwrap()
}

fn main() {}
