//! Compares the indexes with the reference implementation, [`Read::touched_by`] applied to all.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use hihooi_replication::items::RelId;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::certification::index::reads::ReadIndex;
use crate::certification::index::writes::WriteIndex;
use crate::certification::items::{Column, Columns, Condition, Datum, Image, Read, RowKey, Write};
use crate::certification::memory::Seq;

/// More columns than have an ordered structure.
const COLUMNS: u16 = 10;

fn datum(random: &mut Pcg64Mcg) -> Datum {
    let value = random.random_range(0..20);
    match random.random_range(0..4) {
        0 => Datum::Text(format!("{value}").into()),
        1 => Datum::Text(format!("fifteen letters, then {value}").into()),
        _ => Datum::Int(value - 10),
    }
}

fn bound(random: &mut Pcg64Mcg) -> Bound<Datum> {
    match random.random_range(0..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(datum(random)),
        _ => Bound::Included(datum(random)),
    }
}

fn read(random: &mut Pcg64Mcg) -> Read {
    let table = RelId(random.random_range(0..2));
    let columns = Columns(random.random_range(0..1 << COLUMNS));
    match random.random_range(0..20) {
        0 => Read::Everything,
        1 => Read::Table { table, columns },
        2..8 => Read::Row { table, key: RowKey(random.random_range(0..10)), columns },
        _ => {
            let conditions = (0..random.random_range(0..3)).map(|_| Condition {
                column: Column(random.random_range(0..COLUMNS)),
                low: bound(random),
                high: bound(random),
            });
            Read::Rows { table, conditions: conditions.collect(), columns }
        }
    }
}

fn image(random: &mut Pcg64Mcg) -> Option<Image> {
    let known = random.random_range(1..100);
    let columns = (0..COLUMNS).filter(|_| random.random_range(0..100) < known).collect::<Vec<_>>();
    let image = columns.into_iter().map(|column| (Column(column), datum(random))).collect();
    random.random_ratio(4, 5).then_some(Image(image))
}

fn write(random: &mut Pcg64Mcg) -> Write {
    Write {
        table: RelId(random.random_range(0..2)),
        key: RowKey(random.random_range(0..10)),
        columns: Columns(random.random_range(0..1 << COLUMNS)),
        before: image(random),
        after: image(random),
    }
}

#[test]
fn they_find_what_their_twin_does() {
    for seed in 0..60 {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let (mut writes, mut reads) = (WriteIndex::default(), ReadIndex::default());
        let mut twin: VecDeque<(Seq, Read, Write)> = VecDeque::new();
        for seq in (0..300).map(Seq) {
            let (read, write) = (read(random), write(random));
            let since = Seq(seq.0.saturating_sub(random.random_range(0..60)));
            let expected = |touches: &dyn Fn(&(Seq, Read, Write)) -> bool| -> BTreeSet<Seq> {
                twin.iter().filter(|one| one.0 >= since && touches(one)).map(|one| one.0).collect()
            };
            let mut found = BTreeSet::new();
            writes.touching(&read, since, |seq| found.extend([seq]));
            assert_eq!(found, expected(&|one| read.touched_by(&one.2)), "{seed}: {read:?}");
            found.clear();
            reads.touched_by(&write, since, |seq| found.extend([seq]));
            assert_eq!(found, expected(&|one| one.1.touched_by(&write)), "{seed}: {write:?}");
            let last = expected(&|one| one.2.same_row(&write)).pop_last();
            assert_eq!(writes.writer(&write, since), last, "{seed}");
            writes.add(seq, &write);
            reads.add(seq, &read);
            twin.push_back((seq, read, write));
            while twin.len() > 50 || (!twin.is_empty() && random.random_ratio(1, 3)) {
                twin.pop_front();
                writes.forget();
                reads.forget();
            }
        }
        for _ in twin {
            writes.forget();
            reads.forget();
        }
        assert!(writes.is_empty() && reads.is_empty(), "{seed}: nothing may be left behind");
    }
}
