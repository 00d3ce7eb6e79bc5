//! Session state that outlives a transaction, queried from the server instead of derived from the statements.
//!
//! After a statement that may have changed it, one query on the connection returns it ([`query`]). Settings are
//! carried over: another connection gets them before it serves the session. Everything else (temporary tables,
//! cursors, LISTEN, advisory locks, SQL-level prepared statements) can't be carried over, so the session keeps
//! its connection.

use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hihooi_sql::Isolation;
use postgres_protocol::escape::escape_literal;

/// Settings that a session has beyond its start-up, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CarriedSettings {
    /// Names and values as `pg_settings` shows them; `role` among them.
    pub values: Vec<(String, String)>,
    /// Names with a dot that exist, with no value of the session's: `current_setting` finds them. Sorted.
    pub names: Vec<String>,
}

/// Settings as far as they may change what a text means when it is prepared: others are not compared.
#[derive(Clone, Debug)]
pub struct MeaningfulSettings(pub Arc<CarriedSettings>);

impl MeaningfulSettings {
    fn values(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.values.iter().filter(|(name, _)| may_change_meanings(name))
    }
}

impl PartialEq for MeaningfulSettings {
    fn eq(&self, other: &MeaningfulSettings) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.values().eq(other.values())
    }
}

impl Eq for MeaningfulSettings {}

impl Hash for MeaningfulSettings {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values().for_each(|value| value.hash(state));
    }
}

/// Whether names or literals may mean something else under another value of a setting. Those that applications are known
/// to change often don't: their own (with a dot, such as the tenant for row-level security), time limits, names for logs.
fn may_change_meanings(name: &str) -> bool {
    let is_harmless = matches!(
        name,
        "application_name" | "work_mem" | "client_min_messages" | "synchronous_commit"
    ) || ["log_", "enable_"].iter().any(|start| name.starts_with(start))
        || name.ends_with("_timeout")
        || name.contains('.');
    !is_harmless
}

/// What one look at a connection's session state found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionState {
    /// What can be carried along.
    pub settings: CarriedSettings,
    /// The schemas that unqualified names are looked up in, also ones that don't exist yet.
    pub path: Vec<String>,
    /// Why the session must keep its connection, if it must.
    pub pin: Option<Pin>,
    /// The isolation level of transactions, unless they say otherwise.
    pub isolation: Isolation,
    /// `standard_conforming_strings` is on.
    pub has_plain_strings: bool,
    /// How long the session may wait for its client outside of a transaction (`idle_session_timeout`).
    pub idle_limit: Option<Duration>,
    /// The setting that was asked about ([`query_reported`]), if servers tell clients its values.
    pub reported: Option<ReportedSetting>,
}

/// A setting of whose values servers tell clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedSetting {
    /// Its name, as servers tell it.
    pub name: String,
    /// Its value.
    pub now: String,
    /// The value that it had before; what RESET would make it if it was not set.
    pub before: String,
    /// Several that a transaction gives back are told in the order in which it set them (since PostgreSQL 16), not in
    /// that of their names.
    pub in_order: bool,
}

/// Why a session keeps its server connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Temporary tables or other objects.
    Temporary,
    /// Advisory locks that outlive transactions.
    AdvisoryLock,
    /// It listens.
    Listen,
    /// A cursor WITH HOLD.
    Cursor,
    /// SQL-level PREPARE.
    Prepared,
    /// SET SESSION AUTHORIZATION.
    Authorization,
    /// A loaded library.
    Library,
    /// A setting that can't be read back.
    Setting,
    /// Code ran that the session itself defined, and the catalog isn't read yet.
    Catalog,
}

impl Pin {
    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Pin::Temporary => "temporary objects",
            Pin::AdvisoryLock => "advisory lock",
            Pin::Listen => "LISTEN",
            Pin::Cursor => "cursor WITH HOLD",
            Pin::Prepared => "PREPARE",
            Pin::Authorization => "SET SESSION AUTHORIZATION",
            Pin::Library => "LOAD",
            Pin::Setting => "setting",
            Pin::Catalog => "new code",
        }
    }
}

/// The query that tells whether the session has temporary objects.
pub const TEMPORARY: &str = "SELECT 'temporary', NULL, NULL FROM pg_catalog.pg_depend \
    WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
      AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()";

/// The query that tells a connection's session state, one row of a kind and two values a fact.
/// The names of custom settings (with a dot) don't show in `pg_settings` and are asked for.
///
/// (Operators and types are qualified here and below: the session's `search_path` may have others of these names.)
#[must_use]
pub fn query<'a>(custom: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::from(
        "SELECT 'setting', name, setting FROM pg_catalog.pg_settings \
           WHERE source OPERATOR(pg_catalog.=) 'session' AND name OPERATOR(pg_catalog.<>) ALL \
             ('{transaction_isolation,transaction_read_only,transaction_deferrable}'::pg_catalog.text[]) \
         UNION ALL SELECT 'role', pg_catalog.current_setting('role'), NULL \
         UNION ALL SELECT 'authorization', session_user, \
             (SELECT usename FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a \
              JOIN pg_catalog.pg_user u ON u.usesysid OPERATOR(pg_catalog.=) a.usesysid) \
         UNION ALL SELECT 'path', pg_catalog.current_setting('search_path'), \
             current_user::pg_catalog.text \
         UNION ALL SELECT 'modes', pg_catalog.current_setting('default_transaction_isolation'), \
             pg_catalog.current_setting('idle_session_timeout') \
         UNION ALL SELECT 'strings', pg_catalog.current_setting('standard_conforming_strings'), NULL \
         UNION ALL SELECT 'listen', NULL, NULL FROM pg_catalog.pg_listening_channels() \
         UNION ALL SELECT 'cursor', NULL, NULL FROM pg_catalog.pg_cursors WHERE is_holdable \
         UNION ALL SELECT 'prepared', NULL, NULL FROM pg_catalog.pg_prepared_statements \
             WHERE from_sql \
         UNION ALL SELECT 'advisory', NULL, NULL FROM pg_catalog.pg_locks \
             WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
               AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()",
    );
    write!(text, " UNION ALL {TEMPORARY}").expect("writing to a string");
    for name in custom {
        write!(text, " UNION ALL {}", one_custom(name)).expect("writing to a string");
    }
    text
}

/// The query that tells these settings alone.
#[must_use]
pub fn query_custom<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(one_custom).collect::<Vec<_>>().join(" UNION ALL ")
}

/// The query that tells a setting's value and what RESET would make it. (`search_path` is reported since PostgreSQL 18.)
#[must_use]
pub fn query_reported(name: &str) -> String {
    let name = name.replace('\'', "''");
    format!(
        "SELECT CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 \
                 OPERATOR(pg_catalog.>=) 160000 \
             THEN 'reported in order' ELSE 'reported' END, name, setting FROM pg_catalog.pg_settings \
         WHERE pg_catalog.lower(name) OPERATOR(pg_catalog.=) '{name}' \
           AND (name OPERATOR(pg_catalog.<>) 'search_path' \
             OR pg_catalog.current_setting('server_version_num')::pg_catalog.int4 \
                 OPERATOR(pg_catalog.>=) 180000) \
         UNION ALL SELECT 'reset', name, reset_val FROM pg_catalog.pg_settings \
         WHERE pg_catalog.lower(name) OPERATOR(pg_catalog.=) '{name}'"
    )
}

fn one_custom(name: &str) -> String {
    let name = name.replace('\'', "''");
    format!("SELECT 'custom', '{name}', pg_catalog.current_setting('{name}', true)")
}

/// Reads the rows of [`query`].
#[must_use]
pub fn read(rows: &[Vec<Option<Bytes>>]) -> SessionState {
    let mut state = SessionState::default();
    for row in rows {
        // In another encoding, which a client may have asked for.
        if row.iter().flatten().any(|value| std::str::from_utf8(value).is_err()) {
            state.pin = Some(Pin::Setting);
        }
        let text = |index: usize| {
            row.get(index)
                .and_then(Option::as_ref)
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        match (text(0).as_deref(), text(1), text(2)) {
            (Some("setting" | "custom"), Some(name), Some(value)) => {
                state.settings.values.push((name, value));
            }
            // (`none`, too: sessions may begin with one.)
            (Some("role"), Some(role), _) => {
                state.settings.values.push(("role".to_owned(), role));
            }
            (Some("authorization"), Some(user), Some(login)) if user != login => {
                state.pin = Some(Pin::Authorization);
            }
            (Some("path"), Some(path), Some(user)) => state.path = schemas(&path, &user),
            (Some("modes"), Some(isolation), Some(idle)) => {
                state.isolation = match &*isolation {
                    "serializable" => Isolation::Serializable,
                    "repeatable read" => Isolation::RepeatableRead,
                    _ => Isolation::ReadCommitted,
                };
                state.idle_limit = time(&idle);
            }
            (Some(kind @ ("reported" | "reported in order")), Some(name), Some(now)) => {
                let (before, in_order) = (String::new(), kind != "reported");
                state.reported = Some(ReportedSetting { name, now, before, in_order });
            }
            (Some("reset"), _, Some(value)) => {
                if let Some(reported) = &mut state.reported {
                    reported.before = value;
                }
            }
            (Some("strings"), Some(plain), _) => state.has_plain_strings = plain == "on",
            (Some("temporary"), ..) => state.pin = Some(Pin::Temporary),
            (Some("listen"), ..) => state.pin = Some(Pin::Listen),
            (Some("cursor"), ..) => state.pin = Some(Pin::Cursor),
            (Some("prepared"), ..) => state.pin = Some(Pin::Prepared),
            (Some("advisory"), ..) => state.pin = Some(Pin::AdvisoryLock),
            _ => {}
        }
    }
    state.settings.values.sort();
    state
}

/// A time as SHOW prints it (manual, "Parameter Names and Values"); `None` for 0.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok().filter(|number| *number > 0)?;
    let unit_ms = match text[digits..].trim() {
        "ms" | "" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.saturating_mul(unit_ms)))
}

/// The schemas of a `search_path` setting, `"$user"` replaced by the current role (manual,
/// "The Schema Search Path").
#[must_use]
pub fn schemas(path: &str, user: &str) -> Vec<String> {
    let mut schemas = Vec::new();
    let mut rest = path.trim_start();
    while !rest.is_empty() {
        let (name, behind) = schema(rest);
        schemas.push(if name == "$user" { user.to_owned() } else { name });
        rest = behind.trim_start().trim_start_matches(',').trim_start();
    }
    schemas.retain(|schema| !schema.is_empty());
    schemas
}

/// The first schema of a list and what stands behind it.
fn schema(list: &str) -> (String, &str) {
    let Some(quoted) = list.strip_prefix('"') else {
        let end = list.find(',').unwrap_or(list.len());
        return (list[..end].trim().to_lowercase(), &list[end..]);
    };
    let mut name = String::new();
    let mut rest = quoted;
    while let Some(end) = rest.find('"') {
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        let Some(more) = rest.strip_prefix('"') else { return (name, rest) };
        name.push('"');
        rest = more;
    }
    (name, "")
}

impl CarriedSettings {
    /// The value of a setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The same with other values; names that have none of them stay.
    #[must_use]
    pub fn with_values(&self, mut values: Vec<(String, String)>) -> CarriedSettings {
        values.sort();
        let is_valued = |name: &String| values.iter().any(|(known, _)| known == name);
        let names = self.names.iter().filter(|name| !is_valued(name)).cloned().collect();
        CarriedSettings { values, names }
    }

    /// The same with names that exist.
    #[must_use]
    pub fn with_names<'a>(&self, names: impl Iterator<Item = &'a str>) -> CarriedSettings {
        let new = names.filter(|name| !self.has(name)).map(str::to_owned);
        let mut names: Vec<_> = self.names.iter().cloned().chain(new).collect();
        names.sort();
        names.dedup();
        CarriedSettings { values: self.values.clone(), names }
    }

    /// Whether a name with a dot exists.
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some() || self.names.iter().any(|known| known == name)
    }

    /// Whether a connection with these settings can be given others: a custom setting, once
    /// made, can't be unmade.
    #[must_use]
    pub fn can_become(&self, others: &CarriedSettings) -> bool {
        let valued = self.values.iter().map(|(name, _)| name).filter(|name| name.contains('.'));
        valued.chain(&self.names).all(|name| others.has(name))
    }

    /// All settings as `current_setting` tells them, if none has a default.
    #[must_use]
    pub fn shown(&self) -> Vec<(String, String)> {
        let names = self.names.iter().map(|name| (name.clone(), String::new()));
        let mut shown: Vec<_> = self.values.iter().cloned().chain(names).collect();
        shown.sort();
        shown
    }

    /// The statements that bring a connection from start-up settings (after a reset) to these.
    /// At replicas what would lift their being read-only is left out.
    #[must_use]
    pub fn statements(&self, at_primary: bool) -> String {
        let mut text = String::from("RESET ROLE; RESET ALL");
        let carried = |name: &str| at_primary || name != "default_transaction_read_only";
        // The role last: it may not be allowed to set the others.
        let (role, others): (Vec<_>, Vec<_>) =
            self.values.iter().partition(|(name, _)| name == "role");
        for (name, value) in others.into_iter().chain(role).filter(|(name, _)| carried(name)) {
            let (name, value) = (escape_literal(name), escape_literal(value));
            write!(text, "; SELECT pg_catalog.set_config({name}, {value}, false)")
                .expect("writing to a string");
        }
        for name in self.names.iter().map(|name| escape_literal(name)) {
            // (A library's setting has its default.)
            write!(
                text,
                "; SELECT pg_catalog.set_config({name}, '', false) \
                 WHERE pg_catalog.current_setting({name}, true) IS NULL"
            )
            .expect("writing to a string");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: [Option<&str>; 3]) -> Vec<Option<Bytes>> {
        values.iter().map(|v| v.map(|v| Bytes::copy_from_slice(v.as_bytes()))).collect()
    }

    #[test]
    fn i1_settings_are_carried_and_the_rest_pins() {
        let state = read(&[
            row([Some("setting"), Some("work_mem"), Some("4096")]),
            row([Some("role"), Some("none"), None]),
            row([Some("custom"), Some("app.user"), Some("o'x\\y")]),
            row([Some("path"), Some("\"$user\", public"), Some("joe")]),
        ]);
        assert_eq!(state.pin, None);
        assert_eq!(state.path, ["joe", "public"]);
        assert!(!state.settings.can_become(&CarriedSettings::default()));
        assert!(state.settings.can_become(&state.settings));
        let statements = state.settings.statements(true);
        assert!(statements.contains("set_config('app.user',  E'o''x\\\\y', false)"));
        assert!(statements.contains("set_config('work_mem', '4096', false)"));
        assert_eq!(read(&[row([Some("temporary"), None, None])]).pin, Some(Pin::Temporary));
        let named = CarriedSettings::default().with_names(["app.user"].into_iter());
        assert!(state.settings.can_become(&named) && named.can_become(&state.settings));
        assert!(!named.can_become(&CarriedSettings::default()));
        assert_eq!(named.with_values(state.settings.values.clone()), state.settings);
        assert!(named.statements(true).contains("set_config('app.user', '', false) WHERE"));
        let other = row([Some("authorization"), Some("a"), Some("b")]);
        assert_eq!(read(&[other]).pin, Some(Pin::Authorization));
    }

    #[test]
    fn settings_that_change_no_meaning_are_not_compared() {
        let settings = |values: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let values = values.iter().map(own).collect();
            MeaningfulSettings(Arc::new(CarriedSettings { values, ..Default::default() }))
        };
        let tokyo = ("TimeZone", "Asia/Tokyo");
        let tenant = |number| settings(&[tokyo, ("app.tenant", number), ("lock_timeout", number)]);
        assert_eq!(tenant("1"), tenant("2"));
        assert_eq!(tenant("1"), settings(&[tokyo]));
        assert_ne!(tenant("1"), settings(&[]));
        assert_ne!(settings(&[("search_path", "a")]), settings(&[("search_path", "b")]));
        assert_ne!(settings(&[("role", "a")]), settings(&[]));
    }

    #[test]
    fn times_are_read_as_they_are_shown() {
        assert_eq!(time("0"), None);
        assert_eq!(time("1500ms"), Some(Duration::from_millis(1500)));
        assert_eq!(time("2min"), Some(Duration::from_secs(120)));
    }

    #[test]
    fn a_search_path_is_read_as_postgresql_does() {
        assert_eq!(schemas("\"$user\", public", "joe"), ["joe", "public"]);
        assert_eq!(schemas("A, \"b,\"\"c\"\"\" ,d", "x"), ["a", "b,\"c\"", "d"]);
        assert_eq!(schemas("", "x"), [""; 0]);
        assert_eq!(schemas("\"\"", "x"), [""; 0]);
    }

    #[test]
    fn a_replica_stays_read_only() {
        let values = vec![("default_transaction_read_only".to_owned(), "off".to_owned())];
        let settings = CarriedSettings { values, ..Default::default() };
        assert!(settings.statements(true).contains("'off'"));
        assert!(!settings.statements(false).contains("'off'"));
    }
}
