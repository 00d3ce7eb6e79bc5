//! The site manager of a data site: begins and commits transactions, applies the other sites' commits, releases
//! mastership and takes it over (DynaMast paper, sections III and V-A).
//!
//! Keeps I2 (by [`crate::refresh`]), one master per partition (by [`crate::mastership`]), I4 and the session
//! order of clients (freshness rules), I5 (nothing is visible before it is durable), I7 (a transaction that
//! waits holds nothing for which others wait).
//!
//! The shell reads from each log the position that [`Site::wanted`] names, and passes it in as
//! [`Event::Logged`]. It must accept [`Effect::Append`] only as the next number of its origin and only from the
//! site's present incarnation. It doesn't answer: the record arrives as an event.
//!
//! Departures:
//! - A commit becomes visible when its record arrives from the log, not before it is durable there, so what a
//!   reader saw is never lost with the site. Recovery then uses the same code.
//! - With [`Order::Total`] (the default) it is visible after all that precedes it in the shared
//!   log; see [`crate::refresh`] for why.
//! - The database must refuse, or have locked before the begin vector is taken, the second of two
//!   concurrent writers of one row (PostgreSQL's REPEATABLE READ does the former). The paper's
//!   write locks alone, taken after the begin vector, would lose an update.
//! - Idle transactions are ended after a time; otherwise a client that disappeared would keep a release waiting
//!   for ever.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{PartitionId, SiteId, Term, TxnId};
use crate::mastership::{Answer, Homes, Mastership};
use crate::record::{Body, Change, ChangeKind, Record};
use crate::refresh::{Order, Refresh};
use crate::vector::{ClientVector, SiteVector, TransactionVector};

/// Most transactions that run at a site at once; more are refused as busy.
pub const ACTIVE_MAX: usize = 10_000;
/// Most begins that wait for the site to be fresh enough; more are refused as busy.
pub const BEGINS_MAX: usize = 10_000;
/// Most partitions of one transaction's write set.
pub const WRITE_SET_MAX: usize = 1024;

/// What a site must know to start.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Which site this is.
    pub me: SiteId,
    /// How many sites there are, at most [`crate::ids::SITES_MAX`].
    pub sites: usize,
    /// How many partitions there are.
    pub partitions: u32,
    /// Where they are mastered at first.
    pub homes: Homes,
    /// In which order records become visible.
    pub order: Order,
    /// How long a begin waits for freshness, in milliseconds.
    pub begin_wait_ms_max: u64,
    /// How long a transaction may run before it asks to commit, in milliseconds.
    pub txn_ms_max: u64,
    /// After how long an append that did not come back is sent again, in milliseconds.
    pub append_retry_ms: u64,
}

impl SiteConfig {
    /// With the usual times: 1 s, 30 s, 100 ms.
    #[must_use]
    pub fn new(me: SiteId, sites: usize, partitions: u32, homes: Homes) -> SiteConfig {
        SiteConfig {
            me,
            sites,
            partitions,
            homes,
            order: Order::default(),
            begin_wait_ms_max: 1_000,
            txn_ms_max: 30_000,
            append_retry_ms: 100,
        }
    }
}

/// What happens to a site.
#[derive(Clone, Debug)]
pub enum Event<W> {
    /// A client begins a transaction.
    Begin {
        /// Its name.
        txn: TxnId,
        /// What its session has seen.
        seen: ClientVector,
        /// The least version it must run on (from the selector); zero for none.
        floor: SiteVector,
        /// The partitions that it may write; empty for a read-only transaction.
        partitions: Vec<PartitionId>,
    },
    /// A client commits; the database has found no conflict and holds the rows.
    Commit {
        /// Which.
        txn: TxnId,
        /// What it wrote; nothing if it only read.
        writes: Option<W>,
        /// The partitions that it wrote.
        touched: Vec<PartitionId>,
    },
    /// A client, or the database, gives the transaction up.
    Abort {
        /// Which.
        txn: TxnId,
    },
    /// A record has been read from a log.
    Logged {
        /// Its place in the log that its origin writes to, from 1.
        position: u64,
        /// The record.
        record: Record<W>,
    },
    /// The selector asks to give a partition away.
    Release {
        /// Which.
        partition: PartitionId,
        /// The term that shall end.
        term: Term,
        /// Who shall have it.
        to: SiteId,
    },
    /// The selector asks to take a partition over.
    Grant {
        /// The release that makes it free.
        release: Change,
    },
}

/// What a site wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<W> {
    /// The transaction runs, on this snapshot.
    Begun {
        /// Which.
        txn: TxnId,
        /// Its begin vector.
        snapshot: SiteVector,
    },
    /// The transaction does not run, or no longer.
    Refused {
        /// Which.
        txn: TxnId,
        /// Why.
        why: Refusal,
    },
    /// To the end of this site's log (or of the shared one).
    Append(Record<W>),
    /// Make these writes visible: of an own commit or of another site's.
    Apply {
        /// Whose.
        txn: TxnId,
        /// Its commit timestamp.
        vector: TransactionVector,
        /// What it wrote.
        writes: W,
    },
    /// Tell the client: it is committed, durable and visible here.
    Committed {
        /// Which.
        txn: TxnId,
        /// Its commit timestamp; none if it wrote nothing.
        vector: Option<TransactionVector>,
    },
    /// Tell the selector: the newest of a partition's mastership that is known here.
    Changed(Change),
}

/// Why a transaction does not run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// It would write what this site does not master, or is about to give away: ask the selector
    /// again.
    NotMaster,
    /// It wrote a partition that it had not declared.
    Undeclared,
    /// The site did not become fresh enough in time.
    NotFresh,
    /// The site reads its own log after a restart: no updates yet.
    Recovering,
    /// A bound is reached.
    Busy,
    /// It ran for too long without committing.
    TooLong,
}

#[derive(Debug)]
struct Active {
    partitions: Vec<PartitionId>,
    snapshot: SiteVector,
    deadline_ms: u64,
    state: ActiveState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ActiveState {
    Running,
    /// Its commit is on its way to the log; nothing can stop it.
    Committing,
}

#[derive(Debug)]
struct Begin {
    txn: TxnId,
    needs: SiteVector,
    partitions: Vec<PartitionId>,
    deadline_ms: u64,
}

/// A data site's manager. `W` is the database's set of writes.
#[derive(Debug)]
pub struct Site<W> {
    config: SiteConfig,
    svv: SiteVector,
    refresh: Refresh<W>,
    mastership: Mastership,
    /// At most [`ACTIVE_MAX`].
    active: BTreeMap<TxnId, Active>,
    /// In order of arrival, at most [`BEGINS_MAX`].
    begins: VecDeque<Begin>,
    /// Releases to take over once they are applied here; at most one a partition.
    grants: BTreeMap<PartitionId, Change>,
    /// Appended and not yet back from the log; at most one for each active transaction and
    /// partition.
    unlogged: VecDeque<Record<W>>,
    /// The number of the last own record: what the log held at the start, then those appended.
    last_number: u64,
    /// Own records that the log held at the start; updates begin when all are applied.
    recover_until: u64,
    now_ms: u64,
    appended_ms: u64,
}

impl<W: Clone> Site<W> {
    /// A new site of a new cluster, nothing logged anywhere.
    #[must_use]
    pub fn new(config: SiteConfig) -> Site<W> {
        let mastership =
            Mastership::at_homes(config.me, config.sites, config.partitions, &config.homes);
        let svv = SiteVector::zero(config.sites);
        Site::resume(config, mastership, svv, 0, 0)
    }

    /// A site whose data stands at `svv` (and at `position` of the shared log), and whose own
    /// log holds `own_records`.
    pub(crate) fn resume(
        config: SiteConfig,
        mastership: Mastership,
        svv: SiteVector,
        position: u64,
        own_records: u64,
    ) -> Site<W> {
        Site {
            refresh: Refresh::new(config.order, &svv, position),
            config,
            svv,
            mastership,
            active: BTreeMap::new(),
            begins: VecDeque::new(),
            grants: BTreeMap::new(),
            unlogged: VecDeque::new(),
            last_number: own_records,
            recover_until: own_records,
            now_ms: 0,
            appended_ms: 0,
        }
    }

    /// The site's version vector.
    #[must_use]
    pub fn vector(&self) -> &SiteVector {
        &self.svv
    }

    /// What it masters.
    #[must_use]
    pub fn mastership(&self) -> &Mastership {
        &self.mastership
    }

    /// The next position that it wants of the log that `origin` writes to, from 1.
    #[must_use]
    pub fn wanted(&self, origin: SiteId) -> u64 {
        self.refresh.wanted(origin)
    }

    /// Still reads its own log after a restart.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.svv.get(self.config.me) < self.recover_until
    }

    /// How many transactions run.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Something happened.
    pub fn step(&mut self, event: Event<W>) -> Vec<Effect<W>> {
        let mut out = Vec::new();
        match event {
            Event::Begin { txn, seen, mut floor, partitions } => {
                floor.raise_to_client(&seen);
                let deadline_ms = self.now_ms + self.config.begin_wait_ms_max;
                self.begin(Begin { txn, needs: floor, partitions, deadline_ms }, &mut out);
            }
            Event::Commit { txn, writes, touched } => self.commit(txn, writes, &touched, &mut out),
            Event::Abort { txn } => self.abort(txn, &mut out),
            Event::Logged { position, record } => {
                self.refresh.receive(position, record);
                self.settle(&mut out);
            }
            Event::Release { partition, term, to } => self.release(partition, term, to, &mut out),
            Event::Grant { release } => self.grant(release, &mut out),
        }
        out
    }

    /// Time has passed: it is `now_ms` milliseconds. Ends what took too long and sends appends
    /// again that did not come back.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect<W>> {
        self.now_ms = now_ms;
        let mut out = Vec::new();
        self.expire_begins(&mut out);
        self.expire_active(&mut out);
        if now_ms >= self.appended_ms + self.config.append_retry_ms {
            self.appended_ms = now_ms;
            out.extend(self.unlogged.iter().cloned().map(Effect::Append));
        }
        out
    }

    fn begin(&mut self, begin: Begin, out: &mut Vec<Effect<W>>) {
        let known =
            |txn| self.active.contains_key(&txn) || self.begins.iter().any(|b| b.txn == txn);
        if known(begin.txn) || begin.needs.sites() != self.config.sites {
            return;
        }
        if let Some(why) = self.refusal(&begin) {
            out.push(Effect::Refused { txn: begin.txn, why });
        } else if self.svv.covers(&begin.needs) {
            self.run(begin, out);
        } else {
            self.begins.push_back(begin);
        }
    }

    fn refusal(&self, begin: &Begin) -> Option<Refusal> {
        if self.begins.len() >= BEGINS_MAX
            || self.active.len() >= ACTIVE_MAX
            || begin.partitions.len() > WRITE_SET_MAX
        {
            return Some(Refusal::Busy);
        }
        if begin.partitions.is_empty() {
            return None;
        }
        if self.is_recovering() {
            return Some(Refusal::Recovering);
        }
        let mastered = begin.partitions.iter().all(|p| self.mastership.may_write(*p));
        (!mastered).then_some(Refusal::NotMaster)
    }

    fn run(&mut self, mut begin: Begin, out: &mut Vec<Effect<W>>) {
        begin.partitions.sort_unstable();
        begin.partitions.dedup();
        self.mastership.enter(&begin.partitions);
        let active = Active {
            partitions: begin.partitions,
            snapshot: self.svv.clone(),
            deadline_ms: self.now_ms + self.config.txn_ms_max,
            state: ActiveState::Running,
        };
        out.push(Effect::Begun { txn: begin.txn, snapshot: active.snapshot.clone() });
        self.active.insert(begin.txn, active);
    }

    fn commit(
        &mut self,
        txn: TxnId,
        writes: Option<W>,
        touched: &[PartitionId],
        out: &mut Vec<Effect<W>>,
    ) {
        let Some(active) = self.active.get_mut(&txn) else { return };
        if active.state == ActiveState::Committing {
            return;
        }
        if touched.iter().any(|p| active.partitions.binary_search(p).is_err()) {
            out.push(Effect::Refused { txn, why: Refusal::Undeclared });
            return self.end(txn, out);
        }
        let Some(writes) = writes else {
            out.push(Effect::Committed { txn, vector: None });
            return self.end(txn, out);
        };
        active.state = ActiveState::Committing;
        let snapshot = active.snapshot.clone();
        self.append(&snapshot, Body::Commit { txn, writes }, out);
    }

    fn abort(&mut self, txn: TxnId, out: &mut Vec<Effect<W>>) {
        self.begins.retain(|begin| begin.txn != txn);
        if self.active.get(&txn).is_some_and(|active| active.state == ActiveState::Running) {
            self.end(txn, out);
        }
    }

    /// The transaction is over: its partitions lose a writer.
    fn end(&mut self, txn: TxnId, out: &mut Vec<Effect<W>>) {
        let Some(active) = self.active.remove(&txn) else { return };
        for (partition, term, to) in self.mastership.leave(&active.partitions) {
            self.append_at_present(Body::Release { partition, term, to }, out);
        }
    }

    fn release(
        &mut self,
        partition: PartitionId,
        term: Term,
        to: SiteId,
        out: &mut Vec<Effect<W>>,
    ) {
        if self.is_recovering() || to.index() >= self.config.sites {
            return;
        }
        match self.mastership.release(partition, term, to) {
            Answer::Log => self.append_at_present(Body::Release { partition, term, to }, out),
            Answer::Known(change) => out.push(Effect::Changed(change)),
            Answer::Later => {}
        }
    }

    /// Takes over, once this site has applied the release, and with it all that the releasing
    /// site had.
    fn grant(&mut self, release: Change, out: &mut Vec<Effect<W>>) {
        let for_me = release.kind == ChangeKind::Released { to: self.config.me };
        if self.is_recovering() || !for_me || release.partition.0 >= self.config.partitions {
            return;
        }
        if !self.svv.shows(&release.vector) {
            let kept = self.grants.entry(release.partition).or_insert_with(|| release.clone());
            if kept.order() < release.order() {
                *kept = release;
            }
            return;
        }
        match self.mastership.grant(&release) {
            Answer::Log => {
                let (partition, term) = (release.partition, release.term.next());
                self.append_at_present(Body::Grant { partition, term }, out);
            }
            Answer::Known(change) => out.push(Effect::Changed(change)),
            Answer::Later => {}
        }
    }

    fn append_at_present(&mut self, body: Body<W>, out: &mut Vec<Effect<W>>) {
        let present = self.svv.clone();
        self.append(&present, body, out);
    }

    fn append(&mut self, begin: &SiteVector, body: Body<W>, out: &mut Vec<Effect<W>>) {
        self.last_number += 1;
        let vector = TransactionVector::commit(begin, self.config.me, self.last_number);
        let record = Record { vector, body };
        self.unlogged.push_back(record.clone());
        out.push(Effect::Append(record));
    }

    /// Applies all that may be applied, and lets go on what waited for it.
    fn settle(&mut self, out: &mut Vec<Effect<W>>) {
        while let Some(record) = self.refresh.next(&self.svv) {
            self.apply(record, out);
        }
        self.take_due_grants(out);
        self.run_due_begins(out);
    }

    fn apply(&mut self, record: Record<W>, out: &mut Vec<Effect<W>>) {
        let mine = record.vector.origin() == self.config.me;
        self.svv.advance(record.vector.origin());
        if mine {
            self.unlogged.pop_front();
        }
        if let Some(change) = record.change() {
            self.mastership.observe(&change);
            if mine {
                out.push(Effect::Changed(change));
            }
        }
        if let Body::Commit { txn, writes } = record.body {
            let vector = record.vector;
            out.push(Effect::Apply { txn, vector: vector.clone(), writes });
            if mine && self.active.contains_key(&txn) {
                out.push(Effect::Committed { txn, vector: Some(vector) });
                self.end(txn, out);
            }
        }
    }

    fn take_due_grants(&mut self, out: &mut Vec<Effect<W>>) {
        let due: Vec<PartitionId> = (self.grants.iter())
            .filter(|(_, release)| self.svv.shows(&release.vector))
            .map(|(partition, _)| *partition)
            .collect();
        for partition in due {
            if let Some(release) = self.grants.remove(&partition) {
                self.grant(release, out);
            }
        }
    }

    fn run_due_begins(&mut self, out: &mut Vec<Effect<W>>) {
        let waiting = std::mem::take(&mut self.begins);
        for begin in waiting {
            self.begin(begin, out);
        }
    }

    fn expire_begins(&mut self, out: &mut Vec<Effect<W>>) {
        let now_ms = self.now_ms;
        self.begins.retain(|begin| {
            let in_time = now_ms < begin.deadline_ms;
            if !in_time {
                out.push(Effect::Refused { txn: begin.txn, why: Refusal::NotFresh });
            }
            in_time
        });
    }

    fn expire_active(&mut self, out: &mut Vec<Effect<W>>) {
        let now_ms = self.now_ms;
        let late =
            |active: &Active| active.state == ActiveState::Running && now_ms >= active.deadline_ms;
        let ended: Vec<TxnId> =
            self.active.iter().filter(|(_, a)| late(a)).map(|(txn, _)| *txn).collect();
        for txn in ended {
            out.push(Effect::Refused { txn, why: Refusal::TooLong });
            self.end(txn, out);
        }
    }
}
