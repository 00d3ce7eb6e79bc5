use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use proptest::prelude::*;

use super::client::{self, Binding, Client, Secret};
use super::server::{self, challenge, mechanisms};
use super::*;

const HASH: &[u8] = b"the hash of a certificate, 32 B.";

fn hashing() -> Hashing {
    Hashing { iterations: 2, salt: b"salt of 16 bytes".to_vec() }
}

fn verifier() -> Verifier {
    Verifier::of_password(b"secret", hashing())
}

fn nonce(byte: u8) -> Nonce {
    Nonce::new(&[byte; 18])
}

/// The messages of an exchange in their order.
const CLIENT_FIRST: usize = 0;
const SERVER_FIRST: usize = 1;
const CLIENT_FINAL: usize = 2;
const SERVER_FINAL: usize = 3;

/// Who refused.
#[derive(Debug, PartialEq)]
enum Refused {
    Server(server::Error),
    Client(client::Error),
}

/// Our client with our server; `between` may change each message on its way.
fn exchange(
    verifier: Verifier,
    certificate: Option<&[u8]>,
    binding: Binding<'_>,
    secret: Secret<'_>,
    between: &dyn Fn(usize, Vec<u8>) -> Vec<u8>,
) -> Result<Keys, Refused> {
    let (client, first) = Client::begin(binding, &nonce(1));
    let first = between(CLIENT_FIRST, first);
    let (answer, server) = challenge(verifier, certificate, binding.mechanism(), &first, &nonce(2))
        .map_err(Refused::Server)?;
    let answer = between(SERVER_FIRST, answer.into_bytes());
    let (proved, last) = client.prove(secret, &answer).map_err(Refused::Client)?;
    let last = between(CLIENT_FINAL, last);
    let (answer, keys) = server.finish(&last).map_err(Refused::Server)?;
    let answer = between(SERVER_FINAL, answer.into_bytes());
    let own = proved.check(&answer).map_err(Refused::Client)?;
    assert_eq!(own, keys);
    Ok(keys)
}

fn untouched(_: usize, message: Vec<u8>) -> Vec<u8> {
    message
}

#[test]
fn rfc_7677_example() {
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let verifier = Verifier::of_password(b"pencil", Hashing { iterations: 4096, salt });
    let nonce = Nonce("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into());
    let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    let (answer, server) = challenge(verifier, None, SCRAM_SHA_256, first, &nonce).unwrap();
    assert_eq!(
        answer,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let (answer, _) = server.finish(last).unwrap();
    assert_eq!(answer, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

/// RFC 4013, section 3, and PostgreSQL's fallbacks.
#[test]
fn passwords_are_prepared() {
    for (password, expected) in [
        ("I\u{AD}X", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u{AA}", "a"),
        ("\u{2168}", "IX"),
        ("\u{7}", "\u{7}"),
        ("\u{627}1", "\u{627}1"),
        // Nothing would remain.
        ("\u{AD}", "\u{AD}"),
        ("", ""),
    ] {
        assert_eq!(*prepared(password.as_bytes()), expected.as_bytes(), "{password:?}");
    }
    assert_eq!(*prepared(b"\xFFx"), b"\xFFx");
}

#[test]
fn passwords_and_keys_log_in() {
    let bindings = [
        (None, Binding::None),
        (Some(HASH), Binding::None),
        (None, Binding::NotOffered),
        (Some(HASH), Binding::EndPoint(HASH)),
    ];
    for (certificate, binding) in bindings {
        let password = Secret::Password(b"secret");
        let keys = exchange(verifier(), certificate, binding, password, &untouched).unwrap();
        // What the server learned logs in elsewhere.
        let again = Secret::Keys(&keys);
        let learned = exchange(verifier(), certificate, binding, again, &untouched).unwrap();
        assert_eq!(keys, learned);
        assert_eq!(verifier().check_password(b"secret"), Some(keys));
    }
}

#[test]
fn other_secrets_are_refused() {
    let log_in = |verifier, secret| exchange(verifier, None, Binding::None, secret, &untouched);
    let wrong = Secret::Password(b"Secret");
    assert_eq!(log_in(verifier(), wrong), Err(Refused::Server(server::Error::Proof)));
    // The same password, hashed otherwise.
    let elsewhere = Hashing { iterations: 3, ..hashing() };
    let keys = Keys::derive(b"secret", elsewhere);
    let refused = log_in(verifier(), Secret::Keys(&keys));
    assert_eq!(refused, Err(Refused::Client(client::Error::OtherVerifier)));
    // Another password, hashed with the same salt.
    let keys = Keys::derive(b"other", hashing());
    let refused = log_in(verifier(), Secret::Keys(&keys));
    assert_eq!(refused, Err(Refused::Server(server::Error::Proof)));
    assert_eq!(verifier().check_password(b"other"), None);
}

/// Another implementation's client, and its verifier.
#[test]
fn agrees_with_another_implementation() {
    let binding = || ChannelBinding::tls_server_end_point(HASH.to_vec());
    for (mechanism, binding) in
        [(SCRAM_SHA_256, ChannelBinding::unsupported()), (SCRAM_SHA_256_PLUS, binding())]
    {
        let mut theirs = ScramSha256::new(b"secret", binding);
        let (answer, server) =
            challenge(verifier(), Some(HASH), mechanism, theirs.message(), &nonce(7)).unwrap();
        theirs.update(answer.as_bytes()).unwrap();
        let (answer, _) = server.finish(theirs.message()).unwrap();
        theirs.finish(answer.as_bytes()).unwrap();
    }
    let text = postgres_protocol::password::scram_sha_256(b"secret");
    let theirs: Verifier = text.parse().unwrap();
    assert_eq!(Verifier::of_password(b"secret", theirs.hashing().clone()), theirs);
    assert_eq!(theirs.to_string(), text);
}

#[test]
fn a_message_with_any_other_byte_is_refused() {
    let keys = Keys::derive(b"secret", hashing());
    let cases = [(None, Binding::None), (Some(HASH), Binding::EndPoint(HASH))];
    for (certificate, binding) in cases {
        for secret in [Secret::Keys(&keys), Secret::Password(b"secret")] {
            for which in [CLIENT_FIRST, SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL] {
                let tampered = |tamper: &dyn Fn(&mut Vec<u8>) -> bool| {
                    let could = std::cell::Cell::new(false);
                    let between = |at, mut message: Vec<u8>| {
                        if at == which {
                            could.set(tamper(&mut message));
                        }
                        message
                    };
                    let end = exchange(verifier(), certificate, binding, secret, &between);
                    assert!(end.is_err() || !could.get(), "{which}");
                    could.get()
                };
                for at in 0.. {
                    let change = |to: fn(u8) -> u8| {
                        tampered(&|message: &mut Vec<u8>| match message.get_mut(at) {
                            Some(byte) => {
                                *byte = to(*byte);
                                true
                            }
                            None => false,
                        })
                    };
                    let more = change(|byte| byte ^ 1)
                        && change(|byte| byte ^ 2)
                        && change(|byte| byte ^ 0x20)
                        && change(|byte| byte ^ 0x80)
                        && change(|byte| if byte == b',' { b'=' } else { b',' })
                        && change(|byte| byte.wrapping_add(1));
                    let removed = |message: &mut Vec<u8>| {
                        at < message.len() && {
                            message.remove(at);
                            true
                        }
                    };
                    let cut = |message: &mut Vec<u8>| {
                        at < message.len() && {
                            message.truncate(at);
                            true
                        }
                    };
                    if !(more && tampered(&removed) && tampered(&cut)) {
                        break;
                    }
                }
                for end in [b",".as_slice(), b"=", b"a", b",a=b", b"\0"] {
                    tampered(&|message: &mut Vec<u8>| {
                        message.extend_from_slice(end);
                        true
                    });
                }
            }
        }
    }
}

/// RFC 5802, section 6: which first messages fit which offers.
#[test]
fn downgrades_are_refused() {
    use server::Error;
    let malformed = |error: &Error| matches!(error, Error::Malformed(_));
    let is = |expected: Error| move |error: &Error| *error == expected;
    type Case<'a> = (Option<&'a [u8]>, &'a str, &'a str, &'a dyn Fn(&Error) -> bool);
    let cases: [Case<'_>; 15] = [
        // The client thinks that we can't bind, and we offered it.
        (Some(HASH), SCRAM_SHA_256, "y,,n=,r=x", &is(Error::Downgrade)),
        (Some(HASH), SCRAM_SHA_256, "p=tls-server-end-point,,n=,r=x", &malformed),
        (None, SCRAM_SHA_256, "p=tls-server-end-point,,n=,r=x", &malformed),
        (Some(HASH), SCRAM_SHA_256_PLUS, "n,,n=,r=x", &malformed),
        (Some(HASH), SCRAM_SHA_256_PLUS, "y,,n=,r=x", &malformed),
        (Some(HASH), SCRAM_SHA_256_PLUS, "p=tls-unique,,n=,r=x", &is(Error::BindingType)),
        // PLUS wasn't offered.
        (None, SCRAM_SHA_256_PLUS, "p=tls-server-end-point,,n=,r=x", &is(Error::Mechanism)),
        (Some(HASH), "SCRAM-SHA-1", "n,,n=,r=x", &is(Error::Mechanism)),
        (None, "", "n,,n=,r=x", &is(Error::Mechanism)),
        (None, SCRAM_SHA_256, "n,a=admin,n=,r=x", &is(Error::AuthorizationIdentity)),
        (None, SCRAM_SHA_256, "n,,m=x,n=,r=x", &is(Error::Extension)),
        (None, SCRAM_SHA_256, "n,,r=x", &malformed),
        (None, SCRAM_SHA_256, "n,,n=,r=", &malformed),
        (None, SCRAM_SHA_256, "n,,n=,r=\u{e9}", &malformed),
        (None, SCRAM_SHA_256, "z,,n=,r=x", &malformed),
    ];
    for (certificate, mechanism, first, expected) in cases {
        let end = challenge(verifier(), certificate, mechanism, first.as_bytes(), &nonce(2));
        let error = end.map(|_| ()).unwrap_err();
        assert!(expected(&error), "{mechanism} {first}: {error:?}");
    }
    // Someone between has another certificate.
    let password = Secret::Password(b"secret");
    let seen = Binding::EndPoint(b"another hash");
    let end = exchange(verifier(), Some(HASH), seen, password, &untouched);
    assert_eq!(end, Err(Refused::Server(Error::Binding)));
    assert_eq!(mechanisms(true), [SCRAM_SHA_256_PLUS, SCRAM_SHA_256]);
    assert_eq!(mechanisms(false), [SCRAM_SHA_256]);
}

/// The flag in the last message must be that of the first.
#[test]
fn the_flag_cannot_change() {
    let keys = Keys::derive(b"secret", hashing());
    let first = |at, message: Vec<u8>| match at {
        CLIENT_FIRST => [b"n", &message[1..]].concat(),
        _ => message,
    };
    let end = exchange(verifier(), Some(HASH), Binding::NotOffered, Secret::Keys(&keys), &first);
    assert!(matches!(end, Err(Refused::Server(server::Error::Malformed(_)))), "{end:?}");
}

#[test]
fn names_and_extensions_are_ignored_as_in_postgresql() {
    for first in ["n,,n=someone,r=x", "n,,n=,r=x,a=b,z=", "n,,n=\u{e9},r=x"] {
        assert!(challenge(verifier(), None, SCRAM_SHA_256, first.as_bytes(), &nonce(2)).is_ok());
    }
    // One in the last message is signed with it.
    let first = b"n,,n=,r=x";
    let (answer, server) = challenge(verifier(), None, SCRAM_SHA_256, first, &nonce(2)).unwrap();
    let keys = Keys::derive(b"secret", hashing());
    let without_proof = format!("c=biws,{},e=x", answer.split_once(',').unwrap().0);
    let signed = (&first[3..], answer.as_bytes(), without_proof.as_bytes());
    let mut proof = signature(&hash(&keys.client_key), signed.0, signed.1, signed.2);
    xor(&mut proof, &keys.client_key);
    assert!(
        server.finish(format!("{without_proof},p={}", BASE64.encode(proof)).as_bytes()).is_ok()
    );
}

#[test]
fn an_exchange_cannot_be_replayed() {
    let keys = Keys::derive(b"secret", hashing());
    let seen = std::cell::RefCell::new(vec![Vec::new(); 4]);
    let record = |at: usize, message: Vec<u8>| {
        seen.borrow_mut()[at].clone_from(&message);
        message
    };
    exchange(verifier(), None, Binding::None, Secret::Keys(&keys), &record).unwrap();
    let seen = seen.into_inner();
    let replayed = challenge(verifier(), None, SCRAM_SHA_256, &seen[CLIENT_FIRST], &nonce(3));
    let (_, server) = replayed.unwrap();
    assert_eq!(server.finish(&seen[CLIENT_FINAL]), Err(server::Error::Nonce));
}

#[test]
fn a_role_without_a_verifier_looks_like_any_other() {
    let mock = |secret: &[u8], name| Verifier::mock(secret, name, 2);
    assert_eq!(mock(b"s", "ann"), mock(b"s", "ann"));
    assert_ne!(mock(b"s", "ann"), mock(b"s", "bob"));
    assert_ne!(mock(b"s", "ann"), mock(b"t", "ann"));
    let wrong = Secret::Password(b"wrong");
    let shapes = [mock(b"s", "ann"), verifier()].map(|verifier| {
        let len = std::cell::Cell::new(0);
        let measure = |at, message: Vec<u8>| {
            len.set(if at == SERVER_FIRST { message.len() } else { len.get() });
            message
        };
        let end = exchange(verifier, None, Binding::None, wrong, &measure);
        assert_eq!(end, Err(Refused::Server(server::Error::Proof)));
        len.get()
    });
    assert_eq!(shapes[0], shapes[1]);
    assert_eq!(mock(b"s", "ann").check_password(b""), None);
}

#[test]
fn servers_that_ask_too_much_are_refused() {
    let begin = || Client::begin(Binding::None, &nonce(1)).0;
    let own = nonce(1).0;
    let prove = |rest: &str| {
        begin().prove(Secret::Password(b"x"), format!("r={own}{rest}").as_bytes()).map(|_| ())
    };
    assert_eq!(prove("x,s=c2FsdA==,i=1"), Ok(()));
    let many = prove(&format!("x,s=c2FsdA==,i={}", ITERATIONS_MAX + 1));
    assert_eq!(many, Err(client::Error::Iterations(ITERATIONS_MAX + 1)));
    for rest in [
        ",s=c2FsdA==,i=1",
        "x,s=c2FsdA==,i=0",
        "x,s=c2FsdA==,i=-1",
        "x,s=c2FsdA==,i=99999999999999",
        "x,s=,i=1",
        "x,s=!,i=1",
        "x,s=c2FsdA==",
        "x,s=c2FsdA==,i=1,a=b",
        "x,m=x,s=c2FsdA==,i=1",
    ] {
        assert!(matches!(prove(rest), Err(client::Error::Malformed(_))), "{rest}");
    }
    let stranger = begin().prove(Secret::Password(b"x"), b"r=abc,s=c2FsdA==,i=1").map(|_| ());
    assert!(matches!(stranger, Err(client::Error::Malformed(_))));
    let long = begin().prove(Secret::Password(b"x"), &[b'r'; MESSAGE_LEN_MAX + 1]).map(|_| ());
    assert!(matches!(long, Err(client::Error::Malformed(_))));
}

#[test]
fn servers_that_do_not_know_the_verifier_are_refused() {
    let keys = Keys::derive(b"secret", hashing());
    for (answer, expected) in [
        (b"e=other-error".as_slice(), client::Error::Refused("other-error".into())),
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", client::Error::Signature),
        (b"v=6rriTRBi", client::Error::Malformed("invalid signature")),
    ] {
        let between = |at, message| if at == SERVER_FINAL { answer.to_vec() } else { message };
        let end = exchange(verifier(), None, Binding::None, Secret::Keys(&keys), &between);
        assert_eq!(end, Err(Refused::Client(expected)));
    }
}

#[test]
fn secrets_are_not_shown() {
    let (verifier, keys) = (verifier(), Keys::derive(b"secret", hashing()));
    assert_eq!(format!("{verifier:?} {keys:?}"), "Verifier { .. } Keys { .. }");
}

#[test]
fn what_is_no_verifier() {
    let right = verifier().to_string();
    assert_eq!(right.parse(), Ok(verifier()));
    for wrong in [
        right.replace("SHA-256", "SHA-1"),
        right.replace("$2:", "$0:"),
        right.replace("$2:", "$-2:"),
        right.replace("$2:", "$4294967296:"),
        right.replace("$2:", "$2$"),
        right.replace("$2:", "$"),
        format!("{right}A"),
        right[..right.len() - 1].to_owned(),
        "md50123456789abcdef0123456789abcdef".to_owned(),
        "secret".to_owned(),
        String::new(),
    ] {
        assert_eq!(wrong.parse::<Verifier>(), Err(NoVerifier), "{wrong}");
    }
}

/// Made by `ALTER ROLE … PASSWORD` with PostgreSQL 15 and 18, UTF8.
#[test]
fn verifiers_of_real_servers() {
    for line in include_str!("verifiers.txt").lines() {
        let (password, text) = line.rsplit_once(' ').unwrap();
        let password = hex::decode(password).unwrap();
        let verifier: Verifier = text.parse().unwrap();
        assert_eq!(verifier.to_string(), text);
        assert!(verifier.check_password(&password).is_some(), "{line}");
        assert!(verifier.check_password(b"wrong").is_none(), "{line}");
    }
}

/// Attributes, whole and broken.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(vec![
        "n",
        "y",
        "p=tls-server-end-point",
        ",",
        "n=",
        "r=",
        "r=abc",
        "c=biws",
        "p=",
        "s=c2FsdA==",
        "i=1",
        "v=",
        "e=x",
        "m=",
        "a=",
        "=",
        "\0",
        "\u{e9}",
    ]);
    let parts = prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat().into_bytes());
    prop_oneof![parts, prop::collection::vec(any::<u8>(), 0..2_000)]
}

proptest! {
    #[test]
    fn any_message_is_read(first in messages(), answer in messages(), last in messages(), plus: bool) {
        let mechanism = if plus { SCRAM_SHA_256_PLUS } else { SCRAM_SHA_256 };
        let _ = challenge(verifier(), Some(HASH), mechanism, &first, &nonce(2));
        let (_, server) =
            challenge(verifier(), None, SCRAM_SHA_256, b"n,,n=,r=abc", &nonce(2)).unwrap();
        prop_assert!(server.finish(&last).is_err());
        let (client, _) = Client::begin(Binding::None, &nonce(1));
        prop_assert!(client.prove(Secret::Password(b"x"), &answer).is_err());
        let (client, _) = Client::begin(Binding::None, &nonce(1));
        let right = format!("r={}abc,s=c2FsdA==,i=1", nonce(1).0);
        let (proved, _) = client.prove(Secret::Password(b"x"), right.as_bytes()).unwrap();
        prop_assert!(proved.check(&answer).is_err());
    }

    #[test]
    fn any_text_may_be_a_verifier(text in "(SCRAM-SHA-256)?[$:0-9A-Za-z+/=]{0,200}|.*") {
        let _ = text.parse::<Verifier>();
    }

    #[test]
    fn any_password_logs_in(password in prop::collection::vec(any::<u8>(), 0..40)) {
        let verifier = Verifier::of_password(&password, hashing());
        let secret = Secret::Password(&password);
        prop_assert!(exchange(verifier, None, Binding::None, secret, &untouched).is_ok());
    }
}
