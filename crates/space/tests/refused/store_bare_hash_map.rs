//! Rule 1: an empty hash map points to constants of the program. `SegMap` never does.
use std::hash::RandomState;

use hashbrown::HashMap;
use mneme_space::{Heap, Section};

fn store<'s>(here: &mut Section<'s>, map: HashMap<u64, u64, RandomState, Heap<'s>>) {
    here.alloc(map).unwrap();
}

fn main() {}
