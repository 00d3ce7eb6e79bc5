//! Notes: records of commands that change the schema, written by the primary's event triggers (`setup.sql` of
//! the `postgres` crate; docs/decisions/0005). They are rows of `hihooi.note`, into which only a superuser can
//! write, so they can be trusted.
//!
//! A note is stored in the log unchanged. It is interpreted when a replica applies it, so a later version of
//! hihooi can interpret notes better that are in the log already.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a note tells.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", content = "body", rename_all = "snake_case")]
pub enum Note {
    /// A command ran, of which the text is replayed.
    Command(Box<Command>),
    /// Objects were dropped by a command for that.
    Drop(Drop),
    /// The roles, their settings and what else no event tells of, as they are now.
    Shared(Box<SharedObjects>),
    /// Owners of objects, as they are now.
    Owners(Vec<Owner>),
    /// What a materialized view holds follows, as rows of `hihooi.contents`.
    Contents(Contents),
    /// It has come.
    Refresh(Contents),
    /// Something that replicas can't follow, in words.
    Unknown(String),
    /// Not of the primary: what it has committed instead of this entry isn't known, since it can't decode it.
    Undecoded(String),
}

/// A command, with what its objects are like after it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Command {
    /// Its command tag, such as `ALTER TABLE`.
    pub tag: String,
    /// The role that ran it (`current_user`).
    pub role: String,
    /// The primary's major version.
    #[serde(default)]
    pub version: u32,
    /// The format of its objects' descriptions, which hihooi may change.
    #[serde(default)]
    pub format: String,
    /// The settings it ran under.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The client's query in which it stands, if it is not nested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// A hash of that query if it is long: only the first note of a transaction holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_hash: Option<String>,
    /// The call stack that it is nested in, innermost first, as PostgreSQL words it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The role isn't the one that the session has outside of functions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_definer: bool,
    /// Body of the SQL function that the innermost frame names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Which of its statements it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<usize>,
    /// The permanent objects that it made or changed.
    #[serde(default)]
    pub objects: Vec<Object>,
    /// OID of the table that it made with rows, which come in the stream, in front of this note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<u32>,
    /// OIDs of the tables to which an extension's script has written: their rows are sent behind this note, once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<u32>>,
    /// What makes that table without its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<String>,
    /// What makes a table with the same columns, if its text may mean a temporary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// What `now`, `today`, `tomorrow` and `yesterday` meant in date and time constants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moment: BTreeMap<String, String>,
    /// Values that existing rows have without having been touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<Missing>>,
    /// Tables whose rows come anew, behind this note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<Vec<String>>,
    /// How long its transaction had taken by then, in ms; an estimate, or not known, of what hihooi found later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Other notes brought all that it did: nothing is run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_done: bool,
}

/// A materialized view whose rows travel. Names and types are as SQL has them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Contents {
    /// Its name.
    pub view: String,
    /// Its owner.
    pub owner: String,
    /// Its columns and their types.
    pub columns: Option<Vec<(String, String)>>,
    /// The role that makes it, if it is new.
    pub role: Option<String>,
    /// What makes it then, without its rows.
    pub create: Option<String>,
}

/// An object and what it is like.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Object {
    /// What sort of object (`pg_identify_object_as_address`).
    pub kind: String,
    /// Its names there.
    #[serde(default)]
    pub names: Vec<String>,
    /// Its arguments there.
    #[serde(default)]
    pub args: Vec<String>,
    /// How SQL names it.
    #[serde(default)]
    pub identity: Option<String>,
    /// What it is like, a line for each property (`hihooi.describe`); `None` is not compared.
    #[serde(default)]
    pub description: Option<String>,
    /// The indexes of a table that are not valid at the primary, as SQL names them: a replica has none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<Vec<String>>,
    /// The indexes of a partitioned table, as SQL names them, and whether they are valid at the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitioned: Option<BTreeMap<String, bool>>,
    /// The command removed it, of which no event told (`ALTER DEFAULT PRIVILEGES … REVOKE`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
    /// The snapshot under which it was described (`pg_current_snapshot`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// A column's value for rows that are older than the column (`pg_attribute.attmissingval`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The column.
    pub column: String,
    /// The value's text.
    pub value: String,
    /// The default of rows to come.
    pub default: Option<String>,
}

/// Objects that a command dropped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Drop {
    /// Its command tag.
    pub tag: String,
    /// The role that ran it.
    pub role: String,
    /// The permanent objects among those that it named.
    pub objects: Vec<Dropped>,
    /// Objects that depended on them went, too.
    #[serde(default)]
    pub cascades: bool,
}

/// An object that is gone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// What sort of object it was.
    pub kind: String,
    /// How SQL named it.
    pub identity: String,
}

/// Roles and the like, for whose changes no event trigger fires (`hihooi.shared`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SharedObjects {
    /// Roles that have another name now: the old and the new one, quoted.
    #[serde(default)]
    pub renamed: Option<Vec<(String, String)>>,
    /// Roles that are gone, quoted.
    #[serde(default)]
    pub dropped: Option<Vec<String>>,
    /// All of them, as they are now.
    pub state: serde_json::Value,
}

/// Who owns an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// What sort of object.
    pub kind: String,
    /// How SQL names it.
    pub identity: String,
    /// Its owner, quoted.
    pub owner: String,
    /// Its owner is only changed where it is this one.
    #[serde(default)]
    pub before: Option<OwnerBefore>,
    /// The rights on it, if they are told.
    #[serde(default)]
    pub rights: Option<Rights>,
}

/// The owner that an object has where replicas were not told of another one yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerBefore {
    /// The owner, quoted.
    pub owner: String,
    /// By what the object is found.
    #[serde(flatten)]
    pub address: Address,
}

/// Rights on an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rights {
    /// By what it is found.
    #[serde(flatten)]
    pub address: Address,
    /// The rights.
    #[serde(flatten)]
    pub given: Given,
}

/// Rights, as `hihooi.rights_on` tells them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Given {
    /// Those on the object itself.
    pub object: Option<Vec<Right>>,
    /// Those on its columns that have any, by quoted names.
    pub columns: Option<BTreeMap<String, Vec<Right>>>,
}

/// By what an object is found (`pg_identify_object_as_address`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    /// What sort of object.
    pub kind: String,
    /// Its names.
    pub names: Vec<String>,
    /// Its arguments.
    pub args: Vec<String>,
}

/// Grantee, grantor, privilege, whether it may be granted on.
pub type Right = (String, String, String, bool);

/// A row of `hihooi.note` that only matters while the stream is read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Row {
    /// To be kept.
    Note(Note),
    /// Rows of a table follow as messages.
    Rows(Rows),
    /// They end.
    RowsEnd,
}

/// Which table's rows follow.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(crate) struct Rows {
    /// In front of each row, and known to nobody else.
    pub token: String,
    pub relation: u32,
    pub schema: String,
    pub name: String,
    pub columns: Option<Vec<String>>,
}

impl Row {
    /// Reads a row of `hihooi.note`. What can't be understood is [`Note::Unknown`].
    pub(crate) fn read(event: &str, body: &str) -> Row {
        let known = match event {
            "rows_end" => Ok(Row::RowsEnd),
            "rows" => serde_json::from_str(body).map(Row::Rows),
            "command" => serde_json::from_str(body).map(|c| Row::Note(Note::Command(c))),
            "drop" => serde_json::from_str(body).map(|d| Row::Note(Note::Drop(d))),
            "shared" => serde_json::from_str(body).map(|s| Row::Note(Note::Shared(s))),
            "owners" => serde_json::from_str(body).map(|o| Row::Note(Note::Owners(o))),
            "contents" => serde_json::from_str(body).map(|c| Row::Note(Note::Contents(c))),
            "refresh" => serde_json::from_str(body).map(|c| Row::Note(Note::Refresh(c))),
            "catalogs" => serde_json::from_str(body).map(|what| Row::Note(Note::Unknown(what))),
            _ => Ok(Row::Note(Note::Unknown(format!("a note of an unknown kind, {event}")))),
        };
        known.unwrap_or_else(|error| {
            Row::Note(Note::Unknown(format!("a note of kind {event} that can't be read: {error}")))
        })
    }
}

/// The elements of an array of texts in PostgreSQL's text form (manual, "Array Input and Output
/// Syntax"); `None` stands for NULL. `None` if it isn't one.
pub(crate) fn elements(text: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let inner = text.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut elements = Vec::new();
    let mut bytes = inner.iter().copied().peekable();
    if bytes.peek().is_none() {
        return Some(elements);
    }
    loop {
        let mut element = Vec::new();
        let is_quoted = bytes.next_if_eq(&b'"').is_some();
        loop {
            match bytes.peek()? {
                b'"' if is_quoted => {
                    bytes.next();
                    break;
                }
                b',' if !is_quoted => break,
                b'\\' => {
                    bytes.next();
                    element.push(bytes.next()?);
                }
                _ => element.extend(bytes.next()),
            }
            if !is_quoted && bytes.peek().is_none() {
                break;
            }
        }
        elements.push((is_quoted || element != b"NULL").then_some(element));
        match bytes.next() {
            None => return Some(elements),
            Some(b',') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read() {
        let read = |text: &str| {
            let all = elements(text.as_bytes())?;
            let text = |e: Option<Vec<u8>>| e.map(|e| String::from_utf8_lossy(&e).into_owned());
            Some(all.into_iter().map(text).collect::<Vec<_>>())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("{}"), Some(vec![]));
        assert_eq!(read("{1}"), Some(vec![some("1")]));
        let all = vec![some("a b"), None, some("NULL"), some(""), some("\"\\,{")];
        assert_eq!(read(r#"{a b,NULL,"NULL","","\"\\,{"}"#), Some(all));
        assert_eq!(read(r#"{"x"#), None);
        assert_eq!(read(r#"{"x"y}"#), None);
        assert_eq!(read("1"), None);
    }

    #[test]
    fn notes_that_are_not_understood_say_so() {
        assert!(matches!(Row::read("command", "{"), Row::Note(Note::Unknown(_))));
        assert!(matches!(Row::read("new", "{}"), Row::Note(Note::Unknown(_))));
    }
}
