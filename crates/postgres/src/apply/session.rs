//! One connection that writes to a replica: runs a group's changes in one transaction, pipelined, and checks
//! that each has changed exactly the expected rows (row format).
//!
//! A group takes two round trips: one for everything up to the last change, and one for the commit, which is
//! sent when the schedule says so. Keeps I5: the position is part of the same commit. A group can be prepared
//! while the one before it is being executed on another connection.

mod batches;
mod refused;
mod unnoted;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use hihooi_log::Log;
use hihooi_replication::codec::{KnownRelations, decode_chunk};
use hihooi_replication::entry::{Change, Relation, Tuple, Value};
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::items::RelId;
use hihooi_replication::note::Note;
use hihooi_wire::backend::{self, tag};
use hihooi_wire::frontend;

use super::catalog::{Catalog, RESUME_DOMAINS, SUSPEND_DOMAINS, Table};
use super::follow::Followed;
use super::progress;
use super::restricted::{self, Gathered, Guard, View};
use super::running::Running;
use super::set_aside::{self, BRING_BACK};
use super::statements::{self, Shape, Statement};
use super::unseen::Recent;
use super::words::{What, unknown};
use super::work::{Failure, Group, Refusal, Work};
use crate::connection::{Connection, Error, Result, server_error};
use crate::site::Site;

/// How a message introduces the server's error: a domain's constraint may raise any.
const SERVER_ERROR: &str = "(SQLSTATE ";
/// SQLSTATE of a text that isn't valid in the database's encoding.
const INVALID_TEXT: &str = "(SQLSTATE 22021)";
/// Statements sent before their answers are read: both sides' socket buffers hold that much.
const AHEAD_MAX: usize = 1000;
/// Bytes of rows sent before their answers are read: rows are kept for error messages (I8).
const AHEAD_BYTES_MAX: usize = 4 << 20;
/// Bytes gathered before they are sent.
const GATHERED_MAX: usize = 256 * 1024;
/// Statements that are kept prepared; when there are more, all are closed and prepared again.
const PREPARED_MAX: usize = 500;
/// So many new rows of one table in a row, or more, are written by one COPY.
const COPY_ROWS_MIN: usize = 16;

/// The result that one statement in the pipeline must have.
struct Expected {
    tsid: Tsid,
    /// The number of rows that it must change; `None` if that isn't checked.
    rows: Option<u64>,
    /// The change, for the error message.
    what: What,
}

impl Expected {
    /// Changes of the entry that it makes.
    fn changes(&self) -> u64 {
        match &self.what {
            What::Housekeeping(_) | What::Temporary(_) => 0,
            What::Gathered { changes, .. } => changes.len() as u64,
            What::Row { .. } | What::Table { .. } => self.rows.unwrap_or(1),
        }
    }
}

/// A statement that the server knows by a name, unless it is carried out as a guarded table's owner.
struct Prepared {
    name: String,
    statement: Statement,
    guard: Option<Guard>,
    path: Option<String>,
}

/// A connection that writes.
pub(super) struct Session {
    connection: Connection,
    log: Log,
    catalog: Catalog,
    /// Relations as the stream described them last.
    relations: AHashMap<RelId, Arc<Relation>>,
    /// What decoding remembers of chunks before.
    known: KnownRelations,
    prepared: AHashMap<(RelId, Shape), Arc<Prepared>>,
    names: u64,
    generation: u64,
    expected: VecDeque<Expected>,
    /// Bytes of the rows that are expected.
    expected_bytes: usize,
    /// Changes of guarded tables that are not in the pipeline yet.
    gathered: Option<Gathered>,
    failed: Option<Failure>,
    /// Code of others has run in this transaction.
    has_run_code: bool,
    /// What functions may run now.
    running: Arc<Running>,
    /// How long the entry's transaction had taken at the primary when it told of its last command.
    took: Duration,
    followed: Followed,
    /// The last notes.
    recent: Arc<Recent>,
    /// The search path in the transaction, if it isn't the session's.
    path: Option<String>,
    /// CHECK constraints of domains are not evaluated in this transaction.
    without_domains: bool,
    /// Changes are made as they came in this transaction.
    as_they_came: bool,
    /// Texts are sent as bytes in this transaction, whether or not they are valid in the database's encoding.
    texts_as_bytes: bool,
    /// What is to be sent for the next group is being written, but must not be sent.
    is_preparing: bool,
    /// The last entry of the group that is prepared, and where it begins in the buffer.
    prepared_group: Option<(Tsid, usize)>,
    /// Up to here, the operator has repeated at the replica what could not be applied.
    repaired: Tsid,
}

impl Session {
    /// Connects to a replica and takes the origin of that name.
    pub(super) async fn open(
        site: &Site,
        database: &str,
        origin: &str,
        log: Log,
        repaired: Tsid,
        recent: &Arc<Recent>,
        running: Arc<Running>,
    ) -> Result<Session> {
        let mut connection = Connection::open(&progress::applier_login(site, database)).await?;
        let setup = "select pg_catalog.pg_replication_origin_session_setup($1)";
        connection.query_with(setup, &[Some(origin)]).await?;
        for (name, text) in FIXED {
            frontend::parse(name.as_bytes(), text.as_bytes(), connection.buffer());
        }
        frontend::sync(connection.buffer());
        connection.flush().await?;
        connection.answers().await?;
        Ok(Session {
            connection,
            log,
            catalog: Catalog::default(),
            relations: AHashMap::new(),
            known: KnownRelations::default(),
            prepared: AHashMap::new(),
            names: 0,
            generation: 0,
            expected: VecDeque::new(),
            expected_bytes: 0,
            gathered: None,
            failed: None,
            has_run_code: false,
            running,
            took: Duration::ZERO,
            followed: Followed::default(),
            recent: Arc::clone(recent),
            path: None,
            without_domains: false,
            as_they_came: false,
            texts_as_bytes: false,
            is_preparing: false,
            prepared_group: None,
            repaired,
        })
    }

    /// Process id of the backend.
    pub(super) fn process(&self) -> i32 {
        self.connection.key().process
    }

    /// Writes what is to be sent for a group, without sending it, if that is possible. It is to be executed, or
    /// aborted, next.
    pub(super) async fn get_ready(&mut self, group: &Group) -> std::result::Result<(), Failure> {
        self.start(group);
        let done = self.write_ahead(group).await;
        // If it failed, its execution tells.
        if self.failed.take().is_some() {
            self.unprepare();
        }
        done.map_err(|error| lost(&error))
    }

    async fn write_ahead(&mut self, group: &Group) -> Result<()> {
        let Some(net) = self.net(group).await? else { return Ok(()) };
        // Before a TRUNCATE the replica is asked for partitions.
        let is_truncate = |change: &Change| matches!(change, Change::Truncate { .. });
        if net.as_they_came.iter().any(|(_, change)| is_truncate(change)) {
            return Ok(());
        }
        self.prepared_group = Some((group.last().tsid, self.connection.buffer().len()));
        self.begin(group)?;
        self.is_preparing = true;
        let done = self.carry_out_net(group.last().tsid, net).await;
        self.is_preparing = false;
        done
    }

    /// Drops what is prepared; whether anything was.
    fn unprepare(&mut self) -> bool {
        let Some((_, begin)) = self.prepared_group.take() else { return false };
        self.connection.buffer().truncate(begin);
        self.expected.clear();
        self.gathered = None;
        self.running.have_run();
        // Among it may be the Parse of statements.
        self.forget();
        true
    }

    fn start(&mut self, group: &Group) {
        if group.generation != self.generation {
            self.forget();
            self.generation = group.generation;
        }
        (self.as_they_came, self.texts_as_bytes, self.without_domains) = (false, false, false);
        self.path = None;
    }

    /// Runs a group's changes, without committing; whether what they change in the end was tried and refused.
    /// After a failure the transaction is rolled back.
    pub(super) async fn execute(&mut self, group: &Group) -> std::result::Result<bool, Failure> {
        self.start(group);
        let (mut is_net_refused, mut first) = (false, None::<Refusal>);
        loop {
            let done = self.run(group).await;
            let refusal = match self.after(done).await {
                Err(Failure::Refused(refusal)) => refusal,
                done => return done.map(|()| is_net_refused),
            };
            // What doesn't fit is found out, and told, by changes that are made as they came.
            if !self.as_they_came {
                (self.as_they_came, is_net_refused) = (true, true);
                continue;
            }
            if refusal.reason.contains(INVALID_TEXT) && !self.texts_as_bytes {
                self.texts_as_bytes = true;
            } else if refusal.reason.contains(SERVER_ERROR) && !self.without_domains {
                self.without_domains = true;
                first = Some(refusal);
            } else {
                let first = first.filter(|first| first.is_about_the_same_as(&refusal));
                return Err(Failure::Refused(first.unwrap_or(refusal)));
            }
        }
    }

    /// Commits what was executed.
    pub(super) async fn commit(&mut self, group: &Group) -> std::result::Result<(), Failure> {
        let done = match self.end(group) {
            Ok(()) => self.settle().await,
            Err(error) => Err(error),
        };
        self.after(done).await
    }

    /// Rolls back what was executed, or drops what is prepared.
    pub(super) async fn abort(&mut self) -> std::result::Result<(), Failure> {
        if self.unprepare() {
            return Ok(());
        }
        self.forget();
        self.connection.query("ROLLBACK").await.map_err(|error| lost(&error))?;
        if std::mem::take(&mut self.has_run_code) {
            self.connection.query(restricted::UNLOCK).await.map_err(|error| lost(&error))?;
        }
        Ok(())
    }

    /// Waits until the server sends something unasked, which only happens when the session ends, and
    /// returns why. Cancel-safe.
    pub(super) async fn broken(&mut self) -> String {
        match self.connection.next().await {
            Ok(message) if message.tag == tag::ERROR => server_error(&message.body).to_string(),
            Ok(message) => format!("unexpected message {:?}", char::from(message.tag)),
            Err(error) => error.to_string(),
        }
    }

    /// Ends the session in good order.
    pub(super) async fn close(self) {
        self.connection.close().await;
    }

    async fn run(&mut self, group: &Group) -> Result<()> {
        if self.prepared_group.is_some_and(|(last, _)| last == group.last().tsid) {
            self.prepared_group = None;
            return self.settle().await;
        }
        self.unprepare();
        self.running.begins();
        let net = if self.as_they_came { None } else { self.net(group).await? };
        self.failed = None; // what is missing then may be made by the changes as they came
        self.begin(group)?;
        if let Some(net) = net {
            self.carry_out_net(group.last().tsid, net).await?;
            return self.settle().await;
        }
        self.as_they_came = true;
        for work in &group.works {
            let tsid = work.header().tsid;
            self.look_ahead(work).await?;
            match &work.changes {
                Some(changes) => self.changes(tsid, changes).await?,
                None => self.chunks(tsid, work.header().chunks).await?,
            }
            if self.failed.is_some() {
                break;
            }
        }
        self.settle().await
    }

    fn begin(&mut self, group: &Group) -> Result<()> {
        self.path = None;
        self.fixed("begin", "BEGIN", group.last().tsid, [].into_iter())?;
        self.domains(group, SUSPEND_DOMAINS);
        Ok(())
    }

    /// Sets the search path for what the next statement runs; `None` is the session's own.
    fn use_path(&mut self, tsid: Tsid, path: Option<&str>) {
        if self.path.as_deref() != path {
            const SET: &str = "select pg_catalog.set_config('search_path', $1, true)";
            let what = What::Housekeeping("setting the search path");
            let value = path.unwrap_or("pg_catalog").as_bytes();
            self.send(SET, [Some(value)].into_iter(), Expected { tsid, rows: None, what });
            self.path = path.map(str::to_owned);
        }
    }

    /// Suspends or resumes the CHECK constraints of domains, if this transaction is to.
    fn domains(&mut self, group: &Group, text: &str) {
        if self.without_domains {
            self.carry_out();
            let what = What::Housekeeping("setting domains aside");
            let expected = Expected { tsid: group.last().tsid, rows: None, what };
            self.send(text, [].into_iter(), expected);
        }
    }

    /// The progress that the commit records, and `COMMIT`. Not sooner: from PostgreSQL 16 on an
    /// aborted transaction moves its session's origin as well, to what was set last.
    fn end(&mut self, group: &Group) -> Result<()> {
        let last = group.last();
        self.carry_out();
        self.use_path(last.tsid, None);
        self.domains(group, RESUME_DOMAINS);
        let position = Lsn(last.tsid.0).to_string();
        let time = last.commit_time_us.to_string();
        let values = [Some(position.as_bytes()), Some(time.as_bytes())];
        self.fixed("origin", "setting the progress", last.tsid, values.into_iter())?;
        self.fixed("commit", "COMMIT", last.tsid, [].into_iter())
    }

    fn fixed<'a>(
        &mut self,
        name: &str,
        what: &'static str,
        tsid: Tsid,
        values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    ) -> Result<()> {
        self.carry_out();
        frontend::bind(b"", name.as_bytes(), values, self.connection.buffer());
        frontend::execute(b"", 0, self.connection.buffer());
        self.expected.push_back(Expected { tsid, rows: None, what: What::Housekeeping(what) });
        Ok(())
    }

    /// Finds the tables that an entry creates and whose rows come before their note.
    async fn look_ahead(&mut self, work: &Work) -> Result<()> {
        let header = work.header();
        let is_repaired = header.tsid <= self.repaired;
        self.followed = Followed::new(header.xid, Arc::clone(&self.recent), is_repaired);
        if !work.header().has_ddl {
            return Ok(());
        }
        let (mut noted, mut took_ms) = (Vec::new(), Vec::new());
        let mut take = |changes: &[Change]| {
            for change in changes {
                let Change::Note(Note::Command(command)) = change else { continue };
                took_ms.push(command.took_ms);
                if command.relation.is_some() || command.members.is_some() {
                    noted.push(command.clone());
                }
            }
        };
        match &work.changes {
            Some(changes) => take(changes),
            None => {
                for number in 0..work.header().chunks {
                    take(&self.chunk(work.header().tsid, number).await?);
                }
            }
        }
        noted.into_iter().for_each(|command| self.followed.expect(command));
        self.took = Duration::from_millis(took_ms.into_iter().flatten().max().unwrap_or(0));
        Ok(())
    }

    async fn chunk(&mut self, tsid: Tsid, number: u32) -> Result<Vec<Change>> {
        let chunk = self.log.chunk(tsid, number).await;
        let chunk = chunk.map_err(|error| Error::Protocol(error.to_string()))?;
        decode_chunk(&chunk, &mut self.known)
            .map_err(|error| Error::Protocol(format!("entry {tsid} of the log: {error}")))
    }

    async fn chunks(&mut self, tsid: Tsid, count: u32) -> Result<()> {
        for number in 0..count {
            let changes = self.chunk(tsid, number).await?;
            self.changes(tsid, &changes).await?;
            if self.failed.is_some() {
                break;
            }
        }
        Ok(())
    }

    async fn changes(&mut self, tsid: Tsid, changes: &[Change]) -> Result<()> {
        let mut rest = changes;
        while let Some(change) = rest.first() {
            let run = insert_run(rest);
            if let Change::Insert { relation, .. } = change
                && run >= COPY_ROWS_MIN
            {
                self.insert(tsid, *relation, &new_rows(&rest[..run])).await?;
                rest = &rest[run..];
            } else {
                self.change(tsid, change).await?;
                rest = &rest[1..];
            }
            self.keep_flowing().await?;
            if self.failed.is_some() {
                break;
            }
        }
        Ok(())
    }

    async fn change(&mut self, tsid: Tsid, change: &Change) -> Result<()> {
        match change {
            Change::Relation(relation) => {
                if self.followed.created.contains_key(&relation.id.0) {
                    self.create(tsid, relation).await?;
                }
                self.describe(relation);
                Ok(())
            }
            Change::Insert { relation, new } => {
                self.row(tsid, *relation, "INSERT", Shape::insert(), None, Some(new)).await
            }
            Change::Update { relation, old, new } => {
                let Some(described) = self.described(tsid, *relation) else { return Ok(()) };
                let shape = Shape::update(&described, old.as_ref(), new);
                self.row(tsid, *relation, "UPDATE", shape, old.as_ref(), Some(new)).await
            }
            Change::Delete { relation, old } => {
                let Some(described) = self.described(tsid, *relation) else { return Ok(()) };
                let shape = Shape::delete(&described, old);
                self.row(tsid, *relation, "DELETE", shape, Some(old), None).await
            }
            Change::Truncate { relations, restart_identity } => {
                self.truncate(tsid, relations, *restart_identity).await
            }
            Change::Note(note) => self.follow(tsid, note).await,
        }
    }

    async fn row(
        &mut self,
        tsid: Tsid,
        id: RelId,
        verb: &'static str,
        shape: Shape,
        old: Option<&Tuple>,
        new: Option<&Tuple>,
    ) -> Result<()> {
        if self.followed.is_by_script(id.0) {
            return Ok(());
        }
        let Some(relation) = self.described(tsid, id) else { return Ok(()) };
        if relation.columns.is_empty() && verb == "UPDATE" {
            return Ok(()); // all its columns are generated, from nothing
        }
        let prepared = self.prepare(tsid, &relation, shape, old, new).await?;
        let Some(prepared) = prepared else { return Ok(()) };
        let row = old.or(new).expect("a change has a row");
        self.expected_bytes += row.iter().map(Value::bytes).sum::<usize>();
        let (old, new) = (old.unwrap_or(row), new.unwrap_or(row));
        if let Some(guard) = &prepared.guard {
            let text = prepared.statement.literal(old, new);
            let force = guard.is_forced.then(|| statements::qualified(&relation));
            let what = What::Row { verb, relation, row: row.clone() };
            self.gather(guard, tsid, what, (Some(1), &text), force);
            return Ok(());
        }
        self.carry_out();
        if self.texts_as_bytes {
            let Some(table) = self.table(tsid, &relation).await? else { return Ok(()) };
            self.use_path(tsid, prepared.path.as_deref());
            let text = prepared.statement.literal_of_bytes(&relation, &table, (old, new));
            let what = What::Row { verb, relation, row: row.clone() };
            self.send(&text, [].into_iter(), Expected { tsid, rows: Some(1), what });
            return Ok(());
        }
        self.use_path(tsid, prepared.path.as_deref());
        let values = prepared.statement.values(old, new);
        frontend::bind(b"", prepared.name.as_bytes(), values, self.connection.buffer());
        frontend::execute(b"", 0, self.connection.buffer());
        let what = What::Row { verb, relation, row: row.clone() };
        self.expected.push_back(Expected { tsid, rows: Some(1), what });
        Ok(())
    }

    /// Remembers how the stream describes a relation from here on.
    fn describe(&mut self, relation: &Arc<Relation>) {
        if self.relations.get(&relation.id).is_none_or(|known| known != relation) {
            self.close_prepared_of(relation.id);
            self.relations.insert(relation.id, Arc::clone(relation));
        }
    }

    /// The prepared statement for a change; `None` after a refusal, or if the table's rows are not followed.
    async fn prepare(
        &mut self,
        tsid: Tsid,
        relation: &Arc<Relation>,
        shape: Shape,
        old: Option<&Tuple>,
        new: Option<&Tuple>,
    ) -> Result<Option<Arc<Prepared>>> {
        let key = (relation.id, shape);
        if let Some(known) = self.prepared.get(&key) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(table) = self.table(tsid, relation).await? else { return Ok(None) };
        if table.is_set_aside {
            return Ok(None);
        }
        let built = match (old, new) {
            (None, Some(new)) if key.1 == Shape::insert() => {
                statements::insert(relation, &table, new)
            }
            (old, Some(new)) => statements::update(relation, &table, old, new),
            (Some(old), None) => statements::delete(relation, &table, old),
            (None, None) => unreachable!("a change has a row"),
        };
        match built {
            Ok(statement) => Ok(Some(self.parse(key, statement, &table))),
            Err(error) => {
                self.refuse(tsid, unknown(relation, &error.to_string()));
                Ok(None)
            }
        }
    }

    fn parse(&mut self, key: (RelId, Shape), statement: Statement, table: &Table) -> Arc<Prepared> {
        if self.prepared.len() >= PREPARED_MAX {
            self.close_prepared();
        }
        self.names += 1;
        let name = format!("h{}", self.names);
        let (guard, path) = (table.guard.clone(), table.path.clone());
        if guard.is_none() {
            frontend::parse(name.as_bytes(), statement.text.as_bytes(), self.connection.buffer());
        }
        let prepared = Arc::new(Prepared { name, statement, guard, path });
        self.prepared.insert(key, Arc::clone(&prepared));
        prepared
    }

    fn close_prepared(&mut self) {
        for (_, prepared) in self.prepared.drain() {
            let buffer = self.connection.buffer();
            frontend::close(frontend::Target::Statement, prepared.name.as_bytes(), buffer);
        }
    }

    /// Forgets what DDL may have changed.
    fn forget(&mut self) {
        self.close_prepared();
        self.catalog.clear();
    }

    fn described(&mut self, tsid: Tsid, id: RelId) -> Option<Arc<Relation>> {
        let relation = self.relations.get(&id).cloned();
        if relation.is_none() {
            self.refuse(tsid, format!("the log does not describe relation {}", id.0));
        }
        relation
    }

    /// The table of a relation; `None` after a refusal.
    async fn table(&mut self, tsid: Tsid, relation: &Arc<Relation>) -> Result<Option<Arc<Table>>> {
        let mut known = match self.catalog.known(relation) {
            Some(known) => known,
            None => {
                // Types are to be named with their schemas; and the answers before it are to be read.
                self.use_path(tsid, None);
                self.settle().await?;
                if self.failed.is_some() {
                    return Ok(None);
                }
                let table = self.catalog.table(relation, &mut self.connection).await?;
                if let Some(table) = table.as_ref().filter(|table| table.is_set_aside) {
                    set_aside::found(relation, &table.oid, &mut self.connection).await?;
                }
                table
            }
        };
        if known.is_none() && self.as_they_came && self.create_unnoted(tsid, relation.id).await? {
            known = self.catalog.table(relation, &mut self.connection).await?;
        }
        if known.is_none() {
            self.refuse(tsid, unknown(relation, "the table does not exist at the replica"));
        }
        Ok(known)
    }

    fn close_prepared_of(&mut self, id: RelId) {
        let buffer = self.connection.buffer();
        self.prepared.retain(|(relation, _), prepared| {
            if *relation == id {
                frontend::close(frontend::Target::Statement, prepared.name.as_bytes(), buffer);
            }
            *relation != id
        });
    }

    /// Adds new rows to a table, by COPY if they are many and it can be used.
    async fn insert(&mut self, tsid: Tsid, id: RelId, rows: &[&Tuple]) -> Result<()> {
        if self.followed.is_by_script(id.0) {
            return Ok(());
        }
        if rows.len() < COPY_ROWS_MIN || self.texts_as_bytes {
            return self.one_by_one(tsid, id, rows).await;
        }
        let Some(relation) = self.described(tsid, id) else { return Ok(()) };
        let Some(table) = self.table(tsid, &relation).await? else { return Ok(()) };
        if table.is_set_aside {
            return Ok(());
        }
        let text = match statements::copy(&relation, &table) {
            Ok(Some(text)) if table.guard.is_none() => text,
            Ok(_) => return self.one_by_one(tsid, id, rows).await,
            Err(error) => {
                self.refuse(tsid, unknown(&relation, &error.to_string()));
                return Ok(());
            }
        };
        self.carry_out();
        self.use_path(tsid, table.path.as_deref());
        frontend::parse(b"", text.as_bytes(), self.connection.buffer());
        frontend::bind(b"", b"", [].into_iter(), self.connection.buffer());
        frontend::execute(b"", 0, self.connection.buffer());
        let columns = statements::written(&relation, &table);
        let mut lines = Vec::new();
        for row in rows {
            statements::copy_row(row, &columns, &mut lines);
            if lines.len() >= GATHERED_MAX {
                frontend::copy_data(&lines, self.connection.buffer());
                lines.clear();
                if !self.is_preparing {
                    self.connection.flush().await?;
                }
            }
        }
        frontend::copy_data(&lines, self.connection.buffer());
        frontend::copy_done(self.connection.buffer());
        let what = What::Table { verb: "COPY", relation };
        self.expected.push_back(Expected { tsid, rows: Some(rows.len() as u64), what });
        Ok(())
    }

    async fn one_by_one(&mut self, tsid: Tsid, id: RelId, rows: &[&Tuple]) -> Result<()> {
        for row in rows {
            self.row(tsid, id, "INSERT", Shape::insert(), None, Some(row)).await?;
            self.keep_flowing().await?;
        }
        Ok(())
    }

    /// Empties tables, in one statement because of the foreign keys between them. If they have several owners, it isn't
    /// executed as one of them: PostgreSQL itself builds each one's indexes as its owner (CVE-2022-1552).
    async fn truncate(&mut self, tsid: Tsid, ids: &[RelId], restart: bool) -> Result<()> {
        let mut relations = Vec::with_capacity(ids.len());
        let mut guards = Vec::with_capacity(ids.len());
        let (mut path, mut runs_code) = (None, false);
        let mut set_aside = restricted::Array::default();
        for &id in ids {
            let Some(relation) = self.described(tsid, id) else { return Ok(()) };
            let Some(table) = self.table(tsid, &relation).await? else { return Ok(()) };
            // Empty indexes are built, and functions of constants run for that.
            runs_code |= table.runs_code();
            guards.push(table.guard.clone().filter(|_| !table.is_set_aside));
            if table.is_set_aside {
                set_aside.push(Some(id.0.to_string().as_bytes()));
            }
            // (Safe for a superuser's functions, which may be inlined in indexes.)
            path = path.or_else(|| table.path.clone());
            relations.push(relation);
        }
        let Some(first) = relations.first().cloned() else { return Ok(()) };
        let all: Vec<&Relation> = relations.iter().map(|relation| &**relation).collect();
        let parents =
            if all.len() > 1 { self.whole_parents(tsid, &all).await? } else { Vec::new() };
        let text = statements::truncate(&all, &parents, restart);
        let what = What::Table { verb: "TRUNCATE", relation: first };
        match &guards[0] {
            Some(guard) if guards.iter().all(|other| other.as_ref() == Some(guard)) => {
                self.gather(guard, tsid, what, (None, text.as_bytes()), None);
            }
            _ => {
                self.carry_out();
                self.use_path(tsid, path.as_deref());
                if runs_code {
                    self.running.are_to_run(tsid, &what);
                }
                self.send(&text, [].into_iter(), Expected { tsid, rows: None, what });
            }
        }
        if !set_aside.is_empty() {
            let what = What::Housekeeping("bringing tables back that were set aside");
            let expected = Expected { tsid, rows: None, what };
            self.use_path(tsid, None);
            let (ids, entry) = (set_aside.text(), tsid.0.to_string());
            let values = [Some(&ids[..]), Some(entry.as_bytes())];
            self.send(BRING_BACK, values.into_iter(), expected);
            self.forget();
        }
        Ok(())
    }

    /// Partitioned tables of which all leaves are among these: foreign keys to others of them may be
    /// theirs.
    async fn whole_parents(&mut self, tsid: Tsid, leaves: &[&Relation]) -> Result<Vec<String>> {
        const PARENTS: &str = "
            with leaf as (
                select pg_catalog.to_regclass(n)::oid from pg_catalog.unnest($1::text[]) n)
            select pg_catalog.format('%I.%I', n.nspname, c.relname)
            from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where c.relkind = 'p' and c.oid in (
                    select a.relid from leaf l(oid), pg_catalog.pg_partition_ancestors(l.oid) a)
              and not exists (select from pg_catalog.pg_partition_tree(c.oid) t
                              where t.isleaf and t.relid::oid not in (select * from leaf))";
        self.carry_out();
        self.use_path(tsid, None);
        self.settle().await?;
        let mut names = restricted::Array::default();
        leaves.iter().for_each(|leaf| names.push(Some(statements::qualified(leaf).as_bytes())));
        let names = String::from_utf8_lossy(&names.text()).into_owned();
        let found = self.connection.query_with(PARENTS, &[Some(&names)]).await?;
        Ok(found.rows.into_iter().flatten().flatten().collect())
    }

    /// Adds a change of a guarded table; `force` is its name if row security binds its owner.
    fn gather(
        &mut self,
        guard: &Guard,
        tsid: Tsid,
        what: What,
        (rows, text): (Option<u64>, &[u8]),
        force: Option<String>,
    ) {
        let fits = |gathered: &Gathered| {
            (&gathered.owner, &gathered.path) == (&guard.owner, &guard.path)
                && gathered.changes.len() < AHEAD_MAX
                && gathered.work.len() < GATHERED_MAX
        };
        if !self.gathered.as_ref().is_some_and(fits) {
            self.carry_out();
        }
        let gathered = self.gathered.get_or_insert_with(|| Gathered::new(guard));
        gathered.work.push(rows, text);
        gathered.changes.push((tsid, what));
        gathered.forced.extend(force.filter(|name| !gathered.forced.contains(name)));
    }

    /// Puts what was gathered into the pipeline, as one operation.
    fn carry_out(&mut self) {
        let Some(Gathered { owner, work, changes, forced, .. }) = self.gathered.take() else {
            return;
        };
        let tsid = changes[0].0;
        self.has_run_code = true;
        self.running.are_to_run(tsid, &changes[0].1);
        let temporary = What::Temporary(changes[0].1.relation().cloned());
        let step = |what| Expected { tsid, rows: None, what: What::Housekeeping(what) };
        let view = View::rows(&self.connection);
        let force = |word: &'static str| {
            move |name: &String| format!("ALTER TABLE ONLY {name} {word}FORCE ROW LEVEL SECURITY")
        };
        let before = view.create(&owner).into_iter().chain(forced.iter().map(force("NO ")));
        for text in before {
            self.send(&text, [].into_iter(), step("beginning a restricted operation"));
        }
        let work = work.text();
        self.send(restricted::SET_WORK, [Some(&work[..])].into_iter(), step("setting the work"));
        let what = What::Gathered { owner, changes };
        self.send(view.refresh(), [].into_iter(), Expected { tsid, rows: None, what });
        let close = [restricted::CLOSE.to_owned()].into_iter();
        for text in close.chain(forced.iter().map(force(""))).chain([view.drop()]) {
            self.send(&text, [].into_iter(), step("ending a restricted operation"));
        }
        let expected = Expected { tsid, rows: Some(1), what: temporary };
        self.send(restricted::NOTHING_TEMPORARY, [].into_iter(), expected);
    }

    /// Puts a statement that is used once into the pipeline.
    fn send<'a>(
        &mut self,
        text: impl AsRef<[u8]>,
        values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
        expected: Expected,
    ) {
        let buffer = self.connection.buffer();
        frontend::parse(b"", text.as_ref(), buffer);
        frontend::bind(b"", b"", values, buffer);
        frontend::execute(b"", 0, buffer);
        self.expected.push_back(expected);
    }

    /// Executes a note.
    async fn follow(&mut self, tsid: Tsid, note: &Note) -> Result<()> {
        self.use_path(tsid, None);
        self.settle().await?;
        if self.failed.is_some() {
            return Ok(());
        }
        self.forget();
        self.has_run_code = true;
        self.running.is_to_follow(tsid, self.took);
        set_aside::empty_for_ddl(&mut self.connection).await?;
        let done = self.followed.follow(&mut self.connection, note).await;
        self.note_followed(tsid, done)?;
        self.running.have_run();
        Ok(())
    }

    /// Creates a table whose rows come next.
    async fn create(&mut self, tsid: Tsid, relation: &Relation) -> Result<()> {
        self.use_path(tsid, None);
        self.settle().await?;
        if self.failed.is_some() {
            return Ok(());
        }
        self.forget();
        self.running.is_to_follow(tsid, self.took);
        let done = self.followed.create_for_rows(&mut self.connection, relation).await;
        self.note_followed(tsid, done)?;
        self.running.have_run();
        Ok(())
    }

    /// Sends and reads when much has gathered.
    async fn keep_flowing(&mut self) -> Result<()> {
        if self.is_preparing {
            // What one group sends is bounded by its size.
            Ok(())
        } else if self.expected.len() >= AHEAD_MAX || self.expected_bytes >= AHEAD_BYTES_MAX {
            self.settle().await
        } else if self.connection.buffer().len() >= GATHERED_MAX {
            self.connection.flush().await
        } else {
            Ok(())
        }
    }

    /// Sends everything and reads all answers. What failed is in `self.failed` afterwards.
    async fn settle(&mut self) -> Result<()> {
        debug_assert!(!self.is_preparing, "nothing is sent yet");
        self.carry_out();
        self.expected_bytes = 0;
        frontend::sync(self.connection.buffer());
        self.connection.flush().await?;
        loop {
            let message = self.connection.next().await?;
            match message.tag {
                tag::COMMAND_COMPLETE => {
                    self.check(backend::read_command_complete(&message.body)?);
                }
                tag::ERROR => {
                    let expected = self.expected.pop_front();
                    self.expected.clear();
                    self.note_expected(expected, server_error(&message.body))?;
                }
                tag::READY_FOR_QUERY => {
                    self.expected.clear();
                    self.running.have_run();
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Rolls back if something failed, and returns what.
    async fn after(&mut self, done: Result<()>) -> std::result::Result<(), Failure> {
        if let Err(error) = done {
            return Err(lost(&error));
        }
        let Some(failure) = self.failed.take() else { return Ok(()) };
        self.expected.clear();
        self.gathered = None;
        self.abort().await?;
        Err(failure)
    }
}

/// Statements that every session has prepared.
const FIXED: [(&str, &str); 4] = [
    ("begin", "BEGIN"),
    // Rows are found by their keys, however many the planner thinks there are, and by one plan.
    (
        "batch",
        "select pg_catalog.set_config(name, setting, true) from (values ('enable_seqscan', 'off'), \
         ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('enable_nestloop', 'on'), \
         ('enable_indexscan', 'on'), ('jit', 'off'), ('plan_cache_mode', 'force_generic_plan')) \
         s(name, setting)",
    ),
    ("commit", "COMMIT"),
    (
        "origin",
        "select pg_catalog.pg_replication_origin_xact_setup($1::pg_catalog.pg_lsn, \
         pg_catalog.timestamptz '2000-01-01 00:00:00+00' operator(pg_catalog.+) \
         ($2::pg_catalog.float8 operator(pg_catalog.*) pg_catalog.interval '1 microsecond'))",
    ),
];

fn lost(error: &Error) -> Failure {
    Failure::Lost(error.to_string())
}

/// How many of the first changes are new rows of one table.
fn insert_run(changes: &[Change]) -> usize {
    let Some(Change::Insert { relation: table, .. }) = changes.first() else { return 0 };
    let same =
        |change: &&Change| matches!(change, Change::Insert { relation, .. } if relation == table);
    changes.iter().take_while(same).count()
}

fn new_rows(changes: &[Change]) -> Vec<&Tuple> {
    let rows = changes.iter().map_while(|change| match change {
        Change::Insert { new, .. } => Some(new),
        _ => None,
    });
    rows.collect()
}
