//! Rule 1: the brand of a type's parts is that of the whole. One that holds for ever would let its owner take the vector out
//! of the section, and read it when nothing is mapped there any more.
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
