//! Rule 1: another segment's heap is refused, because it could bring its blocks into this segment
//! later.
use mneme_space::{Heap, Section, SegVec};

fn put<'a, 'b>(vector: &mut SegVec<'a, SegVec<'a, u64>>, there: &Section<'b>) {
    let heap: Heap<'a> = there.heap("b").unwrap();
    vector.push(SegVec::new_in(heap));
}

fn main() {}
