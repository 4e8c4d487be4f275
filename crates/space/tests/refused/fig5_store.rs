//! `*x = y`: what is stored must lead where it is stored.
use mneme_space::{Here, Ptr};

fn store<'a, 'b>(at: Ptr<'a, Ptr<'a, u64>>, here: &mut Here<'a>, other: Ptr<'b, u64>) {
    *at.get_mut(here).unwrap() = other;
}

fn main() {}
