//! The conflict relation as data (vDBSM paper, section 3): transactions of one class access the
//! same items, and two classes conflict or don't.
//!
//! Departures.
//! - The paper's transactions conflict when one reads what the other writes. Here two writers of an item
//!   conflict, too, since under snapshot isolation one of them is aborted. In the paper they conflict because a
//!   transaction reads what it updates.
//! - The relation is symmetric by construction. The paper's section 5.1 lists pairs in one order
//!   only ((D, P) but not (P, D)); its definition of a conflict has no order.

/// Transactions that access the same items.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId(pub u32);

impl ClassId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The most classes of one relation: it takes a bit per pair, 32 MB then.
pub const CLASSES_MAX: usize = 16_384;

/// What a class accesses, for a relation made from items.
#[derive(Clone, Debug, Default)]
pub struct Access<'a> {
    /// Items that it reads.
    pub reads: Vec<&'a str>,
    /// Items that it writes.
    pub writes: Vec<&'a str>,
}

/// Which classes conflict: a symmetric matrix of bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relation {
    classes: usize,
    words_per_class: usize,
    bits: Vec<u64>,
}

impl Relation {
    /// A relation without conflicts.
    ///
    /// # Panics
    /// With more than `CLASSES_MAX` classes.
    #[must_use]
    pub fn empty(classes: usize) -> Relation {
        assert!(classes <= CLASSES_MAX, "{classes} classes exceed CLASSES_MAX");
        let words_per_class = classes.div_ceil(64);
        Relation { classes, words_per_class, bits: vec![0; words_per_class * classes] }
    }

    /// The symmetric closure of a predicate over pairs of classes.
    ///
    /// # Panics
    /// With more than `CLASSES_MAX` classes.
    #[must_use]
    pub fn from_fn(classes: usize, conflict: impl Fn(usize, usize) -> bool) -> Relation {
        let mut relation = Relation::empty(classes);
        for a in 0..classes {
            for b in a..classes {
                if conflict(a, b) || conflict(b, a) {
                    relation.insert(a, b);
                }
            }
        }
        relation
    }

    /// Classes conflict when they share an item that one of them writes.
    ///
    /// # Panics
    /// With more than `CLASSES_MAX` classes.
    #[must_use]
    pub fn from_items(accesses: &[Access<'_>]) -> Relation {
        let mut readers = std::collections::BTreeMap::<&str, Vec<usize>>::new();
        let mut writers = readers.clone();
        for (class, access) in accesses.iter().enumerate() {
            access.reads.iter().for_each(|item| readers.entry(item).or_default().push(class));
            access.writes.iter().for_each(|item| writers.entry(item).or_default().push(class));
        }
        let mut relation = Relation::empty(accesses.len());
        for (item, writers) in &writers {
            let readers = readers.get(item).into_iter().flatten();
            for &other in readers.chain(writers) {
                writers.iter().for_each(|&writer| relation.insert(writer, other));
            }
        }
        relation
    }

    fn insert(&mut self, a: usize, b: usize) {
        self.bits[a * self.words_per_class + b / 64] |= 1 << (b % 64);
        self.bits[b * self.words_per_class + a / 64] |= 1 << (a % 64);
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Whether transactions of these classes conflict.
    #[must_use]
    pub fn conflict(&self, a: ClassId, b: ClassId) -> bool {
        let word = self.bits[a.index() * self.words_per_class + b.index() / 64];
        word >> (b.index() % 64) & 1 == 1
    }

    /// The classes that a class conflicts with, ascending.
    pub fn conflicting(&self, class: ClassId) -> impl Iterator<Item = ClassId> + '_ {
        let start = class.index() * self.words_per_class;
        let words = &self.bits[start..start + self.words_per_class];
        words
            .iter()
            .zip(0u32..)
            .flat_map(|(&word, place)| ones(word).map(move |b| place * 64 + b))
            .map(ClassId)
    }
}

/// The positions of the bits that are set.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.checked_sub(1)?;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3: a common item that one of them writes.
    #[test]
    fn items_make_the_relation() {
        let access = |reads: &[&'static str], writes: &[&'static str]| Access {
            reads: reads.to_vec(),
            writes: writes.to_vec(),
        };
        let relation = Relation::from_items(&[
            access(&["a"], &[]),
            access(&["a"], &["b"]),
            access(&["c"], &["b"]),
            access(&[], &["a"]),
        ]);
        let pairs: Vec<(u32, u32)> =
            (0..4).flat_map(|a| relation.conflicting(ClassId(a)).map(move |b| (a, b.0))).collect();
        assert_eq!(pairs, [(0, 3), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 0), (3, 1), (3, 3)]);
    }

    #[test]
    fn a_predicate_in_one_order_holds_in_both() {
        let relation = Relation::from_fn(200, |a, b| (a, b) == (3, 150));
        assert!(relation.conflict(ClassId(3), ClassId(150)));
        assert!(relation.conflict(ClassId(150), ClassId(3)));
        assert_eq!(relation.conflicting(ClassId(150)).collect::<Vec<_>>(), [ClassId(3)]);
        assert_eq!(relation.conflicting(ClassId(4)).count(), 0);
    }
}
