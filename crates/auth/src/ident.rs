//! `pg_ident.conf`: which system users may log in as which roles (manual, "User Name Maps"), as PostgreSQL 16
//! and later read it. A system user is who is at the other end of a Unix socket, or a name in a client's
//! certificate.
//!
//! Departure: with `\1` the pattern must match whole names in one way only, since PostgreSQL's engine and ours may
//! capture different parts otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::files::{FileErrors, Files, Line, Token, Wrong, read};
use crate::names::Role;
use crate::pattern::Pattern;

/// All maps of the file.
#[derive(Debug, Clone, Default)]
pub struct Maps(Vec<Entry>);

/// One line of the file.
#[derive(Debug, Clone)]
struct Entry {
    map: String,
    system_user: SystemUser,
    role: Role,
}

#[derive(Debug, Clone)]
enum SystemUser {
    Is(String),
    Matches(Pattern),
}

/// Why a system user may not be a role: PostgreSQL's words for the server's log. The client only learns that
/// authentication failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMapped {
    /// There is no map, and the names differ.
    #[error("provided user name ({role}) and authenticated user name ({system_user}) do not match")]
    NamesDiffer {
        /// The role.
        role: String,
        /// The system user.
        system_user: String,
    },
    /// No line of the map matches.
    #[error("no match in usermap \"{map}\" for user \"{role}\" authenticated as \"{system_user}\"")]
    NoMatch {
        /// The map.
        map: String,
        /// The role.
        role: String,
        /// The system user.
        system_user: String,
    },
    /// A line has `\1`, and its regular expression captured nothing for it.
    #[error(
        "regular expression \"{pattern}\" has no subexpressions as requested by backreference in \"{role}\""
    )]
    NothingCaptured {
        /// The regular expression.
        pattern: String,
        /// The role with `\1`.
        role: String,
    },
}

impl Maps {
    /// Reads a file and those that it includes.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read(path: &Path, files: &dyn Files) -> Result<Maps, FileErrors> {
        read(path, files, Entry::read).map(Maps)
    }

    /// Reads a text that includes no others; `path` is for its errors.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Maps, FileErrors> {
        Maps::read(path, &BTreeMap::from([(PathBuf::from(path), text.to_owned())]))
    }

    /// Checks that a system user may be a role by a map; without a map, the names must be equal.
    /// `is_member` says whether the role is a member of another, as for [`crate::hba::Rules::find`].
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(
        &self,
        map: Option<&str>,
        system_user: &str,
        role: &str,
        is_member: &dyn Fn(&str) -> bool,
    ) -> Result<(), NotMapped> {
        let (role_name, name) = (role.to_owned(), system_user.to_owned());
        let Some(map) = map else {
            let differ = NotMapped::NamesDiffer { role: role_name, system_user: name };
            return if role == system_user { Ok(()) } else { Err(differ) };
        };
        for entry in self.0.iter().filter(|entry| entry.map == map) {
            if entry.allows(system_user, role, is_member)? {
                return Ok(());
            }
        }
        Err(NotMapped::NoMatch { map: map.to_owned(), role: role_name, system_user: name })
    }

    /// The roles whose membership [`Maps::check`] may ask for.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<&str> {
        self.0.iter().filter_map(|entry| entry.role.group()).collect()
    }
}

impl Entry {
    fn read(line: &Line) -> Result<Entry, Wrong> {
        let field = |at, of| {
            let hint = "write the map's name, the system user, and the role";
            line.single(at, of)?.ok_or_else(|| Wrong::new("missing entry at end of line", hint))
        };
        let (map, system_user) = (field(0, "map name")?, field(1, "system user")?);
        let (map, role) = (map.text.clone(), Role::read(field(2, "role")?)?);
        let system_user = SystemUser::read(system_user)?;
        match (&system_user, &role) {
            (SystemUser::Matches(pattern), Role::Is(name))
                if name.contains(r"\1") && !pattern.captures_alike() =>
            {
                let what = format!("what \\1 is may be ambiguous in \"{}\"", pattern.text());
                Err(Wrong::new(what, "write ^ and $ around it, and a line for each alternative"))
            }
            _ => Ok(Entry { map, system_user, role }),
        }
    }

    fn allows(
        &self,
        system_user: &str,
        role: &str,
        is_member: &dyn Fn(&str) -> bool,
    ) -> Result<bool, NotMapped> {
        let pattern = match &self.system_user {
            SystemUser::Is(name) if name != system_user => return Ok(false),
            SystemUser::Is(_) => return Ok(self.role.matches(role, is_member)),
            SystemUser::Matches(pattern) => pattern,
        };
        let Some(captured) = pattern.captured(system_user) else { return Ok(false) };
        let Role::Is(name) = &self.role else { return Ok(self.role.matches(role, is_member)) };
        let Some((before, behind)) = name.split_once(r"\1") else { return Ok(name == role) };
        let captured = captured.ok_or_else(|| NotMapped::NothingCaptured {
            pattern: pattern.text().to_owned(),
            role: name.clone(),
        })?;
        Ok([before.as_bytes(), captured, behind.as_bytes()].concat() == role.as_bytes())
    }
}

impl SystemUser {
    fn read(token: &Token) -> Result<SystemUser, Wrong> {
        Ok(match token.text.strip_prefix('/') {
            Some(regex) => SystemUser::Matches(Pattern::compile(regex)?),
            None => SystemUser::Is(token.text.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn maps(text: &str) -> Maps {
        Maps::parse(Path::new("pg_ident.conf"), text).unwrap()
    }

    const MAPS: &str = r#"
        # map  system user            role
        m      ann                    annie
        m      "bob"                  "all"
        m      carl                   all
        m      dora                   +staff
        m      eve                    "+staff"
        m      fred                   /^f\d$
        m      /^(.*)@a\.org$         \1
        m      /^(.*)@b\.org$         guest_\1_\1
        n      ann                    root
        m      gus                    one
        m      gus                    two
        x      /^(a)?b$               \1
        x      b                      bob
    "#;

    #[test]
    fn as_postgresql_maps() {
        let maps = maps(MAPS);
        for (map, system_user, role, expected) in [
            (None, "ann", "ann", true),
            (None, "ann", "annie", false),
            (Some("m"), "ann", "annie", true),
            (Some("m"), "ann", "ann", false),
            (Some("m"), "ann", "root", false),
            (Some("n"), "ann", "root", true),
            (Some("nosuch"), "ann", "ann", false),
            (Some("m"), "bob", "all", true),
            (Some("m"), "bob", "bob", false),
            (Some("m"), "carl", "anyone", true),
            (Some("m"), "dora", "member", true),
            (Some("m"), "dora", "staff", false),
            (Some("m"), "eve", "+staff", true),
            (Some("m"), "eve", "member", false),
            (Some("m"), "fred", "f1", true),
            (Some("m"), "fred", "f11", false),
            (Some("m"), "zoe@a.org", "zoe", true),
            // What was captured is a name, whatever it looks like.
            (Some("m"), "all@a.org", "anyone", false),
            (Some("m"), "all@a.org", "all", true),
            (Some("m"), "+staff@a.org", "member", false),
            (Some("m"), "zoe@aXorg", "zoe", false),
            // Only the first \1 is replaced.
            (Some("m"), "zoe@b.org", r"guest_zoe_\1", true),
            (Some("m"), "zoe@b.org", "guest_zoe_zoe", false),
            (Some("m"), "gus", "two", true),
            (Some("x"), "ab", "a", true),
        ] {
            let is_member = |group: &str| group == "staff" && role == "member";
            let end = maps.check(map, system_user, role, &is_member);
            assert_eq!(end.is_ok(), expected, "{map:?} {system_user} {role}: {end:?}");
        }
        assert_eq!(maps.groups().into_iter().collect::<Vec<_>>(), ["staff"]);
    }

    #[test]
    fn refusals_are_postgresqls() {
        let maps = maps(MAPS);
        let refusal = |map, system_user, role| {
            maps.check(map, system_user, role, &|_| false).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(None, "ann", "bob"),
            "provided user name (bob) and authenticated user name (ann) do not match"
        );
        assert_eq!(
            refusal(Some("m"), "ann", "bob"),
            "no match in usermap \"m\" for user \"bob\" authenticated as \"ann\""
        );
        // It ends the search: the line behind it would match.
        assert_eq!(
            refusal(Some("x"), "b", "bob"),
            "regular expression \"^(a)?b$\" has no subexpressions as requested by backreference in \"\\1\""
        );
    }

    #[test]
    fn wrong_lines_are_told() {
        let text = "m\nm a\nm a,b c\nm /( c\nm a /(\nm a b ignored\nm /(?=x) b\nm /(a) \\1\nm /^(a|ab)b?$ \\1\n";
        let errors = Maps::parse(Path::new("pg_ident.conf"), text).unwrap_err().0;
        let lines: Vec<_> = errors.iter().map(|error| error.line.unwrap()).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 7, 8, 9]);
        assert!(maps("# nothing\n").0.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[m a/(\\\\1,\"+@#\n.*?)|\\[\\]é]{0,80}", user in ".{0,5}") {
            if let Ok(maps) = Maps::parse(Path::new("f"), &text) {
                let _ = maps.check(Some("m"), &user, &user, &|_| true);
            }
        }
    }
}
