//! Relations that a statement reads or writes, and everything that this implies: inheritance children, views,
//! policies, triggers, defaults, foreign keys (manual, sections 5.4 to 5.12 and chapter 41).

use hihooi_replication::items::{Columns, Item, Items, RelId};
use pg_raw_parse::nodes::{InsertStmt, RangeVar};

use super::scan::{Facts, Scan};
use crate::catalog::{Class, ForeignKey, Relation};
use crate::facts::Unsafe;

/// How rows of a table are changed; several at once are possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Change {
    pub insert: bool,
    pub update: bool,
    pub delete: bool,
}

impl Change {
    pub const INSERT: Change = Change { insert: true, update: false, delete: false };
    pub const UPDATE: Change = Change { insert: false, update: true, delete: false };
    pub const DELETE: Change = Change { insert: false, update: false, delete: true };
    /// What a cascade may do.
    const CASCADE: Change = Change { insert: false, update: true, delete: true };
    pub const ANY: Change = Change { insert: true, update: true, delete: true };

    fn or(self, other: Change) -> Change {
        Change {
            insert: self.insert | other.insert,
            update: self.update | other.update,
            delete: self.delete | other.delete,
        }
    }
}

/// What a statement writes of its target.
pub(super) enum Part<'t> {
    /// Any row, all columns.
    Whole,
    /// The rows that WHERE names, all columns.
    Where,
    /// These columns of them.
    Columns(Vec<&'t str>),
    /// The rows that its VALUES name.
    Values(&'t InsertStmt),
}

/// The tables that a write reaches, and how; walked until no more come.
#[derive(Default)]
struct Reached {
    tables: Vec<(RelId, Change)>,
    next: Vec<(RelId, Change)>,
}

impl Reached {
    fn add(&mut self, table: RelId, change: Change) {
        match self.tables.iter_mut().find(|(known, _)| *known == table) {
            Some((_, known)) if known.or(change) == *known => return,
            Some((_, known)) => *known = known.or(change),
            None => self.tables.push((table, change)),
        }
        self.next.push((table, change));
    }
}

impl<'c, 't> Scan<'c, 't> {
    /// A relation that is read as a whole.
    pub fn read(&mut self, name: &'t RangeVar) {
        for table in self.read_relations(name) {
            self.reads.add_all(&table.members);
        }
    }

    /// A relation in FROM. What is read of it is known where the query ends.
    pub fn read_as_source(&mut self, range: &'t RangeVar) {
        let tables = self.read_relations(range);
        let alias = range.alias();
        let name = alias.and_then(|alias| alias.aliasname()).or(range.relname());
        self.add_source(name.unwrap_or_default(), tables, alias.map(|alias| alias.colnames()));
    }

    /// The tables that a name may mean. What else it may mean is noted.
    fn read_relations(&mut self, name: &'t RangeVar) -> Vec<&'c Relation> {
        let (schema, name) = (name.schemaname(), name.relname().unwrap_or_default());
        if schema.is_none() && self.ctes.contains(&name) {
            return Vec::new();
        }
        if is_temporary(schema) {
            self.opaque(Unsafe::Temporary);
            return Vec::new();
        }
        self.lists_prepared |= matches!(name, "pg_prepared_statements" | "pg_cursors");
        let resolved = self.catalog.resolve(schema, name, self.path);
        if resolved.relations().is_empty() {
            self.unknown_relation();
        }
        let mut tables = Vec::new();
        for relation in resolved.relations() {
            tables.extend(self.read_relation(relation).then_some(*relation));
        }
        tables
    }

    fn unknown_relation(&mut self) {
        self.met_unknown_relation = true;
        self.opaque(Unsafe::UnknownRelation);
    }

    /// Notes what reading a relation brings with it. Whether rows of its own are read.
    fn read_relation(&mut self, relation: &Relation) -> bool {
        match (relation.class, &relation.view) {
            (Class::View, Some(query)) => {
                self.passes_code |= relation.has_code;
                self.code(query);
                return false;
            }
            (Class::View, None) => {
                self.unknown_relation();
                return false;
            }
            (Class::System, _) => self.reads.add_everything(),
            _ => self.asks_more = true,
        }
        for member in relation.members.iter().filter_map(|id| self.catalog.relation(*id)) {
            if let Some(reason) = not_on_replicas(member.class) {
                self.primary_only(reason);
            }
        }
        for code in relation.policies.iter().chain(&relation.checks) {
            self.code(code);
        }
        true
    }

    /// The tables that the target of an INSERT and the like may be.
    pub fn targets(&self, name: &RangeVar) -> Vec<&'c Relation> {
        let schema = name.schemaname();
        if is_temporary(schema) {
            return Vec::new();
        }
        let name = name.relname().unwrap_or_default();
        self.catalog.resolve(schema, name, self.path).relations().to_vec()
    }

    /// The target of an INSERT and the like. Names of WITH don't hide it.
    pub fn write(&mut self, name: &'t RangeVar, change: Change, part: &Part<'t>) {
        self.primary_only(Unsafe::Writes);
        let (schema, name) = (name.schemaname(), name.relname().unwrap_or_default());
        if is_temporary(schema) {
            // Nobody else sees it, but its triggers may do anything; they would be temporary too.
            self.session.temp = true;
            return self.opaque(Unsafe::Temporary);
        }
        let resolved = self.catalog.resolve(schema, name, self.path);
        if resolved.relations().is_empty() {
            return self.unknown_relation();
        }
        let mut reached = Reached::default();
        for relation in resolved.relations() {
            self.reach(relation, change, &mut reached);
        }
        while let Some((table, change)) = reached.next.pop() {
            match self.catalog.relation(table) {
                Some(table) => self.change_table(table, change, &mut reached),
                None => self.unknown_relation(),
            }
        }
        let is_direct = |table: RelId| {
            resolved.relations().iter().any(|relation| relation.members.contains(&table))
        };
        for (table, how) in reached.tables {
            match self.catalog.relation(table) {
                Some(found) if is_direct(table) && how == change => self.write_part(found, part),
                _ => self.writes.add(table),
            }
        }
    }

    /// Of a table that no cascade reaches, what the statement names is written.
    fn write_part(&mut self, table: &Relation, part: &Part<'t>) {
        let (columns, keys) = match part {
            Part::Whole => (Columns::All, None),
            Part::Where => (Columns::All, self.keys_of(0, table)),
            Part::Values(insert) => (Columns::All, self.inserted(insert, table)),
            Part::Columns(names) => {
                // Other letters may come in another encoding.
                let place = |name: &&str| table.column(name).filter(|_| name.is_ascii());
                let places = names.iter().map(place).collect::<Option<Vec<_>>>();
                let keys = match &places {
                    Some(places) if !changes_key(table, places) => self.keys_of(0, table),
                    _ => None,
                };
                (columns_written(table, places), keys)
            }
        };
        self.writes.add_part(Item { columns, ..Item::table(table.id) }, keys);
    }

    /// Adds where the rows of a relation are: in itself, its descendants, or under a view.
    fn reach(&mut self, relation: &Relation, change: Change, reached: &mut Reached) {
        self.answers_more |= relation.has_rules;
        match (relation.class, &relation.view) {
            (Class::View, Some(_)) if relation.has_code => self.runs_code_of(relation),
            (Class::View, Some(query)) => {
                self.code(query);
                match query.facts.get() {
                    Some(facts) if facts.passes_code => self.runs_code_of(relation),
                    Some(Facts { reads: Items::Tables(items), .. }) => {
                        items.iter().for_each(|item| reached.add(item.table, change));
                    }
                    Some(Facts { reads: Items::Nothing, .. }) => {}
                    _ => self.opaque(Unsafe::Writes),
                }
            }
            (Class::Table | Class::Unlogged | Class::Foreign, _) => {
                relation.members.iter().for_each(|member| reached.add(*member, change));
            }
            _ => self.opaque(Unsafe::Writes),
        }
    }

    /// One table whose rows change, with all that this sets off.
    fn change_table(&mut self, table: &Relation, change: Change, reached: &mut Reached) {
        if change.update || change.delete {
            self.reads.add(table.id);
        }
        if table.has_code {
            self.runs_code_of(table);
        }
        let written = table.checks.iter().chain(&table.expressions);
        let written = written.filter(|_| change.insert || change.update);
        for code in written.chain(&table.policies) {
            self.code(code);
        }
        if change.insert || change.update {
            for key in &table.references {
                self.read_other_side(key);
            }
        }
        for key in &table.referenced_by {
            let deletes = change.delete && key.changes_on_delete;
            let updates = change.update && key.changes_on_update;
            if change.delete || change.update {
                self.read_other_side(key);
            }
            if let Some(other) = self.catalog.relation(key.other).filter(|_| deletes || updates) {
                self.reach(other, Change::CASCADE, reached);
            }
        }
    }

    fn runs_code_of(&mut self, relation: &Relation) {
        self.runs_opaque_code(self.catalog.leaves.of_name(&relation.name));
    }

    /// Checking a foreign key reads the table at its other side.
    fn read_other_side(&mut self, key: &ForeignKey) {
        match self.catalog.relation(key.other) {
            Some(other) => self.reads.add_all(&other.members),
            None => self.reads.add(key.other),
        }
    }

    /// TRUNCATE: empties the table and its descendants, and with CASCADE all that refers to them.
    pub fn truncate(&mut self, name: &'t RangeVar, cascade: bool) {
        self.primary_only(Unsafe::Writes);
        if is_temporary(name.schemaname()) {
            self.session.temp = true;
            return self.opaque(Unsafe::Temporary);
        }
        let resolved =
            self.catalog.resolve(name.schemaname(), name.relname().unwrap_or_default(), self.path);
        if resolved.relations().is_empty() {
            return self.unknown_relation();
        }
        let mut reached = Reached::default();
        for relation in resolved.relations() {
            self.reach(relation, Change::DELETE, &mut reached);
        }
        while let Some((table, _)) = reached.next.pop() {
            let Some(table) = self.catalog.relation(table) else { continue };
            self.writes.add(table.id);
            if table.has_code {
                self.runs_code_of(table);
            }
            for key in table.referenced_by.iter().filter(|_| cascade) {
                if let Some(other) = self.catalog.relation(key.other) {
                    self.reach(other, Change::DELETE, &mut reached);
                }
            }
        }
    }
}

/// Whether an UPDATE of these columns may give a row another key.
fn changes_key(table: &Relation, places: &[usize]) -> bool {
    table.key.iter().any(|key| places.contains(key) || table.columns[*key].is_generated)
}

/// What an UPDATE of these columns writes. A row that moves to another partition is written as a whole.
fn columns_written(table: &Relation, places: Option<Vec<usize>>) -> Columns {
    let Some(places) = places.filter(|_| !table.is_partition) else { return Columns::All };
    let generated = table.columns.iter().filter(|column| column.is_generated);
    let named = places.into_iter().map(|place| table.columns[place].id);
    Columns::of(named.chain(generated.map(|column| column.id)).collect())
}

/// Whether a name is of the session's own temporary schema.
pub(super) fn is_temporary(schema: Option<&str>) -> bool {
    schema.is_some_and(|schema| schema == "pg_temp" || schema.starts_with("pg_temp_"))
}

fn not_on_replicas(class: Class) -> Option<Unsafe> {
    match class {
        Class::Table | Class::View => None,
        Class::Unlogged => Some(Unsafe::Unlogged),
        Class::Foreign => Some(Unsafe::Foreign),
        Class::MaterializedView => Some(Unsafe::MaterializedView),
        Class::Sequence => Some(Unsafe::Sequence),
        Class::System => Some(Unsafe::SystemCatalog),
    }
}
