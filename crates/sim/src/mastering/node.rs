//! A node of the cluster: the first ones are data sites, the others site selectors.

use std::rc::Rc;

use hihooi_mastering::ids::{PartitionId, SiteId, Term};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::Change;
use hihooi_mastering::refresh::Order;
use hihooi_mastering::selector::RequestId;
use hihooi_mastering::selector::config::Weights;
use hihooi_mastering::vector::{ClientVector, SiteVector, TransactionVector};

use crate::mastering::logs::Entry;
use crate::mastering::rows::{Element, Key};
use crate::mastering::selector::SelectorNode;
use crate::mastering::site::SiteNode;
use crate::{Boot, Effects, Event, Node, NodeId, Time};

/// A mistake to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// All is right.
    Nothing,
    /// The selector asks the new master to take a partition when it asks the old one to give it
    /// away, instead of afterwards.
    GrantBeforeRelease,
    /// Site 2 applies, and counts, a later commit of a site in the place of an earlier one that
    /// it applies only then: a gap in its version vector.
    VectorGap,
    /// Site 2 takes records for independent of other sites' (only the second half of equation 1).
    DependenciesIgnored,
    /// Sessions don't tell what they have seen.
    SessionForgotten,
    /// A site lets two concurrent transactions write one row.
    LastWriterWins,
    /// A site acknowledges a commit when it was sent to the log.
    AnsweredEarly,
}

/// The configuration of all nodes.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many data sites; nodes beyond are selectors.
    pub sites: u16,
    /// How many rows.
    pub keys: u32,
    /// How many rows a partition has.
    pub keys_each: u32,
    /// Where partitions are at first.
    pub homes: Homes,
    /// In which order commits become visible.
    pub order: Order,
    /// The selector's.
    pub weights: Weights,
    /// What is wrong.
    pub planted: Planted,
}

impl Config {
    /// The partition of a row.
    #[must_use]
    pub fn partition(&self, key: Key) -> PartitionId {
        PartitionId(key / self.keys_each)
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.keys.div_ceil(self.keys_each)
    }
}

/// What nodes send each other.
#[derive(Clone, Debug)]
pub enum Message {
    /// Selector to site.
    Release(PartitionId, Term, SiteId),
    /// Selector to site.
    Grant(Change),
    /// Site to selectors.
    Changed(Change),
    /// Site to selectors: its vector, now and then.
    Vector(SiteVector),
    /// Site to selector: the transaction of this request has begun.
    Began(RequestId),
}

/// What clients ask.
#[derive(Clone, Debug)]
pub enum Request {
    /// A selector: where to run.
    Route {
        /// What the session has seen.
        seen: ClientVector,
        /// What it may write.
        writes: Vec<PartitionId>,
    },
    /// A site: to run it.
    Run(Rc<Work>),
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Work {
    /// The selector's answer came from here.
    pub selector: NodeId,
    /// Under this name.
    pub request: RequestId,
    /// What the session has seen.
    pub seen: ClientVector,
    /// The least version to run on.
    pub floor: SiteVector,
    /// What it may write.
    pub partitions: Vec<PartitionId>,
    /// Its steps.
    pub ops: Vec<Op>,
    /// How long it takes.
    pub lasts_us: u64,
}

/// A step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads a row.
    Read(Key),
    /// Puts a value behind a row's list. At most one a row and transaction.
    Append(Key, Element),
}

/// What clients are answered.
#[derive(Clone, Debug)]
pub enum Response {
    /// Where to run.
    Routed {
        /// The site.
        site: SiteId,
        /// The selector's name for the request.
        request: RequestId,
        /// The least version to run on.
        floor: SiteVector,
    },
    /// It ran and committed.
    Committed {
        /// Its snapshot.
        snapshot: SiteVector,
        /// Its commit timestamp, if it wrote.
        vector: Option<TransactionVector>,
        /// What each read returned.
        reads: Vec<Vec<Element>>,
    },
    /// It did not run, or not to its end, and never will.
    No(&'static str),
}

/// What nodes wake for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// The core's clock.
    Tick,
    /// The transaction of this number has come to its end.
    Finish(u64),
}

/// A site or a selector.
#[derive(Debug)]
pub enum Member {
    /// A data site.
    Site(Box<SiteNode>),
    /// A site selector.
    Selector(Box<SelectorNode>),
}

impl Member {
    /// The site that it is.
    #[must_use]
    pub fn site(&self) -> Option<&SiteNode> {
        match self {
            Member::Site(site) => Some(site),
            Member::Selector(_) => None,
        }
    }
}

impl Node for Member {
    type Message = Message;
    type Request = Request;
    type Response = Rc<Response>;
    type Entry = Entry;
    type Record = ();
    type Timer = Timer;
    type Config = Rc<Config>;

    fn start(config: &Rc<Config>, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> Member {
        if boot.id.0 < config.sites {
            Member::Site(Box::new(SiteNode::start(config, &boot, out)))
        } else {
            Member::Selector(Box::new(SelectorNode::start(config, &boot, out)))
        }
    }

    fn step(&mut self, now: Time, event: Event<Self>, out: &mut Effects<Self>) {
        match self {
            Member::Site(site) => site.step(now, event, out),
            Member::Selector(selector) => selector.step(now, event, out),
        }
    }
}
