//! Rule 1: a macro must not show the derived code another type than that of the field.
use mneme_space::Stored;

/// A pointer into the process if it is given the parameter, but a number of the same size if it is
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
