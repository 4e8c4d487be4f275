//! Rule 3: a pointer loaded from the stack still belongs to the segment that it belonged to before.
use mneme_space::{Section, Ptr};

fn follow<'a, 'b>(list: &Vec<Ptr<'a, u64>>, there: &Section<'b>) -> u64 {
    *list[0].get(there).unwrap()
}

fn main() {}
