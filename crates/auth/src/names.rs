//! How a role is named in `pg_hba.conf` and, since PostgreSQL 16, in `pg_ident.conf`.

use crate::files::{Token, Wrong};
use crate::pattern::Pattern;

/// One token of a list of roles.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    /// `all`.
    All,
    /// `+role`: its members, itself among them.
    MemberOf(String),
    /// `/regex`.
    Matches(Pattern),
    /// A name.
    Is(String),
}

impl Role {
    pub(crate) fn read(token: &Token) -> Result<Role, Wrong> {
        let text = &token.text;
        Ok(match (token.quoted, text.strip_prefix('+'), text.strip_prefix('/')) {
            (false, Some(group), _) => Role::MemberOf(group.to_owned()),
            // Quotes may be needed for a pattern with commas.
            (_, _, Some(regex)) => Role::Matches(Pattern::compile(regex)?),
            _ if token.is("all") => Role::All,
            _ => Role::Is(text.clone()),
        })
    }

    pub(crate) fn matches(&self, user: &str, is_member: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Role::All => true,
            Role::MemberOf(group) => is_member(group),
            Role::Matches(pattern) => pattern.matches(user),
            Role::Is(name) => name == user,
        }
    }

    /// The role whose membership [`Role::matches`] asks for.
    pub(crate) fn group(&self) -> Option<&str> {
        match self {
            Role::MemberOf(group) => Some(group),
            _ => None,
        }
    }
}
