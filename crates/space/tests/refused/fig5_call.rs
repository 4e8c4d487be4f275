//! `x = foo(y)`: a function is called in another segment than its argument's.
use mneme_space::{Section, Ptr};

fn foo<'s>(at: Ptr<'s, u64>, here: &Section<'s>) -> u64 {
    *at.get(here).unwrap()
}

fn call<'a, 'b>(at: Ptr<'a, u64>, there: &Section<'b>) -> u64 {
    foo(at, there)
}

fn main() {}
