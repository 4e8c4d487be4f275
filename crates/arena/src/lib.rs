//! Which bytes of a region are whose.
