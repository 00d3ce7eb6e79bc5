//! What a client shows to prove who it is: by SCRAM, by md5, or a password in clear text (manual, "Protocol",
//! "Authentication"). Each exchange ends with what logs in for the client at servers.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use hihooi_auth::md5;
use hihooi_auth::scram::server::challenge;
use hihooi_auth::scram::{self, Nonce};
use hihooi_auth::stored::{Clear, Stored};
use hihooi_postgres::login::Secret;
use hihooi_postgres::socket::Socket;
use hihooi_wire::authentication::{self, Request};
use hihooi_wire::backend::Report;
use hihooi_wire::frontend::tag;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::client::Client;
use crate::clients::Stranger;

/// The longest proof that a client may send, as in PostgreSQL.
const ANSWER_LEN_MAX: usize = 10_000;

/// What is wrong with a client's proof.
pub(crate) enum Wrong {
    /// Its form.
    Protocol(Report),
    /// The password.
    Proof,
}

/// The client's next message, which must be a proof; its body. `None` if the client has gone.
async fn answer(client: &mut Client<Socket>) -> Result<Option<Bytes>, Wrong> {
    let wrong = |text: String| Wrong::Protocol(Report::fatal("08P01", text));
    loop {
        let input = &mut client.down.input;
        if let Some(&[tag, ref length @ ..]) = input.first_chunk::<5>() {
            if tag != tag::PASSWORD {
                return Err(wrong(format!("expected password response, got message type {tag}")));
            }
            let len = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            if !(4..=ANSWER_LEN_MAX).contains(&len) {
                return Err(wrong("invalid password packet size".to_owned()));
            }
            if input.len() > len {
                let mut message = input.split_to(1 + len).freeze();
                message.advance(5);
                return Ok(Some(message));
            }
        }
        if client.down.gone {
            return Ok(None);
        }
        client.read().await;
    }
}

async fn ask(client: &mut Client<Socket>, request: &Request<'_>) -> Result<Option<Bytes>, Wrong> {
    request.write(&mut client.down.output);
    client.flush().await;
    answer(client).await
}

/// By SCRAM, with channel binding if the client wants it. `None`, here and below, if the client has gone.
pub(crate) async fn by_scram(
    client: &mut Client<Socket>,
    verifier: scram::Verifier,
) -> Result<Option<Secret>, Wrong> {
    let malformed =
        |error: &dyn std::fmt::Display| Wrong::Protocol(Report::fatal("08P01", error.to_string()));
    let wrong = |error: scram::server::Error| match error {
        scram::server::Error::Proof => Wrong::Proof,
        error => {
            let report = Report::fatal(error.sqlstate(), error.to_string());
            Wrong::Protocol(report.detail(error.detail().unwrap_or_default()))
        }
    };
    let end_point = client.stream().end_point();
    let offered = scram::server::mechanisms(end_point.is_some());
    let offered = offered.iter().map(|mechanism| mechanism.as_bytes()).collect();
    let Some(first) = ask(client, &Request::Sasl(offered)).await? else { return Ok(None) };
    let (mechanism, data) =
        authentication::read_sasl_initial(&first).map_err(|error| malformed(&error))?;
    let mechanism = String::from_utf8_lossy(mechanism);
    // A client that sends nothing with the mechanism's name waits for us to begin.
    let data = match data {
        Some(data) => Bytes::copy_from_slice(data),
        None => match ask(client, &Request::SaslContinue(b"")).await? {
            Some(data) => data,
            None => return Ok(None),
        },
    };
    let mut random = [0; 18];
    getrandom::fill(&mut random).map_err(|error| malformed(&error))?;
    let nonce = Nonce::new(&random);
    let (server_first, exchange) =
        challenge(verifier, end_point.as_deref(), &mechanism, &data, &nonce).map_err(wrong)?;
    let Some(last) = ask(client, &Request::SaslContinue(server_first.as_bytes())).await? else {
        return Ok(None);
    };
    let (server_final, keys) = exchange.finish(&last).map_err(wrong)?;
    Request::SaslFinal(server_final.as_bytes()).write(&mut client.down.output);
    Ok(Some(Secret::Keys(keys)))
}

/// By a hash of the stored hash and a salt.
pub(crate) async fn by_md5(
    client: &mut Client<Socket>,
    verifier: md5::Verifier,
) -> Result<Option<Secret>, Wrong> {
    let mut salt = [0; 4];
    getrandom::fill(&mut salt)
        .map_err(|error| Wrong::Protocol(Report::fatal("53000", error.to_string())))?;
    let Some(body) = ask(client, &Request::Md5(salt)).await? else { return Ok(None) };
    let response = authentication::read_password(&body).map_err(|_| Wrong::Proof)?;
    match verifier.check(salt, response) {
        true => Ok(Some(Secret::Md5(verifier))),
        false => Err(Wrong::Proof),
    }
}

/// By the password itself.
pub(crate) async fn in_clear(
    client: &mut Client<Socket>,
    stored: Stored,
    role: &str,
    checks: &Arc<Semaphore>,
    stranger: &Stranger,
) -> Result<Option<Secret>, Wrong> {
    let Some(body) = ask(client, &Request::Cleartext).await? else { return Ok(None) };
    let password = authentication::read_password(&body).map_err(|_| Wrong::Proof)?;
    if password.is_empty() {
        return Err(Wrong::Proof);
    }
    let (password, role) = (Zeroizing::new(password.to_vec()), role.to_owned());
    let place = stranger.waits(checks.clone().acquire_owned()).await.ok();
    let check = move || match (stored.check_password(&password, &role)?, stored) {
        (Clear::Keys(keys), _) => Some(Secret::Keys(keys)),
        (Clear::Md5, Stored::Md5(verifier)) => Some(Secret::Md5(verifier)),
        (Clear::Md5, Stored::Scram(_)) => None,
    };
    // It keeps its place until it has ended, also if its client leaves.
    let check = move || {
        let shown = check();
        drop(place);
        shown
    };
    // It takes milliseconds by design: not on the thread that serves everybody.
    match stranger.waits(tokio::task::spawn_blocking(check)).await {
        Ok(Some(secret)) => Ok(Some(secret)),
        _ => Err(Wrong::Proof),
    }
}
