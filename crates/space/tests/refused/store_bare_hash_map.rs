//! Rule 1: a hash map that points to constants of the program while it is empty. `SegMap` never does.
use std::hash::RandomState;

use hashbrown::HashMap;
use mneme_space::{Heap, Section};

fn store<'s>(here: &mut Section<'s>, map: HashMap<u64, u64, RandomState, Heap<'s>>) {
    here.alloc(map).unwrap();
}

fn main() {}
