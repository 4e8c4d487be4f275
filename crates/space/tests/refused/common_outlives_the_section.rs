//! Rule 3: a global would still hold the pointer after the section is left.
use std::cell::RefCell;

use mneme_space::{Section, Ptr};

thread_local! {
    static KEPT: RefCell<Option<Ptr<'static, u64>>> = const { RefCell::new(None) };
}

fn keep<'s>(here: &mut Section<'s>) {
    let at = here.alloc(7_u64).unwrap();
    KEPT.set(Some(at));
}

fn main() {}
