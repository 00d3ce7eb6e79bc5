//! Clients: closed loops of transactions, each of several operations on objects that no one site
//! need hold together. A transaction stays at one site, the next may go to another.

use std::rc::Rc;

use hihooi_certify::certification::items::RowKey;
use hihooi_placement::protocol::{Item, ObjectId, Operation, Reply};
use rand::RngExt;

use crate::placement::engine::{Element, Step};
use crate::placement::site::{Request, Site, What};
use crate::{Call, Client, Next, NodeId, Random, Time};

/// A client gives up a call after so long.
const TIMEOUT_US: u64 = 100_000;

/// What clients do.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The objects that each site holds.
    pub holdings: Rc<Vec<Vec<u32>>>,
    /// Rows of an object.
    pub rows: u32,
    /// Operations of a transaction at most.
    pub operations_max: u32,
    /// The share of appends among the steps of a transaction that writes.
    pub writes: f64,
    /// The share of transactions that only read.
    pub read_only: f64,
    /// A client thinks for so long at most between transactions.
    pub think_us_max: u64,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Session {
    mix: Mix,
    number: u64,
    site: NodeId,
    transactions_left: u32,
    is_begun: bool,
    operations_left: u32,
    is_read_only: bool,
    transaction: u64,
    elements: Element,
}

impl Session {
    /// The client of this number, to do so many transactions.
    #[must_use]
    pub fn new(mix: Mix, number: u16, transactions: u32) -> Session {
        Session {
            mix,
            number: u64::from(number),
            site: NodeId(0),
            transactions_left: transactions,
            is_begun: false,
            operations_left: 0,
            is_read_only: false,
            transaction: 0,
            elements: 0,
        }
    }

    fn begin(&mut self, random: &mut Random) -> Next<Site> {
        if self.transactions_left == 0 {
            return Next::End;
        }
        self.transactions_left -= 1;
        self.transaction += 1;
        self.is_begun = false;
        self.operations_left = random.random_range(1..=self.mix.operations_max);
        self.is_read_only = random.random_bool(self.mix.read_only);
        let sites = self.mix.holdings.len();
        self.site = NodeId(u16::try_from(random.random_range(0..sites)).unwrap_or(0));
        self.go_on(random)
    }

    fn go_on(&mut self, random: &mut Random) -> Next<Site> {
        let number = self.transaction << 16 | self.number;
        let what = match self.operations_left.checked_sub(1) {
            Some(left) => {
                self.operations_left = left;
                let operation = Rc::new(self.operation(random));
                match std::mem::replace(&mut self.is_begun, true) {
                    false => What::Begin(operation),
                    true => What::Run(operation),
                }
            }
            None => What::Commit,
        };
        Next::Ask { to: self.site, request: Request { number, what }, timeout_us: TIMEOUT_US }
    }

    /// Steps on objects that some site holds.
    fn operation(&mut self, random: &mut Random) -> Operation<crate::placement::engine::Lists> {
        let holdings = self.mix.holdings.clone();
        let objects = &holdings[random.random_range(0..holdings.len())];
        let mut statement = Vec::new();
        for _ in 0..random.random_range(1..=3) {
            if objects.is_empty() {
                break;
            }
            let object = ObjectId(objects[random.random_range(0..objects.len())]);
            let row = RowKey(u128::from(random.random_range(0..self.mix.rows)));
            statement.push(self.choose(Item { object, row }, random));
        }
        let mut objects: Vec<ObjectId> = statement.iter().map(|step| step.item().object).collect();
        objects.sort_unstable();
        objects.dedup();
        Operation { objects, statement }
    }

    fn choose(&mut self, item: Item, random: &mut Random) -> Step {
        if self.is_read_only || !random.random_bool(self.mix.writes) {
            return Step::Read(item);
        }
        self.elements += 1;
        Step::Append(item, self.elements << 16 | self.number as Element)
    }
}

impl Client<Site> for Session {
    fn next(&mut self, _: Time, random: &mut Random, last: Option<&Call<Site>>) -> Next<Site> {
        let Some(last) = last else { return self.begin(random) };
        match last.response.as_deref() {
            Some(Reply::Answered(_)) => self.go_on(random),
            // The transaction is over, or given up.
            Some(Reply::Committed { .. } | Reply::Aborted(_)) | None => {
                Next::Wait(random.random_range(0..=self.mix.think_us_max))
            }
        }
    }
}
