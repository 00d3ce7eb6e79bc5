//! Certifiers so simple that they can't be wrong: they judge the simulation itself, and show how
//! far the real ones are from the definitions.

use hihooi_certify::certification::items::{Read, Write};
use hihooi_certify::certification::{
    Cause, Certifier, Decision, Limits, Lsv, Role, Timestamp, Transaction,
};
use hihooi_sim::database::site::SiteCertifier;

/// Which conflicts count.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    WriteWrite,
    AnyRead,
    DescendingStructure,
}

/// Remembers everything and compares with everything.
pub struct Naive {
    rule: Rule,
    clock: u64,
    committed: Vec<Committed>,
}

struct Committed {
    at: Timestamp,
    transaction: Transaction,
    /// Where anti-dependency edges from here lead to.
    out: Vec<usize>,
    /// Where those that lead here come from.
    into: Vec<usize>,
}

impl Naive {
    fn boxed(rule: Rule) -> Box<dyn SiteCertifier> {
        Box::new(Naive { rule, clock: 0, committed: Vec::new() })
    }

    /// Write conflicts alone.
    pub fn rsi(_: Limits) -> Box<dyn SiteCertifier> {
        Naive::boxed(Rule::WriteWrite)
    }

    /// Any conflict.
    pub fn cp_roo(_: Limits) -> Box<dyn SiteCertifier> {
        Naive::boxed(Rule::AnyRead)
    }

    /// Definition 3.1 to the letter, over all that ever committed.
    pub fn rssi(_: Limits) -> Box<dyn SiteCertifier> {
        Naive::boxed(Rule::DescendingStructure)
    }

    fn verdict(&self, txn: &Transaction, out: &[usize], into: &[usize]) -> Result<(), Cause> {
        let mut concurrent = self.committed.iter().rev().take_while(|c| c.at > txn.begin);
        let clash = |c: &&Committed| {
            c.transaction.writes.iter().any(|w| txn.writes.iter().any(|own| own.same_row(w)))
        };
        if let Some(other) = concurrent.find(clash) {
            return Err(Cause::WriteConflict { with: other.transaction.id });
        }
        match self.rule {
            Rule::AnyRead if !out.is_empty() => {
                Err(Cause::ReadImpact { with: self.committed[out[0]].transaction.id })
            }
            Rule::DescendingStructure => self.descending(txn.lsv, out, into),
            _ => Ok(()),
        }
    }

    fn descending(&self, own: Lsv, out: &[usize], into: &[usize]) -> Result<(), Cause> {
        let lsv = |index: &usize| self.committed[*index].transaction.lsv;
        let falls = |peak: Lsv, f: Lsv, t: Lsv| f.low <= peak.high && t.low <= peak.high;
        let err = |role| Err(Cause::DescendingStructure { role });
        for f in out {
            let back = into.contains(f).then_some(own);
            let mut trailing = self.committed[*f].out.iter().map(lsv).chain(back);
            if trailing.any(|t| falls(own, lsv(f), t)) {
                return err(Role::Peak);
            }
        }
        for p in into {
            if out.iter().any(|t| falls(lsv(p), own, lsv(t))) {
                return err(Role::Follow);
            }
        }
        for f in into {
            let back = out.contains(f).then_some(own);
            let mut peaks = self.committed[*f].into.iter().map(lsv).chain(back);
            if peaks.any(|p| falls(p, lsv(f), own)) {
                return err(Role::Trailing);
            }
        }
        Ok(())
    }

    fn edges(&self, txn: &Transaction) -> (Vec<usize>, Vec<usize>) {
        if self.rule == Rule::WriteWrite {
            return Default::default();
        }
        let touched = |reads: &[Read], writes: &[Write]| {
            reads.iter().any(|read| writes.iter().any(|write| read.touched_by(write)))
        };
        let all = 0..self.committed.len();
        let out = all.clone().filter(|c| {
            let c = &self.committed[*c];
            c.at > txn.begin && touched(&txn.reads, &c.transaction.writes)
        });
        let into = all.filter(|c| touched(&self.committed[*c].transaction.reads, &txn.writes));
        (out.collect(), into.collect())
    }
}

impl SiteCertifier for Naive {}

impl Certifier for Naive {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        self.clock += 1;
        let at = Timestamp(self.clock);
        let (out, into) = self.edges(transaction);
        let verdict = self.verdict(transaction, &out, &into);
        if verdict.is_ok() {
            let new = self.committed.len();
            out.iter().for_each(|c| self.committed[*c].into.push(new));
            into.iter().for_each(|c| self.committed[*c].out.push(new));
            self.committed.push(Committed { at, transaction: transaction.clone(), out, into });
        }
        Decision { at, verdict }
    }

    fn collect(&mut self, _: Timestamp) {}

    fn reset(&mut self, _: Timestamp) {}

    fn clock(&self) -> Timestamp {
        Timestamp(self.clock)
    }
}
