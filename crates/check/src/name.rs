//! Names the anomaly that a cycle shows.

use crate::anomaly::Kind;
use crate::facts::Facts;
use crate::history::{Key, Step, Txn, Value};
use crate::registers::By;
use crate::tell::{Link, Why};

/// Names a cycle, whose links follow each other and return to the first.
pub(crate) fn cycle(facts: &Facts, links: &[Link]) -> Kind {
    let has = |by: By| links.iter().any(|link| link.why.by() == by);
    if has(By::Time) {
        with_time(facts, links)
    } else if has(By::Process) {
        with_process(links)
    } else {
        of_data(links)
    }
}

fn of_data(links: &[Link]) -> Kind {
    match links.iter().filter(|link| link.why.is_rw()).count() {
        // What one saw of two writers puts each of them behind the other.
        0 if links.iter().any(|link| link.why.by() == By::Seen) => match links.len() {
            2 => Kind::ReadSkew,
            _ => Kind::NoSnapshotOrder,
        },
        0 if links.iter().all(|link| matches!(link.why, Why::Ww(..))) => Kind::DirtyWrite,
        0 => Kind::CircularInformation,
        1 => single(links),
        _ if adjacent_rw(links) && links.len() == 2 => Kind::WriteSkew,
        _ if adjacent_rw(links) => Kind::NotSerializable,
        _ if is_long_fork(links) => Kind::LongFork,
        _ => Kind::NoSnapshotOrder,
    }
}

/// A cycle with one rw link.
fn single(links: &[Link]) -> Kind {
    let one_key = links.iter().all(|link| link.why.key() == links[0].why.key());
    let into_reader = before_rw(links);
    match into_reader.why {
        Why::Ww(..) if one_key => Kind::LostUpdate,
        Why::Wr(_) if one_key => Kind::NonRepeatableRead,
        _ => Kind::ReadSkew,
    }
}

/// The link that leads to the transaction whose read was overwritten.
fn before_rw(links: &[Link]) -> Link {
    let rw = links.iter().position(|link| link.why.is_rw()).unwrap_or(0);
    links[(rw + links.len() - 1) % links.len()]
}

/// Whether two rw links follow each other, as only write skew does under snapshot isolation.
fn adjacent_rw(links: &[Link]) -> bool {
    let next = links.iter().cycle().skip(1);
    links.iter().zip(next).any(|(a, b)| a.why.is_rw() && b.why.is_rw())
}

/// Readers and writers by turns: each reader saw the write before it, not the one behind it.
fn is_long_fork(links: &[Link]) -> bool {
    links.len() == 4 && links.iter().all(|link| link.why.is_rw() || matches!(link.why, Why::Wr(_)))
}

fn with_process(links: &[Link]) -> Kind {
    use Why::{Rw, Wr, Ww};
    match behind(links, |why| why == Why::Process)[..] {
        [Ww(..)] => Kind::MonotonicWrites,
        [Wr(_)] => Kind::FutureRead,
        [Ww(..), Wr(_)] => Kind::WritesFollowReads,
        [Rw(..)] => Kind::ReadYourWrites,
        [Rw(..), Wr(_)] => Kind::MonotonicReads,
        // Another client sees the later write without the earlier one, or without what the
        // process had seen.
        [Wr(_), Rw(..)] => Kind::MonotonicWrites,
        [Wr(_), Rw(..), Wr(_)] => Kind::WritesFollowReads,
        _ => Kind::SessionOrder,
    }
}

/// What the other links are, from the one behind the first such on; nothing if there is none.
fn behind(links: &[Link], is_it: fn(Why) -> bool) -> Vec<Why> {
    let Some(at) = links.iter().position(|link| is_it(link.why)) else { return Vec::new() };
    (1..links.len()).map(|n| links[(at + n) % links.len()].why).collect()
}

/// Of the two that follow each other in one process the first has ended in time, too.
fn with_time(facts: &Facts, links: &[Link]) -> Kind {
    use Why::{Rw, Wr};
    let is_time = |why| matches!(why, Why::Time | Why::Process);
    let writer = links.iter().find(|link| is_time(link.why)).map_or(0, |link| link.from);
    match behind(links, is_time)[..] {
        [Wr(_)] => Kind::FutureRead,
        [Rw(key, _)] if is_lost(facts, writer, key) => Kind::LostCommit,
        [Rw(..)] => Kind::StaleRead,
        [Rw(..), Wr(_)] => Kind::OldAfterNew,
        _ => Kind::RealTimeOrder,
    }
}

/// Whether all reads of the key that began after the writer had ended lack its append.
fn is_lost(facts: &Facts, writer: Txn, key: Key) -> bool {
    let appended = |step: &Step| match *step {
        Step::Append(k, value) if k == key => Some(value),
        _ => None,
    };
    let values: Vec<Value> = facts.history.steps(writer).iter().filter_map(appended).collect();
    let ended = facts.history.record(writer).completed;
    let reads = &facts.keys[key as usize].list_reads;
    let later = reads.iter().filter(|read| facts.history.record(read.txn).invoked > ended);
    let lacks = |list: &[Value]| !values.iter().any(|value| list.contains(value));
    !values.is_empty() && later.into_iter().all(|read| lacks(facts.elements(read)))
}
