//! The types whose values may lie in a segment, and the check that two programs mean the same by
//! such a type.
//!
//! **A stored value means the same in every process that may see it**: it points into its own
//! segment or nowhere, contains no code, and changes only through `&mut`. A type that implements
//! [`Stored`] promises that; `#[derive(Stored)]` implements it for a structure whose fields are all
//! stored. A segment keeps a hash of its root's [`Shape`], which covers names, sizes, offsets and
//! representation at all levels. A caller that asks for a root of another shape gets an error that
//! names both hashes.

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
/// implemented for references, function pointers, `dyn`, `Cell`, atomics and the collections of
/// `std`, whose memory belongs to one process.
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
/// A type that is generic over its allocator can also be used on the process's own heap. An
/// attribute names the parameter:
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
/// With another allocator, or with a field that cannot be stored, the type is refused:
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
/// For every value of the type, including one that another process wrote with the same [`Shape`]:
/// * it holds only addresses in its own segment (obtained through [`Heap`](crate::Heap),
///   [`Ptr`](crate::Ptr) and types built on them), and nothing that is meaningful in one process
///   only, such as descriptors, thread ids or indices into statics;
/// * nothing in it changes through a shared reference: it may be mapped read-only, and several
///   threads may read it at once;
/// * the only brand in it is `'s`, so that it cannot leave its section under another lifetime;
/// * [`describe`](Self::describe) reports everything that the meaning of its bytes depends on,
///   always in the same order.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a segment",
    label = "not `Stored`",
    note = "a stored value must mean the same in every process: no references, function pointers, `dyn`, cells, atomics, nor collections of `std`",
    note = "inside of a segment use `SegVec<'s, T>`, `SegString<'s>`, `SegMap<'s, K, V>`, `SegBox<'s, T>`, `Ptr<'s, T>`; for your own types `#[derive(Stored)]`"
)]
pub unsafe trait Stored<'s>: Sized + Send + Sync {
    /// Adds everything in the type to `shape`: its name, then each field's name, offset and type.
    fn describe(shape: &mut Shape<'s>);
}

/// Names the type of a segment's root for every brand. The implementing type is only a name; it has
/// no values.
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
    /// To be changed when the same types get another meaning.
    const VERSION: u32 = 0;
}
