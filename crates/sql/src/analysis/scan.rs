//! What a walk over a parse tree collects.

use std::ops::Range;
use std::sync::LazyLock;

use hihooi_replication::items::{Columns, Item, Items, RelId};
use pg_raw_parse::Node;

use super::names::Scope;
use crate::catalog::{Catalog, Code, Routine, SearchPath};
use crate::facts::{Kind, Replica, SessionEffect, Statement, Unsafe};
use crate::leaves::reads_time;
use crate::named_rows::{KeyTemplate, NamedRows};

/// How deep expressions and queries may nest before they touch everything. PostgreSQL's own
/// limit (max_stack_depth) lies at some thousands; ours protects our stack.
pub(super) const DEPTH_MAX: usize = 400;

/// How deep views may stand on views before they touch everything.
const CODE_DEPTH_MAX: usize = 32;

/// The search path of code that the catalog prints: all its names are qualified.
static NOWHERE: LazyLock<SearchPath> = LazyLock::new(|| SearchPath::new::<&str>([]));

/// What was found, apart from what the statement is.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub reads: Items,
    pub writes: Items,
    pub unsafe_on_replica: Option<Unsafe>,
    pub session: SessionEffect,
    pub row_locks: bool,
    /// It reads through a view with triggers or rules: writing through it runs them.
    pub passes_code: bool,
    /// It reads more than the system catalogs.
    pub asks_more: bool,
    /// All reasons, a bit each.
    reasons: u32,
}

/// A set of items that grows.
#[derive(Debug, Default)]
pub(super) struct Touched {
    everything: bool,
    parts: Vec<(Item, Option<Vec<KeyTemplate>>)>,
}

impl Touched {
    /// The whole table.
    pub fn add(&mut self, table: RelId) {
        let has = |(item, keys): &(Item, _)| {
            item.table == table && item.columns == Columns::All && Option::is_none(keys)
        };
        if !self.everything && !self.parts.iter().any(has) {
            self.parts.push((Item::table(table), None));
        }
    }

    /// These tables as a whole.
    pub fn add_all(&mut self, tables: &[RelId]) {
        match tables {
            [one] => self.add(*one),
            // A partitioned table may have thousands: duplicates go at the end.
            _ => tables.iter().for_each(|table| self.add_part(Item::table(*table), None)),
        }
    }

    /// A part of a table; of it, the rows with these keys.
    pub fn add_part(&mut self, item: Item, keys: Option<Vec<KeyTemplate>>) {
        if !self.everything {
            self.parts.push((item, keys));
        }
    }

    pub fn add_everything(&mut self) {
        self.everything = true;
    }

    pub fn merge(&mut self, items: &Items) {
        match items {
            Items::Nothing => {}
            Items::Tables(items) => {
                items.iter().for_each(|item| self.add_part(item.clone(), None));
            }
            Items::Everything => self.add_everything(),
        }
    }

    fn is_empty(&self) -> bool {
        !self.everything && self.parts.is_empty()
    }

    /// All items, and the tables of which only certain rows are meant.
    fn into_items(mut self, places: &[u16]) -> (Items, Box<[NamedRows]>) {
        if self.everything {
            return (Items::Everything, Box::default());
        }
        self.parts.sort_by_key(|(item, _)| item.table);
        let groups = self.parts.chunk_by(|a, b| a.0.table == b.0.table);
        let named = groups.filter_map(|group| {
            let keys = group.iter().map(|(_, keys)| keys.clone()).collect::<Option<Vec<_>>>()?;
            let mut keys = keys.concat();
            keys.iter_mut().for_each(|key| key.counts(places));
            Some(NamedRows { table: group[0].0.table, keys: keys.into() })
        });
        let named = named.collect();
        (Items::of(self.parts.into_iter().map(|(item, _)| item)), named)
    }
}

/// A walk over one statement (`'t`: its tree, `'c`: the catalog).
pub(super) struct Scan<'c, 't> {
    pub catalog: &'c Catalog,
    pub path: Option<&'c SearchPath>,
    /// Of the statement; empty in a part of one.
    pub text: &'t str,
    /// The text that it stands in; places in the tree count from its start.
    pub whole_text: &'t str,
    /// Where the constants stand that other texts with these facts have others for.
    pub constants: Option<&'c [Range<usize>]>,
    pub reads: Touched,
    pub writes: Touched,
    pub session: SessionEffect,
    pub row_locks: bool,
    pub may_commit_inside: bool,
    pub answers_more: bool,
    pub lists_prepared: bool,
    /// The names that WITH gives here; they hide relations.
    pub ctes: Vec<&'t str>,
    /// The FROMs around the place at hand, the innermost last.
    pub scopes: Vec<Scope<'c, 't>>,
    /// In how many places each parameter stands, by its number.
    pub parameters: Vec<u16>,
    /// A relation was named that the catalog doesn't know.
    pub met_unknown_relation: bool,
    /// It reads through a view with triggers or rules.
    pub passes_code: bool,
    /// It reads more than the system catalogs.
    pub asks_more: bool,
    unsafe_on_replica: Option<Unsafe>,
    reasons: u32,
    depth: usize,
    code_depth: usize,
}

impl<'c, 't> Scan<'c, 't> {
    pub fn new(catalog: &'c Catalog, path: Option<&'c SearchPath>) -> Scan<'c, 't> {
        Scan {
            catalog,
            path,
            text: "",
            whole_text: "",
            constants: None,
            reads: Touched::default(),
            writes: Touched::default(),
            session: SessionEffect::default(),
            row_locks: false,
            may_commit_inside: false,
            answers_more: false,
            lists_prepared: false,
            ctes: Vec::new(),
            scopes: Vec::new(),
            parameters: Vec::new(),
            met_unknown_relation: false,
            passes_code: false,
            asks_more: false,
            unsafe_on_replica: None,
            reasons: 0,
            depth: 0,
            code_depth: 0,
        }
    }

    /// Walks a statement and says what it is.
    pub fn statement(mut self, node: Node<'t>, range: Range<usize>) -> Statement {
        let kind = self.kind_of(node, &range);
        self.into_statement(kind, range)
    }

    pub fn into_statement(mut self, kind: Kind, range: Range<usize>) -> Statement {
        // A function may read its views, whose names are everyday ones.
        let may_mean_it = self.path.is_none_or(|path| {
            path.schemas().iter().any(|schema| &**schema == "information_schema")
        });
        if self.reads.everything && self.asks_more && may_mean_it {
            self.primary_only(Unsafe::SystemCatalog);
        }
        let (reads, read_rows) = self.reads.into_items(&self.parameters);
        let (writes, written_rows) = self.writes.into_items(&self.parameters);
        Statement {
            range,
            kind,
            row_locks: self.row_locks,
            may_commit_inside: self.may_commit_inside,
            answers_more: self.answers_more,
            lists_prepared: self.lists_prepared,
            reads_clock: self.catalog.leaves.reads_clock(self.text),
            reasons: self.reasons,
            only_catalogs: self.reasons == Unsafe::SystemCatalog.bit()
                && !self.asks_more
                && !reads_time(self.text),
            replica: self.unsafe_on_replica.map_or(Replica::Safe, Replica::Unsafe),
            reads,
            writes,
            read_rows,
            written_rows,
            session: self.session,
        }
    }

    fn into_facts(self) -> Facts {
        Facts {
            reads: self.reads.into_items(&[]).0,
            writes: self.writes.into_items(&[]).0,
            unsafe_on_replica: self.unsafe_on_replica,
            session: self.session,
            row_locks: self.row_locks,
            passes_code: self.passes_code,
            asks_more: self.asks_more,
            reasons: self.reasons,
        }
    }

    /// Notes why a replica may not run it. The first reason stays.
    pub fn primary_only(&mut self, reason: Unsafe) {
        self.unsafe_on_replica.get_or_insert(reason);
        self.reasons |= reason.bit();
    }

    /// It may read and write anything.
    pub fn opaque(&mut self, reason: Unsafe) {
        self.primary_only(reason);
        self.reads.add_everything();
        self.writes.add_everything();
    }

    /// It may also leave anything in the session.
    pub fn unknown(&mut self, reason: Unsafe) {
        self.opaque(reason);
        self.session.merge(&SessionEffect::anything());
    }

    pub fn may_write(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Whether it may write whatever there is.
    pub fn may_write_everything(&self) -> bool {
        self.writes.everything
    }

    /// It was only planned: it changes nothing, and leaves nothing.
    pub fn forget_effects(&mut self) {
        self.writes = Touched::default();
        self.session = SessionEffect::default();
        self.row_locks = false;
        self.may_commit_inside = false;
    }

    /// It runs a routine of a user, which may leave this in the session if it is opaque.
    pub fn routine(&mut self, routine: Routine, leaves: Option<&SessionEffect>) {
        self.asks_more |= routine != Routine::Pure;
        match routine {
            Routine::Pure | Routine::Harmless => {}
            Routine::Reads => self.reads.add_everything(),
            Routine::Primary => {
                self.primary_only(Unsafe::ServerState);
                self.reads.add_everything();
            }
            Routine::Opaque => self.runs_opaque_code(leaves),
        }
    }

    /// It runs code of a user that may do anything, and leave this in the session.
    pub fn runs_opaque_code(&mut self, leaves: Option<&SessionEffect>) {
        self.opaque(Unsafe::VolatileFunction);
        if let Some(leaves) = leaves {
            self.session.merge(leaves);
        }
    }

    /// Goes one level deeper, if that is still allowed.
    pub fn deeper(&mut self, walk: impl FnOnce(&mut Self)) {
        if self.depth >= DEPTH_MAX {
            return self.unknown(Unsafe::Unparsable);
        }
        self.depth += 1;
        walk(self);
        self.depth -= 1;
    }

    /// It runs code that the catalog knows: a view, policies, defaults.
    pub fn code(&mut self, code: &Code) {
        if let Some(facts) = code.facts.get() {
            return self.merge(facts);
        }
        let facts = self.facts_of(code);
        self.merge(&facts);
        // Another thread, or the walk itself in a circle of views, may have been first.
        let _ = code.facts.set(facts);
    }

    fn facts_of(&self, code: &Code) -> Facts {
        let mut scan = Scan::new(self.catalog, Some(&NOWHERE));
        scan.code_depth = self.code_depth + 1;
        match pg_raw_parse::parse(&code.text) {
            Ok(tree) if scan.code_depth <= CODE_DEPTH_MAX => {
                for raw in tree.iter() {
                    scan.query(raw.stmt());
                }
                scan.into_facts()
            }
            _ => {
                scan.unknown(Unsafe::Unparsable);
                scan.into_facts()
            }
        }
    }

    fn merge(&mut self, facts: &Facts) {
        self.reads.merge(&facts.reads);
        self.writes.merge(&facts.writes);
        self.row_locks |= facts.row_locks;
        self.passes_code |= facts.passes_code;
        self.asks_more |= facts.asks_more;
        self.reasons |= facts.reasons;
        if let Some(reason) = facts.unsafe_on_replica {
            self.primary_only(reason);
        }
        if !facts.session.is_none() {
            self.session.merge(&facts.session);
        }
    }
}
