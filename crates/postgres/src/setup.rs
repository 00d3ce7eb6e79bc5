//! Creates hihooi's objects on the primary (schema, event triggers, publication, slot), and checks whether a
//! server meets the requirements.
//!
//! The order matters. Replica identities are set before the publication is created, which makes PostgreSQL
//! refuse UPDATE and DELETE on tables without one. The publication is created before the slot, since decoding
//! fails on changes that are older than the publication (manual, "Logical Decoding" and "Publication").
//! Afterwards replica identities are set once more, for tables of transactions that were open meanwhile.

use std::sync::LazyLock;
use std::time::Duration;

use hihooi_replication::ids::Lsn;

use crate::connection::{Answer, Connection, Error, Row};
use crate::identity;

/// Name of the slot.
pub const SLOT: &str = "hihooi";
/// Name of the publication.
pub const PUBLICATION: &str = "hihooi";
/// `application_name` of the collector's connection, by which an orphaned one is recognised.
pub const COLLECTOR_NAME: &str = "hihooi collector";

/// Oldest and newest major version that we know.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=18;
/// Stands in the schema's comment, with a hash of the scripts.
const SETUP_VERSION: &str = "hihooi set-up 2";
/// Making the slot waits for open writers; how long until we name them in the log.
const SLOT_TRY_MS: u64 = 5_000;
/// How often it is tried.
const SLOT_TRIES_MAX: u32 = 24;
/// How long a terminated reader of the slot may take to release it.
const FREE_SLOT_MS_MAX: u64 = 10_000;

/// Why a server can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A statement failed, or the connection.
    #[error(transparent)]
    Connection(#[from] Error),
    /// There is something that hihooi must not change; one line that says what to do.
    #[error("{0}")]
    Unfit(String),
}

type Result<T> = std::result::Result<T, SetupError>;

/// What [`install`] found or made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetUp {
    /// Whether the slot was made now: the log must be empty then.
    pub created: bool,
    /// The slot's confirmed position.
    pub slot_lsn: Lsn,
}

/// The remedy where nothing that is left can make replicas follow again.
pub const REBUILD: &str = "rebuild the replicas (hihooi rebuild)";

/// Something about a server that must or should be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Whether we can't work with it; otherwise only a warning.
    pub fatal: bool,
    /// One line: what is wrong and what to do.
    pub text: String,
}

/// Creates schema, event triggers, publication and slot where missing; sets replica identities.
/// Idempotent. `connection` is a superuser's, to the replicated database.
///
/// # Errors
/// [`SetupError`]; what was made so far stays and is used by the next try.
pub async fn install(connection: &mut Connection) -> Result<SetUp> {
    install_objects(connection).await?;
    set_identities(connection).await?;
    let slot = find_slot(connection).await?;
    let published = find_publication(connection).await?;
    match (slot, published) {
        (Some(_), false) => Err(SetupError::Unfit(format!(
            "slot {SLOT} exists but publication {PUBLICATION} does not, so changes were lost: {REBUILD}"
        ))),
        (Some(slot), true) => {
            publish_generated_columns(connection).await?;
            slot.usable(connection).await
        }
        (None, published) => {
            if !published {
                create_publication(connection).await?;
            }
            publish_generated_columns(connection).await?;
            let slot_lsn = create_slot(connection).await?;
            set_identities(connection).await?;
            Ok(SetUp { created: true, slot_lsn })
        }
    }
}

/// Whether copies of the primary's data directory can become its replicas.
///
/// # Errors
/// [`SetupError::Unfit`] if there are prepared transactions, which copies would hold for ever, or
/// tablespaces, which lie elsewhere.
pub async fn check_copyable(connection: &mut Connection) -> Result<()> {
    let prepared = connection.query("SELECT gid FROM pg_catalog.pg_prepared_xacts").await?;
    if let Some(gid) = prepared.value() {
        return Err(SetupError::Unfit(format!(
            "the primary has prepared transactions ({gid:?}), which copies of it would hold for ever: \
             COMMIT PREPARED or ROLLBACK PREPARED them first"
        )));
    }
    let asked = "SELECT spcname FROM pg_catalog.pg_tablespace WHERE spcname !~ '^pg_'";
    match connection.query(asked).await?.value() {
        None => Ok(()),
        Some(name) => Err(SetupError::Unfit(format!(
            "the primary has tablespaces ({name:?}), which can't be copied: move what is there to pg_default \
             and drop them"
        ))),
    }
}

/// Starts a new cluster on its primary: drops the slot, and gives the cluster another id, so that no
/// earlier log or replica is mistaken for one of the new cluster. [`install`] then creates what it needs.
/// `connection` is a superuser's; nobody else changes anything meanwhile.
///
/// # Errors
/// Those of the connection; the slot is read by somebody.
pub async fn forget_replicas(connection: &mut Connection) -> Result<()> {
    let text = format!(
        "SELECT pg_catalog.pg_drop_replication_slot(slot_name)
         FROM pg_catalog.pg_replication_slots WHERE slot_name = '{SLOT}'"
    );
    connection.query(&text).await?;
    Ok(identity::renew(connection).await?)
}

/// What describes objects and roles, at the primary and at replicas alike.
pub(crate) const DESCRIPTIONS: [&str; 2] =
    [include_str!("describe.sql"), include_str!("shared.sql")];
/// What the primary has beside them.
const NOTES: &str = include_str!("setup.sql");

/// Keeps others' event triggers from firing until [`SPEAK`], in one transaction: they know nothing of our
/// objects. (Whoever changes event triggers fires none.)
const HUSH: &str = "
    DO $$
    DECLARE
        name text;
    BEGIN
        PERFORM pg_catalog.set_config('hihooi.hushed', coalesce((
            SELECT pg_catalog.jsonb_object_agg(evtname, evtenabled)
            FROM pg_catalog.pg_event_trigger
            WHERE evtenabled <> 'D' AND evtname !~ '^[!~]hihooi_'), '{}')::text, true);
        FOR name IN
            SELECT pg_catalog.jsonb_object_keys(pg_catalog.current_setting('hihooi.hushed')::jsonb)
        LOOP
            EXECUTE pg_catalog.format('ALTER EVENT TRIGGER %I DISABLE', name);
        END LOOP;
    END
    $$;";
const SPEAK: &str = "
    DO $$
    DECLARE
        one record;
    BEGIN
        FOR one IN
            SELECT * FROM pg_catalog.jsonb_each_text(pg_catalog.current_setting('hihooi.hushed')::jsonb)
        LOOP
            EXECUTE pg_catalog.format('ALTER EVENT TRIGGER %I ENABLE %s', one.key,
                CASE one.value WHEN 'A' THEN 'ALWAYS' WHEN 'R' THEN 'REPLICA' END);
        END LOOP;
    END
    $$;";
/// Finds privileges on hihooi's objects that default privileges gave to roles: a role that can write a
/// note has a superuser's rights at replicas. (PUBLIC has the privileges that the scripts grant.)
const GIVEN: &str = "
    SELECT ours.name, acl.grantee::pg_catalog.regrole AS grantee
    FROM (SELECT 'SCHEMA hihooi', n.nspowner, n.nspacl
        FROM pg_catalog.pg_namespace n WHERE n.nspname = 'hihooi'
        UNION ALL
        SELECT pg_catalog.format('TABLE %s', c.oid::pg_catalog.regclass), c.relowner, c.relacl
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'hihooi'
        UNION ALL
        SELECT pg_catalog.format('ROUTINE %s', p.oid::pg_catalog.regprocedure), p.proowner, p.proacl
        FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'hihooi') ours(name, owner, acl),
        LATERAL (SELECT DISTINCT grantee FROM pg_catalog.aclexplode(ours.acl)) acl
    WHERE acl.grantee NOT IN (0, ours.owner)";

/// Revokes what [`GIVEN`] finds.
pub(crate) fn take_back() -> String {
    format!(
        "DO $$
        DECLARE
            given record;
        BEGIN
            FOR given IN {GIVEN} LOOP
                EXECUTE pg_catalog.format('REVOKE ALL ON %s FROM %s CASCADE', given.name, given.grantee);
            END LOOP;
        END
        $$;"
    )
}

/// Revokes rights that roles were given on our objects since those were made.
async fn keep_strangers_out(connection: &mut Connection) -> Result<()> {
    if connection.query(GIVEN).await?.rows.is_empty() {
        return Ok(());
    }
    run_whole(connection, &["BEGIN;", HUSH, &take_back(), SPEAK]).await
}

/// Runs parts of a transaction, which the first begins.
async fn run_whole(connection: &mut Connection, parts: &[&str]) -> Result<()> {
    let script = [parts, &["COMMIT"]].concat().join("\n");
    let done = connection.simple(&script).await;
    if done.is_err() {
        connection.simple("ROLLBACK").await?;
    }
    Ok(done.map(drop)?)
}

/// Drops our functions, of whatever version, and the event triggers that call them.
pub(crate) const DROP_ROUTINES: &str = "
    DO $$
    DECLARE
        routine pg_catalog.regprocedure;
    BEGIN
        FOR routine IN SELECT p.oid FROM pg_catalog.pg_proc p
            JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'hihooi'
        LOOP
            EXECUTE pg_catalog.format('DROP ROUTINE IF EXISTS %s CASCADE', routine);
        END LOOP;
    END
    $$;";

/// How many event triggers are ours.
const TRIGGERS: &str = "7";

/// The schema's comment if it was created by these scripts.
fn mark() -> String {
    let scripts = [DESCRIPTIONS[0], DESCRIPTIONS[1], NOTES, identity::TABLE].concat();
    format!("{SETUP_VERSION} {:016x}", xxhash_rust::xxh3::xxh3_64(scripts.as_bytes()))
}

/// The format of descriptions, which is part of each note: those of another format aren't compared.
#[must_use]
pub fn format() -> &'static str {
    static FORMAT: LazyLock<String> = LazyLock::new(|| {
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(DESCRIPTIONS.concat().as_bytes()))
    });
    &FORMAT
}

/// What is there of our schema and event triggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objects {
    /// All, and they work.
    Complete,
    /// What another version made.
    Other,
    /// Not all, or some are disabled: what DDL ran since isn't known.
    Damaged,
}

/// Looks for our schema and event triggers. (Nothing that a superuser does to event triggers fires any.)
///
/// # Errors
/// If the server can't be asked.
pub async fn objects(connection: &mut Connection) -> Result<Objects> {
    let found = connection
        .query(
            "SELECT pg_catalog.obj_description(n.oid, 'pg_namespace'),
                 (SELECT pg_catalog.count(*) FROM pg_catalog.pg_event_trigger
                  WHERE evtname ~ '^[!~]hihooi_' AND evtenabled = 'A')
             FROM pg_catalog.pg_namespace n WHERE n.nspname = 'hihooi'",
        )
        .await?;
    Ok(match found.rows.first() {
        Some(row) if text(row, 0) != mark() => Objects::Other,
        Some(row) if text(row, 1) == TRIGGERS => Objects::Complete,
        _ => Objects::Damaged,
    })
}

/// Makes our schema and event triggers where they are missing, or those of another version, whose event
/// triggers go with their functions; what the tables hold stays. `connection` is a superuser's, to the
/// replicated database.
///
/// # Errors
/// Those of the connection; nothing is changed then.
pub async fn install_objects(connection: &mut Connection) -> Result<()> {
    if objects(connection).await? == Objects::Complete {
        return keep_strangers_out(connection).await;
    }
    const BEGIN: &str = "BEGIN;
        SET LOCAL client_min_messages = warning;
        SET LOCAL check_function_bodies = off;
        SET LOCAL search_path = pg_catalog;
        DO $$
        DECLARE
            trigger name;
        BEGIN
            FOR trigger IN SELECT evtname FROM pg_event_trigger WHERE evtname ~ '^[!~]?hihooi_' LOOP
                EXECUTE format('DROP EVENT TRIGGER %I', trigger);
            END LOOP;
        END
        $$;";
    let comment = format!("COMMENT ON SCHEMA hihooi IS '{}';", mark());
    let [objects, roles] = DESCRIPTIONS;
    let identity = [identity::TABLE, identity::BEGIN].concat();
    let notes = NOTES.replace(":format", format());
    let before_notes = "SELECT pg_catalog.to_regclass('hihooi.ddl')";
    let is_early = connection.query(before_notes).await?.value().is_some();
    let schema = "CREATE SCHEMA IF NOT EXISTS hihooi;";
    let take_back = take_back();
    let ours = [schema, DROP_ROUTINES, &identity, objects, roles, &notes, &comment, &take_back];
    // (The second tells of the event triggers as they are behind it.)
    let (send, tell) =
        if is_early { (SEND_IDENTITIES, "SELECT hihooi.follow_shared();") } else { ("", "") };
    run_whole(connection, &[&[BEGIN, HUSH], &ours[..], &[send, SPEAK, tell]].concat()).await
}

/// Notes the identities that are our doing: versions without notes gave them to the primary's tables alone.
const SEND_IDENTITIES: &str = "
    SELECT hihooi.alter_unnoticed(
        pg_catalog.format('ALTER TABLE ONLY %s REPLICA IDENTITY FULL', c.oid::pg_catalog.regclass))
    FROM pg_catalog.pg_class c JOIN hihooi.identity h ON h.relation = c.oid
    WHERE c.relreplident = 'f';";

/// Table by table, so that never more than one is locked.
async fn set_identities(connection: &mut Connection) -> Result<()> {
    let found = connection
        .query(
            "SELECT c.oid FROM pg_catalog.pg_class c
             WHERE c.relkind IN ('r', 'p')
                 AND (SELECT wanted FROM hihooi.wanted_identity(c.oid)) IS NOT NULL",
        )
        .await?;
    for row in &found.rows {
        let oid = text(row, 0);
        connection.query_with("SELECT hihooi.set_identity($1::oid)", &[Some(oid)]).await?;
    }
    Ok(())
}

async fn find_publication(connection: &mut Connection) -> Result<bool> {
    let found = connection
        .query_with(
            "SELECT puballtables AND pubinsert AND pubupdate AND pubdelete AND pubtruncate
             FROM pg_catalog.pg_publication WHERE pubname = $1",
            &[Some(PUBLICATION)],
        )
        .await?;
    match found.value() {
        None => Ok(false),
        Some("t") => Ok(true),
        Some(_) => Err(SetupError::Unfit(format!(
            "publication {PUBLICATION} exists but does not publish everything of all tables; \
             drop it if it isn't needed"
        ))),
    }
}

async fn create_publication(connection: &mut Connection) -> Result<()> {
    let text = format!(
        "CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES
         WITH (publish = 'insert, update, delete, truncate')"
    );
    connection.query(&text).await?;
    Ok(())
}

/// Publishes stored generated columns: PostgreSQL 18 refuses UPDATE and DELETE of a table that has some and whose whole
/// rows are its identity otherwise.
async fn publish_generated_columns(connection: &mut Connection) -> Result<()> {
    let is_left_out = connection
        .query_with(
            "SELECT FROM pg_catalog.pg_publication p
             WHERE pubname = $1 AND pg_catalog.to_jsonb(p)->>'pubgencols' = 'n'",
            &[Some(PUBLICATION)],
        )
        .await?;
    if !is_left_out.rows.is_empty() {
        let text =
            format!("ALTER PUBLICATION {PUBLICATION} SET (publish_generated_columns = stored)");
        connection.query(&text).await?;
    }
    Ok(())
}

/// Creates the slot; waits for open transactions that write, and logs them if that takes long.
async fn create_slot(connection: &mut Connection) -> Result<Lsn> {
    for _ in 0..SLOT_TRIES_MAX {
        let text = format!(
            "SET statement_timeout = {SLOT_TRY_MS};
             SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot('{SLOT}', 'pgoutput');"
        );
        let made = connection.query(&text).await;
        connection.query("RESET statement_timeout").await?;
        match made {
            Ok(answer) => return lsn(answer.value().unwrap_or_default()),
            Err(error) if error.code() == Some("57014") => {
                let writers = open_writers(connection).await?;
                tracing::warn!("the creation of the slot waits for open transactions: {writers}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(SetupError::Unfit(format!(
        "the slot can't be created while these transactions are open; end them: {}",
        open_writers(connection).await?
    )))
}

async fn open_writers(connection: &mut Connection) -> Result<String> {
    let found = connection
        .query(
            "SELECT pg_catalog.string_agg(pg_catalog.format('pid %s of %s since %s: %s', pid,
                 usename, xact_start, pg_catalog.left(query, 80)), '; ')
             FROM pg_catalog.pg_stat_activity
             WHERE backend_xid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()",
        )
        .await?;
    let prepared = connection
        .query(
            "SELECT pg_catalog.string_agg(pg_catalog.format('prepared transaction %L', gid), '; ')
             FROM pg_catalog.pg_prepared_xacts",
        )
        .await?;
    let parts = [found.value(), prepared.value()];
    Ok(parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// The slot of our name as the server shows it.
struct Slot {
    plugin: String,
    database: String,
    wal_status: String,
    active_pid: Option<String>,
    confirmed: Option<String>,
}

impl Slot {
    fn problem(&self, database: &str) -> Option<String> {
        if self.plugin != "pgoutput" || self.database != database {
            Some(format!(
                "slot {SLOT} belongs to plugin {:?} and database {:?}, not to us; drop it if it \
                 isn't needed",
                self.plugin, self.database
            ))
        } else if self.wal_status == "lost" {
            Some(format!(
                "slot {SLOT} was invalidated because it held too much WAL \
                 (max_slot_wal_keep_size): {REBUILD}"
            ))
        } else {
            None
        }
    }

    async fn usable(self, connection: &mut Connection) -> Result<SetUp> {
        let database = current_database(connection).await?;
        if let Some(problem) = self.problem(&database) {
            return Err(SetupError::Unfit(problem));
        }
        let slot_lsn = lsn(self.confirmed.as_deref().unwrap_or_default())?;
        Ok(SetUp { created: false, slot_lsn })
    }
}

async fn current_database(connection: &mut Connection) -> Result<String> {
    let answer = connection.query("SELECT pg_catalog.current_database()").await?;
    Ok(answer.value().unwrap_or_default().to_owned())
}

async fn find_slot(connection: &mut Connection) -> Result<Option<Slot>> {
    let found = connection
        .query_with(
            "SELECT plugin, database, wal_status, active_pid, confirmed_flush_lsn
             FROM pg_catalog.pg_replication_slots WHERE slot_name = $1",
            &[Some(SLOT)],
        )
        .await?;
    Ok(found.rows.first().map(|row| Slot {
        plugin: text(row, 0).to_owned(),
        database: text(row, 1).to_owned(),
        wal_status: text(row, 2).to_owned(),
        active_pid: row.get(3).cloned().flatten(),
        confirmed: row.get(4).cloned().flatten(),
    }))
}

/// Terminates the process that reads the slot and waits until the slot is free. Returns its pid.
///
/// # Errors
/// [`SetupError::Unfit`] if the reader doesn't leave within 10 s.
pub async fn free_slot(connection: &mut Connection) -> Result<Option<i32>> {
    let started = tokio::time::Instant::now();
    let mut ended = None;
    loop {
        let Some(Slot { active_pid: Some(pid), .. }) = find_slot(connection).await? else {
            return Ok(ended);
        };
        if started.elapsed() > Duration::from_millis(FREE_SLOT_MS_MAX) {
            let text = format!("slot {SLOT} is still read by pid {pid} after we ended it");
            return Err(SetupError::Unfit(text));
        }
        ended = pid.parse().ok();
        let terminate = "SELECT pg_catalog.pg_terminate_backend($1::int)";
        connection.query_with(terminate, &[Some(&pid)]).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether the server is fit to be our primary: what must be changed, and what should be.
///
/// # Errors
/// If the server can't be asked.
pub async fn check(connection: &mut Connection) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let facts = Facts::ask(connection).await?;
    facts.version(&mut problems);
    facts.rights(&mut problems);
    facts.wal(&mut problems);
    let slot = find_slot(connection).await?;
    facts.room(slot.is_some(), &mut problems);
    if let Some(slot) = slot {
        let database = current_database(connection).await?;
        if let Some(text) = slot.problem(&database) {
            problems.push(Problem { fatal: true, text });
        }
        if let Some(pid) = slot.active_pid {
            let who = application_of(connection, &pid).await?;
            let text = format!(
                "slot {SLOT} is read by pid {pid} ({who}); stop that other hihooi, or end it with \
                 SELECT pg_terminate_backend({pid})"
            );
            problems.push(Problem { fatal: true, text });
        }
    }
    Ok(problems)
}

/// `application_name` of a backend; empty if it is gone.
pub(crate) async fn application_of(connection: &mut Connection, pid: &str) -> Result<String> {
    let asked = "SELECT application_name FROM pg_catalog.pg_stat_activity WHERE pid = $1::int";
    let answer: Answer = connection.query_with(asked, &[Some(pid)]).await?;
    Ok(answer.value().unwrap_or_default().to_owned())
}

/// Version, settings and role, as the server reports them.
struct Facts {
    row: Row,
}

impl Facts {
    async fn ask(connection: &mut Connection) -> Result<Facts> {
        let mut answer = connection
            .query(
                "SELECT pg_catalog.current_setting('server_version_num'),
                     pg_catalog.current_setting('wal_level'),
                     pg_catalog.current_setting('max_replication_slots')::int
                       - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots),
                     pg_catalog.current_setting('max_wal_senders')::int
                       - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
                     r.rolsuper, r.rolreplication, pg_catalog.pg_is_in_recovery(),
                     pg_catalog.current_setting('synchronous_commit'),
                     pg_catalog.current_setting('wal_writer_delay'),
                     pg_catalog.current_setting('fsync'), r.rolname
                 FROM pg_catalog.pg_roles r WHERE r.rolname = current_user",
            )
            .await?;
        Ok(Facts { row: answer.rows.pop().unwrap_or_default() })
    }

    fn get(&self, place: usize) -> &str {
        text(&self.row, place)
    }

    fn version(&self, problems: &mut Vec<Problem>) {
        let major = self.get(0).parse::<u32>().unwrap_or(0) / 10_000;
        let text = format!("PostgreSQL {major} is not supported: hihooi supports 14 to 18");
        if !VERSIONS.contains(&major) {
            problems.push(Problem { fatal: major < *VERSIONS.start(), text });
        }
    }

    fn rights(&self, problems: &mut Vec<Problem>) {
        let role = self.get(10);
        if self.get(4) != "t" {
            problems.push(fatal(format!("role {role} must be a superuser with REPLICATION")));
        } else if self.get(5) != "t" {
            problems.push(fatal(format!("ALTER ROLE {role} REPLICATION is needed")));
        }
        if self.get(6) == "t" {
            problems.push(fatal("the server is a standby, so it can't be the primary".to_owned()));
        }
    }

    fn wal(&self, problems: &mut Vec<Problem>) {
        if self.get(1) != "logical" {
            problems.push(fatal(format!(
                "wal_level is {}; ALTER SYSTEM SET wal_level = logical and restart the server",
                self.get(1)
            )));
        }
        if self.get(7) == "off" {
            let delay = self.get(8);
            problems.push(warning(format!(
                "synchronous_commit is off, so commits reach replicas only after wal_writer_delay \
                 ({delay}); set wal_writer_delay = 10ms or synchronous_commit = on"
            )));
        }
        if self.get(9) == "off" {
            let text = "fsync is off: a crash of the machine can lose or damage data";
            problems.push(warning(text.to_owned()));
        }
    }

    fn room(&self, has_slot: bool, problems: &mut Vec<Problem>) {
        let left = |place| self.get(place).parse::<i64>().unwrap_or(0);
        if !has_slot && left(2) < 1 {
            let text = "no replication slot is left; raise max_replication_slots and restart";
            problems.push(fatal(text.to_owned()));
        }
        if left(3) < 1 {
            let text = "no WAL sender is left; raise max_wal_senders and restart";
            problems.push(fatal(text.to_owned()));
        }
    }
}

fn fatal(text: String) -> Problem {
    Problem { fatal: true, text }
}

fn warning(text: String) -> Problem {
    Problem { fatal: false, text }
}

fn text(row: &Row, place: usize) -> &str {
    row.get(place).and_then(|value| value.as_deref()).unwrap_or_default()
}

fn lsn(text: &str) -> Result<Lsn> {
    text.parse().map_err(|error| SetupError::Unfit(format!("the server answered {error}")))
}
