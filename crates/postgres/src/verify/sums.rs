//! Checksums by which two sites compare the rows of a table, in whatever order these come, and find the
//! rows that differ, in memory that doesn't grow with the table (I8). Pure.
//!
//! A table's sum is the number of its rows and the sum of their XXH3 hashes modulo 2^128. Unlike with XOR, two
//! equal rows don't cancel each other. Two tables that differ have equal sums by chance with a probability of
//! about 2^-128. (The hash isn't keyed: a role could construct a table whose sums are equal although its rows
//! differ, but only with its own rows, and only if replicas differ in them already.)
//!
//! Where sums differ, rows are divided into [`BUCKETS`] buckets, by 16 bits of their key's hash. Each bucket
//! whose sums differ has at least one row that differs, so at most as many of these buckets are examined as
//! rows are to be reported. They are divided again by the next 16 bits, until the remaining rows fit into
//! memory.

use std::collections::{BTreeMap, HashSet};

use xxhash_rust::xxh3::xxh3_128;

use super::table::Table;

/// Buckets that rows are counted in.
const BUCKETS: usize = 1 << 16;
/// How often buckets can be divided: a key's hash has 128 bits.
const ROUNDS_MAX: usize = 8;
/// Rows of both sites together that are held to be compared one by one.
const HELD_MAX: u64 = 10_000;
/// Bytes that are kept of a row, to be shown.
const SHOWN_LEN_MAX: usize = 8 * 1024;

/// Rows, in any order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sum {
    /// How many.
    pub rows: u64,
    hashes: u128,
}

impl Sum {
    pub fn add(&mut self, line: &[u8]) {
        self.rows += 1;
        self.hashes = self.hashes.wrapping_add(xxh3_128(line));
    }
}

/// Rows that are still looked at: those whose keys' hashes lie in chosen buckets, round by round.
#[derive(Default)]
pub(super) struct Selection {
    chosen: Vec<HashSet<u16>>,
    rows: Option<u64>,
}

impl Selection {
    fn bucket(hash: u128, round: usize) -> u16 {
        (hash >> (16 * round)) as u16
    }

    fn includes(&self, hash: u128) -> bool {
        let mut rounds = self.chosen.iter().enumerate();
        rounds.all(|(round, chosen)| chosen.contains(&Selection::bucket(hash, round)))
    }

    /// Leaves at most `count_max` buckets that differ. Returns whether it is worth dividing these
    /// again; rows that are all alike can't be divided.
    pub fn narrow(&mut self, there: &Buckets, here: &Buckets, count_max: usize) -> bool {
        let both = there.0.iter().zip(&here.0).enumerate();
        let differing = both.filter(|(_, (there, here))| there != here).take(count_max);
        let mut rows = 0;
        let chosen = differing.map(|(bucket, (there, here))| {
            rows += there.rows + here.rows;
            bucket as u16
        });
        self.chosen.push(chosen.collect());
        let fewer = self.rows.replace(rows) != Some(rows);
        rows > HELD_MAX && fewer && self.chosen.len() < ROUNDS_MAX
    }
}

/// The rows of a selection, counted in buckets of their keys' hashes.
pub(super) struct Buckets(Vec<Sum>);

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets(vec![Sum::default(); BUCKETS])
    }
}

impl Buckets {
    pub fn add(&mut self, table: &Table, selection: &Selection, line: &[u8]) {
        let hash = xxh3_128(&table.key_of(line));
        if selection.includes(hash) {
            self.0[usize::from(Selection::bucket(hash, selection.chosen.len()))].add(line);
        }
    }
}

/// The rows of a selection themselves, by hash of their key, then of all of them.
#[derive(Default)]
pub(super) struct Held(BTreeMap<u128, (String, BTreeMap<u128, Copies>)>);

/// A row and how often it is there.
struct Copies {
    text: String,
    count: u64,
}

impl Held {
    pub fn add(&mut self, table: &Table, selection: &Selection, line: &[u8]) {
        let key = table.key_of(line);
        let hash = xxh3_128(&key);
        if selection.includes(hash) {
            let (_, rows) = self.0.entry(hash).or_insert_with(|| (shown(&key), BTreeMap::new()));
            let first = || Copies { text: shown(line), count: 0 };
            rows.entry(xxh3_128(line)).or_insert_with(first).count += 1;
        }
    }

    /// Keys whose rows differ, with the rows there and here; `None` where there are none.
    pub fn differing(&self, here: &Held) -> Vec<(String, Option<String>, Option<String>)> {
        let there = self;
        let hashes = there.0.keys().chain(here.0.keys().filter(|hash| !there.0.contains_key(hash)));
        let counts = |held: &Held, hash| -> Option<Vec<(u128, u64)>> {
            let (_, rows) = held.0.get(hash)?;
            Some(rows.iter().map(|(hash, row)| (*hash, row.count)).collect())
        };
        let words = |held: &Held, hash| held.0.get(hash).map(|(_, rows)| row_words(rows.values()));
        let mut differing: Vec<_> = hashes
            .filter(|hash| counts(there, hash) != counts(here, hash))
            .filter_map(|hash| {
                let (key, _) = there.0.get(hash).or_else(|| here.0.get(hash))?;
                Some((key.clone(), words(there, hash), words(here, hash)))
            })
            .collect();
        differing.sort();
        differing
    }
}

/// Rows, and how often each is there if not once.
fn row_words<'a>(rows: impl Iterator<Item = &'a Copies>) -> String {
    let words = rows.map(|row| match row.count {
        1 => row.text.clone(),
        count => format!("{} x {count}", row.text),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A line as the user sees it, with hash and length in place of what is too long.
fn shown(line: &[u8]) -> String {
    if line.len() <= SHOWN_LEN_MAX {
        return format!("({})", String::from_utf8_lossy(line));
    }
    let start = String::from_utf8_lossy(&line[..SHOWN_LEN_MAX]);
    format!("({start}… {} bytes, XXH3 {:032x})", line.len(), xxh3_128(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose second column is its key if it is `keyed`.
    fn table(keyed: bool) -> Table {
        let key = |text: &str| keyed.then(|| text.to_owned());
        let name = Some("t".to_owned());
        Table::read(vec![name, Some("v, id".to_owned()), key("id"), key("1"), None]).expect("five")
    }

    fn sum(lines: &[String]) -> Sum {
        let mut sum = Sum::default();
        lines.iter().for_each(|line| sum.add(line.as_bytes()));
        sum
    }

    fn buckets(table: &Table, selection: &Selection, lines: &[String]) -> Buckets {
        let mut buckets = Buckets::default();
        lines.iter().for_each(|line| buckets.add(table, selection, line.as_bytes()));
        buckets
    }

    fn held(table: &Table, selection: &Selection, lines: &[String]) -> Held {
        let mut held = Held::default();
        lines.iter().for_each(|line| held.add(table, selection, line.as_bytes()));
        held
    }

    type Differing = Vec<(String, Option<String>, Option<String>)>;

    /// What is found, and in how many rounds.
    fn find(
        table: &Table,
        there: &[String],
        here: &[String],
        count_max: usize,
    ) -> (Differing, usize) {
        let mut selection = Selection::default();
        let mut rounds = 1;
        while selection.narrow(
            &buckets(table, &selection, there),
            &buckets(table, &selection, here),
            count_max,
        ) {
            rounds += 1;
        }
        let there = held(table, &selection, there);
        (there.differing(&held(table, &selection, here)), rounds)
    }

    fn lines(numbers: impl Iterator<Item = u32>) -> Vec<String> {
        numbers.map(|n| format!("v,{n}")).collect()
    }

    #[test]
    fn sums_know_no_order_but_tell_rows_and_copies_apart() {
        let of =
            |lines: &[&str]| sum(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a,1", "b,2", "c,3"]), of(&["c,3", "a,1", "b,2"]));
        assert_ne!(of(&["a,1", "b,2"]), of(&["a,2", "b,1"]), "swapped");
        assert_ne!(of(&["a", "a", "b"]), of(&["a", "b", "b"]), "other copies");
        assert_ne!(of(&["a", "a"]), of(&["b", "b"]), "copies don't cancel each other");
        assert_ne!(of(&["a"]), of(&["a", "a", "a"]));
        assert_ne!(of(&["\"\""]), of(&[""]));
    }

    #[test]
    fn rows_are_told_apart_by_their_key() {
        let there = ["a,1", "b,2", "\"x,\"\"y\",3"].map(str::to_owned);
        let here = ["a,1", "c,2", "b,4"].map(str::to_owned);
        let text = |text: &str| Some(text.to_owned());
        let differing = vec![
            ("(2)".to_owned(), text("(b,2)"), text("(c,2)")),
            ("(3)".to_owned(), text("(\"x,\"\"y\",3)"), None),
            ("(4)".to_owned(), None, text("(b,4)")),
        ];
        assert_eq!(find(&table(true), &there, &here, 10).0, differing);
        assert_eq!(find(&table(false), &there, &here, 10).0.len(), 4, "a changed row is two");
    }

    /// All 5,000 differing rows are found, or as many as asked for, each a true one, although far
    /// more rows than may be held share their buckets.
    #[test]
    fn buckets_are_divided_until_the_rows_can_be_held() {
        let there = lines(0..150_000);
        let here: Vec<String> = lines(5_000..150_000);
        let (all, rounds) = find(&table(true), &there, &here, 5_000);
        assert_eq!((all.len(), rounds), (5_000, 2));
        let (some, _) = find(&table(true), &there, &here, 3_000);
        assert!((3_000..=5_000).contains(&some.len()), "{}", some.len());
        assert!(some.iter().all(|row| all.contains(row)));
    }

    /// Rows that are all alike can't be divided; they are held as one.
    #[test]
    fn copies_are_counted() {
        let there = vec!["v,1".to_owned(); 20_000];
        let (differing, rounds) = find(&table(false), &there, &there[1..], 10);
        let text = |text: &str| Some(text.to_owned());
        let row = ("(v,1)".to_owned(), text("(v,1) x 20000"), text("(v,1) x 19999"));
        assert_eq!((differing, rounds), (vec![row], 2));
    }

    #[test]
    fn long_rows_are_cut_and_still_told_apart() {
        let long = |end: char| vec![format!("{}{end},1", "é".repeat(100_000))];
        let (differing, _) = find(&table(true), &long('a'), &long('b'), 10);
        let [(key, Some(there), Some(here))] = &differing[..] else { panic!("{differing:?}") };
        assert!(key == "(1)" && there != here, "{there} {here}");
        assert!(there.len() < 2 * SHOWN_LEN_MAX && there.contains("200003 bytes"), "{there}");
    }
}
