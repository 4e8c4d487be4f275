//! Rule 1: functions come with `dyn`, too.
use mneme_space::{Section, SegBox};

fn store<'s>(here: &mut Section<'s>, value: SegBox<'s, dyn Send + Sync>) {
    here.alloc(value).unwrap();
}

fn main() {}
