//! Reading one key, in three ways over one validated look at its bucket
//! ([`read_bucket`](crate::index::lookup::Lookup::read_bucket)):
//!
//! | module | pin | the value | waits for |
//! |---|---|---|---|
//! | [`fast`] | either | in place | nothing: it gives up |
//! | [`pinned`] | firm | is lent, or copied if it may change | transactions, a second at most |
//! | [`copying`] | may be revoked | is copied | transactions, without a pin |
//!
//! Both of the latter begin with the optimistic read of the first.

pub(crate) mod copying;
pub(crate) mod fast;
pub(crate) mod pinned;
