//! What a routing decision costs: the rows that a run names, and what they need in the freshness index, with 16
//! writes on their way and 10,000 rows above the floor. Target: under 1 microsecond for a statement whose facts
//! are at hand, under 5 for a text whose template is in the cache.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use hihooi_replication::freshness::Freshness;
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::{Columns, Item, Items, RelId, Rows, Span};
use hihooi_sql::catalog_builder::{ColumnRow, RelationRow};
use hihooi_sql::{Cache, Catalog, KeyType, Parameter, SearchPath, Values, analyse};

const TABLE: RelId = RelId(1);
const INT4: u32 = 23;

fn catalog() -> Catalog {
    let mut builder = Catalog::builder();
    builder.relation(RelationRow {
        id: TABLE,
        schema: "public",
        name: "accounts",
        kind: "r",
        persistence: "p",
        code: "",
        has_rules: false,
    });
    for (number, name) in [(1, "id"), (2, "branch"), (3, "balance")] {
        builder.column(ColumnRow {
            relation: TABLE,
            number,
            name,
            type_oid: INT4,
            base_oid: INT4,
            is_exact: true,
            is_deterministic: true,
            is_generated: false,
        });
    }
    builder.key(TABLE, [1]);
    builder.build(1)
}

fn row(id: i32) -> Items {
    let mut key = Vec::new();
    let pushed = KeyType::Integer.push_text(id.to_string().as_bytes(), &mut key);
    pushed.expect("a number");
    let rows = Rows::of(vec![Span::row(key)]);
    Items::of([Item { table: TABLE, rows, columns: Columns::All }])
}

fn index() -> Freshness {
    let mut index = Freshness::new(Tsid(0));
    for id in 0..10_000 {
        index.entry(Tsid(id as u64 + 1), id as u32, &row(id));
    }
    for id in 0..16 {
        index.begin(row(20_000 + id));
    }
    index
}

/// A run with one binary parameter.
struct Bound([u8; 4]);

impl Values for Bound {
    fn constant(&self, _: u16) -> Option<&[u8]> {
        None
    }

    fn parameter(&self, _: u16) -> Option<Parameter<'_>> {
        Some(Parameter { declared: INT4, is_binary: true, value: &self.0 })
    }
}

/// A run of a text without parameters.
struct Text<'a>(&'a str);

impl Values for Text<'_> {
    fn constant(&self, place: u16) -> Option<&[u8]> {
        let constants = hihooi_sql::constants(self.0.as_bytes());
        Some(self.0[constants.get(usize::from(place))?.clone()].as_bytes())
    }

    fn parameter(&self, _: u16) -> Option<Parameter<'_>> {
        None
    }
}

fn decisions(c: &mut Criterion) {
    let (catalog, path, index) = (catalog(), SearchPath::new(["public"]), index());
    let text = "SELECT balance FROM accounts WHERE id = $1";
    let facts = analyse(text, &catalog, Some(&path));
    c.bench_function("a prepared read by key", |b| {
        b.iter(|| {
            let values = Bound(black_box(4_711_i32).to_be_bytes());
            index.need(&facts.statements[0].reads_with(&values))
        });
    });
    let mut cache = Cache::default();
    c.bench_function("a read by key with a constant", |b| {
        b.iter(|| {
            let text = black_box("SELECT balance FROM accounts WHERE id = 4711");
            let facts = cache.get(text, &catalog, Some(&path));
            index.need(&facts.statements[0].reads_with(&Text(text)))
        });
    });
    let written = hihooi_replication::written::Written::Tables(vec![
        hihooi_replication::written::WrittenTable {
            table: TABLE,
            rows: Some(hihooi_replication::written::WrittenRows {
                columns: [("id".into(), INT4)].into(),
                keys: vec![[(*b"4711").into()].into()],
            }),
        },
    ]);
    c.bench_function("the items of an entry of one row", |b| {
        b.iter(|| catalog.items_of(black_box(&written)));
    });
}

criterion_group!(benches, decisions);
criterion_main!(benches);
