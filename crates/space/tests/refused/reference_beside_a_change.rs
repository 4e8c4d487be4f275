//! Rule 1, in Rust's form: a value is read while it is changed through a second pointer.
use mneme_space::{Section, Ptr};

fn both<'s>(one: Ptr<'s, u64>, two: Ptr<'s, u64>, here: &mut Section<'s>) {
    let read = one.get(here).unwrap();
    *two.get_mut(here).unwrap() = 1;
    println!("{read}");
}

fn main() {}
