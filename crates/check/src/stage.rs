//! The rules of which levels consist. Each forbids certain cycles in a graph.
//!
//! | stage | graph | forbids cycles | level |
//! |---|---|---|---|
//! | DirtyWrites | one node a transaction | of ww | all |
//! | Information | one node | of ww and wr | all |
//! | Snapshots | s and c | of ww, wr, rw: those without two rw in a row | SI and above, serializable |
//! | Sessions | s and c | the same with process order | session SI and above, strict serializable |
//! | RealTime | s and c | the same with real time | strong SI, strict serializable |
//! | SerialOrder | one node | of ww, wr, rw | serializable and above |
//! | SerialTime | one node | the same with process order and real time | strict serializable |
//!
//! Anomalies that need no graph violate every level.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::anomaly::{Anomaly, Kind};
use crate::edges::{
    ANY_RW, Edges, INNER, Kinds, PROCESS, RW, RW_PROCESS, RW_SEEN, RW_TIME, TIME, WR, WW,
    WW_PROCESS, WW_SEEN, WW_TIME,
};
use crate::facts::Facts;
use crate::graph::{Graph, Search};
use crate::history::Txn;
use crate::level::Level;
use crate::name;
use crate::registers::By;
use crate::tell::{self, Explanation, Link, Why};

/// Of each kind so many are told; the others are counted.
const TOLD_MAX: usize = 3;
/// In each component so many searches are made for a shorter cycle or one of another kind.
const SEARCHES_MAX: usize = 200;
/// Edges looked at in one stage before it stops looking for more witnesses.
const LOOKED_MAX: u64 = 20_000_000;
/// Ways on from a barrier that are tried.
const WAYS_MAX: usize = 16;

/// What follows from the order of processes.
const BY_PROCESS: Kinds = PROCESS | WW_PROCESS | RW_PROCESS;
/// What follows from real time.
const BY_TIME: Kinds = TIME | WW_TIME | RW_TIME;

/// One rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    DirtyWrites,
    Information,
    Snapshots,
    Sessions,
    RealTime,
    SerialOrder,
    SerialTime,
}

impl Stage {
    /// The rules of a level, in the order in which a violation is best told.
    pub fn of(level: Level) -> &'static [Stage] {
        use Stage::{
            DirtyWrites, Information, RealTime, SerialOrder, SerialTime, Sessions, Snapshots,
        };
        match level {
            Level::ReadCommitted => &[DirtyWrites, Information],
            Level::Si | Level::OneCopySi => &[DirtyWrites, Information, Snapshots],
            Level::SessionSi => &[DirtyWrites, Information, Snapshots, Sessions],
            Level::StrongSi => &[DirtyWrites, Information, Snapshots, Sessions, RealTime],
            Level::Serializable => &[DirtyWrites, Information, Snapshots, SerialOrder],
            Level::StrictSerializable => {
                &[DirtyWrites, Information, Snapshots, Sessions, RealTime, SerialOrder, SerialTime]
            }
        }
    }

    fn kinds(self) -> Kinds {
        let data = WW | WR | RW | WW_SEEN | RW_SEEN;
        match self {
            Stage::DirtyWrites => WW,
            Stage::Information => WW | WR,
            Stage::Snapshots => data | INNER,
            Stage::Sessions => data | INNER | BY_PROCESS,
            Stage::RealTime => data | INNER | BY_PROCESS | BY_TIME,
            Stage::SerialOrder => data,
            Stage::SerialTime => data | BY_PROCESS | BY_TIME,
        }
    }

    /// Every cycle that an earlier stage didn't forbid has one of these.
    fn new_kinds(self) -> Kinds {
        match self {
            Stage::DirtyWrites => WW,
            Stage::Information => WR,
            Stage::Snapshots => RW | WW_SEEN | RW_SEEN,
            Stage::Sessions => BY_PROCESS,
            Stage::RealTime => BY_TIME,
            Stage::SerialOrder | Stage::SerialTime => ANY_RW,
        }
    }

    fn is_collapsed(self) -> bool {
        !matches!(self, Stage::Snapshots | Stage::Sessions | Stage::RealTime)
    }

    /// Whether the cycles to find have two rw links in a row: all others an earlier stage has
    /// found.
    fn wants_adjacent(self) -> bool {
        matches!(self, Stage::SerialOrder | Stage::SerialTime)
    }
}

/// The cycles that one stage forbids: at least one if there is any.
pub(crate) fn find(facts: &Facts, edges: &Edges, stage: Stage) -> Vec<Anomaly> {
    let graph = Graph::new(edges, stage.kinds(), stage.is_collapsed());
    let components = graph.components();
    if components.is_empty() {
        return Vec::new();
    }
    let search = Search::new(&graph, &components);
    let mut finder = Finder { facts, graph: &graph, stage, search, found: BTreeMap::new() };
    components.iter().for_each(|component| finder.component(component));
    finder.anomalies()
}

struct Finder<'g, 'a> {
    facts: &'g Facts<'a>,
    graph: &'g Graph<'a>,
    stage: Stage,
    search: Search<'g, 'a>,
    found: BTreeMap<Kind, Vec<Vec<Link>>>,
}

impl Finder<'_, '_> {
    /// Notes the shortest cycle of each kind that some searches in a component find.
    fn component(&mut self, nodes: &[u32]) {
        let mut best: BTreeMap<Kind, Vec<Link>> = BTreeMap::new();
        let mut searches = 0;
        'all: for &node in nodes {
            for &edge in self.graph.out(node) {
                let new = self.graph.edges[edge as usize].kind & self.stage.new_kinds() != 0;
                if !new || !self.search.is_inside(edge) {
                    continue;
                }
                let enough = searches >= SEARCHES_MAX || self.search.looked > LOOKED_MAX;
                if enough && !best.is_empty() {
                    break 'all;
                }
                let Some(links) = self.cycle_with(edge) else { continue };
                searches += 1;
                let kind = name::cycle(self.facts, &links);
                let known = best.entry(kind).or_insert_with(|| links.clone());
                if links.len() < known.len() {
                    *known = links;
                }
            }
        }
        for (kind, links) in best {
            self.found.entry(kind).or_default().push(links);
        }
    }

    /// A short cycle with an edge of a component.
    fn cycle_with(&mut self, edge: u32) -> Option<Vec<Link>> {
        let from = self.graph.from(edge);
        if !self.graph.is_txn(from) {
            return None;
        }
        if !self.stage.wants_adjacent() {
            return self.search.path(&[edge], from).map(|way| self.links(&way));
        }
        let ways = self.ways_on(edge);
        let is_rw = |edge: &u32| self.graph.edges[*edge as usize].kind & ANY_RW != 0;
        let out = ways.iter().flat_map(|(_, reached)| self.graph.out(*reached));
        let next: Vec<u32> = out.copied().filter(is_rw).collect();
        let rest = self.search.path(&next, from)?;
        let (mut way, _) =
            ways.into_iter().find(|(_, reached)| *reached == self.graph.from(rest[0]))?;
        way.extend(rest);
        Some(self.links(&way))
    }

    /// The edge and what follows up to transactions, the nearest first, if it leads to a barrier.
    fn ways_on(&self, edge: u32) -> Vec<(Vec<u32>, u32)> {
        let (mut open, mut ways) = (VecDeque::from([vec![edge]]), Vec::new());
        while let Some(way) = open.pop_front() {
            let reached = self.graph.to(way[way.len() - 1]);
            if self.graph.is_txn(reached) {
                ways.push((way, reached));
                if ways.len() == WAYS_MAX {
                    break;
                }
                continue;
            }
            for &next in self.graph.out(reached).iter().filter(|&&e| self.search.is_inside(e)) {
                let mut longer = way.clone();
                longer.push(next);
                open.push_back(longer);
            }
        }
        ways
    }

    /// Edges as relations between transactions.
    fn links(&self, way: &[u32]) -> Vec<Link> {
        let txn = |node: u32| -> Txn { node / 2 };
        let mut links: Vec<Link> = Vec::new();
        let mut open: Option<(Txn, Why)> = None;
        for &at in way {
            let edge = &self.graph.edges[at as usize];
            if self.graph.is_txn(edge.from) && edge.kind != INNER {
                open = Some((txn(edge.from), why(edge.kind, edge.key)));
            }
            if self.graph.is_txn(edge.to)
                && let Some((from, why)) = open.take()
            {
                links.push(Link { from, why, to: txn(edge.to) });
            }
        }
        let first = links.iter().enumerate().min_by_key(|(_, link)| link.from);
        let first = first.map_or(0, |(at, _)| at);
        links.rotate_left(first);
        links
    }

    fn anomalies(self) -> Vec<Anomaly> {
        let facts = self.facts;
        let mut anomalies = Vec::new();
        for (kind, mut cycles) in self.found {
            cycles.sort_by_key(|links| (links.len(), links[0].from));
            let more = cycles.len().saturating_sub(TOLD_MAX);
            for (at, links) in cycles.iter().take(TOLD_MAX).enumerate() {
                anomalies.push(anomaly(facts, kind, links, if at == 0 { more } else { 0 }));
            }
        }
        anomalies
    }
}

fn why(kind: Kinds, key: u32) -> Why {
    match kind {
        PROCESS => Why::Process,
        TIME => Why::Time,
        WR => Why::Wr(key),
        WW => Why::Ww(key, By::Data),
        WW_SEEN => Why::Ww(key, By::Seen),
        RW_SEEN => Why::Rw(key, By::Seen),
        WW_PROCESS => Why::Ww(key, By::Process),
        WW_TIME => Why::Ww(key, By::Time),
        RW_PROCESS => Why::Rw(key, By::Process),
        RW_TIME => Why::Rw(key, By::Time),
        _ => Why::Rw(key, By::Data),
    }
}

fn anomaly(facts: &Facts, kind: Kind, links: &[Link], more: usize) -> Anomaly {
    let explained: Vec<Explanation> = links.iter().map(|link| tell::link(facts, link)).collect();
    let unique: BTreeSet<Txn> = explained.iter().flat_map(|link| link.of.iter().copied()).collect();
    let keys: Vec<u32> = links.iter().filter_map(|link| link.why.key()).collect();
    Anomaly {
        kind,
        transactions: unique.iter().map(|&txn| txn as usize + 1).collect(),
        who: unique.iter().map(|&txn| tell::transaction(facts, txn, &keys)).collect(),
        because: explained.into_iter().map(|link| link.because).collect(),
        more,
    }
}
