//! How we prove to a server that we may be a role: by the login's own secret or, as libpq does, by the password file
//! (manual, "The Password File"). Nothing is sent unless the server asks for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::BytesMut;
use hihooi_auth::md5;
use hihooi_auth::passfile::Passfile;
use hihooi_auth::scram::client::{Binding, Client, Proved};
use hihooi_auth::scram::{self, Keys, Nonce, SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use hihooi_wire::authentication::{self, Request};
use tracing::warn;
use zeroize::Zeroizing;

use crate::connection::{Error, Login, Result};

/// Bits of a file's mode that let others than its owner read or write it.
const OTHERS: u32 = 0o077;

/// What proves that we may be a role.
#[derive(Clone, Debug)]
pub enum Secret {
    /// What a client's SCRAM exchange showed: enough where the verifier is the same.
    Keys(Keys),
    /// The hash that a server stores for md5.
    Md5(md5::Verifier),
    /// The password.
    Password(Password),
}

/// A password; overwritten when dropped.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl From<&str> for Password {
    fn from(text: &str) -> Password {
        Password(Zeroizing::new(text.to_owned()))
    }
}

/// Without it.
impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(…)")
    }
}

/// A login on its way.
pub(crate) struct Prover<'a> {
    login: &'a Login,
    /// The hash of the server's certificate, if the connection is encrypted and it is known.
    end_point: Option<Arc<[u8]>>,
    stage: Stage,
}

enum Stage {
    /// Nothing was asked for.
    Unasked,
    /// We have proved it without SCRAM, which proves nothing of the server.
    Told,
    /// The SCRAM exchange awaits the server's first message, and then its last.
    Begun(Client),
    Proved(Proved),
    /// The server has shown that it knows the verifier.
    Mutual,
    /// It has not, or can't be answered: nothing that it says counts any more.
    Failed,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(login: &'a Login, end_point: Option<Arc<[u8]>>) -> Prover<'a> {
        Prover { login, end_point, stage: Stage::Unasked }
    }

    /// Whether the server asked for a proof.
    pub(crate) fn was_asked(&self) -> bool {
        !matches!(self.stage, Stage::Unasked)
    }

    /// Answers the body of an Authentication message.
    ///
    /// # Errors
    /// There is nothing to prove it with, or the server is not the one that it should be.
    pub(crate) fn answer(&mut self, body: &[u8], out: &mut BytesMut) -> Result<()> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = match (Request::read(body)?, stage) {
            (Request::Ok, stage @ (Stage::Unasked | Stage::Told | Stage::Mutual)) => stage,
            (Request::Cleartext, Stage::Unasked) => {
                let Secret::Password(Password(password)) = self.secret()? else {
                    return Err(self
                        .refuse("asks for the password in clear text, which hihooi doesn't have"));
                };
                authentication::password(password.as_bytes(), out);
                Stage::Told
            }
            (Request::Md5(salt), Stage::Unasked) => {
                let verifier = match self.secret()? {
                    Secret::Md5(verifier) => verifier,
                    Secret::Password(Password(password)) => {
                        md5::Verifier::of_password(password.as_bytes(), &self.login.user)
                    }
                    Secret::Keys(_) => {
                        return Err(
                            self.refuse("stores an md5 password, and the primary a SCRAM verifier")
                        );
                    }
                };
                authentication::password(verifier.response(salt).as_bytes(), out);
                Stage::Told
            }
            (Request::Sasl(offered), Stage::Unasked)
                if offered.contains(&SCRAM_SHA_256.as_bytes()) =>
            {
                let binding = self.binding(&offered);
                let (client, first) = Client::begin(binding, &nonce()?);
                authentication::sasl_initial(binding.mechanism().as_bytes(), &first, out);
                Stage::Begun(client)
            }
            (Request::SaslContinue(data), Stage::Begun(client)) => {
                let secret = self.secret()?;
                let secret = match &secret {
                    Secret::Keys(keys) => scram::client::Secret::Keys(keys),
                    Secret::Password(Password(text)) => {
                        scram::client::Secret::Password(text.as_bytes())
                    }
                    Secret::Md5(_) => {
                        return Err(
                            self.refuse("stores a SCRAM verifier, and the primary an md5 password")
                        );
                    }
                };
                let (proved, last) = client
                    .prove(secret, data)
                    .map_err(|error| self.refuse(&format!("can't be logged in to: {error}")))?;
                authentication::sasl_response(&last, out);
                Stage::Proved(proved)
            }
            (Request::SaslFinal(data), Stage::Proved(proved)) => {
                proved
                    .check(data)
                    .map_err(|error| self.refuse(&format!("is not to be trusted: {error}")))?;
                Stage::Mutual
            }
            (Request::Ok, _) => {
                return Err(self.refuse("let us in without showing that it knows the password"));
            }
            (other, _) => {
                return Err(self.refuse(&format!("asks for what hihooi can't do: {other:?}")));
            }
        };
        Ok(())
    }

    /// Over TLS, the exchange is bound to the server's certificate, so that it can't be relayed. If the server doesn't
    /// offer that we tell it so, signed: it refuses if its offer was changed on the way (RFC 5802, section 6). A
    /// certificate whose hash isn't defined (RFC 5929) can't be bound to.
    fn binding(&self, offered: &[&[u8]]) -> Binding<'_> {
        match &self.end_point {
            Some(hash) if offered.contains(&SCRAM_SHA_256_PLUS.as_bytes()) => {
                Binding::EndPoint(hash)
            }
            Some(_) => Binding::NotOffered,
            None => Binding::None,
        }
    }

    fn secret(&self) -> Result<Secret> {
        let known = self.login.secret.as_deref().cloned();
        known.or_else(|| from_passfile(self.login)).ok_or_else(|| {
            Error::Protocol(format!(
                "{} asks for the password of role \"{}\", which hihooi doesn't have: let clients of this role log in \
                 by scram-sha-256 (auth.hba_file), or put it into the password file (PGPASSFILE, ~/.pgpass)",
                self.login.address, self.login.user
            ))
        })
    }

    fn refuse(&self, what: &str) -> Error {
        Error::Protocol(format!(
            "{}, role \"{}\": the server {what}",
            self.login.address, self.login.user
        ))
    }
}

fn nonce() -> Result<Nonce> {
    let mut random = [0; 18];
    match getrandom::fill(&mut random) {
        Ok(()) => Ok(Nonce::new(&random)),
        Err(error) => Err(Error::Protocol(format!("no random numbers: {error}"))),
    }
}

/// The role's password, as libpq finds it. The file is read each time: it may change.
fn from_passfile(login: &Login) -> Option<Secret> {
    let path = match std::env::var_os("PGPASSFILE").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"),
    };
    let found = fs::metadata(&path).ok()?;
    if !found.is_file() || found.permissions().mode() & OTHERS != 0 {
        let path = path.display();
        warn!(%path, "the password file is not used: it must be a plain file that only its owner can read");
        return None;
    }
    let text = Zeroizing::new(fs::read_to_string(&path).ok()?);
    let address = &login.address;
    let password = Passfile::parse(&text)
        .find(&address.host, address.port, &login.database, &login.user)?
        .into();
    Some(Secret::Password(password))
}

#[cfg(test)]
mod tests {
    use hihooi_auth::scram::Verifier;
    use hihooi_auth::scram::server::challenge;

    use super::*;
    use crate::connection::Address;

    fn body(request: &Request<'_>) -> BytesMut {
        let mut message = BytesMut::new();
        request.write(&mut message);
        message.split_off(5)
    }

    /// A SCRAM exchange up to the server's last message, and what that is.
    fn up_to_the_end(login: &Login) -> (Prover<'_>, String) {
        let mut prover = Prover::new(login, None);
        let mut out = BytesMut::new();
        let offered = Request::Sasl(vec![SCRAM_SHA_256.as_bytes()]);
        prover.answer(&body(&offered), &mut out).expect("it knows SCRAM");
        let first = out.split().split_off(5);
        let (mechanism, data) = authentication::read_sasl_initial(&first).expect("valid");
        let (mechanism, data) = (String::from_utf8_lossy(mechanism), data.expect("it begins"));
        let hashing = Verifier::mock(b"salt", "role", scram::ITERATIONS_DEFAULT).hashing().clone();
        let verifier = Verifier::of_password(b"secret", hashing);
        let (server_first, exchange) =
            challenge(verifier, None, &mechanism, data, &nonce().expect("random")).expect("valid");
        prover
            .answer(&body(&Request::SaslContinue(server_first.as_bytes())), &mut out)
            .expect("it has a password");
        let (last, _) = exchange.finish(&out.split_off(5)).expect("the right password");
        (prover, last)
    }

    /// Who doesn't show that he knows the verifier is not the server, whatever he says (RFC 5802, section 9).
    #[test]
    fn a_server_has_to_prove_itself_as_well() {
        let mut login = Login::new(Address::plain("h", 1), "role", "d", "test");
        login.secret = Some(Arc::new(Secret::Password("secret".into())));
        let out = &mut BytesMut::new();
        let (mut prover, last) = up_to_the_end(&login);
        prover.answer(&body(&Request::SaslFinal(last.as_bytes())), out).expect("the right server");
        prover.answer(&body(&Request::Ok), out).expect("it lets us in");

        let (mut prover, _) = up_to_the_end(&login);
        let error = prover.answer(&body(&Request::Ok), out).expect_err("no proof").to_string();
        assert!(error.contains("without showing that it knows the password"), "{error}");

        let (_, others) = up_to_the_end(&login);
        let (mut prover, _) = up_to_the_end(&login);
        let last = body(&Request::SaslFinal(others.as_bytes()));
        let error = prover.answer(&last, out).expect_err("of another exchange").to_string();
        assert!(error.contains("is not to be trusted"), "{error}");
        let error = prover.answer(&body(&Request::Ok), out).expect_err("no proof").to_string();
        assert!(error.contains("without showing"), "{error}");
    }
}
