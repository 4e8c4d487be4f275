//! `x = *y`: what is loaded leads where it was loaded from.
use mneme_space::{Here, Ptr};

fn load<'a, 'b>(at: Ptr<'a, Ptr<'a, u64>>, here: &Here<'a>, there: &Here<'b>) -> u64 {
    let loaded = *at.get(here).unwrap();
    *loaded.get(there).unwrap()
}

fn main() {}
