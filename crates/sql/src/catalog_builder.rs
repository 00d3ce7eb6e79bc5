//! Makes a [`Catalog`] from rows: of PostgreSQL through [`crate::catalog_queries`], or of a test.
//!
//! What a function of a user may do follows from its volatility and from the words of its body.
//! PostgreSQL doesn't stop a STABLE function from calling a volatile one (manual, section 38.7),
//! so one whose body mentions anything that writes counts as writing (I6).

use hihooi_replication::items::RelId;

use crate::builtins::{self, Builtin};
use crate::catalog::{
    Catalog, Class, Code, ForeignKey, Functions, Map, Relation, Routine, UserFunction,
};
use crate::facts::{SessionEffect, Unsafe};
use crate::lexer::words;

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
    /// It has triggers of users that are not disabled, or rules besides a view's own.
    pub has_code: bool,
    /// A default or identity column takes numbers from a sequence.
    pub takes_numbers: bool,
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
    /// Its source text; of an aggregate the names of its support functions.
    pub body: &'a str,
}

/// Collects rows, in any order, and makes a [`Catalog`] of them.
#[derive(Debug, Default)]
pub struct Builder {
    relations: Map<RelId, Relation>,
    inherits: Vec<(RelId, RelId)>,
    foreign_keys: Vec<(RelId, RelId, ForeignKey)>,
    code: Vec<(RelId, CodeKind, Box<str>)>,
    builtins: Map<Box<str>, Volatility>,
    functions: Vec<Function>,
    operators: Vec<(Box<str>, Box<str>)>,
    casts: Vec<(bool, Box<str>)>,
    domains: Vec<(Box<str>, Box<str>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CodeKind {
    View,
    Policies,
    Expressions,
}

#[derive(Debug)]
struct Function {
    schema: Box<str>,
    name: Box<str>,
    volatility: Volatility,
    /// C or internal: no body to look into.
    compiled: bool,
    takes_row: bool,
    body: Box<str>,
}

impl Builder {
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
            has_code: row.has_code,
            takes_numbers: row.takes_numbers,
            members: Box::default(),
            references: Vec::new(),
            referenced_by: Vec::new(),
            view: None,
            policies: None,
            expressions: None,
        };
        self.relations.insert(row.id, relation);
    }

    /// Gives a view its query.
    pub fn view(&mut self, id: RelId, query: &str) {
        self.code.push((id, CodeKind::View, query.into()));
    }

    /// Gives a table its row security policies: expressions with commas between them.
    pub fn policies(&mut self, id: RelId, expressions: &str) {
        self.code.push((id, CodeKind::Policies, select(expressions)));
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
        let known = self.builtins.entry(name.into()).or_insert(volatility);
        *known = volatility.max(*known);
    }

    /// Adds a user's function, procedure, aggregate or window function.
    pub fn function(&mut self, row: FunctionRow<'_>) {
        self.functions.push(Function {
            schema: row.schema.into(),
            name: row.name.into(),
            volatility: row.volatility,
            compiled: matches!(row.language, "c" | "internal"),
            takes_row: row.takes_row,
            body: row.body.into(),
        });
    }

    /// Adds a user-defined operator and its function's name.
    pub fn operator(&mut self, name: &str, function: &str) {
        self.operators.push((name.into(), function.into()));
    }

    /// Adds a user-defined cast and its function's name; `implicit` unless the cast must be
    /// written (`pg_cast.castcontext` e).
    pub fn cast(&mut self, implicit: bool, function: &str) {
        self.casts.push((implicit, function.into()));
    }

    /// Adds the checks of a domain, under the name of a type that is or contains it.
    pub fn domain(&mut self, type_name: &str, expressions: &str) {
        self.domains.push((type_name.into(), select(expressions)));
    }

    /// Makes the catalog. `version` tells it from others of the same database.
    #[must_use]
    pub fn build(mut self, version: u64) -> Catalog {
        self.link_members();
        self.link_foreign_keys();
        self.attach_code();
        let mut catalog = Catalog { version, ..Catalog::default() };
        for (name, volatility) in &self.builtins {
            let functions = catalog.functions.entry(name.clone()).or_default();
            functions.builtin = Some(builtins::classify(name, *volatility));
        }
        let routines = routines(&self, &catalog);
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

    fn add_functions(&self, catalog: &mut Catalog, routines: &[Routine]) {
        for (function, &routine) in self.functions.iter().zip(routines) {
            let functions = catalog.functions.entry(function.name.clone()).or_default();
            match functions.user.iter_mut().find(|f| f.schema == function.schema) {
                Some(known) => {
                    known.routine = known.routine.max(routine);
                    known.takes_row |= function.takes_row;
                }
                None => functions.user.push(UserFunction {
                    schema: function.schema.clone(),
                    routine,
                    takes_row: function.takes_row,
                }),
            }
            if routine == Routine::Opaque {
                catalog.functions_leave.merge(&leaves(function));
            }
        }
    }

    fn add_operators_and_casts(&self, catalog: &mut Catalog) {
        for (name, function) in &self.operators {
            let routine = worst(catalog.functions.get(function));
            let known = catalog.operators.entry(name.clone()).or_default();
            *known = routine.max(*known);
        }
        for (implicit, function) in &self.casts {
            let routine = worst(catalog.functions.get(function));
            catalog.explicit_casts = routine.max(catalog.explicit_casts);
            if *implicit {
                catalog.implicit_casts = routine.max(catalog.implicit_casts);
            }
        }
    }
}

/// The worst that a user's functions of one name may do.
fn worst(functions: Option<&Functions>) -> Routine {
    let user = functions.map(|f| f.user.as_slice()).unwrap_or_default();
    user.iter().map(|f| f.routine).max().unwrap_or(Routine::Opaque)
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

/// Volatile functions of well-known extensions that touch nothing (uuid-ossp, pgcrypto). They
/// count only when they are compiled code. Sorted.
const HARMLESS_EXTENSIONS: &[&str] = &[
    "gen_random_bytes",
    "gen_random_uuid",
    "gen_salt",
    "pgp_pub_encrypt",
    "pgp_pub_encrypt_bytea",
    "pgp_sym_encrypt",
    "pgp_sym_encrypt_bytea",
    "uuid_generate_v1",
    "uuid_generate_v1mc",
    "uuid_generate_v4",
];

fn at_first_sight(function: &Function) -> Routine {
    match (function.volatility, function.compiled) {
        (Volatility::Immutable, true) => Routine::Pure,
        (Volatility::Volatile, true) if HARMLESS_EXTENSIONS.contains(&&*function.name) => {
            Routine::Harmless
        }
        (Volatility::Volatile, _) => Routine::Opaque,
        _ => Routine::Reads,
    }
}

/// Decides for each function what calling it may do: at first sight by volatility, then by the
/// words of the bodies until nothing changes any more. Views count as functions here.
fn routines(builder: &Builder, catalog: &Catalog) -> Vec<Routine> {
    let mut routines: Vec<Routine> = builder.functions.iter().map(at_first_sight).collect();
    let mut names: Map<&str, Vec<usize>> = Map::default();
    for (index, function) in builder.functions.iter().enumerate() {
        names.entry(&function.name).or_default().push(index);
    }
    let views: Vec<&Relation> = builder.relations.values().filter(|r| r.view.is_some()).collect();
    for (index, view) in views.iter().enumerate() {
        names.entry(&view.name).or_default().push(routines.len() + index);
    }
    routines.resize(routines.len() + views.len(), Routine::Reads);

    let relations = unusual_relations(builder);
    let view_texts = views.iter().filter_map(|v| v.view.as_ref()).map(|code| &*code.text);
    let bodies = builder.functions.iter().map(|f| if f.compiled { "" } else { &*f.body });
    let mut mentions: Vec<Vec<usize>> = Vec::with_capacity(routines.len());
    for (index, body) in bodies.chain(view_texts).enumerate() {
        let mut others = Vec::new();
        if routines[index] == Routine::Reads {
            for word in words(body) {
                let by_itself = word_means(&word.text, word.is_call, catalog, &relations);
                routines[index] = routines[index].max(by_itself);
                others.extend(names.get(&*word.text).into_iter().flatten());
            }
            others.sort_unstable();
            others.dedup();
        }
        mentions.push(others);
    }
    spread(&mut routines, &mentions);
    routines.truncate(builder.functions.len());
    routines
}

/// Makes each routine at least as bad as what it mentions.
fn spread(routines: &mut [Routine], mentions: &[Vec<usize>]) {
    let mut changed = true;
    while changed {
        changed = false;
        for (index, others) in mentions.iter().enumerate() {
            let worst = others.iter().map(|&o| routines[o]).max().unwrap_or_default();
            if worst > routines[index] {
                routines[index] = worst;
                changed = true;
            }
        }
    }
}

/// Names of relations whose rows a replica doesn't have as the primary has them. The views of
/// information_schema have everyday names; its own name tells.
fn unusual_relations(builder: &Builder) -> Map<&str, ()> {
    builder
        .relations
        .values()
        .filter(|r| !matches!(r.class, Class::Table | Class::View))
        .filter(|r| &*r.schema != "information_schema")
        .map(|r| (&*r.name, ()))
        .collect()
}

/// What one word in a body means by itself.
fn word_means(word: &str, is_call: bool, catalog: &Catalog, unusual: &Map<&str, ()>) -> Routine {
    if unusual.contains_key(word) {
        return Routine::Primary;
    }
    match word {
        // Dynamic SQL: its text may come from anywhere.
        "execute" => return Routine::Opaque,
        "information_schema" | "tablesample" | "ctid" | "xmin" | "xmax" | "cmin" | "cmax"
        | "tableoid" | "regclass" | "regproc" | "regprocedure" | "regtype" | "regoper"
        | "regoperator" | "regnamespace" | "regrole" | "regcollation" => return Routine::Primary,
        _ => {}
    }
    let builtin = catalog.functions.get(word).filter(|_| is_call).and_then(|f| f.builtin);
    match builtin {
        None | Some(Builtin::Safe | Builtin::CurrentSetting) => Routine::Pure,
        Some(Builtin::ReadsAnything(_) | Builtin::Primary(Unsafe::ServerState)) => Routine::Primary,
        Some(_) => Routine::Opaque,
    }
}

/// What an opaque function may leave in the session, by the words of its body. Compiled code can
/// leave anything that its extension knows to set.
fn leaves(function: &Function) -> SessionEffect {
    if function.compiled {
        return SessionEffect::default();
    }
    leaves_of_body(&function.body)
}

/// What a body of code may leave in the session, by its words. Also looks into its strings and
/// comments, because of dynamic SQL.
pub(crate) fn leaves_of_body(body: &str) -> SessionEffect {
    let mut effect = SessionEffect::default();
    for word in words(body) {
        match &*word.text {
            "set" if word.opens_statement => settings(&mut effect),
            "set_config" | "reset" | "discard" | "setseed" | "set_limit" => settings(&mut effect),
            "temp" | "temporary" | "pg_temp" => effect.temp = true,
            "listen" | "unlisten" => effect.listen = true,
            "prepare" | "deallocate" => effect.prepared = true,
            "load" => effect.load = true,
            "nextval" | "setval" | "insert" => effect.sequences = true,
            name if name.contains("_advisory_") && !name.contains("_xact_") => {
                effect.advisory = true;
            }
            _ => {}
        }
    }
    effect
}

fn settings(effect: &mut SessionEffect) {
    effect.settings = true;
    effect.local_settings = true;
    effect.search_path = true;
    effect.role = true;
}
