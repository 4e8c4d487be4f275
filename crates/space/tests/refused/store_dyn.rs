//! Rule 1: functions come with `dyn`, too.
use mneme_space::{Here, SegBox};

fn store<'s>(here: &mut Here<'s>, value: SegBox<'s, dyn Send + Sync>) {
    here.alloc(value).unwrap();
}

fn main() {}
