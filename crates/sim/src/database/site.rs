//! A site of a replicated database by certification. A transaction runs at one site on its snapshot; its
//! attempt to commit goes to the total-order log; every site processes the attempts in that order, lets its
//! certifier decide, and applies the writes of those that commit (RSSI paper, section 3.3). The client is
//! answered when its own site has decided.
//!
//! - I2: a snapshot is the state after a prefix of the log.
//! - I5: the journal holds each commit with its position; after a crash the site takes the log
//!   from its beginning through a new certifier and applies what its journal lacks. An attempt
//!   that was ordered twice counts once.
//! - All sites make the same decisions: the verdict at each position is declared as a fact on which all must
//!   agree.
//!
//! Departures: read sets are sent through the log (GDCP avoids that); sites keep the whole log.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use ahash::AHashSet;
use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::items::{Read, Write};
use hihooi_certify::certification::planted::PlantedRssi;
use hihooi_certify::certification::rsi::Rsi;
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::vdbsm::Vdbsm;
use hihooi_certify::certification::{
    Certifier, Decision, Limits, Lsv, SiteId, Timestamp, Transaction, TxnId,
};

use crate::database::engine::{Change, Element, Engine};
use crate::database::transaction::{Answer, Executed, Work, execute};
use crate::{Boot, CallId, Effects, Event, LogId, Node, NodeId, Position, Time};

/// The one log.
pub const LOG: LogId = LogId(0);
/// How long a site waits for its attempt to come back before it appends it again.
const AGAIN_US: u64 = 15_000;
/// More transactions than this at a site at a time: further requests stay unanswered.
const LOCALS_MAX: usize = 1_000;

/// A mistake to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// All is right.
    Nothing,
    /// Certification is not told what was read.
    ReadSetIgnored,
    /// Certification is not told what was written.
    WriteSetIgnored,
    /// Certification is told of the rows that were read, not of the predicates.
    PhantomsIgnored,
    /// Versions that were overwritten, but not read, don't count towards lsv.
    LsvOfReadsOnly,
    /// Site 1 swaps some attempts with their successors.
    OrderSwapped,
    /// The journal gets the position before the writes, so that a crash can come between.
    TornApply,
    /// The second half of a transaction's reads is of a later snapshot.
    NotAPrefix,
    /// The client is told that it committed once the attempt was sent.
    AnsweredEarly,
    /// A site that restarts doesn't follow the log again.
    DoesNotFollow,
    /// A session's next transaction may run on a snapshot without its last.
    SessionForgotten,
}

/// How much a site knows of lsv.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LsvKnown {
    /// The timestamp.
    Exactly,
    /// Bounds around it.
    Bounds,
    /// What the site's certifier remembers of it.
    FromCertifier,
}

/// A certifier as a site uses it.
pub trait SiteCertifier: Certifier {
    /// Bounds of a transaction's lsv; by default none are known but those that always hold.
    fn lsv(&mut self, begin: Timestamp, _reads: &[Read], _writes: &[Write]) -> Lsv {
        Lsv { low: Timestamp(0), high: begin }
    }
}

impl SiteCertifier for Rsi {}
impl SiteCertifier for CpRoo {}
impl SiteCertifier for Vdbsm {}
impl SiteCertifier for PlantedRssi {}

impl SiteCertifier for Rssi {
    fn lsv(&mut self, begin: Timestamp, reads: &[Read], writes: &[Write]) -> Lsv {
        Rssi::lsv(self, begin, reads, writes)
    }
}

/// The configuration of all sites.
#[derive(Clone, Copy, Debug)]
pub struct SiteConfig {
    /// Makes the certifier.
    pub certifier: fn(Limits) -> Box<dyn SiteCertifier>,
    /// How much it remembers.
    pub limits: Limits,
    /// Whether transactions that wrote nothing must be certified (RSSI), or commit where they
    /// ran (all others).
    pub certifies_read_only: bool,
    /// How lsv is told.
    pub lsv: LsvKnown,
    /// Whether the version of each read is told (vDBSM) or left to follow from the snapshot.
    pub tells_versions: bool,
    /// Whether rows that were written count as read, too.
    pub tells_overwritten: bool,
    /// Room for so many rows.
    pub keys: u32,
    /// How often a site tells its staleness value; 0 for never.
    pub announce_us: u64,
    /// What is wrong.
    pub planted: Planted,
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A transaction wants to commit.
    Attempt(Rc<Attempt>),
    /// No transaction at the site has, or will have, a snapshot before this (RSSI paper,
    /// appendix C.2.3).
    Oldest(NodeId, Timestamp),
}

/// A transaction that wants to commit.
#[derive(Clone)]
pub struct Attempt {
    /// For the certifier.
    pub transaction: Transaction,
    /// To be applied.
    pub changes: Vec<Change>,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transaction { id, begin, lsv, reads, .. } = &self.transaction;
        write!(f, "{}/{} of snapshot {}, ", id.site.0, id.number, begin.0)?;
        write!(f, "lsv {} to {}, {} reads", lsv.low.0, lsv.high.0, reads.len())?;
        self.changes.iter().try_for_each(|c| write!(f, ", {} to {}", c.element, c.key))
    }
}

/// A record of a site's journal.
#[derive(Clone, Debug)]
pub enum Record {
    /// A commit.
    Applied(Timestamp, Rc<Attempt>),
    /// Only that it was applied ([`Planted::TornApply`]).
    Progress(Timestamp),
}

/// What a site waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// The local transaction comes to its end.
    Finish(u64),
    /// Its attempt should have come back.
    Again(u64),
    /// The staleness value is due.
    Announce,
}

/// A transaction that runs here.
#[derive(Debug)]
struct Local {
    call: CallId,
    work: Rc<Work>,
    begin: Timestamp,
    /// What it read and its attempt, once it ran.
    attempt: Option<(Vec<Vec<Element>>, Rc<Attempt>)>,
}

/// A site.
pub struct Site {
    config: SiteConfig,
    id: NodeId,
    engine: Engine,
    certifier: Box<dyn SiteCertifier>,
    /// The state is the one after this timestamp.
    applied: Timestamp,
    decided: AHashSet<TxnId>,
    locals: BTreeMap<u64, Local>,
    next_number: u64,
    /// Requests whose session has seen more than this site.
    parked: Vec<(CallId, Rc<Work>)>,
    /// The staleness values that sites told.
    oldest: Vec<Timestamp>,
    held: Option<Rc<Attempt>>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "site {} applied {}", self.id.0, self.applied.0)
    }
}

impl Node for Site {
    type Message = ();
    type Request = Rc<Work>;
    type Response = Rc<Answer>;
    type Entry = Entry;
    type Record = Record;
    type Timer = Timer;
    type Config = SiteConfig;

    fn start(config: &SiteConfig, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> Site {
        let mut site = Site {
            config: *config,
            id: boot.id,
            engine: Engine::new(config.keys),
            certifier: (config.certifier)(config.limits),
            applied: Timestamp::default(),
            decided: AHashSet::new(),
            locals: BTreeMap::new(),
            next_number: u64::from(boot.incarnation) << 32,
            parked: Vec::new(),
            oldest: vec![Timestamp::default(); usize::from(boot.nodes)],
            held: None,
        };
        boot.disk.iter().for_each(|record| site.redo(record));
        if boot.incarnation == 0 || config.planted != Planted::DoesNotFollow {
            out.follow(LOG, Position(0));
        }
        site.announce_later(out);
        site
    }

    fn step(&mut self, _now: Time, event: Event<Self>, out: &mut Effects<Self>) {
        match event {
            Event::Request { call, request, .. } => self.asked(call, request, out),
            Event::Timer(Timer::Finish(number)) => self.finish(number, out),
            Event::Timer(Timer::Again(number)) => self.append(number, out),
            Event::Timer(Timer::Announce) => self.announce(out),
            Event::Entry { position, entry, .. } => self.ordered(position, entry, out),
            Event::Message { .. } | Event::Appended { .. } | Event::Persisted { .. } => {}
        }
    }
}

impl Site {
    /// The rows.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The timestamp of the last attempt that was decided here.
    #[must_use]
    pub fn applied(&self) -> Timestamp {
        self.applied
    }

    fn redo(&mut self, record: &Record) {
        match record {
            Record::Applied(at, attempt) => {
                self.engine.apply(*at, &attempt.changes);
                self.applied = self.applied.max(*at);
            }
            Record::Progress(at) => self.applied = *at,
        }
    }

    // Transactions that run here

    fn asked(&mut self, call: CallId, work: Rc<Work>, out: &mut Effects<Self>) {
        if self.locals.len() + self.parked.len() >= LOCALS_MAX {
            return;
        }
        let waits = work.after > self.applied && self.config.planted != Planted::SessionForgotten;
        if waits { self.parked.push((call, work)) } else { self.begin(call, work, out) }
    }

    fn begin(&mut self, call: CallId, work: Rc<Work>, out: &mut Effects<Self>) {
        let number = self.next_number;
        self.next_number += 1;
        out.timer(work.lasts_us, Timer::Finish(number));
        self.locals.insert(number, Local { call, work, begin: self.applied, attempt: None });
    }

    fn unpark(&mut self, out: &mut Effects<Self>) {
        if !self.parked.is_empty() {
            let applied = self.applied;
            let ready = self.parked.extract_if(.., |(_, work)| work.after <= applied);
            for (call, work) in ready.collect::<Vec<_>>() {
                self.begin(call, work, out);
            }
        }
    }

    fn finish(&mut self, number: u64, out: &mut Effects<Self>) {
        let local = &self.locals[&number];
        let (call, begin) = (local.call, local.begin);
        let mut done = self.execute(local);
        let reads = std::mem::take(&mut done.reads);
        if done.changes.is_empty() && !self.config.certifies_read_only {
            self.locals.remove(&number);
            out.reply(call, Rc::new(Answer::Committed { at: begin, reads }));
            return;
        }
        if self.config.planted == Planted::AnsweredEarly {
            let answer = Answer::Committed { at: begin, reads: reads.clone() };
            out.reply(call, Rc::new(answer));
        }
        let attempt = Rc::new(self.attempt(number, begin, done));
        self.locals.get_mut(&number).expect("it runs").attempt = Some((reads, attempt));
        self.append(number, out);
    }

    fn execute(&self, local: &Local) -> Executed {
        let half = local.work.ops.len() / 2;
        let torn = self.config.planted == Planted::NotAPrefix;
        let snapshot_of = |op| if torn && op >= half { self.applied } else { local.begin };
        execute(&self.engine, &local.work.ops, self.config.tells_overwritten, snapshot_of)
    }

    fn attempt(&mut self, number: u64, begin: Timestamp, mut done: Executed) -> Attempt {
        let writes = done.write_set();
        let mut transaction = Transaction {
            id: TxnId { site: SiteId(u32::from(self.id.0)), number },
            begin,
            lsv: self.lsv(number, begin, &done, &writes),
            writes,
            reads: std::mem::take(&mut done.read_set),
            versions: std::mem::take(&mut done.versions),
        };
        match self.config.planted {
            Planted::ReadSetIgnored => {
                transaction.reads.clear();
                transaction.versions.clear();
            }
            Planted::PhantomsIgnored => {
                transaction.reads.retain(|read| matches!(read, Read::Row { .. }));
                transaction.versions.clear();
            }
            Planted::WriteSetIgnored => transaction.writes.clear(),
            _ => {}
        }
        if !self.config.tells_versions {
            transaction.versions.clear();
        }
        Attempt { transaction, changes: done.changes }
    }

    fn lsv(&mut self, number: u64, begin: Timestamp, done: &Executed, writes: &[Write]) -> Lsv {
        let lsv = match self.config.planted {
            Planted::LsvOfReadsOnly => done.versions.iter().max().map_or(0, |version| version.0),
            _ => done.lsv.0,
        };
        match self.config.lsv {
            LsvKnown::Exactly => Lsv { low: Timestamp(lsv), high: Timestamp(lsv) },
            LsvKnown::Bounds => Lsv {
                low: Timestamp(lsv.saturating_sub(number % 7)),
                high: Timestamp(lsv + number % 5).min(begin),
            },
            LsvKnown::FromCertifier => self.certifier.lsv(begin, &done.read_set, writes),
        }
    }

    fn append(&mut self, number: u64, out: &mut Effects<Self>) {
        if let Some((_, attempt)) = self.locals.get(&number).and_then(|l| l.attempt.as_ref()) {
            out.append(LOG, Entry::Attempt(attempt.clone()));
            out.timer(AGAIN_US, Timer::Again(number));
        }
    }

    // The log

    fn ordered(&mut self, position: Position, entry: Entry, out: &mut Effects<Self>) {
        match entry {
            Entry::Oldest(site, begin) => self.collect(site, begin),
            Entry::Attempt(attempt) if self.swaps(position) => self.held = Some(attempt),
            Entry::Attempt(attempt) => {
                self.decide(&attempt, out);
                if let Some(held) = self.held.take() {
                    self.decide(&held, out);
                }
                self.unpark(out);
            }
        }
    }

    fn swaps(&self, position: Position) -> bool {
        let swapping = self.config.planted == Planted::OrderSwapped && self.id == NodeId(1);
        swapping && self.held.is_none() && position.0 % 8 == 7
    }

    fn decide(&mut self, attempt: &Rc<Attempt>, out: &mut Effects<Self>) {
        let id = attempt.transaction.id;
        if !self.decided.insert(id) {
            return;
        }
        let decision = self.certifier.certify(&attempt.transaction);
        out.agree("verdict", decision.at.0, fingerprint(id, decision));
        if decision.at > self.applied {
            if decision.verdict.is_ok() {
                self.apply(decision.at, attempt, out);
            }
            self.applied = decision.at;
        }
        if id.site.0 == u32::from(self.id.0) {
            self.answer(id.number, decision, out);
        }
    }

    fn apply(&mut self, at: Timestamp, attempt: &Rc<Attempt>, out: &mut Effects<Self>) {
        self.engine.apply(at, &attempt.changes);
        if self.config.planted == Planted::TornApply {
            out.persist(Record::Progress(at));
        }
        out.persist(Record::Applied(at, attempt.clone()));
    }

    fn answer(&mut self, number: u64, decision: Decision, out: &mut Effects<Self>) {
        if let Some(Local { call, attempt: Some((reads, attempt)), begin, .. }) =
            self.locals.remove(&number)
        {
            let at = if attempt.changes.is_empty() { begin } else { decision.at };
            let answer = match decision.verdict {
                Ok(()) => Answer::Committed { at, reads },
                Err(cause) => Answer::Aborted(cause),
            };
            out.reply(call, Rc::new(answer));
        }
    }

    // Garbage

    fn announce_later(&self, out: &mut Effects<Self>) {
        if self.config.announce_us > 0 {
            out.timer(self.config.announce_us, Timer::Announce);
        }
    }

    fn announce(&mut self, out: &mut Effects<Self>) {
        let oldest = self.locals.values().map(|local| local.begin).min().unwrap_or(self.applied);
        out.append(LOG, Entry::Oldest(self.id, oldest));
        self.announce_later(out);
    }

    /// Announcements can overtake each other; the latest is the highest.
    fn collect(&mut self, site: NodeId, begin: Timestamp) {
        let told = &mut self.oldest[usize::from(site.0)];
        *told = begin.max(*told);
        if let Some(oldest) = self.oldest.iter().min() {
            self.certifier.collect(*oldest);
        }
    }
}

/// Stable over runs and builds, so that facts printed of a replay are the same.
fn fingerprint(id: TxnId, decision: Decision) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    (id, decision.verdict.is_ok()).hash(&mut hasher);
    hasher.finish()
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
