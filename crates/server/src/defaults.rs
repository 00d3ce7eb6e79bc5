//! What sessions of a role start with in a database: the settings of ALTER ROLE and ALTER DATABASE, and whether
//! the role may log in at all.
//!
//! A change, by anyone and in any way, must apply to the next login, and open sessions must keep the settings
//! that they started with. So the primary is queried at every login, and its answer is a part of the session's
//! [`StartupKey`](crate::startup_key::StartupKey). What it stores of the password is asked for in the same round trip,
//! and all who wait for the connection are asked for at once. If a server connection is opened for the session later, at a
//! site where other settings are in force by then, it is opened with the session's settings as command-line
//! options. These take precedence over the settings of role and database, and RESET returns to them (the order
//! of `GucSource` in PostgreSQL's `guc.h`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::configuration::Configuration;
use ahash::AHashMap;
use hihooi_postgres::connection::{Connection, Error, Login, Result, Row};
use hihooi_wire::frontend;
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::time::error::Elapsed;

/// What a role's sessions in a database start with.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Defaults {
    /// The OIDs of the role and of the database; what was made later and has the same name is another one.
    identity: String,
    /// It may log in.
    may_log_in: bool,
    is_superuser: bool,
    /// Settings and their values, as they were given, sorted by name.
    pub settings: Vec<(String, String)>,
}

impl Defaults {
    /// Whether the server lets nobody in with this role and database, as was told.
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        !self.identity.is_empty() && !self.may_log_in
    }

    /// Whether the role or the database of that name is another one by now, or there is none. (Nothing was told of it if the
    /// primary was away when the session began.)
    #[must_use]
    pub fn is_gone(&self, now: &Defaults) -> bool {
        !self.identity.is_empty() && self.identity != now.identity
    }
}

/// Roles with a database each, and their settings there (`name=value`), as far as both exist. The closest setting of a name
/// comes last: all, the database's, the role's, the role's in the database. (As they are stored: what is set in a database
/// with another encoding is no text here, and functions of texts fail.)
const DEFAULTS: &str = "SELECT w.role, w.database, r.oid || ' ' || d.oid, r.rolcanlogin AND d.datallowconn \
        AND coalesce(r.rolvaliduntil > pg_catalog.now(), true) \
        AND (r.rolsuper OR 0 NOT IN (r.rolconnlimit, d.datconnlimit)) \
        AND pg_catalog.has_database_privilege(r.oid, d.oid, 'CONNECT'), r.rolsuper, s.setting \
    FROM ROWS FROM (pg_catalog.unnest($1::name[]), pg_catalog.unnest($2::name[])) w(role, database) \
        JOIN pg_catalog.pg_authid r ON r.rolname = w.role \
        JOIN pg_catalog.pg_database d ON d.datname = w.database LEFT JOIN ( \
            pg_catalog.pg_db_role_setting c CROSS JOIN pg_catalog.unnest(c.setconfig) s(setting)) \
        ON c.setrole IN (0, r.oid) AND c.setdatabase IN (0, d.oid) \
    ORDER BY c.setrole <> 0, c.setdatabase <> 0";

/// What a site stores of roles' passwords, unless these have expired, and of which of these other roles they are
/// members: a superuser's rights don't count (as `is_member_of_role_nosuper` in PostgreSQL). The secret is the
/// cluster's own.
const STORED: &str = "WITH RECURSIVE me AS ( \
        SELECT oid, rolname, rolcanlogin, rolpassword, \
            coalesce(rolvaliduntil < pg_catalog.now(), false) AS is_expired \
        FROM pg_catalog.pg_authid WHERE rolname = ANY ($1::text[]) \
    ), groups(member, oid) AS ( \
        SELECT oid, oid FROM me \
        UNION SELECT g.member, m.roleid \
            FROM groups g JOIN pg_catalog.pg_auth_members m ON m.member = g.oid) \
    SELECT s.value, me.rolname, me.rolcanlogin, me.is_expired, \
        CASE WHEN NOT me.is_expired THEN me.rolpassword END, r.rolname \
    FROM hihooi.secret s LEFT JOIN me ON true LEFT JOIN ( \
        groups g JOIN pg_catalog.pg_authid r ON r.oid = g.oid AND r.rolname = ANY ($2::text[])) \
        ON g.member = me.oid";

/// What a site stores of a role's password. (Without `Debug`: it is not for logs.)
#[derive(Clone, Default)]
pub struct StoredPassword {
    /// A secret of the cluster, for answers about roles that don't exist.
    pub mock: Option<String>,
    /// The role exists.
    pub exists: bool,
    /// It may log in.
    pub may_log_in: bool,
    /// Its password has expired.
    pub is_expired: bool,
    /// It, hashed, unless it has expired.
    pub password: Option<String>,
    /// What was asked for.
    pub asked: About,
    /// Those of its roles of which the role is a member, or which it is itself.
    pub memberships: Vec<String>,
}

impl StoredPassword {
    /// A later answer about the same role; it may have been asked for other memberships.
    pub(crate) fn renew(&mut self, later: &StoredPassword) {
        let StoredPassword { memberships, asked, .. } = std::mem::replace(self, later.clone());
        if asked == self.asked {
            return;
        }
        let is_left =
            |name: &String| !later.asked.groups.contains(name) || later.memberships.contains(name);
        self.memberships = memberships.into_iter().filter(is_left).collect();
        self.asked = asked;
    }
}

/// What is asked about the password of a role that logs in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// Whether the role is a member of these.
    groups: Rc<[String]>,
    /// The query for its password, if that is not the one in `pg_authid`.
    query: Option<Rc<str>>,
}

impl About {
    /// Asks for memberships in these roles, and by this query for the password.
    #[must_use]
    pub fn new(groups: &[&str], query: Option<Rc<str>>) -> About {
        About { groups: groups.iter().map(|name| (*name).to_owned()).collect(), query }
    }
}

/// What settings are without roles and databases, and whether only superusers may change them.
const BELOW: &str = "SELECT name, context LIKE 'superuser%', \
        CASE WHEN source NOT IN ('global', 'database', 'user', 'database user', 'client') \
            THEN reset_val \
            ELSE coalesce((SELECT f.setting FROM pg_catalog.pg_file_settings f \
                WHERE f.name = s.name AND f.applied ORDER BY f.seqno DESC LIMIT 1), boot_val) END \
    FROM pg_catalog.pg_settings s WHERE ";

/// Settings that answers depend on and every session may set. Not what is a server's own (tablespaces,
/// maintenance), and not what we set.
const ANSWERS_DEPEND_ON: &str = "context = 'user' \
    AND category ~ '^(Client Connection Defaults|Version and Platform)' \
    AND category !~ 'Preloading' \
    AND name !~ '^(transaction_(isolation|read_only|deferrable)|default_transaction_read_only|.*tablespaces?|vacuum_.*)$'";

/// Custom settings: those that no library has declared stand in the files alone.
const CUSTOM: &str = "SELECT f.name, \
        EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE s.name = f.name AND s.context <> 'user'), \
        f.setting \
    FROM pg_catalog.pg_file_settings f WHERE f.applied AND f.name LIKE '%.%' ORDER BY f.seqno";

/// How long a site may take to answer: at least until it counts as silent, since it may have much to do.
const PATIENCE_MIN: Duration = Duration::from_secs(2);
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// How long a question may wait for others that were asked before.
const TURN_PATIENCE: Duration = Duration::from_secs(20);

/// A site that is asked, over a connection of its own.
pub struct Asked {
    login: Login,
    patience: Duration,
    connection: Mutex<Option<Open>>,
    /// What is to be asked next of roles that log in, in one question: thousands may want to at once.
    next: RefCell<Vec<Question>>,
}

/// The connection, and the names of statements that were prepared there.
struct Open {
    connection: Connection,
    prepared: Vec<&'static str>,
}

/// A statement that a site is asked to run.
struct Ask<'a> {
    /// As what it is prepared: planning such questions takes longer than answering them. If empty, it isn't.
    name: &'static str,
    text: &'a str,
    values: &'a [Option<&'a str>],
}

/// What a site says of a role that logs in.
#[derive(Clone, Default)]
pub struct Account {
    /// What is stored of its password, if that was asked.
    pub stored: StoredPassword,
    /// What its session starts with.
    pub defaults: Defaults,
}

/// A question about a role that logs in.
struct Question {
    role: String,
    database: String,
    /// What is asked about its password, if anything.
    about: Option<About>,
    answer: oneshot::Sender<Shared<Account>>,
}

/// An answer that others get, too.
pub type Shared<T> = std::result::Result<T, Rc<Error>>;

impl Asked {
    /// A site to which this login leads, and which counts as silent when it has not answered for so long.
    #[must_use]
    pub fn new(login: Login, silence: Duration) -> Asked {
        let patience = (2 * silence).clamp(PATIENCE_MIN, PATIENCE_MAX);
        Asked { login, patience, connection: Mutex::new(None), next: RefCell::default() }
    }

    /// What a role's sessions in a database start with there now.
    ///
    /// # Errors
    /// The site can't be asked.
    pub async fn defaults(&self, user: &str, database: &str) -> Result<Defaults> {
        let pair = (user.to_owned(), database.to_owned());
        let values = [array([user]), array([database])];
        let values = [Some(values[0].as_str()), Some(values[1].as_str())];
        let ask = Ask { name: "defaults", text: DEFAULTS, values: &values };
        let mut place = self.turn().await?;
        let rows = self.ask(&mut place, &[ask]).await?.pop().unwrap_or_default();
        Ok(all_defaults(rows).remove(&pair).unwrap_or_default())
    }

    /// What a role's sessions in a database start with, from now on or later; and what is stored of its password, if
    /// that is asked.
    ///
    /// # Errors
    /// The site can't be asked.
    pub async fn account(
        &self,
        role: &str,
        database: &str,
        about: Option<About>,
    ) -> Shared<Account> {
        loop {
            let (answer, mut answered) = oneshot::channel();
            let (role, database) = (role.to_owned(), database.to_owned());
            let question = Question { role, database, about: about.clone(), answer };
            self.next.borrow_mut().push(question);
            tokio::select! {
                biased;
                answer = &mut answered => match answer {
                    Ok(answer) => return answer,
                    Err(_) => continue, // whoever asked has given up in the middle of it
                },
                asked = self.ask_next(about.as_ref()) => asked?,
            }
            if let Ok(answer) = answered.await {
                return answer;
            }
        }
    }

    /// Asks all at once what waits to be asked, and asks the same about passwords or nothing.
    async fn ask_next(&self, about: Option<&About>) -> Shared<()> {
        let mut place = self.turn().await?;
        let questions = {
            let mut next = self.next.borrow_mut();
            next.retain(|question| !question.answer.is_closed());
            let fits = |question: &mut Question| {
                question.about.is_none() || question.about.as_ref() == about
            };
            next.extract_if(.., fits).collect::<Vec<_>>()
        };
        if questions.is_empty() {
            return Ok(());
        }
        let found = self.accounts(&mut place, &questions, about).await.map_err(Rc::new);
        for Question { role, database, about, answer } in questions {
            let told = match &found {
                Ok(found) => found.of(role, database, about.is_some()),
                Err(error) => Err(error.clone()),
            };
            let _ = answer.send(told); // it has gone meanwhile
        }
        Ok(())
    }

    /// Asks for these roles, about their passwords the same or nothing.
    async fn accounts(
        &self,
        place: &mut Option<Open>,
        questions: &[Question],
        about: Option<&About>,
    ) -> Result<Accounts> {
        let mut pairs: Vec<_> = questions.iter().map(|one| (&*one.role, &*one.database)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let asked = questions.iter().filter(|one| one.about.is_some());
        let mut roles: Vec<&str> = asked.map(|one| one.role.as_str()).collect();
        roles.sort_unstable();
        roles.dedup();
        let arrays = [
            array(pairs.iter().map(|(role, _)| role)),
            array(pairs.iter().map(|(_, database)| database)),
            array(&roles),
            array(about.iter().flat_map(|about| &*about.groups)),
        ];
        let values = arrays.each_ref().map(|array| Some(array.as_str()));
        let (of_defaults, of_stored) = values.split_at(2);
        let mut asks = vec![Ask { name: "defaults", text: DEFAULTS, values: of_defaults }];
        if !roles.is_empty() {
            asks.push(Ask { name: "stored", text: STORED, values: of_stored });
        }
        let mut answers = self.ask(place, &asks).await?.into_iter();
        let defaults = all_defaults(answers.next().unwrap_or_default());
        let about = about.cloned().unwrap_or_default();
        let (mut stored, nobody) = stored_passwords(answers.next().unwrap_or_default(), &about);
        let mut failed = AHashMap::new();
        for (role, stored) in &mut stored {
            let Some(query) = &about.query else { break };
            let ask = Ask { name: "", text: query, values: &[Some(role)] };
            let rows = self.ask(place, &[ask]).await.map(|mut rows| rows.pop().unwrap_or_default());
            match rows.and_then(|rows| given_password(rows, role)) {
                Ok(password) => stored.password = password.filter(|_| !stored.is_expired),
                Err(error) => drop(failed.insert(role.clone(), Rc::new(error))),
            }
        }
        Ok(Accounts { defaults, stored, nobody, failed })
    }

    /// What a session that began with `wanted` is given there, where it would begin with `found` now.
    /// What only a superuser may set stays as it is for others, and a custom setting that there was not
    /// is empty.
    ///
    /// # Errors
    /// The site can't be asked.
    pub async fn differing(
        &self,
        wanted: &Defaults,
        found: &Defaults,
    ) -> Result<Vec<(String, String)>> {
        if wanted.settings == found.settings {
            return Ok(Vec::new());
        }
        let mut names: Vec<&str> =
            wanted.settings.iter().chain(&found.settings).map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        // No name of a setting holds what arrays quote for.
        let list = format!("{{{}}}", names.join(","));
        let below = self.below("name = ANY ($1::text[])", &[Some(&list)]).await?;
        let may_set = |name: &&str| {
            found.is_superuser || !below.get(*name).is_some_and(|(is_guarded, _)| *is_guarded)
        };
        let value = |name: &str| {
            let given = wanted.settings.iter().find(|(own, _)| own == name);
            let given = given.map(|(_, value)| value.clone());
            // (`pg_settings` doesn't tell of the role.)
            let otherwise = || if name == "role" { "none".to_owned() } else { String::new() };
            given.or_else(|| Some(below.get(name)?.1.clone())).unwrap_or_else(otherwise)
        };
        Ok(names.into_iter().filter(may_set).map(|name| (name.to_owned(), value(name))).collect())
    }

    /// What sessions start with there by the server's own configuration, of what answers depend on.
    ///
    /// # Errors
    /// The site can't be asked.
    pub async fn configuration(&self) -> Result<Configuration> {
        let mut settings = self.below(ANSWERS_DEPEND_ON, &[]).await?;
        settings.extend(self.query(CUSTOM, &[]).await?.into_iter().filter_map(setting));
        let value = |(is_guarded, value): (bool, String)| (!is_guarded).then_some(value);
        Ok(settings.into_iter().map(|(name, found)| (name, value(found))).collect())
    }

    /// How many connections the site takes from roles that are no superusers.
    ///
    /// # Errors
    /// The site can't be asked.
    pub async fn connections(&self) -> Result<usize> {
        let rows = self.query(CONNECTIONS, &[]).await?;
        let found = rows.into_iter().next().and_then(|mut row| row.pop().flatten());
        Ok(found.and_then(|text| text.parse().ok()).unwrap_or(usize::MAX))
    }

    /// Settings without roles and databases: whether only superusers may change them, and the value.
    async fn below(
        &self,
        condition: &str,
        values: &[Option<&str>],
    ) -> Result<AHashMap<String, (bool, String)>> {
        let rows = self.query(&format!("{BELOW}{condition}"), values).await?;
        Ok(rows.into_iter().filter_map(setting).collect())
    }

    async fn query(&self, text: &str, values: &[Option<&str>]) -> Result<Vec<Row>> {
        let mut place = self.turn().await?;
        let answers = self.ask(&mut place, &[Ask { name: "", text, values }]).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// The connection, as soon as nobody else uses it.
    async fn turn(&self) -> Result<MutexGuard<'_, Option<Open>>> {
        // Those in front of us are the site's fault as little as ours.
        tokio::time::timeout(TURN_PATIENCE, self.connection.lock()).await.map_err(late)
    }

    /// The rows of each of these statements, in one round trip.
    async fn ask(&self, place: &mut Option<Open>, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>> {
        let answer = Asked::try_ask(&self.login, place, asks);
        tokio::time::timeout(self.patience, answer).await.map_err(late)?
    }

    async fn try_ask(
        login: &Login,
        place: &mut Option<Open>,
        asks: &[Ask<'_>],
    ) -> Result<Vec<Vec<Row>>> {
        // What was idle may have been lost. (And a question that nobody waits for any more takes its
        // connection along.)
        if let Some(mut open) = place.take()
            && let Ok(answers) = open.ask(asks).await
        {
            *place = Some(open);
            return Ok(answers);
        }
        let connection = Connection::open(login).await?;
        let mut open = Open { connection, prepared: Vec::new() };
        let answers = open.ask(asks).await?;
        *place = Some(open);
        Ok(answers)
    }
}

impl Open {
    async fn ask(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>> {
        let out = self.connection.buffer();
        for Ask { name, text, values } in asks {
            let name = name.as_bytes();
            if !self.prepared.iter().any(|known| known.as_bytes() == name) {
                frontend::parse(name, text.as_bytes(), out);
            }
            let values = values.iter().map(|value| value.map(str::as_bytes));
            frontend::bind(b"", name, values, out);
            frontend::execute(b"", 0, out);
        }
        frontend::sync(out);
        self.connection.flush().await?;
        let answers = self.connection.answers().await?;
        for Ask { name, .. } in asks {
            if !name.is_empty() && !self.prepared.contains(name) {
                self.prepared.push(name);
            }
        }
        Ok(answers.into_iter().map(|answer| answer.rows).collect())
    }
}

/// What a site said of some roles.
struct Accounts {
    /// By role and database.
    defaults: AHashMap<(String, String), Defaults>,
    stored: AHashMap<String, StoredPassword>,
    /// What is said of a role that doesn't exist.
    nobody: StoredPassword,
    /// Roles for which the operator's query said nothing that can be used.
    failed: AHashMap<String, Rc<Error>>,
}

impl Accounts {
    fn of(&self, role: String, database: String, asks_password: bool) -> Shared<Account> {
        if let Some(error) = self.failed.get(&role).filter(|_| asks_password) {
            return Err(error.clone());
        }
        let stored = match asks_password {
            true => self.stored.get(&role).unwrap_or(&self.nobody).clone(),
            false => StoredPassword::default(),
        };
        let defaults = self.defaults.get(&(role, database)).cloned().unwrap_or_default();
        Ok(Account { stored, defaults })
    }
}

fn late(_: Elapsed) -> Error {
    Error::Protocol("no answer in time".to_owned())
}

/// What sessions start with, by role and database.
fn all_defaults(rows: Vec<Row>) -> AHashMap<(String, String), Defaults> {
    let mut found = AHashMap::<(String, String), Defaults>::new();
    for row in rows {
        let mut row = row.into_iter();
        let mut next = || row.next().flatten();
        let pair = (next().unwrap_or_default(), next().unwrap_or_default());
        let defaults = found.entry(pair).or_default();
        defaults.identity = next().unwrap_or_default();
        defaults.may_log_in = next().as_deref() == Some("t");
        defaults.is_superuser = next().as_deref() == Some("t");
        if let Some(setting) = next() {
            let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
            defaults.settings.push((name.to_owned(), value.to_owned()));
        }
    }
    for defaults in found.values_mut() {
        let last = BTreeMap::from_iter(std::mem::take(&mut defaults.settings));
        defaults.settings = last.into_iter().collect();
    }
    found
}

/// What is stored of roles, and what that is for a role that doesn't exist.
fn stored_passwords(
    rows: Vec<Row>,
    about: &About,
) -> (AHashMap<String, StoredPassword>, StoredPassword) {
    let mut nobody = StoredPassword { asked: about.clone(), ..StoredPassword::default() };
    let mut of_roles = AHashMap::<String, StoredPassword>::new();
    for row in rows {
        let mut row = row.into_iter();
        let mut next = || row.next().flatten();
        nobody.mock = next();
        let Some(role) = next() else { continue };
        let stored = of_roles.entry(role).or_insert_with(|| nobody.clone());
        stored.exists = true;
        stored.may_log_in = next().as_deref() == Some("t");
        stored.is_expired = next().as_deref() == Some("t");
        stored.password = next();
        stored.memberships.extend(next());
    }
    (of_roles, nobody)
}

/// The password that the operator's query found for a role, if any.
fn given_password(rows: Vec<Row>, role: &str) -> Result<Option<String>> {
    let wrong = |what: &str| Err(Error::Protocol(format!("auth.query, role \"{role}\": {what}")));
    let mut rows = rows.into_iter();
    let (row, None) = (rows.next(), rows.next()) else {
        return wrong("it returned several rows; there must be one at most");
    };
    match row.map(<[Option<String>; 2]>::try_from) {
        None => Ok(None),
        Some(Ok([name, password])) if name.as_deref() == Some(role) => Ok(password),
        Some(Ok(_)) => wrong("it returned another role"),
        Some(Err(_)) => wrong("it must return two columns, the role's name and its password"),
    }
}

/// Names as an array in PostgreSQL's text format.
fn array(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let escaped = |name: &str| name.replace('\\', r"\\").replace('"', "\\\"");
    let quoted: Vec<_> =
        names.into_iter().map(|name| format!("\"{}\"", escaped(name.as_ref()))).collect();
    format!("{{{}}}", quoted.join(","))
}

/// (PostgreSQL 16 and newer keep some for roles with pg_use_reserved_connections.)
const CONNECTIONS: &str = "SELECT pg_catalog.current_setting('max_connections')::int
    - pg_catalog.current_setting('superuser_reserved_connections')::int
    - coalesce(pg_catalog.current_setting('reserved_connections', true)::int, 0)";

/// A setting's name, whether only superusers may change it, and its value.
fn setting(row: Row) -> Option<(String, (bool, String))> {
    let mut row = row.into_iter();
    let (name, is_guarded) = (row.next()??, row.next()??);
    Some((name, (is_guarded == "t", row.next()?.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits together is told each his own, and a role or database that doesn't exist has nothing.
    #[test]
    fn what_sessions_start_with_is_told_by_role_and_database() {
        let row = |text: &str| -> Row {
            text.split('|').map(|value| (!value.is_empty()).then(|| value.to_owned())).collect()
        };
        let rows = [
            "a|x|10|t|f|lock_timeout=1s",
            "b|x|11|f|t|",
            "a|x|10|t|f|DateStyle=German",
            "a|y|10|t|f|",
            "a|x|10|t|f|lock_timeout=5s",
            "a|x|10|t|f|app.x==",
        ];
        let defaults = all_defaults(rows.into_iter().map(row).collect());
        let settings = |role: &str, database: &str| {
            let found = defaults.get(&(role.to_owned(), database.to_owned()))?;
            let told = found.settings.iter().map(|(name, value)| format!("{name} {value}"));
            Some((found.may_log_in, told.collect::<Vec<_>>().join(", ")))
        };
        let closest = "DateStyle German, app.x =, lock_timeout 5s";
        assert_eq!(settings("a", "x"), Some((true, closest.to_owned())));
        assert_eq!(settings("a", "y"), Some((true, String::new())));
        assert_eq!(settings("b", "x"), Some((false, String::new())));
        assert_eq!(settings("b", "y"), None);
    }

    #[test]
    fn names_are_quoted_in_arrays() {
        assert_eq!(array(["a", "b c", "d\"e", "f\\g"]), r#"{"a","b c","d\"e","f\\g"}"#);
        assert_eq!(array([""; 0]), "{}");
    }
}
