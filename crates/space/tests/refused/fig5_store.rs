//! `*x = y`: what is stored must lead where it is stored.
use mneme_space::{Section, Ptr};

fn store<'a, 'b>(at: Ptr<'a, Ptr<'a, u64>>, here: &mut Section<'a>, other: Ptr<'b, u64>) {
    *at.get_mut(here).unwrap() = other;
}

fn main() {}
