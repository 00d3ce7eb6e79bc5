//! What clients saw of the replicated database, as a history for the checker: a row is a list, and so is each
//! row's membership in each group (what predicates read).

use ahash::AHashMap;
use hihooi_check::{BadHistory, History, Op as Seen, Outcome, Transaction};

use crate::database::engine::{Change, Element, Engine, GROUPS, Key};
use crate::database::site::{Entry, LOG, Site};
use crate::database::transaction::{Answer, Op, Work};
use crate::record::{self, Processes};
use crate::{Call, Client, World};

/// The history of a run that is over, with a final read at each site.
///
/// # Errors
/// When the calls are no history: a defect of the simulation.
pub fn history<C: Client<Site>>(world: &World<Site, C>) -> Result<History, BadHistory> {
    let mut history = History::new();
    let mut processes = Processes::of(world.calls());
    let recorder = Recorder::of(world);
    for call in world.calls() {
        history.push(recorder.transaction(call, processes.of_call(call)))?;
    }
    for (id, site) in world.running() {
        history.push(record::final_read(id, world.now(), all(site)))?;
    }
    Ok(history)
}

/// What is known besides the calls: which groups each write touched, which only the site that
/// ran it knows.
struct Recorder {
    keys: u32,
    changes: AHashMap<Element, Change>,
}

impl Recorder {
    fn of<C: Client<Site>>(world: &World<Site, C>) -> Recorder {
        let attempts = world.log(LOG).iter().filter_map(|entry| match entry {
            Entry::Attempt(attempt) => Some(&attempt.changes),
            Entry::Oldest(..) => None,
        });
        let changes = attempts.flatten().map(|change| (change.element, *change)).collect();
        let keys = world.running().next().map_or(0, |(_, site)| site.engine().keys());
        Recorder { keys, changes }
    }

    fn transaction(&self, call: &Call<Site>, process: i64) -> Transaction {
        let (outcome, reads) = match call.response.as_deref() {
            Some(Answer::Committed { reads, .. }) => (Outcome::Committed, &reads[..]),
            Some(Answer::Aborted(_)) => (Outcome::Aborted, &[][..]),
            None => (Outcome::Unknown, &[][..]),
        };
        record::of_call(call, process, outcome, self.operations(&call.request, reads))
    }

    /// The steps with what they returned; without the reads if it returned nothing.
    fn operations(&self, work: &Work, reads: &[Vec<Element>]) -> Vec<Seen> {
        let mut reads = reads.iter();
        let mut seen = Vec::with_capacity(work.ops.len());
        for op in &work.ops {
            if let Op::Append(key, element) = op {
                self.append(*key, *element, &mut seen);
            } else {
                let lists = self.names(op).into_iter().zip(reads.by_ref());
                seen.extend(lists.map(|(name, list)| list_of(name, list)));
            }
        }
        seen
    }

    fn append(&self, key: Key, element: Element, seen: &mut Vec<Seen>) {
        seen.push(Seen::append(row(key), element as i64));
        let groups = self.changes.get(&element).into_iter().flat_map(Change::groups);
        seen.extend(groups.map(|group| Seen::append(membership(group, key), element as i64)));
    }

    /// The lists that a step reads.
    fn names(&self, op: &Op) -> Vec<i64> {
        match op {
            Op::Append(..) => Vec::new(),
            Op::Read(key) => vec![row(*key)],
            Op::ScanKeys(keys) => keys.clone().map(row).collect(),
            Op::ScanGroups(groups) => groups
                .clone()
                .flat_map(|group| (0..self.keys).map(move |key| membership(group, key)))
                .collect(),
        }
    }
}

fn list_of(key: i64, list: &[Element]) -> Seen {
    Seen::list(key, list.iter().map(|element| *element as i64))
}

fn row(key: Key) -> i64 {
    i64::from(key)
}

/// As 3007: row 7 in group 2. Trials have far fewer than a thousand rows.
fn membership(group: u64, key: Key) -> i64 {
    (group as i64 + 1) * 1_000 + row(key)
}

/// All that the site holds.
fn all(site: &Site) -> Vec<Seen> {
    let engine = site.engine();
    let mut ops: Vec<Seen> = (0..engine.keys()).map(|key| rows_list(site, key)).collect();
    for group in 0..GROUPS {
        ops.extend((0..engine.keys()).map(|key| member_list(engine, site, group, key)));
    }
    ops
}

fn rows_list(site: &Site, key: Key) -> Seen {
    let mut list = Vec::new();
    site.engine().list(key, site.applied(), &mut list);
    list_of(row(key), &list)
}

fn member_list(engine: &Engine, site: &Site, group: u64, key: Key) -> Seen {
    let mut list = Vec::new();
    engine.membership(group, key, site.applied(), &mut list);
    list_of(membership(group, key), &list)
}
