//! Gives a new object the privileges that it has at the primary. A role may change default privileges, and commit, while
//! another transaction is open that has created an object before: at a replica the object comes behind the change. Pure.

use std::borrow::Cow;

use hihooi_sql::lexer::{TokenKind, tokens};

/// What one role was granted by another, as descriptions tell it: `SELECT, UPDATE* to bob by ann` (`describe.sql`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Grant<'a> {
    /// Separated by commas; those with an asterisk may be granted on.
    privileges: &'a str,
    grantee: &'a str,
    grantor: &'a str,
}

/// An object with privileges of its own.
#[derive(PartialEq, Eq, Debug)]
struct Granted<'a> {
    /// As GRANT names it, with its kind.
    object: String,
    /// Its privileges; `None` if they are those that PostgreSQL gives without being asked.
    text: Option<Cow<'a, str>>,
}

/// The commands that give a new object, and sequences that are part of it, the primary's privileges; both descriptions
/// as lists of properties.
pub(super) fn like(kind: &str, identity: &str, primary: &[String], here: &[String]) -> Vec<String> {
    let mut commands = Vec::new();
    let others = granted(kind, identity, here);
    for Granted { object, text } in granted(kind, identity, primary) {
        let other = others.iter().find(|other| other.object == object);
        let Some(other) = other.filter(|other| other.text != text) else { continue };
        let (wanted, had) = (grants(text.as_deref()), grants(other.text.as_deref()));
        let revoke = |grant: &Grant<'_>| format!("REVOKE ALL ON {object} FROM {}", grant.grantee);
        // Without a text the owner has all; and of a type everybody has USAGE, which its owner's default privileges may
        // have taken from them.
        let lost = had.iter().filter(|grant| text.is_some() || grant.grantee != grant.grantor);
        commands.extend(lost.filter(|grant| !wanted.contains(grant)).map(revoke));
        let gained = wanted.iter().filter(|grant| !had.contains(grant));
        commands.extend(gained.flat_map(|grant| grant.commands(&object)));
        if text.is_none() && object.starts_with("TYPE ") {
            commands.push(format!("GRANT USAGE ON {object} TO PUBLIC"));
        }
    }
    commands
}

impl Grant<'_> {
    fn commands(&self, object: &str) -> Vec<String> {
        let (on, plain): (Vec<&str>, Vec<&str>) =
            self.privileges.split(", ").partition(|privilege| privilege.ends_with('*'));
        let on =
            on.into_iter().map(|privilege| privilege.trim_end_matches('*')).collect::<Vec<_>>();
        let grant = |privileges: &[&str], how: &str| {
            let privileges = privileges.join(", ");
            format!("GRANT {privileges} ON {object} TO {}{how}", self.grantee)
        };
        let on = (!on.is_empty()).then(|| grant(&on, " WITH GRANT OPTION"));
        (!plain.is_empty()).then(|| grant(&plain, "")).into_iter().chain(on).collect()
    }
}

/// What in a description has privileges.
fn granted<'a>(kind: &str, identity: &str, properties: &'a [String]) -> Vec<Granted<'a>> {
    let find = |label: &str| properties.iter().find_map(|line| line.strip_prefix(label));
    let routine = find("privileges ").or_else(|| find("proacl "));
    let unquoted = |text: &'a str| {
        let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        inner.map(|inner| inner.replace("''", "'").into())
    };
    match kind {
        "schema" | "type" | "domain" => {
            let word = if kind == "schema" { "SCHEMA" } else { "TYPE" };
            let label = if kind == "schema" { "nspacl " } else { "typacl " };
            let text = find(label).and_then(unquoted);
            vec![Granted { object: format!("{word} {identity}"), text }]
        }
        "function" | "procedure" | "aggregate" => {
            let text = routine.and_then(|text| unquoted(text).or(Some(text.into())));
            vec![Granted { object: format!("ROUTINE {identity}"), text }]
        }
        _ => relations(properties),
    }
}

/// A relation, and the sequences of its identity columns.
fn relations(properties: &[String]) -> Vec<Granted<'_>> {
    let (mut name, mut word) = ("", "TABLE");
    let mut found = Vec::new();
    for line in properties {
        if let Some(relation) = line.strip_prefix("relation ") {
            name = relation;
        } else if let Some(kind) = line.strip_prefix("kind ") {
            word = if kind == "S" { "SEQUENCE" } else { "TABLE" };
        } else if let Some(text) = line.strip_prefix("privileges ") {
            found.push(Granted { object: format!("{word} {name}"), text: Some(text.into()) });
        }
    }
    found
}

/// The grants in a text.
fn grants(text: Option<&str>) -> Vec<Grant<'_>> {
    let mut grants = Vec::new();
    let mut rest = text.unwrap_or_default();
    while let Some((privileges, behind)) = rest.split_once(" to ") {
        let Some(grantee) = name(behind) else { break };
        let Some(behind) = behind[grantee.len()..].strip_prefix(" by ") else { break };
        let Some(grantor) = name(behind) else { break };
        grants.push(Grant { privileges, grantee, grantor });
        rest = behind[grantor.len()..].strip_prefix("; ").unwrap_or_default();
    }
    grants
}

/// The name with which a text begins.
fn name(text: &str) -> Option<&str> {
    let first = tokens(text).next()?;
    matches!(first.kind, TokenKind::Word | TokenKind::Quoted).then_some(first.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(kind: &str, identity: &str, primary: &str, here: &str) -> Vec<String> {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        like(kind, identity, &lines(primary), &lines(here))
    }

    #[test]
    fn what_default_privileges_gave_is_taken_and_what_they_took_is_given() {
        let table = |privileges: &str| {
            format!(
                "relation s.t\nkind r\nprivileges {privileges}\nrelation s.q\nkind S\nprivileges USAGE to ann by ann"
            )
        };
        let owners = "INSERT, SELECT to ann by ann";
        let shared =
            "INSERT, SELECT to ann by ann; SELECT, UPDATE* to \"a to b; \"\"x by y\" by ann";
        assert_eq!(
            commands("table", "s.t", &table(owners), &table(shared)),
            ["REVOKE ALL ON TABLE s.t FROM \"a to b; \"\"x by y\""]
        );
        assert_eq!(
            commands("table", "s.t", &table(shared), &table(owners)),
            [
                "GRANT SELECT ON TABLE s.t TO \"a to b; \"\"x by y\"",
                "GRANT UPDATE ON TABLE s.t TO \"a to b; \"\"x by y\" WITH GRANT OPTION"
            ]
        );
        assert_eq!(commands("table", "s.t", &table(owners), &table(owners)), [""; 0]);
        let (all, less) = (
            "privileges EXECUTE to PUBLIC by ann; EXECUTE to ann by ann",
            "privileges EXECUTE to ann by ann",
        );
        assert_eq!(
            commands("function", "s.f()", all, less),
            ["GRANT EXECUTE ON ROUTINE s.f() TO PUBLIC"]
        );
        assert_eq!(
            commands("function", "s.f()", less, all),
            ["REVOKE ALL ON ROUTINE s.f() FROM PUBLIC"]
        );
    }

    #[test]
    fn without_a_word_of_them_privileges_are_postgresqls_own() {
        let schema = "nspacl 'CREATE, USAGE to ann by ann; USAGE to bob by ann'";
        assert_eq!(
            commands("schema", "s", "nspname 's'", schema),
            ["REVOKE ALL ON SCHEMA s FROM bob"]
        );
        assert_eq!(
            commands("type", "s.e", "typname 'e'", "typacl 'USAGE to ann by ann'"),
            ["GRANT USAGE ON TYPE s.e TO PUBLIC"]
        );
    }
}
