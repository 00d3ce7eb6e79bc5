//! A simulated PostgreSQL server with what a session can observe: the protocol (manual, "Frontend/Backend
//! Protocol"), transactions under snapshot isolation, settings, prepared statements; a small subset of SQL. Its
//! answers depend only on its input and its snapshot, so a client that is connected to it directly gets the
//! answers that a client must get through a session.
//!
//! A table `t…` holds one list: `update t1 set v = v || 5` appends to it, `select v from t1` returns it. An
//! append is refused at once if another transaction has appended to the list since the snapshot was taken, or
//! has an uncommitted append (first updater wins, without waiting). What says `*` asks for all columns of one more
//! table, which `alter` gives a column and `drop` removes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use hihooi_wire::backend::{self, ErrorFields, Severity, Status, tag};
use hihooi_wire::frame;
use hihooi_wire::frontend::{self, Bind, Parse, Target, tag as sent};

/// Transaction ids are above: no client may see one.
pub const FIRST_XID: u64 = 900_000;

/// A transaction that committed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its id.
    pub xid: u64,
    /// What it appended to which table.
    pub appends: Vec<(String, i64)>,
    /// How it changed the schema.
    pub ddl: Vec<Ddl>,
}

/// A change of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ddl {
    /// One that means nothing for any statement.
    Other,
    /// The table that `*` stands for has a column more.
    AddColumn,
    /// It isn't there any more.
    Drop,
}

/// What all servers share: the primary's commits, of which a replica shows the first so many.
#[derive(Debug, Default)]
pub struct Cluster {
    next_xid: u64,
    /// In the order in which they became visible.
    pub commits: Vec<Commit>,
    /// Lists that open transactions have appended to, by transaction id.
    locks: BTreeMap<String, u64>,
    /// The next statement that runs is cancelled.
    pub cancels_next: bool,
    /// Clients may send what no script does; it is a syntax error then.
    pub takes_anything: bool,
}

impl Cluster {
    /// The list of a table, as the first so many commits left it.
    fn list(&self, table: &str, commits: usize) -> Vec<i64> {
        let appends = self.commits[..commits].iter().flat_map(|commit| &commit.appends);
        appends.filter(|(at, _)| at == table).map(|(_, value)| *value).collect()
    }

    /// How many columns `*` stands for; `None` if its table was dropped.
    fn columns(&self, commits: usize, own: &[Ddl]) -> Option<usize> {
        let mut ddl = self.commits[..commits].iter().flat_map(|commit| &commit.ddl).chain(own);
        ddl.try_fold(1, |columns, ddl| match ddl {
            Ddl::Other => Some(columns),
            Ddl::AddColumn => Some(columns + 1),
            Ddl::Drop => None,
        })
    }

    fn was_written_after(&self, table: &str, commits: usize) -> bool {
        let appends = self.commits[commits..].iter().flat_map(|commit| &commit.appends);
        appends.map(|(at, _)| at).any(|at| at == table)
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    cluster: Rc<RefCell<Cluster>>,
    /// A replica shows the first so many commits; the primary all.
    applied: Option<Rc<Cell<usize>>>,
    /// The transaction's snapshot: the first so many commits.
    snapshot: Option<usize>,
    appends: Vec<(String, i64)>,
    ddl: Vec<Ddl>,
    input: BytesMut,
    /// What it says, a frame each.
    pub frames: VecDeque<Bytes>,
    status: Status,
    xid: Option<u64>,
    /// Messages of the extended protocol came since the last Sync.
    is_unsynced: bool,
    skips: bool,
    copies: Option<Copying>,
    /// With the number of their columns when they were prepared.
    statements: BTreeMap<Vec<u8>, (String, usize)>,
    /// Their parameters' types, as ParameterDescription has them.
    types: BTreeMap<Vec<u8>, Vec<u8>>,
    sql_statements: BTreeMap<String, String>,
    savepoints: Vec<Savepoint>,
    portals: BTreeMap<Vec<u8>, String>,
    settings: BTreeMap<String, String>,
    /// Settings to return to when the transaction rolls back.
    settings_before: Option<BTreeMap<String, String>>,
    /// What SET LOCAL has changed, with what was there before, to return to when the transaction commits.
    local: BTreeMap<String, Option<String>>,
    /// The value of `timezone` that the client was told last.
    told: String,
    has_temporary: bool,
    /// The Execute that runs asks for fewer rows than there are.
    is_limited: bool,
}

/// What a savepoint returns to.
#[derive(Debug, Clone)]
struct Savepoint {
    name: String,
    /// The number of appends there.
    appends: usize,
    settings: BTreeMap<String, String>,
    local: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copying {
    Simple,
    Extended,
}

/// The value of `timezone` if none is set.
const DEFAULT_ZONE: &str = "UTC";

/// A prepared statement would return other columns than before.
const CHANGED: &str = "0A000";

type Failure = (&'static str, String);

impl Connection {
    /// A new connection to the primary, or to a replica that shows so many commits.
    #[must_use]
    pub fn new(cluster: Rc<RefCell<Cluster>>, applied: Option<Rc<Cell<usize>>>) -> Connection {
        Connection {
            cluster,
            applied,
            snapshot: None,
            appends: Vec::new(),
            ddl: Vec::new(),
            input: BytesMut::new(),
            frames: VecDeque::new(),
            status: Status::Idle,
            xid: None,
            is_unsynced: false,
            skips: false,
            copies: None,
            statements: BTreeMap::new(),
            types: BTreeMap::new(),
            sql_statements: BTreeMap::new(),
            savepoints: Vec::new(),
            portals: BTreeMap::new(),
            settings: BTreeMap::new(),
            settings_before: None,
            local: BTreeMap::new(),
            told: DEFAULT_ZONE.to_owned(),
            has_temporary: false,
            is_limited: false,
        }
    }

    /// Why another session, for which it has these settings, may not get it, if so.
    #[must_use]
    pub fn dirt(&self, carried: &[(String, String)]) -> Option<&'static str> {
        let settings: Vec<_> = self.settings.clone().into_iter().collect();
        let is_ours = |name: &Vec<u8>| name.is_empty() || name.starts_with(b"hihooi_");
        match () {
            () if self.status != Status::Idle => Some("a transaction is open"),
            () if self.is_unsynced || self.xid.is_some() => Some("a unit is open"),
            () if self.copies.is_some() => Some("a COPY is under way"),
            () if !self.frames.is_empty() || !self.input.is_empty() => {
                Some("answers are under way")
            }
            () if self.has_temporary => Some("it has a temporary table"),
            () if !self.sql_statements.is_empty() => Some("SQL has prepared statements"),
            () if !self.statements.keys().all(is_ours) => Some("a client's statement is there"),
            () if settings != carried => Some("its settings are others"),
            () => None,
        }
    }

    /// Takes what it is sent.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some((tag, whole)) = frame::whole(&self.input).expect("the protocol") {
            let message = Bytes::copy_from_slice(whole);
            let _ = self.input.split_to(message.len());
            self.message(tag, frame::body(&message));
        }
    }

    fn say(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        write(&mut out);
        self.frames.push_back(out.freeze());
    }

    fn ready(&mut self) {
        let zone = self.zone();
        if zone != self.told {
            self.say(|out| backend::parameter_status("TimeZone", &zone, out));
            self.told = zone;
        }
        let status = self.status;
        self.say(|out| backend::ready_for_query(status, out));
    }

    fn message(&mut self, tag: u8, body: &[u8]) {
        if self.copies.is_some() {
            return self.copied(tag);
        }
        match tag {
            // (PostgreSQL skips simple queries as well.)
            _ if self.skips && !matches!(tag, sent::SYNC | sent::TERMINATE) => {}
            sent::QUERY => {
                self.is_unsynced = false;
                let Ok(query) = frontend::read_query(body) else {
                    self.fail(&malformed("a query"));
                    return self.ready();
                };
                let text = text(query);
                self.statements.remove(&b""[..]);
                self.query(&text);
            }
            sent::SYNC => {
                self.skips = false;
                self.is_unsynced = false;
                if let Err(failure) = self.end_implicit() {
                    self.fail(&failure);
                }
                if self.status == Status::Idle {
                    self.portals.clear();
                }
                self.ready();
            }
            sent::FLUSH | sent::COPY_DATA | sent::COPY_DONE | sent::COPY_FAIL => {}
            sent::TERMINATE => self.roll_back(),
            sent::FUNCTION_CALL => {
                self.is_unsynced = false;
                self.say(|out| {
                    frontend::message(b'V', out, |out| out.extend_from_slice(&[255; 4]))
                });
                if self.status == Status::Idle {
                    self.commit();
                }
                self.ready();
            }
            _ => {
                self.is_unsynced = true;
                if let Err(failure) = self.extended(tag, body) {
                    self.fail(&failure);
                    self.skips = true;
                }
            }
        }
    }

    fn fail(&mut self, (code, message): &Failure) {
        let mut fields = vec![
            (b'S', "ERROR".to_owned()),
            (b'V', "ERROR".to_owned()),
            (b'C', (*code).to_owned()),
            (b'M', message.clone()),
        ];
        if *code == CHANGED {
            // Where drivers look.
            fields.push((b'F', "plancache.c".to_owned()));
            fields.push((b'R', "RevalidateCachedQuery".to_owned()));
        }
        self.say(|out| ErrorFields { fields }.write(out));
        if self.status == Status::Idle { self.roll_back() } else { self.status = Status::Failed }
    }

    /// It says why and is gone.
    pub fn shut_down(&mut self) {
        let report = backend::Report::fatal("57P01", "terminating connection");
        assert_eq!(report.severity, Severity::Fatal);
        self.say(|out| report.write(out));
        self.roll_back();
    }

    /// What runs is rolled back, as when the connection ends.
    pub fn roll_back(&mut self) {
        self.status = Status::Idle;
        self.end_transaction();
        let settings = self.settings_before.take().unwrap_or_else(|| self.settings.clone());
        self.return_to(settings);
        self.local.clear();
    }

    /// Undoes what was set, but that a name with a dot exists from then on.
    fn return_to(&mut self, settings: BTreeMap<String, String>) {
        let left = std::mem::replace(&mut self.settings, settings);
        for name in left.into_keys().filter(|name| name.contains('.')) {
            self.settings.entry(name).or_default();
        }
    }

    fn zone(&self) -> String {
        self.settings.get("timezone").map_or(DEFAULT_ZONE, String::as_str).to_owned()
    }

    fn commit(&mut self) {
        if let Some(xid) = self.xid {
            let (appends, ddl) = (std::mem::take(&mut self.appends), std::mem::take(&mut self.ddl));
            self.cluster.borrow_mut().commits.push(Commit { xid, appends, ddl });
        }
        self.end_transaction();
        self.settings_before = None;
        for (name, before) in std::mem::take(&mut self.local) {
            let is_custom = name.contains('.');
            match before.or(is_custom.then(String::new)) {
                Some(value) => self.settings.insert(name, value),
                None => self.settings.remove(&name),
            };
        }
        self.status = Status::Idle;
    }

    fn end_transaction(&mut self) {
        if let Some(xid) = self.xid.take() {
            self.cluster.borrow_mut().locks.retain(|_, owner| *owner != xid);
        }
        self.portals.clear();
        self.appends.clear();
        self.savepoints.clear();
        self.ddl.clear();
        self.snapshot = None;
    }

    /// The commits that the transaction sees.
    fn snapshot(&mut self) -> usize {
        let (cluster, applied) = (&self.cluster, &self.applied);
        let latest = || applied.as_ref().map_or(cluster.borrow().commits.len(), |seen| seen.get());
        *self.snapshot.get_or_insert_with(latest)
    }

    /// Appends to the list of a table.
    fn append(&mut self, table: &str, value: i64) -> Result<(), Failure> {
        self.writes()?;
        let (snapshot, xid) = (self.snapshot(), self.xid.unwrap_or_default());
        let mut cluster = self.cluster.borrow_mut();
        let is_locked = cluster.locks.get(table).is_some_and(|owner| *owner != xid);
        if is_locked || cluster.was_written_after(table, snapshot) {
            let what = "could not serialize access due to concurrent update";
            return Err(("40001", what.to_owned()));
        }
        cluster.locks.insert(table.to_owned(), xid);
        self.appends.push((table.to_owned(), value));
        Ok(())
    }

    fn list(&mut self, table: &str) -> String {
        let snapshot = self.snapshot();
        let mut list = self.cluster.borrow().list(table, snapshot);
        list.extend(self.appends.iter().filter(|(at, _)| at == table).map(|(_, value)| value));
        list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn end_implicit(&mut self) -> Result<(), Failure> {
        if self.status == Status::Idle {
            self.commit();
        }
        Ok(())
    }

    fn query(&mut self, text: &str) {
        let parts: Vec<&str> =
            text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            self.say(|out| backend::empty(tag::EMPTY_QUERY, out));
        }
        if let Err(failure) = parsed(text) {
            self.fail(&failure);
            return self.ready();
        }
        for part in parts {
            self.portals.remove(&b""[..]); // it runs by one of its own
            match self.run(part, true) {
                Ok(()) if self.copies.is_some() => {
                    self.copies = Some(Copying::Simple);
                    return; // the rest of the text is left out: one COPY a query
                }
                Ok(()) => {}
                Err(failure) => {
                    self.fail(&failure);
                    return self.ready();
                }
            }
        }
        if self.status == Status::Idle {
            self.commit();
        }
        self.ready();
    }

    fn extended(&mut self, message: u8, body: &[u8]) -> Result<(), Failure> {
        match message {
            sent::PARSE => {
                let parse = Parse::read(body).map_err(|_| malformed("a Parse"))?;
                let name = parse.statement.to_vec();
                let query = text(parse.query);
                parsed(&query)?;
                self.not_failed(&query)?;
                let columns = self.columns(&query)?;
                if !name.is_empty() && self.statements.contains_key(&name) {
                    return Err(("42P05", "prepared statement already exists".to_owned()));
                }
                let types = parameter_types(&query, parse.types);
                self.statements.insert(name, (query, columns));
                self.types.insert(parse.statement.to_vec(), types);
                self.say(|out| backend::empty(tag::PARSE_COMPLETE, out));
            }
            sent::BIND => {
                let bind = Bind::read(body).map_err(|_| malformed("a Bind"))?;
                let query = self.statement(bind.statement)?;
                self.not_changed(bind.statement)?;
                self.not_failed(&query)?;
                self.portals.insert(bind.portal.to_vec(), query);
                self.say(|out| backend::empty(tag::BIND_COMPLETE, out));
            }
            sent::DESCRIBE => {
                let named = frontend::read_target(message, body);
                let (target, name) = named.map_err(|_| malformed("a Describe"))?;
                let query = match target {
                    Target::Statement => self.statement(name)?,
                    Target::Portal => self.portal(name)?,
                };
                if returns_rows(&self.meant(&query)) {
                    self.not_failed(&query)?; // the types of columns may have to be looked up
                }
                if target == Target::Statement {
                    let types = self.types.get(name).cloned().unwrap_or_default();
                    self.say(|out| {
                        frontend::message(tag::PARAMETER_DESCRIPTION, out, |out| {
                            out.extend_from_slice(&types);
                        });
                    });
                    self.not_changed(name)?;
                }
                if returns_rows(&self.meant(&query)) {
                    let names = vec!["c"; self.columns(&query)?];
                    self.say(|out| backend::row_description(&names, out));
                } else {
                    self.say(|out| backend::empty(tag::NO_DATA, out));
                }
            }
            sent::CLOSE => {
                let named = frontend::read_target(message, body);
                let (target, name) = named.map_err(|_| malformed("a Close"))?;
                match target {
                    Target::Statement => drop(self.statements.remove(name)),
                    Target::Portal => drop(self.portals.remove(name)),
                }
                self.say(|out| backend::empty(tag::CLOSE_COMPLETE, out));
            }
            sent::EXECUTE => {
                let (name, rows) =
                    frontend::read_execute(body).map_err(|_| malformed("an Execute"))?;
                let query = self.portal(name)?;
                self.is_limited = rows > 0 && first_word(&query) == "select";
                let ran = self.run(&query, false);
                if std::mem::take(&mut self.is_limited) {
                    self.portals.insert(name.to_vec(), "rest".to_owned());
                }
                ran?;
                if self.copies.is_some() {
                    self.copies = Some(Copying::Extended);
                }
            }
            other => panic!("a message {:?}", char::from(other)),
        }
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<String, Failure> {
        let known = self.statements.get(name).map(|(query, _)| query.clone());
        known.ok_or(("26000", "no such statement".to_owned()))
    }

    /// Refuses a statement that returns other columns than when it was parsed.
    fn not_changed(&self, name: &[u8]) -> Result<(), Failure> {
        match self.statements.get(name) {
            Some((query, columns))
                if query.contains('*')
                    && self.status != Status::Failed
                    && self.columns(query)? != *columns =>
            {
                Err((CHANGED, "cached plan must not change result type".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// How many columns a statement returns.
    fn columns(&self, query: &str) -> Result<usize, Failure> {
        match query {
            _ if !returns_rows(&self.meant(query)) => Ok(0),
            _ if !query.contains('*') => Ok(1),
            // (Of the schema each statement sees the latest.)
            _ => {
                let cluster = self.cluster.borrow();
                let seen = self.applied.as_ref().map_or(cluster.commits.len(), |seen| seen.get());
                let columns = cluster.columns(seen, &self.ddl);
                columns.ok_or(("42P01", "relation does not exist".to_owned()))
            }
        }
    }

    fn portal(&self, name: &[u8]) -> Result<String, Failure> {
        self.portals.get(name).cloned().ok_or(("34000", "no such portal".to_owned()))
    }

    fn not_failed(&self, query: &str) -> Result<(), Failure> {
        let ends = ["commit", "rollback"].contains(&first_word(query).as_str());
        if self.status == Status::Failed && !ends && !query.is_empty() {
            return Err(("25P02", "current transaction is aborted".to_owned()));
        }
        Ok(())
    }

    fn writes(&mut self) -> Result<(), Failure> {
        if self.applied.is_some() {
            return Err(("25006", "cannot execute in a read-only transaction".to_owned()));
        }
        let mut cluster = self.cluster.borrow_mut();
        let next = &mut cluster.next_xid;
        self.xid.get_or_insert_with(|| {
            *next += 1;
            FIRST_XID + *next
        });
        Ok(())
    }

    /// Sets a setting; `None` is its default.
    fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) {
        let name = &name.to_lowercase();
        if self.settings_before.is_none() {
            self.settings_before = Some(self.settings.clone());
        }
        if is_local {
            let before = self.settings.get(name).cloned();
            self.local.entry(name.to_owned()).or_insert(before);
        } else {
            self.local.remove(name);
        }
        match value {
            Some(value) => self.settings.insert(name.to_owned(), value.to_owned()),
            None => self.settings.remove(name),
        };
    }

    fn row(&mut self, values: &[Option<&str>]) {
        self.say(|out| backend::data_row(values.iter().copied(), out));
    }

    fn done(&mut self, command: &str) {
        match self.is_limited {
            true => self.say(|out| backend::empty(tag::PORTAL_SUSPENDED, out)),
            false => self.say(|out| backend::command_complete(command, out)),
        }
    }

    /// What EXECUTE means.
    fn meant(&self, query: &str) -> String {
        match query.strip_prefix("execute ") {
            Some(name) => {
                let by_protocol = self.statements.get(name.as_bytes()).map(|(query, _)| query);
                by_protocol.or(self.sql_statements.get(name)).cloned().unwrap_or_default()
            }
            None => query.to_owned(),
        }
    }

    /// Runs a statement; a simple query's rows are described.
    fn run(&mut self, query: &str, describes: bool) -> Result<(), Failure> {
        self.not_failed(query)?;
        if std::mem::take(&mut self.cluster.borrow_mut().cancels_next) {
            return Err(("57014", "canceling statement due to user request".to_owned()));
        }
        if let Some((_, behind)) = query.strip_prefix("/*").and_then(|query| query.split_once("*/"))
        {
            return self.run(behind.trim_start(), describes);
        }
        if let Some(name) = query.strip_prefix("execute ") {
            let meant = self.meant(query);
            if meant.is_empty() {
                return Err(("26000", format!("prepared statement \"{name}\" does not exist")));
            }
            return self.run(&meant, describes);
        }
        if describes && returns_rows(query) {
            let names = vec!["c"; self.columns(query)?];
            self.say(|out| backend::row_description(&names, out));
        }
        match first_word(query).as_str() {
            "select" => self.select(query)?,
            word if word != "rollback" && query.contains("fail") => {
                self.writes()?;
                return Err(("22012", "division by zero".to_owned()));
            }
            "insert" | "update" | "delete" => {
                match append_of(query) {
                    Some((table, value)) => self.append(table, value)?,
                    None => self.writes()?,
                }
                if query.contains("returning") {
                    self.row(&[Some("written")]);
                }
                let word = first_word(query).to_uppercase();
                self.done(&if word == "INSERT" {
                    "INSERT 0 1".to_owned()
                } else {
                    format!("{word} 1")
                });
            }
            word @ ("begin" | "start") => {
                // (In a unit that has begun a transaction already, its snapshot stays.)
                self.status = Status::Block;
                self.done(if word == "begin" { "BEGIN" } else { "START TRANSACTION" });
            }
            "commit" if self.status == Status::Failed => {
                self.roll_back();
                self.done("ROLLBACK");
            }
            "commit" => {
                self.commit();
                self.done("COMMIT");
            }
            "savepoint" => {
                self.savepoints.push(Savepoint {
                    name: last_name(query),
                    appends: self.appends.len(),
                    settings: self.settings.clone(),
                    local: self.local.clone(),
                });
                self.done("SAVEPOINT");
            }
            "release" => {
                let at = self.savepoint(query)?;
                self.savepoints.truncate(at);
                self.done("RELEASE");
            }
            "rollback" if query.to_lowercase().starts_with("rollback to ") => {
                let at = self.savepoint(query)?;
                let Savepoint { appends, settings, local, .. } = self.savepoints[at].clone();
                self.appends.truncate(appends);
                self.return_to(settings);
                self.local = local;
                self.savepoints.truncate(at + 1);
                self.status = Status::Block;
                self.done("ROLLBACK");
            }
            "rollback" => {
                self.roll_back();
                self.done("ROLLBACK");
            }
            // (The name of an exported snapshot is the number of the commits that it shows.)
            "set" if query.to_lowercase().starts_with("set transaction snapshot ") => {
                let name = query[25..].trim_matches('\'');
                let commits: Option<usize> = name.parse().ok();
                let known = self.cluster.borrow().commits.len();
                let Some(commits) = commits.filter(|&commits| commits <= known) else {
                    return Err(("22023", format!("invalid snapshot identifier: \"{name}\"")));
                };
                if self.snapshot.is_some() {
                    let what = "SET TRANSACTION SNAPSHOT must be called before any query";
                    return Err(("25001", what.to_owned()));
                }
                self.snapshot = Some(commits);
                self.done("SET");
            }
            // (All transactions read the same here.)
            "set" if query.to_lowercase().starts_with("set transaction ") => self.done("SET"),
            "set" => {
                let is_local = query.to_lowercase().starts_with("set local ");
                let begins = if is_local { "set local " } else { "set " };
                let (name, value) = self.parts(query, begins, " = ")?;
                if value == "bad" {
                    return Err(("22023", format!("invalid value for parameter \"{name}\"")));
                }
                // (Outside of a block SET LOCAL ends with its transaction.)
                self.set(name.trim(), Some(value.trim_matches('\'')), is_local);
                self.done("SET");
            }
            "show" => {
                let name = last_name(query).to_lowercase();
                let value = self.settings.get(&name).cloned();
                self.row(&[Some(value.as_deref().unwrap_or("default"))]);
                self.done("SHOW");
            }
            "reset" => {
                if query.eq_ignore_ascii_case("reset all") {
                    self.settings_before = None;
                    self.settings.clear();
                } else if query != "RESET ROLE" {
                    self.set(&last_name(query), None, false);
                }
                self.done("RESET");
            }
            "create" => {
                if query.contains("temp") {
                    self.has_temporary = true;
                } else {
                    self.writes()?;
                    self.ddl.push(Ddl::Other);
                }
                self.done("CREATE TABLE");
            }
            word @ ("alter" | "drop") => {
                self.writes()?;
                self.ddl.push(if word == "alter" { Ddl::AddColumn } else { Ddl::Drop });
                self.done(&format!("{} TABLE", word.to_uppercase()));
            }
            "call" => {
                self.writes()?;
                self.done("CALL");
                if self.status == Status::Idle {
                    self.commit();
                }
            }
            "copy" if query.contains("stdin") => {
                self.writes()?;
                self.copies = Some(Copying::Extended);
                self.say(|out| {
                    frontend::message(tag::COPY_IN, out, |out| out.extend_from_slice(&[0, 0, 0]));
                });
            }
            "copy" => {
                self.say(|out| {
                    frontend::message(tag::COPY_OUT, out, |out| out.extend_from_slice(&[0, 0, 0]));
                });
                self.say(|out| frontend::copy_data(b"1\n", out));
                self.say(frontend::copy_done);
                self.done("COPY 1");
            }
            "prepare" => {
                let (name, meant) = self.parts(query, "prepare ", " as ")?;
                self.sql_statements.insert(name.to_owned(), meant.to_owned());
                self.done("PREPARE");
            }
            "deallocate" if query == "deallocate all" => {
                self.statements.clear();
                self.sql_statements.clear();
                self.done("DEALLOCATE ALL");
            }
            "deallocate" => {
                let name = &query["deallocate ".len()..];
                let by_protocol = self.statements.remove(name.as_bytes());
                if by_protocol
                    .map(|(query, _)| query)
                    .or(self.sql_statements.remove(name))
                    .is_none()
                {
                    return Err(("26000", format!("prepared statement \"{name}\" does not exist")));
                }
                self.done("DEALLOCATE");
            }
            "discard" if query == "discard all" => {
                self.statements.clear();
                self.sql_statements.clear();
                self.done("DISCARD ALL");
            }
            "discard" => self.done("DISCARD"),
            // Of a portal that had more rows; there are none.
            "rest" => self.done("SELECT 0"),
            _ => return Err(self.syntax_error(query)),
        }
        Ok(())
    }

    /// What no script sends.
    fn syntax_error(&self, query: &str) -> Failure {
        assert!(self.cluster.borrow().takes_anything, "a statement {query:?}");
        ("42601", "syntax error".to_owned())
    }

    /// What stands around a word in a statement that begins so.
    fn parts<'a>(
        &self,
        query: &'a str,
        begins: &str,
        word: &str,
    ) -> Result<(&'a str, &'a str), Failure> {
        let rest = query.get(begins.len()..).unwrap_or_default();
        rest.split_once(word).ok_or_else(|| self.syntax_error(query))
    }

    /// The newest savepoint of the name at the end of a query.
    fn savepoint(&self, query: &str) -> Result<usize, Failure> {
        let name = last_name(query);
        let found = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        found.ok_or_else(|| ("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    fn select(&mut self, query: &str) -> Result<(), Failure> {
        if ["'setting'", "'custom'", "'temporary'"].iter().any(|kind| query.contains(kind)) {
            let settings: Vec<_> = self.settings.clone().into_iter().collect();
            for (name, value) in &settings {
                let kind = if name.contains('.') { "custom" } else { "setting" };
                if kind == "setting" && query.contains("'setting'")
                    || query.contains(&format!("'custom', '{name}'"))
                {
                    self.row(&[Some(kind), Some(name), Some(value)]);
                }
            }
            if query.contains("'setting'") {
                self.row(&[Some("path"), Some("public"), Some("postgres")]);
                self.row(&[Some("strings"), Some("on"), None]);
                if !self.sql_statements.is_empty() {
                    self.row(&[Some("prepared"), None, None]);
                }
            }
            if query.contains("ELSE 'reported'") {
                self.row(&[Some("reported"), Some("TimeZone"), Some(&self.zone())]);
                self.row(&[Some("reset"), Some("TimeZone"), Some(DEFAULT_ZONE)]);
            }
            if query.contains("'temporary'") && self.has_temporary {
                self.row(&[Some("temporary"), None, None]);
            }
        } else if query.contains("pg_current_xact_id_if_assigned") {
            let xid = self.xid.map(|xid| xid.to_string());
            self.row(&[xid.as_deref()]);
        } else if let Some(set) = query.split_once("set_config(").map(|(_, set)| set) {
            let mut parts = set.split(',').map(|part| part.trim().trim_matches('\''));
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
                return Err(self.syntax_error(query));
            };
            self.set(name, Some(value), false);
            self.row(&[Some(value)]);
        } else if query.contains("password_encryption") {
            self.row(&[Some("true"), Some("true")]);
        } else if query.contains("pg_prepared_statements") {
            let by_protocol = self.statements.keys().filter(|name| !name.is_empty());
            let by_sql = self.sql_statements.keys().map(|name| name.as_bytes().to_vec());
            let mut names: Vec<_> = by_protocol.cloned().chain(by_sql).collect();
            names.sort();
            names.iter().for_each(|name| self.row(&[Some(&text(name))]));
        } else if query.contains("hihooi.follow") {
            // It returns a set, which is empty.
        } else {
            if query.contains("fail") {
                return Err(("22012", "division by zero".to_owned()));
            }
            let row = match query.strip_prefix("select v from ") {
                Some(table) => self.list(table),
                None => query.to_owned(),
            };
            let mut values = vec![None; self.columns(query)?];
            values[0] = Some(row.as_str());
            self.row(&values);
        }
        self.done("SELECT 1");
        Ok(())
    }

    fn copied(&mut self, message: u8) {
        let Some(how) = self.copies.filter(|_| message != sent::COPY_DATA) else { return };
        match message {
            sent::SYNC | sent::FLUSH => return, // ignored during COPY
            sent::COPY_DONE => self.done("COPY 1"),
            _ => {
                self.fail(&("57014", "COPY from stdin failed".to_owned()));
                self.skips = how == Copying::Extended;
            }
        }
        self.copies = None;
        if how == Copying::Simple {
            if self.status == Status::Idle {
                self.commit();
            }
            self.ready();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn first_word(query: &str) -> String {
    let end = query.find(|letter: char| !letter.is_alphabetic()).unwrap_or(query.len());
    query[..end].to_lowercase()
}

fn last_name(query: &str) -> String {
    match query.strip_suffix('"') {
        Some(quoted) => quoted.rsplit('"').next().unwrap_or_default().to_owned(),
        None => query.rsplit(' ').next().unwrap_or_default().to_lowercase(),
    }
}

fn malformed(what: &str) -> Failure {
    ("08P01", format!("{what} is malformed"))
}

fn parsed(query: &str) -> Result<(), Failure> {
    if query.contains("syntax error") {
        return Err(("42601", "syntax error".to_owned()));
    }
    Ok(())
}

/// What `update t1 set v = v || 5` appends to what.
fn append_of(query: &str) -> Option<(&str, i64)> {
    let (table, value) = query.strip_prefix("update ")?.split_once(" set v = v || ")?;
    Some((table, value.parse().ok()?))
}

/// As ParameterDescription has them: of those that a Parse doesn't declare, `int4`.
fn parameter_types(query: &str, declared: &[u8]) -> Vec<u8> {
    const INT4: u32 = 23;
    let count = (1..=9).rev().find(|number| query.contains(&format!("${number}"))).unwrap_or(0);
    let declared = declared.get(2..).unwrap_or_default();
    let declared = declared.chunks_exact(4).filter_map(|oid| oid.try_into().ok());
    let mut oids: Vec<u32> = declared.map(u32::from_be_bytes).collect();
    oids.resize(count.max(oids.len()), 0);
    let mut types = (oids.len() as u16).to_be_bytes().to_vec();
    types.extend(oids.iter().flat_map(|&oid| if oid == 0 { INT4 } else { oid }.to_be_bytes()));
    types
}

fn returns_rows(query: &str) -> bool {
    ["select", "show"].contains(&first_word(query).as_str()) || query.contains("returning")
}
