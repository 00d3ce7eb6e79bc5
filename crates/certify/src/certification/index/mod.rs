//! Which committed writes touch a read, and which committed reads a write touches, without looking at all of
//! them (RSSI paper, appendix C.1.1: the tuple lookup table). Rows are found by hash, predicates by an ordered
//! structure; the result is that of applying [`Read::touched_by`] to all, possibly with duplicates and in no
//! particular order.
//!
//! [`Read::touched_by`]: crate::certification::items::Read::touched_by

mod keys;
pub mod reads;
#[cfg(test)]
mod tests;
pub mod writes;

/// Columns of a table that have an ordered structure of their own, at most; predicates over
/// others are compared one by one.
const COLUMNS_MAX: usize = 8;
