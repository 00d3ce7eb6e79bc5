//! Clients: closed loops of small random transactions on few rows, by key and by ranges of keys.
//! A client goes to another site when a call ended unknown; it tells each site what it saw last.

use std::rc::Rc;

use hihooi_certify::certification::Timestamp;
use rand::RngExt;

use crate::database::engine::{GROUPS, Key};
use crate::database::transaction::{Answer, Op, Work};
use crate::gdcp::replica::GdcpNode;
use crate::{Call, Client, Next, NodeId, Random, Time};

/// A client gives up after so long.
const TIMEOUT_US: u64 = 80_000;

/// A client.
#[derive(Clone, Debug)]
pub struct Session {
    number: u64,
    sites: u16,
    site: NodeId,
    keys: Key,
    left: u32,
    elements: u64,
    seen: Timestamp,
    thinks: bool,
}

impl Session {
    /// The client of this number, to do so many transactions on so many rows, at one of so many
    /// sites.
    #[must_use]
    pub fn new(number: u16, sites: u16, keys: Key, transactions: u32) -> Session {
        Session {
            number: u64::from(number),
            sites,
            site: NodeId(number % sites),
            keys,
            left: transactions,
            elements: 0,
            seen: Timestamp::default(),
            thinks: true,
        }
    }

    fn work(&mut self, random: &mut Random) -> Work {
        let reads_only = random.random_bool(0.2);
        let mut written: Vec<Key> = Vec::new();
        let mut ops = Vec::new();
        for _ in 0..random.random_range(1..5) {
            let key = random.random_range(0..self.keys);
            if random.random_bool(0.1) {
                ops.push(Op::ScanKeys(key..(key + 3).min(self.keys)));
            } else if reads_only || random.random_bool(0.5) || written.contains(&key) {
                ops.push(Op::Read(key));
            } else {
                written.push(key);
                self.elements += 1;
                ops.push(Op::Append(key, (self.elements << 8 | self.number) * GROUPS));
            }
        }
        let lasts_us = if random.random_bool(0.1) { 10_000 } else { random.random_range(1..2_000) };
        Work { ops, lasts_us, after: self.seen }
    }
}

impl<N: GdcpNode> Client<N> for Session {
    fn next(&mut self, _: Time, random: &mut Random, last: Option<&Call<N>>) -> Next<N> {
        match last.map(|last| last.response.as_deref()) {
            Some(Some(Answer::Committed { at, .. })) => self.seen = self.seen.max(*at),
            Some(None) => self.site = NodeId((self.site.0 + 1) % self.sites),
            Some(Some(Answer::Aborted(_))) | None => {}
        }
        self.thinks = !self.thinks;
        if !self.thinks {
            return Next::Wait(random.random_range(0..=1_500));
        }
        if self.left == 0 {
            return Next::End;
        }
        self.left -= 1;
        let request = Rc::new(self.work(random));
        Next::Ask { to: self.site, request, timeout_us: TIMEOUT_US }
    }
}
