//! Maps values to numbers of fixed width in the same order, so that ordered structures are flat. Texts with a
//! common prefix become equal, so this is only a filter; the exact test follows.

use std::ops::Bound;

use crate::certification::items::{Condition, Datum};

/// An ordered number.
pub type Key = u64;

const TEXT: Key = 1 << 63;
const TEXT_BYTES: usize = 8;

/// Above all keys, since no text holds a byte of ones.
pub const TOP: Key = Key::MAX;

/// Not above the key of a value that is higher. Of texts the first bytes count, of integers all
/// bits but the last.
pub fn of(value: &Datum) -> Key {
    match value {
        Datum::Int(value) => (value.cast_unsigned() ^ 1 << 63) >> 1,
        Datum::Text(text) => {
            let mut first = [0; TEXT_BYTES];
            for (byte, of_text) in first.iter_mut().zip(text.bytes()) {
                *byte = of_text;
            }
            TEXT | Key::from_be_bytes(first) >> 1
        }
    }
}

/// The keys of all values that the condition admits are from the first to the second, both
/// included; `None` if there is none.
pub fn range(condition: &Condition) -> Option<(Key, Key)> {
    let low = match &condition.low {
        Bound::Included(value) | Bound::Excluded(value) => of(value),
        Bound::Unbounded => 0,
    };
    let high = match &condition.high {
        Bound::Included(value) | Bound::Excluded(value) => of(value),
        Bound::Unbounded => TOP - 1,
    };
    (low <= high).then_some((low, high))
}

/// The condition by which to look for the rows of a predicate: one with both ends if there is.
pub fn narrowest(conditions: &[Condition]) -> Option<&Condition> {
    let closed = |condition: &&Condition| {
        condition.low != Bound::Unbounded && condition.high != Bound::Unbounded
    };
    conditions.iter().find(closed).or(conditions.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_order() {
        let text = |text: &str| Datum::Text(text.into());
        let sorted = [
            Datum::Int(i64::MIN),
            Datum::Int(-1),
            Datum::Int(0),
            Datum::Int(i64::MAX),
            text(""),
            text("a"),
            text("a\0"),
            text("ab"),
            text("fifteen letters, and more"),
            text("fifteen letters, and then"),
            text("ä"),
            text("\u{10ffff}\u{10ffff}"),
        ];
        assert!(sorted.is_sorted());
        assert!(sorted.iter().map(of).is_sorted());
        assert!(sorted.iter().all(|value| of(value) < TOP));
    }
}
