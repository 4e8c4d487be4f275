//! Durable stores whose lives are recorded, and crashed.
// Each test uses a part of it.
#![allow(dead_code)]

pub mod collections;
pub mod life;
pub mod lives;
