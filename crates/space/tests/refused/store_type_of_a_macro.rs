//! Rule 1: a macro must not show the derived code another type than the field has.
use mneme_space::Stored;

/// A pointer into the process where it is given the parameter, a number of its size where it is
/// given the heap.
macro_rules! depends_on_its_words {
    (A) => { &'static u64 };
    ($($other:tt)*) => { usize };
}

#[derive(Stored)]
#[stored(allocator = A)]
struct Disguised<A> {
    heap: A,
    at: depends_on_its_words!(A),
}

#[derive(Stored)]
#[stored(allocator = A)]
struct Inside<A> {
    heap: A,
    at: Option<(u8, depends_on_its_words!(A))>,
}

fn main() {}
