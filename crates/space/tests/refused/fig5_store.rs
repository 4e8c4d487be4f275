//! `*x = y`: a stored pointer must belong to the segment that it is stored in.
use mneme_space::{Section, Ptr};

fn store<'a, 'b>(at: Ptr<'a, Ptr<'a, u64>>, here: &mut Section<'a>, other: Ptr<'b, u64>) {
    *at.get_mut(here).unwrap() = other;
}

fn main() {}
