//! Versions of collations. Servers sort text with a library of their operating system, glibc or ICU, and
//! different versions of it may sort differently (manual, "Collation Support", pg_collation_actual_version). At
//! a replica with another version, ORDER BY, comparisons and ranges could give different results, so it serves
//! no reads. Changes are still applied there.
//!
//! A server uses the libraries with which it was started, so they are checked at the first connection after
//! each start.

use std::collections::BTreeMap;

use hihooi_log::Log;

use crate::connection::{self, Connection};
use crate::identity::Error;

/// Name in the log of what the primary sorts by.
const COLLATIONS: &str = "collations";
/// All of those that a database has from the beginning, whoever uses them: they tell the versions of all
/// libraries. (The rules of `C` have none.)
const ASKED: &str = "SELECT collname, pg_catalog.pg_collation_actual_version(oid)
    FROM pg_catalog.pg_collation
    WHERE collnamespace = 'pg_catalog'::pg_catalog.regnamespace
      AND pg_catalog.pg_collation_actual_version(oid) IS NOT NULL ORDER BY 1";

/// The versions of a server's collations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collations(BTreeMap<String, String>);

impl Collations {
    /// Those of a server.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn read(connection: &mut Connection) -> connection::Result<Collations> {
        let rows = connection.query(ASKED).await?.rows.into_iter();
        let pair = |row: connection::Row| {
            let mut row = row.into_iter();
            Some((row.next()??, row.next()??))
        };
        Ok(Collations(rows.filter_map(pair).collect()))
    }

    /// How a replica with these sorts otherwise than a primary with those; `None` if it doesn't, as far as
    /// both have them.
    #[must_use]
    pub fn problem(&self, primary: &Collations) -> Option<String> {
        let both =
            self.0.iter().filter_map(|(name, here)| Some((name, here, primary.0.get(name)?)));
        let mut differing = both.filter(|(_, here, there)| here != there);
        let (name, here, there) = differing.next()?;
        let others = match differing.count() {
            0 => String::new(),
            others => format!(" (and {others} others)"),
        };
        Some(format!(
            "it sorts text otherwise than the primary: collation {name:?}{others} has version {here} here, \
             {there} there. Let both run with the same version of glibc and ICU"
        ))
    }

    fn from_text(text: &str) -> Collations {
        let pair = |line: &str| {
            let (name, version) = line.rsplit_once(' ')?;
            Some((name.to_owned(), version.to_owned()))
        };
        Collations(text.lines().filter_map(pair).collect())
    }

    fn to_text(&self) -> String {
        self.0.iter().map(|(name, version)| format!("{name} {version}\n")).collect()
    }
}

/// Writes into the log what the primary sorts by; whether that is something new.
///
/// # Errors
/// [`Error::Connection`], [`Error::Log`].
pub async fn note_primary(connection: &mut Connection, log: &Log) -> Result<bool, Error> {
    let here = Collations::read(connection).await?.to_text();
    let is_new = log.meta(COLLATIONS)?.is_none_or(|noted| noted != here.as_bytes());
    if is_new {
        log.set_meta(COLLATIONS, here.as_bytes()).await?;
    }
    Ok(is_new)
}

/// How a replica sorts otherwise than what was noted of the primary; `None` if it doesn't.
///
/// # Errors
/// [`Error::Connection`], [`Error::Log`].
pub async fn problem(connection: &mut Connection, log: &Log) -> Result<Option<String>, Error> {
    let noted = log.meta(COLLATIONS)?.unwrap_or_default();
    let primary = Collations::from_text(&String::from_utf8_lossy(&noted));
    Ok(Collations::read(connection).await?.problem(&primary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_have_is_compared() {
        let primary = Collations::from_text("a 1\nb 2\nc d 3\n");
        assert_eq!(Collations::from_text(&primary.to_text()), primary);
        assert_eq!(Collations::from_text("a 1\nother 7\n").problem(&primary), None);
        let problem = Collations::from_text("a 1\nb 3\nc d 4\n").problem(&primary);
        let problem = problem.expect("b and c d differ");
        assert!(
            problem.contains("collation \"b\" (and 1 others) has version 3 here, 2 there"),
            "{problem}"
        );
    }
}
