//! One round of applying: from connecting to a replica until the connection is lost, the replica has diverged,
//! or the applier is requested to stop. Connects the pure schedule with connections, log and gate.
//!
//! An entry is committed when all entries before it are (I2), when it is durable in the log (I5), and when it
//! is visible at the primary (I3, rule (2)).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ahash::AHashMap;
use hihooi_replication::codec::KnownRelations;
use hihooi_replication::entry::{Change, Entry, Relation};
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::{Items, RelId};
use hihooi_replication::schedule::{Effect, Event, Limits, Schedule};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::catalog::Catalog;
use super::handle::{ApplierStatus, HoldState, Requested};
use super::running::Running;
use super::session::Session;
use super::standstill::{Standstill, Told};
use super::unseen::Recent;
use super::work::{Failure, Group, Refusal, Work, is_in_log};
use super::worker::{self, Order, Outcome};
use super::{Config, items, progress, set_aside};
use crate::collations;
use crate::connection::{Connection, Error, LOCK_NOT_AVAILABLE};
use crate::identity;
use crate::setup::REBUILD;
use crate::site::State;

/// Read from the log at once.
const READ_ENTRIES: usize = 128;
const READ_BYTES: usize = 1 << 20;
/// Decoded entries that wait; above, no more are read (I8).
const HELD_BYTES_MAX: usize = 8 << 20;
/// A replica this close to the end of the log serves.
const CLOSE_ENTRIES: u64 = 64;
/// So does one whose oldest missing entry is younger.
const CLOSE_MS: i64 = 100;
/// A serving replica that is this far behind, in entries, catches up again.
const BEHIND_ENTRIES: u64 = 5_000;
/// So many entries count a table as a whole after its other keys made two of them depend on each other.
const CONTENDED_ENTRIES: u64 = 1_000;
/// When the oldest group runs longer, it may wait for a younger one.
const OVERDUE: Duration = Duration::from_millis(5);
/// What waits for so long is no younger group's doing, and looked at less often.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// A statement that was cancelled has ended after so long, or its session is ended.
pub(super) const CANCEL_PATIENCE: Duration = Duration::from_millis(500);
/// How often the flushed position is asked for.
const FLUSHED_EVERY: Duration = Duration::from_secs(1);
/// From 1970 to 2000, PostgreSQL's epoch.
const EPOCH_2000_US: i64 = 946_684_800_000_000;

/// Why a round ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was requested to stop or to connect again.
    Requested,
    /// The connection is lost: connect again after a pause.
    Lost(String),
    /// The replica can't go on: an entry doesn't fit, or, without a refusal, the log is another one.
    Diverged(String, Option<Refusal>),
}

impl From<identity::Error> for End {
    fn from(error: identity::Error) -> End {
        // The right server may be put back there.
        End::Lost(error.to_string())
    }
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        match error.code() {
            Some(LOCK_NOT_AVAILABLE) => {
                End::Lost(format!("somebody has locked a system catalog at the replica: {error}"))
            }
            _ => End::Lost(error.to_string()),
        }
    }
}

/// One round.
pub(super) struct Round<'a> {
    config: &'a Config,
    status: &'a Arc<ApplierStatus>,
    hold_state: &'a watch::Sender<HoldState>,
    requested: Requested,
    control: Connection,
    catalog: Catalog,
    /// What decoding remembers of entries before.
    known: KnownRelations,
    /// Relations as the log described them last.
    relations: AHashMap<RelId, Arc<Relation>>,
    schedule: Schedule,
    /// Tables in which other keys than their identity's made entries depend on each other, and up to
    /// which entry they count as a whole.
    contended: AHashMap<RelId, Tsid>,
    /// The works of the schedule's entries, in order.
    works: VecDeque<Arc<Work>>,
    held_bytes: usize,
    /// An entry that could change anything is on its way: nothing behind it is looked at yet.
    barrier: bool,
    /// The replica's state was published in this round.
    is_published: bool,
    /// The entry at which the last round ended: before it is applied, the replica hasn't come back.
    refused_before: Tsid,
    generation: u64,
    orders: Vec<mpsc::Sender<Order>>,
    running: Vec<Arc<Running>>,
    processes: Vec<i32>,
    outcomes: mpsc::Receiver<(usize, Outcome)>,
    /// What went wrong last.
    refused: Option<Refusal>,
    /// An entry was applied that may have changed which tables are set aside.
    looks_at_set_aside: bool,
    /// Up to where may be committed at this moment.
    limit: watch::Receiver<Tsid>,
    durable: watch::Receiver<Tsid>,
    appended: watch::Receiver<Tsid>,
    /// When the oldest group is looked at for being blocked.
    overdue_at: Option<(Tsid, Instant)>,
    /// Since when it is the oldest.
    oldest_since: Instant,
    standstill: Standstill,
    /// Who was asked to end what holds it up, and when.
    asked: AHashMap<i32, Instant>,
    /// The workers, which own their connections.
    tasks: JoinSet<()>,
}

impl<'a> Round<'a> {
    /// Connects to the replica, takes the origins, and reads the applied position: in this order,
    /// since whoever else holds an origin may still commit. A session that holds them all and
    /// reads the position afterwards has seen the last commit of every other (I5).
    pub(super) async fn start(
        config: &'a Config,
        status: &'a Arc<ApplierStatus>,
        hold_state: &'a watch::Sender<HoldState>,
        (repaired, refused_before, is_last_try): (Tsid, Tsid, bool),
        recent: &Arc<Recent>,
    ) -> Result<Round<'a>, End> {
        let site = &config.replica.site;
        let login = progress::control_login(site, &config.database);
        let mut control = Connection::open(&login).await?;
        identity::take_replica(&mut control, &config.log, &site.name).await?;
        config.replica.set_unfit(collations::problem(&mut control, &config.log).await?);
        progress::end_orphans(&mut control).await?;
        for line in progress::prepare_replica(&mut control).await? {
            tracing::info!(site = site.name, "prepared: {line}");
        }
        set_aside::tell(&config.replica, &mut control).await?;
        progress::create_origins(&mut control, &config.origin, config.connections).await?;
        let (outcome_sender, outcomes) = mpsc::channel(config.connections * worker::ORDERS_LEN);
        let mut tasks = JoinSet::new();
        let (mut orders, mut processes) = (Vec::new(), Vec::new());
        let running: Vec<Arc<Running>> =
            (0..config.connections).map(|_| Arc::new(Running::new(config.max_delay))).collect();
        for number in 0..config.connections {
            let origin = format!("{}_{number}", config.origin);
            let log = config.log.clone();
            let running = Arc::clone(&running[number]);
            let session =
                Session::open(site, &config.database, &origin, log, repaired, recent, running)
                    .await?;
            let (sender, receiver) = mpsc::channel(worker::ORDERS_LEN);
            processes.push(session.process());
            orders.push(sender);
            tasks.spawn(worker::run(number, session, receiver, outcome_sender.clone()));
        }
        let applied = progress::position(&mut control, &config.origin, true).await?;
        check_position(config, applied)?;
        if is_last_try && applied < refused_before {
            set_aside::end_older_readers(&config.replica, &mut control).await?;
        }
        status.flushed.store(applied.0, Ordering::Release);
        let keeper = Connection::open(&login).await?;
        let prefix = config.origin.clone();
        tasks.spawn(keep_flushed(keeper, prefix, Arc::clone(status), outcome_sender));
        config.replica.begin_round(applied);
        let limits = Limits { workers: config.connections, ..Limits::default() };
        Ok(Round {
            config,
            status,
            hold_state,
            requested: Requested::default(),
            control,
            catalog: Catalog::default(),
            known: KnownRelations::default(),
            relations: AHashMap::new(),
            schedule: Schedule::new(config.method, limits, applied),
            contended: AHashMap::new(),
            works: VecDeque::new(),
            held_bytes: 0,
            barrier: false,
            is_published: false,
            refused_before,
            generation: 0,
            orders,
            running,
            processes,
            outcomes,
            refused: None,
            looks_at_set_aside: false,
            limit: config.replica.limit(),
            durable: config.log.durable(),
            appended: config.log.appended(),
            overdue_at: None,
            oldest_since: Instant::now(),
            standstill: Standstill::new(),
            asked: AHashMap::new(),
            tasks,
        })
    }

    /// The entry that is to be applied next, if it is there, and what functions run for it.
    pub(super) fn next(&self) -> Option<(Tsid, Option<Refusal>)> {
        let next = self.schedule.applied().next();
        let worker = self.schedule.oldest_executing();
        let awaited = worker.and_then(|worker| self.running[worker].awaited());
        (next <= *self.durable.borrow()).then_some((next, awaited))
    }

    /// Applies until the round ends.
    pub(super) async fn run(&mut self, requests: &mut watch::Receiver<Requested>) -> End {
        match self.apply(requests).await {
            Err(end) => end,
            Ok(never) => match never {},
        }
    }

    /// Ends the workers: when this returns, none of them sends anything more.
    pub(super) async fn end(mut self) {
        self.tasks.shutdown().await;
    }

    async fn apply(
        &mut self,
        requests: &mut watch::Receiver<Requested>,
    ) -> Result<std::convert::Infallible, End> {
        let mut visible = self.config.visibility.changes();
        self.limit.mark_changed();
        self.take(requests).await?;
        let mut tick = tokio::time::interval(FLUSHED_EVERY);
        loop {
            if self.limit.has_changed().unwrap_or(false) {
                let limit = *self.limit.borrow_and_update();
                self.step(Event::Limit(limit)).await?;
            }
            self.tell_set_aside().await?;
            self.feed().await?;
            self.open_gate().await?;
            self.publish();
            let overdue = self.overdue();
            tokio::select! {
                Some((worker, outcome)) = self.outcomes.recv() => {
                    self.outcome(worker, outcome).await?;
                    self.more_outcomes().await?;
                }
                changed = self.durable.changed() => {
                    changed.map_err(|_| End::Lost("the log is closed".to_owned()))?;
                }
                changed = self.appended.changed() => {
                    changed.map_err(|_| End::Lost("the log is closed".to_owned()))?;
                }
                _ = visible.changed() => {}
                _ = self.limit.changed() => self.limit.mark_changed(),
                changed = requests.changed() => {
                    let before = self.requested.restart;
                    self.take(requests).await?;
                    if changed.is_err() || self.requested.restart != before {
                        return Err(End::Requested);
                    }
                }
                () = sleep_until(overdue) => self.unblock().await?,
                _ = tick.tick() => self.explain().await?,
            }
        }
    }

    /// Takes what is requested. Until the next [`Round::publish`] the hold state says nothing about it.
    async fn take(&mut self, requests: &mut watch::Receiver<Requested>) -> Result<(), End> {
        self.show(HoldState::Applying);
        self.requested = requests.borrow_and_update().clone();
        if self.requested.stop {
            return Err(End::Requested);
        }
        self.step(Event::Hold(self.hold())).await
    }

    async fn more_outcomes(&mut self) -> Result<(), End> {
        while let Ok((worker, outcome)) = self.outcomes.try_recv() {
            self.outcome(worker, outcome).await?;
        }
        Ok(())
    }

    /// Where to stay, as wished.
    fn hold(&self) -> Option<Tsid> {
        if self.requested.paused { Some(Tsid::ZERO) } else { self.requested.limit }
    }

    fn wants_more(&self) -> bool {
        let is_there = self.schedule.newest() < *self.appended.borrow();
        let has_room = self.schedule.room() > 0 && self.held_bytes < HELD_BYTES_MAX;
        is_there && has_room && !self.barrier
    }

    /// Reads entries from the log into the schedule.
    async fn feed(&mut self) -> Result<(), End> {
        while self.wants_more() {
            // What the workers have to do is under way before more is read: the server works meanwhile.
            if !self.works.is_empty() {
                tokio::task::yield_now().await;
            }
            let from = self.schedule.newest().next();
            let most = self.schedule.room().min(READ_ENTRIES);
            let read = self.config.log.read(from, most, READ_BYTES).await;
            let entries = read.map_err(|error| log_end(&error))?;
            if entries.is_empty() {
                return Ok(());
            }
            let durable = *self.durable.borrow();
            for entry in entries {
                // Chunks can be read from the log only once they are on its disk.
                let is_early = is_in_log(&entry) && entry.header.tsid > durable;
                if self.barrier || is_early {
                    return Ok(());
                }
                self.arrive(entry).await?;
            }
        }
        Ok(())
    }

    async fn arrive(&mut self, entry: Arc<Entry>) -> Result<(), End> {
        let decoded = Work::new(entry, &mut self.known);
        let work = decoded.map_err(|error| End::Diverged(error, None))?;
        let items = self.items(&work).await?;
        self.barrier = items == Items::Everything;
        self.held_bytes += work.bytes;
        let event = Event::Arrived { items, bytes: work.bytes };
        self.works.push_back(Arc::new(work));
        self.step(event).await
    }

    /// What an entry writes.
    async fn items(&mut self, work: &Work) -> Result<Items, End> {
        // Of what an entry with DDL touches nothing is known before it ran.
        let Some(changes) = work.changes.as_ref().filter(|_| !work.header().has_ddl) else {
            return Ok(Items::Everything);
        };
        for change in changes {
            if let Change::Relation(relation) = change {
                self.catalog.table(relation, &mut self.control).await?;
                self.relations.insert(relation.id, Arc::clone(relation));
            }
        }
        // What comes behind it is to be read by who knows that.
        if self.brings_back(changes) {
            return Ok(Items::Everything);
        }
        let tsid = work.header().tsid;
        let is_contended = |id| self.contended.get(&id).is_some_and(|until| tsid <= *until);
        Ok(items::of(changes, is_contended))
    }

    /// Whether changes empty a table that is set aside.
    fn brings_back(&self, changes: &[Change]) -> bool {
        let set_aside = self.config.replica.set_aside();
        !set_aside.is_empty()
            && changes.iter().any(|change| match change {
                Change::Truncate { relations, .. } => {
                    relations.iter().any(|relation| set_aside.contains_key(relation))
                }
                _ => false,
            })
    }

    /// Tells the router which tables are set aside, if that may be others now.
    async fn tell_set_aside(&mut self) -> Result<(), End> {
        if std::mem::take(&mut self.looks_at_set_aside) {
            set_aside::tell(&self.config.replica, &mut self.control).await?;
        }
        Ok(())
    }

    /// Lets the schedule commit what the log holds durably and the primary shows.
    async fn open_gate(&mut self) -> Result<(), End> {
        let durable = *self.durable.borrow_and_update();
        let mut gate = self.schedule.gate().max(self.schedule.applied());
        let behind = usize::try_from(gate.0 - self.schedule.applied().0).unwrap_or(usize::MAX);
        for work in self.works.iter().skip(behind) {
            let header = work.header();
            if header.tsid > durable || !self.config.visibility.shows(header.xid) {
                break;
            }
            gate = header.tsid;
        }
        if gate > self.schedule.gate() {
            self.step(Event::Gate(gate)).await?;
        }
        if self.schedule.awaits_gate() && self.schedule.applied().next() <= durable {
            self.config.visibility.want();
        }
        Ok(())
    }

    async fn outcome(&mut self, worker: usize, outcome: Outcome) -> Result<(), End> {
        let event = match outcome {
            Outcome::Executed { is_net_refused } => {
                self.status.lock_stats().nets_refused += u64::from(is_net_refused);
                Event::Executed(worker)
            }
            Outcome::Aborted => Event::Aborted(worker),
            Outcome::Committed => {
                self.step(Event::Committed(worker)).await?;
                // The next group is on its way to the server before this one is cleared away.
                tokio::task::yield_now().await;
                self.committed();
                return Ok(());
            }
            Outcome::Failed(Failure::Lost(reason)) => return Err(End::Lost(reason)),
            Outcome::Failed(Failure::Refused(refusal)) => {
                let Refusal { tsid, reason, .. } = &refusal;
                tracing::debug!(site = self.config.replica.site.name, %tsid, reason, "refused");
                let tsid = *tsid;
                self.refused = Some(refusal);
                self.status.lock_stats().retries += 1;
                self.contend(tsid);
                Event::Failed(worker)
            }
        };
        self.step(event).await
    }

    /// Lets tables that an entry writes count as a whole for a while, if they have other keys than that of
    /// their identity: it was in another's way, and that may be why.
    fn contend(&mut self, tsid: Tsid) {
        let work = self.works.iter().find(|work| work.header().tsid == tsid);
        let changes = work.and_then(|work| work.changes.as_ref()).into_iter().flatten();
        let until = Tsid(self.schedule.newest().0 + CONTENDED_ENTRIES);
        for change in changes {
            if let Change::Relation(relation) = change
                && let Some(relation) = self.relations.get(&relation.id)
                && let Some(Some(table)) = self.catalog.known(relation)
                && table.has_other_keys
            {
                self.contended.insert(relation.id, until);
            }
        }
    }

    /// Clears away what is committed, and publishes that.
    fn committed(&mut self) {
        let applied = self.schedule.applied();
        let now = now_us();
        let mut stats = self.status.lock_stats();
        stats.transactions += 1;
        while self.works.front().is_some_and(|work| work.header().tsid <= applied) {
            let work = self.works.pop_front().expect("just looked at");
            self.held_bytes -= work.bytes;
            let latency = now - work.header().commit_time_us;
            stats.add(u64::try_from(latency).unwrap_or(0));
        }
        drop(stats);
        if self.barrier && self.works.is_empty() {
            self.barrier = false;
            self.generation += 1;
            self.catalog.clear();
            self.contended.clear();
            self.looks_at_set_aside = !self.config.replica.set_aside().is_empty();
        }
        self.config.replica.set_applied(applied);
    }

    async fn step(&mut self, event: Event) -> Result<(), End> {
        for effect in self.schedule.step(event) {
            match effect {
                Effect::Prepare { worker, first, last } => {
                    let group = self.group(first, last);
                    self.order(worker, Order::Prepare(group)).await?;
                }
                Effect::Execute { worker, first, last } => {
                    let group = self.group(first, last);
                    self.order(worker, Order::Execute(group)).await?;
                }
                Effect::Commit { worker, last } => {
                    self.config.replica.set_sent(last);
                    self.order(worker, Order::Commit).await?;
                }
                Effect::Abort { worker } => self.order(worker, Order::Abort).await?,
                Effect::Diverged(tsid) => return Err(self.diverged(tsid)),
            }
        }
        Ok(())
    }

    fn group(&self, first: Tsid, last: Tsid) -> Group {
        let front = self.works.front().map_or(first, |work| work.header().tsid);
        let index =
            |tsid: Tsid| usize::try_from(tsid.0 - front.0).expect("the window fits into memory");
        let works = self.works.range(index(first)..=index(last));
        Group { works: works.cloned().collect(), generation: self.generation }
    }

    async fn order(&self, worker: usize, order: Order) -> Result<(), End> {
        let gone = || End::Lost("a connection to the replica ended".to_owned());
        self.orders[worker].send(order).await.map_err(|_| gone())
    }

    fn diverged(&self, tsid: Tsid) -> End {
        let reason = match &self.refused {
            Some(Refusal { tsid, reason, .. }) => format!("entry {tsid}: {reason}"),
            None => format!("entry {tsid} can't be applied"),
        };
        End::Diverged(reason, self.refused.clone())
    }

    /// When to look whether the oldest group waits for a younger one's lock, which PostgreSQL
    /// can't see to be a deadlock.
    fn overdue(&mut self) -> Option<Instant> {
        self.schedule.oldest_executing()?;
        let oldest = self.schedule.applied().next();
        match self.overdue_at {
            Some((tsid, at)) if tsid == oldest => Some(at),
            _ => {
                self.oldest_since = Instant::now();
                self.asked.clear();
                let at = self.oldest_since + OVERDUE;
                self.overdue_at = Some((oldest, at));
                Some(at)
            }
        }
    }

    async fn unblock(&mut self) -> Result<(), End> {
        let oldest = self.schedule.applied().next();
        let waited = self.oldest_since.elapsed();
        let pause = if waited < LONG_WAIT { 4 * OVERDUE } else { LONG_WAIT / 4 };
        self.overdue_at = Some((oldest, Instant::now() + pause));
        let Some(worker) = self.schedule.oldest_executing() else { return Ok(()) };
        let blocking = self.blocking(self.processes[worker]).await?;
        for (other, process) in self.processes.clone().into_iter().enumerate() {
            if other != worker && blocking.contains(&process) {
                tracing::debug!(%oldest, "waits for a younger entry, which is rolled back");
                self.status.lock_stats().retries += 1;
                self.contend(oldest);
                self.step(Event::InTheWay(other)).await?;
            }
        }
        if waited >= self.config.max_delay {
            self.end_others(&blocking).await?;
        }
        if blocking.is_empty()
            && let Some(refusal) = self.running[worker].overdue(waited)
        {
            let reason = format!("entry {}: {}", refusal.tsid, refusal.reason);
            return Err(End::Diverged(reason, Some(refusal)));
        }
        Ok(())
    }

    /// Whom a process waits for, and whom those wait for, and so on: a younger group that executes can
    /// only be taken back when what it waits for itself was.
    async fn blocking(&mut self, process: i32) -> Result<Vec<i32>, End> {
        let query = "with recursive blocking(process) as (
                select pg_catalog.unnest(pg_catalog.pg_blocking_pids($1::int))
                union select pg_catalog.unnest(pg_catalog.pg_blocking_pids(process)) from blocking)
            select process from blocking";
        let answer = self.control.query_with(query, &[Some(&process.to_string())]).await?;
        Ok(answer.rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok()).collect())
    }

    /// Ends what others do at the replica that holds up applying, as standbys of PostgreSQL do
    /// (manual, "Handling Query Conflicts"): their statement, and if that was not enough, their session.
    async fn end_others(&mut self, blocking: &[i32]) -> Result<(), End> {
        let Config { replica, max_delay, .. } = self.config;
        // (0 means a prepared transaction, which only an operator can end.)
        for &process in blocking.iter().filter(|&process| *process != 0) {
            if self.processes.contains(&process) {
                continue;
            }
            let function = match self.asked.get(&process) {
                None => "pg_cancel_backend",
                Some(asked) if asked.elapsed() < CANCEL_PATIENCE => continue,
                Some(_) => "pg_terminate_backend",
            };
            replica.ends_session(process);
            self.asked.insert(process, Instant::now());
            let delay_ms = max_delay.as_millis();
            tracing::warn!(
                site = replica.site.name,
                process,
                delay_ms,
                function,
                "a session held up applying"
            );
            let query = format!("select pg_catalog.{function}($1)");
            self.control.query_with(&query, &[Some(&process.to_string())]).await?;
        }
        Ok(())
    }

    /// Reports why there is no progress, if entries have waited for long and applying wasn't stopped on request.
    async fn explain(&mut self) -> Result<(), End> {
        let next = self.schedule.applied().next();
        let may_apply = self.hold().is_none_or(|limit| next <= limit);
        let waits = may_apply && next <= *self.durable.borrow();
        let executing = self.schedule.oldest_executing();
        let made = executing.map_or(0, |worker| self.running[worker].made());
        let lasts = self.standstill.look(waits.then_some(next));
        let told = if self.standstill.moves(made) { Told::Progress } else { Told::Standstill };
        let Some(lasts) = lasts else {
            if self.standstill.tell(Told::Nothing) {
                self.is_published = false; // the reason is gone
            }
            return Ok(());
        };
        let why = match (executing, self.works.front()) {
            (Some(_), Some(work)) if told == Told::Progress => {
                format!("{made} of its {} changes are made", work.header().changes.max(made))
            }
            (Some(worker), _) => self.control.activity_of(self.processes[worker]).await?,
            (None, Some(work)) if !self.config.visibility.shows(work.header().xid) => {
                "it is not visible at the primary yet, or the primary can't be queried".to_owned()
            }
            (None, Some(_)) => {
                format!("{} transactions wait to be committed", self.schedule.waiting())
            }
            (None, None) => "it has not been read from the log yet".to_owned(),
        };
        let seconds = lasts.as_secs();
        let reason = format!("transaction {next} has been the next for {seconds} s: {why}");
        let replica = &self.config.replica;
        if self.standstill.tell(told) && told == Told::Standstill {
            tracing::warn!(site = replica.site.name, reason, "applying makes no progress");
        }
        replica.set_state(replica.apply_state(), reason);
        Ok(())
    }

    /// Publishes the replica's state.
    fn publish(&mut self) {
        let replica = &self.config.replica;
        let applied = self.schedule.applied();
        let end = (*self.durable.borrow()).max(self.schedule.newest());
        let lag = end.0.saturating_sub(applied.0);
        let oldest_ms =
            self.works.front().map_or(0, |work| (now_us() - work.header().commit_time_us) / 1000);
        let was = replica.apply_state();
        let is_close = lag <= CLOSE_ENTRIES || oldest_ms <= CLOSE_MS;
        let hold_state = self.hold_state(applied);
        let state = if self.requested.paused && hold_state != HoldState::Applying {
            State::Paused
        } else if is_close || (was == State::Serving && lag <= BEHIND_ENTRIES) {
            State::Serving
        } else {
            State::CatchingUp
        };
        let is_back = state == State::Paused || applied >= self.refused_before;
        if is_back && (state != was || !self.is_published) {
            replica.set_state(state, why(state));
            self.is_published = true;
        }
        self.show(hold_state);
    }

    fn show(&self, hold_state: HoldState) {
        self.hold_state.send_if_modified(|was| std::mem::replace(was, hold_state) != hold_state);
    }

    fn hold_state(&self, applied: Tsid) -> HoldState {
        match self.requested.limit {
            _ if self.schedule.is_committing() => HoldState::Applying,
            Some(limit) if applied >= limit => HoldState::Held { applied, limit },
            _ if self.requested.paused => HoldState::Stopped,
            _ => HoldState::Applying,
        }
    }
}

/// Why a replica that applies, or could, is in this state.
fn why(state: State) -> &'static str {
    match state {
        State::Paused => "PAUSE REPLICA was asked for; RESUME REPLICA ends it",
        State::CatchingUp => "it is applying earlier transactions",
        _ => "",
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether the log still holds what a replica at this position needs next.
fn check_position(config: &Config, applied: Tsid) -> Result<(), End> {
    let first = config.log.first();
    let last = config.log.last().map_or(Tsid(first.0 - 1), |header| header.tsid);
    if applied > last {
        let why = format!(
            "it has applied {applied}, but the log ends at {last}: it belongs to another log; \
             {REBUILD}"
        );
        return Err(End::Diverged(why, None));
    }
    if applied.next() < first {
        let why =
            format!("it has applied {applied}, but the log begins at {first} by now: {REBUILD}");
        return Err(End::Diverged(why, None));
    }
    Ok(())
}

fn log_end(error: &hihooi_log::Error) -> End {
    match error {
        hihooi_log::Error::Trimmed { .. } | hihooi_log::Error::Format(_) => {
            End::Diverged(format!("{error}: {REBUILD}"), None)
        }
        _ => End::Lost(error.to_string()),
    }
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX) - EPOCH_2000_US
}

/// Asks the replica once a second up to which entry it has flushed; the log is kept from there.
async fn keep_flushed(
    mut connection: Connection,
    origin: String,
    status: Arc<ApplierStatus>,
    outcomes: mpsc::Sender<(usize, Outcome)>,
) {
    loop {
        tokio::time::sleep(FLUSHED_EVERY).await;
        match progress::position(&mut connection, &origin, true).await {
            Ok(flushed) => status.flushed.store(flushed.0, Ordering::Release),
            Err(error) => {
                let lost = Outcome::Failed(Failure::Lost(error.to_string()));
                // The round may have ended for the same reason.
                let _ = outcomes.send((usize::MAX, lost)).await;
                return;
            }
        }
    }
}
