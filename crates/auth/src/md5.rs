//! The md5 method (manual, "Password Authentication" and "Message Flow"): the client sends a hash of the stored
//! hash and of a salt. Who knows the stored hash can log in with it, so it is as secret as a password.
//! PostgreSQL 18 calls the method deprecated.

use std::fmt;
use std::str::FromStr;

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The digits of an MD5 hash.
const DIGITS: &[u8; 16] = b"0123456789abcdef";
const DIGITS_LEN: usize = 32;

/// What a server stores of a password: `md5` and the hash of the password and the role's name, so a role that is
/// renamed loses its password. Overwritten when dropped.
#[derive(Clone)]
pub struct Verifier(Zeroizing<[u8; DIGITS_LEN]>);

/// This is no md5 verifier: perhaps one for SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not an md5 verifier")]
pub struct NoVerifier;

impl Verifier {
    /// That of a role's password.
    #[must_use]
    pub fn of_password(password: &[u8], role: &str) -> Verifier {
        Verifier(Zeroizing::new(digest(password, role.as_bytes())))
    }

    /// What a client sends in PasswordMessage for the salt of AuthenticationMD5Password.
    #[must_use]
    pub fn response(&self, salt: [u8; 4]) -> String {
        format!("md5{}", String::from_utf8_lossy(&digest(self.0.as_slice(), &salt)))
    }

    /// Whether a client's PasswordMessage is right for the salt that it was sent.
    #[must_use]
    pub fn check(&self, salt: [u8; 4], response: &[u8]) -> bool {
        self.response(salt).as_bytes().ct_eq(response).into()
    }

    /// Whether a password that a client sent in clear text is the role's.
    #[must_use]
    pub fn check_password(&self, password: &[u8], role: &str) -> bool {
        *self == Verifier::of_password(password, role)
    }
}

/// Reads it as the server stores it: `md5` and 32 hexadecimal digits.
impl FromStr for Verifier {
    type Err = NoVerifier;

    fn from_str(text: &str) -> Result<Verifier, NoVerifier> {
        let digits = text.strip_prefix("md5").and_then(|rest| rest.as_bytes().try_into().ok());
        let digits: [u8; DIGITS_LEN] = digits.ok_or(NoVerifier)?;
        let is_hash = digits.iter().all(|digit| DIGITS.contains(digit));
        is_hash.then(|| Verifier(Zeroizing::new(digits))).ok_or(NoVerifier)
    }
}

impl PartialEq for Verifier {
    fn eq(&self, other: &Verifier) -> bool {
        self.0.ct_eq(other.0.as_slice()).into()
    }
}

impl Eq for Verifier {}

/// Without the hash.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// The MD5 hash of two texts in a row, in hexadecimal digits.
fn digest(first: &[u8], second: &[u8]) -> [u8; DIGITS_LEN] {
    let hash = Md5::new().chain_update(first).chain_update(second).finalize();
    let mut digits = [0; DIGITS_LEN];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 0xF)];
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_another_implementation() {
        let verifier = Verifier::of_password(b"secret", "ann");
        let salt = [1, 2, 0xFE, 0xFF];
        let response = verifier.response(salt);
        let theirs = postgres_protocol::authentication::md5_hash(b"ann", b"secret", salt);
        assert_eq!(response, theirs);
        assert!(verifier.check(salt, response.as_bytes()));
        assert!(!verifier.check([1, 2, 0xFE, 0xFE], response.as_bytes()));
        assert!(!verifier.check(salt, &response.as_bytes()[..34]));
        assert!(!verifier.check(salt, b""));
    }

    /// Made by `ALTER ROLE vv PASSWORD 'secret'` with PostgreSQL 15 and 18.
    #[test]
    fn verifier_of_real_servers() {
        let stored: Verifier = "md57d2c06effad31dc2277c08fd347d2f0f".parse().unwrap();
        assert!(stored.check_password(b"secret", "vv"));
        assert!(!stored.check_password(b"secret", "vw"));
    }

    #[test]
    fn debug_does_not_show_the_hash() {
        let text = "md50123456789abcdef0123456789abcdef";
        let verifier: Verifier = text.parse().unwrap();
        assert!(!format!("{verifier:?}").contains("0123"));
    }

    #[test]
    fn only_lower_case_hashes_are_verifiers() {
        for text in [
            "md5",
            "md50123456789abcdef0123456789abcde",
            "md50123456789abcdef0123456789abcdef0",
            "md50123456789ABCDEF0123456789abcdef",
            "SCRAM-SHA-256$4096:x$y:z",
        ] {
            assert_eq!(text.parse::<Verifier>(), Err(NoVerifier), "{text}");
        }
    }
}
