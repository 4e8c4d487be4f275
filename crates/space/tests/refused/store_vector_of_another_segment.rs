//! Rule 1: a vector of another segment is refused too, because it owns memory there.
use mneme_space::{Heap, Section, Schema, SegVec};

struct Table;
impl Schema for Table {
    type Root<'s> = SegVec<'s, SegVec<'s, u64>>;
}

fn put<'a, 'b>(here: &mut Section<'a>, other: Heap<'b>) {
    let row = SegVec::new_in(other);
    here.root_mut::<Table>("a").unwrap().push(row);
}

fn main() {}
