//! The total-order logs: uniform (every entry has the same position for all readers) and durable. Appends may
//! be lost or duplicated before they are in the log, but not in it.

use crate::node::{LogId, Node, Position};

/// One log and who follows it.
#[derive(Debug)]
pub(crate) struct Log<N: Node> {
    pub entries: Vec<N::Entry>,
    followers: Vec<Option<Follower>>,
}

/// How far a node was told a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    pub next: Position,
    /// Whether a delivery is queued.
    pub awake: bool,
    pub incarnation: u32,
}

impl<N: Node> Log<N> {
    pub fn new(nodes: usize) -> Log<N> {
        Log { entries: Vec::new(), followers: vec![None; nodes] }
    }

    pub fn append(&mut self, entry: N::Entry) -> Position {
        self.entries.push(entry);
        Position(self.entries.len() as u64 - 1)
    }

    pub fn follow(&mut self, node: usize, next: Position, incarnation: u32) {
        self.followers[node] = Some(Follower { next, awake: false, incarnation });
    }

    pub fn forget(&mut self, node: usize) {
        self.followers[node] = None;
    }

    /// Marks the node's delivery as queued; `None` if it is already, or if nothing is there.
    pub fn wake(&mut self, node: usize) -> Option<u32> {
        let follower = self.followers[node].as_mut()?;
        let idle = !follower.awake && (follower.next.0 as usize) < self.entries.len();
        follower.awake |= idle;
        idle.then_some(follower.incarnation)
    }

    /// The queued delivery is due.
    pub fn next(&mut self, node: usize, incarnation: u32) -> Option<(Position, N::Entry)> {
        let follower = self.followers[node].as_mut().filter(|f| f.incarnation == incarnation)?;
        follower.awake = false;
        let position = follower.next;
        let entry = self.entries.get(position.0 as usize)?.clone();
        follower.next.0 += 1;
        Some((position, entry))
    }
}

/// What the kernel's queue holds for a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub node: u16,
    pub incarnation: u32,
    pub log: LogId,
}
