//! `vcast`: the rules are overridden without an explicit cast.
use mneme_space::{Section, Ptr};

fn cast<'a, 'b>(at: Ptr<'a, u64>, there: &Section<'b>) -> u64 {
    let at: Ptr<'b, u64> = at.vcast(there).unwrap();
    *at.get(there).unwrap()
}

fn main() {}
