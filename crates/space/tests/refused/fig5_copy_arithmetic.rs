//! `x = y` (arithmetic, casts): a pointer is moved, or changes its type.
use mneme_space::Ptr;

fn behind(at: Ptr<'_, u64>) -> Ptr<'_, u64> {
    at + 1
}

fn signed(at: Ptr<'_, u64>) -> Ptr<'_, i64> {
    at as Ptr<'_, i64>
}

fn main() {}
