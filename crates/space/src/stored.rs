//! What may lie in a segment, and how two programs notice that they mean different things by it.
//!
//! **A stored value means the same in every process that may see it**: it points into its own
//! segment or nowhere, has no code in it, and changes only through `&mut`. [`Stored`] says that of
//! a type; `#[derive(Stored)]` says it of a structure whose fields are all stored. A segment's root
//! is kept with a hash of its type's [`Shape`]: names, sizes, offsets, representation, all the way
//! down; a caller that asks for another gets an error that names both.

mod impls;
mod shape;

pub use mneme_space_derive::Stored;
pub use shape::Shape;
pub(crate) use shape::shape_of;

/// Types whose values may lie in a segment, in sections with brand `'s`.
///
/// Implemented for integers, floats, `bool`, `char`, arrays, tuples, `Option`, `Result`,
/// [`Ptr`](crate::Ptr), [`Heap`](crate::Heap), [`SegVec`](crate::SegVec),
/// [`SegBox`](crate::SegBox), [`SegString`](crate::SegString) and [`SegMap`](crate::SegMap). Not
/// for references, function pointers, `dyn`, `Cell` and atomics, and the collections of `std`,
/// whose memory is the process' own.
///
/// ```
/// use mneme_space::{SegBox, SegVec, Stored};
///
/// #[derive(Stored)]
/// struct Read<'s> {
///     name: SegVec<'s, u8>,
///     position: u64,
///     next: Option<SegBox<'s, Read<'s>>>,
/// }
/// ```
///
/// A type that is generic over its allocator can lie on the process' own heap, too; it says which
/// parameter that is:
/// ```
/// use allocator_api2::{alloc::Allocator, boxed::Box, vec::Vec};
/// use mneme_space::{Heap, Stored};
///
/// #[derive(Stored)]
/// #[stored(allocator = A)]
/// struct Read<A: Allocator> {
///     name: Vec<u8, A>,
///     next: Option<Box<Read<A>, A>>,
/// }
///
/// fn can_lie_in_a_segment<'s, T: Stored<'s>>() {}
/// fn shown<'s>() {
///     can_lie_in_a_segment::<'s, Read<Heap<'s>>>();
/// }
/// ```
/// With another allocator, or with a field that cannot, it may not:
/// ```compile_fail
/// # use allocator_api2::{alloc::{Allocator, Global}, vec::Vec};
/// # use mneme_space::Stored;
/// #[derive(Stored)]
/// #[stored(allocator = A)]
/// struct Read<A: Allocator>(Vec<u8, A>);
/// fn can_lie_in_a_segment<'s, T: Stored<'s>>() {}
/// fn refused<'s>() {
///     can_lie_in_a_segment::<'s, Read<Global>>();
/// }
/// ```
/// ```compile_fail
/// # use allocator_api2::{alloc::Allocator, vec::Vec};
/// # use mneme_space::Stored;
/// #[derive(Stored)]
/// #[stored(allocator = A)]
/// struct Read<A: Allocator>(Vec<u8, A>, std::vec::Vec<u8>);
/// ```
///
/// # Safety
/// Of a value of the type, also one that another process wrote with the same [`Shape`]:
/// * it holds no address but such as lie in its own segment (by [`Heap`](crate::Heap),
///   [`Ptr`](crate::Ptr) and what is made of them), nothing that means something in one process
///   only (descriptors, thread ids, indices into statics);
/// * nothing in it changes through a shared reference: it may be mapped read-only, and be read by
///   many at once;
/// * it contains the brand at most as `'s`, so that it cannot leave its section by way of another
///   lifetime;
/// * [`describe`](Self::describe) names everything that its bytes' meaning depends on, in the
///   same order always.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a segment",
    label = "not `Stored`",
    note = "a stored value must mean the same in every process: no references, function pointers, `dyn`, cells, atomics, nor collections of `std`",
    note = "inside of a segment use `SegVec<'s, T>`, `SegString<'s>`, `SegMap<'s, K, V>`, `SegBox<'s, T>`, `Ptr<'s, T>`; for your own types `#[derive(Stored)]`"
)]
pub unsafe trait Stored<'s>: Sized + Send + Sync {
    /// Tells `shape` of everything in the type: its name, then each field's name, offset and type.
    fn describe(shape: &mut Shape<'s>);
}

/// What a segment holds: a type for every brand. The type that implements it is a name only.
///
/// ```
/// use mneme_space::{Schema, SegVec};
/// struct Phonebook;
/// impl Schema for Phonebook {
///     type Root<'s> = SegVec<'s, (u64, SegVec<'s, u8>)>;
/// }
/// ```
pub trait Schema: 'static {
    /// The root's type in a section with brand `'s`.
    type Root<'s>: Stored<'s>;
    /// Changed when the same types come to mean something else.
    const VERSION: u32 = 0;
}
