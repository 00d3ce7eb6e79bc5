//! Anomalies that one or two transactions show by themselves, without a graph.

use std::collections::{BTreeMap, BTreeSet};

use ahash::{AHashMap, AHashSet};

use crate::anomaly::{Anomaly, Kind};
use crate::facts::{Base, Facts, ListRead};
use crate::history::{Key, Outcome, Step, Txn, Value};
use crate::tell;

/// Of each kind so many are told; the others are counted.
const TOLD_MAX: usize = 3;

/// The anomalies of a history that need no graph.
pub(crate) fn find(facts: &Facts) -> Vec<Anomaly> {
    let mut found = Found { facts, by_kind: BTreeMap::new() };
    for broken in &facts.own_writes_broken {
        let because = "its read must show what it wrote before, in that order, and nothing that \
                       it wrote later";
        found.add(Kind::BrokenOwnWrites, &[broken.txn], broken.key, because.to_owned());
    }
    for key in 0..facts.keys.len() as Key {
        found.lists(key);
        found.registers(key);
        found.lost_updates(key);
    }
    found.final_reads();
    found.by_kind.into_values().flatten().collect()
}

struct Found<'f, 'a> {
    facts: &'f Facts<'a>,
    by_kind: BTreeMap<Kind, Vec<Anomaly>>,
}

impl Found<'_, '_> {
    fn add(&mut self, kind: Kind, txns: &[Txn], key: Key, because: String) {
        let told = self.by_kind.entry(kind).or_default();
        if told.len() == TOLD_MAX {
            told[0].more += 1;
            return;
        }
        let mut unique: Vec<Txn> = txns.to_vec();
        unique.sort_unstable();
        unique.dedup();
        told.push(Anomaly {
            kind,
            transactions: unique.iter().map(|&txn| txn as usize + 1).collect(),
            who: unique.iter().map(|&txn| tell::transaction(self.facts, txn, &[key])).collect(),
            because: vec![because],
            more: 0,
        });
    }

    /// Whether enough of a kind is told, so that no better witness needs to be looked for.
    fn is_told(&self, kind: Kind) -> bool {
        self.by_kind.get(&kind).is_some_and(|told| told.len() == TOLD_MAX)
    }

    fn name(&self, key: Key) -> String {
        tell::quoted(self.facts.history.key_name(key))
    }

    fn value(&self, value: Value) -> String {
        tell::quoted(self.facts.history.value_name(value))
    }

    fn lists(&mut self, key: Key) {
        let known = &self.facts.keys[key as usize];
        let Some(longest) = known.longest else { return };
        for &odd in &known.incompatible {
            self.incompatible(key, known.list_reads[odd], known.list_reads[longest]);
        }
        for &at in known.incompatible.iter().chain([&longest]) {
            self.values_of(key, &known.list_reads, at);
            let read = &known.list_reads[at];
            self.order_of_own(key, read.txn, self.facts.elements(read));
        }
        for read in &known.list_reads {
            let external = &self.facts.elements(read)[..read.external as usize];
            if let Some(&last) = external.last() {
                self.intermediate(key, read.txn, last);
            }
        }
    }

    fn incompatible(&mut self, key: Key, odd: ListRead, longest: ListRead) {
        let (a, b) = (self.facts.elements(&odd), self.facts.elements(&longest));
        let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let because = format!(
            "{} was read as {} and as {}: from position {} on neither continues the other",
            self.name(key),
            tell::list(self.facts, a),
            tell::list(self.facts, b),
            same + 1
        );
        self.add(Kind::IncompatibleOrders, &[odd.txn, longest.txn], key, because);
    }

    /// Looks at every value of a read that is the longest of its key, or contradicts it.
    fn values_of(&mut self, key: Key, reads: &[ListRead], at: usize) {
        let facts = self.facts;
        let list = facts.elements(&reads[at]);
        let mut seen = AHashSet::new();
        for (place, &value) in list.iter().enumerate() {
            // Who shows it in the fewest values.
            let short = |read: &&ListRead| {
                read.len as usize > place && facts.elements(read)[place] == value
            };
            let first = || {
                let found = reads.iter().filter(short).min_by_key(|read| (read.len, read.txn));
                found.map_or(reads[at].txn, |read| read.txn)
            };
            if !seen.insert(value) {
                let because = format!(
                    "{} was appended to {} once and stands there twice",
                    self.value(value),
                    self.name(key)
                );
                let writer = facts.history.writer(key, value).map(|writer| writer.txn);
                let reader =
                    if self.is_told(Kind::DuplicateAppend) { reads[at].txn } else { first() };
                let both: Vec<Txn> = writer.into_iter().chain([reader]).collect();
                self.add(Kind::DuplicateAppend, &both, key, because);
                continue;
            }
            if self.is_sound(key, value) {
                continue;
            }
            let told = self.is_told(Kind::NeverWritten) && self.is_told(Kind::AbortedRead);
            self.unsound(key, if told { reads[at].txn } else { first() }, value);
        }
    }

    /// What one transaction appended stands in a list in the order in which it was appended.
    fn order_of_own(&mut self, key: Key, reader: Txn, list: &[Value]) {
        let facts = self.facts;
        let several = |&value: &Value| {
            let writer = facts.history.writer(key, value)?;
            (!writer.last).then_some(writer.txn)
        };
        let several: BTreeSet<Txn> = list.iter().filter_map(several).collect();
        for writer in several {
            let place: AHashMap<Value, usize> = tell::written(facts, writer, key)
                .into_iter()
                .enumerate()
                .map(|(at, value)| (value, at))
                .collect();
            let places: Vec<usize> =
                list.iter().filter_map(|value| place.get(value).copied()).collect();
            if places.is_sorted() {
                continue;
            }
            let because = format!(
                "{} shows what {} appended in another order",
                self.name(key),
                tell::number(writer)
            );
            self.add(Kind::IncompatibleOrders, &[writer, reader], key, because);
        }
    }

    /// Whether a value that was read has a writer that may have committed.
    fn is_sound(&self, key: Key, value: Value) -> bool {
        let writer = self.facts.history.writer(key, value);
        let outcome = writer.map(|writer| self.facts.history.record(writer.txn).outcome);
        outcome.is_some_and(|outcome| outcome != Outcome::Aborted)
    }

    fn unsound(&mut self, key: Key, reader: Txn, value: Value) {
        let (shown, name) = (self.value(value), self.name(key));
        match self.facts.history.writer(key, value) {
            None => {
                let because = format!("nobody wrote {shown} to {name}");
                self.add(Kind::NeverWritten, &[reader], key, because);
            }
            // A transaction that reads its own write isn't aborted: its reads don't count.
            Some(writer) => {
                let because = format!(
                    "{} saw {shown} in {name}, which {} wrote, and that aborted",
                    tell::number(reader),
                    tell::number(writer.txn)
                );
                self.add(Kind::AbortedRead, &[writer.txn, reader], key, because);
            }
        }
    }

    fn intermediate(&mut self, key: Key, reader: Txn, last: Value) {
        let Some(writer) = self.facts.history.writer(key, last) else { return };
        if writer.last || writer.txn == reader {
            return;
        }
        let because = format!(
            "{} saw {} as {} left it only for a while, on its way to a further write",
            tell::number(reader),
            self.name(key),
            tell::number(writer.txn)
        );
        self.add(Kind::IntermediateRead, &[writer.txn, reader], key, because);
    }

    fn registers(&mut self, key: Key) {
        for read in &self.facts.keys[key as usize].register_reads {
            let Some(value) = read.seen else { continue };
            if self.is_sound(key, value) {
                self.intermediate(key, read.txn, value);
            } else {
                self.unsound(key, read.txn, value);
            }
        }
    }

    /// Two that read the same version and both overwrote it, where nothing tells which one came
    /// first. Where something does, the graph has a cycle.
    fn lost_updates(&mut self, key: Key) {
        let facts = self.facts;
        let known = &facts.keys[key as usize];
        if !known.incompatible.is_empty() {
            return;
        }
        let order = facts.order(key);
        let mut of_base: BTreeMap<Base, Vec<Txn>> = BTreeMap::new();
        for write in known.unread(order).filter(|write| write.base != Base::Unread) {
            of_base.entry(write.base).or_default().push(write.txn);
        }
        for txns in of_base.into_values().filter(|txns| txns.len() > 1) {
            let because = format!(
                "both read the same version of {} and both overwrote it: whichever was second \
                 overwrote what it hadn't seen",
                self.name(key)
            );
            self.add(Kind::LostUpdate, &txns[..2], key, because);
        }
    }

    /// Final reads show all that was acknowledged, and all that anybody saw.
    fn final_reads(&mut self) {
        let facts = self.facts;
        let mut writes: AHashMap<Key, Vec<(Txn, Value)>> = AHashMap::new();
        let record = |txn| facts.history.record(txn);
        // What is marked final itself may run beside the reader.
        let is_before = |writer, reader| {
            !record(writer).is_final || record(writer).completed < record(reader).invoked
        };
        let finals = facts.history.txns().filter(|&txn| {
            let record = facts.history.record(txn);
            record.is_final && record.outcome == Outcome::Committed
        });
        let finals: Vec<Txn> = finals.collect();
        if finals.is_empty() {
            return;
        }
        for txn in facts.history.txns().filter(|&txn| facts.committed[txn as usize]) {
            for step in facts.history.steps(txn) {
                if let Step::Append(key, value) | Step::Write(key, value) = *step {
                    writes.entry(key).or_default().push((txn, value));
                }
            }
        }
        for reader in finals {
            for step in facts.history.steps(reader) {
                let (key, shown) = match *step {
                    Step::List { key, start, len } => (key, facts.history.elements(start, len)),
                    Step::Nothing(key) => (key, &[][..]),
                    _ => continue,
                };
                let shown: AHashSet<Value> = shown.iter().copied().collect();
                for &(writer, value) in writes.get(&key).into_iter().flatten() {
                    if is_before(writer, reader) && !shown.contains(&value) {
                        self.lost(key, writer, reader, value);
                    }
                }
            }
        }
    }

    fn lost(&mut self, key: Key, writer: Txn, reader: Txn, value: Value) {
        let known = match self.facts.history.record(writer).outcome {
            Outcome::Committed => "was acknowledged",
            _ => "was seen by others",
        };
        let because = format!(
            "{} of {} {known}, and {}, the final read of {}, lacks it",
            self.value(value),
            tell::number(writer),
            tell::number(reader),
            self.name(key)
        );
        self.add(Kind::LostCommit, &[writer, reader], key, because);
    }
}
