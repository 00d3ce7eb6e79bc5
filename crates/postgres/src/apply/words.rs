//! The error message for a change that could not be applied: table, key, what to do. Pure.

use std::sync::Arc;

use hihooi_replication::entry::{Relation, Tuple, Value};
use hihooi_replication::ids::Tsid;
use hihooi_wire::backend::ErrorFields;

use super::restricted::TEMPORARY;
use crate::setup::REBUILD;

/// Characters that are shown of a value.
const VALUE_LEN_MAX: usize = 80;
/// Characters that are shown of a statement.
const STATEMENT_LEN_MAX: usize = 200;

/// What a statement of an applier does.
pub(super) enum What {
    /// Changes that are carried out together, as their tables' owner.
    Gathered {
        /// The owner.
        owner: String,
        /// What each of them is, and whose.
        changes: Vec<(Tsid, What)>,
    },
    /// Belongs to every transaction.
    Housekeeping(&'static str),
    /// Looks for temporary objects that changes have left, of this table first.
    Temporary(Option<Arc<Relation>>),
    /// Changes a row.
    Row {
        /// The command.
        verb: &'static str,
        /// The table.
        relation: Arc<Relation>,
        /// The row, at least its key.
        row: Tuple,
    },
    /// Changes a table.
    Table {
        /// The command.
        verb: &'static str,
        /// The table.
        relation: Arc<Relation>,
    },
}

/// Something that can't be followed.
pub(super) fn bypassed(what: &str) -> String {
    format!(
        "can't follow the primary: {what}; repeat it on the replica, then RESUME REPLICA, or {REBUILD}"
    )
}

/// What stands in the log for transactions that the primary can't decode.
pub(super) fn undecoded(why: &str) -> String {
    format!(
        "the primary can't decode a transaction that it has committed ({why}): the replica has to be a new copy of \
         it (REBUILD REPLICA)"
    )
}

/// An object that isn't what it is at the primary.
pub(super) fn differs(object: &str, difference: &str) -> String {
    format!(
        "{object} differs from the primary's: {difference}; make it equal, then RESUME REPLICA, or \
         {REBUILD}"
    )
}

/// Something that the stream has and the replica has not.
pub(super) fn unknown(relation: &Relation, what: &str) -> String {
    format!(
        "{}.{}: {what}; make it equal to the primary's, then RESUME REPLICA, or {REBUILD}",
        relation.schema, relation.name
    )
}

/// What to do about an error, where it isn't plain.
pub(super) fn advice(error: &ErrorFields, has_path: bool) -> &'static str {
    // SET SESSION AUTHORIZATION has 22023, other commands 42704.
    let lacks_role = ["42704", "22023"].contains(&error.code()) && error.message().contains("role");
    if lacks_role {
        "; CREATE ROLE on the replica as well, with the same attributes and memberships, then RESUME \
         REPLICA"
    } else if error.message().contains("within security-restricted operation") {
        "; what a role that is no superuser defines is carried out where functions can't do this: if \
         you trust the statement, ALTER ROLE … SUPERUSER on the replica, RESUME REPLICA, and take it \
         back when it is applied"
    } else if has_path && ["42883", "42P01", "42704"].contains(&error.code()) {
        "; for a superuser's rows, functions find names only in schemas where all objects belong to superusers: qualify the \
         name in the function"
    } else {
        ""
    }
}

/// What to do about an error of a change that was made as the table's owner.
pub(super) fn owner_advice(error: &ErrorFields, owner: &str) -> String {
    if error.code() != "42501" {
        return String::new();
    }
    format!(
        "; the table runs functions, so replicas change it as its owner {owner}, who needs all \
         rights on it, USAGE on its schema, and what its functions need: GRANT them to {owner}"
    )
}

/// The beginning of a statement.
pub(super) fn statement_words(text: &str) -> String {
    text.chars().take(STATEMENT_LEN_MAX).collect()
}

impl What {
    /// The table that it changes.
    pub(super) fn relation(&self) -> Option<&Arc<Relation>> {
        match self {
            What::Gathered { changes, .. } => changes.first()?.1.relation(),
            What::Housekeeping(_) => None,
            What::Temporary(relation) => relation.as_ref(),
            What::Row { relation, .. } | What::Table { relation, .. } => Some(relation),
        }
    }

    /// The command, its table, its row's key.
    pub(super) fn words(&self) -> String {
        match self {
            What::Gathered { changes, .. } => {
                changes.first().map_or_else(String::new, |(_, what)| what.words())
            }
            What::Housekeeping(what) => (*what).to_owned(),
            What::Temporary(_) => TEMPORARY.to_owned(),
            What::Row { verb, relation, row } => format!("{verb} {}", key_words(relation, row)),
            What::Table { verb, relation } => {
                format!("{verb} {}.{}", relation.schema, relation.name)
            }
        }
    }
}

/// `public.t (id)=(5)`, as PostgreSQL's own details name a key.
fn key_words(relation: &Relation, row: &Tuple) -> String {
    let any_key = relation.columns.iter().any(|column| column.key);
    let key = relation.columns.iter().zip(row).filter(|(column, _)| column.key || !any_key);
    let (names, values): (Vec<&str>, Vec<String>) = key
        .map(|(column, value)| {
            let value = match value {
                Value::Text(text) => {
                    let text = String::from_utf8_lossy(text);
                    text.chars().take(VALUE_LEN_MAX).collect()
                }
                Value::Null => "null".to_owned(),
                Value::Unchanged => "(unchanged)".to_owned(),
            };
            (column.name.as_str(), value)
        })
        .unzip();
    let (schema, table) = (&relation.schema, &relation.name);
    format!("{schema}.{table} ({})=({})", names.join(", "), values.join(", "))
}
