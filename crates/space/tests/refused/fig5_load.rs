//! `x = *y`: a loaded pointer belongs to the segment that it was loaded from.
use mneme_space::{Section, Ptr};

fn load<'a, 'b>(at: Ptr<'a, Ptr<'a, u64>>, here: &Section<'a>, there: &Section<'b>) -> u64 {
    let loaded = *at.get(here).unwrap();
    *loaded.get(there).unwrap()
}

fn main() {}
