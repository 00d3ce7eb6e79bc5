//! [`Rssi`] with a bug, so that tests and simulations can show that they would find it. Not for any
//! other use. All but the last bug are in [`Rssi::by_the_letter`], the last is in how [`Rssi::new`]
//! chooses.

use crate::certification::rssi::{Choice, Rssi, Rule, choose};
use crate::certification::{Certifier, Decision, Limits, Timestamp, Transaction};

/// A bug to plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Forgets as RSSI paper, appendix C.2.3, does: once no pending transaction is concurrent, and
    /// without raising the lsv of later ones. Set [`Limits::spare_max`] low to see it.
    PaperGarbageCollection,
    /// A structure whose transactions have the same lsv does not count as descending.
    LsvOffByOne,
    /// Only writes are looked at.
    ReadsetIgnored,
    /// The number in place of lsv may be one at which what was read had been overwritten.
    ReadsOutdated,
}

fn choose_any(choice: &Choice) -> Timestamp {
    choose(&Choice { overwritten: Timestamp(u64::MAX), ..*choice })
}

/// The certifier with the bug.
#[derive(Clone, Debug)]
pub struct PlantedRssi {
    bug: Planted,
    rssi: Rssi,
}

impl PlantedRssi {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(limits: Limits, bug: Planted) -> PlantedRssi {
        let rule = match bug {
            Planted::PaperGarbageCollection => Rule { lowest: |high, _| high, ..Rule::LETTER },
            Planted::LsvOffByOne => Rule { descends: |peak, other| other < peak, ..Rule::LETTER },
            Planted::ReadsetIgnored => Rule::LETTER,
            Planted::ReadsOutdated => Rule { choose: Some(choose_any), ..Rule::CHOICE },
        };
        PlantedRssi { bug, rssi: Rssi::with_rule(limits, rule) }
    }
}

impl Certifier for PlantedRssi {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        if self.bug != Planted::ReadsetIgnored {
            return self.rssi.certify(transaction);
        }
        let mut transaction = transaction.clone();
        transaction.reads.clear();
        self.rssi.certify(&transaction)
    }

    fn collect(&mut self, staleness: Timestamp) {
        self.rssi.collect(staleness);
    }

    fn reset(&mut self, at: Timestamp) {
        self.rssi.reset(at);
    }

    fn clock(&self) -> Timestamp {
        self.rssi.clock()
    }
}
