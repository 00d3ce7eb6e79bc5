//! A role's password as `pg_authid.rolpassword` has it, and which exchange it allows.

use crate::hba::Method;
use crate::scram::Keys;
use crate::{md5, scram};

/// A stored password.
#[derive(Debug, Clone)]
pub enum Stored {
    /// For SCRAM-SHA-256.
    Scram(scram::Verifier),
    /// For md5.
    Md5(md5::Verifier),
}

/// What proves a password that was sent in clear text, beside the password itself.
#[derive(Debug)]
pub enum Clear {
    /// These keys log in elsewhere.
    Keys(Keys),
    /// The stored hash does.
    Md5,
}

/// The exchange that a client must go through.
#[derive(Debug)]
pub enum Exchange {
    /// AuthenticationSASL, with this verifier.
    Scram(scram::Verifier),
    /// AuthenticationMD5Password.
    Md5(md5::Verifier),
    /// AuthenticationCleartextPassword.
    Clear(Stored),
}

/// For a role that doesn't exist or can't log in by a method, so that clients can't tell it from others.
#[derive(Debug, Clone, Copy)]
pub struct Mock<'a> {
    /// Known to nobody else, and the same after a restart.
    pub secret: &'a [u8],
    /// What the start-up packet calls the role.
    pub role: &'a str,
    /// Those of the verifiers that the primary makes (`scram_iterations`).
    pub iterations: u32,
}

impl Stored {
    /// Reads what the server stores; `None` is neither kind, and nobody can log in by it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Stored> {
        let scram = || text.parse().map(Stored::Scram).ok();
        text.parse().map(Stored::Md5).ok().or_else(scram)
    }

    /// Checks a password that a client sent in clear text. Takes as long as the verifier's iterations do.
    #[must_use]
    pub fn check_password(&self, password: &[u8], role: &str) -> Option<Clear> {
        match self {
            Stored::Scram(verifier) => verifier.check_password(password).map(Clear::Keys),
            Stored::Md5(verifier) => verifier.check_password(password, role).then_some(Clear::Md5),
        }
    }
}

impl Exchange {
    /// That of a method, as PostgreSQL chooses it: `md5` becomes SCRAM unless the stored password is for md5;
    /// `scram-sha-256` with one for md5 can only fail. `None` if the method asks for no password.
    #[must_use]
    pub fn of(method: Method, stored: Option<Stored>, mock: Mock<'_>) -> Option<Exchange> {
        let none = || scram::Verifier::mock(mock.secret, mock.role, mock.iterations);
        Some(match (method, stored) {
            (Method::Password, stored) => {
                Exchange::Clear(stored.unwrap_or_else(|| Stored::Scram(none())))
            }
            (Method::Scram | Method::Md5, Some(Stored::Scram(verifier))) => {
                Exchange::Scram(verifier)
            }
            (Method::Md5, Some(Stored::Md5(verifier))) => Exchange::Md5(verifier),
            (Method::Scram | Method::Md5, _) => Exchange::Scram(none()),
            (Method::Trust | Method::Reject | Method::Cert | Method::Peer, _) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "ann";

    fn stored() -> [(Option<Stored>, char); 3] {
        let hashing = scram::Hashing { iterations: 1, salt: b"salt".to_vec() };
        let scram = scram::Verifier::of_password(b"secret", hashing);
        let md5 = md5::Verifier::of_password(b"secret", ROLE);
        [(Some(Stored::Scram(scram)), 's'), (Some(Stored::Md5(md5)), 'm'), (None, '-')]
    }

    /// `s`: SCRAM, `f`: SCRAM that can only fail, `m`: md5, `c`: clear text, `-`: none.
    #[test]
    fn methods_choose_exchanges_as_in_postgresql() {
        let mock = Mock { secret: b"hidden", role: ROLE, iterations: 1 };
        let doomed = scram::Verifier::mock(b"hidden", ROLE, 1);
        let of = |method| {
            stored().map(|(stored, _)| match Exchange::of(method, stored, mock) {
                Some(Exchange::Scram(verifier)) if verifier == doomed => 'f',
                Some(Exchange::Scram(_)) => 's',
                Some(Exchange::Md5(_)) => 'm',
                Some(Exchange::Clear(_)) => 'c',
                None => '-',
            })
        };
        // Stored for SCRAM, for md5, not at all.
        assert_eq!(of(Method::Scram), ['s', 'f', 'f']);
        assert_eq!(of(Method::Md5), ['s', 'm', 'f']);
        assert_eq!(of(Method::Password), ['c', 'c', 'c']);
        for method in [Method::Trust, Method::Reject, Method::Cert, Method::Peer] {
            assert_eq!(of(method), ['-', '-', '-']);
        }
    }

    #[test]
    fn passwords_in_clear_text_are_checked() {
        for (stored, kind) in stored() {
            let Some(stored) = stored else { continue };
            let proof = stored.check_password(b"secret", ROLE);
            assert!(matches!((proof, kind), (Some(Clear::Keys(_)), 's') | (Some(Clear::Md5), 'm')));
            assert!(stored.check_password(b"Secret", ROLE).is_none());
            assert!(stored.check_password(b"", ROLE).is_none());
        }
        // The role's name is in the hash.
        let [_, (md5, _), _] = stored();
        assert!(md5.unwrap().check_password(b"secret", "bob").is_none());
    }

    #[test]
    fn both_kinds_are_read() {
        let scram = "SCRAM-SHA-256$1:c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAA\
            AAAAAAAAAAAAAAAAAAA=";
        assert!(matches!(Stored::parse(scram), Some(Stored::Scram(_))));
        let md5 = "md50123456789abcdef0123456789abcdef";
        assert!(matches!(Stored::parse(md5), Some(Stored::Md5(_))));
        assert!(Stored::parse("clear text").is_none());
    }
}
