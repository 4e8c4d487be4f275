//! Rule 1: the parts of a type must have the brand of the whole. With a part under `'static`, a
//! vector could be taken out of the section, and be read when nothing is mapped there any more.
use mneme_space::{Section, Ptr, Schema, SegVec, Stored};

#[derive(Stored)]
struct Vector(SegVec<'static, u64>);

#[derive(Stored)]
enum Either<'s> {
    Own(Ptr<'s, u64>),
    Unbranded { at: Ptr<'static, u64> },
}

struct Table;
impl Schema for Table {
    type Root<'s> = Vector;
}

fn take(here: &mut Section<'_>) -> SegVec<'static, u64> {
    here.remove_root::<Table>("a").unwrap().0
}

fn main() {}
