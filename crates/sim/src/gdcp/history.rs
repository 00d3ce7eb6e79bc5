//! What clients saw, as a history for the checker: a row is a list.

use hihooi_check::{BadHistory, History, Op as Seen, Outcome, Transaction};

use crate::database::engine::Element;
use crate::database::transaction::{Answer, Op, Work};
use crate::gdcp::replica::GdcpNode;
use crate::gdcp::session::Session;
use crate::record::{self, Processes};
use crate::{Call, World};

/// The history of a run that is over, with a final read at each site.
///
/// # Errors
/// When the calls are no history: a defect of the simulation.
pub fn history<N: GdcpNode>(world: &World<N, Session>) -> Result<History, BadHistory> {
    let mut history = History::new();
    let mut processes = Processes::of(world.calls());
    for call in world.calls() {
        history.push(transaction(call, processes.of_call(call)))?;
    }
    for (id, site) in world.running() {
        let lists = rows(site).into_iter().zip(0..);
        let ops = lists.map(|(list, key)| list_of(key, &list)).collect();
        history.push(record::final_read(id, world.now(), ops))?;
    }
    Ok(history)
}

/// All that a site shows.
pub(super) fn rows<N: GdcpNode>(site: &N) -> Vec<Vec<Element>> {
    let (engine, at) = (site.replica().engine(), site.replica().applied());
    let list = |key| {
        let mut list = Vec::new();
        engine.list(key, at, &mut list);
        list
    };
    (0..engine.keys()).map(list).collect()
}

fn list_of(key: u32, list: &[Element]) -> Seen {
    Seen::list(i64::from(key), list.iter().map(|element| *element as i64))
}

fn transaction<N: GdcpNode>(call: &Call<N>, process: i64) -> Transaction {
    let (outcome, reads) = match call.response.as_deref() {
        Some(Answer::Committed { reads, .. }) => (Outcome::Committed, &reads[..]),
        Some(Answer::Aborted(_)) => (Outcome::Aborted, &[][..]),
        None => (Outcome::Unknown, &[][..]),
    };
    record::of_call(call, process, outcome, operations(&call.request, reads))
}

fn operations(work: &Work, reads: &[Vec<Element>]) -> Vec<Seen> {
    let mut reads = reads.iter();
    let mut seen = Vec::new();
    for op in &work.ops {
        let keys = match op {
            Op::Append(key, element) => {
                seen.push(Seen::append(i64::from(*key), *element as i64));
                continue;
            }
            Op::Read(key) => *key..*key + 1,
            Op::ScanKeys(keys) => keys.clone(),
            Op::ScanGroups(_) => continue,
        };
        seen.extend(keys.zip(reads.by_ref()).map(|(key, list)| list_of(key, list)));
    }
    seen
}
