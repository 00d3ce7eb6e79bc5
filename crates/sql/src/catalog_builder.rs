//! Builds a [`Catalog`] from rows, which come from PostgreSQL through [`crate::catalog_queries`], or from a
//! test.
//!
//! `crate::routines` determines what user-defined functions may do.

use std::collections::HashSet;
use std::sync::Arc;

use hihooi_replication::items::{ColumnId, RelId};

use crate::builtins::{self, Builtin};
use crate::catalog::{
    Catalog, Class, Code, Column, ForeignKey, Map, Relation, Routine, UserFunction,
};
use crate::keys::KeyType;
use crate::leaves::leaves;
use crate::routines::{of_builtin, routines};

/// A function's volatility, in order of harm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Volatility {
    /// Depends on its arguments only.
    Immutable,
    /// The same within a statement.
    Stable,
    /// May do anything.
    Volatile,
}

impl Volatility {
    /// From `pg_proc.provolatile`; what isn't known is volatile.
    #[must_use]
    pub fn from_char(text: &str) -> Volatility {
        match text {
            "i" => Volatility::Immutable,
            "s" => Volatility::Stable,
            _ => Volatility::Volatile,
        }
    }
}

/// A relation as `pg_class` has it.
#[derive(Clone, Copy, Debug)]
pub struct RelationRow<'a> {
    /// OID.
    pub id: RelId,
    /// Schema.
    pub schema: &'a str,
    /// Name.
    pub name: &'a str,
    /// `relkind`: r, p, v, m, S or f.
    pub kind: &'a str,
    /// `relpersistence`: p, u or t.
    pub persistence: &'a str,
    /// What its users' triggers and rules run, but a view's own rule; empty if it has none.
    pub code: &'a str,
    /// It has rules besides a view's own.
    pub has_rules: bool,
}

/// A column as `pg_attribute` has it.
#[derive(Clone, Copy, Debug)]
pub struct ColumnRow<'a> {
    /// The table.
    pub relation: RelId,
    /// Number.
    pub number: u16,
    /// Name.
    pub name: &'a str,
    /// OID of its type.
    pub type_oid: u32,
    /// OID of its type, or of the one under its domain.
    pub base_oid: u32,
    /// Its type has no modifier that could change a value: no length, precision or scale.
    pub is_exact: bool,
    /// Equal values look the same: its collation, if it has one, is deterministic.
    pub is_deterministic: bool,
    /// Computed from other columns.
    pub is_generated: bool,
}

/// A user's function as `pg_proc` has it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow<'a> {
    /// Schema.
    pub schema: &'a str,
    /// Name.
    pub name: &'a str,
    /// Volatility; of an aggregate the worst of its support functions.
    pub volatility: Volatility,
    /// Language.
    pub language: &'a str,
    /// It takes one row, so that it can be written like a column.
    pub takes_row: bool,
    /// The type that it returns; `trigger` and `event_trigger` tell that only such may run it.
    pub returns: &'a str,
    /// Its source text unless it is compiled, or of an aggregate the names of its support functions;
    /// then the defaults of its arguments.
    pub body: &'a str,
    /// The types of users that it takes and gives, a line each.
    pub types: &'a str,
}

/// The functions of `pg_catalog` by name, with the worst volatility of their overloads. They hardly ever
/// change, so that catalogs share them ([`Builder::with_builtins`]).
#[derive(Clone, Debug, Default)]
pub struct Builtins(Map<Box<str>, Volatility>);

impl Builtins {
    /// What calling the function of this name means, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<Builtin> {
        self.0.get(name).map(|volatility| builtins::classify(name, *volatility))
    }
}

/// Collects rows, in any order, and makes a [`Catalog`] of them.
#[derive(Debug, Default)]
pub struct Builder {
    pub(crate) relations: Map<RelId, Relation>,
    inherits: Vec<(RelId, RelId)>,
    foreign_keys: Vec<(RelId, RelId, ForeignKey)>,
    /// What triggers and rules run.
    fired: Map<RelId, Box<str>>,
    code: Vec<(RelId, CodeKind, Box<str>)>,
    columns: Vec<(RelId, Column)>,
    keys: Vec<(RelId, Vec<ColumnId>)>,
    has_own_comparisons: bool,
    builtins: Arc<Builtins>,
    pub(crate) functions: Vec<Function>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) casts: Vec<Cast>,
    pub(crate) domains: Vec<(Box<str>, Box<str>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CodeKind {
    View,
    Policies,
    Checks,
    Expressions,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub schema: Box<str>,
    pub name: Box<str>,
    pub volatility: Volatility,
    /// C or internal: of its body there are only the defaults of its arguments.
    pub compiled: bool,
    /// SQL or PL/pgSQL: its body is understood.
    pub understood: bool,
    /// In another language, and it may read tables whose names it composes.
    pub may_compose: bool,
    pub takes_row: bool,
    pub is_trigger: bool,
    pub is_event_trigger: bool,
    pub body: Box<str>,
    types: Box<str>,
}

/// A user's operator.
#[derive(Debug)]
pub(crate) struct Operator {
    pub name: Box<str>,
    pub function: Box<str>,
    /// The function is one of `pg_catalog`.
    pub is_builtin: bool,
}

/// A user's cast.
#[derive(Debug)]
pub(crate) struct Cast {
    pub implicit: bool,
    pub type_name: Box<str>,
    pub function: Box<str>,
    /// The function is one of `pg_catalog`.
    pub is_builtin: bool,
}

/// Languages, and the word without which their code can't ask the database anything.
const INTERFACES: &[(&str, &str)] = &[
    ("plperl", "spi_"),
    ("plperlu", "spi_"),
    ("plpython3u", "plpy"),
    ("pltcl", "spi_"),
    ("pltclu", "spi_"),
    ("plv8", "plv8"),
];

impl Builder {
    /// Begins with functions of `pg_catalog` that are known already.
    #[must_use]
    pub fn with_builtins(builtins: Arc<Builtins>) -> Builder {
        Builder { builtins, ..Builder::default() }
    }

    /// The functions of `pg_catalog` that were added, for the next catalog.
    #[must_use]
    pub fn builtins(&self) -> Arc<Builtins> {
        self.builtins.clone()
    }

    /// Adds a relation. Temporary ones are left out.
    pub fn relation(&mut self, row: RelationRow<'_>) {
        if row.persistence == "t" {
            return;
        }
        let relation = Relation {
            id: row.id,
            schema: row.schema.into(),
            name: row.name.into(),
            class: class_of(&row),
            has_code: !row.code.is_empty(),
            has_rules: row.has_rules,
            members: Box::default(),
            is_partition: false,
            columns: Vec::new(),
            key: Box::default(),
            references: Vec::new(),
            referenced_by: Vec::new(),
            view: None,
            policies: None,
            checks: None,
            expressions: None,
        };
        self.relations.insert(row.id, relation);
        self.fired.insert(row.id, row.code.into());
    }

    /// All code that may run where a relation is read or written, with the names of other relations
    /// that are written with it.
    pub(crate) fn runs_with(&self, relation: &Relation) -> String {
        let codes = [&relation.view, &relation.policies, &relation.checks, &relation.expressions];
        let texts = codes.into_iter().flatten().map(|code| &code.text);
        let cascades = relation.referenced_by.iter();
        let cascades = cascades.filter(|key| key.changes_on_delete || key.changes_on_update);
        let others = cascades.map(|key| key.other).chain(relation.members.iter().copied());
        let others = others.filter(|other| *other != relation.id);
        let names = others.filter_map(|other| Some(&self.relations.get(&other)?.name));
        let parts = texts.chain(self.fired.get(&relation.id)).chain(names);
        parts.map(|part| &**part).collect::<Vec<_>>().join("; ")
    }

    /// Gives a table a column.
    pub fn column(&mut self, row: ColumnRow<'_>) {
        let key_type = KeyType::of(row.base_oid).filter(|_| row.is_deterministic);
        let column = Column {
            id: ColumnId(row.number),
            name: row.name.into(),
            type_oid: row.type_oid,
            base_oid: row.base_oid,
            key_type,
            is_exact: row.is_exact,
            is_generated: row.is_generated,
        };
        self.columns.push((row.relation, column));
    }

    /// Gives a table the columns of its replica identity, in the order of their index.
    pub fn key(&mut self, relation: RelId, columns: impl IntoIterator<Item = u16>) {
        self.keys.push((relation, columns.into_iter().map(ColumnId).collect()));
    }

    /// A user's operator compares values of a built-in type, or of a domain.
    pub fn own_comparisons(&mut self) {
        self.has_own_comparisons = true;
    }

    /// Gives a view its query.
    pub fn view(&mut self, id: RelId, query: &str) {
        self.code.push((id, CodeKind::View, query.into()));
    }

    /// Gives a table its row security policies: expressions with commas between them.
    pub fn policies(&mut self, id: RelId, expressions: &str) {
        self.code.push((id, CodeKind::Policies, select(expressions)));
    }

    /// Gives a table the checks of the domains that its columns contain: expressions with commas between them.
    pub fn checks(&mut self, id: RelId, expressions: &str) {
        self.code.push((id, CodeKind::Checks, select(expressions)));
    }

    /// Gives a table what runs when it is written: expressions with commas between them.
    pub fn expressions(&mut self, id: RelId, expressions: &str) {
        self.code.push((id, CodeKind::Expressions, select(expressions)));
    }

    /// Says that a table inherits from another or is its partition.
    pub fn inherits(&mut self, child: RelId, parent: RelId) {
        self.inherits.push((child, parent));
    }

    /// Adds a foreign key. The actions are `pg_constraint.confdeltype` and `confupdtype`: c, n
    /// and d (CASCADE, SET NULL, SET DEFAULT) change the referencing table.
    pub fn foreign_key(&mut self, from: RelId, to: RelId, on_delete: &str, on_update: &str) {
        let changes = |action: &str| !matches!(action, "a" | "r");
        let key = ForeignKey {
            other: to,
            changes_on_delete: changes(on_delete),
            changes_on_update: changes(on_update),
        };
        self.foreign_keys.push((from, to, key));
    }

    /// Adds a function of `pg_catalog`, with the worst volatility of its overloads.
    pub fn builtin(&mut self, name: &str, volatility: Volatility) {
        let known = Arc::make_mut(&mut self.builtins).0.entry(name.into()).or_insert(volatility);
        *known = volatility.max(*known);
    }

    /// Adds a user's function, procedure, aggregate or window function.
    pub fn function(&mut self, row: FunctionRow<'_>) {
        self.functions.push(Function {
            schema: row.schema.into(),
            name: row.name.into(),
            volatility: row.volatility,
            compiled: matches!(row.language, "c" | "internal"),
            understood: matches!(row.language, "sql" | "plpgsql"),
            may_compose: {
                let interface = INTERFACES.iter().find(|(language, _)| *language == row.language);
                interface.is_none_or(|(_, word)| row.body.contains(word))
            },
            takes_row: row.takes_row,
            is_trigger: row.returns == "trigger",
            is_event_trigger: row.returns == "event_trigger",
            body: row.body.into(),
            types: row.types.into(),
        });
    }

    /// Adds a user-defined operator and its function's name, and whether that is one of `pg_catalog`.
    pub fn operator(&mut self, name: &str, function: &str, is_builtin: bool) {
        self.operators.push(Operator { name: name.into(), function: function.into(), is_builtin });
    }

    /// Adds a user-defined cast to a type, by its function's name; `implicit` unless the cast must be written for
    /// PostgreSQL to apply it, and whether the function is one of `pg_catalog`. A domain over the type has the same casts.
    /// (With no type, a function that compares values.)
    pub fn cast(&mut self, implicit: bool, type_name: &str, function: &str, is_builtin: bool) {
        let (type_name, function) = (type_name.into(), function.into());
        self.casts.push(Cast { implicit, type_name, function, is_builtin });
    }

    /// Adds the checks of a domain, under the name of a type that is or contains it.
    pub fn domain(&mut self, type_name: &str, expressions: &str) {
        self.domains.push((type_name.into(), select(expressions)));
    }

    /// Makes the catalog. `version` tells it from others of the same database.
    #[must_use]
    pub fn build(mut self, version: u64) -> Catalog {
        self.link_members();
        self.link_columns();
        self.link_foreign_keys();
        self.attach_code();
        self.attach_checks();
        let has_own_comparisons = self.has_own_comparisons;
        let builtins = self.builtins.clone();
        let mut catalog = Catalog { version, builtins, has_own_comparisons, ..Catalog::default() };
        catalog.leaves = leaves(&self);
        let routines = routines(&self, &catalog);
        let claims = self.functions.iter().map(|function| function.volatility);
        catalog.immutable_may_write = claims
            .zip(&routines)
            .any(|claim| matches!(claim, (Volatility::Immutable, Routine::Opaque)));
        self.add_functions(&mut catalog, &routines);
        self.add_operators_and_casts(&mut catalog);
        for (name, text) in self.domains {
            catalog.domains.insert(name, Code::new(text));
        }
        for relation in self.relations.values() {
            catalog.by_name.entry(relation.name.clone()).or_default().push(relation.id);
        }
        for ids in catalog.by_name.values_mut() {
            ids.sort_unstable();
        }
        catalog.relations = self.relations;
        catalog
    }

    fn link_members(&mut self) {
        let mut children: Map<RelId, Vec<RelId>> = Map::default();
        for &(child, parent) in &self.inherits {
            children.entry(parent).or_default().push(child);
        }
        for (child, _) in &self.inherits {
            if let Some(relation) = self.relations.get_mut(child) {
                relation.is_partition = true;
            }
        }
        for relation in self.relations.values_mut() {
            let mut members = vec![relation.id];
            let mut next = 0;
            while let Some(parent) = members.get(next).copied() {
                next += 1;
                for child in children.get(&parent).into_iter().flatten() {
                    if !members.contains(child) {
                        members.push(*child);
                    }
                }
            }
            relation.members = members.into();
        }
    }

    fn link_columns(&mut self) {
        self.columns.sort_by_key(|(_, column)| column.id);
        for (id, column) in std::mem::take(&mut self.columns) {
            if let Some(relation) = self.relations.get_mut(&id) {
                relation.columns.push(column);
            }
        }
        for (id, key) in &self.keys {
            let Some(relation) = self.relations.get_mut(id) else { continue };
            let place = |id: &ColumnId| relation.columns.iter().position(|column| column.id == *id);
            relation.key = key.iter().map(place).collect::<Option<_>>().unwrap_or_default();
        }
    }

    fn link_foreign_keys(&mut self) {
        for &(from, to, key) in &self.foreign_keys {
            if let Some(relation) = self.relations.get_mut(&from) {
                relation.references.push(key);
            }
            if let Some(relation) = self.relations.get_mut(&to) {
                relation.referenced_by.push(ForeignKey { other: from, ..key });
            }
        }
    }

    fn attach_code(&mut self) {
        for (id, kind, text) in std::mem::take(&mut self.code) {
            let Some(relation) = self.relations.get_mut(&id) else { continue };
            let slot = match kind {
                CodeKind::View => &mut relation.view,
                CodeKind::Policies => &mut relation.policies,
                CodeKind::Checks => &mut relation.checks,
                CodeKind::Expressions => &mut relation.expressions,
            };
            // Several rows for one relation are one list of expressions.
            *slot = Some(match slot.take() {
                Some(Code { text: before, .. }) => {
                    Code::new(format!("{before}, {}", text.trim_start_matches("SELECT ")))
                }
                None => Code::new(text),
            });
        }
    }

    /// A call runs the checks of domains that its arguments and results contain.
    fn attach_checks(&mut self) {
        let domains: HashSet<&str> = self.domains.iter().map(|(name, _)| &**name).collect();
        for function in &mut self.functions {
            let checked = function.types.lines().filter(|name| domains.contains(name));
            let parts = std::iter::once(&*function.body).chain(checked);
            let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            function.body = parts.join("; ").into();
        }
    }

    fn add_functions(&self, catalog: &mut Catalog, routines: &[Routine]) {
        for (function, &routine) in self.functions.iter().zip(routines) {
            let functions = catalog.functions.entry(function.name.clone()).or_default();
            match functions.iter_mut().find(|f| f.schema == function.schema) {
                Some(known) => {
                    known.routine = known.routine.max(routine);
                    known.takes_row |= function.takes_row;
                }
                None => functions.push(UserFunction {
                    schema: function.schema.clone(),
                    routine,
                    takes_row: function.takes_row,
                }),
            }
        }
    }

    fn add_operators_and_casts(&self, catalog: &mut Catalog) {
        let means = |catalog: &Catalog, function: &str, is_builtin| match is_builtin {
            true => of_builtin(catalog.builtins.get(function)),
            false => worst(catalog.functions.get(function)),
        };
        for operator in &self.operators {
            let routine = means(catalog, &operator.function, operator.is_builtin);
            let known = catalog.operators.entry(operator.name.clone()).or_default();
            *known = routine.max(*known);
        }
        for cast in &self.casts {
            let routine = means(catalog, &cast.function, cast.is_builtin);
            let known = catalog.casts.entry(cast.type_name.clone()).or_default();
            *known = routine.max(*known);
            if cast.implicit {
                catalog.implicit_casts = routine.max(catalog.implicit_casts);
            }
        }
    }
}

/// The worst that a user's functions of one name may do.
fn worst(functions: Option<&Vec<UserFunction>>) -> Routine {
    functions.into_iter().flatten().map(|f| f.routine).max().unwrap_or(Routine::Opaque)
}

fn select(expressions: &str) -> Box<str> {
    format!("SELECT {expressions}").into()
}

fn class_of(row: &RelationRow<'_>) -> Class {
    let system = row.schema.starts_with("pg_toast")
        || matches!(row.schema, "pg_catalog" | "information_schema" | "hihooi");
    match (row.kind, row.persistence) {
        _ if system => Class::System,
        ("S", _) => Class::Sequence,
        ("f", _) => Class::Foreign,
        ("m", _) => Class::MaterializedView,
        ("v", _) => Class::View,
        (_, "u") => Class::Unlogged,
        ("r" | "p", "p") => Class::Table,
        _ => Class::System,
    }
}
