//! The client's side: [`Client::begin`], [`Client::prove`] and [`Proved::check`], one for each message of the
//! exchange. With [`Keys`] nothing expensive is computed.

use base64::Engine;
use subtle::ConstantTimeEq;

use super::message::{Attributes, Malformed, is_printable};
use super::server::{END_POINT, client_binding};
use super::{
    BASE64, Hashing, ITERATIONS_MAX, Key, Keys, Nonce, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, Verifier,
    read_key, signature, xor,
};

/// What binds the exchange to the TLS connection that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding<'a> {
    /// Nothing: there is no TLS.
    None,
    /// Nothing: there is TLS, but the server doesn't offer SCRAM-SHA-256-PLUS. If in truth it does, it will
    /// refuse, as someone between has changed its offer.
    NotOffered,
    /// The hash of the server's certificate, for SCRAM-SHA-256-PLUS.
    EndPoint(&'a [u8]),
}

/// What the client knows.
#[derive(Debug, Clone, Copy)]
pub enum Secret<'a> {
    /// What the password became for the same verifier.
    Keys(&'a Keys),
    /// The password. Proving it takes as long as the verifier's iterations do.
    Password(&'a [u8]),
}

/// Why the client gave up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server's message isn't as RFC 5802 has it.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The server demands more iterations than [`ITERATIONS_MAX`].
    #[error("the server asks for {0} SCRAM iterations, more than {ITERATIONS_MAX}")]
    Iterations(u32),
    /// This server's verifier is not the one that the keys are for.
    #[error("this server has another SCRAM verifier for the role: salt or iterations differ")]
    OtherVerifier,
    /// The server refuses, by SCRAM's own means; PostgreSQL sends an ErrorResponse instead.
    #[error("error received from server in SCRAM exchange: {0}")]
    Refused(String),
    /// The server doesn't know the password either.
    #[error("incorrect server signature")]
    Signature,
}

/// An exchange that has begun.
#[derive(Debug)]
pub struct Client {
    nonce: String,
    /// What the last message has as `c`.
    binding: Vec<u8>,
}

/// An exchange that awaits the server's last message.
#[derive(Debug)]
pub struct Proved {
    keys: Keys,
    server_signature: Key,
}

impl Binding<'_> {
    /// The mechanism to select.
    #[must_use]
    pub fn mechanism(&self) -> &'static str {
        match self {
            Binding::EndPoint(_) => SCRAM_SHA_256_PLUS,
            _ => SCRAM_SHA_256,
        }
    }
}

impl Client {
    /// Begins an exchange. Returns the data of SASLInitialResponse for [`Binding::mechanism`].
    #[must_use]
    pub fn begin(binding: Binding<'_>, nonce: &Nonce) -> (Client, Vec<u8>) {
        let (header, binding) = match binding {
            Binding::None => (b"n,,".to_vec(), BASE64.encode("n,,").into_bytes()),
            Binding::NotOffered => (b"y,,".to_vec(), BASE64.encode("y,,").into_bytes()),
            Binding::EndPoint(hash) => {
                ([b"p=".as_slice(), END_POINT, b",,"].concat(), client_binding(hash))
            }
        };
        let client = Client { nonce: nonce.0.clone(), binding };
        let first = [header, client.first_bare().into_bytes()].concat();
        (client, first)
    }

    fn first_bare(&self) -> String {
        format!("{FIRST_BARE}{}", self.nonce)
    }

    /// Answers AuthenticationSASLContinue. Returns the data of SASLResponse.
    ///
    /// # Errors
    /// The server's message is wrong, or the secret can't be used with it.
    pub fn prove(
        self,
        secret: Secret<'_>,
        server_first: &[u8],
    ) -> Result<(Proved, Vec<u8>), Error> {
        let (nonce, hashing) = self.read(server_first).map_err(Error::Malformed)?;
        let keys = match secret {
            Secret::Keys(keys) if keys.hashing != hashing => return Err(Error::OtherVerifier),
            Secret::Keys(keys) => keys.clone(),
            Secret::Password(_) if hashing.iterations > ITERATIONS_MAX => {
                return Err(Error::Iterations(hashing.iterations));
            }
            Secret::Password(password) => Keys::derive(password, hashing),
        };
        let without_proof = [b"c=".as_slice(), &self.binding, b",r=", nonce].concat();
        let first_bare = self.first_bare();
        let sign = |key: &Key| signature(key, first_bare.as_bytes(), server_first, &without_proof);
        let mut proof = sign(&Verifier::of_keys(&keys).stored_key);
        xor(&mut proof, &keys.client_key);
        let server_signature = sign(&keys.server_key);
        let proof = BASE64.encode(proof).into_bytes();
        Ok((Proved { keys, server_signature }, [without_proof.as_slice(), b",p=", &proof].concat()))
    }

    /// The nonce of both sides, and how the password is to be hashed. As in libpq, nothing may follow.
    fn read<'a>(&self, server_first: &'a [u8]) -> Result<(&'a [u8], Hashing), Malformed> {
        let mut message = Attributes::new(server_first)?;
        if message.rest()[0] == b'm' {
            return Err("the server requires an extension");
        }
        let nonce = message.value(b'r')?;
        let servers_part = nonce.strip_prefix(self.nonce.as_bytes());
        if !servers_part.is_some_and(is_printable) {
            return Err("the nonce is not ours with the server's behind it");
        }
        let salt = BASE64.decode(message.value(b's')?).map_err(|_| "invalid salt")?;
        let iterations = std::str::from_utf8(message.value(b'i')?).ok();
        let iterations = iterations.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        match (salt.is_empty(), iterations, message.is_at_end()) {
            (true, ..) => Err("empty salt"),
            (_, 0, _) => Err("invalid iteration count"),
            (.., false) => Err("garbage at end of server-first-message"),
            _ => Ok((nonce, Hashing { iterations, salt })),
        }
    }
}

/// The user name is left empty, as libpq leaves it.
const FIRST_BARE: &str = "n=,r=";

impl Proved {
    /// Checks the data of AuthenticationSASLFinal: only then the server is known to know the verifier. Returns
    /// the keys, for the next login.
    ///
    /// # Errors
    /// It doesn't, or it refuses.
    pub fn check(self, server_final: &[u8]) -> Result<Keys, Error> {
        let mut message = Attributes::new(server_final).map_err(Error::Malformed)?;
        let signature = match message.any().map_err(Error::Malformed)? {
            (b'e', why) => return Err(Error::Refused(String::from_utf8_lossy(why).into_owned())),
            (b'v', signature) => {
                read_key(signature).ok_or(Error::Malformed("invalid signature"))?
            }
            _ => return Err(Error::Malformed("signature or error expected")),
        };
        if !message.is_at_end() {
            return Err(Error::Malformed("garbage at end of server-final-message"));
        }
        match bool::from(signature.ct_eq(&self.server_signature)) {
            true => Ok(self.keys),
            false => Err(Error::Signature),
        }
    }
}
