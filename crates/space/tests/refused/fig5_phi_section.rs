//! The second condition for a check: one of two current segments.
use mneme_space::{Here, Ptr};

fn either<'a, 'b>(which: bool, at: Ptr<'a, u64>, here: &Here<'a>, there: &Here<'b>) -> u64 {
    let current = if which { here } else { there };
    *at.get(current).unwrap()
}

fn main() {}
