//! What clients of the dynamically mastered database saw, as a history for the checker.

use hihooi_check::{BadHistory, History, Op as Seen, Outcome, Transaction};

use crate::mastering::node::{Member, Op, Request, Response, Work};
use crate::mastering::rows::Element;
use crate::mastering::session::Session;
use crate::mastering::site::SiteNode;
use crate::record::{self, Processes};
use crate::{Call, World};

/// The history of a run that is over, with a final read at each site.
///
/// # Errors
/// When the calls are no history: a defect of the simulation.
pub fn history(world: &World<Member, Session>) -> Result<History, BadHistory> {
    let mut history = History::new();
    let mut processes = Processes::of(world.calls());
    for call in world.calls() {
        let Request::Run(work) = &call.request else { continue };
        history.push(transaction(call, work, processes.of_call(call)))?;
    }
    for (id, member) in world.running() {
        if let Some(site) = member.site() {
            history.push(record::final_read(id, world.now(), all(site)))?;
        }
    }
    Ok(history)
}

fn transaction(call: &Call<Member>, work: &Work, process: i64) -> Transaction {
    let (outcome, reads) = match call.response.as_deref() {
        Some(Response::Committed { reads, .. }) => (Outcome::Committed, &reads[..]),
        Some(_) => (Outcome::Aborted, &[][..]),
        None => (Outcome::Unknown, &[][..]),
    };
    let mut reads = reads.iter();
    let mut ops = Vec::with_capacity(work.ops.len());
    for op in &work.ops {
        match op {
            Op::Append(key, element) => ops.push(Seen::append(i64::from(*key), *element as i64)),
            Op::Read(key) => ops.extend(reads.next().map(|list| list_of(*key, list))),
        }
    }
    record::of_call(call, process, outcome, ops)
}

fn list_of(key: u32, list: &[Element]) -> Seen {
    Seen::list(i64::from(key), list.iter().map(|element| *element as i64))
}

/// All that the site holds.
fn all(site: &SiteNode) -> Vec<Seen> {
    let rows = site.rows();
    let list = |key| site.vector().map_or(&[][..], |vector| rows.list(key, vector));
    (0..rows.keys()).map(|key| list_of(key, list(key))).collect()
}
