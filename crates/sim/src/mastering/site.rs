//! A data site on the simulator: the site manager's core, rows, and the log's reader.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hihooi_mastering::ids::{PartitionId, SiteId, TxnId};
use hihooi_mastering::record::{ChangeKind, Record};
use hihooi_mastering::recovery::Recovery;
use hihooi_mastering::site::{Effect, Event as Told, Refusal, Site, SiteConfig};
use hihooi_mastering::vector::{SiteVector, TransactionVector};

use crate::mastering::logs::{Entry, Read, Reader, log_of, logs};
use crate::mastering::node::{
    Config, Member, Message, Op, Planted, Request, Response, Timer, Work,
};
use crate::mastering::rows::{Element, Key, Rows, Writes};
use crate::{Boot, CallId, Effects, Event, LogId, NodeId, Position, Time};

/// How often a site looks at its clock and tells selectors its vector.
const TICK_US: u64 = 2_000;

/// A transaction that runs here.
#[derive(Debug)]
struct Running {
    work: Rc<Work>,
    snapshot: SiteVector,
    reads: Vec<Vec<Element>>,
    /// Rows that its commit will change, while it is on its way to the log.
    writing: Vec<Key>,
}

/// The core, or what is kept for it until the site's own log has been read.
#[derive(Debug)]
enum State {
    /// Records that counted, with their positions.
    Opening(Vec<(u64, Rc<Record<Writes>>)>),
    Open(Box<Site<Writes>>),
}

/// A data site.
#[derive(Debug)]
pub struct SiteNode {
    config: Rc<Config>,
    me: SiteId,
    incarnation: u32,
    nodes: u16,
    reader: Reader,
    state: State,
    rows: Rows,
    /// Asked to run, by the number of the call.
    asked: BTreeMap<TxnId, Rc<Work>>,
    running: BTreeMap<TxnId, Running>,
    writing: BTreeSet<Key>,
    held: Option<(u64, Rc<Record<Writes>>)>,
}

impl SiteNode {
    pub(super) fn start(
        config: &Rc<Config>,
        boot: &Boot<'_, Member>,
        out: &mut Effects<Member>,
    ) -> SiteNode {
        for log in 0..logs(config.order, config.sites) {
            out.follow(LogId(log), Position(0));
        }
        let site = SiteNode {
            config: config.clone(),
            me: SiteId(boot.id.0),
            incarnation: boot.incarnation,
            nodes: boot.nodes,
            reader: Reader::new(config.order, config.sites),
            state: State::Opening(Vec::new()),
            rows: Rows::new(config.keys),
            asked: BTreeMap::new(),
            running: BTreeMap::new(),
            writing: BTreeSet::new(),
            held: None,
        };
        site.open(out);
        out.timer(TICK_US, Timer::Tick);
        site
    }

    pub(super) fn step(&mut self, now: Time, event: Event<Member>, out: &mut Effects<Member>) {
        match event {
            Event::Entry { log, position, entry } => self.read(log, position, &entry, out),
            Event::Request { call, request: Request::Run(work), .. } => self.begin(call, work, out),
            Event::Message { message, .. } => self.message(message, out),
            Event::Timer(Timer::Finish(number)) => self.finish(TxnId(number), out),
            Event::Timer(Timer::Tick) => self.tick(now, out),
            Event::Request { .. } | Event::Appended { .. } | Event::Persisted { .. } => {}
        }
    }

    /// Its version vector, once its own log has been read.
    #[must_use]
    pub fn vector(&self) -> Option<&SiteVector> {
        match &self.state {
            State::Opening(_) => None,
            State::Open(site) => Some(site.vector()),
        }
    }

    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Holds the right to write the partition.
    #[must_use]
    pub fn is_master(&self, partition: PartitionId) -> bool {
        match &self.state {
            State::Opening(_) => false,
            State::Open(site) => site.mastership().is_master(partition),
        }
    }

    fn log(&self) -> LogId {
        log_of(self.config.order, self.me)
    }

    fn open(&self, out: &mut Effects<Member>) {
        out.append(self.log(), Entry::Opened(self.me, self.incarnation));
    }

    fn tell(&mut self, event: Told<Writes>, out: &mut Effects<Member>) {
        if let State::Open(site) = &mut self.state {
            let effects = site.step(event);
            self.perform(effects, out);
        }
    }

    fn tick(&mut self, now: Time, out: &mut Effects<Member>) {
        self.unhold(out);
        match &mut self.state {
            State::Opening(_) => self.open(out),
            State::Open(site) => {
                let effects = site.tick(now.0 / 1_000);
                let vector = site.vector().clone();
                self.to_selectors(&Message::Vector(vector), out);
                self.perform(effects, out);
            }
        }
        out.timer(TICK_US, Timer::Tick);
    }

    fn to_selectors(&self, message: &Message, out: &mut Effects<Member>) {
        for selector in self.config.sites..self.nodes {
            out.send(NodeId(selector), message.clone());
        }
    }

    fn message(&mut self, message: Message, out: &mut Effects<Member>) {
        match message {
            Message::Release(partition, term, to) => {
                self.tell(Told::Release { partition, term, to }, out);
            }
            Message::Grant(release) => self.tell(Told::Grant { release }, out),
            Message::Changed(_) | Message::Vector(_) | Message::Began(_) => {}
        }
    }

    // The logs

    fn read(&mut self, log: LogId, position: Position, entry: &Entry, out: &mut Effects<Member>) {
        match self.reader.read(log, position, entry) {
            Read::Record(position, record) => match &mut self.state {
                State::Opening(kept) => kept.push((position, record)),
                State::Open(_) => self.logged(position, record, out),
            },
            Read::Opened(site, incarnation, records) => {
                if site == self.me && incarnation == self.incarnation {
                    self.opened(records, out);
                }
            }
            Read::Mark(..) | Read::Nothing => {}
        }
    }

    /// The log's part of this site's earlier lives is known to its end.
    fn opened(&mut self, records: u64, out: &mut Effects<Member>) {
        let State::Opening(kept) = &mut self.state else { return };
        let kept = std::mem::take(kept);
        let sites = usize::from(self.config.sites);
        let (partitions, homes) = (self.config.partitions(), self.config.homes.clone());
        let mut config = SiteConfig::new(self.me, sites, partitions, homes);
        config.order = self.config.order;
        config.begin_wait_ms_max = 20;
        config.txn_ms_max = 60;
        config.append_retry_ms = 6;
        let recovery = Recovery::from_copy(config, SiteVector::zero(sites), 0);
        self.state = State::Open(Box::new(recovery.finish(records)));
        for (position, record) in kept {
            self.logged(position, record, out);
        }
    }

    fn logged(&mut self, position: u64, record: Rc<Record<Writes>>, out: &mut Effects<Member>) {
        let mistaken = self.me == SiteId(1) && record.vector.origin() != self.me;
        match self.config.planted {
            Planted::VectorGap if mistaken => self.swap(position, record, out),
            Planted::DependenciesIgnored if mistaken => {
                let (origin, number) = (record.vector.origin(), record.vector.number());
                let none = SiteVector::zero(record.vector.sites());
                let vector = TransactionVector::commit(&none, origin, number);
                let record = Record { vector, body: record.body.clone() };
                self.tell(Told::Logged { position, record }, out);
            }
            _ => {
                self.unhold(out);
                self.tell(Told::Logged { position, record: (*record).clone() }, out);
            }
        }
    }

    /// [`Planted::VectorGap`]: of two records of one site that follow each other, the second is
    /// taken for the first.
    fn swap(&mut self, position: u64, record: Rc<Record<Writes>>, out: &mut Effects<Member>) {
        match self.held.take() {
            Some((first, held)) if held.vector.origin() == record.vector.origin() => {
                let early = Record { vector: held.vector.clone(), body: record.body.clone() };
                let late = Record { vector: record.vector.clone(), body: held.body.clone() };
                self.tell(Told::Logged { position: first, record: early }, out);
                self.tell(Told::Logged { position, record: late }, out);
            }
            other => {
                self.held = other;
                self.unhold(out);
                self.held = Some((position, record));
            }
        }
    }

    fn unhold(&mut self, out: &mut Effects<Member>) {
        if let Some((position, held)) = self.held.take() {
            self.tell(Told::Logged { position, record: (*held).clone() }, out);
        }
    }

    // Transactions

    fn begin(&mut self, call: CallId, work: Rc<Work>, out: &mut Effects<Member>) {
        if matches!(self.state, State::Opening(_)) {
            return out.reply(call, Rc::new(Response::No("opening")));
        }
        let txn = TxnId(call.0);
        let (floor, partitions) = (work.floor.clone(), work.partitions.clone());
        let seen = work.seen.clone();
        self.asked.insert(txn, work);
        self.tell(Told::Begin { txn, seen, floor, partitions }, out);
    }

    fn begun(&mut self, txn: TxnId, snapshot: SiteVector, out: &mut Effects<Member>) {
        let Some(work) = self.asked.remove(&txn) else { return };
        out.send(work.selector, Message::Began(work.request));
        out.timer(work.lasts_us, Timer::Finish(txn.0));
        let reads = self.reads(&work.ops, &snapshot);
        let running = Running { work, snapshot, reads, writing: Vec::new() };
        self.running.insert(txn, running);
    }

    /// What the reads return: the snapshot, and behind it the transaction's own writes (I4).
    fn reads(&self, ops: &[Op], snapshot: &SiteVector) -> Vec<Vec<Element>> {
        let (mut reads, mut own) = (Vec::new(), BTreeMap::new());
        for op in ops {
            match op {
                Op::Append(key, element) => {
                    own.insert(*key, *element);
                }
                Op::Read(key) => {
                    let mut list = self.rows.list(*key, snapshot).to_vec();
                    list.extend(own.get(key));
                    reads.push(list);
                }
            }
        }
        reads
    }

    /// Comes to its end: commits, unless another one wrote one of its rows meanwhile.
    fn finish(&mut self, txn: TxnId, out: &mut Effects<Member>) {
        let Some(running) = self.running.get(&txn) else { return };
        let writes = self.writes(running);
        let keys: Vec<Key> = writes.iter().map(|(key, _)| *key).collect();
        let free =
            |key: &Key| self.rows.may_write(*key, &running.snapshot) && !self.writing.contains(key);
        if self.config.planted != Planted::LastWriterWins && !keys.iter().all(free) {
            self.tell(Told::Abort { txn }, out);
            return self.no(txn, "write conflict", out);
        }
        let touched = keys.iter().map(|key| self.config.partition(*key)).collect();
        let running = self.running.get_mut(&txn).expect("it runs");
        if self.config.planted == Planted::AnsweredEarly {
            let (snapshot, reads) = (running.snapshot.clone(), running.reads.clone());
            let early = Response::Committed { snapshot, vector: None, reads };
            out.reply(CallId(txn.0), Rc::new(early));
        }
        running.writing.clone_from(&keys);
        self.writing.extend(keys);
        let writes = (!writes.is_empty()).then(|| Rc::new(writes));
        self.tell(Told::Commit { txn, writes, touched }, out);
    }

    fn writes(&self, running: &Running) -> Vec<(Key, Rc<Vec<Element>>)> {
        let appended = running.work.ops.iter().filter_map(|op| match op {
            Op::Append(key, element) => Some((*key, *element)),
            Op::Read(_) => None,
        });
        appended
            .map(|(key, element)| {
                let mut list = self.rows.list(key, &running.snapshot).to_vec();
                list.push(element);
                (key, Rc::new(list))
            })
            .collect()
    }

    fn forget(&mut self, txn: TxnId) -> Option<Running> {
        self.asked.remove(&txn);
        let running = self.running.remove(&txn)?;
        for key in &running.writing {
            self.writing.remove(key);
        }
        Some(running)
    }

    fn no(&mut self, txn: TxnId, why: &'static str, out: &mut Effects<Member>) {
        self.forget(txn);
        out.reply(CallId(txn.0), Rc::new(Response::No(why)));
    }

    /// Facts are stated by the right protocol only: planted mistakes are for the checker to find.
    fn agree(&self, topic: &'static str, at: u64, value: u64, out: &mut Effects<Member>) {
        if self.config.planted == Planted::Nothing {
            out.agree(topic, at, value);
        }
    }

    fn perform(&mut self, effects: Vec<Effect<Writes>>, out: &mut Effects<Member>) {
        for effect in effects {
            match effect {
                Effect::Begun { txn, snapshot } => self.begun(txn, snapshot, out),
                Effect::Refused { txn, why } => self.no(txn, words(why), out),
                Effect::Append(record) => {
                    out.append(self.log(), Entry::Record(self.incarnation, Rc::new(record)));
                }
                Effect::Apply { txn, vector, writes } => {
                    let place = u64::from(vector.origin().0) << 48 | vector.number();
                    self.agree("commit", place, txn.0, out);
                    self.rows.apply(&vector, &writes);
                }
                Effect::Committed { txn, vector } => self.committed(txn, vector, out),
                Effect::Changed(change) => {
                    if change.kind == ChangeKind::Granted {
                        let term = u64::from(change.partition.0) << 48 | change.term.0;
                        self.agree("master", term, u64::from(change.vector.origin().0), out);
                    }
                    self.to_selectors(&Message::Changed(change), out);
                }
            }
        }
    }

    fn committed(
        &mut self,
        txn: TxnId,
        vector: Option<TransactionVector>,
        out: &mut Effects<Member>,
    ) {
        if let Some(Running { snapshot, reads, .. }) = self.forget(txn) {
            let answer = Response::Committed { snapshot, vector, reads };
            out.reply(CallId(txn.0), Rc::new(answer));
        }
    }
}

fn words(why: Refusal) -> &'static str {
    match why {
        Refusal::NotMaster => "not master",
        Refusal::Undeclared => "undeclared",
        Refusal::NotFresh => "not fresh",
        Refusal::Recovering => "recovering",
        Refusal::Busy => "busy",
        Refusal::TooLong => "too long",
    }
}
