//! The catalog model: what analysis must know about relations, functions and operators. Plain data without I/O;
//! a loader fills it through [`crate::Builder`] with the rows that the queries in [`crate::catalog_queries`]
//! return.
//!
//! Keeps I6 for ambiguous names: a name counts as every relation or function that it could mean. Not modelled,
//! and assumed to be harmless, are the input and output functions of types, and the support functions of
//! operator classes (which must be immutable).
//!
//! Temporary relations are not included. A session that has created some doesn't read at replicas.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use hihooi_replication::freshness::Part;
use hihooi_replication::items::{ColumnId, Item, Items, RelId, Rows, Span};
use hihooi_replication::written::{Written, WrittenRows, WrittenTable};

use crate::analysis::Facts;
use crate::catalog_builder::Builtins;
use crate::keys::KeyType;
use crate::leaves::Leaves;

pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;

/// The schemas of a session's `search_path`, in order, with `"$user"` already replaced by the
/// caller. Cheap to clone and to compare with a clone of itself.
#[derive(Clone, Debug, Eq)]
pub struct SearchPath {
    schemas: Arc<[Box<str>]>,
    hash: u64,
}

impl SearchPath {
    /// A search path of these schemas. `pg_catalog` need not be named.
    pub fn new<S: AsRef<str>>(schemas: impl IntoIterator<Item = S>) -> SearchPath {
        let schemas: Arc<[Box<str>]> = schemas.into_iter().map(|s| s.as_ref().into()).collect();
        let hash = RandomState::with_seeds(1, 2, 3, 4).hash_one(&schemas);
        SearchPath { schemas, hash }
    }

    /// A number that equal paths share.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.hash
    }

    /// The schemas in order.
    #[must_use]
    pub fn schemas(&self) -> &[Box<str>] {
        &self.schemas
    }
}

impl PartialEq for SearchPath {
    fn eq(&self, other: &SearchPath) -> bool {
        Arc::ptr_eq(&self.schemas, &other.schemas) || self.schemas == other.schemas
    }
}

/// The schema of one database as analysis sees it, at one version.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(crate) version: u64,
    pub(crate) relations: Map<RelId, Relation>,
    /// All relations of a name, whatever their schema.
    pub(crate) by_name: Map<Box<str>, Vec<RelId>>,
    pub(crate) builtins: Arc<Builtins>,
    /// Functions of users by name, the worst per schema.
    pub(crate) functions: Map<Box<str>, Vec<UserFunction>>,
    /// User-defined operators by name, whatever their schema and operands.
    pub(crate) operators: Map<Box<str>, Routine>,
    /// The worst of the user-defined casts that PostgreSQL applies unasked, and of what compares values of users' types.
    pub(crate) implicit_casts: Routine,
    /// User-defined casts by the name of the type that they lead to.
    pub(crate) casts: Map<Box<str>, Routine>,
    /// The checks of domains, by the name of every type that contains one.
    pub(crate) domains: Map<Box<str>, Code>,
    /// What users' code may leave in the session.
    pub(crate) leaves: Leaves,
    /// A user's operator may be meant where a value is compared with a key.
    pub(crate) has_own_comparisons: bool,
    /// A function that says it is IMMUTABLE may write: so may what computes expressions of indexes.
    pub(crate) immutable_may_write: bool,
}

impl Catalog {
    /// Starts a catalog from rows.
    #[must_use]
    pub fn builder() -> crate::Builder {
        crate::Builder::default()
    }

    /// Its version, as the builder was told. Two catalogs of one version are taken as equal by
    /// [`crate::Cache`].
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A relation by its OID.
    #[must_use]
    pub fn relation(&self, id: RelId) -> Option<&Relation> {
        self.relations.get(&id)
    }

    /// The settings with a dot in their names that code in the catalog gives a value or asks for.
    #[must_use]
    pub fn custom_settings(&self) -> &[Box<str>] {
        &self.leaves.custom_settings
    }

    /// What a transaction wrote, by the canonical keys of its rows. The caller must know that this catalog
    /// is no older than the transaction.
    #[must_use]
    pub fn items_of(&self, written: &Written) -> Items {
        match written {
            Written::Everything => Items::Everything,
            Written::Tables(tables) => Items::of(tables.iter().map(|table| self.item_of(table))),
        }
    }

    fn item_of(&self, written: &WrittenTable) -> Item {
        let relation = self.relations.get(&written.table);
        let spans = relation.zip(written.rows.as_ref()).and_then(|(r, rows)| r.spans_of(rows));
        let rows = spans.map_or(Rows::All, Rows::of);
        Item { rows, ..Item::table(written.table) }
    }

    /// A part of what a read reads, in words.
    #[must_use]
    pub fn describe(&self, part: Part) -> String {
        let name = |id: RelId| match self.relations.get(&id) {
            Some(relation) => format!("{}.{}", relation.schema, relation.name),
            None => format!("relation {}", id.0),
        };
        match part {
            Part::Anything => "anything (the schema, or rows not told apart any more)".to_owned(),
            Part::Table(id) => name(id),
            Part::Rows(id) => format!("{}, rows that the statement names", name(id)),
            Part::Column(id, column) => {
                let columns = self.relations.get(&id).map_or(&[][..], |relation| &relation.columns);
                let named = columns.iter().find(|known| known.id == column);
                let column = named.map_or("a column that is gone", |known| &*known.name);
                format!("{}, column {column}", name(id))
            }
        }
    }

    /// Which relations a name may mean.
    ///
    /// With a known path these are the matches in all its schemas, not only the first: PostgreSQL
    /// skips schemas that the user may not use, which isn't known here. With an unknown path they
    /// are all relations of that name. `pg_catalog` comes first unless the path names it.
    #[must_use]
    pub fn resolve(
        &self,
        schema: Option<&str>,
        name: &str,
        path: Option<&SearchPath>,
    ) -> Resolved<'_> {
        let Some(ids) = self.by_name.get(name) else { return Resolved::Unknown };
        let mut found = Resolved::Unknown;
        for relation in ids.iter().map(|id| &self.relations[id]) {
            if in_reach(&relation.schema, schema, path) {
                found.add(relation);
            }
        }
        found
    }
}

fn in_reach(of: &str, schema: Option<&str>, path: Option<&SearchPath>) -> bool {
    match (schema, path) {
        (Some(schema), _) => of == schema,
        (None, None) => true,
        (None, Some(path)) => of == "pg_catalog" || path.schemas.iter().any(|s| &**s == of),
    }
}

/// What a relation's name may mean.
#[derive(Debug)]
pub enum Resolved<'c> {
    /// Nothing that the catalog knows.
    Unknown,
    /// This relation.
    One(&'c Relation),
    /// One of these.
    Many(Vec<&'c Relation>),
}

impl<'c> Resolved<'c> {
    fn add(&mut self, relation: &'c Relation) {
        *self = match std::mem::replace(self, Resolved::Unknown) {
            Resolved::Unknown => Resolved::One(relation),
            Resolved::One(first) => Resolved::Many(vec![first, relation]),
            Resolved::Many(mut all) => {
                all.push(relation);
                Resolved::Many(all)
            }
        };
    }

    /// The relations, none if unknown.
    #[must_use]
    pub fn relations(&self) -> &[&'c Relation] {
        match self {
            Resolved::Unknown => &[],
            Resolved::One(relation) => std::slice::from_ref(relation),
            Resolved::Many(all) => all,
        }
    }
}

/// A relation: table, view, sequence and so on.
#[derive(Debug)]
pub struct Relation {
    /// Its OID on the primary.
    pub id: RelId,
    /// Its schema.
    pub schema: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// What it is, as far as replication cares.
    pub class: Class,
    /// Writing to it runs code that isn't in the statement: triggers or rules.
    pub(crate) has_code: bool,
    /// Of that, rules.
    pub(crate) has_rules: bool,
    /// Itself and all that inherits from it, directly or not: where its rows are.
    pub(crate) members: Box<[RelId]>,
    /// Its rows may move to another table.
    pub(crate) is_partition: bool,
    /// Its columns in order; none for views and for what isn't a table.
    pub(crate) columns: Vec<Column>,
    /// The columns by which the stream tells its rows, in the order of their index: places in `columns`.
    pub(crate) key: Box<[usize]>,
    /// Foreign keys from this table to others.
    pub(crate) references: Vec<ForeignKey>,
    /// Foreign keys from others to this table.
    pub(crate) referenced_by: Vec<ForeignKey>,
    /// The query of a view.
    pub(crate) view: Option<Code>,
    /// Row security policies: run when it is read or written.
    pub(crate) policies: Option<Code>,
    /// Checks of the domains that its columns contain: may run when it is read, and when it is written.
    pub(crate) checks: Option<Code>,
    /// Defaults, generation expressions, checks, index expressions: run when it is written.
    pub(crate) expressions: Option<Code>,
}

impl Relation {
    /// The place of a column in `columns`.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| &*column.name == name)
    }

    /// The canonical keys of rows of the stream; `None` if they aren't certain.
    fn spans_of(&self, rows: &WrittenRows) -> Option<Vec<Span>> {
        let is_told_by = |column: &Column| {
            let told =
                |(name, oid): &(Box<str>, u32)| *name == column.name && *oid == column.type_oid;
            Some((rows.columns.iter().position(told)?, column.key_type?))
        };
        let parts = self.key.iter().map(|place| is_told_by(&self.columns[*place]));
        let parts: Vec<(usize, KeyType)> = parts.collect::<Option<_>>()?;
        if parts.is_empty() || parts.len() != rows.columns.len() {
            return None;
        }
        let spans = rows.keys.iter().map(|values| {
            let mut key = Vec::with_capacity(16);
            for (place, key_type) in &parts {
                key_type.push_text(values.get(*place)?, &mut key)?;
            }
            Some(Span::row(key))
        });
        spans.collect()
    }
}

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    pub id: ColumnId,
    pub name: Box<str>,
    /// Its type.
    pub type_oid: u32,
    /// Its type, or the one under its domain.
    pub base_oid: u32,
    /// How its values become a part of a key.
    pub key_type: Option<KeyType>,
    /// A value is stored as it is given: nothing rounds, cuts or pads it.
    pub is_exact: bool,
    /// Computed from other columns.
    pub is_generated: bool,
}

/// What a relation is, as far as replication cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A table whose rows are in the stream; also a partitioned one.
    Table,
    /// An unlogged table.
    Unlogged,
    /// A foreign table.
    Foreign,
    /// A view, expanded where it is used.
    View,
    /// A materialized view.
    MaterializedView,
    /// A sequence.
    Sequence,
    /// A system catalog, a view of the information schema, or a relation of our own.
    System,
}

/// One side of a foreign key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ForeignKey {
    /// The table at the other side.
    pub other: RelId,
    /// Deleting a referenced row changes the referencing table.
    pub changes_on_delete: bool,
    /// Updating a referenced key changes the referencing table.
    pub changes_on_update: bool,
}

/// SQL that runs where the catalog says and no statement shows: the query of a view, policies,
/// defaults. Its facts are found at first use and kept.
#[derive(Debug)]
pub(crate) struct Code {
    /// A statement, with all names qualified that are not in `pg_catalog`.
    pub text: Box<str>,
    pub facts: OnceLock<Facts>,
}

impl Code {
    pub fn new(text: impl Into<Box<str>>) -> Code {
        Code { text: text.into(), facts: OnceLock::new() }
    }
}

/// What calling a routine of a user may do. In order: the worst of several counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Routine {
    /// Depends on its arguments only.
    #[default]
    Pure,
    /// Gives another value each time, but touches nothing.
    Harmless,
    /// May read anything that is replicated.
    Reads,
    /// May read anything, also what only the primary has.
    Primary,
    /// May do anything.
    Opaque,
}

/// The functions of one name in one schema, as one.
#[derive(Debug)]
pub(crate) struct UserFunction {
    pub schema: Box<str>,
    pub routine: Routine,
    /// One of them can be written like a column: `row.function`.
    pub takes_row: bool,
}
