//! What calling a user-defined function may do, determined by its volatility and by the words of its body.
//!
//! Volatility alone isn't enough. PostgreSQL doesn't prevent a STABLE function from calling a volatile one
//! (manual, section 38.7), or from reading what replicas don't have; and an IMMUTABLE one shouldn't read
//! tables, but can. So every word of a body, even in strings and comments, counts as a use of every object of
//! that name, transitively (I6). Views, policies and checks of domains have bodies, too. Only names that are
//! composed at run time are not found, and a body that could use them (EXECUTE) counts as doing anything.

use std::collections::HashSet;

use ahash::RandomState;
use hihooi_replication::items::RelId;

use crate::analysis::{is_system_column, names_catalog_objects};
use crate::builtins::Builtin;
use crate::catalog::{Catalog, Class, Map, Routine};
use crate::catalog_builder::{Builder, Function, Volatility};
use crate::facts::Unsafe;
use crate::leaves::first_argument;
use crate::lexer::{Word, has_escaped_names, without_words, words};

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

/// Stable functions of well-known extensions that read no table, but settings (pg_trgm) or a dictionary (unaccent). They count only
/// when they are compiled code. What others may read isn't known: SQL that they are given as a text
/// (`crosstab` of tablefunc), tables that they are told by name. Sorted.
const STABLE_EXTENSIONS: &[&str] = &[
    "show_limit",
    "similarity_op",
    "strict_word_similarity_commutator_op",
    "strict_word_similarity_op",
    "unaccent",
    "word_similarity_commutator_op",
    "word_similarity_op",
];

/// What can be mentioned in a body, and has one itself.
struct Piece<'a> {
    name: &'a str,
    /// Empty where there is nothing to look into.
    body: &'a str,
    routine: Routine,
}

/// What each function of the builder may do, in its order.
pub(crate) fn routines(builder: &Builder, catalog: &Catalog) -> Vec<Routine> {
    let mut pieces = pieces(builder);
    let mut names: Map<String, Vec<usize>> = Map::default();
    for (index, piece) in pieces.iter().enumerate() {
        names.entry(first_word(piece.name)).or_default().push(index);
    }
    let unusual = unusual_relations(builder);
    let mut symbols = names_without_words(&pieces);
    // A function of PostgreSQL's that an operator or a cast of a user's stands for is a piece, too.
    let mut builtins: Map<&str, usize> = Map::default();
    let mut functions = |name, is_builtin: bool| {
        if !is_builtin {
            return names.get(&first_word(name)).cloned().unwrap_or_default();
        }
        let piece = *builtins.entry(name).or_insert_with(|| {
            let routine = of_builtin(catalog.builtins.get(name));
            pieces.push(Piece { name, body: "", routine });
            pieces.len() - 1
        });
        vec![piece]
    };
    let operators = builder.operators.iter();
    symbols.extend(operators.map(|o| (o.name.clone(), functions(&o.function, o.is_builtin))));
    symbols.sort_unstable();
    symbols.dedup();
    // A body doesn't show where casts apply.
    let casts = builder.casts.iter();
    let anywhere: Vec<usize> =
        casts.flat_map(|cast| functions(&cast.function, cast.is_builtin)).collect();
    let mut mentions: Vec<Vec<usize>> = Vec::with_capacity(pieces.len());
    for piece in &mut pieces {
        let mut others = Vec::new();
        if has_escaped_names(piece.body) {
            piece.routine = Routine::Opaque;
        }
        if !piece.body.is_empty() && piece.routine < Routine::Opaque {
            let (mut asks_age, mut names_xid) = (false, false);
            for word in words(piece.body) {
                let by_itself = word_means(&word, piece.body, catalog, &unusual);
                piece.routine = piece.routine.max(by_itself);
                asks_age |= word.text == "age";
                names_xid |= word.text == "xid";
                others.extend(names.get(&word.text).into_iter().flatten());
            }
            // The age of a transaction is another one at each server.
            if asks_age && names_xid {
                piece.routine = piece.routine.max(Routine::Primary);
            }
            let used = symbols.iter().filter(|(symbol, _)| piece.body.contains(&**symbol));
            others.extend(used.flat_map(|(_, functions)| functions));
            others.extend(&anywhere);
            others.sort_unstable();
            others.dedup();
        }
        mentions.push(others);
    }
    let mut routines: Vec<Routine> = pieces.iter().map(|piece| piece.routine).collect();
    spread(&mut routines, &mentions);
    routines.truncate(builder.functions.len());
    routines
}

/// Functions first, in the builder's order; then whatever else has a body.
fn pieces(builder: &Builder) -> Vec<Piece<'_>> {
    let mut pieces: Vec<Piece<'_>> = builder
        .functions
        .iter()
        .map(|function| Piece {
            name: &function.name,
            body: &function.body,
            routine: at_first_sight(function),
        })
        .collect();
    let codes = builder.relations.values().flat_map(|relation| {
        [relation.view.as_ref(), relation.policies.as_ref()]
            .into_iter()
            .flatten()
            .map(|code| (&*relation.name, &*code.text))
    });
    let domains = builder.domains.iter().map(|(name, checks)| (&**name, &**checks));
    pieces.extend(codes.chain(domains).map(|(name, body)| Piece {
        name,
        body,
        routine: Routine::Pure,
    }));
    pieces
}

fn at_first_sight(function: &Function) -> Routine {
    match function.volatility {
        Volatility::Volatile if function.compiled && is_harmless(&function.name) => {
            Routine::Harmless
        }
        Volatility::Volatile => Routine::Opaque,
        Volatility::Immutable if function.compiled => Routine::Pure,
        Volatility::Stable if function.compiled => match is_stable_extension(&function.name) {
            true => Routine::Reads,
            false => Routine::Primary,
        },
        // Its words will tell whether it reads.
        _ if function.understood => Routine::Pure,
        _ if function.may_compose => Routine::Primary,
        _ => Routine::Reads,
    }
}

fn is_stable_extension(name: &str) -> bool {
    STABLE_EXTENSIONS.binary_search(&name).is_ok()
}

/// What calling a function of `pg_catalog` may do, whatever its arguments.
pub(crate) fn of_builtin(builtin: Option<Builtin>) -> Routine {
    match builtin {
        Some(Builtin::Safe) => Routine::Pure,
        Some(
            Builtin::CurrentSetting
            | Builtin::ReadsAnything(_)
            | Builtin::Primary(Unsafe::ServerState),
        ) => Routine::Primary,
        Some(_) | None => Routine::Opaque,
    }
}

pub(crate) fn is_harmless(name: &str) -> bool {
    HARMLESS_EXTENSIONS.binary_search(&name).is_ok()
}

/// What has a name of signs and digits only (`"1"`): it is found in a body as operators are.
fn names_without_words(pieces: &[Piece<'_>]) -> Vec<(Box<str>, Vec<usize>)> {
    let named = pieces.iter().enumerate();
    named.filter_map(|(index, piece)| Some((without_words(piece.name)?, vec![index]))).collect()
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

/// Names of relations whose rows a replica doesn't have as the primary has them, or not all: an unlogged partition's. The views of
/// information_schema have everyday names; its own name tells, in the body or in a search path. (And those of which a column's age may
/// be asked for, which is another one at each server.)
fn unusual_relations(builder: &Builder) -> HashSet<String, RandomState> {
    const XID: u32 = 28;
    let is_usual = |id: &RelId| {
        builder.relations.get(id).is_none_or(|r| matches!(r.class, Class::Table | Class::View))
    };
    builder
        .relations
        .values()
        .filter(|r| !r.members.iter().all(is_usual) || r.columns.iter().any(|c| c.base_oid == XID))
        .filter(|r| &*r.schema != "information_schema")
        .map(|r| first_word(&r.name))
        .collect()
}

/// What must stand in a body that mentions a name: its first word, since a name in quotes may
/// have several.
pub(crate) fn first_word(name: &str) -> String {
    words(name).next().map_or_else(|| name.to_lowercase(), |word| word.text)
}

/// What one word in a body means by itself.
fn word_means(
    word: &Word,
    body: &str,
    catalog: &Catalog,
    unusual: &HashSet<String, RandomState>,
) -> Routine {
    let text = &*word.text;
    if unusual.contains(text) {
        return Routine::Primary;
    }
    match text {
        // Dynamic SQL: its text may come from anywhere.
        "execute" => return Routine::Opaque,
        // Without one of these no table is read.
        "from" | "table" | "join" => return Routine::Reads,
        "information_schema" | "tablesample" => return Routine::Primary,
        _ if is_system_column(text) || names_catalog_objects(text) => return Routine::Primary,
        _ => {}
    }
    let is_call = word.next == Some(b'(');
    match is_call.then(|| catalog.builtins.get(text)).flatten() {
        None => Routine::Pure,
        Some(Builtin::CurrentSetting)
            if first_argument(&body[word.end..]).is_some_and(|name| name.contains('.')) =>
        {
            Routine::Pure
        }
        builtin => of_builtin(builtin),
    }
}
