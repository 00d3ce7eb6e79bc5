//! What a statement or a transaction reads or writes (Hihooi section 4.1): tables, columns, rows by key, and
//! ranges of keys. Static analysis, entries and the freshness index use the same items. If they are wrong, they
//! have too much, never too little (I6).
//!
//! A row is identified by the bytes of its key: the values of the table's replica identity, in the order of its
//! index, each in a canonical form for its type. Every form is self-delimiting, so the first values of a key
//! are a prefix of its bytes. If the forms sort like the values, so do the keys. Hence a [`Span`] can be a row,
//! all rows with the same leading key values, or a range of keys.
//!
//! Departures: in the paper, a class says which set of a table is compared: for TAS only the table, for CAS the
//! columns, for RAS the rows. An [`Item`] has both columns and rows, and two items overlap only if both their
//! columns and their rows do.

use std::fmt;
use std::sync::Arc;

/// A relation by its OID on the primary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RelId(pub u32);

/// A column by its number in its table (`pg_attribute.attnum`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ColumnId(pub u16);

/// The bytes of a key, or of its first values.
pub type Key = Box<[u8]>;

/// Of a longer key, only so many bytes count (I8): rows that differ behind them are taken for one.
pub const KEY_LEN_MAX: usize = 96;
/// A table named in more spans than this counts as a whole (I8).
pub const SPANS_MAX: usize = 256;

/// A set of items.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Items {
    /// Touches nothing that is replicated.
    #[default]
    Nothing,
    /// Touches a part of these tables: sorted, each table once, not empty.
    Tables(Box<[Item]>),
    /// Could touch anything.
    Everything,
}

/// What is touched of one table: these columns of these rows.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    /// The table.
    pub table: RelId,
    /// Of it, these rows.
    pub rows: Rows,
    /// Of them, these columns.
    pub columns: Columns,
}

/// Rows of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Any.
    All,
    /// Those with a key in one of these spans.
    In(Box<[Span]>),
}

/// Columns of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Columns {
    /// All of them. A written row that is new or gone counts so.
    All,
    /// These: sorted. None at all: how many rows there are. (Shared, since each run of a statement has them.)
    In(Arc<[ColumnId]>),
}

/// A range of keys, both ends included: the keys from the bytes `from` up to `to` and all that begin with `to`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    from: Key,
    /// `None`: the same as `from`.
    to: Option<Key>,
}

/// The affecting class of a statement on a table, as the paper names it, and ranges of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Rows by their keys.
    Row,
    /// A range of keys, or all rows with the same leading key values.
    Range,
    /// Columns.
    Column,
    /// The whole table, or more.
    Table,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Row => "RAS",
            Class::Range => "RANGE",
            Class::Column => "CAS",
            Class::Table => "TAS",
        })
    }
}

/// How finely reads are told from writes (`hihooi.granularity`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Granularity {
    /// By tables.
    Table,
    /// By columns as well.
    Column,
    /// By rows as well.
    Row,
    /// By ranges of keys and leading values as well.
    #[default]
    Range,
}

impl Granularity {
    /// All of them, and their names.
    pub const ALL: [(Granularity, &str); 4] = [
        (Granularity::Table, "table"),
        (Granularity::Column, "column"),
        (Granularity::Row, "row"),
        (Granularity::Range, "range"),
    ];

    /// The one of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Granularity> {
        Granularity::ALL.iter().find(|(_, own)| own.eq_ignore_ascii_case(name)).map(|(own, _)| *own)
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Granularity::ALL.iter().find(|(own, _)| *own == self).map_or("", |(_, name)| name)
    }
}

/// A whole table is written as its OID; of a part, the columns come in brackets, then the keys.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.table)?;
        if let Columns::In(columns) = &self.columns {
            let numbers: Vec<String> = columns.iter().map(|column| column.0.to_string()).collect();
            write!(f, "({})", numbers.join(","))?;
        }
        let Rows::In(spans) = &self.rows else { return Ok(()) };
        spans.iter().try_for_each(|span| match span.is_range() {
            true => write!(f, "[{}..{}]", span.from().escape_ascii(), span.to().escape_ascii()),
            false => write!(f, "[{}]", span.from().escape_ascii()),
        })
    }
}

impl Span {
    /// The row with this key.
    #[must_use]
    pub fn row(key: impl AsRef<[u8]>) -> Span {
        Span { from: cut(key.as_ref()), to: None }
    }

    /// The keys from `from` up to `to` and all that begin with `to`.
    #[must_use]
    pub fn between(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Span {
        Span { from: cut(from.as_ref()), to: Some(cut(to.as_ref())) }
    }

    /// Where it begins.
    #[must_use]
    pub fn from(&self) -> &[u8] {
        &self.from
    }

    fn to(&self) -> &[u8] {
        self.to.as_deref().unwrap_or(&self.from)
    }

    /// Whether the span ends in front of a key that it doesn't begin behind.
    #[must_use]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        key > self.to() && !key.starts_with(self.to())
    }

    /// Whether some key may be in both.
    #[must_use]
    pub fn overlaps(&self, other: &Span) -> bool {
        !self.ends_before(&other.from) && !other.ends_before(&self.from)
    }

    /// Whether it may hold more than one row.
    #[must_use]
    pub fn is_range(&self) -> bool {
        self.to.is_some()
    }
}

/// Cutting keeps the order of keys, and which begin with which.
fn cut(key: &[u8]) -> Key {
    key[..key.len().min(KEY_LEN_MAX)].into()
}

impl Rows {
    /// Rows in any of these spans.
    #[must_use]
    pub fn of(mut spans: Vec<Span>) -> Rows {
        spans.sort_unstable();
        spans.dedup();
        if spans.len() > SPANS_MAX { Rows::All } else { Rows::In(spans.into()) }
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Rows) -> Rows {
        match (self, other) {
            (Rows::In(a), Rows::In(b)) => Rows::of(a.iter().chain(b.iter()).cloned().collect()),
            _ => Rows::All,
        }
    }

    /// Whether some row may be in both sets.
    #[must_use]
    pub fn overlaps(&self, other: &Rows) -> bool {
        match (self, other) {
            (Rows::In(a), Rows::In(b)) => a.iter().any(|a| b.iter().any(|b| a.overlaps(b))),
            (Rows::In(some), Rows::All) | (Rows::All, Rows::In(some)) => !some.is_empty(),
            (Rows::All, Rows::All) => true,
        }
    }
}

impl Columns {
    /// These columns.
    #[must_use]
    pub fn of(mut columns: Vec<ColumnId>) -> Columns {
        columns.sort_unstable();
        columns.dedup();
        Columns::In(columns.into())
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Columns) -> Columns {
        match (self, other) {
            (Columns::In(a), Columns::In(b)) if a == b => self.clone(),
            (Columns::In(a), Columns::In(b)) => {
                Columns::of(a.iter().chain(b.iter()).copied().collect())
            }
            _ => Columns::All,
        }
    }

    /// Whether what is written in some columns shows in others. All columns meet any, also none: whoever
    /// only counts rows sees one that is new.
    #[must_use]
    pub fn overlaps(&self, other: &Columns) -> bool {
        match (self, other) {
            (Columns::In(a), Columns::In(b)) => a.iter().any(|c| b.binary_search(c).is_ok()),
            _ => true,
        }
    }
}

impl Item {
    /// A whole table.
    #[must_use]
    pub fn table(table: RelId) -> Item {
        Item { table, rows: Rows::All, columns: Columns::All }
    }

    fn union(&self, other: &Item) -> Item {
        Item {
            table: self.table,
            rows: self.rows.union(&other.rows),
            columns: self.columns.union(&other.columns),
        }
    }

    /// Whether they share something.
    #[must_use]
    pub fn overlaps(&self, other: &Item) -> bool {
        self.table == other.table
            && self.columns.overlaps(&other.columns)
            && self.rows.overlaps(&other.rows)
    }

    fn at(&self, granularity: Granularity) -> Item {
        let has_range = |spans: &[Span]| spans.iter().any(Span::is_range);
        let rows = match &self.rows {
            Rows::In(_) if granularity < Granularity::Row => Rows::All,
            Rows::In(spans) if granularity < Granularity::Range && has_range(spans) => Rows::All,
            rows => rows.clone(),
        };
        let columns = match granularity {
            Granularity::Table => Columns::All,
            _ => self.columns.clone(),
        };
        Item { table: self.table, rows, columns }
    }

    /// Its affecting class.
    #[must_use]
    pub fn class(&self) -> Class {
        match (&self.rows, &self.columns) {
            (Rows::In(spans), _) if spans.iter().any(Span::is_range) => Class::Range,
            (Rows::In(_), _) => Class::Row,
            (Rows::All, Columns::In(_)) => Class::Column,
            (Rows::All, Columns::All) => Class::Table,
        }
    }
}

impl Items {
    /// These tables as a whole; [`Items::Nothing`] if there is none.
    pub fn tables(tables: impl IntoIterator<Item = RelId>) -> Items {
        Items::of(tables.into_iter().map(Item::table))
    }

    /// The set of these items; [`Items::Nothing`] if there is none.
    pub fn of(items: impl IntoIterator<Item = Item>) -> Items {
        let mut items: Vec<Item> = items.into_iter().collect();
        items.sort_by_key(|item| item.table);
        items.dedup_by(|next, kept| {
            let is_same = next.table == kept.table;
            if is_same && next != kept {
                *kept = kept.union(next);
            }
            is_same
        });
        if items.is_empty() { Items::Nothing } else { Items::Tables(items.into()) }
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Items) -> Items {
        match (self, other) {
            (Items::Everything, _) | (_, Items::Everything) => Items::Everything,
            (Items::Nothing, set) | (set, Items::Nothing) => set.clone(),
            (Items::Tables(a), Items::Tables(b)) => Items::of(a.iter().chain(b.iter()).cloned()),
        }
    }

    /// Adds what another set has.
    pub fn extend(&mut self, other: Items) {
        *self = match (&*self, other) {
            (_, Items::Nothing) => return,
            (Items::Nothing, other) => other,
            (own, other) => own.union(&other),
        };
    }

    /// Whether some item is in both sets.
    #[must_use]
    pub fn overlaps(&self, other: &Items) -> bool {
        match (self, other) {
            (Items::Nothing, _) | (_, Items::Nothing) => false,
            (Items::Everything, _) | (_, Items::Everything) => true,
            (Items::Tables(a), Items::Tables(_)) => a.iter().any(|a| other.overlaps_item(a)),
        }
    }

    /// Whether something of an item is in the set.
    #[must_use]
    pub fn overlaps_item(&self, item: &Item) -> bool {
        match self {
            Items::Nothing => false,
            Items::Everything => true,
            Items::Tables(_) => self.item(item.table).is_some_and(|own| own.overlaps(item)),
        }
    }

    /// What is touched of a table, unless that is everything or nothing.
    #[must_use]
    pub fn item(&self, table: RelId) -> Option<&Item> {
        let Items::Tables(items) = self else { return None };
        items.binary_search_by_key(&table, |item| item.table).ok().map(|at| &items[at])
    }

    /// Whether nothing is touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Items::Nothing)
    }

    /// The same, told apart no more finely than this.
    #[must_use]
    pub fn at(self, granularity: Granularity) -> Items {
        match self {
            Items::Tables(items) if granularity < Granularity::Range => {
                Items::Tables(items.iter().map(|item| item.at(granularity)).collect())
            }
            items => items,
        }
    }

    /// The coarsest class of its tables; `None` if it touches none.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match self {
            Items::Nothing => None,
            Items::Tables(items) => items.iter().map(Item::class).max(),
            Items::Everything => Some(Class::Table),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tables(oids: &[u32]) -> Items {
        Items::tables(oids.iter().map(|&oid| RelId(oid)))
    }

    #[test]
    fn union_and_overlap_follow_set_algebra() {
        assert_eq!(tables(&[]), Items::Nothing);
        assert_eq!(tables(&[3, 1]).union(&tables(&[2, 3])), tables(&[1, 2, 3]));
        assert_eq!(tables(&[1]).union(&Items::Everything), Items::Everything);
        assert!(tables(&[1, 5]).overlaps(&tables(&[5, 9])));
        assert!(!tables(&[1, 5]).overlaps(&tables(&[2, 9])));
        assert!(Items::Everything.overlaps(&tables(&[2])));
        assert!(!Items::Everything.overlaps(&Items::Nothing));
    }

    fn item(rows: Rows, columns: Columns) -> Items {
        Items::of([Item { table: RelId(1), rows, columns }])
    }

    fn columns(numbers: &[u16]) -> Columns {
        Columns::of(numbers.iter().map(|&number| ColumnId(number)).collect())
    }

    #[test]
    fn items_meet_only_where_rows_and_columns_do() {
        let row = |key: &[u8]| Rows::of(vec![Span::row(key)]);
        let one = item(row(b"1"), columns(&[2]));
        assert!(one.overlaps(&item(row(b"1"), Columns::All)));
        assert!(!one.overlaps(&item(row(b"2"), Columns::All)), "another row");
        assert!(!one.overlaps(&item(row(b"1"), columns(&[3]))), "another column");
        assert!(one.overlaps(&item(Rows::All, columns(&[2, 3]))));
        assert!(!item(Rows::All, columns(&[])).overlaps(&one), "an update changes no count");
        assert!(item(Rows::All, columns(&[])).overlaps(&tables(&[1])), "but a new row does");
        let both = one.union(&item(row(b"2"), columns(&[3])));
        assert_eq!(
            both,
            item(Rows::of(vec![Span::row(*b"1"), Span::row(*b"2")]), columns(&[2, 3]))
        );
        assert_eq!(one.union(&tables(&[1])), tables(&[1]));
    }

    #[test]
    fn i8_many_spans_are_all_rows() {
        let span = |n: usize| Span::row(n.to_be_bytes());
        assert_ne!(Rows::of((0..SPANS_MAX).map(span).collect()), Rows::All);
        assert_eq!(Rows::of((0..=SPANS_MAX).map(span).collect()), Rows::All);
    }

    #[test]
    fn i8_long_keys_count_by_their_beginning() {
        let key = |last: u8| [vec![b'x'; KEY_LEN_MAX], vec![last]].concat();
        assert_eq!(Span::row(key(1)), Span::row(key(2)));
        assert!(Span::between(key(1), key(1)).overlaps(&Span::row(key(0))));
        assert!(Span::between(*b"x", *b"x").overlaps(&Span::row(key(0))));
    }

    #[test]
    fn a_granularity_tells_apart_no_more() {
        let row = item(Rows::of(vec![Span::row(*b"1")]), columns(&[1]));
        let range = item(Rows::of(vec![Span::between(*b"1", *b"2")]), columns(&[1]));
        assert_eq!(range.clone().at(Granularity::Range), range);
        assert_eq!(range.clone().at(Granularity::Row), item(Rows::All, columns(&[1])));
        assert_eq!(row.clone().at(Granularity::Row), row);
        assert_eq!(row.clone().at(Granularity::Column), item(Rows::All, columns(&[1])));
        assert_eq!(row.clone().at(Granularity::Table), tables(&[1]));
        assert_eq!(Granularity::parse("Row").map(Granularity::as_str), Some("row"));
        assert_eq!(Granularity::parse("cell"), None);
    }

    #[test]
    fn classes_are_the_papers() {
        let class = |items: &Items| items.class().map(|class| class.to_string());
        assert_eq!(class(&Items::Nothing), None);
        assert_eq!(class(&tables(&[1])).as_deref(), Some("TAS"));
        assert_eq!(class(&item(Rows::All, columns(&[1]))).as_deref(), Some("CAS"));
        let row = item(Rows::of(vec![Span::row(*b"1")]), columns(&[1]));
        assert_eq!(class(&row).as_deref(), Some("RAS"));
        assert_eq!(class(&row.union(&tables(&[2]))).as_deref(), Some("TAS"));
        let range = item(Rows::of(vec![Span::between(*b"1", *b"2")]), columns(&[1]));
        assert_eq!(class(&range).as_deref(), Some("RANGE"));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0_u8..3, 0..4)
    }

    fn span() -> impl Strategy<Value = Span> {
        (bytes(), bytes()).prop_map(|(from, to)| Span::between(from, to))
    }

    fn holds(span: &Span, key: &[u8]) -> bool {
        key >= span.from() && (key <= span.to() || key.starts_with(span.to()))
    }

    proptest! {
        /// Two spans overlap if and only if some key is in both (of a set in which one would be found).
        #[test]
        fn spans_overlap_where_they_share_a_key(a in span(), b in span()) {
            let mut shared = false;
            for n in 0..3_usize.pow(7) {
                let (mut n, mut key) = (n, Vec::new());
                while n > 0 {
                    key.push((n % 3) as u8);
                    n /= 3;
                }
                shared |= holds(&a, &key) && holds(&b, &key);
                key.push(0);
                shared |= holds(&a, &key) && holds(&b, &key);
            }
            // A range whose end lies in front of its beginning holds nothing.
            let is_empty = |span: &Span| span.ends_before(span.from());
            if !is_empty(&a) && !is_empty(&b) {
                prop_assert_eq!(a.overlaps(&b), shared);
            }
        }
    }
}
