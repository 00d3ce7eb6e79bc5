//! What statements leave in their session: noted when they run, read back from the server when the
//! transaction has ended. What can't be read back keeps the session at its connection, or has the
//! connection's settings reset before another session gets it (`docs/decisions/0006-session-state.md`).

use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::freshness::WriteId;
use hihooi_sql::{Discard, Kind, SearchPath, SessionCommand, SessionEffect, Statement};
use hihooi_wire::backend::{self, Report};

use crate::backend::Backend;
use crate::session::{End, Session, Work, may_change_path, mentions};
use hihooi_session::state::{self, CarriedSettings, Pin, SessionState};

/// Texts are kept for another look up to this length.
const UNSURE_LEN_MAX: usize = 64 << 10;

/// What the catalog may not know of what ran in a session.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// What runs may define code.
    pub(crate) is_defining: bool,
    /// A write that may have defined code of which the catalog doesn't know yet.
    pub(crate) defined: Option<WriteId>,
    /// Before the unit was looked at, the catalog lacked what the session defined.
    pub(crate) was_ahead: bool,
    /// Before the unit was looked at, the catalog lacked what the stream brought.
    pub(crate) was_unread: bool,
    /// What the catalog may not have known when it ran: to be judged again when it does.
    pub(crate) unsure: Vec<Bytes>,
    /// Of the unit that runs.
    pub(crate) unit: UnitEffects,
}

/// What a unit may leave that is void if it fails.
#[derive(Debug, Default)]
pub(crate) struct UnitEffects {
    statements: usize,
    may_commit_inside: bool,
    any_setting: bool,
    /// So many of the session's unsure texts are its own.
    unsure: usize,
}

impl Session {
    /// What a statement that runs on the primary leaves in the session.
    pub(crate) fn note_effects(
        &mut self,
        server: &mut Backend,
        statement: &Statement,
        text: &[u8],
    ) {
        self.may_take_numbers(server, statement);
        self.doubts.unit.statements += 1;
        self.doubts.unit.may_commit_inside |=
            statement.may_commit_inside && statement.kind != Kind::Unparsable;
        let any_setting = self.doubts.unit.any_setting;
        let is_unsure = self.doubt(statement, text);
        self.add_effects(statement);
        if is_unsure {
            self.doubts.unit.any_setting = any_setting; // to be told later
        }
        if self.effects.unseen_code || self.doubts.was_unread {
            server.up.unseen_code_of = Some(self.id);
        }
        // What comes next in this transaction may have to be prepared again.
        if self.effects.prepared || self.effects.discard_all {
            server.up.forget_statements();
        } else if is_unsure {
            server.up.forget_xid_question();
        }
        self.is_path_unknown |= may_change_path(statement);
        // The rule of this view calls set_config.
        self.effects.settings |= statement.is_write() && mentions(text, b"pg_settings");
        if statement.session.settings && mentions(text, b"setseed") {
            self.lasting_pin = Some(Pin::Setting);
        }
        if let Kind::Session(command) = &statement.kind {
            match command {
                SessionCommand::Discard(Discard::All) | SessionCommand::Deallocate(None) => {
                    self.statements.clear();
                }
                SessionCommand::Deallocate(Some(name)) => {
                    self.statements.remove(name.as_bytes());
                }
                _ => {}
            }
        }
    }

    /// Reads from the server what the statements since the last look left in the session.
    pub(crate) async fn look_at_state(&mut self, server: &mut Backend) -> Work<()> {
        let effects = std::mem::take(&mut self.effects);
        if effects.discard_all {
            self.custom_settings.clear();
            self.prepared.clear();
            self.prepared_effects = SessionEffect::default();
            self.lasting_pin = None;
        }
        if effects.discard_all || effects.prepared {
            server.up.forget_statements();
        }
        self.note_lasting(&effects);
        if is_visible(&effects) {
            let mut custom = self.custom_settings.clone();
            custom.extend(self.relay.custom_settings());
            let query = state::query(custom.iter().map(|name| &**name));
            let found = self.asked_state(server, &query).await?;
            self.is_serializable = found.is_serializable;
            self.idle_limit = found.idle_limit;
            self.has_plain_strings = found.has_plain_strings;
            self.set_settings(server, found.settings.values);
            self.path = Some(SearchPath::new(&found.path));
            self.pin = found.pin;
        } else if !effects.custom_settings.is_empty() {
            // Nothing else depends on them, so that the rest is as it was.
            let names = &effects.custom_settings;
            let query = state::query_custom(names.iter().map(|name| &**name));
            let found = self.asked_state(server, &query).await?;
            let is_other = |(own, _): &&(String, String)| !names.iter().any(|name| **name == **own);
            let others = self.settings.values.iter().filter(is_other);
            let values = others.cloned().chain(found.settings.values).collect();
            self.set_settings(server, values);
        }
        self.pin = self.pin.or(self.lasting_pin);
        Ok(())
    }

    /// What a query for the session's state tells.
    async fn asked_state(&mut self, server: &mut Backend, query: &str) -> Work<SessionState> {
        server.up.write_own_query(query);
        self.own(server).await?;
        let found = state::read(&server.up.answers.take_rows());
        match server.up.answers.take_error() {
            None => Ok(found),
            Some(error) => {
                // Nobody may get a connection of which it isn't known what is left in it.
                let fields = backend::ErrorFields::read(&error).unwrap_or_default();
                Err(End::Fatal(
                    Report::fatal("08006", "the session's state can't be told")
                        .detail(fields.to_string()),
                ))
            }
        }
    }

    /// The session has these settings, and so has its connection.
    fn set_settings(&mut self, server: &mut Backend, mut values: Vec<(String, String)>) {
        // What it began with is no change.
        let defaults = &self.startup.defaults.settings;
        values.retain(|setting| !setting.0.contains('.') || !defaults.contains(setting));
        values.sort();
        self.settings = Arc::new(CarriedSettings { values });
        server.up.settings = self.settings.clone();
    }

    /// Notes what can't be read back from the server.
    fn note_lasting(&mut self, effects: &SessionEffect) {
        self.custom_settings.extend(effects.custom_settings.iter().cloned());
        if effects.load {
            self.lasting_pin = Some(Pin::Library);
        } else if effects.any_setting {
            self.lasting_pin = Some(Pin::Setting);
        }
    }

    /// Whether the session may have defined code that the catalog doesn't know yet.
    pub(crate) fn is_ahead_of_catalog(&mut self) -> bool {
        self.doubts.defined = self.doubts.defined.filter(|write| !self.relay.knows(*write));
        self.doubts.is_defining || self.doubts.defined.is_some()
    }

    /// A unit has ended: what failed as a whole has left no setting.
    pub(crate) fn end_effects(&mut self, server: &Backend) {
        let unit = std::mem::take(&mut self.doubts.unit);
        // DISCARD ALL that failed, in a block for example, has discarded nothing.
        self.effects.discard_all &= !server.up.failed;
        if server.up.failed && unit.statements == 1 && !unit.may_commit_inside {
            self.doubts.unsure.truncate(self.doubts.unsure.len() - unit.unsure);
        } else {
            self.effects.any_setting |= unit.any_setting;
        }
    }

    /// Judges what the catalog may not have known when it ran, if it does by now.
    pub(crate) fn look_again(&mut self, server: &mut Backend) {
        self.doubts.is_defining = false;
        if self.doubts.unsure.is_empty()
            || self.is_ahead_of_catalog()
            || self.relay.is_catalog_stale()
        {
            return;
        }
        for text in std::mem::take(&mut self.doubts.unsure) {
            let analysis = self.analyse_anywhere(&text);
            analysis.statements.iter().for_each(|statement| self.add_effects(statement));
        }
        self.effects.any_setting |= std::mem::take(&mut self.doubts.unit).any_setting;
        if self.effects.unseen_code {
            server.up.unseen_code_of = Some(self.id);
        }
    }

    /// Notes what may be left by what just ran, as far as is known now.
    fn add_effects(&mut self, statement: &Statement) {
        if statement.session.is_none() {
            return;
        }
        self.effects.merge(&SessionEffect { any_setting: false, ..statement.session.clone() });
        self.doubts.unit.any_setting |= statement.session.any_setting;
        if let Kind::Session(SessionCommand::Prepare { name, statement }) = &statement.kind {
            self.prepared.insert(name.clone());
            self.prepared_effects.merge(&statement.session);
        }
        for name in &statement.session.executed {
            let effect = self.effects_of_prepared(name);
            self.doubts.unit.any_setting |= effect.any_setting;
            self.effects.merge(&SessionEffect { any_setting: false, ..effect });
        }
    }

    /// What EXECUTE of a prepared statement may leave.
    fn effects_of_prepared(&self, name: &str) -> SessionEffect {
        let by_protocol = self.statements.get(name.as_bytes());
        if by_protocol.is_none() && !self.prepared.contains(name) {
            return SessionEffect::anything(); // code has prepared it
        }
        let mut effect = self.prepared_effects.clone();
        if let Some(prepared) = by_protocol {
            for statement in &self.analyse_prepared(prepared).statements {
                effect.merge(&statement.session);
            }
        }
        effect
    }

    /// Notes a statement for another look if the catalog may lack code that it runs: the session's own,
    /// or any if it is unknown what that leaves. Whether it did.
    fn doubt(&mut self, statement: &Statement, text: &[u8]) -> bool {
        match statement.kind {
            Kind::Ddl(_) | Kind::Call if statement.is_write() => self.doubts.is_defining = true,
            _ => {}
        }
        let runs_code = matches!(
            statement.kind,
            Kind::Read | Kind::Write | Kind::Call | Kind::CopyIn | Kind::CopyOut
        );
        let is_ahead = self.doubts.was_ahead || self.doubts.is_defining;
        if !runs_code || !(statement.session.any_setting || is_ahead) {
            return false;
        }
        let len: usize = self.doubts.unsure.iter().map(Bytes::len).sum();
        if len + text.len() > UNSURE_LEN_MAX {
            self.effects.merge(&SessionEffect { any_setting: false, ..SessionEffect::anything() });
        } else if !self.doubts.unsure.iter().any(|known| *known == *text) {
            self.doubts.unsure.push(Bytes::copy_from_slice(text));
            self.doubts.unit.unsure += 1;
        }
        true
    }
}

/// Whether effects show in the session's state at the server.
fn is_visible(effects: &SessionEffect) -> bool {
    effects.settings
        || effects.search_path
        || effects.temp
        || effects.prepared
        || effects.listen
        || effects.advisory
        || effects.cursor_hold
        || effects.discard_all
        || effects.role
        || effects.load
}
