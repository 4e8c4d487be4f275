//! Rule 1: a macro must not show the derived code another type than that of the field.
use mneme_space::Stored;

/// Expands to a pointer into the process when it is given the parameter, and to a number of equal
/// size when it is given the heap.
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
