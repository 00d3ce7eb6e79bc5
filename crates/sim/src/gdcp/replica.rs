//! A site's database under GDCP, and the transactions that run there. It doesn't depend on how messages are
//! exchanged.
//!
//! - I2: a snapshot is the state after a prefix of the decisions.
//! - I5: the journal holds each commit with its place; a decision is applied once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use hihooi_certify::certification::items::{Column, Datum, Image, Write};
use hihooi_certify::certification::{Cause, Lsv, SiteId, Timestamp, Transaction, TxnId};
use hihooi_certify::gdcp::{Decided, Outcome, Refusal};

use crate::database::engine::{Change, Element, Engine};
use crate::database::transaction::{Answer, Executed, VALUES, Work, execute};
use crate::{CallId, Effects, Node, NodeId};

/// Where the version stands that a row was made from.
const BASE: Column = Column(3);
/// More requests than this wait at a site: further ones stay unanswered.
const PARKED_MAX: usize = 1_000;

/// A mistake to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// All is right.
    Nothing,
    /// Site 1 certifies some records of the log in another order.
    OrderSwapped,
    /// Site 1 does not tell edges from what its transactions read.
    ReadSetIgnored,
    /// On the ring: decisions are applied and told before every site can make them.
    ReleasedEarly,
}

/// A commit in a site's journal.
#[derive(Clone, Debug)]
pub struct Applied(pub Timestamp, pub Rc<Vec<Change>>);

/// What nodes of both kinds have in common.
pub trait GdcpNode: Node<Request = Rc<Work>, Response = Rc<Answer>, Record = Applied> {
    /// Its database.
    fn replica(&self) -> &Replica;
}

/// A transaction that runs here.
#[derive(Debug)]
struct Local {
    call: CallId,
    work: Rc<Work>,
    begin: Timestamp,
    /// What it read, once it has asked to commit.
    reads: Option<Vec<Vec<Element>>>,
    writes: bool,
}

/// The database of a site and the transactions that run there.
pub struct Replica {
    /// The site.
    pub id: NodeId,
    engine: Engine,
    applied: Timestamp,
    locals: BTreeMap<u64, Local>,
    next_number: u64,
    parked: VecDeque<(CallId, Rc<Work>)>,
    planted: Planted,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "site {} applied {}", self.id.0, self.applied.0)
    }
}

impl Replica {
    /// As its journal has it. Transactions get numbers of their incarnation.
    #[must_use]
    pub fn new(
        id: NodeId,
        incarnation: u32,
        keys: u32,
        disk: &[Applied],
        planted: Planted,
    ) -> Replica {
        let mut engine = Engine::new(keys);
        disk.iter().for_each(|Applied(at, changes)| engine.apply(*at, changes));
        Replica {
            id,
            engine,
            applied: disk.last().map_or(Timestamp(0), |Applied(at, _)| *at),
            locals: BTreeMap::new(),
            next_number: u64::from(incarnation) << 32,
            parked: VecDeque::new(),
            planted,
        }
    }

    /// Its site, as GDCP names it.
    #[must_use]
    pub fn site(&self) -> SiteId {
        SiteId(u32::from(self.id.0))
    }

    /// The rows.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The last decision that it shows.
    #[must_use]
    pub fn applied(&self) -> Timestamp {
        self.applied
    }

    /// A client asks; it waits until the site takes part and shows what its session saw.
    pub fn park(&mut self, call: CallId, work: Rc<Work>) {
        if self.parked.len() < PARKED_MAX {
            self.parked.push_back((call, work));
        }
    }

    /// The next transaction that may begin, with its duration in microseconds.
    pub fn begin(&mut self) -> Option<(TxnId, Timestamp, u64)> {
        let ready = self.parked.iter().position(|(_, work)| work.after <= self.applied)?;
        let (call, work) = self.parked.remove(ready)?;
        let number = self.next_number;
        self.next_number += 1;
        let (begin, lasts_us) = (self.applied, work.lasts_us);
        self.locals.insert(number, Local { call, work, begin, reads: None, writes: false });
        Some((TxnId { site: self.site(), number }, begin, lasts_us))
    }

    /// The transaction has come to its end and wants to commit; none if it is over already.
    pub fn finish(&mut self, id: TxnId) -> Option<Transaction> {
        let local = self.locals.get_mut(&id.number)?;
        let mut done = execute(&self.engine, &local.work.ops, true, |_| local.begin);
        local.reads = Some(std::mem::take(&mut done.reads));
        local.writes = !done.changes.is_empty();
        let ignored = self.planted == Planted::ReadSetIgnored && self.id == NodeId(1);
        Some(Transaction {
            id,
            begin: local.begin,
            lsv: Lsv { low: done.lsv, high: done.lsv },
            writes: write_set(&done),
            reads: if ignored { Vec::new() } else { done.read_set },
            versions: Vec::new(),
        })
    }

    /// A decision is final: applies it and tells the client. Once each, in order; what the
    /// journal held is passed over.
    pub fn decided<N: GdcpNode>(&mut self, decided: &Decided, out: &mut Effects<N>) {
        let Decided { id, at, outcome, ref writes, .. } = *decided;
        if at > self.applied {
            if outcome == Outcome::Committed && !writes.is_empty() {
                let changes: Vec<Change> = writes.iter().map(change).collect();
                self.engine.apply(at, &changes);
                out.persist(Applied(at, Rc::new(changes)));
            }
            self.applied = at;
        }
        if id.site == self.site() {
            self.tell(id, at, outcome, out);
        }
    }

    fn tell<N: GdcpNode>(
        &mut self,
        id: TxnId,
        at: Timestamp,
        outcome: Outcome,
        out: &mut Effects<N>,
    ) {
        let Some(local) = self.locals.remove(&id.number) else { return };
        let answer = match outcome {
            Outcome::Committed => Answer::Committed {
                at: if local.writes { at } else { local.begin },
                reads: local.reads.unwrap_or_default(),
            },
            Outcome::Aborted(cause) => Answer::Aborted(cause),
            Outcome::Ended => Answer::Aborted(Cause::SnapshotTooOld),
        };
        out.reply(local.call, Rc::new(answer));
    }

    /// The transaction ended without being decided.
    pub fn refused<N: GdcpNode>(&mut self, id: TxnId, refusal: Refusal, out: &mut Effects<N>) {
        let outcome = match refusal {
            Refusal::Doomed(cause) => Outcome::Aborted(cause),
            _ => Outcome::Ended,
        };
        self.tell(id, Timestamp(0), outcome, out);
    }
}

/// What certification is told of the writes, and besides, for the other sites, the values.
fn write_set(done: &Executed) -> Vec<Write> {
    let mut writes = done.write_set();
    for (write, change) in writes.iter_mut().zip(&done.changes) {
        write.before = write.before.take().map(|image| with(image, VALUES, change.before));
        let after = write.after.take().map(|image| with(image, VALUES, Some(change.element)));
        write.after = after.map(|image| with(image, BASE, Some(change.base.0)));
    }
    writes
}

fn with(image: Image, column: Column, value: Option<u64>) -> Image {
    let mut columns = image.0.into_vec();
    columns.extend(value.map(|value| (column, Datum::Int(value as i64))));
    columns.sort_unstable_by_key(|(column, _)| *column);
    Image(columns.into())
}

fn change(write: &Write) -> Change {
    let value = |image: &Option<Image>, wanted: Column| {
        image.iter().flat_map(|image| &image.0).find_map(|(column, datum)| match datum {
            Datum::Int(value) if *column == wanted => Some(*value as u64),
            _ => None,
        })
    };
    Change {
        key: write.key.0 as u32,
        base: Timestamp(value(&write.after, BASE).unwrap_or_default()),
        element: value(&write.after, VALUES).unwrap_or_default(),
        before: value(&write.before, VALUES),
    }
}
