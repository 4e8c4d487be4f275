//! `ret x`: a function declares that it returns another segment's pointer.
use mneme_space::Ptr;

fn ret<'a, 'b>(at: Ptr<'a, u64>) -> Ptr<'b, u64> {
    at
}

fn main() {}
