//! What the levels promise, checked over whole histories by looking at everything.

use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};

use super::world::{Attempt, Committed, World, show};

/// No two concurrent transactions that committed wrote the same row: with reads of one snapshot
/// each, that is 1-copy-SI (RSSI paper, section 3.2).
pub fn one_copy_si(world: &World) -> Result<(), String> {
    for (i, first) in world.committed.iter().enumerate() {
        for second in &world.committed[i + 1..] {
            let concurrent = second.attempt.transaction.begin < first.at;
            if concurrent && same_row(&first.attempt, &second.attempt) {
                return Err(format!("{:?} and {:?}", first.at, second.at));
            }
        }
    }
    Ok(())
}

/// The serialization graph of the versions that were read and written has no cycle (RSSI paper,
/// section 3.1), and executing the transactions one by one in an order that it allows shows each
/// of them what it has seen and leads to the same state.
pub fn serializable(world: &World) -> Result<(), String> {
    let graph = serialization_graph(&world.committed);
    let Ok(order) = toposort(&graph, None) else {
        return Err(format!("a cycle among {} transactions", world.committed.len()));
    };
    let mut state = world.first_state().clone();
    for node in order {
        let Committed { attempt, at } = &world.committed[node.index()];
        for (read, seen) in attempt.transaction.reads.iter().zip(&attempt.seen) {
            let shows = show(read, &state);
            if shows != *seen {
                return Err(format!("{at:?} saw {seen:?} of {read:?}, in order it is {shows:?}"));
            }
        }
        attempt.apply(&mut state);
    }
    if state == *world.state() { Ok(()) } else { Err("another state".into()) }
}

fn serialization_graph(committed: &[Committed]) -> DiGraph<(), ()> {
    let mut graph = DiGraph::new();
    for _ in committed {
        graph.add_node(());
    }
    for (i, first) in committed.iter().enumerate() {
        for (j, second) in committed.iter().enumerate().skip(i + 1) {
            let (i, j) = (NodeIndex::new(i), NodeIndex::new(j));
            let [before, after] = edges(first, second);
            if before {
                graph.add_edge(i, j, ());
            }
            if after {
                graph.add_edge(j, i, ());
            }
        }
    }
    graph
}

/// Whether the one that committed first must come before the second, and whether after.
fn edges(first: &Committed, second: &Committed) -> [bool; 2] {
    let ww = same_row(&first.attempt, &second.attempt);
    let overwritten = touched(&first.attempt, &second.attempt).next().is_some();
    let mut wr = false;
    let mut rw = false;
    for moment in touched(&second.attempt, &first.attempt) {
        match first.at <= moment {
            true => wr = true,
            false => rw = true,
        }
    }
    [ww || wr || overwritten, rw]
}

fn same_row(one: &Attempt, other: &Attempt) -> bool {
    let mut writes = one.transaction.writes.iter();
    writes.any(|write| other.transaction.writes.iter().any(|another| another.same_row(write)))
}

/// The moments of the reads that a write of the other touches.
pub fn touched(
    reader: &Attempt,
    writer: &Attempt,
) -> impl Iterator<Item = hihooi_certify::certification::Timestamp> {
    let reads = reader.transaction.reads.iter().zip(&reader.moments);
    let touched = reads
        .filter(|(read, _)| writer.transaction.writes.iter().any(|write| read.touched_by(write)));
    touched.map(|(_, moment)| *moment)
}
