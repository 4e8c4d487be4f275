//! Implements [`Stored`] for types that are not a program's own.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::num::NonZero;

use super::{Shape, Stored};
use crate::heap::Heap;
use crate::{SegBox, SegVec};

macro_rules! plain {
    ($($plain:ty),*) => {
        $(
            // SAFETY: plain bytes of a size and layout that the language defines.
            unsafe impl<'s> Stored<'s> for $plain {
                fn describe(shape: &mut Shape<'s>) {
                    shape.text(stringify!($plain));
                }
            }
        )*
    };
}
plain!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    NonZero<u8>,
    NonZero<u16>,
    NonZero<u32>,
    NonZero<u64>,
    NonZero<usize>
);

// SAFETY: only its elements, side by side.
unsafe impl<'s, T: Stored<'s>, const N: usize> Stored<'s> for [T; N] {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("array");
        shape.number(N as u64);
        shape.part::<T>();
    }
}

macro_rules! tuple {
    ($($part:ident $index:tt),*) => {
        // SAFETY: only its parts, at the offsets described.
        unsafe impl<'s, $($part: Stored<'s>),*> Stored<'s> for ($($part,)*) {
            fn describe(shape: &mut Shape<'s>) {
                shape.text("tuple");
                $(
                    shape.number(offset_of!(Self, $index) as u64);
                    shape.part::<$part>();
                )*
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

// SAFETY: a value or none, which the compiler distinguishes.
unsafe impl<'s, T: Stored<'s>> Stored<'s> for Option<T> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Option");
        shape.by_compiler();
        shape.part::<T>();
    }
}

// SAFETY: one of two values, which the compiler distinguishes.
unsafe impl<'s, T: Stored<'s>, E: Stored<'s>> Stored<'s> for Result<T, E> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Result");
        shape.by_compiler();
        shape.part::<T>();
        shape.part::<E>();
    }
}

// SAFETY: it has no bytes.
unsafe impl<'s, T: Stored<'s>> Stored<'s> for PhantomData<T> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("PhantomData");
        shape.part::<T>();
    }
}

// SAFETY: the address of its segment, which never changes; what the heap may do depends on the
// calling thread's current section.
unsafe impl<'s> Stored<'s> for Heap<'s> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Heap 1");
    }
}

/// The version of `allocator-api2`, pinned in this workspace's `Cargo.toml`, whose private fields
/// are stored.
const ALLOCATOR_API: &str = "allocator-api2 0.2.21";

// SAFETY: an address in its heap's segment (or, empty, a small number), two numbers, and the heap.
unsafe impl<'s, T: Stored<'s>> Stored<'s> for SegVec<'s, T> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Vec");
        shape.text(ALLOCATOR_API);
        shape.by_compiler();
        shape.part::<T>();
    }
}

// SAFETY: an address in its heap's segment, and the heap.
unsafe impl<'s, T: Stored<'s>> Stored<'s> for SegBox<'s, T> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Box");
        shape.text(ALLOCATOR_API);
        shape.by_compiler();
        shape.part::<T>();
    }
}

// SAFETY: an address in its heap's segment, a length, and the heap.
unsafe impl<'s, T: Stored<'s>> Stored<'s> for SegBox<'s, [T]> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("Box of a slice");
        shape.text(ALLOCATOR_API);
        shape.by_compiler();
        shape.part::<T>();
    }
}
