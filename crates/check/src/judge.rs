//! Checks a history against a level, and returns the verdict.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::anomaly::Anomaly;
use crate::direct;
use crate::edges::Edges;
use crate::facts::Facts;
use crate::history::{History, Outcome, Shape};
use crate::level::Level;
use crate::stage::{self, Stage};

/// What a history holds, and how much of it can be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Summary {
    /// Transactions.
    pub transactions: usize,
    /// Those acknowledged as committed.
    pub committed: usize,
    /// Those that failed.
    pub aborted: usize,
    /// Those whose end their clients don't know.
    pub unknown: usize,
    /// Of these, those that committed, since others saw what they wrote.
    pub unknown_but_seen: usize,
    /// Keys that hold lists.
    pub lists: usize,
    /// Keys that hold registers.
    pub registers: usize,
    /// Keys that were read but never written.
    pub unwritten: usize,
    /// Last appends of committed transactions to lists whose longest read lacks them: of these
    /// only what came before them is known, not their own order.
    pub appends_unread: usize,
    /// Final reads.
    pub final_reads: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} transactions ({} committed, {} aborted, {} of unknown outcome, of which {} were \
             seen), {} lists, {} registers, {} final reads",
            self.transactions,
            self.committed,
            self.aborted,
            self.unknown,
            self.unknown_but_seen,
            self.lists,
            self.registers,
            self.final_reads
        )
    }
}

/// Whether a history keeps a level, and if not, why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The level.
    pub level: Level,
    /// What violates it; nothing if it holds.
    pub anomalies: Vec<Anomaly>,
    /// What was judged.
    pub summary: Summary,
}

impl Verdict {
    /// Whether the history keeps the level.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.anomalies.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holds() {
            return writeln!(f, "{} holds", self.level);
        }
        writeln!(f, "{} is violated", self.level)?;
        for (at, anomaly) in self.anomalies.iter().enumerate() {
            write!(f, "\n{}. {anomaly}", at + 1)?;
        }
        Ok(())
    }
}

/// Judges a history by one level.
#[must_use]
pub fn judge(history: &History, level: Level) -> Verdict {
    Judge::new(history).verdict(level)
}

/// Judges a history by several levels, with the work that they share done once.
pub struct Judge<'a> {
    facts: Facts<'a>,
    edges: Edges,
    direct: Vec<Anomaly>,
    stages: BTreeMap<Stage, Vec<Anomaly>>,
}

impl<'a> Judge<'a> {
    /// Works out who depends on whom.
    #[must_use]
    pub fn new(history: &'a History) -> Judge<'a> {
        let facts = Facts::of(history);
        let edges = Edges::of(&facts);
        let direct = direct::find(&facts);
        Judge { facts, edges, direct, stages: BTreeMap::new() }
    }

    /// The verdict by a level.
    pub fn verdict(&mut self, level: Level) -> Verdict {
        let allowed = |anomaly: &&Anomaly| {
            level != Level::ReadCommitted || anomaly.kind != crate::anomaly::Kind::LostUpdate
        };
        let mut found: Vec<(bool, Anomaly)> =
            self.direct.iter().filter(allowed).map(|direct| (true, direct.clone())).collect();
        for &stage in Stage::of(level) {
            found.extend(self.stage(stage).iter().map(|cycle| (false, cycle.clone())));
        }
        // The smallest first; of equal ones that of the rule that more levels have.
        found.sort_by_key(|(_, anomaly)| anomaly.transactions.len());
        let mut anomalies: Vec<Anomaly> = Vec::new();
        for (is_direct, anomaly) in found {
            // What shows something shorter already needs no longer witness.
            if is_direct || !anomalies.iter().any(|known| is_part(known, &anomaly)) {
                anomalies.push(anomaly);
            }
        }
        Verdict { level, anomalies, summary: self.summary() }
    }

    fn stage(&mut self, stage: Stage) -> &[Anomaly] {
        let (facts, edges) = (&self.facts, &self.edges);
        self.stages.entry(stage).or_insert_with(|| stage::find(facts, edges, stage))
    }

    /// The levels that hold and are implied by no other that holds.
    pub fn strongest(&mut self) -> Vec<Level> {
        let holding: Vec<Level> =
            Level::ALL.into_iter().filter(|&level| self.verdict(level).holds()).collect();
        let implied = |level: &Level| {
            let stronger = |other: &&Level| other.implies(*level) && !level.implies(**other);
            holding.iter().any(|other| stronger(&other))
        };
        holding.iter().copied().filter(|level| !implied(level)).collect()
    }

    /// What was judged.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let history = self.facts.history;
        let of = |outcome| history.records.iter().filter(|r| r.outcome == outcome).count();
        let shape = |shape| history.shapes.iter().filter(|&&s| s == shape).count();
        let unknown_but_seen = history
            .txns()
            .filter(|&txn| {
                self.facts.committed[txn as usize]
                    && history.record(txn).outcome == Outcome::Unknown
            })
            .count();
        let unread = |key: u32| {
            let known = &self.facts.keys[key as usize];
            match history.shapes[key as usize] {
                Shape::List => known.unread(self.facts.order(key)).count(),
                _ => 0,
            }
        };
        Summary {
            transactions: history.len(),
            committed: of(Outcome::Committed),
            aborted: of(Outcome::Aborted),
            unknown: of(Outcome::Unknown),
            unknown_but_seen,
            lists: shape(Shape::List),
            registers: shape(Shape::Register),
            unwritten: shape(Shape::Unknown),
            appends_unread: (0..history.keys() as u32).map(unread).sum(),
            final_reads: history.records.iter().filter(|r| r.is_final).count(),
        }
    }
}

/// Whether all transactions of one anomaly are among those of the other.
fn is_part(one: &Anomaly, other: &Anomaly) -> bool {
    one.transactions.iter().all(|txn| other.transactions.contains(txn))
}
