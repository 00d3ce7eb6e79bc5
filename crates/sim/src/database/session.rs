//! Clients of the replicated database: closed loops of random transactions. A client goes to another site when
//! the outcome of a call is unknown, and sometimes without a reason; it tells each site what it saw last.

use std::rc::Rc;

use hihooi_certify::certification::Timestamp;
use rand::RngExt;

use crate::database::engine::{Element, GROUPS, Key};
use crate::database::site::Site;
use crate::database::transaction::{Answer, Op, Work};
use crate::{Call, Client, Next, NodeId, Random, Time};

/// A client gives up after so long.
const TIMEOUT_US: u64 = 60_000;

/// What transactions are like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mix {
    /// Rows that there may be.
    pub keys: u32,
    /// Whether the first of them are used more than the others.
    pub skewed: bool,
    /// Steps of a transaction, at most.
    pub ops_max: u64,
    /// The share of transactions that only read.
    pub read_only: f64,
    /// The share of steps that are scans.
    pub scans: f64,
    /// The share of other steps that write, in transactions that may.
    pub writes: f64,
    /// How long transactions last, at most, but for long ones.
    pub lasts_us_max: u64,
    /// The share of transactions that last ten times as long.
    pub long: f64,
    /// How long a client thinks between two, at most.
    pub think_us_max: u64,
    /// The share of transactions before which a session goes to another site.
    pub roams: f64,
}

impl Mix {
    /// Draws what transactions are like: mostly few rows and much conflict.
    pub fn random(random: &mut Random) -> Mix {
        if random.random_bool(0.25) { Mix::cold(random) } else { Mix::hot(random) }
    }

    fn hot(random: &mut Random) -> Mix {
        Mix {
            keys: random.random_range(3..14),
            skewed: random.random_bool(0.3),
            ops_max: random.random_range(2..6),
            read_only: random.random_range(0.0..0.4),
            scans: random.random_range(0.0..0.3),
            writes: random.random_range(0.3..0.7),
            lasts_us_max: random.random_range(100..2_000),
            long: random.random_range(0.0..0.2),
            think_us_max: random.random_range(1..1_500),
            roams: if random.random_bool(0.5) { 0.1 } else { 0.0 },
        }
    }

    /// Versions live long, and so do snapshots: conflicts are rare, but reach far back.
    fn cold(random: &mut Random) -> Mix {
        Mix {
            keys: random.random_range(8..30),
            skewed: random.random_bool(0.5),
            ops_max: random.random_range(2..4),
            read_only: random.random_range(0.0..0.2),
            scans: 0.0,
            writes: random.random_range(0.2..0.5),
            lasts_us_max: random.random_range(100..1_000),
            long: random.random_range(0.2..0.6),
            think_us_max: random.random_range(1..3_000),
            roams: 0.0,
        }
    }

    /// Few sessions with long transactions among short ones, so that a certifier may forget what
    /// is still part of a cycle to come.
    #[must_use]
    pub fn forgetful() -> Mix {
        Mix {
            keys: 10,
            skewed: true,
            ops_max: 6,
            read_only: 0.0,
            scans: 0.0,
            writes: 0.3,
            lasts_us_max: 600,
            long: 0.4,
            think_us_max: 1_500,
            roams: 0.0,
        }
    }

    fn ops(&self, random: &mut Random, mut fresh: impl FnMut(u64) -> Element) -> Vec<Op> {
        let writes = if random.random_bool(self.read_only) { 0.0 } else { self.writes };
        let mut written: Vec<Key> = Vec::new();
        let count = random.random_range(1..=self.ops_max);
        (0..count)
            .map(|_| {
                let key = self.key(random);
                if random.random_bool(self.scans) {
                    self.scan(random)
                } else if random.random_bool(writes) && !written.contains(&key) {
                    written.push(key);
                    Op::Append(key, fresh(random.random_range(0..GROUPS)))
                } else {
                    Op::Read(key)
                }
            })
            .collect()
    }

    fn key(&self, random: &mut Random) -> Key {
        let key = random.random_range(0..self.keys);
        if self.skewed { key.min(random.random_range(0..self.keys)) } else { key }
    }

    fn scan(&self, random: &mut Random) -> Op {
        if random.random_bool(0.5) {
            let from = random.random_range(0..self.keys);
            Op::ScanKeys(from..(from + random.random_range(1..4)).min(self.keys))
        } else {
            let from = random.random_range(0..GROUPS);
            Op::ScanGroups(from..(from + random.random_range(1..3)).min(GROUPS))
        }
    }

    fn lasts_us(&self, random: &mut Random) -> u64 {
        let us = random.random_range(1..=self.lasts_us_max);
        if random.random_bool(self.long) { us * 10 } else { us }
    }
}

/// A client.
#[derive(Clone, Debug)]
pub struct Session {
    mix: Mix,
    number: u64,
    sites: u16,
    site: NodeId,
    left: u32,
    elements: u64,
    seen: Timestamp,
    thinks: bool,
}

impl Session {
    /// The client of this number, to do so many transactions at one of so many sites.
    #[must_use]
    pub fn new(mix: Mix, number: u16, sites: u16, transactions: u32) -> Session {
        Session {
            mix,
            number: u64::from(number),
            sites,
            site: NodeId(number % sites),
            left: transactions,
            elements: 0,
            seen: Timestamp::default(),
            thinks: true,
        }
    }

    fn learn(&mut self, last: &Call<Site>) {
        match last.response.as_deref() {
            Some(Answer::Committed { at, .. }) => self.seen = self.seen.max(*at),
            Some(Answer::Aborted(_)) => {}
            None => self.move_on(),
        }
    }

    fn move_on(&mut self) {
        self.site = NodeId((self.site.0 + 1) % self.sites);
    }

    fn work(&mut self, random: &mut Random) -> Work {
        let (mix, number, elements) = (self.mix, self.number, &mut self.elements);
        let fresh = |group| {
            *elements += 1;
            (*elements << 8 | number) * GROUPS + group
        };
        let ops = mix.ops(random, fresh);
        Work { ops, lasts_us: mix.lasts_us(random), after: self.seen }
    }
}

impl Client<Site> for Session {
    fn next(&mut self, _: Time, random: &mut Random, last: Option<&Call<Site>>) -> Next<Site> {
        if let Some(last) = last {
            self.learn(last);
        }
        self.thinks = !self.thinks;
        if !self.thinks {
            return Next::Wait(random.random_range(0..=self.mix.think_us_max));
        }
        if self.left == 0 {
            return Next::End;
        }
        self.left -= 1;
        if random.random_bool(self.mix.roams) {
            self.move_on();
        }
        let request = Rc::new(self.work(random));
        Next::Ask { to: self.site, request, timeout_us: TIMEOUT_US }
    }
}
