//! Resolves the names in a query to columns of tables (manual, sections 4.2.1 and 7.2). An ambiguous name
//! counts as every column that it could mean, in its query and all outer queries (I6).

use hihooi_replication::items::{Columns, Item};
use pg_raw_parse::list::NodeList;
use pg_raw_parse::nodes::{Alias, JoinExpr};

use super::expressions::last_name;
use super::keys::Condition;
use super::scan::Scan;
use crate::catalog::{Column, Relation};

/// A partitioned table with more partitions is read as a whole: nothing is found for each.
const MEMBERS_MAX: usize = 64;

/// What stands in one FROM: the names there, and what is asked of them.
#[derive(Default)]
pub(super) struct Scope<'c, 't> {
    pub sources: Vec<Source<'c, 't>>,
    /// What must hold for a row of these to matter.
    pub conditions: Vec<Condition<'t>>,
    /// Columns that joins merge by USING: their names alone are unambiguous.
    pub merged: Vec<Merged<'t>>,
    /// NATURAL merges columns: a name alone may mean no table's column.
    pub is_natural: bool,
    /// A join has an alias, which hides the names inside it: all columns are read.
    pub hides: bool,
}

/// A column that a join merges by USING.
pub(super) struct Merged<'t> {
    pub name: &'t str,
    /// The first source of the join.
    pub first: usize,
    /// The source whose column it is; `None` if that depends on the row, or isn't known.
    pub source: Option<usize>,
}

/// A name in FROM.
pub(super) struct Source<'c, 't> {
    pub name: &'t str,
    /// The tables that may be meant: none for what is no table, several for a name that isn't clear.
    pub tables: Vec<&'c Relation>,
    /// All columns are read.
    pub all: bool,
    /// These are.
    pub columns: Vec<&'t str>,
    /// Its columns have other names here.
    pub is_renamed: bool,
    /// It is the target of a change, of which more is read than is named here.
    pub is_target: bool,
}

impl<'t> Source<'_, 't> {
    pub fn has(&self, column: &str) -> bool {
        self.tables.iter().any(|table| table.column(column).is_some())
    }

    /// Whether its column of this name has the values that this one has.
    pub fn compares_as(&self, name: &str, column: &Column) -> bool {
        let is_alike = |table: &&Relation| {
            let found = table.column(name).map(|place| &table.columns[place]);
            found.is_some_and(|found| {
                found.base_oid == column.base_oid && found.key_type == column.key_type
            })
        };
        !self.tables.is_empty() && self.tables.iter().all(is_alike)
    }

    fn read(&mut self, column: &'t str) {
        if self.has(column) && !self.columns.contains(&column) {
            self.columns.push(column);
        }
    }

    fn columns_of(&self, member: &Relation) -> Columns {
        let is_plain = !self.all && !self.is_renamed && member.policies.is_none();
        let places = self.columns.iter().map(|name| member.column(name));
        match places.collect::<Option<Vec<_>>>() {
            Some(places) if is_plain && !member.columns.is_empty() => {
                Columns::of(places.into_iter().map(|place| member.columns[place].id).collect())
            }
            _ => Columns::All,
        }
    }
}

impl<'c, 't> Scan<'c, 't> {
    pub fn open_scope(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Notes what was read of the tables in the FROM that ends here.
    pub fn close_scope(&mut self) {
        let Some(scope) = self.scopes.last() else { return };
        let mut read = Vec::new();
        for (place, source) in scope.sources.iter().enumerate().filter(|(_, s)| !s.is_target) {
            for table in &source.tables {
                if table.members.len() > MEMBERS_MAX {
                    read.extend(table.members.iter().map(|id| (Item::table(*id), None)));
                    continue;
                }
                let members = table.members.iter().filter_map(|id| self.catalog.relation(*id));
                read.extend(members.map(|member| {
                    let columns =
                        if scope.hides { Columns::All } else { source.columns_of(member) };
                    let item = Item { columns, ..Item::table(member.id) };
                    (item, self.keys_of(place, member))
                }));
            }
        }
        self.scopes.pop();
        for (item, keys) in read {
            self.reads.add_part(item, keys);
        }
    }

    /// Adds a name to the FROM at hand.
    pub fn add_source(
        &mut self,
        name: &'t str,
        tables: Vec<&'c Relation>,
        renamed: Option<&'t NodeList>,
    ) {
        let is_renamed = renamed.is_some_and(|names| !names.is_empty());
        let source = Source {
            name,
            tables,
            all: is_renamed,
            columns: Vec::new(),
            is_renamed,
            is_target: false,
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.sources.push(source);
        }
    }

    /// The source that was added last is the target of a change.
    pub fn is_target(&mut self) {
        if let Some(source) = self.scopes.last_mut().and_then(|scope| scope.sources.last_mut()) {
            source.is_target = true;
        }
    }

    /// A join has an alias: its columns have that name in front, and no other.
    pub fn hides_names(&mut self, alias: &'t Alias) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.hides = true;
        }
        self.add_source(alias.aliasname().unwrap_or_default(), Vec::new(), None);
    }

    /// The sources of the FROM at hand so far.
    pub fn sources(&self) -> usize {
        self.scopes.last().map_or(0, |scope| scope.sources.len())
    }

    /// A column's name, or a source's, which stands for its whole row.
    pub fn name(&mut self, name: &'t str) {
        // Servers fold other letters by their locale, and clients may send them in another encoding.
        if !name.is_ascii() {
            return self.all_columns();
        }
        for source in self.scopes.iter_mut().flat_map(|scope| &mut scope.sources) {
            source.all |= source.name == name;
            source.read(name);
        }
    }

    /// A column's name behind that of its source.
    pub fn qualified(&mut self, source: &'t str, name: &'t str) {
        if !name.is_ascii() || !source.is_ascii() {
            return self.all_columns();
        }
        let mut is_known = false;
        for found in self.scopes.iter_mut().flat_map(|scope| &mut scope.sources) {
            if found.name == source {
                is_known = true;
                found.all |= !found.has(name);
                found.read(name);
            }
        }
        if !is_known {
            self.all_columns();
        }
    }

    /// `t.*`.
    fn whole_row(&mut self, name: &'t str) {
        let mut is_known = false;
        for source in self.scopes.iter_mut().flat_map(|scope| &mut scope.sources) {
            source.all |= source.name == name;
            is_known |= source.name == name;
        }
        if !is_known || !name.is_ascii() {
            self.all_columns();
        }
    }

    /// `*`, or what isn't understood.
    pub fn all_columns(&mut self) {
        for source in self.scopes.iter_mut().flat_map(|scope| &mut scope.sources) {
            source.all = true;
        }
    }

    /// The names of a column reference.
    pub fn column_names(&mut self, fields: &'t NodeList) {
        let qualifier = fields.len().checked_sub(2).and_then(|at| fields.get(at)?.as_str());
        match (last_name(fields), qualifier) {
            (Some(name), None) if fields.len() == 1 => self.name(name),
            (Some(name), Some(qualifier)) => self.qualified(qualifier, name),
            (None, Some(qualifier)) => self.whole_row(qualifier),
            _ => self.all_columns(),
        }
    }

    /// The columns that a join reads in order to merge them.
    pub fn merges(&mut self, join: &'t JoinExpr) {
        if join.is_natural {
            self.all_columns();
        }
        join.using_clause().iter().filter_map(|name| name.sval()).for_each(|name| self.name(name));
        if let Some(scope) = self.scopes.last_mut() {
            scope.is_natural |= join.is_natural;
        }
    }
}
