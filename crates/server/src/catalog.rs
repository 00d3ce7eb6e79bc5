//! The catalog that is used to analyse statements: read at the start, and again after DDL.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::apply::visibility::Snapshot;
use hihooi_postgres::connection::{
    Connection, Error, GIVE_WAY, INTERNAL_ERROR, LOCK_NOT_AVAILABLE, Result,
};
use hihooi_sql::Catalog;
use hihooi_sql::catalog_builder::{Builder, Builtins};
use hihooi_sql::catalog_queries::{
    BUILTINS, BUILTINS_STATE, CatalogQuery, PRIMARY_ONLY, QUERIES, READ_BROKEN, READ_LOCKED,
    SETTINGS, UNPRINTABLE,
};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::objects::NamedObjects;
use crate::relay::Relay;
use hihooi_session::sites::SiteId;

/// After a failure at the primary.
const RETRY: Duration = Duration::from_millis(200);
/// When the catalog couldn't be read so often (10 s), the log says so. (What a client has locked, or changes
/// at this moment, can be read at the next.)
const FAILURES_TOLD: u32 = 40;
/// The catalog is read when no DDL came for so long, ...
const QUIET: Duration = Duration::from_millis(50);
/// ... and after so long, if there is no end to it: until then tables count as written whole.
const UNREAD_MAX: Duration = Duration::from_secs(1);
/// Between two looks whether the primary shows a change of the schema.
const SHOWN_EVERY: Duration = Duration::from_millis(2);
/// Between two looks whether what made code count as unknown is still so.
const UNKNOWN_EVERY: Duration = Duration::from_millis(200);

/// Objects that replicas don't have, since they hang on something temporary. They go without a word when a session ends.
const READ_HANGING: &str =
    "SELECT object FROM hihooi.hanging h WHERE hihooi.is_temporary(h.class, h.object)";

/// Reads the catalog at the start and whenever the stream brought DDL.
pub async fn keep(relay: Rc<Relay>, reload: Rc<Notify>) {
    let (mut version, mut failures) = (0, 0);
    let mut session = None;
    loop {
        version += 1;
        let (changes, changed_by) = relay.catalog_changes();
        match load(&relay, &mut session, version, changed_by).await {
            Ok((catalog, named)) => {
                if relay.catalog_failure.take().is_some() {
                    info!("the catalog was read");
                }
                failures = 0;
                let is_whole = session.as_ref().is_some_and(Session::has_read_all);
                let former = relay.set_catalog(catalog, named, changes, is_whole);
                spawn_blocking(|| drop(former));
                relay.changed.notify_waiters();
                until_changed(&relay, &reload, &mut session).await;
            }
            Err(error) => {
                failures += 1;
                if failures == FAILURES_TOLD {
                    warn!(%error, "the catalog can't be read; reads stay on the primary");
                }
                if failures >= FAILURES_TOLD {
                    relay.catalog_failure.replace(Some(error.to_string()));
                }
                session = None;
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// DDL seldom comes alone, and reading the catalog costs the primary more than most of it does: waits until no
/// more comes, or somebody waits for it.
async fn until_quiet(relay: &Relay, reload: &Notify) {
    let began = tokio::time::Instant::now();
    while began.elapsed() < UNREAD_MAX {
        tokio::select! {
            biased;
            () = relay.catalog_wanted.notified() => return,
            () = reload.notified() => {}
            () = tokio::time::sleep(QUIET) => return,
        }
    }
}

/// Waits for DDL, or until something that counted as unknown when the catalog was read does so no more.
async fn until_changed(relay: &Relay, reload: &Notify, session: &mut Option<Session>) {
    let mut session = session.as_mut().filter(|session| session.knows_not_all());
    loop {
        tokio::select! {
            () = reload.notified() => return until_quiet(relay, reload).await,
            () = tokio::time::sleep(UNKNOWN_EVERY), if session.is_some() => {}
        }
        // If it can't be told, the next reading does.
        if let Some(session) = &mut session
            && !session.knows_as_little().await.unwrap_or(false)
        {
            return;
        }
    }
}

/// A session at the primary, and what it knows from reading the catalog before.
struct Session {
    connection: Connection,
    /// Objects whose definitions aren't read, by their OIDs, since others lock what they refer to.
    locked: BTreeSet<u32>,
    /// Those whose definitions PostgreSQL can't print, since what they refer to is gone. Only DDL mends them.
    broken: BTreeSet<u32>,
    /// Objects that replicas don't have.
    hanging: BTreeSet<u32>,
    /// PostgreSQL's own functions, and what [`BUILTINS_STATE`] answered for them.
    builtins: Option<(Option<String>, Arc<Builtins>)>,
}

impl Session {
    async fn open(relay: &Relay) -> Result<Session> {
        let login = relay.login(SiteId::Primary, "hihooi catalog").with_all(&SETTINGS);
        let mut connection = Connection::open(&login).await?;
        connection.query(&format!("BEGIN; {GIVE_WAY}")).await?;
        // Planned once: that takes as long as asking.
        for (number, question) in QUERIES.iter().enumerate() {
            connection.query(&format!("PREPARE hihooi_{number} AS {}", question.sql)).await?;
        }
        NamedObjects::prepare(&mut connection).await?;
        connection.query("COMMIT").await?;
        Ok(Session {
            connection,
            locked: BTreeSet::new(),
            broken: BTreeSet::new(),
            hanging: BTreeSet::new(),
            builtins: None,
        })
    }

    /// Whether no object was locked.
    fn has_read_all(&self) -> bool {
        self.locked.is_empty()
    }

    fn knows_not_all(&self) -> bool {
        !self.locked.is_empty() || !self.hanging.is_empty()
    }

    /// Whether everything is still unknown that was.
    async fn knows_as_little(&mut self) -> Result<bool> {
        Ok(self.find(READ_LOCKED).await?.is_superset(&self.locked)
            && self.find(READ_HANGING).await?.is_superset(&self.hanging))
    }

    /// The OIDs that a query returns.
    async fn find(&mut self, query: &str) -> Result<BTreeSet<u32>> {
        let answer = self.connection.query(query).await?;
        let numbers = answer.rows.iter().flatten().flatten().map(|number| number.parse());
        let numbers: std::result::Result<_, _> = numbers.collect();
        numbers.map_err(|_| Error::Protocol("an OID that is no number".to_owned()))
    }

    /// The same as [`Session::read`], with everything's names. What is locked doesn't hold it up for long, and what is broken
    /// doesn't at all: the code of these objects counts as unknown.
    async fn read_unlocked(&mut self) -> Result<(Builder, Vec<Answered>, NamedObjects)> {
        if !self.has_read_all() {
            self.locked = self.find(READ_LOCKED).await?;
        }
        if !self.broken.is_empty() {
            self.broken = self.find(READ_BROKEN).await?;
        }
        loop {
            // One snapshot, so that what refers to each other fits together. Printing definitions locks what they refer to,
            // one after the other (I7).
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            self.connection.query(&format!("{begin}; {GIVE_WAY}")).await?;
            self.hanging = self.find(READ_HANGING).await?;
            let set = |name: &str, objects: &BTreeSet<u32>| {
                let objects: Vec<_> = objects.iter().map(u32::to_string).collect();
                format!("SET LOCAL {name} = '{{{}}}'", objects.join(","))
            };
            let unprintable = set(UNPRINTABLE, &(&self.locked | &self.broken));
            let hanging = set(PRIMARY_ONLY, &self.hanging);
            self.connection.query(&format!("{unprintable}; {hanging}")).await?;
            match self.read().await {
                Ok((builder, answers)) => {
                    let named = NamedObjects::read(&mut self.connection).await?;
                    self.connection.query("COMMIT").await?;
                    return Ok((builder, answers, named));
                }
                Err(error) => {
                    let is_locked = match error.code() {
                        Some(LOCK_NOT_AVAILABLE) => true,
                        Some(INTERNAL_ERROR) => false,
                        _ => return Err(error),
                    };
                    self.connection.query("ROLLBACK").await?;
                    let found =
                        self.find(if is_locked { READ_LOCKED } else { READ_BROKEN }).await?;
                    let known = if is_locked { &mut self.locked } else { &mut self.broken };
                    if found == *known {
                        return Err(error); // a locked system catalog, for example
                    }
                    *known = found;
                }
            }
        }
    }

    /// What the whole catalog is made of, in the snapshot of the transaction that is open.
    async fn read(&mut self) -> Result<(Builder, Vec<Answered>)> {
        let state = self.connection.query(BUILTINS_STATE).await?.value().map(str::to_owned);
        let known = self.builtins.take().filter(|(known, _)| *known == state);
        let builtins = match known {
            Some((_, builtins)) => builtins,
            None => {
                let mut builder = Builder::default();
                self.ask(BUILTINS.sql, &BUILTINS).await?.add_to(&mut builder)?;
                builder.builtins()
            }
        };
        let builder = Builder::with_builtins(builtins.clone());
        self.builtins = Some((state, builtins));
        let mut answers = Vec::with_capacity(QUERIES.len());
        for (number, question) in QUERIES.iter().enumerate() {
            answers.push(self.ask(&format!("EXECUTE hihooi_{number}"), question).await?);
        }
        Ok((builder, answers))
    }

    async fn ask(&mut self, sql: &str, question: &'static CatalogQuery) -> Result<Answered> {
        Ok(Answered { question, rows: self.connection.query(sql).await?.rows })
    }
}

/// The answer to a question.
struct Answered {
    question: &'static CatalogQuery,
    rows: Vec<Vec<Option<String>>>,
}

impl Answered {
    fn add_to(self, builder: &mut Builder) -> Result<()> {
        let Answered { question, rows } = self;
        for row in rows {
            let row: Vec<Option<&str>> = row.iter().map(Option::as_deref).collect();
            (question.read)(builder, &row)
                .map_err(|bad| Error::Protocol(format!("{}: {bad}", question.name)))?;
        }
        Ok(())
    }
}

/// The catalog, made of the answers.
fn build(mut builder: Builder, answers: Vec<Answered>, version: u64) -> Result<Catalog> {
    for answer in answers {
        answer.add_to(&mut builder)?;
    }
    Ok(builder.build(version))
}

async fn load(
    relay: &Relay,
    session: &mut Option<Session>,
    version: u64,
    changed_by: Option<u32>,
) -> Result<(Catalog, NamedObjects)> {
    let session = match session {
        Some(session) => session,
        None => session.insert(Session::open(relay).await?),
    };
    // The stream may be ahead of what the primary shows.
    while let Some(xid) = changed_by {
        let answer = session.connection.query("SELECT pg_catalog.pg_current_snapshot()").await?;
        let snapshot = answer.value().and_then(Snapshot::parse);
        if snapshot.is_some_and(|snapshot| snapshot.sees(snapshot.widen(xid))) {
            break;
        }
        tokio::time::sleep(SHOWN_EVERY).await;
    }
    let (builder, answers, named) = session.read_unlocked().await?;
    // For thousands of tables it takes many milliseconds: not on the thread that serves everybody.
    let catalog = spawn_blocking(move || build(builder, answers, version)).await;
    Ok((catalog.map_err(|failed| Error::Protocol(failed.to_string()))??, named))
}
