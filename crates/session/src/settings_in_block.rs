//! SET and RESET in a block that no server has begun. The statement runs at a replica, outside of a transaction, and
//! the session's state there tells what it set; so the reads of the block that follow have it, at whichever replica they
//! run. If the block begins at the primary, the statement is repeated there, in its place among the savepoints. If the
//! block ends here, settings are again what PostgreSQL makes them (manual, "SET"): COMMIT undoes what SET LOCAL set,
//! ROLLBACK all of it, ROLLBACK TO what came behind the savepoint.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use hihooi_sql::lexer::{TokenKind, tokens};
use hihooi_sql::{Kind, SearchPath, SessionCommand, SessionEffect, Statement, Unsafe};
use hihooi_wire::frontend::{self, tag};

use crate::answers::{Audience, Sent};
use crate::block::binds_nothing;
use crate::effects::EVENT_TRIGGERS;
use crate::events::{Actions, Env};
use crate::relaying::Hold;
use crate::session::Session;
use crate::state::{CarriedSettings, ReportedSetting, time};
use crate::unit::{Ends, Op, Unit};
use crate::upstream::Upstream;

/// A longer one begins the block at the primary (I8).
const TEXT_LEN_MAX: usize = 1024;
/// With less time for a statement, the questions of ours could fail, too.
const TIME_MIN: Duration = Duration::from_secs(1);

/// A SET or RESET that is run so.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// In lower case.
    pub(crate) name: Box<str>,
    /// SET LOCAL.
    is_local: bool,
    /// The statement.
    text: Box<str>,
}

/// One that has run.
#[derive(Clone, Debug)]
pub(crate) struct HasSet {
    setting: Setting,
    /// If clients are told its value.
    reported: Option<ReportedSetting>,
}

/// The session's settings, as far as these statements change them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    carried: Arc<CarriedSettings>,
    path: Option<SearchPath>,
}

/// What the statements in a block have changed.
#[derive(Clone, Debug)]
pub(crate) struct ChangedSettings {
    at_begin: Settings,
    /// What the settings will be when the block commits: without what SET LOCAL set.
    kept: Settings,
    /// Names with a dot that were set: as in PostgreSQL they exist from then on, without a value.
    custom: BTreeSet<Box<str>>,
}

/// What is to be returned to at a savepoint: the settings, and those that would be kept.
pub(crate) type SettingsThen = Option<[Settings; 2]>;

/// Names and values of which the client is to be told.
pub(crate) type Reports = Vec<(String, String)>;

impl Session {
    /// A statement as one that can be run so, if it can.
    pub(crate) fn setting(
        &self,
        statement: &Statement,
        text: &[u8],
        env: &dyn Env,
    ) -> Option<Setting> {
        self.block.as_ref().filter(|block| block.takes_settings())?;
        let Kind::Session(command) = &statement.kind else { return None };
        let (name, values, is_local) = match command {
            SessionCommand::Set { name, values, local } => (name, values.as_deref(), *local),
            SessionCommand::Reset(Some(name)) => (name, None, false),
            _ => return None,
        };
        let SessionEffect { settings, local_settings, search_path, .. } = statement.session;
        let custom_settings = statement.session.custom_settings.clone();
        let only = SessionEffect {
            settings,
            local_settings,
            search_path,
            custom_settings,
            ..SessionEffect::default()
        };
        let is_such = statement.session == only
            && statement.is_unsafe_only_for(&[Unsafe::SessionState])
            && text.first().is_some_and(u8::is_ascii_alphabetic) // no hint in front, nor `;`
            && text.is_ascii()
            && text.len() <= TEXT_LEN_MAX
            && is_for_reads(name, values)
            && (!name.contains('.') || env.custom_settings().iter().any(|known| known == name))
            && self.up.is_none()
            && self.has_plain_strings
            && self.may_route(env).is_ok();
        let text = std::str::from_utf8(text).ok()?.into();
        is_such.then(|| Setting { name: name.clone(), is_local, text })
    }

    /// The same for a unit of the client's.
    pub(crate) fn setting_of_unit(&self, unit: &Unit, env: &dyn Env) -> Option<Setting> {
        if self.is_unit_open() || unit.ends != Ends::Sync(Audience::Client) {
            return None;
        }
        let (last, before) = unit.ops.split_last()?;
        let mut bound = None;
        for op in before {
            match op {
                Op::Parse { is_taken: true, .. } => return None,
                Op::Bind { message, prepared: Some((prepared, facts)) } if bound.is_none() => {
                    let [statement] = &*facts.statements else { return None };
                    let is_plain = binds_nothing(message.body());
                    bound = self.setting(statement, &prepared.query, env).filter(|_| is_plain);
                    bound.as_ref()?;
                }
                Op::Parse { .. } | Op::DescribeStatement { .. } if bound.is_none() => {
                    let [statement] = &*op.prepared()?.1.statements else { return None };
                    use SessionCommand::{Reset, Set};
                    matches!(statement.kind, Kind::Session(Set { .. } | Reset(_))).then_some(())?;
                }
                Op::Portal(message) if message.tag == tag::DESCRIBE && bound.is_some() => {}
                _ => return None,
            }
        }
        let Op::Portal(last) = last else { return None };
        let (portal, _) = frontend::read_execute(last.body()).ok()?;
        bound.filter(|_| last.tag == tag::EXECUTE && portal.is_empty())
    }

    /// A statement of which the work is done has set something, as the session's state at the replica shows.
    pub(crate) fn has_set(&mut self, before: Settings, reported: Option<ReportedSetting>) {
        let setting = self.work.as_mut().and_then(|work| work.setting.take());
        let now = self.settings_now();
        let Some((block, setting)) = self.block.as_mut().zip(setting) else { return };
        self.hold = Hold::No; // the client may have its answer
        let changed = block.changed.get_or_insert_with(|| {
            let custom = BTreeSet::new();
            Box::new(ChangedSettings { at_begin: before.clone(), kept: before.clone(), custom })
        });
        if setting.name.contains('.') {
            changed.custom.insert(setting.name.clone());
        }
        if !setting.is_local {
            changed.kept.take(&setting.name, &now);
        }
        let reported = reported.map(|reported| {
            let is_it = |(name, _): &&(String, String)| name.eq_ignore_ascii_case(&reported.name);
            match before.carried.values.iter().find(is_it) {
                Some((_, value)) => ReportedSetting { before: value.clone(), ..reported },
                None => reported, // it had its default
            }
        });
        block.note_set(HasSet { setting: *setting, reported });
    }

    /// Whether what a replica was sent has failed there: then it has set nothing.
    pub(crate) fn has_failed_there(&mut self) -> bool {
        let failed = self.up.as_ref().is_some_and(|up| up.failed);
        if let Some(up) = self.up.as_mut().filter(|_| failed) {
            up.is_setting = false;
        }
        failed
    }

    /// A replica has refused to make a setting: the block begins at the primary, which knows whether it can be made.
    pub(crate) fn set_at_primary(&mut self, env: &dyn Env, out: &mut Actions) {
        self.take_back();
        self.let_go(out);
        if let Some(work) = &mut self.work {
            work.needs_primary();
        }
        self.lease(env, out);
    }

    /// The settings as they are.
    pub(crate) fn settings_now(&self) -> Settings {
        Settings { carried: self.settings.clone(), path: self.path.clone() }
    }

    /// What a savepoint returns to, and what would be kept; `None` if nothing was set yet.
    pub(crate) fn settings_then(&self) -> SettingsThen {
        let changed = self.block.as_ref()?.changed.as_ref()?;
        Some([self.settings_now(), changed.kept.clone()])
    }

    /// Returns to the settings at a savepoint.
    pub(crate) fn return_to(&mut self, then: SettingsThen) {
        let Some(changed) = self.block.as_mut().and_then(|block| block.changed.as_mut()) else {
            return;
        };
        let [now, kept] =
            then.unwrap_or_else(|| [changed.at_begin.clone(), changed.at_begin.clone()]);
        changed.kept = kept;
        let now = now.with(&changed.custom);
        self.take_settings(now);
    }

    /// The block begins at the primary, whose connection has the settings from in front of the block; or it has ended.
    pub(crate) fn leave_settings(&mut self, commits: bool) {
        let changed = self.block.as_ref().and_then(|block| block.changed.as_deref());
        let Some(ChangedSettings { at_begin, kept, custom }) = changed else { return };
        let left = if commits { kept } else { at_begin };
        let left = left.clone().with(custom);
        self.take_settings(left);
    }

    pub(crate) fn take_settings(&mut self, settings: Settings) {
        (self.settings, self.path) = (settings.carried, settings.path);
    }
}

impl Settings {
    /// Has the others' value of one of them.
    fn take(&mut self, name: &str, others: &Settings) {
        let is_it = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        let rest = self.carried.values.iter().filter(|setting| !is_it(setting));
        let values = rest.chain(others.carried.values.iter().filter(is_it)).cloned().collect();
        self.carried = Arc::new(self.carried.with_values(values));
        if name == "search_path" {
            self.path.clone_from(&others.path);
        }
    }

    /// With names that exist without a value.
    fn with(self, custom: &BTreeSet<Box<str>>) -> Settings {
        match custom.is_empty() {
            true => self,
            false => {
                let names = custom.iter().map(|name| &**name);
                Settings { carried: Arc::new(self.carried.with_names(names)), ..self }
            }
        }
    }
}

impl Setting {
    /// Writes it to a replica, for the client: for the session, since there is no transaction.
    pub(crate) fn write(&self, up: &mut Upstream) {
        (up.unnamed, up.is_setting) = (None, true);
        frontend::query(self.for_session().as_bytes(), &mut up.output);
        up.answers.sent(Sent::Query, Audience::Client);
    }

    fn for_session(&self) -> String {
        let is_local = |word: &str| word.eq_ignore_ascii_case("local");
        let mut words = tokens(&self.text).filter(|token| token.kind != TokenKind::Space);
        match words.nth(1).filter(|word| self.is_local && is_local(word.text)) {
            Some(word) => {
                let behind = &self.text[word.start + word.text.len()..];
                format!("{}{behind}", &self.text[..word.start])
            }
            None => self.text.to_string(),
        }
    }

    /// Whether clients are told of each of its values (manual, "Asynchronous Operations").
    pub(crate) fn may_be_reported(&self) -> bool {
        const REPORTED: [&str; 6] = [
            "application_name",
            "datestyle",
            "intervalstyle",
            "scram_iterations",
            "search_path",
            "timezone",
        ];
        REPORTED.contains(&&*self.name)
    }

    /// What the session's state is asked about.
    pub(crate) fn effect(&self) -> SessionEffect {
        match self.name.contains('.') {
            true => {
                SessionEffect { custom_settings: vec![self.name.clone()], ..Default::default() }
            }
            false => SessionEffect { settings: true, ..Default::default() },
        }
    }
}

impl HasSet {
    /// The statement.
    pub(crate) fn text(&self) -> &str {
        &self.setting.text
    }

    /// What it leaves in the transaction that begins with it.
    pub(crate) fn effect(&self) -> SessionEffect {
        SessionEffect {
            search_path: self.setting.name == "search_path".into(),
            ..self.setting.effect()
        }
    }
}

/// What the client is to be told if these are undone, which ran in this order, or of them, when their block commits,
/// those of SET LOCAL.
pub(crate) fn reports<'a>(
    undone: impl DoubleEndedIterator<Item = &'a HasSet> + Clone,
    commits: bool,
) -> Reports {
    let mut reports = Reports::new();
    let mut names: Vec<&str> = Vec::new();
    let mut in_order = true;
    for reported in undone.clone().filter_map(|set| set.reported.as_ref()) {
        in_order &= reported.in_order;
        if !names.contains(&&*reported.name) {
            names.push(&reported.name);
        }
    }
    if !in_order {
        names.sort_by_key(|name| name.to_ascii_lowercase());
    }
    for name in names {
        let of_it = undone.clone().filter_map(|set| {
            let reported = set.reported.as_ref().filter(|reported| reported.name == name)?;
            Some((set.setting.is_local, reported))
        });
        let mut of_it: Vec<_> = of_it.collect();
        if commits && let Some(at) = of_it.iter().rposition(|(is_local, _)| !is_local) {
            of_it.drain(..=at);
        }
        let (Some((_, first)), Some((_, last))) = (of_it.first(), of_it.last()) else { continue };
        if first.before != last.now {
            reports.push((name.to_owned(), first.before.clone()));
        }
    }
    reports
}

/// Whether a setting makes a difference to nothing but the reads of a block, or its writes once it has begun: not to
/// what the block itself is, what the session reads of the client's messages, or who its user is.
pub(crate) fn is_for_reads(name: &str, values: Option<&[Box<str>]>) -> bool {
    let is_others = matches!(
        name,
        "role"
            | "session_authorization"
            | "session_replication_role"
            | EVENT_TRIGGERS
            | "client_encoding"
            | "names"
            | "standard_conforming_strings"
            | "backslash_quote"
            | "escape_string_warning"
            | "seed"
            // Other names for settings that are told by their new ones.
            | "sort_mem"
            | "vacuum_mem"
            | "ssl_ecdh_curve"
    ) || name.starts_with("transaction_")
        || name.starts_with("default_transaction_");
    let is_limit = matches!(name, "statement_timeout" | "lock_timeout");
    match values {
        _ if is_others => false,
        Some([value]) if is_limit => {
            &**value == "0" || time(value).is_some_and(|time| time >= TIME_MIN)
        }
        _ => !name.ends_with("_timeout"),
    }
}

/// Tells the client new values of settings.
pub(crate) fn write_reports(reports: &Reports, out: &mut BytesMut) {
    for (name, value) in reports {
        hihooi_wire::backend::parameter_status(name, value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Setting {
        Setting { name: "work_mem".into(), is_local: true, text: text.into() }
    }

    #[test]
    fn local_is_left_out_where_it_is_the_keyword() {
        for (text, expected) in [
            ("SET LOCAL work_mem = 64", "SET  work_mem = 64"),
            (
                "  set /* local */ -- x\n\tLocal\nx.local TO 'local'",
                "  set /* local */ -- x\n\t\nx.local TO 'local'",
            ),
        ] {
            assert_eq!(setting(text).for_session(), expected);
        }
        let plain = Setting { is_local: false, ..setting("SET local.x = 1") };
        assert_eq!(plain.for_session(), "SET local.x = 1");
    }

    /// SET and SET LOCAL of one name, by what was told before and then.
    fn told(sets: &[(bool, &str, &str)], commits: bool) -> Vec<String> {
        let sets: Vec<_> = sets
            .iter()
            .map(|&(is_local, before, now)| HasSet {
                setting: Setting { is_local, ..setting("") },
                reported: Some(ReportedSetting {
                    name: "TimeZone".to_owned(),
                    now: now.to_owned(),
                    before: before.to_owned(),
                    in_order: false,
                }),
            })
            .collect();
        reports(sets.iter(), commits).into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn i1_the_client_is_told_what_a_setting_is_again() {
        let sets = [(false, "UTC", "A"), (true, "A", "B"), (true, "B", "C")];
        assert_eq!(told(&sets, true), ["A"]);
        assert_eq!(told(&sets, false), ["UTC"]);
        assert_eq!(told(&sets[..1], true), [""; 0]);
        assert_eq!(told(&[(true, "UTC", "A"), (true, "A", "UTC")], true), [""; 0]);
        assert_eq!(told(&[(true, "UTC", "A")], true), ["UTC"]);
    }
}
