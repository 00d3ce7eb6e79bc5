//! Session state that statements leave behind: noted when they run, and queried from the server when the
//! transaction has ended. If there is state that can't be queried, the session keeps its connection, or the
//! connection's settings are reset before another session gets it (`docs/decisions/0006-session-state.md`).

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::freshness::WriteId;
use hihooi_sql::{Discard, Kind, SearchPath, SessionCommand, SessionEffect, Statement};
use hihooi_wire::backend::{self, Report, Status};

use crate::beside::keeps_meaning;
use crate::consistency::Consistency;
use crate::events::{Actions, AwaitedCatalog, Env};
use crate::names::NamesGone;
use crate::relaying::QUERY_CANCELED;
use crate::session::{End, Session, may_change_path, mentions};
use crate::state::{self, CarriedSettings, Pin};
use crate::upstream::Upstream;
use crate::work::Then;

/// The setting by which event triggers are switched off (PostgreSQL 17).
pub(crate) const EVENT_TRIGGERS: &str = "event_triggers";
/// Texts are kept for another look up to this length.
const UNSURE_LEN_MAX: usize = 64 << 10;
/// A session's state is asked for so many times, if that is cancelled.
const LOOKS_MAX: u32 = 5;

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
    /// That runs code which the catalog lacks, since it couldn't be read.
    pub(crate) lacks_code: bool,
    /// Of the unit that runs.
    pub(crate) unit: UnitEffects,
}

/// What a unit may leave that is void if it fails.
#[derive(Debug, Default)]
pub(crate) struct UnitEffects {
    /// So many statements ran, or will.
    pub(crate) statements: usize,
    /// A statement of it, if it succeeds, has left behind that the transaction had failed.
    pub(crate) leaves_failure: bool,
    may_commit_inside: bool,
    any_setting: bool,
    /// So many of the session's unsure texts are its own.
    unsure: usize,
}

/// What was asked of the session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing.
    Nothing,
    /// All of it.
    All,
    /// Custom settings.
    Custom,
    /// Whether it has temporary objects: any DDL may have made one.
    Temporary,
}

impl Session {
    /// What a statement that runs on the primary leaves in the session. `text` is its own, `level` that of a hint.
    pub(crate) fn note_effects(
        &mut self,
        up: &mut Upstream,
        statement: &Statement,
        text: &[u8],
        level: Option<Consistency>,
        env: &dyn Env,
    ) {
        self.may_take_numbers(up, statement);
        self.doubts.unit.statements += 1;
        self.doubts.unit.may_commit_inside |=
            statement.may_commit_inside && statement.kind != Kind::Unparsable;
        let any_setting = self.doubts.unit.any_setting;
        let is_unsure = self.doubt(statement, text);
        self.add_effects(statement, env);
        self.cross_own(&statement.kind);
        self.transaction.is_read_committed &= keeps_meaning(&statement.kind);
        self.transaction.has_read |= matches!(statement.kind, Kind::Read | Kind::Write);
        self.transaction.everywhere |= statement.is_write() && level == Some(Consistency::Sync);
        if is_unsure {
            self.doubts.unit.any_setting = any_setting; // to be told later
        }
        if self.effects.unseen_code || self.doubts.was_unread {
            up.unseen_code_of = Some(self.opened.id);
        }
        // What comes next in this transaction may have to be prepared again.
        if self.effects.prepared || self.effects.discard_all {
            up.forget_statements();
        } else if is_unsure {
            up.forget_xid_question();
        }
        self.transaction.may_lack_events |= self.may_lack_events(statement, text);
        self.is_path_unknown |= may_change_path(statement);
        // The rule of this view calls set_config.
        self.effects.settings |= statement.is_write() && mentions(text, b"pg_settings");
        let sets_seed = match &statement.kind {
            Kind::Session(SessionCommand::Set { name, .. }) => &**name == "seed",
            _ => mentions(text, b"setseed") || mentions(text, b"'seed'"),
        };
        if statement.session.settings && sets_seed {
            self.lasting_pin = Some(Pin::Setting);
        }
        if let Kind::Session(command) = &statement.kind {
            if let SessionCommand::Discard(Discard::All) | SessionCommand::Reset(None) = command {
                self.reset_own(up.status != Status::Idle);
                self.snapshots_at_primary = false;
            }
            match command {
                SessionCommand::Discard(Discard::All) | SessionCommand::Deallocate(None) => {
                    self.names.go(NamesGone::All);
                }
                SessionCommand::Deallocate(Some(name)) => {
                    let name = Bytes::copy_from_slice(name.as_bytes());
                    self.names.go(NamesGone::One(name));
                }
                _ => {}
            }
        }
    }

    /// Whether a statement may switch event triggers off or on in a transaction that may have changed the schema already.
    pub(crate) fn switches_events_amid(&self, statement: &Statement, text: &[u8]) -> bool {
        self.opened.is_replicated
            && !self.transaction.writes.is_empty()
            && switches_events(statement, text)
    }

    /// Whether event triggers may be switched off when this statement runs.
    pub(crate) fn may_lack_events(&self, statement: &Statement, text: &[u8]) -> bool {
        switches_events(statement, text)
            || statement.is_write()
                && (self.opened.may_lack_events || self.settings.get(EVENT_TRIGGERS).is_some())
    }

    /// Whether a setting whose name isn't known may have been set since the last look.
    pub(crate) fn has_set_any(&self) -> bool {
        self.effects.any_setting || self.doubts.unit.any_setting
    }

    /// Asks the server what the statements since the last look left in the session.
    pub(crate) fn look_at_state(&mut self, up: &mut Upstream, env: &dyn Env) -> Look {
        if self.effects.is_none() {
            return Look::Nothing;
        }
        let effects = std::mem::take(&mut self.effects);
        if effects.discard_all {
            self.names.forget_sql();
            self.lasting_pin = None;
        }
        if effects.discard_all || effects.prepared {
            up.forget_statements();
        }
        self.note_lasting(&effects);
        let only_temp = self.pin.is_none() && effects.custom_settings.is_empty();
        let look = if shows_more(&effects) || effects.temp && !only_temp {
            Look::All
        } else if effects.temp {
            Look::Temporary
        } else if !effects.custom_settings.is_empty() {
            // Nothing else depends on them, so that the rest is as it was.
            self.asked_names = effects.custom_settings;
            Look::Custom
        } else {
            self.pin = self.pin.or(self.lasting_pin);
            return Look::Nothing;
        };
        up.write_own_query(&self.look_query(look, env));
        look
    }

    fn look_query(&self, look: Look, env: &dyn Env) -> String {
        match look {
            Look::Custom => {
                return state::query_custom(self.asked_names.iter().map(|name| &**name));
            }
            Look::Temporary => return state::TEMPORARY.to_owned(),
            Look::All | Look::Nothing => {}
        }
        let mut custom = self.custom_settings.clone();
        custom.extend(env.custom_settings());
        let mut query = state::query(custom.iter().map(|name| &**name));
        let setting = self.work.as_ref().and_then(|work| work.setting.as_ref());
        if let Some(setting) = setting.filter(|setting| setting.may_be_reported()) {
            write!(query, " UNION ALL {}", state::query_reported(&setting.name))
                .expect("writing to a string");
        }
        query
    }

    /// The server has told it.
    pub(crate) fn looked(&mut self, look: Look, asked: u32, env: &dyn Env, out: &mut Actions) {
        let before = self.settings_now();
        let Some(up) = &mut self.up else { return };
        let mut found = state::read(&up.answers.take_rows());
        if let Some(error) = up.answers.take_error() {
            let fields = backend::ErrorFields::read(&error).unwrap_or_default();
            // A cancel can reach the server twice, or late: it was meant for the client's statement.
            if fields.code() == QUERY_CANCELED && asked < LOOKS_MAX {
                let query = self.look_query(look, env);
                self.with_server(|_, up| up.write_own_query(&query));
                return self.await_own(Then::Looked(look, asked + 1));
            }
            // Nobody may get a connection of which it isn't known what is left in it.
            self.discard(out);
            let report = Report::fatal("08006", "the session's state can't be told");
            return self.end(End::Fatal(report.detail(fields.to_string())), out);
        }
        match look {
            Look::All | Look::Nothing => {
                // A replica's own defaults are not the session's.
                let is_replica = up.is_replica;
                let counts = |name: &str| !is_replica || found.settings.get(name).is_some();
                self.isolation = match counts("default_transaction_isolation") {
                    true => found.isolation,
                    false => self.opened.isolation,
                };
                self.idle_limit = match counts("idle_session_timeout") {
                    true => found.idle_limit,
                    false => self.opened.idle_limit,
                };
                self.has_plain_strings = match counts("standard_conforming_strings") {
                    true => found.has_plain_strings,
                    false => self.opened.has_plain_strings,
                };
                self.path = Some(match counts("search_path") {
                    true => SearchPath::new(&found.path),
                    false => self.opened.path.clone(),
                });
                if !is_replica {
                    self.learn_defaults(&found.settings);
                }
                self.pin = found.pin;
                self.set_settings(found.settings.values);
            }
            Look::Custom => {
                let names = std::mem::take(&mut self.asked_names);
                let is_other =
                    |(own, _): &&(String, String)| !names.iter().any(|name| **name == **own);
                let others = self.settings.values.iter().filter(is_other);
                self.set_settings(others.cloned().chain(found.settings.values).collect());
                self.pin = self.pin.or(found.pin);
            }
            Look::Temporary => self.pin = found.pin,
        }
        self.pin = self.pin.or(self.lasting_pin);
        self.has_set(before, found.reported.take());
        self.clean(env, out);
    }

    /// If the primary has another configuration than the session knows, what the session hasn't set itself may be
    /// something else: its next unit runs there, and then it is looked at.
    pub(crate) fn doubt_configuration(&mut self, env: &dyn Env) {
        let version = env.configuration_version();
        if version != self.opened.configuration_version
            && self.block.is_none()
            && self.snapshot.is_none()
        {
            self.opened.configuration_version = version;
            self.effects.settings = true;
            self.is_path_unknown = true;
        }
    }

    /// The primary told what the session has now; what it hasn't set itself is what it would begin with.
    fn learn_defaults(&mut self, set: &CarriedSettings) {
        let is_default = |name: &str| set.get(name).is_none();
        if let Some(path) = self.path.clone().filter(|_| is_default("search_path")) {
            self.opened.path = path;
        }
        if is_default("default_transaction_isolation") {
            self.opened.isolation = self.isolation;
        }
        if is_default("idle_session_timeout") {
            self.opened.idle_limit = self.idle_limit;
        }
        if is_default("standard_conforming_strings") {
            self.opened.has_plain_strings = self.has_plain_strings;
        }
    }

    /// The session has these settings, and so has its connection.
    fn set_settings(&mut self, mut values: Vec<(String, String)>) {
        // What it began with is no change.
        values.retain(|setting| !self.opened.untold.contains(setting));
        self.settings = Arc::new(self.settings.with_values(values));
        if let Some(up) = &mut self.up {
            (up.settings, up.is_setting) = (self.settings.clone(), false);
        }
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
    pub(crate) fn is_ahead_of_catalog(&mut self, env: &dyn Env) -> bool {
        self.doubts.defined = self.doubts.defined.filter(|write| !env.knows(*write));
        self.doubts.is_defining || self.doubts.defined.is_some()
    }

    /// A unit has ended: what failed as a whole has left no setting.
    pub(crate) fn end_effects(&mut self, up: &Upstream) {
        let unit = std::mem::take(&mut self.doubts.unit);
        // DISCARD ALL that failed, in a block for example, has discarded nothing.
        self.effects.discard_all &= !up.failed;
        if up.failed && unit.statements == 1 && !unit.may_commit_inside {
            self.doubts.unsure.truncate(self.doubts.unsure.len() - unit.unsure);
        } else {
            self.effects.any_setting |= unit.any_setting;
        }
    }

    /// Judges what the catalog may not have known when it ran, if it does by now.
    pub(crate) fn look_again(&mut self, up: &mut Upstream, env: &dyn Env) {
        self.doubts.is_defining = false;
        if self.doubts.unsure.is_empty() || !env.has_catalog(self.awaited_catalog()) {
            return;
        }
        let all_code = AwaitedCatalog { all_code: true, ..self.awaited_catalog() };
        let lacks_code = !env.has_catalog(all_code);
        for text in std::mem::take(&mut self.doubts.unsure) {
            let analysis = self.analyse_anywhere(&text, env);
            let sets_any = |statement: &Statement| statement.session.any_setting;
            if lacks_code && analysis.statements.iter().any(sets_any) {
                self.doubts.unsure.push(text);
            } else {
                analysis.statements.iter().for_each(|statement| self.add_effects(statement, env));
            }
        }
        self.doubts.lacks_code = !self.doubts.unsure.is_empty();
        self.effects.any_setting |= std::mem::take(&mut self.doubts.unit).any_setting;
        if self.effects.unseen_code {
            up.unseen_code_of = Some(self.opened.id);
        }
    }

    /// What the catalog must be like for what it may not have known to be judged.
    pub(crate) fn awaited_catalog(&self) -> AwaitedCatalog {
        AwaitedCatalog { write: self.doubts.defined, all_code: self.doubts.lacks_code }
    }

    /// Notes what may be left by what just ran, as far as is known now.
    fn add_effects(&mut self, statement: &Statement, env: &dyn Env) {
        if statement.session.is_none() {
            return;
        }
        self.effects.merge(&SessionEffect { any_setting: false, ..statement.session.clone() });
        self.doubts.unit.any_setting |= statement.session.any_setting;
        if let Kind::Session(SessionCommand::Prepare { name, statement }) = &statement.kind {
            self.names.prepared_by_sql(name, &statement.session);
        }
        for name in &statement.session.executed {
            let effect = self.effects_of_prepared(name, env);
            self.doubts.unit.any_setting |= effect.any_setting;
            self.effects.merge(&SessionEffect { any_setting: false, ..effect });
        }
    }

    /// What EXECUTE of a prepared statement may leave.
    fn effects_of_prepared(&mut self, name: &str, env: &dyn Env) -> SessionEffect {
        let by_protocol = self.named(name.as_bytes(), env);
        if by_protocol.is_none() && !self.names.has_by_sql(name) {
            return SessionEffect::anything(); // code has prepared it
        }
        let mut effect = self.names.sql_effects();
        for statement in by_protocol.iter().flat_map(|(_, facts)| &facts.statements) {
            effect.merge(&statement.session);
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

/// Whether a statement may switch event triggers off or on: it sets something, and its text names the setting.
fn switches_events(statement: &Statement, text: &[u8]) -> bool {
    let SessionEffect { settings, local_settings, any_setting, .. } = statement.session;
    (settings || local_settings || any_setting)
        && !matches!(statement.kind, Kind::Ddl(_))
        && mentions(text, EVENT_TRIGGERS.as_bytes())
}

/// Whether effects other than temporary objects show in the session's state at the server.
fn shows_more(effects: &SessionEffect) -> bool {
    effects.settings
        || effects.search_path
        || effects.prepared
        || effects.listen
        || effects.advisory
        || effects.cursor_hold
        || effects.discard_all
        || effects.role
        || effects.load
}
