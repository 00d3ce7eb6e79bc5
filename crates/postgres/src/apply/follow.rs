//! Schema changes at a replica: a note's command is executed at the same place in the order as on the primary,
//! as the same role and with the same settings. The resulting objects are compared with the primary's before
//! the transaction is committed (I2).
//!
//! A command of a role that is not a superuser is executed in a security-restricted operation, in which it
//! can't get a superuser's rights.

use std::sync::Arc;

use ahash::{AHashMap, AHashSet};
use hihooi_replication::entry::Relation;
use hihooi_replication::note::{
    self, Address, Command, Contents, Note, Object, Owner, OwnerBefore, Rights, SharedObjects,
};
use hihooi_sql::lexer::{Token, TokenKind, tokens};

use super::catalog::{asks_for_more, resume_checks};
use super::progress::disable_own_actions;
use super::replay::{self, Check, Memory};
use super::restricted::{self, SET_WORK, View, Work, told};
use super::shared_objects;
use super::statements::{literal, qualified, quote};
use super::unseen::Recent;
use super::words::{differs, statement_words};
use crate::connection::{Connection, Error, Result};
use crate::setup;

/// Settings of an applier that DDL must not change. Function bodies were checked at the primary.
const KEPT: [&str; 5] = [
    "session_replication_role",
    "synchronous_commit",
    "session_authorization",
    "role",
    "check_function_bodies",
];
/// Savepoint around an attempt to execute a note in one of its readings.
const SAVEPOINT: &str = "SAVEPOINT hihooi";
const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT hihooi";
/// (A thousand that are nested would slow the last down.)
const RELEASE: &str = "RELEASE SAVEPOINT hihooi";
/// A command whose effect is not part of any description.
const REFRESH: &str = "REFRESH MATERIALIZED VIEW";
/// SQLSTATE of a DROP of something that another object needs.
const DEPENDENT_OBJECTS: &str = "2BP01";
/// SQLSTATEs of objects that do not exist: tables, functions, schemas, others.
const UNDEFINED: [&str; 4] = ["42P01", "42883", "3F000", "42704"];

/// Why a note could not be executed.
pub(super) enum Failed {
    /// The server refused it, as described, or the connection is lost.
    Error(String, Error),
    /// Its result differs from the primary's, as described.
    Differs(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error("following the primary's DDL".to_owned(), error)
    }
}

type Done = std::result::Result<(), Failed>;

/// What is remembered while one entry is applied.
#[derive(Default)]
pub(super) struct Followed {
    /// Tables whose rows come before the note that creates them, by OID at the primary.
    pub created: AHashMap<u32, Box<Command>>,
    /// Tables of extensions whose notes have not come yet: their rows are written by the extension's script.
    by_script: AHashSet<u32>,
    /// Tables and materialized views that were created before their notes, by identity.
    made: AHashSet<String>,
    memory: Memory,
    /// Long queries, by hash.
    queries: AHashMap<String, String>,
    /// The transaction at the primary, by the low 32 bits of its id.
    xid: u32,
    /// The last notes of other transactions.
    recent: Arc<Recent>,
    /// The operator has said, by RESUME REPLICA, that what doesn't fit was repeated at the replica.
    is_repaired: bool,
}

impl Followed {
    /// For an entry's transaction.
    pub(super) fn new(xid: u32, recent: Arc<Recent>, is_repaired: bool) -> Followed {
        Followed { xid, recent, is_repaired, ..Followed::default() }
    }

    /// Remembers a note of the entry whose rows come before it.
    pub(super) fn expect(&mut self, command: Box<Command>) {
        self.by_script.extend(command.members.iter().flatten());
        if let Some(relation) = command.relation {
            // Later ones tell of it again, as it is by then.
            self.created.entry(relation).or_insert(command);
        }
    }

    /// Whether rows of a table are written by an extension's script, which runs here as well.
    pub(super) fn is_by_script(&self, relation: u32) -> bool {
        self.by_script.contains(&relation)
    }

    /// Executes a note inside the open transaction. Behind it no trigger or rule fires for appliers.
    pub(super) async fn follow(&mut self, connection: &mut Connection, note: &Note) -> Done {
        resume_checks(connection).await?;
        self.execute(connection, note).await?;
        disable_enabled(connection).await
    }

    async fn execute(&mut self, connection: &mut Connection, note: &Note) -> Done {
        match note {
            Note::Command(command) => {
                match self.with_query(command) {
                    Some(whole) => self.command(connection, &whole).await?,
                    None => self.command(connection, command).await?,
                }
                command.objects.iter().for_each(|object| self.recent.changed(self.xid, object));
                Ok(())
            }
            Note::Drop(drop) => {
                dropped(connection, drop).await?;
                self.recent.dropped(self.xid);
                Ok(())
            }
            Note::Shared(shared) => become_like(connection, shared).await,
            Note::Owners(owners) => owned(connection, owners).await,
            Note::Contents(contents) => {
                self.made.extend(contents.create.is_some().then(|| contents.view.clone()));
                expect_contents(connection, contents).await
            }
            Note::Refresh(contents) => refreshed(connection, contents).await,
            Note::Unknown(what) if self.is_repaired => {
                tracing::warn!(
                    what,
                    "skipped, since an operator said by RESUME REPLICA that it is done at the replica"
                );
                Ok(())
            }
            Note::Unknown(what) => Err(Failed::Differs(super::words::bypassed(what))),
            // (Nobody knows what to repair.)
            Note::Undecoded(why) => Err(Failed::Differs(super::words::undecoded(why))),
        }
    }

    /// The command with its query, if an earlier note has that; `None` if it is in this one.
    fn with_query(&mut self, command: &Command) -> Option<Command> {
        let hash = command.query_hash.as_ref()?;
        if let Some(query) = &command.query {
            self.queries.insert(hash.clone(), query.clone());
            return None;
        }
        Some(Command { query: self.queries.get(hash).cloned(), ..command.clone() })
    }

    /// Creates a table whose rows come next, unless it is there: it may get another name before its note comes.
    pub(super) async fn create_for_rows(
        &mut self,
        connection: &mut Connection,
        relation: &Relation,
    ) -> Done {
        const IS_THERE: &str = "select pg_catalog.to_regclass($1)";
        let name = qualified(relation);
        let found = connection.query_with(IS_THERE, &[Some(&name)]).await?;
        if found.value().is_some() {
            self.created.remove(&relation.id.0);
            return Ok(());
        }
        self.create(connection, relation.id.0).await?;
        disable_enabled(connection).await
    }

    /// Creates a table of which a note tells.
    pub(super) async fn create(&mut self, connection: &mut Connection, relation: u32) -> Done {
        let Some(command) = self.created.remove(&relation) else { return Ok(()) };
        let Some(text) = &command.create else { return Ok(()) };
        if text.contains(" IF NOT EXISTS ")
            && let Some(object) = command.objects.first()
            && describe(connection, object).await?.0.is_some()
        {
            return Ok(());
        }
        let objects = command.objects.iter();
        self.made.extend(objects.filter_map(|object| object.identity.clone()));
        run(
            connection,
            &command.role,
            &command.settings.iter().collect::<Vec<_>>(),
            std::slice::from_ref(text),
        )
        .await
        .map_err(|error| Failed::Error(statement_words(text), error))
    }

    async fn command(&mut self, connection: &mut Connection, command: &Command) -> Done {
        const WITHOUT_OBJECTS: [&str; 2] = ["ALTER DEFAULT PRIVILEGES", "DROP OWNED"];
        if command.objects.is_empty() && !WITHOUT_OBJECTS.contains(&command.tag.as_str()) {
            return Ok(());
        }
        for member in command.members.iter().flatten() {
            self.by_script.remove(member);
        }
        if self.is_repaired && self.compare(connection, command).await?.is_none() {
            return Ok(());
        }
        // Before the text gives names: those of them are taken at the primary only.
        self.drop_invalid(connection, command).await?;
        if let Some(relation) = command.relation {
            // Its rows may have made it already.
            self.create(connection, relation).await?;
        } else if !command.is_done {
            return self.replay(connection, command).await;
        }
        let mut difference = self.compare_alike(connection, command).await?;
        if difference.is_some() && self.share_made(connection, command).await? {
            difference = self.compare_alike(connection, command).await?;
        }
        difference.map_or(Ok(()), |difference| Err(Failed::Differs(difference)))
    }

    /// Gives what was created before its note the primary's privileges; whether it had others.
    async fn share_made(&self, connection: &mut Connection, command: &Command) -> Result<bool> {
        let is_made =
            |object: &Object| object.identity.as_ref().is_some_and(|i| self.made.contains(i));
        if !command.objects.iter().all(is_made) {
            return Ok(false);
        }
        let here = descriptions(connection, command).await?;
        let texts = replay::shares(command, &here);
        run(connection, &command.role, &[], &texts).await?;
        Ok(!texts.is_empty())
    }

    /// Executes the command's text: of several readings, the one after which the objects are equal to the
    /// primary's.
    async fn replay(&mut self, connection: &mut Connection, command: &Command) -> Done {
        let texts = replay::readings(command, &mut self.memory);
        if texts.is_empty() {
            let told = command.query.as_ref().or(command.context.as_ref());
            let words = statement_words(told.map_or("", String::as_str));
            let what = format!("found no {} in the text: {words}", command.tag);
            return Err(Failed::Differs(super::words::bypassed(&what)));
        }
        connection.query(SAVEPOINT).await?;
        self.try_all(connection, command, &texts).await?;
        connection.query(RELEASE).await?;
        Ok(())
    }

    async fn try_all(
        &self,
        connection: &mut Connection,
        command: &Command,
        texts: &[String],
    ) -> Done {
        let settings: Vec<_> = command.settings.iter().collect();
        let mut failed = None;
        for (text, before) in ways(command, texts) {
            let way = Way { settings: &settings, text, before };
            let ran = way.go(connection, command, &[]).await;
            let outcome = match ran {
                Ok(()) => self.mended(connection, command, &way).await?.map(Failed::Differs),
                Err(Error::Server(fields)) => {
                    Some(Failed::Error(statement_words(text), Error::Server(fields)))
                }
                Err(lost) => return Err(lost.into()),
            };
            let Some(outcome) = outcome else {
                if !before {
                    disable_enabled(connection).await?;
                    empty(connection, command).await?;
                }
                return Ok(());
            };
            failed = match (failed, outcome) {
                // The reading that came closest gives the best message.
                (Some(Failed::Error(..)) | None, outcome) => Some(outcome),
                (differs, _) => differs,
            };
            connection.query(ROLLBACK).await?;
        }
        let failed = failed.expect("a reading failed");
        // It was about something that only the primary has, such as a trigger whose function is
        // temporary.
        let is_error = matches!(failed, Failed::Error(..));
        if is_error && self.accept(connection, command).await? {
            return Ok(());
        }
        let is_there = is_error && !command.objects.is_empty();
        if is_there && command.tag != REFRESH && self.compare(connection, command).await?.is_none()
        {
            return Ok(());
        }
        Err(failed)
    }

    /// Adds a command's CHECK constraints one by one. Those that may depend on more than the row, such as
    /// the client's settings, are marked valid without a check: the rows have passed it at the primary.
    /// Returns whether that is all that the command did.
    async fn accept(&self, connection: &mut Connection, command: &Command) -> Result<bool> {
        let here = descriptions(connection, command).await?;
        let checks = replay::checks(command, &here);
        if checks.is_empty() {
            return Ok(false);
        }
        match make_checks(connection, command, checks).await {
            Ok(()) if self.compare(connection, command).await?.is_none() => return Ok(true),
            Ok(()) | Err(Error::Server(_)) => {}
            Err(lost) => return Err(lost),
        }
        connection.query(ROLLBACK).await?;
        Ok(false)
    }

    /// Compares, and corrects once what the text made differently from the primary.
    async fn mended(
        &self,
        connection: &mut Connection,
        command: &Command,
        way: &Way<'_>,
    ) -> Result<Option<String>> {
        let Some(difference) = self.compare_alike(connection, command).await? else {
            return Ok(None);
        };
        let here = descriptions(connection, command).await?;
        if replay::mends(command, &here, &[]).is_empty() {
            // The text may have renamed them.
            self.drop_invalid(connection, command).await?;
            return self.compare_alike(connection, command).await;
        }
        // A difference that was there before the text ran stops the replica.
        connection.query(ROLLBACK).await?;
        let before = descriptions(connection, command).await?;
        match way.go(connection, command, &replay::mends(command, &here, &before)).await {
            Ok(()) => {
                self.drop_invalid(connection, command).await?;
                self.compare_alike(connection, command).await
            }
            Err(Error::Server(_)) => Ok(Some(difference)),
            Err(lost) => Err(lost),
        }
    }

    /// Drops indexes that are not valid at the primary any more: a DROP INDEX CONCURRENTLY was given up.
    async fn drop_invalid(&self, connection: &mut Connection, command: &Command) -> Result<()> {
        let objects = command.objects.iter();
        let objects = objects.filter(|object| !self.recent.hides(self.xid, object));
        for index in objects.flat_map(|object| object.invalid.iter().flatten()) {
            connection.query(&format!("DROP INDEX IF EXISTS {index}")).await?;
        }
        Ok(())
    }

    /// Makes indexes of partitioned tables valid or not as they are at the primary, then compares.
    async fn compare_alike(
        &self,
        connection: &mut Connection,
        command: &Command,
    ) -> Result<Option<String>> {
        let objects = command.objects.iter();
        for object in objects.filter(|object| !self.recent.hides(self.xid, object)) {
            validate_partitioned(connection, object).await?;
        }
        self.compare(connection, command).await
    }

    /// The differences from the primary's description, in words.
    async fn compare(
        &self,
        connection: &mut Connection,
        command: &Command,
    ) -> Result<Option<String>> {
        for object in &command.objects {
            let Some(expected) = &object.description else {
                let is_left = object.is_gone
                    && !self.recent.hides(self.xid, object)
                    && describe(connection, object).await?.0.is_some();
                if is_left {
                    return Ok(Some(differs(&name_of(object), "the primary has none")));
                }
                continue;
            };
            let (here, version) = describe(connection, object).await?;
            // Of another major version, or another version of ours, only that it is there.
            let is_alike = version == command.version && setup::format() == command.format;
            let is_equal = |here: &String| here == expected || !is_alike;
            if here.as_ref().is_some_and(is_equal) || self.recent.hides(self.xid, object) {
                continue;
            }
            let takes = || self.recent.takes(self.xid, object);
            if here.as_ref().is_some_and(|here| replay::is_part_of(here, expected)) && takes() {
                continue;
            }
            let words = here.map_or("it is missing".to_owned(), |h| differing_lines(expected, &h));
            return Ok(Some(differs(&name_of(object), &words)));
        }
        Ok(None)
    }
}

/// The texts to execute, each with whether tables whose rows are sent again are emptied before it. If
/// they are, nothing is computed for their rows here; but a foreign key to them may need these rows, and
/// an extension's script writes rows of its own.
fn ways<'a>(command: &Command, texts: &'a [String]) -> Vec<(&'a String, bool)> {
    let is_behind = command.members.is_some() && command.rewritten.is_some();
    let before = texts.iter().map(|text| (text, true)).filter(|_| !is_behind);
    let behind = texts.iter().map(|text| (text, false)).filter(|_| command.rewritten.is_some());
    before.chain(behind).collect()
}

/// One way to execute a command.
struct Way<'a> {
    settings: &'a [(&'a String, &'a String)],
    text: &'a String,
    /// Tables whose rows are sent again are emptied before.
    before: bool,
}

impl Way<'_> {
    /// Executes it, and what has to be executed after it.
    async fn go(
        &self,
        connection: &mut Connection,
        command: &Command,
        behind: &[String],
    ) -> Result<()> {
        if self.before {
            empty(connection, command).await?;
        }
        let texts: Vec<_> = std::iter::once(self.text).chain(behind).cloned().collect();
        run(connection, &command.role, self.settings, &texts).await
    }
}

/// Empties the tables whose rows are sent again, after the command.
async fn empty(connection: &mut Connection, command: &Command) -> Result<()> {
    for table in command.rewritten.iter().flatten() {
        connection.query(&format!("DELETE FROM ONLY {table}")).await?;
    }
    Ok(())
}

/// Marks the indexes of a partitioned table as valid or not. At the primary one may not be although all its parts are by
/// now, until one is attached again, or because of a part that is not, which replicas don't have.
async fn validate_partitioned(connection: &mut Connection, table: &Object) -> Result<()> {
    const MARK: &str = "
        update pg_catalog.pg_index i set indisvalid = p.valid
        from pg_catalog.pg_class c,
            rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::bool[])) p(name, valid)
        where c.oid = pg_catalog.to_regclass(p.name) and c.relkind = 'I' and i.indexrelid = c.oid
          and i.indisvalid <> p.valid";
    let Some(indexes) = &table.partitioned else { return Ok(()) };
    let names: Vec<String> = indexes.keys().cloned().collect();
    let valid: Vec<String> = indexes.values().map(bool::to_string).collect();
    connection.query_with(MARK, &[Some(&array(&names)), Some(&array(&valid))]).await.map(drop)
}

/// The descriptions of the command's objects at the replica, of those that exist.
async fn descriptions(
    connection: &mut Connection,
    command: &Command,
) -> Result<Vec<Option<String>>> {
    let mut descriptions = Vec::new();
    for object in &command.objects {
        descriptions.push(describe(connection, object).await?.0);
    }
    Ok(descriptions)
}

/// Disables triggers and rules that DDL, an extension's script or a function has enabled for appliers
/// (ENABLE ALWAYS, ENABLE REPLICA): they would run with the rights of an applier. Code of any role may run in any
/// command, so that PostgreSQL is asked whether the transaction changed one. (It counts those of a moment before, too.)
async fn disable_enabled(connection: &mut Connection) -> Done {
    const MAY: &str = "
        select from pg_catalog.unnest('{pg_trigger,pg_rewrite,pg_event_trigger}'::pg_catalog.regclass[]) c
        where pg_catalog.pg_stat_get_xact_tuples_inserted(c) + pg_catalog.pg_stat_get_xact_tuples_updated(c) > 0
           or not pg_catalog.current_setting('track_counts')::bool";
    if !connection.query(MAY).await?.rows.is_empty() {
        disable_own_actions(connection).await?;
    }
    Ok(())
}

/// An object's description at the replica, if it exists, and the server's major version.
async fn describe(connection: &mut Connection, object: &Object) -> Result<(Option<String>, u32)> {
    const DESCRIBE: &str = "select hihooi.describe(f.class, f.object),
            pg_catalog.current_setting('server_version_num')::int / 10000
        from (select) x left join hihooi.find($1, $2::text[], $3::text[]) f on true";
    let (names, args) = (array(&object.names), array(&object.args));
    let values = [Some(object.kind.as_str()), Some(&names), Some(&args)];
    let mut found = connection.query_with(DESCRIBE, &values).await?;
    let mut row = found.rows.pop().unwrap_or_default().into_iter();
    let description = row.next().flatten();
    let version = row.next().flatten().and_then(|version| version.parse().ok()).unwrap_or(0);
    Ok((description, version))
}

fn name_of(object: &Object) -> String {
    let identity = object.identity.clone().unwrap_or_else(|| object.names.join("."));
    format!("{} {identity}", object.kind)
}

/// The first lines in which two descriptions differ.
pub(crate) fn differing_lines(primary: &str, here: &str) -> String {
    let only = |a: &str, b: &str| {
        let other: Vec<&str> = b.lines().collect();
        a.lines().find(|line| !other.contains(line)).map(str::to_owned)
    };
    match (only(primary, here), only(here, primary)) {
        (Some(there), Some(here)) => format!("on the primary \"{there}\", here \"{here}\""),
        (Some(there), None) => format!("on the primary \"{there}\", not here"),
        (None, Some(here)) => format!("here \"{here}\", not on the primary"),
        (None, None) => "the order of its parts".to_owned(),
    }
}

fn array(values: &[String]) -> String {
    let mut array = restricted::Array::default();
    values.iter().for_each(|value| array.push(Some(value.as_bytes())));
    String::from_utf8_lossy(&array.text()).into_owned()
}

/// Drops what a command has dropped. Members of an extension are dropped by its own script only, which the note of ALTER
/// EXTENSION executes here, too.
async fn dropped(connection: &mut Connection, gone: &note::Drop) -> Done {
    let texts = replay::drops(gone);
    let words = statement_words(&texts.join("; "));
    connection.query(SAVEPOINT).await?;
    let mut ran = run(connection, &gone.role, &[], &texts).await;
    if ran.as_ref().is_err_and(|error| error.code() == Some(DEPENDENT_OBJECTS)) {
        connection.query(ROLLBACK).await?;
        let rest = without_members(connection, gone).await?;
        ran = run(connection, &gone.role, &[], &replay::drops(&rest)).await;
    }
    ran.map_err(|error| Failed::Error(words, error))?;
    connection.query(RELEASE).await?;
    Ok(())
}

/// The same without the objects that belong to an extension here.
async fn without_members(connection: &mut Connection, gone: &note::Drop) -> Result<note::Drop> {
    const MEMBERS: &str = "
        select i.type, i.identity from pg_catalog.pg_depend d,
            pg_catalog.pg_identify_object(d.classid, d.objid, 0) i
        where d.refclassid = 'pg_catalog.pg_extension'::regclass and d.deptype = 'e'";
    let members = connection.query(MEMBERS).await?.rows;
    let is_member = |object: &note::Dropped| {
        members.iter().any(|member| {
            let is =
                |at: usize, text: &str| member.get(at).is_some_and(|v| v.as_deref() == Some(text));
            is(0, &object.kind) && is(1, &object.identity)
        })
    };
    let mut rest = gone.clone();
    rest.objects.retain(|object| !is_member(object));
    Ok(rest)
}

/// Creates the table that receives the rows of a materialized view. It belongs to the view's owner, as
/// whom rows are loaded if their types run functions.
async fn expect_contents(connection: &mut Connection, contents: &Contents) -> Done {
    let Contents { owner, columns, role, create, .. } = contents;
    if let (Some(create), Some(role)) = (create, role) {
        let ran = run(connection, role, &[], std::slice::from_ref(create)).await;
        ran.map_err(|error| Failed::Error(statement_words(create), error))?;
    }
    let columns = columns.iter().flatten().map(|(name, kind)| format!("{name} {kind}"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let commands = [
        format!("CREATE TABLE hihooi.contents ({columns})"),
        format!("ALTER TABLE hihooi.contents OWNER TO {owner}"),
    ];
    run_all(connection, commands.into()).await
}

/// Refreshes a materialized view from the rows that were received. No other command than REFRESH writes
/// to one, so its query is replaced for that moment by one that reads the received rows. PostgreSQL runs
/// functions of its indexes as its owner.
async fn refreshed(connection: &mut Connection, contents: &Contents) -> Done {
    let view = &contents.view;
    let class = |view: &str| format!("{}::regclass", literal(Some(view)));
    let its = |view: &str| format!("ev_class = {} AND rulename = '_RETURN'", class(view));
    let (own, other) = (its(view), its("hihooi.shape"));
    let set = |query: &str| {
        format!("UPDATE pg_rewrite SET ev_action = (SELECT ev_action FROM {query}) WHERE {own}")
    };
    // So that PostgreSQL reads it again.
    let invalidate = format!("UPDATE pg_class SET relname = relname WHERE oid = {}", class(view));
    let commands = vec![
        "CREATE MATERIALIZED VIEW hihooi.shape AS TABLE hihooi.contents WITH NO DATA".to_owned(),
        format!("CREATE TABLE hihooi.query AS SELECT ev_action FROM pg_rewrite WHERE {own}"),
        set(&format!("pg_rewrite WHERE {other}")),
        invalidate.clone(),
        format!("REFRESH MATERIALIZED VIEW {view}"),
        set("hihooi.query"),
        invalidate,
        "DROP MATERIALIZED VIEW hihooi.shape".to_owned(),
        "DROP TABLE hihooi.contents, hihooi.query".to_owned(),
    ];
    run_all(connection, commands).await
}

/// Makes roles and other shared objects equal to the primary's.
async fn become_like(connection: &mut Connection, note: &SharedObjects) -> Done {
    let unreadable = |error| Failed::Differs(format!("roles: {error}"));
    let (state, _) = shared_objects_here(connection).await?;
    run_all(connection, shared_objects::renames(note, &state).map_err(unreadable)?).await?;
    let (state, database) = shared_objects_here(connection).await?;
    run_all(connection, shared_objects::commands(note, &state, &database).map_err(unreadable)?)
        .await?;
    // (An earlier version noted event triggers on login as they are at the primary.)
    disable_own_actions(connection).await?;
    Ok(())
}

/// Shared objects at the replica, and the database's name.
async fn shared_objects_here(connection: &mut Connection) -> Result<(String, String)> {
    let query = "select hihooi.shared()::text, pg_catalog.current_database()";
    let mut here = connection.query(query).await?;
    let mut row = here.rows.pop().unwrap_or_default().into_iter();
    let mut next = || row.next().flatten().unwrap_or_default();
    Ok((next(), next()))
}

async fn run_all(connection: &mut Connection, commands: Vec<String>) -> Done {
    for command in commands {
        let ran = connection.query(&command).await;
        ran.map_err(|error| Failed::Error(statement_words(&command), error))?;
    }
    Ok(())
}

/// Gives objects their owners, and rights on them.
async fn owned(connection: &mut Connection, owners: &[Owner]) -> Done {
    for owner in owners {
        give_owner(connection, owner).await?;
        if let Some(rights) = &owner.rights {
            give_rights(connection, owner, rights).await?;
        }
    }
    Ok(())
}

/// An object that doesn't exist yet is created later: its command had begun, and the command's note, which has the
/// owner too, comes after this one. A relation that has its owner already isn't altered, since that would lock it
/// against reads.
async fn give_owner(connection: &mut Connection, it: &Owner) -> Done {
    const HAS: &str = "SELECT FROM pg_catalog.pg_class
        WHERE oid = pg_catalog.to_regclass($1) AND relowner = pg_catalog.to_regrole($2)";
    const HAS_WRAPPER: &str = "SELECT FROM pg_catalog.pg_foreign_data_wrapper
        WHERE pg_catalog.quote_ident(fdwname) = $1 AND fdwowner = pg_catalog.to_regrole($2)";
    const HAS_EVENT_TRIGGER: &str = "SELECT FROM pg_catalog.pg_event_trigger
        WHERE pg_catalog.quote_ident(evtname) = $1 AND evtowner = pg_catalog.to_regrole($2)";
    const RELATIONS: [&str; 5] =
        ["table", "view", "materialized view", "sequence", "foreign table"];
    let Owner { kind, identity, owner, before, .. } = it;
    if RELATIONS.contains(&kind.as_str())
        && !connection.query_with(HAS, &[Some(identity), Some(owner)]).await?.rows.is_empty()
    {
        return Ok(());
    }
    // Their owner must be a superuser, and may be one no more.
    let has = match kind.as_str() {
        "foreign-data wrapper" => Some(HAS_WRAPPER),
        "event trigger" => Some(HAS_EVENT_TRIGGER),
        _ => None,
    };
    if let Some(has) = has
        && !connection.query_with(has, &[Some(identity), Some(owner)]).await?.rows.is_empty()
    {
        return Ok(());
    }
    if let Some(before) = before
        && !is_owned_by(connection, before).await?
    {
        return Ok(());
    }
    let kind = match kind.as_str() {
        "function" | "aggregate" => "ROUTINE".to_owned(),
        "statistics object" => "STATISTICS".to_owned(),
        "foreign-data wrapper" => "FOREIGN DATA WRAPPER".to_owned(),
        "composite type" => "TYPE".to_owned(),
        kind => kind.to_uppercase(),
    };
    let text = match kind.as_str() {
        // No command does it but REASSIGN OWNED, for all that a role has.
        "EXTENSION" => own_extension(identity, owner),
        kind => format!("ALTER {kind} {identity} OWNER TO {owner}"),
    };
    let point = "SAVEPOINT hihooi_owner";
    match connection.query(&format!("{point}; {text}; RELEASE {point}")).await {
        Ok(_) => {}
        Err(Error::Server(fields)) if UNDEFINED.contains(&fields.code()) => {
            connection.query(&format!("ROLLBACK TO {point}; RELEASE {point}")).await?;
        }
        Err(error) => return Err(Failed::Error(text, error)),
    }
    Ok(())
}

/// Makes the rights on an object what they are at the primary. Mostly they are, since ALTER … OWNER changes them like REASSIGN
/// OWNED; not if there was another owner in between.
async fn give_rights(connection: &mut Connection, it: &Owner, rights: &Rights) -> Done {
    const RIGHTS: &str = "SELECT hihooi.rights_on(f.class, f.object)::text
        FROM hihooi.find($1, $2::text[], $3::text[]) f";
    let Address { kind, names, args } = &rights.address;
    let (names, args) = (array(names), array(args));
    let values = [kind, &names, &args].map(|value| Some(value.as_str()));
    let found = connection.query_with(RIGHTS, &values).await?;
    let Some(here) = found.value() else { return Ok(()) };
    let kind = match it.kind.as_str() {
        "sequence" | "schema" | "language" => it.kind.to_uppercase(),
        "function" | "aggregate" | "procedure" => "ROUTINE".to_owned(),
        "type" | "domain" | "composite type" => "TYPE".to_owned(),
        "server" => "FOREIGN SERVER".to_owned(),
        "foreign-data wrapper" => "FOREIGN DATA WRAPPER".to_owned(),
        _ => "TABLE".to_owned(),
    };
    let object = format!("{kind} {}", it.identity);
    let commands = shared_objects::rights(&rights.given, here, &object, &it.owner);
    let commands = commands.map_err(|error| Failed::Differs(format!("{object}: {error}")))?;
    run_all(connection, commands).await
}

/// Whether an object has that owner. (Of PostgreSQL's own roles pg_shdepend has no rows.)
async fn is_owned_by(connection: &mut Connection, before: &OwnerBefore) -> Result<bool> {
    const IS: &str = "SELECT FROM hihooi.find($1, $2::text[], $3::text[]) f
            LEFT JOIN pg_catalog.pg_shdepend s
                ON s.dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
                    AND (s.classid, s.objid, s.objsubid, s.deptype) = (f.class, f.object, 0, 'o')
            CROSS JOIN LATERAL (SELECT pg_catalog.to_regrole($4)::oid) b(owner)
        WHERE coalesce(s.refobjid, 0) = CASE WHEN b.owner < 16384 THEN 0 ELSE b.owner END";
    let OwnerBefore { owner, address: Address { kind, names, args } } = before;
    let (names, args) = (array(names), array(args));
    let values = [kind, &names, &args, owner].map(|value| Some(value.as_str()));
    Ok(!connection.query_with(IS, &values).await?.rows.is_empty())
}

/// What gives an extension an owner, in the catalogs: initdb's superuser has no rows of pg_shdepend.
fn own_extension(name: &str, owner: &str) -> String {
    let owner = format!("{}::regrole::oid", literal(Some(owner)));
    format!(
        "UPDATE pg_catalog.pg_extension SET extowner = {owner}
             WHERE pg_catalog.quote_ident(extname) = {name};
         DELETE FROM pg_catalog.pg_shdepend s USING pg_catalog.pg_extension e, pg_catalog.pg_database d
             WHERE pg_catalog.quote_ident(extname) = {name} AND datname = pg_catalog.current_database()
               AND (s.dbid, s.classid, s.objid, s.deptype)
                   = (d.oid, 'pg_catalog.pg_extension'::regclass, e.oid, 'o');
         INSERT INTO pg_catalog.pg_shdepend (dbid, classid, objid, objsubid, refclassid, refobjid, deptype)
             SELECT d.oid, 'pg_catalog.pg_extension'::regclass, e.oid, 0, 'pg_catalog.pg_authid'::regclass, {owner}, 'o'
             FROM pg_catalog.pg_extension e, pg_catalog.pg_database d
             WHERE pg_catalog.quote_ident(extname) = {name} AND datname = pg_catalog.current_database()
               AND {owner} <> 10",
        name = literal(Some(name)),
    )
}

/// Adds CHECK constraints, and validates those that depend on the row alone.
async fn make_checks(
    connection: &mut Connection,
    command: &Command,
    checks: Vec<Check>,
) -> Result<()> {
    let settings: Vec<_> = command.settings.iter().collect();
    let added: Vec<_> = checks.iter().filter_map(|check| check.add.clone()).collect();
    if !added.is_empty() {
        run(connection, &command.role, &settings, &added).await?;
    }
    for check in checks {
        let found = connection.query(&check.find).await?;
        let Some(constraint) = found.value() else { continue }; // the comparison tells
        if asks_for_more(constraint, connection).await? {
            for mark in check.mark {
                connection.query(&mark).await?;
            }
        } else {
            run(connection, &command.role, &settings, &[check.validate]).await?;
        }
    }
    Ok(())
}

/// Runs statements as a role.
async fn run(
    connection: &mut Connection,
    role: &str,
    settings: &[(&String, &String)],
    texts: &[String],
) -> Result<()> {
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| !KEPT.contains(&name.to_ascii_lowercase().as_str()))
        .collect();
    if is_ordinary(connection, role).await? {
        return run_restricted(connection, role, &settings, texts).await;
    }
    let set = enter(connection, role, &settings).await?;
    for text in texts {
        connection.query_with(text, &[]).await?;
    }
    leave(connection, &set).await
}

/// Whether the role exists and is not a superuser.
async fn is_ordinary(connection: &mut Connection, role: &str) -> Result<bool> {
    let query = "select rolsuper from pg_catalog.pg_roles where rolname = $1";
    Ok(connection.query_with(query, &[Some(role)]).await?.value() == Some("f"))
}

/// Executes statements as the role in a security-restricted operation. DROP OWNED would drop the
/// operation's own view, so a member of the role that owns nothing else executes it.
async fn run_restricted(
    connection: &mut Connection,
    role: &str,
    settings: &[(&str, &str)],
    texts: &[String],
) -> Result<()> {
    let Some(text) = texts.first().and_then(|text| drop_owned_by_name(text, role)) else {
        return carry_out(connection, role, settings, texts).await;
    };
    let member = format!("hihooi_{}", connection.key().process);
    connection.query(&format!("CREATE ROLE {member} IN ROLE {}", quote(role))).await?;
    carry_out(connection, &member, settings, &[text]).await?;
    connection.query(&format!("DROP ROLE {member}")).await.map(drop)
}

/// A DROP OWNED with that role's name in place of CURRENT_USER and the like; `None` for other
/// statements.
fn drop_owned_by_name(text: &str, role: &str) -> Option<String> {
    const RUNNER: [&str; 4] = ["CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "USER"];
    let mut words = tokens(text).filter(|token| token.kind != TokenKind::Space);
    let mut is_next = |word: &str| words.next().is_some_and(|w| w.text.eq_ignore_ascii_case(word));
    let named = |token: Token<'_>| match token.kind {
        TokenKind::Word if RUNNER.contains(&token.text.to_ascii_uppercase().as_str()) => {
            quote(role)
        }
        _ => token.text.to_owned(),
    };
    (is_next("DROP") && is_next("OWNED")).then(|| tokens(text).map(named).collect())
}

/// Executes with the role as session user, too, as at the primary.
async fn carry_out(
    connection: &mut Connection,
    role: &str,
    settings: &[(&str, &str)],
    texts: &[String],
) -> Result<()> {
    let view = View::ddl(connection);
    for text in view.create(role) {
        connection.query(&text).await?;
    }
    connection.query_with(SET_WORK, &[Some(&work(settings, texts))]).await?;
    let set = enter(connection, role, settings).await?;
    connection.query(&view.refresh()).await.map_err(|error| told(error).1)?;
    leave(connection, &set).await?;
    connection.query(restricted::CLOSE).await?;
    connection.query(&view.drop()).await?;
    restricted::assert_nothing_temporary(connection).await
}

fn work(settings: &[(&str, &str)], texts: &[String]) -> String {
    let path = settings.iter().find(|(name, _)| name.eq_ignore_ascii_case("search_path"));
    let mut work = path.map_or_else(Work::default, |(_, path)| Work::with_path(path));
    texts.iter().for_each(|text| work.push(None, text.as_bytes()));
    String::from_utf8_lossy(&work.text()).into_owned()
}

/// Sets the role and the settings; returns the names of those that differed.
async fn enter(
    connection: &mut Connection,
    role: &str,
    settings: &[(&str, &str)],
) -> Result<Vec<String>> {
    const SET: &str = "select s.name, pg_catalog.set_config(s.name, s.value, true)
        from rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) s(name, value)
        where pg_catalog.current_setting(s.name, true) <> s.value";
    let list =
        |value: fn(&(&str, &str)) -> String| array(&settings.iter().map(value).collect::<Vec<_>>());
    let (names, values) = (list(|s| s.0.to_owned()), list(|s| s.1.to_owned()));
    let set = connection.query_with(SET, &[Some(&names), Some(&values)]).await?;
    connection.query(&format!("SET LOCAL SESSION AUTHORIZATION {}", quote(role))).await?;
    Ok(set.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

/// Back to the applier's own role and settings, those of its start-up packet.
async fn leave(connection: &mut Connection, settings: &[String]) -> Result<()> {
    let mut text = "SET LOCAL SESSION AUTHORIZATION DEFAULT".to_owned();
    for name in settings {
        text.push_str(&format!("; SET LOCAL {} TO DEFAULT", quote(name)));
    }
    connection.simple(&text).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::{differing_lines, drop_owned_by_name};

    #[test]
    fn who_drops_what_it_owns_is_named() {
        let text = "drop /* all */ OWNED by Current_User, session_user, \"user\", u CASCADE";
        let named = "drop /* all */ OWNED by \"a b\", \"a b\", \"user\", u CASCADE";
        assert_eq!(drop_owned_by_name(text, "a b").as_deref(), Some(named));
        assert_eq!(drop_owned_by_name("drop table current_user", "a"), None);
    }

    #[test]
    fn the_line_that_differs_is_told() {
        let words = differing_lines(
            "table t\ncolumn 1 a int\nowner x",
            "table t\ncolumn 1 a text\nowner x",
        );
        assert_eq!(words, "on the primary \"column 1 a int\", here \"column 1 a text\"");
        assert_eq!(differing_lines("a\nb", "a"), "on the primary \"b\", not here");
    }
}
