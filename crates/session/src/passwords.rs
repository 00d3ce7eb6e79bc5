//! A password in clear text is replaced by its SCRAM verifier before any server or the log sees it, so all
//! sites get the same verifier (manual, "Password Authentication"; psql's \password does the same).
//!
//! In some cases the password is sent as it was typed: if `password_encryption` is md5, if `scram_iterations`
//! isn't the default, or if server and client encode it in different bytes.

use bytes::{Bytes, BytesMut};
use hihooi_sql::{ClearPassword, clear_passwords};
use hihooi_wire::backend::Report;
use hihooi_wire::frontend::{self, Parse};

use crate::downstream::Message;
use crate::events::{Action, Actions, Env};
use crate::route::{Reason, Route};
use crate::session::{Phase, Session, mentions, shadow};
use crate::unit::Ends;
use crate::upstream::Upstream;
use crate::work::{What, Work};

/// What decides how a server would store a password.
const ASK: &str = "SELECT (pg_catalog.current_setting('password_encryption') OPERATOR(pg_catalog.=) 'scram-sha-256'
        AND coalesce(pg_catalog.current_setting('scram_iterations', true), '4096')
            OPERATOR(pg_catalog.=) '4096')::pg_catalog.text,
    (pg_catalog.current_setting('client_encoding') OPERATOR(pg_catalog.=)
        pg_catalog.current_setting('server_encoding'))::pg_catalog.text";

/// What waits until a password in it is hashed.
#[derive(Debug)]
pub(crate) enum Held {
    /// A simple query.
    Query(Message),
    /// The messages of a unit, of which this Parse has a password.
    Unit {
        /// The messages.
        messages: Vec<Message>,
        /// Which of them.
        at: usize,
        /// How the unit ends.
        ends: Ends,
    },
}

impl Held {
    /// The text with the password.
    fn text(&self) -> &[u8] {
        match self {
            Held::Query(message) => frontend::read_query(message.body()).unwrap_or_default(),
            Held::Unit { messages, at, .. } => {
                Parse::read(messages[*at].body()).map_or(&[], |parse| parse.query)
            }
        }
    }

    /// The same with another text.
    fn with_text(mut self, text: &[u8]) -> Held {
        let mut bytes = BytesMut::new();
        let message = match &mut self {
            Held::Query(message) => {
                frontend::query(text, &mut bytes);
                message
            }
            Held::Unit { messages, at, .. } => {
                if let Ok(parse) = Parse::read(messages[*at].body()) {
                    Parse { query: text, ..parse }.write(&mut bytes);
                }
                &mut messages[*at]
            }
        };
        message.bytes = bytes.freeze();
        self
    }
}

/// How a server would store a password.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storing {
    /// As the SCRAM verifier that we can make.
    scram: bool,
    /// Client and server write it in the same bytes.
    same_bytes: bool,
}

impl Storing {
    /// Reads the answer to the question for it.
    pub(crate) fn read(row: Option<&[Option<Bytes>]>) -> Storing {
        let is_true = |at: usize| {
            // In a failed transaction there is no answer, and the statement will be refused.
            row.is_none_or(|row| row.get(at).is_some_and(|v| v.as_deref() == Some(b"true")))
        };
        Storing { scram: is_true(0), same_bytes: is_true(1) }
    }
}

impl Session {
    /// Whether a text has a password in clear text that is to be hashed.
    pub(crate) fn has_clear_password(&self, text: &[u8]) -> bool {
        self.opened.is_replicated && self.has_plain_strings && !passwords(text).is_empty()
    }

    /// The same for a text that may be anything; quick for most.
    pub(crate) fn may_have_clear_password(&self, text: &[u8]) -> bool {
        let first = text.trim_ascii_start().first().map(u8::to_ascii_lowercase);
        // CREATE, ALTER, or a comment in front.
        first.is_some_and(|first| b"ca-/;".contains(&first))
            && mentions(text, b"password")
            && self.has_clear_password(text)
    }

    /// Asks the primary how it would store a password, as this session would use it, in front of what the
    /// client sent.
    pub(crate) fn ask_storing(&mut self, held: Held, env: &dyn Env, out: &mut Actions) {
        let work = Work::new(What::Storing(held), Route::primary(Reason::Unsafe));
        self.begin(work, env, out);
    }

    /// Writes the question, into the client's unit if that has begun.
    pub(crate) fn write_question(&self, up: &mut Upstream) {
        if self.is_unit_open() {
            up.write_own(ASK, &[]);
            up.write_flush();
        } else {
            up.begin_unit();
            up.write_own_query(ASK);
        }
    }

    /// Has the passwords hashed that the server would store as SCRAM verifiers.
    pub(crate) fn hash(
        &mut self,
        held: Held,
        storing: Option<Storing>,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let found = hashable(held.text(), storing);
        if found.is_empty() {
            return self.run_held(held, env, out);
        }
        out.push_back(Action::Hash(found.into_iter().map(|found| found.password).collect()));
        self.phase = Phase::Hashing(held, storing);
    }

    /// Runs what was held, with verifiers in place of passwords.
    pub(crate) fn hashed(
        &mut self,
        verifiers: Option<Vec<String>>,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let Phase::Hashing(held, storing) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let Some(verifiers) = verifiers else {
            let report = Report::error("XX000", "the password can't be hashed");
            return match held {
                Held::Query(_) => self.refuse_simple(&report),
                Held::Unit { ends, .. } => self.refuse_extended(&report, ends == Ends::Flush),
            };
        };
        let text = held.text();
        let (mut changed, mut at) = (Vec::with_capacity(text.len()), 0);
        for (found, verifier) in hashable(text, storing).into_iter().zip(verifiers) {
            changed.extend_from_slice(&text[at..found.range.start]);
            changed.extend_from_slice(format!("'{verifier}'").as_bytes());
            at = found.range.end;
        }
        changed.extend_from_slice(&text[at..]);
        let held = held.with_text(&changed);
        self.run_held(held, env, out);
    }

    fn run_held(&mut self, held: Held, env: &dyn Env, out: &mut Actions) {
        match held {
            Held::Query(message) => {
                let facts =
                    self.analyse(frontend::read_query(message.body()).unwrap_or_default(), env);
                self.run_query(message, facts, env, out);
            }
            Held::Unit { messages, at, ends } => {
                self.run_messages(messages, at + 1, ends, env, out);
            }
        }
    }
}

/// The passwords in clear text of a text.
fn passwords(text: &[u8]) -> Vec<ClearPassword> {
    match std::str::from_utf8(text) {
        Ok(text) => clear_passwords(text),
        Err(_) => clear_passwords(&shadow(text)),
    }
}

/// Those that the server would store as SCRAM verifiers that we can make.
fn hashable(text: &[u8], storing: Option<Storing>) -> Vec<ClearPassword> {
    let Some(storing) = storing.filter(|storing| storing.scram) else { return Vec::new() };
    let mut found = passwords(text);
    found.retain(|found| storing.same_bytes || is_ascii(text, found));
    found
}

fn is_ascii(text: &[u8], found: &ClearPassword) -> bool {
    found.password.is_ascii() && text.get(found.range.clone()).is_some_and(<[u8]>::is_ascii)
}
