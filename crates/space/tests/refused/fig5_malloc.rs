//! `malloc`: a block of one segment's heap is used as another's.
use mneme_space::{Heap, Section};

fn allocate<'a, 'b>(heap: Heap<'a>, there: &Section<'b>) -> u64 {
    *heap.place(7_u64).unwrap().get(there).unwrap()
}

fn main() {}
